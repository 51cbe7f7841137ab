/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors in the memory of tensors that ended. */
#include "tensor/tensor.h"
#include "unit/tensor_test.h"

#include "harness/tensor.h"
#include <tenon/attribute.h>
#include <tenon/dlpack.h>
#include <unistd.h>

enum { ENDS = 600 }; /* where misuse is caught, memory serves again after 256 ends */

static void end_many(tn_domain *domain, tn_dtype dtype, int32_t ndim, const int64_t *shape)
{
    for (int i = 0; i < ENDS; i++) {
        tn_tensor *t;
        TN_CHECK_OK(tn_tensor_create(domain, dtype, ndim, shape, NULL, &t));
        tn_tensor_unref(t);
    }
}

static void assert_is(const tn_tensor *t, tn_dtype dtype, int32_t ndim, const int64_t *shape)
{
    tn_dtype found = tn_tensor_dtype(t);
    int64_t step = 1;
    assert_memory_equal(&found, &dtype, sizeof dtype);
    assert_int_equal(tn_tensor_ndim(t), ndim);
    for (int32_t i = ndim - 1; i >= 0; i--) {
        assert_int_equal(tn_tensor_shape(t)[i], shape[i]);
        assert_int_equal(tnt_info(t).strides[i], step);
        step *= shape[i];
    }
    assert_int_equal(tn_tensor_count(t), step);
    assert_int_equal(tnt_info(t).byte_offset, 0);
    assert_true(tnt_info(t).is_contiguous);
    assert_false(tnt_info(t).is_read_only);
    assert_int_equal(tn_tensor_flags(t), 0);
}

TN_TEST(each_tensor_has_its_own_type_and_shape_in_used_memory)
{
    static const int64_t shapes[][5] = {{7},    {8},          {7, 3},
                                        {3, 7}, {2, 2, 2, 2}, {1, 2, 3, 2, 1}};
    static const int32_t axes[] = {1, 1, 2, 2, 4, 5};
    static const tn_dtype types[] = {TN_FLOAT32, TN_INT32, TN_DTYPE(kDLInt, 8, 2)};
    tn_domain *domain = make_domain();
    tn_tensor *live[16] = {0};
    for (unsigned i = 0; i < 4 * ENDS; i++) {
        unsigned at = i % TNI_COUNT(live), shape = i / 3 % TNI_COUNT(shapes);
        tn_dtype dtype = types[i / 2 % TNI_COUNT(types)];
        tn_tensor_unref(live[at]);
        TN_CHECK_OK(
            tn_tensor_create(domain, dtype, axes[shape], shapes[shape], NULL, &live[at]));
        assert_is(live[at], dtype, axes[shape], shapes[shape]);
        if (i % 5 == 0)
            TN_CHECK_OK(tn_tensor_set_flags(live[at], TN_REQUIRES_GRAD));
    }
    for (unsigned at = 0; at < TNI_COUNT(live); at++)
        tn_tensor_unref(live[at]);
    free_domain(domain);
}

TN_TEST(what_was_refused_is_refused_after_others_ended)
{
    tn_domain *domain = make_domain();
    tn_tensor *t = NULL;
    end_many(domain, TN_FLOAT32, 1, (int64_t[]){4});
    assert_int_equal(tn_tensor_create(domain, TN_FLOAT32, 257, (int64_t[257]){4}, NULL, &t),
                     TN_ERR_INVALID);
    assert_int_equal(tn_tensor_create(domain, TN_FLOAT32, -255, (int64_t[]){4}, NULL, &t),
                     TN_ERR_INVALID);
    assert_int_equal(tn_tensor_create(domain, TN_FLOAT32, 1, NULL, NULL, &t), TN_ERR_INVALID);
    assert_int_equal(
        tn_tensor_create(domain, TN_DTYPE(kDLFloat, 32, 0), 1, (int64_t[]){4}, NULL, &t),
        TN_ERR_INVALID);
    assert_null(t);
    free_domain(domain);
}

union message {
    struct tni_view view;
    uint8_t bytes[320];
};

/* The local reference that a tensor made of it will own. */
static tn_tensor *decode(tn_domain *domain, const tn_tensor *source, const union message *m,
                         size_t size_bytes)
{
    struct tni_thread *thread = tni_thread_enter(domain);
    tn_tensor *t =
        tni_tensor_decode_again(domain, thread, source->storage->block, &m->view, size_bytes);
    tni_thread_leave(thread);
    if (t != NULL)
        tni_ref_local(domain, source->storage->block);
    return t;
}

TN_TEST(a_view_with_strides_is_not_taken_for_the_last_one)
{
    tn_domain *domain = make_domain();
    tn_tensor *source, *t;
    union message m = {0};
    int64_t shape[] = {3, 100};
    TN_CHECK_OK(tn_tensor_create(domain, TN_FLOAT32, 2, shape, NULL, &source));
    size_t used = tni_tensor_encode(source, NULL, sizeof m, &m.view) + 2 * sizeof(int64_t);
    m.view.flags = 0;
    m.view.extents[2] = 1;
    m.view.extents[3] = 3;
    for (int i = 0; i < ENDS; i++) {
        assert_int_equal(tni_tensor_decode(domain, &m, used, &t), used);
        tni_ref_local(domain, source->storage->block);
        tn_tensor_unref(t);
    }
    m.view.extents[3] = 1000000;
    assert_null(decode(domain, source, &m, used));
    assert_null(decode(domain, source, &m, used - 2 * sizeof(int64_t)));
    tn_tensor_unref(source);
    free_domain(domain);
}

