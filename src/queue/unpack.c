/* SPDX-License-Identifier: Apache-2.0 */
/* unpack: turn the content of a slot into a tn_message. The invariants are in message.c. */
#include <stdlib.h>
#include <string.h>

#include "queue/message.h"

/* The content of a slot, checked. */
struct contents {
    uint8_t form;
    tni_block block; /* 0: none */
    uint32_t tensor_count;
    const uint8_t *views; /* of a message block, or the slot's own */
    uint32_t views_bytes;
    const uint32_t *records; /* [tensor_count]; NULL: the slot's block */
    const void *bytes;
    uint64_t bytes_count;
    bool are_bytes_shared; /* they stay in the block, which the message holds */
};

static int read_message_block(const struct tni_queue *q, tni_block block, struct contents *c)
{
    const struct tni_segment *s = &q->handle.domain->segment;
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

/* Reads each field of the slot once. */
static int read_slot(const struct tni_queue *q, const struct tni_taken *found,
                     struct contents *c)
{
    const struct tni_slot *slot = found->slot;
    *c = (struct contents){.form = tni_form_form(found->form), .block = found->block};
    uint32_t views = tni_form_view_bytes(found->form), bytes = found->bytes_count;
    bool has_block = c->block.id != 0;

    if (found->named.id != found->block.id)
        return tni_fail(TN_ERR_CORRUPT, "a slot names block %08x, which does not exist",
                        found->named.id);
    if (c->form == TNI_FORM_MESSAGE && has_block &&
        tni_class_is_message(tni_block_class(c->block)))
        return read_message_block(q, c->block, c);
    if (views > q->room_bytes || bytes > q->room_bytes - views || c->form > TNI_FORM_TENSOR ||
        has_block != (c->form == TNI_FORM_TENSOR) ||
        (has_block && tni_class_is_message(tni_block_class(c->block))))
        return tni_fail(TN_ERR_CORRUPT, "a slot of the queue " TNI_TITLE_FORMAT " is damaged",
                        TNI_TITLE(q->handle.object->name));
    c->tensor_count = has_block;
    c->views = slot->data;
    c->views_bytes = views;
    c->bytes = slot->data + views;
    c->bytes_count = bytes;
    return 0;
}

/* A message in the queue, and what a pop obtained for it. */
struct unpacking {
    struct tni_taken at;
    struct contents contents;
    tn_message message;
    bool is_single;  /* the caller wants one tensor, not a message */
    tn_tensor *one;  /* that tensor */
    uint8_t *buffer; /* else: the list of tensors, and copied bytes */
    int lost;        /* why the message is delivered without its tensors, or 0 */
};

/*
 * Make private objects for all tensors; they own no reference yet. TN_ERR_TIMED_OUT: another
 * process took the message meanwhile. Then what this process reads may be garbage, so it checks
 * before each tensor, to make no system call for a storage that does not exist.
 */
static int decode_all(struct tni_queue *q, struct tni_thread *thread, const struct unpacking *u,
                      tn_tensor **ret_tensors)
{
    struct tn_domain *d = q->handle.domain;
    const struct contents *c = &u->contents;
    uint32_t at = 0, made = 0;
    int status = 0;

    for (; made < c->tensor_count; made++) {
        const struct tni_view *view = (const struct tni_view *)(const void *)(c->views + at);
        uint32_t record = c->block.id;
        if (c->records != NULL)
            tni_copy_unstable(&record, &c->records[made], sizeof record);
        status = TN_ERR_TIMED_OUT;
        if (TNI_LIKELY(tni_ring_is_still(&u->at)))
            status = tni_tensor_decode(d, view, c->views_bytes - at, &ret_tensors[made]);
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

/* Make the private part of the message, without any change to shared memory. */
static int obtain_parts(struct tni_queue *q, struct tni_thread *thread, struct unpacking *u)
{
    const struct contents *c = &u->contents;
    uint64_t copied = c->are_bytes_shared ? 0 : c->bytes_count;
    bool has_list = !u->is_single && c->tensor_count != 0;
    size_t tensors_bytes = has_list ? c->tensor_count * sizeof(tn_tensor *) : 0;

    u->buffer = NULL;
    if ((has_list || copied != 0) && (u->buffer = malloc(tensors_bytes + copied)) == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "no private memory for a message");
    tn_tensor **tensors = u->is_single ? &u->one : (tn_tensor **)(void *)u->buffer;
    int status = decode_all(q, thread, u, tensors);
    if (status != 0) {
        free(u->buffer);
        return status;
    }
    if (copied != 0)
        tni_copy_unstable(u->buffer + tensors_bytes, c->bytes, copied);
    const void *bytes = copied != 0 ? u->buffer + tensors_bytes : c->bytes;
    u->message = (tn_message){.bytes = c->bytes_count != 0 ? bytes : NULL,
                              .size_bytes = c->bytes_count,
                              .tensors = c->tensor_count != 0 ? tensors : NULL,
                              .tensor_count = c->tensor_count};
    return 0;
}

static void drop_parts(struct tni_thread *thread, const struct unpacking *u)
{
    for (uint32_t i = 0; i < u->message.tensor_count; i++)
        tni_tensor_forget(thread, u->message.tensors[i]);
    free(u->buffer);
}

/*
 * Whether no process can have the message any more, for example because the file of a storage
 * was removed. Such a message would block all later ones. If memory ran out, this process can
 * receive the message later; if this process may not open it, another process can receive it.
 */
static bool is_lost(int status)
{
    return status == TN_ERR_CORRUPT || status == TN_ERR_NOT_FOUND || status == TN_ERR_VERSION ||
           status == TN_ERR_STALE || status == TN_ERR_PEER_DIED;
}

/* Check that the counts have room for the references of hold_all() and of a lease. */
static int check_room(struct tni_queue *q, const struct unpacking *u)
{
    const struct contents *c = &u->contents;
    int status = 0;
    if (TNI_UNLIKELY(q->policy == TN_QUEUE_LEASE && c->block.id != 0))
        status = tni_ref_check_room(q->handle.domain, c->block);
    if (c->form != TNI_FORM_MESSAGE)
        return status;
    for (uint32_t i = 0; status == 0 && i < c->tensor_count; i++)
        status = tni_ref_check_room(q->handle.domain, u->message.tensors[i]->storage->block);
    return status;
}

static int fail_not_a_tensor(const struct tni_queue *q)
{
    return tni_fail(TN_ERR_INVALID,
                    "the oldest message of the queue " TNI_TITLE_FORMAT " is not one tensor",
                    TNI_TITLE(q->handle.object->name));
}

/* Obtain all that the message at u->at needs. */
static int obtain(struct tni_queue *q, struct tni_thread *thread,
                  const struct tni_wanted *wanted, struct unpacking *u)
{
    u->is_single = wanted->tensor != NULL;
    u->lost = 0;
    if (u->is_single && !tni_form_is_tensor(u->at.form))
        return fail_not_a_tensor(q);
    int status = read_slot(q, &u->at, &u->contents);
    if (TNI_UNLIKELY(status != 0))
        return status;
    if (u->is_single && (u->contents.tensor_count != 1 || u->contents.bytes_count != 0))
        return fail_not_a_tensor(q);
    status = obtain_parts(q, thread, u);
    if (TNI_UNLIKELY(is_lost(status)) && wanted->lost != NULL) {
        u->lost = status;
        u->contents.tensor_count = 0;
        status = obtain_parts(q, thread, u);
    }
    if (TNI_LIKELY(status == 0) && TNI_UNLIKELY((status = check_room(q, u)) != 0))
        drop_parts(thread, u);
    return status;
}

/* Take references of the tensors. pre: the slot is TAKEN, so it keeps the message block. */
static int hold_all(struct tni_queue *q, struct tni_thread *thread, const struct contents *c,
                    tn_tensor **tensors)
{
    struct tn_domain *d = q->handle.domain;
    int status = 0;
    for (uint32_t i = 0; i < c->tensor_count && status == 0; i++) {
        tni_block block = tensors[i]->storage->block;
        tni_announce(thread, block, 1);
        status = tni_ref_pin(d, block);
        if (status == 0) {
            tni_ref_adopt(d, thread, block);
            continue;
        }
        tni_announce_clear(thread);
        while (i-- > 0)
            tni_ref_release_with(d, thread, tensors[i]->storage->block);
        break;
    }
    tni_announce(thread, c->block, 1); /* announced again: the slot is emptied next */
    atomic_thread_fence(memory_order_seq_cst);
    return status;
}

static int end_taking(struct tni_queue *q, struct tni_thread *thread,
                      const struct tni_taken *taken)
{
    if (q->policy == TN_QUEUE_LEASE)
        return tni_ring_lease(q, thread, taken);
    tni_ring_take_end(q, thread, taken);
    return 0;
}

/* Take the references. pre: taken. Fails only if a count is damaged: then the message is lost.
 */
static int take_references(struct tni_queue *q, struct tni_thread *thread, struct unpacking *u)
{
    const struct contents *c = &u->contents;
    tn_message *m = &u->message;
    bool is_block = c->form == TNI_FORM_MESSAGE;
    int status = is_block ? hold_all(q, thread, c, m->tensors) : 0;
    if (TNI_LIKELY(status == 0)) {
        uint64_t form = TNI_LOOK(*tni_slot_form(u->at.slot));
        m->attempt = tni_form_attempt(form);
        m->producer_seat = tni_form_producer(form);
        m->lease = q->policy == TN_QUEUE_LEASE ? u->at.position + 1 : 0;
        status = end_taking(q, thread, &u->at);
        for (uint32_t i = 0; TNI_UNLIKELY(status != 0) && is_block && i < c->tensor_count; i++)
            tni_ref_release_with(q->handle.domain, thread, m->tensors[i]->storage->block);
    }
    if (TNI_LIKELY(status == 0))
        return 0;
    drop_parts(thread, u);
    tni_ring_discard(q, thread, &u->at);
    return status;
}

static void hand_out(struct tni_queue *q, struct tni_thread *thread, const struct unpacking *u,
                     const struct tni_wanted *wanted)
{
    const struct contents *c = &u->contents;
    /* If no tensor has the reference of the slot, the message owns it. */
    bool owns_block = c->form == TNI_FORM_MESSAGE || c->tensor_count == 0;
    if (u->is_single) {
        if (owns_block)
            tni_ref_release_with(q->handle.domain, thread, c->block);
        *wanted->tensor = u->one;
        return;
    }
    *wanted->message = u->message;
    wanted->message->internal[TNI_OWNS_DOMAIN] = q->handle.domain;
    wanted->message->internal[TNI_OWNS_BLOCK] =
        (void *)(uintptr_t)(owns_block ? c->block.id : 0);
    wanted->message->internal[TNI_OWNS_BUFFER] = u->buffer;
    if (TNI_UNLIKELY(u->lost != 0))
        *wanted->lost = u->lost;
}

/*
 * Complete the take of a lost message, and drop it. If the caller wants the bytes of lost
 * messages, obtain() found that not even the bytes can be read.
 */
static int discard_lost(struct tni_queue *q, struct tni_thread *thread,
                        const struct tni_taken *taken, int status,
                        const struct tni_wanted *wanted)
{
    tni_ring_discard(q, thread, taken);
    if (wanted->lost == NULL)
        return status;
    *wanted->lost = status;
    *wanted->message = (tn_message){0};
    return 0;
}

int tni_parcel_pop(struct tni_queue *q, struct tni_thread *thread,
                   const struct tni_wanted *wanted)
{
    struct unpacking u;
    for (uint32_t tries = 0; tries < TNI_MOST_TRIES && tni_ring_find(q, &u.at) == 0; tries++) {
        int status = obtain(q, thread, wanted, &u);
        bool is_obtained = status == 0;
        if (TNI_UNLIKELY(!is_obtained && (!is_lost(status) || wanted->is_next))) {
            if (status != TN_ERR_TIMED_OUT && tni_ring_is_still(&u.at))
                return status;
            continue; /* another process has taken it */
        }
        if (TNI_UNLIKELY(!tni_ring_take(q, thread, &u.at))) {
            if (is_obtained)
                drop_parts(thread, &u);
            continue;
        }
        if (TNI_UNLIKELY(!is_obtained))
            return discard_lost(q, thread, &u.at, status, wanted);
        status = take_references(q, thread, &u);
        if (TNI_LIKELY(status == 0))
            hand_out(q, thread, &u, wanted);
        return status;
    }
    return TN_ERR_TIMED_OUT;
}
