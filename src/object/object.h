/* SPDX-License-Identifier: Apache-2.0 */
/*
 * object: the table of objects in the control segment, and this process's handles on them.
 * Objects are queues, events, semaphores, locks, conditions, barriers, stores and channels; a
 * process finds one by its name or its id. A room above registers what each kind of object
 * does, as a table of functions (struct tni_kind).
 */
#ifndef TNI_OBJECT_H
#define TNI_OBJECT_H

#include <tenon/object.h>

#include "ref/ref.h"
#include "wait/wait.h"

enum { TNI_OBJECT_TURNS = 16 };
/* What this room keeps of a domain. */
struct tni_object_part {
    const struct tni_kind *const *kinds; /* [TNI_OBJECT_KINDS], by number */
    struct tn_object *handles;           /* every handle of this process */
    struct tn_object *
        *handles_on; /* [objects]: the first handle on each; NULL before the first open */
    _Atomic uint32_t object_hint; /* where the search for a free entry begins */
    _Atomic uint64_t registering; /* which thread has the registry, see tni_process_claim() */
    _Atomic uint64_t registry_suspect; /* the owner that this process waited for in vain */
    _Atomic uint32_t
        registry_turn; /* header->registry_turns when the wait for the suspect began */
    /* Guards the lists. Its owner also has a thread record, so no fork happens meanwhile. */
    struct tni_mutex handles_lock;
    struct tni_mutex opening_lock; /* one thread at a time opens or closes an object */
    /* Whether a thread of this process has the claim of an object, by its index, modulo. */
    _Atomic uint64_t changing[TNI_OBJECT_TURNS];
};
TNI_PART(object, TNI_PART_OBJECT)

/**
 * Register the kinds of objects. A process calls this for each domain that it joins, before any
 * other function of this room.
 * @param kinds  [TNI_OBJECT_KINDS], by number; NULL: no such kind
 */
void tni_object_set_kinds(struct tn_domain *domain, const struct tni_kind *const *kinds);
/** Register the fork hook that opens the objects of the parent for its child. */
void tni_object_init(struct tn_domain *domain);
/** Close every object that this process has open, as it leaves. No handle points at the domain
 * then. */
void tni_object_fini(struct tn_domain *domain);

/* How to print a name from shared memory: damage may have removed its terminating 0. */
#define TNI_NAME_FORMAT "'%.48s'"
_Static_assert(TNI_OBJECT_NAME_BYTES == 48, "TNI_NAME_FORMAT");
/* The same for a name that may be "": "'name'" or "without a name". TNI_TITLE() is its
 * argument. */
#define TNI_TITLE_FORMAT "%s%.48s%s"
#define TNI_TITLE(name)                                                                        \
    (name)[0] != '\0' ? "'" : "without a name", (name), (name)[0] != '\0' ? "'" : ""

/*
 * Whose death ends a wait. NONE: no death ends it. THROUGH: no death ends it, and
 * tn_interrupt_set()'s hook is not asked.
 */
enum {
    TNI_SIDE_THROUGH = -2,
    TNI_SIDE_NONE = -1,
    TNI_SIDE_ANY = 0,
    TNI_SIDE_PRODUCER = 1,
    TNI_SIDE_CONSUMER = 2
};

/*
 * A handle of one process on an object: tn_queue, tn_event, ... are other names of this type.
 * The handle of a queue or a semaphore is a larger struct that begins with this one. All
 * handles of a process on one object share the bits of its seat there; hence the lists.
 */
struct tn_object {
    struct tn_domain *domain;
    struct tni_object *object;
    uint64_t word; /* the object's word while the object lives */
    uint32_t index;
    uint32_t generation;
    uint32_t kind; /* TNI_OBJECT_* */
    /*
     * The roles (TN_PRODUCER | TN_CONSUMER) that this process's seat has at the object. All
     * handles on the object share this word. The kernel zeroes the word in every child, because
     * a child has another seat or none: a role that a process reads here is never its parent's.
     */
    _Atomic uint32_t *roles;
    _Atomic uint32_t deaths_seen[3]; /* by side: deaths that this handle has reported */
    _Atomic uint32_t doubt[2];       /* of `items`, of `room`: see tni_spins() */
    struct tn_object *next, *before; /* of all handles of the process */
    struct tn_object *next_same, *before_same; /* of the handles on one entry */
    bool is_listed;
};

/*
 * What a kind of object does. Each function may be NULL.
 */
