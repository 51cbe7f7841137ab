/* SPDX-License-Identifier: Apache-2.0 */
/* Memory objects: seals, access rights, second descriptors, the limit of descriptors. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>

#include "os_test.h"

static int make_memory(uint64_t size_bytes)
{
    int fd = -1;
    assert_int_equal(tni_os_memory_create("tenon-test", size_bytes, &fd), 0);
    return fd;
}

static int make_sealable(uint64_t size_bytes)
{
    int fd = -1;
    assert_int_equal(tni_os_memory_create_sealable("tenon-test", size_bytes, &fd), 0);
    return fd;
}

static bool is_same(int one_fd, int other_fd)
{
    struct stat one;
    struct stat other;
    return fstat(one_fd, &one) == 0 && fstat(other_fd, &other) == 0 &&
           one.st_ino == other.st_ino && one.st_dev == other.st_dev;
}

/* Rights. */

static void mode_body(void)
{
    struct stat status;
    int fd = -1;
    umask(0);
    CHECK(tni_os_memory_create("t", PAGE, &fd) == 0);
    CHECK(fstat(fd, &status) == 0 && (status.st_mode & 07777) == 0600);
}

static void forced_mode_body(void)
{
    setenv("TENON_FORCE_FALLBACK", "noexec_seal", 1);
    mode_body();
}

static void a_memory_object_is_for_its_user_alone(void **state)
{
    (void)state;
    run_in_child(mode_body);
    run_in_child(forced_mode_body);
}

static void stranger_body(void)
{
    int fd = -1;
    int reading = -1;
    int opened = -1;
    CHECK(tni_os_memory_create("t", PAGE, &fd) == 0);
    CHECK(tni_os_memory_reopen(fd, true, &reading) == 0);
    tni_os_close(fd);
    CHECK(setresuid(65534, 65534, 65534) == 0);
    CHECK(tni_os_memory_reopen(reading, false, &opened) == TN_ERR_SYSTEM);
    CHECK(strstr(tn_error_detail(), "for writing") != NULL);
    CHECK(opened == -1);
}

static void a_read_only_descriptor_is_not_reopened_for_writing(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip_since("only root can become another user");
    run_in_child(stranger_body);
}

