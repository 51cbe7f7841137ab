/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adopt: begin to manage a domain, which a member registers or a search finds.
 *
 * Noun: manager (the tenond that manages a domain; the domain's header names it).
 * I5  No tenond becomes the manager in place of another tenond that lives and has the lock of
 *     its folder, whichever process asks for it. If two tenonds become the manager of one
 *     domain at the same moment, folder.c ends that.
 * Death: survivors start another tenond, which searches for domains.
 */
#include <stdlib.h>
#include <string.h>

#include "tenond.h"

#define MS_NS          UINT64_C(1000000)
#define TICK_NS        (1000 * MS_NS)
#define RETRY_LEAST_NS (TENOND_RETRY_LEAST_MS * MS_NS)
#define ADOPT_NS       (100 * MS_NS)

/* A repeated search for domains that we failed to take over takes this part of our time. */
enum { MISSED_PAUSE = 100 };

/* The domain of this segment, if we manage it already. */
static struct tenond_domain *find_same(struct tenond *t, const struct tni_segment *s)
{
    for (struct tenond_domain *d = t->domains; d != NULL; d = d->next)
        if (tenond_segment(d)->control_inode == s->control_inode &&
            memcmp(tenond_segment(d)->id, s->id, sizeof s->id) == 0)
            return d;
    return NULL;
}

static struct tenond_domain *find_by_id(struct tenond *t, const char *id)
{
    struct tenond_domain *d = t->domains;
    while (d != NULL && !tni_manager_is_id(id, tenond_segment(d)->id))
        d = d->next;
    return d;
}

struct tenond_domain *tenond_find_id(struct tenond *t, const char *id)
{
    struct tenond_domain *found = find_by_id(t, id);
    uint64_t now_ns = tni_os_now_ns();
    if (found != NULL || now_ns < t->adopt_ns)
        return found;
    t->adopt_ns = now_ns + ADOPT_NS; /* a search through all processes takes long */
    tenond_adopt(t);
    return find_by_id(t, id);
}

/* A domain without live members must not hold its name back from a new domain. */
static int make_room(struct tenond *t, const char *name)
{
    struct tenond_domain *other = name[0] != 0 ? tenond_find(t, name) : NULL;
    if (other == NULL)
        return 0;
    tni_reaper_reclaim_all(other->domain);
    if (tni_process_count(tenond_segment(other)) != 0 ||
        tni_store_has_kept(tenond_segment(other)) || !tenond_give_up(t, other))
        return tni_fail(TN_ERR_EXISTS, "a domain named '%s' lives", name);
    tenond_drop(t, other);
    return 0;
}

/* The bell number comes first, so that a member that reads who the manager is can ring. */
void tenond_become_manager(const struct tenond *t, struct tenond_domain *d)
{
    struct tn_domain *domain = d->domain;
    struct tni_header *h = domain->segment.header;
    atomic_store(&domain->me->bell_number, t->bell_number);
    TNI_KILL_POINT("tenond_bell_set");
    atomic_store(&h->runtime, t->runtime);
    atomic_fetch_add(&h->manager_starts, 1);
    atomic_store(&h->manager, domain->who);
    /* A member with a pollable descriptor connects to us once its bell rings. */
    for (uint32_t seat = 0; seat < domain->segment.geometry.seats; seat++)
        if (seat != domain->seat &&
            atomic_load(&tni_seat_at(&domain->segment, seat)->bell_number) != 0)
            tni_process_bell_ring(&domain->segment, seat);
    TNI_KILL_POINT("tenond_is_manager");
}

static int take_seat(struct tenond *t, struct tni_segment *segment)
{
    struct tn_domain *domain;
    struct tenond_domain *d = calloc(1, sizeof *d);
    struct tenond_watch *watches = calloc(segment->geometry.seats, sizeof *watches);
    int status =
        d == NULL || watches == NULL ? tni_fail(TN_ERR_NO_MEMORY, "no private memory") : 0;
    if (status == 0)
        status = tni_process_join(segment, TNI_SEAT_MANAGER, &domain);
    if (status != 0) {
        free(watches);
        free(d);
        return status;
    }
    tni_alloc_init(domain);
    tni_store_set_kinds(domain);
    for (uint32_t i = 0; i < segment->geometry.seats; i++)
        watches[i].fd = -1;
    uint64_t now_ns = tni_os_now_ns();
    *d = (struct tenond_domain){.domain = domain,
                                .number = ++t->domain_counter & 0xffffff,
                                .watches = watches,
                                .tick_ns = now_ns + TICK_NS,
                                .retry_ns = TNI_FOREVER,
                                .pause_ns = RETRY_LEAST_NS,
                                .patient_pause_ns = RETRY_LEAST_NS,
                                .poll_ns = TNI_FOREVER,
                                .expire_ns = now_ns,
                                .deposits = {.sweep_ns = TNI_FOREVER},
                                .next = t->domains};
    memcpy(d->id, tenond_segment(d)->id, sizeof d->id);
    t->domains = d;
    t->domain_count++;
    tenond_become_manager(t, d);
    tenond_mirror_adopted(t);
    char label[TNI_LABEL_BYTES];
    tni_log(TNI_LOG_INFO, "manages domain %s from now on, in seat %u",
            tni_segment_label(tenond_segment(d), label), domain->seat);
    tenond_scan(t, d);
    tenond_linger(d);
    return 0;
}

/* End as if killed: survivors do our work, and start another tenond. */
static void die(void)
{
    tni_log(TNI_LOG_ERROR, "a part of a domain cannot be mapped: %s", tn_error_detail());
    tni_os_exit(1);
}

/* @param level  at which a failure is logged */
static int add(struct tenond *t, int control_fd, int arena_fd, int level)
{
    struct tni_segment segment;
    int status = tni_segment_attach_sparse(control_fd, arena_fd, die, &segment);
    if (status != 0) {
        tni_log(level, "the offered descriptors are not those of a domain: %s",
                tn_error_detail());
        tni_os_close(control_fd);
        tni_os_close(arena_fd);
        return status;
    }
    const char *name = segment.name;
    if (find_same(t, &segment) != NULL) {
        tni_segment_detach(&segment);
        return 0;
    }
    if (tni_manager_has_other(&segment)) /* I5 */
        status = tni_fail(TN_ERR_MANAGER, "another tenond manages it");
    if (status == 0 && name[0] != 0)
        status = tni_check_name("domain", name, TNI_NAME_BYTES - 1);
    if (status == 0)
        status = make_room(t, name);
    if (status == 0)
        status = take_seat(t, &segment);
    if (status != 0) {
        tni_log(level, "domain '%s' cannot be managed: %s", name, tn_error_detail());
        tni_segment_detach(&segment);
    }
    return status;
}

int tenond_add(struct tenond *t, int control_fd, int arena_fd)
{
    return add(t, control_fd, arena_fd, TNI_LOG_WARNING);
}

/* ---- the search -------------------------------------------------------------------------- */

/* A search is repeated until all domains are taken over; only the first failure is a warning.
 */
static int missed_level(const struct tenond *t)
{
    return t->has_missed ? TNI_LOG_DEBUG : TNI_LOG_WARNING;
}

static bool is_known(const struct tenond *t, uint64_t control_inode)
{
    for (const struct tenond_domain *d = t->domains; d != NULL; d = d->next)
        if (tenond_segment(d)->control_inode == control_inode)
            return true;
    /* Every member has the segment open, so the search finds a domain once for each. */
    for (uint32_t i = 0; i < t->missed_count; i++)
        if (t->missed[i] == control_inode)
            return true;
    return false;
}

static int adopt_found(const struct tni_found *found, void *context)
{
    struct tenond *t = context;
    int control_fd, arena_fd;

    /* A domain of another folder or version belongs to another tenond. */
    if (found->runtime != t->runtime || found->layout_version != TNI_LAYOUT_VERSION ||
        is_known(t, found->control_inode))
        return 0;
    int status = tni_manager_open_found(found, false, &control_fd, &arena_fd);
    if (status == 0)
        status = add(t, control_fd, arena_fd, missed_level(t));
    /* FULL: our predecessor may still have a seat, until a member reclaims it. */
    bool is_missed =
        status == TN_ERR_SYSTEM || status == TN_ERR_NO_MEMORY || status == TN_ERR_FULL;
    if (is_missed)
        t->missed_ns = 0;
    if (is_missed && t->missed_count < TENOND_MISSED)
        t->missed[t->missed_count++] = found->control_inode;
    return 0;
}

/*
 * A search that failed, for lack of descriptors for example, is repeated: no other tenond comes
 * for a domain of our folder while we have the lock.
 */
void tenond_adopt(struct tenond *t)
{
    uint64_t begun_ns = tni_os_now_ns();
    bool is_again = t->has_missed;
    t->missed_ns = TNI_FOREVER;
    t->missed_count = 0;
    if (t->is_retired)
        return;
    int status = tni_manager_search(adopt_found, t);
    if (status < 0)
        tni_log(missed_level(t), "the search for domains failed: %s", tn_error_detail());
    uint64_t done_ns = tni_os_now_ns(), pause_ns = TICK_NS;
    t->has_missed = status < 0 || t->missed_ns == 0;
    /* The first retry comes soon, because a tenond without a domain ends after 2 seconds. */
    if (is_again)
        pause_ns = tni_pause_ns(done_ns - begun_ns, MISSED_PAUSE, TICK_NS);
    if (t->has_missed)
        t->missed_ns = done_ns + pause_ns;
}
