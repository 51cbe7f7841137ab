/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests: tensors that go to processes outside of the domain, as share.h states it: packets and
 * descriptors. Files by path are in outside_path_test.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "harness/harness.h"
#include "harness/tensor.h"
#include "share/share.h"

enum { LONG_MS = 20000, ROWS = 40, COLUMNS = 60, NOBODY = 65534 };
static const int socket_types[] = {SOCK_STREAM, SOCK_SEQPACKET};

/*
 * A process keeps one socket for ringing bells. It is made here, before a test counts
 * descriptors.
 */
__attribute__((constructor)) static void ring_once(void) { tni_os_bell_ring(1); }

static tn_domain *make_domain(void)
{
    return tnt_domain(&(tn_domain_options){.struct_size = sizeof(tn_domain_options),
                                           .quota_bytes = 64 << 20,
                                           .flags = TN_DOMAIN_NO_MANAGER});
}

static tn_tensor *make_as(tn_domain *d, uint32_t strategy, uint32_t flags)
{
    tn_tensor_options options = {
        .struct_size = sizeof options, .strategy = strategy, .flags = flags};
    tn_tensor *t;
    TN_CHECK_OK(tn_tensor_create(d, TN_FLOAT32, 2, (int64_t[]){ROWS, COLUMNS}, &options, &t));
    float *data = tn_tensor_data(t);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        data[i] = (float)i;
    return t;
}

static tn_tensor *make(tn_domain *d) { return make_as(d, TN_STRATEGY_FILE_DESCRIPTOR, 0); }

static tn_deadline soon(void) { return tnt_deadline(LONG_MS); }

struct pair {
    int ours, theirs;
};

static struct pair open_pair(int type)
{
    int fds[2];
    TN_CHECK(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, fds) == 0);
    return (struct pair){fds[0], fds[1]};
}

static void close_pair(struct pair *pair)
{
    close(pair->ours);
    close(pair->theirs);
}

static pid_t fork_with(struct pair *pair, tnt_child_fn *run)
{
    pid_t pid = tnt_fork(run, pair);
    close(pair->theirs);
    pair->theirs = -1;
    return pid;
}

/* In the child: keep only its end of the pair. */
static int take_end(struct pair *pair)
{
    close(pair->ours);
    return pair->theirs;
}

static void say(int fd) { TN_CHECK(send(fd, "!", 1, MSG_NOSIGNAL) == 1); }

static void hear(int fd)
{
    char byte;
    TN_CHECK(recv(fd, &byte, 1, 0) == 1);
}

static tn_tensor *receive(int fd)
{
    tn_tensor *t;
    TN_CHECK_OK(tn_tensor_receive(fd, soon(), &t));
    return t;
}

/* Send a tensor through a socket and receive it, in this process. */
static tn_tensor *through_socket(tn_tensor *t, uint32_t flags)
{
    struct pair pair = open_pair(SOCK_SEQPACKET);
    TN_CHECK_OK(tn_tensor_send(t, pair.ours, flags, soon()));
    tn_tensor *back = receive(pair.theirs);
    close_pair(&pair);
    return back;
}

/* ---- to a process that is no member ------------------------------------------------------ */

/* The child gets rows 1, 3, ... of the tensor, transposed. */
static int use_a_view(void *argument)
{
    int fd = take_end(argument);
    tn_tensor *t = receive(fd);
    TN_CHECK(tnt_info(t).strategy == TN_STRATEGY_FILE_DESCRIPTOR);
    TN_CHECK(tnt_info(t).is_shared && !tnt_info(t).is_read_only);
    TN_CHECK(tn_tensor_shape(t)[0] == COLUMNS && tn_tensor_shape(t)[1] == ROWS / 2);
    TN_CHECK(tnt_info(t).strides[0] == 1 && tnt_info(t).strides[1] == 2 * COLUMNS);
    TN_CHECK(tnt_info(t).storage_bytes == 4 * ROWS * COLUMNS);
    float *data = tn_tensor_data(t);
    for (int row = 0; row < ROWS / 2; row++)
        for (int column = 0; column < COLUMNS; column++)
            TN_CHECK(data[column + 2 * COLUMNS * row] ==
                     (float)(column + COLUMNS * (2 * row + 1)));
    data[0] = -1;
    say(fd);
    hear(fd);
    TN_CHECK(data[0] == -2);
    tn_tensor_unref(t);
    TN_CHECK(tnt_mapping_count() == 0);
    return 0;
}

