/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests: what happens if a filter refuses a system call. For each call, the table in
 * docs/system-calls.md says which steps fail. If the call is refused, just these steps must
 * fail, at once and with an error that names the call, and the others must work.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "harness/harness.h"
#include "harness/tensor.h"
#include "process/process.h"

#define CALL(name)                                                                             \
    {                                                                                          \
#name, SYS_##name                                                                      \
    }
static const struct call {
    const char *name;
    int number;
} calls[] = {
    CALL(accept4),
    CALL(bind),
    CALL(chdir),
    CALL(clock_nanosleep),
    CALL(clone),
    CALL(clone3),
    CALL(close_range),
    CALL(connect),
    CALL(epoll_create1),
    CALL(epoll_ctl),
    CALL(execve),
    CALL(fallocate),
    CALL(fchmod),
    CALL(fcntl),
    CALL(flock),
    CALL(fstatfs),
    CALL(ftruncate),
    CALL(futex),
    CALL(getdents64),
    CALL(getppid),
    CALL(getrandom),
    CALL(inotify_add_watch),
    CALL(inotify_init1),
    CALL(kill),
    CALL(listen),
    CALL(madvise),
    CALL(memfd_create),
    CALL(pidfd_open),
    CALL(pidfd_send_signal),
    CALL(pipe2),
    CALL(ppoll),
    CALL(prctl),
    CALL(prlimit64),
    CALL(pwrite64),
    CALL(readlinkat),
    CALL(recvmsg),
    CALL(rt_sigaction),
    CALL(rt_sigprocmask),
    CALL(sched_getaffinity),
    CALL(sched_yield),
    CALL(sendmsg),
    CALL(sendto),
    CALL(setsid),
    CALL(setsockopt),
    CALL(socket),
    CALL(statfs),
    CALL(sysinfo),
    CALL(tgkill),
    CALL(timerfd_create),
    CALL(timerfd_settime),
    CALL(unlink),
    CALL(vfork),
    CALL(waitid),
};

/* ---- the steps --------------------------------------------------------------------------- */

enum { WAIT_MS = 20, LONG_MS = 30000, BYTES = 100 };

struct scene {
    tn_domain *domain;
    tn_queue *queue;
    char *why_no_seat; /* [256], shared with children: the error of a child that got no seat */
};

static tn_dtype bytes_type(void) { return TN_UINT8; }

static int create(struct scene *s)
{
    tn_domain_options options = {.struct_size = sizeof options,
                                 .quota_bytes = 16 << 20,
                                 .blocks = 1024,
                                 .seats = 16,
                                 .flags = TN_DOMAIN_NO_MANAGER};
    int status = tn_domain_open(NULL, &options, 0, &s->domain);
    return status != 0 ? status : tn_queue_open(s->domain, NULL, NULL, 0, &s->queue);
}

static int pass_tensor(struct scene *s)
{
    tn_tensor *t = NULL;
    int status = tn_tensor_create(s->domain, bytes_type(), 1, (int64_t[]){BYTES},
                                  TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED), &t);
    if (status == 0)
        status = tn_queue_push_tensor(s->queue, t, 0, TN_NOW);
    tn_tensor_unref(t);
    t = NULL;
    if (status == 0)
        status = tn_queue_pop_tensor(s->queue, TN_NOW, &t);
    tn_tensor_unref(t);
    return status;
}

static int wait_in_vain(struct scene *s)
{
    tn_message m;
    tn_deadline deadline = tnt_deadline(WAIT_MS);
    int status = tn_queue_pop(s->queue, deadline, &m);
    if (status == TN_ERR_TIMED_OUT)
        return tnt_until_ns(0) >= deadline.ns ? 0 : tni_fail(TN_ERR_SYSTEM, "too early");
    return status;
}

static int poll_bell(struct scene *s)
{
    struct pollfd bell = {.events = POLLIN};
    tn_message m;
    int status = tn_object_watch(s->queue, true);
    if (status == 0)
        status = tn_domain_poll_fd(s->domain, &bell.fd);
    if (status == 0)
        status =
            tn_queue_push(s->queue, &(tn_message){.bytes = "x", .size_bytes = 1}, 0, TN_NOW);
    if (status != 0)
        return status;
    int ready = (int)syscall(SYS_poll, &bell, 1, LONG_MS);
    tn_domain_poll_clear(s->domain);
    status = tn_queue_pop(s->queue, TN_NOW, &m);
    if (status == 0)
        tn_message_fini(&m);
    return status != 0 ? status : ready == 1 ? 0 : tni_fail(TN_ERR_SYSTEM, "no bell rang");
}

