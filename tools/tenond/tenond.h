/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tenond: what its files share. "We" is the process tenond.
 *
 * The files call each other only downward: main, loop, folder, due and clients, recall, adopt,
 * domains, seats, deposits, mirror.
 */
#ifndef TENOND_H
#define TENOND_H

#include "bundle.h"
#include "reaper/reaper.h"
#include "store/store.h"
#include "vault.h"

enum { TENOND_CLIENTS = 256, TENOND_MISSED = 16 };

/* The process in a seat, as we last saw it. */
struct tenond_watch {
    int fd; /* a process descriptor, in the loop; -1: none, and the seat is polled */
    int32_t pid;
    uint32_t incarnation;
    bool is_known; /* the seat is taken */
    uint64_t start_time;
};

/* The descriptors of a block, which we keep for all members. */
struct tenond_deposit {
    uint32_t index; /* of the block, in TNI_BACKING_CLASS */
    uint32_t generation;
    struct bundle bundle;
    bool is_mirrored; /* the vault has duplicates */
};

/* What a member or the vault offers as the descriptors of a block. */
struct tenond_offer {
    tni_block block;
    uint32_t generation;
    const int *fds; /* [fd_count] */
    uint32_t fd_count;
};

/* The deposits of a domain. */
struct tenond_deposits {
    struct tenond_deposit *at; /* [room], in no order */
    uint32_t count, room;
    uint32_t *places; /* [blocks of TNI_BACKING_CLASS]: place in `at` + 1, 0: none; sparse */
    uint64_t places_bytes;
    uint64_t sweep_ns;    /* time of the next sweep; TNI_FOREVER: no member has rung */
    uint64_t earliest_ns; /* no sweep begins before this time */
};

struct tenond_domain {
    struct tn_domain *domain;
    uint8_t id[16];
    uint32_t number;              /* in tags of the loop */
    struct tenond_watch *watches; /* [seats] */
    uint64_t tick_ns;             /* next tick */
    uint64_t retry_ns;            /* next retry of what failed; TNI_FOREVER: nothing failed */
    uint64_t pause_ns;            /* between two retries */
    uint64_t patient_ns;       /* before this time, a recount does not wait for other threads */
    uint64_t patient_pause_ns; /* between two recounts that wait */
    uint64_t poll_ns; /* next poll of seats without a descriptor; TNI_FOREVER: there are none */
    uint64_t expire_ns; /* when the next ticket expires */
    uint64_t empty_ns;  /* since when the domain has no member; 0: it has, or keeps a store */
    uint64_t files_ns;  /* no search for files of ended storages begins before this time */
    bool is_broken;     /* a check of its shared data failed */
    struct tenond_deposits deposits;
    struct tenond_domain *next;
};

/* Entries that the vault is to drop. It is told so when it has sent all entries. */
struct tenond_rejected {
    struct vault_packet *at; /* [room] */
    uint32_t count, room;
};

/* Our connection to the vault. */
struct tenond_mirror {
    int fd;                /* -1: none */
    uint32_t count;        /* descriptors of which the vault has a duplicate */
    uint64_t start_ns;     /* no vault is started before this time */
    bool serves_successor; /* the vault has, or may have, descriptors for our successor */
    bool is_given_up;      /* a vault that we disconnected from may still run */
    bool is_recalling;     /* we asked for all entries, and the last has not come yet */
    bool is_unheard;       /* no recall has ended since the vault may have had such entries */
    bool has_more;         /* the vault has, or may have, entries that we have not */
    uint32_t more_count;   /* of the last answer: entries that we could not take */
    uint64_t asked_ns;     /* when we asked last */
    uint64_t ask_ns;       /* if has_more: when we ask again */
    uint64_t unseen_ns;    /* until then, a domain may live though we see no member */
    struct tenond_rejected rejected;
};

struct tenond_client {
    int fd;            /* -1: none */
    uint64_t since_ns; /* when it connected, or its last request came */
};

struct tenond {
    int loop, listen_fd, bell_fd, stop_fd, lock_fd;
    bool is_listening;  /* listen_fd is in the loop */
    uint64_t listen_ns; /* if not: when it is added again, after descriptors had run out */
    uint64_t bell_number;
    uint64_t socket_number; /* of the file of listen_fd */
    uint64_t folder_ns;     /* next check of the runtime folder */
    int folder_status;      /* result of the last one */
    bool is_retired;        /* another tenond has our folder: it gets our domains, and we end */
    uint32_t runtime;
    uint32_t domain_count, domain_counter;
    uint64_t idle_ns;    /* since when there is no domain */
    uint64_t collect_ns; /* next search for files of ended domains; TNI_FOREVER: none is due */
    uint64_t adopt_ns;   /* no search for unknown domains on request before this time */
    uint64_t rung_ns;    /* when the bell rang last */
    uint64_t scan_ns;    /* next scan of all seats after a ring; TNI_FOREVER: none is due */
    uint64_t missed_ns;  /* next search for domains that we failed to take over */
    bool has_missed;     /* the last search found such domains */
    uint64_t missed[TENOND_MISSED]; /* [missed_count], inodes of their control segments */
    uint32_t missed_count;
    uint32_t descriptor_limit;
    uint32_t deposit_limit, deposit_count; /* descriptors in all deposits: most, and now */
    struct tenond_mirror mirror;
    struct tenond_domain *domains;
    struct tenond_client clients[TENOND_CLIENTS];
};

