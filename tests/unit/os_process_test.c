/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "os_test.h"

/* Processes. */

static void self_in_child_body(void)
{
    struct tni_os_process self;
    CHECK(tni_os_self(&self) == 0);
    CHECK(self.pid == getpid() && tni_os_pid() == getpid());
    CHECK(tni_os_process_state(&self, true) == TNI_OS_ALIVE);
}

static void self_is_right_before_and_after_a_fork(void **state)
{
    (void)state;
    self_in_child_body();
    run_in_child(self_in_child_body);
    assert_int_equal(tni_os_thread_id(), getpid());
}

static struct tni_os_process parent_self;

/* /proc rounds down to a tick, of which there are 100 a second. */
static uint64_t own_start_time(void)
{
    char text[1024] = "";
    FILE *file = fopen("/proc/self/stat", "re");
    CHECK(file != NULL && fread(text, 1, sizeof text - 1, file) > 0);
    fclose(file);
    char *at = strrchr(text, ')') + 2;
    for (int field = 3; field < 22; field++)
        at = strchr(at, ' ') + 1;
    return strtoull(at, NULL, 10);
}

static void know_self_as_proc_does(void)
{
    struct tni_os_process self;
    CHECK(tni_os_self(&self) == 0);
    CHECK(self.pid == getpid() && self.start_time == own_start_time());
    CHECK(self.image == parent_self.image && self.pid_space == parent_self.pid_space);
}

static void wait_a_little(void) { tni_os_sleep_until(tni_os_now_ns() + 300 * 1000); }

static void fork_often(void)
{
    CHECK(tni_os_self(&parent_self) == 0);
    CHECK(tni_os_at_fork(wait_a_little, NULL, NULL) == 0);
    for (int i = 0; i < 64; i++)
        run_in_child(know_self_as_proc_does);
}

/* Most children do not read /proc; of 64, some start too near the end of a tick and must. */
static void a_forked_child_has_the_identity_that_proc_shows(void **state)
{
    (void)state;
    run_in_child(fork_often);
}

static void another_process_under_the_same_number_is_dead(void **state)
{
    (void)state;
    struct tni_os_process self;
    assert_int_equal(tni_os_self(&self), 0);
    assert_true(self.start_time != 0 && self.image != 0);
    struct tni_os_process other = self;
    other.start_time -= 1;
    assert_int_equal(tni_os_process_state(&other, false), TNI_OS_DEAD);
    other = self;
    other.image += 16;
    assert_int_equal(tni_os_process_state(&other, false), TNI_OS_ALIVE);
    assert_int_equal(tni_os_process_state(&other, true), TNI_OS_EXECED);
}

static void a_process_that_cannot_be_compared_is_unknown(void **state)
{
    (void)state;
    struct tni_os_process self;
    assert_int_equal(tni_os_self(&self), 0);
    struct tni_os_process other = self;
    other.pid_space += 1;
    assert_int_equal(tni_os_process_state(&other, false), TNI_OS_UNKNOWN);
    other = self;
    other.pid = -1;
    assert_int_equal(tni_os_process_state(&other, false), TNI_OS_UNKNOWN);
    other = self;
    other.start_time = 0;
    assert_int_equal(tni_os_process_state(&other, false), TNI_OS_UNKNOWN);
}

static pthread_t main_thread;

static void *outlive_main_thread(void *unused)
{
    (void)unused;
    bool has_joined = pthread_join(main_thread, NULL) == 0;
    CHECK(has_joined && !tni_os_process_is_ending(getpid()));
    _exit(0);
}

static void leave_a_thread(void)
{
    pthread_t other;
    main_thread = pthread_self();
    CHECK(pthread_create(&other, NULL, outlive_main_thread, NULL) == 0);
    pthread_exit(NULL);
}

static void a_process_lives_on_without_its_main_thread(void **state)
{
    (void)state;
    run_in_child(leave_a_thread);
}

static uid_t owner;

static void lose_the_number(void)
{
    CHECK(tni_os_has_uid());
    CHECK(unshare(CLONE_NEWUSER) == 0);
    CHECK(!tni_os_has_uid());
    FILE *map = fopen("/proc/self/uid_map", "we");
    CHECK(map != NULL && fprintf(map, "7 %u 1", owner) > 0 && fclose(map) == 0);
    CHECK(tni_os_has_uid() && tni_os_uid() == 7);
}

