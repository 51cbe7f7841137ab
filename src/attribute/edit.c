/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attribute: what a framework knows of a tensor, kept as it travels (layout.h). Here: keeping
 * and replacing them. Each kind has a file of its own; adopt.c checks all.
 *
 * I6  struct tni_attributes does not change once a tensor points at it; a setter makes another.
 *     One tensor at most points at it: what was replaced is chained through it.
 *     A failed setter leaves the tensor as it was. One thread at a time sets attributes of a
 *     tensor; a call that may run meanwhile holds those that it found (hold_all()).
 * I7  What a tensor points at was checked against its type and shape, which never change, by
 *     the same functions whether it was set here or came from another process. It is canonical:
 *     rising kinds, each once, metadata once a key, padding zero.
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

/* ---- walking ----------------------------------------------------------------------------- */

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
    return tni_attribute_find_in(t->attributes, kind);
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
 * Between reading a tensor's pointer and counting itself, a thread is a looker of the tensor's
 * row. Who replaces attributes gives the tensor's reference of what it replaced back when the
 * row has no looker; else what it replaced waits in the row for a later setter. No thread waits
 * for another one.
 */
enum { ROWS = 32 };
static struct row {
    _Alignas(64) _Atomic uint32_t lookers;
    _Atomic(struct tni_attributes *) replaced;
} rows[ROWS];

static struct row *row_of(const tn_tensor *t) { return &rows[((uintptr_t)t >> 6) % ROWS]; }

struct tni_attributes *tni_attributes_hold_all(const tn_tensor *t)
{
    struct row *row = row_of(t);
    atomic_fetch_add(&row->lookers, 1); /* before the load: pairs with publish() */
    struct tni_attributes *a = atomic_load(&t->attributes);
    if (a != NULL)
        atomic_fetch_add_explicit(&a->refs, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&row->lookers, 1, memory_order_release);
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

/* Whoever looks from now on finds what replaced `old`: the lookers are read after the taking.
 */
static void end_replaced(struct row *row, struct tni_attributes *old)
{
    struct tni_attributes *next;
    add_replaced(row, old);
    struct tni_attributes *a = atomic_exchange(&row->replaced, NULL);
    bool is_looked_at = atomic_load(&row->lookers) != 0;
    for (; a != NULL; a = next) {
        next = a->next;
        if (is_looked_at)
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

/* Where attributes of a higher kind begin. */
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
                        "attribute '%s' of %llu bytes beside others of %llu: at most %d "
                        "together",
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
        end_replaced(row_of(t), old);
}

/* I6 */
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
