/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process: the table of seats, and this process's end of a domain.
 *
 * struct tn_domain is the private object behind the public pointer. A room above keeps its
 * private state in a part of it, which only that room looks into, and is told of forks by a
 * table of hooks.
 */
#ifndef TNI_PROCESS_H
#define TNI_PROCESS_H

#include "os/os.h"
#include "segment/segment.h"
#include "wait/wait.h"

enum { TNI_CACHE_BLOCKS = 64, TNI_FORK_HOOKS = 6 };

/* A class's blocks that this thread slot freed or fetched: hints, lost without harm. */
struct tni_block_cache {
    uint32_t count;
    uint32_t id[TNI_CACHE_BLOCKS];
};

/*
 * Private memory that ended and serves again: this opens it. The room tensor keeps its objects
 * so, a few for each thread record.
 */
struct tni_spare {
    struct tni_spare *next;
    uint64_t freed;  /* ref: the word of its object's block, if nobody had that since */
    tni_block block; /* this one; 0: none that we freed */
    uint32_t at;     /* its position */
};
enum { TNI_SPARES = 16 };

/*
 * A thread at work: one announce record of the seat, and what is private to who has it. A
 * thread takes one for the length of an operation and gives it back; `busy` is the only word
 * that two threads touch. Not thread-owned for ever: threads come and go, and 32 records must
 * serve all.
 */
struct tni_thread {
    _Alignas(TNI_CACHE_LINE) _Atomic uint32_t busy;
    uint32_t number;
    struct tni_announce *announce;
    struct tni_block_cache *caches;    /* [TNI_CLASSES] */
    const _Atomic uint64_t *recounted; /* that of the domain's header */
    uint64_t waited_out;               /* a value of it that this thread waited for in vain */
    struct tni_spare *spares;          /* freed with the domain */
    uint32_t spare_count;
    uint64_t missing_bytes; /* alloc: what its last commit was short of */
    bool has_cached;        /* here or in a parent: else `caches` was never written */
    uint8_t last_on_ring;   /* TNI_PUSHED or TNI_POPPED: the last operation on a queue */
    /* TNI_ASIDE_*: whoever has the record is in a long call of the system. */
    _Atomic uint32_t aside;
};
enum { TNI_ASIDE_NOT = 0, TNI_ASIDE = 1, TNI_ASIDE_FORKING = 2 };

struct tn_domain;
struct tn_object;

struct tni_fork_hooks {
    /*
     * In the parent, before fork(): give the child what it will own. `child` is its seat,
     * JOINING.
     */
    int (*prepare)(struct tn_domain *domain, uint32_t child);
    /* Around fork(), when no other thread has a record: take and release the room's locks. */
    void (*lock)(struct tn_domain *domain);
    void (*unlock)(struct tn_domain *domain, bool in_child);
    /* In the child, with domain->seat set: forget what was the parent's. */
    void (*child)(struct tn_domain *domain);
    /* The domain is freed: unmap and free what the room made in its part. */
    void (*free)(struct tn_domain *domain);
};

/* Rooms that keep a part of their own in a domain. */
enum {
    TNI_PART_ALLOC,
    TNI_PART_BACKING,
    TNI_PART_REF,
    TNI_PART_SHARE,
    TNI_PART_OBJECT,
    TNI_PART_REAPER,
    TNI_PARTS,
    TNI_PART_BYTES = 192
};

struct tn_domain {
    struct tni_segment segment;
    uint32_t seat; /* TNI_NO_SEAT: a forked child without one, or closed */
    uint32_t incarnation;
    uint64_t who;                 /* tni_who(seat, incarnation) */
    void *witness;                /* of this incarnation of the seat; NULL: none */
    const _Atomic uint32_t *mark; /* 0 in a child that no handler of fork() ran in */
    struct tni_seat *me;
    _Atomic uint64_t *row; /* ours of the hold rows, for as long as we have the seat */
    struct tni_thread threads[TNI_THREADS];
    bool is_manager; /* this process is tenond */
    bool is_closed;
    uint64_t clock_ahead_ns;  /* tni_os_clock_ahead_ns() of who has the seat */
    _Atomic uint64_t keepers; /* who still points here: the public pointer, handles, and once
                                 closed local references */
    struct tn_domain *next;   /* all domains of the process, for fork */

