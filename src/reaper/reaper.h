/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reaper: reclaims the seats of dead processes. Any member can run it; tenond runs it at once.
 *
 * Every step is idempotent, and the seat stays REAPING until the last step. If a recoverer
 * dies, another one begins again at the first step.
 */
#ifndef TNI_REAPER_H
#define TNI_REAPER_H

#include <tenon/inspect.h>

#include "queue/queue.h"
#include "share/share.h"

/* What this room keeps of a domain. */
struct tni_reaper_part {
    _Atomic uint64_t files_ns; /* the next check for files without owners is not before */
    _Atomic uint32_t runtime;  /* the last header->runtime that was of our folder; 0: never */
    _Atomic uint64_t
        reaping; /* `who` of this process while one of its threads reclaims a seat */
    _Atomic uint64_t
        recounting; /* which thread has the claim on recounts, see tni_process_claim() */
};
TNI_PART(reaper, TNI_PART_REAPER)

/**
 * At join: have this process do tenond's work now and then while it waits, and ring tenond
 * after a fork.
 */
void tni_reaper_init(struct tn_domain *domain);

/**
 * Reclaim one seat if its process has ended. The blocks that it announced are left to
 * tni_reaper_recount().
 * @return 1: reclaimed now; 0: alive, free, or being reclaimed by a live process;
 *         TN_ERR_TIMED_OUT: a live process has the registry, retry shortly;
 *         TN_ERR_CORRUPT: the seat is in a state that does not exist
 */
int tni_reaper_reclaim(struct tn_domain *domain, uint32_t seat);

/**
 * Reclaim every dead seat, and recount the blocks that they announced.
 * @return how many seats, or TN_ERR_TIMED_OUT if a seat or a block must be tried again
 */
int tni_reaper_reclaim_all(struct tn_domain *domain);
/** The same, but begins with no further seat after the deadline. */
int tni_reaper_reclaim_until(struct tn_domain *domain, uint64_t deadline_ns);
/**
 * End the objects whose last opener could not end them, and recount the blocks that dead seats
 * had announced. Waits for threads that are changing such a block, for 50 ms altogether and not
 * beyond the deadline; with 0 it does not wait.
 * @return 0, or TN_ERR_TIMED_OUT: some are left
 */
int tni_reaper_recount(struct tn_domain *domain, uint64_t deadline_ns);

/**
 * Give back everything that this process holds, before tni_process_leave(). pre: this thread
 * has no thread record.
 */
void tni_reaper_leave(struct tn_domain *domain);

/** Where an audit reports to. */
struct tni_audit_report {
    tn_audit_fn *each; /* may be NULL */
    void *context;
    uint32_t unchecked; /* set by the audit: blocks that it could not check */
};

/**
 * Audit a domain; see tn_inspect_audit().
 * @param domain  the same domain, if this process is a member; NULL: an inspector, which
 *                cannot repair
 * @return discrepancies
 */
int tni_audit(const struct tni_segment *segment, struct tn_domain *domain, bool is_repair,
              struct tni_audit_report *report);

/* ---- a member and tenond (manager.c and others) ----------------------------------------- */

/**
 * Register a named or anonymous domain with tenond, and start a tenond if none listens.
 * TN_ERR_MANAGER, TN_ERR_EXISTS.
 */
int tni_manager_register(struct tn_domain *domain);
/**
 * Give tenond a duplicate of the descriptor of a block's object, to keep. Errors of the
 * connection, and those that tenond answers: TN_ERR_STALE, TN_ERR_FULL, TN_ERR_NOT_FOUND (it
 * does not know the domain).
 */
int tni_manager_deposit(struct tn_domain *domain, tni_block block, uint32_t generation,
                        const int *fds, uint32_t fd_count);
/**
 * Get the descriptors of a domain by its name, or by the 32 hex digits of its id: from tenond,
 * else from a member. TN_ERR_NOT_FOUND; TN_ERR_INVALID: two domains have the name. The card of
 * find.c says which folders it searches.
 */
int tni_manager_find(const char *name, bool read_only, int *ret_control_fd, int *ret_arena_fd);
/**
 * Leave a domain: give everything and the seat back, and ring tenond. If no tenond manages the
 * domain, its last member removes its files. The struct stays.
 */
