/* SPDX-License-Identifier: Apache-2.0 */
/* pack: turn a tn_message into a parcel. message.c describes the forms of a message. */
#include <stdlib.h>
#include <string.h>

#include "queue/message.h"

enum { INLINE_IN_BLOCK_BYTES = 64 << 10 };

/* [tensor_count]: the attributes of each tensor; NULL: no tensor has any. */
typedef struct tni_attributes **held_list;

/* A message that goes into a message block. */
struct packing {
    const tn_message *message;
    const struct tni_message_head *head; /* before the bytes of `message` */
    uint64_t bytes_count;                /* of both */
    held_list held;
    uint32_t limit; /* records */
    uint32_t views_bytes;
    uint64_t views_off, total; /* of the message block */
    bool has_payload;          /* views and bytes go into a payload block */
};

static struct tni_attributes *held_of(held_list held, uint32_t i)
{
    return held != NULL ? held[i] : NULL;
}

static void drop_attributes(const tn_message *m, held_list held)
{
    for (uint32_t i = 0; held != NULL && i < m->tensor_count; i++)
        tni_attributes_drop(held[i]);
    free(held);
}

/* Held until they are encoded: the call may wait for memory meanwhile. */
static int hold_attributes(const tn_message *m, held_list *ret)
{
    held_list held = NULL;
    for (uint32_t i = 0; i < m->tensor_count; i++) {
        struct tni_attributes *a = tni_attributes_hold(m->tensors[i]);
        if (a == NULL)
            continue;
        if (held == NULL && (held = calloc(m->tensor_count, sizeof *held)) == NULL) {
            tni_attributes_drop(a);
            return tni_fail(TN_ERR_NO_MEMORY, "no private memory for a message");
        }
        held[i] = a;
    }
    *ret = held;
    return 0;
}

static int measure(const tn_message *m, const struct tni_message_head *head, held_list held,
                   struct packing *ret)
{
    struct packing p = {.message = m,
                        .head = head,
                        .bytes_count = head->size_bytes + (uint64_t)m->size_bytes,
                        .held = held};
    uint64_t views_bytes = 0;
    for (uint32_t i = 0; i < m->tensor_count; i++)
        views_bytes += tni_tensor_view_bytes(m->tensors[i], held_of(held, i));
    if (views_bytes > UINT32_MAX)
        return tni_fail(TN_ERR_INVALID,
                        "the shapes and attributes of the %u tensors of the message take %llu "
                        "bytes, which is too many",
                        m->tensor_count, (unsigned long long)views_bytes);
    p.views_bytes = (uint32_t)views_bytes;
    p.has_payload =
        views_bytes > INLINE_IN_BLOCK_BYTES || p.bytes_count > INLINE_IN_BLOCK_BYTES;
    p.limit = m->tensor_count + p.has_payload;
    p.views_off =
        tni_align_up(sizeof(struct tni_records) + (uint64_t)p.limit * sizeof(uint32_t), 8);
    p.total = p.views_off + (p.has_payload ? 0 : views_bytes + p.bytes_count);
    *ret = p;
    return 0;
}

/* pre: `to` has room for all views and bytes, and is aligned to 8. */
static void write_views_and_bytes(const struct packing *p, uint8_t *to)
{
    const tn_message *m = p->message;
    uint32_t at = 0;
    for (uint32_t i = 0; i < m->tensor_count; i++)
        at += (uint32_t)tni_tensor_encode(m->tensors[i], held_of(p->held, i),
                                          p->views_bytes - at, to + at);
    to += p->views_bytes;
    if (p->head->size_bytes != 0)
        memcpy(to, p->head->bytes, p->head->size_bytes);
    if (m->size_bytes != 0)
        memcpy(to + p->head->size_bytes, m->bytes, m->size_bytes);
}

static int add_records(struct tn_domain *d, tni_block message, const tn_message *m)
{
    int status = 0;
    for (uint32_t i = 0; i < m->tensor_count && status == 0; i++)
        status = tni_records_add(d, message, m->tensors[i]->storage->block, false);
    return status;
}

