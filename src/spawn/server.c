/* SPDX-License-Identifier: Apache-2.0 */
/*
 * server: a process that does nothing but fork, for a parent that must not.
 *
 * Nouns: server (a child of ours, of one thread), request, answer.
 * I1  What the server forks is a child of the server's parent (CLONE_PARENT): the parent waits
 *     for it, with or without the server, and it ends with the parent (child.c, I3).
 * I2  A child has no descriptor of the server's or of a sibling's: the server closes the only
 *     one that it is handed as soon as the child has it.
 * I3  The parent knows the pid of every child: from the answer, or, when the server died before
 *     it gave one, from the place that the two share, where the kernel writes it as it makes
 * the child. A child whose report nobody reads ends. Callers: the user, pool.c. A death of the
 * server ends the requests that wait for it, and no child. A death of the parent ends the
 * server, by child.c, I3, or as its socket ends.
 */
#include <stdlib.h>
#include <string.h>

#include "spawn/child.h"

struct tn_forkserver {
    struct tn_domain *domain;
    struct tn_process *process;
    int32_t owner_pid;
    int socket_fd;
    int server_fd;         /* its end, while it starts */
    uint64_t last_request; /* its number */
    int32_t *forked;       /* the child of the last request; shared with the server */
    struct tn_forkserver *next;
};

enum { VERB_FORK = 1, VERB_END = 2 };
#define REQUEST_MAGIC UINT32_C(0x746e666b)
static const uint64_t end_ns = UINT64_C(2000000000); /* for a server that was told to end */

/* One packet, with the write end of the child's message pipe; the argument follows. */
struct request {
    uint32_t magic;
    uint32_t verb;
    uint32_t flags; /* TN_PROCESS_* */
    uint32_t size_bytes;
    tn_process_fn *run;
    uint64_t number; /* of requests to this server */
};
struct answer {
    uint64_t number; /* of the request: one that could not be read is not taken for the next */
    int32_t status;  /* a pid, or TN_ERR_* */
    char text[252];
};

/* ---- all servers of this process --------------------------------------------------------- */

static struct tn_forkserver *servers; /* under tni_children_lock() */
/* The one that this thread is starting: in its own process, its end stays open. */
static _Thread_local struct tn_forkserver *starting;

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

static int put_on_list(struct tn_forkserver *server)
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

static void take_off_list(struct tn_forkserver *server)
{
    tni_children_lock();
    for (struct tn_forkserver **at = &servers; *at != NULL; at = &(*at)->next)
        if (*at == server) {
            *at = server->next;
            break;
        }
    tni_os_close(server->socket_fd);
    tni_os_close(server->server_fd);
    server->socket_fd = server->server_fd = -1;
    tni_children_unlock();
}

/* ---- in the server ----------------------------------------------------------------------- */

struct service {
    struct tn_forkserver *server;
    struct tni_origin origin;
};

/* @return whether somebody reads it */
static bool give_answer(int fd, uint64_t number, int status)
{
    struct answer answer = {.number = number, .status = status};
    if (status < 0)
        strncpy(answer.text, tn_error_detail(), sizeof answer.text - 1);
    return tni_os_send(fd, &answer, sizeof answer, NULL, 0) == 0;
}

static int check_request(const struct request *request, size_t got, uint32_t fd_count)
{
    if (got >= sizeof *request && request->magic == REQUEST_MAGIC &&
        request->verb == VERB_FORK && fd_count == 1 && request->run != NULL &&
        request->size_bytes == got - sizeof *request)
        return 0;
    return tni_fail(TN_ERR_CORRUPT, "a request of %zu bytes to a fork server makes no sense",
                    got);
}

/* @return a pid, or TN_ERR_* */
static int fork_one(struct tn_domain *domain, const struct service *service,
                    struct request *request, int message_fd)
{
    int socket_fd = service->server->server_fd;
    int pid = tni_os_fork_sibling(service->server->forked);
    if (pid == 0) {
        tni_os_unmap(service->server->forked, sizeof *service->server->forked);
        tni_os_close(socket_fd);
        tni_os_signals_restore();
        tni_child_run(domain, request->run, request + 1, request->flags, &service->origin,
                      message_fd);
    }
    TNI_KILL_POINT("forkserver_forked");
    return pid;
}

