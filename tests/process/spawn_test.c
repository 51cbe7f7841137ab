/* SPDX-License-Identifier: Apache-2.0 */
/* Children and groups: how they start, what messages they send, how they end. */
#include "harness/harness.h"
#include "harness/tensor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "process/main_thread.h"

/* A domain without tenond: children must end without its help. */
static tn_domain *open_domain(uint32_t seats)
{
    tn_domain_options options = {.struct_size = sizeof options,
                                 .quota_bytes = 16 << 20,
                                 .seats = seats,
                                 .blocks = 1024,
                                 .flags = TN_DOMAIN_NO_MANAGER};
    return tnt_domain(&options);
}

static tn_process *start(tn_domain *domain, tn_process_fn *run, void *argument)
{
    tn_process *process = NULL;
    TN_CHECK_OK(tn_process_fork(domain, run, argument, 0, &process));
    return process;
}

static tn_process_status await_end(tn_process *process)
{
    tn_process_status status = {.struct_size = sizeof status};
    TN_CHECK_OK(tn_process_wait(process, tnt_deadline(10000), &status));
    return status;
}

static int exit_with(tn_domain *domain, void *argument)
{
    (void)domain;
    return (int)(intptr_t)argument;
}

static int pause_for_ever(void)
{
    while (pause() == -1) {
    }
    return 0;
}

static int sleep_for_ever(tn_domain *domain, void *argument)
{
    (void)domain, (void)argument;
    return pause_for_ever();
}

static int signal_then_sleep(tn_domain *domain, void *argument)
{
    tnt_signal(argument);
    return sleep_for_ever(domain, NULL);
}

/* ---- ends -------------------------------------------------------------------------------- */

TN_TEST(wait_tells_exit_codes_0_to_255)
{
    tn_domain *domain = open_domain(8);
    const int codes[] = {0, 1, 7, 255};
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        tn_process *process = start(domain, exit_with, (void *)(intptr_t)codes[i]);
        int32_t pid = tn_process_pid(process);
        for (int again = 0; again < 2; again++) {
            tn_process_status status = await_end(process);
            assert_int_equal(status.exit_code, codes[i]);
            assert_int_equal(status.signal, 0);
            assert_int_equal(status.pid, pid);
            assert_string_equal(status.message, "");
        }
        assert_int_equal(tn_process_kill(process, SIGTERM), 0);
        assert_null(tn_process_close(process));
    }
    TNT_AUDIT(domain);
    tn_domain_close(domain);
}

TN_TEST(wait_times_out_first_and_then_tells_the_signal)
{
    tn_domain *domain = open_domain(8);
    tn_process *process = start(domain, sleep_for_ever, NULL);
    assert_int_equal(tn_process_wait(process, TN_NOW, NULL), TN_ERR_TIMED_OUT);
    assert_int_equal(tn_process_wait(process, tnt_deadline(20), NULL), TN_ERR_TIMED_OUT);
    assert_int_equal(tn_process_kill(process, 12345), TN_ERR_INVALID);
    TN_CHECK_OK(tn_process_kill(process, SIGUSR1));
    tn_process_status status = await_end(process);
    assert_int_equal(status.exit_code, -1);
    assert_int_equal(status.signal, SIGUSR1);
    tn_process_close(process);
    /* The process that waited has reclaimed the child. */
    TNT_AUDIT(domain);
    tn_domain_close(domain);
}

static int fail_saying(tn_domain *domain, void *argument)
{
    (void)domain;
    tn_process_fail(argument);
}

TN_TEST(fail_leaves_255_bytes_at_most_and_exits_with_1)
{
    tn_domain *domain = open_domain(8);
    char text[1000];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    tn_process *process = start(domain, fail_saying, text);
    tn_process_status status = await_end(process);
    assert_int_equal(status.exit_code, 1);
    assert_int_equal(strlen(status.message), 255);
    tn_process_close(process);
    process = start(domain, fail_saying, "no data in batch 7");
    assert_string_equal(await_end(process).message, "no data in batch 7");
    tn_process_close(process);
    tn_domain_close(domain);
}

