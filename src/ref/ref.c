/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ref: hold rows, counts, and what lies between them.
 *
 * Nouns: hold, local reference, record, announce.
 * I1  count >= records. A count is too high only while a thread announces the block.
 * I2  local[b] > 0 exactly when this seat's hold bit of b is set, or the thread that changes it
 *     has set local[b] to TNI_LOCAL_BUSY. Only the 0 <-> 1 of local[b] touch shared memory.
 * I3  A block becomes FREE by one CAS from count 0 (or from 1, by the only holder), once.
 * I4  A message block's records are given back by the thread that brought its count to 0, which
 *     announces it as `outer` until it is FREE.
 * I5  A reference that moves between records changes no count. Between the announce and the
 *     un-recording its thread looks at header->recount, and if somebody recounts, raises the
 *     word's version. The recounter sets that claim first, and looks at the announces then:
 *     either it sees ours, or we see its.
 * I6  A block that is TNI_LOCAL_UNFINISHED is known to one call only. Fork gives the child no
 *     hold of it, and the child counts no local reference of it: nothing in the child would
 *     ever release it.
 * Callers: tensor, share, queue, reaper. Source: protocol C, a leak-biased count with announce
 * and stable recount; docs/crash.md. A death leaves a count one too high, or 0 and not FREE, on
 * an announced block; the reaper recounts it. Never a count too low.
 */
#include "ref/ref.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Atomic uint32_t *local_at(struct tn_domain *d, tni_block block)
{
    return &d->local[tni_block_position(&d->segment.geometry, block)];
}

/* ---- counts ------------------------------------------------------------------------------ */

/*
 * A count has 24 bits. Each record that a push or an export makes may lead to one reference
 * more in each process that receives it, for as long as one of its threads works: so many are
 * left over for them.
 */
enum { MOST_PINNED = 0xfffff0, MOST_RECORDED = MOST_PINNED - 0x10000 };

static int fail_full(tni_block block, uint32_t most)
{
    return tni_fail(TN_ERR_FULL, "block %x has %u references, which is the most", block.id,
                    most);
}

static int increment(struct tn_domain *d, tni_block block, uint32_t most)
{
    uint64_t old = atomic_fetch_add(tni_word_at(&d->segment, block), TNI_WORD_INC);
    if (TNI_LIKELY(tni_word_count(old) < most))
        return 0;
    atomic_fetch_add(tni_word_at(&d->segment, block), TNI_WORD_DEC);
    return fail_full(block, most);
}

int tni_ref_check_room(struct tn_domain *d, tni_block block)
{
    uint64_t word = atomic_load_explicit(tni_word_at(&d->segment, block), memory_order_relaxed);
    return TNI_LIKELY(tni_word_count(word) < MOST_PINNED) ? 0 : fail_full(block, MOST_PINNED);
}

static void take_apart(struct tn_domain *d, struct tni_thread *thread, tni_block message);

/* I3. From {ALLOC, 1} by the only holder. pre: there is nothing to take apart; announced */
static inline bool free_sole(_Atomic uint64_t *word, uint64_t *ret_freed)
{
    const uint64_t sole = ((uint64_t)TNI_BLOCK_ALLOC << 24) + 1;
    uint64_t seen = atomic_load_explicit(word, memory_order_acquire);
    *ret_freed = seen - sole + TNI_WORD_VERSION_ONE;
    return TNI_LIKELY((seen & TNI_WORD_USED) == sole) &&
           TNI_LIKELY(atomic_compare_exchange_strong(word, &seen, *ret_freed));
}

/* I3. pre: announced. @return whether the block is FREE now, by us */
static bool decrement(struct tn_domain *d, struct tni_thread *thread, tni_block block)
{
    _Atomic uint64_t *word = tni_word_at(&d->segment, block);
    uint64_t seen;
    bool is_message = tni_class_is_message(tni_block_class(block));
    bool is_backing = tni_class_is_backing(tni_block_class(block));
    /* Read while our reference keeps it from changing. */
    uint32_t generation = is_backing ? tni_ref_generation(d, block) : 0;

    /* The only reference, and nothing to take apart: to FREE at once. */
    if (!is_message && !is_backing && free_sole(word, &seen))
        return true;
    if (is_message)
        atomic_store(&thread->announce->outer, block.id);
    seen = atomic_fetch_add(word, TNI_WORD_DEC) + TNI_WORD_DEC;
    TNI_KILL_POINT("ref_decremented");
    bool is_freed = false;
    if (tni_word_count(seen) == 0 && tni_word_state(seen) == TNI_BLOCK_ALLOC) {
        if (is_message)
            take_apart(d, thread, block);
        if (is_backing)
            tni_backing_end(d, block, generation);
        is_freed =
            atomic_compare_exchange_strong(word, &seen, tni_word_next(seen, TNI_BLOCK_FREE, 0));
        TNI_KILL_POINT("ref_freed");
    }
    if (is_message)
        atomic_store(&thread->announce->outer, 0);
    return is_freed;
}