/* Tags of the loop: {kind:8, domain number:24, index:32}. */
enum { TENOND_LISTEN = 1, TENOND_BELL, TENOND_STOP, TENOND_CLIENT, TENOND_SEAT, TENOND_VAULT };
static inline uint64_t tenond_tag(uint32_t kind, uint32_t number, uint32_t index)
{
    return (uint64_t)kind << 56 | (uint64_t)(number & 0xffffff) << 32 | index;
}

static inline const struct tni_segment *tenond_segment(const struct tenond_domain *domain)
{
    return &domain->domain->segment;
}
/** The domain's name; "" if it is anonymous. */
static inline const char *tenond_name(const struct tenond_domain *domain)
{
    return tenond_segment(domain)->name;
}

/* ---- loop.c ------------------------------------------------------------------------------ */

/**
 * Serve until stop_fd is readable or there is nothing to do.
 * @param lock_fd  of the folder's lock file; replaced if the folder changes
 * @return 0, or the error that prevented the start
 */
int tenond_run(int stop_fd, int *lock_fd);

/* ---- folder.c ---------------------------------------------------------------------------- */

/** Make the socket in the runtime folder and listen on it. */
int tenond_folder_listen(struct tenond *tenond);
/** Check once a second whether this tenond still has its runtime folder. @return the next time
 */
uint64_t tenond_folder_due(struct tenond *tenond, uint64_t now_ns);
/** Stop listening, and remove the socket if this tenond made it. */
void tenond_folder_close(struct tenond *tenond);

/* ---- due.c ------------------------------------------------------------------------------- */

/** Do what is due in every domain. @return the time when something is due next */
uint64_t tenond_domains_due(struct tenond *tenond, uint64_t now_ns);

/* ---- clients.c --------------------------------------------------------------------------- */

void tenond_clients_init(struct tenond *tenond);
void tenond_clients_fini(struct tenond *tenond);
/** Accept the connections that wait. */
void tenond_accept(struct tenond *tenond);
/** Answer a connection that is readable. */
void tenond_client_ready(struct tenond *tenond, uint32_t index);
/** Close connections that were silent for too long. @return the next time */
uint64_t tenond_clients_due(struct tenond *tenond, uint64_t now_ns);

/* ---- recall.c ---------------------------------------------------------------------------- */

/** Take over the descriptors that a vault has, if one runs. pre: all domains were searched for
 */
void tenond_recall(struct tenond *tenond);
/** The same after the folder changed, with the vault of the new folder. */
void tenond_recall_anew(struct tenond *tenond);
/** Recall if a domain was added since the last recall. */
void tenond_recall_catch_up(struct tenond *tenond);
/** Whether the vault may have the descriptor of any block, because it has not told all. */
bool tenond_recall_is_unheard(const struct tenond *tenond);
/** The connection to the vault is readable: the vault answers, or has ended. */
void tenond_recall_ready(struct tenond *tenond);
/** Give the vault deposits that it lacks, and ask it again. @return the next time */
uint64_t tenond_recall_due(struct tenond *tenond, uint64_t now_ns);

/* ---- adopt.c ----------------------------------------------------------------------------- */

/**
 * Manage another domain; both descriptors are consumed. TN_ERR_MANAGER: another tenond manages
 * it; TN_ERR_EXISTS: its name is taken; errors of attaching and joining.
 */
int tenond_add(struct tenond *tenond, int control_fd, int arena_fd);
/** Write into the domain that this tenond manages it, and where it listens. */
void tenond_become_manager(const struct tenond *tenond, struct tenond_domain *domain);
/** Search all processes for domains of our runtime folder, and manage them. */
void tenond_adopt(struct tenond *tenond);
/** The domain with this id, 32 hexadecimal digits; searches for one not known. NULL: none */
struct tenond_domain *tenond_find_id(struct tenond *tenond, const char *id);

/* ---- domains.c --------------------------------------------------------------------------- */

/** The domain of this name or id. NULL: none */
struct tenond_domain *tenond_find(struct tenond *tenond, const char *name);
/**
 * Refuse new members, unless the domain has members. A domain without a name refuses none.
 * @return whether tenond_drop() may follow
 */
bool tenond_give_up(const struct tenond *tenond, const struct tenond_domain *domain);
/** Leave the domain and free what we have of it. */
void tenond_drop(struct tenond *tenond, struct tenond_domain *domain);
/** Keep a domain without members for a moment more: a process is about to join. */
void tenond_linger(struct tenond_domain *domain);
/** Remove the files of domains that have ended. */
void tenond_collect_files(void);
/** The same after domains were dropped, now and then. @return the next time */
uint64_t tenond_collect_due(struct tenond *tenond, uint64_t now_ns);

