/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spawn: child processes and groups. Fork servers and pools have cards of their own, in
 * server.c and pool.c.
 *
 * Nouns: child (a process, seen from its parent), group (children that end together),
 * message.
 * I1  The parent has two descriptors for a child until it collects it: its pidfd, and the
 *     read end of its message pipe. The parent signals and waits through the pidfd where it
 *     can.
 * I2  No child that this room starts inherits the descriptors of a sibling.
 * I3  Unless it is detached, a child ends with its parent. Two independent mechanisms see to
 *     it: the kernel's death signal, and the child's seat, which names the parent: a process
 *     that reclaims the parent kills the child.
 * I4  tn_process_fork() returns when the child has its seat and I3 holds, or when it has
 *     ended.
 * I5  After the first failure of a child the other children of the group are ended, and the
 *     group keeps reporting that failure. A child that the group ended does not count.
 * I6  If the kernel cannot state the end of a child (SIGCHLD is ignored, or other code waited
 *     for it), the exit code comes from the child's last message. Without one the end is not
 *     known, and does not count as a failure.
 * I7  fork() may copy this process inside of a call. If the program's hook forked, the call
 *     ends with TN_ERR_INVALID in the copy as soon as the hook returns. Because another
 *     thread may fork, code clears the variable that names a descriptor or an object before
 *     it closes or frees it, so that a copy does not close or free it again.
 * Callers: the user. If the parent dies, its children end (I3). A child that is just starting
 * ends too, because it checks for its parent after it set up each mechanism. If a child dies,
 * the parent reclaims the child's seat when it collects the child, or another reaper does.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spawn/child.h"

/* ---- children of this process ------------------------------------------------------------ */

static struct tn_process *children;
/*
 * The pid of the process whose thread has the lock; 0: it is free. A forked child that finds
 * the pid of its parent takes the lock over, because the parent's thread does not exist in it.
 */
static _Atomic int32_t children_owner;

void tni_children_lock(void)
{
    int32_t self = tni_os_pid();
    for (uint32_t tries = 0;; tries++) {
        int32_t owner = atomic_load_explicit(&children_owner, memory_order_relaxed);
        if (owner != self && atomic_compare_exchange_strong(&children_owner, &owner, self))
            return;
        tni_os_back_off(tries);
    }
}

void tni_children_unlock(void)
{
    atomic_store_explicit(&children_owner, 0, memory_order_release);
}

/* Clears the variables before it closes the descriptors (I7). */
static void close_descriptors(struct tn_process *child)
{
    int pid_fd = child->pid_fd, message_fd = child->message_fd;
    child->pid_fd = child->message_fd = -1;
    tni_os_close(pid_fd);
    tni_os_close(message_fd);
}

void tni_children_forget(void)
{
    for (struct tn_process *child = children; child != NULL; child = child->next)
        close_descriptors(child);
    children = NULL;
    tni_children_unlock();
}

int tni_child_create(struct tn_domain *domain, uint32_t flags, struct tn_process **ret_child)
{
    if ((flags & ~(uint32_t)TN_PROCESS_DETACHED) != 0)
        return tni_fail(TN_ERR_INVALID, "the process flags have bits that are not known: 0x%x",
                        flags);
    int status = tni_process_check(domain);
    if (status != 0)
        return status;
    struct tn_process *child = calloc(1, sizeof *child);
    if (child == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "no private memory for a process");
    child->domain = domain;
    child->owner_pid = tni_os_pid();
    child->flags = flags;
    child->pid_fd = child->message_fd = -1;
    tni_process_keep(domain);
    tni_children_lock();
    child->next = children;
    children = child;
    tni_children_unlock();
    *ret_child = child;
    return 0;
}

int tni_child_watch(struct tn_process *child, int32_t pid)
{
    int status = tni_os_process_open(pid, &child->pid_fd);
    if (status != 0 && status != TN_ERR_NOT_FOUND) {
        tni_os_child_abort(pid);
        return status;
    }
    child->pid = pid; /* TN_ERR_NOT_FOUND: the child ended, and other code collected it (I6) */
    return 0;
}

static bool is_ours(const struct tn_process *child) { return child->owner_pid == tni_os_pid(); }

static int check(const struct tn_process *child)
{
    if (child == NULL)
        return tni_fail_null("the process");
    if (!is_ours(child))
        return tni_fail(TN_ERR_INVALID, "another process started the process %d", child->pid);
    return 0;
}

static bool is_seated(const struct tn_domain *domain) { return tni_process_has_seat(domain); }

void tni_child_survive(struct tn_domain *domain)
{
    if (is_seated(domain) && domain->survive != NULL)
        domain->survive(domain);
}

bool tni_child_has_failed(const struct tn_process *child)
{
    const tn_process_status *end = &child->status;
    return child->is_ended && (end->exit_code > 0 || end->signal != 0);
}

