/* SPDX-License-Identifier: Apache-2.0 */
/*
 * depot: the descriptors that tenond keeps for all members.
 *
 * Nouns: deposit (the descriptors that tenond keeps for a block and its generation: one, or one
 * for each piece of its memory; they travel in one message, so tenond has all or none),
 * connection (this process's connection to tenond, which stays open).
 * I1  One thread at a time uses a connection (it has the lock of mappings), and only in the
 *     process that opened the connection, and only while the descriptor is still that
 *     socket. One request is under way at a time: an error closes the connection, so that
 *     no late reply is taken for another one.
 * I2  A request may be repeated. If tenond closed the connection, the client cannot know
 *     whether tenond has received the request.
 * I3  The members that still have the descriptors of a dead tenond give them to the next
 *     one.
 * I4  A process that finds no tenond starts one: a descriptor that no tenond keeps is lost
 *     with the process that made it.
 * Callers: backing, manager.c. Death: tenond's deposits belong to blocks, not to processes;
 * tenond drops a deposit when its block has ended.
 */
#include <stdio.h>

#include "reaper/manager.h"

#define MS_NS UINT64_C(1000000)
enum { ANSWER_MS = 1000, PAUSE_MS = 1000, MAX_KILLED = 4, ID_TEXT_BYTES = 33 };

/* ---- the connection ---------------------------------------------------------------------- */

/* A program may have closed this descriptor, and have another file under its number. */
static bool is_open(const struct tni_depot_connection *connection)
{
    return connection->number != 0 &&
           tni_os_socket_number(connection->fd) == connection->number;
}

static void close_connection(struct tni_depot_connection *connection)
{
    if (is_open(connection))
        tni_os_close(connection->fd);
    connection->number = 0;
}

/*
 * Whether the tenond of this process's runtime folder manages the domain. The tenond of another
 * folder may manage it, for example of the folder that this process had before; after that
 * tenond has died, the tenond of this process's folder takes the domain over.
 */
static bool is_for_our_tenond(const struct tn_domain *d)
{
    const struct tni_segment *s = &d->segment;
    uint32_t runtime = atomic_load(&s->header->runtime);
    return runtime == 0 || runtime == tni_manager_runtime() ||
           (tni_manager_is_ours(runtime) && !tni_manager_has_other(s));
}

static int open_connection(struct tn_domain *d)
{
    struct tni_depot_connection *connection = &tni_backing_part(d)->depot_connection;
    char folder[TNI_FOLDER_BYTES];
    int status;
    if (is_for_our_tenond(d))
        status = tni_os_connect(TNI_MANAGER_SOCKET, &connection->fd);
    else if ((status = tni_manager_folder(&d->segment, folder, sizeof folder)) == 0)
        status = tni_os_connect_in(folder, TNI_MANAGER_SOCKET, &connection->fd);
    if (status == 0)
        connection->number = tni_os_socket_number(connection->fd);
    return status;
}

/* I1, I2. @return as tni_manager_talk(), or TN_ERR_NOT_FOUND: no tenond listens */
static int talk(struct tn_domain *d, const struct tni_inquiry *inquiry,
                struct tni_reply *ret_reply, int *ret_fds)
{
    struct tni_depot_connection *connection = &tni_backing_part(d)->depot_connection;
    uint64_t deadline_ns = tni_os_now_ns() + ANSWER_MS * MS_NS;
    for (;;) {
        bool was_open = is_open(connection);
        int status = was_open ? 0 : open_connection(d);
        if (status == 0)
            status = tni_manager_talk(connection->fd, inquiry, deadline_ns, ret_reply, ret_fds);
        if (status == 0)
            return 0;
        close_connection(connection);
        if (!was_open || status != TN_ERR_CLOSED)
            return status;
    }
}

static int check_pause(const struct tni_depot_connection *connection)
{
    if (tni_os_now_ns() < connection->pause_ns)
        return tni_fail(TN_ERR_TIMED_OUT, "tenond did not answer less than %d ms ago",
                        PAUSE_MS);
    return 0;
}

static void write_id(const uint8_t id[16], char text[ID_TEXT_BYTES])
{
    for (size_t i = 0; i < 16; i++)
        snprintf(text + 2 * i, 3, "%02x", id[i]);
}