TN_TEST(a_childs_message_arrives_without_control_characters)
{
    tn_domain *domain = open_domain(8);
    tn_group *group = NULL;
    tn_process_status first = {.struct_size = sizeof first};
    TN_CHECK_OK(tn_group_create(domain, &group));
    TN_CHECK_OK(
        tn_group_add(group, start(domain, fail_saying, "bad\nl\303\244ne \033[31m1\177\001")));
    assert_int_equal(tn_group_wait(group, 0, tnt_deadline(10000), &first), TN_ERR_CHILD_FAILED);
    assert_string_equal(first.message, "bad?l\303\244ne ?[31m1??");
    assert_non_null(strstr(tn_error_detail(), ": bad?l\303\244ne ?[31m1??"));
    tn_group_close(group);
    tn_domain_close(domain);
}

static int exit_by_itself(tn_domain *domain, void *argument)
{
    (void)domain;
    _exit((int)(intptr_t)argument);
}

/* The kernel then collects children itself, and reports their ends to no process. */
TN_TEST(with_sigchld_ignored_exit_codes_of_returns_are_known)
{
    signal(SIGCHLD, SIG_IGN);
    tn_domain *domain = open_domain(8);
    tn_process *process[] = {
        start(domain, exit_with, (void *)0), start(domain, exit_with, (void *)200),
        start(domain, fail_saying, "no more"), start(domain, exit_by_itself, (void *)3),
        start(domain, sleep_for_ever, NULL)};
    const int codes[] = {0, 200, 1, -1, -1};
    TN_CHECK_OK(tn_process_kill(process[4], SIGKILL));
    for (int i = 0; i < 5; i++) {
        tn_process_status status = await_end(process[i]);
        assert_int_equal(status.exit_code, codes[i]);
        assert_int_equal(status.signal, 0);
        assert_string_equal(status.message, i == 2 ? "no more" : "");
        tn_process_close(process[i]);
    }
    /* Some of these children have ended before this process checks them. */
    for (int i = 0; i < 200; i++) {
        tn_process *quick = start(domain, exit_with, (void *)(intptr_t)i);
        assert_int_equal(await_end(quick).exit_code, i);
        tn_process_close(quick);
    }
    TNT_AUDIT(domain); /* children whose exit code is unknown were reclaimed */
    tn_domain_close(domain);
    signal(SIGCHLD, SIG_DFL);
}

TN_TEST(with_sigchld_ignored_a_group_fails_on_known_failures_only)
{
    signal(SIGCHLD, SIG_IGN);
    tn_domain *domain = open_domain(8);
    tn_group *group = NULL;
    tn_process_status first = {.struct_size = sizeof first};
    TN_CHECK_OK(tn_group_create(domain, &group));
    for (int i = 0; i < 2; i++)
        TN_CHECK_OK(tn_group_add(group, start(domain, exit_with, NULL)));
    TN_CHECK_OK(tn_group_add(group, start(domain, exit_by_itself, NULL)));
    TN_CHECK_OK(tn_group_wait(group, 0, tnt_deadline(10000), &first));
    TN_CHECK_OK(tn_group_add(group, start(domain, exit_with, (void *)5)));
    assert_int_equal(tn_group_wait(group, 0, tnt_deadline(10000), &first), TN_ERR_CHILD_FAILED);
    assert_int_equal(first.index, 3);
    assert_int_equal(first.exit_code, 5);
    tn_group_close(group);
    tn_domain_close(domain);
    signal(SIGCHLD, SIG_DFL);
}

static int fork_one_that_fails(tn_domain *domain, void *argument)
{
    (void)domain, (void)argument;
    pid_t pid = fork();
    if (pid == 0)
        tn_process_fail("not my parent's business");
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 1 ? 0 : 2;
}

