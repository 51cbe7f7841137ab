/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clients: connections of processes that ask tenond for something.
 *
 * A client sends one packet and gets one packet, which always fits into the empty socket, so a
 * client that does not read cannot make us wait. A connection is closed after its answer, after
 * a malformed packet, or after a long silence. A client that deposits or fetches descriptors
 * may send another request: its connection stays until it is silent for long, another client
 * needs its place, or it does not read the answer.
 */
#include <string.h>

#include "tenond.h"

enum { ACCEPT_MOST = 64 };
#define SILENCE_NS      UINT64_C(10000000000)
#define LISTEN_PAUSE_NS UINT64_C(100000000)

void tenond_clients_init(struct tenond *t)
{
    for (uint32_t i = 0; i < TENOND_CLIENTS; i++)
        t->clients[i].fd = -1;
}

static void close_client(struct tenond *t, struct tenond_client *client)
{
    if (client->fd < 0)
        return;
    tni_os_loop_remove(t->loop, client->fd);
    tni_os_close(client->fd);
    client->fd = -1;
}

void tenond_clients_fini(struct tenond *t)
{
    for (uint32_t i = 0; i < TENOND_CLIENTS; i++)
        close_client(t, &t->clients[i]);
}

/* ---- coming and going -------------------------------------------------------------------- */

/* A free place, or that of the client that was silent for longest. */
static struct tenond_client *find_place(struct tenond *t)
{
    struct tenond_client *oldest = &t->clients[0];
    for (uint32_t i = 0; i < TENOND_CLIENTS; i++) {
        if (t->clients[i].fd < 0)
            return &t->clients[i];
        if (t->clients[i].since_ns < oldest->since_ns)
            oldest = &t->clients[i];
    }
    close_client(t, oldest);
    return oldest;
}

static bool drop_oldest(struct tenond *t)
{
    struct tenond_client *oldest = NULL;
    for (uint32_t i = 0; i < TENOND_CLIENTS; i++)
        if (t->clients[i].fd >= 0 &&
            (oldest == NULL || t->clients[i].since_ns < oldest->since_ns))
            oldest = &t->clients[i];
    if (oldest != NULL)
        close_client(t, oldest);
    return oldest != NULL;
}

/*
 * No descriptor is left for a new connection. It stays in the queue of the socket, which would
 * be readable all the time.
 */
static void pause_listening(struct tenond *t)
{
    if (drop_oldest(t))
        return;
    tni_os_loop_remove(t->loop, t->listen_fd);
    t->is_listening = false;
    t->listen_ns = tni_os_now_ns() + LISTEN_PAUSE_NS;
}

void tenond_accept(struct tenond *t)
{
    for (int n = 0; n < ACCEPT_MOST; n++) {
        int fd;
        int status = tni_os_accept(t->listen_fd, &fd);
        if (status == TN_ERR_DENIED)
            continue;
        if (status == TN_ERR_TIMED_OUT)
            return;
        if (status != 0) {
            tni_log(TNI_LOG_WARNING, "a connection cannot be accepted: %s", tn_error_detail());
            pause_listening(t);
            return;
        }
        struct tenond_client *client = find_place(t);
        *client = (struct tenond_client){.fd = fd, .since_ns = tni_os_now_ns()};
        if (tni_os_loop_add(t->loop, fd,
                            tenond_tag(TENOND_CLIENT, 0, (uint32_t)(client - t->clients))) !=
            0) {
            tni_os_close(fd);
            client->fd = -1;
        }
    }
}

uint64_t tenond_clients_due(struct tenond *t, uint64_t now_ns)
{
    uint64_t next_ns = TNI_FOREVER;
    for (uint32_t i = 0; i < TENOND_CLIENTS; i++) {
        struct tenond_client *client = &t->clients[i];
        if (client->fd >= 0 && client->since_ns + SILENCE_NS <= now_ns)
            close_client(t, client);
        if (client->fd >= 0)
            next_ns = TNI_MIN(next_ns, client->since_ns + SILENCE_NS);
    }
    if (!t->is_listening && now_ns >= t->listen_ns)
        t->is_listening =
            tni_os_loop_add(t->loop, t->listen_fd, tenond_tag(TENOND_LISTEN, 0, 0)) == 0;
    return t->is_listening ? next_ns : TNI_MIN(next_ns, now_ns + LISTEN_PAUSE_NS);
}

/* ---- requests ---------------------------------------------------------------------------- */

static void gc(struct tenond *t)
{
    for (struct tenond_domain *d = t->domains; d != NULL; d = d->next) {
        tni_reaper_reclaim_all(d->domain);
        tenond_sweep_soon(d);
    }
    tenond_scan_all(t);
    tenond_collect_files();
}

/* A request with its descriptors, and what is answered. */
struct exchange {
    struct tni_request request;
    int fds[TNI_PIECES]; /* [fd_count]; consumed if fd_count is 0 afterwards */
    uint32_t fd_count;
    const int *found_fds; /* [found_count], borrowed from the domain */
    uint32_t found_count;
    int domain_fds[2]; /* what FIND has found */
    bool is_too_large; /* this process had no room for the descriptors */
};