static void a_reopened_object_has_its_own_access_rights(void **state)
{
    (void)state;
    int fd = make_memory(PAGE);
    int reading = -1;
    int writing = -1;
    assert_int_equal(tni_os_memory_reopen(fd, true, &reading), 0);
    assert_int_equal(tni_os_memory_reopen(reading, false, &writing), 0);
    assert_true(is_same(fd, reading) && is_same(fd, writing));
    assert_true(fcntl(reading, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(pwrite(reading, "x", 1, 0), -1);
    assert_int_equal(pwrite(writing, "x", 1, 0), 1);
    assert_ptr_equal(mmap(NULL, PAGE, PROT_WRITE, MAP_SHARED, reading, 0), MAP_FAILED);
    tni_os_close(fd);
    tni_os_close(reading);
    tni_os_close(writing);
    assert_int_equal(tni_os_memory_reopen(fd, true, &reading), TN_ERR_SYSTEM);
}

static void a_duplicate_is_the_same_and_closed_by_exec(void **state)
{
    (void)state;
    int fd = make_memory(PAGE);
    int copy = -1;
    assert_int_equal(tni_os_duplicate(fd, &copy), 0);
    assert_true(copy != fd && is_same(fd, copy));
    assert_true(fcntl(copy, F_GETFD) & FD_CLOEXEC);
    tni_os_close(copy);
    tni_os_close(fd);
    copy = 42;
    assert_int_equal(tni_os_duplicate(fd, &copy), TN_ERR_INVALID);
    assert_int_equal(copy, 42);
}

/* Seals. */

static void after_sealing_only_mappings_from_before_can_write(void **state)
{
    (void)state;
    int fd = make_sealable(2 * PAGE);
    int again = -1;
    char *before = NULL;
    char *after = NULL;
    struct tni_os_memory memory;
    assert_int_equal(tni_os_map(fd, 2 * PAGE, PAGE, false, (void **)&before), 0);
    assert_int_equal(tni_os_memory_stat(fd, &memory), 0);
    assert_false(memory.is_write_once);

    assert_int_equal(tni_os_memory_seal_writes(fd), 0);
    assert_int_equal(tni_os_memory_stat(fd, &memory), 0);
    assert_true(memory.is_write_once && memory.is_sealed);
    before[PAGE] = 'x';

    assert_int_equal(tni_os_memory_reopen(fd, false, &again), 0);
    assert_int_equal(pwrite(again, "y", 1, PAGE), -1);
    assert_true(tni_os_map(again, 2 * PAGE, PAGE, false, (void **)&after) < 0);
    assert_int_equal(tni_os_map(again, 2 * PAGE, PAGE, true, (void **)&after), 0);
    assert_int_equal(after[PAGE], 'x');
    assert_int_equal(mprotect(after, 2 * PAGE, PROT_READ | PROT_WRITE), -1);
    assert_int_equal(ftruncate(again, PAGE), -1);
    assert_int_equal(ftruncate(again, 3 * PAGE), -1);
    tni_os_unmap(before, 2 * PAGE);
    tni_os_unmap(after, 2 * PAGE);
    tni_os_close(again);
    tni_os_close(fd);
}

static void sealing_what_cannot_be_sealed_is_an_error(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(tni_os_pipe(ends), 0);
    assert_int_equal(tni_os_memory_seal_writes(ends[0]), TN_ERR_SYSTEM);
    tni_os_close(ends[0]);
    tni_os_close(ends[1]);
}

static void a_fully_sealed_object_counts_as_write_once(void **state)
{
    (void)state;
    struct tni_os_memory memory;
    int fd = make_sealable(PAGE);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
    assert_int_equal(tni_os_memory_stat(fd, &memory), 0);
    assert_true(memory.is_write_once);
    tni_os_close(fd);
}

static void no_seal_can_be_added_to_a_finished_object(void **state)
{
    (void)state;
    const int seals[] = {F_SEAL_WRITE, 0x0010 /* FUTURE_WRITE */, F_SEAL_GROW, F_SEAL_SEAL};
    int fds[] = {make_memory(PAGE), make_sealable(PAGE)};
    assert_int_equal(tni_os_memory_seal_writes(fds[1]), 0);
    for (size_t i = 0; i < 2; i++) {
        for (size_t k = 0; k < sizeof seals / sizeof *seals; k++)
            assert_int_equal(fcntl(fds[i], F_ADD_SEALS, seals[k]), -1);
        assert_int_equal(tni_os_memory_seal_writes(fds[i]), TN_ERR_SYSTEM);
        tni_os_close(fds[i]);
    }
}

static void memory_of_huge_pages_is_no_memory_object(void **state)
{
    (void)state;
    struct tni_os_memory memory;
    int fd = memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);
    if (fd < 0)
        skip_since("this kernel has no huge pages for memory objects");
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    assert_int_equal(tni_os_memory_stat(fd, &memory), TN_ERR_INVALID);
    assert_non_null(strstr(tn_error_detail(), "hugetlbfs"));
    tni_os_close(fd);
}

/* Reading. */

static void reading_allocates_no_memory(void **state)
{
    (void)state;
    int fd = make_memory(4 * PAGE);
    char bytes[2 * PAGE];
    uint64_t committed = 1;
    memset(bytes, 'x', sizeof bytes);
    assert_int_equal(tni_os_read_at(fd, PAGE, bytes, sizeof bytes), 0);
    for (size_t i = 0; i < sizeof bytes; i++)
        assert_int_equal(bytes[i], 0);
    assert_int_equal(tni_os_memory_committed(fd, &committed), 0);
    assert_int_equal(committed, 0);
    assert_int_equal(tni_os_write_at(fd, 2 * PAGE - 2, "abcd", 4), 0);
    assert_int_equal(tni_os_read_at(fd, 2 * PAGE - 2, bytes, 4), 0);
    assert_memory_equal(bytes, "abcd", 4);
    tni_os_close(fd);
}

static void read_at_reports_what_it_cannot_read(void **state)
{
    (void)state;
    int fd = make_memory(PAGE);
    int ends[2];
    char bytes[16];
    assert_int_equal(tni_os_read_at(fd, PAGE - 8, bytes, 16), TN_ERR_CORRUPT);
    assert_non_null(strstr(tn_error_detail(), "truncated"));
    assert_int_equal(tni_os_read_at(fd, UINT64_MAX - 8, bytes, 16), TN_ERR_INVALID);
    assert_int_equal(tni_os_read_at(-1, 0, bytes, 16), TN_ERR_DENIED);
    assert_int_equal(tni_os_pipe(ends), 0);
    assert_int_equal(tni_os_read_at(ends[0], 0, bytes, 16), TN_ERR_SYSTEM);
    tni_os_close(ends[0]);
    tni_os_close(ends[1]);
    tni_os_close(fd);
}

/* Mappings. */

/* Neighbouring pages have different rights, so each page is a mapping of its own. */
static void mapping_limit_body(void)
{
    char expected[32];
    int fd = -1;
    void *address = NULL;
    unsigned long limit = 0;
    FILE *file = fopen("/proc/sys/vm/max_map_count", "re");
    CHECK(file != NULL && fscanf(file, "%lu", &limit) == 1 && fclose(file) == 0);
    size_t size = (limit + 100) * PAGE;
    char *whole =
        mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(whole != MAP_FAILED && tni_os_memory_create("t", PAGE, &fd) == 0);
    size_t at = 0;
    while (at < size && mprotect(whole + at, PAGE, PROT_READ) == 0)
        at += 2 * PAGE;
    CHECK(errno == ENOMEM);
    while (mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0) != MAP_FAILED) {
    }
    CHECK(tni_os_map(fd, PAGE, PAGE, false, &address) == TN_ERR_NO_MEMORY);
    snprintf(expected, sizeof expected, "vm.max_map_count, %lu", limit);
    CHECK(strstr(tn_error_detail(), expected) != NULL);
    CHECK(strstr(tn_error_detail(), "the strategy arena needs none") != NULL);
}