void tni_ref_drop(struct tn_domain *d, struct tni_thread *thread, tni_block block)
{
    bool is_freed = decrement(d, thread, block);
    tni_announce_clear(thread);
    if (is_freed)
        tni_alloc_put(d, thread, block);
}

int tni_ref_pin(struct tn_domain *d, tni_block block)
{
    return increment(d, block, MOST_PINNED);
}

/* ---- local references -------------------------------------------------------------------- */

void tni_ref_local(struct tn_domain *d, tni_block block)
{
    atomic_fetch_add_explicit(local_at(d, block), 1, memory_order_relaxed);
}

static bool change_local(_Atomic uint32_t *local, uint32_t *seen, uint32_t next)
{
    if (TNI_IS_SOLO()) {
        atomic_store_explicit(local, next, memory_order_relaxed);
        return true;
    }
    return atomic_compare_exchange_weak_explicit(local, seen, next, memory_order_acq_rel,
                                                 memory_order_relaxed);
}

/*
 * Take one local reference away. True: it was the last, local[b] is TNI_LOCAL_BUSY and the
 * caller ends that.
 */
static bool local_take_last(struct tn_domain *d, tni_block block)
{
    _Atomic uint32_t *local = local_at(d, block);
    uint32_t seen = atomic_load_explicit(local, memory_order_relaxed), tries = 0;
    for (;;) {
        uint32_t next =
            (seen & ~TNI_LOCAL_UNFINISHED) == 1 ? (uint32_t)TNI_LOCAL_BUSY : seen - 1;
        if (TNI_UNLIKELY(seen == TNI_LOCAL_BUSY || seen == 0)) {
            if (seen == 0)
                return false; /* not ours: a fork child without holds, or a double release */
            tni_os_back_off(tries++);
            seen = atomic_load_explicit(local, memory_order_relaxed);
        } else if (change_local(local, &seen, next)) {
            return next == TNI_LOCAL_BUSY;
        }
    }
}

/*
 * Add one local reference. True: it is the first, local[b] is TNI_LOCAL_BUSY and the caller
 * ends that.
 */
static bool local_add_first(struct tn_domain *d, tni_block block)
{
    _Atomic uint32_t *local = local_at(d, block);
    uint32_t seen = atomic_load_explicit(local, memory_order_relaxed), tries = 0;
    for (;;) {
        uint32_t next = seen == 0 ? TNI_LOCAL_BUSY : seen + 1;
        if (TNI_UNLIKELY(seen == TNI_LOCAL_BUSY)) {
            tni_os_back_off(tries++);
            seen = atomic_load_explicit(local, memory_order_relaxed);
        } else if (change_local(local, &seen, next)) {
            return next == TNI_LOCAL_BUSY;
        }
    }
}

/*
 * Give the hold back. pre: the last local reference was taken away, and nobody recounts the
 * block
 * @return whether the block is FREE now, by us; its word is *ret_freed then. Else it is
 * announced
 */
static inline bool release_hold(struct tn_domain *d, struct tni_thread *thread, tni_block block,
                                uint32_t at, uint64_t *ret_freed)
{
    tni_announce_now(thread, block);
    TNI_KILL_POINT("release_announced");
    tni_ref_clear_hold(d->row, at);
    TNI_KILL_POINT("release_unrecorded");
    /*
     * Before the block can be FREE: whoever allocates it next in this process finds local[b]
     * settled.
     */
    atomic_store_explicit(&d->local[at], 0, memory_order_release);
    if (TNI_UNLIKELY(tni_block_class(block) < TNI_SMALL_CLASS) ||
        TNI_UNLIKELY(!free_sole(tni_word_of(&d->segment, at), ret_freed)))
        return false;
    tni_announce_clear(thread);
    return true;
}

/* Give one local reference back, and with the last one the hold. @return whether it is FREE */
static inline bool release_local(struct tn_domain *d, struct tni_thread *thread,
                                 tni_block block)
{
    uint32_t at = tni_block_position(&d->segment.geometry, block);
    uint64_t freed;
    if (!tni_ref_is_local(d, at, 1) && !local_take_last(d, block))
        return false;
    tni_let_recount(thread, block, 1);
    if (TNI_LIKELY(release_hold(d, thread, block, at, &freed)))
        return true;
    bool is_freed = decrement(d, thread, block);
    tni_announce_clear(thread);
    return is_freed;
}

void tni_ref_release_with(struct tn_domain *d, struct tni_thread *thread, tni_block block)
{
    if (release_local(d, thread, block))
        tni_alloc_put(d, thread, block);
}

void tni_ref_release_unused(struct tn_domain *d, struct tni_thread *thread, tni_block block)
{
    if (release_local(d, thread, block))
        tni_alloc_publish(d, block);
}

/*
 * There is no hold to give back: closed (then local[] was summed up), or a child without a
 * seat.
 */
