/* SPDX-License-Identifier: Apache-2.0 */
/* manager: what the files that talk to tenond share. Inside the room reaper. */
#ifndef TNI_REAPER_MANAGER_H
#define TNI_REAPER_MANAGER_H

#include "reaper/reaper.h"

/** Fill in a request; `name` is cut to what fits. */
void tni_manager_fill(struct tni_request *request, uint32_t verb, const char *name);

/* A request to tenond, and the descriptors that go with it and with its reply. */
struct tni_inquiry {
    struct tni_request request;
    const int *fds; /* [fd_count] to send */
    uint32_t fd_count;
    uint32_t wanted_fds; /* so many must come with a reply that says 0: at most TNI_PIECES */
};

/**
 * Send a request over a connection and wait for its reply.
 * @param ret_fds  [wanted_fds], which the caller closes; may be NULL if there are none
 * @return 0, whatever the reply says; TN_ERR_CLOSED (tenond ended, or closed the connection),
 *         TN_ERR_TIMED_OUT, TN_ERR_MANAGER (the reply is malformed), TN_ERR_SYSTEM
 */
int tni_manager_talk(int socket_fd, const struct tni_inquiry *inquiry, uint64_t deadline_ns,
                     struct tni_reply *ret_reply, int *ret_fds);

/**
 * Connect to the tenond that listens, and do the same.
 * @return as tni_manager_talk(), or TN_ERR_NOT_FOUND: no tenond listens
 */
int tni_manager_exchange(const struct tni_inquiry *inquiry, uint64_t deadline_ns,
                         struct tni_reply *ret_reply, int *ret_fds);
/** Set the error of a reply about the domain of this name. */
int tni_manager_fail_reply(const struct tni_reply *reply, const char *name);
/**
 * The status with which a search goes on: 0 if a domain could not be opened because it is gone,
 * or is another user's. After another error, such as too many descriptors, the search must end:
 * the domain that could not be opened may be the one that is searched for.
 */
static inline int tni_manager_unless_gone(int status)
{
    return status == TN_ERR_NOT_FOUND || status == TN_ERR_DENIED ? 0 : status;
}
/**
 * If the tenond of a domain of this process went on in another runtime folder, use that folder
 * from now on. A caller that needs the runtime folder calls this first.
 */
void tni_manager_follow(void);
/** Whether the process that manages the domain holds the lock of this folder. */
bool tni_manager_is_in_folder(const struct tni_segment *segment, const char *folder);
/** The value of header->runtime in the domains of a runtime folder. Never 0. */
uint32_t tni_manager_hash_folder(const char *folder);

/* ---- discover.c, folder.c, contact.c --------------------------------------------------- */

enum { TNI_FOLDER_BYTES = 128 };

/** What tni_manager_follow() does, for one domain. */
void tni_folder_follow(struct tn_domain *domain);
/**
 * The runtime folder of the tenond `pid`, whose lock that process holds. False: it holds none,
 * or the hash of its folder is not `runtime`; the text is empty.
 */
bool tni_folder_of_tenond(int32_t pid, uint32_t runtime, char folder[TNI_FOLDER_BYTES]);
/** Start a tenond, or register the domain with the one that listens. Does not wait for a reply.
 */
int tni_contact_replace(struct tn_domain *domain);

/**
 * Connect to the tenond of this runtime folder. Start one if none listens there, and wait until
 * it listens: 5 s, and up to 30 s while a tenond that starts has the folder's lock.
 * @return 0, TN_ERR_MANAGER (it cannot be started, or does not listen), TN_ERR_TIMED_OUT,
 *         TN_ERR_DENIED, TN_ERR_SYSTEM
 */
int tni_manager_connect(int *ret_fd);

/* ---- reclaim.c ------------------------------------------------------------------------- */

/** Begin to reclaim. False: another thread of this process reclaims; only one may. */
bool tni_reclaim_begin(struct tn_domain *domain);
/** Release the claims that a dead or leaving seat has in the header. */
void tni_reclaim_release_claims(struct tn_domain *domain, uint64_t who);

/* ---- depot.c ----------------------------------------------------------------------------- */

/** At join: set up the depot, unless the domain has no tenond. */
void tni_depot_init(struct tn_domain *domain);
/** At leave: close the connection. */
void tni_depot_fini(struct tn_domain *domain);
/** If another tenond manages the domain by now, give it the descriptors that this process has.
 */
void tni_depot_catch_up(struct tn_domain *domain);

#endif