static void share_with_a_stranger(int type)
{
    struct pair pair = open_pair(type);
    pid_t pid = fork_with(&pair, use_a_view);
    tn_domain *d = make_domain();
    tn_tensor *t = make(d), *rows, *view;
    TN_CHECK_OK(tn_tensor_slice(t, 0, 1, ROWS, 2, &rows));
    TN_CHECK_OK(tn_tensor_transpose(rows, NULL, &view));
    TN_CHECK_OK(tn_tensor_send(view, pair.ours, 0, soon()));
    hear(pair.ours);
    float *data = tn_tensor_data(view);
    assert_true(data[0] == -1);
    data[0] = -2;
    say(pair.ours);
    tnt_wait_ok(pid);
    tn_tensor_unref(view);
    tn_tensor_unref(rows);
    tn_tensor_unref(t);
    close(pair.ours);
    TNT_AUDIT(d);
    tn_domain_close(d);
}

TN_TEST(a_process_outside_shares_what_a_stream_brought) { share_with_a_stranger(SOCK_STREAM); }

TN_TEST(a_process_outside_shares_what_a_packet_socket_brought)
{
    share_with_a_stranger(SOCK_SEQPACKET);
}

static int become_another_program(void *argument)
{
    char number[16];
    int fd = take_end(argument);
    snprintf(number, sizeof number, "%d", fd);
    fcntl(fd, F_SETFD, 0);
    setenv("OUTSIDE_TEST_SOCKET", number, 1);
    execl("/proc/self/exe", "outside_test", "no test at all", (char *)NULL);
    return 1;
}

/* This program once more, started without a domain. */
__attribute__((constructor)) static void be_another_program(void)
{
    const char *number = getenv("OUTSIDE_TEST_SOCKET");
    if (number == NULL)
        return;
    int fd = atoi(number);
    tn_tensor *t = receive(fd);
    float *data = tn_tensor_data(t), sum = 0;
    for (int i = 0; i < ROWS * COLUMNS; i++)
        sum += data[i];
    data[0] = sum;
    say(fd);
    tn_tensor_unref(t);
    fflush(NULL);
    _exit(0);
}

TN_TEST(another_program_shares_what_was_sent)
{
    struct pair pair = open_pair(SOCK_STREAM);
    tn_domain *d = make_domain();
    tn_tensor *t = make(d);
    pid_t pid = fork_with(&pair, become_another_program);
    TN_CHECK_OK(tn_tensor_send(t, pair.ours, 0, soon()));
    hear(pair.ours);
    float sum = (float)ROWS * COLUMNS * (ROWS * COLUMNS - 1) / 2;
    assert_true(*(float *)tn_tensor_data(t) == sum);
    tnt_wait_ok(pid);
    tn_tensor_unref(t);
    close(pair.ours);
    tn_domain_close(d);
}

TN_TEST(attributes_arrive_with_the_tensor)
{
    tn_domain *d = make_domain();
    tn_tensor *t = make(d);
    size_t bytes;
    TN_CHECK_OK(tn_tensor_set_flags(t, TN_REQUIRES_GRAD | TN_PARAMETER));
    TN_CHECK_OK(tn_tensor_set_name(t, "weight"));
    TN_CHECK_OK(tn_tensor_set_metadata(t, "step", "12345", 5));
    tn_tensor *there = through_socket(t, 0), *back = through_socket(there, 0);
    assert_int_equal(tn_tensor_flags(back), TN_REQUIRES_GRAD | TN_PARAMETER);
    assert_string_equal(tn_tensor_name(back), "weight");
    assert_memory_equal(tn_tensor_metadata(back, "step", &bytes), "12345", 5);
    assert_int_equal(bytes, 5);
    tn_tensor_unref(t);
    tn_tensor_unref(there);
    tn_tensor_unref(back);
    tn_domain_close(d);
}

