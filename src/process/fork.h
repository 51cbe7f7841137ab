/* SPDX-License-Identifier: Apache-2.0 */
/* fork: functions that the files of the room process share. Private to the room process. */
#ifndef TNI_PROCESS_FORK_H
#define TNI_PROCESS_FORK_H

#include "process/process.h"

/* ---- sit.c ------------------------------------------------------------------------------- */

/* A claim of a seat: the process that claims the seat, and the result. */
struct tni_sit {
    struct tni_os_process process;
    uint32_t flags;
    uint64_t parent;
    const char *command; /* of the parent's seat; NULL: read it from the system */
    /* The result of tni_sit_claim(). */
    void *witness; /* NULL: none */
    uint32_t seat;
    uint64_t word; /* JOINING, and names `process` */
};

/** The word of a seat. @param witness  NULL: the seat has none */
uint64_t tni_sit_word(uint32_t incarnation, uint32_t state, int32_t pid, const void *witness);
/** Claim a free seat and write the claimer's identity. TN_ERR_FULL: no seat is free. */
int tni_sit_claim(const struct tni_segment *segment, struct tni_sit *claim);
/** Record in `domain` that this process has this seat. */
void tni_sit_down(struct tn_domain *domain, uint32_t seat, uint32_t incarnation, void *witness);

/* ---- domains.c --------------------------------------------------------------------------- */

extern struct tn_domain *tni_domains; /* all domains of this process, protected by the lock */
void tni_domains_lock(void);
void tni_domains_unlock(void);
/** Reset the lock to free. For a child, in which the thread that had it does not exist. */
void tni_domains_reset_lock(void);
/**
 * If this is a child in which no fork handler ran, drop its parent's seats. Called before this
 * process takes a seat or forks.
 */
void tni_domains_drop_if_copied(void);

/* The functions below run in a forked child, whether it got a seat or not. */

/** Note why the child has no seat, for the error of later calls. */
void tni_fork_note_reason(struct tn_domain *domain, const char *why);
/**
 * Forget the parent's seat, of which the child has a copy.
 * @param reason  why the child has no seat; NULL: keep the reason that the parent noted
 */
void tni_fork_drop_seat(struct tn_domain *domain, const char *reason);
void tni_fork_run_child_hooks(struct tn_domain *domain);
void tni_fork_unlock_rooms(struct tn_domain *domain, bool in_child);

/* ---- fork.c ------------------------------------------------------------------------------ */

/** Register the fork handlers, once in each process. */
int tni_fork_register(void);

#endif
