/* SPDX-License-Identifier: Apache-2.0 */
/* unpack: turn the content of a slot into a tn_message. The invariants are in message.c. */
#include <stdlib.h>
#include <string.h>

#include "queue/contents.h"
#include "queue/message.h"

/* Reads each field of the slot once. */
static int read_slot(const struct tni_queue *q, const struct tni_taken *found,
                     struct tni_contents *c)
{
    const struct tni_slot *slot = found->slot;
    *c = (struct tni_contents){.form = tni_form_form(found->form), .block = found->block};
    uint32_t views = tni_form_view_bytes(found->form), bytes = found->bytes_count;
    bool has_block = c->block.id != 0;

    if (found->named.id != found->block.id)
        return tni_fail(TN_ERR_CORRUPT, "a slot names block %08x, which does not exist",
                        found->named.id);
    if (c->form == TNI_FORM_MESSAGE && has_block &&
        tni_class_is_message(tni_block_class(c->block)))
        return tni_contents_read(&q->handle.domain->segment, c->block, c);
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
    struct tni_contents contents;
    tn_message message;
    bool is_single;  /* the caller wants one tensor, not a message */
    tn_tensor *one;  /* that tensor */
    uint8_t *buffer; /* else: the list of tensors, and copied bytes */
    int lost;        /* why the message is delivered without its tensors, or 0 */
};

/* Make the private part of the message, without any change to shared memory. */
static int obtain_parts(struct tni_queue *q, struct tni_thread *thread, struct unpacking *u)
{
    const struct tni_contents *c = &u->contents;
    uint64_t copied = c->are_bytes_shared ? 0 : c->bytes_count;
    bool has_list = !u->is_single && c->tensor_count != 0;
    size_t tensors_bytes = has_list ? c->tensor_count * sizeof(tn_tensor *) : 0;

    u->buffer = NULL;
    if ((has_list || copied != 0) && (u->buffer = malloc(tensors_bytes + copied)) == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "no private memory for a message");
    tn_tensor **tensors = u->is_single ? &u->one : (tn_tensor **)(void *)u->buffer;
    const struct tni_still still = {&u->at.slot->word, u->at.word};
    int status = tni_contents_decode(q->handle.domain, thread, c, &still, tensors);
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
    const struct tni_contents *c = &u->contents;
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

/* pre: the slot is TAKEN, so it keeps the message block. */
static int hold_all(struct tni_queue *q, struct tni_thread *thread,
                    const struct tni_contents *c, tn_tensor **tensors)
{
    int status = tni_contents_hold(q->handle.domain, thread, c, NULL, tensors);
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
    const struct tni_contents *c = &u->contents;
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
    const struct tni_contents *c = &u->contents;
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
