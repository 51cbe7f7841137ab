/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors in a domain: made there, moved there, as bytes and back, and what close and fork
 * leave.
 */
#include <tenon/dlpack.h>

#include "unit/tensor_test.h"

#include "harness/tensor.h"
#include <stdlib.h>
#include <unistd.h>

/* Blocks that this process holds. */
static unsigned held(const tn_domain *d)
{
    const struct tni_geometry *g = &d->segment.geometry;
    unsigned count = 0;
    for (uint32_t at = 0; at < g->total_blocks; at += 64)
        count +=
            (unsigned)__builtin_popcountll(atomic_load(tni_row_at(&d->segment, d->seat, at)));
    return count;
}

static tn_tensor *make_filled(tn_domain *domain, int64_t count)
{
    tn_tensor *t;
    TN_CHECK_OK(tn_tensor_create(domain, TN_INT32, 1, &count, NULL, &t));
    fill_with_positions(t);
    return t;
}

/* ---- making ------------------------------------------------------------------------------ */

TN_TEST(an_empty_tensor_holds_one_block_until_its_last_reference)
{
    tn_domain *domain = make_domain();
    tn_tensor *t = make_filled(domain, 100), *v;
    assert_int_equal(held(domain), 1);
    assert_true(tnt_info(t).is_shared);
    assert_int_equal((uintptr_t)tn_tensor_data(t) % 64, 0);
    assert_int_equal(tnt_info(t).storage_bytes, 400);
    TN_CHECK_OK(tn_tensor_slice(t, 0, 10, 20, 1, &v));
    tn_tensor_unref(t);
    assert_int_equal(held(domain), 1);
    tn_tensor_unref(v);
    assert_int_equal(held(domain), 0);
    free_domain(domain);
}

TN_TEST(zeros_are_zero_in_memory_that_was_used_before)
{
    tn_domain *domain = make_domain();
    static const int64_t sizes[] = {1, 16, 1000, 4096, 300000};
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < TNI_COUNT(sizes); i++) {
            tn_tensor *t;
            TN_CHECK_OK(
                tn_tensor_create(domain, TN_UINT8, 1, &sizes[i],
                                 TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED), &t));
            uint8_t *data = tn_tensor_data(t);
            for (int64_t n = 0; n < sizes[i]; n++)
                assert_int_equal(data[n], 0);
            memset(data, 0xee, (size_t)sizes[i]);
            tn_tensor_unref(t);
        }
    free_domain(domain);
}

TN_TEST(bytes_arrive_whole_in_cold_and_in_warm_memory)
{
    tn_domain *domain = make_domain();
    static const int64_t sizes[] = {0,     1,      4095,   65535,   65536,   65537,
                                    70000, 131072, 131073, 1000000, 5000001, 100000};
    uint8_t *bytes = malloc(5000001);
    for (size_t i = 0; i < 5000001; i++)
        bytes[i] = (uint8_t)(i * 7 + i / 251);
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < TNI_COUNT(sizes); i++) {
            tn_tensor *t;
            TN_CHECK_OK(tn_tensor_create(domain, TN_UINT8, 1, &sizes[i],
                                         TN_OPTIONS(tn_tensor_options, .source = bytes,
                                                    .source_bytes = (size_t)sizes[i]),
                                         &t));
            if (sizes[i] > 0)
                assert_memory_equal(tn_tensor_data(t), bytes, (size_t)sizes[i]);
            assert_true(tni_segment_committed(&domain->segment, t->storage->block) >=
                        (uint64_t)sizes[i]);
            tn_tensor_unref(t);
        }
    free(bytes);
    free_domain(domain);
}

