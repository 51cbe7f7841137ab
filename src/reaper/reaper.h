/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reaper: reclaims the dead. Any member can run it; tenond does it at once.
 *
 * Every step is idempotent, and the seat stays REAPING until the last one, so that whoever
 * finds a dead recoverer starts again from the top.
 */
#ifndef TNI_REAPER_H
#define TNI_REAPER_H

#include <tenon/inspect.h>

#include "queue/queue.h"
#include "share/share.h"

/* What this room keeps of a domain. */
struct tni_reaper_part {
    _Atomic uint64_t files_ns; /* no look for files that were let go before */
    _Atomic uint32_t runtime;  /* header->runtime when that was last our folder's; 0: never */
    _Atomic uint64_t reaping; /* `who` of us while a thread of this process reclaims somebody */
    _Atomic uint64_t recounting; /* turn at the claim of who recounts */
};
TNI_PART(reaper, TNI_PART_REAPER)

/**
 * At join: this process does tenond's work now and then while it waits, and rings tenond after
 * a fork.
 */
void tni_reaper_init(struct tn_domain *domain);

/**
 * Reclaim one seat if its process is gone. The blocks that it announced are left to
 * tni_reaper_recount().
 * @return 1: reclaimed now; 0: alive, free, or being reclaimed by someone alive;
 *         TN_ERR_TIMED_OUT: a live thread is in the way, try again shortly;
 *         TN_ERR_CORRUPT: the seat's word makes no sense
 */
int tni_reaper_reclaim(struct tn_domain *domain, uint32_t seat);

/**
 * Reclaim every dead seat, and recount what they announced.
 * @return how many, or TN_ERR_TIMED_OUT if a seat or a block must be tried again
 */
int tni_reaper_reclaim_all(struct tn_domain *domain);
/** The same, but no further seat after the deadline. */
int tni_reaper_reclaim_until(struct tn_domain *domain, uint64_t deadline_ns);
/**
 * End objects whose last closer could not, and recount the blocks that dead seats had
 * announced. Waits for threads that are at work on one of them for 50 ms altogether, and not
 * beyond the deadline; 0 does not wait.
 * @return 0, or TN_ERR_TIMED_OUT: some are left
 */
int tni_reaper_recount(struct tn_domain *domain, uint64_t deadline_ns);

/**
 * Give everything this process holds back, before tni_process_leave(). pre: no thread record in
 * hand.
 */
void tni_reaper_leave(struct tn_domain *domain);

/** Where an audit reports to. */
struct tni_audit_report {
    tn_audit_fn *each; /* may be NULL */
    void *context;
    uint32_t unchecked; /* set by the audit: blocks that it could not check */
};

/**
 * The audit; see tn_inspect_audit().
 * @param domain  that this process is a member of; NULL: an inspector, who cannot repair
 * @return discrepancies
 */
int tni_audit(const struct tni_segment *segment, struct tn_domain *domain, bool is_repair,
              struct tni_audit_report *report);

/* ---- tenond's side and ours (manager.c) -------------------------------------------------- */

/**
 * Register a named or anonymous domain with tenond, starting it if need be. TN_ERR_MANAGER,
 * TN_ERR_EXISTS.
 */
int tni_manager_register(struct tn_domain *domain);
/**
 * Give tenond a descriptor of a block's object, to be kept: who calls keeps its own. Errors of
 * the connection, and what tenond answers: TN_ERR_STALE, TN_ERR_FULL, TN_ERR_NOT_FOUND (it does
 * not know the domain).
 */
int tni_manager_deposit(struct tn_domain *domain, tni_block block, uint32_t generation, int fd);
/**
 * Get the descriptors of a domain by name or by 32 hex digits of id: from tenond, else from a
 * member. TN_ERR_NOT_FOUND; TN_ERR_INVALID: two domains have the name. find.c says which
 * folders are looked at.
 */
int tni_manager_find(const char *name, bool read_only, int *ret_control_fd, int *ret_arena_fd);
/**
 * Leave a domain: give everything and the seat back, and tell tenond. Where no tenond looks
 * after the domain, the last member ends its files. The object stays.
 */
void tni_manager_leave(struct tn_domain *domain);
/**
 * Tell tenond that the table of seats changed. Nothing is sent if a member rang less than
 * TNI_MANAGER_RUNG_NS ago: tenond looks when it is rung, and again TNI_MANAGER_LOOK_NS later.
 */
void tni_manager_ring(struct tn_domain *domain);
#define TNI_MANAGER_RUNG_NS UINT64_C(2000000)
#define TNI_MANAGER_LOOK_NS UINT64_C(3000000)
/**
 * What a survivor does now and then while it waits: the dead, and a tenond if there is none.
 * Rate-limited.
 */
