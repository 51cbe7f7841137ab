/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bell: makes the descriptor that a process polls, and makes the descriptors of others
 * readable.
 *
 * Nouns: bell (a socket that other processes of the same network namespace ring by its number),
 * watch (a descriptor that becomes readable when any process writes to the control segment).
 * I1  A ringer tries the bell first. It writes to the control segment only if the bell's number
 *     does not exist in the ringer's network namespace. Such a write wakes up every member that
 *     has a watch; the members that the ringer did not mean find nothing in their queues.
 * I2  The kernel removes bell and watch with their last descriptor. So a dead process leaves
 *     only a number, and a ring of that number has no effect. A ringer that is killed before it
 *     has rung leaves bell_fd_armed set, so the next ringer rings: see ring_descriptor() in the
 *     room object.
 * I3  A polling process sleeps until another process rings. If all members poll, only tenond
 *     reclaims dead processes and rings for them. So the descriptor also becomes readable when
 *     tenond ends. The process that then clears the descriptor starts another tenond. That
 *     tenond rings all members, and their descriptors then follow it. It may be killed before
 *     it rings, so a timer makes the descriptor readable again and again while no tenond runs.
 */
#include <stddef.h>

#include <tenon/domain.h>

#include "process/process.h"

enum { MAKING = -2, NONE = -1 };
/* While no tenond runs, a polling process checks again after a time between these two. */
#define LOOK_AGAIN_NS UINT64_C(200000000)
#define LOOK_MOST_NS  UINT64_C(1000000000)

enum { TAG_BELL, TAG_WATCH, TAG_TENOND, TAG_COUNT };

static int make_bell(uint64_t *number, int *ret_fd)
{
    int status;
    do {
        if ((status = tni_os_random(number, sizeof *number)) == 0) {
            *number = (*number & ~TNI_BELL_WATCHES) | 1;
            status = tni_os_bell_create(*number, ret_fd);
        }
    } while (status == TN_ERR_EXISTS); /* try another number */
    return status;
}

static void close_parts(struct tn_domain *d)
{
    tni_os_close(d->bell.fd);
    tni_os_close(d->bell.watch_fd);
    tni_os_close(atomic_exchange(&d->bell.tenond_fd, NONE));
    d->bell.is_there = false;
}

/* Make one epoll descriptor over the bell and the watch, or over the watch alone. */
static int join_parts(struct tn_domain *d, int *ret_fd)
{
    int loop;
    int status = tni_os_loop_create(&loop);
    if (status != 0)
        return status;
    if ((d->bell.fd >= 0 && (status = tni_os_loop_add(loop, d->bell.fd, TAG_BELL)) != 0) ||
        (d->bell.watch_fd >= 0 &&
         (status = tni_os_loop_add(loop, d->bell.watch_fd, TAG_WATCH)) != 0)) {
        tni_os_close(loop);
        return status;
    }
    d->bell.is_there = true;
    *ret_fd = loop;
    return 0;
}

/*
 * Open a timer for the next check whether a tenond runs. The timer is never due at once, so
 * that a process does not spin where no tenond can be started. survive_ns may lie minutes ahead
 * if it was set while a tenond ran; the timer is due after LOOK_MOST_NS at the latest.
 */
static int open_timer(struct tn_domain *d)
{
    uint64_t now_ns = tni_os_now_ns();
    uint64_t due_ns = TNI_MAX(now_ns + LOOK_AGAIN_NS, atomic_load(&d->survive_ns));
    int fd;
    due_ns = TNI_MIN(due_ns, now_ns + LOOK_MOST_NS);
    if ((d->segment.flags & TN_DOMAIN_NO_MANAGER) != 0 || tni_os_timer_create(due_ns, &fd) != 0)
        return NONE;
    return fd;
}

/*
 * Open a descriptor that becomes readable once this process must check for a tenond (I3).
 * @return a process descriptor of the tenond that runs; a timer if none runs; NONE if the
 * kernel has no such descriptors, or if the tenond is in another pid namespace
 */
static int open_tenond(struct tn_domain *d)
{
    const struct tni_segment *s = &d->segment;
    uint64_t manager = atomic_load(&s->header->manager);
    uint32_t seat = tni_who_seat(manager);
    int fd = NONE;
    if (manager == 0 || !tni_geometry_has_seat(&s->geometry, seat))
        return open_timer(d);
    if (tni_process_is_here(s, seat) &&
        tni_os_process_open(atomic_load(&tni_seat_at(s, seat)->pid), &fd) != 0)
        fd = NONE;
    /* Check after opening: if tenond still runs, its pid was not reused before the opening. */
    if (tni_process_who_runs(s, manager))
        return fd;
    tni_os_close(fd);
    return open_timer(d);
}

