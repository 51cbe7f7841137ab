/* SPDX-License-Identifier: Apache-2.0 */
/* serve: the protocol between a fork server and its parent. Private to the room spawn. */
#ifndef TNI_SPAWN_SERVE_H
#define TNI_SPAWN_SERVE_H

#include "spawn/child.h"

/* Memory that the parent, the server and a starting child share. */
struct tni_place {
    int32_t forked;         /* pid of the child of the request in flight; 0: none yet */
    _Atomic uint64_t claim; /* {request:62, claim:2}: the request in flight, and TNI_CLAIM_* */
};
enum { TNI_CLAIM_OPEN = 0, TNI_CLAIM_TAKEN = 1, TNI_CLAIM_WITHDRAWN = 2 };

static inline uint64_t tni_claim_word(uint64_t number, unsigned state)
{
    return number << 2 | state;
}

enum { TNI_VERB_FORK = 1, TNI_VERB_END = 2 };
#define TNI_FORK_MAGIC UINT32_C(0x746e666b)

/*
 * A request is one packet: this struct, then the argument. The write end of the child's message
 * pipe travels with it.
 */
struct tni_fork_request {
    uint32_t magic;
    uint32_t verb;
    uint32_t flags; /* TN_PROCESS_* */
    uint32_t size_bytes;
    tn_process_fn *run;
    uint64_t number; /* counts the requests to this server */
};
struct tni_fork_answer {
    uint64_t number; /* of the request, so that a late answer is not taken for another one */
    int32_t status;  /* a pid, or TN_ERR_* */
    char text[252];
};

/* What the parent passes to a server that it starts. */
struct tni_service {
    struct tni_origin origin;
    int socket_fd;
    struct tni_place *place;
};
/** The main function of a server. `argument` is a struct tni_service. @return its exit code */
int tni_serve(struct tn_domain *domain, void *argument);

#endif
