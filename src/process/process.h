/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process: the table of seats, and this process's end of a domain.
 *
 * struct tn_domain is the private object behind the public pointer. A room above keeps its
 * private state in a part of the struct, which only that room reads and writes, and registers a
 * table of hooks that are called around fork().
 */
#ifndef TNI_PROCESS_H
#define TNI_PROCESS_H

#include "process/domain.h"
#include "process/seats.h"
#include "process/thread.h"

/* ---- joining and leaving ----------------------------------------------------------------- */

/**
 * Take a seat. On success the segment is consumed.
 * @param flags  TNI_SEAT_*
 * @return 0, TN_ERR_FULL, TN_ERR_NO_MEMORY
 */
int tni_process_join(struct tni_segment *segment, uint32_t flags,
                     struct tn_domain **ret_domain);

/**
 * A table or the memory is full: call domain->relieve(), eight times at most for one `*tries`,
 * because other processes may take what came back before the caller does.
 * @return whether the caller should retry
 */
static inline bool tni_process_relieve(struct tn_domain *domain, uint32_t *tries)
{
    enum { MOST = 8 };
    return domain->relieve != NULL && (*tries)++ < MOST && domain->relieve(domain);
}

/** A wait for a free seat. {0}: the wait has not begun. */
struct tni_seat_wait {
    uint64_t until_ns;
    uint32_t tries;
};
#define TNI_SEAT_PATIENCE_NS UINT64_C(1000000000)
/**
 * Back off for a moment if a seat may become free: a dead process has it, somebody is
 * reclaiming it, or it has become free.
 * @return false: at one moment of this call a live process had each seat, or the wait has
 * lasted a second
 */
bool tni_process_await_seat(const struct tni_segment *segment, struct tni_seat_wait *wait);

/**
 * If every seat is taken, reclaim dead processes, and wait up to a second for those that
 * somebody else is reclaiming. Called before a program is started that will join.
 */
void tni_process_make_room(struct tn_domain *domain);

/**
 * Call `each` for every domain of this process, while no domain can be added or removed. pre:
 * `each` does not log.
 */
void tni_process_for_each(void (*each)(struct tn_domain *domain));

/** The word of this process's seat between joining and leaving. */
uint64_t tni_process_word(const struct tn_domain *domain);

/** Set the seat to LEAVING. Its holds are still its own. */
void tni_process_begin_leave(struct tn_domain *domain);

/** Free the seat. The rooms above have already released everything that the seat held. */
void tni_process_leave(struct tn_domain *domain);

/**
 * Add or remove a pointer that keeps struct tn_domain; removing the last one unmaps and frees
 * it. The public pointer is the first: tn_domain_close() removes it after tni_process_leave().
 */
void tni_process_keep(struct tn_domain *domain);
void tni_process_unkeep(struct tn_domain *domain);

/** Unmap and free. */
void tni_process_free(struct tn_domain *domain);

/** Register a room's hooks. pre: while the domain is joined, at most TNI_FORK_HOOKS times */
void tni_process_hook(struct tn_domain *domain, const struct tni_fork_hooks *hooks);

/**
 * Set the function that is called in a forked child once the child has its seat. The room
 * reaper sets it, to notify tenond.
 */
void tni_process_set_joined(void (*joined)(struct tn_domain *domain));

/* ---- whether this process is a member ---------------------------------------------------- */

/** Fail with TN_ERR_FORKED or TN_ERR_CLOSED, for a process that has no seat. */
int tni_process_no_seat(const struct tn_domain *domain);
/**
 * In a child of _Fork() or clone(), in which no fork handler ran, every copied struct tn_domain
 * still names the parent's seat. Drop those seats: the child goes on as a forked child that got
 * none.
 */
void tni_process_drop_parent_seats(void);
/** Whether this process is such a child, and has not dropped the seats yet. */
static inline bool tni_process_is_copy(const struct tn_domain *domain)
{
    return TNI_UNLIKELY(atomic_load_explicit(domain->mark, memory_order_relaxed) == 0);
}
/**
 * Whether this process has a seat in the domain; a copied seat is dropped first. For calls that
 * do not begin with tni_process_check().
 */
static inline bool tni_process_has_seat(const struct tn_domain *domain)
{
    if (tni_process_is_copy(domain))
        tni_process_drop_parent_seats();
    return domain->seat != TNI_NO_SEAT;
}
/** The same, without changing anything. */
static inline bool tni_process_is_member(const struct tn_domain *domain)
{
    return TNI_LIKELY(domain->seat != TNI_NO_SEAT) && !tni_process_is_copy(domain);
}
/**
 * Whether this process still is the member that began a call. False in a child that the
 * program's interrupt hook forked during a wait: the call returns in the child too, but what
 * the call had acquired belongs to the parent.
 * @param who  domain->who when the call began
 */
static inline bool tni_process_is_same_member(const struct tn_domain *domain, uint64_t who)
{
    return TNI_LIKELY(domain->who == who) && tni_process_is_member(domain);
}
/** 0, or as tni_process_no_seat(). */
static inline int tni_process_check(const struct tn_domain *domain)
{
    return tni_process_is_member(domain) ? 0 : tni_process_no_seat(domain);
}