    /* Private tables for the rooms above, sparse: what is never touched costs nothing. */
    _Atomic uint32_t *local;                   /* [blocks], by position: local references */
    _Atomic uint32_t local_limit[TNI_CLASSES]; /* of `local`: one above the highest not 0 */
    _Atomic uint64_t *mapped;  /* a bit for each block: this process touched it */
    _Atomic uint32_t *roles;   /* [objects], see struct tn_object */
    bool is_empty_in_children; /* the kernel empties `mapped`, `roles` and all caches */

    /* What rooms above registered. */
    struct tni_fork_hooks hooks[TNI_FORK_HOOKS];
    uint32_t hook_count;
    /* Do what tenond should, now and then. May be NULL */
    void (*survive)(struct tn_domain *domain);
    _Atomic uint64_t survive_ns; /* when it is due again */
    /*
     * A table or the memory is full: look whether the dead or what has expired hold it, and
     * wait for those who reclaim the dead, for 50 ms at most. True: it looked, so try once
     * more. pre: no thread record, no claim. May be NULL
     */
    bool (*relieve)(struct tn_domain *domain);
    _Atomic uint64_t relieve_ns; /* not again before */

    _Atomic int poll_fd; /* -1 until asked for; see bell.c */
    struct {
        bool is_there; /* poll_fd is a loop over these */
        int fd, watch_fd;
        _Atomic int tenond_fd; /* readable once we have to look for a tenond */
    } bell;                    /* by who made poll_fd, before others see that */

    /* Between prepare and fork's return. */
    uint64_t child_word;    /* of the child's seat, as the child must find it */
    void *child_witness;    /* NULL: none */
    char child_reason[160]; /* why a child has no seat */
    uint32_t child_seat;

    /* A struct of each room above: what that room keeps of the domain. See TNI_PART(). */
    _Alignas(TNI_CACHE_LINE) uint8_t parts[TNI_PARTS][TNI_PART_BYTES];
};

/*
 * The part of a domain that a room keeps. A room's door defines its struct and calls this once:
 * tni_ROOM_part(domain). All zero in a new domain.
 */
