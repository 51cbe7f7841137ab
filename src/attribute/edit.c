/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attribute: keeps what a framework knows of a tensor beside its type and shape. This file
 * finds, holds and replaces attributes. Each kind has a file of its own; adopt.c checks all
 * kinds.
 *
 * Nouns: attributes (all attributes of one tensor, in one allocation), attribute (one of
 * these), kind, edit (a change that is not visible yet).
 * I6  Attributes do not change once a tensor points at them: a setter makes a changed copy and
 *     replaces the pointer. At most one tensor points at them, so that `next` is free for the
 *     list of replaced attributes. A setter that fails leaves the tensor as it was. Only one
 *     thread at a time may set attributes of a tensor; a call that may run at the same time
 *     takes a reference to the attributes that it reads (tni_attributes_hold()).
 * I7  The attributes of a tensor were checked against its type and shape, which never change.
 *     Setters and attributes from another process go through the same checks. The form is
 *     canonical: kinds in rising order, each kind once, each metadata key once, padding zero.
 * Callers: the user; tensor, queue and share, which write and read views. Death: everything
 * here is private memory, so a death leaves nothing.
 */
#include "attribute/edit.h"

#include <stdlib.h>
#include <string.h>

static const char *const kind_names[TNI_ATTRIBUTE_KINDS] = {
    [TNI_ATTRIBUTE_FLAGS] = "flags",           [TNI_ATTRIBUTE_NAME] = "name",
    [TNI_ATTRIBUTE_AXIS_NAMES] = "axis names", [TNI_ATTRIBUTE_LOD] = "levels of detail",
    [TNI_ATTRIBUTE_QUANTIZER] = "quantizer",   [TNI_ATTRIBUTE_PART] = "part of a sparse tensor",
    [TNI_ATTRIBUTE_METADATA] = "metadata",
};

const char *tni_attribute_kind_name(uint16_t kind) { return kind_names[kind]; }

/* ---- finding ----------------------------------------------------------------------------- */

const struct tni_attribute *tni_attribute_find_in(const struct tni_attributes *a, uint16_t kind)
{
    for (uint32_t at = 0; a != NULL && at < a->bytes;
         at += tni_attribute_bytes(tni_attribute_at(a, at)))
        if (tni_attribute_at(a, at)->kind == kind)
            return tni_attribute_at(a, at);
    return NULL;
}

const struct tni_attribute *tni_attribute_find(const tn_tensor *t, uint16_t kind)
{
    return t != NULL ? tni_attribute_find_in(t->attributes, kind) : NULL;
}

const struct tni_attribute *tni_attribute_next(const tn_tensor *t,
                                               const struct tni_attribute *attribute)
{
    uint32_t at =
        tni_attribute_position(t->attributes, attribute) + tni_attribute_bytes(attribute);
    return at < t->attributes->bytes ? tni_attribute_at(t->attributes, at) : NULL;
}

uint32_t tni_attributes_kinds(const struct tni_attributes *a)
{
    uint32_t kinds = 0;
    for (uint32_t at = 0; at < a->bytes; at += tni_attribute_bytes(tni_attribute_at(a, at)))
        kinds |= UINT32_C(1) << tni_attribute_at(a, at)->kind;
    return kinds;
}

/* ---- holding ----------------------------------------------------------------------------- */

/*
 * A reader loads the pointer of a tensor and then raises the reference count behind it; between
 * these two steps the attributes must not be freed. So a reader first counts itself in a row of
 * this table, which the address of the tensor selects. A setter drops the tensor's reference to
 * the attributes that it replaced only if it sees no reader in the row; otherwise it leaves
 * them in the row, for a later setter to drop. No thread waits for another.
 */
enum { ROWS = 32 };
static struct row {
    _Alignas(64) _Atomic uint32_t readers;
    _Atomic(struct tni_attributes *) replaced;
} rows[ROWS];

static struct row *row_of(const tn_tensor *t) { return &rows[((uintptr_t)t >> 6) % ROWS]; }

struct tni_attributes *tni_attributes_hold_all(const tn_tensor *t)
{
    struct row *row = row_of(t);
    atomic_fetch_add(&row->readers, 1); /* must come before the load: pairs with publish() */
    struct tni_attributes *a = atomic_load(&t->attributes);
    if (a != NULL)
        atomic_fetch_add_explicit(&a->refs, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&row->readers, 1, memory_order_release);
    return a;
}

void tni_attributes_drop_all(struct tni_attributes *a)
{
    if (atomic_fetch_sub_explicit(&a->refs, 1, memory_order_acq_rel) == 1)
        free(a);
}

static void add_replaced(struct row *row, struct tni_attributes *a)
{
    a->next = atomic_load_explicit(&row->replaced, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&row->replaced, &a->next, a,
                                                  memory_order_release, memory_order_relaxed))
        ;
}

