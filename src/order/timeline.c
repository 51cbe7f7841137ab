/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timeline: the table of timelines in shared memory.
 *
 * I1  The word of a timeline never falls while a token of it is in use: an owner goes on from
 *     `issued`, and is the only one whose streams write the word.
 * I2  Before a stream is given a number, `issued` has it. So whoever settles the timeline of a
 *     dead process knows the last number that others may wait for.
 * I3  A timeline gets a new owner only when its word is `issued`.
 * Callers: order.c, the reaper. Death: the owner stays in the timeline; the reaper settles it
 * once the whole process has ended, since its streams may write until then. A reaper that dies
 * leaves the loss noted or not, and the word raised or not; the next one repeats both.
 */
#include "order/order.h"

/* ---- losses ------------------------------------------------------------------------------ */

/* A loss with `to` is complete. Whoever reads it reads `to` again. */
static void note_loss(struct tni_timeline *t, uint64_t from, uint64_t who, int32_t pid)
{
    uint64_t to = atomic_load(&t->issued);
    uint32_t count = atomic_load(&t->losses);
    struct tni_loss *loss = &t->lost[count % TNI_LOSSES];
    if (count != 0 && atomic_load(&t->lost[(count - 1) % TNI_LOSSES].to) == to)
        return; /* by a recoverer that died since */
    atomic_store(&loss->to, 0);
    atomic_store(&loss->from, from);
    atomic_store(&loss->pid, pid);
    atomic_store(&loss->seat, tni_who_seat(who));
    atomic_store(&loss->to, to);
    atomic_store(&t->losses, count + 1);
}

static const struct tni_loss *find_loss(const struct tni_timeline *t, uint64_t value)
{
    if (atomic_load_explicit(&t->losses, memory_order_acquire) == 0)
        return NULL;
    for (uint32_t i = 0; i < TNI_LOSSES; i++) {
        uint64_t to = atomic_load(&t->lost[i].to), from = atomic_load(&t->lost[i].from);
        if (value <= to && value >= from && atomic_load(&t->lost[i].to) == to)
            return &t->lost[i];
    }
    return NULL;
}

/* ---- tokens ------------------------------------------------------------------------------ */

/* A loss is noted before the word is raised, so who sees the word raised sees the loss. */
enum tni_order_state tni_order_state(const struct tni_segment *s, uint64_t token)
{
    uint32_t timeline = tni_token_timeline(token);
    uint64_t value = tni_token_value(token);
    if (TNI_LIKELY(timeline >= TNI_TIMELINES))
        return TNI_ORDER_DONE; /* the token 0 */
    if (atomic_load_explicit(tni_value_at(s, timeline), memory_order_acquire) < value)
        return TNI_ORDER_PENDING;
    return TNI_LIKELY(find_loss(tni_timeline_at(s, timeline), value) == NULL) ? TNI_ORDER_DONE
                                                                              : TNI_ORDER_LOST;
}

int tni_order_check(const struct tni_segment *s, uint64_t token)
{
    uint32_t timeline = tni_token_timeline(token);
    uint64_t value = tni_token_value(token);
    if (token == 0 || (timeline < TNI_TIMELINES && value != 0 &&
                       value <= atomic_load(&tni_timeline_at(s, timeline)->issued)))
        return 0;
    return tni_fail(TN_ERR_CORRUPT,
                    "a token names the number %llu of timeline %u, which no process issued",
                    (unsigned long long)value, timeline);
}

int tni_order_fail_lost(const struct tni_segment *s, uint64_t token)
{
    uint32_t timeline = tni_token_timeline(token);
    const struct tni_loss *loss =
        timeline < TNI_TIMELINES
            ? find_loss(tni_timeline_at(s, timeline), tni_token_value(token))
            : NULL;
    int32_t pid = loss != NULL ? atomic_load(&loss->pid) : 0;
    tni_set_peer(loss != NULL ? atomic_load(&loss->seat) : TNI_NO_SEAT, pid);
    return tni_fail(TN_ERR_PEER_DIED,
                    "the tensor is incomplete: process %d died before its device had done "
                    "what the process gave it",
                    pid);
}

/* ---- owners ------------------------------------------------------------------------------ */

/* I3, also after damage. False: there are no numbers left. */
static bool begin(const struct tni_segment *s, uint32_t timeline, uint64_t who)
{
    struct tni_timeline *t = tni_timeline_at(s, timeline);
    uint64_t now = atomic_load(tni_value_at(s, timeline)), issued = atomic_load(&t->issued);
    uint64_t from = TNI_MAX(now, issued);
    if (from >= TNI_TOKEN_VALUES - 1) {
        tni_timeline_retire(s, timeline, who);
        return false;
    }
    if (now != from)
        atomic_store(tni_value_at(s, timeline), from);
    if (issued != from)
        atomic_store(&t->issued, from);
    TNI_KILL_POINT("timeline_taken");
    return true;
}

static bool take(const struct tni_segment *s, uint32_t timeline, uint64_t who)
{
    return atomic_load(&tni_timeline_at(s, timeline)->owner) == 0 &&
           tni_claim_try(&tni_timeline_at(s, timeline)->owner, who) && begin(s, timeline, who);
}

/*
 * One that was never used is taken before one whose losses a further death would overwrite: so
 * no loss is forgotten as long as there are others.
 */
bool tni_timeline_take(const struct tni_segment *s, uint64_t who, uint32_t *ret_timeline)
{
    uint32_t limit = tni_timeline_limit(s);
    for (uint32_t i = 0; i < limit; i++)
        if (atomic_load(&tni_timeline_at(s, i)->losses) < TNI_LOSSES && take(s, i, who)) {
            *ret_timeline = i;
            return true;
        }
    for (uint32_t i = limit; i < TNI_TIMELINES; i++) {
        tni_raise_limit(&s->header->timeline_limit, i + 1); /* the reaper looks below it */
        if (take(s, i, who)) {
            *ret_timeline = i;
            return true;
        }
    }
    for (uint32_t i = 0; i < TNI_TIMELINES; i++)
        if (take(s, i, who)) {
            *ret_timeline = i;
            return true;
        }
    return false;
}

void tni_timeline_retire(const struct tni_segment *s, uint32_t timeline, uint64_t who)
{
    atomic_compare_exchange_strong(&tni_timeline_at(s, timeline)->owner, &who,
                                   TNI_TIMELINE_RETIRED);
}

void tni_timeline_settle(const struct tni_segment *s, uint32_t timeline, uint64_t who,
                         int32_t pid)
{
    struct tni_timeline *t = tni_timeline_at(s, timeline);
    uint64_t now = atomic_load(tni_value_at(s, timeline)), issued = atomic_load(&t->issued);
    if (atomic_load(&t->owner) != who)
        return;
    if (now < issued) {
        note_loss(t, now + 1, who, pid);
        TNI_KILL_POINT("timeline_loss_noted");
        atomic_store(tni_value_at(s, timeline), issued);
    }
    TNI_KILL_POINT("timeline_settled");
    atomic_compare_exchange_strong(&t->owner, &who, 0);
}

bool tni_timelines_has(const struct tni_segment *s, uint64_t who)
{
    uint32_t limit = tni_timeline_limit(s);
    for (uint32_t i = 0; i < limit; i++)
        if (atomic_load(&tni_timeline_at(s, i)->owner) == who)
            return true;
    return false;
}

void tni_timelines_reclaim(const struct tni_segment *s, uint64_t who, int32_t pid)
{
    uint32_t limit = tni_timeline_limit(s);
    for (uint32_t i = 0; i < limit; i++)
        tni_timeline_settle(s, i, who, pid);
}
