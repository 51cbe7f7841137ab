/* SPDX-License-Identifier: Apache-2.0 */
/* server_list: the list of all fork servers of this process. A forked child closes their
 * sockets. */
#include "spawn/server.h"

static struct tn_forkserver *servers; /* under tni_children_lock() */
/* The server that this thread starts. In the new process its socket must stay open. */
static _Thread_local struct tn_forkserver *starting;

void tni_servers_set_starting(struct tn_forkserver *server) { starting = server; }

void tni_servers_forget(void)
{
    for (struct tn_forkserver *server = servers; server != NULL; server = server->next) {
        tni_os_close(server->socket_fd);
        server->socket_fd = -1;
        if (server == starting)
            continue;
        tni_os_close(server->server_fd);
        server->server_fd = -1;
    }
    servers = NULL;
}

int tni_server_enlist(struct tn_forkserver *server)
{
    int ends[2];
    tni_children_lock();
    int status = tni_os_pair(ends);
    if (status == 0) {
        server->socket_fd = ends[0];
        server->server_fd = ends[1];
        server->next = servers;
        servers = server;
    }
    tni_children_unlock();
    return status;
}

/* Clears the variables before it closes the sockets (child.c, I7). */
static void close_ends(struct tn_forkserver *server)
{
    int socket_fd = server->socket_fd, server_fd = server->server_fd;
    server->socket_fd = server->server_fd = -1;
    tni_os_close(socket_fd);
    tni_os_close(server_fd);
}

void tni_server_unlist(struct tn_forkserver *server)
{
    tni_children_lock();
    for (struct tn_forkserver **at = &servers; *at != NULL; at = &(*at)->next)
        if (*at == server) {
            *at = server->next;
            break;
        }
    close_ends(server);
    tni_children_unlock();
}