static void a_user_that_its_namespace_does_not_map_is_detected(void **state)
{
    (void)state;
    pid_t child = fork();
    if (child == 0)
        _exit(unshare(CLONE_NEWUSER) == 0 ? 0 : 1);
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (status != 0)
        skip_since("no user namespace may be made here");
    owner = geteuid();
    run_in_child(lose_the_number);
}

/** A child that writes its identity, and then waits until `hold` is closed. */
static pid_t start_child(struct tni_os_process *ret_process, int *ret_hold)
{
    int tell[2];
    int hold[2];
    assert_int_equal(tni_os_pipe(tell), 0);
    assert_int_equal(tni_os_pipe(hold), 0);
    int pid = tni_os_fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char byte;
        struct tni_os_process self;
        close(hold[1]);
        CHECK(tni_os_self(&self) == 0);
        CHECK(tni_os_write(tell[1], &self, sizeof self) == 0);
        CHECK(read(hold[0], &byte, 1) == 0);
        tni_os_exit(5);
    }
    tni_os_close(tell[1]);
    tni_os_close(hold[0]);
    assert_int_equal(tni_os_poll(&tell[0], 1, soon()), 0);
    assert_int_equal(tni_os_read(tell[0], ret_process, sizeof *ret_process),
                     sizeof *ret_process);
    tni_os_close(tell[0]);
    *ret_hold = hold[1];
    return pid;
}

static void a_child_is_alive_then_a_zombie_then_collected(void **state)
{
    (void)state;
    int hold = -1;
    int pid_fd = -1;
    struct tni_os_process child;
    struct tni_os_exit end;
    uint32_t before = open_count();
    pid_t pid = start_child(&child, &hold);
    assert_int_equal(child.pid, pid);
    assert_int_equal(tni_os_process_state(&child, true), TNI_OS_ALIVE);
    assert_int_equal(tni_os_process_open(pid, &pid_fd), 0);
    assert_int_equal(tni_os_child_wait(pid_fd, pid, 0, &end), TN_ERR_TIMED_OUT);
    assert_false(tni_os_process_is_ending(pid));

    tni_os_close(hold);
    assert_int_equal(tni_os_poll(&pid_fd, 1, soon()), 0);
    assert_int_equal(tni_os_process_state(&child, true), TNI_OS_DEAD);
    assert_true(tni_os_process_is_ending(pid));
    assert_int_equal(tni_os_child_wait(pid_fd, pid, soon(), &end), 0);
    assert_int_equal(end.exit_code, 5);
    assert_int_equal(end.signal, 0);
    assert_int_equal(tni_os_process_state(&child, true), TNI_OS_DEAD);
    assert_int_equal(tni_os_child_wait(pid_fd, pid, soon(), &end), TN_ERR_NOT_FOUND);
    assert_int_equal(tni_os_process_signal(pid_fd, SIGTERM), TN_ERR_NOT_FOUND);
    tni_os_close(pid_fd);
    assert_int_equal(tni_os_process_open(pid, &pid_fd), TN_ERR_NOT_FOUND);
    assert_int_equal(open_count(), before);
}

static void a_signal_is_told_by_child_wait(void **state)
{
    (void)state;
    int hold = -1;
    int pid_fd = -1;
    struct tni_os_process child;
    struct tni_os_exit end;
    pid_t pid = start_child(&child, &hold);
    assert_int_equal(tni_os_process_open(pid, &pid_fd), 0);
    assert_int_equal(tni_os_process_signal(pid_fd, SIGKILL), 0);
    assert_int_equal(tni_os_child_wait(pid_fd, pid, TNI_FOREVER, &end), 0);
    assert_int_equal(end.exit_code, -1);
    assert_int_equal(end.signal, SIGKILL);
    tni_os_close(pid_fd);
    tni_os_close(hold);
}

