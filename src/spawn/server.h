/* SPDX-License-Identifier: Apache-2.0 */
/* server: the parent's side of a fork server, in three files. Private to the room spawn. */
#ifndef TNI_SPAWN_SERVER_H
#define TNI_SPAWN_SERVER_H

#include "spawn/serve.h"

#define TNI_SERVER_END_NS UINT64_C(2000000000) /* time limit for a server that is ending */

struct tni_asker {
    bool is_answered;
    struct tni_fork_answer answer;
};

struct tn_forkserver {
    struct tn_domain *domain;
    struct tn_process *process;
    int32_t owner_pid;
    int socket_fd;
    int server_fd; /* the server's end of the socket, while the server starts */
    struct tni_place *place;
    struct tn_forkserver *next;
    /* Used only under tni_children_lock(), and only in the process that started the server. */
    uint64_t last_request;   /* the number of the last request */
    uint64_t out_request;    /* the request in flight; 0: none */
    struct tni_asker *asker; /* caller of the request in flight; NULL: the caller gave up */
    bool is_read;            /* a thread is the reader: only it uses `process` and `late` */
    struct tn_process *late; /* the child of a request that was withdrawn; NULL: none */
    _Atomic uint32_t news;   /* raised after each change of these fields: callers sleep on it */
};

/** Make the socket of a server and put the server on this process's list. */
int tni_server_enlist(struct tn_forkserver *server);
/** Remove the server from the list, and close its sockets. */
void tni_server_unlist(struct tn_forkserver *server);
/** Say which server this thread starts, so that the server's own socket stays open in it. */
void tni_servers_set_starting(struct tn_forkserver *server);

/** Raise `news` and wake up all waiting callers. */
void tni_server_tell(struct tn_forkserver *server);
/** Watch the child of a request that was withdrawn until it is gone (server.c, I5). */
void tni_server_watch_late(struct tn_forkserver *server, int32_t pid);
/** Kill the child of a withdrawn request, and collect it if it ends before the deadline. */
void tni_server_collect_late(struct tn_forkserver *server, uint64_t deadline_ns);
/** Note that no request is in flight. */
void tni_server_end_request(struct tn_forkserver *server);
/** The reader receives an answer. @return 0: the state may have changed; or an error */
int tni_server_read(struct tn_forkserver *server, uint64_t deadline_ns);
/** Before the server is freed: find and end the child of a withdrawn request, if any. */
void tni_server_reclaim(struct tn_forkserver *server);

#endif
