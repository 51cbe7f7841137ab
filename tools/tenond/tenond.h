/* SPDX-License-Identifier: Apache-2.0 */
/* tenond: what its files share. */
#ifndef TENOND_H
#define TENOND_H

#include "reaper/reaper.h"
#include "vault.h"

enum { TENOND_CLIENTS = 256, TENOND_MISSED = 16 };

/*
 * What we know of a seat; `fd` is -1 for one to look at now and then, and for one that nobody
 * has.
 */
struct tenond_watch {
    int fd; /* readable when the process is gone */
    int32_t pid;
    uint32_t incarnation;
    bool is_known;
    uint64_t start_time;
};

struct tenond_deposit {
    uint32_t index; /* of the block, in TNI_BACKING_CLASS */
    uint32_t generation;
    int fd;
    bool is_mirrored; /* the vault has it too */
};

struct tenond_deposits {
    struct tenond_deposit *at; /* [room], in no order */
    uint32_t count, room;
    uint32_t *places; /* [blocks of TNI_BACKING_CLASS]: place in `at` + 1, 0: none; sparse */
    uint64_t places_bytes;
    uint64_t sweep_ns;    /* when they are looked at; TNI_FOREVER: nothing rang */
    uint64_t earliest_ns; /* not before */
};

struct tenond_domain {
    struct tn_domain *domain;
    uint8_t id[16];
    uint32_t number;              /* in tags */
    struct tenond_watch *watches; /* [seats] */
    uint64_t tick_ns;             /* when everything is looked at again */
    uint64_t
        retry_ns; /* when what could not be finished is tried again; TNI_FOREVER: nothing */
    uint64_t pause_ns;   /* between two such tries */
    uint64_t patient_ns; /* before it, no recount waits for a thread that is in its way */
    uint64_t patient_pause_ns;
    uint64_t poll_ns; /* when seats without a descriptor are looked at; TNI_FOREVER: none is */
    uint64_t expire_ns; /* when the next ticket expires */
    uint64_t empty_ns;  /* since when it has no member; 0: it has */
    uint64_t files_ns;  /* when to look again for files that it let go, at the earliest */
    bool is_broken;     /* something in it was senseless */
    struct tenond_deposits deposits;
    struct tenond_domain *next;
};

/* What the vault shall drop, or shall if its domain has ended: see reject() in mirror.c. */
struct tenond_rejected {
    struct vault_packet *at; /* [room] */
    uint32_t count, room;
};

/* Our connection to the vault. */
struct tenond_mirror {
    int fd;              /* -1: none */
    uint32_t count;      /* deposits that it has */
    uint64_t start_ns;   /* no vault is started before */
    bool has_heirs;      /* it has something for our successor */
    bool is_given_up;    /* the one that we had may live */
    bool is_recalling;   /* it was asked for all it has, and has not sent the last of it */
    bool has_left;       /* it may have what we have not: no other vault takes its place */
    uint32_t left_count; /* of those that it was last asked for */
    uint64_t asked_ns;   /* when that was */
    uint64_t ask_ns;     /* if has_left: when it is asked again */
    uint64_t unseen_ns;  /* before it, a domain that we do not see may live */
    struct tenond_rejected rejected; /* told to it when it has sent all */
};

struct tenond_client {
    int fd; /* -1: none */
    uint64_t since_ns;
};