TN_TEST(a_block_that_grew_by_writing_is_filled_from_its_end)
{
    tn_domain *domain = make_domain();
    int64_t small = 70000, large = 130000;
    uint8_t *bytes = malloc(130000);
    for (int i = 0; i < 130000; i++)
        bytes[i] = (uint8_t)(i * 13 + i / 997);
    for (int round = 0; round < 4; round++) {
        tn_tensor *t;
        int64_t size = round % 2 == 0 ? small : large;
        TN_CHECK_OK(tn_tensor_create(
            domain, TN_UINT8, 1, &size,
            TN_OPTIONS(tn_tensor_options, .source = bytes, .source_bytes = (size_t)size), &t));
        assert_memory_equal(tn_tensor_data(t), bytes, (size_t)size);
        tn_tensor_unref(t);
    }
    free(bytes);
    free_domain(domain);
}

TN_TEST(making_what_cannot_be_made_leaves_nothing)
{
    tn_domain *domain = make_domain();
    tn_tensor *t = (tn_tensor *)8;
    int64_t huge = TEST_QUOTA_BYTES * INT64_C(4), one = 1, quota = TEST_QUOTA_BYTES - 4096;
    assert_int_equal(tn_tensor_create(NULL, TN_UINT8, 1, &one, NULL, &t), TN_ERR_INVALID);
    assert_int_equal(tn_tensor_create(domain, TN_UINT8, 1, &huge, NULL, &t), TN_ERR_NO_MEMORY);
    assert_int_equal(tn_tensor_create(domain, TN_DTYPE(kDLUInt, 4, 1), 1, &one, NULL, &t),
                     TN_ERR_UNSUPPORTED);
    assert_int_equal(
        tn_tensor_create(domain, TN_INT32, 1, &one,
                         TN_OPTIONS(tn_tensor_options, .source = "ab", .source_bytes = 2), &t),
        TN_ERR_INVALID);
    assert_int_equal(
        tn_tensor_create(domain, TN_INT32, 1, &one,
                         TN_OPTIONS(tn_tensor_options, .source = NULL, .source_bytes = 4), &t),
        TN_ERR_INVALID);
    assert_ptr_equal(t, (tn_tensor *)8);
    assert_int_equal(held(domain), 0);

    tn_tensor *most, *private;
    TN_CHECK_OK(tn_tensor_create(domain, TN_UINT8, 1, &quota, NULL, &most));
    TN_CHECK_OK(tn_tensor_create_private(TN_UINT8, 1, (int64_t[]){1 << 20}, &private));
    void *data = tn_tensor_data(private);
    assert_int_equal(tn_tensor_share(domain, private, NULL), TN_ERR_NO_MEMORY);
    assert_int_equal(
        tn_tensor_share(domain, private,
                        TN_OPTIONS(tn_tensor_options, .deadline = tnt_deadline(20))),
        TN_ERR_TIMED_OUT);
    assert_ptr_equal(tn_tensor_data(private), data);
    assert_false(tnt_info(private).is_shared);
    tn_tensor_unref(most);
    TN_CHECK_OK(tn_tensor_share(domain, private, NULL));
    tn_tensor_unref(private);
    assert_int_equal(held(domain), 0);
    free_domain(domain);
}

/* ---- sharing by moving ------------------------------------------------------------------- */

static void share_moves_views_of(int64_t count)
{
    tn_domain *domain = make_domain();
    tn_tensor *t, *v;
    TN_CHECK_OK(tn_tensor_create_private(TN_INT32, 1, &count, &t));
    fill_with_positions(t);
    TN_CHECK_OK(tn_tensor_slice(t, 0, 0, count, -1, &v));
    void *old = tn_tensor_data(t);
    TN_CHECK_OK(tn_tensor_share(domain, v, NULL));
    assert_true(tnt_info(t).is_shared && tnt_info(v).is_shared);
    assert_ptr_not_equal(tn_tensor_data(t), old);
    for (int64_t i = 0; i < count; i += 1 + count / 1000) {
        assert_int_equal(((int32_t *)tn_tensor_data(t))[i], i);
        assert_int_equal(*(int32_t *)element_at(v, &i), count - 1 - i);
    }
    *(int32_t *)tn_tensor_data(t) = -5;
    assert_int_equal(*(int32_t *)element_at(v, (int64_t[]){count - 1}), -5);
    assert_int_equal(held(domain), 1);
    void *now = tn_tensor_data(t);
    TN_CHECK_OK(tn_tensor_share(domain, t, NULL));
    assert_ptr_equal(tn_tensor_data(t), now);
    tn_tensor_unref(t);
    tn_tensor_unref(v);
    free_domain(domain);
}

