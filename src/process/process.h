/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process: manages the table of seats, and this process's private state of a domain.
 *
 * struct tn_domain is the private struct behind the public pointer. A room above keeps its
 * private state in a part of the struct, which only that room reads and writes. It also
 * registers a table of hooks that are called around fork().
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
 * When a table or the memory is full: call domain->relieve(). For one `*tries` it is called
 * eight times at most, since other processes may take each time what was given back.
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
 * Back off for a moment if a seat may become free: a dead process has the seat, a process is
 * reclaiming the seat, or the seat has become free.
 * @return false: at one moment of this call a live process had each seat, or the wait has
 * lasted a second
 */
bool tni_process_await_seat(const struct tni_segment *segment, struct tni_seat_wait *wait);

/**
 * If every seat is taken, reclaim dead processes, and wait up to a second for seats that other
 * processes are reclaiming. Called before this process starts a program that will join.
 */
void tni_process_make_room(struct tn_domain *domain);

/**
 * Call `each` for every domain of this process, while no domain can be added or removed. pre:
 * `each` does not log.
 */
void tni_process_for_each(void (*each)(struct tn_domain *domain));

/** The word of this process's seat between joining and leaving. */
uint64_t tni_process_word(const struct tn_domain *domain);

/** Set the seat to LEAVING. The process still has its holds. */
void tni_process_begin_leave(struct tn_domain *domain);

/** Free the seat. The rooms above have already released everything that the seat held. */
void tni_process_leave(struct tn_domain *domain);

/**
 * Add or remove a keeper: a pointer that keeps struct tn_domain. When the last keeper is
 * removed, the domain is unmapped and freed. The public pointer is the first keeper:
 * tn_domain_close() removes it after tni_process_leave().
 */
void tni_process_keep(struct tn_domain *domain);
void tni_process_unkeep(struct tn_domain *domain);

/** Unmap the domain and free its struct. */
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
 * no seat.
 */
void tni_process_drop_parent_seats(void);
/**
 * Whether this process is a child of _Fork() or clone() in which no fork handler ran, and which
 * has not dropped its parent's seats yet.
 */
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
/** Whether this process has a seat in the domain. Changes nothing. */
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
/** Check that this process has a seat. @return 0, or an error of tni_process_no_seat() */
static inline int tni_process_check(const struct tn_domain *domain)
{
    return tni_process_is_member(domain) ? 0 : tni_process_no_seat(domain);
}

/* ---- sleeping ---------------------------------------------------------------------------- */

/** A wait, which may consist of many sleeps. {.deadline_ns}: the wait has not begun. */
struct tni_wait {
    uint64_t deadline_ns;
    uint64_t look_ns;   /* when the current slice of 100 ms ends; 0: no sleep yet */
    bool is_late;       /* after the deadline, the caller was told to check once more */
    bool is_through;    /* the wait cannot be interrupted: the program's hook is not called */
    bool is_reclaiming; /* the waiter is reclaiming dead processes, so a slice reclaims none */
};

/**
 * Sleep while *word == seen, at most until the current slice of the wait ends. After each slice
 * this process does the work of tenond, in case tenond died. Slices are measured by the clock,
 * however often the wait is woken up. pre: the precondition of tni_interrupt_ask(), unless
 * wait->is_through
 * @return 0, TN_ERR_TIMED_OUT, or TN_ERR_INTERRUPTED: the wait consumed no wake-up
 */
int tni_process_sleep(struct tn_domain *domain, _Atomic uint32_t *word, uint32_t seen,
                      struct tni_wait *wait);

/* ---- claims ------------------------------------------------------------------------------ */

/**
 * Take a claim in shared memory, which one thread of one process has at a time. A damaged claim
 * cannot block the caller for ever: a claim that names no live seat is taken over. A claim that
 * names this process is taken over, too, if `turn` shows that no thread of this process has it.
 *
 * @param turn  private: domain->who while a thread of this process has the claim. A forked
 * child has another `who`, so a turn that the child inherited does not block the child
 * @param from  take the claim over from this owner, whatever the state of its seat; 0: none
 * @param has_reaped  whether an owner that is being reaped keeps the claim, except from `from`
 */
bool tni_process_claim(struct tn_domain *domain, _Atomic uint64_t *claim,
                       _Atomic uint64_t *turn, uint64_t from, bool has_reaped);
/** Release a claim. The release is the read-modify-write that tni_wait_notify() requires. */
void tni_process_unclaim(struct tn_domain *domain, _Atomic uint64_t *claim,
                         _Atomic uint64_t *turn);

/* ---- bells (bell.c) ---------------------------------------------------------------------- */

/** In a bell_number: the bell's owner is also woken by tni_os_watch_ring() of the segment. */
#define TNI_BELL_WATCHES (UINT64_C(1) << 63)

/**
 * Get this process's pollable descriptor. The first call makes the descriptor, and writes the
 * number by which other processes ring it into the seat. TN_ERR_SYSTEM.
 */
int tni_process_bell_open(struct tn_domain *domain, int *ret_fd);
/** Make the descriptor unreadable. */
void tni_process_bell_clear(struct tn_domain *domain);
/** Whether the descriptor is readable because tenond ended. True only once for each tenond. */
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
/**
 * Write the value of TENON_DOMAIN, and let the domain's two descriptors survive exec. Called
 * between fork() and exec().
 */
int tni_process_pass(struct tn_domain *domain, char *value, size_t size_bytes);
/**
 * Parse the value of TENON_DOMAIN.
 * @param value  NULL: the variable is not set
 * @return 0, TN_ERR_NOT_FOUND (the variable is not set), TN_ERR_CORRUPT
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
