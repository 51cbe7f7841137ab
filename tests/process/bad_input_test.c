/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests: bad input is a clear error, and nothing is lost. Shapes and views are in tensor_test.c
 * and tensor_share_test.c, handles in share_test.c, queues in queue_test.c, tenond in
 * manager_test.c.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/harness.h"
#include "harness/tensor.h"
#include "reaper/reaper.h"

enum { MIB = 1 << 20 };

/*
 * A process keeps one socket for ringing bells. It is made here, before a test counts
 * descriptors.
 */
__attribute__((constructor)) static void ring_once(void) { tni_os_bell_ring(1); }

static const tn_domain_options small = {.struct_size = sizeof small,
                                        .quota_bytes = 32 << 20,
                                        .seats = 4,
                                        .blocks = 128,
                                        .objects = 8,
                                        .tickets = 8,
                                        .flags = TN_DOMAIN_NO_MANAGER};

static void expect_detail(const char *part)
{
    if (strstr(tn_error_detail(), part) == NULL)
        fail_msg("'%s' does not say '%s'", tn_error_detail(), part);
}

static void expect_working(tn_domain *d)
{
    int64_t bytes = 1000;
    tn_tensor *tensor;
    tn_queue *queue;
    TN_CHECK_OK(tn_queue_open(d, NULL, NULL, 0, &queue));
    TN_CHECK_OK(tn_tensor_create(d, TN_UINT8, 1, &bytes,
                                 TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED),
                                 &tensor));
    TN_CHECK_OK(tn_queue_push_tensor(queue, tensor, TN_PUSH_MOVE, TN_NOW));
    TN_CHECK_OK(tn_queue_pop_tensor(queue, TN_NOW, &tensor));
    tn_tensor_unref(tensor);
    tn_object_close(queue);
    TNT_AUDIT(d);
}

/* ---- names and options ------------------------------------------------------------------- */

TN_TEST(a_domain_name_that_is_none_is_refused)
{
    static const char *const names[] = {
        "",
        "/",
        "a/b",
        "../a",
        ".hidden",
        "a b",
        "a\n",
        "\xc3\xa4",
        "a\\b",
        "a:b",
        "1234567890123456789012345678901234567890123456789012345678901234", /* 64 characters */
    };
    char longest[64];
    tn_domain *d = NULL;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_int_equal(tn_domain_open(names[i], NULL, TN_OPEN_NEW, &d), TN_ERR_INVALID);
        assert_int_not_equal(tn_error_detail()[0], '\0');
        assert_int_equal(tn_domain_open(names[i], NULL, TN_OPEN_EXISTING, &d), TN_ERR_INVALID);
        assert_int_equal(tn_domain_open(names[i], NULL, 0, &d), TN_ERR_INVALID);
    }
    assert_int_equal(tn_domain_open(NULL, NULL, TN_OPEN_EXISTING, &d), TN_ERR_INVALID);
    assert_int_equal(tn_domain_open("a", NULL, TN_OPEN_NEW | TN_OPEN_EXISTING, &d),
                     TN_ERR_INVALID);
    assert_int_equal(tn_domain_open("a", NULL, 1u << 9, &d), TN_ERR_INVALID);
    assert_int_equal(tn_domain_open("a", NULL, TN_OPEN_NEW, NULL), TN_ERR_INVALID);
    assert_null(d);
    memset(longest, 'x', 63);
    longest[63] = '\0';
    TN_CHECK_OK(tn_domain_open(longest, NULL, TN_OPEN_NEW, &d));
    assert_string_equal(tnt_domain_name(d), longest);
    tn_domain_close(d);
}

static void expect_refused(tn_domain_options options)
{
    tn_domain *d = NULL;
    assert_int_equal(tn_domain_open(NULL, &options, 0, &d), TN_ERR_INVALID);
    assert_int_not_equal(tn_error_detail()[0], '\0');
    assert_null(d);
}