void tni_manager_leave(struct tn_domain *domain);
/**
 * Ring tenond because the table of seats changed. Does nothing if a member rang less than
 * TNI_MANAGER_RUNG_NS ago: tenond checks the seats when it is rung, and again
 * TNI_MANAGER_LOOK_NS later.
 */
void tni_manager_ring(struct tn_domain *domain);
#define TNI_MANAGER_RUNG_NS UINT64_C(2000000)
#define TNI_MANAGER_LOOK_NS UINT64_C(3000000)
/**
 * What a member does now and then while it waits: reclaim dead processes, and start a tenond if
 * there is none. Does nothing if called again too soon.
 */
void tni_manager_survive(struct tn_domain *domain);
/**
 * The value of header->runtime in domains that the tenond of this process's runtime folder
 * manages. Never 0.
 */
uint32_t tni_manager_runtime(void);
/**
 * Whether domains with this value of header->runtime belong to this process's runtime folder. A
 * process that has made and joined no domain yet chooses their folder now, if it is one that it
 * can use.
 */
bool tni_manager_is_ours(uint32_t runtime);
/**
 * The runtime folder in which the domain's name is registered. TN_ERR_NOT_FOUND: the domain has
 * no tenond now, or none that this process can see.
 */
int tni_manager_folder(const struct tni_segment *segment, char *folder, size_t size_bytes);

/**
 * Whether another process manages the domain and holds the lock of a runtime folder. False if
 * this process cannot see it, for example because it is in another pid namespace.
 */
bool tni_manager_has_other(const struct tni_segment *segment);
/** Whether a tenond manages the domain and lives, as far as this process can know. */
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
 * Call `each` for each domain, of any layout version, once or more often, straight from /proc.
 * The search stops when `each` returns non-zero, and returns that.
 */
int tni_manager_search(tni_found_fn *each, void *context);
/**
 * The ids of all domains that some process of this user has open, of any layout version.
 * @param ret_ids  [*ret_count], which the caller frees; an id may be there more than once
 */
int tni_manager_living(uint8_t (**ret_ids)[16], uint32_t *ret_count);
/** Whether a name is 32 hexadecimal digits, as an id is written. */
bool tni_manager_has_id_form(const char *name);
/** Whether a name is the 32 hexadecimal digits of this id. */
bool tni_manager_is_id(const char *name, const uint8_t id[16]);
/** TN_ERR_NOT_FOUND: the process that had the domain open has ended. */
int tni_manager_open_found(const struct tni_found *found, bool read_only, int *ret_control_fd,
                           int *ret_arena_fd);

/*
 * The protocol between a process and tenond: one packet each way, then tenond closes the
 * connection. After DEPOSIT and FETCH it keeps the connection open for a while; the client
 * sends one request at a time.
 */
enum {
    TNI_REQUEST_REGISTER = 1, /* carries control and arena descriptors */
    TNI_REQUEST_FIND = 2,     /* the reply carries control and arena descriptors */
    TNI_REQUEST_GC = 3,
    TNI_REQUEST_DEPOSIT =
        4,                /* carries the descriptor of a block's object, for tenond to keep */
    TNI_REQUEST_FETCH = 5 /* the reply carries that descriptor */
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
    uint32_t limit; /* with TN_ERR_FULL of DEPOSIT: on descriptors */
};
/*
 * Files in the runtime folder. Their names have the versions of layout and requests that the
 * tenond knows: each version has a tenond of its own, and they run side by side.
 */
#define TNI_TEXT_OF(number) #number
#define TNI_TEXT(number)    TNI_TEXT_OF(number)
#define TNI_VERSIONS        TNI_TEXT(TNI_LAYOUT_VERSION) "." TNI_TEXT(TNI_REQUEST_VERSION)
#define TNI_MANAGER_PREFIX  "tenond-"
#define TNI_VAULT_PREFIX    "vault-"
#define TNI_MANAGER_SOCKET  TNI_MANAGER_PREFIX TNI_VERSIONS ".sock"
#define TNI_MANAGER_LOCK    TNI_MANAGER_PREFIX TNI_VERSIONS ".lock"
#define TNI_VAULT_SOCKET    TNI_VAULT_PREFIX TNI_VERSIONS ".sock"

#endif
