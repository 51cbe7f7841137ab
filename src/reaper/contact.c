/* SPDX-License-Identifier: Apache-2.0 */
/*
 * contact: ask tenond, start one if none listens, register a domain, and ring tenond.
 *
 * Nouns: request and reply (one packet each way), bell (of tenond's seat).
 * I1  tenond could find out itself what it is told: a lost request or ring costs time, no
 *     memory.
 * I2  A reply is checked before any part of it is used.
 * Callers: api, find.c, depot.c, manager.c.
 * Death: leaves a connection, which tenond closes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reaper/manager.h"

#ifndef TNI_TENOND_PATH
#define TNI_TENOND_PATH "/usr/local/libexec/tenond"
#endif

#define MS_NS UINT64_C(1000000)
enum { RESTART_MS = 200, FIRST_STEP_US = 500, MOST_STEP_US = 20000 };

/*
 * A process waits LISTEN_MS for a tenond that it started, and on a busy machine STARTING_MS, as
 * long as some tenond has the lock of the folder: this one lives, and will listen.
 */
enum { LISTEN_MS = 5000, STARTING_MS = 30000, ANSWER_MS = 5000 };

/*
 * tenond inherits the limits of this process. It needs a dozen descriptors, two more for each
 * domain, and one for each member and connection: with fewer than this it could not answer.
 */
enum { TENOND_DESCRIPTORS = 64 };

static const char *tenond_path(void)
{
    const char *path = tni_os_environment("TENON_TENOND");
    return path != NULL && path[0] != 0 ? path : TNI_TENOND_PATH;
}

static int start_tenond(void)
{
    const char *path = tenond_path();
    const char *const argv[] = {path, NULL};
    if (path[0] != '/')
        return tni_fail(TN_ERR_MANAGER, "TENON_TENOND=%s is not an absolute path", path);
    uint64_t limit = tni_os_hard_descriptor_limit();
    if (limit < TENOND_DESCRIPTORS)
        return tni_fail(TN_ERR_MANAGER,
                        "tenond cannot be started: it would have this process's hard limit of "
                        "%llu descriptors (ulimit -Hn), and needs %d; a domain with "
                        "TN_DOMAIN_NO_MANAGER needs no tenond",
                        (unsigned long long)limit, TENOND_DESCRIPTORS);
    int status = tni_os_start_detached(path, argv);
    switch (status) {
    case 0:
        tni_log(TNI_LOG_INFO, "started tenond: %s", path);
        return 0;
    case TN_ERR_NOT_FOUND:
        return tni_fail(TN_ERR_MANAGER, "tenond is missing: %s (TENON_TENOND names another)",
                        path);
    default: {
        char why[160];
        snprintf(why, sizeof why, "%s", tn_error_detail());
        return status == TN_ERR_DENIED
                   ? tni_fail(TN_ERR_MANAGER,
                              "tenond cannot be executed: %s (TENON_TENOND names another): %s",
                              path, why)
                   : tni_fail(TN_ERR_MANAGER, "tenond could not be started: %s", why);
    }
    }
}

void tni_manager_fill(struct tni_request *request, uint32_t verb, const char *name)
{
    *request = (struct tni_request){
        .magic = TNI_REQUEST_MAGIC, .version = TNI_REQUEST_VERSION, .verb = verb};
    snprintf(request->name, sizeof request->name, "%s", name);
}

/* I2. @return 0: a complete reply */
static int receive_reply(int socket_fd, uint64_t deadline_ns, struct tni_reply *ret_reply,
                         int got_fds[TNI_PIECES], uint32_t *ret_fd_count)
{
    uint64_t asked_ns = tni_os_now_ns();
    const struct tni_os_buffer buffer = {ret_reply, sizeof *ret_reply, got_fds, TNI_PIECES};
    int got = tni_os_receive(socket_fd, &buffer, deadline_ns, ret_fd_count);
    if (got == 0)
        return tni_fail(TN_ERR_CLOSED, "tenond closed the connection");
    if (got == TN_ERR_TIMED_OUT)
        return tni_fail(TN_ERR_TIMED_OUT, "tenond has not answered for %llu ms",
                        (unsigned long long)((tni_os_now_ns() - asked_ns) / MS_NS));
    if (got < 0 && got != TN_ERR_INVALID)
        return got;
    if (got != (int)sizeof *ret_reply || ret_reply->magic != TNI_REQUEST_MAGIC)
        return tni_fail(TN_ERR_MANAGER, "tenond sent a malformed reply");
    return 0;
}