static void release_private(struct tn_domain *d, tni_block block)
{
    if (d->is_closed)
        tni_process_unkeep(d);
    else if (atomic_load_explicit(local_at(d, block), memory_order_relaxed) > 0)
        atomic_fetch_sub_explicit(local_at(d, block), 1, memory_order_relaxed);
}

static void keep_or_free(struct tni_thread *thread, struct tni_spare *spare)
{
    bool is_kept = spare != NULL && tni_thread_keep(thread, spare, (tni_block){0});
    tni_thread_leave(thread);
    if (!is_kept)
        free(spare);
}

static __attribute__((noinline)) void release_slowly(struct tn_domain *d, tni_block block,
                                                     struct tni_spare *spare)
{
    if (tni_process_is_copy(d))
        tni_process_set_apart();
    struct tni_thread *thread = tni_thread_enter(d);
    /* Read with the record in hand: tni_ref_close() had all of them when it set is_closed. */
    bool is_member = TNI_LIKELY(d->seat != TNI_NO_SEAT && !d->is_closed);
    if (is_member)
        tni_ref_release_with(d, thread, block);
    keep_or_free(thread, spare);
    if (!is_member)
        release_private(d, block); /* the domain may end with it */
}

void tni_ref_release(struct tn_domain *d, tni_block block) { release_slowly(d, block, NULL); }

/* The hold is given back; `is_free`: and so is the block. */
static __attribute__((noinline)) void end_release(struct tn_domain *d,
                                                  struct tni_thread *thread, tni_block block,
                                                  bool is_free, struct tni_spare *spare)
{
    if (is_free)
        tni_alloc_put(d, thread, block);
    else
        tni_ref_drop(d, thread, block);
    keep_or_free(thread, spare);
}

void tni_ref_release_and_keep(struct tn_domain *d, tni_block block, struct tni_spare *spare)
{
    struct tni_thread *thread;
    if (TNI_UNLIKELY(!tni_process_sits(d)) ||
        TNI_UNLIKELY((thread = tni_thread_enter_home(d)) == NULL)) {
        release_slowly(d, block, spare);
        return;
    }
    uint32_t at = tni_block_position(&d->segment.geometry, block);
    if (TNI_UNLIKELY(d->is_closed) || tni_thread_sees_recount(thread) ||
        TNI_UNLIKELY(!tni_ref_is_local(d, at, 1))) {
        tni_thread_leave(thread);
        release_slowly(d, block, spare);
        return;
    }
    bool is_free = release_hold(d, thread, block, at, &spare->freed);
    if (TNI_UNLIKELY(!is_free) || TNI_UNLIKELY(!tni_alloc_put_back(d, thread, block))) {
        end_release(d, thread, block, is_free, spare);
        return;
    }
    spare->at = at;
    bool is_kept = tni_thread_keep(thread, spare, block);
    tni_thread_leave(thread);
    if (TNI_UNLIKELY(!is_kept))
        free(spare);
}

void tni_ref_adopt_more(struct tn_domain *d, struct tni_thread *thread, tni_block block)
{
    if (local_add_first(d, block)) { /* another thread was at it a moment ago */
        tni_ref_record_hold(d, thread, block, tni_block_position(&d->segment.geometry, block));
        return;
    }
    /* Held already: the record's reference is one too many. */
    TNI_KILL_POINT("adopt_held_already");
    tni_ref_drop(d, thread, block);
}

/*
 * First the record's reference, while the caller's own one still keeps the block. Other threads
 * may give theirs back meanwhile: if the caller's was the last, the hold becomes the record's.
 */
int tni_ref_lend_more(struct tn_domain *d, tni_block block, bool move)
{
    uint32_t at = tni_block_position(&d->segment.geometry, block);
    if (move && tni_ref_is_local(d, at, TNI_LOCAL_UNFINISHED | 1)) {
        tni_ref_move_hold(d, block, at);
        return 0;
    }
    int status = increment(d, block, MOST_RECORDED);
    TNI_KILL_POINT("lend_incremented");
    if (status == 0 && move && local_take_last(d, block)) {
        atomic_fetch_add(tni_word_at(&d->segment, block), TNI_WORD_DEC);
        tni_ref_move_hold(d, block, at);
    }
    return status;
}

/* ---- allocation -------------------------------------------------------------------------- */

/* All but the generation and the time. */
static inline void describe(const struct tn_domain *d, struct tni_desc *desc, uint64_t bytes,
                            const struct tni_block_about *about)
{
    TNI_PUT(desc->creator_seat, (uint16_t)d->seat);
    TNI_PUT(desc->kind, about->kind);
    TNI_PUT(desc->ndim, about->ndim);
    TNI_PUT(desc->bytes, bytes);
    TNI_PUT(desc->dtype, about->dtype);
    TNI_PUT(desc->creator_pid, (uint32_t)d->me->pid);
    for (uint32_t i = 0; i < about->ndim && i < TNI_DESC_NDIM; i++)
        TNI_PUT(desc->shape[i], about->shape[i]);
}