static int fetch(struct tenond *t, struct exchange *e)
{
    const struct tni_request *request = &e->request;
    struct tenond_domain *d = tenond_find_id(t, request->name);
    if (d == NULL)
        return TN_ERR_NOT_FOUND;
    tenond_recall_catch_up(t);
    const struct bundle *bundle;
    int status = tenond_fetch(d, (tni_block){request->block}, request->generation, &bundle);
    if (status == 0) {
        e->found_fds = bundle_fds(bundle);
        e->found_count = bundle->count;
    }
    if (status == TN_ERR_NOT_FOUND && tenond_recall_is_unheard(t))
        return TN_ERR_TIMED_OUT; /* the process asks again */
    return status;
}

static int deposit(struct tenond *t, struct exchange *e)
{
    const struct tenond_offer offer = {
        {e->request.block}, e->request.generation, e->fds, e->fd_count};
    if (e->is_too_large)
        return TN_ERR_FULL;
    struct tenond_domain *d = tenond_find_id(t, e->request.name);
    if (d == NULL)
        return TN_ERR_NOT_FOUND;
    int status = tenond_deposit(t, d, &offer);
    if (status == 0)
        e->fd_count = 0;
    return status;
}

static int find(struct tenond *t, struct exchange *e)
{
    struct tenond_domain *d = tenond_find(t, e->request.name);
    if (d == NULL)
        return TN_ERR_NOT_FOUND;
    tenond_linger(d);
    e->domain_fds[0] = tenond_segment(d)->control_fd;
    e->domain_fds[1] = tenond_segment(d)->arena_fd;
    e->found_fds = e->domain_fds;
    e->found_count = TNI_COUNT(e->domain_fds);
    return 0;
}

/* @return the status of the reply */
static int answer(struct tenond *t, struct exchange *e)
{
    int status;

    switch (e->request.verb) {
    case TNI_REQUEST_REGISTER:
        if (e->fd_count != 2)
            return TN_ERR_INVALID;
        status = tenond_add(t, e->fds[0], e->fds[1]);
        e->fd_count = 0;
        return status;
    case TNI_REQUEST_FIND:
        return find(t, e);
    case TNI_REQUEST_GC:
        gc(t);
        return 0;
    case TNI_REQUEST_DEPOSIT:
        return deposit(t, e);
    case TNI_REQUEST_FETCH:
        return fetch(t, e);
    default:
        return TN_ERR_UNSUPPORTED;
    }
}

static bool is_request(const struct tni_request *request, int size_bytes)
{
    return size_bytes == (int)sizeof *request && request->magic == TNI_REQUEST_MAGIC &&
           request->version == TNI_REQUEST_VERSION &&
           memchr(request->name, 0, sizeof request->name) != NULL;
}

/* In every version the request begins with magic and version, and the reply is the same. */
static bool is_of_another_version(const struct tni_request *request, int size_bytes)
{
    return size_bytes >= (int)offsetof(struct tni_request, verb) &&
           request->magic == TNI_REQUEST_MAGIC && request->version != TNI_REQUEST_VERSION;
}

/* @return whether the connection stays */
static bool serve(struct tenond *t, struct tenond_client *client, struct exchange *e)
{
    struct tni_reply reply = {
        .magic = TNI_REQUEST_MAGIC, .pid = tni_os_pid(), .limit = t->descriptor_limit};
    reply.status = answer(t, e);
    if (e->request.verb != TNI_REQUEST_DEPOSIT && e->request.verb != TNI_REQUEST_FETCH) {
        tni_os_send(client->fd, &reply, sizeof reply, e->found_fds, e->found_count);
        return false;
    }
    client->since_ns = tni_os_now_ns();
    const struct tni_os_message message = {&reply, sizeof reply, e->found_fds, e->found_count};
    return tni_os_socket_send(client->fd, &message, 0) == 0;
}

static void refuse(const struct tenond_client *client)
{
    tni_log(TNI_LOG_WARNING, "refused a request of another version of tenon");
    struct tni_reply reply = {
        .magic = TNI_REQUEST_MAGIC, .status = TN_ERR_VERSION, .pid = tni_os_pid()};
    tni_os_send(client->fd, &reply, sizeof reply, NULL, 0);
}

void tenond_client_ready(struct tenond *t, uint32_t index)
{
    struct tenond_client *client = index < TENOND_CLIENTS ? &t->clients[index] : NULL;
    struct exchange e = {0};
    bool stays = false;

    if (client == NULL || client->fd < 0)
        return;
    const struct tni_os_buffer buffer = {&e.request, sizeof e.request, e.fds, TNI_COUNT(e.fds)};
    int got = tni_os_receive(client->fd, &buffer, 0, &e.fd_count);
    if (got == TN_ERR_TIMED_OUT)
        return; /* another client has got this place since the loop returned the tag */
    e.is_too_large = got == TN_ERR_SYSTEM && e.request.verb == TNI_REQUEST_DEPOSIT;
    if (e.is_too_large)
        got = sizeof e.request; /* the packet came, without its descriptors */
    if (got > 0 && is_request(&e.request, got))
        stays = serve(t, client, &e);
    else if (is_of_another_version(&e.request, got))
        refuse(client);
    else if (got != 0)
        tni_log(TNI_LOG_WARNING, "closed a connection after a malformed packet of %d bytes",
                got);
    bundle_close_fds(e.fds, e.fd_count);
    if (!stays)
        close_client(t, client);
}