void tni_manager_survive(struct tn_domain *domain);
/**
 * What header->runtime says of domains that the tenond of this process's runtime folder looks
 * after. Never 0.
 */
uint32_t tni_manager_runtime(void);
/**
 * Whether the domains of which header->runtime says this are of this process's runtime folder.
 * A process that made and joined none before keeps to their folder from then on, if it could
 * have chosen that.
 */
bool tni_manager_is_ours(uint32_t runtime);
/**
 * The runtime folder that the domain's name belongs to, whoever asks. TN_ERR_NOT_FOUND: the
 * domain has no tenond now, or none that this process can see.
 */
int tni_manager_folder(const struct tni_segment *segment, char *folder, size_t size_bytes);

/**
 * Whether another process, which holds the lock of a runtime folder, has the office of the
 * domain. One that cannot be seen from here, as in another pid namespace, is not found.
 */
bool tni_manager_is_in_office(const struct tni_segment *segment);
/** Whether a tenond is in office that still runs, as far as that can be known. */
bool tni_manager_is_alive(const struct tni_segment *segment);

/* A domain that some process of this user has open. */
struct tni_found {
    char name[TNI_NAME_BYTES];
    uint8_t id[16];
    uint32_t layout_version;
    uint32_t uid;
    int32_t creator_pid;
    uint32_t runtime;
    int32_t pid;
    int control_number; /* of that process's descriptor */
    uint64_t control_inode;
    uint64_t arena_inode;
};
typedef int tni_found_fn(const struct tni_found *found, void *context);
/**
 * Each domain, of whatever layout version, once or more often, straight from /proc; non-zero
 * stops and is the result.
 */
int tni_manager_search(tni_found_fn *each, void *context);
/**
 * The ids of all domains that some process of this user has open, of whatever layout version.
 * @param ret_ids  [*ret_count], to be freed; an id may be there more than once
 */
int tni_manager_living(uint8_t (**ret_ids)[16], uint32_t *ret_count);
/** Whether a name is the 32 hexadecimal digits of this id. */
bool tni_manager_is_id(const char *name, const uint8_t id[16]);
/** TN_ERR_NOT_FOUND: the process that was found with it has ended since. */
int tni_manager_open_found(const struct tni_found *found, bool read_only, int *ret_control_fd,
                           int *ret_arena_fd);

/*
 * The wire between a process and tenond: one packet each way, then tenond closes. After DEPOSIT
 * and FETCH it leaves the connection open for a while; one request is under way at a time.
 */
enum {
    TNI_REQUEST_REGISTER = 1, /* carries control and arena descriptors */
    TNI_REQUEST_FIND = 2,     /* the reply carries control and arena descriptors */
    TNI_REQUEST_GC = 3,
    TNI_REQUEST_DEPOSIT = 4, /* carries the descriptor of a block's object, to be kept */
    TNI_REQUEST_FETCH = 5    /* the reply carries it */
};
#define TNI_REQUEST_VERSION 2
#define TNI_REQUEST_MAGIC   UINT32_C(0x74656e6f)
struct tni_request {
    uint32_t magic;
    uint32_t version; /* TNI_REQUEST_VERSION */
    uint32_t verb;
    uint32_t block;      /* DEPOSIT and FETCH */
    uint32_t generation; /* of that block */
    uint32_t reserved;
    char name[TNI_NAME_BYTES]; /* of the domain; DEPOSIT and FETCH: its id, 32 hex digits */
};
struct tni_reply {
    uint32_t magic;
    int32_t status; /* 0 or TN_ERR_* */
    int32_t pid;
    uint32_t limit; /* of descriptors, with TN_ERR_FULL of DEPOSIT */
};
/*
 * Files in the runtime folder. Their names say which layout and which requests the tenond
 * knows: each version has a tenond of its own, and they live side by side.
 */
#define TNI_TEXT_OF(number) #number
#define TNI_TEXT(number)    TNI_TEXT_OF(number)
#define TNI_VERSIONS        TNI_TEXT(TNI_LAYOUT_VERSION) "." TNI_TEXT(TNI_REQUEST_VERSION)
#define TNI_MANAGER_PREFIX  "tenond-"
#define TNI_VAULT_PREFIX    "vault-"
#define TNI_MANAGER_SOCKET  TNI_MANAGER_PREFIX TNI_VERSIONS ".sock"
#define TNI_MANAGER_LOCK    TNI_MANAGER_PREFIX TNI_VERSIONS ".lock"
#define TNI_VAULT_SOCKET                                                                       \
    TNI_VAULT_PREFIX TNI_VERSIONS ".sock" /* who keeps what tenond keeps, once more */

#endif