TN_TEST(domain_options_out_of_range_are_refused)
{
    tn_domain_options options = small;
    options.struct_size = 8;
    expect_refused(options);
    options = small;
    options.seats = 1025;
    expect_refused(options);
    options = small;
    options.blocks = (1 << 23) + 1;
    expect_refused(options);
    options = small;
    options.objects = 65537;
    expect_refused(options);
    options = small;
    options.tickets = UINT32_MAX;
    expect_refused(options);
    options = small;
    options.quota_bytes = UINT64_MAX;
    expect_refused(options);
    options = small;
    options.flags = 0x80;
    expect_refused(options);
    options = small;
    options.reserved = 1;
    expect_refused(options);
}

TN_TEST(a_quota_above_that_of_creation_or_below_1_mib_is_refused)
{
    tn_domain *d = tnt_domain(&small);
    assert_int_equal(tn_domain_set_quota(d, (32 << 20) + 1), TN_ERR_INVALID);
    expect_detail("33554432");
    assert_int_equal(tn_domain_set_quota(d, 0), TN_ERR_INVALID);
    expect_detail("1 MiB");
    assert_int_equal(tn_domain_set_quota(d, (1 << 20) - 1), TN_ERR_INVALID);
    TN_CHECK_OK(tn_domain_set_quota(d, 1 << 20));
    int64_t bytes = 2 << 20;
    tn_tensor *tensor = NULL;
    assert_int_equal(tn_tensor_create(d, TN_UINT8, 1, &bytes, NULL, &tensor), TN_ERR_NO_MEMORY);
    TN_CHECK_OK(tn_domain_set_quota(d, 32 << 20));
    expect_working(d);
    tn_domain_close(d);
}

TN_TEST(arguments_that_are_null_are_errors_and_not_crashes)
{
    tn_domain *d = tnt_domain(&small);
    tn_tensor *tensor = NULL;
    int64_t bytes = 10;
    assert_int_equal(tn_tensor_create(NULL, TN_UINT8, 1, &bytes, NULL, &tensor),
                     TN_ERR_INVALID);
    assert_int_equal(tn_tensor_create(d, TN_UINT8, 1, NULL, NULL, &tensor), TN_ERR_INVALID);
    assert_int_equal(tn_tensor_create(d, TN_UINT8, 1, &bytes, NULL, NULL), TN_ERR_INVALID);
    assert_int_equal(tn_tensor_create_private(TN_UINT8, 1, &bytes, NULL), TN_ERR_INVALID);
    assert_int_equal(tn_tensor_view(NULL, TN_UINT8, 1, &bytes, NULL, 0, &tensor),
                     TN_ERR_INVALID);
    assert_int_equal(tn_queue_open(d, NULL, NULL, 0, NULL), TN_ERR_INVALID);
    assert_int_equal(tn_queue_push(NULL, NULL, 0, TN_NOW), TN_ERR_INVALID);
    assert_int_equal(tn_queue_pop(NULL, TN_NOW, NULL), TN_ERR_INVALID);
    assert_int_equal(tn_domain_reap(NULL, NULL), TN_ERR_INVALID);
    assert_int_equal(tn_domain_trim(NULL, 0, NULL), TN_ERR_INVALID);
    assert_int_equal(tn_domain_poll_fd(NULL, NULL), TN_ERR_INVALID);
    assert_int_equal(tn_domain_audit(NULL, false, NULL, NULL, NULL), TN_ERR_INVALID);
    assert_int_equal(tn_lock_acquire(NULL, TN_NOW), TN_ERR_INVALID);
    assert_int_equal(tn_event_wait(NULL, TN_NOW), TN_ERR_INVALID);
    assert_null(tn_domain_close(NULL));
    assert_null(tn_tensor_unref(NULL));
    assert_null(tn_object_close(NULL));
    assert_null(tensor);
    expect_working(d);
    tn_domain_close(d);
}

/* ---- files that are not a domain of this user -------------------------------------------- */

