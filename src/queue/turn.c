/* SPDX-License-Identifier: Apache-2.0 */
/*
 * queue: how a push or pop waits for its turn.
 *
 * It looks for a while before it sleeps. A process that looks says so in the wait word
 * (LOOKING), and a push or pop that sees LOOKING wakes nobody: so before a process ends its
 * look, it wakes one sleeper if there is more to do.
 */
#include "queue/turn.h"
#include "wait/wait.h"

/* Pushes while a process looks wake nobody: wake one sleeper if items, or slots, remain. */
static void pass_on(struct tni_queue *q, _Atomic uint32_t *word,
                    bool (*has_more)(struct tni_queue *))
{
    if ((atomic_load(word) & TNI_WAIT_ARMED) != 0 && has_more(q))
        tni_wait_call(word);
}

enum {
    GATHER_SPINS = 100,  /* pauses of the processor, about a microsecond */
    SHORT_LOOK = 32,     /* attempts, about a microsecond: a shorter wait counts as short */
    SHORT_LOOKS = 3,     /* after so many short waits in a row, messages gather */
    GATHER_CAPACITY = 64 /* smaller queues would run full, or empty, while messages gather */
};

/*
 * A consumer that takes each message at once waits each time until a cache line has come from
 * the producer's processor. If it waits a microsecond first, several messages come in the time
 * of one (docs/decisions/0053). So a thread that only pops, and whose waits were all short,
 * waits like that; so does a thread that only pushes and waits for room. A thread that pushes
 * and pops in turns does not: another process waits for its answer.
 */
static bool may_gather(const struct tni_queue *q, bool is_push)
{
    if (q->capacity < GATHER_CAPACITY ||
        atomic_load_explicit(&q->short_looks[is_push], memory_order_relaxed) < SHORT_LOOKS)
        return false;
    struct tni_thread *thread = tni_thread_enter(q->handle.domain);
    bool is_same = thread->last_on_ring == (is_push ? TNI_PUSHED : TNI_POPPED);
    tni_thread_leave(thread);
    return is_same;
}

static void note_look(struct tni_queue *q, bool is_push, bool is_short)
{
    uint32_t seen = atomic_load_explicit(&q->short_looks[is_push], memory_order_relaxed);
    seen = is_short ? TNI_MIN(seen + 1, (uint32_t)SHORT_LOOKS) : 0;
    atomic_store_explicit(&q->short_looks[is_push], seen, memory_order_relaxed);
}

/*
 * Look for a while before sleeping. While others sleep, set LOOKING: a push or pop then wakes
 * none of them for what this process is about to take. After LOOKING was cleared, try once
 * more: a push or pop that saw LOOKING woke nobody.
 */
static int look(struct tni_queue *q, _Atomic uint32_t *word, tni_try_fn *attempt, void *context,
                bool (*has_more)(struct tni_queue *))
{
    int status = TN_ERR_TIMED_OUT;
    uint32_t seen = atomic_load_explicit(word, memory_order_relaxed);
    uint32_t spins = tni_spins(&q->handle, word);
    if (spins == 0) {
        tni_spins_learn(&q->handle, word, 0, false);
        return status;
    }
    bool is_told = (seen & (TNI_WAIT_ARMED | TNI_WAIT_LOOKING)) == TNI_WAIT_ARMED;
    if (is_told) {
        atomic_fetch_or(word, TNI_WAIT_LOOKING);
        TNI_KILL_POINT("queue_looking");
    }
    bool is_push = word == &q->handle.object->room;
    for (int i = may_gather(q, is_push) ? GATHER_SPINS : 0; i > 0; i--)
        tni_relax();
    uint32_t looks = 0;
    for (; status == TN_ERR_TIMED_OUT && looks < spins; looks++) {
        tni_relax();
        status = attempt(context);
    }
    note_look(q, is_push, status != TN_ERR_TIMED_OUT && looks < SHORT_LOOK);
    tni_spins_learn(&q->handle, word, spins, status != TN_ERR_TIMED_OUT);
    if (!is_told)
        return status;
    atomic_fetch_and(word, ~(uint32_t)TNI_WAIT_LOOKING);
    tni_fence_after_modify();
    if (status == TN_ERR_TIMED_OUT)
        status = attempt(context);
    if (status != TN_ERR_TIMED_OUT)
        pass_on(q, word, has_more);
    return status;
}

/* pre: one attempt was in vain. */
int tni_queue_wait_turn(struct tni_queue *q, const struct tni_turn *t, uint64_t deadline_ns)
{
    int status = TN_ERR_TIMED_OUT;
    if (deadline_ns != 0)
        status = look(q, t->word, t->attempt, t->context, t->has_more);
    if (status != TN_ERR_TIMED_OUT)
        return status;
    status = tni_object_wait(&q->handle, t->word, t->side, TNI_LOOKED, deadline_ns, t->attempt,
                             t->context);
    /* Whatever came of it: one wake-up may stand for more than one message. */
    pass_on(q, t->word, t->has_more);
    return status;
}
