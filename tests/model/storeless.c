/* SPDX-License-Identifier: Apache-2.0 */
/* storeless: what the reaper asks of stores, for models that make none. */
#include "store/store.h"

uint64_t tni_store_count_records(const struct tni_segment *s, tni_block block)
{
    (void)s;
    (void)block;
    return 0;
}
void tni_store_for_each_record(const struct tni_segment *s, tni_record_fn *each, void *context)
{
    (void)s;
    (void)each;
    (void)context;
}
