/* SPDX-License-Identifier: Apache-2.0 */
/*
 * object: the table of objects in the control segment: queues, events, semaphores, locks,
 * conditions, barriers, found by name or number; and this process's handles on them. What a
 * kind does is a table of functions (struct tni_kind) that a room above registers.
 */
#ifndef TNI_OBJECT_H
#define TNI_OBJECT_H

#include <tenon/object.h>

#include "ref/ref.h"
#include "wait/wait.h"

/* What this room keeps of a domain. */
struct tni_object_part {
    const struct tni_kind *const *kinds; /* [TNI_OBJECT_KINDS], by number */
    struct tn_object *handles;           /* every object handle of this process */
    struct tn_object **handles_on;       /* [objects], the first on each; NULL: none was */
    _Atomic uint32_t object_hint;        /* where a free entry was seen last */
    _Atomic uint64_t registering;      /* turn at the claim on names, see tni_process_claim() */
    _Atomic uint64_t registry_suspect; /* who kept that claim for longer than we wait */
    _Atomic uint32_t registry_turn;    /* header->registry_turns at that time */
    struct tni_mutex
        handles_lock; /* by a thread that also has a record, so never across fork */
    struct tni_mutex opening_lock; /* who opens an object, or closes one */
};
TNI_PART(object, TNI_PART_OBJECT)

/**
 * First of all for each domain that is joined.
 * @param kinds  [TNI_OBJECT_KINDS], by number; NULL: no such kind
 */
void tni_object_set_kinds(struct tn_domain *domain, const struct tni_kind *const *kinds);
/** Fork hook: objects that the parent has open are open in the child. */
void tni_object_init(struct tn_domain *domain);
/** Close what this process has open, at leave; no handle points at the domain from then on. */
void tni_object_fini(struct tn_domain *domain);

/* How a name that stands in shared memory is said: it may have lost its end. */
#define TNI_NAME_FORMAT "'%.48s'"
_Static_assert(TNI_OBJECT_NAME_BYTES == 48, "TNI_NAME_FORMAT");

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
    void (*reclaim_seat)(struct tn_domain *domain, struct tni_object *object, uint32_t seat);
    /** For a process that closes its last handle: give back what it holds. */
    void (*close_seat)(struct tn_domain *domain, struct tni_object *object, uint32_t seat);
    /** Nobody has the object open any more. Resumable. */
    void (*end)(struct tn_domain *domain, struct tni_object *object);
    /**
     * Mark the objects that threads of a dead seat were changing, its own or as a reaper
     * another's, to be recounted; and clear its announces of them.
     */
    void (*take_announces)(struct tn_domain *domain, uint32_t seat);
    /**
     * Make the count of a marked object right. pre: the object cannot end meanwhile.
     * @return false: the living are in the way, come again
     */
    bool (*recount)(struct tn_domain *domain, uint32_t object);
    /** Whether what a wait is for may come though nobody is left on the other side. */
    bool (*has_more)(const struct tn_object *handle);
};
/** NULL: no such kind. */
static inline const struct tni_kind *tni_kind_of(const struct tn_domain *domain,
                                                 uint32_t number)
{
    return number < TNI_OBJECT_KINDS ? tni_object_part(domain)->kinds[number] : NULL;
}

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
                      tni_process_is_member(handle->domain) &&
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

/** "queue", "event", ...; NULL for none */
const char *tni_object_kind_name(uint32_t kind);
/** Whether a look for the object's name would come to it. */
bool tni_names_has(const struct tni_segment *segment, uint32_t object);

/* ---- for the reaper: each is idempotent and resumable ------------------------------------ */

/**
 * Reclaim a dead seat in every object: slots it claimed, took or leased, locks, permits,
 * barriers; its bits; and wake everybody whose wait this may end. Waits end before memory is
 * reclaimed. Objects that nobody has open any more are ended.
 * @return 0, or TN_ERR_TIMED_OUT: the registry is in use; everything else is done, come again
 */
int tni_object_reclaim_seat(struct tn_domain *domain, uint32_t seat);
/**
 * Recount the semaphores that dead threads were changing. Until the deadline, who is about to
 * change one of them waits. pre: the claim header->recount is ours.
 * @return 0, or TN_ERR_TIMED_OUT: the living are in the way, or the registry is in use
 */
int tni_object_recount(struct tn_domain *domain, uint64_t deadline_ns);
/**
 * End the objects that their last opener closed while another process had the registry. Those
 * stay whose registry is in use now.
 */
void tni_object_finish_unopened(struct tn_domain *domain);
/** Whether there may be any. */
bool tni_object_has_suspects(const struct tni_segment *segment);
/**
 * End an object that nobody has open or that is half ended, and undo one that is half made by
 * nobody. TN_ERR_TIMED_OUT: the registry is in use.
 */
int tni_object_finish(struct tn_domain *domain, uint32_t object);

#endif
