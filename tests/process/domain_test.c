/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests: the life of a domain and of its memory, as domain.h and tensor.h state them.
 * manager_test.c has the tests of tenond.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/harness.h"
#include "harness/members.h"
#include "harness/tensor.h"
#include "reaper/reaper.h"
#include "sync/sync.h"

enum { MIB = 1 << 20, LONG_MS = 20000 };

/*
 * A process keeps one socket for ringing bells. It is made here, before a test counts
 * descriptors.
 */
__attribute__((constructor)) static void ring_once(void) { tni_os_bell_ring(1); }

static tn_domain *create(const char *name, uint64_t quota_bytes, uint64_t watermark_bytes)
{
    tn_domain *d;
    tn_domain_options options = {.struct_size = sizeof options,
                                 .quota_bytes = quota_bytes,
                                 .watermark_bytes = watermark_bytes,
                                 .flags = name == NULL ? TN_DOMAIN_NO_MANAGER : 0};
    TN_CHECK_OK(tn_domain_open(name, &options, TN_OPEN_NEW, &d));
    return d;
}

static tn_tensor *empty(tn_domain *d, int64_t bytes)
{
    tn_tensor *tensor;
    TN_CHECK_OK(tn_tensor_create(d, TN_UINT8, 1, &bytes, NULL, &tensor));
    return tensor;
}

static tn_tensor *filled(tn_domain *d, int64_t bytes, int byte)
{
    tn_tensor *tensor = empty(d, bytes);
    memset(tn_tensor_data(tensor), byte, (size_t)bytes);
    return tensor;
}

static void expect_filled(const tn_tensor *tensor, int byte)
{
    const uint8_t *data = tn_tensor_data(tensor);
    for (int64_t i = 0; i < tn_tensor_count(tensor); i++)
        if (data[i] != byte)
            fail_msg("byte %lld is %#x, not %#x", (long long)i, data[i], (unsigned)byte);
}

/* Memory that the system has given to the arena. */
static uint64_t arena_bytes(const tn_domain *d)
{
    struct stat stat;
    TN_CHECK(fstat(d->segment.arena_fd, &stat) == 0);
    return (uint64_t)stat.st_blocks * 512;
}

static uint64_t shared_memory_of_machine(void)
{
    char line[256];
    unsigned long long kib = 0;
    FILE *file = fopen("/proc/meminfo", "re");
    TN_CHECK(file != NULL);
    while (fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "Shmem: %llu kB", &kib) == 1)
            break;
    fclose(file);
    return kib * 1024;
}

static tn_domain_stat stat_of(const char *name)
{
    tn_inspector *inspector;
    tn_domain_stat stat = {.struct_size = sizeof stat};
    TN_CHECK_OK(tn_inspector_open(name, &inspector));
    TN_CHECK_OK(tn_inspect_stat(inspector, &stat));
    tn_inspector_close(inspector);
    return stat;
}

/* ---- create, join, open, inherit, leave -------------------------------------------------- */

static int push_from_a_joined_domain(void *argument)
{
    tn_domain *d;
    tn_queue *queue;
    tn_domain_close(argument);
    TN_CHECK_OK(tn_domain_open("house", NULL, TN_OPEN_EXISTING, &d));
    TN_CHECK_OK(tn_queue_open(d, "door", NULL, TN_OPEN_EXISTING, &queue));
    TN_CHECK_OK(tn_queue_push_tensor(queue, filled(d, 1000, 7), TN_PUSH_MOVE, TN_FOREVER));
    tn_object_close(queue);
    tn_domain_close(d);
    return 0;
}