static int send_and_die(void *argument)
{
    int fd = take_end(argument);
    tn_domain *d = make_domain();
    TN_CHECK_OK(tn_tensor_send(make(d), fd, 0, soon()));
    raise(SIGKILL);
    return 1;
}

TN_TEST(what_was_sent_outlives_its_sender)
{
    for (size_t i = 0; i < TNI_COUNT(socket_types); i++) {
        struct pair pair = open_pair(socket_types[i]);
        assert_int_equal(tnt_wait(fork_with(&pair, send_and_die)), SIGKILL);
        tn_tensor *t = receive(pair.ours), *none = NULL;
        float *data = tn_tensor_data(t);
        for (int k = 0; k < ROWS * COLUMNS; k++)
            assert_true(data[k] == (float)k);
        data[7] = 8;
        assert_int_equal(tn_tensor_receive(pair.ours, soon(), &none), TN_ERR_CLOSED);
        tn_tensor_unref(t);
        close(pair.ours);
    }
}

TN_TEST(a_receiver_sends_on_what_it_got)
{
    tn_domain *d = make_domain();
    tn_tensor *t = make(d), *rows;
    TN_CHECK_OK(tn_tensor_slice(t, 0, 5, ROWS, 7, &rows));
    tn_tensor *first = through_socket(rows, 0);
    tn_tensor_unref(t);
    tn_tensor_unref(rows);
    tn_domain_close(d);
    tn_tensor *second = through_socket(first, 0),
              *third = through_socket(second, TN_SEND_READ_ONLY);
    tn_tensor *fourth = through_socket(third, 0);
    assert_true(tnt_info(third).is_read_only && tnt_info(fourth).is_read_only);
    *(float *)tn_tensor_data(second) = 77;
    tn_tensor_unref(first);
    tn_tensor_unref(second);
    tn_tensor_unref(third);
    assert_true(*(const float *)tn_tensor_data(fourth) == 77);
    assert_int_equal(tnt_info(fourth).strides[0], 7 * COLUMNS);
    tn_tensor_unref(fourth);
}

TN_TEST(what_came_from_outside_stays_outside)
{
    tn_domain *d = make_domain();
    tn_tensor *t = make(d), *there = through_socket(t, 0), *copy;
    tn_queue *queue;
    uint8_t handle[1024];
    size_t used;
    TN_CHECK_OK(tn_queue_open(d, NULL, NULL, 0, &queue));
    assert_int_equal(tn_tensor_share(d, there, NULL), TN_ERR_INVALID);
    assert_non_null(strstr(tn_error_detail(), "copy the tensor"));
    assert_int_equal(tn_queue_push_tensor(queue, there, 0, TN_NOW), TN_ERR_INVALID);
    assert_non_null(strstr(tn_error_detail(), "copy the tensor"));
    assert_int_equal(tn_handle_export(there, NULL, handle, sizeof handle, &used),
                     TN_ERR_INVALID);
    assert_int_equal(tn_tensor_resize_storage(there, 1 << 20), TN_ERR_DENIED);
    TN_CHECK_OK(tn_tensor_clone(d, there, NULL, &copy));
    TN_CHECK_OK(tn_queue_push_tensor(queue, copy, TN_PUSH_MOVE, TN_NOW));
    assert_null(tnt_info(there).path);
    tn_tensor_unref(there);
    tn_tensor_unref(t);
    tn_object_close(queue);
    tn_domain_close(d);
}

/* ---- descriptors ------------------------------------------------------------------------- */