TN_TEST(fail_in_a_process_that_tenon_did_not_start_only_exits_with_1)
{
    tn_domain *domain = open_domain(8);
    tn_process *process = start(domain, fork_one_that_fails, NULL);
    tn_process_status status = await_end(process);
    assert_int_equal(status.exit_code, 0);
    assert_string_equal(status.message, "");
    tn_process_close(process);
    tn_domain_close(domain);
}

TN_TEST(close_kills_a_child_that_runs_and_leaves_no_descriptor)
{
    tn_domain *domain = open_domain(8);
    unsigned before = tnt_descriptor_count();
    tn_process *process = start(domain, sleep_for_ever, NULL);
    assert_int_equal(tnt_descriptor_count(), before + 2);
    int32_t pid = tn_process_pid(process);
    tn_process_close(process);
    assert_int_equal(kill(pid, 0), -1);
    assert_int_equal(errno, ESRCH);
    assert_int_equal(tnt_descriptor_count(), before);
    TN_CHECK_OK(tn_domain_reap(domain, NULL));
    TNT_AUDIT(domain);
    tn_domain_close(domain);
}

static int close_domain_itself(tn_domain *domain, void *argument)
{
    (void)argument;
    tn_domain_close(domain);
    return 3;
}

TN_TEST(a_child_may_close_the_domain_itself)
{
    tn_domain *domain = open_domain(8);
    tn_process *process = start(domain, close_domain_itself, NULL);
    assert_int_equal(await_end(process).exit_code, 3);
    tn_process_close(process);
    TNT_AUDIT(domain);
    tn_domain_close(domain);
}

TN_TEST(an_object_may_be_closed_after_its_domain)
{
    tn_domain *domain = open_domain(8);
    tn_process *process = start(domain, exit_with, (void *)4);
    tn_domain_close(domain);
    assert_int_equal(await_end(process).exit_code, 4);
    tn_process_close(process);
}

/* ---- starts ------------------------------------------------------------------------------ */

static int seat_of(tn_domain *domain, void *argument)
{
    (void)argument;
    return (int)tnt_seat(domain);
}

TN_TEST(a_child_has_its_own_seat_and_shares_its_parents_holds)
{
    tn_domain *domain = open_domain(8);
    tn_process *process = start(domain, seat_of, NULL);
    int seat = await_end(process).exit_code;
    assert_int_not_equal(seat, (int)tnt_seat(domain));
    assert_in_range(seat, 0, 7);
    tn_process_close(process);
    tn_domain_close(domain);
}

TN_TEST(fork_reports_a_full_table_of_seats)
{
    tn_domain *domain = open_domain(2);
    tn_process *first = start(domain, sleep_for_ever, NULL), *second = NULL;
    unsigned before = tnt_descriptor_count();
    assert_int_equal(tn_process_fork(domain, exit_with, NULL, 0, &second), TN_ERR_FULL);
    assert_null(second);
    assert_non_null(strstr(tn_error_detail(), "seat"));
    assert_int_equal(tnt_descriptor_count(), before);
    tn_process_close(first);
    tn_domain_close(domain);
}

static int write_unflushed(tn_domain *domain, void *argument)
{
    (void)domain, (void)argument;
    printf("child;");
    return 0;
}

TN_TEST(buffered_output_is_written_once_in_parent_and_child)
{
    tn_domain *domain = open_domain(8);
    char text[64] = "";
    FILE *file = tmpfile();
    assert_non_null(file);
    fflush(stdout);
    int saved = dup(STDOUT_FILENO);
    dup2(fileno(file), STDOUT_FILENO);
    setvbuf(stdout, NULL, _IOFBF, 4096);
    printf("parent;");
    tn_process *process = start(domain, write_unflushed, NULL);
    tn_process_status status = await_end(process);
    fflush(stdout);
    dup2(saved, STDOUT_FILENO);
    close(saved);
    rewind(file);
    assert_true(fread(text, 1, sizeof text - 1, file) > 0);
    assert_string_equal(text, "parent;child;");
    assert_int_equal(status.exit_code, 0);
    fclose(file);
    tn_process_close(process);
    tn_domain_close(domain);
}