TN_TEST(joining_by_name_shares_memory_with_the_maker)
{
    tn_domain *d = create("house", 64 * MIB, 0), *same;
    tn_queue *queue;
    tn_tensor *tensor;
    TN_CHECK_OK(tn_queue_open(d, "door", NULL, TN_OPEN_NEW, &queue));
    assert_string_equal(tnt_domain_name(d), "house");
    tnt_wait_ok(tnt_fork(push_from_a_joined_domain, d));
    TN_CHECK_OK(tn_queue_pop_tensor(queue, TN_NOW, &tensor));
    expect_filled(tensor, 7);
    tn_tensor_unref(tensor);
    /* tn_domain_open() finds it by its name, and takes another seat. */
    TN_CHECK_OK(tn_domain_open("house", NULL, 0, &same));
    assert_int_not_equal(tnt_seat(same), tnt_seat(d));
    assert_int_equal(tnt_members(&d->segment, 2), 2);
    tn_domain_close(same);
    tn_object_close(queue);
    TNT_AUDIT(d);
    tn_domain_close(d);
    TN_CHECK_OK(tn_domain_open("another", NULL, 0, &d));
    assert_string_equal(tnt_domain_name(d), "another");
    tn_domain_close(d);
}

static int tell_number_and_stay(void *queue)
{
    uint64_t number = tnt_member(((struct tn_object *)queue)->domain);
    tn_message message = {.bytes = &number, .size_bytes = sizeof number};
    TN_CHECK_OK(tn_queue_push(queue, &message, 0, TN_NOW));
    return pause();
}

static uint64_t pop_number(tn_queue *queue)
{
    tn_message message;
    uint64_t number;
    TN_CHECK_OK(tn_queue_pop(queue, TN_FOREVER, &message));
    assert_int_equal(message.size_bytes, sizeof number);
    memcpy(&number, message.bytes, sizeof number);
    tn_message_fini(&message);
    return number;
}

TN_TEST(a_member_is_known_by_its_number_until_it_dies)
{
    tn_domain *d = create(NULL, 64 * MIB, 0);
    tn_queue *queue;
    uint64_t numbers[2];
    assert_true(tn_domain_has_member(d, tnt_member(d)));
    for (int i = 0; i < 2; i++) { /* two processes in the same seat, one after the other */
        TN_CHECK_OK(tn_queue_open(d, NULL, NULL, 0, &queue));
        pid_t child = tnt_fork(tell_number_and_stay, queue);
        numbers[i] = pop_number(queue);
        assert_true(tn_domain_has_member(d, numbers[i]));
        tnt_kill(child);
        assert_false(tn_domain_has_member(d, numbers[i]));
        TN_CHECK_OK(tn_domain_reap(d, NULL));
        assert_false(tn_domain_has_member(d, numbers[i]));
        tn_object_close(queue);
    }
    assert_true(numbers[0] != numbers[1] && numbers[0] != tnt_member(d));
    const uint64_t nobodys[] = {0, 2, UINT64_MAX, UINT64_C(0xffff0001)};
    for (int i = 0; i < 4; i++)
        assert_false(tn_domain_has_member(d, nobodys[i]));
    assert_false(tn_domain_has_member(NULL, tnt_member(d)));
    assert_int_equal(tnt_member(NULL), 0);
    TNT_AUDIT(d);
    tn_domain_close(d);
}

enum { INHERITORS = 3 };

/* Execute this program again: be_a_program_that_inherits() runs in it. */
static int exec_with_domain(void *argument)
{
    char value[64];
    TN_CHECK_OK(tn_domain_pass(argument, value, sizeof value));
    setenv("TENON_DOMAIN", value, 1);
    setenv("DOMAIN_TEST_INHERITS", "1", 1);
    execl("/proc/self/exe", "domain_test", "no test at all", (char *)NULL);
    return 1;
}

__attribute__((constructor)) static void be_a_program_that_inherits(void)
{
    tn_domain *d;
    tn_queue *queue;
    if (getenv("DOMAIN_TEST_INHERITS") == NULL)
        return;
    TN_CHECK_OK(tn_domain_inherit(&d));
    TN_CHECK_OK(tn_queue_open(d, "door", NULL, TN_OPEN_EXISTING, &queue));
    TN_CHECK_OK(tn_queue_push_tensor(queue, filled(d, 1000, 9), TN_PUSH_MOVE, TN_FOREVER));
    tn_object_close(queue);
    tn_domain_close(d);
    fflush(NULL);
    _exit(0);
}