TN_TEST(a_descriptor_gives_the_tensor_that_its_storage_was_made_for)
{
    tn_domain *d = make_domain();
    tn_tensor *t = make(d), *view, *same;
    int fd;
    TN_CHECK_OK(tn_tensor_slice(t, 0, 3, 4, 1, &view));
    TN_CHECK_OK(tn_tensor_descriptor(view, 0, &fd));
    assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
    TN_CHECK_OK(tn_tensor_from_descriptor(fd, &same));
    assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC); /* the caller still owns it */
    close(fd);
    assert_int_equal(tn_tensor_ndim(same), 2);
    assert_memory_equal(tn_tensor_shape(same), tn_tensor_shape(t), 16);
    assert_memory_equal(tn_tensor_data(same), tn_tensor_data(t), 4 * ROWS * COLUMNS);
    assert_true(tnt_info(same).is_contiguous && !tnt_info(same).is_read_only);
    *(float *)tn_tensor_data(same) = 5;
    assert_true(*(float *)tn_tensor_data(t) == 5);
    tn_tensor_unref(same);
    tn_tensor_unref(view);
    tn_tensor_unref(t);
    tn_domain_close(d);
}

enum { MORE_THAN_KEPT = 70 };

TN_TEST(a_descriptor_that_only_tenond_keeps_is_sent)
{
    tn_domain *d = tnt_domain(NULL);
    tn_tensor *tensors[MORE_THAN_KEPT];
    unsigned descriptors = tnt_descriptor_count();
    for (int i = 0; i < MORE_THAN_KEPT; i++)
        tensors[i] = make(d);
    assert_in_range(tnt_descriptor_count(), descriptors + 1, descriptors + MORE_THAN_KEPT - 1);
    float *last = tn_tensor_data(tensors[MORE_THAN_KEPT - 1]);
    for (uint32_t flags = 0; flags <= TN_SEND_READ_ONLY; flags++) {
        tn_tensor *there = through_socket(tensors[MORE_THAN_KEPT - 1], flags);
        last[3] = 30 + (float)flags;
        assert_true(((const float *)tn_tensor_data(there))[3] == 30 + (float)flags);
        tn_tensor_unref(there);
    }
    for (int i = 0; i < MORE_THAN_KEPT; i++)
        tn_tensor_unref(tensors[i]);
    tn_domain_close(d);
}

TN_TEST(a_storage_without_elements_travels_too)
{
    tn_domain *d = make_domain();
    tn_tensor_options options = {.struct_size = sizeof options,
                                 .strategy = TN_STRATEGY_FILE_DESCRIPTOR};
    tn_tensor *t;
    TN_CHECK_OK(tn_tensor_create(d, TN_INT64, 2, (int64_t[]){0, 5}, &options, &t));
    tn_tensor *there = through_socket(t, 0);
    assert_int_equal(tn_tensor_count(there), 0);
    assert_int_equal(tn_tensor_shape(there)[1], 5);
    assert_null(tn_tensor_data(there));
    tn_tensor_unref(there);
    tn_tensor_unref(t);
    tn_domain_close(d);
}

/* Find the highest descriptor that refers to this tensor's object. */
static int last_of_object(tn_tensor *t)
{
    struct tni_os_memory object, memory;
    int fd, found = -1;
    TN_CHECK_OK(tn_tensor_descriptor(t, 0, &fd));
    TN_CHECK_OK(tni_os_memory_stat(fd, &object));
    close(fd);
    for (int i = 0; i < 100; i++)
        if (tni_os_memory_stat(i, &memory) == 0 && memory.inode == object.inode)
            found = i;
    return found;
}

TN_TEST(a_descriptor_that_the_program_closed_is_an_error)
{
    tn_domain *d = make_domain();
    tn_tensor *t = make(d);
    int fd = -1, other = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int theirs = last_of_object(t);
    tn_tensor *there = through_socket(t, 0);
    int kept = last_of_object(t);
    assert_true(kept > theirs);
    assert_int_equal(dup3(other, kept, O_CLOEXEC), kept);
    assert_int_equal(tn_tensor_descriptor(there, 0, &fd), TN_ERR_SYSTEM);
    tn_tensor_unref(there);
    assert_int_not_equal(fcntl(kept, F_GETFD), -1);
    close(kept);
    close(other);
    tn_tensor_unref(t);
    tn_domain_close(d);
}