struct parcel_wish {
    struct tni_retry wish;
    const struct packing *packing;
    uint64_t payload_bytes;
    tni_block message, payload; /* id 0: there is none */
};

/* Allocate the message block and, if needed, the payload block; or neither. */
static int attempt_blocks(struct tn_domain *d, struct tni_retry *wish)
{
    static const struct tni_block_about message = {.kind = TNI_KIND_MESSAGE,
                                                   .is_unfinished = true};
    static const struct tni_block_about payload = {.kind = TNI_KIND_BYTES,
                                                   .is_unfinished = true};
    struct parcel_wish *w = (struct parcel_wish *)wish;
    struct tni_thread *thread = tni_thread_enter(d);
    int status = tni_ref_alloc_with(d, thread, w->packing->total, &message, &w->message);
    if (status == 0 && w->packing->has_payload) {
        status = tni_ref_alloc_with(d, thread, w->payload_bytes, &payload, &w->payload);
        if (status != 0)
            tni_ref_release_unused(d, thread, w->message);
    }
    tni_thread_leave(thread);
    return status;
}

static bool can_fit(const struct tn_domain *d, const struct parcel_wish *w)
{
    const struct tni_geometry *g = &d->segment.geometry;
    uint64_t page_bytes = g->page_bytes;
    return tni_ref_can_fit(d, w->packing->total, TNI_KIND_MESSAGE) &&
           tni_ref_can_fit(d, w->payload_bytes, TNI_KIND_BYTES) &&
           tni_align_up(w->packing->total, page_bytes) +
                   tni_align_up(w->payload_bytes, page_bytes) <=
               g->quota_limit_bytes;
}

static int allocate(struct tn_domain *d, struct parcel_wish *w)
{
    int status = tni_process_check(d);
    if (status == 0)
        status = attempt_blocks(d, &w->wish);
    if (TNI_LIKELY(!tni_ref_is_short(status)))
        return status;
    w->wish.can_fit = can_fit(d, w);
    return tni_ref_retry(d, &w->wish, status);
}

/* pre: no other process knows the blocks yet. */
static int fill(struct tn_domain *d, const struct packing *p, tni_block block,
                tni_block payload)
{
    uint8_t *start = tni_payload_at(&d->segment, block);
    struct tni_records *records = (struct tni_records *)(void *)start;
    records->limit = p->limit;
    records->views_bytes = p->views_bytes;
    records->payload_block = payload.id;
    records->bytes_count = p->bytes_count;
    records->tensor_count = p->message->tensor_count;
    records->reserved = 0;
    write_views_and_bytes(p, payload.id != 0 ? tni_payload_at(&d->segment, payload)
                                             : start + p->views_off);
    return add_records(d, block, p->message);
}

static int build_packed(struct tn_domain *d, const struct packing *p, uint64_t deadline_ns,
                        tni_block *ret_block)
{
    uint64_t rest = p->views_bytes + p->bytes_count;
    struct parcel_wish w = {.wish = {.attempt = attempt_blocks, .deadline_ns = deadline_ns},
                            .packing = p,
                            .payload_bytes = p->has_payload ? rest : 0};
    w.wish.bytes = p->total + w.payload_bytes;
    int status = allocate(d, &w);
    if (status != 0)
        return status;
    status = fill(d, p, w.message, w.payload);
    if (status == 0 && p->has_payload)
        status = tni_records_add(d, w.message, w.payload, true);
    if (status == 0) {
        *ret_block = w.message;
        return 0;
    }
    if (p->has_payload)
        tni_ref_release(d, w.payload);
    tni_ref_release(d, w.message);
    return status;
}

