/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the reaper and of its audit share: a domain, and workers that use it. */
#ifndef TENON_TESTS_UNIT_REAPER_TEST_H
#define TENON_TESTS_UNIT_REAPER_TEST_H

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/harness.h"
#include "harness/live_blocks.h"
#include "harness/members.h"
#include "reaper/reaper.h"
#include "store/store.h"

enum { MS = 1000 * 1000 };

/* ---- a domain without the api room ------------------------------------------------------- */

static inline struct tn_domain *open_domain_of(uint32_t seats, uint32_t blocks,
                                               uint64_t quota_bytes)
{
    const struct tni_segment_options options = {.name = "",
                                                .seats = seats,
                                                .blocks = blocks,
                                                .objects = 64,
                                                .tickets = 256,
                                                .quota_bytes = quota_bytes,
                                                .watermark_bytes = quota_bytes,
                                                .flags = TN_DOMAIN_NO_MANAGER};
    struct tni_segment segment;
    struct tn_domain *d = NULL;
    TN_CHECK_OK(tni_segment_create(&options, &segment));
    TN_CHECK_OK(tni_process_join(&segment, 0, &d));
    tni_alloc_init(d);
    tni_ref_init(d);
    tni_store_init(d);
    tni_reaper_init(d);
    return d;
}

static inline struct tn_domain *open_domain(void) { return open_domain_of(16, 4096, 64 << 20); }

static inline void close_domain(struct tn_domain *d)
{
    tni_reaper_leave(d);
    tni_process_leave(d);
    tni_process_unkeep(d);
}

static inline int print_sentence(const char *sentence, bool repaired, void *context)
{
    (void)context;
    printf("audit: %s%s\n", sentence, repaired ? " (repaired)" : "");
    return 0;
}

static inline int audit(struct tn_domain *d)
{
    return tni_audit(&d->segment, NULL, false,
                     &(struct tni_audit_report){.each = print_sentence, .context = NULL});
}

/* Count what an audit says, and remember its last sentence. */
struct findings {
    int count, repaired;
    char last[320];
};

static inline int note_finding(const char *sentence, bool repaired, void *context)
{
    struct findings *findings = context;
    findings->count++;
    findings->repaired += repaired;
    snprintf(findings->last, sizeof findings->last, "%s", sentence);
    return 0;
}

static inline uint32_t state_of(const struct tn_domain *d, uint32_t seat)
{
    return tni_seat_state(atomic_load(&tni_seat_at(&d->segment, seat)->word));
}

static inline uint32_t seats_taken(const struct tn_domain *d)
{
    return tnt_members(&d->segment, 1);
}

/* No other member is alive, so nothing may delay this. */
static inline void reclaim_all(struct tn_domain *d) { TN_CHECK_OK(tni_reaper_reclaim_all(d)); }

static inline tni_block alloc_block(struct tn_domain *d, uint64_t bytes, uint8_t kind)
{
    const struct tni_block_about about = {.kind = kind};
    struct tni_new_block made;
    TN_CHECK_OK(tni_ref_alloc(d, bytes, &about, 0, &made));
    return made.block;
}

/* ---- something of everything ------------------------------------------------------------- */

struct work {
    struct tn_domain *domain;
    tn_queue *queues[3]; /* by policy */
    tn_semaphore *owned, *signal;
    tn_lock *lock;
    tn_event *event;
    tn_barrier *barrier;
};

static inline void open_work(struct work *w, struct tn_domain *d)
{
    *w = (struct work){.domain = d};
    for (uint32_t policy = 0; policy < 3; policy++) {
        const tn_queue_options options = {
            .struct_size = sizeof options, .capacity = 4, .policy = policy};
        TN_CHECK_OK(tn_queue_open(d, NULL, &options, 0, &w->queues[policy]));
    }
    TN_CHECK_OK(tn_semaphore_open(d, NULL, 2, TN_SEMAPHORE_OWNED, &w->owned));
    TN_CHECK_OK(tn_semaphore_open(d, NULL, 0, 0, &w->signal));
    TN_CHECK_OK(tn_lock_open(d, NULL, 0, &w->lock));
    TN_CHECK_OK(tn_event_open(d, NULL, TN_EVENT_AUTO_RESET, &w->event));
    TN_CHECK_OK(tn_barrier_open(d, NULL, 1, 0, &w->barrier));
}

