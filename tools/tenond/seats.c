/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seats: watch the processes in the seats of each domain, and reclaim those that died.
 *
 * Nouns: watch (what we know of the process in a seat, with a process descriptor where that can
 * be had), scan (a comparison of every seat with its watch), poll (a check of the witnesses of
 * the seats without a descriptor: a process in another pid namespace has none here).
 * I1  A watch can be rebuilt from the domain, and each scan compares it with the domain: a
 *     survivor may have reclaimed the seat, and another process may have taken it.
 * I2  A process descriptor that was readable is removed from the loop, so the loop cannot spin.
 * Death: survivors reclaim dead processes, and start another tenond.
 */
#include "tenond.h"

#define MS_NS          UINT64_C(1000000)
#define RETRY_LEAST_NS (TENOND_RETRY_LEAST_MS * MS_NS)
#define RETRY_MOST_NS  (TENOND_RETRY_MOST_MS * MS_NS)
#define POLL_NS        (TENOND_POLL_MS * MS_NS)

static void unwatch(struct tenond *t, struct tenond_watch *watch)
{
    if (watch->fd >= 0) {
        tni_os_loop_remove(t->loop, watch->fd);
        tni_os_close(watch->fd);
    }
    watch->fd = -1;
}

void tenond_unwatch_all(struct tenond *t, struct tenond_domain *d)
{
    for (uint32_t seat = 0; seat < tenond_segment(d)->geometry.seats; seat++)
        unwatch(t, &d->watches[seat]);
}

static void retry_soon(struct tenond_domain *d)
{
    uint64_t at_ns = tni_os_now_ns() + d->pause_ns;
    d->retry_ns = TNI_MIN(d->retry_ns, at_ns);
}

static void reclaim(struct tenond_domain *d, uint32_t seat)
{
    int status = tni_reaper_reclaim(d->domain, seat);
    if (status == 1) {
        d->pause_ns = RETRY_LEAST_NS;
        tenond_sweep_soon(d);
    }
    if (status == TN_ERR_TIMED_OUT) {
        /* The thread that was waited for may be an idle thread record of our own. */
        tni_process_clear_idle(d->domain);
        retry_soon(d);
    }
    if (status == TN_ERR_CORRUPT) {
        d->is_broken = true;
        char label[TNI_LABEL_BYTES];
        tni_log(TNI_LOG_ERROR, "domain %s: %s", tni_segment_label(tenond_segment(d), label),
                tn_error_detail());
    }
}

static bool is_same(const struct tenond_watch *watch, const struct tni_seat *entry,
                    uint64_t word)
{
    return watch->is_known && watch->incarnation == tni_seat_incarnation(word) &&
           watch->pid == atomic_load(&entry->pid) && watch->start_time == entry->start_time;
}

/*
 * I2. A pid of another pid namespace is the number of another process here, so the seat gets no
 * descriptor and is polled.
 */
static void watch_seat(struct tenond *t, struct tenond_domain *d, uint32_t seat, uint64_t word)
{
    const struct tni_seat *entry = tni_seat_at(tenond_segment(d), seat);
    struct tenond_watch *watch = &d->watches[seat];
    int fd;

    unwatch(t, watch);
    *watch = (struct tenond_watch){.fd = -1,
                                   .pid = atomic_load(&entry->pid),
                                   .incarnation = tni_seat_incarnation(word),
                                   .start_time = entry->start_time,
                                   .is_known = true};
    if (watch->pid == 0) {
        watch->is_known = false; /* the process is joining or leaving at this moment */
        retry_soon(d);
    } else if (tni_os_has_pid_space(TNI_LOOK(entry->pid_space)) &&
               tni_os_process_open(watch->pid, &fd) == 0) {
        if (tni_os_poll(&fd, 1, 0) == TN_ERR_TIMED_OUT &&
            tni_os_loop_add(t->loop, fd, tenond_tag(TENOND_SEAT, d->number, seat)) == 0)
            watch->fd = fd;
        else
            tni_os_close(fd);
    }
    if (watch->fd < 0)
        d->poll_ns = TNI_MIN(d->poll_ns, tni_os_now_ns() + POLL_NS);
    /* The process may have ended before it was opened, and another may have its number. */
    reclaim(d, seat);
}

static void check_seat(struct tenond *t, struct tenond_domain *d, uint32_t seat)
{
    const struct tni_seat *entry = tni_seat_at(tenond_segment(d), seat);
    struct tenond_watch *watch = &d->watches[seat];
    uint64_t word = atomic_load(&entry->word);

    switch (tni_seat_state(word)) {
    case TNI_SEAT_FREE:
        unwatch(t, watch);
        watch->is_known = false;
        return;
    case TNI_SEAT_REAPING:
        unwatch(t, watch);
        reclaim(d, seat);
        /* If a survivor is reclaiming the seat, it may die or give up. */
        if (tni_seat_state(atomic_load(&entry->word)) == TNI_SEAT_REAPING)
            retry_soon(d);
        return;
    case TNI_SEAT_JOINING:
    case TNI_SEAT_ALIVE:
    case TNI_SEAT_LEAVING:
        if (!is_same(watch, entry, word))
            watch_seat(t, d, seat, word);
        return;
    default:
        d->is_broken = true;
        return;
    }
}