TN_TEST(share_moves_every_view_of_a_small_storage) { share_moves_views_of(10); }
TN_TEST(share_moves_every_view_of_a_large_storage) { share_moves_views_of(1 << 20); }

TN_TEST(what_is_shared_in_one_domain_is_not_shared_in_another)
{
    tn_domain *domain = make_domain(), *other = make_domain();
    tn_tensor *t = make_filled(domain, 4), *p;
    assert_int_equal(tn_tensor_share(other, t, NULL), TN_ERR_INVALID);
    assert_int_equal(tni_tensor_check_shared(domain, t), 0);
    assert_int_equal(tni_tensor_check_shared(other, t), TN_ERR_INVALID);
    TN_CHECK_OK(tn_tensor_create_private(TN_INT32, 0, NULL, &p));
    assert_int_equal(tni_tensor_check_shared(other, p), TN_ERR_INVALID);
    tn_tensor_unref(p);
    tn_tensor_unref(t);
    free_domain(domain);
    free_domain(other);
}

TN_TEST(tensors_without_elements_are_shared_and_known_apart)
{
    tn_domain *domain = make_domain();
    tn_tensor *a, *b;
    TN_CHECK_OK(tn_tensor_create(domain, TN_INT32, 2, (int64_t[]){0, 4}, NULL, &a));
    TN_CHECK_OK(tn_tensor_create_private(TN_INT32, 1, (int64_t[]){0}, &b));
    TN_CHECK_OK(tn_tensor_share(domain, b, NULL));
    assert_true(tnt_info(b).is_shared);
    assert_null(tn_tensor_data(a));
    assert_int_equal(tnt_info(a).storage_bytes, 0);
    assert_int_equal(held(domain), 2);
    assert_false(tn_tensor_same_storage(a, b));
    TN_CHECK_OK(tn_tensor_copy(a, a));
    tn_tensor_unref(a);
    tn_tensor_unref(b);
    free_domain(domain);
}

/* ---- as bytes ---------------------------------------------------------------------------- */

static tn_tensor *through_bytes(tn_domain *domain, const tn_tensor *t, size_t expect_bytes)
{
    _Alignas(8) uint8_t bytes[TNI_VIEW_MAX_BYTES + 1];
    tn_tensor *back;
    size_t used = tni_tensor_encode(t, NULL, sizeof bytes, bytes);
    memmove(bytes + 1, bytes, used); /* what is read need not be aligned */
    assert_int_equal(used, expect_bytes);
    assert_int_equal(tni_view_check(&domain->segment, bytes + 1, used), used);
    assert_int_equal(tni_view_check(&domain->segment, bytes + 1, used - 1), TN_ERR_CORRUPT);
    tni_ref_local(domain, t->storage->block);
    assert_int_equal(tni_tensor_decode(domain, bytes + 1, used, &back), used);
    return back;
}

