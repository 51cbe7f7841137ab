/* SPDX-License-Identifier: Apache-2.0 */
/*
 * domains: the list of the domains that we manage, and how we leave one.
 *
 * I3  A domain whose shared data fail a check is dropped, and harms no other domain.
 * I4  A domain whose name may be given to another domain has no member and gets none: see
 *     tenond_give_up().
 * Death: survivors start another tenond, which adopts the domains and reclaims our seats.
 */
#include <stdlib.h>
#include <string.h>

#include "tenond.h"

#define TICK_NS UINT64_C(1000000000)

/* A search for files takes at most this part of our time. */
enum { FILES_PAUSE = 100 };

struct tenond_domain *tenond_find(struct tenond *t, const char *name)
{
    for (struct tenond_domain *d = t->domains; d != NULL; d = d->next)
        if ((name[0] != 0 && strncmp(tenond_name(d), name, TNI_NAME_BYTES) == 0) ||
            tni_manager_is_id(name, tenond_segment(d)->id))
            return d;
    return NULL;
}

/*
 * A process that joins with inherited descriptors takes its seat and then reads `runtime`
 * (join_descriptors() in api.c). We write `runtime` and then count the seats. Each side has a
 * fence between its two steps, so at least one side sees the other: either we count the seat,
 * or the process reads 0 and gives its seat back. If both happen, the process tries again. A
 * domain without a name holds no name back, so it may go on without us.
 *
 * Death: leaves a domain that refuses to be joined. A member, if there is one, tells the next
 * tenond of the domain (tni_manager_survive()), and that tenond writes `runtime` again.
 */
bool tenond_give_up(const struct tenond *t, const struct tenond_domain *d)
{
    _Atomic uint32_t *runtime = &tenond_segment(d)->header->runtime;
    if (tenond_name(d)[0] == 0)
        return true;
    atomic_store(runtime, 0);
    TNI_KILL_POINT("tenond_gives_up");
    atomic_thread_fence(memory_order_seq_cst); /* pairs with that in join_descriptors() */
    if (tni_process_count(tenond_segment(d)) == 0)
        return true;
    atomic_store(runtime, t->runtime);
    return false;
}

void tenond_linger(struct tenond_domain *d)
{
    if (d->empty_ns != 0)
        d->empty_ns = tni_os_now_ns();
    tenond_note_members(d);
}

/* ---- files of domains that have ended ---------------------------------------------------- */

static void log_removed(const char *path, int status, void *context)
{
    (void)context;
    if (status == 0)
        tni_log(TNI_LOG_INFO, "removed %s: its domain has ended", path);
}

void tenond_collect_files(void)
{
    if (tni_files_collect(tni_manager_living, log_removed, NULL) < 0)
        tni_log(TNI_LOG_WARNING, "the search for files of ended domains failed: %s",
                tn_error_detail());
}

uint64_t tenond_collect_due(struct tenond *t, uint64_t now_ns)
{
    if (now_ns < t->collect_ns)
        return t->collect_ns;
    uint64_t begun_ns = tni_os_now_ns();
    tenond_collect_files();
    uint64_t done_ns = tni_os_now_ns();
    t->collect_ns = done_ns + tni_pause_ns(done_ns - begun_ns, FILES_PAUSE, TICK_NS);
    return t->collect_ns;
}

/*
 * A domain may still have members when we drop it: if its data failed a check, or its seats are
 * wrong. Nothing tells us when the last of them ends, so we search for files later.
 */
static void collect_later(struct tenond *t)
{
    t->collect_ns = TNI_MIN(t->collect_ns, tni_os_now_ns() + TICK_NS);
}

/* ---- leaving ----------------------------------------------------------------------------- */

static void unlink_domain(struct tenond *t, const struct tenond_domain *d)
{
    for (struct tenond_domain **at = &t->domains; *at != NULL; at = &(*at)->next)
        if (*at == d) {
            *at = d->next;
            break;
        }
    t->domain_count--;
    if (t->domain_count == 0)
        t->idle_ns = tni_os_now_ns();
}

void tenond_drop(struct tenond *t, struct tenond_domain *d)
{
    char label[TNI_LABEL_BYTES];
    bool is_sane = tenond_makes_sense(d);
    tni_segment_label(tenond_segment(d), label);
    unlink_domain(t, d);
    tenond_unwatch_all(t, d);
    tenond_deposits_fini(t, d, !is_sane || tni_process_count(tenond_segment(d)) == 0);
    if (is_sane) {
        tni_log(TNI_LOG_INFO, "leaving domain %s", label);
        /* Without members, no process will come for what queues and tickets still name. */
        if (tni_process_count(tenond_segment(d)) == 0)
            tni_files_end_domain(tenond_segment(d));
        tni_reaper_leave(d->domain);
    } else {
        tni_log(TNI_LOG_ERROR, "dropped domain %s: a check of its shared data failed",
                label); /* I3 */
    }
    collect_later(t);
    tni_process_leave(d->domain);
    tni_process_unkeep(d->domain);
    free(d->watches);
    free(d);
}