static void the_error_names_the_limit_of_mappings(void **state)
{
    (void)state;
    run_in_child(mapping_limit_body);
}

static void map_over_takes_just_the_place_that_was_named(void **state)
{
    (void)state;
    int fd = make_memory(PAGE);
    char *whole = NULL;
    assert_int_equal(tni_os_map_private(3 * PAGE, (void **)&whole), 0);
    memset(whole, 'a', 3 * PAGE);
    assert_int_equal(tni_os_write_at(fd, 0, "shared", 6), 0);
    assert_int_equal(tni_os_map_over(fd, whole + PAGE, PAGE, false), 0);
    assert_memory_equal(whole + PAGE, "shared", 6);
    assert_true(whole[PAGE - 1] == 'a' && whole[2 * PAGE] == 'a');

    char byte = 0;
    whole[PAGE] = 'S';
    assert_int_equal(pread(fd, &byte, 1, 0), 1);
    assert_int_equal(byte, 'S');
    assert_int_equal(tni_os_map_over(fd, whole + 1, PAGE, false), TN_ERR_INVALID);
    assert_int_equal(tni_os_map_over(fd, whole, PAGE + 1, false), TN_ERR_INVALID);
    tni_os_unmap(whole, 3 * PAGE);
    tni_os_close(fd);
}

static void map_over_gives_no_more_access_than_the_descriptor(void **state)
{
    (void)state;
    int fd = make_sealable(PAGE);
    int reading = -1;
    char *here = NULL;
    assert_int_equal(tni_os_memory_reopen(fd, true, &reading), 0);
    assert_int_equal(tni_os_memory_seal_writes(fd), 0);
    assert_int_equal(tni_os_map_private(PAGE, (void **)&here), 0);
    here[0] = 'a';
    assert_true(tni_os_map_over(reading, here, PAGE, false) < 0);
    assert_true(tni_os_map_over(fd, here, PAGE, false) < 0);
    assert_int_equal(tni_os_map_over(fd, here, PAGE, true), 0);
    assert_int_equal(here[0], 0);
    assert_int_equal(mprotect(here, PAGE, PROT_READ | PROT_WRITE), -1);
    tni_os_unmap(here, PAGE);
    tni_os_close(reading);
    tni_os_close(fd);
}

/* Memory with MADV_DONTFORK is missing in the child, which maps over the hole. */
static void map_over_fills_a_hole(void **state)
{
    (void)state;
    int fd = make_memory(16 * PAGE);
    char *here = NULL;
    assert_int_equal(tni_os_write_at(fd, 0, "x", 1), 0);
    assert_int_equal(tni_os_map_private(16 * PAGE, (void **)&here), 0);
    tni_os_unmap(here, 16 * PAGE);
    assert_int_equal(tni_os_map_over(fd, here, 16 * PAGE, true), 0);
    assert_int_equal(here[0], 'x');
    tni_os_unmap(here, 16 * PAGE);
    tni_os_close(fd);
}