/* Who recounts may still look at what the block was before. */
static void clear_records(struct tni_records *records)
{
    atomic_store_explicit(&records->count, 0, memory_order_relaxed);
    memset((uint8_t *)records + sizeof records->count, 0,
           sizeof *records - sizeof records->count);
}

/*
 * A block that was free although we hold it: its word, or our row, was overwritten. Two tensors
 * must not have it, and local[] stays what they rely on (I2). It stays ALLOC, and an audit
 * finds whose.
 */
static __attribute__((noinline)) int fail_held(struct tni_thread *thread, tni_block block)
{
    tni_announce_clear(thread);
    return tni_fail(TN_ERR_CORRUPT, "block %x was said to be free, and this process holds it",
                    block.id);
}

/* The hold of a block that was taken. Clears the announce. `about`: NULL if it is known */
static inline int record_hold(struct tn_domain *d, struct tni_thread *thread, tni_block block,
                              uint32_t at, uint64_t bytes, const struct tni_block_about *about)
{
    struct tni_desc *desc = tni_desc_of(&d->segment, at);
    if (TNI_UNLIKELY(atomic_load_explicit(&d->local[at], memory_order_relaxed) != 0))
        return fail_held(thread, block);
    TNI_PUT(desc->generation, desc->generation + 1);
    if (about != NULL)
        describe(d, desc, bytes, about);
    if (about != NULL && TNI_UNLIKELY(about->kind == TNI_KIND_MESSAGE))
        clear_records(tni_payload_at(&d->segment, block));
    tni_ref_set_hold(d, at);
    TNI_KILL_POINT("alloc_recorded");
    tni_announce_clear(thread);
    return 0;
}

bool tni_ref_alloc_again(struct tn_domain *d, struct tni_thread *thread,
                         const struct tni_spare *spare, uint64_t bytes,
                         const struct tni_block_about *about)
{
    tni_block block = spare->block;
    uint32_t at = spare->at;
    return TNI_LIKELY(tni_alloc_take_again(d, thread, spare)) &&
           TNI_LIKELY(record_hold(d, thread, block, at, bytes, about) == 0);
}

static inline int record_new(struct tn_domain *d, struct tni_thread *thread, tni_block block,
                             uint64_t bytes, const struct tni_block_about *about)
{
    uint32_t at = tni_block_position(&d->segment.geometry, block);
    tni_ref_note_local(d, block);
    int status = record_hold(d, thread, block, at, bytes, about);
    if (TNI_LIKELY(status == 0))
        tni_ref_born(d, at);
    return status;
}

bool tni_ref_alloc_warm(struct tn_domain *d, struct tni_thread *thread, uint64_t bytes,
                        const struct tni_block_about *about, tni_block *ret_block)
{
    return TNI_LIKELY(tni_alloc_take_warm(d, thread, bytes, ret_block)) &&
           TNI_LIKELY(record_new(d, thread, *ret_block, bytes, about) == 0);
}

/* One try. */
static inline int alloc_with(struct tn_domain *d, struct tni_thread *thread, uint64_t bytes,
                             const struct tni_block_about *about, bool want_memory,
                             tni_block *ret_block, bool *ret_is_zero)
{
    enum { MOST_HELD = 8 }; /* such blocks are noise: another one will do */
    tni_block block;
    int status = TN_ERR_CORRUPT;
    for (uint32_t tries = 0; status == TN_ERR_CORRUPT && tries < MOST_HELD; tries++) {
        status =
            tni_alloc_take(d, thread, bytes, about->kind, want_memory, &block, ret_is_zero);
        if (TNI_LIKELY(status == 0))
            status = record_new(d, thread, block, bytes, about);
    }
    if (TNI_LIKELY(status == 0)) {
        if (about->is_unfinished)
            atomic_fetch_or_explicit(local_at(d, block), TNI_LOCAL_UNFINISHED,
                                     memory_order_relaxed);
        *ret_block = block;
    }
    return status;
}

void tni_ref_finish(struct tn_domain *d, tni_block block)
{
    _Atomic uint32_t *local = local_at(d, block);
    if ((atomic_load_explicit(local, memory_order_relaxed) & TNI_LOCAL_UNFINISHED) != 0)
        atomic_fetch_and_explicit(local, ~TNI_LOCAL_UNFINISHED, memory_order_relaxed);
}

static int alloc_now(struct tn_domain *d, uint64_t bytes, const struct tni_block_about *about,
                     bool want_memory, tni_block *ret_block, bool *ret_is_zero)
{
    struct tni_thread *thread = tni_thread_enter(d);
    int status = alloc_with(d, thread, bytes, about, want_memory, ret_block, ret_is_zero);
    tni_thread_leave(thread);
    return status;
}

