/* SPDX-License-Identifier: Apache-2.0 */
/*
 * due: do what is due in each domain, and compute when something is due next.
 *
 * Nouns: tick (a check of everything, once a second, whether or not a member rang), retry
 * (a scan that repeats what failed, after a pause that doubles).
 * Death: our successor, or a member that waits, does what was due.
 */
#include "tenond.h"

#define MS_NS          UINT64_C(1000000)
#define TICK_NS        (1000 * MS_NS)
#define LINGER_NS      (1000 * MS_NS)
#define RETRY_LEAST_NS (TENOND_RETRY_LEAST_MS * MS_NS)
#define RETRY_MOST_NS  (TENOND_RETRY_MOST_MS * MS_NS)
#define POLL_NS        (TENOND_POLL_MS * MS_NS)

/* A search for files, or a poll of seats, takes at most this part of our time. */
enum { FILES_PAUSE = 100, POLL_PAUSE = 100 };

static void log_removed(const char *path, int status, void *context)
{
    (void)context;
    if (status == 0)
        tni_log(TNI_LOG_INFO, "removed %s: its domain let it go, and no process holds it",
                path);
}

/*
 * Remove files whose storages ended while other processes held them. If such a process is
 * killed, nothing rings the bell of tenond, so tenond searches.
 */
static void remove_let_go(struct tenond_domain *d, uint64_t now_ns)
{
    if (now_ns < d->files_ns)
        return;
    int status = tni_files_let_go(tenond_segment(d), false, log_removed, NULL);
    if (status < 0)
        tni_log(TNI_LOG_DEBUG, "the search for files of domain '%s' failed: %s", tenond_name(d),
                tn_error_detail());
    uint64_t done_ns = tni_os_now_ns();
    d->files_ns = done_ns + tni_pause_ns(done_ns - now_ns, FILES_PAUSE, 0);
}

static void tick(struct tenond *t, struct tenond_domain *d, uint64_t now_ns)
{
    remove_let_go(d, tni_os_now_ns());
    tni_alloc_trim_idle(d->domain);
    tni_ref_trim_idle_slabs(d->domain);
    tenond_scan(t, d);
    tenond_poll_seats(d, true);
    d->expire_ns = now_ns; /* no process rings that exports a handle or puts a value */
    d->tick_ns = now_ns + TICK_NS;
}

static void retry(struct tenond *t, struct tenond_domain *d)
{
    d->retry_ns = TNI_FOREVER;
    d->pause_ns = TNI_MIN(d->pause_ns * 2, RETRY_MOST_NS);
    tenond_scan(t, d);
    tenond_poll_seats(d, false);
    if (d->retry_ns == TNI_FOREVER)
        d->pause_ns = RETRY_LEAST_NS;
}

static void poll_seats(struct tenond_domain *d)
{
    uint64_t begun_ns = tni_os_now_ns();
    bool has_unwatched = tenond_poll_seats(d, false);
    uint64_t done_ns = tni_os_now_ns();
    uint64_t pause_ns = tni_pause_ns(done_ns - begun_ns, POLL_PAUSE, POLL_NS);
    d->poll_ns = has_unwatched ? done_ns + pause_ns : TNI_FOREVER;
}

/* @return the time when something is due next */
static uint64_t do_due(struct tenond *t, struct tenond_domain *d, uint64_t now_ns)
{
    if (now_ns >= d->tick_ns)
        tick(t, d, now_ns);
    if (now_ns >= d->retry_ns)
        retry(t, d);
    if (now_ns >= d->poll_ns)
        poll_seats(d);
    if (now_ns >= d->expire_ns) {
        uint64_t next_ns = tni_ticket_expire(d->domain, now_ns);
        tni_store_expire_due(d->domain);
        next_ns = TNI_MIN(next_ns, tni_store_next_ns(d->domain));
        tenond_sweep_soon(d);
        d->expire_ns = TNI_MAX(next_ns, now_ns + RETRY_LEAST_NS);
    }
    uint64_t swept_ns = tenond_sweep_due(t, d, now_ns);
    uint64_t next_ns =
        TNI_MIN(TNI_MIN(d->tick_ns, swept_ns), TNI_MIN(d->retry_ns, d->expire_ns));
    next_ns = TNI_MIN(next_ns, d->poll_ns);
    return d->empty_ns != 0 ? TNI_MIN(next_ns, d->empty_ns + LINGER_NS) : next_ns;
}

uint64_t tenond_domains_due(struct tenond *t, uint64_t now_ns)
{
    if (now_ns >= t->missed_ns)
        tenond_adopt(t);
    uint64_t next_ns = t->missed_ns;
    for (struct tenond_domain *d = t->domains, *after; d != NULL; d = after) {
        after = d->next;
        if (tenond_makes_sense(d)) {
            uint64_t due_ns = do_due(t, d, now_ns);
            next_ns = TNI_MIN(next_ns, due_ns);
            tenond_note_members(d);
        }
        bool is_over = d->empty_ns != 0 && now_ns >= d->empty_ns + LINGER_NS;
        if (!tenond_makes_sense(d) || (is_over && tenond_give_up(t, d))) {
            tenond_drop(t, d);
            tenond_mirror_left(t);
        }
    }
    return next_ns;
}