static int make_outside(struct scene *s, uint32_t strategy)
{
    const tn_tensor_options options = {.struct_size = sizeof options, .strategy = strategy};
    tn_tensor *t = NULL;
    int status = tn_tensor_create(s->domain, bytes_type(), 1, (int64_t[]){BYTES}, &options, &t);
    if (status == 0)
        *(char *)tn_tensor_data(t) = 1;
    tn_tensor_unref(t);
    return status;
}

static int make_file_descriptor(struct scene *s)
{
    return make_outside(s, TN_STRATEGY_FILE_DESCRIPTOR);
}
static int make_file(struct scene *s) { return make_outside(s, TN_STRATEGY_FILE_SYSTEM); }

/*
 * A member that is killed, and whose parent does not collect it, is reclaimed. It dies
 * without a call.
 */
static int notice_death(struct scene *s)
{
    uint32_t reclaimed = 0;
    pid_t pid = fork();
    if (pid < 0)
        return tni_fail(TN_ERR_SYSTEM, "the test's own fork: clone");
    if (pid == 0) {
        if (tnt_seat(s->domain) == TNI_NO_SEAT && tn_domain_reap(s->domain, NULL) != 0)
            snprintf(s->why_no_seat, 256, "%s", tn_error_detail());
        __builtin_trap();
    }
    tn_deadline deadline = tnt_deadline(LONG_MS);
    int status = 0;
    while (status == 0 && reclaimed == 0 && s->why_no_seat[0] == 0 &&
           tnt_until_ns(0) < deadline.ns)
        status = tn_domain_reap(s->domain, &reclaimed);
    syscall(SYS_wait4, pid, NULL, 0, NULL);
    if (status != 0 || reclaimed == 1)
        return status;
    return tni_fail(TN_ERR_SYSTEM, "the death was not noticed; %s", s->why_no_seat);
}

static int seven(tn_domain *domain, void *argument)
{
    (void)domain;
    (void)argument;
    return 7;
}

static int check_end(tn_process *process, int status, int code)
{
    tn_process_status end = {.struct_size = sizeof end};
    if (status == 0)
        status = tn_process_wait(process, tnt_deadline(LONG_MS), &end);
    if (status == 0 && end.exit_code != code)
        status = tni_fail(TN_ERR_SYSTEM, "it exited with %d: %s", end.exit_code, end.message);
    tn_process_close(process);
    return status;
}

static int start_child(struct scene *s)
{
    tn_process *process = NULL;
    int status = tn_process_fork(s->domain, seven, NULL, 0, &process);
    return check_end(process, status, 7);
}

static int start_program(struct scene *s)
{
    const char *const argv[] = {"/bin/sh", "-c", "exit 7", NULL};
    tn_process *process = NULL;
    int status = tn_process_exec(s->domain, argv, NULL, 0, &process);
    return check_end(process, status, 7);
}

static int leave(struct scene *s)
{
    s->queue = tn_object_close(s->queue);
    s->domain = tn_domain_close(s->domain);
    return 0;
}

static int use_tenond(struct scene *s)
{
    int status = tn_domain_open(NULL, NULL, 0, &s->domain);
    if (status == 0)
        status = make_file_descriptor(s);
    tn_domain_close(s->domain);
    return status;
}

static const struct step {
    const char *name;
    int (*run)(struct scene *);
} steps[] = {
    {"create", create},
    {"tensor", pass_tensor},
    {"wait", wait_in_vain},
    {"poll", poll_bell},
    {"file_descriptor", make_file_descriptor},
    {"file_system", make_file},
    {"death", notice_death},
    {"fork", start_child},
    {"exec", start_program},
    {"leave", leave},
    {"tenond", use_tenond},
};
enum { STEPS = TNI_COUNT(steps) };

/* ---- in a process of its own --------------------------------------------------------------
 */

struct outcome {
    bool is_refused;
    char why_no_seat[256];
    int status[STEPS];
    char detail[STEPS][256];
};

struct trial {
    const struct call *call;
    int error;
    bool is_again;
    struct outcome *outcome;
};

static int run_steps(void *argument)
{
    const struct trial *trial = argument;
    struct outcome *o = trial->outcome;
    struct scene scene = {.why_no_seat = o->why_no_seat};
    char folder[128]; /* the folder of a tenond that alone has this filter */
    snprintf(folder, sizeof folder, "%s/%s-%d%s", tnt_folder(), trial->call->name, trial->error,
             trial->is_again ? "-again" : "");
    TN_CHECK(mkdir(folder, 0700) == 0);
    setenv("TENON_RUNTIME_DIR", folder, 1);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0});
    o->is_refused = tnt_refuse(trial->call->number, trial->error);
    for (uint32_t i = 0; i < STEPS && o->is_refused; i++) {
        o->status[i] = steps[i].run(&scene);
        if (o->status[i] != 0)
            snprintf(o->detail[i], sizeof o->detail[i], "%s", tn_error_detail());
        if (i == 0 && o->status[i] != 0)
            break;
    }
    syscall(SYS_exit_group, 0);
    return 0;
}

