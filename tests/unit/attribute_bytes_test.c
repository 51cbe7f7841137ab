/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes as bytes of another process, which may be hostile. */
#include "unit/attribute_test.h"

#include <sys/mman.h>
#include <unistd.h>

/* ---- bytes from another process ---------------------------------------------------------- */

struct wire {
    _Alignas(8) uint8_t bytes[2 * TN_ATTRIBUTES_MAX_BYTES];
    size_t used;
};

static void put(struct wire *w, uint16_t kind, const void *payload, uint32_t bytes)
{
    struct tni_attribute head = {.kind = kind, .bytes = bytes};
    size_t room = tni_align_up(bytes, 8);
    memcpy(w->bytes + w->used, &head, sizeof head);
    memset(w->bytes + w->used + sizeof head, 0, room);
    if (bytes > 0)
        memcpy(w->bytes + w->used + sizeof head, payload, bytes);
    w->used += sizeof head + room;
}

/* Memory that ends where nothing may be read any more. */
static uint8_t *guard(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), room = 32 * page;
    uint8_t *memory =
        mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    assert_int_equal(mprotect(memory + room, page, PROT_NONE), 0);
    return memory + room;
}

static int adopt_at_the_edge(tn_tensor *t, const void *bytes, size_t size_bytes)
{
    static uint8_t *end;
    if (end == NULL)
        end = guard();
    memcpy(end - size_bytes, bytes, size_bytes);
    return tni_attributes_adopt(t, end - size_bytes, size_bytes);
}

/* One attribute that a tensor [2, 3] of int32 does not take. */
static void refuse_one(uint16_t kind, const void *payload, uint32_t bytes, int status,
                       const char *words)
{
    static struct wire w;
    tn_tensor *t = make(TN_INT32, 2, (int64_t[]){2, 3});
    w.used = 0;
    put(&w, kind, payload, bytes);
    refused(adopt_at_the_edge(t, w.bytes, w.used), status, words);
    assert_null(t->attributes);
    tn_tensor_unref(t);
}

TN_TEST(attributes_of_a_kind_that_is_not_known_are_another_versions)
{
    refuse_one(TNI_ATTRIBUTE_KINDS, "x", 1, TN_ERR_VERSION, "attribute of kind 8 is not known");
    refuse_one(0, "x", 1, TN_ERR_VERSION, "attribute of kind 0 is not known");
    refuse_one(65535, "x", 1, TN_ERR_VERSION, "attribute of kind 65535 is not known");
}