/* The limit of descriptors. */

static char shm_path[128];

static int create_memory(int fd, int *ret_fd)
{
    (void)fd;
    return tni_os_memory_create("t", PAGE, ret_fd);
}

static int reopen(int fd, int *ret_fd) { return tni_os_memory_reopen(fd, true, ret_fd); }

static int create_shm(int fd, int *ret_fd)
{
    (void)fd;
    return tni_os_shm_create(shm_path, PAGE, ret_fd);
}

static int open_shm(int fd, int *ret_fd)
{
    (void)fd;
    return tni_os_shm_open(shm_path, ret_fd);
}

/* the first of two */
static int keep_first(int status, const int ends[2], int *ret_fd)
{
    if (status == 0) {
        tni_os_close(ends[1]);
        *ret_fd = ends[0];
    }
    return status;
}

static int make_pipe(int fd, int *ret_fd)
{
    int ends[2];
    (void)fd;
    return keep_first(tni_os_pipe(ends), ends, ret_fd);
}

static int make_pair(int fd, int *ret_fd)
{
    int ends[2];
    (void)fd;
    return keep_first(tni_os_pair(ends), ends, ret_fd);
}

static int open_process(int fd, int *ret_fd)
{
    (void)fd;
    return tni_os_process_open(tni_os_pid(), ret_fd);
}

static char socket_folder[] = "/tmp/tenon-os-test-XXXXXX";

static void listen_in_folder(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    CHECK(mkdtemp(socket_folder) != NULL);
    snprintf(address.sun_path, sizeof address.sun_path, "%s/t", socket_folder);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(listen(fd, 4) == 0);
}

static int connect_socket(int fd, int *ret_fd)
{
    (void)fd;
    return tni_os_connect_in(socket_folder, "t", ret_fd);
}

static int create_bell(int fd, int *ret_fd)
{
    uint64_t number = 0;
    (void)fd;
    CHECK(tni_os_random(&number, sizeof number) == 0);
    return tni_os_bell_create(number, ret_fd);
}

static int create_timer(int fd, int *ret_fd)
{
    (void)fd;
    return tni_os_timer_create(1, ret_fd);
}

static int create_loop(int fd, int *ret_fd)
{
    (void)fd;
    return tni_os_loop_create(ret_fd);
}

static const struct maker {
    const char *name;
    int (*make)(int fd, int *ret_fd);
} makers[] = {
    {"memory_create", create_memory},
    {"duplicate", tni_os_duplicate},
    {"reopen", reopen},
    {"shm_create", create_shm},
    {"shm_open", open_shm},
    {"pipe", make_pipe},
    {"pair", make_pair},
    {"process_open", open_process},
    {"connect_in", connect_socket},
    {"bell", create_bell},
    {"watch", tni_os_watch_create},
    {"timer", create_timer},
    {"loop", create_loop},
};

static void set_limit(uint32_t soft, uint32_t hard)
{
    const struct rlimit limit = {.rlim_cur = soft, .rlim_max = hard};
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

/* A limit at the lowest free number leaves no room. */
static uint32_t next_number(void)
{
    int fd = dup(0);
    CHECK(fd >= 0 && close(fd) == 0);
    return (uint32_t)fd;
}

static void soft_limit_body(void)
{
    int memory = -1;
    CHECK(tni_os_memory_create("t", PAGE, &memory) == 0);
    listen_in_folder();
    uint32_t full = next_number();
    for (size_t i = 0; i < sizeof makers / sizeof *makers; i++) {
        int fd = -1;
        struct rlimit limit;
        set_limit(full, full + 8);
        int status = makers[i].make(memory, &fd);
        if (status != 0)
            fprintf(stderr, "%s: %s\n", makers[i].name, tn_error_detail());
        CHECK(status == 0 && fd == (int)full);
        CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur == full + 8);
        tni_os_close(fd);
    }
    CHECK(tni_os_shm_remove(shm_path) == 0);
    set_limit(full, full + 8);
    CHECK(tni_os_has_descriptor_left());
    char path[sizeof socket_folder + 2];
    snprintf(path, sizeof path, "%s/t", socket_folder);
    CHECK(unlink(path) == 0 && rmdir(socket_folder) == 0);
}

