/* SPDX-License-Identifier: Apache-2.0 */
/* held: a local reference from nothing but a block's number. See ref.c for the invariants. */
#include "ref/ref.h"

/* I2. No thread record is in hand: BUSY is ended by who set it, and never lives across fork. */
bool tni_ref_local_if_held(struct tn_domain *d, tni_block block)
{
    _Atomic uint32_t *local = &d->local[tni_block_position(&d->segment.geometry, block)];
    uint32_t seen = atomic_load_explicit(local, memory_order_relaxed), tries = 0;
    while (seen != 0) {
        if (TNI_UNLIKELY(seen == TNI_LOCAL_BUSY)) {
            tni_os_back_off(tries++);
            seen = atomic_load_explicit(local, memory_order_relaxed);
        } else if (/* pairs with the release in local_reclaim() */
                   atomic_compare_exchange_weak_explicit(
                       local, &seen, seen + 1, memory_order_acquire, memory_order_relaxed)) {
            return true;
        }
    }
    return false;
}