TN_TEST(what_cannot_be_sent_is_said)
{
    tn_domain *d = make_domain();
    tn_tensor *arena = make_as(d, TN_STRATEGY_ARENA, 0), *t = make(d), *private,
              *file = make_as(d, TN_STRATEGY_FILE_SYSTEM, 0);
    struct pair pair = open_pair(SOCK_STREAM);
    int fd = -7, pipes[2];
    TN_CHECK(pipe(pipes) == 0);
    TN_CHECK_OK(tn_tensor_create_private(TN_INT8, 0, NULL, &private));
    assert_int_equal(tn_tensor_send(private, pair.ours, 0, TN_NOW), TN_ERR_INVALID);
    assert_int_equal(tn_tensor_send(NULL, pair.ours, 0, TN_NOW), TN_ERR_INVALID);
    assert_int_equal(tn_tensor_send(t, pair.ours, 2, TN_NOW), TN_ERR_INVALID);
    assert_int_equal(tn_tensor_send(t, pipes[1], 0, TN_NOW), TN_ERR_INVALID);
    assert_int_equal(tn_tensor_send(t, -1, 0, TN_NOW), TN_ERR_INVALID);
    assert_int_equal(tn_tensor_send(arena, pair.ours, 0, TN_NOW), TN_ERR_UNSUPPORTED);
    assert_non_null(strstr(tn_error_detail(), "'arena'"));
    assert_non_null(strstr(tn_error_detail(), "'file_descriptor'"));
    assert_int_equal(tn_tensor_send(file, pair.ours, 0, TN_NOW), TN_ERR_UNSUPPORTED);
    assert_non_null(strstr(tn_error_detail(), "'file_system'"));
    assert_int_equal(tn_tensor_descriptor(arena, 0, &fd), TN_ERR_UNSUPPORTED);
    assert_int_equal(tn_tensor_descriptor(t, 0, NULL), TN_ERR_INVALID);
    assert_int_equal(fd, -7);
    assert_int_equal(tn_tensor_from_descriptor(-1, &private), TN_ERR_INVALID);
    assert_int_equal(tn_tensor_receive(pair.theirs, TN_NOW, &private), TN_ERR_TIMED_OUT);
    assert_int_equal(tn_tensor_receive(pair.theirs, TN_NOW, NULL), TN_ERR_INVALID);
    close(pair.theirs);
    assert_int_equal(tn_tensor_send(t, pair.ours, 0, TN_NOW), TN_ERR_CLOSED);
    close(pair.ours);
    close(pipes[0]);
    close(pipes[1]);
    tn_tensor_unref(private);
    tn_tensor_unref(arena);
    tn_tensor_unref(file);
    tn_tensor_unref(t);
    TNT_AUDIT(d);
    tn_domain_close(d);
}

TN_TEST(sending_to_a_peer_that_does_not_read_ends_at_the_deadline)
{
    tn_domain *d = make_domain();
    tn_tensor *t = make(d);
    for (size_t i = 0; i < TNI_COUNT(socket_types); i++) {
        struct pair pair = open_pair(socket_types[i]);
        int status = 0;
        for (int n = 0; n < 100000 && status == 0; n++)
            status = tn_tensor_send(t, pair.ours, 0, TN_NOW);
        assert_int_equal(status, TN_ERR_TIMED_OUT);
        assert_int_equal(tn_tensor_send(t, pair.ours, 0, tnt_deadline(20)), TN_ERR_TIMED_OUT);
        tn_tensor_unref(receive(pair.theirs)); /* no packet arrived in two parts */
        close_pair(&pair);
    }
    tn_tensor_unref(t);
    tn_domain_close(d);
}

/* ---- which receivers may write ----------------------------------------------------------- */

/* The kernel's answer, an errno or 0, to each way of writing to the object of a descriptor. */
struct tries {
    int protect, map, write, reopen, map_reopened, write_reopened;
    int reopen_own; /* as `reopen`, with a file that may certainly be reopened */
};

static int try_map(int fd, size_t size)
{
    void *address = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    int error = address == MAP_FAILED ? errno : 0;
    if (error == 0)
        munmap(address, size);
    return error;
}

