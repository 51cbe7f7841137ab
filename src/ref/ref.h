/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ref: crash-safe references to blocks.
 *
 * A record is anything in shared memory that names a block and keeps it: a hold bit, a full
 * slot, an entry of a message block, a ticket, an object's ring. count >= records, always;
 * equality when nobody is mid-operation. Order: increment before recording, un-record before
 * decrementing; and when a reference passes from one record to another, un-record before
 * recording. A thread that is between the two announces the block.
 *
 * A process's own references of one block are counted in private memory; only their 0 <-> 1
 * sets and clears the hold bit.
 */
#ifndef TNI_REF_H
#define TNI_REF_H

#include "backing/backing.h"

/* What this room keeps of a domain. */
struct tni_ref_part {
    uint64_t held_back; /* unfinished blocks that the last fork kept from the child */
};
TNI_PART(ref, TNI_PART_REF)

/* A block's count of local references while a thread changes its hold bit: ref.c, I2. */
#define TNI_LOCAL_BUSY UINT32_MAX
/*
 * With the count of a block that one call has made and handed to nobody: ref.c, I6. The mark
 * goes when the block is lent with `move`, released, or finished.
 */
#define TNI_LOCAL_UNFINISHED (UINT32_C(1) << 31)

/** Called with every block that a record names. */
typedef void tni_record_fn(tni_block block, void *context);

struct tni_block_about {
    uint8_t kind; /* TNI_KIND_* */
    uint8_t ndim;
    bool is_unfinished; /* the call that allocates it may wait, or stand aside, while it has it
                         */
    uint32_t dtype;     /* {lanes:16, bits:8, code:8} */
    const int64_t *shape;
};

/** Private state and fork hook. */
int tni_ref_init(struct tn_domain *domain);

/**
 * Allocate a block with one local reference. Waits for memory until `deadline_ns`.
 * @param want_memory  as of tni_alloc_take()
 * @return 0, TN_ERR_NO_MEMORY, TN_ERR_FULL, TN_ERR_TIMED_OUT (deadline not 0), TN_ERR_INVALID
 */
int tni_ref_alloc(struct tn_domain *domain, uint64_t bytes, const struct tni_block_about *about,
                  bool want_memory, uint64_t deadline_ns, tni_block *ret_block,
                  bool *ret_is_zero);
/**
 * One try of that, with memory and without patience; the caller keeps forks away.
 * @return as of tni_ref_alloc(), or TNI_ALLOC_AGAIN
 */
int tni_ref_alloc_with(struct tn_domain *domain, struct tni_thread *thread, uint64_t bytes,
                       const struct tni_block_about *about, tni_block *ret_block);

/**
 * From here on a forked child gets a hold of this block too: something names it. Of a block
 * that is not marked, nothing changes.
 */
void tni_ref_finish(struct tn_domain *domain, tni_block block);

/** Whether all memory of the domain, if it were free, would do for a block. */
bool tni_ref_can_fit(const struct tn_domain *domain, uint64_t bytes, uint8_t kind);

/** Whether a try failed for want of what others may give back. */
static inline bool tni_ref_is_short(int status)
{
    return status == TN_ERR_NO_MEMORY || status == TN_ERR_FULL || status == TNI_ALLOC_AGAIN;
}

/**
 * A call that found too little memory, and tries again. Between two tries, and asleep, the call
 * has nothing: no record of a thread, and no block, which a forked child would get a hold of,
 * and whose memory others may wait for.
 */
struct tni_wish {
    /** One try. @return 0, TNI_ALLOC_AGAIN, TN_ERR_NO_MEMORY, TN_ERR_FULL, or another error */
    int (*attempt)(struct tn_domain *domain, struct tni_wish *wish);
    uint64_t bytes;       /* that are wanted; the error says so */
    uint64_t deadline_ns; /* 0: does not wait */
    bool can_fit;         /* if all other memory were free; else nothing is tried again */
    bool lacks_other;     /* the last try: what it lacks is no memory, and is not waited for */
    uint32_t reliefs;     /* this and the next are tni_ref_insist()'s */
    uint64_t given_ns;    /* when all free memory was given back, or the call began */
};
/* How long a call that does not wait comes again while others commit or give back. */
#define TNI_REF_TRY_NS (UINT64_C(100) * 1000 * 1000)
/* How long a call that waits comes again, while others commit, before it sleeps. */
#define TNI_REF_PATIENCE_NS (UINT64_C(1000) * 1000 * 1000)
/**
 * The tries after the first one, which returned `status`. The call reclaims the dead at least
 * once. While others commit, and so leave open whether there is room, it comes again: for a
 * second, or until its deadline; for 100 ms without one. Then it gives all free memory of the
 * domain back, once a second at most, and, with a deadline, sleeps between tries.
 * @return 0, what a try returned, TN_ERR_TIMED_OUT, TN_ERR_INTERRUPTED
 */
