/* SPDX-License-Identifier: Apache-2.0 */
/*
 * depot: the descriptors that tenond keeps for all members.
 *
 * Nouns: deposit (a descriptor that tenond has, under block and generation), line (our
 * connection to it, which stays open).
 * I1  A line is used by one thread at a time (its domain's lock of mappings), by the process
 *     that opened it, and only while its number is still that of our socket. One request is
 *     under way at a time: whatever fails closes the line, so that no late reply is taken for
 *     another's.
 * I2  A deposit may be asked for again: of a kept line that was closed meanwhile nobody knows
 *     whether the request arrived.
 * I3  What a dead tenond had is given to the next one by those who still have it.
 * I4  Who finds no tenond starts one: a deposit that nobody took is lost with its maker.
 * Callers: backing; manager. Death: tenond's deposits are of blocks, not of processes, and are
 * dropped with them.
 */
#include <stdio.h>

#include "reaper/manager.h"

#define MS_NS UINT64_C(1000000)
enum { PATIENCE_MS = 1000, PAUSE_MS = 1000, KILLED_MOST = 4, ID_TEXT_BYTES = 33 };

/* ---- the line ---------------------------------------------------------------------------- */

/* A program that closes what it did not open may have its own behind this number by now. */
static bool is_open(const struct tni_depot_connection *line)
{
    return line->number != 0 && tni_os_socket_number(line->fd) == line->number;
}

static void close_line(struct tni_depot_connection *line)
{
    if (is_open(line))
        tni_os_close(line->fd);
    line->number = 0;
}

/*
 * The tenond that looks after the domain may be that of another runtime folder than ours, also
 * of one that was ours before. If that one is dead, ours comes next.
 */
static bool is_for_our_tenond(const struct tn_domain *d)
{
    const struct tni_segment *s = &d->segment;
    uint32_t runtime = atomic_load(&s->header->runtime);
    return runtime == 0 || runtime == tni_manager_runtime() ||
           (tni_manager_is_ours(runtime) && !tni_manager_is_in_office(s));
}

static int open_line(struct tn_domain *d)
{
    struct tni_depot_connection *line = &tni_backing_part(d)->depot_connection;
    char folder[TNI_FOLDER_BYTES];
    int status;
    if (is_for_our_tenond(d))
        status = tni_os_connect(TNI_MANAGER_SOCKET, &line->fd);
    else if ((status = tni_manager_folder(&d->segment, folder, sizeof folder)) == 0)
        status = tni_os_connect_in(folder, TNI_MANAGER_SOCKET, &line->fd);
    if (status == 0)
        line->number = tni_os_socket_number(line->fd);
    return status;
}

/* I1, I2. @return as tni_manager_talk(), or TN_ERR_NOT_FOUND: nobody listens */
static int talk(struct tn_domain *d, const struct tni_request *request, int fd,
                struct tni_reply *ret_reply, int *ret_fd)
{
    struct tni_depot_connection *line = &tni_backing_part(d)->depot_connection;
    uint64_t deadline_ns = tni_os_now_ns() + PATIENCE_MS * MS_NS;
    for (;;) {
        bool was_open = is_open(line);
        int status = was_open ? 0 : open_line(d);
        if (status == 0)
            status = tni_manager_talk(line->fd, request, &fd, fd >= 0, deadline_ns, ret_reply,
                                      ret_fd, ret_fd != NULL);
        if (status == 0)
            return 0;
        close_line(line);
        if (!was_open || status != TN_ERR_CLOSED)
            return status;
    }
}

static int check(const struct tni_depot_connection *line)
{
    if (tni_os_now_ns() < line->pause_ns)
        return tni_fail(TN_ERR_TIMED_OUT, "tenond did not answer a moment ago");
    return 0;
}

static void write_id(const uint8_t id[16], char text[ID_TEXT_BYTES])
{
    for (size_t i = 0; i < 16; i++)
        snprintf(text + 2 * i, 3, "%02x", id[i]);
}

static int ask(struct tn_domain *d, uint32_t verb, tni_block block, uint32_t generation, int fd,
               struct tni_reply *ret_reply, int *ret_fd)
{
    struct tni_depot_connection *line = &tni_backing_part(d)->depot_connection;
    struct tni_request request;
    char id[ID_TEXT_BYTES];
    int status = check(line);
    if (status != 0)
        return status;
    write_id(d->segment.id, id);
    tni_manager_fill(&request, verb, id);
    request.block = block.id;
    request.generation = generation;
    status = talk(d, &request, fd, ret_reply, ret_fd);
    if (status == TN_ERR_TIMED_OUT)
        line->pause_ns = tni_os_now_ns() + PAUSE_MS * MS_NS;
    if (d->is_closed)
        close_line(line);
    return status;
}

/* I4. In another folder than ours somebody else has to. */
static int connect_or_start(struct tn_domain *d)
{
    struct tni_depot_connection *line = &tni_backing_part(d)->depot_connection;
    if (!is_for_our_tenond(d)) {
        int status = open_line(d);
        return status != TN_ERR_NOT_FOUND
                   ? status
                   : tni_fail(TN_ERR_MANAGER,
                              "the domain '%s' has no tenond now, and is of another runtime "
                              "folder than %s",
                              d->segment.name, tni_os_runtime_folder());
    }
    int status = tni_manager_connect(tni_os_now_ns() + TNI_MANAGER_START_NS, &line->fd);
    if (status == 0)
        line->number = tni_os_socket_number(line->fd);
    return status;
}