/* A copy of the control segment of a domain, which a test damages. */
struct copy {
    int control_fd, arena_fd;
    struct tni_header *header;
    uint64_t control_bytes;
};

static struct copy copy_domain(const tn_domain *d)
{
    struct copy copy = {.arena_fd = dup(d->segment.arena_fd),
                        .control_bytes = d->segment.geometry.control_bytes};
    void *address;
    TN_CHECK_OK(tni_os_memory_create("tenon-copy", copy.control_bytes, &copy.control_fd));
    TN_CHECK_OK(tni_os_map(copy.control_fd, copy.control_bytes, 4096, false, &address));
    copy.header = address;
    memcpy(address, d->segment.header, 4096);
    return copy;
}

static void close_copy(struct copy *copy)
{
    tni_os_unmap(copy->header, copy->control_bytes);
    tni_os_close(copy->control_fd);
    tni_os_close(copy->arena_fd);
}

static int inherit(int control_fd, int arena_fd, tn_domain **ret_domain)
{
    char value[64];
    snprintf(value, sizeof value, "%d,%d", control_fd, arena_fd);
    setenv("TENON_DOMAIN", value, 1);
    int status = tn_domain_inherit(ret_domain);
    unsetenv("TENON_DOMAIN");
    return status;
}

static int inherit_copy(const struct copy *copy)
{
    tn_domain *d = NULL;
    int status = inherit(copy->control_fd, copy->arena_fd, &d);
    TN_CHECK(status < 0 && d == NULL);
    return status;
}

TN_TEST(a_domain_of_another_layout_or_with_unknown_parts_is_refused)
{
    tn_domain *d = tnt_domain(&small);
    struct copy copy = copy_domain(d);
    copy.header->layout_version++;
    assert_int_equal(inherit_copy(&copy), TN_ERR_VERSION);
    expect_detail("shared layout");
    copy.header->layout_version--;
    copy.header->must_understand = 4;
    assert_int_equal(inherit_copy(&copy), TN_ERR_VERSION);
    copy.header->must_understand = 0;
    copy.header->byte_order = 0x04030201;
    assert_int_equal(inherit_copy(&copy), TN_ERR_VERSION);
    close_copy(&copy);
    tn_domain_close(d);
}

TN_TEST(a_control_segment_that_makes_no_sense_is_corrupt)
{
    tn_domain *d = tnt_domain(&small);
    struct copy copy = copy_domain(d);
    uint32_t *const numbers[] = {&copy.header->seats, &copy.header->blocks,
                                 &copy.header->objects, &copy.header->tickets,
                                 &copy.header->page_bytes};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        uint32_t right = *numbers[i];
        *numbers[i] = right * 256;
        assert_int_equal(inherit_copy(&copy), TN_ERR_CORRUPT);
        *numbers[i] = UINT32_MAX;
        assert_int_equal(inherit_copy(&copy), TN_ERR_CORRUPT);
        *numbers[i] = 0;
        assert_int_equal(inherit_copy(&copy), TN_ERR_CORRUPT);
        *numbers[i] = right;
    }
    copy.header->arena_inode++;
    assert_int_equal(inherit_copy(&copy), TN_ERR_CORRUPT);
    copy.header->arena_inode--;
    memset(copy.header->name, 'x', sizeof copy.header->name);
    assert_int_equal(inherit_copy(&copy), TN_ERR_CORRUPT);
    copy.header->magic = 0;
    assert_int_equal(inherit_copy(&copy), TN_ERR_CORRUPT);
    close_copy(&copy);
    expect_working(d);
    tn_domain_close(d);
}

TN_TEST(a_truncated_control_segment_is_corrupt)
{
    tn_domain *d = tnt_domain(&small), *none = NULL;
    uint64_t whole = d->segment.geometry.control_bytes;
    const uint64_t sizes[] = {4096, 8192, whole - 4096, whole + 4096};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        int control_fd;
        TN_CHECK_OK(tni_os_memory_create("tenon-copy", sizes[i], &control_fd));
        TN_CHECK(pwrite(control_fd, d->segment.header, 4096, 0) == 4096);
        assert_int_equal(inherit(control_fd, d->segment.arena_fd, &none), TN_ERR_CORRUPT);
        close(control_fd);
    }
    tn_domain_close(d);
}

