/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>

#include "os_test.h"

/* Memory. */

static void a_memory_object_is_sealed_and_sparse(void **state)
{
    (void)state;
    int fd = -1;
    const uint64_t size = UINT64_C(1) << 42;
    struct tni_os_memory memory;
    uint64_t committed = 1;
    assert_int_equal(tni_os_memory_create("tenon-test", size, &fd), 0);
    assert_int_equal(tni_os_memory_stat(fd, &memory), 0);
    assert_true(memory.size_bytes == size && memory.is_sealed && memory.uid == tni_os_uid());
    assert_int_equal(tni_os_memory_committed(fd, &committed), 0);
    assert_int_equal(committed, 0);
    assert_int_equal(ftruncate(fd, 0), -1);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    tni_os_close(fd);
}

static void memory_create_refuses_a_size_that_is_not_whole_pages(void **state)
{
    (void)state;
    int fd = 42;
    assert_int_equal(tni_os_memory_create("t", PAGE + 1, &fd), TN_ERR_INVALID);
    assert_int_equal(tni_os_memory_create("t", 0, &fd), TN_ERR_INVALID);
    assert_int_equal(fd, 42);
}

static void file_limit_body(void)
{
    int fd = -1;
    int big = -1;
    CHECK(tni_os_memory_create("t", 16 * PAGE, &big) == 0);
    const struct rlimit limit = {.rlim_cur = PAGE, .rlim_max = PAGE};
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    CHECK(tni_os_memory_create("t", 2 * PAGE, &fd) == TN_ERR_SYSTEM);
    CHECK(strstr(tn_error_detail(), "ulimit -f") != NULL);
    CHECK(tni_os_memory_create("t", PAGE, &fd) == 0);

    char byte = 0;
    CHECK(tni_os_write_at(big, 3 * PAGE + 5, "z", 1) == 0);
    CHECK(pread(big, &byte, 1, 3 * PAGE + 5) == 1 && byte == 'z');
}

static void a_file_size_limit_is_an_error_and_no_signal(void **state)
{
    (void)state;
    run_in_child(file_limit_body);
}

static void no_descriptors_body(void)
{
    int fd = -1;
    const struct rlimit limit = {.rlim_cur = 3, .rlim_max = 3};
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    CHECK(tni_os_memory_create("t", PAGE, &fd) == TN_ERR_SYSTEM);
    CHECK(strstr(tn_error_detail(), "ulimit -n) is 3;") != NULL);
    CHECK(tni_os_bell_create(1, &fd) == TN_ERR_SYSTEM);
    CHECK(tni_os_loop_create(&fd) == TN_ERR_SYSTEM);
    CHECK(strstr(tn_error_detail(), "ulimit -n) is 3;") != NULL);
}

static void a_full_descriptor_table_is_named_with_its_limit(void **state)
{
    (void)state;
    run_in_child(no_descriptors_body);
}

static char *emptied;

static void find_it_empty(void) { CHECK(emptied[0] == 0 && emptied[PAGE] == 0); }

static void a_child_finds_memory_zeroed_that_is_emptied_in_children(void **state)
{
    (void)state;
    void *address = NULL;
    assert_int_equal(tni_os_map_private(2 * PAGE, &address), 0);
    emptied = address;
    emptied[0] = 1;
    assert_true(tni_os_empty_in_children(address, 2 * PAGE));
    emptied[PAGE] = 2;
    run_in_child(find_it_empty);
    assert_true(emptied[0] == 1 && emptied[PAGE] == 2);
    tni_os_unmap(address, 2 * PAGE);
}

static void map_aligns_as_asked(void **state)
{
    (void)state;
    int fd = -1;
    const uint64_t align = UINT64_C(1) << 30;
    void *address = NULL;
    assert_int_equal(tni_os_memory_create("t", 4 * PAGE, &fd), 0);
    assert_int_equal(tni_os_map(fd, 4 * PAGE, align, false, &address), 0);
    assert_int_equal((uintptr_t)address % align, 0);
    memset(address, 1, 4 * PAGE);
    tni_os_unmap(address, 4 * PAGE);
    assert_int_equal(tni_os_map(fd, PAGE, 3 * PAGE, false, &address), TN_ERR_INVALID);
    tni_os_unmap(NULL, 0);
    tni_os_close(fd);
}

static void address_limit_body(void)
{
    int fd = -1;
    void *address = NULL;
    CHECK(tni_os_memory_create("t", UINT64_C(1) << 40, &fd) == 0);
    const struct rlimit limit = {.rlim_cur = UINT64_C(1) << 34, .rlim_max = UINT64_C(1) << 34};
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    CHECK(tni_os_map(fd, UINT64_C(1) << 40, PAGE, false, &address) == TN_ERR_NO_MEMORY);
    CHECK(strstr(tn_error_detail(), "1099511627776 bytes") != NULL);
    CHECK(strstr(tn_error_detail(), "17179869184") != NULL);
    CHECK(tni_os_map(fd, UINT64_C(1) << 40, 1 << 21, false, &address) == TN_ERR_NO_MEMORY);
}

