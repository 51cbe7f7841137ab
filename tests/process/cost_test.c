/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests: the counted cost of a tensor with each strategy is what docs/guide/costs.md says.
 *
 * A child makes, pushes, pops or releases 100 tensors of 4 KiB between two stops. Its parent
 * counts the system calls with ptrace(); the child counts its own descriptors, mappings and
 * page faults. The table in the guide is the limit: a count may be at most half a unit above
 * it.
 */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/harness.h"
#include "os/os.h"

enum { TENSORS = 100, ELEMENTS = 1024, STRATEGIES = 3 };
enum { EMPTY, MAKE, PUSH, POP, RELEASE, STEPS };
static const char *const step_names[STEPS] = {"", "make", "push", "pop", "release"};

/*
 * A process keeps one socket for ringing bells. It is made here, before a test counts
 * descriptors.
 */
__attribute__((constructor)) static void ring_once(void) { tni_os_bell_ring(1); }

struct cost {
    double calls, faults, descriptors, mappings; /* for one tensor */
};

/* The counts of one step, which a traced child writes into memory that its parent shares. */
struct count {
    long faults, descriptors, mappings;
};

struct job {
    tn_domain *domain;
    tn_queue *queue;
    uint32_t strategy;
    struct count *counts; /* [STEPS] */
    bool is_maker;
};

/* ---- in the child ------------------------------------------------------------------------ */

static long count_mappings(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    long lines = 0;
    for (int c; maps != NULL && (c = getc(maps)) != EOF;)
        lines += c == '\n';
    if (maps != NULL)
        fclose(maps);
    return lines;
}

static struct count look(void)
{
    struct rusage usage;
    struct count count = {.descriptors = (long)tnt_descriptor_count(),
                          .mappings = count_mappings()};
    getrusage(RUSAGE_SELF, &usage);
    count.faults = usage.ru_minflt;
    return count;
}

static long faults_now(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
}

typedef void step_fn(struct job *job, tn_tensor **tensors);

static void do_nothing(struct job *job, tn_tensor **tensors)
{
    (void)job;
    (void)tensors;
}

static void make(struct job *job, tn_tensor **tensors)
{
    tn_tensor_options options = {.struct_size = sizeof options, .strategy = job->strategy};
    for (int i = 0; i < TENSORS; i++) {
        TN_CHECK_OK(tn_tensor_create(job->domain, TN_FLOAT32, 1, (int64_t[]){ELEMENTS},
                                     &options, &tensors[i]));
        memset(tn_tensor_data(tensors[i]), i, ELEMENTS * sizeof(float));
    }
}

static void push(struct job *job, tn_tensor **tensors)
{
    for (int i = 0; i < TENSORS; i++)
        TN_CHECK_OK(tn_queue_push_tensor(job->queue, tensors[i], 0, TN_NOW));
}

static void pop(struct job *job, tn_tensor **tensors)
{
    for (int i = 0; i < TENSORS; i++) {
        TN_CHECK_OK(tn_queue_pop_tensor(job->queue, TN_NOW, &tensors[i]));
        const unsigned char *bytes = tn_tensor_data(tensors[i]);
        TN_CHECK(bytes[0] == i && bytes[4095] == i);
    }
}

static void release(struct job *job, tn_tensor **tensors)
{
    (void)job;
    for (int i = 0; i < TENSORS; i++)
        tensors[i] = tn_tensor_unref(tensors[i]);
}

static void do_step(struct job *job, tn_tensor **tensors, int step, step_fn *run)
{
    struct count before = look();
    before.faults = faults_now();
    raise(SIGSTOP);
    run(job, tensors);
    raise(SIGSTOP);
    long faults = faults_now();
    struct count after = look();
    job->counts[step] = (struct count){.faults = faults - before.faults,
                                       .descriptors = after.descriptors - before.descriptors,
                                       .mappings = after.mappings - before.mappings};
}

/* A program pays for the first round of each step once; the second round is counted. */
static void warm_up(struct job *job, tn_tensor **tensors)
{
    if (job->is_maker) {
        make(job, tensors);
        push(job, tensors);
        tn_tensor *popped[TENSORS];
        pop(job, popped);
        release(job, popped);
        release(job, tensors);
    }
}

static int traced(void *argument)
{
    struct job *job = argument;
    tn_tensor *tensors[TENSORS];
    warm_up(job, tensors);
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
        return 77;
    do_step(job, tensors, EMPTY, do_nothing);
    if (job->is_maker) {
        do_step(job, tensors, MAKE, make);
        do_step(job, tensors, PUSH, push);
        release(job, tensors);
    } else {
        do_step(job, tensors, POP, pop);
        do_step(job, tensors, RELEASE, release);
    }
    return 0;
}

/* ---- in the parent ----------------------------------------------------------------------- */