/* What descriptors in the depot are kept under. */
struct place {
    tni_block block;
    uint32_t generation;
};

/* DEPOSIT the descriptors of the inquiry, or FETCH if it has none. Fills in its request. */
static int ask(struct tn_domain *d, const struct place *place, struct tni_inquiry *inquiry,
               struct tni_reply *ret_reply, int *ret_fds)
{
    struct tni_depot_connection *connection = &tni_backing_part(d)->depot_connection;
    char id[ID_TEXT_BYTES];
    int status = check_pause(connection);
    if (status != 0)
        return status;
    write_id(d->segment.id, id);
    tni_manager_fill(&inquiry->request,
                     inquiry->fd_count > 0 ? TNI_REQUEST_DEPOSIT : TNI_REQUEST_FETCH, id);
    inquiry->request.block = place->block.id;
    inquiry->request.generation = place->generation;
    status = talk(d, inquiry, ret_reply, ret_fds);
    if (status == TN_ERR_TIMED_OUT)
        connection->pause_ns = tni_os_now_ns() + PAUSE_MS * MS_NS;
    if (d->is_closed)
        close_connection(connection);
    return status;
}

/* I4. A tenond of another folder can only be started by a process of that folder. */
static int connect_or_start(struct tn_domain *d)
{
    struct tni_depot_connection *connection = &tni_backing_part(d)->depot_connection;
    if (!is_for_our_tenond(d)) {
        int status = open_connection(d);
        return status != TN_ERR_NOT_FOUND
                   ? status
                   : tni_fail(TN_ERR_MANAGER,
                              "the domain '%s' has no tenond now, and it belongs to another "
                              "runtime folder than %s",
                              d->segment.name, tni_os_runtime_folder());
    }
    int status = tni_manager_connect(&connection->fd);
    if (status == 0)
        connection->number = tni_os_socket_number(connection->fd);
    return status;
}

static int summon(struct tn_domain *d)
{
    struct tni_depot_connection *connection = &tni_backing_part(d)->depot_connection;
    int status = check_pause(connection);
    if (status != 0 || is_open(connection))
        return status;
    if ((status = connect_or_start(d)) != 0)
        connection->pause_ns = tni_os_now_ns() + PAUSE_MS * MS_NS;
    return status;
}

/* ---- put and get ------------------------------------------------------------------------- */

static int fail_put(const struct tni_reply *reply, tni_block block)
{
    switch (reply->status) {
    case TN_ERR_FULL:
        return tni_fail(TN_ERR_FULL,
                        "tenond (process %d) has no room for another descriptor: its limit "
                        "(ulimit -n) is %u; tensors in the arena need none",
                        reply->pid, reply->limit);
    case TN_ERR_STALE:
        return tni_fail(TN_ERR_STALE,
                        "block %08x has another generation by now: its storage has ended",
                        block.id);
    default:
        return tni_fail(TN_ERR_MANAGER, "tenond (process %d) did not take a descriptor: %s",
                        reply->pid, tn_status_sentence(reply->status));
    }
}

/* Deposit with a tenond, which is started if there is none. If one is killed, ask the next. */
static int deposit_or_start(struct tn_domain *d, const struct place *place,
                            struct tni_inquiry *inquiry, struct tni_reply *ret_reply)
{
    for (int killed = 0;; killed++) {
        int status = summon(d);
        if (status == 0)
            status = ask(d, place, inquiry, ret_reply, NULL);
        if ((status != TN_ERR_CLOSED && status != TN_ERR_NOT_FOUND) || killed == MAX_KILLED)
            return status;
    }
}

