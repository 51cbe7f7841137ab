/* SPDX-License-Identifier: Apache-2.0 */
#include "sweep/tracer.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu/gpu.h"
#include "harness/inside.h"

#if defined(__x86_64__) && defined(__linux__)

enum { FOLLOWED = PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE };

/*
 * Breakpoints of the processor. A virtual machine may have none: then every stop is a single
 * step.
 */
static bool has_breakpoints = true;

/* The operation is over when its process gets to this function. */
__attribute__((noinline)) static void is_over(void) { __asm__ volatile(""); }

static void ask(enum __ptrace_request request, const struct traced *t, uintptr_t address,
                uintptr_t data)
{
    if (ptrace(request, t->pid, (void *)address, (void *)data) != 0)
        fail_msg("ptrace request %d: %s", (int)request, strerror(errno));
}

static void set_register(const struct traced *t, unsigned number, uint64_t value)
{
    ask(PTRACE_POKEUSER, t, offsetof(struct user, u_debugreg) + number * sizeof(long), value);
}

static void read_place(struct traced *t)
{
    errno = 0;
    t->place = (uint64_t)ptrace(PTRACE_PEEKUSER, t->pid,
                                (void *)offsetof(struct user_regs_struct, rip), NULL);
    if (errno != 0)
        fail_msg("ptrace(PTRACE_PEEKUSER): %s", strerror(errno));
}

static int wait_for(pid_t pid)
{
    int status = 0;
    while (waitpid(pid, &status, __WALL) != pid)
        if (errno != EINTR)
            fail_msg("waitpid(%d): %s", (int)pid, strerror(errno));
    return status;
}

/* @return whether it stopped for the tracer; signals for the process itself are passed on */
static bool resume(struct traced *t, enum __ptrace_request request)
{
    uintptr_t signal = 0;
    for (;;) {
        ask(request, t, 0, signal);
        int status = wait_for(t->pid);
        if (!WIFSTOPPED(status) || status >> 8 == (SIGTRAP | PTRACE_EVENT_EXEC << 8)) {
            t->has_ended = true;
            t->status = status;
            return false;
        }
        if (WSTOPSIG(status) == SIGTRAP) {
            read_place(t);
            return true;
        }
        signal = (uintptr_t)WSTOPSIG(status);
    }
}

bool tracer_step(struct traced *t) { return resume(t, PTRACE_SINGLESTEP); }

bool tracer_run_to(struct traced *t, uint64_t place)
{
    if (!has_breakpoints) {
        while (tracer_step(t))
            if (t->place == place)
                return true;
        return false;
    }
    set_register(t, 0, place);
    set_register(t, 7, 1);
    bool is_there = resume(t, PTRACE_CONT) && t->place == place;
    if (!t->has_ended)
        set_register(t, 7, 0);
    return is_there;
}

/* ---- start and end ----------------------------------------------------------------------- */

static void be_traced(struct crash_world *w, crash_step_fn *step)
{
    TN_CHECK(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0);
    raise(SIGSTOP);
    step(w);
    is_over();
    fflush(NULL);
    _exit(0);
}

/* Leave the member, and step the first process that it forks; the member goes on by itself. */
static void follow(struct traced *t)
{
    unsigned long child = 0;
    int status;
    ask(PTRACE_SETOPTIONS, t, 0, PTRACE_O_EXITKILL | FOLLOWED);
    do {
        ask(PTRACE_CONT, t, 0, 0);
        status = wait_for(t->pid);
        if (!WIFSTOPPED(status))
            fail_msg("the operation forks nobody");
    } while (status >> 16 == 0);
    ask(PTRACE_GETEVENTMSG, t, 0, (uintptr_t)&child);
    pid_t member = t->pid;
    t->pid = (pid_t)child;
    wait_for(t->pid);
    ask(PTRACE_SETOPTIONS, t, 0, PTRACE_O_EXITKILL | PTRACE_O_TRACEEXEC);
    t->pid = member;
    ask(PTRACE_DETACH, t, 0, 0);
    t->pid = (pid_t)child;
    read_place(t);
    /*
     * A child that runs within 10 ms of its birth learns its identity from its parent; later
     * it reads /proc. Each child is held for that long, so that all take the same path.
     */
    usleep(11000);
}

void tracer_start(struct traced *t, struct crash_world *w, crash_step_fn *step, bool in_child)
{
    int ends[2];
    *t = (struct traced){0};
    TN_CHECK(pipe(ends) == 0);
    fflush(NULL);
    t->pid = t->member = fork();
    TN_CHECK(t->pid >= 0);
    if (t->pid == 0) {
        close(ends[0]);
        be_traced(w, step);
    }
    close(ends[1]);
    t->end_fd = ends[0];
    int status = wait_for(t->pid);
    if (!WIFSTOPPED(status))
        fail_msg("who is to be stepped ended with status %#x", (unsigned)status);
    ask(PTRACE_SETOPTIONS, t, 0, PTRACE_O_EXITKILL | PTRACE_O_TRACEEXEC);
    if (in_child)
        follow(t);
    else if (!tracer_run_to(t, (uint64_t)(uintptr_t)step))
        fail_msg("the operation does not begin");
}

/* When all processes that it started have ended, the process itself has ended too. */
static void await_end(struct traced *t)
{
    char byte;
    ssize_t size;
    while ((size = read(t->end_fd, &byte, 1)) != 0)
        TN_CHECK(size > 0 || errno == EINTR);
    close(t->end_fd);
    if (t->pid != t->member || (t->has_ended && WIFSTOPPED(t->status))) {
        t->status = wait_for(t->member);
        t->has_ended = true;
    }
}