TN_TEST(what_is_not_a_domain_cannot_be_joined)
{
    tn_domain *d = tnt_domain(&small), *none = NULL;
    struct copy copy = copy_domain(d);
    int pipe_fds[2], file = open("/dev/null", O_RDWR | O_CLOEXEC);
    int unsealed = memfd_create("tenon-unsealed", MFD_CLOEXEC);
    TN_CHECK(pipe(pipe_fds) == 0 && ftruncate(unsealed, 1 << 20) == 0);
    assert_int_equal(inherit(pipe_fds[0], pipe_fds[1], &none), TN_ERR_CORRUPT);
    assert_int_equal(inherit(file, copy.arena_fd, &none), TN_ERR_CORRUPT);
    assert_int_equal(inherit(copy.control_fd, file, &none), TN_ERR_CORRUPT);
    assert_int_equal(inherit(unsealed, copy.arena_fd, &none), TN_ERR_CORRUPT);
    assert_int_equal(inherit(copy.arena_fd, copy.control_fd, &none), TN_ERR_CORRUPT);
    assert_int_equal(inherit(1000, 1001, &none), TN_ERR_CORRUPT);
    /* Refused descriptors stay open: the caller may use them for something else. */
    assert_true(fcntl(file, F_GETFD) >= 0 && fcntl(pipe_fds[0], F_GETFD) >= 0);

    static const char *const values[] = {"",    "3",    "3,",  ",4",  "3,4,5",
                                         "3,3", "-1,4", "a,b", "3 ,4"};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        setenv("TENON_DOMAIN", values[i], 1);
        assert_int_equal(tn_domain_inherit(&none), TN_ERR_CORRUPT);
    }
    unsetenv("TENON_DOMAIN");
    assert_int_equal(tn_domain_inherit(&none), TN_ERR_NOT_FOUND);
    assert_null(none);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    close(file);
    close(unsealed);
    close_copy(&copy);
    tn_domain_close(d);
}

/* Whatever the bytes are, the call fails, or joins a domain that can be left again. */
TN_TEST(control_segments_of_random_bytes_are_refused_and_never_crash)
{
    tn_domain *d = tnt_domain(&small);
    struct copy copy = copy_domain(d);
    uint8_t *bytes = (uint8_t *)copy.header;
    struct tni_segment segment;
    for (uint64_t i = 0; i < copy.control_bytes; i += 8)
        *(uint64_t *)(void *)(bytes + i) = tnt_random();
    assert_int_equal(inherit_copy(&copy), TN_ERR_CORRUPT);
    for (int round = 0; round < 20000; round++) {
        memcpy(bytes, d->segment.header, sizeof *copy.header);
        for (uint64_t n = 0; n <= tnt_random_below(3); n++)
            bytes[tnt_random_below(sizeof *copy.header)] = (uint8_t)tnt_random();
        int status = tni_segment_attach(copy.control_fd, copy.arena_fd, true, &segment);
        if (status == 0) {
            /* The segment owns the descriptors now; take them back. */
            segment.control_fd = segment.arena_fd = -1;
            tni_segment_detach(&segment);
        } else if (status != TN_ERR_CORRUPT && status != TN_ERR_VERSION &&
                   status != TN_ERR_DENIED) {
            fail_msg("%s: %s", tn_status_name(status), tn_error_detail());
        }
    }
    close_copy(&copy);
    tn_domain_close(d);
}

