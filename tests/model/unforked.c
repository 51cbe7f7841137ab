/* SPDX-License-Identifier: Apache-2.0 */
/* unforked: functions that the models of queues do not call: fork(), attaching, tensors. */
#include "model.h"

#define UNEXPLORED(name)                                                                       \
    void name(void);                                                                           \
    void name(void) { model_require(false, "the model does not come to " #name); }

UNEXPLORED(tiny_pipe_close)
UNEXPLORED(tiny_pipe_poll)
UNEXPLORED(tni_os_memory_stat)
UNEXPLORED(tn_tensor_record)
UNEXPLORED(tn_tensor_unref)
UNEXPLORED(tni_attributes_check_all_parts)
UNEXPLORED(tni_attributes_drop_all)
UNEXPLORED(tni_attributes_hold_all)
UNEXPLORED(tni_device_check)
UNEXPLORED(tni_memory_kind)
UNEXPLORED(tni_os_advise_no_dump)
UNEXPLORED(tni_os_bell_create)
UNEXPLORED(tni_os_random)
UNEXPLORED(tni_tensor_await_somehow)
UNEXPLORED(tni_tensor_check_shared)
UNEXPLORED(tni_tensor_decode_with)
UNEXPLORED(tni_tensor_decode_again)

bool tiny_has_inherited(uint32_t process, uint64_t number)
{
    (void)process;
    (void)number;
    return false;
}