/* ---- the table --------------------------------------------------------------------------- */

struct row {
    char call[40];
    char fails[160]; /* ", create, poll, " */
};
static struct row rows[TNI_COUNT(calls) + 16];
static uint32_t row_count;

static void copy_cell(const char **at, char *cell, size_t size_bytes)
{
    const char *end = strchr(*at, '|');
    TN_CHECK(end != NULL && (size_t)(end - *at) < size_bytes);
    snprintf(cell, size_bytes, "%.*s", (int)(end - *at), *at);
    *at = end + 1;
}

/* "| `call` | step, step | what happens |" */
static void read_table(void)
{
    char line[1024], cell[160];
    FILE *file = fopen(TNT_SOURCE "/../docs/system-calls.md", "re");
    TN_CHECK(file != NULL);
    while (fgets(line, sizeof line, file) != NULL) {
        const char *at = line + 3;
        if (strncmp(line, "| `", 3) != 0)
            continue;
        struct row *row = &rows[row_count++];
        TN_CHECK(row_count <= TNI_COUNT(rows));
        copy_cell(&at, cell, sizeof cell);
        TN_CHECK(sscanf(cell, "%39[a-z0-9_]`", row->call) == 1);
        copy_cell(&at, cell, sizeof cell);
        snprintf(row->fails, sizeof row->fails, ",%.150s", cell);
    }
    fclose(file);
}

static bool may_fail(const struct row *row, const char *step)
{
    for (const char *at = strstr(row->fails, step); at != NULL; at = strstr(at + 1, step)) {
        char after = at[strlen(step)];
        if ((at[-1] == ' ' || at[-1] == ',') && (after == ',' || after == ' '))
            return true;
    }
    return false;
}

static const struct call *find_call(const char *name)
{
    for (uint32_t i = 0; i < TNI_COUNT(calls); i++)
        if (strcmp(calls[i].name, name) == 0)
            return &calls[i];
    fail_msg("the table names %s, which the test does not know", name);
    return NULL;
}

/* @return how many steps did something else than the row says */
static int compare(const struct row *row, const struct trial *trial)
{
    const struct outcome *o = trial->outcome;
    int wrong = 0;
    for (uint32_t i = 0; i < STEPS; i++) {
        bool has_failed = o->status[i] != 0;
        if (has_failed != may_fail(row, steps[i].name)) {
            printf("# %s as %s: %s %s: %s\n", row->call, strerrorname_np(trial->error),
                   steps[i].name, has_failed ? "failed" : "did not fail", o->detail[i]);
            wrong++;
        } else if (has_failed && strstr(o->detail[i], row->call) == NULL &&
                   strstr(o->detail[i], "does not answer") ==
                       NULL) { /* the filter also applies to tenond */
            printf("# %s as %s: %s: not named in: %s\n", row->call,
                   strerrorname_np(trial->error), steps[i].name, o->detail[i]);
            wrong++;
        }
        if (i == 0 && has_failed)
            break;
    }
    return wrong;
}