static int count_descriptors(tn_domain *domain, void *argument)
{
    (void)domain, (void)argument;
    return (int)tnt_descriptor_count();
}

TN_TEST(a_child_does_not_inherit_the_descriptors_of_its_siblings)
{
    tn_domain *domain = open_domain(32);
    tn_group *group = NULL;
    TN_CHECK_OK(tn_group_create(domain, &group));
    tn_process *alone = start(domain, count_descriptors, NULL);
    int expected = await_end(alone).exit_code;
    tn_process_close(alone);
    for (int i = 0; i < 12; i++)
        TN_CHECK_OK(tn_group_add(group, start(domain, sleep_for_ever, NULL)));
    tn_process *late = start(domain, count_descriptors, NULL);
    assert_int_equal(await_end(late).exit_code, expected);
    tn_process_close(late);
    tn_group_close(group);
    tn_domain_close(domain);
}

/* ---- with the parent --------------------------------------------------------------------- */

/* A child as its grandparent sees it: the pidfd is opened while the child surely lives. */
struct family {
    tn_domain *domain;
    struct tnt_signal alive; /* set when the thread that forked has ended */
    int pid_pipe[2];
    uint32_t flags;
    tn_process *process;
};

static int say_pid_and_sleep(tn_domain *domain, void *argument)
{
    struct family *family = argument;
    pid_t pid = getpid();
    TN_CHECK(write(family->pid_pipe[1], &pid, sizeof pid) == sizeof pid);
    return sleep_for_ever(domain, NULL);
}

static void *start_in_thread(void *argument)
{
    struct family *family = argument;
    tn_process *process = NULL;
    TN_CHECK_OK(
        tn_process_fork(family->domain, say_pid_and_sleep, family, family->flags, &process));
    return process;
}

static int be_parent(void *argument)
{
    TN_CHECK(start_in_thread(argument) != NULL);
    return pause_for_ever();
}

/* The thread that forked ends; the child must not end with it. */
static int be_parent_with_threads(void *argument)
{
    struct family *family = argument;
    pthread_t thread;
    void *process = NULL;
    TN_CHECK(pthread_create(&thread, NULL, start_in_thread, family) == 0);
    TN_CHECK(pthread_join(thread, &process) == 0);
    TN_CHECK(tn_process_wait(process, tnt_deadline(50), NULL) == TN_ERR_TIMED_OUT);
    tnt_signal(&family->alive);
    return pause_for_ever();
}

static void *stay_without_main_thread(void *argument)
{
    struct family *family = argument;
    await_end_of_main_thread();
    TN_CHECK(tn_process_wait(family->process, tnt_deadline(50), NULL) == TN_ERR_TIMED_OUT);
    tnt_signal(&family->alive);
    pause_for_ever();
    return NULL;
}

static int be_parent_whose_main_thread_leaves(void *argument)
{
    struct family *family = argument;
    pthread_t thread;
    family->process = start_in_thread(family);
    TN_CHECK(pthread_create(&thread, NULL, stay_without_main_thread, family) == 0);
    pthread_exit(NULL);
}

static bool ends_within(int pid_fd, int ms)
{
    struct pollfd poll_fd = {.fd = pid_fd, .events = POLLIN};
    return poll(&poll_fd, 1, ms) == 1;
}

static struct family make_family(uint32_t flags)
{
    struct family family = {.domain = open_domain(8), .flags = flags};
    family.alive = tnt_signal_open();
    assert_int_equal(pipe(family.pid_pipe), 0);
    return family;
}

static int grandchild_fd(const struct family *family, pid_t *ret_pid)
{
    TN_CHECK(read(family->pid_pipe[0], ret_pid, sizeof *ret_pid) == sizeof *ret_pid);
    int fd = (int)syscall(434, *ret_pid, 0); /* pidfd_open */
    TN_CHECK(fd >= 0);
    return fd;
}

