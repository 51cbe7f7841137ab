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
 * A process's handle. tn_queue, tn_event, ... are each a struct with this as first member. All
 * handles of one object in one process share the seat's bits, hence `next`.
 */
struct tni_handle {
    struct tn_domain *domain;
    struct tni_object *object;
    uint64_t word; /* what the object's word is while it lives */
    uint32_t index;
    uint32_t generation;
    /*
     * TN_PRODUCER | TN_CONSUMER that this process's seat is known to have at the object: one
     * word for all handles of it. The kernel empties the word in every child, as the child has
     * another seat or none, so who looks at it knows that this process is no copy of another.
     */
    _Atomic uint32_t *roles;
    _Atomic uint32_t deaths_seen[3];  /* by side: each death is reported once for each handle */
    _Atomic uint32_t doubt[2];        /* whether to look before a sleep: see tni_spins() */
    struct tni_handle *next, *before; /* all handles of the process */
    struct tni_handle *next_same, *before_same; /* those on one entry of the table */
    bool is_listed;
};

struct tni_object_spec {
    uint32_t kind;
    const char *name; /* may be NULL */
    uint32_t flags;
    uint32_t capacity;
    uint32_t slot_bytes;
    uint64_t ring_bytes; /* a block of so many zeroed bytes; 0: none */
    uint64_t value;
};

/**
 * Make an object and a handle on it.
 * @param handle_bytes  of the struct that begins with struct tni_handle; zeroed behind it
 */
int tni_object_create(struct tn_domain *domain, const struct tni_object_spec *spec,
                      size_t handle_bytes, void **ret_handle);
/**
 * Open by name, or by id if `name` is NULL. TN_ERR_NOT_FOUND, TN_ERR_INVALID (another kind),
 * TN_ERR_FORKED.
 */
int tni_object_open(struct tn_domain *domain, uint32_t kind, const char *name, uint64_t id,
                    size_t handle_bytes, void **ret_handle);
uint64_t tni_object_id(const struct tni_handle *handle);
/**
 * Close; with the last handle of this process its bits go, with the last process the object.
 */
void tni_object_close(struct tni_handle *handle);

/**
 * 0, or TN_ERR_FORKED / TN_ERR_CLOSED: the domain was left / TN_ERR_STALE: the object is gone.
 */
int tni_object_check_slow(const struct tni_handle *handle);
static inline int tni_object_check(const struct tni_handle *handle)
{
    const struct tn_domain *home = handle->domain;
    if (TNI_UNLIKELY(home == NULL) || TNI_UNLIKELY(!tni_process_sits(home)))
        return tni_object_check_slow(handle);
    uint64_t word = atomic_load_explicit(&handle->object->word, memory_order_relaxed);
    return TNI_LIKELY(tni_object_generation(word) == handle->generation &&
                      tni_object_state(word) == TNI_OBJECT_LIVE)
               ? 0
               : tni_object_check_slow(handle);
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
static inline uint32_t tni_spins(const struct tni_handle *handle, const _Atomic uint32_t *word)
{
    uint32_t doubt = atomic_load_explicit(&handle->doubt[word == &handle->object->room],
                                          memory_order_relaxed);
    bool is_probe = (doubt >> 4) % TNI_DOUBT_PROBES == 0;
    return (doubt & 15) < TNI_DOUBT_MOST || is_probe ? TNI_SPINS : 0;
}
/** A wait looked `spins` times, and that was enough, or in vain. */
void tni_spins_learn(struct tni_handle *handle, const _Atomic uint32_t *word, uint32_t spins,
                     bool has_paid);

/**
 * Wait until `attempt` no longer says TN_ERR_TIMED_OUT.
 *
 * Tries `spins` times more, tni_spins() or TNI_LOOKED, then arms `word` and sleeps. Ends with
 * what `attempt` says, with TN_ERR_PEER_DIED or TN_ERR_INTERRUPTED (see TNI_SIDE_NONE), or with
 * TN_ERR_TIMED_OUT at the deadline.
 */
int tni_object_wait(struct tni_handle *handle, _Atomic uint32_t *word, int side, uint32_t spins,
                    uint64_t deadline_ns, tni_try_fn *attempt, void *context);

/** Wake everybody who waits at an object, pollers too. */
void tni_object_wake_all(const struct tni_segment *segment, struct tni_object *object);
/** Ring the bells of the processes that watch it. */
void tni_object_ring_watchers(const struct tni_segment *segment,
                              const struct tni_object *object);

/*
 * What each kind does for a dead seat, called with the seat's bits still set; and when its
 * object ends.
 */
void tni_ring_settle_seat(struct tn_domain *domain, struct tni_object *object, uint32_t seat);
void tni_ring_end(struct tn_domain *domain, struct tni_object *object);
uint64_t tni_ring_count_records(const struct tni_segment *segment,
                                const struct tni_object *object, tni_block block);
void tni_ring_for_each_record(const struct tni_segment *segment,
                              const struct tni_object *object, tni_record_fn *each,
                              void *context);
void tni_semaphore_settle_seat(struct tn_domain *domain, struct tni_object *object,
                               uint32_t seat);
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
void tni_lock_settle_seat(struct tn_domain *domain, struct tni_object *object, uint32_t seat);
void tni_barrier_settle_seat(struct tn_domain *domain, struct tni_object *object,
                             uint32_t seat);

#endif
