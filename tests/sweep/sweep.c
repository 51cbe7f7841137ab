/* SPDX-License-Identifier: Apache-2.0 */
#include "sweep/sweep.h"

#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/inside.h"
#include "process/process.h"
#include "reaper/recount.h"

enum {
    SWEPT = 0,
    STRAYED = 3,
    MOST_SECONDS = 60,
    MOST_SECONDS_OF_RECORDING = 600,
    MOST_STRAYS = 2,
    BLOCK_MS = 60
};
enum { MOST_OF_A_PAIR = 20000 };

void *sweep_share(size_t size_bytes)
{
    void *at =
        mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    TN_CHECK(at != MAP_FAILED);
    return at;
}

/* ---- in the process of one boundary ------------------------------------------------------ */

/*
 * Two processes that wait for each other take a third of the time if they run on one
 * processor.
 */
static void stay_here(void)
{
    cpu_set_t set;
    int cpu = sched_getcpu();
    if (cpu < 0)
        return;
    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    (void)!sched_setaffinity(0, sizeof set, &set);
}

/*
 * Check the invariant of docs/crash.md while no process runs: no count is below its records,
 * and no recorded block is free.
 */
static void check_counts(const struct crash_world *w)
{
    const struct tni_segment *s = &w->domain->segment;
    for (uint32_t c = 1; c < s->geometry.class_count; c++)
        for (uint32_t i = 0; i < tni_frontier(s, c); i++) {
            tni_block block = tni_block_make(c, i);
            uint64_t word = atomic_load(tni_word_at(s, block));
            uint64_t records = tni_recount_records(s, block);
            if (records > tni_word_count(word) ||
                (records > 0 && tni_word_state(word) != TNI_BLOCK_ALLOC))
                fail_msg("block %08x: state %u, count %u, and %llu records name it", block.id,
                         tni_word_state(word), tni_word_count(word),
                         (unsigned long long)records);
        }
}

static void start_victim(struct traced *t, struct crash_world *w, const struct scene *scene)
{
    if (scene->point != NULL) {
        w->has_died = crash_run_and_die(w, scene->op->run, scene->point, 1);
        tracer_start(t, w, crash_reap, false);
    } else {
        tracer_start(t, w, scene->op->run, scene->in_child);
    }
}

static void start_peer(struct traced *t, struct crash_world *w, const struct sweep_peer *peer)
{
    tracer_start(t, w, peer->run, false);
    if (!trace_walk(peer->trace, t, peer->pause)) {
        tracer_kill(t);
        printf("the peer strayed\n");
        fflush(NULL);
        _exit(STRAYED);
    }
}

/*
 * Reclaim while the peer is paused: that must not hang, and must free nothing that the peer
 * has.
 */
static void reclaim_beside_peer(struct crash_world *w)
{
    check_counts(w);
    int status = tn_domain_reap(w->domain, NULL);
    if (status < 0 && status != TN_ERR_TIMED_OUT)
        TN_CHECK_OK(status);
    check_counts(w);
}

static void run_boundary(const struct scene *scene, const struct trace *trace, uint32_t k)
{
    struct crash_world w;
    struct traced victim, peer;
    stay_here();
    crash_skips_search = k % 16 != 0;
    crash_make_world(&w, scene->op);
    if (scene->peer != NULL)
        start_peer(&peer, &w, scene->peer);
    start_victim(&victim, &w, scene);
    bool is_there = trace_walk(trace, &victim, k), has_ended = victim.has_ended;
    tracer_kill(&victim);
    if (scene->point == NULL)
        w.has_died = !has_ended && !trace_is_end(trace, k);
    if (scene->peer != NULL) {
        reclaim_beside_peer(&w);
        tracer_finish(&peer);
    }
    crash_judge(&w);
    fflush(NULL);
    _exit(is_there ? SWEPT : STRAYED);
}

static uint32_t most_steps(const struct scene *scene, uint32_t steps)
{
    return scene->peer != NULL ? MOST_OF_A_PAIR : steps;
}

/* Run the scene without a kill. */
static void run_recording(const struct scene *scene, struct trace *trace, uint32_t steps)
{
    struct crash_world w;
    struct traced victim, peer;
    stay_here();
    crash_make_world(&w, scene->op);
    if (scene->peer != NULL)
        start_peer(&peer, &w, scene->peer);
    start_victim(&victim, &w, scene);
    bool is_pair = scene->peer != NULL;
    trace_record(trace, &victim, most_steps(scene, steps), is_pair ? BLOCK_MS : 0);
    if (scene->point == NULL)
        w.has_died = !trace->is_whole;
    if (trace->is_whole)
        tracer_finish(&victim);
    else
        tracer_kill(&victim);
    if (scene->peer != NULL)
        tracer_finish(&peer);
    crash_judge(&w);
    _exit(SWEPT);
}