static void follow_tenond(struct tn_domain *d, int loop)
{
    int fd = NONE;
    if (d->is_manager || !atomic_compare_exchange_strong(&d->bell.tenond_fd, &fd, MAKING))
        return;
    fd = open_tenond(d);
    if (fd >= 0 && tni_os_loop_add(loop, fd, TAG_TENOND) != 0) {
        tni_os_close(fd);
        fd = NONE;
    }
    atomic_store(&d->bell.tenond_fd, fd);
}

bool tni_process_bell_lost_tenond(struct tn_domain *d)
{
    uint64_t tags[TAG_COUNT];
    int loop = atomic_load(&d->poll_fd), fd = NONE;
    if (loop < 0 || !d->bell.is_there || (fd = atomic_load(&d->bell.tenond_fd)) < 0)
        return false;
    bool is_lost = false;
    for (int n = tni_os_loop_wait(loop, tags, TAG_COUNT, 0); n > 0; n--)
        is_lost |= tags[n - 1] == TAG_TENOND;
    if (!is_lost || !atomic_compare_exchange_strong(&d->bell.tenond_fd, &fd, NONE))
        return false;
    tni_os_loop_remove(loop, fd);
    tni_os_close(fd);
    return true;
}

static int make(struct tn_domain *d, uint64_t *ret_number, int *ret_fd)
{
    d->bell.fd = d->bell.watch_fd = NONE;
    atomic_store(&d->bell.tenond_fd, NONE);
    int status = make_bell(ret_number, &d->bell.fd);
    int watched = tni_os_watch_create(d->segment.control_fd, &d->bell.watch_fd);
    if (status != 0 && watched != 0)
        return status;
    if (status != 0)
        *ret_number = 1; /* a number that no bell has */
    if (watched == 0 && join_parts(d, ret_fd) == 0) {
        follow_tenond(d, *ret_fd);
        *ret_number |= TNI_BELL_WATCHES;
        return 0;
    }
    tni_log(TNI_LOG_INFO,
            "members in other network namespaces cannot ring this process's bell: %s",
            tn_error_detail());
    tni_os_close(d->bell.watch_fd);
    *ret_fd = d->bell.fd;
    return status;
}

int tni_process_bell_open(struct tn_domain *d, int *ret_fd)
{
    for (uint32_t tries = 0;; tries++) {
        int fd = NONE;
        if (atomic_compare_exchange_strong(&d->poll_fd, &fd, MAKING))
            break;
        if (fd >= 0) {
            *ret_fd = fd;
            return 0;
        }
        tni_os_back_off(tries); /* another thread is making the descriptor */
    }
    uint64_t number;
    int fd = NONE;
    int status = make(d, &number, &fd);
    if (status == 0) {
        atomic_store(&d->me->bell_number, number);
        TNI_KILL_POINT("bell_named");
        *ret_fd = fd;
    }
    atomic_store(&d->poll_fd, status == 0 ? fd : NONE);
    return status;
}

void tni_process_bell_clear(struct tn_domain *d)
{
    int fd = atomic_load(&d->poll_fd);
    if (fd >= 0 && !d->bell.is_there) {
        tni_os_bell_clear(fd);
    } else if (fd >= 0) {
        if (d->bell.fd >= 0)
            tni_os_bell_clear(d->bell.fd);
        tni_os_watch_clear(d->bell.watch_fd);
        follow_tenond(d, fd);
    }
}

void tni_process_bell_close(struct tn_domain *d)
{
    int fd = atomic_exchange(&d->poll_fd, NONE);
    if (fd >= 0)
        tni_os_close(fd);
    if (d->bell.is_there)
        close_parts(d);
}

bool tni_process_bell_ring(const struct tni_segment *s, uint32_t seat)
{
    uint64_t number = atomic_load(&tni_seat_at(s, seat)->bell_number);
    if (tni_os_bell_ring(number & ~TNI_BELL_WATCHES))
        return true;
    if ((number & TNI_BELL_WATCHES) == 0 || !tni_segment_has_control(s))
        return false;
    TNI_KILL_POINT("watch_rings");
    return tni_os_watch_ring(s->control_fd, offsetof(struct tni_header, ring)) == 0;
}