static struct outcome *map_outcomes(uint32_t count)
{
    struct outcome *outcomes = mmap(NULL, count * sizeof *outcomes, PROT_READ | PROT_WRITE,
                                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    TN_CHECK(outcomes != MAP_FAILED);
    return outcomes;
}

/* @return whether it ended as it should */
static bool await_trial(const struct trial *trial, pid_t pid)
{
    int status = tnt_wait(pid);
    if (status != 0)
        printf("# %s as %s: ended with %x\n", trial->call->name, strerrorname_np(trial->error),
               (unsigned)status);
    return status == 0;
}

/*
 * On a busy machine, a tenond may not answer in time because of the others that are tried with
 * it: a row that is not as the table says is tried once more, alone.
 */
static bool is_as_said(const struct row *row, struct trial *trial, bool has_ended)
{
    if (has_ended && compare(row, trial) == 0)
        return true;
    printf("# %s as %s is tried again, alone\n", row->call, strerrorname_np(trial->error));
    *trial->outcome = (struct outcome){0};
    trial->is_again = true;
    return await_trial(trial, tnt_fork(run_steps, trial)) && compare(row, trial) == 0;
}

/*
 * Several rows at a time, because a step that waits for a tenond that cannot answer takes
 * seconds.
 */
static void try_rows(int error)
{
    enum { AT_A_TIME = 12 };
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    tnt_skip("a sanitizer makes system calls of its own");
#endif
    struct outcome *outcomes = map_outcomes(TNI_COUNT(rows));
    struct trial trials[TNI_COUNT(rows)];
    pid_t pids[TNI_COUNT(rows)];
    bool has_ended[TNI_COUNT(rows)];
    int wrong = 0;
    read_table();
    for (uint32_t from = 0; from < row_count; from += AT_A_TIME) {
        uint32_t to = TNI_MIN(from + AT_A_TIME, row_count);
        for (uint32_t i = from; i < to; i++) {
            trials[i] = (struct trial){
                .call = find_call(rows[i].call), .error = error, .outcome = &outcomes[i]};
            pids[i] = tnt_fork(run_steps, &trials[i]);
        }
        for (uint32_t i = from; i < to; i++)
            has_ended[i] = await_trial(&trials[i], pids[i]);
    }
    if (!outcomes[0].is_refused)
        tnt_skip("this process may not install a filter of system calls");
    for (uint32_t i = 0; i < row_count; i++)
        wrong += !is_as_said(&rows[i], &trials[i], has_ended[i]);
    munmap(outcomes, TNI_COUNT(rows) * sizeof *outcomes);
    assert_int_equal(wrong, 0);
    assert_int_equal(row_count, TNI_COUNT(calls));
}

TN_TEST_WITHIN(a_call_that_is_refused_with_eperm_does_as_the_table_says, 300)
{
    try_rows(EPERM);
}

TN_TEST_WITHIN(a_call_that_is_refused_with_enosys_does_as_the_table_says, 300)
{
    try_rows(ENOSYS);
}

/* Only /proc is left to tell: the member is a zombie, as its parent has not collected it. */
static int die_unwitnessed(void *argument)
{
    struct trial *trial = argument;
    setenv("TENON_FORCE_FALLBACK", "witness", 1);
    return run_steps(trial);
}

TN_TEST(a_death_is_noticed_with_neither_pidfd_open_nor_a_witness)
{
    struct outcome *outcome = map_outcomes(1);
    struct trial trial = {.call = find_call("pidfd_open"), .error = ENOSYS, .outcome = outcome};
    tnt_wait_ok(tnt_fork(die_unwitnessed, &trial));
    if (!outcome->is_refused)
        tnt_skip("this process may not install a filter of system calls");
    for (uint32_t i = 0; i < STEPS; i++)
        if (outcome->status[i] != 0 &&
            !may_fail(&(struct row){.fails = ", fork, exec, "}, steps[i].name))
            fail_msg("%s: %s", steps[i].name, outcome->detail[i]);
    munmap(outcome, sizeof *outcome);
}

struct followed {
    tn_domain *domain;
    pid_t leader;
    struct tnt_signal ready, go;
    bool *is_refused;
};

static int sit(void *argument)
{
    (void)argument;
    while (pause() == -1) {
    }
    return 0;
}

static int follow(void *argument)
{
    struct followed *of = argument;
    TN_CHECK_OK(tn_process_follow(of->domain, of->leader));
    tnt_signal(&of->ready);
    return sit(NULL);
}

static int reap_when_told(void *argument)
{
    struct followed *of = argument;
    *of->is_refused = tnt_refuse(SYS_pidfd_open, ENOSYS);
    tnt_signal(&of->ready);
    tnt_await(&of->go);
    TN_CHECK_OK(tn_domain_reap(of->domain, NULL));
    return 0;
}

TN_TEST(a_follower_of_a_dead_member_is_killed_without_pidfd_open)
{
    struct outcome *outcome = map_outcomes(1);
    const tn_domain_options options = {
        .struct_size = sizeof options, .seats = 8, .flags = TN_DOMAIN_NO_MANAGER};
    struct followed of = {.domain = tnt_domain(&options),
                          .ready = tnt_signal_open(),
                          .go = tnt_signal_open(),
                          .is_refused = &outcome->is_refused};
    of.leader = tnt_fork(sit, NULL);
    pid_t follower = tnt_fork(follow, &of);
    tnt_await(&of.ready);
    pid_t reaper = tnt_fork(reap_when_told, &of);
    tnt_await(&of.ready);
    if (!outcome->is_refused)
        tnt_skip("this process may not install a filter of system calls");
    tnt_kill(of.leader);
    tnt_signal(&of.go);
    tnt_wait_ok(reaper);
    assert_int_equal(tnt_wait(follower), SIGKILL);
    TN_CHECK_OK(tn_domain_reap(of.domain, NULL));
    TNT_AUDIT(of.domain);
    tn_domain_close(of.domain);
    tnt_signal_close(&of.ready);
    tnt_signal_close(&of.go);
    munmap(outcome, sizeof *outcome);
}