/* ---- blocks ------------------------------------------------------------------------------ */

static struct tni_desc *desc_of(const tn_domain *domain, const tn_tensor *t)
{
    return tni_desc_at(&domain->segment, t->storage->block);
}

static void spoil(struct tni_desc *desc)
{
    desc->dtype = 0;
    desc->ndim = 1;
    desc->creator_pid = 0;
    desc->bytes = 1;
    desc->shape[0] = desc->shape[1] = 77;
}

static void assert_described(const struct tni_desc *desc, const tn_tensor *t)
{
    tn_dtype dtype = tn_tensor_dtype(t);
    assert_memory_equal(&desc->dtype, &dtype, sizeof dtype);
    assert_int_equal(desc->ndim, tn_tensor_ndim(t));
    assert_int_equal(desc->creator_pid, getpid());
    assert_int_equal(desc->bytes, tnt_info(t).size_bytes);
    assert_memory_equal(desc->shape, tn_tensor_shape(t), 2 * sizeof(int64_t));
}

TN_TEST(a_block_that_others_had_is_described_again)
{
    tn_domain *domain = make_domain();
    tn_tensor *t;
    int64_t shape[] = {3, 100};
    end_many(domain, TN_FLOAT32, 2, shape);
    TN_CHECK_OK(tn_tensor_create(domain, TN_FLOAT32, 2, shape, NULL, &t));
    struct tni_desc *desc = desc_of(domain, t);
    uint32_t generation = desc->generation;
    assert_described(desc, t);
    _Atomic uint64_t *word = tni_word_at(&domain->segment, t->storage->block);
    tn_tensor_unref(t);
    atomic_fetch_add(word, 2 * TNI_WORD_VERSION_ONE); /* taken and given back */
    spoil(desc);
    TN_CHECK_OK(tn_tensor_create(domain, TN_FLOAT32, 2, shape, NULL, &t));
    assert_ptr_equal(desc_of(domain, t), desc);
    assert_described(desc, t);
    assert_int_equal(desc->generation, generation + 1);
    tn_tensor_unref(t);
    free_domain(domain);
}

TN_TEST(a_block_that_came_by_a_message_is_described_again)
{
    tn_domain *domain = make_domain();
    tn_tensor *source, *t;
    union message m = {0};
    int64_t shape[] = {3, 100};
    end_many(domain, TN_FLOAT32, 2, shape);
    TN_CHECK_OK(tn_tensor_create(domain, TN_FLOAT32, 2, shape, NULL, &source));
    struct tni_desc *desc = desc_of(domain, source);
    size_t used = tni_tensor_encode(source, NULL, sizeof m, &m.view);
    spoil(desc);
    desc->bytes = tnt_info(source).size_bytes;
    assert_int_equal(tni_tensor_decode(domain, &m, used, &t), used);
    tni_ref_local(domain, source->storage->block);
    tn_tensor_unref(source);
    tn_tensor_unref(t);
    TN_CHECK_OK(tn_tensor_create(domain, TN_FLOAT32, 2, shape, NULL, &t));
    assert_ptr_equal(desc_of(domain, t), desc);
    assert_described(desc, t);
    tn_tensor_unref(t);
    free_domain(domain);
}

TN_TEST(a_view_of_the_last_shape_is_taken_only_inside_of_its_block)
{
    tn_domain *domain = make_domain();
    tn_tensor *source, *t;
    union message m = {0};
    int64_t shape[] = {3, 100};
    TN_CHECK_OK(tn_tensor_create(domain, TN_FLOAT32, 2, shape, NULL, &source));
    end_many(domain, TN_FLOAT32, 2, shape);
#if !defined(__SANITIZE_ADDRESS__)
    size_t used = tni_tensor_encode(source, NULL, sizeof m, &m.view);
    assert_int_equal(used, 40);
    t = decode(domain, source, &m, used);
    assert_non_null(t);
    assert_is(t, TN_FLOAT32, 2, shape);
    assert_ptr_equal(tn_tensor_data(t), tn_tensor_data(source));
    tn_tensor_unref(t);

    uint64_t room = tni_block_bytes(&domain->segment.geometry, source->storage->block) - 1200;
    union message wrong = m;
    wrong.view.byte_offset = room;
    t = decode(domain, source, &wrong, used);
    assert_non_null(t);
    assert_int_equal(tnt_info(t).byte_offset, room);
    tn_tensor_unref(t);
    wrong.view.byte_offset = room + 1;
    assert_null(decode(domain, source, &wrong, used));
    wrong.view.byte_offset = UINT64_MAX - 4;
    assert_null(decode(domain, source, &wrong, used));
    assert_null(decode(domain, source, &m, used - 1));
    assert_null(decode(domain, source, &m, 16));
    wrong = m;
    wrong.view.extents[1] = 101;
    assert_null(decode(domain, source, &wrong, used));
    wrong = m;
    wrong.view.ndim = 200;
    assert_null(decode(domain, source, &wrong, sizeof wrong));
    wrong = m;
    wrong.view.flags = 0;
    assert_null(decode(domain, source, &wrong, sizeof wrong));
    wrong = m;
    wrong.view.block++;
    assert_null(decode(domain, source, &wrong, used));
#else
    (void)t; /* the address sanitizer is to see each end: no memory serves again */
    (void)m;
    assert_null(decode(domain, source, &m, sizeof m));
#endif
    tn_tensor_unref(source);
    free_domain(domain);
}
