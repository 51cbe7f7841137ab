/* SPDX-License-Identifier: Apache-2.0 */
/* manager: what our side of tenond shares. Inside the room reaper. */
#ifndef TNI_REAPER_MANAGER_H
#define TNI_REAPER_MANAGER_H

#include "reaper/reaper.h"

/** A request of this wire's version; `name` is cut to what fits. */
void tni_manager_fill(struct tni_request *request, uint32_t verb, const char *name);

/**
 * Send a request over a connection and wait for its reply. A reply that says 0 must come with
 * `wanted_fds` (at most 2) descriptors, which are the caller's.
 * @return 0, whatever the reply says; TN_ERR_CLOSED (tenond went away, or closed it),
 *         TN_ERR_TIMED_OUT, TN_ERR_MANAGER (an answer that makes no sense), TN_ERR_SYSTEM
 */
int tni_manager_talk(int socket_fd, const struct tni_request *request, const int *fds,
                     uint32_t fd_count, uint64_t deadline_ns, struct tni_reply *ret_reply,
                     int *ret_fds, uint32_t wanted_fds);

/**
 * Ask whoever listens. With ret_fds, two descriptors must come with a reply that says 0.
 * @return as tni_manager_talk(), or TN_ERR_NOT_FOUND: nobody listens; TN_ERR_CLOSED: it went
 * away without an answer
 */
int tni_manager_exchange(const struct tni_request *request, const int *fds, uint32_t fd_count,
                         uint64_t deadline_ns, struct tni_reply *ret_reply, int *ret_fds);
/** The error that a reply of tenond about the domain of this name stands for. */
int tni_manager_fail_reply(const struct tni_reply *reply, const char *name);
/** What could not be opened for want of something is there all the same: the search ends. */
static inline int tni_manager_unless_gone(int status)
{
    return status == TN_ERR_NOT_FOUND || status == TN_ERR_DENIED ? 0 : status;
}
/**
 * Keep to the runtime folder in which the tenond of a domain of this process went on, if that
 * is another one by now. pre: comes before what depends on the folder.
 */
void tni_manager_follow(void);
/** As tni_manager_is_in_office(), and it is the lock of this folder. */
bool tni_manager_is_in_folder(const struct tni_segment *segment, const char *folder);
/** What header->runtime says of the domains of a runtime folder. Never 0. */
uint32_t tni_manager_hash_folder(const char *folder);

/* ---- discover.c, folder.c, contact.c ------------------------------------------------------
 */

enum { TNI_FOLDER_BYTES = 128 };

/** What tni_manager_follow() does, of one domain. */
void tni_folder_follow(struct tn_domain *domain);
/**
 * The runtime folder of the tenond `pid`, by the lock that it holds. False: it holds none, or
 * the hash of its folder is not `runtime`; the text is empty.
 */
bool tni_folder_of_tenond(int32_t pid, uint32_t runtime, char folder[TNI_FOLDER_BYTES]);
/** Start a tenond, or tell the one that listens of the domain. Waits for no answer. */
int tni_contact_replace(struct tn_domain *domain);

#define TNI_MANAGER_START_NS UINT64_C(5000000000) /* a new tenond listens by then */

/**
 * Connect to the tenond of this runtime folder. Start one if nobody listens there.
 * @return 0, TN_ERR_MANAGER (it cannot be started, or does not listen by then),
 *         TN_ERR_TIMED_OUT, TN_ERR_DENIED, TN_ERR_SYSTEM
 */
int tni_manager_connect(uint64_t deadline_ns, int *ret_fd);

/* ---- reclaim.c ----------------------------------------------------------------------------
 */

/** Only one thread of a process reclaims at a time. False: another one does. */
bool tni_reclaim_begin(struct tn_domain *domain);
/** Give up the claims that a seat, which ends, has on shared tables. */
void tni_reclaim_release_claims(struct tn_domain *domain, uint64_t who);

/* ---- depot.c ----------------------------------------------------------------------------- */

/** At join, unless the domain has no tenond. */
void tni_depot_init(struct tn_domain *domain);
/** At leave: give the connection up. */
void tni_depot_fini(struct tn_domain *domain);
/** If another tenond serves than the one we gave descriptors to, give it what we still have. */
void tni_depot_catch_up(struct tn_domain *domain);

#endif