static void the_soft_limit_is_raised_when_the_table_is_full(void **state)
{
    (void)state;
    snprintf(shm_path, sizeof shm_path, "/dev/shm/tenon-os-test-%d", (int)getpid());
    run_in_child(soft_limit_body);
}

static void hard_limit_body(void)
{
    char expected[96];
    int memory = -1;
    CHECK(tni_os_memory_create("t", PAGE, &memory) == 0);
    uint32_t full = next_number();
    set_limit(full, full);
    snprintf(
        expected, sizeof expected,
        "descriptors are in use, the limit (ulimit -n) is %u; tensors in the arena need none",
        (unsigned)full);
    for (size_t i = 0; i < sizeof makers / sizeof *makers; i++) {
        int fd = 42;
        int status = makers[i].make(memory, &fd);
        if (status != TN_ERR_SYSTEM || strstr(tn_error_detail(), expected) == NULL)
            fprintf(stderr, "%s: %d\n", makers[i].name, status);
        CHECK(status == TN_ERR_SYSTEM && fd == 42);
        CHECK(strstr(tn_error_detail(), expected) != NULL);
    }
    CHECK(access(shm_path, F_OK) != 0);
}

static void the_error_of_a_full_table_suggests_the_strategy_arena(void **state)
{
    (void)state;
    snprintf(shm_path, sizeof shm_path, "/dev/shm/tenon-os-test-%d", (int)getpid());
    run_in_child(hard_limit_body);
}

static void left_body(void)
{
    CHECK(tni_os_has_descriptor_left());
    uint32_t full = next_number();
    set_limit(full, full);
    (void)tni_fail(TN_ERR_SYSTEM, "what was said before");
    CHECK(!tni_os_has_descriptor_left());
    CHECK(strcmp(tn_error_detail(), "what was said before") == 0);
}

static void the_check_for_a_full_table_sets_no_detail(void **state)
{
    (void)state;
    run_in_child(left_body);
}

static void raise_body(void)
{
    set_limit(16, 20);
    CHECK(tni_os_raise_descriptor_limit() == 20);
    CHECK(tni_os_raise_descriptor_limit() == 20);
}

static void raising_the_limit_says_what_it_is_now(void **state)
{
    (void)state;
    run_in_child(raise_body);
}

static void unix_time_is_the_time_of_day(void **state)
{
    (void)state;
    uint64_t before = (uint64_t)time(NULL);
    uint64_t now = tni_os_unix_ns() / SECOND_NS;
    assert_in_range(now, before, before + 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_memory_object_is_for_its_user_alone),
        cmocka_unit_test(a_read_only_descriptor_is_not_reopened_for_writing),
        cmocka_unit_test(a_reopened_object_has_its_own_access_rights),
        cmocka_unit_test(a_duplicate_is_the_same_and_closed_by_exec),
        cmocka_unit_test(after_sealing_only_mappings_from_before_can_write),
        cmocka_unit_test(sealing_what_cannot_be_sealed_is_an_error),
        cmocka_unit_test(a_fully_sealed_object_counts_as_write_once),
        cmocka_unit_test(no_seal_can_be_added_to_a_finished_object),
        cmocka_unit_test(memory_of_huge_pages_is_no_memory_object),
        cmocka_unit_test(reading_allocates_no_memory),
        cmocka_unit_test(read_at_reports_what_it_cannot_read),
        cmocka_unit_test(the_error_names_the_limit_of_mappings),
        cmocka_unit_test(map_over_takes_just_the_place_that_was_named),
        cmocka_unit_test(map_over_gives_no_more_access_than_the_descriptor),
        cmocka_unit_test(map_over_fills_a_hole),
        cmocka_unit_test(the_soft_limit_is_raised_when_the_table_is_full),
        cmocka_unit_test(the_error_of_a_full_table_suggests_the_strategy_arena),
        cmocka_unit_test(the_check_for_a_full_table_sets_no_detail),
        cmocka_unit_test(raising_the_limit_says_what_it_is_now),
        cmocka_unit_test(unix_time_is_the_time_of_day),
    };
    return cmocka_run_group_tests_name("os memory", tests, NULL, NULL);
}