int tni_manager_talk(int socket_fd, const struct tni_inquiry *inquiry, uint64_t deadline_ns,
                     struct tni_reply *ret_reply, int *ret_fds)
{
    const uint32_t wanted_fds = inquiry->wanted_fds;
    struct tni_reply reply = {0};
    int got_fds[TNI_PIECES];
    uint32_t got_count = 0;
    int status = tni_os_send(socket_fd, &inquiry->request, sizeof inquiry->request,
                             inquiry->fds, inquiry->fd_count);
    if (status == 0)
        status = receive_reply(socket_fd, deadline_ns, &reply, got_fds, &got_count);
    bool has_fds = status == 0 && reply.status == 0 && wanted_fds > 0 && ret_fds != NULL;
    if (has_fds && got_count != wanted_fds)
        status = tni_fail(TN_ERR_MANAGER, "tenond answered with %u descriptors, not %u",
                          got_count, wanted_fds);
    if (has_fds && status == 0) {
        memcpy(ret_fds, got_fds, wanted_fds * sizeof *got_fds);
    } else {
        for (uint32_t i = 0; i < got_count; i++)
            tni_os_close(got_fds[i]);
    }
    if (status == 0)
        *ret_reply = reply;
    return status;
}

int tni_manager_exchange(const struct tni_inquiry *inquiry, uint64_t deadline_ns,
                         struct tni_reply *ret_reply, int *ret_fds)
{
    int socket_fd;
    int status = tni_os_connect(TNI_MANAGER_SOCKET, &socket_fd);
    if (status != 0)
        return status;
    status = tni_manager_talk(socket_fd, inquiry, deadline_ns, ret_reply, ret_fds);
    tni_os_close(socket_fd);
    return status;
}

static int is_socket_of_other(const char *name, void *context)
{
    const char *end = strrchr(name, '.');
    (void)context;
    return end != NULL && strcmp(end, ".sock") == 0 && strcmp(name, TNI_MANAGER_SOCKET) != 0;
}

static int fail_silent(void)
{
    return tni_fail(TN_ERR_MANAGER, "tenond (%s) was started, but does not answer in %s%s",
                    tenond_path(), tni_os_runtime_folder(),
                    tni_os_file_for_each(TNI_MANAGER_PREFIX, is_socket_of_other, NULL)
                        ? ", where a tenond of another version answers"
                        : "");
}

static bool is_tenond_starting(void)
{
    int lock_fd = -1;
    if (tni_os_file_lock(TNI_MANAGER_LOCK, 0, &lock_fd) == TN_ERR_TIMED_OUT)
        return true;
    if (lock_fd >= 0)
        tni_os_file_remove(TNI_MANAGER_LOCK);
    tni_os_close(lock_fd);
    return false;
}

int tni_manager_connect(int *ret_fd)
{
    uint64_t begun_ns = tni_os_now_ns(), start_ns = 0;
    uint64_t restart_ns = RESTART_MS * MS_NS, step_ns = FIRST_STEP_US * UINT64_C(1000);
    for (;;) {
        int status = tni_os_connect(TNI_MANAGER_SOCKET, ret_fd);
        uint64_t now_ns = tni_os_now_ns(), waited_ns = now_ns - begun_ns;
        if (status != TN_ERR_NOT_FOUND)
            return status;
        if (waited_ns >= STARTING_MS * MS_NS ||
            (waited_ns >= LISTEN_MS * MS_NS && !is_tenond_starting()))
            return fail_silent();
        /*
         * Start one again now and then: the first may have seen that another tenond listened,
         * which then ended. Ever more seldom: where many processes wait, the machine is busy
         * with the tenonds that they start.
         */
        if (now_ns >= start_ns) {
            if ((status = start_tenond()) != 0)
                return status;
            start_ns = tni_os_now_ns() + restart_ns;
            restart_ns *= 2;
        }
        tni_os_sleep_until(now_ns + step_ns);
        step_ns = TNI_MIN(step_ns * 2, MOST_STEP_US * UINT64_C(1000));
    }
}

/* Ask the tenond that listens, or a new one. If it ends before it replies, ask the next one. */
static int exchange_starting(const struct tni_inquiry *inquiry, struct tni_reply *ret_reply)
{
    uint64_t deadline_ns = tni_os_now_ns() + LISTEN_MS * MS_NS;
    for (;;) {
        int socket_fd;
        int status = tni_manager_connect(&socket_fd);
        if (status == 0) {
            uint64_t answer_ns = tni_os_now_ns() + ANSWER_MS * MS_NS;
            status = tni_manager_talk(socket_fd, inquiry, answer_ns, ret_reply, NULL);
            tni_os_close(socket_fd);
        }
        if (status != TN_ERR_CLOSED && status != TN_ERR_TIMED_OUT)
            return status;
        uint64_t now_ns = tni_os_now_ns();
        if (status == TN_ERR_TIMED_OUT || now_ns >= deadline_ns)
            return fail_silent();
        tni_os_sleep_until(now_ns + FIRST_STEP_US * UINT64_C(1000));
    }
}

