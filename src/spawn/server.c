/* SPDX-License-Identifier: Apache-2.0 */
/*
 * server: a process that forks on request, for a parent that must not fork itself.
 *
 * Nouns: server (a child with one thread), request, answer, asker (a thread of the parent that
 * makes a request), turn (the time in which one request is in flight), reader (the asker that
 * waits at the socket).
 * I1  A process that the server forks is a child of the server's parent (CLONE_PARENT). The
 *     parent waits for the child, with or without the server, and the child ends with the
 *     parent (child.c, I3).
 * I2  A child inherits no descriptor of the server or of a sibling. The server receives one
 *     descriptor with a request, and closes it as soon as the child has a copy.
 * I3  The parent knows the pid of every child: from the answer, or, when the server died before
 *     it answered, from the memory that parent, server and child share (struct tni_place). The
 *     kernel writes the pid there before the child runs.
 * I4  One request is in flight at a time. It alone uses the shared memory and the socket.
 * I5  The child claims the request in the shared memory before it does anything else; an asker
 *     that gives up withdraws the request there. Exactly one of the two succeeds. A withdrawn
 *     request stays in flight until its answer is read and its child, if any, is collected.
 * I6  An asker that calls the program's hook has no lock and is not the reader: the hook may
 *     ask the same server, or fork. In the copy the asker leaves the request alone.
 * Callers: the user and pool.c, from any thread. If the server dies, the waiting requests fail,
 * and its children go on. If the parent dies, the server ends: child.c, I3 ends it, or the
 * server finds that its socket is closed.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spawn/server.h"

/* ---- the claim that decides whether a child runs (I5) ------------------------------------ */

static void open_claim(struct tni_place *place, uint64_t number)
{
    __atomic_store_n(&place->forked, 0, __ATOMIC_RELAXED);
    atomic_store(&place->claim, tni_claim_word(number, TNI_CLAIM_OPEN));
}

/* The asker withdraws its request. @return true: no child runs the function, now or later */
static bool withdraw_claim(struct tni_place *place, uint64_t number)
{
    uint64_t word = tni_claim_word(number, TNI_CLAIM_OPEN);
    return atomic_compare_exchange_strong(&place->claim, &word,
                                          tni_claim_word(number, TNI_CLAIM_WITHDRAWN));
}

/* ---- starting ---------------------------------------------------------------------------- */

static int start(struct tn_forkserver *server)
{
    struct tni_service service = {.origin = tni_child_origin(server->domain)};
    int status = tni_server_enlist(server);
    if (status != 0)
        return status;
    service.socket_fd = server->server_fd;
    service.place = server->place;
    tni_servers_set_starting(server);
    status = tn_process_fork(server->domain, tni_serve, &service, 0, &server->process);
    tni_servers_set_starting(NULL);
    if (status != 0) {
        tni_server_unlist(server);
        return status;
    }
    tni_children_lock();
    server->server_fd = -1; /* child.c, I7 */
    tni_os_close(service.socket_fd);
    tni_children_unlock();
    return 0;
}

int tn_forkserver_start(tn_domain *domain, tn_forkserver **ret_server)
{
    if (domain == NULL || ret_server == NULL)
        return tni_fail_null(domain == NULL ? "the domain" : "ret_server");
    struct tn_forkserver *server = calloc(1, sizeof *server);
    if (server == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "no private memory for a fork server");
    server->domain = domain;
    server->owner_pid = tni_os_pid();
    server->socket_fd = server->server_fd = -1;
    void *place = NULL;
    int status = tni_os_map_shared(sizeof *server->place, &place);
    server->place = place;
    if (status == 0)
        status = start(server);
    if (status != 0) {
        tni_os_unmap(place, sizeof *server->place);
        free(server);
        return status;
    }
    *ret_server = server;
    return 0;
}

int32_t tn_forkserver_pid(const tn_forkserver *server)
{
    return server != NULL ? tn_process_pid(server->process) : 0;
}

/* ---- asking ------------------------------------------------------------------------------ */

/* Become the reader, unless `news` changed meanwhile or another thread is the reader. */
static bool become_reader(struct tn_forkserver *server, uint32_t seen)
{
    tni_children_lock();
    bool is_ours = !server->is_read && atomic_load(&server->news) == seen;
    server->is_read |= is_ours;
    tni_children_unlock();
    return is_ours;
}

static void stop_reading(struct tn_forkserver *server)
{
    tni_children_lock();
    server->is_read = false;
    tni_children_unlock();
    tni_server_tell(server);
}

static int check_owner(const struct tn_forkserver *server)
{
    return server->owner_pid == tni_os_pid()
               ? 0
               : tni_fail(TN_ERR_INVALID, "another process started the fork server");
}

