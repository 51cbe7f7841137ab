/* SPDX-License-Identifier: Apache-2.0 */
/* claims: takes claims on shared tables. One thread of one process has a claim at a time. */
#include "process/fork.h"

/* Whether the owner of a claim may still release it. */
static bool is_owner_live(const struct tn_domain *d, uint64_t who, bool has_reaped)
{
    uint32_t state = tni_process_who_state(&d->segment, who);
    return state != TNI_SEAT_FREE && (has_reaped || state != TNI_SEAT_REAPING);
}

bool tni_process_claim(struct tn_domain *d, _Atomic uint64_t *claim, _Atomic uint64_t *turn,
                       uint64_t from, bool has_reaped)
{
    uint64_t seen = atomic_load(turn);
    if (seen == d->who || !atomic_compare_exchange_strong(turn, &seen, d->who))
        return false;
    uint64_t who = from;
    if (atomic_compare_exchange_strong(claim, &who, d->who) || who == d->who ||
        (!is_owner_live(d, who, has_reaped) &&
         atomic_compare_exchange_strong(claim, &who, d->who)))
        return true;
    atomic_exchange(turn, 0);
    return false;
}

void tni_process_unclaim(struct tn_domain *d, _Atomic uint64_t *claim, _Atomic uint64_t *turn)
{
    tni_claim_release(claim, d->who);
    atomic_exchange(turn, 0); /* the read-modify-write that tni_wait_notify() requires */
}