TN_TEST(a_program_inherits_an_anonymous_domain_through_exec)
{
    tn_domain *d = create(NULL, 64 * MIB, 0);
    tn_queue *queue;
    tn_tensor *tensor;
    TN_CHECK_OK(tn_queue_open(d, "door", NULL, TN_OPEN_NEW, &queue));
    for (int i = 0; i < INHERITORS; i++) {
        tnt_wait_ok(tnt_fork(exec_with_domain, d));
        TN_CHECK_OK(tn_queue_pop_tensor(queue, TN_NOW, &tensor));
        expect_filled(tensor, 9);
        tn_tensor_unref(tensor);
    }
    /* The seats that the children got by fork ended at the exec. */
    uint32_t reaped = 0;
    TN_CHECK_OK(tn_domain_reap(d, &reaped));
    tn_object_close(queue);
    TNT_AUDIT(d);
    tn_domain_close(d);
}

static int hold_and_leave(void *argument)
{
    tn_domain *d = argument;
    tn_tensor *tensors[200];
    tn_queue *queue;
    tn_lock *lock;
    tn_semaphore *semaphore;
    TN_CHECK_OK(tn_queue_open(d, NULL, NULL, 0, &queue));
    TN_CHECK_OK(tn_lock_open(d, NULL, 0, &lock));
    TN_CHECK_OK(tn_semaphore_open(d, NULL, 3, TN_SEMAPHORE_OWNED, &semaphore));
    TN_CHECK_OK(tn_lock_acquire(lock, TN_NOW));
    TN_CHECK_OK(tn_semaphore_acquire(semaphore, TN_NOW));
    for (int i = 0; i < 200; i++)
        tensors[i] = filled(d, 100 << (i % 16), i);
    for (int i = 0; i < 50; i++)
        TN_CHECK_OK(tn_queue_push_tensor(queue, tensors[i], i % 2 ? TN_PUSH_MOVE : 0, TN_NOW));
    tn_domain_close(d);
    /* A tensor that is left can still be released, and should be. */
    for (int i = 0; i < 200; i++)
        if (i >= 50 || i % 2 == 0)
            tn_tensor_unref(tensors[i]);
    tn_object_close(queue);
    tn_object_close(lock);
    tn_object_close(semaphore);
    TN_CHECK(tnt_mapping_count() == 0);
    return 0;
}

TN_TEST(leaving_gives_everything_back)
{
    tn_domain *d = create("house", 256 * MIB, 0);
    tnt_wait_ok(tnt_fork(hold_and_leave, d));
    tn_domain_stat stat = stat_of("house");
    assert_int_equal(stat.blocks_live, 0);
    assert_int_equal(stat.objects_used, 0);
    assert_int_equal(tnt_members(&d->segment, 1), 1);
    TNT_AUDIT(d);
    tn_domain_close(d);
}

/* ---- its end ----------------------------------------------------------------------------- */

static bool is_file_of(const char *path, uint64_t inode)
{
    char target[256];
    struct stat stat_now;
    ssize_t len = readlink(path, target, sizeof target - 1);
    if (len <= 0)
        return false;
    target[len] = '\0';
    return strncmp(target, "/memfd:tenon", 12) == 0 && stat(path, &stat_now) == 0 &&
           stat_now.st_ino == inode;
}

