/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ref: crash-safe references to blocks.
 *
 * A record is anything in shared memory that names a block and keeps it: a hold bit, a full
 * slot, an entry of a message block, a ticket, an object's ring. A block's count is never below
 * the number of its records, and equals that number when no operation is in flight. A thread
 * raises the count before it writes a record, and erases a record before it lowers the count.
 * When a thread moves a reference from one record to another, it erases the old record before
 * it writes the new record. Between the two steps the thread announces the block.
 *
 * A process counts its own references to a block, its local references, in private memory. The
 * first local reference sets the hold bit, and the end of the last one clears the bit.
 */
#ifndef TNI_REF_H
#define TNI_REF_H

#include "backing/backing.h"

/* The part of a struct tn_domain that this room uses. */
struct tni_ref_part {
    uint64_t withheld; /* how many unfinished blocks the last forked child got no hold of */
    uint64_t *rested;  /* sums of the words of spans with slabs at the last scan; NULL: none */
    _Atomic uint64_t rested_ns; /* when the next scan is due */
};
TNI_PART(ref, TNI_PART_REF)

/* The value of local[b] while a thread changes the hold bit of block b: I2. */
#define TNI_LOCAL_BUSY UINT32_MAX
/*
 * A mark, added to the count of local references of a block that only one call knows: the call
 * that made the block (I6). tni_ref_lend() with `move`, tni_ref_release() and tni_ref_finish()
 * remove the mark.
 */
#define TNI_LOCAL_UNFINISHED (UINT32_C(1) << 31)

/** Called with every block that a record names. */
typedef void tni_record_fn(tni_block block, void *context);
/** What calls a function so, for the records of one room. */
typedef void tni_each_record_fn(const struct tni_segment *segment, tni_record_fn *each,
                                void *context);

struct tni_counted {
    tni_block block;
    uint64_t count;
};
static inline void tni_counted_add(tni_block block, void *context)
{
    struct tni_counted *counted = context;
    counted->count += block.id == counted->block.id;
}
/** How many of the records of a room name a block. */
static inline uint64_t tni_record_count(const struct tni_segment *segment,
                                        tni_each_record_fn *for_each, tni_block block)
{
    struct tni_counted counted = {.block = block};
    for_each(segment, tni_counted_add, &counted);
    return counted.count;
}

