/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handle: this process's handles on objects.
 *
 * Nouns: handle (what tn_queue, tn_event, ... point at), lists (of all handles of the
 * process, and of its handles on each entry of the table).
 * I2  A seat's bit in `openers` is set before any other bit of the seat in that object, and
 *     cleared last.
 * I4  A seat's bit in its row of opens is set before its bit in `openers`, and cleared
 *     after all else is done. So a reaper finds all objects of a seat in the seat's row.
 * Callers: object.c, users. Death: handles are private memory; the reaper clears the seat's
 * bits.
 */
#include "object/handle.h"

#include <stdlib.h>
#include <string.h>

static const char *const kind_names[TNI_OBJECT_KINDS] = {
    NULL, "queue", "event", "semaphore", "lock", "condition", "barrier", "store", "channel"};

const char *tni_object_kind_name(uint32_t kind)
{
    return kind < TNI_OBJECT_KINDS ? kind_names[kind] : NULL;
}

static struct tni_thread *handles_enter(struct tn_domain *d)
{
    struct tni_thread *thread = tni_thread_enter(d);
    tni_mutex_lock(&tni_object_part(d)->handles_lock);
    return thread;
}

static void handles_leave(struct tn_domain *d, struct tni_thread *thread)
{
    tni_mutex_unlock(&tni_object_part(d)->handles_lock);
    tni_thread_leave(thread);
}

static void note_deaths(struct tn_object *handle)
{
    for (uint32_t side = 0; side < TNI_COUNT(handle->deaths_seen); side++)
        atomic_store(&handle->deaths_seen[side],
                     tni_death_count(atomic_load(&handle->object->death[side])));
}

static bool is_first_of_object(const struct tn_object *handle, const struct tn_object *same)
{
    return same == NULL || same->generation != handle->generation;
}

/* pre: this thread has handles_lock. */
static void list_handle(struct tn_domain *d, struct tn_object *handle)
{
    struct tn_object **same = &tni_object_part(d)->handles_on[handle->index];
    handle->roles = &d->roles[handle->index];
    if (is_first_of_object(handle, *same))
        atomic_store(handle->roles, 0);
    handle->next = tni_object_part(d)->handles;
    if (tni_object_part(d)->handles != NULL)
        tni_object_part(d)->handles->before = handle;
    tni_object_part(d)->handles = handle;
    handle->next_same = *same;
    if (*same != NULL)
        (*same)->before_same = handle;
    *same = handle;
    handle->is_listed = true;
}

/* pre: this thread has handles_lock. */
static void unlist_handle(struct tn_domain *d, struct tn_object *handle)
{
    *(handle->before != NULL ? &handle->before->next : &tni_object_part(d)->handles) =
        handle->next;
    if (handle->next != NULL)
        handle->next->before = handle->before;
    *(handle->before_same != NULL ? &handle->before_same->next_same
                                  : &tni_object_part(d)->handles_on[handle->index]) =
        handle->next_same;
    if (handle->next_same != NULL)
        handle->next_same->before_same = handle->before_same;
    handle->is_listed = false;
}

/* pre: this thread has the registry, so no other thread allocates the table. */
static bool ensure_table(struct tn_domain *d)
{
    if (tni_object_part(d)->handles_on == NULL)
        tni_object_part(d)->handles_on =
            calloc(d->segment.geometry.objects, sizeof(struct tn_object *));
    return tni_object_part(d)->handles_on != NULL;
}

struct tn_object *tni_handle_make(struct tn_domain *d, uint32_t index,
                                  const struct tni_kind *kind)
{
    struct tn_object *handle = ensure_table(d) ? calloc(1, kind->handle_bytes) : NULL;
    if (handle == NULL) {
        tni_fail(TN_ERR_NO_MEMORY, "no private memory for a handle");
        return NULL;
    }
    handle->domain = d;
    handle->index = index;
    handle->kind = kind->number;
    handle->object = tni_object_at(&d->segment, index);
    uint64_t word = atomic_load(&handle->object->word); /* LIVE, or MAKING by us */
    handle->generation = tni_object_generation(word);
    handle->word = tni_object_word(handle->generation, tni_object_maker(word), TNI_OBJECT_LIVE,
                                   tni_object_kind(word));
    tni_mutex_lock(&tni_object_part(d)->opening_lock);
    tni_bit_set(tni_opens_of(&d->segment, d->seat), index); /* I4 */
    TNI_KILL_POINT("object_opening");
    tni_seat_set_add(&handle->object->openers, d->seat);
    TNI_KILL_POINT("object_opened");
    note_deaths(handle);
    struct tni_thread *thread = handles_enter(d);
    list_handle(d, handle);
    handles_leave(d, thread);
    tni_mutex_unlock(&tni_object_part(d)->opening_lock);
    return handle;
}

static int fail_kind(const struct tn_object *handle, uint32_t kind)
{
    if (handle == NULL)
        return tni_fail(TN_ERR_INVALID, "the %s is NULL",
                        kind != 0 ? tni_object_kind_name(kind) : "object");
    return tni_fail(TN_ERR_INVALID, "the object is of the kind %s, not %s",
                    tni_object_kind_name(handle->kind), tni_object_kind_name(kind));
}

int tni_object_check_slow(const struct tn_object *handle, uint32_t kind)
{
    if (TNI_UNLIKELY(handle == NULL) || (kind != 0 && TNI_UNLIKELY(handle->kind != kind)))
        return fail_kind(handle, kind);
    if (TNI_UNLIKELY(handle->domain == NULL))
        return tni_fail(TN_ERR_CLOSED, "this process has left the object's domain");
    int status = tni_process_check(handle->domain);
    if (TNI_UNLIKELY(status != 0))
        return status;
    if (TNI_LIKELY(atomic_load_explicit(&handle->object->word, memory_order_relaxed) ==
                   handle->word))
        return 0;
    return tni_fail(TN_ERR_STALE, "object %u has ended", handle->index);
}

/* ---- what every object has --------------------------------------------------------------- */

uint64_t tn_object_id(const tn_object *handle)
{
    return handle != NULL ? tni_object_id(handle->generation, handle->index) : 0;
}

int tn_object_kind(const tn_object *handle)
{
    return handle != NULL ? (int)handle->kind : tni_fail(TN_ERR_INVALID, "the object is NULL");
}

int tn_object_name(const tn_object *handle, char *name, size_t size_bytes)
{
    int status = tni_object_check_slow(handle, 0);
    if (status != 0)
        return status;
    if (name == NULL)
        return tni_fail_null("name");
    if (size_bytes < TNI_OBJECT_NAME_BYTES)
        return tni_fail(TN_ERR_INVALID, "a name needs room for %d bytes, but size_bytes is %zu",
                        TNI_OBJECT_NAME_BYTES, size_bytes);
    memcpy(name, handle->object->name, TNI_OBJECT_NAME_BYTES);
    name[TNI_OBJECT_NAME_BYTES - 1] = 0;
    return (int)strlen(name);
}

bool tni_handle_unlink(struct tn_domain *d, struct tn_object *handle)
{
    bool is_last = true;
    struct tni_thread *thread = handles_enter(d);
    if (handle->is_listed)
        unlist_handle(d, handle);
    for (const struct tn_object *h = tni_object_part(d)->handles_on[handle->index];
         h != NULL && is_last; h = h->next_same)
        is_last = h->generation != handle->generation;
    handles_leave(d, thread);
    return is_last;
}
