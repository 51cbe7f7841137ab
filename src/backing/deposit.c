/* SPDX-License-Identifier: Apache-2.0 */
/*
 * deposit: gives tenond copies of descriptors that this process keeps: before this process
 * names a storage to others, before it leaves the domain, and when a new tenond runs. See
 * table.c, I4 and I6.
 */
#include "backing/mapping.h"

#define HAND_OVER_NS UINT64_C(5000000000)

/* Whether this process has the descriptors of a mapping's object, or can get them. */
static bool has_descriptors(const struct tni_mapping *m)
{
    return m->is_in_pieces || tni_mapping_has_descriptor(m);
}

/*
 * Give tenond copies of a mapping's descriptors. @return 0, also if this process has none; or
 * an error of tni_depot.put() or tni_foreign_export_again()
 * @param ret_tenond_failed  whether tenond took no descriptors, so that it would take none of
 *                           other mappings either; may be NULL
 */
static int deposit(struct tn_domain *d, struct tni_mapping *m, bool *ret_tenond_failed)
{
    int exported[TNI_PIECES];
    uint32_t count = 1;
    if (ret_tenond_failed != NULL)
        *ret_tenond_failed = false;
    if (!has_descriptors(m))
        return 0;
    int status = m->is_in_pieces ? tni_foreign_export_again(d, m, exported, &count) : 0;
    if (status != 0) {
        m->is_deposited = false; /* it is tried again before others get the storage */
        return status;
    }
    status = tni_backing_part(d)->depot->put(d, tni_block_make(TNI_BACKING_CLASS, m->index),
                                             m->generation, m->is_in_pieces ? exported : &m->fd,
                                             count);
    for (uint32_t i = 0; m->is_in_pieces && i < count; i++)
        tni_os_close(exported[i]);
    m->is_deposited = status == 0;
    if (ret_tenond_failed != NULL)
        *ret_tenond_failed = status != 0 && status != TN_ERR_STALE;
    return status;
}

void tni_backing_ensure_deposited(struct tn_domain *d, struct tni_mapping *m)
{
    if (m->path != NULL || tni_backing_part(d)->depot == NULL)
        return;
    tni_backing_part(d)->depot->catch_up(d);
    if (m->is_deposited)
        return;
    tni_mappings_lock(d);
    /* Ask even a tenond that did not answer before: this is the last moment to do so. */
    tni_backing_part(d)->depot_connection.pause_ns = 0;
    if (!m->is_deposited && deposit(d, m, NULL) != 0)
        tni_log(TNI_LOG_WARNING, "tenond has no copy of a descriptor: %s", tn_error_detail());
    tni_mappings_unlock(d);
}

/* ---- before this process leaves ---------------------------------------------------------- */

struct hand_over {
    bool again;       /* give the descriptors that a former tenond had, too */
    bool is_silent;   /* tenond did not answer: retry */
    uint32_t missing; /* storages that others name, but whose descriptor tenond does not have */
};

static void hand_over_one(struct tn_domain *d, struct tni_mapping *m, struct hand_over *h)
{
    if (m == NULL || (m->fd < 0 && !m->is_in_pieces) || (m->is_deposited && !h->again) ||
        !tni_mapping_is_named_elsewhere(d, m))
        return;
    int status = h->is_silent ? TN_ERR_TIMED_OUT : deposit(d, m, NULL);
    h->is_silent |= status == TN_ERR_TIMED_OUT;
    h->missing += status != 0 && status != TN_ERR_STALE;
}

/* Whether a mapping of this process may have descriptors. */
static bool has_any(struct tn_domain *d)
{
    return tni_backing_part(d)->kept_fds > 0 || tni_backing_part(d)->has_pieces;
}

static struct hand_over hand_over_all(struct tn_domain *d, bool again)
{
    struct hand_over h = {.again = again};
    for (struct tni_mapping *m = tni_backing_part(d)->parked; m != NULL; m = m->next)
        hand_over_one(d, m, &h);
    for (uint32_t i = 0;
         tni_backing_part(d)->mappings != NULL && i < tni_backing_part(d)->mappings_limit; i++)
        hand_over_one(d, tni_backing_part(d)->mappings[i], &h);
    return h;
}

void tni_backing_hand_over(struct tn_domain *d)
{
    if (tni_backing_part(d)->depot == NULL)
        return;
    uint64_t deadline_ns = tni_os_now_ns() + HAND_OVER_NS;
    struct hand_over h = {0};
    tni_mappings_lock(d);
    tni_backing_part(d)->depot_connection.pause_ns = 0;
    if (has_any(d))
        h = hand_over_all(d, !tni_backing_part(d)->depot->has_all(d));
    while (h.is_silent && tni_os_now_ns() < deadline_ns) {
        tni_backing_part(d)->depot_connection.pause_ns = 0;
        h = hand_over_all(d, false); /* retry: descriptors that failed are not marked */
    }
    tni_mappings_unlock(d);
    if (h.missing > 0)
        tni_log(TNI_LOG_ERROR, "tenond has no descriptor of %u storages that others name: %s",
                h.missing, tn_error_detail());
}

/* ---- a new tenond ------------------------------------------------------------------------ */

/*
 * @return whether to go on with the next storage: this one may have ended meanwhile, or its
 * library may have unmapped it
 */
static bool deposit_one(struct tn_domain *d, struct tni_mapping *m)
{
    bool tenond_failed;
    int status = deposit(d, m, &tenond_failed);
    if (status != 0 && status != TN_ERR_STALE && !tenond_failed)
        tni_log(TNI_LOG_WARNING, "the new tenond has no copy of a storage's descriptors: %s",
                tn_error_detail());
    return !tenond_failed;
}

void tni_backing_deposit_again(struct tn_domain *d)
{
    tni_mappings_lock(d);
    uint32_t limit = has_any(d) ? tni_backing_part(d)->mappings_limit : 0;
    bool goes_on = tni_backing_part(d)->depot != NULL;
    for (struct tni_mapping *m = tni_backing_part(d)->parked; goes_on && m != NULL; m = m->next)
        goes_on = deposit_one(d, m);
    tni_mappings_sweep_parked(d, false);
    for (uint32_t i = 0; goes_on && tni_backing_part(d)->mappings != NULL && i < limit; i++) {
        struct tni_mapping *m = tni_backing_part(d)->mappings[i];
        if (m == NULL)
            continue;
        goes_on = deposit_one(d, m);
        if (m->is_deposited &&
            tni_backing_part(d)->kept_fds > tni_backing_part(d)->kept_limit &&
            !(m->is_write_once && !m->is_read_only && !tni_mapping_is_on_device(m)))
            tni_mapping_close_kept(d, m);
    }
    tni_mappings_unlock(d);
}