static int try_write(int fd)
{
    return pwrite(fd, "oops", 4, (off_t)sysconf(_SC_PAGESIZE)) == 4 ? 0 : errno;
}

static int reopen(int fd, int *ret_fd)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    *ret_fd = open(path, O_RDWR | O_CLOEXEC);
    return *ret_fd >= 0 ? 0 : errno;
}

static void try_all(tn_tensor *t, struct tries *ret_tries)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    int fd, again, own = memfd_create("own", MFD_CLOEXEC);
    TN_CHECK_OK(tn_tensor_descriptor(t, 0, &fd));
    ret_tries->protect =
        mprotect(tn_tensor_data(t), page, PROT_READ | PROT_WRITE) == 0 ? 0 : errno;
    ret_tries->map = try_map(fd, page);
    ret_tries->write = try_write(fd);
    ret_tries->reopen_own = reopen(own, &again);
    close(again);
    close(own);
    ret_tries->reopen = reopen(fd, &again);
    if (ret_tries->reopen == 0) {
        ret_tries->map_reopened = try_map(again, page);
        ret_tries->write_reopened = try_write(again);
        close(again);
    }
    close(fd);
}

static int try_to_write(void *argument)
{
    int fd = take_end(argument);
    struct tries tries = {0};
    tn_tensor *t = receive(fd);
    TN_CHECK(tnt_info(t).is_read_only);
    TN_CHECK(((const float *)tn_tensor_data(t))[100] == 100);
    try_all(t, &tries);
    TN_CHECK(send(fd, &tries, sizeof tries, 0) == sizeof tries);
    hear(fd);
    TN_CHECK(((const float *)tn_tensor_data(t))[100] == -3); /* the write is seen */
    tn_tensor_unref(t);
    return 0;
}

