/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tracer. The subject stops at its marks (int3) and, between them, before and after each
 * system call; where the plan says so, a call is replaced by none, and its result by an error.
 * Between a mark for the end and the next one for the begin it runs at full speed.
 *
 * Processes that the subject starts are traced too if the plan is about them: one count runs
 * through all, in the order in which their calls come, until each says that it runs the user's
 * function, or executes a program. x86-64 only.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/ptrace.h>

#include "faults.h"

enum { PROCESSES = 64, PATIENCE_S = 20, RUNS_NOW = 0x746e7275 };

struct traced {
    pid_t pid; /* 0: not used */
    bool is_child;
    bool is_let_go; /* at its next stop */
    int error;      /* of the call that it is in; 0: as the kernel says */
};

static struct traced processes[PROCESSES];
static struct faults_control *c;

/* ---- in the subject ---------------------------------------------------------------------- */

bool faults_is_deep(void)
{
    const char *deep = getenv("TN_FAULTS_DEEP");
    return deep != NULL && deep[0] == '1';
}

static void mark(int what)
{
    faults_control->mark = what;
    __asm__ volatile("int3" ::: "memory");
}

void faults_begin_calls(void)
{
    mark(FAULTS_MARK_BEGIN);
    faults_control->is_armed = true;
}

void faults_end_calls(void)
{
    faults_control->is_armed = false;
    mark(FAULTS_MARK_END);
}

void faults_child_runs(void)
{
    if (!faults_control->is_armed || getpid() == faults_control->subject)
        return;
    /* Not int3, as the byte may have been restored meanwhile. The kernel ignores it. */
    if (faults_control->plan.kind == FAULTS_CHILD_CALLS)
        prctl(RUNS_NOW, 0, 0, 0, 0);
    if (faults_control->plan.kind == FAULTS_CHILD_ALLOCATIONS)
        faults_control->is_armed = false;
}

/* ---- one system call --------------------------------------------------------------------- */

static void stop_tests(const char *why, long call)
{
    printf("%s: %s\n", why, faults_call_name(call));
    fflush(stdout);
    kill(c->subject, SIGKILL);
}

/* munmap and unlink that were not done: the subject does them after the call. */
static void note_undone(pid_t pid, long call, const uint64_t a[6])
{
    if (call == SYS_munmap && c->unmap_count < FAULTS_UNDONE) {
        c->unmaps[c->unmap_count].address = a[0];
        c->unmaps[c->unmap_count++].bytes = a[1];
    }
    if (call == SYS_unlink && c->unlink_count < FAULTS_UNDONE) {
        char *path = c->unlinks[c->unlink_count++];
        for (size_t i = 0; i + sizeof(long) < FAULTS_PATH_BYTES; i += sizeof(long)) {
            long word = ptrace(PTRACE_PEEKDATA, pid, (void *)(a[0] + i), NULL);
            memcpy(path + i, &word, sizeof word);
        }
        path[FAULTS_PATH_BYTES - 1] = '\0';
    }
}

/* @return the error that this call is to give, number 0: none */
static struct faults_error choose(pid_t pid, long call, const uint64_t arguments[6])
{
    const struct faults_error none = {0};
    struct faults_error errors[FAULTS_ERRORS] = {{0}};
    int count = faults_errors(pid, call, arguments, errors);
    if (count < 0)
        stop_tests("no errors are known of", call);
    if (count <= 0 || call == c->spared_call)
        return none;
    c->count++;
    if (c->was_injected && c->lasts)
        for (int i = 0; i < count; i++)
            if (errors[i].number == c->error && errors[i].lasts)
                return errors[i];
    if (c->count != c->plan.n)
        return none;
    c->variants = faults_is_deep() || count < 2 ? (uint32_t)count : 2;
    if (c->plan.variant >= c->variants)
        return none;
    struct faults_error error = errors[c->plan.variant];
    c->was_injected = true;
    c->call = (int)call;
    c->error = error.number;
    c->lasts = error.lasts;
    return error;
}

/*
 * A program begins where it names itself, after what the loader did, and is idle where it waits
 * with its socket listening. @return whether this call counts
 */
static bool follow_program(long call, const uint64_t arguments[6])
{
    if (call == SYS_prctl && arguments[0] == PR_SET_NAME)
        c->mark = FAULTS_MARK_BEGIN;
    if (call == SYS_listen)
        c->is_listening = true;
    if (call == SYS_ppoll && c->is_listening && !c->is_idle) {
        c->mark = FAULTS_MARK_END;
        c->is_idle = true;
    }
    return c->mark == FAULTS_MARK_BEGIN;
}

static void at_syscall(struct traced *t)
{
    struct ptrace_syscall_info info;
    struct user_regs_struct registers;
    if (ptrace(PTRACE_GET_SYSCALL_INFO, t->pid, (void *)sizeof info, &info) <= 0)
        return;
    if (info.op == PTRACE_SYSCALL_INFO_ENTRY) {
        uint64_t arguments[6];
        for (int i = 0; i < 6; i++)
            arguments[i] = info.entry.args[i];
        if (t->is_child && info.entry.nr == SYS_prctl && arguments[0] == RUNS_NOW) {
            t->is_let_go = true;
            return;
        }
        if (c->is_program && !follow_program((long)info.entry.nr, arguments))
            return;
        struct faults_error error = choose(t->pid, (long)info.entry.nr, arguments);
        t->error = error.number;
        if (error.number == 0 || error.is_done)
            return;
        note_undone(t->pid, (long)info.entry.nr, arguments);
        ptrace(PTRACE_GETREGS, t->pid, NULL, &registers);
        registers.orig_rax = (unsigned long long)-1;
        ptrace(PTRACE_SETREGS, t->pid, NULL, &registers);
    } else if (info.op == PTRACE_SYSCALL_INFO_EXIT && t->error != 0) {
        ptrace(PTRACE_GETREGS, t->pid, NULL, &registers);
        registers.rax = (unsigned long long)-t->error;
        t->error = 0;
        ptrace(PTRACE_SETREGS, t->pid, NULL, &registers);
    }
}

