/* SPDX-License-Identifier: Apache-2.0 */
/* fork: what the files of the room process share. Inside the room. */
#ifndef TNI_PROCESS_FORK_H
#define TNI_PROCESS_FORK_H

#include "process/process.h"

/* ---- sit.c ------------------------------------------------------------------------------- */

/* What claims a seat, and what it has then. */
struct tni_sit {
    struct tni_os_process process;
    uint32_t flags;
    uint64_t parent;
    const char *command; /* as its parent's seat has it; NULL: to be read */
    void *witness;       /* NULL: none */
    uint32_t seat;
    uint64_t word; /* JOINING, of this process */
};

/** A seat's word, whose witness may be NULL. */
uint64_t tni_sit_word(uint32_t incarnation, uint32_t state, int32_t pid, const void *witness);
/** Claim a free seat, and write who has it. TN_ERR_FULL: there is none. */
int tni_sit_claim(const struct tni_segment *segment, struct tni_sit *claim);
/** From now on this process's end of the domain has this seat. */
void tni_sit_down(struct tn_domain *domain, uint32_t seat, uint32_t incarnation, void *witness);

/* ---- fork.c ------------------------------------------------------------------------------ */

extern struct tn_domain *tni_domains; /* all of this process, by `next`, under the lock */
void tni_domains_lock(void);
void tni_domains_unlock(void);
/**
 * Before a process that may be a child of which no handler ran sits down, or forks, as if the
 * seats were its own.
 */
void tni_domains_leave_copies(void);
/** Once for each process: register the handlers of fork(). */
int tni_fork_register(void);

#endif