/* Wait until `news` changes (I6). @return 0: check again; or why this asker stops waiting */
static int await_news(struct tn_forkserver *server, uint32_t seen, struct tni_wait *wait)
{
    uint64_t now_ns = tni_os_now_ns();
    int status = wait->is_through ? 0 : tni_interrupt_ask(now_ns);
    if (check_owner(server) != 0)
        return TN_ERR_INVALID; /* child.c, I7 */
    if (status == 0 && now_ns >= wait->deadline_ns)
        status = tni_fail(TN_ERR_TIMED_OUT, "the fork server, process %d, has not answered",
                          tn_process_pid(server->process));
    if (status != 0)
        return status;
    if (!become_reader(server, seen)) {
        status = tni_process_sleep(server->domain, &server->news, seen, wait);
        if (check_owner(server) != 0)
            return TN_ERR_INVALID;
        return status == TN_ERR_TIMED_OUT ? 0 : status;
    }
    status = tni_server_read(server, TNI_MIN(wait->deadline_ns, now_ns + TNI_SPAWN_SLICE_NS));
    stop_reading(server);
    return status;
}

static bool take_turn(struct tn_forkserver *server, struct tni_asker *asker,
                      uint64_t *ret_number)
{
    tni_children_lock();
    bool is_ours = server->out_request == 0;
    if (is_ours) {
        *ret_number = server->out_request = ++server->last_request;
        server->asker = asker;
        open_claim(server->place, *ret_number);
    }
    tni_children_unlock();
    return is_ours;
}

static bool is_answered(const struct tni_asker *asker)
{
    tni_children_lock();
    bool answered = asker->is_answered;
    tni_children_unlock();
    return answered;
}

static int send_request(const struct tn_forkserver *server, struct tni_fork_request *request,
                        struct tn_process *child)
{
    int ends[2];
    tni_children_lock();
    int status = tni_os_pipe(ends);
    if (status == 0) {
        child->message_fd = ends[0];
        status = tni_os_send(server->socket_fd, request, sizeof *request + request->size_bytes,
                             &ends[1], 1);
        tni_os_close(ends[1]);
    }
    tni_children_unlock();
    return status;
}

static int fail_dead(const struct tn_forkserver *server)
{
    int32_t pid = tn_process_pid(server->process);
    tni_set_peer(TNI_NO_SEAT, pid);
    return tni_fail(TN_ERR_PEER_DIED, "the fork server, process %d, has ended", pid);
}

/* The request could not be sent, because the server has ended: wait for its exit. */
static int await_death(struct tn_forkserver *server)
{
    struct tni_wait wait = {.deadline_ns = tn_deadline_after(TNI_SERVER_END_NS).ns,
                            .is_through = true};
    uint32_t seen;
    do {
        seen = atomic_load(&server->news);
        if (become_reader(server, seen)) {
            (void)!tni_child_await(server->process, wait.deadline_ns, true);
            stop_reading(server);
            break;
        }
    } while (tni_process_sleep(server->domain, &server->news, seen, &wait) == 0);
    return fail_dead(server);
}

/* Turn an answer into a result. @return the child's pid, or the error that the server sent */
static int take_answer(const struct tn_forkserver *server, struct tni_fork_answer *answer)
{
    if (answer->status == TN_ERR_PEER_DIED)
        return fail_dead(server);
    answer->text[sizeof answer->text - 1] = '\0';
    return answer->status > 0 ? answer->status
                              : tni_fail(answer->status < 0 ? answer->status : TN_ERR_CORRUPT,
                                         "%s", answer->text);
}

/* If a withdrawn request was forked already, end its child. Keeps the error detail. */
static void end_withdrawn(struct tn_forkserver *server, uint64_t number, int status)
{
    char detail[256];
    if (!become_reader(server, atomic_load(&server->news)))
        return;
    snprintf(detail, sizeof detail, "%s", tn_error_detail());
    tni_children_lock();
    bool is_out = server->out_request == number && server->late == NULL;
    int32_t pid = is_out ? __atomic_load_n(&server->place->forked, __ATOMIC_ACQUIRE) : 0;
    tni_children_unlock();
    if (pid > 0)
        tni_server_watch_late(server, pid);
    if (server->late != NULL)
        tni_server_collect_late(server, tni_os_now_ns() + TNI_SPAWN_SLICE_NS);
    stop_reading(server);
    (void)!tni_fail(status, "%s", detail);
}

/*
 * Stop waiting for an answer, and withdraw the request if that is still possible (I5).
 * @return the pid of a child that runs already; an error that the server answered; or `status`,
 * and then no child runs the function, now or later
 */
static int give_up(struct tn_forkserver *server, struct tni_asker *asker, uint64_t number,
                   int status)
{
    int32_t pid = 0;
    tni_children_lock();
    bool answered = asker->is_answered;
    if (!answered) {
        server->asker = NULL;
        if (!withdraw_claim(server->place, number)) {
            pid = __atomic_load_n(&server->place->forked, __ATOMIC_ACQUIRE);
            server->out_request = 0; /* the answer is known: the child's pid */
        }
    }
    tni_children_unlock();
    if (answered)
        return take_answer(server, &asker->answer);
    tni_server_tell(server);
    if (pid == 0)
        end_withdrawn(server, number, status);
    return pid > 0 ? pid : status;
}