TN_TEST(received_flags_and_names_are_checked_as_setters_check_them)
{
    static const struct {
        uint16_t kind;
        uint32_t bytes;
        const char *payload;
        const char *words;
    } cases[] = {
        {TNI_ATTRIBUTE_FLAGS, 4, "\0\0\0\0", "the attribute 'flags' is 0"},
        {TNI_ATTRIBUTE_FLAGS, 4, "\0\1\0\0", "flags 0x100"},
        {TNI_ATTRIBUTE_FLAGS, 4, "\3\0\0\0", "exclude each other"},
        {TNI_ATTRIBUTE_FLAGS, 4, "\x10\0\0\0", "needs a complex type"},
        {TNI_ATTRIBUTE_FLAGS, 3, "\1\0\0", "flags take 3 bytes"},
        {TNI_ATTRIBUTE_FLAGS, 8, "\1\0\0\0\0\0\0", "flags take 8 bytes"},
        {TNI_ATTRIBUTE_FLAGS, 0, "", "flags take 0 bytes"},
        {TNI_ATTRIBUTE_NAME, 8, "12345678", "no zero byte at its end within 8 bytes"},
        {TNI_ATTRIBUTE_NAME, 0, "", "no zero byte at its end within 0 bytes"},
        {TNI_ATTRIBUTE_NAME, 1, "\0", "a name of 0 bytes"},
        {TNI_ATTRIBUTE_NAME, 4, "ab\0", "a name of 2 bytes and its zero byte do not fill 4"},
        {TNI_ATTRIBUTE_NAME, 3, "a\n", "not UTF-8"},
        {TNI_ATTRIBUTE_AXIS_NAMES, 4, "abc", "the name of axis 1 has no zero byte"},
        {TNI_ATTRIBUTE_AXIS_NAMES, 4, "a\0bc",
         "the name of axis 1 has no zero byte at its end within 2"},
        {TNI_ATTRIBUTE_AXIS_NAMES, 6, "a\0b\0c", "take 4 of 6 bytes"},
        {TNI_ATTRIBUTE_AXIS_NAMES, 2, "\0", "0 letters"},
        {TNI_ATTRIBUTE_AXIS_NAMES, 4, "a\0\x80", "the name of axis 1"},
        {TNI_ATTRIBUTE_METADATA, 8, "12345678", "no zero byte at its end"},
        {TNI_ATTRIBUTE_METADATA, 8, "\0\0\0\0\0\0\0", "a metadata key of 0 bytes"},
        {TNI_ATTRIBUTE_METADATA, 4, "key", "key of 3 bytes and its padding do not fit in 4"},
        {TNI_ATTRIBUTE_METADATA, 9, "key\0\0\1\0\0x",
         "key of 3 bytes and its padding do not fit in 9"},
        {TNI_ATTRIBUTE_METADATA, 8, "k\1y\0\0\0\0", "byte 1 of the metadata key"},
    };
    for (size_t i = 0; i < TNI_COUNT(cases); i++)
        refuse_one(cases[i].kind, cases[i].payload, cases[i].bytes, TN_ERR_CORRUPT,
                   cases[i].words);
    refuse_one(TNI_ATTRIBUTE_NAME, letters(128), 129, TN_ERR_CORRUPT, "more than 127 bytes");
    refuse_one(TNI_ATTRIBUTE_METADATA, letters(64), 72, TN_ERR_CORRUPT, "more than 63 bytes");
}

static void refuse_words(uint16_t kind, const uint32_t *words, uint32_t count, const char *text)
{
    refuse_one(kind, words, count * 4, TN_ERR_CORRUPT, text);
}

TN_TEST(received_levels_of_detail_are_checked_as_setters_check_them)
{
    enum { LOD = TNI_ATTRIBUTE_LOD };
    refuse_words(LOD, NULL, 0, "0 levels of detail");
    refuse_words(LOD, (uint32_t[]){0, 0}, 2, "0 levels of detail");
    refuse_words(LOD, (uint32_t[]){9}, 1, "9 levels of detail");
    refuse_words(LOD, (uint32_t[]){UINT32_MAX, 2}, 2, "levels of detail: 1 to 8");
    refuse_words(LOD, (uint32_t[]){1, 2}, 2, "1 levels of detail do not fit their 8 bytes");
    refuse_words(LOD, (uint32_t[]){1, UINT32_MAX, 0, 0}, 4, "level 0 of detail has 4294967295");
    refuse_words(LOD, (uint32_t[]){1, 1, 0, 0}, 4, "level 0 of detail has 1 offsets");
    refuse_words(LOD, (uint32_t[]){1, 2, 0, 0, 2, 0, 2, 0}, 8, "fit their 32 bytes");
    refuse_words(LOD, (uint32_t[]){1, 4096, 0, 0, 2, 0}, 6, "fit their 24 bytes");
    refuse_words(LOD, (uint32_t[]){2, 2, 2, 1, 0, 0, 1, 0, 0, 0, 2, 0}, 12,
                 "fit their 48 bytes");
    refuse_words(LOD, (uint32_t[]){8}, 1, "fit their 4 bytes");
    refuse_words(LOD, (uint32_t[]){1, 2, 0, 0, 3, 0}, 6,
                 "offset 3, but the first axis has the size 2");
    refuse_words(LOD, (uint32_t[]){1, 2, 0, 0, 2, 1}, 6, "ends with the offset 4294967298");
    refuse_words(LOD, (uint32_t[]){1, 2, 1, 0, 2, 0}, 6, "begins with the offset 1");
    refuse_words(LOD, (uint32_t[]){2, 2, 2, 0, 0, 0, 2, 0, 0, 0, 2, 0}, 12,
                 "offset 2, but the next level has this many sequences: 1");
}

