/* SPDX-License-Identifier: Apache-2.0 */
/*
 * message: what a popped message owns. pack.c packs messages, unpack.c unpacks them.
 *
 * Forms: a message of bytes alone, or of one tensor and bytes, lies in the slot if it fits. Any
 * other message lies in a message block, and the slot names that block. A message block holds a
 * record for each tensor, then the tensors' views and the bytes. If views or bytes are long,
 * they lie in a payload block, for which the message block holds one more record. A message is
 * complete before it is pushed.
 *
 * Unpacking obtains all that a message needs while the message is in the queue. Then it takes
 * the message, takes references of its tensors while the slot is TAKEN, and un-records the slot
 * last. A death in between leaves holds, which the reaper gives back, and a message that is
 * delivered again.
 */
#include "queue/message.h"

#include <stdlib.h>
#include <string.h>

void tn_message_fini(tn_message *m)
{
    if (m == NULL)
        return;
    struct tn_domain *d = m->internal[TNI_OWNS_DOMAIN];
    tni_block block = {(uint32_t)(uintptr_t)m->internal[TNI_OWNS_BLOCK]};
    if (d != NULL) {
        for (uint32_t i = 0; i < m->tensor_count; i++)
            tn_tensor_unref(m->tensors[i]);
        if (block.id != 0)
            tni_ref_release(d, block);
        free(m->internal[TNI_OWNS_BUFFER]);
    }
    *m = (tn_message){0};
}

int tni_message_detach(tn_message *m)
{
    struct tn_domain *d = m->internal[TNI_OWNS_DOMAIN];
    tni_block block = {(uint32_t)(uintptr_t)m->internal[TNI_OWNS_BLOCK]};
    if (d == NULL || block.id == 0)
        return 0;
    size_t tensors_bytes = m->tensor_count * sizeof(tn_tensor *);
    uint8_t *buffer = malloc(tensors_bytes + m->size_bytes + 1);
    if (buffer == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "no private memory for a message of %zu bytes",
                        m->size_bytes);
    if (m->tensor_count != 0) {
        memcpy(buffer, m->tensors, tensors_bytes);
        m->tensors = (tn_tensor **)(void *)buffer;
    }
    if (m->size_bytes != 0) {
        tni_copy_unstable(buffer + tensors_bytes, m->bytes, m->size_bytes);
        m->bytes = buffer + tensors_bytes;
    }
    free(m->internal[TNI_OWNS_BUFFER]);
    m->internal[TNI_OWNS_BUFFER] = buffer;
    m->internal[TNI_OWNS_BLOCK] = NULL;
    tni_ref_release(d, block);
    return 1;
}
