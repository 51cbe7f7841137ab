/* SPDX-License-Identifier: Apache-2.0 */
/*
 * object: the table of named things, and this process's handles on them. Inside the room queue.
 */
#ifndef TNI_QUEUE_OBJECT_H
#define TNI_QUEUE_OBJECT_H

#include "queue/queue.h"

/* How a name that stands in shared memory is said: it may have lost its end. */
#define TNI_NAME_FORMAT "'%.48s'"
_Static_assert(TNI_OBJECT_NAME_BYTES == 48, "TNI_NAME_FORMAT");

/* tni_seat.bell_fd_armed: {epoch:31, armed:1}; the epoch moves each time it is armed. */
enum { TNI_BELL_ARMED = 1, TNI_BELL_EPOCH = 2 };

/* Whose death ends a wait. NONE: nobody's; THROUGH: nor does tn_interrupt_set()'s hook. */
enum {
    TNI_SIDE_THROUGH = -2,
    TNI_SIDE_NONE = -1,
    TNI_SIDE_ANY = 0,
    TNI_SIDE_PRODUCER = 1,
    TNI_SIDE_CONSUMER = 2
};

/*
 * A process's handle: what tn_queue, tn_event, ... are to users. A queue's or a semaphore's is
 * a struct with this as first member. All
 * handles of one object in one process share the seat's bits, hence `next`.
 */
struct tn_object {
    struct tn_domain *domain;
    struct tni_object *object;
    uint64_t word; /* what the object's word is while it lives */
    uint32_t index;
    uint32_t generation;
    uint32_t kind; /* TNI_OBJECT_* */
    /*
     * TN_PRODUCER | TN_CONSUMER that this process's seat is known to have at the object: one
     * word for all handles of it. The kernel empties the word in every child, as the child has
     * another seat or none, so who looks at it knows that this process is no copy of another.
     */
    _Atomic uint32_t *roles;
    _Atomic uint32_t deaths_seen[3]; /* by side: each death is reported once for each handle */
    _Atomic uint32_t doubt[2];       /* whether to look before a sleep: see tni_spins() */
    struct tn_object *next, *before; /* all handles of the process */
    struct tn_object *next_same, *before_same; /* those on one entry of the table */
    bool is_listed;
};

/*
 * What the table of objects asks of a kind. All but `name` and `handle_bytes` may be NULL.
 */
struct tni_kind {
    uint32_t number; /* TNI_OBJECT_* */
    const char *name;
    size_t handle_bytes; /* of the struct that begins with struct tn_object */
    /** Fill in the rest of a handle, from numbers that other processes wrote. */
    int (*bind)(struct tn_object *handle);
    /** For a seat that is dead, with its bits still set. Idempotent. */
    void (*settle_seat)(struct tn_domain *domain, struct tni_object *object, uint32_t seat);
    /** For a process that closes its last handle: give back what it holds. */
    void (*close_seat)(struct tn_domain *domain, struct tni_object *object, uint32_t seat);
    /** Nobody has the object open any more. Resumable. */
    void (*end)(struct tn_domain *domain, struct tni_object *object);
    /** The references that the object holds, besides that to its own block. */
    uint64_t (*count_records)(const struct tni_segment *segment,
                              const struct tni_object *object, tni_block block);
    void (*for_each_record)(const struct tni_segment *segment, const struct tni_object *object,
                            tni_record_fn *each, void *context);
    /** Whether what a wait is for may come though nobody is left on the other side. */
    bool (*has_more)(const struct tn_object *handle);
};
extern const struct tni_kind tni_queue_kind, tni_event_kind, tni_semaphore_kind, tni_lock_kind,
    tni_condition_kind, tni_barrier_kind;
/** NULL: no such kind. */
const struct tni_kind *tni_kind_of(uint32_t number);

struct tni_object_spec {
    const struct tni_kind *kind;
    const char *name; /* may be NULL */
    uint32_t flags;
    uint32_t capacity;
    const char *count_name; /* what `capacity` counts, for errors */
    uint32_t slot_bytes;
    bool wants_flags;                            /* one that exists must have these flags */
    uint32_t wanted_capacity, wanted_slot_bytes; /* of one that exists; 0: any */
    uint64_t ring_bytes;                         /* a block of so many zeroed bytes; 0: none */
    uint64_t value;
};

