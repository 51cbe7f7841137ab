/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes of tensors: what can be set, what is refused, and what uses of tensors do to them.
 */
#include <tenon/dlpack.h>

#include "harness/tensor.h"
#include "unit/attribute_test.h"

#include <math.h>

/* ---- none -------------------------------------------------------------------------------- */

TN_TEST(a_tensor_starts_without_attributes)
{
    tn_tensor *t = make_line(TN_FLOAT32, 4);
    tn_quantizer quantizer = {.count = 77};
    size_t bytes = 5;
    assert_int_equal(tn_tensor_flags(t), 0);
    assert_null(tn_tensor_name(t));
    assert_null(tn_tensor_axis_name(t, 0));
    assert_int_equal(tnt_lod_levels(t), 0);
    assert_null(tn_tensor_lod(t, 0, NULL));
    assert_false(tn_tensor_quantizer(t, &quantizer));
    assert_int_equal(quantizer.count, 77);
    assert_null(tn_tensor_metadata(t, "step", &bytes));
    assert_int_equal(bytes, 5);
    tn_tensor_unref(t);
}

TN_TEST(each_attribute_comes_back_as_it_was_set_whatever_the_order)
{
    tn_tensor *t = make_full();
    expect_one_of_each(t);
    assert_int_equal(tni_attributes_kinds(t->attributes),
                     1u << TNI_ATTRIBUTE_FLAGS | 1u << TNI_ATTRIBUTE_NAME |
                         1u << TNI_ATTRIBUTE_AXIS_NAMES | 1u << TNI_ATTRIBUTE_LOD |
                         1u << TNI_ATTRIBUTE_QUANTIZER | 1u << TNI_ATTRIBUTE_METADATA);
    tn_tensor_unref(t);
}

TN_TEST(attributes_that_are_taken_away_one_by_one_leave_none)
{
    tn_tensor *t = make_full();
    for (int twice = 0; twice < 2; twice++) {
        TN_CHECK_OK(tn_tensor_set_lod(t, 0, NULL, NULL));
        TN_CHECK_OK(tn_tensor_set_flags(t, 0));
        TN_CHECK_OK(tn_tensor_set_metadata(t, "step", NULL, 0));
        TN_CHECK_OK(tn_tensor_set_name(t, ""));
        TN_CHECK_OK(tn_tensor_set_quantizer(t, NULL));
        TN_CHECK_OK(tn_tensor_set_metadata(t, "epoch", NULL, 0));
        TN_CHECK_OK(tn_tensor_set_axis_names(t, (const char *[]){"", "", ""}));
        assert_null(t->attributes);
    }
    tn_tensor_unref(t);
}

TN_TEST(a_setter_may_be_given_what_a_getter_of_the_same_tensor_lent)
{
    tn_tensor *t = make_full();
    tn_quantizer quantizer;
    uint32_t counts[2];
    size_t bytes;
    TN_CHECK_OK(tn_tensor_set_name(t, tn_tensor_name(t)));
    TN_CHECK_OK(tn_tensor_set_axis_names(t, (const char *[]){tn_tensor_axis_name(t, 0),
                                                             tn_tensor_axis_name(t, 1),
                                                             tn_tensor_axis_name(t, 2)}));
    const uint64_t *offsets[] = {tn_tensor_lod(t, 0, &counts[0]),
                                 tn_tensor_lod(t, 1, &counts[1])};
    TN_CHECK_OK(tn_tensor_set_lod(t, 2, counts, offsets));
    assert_true(tn_tensor_quantizer(t, &quantizer));
    TN_CHECK_OK(tn_tensor_set_quantizer(t, &quantizer));
    const void *value = tn_tensor_metadata(t, "step", &bytes);
    TN_CHECK_OK(tn_tensor_set_metadata(t, "step", value, bytes));
    TN_CHECK_OK(tn_tensor_copy_attributes(t, t));
    expect_one_of_each(t);
    tn_tensor_unref(t);
}

/* ---- flags ------------------------------------------------------------------------------- */

TN_TEST(each_flag_can_be_set_where_it_makes_sense)
{
    tn_tensor *t = make_line(TN_COMPLEX64, 4);
    for (uint32_t flag = TN_REQUIRES_GRAD; flag <= TN_WAS_PINNED; flag <<= 1) {
        TN_CHECK_OK(tn_tensor_set_flags(t, flag));
        assert_int_equal(tn_tensor_flags(t), flag);
    }
    tn_tensor_unref(t);
}

