/* SPDX-License-Identifier: Apache-2.0 */
/*
 * message: packing and unpacking.
 *
 * Forms. Bytes alone, or one tensor with bytes, lie in the slot when they fit. All else goes
 * into a message block, which holds a record for each tensor and, when the payload is large,
 * one for a block of bytes; the slot then names the message block only. A message is whole
 * before it is pushed.
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

struct sizes {
    uint32_t limit; /* records */
    uint32_t views_bytes;
    uint64_t views_off, bytes_off, total;
    bool has_bytes_block;
};

/* Of each tensor [tensor_count]; NULL: none of them has any. */
typedef struct tni_attributes **held_list;

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

static void measure(const tn_message *m, held_list held, struct sizes *ret)
{
    struct sizes z = {.has_bytes_block = m->size_bytes > INLINE_IN_BLOCK_BYTES};
    z.limit = m->tensor_count + z.has_bytes_block;
    for (uint32_t i = 0; i < m->tensor_count; i++)
        z.views_bytes += (uint32_t)tni_tensor_view_bytes(m->tensors[i], held_of(held, i));
    z.views_off =
        tni_align_up(sizeof(struct tni_records) + (uint64_t)z.limit * sizeof(uint32_t), 8);
    z.bytes_off = z.views_off + z.views_bytes;
    z.total = z.bytes_off + (z.has_bytes_block ? 0 : m->size_bytes);
    *ret = z;
}

static int add_bytes_block(struct tn_domain *d, tni_block message, const tn_message *m,
                           uint64_t deadline_ns)
{
    static const struct tni_block_about about = {.kind = TNI_KIND_BYTES};
    struct tni_records *records = tni_payload_at(&d->segment, message);
    tni_block bytes;
    bool is_zero;
    int status = tni_ref_alloc(d, m->size_bytes, &about, true, deadline_ns, &bytes, &is_zero);
    if (status != 0)
        return status;
    memcpy(tni_payload_at(&d->segment, bytes), m->bytes, m->size_bytes);
    records->bytes_block = bytes.id;
    if ((status = tni_records_add(d, message, bytes, true)) != 0)
        tni_ref_release(d, bytes);
    return status;
}

/* pre: the attributes of the tensors are held */
static int build_with(struct tn_queue *q, const tn_message *m, held_list held,
                      uint64_t deadline_ns, tni_block *ret_block)
{
    static const struct tni_block_about about = {.kind = TNI_KIND_MESSAGE};
    struct tn_domain *d = q->handle.domain;
    struct sizes z;
    tni_block block;
    bool is_zero;

    measure(m, held, &z);
    int status = tni_ref_alloc(d, z.total, &about, true, deadline_ns, &block, &is_zero);
    if (status != 0)
        return status;
    uint8_t *start = tni_payload_at(&d->segment, block);
    struct tni_records *records = (struct tni_records *)(void *)start;
    records->limit = z.limit;
    records->views_bytes = z.views_bytes;
    records->bytes_block = 0;
    records->bytes_count = m->size_bytes;
    records->tensor_count = m->tensor_count;
    records->reserved = 0;
    uint32_t at = 0;
    for (uint32_t i = 0; i < m->tensor_count && status == 0; i++) {
        at += (uint32_t)tni_tensor_encode(m->tensors[i], held_of(held, i), z.views_bytes - at,
                                          start + z.views_off + at);
        status = tni_records_add(d, block, m->tensors[i]->storage->block, false);
    }
    if (status == 0 && z.has_bytes_block)
        status = add_bytes_block(d, block, m, deadline_ns);
    else if (status == 0 && m->size_bytes != 0)
        memcpy(start + z.bytes_off, m->bytes, m->size_bytes);
    if (status != 0)
        tni_ref_release(d, block);
    else
        *ret_block = block;
    return status;
}