TN_TEST(a_view_comes_back_from_bytes_with_all_it_had)
{
    tn_domain *domain = make_domain();
    tn_tensor *t, *v, *w, *back;
    int64_t ones[32];
    TN_CHECK_OK(tn_tensor_create(domain, TN_INT32, 2, (int64_t[]){40, 60}, NULL, &t));
    fill_with_positions(t);
    back = through_bytes(domain, t, 24 + 16);
    assert_true(tnt_info(back).is_contiguous);
    assert_true(tn_tensor_same_storage(t, back));
    assert_int_equal(tnt_info(back).storage_bytes, 9600);
    assert_int_equal(tn_tensor_view(back, TN_UINT8, 1, (int64_t[]){9601}, NULL, 0, &v),
                     TN_ERR_INVALID);
    tn_tensor_unref(back);

    TN_CHECK_OK(tn_tensor_slice(t, 0, 3, 30, -2, &v));
    TN_CHECK_OK(tn_tensor_transpose(v, NULL, &w));
    back = through_bytes(domain, w, 24 + 32);
    assert_memory_equal(tnt_info(back).strides, tnt_info(w).strides, 16);
    assert_memory_equal(tn_tensor_shape(back), tn_tensor_shape(w), 16);
    assert_ptr_equal(tn_tensor_data(back), tn_tensor_data(w));
    tn_tensor_unref(back);
    tn_tensor_unref(w);
    tn_tensor_unref(v);

    for (int i = 0; i < 32; i++)
        ones[i] = 1;
    TN_CHECK_OK(tn_tensor_view(t, TN_FLOAT8_E5M2, 32, ones, (int64_t[32]){0}, 77, &v));
    v->is_read_only = true;
    back =
        through_bytes(domain, v, TNI_VIEW_MAX_BYTES - sizeof(uint64_t)); /* without a token */
    assert_int_equal(tn_tensor_dtype(back), TN_FLOAT8_E5M2);
    assert_int_equal(tnt_info(back).byte_offset, 77);
    assert_true(tnt_info(back).is_read_only);
    tn_tensor_unref(back);
    tn_tensor_unref(v);
    tn_tensor_unref(t);
    assert_int_equal(held(domain), 0);
    free_domain(domain);
}

/* Whether every element lies in the block, computed with room to spare. */
static void assert_inside(const tn_domain *d, const uint8_t *bytes)
{
    struct tni_view head;
    int64_t extents[64];
    memcpy(&head, bytes, sizeof head);
    bool is_plain = (head.flags & TNI_VIEW_CONTIGUOUS) != 0;
    memcpy(extents, bytes + sizeof head, (size_t)head.ndim * (is_plain ? 8 : 16));
    size_t item_bytes;
    assert_int_equal(tn_dtype_size(TN_DTYPE(head.code, head.bits, head.lanes), &item_bytes), 0);
    assert_true(tni_geometry_has_block(&d->segment.geometry, head.block));
    __int128 low = 0, high = 0, step = 1;
    for (int i = head.ndim - 1; i >= 0; i--) {
        assert_true(extents[i] >= 0);
        if (extents[i] == 0)
            return;
        __int128 stride = is_plain ? step : extents[head.ndim + i];
        __int128 far = (extents[i] - 1) * stride;
        *(far < 0 ? &low : &high) += far;
        step *= extents[i];
    }
    low = head.byte_offset + low * (__int128)item_bytes;
    high = head.byte_offset + (high + 1) * (__int128)item_bytes;
    assert_true(low >= 0);
    assert_true(high <=
                (__int128)tni_block_bytes(&d->segment.geometry, (tni_block){head.block}));
}

/* A number of the kind that breaks checks. */
static int64_t nasty(void)
{
    static const int64_t known[] = {
        0, 1, -1, 2, 64, 4096, INT64_MAX, INT64_MIN, INT64_MAX / 4, 1 << 20};
    int64_t number = known[tnt_random_below(TNI_COUNT(known))];
    return tnt_random_below(4) == 0 ? (int64_t)((uint64_t)number + tnt_random_below(5) - 2)
                                    : number;
}

static void spoil(uint8_t *bytes, size_t used)
{
    for (uint64_t n = 1 + tnt_random_below(3); n > 0; n--) {
        int64_t number = nasty();
        if (tnt_random_below(2) == 0)
            bytes[tnt_random_below(used)] = (uint8_t)tnt_random();
        else
            memcpy(bytes + 8 + 8 * tnt_random_below((used - 8) / 8), &number, 8);
    }
}