TN_TEST(unknown_or_excluding_flags_are_refused_and_change_nothing)
{
    tn_tensor *t = make_line(TN_FLOAT32, 4);
    TN_CHECK_OK(tn_tensor_set_flags(t, TN_BUFFER));
    refused(tn_tensor_set_flags(t, 1u << 7), TN_ERR_INVALID, "0x80");
    refused(tn_tensor_set_flags(t, 1u << 31 | TN_BUFFER), TN_ERR_INVALID, "0x80000000");
    refused(tn_tensor_set_flags(t, TN_REQUIRES_GRAD | TN_STOP_GRADIENT), TN_ERR_INVALID,
            "TN_REQUIRES_GRAD and TN_STOP_GRADIENT");
    refused(tn_tensor_set_flags(t, TN_PARAMETER | TN_BUFFER), TN_ERR_INVALID,
            "TN_PARAMETER and TN_BUFFER");
    refused(tn_tensor_set_flags(t, TN_CONJUGATE), TN_ERR_INVALID, "float32");
    refused(tn_tensor_set_flags(NULL, 0), TN_ERR_INVALID, "the tensor is NULL");
    assert_int_equal(tn_tensor_flags(t), TN_BUFFER);
    tn_tensor_unref(t);
}

/* ---- names ------------------------------------------------------------------------------- */

TN_TEST(a_name_of_1_to_127_bytes_of_utf_8_is_kept)
{
    static const char *const names[] = {"x",
                                        "a name",
                                        "12345678",
                                        "\xc2\xa0",
                                        "\xdf\xbf",
                                        "\xe0\xa0\x80",
                                        "\xed\x9f\xbf",
                                        "\xee\x80\x80",
                                        "\xf0\x90\x80\x80",
                                        "\xf4\x8f\xbf\xbf"};
    tn_tensor *t = make_line(TN_FLOAT32, 4);
    for (size_t i = 0; i < TNI_COUNT(names); i++) {
        TN_CHECK_OK(tn_tensor_set_name(t, names[i]));
        assert_string_equal(tn_tensor_name(t), names[i]);
    }
    TN_CHECK_OK(tn_tensor_set_name(t, letters(127)));
    assert_string_equal(tn_tensor_name(t), letters(127));
    TN_CHECK_OK(tn_tensor_set_name(t, NULL));
    assert_null(tn_tensor_name(t));
    tn_tensor_unref(t);
}

TN_TEST(a_name_that_is_too_long_or_not_printable_is_refused)
{
    static const char *const names[] = {"a\nb",
                                        "\x7f",
                                        "\x1f",
                                        "a\xc2\x80",
                                        "\xc2\x9f",
                                        "\xc0\xaf",
                                        "\xc1\xbf",
                                        "\x80",
                                        "ab\xff",
                                        "\xe0\x9f\xbf",
                                        "\xed\xa0\x80",
                                        "\xf0\x8f\xbf\xbf",
                                        "\xc3",
                                        "\xe2\x82",
                                        "\xf4\x90\x80\x80",
                                        "\xf5\x80\x80\x80",
                                        "\xf0\x90\x80",
                                        "\xe2(\xa1",
                                        "\xf0\x90\x80(",
                                        "ab\xc3"};
    tn_tensor *t = make_line(TN_FLOAT32, 4);
    TN_CHECK_OK(tn_tensor_set_name(t, "before"));
    refused(tn_tensor_set_name(t, letters(128)), TN_ERR_INVALID, "more than 127 bytes");
    for (size_t i = 0; i < TNI_COUNT(names); i++)
        refused(tn_tensor_set_name(t, names[i]), TN_ERR_INVALID, "not UTF-8");
    refused(tn_tensor_set_name(t, names[19]), TN_ERR_INVALID, "byte 2 of the name, 0xc3");
    assert_string_equal(tn_tensor_name(t), "before");
    tn_tensor_unref(t);
}

TN_TEST(axes_have_names_of_at_most_63_bytes_or_none)
{
    tn_tensor *t = make(TN_FLOAT32, 2, (int64_t[]){2, 3});
    TN_CHECK_OK(tn_tensor_set_axis_names(t, (const char *[]){letters(63), ""}));
    assert_string_equal(tn_tensor_axis_name(t, 0), letters(63));
    assert_string_equal(tn_tensor_axis_name(t, 1), "");
    assert_null(tn_tensor_axis_name(t, 2));
    assert_null(tn_tensor_axis_name(t, -1));
    refused(tn_tensor_set_axis_names(t, (const char *[]){"a", letters(64)}), TN_ERR_INVALID,
            "axis 1 has more than 63 bytes");
    refused(tn_tensor_set_axis_names(t, (const char *[]){"a", "\n"}), TN_ERR_INVALID,
            "the name of axis 1");
    refused(tn_tensor_set_axis_names(t, (const char *[]){"a", NULL}), TN_ERR_INVALID,
            "axis 1 is NULL");
    assert_string_equal(tn_tensor_axis_name(t, 0), letters(63));
    TN_CHECK_OK(tn_tensor_set_axis_names(t, NULL));
    assert_null(tn_tensor_axis_name(t, 0));
    tn_tensor_unref(t);
}

