/* SPDX-License-Identifier: Apache-2.0 */
/* Types and tensors. */
#include <tenon/dlpack.h>

#include <stdlib.h>
#include <string.h>

#include "faults.h"
#include "harness/tensor.h"

enum { BYTES = 4096, LARGE_BYTES = 3 << 20 };

static tn_tensor *t, *u;
static const int64_t large_shape[] = {LARGE_BYTES};
static const int64_t shape[] = {64, 64};
static uint8_t source[BYTES];

static void unref_out(void) { tn_tensor_unref(*FAULTS_OUT(tn_tensor *)); }
static void make(void)
{
    faults_begin();
    t = faults_tensor(BYTES);
}
static void end(void)
{
    t = tn_tensor_unref(t);
    faults_end();
}
static void trim(void) { TN_CHECK_OK(tn_domain_trim(faults_d, 0, NULL)); }
#define WITH_DOMAIN .prepare = faults_begin, .finish = faults_end
#define WITH_TENSOR .prepare = make, .finish = end

/* ---- types ------------------------------------------------------------------------------- */

static int dtype_name(void) { return tn_dtype_name(TN_FLOAT32, FAULTS_OUT(char), 32); }
static int dtype_parse(void) { return tn_dtype_parse("int32x4", FAULTS_OUT(tn_dtype)); }
static int dtype_size(void) { return tn_dtype_size(TN_FLOAT64, FAULTS_OUT(size_t)); }
FAULTS(tn_dtype_name, .has_no_calls = true, .call = dtype_name)
FAULTS(tn_dtype_parse, .has_no_calls = true, .call = dtype_parse)
FAULTS(tn_dtype_size, .has_no_calls = true, .call = dtype_size)

/* ---- making ------------------------------------------------------------------------------ */

/* After a trim: memory has to be had anew. */
static int empty(void)
{
    return tn_tensor_create(faults_d, TN_UINT8, 1, large_shape, NULL, FAULTS_OUT(tn_tensor *));
}
static int zeros(void)
{
    return tn_tensor_create(faults_d, TN_UINT8, 1, large_shape,
                            TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED),
                            FAULTS_OUT(tn_tensor *));
}
static int from_bytes(void)
{
    return tn_tensor_create(
        faults_d, TN_UINT8, 2, shape,
        TN_OPTIONS(tn_tensor_options, .source = source, .source_bytes = BYTES),
        FAULTS_OUT(tn_tensor *));
}
static int private(void)
{
    return tn_tensor_create_private(TN_UINT8, 2, shape, FAULTS_OUT(tn_tensor *));
}
FAULTS(tn_tensor_create, WITH_DOMAIN, .before = trim, .call = empty, .undo = unref_out)
FAULTS_WHEN(tn_tensor_create, zeroed, WITH_DOMAIN, .before = trim, .call = zeros,
            .undo = unref_out)
FAULTS_WHEN(tn_tensor_create, with_a_source, WITH_DOMAIN, .before = trim, .call = from_bytes,
            .undo = unref_out)
FAULTS(tn_tensor_create_private, .call = private, .undo = unref_out)

/* The quota is used: it waits, and others give nothing back. */
static void use_up(void)
{
    make();
    TN_CHECK_OK(tn_domain_set_quota(faults_d, 1 << 20));
}
static int empty_until_late(void)
{
    return tn_tensor_create(faults_d, TN_UINT8, 1, large_shape,
                            TN_OPTIONS(tn_tensor_options, .deadline = tnt_deadline(2)),
                            FAULTS_OUT(tn_tensor *));
}
FAULTS_WHEN(tn_tensor_create, asleep, .prepare = use_up, .finish = end,
            .expected = TN_ERR_TIMED_OUT, .call = empty_until_late)

static void make_private(void)
{
    trim();
    TN_CHECK_OK(tn_tensor_create_private(TN_UINT8, 1, large_shape, &u));
}
static void unref_u(void) { u = tn_tensor_unref(u); }
static uint64_t is_shared(void) { return u != NULL && tnt_info(u).is_shared; }
static int share(void) { return tn_tensor_share(faults_d, u, NULL); }
FAULTS(tn_tensor_share, WITH_DOMAIN, .measure = is_shared, .before = make_private,
       .call = share, .undo = unref_u)

/* ---- references -------------------------------------------------------------------------- */

