/* SPDX-License-Identifier: Apache-2.0 */
/* server: what the three files of the fork server's parent share. Inside the room spawn. */
#ifndef TNI_SPAWN_SERVER_H
#define TNI_SPAWN_SERVER_H

#include "spawn/serve.h"

#define TNI_SERVER_END_NS UINT64_C(2000000000) /* for a server that was told to end */

struct tni_asker {
    bool is_answered;
    struct tni_fork_answer answer;
};

struct tn_forkserver {
    struct tn_domain *domain;
    struct tn_process *process;
    int32_t owner_pid;
    int socket_fd;
    int server_fd; /* its end, while it starts */
    struct tni_place *place;
    struct tn_forkserver *next;
    /* Under tni_children_lock(), and in the process that started the server only. */
    uint64_t last_request;   /* its number */
    uint64_t out_request;    /* 0: none is out */
    struct tni_asker *asker; /* of the request that is out; NULL: the asker has given up */
    bool is_read; /* somebody is the reader: `process` and `late` are the reader's, too */
    struct tn_process *late; /* the child of a request that was withdrawn; NULL: none */
    _Atomic uint32_t news;   /* raised when one of these changed */
};

/** Make the socket of a server and put the server on this process's list. */
int tni_server_enlist(struct tn_forkserver *server);
/** Take it off, and close its sockets. */
void tni_server_unlist(struct tn_forkserver *server);
/** The server that this thread is starting: in its own process, its end stays open. */
void tni_servers_set_starting(struct tn_forkserver *server);

/** There are news: all that asked look again. */
void tni_server_tell(struct tn_forkserver *server);
/** Watch the child of a request that was withdrawn until it is gone (server.c, I5). */
void tni_server_watch_late(struct tn_forkserver *server, int32_t pid);
/** End it and collect it, if it has ended by the deadline. */
void tni_server_collect_late(struct tn_forkserver *server, uint64_t deadline_ns);
/** Nothing is out any more. */
void tni_server_end_request(struct tn_forkserver *server);
/** By the reader. @return 0: there may be news; or why the answer was not received */
int tni_server_read(struct tn_forkserver *server, uint64_t deadline_ns);
/**
 * Before the server is freed: the child of an asker that gave up is known, or there is none.
 */
void tni_server_reclaim(struct tn_forkserver *server);

#endif