/* ---- levels of detail -------------------------------------------------------------------- */

static int set_two(tn_tensor *t, uint32_t coarse_count, const uint64_t *coarse,
                   uint32_t fine_count, const uint64_t *fine)
{
    return tn_tensor_set_lod(t, 2, (uint32_t[]){coarse_count, fine_count},
                             (const uint64_t *[]){coarse, fine});
}

TN_TEST(levels_of_detail_that_cover_the_tensor_are_kept)
{
    static const uint64_t coarse[] = {0, 0, 2}, fine[] = {0, 3, 6}, same[] = {0, 6};
    static const uint64_t one[] = {0, 1};
    const uint64_t *eight[TN_LOD_MAX_LEVELS];
    uint32_t counts[TN_LOD_MAX_LEVELS], count;
    tn_tensor *t = make(TN_FLOAT32, 2, (int64_t[]){6, 2});
    TN_CHECK_OK(set_two(t, 3, coarse, 3, fine));
    assert_memory_equal(tn_tensor_lod(t, 0, &count), coarse, sizeof coarse);
    assert_int_equal(count, 3);
    assert_null(tn_tensor_lod(t, 2, &count));
    for (int i = 0; i < TN_LOD_MAX_LEVELS; i++)
        eight[i] = i + 1 < TN_LOD_MAX_LEVELS ? one : same, counts[i] = 2;
    TN_CHECK_OK(tn_tensor_set_lod(t, TN_LOD_MAX_LEVELS, counts, eight));
    assert_int_equal(tnt_lod_levels(t), TN_LOD_MAX_LEVELS);
    assert_memory_equal(tn_tensor_lod(t, 7, NULL), same, sizeof same);
    tn_tensor_unref(t);
}

TN_TEST(levels_of_detail_that_do_not_cover_the_tensor_are_refused)
{
    static const uint64_t coarse[] = {0, 1, 2}, fine[] = {0, 3, 6}, falls[] = {0, 4, 3};
    static const uint64_t late[] = {1, 3, 6}, small[] = {0, 3, 5}, large[] = {0, 3, 7};
    tn_tensor *t = make(TN_FLOAT32, 2, (int64_t[]){6, 2}), *scalar = make(TN_FLOAT32, 0, NULL);
    refused(set_two(t, 3, coarse, 3, small), TN_ERR_INVALID,
            "level 1 of detail ends with the offset 5, but the first axis has the size 6");
    refused(set_two(t, 3, coarse, 3, large), TN_ERR_INVALID,
            "level 1 of detail ends with the offset 7");
    refused(set_two(t, 3, small, 3, fine), TN_ERR_INVALID,
            "offset 5, but the next level has this many sequences: 2");
    refused(set_two(t, 3, late, 3, fine), TN_ERR_INVALID,
            "level 0 of detail begins with the offset 1");
    refused(set_two(t, 3, coarse, 3, falls), TN_ERR_INVALID,
            "level 1 of detail falls from 4 to 3 at its offset 2");
    refused(set_two(t, 3, coarse, 1, fine), TN_ERR_INVALID, "level 1 of detail has 1 offsets");
    refused(set_two(t, UINT32_MAX, coarse, 3, fine), TN_ERR_INVALID, "level 0");
    refused(set_two(t, 3, NULL, 3, fine), TN_ERR_INVALID,
            "the offsets of level 0 of detail are NULL");
    refused(tn_tensor_set_lod(t, 9, (uint32_t[9]){2}, (const uint64_t *[9]){fine}),
            TN_ERR_INVALID, "9 levels of detail: 1 to 8");
    refused(tn_tensor_set_lod(t, 1, NULL, NULL), TN_ERR_INVALID, "counts is NULL");
    refused(tn_tensor_set_lod(scalar, 1, (uint32_t[]){2}, (const uint64_t *[]){fine}),
            TN_ERR_INVALID, "a tensor without axes");
    assert_null(t->attributes);
    tn_tensor_unref(scalar);
    tn_tensor_unref(t);
}

/* ---- quantizers -------------------------------------------------------------------------- */

static const double three_scales[] = {1, -0.25, 1e-3};
static const int64_t three_zeros[] = {0, INT64_MIN, INT64_MAX};