/* ---- sleeping ---------------------------------------------------------------------------- */

/** A wait, which may consist of many sleeps. {.deadline_ns}: the wait has not begun. */
struct tni_wait {
    uint64_t deadline_ns;
    uint64_t look_ns;   /* when the current slice of 100 ms ends; 0: no sleep yet */
    bool is_late;       /* after the deadline, the caller was sent to check once more */
    bool is_through;    /* the wait cannot be interrupted: the program is not asked */
    bool is_reclaiming; /* the waiter is reclaiming dead processes and must not begin again */
};

/**
 * Sleep while *word == seen, at most until the current slice of the wait ends. After each slice
 * this process does what tenond should have done, in case tenond died. Slices are measured by
 * the clock, however often the wait is woken up. pre: as of tni_interrupt_ask(), unless
 * wait->is_through.
 * @return 0, TN_ERR_TIMED_OUT, or TN_ERR_INTERRUPTED: the wait consumed no wake-up
 */
int tni_process_sleep(struct tn_domain *domain, _Atomic uint32_t *word, uint32_t seen,
                      struct tni_wait *wait);

/* ---- claims ------------------------------------------------------------------------------ */

/**
 * Take a claim in shared memory, which one thread of one process has at a time. Damaged claims
 * cannot block it for ever: a claim that names no live seat is taken over. So is a claim that
 * names this process, since `turn` shows that no thread of this process has it.
 *
 * @param turn  private: d->who while a thread of this process has the claim. A forked child has
 *              another `who`, so a turn that it inherited does not block it
 * @param from  take the claim over from this owner, whatever the state of its seat; 0: nobody
 * @param has_reaped  whether an owner that is being reaped keeps the claim, except from `from`
 */
bool tni_process_claim(struct tn_domain *domain, _Atomic uint64_t *claim,
                       _Atomic uint64_t *turn, uint64_t from, bool has_reaped);
/** Release it. The order that tni_wait_notify() requires is established. */
void tni_process_unclaim(struct tn_domain *domain, _Atomic uint64_t *claim,
                         _Atomic uint64_t *turn);

/* ---- bells (bell.c) ---------------------------------------------------------------------- */

/** In a bell_number: the bell's owner is also woken by tni_os_watch_ring() of the segment. */
#define TNI_BELL_WATCHES (UINT64_C(1) << 63)

/**
 * This process's pollable descriptor. The first call makes it and writes the number by which
 * others ring it. TN_ERR_SYSTEM.
 */
int tni_process_bell_open(struct tn_domain *domain, int *ret_fd);
/** Make the descriptor unreadable. */
void tni_process_bell_clear(struct tn_domain *domain);
/** Whether the descriptor is readable because tenond has ended. True once for each tenond. */
bool tni_process_bell_lost_tenond(struct tn_domain *domain);
/** Close the descriptor, if there is one: when the process leaves, and in a forked child. */
void tni_process_bell_close(struct tn_domain *domain);
/**
 * Ring the bell of a seat, in whatever network namespace its process is.
 * @return false: the bell was not rung
 */
bool tni_process_bell_ring(const struct tni_segment *segment, uint32_t seat);

/* ---- across exec (pass.c) ---------------------------------------------------------------- */

/*
 * Environment variables of a program started by exec: the domain to join, the process that
 * started the program, and the descriptor for messages to that process.
 */
#define TNI_DOMAIN_VARIABLE  "TENON_DOMAIN"
#define TNI_PARENT_VARIABLE  "TENON_PARENT"
#define TNI_MESSAGE_VARIABLE "TENON_MESSAGE_FD"
enum { TNI_PASS_BYTES = 64 };

/** Write the value of TENON_DOMAIN. TN_ERR_INVALID: `value` is too small. */
int tni_process_write_pass(const struct tn_domain *domain, char *value, size_t size_bytes);
/** The same, and let the two descriptors survive exec: called between fork() and exec(). */
int tni_process_pass(struct tn_domain *domain, char *value, size_t size_bytes);
/**
 * Read what the two functions above wrote.
 * @param value  of TENON_DOMAIN; NULL: the variable is not set
 * @return 0, TN_ERR_NOT_FOUND: not set; TN_ERR_CORRUPT
 */
int tni_process_parse_pass(const char *value, int *ret_control_fd, int *ret_arena_fd);
/** Write the value of TENON_PARENT, which names this process. */
int tni_process_write_parent(const struct tn_domain *domain, char *value, size_t size_bytes);
/**
 * In a program that has just joined by inheritance: if a member started it with TENON_PARENT,
 * write into the program's seat which member that was, and that the program ends with it.
 * TN_ERR_PEER_DIED: the parent has already ended.
 */
int tni_process_inherit_parent(struct tn_domain *domain);
/**
 * Write into this process's seat that the process ends with its parent. TN_ERR_PEER_DIED: the
 * parent has already ended.
 */
int tni_process_bind_to_parent(struct tn_domain *domain, uint64_t parent);

#endif
