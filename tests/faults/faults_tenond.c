/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tenond under the injector: whatever call of its start fails, it serves or says why it ends,
 * and members get on; whatever call of a request fails, it goes on and loses nothing that it
 * keeps.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "faults.h"
#include "process/backing.h"
#include "process/fake_vault.h"

enum { LONG_MS = 20000, MOST_FDS = 1024, DENSE = 40, DEEP_DENSE = 150 };

static pid_t tracer;
static int said; /* what tenond writes to its standard error */

/* ---- starting it ------------------------------------------------------------------------- */

static void run_tenond(int wait_fd)
{
    char byte;
    const char *path = getenv("TENON_TENOND");
    if (path == NULL || read(wait_fd, &byte, 1) != 1)
        _exit(99);
    dup2(said, STDERR_FILENO);
    dup2(said, STDOUT_FILENO);
    execl(path, path, "--foreground", (char *)NULL);
    _exit(98);
}

/* A process that does nothing but trace it. */
static void start_traced(uint32_t n, uint32_t variant)
{
    struct faults_control *c = faults_control;
    *c = (struct faults_control){.plan = {FAULTS_CALLS, n, variant}, .is_program = true};
    said = memfd_create("said", MFD_CLOEXEC);
    fflush(NULL);
    tracer = fork();
    if (tracer == 0) {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC) != 0)
            _exit(1);
        pid_t pid = fork();
        if (pid == 0)
            run_tenond(ends[0]);
        int status = faults_trace(pid, ends[1]);
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 97);
    }
    uint64_t deadline_ns = tnt_until_ns(LONG_MS);
    while (!c->is_idle && !c->has_ended) {
        TN_CHECK(tni_os_now_ns() < deadline_ns);
        tni_os_sleep_until(tni_os_now_ns() + 200000);
    }
}

/* @return its exit code */
static int end_traced(void)
{
    while (!faults_control->has_ended) {
        kill(faults_control->subject, SIGTERM);
        tni_os_sleep_until(tni_os_now_ns() + 1000000);
    }
    int status = tnt_wait(tracer);
    TN_CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static bool has_said(void) { return lseek(said, 0, SEEK_END) > 0; }

static unsigned descriptors_of(pid_t pid)
{
    unsigned count = 0;
    for (int fd = 0; fd < MOST_FDS; fd++) {
        char path[64], target[8];
        snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, fd);
        count += readlink(path, target, sizeof target) > 0;
    }
    return count;
}

/* Tell the tracer to begin, or to end, and wait until it has. */
static void poke(int mark)
{
    struct faults_control *c = faults_control;
    c->mark = 0;
    c->wanted = mark;
    while (c->mark != mark && !c->has_ended) {
        kill(tracer, SIGUSR1);
        tni_os_sleep_until(tni_os_now_ns() + 200000);
    }
}

/* It takes a seat in what lives, at once or when it looks again. */
static void await_adoption(const tn_domain *domain)
{
    const struct tni_segment *s = &domain->segment;
    uint64_t deadline_ns = tnt_until_ns(LONG_MS);
    for (;;) {
        uint64_t who = atomic_load(&s->header->manager);
        if (tni_process_who_lives(s, who) &&
            atomic_load(&tni_seat_at(s, tni_who_seat(who))->pid) == faults_control->subject)
            return;
        TN_CHECK(tni_os_now_ns() < deadline_ns);
        tni_os_sleep_until(tni_os_now_ns() + 500000);
    }
}

/* Above these it looks through all processes of this machine, which make the same calls. */
static uint32_t next_n(uint32_t n)
{
    if (faults_is_deep())
        return n < DEEP_DENSE ? n + 1 : n + n / 8;
    return n < DENSE ? n + 1 : n + n / 2;
}