TN_TEST(a_quantizer_by_channel_has_a_scale_and_a_zero_point_for_each)
{
    tn_tensor *t = make(TN_INT8, 2, (int64_t[]){4, 3}), *none = make_line(TN_UINT8, 0);
    tn_quantizer q = {TN_QUANTIZER_AFFINE_CHANNEL, 1, 3, 0, three_scales, three_zeros}, back;
    TN_CHECK_OK(tn_tensor_set_quantizer(t, &q));
    assert_true(tn_tensor_quantizer(t, &back));
    assert_int_equal(back.scheme, TN_QUANTIZER_AFFINE_CHANNEL);
    assert_int_equal(back.axis, 1);
    assert_int_equal(back.count, 3);
    assert_memory_equal(back.scales, three_scales, sizeof three_scales);
    assert_memory_equal(back.zero_points, three_zeros, sizeof three_zeros);
    TN_CHECK_OK(tn_tensor_set_quantizer(
        none, &(tn_quantizer){.scheme = TN_QUANTIZER_AFFINE_CHANNEL, .count = 0}));
    assert_true(tn_tensor_quantizer(none, &back));
    TN_CHECK_OK(tn_tensor_set_quantizer(none, &(tn_quantizer){.scheme = TN_QUANTIZER_NONE}));
    assert_false(tn_tensor_quantizer(none, &back));
    tn_tensor_unref(none);
    tn_tensor_unref(t);
}

TN_TEST(a_quantizer_that_does_not_fit_the_tensor_is_refused)
{
    static const double bad[][1] = {{0}, {NAN}, {INFINITY}};
    tn_tensor *t = make(TN_UINT8, 2, (int64_t[]){4, 3}), *real = make_line(TN_FLOAT32, 3);
    tn_quantizer whole = {TN_QUANTIZER_AFFINE, 0, 1, 0, three_scales, three_zeros}, q = whole;
    refused(tn_tensor_set_quantizer(real, &q), TN_ERR_INVALID,
            "integer type, but the tensor has float32");
    q.scheme = 3;
    refused(tn_tensor_set_quantizer(t, &q), TN_ERR_INVALID, "scheme has the number 3");
    q = whole, q.axis = 1;
    refused(tn_tensor_set_quantizer(t, &q), TN_ERR_INVALID, "has axis 1 and 1 scales");
    q = whole, q.count = 2;
    refused(tn_tensor_set_quantizer(t, &q), TN_ERR_INVALID, "axis 0 and 2 scales");
    q = whole, q.reserved = 1;
    refused(tn_tensor_set_quantizer(t, &q), TN_ERR_INVALID, "reserved");
    q = whole, q.zero_points = NULL;
    refused(tn_tensor_set_quantizer(t, &q), TN_ERR_INVALID, "zero_points");
    for (size_t i = 0; i < TNI_COUNT(bad); i++) {
        q = whole, q.scales = bad[i];
        refused(tn_tensor_set_quantizer(t, &q), TN_ERR_INVALID, "scale 0 of a quantizer");
    }
    q = (tn_quantizer){TN_QUANTIZER_AFFINE_CHANNEL, 2, 3, 0, three_scales, three_zeros};
    refused(tn_tensor_set_quantizer(t, &q), TN_ERR_INVALID, "names axis 2 of 2");
    q.axis = -1;
    refused(tn_tensor_set_quantizer(t, &q), TN_ERR_INVALID, "names axis -1 of 2");
    q.axis = 0;
    refused(tn_tensor_set_quantizer(t, &q), TN_ERR_INVALID, "3 scales for axis 0 of size 4");
    assert_null(t->attributes);
    tn_tensor_unref(real);
    tn_tensor_unref(t);
}

TN_TEST(a_quantizer_by_channel_has_at_most_2046_channels)
{
    enum { MOST = 2046 };
    static double scales[MOST + 1];
    static int64_t zero_points[MOST + 1];
    for (int i = 0; i <= MOST; i++)
        scales[i] = 1;
    tn_quantizer q = {TN_QUANTIZER_AFFINE_CHANNEL, 0, MOST, 0, scales, zero_points};
    tn_tensor *t = make_line(TN_INT8, MOST), *longer = make_line(TN_INT8, MOST + 1);
    TN_CHECK_OK(tn_tensor_set_quantizer(t, &q));
    q.count = MOST + 1;
    refused(tn_tensor_set_quantizer(longer, &q), TN_ERR_INVALID,
            "'quantizer' takes 32768 bytes and the others take 0: at most 32768");
    tn_tensor_unref(longer);
    tn_tensor_unref(t);
}

