/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ref: crash-safe references to blocks.
 *
 * A record is anything in shared memory that names a block and keeps it: a hold bit, a full
 * slot, an entry of a message block, a ticket, an object's ring. A block's count is never below
 * the number of its records, and equal to it when no operation is in flight. A thread counts up
 * before it writes a record, and erases a record before it counts down. When it moves a
 * reference from one record to another, it erases the old record before it writes the new one.
 * Between the two steps it announces the block.
 *
 * A process counts its own references to a block, its local references, in private memory. It
 * sets the hold bit with the first one and clears it with the last one.
 */
#ifndef TNI_REF_H
#define TNI_REF_H

#include "backing/backing.h"

/* What this room keeps of a domain. */
struct tni_ref_part {
    uint64_t withheld; /* unfinished blocks of which the last fork gave the child no hold */
};
TNI_PART(ref, TNI_PART_REF)

/* In place of a block's count of local references while a thread changes the hold bit: I2. */
#define TNI_LOCAL_BUSY UINT32_MAX
/*
 * Added to the count of local references of a block that only the call that made it knows: I6.
 * The mark ends when the block is lent with `move`, released, or finished.
 */
#define TNI_LOCAL_UNFINISHED (UINT32_C(1) << 31)

/** Called with every block that a record names. */
typedef void tni_record_fn(tni_block block, void *context);

/** What a new block is for. */
struct tni_block_about {
    uint8_t kind; /* TNI_KIND_* */
    uint8_t ndim;
    bool is_unfinished; /* mark it: the call may wait, or let fork() go on, before it is done */
    bool is_uncommitted; /* memory may be missing behind it: the caller commits it */
    uint32_t dtype;      /* {lanes:16, bits:8, code:8} */
    const int64_t *shape;
};

/** Register the fork hook. */
int tni_ref_init(struct tn_domain *domain);

/**
 * Allocate a block with one local reference. Waits for memory until `deadline_ns`; 0: does not
 * wait.
 * @param ret_new  undefined after a failure
 * @return 0, TN_ERR_NO_MEMORY, TN_ERR_FULL, TN_ERR_TIMED_OUT (deadline not 0), TN_ERR_INVALID
 */
int tni_ref_alloc(struct tn_domain *domain, uint64_t bytes, const struct tni_block_about *about,
                  uint64_t deadline_ns, struct tni_new_block *ret_new);
/**
 * Try once to allocate a block, with a thread record that the caller has, so that no fork()
 * runs meanwhile.
 * @return as of tni_ref_alloc(), or TNI_ALLOC_AGAIN
 */
int tni_ref_alloc_with(struct tn_domain *domain, struct tni_thread *thread, uint64_t bytes,
                       const struct tni_block_about *about, tni_block *ret_block);

/**
 * Remove the mark TNI_LOCAL_UNFINISHED, if the block has it: from now on a forked child
 * inherits a hold of the block.
 */
void tni_ref_finish(struct tn_domain *domain, tni_block block);

/** Whether a block could be allocated if all memory of the domain were free. */
bool tni_ref_can_fit(const struct tn_domain *domain, uint64_t bytes, uint8_t kind);

/** Whether a try failed because it lacked blocks or memory that other threads may release. */
static inline bool tni_ref_is_short(int status)
{
    return status == TN_ERR_NO_MEMORY || status == TN_ERR_FULL || status == TNI_ALLOC_AGAIN;
}

/**
 * A call that lacked memory and retries. Between two tries, and while it sleeps, the call has
 * no thread record and no block: a forked child would inherit a hold of such a block, and other
 * threads may be waiting for its memory.
 */
struct tni_retry {
    /** One try. @return 0, TNI_ALLOC_AGAIN, TN_ERR_NO_MEMORY, TN_ERR_FULL, or another error */
    int (*attempt)(struct tn_domain *domain, struct tni_retry *retry);
    uint64_t bytes;       /* how many the call needs, for the error sentence */
    uint64_t deadline_ns; /* 0: does not wait */
    bool can_fit;         /* if all other memory were free; false: never retry */
    bool lacks_other;  /* set by a try that lacked something other than memory: do not wait */
    uint32_t reliefs;  /* this and the next are written by tni_ref_retry() */
    uint64_t given_ns; /* when all free memory was given back last, or the call began */
};
/* How long a call without a deadline retries while other threads commit or trim. */
#define TNI_REF_TRY_NS (UINT64_C(100) * 1000 * 1000)
/* How long a call with a deadline retries while other threads commit, before it sleeps. */
#define TNI_REF_PATIENCE_NS (UINT64_C(1000) * 1000 * 1000)
/**
 * Make further tries after the first one, which returned `status`. Reclaims dead processes at
 * least once. As long as TNI_ALLOC_AGAIN leaves open whether there is room, retries: with a
 * deadline for a second or until the deadline, else for 100 ms. Then gives all free memory of
 * the domain back, once a second at most, and, with a deadline, sleeps between tries.
 * @return 0, the result of a try, TN_ERR_TIMED_OUT, TN_ERR_INTERRUPTED
 */
