/* SPDX-License-Identifier: Apache-2.0 */
/* loop: one loop over connections, process descriptors, the bell, the vault, and the time. */
#include <string.h>

#include "tenond.h"

#define IDLE_NS UINT64_C(2000000000)
enum { BATCH = 64 };

static int make_bell(struct tenond *t)
{
    int status;
    do {
        status = tni_os_random(&t->bell_number, sizeof t->bell_number);
        if (status == 0 && t->bell_number != 0)
            status = tni_os_bell_create(t->bell_number, &t->bell_fd);
    } while (status == TN_ERR_EXISTS || (status == 0 && t->bell_number == 0));
    return status;
}

static int open_all(struct tenond *t, int stop_fd)
{
    int status = tni_os_loop_create(&t->loop);
    t->stop_fd = stop_fd;
    if (status == 0)
        status = make_bell(t);
    if (status == 0)
        status = tni_os_loop_add(t->loop, t->bell_fd, tenond_tag(TENOND_BELL, 0, 0));
    if (status == 0)
        status = tni_os_loop_add(t->loop, t->stop_fd, tenond_tag(TENOND_STOP, 0, 0));
    /* Domains first: a process that connects must find every living domain by its name. */
    if (status == 0) {
        tenond_deposits_limit(t);
        tenond_adopt(t);
        tenond_recall(t);
        tenond_collect_files();
    }
    TNI_KILL_POINT("tenond_adopted");
    return status == 0 ? tenond_folder_listen(t) : status;
}

static void close_all(struct tenond *t)
{
    tenond_folder_close(t);
    while (t->domains != NULL)
        tenond_drop(t, t->domains);
    if (t->collect_ns != TNI_FOREVER)
        tenond_collect_files();
    tenond_mirror_fini(t);
    tenond_clients_fini(t);
    tni_os_close(t->bell_fd);
    tni_os_close(t->loop);
}

/*
 * A member does not ring if another member rang less than TNI_MANAGER_RUNG_NS ago: see
 * tni_manager_ring(). So one ring may stand for several, and we scan once more a moment later.
 */
static void take_ring(struct tenond *t)
{
    t->rung_ns = tni_os_now_ns();
    if (t->scan_ns != TNI_FOREVER)
        return; /* scan_due() scans soon, and once more after this ring */
    tenond_scan_all(t);
    t->scan_ns = t->rung_ns + TNI_MANAGER_LOOK_NS;
}

static uint64_t scan_due(struct tenond *t, uint64_t now_ns)
{
    if (now_ns < t->scan_ns)
        return t->scan_ns;
    tenond_scan_all(t);
    uint64_t again_ns = t->rung_ns + TNI_MANAGER_LOOK_NS;
    t->scan_ns = now_ns < again_ns ? again_ns : TNI_FOREVER;
    return t->scan_ns;
}

/* @return whether to go on */
static bool handle(struct tenond *t, uint64_t tag)
{
    uint32_t number = (uint32_t)(tag >> 32) & 0xffffff, index = (uint32_t)tag;
    switch (tag >> 56) {
    case TENOND_LISTEN:
        tenond_accept(t);
        return true;
    case TENOND_BELL:
        tni_os_bell_clear(t->bell_fd);
        take_ring(t);
        return true;
    case TENOND_CLIENT:
        tenond_client_ready(t, index);
        return true;
    case TENOND_SEAT:
        tenond_seat_ready(t, number, index);
        return true;
    case TENOND_VAULT:
        tenond_recall_ready(t);
        return true;
    default:
        return false;
    }
}

static uint64_t idle_due(const struct tenond *t)
{
    bool is_needed = t->domain_count > 0 || tenond_mirror_has_more(t);
    return is_needed ? TNI_FOREVER : t->idle_ns + IDLE_NS;
}

static uint64_t all_due(struct tenond *t, uint64_t now_ns)
{
    uint64_t scan_ns = scan_due(t, now_ns);
    uint64_t domains_ns = tenond_domains_due(t, now_ns),
             clients_ns = tenond_clients_due(t, now_ns),
             recall_ns = tenond_recall_due(t, now_ns), files_ns = tenond_collect_due(t, now_ns);
    uint64_t next_ns = TNI_MIN(TNI_MIN(domains_ns, clients_ns), TNI_MIN(recall_ns, files_ns));
    next_ns = TNI_MIN(TNI_MIN(next_ns, scan_ns), tenond_folder_due(t, now_ns));
    return TNI_MIN(next_ns, idle_due(t));
}

static bool is_over(const struct tenond *t, uint64_t now_ns)
{
    return now_ns >= idle_due(t) || (t->is_retired && t->domain_count == 0);
}

int tenond_run(int stop_fd, int *lock_fd)
{
    static struct tenond tenond; /* too large for a stack */
    struct tenond *t = &tenond;
    uint64_t tags[BATCH];
    bool goes_on = true;

    t->loop = t->listen_fd = t->bell_fd = t->mirror.fd = -1;
    t->lock_fd = *lock_fd;
    t->runtime = tni_manager_runtime();
    t->idle_ns = tni_os_now_ns();
    t->collect_ns = t->scan_ns = TNI_FOREVER;
    t->mirror.serves_successor = true; /* until the first recall has ended */
    tenond_clients_init(t);
    int status = open_all(t, stop_fd);
    while (status == 0 && goes_on) {
        uint64_t now_ns = tni_os_now_ns(), next_ns = all_due(t, now_ns);
        if (is_over(t, now_ns))
            break;
        int count = tni_os_loop_wait(t->loop, tags, BATCH, next_ns);
        if (count < 0)
            status = count;
        for (int i = 0; i < count; i++)
            goes_on &= handle(t, tags[i]);
    }
    close_all(t);
    *lock_fd = t->lock_fd;
    return status;
}
