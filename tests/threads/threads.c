/* SPDX-License-Identifier: Apache-2.0 */
/* See threads.h. */
#include "threads/threads.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "harness/live_blocks.h"

struct tn_domain *members[MEMBERS];

static _Atomic bool is_over;

static void take_seat(struct tni_segment *segment, struct tn_domain **ret_domain)
{
    TN_CHECK_OK(tni_process_join(segment, 0, ret_domain));
    tni_alloc_init(*ret_domain);
    tni_backing_init(*ret_domain);
    TN_CHECK_OK(tni_ref_init(*ret_domain));
    tni_store_init(*ret_domain);
    tni_reaper_init(*ret_domain);
}

void world_begin(uint64_t quota_bytes)
{
    const struct tni_segment_options options = {.name = "",
                                                .seats = 16,
                                                .blocks = 4096,
                                                .objects = 64,
                                                .tickets = 64,
                                                .quota_bytes = quota_bytes,
                                                .watermark_bytes = quota_bytes / 4,
                                                .flags = TN_DOMAIN_NO_MANAGER};
    struct tni_segment segment;
    TN_CHECK_OK(tni_segment_create(&options, &segment));
    take_seat(&segment, &members[0]);
    for (unsigned i = 1; i < MEMBERS; i++) {
        struct tni_segment same = segment;
        same.control_fd = fcntl(segment.control_fd, F_DUPFD_CLOEXEC, 0);
        same.arena_fd = fcntl(segment.arena_fd, F_DUPFD_CLOEXEC, 0);
        take_seat(&same, &members[i]);
    }
}

static int print_finding(const char *sentence, bool repaired, void *context)
{
    (void)repaired, (void)context;
    printf("audit: %s\n", sentence);
    return 0;
}

/* The last member unmaps what all of them used. */
static void leave(struct tn_domain *d, bool is_last)
{
    tni_reaper_leave(d);
    tni_process_leave(d);
    assert_int_equal(atomic_load(&d->keepers), 1);
    if (!is_last) {
        d->segment.header = NULL;
        d->segment.arena = NULL;
    }
    tni_process_unkeep(d);
}

void world_end(void)
{
    int reclaimed;
    while ((reclaimed = tni_reaper_reclaim_all(members[0])) == TN_ERR_TIMED_OUT)
        sched_yield();
    assert_true(reclaimed >= 0);
    for (unsigned i = 0; i < MEMBERS; i++)
        tni_ticket_reclaim_seat(members[i], members[i]->who);
    tni_ticket_expire(members[0], UINT64_MAX - 1); /* of issuers that are dead now */
    assert_int_equal(tni_process_count(&members[0]->segment), MEMBERS);
    assert_int_equal(
        tni_audit(&members[0]->segment, NULL, false,
                  &(struct tni_audit_report){.each = print_finding, .context = NULL}),
        0);
    assert_int_equal(live_blocks(members[0]), 0);
    for (unsigned i = 0; i < MEMBERS; i++)
        leave(members[i], i == MEMBERS - 1);
}

/* ---- threads ----------------------------------------------------------------------------- */

/* Source: xorshift64, G. Marsaglia, Xorshift RNGs, J. Stat. Software 8(14), 2003. */
uint64_t worker_random(struct worker *worker, uint64_t below)
{
    worker->random ^= worker->random << 13;
    worker->random ^= worker->random >> 7;
    worker->random ^= worker->random << 17;
    return worker->random % below;
}

bool worker_did(int status, const int *allowed, const char *text, const char *file, int line)
{
    for (; status < 0 && *allowed != 0; allowed++)
        if (status == *allowed)
            return false;
    tnt_ok(status, text, file, line);
    return true;
}

struct job {
    work_fn *work;
    struct worker worker;
};

static void *work_until_over(void *argument)
{
    struct job *job = argument;
    do {
        job->work(&job->worker);
        job->worker.rounds++;
    } while (!atomic_load_explicit(&is_over, memory_order_relaxed));
    return NULL;
}

/* Nothing is waited for: this is how long the work goes on. */
static uint64_t work_ends_ns(void)
{
    const char *wanted = getenv("TN_THREADS_MS");
    return tnt_until_ns(wanted != NULL ? (unsigned)strtoul(wanted, NULL, 10) : 250);
}

uint64_t run_crews(const struct crew *crews)
{
    struct job jobs[MAX_WORKERS];
    pthread_t threads[MAX_WORKERS];
    unsigned count = 0;
    uint64_t end_ns = work_ends_ns(), rounds = 0;

    atomic_store(&is_over, false);
    for (; crews->work != NULL; crews++)
        for (unsigned i = 0; i < crews->count; i++, count++) {
            assert_true(count < MAX_WORKERS);
            jobs[count] = (struct job){.work = crews->work,
                                       .worker = {.number = count,
                                                  .domain = members[count % MEMBERS],
                                                  .random = tnt_random() | 1}};
        }
    for (unsigned i = 0; i < count; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work_until_over, &jobs[i]), 0);
    _Atomic uint32_t never = 0;
    while (tni_os_now_ns() < end_ns)
        tni_os_wait(&never, 0, end_ns);
    atomic_store(&is_over, true);
    for (unsigned i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
        rounds += jobs[i].worker.rounds;
    }
    tnt_note("%s: %llu rounds of work by %u threads", tnt_name(), (unsigned long long)rounds,
             count);
    return rounds;
}
