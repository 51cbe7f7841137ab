/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lease: the table of leases in shared memory: which process has memory open that an allocator
 * of another process made.
 *
 * I1  A process has a lease from before it opens an allocation until after it has closed it.
 *     So a maker that has ended the storages in it, and then sees no lease, may free it.
 *
 * I2  A process that takes a lease looks once more whether the storage that brought it there
 *     still exists: its maker may have looked for leases just before.
 *
 * Callers: foreign.c, the room tensor for the maker, the reaper. Death: the lease of a dead
 * holder stays until the whole process has ended, since its devices may work until then; the
 * reaper marks it over, and the maker has the device do other work first. Leases of a dead
 * maker are free for whoever finds them.
 */
#include "backing/mapping.h"

/* ---- for who has memory open ----------------------------------------------------------- */

static bool is_of_nobody(const struct tni_segment *s, const struct tni_lease *lease)
{
    uint64_t holder = atomic_load(&lease->holder);
    return holder == 0 ||
           (holder == TNI_LEASE_OVER && !tni_process_who_lives(s, atomic_load(&lease->maker)));
}

static bool claim(const struct tni_segment *s, struct tni_lease *lease, uint64_t who)
{
    uint64_t holder = atomic_load(&lease->holder);
    return is_of_nobody(s, lease) &&
           atomic_compare_exchange_strong(&lease->holder, &holder, who);
}

bool tni_lease_take(const struct tni_segment *s, uint64_t who, const struct tni_lessor *of,
                    uint32_t *ret_lease)
{
    for (uint32_t i = 0; i < TNI_LEASES; i++) {
        struct tni_lease *lease = tni_lease_at(s, i);
        tni_raise_limit(&s->header->lease_limit, i + 1); /* others look below it */
        if (!claim(s, lease, who))
            continue;
        TNI_KILL_POINT("lease_claimed");
        atomic_store(&lease->allocation, 0);
        atomic_store(&lease->wanted, 0);
        atomic_store(&lease->maker, of->maker);
        atomic_store(&lease->allocation, of->allocation);
        TNI_KILL_POINT("lease_taken");
        *ret_lease = i;
        return true;
    }
    return false;
}

static void clear(struct tni_lease *lease, uint64_t holder)
{
    atomic_store(&lease->allocation, 0);
    atomic_compare_exchange_strong(&lease->holder, &holder, 0);
}

void tni_lease_release(const struct tni_segment *s, uint64_t who, uint32_t lease)
{
    if (atomic_load(&tni_lease_at(s, lease)->holder) == who)
        clear(tni_lease_at(s, lease), who);
}

bool tni_lease_is_wanted(const struct tni_segment *s, uint32_t lease)
{
    return atomic_load(&tni_lease_at(s, lease)->wanted) != 0;
}

/* ---- for the maker --------------------------------------------------------------------- */

static bool is_of(const struct tni_lease *lease, const struct tni_lessor *of)
{
    return atomic_load(&lease->holder) != 0 &&
           atomic_load(&lease->allocation) == of->allocation &&
           atomic_load(&lease->maker) == of->maker;
}

struct tni_lease_counts tni_lease_count(const struct tni_segment *s,
                                        const struct tni_lessor *of)
{
    struct tni_lease_counts counts = {0};
    uint32_t limit = tni_lease_limit(s);
    for (uint32_t i = 0; i < limit; i++) {
        const struct tni_lease *lease = tni_lease_at(s, i);
        uint64_t holder = atomic_load(&lease->holder);
        if (!is_of(lease, of))
            continue;
        if (holder == TNI_LEASE_OVER) {
            counts.over++;
        } else if (tni_process_who_runs(s, holder)) {
            counts.live++;
            counts.holder = holder;
        } else {
            counts.dying++;
        }
    }
    return counts;
}

void tni_lease_end_over(const struct tni_segment *s, const struct tni_lessor *of)
{
    uint32_t limit = tni_lease_limit(s);
    for (uint32_t i = 0; i < limit; i++)
        if (is_of(tni_lease_at(s, i), of) &&
            atomic_load(&tni_lease_at(s, i)->holder) == TNI_LEASE_OVER)
            clear(tni_lease_at(s, i), TNI_LEASE_OVER);
}

void tni_lease_want(const struct tni_segment *s, const struct tni_lessor *of)
{
    uint32_t limit = tni_lease_limit(s);
    for (uint32_t i = 0; i < limit; i++)
        if (is_of(tni_lease_at(s, i), of))
            atomic_store(&tni_lease_at(s, i)->wanted, 1);
}

/* ---- for the reaper -------------------------------------------------------------------- */

bool tni_leases_has(const struct tni_segment *s, uint64_t who)
{
    uint32_t limit = tni_lease_limit(s);
    for (uint32_t i = 0; i < limit; i++)
        if (atomic_load(&tni_lease_at(s, i)->holder) == who)
            return true;
    return false;
}

/* A lease that the dead process had claimed, but not written, kept nothing open. */
static void reclaim(const struct tni_segment *s, struct tni_lease *lease, uint64_t who)
{
    uint64_t holder = atomic_load(&lease->holder), maker = atomic_load(&lease->maker);
    bool is_written = atomic_load(&lease->allocation) != 0;
    if (holder == TNI_LEASE_OVER && maker == who)
        clear(lease, TNI_LEASE_OVER);
    if (holder != who)
        return;
    if (is_written && maker != who && tni_process_who_lives(s, maker))
        atomic_compare_exchange_strong(&lease->holder, &holder, TNI_LEASE_OVER);
    else
        clear(lease, who);
    TNI_KILL_POINT("lease_reclaimed");
}

void tni_leases_reclaim(const struct tni_segment *s, uint64_t who)
{
    uint32_t limit = tni_lease_limit(s);
    for (uint32_t i = 0; i < limit; i++)
        reclaim(s, tni_lease_at(s, i), who);
}
