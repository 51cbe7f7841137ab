/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attribute: what a framework knows of a tensor, kept as it travels (layout.h). Here: keeping,
 * replacing and checking them, flags, and what a view or a copy makes of them. Each other kind
 * has a file of its own.
 *
 * I6  struct tni_attributes does not change once a tensor points at it; a setter makes another.
 *     One tensor at most points at it: what was replaced is chained through it.
 *     A failed setter leaves the tensor as it was. One thread at a time sets attributes of a
 *     tensor; a call that may run meanwhile holds those that it found (hold_all()).
 * I7  What a tensor points at was checked against its type and shape, which never change, by
 *     the same functions whether it was set here or came from another process. It is canonical:
 *     rising kinds, each once, metadata once a key, padding zero.
 */
#include "tensor/attribute.h"

#include <stdlib.h>
#include <string.h>

/* ---- walking ----------------------------------------------------------------------------- */

enum { HEAD_BYTES = sizeof(struct tni_attribute) };
_Static_assert(HEAD_BYTES == 8, "payloads are aligned to 8");

static const struct tni_attribute *attribute_at(const struct tni_attributes *a, uint32_t at)
{
    return (const struct tni_attribute *)(const void *)((const uint8_t *)a->words + at);
}

/* pre: I7 */
static uint32_t whole_bytes(const struct tni_attribute *attribute)
{
    return HEAD_BYTES + (uint32_t)tni_align_up(attribute->bytes, 8);
}

static uint32_t position_of(const struct tni_attributes *a,
                            const struct tni_attribute *attribute)
{
    return (uint32_t)((const uint8_t *)attribute - (const uint8_t *)a->words);
}

const struct tni_attribute *tni_attribute_find_in(const struct tni_attributes *a, uint16_t kind)
{
    for (uint32_t at = 0; a != NULL && at < a->bytes; at += whole_bytes(attribute_at(a, at)))
        if (attribute_at(a, at)->kind == kind)
            return attribute_at(a, at);
    return NULL;
}

const struct tni_attribute *tni_attribute_find(const tn_tensor *t, uint16_t kind)
{
    return tni_attribute_find_in(t->attributes, kind);
}

const struct tni_attribute *tni_attribute_next(const tn_tensor *t,
                                               const struct tni_attribute *attribute)
{
    uint32_t at = position_of(t->attributes, attribute) + whole_bytes(attribute);
    return at < t->attributes->bytes ? attribute_at(t->attributes, at) : NULL;
}

uint32_t tni_attributes_kinds(const struct tni_attributes *a)
{
    uint32_t kinds = 0;
    for (uint32_t at = 0; at < a->bytes; at += whole_bytes(attribute_at(a, at)))
        kinds |= UINT32_C(1) << attribute_at(a, at)->kind;
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

static struct tni_attributes *alloc_attributes(uint64_t bytes)
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
    while (at < a->bytes && attribute_at(a, at)->kind <= kind)
        at += whole_bytes(attribute_at(a, at));
    return at;
}

static const char *kind_name(uint16_t kind);