TN_TEST_WITHIN(accepted_bytes_describe_only_elements_inside_their_block, 60)
{
    tn_domain *domain = make_domain();
    tn_tensor *t, *v;
    unsigned passed = 0, refused = 0;
    TN_CHECK_OK(tn_tensor_create(domain, TN_INT32, 3, (int64_t[]){4, 5, 600}, NULL, &t));
    TN_CHECK_OK(tn_tensor_slice(t, 2, 7, 500, -3, &v));
    for (int round = 0; round < 300000; round++) {
        _Alignas(8) uint8_t bytes[TNI_VIEW_MAX_BYTES];
        size_t used = tni_tensor_encode(round % 2 == 0 ? t : v, NULL, sizeof bytes, bytes);
        if (round % 10 == 0) {
            used = tnt_random_below(sizeof bytes);
            for (size_t i = 0; i < used; i++)
                bytes[i] = (uint8_t)tnt_random();
        } else {
            spoil(bytes, used);
        }
        uint8_t *exact = malloc(used + 1); /* so that a sanitizer sees a byte too far */
        memcpy(exact, bytes, used);
        exact = realloc(exact, used > 0 ? used : 1);
        int status = tni_view_check(&domain->segment, exact, used);
        if (status >= 0) {
            assert_true((size_t)status <= used);
            assert_inside(domain, exact);
            passed++;
        } else {
            assert_int_equal(status, TN_ERR_CORRUPT);
            refused++;
        }
        free(exact);
    }
    assert_true(passed > 1000 && refused > 1000);
    tn_tensor_unref(v);
    tn_tensor_unref(t);
    free_domain(domain);
}

TN_TEST(a_tensor_whose_reference_was_moved_gives_none_back)
{
    tn_domain *domain = make_domain();
    tn_tensor *t = make_filled(domain, 4), *v;
    tni_block block = t->storage->block;
    assert_true(tni_tensor_can_move(t));
    TN_CHECK_OK(tn_tensor_slice(t, 0, 0, 1, 1, &v));
    assert_false(tni_tensor_can_move(t));
    tn_tensor_unref(v);
    tn_tensor_ref(t);
    assert_false(tni_tensor_can_move(t));
    tn_tensor_unref(t);
    tni_tensor_forget(NULL, t);
    assert_int_equal(held(domain), 1);
    tni_ref_release(domain, block);
    assert_int_equal(held(domain), 0);
    free_domain(domain);
}

/* ---- close and fork ---------------------------------------------------------------------- */

TN_TEST(a_closed_domain_goes_with_the_last_tensor_that_was_left)
{
    tn_domain *domain = make_domain();
    tn_tensor *a = make_filled(domain, 10), *b = make_filled(domain, 100000), *v;
    tn_tensor *again = through_bytes(domain, a, 24 + 8);
    unsigned mappings = tnt_mapping_count() - 1; /* its seat's witness goes with the seat */
    TN_CHECK_OK(tn_tensor_slice(b, 0, 5, 10, 1, &v));
    leave_domain(domain);
    assert_int_equal(atomic_load(&domain->keepers), 3);
    tn_tensor_unref(a);
    tn_tensor_unref(b);
    assert_int_equal(tnt_mapping_count(), mappings);
    assert_int_equal(*(int32_t *)tn_tensor_data(v), 5);
    tn_tensor_unref(v);
    tn_tensor_unref(again);
    assert_true(tnt_mapping_count() < mappings);
}

TN_TEST(close_gives_every_hold_back_though_tensors_live_on)
{
    tn_domain *domain = make_domain();
    tn_tensor *a = make_filled(domain, 10);
    tni_block block = a->storage->block;
    leave_domain(domain);
    uint64_t word = atomic_load(tni_word_at(&domain->segment, block));
    assert_int_equal(tni_word_state(word), TNI_BLOCK_FREE);
    assert_int_equal(tni_word_count(word), 0);
    tn_tensor_unref(a);
}

static int drop_in_child(void *argument)
{
    tn_tensor *t = argument;
    tn_domain *domain = t->storage->domain;
    assert_int_not_equal(domain->seat, TNI_NO_SEAT);
    assert_int_equal(held(domain), 1);
    *(int32_t *)tn_tensor_data(t) = 77;
    tn_tensor_unref(t);
    assert_int_equal(held(domain), 0);
    free_domain(domain);
    return 0;
}

