/* SPDX-License-Identifier: Apache-2.0 */
/*
 * object: opening and closing objects.
 *
 * Nouns: object, handle (this process's end of an object: handle.c), registry (the claim on
 * making and ending objects: registry.c), entry (of the table of objects: entry.c).
 * I1  A process makes, opens, closes and ends an object only while it has the registry. It
 *     uses an object without the registry. A close that does not get the registry leaves
 *     the ending to the next owner of the registry (entry.c, I5).
 *
 * Callers: the kinds (queue.c, event.c, ...) and users. Death: tni_object_reclaim_seat()
 * clears the dead seat's bits and takes over its registry claim; it then undoes, ends or
 * marks again the one object that the dead process was changing (I5).
 */
#include "object/object.h"

#include <stdlib.h>
#include <string.h>

#include "object/entry.h"
#include "object/handle.h"
#include "object/names.h"
#include "object/registry.h"

/* pre: this process has the registry. */
static int check_new_name(struct tn_domain *d, const char *name)
{
    const struct tni_segment *s = &d->segment;
    if (name != NULL)
        tni_entry_end_if_unopened(d, tni_names_find(s, name));
    if (name == NULL || tni_names_find(s, name) == s->geometry.objects)
        return 0;
    return tni_fail(TN_ERR_EXISTS, "the domain has an object named " TNI_NAME_FORMAT, name);
}

/*
 * pre: this process has the registry. On success the object owns `ring`, whose id is 0 then;
 * else the caller still owns it.
 */
static int create_in(struct tn_domain *d, const struct tni_object_spec *spec, tni_block *ring,
                     struct tn_object **ret_handle)
{
    uint32_t index = 0;
    struct tn_object *handle = NULL;
    int status = check_new_name(d, spec->name);
    if (status != 0 || (status = tni_entry_find_free(d, &index)) != 0)
        return status;
    struct tni_object *object = tni_object_at(&d->segment, index);
    uint32_t generation = tni_object_generation(atomic_load(&object->word));
    atomic_store(&object->ring, 0);
    atomic_store(&d->segment.header->registry_object, index + 1); /* I5 */
    atomic_store(&object->word,
                 tni_object_word(generation, d->seat, TNI_OBJECT_MAKING, spec->kind->number));
    TNI_KILL_POINT("object_making");
    tni_entry_fill(object, spec);
    if (ring->id != 0 && (status = tni_entry_give_ring(d, object, *ring)) == 0)
        ring->id = 0;
    if (status == 0 && (handle = tni_handle_make(d, index, spec->kind)) == NULL)
        status = TN_ERR_NO_MEMORY;
    if (status == 0) {
        tni_names_link(&d->segment, index);
        atomic_store(&object->word,
                     tni_object_word(generation, d->seat, TNI_OBJECT_LIVE, spec->kind->number));
        *ret_handle = handle;
    } else {
        tni_entry_undo(d, object);
    }
    return status;
}

static int create_once(struct tn_domain *d, const struct tni_object_spec *spec, tni_block *ring,
                       struct tn_object **ret_handle)
{
    int status = tni_registry_enter(d);
    if (status == 0) {
        status = create_in(d, spec, ring, ret_handle);
        tni_registry_leave(d);
    }
    return status;
}

static int create(struct tn_domain *d, const struct tni_object_spec *spec,
                  struct tn_object **ret_handle)
{
    tni_block ring = {0};
    int status = spec->ring_bytes != 0 ? tni_entry_make_ring(d, spec->ring_bytes, &ring) : 0;
    if (status != 0)
        return status;
    status = create_once(d, spec, &ring, ret_handle);
    for (uint32_t tries = 0; status == TN_ERR_FULL && tni_process_relieve(d, &tries);)
        status = create_once(d, spec, &ring, ret_handle);
    if (ring.id != 0)
        tni_ref_release(d, ring);
    return status;
}