static void a_process_that_execed_is_distinguished(void **state)
{
    (void)state;
    int tell[2];
    int hold[2];
    struct tni_os_process child;
    char word[4] = "";
    assert_int_equal(tni_os_pipe(tell), 0);
    assert_int_equal(tni_os_pipe(hold), 0);
    int pid = tni_os_fork();
    if (pid == 0) {
        struct tni_os_process self;
        CHECK(tni_os_self(&self) == 0);
        CHECK(tni_os_write(tell[1], &self, sizeof self) == 0);
        dup2(hold[0], 0);
        dup2(tell[1], 1);
        const char *const argv[] = {"sh", "-c", "echo $GREETING; read line", NULL};
        const char *const environment[] = {"GREETING=hey", NULL};
        CHECK(tni_os_exec(argv, environment) == 0);
    }
    tni_os_close(hold[0]);
    assert_int_equal(tni_os_poll(&tell[0], 1, soon()), 0);
    assert_int_equal(tni_os_read(tell[0], &child, sizeof child), sizeof child);
    assert_int_equal(tni_os_poll(&tell[0], 1, soon()), 0);
    assert_int_equal(tni_os_read(tell[0], word, sizeof word), 4);
    assert_memory_equal(word, "hey\n", 4);
    assert_int_equal(tni_os_process_state(&child, false), TNI_OS_ALIVE);
    assert_int_equal(tni_os_process_state(&child, true), TNI_OS_EXECED);
    char command[64];
    tni_os_process_command(pid, command, sizeof command);
    assert_string_equal(command, "sh -c echo $GREETING; read line");
    tni_os_close(hold[1]);
    tni_os_close(tell[0]);
    tni_os_close(tell[1]);
    waitpid(pid, NULL, 0);
    tni_os_process_command(pid, command, sizeof command);
    assert_string_equal(command, "");
}

static void a_command_line_that_is_no_text_is_cleaned(void **state)
{
    (void)state;
    int hold[2], tell[2];
    char word[4], command[64], half[sizeof "sh -c echo;read a ??? ?"];
    assert_int_equal(tni_os_pipe(hold), 0);
    assert_int_equal(tni_os_pipe(tell), 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(hold[0], 0);
        dup2(tell[1], 1);
        const char *const argv[] = {"sh", "-c", "echo;read a", "\302\233\377 \303\251", NULL};
        CHECK(tni_os_exec(argv, NULL) == 0);
    }
    tni_os_close(hold[0]);
    assert_int_equal(tni_os_poll(&tell[0], 1, soon()), 0);
    assert_int_equal(tni_os_read(tell[0], word, sizeof word), 1);
    tni_os_process_command(pid, command, sizeof command);
    assert_string_equal(command, "sh -c echo;read a ??? \303\251");
    tni_os_process_command(pid, half, sizeof half);
    assert_string_equal(half, "sh -c echo;read a ??? ?");
    tni_os_close(hold[1]);
    tni_os_close(tell[0]);
    tni_os_close(tell[1]);
    waitpid(pid, NULL, 0);
}

static void exec_of_a_missing_program_is_not_found(void **state)
{
    (void)state;
    const char *const missing[] = {"/nowhere/tenon", NULL};
    const char *const denied[] = {"/etc/passwd", NULL};
    assert_int_equal(tni_os_exec(missing, NULL), TN_ERR_NOT_FOUND);
    assert_int_equal(tni_os_exec(denied, NULL), TN_ERR_DENIED);
}

static void die_with_parent_body(void)
{
    int tell[2];
    int hold[2];
    int32_t grandchild = 0;
    CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    CHECK(tni_os_pipe(tell) == 0 && tni_os_pipe(hold) == 0);
    int child = tni_os_fork();
    if (child == 0) {
        int32_t parent = tni_os_pid();
        if (tni_os_fork() == 0) {
            tni_os_die_with_process(parent);
            int32_t self = tni_os_pid();
            CHECK(tni_os_write(tell[1], &self, sizeof self) == 0);
            for (;;)
                pause();
        }
        char byte;
        CHECK(read(hold[0], &byte, 1) == 1);
        tni_os_exit(0);
    }
    CHECK(read(tell[0], &grandchild, sizeof grandchild) == (ssize_t)sizeof grandchild);
    CHECK(tni_os_write(hold[1], "x", 1) == 0);
    CHECK(waitpid(child, NULL, 0) == child);
    int status = 0;
    CHECK(waitpid(grandchild, &status, 0) == grandchild);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);

    /* The pid of another process: as if the parent had died before the call. */
    child = tni_os_fork();
    if (child == 0) {
        tni_os_die_with_process(grandchild);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) != 0);
}

