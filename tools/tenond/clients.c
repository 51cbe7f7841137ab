/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clients: connections. Each brings one packet and gets one, which always fits the empty
 * socket, so that nobody can make us wait by not reading. Whoever says nothing, or nonsense, is
 * closed. One that brought or fetched a deposit may do so again: it stays until it is silent
 * for long, others need its place, or it does not read what it asked for.
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

/* A free place, or that of who is silent for longest. */
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

/* Out of descriptors: whoever connects makes the socket readable for as long as that lasts. */
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
            tni_log(TNI_LOG_WARNING, "%s", tn_error_detail());
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
    tenond_look(t);
    tenond_collect_files();
}

static int fetch(struct tenond *t, const struct tni_request *request, int *ret_fd)
{
    struct tenond_domain *d = tenond_find_id(t, request->name);
    if (d == NULL)
        return TN_ERR_NOT_FOUND;
    tenond_mirror_catch_up(t);
    return tenond_fetch(d, (tni_block){request->block}, request->generation, ret_fd);
}

static int deposit(struct tenond *t, const struct tni_request *request, int fd)
{
    struct tenond_domain *d = tenond_find_id(t, request->name);
    if (d == NULL)
        return TN_ERR_NOT_FOUND;
    return tenond_deposit(t, d, (tni_block){request->block}, request->generation, fd);
}

/*
 * What was consumed of fds [fd_count] is -1 afterwards. @return the status of the reply; found
 * descriptors are borrowed from the domain
 */
static int answer(struct tenond *t, const struct tni_request *request, int *fds,
                  uint32_t fd_count, int ret_fds[2], uint32_t *ret_fd_count)
{
    struct tenond_domain *found;
    int status;

    switch (request->verb) {
    case TNI_REQUEST_REGISTER:
        if (fd_count != 2)
            return TN_ERR_INVALID;
        status = tenond_add(t, fds[0], fds[1]);
        fds[0] = fds[1] = -1;
        return status;
    case TNI_REQUEST_FIND:
        found = tenond_find(t, request->name);
        if (found == NULL)
            return TN_ERR_NOT_FOUND;
        tenond_linger(found);
        ret_fds[0] = found->domain->segment.control_fd;
        ret_fds[1] = found->domain->segment.arena_fd;
        *ret_fd_count = 2;
        return 0;
    case TNI_REQUEST_GC:
        gc(t);
        return 0;
    case TNI_REQUEST_DEPOSIT:
        if (fd_count != 1)
            return TN_ERR_INVALID;
        if ((status = deposit(t, request, fds[0])) == 0)
            fds[0] = -1;
        return status;
    case TNI_REQUEST_FETCH:
        status = fetch(t, request, &ret_fds[0]);
        *ret_fd_count = status == 0;
        return status;
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

/* The first two fields stay where they are in every version, and so does the reply. */
static bool is_of_another_version(const struct tni_request *request, int size_bytes)
{
    return size_bytes >= (int)offsetof(struct tni_request, verb) &&
           request->magic == TNI_REQUEST_MAGIC && request->version != TNI_REQUEST_VERSION;
}

/* @return whether the connection stays */
static bool serve(struct tenond *t, struct tenond_client *client,
                  const struct tni_request *request, int fds[2], uint32_t fd_count)
{
    struct tni_reply reply = {
        .magic = TNI_REQUEST_MAGIC, .pid = tni_os_pid(), .limit = t->descriptor_limit};
    int found_fds[2] = {-1, -1};
    uint32_t found_count = 0;
    reply.status = answer(t, request, fds, fd_count, found_fds, &found_count);
    if (request->verb != TNI_REQUEST_DEPOSIT && request->verb != TNI_REQUEST_FETCH) {
        tni_os_send(client->fd, &reply, sizeof reply, found_fds, found_count);
        return false;
    }
    client->since_ns = tni_os_now_ns();
    return tni_os_socket_send(client->fd, &reply, sizeof reply, found_fds[0], 0) == 0;
}

static void refuse(const struct tenond_client *client)
{
    struct tni_reply reply = {
        .magic = TNI_REQUEST_MAGIC, .status = TN_ERR_VERSION, .pid = tni_os_pid()};
    tni_os_send(client->fd, &reply, sizeof reply, NULL, 0);
}

void tenond_client_ready(struct tenond *t, uint32_t index)
{
    struct tenond_client *client = index < TENOND_CLIENTS ? &t->clients[index] : NULL;
    struct tni_request request;
    int fds[2] = {-1, -1};
    uint32_t fd_count = 0;
    bool stays = false;

    if (client == NULL || client->fd < 0)
        return;
    const struct tni_os_buffer buffer = {&request, sizeof request, fds, 2};
    int got = tni_os_receive(client->fd, &buffer, 0, &fd_count);
    if (got == TN_ERR_TIMED_OUT)
        return; /* the place was taken anew since the loop looked */
    if (got > 0 && is_request(&request, got))
        stays = serve(t, client, &request, fds, fd_count);
    else if (is_of_another_version(&request, got))
        refuse(client);
    else if (got != 0)
        tni_log(TNI_LOG_WARNING, "a packet that makes no sense (%d bytes): connection closed",
                got);
    tni_os_close(fds[0]);
    tni_os_close(fds[1]);
    if (!stays)
        close_client(t, client);
}