/* ---- metadata ---------------------------------------------------------------------------- */

struct seen {
    char keys[256];
    int stop_at;
};

static int note_key(const char *key, const void *bytes, size_t size_bytes, void *context)
{
    struct seen *seen = context;
    assert_int_equal((uintptr_t)bytes % 8, 0);
    size_t at = strlen(seen->keys);
    (void)snprintf(seen->keys + at, sizeof seen->keys - at, "%s=%.*s ", key, (int)size_bytes,
                   (const char *)bytes);
    return --seen->stop_at == 0 ? 33 : 0;
}

TN_TEST(metadata_come_in_the_order_in_which_their_keys_were_set)
{
    tn_tensor *t = make_line(TN_FLOAT32, 4);
    struct seen seen = {.keys = ""}, stopped = {.keys = "", .stop_at = 2};
    size_t bytes;
    TN_CHECK_OK(tn_tensor_set_metadata(t, "zebra", "1", 1));
    TN_CHECK_OK(tn_tensor_set_metadata(t, "gone", "2", 1));
    TN_CHECK_OK(tn_tensor_set_metadata(t, "ähre", "3", 1));
    TN_CHECK_OK(tn_tensor_set_metadata(t, "seventy", "", 0));
    TN_CHECK_OK(tn_tensor_set_metadata(t, "zebra", "a longer one", 12));
    TN_CHECK_OK(tn_tensor_set_metadata(t, "gone", NULL, 0));
    TN_CHECK_OK(tn_tensor_set_name(t, "in between"));
    TN_CHECK_OK(tn_tensor_set_metadata(t, "a", "4", 1));
    TN_CHECK_OK(tn_tensor_for_each_metadata(t, note_key, &seen));
    assert_string_equal(seen.keys, "zebra=a longer one ähre=3 seventy= a=4 ");
    assert_int_equal(tn_tensor_for_each_metadata(t, note_key, &stopped), 33);
    assert_string_equal(stopped.keys, "zebra=a longer one ähre=3 ");
    assert_null(tn_tensor_metadata(t, "gone", &bytes));
    assert_null(tn_tensor_metadata(t, NULL, &bytes));
    refused(tn_tensor_for_each_metadata(t, NULL, NULL), TN_ERR_INVALID, "each is NULL");
    tn_tensor_unref(t);
}

TN_TEST(metadata_keys_have_1_to_63_bytes_and_there_are_at_most_64)
{
    tn_tensor *t = make_line(TN_FLOAT32, 4);
    char key[16];
    refused(tn_tensor_set_metadata(t, NULL, "x", 1), TN_ERR_INVALID,
            "the metadata key is NULL");
    refused(tn_tensor_set_metadata(t, "", "x", 1), TN_ERR_INVALID, "the metadata key is empty");
    refused(tn_tensor_set_metadata(t, letters(64), "x", 1), TN_ERR_INVALID,
            "more than 63 bytes");
    refused(tn_tensor_set_metadata(t, "a\tb", "x", 1), TN_ERR_INVALID,
            "byte 1 of the metadata");
    refused(tn_tensor_set_metadata(t, "key", NULL, 1), TN_ERR_INVALID,
            "bytes is NULL for the metadata key");
    assert_null(t->attributes);
    for (int i = 0; i < TN_METADATA_MAX_KEYS; i++) {
        (void)snprintf(key, sizeof key, "k%d", i);
        TN_CHECK_OK(tn_tensor_set_metadata(t, key, &i, sizeof i));
    }
    refused(tn_tensor_set_metadata(t, "more", "x", 1), TN_ERR_INVALID, "key 65: at most 64");
    TN_CHECK_OK(tn_tensor_set_metadata(t, "more", NULL, 0));
    TN_CHECK_OK(tn_tensor_set_metadata(t, "k63", "other", 5));
    TN_CHECK_OK(tn_tensor_set_metadata(t, "k0", NULL, 0));
    TN_CHECK_OK(tn_tensor_set_metadata(t, letters(63), "x", 1));
    tn_tensor_unref(t);
}