TN_TEST(a_forked_child_has_a_hold_of_its_own_and_gives_it_back)
{
    tn_domain *domain = make_domain();
    tn_tensor *t = make_filled(domain, 10);
    tnt_wait_ok(tnt_fork(drop_in_child, t));
    assert_int_equal(*(int32_t *)tn_tensor_data(t), 77);
    assert_int_equal(
        tni_word_count(atomic_load(tni_word_at(&domain->segment, t->storage->block))), 1);
    tn_tensor_unref(t);
    free_domain(domain);
}

static int drop_without_seat(void *argument)
{
    tn_tensor **tensors = argument;
    tn_domain *domain = tensors[0]->storage->domain;
    tn_tensor *t;
    assert_int_equal(domain->seat, TNI_NO_SEAT);
    assert_int_equal(tn_tensor_create(domain, TN_INT32, 0, NULL, NULL, &t), TN_ERR_FORKED);
    TN_CHECK_OK(tn_tensor_create_private(TN_INT32, 0, NULL, &t));
    assert_int_equal(tn_tensor_share(domain, t, NULL), TN_ERR_FORKED);
    tn_tensor_unref(t);
    tn_tensor_unref(tensors[0]);
    leave_domain(domain);
    tn_tensor_unref(tensors[1]);
    return tnt_mapping_count() == 0 ? 0 : 1;
}

TN_TEST(a_child_without_a_seat_frees_its_private_side_only)
{
    tn_domain *domain = make_domain();
    tn_tensor *t[2] = {make_filled(domain, 10), make_filled(domain, 20)};
    for (uint32_t seat = 1; seat < domain->segment.geometry.seats; seat++)
        atomic_store(&tni_seat_at(&domain->segment, seat)->word,
                     tni_seat_word(7, TNI_SEAT_ALIVE, 0));
    tnt_wait_ok(tnt_fork(drop_without_seat, t));
    assert_int_equal(held(domain), 2);
    for (int i = 0; i < 2; i++) {
        uint64_t word = atomic_load(tni_word_at(&domain->segment, t[i]->storage->block));
        assert_int_equal(tni_word_count(word), 1);
        tn_tensor_unref(t[i]);
    }
    free_domain(domain);
}

/* ---- death ------------------------------------------------------------------------------- */

struct dying {
    tn_domain *domain;
    tn_tensor *tensor;
};

static int share_in_child(void *argument)
{
    struct dying *d = argument;
    TN_CHECK_OK(tn_tensor_share(d->domain, d->tensor, NULL));
    return 0;
}

/* Only this process and the dead child have a seat. */
static void assert_row_gives_all_back(tn_domain *domain)
{
    uint32_t seat = 1;
    uint64_t released = tni_ref_release_row(domain, seat, false);
    assert_int_equal(released, 1);
    for (uint32_t c = 1; c < domain->segment.geometry.class_count; c++)
        for (uint32_t i = 0; i < tni_frontier(&domain->segment, c); i++) {
            uint64_t word = atomic_load(tni_word_at(&domain->segment, tni_block_make(c, i)));
            assert_int_equal(tni_word_state(word), TNI_BLOCK_FREE);
        }
}

static void dies_while_sharing(const char *point, int64_t bytes)
{
    tn_domain *domain = make_domain();
    tn_tensor *t;
    TN_CHECK_OK(tn_tensor_create_private(TN_UINT8, 1, &bytes, &t));
    struct dying dying = {domain, t};
    assert_true(tnt_kill_at(point, 1, share_in_child, &dying));
    assert_row_gives_all_back(domain);
    assert_false(tnt_info(t).is_shared);
    tn_tensor_unref(t);
    free_domain(domain);
}

TN_TEST(a_death_while_memory_is_written_leaves_a_held_block)
{
    dies_while_sharing("tensor_written", 1 << 20);
}
TN_TEST(a_death_after_a_copy_leaves_a_held_block) { dies_while_sharing("tensor_copied", 1000); }

/* ---- more than there is room for --------------------------------------------------------- */

struct large {
    tn_domain *domain;
    int64_t bytes;
};