static int join_as_somebody_else(void *argument)
{
    const tn_domain *d = argument;
    tn_domain *none = NULL;
    int control_fd = dup(d->segment.control_fd), arena_fd = dup(d->segment.arena_fd);
    char value[64];
    TN_CHECK(setgid(65534) == 0 && setuid(65534) == 0);
    snprintf(value, sizeof value, "%d,%d", control_fd, arena_fd);
    setenv("TENON_DOMAIN", value, 1);
    TN_CHECK(tn_domain_inherit(&none) == TN_ERR_DENIED);
    expect_detail("65534");
    int status = tn_domain_open("house", NULL, TN_OPEN_EXISTING, &none);
    TN_CHECK(status == TN_ERR_DENIED || status == TN_ERR_NOT_FOUND);
    /* The second user may not use the runtime folder of the first. */
    TN_CHECK(tn_domain_open("other", NULL, TN_OPEN_NEW, &none) == TN_ERR_DENIED);
    TN_CHECK(none == NULL);
    _exit(0); /* ends without leaving a domain */
}

TN_TEST(a_domain_of_another_user_cannot_be_joined)
{
    if (getuid() != 0)
        tnt_skip("only root can become another user");
    tn_domain *d;
    TN_CHECK_OK(tn_domain_open("house", NULL, TN_OPEN_NEW, &d));
    tnt_wait_ok(tnt_fork(join_as_somebody_else, d));
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    expect_working(d);
    tn_domain_close(d);
}

/* ---- full -------------------------------------------------------------------------------- */

TN_TEST(a_full_table_of_seats_has_room_after_a_leave)
{
    tn_domain *d = tnt_domain(&small), *others[3], *none = NULL;
    struct tni_segment *s = &d->segment;
    for (int i = 0; i < 3; i++)
        TN_CHECK_OK(inherit(dup(s->control_fd), dup(s->arena_fd), &others[i]));
    int control_fd = dup(s->control_fd), arena_fd = dup(s->arena_fd);
    assert_int_equal(inherit(control_fd, arena_fd, &none), TN_ERR_FULL);
    expect_detail("4 seats");
    tn_domain_close(others[1]);
    TN_CHECK_OK(inherit(control_fd, arena_fd, &others[1]));
    for (int i = 0; i < 3; i++)
        tn_domain_close(others[i]);
    expect_working(d);
    tn_domain_close(d);
}

TN_TEST(a_full_table_of_blocks_has_room_after_a_free)
{
    enum { MOST = 10000 };
    static tn_tensor *tensors[MOST];
    tn_domain *d = tnt_domain(&small);
    int64_t bytes = 64;
    uint32_t count = 0;
    int status = 0;
    while (count < MOST && status == 0) {
        status = tn_tensor_create(d, TN_UINT8, 1, &bytes, NULL, &tensors[count]);
        count += status == 0;
    }
    assert_int_equal(status, TN_ERR_FULL);
    assert_true(count >=
                small.blocks); /* blocks of the class that fits, and of some larger classes */
    expect_detail("128 blocks");
    tn_tensor *more = NULL;
    assert_int_equal(tn_tensor_create(d, TN_UINT8, 1, &bytes,
                                      TN_OPTIONS(tn_tensor_options, .deadline = {1}), &more),
                     TN_ERR_TIMED_OUT);
    assert_int_equal(
        tn_tensor_create(d, TN_UINT8, 1, &bytes,
                         TN_OPTIONS(tn_tensor_options, .deadline = tnt_deadline(20)), &more),
        TN_ERR_TIMED_OUT);
    assert_null(more);
    tn_tensor_unref(tensors[77]);
    TN_CHECK_OK(tn_tensor_create(d, TN_UINT8, 1, &bytes, NULL, &tensors[77]));
    while (count > 0)
        tn_tensor_unref(tensors[--count]);
    expect_working(d);
    tn_domain_close(d);
}