/** What a new block is for. */
struct tni_block_about {
    uint8_t kind; /* TNI_KIND_* */
    uint8_t ndim;
    bool is_unfinished;  /* mark the block: fork() may run before the caller has filled it */
    bool is_uncommitted; /* the block may have no memory yet: the caller commits memory */
    uint32_t dtype;      /* {lanes:16, bits:8, code:8} */
    const int64_t *shape;
    const struct tni_device_name *device; /* take a block of this device; NULL: of the host */
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
 * @return the result of tni_ref_alloc(), or TNI_ALLOC_AGAIN; or, of a device, TNI_ALLOC_NO_SLAB
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

/** Whether an attempt failed for lack of blocks or memory, which other threads may release. */
static inline bool tni_ref_is_short(int status)
{
    return status == TN_ERR_NO_MEMORY || status == TN_ERR_FULL || status == TNI_ALLOC_AGAIN;
}

/**
 * A call that lacked memory and retries. Between two attempts, and while it sleeps, the call
 * has no thread record and no block: a forked child would inherit a hold of such a block, and
 * other threads may be waiting for the memory of the block.
 */
struct tni_retry {
    /** Try once. @return 0, TNI_ALLOC_AGAIN, TN_ERR_NO_MEMORY, TN_ERR_FULL, or another error */
    int (*attempt)(struct tn_domain *domain, struct tni_retry *retry);
    uint64_t bytes;       /* how many bytes the call needs, for the error sentence */
    uint64_t deadline_ns; /* 0: does not wait */
    bool can_fit;         /* the bytes would fit if all other memory were free; else no retry */
    bool lacks_other;     /* an attempt lacked something other than memory: do not wait */
    bool is_told;         /* the error sentence of an attempt says already who holds memory */
    bool lacks_host;      /* an attempt lacked memory of the host, though `device` is set */
    const struct tni_device_name *device; /* that has no room; NULL: the host */
    /* tni_ref_retry() writes the fields below. */
    uint32_t reliefs;  /* how often the call had dead processes reclaimed */
    uint64_t given_ns; /* when all free memory was given back last, or the call began */
};
/* How long a call without a deadline retries while other threads commit or trim. */
#define TNI_REF_TRY_NS (UINT64_C(100) * 1000 * 1000)
/* How long a call with a deadline retries while other threads commit, before it sleeps. */
#define TNI_REF_PATIENCE_NS (UINT64_C(1000) * 1000 * 1000)
/**
 * Retry after the first attempt, which returned `status`. Reclaims dead processes at least
 * once. While attempts return TNI_ALLOC_AGAIN, which leaves open whether there is room, the
 * call retries at once: for 100 ms, or with a deadline for a second at most. Then the call
 * gives all free memory of the domain back to the system, once a second at most, and retries.
 * With a deadline it sleeps between attempts. If there is no memory in the end, the error
 * sentence says which processes hold most.
 * @return 0, the error of an attempt, TN_ERR_TIMED_OUT, TN_ERR_INTERRUPTED
 */
int tni_ref_retry(struct tn_domain *domain, struct tni_retry *retry, int status);

/**
 * Allocate a block for a tensor from this thread's cache, if the block there already has
 * memory. Never waits. pre: tni_process_check() == 0
 * @return false: there is no such block; call tni_ref_alloc()
 */
bool tni_ref_alloc_warm(struct tn_domain *domain, struct tni_thread *thread, uint64_t bytes,
                        const struct tni_block_about *about, tni_block *ret_block);

/**
 * Allocate again the block that the private struct in `spare` freed, if no thread had the block
 * since and this thread freed no other block of its class later. The block still has its
 * memory, at least `bytes`. The caller calls tni_ref_born().
 * @param about  NULL: the desc is already right
 */
bool tni_ref_alloc_again(struct tn_domain *domain, struct tni_thread *thread,
                         const struct tni_spare *spare, uint64_t bytes,
                         const struct tni_block_about *about);
/** Write the time of creation, on the clock of tni_os_shared_ns(), into a block's desc. */
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
 * @return whether this process holds the block; if so, the caller has a new reference
 */
bool tni_ref_local_if_held(struct tn_domain *domain, tni_block block);

/** Release a local reference; the last one also releases the hold. */
void tni_ref_release(struct tn_domain *domain, tni_block block);
/**
 * Release a local reference. Keep the memory of the private struct that had the reference for
 * the next struct, or free() it.
 */
void tni_ref_release_and_keep(struct tn_domain *domain, tni_block block,
                              struct tni_spare *spare);
/** Release a local reference, with a thread record that the caller has. */
void tni_ref_release_with(struct tn_domain *domain, struct tni_thread *thread, tni_block block);
/**
 * Release a block that the caller has just allocated, after the caller's attempt to get memory
 * failed. No other thread knows the block. Wakes up no thread: a thread that waits for memory
 * would fail in the same way, and wake up this thread, and so on without end.
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
/* Set the hold bit, and local[at] to 1. pre: local[at] is 0, or this thread set BUSY (I2) */
static inline void tni_ref_set_hold(struct tn_domain *d, uint32_t at)
{
    _Atomic uint64_t *row = &d->row[at / 64];
    uint64_t bit = UINT64_C(1) << (at % 64);
    if (TNI_LIKELY(TNI_IS_SOLO()))
        atomic_store_explicit(row, atomic_load_explicit(row, memory_order_relaxed) | bit,
                              memory_order_release);
    else
        atomic_fetch_or_explicit(row, bit, memory_order_acq_rel);
    /* This release pairs with the acquire of a thread that adds or takes a local reference. */
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

/* Raise the private limit of `local`. The shared frontier would not do: it may be damaged. */
static inline void tni_ref_note_local(struct tn_domain *d, tni_block block)
{
    _Atomic uint32_t *limit = &d->local_limit[tni_block_class(block)];
    if (TNI_UNLIKELY(tni_block_index(block) >=
                     atomic_load_explicit(limit, memory_order_relaxed)))
        tni_raise_limit(limit, tni_block_index(block) + 1);
}

/**
 * Called before a thread erases a record whose reference moves to another record: ref.c, I5.
 * pre: this thread announced the block, and did a read-modify-write after that
 */
static inline void tni_ref_before_move(struct tn_domain *d, tni_block block)
{
    if (TNI_UNLIKELY(atomic_load(&d->segment.header->recount) != 0))
        atomic_fetch_add(tni_word_at(&d->segment, block), TNI_WORD_VERSION_ONE);
}

/* Move the hold's reference to a record. pre: this thread changed local[at] from 1 to BUSY */
static inline void tni_ref_move_hold(struct tn_domain *d, tni_block block, uint32_t at)
{
    tni_ref_before_move(d, block);
    tni_ref_clear_hold(d->row, at);
    TNI_KILL_POINT("lend_moved");
    atomic_store_explicit(&d->local[at], 0, memory_order_release);
}
/* Move the reference of a record to the hold. pre: the precondition of tni_ref_set_hold() */
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
 * With `move`, the caller's local reference is consumed. If that was the process's last local
 * reference, the record takes over the reference of the hold, and no count changes. The caller
 * then writes the record and clears the announce. pre: this thread announced the block, and did
 * a read-modify-write or a fence after that (ref.c, I5)
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
 * Turn the reference of a record that the caller has erased into a local reference. The caller
 * calls tni_announce() and tni_ref_before_move(), erases the record, and then calls this
 * function, which clears the announce.
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

/** Drop the reference of an erased record, and clear the announce. pre: announced */
void tni_ref_drop(struct tn_domain *domain, struct tni_thread *thread, tni_block block);

/**
 * Pin a block: add a reference to a block of which the caller knows only the number. The caller
 * then checks that the block was not reused, and writes a record or drops the reference. pre:
 * this thread announces the block. TN_ERR_FULL.
 */
int tni_ref_pin(struct tn_domain *domain, tni_block block);
/**
 * Check whether the block's count has room for a pin. If a record keeps the block, only damage
 * can use the room up before the caller calls tni_ref_pin().
 * @return 0, TN_ERR_FULL
 */
int tni_ref_check_room(struct tn_domain *domain, tni_block block);

/* ---- slabs: memory of devices, see alloc/slab.c ---------------------------------------- */

/**
 * Let a new slab be cut into blocks of a class: its block is recorded in a span that has none.
 * The local reference of the caller, the only one, is consumed on success.
 * @return 0, TN_ERR_FULL: every span of the class has a slab
 */
int tni_ref_add_slab(struct tn_domain *domain, struct tni_thread *thread, tni_block slab,
                     uint32_t class_id);
/**
 * End slabs of which every block is free, until `enough` bytes of them have ended.
 * @param device  whose slabs; NULL: of every device
 * @return the bytes of memory of devices that no record names any more
 */
uint64_t tni_ref_trim_slabs(struct tn_domain *domain, struct tni_thread *thread,
                            const struct tni_device_name *device, uint64_t enough);

/**
 * End the slabs that had no block in use at the last scan and since. Does nothing unless a scan
 * is due: TNI_IDLE_NS after the last one. tenond calls it repeatedly.
 */
void tni_ref_trim_idle_slabs(struct tn_domain *domain);

/* ---- message blocks ---------------------------------------------------------------------- */

/**
 * Get the list of records in a message block, and the checked number of records.
 * @return NULL: the number is too large, so the block is damaged; the error detail says so
 */
struct tni_records *tni_records_at(const struct tni_segment *segment, tni_block block,
                                   uint32_t *ret_count);
/** Add a record to a message block that this process holds and no other process sees yet. */
int tni_records_add(struct tn_domain *domain, tni_block message, tni_block block, bool move);

/* ---- who holds memory: holders.c --------------------------------------------------------- */

/* What the process in a seat holds on a device, or on the host. */
struct tni_holding {
    uint32_t seat;
    uint64_t blocks;
    uint64_t bytes; /* as asked for; a block that several seats hold counts for each of them */
};
/**
 * Sum what each seat holds.
 * @param device        NULL: the host
 * @param ret_holdings  [room]: those that hold most, most bytes first
 * @return how many seats hold any
 */
uint32_t tni_holders_sum(const struct tni_segment *segment,
                         const struct tni_device_name *device, struct tni_holding *ret_holdings,
                         uint32_t room);
/**
 * Say which processes hold most, as in "process 4242 holds 4096 bytes". The call may replace
 * the error sentence.
 * @param device  NULL: the host
 * @param text    [size_bytes], at least 160
 */
void tni_holders_describe(const struct tni_segment *segment,
                          const struct tni_device_name *device, char *text, size_t size_bytes);

/* ---- for the reaper ---------------------------------------------------------------------- */

/**
 * Release every hold of a seat that is dead or leaving. If the caller is killed in the middle,
 * another call releases the other holds.
 * @param but_devices  release no holds of blocks of devices
 * @return how many holds were released
 */
uint64_t tni_ref_release_row(struct tn_domain *domain, uint32_t seat, bool but_devices);
/** Whether a seat holds a block of a device. */
bool tni_ref_holds_devices(const struct tni_segment *segment, uint32_t seat);
/** Count the hold bits and the entries of message blocks that name a block. */
uint64_t tni_ref_count_records(const struct tni_segment *segment, tni_block block);
/** Call `each` for every hold bit and every entry of a message block. */
void tni_ref_for_each_record(const struct tni_segment *segment, tni_record_fn *each,
                             void *context);
/**
 * Set a block's count to `records`, if its word still is `seen`. If `records` is 0, the call
 * frees the block, and drops the references of a message block. pre: `thread` announces the
 * block as `outer`
 * @return whether the word was `seen`
 */
bool tni_ref_reclaim(struct tn_domain *domain, struct tni_thread *thread, tni_block block,
                     uint64_t seen, uint64_t records);

#endif