static int serve(struct tn_domain *domain, void *argument)
{
    const struct service *service = argument;
    int fd = service->server->server_fd;
    struct request *request = malloc(sizeof *request + TN_FORKSERVER_MAX_BYTES);
    if (request == NULL)
        return 1;
    tni_os_signals_serve();
    for (bool is_read = true; is_read;) {
        int message_fd = -1;
        uint32_t fd_count = 0;
        request->magic = 0;
        int got = tni_os_receive(fd, request, sizeof *request + TN_FORKSERVER_MAX_BYTES,
                                 &message_fd, 1, &fd_count, TN_FOREVER);
        if (got == 0 || (got == (int)sizeof *request && request->verb == VERB_END))
            break;
        int status = got < 0 ? got : check_request(request, (size_t)got, fd_count);
        if (status == 0)
            status = fork_one(domain, service, request, message_fd);
        tni_os_close(fd_count == 1 ? message_fd : -1); /* I2 */
        /* One that came without its descriptor is an error, and was read all the same. */
        bool is_known = request->magic == REQUEST_MAGIC;
        is_read = give_answer(fd, is_known ? request->number : 0, status);
    }
    free(request);
    return 0;
}

/* ---- starting and ending ----------------------------------------------------------------- */

static int start(struct tn_forkserver *server)
{
    struct service service = {server, tni_child_origin(server->domain)};
    int status = put_on_list(server);
    if (status != 0)
        return status;
    starting = server;
    status = tn_process_fork(server->domain, serve, &service, 0, &server->process);
    starting = NULL;
    if (status != 0) {
        take_off_list(server);
        return status;
    }
    tni_children_lock();
    tni_os_close(server->server_fd);
    server->server_fd = -1;
    tni_children_unlock();
    return 0;
}