static void map_names_the_size_and_the_address_space_limit(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip_since("a sanitizer takes the address space that this test limits");
#endif
    run_in_child(address_limit_body);
}

static void data_limit_body(void)
{
    int fd = -1;
    void *address = NULL;
    const struct rlimit limit = {.rlim_cur = 1 << 20, .rlim_max = 1 << 20};
    CHECK(setrlimit(RLIMIT_DATA, &limit) == 0);
    CHECK(tni_os_map_private(UINT64_C(1) << 30, &address) == TN_ERR_NO_MEMORY);
    CHECK(strstr(tn_error_detail(), "mapping of 1073741824 bytes") != NULL);
    CHECK(strstr(tn_error_detail(), "data limit (ulimit -d) is 1048576 bytes") != NULL);
    CHECK(strstr(tn_error_detail(), "max_map_count") == NULL);
    /* Shared memory does not count towards the data limit. */
    CHECK(tni_os_memory_create("t", 1 << 30, &fd) == 0);
    CHECK(tni_os_map(fd, 1 << 30, PAGE, false, &address) == 0);
    CHECK(tni_os_map(fd, UINT64_C(1) << 60, PAGE, false, &address) == TN_ERR_NO_MEMORY);
    CHECK(strstr(tn_error_detail(), "ulimit -d") == NULL);
}

static void private_memory_names_the_data_limit(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip_since("a sanitizer takes the memory that this test limits");
#endif
    run_in_child(data_limit_body);
}

/* A mapping longer than its object has pages that can never be committed, as on a full machine.
 */
static void commit_body(void)
{
    int fd = -1;
    char *address = NULL;
    uint64_t committed = 0;
    CHECK(tni_os_memory_create("t", 4 * PAGE, &fd) == 0);
    CHECK(tni_os_map(fd, 8 * PAGE, PAGE, false, (void **)&address) == 0);
    address[PAGE] = 'x';
    CHECK(tni_os_commit(address + 100, 2 * PAGE) == 0);
    CHECK(tni_os_memory_committed(fd, &committed) == 0 && committed == 3 * PAGE);
    CHECK(address[PAGE] == 'x' && address[0] == 0);
    CHECK(tni_os_commit(address, 0) == 0);
    CHECK(tni_os_commit(address, 5 * PAGE) == TN_ERR_NO_MEMORY);
    CHECK(strstr(tn_error_detail(), "committing 20480 bytes") != NULL);
}

static void commit_reports_no_memory_instead_of_a_bus_error(void **state)
{
    (void)state;
    run_in_child(commit_body);
}

static void forced_commit_body(void)
{
    setenv("TENON_FORCE_FALLBACK", "noexec_seal,populate_write", 1);
    commit_body();
}

static void commit_reports_no_memory_without_populate_write(void **state)
{
    (void)state;
    run_in_child(forced_commit_body);
}

static void write_at_commits_what_it_writes_and_discard_gives_it_back(void **state)
{
    (void)state;
    int fd = -1;
    char *address = NULL;
    uint64_t committed = 0;
    assert_int_equal(tni_os_memory_create("t", 8 * PAGE, &fd), 0);
    assert_int_equal(tni_os_map(fd, 8 * PAGE, PAGE, false, (void **)&address), 0);
    assert_int_equal(tni_os_write_at(fd, PAGE - 2, "abcd", 4), 0);
    assert_memory_equal(address + PAGE - 2, "abcd", 4);
    assert_int_equal(tni_os_memory_committed(fd, &committed), 0);
    assert_int_equal(committed, 2 * PAGE);
    assert_int_equal(tni_os_write_at(fd, UINT64_MAX, "abcd", 4), TN_ERR_INVALID);

    assert_int_equal(tni_os_discard(address, 2 * PAGE), 0);
    assert_int_equal(tni_os_memory_committed(fd, &committed), 0);
    assert_int_equal(committed, 0);
    assert_int_equal(address[PAGE], 0);
    tni_os_unmap(address, 8 * PAGE);
    tni_os_close(fd);
}

static void private_memory_is_zero_again_after_discard(void **state)
{
    (void)state;
    char *address = NULL;
    assert_int_equal(tni_os_map_private(UINT64_C(1) << 32, (void **)&address), 0);
    address[5] = 'x';
    tni_os_discard_private(address, PAGE);
    assert_int_equal(address[5], 0);
    tni_os_unmap(address, UINT64_C(1) << 32);
}