TN_TEST(all_attributes_together_have_a_limit)
{
    static uint8_t value[TN_ATTRIBUTES_MAX_BYTES + 1];
    tn_tensor *t = make_line(TN_FLOAT32, 4);
    TN_CHECK_OK(tn_tensor_set_flags(t, TN_BUFFER));
    /* Two heads of 8 bytes, 8 bytes of flags, 8 of the key. */
    const size_t most = TN_ATTRIBUTES_MAX_BYTES - 32;
    TN_CHECK_OK(tn_tensor_set_metadata(t, "key", value, most));
    assert_int_equal(t->attributes->bytes, TN_ATTRIBUTES_MAX_BYTES);
    refused(tn_tensor_set_metadata(t, "key", value, most + 1), TN_ERR_INVALID,
            "32768 bytes are allowed together");
    refused(tn_tensor_set_metadata(t, "key", value, sizeof value), TN_ERR_INVALID, "32768");
    refused(tn_tensor_set_metadata(t, "key", value, SIZE_MAX), TN_ERR_INVALID, "32768");
    refused(tn_tensor_set_name(t, "n"), TN_ERR_INVALID, "32768 bytes are allowed together");
    TN_CHECK_OK(tn_tensor_set_flags(t, TN_PARAMETER));
    size_t bytes;
    assert_memory_equal(tn_tensor_metadata(t, "key", &bytes), value, most);
    assert_int_equal(bytes, most);
    assert_null(tn_tensor_name(t));
    tn_tensor_unref(t);
}

/* ---- what uses tensors ------------------------------------------------------------------- */

static void expect_only_conjugate(tn_tensor *view)
{
    assert_int_equal(tn_tensor_flags(view), TN_CONJUGATE);
    assert_int_equal(tni_attributes_kinds(view->attributes), 1u << TNI_ATTRIBUTE_FLAGS);
    tn_tensor_unref(view);
}

TN_TEST(every_view_keeps_what_elements_mean_and_nothing_else)
{
    tn_tensor *t = make(TN_COMPLEX64, 2, (int64_t[]){4, 3}), *v;
    TN_CHECK_OK(tn_tensor_set_flags(t, TN_CONJUGATE | TN_PARAMETER | TN_WAS_PINNED));
    TN_CHECK_OK(tn_tensor_set_name(t, "named"));
    TN_CHECK_OK(tn_tensor_slice(t, 0, 1, 3, 1, &v));
    expect_only_conjugate(v);
    TN_CHECK_OK(tn_tensor_transpose(t, NULL, &v));
    expect_only_conjugate(v);
    TN_CHECK_OK(tn_tensor_reshape(t, 1, (int64_t[]){12}, &v));
    expect_only_conjugate(v);
    TN_CHECK_OK(tn_tensor_view(t, TN_COMPLEX64, 1, (int64_t[]){2}, NULL, 8, &v));
    expect_only_conjugate(v);
    TN_CHECK_OK(tn_tensor_set_flags(t, TN_PARAMETER));
    TN_CHECK_OK(tn_tensor_slice(t, 0, 1, 3, 1, &v));
    assert_null(v->attributes);
    tn_tensor_unref(v);
    tn_tensor_unref(t);
}

TN_TEST(a_view_keeps_a_whole_quantizer_and_a_negative_bit)
{
    tn_tensor *t = make(TN_INT8, 2, (int64_t[]){4, 3}), *v;
    tn_quantizer q = {TN_QUANTIZER_AFFINE, 0, 1, 0, three_scales + 2, three_zeros + 2}, back;
    TN_CHECK_OK(tn_tensor_set_quantizer(t, &q));
    TN_CHECK_OK(tn_tensor_set_flags(t, TN_NEGATIVE));
    TN_CHECK_OK(tn_tensor_transpose(t, NULL, &v));
    assert_true(tn_tensor_quantizer(v, &back));
    assert_true(back.scales[0] == 1e-3 && back.zero_points[0] == INT64_MAX);
    assert_int_equal(tn_tensor_flags(v), TN_NEGATIVE);
    tn_tensor_unref(v);
    tn_tensor_unref(t);
}