/* An object that exists must be as the caller asks; the error says how it differs. */
static int check_alike(const struct tni_object *object, const struct tni_object_spec *spec)
{
    uint32_t capacity = TNI_LOOK(object->capacity), flags = TNI_LOOK(object->flags);
    uint32_t slot_bytes = TNI_LOOK(object->slot_bytes);
    if (spec->wanted_capacity != 0 && spec->wanted_capacity != capacity)
        return tni_fail(
            TN_ERR_INVALID, "the %s " TNI_NAME_FORMAT " was made with %s %u instead of %u",
            spec->kind->name, spec->name, spec->count_name, capacity, spec->wanted_capacity);
    if (spec->wants_flags && spec->flags != flags)
        return tni_fail(
            TN_ERR_INVALID, "the %s " TNI_NAME_FORMAT " was made with %s %#x instead of %#x",
            spec->kind->name, spec->name, spec->flags_name != NULL ? spec->flags_name : "flags",
            flags, spec->flags);
    if (spec->wanted_slot_bytes != 0 && spec->wanted_slot_bytes != slot_bytes)
        return tni_fail(TN_ERR_INVALID,
                        "the %s " TNI_NAME_FORMAT
                        " has slots of %u bytes, and these inline_bytes need slots of %u",
                        spec->kind->name, spec->name, slot_bytes, spec->wanted_slot_bytes);
    return 0;
}

/*
 * Open the object that has the name of `spec`; if `spec` is NULL, the one with `id` and `kind`
 * (0: any kind). pre: this process has the registry.
 */
static int open_in(struct tn_domain *d, const struct tni_object_spec *spec, uint64_t id,
                   uint32_t kind, struct tn_object **ret_handle)
{
    const struct tni_segment *s = &d->segment;
    uint32_t index = spec != NULL ? tni_names_find(s, spec->name) : tni_object_id_index(id);
    tni_entry_end_if_unopened(d, index);
    uint64_t word =
        index < s->geometry.objects ? atomic_load(&tni_object_at(s, index)->word) : 0;
    if (tni_object_state(word) != TNI_OBJECT_LIVE ||
        (spec == NULL && tni_object_generation(word) != tni_object_id_generation(id)))
        return spec != NULL
                   ? tni_fail(TN_ERR_NOT_FOUND,
                              "the domain has no object named " TNI_NAME_FORMAT, spec->name)
                   : tni_fail(TN_ERR_NOT_FOUND, "the domain has no object %llx",
                              (unsigned long long)id);
    const struct tni_kind *found = tni_kind_of(d, tni_object_kind(word));
    if (found == NULL)
        return tni_fail(TN_ERR_INVALID, "object %u is of the kind %u, which is not known",
                        index, tni_object_kind(word));
    if (kind != 0 && kind != found->number)
        return tni_fail(TN_ERR_INVALID,
                        "object %u, " TNI_NAME_FORMAT ", is of the kind %s, not %s", index,
                        tni_object_at(s, index)->name, found->name, tni_object_kind_name(kind));
    int status = spec != NULL ? check_alike(tni_object_at(s, index), spec) : 0;
    if (status == 0 && (*ret_handle = tni_handle_make(d, index, found)) == NULL)
        status = TN_ERR_NO_MEMORY;
    return status;
}

static int open_existing(struct tn_domain *d, const struct tni_object_spec *spec, uint64_t id,
                         uint32_t kind, struct tn_object **ret_handle)
{
    int status = tni_registry_enter(d);
    if (status == 0) {
        status = open_in(d, spec, id, kind, ret_handle);
        tni_registry_leave(d);
    }
    return status;
}

/* Another process may make or end the object between the two steps: then try both again. */
static int open_or_create(struct tn_domain *d, const struct tni_object_spec *spec,
                          struct tn_object **ret_handle)
{
    int status;
    do {
        status = open_existing(d, spec, 0, spec->kind->number, ret_handle);
        if (status == TN_ERR_NOT_FOUND)
            status = create(d, spec, ret_handle);
    } while (status == TN_ERR_EXISTS);
    return status;
}