/* To write a byte of them kills this process. */
static int take_bytes_in_child(void *argument)
{
    const struct large *large = argument;
    tn_tensor *t;
    void *bytes = calloc(1, (size_t)large->bytes);
    TN_CHECK(bytes != NULL);
    int status = tn_tensor_create(
        large->domain, TN_UINT8, 1, &large->bytes,
        TN_OPTIONS(tn_tensor_options, .source = bytes, .source_bytes = (uint64_t)large->bytes),
        &t);
    free(bytes);
    return status == TN_ERR_NO_MEMORY ? 0 : 1;
}

/* A call that does not wait comes again for as long as TNI_REF_TRY_NS. */
TN_TEST(a_deadline_ends_a_call_that_retries_beside_a_commit)
{
    const int64_t half = TEST_QUOTA_BYTES / 2;
    tn_domain *domain = make_domain();
    struct tni_announce *other = tni_announce_at(&domain->segment, 1, 0);
    uint64_t least_ns = UINT64_MAX;
    tni_raise_limit(&domain->segment.header->seat_limit, 2);
    atomic_store(&tni_seat_at(&domain->segment, 1)->word, tni_seat_word(1, TNI_SEAT_ALIVE, 0));
    atomic_store(&other->commit_bytes, TNI_COMMIT_ASKS | (uint64_t)(half + half / 2));
    for (int i = 0; i < 10 && least_ns >= TNI_REF_TRY_NS; i++) {
        tn_tensor *t;
        uint64_t begun_ns = tni_os_now_ns();
        assert_int_equal(
            tn_tensor_create(domain, TN_UINT8, 1, &half,
                             TN_OPTIONS(tn_tensor_options, .deadline = tnt_deadline(5)), &t),
            TN_ERR_TIMED_OUT);
        least_ns = TNI_MIN(least_ns, tni_os_now_ns() - begun_ns);
    }
    assert_in_range(least_ns, 0, TNI_REF_TRY_NS - 1);
    atomic_store(&other->commit_bytes, 0);
    atomic_store(&tni_seat_at(&domain->segment, 1)->word, 0);
    free_domain(domain);
}

TN_TEST(of_bytes_for_which_there_is_no_room_none_is_written)
{
    const int64_t mib = 1 << 20, quota = TEST_QUOTA_BYTES, half = quota / 2;
    tn_domain *domain = make_domain();
    tn_tensor *t;
    TN_CHECK_OK(tn_tensor_create(domain, TN_UINT8, 1, &half, NULL, &t));
    /* More than ever, then more than now. */
    struct large large = {domain, quota + mib};
    assert_false(tnt_kill_at("tensor_written", 1, take_bytes_in_child, &large));
    large.bytes = half + mib;
    assert_false(tnt_kill_at("tensor_written", 1, take_bytes_in_child, &large));
    tn_tensor_unref(t);
    free_domain(domain);
}

/* Behind what the block is said to have, as a trim of it leaves them. */
TN_TEST(new_bytes_do_not_keep_what_a_death_left_behind_them)
{
    const int64_t bytes = 3 << 20, fewer = bytes - (1 << 19);
    tn_domain *domain = make_domain();
    tn_tensor *t;
    uint8_t *source = calloc(1, (size_t)bytes);
    uint64_t committed = 0;
    TN_CHECK(source != NULL);
    TN_CHECK_OK(tn_tensor_create(domain, TN_UINT8, 1, &bytes, NULL, &t));
    tni_block block = t->storage->block;
    tn_tensor_unref(t);
    atomic_store(&tni_desc_at(&domain->segment, block)->committed, 0);
    TN_CHECK_OK(tn_tensor_create(
        domain, TN_UINT8, 1, &fewer,
        TN_OPTIONS(tn_tensor_options, .source = source, .source_bytes = (uint64_t)fewer), &t));
    assert_int_equal(t->storage->block.id, block.id);
    TN_CHECK_OK(tni_os_memory_committed(domain->segment.arena_fd, &committed));
    assert_int_equal(committed, fewer);
    tn_tensor_unref(t);
    free(source);
    free_domain(domain);
}
