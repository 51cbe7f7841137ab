/* SPDX-License-Identifier: Apache-2.0 */
/* Hoarders, reclaimers, visitors; and how a process gets its role. */
#include "soak.h"

#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { HOARD = 64, EXIT_NO_SEAT = 3 };

/* ---- memory ------------------------------------------------------------------------------ */

static void turn_the_taps(void)
{
    static const uint64_t mib = UINT64_C(1) << 20;
    uint64_t freed = 0;
    int status = 0;
    soak_do(SOAK_TRIMMING);
    switch (soak_below(4)) {
    case 0:
        status = tn_domain_trim(me.domain, soak_below(4) * mib, &freed);
        break;
    case 1:
        status = tn_domain_set_watermark(me.domain, soak_below(6) * mib);
        break;
    case 2:
        status = tn_domain_set_quota(me.domain, (4 + soak_below(SOAK_QUOTA_MIB - 3)) * mib);
        break;
    default:
        break;
    }
    if (status != 0)
        soak_fail_status(SOAK_ON_BLOCKS, "trim, watermark or quota", status);
}

/* A hoarder takes all memory that there is, keeps it for a while, and releases it. */
void soak_hoard(uint32_t turns)
{
    static tn_tensor *hoard[HOARD];
    static struct soak_part parts[HOARD];
    uint32_t count = 0;
    for (uint32_t i = 0; i < turns && soak_goes_on(); i++) {
        if (soak_chance(5))
            turn_the_taps();
        if (count < HOARD && soak_make_tensor(&parts[count], &hoard[count]))
            count++;
        if (count == HOARD || soak_chance(5)) {
            soak_do(SOAK_CHECKING);
            for (uint32_t k = 0; k < count; k++)
                soak_check_tensor(hoard[k], &parts[k], "a hoarded tensor");
            soak_drop_tensors(hoard, count);
            count = 0;
        }
    }
    soak_drop_tensors(hoard, count);
}

/* ---- reclaiming ----------------------------------------------------------------------------
 */

static int look_at_seat(const tn_seat_entry *seat, void *context)
{
    (void)seat, (void)context;
    return 0;
}
static int look_at_block(const tn_block_entry *block, void *context)
{
    (void)block, (void)context;
    return 0;
}

/* An inspector reads tables that change. It must come to an end, and not crash. */
static void inspect(void)
{
    tn_inspector *inspector = NULL;
    tn_domain_stat stat = {.struct_size = sizeof stat};
    soak_do(SOAK_RECLAIMING);
    int status = tn_inspector_open(soak->domain, &inspector);
    if (status == 0)
        status = tn_inspect_stat(inspector, &stat);
    if (status == 0)
        status = tn_inspect_seats(inspector, look_at_seat, NULL);
    if (status == 0)
        status = tn_inspect_blocks(inspector, look_at_block, NULL);
    if (status != 0 && status != TN_ERR_MANAGER && status != TN_ERR_NOT_FOUND)
        soak_fail_status(SOAK_ON_AUDIT, "inspecting", status);
    tn_inspector_close(inspector);
}

void soak_reclaim(uint32_t turns)
{
    for (uint32_t i = 0; i < turns && soak_goes_on(); i++) {
        uint32_t reclaimed = 0;
        soak_do(SOAK_RECLAIMING);
        int status = tn_domain_reap(me.domain, &reclaimed);
        if (status != 0 && status != TN_ERR_TIMED_OUT)
            soak_fail_status(SOAK_ON_AUDIT, "tn_domain_reap", status);
        soak_count(SOAK_N_RECLAIMED, reclaimed);
        usleep(500 + soak_below(3000));
        if (soak_chance(2))
            inspect();
    }
}

/* ---- objects and roles ------------------------------------------------------------------- */