TN_TEST(a_used_up_quota_is_stated_and_a_wait_ends_at_its_deadline)
{
    tn_domain *d = tnt_domain(&small);
    int64_t bytes = 24 * MIB, more_bytes = 12 * MIB, huge = INT64_MAX;
    tn_tensor *tensor, *more = NULL;
    TN_CHECK_OK(tn_tensor_create(d, TN_UINT8, 1, &bytes, NULL, &tensor));
    assert_int_equal(tn_tensor_create(d, TN_UINT8, 1, &more_bytes, NULL, &more),
                     TN_ERR_NO_MEMORY);
    expect_detail("quota of 33554432");
    assert_int_equal(tn_tensor_create(d, TN_UINT8, 1, &more_bytes,
                                      TN_OPTIONS(tn_tensor_options, .deadline = {1}), &more),
                     TN_ERR_TIMED_OUT);
    assert_int_equal(
        tn_tensor_create(d, TN_UINT8, 1, &more_bytes,
                         TN_OPTIONS(tn_tensor_options, .deadline = tnt_deadline(20)), &more),
        TN_ERR_TIMED_OUT);
    /* A call does not wait for memory that the domain can never have. */
    assert_int_equal(tn_tensor_create(d, TN_UINT8, 1, &huge,
                                      TN_OPTIONS(tn_tensor_options, .deadline = TN_FOREVER),
                                      &more),
                     TN_ERR_NO_MEMORY);
    assert_null(more);
    tn_tensor_unref(tensor);
    TN_CHECK_OK(tn_tensor_create(d, TN_UINT8, 1, &more_bytes, NULL, &more));
    tn_tensor_unref(more);
    expect_working(d);
    tn_domain_close(d);
}

/* ---- a system that has nothing left ------------------------------------------------------ */

static int live_without_address_space(void *argument)
{
    struct rlimit limit;
    tn_domain *d = argument, *none = NULL;
    tn_tensor *tensor = NULL;
    int64_t bytes = (int64_t)1 << 36;
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = (rlim_t)8 << 30;
    TN_CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    TN_CHECK(tn_domain_open(NULL, NULL, 0, &none) == TN_ERR_NO_MEMORY);
    TN_CHECK(tn_tensor_create_private(TN_UINT8, 1, &bytes, &tensor) == TN_ERR_NO_MEMORY);
    TN_CHECK(none == NULL && tensor == NULL);
    expect_working(d);
    return 0;
}

TN_TEST(no_address_space_left_is_no_memory_and_the_domain_goes_on)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    tnt_skip("sanitizers use the address space");
#endif
    tn_domain *d = tnt_domain(&small);
    tnt_wait_ok(tnt_fork(live_without_address_space, d));
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    expect_working(d);
    tn_domain_close(d);
}

static void use_all_descriptors(void)
{
    struct rlimit limit = {.rlim_cur = 64, .rlim_max = 64};
    TN_CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    while (dup(STDOUT_FILENO) >= 0)
        ;
}

static int live_without_descriptors(void *argument)
{
    tn_domain *d = argument, *none = NULL;
    tn_inspector *inspector = NULL;
    tn_process *process = NULL;
    int fd = -1;
    static const char *const argv[] = {"true", NULL};
    use_all_descriptors();
    TN_CHECK(tn_domain_open("two", NULL, TN_OPEN_NEW, &none) == TN_ERR_SYSTEM);
    TN_CHECK(strstr(tn_error_detail(), "descriptor") != NULL ||
             strstr(tn_error_detail(), "open files") != NULL);
    TN_CHECK(tn_domain_open(NULL, &small, 0, &none) == TN_ERR_SYSTEM);
    TN_CHECK(tn_domain_open("house", NULL, TN_OPEN_EXISTING, &none) == TN_ERR_SYSTEM);
    TN_CHECK(tn_inspector_open("house", &inspector) == TN_ERR_SYSTEM);
    TN_CHECK(tn_domain_poll_fd(d, &fd) == TN_ERR_SYSTEM);
    TN_CHECK(tn_process_exec(d, argv, NULL, 0, &process) == TN_ERR_SYSTEM);
    TN_CHECK(none == NULL && inspector == NULL && process == NULL && fd == -1);
    expect_working(d);
    /* The domain can be left without a free descriptor. */
    tn_domain_close(d);
    return 0;
}