int tni_ref_insist(struct tn_domain *domain, struct tni_wish *wish, int status);

/**
 * The same of a tensor for whose size this thread has a block that was used before, in its
 * cache. Never waits. False: there is none, or it cannot be used; tni_ref_alloc() will tell.
 * pre: tni_process_check()
 */
bool tni_ref_alloc_warm(struct tn_domain *domain, struct tni_thread *thread, uint64_t bytes,
                        const struct tni_block_about *about, tni_block *ret_block);

/**
 * The same of the block that the object in `spare` gave back, if nobody had it since and this
 * thread freed none of its size later; it had memory for `bytes` then. When it was born is
 * tni_ref_born() to say.
 * @param about  NULL: the descriptor says that already
 */
bool tni_ref_alloc_again(struct tn_domain *domain, struct tni_thread *thread,
                         const struct tni_spare *spare, uint64_t bytes,
                         const struct tni_block_about *about);
/** Write the time, as tni_os_shared_ns() counts it, into the descriptor at a block's position.
 */
static inline void tni_ref_born(const struct tn_domain *domain, uint32_t at)
{
    TNI_PUT(tni_desc_of(&domain->segment, at)->born_ns,
            tni_os_coarse_ns() - domain->clock_ahead_ns);
}

/** One more local reference of a block that this process holds. */
void tni_ref_local(struct tn_domain *domain, tni_block block);

/**
 * The same of a block that this process may hold, or may be giving back in another thread.
 * @return whether it held it, and the reference is the caller's
 */
bool tni_ref_local_if_held(struct tn_domain *domain, tni_block block);

/** Give a local reference back; with the last one, the hold. */
void tni_ref_release(struct tn_domain *domain, tni_block block);
/**
 * The same, and keep the memory of the private object that had the reference for the next one,
 * or free() it.
 */
void tni_ref_release_and_keep(struct tn_domain *domain, tni_block block,
                              struct tni_spare *spare);
void tni_ref_release_with(struct tn_domain *domain, struct tni_thread *thread, tni_block block);
/**
 * The same of a block that was free a moment ago and that nobody heard of. Wakes nobody: who
 * waits for memory tries again by itself, and would wake the one who gives this back.
 */
void tni_ref_release_unused(struct tn_domain *domain, struct tni_thread *thread,
                            tni_block block);

/**
 * Give back every hold of this process, once: from here on tni_ref_release() touches no shared
 * memory. Each local reference that is left becomes a keeper of the domain. pre: no thread
 * record in hand; LEAVING.
 */
void tni_ref_close(struct tn_domain *domain);

/** Generation of a live block, for handles. */
uint32_t tni_ref_generation(const struct tn_domain *domain, tni_block block);

/* ---- between records: for rooms above, with the thread's record in hand ------------------ */

/* A row is written by its own seat only (or, once that is dead, by one reaper). */
static inline void tni_ref_clear_hold(_Atomic uint64_t *row, uint32_t at)
{
    uint64_t bit = UINT64_C(1) << (at % 64);
    row += at / 64;
    if (TNI_LIKELY(TNI_IS_SOLO()))
        atomic_store_explicit(row, atomic_load_explicit(row, memory_order_relaxed) & ~bit,
                              memory_order_release);
    else
        atomic_fetch_and_explicit(row, ~bit, memory_order_acq_rel);
}
/* With the one local reference that the hold is for. pre: local[at] is 0, or BUSY by us (I2) */
static inline void tni_ref_set_hold(struct tn_domain *d, uint32_t at)
{
    _Atomic uint64_t *row = &d->row[at / 64];
    uint64_t bit = UINT64_C(1) << (at % 64);
    if (TNI_LIKELY(TNI_IS_SOLO()))
        atomic_store_explicit(row, atomic_load_explicit(row, memory_order_relaxed) | bit,
                              memory_order_release);
    else
        atomic_fetch_or_explicit(row, bit, memory_order_acq_rel);
    /* pairs with the acquire of who takes or adds a local reference */
    atomic_store_explicit(&d->local[at], 1, memory_order_release);
}

/* Turn a block's local count from `seen` into BUSY, or just see it where there is one thread.
 */
static inline bool tni_ref_is_local(struct tn_domain *d, uint32_t at, uint32_t seen)
{
    return TNI_LIKELY(TNI_IS_SOLO())
               ? atomic_load_explicit(&d->local[at], memory_order_relaxed) == seen
               : atomic_compare_exchange_strong_explicit(&d->local[at], &seen, TNI_LOCAL_BUSY,
                                                         memory_order_acq_rel,
                                                         memory_order_relaxed);
}

/* What is private is not bounded by what is shared: a frontier may be noise. */
static inline void tni_ref_note_local(struct tn_domain *d, tni_block block)
{
    _Atomic uint32_t *limit = &d->local_limit[tni_block_class(block)];
    if (TNI_UNLIKELY(tni_block_index(block) >=
                     atomic_load_explicit(limit, memory_order_relaxed)))
        tni_raise_limit(limit, tni_block_index(block) + 1);
}