static int put(struct tn_domain *d, tni_block block, uint32_t generation, const int *fds,
               uint32_t fd_count)
{
    struct tni_depot_connection *connection = &tni_backing_part(d)->depot_connection;
    uint64_t manager = atomic_load(&d->segment.header->manager), nobody = 0;
    const struct place place = {block, generation};
    struct tni_inquiry inquiry = {.fds = fds, .fd_count = fd_count};
    struct tni_reply reply;
    int status = deposit_or_start(d, &place, &inquiry, &reply);
    /* A tenond that could not search every process may not know the domain. */
    if (status == 0 && reply.status == TN_ERR_NOT_FOUND && is_for_our_tenond(d) &&
        (status = tni_manager_register(d)) == 0)
        status = deposit_or_start(d, &place, &inquiry, &reply);
    if (status == 0 && reply.status != 0)
        status = fail_put(&reply, block);
    /* The tenond that has the first deposit: if another one follows, I3 applies. */
    if (status == 0)
        atomic_compare_exchange_strong(&connection->manager, &nobody, manager);
    else if (status != TN_ERR_FULL && status != TN_ERR_STALE)
        atomic_store(&connection->has_missed, true);
    return status;
}

int tni_manager_deposit(struct tn_domain *d, tni_block block, uint32_t generation,
                        const int *fds, uint32_t fd_count)
{
    struct tni_inquiry inquiry = {.fds = fds, .fd_count = fd_count};
    struct tni_reply reply;
    int status = ask(d, &(struct place){block, generation}, &inquiry, &reply, NULL);
    if (status == 0 && reply.status != 0)
        return tni_fail(reply.status, "tenond (process %d) does not take a descriptor: %s",
                        reply.pid, tn_status_sentence(reply.status));
    return status;
}

static int get(struct tn_domain *d, tni_block block, uint32_t generation, int *ret_fds,
               uint32_t fd_count)
{
    struct tni_inquiry inquiry = {.wanted_fds = fd_count};
    struct tni_reply reply;
    int status = ask(d, &(struct place){block, generation}, &inquiry, &reply, ret_fds);
    if (status == 0 && reply.status == TN_ERR_TIMED_OUT)
        return tni_fail(TN_ERR_TIMED_OUT,
                        "tenond (process %d) has not got all descriptors from its vault yet",
                        reply.pid);
    if (status == 0 && reply.status != 0)
        return tni_fail(TN_ERR_NOT_FOUND, "tenond (process %d) has no descriptor of block %08x",
                        reply.pid, block.id);
    if (status != 0 && status != TN_ERR_NOT_FOUND && status != TN_ERR_SYSTEM)
        return TN_ERR_MANAGER;
    return status;
}

static bool has_all(const struct tn_domain *d)
{
    const struct tni_depot_connection *connection = &tni_backing_part(d)->depot_connection;
    uint64_t manager = atomic_load(&d->segment.header->manager);
    return !atomic_load(&connection->has_missed) &&
           atomic_load(&connection->manager) == manager && tni_manager_is_alive(&d->segment);
}

void tni_depot_catch_up(struct tn_domain *d)
{
    struct tni_depot_connection *connection = &tni_backing_part(d)->depot_connection;
    uint64_t seen = atomic_load(&connection->manager);
    uint64_t manager = atomic_load(&d->segment.header->manager);
    bool is_another = seen != 0 && manager != seen;
    if (tni_backing_part(d)->depot == NULL || d->is_closed || manager == 0 ||
        (!is_another && !atomic_load(&connection->has_missed)) ||
        tni_os_now_ns() < connection->pause_ns)
        return;
    /* Cleared first: a deposit that fails meanwhile sets it again. */
    atomic_store(&connection->has_missed, false);
    atomic_store(&connection->manager, manager);
    tni_backing_deposit_again(d);
}

/* ---- a domain's private state ------------------------------------------------------------ */

/* I1: the parent goes on using the connection. */
TNI_AROUND_FORK static void forget_connection(struct tn_domain *d)
{
    close_connection(&tni_backing_part(d)->depot_connection);
}

void tni_depot_init(struct tn_domain *d)
{
    static const struct tni_depot depot = {.put = put,
                                           .get = get,
                                           .start = summon,
                                           .catch_up = tni_depot_catch_up,
                                           .has_all = has_all,
                                           .ring = tni_manager_ring};
    if ((d->segment.flags & TN_DOMAIN_NO_MANAGER) != 0)
        return;
    tni_backing_part(d)->depot = &depot;
    tni_process_hook(d, &(struct tni_fork_hooks){.child = forget_connection});
}

void tni_depot_fini(struct tn_domain *d)
{
    tni_mappings_lock(d);
    close_connection(&tni_backing_part(d)->depot_connection);
    tni_mappings_unlock(d);
}