static void memory_stat_refuses_other_descriptors(void **state)
{
    (void)state;
    int ends[2];
    struct tni_os_memory memory;
    assert_int_equal(tni_os_pipe(ends), 0);
    assert_int_equal(tni_os_memory_stat(ends[0], &memory), TN_ERR_INVALID);
    assert_int_equal(tni_os_memory_stat(-1, &memory), TN_ERR_INVALID);
    tni_os_close(ends[0]);
    tni_os_close(ends[1]);
    tni_os_close(-1);
}

/* The machine and time. */

static void memory_pages_and_random_bytes_are_plausible(void **state)
{
    (void)state;
    char policy[32] = "?";
    uint64_t random[2] = {0};
    assert_true(tni_os_memory_bytes() >= 1 << 20);
    assert_true(tni_os_memory_bytes() < UINT64_MAX);
    assert_int_equal(tni_os_page_bytes() & (tni_os_page_bytes() - 1), 0);
    assert_int_equal(tni_os_random(random, sizeof random), 0);
    assert_true(random[0] != random[1]);
    tni_os_huge_page_policy(policy, sizeof policy);
    assert_null(strchr(policy, '['));
    uint64_t coarse = tni_os_coarse_ns();
    uint64_t now = tni_os_now_ns();
    assert_true(coarse <= now && now - coarse < UINT64_C(10) * SECOND_NS);
    tni_os_sleep_until(0);
}

/* Waiting. */

static void wait_times_out_and_sees_a_changed_value(void **state)
{
    (void)state;
    _Atomic uint32_t word = 7;
    assert_int_equal(tni_os_wait(&word, 8, TNI_FOREVER), 0);
    assert_int_equal(tni_os_wait(&word, 8, 0), 0);
    assert_int_equal(tni_os_wait(&word, 7, 0), TN_ERR_TIMED_OUT);
    uint64_t deadline = tni_os_now_ns() + 2000000;
    assert_int_equal(tni_os_wait(&word, 7, deadline), TN_ERR_TIMED_OUT);
    assert_true(tni_os_now_ns() >= deadline);
    assert_int_equal(tni_os_wake(&word, UINT32_MAX), 0);
}

static void hear(int signal) { (void)signal; }

static void wait_distinguishes_a_signal_from_a_wake_up(void **state)
{
    (void)state;
    _Atomic uint32_t word = 7;
    /* With SA_RESTART the kernel restarts some calls, but not a wait with a deadline. */
    struct sigaction action = {.sa_handler = hear, .sa_flags = SA_RESTART}, before;
    struct itimerval often = {.it_interval.tv_usec = 1000, .it_value.tv_usec = 1000}, off = {0};
    assert_int_equal(sigaction(SIGALRM, &action, &before), 0);
    assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
    int status = tni_os_wait(&word, 7, soon());
    assert_int_equal(setitimer(ITIMER_REAL, &off, NULL), 0);
    assert_int_equal(sigaction(SIGALRM, &before, NULL), 0);
    assert_int_equal(status, TN_ERR_INTERRUPTED);
}

static void wake_reaches_another_process_through_another_mapping(void **state)
{
    (void)state;
    int fd = -1;
    _Atomic uint32_t *word = NULL;
    assert_int_equal(tni_os_memory_create("t", PAGE, &fd), 0);
    assert_int_equal(tni_os_map(fd, PAGE, PAGE, false, (void **)&word), 0);
    pid_t child = fork();
    if (child == 0) {
        _Atomic uint32_t *other = NULL;
        CHECK(tni_os_map(fd, PAGE, PAGE, false, (void **)&other) == 0);
        while (atomic_load(other) == 0)
            CHECK(tni_os_wait(other, 0, soon()) == 0);
        _exit(0);
    }
    /* Repeat until a wake-up has reached the sleeper. */
    uint32_t spins = 0;
    while (tni_os_wake(word, 1) == 0 && spins++ < 1000000)
        tni_os_yield();
    atomic_store(word, 1);
    tni_os_wake(word, 1);
    int status = -1;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    tni_os_unmap(word, PAGE);
    tni_os_close(fd);
}

/* Descriptors. */

static void read_takes_what_is_there_and_never_blocks(void **state)
{
    (void)state;
    int ends[2];
    char bytes[8];
    assert_int_equal(tni_os_pipe(ends), 0);
    assert_int_equal(tni_os_read(ends[0], bytes, sizeof bytes), TN_ERR_TIMED_OUT);
    assert_int_equal(tni_os_write(ends[1], "abc", 3), 0);
    assert_int_equal(tni_os_read(ends[0], bytes, sizeof bytes), 3);
    tni_os_close(ends[1]);
    assert_int_equal(tni_os_read(ends[0], bytes, sizeof bytes), 0);
    tni_os_close(ends[0]);
}