struct tni_kind {
    uint32_t number; /* TNI_OBJECT_* */
    const char *name;
    size_t handle_bytes; /* size of the handle, which begins with struct tn_object */
    /** Fill in the rest of a handle. Check the object's numbers: other processes wrote them. */
    int (*bind)(struct tn_object *handle);
    /** Give back what the handle has in the object, before it is closed. */
    void (*unbind)(struct tn_object *handle);
    /** In a forked child: forget what only the parent's handle stands for. */
    void (*forget)(struct tn_object *handle);
    /** Reclaim what a dead seat has in the object. The seat's bits are still set. Idempotent.
     */
    void (*reclaim_seat)(struct tn_domain *domain, struct tni_object *object, uint32_t seat);
    /** Give back what a seat has in the object, as its process closes its last handle. */
    void (*close_seat)(struct tn_domain *domain, struct tni_object *object, uint32_t seat);
    /** Release what the object holds. pre: no process has it open. Idempotent. */
    void (*end)(struct tn_domain *domain, struct tni_object *object);
    /**
     * Mark for a recount the objects that threads of a dead seat were changing, and clear the
     * seat's announces of them. Such a thread may have reclaimed another dead seat.
     */
    void (*take_announces)(struct tn_domain *domain, uint32_t seat);
    /**
     * Recount a marked object and correct its count. pre: the caller has the registry, so the
     * object does not end meanwhile.
     * @return false: live threads are changing the object; retry
     */
    bool (*recount)(struct tn_domain *domain, uint32_t object);
    /** Of kinds that tn_object_wait_any() takes, which also have has_more(): check the handle,
     * and let this process have the role of who waits. */
    int (*begin_wait)(struct tn_object *handle);
    /** Whether the caller would find something now. */
    bool (*is_ready)(struct tn_object *handle);
    /** Whether a wait may still succeed although no process is left on the other side. */
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
    const char *count_name; /* the caller's name of `capacity`, for error sentences */
    const char *flags_name; /* the caller's name of `flags`; NULL: "flags" */
    uint32_t slot_bytes;
    bool wants_flags; /* an object that exists must have exactly these flags */
    uint32_t wanted_capacity, wanted_slot_bytes; /* of an object that exists; 0: any */
    uint64_t ring_bytes;                         /* of its block of zeroes; 0: no block */
    uint64_t value;
};

/**
 * Open the object of this name, or make it, for tn_queue_open() and its like.
 * @param function  the public function's name, for error sentences
 * @param flags  TN_OPEN_*; any other flag is an error
 */
int tni_object_open(const char *function, struct tn_domain *domain,
                    const struct tni_object_spec *spec, uint32_t flags,
                    struct tn_object **ret_handle);

/**
 * Check that a handle can be used.
 * @param kind  that it must have; 0: any kind
 * @return 0; TN_ERR_INVALID: NULL, or another kind; TN_ERR_FORKED; TN_ERR_CLOSED: this process
 *         has left the domain; TN_ERR_STALE: the object has ended
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

/** Let this process's seat have a role at the object: TN_PRODUCER or TN_CONSUMER. */
static inline void tni_object_take_role(struct tn_object *handle, uint32_t role)
{
    struct tni_object *object = handle->object;
    tni_seat_set_add(role == TNI_SIDE_PRODUCER ? &object->producers : &object->consumers,
                     handle->domain->seat);
    atomic_fetch_or(handle->roles, role);
}

/** The bytes of the object's ring block; NULL: it names no block of `need_bytes` or more. */
void *tni_object_ring(const struct tni_segment *segment, const struct tni_object *object,
                      uint64_t need_bytes);

/** One attempt at what a wait is for. TN_ERR_TIMED_OUT: not yet. */
typedef int tni_try_fn(void *context);

enum {
    TNI_SPINS = 150,             /* about 5 us: less than a sleep and a wake-up cost */
    TNI_HAS_POLLED = UINT32_MAX, /* the caller has polled for a while already */
    TNI_DOUBT_MOST = 6,
    TNI_DOUBT_PROBES = 16
};

/*
 * How many attempts a waiter makes before it sleeps at `word`: TNI_SPINS, or 0 while polling
 * does not pay. Polling pays where the awaited change comes within microseconds. It does not
 * pay where the change comes later, or where no processor is free for the thread that makes the
 * change. `doubt` is {waits:28, doubt:4}. A poll in vain adds one to the doubt, a poll that
 * paid takes away two: so waiters go on polling while a third of their polls pay. One wait in
 * 16 polls in any case, to find out whether polling pays again.
 */