TN_TEST(quantizers_of_others_are_checked_as_if_they_were_set_here)
{
    enum { QUANTIZER = TNI_ATTRIBUTE_QUANTIZER };
    const uint32_t half = 0x3fe00000; /* of 0.5, the upper word */
    refuse_words(QUANTIZER, (uint32_t[]){1, 0, 1}, 3, "a quantizer does not fit in 12 bytes");
    refuse_words(QUANTIZER, (uint32_t[]){1, 0, 1, 0, 0, half}, 6,
                 "1 scales does not fit its 24 bytes");
    refuse_words(QUANTIZER, (uint32_t[]){0, 0, 1, 0, 0, half, 0, 0}, 8,
                 "scheme has the number 0");
    refuse_words(QUANTIZER, (uint32_t[]){1, 0, 1, 7, 0, half, 0, 0}, 8,
                 "reserved of a quantizer is 7");
    refuse_words(QUANTIZER, (uint32_t[]){1, 0, 1, 0, 0, 0x7ff00000, 0, 0}, 8, "scale 0");
    refuse_words(QUANTIZER, (uint32_t[]){2, 0, UINT32_MAX, 0, 0, half, 0, 0}, 8,
                 "4294967295 scales for axis 0 of size 2");
    refuse_words(QUANTIZER, (uint32_t[]){2, 0, 2, 0, 0, half, 0, 0}, 8,
                 "2 scales does not fit its 32 bytes");
    refuse_words(QUANTIZER, (uint32_t[]){2, 0x80000000, 2, 0, 0, half, 0, 0}, 8,
                 "names axis -2147");
}

TN_TEST(parts_of_others_are_checked_as_if_they_were_marked_here)
{
    enum { PART = TNI_ATTRIBUTE_PART, COO = TN_LAYOUT_COO, PARTS_2 = 2 << 16 };
    refuse_words(PART, (uint32_t[]){COO, 0, PARTS_2}, 3, "fit its 12 bytes");
    refuse_words(PART, (uint32_t[]){COO, 0, PARTS_2, 2, 9, 0}, 6, "fit its 24 bytes");
    refuse_words(PART, (uint32_t[]){COO, 0, PARTS_2, 0x80000000}, 4, "fit its 16 bytes");
    refuse_words(PART, (uint32_t[]){COO, 0, PARTS_2, 33}, 4, "fit its 16 bytes");
    refuse_words(PART, (uint32_t[]){COO, 0, PARTS_2, 0}, 4, "COO cannot have 0 axes");
    refuse_words(PART, (uint32_t[]){7, 0, PARTS_2, 1, 9, 0}, 6, "the number 7");
    refuse_words(PART, (uint32_t[]){COO, 0, PARTS_2 | 2, 1, 9, 0}, 6, "part 2 of 2");
    refuse_words(PART, (uint32_t[]){COO, 0, 3 << 16, 1, 9, 0}, 6, "part 0 of 3");
    refuse_words(PART, (uint32_t[]){COO, 0, PARTS_2, 1, 0, 0x80000000}, 6,
                 "the negative size -9223");
    refuse_words(PART, (uint32_t[]){COO, 0, PARTS_2, 2, 9, 0, 9, 0}, 8,
                 "COO have the type int32");
    refuse_words(PART, (uint32_t[]){COO, 0, PARTS_2 | 1, 2, 9, 0, 9, 0}, 8,
                 "axis 1 of the values has size 3");
}