/*
 * A recount waits for a thread that is using a block, but not every time: that thread may be
 * stopped, and the other domains need us.
 */
static void recount(struct tenond_domain *d)
{
    bool is_patient = tni_os_now_ns() >= d->patient_ns;
    if (tni_reaper_recount(d->domain, is_patient ? TNI_FOREVER : 0) == 0) {
        d->patient_ns = 0;
        d->patient_pause_ns = RETRY_LEAST_NS;
        return;
    }
    /* The thread that was waited for may be an idle thread record of our own. */
    tni_process_clear_idle(d->domain);
    if (is_patient) {
        d->patient_ns = tni_os_now_ns() + d->patient_pause_ns;
        d->patient_pause_ns = TNI_MIN(d->patient_pause_ns * 2, RETRY_MOST_NS);
    }
    d->retry_ns = TNI_MIN(d->retry_ns, d->patient_ns);
}

/* Our own seat: while we live, no other process changes it. */
static bool has_our_seat(const struct tenond_domain *d)
{
    const struct tn_domain *domain = d->domain;
    return atomic_load(&domain->me->word) == tni_process_word(domain) &&
           (atomic_load(&domain->me->flags) & TNI_SEAT_MANAGER) != 0;
}

bool tenond_makes_sense(const struct tenond_domain *d)
{
    const struct tni_segment *s = tenond_segment(d);
    const struct tni_header *h = s->header;
    return !d->is_broken && has_our_seat(d) && h->magic == TNI_MAGIC &&
           h->seats == s->geometry.seats && h->blocks == s->geometry.blocks &&
           h->objects == s->geometry.objects && h->tickets == s->geometry.tickets &&
           h->arena_inode == s->arena_inode && memchr(h->name, 0, sizeof h->name) != NULL;
}

void tenond_note_members(struct tenond_domain *d)
{
    if (tni_process_count(tenond_segment(d)) != 0 || tni_store_has_kept(tenond_segment(d)))
        d->empty_ns = 0;
    else if (d->empty_ns == 0)
        d->empty_ns = tni_os_now_ns();
}

void tenond_scan(struct tenond *t, struct tenond_domain *d)
{
    if (!tenond_makes_sense(d))
        return; /* tenond_domains_due() drops the domain */
    for (uint32_t seat = 0; seat < tenond_segment(d)->geometry.seats; seat++) {
        /*
         * A process that died while it took a seat may have left that seat above the limit,
         * but no free seat lies below such a seat.
         */
        if (seat >= tni_seat_limit(tenond_segment(d)) &&
            tni_seat_state(atomic_load(&tni_seat_at(tenond_segment(d), seat)->word)) ==
                TNI_SEAT_FREE)
            break;
        if (seat != d->domain->seat)
            check_seat(t, d, seat);
    }
    recount(d);
    tenond_note_members(d);
}

void tenond_scan_all(struct tenond *t)
{
    for (struct tenond_domain *d = t->domains; d != NULL; d = d->next) {
        tenond_scan(t, d);
        tenond_sweep_soon(d);
    }
}

bool tenond_poll_seats(struct tenond_domain *d, bool is_tick)
{
    bool has_unwatched = false;
    for (uint32_t seat = 0; seat < tenond_segment(d)->geometry.seats; seat++) {
        const struct tenond_watch *watch = &d->watches[seat];
        if (watch->is_known && (watch->fd < 0 || is_tick))
            reclaim(d, seat);
        has_unwatched |= watch->is_known && watch->fd < 0;
    }
    return has_unwatched;
}

void tenond_seat_ready(struct tenond *t, uint32_t number, uint32_t seat)
{
    struct tenond_domain *d = t->domains;
    while (d != NULL && d->number != number)
        d = d->next;
    if (d == NULL || seat >= tenond_segment(d)->geometry.seats)
        return;
    int fd = d->watches[seat].fd;
    /* The seat may have got another descriptor since the loop returned this tag. */
    if (fd < 0 || tni_os_poll(&fd, 1, 0) != 0)
        return;
    reclaim(d, seat);
    unwatch(t, &d->watches[seat]);
    /* The recount of another seat may have waited for this process, or this process reclaimed.
     */
    tenond_poll_seats(d, false);
    tenond_scan(t, d);
}