int soak_open_objects(tn_domain *domain)
{
    int status = 0;
    me.domain = domain;
    for (uint32_t i = 0; i < SOAK_QUEUES && status == 0; i++)
        status = tn_queue_open(domain, soak_queue_kinds[i].name, NULL, TN_OPEN_EXISTING,
                               &me.queues[i]);
    if (status == 0)
        status = tn_lock_open(domain, "lock", TN_OPEN_EXISTING, &me.lock);
    if (status == 0)
        status = tn_semaphore_open(domain, "permits", 0, TN_OPEN_EXISTING, &me.permits);
    if (status == 0)
        status = tn_semaphore_open(domain, "signal", 0, TN_OPEN_EXISTING, &me.signal);
    if (status == 0)
        status = tn_event_open(domain, "door", TN_OPEN_EXISTING, &me.door);
    if (status == 0)
        status = tn_event_open(domain, "bell", TN_OPEN_EXISTING, &me.bell);
    if (status == 0)
        status = tn_condition_open(domain, "condition", TN_OPEN_EXISTING, &me.condition);
    if (status == 0)
        status = soak_store_open(domain, TN_OPEN_EXISTING);
    if (status == 0)
        status = soak_channels_open(domain, TN_OPEN_EXISTING);
    return status;
}

void soak_close_objects(void)
{
    for (uint32_t i = 0; i < SOAK_QUEUES; i++)
        me.queues[i] = tn_object_close(me.queues[i]);
    me.lock = tn_object_close(me.lock);
    me.store = tn_object_close(me.store);
    soak_channels_close();
    me.permits = tn_object_close(me.permits);
    me.signal = tn_object_close(me.signal);
    me.door = tn_object_close(me.door);
    me.bell = tn_object_close(me.bell);
    me.condition = tn_object_close(me.condition);
}

/*
 * A visitor opens the domain by name, does something, leaves in good order, and begins again.
 */
void soak_visit(uint32_t turns)
{
    for (uint32_t i = 0; i < turns && soak_goes_on(); i++) {
        tn_domain *domain = NULL;
        soak_do(SOAK_JOINING);
        int status = tn_domain_open(soak->domain, NULL, TN_OPEN_EXISTING, &domain);
        if (status == TN_ERR_FULL)
            continue;
        if (status == 0)
            status = soak_open_objects(domain);
        if (status != 0)
            soak_fail_status(SOAK_ON_TABLES, "joining by name", status);
        soak_count(SOAK_N_JOINS, 1);
        switch (soak_below(3)) {
        case 0:
            soak_produce(soak_below(20));
            break;
        case 1:
            soak_relay(soak_below(20));
            break;
        default:
            soak_keep(soak_below(20));
        }
        soak_do(SOAK_LEAVING);
        if (soak_chance(70))
            soak_close_objects();
        tn_domain_close(domain);
        soak_close_objects(); /* close its handles after it left their domain */
        me.domain = NULL;
    }
}

static void park(void)
{
    soak_do(SOAK_PARKED);
    while (atomic_load(&soak->parking) != 0) {
        /*
         * Parked anew: a process that was woken, and ran only in the pause of the next round,
         * parks for that round.
         */
        atomic_store(&me.slot->parked, atomic_load(&soak->round));
        soak_tell();
        syscall(SYS_futex, &soak->parking, FUTEX_WAIT, 1, NULL, NULL, 0);
    }
    soak_do(SOAK_NOTHING);
}

int soak_play(struct soak_slot *slot)
{
    static void (*const plays[])(uint32_t) = {
        [SOAK_PRODUCER] = soak_produce, [SOAK_CONSUMER] = soak_consume,
        [SOAK_RELAY] = soak_relay,      [SOAK_KEEPER] = soak_keep,
        [SOAK_POOL] = soak_own_pool,    [SOAK_PARENT] = soak_be_parent,
        [SOAK_HOARDER] = soak_hoard,    [SOAK_RECLAIMER] = soak_reclaim,
        [SOAK_VISITOR] = soak_visit};
    enum soak_role role = atomic_load(&slot->role);
    soak_take_slot(slot, role);
    while (atomic_load(&soak->ending) == 0) {
        plays[role](10 + soak_below(200));
        if (atomic_load(&soak->parking) != 0 && atomic_load(&soak->failed) == 0)
            park();
        else if (soak_chance(6))
            break;
        while (atomic_load(&soak->failed) != 0)
            pause();
    }
    soak_do(SOAK_LEAVING);
    return 0;
}