/* Count the descriptors of all processes that refer to this memory object. */
static unsigned count_openers(uint64_t inode)
{
    char path[300];
    unsigned count = 0;
    DIR *processes = opendir("/proc");
    TN_CHECK(processes != NULL);
    for (struct dirent *process; (process = readdir(processes)) != NULL;) {
        if (process->d_name[0] < '1' || process->d_name[0] > '9')
            continue;
        snprintf(path, sizeof path, "/proc/%.20s/fd", process->d_name);
        DIR *list = opendir(path);
        for (struct dirent *entry; list != NULL && (entry = readdir(list)) != NULL;) {
            snprintf(path, sizeof path, "/proc/%.20s/fd/%.20s", process->d_name, entry->d_name);
            count += is_file_of(path, inode);
        }
        if (list != NULL)
            closedir(list);
    }
    closedir(processes);
    return count;
}

static int open_manager(const char *name)
{
    int fd;
    TN_CHECK_OK(tni_os_process_open(stat_of(name).manager_pid, &fd));
    return fd;
}

static void await_manager_end(int process_fd)
{
    TN_CHECK_OK(tni_os_poll(&process_fd, 1, tnt_until_ns(LONG_MS)));
    tni_os_close(process_fd);
}

TN_TEST(a_domain_is_gone_a_moment_after_its_last_member_left)
{
    tn_domain *d = create("house", 64 * MIB, 0), *none = NULL;
    uint64_t control = d->segment.control_inode, arena = d->segment.arena_inode;
    int manager = open_manager("house");
    tn_tensor *left = filled(d, MIB, 1); /* its mapping stays until the tensor is released */
    assert_true(count_openers(control) >= 2);
    tn_domain_close(d);
    await_manager_end(manager);
    assert_int_equal(count_openers(control), 0);
    assert_int_equal(count_openers(arena), 0);
    assert_int_equal(tn_domain_open("house", NULL, TN_OPEN_EXISTING, &none), TN_ERR_NOT_FOUND);
    assert_true(tnt_mapping_count() > 0);
    tn_tensor_unref(left);
    assert_int_equal(tnt_mapping_count(), 0);
}

/* ---- a program that has closed its standard streams -------------------------------------- */

static int write_to_closed_streams(void *argument)
{
    tn_domain *d, *same;
    tn_queue *queue;
    tn_tensor *tensor;
    int bell;
    (void)argument;
    for (int fd = 0; fd <= 2; fd++)
        close(fd);
    d = create("closed", 64 * MIB, 0);
    TN_CHECK_OK(tn_queue_open(d, "door", NULL, TN_OPEN_NEW, &queue));
    TN_CHECK_OK(tn_domain_poll_fd(d, &bell));
    TN_CHECK_OK(tn_tensor_create(
        d, TN_UINT8, 1, (int64_t[]){MIB},
        TN_OPTIONS(tn_tensor_options, .strategy = TN_STRATEGY_FILE_DESCRIPTOR), &tensor));
    TN_CHECK_OK(tn_domain_open("closed", NULL, TN_OPEN_EXISTING, &same));
    for (int fd = 0; fd <= 2; fd++)
        for (int i = 0; i < 1000; i++)
            TN_CHECK(write(fd, "a line that the program prints\n", 31) == -1 && errno == EBADF);
    for (pid_t pid; (pid = fork()) == 0;)
        _exit(fcntl(0, F_GETFD) >= 0 || fcntl(1, F_GETFD) >= 0 || fcntl(2, F_GETFD) >= 0);
    int status = -1;
    TN_CHECK(wait(&status) > 0 && status == 0);
    TNT_AUDIT(d);
    tn_tensor_unref(tensor);
    tn_object_close(queue);
    tn_domain_close(same);
    tn_domain_close(d);
    return 0;
}

TN_TEST(what_a_program_prints_to_a_closed_stream_goes_nowhere)
{
    tnt_wait_ok(tnt_fork(write_to_closed_streams, NULL));
}

struct doomed {
    int pipe_fds[2];
};

static void be_doomed(const struct doomed *doomed, tn_domain *d)
{
    tn_queue *queue;
    TN_CHECK_OK(tn_queue_open(d, "door", NULL, TN_OPEN_EXISTING, &queue));
    TN_CHECK_OK(tn_queue_push_tensor(queue, filled(d, MIB, 3), 0, TN_NOW));
    TN_CHECK(write(doomed->pipe_fds[1], "", 1) == 1);
    for (;;)
        pause();
}