/* Wait for a turn, send the request and wait for the answer. @return the child's pid */
static int ask(struct tn_forkserver *server, struct tni_fork_request *request,
               struct tn_process *child, struct tni_wait *wait)
{
    struct tni_asker asker = {0};
    int status = 0;
    uint32_t seen = atomic_load(&server->news);
    while (status == 0 && !take_turn(server, &asker, &request->number)) {
        status = await_news(server, seen, wait);
        seen = atomic_load(&server->news);
    }
    if (status != 0)
        return status;
    status = send_request(server, request, child);
    if (status != 0) {
        tni_server_end_request(server); /* the request was not sent */
        tni_server_tell(server);
        return status == TN_ERR_CLOSED ? await_death(server) : status;
    }
    while (status == 0) {
        seen = atomic_load(&server->news);
        if (is_answered(&asker))
            return take_answer(server, &asker.answer);
        status = await_news(server, seen, wait);
    }
    return check_owner(server) == 0 ? give_up(server, &asker, request->number, status) : status;
}

bool tni_server_is_free(struct tn_forkserver *server)
{
    if (become_reader(server, atomic_load(&server->news))) {
        (void)!tni_server_read(server, 0);
        stop_reading(server);
    }
    tni_children_lock();
    bool is_free = server->out_request == 0;
    tni_children_unlock();
    return is_free;
}

static int check_call(const tn_forkserver *server, const struct tni_server_call *call,
                      tn_process *const *ret_process)
{
    if (server == NULL || call->run == NULL || ret_process == NULL)
        return tni_fail_null(server == NULL      ? "the server"
                             : call->run == NULL ? "run"
                                                 : "ret_process");
    if (call->argument == NULL && call->size_bytes > 0)
        return tni_fail(TN_ERR_INVALID, "argument is NULL, but size_bytes is %zu",
                        call->size_bytes);
    if (call->size_bytes > TN_FORKSERVER_MAX_BYTES)
        return tni_fail(TN_ERR_INVALID, "the argument has %zu bytes: at most %d are allowed",
                        call->size_bytes, TN_FORKSERVER_MAX_BYTES);
    return check_owner(server);
}

int tni_server_fork(struct tn_forkserver *server, const struct tni_server_call *call,
                    struct tni_wait *wait, struct tn_process **ret_process)
{
    struct tn_process *child;
    int status = check_call(server, call, ret_process);
    if (status == 0)
        status = tni_child_create(server->domain, call->flags, &child);
    if (status != 0)
        return status;
    struct tni_fork_request *request = malloc(sizeof *request + call->size_bytes);
    if (request == NULL)
        return tni_child_end_failed(
            child, tni_fail(TN_ERR_NO_MEMORY, "no private memory for a request"));
    *request = (struct tni_fork_request){.magic = TNI_FORK_MAGIC,
                                         .verb = TNI_VERB_FORK,
                                         .flags = call->flags,
                                         .size_bytes = (uint32_t)call->size_bytes,
                                         .run = call->run};
    if (call->size_bytes > 0)
        memcpy(request + 1, call->argument, call->size_bytes);
    status = ask(server, request, child, wait);
    free(request);
    if (status > 0)
        status = tni_child_watch(child, status);
    if (status == 0)
        status = tni_child_await_start(child);
    if (status != 0)
        return tni_child_end_failed(child, status);
    *ret_process = child;
    return 0;
}

int tn_forkserver_fork(tn_forkserver *server, tn_process_fn *run, const void *argument,
                       size_t size_bytes, uint32_t flags, tn_process **ret_process)
{
    struct tni_server_call call = {run, argument, size_bytes, flags};
    struct tni_wait wait = {.deadline_ns = TNI_FOREVER};
    return tni_server_fork(server, &call, &wait, ret_process);
}

/* ---- ending ------------------------------------------------------------------------------ */

tn_forkserver *tn_forkserver_close(tn_forkserver *server)
{
    if (server == NULL)
        return NULL;
    if (server->owner_pid == tni_os_pid()) {
        struct tni_fork_request end = {.magic = TNI_FORK_MAGIC, .verb = TNI_VERB_END};
        if (tni_child_collect(server->process, 0) != 0 &&
            tni_os_send(server->socket_fd, &end, sizeof end, NULL, 0) == 0)
            (void)!tni_child_await(server->process, tn_deadline_after(TNI_SERVER_END_NS).ns,
                                   true);
        tni_server_reclaim(server);
    }
    tni_server_unlist(server);
    tn_process_close(server->late);
    tn_process_close(server->process);
    tni_os_unmap(server->place, sizeof *server->place);
    free(server);
    return NULL;
}