static int bind_handle(struct tn_object *handle, struct tn_object **ret_handle)
{
    const struct tni_kind *kind = tni_kind_of(handle->domain, handle->kind);
    int status = kind->bind != NULL ? kind->bind(handle) : 0;
    if (status != 0)
        tn_object_close(handle);
    else
        *ret_handle = handle;
    return status;
}

int tni_object_open(const char *function, struct tn_domain *d,
                    const struct tni_object_spec *spec, uint32_t flags,
                    struct tn_object **ret_handle)
{
    struct tn_object *handle = NULL;
    if (d == NULL)
        return tni_fail_null("the domain");
    if (ret_handle == NULL)
        return tni_fail(TN_ERR_INVALID, "ret_%s is NULL", spec->kind->name);
    if ((flags & ~(uint32_t)(TN_OPEN_EXISTING | TN_OPEN_NEW)) != 0 ||
        flags == (TN_OPEN_EXISTING | TN_OPEN_NEW))
        return tni_fail(
            TN_ERR_INVALID,
            "the flags of %s are %#x: 0, TN_OPEN_EXISTING or TN_OPEN_NEW is allowed", function,
            flags);
    if (spec->name == NULL && flags == TN_OPEN_EXISTING)
        return tni_fail(TN_ERR_INVALID,
                        "the name is NULL, but %s with TN_OPEN_EXISTING needs one: "
                        "tn_object_open_id() opens an object without a name",
                        function);
    int status = tni_process_check(d);
    if (status == 0 && spec->name != NULL)
        status = tni_check_name(spec->kind->name, spec->name, TNI_OBJECT_NAME_BYTES - 1);
    if (status != 0)
        return status;
    if (flags == TN_OPEN_EXISTING)
        status = open_existing(d, spec, 0, spec->kind->number, &handle);
    else if (flags == TN_OPEN_NEW || spec->name == NULL)
        status = create(d, spec, &handle);
    else
        status = open_or_create(d, spec, &handle);
    return status != 0 ? status : bind_handle(handle, ret_handle);
}

int tn_object_open_id(tn_domain *d, int kind, uint64_t id, tn_object **ret_object)
{
    struct tn_object *handle = NULL;
    if (d == NULL || ret_object == NULL)
        return tni_fail_null(d == NULL ? "the domain" : "ret_object");
    if (kind < 0 || kind >= TNI_OBJECT_KINDS)
        return tni_fail(TN_ERR_INVALID, "no kind of object has the number %d", kind);
    if (id == 0)
        return tni_fail(TN_ERR_INVALID,
                        "no object has the id 0, which tn_object_id() gives for NULL");
    int status = tni_process_check(d);
    if (status == 0)
        status = open_existing(d, NULL, id, (uint32_t)kind, &handle);
    return status != 0 ? status : bind_handle(handle, ret_object);
}

/* ---- closing ----------------------------------------------------------------------------- */

/* Give back what this process holds in the object: the next owner of its seat must not hold it.
 */
static void close_kind(struct tn_domain *d, struct tni_object *object, uint32_t number)
{
    const struct tni_kind *kind = tni_kind_of(d, number);
    if (kind != NULL && kind->close_seat != NULL)
        kind->close_seat(d, object, d->seat);
}

/*
 * Wake the waiters at an object that this process has closed. Two waits may end now: one for a
 * dead process, if this process was the last live one on that side, and one for a message,
 * which may be a lease that this process gave back. pre: this process's bits are cleared. If
 * this process dies before it wakes them, its recoverer does.
 */
static void wake_for_close(struct tn_domain *d, struct tni_object *object, bool is_consumer)
{
    if (is_consumer || atomic_load(&object->death[TNI_SIDE_ANY]) != 0)
        tni_object_wake_all(&d->segment, object);
}

/*
 * Without the registry this process clears its bits all the same, and the next owner of the
 * registry ends the object if no opener is left. The bit in this process's row of opens stays
 * then: another thread of this process may be opening the object again.
 */
