/* SPDX-License-Identifier: Apache-2.0 */
/* held: adds a local reference to a block if this process holds the block. See ref.c. */
#include "ref/ref.h"

/*
 * The caller has no thread record. A thread that sets TNI_LOCAL_BUSY has a thread record, so it
 * replaces that value soon, and a forked child never inherits the value (I2).
 */
bool tni_ref_local_if_held(struct tn_domain *d, tni_block block)
{
    _Atomic uint32_t *local = &d->local[tni_block_position(&d->segment.geometry, block)];
    uint32_t seen = atomic_load_explicit(local, memory_order_relaxed), tries = 0;
    while (seen != 0) {
        if (TNI_UNLIKELY(seen == TNI_LOCAL_BUSY)) {
            tni_os_back_off(tries++);
            seen = atomic_load_explicit(local, memory_order_relaxed);
        } else if (/* the acquire pairs with the release in tni_ref_set_hold() */
                   atomic_compare_exchange_weak_explicit(
                       local, &seen, seen + 1, memory_order_acquire, memory_order_relaxed)) {
            return true;
        }
    }
    return false;
}