#define TNI_PART(room, number)                                                                 \
    _Static_assert(sizeof(struct tni_##room##_part) <= TNI_PART_BYTES, "parts are larger");    \
    static inline struct tni_##room##_part *tni_##room##_part(const struct tn_domain *domain)  \
    {                                                                                          \
        return (struct tni_##room##_part *)(uintptr_t)domain->parts[number];                   \
    }

/**
 * Take a seat, over a segment that is consumed on success.
 * @param flags  TNI_SEAT_*
 * @return 0, TN_ERR_FULL, TN_ERR_NO_MEMORY
 */
int tni_process_join(struct tni_segment *segment, uint32_t flags,
                     struct tn_domain **ret_domain);

/**
 * A table or the memory is full: domain->relieve(), for a few times, as others may take what
 * came back before we do. @return whether to try once more
 */
static inline bool tni_process_relieve(struct tn_domain *domain, uint32_t *tries)
{
    enum { MOST = 8 };
    return domain->relieve != NULL && (*tries)++ < MOST && domain->relieve(domain);
}

/** Somebody finds every seat taken, and waits. {0}: has not begun. */
struct tni_seat_wait {
    uint64_t until_ns;
    uint32_t tries;
};
#define TNI_SEAT_PATIENCE_NS UINT64_C(1000000000)
/**
 * Wait for a moment, if a seat may come free: a dead process has it, or somebody reclaims that
 * one, or it is free by now.
 * @return false: at one moment of this call a living process had each seat; or a second is over
 */
bool tni_process_await_seat(const struct tni_segment *segment, struct tni_seat_wait *wait);

/**
 * If every seat is taken, reclaim the dead, and wait for those whom somebody else reclaims, for
 * a second at most. For somebody who is about to come.
 */
void tni_process_make_room(struct tn_domain *domain);

/** Every domain of this process, while none can come or go. pre: `each` does not log. */
void tni_process_for_each(void (*each)(struct tn_domain *domain));

/** What this process's seat says from joining to leaving. */
uint64_t tni_process_word(const struct tn_domain *domain);

/** Say that this seat is on its way out; its holds are still its own. */
void tni_process_begin_leave(struct tn_domain *domain);

/** Give the seat back. Everything it held must have been given back by the rooms above. */
void tni_process_leave(struct tn_domain *domain);

/**
 * One more private object that points at the domain, or one less; the last one unmaps and frees
 * it. The public pointer is the first: tn_domain_close() gives it up after tni_process_leave().
 */
void tni_process_keep(struct tn_domain *domain);
void tni_process_unkeep(struct tn_domain *domain);

/** Unmap and free. */
void tni_process_free(struct tn_domain *domain);

/** Tell a room of forks from now on. pre: at join, at most TNI_FORK_HOOKS. */
void tni_process_hook(struct tn_domain *domain, const struct tni_fork_hooks *hooks);

/** Called in the child after a seat was (or was not) taken; reaper sets it to ring tenond. */
void tni_process_set_joined(void (*joined)(struct tn_domain *domain));

/** TN_ERR_FORKED with a detail. For the slow path of a check of domain->seat. */
int tni_process_no_seat(const struct tn_domain *domain);
/**
 * In a child of _Fork() or clone(), where no handler of fork() ran: take the seats of its
 * parent, which are in its copy of every domain, for what they are: another process's. The
 * child goes on as one that found no seat.
 */
void tni_process_set_apart(void);
static inline bool tni_process_is_copy(const struct tn_domain *domain)
{
    return TNI_UNLIKELY(atomic_load_explicit(domain->mark, memory_order_relaxed) == 0);
}
/** For what begins without tni_process_check(): whether this process sits in the domain. */
static inline bool tni_process_has_seat(const struct tn_domain *domain)
{
    if (tni_process_is_copy(domain))
        tni_process_set_apart();
    return domain->seat != TNI_NO_SEAT;
}
/** The same as a look only. */
static inline bool tni_process_sits(const struct tn_domain *domain)
{
    return TNI_LIKELY(domain->seat != TNI_NO_SEAT) && !tni_process_is_copy(domain);
}
/**
 * Whether this still is the member that began a call. It is not in a child that the program's
 * hook forked in a wait, where the call goes on as well: what it had so far is the parent's.
 * @param who  domain->who when the call began
 */
static inline bool tni_process_is_still(const struct tn_domain *domain, uint64_t who)
{
    return TNI_LIKELY(domain->who == who) && tni_process_sits(domain);
}
static inline int tni_process_check(const struct tn_domain *domain)
{
    return tni_process_sits(domain) ? 0 : tni_process_no_seat(domain);
}

/** A wait, which may be many sleeps. {.deadline_ns}: has not begun. */
struct tni_wait {
    uint64_t deadline_ns;
    uint64_t look_ns; /* tni_process_sleep(): when its slice of 100 ms ends; 0: no sleep yet */
    bool is_late;     /* after the deadline, the caller was sent to check once more */
    bool is_through;  /* it must come to its end: the program is not asked */
    bool is_reclaiming; /* the waiter reclaims the dead; it does not begin that again inside */
};

/**
 * Sleep while *word == seen, until the end of a slice of the wait at most: then a survivor does
 * what tenond should have done, in case tenond died. Slices go by the clock, however often the
 * wait is woken. pre: as of tni_interrupt_ask(), unless wait->is_through.
 * @return 0, TN_ERR_TIMED_OUT, or TN_ERR_INTERRUPTED: it took no wake from anybody
 */
int tni_process_sleep(struct tn_domain *domain, _Atomic uint32_t *word, uint32_t seen,
                      struct tni_wait *wait);

/* ---- a thread at work -------------------------------------------------------------------- */

struct tni_thread *tni_thread_enter_slow(struct tn_domain *domain);
/* Number + 1 of the record that this thread had last; 0 none. */
extern _Thread_local uint32_t tni_thread_home TNI_TLS_INITIAL;

/** The record that this thread had last; NULL: it had none, or another thread has it now. */
static inline struct tni_thread *tni_thread_enter_home(struct tn_domain *domain)
{
    uint32_t home = tni_thread_home;
    if (TNI_UNLIKELY(home == 0))
        return NULL;
    struct tni_thread *thread = &domain->threads[(size_t)home - 1];
    __asm__("" : "+r"(thread)); /* compilers compute it anew for each use else */
    if (thread == NULL)
        __builtin_unreachable(); /* nor would they know that it is one */
    if (TNI_LIKELY(TNI_IS_SOLO())) {
        if (TNI_UNLIKELY(atomic_load_explicit(&thread->busy, memory_order_relaxed) != 0))
            return NULL;
        atomic_store_explicit(&thread->busy, 1, memory_order_relaxed);
        return thread;
    }
    /* pairs with the release in tni_thread_leave() */
    uint32_t was_busy = atomic_exchange_explicit(&thread->busy, 1, memory_order_acquire);
    return TNI_LIKELY(was_busy == 0) ? thread : NULL;
}
static inline struct tni_thread *tni_thread_enter(struct tn_domain *domain)
{
    struct tni_thread *thread = tni_thread_enter_home(domain);
    return TNI_LIKELY(thread != NULL) ? thread : tni_thread_enter_slow(domain);
}
static inline void tni_thread_leave(struct tni_thread *thread)
{
    atomic_store_explicit(&thread->busy, 0, memory_order_release);
}

/**
 * Keep the memory of an object for the next one. False: there are enough, it is the caller's.
 * @param block  that the object had and this thread freed; 0: none
 */
static inline bool tni_thread_keep(struct tni_thread *thread, struct tni_spare *spare,
                                   tni_block block)
{
#if defined(__SANITIZE_ADDRESS__)
    return false; /* it finds who uses what was freed */
#endif
    if (TNI_UNLIKELY(thread->spare_count >= TNI_SPARES))
        return false;
    spare->block = block;
    spare->next = thread->spares;
    thread->spares = spare;
    thread->spare_count++;
    return true;
}
/** Take the memory that was kept last. pre: thread->spares is not NULL */
static inline struct tni_spare *tni_thread_take_spare(struct tni_thread *thread)
{
    struct tni_spare *spare = thread->spares;
    thread->spares = spare->next;
    thread->spare_count--;
    return spare;
}

/** Take a record that somebody may have at work; waits for that. */
void tni_thread_take(struct tni_thread *thread);

/**
 * Let fork() pass by while this thread is in a long call of the system, with its record in
 * hand. What the record announces stands; a child gets nothing of it.
 * pre: nothing private is half done that a child could see
 */
static inline void tni_thread_step_aside(struct tni_thread *thread)
{
    /* pairs with the compare-and-swap of fork_prepare() */
    atomic_store_explicit(&thread->aside, TNI_ASIDE, memory_order_release);
}
/** End that. Waits for a fork() that is passing by. */
void tni_thread_come_back(struct tni_thread *thread);

/** The record that a fork handler's `prepare` announces with. */
struct tni_thread *tni_process_fork_thread(struct tn_domain *domain);

/**
 * Wait a little while one of these blocks is recounted. pre: this thread announces none of
 * them.
 *
 * The recount is right without this; but while threads that act on a block all the time begin
 * anew again and again, it would not find the block quiet. Each thread looks here before it
 * announces, so that at most one operation of each thread is still in the way of a recount. The
 * wait ends with the recount, and after 100 ms in any case: who recounts may be stopped.
 */
void tni_process_let_recount(struct tni_thread *thread, tni_block block, uint32_t span);
static inline bool tni_thread_sees_recount(const struct tni_thread *thread)
{
    return TNI_UNLIKELY(
        (uint32_t)atomic_load_explicit(thread->recounted, memory_order_relaxed) != 0);
}
static inline void tni_let_recount(struct tni_thread *thread, tni_block block, uint32_t span)
{
    if (tni_thread_sees_recount(thread))
        tni_process_let_recount(thread, block, span);
}
/**
 * Name what is recounted now, a block or an object; 0: nothing any more. A new turn each time,
 * so that who waited for it in vain waits the next time. pre: the claim header->recount is ours
 */
void tni_process_name_recounted(struct tn_domain *domain, uint32_t id);

/**
 * Announce that the count of `span` blocks may be one too high for a while. The
 * read-modify-write of the count that follows makes it visible first.
 *
 * x86-64: a locked instruction drains the store before it acts. Elsewhere a fence says the
 * same.
 */
static inline void tni_announce_now(struct tni_thread *thread, tni_block block)
{
    atomic_store_explicit(&thread->announce->block, block.id, memory_order_release);
#if !defined(__x86_64__)
    atomic_thread_fence(memory_order_seq_cst);
#endif
}
static inline void tni_announce(struct tni_thread *thread, tni_block block, uint32_t span)
{
    tni_let_recount(thread, block, span);
    if (span != 1)
        atomic_store_explicit(&thread->announce->span, span, memory_order_relaxed);
    tni_announce_now(thread, block);
}
/**
 * The same for one block, with a full fence: for when no read-modify-write follows before the
 * un-recording.
 */
static inline void tni_announce_fence(struct tni_thread *thread, tni_block block)
{
    tni_announce(thread, block, 1);
    atomic_thread_fence(memory_order_seq_cst);
}
/** Record and count agree again. pairs with the loads in tni_process_is_announced() */
static inline void tni_announce_clear(struct tni_thread *thread)
{
    atomic_store_explicit(&thread->announce->block, 0, memory_order_release);
}

/**
 * Clear what our seat announces where no thread of ours is at work: others have overwritten it,
 * and would be waited for in vain.
 */
void tni_process_clear_idle(struct tn_domain *domain);
/** Whether a seat that is not being reclaimed announces this block. */
bool tni_process_is_announced(const struct tni_segment *segment,
                              const struct tni_thread *except, tni_block block);

/** Whether its thread does nothing that a recount must know; `object` is the queue's. */
static inline bool tni_announce_is_clear(const struct tni_announce *a)
{
    return atomic_load(&a->block) == 0 && atomic_load(&a->outer) == 0 &&
           atomic_load(&a->commit_bytes) == 0 && atomic_load(&a->span) <= 1;
}

/* ---- claims ------------------------------------------------------------------------------ */

/**
 * Take a claim in shared memory, which one thread of one process has at a time, and which noise
 * that was written over it cannot keep for ever: what names nobody is taken, and so is what
 * names us, as it is no thread's of ours when it is this one's turn.
 *
 * @param turn  private: `who` of us while one of our threads has the claim. A forked child is
 *              another `who`, to whom the turn of its parent's thread is nothing
 * @param from  whose claim is taken over, whatever its seat says; 0: nobody's
 * @param has_reaped  whether who is being reaped has it still, until it is taken over `from` it
 */
bool tni_process_claim(struct tn_domain *domain, _Atomic uint64_t *claim,
                       _Atomic uint64_t *turn, uint64_t from, bool has_reaped);
/** Give it back. A tni_wait_notify() may follow at once. */
void tni_process_unclaim(struct tn_domain *domain, _Atomic uint64_t *claim,
                         _Atomic uint64_t *turn);

/* ---- bells (bell.c) ---------------------------------------------------------------------- */

/** In a bell_number: who has the bell also hears tni_os_watch_ring() of the control segment. */
#define TNI_BELL_WATCHES (UINT64_C(1) << 63)

/**
 * This process's pollable descriptor, and the number by which it is rung. Made at the first
 * call. TN_ERR_SYSTEM.
 */
int tni_process_bell_open(struct tn_domain *domain, int *ret_fd);
/** Make it unreadable. */
void tni_process_bell_clear(struct tn_domain *domain);
/** Whether the descriptor is readable because tenond was killed. True once for each. */
bool tni_process_bell_lost_tenond(struct tn_domain *domain);
/** Close it, if there is one: at the end, and in a forked child. */
void tni_process_bell_close(struct tn_domain *domain);
/**
 * Ring the bell of a seat, in whatever network namespace that is. @return false: it was not
 * rung
 */
bool tni_process_bell_ring(const struct tni_segment *segment, uint32_t seat);

/* ---- across exec (pass.c) ---------------------------------------------------------------- */

/*
 * Variables that a program started by exec finds: what to join, who started it, where messages
 * go.
 */
#define TNI_DOMAIN_VARIABLE  "TENON_DOMAIN"
#define TNI_PARENT_VARIABLE  "TENON_PARENT"
#define TNI_MESSAGE_VARIABLE "TENON_MESSAGE_FD"
enum { TNI_PASS_BYTES = 64 };

/** Write the value of TENON_DOMAIN. TN_ERR_INVALID: no room. */
int tni_process_write_pass(const struct tn_domain *domain, char *value, size_t size_bytes);
/** The same, and let the two descriptors survive exec: called between fork() and exec(). */
int tni_process_pass(struct tn_domain *domain, char *value, size_t size_bytes);
/**
 * Read what the two above wrote; NULL is not set. TN_ERR_NOT_FOUND: not set; TN_ERR_CORRUPT.
 */
int tni_process_parse_pass(const char *value, int *ret_control_fd, int *ret_arena_fd);
/** Write the value of TENON_PARENT: this process. */
int tni_process_write_parent(const struct tn_domain *domain, char *value, size_t size_bytes);
/**
 * In a program that has just joined by inheritance: if a member started it with TENON_PARENT,
 * its seat says who, and that it ends with that process. TN_ERR_PEER_DIED: the parent has ended
 * already.
 */
int tni_process_inherit_parent(struct tn_domain *domain);
/**
 * Write in this process's seat that it ends with its parent. TN_ERR_PEER_DIED: that one has
 * ended already.
 */
int tni_process_end_with(struct tn_domain *domain, uint64_t parent);

/* ---- seats of others --------------------------------------------------------------------- */

enum { TNI_SEAT_NOBODY = 0xffffff }; /* in place of a pid, which is less than 2^22 */

/* Of the witness of a seat's process: no two incarnations have the same. */
static inline uint64_t tni_witness_number(uint32_t seat, uint32_t incarnation)
{
    return (uint64_t)incarnation << 16 | seat;
}
static inline uint32_t tni_seat_state(uint64_t word) { return (uint32_t)(word >> 24) & 0xff; }
static inline uint32_t tni_seat_incarnation(uint64_t word) { return (uint32_t)(word >> 32); }
static inline uint32_t tni_seat_recoverer(uint64_t word) { return (uint32_t)word & 0xffffff; }
/** The process that a JOINING or LEAVING seat names. */
static inline int32_t tni_seat_pid(uint64_t word)
{
    return (int32_t)(tni_seat_recoverer(word) & (TNI_SEAT_WITNESSED - 1));
}
static inline uint64_t tni_seat_word(uint32_t incarnation, uint32_t state, uint32_t recoverer)
{
    return (uint64_t)incarnation << 32 | (uint64_t)state << 24 | recoverer;
}
/**
 * TNI_OS_ALIVE, TNI_OS_DEAD or TNI_OS_UNKNOWN: whether what took the seat lives. A process that
 * has exec'ed since does not; nor is a free seat's alive. In whatever namespace it is, unless
 * it could get no witness.
 */
int tni_process_seat_state(const struct tni_segment *segment, uint32_t seat);
/**
 * Whether the seat's pid is that of its process for us too, so that it may be looked up, or
 * killed; also when the process has exec'ed.
 */
bool tni_process_is_here(const struct tni_segment *segment, uint32_t seat);
/** TNI_SEAT_*; FREE: it is nobody's, by its form or by now. */
uint32_t tni_process_who_state(const struct tni_segment *segment, uint64_t who);
/** Whether this incarnation of a seat is still taken by somebody who is not being reaped. */
bool tni_process_who_lives(const struct tni_segment *segment, uint64_t who);
/** The same, and its process has not ended either, as far as that can be known. */
bool tni_process_who_runs(const struct tni_segment *segment, uint64_t who);
/** Seats that are taken by processes that have ended, and not reclaimed yet. */
uint32_t tni_process_count_dead(const struct tni_segment *segment);
/** Whether a process lives that has a seat, and has not put its name on it yet. */
bool tni_process_has_joining(const struct tni_segment *segment);
/** Seats that are taken, without tenond's. */
uint32_t tni_process_count(const struct tni_segment *segment);

/* Sets of seats. */
static inline bool tni_seat_set_has(const struct tni_seat_set *set, uint32_t seat)
{
    return atomic_load_explicit(&set->word[seat / 64], memory_order_seq_cst) >> (seat % 64) & 1;
}
static inline void tni_seat_set_add(struct tni_seat_set *set, uint32_t seat)
{
    atomic_fetch_or(&set->word[seat / 64], UINT64_C(1) << (seat % 64));
}
static inline void tni_seat_set_remove(struct tni_seat_set *set, uint32_t seat)
{
    atomic_fetch_and(&set->word[seat / 64], ~(UINT64_C(1) << (seat % 64)));
}
/** How many seats are in the set, without `except` (TNI_NO_SEAT: with all). */
uint32_t tni_seat_set_count(const struct tni_seat_set *set, uint32_t except);

#endif