int tni_ref_alloc_with(struct tn_domain *d, struct tni_thread *thread, uint64_t bytes,
                       const struct tni_block_about *about, tni_block *ret_block)
{
    bool is_zero;
    return alloc_with(d, thread, bytes, about, true, ret_block, &is_zero);
}

/* ---- waiting for memory ------------------------------------------------------------------ */

/* One try among several: a look at the dead, or a sleep, comes after it. */
#define ROUND_NS (UINT64_C(5) * 1000 * 1000)

/* Try once; and again until then, or until the deadline, while it is open if there is room. */
static int try_until(struct tn_domain *d, struct tni_wish *wish, uint64_t until_ns)
{
    int status = wish->attempt(d, wish);
    if (wish->deadline_ns != 0)
        until_ns = TNI_MIN(until_ns, wish->deadline_ns);
    for (uint32_t tries = 0; status == TNI_ALLOC_AGAIN && tni_os_now_ns() < until_ns; tries++) {
        tni_os_back_off(tries);
        status = wish->attempt(d, wish);
    }
    return status;
}

/* Who is stopped in a commit leaves open if there is room: all that is free is given back. */
static int try_with_all_given_back(struct tn_domain *d, struct tni_wish *wish)
{
    struct tni_thread *thread = tni_thread_enter(d);
    tni_alloc_trim(d, thread, 0);
    tni_thread_leave(thread);
    wish->given_ns = tni_os_now_ns();
    return wish->attempt(d, wish);
}

/* The dead may have what is missing, or have announced that they commit. */
static int try_relieved(struct tn_domain *d, struct tni_wish *wish, int status)
{
    while (tni_ref_is_short(status) && tni_process_relieve(d, &wish->reliefs))
        status = try_until(d, wish, tni_os_now_ns() + ROUND_NS);
    return status;
}

/*
 * One sleep: until somebody frees memory, or the slice of the wait ends, as the machine's
 * memory comes back without a word.
 * @param seen  what tni_alloc_arm() returned before the last try
 */
static int sleep_once(struct tn_domain *d, const struct tni_wish *wish, struct tni_wait *wait,
                      uint32_t seen)
{
    char why[256]; /* who sleeps settles the dead, which may fail in its own ways */
    snprintf(why, sizeof why, "%s", tn_error_detail());
    int slept = tni_process_sleep(d, &d->segment.header->memory_wait, seen, wait);
    if (slept != TN_ERR_TIMED_OUT)
        return slept;
    return tni_fail(TN_ERR_TIMED_OUT, "no memory for %llu bytes until the deadline: %s",
                    (unsigned long long)wish->bytes, why);
}

static int try_and_sleep(struct tn_domain *d, struct tni_wish *wish)
{
    struct tni_wait wait = {.deadline_ns = wish->deadline_ns};
    for (;;) {
        uint32_t seen = tni_alloc_arm(d);
        uint64_t now_ns = tni_os_now_ns();
        int status = try_until(d, wish, now_ns + ROUND_NS);
        if (status == TNI_ALLOC_AGAIN && now_ns - wish->given_ns >= TNI_REF_PATIENCE_NS)
            status = try_with_all_given_back(d, wish);
        if (!tni_ref_is_short(status) || wish->lacks_other)
            return status;
        if ((status = sleep_once(d, wish, &wait, seen)) != 0 ||
            /* In a child that the program's hook forked, which may have no seat, too. */
            (status = tni_process_check(d)) != 0)
            return status;
    }
}

int tni_ref_insist(struct tn_domain *d, struct tni_wish *wish, int status)
{
    uint64_t begun_ns = tni_os_now_ns();
    uint64_t patience_ns = wish->deadline_ns == 0 ? TNI_REF_TRY_NS : TNI_REF_PATIENCE_NS;
    wish->given_ns = begun_ns;
    wish->reliefs = 0;
    if (wish->can_fit) {
        if (status == TNI_ALLOC_AGAIN)
            status = try_until(d, wish, begun_ns + ROUND_NS);
        status = try_relieved(d, wish, status);
        if (status == TNI_ALLOC_AGAIN) {
            status = try_until(d, wish, begun_ns + patience_ns);
            if (status == TNI_ALLOC_AGAIN)
                status = try_with_all_given_back(d, wish);
            status = try_relieved(d, wish, status);
        }
        if (tni_ref_is_short(status) && !wish->lacks_other && wish->deadline_ns != 0)
            return try_and_sleep(d, wish);
    }
    return status == TNI_ALLOC_AGAIN ? TN_ERR_NO_MEMORY : status;
}

struct alloc_wish {
    struct tni_wish wish;
    const struct tni_block_about *about;
    bool want_memory;
    tni_block *ret_block;
    bool *ret_is_zero;
};

static int attempt_alloc(struct tn_domain *d, struct tni_wish *wish)
{
    const struct alloc_wish *w = (const struct alloc_wish *)wish;
    return alloc_now(d, wish->bytes, w->about, w->want_memory, w->ret_block, w->ret_is_zero);
}