static void a_write_without_a_reader_fails_and_raises_no_signal(void **state)
{
    (void)state;
    int ends[2];
    sigset_t pending;
    assert_int_equal(tni_os_pipe(ends), 0);
    tni_os_close(ends[0]);
    assert_int_equal(tni_os_write(ends[1], "abc", 3), TN_ERR_CLOSED);
    sigpending(&pending);
    assert_false(sigismember(&pending, SIGPIPE));
    tni_os_close(ends[1]);
}

static void poll_names_the_ready_one_of_many(void **state)
{
    (void)state;
    int ends[2];
    int quiet[2];
    int fds[100];
    assert_int_equal(tni_os_pipe(ends), 0);
    assert_int_equal(tni_os_pipe(quiet), 0);
    for (int i = 0; i < 100; i++)
        fds[i] = i == 1 ? -1 : quiet[0];
    fds[90] = ends[0];
    assert_int_equal(tni_os_poll(fds, 100, 0), TN_ERR_TIMED_OUT);
    assert_int_equal(tni_os_poll(fds, 100, tni_os_now_ns() + 1000000), TN_ERR_TIMED_OUT);
    assert_int_equal(tni_os_write(ends[1], "x", 1), 0);
    assert_int_equal(tni_os_poll(fds, 100, TNI_FOREVER), 90);
    tni_os_close(ends[0]);
    tni_os_close(ends[1]);
    assert_int_equal(tni_os_poll(fds, 100, 0), TN_ERR_INVALID);
    tni_os_close(quiet[0]);
    tni_os_close(quiet[1]);
}

static void a_loop_gives_the_tags_that_are_readable(void **state)
{
    (void)state;
    int loop = -1;
    int ends[2];
    uint64_t tags[4] = {0};
    assert_int_equal(tni_os_loop_create(&loop), 0);
    assert_int_equal(tni_os_pipe(ends), 0);
    assert_int_equal(tni_os_loop_add(loop, ends[0], UINT64_C(0x123456789a)), 0);
    assert_int_equal(tni_os_loop_add(loop, ends[0], 1), TN_ERR_EXISTS);
    assert_int_equal(tni_os_loop_add(loop, -1, 1), TN_ERR_INVALID);
    assert_int_equal(tni_os_loop_wait(loop, tags, 4, 0), 0);
    assert_int_equal(tni_os_write(ends[1], "x", 1), 0);
    assert_int_equal(tni_os_loop_wait(loop, tags, 4, soon()), 1);
    assert_true(tags[0] == UINT64_C(0x123456789a));
    tni_os_loop_remove(loop, ends[0]);
    assert_int_equal(tni_os_loop_wait(loop, tags, 4, 0), 0);
    tni_os_close(ends[0]);
    tni_os_close(ends[1]);
    tni_os_close(loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_memory_object_is_sealed_and_sparse),
        cmocka_unit_test(memory_create_refuses_a_size_that_is_not_whole_pages),
        cmocka_unit_test(a_file_size_limit_is_an_error_and_no_signal),
        cmocka_unit_test(a_full_descriptor_table_is_named_with_its_limit),
        cmocka_unit_test(a_child_finds_memory_zeroed_that_is_emptied_in_children),
        cmocka_unit_test(map_aligns_as_asked),
        cmocka_unit_test(map_names_the_size_and_the_address_space_limit),
        cmocka_unit_test(private_memory_names_the_data_limit),
        cmocka_unit_test(commit_reports_no_memory_instead_of_a_bus_error),
        cmocka_unit_test(commit_reports_no_memory_without_populate_write),
        cmocka_unit_test(write_at_commits_what_it_writes_and_discard_gives_it_back),
        cmocka_unit_test(private_memory_is_zero_again_after_discard),
        cmocka_unit_test(memory_stat_refuses_other_descriptors),
        cmocka_unit_test(memory_pages_and_random_bytes_are_plausible),
        cmocka_unit_test(wait_times_out_and_sees_a_changed_value),
        cmocka_unit_test(wait_distinguishes_a_signal_from_a_wake_up),
        cmocka_unit_test(wake_reaches_another_process_through_another_mapping),
        cmocka_unit_test(read_takes_what_is_there_and_never_blocks),
        cmocka_unit_test(a_write_without_a_reader_fails_and_raises_no_signal),
        cmocka_unit_test(poll_names_the_ready_one_of_many),
        cmocka_unit_test(a_loop_gives_the_tags_that_are_readable),
    };
    return cmocka_run_group_tests_name("os", tests, make_test_folder, remove_test_folder);
}
