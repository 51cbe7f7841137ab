/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of the room tensor share: a domain made of the rooms below, and elements by
 * coordinates.
 */
#ifndef TENON_TESTS_UNIT_TENSOR_TEST_H
#define TENON_TESTS_UNIT_TENSOR_TEST_H

#include <string.h>

#include "harness/harness.h"
#include "harness/tensor.h"
#include "tensor/tensor.h"

enum { TEST_QUOTA_BYTES = 64 << 20 };

static inline tn_domain *make_domain(void)
{
    struct tni_segment_options options = {.name = "",
                                          .seats = 8,
                                          .blocks = 1024,
                                          .objects = 8,
                                          .tickets = 8,
                                          .quota_bytes = TEST_QUOTA_BYTES,
                                          .watermark_bytes = TEST_QUOTA_BYTES};
    struct tni_segment segment;
    tn_domain *domain;
    TN_CHECK_OK(tni_segment_create(&options, &segment));
    TN_CHECK_OK(tni_process_join(&segment, 0, &domain));
    tni_alloc_init(domain);
    TN_CHECK_OK(tni_ref_init(domain));
    return domain;
}

static inline void leave_domain(tn_domain *domain)
{
    tni_process_begin_leave(domain);
    tni_ref_close(domain);
    tni_process_leave(domain);
    tni_process_unkeep(domain);
}

static inline void free_domain(tn_domain *domain)
{
    assert_int_equal(atomic_load(&domain->keepers), 1);
    leave_domain(domain);
}

/** Move on to the next coordinates in row-major order. @return false after the last */
static inline bool next_place(int32_t ndim, const int64_t *shape, int64_t *place)
{
    for (int32_t i = ndim - 1; i >= 0; i--) {
        if (++place[i] < shape[i])
            return true;
        place[i] = 0;
    }
    return false;
}

static inline uint8_t *element_at(const tn_tensor *t, const int64_t *place)
{
    size_t item_bytes = 0;
    TN_CHECK_OK(tn_dtype_size(tn_tensor_dtype(t), &item_bytes));
    int64_t at = 0;
    for (int32_t i = 0; i < tn_tensor_ndim(t); i++)
        at += place[i] * tnt_info(t).strides[i];
    return (uint8_t *)tn_tensor_data(t) + at * (int64_t)item_bytes;
}

static inline void fill_with_positions(tn_tensor *t)
{
    int32_t *data = tn_tensor_data(t);
    for (int64_t i = 0; i < tn_tensor_count(t); i++)
        data[i] = (int32_t)i;
}

#endif
