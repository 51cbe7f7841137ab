/* SPDX-License-Identifier: Apache-2.0 */
/*
 * message: packing and unpacking.
 *
 * Forms. Bytes alone, or one tensor with bytes, lie in the slot when they fit. All else goes
 * into a message block, which holds a record for each tensor, then their views and the bytes,
 * or, when these are long, a record for the payload block that they lie in; the slot then names
 * the message block only. A message is whole before it is pushed.
 *
 * Unpacking takes the references of the tensors while the slot is still TAKEN, and un-records
 * the slot last; a death on the way leaves holds, which the reaper gives back, and a message
 * that is delivered again.
 */
#include "queue/message.h"

#include <stdlib.h>
#include <string.h>

enum { INLINE_IN_BLOCK_BYTES = 64 << 10 };

enum { OWNS_DOMAIN, OWNS_BLOCK, OWNS_BUFFER };

/* ---- packing ----------------------------------------------------------------------------- */

/* Of each tensor [tensor_count]; NULL: none of them has any. */
typedef struct tni_attributes **held_list;

/* A message that goes into a message block. */
struct packing {
    const tn_message *message;
    held_list held;
    uint32_t limit; /* records */
    uint32_t views_bytes;
    uint64_t views_off, total; /* of the message block */
    bool has_payload;          /* views and bytes are in a block of their own */
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

/* Held from the measuring to the encoding, between which the call may wait for memory. */
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

static int measure(const tn_message *m, held_list held, struct packing *ret)
{
    struct packing p = {.message = m, .held = held};
    uint64_t views_bytes = 0;
    for (uint32_t i = 0; i < m->tensor_count; i++)
        views_bytes += tni_tensor_view_bytes(m->tensors[i], held_of(held, i));
    if (views_bytes > UINT32_MAX)
        return tni_fail(TN_ERR_INVALID, "%u tensors whose shapes and attributes are %llu bytes",
                        m->tensor_count, (unsigned long long)views_bytes);
    p.views_bytes = (uint32_t)views_bytes;
    p.has_payload =
        views_bytes > INLINE_IN_BLOCK_BYTES || m->size_bytes > INLINE_IN_BLOCK_BYTES;
    p.limit = m->tensor_count + p.has_payload;
    p.views_off =
        tni_align_up(sizeof(struct tni_records) + (uint64_t)p.limit * sizeof(uint32_t), 8);
    p.total = p.views_off + (p.has_payload ? 0 : views_bytes + m->size_bytes);
    *ret = p;
    return 0;
}

/* `to`: room for them all, aligned to 8 */
static void write_views_and_bytes(const struct packing *p, uint8_t *to)
{
    const tn_message *m = p->message;
    uint32_t at = 0;
    for (uint32_t i = 0; i < m->tensor_count; i++)
        at += (uint32_t)tni_tensor_encode(m->tensors[i], held_of(p->held, i),
                                          p->views_bytes - at, to + at);
    if (m->size_bytes != 0)
        memcpy(to + p->views_bytes, m->bytes, m->size_bytes);
}

static int add_records(struct tn_domain *d, tni_block message, const tn_message *m)
{
    int status = 0;
    for (uint32_t i = 0; i < m->tensor_count && status == 0; i++)
        status = tni_records_add(d, message, m->tensors[i]->storage->block, false);
    return status;
}

static int add_payload(struct tn_domain *d, tni_block message, const struct packing *p,
                       uint64_t deadline_ns)
{
    static const struct tni_block_about about = {.kind = TNI_KIND_BYTES};
    struct tni_records *records = tni_payload_at(&d->segment, message);
    uint64_t bytes = p->views_bytes + (uint64_t)p->message->size_bytes;
    tni_block payload;
    bool is_zero;
    int status = tni_ref_alloc(d, bytes, &about, true, deadline_ns, &payload, &is_zero);
    if (status != 0)
        return status;
    write_views_and_bytes(p, tni_payload_at(&d->segment, payload));
    records->payload_block = payload.id;
    if ((status = tni_records_add(d, message, payload, true)) != 0)
        tni_ref_release(d, payload);
    return status;
}

static int build_packed(struct tn_domain *d, const struct packing *p, uint64_t deadline_ns,
                        tni_block *ret_block)
{
    static const struct tni_block_about about = {.kind = TNI_KIND_MESSAGE};
    tni_block block;
    bool is_zero;

    int status = tni_ref_alloc(d, p->total, &about, true, deadline_ns, &block, &is_zero);
    if (status != 0)
        return status;
    uint8_t *start = tni_payload_at(&d->segment, block);
    struct tni_records *records = (struct tni_records *)(void *)start;
    records->limit = p->limit;
    records->views_bytes = p->views_bytes;
    records->payload_block = 0;
    records->bytes_count = p->message->size_bytes;
    records->tensor_count = p->message->tensor_count;
    records->reserved = 0;
    status = add_records(d, block, p->message);
    if (status == 0 && p->has_payload)
        status = add_payload(d, block, p, deadline_ns);
    else if (status == 0)
        write_views_and_bytes(p, start + p->views_off);
    if (status != 0)
        tni_ref_release(d, block);
    else
        *ret_block = block;
    return status;
}

static int build_block(struct tn_queue *q, const tn_message *m, uint64_t deadline_ns,
                       tni_block *ret_block)
{
    struct packing p;
    held_list held;
    int status = hold_attributes(m, &held);
    if (status != 0)
        return status;
    if ((status = measure(m, held, &p)) == 0)
        status = build_packed(q->handle.domain, &p, deadline_ns, ret_block);
    drop_attributes(m, held);
    return status;
}

static int check_message(const struct tn_queue *q, const tn_message *m)
{
    if (m->tensor_count > TN_MESSAGE_MAX_TENSORS)
        return tni_fail(TN_ERR_INVALID, "a message of %u tensors; at most %d are allowed",
                        m->tensor_count, TN_MESSAGE_MAX_TENSORS);
    if ((m->tensor_count != 0 && m->tensors == NULL) ||
        (m->size_bytes != 0 && m->bytes == NULL))
        return tni_fail(TN_ERR_INVALID, "a message with a count but a NULL pointer");
    for (uint32_t i = 0; i < m->tensor_count; i++) {
        if (m->tensors[i] == NULL)
            return tni_fail(TN_ERR_INVALID, "tensor %u of the message is NULL", i);
        int status = tni_tensor_check_shared(q->handle.domain, m->tensors[i]);
        if (status != 0)
            return status;
    }
    return tni_attributes_check_parts(m->tensors, m->tensor_count);
}

int tni_parcel_pack(struct tn_queue *q, const tn_message *m, bool move, uint64_t deadline_ns,
                    struct tni_parcel *ret_parcel)
{
    int status = check_message(q, m);
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
        p.move = move && tni_tensor_is_sole(p.tensor);
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
    if ((status = build_block(q, m, deadline_ns, &p.block)) == 0)
        *ret_parcel = p;
    return status;
}

void tni_parcel_end(struct tn_queue *q, const struct tni_parcel *p, const tn_message *m,
                    bool is_pushed, bool move)
{
    tni_attributes_drop(p->held);
    if (!is_pushed) {
        if (p->form == TNI_FORM_MESSAGE)
            tni_ref_release(q->handle.domain, p->block);
        return;
    }
    /* A tensor whose reference lies in the slot now ended with the push. */
    for (uint32_t i = 0; move && i < m->tensor_count; i++)
        if (p->form != TNI_FORM_TENSOR || !p->move)
            tn_tensor_unref(m->tensors[i]);
}

/* ---- unpacking --------------------------------------------------------------------------- */

/* What a slot says, checked. */
struct contents {
    uint8_t form;
    tni_block block; /* 0: none */
    uint32_t tensor_count;
    const uint8_t *views; /* of a message block, or the slot's own */
    uint32_t views_bytes;
    const uint32_t *records; /* [tensor_count]; NULL: the slot's block */
    const void *bytes;
    uint64_t bytes_count;
    bool are_bytes_shared; /* they stay where they are, as long as the block is held */
};

static int read_message_block(const struct tn_queue *q, tni_block block, struct contents *c)
{
    const struct tni_segment *s = &q->handle.domain->segment;
    uint32_t count;
    const struct tni_records *r = tni_records_at(s, block, &count);
    if (r == NULL)
        return TN_ERR_CORRUPT;
    uint32_t limit = TNI_LOOK(r->limit), payload = TNI_LOOK(r->payload_block);
    uint32_t views_bytes = TNI_LOOK(r->views_bytes), tensors = TNI_LOOK(r->tensor_count);
    uint64_t bytes_count = TNI_LOOK(r->bytes_count);
    uint64_t views_off = tni_align_up(sizeof *r + (uint64_t)limit * sizeof(uint32_t), 8);
    uint64_t size = tni_block_bytes(&s->geometry, block);
    if (count != limit || tensors > limit || tensors > TN_MESSAGE_MAX_TENSORS ||
        tensors + (payload != 0) != limit || views_off > size)
        return tni_fail(TN_ERR_CORRUPT, "message block %x makes no sense", block.id);
    const uint8_t *views = (const uint8_t *)r + views_off;
    uint64_t room = size - views_off;
    if (payload != 0) {
        if (!tni_geometry_has_block(&s->geometry, payload))
            return tni_fail(TN_ERR_CORRUPT,
                            "message block %x names payload block %x, which is none", block.id,
                            payload);
        views = tni_payload_at(s, (tni_block){payload});
        room = tni_block_bytes(&s->geometry, (tni_block){payload});
    }
    if (views_bytes > room || bytes_count > room - views_bytes)
        return tni_fail(TN_ERR_CORRUPT, "message block %x states more than its payload holds",
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

/* Each field once. The block is that which the taking announced. */
static int read_slot(const struct tn_queue *q, const struct tni_taken *taken,
                     struct contents *c)
{
    const struct tni_slot *slot = taken->slot;
    *c = (struct contents){.form = TNI_LOOK(slot->form), .block = taken->block};
    uint32_t views = TNI_LOOK(slot->view_bytes), bytes = TNI_LOOK(slot->bytes_count);
    bool has_block = c->block.id != 0;

    if (taken->named.id != taken->block.id)
        return tni_fail(TN_ERR_CORRUPT, "a slot names block %x, which is none",
                        taken->named.id);
    if (c->form == TNI_FORM_MESSAGE && has_block &&
        tni_class_is_message(tni_block_class(c->block)))
        return read_message_block(q, c->block, c);
    if (views > q->room_bytes || bytes > q->room_bytes - views || c->form > TNI_FORM_TENSOR ||
        has_block != (c->form == TNI_FORM_TENSOR) ||
        (has_block && tni_class_is_message(tni_block_class(c->block))))
        return tni_fail(TN_ERR_CORRUPT, "a slot of queue " TNI_NAME_FORMAT " makes no sense",
                        q->handle.object->name);
    c->tensor_count = has_block;
    c->views = slot->data;
    c->views_bytes = views;
    c->bytes = slot->data + views;
    c->bytes_count = bytes;
    return 0;
}

/* Private objects for all tensors; they own no reference yet. */
static int decode_all(struct tn_queue *q, struct tni_thread *thread, const struct contents *c,
                      tn_tensor **ret_tensors)
{
    struct tn_domain *d = q->handle.domain;
    uint32_t at = 0, made = 0;
    int status = 0;

    for (; made < c->tensor_count; made++) {
        const struct tni_view *view = (const struct tni_view *)(const void *)(c->views + at);
        uint32_t record = c->records != NULL ? TNI_LOOK(c->records[made]) : c->block.id;
        status = tni_tensor_decode(d, view, c->views_bytes - at, &ret_tensors[made]);
        if (TNI_UNLIKELY(status < 0))
            break;
        at += (uint32_t)status;
        /* What was decoded, not what stands there now. */
        uint32_t named = ret_tensors[made]->storage->block.id;
        if (TNI_UNLIKELY(named != record)) {
            made++;
            status =
                tni_fail(TN_ERR_CORRUPT, "a view names block %x, its record %x", named, record);
            break;
        }
    }
    if (status >= 0)
        return 0;
    while (made-- > 0)
        tni_tensor_forget(thread, ret_tensors[made]);
    return status;
}

/*
 * References for tensors that a message block keeps. The slot is TAKEN, so the message block
 * stays.
 */
static int hold_all(struct tn_queue *q, struct tni_thread *thread, const struct contents *c,
                    tn_tensor **tensors)
{
    struct tn_domain *d = q->handle.domain;
    for (uint32_t i = 0; i < c->tensor_count; i++) {
        tni_block block = tensors[i]->storage->block;
        tni_announce(thread, block, 1);
        int status = tni_ref_pin(d, block);
        if (status == 0) {
            tni_ref_adopt(d, thread, block);
            continue;
        }
        tni_announce_clear(thread);
        for (uint32_t j = 0; j < i; j++)
            tni_ref_release_with(d, thread, tensors[j]->storage->block);
        for (uint32_t j = 0; j < c->tensor_count; j++)
            tni_tensor_forget(thread, tensors[j]);
        tni_announce_fence(thread, c->block); /* as it was */
        return status;
    }
    tni_announce(thread, c->block, 1); /* as it was: the slot is un-recorded next */
    atomic_thread_fence(memory_order_seq_cst);
    return 0;
}

static int end_taking(struct tn_queue *q, struct tni_thread *thread,
                      const struct tni_taken *taken)
{
    if (q->policy == TN_QUEUE_LEASE)
        return tni_ring_lease(q, thread, taken);
    tni_ring_take_end(q, thread, taken);
    return 0;
}

static int unpack(struct tn_queue *q, struct tni_thread *thread, const struct tni_taken *taken,
                  const struct contents *c, tn_message *ret_message)
{
    struct tn_domain *d = q->handle.domain;
    uint64_t copied = c->are_bytes_shared ? 0 : c->bytes_count;
    tn_message m = {.tensor_count = c->tensor_count,
                    .size_bytes = c->bytes_count,
                    .attempt = taken->slot->attempt,
                    .producer_seat = taken->slot->producer};
    uint8_t *buffer = NULL;
    int status;

    if (c->tensor_count + copied != 0 &&
        (buffer = malloc(c->tensor_count * sizeof(tn_tensor *) + copied)) == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "no private memory for a message");
    m.tensors = c->tensor_count != 0 ? (tn_tensor **)(void *)buffer : NULL;
    if ((status = decode_all(q, thread, c, m.tensors)) != 0)
        goto free_buffer;
    if (copied != 0)
        memcpy(buffer + c->tensor_count * sizeof(tn_tensor *), c->bytes, copied);
    m.bytes = c->bytes_count == 0 ? NULL
              : copied != 0       ? buffer + c->tensor_count * sizeof(tn_tensor *)
                                  : c->bytes;
    if (c->form == TNI_FORM_MESSAGE && (status = hold_all(q, thread, c, m.tensors)) != 0)
        goto free_buffer;
    m.lease = q->policy == TN_QUEUE_LEASE ? taken->position + 1 : 0;
    if ((status = end_taking(q, thread, taken)) != 0)
        goto forget;
    m.internal[OWNS_DOMAIN] = d;
    /* Without a tensor that has it, the reference that came along is the message's. */
    bool owns_block = c->form == TNI_FORM_MESSAGE || c->tensor_count == 0;
    m.internal[OWNS_BLOCK] = (void *)(uintptr_t)(owns_block ? c->block.id : 0);
    m.internal[OWNS_BUFFER] = buffer;
    *ret_message = m;
    return 0;

forget:
    for (uint32_t i = 0; i < c->tensor_count; i++) {
        if (c->form == TNI_FORM_MESSAGE)
            tni_ref_release_with(d, thread, m.tensors[i]->storage->block);
        tni_tensor_forget(thread, m.tensors[i]);
    }
free_buffer:
    free(buffer);
    return status;
}

/*
 * What nobody can have any more, as a storage whose file was removed, would stand in the way of
 * all that follows. What failed for want of room can be had later.
 */
static bool is_lost(int status)
{
    return status == TN_ERR_CORRUPT || status == TN_ERR_NOT_FOUND || status == TN_ERR_DENIED ||
           status == TN_ERR_VERSION || status == TN_ERR_STALE;
}

/*
 * The taking ends all the same. Where `ret_lost` asks for it, a message without its tensors is
 * delivered: taken or leased as it would be with them, so a death of who has it leaves what it
 * always leaves. `c` is NULL when the slot makes no sense.
 */
static int unpack_failed(struct tn_queue *q, struct tni_thread *thread,
                         const struct tni_taken *taken, int status, struct contents *c,
                         tn_message *ret_message, int *ret_lost)
{
    bool is_wanted = is_lost(status) && ret_lost != NULL;
    if (is_wanted)
        *ret_lost = status;
    if (is_wanted && c != NULL) {
        c->tensor_count = 0;
        status = unpack(q, thread, taken, c, ret_message);
        if (status == 0)
            return 0;
    }
    if (!is_lost(status)) {
        tni_ring_untake(q, thread, taken);
        return status;
    }
    tni_ring_discard(q, thread, taken);
    if (!is_wanted)
        return status;
    *ret_message = (tn_message){0};
    return 0;
}

int tni_parcel_unpack(struct tn_queue *q, struct tni_thread *thread,
                      const struct tni_taken *taken, tn_message *ret_message, int *ret_lost,
                      bool keeps_lost)
{
    struct contents c;
    int status = read_slot(q, taken, &c);
    bool is_readable = status == 0;
    if (TNI_LIKELY(is_readable))
        status = unpack(q, thread, taken, &c, ret_message);
    if (TNI_UNLIKELY(status != 0) && keeps_lost)
        tni_ring_untake(q, thread, taken);
    else if (TNI_UNLIKELY(status != 0))
        status = unpack_failed(q, thread, taken, status, is_readable ? &c : NULL, ret_message,
                               ret_lost);
    return status;
}

/* One tensor whose view and attributes are too long for a slot, or none. Ends the taking. */
static int unpack_long_tensor(struct tn_queue *q, struct tni_thread *thread,
                              const struct tni_taken *taken, const struct contents *c,
                              tn_tensor **ret_tensor)
{
    tn_message m;
    if (c->tensor_count != 1 || c->bytes_count != 0)
        return tni_fail(TN_ERR_INVALID,
                        "the oldest message of queue " TNI_NAME_FORMAT " is not one tensor",
                        q->handle.object->name);
    int status = unpack(q, thread, taken, c, &m);
    if (status != 0)
        return status;
    *ret_tensor = m.tensors[0];
    tni_ref_release_with(q->handle.domain, thread, c->block);
    free(m.internal[OWNS_BUFFER]);
    return 0;
}

/* The usual message once more: one tensor like the last one. NULL: go the long way. */
static inline tn_tensor *decode_plain(struct tn_queue *q, struct tni_thread *thread,
                                      const struct tni_taken *taken)
{
    const struct tni_slot *slot = taken->slot;
    uint32_t view_bytes = TNI_LOOK(slot->view_bytes);
    if (TNI_UNLIKELY(TNI_LOOK(slot->form) != TNI_FORM_TENSOR ||
                     TNI_LOOK(slot->bytes_count) != 0 || view_bytes > q->room_bytes))
        return NULL;
    return tni_tensor_decode_again(q->handle.domain, thread, taken->block,
                                   (const void *)slot->data, view_bytes);
}

int tni_parcel_unpack_tensor(struct tn_queue *q, struct tni_thread *thread,
                             const struct tni_taken *taken, tn_tensor **ret_tensor)
{
    struct contents c;
    tn_tensor *tensor = NULL;
    int status = read_slot(q, taken, &c);
    bool is_long = status == 0 && (c.form != TNI_FORM_TENSOR || c.bytes_count != 0);
    if (TNI_UNLIKELY(is_long))
        status = unpack_long_tensor(q, thread, taken, &c, &tensor);
    else if (status == 0)
        status = decode_all(q, thread, &c, &tensor);
    if (TNI_LIKELY(status == 0)) {
        if (TNI_LIKELY(!is_long))
            tni_ring_take_end(q, thread, taken);
        *ret_tensor = tensor;
    } else if (is_lost(status)) {
        tni_ring_discard(q, thread, taken);
    } else {
        tni_ring_untake(q, thread, taken);
    }
    return status;
}

int tni_parcel_pop_tensor(struct tn_queue *q, struct tni_seen seen, tn_tensor **ret_tensor)
{
    struct tni_thread *thread;
    struct tni_taken taken;
    if (TNI_UNLIKELY(!tni_ring_take_head(q, seen, &thread, &taken)))
        return 1;
    tn_tensor *tensor = decode_plain(q, thread, &taken);
    int status = 0;
    if (TNI_LIKELY(tensor != NULL)) {
        tni_ring_take_end(q, thread, &taken);
        *ret_tensor = tensor;
    } else {
        status = tni_parcel_unpack_tensor(q, thread, &taken, ret_tensor);
    }
    tni_thread_leave(thread);
    return status;
}

/* ---- what a popped message owns ---------------------------------------------------------- */

void tn_message_fini(tn_message *m)
{
    if (m == NULL)
        return;
    struct tn_domain *d = m->internal[OWNS_DOMAIN];
    tni_block block = {(uint32_t)(uintptr_t)m->internal[OWNS_BLOCK]};
    if (d != NULL) {
        for (uint32_t i = 0; i < m->tensor_count; i++)
            tn_tensor_unref(m->tensors[i]);
        if (block.id != 0)
            tni_ref_release(d, block);
        free(m->internal[OWNS_BUFFER]);
    }
    *m = (tn_message){0};
}
