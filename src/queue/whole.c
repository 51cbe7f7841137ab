/* SPDX-License-Identifier: Apache-2.0 */
/*
 * whole: messages that lie in a message block of their own and in no queue. message.c says what
 * such a block has. The room store keeps its values so.
 *
 * Callers: the rooms above. Death: the message block has a hold of the dead process, or a
 * record of the room above; the reaper gives back what the dead process held.
 */
#include <stdlib.h>

#include "queue/contents.h"
#include "queue/message.h"

const void *tni_message_bytes(const struct tni_segment *s, tni_block block, uint64_t *ret_count)
{
    struct tni_contents c = {0};
    if (!tni_geometry_has_block(&s->geometry, block.id) ||
        !tni_class_is_message(tni_block_class(block))) {
        tni_fail(TN_ERR_CORRUPT, "block %08x is no message block", block.id);
        return NULL;
    }
    if (tni_contents_read(s, block, &c) != 0)
        return NULL;
    *ret_count = c.bytes_count;
    return c.bytes;
}

/* pre: the caller holds the block. */
static int make_tensors(struct tn_domain *d, const struct tni_contents *c, tn_tensor **tensors)
{
    struct tni_thread *thread = tni_thread_enter(d);
    int status = tni_contents_decode(d, thread, c, NULL, tensors);
    if (status == 0 && (status = tni_contents_hold(d, thread, c, tensors)) != 0)
        for (uint32_t i = 0; i < c->tensor_count; i++)
            tni_tensor_forget(thread, tensors[i]);
    tni_thread_leave(thread);
    return status;
}

int tni_message_open(struct tn_domain *d, tni_block block, uint64_t skipped_bytes,
                     tn_message *ret_message)
{
    struct tni_contents c = {.form = TNI_FORM_MESSAGE, .block = block};
    int status = tni_contents_read(&d->segment, block, &c);
    if (status != 0)
        return status;
    if (c.bytes_count < skipped_bytes)
        return tni_fail(TN_ERR_CORRUPT, "message block %08x has %llu bytes, and needs %llu",
                        block.id, (unsigned long long)c.bytes_count,
                        (unsigned long long)skipped_bytes);
    tn_tensor **tensors = NULL;
    if (c.tensor_count != 0) {
        tensors = malloc(c.tensor_count * sizeof(tn_tensor *));
        if (tensors == NULL)
            return tni_fail(TN_ERR_NO_MEMORY, "no private memory for a message");
        if ((status = make_tensors(d, &c, tensors)) != 0) {
            free(tensors);
            return status;
        }
    }
    uint64_t rest = c.bytes_count - skipped_bytes;
    *ret_message =
        (tn_message){.bytes = rest != 0 ? (const uint8_t *)c.bytes + skipped_bytes : NULL,
                     .size_bytes = rest,
                     .tensors = tensors,
                     .tensor_count = c.tensor_count,
                     .internal = {[TNI_OWNS_DOMAIN] = d,
                                  [TNI_OWNS_BLOCK] = (void *)(uintptr_t)block.id,
                                  [TNI_OWNS_BUFFER] = tensors}};
    return 0;
}
