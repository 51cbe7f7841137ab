/* SPDX-License-Identifier: Apache-2.0 */
/* records: adds records to a message block that is being made. Invariants: ref.c. */
#include "ref/counts.h"

int tni_records_add(struct tn_domain *d, tni_block message, tni_block block, bool move)
{
    uint32_t count;
    struct tni_records *records = tni_records_at(&d->segment, message, &count);
    if (records == NULL || count == tni_records_most(&d->segment, message))
        return tni_fail(TN_ERR_CORRUPT, "message block %08x has no room for another record",
                        message.id);
    struct tni_thread *thread = tni_thread_enter(d);
    tni_announce_fence(thread, block);
    int status = tni_ref_lend(d, block, move);
    if (status == 0) {
        TNI_PUT(records->block[count], block.id);
        atomic_store_explicit(&records->count, count + 1, memory_order_release);
        TNI_KILL_POINT("records_added");
    }
    tni_announce_clear(thread);
    tni_thread_leave(thread);
    return status;
}