static int found_a_doomed_house(void *argument)
{
    const struct doomed *doomed = argument;
    tn_domain *d = create("house", 64 * MIB, 0);
    tn_queue *queue;
    int64_t facts[3] = {(int64_t)d->segment.control_inode, (int64_t)d->segment.arena_inode,
                        stat_of("house").manager_pid};
    setpgid(0, 0);
    TN_CHECK_OK(tn_queue_open(d, "door", NULL, TN_OPEN_NEW, &queue));
    for (int i = 0; i < 3; i++)
        if (fork() == 0)
            be_doomed(doomed, d);
    char byte;
    for (int i = 0; i < 3; i++)
        TN_CHECK(read(doomed->pipe_fds[0], &byte, 1) == 1);
    TN_CHECK(write(doomed->pipe_fds[1], facts, sizeof facts) == sizeof facts);
    kill(0, SIGKILL); /* every member */
    return 1;
}

TN_TEST(a_domain_whose_members_are_all_killed_at_once_is_gone_too)
{
    struct doomed doomed;
    int64_t facts[3] = {0};
    int manager;
    TN_CHECK(pipe(doomed.pipe_fds) == 0);
    int status = tnt_wait(tnt_fork(found_a_doomed_house, &doomed));
    assert_int_equal(status, SIGKILL);
    TN_CHECK(read(doomed.pipe_fds[0], facts, sizeof facts) == sizeof facts);
    if (tni_os_process_open((int32_t)facts[2], &manager) == 0)
        await_manager_end(manager);
    assert_int_equal(count_openers((uint64_t)facts[0]), 0);
    assert_int_equal(count_openers((uint64_t)facts[1]), 0);
    close(doomed.pipe_fds[0]);
    close(doomed.pipe_fds[1]);
}

/* ---- fork -------------------------------------------------------------------------------- */

struct inheritance {
    tn_domain *domain;
    tn_tensor *tensor;
    struct tnt_signal go;
    bool waits;
};

static int look_at_inheritance(void *argument)
{
    struct inheritance *in = argument;
    if (in->waits)
        tnt_await(&in->go);
    expect_filled(in->tensor, 0x11);
    in->tensor = tn_tensor_unref(in->tensor);
    if (tnt_random_below(2) == 0)
        tn_domain_close(in->domain);
    return 0;
}

/*
 * The parent gives its hold back at once and writes over freed memory. Either process may be
 * first.
 */
TN_TEST(what_a_parent_gives_back_right_after_a_fork_stays_its_childs)
{
    enum { ROUNDS = 200 };
    tn_domain *d = create(NULL, 64 * MIB, 0);
    struct inheritance in = {.domain = d, .go = tnt_signal_open()};
    for (int round = 0; round < ROUNDS; round++) {
        int64_t bytes = round % 2 == 0 ? 1000 : 100000;
        in.tensor = filled(d, bytes, 0x11);
        in.waits = tnt_random_below(2) == 0;
        pid_t child = tnt_fork(look_at_inheritance, &in);
        (void)tnt_random(); /* so that the next round has another random number */
        tn_tensor_unref(in.tensor);
        tn_tensor *over = filled(d, bytes, 0x22), *more = filled(d, bytes, 0x33);
        if (in.waits)
            tnt_signal(&in.go);
        tnt_wait_ok(child);
        expect_filled(over, 0x22);
        tn_tensor_unref(over);
        tn_tensor_unref(more);
        TN_CHECK_OK(tn_domain_reap(d, NULL));
    }
    TNT_AUDIT(d);
    tnt_signal_close(&in.go);
    tn_domain_close(d);
}

/* ---- memory ------------------------------------------------------------------------------ */

