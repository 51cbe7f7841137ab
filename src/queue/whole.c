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

int tni_message_look(const struct tni_segment *s, tni_block block,
                     struct tni_contents *ret_contents)
{
    if (!tni_geometry_has_block(&s->geometry, block.id) ||
        !tni_class_is_message(tni_block_class(block)))
        return tni_fail(TN_ERR_CORRUPT, "block %08x is no message block", block.id);
    ret_contents->form = TNI_FORM_MESSAGE;
    ret_contents->block = block;
    return tni_contents_read(s, block, ret_contents);
}

const void *tni_message_bytes(const struct tni_segment *s, tni_block block, uint64_t *ret_count)
{
    struct tni_contents c;
    if (tni_message_look(s, block, &c) != 0)
        return NULL;
    *ret_count = c.bytes_count;
    return c.bytes;
}

/* Up to so many bytes are copied: that costs less than to hold and release their block. */
enum { COPIED_BYTES = 1024 };

/* A message that is being made. */
struct getting {
    const struct tni_contents *contents;
    uint64_t skipped_bytes, bytes_count;
    const struct tni_still *still;
    bool holds_block;
    uint8_t *buffer; /* the list of tensors, and copied bytes; NULL: there are none */
};

static int get_parts(struct tn_domain *d, struct tni_thread *thread, struct getting *g)
{
    const struct tni_contents *c = g->contents;
    tn_tensor **tensors = (tn_tensor **)(void *)g->buffer;
    if (g->bytes_count > COPIED_BYTES) {
        int status = tni_contents_hold_one(d, thread, c->block, g->still);
        if (status != 0)
            return status;
        g->holds_block = true;
    } else {
        if (g->bytes_count != 0)
            tni_copy_unstable(g->buffer + c->tensor_count * sizeof(tn_tensor *),
                              (const uint8_t *)c->bytes + g->skipped_bytes, g->bytes_count);
        if (!tni_is_still(g->still)) /* also asked of a message that has nothing */
            return TN_ERR_TIMED_OUT;
    }
    int status = tni_contents_decode(d, thread, c, g->still, tensors);
    if (status == 0 && (status = tni_contents_hold(d, thread, c, g->still, tensors)) != 0)
        for (uint32_t i = 0; i < c->tensor_count; i++)
            tni_tensor_forget(thread, tensors[i]);
    if (status != 0 && g->holds_block)
        tni_ref_release_with(d, thread, c->block);
    return status;
}

static void give(struct tn_domain *d, const struct getting *g, tn_message *ret_message)
{
    const struct tni_contents *c = g->contents;
    const void *bytes = g->holds_block ? (const uint8_t *)c->bytes + g->skipped_bytes
                                       : g->buffer + c->tensor_count * sizeof(tn_tensor *);
    uint32_t block = g->holds_block ? c->block.id : 0;
    *ret_message =
        (tn_message){.bytes = g->bytes_count != 0 ? bytes : NULL,
                     .size_bytes = g->bytes_count,
                     .tensors = c->tensor_count != 0 ? (tn_tensor **)(void *)g->buffer : NULL,
                     .tensor_count = c->tensor_count,
                     .internal = {[TNI_OWNS_DOMAIN] = d,
                                  [TNI_OWNS_BLOCK] = (void *)(uintptr_t)block,
                                  [TNI_OWNS_BUFFER] = g->buffer}};
}

static int get(struct tn_domain *d, struct getting *g, tn_message *ret_message)
{
    const struct tni_contents *c = g->contents;
    if (c->bytes_count < g->skipped_bytes)
        return tni_fail(TN_ERR_CORRUPT, "message block %08x has %llu bytes, and needs %llu",
                        c->block.id, (unsigned long long)c->bytes_count,
                        (unsigned long long)g->skipped_bytes);
    g->bytes_count = c->bytes_count - g->skipped_bytes;
    uint64_t copied = g->bytes_count > COPIED_BYTES ? 0 : g->bytes_count;
    size_t buffer_bytes = c->tensor_count * sizeof(tn_tensor *) + copied;
    if (buffer_bytes != 0 && (g->buffer = malloc(buffer_bytes)) == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "no private memory for a message");
    struct tni_thread *thread = tni_thread_enter(d);
    int status = get_parts(d, thread, g);
    tni_thread_leave(thread);
    if (status == 0)
        give(d, g, ret_message);
    else
        free(g->buffer);
    return status;
}

/* What a call found wrong may be that of another message. */
static int judge(int status, const struct tni_still *still)
{
    return status == 0 || tni_is_still(still) ? status : TN_ERR_TIMED_OUT;
}

int tni_message_get_read(struct tn_domain *d, const struct tni_contents *contents,
                         uint64_t skipped_bytes, const struct tni_still *still,
                         tn_message *ret_message)
{
    struct getting g = {.contents = contents, .skipped_bytes = skipped_bytes, .still = still};
    return judge(get(d, &g, ret_message), still);
}

int tni_message_get(struct tn_domain *d, tni_block block, uint64_t skipped_bytes,
                    const struct tni_still *still, tn_message *ret_message)
{
    struct tni_contents contents;
    int status = tni_message_look(&d->segment, block, &contents);
    return status == 0 ? tni_message_get_read(d, &contents, skipped_bytes, still, ret_message)
                       : judge(status, still);
}