/**
 * Before un-recording what is then adopted: see ref.c, I5. pre: announced, and a
 * read-modify-write since.
 */
static inline void tni_ref_before_move(struct tn_domain *d, tni_block block)
{
    if (TNI_UNLIKELY(atomic_load(&d->segment.header->recount) != 0))
        atomic_fetch_add(tni_word_at(&d->segment, block), TNI_WORD_VERSION_ONE);
}

/* The hold becomes a record's. pre: its last local reference is taken away, and BUSY */
static inline void tni_ref_move_hold(struct tn_domain *d, tni_block block, uint32_t at)
{
    tni_ref_before_move(d, block);
    tni_ref_clear_hold(d->row, at);
    TNI_KILL_POINT("lend_moved");
    atomic_store_explicit(&d->local[at], 0, memory_order_release);
}
/* A record's reference becomes the hold. pre: as of tni_ref_set_hold() */
static inline void tni_ref_record_hold(struct tn_domain *d, struct tni_thread *thread,
                                       tni_block block, uint32_t at)
{
    tni_ref_note_local(d, block);
    tni_ref_set_hold(d, at);
    TNI_KILL_POINT("adopt_recorded");
    tni_announce_clear(thread);
}

int tni_ref_lend_more(struct tn_domain *domain, tni_block block, bool move);
/**
 * Make a reference for a record, from a local reference of the caller.
 *
 * With `move`, the caller's local reference is consumed; if it was the process's last one, its
 * hold becomes the record's reference and no count changes. The caller then writes the record
 * and clears the announce. pre: announced, and a read-modify-write or fence since (ref.c, I5).
 * @return 0, or TN_ERR_FULL: the block has 2^24 - 1 references
 */
static inline int tni_ref_lend(struct tn_domain *d, tni_block block, bool move)
{
    uint32_t at = tni_block_position(&d->segment.geometry, block);
    if (TNI_UNLIKELY(!move || !tni_ref_is_local(d, at, 1)))
        return tni_ref_lend_more(d, block, move);
    tni_ref_move_hold(d, block, at);
    return 0;
}

void tni_ref_adopt_more(struct tn_domain *domain, struct tni_thread *thread, tni_block block);
/**
 * Take over the reference of a record. First tni_announce() the block, then
 * tni_ref_before_move(), then un-record, then this: the reference becomes a local one of this
 * process. Clears the announce.
 */
static inline void tni_ref_adopt(struct tn_domain *d, struct tni_thread *thread,
                                 tni_block block)
{
    uint32_t at = tni_block_position(&d->segment.geometry, block);
    if (TNI_LIKELY(tni_ref_is_local(d, at, 0)))
        tni_ref_record_hold(d, thread, block, at);
    else
        tni_ref_adopt_more(d, thread, block);
}

/** Drop the reference of a record that was un-recorded. pre: announced. Clears the announce. */
void tni_ref_drop(struct tn_domain *domain, struct tni_thread *thread, tni_block block);

/**
 * A reference from nothing but a name: +1, to be checked and then recorded or dropped. pre:
 * announced.
 */
int tni_ref_pin(struct tn_domain *domain, tni_block block);
/**
 * TN_ERR_FULL where tni_ref_pin() would say so. Of a block that a record keeps, nothing but
 * noise can bring that about between the two.
 */
int tni_ref_check_room(struct tn_domain *domain, tni_block block);

/* ---- message blocks ---------------------------------------------------------------------- */

/**
 * The head of a message block, checked against its size; NULL and TN_ERR_CORRUPT's detail if it
 * makes no sense.
 */
struct tni_records *tni_records_at(const struct tni_segment *segment, tni_block block,
                                   uint32_t *ret_count);
/** Add a record to a message block that this process holds and nobody else sees yet. */
int tni_records_add(struct tn_domain *domain, tni_block message, tni_block block, bool move);

/* ---- for the reaper ---------------------------------------------------------------------- */

/** Give back every hold of a seat that is dead, or leaving. Resumable. @return how many */
uint64_t tni_ref_release_row(struct tn_domain *domain, uint32_t seat);
/** How many hold bits and message records name a block. */
uint64_t tni_ref_count_records(const struct tni_segment *segment, tni_block block);
/** All of them. */
void tni_ref_for_each_record(const struct tni_segment *segment, tni_record_fn *each,
                             void *context);
/**
 * Bring a block's count down to `records`, if its word still is `seen`; 0 frees it, and what a
 * message block holds.
 * pre: announced by thread as `outer`. @return whether it was done
 */
bool tni_ref_reclaim(struct tn_domain *domain, struct tni_thread *thread, tni_block block,
                     uint64_t seen, uint64_t records);

#endif