static void a_child_dies_with_its_parent(void **state)
{
    (void)state;
    run_in_child(die_with_parent_body);
}

static int fork_counts[3];
static bool has_seemed_failed;

static void count_prepare(void) { fork_counts[0]++; }

static void count_parent(bool seems_failed)
{
    fork_counts[1]++;
    has_seemed_failed = seems_failed;
}

static void count_child(void) { fork_counts[2]++; }

static void at_fork_body(void)
{
    int status = 0;
    CHECK(tni_os_at_fork(count_prepare, count_parent, count_child) == 0);
    CHECK(tni_os_at_fork(count_prepare, count_parent, count_child) == 0);
    CHECK(tni_os_at_fork(count_prepare, NULL, NULL) == TN_ERR_EXISTS);
    if (fork() == 0)
        _exit(fork_counts[2]);
    CHECK(wait(&status) > 0 && WEXITSTATUS(status) == 1);
    CHECK(fork_counts[0] == 1 && fork_counts[1] == 1 && fork_counts[2] == 0);
    CHECK(!has_seemed_failed);

    CHECK(tni_os_fork_quiet(true) == false);
    if (fork() == 0)
        _exit(fork_counts[2]);
    CHECK(wait(&status) > 0 && WEXITSTATUS(status) == 0);
    CHECK(tni_os_fork_quiet(false) == true);

    const char *const argv[] = {"true", NULL};
    CHECK(tni_os_start_detached("/bin/true", argv) == 0);
    CHECK(fork_counts[0] == 1 && fork_counts[1] == 1);
}

static void quiet_forks_run_no_handlers(void **state)
{
    (void)state;
    run_in_child(at_fork_body);
}

/* The program writes what it sees to a fifo, which this test waits for. */
static void start_detached_body(void)
{
    char fifo[128];
    char seen[256] = "";
    int held = -1;
    snprintf(fifo, sizeof fifo, "%s/fifo", test_folder);
    unlink(fifo);
    CHECK(mkfifo(fifo, 0600) == 0);
    int fd = open(fifo, O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0);
    CHECK(tni_os_memory_create("t", PAGE, &held) == 0 && tni_os_keep_on_exec(held) == 0);
    CHECK(fcntl(held, F_DUPFD, 200) >= 0);
    signal(SIGPIPE, SIG_IGN);

    char script[512];
    snprintf(script, sizeof script,
             "read -r x < /proc/self/stat; set -- $x; "
             "echo \"$(pwd) $$ $6 $(ls /proc/$$/fd | tr '\\n' ',')"
             " $(grep SigIgn /proc/$$/status | cut -f2)\" > %s",
             fifo);
    const char *const argv[] = {"sh", "-c", script, NULL};
    uint32_t before = open_count();
    CHECK(tni_os_start_detached("/bin/sh", argv) == 0);
    CHECK(open_count() == before);
    CHECK(wait(NULL) < 0 && errno == ECHILD);
    CHECK(tni_os_poll(&fd, 1, soon()) == 0);
    CHECK(tni_os_read(fd, seen, sizeof seen - 1) > 0);

    int pid = 0;
    int session = 0;
    char fds[64] = "";
    char ignored[64] = "";
    CHECK(sscanf(seen, "/ %d %d %63s %63s", &pid, &session, fds, ignored) == 4);
    CHECK(pid == session);
    CHECK(strncmp(fds, "0,1,2,", 6) == 0 && strstr(fds, "200") == NULL);
    /* 32 and 33 are glibc's own: posix_spawn(), which make uses, ignores them. */
    CHECK((strtoull(ignored, NULL, 16) & ~(UINT64_C(3) << 31)) == 0);
    unlink(fifo);
}

static void a_detached_process_has_its_own_session_and_no_files(void **state)
{
    (void)state;
    run_in_child(start_detached_body);
}

static void forced_start_detached_body(void)
{
    setenv("TENON_FORCE_FALLBACK", "close_range", 1);
    start_detached_body();
}

static void a_detached_process_has_no_files_without_close_range(void **state)
{
    (void)state;
    run_in_child(forced_start_detached_body);
}