TN_TEST(attributes_out_of_order_repeated_or_badly_framed_are_corrupt)
{
    static struct wire w;
    tn_tensor *t = make(TN_INT32, 2, (int64_t[]){2, 3});
    const uint32_t flags = TN_BUFFER;
    put(&w, TNI_ATTRIBUTE_NAME, "name", 5);
    put(&w, TNI_ATTRIBUTE_FLAGS, &flags, 4);
    refused(adopt_at_the_edge(t, w.bytes, w.used), TN_ERR_CORRUPT,
            "'flags' stands behind 'name'");
    w.used = 0;
    put(&w, TNI_ATTRIBUTE_NAME, "name", 5);
    put(&w, TNI_ATTRIBUTE_NAME, "name", 5);
    refused(adopt_at_the_edge(t, w.bytes, w.used), TN_ERR_CORRUPT,
            "attribute 'name' occurs twice");
    w.used = 0;
    put(&w, TNI_ATTRIBUTE_METADATA, "a\0\0\0\0\0\0\0value", 13);
    put(&w, TNI_ATTRIBUTE_METADATA, "b\0\0\0\0\0\0\0value", 13);
    put(&w, TNI_ATTRIBUTE_METADATA, "a\0\0\0\0\0\0\0other", 13);
    refused(adopt_at_the_edge(t, w.bytes, w.used), TN_ERR_CORRUPT, "key 'a' occurs twice");
    w.bytes[23] = 1; /* the last byte that fills up the first value */
    refused(adopt_at_the_edge(t, w.bytes, w.used), TN_ERR_CORRUPT, "is not zero");
    w.bytes[23] = 0, w.bytes[2] = 1;
    refused(adopt_at_the_edge(t, w.bytes, w.used), TN_ERR_CORRUPT, "reserved is 0x1");
    w.bytes[2] = 0, w.bytes[4] = 255;
    refused(adopt_at_the_edge(t, w.bytes, w.used), TN_ERR_CORRUPT,
            "states 255 bytes, but 64 are left");
    memset(w.bytes + 4, 0xff, 4);
    refused(adopt_at_the_edge(t, w.bytes, w.used), TN_ERR_CORRUPT, "states 4294967295 bytes");
    refused(tni_attributes_adopt(t, w.bytes, 12), TN_ERR_CORRUPT, "attributes take 12 bytes");
    assert_null(t->attributes);
    tn_tensor_unref(t);
}

TN_TEST(too_many_or_too_long_attributes_are_corrupt)
{
    static const char large[TN_ATTRIBUTES_MAX_BYTES] = "k";
    static struct wire w;
    tn_tensor *t = make(TN_INT32, 2, (int64_t[]){2, 3});
    for (int i = 0; i <= TN_METADATA_MAX_KEYS; i++) {
        char key[8] = {'k', (char)('0' + i / 10), (char)('0' + i % 10)};
        put(&w, TNI_ATTRIBUTE_METADATA, key, 8);
    }
    refused(adopt_at_the_edge(t, w.bytes, w.used), TN_ERR_CORRUPT, "65 keys: at most 64");
    TN_CHECK_OK(adopt_at_the_edge(t, w.bytes, w.used - 16));
    w.used = 0;
    put(&w, TNI_ATTRIBUTE_METADATA, large, sizeof large);
    refused(tni_attributes_adopt(t, w.bytes, w.used), TN_ERR_CORRUPT, "attributes take 32776");
    assert_non_null(tn_tensor_metadata(t, "k63", NULL));
    tn_tensor_unref(t);
}

/* ---- whole views ------------------------------------------------------------------------- */

enum { VIEW_BYTES = TNI_VIEW_MAX_BYTES + TN_ATTRIBUTES_MAX_BYTES };
struct view_bytes {
    _Alignas(8) uint8_t bytes[VIEW_BYTES];
    size_t used;
};

static void encode(const tn_tensor *t, struct view_bytes *v)
{
    v->used = tni_tensor_encode(t, t->attributes, VIEW_BYTES, v->bytes);
    assert_int_equal(v->used, tni_tensor_view_bytes(t, t->attributes));
}

