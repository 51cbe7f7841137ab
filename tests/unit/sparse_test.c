/* SPDX-License-Identifier: Apache-2.0 */
/* Sparse tensors, as dense ones side by side. */
#include "unit/attribute_test.h"

TN_TEST(marked_parts_side_by_side_are_found_as_a_sparse_tensor)
{
    tn_sparse coo = new_coo(), csr = new_csr(), found;
    tn_tensor *dense = make(TN_INT8, 2, (int64_t[]){6, 4});
    TN_CHECK_OK(tn_sparse_mark(&coo));
    TN_CHECK_OK(tn_sparse_mark(&csr));
    tn_tensor *all[] = {coo.parts[0], coo.parts[1], dense,
                        csr.parts[0], csr.parts[1], csr.parts[2]};
    assert_int_equal(tn_sparse_find(all, 6, &found), 2);
    assert_memory_equal(&found, &coo, sizeof coo);
    assert_int_equal(tn_sparse_find(all + 2, 4, &found), 1);
    assert_int_equal(found.layout, TN_LAYOUT_STRIDED);
    assert_int_equal(found.ndim, 2);
    assert_int_equal(found.shape[0], 6);
    assert_int_equal(found.part_count, 1);
    assert_ptr_equal(found.parts[0], dense);
    assert_int_equal(tn_sparse_find(all + 3, 3, &found), 3);
    assert_memory_equal(&found, &csr, sizeof csr);
    TN_CHECK_OK(tni_attributes_check_parts(all, 6));
    tn_tensor_unref(dense);
    unref_parts(&coo);
    unref_parts(&csr);
}

TN_TEST(parts_without_the_others_are_refused_by_name)
{
    tn_sparse coo = new_coo(), csr = new_csr(), found = {.ndim = 77};
    TN_CHECK_OK(tn_sparse_mark(&coo));
    TN_CHECK_OK(tn_sparse_mark(&csr));
    tn_tensor *all[] = {csr.parts[0], csr.parts[1], coo.parts[0], coo.parts[1]};
    refused(tn_sparse_find(all, 4, &found), TN_ERR_INVALID,
            "the values of a sparse tensor in CSR are missing behind the columns");
    refused(tn_sparse_find(all + 1, 3, &found), TN_ERR_INVALID,
            "the columns of a sparse tensor in CSR do not follow the row offsets");
    refused(tn_sparse_find(all + 2, 1, &found), TN_ERR_INVALID, "the values");
    refused(tni_attributes_check_parts(all, 4), TN_ERR_INVALID, "CSR");
    refused(tni_attributes_check_parts(all + 3, 1), TN_ERR_INVALID,
            "do not follow the indices");
    TN_CHECK_OK(tni_attributes_check_parts(all + 2, 2));
    refused(tn_sparse_find(NULL, 1, &found), TN_ERR_INVALID, "tensors is NULL");
    refused(tn_sparse_find(all, 0, &found), TN_ERR_INVALID, "count is 0");
    refused(tn_sparse_find((tn_tensor *[]){coo.parts[0], NULL}, 2, &found), TN_ERR_INVALID,
            "tensor is NULL");
    assert_int_equal(found.ndim, 77);
    unref_parts(&coo);
    unref_parts(&csr);
}

TN_TEST(parts_of_different_sparse_tensors_do_not_go_together)
{
    tn_sparse one = new_coo(), other = new_coo(), found;
    other.shape[0]++;
    TN_CHECK_OK(tn_sparse_mark(&one));
    TN_CHECK_OK(tn_sparse_mark(&other));
    tn_tensor *mixed[] = {one.parts[0], other.parts[1]};
    refused(tn_sparse_find(mixed, 2, &found), TN_ERR_INVALID, "are missing behind");
    tn_tensor *twice[] = {one.parts[0], one.parts[0], one.parts[1]};
    refused(tn_sparse_find(twice, 3, &found), TN_ERR_INVALID, "are missing behind");
    unref_parts(&one);
    unref_parts(&other);
}

TN_TEST(a_view_of_a_part_is_a_dense_tensor)
{
    tn_sparse coo = new_coo();
    tn_tensor *v;
    TN_CHECK_OK(tn_sparse_mark(&coo));
    TN_CHECK_OK(tn_tensor_slice(coo.parts[1], 0, 0, 7, 1, &v));
    assert_null(v->attributes);
    TN_CHECK_OK(tni_attributes_check_parts(&v, 1));
    tn_tensor_unref(v);
    unref_parts(&coo);
}

/* Mark parts that do not fit; nothing is marked, and they end. */
static void refuse_mark(tn_sparse s, const char *words)
{
    refused(tn_sparse_mark(&s), TN_ERR_INVALID, words);
    for (uint32_t i = 0; i < TNI_MIN(s.part_count, 3); i++)
        if (s.parts[i] != NULL)
            assert_null(s.parts[i]->attributes);
    unref_parts(&s);
}