/* ---- seats.c ----------------------------------------------------------------------------- */

/** Whether the domain's shared data still are what they were when we joined. */
bool tenond_makes_sense(const struct tenond_domain *domain);
/** Compare each seat of the domain with what tenond knows, and reclaim dead processes. */
void tenond_scan(struct tenond *tenond, struct tenond_domain *domain);
/** The same in every domain, after the bell rang. */
void tenond_scan_all(struct tenond *tenond);
/**
 * Reclaim dead processes of seats without a process descriptor.
 * @param is_tick  also of the others: a process that execs loses its seat, and goes on
 * @return whether there is such a seat
 */
bool tenond_poll_seats(struct tenond_domain *domain, bool is_tick);
/** A process descriptor is readable: the process in the seat has ended. */
void tenond_seat_ready(struct tenond *tenond, uint32_t number, uint32_t seat);
/** Close and forget the process descriptors of all seats. */
void tenond_unwatch_all(struct tenond *tenond, struct tenond_domain *domain);
/** Set domain->empty_ns by whether the domain has members, or a store that is kept. */
void tenond_note_members(struct tenond_domain *domain);
enum { TENOND_RETRY_LEAST_MS = 10, TENOND_RETRY_MOST_MS = 1000, TENOND_POLL_MS = 100 };

/* ---- deposits.c -------------------------------------------------------------------------- */

/** Raise our limit of descriptors, and compute how many of them deposits may have. */
void tenond_deposits_limit(struct tenond *tenond);
/**
 * Keep the descriptors of a block, and send duplicates to the vault. The descriptors are
 * consumed on success; else none is. TN_ERR_STALE: the block has ended; TN_ERR_INVALID: the
 * block has another number of descriptors, or one is not of its object; TN_ERR_FULL: deposits
 * would have more descriptors than the limit; TN_ERR_NO_MEMORY.
 */
int tenond_deposit(struct tenond *tenond, struct tenond_domain *domain,
                   const struct tenond_offer *offer);
/** The same, but send nothing to the vault. */
int tenond_deposit_keep(struct tenond *tenond, struct tenond_domain *domain,
                        const struct tenond_offer *offer, struct tenond_deposit **ret_deposit);
/** Find the descriptors of a block; tenond still owns them. TN_ERR_NOT_FOUND. */
int tenond_fetch(struct tenond_domain *domain, tni_block block, uint32_t generation,
                 const struct bundle **ret_bundle);
/** Have a sweep made soon: blocks may have ended. */
void tenond_sweep_soon(struct tenond_domain *domain);
/** Make a sweep if it is due. @return the next time */
uint64_t tenond_sweep_due(struct tenond *tenond, struct tenond_domain *domain, uint64_t now_ns);
/** Close all deposits. Unless the domain has ended, the vault keeps its duplicates. */
void tenond_deposits_fini(struct tenond *tenond, struct tenond_domain *domain, bool is_over);

/* ---- mirror.c ---------------------------------------------------------------------------- */

/** Send a deposit to the vault; a vault is started if there is none. */
void tenond_mirror_put(struct tenond *tenond, const struct tenond_domain *domain,
                       struct tenond_deposit *deposit);
/** Tell the vault to drop a deposit. */
void tenond_mirror_drop(struct tenond *tenond, const struct tenond_domain *domain,
                        struct tenond_deposit *deposit);
/** Forget a deposit that the vault keeps for our successor. */
void tenond_mirror_leave(struct tenond *tenond, struct tenond_deposit *deposit);
/** A domain was left, perhaps with entries in the vault: look at them later. */
void tenond_mirror_left(struct tenond *tenond);
/** Note whether the vault has duplicates of a deposit. */
void tenond_mirror_note(struct tenond *tenond, struct tenond_deposit *deposit,
                        bool is_mirrored);
/** Note that the vault has no duplicates. */
void tenond_mirror_forget(struct tenond *tenond);
/**
 * Note an entry that the vault is to drop when it has sent all.
 * @param verb  VAULT_DROP: the entry is over. VAULT_PUT: another tenond manages its domain, and
 *              the entry is over if that domain has ended
 */
void tenond_mirror_reject(struct tenond *tenond, const struct vault_packet *packet,
                          uint32_t verb);
/** Use a connection to the vault that listens on the socket of that name. It is consumed. */
int tenond_mirror_connect(struct tenond *tenond, int fd);
/** Disconnect from the vault; none is started before `start_ns`. */
void tenond_mirror_give_up(struct tenond *tenond, uint64_t start_ns);
/** End the recall, and free the rejected entries. */
void tenond_mirror_end_recall(struct tenond *tenond);
/** We manage another domain: the vault may have entries of it. */
void tenond_mirror_adopted(struct tenond *tenond);
/** Whether the vault may have entries that we have not: then we do not end. */
bool tenond_mirror_has_more(const struct tenond *tenond);
/** Disconnect. The vault ends unless it serves our successor. pre: no domain is left */
void tenond_mirror_fini(struct tenond *tenond);

#endif