TN_TEST(a_view_that_cannot_keep_an_attribute_is_refused_by_name)
{
    tn_tensor *t = make(TN_INT8, 2, (int64_t[]){4, 3}), *c = make_line(TN_COMPLEX64, 4);
    tn_tensor *v = NULL;
    tn_quantizer q = {TN_QUANTIZER_AFFINE_CHANNEL, 1, 3, 0, three_scales, three_zeros};
    TN_CHECK_OK(tn_tensor_set_quantizer(t, &q));
    refused(tn_tensor_slice(t, 0, 1, 3, 1, &v), TN_ERR_UNSUPPORTED,
            "quantizer by channel, along axis 1");
    refused(tn_tensor_transpose(t, NULL, &v), TN_ERR_UNSUPPORTED, "quantizer by channel");
    refused(tn_tensor_reshape(t, 1, (int64_t[]){12}, &v), TN_ERR_UNSUPPORTED, "quantizer by");
    refused(tn_tensor_view(t, TN_INT8, 2, (int64_t[]){4, 3}, NULL, 0, &v), TN_ERR_UNSUPPORTED,
            "quantizer by channel");
    q.scheme = TN_QUANTIZER_AFFINE, q.axis = 0, q.count = 1;
    TN_CHECK_OK(tn_tensor_set_quantizer(t, &q));
    refused(tn_tensor_view(t, TN_UINT8, 1, (int64_t[]){4}, NULL, 0, &v), TN_ERR_UNSUPPORTED,
            "another type cannot keep the tensor's quantizer");
    TN_CHECK_OK(tn_tensor_set_flags(c, TN_CONJUGATE));
    refused(tn_tensor_view(c, TN_FLOAT32, 1, (int64_t[]){8}, NULL, 0, &v), TN_ERR_UNSUPPORTED,
            "conjugate bit");
    TN_CHECK_OK(tn_tensor_set_flags(c, TN_NEGATIVE));
    refused(tn_tensor_view(c, TN_FLOAT32, 1, (int64_t[]){8}, NULL, 0, &v), TN_ERR_UNSUPPORTED,
            "negative bit");
    assert_null(v);
    tn_tensor_unref(c);
    tn_tensor_unref(t);
}

TN_TEST(a_refused_view_leaves_no_reference_to_the_storage)
{
    tn_tensor *t = make(TN_INT8, 1, (int64_t[]){3}), *v;
    tn_quantizer q = {TN_QUANTIZER_AFFINE_CHANNEL, 0, 3, 0, three_scales, three_zeros};
    TN_CHECK_OK(tn_tensor_set_quantizer(t, &q));
    assert_int_equal(tn_tensor_slice(t, 0, 0, 1, 1, &v), TN_ERR_UNSUPPORTED);
    assert_true(tni_tensor_can_move(t));
    tn_tensor_unref(t);
}

TN_TEST(dlpack_refuses_attributes_that_it_cannot_carry)
{
    tn_tensor *c = make_line(TN_COMPLEX64, 3), *q = make_line(TN_INT8, 3);
    tn_quantizer quantizer = {TN_QUANTIZER_AFFINE_CHANNEL, 0, 3, 0, three_scales, three_zeros};
    DLManagedTensorVersioned *managed = NULL;
    TN_CHECK_OK(tn_tensor_set_flags(c, TN_CONJUGATE));
    refused(tn_tensor_to_dlpack(c, &managed), TN_ERR_UNSUPPORTED,
            "DLPack cannot carry the tensor's conjugate bit");
    TN_CHECK_OK(tn_tensor_set_flags(c, TN_NEGATIVE));
    refused(tn_tensor_to_dlpack(c, &managed), TN_ERR_UNSUPPORTED, "negative bit");
    TN_CHECK_OK(tn_tensor_set_quantizer(q, &quantizer));
    refused(tn_tensor_to_dlpack(q, &managed), TN_ERR_UNSUPPORTED, "quantizer by channel");
    quantizer.scheme = TN_QUANTIZER_AFFINE, quantizer.count = 1;
    TN_CHECK_OK(tn_tensor_set_quantizer(q, &quantizer));
    refused(tn_tensor_to_dlpack(q, &managed), TN_ERR_UNSUPPORTED, "quantizer");
    assert_null(managed);
    TN_CHECK_OK(tn_tensor_set_flags(c, TN_REQUIRES_GRAD));
    TN_CHECK_OK(tn_tensor_set_name(c, "named"));
    TN_CHECK_OK(tn_tensor_to_dlpack(c, &managed));
    managed->deleter(managed);
    tn_tensor_unref(q);
    tn_tensor_unref(c);
}

TN_TEST(a_copy_between_different_meanings_of_elements_is_refused)
{
    tn_tensor *a = make_line(TN_COMPLEX64, 3), *b = make_line(TN_COMPLEX64, 3);
    tn_tensor *q = make_line(TN_INT8, 3), *r = make_line(TN_INT8, 3);
    tn_quantizer quantizer = {TN_QUANTIZER_AFFINE, 0, 1, 0, three_scales, three_zeros};
    TN_CHECK_OK(tn_tensor_set_flags(a, TN_CONJUGATE));
    refused(tn_tensor_copy(a, b), TN_ERR_UNSUPPORTED, "conjugate bit");
    refused(tn_tensor_copy(b, a), TN_ERR_UNSUPPORTED, "conjugate bit");
    TN_CHECK_OK(tn_tensor_set_flags(b, TN_CONJUGATE | TN_PARAMETER));
    TN_CHECK_OK(tn_tensor_copy(b, a));
    TN_CHECK_OK(tn_tensor_set_flags(b, TN_CONJUGATE | TN_NEGATIVE));
    refused(tn_tensor_copy(b, a), TN_ERR_UNSUPPORTED, "negative bit");
    TN_CHECK_OK(tn_tensor_set_quantizer(q, &quantizer));
    refused(tn_tensor_copy(r, q), TN_ERR_UNSUPPORTED, "quantizers");
    quantizer.zero_points++;
    TN_CHECK_OK(tn_tensor_set_quantizer(r, &quantizer));
    refused(tn_tensor_copy(r, q), TN_ERR_UNSUPPORTED, "quantizers");
    TN_CHECK_OK(tn_tensor_copy_attributes(r, q));
    TN_CHECK_OK(tn_tensor_copy(r, q));
    tn_tensor_unref(r);
    tn_tensor_unref(q);
    tn_tensor_unref(b);
    tn_tensor_unref(a);
}