static tn_tensor *share_full(tn_domain *domain)
{
    tn_tensor *t = make_full();
    TN_CHECK_OK(tn_tensor_share(domain, t, NULL));
    return t;
}

TN_TEST(a_decoded_view_has_the_attributes_that_were_encoded)
{
    static struct view_bytes v, again;
    tn_domain *domain = make_domain();
    tn_tensor *t = share_full(domain), *back;
    encode(t, &v);
    assert_int_equal(tni_tensor_decode(domain, v.bytes, v.used, &back), v.used);
    expect_one_of_each(back);
    encode(back, &again);
    assert_int_equal(again.used, v.used);
    assert_memory_equal(again.bytes, v.bytes, v.used);
    tni_tensor_forget(NULL, back);
    tn_tensor_unref(t);
    free_domain(domain);
}

TN_TEST(a_view_that_is_too_long_for_its_room_is_not_written)
{
    static struct view_bytes v;
    tn_domain *domain = make_domain();
    tn_tensor *t = share_full(domain);
    size_t need = tni_tensor_view_bytes(t, t->attributes);
    memset(v.bytes, 0x5a, sizeof v.bytes);
    for (size_t room = 0; room < need; room++)
        assert_int_equal(tni_tensor_encode(t, t->attributes, room, v.bytes), 0);
    for (size_t i = 0; i < sizeof v.bytes; i++)
        assert_int_equal(v.bytes[i], 0x5a);
    assert_int_equal(tni_tensor_encode(t, t->attributes, need, v.bytes), need);
    assert_int_equal(v.bytes[need], 0x5a);
    tn_tensor_unref(t);
    free_domain(domain);
}

TN_TEST(held_attributes_stay_as_they_are_until_dropped)
{
    tn_tensor *t = make_full(), *other = make_full();
    struct tni_attributes *held = tni_attributes_hold(t);
    uint32_t bytes = held->bytes, kinds = tni_attributes_kinds(held);
    TN_CHECK_OK(tn_tensor_copy_attributes(other, t));
    assert_ptr_not_equal(other->attributes, held); /* each tensor has its own */
    TN_CHECK_OK(tn_tensor_set_flags(t, 0));
    TN_CHECK_OK(tn_tensor_set_metadata(t, "step", NULL, 0));
    assert_ptr_not_equal(t->attributes, held);
    assert_int_equal(held->bytes, bytes);
    assert_int_equal(tni_attributes_kinds(held), kinds);
    tn_tensor_unref(t);
    expect_one_of_each(other);
    tn_tensor_unref(other);
    assert_int_equal(tni_attributes_kinds(held), kinds);
    tni_attributes_drop(held);
}

TN_TEST(the_descriptor_of_a_block_says_which_attributes_were_sent)
{
    static struct view_bytes v;
    tn_domain *domain = make_domain();
    tn_tensor *t = share_full(domain);
    encode(t, &v);
    struct tni_desc *desc = tni_desc_at(&domain->segment, t->storage->block);
    assert_int_equal(atomic_load(&desc->attributes), tni_attributes_kinds(t->attributes));
    assert_int_equal(atomic_load(&desc->flags), TN_REQUIRES_GRAD | TN_PARAMETER);
    tn_tensor_unref(t);
    free_domain(domain);
}

/* What is decoded is well-formed, whatever it was decoded from: it encodes to what it was. */
static bool decode_hostile(tn_domain *domain, const uint8_t *bytes, size_t size_bytes)
{
    static struct view_bytes again;
    static uint8_t *end;
    tn_tensor *t = NULL;
    if (end == NULL)
        end = guard();
    memcpy(end - size_bytes, bytes, size_bytes);
    int used = tni_tensor_decode(domain, end - size_bytes, size_bytes, &t);
    if (used < 0) {
        assert_null(t);
        /* The last two: of another block than it was, with an object of its own. */
        assert_true(used == TN_ERR_CORRUPT || used == TN_ERR_VERSION || used == TN_ERR_STALE ||
                    used == TN_ERR_NOT_FOUND);
        return false;
    }
    const struct tni_view *view = (const struct tni_view *)(const void *)bytes;
    uint32_t attribute_bytes = view->attribute_bytes;
    assert_int_equal(t->attributes != NULL ? t->attributes->bytes : 0, attribute_bytes);
    encode(t, &again);
    assert_memory_equal(again.bytes + again.used - attribute_bytes,
                        bytes + (size_t)used - attribute_bytes, attribute_bytes);
    tni_tensor_forget(NULL, t);
    return true;
}