int tn_forkserver_start(tn_domain *domain, tn_forkserver **ret_server)
{
    if (domain == NULL || ret_server == NULL)
        return tni_fail(TN_ERR_INVALID, "no domain, or nowhere to put the fork server");
    struct tn_forkserver *server = calloc(1, sizeof *server);
    if (server == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "no private memory for a fork server");
    server->domain = domain;
    server->owner_pid = tni_os_pid();
    server->socket_fd = server->server_fd = -1;
    void *forked = NULL;
    int status = tni_os_map_shared(sizeof *server->forked, &forked);
    server->forked = forked;
    if (status == 0)
        status = start(server);
    if (status != 0) {
        tni_os_unmap(forked, sizeof *server->forked);
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

tn_forkserver *tn_forkserver_close(tn_forkserver *server)
{
    if (server == NULL)
        return NULL;
    if (server->owner_pid == tni_os_pid()) {
        struct request end = {.magic = REQUEST_MAGIC, .verb = VERB_END};
        if (tni_child_collect(server->process, 0) != 0 &&
            tni_os_send(server->socket_fd, &end, sizeof end, NULL, 0) == 0)
            (void)!tni_child_await(server->process, tn_deadline_after(end_ns), true);
        take_off_list(server);
    } else {
        tni_os_close(server->socket_fd); /* of a process that fork() alone made */
    }
    tn_process_close(server->process);
    tni_os_unmap(server->forked, sizeof *server->forked);
    free(server);
    return NULL;
}

/* ---- asking ------------------------------------------------------------------------------ */

/* Its socket ends a moment before it does. */
static int fail_dead(const struct tn_forkserver *server)
{
    int32_t pid = tn_process_pid(server->process);
    (void)!tni_child_await(server->process, tn_deadline_after(end_ns), true);
    tni_set_peer(TNI_NO_SEAT, pid);
    return tni_fail(TN_ERR_PEER_DIED, "the fork server, process %d, has ended", pid);
}

/*
 * I3. The server is gone, or its answer could not be read: did it fork before? @return the
 * child's pid
 */
static int find_orphan(const struct tn_forkserver *server, int received)
{
    int32_t pid = __atomic_load_n(server->forked, __ATOMIC_ACQUIRE);
    if (pid > 0)
        return pid;
    if (received < 0 && tni_child_collect(server->process, 0) != 0)
        return tni_fail(received, "the answer of the fork server, process %d, was not received",
                        tn_process_pid(server->process));
    return fail_dead(server);
}

/* @return the child's pid */
static int await_answer(const struct tn_forkserver *server)
{
    struct answer answer;
    int got;
    do {
        int fds[2] = {server->socket_fd, server->process->pid_fd};
        int status = tni_os_poll(fds, 2, TN_FOREVER);
        if (status < 0)
            return status;
        got = tni_os_receive(server->socket_fd, &answer, sizeof answer, NULL, 0, NULL, 0);
    } while (got == (int)sizeof answer && answer.number != server->last_request);
    if (got != (int)sizeof answer)
        return find_orphan(server, got);
    answer.text[sizeof answer.text - 1] = '\0';
    return answer.status > 0 ? answer.status
                             : tni_fail(answer.status < 0 ? answer.status : TN_ERR_CORRUPT,
                                        "%s", answer.text);
}

static int send_request(const struct tn_forkserver *server, struct request *request,
                        struct tn_process *child)
{
    int ends[2];
    int status = tni_os_pipe(ends);
    if (status != 0)
        return status;
    child->message_fd = ends[0];
    status = tni_os_send(server->socket_fd, request, sizeof *request + request->size_bytes,
                         &ends[1], 1);
    tni_os_close(ends[1]);
    return status;
}

/*
 * The lock ends before the wait: a server that is stopped, or slow, holds up nobody but who
 * asks it.
 */
static int ask(struct tn_forkserver *server, struct request *request, struct tn_process *child)
{
    if (tni_child_collect(server->process, 0) == 0)
        return fail_dead(server);
    tni_children_lock();
    request->number = ++server->last_request;
    __atomic_store_n(server->forked, 0, __ATOMIC_RELEASE);
    int status = send_request(server, request, child);
    tni_children_unlock();
    if (status == TN_ERR_CLOSED)
        return fail_dead(server);
    if (status == 0)
        status = await_answer(server);
    if (status > 0)
        status = tni_child_watch(child, status);
    if (status == 0)
        status = tni_child_await_start(child);
    return status;
}

static int check_call(const tn_forkserver *server, tn_process_fn *run, const void *argument,
                      size_t size_bytes, tn_process *const *ret_process)
{
    if (server == NULL || run == NULL || ret_process == NULL ||
        (argument == NULL && size_bytes > 0))
        return tni_fail(TN_ERR_INVALID,
                        "no server, no function, no argument, or nowhere to put the process");
    if (server->owner_pid != tni_os_pid())
        return tni_fail(TN_ERR_INVALID, "a fork server that another process started");
    if (size_bytes > TN_FORKSERVER_MAX_BYTES)
        return tni_fail(TN_ERR_INVALID, "an argument of %zu bytes; at most %d are allowed",
                        size_bytes, TN_FORKSERVER_MAX_BYTES);
    return 0;
}

int tn_forkserver_fork(tn_forkserver *server, tn_process_fn *run, const void *argument,
                       size_t size_bytes, uint32_t flags, tn_process **ret_process)
{
    struct tn_process *child;
    int status = check_call(server, run, argument, size_bytes, ret_process);
    if (status == 0)
        status = tni_child_create(server->domain, flags, &child);
    if (status != 0)
        return status;
    struct request *request = malloc(sizeof *request + size_bytes);
    if (request == NULL)
        return tni_child_end_failed(
            child, tni_fail(TN_ERR_NO_MEMORY, "no private memory for a request"));
    *request = (struct request){.magic = REQUEST_MAGIC,
                                .verb = VERB_FORK,
                                .flags = flags,
                                .size_bytes = (uint32_t)size_bytes,
                                .run = run};
    if (size_bytes > 0)
        memcpy(request + 1, argument, size_bytes);
    status = ask(server, request, child);
    free(request);
    if (status != 0)
        return tni_child_end_failed(child, status);
    *ret_process = child;
    return 0;
}
