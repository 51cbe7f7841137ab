/* SPDX-License-Identifier: Apache-2.0 */
/*
 * server_answer: one thread, the reader, receives the answers of a fork server for all callers.
 * The invariants are in server.c.
 */
#include <signal.h>
#include <stdlib.h>

#include "spawn/server.h"

void tni_server_tell(struct tn_forkserver *server)
{
    atomic_fetch_add(&server->news, 1);
    tni_os_wake(&server->news, UINT32_MAX);
}

void tni_server_end_request(struct tn_forkserver *server)
{
    tni_children_lock();
    server->out_request = 0;
    server->asker = NULL;
    tni_children_unlock();
}

/* Clears `late` before it frees the child (child.c, I7). */
static void close_late(struct tn_forkserver *server)
{
    struct tn_process *late = server->late;
    server->late = NULL;
    tn_process_close(late);
}

/*
 * Watch the child of a withdrawn request until the child has ended (I5). If no pidfd can be
 * opened for the child, kill it and collect it by its pid.
 */
void tni_server_watch_late(struct tn_forkserver *server, int32_t pid)
{
    if (tni_child_create(server->domain, 0, &server->late) != 0)
        tni_os_child_abort(pid);
    else if (tni_child_watch(server->late, pid) != 0)
        close_late(server);
    if (server->late == NULL)
        tni_server_end_request(server);
}

/* The child did not run the function, so it may be killed. */
void tni_server_collect_late(struct tn_forkserver *server, uint64_t deadline_ns)
{
    int status = tni_child_collect(server->late, 0);
    if (status == TN_ERR_TIMED_OUT) {
        (void)!tn_process_kill(server->late, SIGKILL);
        status = tni_child_collect(server->late, deadline_ns);
    }
    if (status == TN_ERR_TIMED_OUT)
        return;
    close_late(server);
    tni_server_end_request(server);
}

/*
 * File an answer. The request's number in it shows whether the answer belongs to the request in
 * flight or is a late answer to an earlier one. pre: this thread has tni_children_lock()
 * @return the pid of a child for tni_server_watch_late(), or 0
 */
static int32_t file_locked(struct tn_forkserver *server, const struct tni_fork_answer *answer)
{
    if (server->out_request == 0 || server->out_request != answer->number)
        return 0;
    if (server->asker == NULL && answer->status > 0)
        return answer->status;
    if (server->asker != NULL)
        *server->asker = (struct tni_asker){.is_answered = true, .answer = *answer};
    server->out_request = 0;
    server->asker = NULL;
    return 0;
}

static void file_answer(struct tn_forkserver *server, const struct tni_fork_answer *answer)
{
    tni_children_lock();
    int32_t late_pid = file_locked(server, answer);
    tni_children_unlock();
    if (late_pid > 0)
        tni_server_watch_late(server, late_pid);
}

static bool receive_answer(struct tn_forkserver *server, int *ret_got)
{
    struct tni_fork_answer answer;
    *ret_got = tni_os_receive(
        server->socket_fd, &(struct tni_os_buffer){&answer, sizeof answer, NULL, 0}, 0, NULL);
    bool is_answer = *ret_got == (int)sizeof answer;
    if (is_answer)
        file_answer(server, &answer);
    return is_answer;
}

/*
 * The server has ended, and its last answers were read. Read from the shared memory whether the
 * server forked for the request in flight (I3). pre: the server forks no more
 */
static void file_death(struct tn_forkserver *server)
{
    struct tni_fork_answer answer = {0};
    int got;
    while (server->late == NULL && receive_answer(server, &got)) {
    }
    tni_children_lock();
    int32_t forked = __atomic_load_n(&server->place->forked, __ATOMIC_ACQUIRE);
    answer.number = server->out_request;
    answer.status = forked > 0 ? forked : TN_ERR_PEER_DIED;
    int32_t late_pid = server->late == NULL ? file_locked(server, &answer) : 0;
    tni_children_unlock();
    if (late_pid > 0)
        tni_server_watch_late(server, late_pid);
}

/* Called by the reader. @return 0: the state may have changed; or why no answer was received */
int tni_server_read(struct tn_forkserver *server, uint64_t deadline_ns)
{
    int got, fds[2] = {server->socket_fd, server->process->pid_fd};
    if (server->late != NULL)
        return tni_server_collect_late(server, deadline_ns), 0;
    int status = tni_os_poll(fds, 2, deadline_ns);
    if (status < 0 && status != TN_ERR_TIMED_OUT)
        return status;
    if (status < 0 && deadline_ns != 0)
        tni_child_survive(server->domain);
    if (receive_answer(server, &got))
        return 0;
    /* The socket closes a moment before the process ends. */
    uint64_t until_ns =
        got == 0 && deadline_ns != 0 ? tn_deadline_after(TNI_SERVER_END_NS).ns : 0;
    bool is_dead = tni_child_await(server->process, until_ns, true) == 0;
    if (is_dead || got == 0)
        file_death(server);
    return is_dead || got >= 0 || got == TN_ERR_TIMED_OUT ? 0 : got;
}

void tni_server_reclaim(struct tn_forkserver *server)
{
    if (server->out_request != 0) {
        (void)!tn_process_kill(server->process, SIGKILL);
        (void)!tni_child_await(server->process, TNI_FOREVER, true);
    }
    while (server->out_request != 0 && server->late == NULL &&
           tni_server_read(server, 0) == 0) {
    }
}