static int summon(struct tn_domain *d)
{
    struct tni_depot_connection *line = &tni_backing_part(d)->depot_connection;
    int status = check(line);
    if (status != 0 || is_open(line))
        return status;
    if ((status = connect_or_start(d)) != 0)
        line->pause_ns = tni_os_now_ns() + PAUSE_MS * MS_NS;
    return status;
}

/* ---- put and get ------------------------------------------------------------------------- */

static int fail_put(const struct tni_reply *reply, tni_block block)
{
    switch (reply->status) {
    case TN_ERR_FULL:
        return tni_fail(TN_ERR_FULL,
                        "tenond (process %d) has no room for another descriptor: its limit "
                        "(ulimit -n) is %u; the strategy arena needs none",
                        reply->pid, reply->limit);
    case TN_ERR_STALE:
        return tni_fail(TN_ERR_STALE, "block %08x is of another generation by now", block.id);
    default:
        return tni_fail(TN_ERR_MANAGER, "tenond (process %d) did not take a descriptor: %s",
                        reply->pid, tn_status_sentence(reply->status));
    }
}

/* Of a tenond, which is started if there is none. One that is killed meanwhile has a successor.
 */
static int ask_anyone(struct tn_domain *d, tni_block block, uint32_t generation, int fd,
                      struct tni_reply *ret_reply)
{
    for (int killed = 0;; killed++) {
        int status = summon(d);
        if (status == 0)
            status = ask(d, TNI_REQUEST_DEPOSIT, block, generation, fd, ret_reply, NULL);
        if ((status != TN_ERR_CLOSED && status != TN_ERR_NOT_FOUND) || killed == KILLED_MOST)
            return status;
    }
}

static int put(struct tn_domain *d, tni_block block, uint32_t generation, int fd)
{
    struct tni_depot_connection *line = &tni_backing_part(d)->depot_connection;
    uint64_t manager = atomic_load(&d->segment.header->manager), nobody = 0;
    struct tni_reply reply;
    int status = ask_anyone(d, block, generation, fd, &reply);
    /* A tenond that could not look at every process does not know the domain. */
    if (status == 0 && reply.status == TN_ERR_NOT_FOUND && is_for_our_tenond(d) &&
        (status = tni_manager_register(d)) == 0)
        status = ask_anyone(d, block, generation, fd, &reply);
    if (status == 0 && reply.status != 0)
        status = fail_put(&reply, block);
    /* The first that got one: whatever changes after that, it is behind (I3). */
    if (status == 0)
        atomic_compare_exchange_strong(&line->manager, &nobody, manager);
    else if (status != TN_ERR_FULL && status != TN_ERR_STALE)
        atomic_store(&line->has_missed, true);
    return status;
}

int tni_manager_deposit(struct tn_domain *d, tni_block block, uint32_t generation, int fd)
{
    struct tni_reply reply;
    int status = ask(d, TNI_REQUEST_DEPOSIT, block, generation, fd, &reply, NULL);
    if (status == 0 && reply.status != 0)
        return tni_fail(reply.status, "tenond (process %d) does not take a descriptor: %s",
                        reply.pid, tn_status_sentence(reply.status));
    return status;
}

static int get(struct tn_domain *d, tni_block block, uint32_t generation, int *ret_fd)
{
    struct tni_reply reply;
    int status = ask(d, TNI_REQUEST_FETCH, block, generation, -1, &reply, ret_fd);
    if (status == 0 && reply.status != 0)
        return tni_fail(TN_ERR_NOT_FOUND, "tenond (process %d) has no descriptor of block %08x",
                        reply.pid, block.id);
    if (status != 0 && status != TN_ERR_NOT_FOUND && status != TN_ERR_SYSTEM)
        return TN_ERR_MANAGER;
    return status;
}

static bool has_all(const struct tn_domain *d)
{
    const struct tni_depot_connection *line = &tni_backing_part(d)->depot_connection;
    uint64_t manager = atomic_load(&d->segment.header->manager);
    return !atomic_load(&line->has_missed) && atomic_load(&line->manager) == manager &&
           tni_manager_is_alive(&d->segment);
}

void tni_depot_catch_up(struct tn_domain *d)
{
    struct tni_depot_connection *line = &tni_backing_part(d)->depot_connection;
    uint64_t seen = atomic_load(&line->manager);
    uint64_t manager = atomic_load(&d->segment.header->manager);
    bool is_another = seen != 0 && manager != seen;
    if (tni_backing_part(d)->depot == NULL || d->is_closed || manager == 0 ||
        (!is_another && !atomic_load(&line->has_missed)) || tni_os_now_ns() < line->pause_ns)
        return;
    /* Before: what fails meanwhile is missed again. */
    atomic_store(&line->has_missed, false);
    atomic_store(&line->manager, manager);
    tni_backing_deposit_again(d);
}

/* ---- a domain's private state ------------------------------------------------------------ */

/* I1: the parent goes on with it. */
TNI_AROUND_FORK static void forget_line(struct tn_domain *d)
{
    close_line(&tni_backing_part(d)->depot_connection);
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
    tni_process_hook(d, &(struct tni_fork_hooks){.child = forget_line});
}

void tni_depot_fini(struct tn_domain *d)
{
    tni_mappings_lock(d);
    close_line(&tni_backing_part(d)->depot_connection);
    tni_mappings_unlock(d);
}