TN_TEST(no_descriptors_left_is_a_system_error_and_the_domain_goes_on)
{
    tn_domain *d;
    TN_CHECK_OK(tn_domain_open("house", NULL, TN_OPEN_NEW, &d));
    tnt_wait_ok(tnt_fork(live_without_descriptors, d));
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    expect_working(d);
    tn_domain_close(d);
}

static int fork_without_descriptors(void *argument)
{
    tn_domain *d = argument;
    use_all_descriptors();
    pid_t child = fork();
    if (child == 0) {
        int64_t bytes = 10;
        tn_tensor *tensor = NULL;
        int status = tn_tensor_create(d, TN_UINT8, 1, &bytes, NULL, &tensor);
        _exit(status == 0 || status == TN_ERR_FORKED ? 0 : 1);
    }
    tnt_wait_ok(child);
    expect_working(d);
    tn_domain_close(d);
    return 0;
}

TN_TEST(a_child_forked_without_free_descriptors_knows_its_state)
{
    tn_domain *d = tnt_domain(&small);
    tnt_wait_ok(tnt_fork(fork_without_descriptors, d));
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    expect_working(d);
    tn_domain_close(d);
}

/* ---- the runtime folder ------------------------------------------------------------------ */

static int create_in(const char *folder)
{
    tn_domain *d = NULL;
    setenv("TENON_RUNTIME_DIR", folder, 1);
    int status = tn_domain_open("house", NULL, TN_OPEN_NEW, &d);
    if (status == 0)
        tn_domain_close(d);
    else
        TN_CHECK(d == NULL);
    return status;
}

TN_TEST(an_unusable_runtime_folder_is_an_error_that_names_it)
{
    char path[256];
    assert_int_equal(create_in("/nowhere/at/all"), TN_ERR_NOT_FOUND);
    expect_detail("/nowhere/at/all");
    snprintf(path, sizeof path, "%s/open-to-all", tnt_folder());
    TN_CHECK(mkdir(path, 0777) == 0 && chmod(path, 0777) == 0);
    assert_int_equal(create_in(path), TN_ERR_DENIED);
    expect_detail(path);
    if (getuid() == 0) {
        TN_CHECK(chmod(path, 0700) == 0 && chown(path, 65534, 65534) == 0);
        assert_int_equal(create_in(path), TN_ERR_DENIED);
        expect_detail(path);
        TN_CHECK(chown(path, 0, 0) == 0);
    }
    assert_int_equal(create_in("/proc/self"), TN_ERR_DENIED);
    assert_int_equal(create_in("relative"), TN_ERR_INVALID);
    memset(path, 'x', sizeof path - 1);
    path[0] = '/';
    path[sizeof path - 1] = '\0';
    assert_int_equal(create_in(path), TN_ERR_INVALID);
}

static int create_in_read_only(void *argument)
{
    TN_CHECK(getuid() != 0 || (setgid(65534) == 0 && setuid(65534) == 0));
    return create_in(argument) == TN_ERR_DENIED ? 0 : 1;
}

TN_TEST(a_read_only_runtime_folder_is_denied)
{
    char path[256];
    TN_CHECK(chmod(tnt_folder(), 0755) == 0);
    snprintf(path, sizeof path, "%s/read-only", tnt_folder());
    TN_CHECK(mkdir(path, 0500) == 0);
    TN_CHECK(getuid() != 0 || chown(path, 65534, 65534) == 0);
    tnt_wait_ok(tnt_fork(create_in_read_only, path));
    TN_CHECK(chmod(path, 0700) == 0);
}

TN_TEST(a_missing_runtime_folder_is_made_for_this_user_alone)
{
    char path[256];
    struct stat status;
    snprintf(path, sizeof path, "%s/not-yet", tnt_folder());
    TN_CHECK_OK(create_in(path));
    TN_CHECK(stat(path, &status) == 0);
    assert_int_equal(status.st_mode & 0777, 0700);
}