int tni_manager_fail_reply(const struct tni_reply *reply, const char *name)
{
    switch (reply->status) {
    case TN_ERR_EXISTS:
        return tni_fail(TN_ERR_EXISTS, "a domain named '%s' exists already", name);
    case TN_ERR_FULL:
        return tni_fail(TN_ERR_FULL, "the domain has no seat left for tenond");
    case TN_ERR_NOT_FOUND:
        return tni_fail(TN_ERR_NOT_FOUND, "no domain is named '%s'", name);
    case TN_ERR_DENIED:
        return tni_fail(TN_ERR_DENIED,
                        "the tenond of %s (process %d) may not manage this domain: it runs "
                        "in another user namespace, where this process's user has another "
                        "number. Set TENON_RUNTIME_DIR to another folder, which has its own "
                        "tenond",
                        tni_os_runtime_folder(), reply->pid);
    case TN_ERR_MANAGER:
        return tni_fail(TN_ERR_MANAGER,
                        "another tenond than that of %s (process %d) manages the domain",
                        tni_os_runtime_folder(), reply->pid);
    case TN_ERR_VERSION:
        return tni_fail(TN_ERR_VERSION,
                        "the tenond of %s (process %d) is of another version than this library",
                        tni_os_runtime_folder(), reply->pid);
    default:
        return tni_fail(TN_ERR_MANAGER, "tenond (process %d) answered: %s", reply->pid,
                        tn_status_sentence(reply->status));
    }
}

int tni_manager_register(struct tn_domain *d)
{
    const struct tni_segment *s = &d->segment;
    const int fds[2] = {s->control_fd, s->arena_fd};
    struct tni_inquiry inquiry = {.fds = fds, .fd_count = 2};
    struct tni_reply reply;

    if (s->flags & TN_DOMAIN_NO_MANAGER)
        return 0;
    tni_manager_follow();
    int status = tni_os_runtime_prepare();
    if (status != 0)
        return status;
    tni_manager_fill(&inquiry.request, TNI_REQUEST_REGISTER, s->name);
    status = exchange_starting(&inquiry, &reply);
    if (status == 0 && reply.status != 0)
        status = tni_manager_fail_reply(&reply, s->name);
    if (status == 0)
        tni_folder_follow(d);
    return status;
}

/*
 * A process may fork hundreds of times a second, and each ring wakes tenond; so one ring serves
 * for all members that change within a moment. If the process dies before it rings, tenond
 * finds the change at its own check, once a second.
 */
TNI_AROUND_FORK void tni_manager_ring(struct tn_domain *d)
{
    const struct tni_segment *s = &d->segment;
    uint64_t manager = atomic_load(&s->header->manager);
    uint32_t seat = tni_who_seat(manager);

    if (d->is_manager || manager == 0 || !tni_geometry_has_seat(&s->geometry, seat))
        return;
    uint64_t bell = atomic_load(&tni_seat_at(s, seat)->bell_number);
    uint64_t now_ns = tni_os_shared_ns(), seen_ns = atomic_load(&s->header->rung_ns);
    if (bell == 0 || now_ns - seen_ns < TNI_MANAGER_RUNG_NS ||
        !atomic_compare_exchange_strong(&s->header->rung_ns, &seen_ns, now_ns))
        return; /* another member rings, or rang less than TNI_MANAGER_RUNG_NS ago */
    TNI_KILL_POINT("manager_rings");
    tni_os_bell_ring(bell);
}

/* A tenond that starts finds open domains itself; one that runs must be told. */
int tni_contact_replace(struct tn_domain *d)
{
    struct tni_request request;
    int socket_fd;
    int status = tni_os_runtime_prepare();
    if (status != 0)
        return status;
    if ((status = tni_os_connect(TNI_MANAGER_SOCKET, &socket_fd)) == TN_ERR_NOT_FOUND)
        return start_tenond();
    if (status != 0)
        return status;
    /* Without waiting for the reply: the caller has a deadline of its own. */
    tni_manager_fill(&request, TNI_REQUEST_REGISTER, d->segment.name);
    const int fds[2] = {d->segment.control_fd, d->segment.arena_fd};
    status = tni_os_send(socket_fd, &request, sizeof request, fds, 2);
    tni_os_close(socket_fd);
    return status;
}