TN_TEST(memory_above_the_watermark_goes_back_to_the_system)
{
    enum { PIECES = 16, PIECE = 16 * MIB };
    tn_domain *d = create(NULL, (uint64_t)1 << 30, 32 * MIB);
    tn_tensor *tensors[PIECES];
    uint64_t before = shared_memory_of_machine();
    for (int i = 0; i < PIECES; i++)
        tensors[i] = filled(d, PIECE, i);
    uint64_t with = shared_memory_of_machine();
    assert_true(arena_bytes(d) >= (uint64_t)PIECES * PIECE);
    for (int i = 0; i < PIECES; i++)
        tn_tensor_unref(tensors[i]);
    uint64_t after = shared_memory_of_machine();
    assert_true(arena_bytes(d) <= 48 * MIB);
    /* Other processes of the machine share memory too: half of the 256 MiB is a wide margin. */
    assert_true(with >= before + 128 * MIB);
    assert_true(after + 128 * MIB <= with);
    tn_domain_close(d);
}

TN_TEST(the_watermark_can_be_moved_and_trim_asked_for)
{
    tn_domain *d = create(NULL, 256 * MIB, 200 * MIB);
    uint64_t freed = 0;
    tn_tensor_unref(filled(d, 64 * MIB, 1));
    assert_true(arena_bytes(d) >= 64 * MIB); /* this memory is kept warm */
    TN_CHECK_OK(tn_domain_trim(d, 0, &freed));
    assert_int_equal(freed, 64 * MIB);
    assert_true(arena_bytes(d) < MIB);
    TN_CHECK_OK(tn_domain_set_watermark(d, 1));
    tn_tensor_unref(filled(d, 64 * MIB, 1));
    assert_true(arena_bytes(d) < MIB);
    TN_CHECK_OK(tn_domain_trim(d, 0, NULL));
    tn_domain_close(d);
}

static long minor_faults(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
}

TN_TEST(what_was_freed_is_recycled_warm)
{
    tn_domain *d = create(NULL, 256 * MIB, 0);
    for (int64_t bytes = 64; bytes <= 4 * MIB; bytes *= 4) {
        tn_tensor *tensor = filled(d, bytes, 1);
        void *data = tn_tensor_data(tensor);
        uint64_t memory = arena_bytes(d);
        tn_tensor_unref(tensor);
        long faults = minor_faults();
        for (int i = 0; i < 10; i++) {
            tensor = filled(d, bytes, i);
            assert_ptr_equal(tn_tensor_data(tensor), data);
            tn_tensor_unref(tensor);
        }
        /*
         * Joining touches no page of the payload. 4 MiB of payload would be a thousand pages,
         * ten times the limit.
         */
        if (bytes >= MIB)
            assert_in_range(minor_faults() - faults, 0, 20);
        assert_int_equal(arena_bytes(d), memory);
    }
    tn_domain_close(d);
}

/* What a thread did first in another domain says nothing about this one. */
TN_TEST(leaving_a_second_domain_publishes_its_free_blocks_there)
{
    enum { BYTES = 4096 };
    tn_domain *first = create(NULL, 64 * MIB, 0), *second = create(NULL, 64 * MIB, 0);
    const struct tni_header *header =
        mmap(NULL, sizeof *header, PROT_READ, MAP_SHARED, second->segment.control_fd, 0);
    assert_ptr_not_equal(header, MAP_FAILED);
    tn_tensor_unref(empty(first, BYTES));
    tn_tensor_unref(empty(second, BYTES));
    tn_domain_close(second);
    assert_true(atomic_load(&header->free_bytes) >= BYTES);
    munmap((void *)header, sizeof *header);
    tn_domain_close(first);
}