static void end_family(struct family *family)
{
    tnt_signal_close(&family->alive);
    close(family->pid_pipe[0]);
    close(family->pid_pipe[1]);
    TN_CHECK_OK(tn_domain_reap(family->domain, NULL));
    TNT_AUDIT(family->domain);
    tn_domain_close(family->domain);
}

TN_TEST(a_child_ends_when_its_parent_is_killed)
{
    struct family family = make_family(0);
    pid_t grandchild, parent = tnt_fork(be_parent, &family);
    int fd = grandchild_fd(&family, &grandchild);
    tnt_kill(parent);
    assert_true(ends_within(fd, 10000));
    close(fd);
    end_family(&family);
}

static void outlives_its_thread(tnt_child_fn *be)
{
    struct family family = make_family(0);
    pid_t grandchild, parent = tnt_fork(be, &family);
    int fd = grandchild_fd(&family, &grandchild);
    tnt_await(&family.alive);
    assert_false(ends_within(fd, 0));
    tnt_kill(parent);
    assert_true(ends_within(fd, 10000));
    close(fd);
    end_family(&family);
}

TN_TEST(a_child_survives_the_thread_that_forked_it)
{
    outlives_its_thread(be_parent_with_threads);
}

TN_TEST(a_child_survives_an_exit_of_the_main_thread_only)
{
    outlives_its_thread(be_parent_whose_main_thread_leaves);
}

TN_TEST(a_detached_child_outlives_its_parent)
{
    struct family family = make_family(TN_PROCESS_DETACHED);
    pid_t grandchild, parent = tnt_fork(be_parent, &family);
    int fd = grandchild_fd(&family, &grandchild);
    tnt_kill(parent);
    TN_CHECK_OK(tn_domain_reap(family.domain, NULL));
    assert_false(ends_within(fd, 100));
    assert_int_equal(kill(grandchild, SIGKILL), 0);
    assert_true(ends_within(fd, 10000));
    close(fd);
    end_family(&family);
}

static int block_death_signals_and_sleep(tn_domain *domain, void *argument)
{
    /* The kernel's death signal is blocked, so only the seat is left to end the child. */
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    return say_pid_and_sleep(domain, argument);
}

static void *start_blocking(void *argument)
{
    struct family *family = argument;
    tn_process *process = NULL;
    TN_CHECK_OK(
        tn_process_fork(family->domain, block_death_signals_and_sleep, family, 0, &process));
    return process;
}

static int be_parent_of_blocking(void *argument)
{
    pthread_t thread;
    TN_CHECK(pthread_create(&thread, NULL, start_blocking, argument) == 0);
    TN_CHECK(pthread_join(thread, NULL) == 0);
    return pause_for_ever();
}

TN_TEST(a_child_that_blocks_signals_is_ended_by_its_parents_reaper)
{
    struct family family = make_family(0);
    pid_t grandchild, parent = tnt_fork(be_parent_of_blocking, &family);
    int fd = grandchild_fd(&family, &grandchild);
    tnt_kill(parent);
    TN_CHECK_OK(tn_domain_reap(family.domain, NULL));
    assert_true(ends_within(fd, 10000));
    close(fd);
    end_family(&family);
}

struct half_start {
    tn_domain *domain;
    const char *point;
};

#if defined(TN_KILL_POINTS)
void tni_kill_point_arm(const char *name, uint32_t passing);
static int start_one(void *argument)
{
    struct half_start *half = argument;
    tn_process *process = NULL;
    tni_kill_point_arm(half->point, 1);
    int status = tn_process_fork(half->domain, exit_with, NULL, 0, &process);
    tni_kill_point_arm("", 0);
    TN_CHECK(status == TN_ERR_SYSTEM && process == NULL);
    tn_domain_close(half->domain);
    return 0;
}

TN_TEST(a_child_that_dies_before_it_started_is_an_error_of_fork)
{
    tn_domain *domain = open_domain(8);
    const char *const points[] = {"process_bound_to_parent", "spawn_child_bound"};
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
        tnt_wait_ok(tnt_fork(start_one, &(struct half_start){domain, points[i]}));
        TN_CHECK_OK(tn_domain_reap(domain, NULL));
        TNT_AUDIT(domain);
    }
    tn_domain_close(domain);
}
#endif