/* The largest class has blocks that are larger than the quota. */
bool tni_ref_can_fit(const struct tn_domain *d, uint64_t bytes, uint8_t kind)
{
    const struct tni_geometry *g = &d->segment.geometry;
    return tni_geometry_class(g, bytes, kind) != 0 &&
           tni_align_up(bytes, g->page_bytes) <= g->quota_limit_bytes;
}

int tni_ref_alloc(struct tn_domain *d, uint64_t bytes, const struct tni_block_about *about,
                  bool want_memory, uint64_t deadline_ns, tni_block *ret_block,
                  bool *ret_is_zero)
{
    int status = tni_process_check(d);
    if (status == 0)
        status = alloc_now(d, bytes, about, want_memory, ret_block, ret_is_zero);
    if (TNI_LIKELY(!tni_ref_is_short(status)))
        return status;
    struct alloc_wish w = {.wish = {.attempt = attempt_alloc,
                                    .bytes = bytes,
                                    .deadline_ns = deadline_ns,
                                    .can_fit = tni_ref_can_fit(d, bytes, about->kind)},
                           .about = about,
                           .want_memory = want_memory,
                           .ret_block = ret_block,
                           .ret_is_zero = ret_is_zero};
    return tni_ref_insist(d, &w.wish, status);
}

uint32_t tni_ref_generation(const struct tn_domain *d, tni_block block)
{
    return TNI_LOOK(tni_desc_at(&d->segment, block)->generation);
}

/* ---- message blocks ---------------------------------------------------------------------- */

static uint64_t most_records(const struct tni_segment *s, tni_block block)
{
    uint64_t bytes = tni_block_bytes(&s->geometry, block) - sizeof(struct tni_records);
    return bytes / sizeof(uint32_t);
}

struct tni_records *tni_records_at(const struct tni_segment *s, tni_block block,
                                   uint32_t *ret_count)
{
    struct tni_records *records = tni_payload_look(s, block);
    uint64_t most = most_records(s, block);
    uint32_t count = atomic_load_explicit(&records->count, memory_order_acquire);
    if (TNI_LIKELY(count <= most)) {
        *ret_count = count;
        return records;
    }
    tni_fail(TN_ERR_CORRUPT, "message block %x states %u records, it has room for %llu",
             block.id, count, (unsigned long long)most);
    return NULL;
}

int tni_records_add(struct tn_domain *d, tni_block message, tni_block block, bool move)
{
    uint32_t count;
    struct tni_records *records = tni_records_at(&d->segment, message, &count);
    if (records == NULL || count == most_records(&d->segment, message))
        return tni_fail(TN_ERR_CORRUPT, "message block %x has no room for another record",
                        message.id);
    struct tni_thread *thread = tni_thread_enter(d);
    tni_announce_fence(thread, block);
    int status = tni_ref_lend(d, block, move);
    if (status == 0) {
        TNI_PUT(records->block[count], block.id);
        atomic_store_explicit(&records->count, count + 1, memory_order_release);
        TNI_KILL_POINT("records_added");
    }
    tni_announce_clear(thread);
    tni_thread_leave(thread);
    return status;
}

/* I4. pre: `message` is announced as outer, its count is 0 and it is not FREE. */
static void take_apart(struct tn_domain *d, struct tni_thread *thread, tni_block message)
{
    uint32_t count;
    struct tni_records *records = tni_records_at(&d->segment, message, &count);
    /* Senseless: what it held is found by an audit. */
    for (; records != NULL && count > 0; count--) {
        tni_block block = {TNI_LOOK(records->block[count - 1])};
        bool is_known = tni_geometry_has_block(&d->segment.geometry, block.id) &&
                        !tni_class_is_message(tni_block_class(block));
        if (is_known)
            tni_announce(thread, block, 1);
        atomic_store_explicit(&records->count, count - 1, memory_order_seq_cst);
        TNI_KILL_POINT("take_apart_unrecorded");
        if (is_known)
            tni_ref_drop(d, thread, block);
    }
}

/* ---- fork -------------------------------------------------------------------------------- */

static bool is_unfinished(const struct tn_domain *d, uint32_t at)
{
    uint32_t local = atomic_load_explicit(&d->local[at], memory_order_relaxed);
    return local != TNI_LOCAL_BUSY && (local & TNI_LOCAL_UNFINISHED) != 0;
}

/* I6. Of 64 holds side by side, those that the child gets. */
static uint64_t hold_back(struct tn_domain *d, uint32_t at, uint64_t bits)
{
    for (uint64_t left = bits; left != 0; left &= left - 1) {
        if (!is_unfinished(d, at + tni_low_bit(left)))
            continue;
        bits &= ~(left & -left);
        tni_ref_part(d)->held_back++;
    }
    return bits;
}