static int build_block(struct tn_queue *q, const tn_message *m, uint64_t deadline_ns,
                       tni_block *ret_block)
{
    held_list held;
    int status = hold_attributes(m, &held);
    if (status != 0)
        return status;
    status = build_with(q, m, held, deadline_ns, ret_block);
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
    struct tni_parcel p = {.form = TNI_FORM_BYTES};
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
    p = (struct tni_parcel){.form = TNI_FORM_MESSAGE, .move = true};
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
    uint64_t size = tni_block_bytes(&s->geometry, block);
    if (r == NULL)
        return TN_ERR_CORRUPT;
    uint32_t limit = TNI_LOOK(r->limit), bytes_block = TNI_LOOK(r->bytes_block);
    uint32_t views_bytes = TNI_LOOK(r->views_bytes), tensors = TNI_LOOK(r->tensor_count);
    uint64_t bytes_count = TNI_LOOK(r->bytes_count);
    uint64_t views_off = tni_align_up(sizeof *r + (uint64_t)limit * sizeof(uint32_t), 8);
    uint64_t bytes_off = views_off + views_bytes;
    if (count != limit || tensors > limit || tensors > TN_MESSAGE_MAX_TENSORS ||
        tensors + (bytes_block != 0) != limit || bytes_off > size ||
        (bytes_block == 0 && bytes_count > size - bytes_off))
        return tni_fail(TN_ERR_CORRUPT, "message block %x makes no sense", block.id);
    if (bytes_block != 0 &&
        (!tni_geometry_has_block(&s->geometry, bytes_block) ||
         bytes_count > tni_block_bytes(&s->geometry, (tni_block){bytes_block})))
        return tni_fail(TN_ERR_CORRUPT, "message block %x names a block of bytes that is none",
                        block.id);
    c->tensor_count = tensors;
    c->views = (const uint8_t *)r + views_off;
    c->views_bytes = views_bytes;
    c->records = r->block;
    c->bytes_count = bytes_count;
    c->bytes = bytes_block != 0 ? tni_payload_at(s, (tni_block){bytes_block})
                                : (const void *)((const uint8_t *)r + bytes_off);
    c->are_bytes_shared = true;
    return 0;
}

/* Each field once. The block is that which the taking announced. */
static int read_slot(const struct tn_queue *q, const struct tni_taken *taken,
                     struct contents *c)
{
    const struct tni_geometry *g = &q->handle.domain->segment.geometry;
    const struct tni_slot *slot = taken->slot;
    *c = (struct contents){.form = TNI_LOOK(slot->form), .block = taken->block};
    uint32_t views = TNI_LOOK(slot->view_bytes), bytes = TNI_LOOK(slot->bytes_count);
    bool has_block = c->block.id != 0;

    if (has_block && !tni_geometry_has_block(g, c->block.id)) {
        c->block.id = 0;
        return tni_fail(TN_ERR_CORRUPT, "a slot names block %x, which is none",
                        taken->block.id);
    }
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

/* The usual message once more: one tensor like the last one. False: go the long way. */
static bool unpack_plain(struct tn_queue *q, struct tni_thread *thread,
                         const struct tni_taken *taken, tn_tensor **ret_tensor)
{
    const struct tni_slot *slot = taken->slot;
    uint32_t view_bytes = TNI_LOOK(slot->view_bytes);
    if (TNI_LOOK(slot->form) != TNI_FORM_TENSOR || TNI_LOOK(slot->bytes_count) != 0 ||
        view_bytes > q->room_bytes)
        return false;
    tn_tensor *tensor = tni_tensor_decode_again(q->handle.domain, thread, taken->block,
                                                (const void *)slot->data, view_bytes);
    if (TNI_UNLIKELY(tensor == NULL))
        return false;
    tni_ring_take_end(q, thread, taken);
    *ret_tensor = tensor;
    return true;
}

int tni_parcel_unpack_tensor(struct tn_queue *q, struct tni_thread *thread,
                             const struct tni_taken *taken, tn_tensor **ret_tensor)
{
    struct contents c;
    tn_tensor *tensor = NULL;
    if (TNI_LIKELY(unpack_plain(q, thread, taken, ret_tensor)))
        return 0;
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