/**
 * Open the object of this name, or make it: tn_queue_open() and its like.
 * @param function  for errors
 * @param flags  TN_OPEN_*; any other is refused
 */
int tni_object_open(const char *function, struct tn_domain *domain,
                    const struct tni_object_spec *spec, uint32_t flags,
                    struct tn_object **ret_handle);

/**
 * 0; or TN_ERR_INVALID: NULL, or of another kind (`kind` 0: any will do) / TN_ERR_FORKED /
 * TN_ERR_CLOSED: the domain was left / TN_ERR_STALE: the object is gone.
 */
int tni_object_check_slow(const struct tn_object *handle, uint32_t kind);
static inline int tni_object_check(const struct tn_object *handle, uint32_t kind)
{
    return TNI_LIKELY(handle != NULL && handle->kind == kind && handle->domain != NULL &&
                      tni_process_sits(handle->domain) &&
                      atomic_load_explicit(&handle->object->word, memory_order_relaxed) ==
                          handle->word)
               ? 0
               : tni_object_check_slow(handle, kind);
}

/** The block with the slots, checked; NULL if there is none or it makes no sense. */
void *tni_object_ring(const struct tni_segment *segment, const struct tni_object *object,
                      uint64_t need_bytes);

/** What is tried: TN_ERR_TIMED_OUT means not yet. */
typedef int tni_try_fn(void *context);

enum {
    TNI_SPINS = 150,         /* about 5 us: less than a sleep and a wake cost */
    TNI_LOOKED = UINT32_MAX, /* the caller has looked for a while already */
    TNI_DOUBT_MOST = 6,
    TNI_DOUBT_PROBES = 16
};

/*
 * How often to look before a sleep at `word`: TNI_SPINS, or not at all while looks have not
 * paid, but once in 16 waits to see whether they do again. To look pays where what is waited
 * for comes at once; it does not where nothing is to come soon, nor where no processor is free
 * for who would bring it. `doubt` is {waits:28, doubt:4}: up by one with each look in vain,
 * down by two with each that paid, so looks go on while a third of them pays.
 */
static inline uint32_t tni_spins(const struct tn_object *handle, const _Atomic uint32_t *word)
{
    uint32_t doubt = atomic_load_explicit(&handle->doubt[word == &handle->object->room],
                                          memory_order_relaxed);
    bool is_probe = (doubt >> 4) % TNI_DOUBT_PROBES == 0;
    return (doubt & 15) < TNI_DOUBT_MOST || is_probe ? TNI_SPINS : 0;
}
/** A wait looked `spins` times, and that was enough, or in vain. */
void tni_spins_learn(struct tn_object *handle, const _Atomic uint32_t *word, uint32_t spins,
                     bool has_paid);

/**
 * Wait until `attempt` no longer says TN_ERR_TIMED_OUT.
 *
 * Tries `spins` times more, tni_spins() or TNI_LOOKED, then arms `word` and sleeps. Ends with
 * what `attempt` says, with TN_ERR_PEER_DIED or TN_ERR_INTERRUPTED (see TNI_SIDE_NONE), or with
 * TN_ERR_TIMED_OUT at the deadline.
 */
int tni_object_wait(struct tn_object *handle, _Atomic uint32_t *word, int side, uint32_t spins,
                    uint64_t deadline_ns, tni_try_fn *attempt, void *context);

/** Wake everybody who waits at an object, pollers too. */
void tni_object_wake_all(const struct tni_segment *segment, struct tni_object *object);
/** Ring the bells of the processes that watch it. */
void tni_object_ring_watchers(const struct tni_segment *segment,
                              const struct tni_object *object);

/**
 * Mark the semaphores that a dead seat was changing, its own or as a reaper another's, to be
 * recounted; and clear its announces of them.
 */
void tni_semaphore_take_announces(struct tn_domain *domain, uint32_t seat);
/**
 * Make the permits of a marked semaphore right. pre: the object cannot end meanwhile.
 * @return false: the living are in the way, come again
 */
bool tni_semaphore_recount(struct tn_domain *domain, uint32_t object);
#endif