TN_TEST(coo_parts_that_do_not_fit_are_refused_and_none_is_marked)
{
    tn_tensor *i = make(TN_INT64, 2, (int64_t[]){2, 7}), *v = make_line(TN_FLOAT32, 7);
    refuse_mark(make_coo(tn_tensor_ref(i), tn_tensor_ref(v)),
                "the indices name 2 axes and the values have 0 dense ones");
    refuse_mark(make_coo(tn_tensor_ref(i), make(TN_INT8, 2, (int64_t[]){6, 5})),
                "7 indices but 6 values");
    refuse_mark(make_coo(tn_tensor_ref(i), make(TN_INT8, 2, (int64_t[]){7, 4})),
                "axis 1 of the values has size 4, but axis 2 of the sparse tensor has 5");
    refuse_mark(make_coo(tn_tensor_ref(i), make(TN_INT8, 0, NULL)), "have 0 axes");
    refuse_mark(make_coo(make(TN_INT32, 2, (int64_t[]){2, 7}), tn_tensor_ref(v)),
                "indices of a sparse tensor in COO have the type int32");
    refuse_mark(make_coo(make_line(TN_INT64, 7), tn_tensor_ref(v)), "have 1 axes");
    refuse_mark(make_coo(make(TN_INT64, 2, (int64_t[]){4, 7}), tn_tensor_ref(v)),
                "the indices name 4 axes, but the sparse tensor has 3");
    refuse_mark(make_coo(tn_tensor_ref(i), NULL), "tensor is NULL");
    refuse_mark(make_coo(tn_tensor_ref(i), tn_tensor_ref(i)),
                "parts 0 and 1 are the same tensor");
    tn_tensor_unref(i);
    tn_tensor_unref(v);
}

TN_TEST(csr_parts_that_do_not_fit_are_refused_and_none_is_marked)
{
    tn_tensor *r = make_line(TN_INT32, 11), *c = make_line(TN_INT32, 4);
    tn_tensor *v = make_line(TN_INT8, 4);
    refuse_mark(make_csr(make_line(TN_INT32, 10), tn_tensor_ref(c), tn_tensor_ref(v)),
                "10 row offsets, but the sparse tensor has 10 rows");
    refuse_mark(make_csr(make_line(TN_INT64, 11), tn_tensor_ref(c), tn_tensor_ref(v)),
                "different types");
    refuse_mark(
        make_csr(tn_tensor_ref(r), make_line(TN_INT16, 4), tn_tensor_ref(v)),
        "columns of a sparse tensor in CSR have the type int16: it must be int64 or int32");
    refuse_mark(make_csr(tn_tensor_ref(r), make_line(TN_INT32, 5), tn_tensor_ref(v)),
                "5 columns but 4 values");
    refuse_mark(
        make_csr(tn_tensor_ref(r), tn_tensor_ref(c), make(TN_INT8, 2, (int64_t[]){4, 1})),
        "have 2 axes: 1 to 1");
    tn_tensor_unref(r);
    tn_tensor_unref(c);
    tn_tensor_unref(v);
}

TN_TEST(a_sparse_tensor_that_makes_no_sense_is_refused)
{
    tn_sparse coo = new_coo(), csr = new_csr(), s;
    refused(tn_sparse_mark(NULL), TN_ERR_INVALID, "sparse is NULL");
    s = coo, s.layout = TN_LAYOUT_STRIDED;
    refused(tn_sparse_mark(&s), TN_ERR_INVALID, "layout has the number 0");
    s = coo, s.layout = 3;
    refused(tn_sparse_mark(&s), TN_ERR_INVALID, "layout has the number 3");
    s = coo, s.flags = 2;
    refused(tn_sparse_mark(&s), TN_ERR_INVALID, "flags 0x2");
    s = csr, s.flags = TN_SPARSE_COALESCED;
    refused(tn_sparse_mark(&s), TN_ERR_INVALID,
            "a sparse tensor in CSR cannot have the flags 0x1");
    s = coo, s.part_count = 3;
    refused(tn_sparse_mark(&s), TN_ERR_INVALID, "COO has 2 parts");
    s = coo, s.part_count = UINT32_MAX;
    refused(tn_sparse_mark(&s), TN_ERR_INVALID, "parts");
    s = coo, s.ndim = 33;
    refused(tn_sparse_mark(&s), TN_ERR_INVALID, "33 axes");
    s = coo, s.ndim = 0;
    refused(tn_sparse_mark(&s), TN_ERR_INVALID, "COO cannot have 0 axes");
    s = csr, s.ndim = 3;
    refused(tn_sparse_mark(&s), TN_ERR_INVALID, "CSR cannot have 3 axes");
    s = coo, s.shape[1] = -4;
    refused(tn_sparse_mark(&s), TN_ERR_INVALID,
            "axis 1 of a sparse tensor has the negative size -4");
    unref_parts(&coo);
    unref_parts(&csr);
}

TN_TEST(what_marks_a_part_keeps_its_other_attributes)
{
    tn_sparse coo = new_coo(), found;
    TN_CHECK_OK(tn_tensor_set_name(coo.parts[0], "indices"));
    TN_CHECK_OK(tn_tensor_set_flags(coo.parts[1], TN_REQUIRES_GRAD));
    TN_CHECK_OK(tn_sparse_mark(&coo));
    coo.flags = 0;
    TN_CHECK_OK(tn_sparse_mark(&coo));
    assert_int_equal(tn_sparse_find(coo.parts, 2, &found), 2);
    assert_int_equal(found.flags, 0);
    assert_string_equal(tn_tensor_name(coo.parts[0]), "indices");
    assert_int_equal(tn_tensor_flags(coo.parts[1]), TN_REQUIRES_GRAD);
    unref_parts(&coo);
}