struct tenond {
    int loop, listen_fd, bell_fd, stop_fd, lock_fd;
    bool is_listening;  /* the loop looks at listen_fd */
    uint64_t listen_ns; /* when to listen again, after we ran out of descriptors */
    uint64_t bell_number;
    uint64_t socket_number; /* of the file that listen_fd has */
    uint64_t folder_ns;     /* when we look whether our folder is ours */
    int folder_status;      /* what came of that */
    bool is_retired;        /* another tenond has it: it is given our domains, and we end */
    uint32_t runtime;
    uint32_t domain_count, domain_counter;
    uint64_t idle_ns;    /* since when there is no domain */
    uint64_t collect_ns; /* when to look for files of dropped domains; TNI_FOREVER: no more */
    uint64_t adopt_ns;   /* when to look for unknown domains again, at the earliest */
    uint64_t rung_ns;    /* when somebody rang last */
    uint64_t look_ns;    /* when all is looked at once more; TNI_FOREVER: nobody rang */
    uint64_t missed_ns;  /* when to look again for what could not be taken over */
    bool has_missed;     /* there was such at the last look */
    uint64_t missed[TENOND_MISSED]; /* inodes of control segments: of those at this look */
    uint32_t missed_count;
    uint32_t descriptor_limit, deposit_limit, deposit_count;
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

/**
 * Serve until stop_fd is readable or nothing is left to do. @return 0, or an error that kept it
 * from starting
 * @param lock_fd  that of the folder's lock file; another one afterwards if the folder changed
 */
int tenond_run(int stop_fd, int *lock_fd);

/* ---- folder.c ---------------------------------------------------------------------------- */

int tenond_folder_listen(struct tenond *tenond);
/** Look whether our folder is ours. @return when to look again */
uint64_t tenond_folder_due(struct tenond *tenond, uint64_t now_ns);
void tenond_folder_close(struct tenond *tenond);

/* ---- domains.c --------------------------------------------------------------------------- */

/**
 * Take a domain over; both descriptors are consumed. TN_ERR_MANAGER: another tenond has it;
 * TN_ERR_EXISTS, and errors of attaching and joining.
 */
int tenond_add(struct tenond *tenond, int control_fd, int arena_fd);
/** Say in the domain that we are its tenond, and where we are. */
void tenond_take_office(const struct tenond *tenond, struct tenond_domain *domain);
/**
 * Every domain of our runtime folder that somebody has open: after a tenond that was killed.
 */
void tenond_adopt(struct tenond *tenond);
/** By name or id; NULL. */
struct tenond_domain *tenond_find(struct tenond *tenond, const char *name);
/** By 32 hexadecimal digits of id, also one that nobody told us of; NULL. */
struct tenond_domain *tenond_find_id(struct tenond *tenond, const char *id);
/** Leave it, and forget it. */
void tenond_drop(struct tenond *tenond, struct tenond_domain *domain);
/** Remove files of domains that have ended. */
void tenond_collect_files(void);
/** The same now and then, from when a domain was dropped on. @return when it is due next */
uint64_t tenond_collect_due(struct tenond *tenond, uint64_t now_ns);
/** Keep it for a while even if nobody is in it: somebody is about to join. */
void tenond_linger(struct tenond_domain *domain);
/** Somebody rang: look at all seats. */
void tenond_look(struct tenond *tenond);
/** The process in a seat may be gone. */
void tenond_seat_ready(struct tenond *tenond, uint32_t number, uint32_t seat);
/** Do what is due. @return when something is due next */
uint64_t tenond_domains_due(struct tenond *tenond, uint64_t now_ns);

/* ---- deposits.c -------------------------------------------------------------------------- */

/** Take every descriptor that this process may have. */
void tenond_deposits_limit(struct tenond *tenond);
/**
 * Keep a descriptor, which is consumed on success. TN_ERR_STALE: the block has ended;
 * TN_ERR_INVALID: it is not the object of that block; TN_ERR_FULL: descriptors.
 */
int tenond_deposit(struct tenond *tenond, struct tenond_domain *domain, tni_block block,
                   uint32_t generation, int fd);
/** The same without telling the vault, or the depositor that it may go. */
int tenond_deposit_keep(struct tenond *tenond, struct tenond_domain *domain, tni_block block,
                        uint32_t generation, int fd, struct tenond_deposit **ret_deposit);
/** *ret_fd stays ours. TN_ERR_NOT_FOUND. */
int tenond_fetch(struct tenond_domain *domain, tni_block block, uint32_t generation,
                 int *ret_fd);
/** Some blocks may have ended. */
void tenond_sweep_soon(struct tenond_domain *domain);
/** Sweep if it is time. @return when it is time next */
uint64_t tenond_sweep_due(struct tenond *tenond, struct tenond_domain *domain, uint64_t now_ns);
/** Close them. Unless the domain is over, the vault keeps what it has of it. */
void tenond_deposits_fini(struct tenond *tenond, struct tenond_domain *domain, bool is_over);

/* ---- mirror.c ---------------------------------------------------------------------------- */

/** Take over what a vault has for us, if there is one. pre: all domains were looked for */
void tenond_mirror_recall(struct tenond *tenond);
/** We look after another domain: the vault may have something of it. */
void tenond_mirror_adopted(struct tenond *tenond);
/** Take over what the vault has of it, before somebody is told that we have it not. */
void tenond_mirror_catch_up(struct tenond *tenond);
/** Whether a vault has what we have not: then we do not end. */
bool tenond_mirror_is_behind(const struct tenond *tenond);
/** Send a deposit to the vault, and start one if there is none. */
void tenond_mirror_put(struct tenond *tenond, const struct tenond_domain *domain,
                       struct tenond_deposit *deposit);
void tenond_mirror_drop(struct tenond *tenond, const struct tenond_domain *domain,
                        struct tenond_deposit *deposit);
/** Forget one, which the vault keeps for whoever comes after us. */
void tenond_mirror_leave(struct tenond *tenond, struct tenond_deposit *deposit);
/** The vault has ended, or sent what it was asked for. */
void tenond_mirror_ready(struct tenond *tenond);
/** Give a new vault what it has not. @return when there is more to do */
uint64_t tenond_mirror_due(struct tenond *tenond, uint64_t now_ns);
/** Our folder has changed, and the vault may have lost its name: use the one of the folder. */
void tenond_mirror_move(struct tenond *tenond);
/** pre: no domain is left */
void tenond_mirror_fini(struct tenond *tenond);

/* ---- clients.c --------------------------------------------------------------------------- */

void tenond_clients_init(struct tenond *tenond);
void tenond_clients_fini(struct tenond *tenond);
void tenond_accept(struct tenond *tenond);
void tenond_client_ready(struct tenond *tenond, uint32_t index);
/** Close who has said nothing for long. @return when to look next */
uint64_t tenond_clients_due(struct tenond *tenond, uint64_t now_ns);

#endif