/* Record the run of the peer alone. */
static void run_peer_recording(const struct scene *scene)
{
    struct crash_world w;
    struct traced peer;
    stay_here();
    crash_make_world(&w, scene->op);
    tracer_start(&peer, &w, scene->peer->run, false);
    trace_record(scene->peer->trace, &peer, TRACE_MOST, 0);
    tracer_finish(&peer);
    crash_judge(&w);
    _exit(SWEPT);
}

/* ---- in the process of the sweep --------------------------------------------------------- */

static void on_alarm(int number) { (void)number; }

/* @return its exit code; -1: it was killed, now or before */
static int await_verdict(pid_t pid, unsigned seconds)
{
    struct sigaction interrupt = {.sa_handler = on_alarm};
    int status = 0;
    sigaction(SIGALRM, &interrupt, NULL);
    alarm(seconds);
    pid_t ended = waitpid(pid, &status, 0);
    alarm(0);
    if (ended == pid)
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    printf("it hangs\n");
    kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) != pid && errno == EINTR) {
    }
    return -1;
}

/* The output of a boundary is shown if the boundary fails. */
static int log_fd = -1;

static void clear_log(void)
{
    if (log_fd < 0)
        log_fd = memfd_create("boundary", MFD_CLOEXEC);
    TN_CHECK(log_fd >= 0 && ftruncate(log_fd, 0) == 0 && lseek(log_fd, 0, SEEK_SET) == 0);
}

static void close_log(void)
{
    close(log_fd);
    log_fd = -1;
}

/* Leave out what cmocka prints around it. */
static void show_log(void)
{
    static char text[16384];
    ssize_t size = pread(log_fd, text, sizeof text - 1, 0);
    text[size > 0 ? size : 0] = '\0';
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n"))
        if (line[0] != '[' || strncmp(line, "[  ERROR", 8) == 0 || strstr(line, "LINE") != NULL)
            printf("    %s\n", line);
}

/* A boundary k, or a recording of at most k steps. */
struct job {
    const struct scene *scene;
    struct trace *trace;
    uint32_t k;
    enum { AT_BOUNDARY, RECORD, RECORD_PEER } what;
};

static void do_job(const struct job *job)
{
    switch (job->what) {
    case AT_BOUNDARY:
        run_boundary(job->scene, job->trace, job->k);
        break;
    case RECORD:
        run_recording(job->scene, job->trace, job->k);
        break;
    case RECORD_PEER:
        run_peer_recording(job->scene);
        break;
    }
}

static int run_job(const struct job *job)
{
    clear_log();
    fflush(NULL);
    pid_t pid = fork();
    TN_CHECK(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(log_fd, STDOUT_FILENO);
        dup2(log_fd, STDERR_FILENO);
        do_job(job);
        _exit(1);
    }
    return await_verdict(pid,
                         job->what == AT_BOUNDARY ? MOST_SECONDS : MOST_SECONDS_OF_RECORDING);
}

bool sweep_is_good(const struct sweep_row *row)
{
    return row->failures == 0 && row->swept > 0 && row->strayed * 10 <= row->tried * 3;
}

void (*sweep_on_failure)(void);

/* ---- what failed ------------------------------------------------------------------------- */

/* Called where malloc() changes nothing in the heap that the next boundary is forked with. */
static void print_line_of(const Dl_info *about, uint64_t place)
{
    char command[512], line[512] = "";
    snprintf(command, sizeof command, "addr2line -s -p -f -i -e %s 0x%llx 2>/dev/null",
             about->dli_fname,
             (unsigned long long)(place - (uint64_t)(uintptr_t)about->dli_fbase));
    FILE *answer = popen(command, "r");
    while (answer != NULL && fgets(line, sizeof line, answer) != NULL)
        printf("    %s", line);
    if (answer != NULL)
        pclose(answer);
}

static void print_place(uint64_t place)
{
    Dl_info about;
    if (dladdr((void *)(uintptr_t)place, &about) == 0) {
        printf("    %#llx\n", (unsigned long long)place);
        return;
    }
    printf("    %#llx in %s, %s\n", (unsigned long long)place, about.dli_fname,
           about.dli_sname != NULL ? about.dli_sname : "a static function");
    if (about.dli_sname == NULL)
        print_line_of(&about, place);
}