TN_TEST(a_view_with_any_byte_altered_gives_a_tensor_or_an_error)
{
    static struct view_bytes v;
    tn_domain *domain = make_domain();
    tn_tensor *t = share_full(domain);
    unsigned good = 0, bad = 0;
    encode(t, &v);
    for (size_t at = 0; at < v.used; at++)
        for (unsigned mask = 1; mask < 256; mask++) {
            v.bytes[at] ^= (uint8_t)mask;
            *(decode_hostile(domain, v.bytes, v.used) ? &good : &bad) += 1;
            v.bytes[at] ^= (uint8_t)mask;
        }
    assert_true(decode_hostile(domain, v.bytes, v.used));
    tnt_note("%u tensors, %u errors", good, bad);
    assert_true(good > 0 && bad > good);
    tn_tensor_unref(t);
    free_domain(domain);
}

TN_TEST(a_view_with_many_bytes_altered_gives_a_tensor_or_an_error)
{
    static struct view_bytes v, altered;
    static const uint8_t telling[] = {0, 1, 2, 4, 7, 8, 0x7f, 0x80, 0xff};
    tn_domain *domain = make_domain();
    tn_tensor *t = share_full(domain);
    encode(t, &v);
    for (int i = 0; i < 100000; i++) {
        altered = v;
        for (uint64_t n = tnt_random_below(6); n-- > 0;)
            altered.bytes[tnt_random_below(v.used)] = telling[tnt_random_below(sizeof telling)];
        (void)decode_hostile(domain, altered.bytes, v.used);
    }
    tn_tensor_unref(t);
    free_domain(domain);
}

TN_TEST(a_view_that_ends_anywhere_is_an_error)
{
    static struct view_bytes v;
    tn_domain *domain = make_domain();
    tn_tensor *t = share_full(domain);
    encode(t, &v);
    for (size_t size_bytes = 0; size_bytes < v.used; size_bytes++)
        assert_false(decode_hostile(domain, v.bytes, size_bytes));
    /* Shorter attributes that say so are cut at the end of one, or not at all. */
    struct tni_view *view = (struct tni_view *)(void *)v.bytes;
    unsigned good = 0;
    size_t others = v.used - view->attribute_bytes;
    for (uint16_t bytes = view->attribute_bytes; bytes-- > 0;) {
        view->attribute_bytes = bytes;
        good += decode_hostile(domain, v.bytes, others + bytes);
    }
    assert_int_equal(good, 7);
    tn_tensor_unref(t);
    free_domain(domain);
}

TN_TEST(a_sparse_view_with_an_altered_byte_is_refused_or_a_tensor)
{
    static struct view_bytes v;
    tn_domain *domain = make_domain();
    tn_sparse coo = new_coo();
    TN_CHECK_OK(tn_sparse_mark(&coo));
    for (int i = 0; i < 2; i++) {
        TN_CHECK_OK(tn_tensor_share(domain, coo.parts[i], NULL));
        encode(coo.parts[i], &v);
        for (size_t at = 0; at < v.used; at++)
            for (unsigned mask = 1; mask < 256; mask++) {
                v.bytes[at] ^= (uint8_t)mask;
                (void)decode_hostile(domain, v.bytes, v.used);
                v.bytes[at] ^= (uint8_t)mask;
            }
        assert_true(decode_hostile(domain, v.bytes, v.used));
    }
    unref_parts(&coo);
    free_domain(domain);
}