/*
 * The child's holds of 64 blocks side by side, under one announce: an increment each (I1), then
 * one change of the child's row for all of them.
 */
static int give_child_word(struct tn_domain *d, uint32_t child, tni_block first, uint64_t bits)
{
    struct tni_thread *thread = tni_process_fork_thread(d);
    uint32_t at = tni_block_position(&d->segment.geometry, first);
    uint64_t given = 0;
    int status = 0;

    tni_announce(thread, first, 64);
    for (; bits != 0 && status == 0; bits &= bits - 1) {
        status = increment(d, (tni_block){first.id + tni_low_bit(bits)}, MOST_PINNED);
        TNI_KILL_POINT("fork_incremented");
        if (status == 0)
            given |= bits & -bits;
    }
    atomic_fetch_or(tni_row_at(&d->segment, child, at), given);
    TNI_KILL_POINT("fork_recorded");
    tni_announce_clear(thread);
    return status;
}

/* In the parent, with every thread record in hand. */
static int give_child_holds(struct tn_domain *d, uint32_t child)
{
    const struct tni_geometry *g = &d->segment.geometry;
    int status = 0;

    tni_ref_part(d)->held_back = 0;
    for (uint32_t c = 1; c < g->class_count && status == 0; c++) {
        uint32_t words = (tni_frontier(&d->segment, c) + 63) / 64;
        for (uint32_t w = 0; w < words && status == 0; w++) {
            tni_block first = tni_block_make(c, w * 64);
            uint64_t bits =
                atomic_load(tni_row_at(&d->segment, d->seat, tni_block_position(g, first)));
            if (g->classes[c].capacity - w * 64 < 64) /* beyond the last block it is noise */
                bits &= (UINT64_C(1) << (g->classes[c].capacity - w * 64)) - 1;
            bits = hold_back(d, tni_block_position(g, first), bits);
            if (bits != 0)
                status = give_child_word(d, child, first, bits);
        }
    }
    atomic_store_explicit(&tni_process_fork_thread(d)->announce->span, 1, memory_order_relaxed);
    return status;
}

/*
 * I6. In the child, whose other threads are gone. Without a seat it had nobody count what was
 * held back.
 */
TNI_AROUND_FORK static void forget_unfinished(struct tn_domain *d)
{
    const struct tni_geometry *g = &d->segment.geometry;
    if (d->seat != TNI_NO_SEAT && tni_ref_part(d)->held_back == 0)
        return;
    for (uint32_t c = 1; c < g->class_count; c++) {
        uint32_t base = g->classes[c].base, limit = atomic_load(&d->local_limit[c]);
        for (uint32_t i = 0; i < limit; i++)
            if (is_unfinished(d, base + i))
                atomic_store_explicit(&d->local[base + i], 0, memory_order_relaxed);
    }
}

int tni_ref_init(struct tn_domain *d)
{
    tni_process_hook(
        d, &(struct tni_fork_hooks){.prepare = give_child_holds, .child = forget_unfinished});
    return 0;
}

/* ---- for the reaper ---------------------------------------------------------------------- */

static void release_bit(struct tn_domain *d, struct tni_thread *thread, uint32_t seat,
                        tni_block block)
{
    tni_announce(thread, block, 1);
    tni_ref_clear_hold(tni_row_at(&d->segment, seat, 0),
                       tni_block_position(&d->segment.geometry, block));
    TNI_KILL_POINT("row_unrecorded");
    bool is_freed = decrement(d, thread, block);
    tni_announce_clear(thread);
    if (is_freed)
        tni_alloc_publish(d, block);
}

static uint64_t release_row(struct tn_domain *d, struct tni_thread *thread, uint32_t seat)
{
    const struct tni_geometry *g = &d->segment.geometry;
    uint64_t released = 0;

    for (uint32_t c = 1; c < g->class_count; c++) {
        uint32_t words = (tni_frontier(&d->segment, c) + 63) / 64;
        for (uint32_t w = 0; w < words; w++) {
            uint32_t at = g->classes[c].base + w * 64;
            uint64_t bits = atomic_load(tni_row_at(&d->segment, seat, at));
            for (; bits != 0; bits &= bits - 1, released++) {
                tni_block block = tni_block_make(c, w * 64 + tni_low_bit(bits));
                if (tni_geometry_has_block(g, block.id))
                    release_bit(d, thread, seat, block);
            }
        }
    }
    if (released > 0)
        tni_alloc_wake(d);
    return released;
}

uint64_t tni_ref_release_row(struct tn_domain *d, uint32_t seat)
{
    struct tni_thread *thread = tni_thread_enter(d);
    uint64_t released = release_row(d, thread, seat);
    tni_thread_leave(thread);
    return released;
}