static void report(const struct scene *scene, const struct trace *trace, uint32_t k,
                   struct sweep_row *row)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        printf("FAILED: %s, killed at boundary %u of %u, before the instruction at\n",
               scene->name, k, trace->count - 1);
        print_place(trace->place[k]);
        printf("    again: sweep --op %s --at %u\n", scene->name, k);
        show_log();
        fflush(NULL);
        _exit(0);
    }
    while (pid > 0 && waitpid(pid, NULL, 0) != pid && errno == EINTR) {
    }
    row->failures++;
    if (row->failures == SWEEP_FAILURES)
        printf("    that is enough: the rest of this row is left out\n");
    fflush(stdout);
    if (sweep_on_failure != NULL)
        sweep_on_failure();
}

/* ---- a scene ----------------------------------------------------------------------------- */

/* @return false: the peer did not reach the boundary at which it was to be paused */
static bool record(const struct job *job)
{
    int verdict = STRAYED;
    for (int tries = 0; tries <= MOST_STRAYS && verdict == STRAYED; tries++)
        verdict = run_job(job);
    if (verdict == SWEPT)
        return true;
    if (verdict != STRAYED || job->what != RECORD || job->scene->peer == NULL) {
        show_log();
        fail_msg("%s fails when nobody is killed", job->scene->name);
    }
    return false;
}

static void try_boundary(const struct job *job, struct sweep_row *row)
{
    int verdict = STRAYED;
    row->tried++;
    for (int tries = 0; tries <= MOST_STRAYS && verdict == STRAYED; tries++)
        verdict = run_job(job);
    if (verdict == SWEPT)
        row->swept++;
    else if (verdict == STRAYED)
        row->strayed++;
    else
        report(job->scene, job->trace, job->k, row);
}

void sweep_record_peer(struct scene *scene)
{
    struct job job = {.scene = scene, .what = RECORD_PEER};
    (void)record(&job);
    trace_route(scene->peer->trace);
    close_log();
}

static uint32_t stride_of(const struct scene *scene, const struct sweep_plan *plan,
                          uint32_t count)
{
    enum { COSTLY = 10 };
    uint32_t every = plan->every > 0 ? plan->every : 1, most = plan->most;
    if (most == 0)
        return every;
    if (scene->op->is_costly)
        most = (most + COSTLY - 1) / COSTLY;
    uint32_t least = (count + most - 1) / most;
    return every > least ? every : least;
}

/*
 * An instruction that repeats itself for each byte that it copies has one boundary a byte,
 * which only single steps reach. These boundaries are alike, so the sweep takes some of them.
 */
static bool is_too_far(const struct trace *trace, uint32_t k)
{
    enum { FAR = 600, ONE_OF = 499 };
    return trace->stops[k] > FAR && k % ONE_OF != 0;
}

static bool is_over_time(const struct sweep_plan *plan, struct sweep_row *row)
{
    row->is_late |= plan->end_ns != 0 && tnt_now_ns() > plan->end_ns;
    return row->is_late;
}

static void try_boundaries(struct job *job, const struct sweep_plan *plan,
                           struct sweep_row *row)
{
    uint32_t near = 0, seen = 0;
    for (uint32_t k = 0; k < job->trace->count; k++)
        near += !is_too_far(job->trace, k);
    uint32_t every = stride_of(job->scene, plan, near), turn = (uint32_t)(plan->seed % every);
    for (uint32_t k = 0; k < job->trace->count; k++) {
        if (is_too_far(job->trace, k) || seen++ % every != turn)
            continue;
        if (row->failures >= SWEEP_FAILURES || is_over_time(plan, row))
            return;
        job->k = k;
        try_boundary(job, row);
    }
}

void sweep_scene(struct scene *scene, const struct sweep_plan *plan, struct sweep_row *row)
{
    if (row->failures >= SWEEP_FAILURES || is_over_time(plan, row))
        return;
    struct trace *trace = trace_make();
    struct job job = {.scene = scene,
                      .trace = trace,
                      .what = RECORD,
                      .k = plan->steps > 0 ? plan->steps : TRACE_MOST};
    if (!record(&job)) {
        row->tried++;
        row->strayed++;
        trace_free(trace);
        close_log();
        return;
    }
    trace_route(trace);
    job.what = AT_BOUNDARY;
    row->boundaries += trace->count;
    /* A victim that waits for its paused peer is not recorded further: it cannot go on. */
    if (!trace->is_whole && trace->count >= most_steps(scene, job.k))
        row->cut_at = trace->count;
    if (plan->at >= 0 && plan->at < trace->count) {
        job.k = (uint32_t)plan->at;
        try_boundary(&job, row);
    }
    if (plan->at < 0)
        try_boundaries(&job, plan, row);
    trace_free(trace);
    close_log();
}
