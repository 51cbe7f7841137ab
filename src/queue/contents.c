/* SPDX-License-Identifier: Apache-2.0 */
/*
 * contents: read a message block, and make the tensors that it names.
 *
 * Callers: unpack.c, whole.c. Death: what was held is given back by the reaper.
 */
#include "queue/contents.h"

int tni_contents_read(const struct tni_segment *s, tni_block block, struct tni_contents *c)
{
    uint32_t count;
    const struct tni_records *r = tni_records_at(s, block, &count);
    if (r == NULL)
        return TN_ERR_CORRUPT;
    struct tni_records head;
    const size_t skipped = sizeof head.count;
    tni_copy_unstable((uint8_t *)&head + skipped, (const uint8_t *)r + skipped,
                      sizeof head - skipped);
    uint32_t limit = head.limit, payload = head.payload_block;
    uint32_t views_bytes = head.views_bytes, tensors = head.tensor_count;
    uint64_t bytes_count = head.bytes_count;
    uint64_t views_off = tni_align_up(sizeof *r + (uint64_t)limit * sizeof(uint32_t), 8);
    uint64_t size = tni_block_bytes(&s->geometry, block);
    if (count != limit || tensors > limit || tensors > TN_MESSAGE_MAX_TENSORS ||
        tensors + (payload != 0) != limit || views_off > size)
        return tni_fail(TN_ERR_CORRUPT, "the header of message block %08x is damaged",
                        block.id);
    const uint8_t *views = (const uint8_t *)r + views_off;
    uint64_t room = size - views_off;
    if (payload != 0) {
        if (!tni_geometry_has_payload(&s->geometry, payload))
            return tni_fail(TN_ERR_CORRUPT,
                            "message block %08x names payload block %08x, which does not exist",
                            block.id, payload);
        views = tni_payload_at(s, (tni_block){payload});
        room = tni_block_bytes(&s->geometry, (tni_block){payload});
    }
    if (views_bytes > room || bytes_count > room - views_bytes)
        return tni_fail(TN_ERR_CORRUPT,
                        "message block %08x states more bytes than its payload block holds",
                        block.id);
    c->tensor_count = tensors;
    c->views = views;
    c->views_bytes = views_bytes;
    c->records = r->block;
    c->bytes_count = bytes_count;
    c->bytes = views + views_bytes;
    c->are_bytes_shared = true;
    return 0;
}

/* The views that are left to decode. */
struct views {
    const void *first; /* aligned to 8 */
    uint32_t bytes;
};

/*
 * Decode the first view: quickly, if it is the only one that is left and its tensor is like the
 * last one that this thread has ended. The view may be another one by now, so a copy of it is
 * decoded, as tni_tensor_decode_with() does.
 */
static int decode_one(struct tn_domain *d, struct tni_thread *thread, tni_block block,
                      struct views left, tn_tensor **ret_tensor)
{
    enum { MOST_BYTES = sizeof(struct tni_view) + 4 * sizeof(int64_t) }; /* as spares have */
    union {
        struct tni_view head;
        uint8_t bytes[MOST_BYTES];
    } copy;
    if (left.bytes >= sizeof copy.head && left.bytes <= sizeof copy &&
        tni_geometry_has_block(&d->segment.geometry, block.id)) {
        tni_copy_unstable(&copy, left.first, left.bytes);
        *ret_tensor = tni_tensor_decode_again(d, thread, block, &copy.head, left.bytes);
        if (*ret_tensor != NULL)
            return (int)left.bytes;
    }
    return tni_tensor_decode_with(d, thread, left.first, left.bytes, ret_tensor);
}

/*
 * If the record changes meanwhile, what this process reads may be garbage. So it checks before
 * each tensor, to make no system call for a storage that does not exist.
 */
int tni_contents_decode(struct tn_domain *d, struct tni_thread *thread,
                        const struct tni_contents *c, const struct tni_still *still,
                        tn_tensor **ret_tensors)
{
    uint32_t at = 0, made = 0;
    int status = 0;

    for (; made < c->tensor_count; made++) {
        const struct views left = {c->views + at, c->views_bytes - at};
        uint32_t record = c->block.id;
        if (c->records != NULL)
            tni_copy_unstable(&record, &c->records[made], sizeof record);
        status = TN_ERR_TIMED_OUT;
        if (TNI_LIKELY(tni_is_still(still)))
            status = decode_one(d, thread, (tni_block){record}, left, &ret_tensors[made]);
        if (TNI_UNLIKELY(status < 0))
            break;
        at += (uint32_t)status;
        /* Compare what was decoded: the slot may say something else by now. */
        uint32_t named = ret_tensors[made]->storage->block.id;
        if (TNI_UNLIKELY(named != record)) {
            made++;
            status = tni_fail(TN_ERR_CORRUPT,
                              "a view names block %08x, but its record names block %08x", named,
                              record);
            break;
        }
    }
    if (status >= 0)
        return 0;
    while (made-- > 0)
        tni_tensor_forget(thread, ret_tensors[made]);
    return status;
}

/* The record kept the block if it has not changed when the block is pinned. */
int tni_contents_hold_one(struct tn_domain *d, struct tni_thread *thread, tni_block block,
                          const struct tni_still *still)
{
    tni_announce(thread, block, 1);
    int status = tni_ref_pin(d, block);
    if (TNI_UNLIKELY(status != 0)) {
        tni_announce_clear(thread);
        return status;
    }
    if (still != NULL) {
        TNI_KILL_POINT("message_pinned");
        if (TNI_UNLIKELY(!tni_is_still(still))) {
            tni_ref_drop(d, thread, block);
            return TN_ERR_TIMED_OUT;
        }
    }
    tni_ref_adopt(d, thread, block);
    return 0;
}

int tni_contents_hold(struct tn_domain *d, struct tni_thread *thread,
                      const struct tni_contents *c, const struct tni_still *still,
                      tn_tensor **tensors)
{
    int status = 0;
    uint32_t held = 0;
    for (; held < c->tensor_count && status == 0; held += status == 0)
        status = tni_contents_hold_one(d, thread, tensors[held]->storage->block, still);
    while (status != 0 && held > 0)
        tni_ref_release_with(d, thread, tensors[--held]->storage->block);
    return status;
}
