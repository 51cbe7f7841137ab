/* SPDX-License-Identifier: Apache-2.0 */
/* The list of all operations, from the tables of the files that define them. */
#include "process/crash.h"

static const struct crash_op *const tables[] = {
    crash_memory_ops, crash_push_ops,  crash_pop_ops,     crash_object_ops,
    crash_wake_ops,   crash_sync_ops,  crash_member_ops,  crash_backing_ops,
    crash_spawn_ops,  crash_store_ops, crash_channel_ops, crash_device_ops};

const struct crash_op *crash_nth(unsigned n)
{
    for (unsigned t = 0; t < sizeof tables / sizeof tables[0]; t++)
        for (const struct crash_op *op = tables[t]; op->name != NULL; op++)
            if (n-- == 0)
                return op;
    return NULL;
}