static inline void close_work(struct work *w)
{
    for (uint32_t policy = 0; policy < 3; policy++)
        tn_object_close(w->queues[policy]);
    tn_object_close(w->owned);
    tn_object_close(w->signal);
    tn_object_close(w->lock);
    tn_object_close(w->event);
    tn_object_close(w->barrier);
}

/* What a killed worker left in the queues is taken out, so that live blocks can be compared. */
static inline void drain(struct work *w)
{
    for (uint32_t policy = 0; policy < 3; policy++) {
        tn_message message;
        int status;
        while ((status = tn_queue_pop(w->queues[policy], TN_NOW, &message)) == 0) {
            if (policy == TN_QUEUE_LEASE)
                TN_CHECK_OK(tn_message_ack(w->queues[policy], &message));
            tn_message_fini(&message);
        }
        TN_CHECK(status == TN_ERR_TIMED_OUT || status == TN_ERR_PEER_DIED);
    }
    TN_CHECK_OK(tn_event_clear(w->event));
    /* A ticket outlives its issuer for a while: as if that was over. */
    tni_ticket_expire(w->domain, tni_os_now_ns() + 3600 * UINT64_C(1000000000));
}

static inline tn_tensor *make_tensor(struct tn_domain *d, int64_t floats)
{
    tn_tensor *tensor = NULL;
    TN_CHECK_OK(tn_tensor_create(d, TN_FLOAT32, 1, &floats,
                                 TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED),
                                 &tensor));
    return tensor;
}

static inline void exchange(struct work *w, uint32_t policy, uint32_t tensor_count,
                            uint32_t flags)
{
    tn_tensor *tensors[3];
    for (uint32_t i = 0; i < tensor_count; i++)
        tensors[i] = make_tensor(w->domain, 100);
    const tn_message message = {
        .bytes = "tenon", .size_bytes = 5, .tensors = tensors, .tensor_count = tensor_count};
    int status = tn_queue_push(w->queues[policy], &message, flags, TN_NOW);
    /* Full when a killed worker's message is still there: then its turn comes below. */
    TN_CHECK(status == 0 || status == TN_ERR_TIMED_OUT || status == TN_ERR_PEER_DIED);
    if (status != 0 || (flags & TN_PUSH_MOVE) == 0)
        for (uint32_t i = 0; i < tensor_count; i++)
            tn_tensor_unref(tensors[i]);
    tn_message got;
    status = tn_queue_pop(w->queues[policy], TN_NOW, &got);
    if (status != 0)
        return;
    if (policy == TN_QUEUE_LEASE && got.attempt == 0 && tensor_count == 1)
        TN_CHECK_OK(tn_message_return(w->queues[policy], &got));
    else if (policy == TN_QUEUE_LEASE)
        TN_CHECK_OK(tn_message_ack(w->queues[policy], &got));
    tn_message_fini(&got);
}

static inline void use_handles(struct tn_domain *d)
{
    unsigned char bytes[4096];
    size_t size = 0;
    tn_tensor *tensor = make_tensor(d, 10), *other = NULL;
    const tn_handle_options options = {.struct_size = sizeof options, .uses = 2};
    TN_CHECK_OK(tn_handle_export(tensor, &options, bytes, sizeof bytes, &size));
    for (int use = 0; use < 2; use++) {
        TN_CHECK_OK(tn_handle_import(d, bytes, size, &other));
        tn_tensor_unref(other);
    }
    TN_CHECK_OK(tn_handle_export(tensor, &options, bytes, sizeof bytes, &size));
    TN_CHECK_OK(tn_handle_revoke(d, bytes, size));
    tn_tensor_unref(tensor);
}