TN_TEST(data_is_aligned_to_64_bytes_and_large_data_to_2_mib)
{
    tn_domain *d = create(NULL, 512 * MIB, 0);
    const int64_t sizes[] = {1,      3,       64,      65,      1000,    4097,    65536,
                             100001, MIB - 1, MIB + 1, 3 * MIB, 5 * MIB, 33 * MIB};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        tn_tensor *one = empty(d, sizes[i]), *two = empty(d, sizes[i]);
        uintptr_t alignment = sizes[i] > MIB ? 2 * MIB : 64;
        assert_int_equal((uintptr_t)tn_tensor_data(one) % alignment, 0);
        assert_int_equal((uintptr_t)tn_tensor_data(two) % alignment, 0);
        tn_tensor_unref(one);
        tn_tensor_unref(two);
    }
    tn_domain_close(d);
}

struct waiting {
    tn_domain *domain;
    struct tnt_signal ready;
};

static int wait_for_memory(void *argument)
{
    struct waiting *w = argument;
    int64_t bytes = 20 * MIB;
    tn_tensor *tensor;
    TN_CHECK(tn_tensor_create(w->domain, TN_UINT8, 1, &bytes, NULL, &tensor) ==
             TN_ERR_NO_MEMORY);
    tnt_signal(&w->ready);
    TN_CHECK_OK(tn_tensor_create(
        w->domain, TN_UINT8, 1, &bytes,
        TN_OPTIONS(tn_tensor_options, .deadline = tnt_deadline(LONG_MS)), &tensor));
    memset(tn_tensor_data(tensor), 1, (size_t)bytes);
    tn_tensor_unref(tensor);
    tn_domain_close(w->domain);
    return 0;
}

TN_TEST(a_free_in_another_process_wakes_a_wait_for_memory)
{
    struct waiting w = {.domain = create(NULL, 32 * MIB, 0), .ready = tnt_signal_open()};
    tn_tensor *tensor;
    for (int round = 0; round < 20; round++) {
        int64_t bytes = 24 * MIB;
        TN_CHECK_OK(tn_tensor_create(w.domain, TN_UINT8, 1, &bytes, NULL, &tensor));
        /* A message holds the tensor during the fork; else the child would get a hold of it. */
        tn_queue *queue;
        TN_CHECK_OK(tn_queue_open(w.domain, "door", NULL, TN_OPEN_NEW, &queue));
        TN_CHECK_OK(tn_queue_push_tensor(queue, tensor, TN_PUSH_MOVE, TN_NOW));
        pid_t child = tnt_fork(wait_for_memory, &w);
        tnt_await(&w.ready);
        tn_message m;
        TN_CHECK_OK(tn_queue_pop(queue, TN_NOW, &m));
        tn_message_fini(&m);
        tnt_wait_ok(child);
        tn_object_close(queue);
    }
    TNT_AUDIT(w.domain);
    tnt_signal_close(&w.ready);
    tn_domain_close(w.domain);
}

static int hold_until_killed(void *argument)
{
    struct waiting *w = argument;
    filled(w->domain, 24 * MIB, 1);
    tnt_signal(&w->ready);
    for (;;)
        pause();
    return 0;
}

TN_TEST(a_wait_for_memory_gets_that_of_a_killed_process)
{
    struct waiting w = {.domain = create(NULL, 32 * MIB, 0), .ready = tnt_signal_open()};
    int64_t bytes = 20 * MIB;
    tn_tensor *tensor;
    pid_t child = tnt_fork(hold_until_killed, &w);
    tnt_await(&w.ready);
    assert_int_equal(
        tn_tensor_create(w.domain, TN_UINT8, 1, &bytes,
                         TN_OPTIONS(tn_tensor_options, .deadline = tnt_deadline(50)), &tensor),
        TN_ERR_TIMED_OUT);
    tnt_kill(child);
    TN_CHECK_OK(tn_tensor_create(
        w.domain, TN_UINT8, 1, &bytes,
        TN_OPTIONS(tn_tensor_options, .deadline = tnt_deadline(LONG_MS)), &tensor));
    tn_tensor_unref(tensor);
    TNT_AUDIT(w.domain);
    tnt_signal_close(&w.ready);
    tn_domain_close(w.domain);
}