int tni_ref_retry(struct tn_domain *domain, struct tni_retry *retry, int status);

/**
 * Allocate a block for a tensor from this thread's cache, if the block there already has
 * memory. Never waits. False: there is no such block; call tni_ref_alloc(). pre:
 * tni_process_check()
 */
bool tni_ref_alloc_warm(struct tn_domain *domain, struct tni_thread *thread, uint64_t bytes,
                        const struct tni_block_about *about, tni_block *ret_block);

/**
 * Allocate again the block that the object in `spare` freed, if no thread had it since and this
 * thread freed no other block of its class later. The block still has memory for `bytes`, as it
 * had then. The caller calls tni_ref_born().
 * @param about  NULL: the descriptor is already right
 */
bool tni_ref_alloc_again(struct tn_domain *domain, struct tni_thread *thread,
                         const struct tni_spare *spare, uint64_t bytes,
                         const struct tni_block_about *about);
/** Write the time of creation, on the clock of tni_os_shared_ns(), into a block's descriptor.
 */
static inline void tni_ref_born(const struct tn_domain *domain, uint32_t at)
{
    TNI_PUT(tni_desc_of(&domain->segment, at)->born_ns,
            tni_os_coarse_ns() - domain->clock_ahead_ns);
}

/** Add a local reference to a block that this process holds. */
void tni_ref_local(struct tn_domain *domain, tni_block block);

/**
 * Add a local reference to a block if this process holds it. Another thread may be releasing
 * the block at the same time.
 * @return whether this process held the block; true: the caller has a reference now
 */
bool tni_ref_local_if_held(struct tn_domain *domain, tni_block block);

/** Release a local reference; the last one also releases the hold. */
void tni_ref_release(struct tn_domain *domain, tni_block block);
/**
 * Release a local reference, and keep the memory of the private object that had it for the next
 * object, or free() it.
 */
void tni_ref_release_and_keep(struct tn_domain *domain, tni_block block,
                              struct tni_spare *spare);
/** Release a local reference, with a thread record that the caller has. */
void tni_ref_release_with(struct tn_domain *domain, struct tni_thread *thread, tni_block block);
/**
 * Release a block that the caller has just allocated and shown to nobody, after its own try to
 * get memory failed. Wakes nobody: a thread that waits for memory would be woken, fail in the
 * same way, and wake this one.
 */
void tni_ref_release_unused(struct tn_domain *domain, struct tni_thread *thread,
                            tni_block block);

/**
 * Release every hold of this process, once. From then on tni_ref_release() touches no shared
 * memory: each local reference that is left counts as a keeper of the domain. pre: the caller
 * has no thread record; the seat is LEAVING
 */
void tni_ref_close(struct tn_domain *domain);

/** The generation of a live block: how often it was allocated. A handle carries it. */
uint32_t tni_ref_generation(const struct tn_domain *domain, tni_block block);

/* ---- moving references between records: for rooms above, which have a thread record ------ */

/* Only the seat's own process writes a row, or one reaper if that process is dead. */
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
/* Set the hold bit, and the local count to 1. pre: local[at] is 0, or BUSY by this thread (I2)
 */
static inline void tni_ref_set_hold(struct tn_domain *d, uint32_t at)
{
    _Atomic uint64_t *row = &d->row[at / 64];
    uint64_t bit = UINT64_C(1) << (at % 64);
    if (TNI_LIKELY(TNI_IS_SOLO()))
        atomic_store_explicit(row, atomic_load_explicit(row, memory_order_relaxed) | bit,
                              memory_order_release);
    else
        atomic_fetch_or_explicit(row, bit, memory_order_acq_rel);
    /* pairs with the acquire of a thread that adds or takes a local reference */
    atomic_store_explicit(&d->local[at], 1, memory_order_release);
}

/*
 * Whether a block's local count is `seen`. If it is, the count becomes BUSY, unless the process
 * has only one thread.
 */