/* Local references that are left, with every thread record in hand. */
static uint64_t sum_locals(struct tn_domain *d)
{
    const struct tni_geometry *g = &d->segment.geometry;
    uint64_t sum = 0;
    for (uint32_t c = 1; c < g->class_count; c++) {
        uint32_t limit = atomic_load(&d->local_limit[c]);
        for (uint32_t i = 0; i < limit; i++)
            sum +=
                atomic_load_explicit(local_at(d, tni_block_make(c, i)), memory_order_relaxed) &
                ~TNI_LOCAL_UNFINISHED;
    }
    return sum;
}

void tni_ref_close(struct tn_domain *d)
{
    for (uint32_t t = 0; t < TNI_THREADS; t++)
        tni_thread_take(&d->threads[t]);
    if (!d->is_closed) {
        atomic_fetch_add(&d->keepers, sum_locals(d));
        if (d->seat != TNI_NO_SEAT)
            release_row(d, &d->threads[0], d->seat);
        d->is_closed = true;
    }
    for (uint32_t t = 0; t < TNI_THREADS; t++)
        tni_thread_leave(&d->threads[t]);
}

/* Every record of every live message block. */
static void for_each_message_record(const struct tni_segment *s, tni_record_fn *each,
                                    void *context)
{
    for (uint32_t c = 1; c <= TNI_MESSAGE_CLASSES; c++) {
        uint32_t frontier = tni_frontier(s, c);
        for (uint32_t i = 0; i < frontier; i++) {
            tni_block message = tni_block_make(c, i);
            if (tni_word_state(atomic_load(tni_word_at(s, message))) != TNI_BLOCK_ALLOC ||
                !tni_alloc_has_memory(s, message))
                continue;
            uint32_t count;
            const struct tni_records *records = tni_records_at(s, message, &count);
            for (uint32_t r = 0; records != NULL && r < count; r++)
                each((tni_block){TNI_LOOK(records->block[r])}, context);
        }
    }
}

static void for_each_hold(const struct tni_segment *s, uint32_t seat, tni_record_fn *each,
                          void *context)
{
    for (uint32_t c = 1; c < s->geometry.class_count; c++) {
        uint32_t words = (tni_frontier(s, c) + 63) / 64;
        for (uint32_t w = 0; w < words; w++) {
            uint64_t bits =
                atomic_load(tni_row_at(s, seat, s->geometry.classes[c].base + w * 64));
            for (; bits != 0; bits &= bits - 1)
                each(tni_block_make(c, w * 64 + tni_low_bit(bits)), context);
        }
    }
}

void tni_ref_for_each_record(const struct tni_segment *s, tni_record_fn *each, void *context)
{
    uint32_t limit = tni_seat_limit(s);
    for (uint32_t seat = 0; seat < limit; seat++)
        for_each_hold(s, seat, each, context);
    for_each_message_record(s, each, context);
}

struct counted {
    tni_block block;
    uint64_t count;
};

static void count_same(tni_block block, void *context)
{
    struct counted *counted = context;
    counted->count += block.id == counted->block.id;
}

uint64_t tni_ref_count_records(const struct tni_segment *s, tni_block block)
{
    uint32_t at = tni_block_position(&s->geometry, block), limit = tni_seat_limit(s);
    struct counted counted = {.block = block};

    for (uint32_t seat = 0; seat < limit; seat++)
        counted.count += atomic_load(tni_row_at(s, seat, at)) >> (at % 64) & 1;
    if (!tni_class_is_message(tni_block_class(block))) /* messages are never inside messages */
        for_each_message_record(s, count_same, &counted);
    return counted.count;
}

bool tni_ref_settle(struct tn_domain *d, struct tni_thread *thread, tni_block block,
                    uint64_t seen, uint64_t records)
{
    _Atomic uint64_t *word = tni_word_at(&d->segment, block);

    if (tni_word_state(seen) == TNI_BLOCK_FREE || records > 0) {
        uint32_t state = tni_word_state(seen);
        uint32_t count = state == TNI_BLOCK_FREE ? 0 : (uint32_t)records;
        if (!atomic_compare_exchange_strong(word, &seen, tni_word_next(seen, state, count)))
            return false;
        /* Whoever wanted to allocate it meanwhile could not, and has lost its hint. */
        if (state == TNI_BLOCK_FREE)
            tni_alloc_publish(d, block);
        return true;
    }
    uint32_t generation = tni_ref_generation(d, block); /* it stands while the word does */
    /* Ours alone from here on: the word moves, and `outer` tells others to keep off. */
    if (!atomic_compare_exchange_strong(word, &seen, tni_word_next(seen, TNI_BLOCK_ALLOC, 0)))
        return false;
    seen = tni_word_next(seen, TNI_BLOCK_ALLOC, 0);
    if (tni_class_is_message(tni_block_class(block)))
        take_apart(d, thread, block);
    if (tni_class_is_backing(tni_block_class(block)))
        tni_backing_end(d, block, generation);
    if (atomic_compare_exchange_strong(word, &seen, tni_word_next(seen, TNI_BLOCK_FREE, 0)))
        tni_alloc_publish(d, block);
    return true;
}