static int ref(void) { return tn_tensor_ref(t) != t; }
static void unref_t(void) { tn_tensor_unref(t); }
static int unref(void) { return u = tn_tensor_unref(u), 0; }
static void make_u(void) { u = faults_tensor(BYTES); }
static void make_descriptor(void) { u = faults_tensor_as(TN_STRATEGY_FILE_DESCRIPTOR, 0, 99); }
static void make_file(void) { u = faults_tensor_as(TN_STRATEGY_FILE_SYSTEM, 0, 99); }
static void make_private_u(void)
{
    TN_CHECK_OK(tn_tensor_create_private(TN_UINT8, 2, shape, &u));
}
FAULTS(tn_tensor_ref, WITH_TENSOR, .has_no_calls = true, .call = ref, .undo = unref_t)
FAULTS_WHEN(tn_tensor_unref, in_the_arena, WITH_DOMAIN, .never_fails = true,
            .has_no_calls = true, .before = make_u, .call = unref)
FAULTS_WHEN(tn_tensor_unref, of_a_descriptor, WITH_DOMAIN, .never_fails = true,
            .before = make_descriptor, .call = unref)
FAULTS(tn_tensor_unref, WITH_DOMAIN, .never_fails = true, .ends_files = true,
       .before = make_file, .call = unref)
FAULTS_WHEN(tn_tensor_unref, in_private_memory, .never_fails = true, .has_no_calls = true,
            .before = make_private_u, .call = unref)

/* Beyond the watermark, memory goes back to the system with the last reference. */
static void make_with_watermark(void)
{
    faults_begin();
    TN_CHECK_OK(tn_domain_set_watermark(faults_d, 0));
}
static void make_large(void) { TN_CHECK_OK(empty()), u = *FAULTS_OUT(tn_tensor *); }
FAULTS_WHEN(tn_tensor_unref, beyond_the_watermark, .prepare = make_with_watermark,
            .finish = faults_end, .never_fails = true, .before = make_large, .call = unref)

/* ---- views ------------------------------------------------------------------------------- */

static int view(void)
{
    return tn_tensor_view(t, TN_UINT8, 2, shape, NULL, 0, FAULTS_OUT(tn_tensor *));
}
static int slice(void) { return tn_tensor_slice(t, 0, 10, 20, 2, FAULTS_OUT(tn_tensor *)); }
static int transpose(void) { return tn_tensor_transpose(t, NULL, FAULTS_OUT(tn_tensor *)); }
static int reshape(void) { return tn_tensor_reshape(t, 2, shape, FAULTS_OUT(tn_tensor *)); }
FAULTS(tn_tensor_view, WITH_TENSOR, .call = view, .undo = unref_out)
FAULTS(tn_tensor_slice, WITH_TENSOR, .call = slice, .undo = unref_out)
FAULTS(tn_tensor_transpose, WITH_TENSOR, .call = transpose, .undo = unref_out)
FAULTS(tn_tensor_reshape, WITH_TENSOR, .call = reshape, .undo = unref_out)

/* Views that overlap are copied through a third buffer. */
static tn_tensor *left, *right;
static void make_overlapping(void)
{
    make();
    TN_CHECK_OK(tn_tensor_slice(t, 0, 0, 4000, 1, &left));
    TN_CHECK_OK(tn_tensor_slice(t, 0, 4010, 10, -1, &right) == TN_ERR_INVALID
                    ? tn_tensor_slice(t, 0, 10, 4010, -1, &right)
                    : 0);
}
static void end_overlapping(void)
{
    tn_tensor_unref(left);
    tn_tensor_unref(right);
    end();
}
static int copy(void) { return tn_tensor_copy(left, right); }
FAULTS(tn_tensor_copy, .prepare = make_overlapping, .finish = end_overlapping, .call = copy)
static int copy_on(void) { return tn_tensor_copy_on(left, right, NULL); }
FAULTS(tn_tensor_copy_on, .prepare = make_overlapping, .finish = end_overlapping,
       .call = copy_on)

/* ---- what it is -------------------------------------------------------------------------- */