int tni_message_check(const struct tn_domain *d, const tn_message *m)
{
    if (m->tensor_count > TN_MESSAGE_MAX_TENSORS)
        return tni_fail(TN_ERR_INVALID, "the message has %u tensors; it can have at most %d",
                        m->tensor_count, TN_MESSAGE_MAX_TENSORS);
    if (m->tensor_count != 0 && m->tensors == NULL)
        return tni_fail(TN_ERR_INVALID,
                        "tensors of the message is NULL, but tensor_count is %u",
                        m->tensor_count);
    if (m->size_bytes != 0 && m->bytes == NULL)
        return tni_fail(TN_ERR_INVALID, "bytes of the message is NULL, but size_bytes is %zu",
                        m->size_bytes);
    if (m->size_bytes > PTRDIFF_MAX)
        return tni_fail(TN_ERR_INVALID,
                        "size_bytes of the message is %zu, more than any memory has",
                        m->size_bytes);
    for (uint32_t i = 0; i < m->tensor_count; i++) {
        if (m->tensors[i] == NULL)
            return tni_fail(TN_ERR_INVALID, "tensor %u of the message is NULL", i);
        int status = tni_tensor_check_shared(d, m->tensors[i]);
        if (status != 0)
            return status;
    }
    return tni_attributes_check_parts(m->tensors, m->tensor_count);
}

/* pre: the message was checked. */
static int make(struct tn_domain *d, const tn_message *m, const struct tni_message_head *head,
                uint64_t deadline_ns, tni_block *ret_block)
{
    struct packing p;
    held_list held;
    int status = hold_attributes(m, &held);
    if (status != 0)
        return status;
    if ((status = measure(m, head, held, &p)) == 0)
        status = build_packed(d, &p, deadline_ns, ret_block);
    drop_attributes(m, held);
    return status;
}

int tni_message_make(struct tn_domain *d, const tn_message *m,
                     const struct tni_message_head *head, uint64_t deadline_ns,
                     tni_block *ret_block)
{
    int status = tni_message_check(d, m);
    return status != 0 ? status : make(d, m, head, deadline_ns, ret_block);
}

int tni_parcel_pack(struct tni_queue *q, const tn_message *m, bool move, uint64_t deadline_ns,
                    struct tni_parcel *ret_parcel)
{
    int status = tni_message_check(q->handle.domain, m);
    if (TNI_UNLIKELY(status != 0))
        return status;
    bool is_tensor = m->tensor_count == 1 && m->size_bytes == 0;
    struct tni_parcel p = {.form = TNI_FORM_BYTES, .is_tensor = is_tensor};
    if (m->tensor_count == 1) {
        p.form = TNI_FORM_TENSOR;
        p.tensor = m->tensors[0];
        p.held = tni_attributes_hold(p.tensor);
        p.view_bytes = (uint32_t)tni_tensor_view_bytes(p.tensor, p.held);
        p.block = p.tensor->storage->block;
        p.move = move && tni_tensor_can_move(p.tensor);
    }
    if (m->tensor_count <= 1 && m->size_bytes <= q->room_bytes &&
        p.view_bytes + m->size_bytes <= q->room_bytes) {
        p.bytes = m->bytes;
        p.bytes_count = (uint32_t)m->size_bytes;
        *ret_parcel = p;
        return 0;
    }
    tni_attributes_drop(p.held);
    p = (struct tni_parcel){.form = TNI_FORM_MESSAGE, .move = true, .is_tensor = is_tensor};
    status = make(q->handle.domain, m, &(struct tni_message_head){0}, deadline_ns, &p.block);
    if (status == 0)
        *ret_parcel = p;
    return status;
}

void tni_parcel_end(struct tni_queue *q, const struct tni_parcel *p, const tn_message *m,
                    bool is_pushed, bool move)
{
    tni_attributes_drop(p->held);
    if (!is_pushed) {
        if (p->form == TNI_FORM_MESSAGE)
            tni_ref_release(q->handle.domain, p->block);
        return;
    }
    /* The push itself ended a tensor whose reference moved into the slot. */
    for (uint32_t i = 0; move && i < m->tensor_count; i++)
        if (p->form != TNI_FORM_TENSOR || !p->move)
            tn_tensor_unref(m->tensors[i]);
}
