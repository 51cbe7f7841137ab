/* SPDX-License-Identifier: Apache-2.0 */
/* Programs as children: how they join, what they leave, and that they end with their parent. */
#include "harness/harness.h"
#include "harness/tensor.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "process/children.h"

static void to_hex(const uint8_t *bytes, size_t size, char *ret_text)
{
    for (size_t i = 0; i < size; i++)
        snprintf(ret_text + 2 * i, 3, "%02x", bytes[i]);
}

static size_t from_hex(const char *text, uint8_t *ret_bytes)
{
    size_t size = strlen(text) / 2;
    for (size_t i = 0; i < size; i++) {
        unsigned byte = 0;
        sscanf(text + 2 * i, "%2x", &byte);
        ret_bytes[i] = (uint8_t)byte;
    }
    return size;
}

/*
 * Start this test program again. Its environment names the part that it plays (see
 * play_part()), and has a handle of `board`, if there is one.
 */
static tn_process *start_part(tn_domain *domain, const char *part, tn_tensor *board)
{
    uint8_t handle[TN_HANDLE_MAX_BYTES];
    char self[4096], part_variable[64], board_variable[2 * TN_HANDLE_MAX_BYTES + 32];
    size_t used = 0;
    tn_process *process = NULL;
    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    TN_CHECK(len > 0);
    self[len] = '\0';
    snprintf(part_variable, sizeof part_variable, "PROGRAM_TEST_PART=%s", part);
    if (board != NULL)
        TN_CHECK_OK(tn_handle_export(board, NULL, handle, sizeof handle, &used));
    strcpy(board_variable, "PROGRAM_TEST_BOARD=");
    to_hex(handle, used, board_variable + strlen(board_variable));
    const char *const argv[] = {self, NULL};
    const char *const environment[] = {part_variable, board_variable, NULL};
    TN_CHECK_OK(tn_process_exec(domain, argv, environment, 0, &process));
    return process;
}

static tn_tensor *make_board(tn_domain *domain)
{
    tn_tensor *board = NULL;
    TN_CHECK_OK(tn_tensor_create(domain, TN_INT32, 1, (int64_t[]){4},
                                 TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED),
                                 &board));
    return board;
}

static int32_t *open_board(tn_domain **ret_domain, tn_tensor **ret_board)
{
    uint8_t handle[TN_HANDLE_MAX_BYTES];
    const char *text = getenv("PROGRAM_TEST_BOARD");
    if (text == NULL || tn_domain_inherit(ret_domain) != 0 ||
        tn_handle_import(*ret_domain, handle, from_hex(text, handle), ret_board) != 0)
        tn_process_fail(tn_error_detail());
    return tn_tensor_data(*ret_board);
}

static int part_join(void)
{
    tn_domain *domain = NULL;
    tn_tensor *board = NULL;
    int32_t *word = open_board(&domain, &board);
    word[0] = getpid();
    word[1] = (int32_t)tnt_seat(domain);
    tn_tensor_unref(board);
    tn_domain_close(domain);
    return 5;
}

static int part_sleep(void)
{
    tn_domain *domain = NULL;
    tn_tensor *board = NULL;
    tn_event *event = NULL;
    open_board(&domain, &board)[0] = getpid();
    if (tn_event_open(domain, "ready", TN_OPEN_EXISTING, &event) != 0 ||
        tn_event_set(event) != 0)
        tn_process_fail(tn_error_detail());
    return pause_for_ever();
}

