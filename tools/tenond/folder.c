/* SPDX-License-Identifier: Apache-2.0 */
/*
 * folder: the place of this tenond ("we") in the runtime folder, and what happens if it is
 * lost. The folder of a login session is removed with the user's last logout, and a cleaning
 * program may remove its files.
 *
 * Nouns: lock (the file that says which tenond has the folder), place (lock and socket).
 * I1  The tenond that has locked the file with the lock's name has the folder. Once a
 *     second we check that the file that we have locked still has that name.
 * I2  If it has not, we lock the file in the folder that can be used now, go on there, and
 *     write the new folder into every domain. If another tenond has that lock, we give it
 *     every domain and every deposit, leave the domain after that, and end.
 * I3  We remove only files of our own.
 * I4  Each domain has one manager: the tenond that its header names. The manager writes into
 *     the header which folder is the domain's. While we have the lock of a folder, no other
 *     tenond becomes the manager of our domains. If we lost the lock, while we were stopped
 *     for example, another tenond may have become the manager. We give it our deposits of
 *     that domain.
 * Death: in the middle of a move, survivors start another tenond in the folder that they
 * can use, and register their domains. If the old folder is gone, the vault's socket has
 * lost its name too, and descriptors that only we and the vault have are lost:
 * docs/crash.md, What is not covered.
 */
#include "tenond.h"

#define CHECK_NS UINT64_C(1000000000)

/* ---- socket ------------------------------------------------------------------------------ */

static void stop_listening(struct tenond *t)
{
    if (t->listen_fd >= 0 && t->is_listening)
        tni_os_loop_remove(t->loop, t->listen_fd);
    tni_os_close(t->listen_fd);
    t->listen_fd = -1;
    t->is_listening = false;
}

int tenond_folder_listen(struct tenond *t)
{
    int fd;
    int status = tni_os_listen(TNI_MANAGER_SOCKET, &fd);
    TNI_KILL_POINT("tenond_listens");
    if (status != 0)
        return status;
    stop_listening(t);
    t->listen_fd = fd;
    t->socket_number = tni_os_file_number(TNI_MANAGER_SOCKET);
    status = tni_os_loop_add(t->loop, fd, tenond_tag(TENOND_LISTEN, 0, 0));
    t->is_listening = status == 0;
    return status;
}

void tenond_folder_close(struct tenond *t)
{
    bool is_ours = t->listen_fd >= 0 && t->socket_number != 0 &&
                   tni_os_file_number(TNI_MANAGER_SOCKET) == t->socket_number;
    if (is_ours) /* I3 */
        tni_os_file_remove(TNI_MANAGER_SOCKET);
    tni_os_close(t->listen_fd);
}

/* ---- another folder, or the same once more ----------------------------------------------- */

static bool is_named_manager(const struct tenond_domain *d)
{
    return atomic_load(&d->domain->segment.header->manager) == d->domain->who;
}

static void write_folder(const struct tenond *t, struct tenond_domain *d)
{
    if (is_named_manager(d))
        atomic_store(&d->domain->segment.header->runtime, t->runtime);
}

/* The lock is consumed. */
static int go_on_with(struct tenond *t, int lock_fd)
{
    tni_os_close(t->lock_fd);
    t->lock_fd = lock_fd;
    t->runtime = tni_manager_runtime();
    TNI_KILL_POINT("tenond_moves");
    for (struct tenond_domain *d = t->domains; d != NULL; d = d->next)
        write_folder(t, d);
    tni_log(TNI_LOG_WARNING, "the lock file is gone: the runtime folder is now %s",
            tni_os_runtime_folder());
    tenond_adopt(t);
    tenond_recall_anew(t);
    return tenond_folder_listen(t);
}

/* ---- another tenond ---------------------------------------------------------------------- */

/* A deposit is STALE if its block has ended meanwhile: then no process needs it. */
static int give_deposits(const struct tenond_domain *d)
{
    int status = 0;
    for (uint32_t i = 0; i < d->deposits.count && status == 0; i++) {
        const struct tenond_deposit *deposit = &d->deposits.at[i];
        tni_block block = tni_block_make(TNI_BACKING_CLASS, deposit->index);
        status = tni_manager_deposit(d->domain, block, deposit->generation,
                                     bundle_fds(&deposit->bundle), deposit->bundle.count);
        status = status == TN_ERR_STALE ? 0 : status;
        TNI_KILL_POINT("tenond_hands_over");
    }
    return status;
}

/* Whether the tenond of another folder has become the manager. */
static bool is_replaced(const struct tenond *t, const struct tenond_domain *d)
{
    const struct tni_segment *s = &d->domain->segment;
    return !is_named_manager(d) && atomic_load(&s->header->runtime) != t->runtime &&
           tni_manager_has_other(s);
}

/* If the other tenond lacks a seat or descriptors, the caller tries again at the next check. */
static int give(struct tenond *t, struct tenond_domain *d)
{
    int status = is_replaced(t, d) ? 0 : tni_manager_register(d->domain);
    if (status == 0)
        status = give_deposits(d);
    if (status == 0)
        tenond_drop(t, d);
    return status;
}

/* I2. Once we have no lock, another tenond may become the manager (adopt.c, I5). */
static int hand_over(struct tenond *t)
{
    int worst = 0;
    t->is_retired = true; /* so that we do not adopt these domains again */
    tni_os_close(t->lock_fd);
    t->lock_fd = -1;
    for (struct tenond_domain *d = t->domains, *after; d != NULL; d = after) {
        after = d->next;
        int status = give(t, d);
        worst = status != 0 ? status : worst;
    }
    return worst;
}

/* I4. A domain may have no manager: the last one died, or a process has damaged the header. */
static void check_managers(struct tenond *t)
{
    for (struct tenond_domain *d = t->domains, *after; d != NULL; d = after) {
        after = d->next;
        if (is_replaced(t, d))
            (void)give(t, d);
        else if (!is_named_manager(d) && !tni_manager_is_alive(&d->domain->segment))
            tenond_become_manager(t, d);
        else
            write_folder(t, d);
    }
}

/* ---- the check --------------------------------------------------------------------------- */

static int check(struct tenond *t)
{
    int lock_fd;
    if (!t->is_retired)
        check_managers(t);
    if (tni_os_file_is(TNI_MANAGER_LOCK, t->lock_fd))
        return tni_os_file_number(TNI_MANAGER_SOCKET) == t->socket_number
                   ? 0
                   : tenond_folder_listen(t);
    int status = t->is_retired ? TN_ERR_TIMED_OUT : tni_os_runtime_prepare();
    if (status == 0)
        status = tni_os_file_lock(TNI_MANAGER_LOCK, 0, &lock_fd);
    if (status == TN_ERR_TIMED_OUT)
        return hand_over(t);
    return status == 0 ? go_on_with(t, lock_fd) : status;
}

uint64_t tenond_folder_due(struct tenond *t, uint64_t now_ns)
{
    if (now_ns < t->folder_ns)
        return t->folder_ns;
    int status = check(t);
    if (status != 0 && t->folder_status == 0)
        tni_log(TNI_LOG_WARNING, "no process can connect in %s: %s", tni_os_runtime_folder(),
                tn_error_detail());
    t->folder_status = status;
    t->folder_ns = tni_os_now_ns() + CHECK_NS;
    return t->folder_ns;
}