static inline bool tni_ref_is_local(struct tn_domain *d, uint32_t at, uint32_t seen)
{
    return TNI_LIKELY(TNI_IS_SOLO())
               ? atomic_load_explicit(&d->local[at], memory_order_relaxed) == seen
               : atomic_compare_exchange_strong_explicit(&d->local[at], &seen, TNI_LOCAL_BUSY,
                                                         memory_order_acq_rel,
                                                         memory_order_relaxed);
}

/* A private limit of `local` is kept, since the shared frontier may be damaged. */
static inline void tni_ref_note_local(struct tn_domain *d, tni_block block)
{
    _Atomic uint32_t *limit = &d->local_limit[tni_block_class(block)];
    if (TNI_UNLIKELY(tni_block_index(block) >=
                     atomic_load_explicit(limit, memory_order_relaxed)))
        tni_raise_limit(limit, tni_block_index(block) + 1);
}

/**
 * Called before the erasing of a record whose reference moves to another record: ref.c, I5.
 * pre: announced, and this thread did a read-modify-write since
 */
static inline void tni_ref_before_move(struct tn_domain *d, tni_block block)
{
    if (TNI_UNLIKELY(atomic_load(&d->segment.header->recount) != 0))
        atomic_fetch_add(tni_word_at(&d->segment, block), TNI_WORD_VERSION_ONE);
}

/* The hold's reference becomes a record's. pre: the local count went from 1 to BUSY */
static inline void tni_ref_move_hold(struct tn_domain *d, tni_block block, uint32_t at)
{
    tni_ref_before_move(d, block);
    tni_ref_clear_hold(d->row, at);
    TNI_KILL_POINT("lend_moved");
    atomic_store_explicit(&d->local[at], 0, memory_order_release);
}
/* A record's reference becomes the hold's. pre: as of tni_ref_set_hold() */
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
 * Make a reference for a record that the caller writes next, from a local reference.
 *
 * With `move`, the caller's local reference is consumed; if it was the process's last one, the
 * hold's reference becomes the record's and no count changes. The caller then writes the record
 * and clears the announce. pre: announced, and a read-modify-write or fence since (ref.c, I5).
 * @return 0, or TN_ERR_FULL: the block has TNI_MOST_RECORDED references (counts.h)
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
 * Turn the reference of a record that the caller has erased into a local one. The caller's
 * order is: tni_announce(), tni_ref_before_move(), erase the record, tni_ref_adopt(). Clears
 * the announce.
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

/** Drop the reference of a record that was erased. pre: announced. Clears the announce. */
void tni_ref_drop(struct tn_domain *domain, struct tni_thread *thread, tni_block block);

/**
 * Count up a block of which the caller knows only the number. The caller then checks that the
 * block is the one it means, and records the reference or drops it. pre: announced.
 * TN_ERR_FULL.
 */
int tni_ref_pin(struct tn_domain *domain, tni_block block);
/**
 * Whether tni_ref_pin() has room for another reference. If a record keeps the block, only
 * damage can use that room up before the call of tni_ref_pin().
 * @return 0, TN_ERR_FULL
 */
int tni_ref_check_room(struct tn_domain *domain, tni_block block);

/* ---- message blocks ---------------------------------------------------------------------- */

/**
 * The list of records in a message block, and its checked count. NULL: the count is too large;
 * the error's sentence is set for TN_ERR_CORRUPT.
 */
struct tni_records *tni_records_at(const struct tni_segment *segment, tni_block block,
                                   uint32_t *ret_count);
/** Add a record to a message block that this process holds and no other process sees yet. */
int tni_records_add(struct tn_domain *domain, tni_block message, tni_block block, bool move);

/* ---- for the reaper ---------------------------------------------------------------------- */

/**
 * Release every hold of a seat that is dead or leaving. If the caller is killed in the middle,
 * another call releases the rest. @return how many
 */
uint64_t tni_ref_release_row(struct tn_domain *domain, uint32_t seat);
/** How many hold bits and entries of message blocks name a block. */
uint64_t tni_ref_count_records(const struct tni_segment *segment, tni_block block);
/** Call `each` for every hold bit and every entry of a message block. */
void tni_ref_for_each_record(const struct tni_segment *segment, tni_record_fn *each,
                             void *context);
/**
 * Set a block's count to `records`, if its word still is `seen`. 0 frees the block and drops
 * the references of a message block. pre: `thread` announces the block as `outer`
 * @return whether the word was `seen`
 */
bool tni_ref_reclaim(struct tn_domain *domain, struct tni_thread *thread, tni_block block,
                     uint64_t seen, uint64_t records);

#endif