#define ASK(name, expression)                                                                  \
    static int ask_##name(void) { return (expression) ? 0 : TN_ERR_CORRUPT; }                  \
    FAULTS(name, WITH_TENSOR, .has_no_calls = true, .call = ask_##name)
ASK(tn_tensor_data, tn_tensor_data(t) != NULL)
/* There is no driver: tests/gpu have the failures of one. */
static int pin(void) { return tn_tensor_pin(t); }
static int unpin(void) { return tn_tensor_unpin(t); }
FAULTS(tn_tensor_pin, WITH_TENSOR, .depends = true, .keeps_memory = true,
       .expected = TN_ERR_UNSUPPORTED, .call = pin)
FAULTS(tn_tensor_unpin, WITH_TENSOR, .has_no_calls = true, .call = unpin)
static int record(void) { return tn_tensor_record(t, NULL); }
static int wait_on_stream(void) { return tn_tensor_wait(t, NULL); }
static int sync(void) { return tn_tensor_sync(t, TN_NOW); }
FAULTS(tn_tensor_record, WITH_TENSOR, .has_no_calls = true, .expected = TN_ERR_UNSUPPORTED,
       .call = record)
FAULTS(tn_tensor_wait, WITH_TENSOR, .has_no_calls = true, .call = wait_on_stream)
FAULTS(tn_tensor_sync, WITH_TENSOR, .has_no_calls = true, .call = sync)
ASK(tn_tensor_device, tn_tensor_device(t).type == TN_DEVICE_CPU)
ASK(tn_tensor_dtype, tn_tensor_dtype(t) == TN_UINT8)
ASK(tn_tensor_ndim, tn_tensor_ndim(t) == 1)
ASK(tn_tensor_shape, tn_tensor_shape(t)[0] == BYTES)
ASK(tn_tensor_count, tn_tensor_count(t) == BYTES)
ASK(tn_tensor_get_info,
    tnt_info(t).strides[0] == 1 && tnt_info(t).byte_offset == 0 &&
        tnt_info(t).size_bytes == BYTES && tnt_info(t).storage_bytes >= BYTES &&
        tnt_info(t).is_contiguous && tnt_info(t).is_shared && !tnt_info(t).is_read_only &&
        tnt_info(t).strategy == TN_STRATEGY_ARENA && tnt_info(t).path == NULL)
ASK(tn_tensor_same_storage, tn_tensor_same_storage(t, t))

static int find(void)
{
    return tn_tensor_find(faults_d, tn_tensor_data(t), BYTES, FAULTS_OUT(tn_tensor *));
}
FAULTS(tn_tensor_find, WITH_TENSOR, .call = find, .undo = unref_out)

/* Of a descriptor: looked for among this process's mappings. */
static void make_t_of_a_descriptor(void)
{
    faults_begin();
    t = faults_tensor_as(TN_STRATEGY_FILE_DESCRIPTOR, 0, BYTES);
}
FAULTS_WHEN(tn_tensor_find, of_a_descriptor, .prepare = make_t_of_a_descriptor, .finish = end,
            .call = find, .undo = unref_out)

/* ---- other memory ------------------------------------------------------------------------ */

static uint64_t storage_bytes(void) { return u != NULL ? tnt_info(u).storage_bytes : 0; }
static int resize(void) { return tn_tensor_resize_storage(u, 2 * BYTES); }
FAULTS(tn_tensor_resize_storage, .measure = storage_bytes, .before = make_private_u,
       .call = resize, .undo = unref_u)

static int to_dlpack(void)
{
    return tn_tensor_to_dlpack(t, FAULTS_OUT(DLManagedTensorVersioned *));
}
static void delete_out(void)
{
    DLManagedTensorVersioned *managed = *FAULTS_OUT(DLManagedTensorVersioned *);
    managed->deleter(managed);
}
FAULTS(tn_tensor_to_dlpack, WITH_TENSOR, .call = to_dlpack, .undo = delete_out)

static uint32_t deletions;
static void count_deletion(DLManagedTensorVersioned *managed)
{
    (void)managed;
    deletions++;
}
static int64_t foreign_shape[] = {BYTES};
static DLManagedTensorVersioned foreign = {.version = {1, 0},
                                           .deleter = count_deletion,
                                           .dl_tensor = {.data = source,
                                                         .device = {kDLCPU, 0},
                                                         .ndim = 1,
                                                         .dtype = {kDLUInt, 8, 1},
                                                         .shape = foreign_shape}};
static int from_dlpack(void)
{
    return tn_tensor_from_dlpack(&foreign, FAULTS_OUT(tn_tensor *));
}
static void forget_deletions(void) { deletions = 0; }
static void unref_and_count(void)
{
    unref_out();
    TN_CHECK(deletions == 1);
    deletions = 0;
}
static uint64_t deletions_now(void) { return deletions; }
FAULTS(tn_tensor_from_dlpack, .measure = deletions_now, .before = forget_deletions,
       .call = from_dlpack, .undo = unref_and_count)