/* ---- groups ------------------------------------------------------------------------------ */

static tn_group *make_group(tn_domain *domain)
{
    tn_group *group = NULL;
    TN_CHECK_OK(tn_group_create(domain, &group));
    return group;
}

static int note_index(tn_domain *domain, uint32_t index, void *argument)
{
    (void)domain;
    ((int32_t *)argument)[index] = (int32_t)index + 100;
    return 0;
}

static tn_tensor *make_board(tn_domain *domain)
{
    tn_tensor *board = NULL;
    TN_CHECK_OK(tn_tensor_create(domain, TN_INT32, 1, (int64_t[]){4},
                                 TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED),
                                 &board));
    return board;
}

TN_TEST(a_group_of_children_that_exit_with_0_is_well)
{
    tn_domain *domain = open_domain(8);
    tn_tensor *board = make_board(domain);
    tn_group *group = make_group(domain);
    tn_process_status first = {.struct_size = sizeof first, .exit_code = 42};
    int32_t *word = tn_tensor_data(board);
    assert_int_equal(tn_group_wait(group, 0, TN_NOW, &first),
                     0); /* no child: none has failed */
    TN_CHECK_OK(tn_group_fork(group, 3, note_index, word));
    TN_CHECK_OK(tn_group_fork(group, 1, note_index, word));
    assert_int_equal(tnt_group_count(group), 4);
    assert_non_null(tn_group_get(group, 3));
    assert_null(tn_group_get(group, 4));
    for (int again = 0; again < 2; again++)
        TN_CHECK_OK(tn_group_wait(group, 0, tnt_deadline(10000), &first));
    for (int32_t i = 0; i < 4; i++)
        assert_int_equal(word[i], 100 + i);
    assert_int_equal(first.exit_code, 42);
    assert_null(tn_group_close(group));
    tn_tensor_unref(board);
    TNT_AUDIT(domain);
    tn_domain_close(domain);
}

static int third_fails(tn_domain *domain, uint32_t index, void *argument)
{
    (void)argument;
    if (index == 2)
        tn_process_fail("the third one is broken");
    return sleep_for_ever(domain, NULL);
}

TN_TEST(the_first_failure_ends_the_group_and_is_reported)
{
    tn_domain *domain = open_domain(8);
    tn_group *group = make_group(domain);
    tn_process_status first = {.struct_size = sizeof first};
    TN_CHECK_OK(tn_group_fork(group, 4, third_fails, NULL));
    for (int again = 0; again < 2; again++) {
        first = (tn_process_status){.struct_size = sizeof first};
        assert_int_equal(
            tn_group_wait(group, UINT64_C(10000000000), tnt_deadline(20000), &first),
            TN_ERR_CHILD_FAILED);
        assert_int_equal(first.index, 2);
        assert_int_equal(first.exit_code, 1);
        assert_int_equal(first.pid, tn_process_pid(tn_group_get(group, 2)));
        assert_string_equal(first.message, "the third one is broken");
        assert_non_null(strstr(tn_error_detail(), "the third one is broken"));
    }
    for (uint32_t i = 0; i < 4; i++)
        if (i != 2)
            assert_int_equal(await_end(tn_group_get(group, i)).signal, SIGTERM);
    tn_group_close(group);
    TN_CHECK_OK(tn_domain_reap(domain, NULL));
    TNT_AUDIT(domain);
    tn_domain_close(domain);
}

static int use_the_group_of_the_parent(void *group)
{
    TN_CHECK(tn_group_wait(group, 0, TN_NOW, NULL) == TN_ERR_INVALID);
    TN_CHECK(tn_group_fork(group, 1, third_fails, NULL) == TN_ERR_INVALID);
    tn_group_close(group);
    return 0;
}