/* A grandchild that a shell starts has all the variables, though they name its parent. */
static int part_nest(void)
{
    tn_domain *domain = NULL;
    tn_tensor *board = NULL;
    open_board(&domain, &board);
    setenv("PROGRAM_TEST_PART", "fail", 1);
    pid_t pid = fork();
    if (pid == 0) {
        execl("/proc/self/exe", "grandchild", (char *)NULL);
        _exit(98);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    tn_tensor_unref(board);
    tn_domain_close(domain);
    return WIFEXITED(status) ? WEXITSTATUS(status) + 10 : 97;
}

/* Join when told to, and report the result. */
static int part_wait_to_join(void)
{
    const char *text = getenv("PROGRAM_TEST_PIPES");
    int gate = -1, answer = -1;
    char go;
    tn_domain *domain = NULL;
    if (text == NULL || sscanf(text, "%d,%d", &gate, &answer) != 2 || read(gate, &go, 1) != 1)
        return 96;
    int status = tn_domain_inherit(&domain);
    if (write(answer, &status, sizeof status) != sizeof status)
        return 95;
    return status != 0 ? 94 : pause_for_ever();
}

/* Runs before main(): a part is no test, and the harness must not run in it. */
__attribute__((constructor)) static void play_part(void)
{
    const char *part = getenv("PROGRAM_TEST_PART");
    if (part == NULL)
        return;
    if (strcmp(part, "join") == 0)
        _exit(part_join());
    if (strcmp(part, "sleep") == 0)
        _exit(part_sleep());
    if (strcmp(part, "nest") == 0)
        _exit(part_nest());
    if (strcmp(part, "fail") == 0)
        tn_process_fail("the program says so");
    if (strcmp(part, "wait to join") == 0)
        _exit(part_wait_to_join());
    _exit(99);
}

TN_TEST(a_program_joins_with_inherit_and_imports_a_handle)
{
    tn_domain *domain = open_domain(8);
    tn_tensor *board = make_board(domain);
    unsigned before = tnt_descriptor_count();
    tn_process *process = start_part(domain, "join", board);
    assert_int_equal(tnt_descriptor_count(), before + 2);
    tn_process_status status = await_end(process);
    assert_string_equal(status.message, "");
    assert_int_equal(status.exit_code, 5);
    const int32_t *word = tn_tensor_data(board);
    assert_int_equal(word[0], tn_process_pid(process));
    assert_int_not_equal(word[1], (int32_t)tnt_seat(domain));
    tn_process_close(process);
    assert_int_equal(tnt_descriptor_count(), before);
    tn_tensor_unref(board);
    TNT_AUDIT(domain);
    tn_domain_close(domain);
}

TN_TEST(a_programs_message_is_its_own_and_not_that_of_its_children)
{
    tn_domain *domain = open_domain(8);
    tn_process *process = start_part(domain, "fail", NULL);
    tn_process_status status = await_end(process);
    assert_int_equal(status.exit_code, 1);
    assert_string_equal(status.message, "the program says so");
    tn_process_close(process);
    tn_tensor *board = make_board(domain);
    process = start_part(domain, "nest", board);
    status = await_end(process);
    assert_string_equal(status.message, "");
    assert_int_equal(status.exit_code, 11);
    tn_process_close(process);
    tn_tensor_unref(board);
    tn_domain_close(domain);
}

TN_TEST(a_program_that_cannot_be_run_is_an_error_of_exec)
{
#if defined(__SANITIZE_THREAD__)
    tnt_skip(
        "the thread sanitizer turns vfork into fork, which does not tell of a failed exec");
#endif
    tn_domain *domain = open_domain(8);
    tn_process *process = NULL;
    unsigned before = tnt_descriptor_count();
    const char *const missing[] = {"/nonexistent/program", NULL};
    const char *const denied[] = {"/etc/passwd", NULL};
    assert_int_equal(tn_process_exec(domain, missing, NULL, 0, &process), TN_ERR_NOT_FOUND);
    assert_int_equal(tn_process_exec(domain, denied, NULL, 0, &process), TN_ERR_DENIED);
    assert_int_equal(tn_process_exec(domain, (const char *const[]){NULL}, NULL, 0, &process),
                     TN_ERR_INVALID);
    assert_null(process);
    assert_int_equal(tnt_descriptor_count(), before);
    tn_domain_close(domain);
}

struct program_family {
    tn_domain *domain;
    tn_tensor *board;
};

static void *start_program_in_thread(void *argument)
{
    struct program_family *family = argument;
    return start_part(family->domain, "sleep", family->board);
}

static int be_parent_of_program(void *argument)
{
    start_program_in_thread(argument);
    return pause_for_ever();
}

/*
 * @param argument  whether a thread starts the program, and lives on; the exec then set no
 * death signal
 */
static int be_parent_of_program_in_thread(void *argument)
{
    pthread_t thread;
    TN_CHECK(pthread_create(&thread, NULL, start_program_in_thread, argument) == 0);
    TN_CHECK(pthread_join(thread, NULL) == 0);
    return pause_for_ever();
}

static void program_ends_with(tnt_child_fn *parent_run)
{
    struct program_family family = {.domain = open_domain(8)};
    tn_event *event = NULL;
    family.board = make_board(family.domain);
    TN_CHECK_OK(tn_event_open(family.domain, "ready", TN_OPEN_NEW, &event));
    pid_t parent = tnt_fork(parent_run, &family);
    TN_CHECK_OK(tn_event_wait(event, tnt_deadline(10000)));
    int fd = (int)syscall(434, *(int32_t *)tn_tensor_data(family.board), 0); /* pidfd_open */
    assert_true(fd >= 0);
    assert_false(ends_within(fd, 0));
    tnt_kill(parent);
    assert_true(ends_within(fd, 10000));
    close(fd);
    TN_CHECK_OK(tn_domain_reap(family.domain, NULL));
    tn_object_close(event);
    tn_tensor_unref(family.board);
    TNT_AUDIT(family.domain);
    tn_domain_close(family.domain);
}

TN_TEST(a_program_ends_when_its_parent_is_killed) { program_ends_with(be_parent_of_program); }

TN_TEST(a_program_ends_with_its_process_not_with_its_thread)
{
    program_ends_with(be_parent_of_program_in_thread);
}

struct late_family {
    tn_domain *domain;
    int pid_pipe[2];
};

static void *start_late_program(void *argument)
{
    struct late_family *family = argument;
    int32_t pid = tn_process_pid(start_part(family->domain, "wait to join", NULL));
    TN_CHECK(write(family->pid_pipe[1], &pid, sizeof pid) == sizeof pid);
    return NULL;
}

static int be_parent_of_late_program(void *argument)
{
    pthread_t thread;
    TN_CHECK(pthread_create(&thread, NULL, start_late_program, argument) == 0);
    TN_CHECK(pthread_join(thread, NULL) == 0);
    return pause_for_ever();
}

/* No process has reclaimed the dead parent: its seat still says that it lives. */
TN_TEST(a_program_does_not_join_when_its_parent_was_killed)
{
    struct late_family family = {.domain = open_domain(8)};
    int gate[2], answer[2], status = 0;
    int32_t pid = 0;
    char pipes[32];
    assert_int_equal(pipe(gate), 0);
    assert_int_equal(pipe(answer), 0);
    assert_int_equal(pipe(family.pid_pipe), 0);
    snprintf(pipes, sizeof pipes, "%d,%d", gate[0], answer[1]);
    setenv("PROGRAM_TEST_PIPES", pipes, 1);
    pid_t parent = tnt_fork(be_parent_of_late_program, &family);
    unsetenv("PROGRAM_TEST_PIPES");
    assert_int_equal(read(family.pid_pipe[0], &pid, sizeof pid), sizeof pid);
    int fd = (int)syscall(434, pid, 0); /* pidfd_open */
    assert_true(fd >= 0);
    tnt_kill(parent);
    assert_int_equal(write(gate[1], "", 1), 1);
    assert_int_equal(read(answer[0], &status, sizeof status), sizeof status);
    kill(pid, SIGKILL); /* in case the program went on */
    assert_true(ends_within(fd, 10000));
    assert_int_equal(status, TN_ERR_PEER_DIED);
    int *const pairs[] = {gate, answer, family.pid_pipe};
    for (size_t i = 0; i < 3; i++) {
        close(pairs[i][0]);
        close(pairs[i][1]);
    }
    close(fd);
    TN_CHECK_OK(tn_domain_reap(family.domain, NULL));
    TNT_AUDIT(family.domain);
    tn_domain_close(family.domain);
}
