/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that a question forks, and their messages. Every wait ends. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu/facts/facts.h"

/* A process that the question forked says nothing when the question has ended. */
static bool is_peer;

struct peer peer_start(void (*run)(int socket, int argument), int argument)
{
    int ends[2];
    pid_t parent = getpid();
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        unanswered("socketpair: %s", strerror(errno));
    pid_t pid = fork();
    if (pid < 0)
        unanswered("fork: %s", strerror(errno));
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(3);
        close(ends[0]);
        is_peer = true;
        run(ends[1], argument);
        _exit(0);
    }
    close(ends[1]);
    return (struct peer){pid, (int)syscall(SYS_pidfd_open, pid, 0), ends[0]};
}

void peer_send(int socket, const struct message *message, int fd)
{
    char control[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec bytes = {(void *)(uintptr_t)message, sizeof *message};
    struct msghdr header = {.msg_iov = &bytes, .msg_iovlen = 1};
    if (fd >= 0) {
        header.msg_control = control;
        header.msg_controllen = sizeof control;
        struct cmsghdr *part = CMSG_FIRSTHDR(&header);
        *part = (struct cmsghdr){
            .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof fd)};
        memcpy(CMSG_DATA(part), &fd, sizeof fd);
    }
    if (sendmsg(socket, &header, MSG_NOSIGNAL) == (ssize_t)sizeof *message)
        return;
    if (is_peer)
        _exit(3);
    unanswered("a message could not be sent: %s", strerror(errno));
}

static void await_readable(int fd, const char *what)
{
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    int found;
    do
        found = poll(&ready, 1, PATIENCE_MS);
    while (found < 0 && errno == EINTR);
    if (found <= 0)
        unanswered("%s within %d s", what, PATIENCE_MS / 1000);
}

struct message peer_receive(int socket, int *ret_fd)
{
    struct message message;
    int fd = -1;
    char control[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec bytes = {&message, sizeof message};
    struct msghdr header = {.msg_iov = &bytes,
                            .msg_iovlen = 1,
                            .msg_control = control,
                            .msg_controllen = sizeof control};
    await_readable(socket, "another process did not answer");
    ssize_t size = recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
    if (size != (ssize_t)sizeof message && is_peer)
        _exit(3);
    if (size != (ssize_t)sizeof message)
        unanswered("another process ended before it answered");
    struct cmsghdr *part = CMSG_FIRSTHDR(&header);
    if (part != NULL && part->cmsg_type == SCM_RIGHTS)
        memcpy(&fd, CMSG_DATA(part), sizeof fd);
    if (ret_fd != NULL)
        *ret_fd = fd;
    if (ret_fd != NULL && fd < 0)
        unanswered("a message came without its descriptor");
    return message;
}

void peer_signal(int socket) { peer_send(socket, &(struct message){0}, -1); }

void peer_await(int socket) { (void)peer_receive(socket, NULL); }

void peer_kill(struct peer *peer)
{
    kill(peer->pid, SIGKILL);
    (void)peer_join(peer);
}

bool peer_join(struct peer *peer)
{
    int status = 0;
    await_readable(peer->pidfd, "another process did not end");
    waitpid(peer->pid, &status, 0);
    close(peer->pidfd);
    close(peer->socket);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}