TN_TEST(a_group_childs_message_goes_to_the_groups_maker)
{
    tn_domain *domain = open_domain(8);
    tn_group *group = make_group(domain);
    tn_process_status first = {.struct_size = sizeof first};
    siginfo_t end;
    TN_CHECK_OK(tn_group_fork(group, 3, third_fails, NULL));
    id_t third = (id_t)tn_process_pid(tn_group_get(group, 2));
    TN_CHECK(waitid(P_PID, third, &end, WEXITED | WNOWAIT) ==
             0); /* the child has sent its message */
    tnt_wait_ok(tnt_fork(use_the_group_of_the_parent, group));
    assert_int_equal(tn_group_wait(group, 0, tnt_deadline(20000), &first), TN_ERR_CHILD_FAILED);
    assert_string_equal(first.message, "the third one is broken");
    tn_group_close(group);
    TN_CHECK_OK(tn_domain_reap(domain, NULL));
    tn_domain_close(domain);
}

static int sleep_as_member(tn_domain *domain, uint32_t index, void *argument)
{
    (void)index;
    return sleep_for_ever(domain, argument);
}

TN_TEST_WITHIN(a_child_that_joins_a_group_that_failed_is_ended_too, 20)
{
    const uint64_t graces[] = {0, 1000000};
    for (size_t i = 0; i < 2; i++) {
        tn_domain *domain = open_domain(8);
        tn_group *group = make_group(domain);
        TN_CHECK_OK(tn_group_fork(group, 1, third_fails, NULL));
        TN_CHECK_OK(tn_group_add(group, start(domain, exit_with, (void *)3)));
        assert_int_equal(tn_group_wait(group, graces[i], TN_FOREVER, NULL),
                         TN_ERR_CHILD_FAILED);
        TN_CHECK_OK(tn_group_fork(group, 2, sleep_as_member, NULL));
        assert_int_equal(tn_group_wait(group, graces[i], TN_FOREVER, NULL),
                         TN_ERR_CHILD_FAILED);
        for (uint32_t child = 2; child < 4; child++)
            assert_int_not_equal(await_end(tn_group_get(group, child)).signal, 0);
        tn_group_close(group);
        TN_CHECK_OK(tn_domain_reap(domain, NULL));
        TNT_AUDIT(domain);
        tn_domain_close(domain);
    }
}

static int ignore_term(tn_domain *domain, uint32_t index, void *argument)
{
    (void)index;
    signal(SIGTERM, SIG_IGN);
    tnt_signal(argument);
    return sleep_for_ever(domain, NULL);
}

TN_TEST(a_child_that_ignores_sigterm_is_killed_after_the_grace)
{
    tn_domain *domain = open_domain(8);
    tn_group *group = make_group(domain);
    struct tnt_signal ready = tnt_signal_open();
    tn_process_status first = {.struct_size = sizeof first};
    TN_CHECK_OK(tn_group_fork(group, 2, ignore_term, &ready));
    tnt_await(&ready);
    tnt_await(&ready);
    TN_CHECK_OK(tn_process_kill(tn_group_get(group, 1), SIGKILL));
    assert_int_equal(tn_group_wait(group, 1000000, tnt_deadline(20000), &first),
                     TN_ERR_CHILD_FAILED);
    assert_int_equal(first.index, 1);
    assert_int_equal(first.exit_code, -1);
    assert_int_equal(first.signal, SIGKILL);
    assert_int_equal(await_end(tn_group_get(group, 0)).signal, SIGKILL);
    tn_group_close(group);
    tnt_signal_close(&ready);
    tn_domain_close(domain);
}