/*
 * Drop the replaced attributes of a row, if the row has no readers. pre: the tensor points at
 * the new attributes already. A reader that counts itself after this call has taken the list
 * finds the new attributes. So the count of readers is read after the list is taken.
 */
static void drop_replaced(struct row *row, struct tni_attributes *old)
{
    struct tni_attributes *next;
    add_replaced(row, old);
    struct tni_attributes *a = atomic_exchange(&row->replaced, NULL);
    bool is_read = atomic_load(&row->readers) != 0;
    for (; a != NULL; a = next) {
        next = a->next;
        if (is_read)
            add_replaced(row, a);
        else
            tni_attributes_drop_all(a);
    }
}

/* ---- replacing one ----------------------------------------------------------------------- */

struct tni_attributes *tni_attributes_alloc(uint64_t bytes)
{
    struct tni_attributes *a = calloc(1, sizeof *a + bytes);
    if (a != NULL) {
        atomic_init(&a->refs, 1);
        a->bytes = (uint32_t)bytes;
    }
    return a;
}

/* The position at which attributes with a higher kind begin. */
static uint32_t end_of_kind(const struct tni_attributes *a, uint16_t kind)
{
    uint32_t at = 0;
    while (at < a->bytes && tni_attribute_at(a, at)->kind <= kind)
        at += tni_attribute_bytes(tni_attribute_at(a, at));
    return at;
}

int tni_attribute_begin(const tn_tensor *t, uint16_t kind, const struct tni_attribute *old,
                        uint64_t bytes, struct tni_attribute_edit *ret_edit)
{
    static const struct tni_attributes none;
    const struct tni_attributes *a = t->attributes != NULL ? t->attributes : &none;
    uint32_t before = old != NULL ? tni_attribute_position(a, old) : end_of_kind(a, kind);
    uint32_t behind = before + (old != NULL ? tni_attribute_bytes(old) : 0);
    uint64_t others = before + (a->bytes - behind);
    uint64_t room = bytes == 0 ? 0 : TNI_ATTRIBUTE_HEAD_BYTES + tni_align_up(bytes, 8);
    if (bytes > TN_ATTRIBUTES_MAX_BYTES || others + room > TN_ATTRIBUTES_MAX_BYTES)
        return tni_fail(TN_ERR_INVALID,
                        "the attribute '%s' takes %llu bytes and the others take %llu: at most "
                        "%d bytes are allowed together",
                        tni_attribute_kind_name(kind), (unsigned long long)bytes,
                        (unsigned long long)others, TN_ATTRIBUTES_MAX_BYTES);
    struct tni_attribute_edit edit = {0};
    if (others + room > 0) {
        if ((edit.made = tni_attributes_alloc(others + room)) == NULL)
            return tni_fail(TN_ERR_NO_MEMORY, "no private memory for attributes");
        uint8_t *to = (uint8_t *)edit.made->words;
        memcpy(to, a->words, before);
        memcpy(to + before + room, (const uint8_t *)a->words + behind, a->bytes - behind);
        if (room > 0) {
            struct tni_attribute head = {.kind = kind, .bytes = (uint32_t)bytes};
            memcpy(to + before, &head, sizeof head);
            edit.head = tni_attribute_at(edit.made, before);
            edit.payload = to + before + TNI_ATTRIBUTE_HEAD_BYTES;
        }
    }
    *ret_edit = edit;
    return 0;
}

int tni_attribute_remove(tn_tensor *t, uint16_t kind)
{
    struct tni_attribute_edit edit;
    const struct tni_attribute *old = tni_attribute_find(t, kind);
    if (old == NULL)
        return 0;
    int status = tni_attribute_begin(t, kind, old, 0, &edit);
    if (status == 0)
        tni_attribute_commit(t, &edit);
    return status;
}

static void publish(tn_tensor *t, struct tni_attributes *a)
{
    struct tni_attributes *old = atomic_exchange(&t->attributes, a);
    if (old != NULL)
        drop_replaced(row_of(t), old);
}

void tni_attributes_replace(tn_tensor *t, struct tni_attributes *made)
{
    const struct tni_attribute *flags =
        made != NULL ? tni_attribute_find_in(made, TNI_ATTRIBUTE_FLAGS) : NULL;
    if (flags != NULL)
        memcpy(&made->flags, tni_attribute_payload(flags), sizeof made->flags);
    publish(t, made);
}

void tni_attribute_commit(tn_tensor *t, struct tni_attribute_edit *edit)
{
    tni_attributes_replace(t, edit->made);
    edit->made = NULL;
}

bool tni_attribute_is_zero(const uint8_t *at, const uint8_t *end)
{
    while (at < end && *at == 0)
        at++;
    return at == end;
}

int tni_attribute_check(const tn_tensor *t, struct tni_attribute_edit *edit,
                        tni_attribute_check_fn *check)
{
    const struct tni_attribute *head = edit->head;
    int status = head == NULL ? 0 : check(t, edit->payload, head->bytes);
    if (status != 0)
        free(edit->made);
    return status;
}