static int try_to_write_as_nobody(void *argument)
{
    TN_CHECK(setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
    /* Without this, nothing in /proc/self could be opened, whatever its mode. */
    TN_CHECK(prctl(PR_SET_DUMPABLE, 1) == 0);
    return try_to_write(argument);
}

static const char *name_of(int error) { return error == 0 ? "allowed" : strerror(error); }

static struct tries let_try(tnt_child_fn *run, uint32_t share_flags, uint32_t send_flags)
{
    struct pair pair = open_pair(SOCK_SEQPACKET);
    pid_t pid = fork_with(&pair, run);
    tn_domain *d = make_domain();
    tn_tensor *t = make_as(d, TN_STRATEGY_FILE_DESCRIPTOR, share_flags);
    struct tries tries;
    assert_false(tnt_info(t).is_read_only);
    TN_CHECK_OK(tn_tensor_send(t, pair.ours, send_flags, soon()));
    TN_CHECK(recv(pair.ours, &tries, sizeof tries, 0) == sizeof tries);
    float *data = tn_tensor_data(t);
    assert_true(data[0] == 0); /* "oops" was not written */
    data[100] = -3;
    say(pair.ours);
    tnt_wait_ok(pid);
    tnt_note("mprotect: %s; mmap: %s; write: %s", name_of(tries.protect), name_of(tries.map),
             name_of(tries.write));
    tnt_note("open anew: %s%s%s%s%s", name_of(tries.reopen),
             tries.reopen == 0 ? ", then mmap: " : "",
             tries.reopen == 0 ? name_of(tries.map_reopened) : "",
             tries.reopen == 0 ? ", write: " : "",
             tries.reopen == 0 ? name_of(tries.write_reopened) : "");
    close(pair.ours);
    tn_tensor_unref(t);
    tn_domain_close(d);
    assert_int_equal(tries.reopen_own, 0);
    assert_int_equal(tries.protect, EACCES);
    return tries;
}

TN_TEST(another_user_cannot_write_through_a_read_only_descriptor)
{
    if (geteuid() != 0)
        tnt_skip("only root can become another user");
    struct tries tries = let_try(try_to_write_as_nobody, 0, TN_SEND_READ_ONLY);
    assert_int_equal(tries.map, EACCES);
    assert_int_equal(tries.write, EBADF);
    assert_int_equal(tries.reopen, EACCES);
}

/*
 * The receiver may open the object again, as the header says; the descriptor that it got
 * cannot write.
 */
static int try_as_ourselves(void *argument)
{
    int fd = take_end(argument), own;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    tn_tensor *t = receive(fd);
    TN_CHECK(tnt_info(t).is_read_only);
    TN_CHECK_OK(tn_tensor_descriptor(t, 0, &own));
    TN_CHECK(mprotect(tn_tensor_data(t), page, PROT_READ | PROT_WRITE) != 0 && errno == EACCES);
    TN_CHECK(try_map(own, page) == EACCES);
    TN_CHECK(try_write(own) == EBADF);
    close(own);
    tn_tensor_unref(t);
    return 0;
}

TN_TEST(a_read_only_descriptor_does_not_write_for_the_same_user)
{
    struct pair pair = open_pair(SOCK_STREAM);
    pid_t pid = fork_with(&pair, try_as_ourselves);
    tn_domain *d = make_domain();
    tn_tensor *t = make(d);
    TN_CHECK_OK(tn_tensor_send(t, pair.ours, TN_SEND_READ_ONLY, soon()));
    tnt_wait_ok(pid);
    close(pair.ours);
    tn_tensor_unref(t);
    tn_domain_close(d);
}

TN_TEST(only_the_maker_writes_a_write_once_storage)
{
    uint32_t flags[] = {0, TN_SEND_READ_ONLY};
    for (size_t i = 0; i < TNI_COUNT(flags); i++) {
        struct tries tries = let_try(try_to_write, TN_TENSOR_WRITE_ONCE, flags[i]);
        assert_int_equal(tries.map, flags[i] == 0 ? EPERM : EACCES);
        assert_int_equal(tries.write, flags[i] == 0 ? EPERM : EBADF);
        assert_int_equal(tries.reopen,
                         0); /* the same user may reopen it, which does not help */
        assert_int_equal(tries.map_reopened, EPERM);
        assert_int_equal(tries.write_reopened, EPERM);
    }
}

static int send_on_as_nobody(void *argument)
{
    int fd = take_end(argument);
    TN_CHECK(setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
    tn_tensor *t = receive(fd);
    TN_CHECK_OK(tn_tensor_send(t, fd, TN_SEND_READ_ONLY, soon()));
    tn_tensor_unref(t);
    return 0;
}

TN_TEST(another_user_sends_on_what_it_can_only_read)
{
    if (geteuid() != 0)
        tnt_skip("only root can become another user");
    struct pair pair = open_pair(SOCK_STREAM);
    pid_t pid = fork_with(&pair, send_on_as_nobody);
    tn_domain *d = make_domain();
    tn_tensor *t = make(d);
    TN_CHECK_OK(tn_tensor_send(t, pair.ours, TN_SEND_READ_ONLY, soon()));
    tn_tensor *back = receive(pair.ours);
    assert_true(tnt_info(back).is_read_only);
    assert_true(((const float *)tn_tensor_data(back))[9] == 9);
    tnt_wait_ok(pid);
    close(pair.ours);
    tn_tensor_unref(back);
    tn_tensor_unref(t);
    tn_domain_close(d);
}

/* ---- which receivers may seal ------------------------------------------------------------ */

TN_TEST(a_receiver_cannot_seal_what_it_got_any_further)
{
    const uint32_t share_flags[] = {0, TN_TENSOR_WRITE_ONCE};
    for (size_t i = 0; i < TNI_COUNT(share_flags); i++) {
        int fd;
        tn_domain *d = make_domain();
        tn_tensor *t = make_as(d, TN_STRATEGY_FILE_DESCRIPTOR, share_flags[i]);
        tn_tensor *there = through_socket(t, 0);
        TN_CHECK_OK(tn_tensor_descriptor(there, 0, &fd));
        const int seals = fcntl(fd, F_GET_SEALS);
        assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), -1);
        assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL), -1);
        assert_int_equal(fcntl(fd, F_GET_SEALS), seals);
        close(fd);
        tn_tensor_unref(there);
        tn_tensor_unref(t);
        tn_domain_close(d);
    }
}