/* One joins each time; a child that was told before has no longer for it. */
TN_TEST(children_that_join_do_not_put_off_the_end_of_others)
{
    enum { MOST = 48 };
    const uint64_t grace_ns = UINT64_C(200000000);
    tn_domain *domain = open_domain(MOST + 8);
    tn_group *group = make_group(domain);
    struct tnt_signal ready = tnt_signal_open();
    TN_CHECK_OK(tn_group_fork(group, 1, ignore_term, &ready));
    tnt_await(&ready);
    TN_CHECK_OK(tn_group_add(group, start(domain, exit_with, (void *)3)));
    tn_process *told = tn_group_get(group, 0);
    uint32_t joined = 0;
    for (; joined < MOST && tn_process_wait(told, TN_NOW, NULL) != 0; joined++) {
        assert_int_equal(tn_group_wait(group, grace_ns, tnt_deadline(20), NULL),
                         TN_ERR_TIMED_OUT);
        TN_CHECK_OK(tn_group_fork(group, 1, ignore_term, &ready));
        tnt_await(&ready);
    }
    assert_true(joined < MOST);
    assert_int_equal(await_end(told).signal, SIGKILL);
    tn_group_close(group);
    tnt_signal_close(&ready);
    TN_CHECK_OK(tn_domain_reap(domain, NULL));
    TNT_AUDIT(domain);
    tn_domain_close(domain);
}

TN_TEST(a_group_that_still_runs_times_out_and_close_ends_it)
{
    tn_domain *domain = open_domain(8);
    tn_group *group = make_group(domain);
    struct tnt_signal ready = tnt_signal_open();
    unsigned before = tnt_descriptor_count();
    tn_process *process = start(domain, signal_then_sleep, &ready);
    tnt_await(&ready);
    TN_CHECK_OK(tn_group_add(group, process));
    TN_CHECK_OK(tn_group_add(group, start(domain, exit_with, NULL)));
    assert_int_equal(tn_group_wait(group, 0, TN_NOW, NULL), TN_ERR_TIMED_OUT);
    assert_int_equal(tn_group_wait(group, 0, tnt_deadline(30), NULL), TN_ERR_TIMED_OUT);
    int32_t pid = tn_process_pid(process);
    tn_group_close(group);
    assert_int_equal(kill(pid, 0), -1);
    assert_int_equal(tnt_descriptor_count(), before);
    tnt_signal_close(&ready);
    TN_CHECK_OK(tn_domain_reap(domain, NULL));
    TNT_AUDIT(domain);
    tn_domain_close(domain);
}

TN_TEST(a_group_that_cannot_start_whole_ends_what_it_started)
{
    tn_domain *domain = open_domain(4);
    tn_group *group = make_group(domain);
    unsigned before = tnt_descriptor_count();
    assert_int_equal(tn_group_fork(group, 5, third_fails, NULL), TN_ERR_FULL);
    assert_int_equal(tnt_group_count(group), 0);
    assert_int_equal(tnt_descriptor_count(), before);
    TN_CHECK_OK(tn_domain_reap(domain, NULL));
    int32_t words[3] = {0};
    TN_CHECK_OK(tn_group_fork(group, 3, note_index, words)); /* each writes into a copy */
    TN_CHECK_OK(tn_group_wait(group, 0, tnt_deadline(10000), NULL));
    tn_group_close(group);
    tn_domain_close(domain);
}

struct threaded_start {
    tn_domain *domain;
    int started;
};

static void *start_many(void *argument)
{
    struct threaded_start *job = argument;
    for (int i = 0; i < 10; i++) {
        tn_process *process = start(job->domain, exit_with, (void *)(intptr_t)i);
        tn_process_status status = {.struct_size = sizeof status};
        TN_CHECK_OK(tn_process_wait(process, tnt_deadline(20000), &status));
        TN_CHECK(status.exit_code == i);
        tn_process_close(process);
        job->started++;
    }
    return NULL;
}

TN_TEST(threads_may_start_children_at_the_same_time)
{
    tn_domain *domain = open_domain(32);
    pthread_t threads[4];
    struct threaded_start jobs[4];
    for (int i = 0; i < 4; i++) {
        jobs[i] = (struct threaded_start){domain, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, start_many, &jobs[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(jobs[i].started, 10);
    }
    TNT_AUDIT(domain);
    tn_domain_close(domain);
}