/* ---- stops ------------------------------------------------------------------------------- */

static struct traced *find(pid_t pid)
{
    for (int i = 0; i < PROCESSES; i++)
        if (processes[i].pid == pid)
            return &processes[i];
    for (int i = 0; i < PROCESSES; i++)
        if (processes[i].pid == 0) {
            processes[i] = (struct traced){.pid = pid, .is_child = pid != c->subject};
            return &processes[i];
        }
    stop_tests("too many processes", 0);
    return &processes[0];
}

static const long options = PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD;
static const long follow =
    PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC;

static void let_children_go(void)
{
    for (int i = 0; i < PROCESSES; i++)
        if (processes[i].pid != 0 && processes[i].is_child && !processes[i].is_let_go) {
            processes[i].is_let_go = true;
            ptrace(PTRACE_INTERRUPT, processes[i].pid, NULL, NULL);
        }
}

static bool is_traced_here(const struct traced *t)
{
    if (t->is_child)
        return c->plan.kind == FAULTS_CHILD_CALLS;
    if (c->is_program && !c->is_idle)
        return true;
    /* Once it has failed, nothing has to be counted any more. */
    return c->mark == FAULTS_MARK_BEGIN && c->plan.kind == FAULTS_CALLS &&
           (!c->was_injected || c->lasts || t->error != 0);
}

static void at_mark(struct traced *t)
{
    bool follows = c->mark == FAULTS_MARK_BEGIN && c->plan.kind == FAULTS_CHILD_CALLS;
    ptrace(PTRACE_SETOPTIONS, t->pid, NULL, (void *)(options | (follows ? follow : 0)));
    if (c->mark == FAULTS_MARK_END)
        let_children_go();
}

static void at_stop(struct traced *t, int status)
{
    int signal = WSTOPSIG(status), event = status >> 16;
    int delivered = 0;
    if (signal == (SIGTRAP | 0x80)) {
        at_syscall(t);
    } else if (event == PTRACE_EVENT_EXEC) {
        t->is_let_go = t->is_child;
    } else if (event == PTRACE_EVENT_FORK || event == PTRACE_EVENT_VFORK ||
               event == PTRACE_EVENT_CLONE) {
        unsigned long child = 0;
        ptrace(PTRACE_GETEVENTMSG, t->pid, NULL, &child);
        find((pid_t)child);
    } else if (event == 0) {
        if (signal == SIGTRAP && !t->is_child && !c->is_program)
            at_mark(t);
        else
            delivered = signal;
    }
    /* PTRACE_EVENT_STOP is a new process, or one that we interrupted. */
    if (event == PTRACE_EVENT_STOP && c->wanted != 0)
        c->mark = atomic_exchange(&c->wanted, 0);
    void *data = (void *)(intptr_t)delivered;
    if (t->is_let_go) {
        if (ptrace(PTRACE_DETACH, t->pid, NULL, data) == 0)
            t->pid = 0;
    } else {
        ptrace(is_traced_here(t) ? PTRACE_SYSCALL : PTRACE_CONT, t->pid, NULL, data);
    }
}

static volatile sig_atomic_t is_late;
static void on_alarm(int number)
{
    (void)number;
    is_late = 1;
}

static void on_poke(int number) { (void)number; }

static void set_alarm(int seconds)
{
    const struct itimerval timer = {.it_value.tv_sec = seconds};
    setitimer(ITIMER_REAL, &timer, NULL);
}

static void report_hang(void)
{
    if (c->is_program)
        return; /* it waits for requests */
    printf("the call does not end: kind %u, call %u, error %u; %s %s gave errno %d\n",
           c->plan.kind, c->plan.n, c->plan.variant, faults_call_name(c->call), c->name,
           c->error);
    fflush(stdout);
    for (int i = 0; i < PROCESSES; i++)
        if (processes[i].pid != 0)
            kill(processes[i].pid, SIGKILL);
}

int faults_trace(pid_t subject, int release_fd)
{
    struct sigaction action = {.sa_handler = on_alarm};
    int status = 0;
    c = faults_control;
    c->subject = subject;
    c->mark = 0;
    c->is_idle = false;
    c->is_listening = false;
    c->has_ended = false;
    memset(processes, 0, sizeof processes);
    sigaction(SIGALRM, &action, NULL);
    sigaction(SIGUSR1, &(struct sigaction){.sa_handler = on_poke}, NULL);
    long execs = c->is_program ? PTRACE_O_TRACEEXEC : 0;
    if (ptrace(PTRACE_SEIZE, subject, NULL, (void *)(options | execs)) != 0)
        fail_msg("ptrace: %s", strerror(errno));
    if (write(release_fd, "", 1) != 1)
        fail_msg("write: %s", strerror(errno));
    for (;;) {
        set_alarm(PATIENCE_S);
        pid_t pid = waitpid(-1, &status, __WALL);
        if (pid < 0 && is_late) {
            is_late = 0;
            report_hang();
        }
        if (pid < 0 && c->wanted != 0)
            ptrace(PTRACE_INTERRUPT, subject, NULL, NULL);
        if (pid < 0)
            continue;
        if (WIFSTOPPED(status)) {
            at_stop(find(pid), status);
            continue;
        }
        find(pid)->pid = 0;
        if (pid == subject)
            break;
    }
    set_alarm(0);
    c->has_ended = true;
    return status;
}