void tni_child_describe_end(const tn_process_status *end, char *text, size_t size_bytes)
{
    const char *colon = end->message[0] != '\0' ? ": " : "";
    if (end->signal != 0)
        snprintf(text, size_bytes, "was ended by signal %d", end->signal);
    else if (end->exit_code < 0)
        snprintf(text, size_bytes, "ended in a way that is not known%s%s", colon, end->message);
    else
        snprintf(text, size_bytes, "exited with %d%s%s", end->exit_code, colon, end->message);
}

/* ---- its end ----------------------------------------------------------------------------- */

static void note_end(struct tn_process *child, const struct tni_os_exit *end)
{
    child->status.exit_code = end->exit_code;
    child->status.signal = end->signal;
    child->status.pid = child->pid;
    int left = tni_message_read(child->message_fd, child->status.message,
                                sizeof child->status.message);
    if (end->exit_code < 0 && end->signal == 0)
        child->status.exit_code = left; /* I6 */
    tni_children_lock();
    close_descriptors(child); /* I1 */
    tni_children_unlock();
    child->is_ended = true;
    /* A child that exited with 0 normally left the domain itself. */
    if (child->status.exit_code != 0 && is_seated(child->domain))
        tni_reaper_reclaim_all(child->domain);
}

int tni_child_collect(struct tn_process *child, uint64_t deadline_ns)
{
    struct tni_os_exit end = {.exit_code = -1};
    if (child->is_ended)
        return 0;
    int status = child->pid_fd < 0
                     ? TN_ERR_NOT_FOUND
                     : tni_os_child_wait(child->pid_fd, child->pid, deadline_ns, &end);
    /* TN_ERR_NOT_FOUND: other code collected the child, so it has ended (I6). */
    if (status == 0 || status == TN_ERR_NOT_FOUND)
        note_end(child, &end);
    return child->is_ended ? 0 : status;
}

/* Ask the program's hook, then check whether the hook forked and this is the copy (I7). */
static int ask(const struct tn_process *child, uint64_t now_ns)
{
    int asked = tni_interrupt_ask(now_ns), status = check(child);
    return status != 0 ? status : asked;
}

int tni_child_await(struct tn_process *child, uint64_t deadline_ns, bool is_through)
{
    int status = tni_child_collect(child, 0);
    while (status == TN_ERR_TIMED_OUT) {
        uint64_t now_ns = tni_os_now_ns();
        if (now_ns >= deadline_ns)
            return status;
        if (!is_through && (status = ask(child, now_ns)) != 0)
            return status;
        status = tni_child_collect(child, TNI_MIN(deadline_ns, now_ns + TNI_SPAWN_SLICE_NS));
        if (status == TN_ERR_TIMED_OUT)
            tni_child_survive(child->domain);
    }
    return status;
}

int tn_process_wait(tn_process *child, tn_deadline deadline, tn_process_status *ret_status)
{
    int status = check(child);
    if (status == 0 && ret_status != NULL)
        status = tni_check_struct("tn_process_status", ret_status, sizeof *ret_status);
    if (status == 0)
        status = tni_child_await(child, deadline.ns, false);
    return status != 0 || ret_status == NULL
               ? status
               : tni_give_struct("tn_process_status", &child->status, sizeof child->status,
                                 ret_status);
}

int32_t tn_process_pid(const tn_process *child) { return child != NULL ? child->pid : 0; }

int tn_process_kill(tn_process *child, int signal)
{
    int status = check(child);
    if (status != 0 || child->is_ended || child->pid_fd < 0)
        return status;
    status = tni_os_process_signal(child->pid_fd, signal);
    return status == TN_ERR_NOT_FOUND ? 0 : status;
}

static void forget(struct tn_process *child)
{
    tni_children_lock();
    close_descriptors(child);
    for (struct tn_process **at = &children; *at != NULL; at = &(*at)->next)
        if (*at == child) {
            *at = child->next;
            break;
        }
    tni_children_unlock();
}

/*
 * A detached child is not ended. If it ends later, it stays a zombie until this process ends,
 * because only the parent can collect it.
 */
static void end_child(struct tn_process *child)
{
    bool is_detached = (child->flags & TN_PROCESS_DETACHED) != 0;
    if (!is_detached && tn_process_kill(child, SIGKILL) != 0)
        tni_log(TNI_LOG_WARNING, "process %d could not be killed: %s", child->pid,
                tn_error_detail());
    int status = tni_child_await(child, is_detached ? 0 : TNI_FOREVER, true);
    if (status != 0 && !is_detached)
        tni_log(TNI_LOG_WARNING, "process %d could not be collected: %s", child->pid,
                tn_error_detail());
}

tn_process *tn_process_close(tn_process *child)
{
    if (child == NULL)
        return NULL;
    if (is_ours(child) && child->pid != 0 && !child->is_ended)
        end_child(child);
    forget(child);
    tni_process_unkeep(child->domain);
    free(child);
    return NULL;
}