TN_TEST(copied_attributes_take_the_place_of_all_that_were_there)
{
    tn_tensor *full = make_full(), *t = make(TN_INT32, 3, (int64_t[]){3, 1, 9});
    TN_CHECK_OK(tn_tensor_set_metadata(t, "own", "x", 1));
    TN_CHECK_OK(tn_tensor_copy_attributes(t, full));
    expect_one_of_each(t);
    assert_null(tn_tensor_metadata(t, "own", NULL));
    TN_CHECK_OK(tn_tensor_set_flags(full, TN_BUFFER));
    assert_int_equal(tn_tensor_flags(t), TN_REQUIRES_GRAD | TN_PARAMETER);
    tn_tensor *none = make_line(TN_INT32, 3);
    TN_CHECK_OK(tn_tensor_copy_attributes(t, none));
    assert_null(t->attributes);
    tn_tensor_unref(none);
    tn_tensor_unref(t);
    tn_tensor_unref(full);
}

TN_TEST(attributes_that_do_not_fit_the_target_are_not_copied)
{
    tn_tensor *full = make_full(), *axes = make(TN_INT32, 2, (int64_t[]){3, 4});
    tn_tensor *type = make(TN_FLOAT32, 3, (int64_t[]){3, 2, 2});
    tn_tensor *size = make(TN_INT32, 3, (int64_t[]){4, 2, 2});
    TN_CHECK_OK(tn_tensor_set_name(type, "kept"));
    refused(tn_tensor_copy_attributes(axes, full), TN_ERR_INVALID, "the names of 2 axes");
    refused(tn_tensor_copy_attributes(type, full), TN_ERR_INVALID, "needs an integer type");
    refused(tn_tensor_copy_attributes(size, full), TN_ERR_INVALID, "first axis has the size 4");
    refused(tn_tensor_copy_attributes(size, NULL), TN_ERR_INVALID, "source is NULL");
    refused(tn_tensor_copy_attributes(NULL, size), TN_ERR_INVALID, "target is NULL");
    assert_string_equal(tn_tensor_name(type), "kept");
    assert_null(axes->attributes);
    tn_tensor_unref(size);
    tn_tensor_unref(type);
    tn_tensor_unref(axes);
    tn_tensor_unref(full);
}

TN_TEST(sharing_keeps_attributes_of_a_tensor_and_its_views)
{
    tn_domain *domain = make_domain();
    tn_tensor *t = make_full(), *copy;
    TN_CHECK_OK(tn_tensor_clone(domain, t, NULL, &copy));
    expect_one_of_each(copy);
    TN_CHECK_OK(tn_tensor_share(domain, t, NULL));
    expect_one_of_each(t);
    tn_tensor_unref(copy);
    tn_tensor_unref(t);
    free_domain(domain);
}

static void delete_nothing(DLManagedTensorVersioned *managed) { (void)managed; }

TN_TEST(an_import_of_page_locked_memory_says_so)
{
    int32_t data[4] = {0};
    int64_t shape[] = {4};
    const int devices[] = {kDLCPU, kDLCUDAHost, kDLROCMHost};
    for (size_t i = 0; i < TNI_COUNT(devices); i++) {
        DLManagedTensorVersioned managed = {
            .version = {1, 0},
            .deleter = delete_nothing,
            .dl_tensor = {
                data, {(DLDeviceType)devices[i], 0}, 1, {kDLInt, 32, 1}, shape, NULL, 0}};
        tn_tensor *t;
        TN_CHECK_OK(tn_tensor_from_dlpack(&managed, &t));
        assert_int_equal(tn_tensor_flags(t), i == 0 ? 0 : TN_WAS_PINNED);
        tn_tensor_unref(t);
    }
}