static void begin(void)
{
    faults_control = mmap(NULL, sizeof *faults_control, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(faults_control != MAP_FAILED);
}

static void end(void)
{
    struct faults_control *c = faults_control;
    faults_control = NULL;
    munmap(c, sizeof *c);
}

static void describe(void)
{
    const struct faults_control *c = faults_control;
    printf("call %u, error %u: %s gave errno %d\n", c->plan.n, c->plan.variant,
           c->was_injected ? faults_call_name(c->call) : "nothing", c->error);
}

/* ---- its start --------------------------------------------------------------------------- */

/* Whichever tenond there is then. */
static void use_a_domain(void)
{
    tn_domain *domain, *again;
    tn_domain_options options = {.struct_size = sizeof options, .quota_bytes = 1 << 20};
    TN_CHECK_OK(tn_domain_open("used", &options, TN_OPEN_NEW, &domain));
    TN_CHECK_OK(tn_domain_open("used", NULL, TN_OPEN_EXISTING, &again));
    tn_domain_close(again);
    tn_domain_close(domain);
}

TN_TEST_WITHIN(tenond_starts_or_says_why_at_each_failing_call, 240)
{
    uint32_t n = 1, variant = 0, failures = 0, ends = 0;
    tn_domain_options options = {.struct_size = sizeof options, .quota_bytes = 1 << 20};
    tn_domain *lives;
    begin();
    start_traced(UINT32_MAX, 0);
    TN_CHECK_OK(tn_domain_open("lives", &options, TN_OPEN_NEW, &lives));
    end_traced();
    close(said);
    for (bool is_over = false; !is_over;) {
        start_traced(n, variant);
        struct faults_control seen = *faults_control;
        describe();
        bool serves = !seen.has_ended;
        if (!serves) {
            ends++;
            TN_CHECK(seen.was_injected);
            TN_CHECK(has_said());
        }
        failures += seen.was_injected;
        if (serves)
            await_adoption(lives);
        if (serves && n % 8 == 1)
            use_a_domain();
        int code = end_traced();
        TN_CHECK(!serves || code == 0 || has_said());
        close(said);
        is_over = seen.count < n;
        if (variant + 1 < seen.variants) {
            variant++;
        } else {
            variant = 0;
            n = next_n(n);
        }
    }
    tn_domain_close(lives);
    use_a_domain(); /* and after all of them, one starts as ever */
    tnt_note("%u calls of its start failed; it ended %u times, and said why", failures, ends);
    end();
}

/* ---- a request --------------------------------------------------------------------------- */

static tn_domain *d;
static tn_queue *q;

/* Its maker ends: from then on only tenond has the descriptor. */
static int push_and_end(void *unused)
{
    const int64_t bytes = 1000;
    const tn_tensor_options options = {.struct_size = sizeof options,
                                       .strategy = TN_STRATEGY_FILE_DESCRIPTOR};
    tn_tensor *tensor;
    (void)unused;
    TN_CHECK_OK(tn_tensor_create(d, TN_UINT8, 1, &bytes, &options, &tensor));
    memset(tn_tensor_data(tensor), 'x', 1000);
    TN_CHECK_OK(tn_queue_push_tensor(q, tensor, TN_PUSH_MOVE, TN_NOW));
    return 0;
}

/* A deposit, a fetch and a find; each may fail. */
static void make_requests(void)
{
    const int64_t bytes = 1000;
    const tn_tensor_options options = {.struct_size = sizeof options,
                                       .strategy = TN_STRATEGY_FILE_DESCRIPTOR};
    tn_tensor *tensor;
    tn_domain *again;
    if (tn_tensor_create(d, TN_UINT8, 1, &bytes, &options, &tensor) == 0)
        tn_tensor_unref(tensor);
    if (tn_queue_pop_tensor(q, TN_NOW, &tensor) == 0)
        tn_tensor_unref(tensor);
    if (tn_domain_open("kept", NULL, TN_OPEN_EXISTING, &again) == 0)
        tn_domain_close(again);
}

static void check_kept(void)
{
    tn_tensor *tensor;
    TN_CHECK_OK(tn_queue_pop_tensor(q, TN_NOW, &tensor));
    TN_CHECK(((const char *)tn_tensor_data(tensor))[999] == 'x');
    tn_tensor_unref(tensor);
    while (tn_queue_pop_tensor(q, TN_NOW, &tensor) == 0)
        tn_tensor_unref(tensor);
}

TN_TEST_WITHIN(tenond_survives_each_failing_call_of_a_request, 240)
{
    tn_domain_options options = {.struct_size = sizeof options, .quota_bytes = 1 << 20};
    uint32_t n = 1, variant = 0, failures = 0;
    begin();
    start_traced(UINT32_MAX, 0);
    TN_CHECK_OK(tn_domain_open("kept", &options, TN_OPEN_NEW, &d));
    TN_CHECK_OK(tn_queue_open(d, NULL, NULL, 0, &q));
    struct faults_control *c = faults_control;
    unsigned descriptors = 0;
    for (bool is_over = false; !is_over;) {
        for (int i = 0; i < 2; i++)
            tnt_wait_ok(tnt_fork(push_and_end, NULL));
        c->plan = (struct faults_plan){FAULTS_CALLS, n, variant};
        c->count = c->variants = 0;
        c->was_injected = c->lasts = false;
        poke(FAULTS_MARK_BEGIN);
        make_requests();
        poke(FAULTS_MARK_END);
        describe();
        TN_CHECK(!c->has_ended);
        check_kept();
        failures += c->was_injected;
        is_over = c->count < n;
        if (n == 1 && variant == 0)
            descriptors = descriptors_of(c->subject);
        if (variant + 1 < c->variants) {
            variant++;
        } else {
            variant = 0;
            n = next_n(n);
        }
    }
    /*
     * A check once a second closes deposits of blocks that have ended. A connection stays
     * open for a while.
     */
    uint64_t deadline_ns = tnt_until_ns(LONG_MS);
    while (descriptors_of(c->subject) > descriptors + 2) {
        TN_CHECK(tni_os_now_ns() < deadline_ns);
        tni_os_sleep_until(tni_os_now_ns() + 10000000);
    }
    tn_object_close(q);
    tn_domain_close(d);
    end_traced();
    close(said);
    tnt_note("%u calls of its requests failed, and it lost nothing", failures);
    end();
}

/* ---- what the vault has ------------------------------------------------------------------ */

static void kill_traced(void)
{
    kill(faults_control->subject, SIGKILL);
    tnt_wait(tracer);
    close(said);
}

/* A call of its start failed: it takes over what the vault has now, or later. */
static void await_kept(void)
{
    uint64_t deadline_ns = tnt_until_ns(LONG_MS);
    while (count_open(faults_control->subject, STORAGE_TARGET) != 1) {
        TN_CHECK(tni_os_now_ns() < deadline_ns);
        tni_os_sleep_until(tni_os_now_ns() + 500000);
    }
}

TN_TEST_WITHIN(the_vault_loses_nothing_when_tenond_fails_to_start, 240)
{
    tn_domain_options options = {.struct_size = sizeof options, .quota_bytes = 1 << 20};
    uint32_t n = 1, variant = 0, failures = 0;
    begin();
    struct fake_vault *vault = fake_vault_start();
    start_traced(UINT32_MAX, 0);
    TN_CHECK_OK(tn_domain_open("recalled", &options, TN_OPEN_NEW, &d));
    TN_CHECK_OK(tn_queue_open(d, NULL, NULL, 0, &q));
    tnt_wait_ok(tnt_fork(push_and_end, NULL));
    fake_vault_await(&vault->puts, 1);
    kill_traced();
    for (bool is_over = false; !is_over;) {
        start_traced(n, variant);
        struct faults_control seen = *faults_control;
        describe();
        if (!seen.has_ended)
            await_kept();
        kill_traced();
        TN_CHECK(fake_vault_has_all(vault));
        failures += seen.was_injected;
        is_over = seen.count < n;
        if (variant + 1 < seen.variants) {
            variant++;
        } else {
            variant = 0;
            n = next_n(n);
        }
    }
    start_traced(UINT32_MAX, 0);
    await_kept();
    check_kept();
    tn_object_close(q);
    tn_domain_close(d);
    end_traced();
    close(said);
    fake_vault_end(vault);
    tnt_note("%u calls of its start failed, and the vault lost nothing", failures);
    end();
}
