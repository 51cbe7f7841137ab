/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tiny_unexplored: functions that the explored rooms could call and that no model calls: a
 * call fails the model. No header of src/ is included, because their parameters do not
 * matter.
 */
#include "model.h"

#define UNEXPLORED(name)                                                                       \
    void name(void);                                                                           \
    void name(void) { model_require(false, "the model does not come to " #name); }

UNEXPLORED(tni_backing_end)
UNEXPLORED(tni_backing_fini)
UNEXPLORED(tni_backing_read)
UNEXPLORED(tni_holders_describe)
UNEXPLORED(tni_depot_fini)
UNEXPLORED(tni_os_commit)
UNEXPLORED(tni_os_discard)
UNEXPLORED(tni_os_discard_private)
UNEXPLORED(tni_os_loop_add)
UNEXPLORED(tni_os_loop_create)
UNEXPLORED(tni_os_loop_remove)
UNEXPLORED(tni_os_loop_wait)
UNEXPLORED(tni_os_memory_committed)
UNEXPLORED(tni_os_timer_create)
UNEXPLORED(tni_os_watch_clear)
UNEXPLORED(tni_os_watch_create)
UNEXPLORED(tni_os_watch_ring)
UNEXPLORED(tni_tensor_encode)
UNEXPLORED(tni_tensor_forget)