static void close_object(struct tn_domain *d, struct tn_object *handle)
{
    bool has_claim = tni_registry_enter(d) == 0;
    /* Without the registry, this keeps out the threads of this process that open objects. */
    tni_mutex_lock(&tni_object_part(d)->opening_lock);
    uint64_t word = atomic_load(&handle->object->word);
    /* close_handle() unlinked it, but another thread may have opened the object since. */
    if (tni_object_generation(word) == handle->generation &&
        tni_object_state(word) == TNI_OBJECT_LIVE && tni_handle_unlink(d, handle)) {
        uint32_t kind = tni_object_kind(word);
        bool is_consumer = tni_seat_set_has(&handle->object->consumers, d->seat);
        close_kind(d, handle->object, kind);
        tni_entry_clear_bits(handle->object, d->seat);
        wake_for_close(d, handle->object, is_consumer);
        tni_entry_end_unopened(d, handle->object, has_claim);
        if (has_claim)
            tni_bit_clear(tni_opens_of(&d->segment, d->seat), handle->index); /* I4 */
    }
    tni_mutex_unlock(&tni_object_part(d)->opening_lock);
    if (has_claim)
        tni_registry_leave(d);
}

/* A forked child without a seat inherited the list of handles, but opened no object. */
static void close_handle(struct tn_domain *d, struct tn_object *handle)
{
    bool has_seat = tni_process_has_seat(d);
    const struct tni_kind *kind = tni_kind_of(d, handle->kind);
    if (has_seat && kind != NULL && kind->unbind != NULL &&
        atomic_load(&handle->object->word) == handle->word)
        kind->unbind(handle);
    if (tni_handle_unlink(d, handle) && has_seat)
        close_object(d, handle);
}

tn_object *tn_object_close(tn_object *handle)
{
    if (handle == NULL)
        return NULL;
    struct tn_domain *d = handle->domain;
    /* `domain` is NULL after this process has left the domain: see tni_object_fini(). */
    if (d != NULL)
        close_handle(d, handle);
    free(handle);
    return NULL;
}

static _Atomic uint32_t no_roles;

void tni_object_fini(struct tn_domain *d)
{
    while (tni_object_part(d)->handles != NULL) {
        struct tn_object *handle = tni_object_part(d)->handles;
        close_handle(d, handle);
        handle->roles = &no_roles;
        handle->domain = NULL; /* the user frees the handle; see tn_object_close() */
    }
}

/* ---- fork -------------------------------------------------------------------------------- */

static int open_for_child(struct tn_domain *d, uint32_t child)
{
    for (const struct tn_object *h = tni_object_part(d)->handles; h != NULL; h = h->next) {
        tni_bit_set(tni_opens_of(&d->segment, child), h->index); /* I4 */
        tni_seat_set_add(&h->object->openers, child);
        TNI_KILL_POINT("fork_object_opened");
    }
    return 0;
}

/* Each page that a child writes is copied: it writes no more than needed. */
TNI_AROUND_FORK static void reset_in_child(struct tn_domain *d)
{
    tni_mutex_reset(&tni_object_part(d)->opening_lock);
    tni_mutex_reset(&tni_object_part(d)->handles_lock);
    for (struct tn_object *h = tni_object_part(d)->handles; h != NULL; h = h->next) {
        const struct tni_kind *kind = tni_kind_of(d, h->kind);
        if (kind != NULL && kind->forget != NULL)
            kind->forget(h);
        if (!d->is_empty_in_children && atomic_load(h->roles) != 0)
            atomic_store(h->roles, 0);
    }
}

void tni_object_set_kinds(struct tn_domain *d, const struct tni_kind *const *kinds)
{
    tni_object_part(d)->kinds = kinds;
}

static void free_handles(struct tn_domain *d) { free(tni_object_part(d)->handles_on); }

void tni_object_init(struct tn_domain *d)
{
    tni_process_hook(d, &(struct tni_fork_hooks){.prepare = open_for_child,
                                                 .child = reset_in_child,
                                                 .free = free_handles});
}