int tni_attribute_begin(const tn_tensor *t, uint16_t kind, const struct tni_attribute *old,
                        uint64_t bytes, struct tni_attribute_edit *ret_edit)
{
    static const struct tni_attributes none;
    const struct tni_attributes *a = t->attributes != NULL ? t->attributes : &none;
    uint32_t before = old != NULL ? position_of(a, old) : end_of_kind(a, kind);
    uint32_t behind = before + (old != NULL ? whole_bytes(old) : 0);
    uint64_t others = before + (a->bytes - behind);
    uint64_t room = bytes == 0 ? 0 : HEAD_BYTES + tni_align_up(bytes, 8);
    if (bytes > TN_ATTRIBUTES_MAX_BYTES || others + room > TN_ATTRIBUTES_MAX_BYTES)
        return tni_fail(TN_ERR_INVALID,
                        "attribute '%s' of %llu bytes beside others of %llu: at most %d "
                        "together",
                        kind_name(kind), (unsigned long long)bytes, (unsigned long long)others,
                        TN_ATTRIBUTES_MAX_BYTES);
    struct tni_attribute_edit edit = {0};
    if (others + room > 0) {
        if ((edit.made = alloc_attributes(others + room)) == NULL)
            return tni_fail(TN_ERR_NO_MEMORY, "no private memory for attributes");
        uint8_t *to = (uint8_t *)edit.made->words;
        memcpy(to, a->words, before);
        memcpy(to + before + room, (const uint8_t *)a->words + behind, a->bytes - behind);
        if (room > 0) {
            struct tni_attribute head = {.kind = kind, .bytes = (uint32_t)bytes};
            memcpy(to + before, &head, sizeof head);
            edit.head = attribute_at(edit.made, before);
            edit.payload = to + before + HEAD_BYTES;
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
static void replace(tn_tensor *t, struct tni_attributes *made)
{
    const struct tni_attribute *flags =
        made != NULL ? tni_attribute_find_in(made, TNI_ATTRIBUTE_FLAGS) : NULL;
    if (flags != NULL)
        memcpy(&made->flags, tni_attribute_payload(flags), sizeof made->flags);
    publish(t, made);
}

void tni_attribute_commit(tn_tensor *t, struct tni_attribute_edit *edit)
{
    replace(t, edit->made);
    edit->made = NULL;
}

/* ---- checking ---------------------------------------------------------------------------- */

static tni_attribute_check_fn check_flags;

/* I7 */
static const struct {
    const char *name;
    tni_attribute_check_fn *check;
} kinds[TNI_ATTRIBUTE_KINDS] = {
    [TNI_ATTRIBUTE_FLAGS] = {"flags", check_flags},
    [TNI_ATTRIBUTE_NAME] = {"name", tni_attribute_check_name},
    [TNI_ATTRIBUTE_AXIS_NAMES] = {"axis names", tni_attribute_check_axis_names},
    [TNI_ATTRIBUTE_LOD] = {"levels of detail", tni_attribute_check_lod},
    [TNI_ATTRIBUTE_QUANTIZER] = {"quantizer", tni_attribute_check_quantizer},
    [TNI_ATTRIBUTE_PART] = {"part of a sparse tensor", tni_attribute_check_part},
    [TNI_ATTRIBUTE_METADATA] = {"metadata", tni_attribute_check_metadata},
};

static const char *kind_name(uint16_t kind) { return kinds[kind].name; }

bool tni_attribute_is_zero(const uint8_t *at, const uint8_t *end)
{
    while (at < end && *at == 0)
        at++;
    return at == end;
}

int tni_attribute_check(const tn_tensor *t, struct tni_attribute_edit *edit)
{
    const struct tni_attribute *head = edit->head;
    int status = head == NULL ? 0 : kinds[head->kind].check(t, edit->payload, head->bytes);
    if (status != 0)
        free(edit->made);
    return status;
}

/* The frame of one attribute. `left`: bytes that may be read, whole words, at least one. */
static int check_frame(const struct tni_attribute *attribute, uint32_t left)
{
    if (attribute->kind == 0 || attribute->kind >= TNI_ATTRIBUTE_KINDS)
        return tni_fail(TN_ERR_VERSION, "attribute of kind %u is not known", attribute->kind);
    const char *name = kinds[attribute->kind].name;
    if (attribute->reserved != 0 || attribute->bytes > left - HEAD_BYTES)
        return tni_fail(TN_ERR_CORRUPT, "attribute '%s' states %u bytes of %u, and 0x%x", name,
                        attribute->bytes, left - HEAD_BYTES, attribute->reserved);
    const uint8_t *payload = tni_attribute_payload(attribute);
    if (!tni_attribute_is_zero(payload + attribute->bytes,
                               payload + tni_align_up(attribute->bytes, 8)))
        return tni_fail(TN_ERR_CORRUPT, "attribute '%s' is filled up with other than zeros",
                        name);
    return 0;
}

/* Metadata keys stay in the order they were set in, so each is compared with all before it. */
static int check_order(const struct tni_attributes *a,
                       const struct tni_attribute *first_of_kind,
                       const struct tni_attribute *before,
                       const struct tni_attribute *attribute)
{
    const char *name = kinds[attribute->kind].name;
    if (before == NULL || attribute->kind > before->kind)
        return 0;
    if (attribute->kind < before->kind)
        return tni_fail(TN_ERR_CORRUPT, "attribute '%s' stands behind '%s'", name,
                        kinds[before->kind].name);
    if (attribute->kind != TNI_ATTRIBUTE_METADATA)
        return tni_fail(TN_ERR_CORRUPT, "attribute '%s' occurs twice", name);
    uint32_t keys = 1;
    for (uint32_t at = position_of(a, first_of_kind); attribute_at(a, at) != attribute;
         at += whole_bytes(attribute_at(a, at)), keys++)
        if (tni_attribute_same_key(attribute_at(a, at), attribute))
            return tni_fail(TN_ERR_CORRUPT, "metadata key '%s' occurs twice",
                            (const char *)tni_attribute_payload(attribute));
    if (keys > TN_METADATA_MAX_KEYS)
        return tni_fail(TN_ERR_CORRUPT, "metadata of %u keys: at most %d", keys,
                        TN_METADATA_MAX_KEYS);
    return 0;
}

static int check_all(const tn_tensor *t, const struct tni_attributes *a)
{
    const struct tni_attribute *before = NULL, *first_of_kind = NULL;
    for (uint32_t at = 0; at < a->bytes; at += whole_bytes(before)) {
        const struct tni_attribute *attribute = attribute_at(a, at);
        int status = check_frame(attribute, a->bytes - at);
        if (status != 0)
            return status;
        if (kinds[attribute->kind].check(t, tni_attribute_payload(attribute),
                                         attribute->bytes) != 0)
            return tni_fail(TN_ERR_CORRUPT, "attribute '%s': %s", kinds[attribute->kind].name,
                            tn_error_detail());
        if (before == NULL || before->kind != attribute->kind)
            first_of_kind = attribute;
        if ((status = check_order(a, first_of_kind, before, attribute)) != 0)
            return status;
        before = attribute;
    }
    return 0;
}

int tni_attributes_adopt(tn_tensor *t, const void *bytes, size_t size_bytes)
{
    if (size_bytes > TN_ATTRIBUTES_MAX_BYTES || size_bytes % 8 != 0)
        return tni_fail(TN_ERR_CORRUPT, "attributes of %zu bytes: at most %d, and whole words",
                        size_bytes, TN_ATTRIBUTES_MAX_BYTES);
    if (size_bytes == 0)
        return 0;
    struct tni_attributes *made = alloc_attributes(size_bytes);
    if (made == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "no private memory for attributes");
    /* Once: the bytes may lie where others write. */
    tni_copy_unstable(made->words, bytes, size_bytes);
    int status = check_all(t, made);
    if (status != 0)
        free(made);
    else
        replace(t, made);
    return status;
}

/* Check that all of them fit, and make the same once more. `from` may be NULL. */
static int check_and_copy(const tn_tensor *target, const struct tni_attributes *from,
                          struct tni_attributes **ret_made)
{
    int status = 0;
    *ret_made = NULL;
    for (uint32_t at = 0; from != NULL && at < from->bytes && status == 0;
         at += whole_bytes(attribute_at(from, at))) {
        const struct tni_attribute *one = attribute_at(from, at);
        status = kinds[one->kind].check(target, tni_attribute_payload(one), one->bytes);
    }
    if (status != 0 || from == NULL)
        return status;
    *ret_made = alloc_attributes(from->bytes);
    if (*ret_made == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "no private memory for attributes");
    memcpy((*ret_made)->words, from->words, from->bytes);
    return 0;
}

int tn_tensor_copy_attributes(tn_tensor *target, const tn_tensor *source)
{
    int status = tni_tensor_check(target);
    if (status != 0 || (status = tni_tensor_check(source)) != 0)
        return status;
    struct tni_attributes *from = tni_attributes_hold(source), *made;
    status = check_and_copy(target, from, &made);
    tni_attributes_drop(from);
    if (status == 0)
        replace(target, made);
    return status;
}

/* ---- flags ------------------------------------------------------------------------------- */

static const struct {
    uint32_t bit;
    const char *name;
} flag_names[] = {
    {TN_REQUIRES_GRAD, "TN_REQUIRES_GRAD"}, {TN_STOP_GRADIENT, "TN_STOP_GRADIENT"},
    {TN_PARAMETER, "TN_PARAMETER"},         {TN_BUFFER, "TN_BUFFER"},
    {TN_CONJUGATE, "TN_CONJUGATE"},         {TN_NEGATIVE, "TN_NEGATIVE"},
    {TN_WAS_PINNED, "TN_WAS_PINNED"}};

static int check_flag_bits(const tn_tensor *t, uint32_t flags)
{
    static const uint32_t pairs[] = {TN_REQUIRES_GRAD | TN_STOP_GRADIENT,
                                     TN_PARAMETER | TN_BUFFER};
    char type[TNI_DTYPE_NAME_BYTES];
    uint32_t known = 0;
    for (size_t i = 0; i < TNI_COUNT(flag_names); i++)
        known |= flag_names[i].bit;
    if ((flags & ~known) != 0)
        return tni_fail(TN_ERR_INVALID, "flags 0x%x of a tensor are not known", flags & ~known);
    for (size_t i = 0; i < TNI_COUNT(pairs); i++)
        if ((flags & pairs[i]) == pairs[i])
            return tni_fail(TN_ERR_INVALID, "%s and %s exclude each other",
                            flag_names[2 * i].name, flag_names[2 * i + 1].name);
    if ((flags & TN_CONJUGATE) != 0 && TN_DTYPE_CODE(t->dtype) != kDLComplex) {
        tni_dtype_describe(t->dtype, type);
        return tni_fail(TN_ERR_INVALID, "TN_CONJUGATE of a tensor of %s, which is not complex",
                        type);
    }
    return 0;
}

static int check_flags(const tn_tensor *t, const void *payload, uint32_t bytes)
{
    uint32_t flags;
    if (bytes != sizeof flags)
        return tni_fail(TN_ERR_INVALID, "flags of %u bytes", bytes);
    memcpy(&flags, payload, sizeof flags);
    return flags != 0 ? check_flag_bits(t, flags)
                      : tni_fail(TN_ERR_INVALID, "flags that say nothing");
}

int tn_tensor_set_flags(tn_tensor *t, uint32_t flags)
{
    struct tni_attribute_edit edit;
    int status = tni_tensor_check(t);
    if (status != 0)
        return status;
    if (flags == 0)
        return tni_attribute_remove(t, TNI_ATTRIBUTE_FLAGS);
    status =
        tni_attribute_begin(t, TNI_ATTRIBUTE_FLAGS, tni_attribute_find(t, TNI_ATTRIBUTE_FLAGS),
                            sizeof flags, &edit);
    if (status != 0)
        return status;
    memcpy(edit.payload, &flags, sizeof flags);
    return tni_attribute_end(t, &edit);
}

static uint32_t flags_in(const struct tni_attributes *a) { return a != NULL ? a->flags : 0; }

uint32_t tn_tensor_flags(const tn_tensor *t) { return flags_in(t->attributes); }

/* ---- what elements mean ------------------------------------------------------------------ */

enum { MEANING_FLAGS = TN_CONJUGATE | TN_NEGATIVE };

/* Of what changes the meaning of elements, the first by name; NULL: nothing does. */
static const char *meaning_name(uint32_t flags, uint32_t scheme)
{
    return (flags & TN_CONJUGATE) != 0             ? "conjugate bit"
           : (flags & TN_NEGATIVE) != 0            ? "negative bit"
           : scheme == TN_QUANTIZER_AFFINE_CHANNEL ? "quantizer by channel"
           : scheme != TN_QUANTIZER_NONE           ? "quantizer"
                                                   : NULL;
}

int tni_attributes_check_plain(const tn_tensor *t, const char *what)
{
    if (TNI_LIKELY(t->attributes == NULL))
        return 0;
    const char *name = meaning_name(t->attributes->flags, tni_attribute_scheme(t));
    return name == NULL
               ? 0
               : tni_fail(TN_ERR_UNSUPPORTED, "%s cannot carry the tensor's %s", what, name);
}

static int inherit_quantizer(tn_tensor *view, const tn_tensor *base)
{
    tn_quantizer quantizer;
    if (!tn_tensor_quantizer(base, &quantizer))
        return 0;
    if (quantizer.scheme == TN_QUANTIZER_AFFINE_CHANNEL)
        return tni_fail(TN_ERR_UNSUPPORTED,
                        "a view cannot keep the tensor's quantizer by channel, of axis %d",
                        quantizer.axis);
    return tn_tensor_set_quantizer(view, &quantizer);
}

int tni_attributes_inherit(tn_tensor *view, const tn_tensor *base)
{
    if (TNI_LIKELY(base->attributes == NULL))
        return 0;
    uint32_t flags = base->attributes->flags & MEANING_FLAGS;
    const char *name = meaning_name(flags, tni_attribute_scheme(base));
    if (name == NULL)
        return 0;
    if (view->dtype != base->dtype)
        return tni_fail(TN_ERR_UNSUPPORTED,
                        "a view of another type cannot keep the tensor's %s", name);
    int status = flags != 0 ? tn_tensor_set_flags(view, flags) : 0;
    return status != 0 ? status : inherit_quantizer(view, base);
}

static bool has_equal_quantizer(const struct tni_attributes *one,
                                const struct tni_attributes *other)
{
    const struct tni_attribute *a = tni_attribute_find_in(one, TNI_ATTRIBUTE_QUANTIZER);
    const struct tni_attribute *b = tni_attribute_find_in(other, TNI_ATTRIBUTE_QUANTIZER);
    if (a == NULL || b == NULL)
        return a == b;
    return a->bytes == b->bytes &&
           memcmp(tni_attribute_payload(a), tni_attribute_payload(b), a->bytes) == 0;
}

int tni_attributes_check_same_meaning(const tn_tensor *target, const tn_tensor *source)
{
    struct tni_attributes *a = tni_attributes_hold(target), *b = tni_attributes_hold(source);
    uint32_t differ = (flags_in(a) ^ flags_in(b)) & MEANING_FLAGS;
    int status = 0;
    if (differ != 0)
        status = tni_fail(TN_ERR_UNSUPPORTED, "a copy between tensors of which one has the %s",
                          meaning_name(differ, TN_QUANTIZER_NONE));
    else if (!has_equal_quantizer(a, b))
        status = tni_fail(TN_ERR_UNSUPPORTED, "a copy between tensors whose quantizers differ");
    tni_attributes_drop(a);
    tni_attributes_drop(b);
    return status;
}
