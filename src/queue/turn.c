/* SPDX-License-Identifier: Apache-2.0 */
/*
 * turn: how a push or pop waits.
 *
 * A process polls for a while before it sleeps, and sets LOOKING in the wait word while it
 * polls. A push or pop that sees LOOKING wakes no sleeper. So a process that stops polling
 * wakes one sleeper, if there is something left to do.
 */
#include "queue/turn.h"
#include "wait/wait.h"

/* Pushes during LOOKING wake no sleeper: wake one if messages, or free slots, remain. */
static void wake_next(struct tni_queue *q, const struct tni_turn *t)
{
    if ((atomic_load(t->word) & TNI_WAIT_ARMED) != 0 && t->has_more(q))
        tni_wait_call(t->word);
}

enum {
    GATHER_SPINS = 100,  /* pauses of the processor, about a microsecond */
    SHORT_POLL = 32,     /* attempts, about a microsecond: a poll with fewer is short */
    SHORT_POLLS = 3,     /* after so many short polls in a row, a thread lets messages gather */
    GATHER_CAPACITY = 64 /* a smaller queue would run full, or empty, meanwhile */
};

/*
 * A consumer that takes each message at once waits each time until a cache line has come from
 * the processor of the producer. If the consumer first waits a microsecond, several messages
 * come in the time of one (docs/decisions/0053). So a thread that only pops, and whose polls
 * were all short, waits that long; so does a thread that only pushes and waits for room. A
 * thread that pushes and pops in turns does not: another process waits for its answer.
 */
static bool may_gather(const struct tni_queue *q, bool is_push)
{
    if (q->capacity < GATHER_CAPACITY ||
        atomic_load_explicit(&q->short_polls[is_push], memory_order_relaxed) < SHORT_POLLS)
        return false;
    struct tni_thread *thread = tni_thread_enter(q->handle.domain);
    bool is_same = thread->last_on_ring == (is_push ? TNI_PUSHED : TNI_POPPED);
    tni_thread_leave(thread);
    return is_same;
}

static void note_poll(struct tni_queue *q, bool is_push, bool is_short)
{
    uint32_t seen = atomic_load_explicit(&q->short_polls[is_push], memory_order_relaxed);
    seen = is_short ? TNI_MIN(seen + 1, (uint32_t)SHORT_POLLS) : 0;
    atomic_store_explicit(&q->short_polls[is_push], seen, memory_order_relaxed);
}

/*
 * Poll for a while before sleeping. While others sleep, set LOOKING: a push or pop then wakes
 * none of them for what this process is about to take. After clearing LOOKING, try once more: a
 * push or pop that saw LOOKING woke no sleeper.
 */
static int poll(struct tni_queue *q, const struct tni_turn *t)
{
    _Atomic uint32_t *const word = t->word;
    int status = TN_ERR_TIMED_OUT;
    uint32_t seen = atomic_load_explicit(word, memory_order_relaxed);
    uint32_t spins = tni_spins(&q->handle, word);
    if (spins == 0) {
        tni_spins_learn(&q->handle, word, 0, false);
        return status;
    }
    bool has_sleepers = (seen & (TNI_WAIT_ARMED | TNI_WAIT_LOOKING)) == TNI_WAIT_ARMED;
    if (has_sleepers) {
        atomic_fetch_or(word, TNI_WAIT_LOOKING);
        TNI_KILL_POINT("queue_looking");
    }
    bool is_push = word == &q->handle.object->room;
    for (int i = may_gather(q, is_push) ? GATHER_SPINS : 0; i > 0; i--)
        tni_relax();
    uint32_t tries = 0;
    for (; status == TN_ERR_TIMED_OUT && tries < spins; tries++) {
        tni_relax();
        status = t->attempt(t->context);
    }
    note_poll(q, is_push, status != TN_ERR_TIMED_OUT && tries < SHORT_POLL);
    tni_spins_learn(&q->handle, word, spins, status != TN_ERR_TIMED_OUT);
    if (!has_sleepers)
        return status;
    atomic_fetch_and(word, ~(uint32_t)TNI_WAIT_LOOKING);
    tni_fence_after_modify();
    if (status == TN_ERR_TIMED_OUT)
        status = t->attempt(t->context);
    if (status != TN_ERR_TIMED_OUT)
        wake_next(q, t);
    return status;
}

int tni_queue_wait_turn(struct tni_queue *q, const struct tni_turn *t, uint64_t deadline_ns)
{
    int status = TN_ERR_TIMED_OUT;
    if (deadline_ns != 0)
        status = poll(q, t);
    if (status != TN_ERR_TIMED_OUT)
        return status;
    status = tni_object_wait(&q->handle,
                             &(struct tni_awaited){.word = t->word,
                                                   .side = t->side,
                                                   .spins = TNI_HAS_POLLED,
                                                   .attempt = t->attempt,
                                                   .context = t->context},
                             deadline_ns);
    /* Also after an error: one wake-up may stand for more than one message. */
    wake_next(q, t);
    return status;
}
