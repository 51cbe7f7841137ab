/* SPDX-License-Identifier: Apache-2.0 */
/*
 * domains: keeps the list of all domains of this process, and drops a parent's seats in a
 * child.
 */
#include <stdio.h>

#include "process/fork.h"

struct tn_domain *tni_domains;
static struct tni_mutex domains_lock;

void tni_domains_lock(void) { tni_mutex_lock(&domains_lock); }
void tni_domains_unlock(void) { tni_mutex_unlock(&domains_lock); }
void tni_domains_reset_lock(void) { tni_mutex_reset(&domains_lock); }

void tni_fork_note_reason(struct tn_domain *d, const char *why)
{
    snprintf(d->child_reason, sizeof d->child_reason, "%s", why);
}

void tni_fork_drop_seat(struct tn_domain *d, const char *reason)
{
    d->seat = TNI_NO_SEAT;
    d->witness = NULL; /* the kernel does not map the witness in a child */
    if (reason != NULL)
        tni_fork_note_reason(d, reason);
    tni_process_bell_close(d);
}

void tni_fork_run_child_hooks(struct tn_domain *d)
{
    for (uint32_t h = 0; h < d->hook_count; h++)
        if (d->hooks[h].child != NULL)
            d->hooks[h].child(d);
}

void tni_fork_unlock_rooms(struct tn_domain *d, bool in_child)
{
    for (uint32_t h = 0; h < d->hook_count; h++)
        if (d->hooks[h].unlock != NULL)
            d->hooks[h].unlock(d, in_child);
}

/*
 * The threads of the parent do not exist in this child, and so cannot end their operations. So
 * all locks and thread records are reset.
 */
void tni_process_drop_parent_seats(void)
{
    tni_domains_reset_lock();
    tni_os_mark();
    for (struct tn_domain *d = tni_domains; d != NULL; d = d->next) {
        tni_fork_drop_seat(d, "_Fork() and clone() run no handlers, so it could take none");
        for (uint32_t t = 0; t < TNI_THREADS; t++) {
            atomic_store(&d->threads[t].aside, TNI_ASIDE_NOT);
            tni_thread_leave(&d->threads[t]);
        }
        tni_fork_unlock_rooms(d, true);
        tni_fork_run_child_hooks(d);
    }
}

void tni_domains_drop_if_copied(void)
{
    if (tni_domains != NULL && tni_process_is_copy(tni_domains))
        tni_process_drop_parent_seats();
}

void tni_process_for_each(void (*each)(struct tn_domain *domain))
{
    tni_domains_drop_if_copied();
    tni_domains_lock();
    for (struct tn_domain *d = tni_domains; d != NULL; d = d->next)
        each(d);
    tni_domains_unlock();
}