void tracer_kill(struct traced *t)
{
    bool is_other_program = t->has_ended && WIFSTOPPED(t->status);
    if (!t->has_ended || is_other_program) {
        kill(t->pid, SIGKILL);
        t->status = wait_for(t->pid);
        t->has_ended = true;
    }
    await_end(t);
}

void tracer_finish(struct traced *t)
{
    if (!t->has_ended || WIFSTOPPED(t->status)) {
        ask(PTRACE_DETACH, t, 0, 0);
        if (t->pid == t->member) {
            t->status = wait_for(t->pid);
            t->has_ended = true;
        }
    }
    await_end(t);
    if (t->status != 0)
        fail_msg("the process that was stepped ended with status %#x", (unsigned)t->status);
}

static void probe_breakpoints(struct traced *t)
{
    bool may = ptrace(PTRACE_POKEUSER, t->pid, (void *)offsetof(struct user, u_debugreg),
                      (void *)(uintptr_t)is_over) == 0;
    has_breakpoints = may && tracer_run_to(t, (uint64_t)(uintptr_t)is_over);
    if (!has_breakpoints)
        printf("no breakpoints here: every boundary is walked to\n");
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static const bool is_sanitized = true;
#else
static const bool is_sanitized = false;
#endif

const char *tracer_why_not(void)
{
    const char *preload = getenv("LD_PRELOAD");
    int status = 0;
    if (is_sanitized)
        return "with a sanitizer most instructions are the sanitizer's";
    if (preload != NULL && strstr(preload, "vgpreload") != NULL)
        return "valgrind runs other instructions than these";
    struct traced t = {.pid = fork()};
    TN_CHECK(t.pid >= 0);
    if (t.pid == 0) {
        bool may = ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0;
        if (may)
            raise(SIGSTOP);
        is_over();
        _exit(!may);
    }
    bool may = waitpid(t.pid, &status, 0) == t.pid && WIFSTOPPED(status);
    if (may) {
        probe_breakpoints(&t);
        kill(t.pid, SIGKILL);
        waitpid(t.pid, &status, 0);
    }
    return may ? NULL : "this system does not let a process trace its child";
}

bool tracer_has_breakpoints(void) { return has_breakpoints; }

void tracer_only_walk(void) { has_breakpoints = false; }

/* ---- traces ------------------------------------------------------------------------------ */

bool tracer_is_one(uint64_t place)
{
    return place == (uint64_t)(uintptr_t)crash_fill ||
           place == (uint64_t)(uintptr_t)crash_check_storages ||
           place == (uint64_t)(uintptr_t)crash_check_intents ||
           place == (uint64_t)(uintptr_t)crash_live_blocks ||
           place == (uint64_t)(uintptr_t)crash_load_driver || gpu_is_of_fake(place);
}

/* I2. At the first instruction of a function, its return address is on top of the stack. */
static bool step_over(struct traced *t)
{
    errno = 0;
    long stack =
        ptrace(PTRACE_PEEKUSER, t->pid, (void *)offsetof(struct user_regs_struct, rsp), NULL);
    long place = ptrace(PTRACE_PEEKDATA, t->pid, (void *)stack, NULL);
    TN_CHECK(errno == 0);
    return tracer_run_to(t, (uint64_t)place);
}

static bool step(struct traced *t)
{
    return tracer_is_one(t->place) ? step_over(t) : tracer_step(t);
}

void trace_record(struct trace *trace, struct traced *t, uint32_t most, unsigned may_block_ms)
{
    trace->count = 0;
    trace->is_whole = false;
    while (trace->count < most) {
        trace->place[trace->count++] = t->place;
        if (t->place == (uint64_t)(uintptr_t)is_over) {
            trace->is_whole = true;
            return;
        }
        uint64_t begun_ns = may_block_ms != 0 ? tnt_now_ns() : 0;
        if (!step(t)) {
            trace->is_whole = true;
            return;
        }
        if (may_block_ms != 0 && tnt_now_ns() - begun_ns > may_block_ms * UINT64_C(1000000))
            return;
    }
}

bool trace_is_end(const struct trace *trace, uint32_t k)
{
    return trace->place[k] == (uint64_t)(uintptr_t)is_over;
}

/* @return whether it is at boundary k, which is one after the last one */
static bool step_to(const struct trace *trace, struct traced *t, uint32_t k)
{
    return step(t) && t->place == trace->place[k];
}

bool trace_walk(const struct trace *trace, struct traced *t, uint32_t k)
{
    enum { PROVEN = 3 }; /* the last steps are single steps */
    uint32_t goal = k > PROVEN ? k - PROVEN : 0, hops = 0;
    if (t->place != trace->place[0])
        return false;
    for (uint32_t at = goal; at > 0; hops++)
        at = trace->from[at] < 0 ? at - 1 : (uint32_t)trace->from[at];
    uint32_t *way = malloc((hops + 1) * sizeof *way);
    TN_CHECK(way != NULL);
    uint32_t n = hops;
    for (uint32_t at = goal; at > 0;
         at = trace->from[at] < 0 ? at - 1 : (uint32_t)trace->from[at])
        way[--n] = at;
    bool is_there = true;
    for (n = 0; n < hops && is_there; n++)
        is_there = trace->from[way[n]] < 0 ? step_to(trace, t, way[n])
                                           : tracer_run_to(t, trace->place[way[n]]);
    free(way);
    for (uint32_t at = goal + 1; at <= k && is_there; at++)
        is_there = step_to(trace, t, at);
    return is_there;
}

#else
#error "not here: meson.build leaves tests/sweep out"
#endif