static inline void use_objects(struct work *w)
{
    TN_CHECK_OK(tn_semaphore_acquire(w->owned, TN_NOW));
    TN_CHECK_OK(tn_semaphore_release(w->owned));
    TN_CHECK_OK(tn_semaphore_release(w->signal));
    TN_CHECK_OK(tn_semaphore_acquire(w->signal, TN_NOW));
    int status = tn_lock_acquire(w->lock, TN_NOW);
    TN_CHECK(status == 0 || status == 1 || status == TN_ERR_PEER_DIED);
    TN_CHECK_OK(tn_lock_release(w->lock));
    TN_CHECK_OK(tn_event_set(w->event));
    TN_CHECK_OK(tn_event_wait(w->event, TN_NOW));
    tn_queue *queue;
    TN_CHECK_OK(tn_queue_open(w->domain, "of-a-worker", NULL, TN_OPEN_NEW, &queue));
    tn_tensor *tensor = make_tensor(w->domain, 50);
    TN_CHECK_OK(tn_queue_push_tensor(queue, tensor, TN_PUSH_MOVE, TN_NOW));
    tn_object_close(queue); /* ends it with a message inside */
}

static inline void use_memory(struct tn_domain *d)
{
    tni_block small[70], large = alloc_block(d, 3 << 20, TNI_KIND_TENSOR);
    for (uint32_t i = 0; i < TNI_COUNT(small); i++)
        small[i] = alloc_block(d, 200, TNI_KIND_TENSOR);
    tni_block message = alloc_block(d, 900, TNI_KIND_MESSAGE);
    TN_CHECK_OK(tni_records_add(d, message, small[0], false));
    TN_CHECK_OK(tni_records_add(d, message, small[1], true));
    for (uint32_t i = 0; i < TNI_COUNT(small); i++)
        if (i != 1)
            tni_ref_release(d, small[i]);
    tni_ref_release(d, message);
    tni_ref_release(d, large);
    struct tni_thread *thread = tni_thread_enter(d);
    tni_alloc_flush(d, thread);
    tni_alloc_trim(d, thread, 0);
    tni_thread_leave(thread);
}

/* A worker: a bit of everything, a child, and an orderly end. */
static inline int work(void *argument)
{
    struct work *w = argument;
    struct tn_domain *d = w->domain;

    TN_CHECK(d->seat != TNI_NO_SEAT);
    tni_block kept = alloc_block(d, 5000, TNI_KIND_TENSOR);
    use_memory(d);
    for (uint32_t policy = 0; policy < 3; policy++) {
        exchange(w, policy, 1, 0);
        exchange(w, policy, 1, TN_PUSH_MOVE);
        exchange(w, policy, 3, 0);
        exchange(w, policy, 3, TN_PUSH_MOVE);
    }
    use_handles(d);
    use_objects(w);
    pid_t child = fork();
    TN_CHECK(child >= 0);
    if (child == 0) {
        /* In order, or as most end. */
        tni_ref_release(d, kept);
        _exit(0);
    }
    int status;
    TN_CHECK(waitpid(child, &status, 0) == child);
    close_domain(d);
    return 0;
}

/* Read everything once, so that pages and frontiers do not change afterwards. */
static inline uint32_t warm_up(struct work *w)
{
    tnt_wait_ok(tnt_fork(work, w));
    reclaim_all(w->domain);
    drain(w);
    return live_blocks(w->domain);
}

/* ---- members that hold, or are busy, until they are told ------------------------------------
 */

struct held {
    struct tn_domain *domain;
    struct tnt_signal ready, go;
    tni_block block;
    uint32_t count;
};

static inline int hold_until_told(void *argument)
{
    struct held *held = argument;
    for (uint32_t i = 0; i < held->count; i++)
        alloc_block(held->domain, 64, TNI_KIND_TENSOR);
    tnt_signal(&held->ready);
    tnt_await(&held->go);
    return 0;
}

static inline struct held open_held(struct tn_domain *d, uint32_t count)
{
    return (struct held){
        .domain = d, .ready = tnt_signal_open(), .go = tnt_signal_open(), .count = count};
}

static inline void close_held(struct held *held)
{
    tnt_signal_close(&held->ready);
    tnt_signal_close(&held->go);
}

struct churn {
    struct work w;
    _Atomic uint32_t *stop;
};

static inline int churn(void *argument)
{
    struct churn *c = argument;
    for (uint32_t i = 0; atomic_load(c->stop) == 0; i++) {
        exchange(&c->w, i % 2, 1 + i % 3, i % 4 < 2 ? TN_PUSH_MOVE : 0);
        use_handles(c->w.domain);
        use_memory(c->w.domain);
    }
    return 0;
}

#endif