static inline uint32_t tni_spins(const struct tn_object *handle, const _Atomic uint32_t *word)
{
    uint32_t doubt = atomic_load_explicit(&handle->doubt[word == &handle->object->room],
                                          memory_order_relaxed);
    bool is_probe = (doubt >> 4) % TNI_DOUBT_PROBES == 0;
    return (doubt & 15) < TNI_DOUBT_MOST || is_probe ? TNI_SPINS : 0;
}
/** Note a wait that polled up to `spins` times (0: not at all), and whether that paid. */
void tni_spins_learn(struct tn_object *handle, const _Atomic uint32_t *word, uint32_t spins,
                     bool has_paid);

/* What a wait is for, and how it waits. */
struct tni_awaited {
    _Atomic uint32_t *word; /* `items` or `room` of the object */
    int side;               /* TNI_SIDE_*: whose death ends the wait */
    uint32_t spins;         /* attempts before the first sleep: tni_spins() or TNI_HAS_POLLED */
    tni_try_fn *attempt;
    void *context;
};
/**
 * Wait until `attempt` no longer returns TN_ERR_TIMED_OUT: poll, then arm the wait word and
 * sleep.
 * @return as the last attempt; TN_ERR_PEER_DIED; TN_ERR_INTERRUPTED; or TN_ERR_TIMED_OUT at the
 *         deadline
 */
int tni_object_wait(struct tn_object *handle, const struct tni_awaited *awaited,
                    uint64_t deadline_ns);
/**
 * Fail with TN_ERR_TIMED_OUT after the deadline. The sentence about a deadline far in the past
 * says that a deadline is a time: the caller likely passed a duration.
 */
int tni_object_fail_late(uint64_t deadline_ns);

/** Wake every process that waits at an object, and ring its watchers. */
void tni_object_wake_all(const struct tni_segment *segment, struct tni_object *object);
/** Ring the bell of each process that watches an object. */
void tni_object_ring_watchers(const struct tni_segment *segment,
                              const struct tni_object *object);

/** "queue", "event", ...; NULL: no such kind. */
const char *tni_object_kind_name(uint32_t kind);
/** Whether a search for the object's name finds the object. True if it has no name. */
bool tni_names_has(const struct tni_segment *segment, uint32_t object);

/* ---- claims of stores and channels: `value2` of the object ------------------------------- */

/**
 * Take the claim of an object: one thread of one process has it at a time, for microseconds.
 * The caller repairs what an owner that died has left.
 * @param deadline_ns  until when to wait for another process; the call waits 5 s at least
 * @return 0; TN_ERR_TIMED_OUT, which names the owner
 */
int tni_object_claim(struct tn_domain *domain, struct tni_object *object, uint64_t deadline_ns);
/** As tni_object_claim(), without a wait. @return whether this process has the claim now */
bool tni_object_try_claim(struct tn_domain *domain, struct tni_object *object);
void tni_object_unclaim(struct tn_domain *domain, struct tni_object *object);

/* ---- for the reaper: each is idempotent and resumable ------------------------------------ */

/**
 * Reclaim a dead seat in every object: the slots that it claimed, took or leased, its locks,
 * permits and barriers, and its bits. Wake each waiter whose wait this may end; waits end
 * before memory is reclaimed. End the objects that no process has open any more.
 * @return 0, or TN_ERR_TIMED_OUT: another process has the registry; all else is done; retry
 */
int tni_object_reclaim_seat(struct tn_domain *domain, uint32_t seat);
/**
 * Recount the semaphores that dead threads were changing. A thread that is about to change the
 * semaphore that is being recounted waits, until the deadline at most. pre: this process has
 * the claim header->recount.
 * @return 0, or TN_ERR_TIMED_OUT: live threads are changing one, or another process has the
 *         registry
 */
int tni_object_recount(struct tn_domain *domain, uint64_t deadline_ns);
/**
 * End the objects whose last opener closed them while another process had the registry. Does
 * nothing if another process has the registry now.
 */
void tni_object_finish_unopened(struct tn_domain *domain);
/**
 * Keep objects from ending until tni_object_let_go().
 * @return false: another process has the registry
 */
bool tni_object_hold_all(struct tn_domain *domain);
/** End an object that no process has open. pre: tni_object_hold_all() */
void tni_object_end_unopened(struct tn_domain *domain, uint32_t object);
void tni_object_let_go(struct tn_domain *domain);
/** Whether a semaphore may be waiting for a recount. */
bool tni_object_has_suspects(const struct tni_segment *segment);
/**
 * End an object that no process has open or that is half ended, and undo an object that is half
 * made. TN_ERR_TIMED_OUT: another process has the registry.
 */
int tni_object_finish(struct tn_domain *domain, uint32_t object);

#endif