static void start_detached_reports_a_program_that_cannot_run(void **state)
{
    (void)state;
    const char *const argv[] = {"x", NULL};
    uint32_t before = open_count();
    assert_int_equal(tni_os_start_detached("/nowhere/tenond", argv), TN_ERR_NOT_FOUND);
    assert_non_null(strstr(tn_error_detail(), "/nowhere/tenond"));
    assert_int_equal(tni_os_start_detached("/etc/passwd", argv), TN_ERR_DENIED);
    assert_int_equal(open_count(), before);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

/* Descriptor 3 is a file of the program, and only `left` descriptors are free. */
static int start_with_few_left(uint32_t left)
{
    const char *const argv[] = {"true", NULL};
    int taken[PAGE / 16], fd;
    uint32_t count = 0;
    while ((fd = fcntl(3, F_DUPFD_CLOEXEC, 4)) >= 0)
        taken[count++] = fd;
    for (uint32_t i = 0; i < left; i++)
        close(taken[--count]);
    int status = tni_os_start_detached("/bin/true", argv);
    CHECK(lseek(3, 0, SEEK_CUR) == 0);
    CHECK(status == 0 || strstr(tn_error_detail(), "no descriptors left") != NULL);
    while (count > 0)
        close(taken[--count]);
    return status;
}

static void few_descriptors_body(void)
{
    enum { LIMIT = 64, MOST_LEFT = 8 };
    const struct rlimit limit = {.rlim_cur = LIMIT, .rlim_max = LIMIT};
    struct tni_os_memory memory;
    uint32_t failures = 0;
    int file;
    CHECK(tni_os_memory_create("of the user", PAGE, &file) == 0);
    CHECK(dup2(file, 3) == 3 && setrlimit(RLIMIT_NOFILE, &limit) == 0);
    CHECK(lseek(3, 0, SEEK_SET) == 0);
    for (uint32_t left = 0; left < MOST_LEFT; left++)
        failures += start_with_few_left(left) != 0;
    CHECK(failures > 0 && failures < MOST_LEFT);
    CHECK(tni_os_memory_stat(3, &memory) == 0 && memory.size_bytes == PAGE);
}

static void start_detached_writes_to_no_file_of_the_user(void **state)
{
    (void)state;
    run_in_child(few_descriptors_body);
}

static void no_standard_files_body(void)
{
    close(0);
    close(1);
    const char *const argv[] = {"x", NULL};
    CHECK(tni_os_start_detached("/bin/true", argv) == 0);
    CHECK(tni_os_start_detached("/nowhere/tenond", argv) == TN_ERR_NOT_FOUND);
}

static void start_detached_works_without_standard_files(void **state)
{
    (void)state;
    run_in_child(no_standard_files_body);
}

/* The program copies its standard input, descriptor `number` here, to a fifo. */
static void expect_input(int number)
{
    char fifo[128], script[256], seen[16] = "";
    int ends[2];
    snprintf(fifo, sizeof fifo, "%s/input", test_folder);
    unlink(fifo);
    CHECK(mkfifo(fifo, 0600) == 0);
    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    CHECK(tni_os_write(ends[1], "input\n", 6) == 0);
    close(ends[1]);
    CHECK(fcntl(ends[0], F_DUPFD, 100) == 100);
    close(ends[0]);
    CHECK(dup3(100, number, O_CLOEXEC) == number);
    close(100);
    int fd = open(fifo, O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0);
    snprintf(script, sizeof script, "read -r x; echo \"$x\" > %s", fifo);
    const char *const argv[] = {"sh", "-c", script, NULL};
    CHECK(tni_os_start_detached_on("/bin/sh", argv, number) == 0);
    CHECK(tni_os_poll(&fd, 1, soon()) == 0);
    CHECK(tni_os_read(fd, seen, sizeof seen - 1) == 6 && strcmp(seen, "input\n") == 0);
    close(fd);
    close(number);
    unlink(fifo);
}

/* 3 is REPORT_FD; if 0 is free, the pipe may get that number. */
static void input_body(void)
{
    expect_input(20);
    expect_input(3);
    close(0);
    expect_input(20);
    expect_input(0);
}

static void a_detached_process_has_the_input_that_it_was_given(void **state)
{
    (void)state;
    run_in_child(input_body);
}

static void huge_bytes_of_an_unknown_memory_are_none(void **state)
{
    (void)state;
    assert_int_equal(tni_os_process_huge_bytes(getpid(), 1), 0);
    assert_int_equal(tni_os_process_huge_bytes(-1, 1), 0);
}

/* Search. */

struct found {
    const char *name;
    uint64_t inode;
    int32_t pid;
    int fd;
    int count;
};

static int note_memory(int32_t pid, int fd_number, const char *name, uint64_t inode,
                       void *context)
{
    struct found *found = context;
    if (strcmp(name, found->name) == 0 && inode == found->inode) {
        found->pid = pid;
        found->fd = fd_number;
        found->count++;
    }
    return 0;
}

static int stop_at_once(int32_t pid, int fd_number, const char *name, uint64_t inode,
                        void *context)
{
    (void)pid;
    (void)fd_number;
    (void)name;
    (void)inode;
    (void)context;
    return 17;
}

static void memory_objects_are_found_and_opened_by_number(void **state)
{
    (void)state;
    int fd = -1;
    int again = -1;
    struct tni_os_memory memory;
    struct tni_os_memory opened;
    assert_int_equal(tni_os_memory_create("tenon-find-me", PAGE, &fd), 0);
    assert_int_equal(tni_os_memory_stat(fd, &memory), 0);
    struct found found = {.name = "tenon-find-me", .inode = memory.inode};
    assert_int_equal(tni_os_memory_for_each("tenon-find", note_memory, &found), 0);
    assert_int_equal(found.count, 1);
    assert_int_equal(found.pid, getpid());
    assert_int_equal(found.fd, fd);
    assert_int_equal(tni_os_memory_for_each("tenon-find", stop_at_once, NULL), 17);
    assert_int_equal(tni_os_memory_for_each("tenon-never", stop_at_once, NULL), 0);

    void *address = NULL;
    assert_int_equal(tni_os_memory_open(getpid(), fd, true, &again), 0);
    assert_int_equal(tni_os_memory_stat(again, &opened), 0);
    assert_true(opened.inode == memory.inode);
    assert_int_equal(tni_os_map(again, PAGE, PAGE, false, &address), TN_ERR_DENIED);
    assert_int_equal(tni_os_map(again, PAGE, PAGE, true, &address), 0);
    tni_os_unmap(address, PAGE);
    tni_os_close(again);
    assert_int_equal(tni_os_memory_open(getpid(), fd, false, &again), 0);
    assert_int_equal(tni_os_write_at(again, 0, "x", 1), 0);
    tni_os_close(again);
    tni_os_close(fd);
    assert_int_equal(tni_os_memory_open(getpid(), fd, false, &again), TN_ERR_NOT_FOUND);
    assert_int_equal(tni_os_memory_open(getpid(), 2, false, &again), TN_ERR_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(self_is_right_before_and_after_a_fork),
        cmocka_unit_test(a_forked_child_has_the_identity_that_proc_shows),
        cmocka_unit_test(another_process_under_the_same_number_is_dead),
        cmocka_unit_test(a_process_that_cannot_be_compared_is_unknown),
        cmocka_unit_test(a_child_is_alive_then_a_zombie_then_collected),
        cmocka_unit_test(a_process_lives_on_without_its_main_thread),
        cmocka_unit_test(a_user_that_its_namespace_does_not_map_is_detected),
        cmocka_unit_test(a_signal_is_told_by_child_wait),
        cmocka_unit_test(a_process_that_execed_is_distinguished),
        cmocka_unit_test(a_command_line_that_is_no_text_is_cleaned),
        cmocka_unit_test(exec_of_a_missing_program_is_not_found),
        cmocka_unit_test(a_child_dies_with_its_parent),
        cmocka_unit_test(quiet_forks_run_no_handlers),
        cmocka_unit_test(a_detached_process_has_its_own_session_and_no_files),
        cmocka_unit_test(a_detached_process_has_no_files_without_close_range),
        cmocka_unit_test(start_detached_reports_a_program_that_cannot_run),
        cmocka_unit_test(start_detached_writes_to_no_file_of_the_user),
        cmocka_unit_test(start_detached_works_without_standard_files),
        cmocka_unit_test(a_detached_process_has_the_input_that_it_was_given),
        cmocka_unit_test(huge_bytes_of_an_unknown_memory_are_none),
        cmocka_unit_test(memory_objects_are_found_and_opened_by_number),
    };
    return cmocka_run_group_tests_name("os process", tests, make_test_folder,
                                       remove_test_folder);
}