/* Count the system calls between the stops, of which each of `steps` steps makes two. */
static void trace(pid_t pid, long *ret_calls, int steps)
{
    int status, stops = 0;
    bool is_entry = true;
    long calls = 0;
    while (waitpid(pid, &status, 0) == pid && WIFSTOPPED(status)) {
        int signal = WSTOPSIG(status);
        if (signal == SIGSTOP) {
            if (stops % 2 == 1 && stops / 2 < steps)
                ret_calls[stops / 2] = calls;
            stops++;
            calls = 0;
            is_entry = true;
            ptrace(PTRACE_SETOPTIONS, pid, NULL, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
            signal = 0;
        } else if (signal == (SIGTRAP | 0x80)) {
            calls += is_entry;
            is_entry = !is_entry;
            signal = 0;
        }
        ptrace(stops % 2 == 1 ? PTRACE_SYSCALL : PTRACE_CONT, pid, NULL, (void *)(long)signal);
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        tnt_skip("this process may not trace its children");
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void run_job(struct job *job, long *ret_calls, int steps)
{
    pid_t pid = tnt_fork(traced, job);
    trace(pid, ret_calls, steps);
}

static struct cost cost_of(const struct count *count, long calls, long empty_calls)
{
    return (struct cost){.calls = (double)(calls - empty_calls) / TENSORS,
                         .faults = (double)count->faults / TENSORS,
                         .descriptors = (double)count->descriptors / TENSORS,
                         .mappings = (double)count->mappings / TENSORS};
}

static void measure(uint32_t strategy, struct cost costs[STEPS])
{
    struct count *counts = mmap(NULL, sizeof *counts * STEPS, PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(counts != MAP_FAILED);
    tn_domain *domain = tnt_domain(NULL);
    tn_queue *queue;
    assert_int_equal(tn_queue_open(domain, NULL, NULL, 0, &queue), 0);
    struct job job = {domain, queue, strategy, counts, true};
    long maker[3] = {0}, taker[3] = {0};
    run_job(&job, maker, 3);
    job.is_maker = false;
    run_job(&job, taker, 3);
    costs[MAKE] = cost_of(&counts[MAKE], maker[1], maker[0]);
    costs[PUSH] = cost_of(&counts[PUSH], maker[2], maker[0]);
    costs[POP] = cost_of(&counts[POP], taker[1], taker[0]);
    costs[RELEASE] = cost_of(&counts[RELEASE], taker[2], taker[0]);
    munmap(counts, sizeof *counts * STEPS);
    tn_object_close(queue);
    tn_domain_close(domain);
}

/* ---- the guide --------------------------------------------------------------------------- */

static bool find_row(const char *strategy, const char *step, struct cost *ret_cost)
{
    char line[256], first[32], second[32];
    FILE *guide = fopen(TNT_SOURCE "/../docs/guide/costs.md", "r");
    bool is_found = false;
    assert_non_null(guide);
    while (!is_found && fgets(line, sizeof line, guide) != NULL)
        is_found = sscanf(line, "| %31s | %31s | %lf | %lf | %lf | %lf |", first, second,
                          &ret_cost->calls, &ret_cost->faults, &ret_cost->descriptors,
                          &ret_cost->mappings) == 6 &&
                   strcmp(first, strategy) == 0 && strcmp(second, step) == 0;
    fclose(guide);
    return is_found;
}

static void compare(uint32_t strategy)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    tnt_skip("a sanitizer makes system calls of its own");
#endif
    struct cost costs[STEPS], limit;
    measure(strategy, costs);
    const char *name = tn_strategy_name(strategy);
    bool is_within = true;
    for (int step = MAKE; step < STEPS; step++)
        tnt_note("| %s | %s | %.1f | %.1f | %.1f | %.1f |", name, step_names[step],
                 costs[step].calls, costs[step].faults, costs[step].descriptors,
                 costs[step].mappings);
    for (int step = MAKE; step < STEPS; step++) {
        const struct cost *c = &costs[step];
        if (!find_row(name, step_names[step], &limit))
            fail_msg("docs/guide/costs.md has no row for %s, %s", name, step_names[step]);
        is_within &= c->calls <= limit.calls + 0.5 && c->faults <= limit.faults + 0.5 &&
                     c->descriptors <= limit.descriptors + 0.5 &&
                     c->mappings <= limit.mappings + 0.5;
    }
    assert_true(is_within);
}

TN_TEST(a_tensor_by_arena_costs_what_the_guide_says) { compare(TN_STRATEGY_ARENA); }
TN_TEST(a_tensor_by_file_descriptor_costs_what_the_guide_says)
{
    compare(TN_STRATEGY_FILE_DESCRIPTOR);
}
TN_TEST(a_tensor_by_file_system_costs_what_the_guide_says) { compare(TN_STRATEGY_FILE_SYSTEM); }
