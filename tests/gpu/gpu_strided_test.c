/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies from and to devices of tensors that are not contiguous. What is right is what
 * tn_tensor_copy() does on the host: the same views of the same bytes.
 */
#include "gpu/gpu.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static tn_domain *domain;

static void begin(const struct fake_options *fake)
{
    const tn_domain_options options = {.struct_size = sizeof options,
                                       .device_slab_bytes = 8 << 20};
    gpu_begin(fake);
    domain = tnt_domain(&options);
}

static void end(void)
{
    TNT_AUDIT(domain);
    gpu_await_used(domain, 0);
    tn_domain_close(domain);
    gpu_end();
}

/* ---- bytes, and views of them ------------------------------------------------------------ */

/* Bytes on the host, and the same bytes on a device or in other memory of the host. */
struct bytes {
    tn_tensor *wanted;
    tn_tensor *copy;
};

static struct bytes make_bytes(tn_device device, int64_t count)
{
    struct bytes b;
    const tn_tensor_options options = {.struct_size = sizeof options, .device = device};
    TN_CHECK_OK(tn_tensor_create(domain, TN_UINT8, 1, &count, NULL, &b.wanted));
    uint8_t *data = tn_tensor_data(b.wanted);
    for (int64_t i = 0; i < count; i++)
        data[i] = (uint8_t)tnt_random();
    TN_CHECK_OK(tn_tensor_create(domain, TN_UINT8, 1, &count, &options, &b.copy));
    TN_CHECK_OK(tn_tensor_copy(b.copy, b.wanted));
    return b;
}

/* Each byte is as on the host: also those that belong to no element. */
static void end_bytes(struct bytes *b)
{
    tn_tensor *here;
    size_t count = (size_t)tn_tensor_count(b->copy);
    TN_CHECK_OK(tn_tensor_create_private(TN_UINT8, 1, tn_tensor_shape(b->copy), &here));
    TN_CHECK_OK(tn_tensor_copy(here, b->copy));
    const uint8_t *wanted = tn_tensor_data(b->wanted), *found = tn_tensor_data(here);
    for (size_t i = 0; i < count; i++)
        if (wanted[i] != found[i])
            fail_msg("byte %zu of %zu is %u, not %u", i, count, found[i], wanted[i]);
    tn_tensor_unref(here);
    tn_tensor_unref(b->copy);
    tn_tensor_unref(b->wanted);
}

/* A view of bytes from `offset` on. */
struct form {
    tn_dtype dtype;
    int32_t ndim;
    int64_t shape[TN_MAX_NDIM];
    int64_t strides[TN_MAX_NDIM];
    uint64_t offset;
    int64_t bytes; /* that it needs */
};

static tn_tensor *view_of(tn_tensor *bytes, const struct form *f)
{
    tn_tensor *view;
    TN_CHECK_OK(
        tn_tensor_view(bytes, f->dtype, f->ndim, f->shape, f->strides, f->offset, &view));
    return view;
}

/*
 * Axes in any order, each of them with or without gaps, and in either direction. Those of a
 * source may repeat one element.
 */
static void choose_strides(struct form *f, bool is_source)
{
    int32_t order[TN_MAX_NDIM];
    uint64_t item_bytes = TN_DTYPE_BITS(f->dtype) / 8, first = 0;
    int64_t step = 1;
    for (int32_t i = 0; i < f->ndim; i++) {
        int32_t at = (int32_t)tnt_random_below((uint64_t)i + 1);
        order[i] = order[at];
        order[at] = i;
    }
    bool is_dense = tnt_random_below(4) == 0, is_row_major = tnt_random_below(2) == 0;
    for (int32_t i = f->ndim; i-- > 0;) {
        int32_t axis = is_row_major ? i : order[i];
        if (is_source && tnt_random_below(8) == 0) {
            f->strides[axis] = 0;
            continue;
        }
        bool falls = !is_dense && tnt_random_below(6) == 0;
        step *= is_dense || tnt_random_below(2) == 0 ? 1 : 1 + (int64_t)tnt_random_below(3);
        f->strides[axis] = falls ? -step : step;
        first += falls ? (uint64_t)((f->shape[axis] - 1) * step) : 0;
        step *= f->shape[axis];
        step += is_dense ? 0 : (int64_t)tnt_random_below(3);
    }
    first += tnt_random_below(4);
    f->offset = first * item_bytes;
    f->bytes = (step + 4) * (int64_t)item_bytes;
}

static void choose_shape(struct form *f)
{
    static const tn_dtype dtypes[] = {TN_UINT8, TN_INT16, TN_FLOAT32, TN_FLOAT64,
                                      TN_COMPLEX128};
    int64_t left = tnt_random_below(4) == 0 ? 20000 : 400;
    f->dtype = dtypes[tnt_random_below(5)];
    f->ndim = (int32_t)tnt_random_below(6);
    for (int32_t i = 0; i < f->ndim; i++) {
        uint64_t most =
            tnt_random_below(3) == 0 ? (uint64_t)left : (uint64_t)(left < 5 ? left : 5);
        f->shape[i] = 1 + (int64_t)tnt_random_below(most);
        left /= f->shape[i];
        left = left < 1 ? 1 : left;
    }
}

/* ---- copies of any shape ----------------------------------------------------------------- */

static void copy_like_host(tn_device to, tn_device from, CUstream stream)
{
    struct form t, s;
    choose_shape(&t);
    s = t;
    choose_strides(&t, false);
    choose_strides(&s, true);
    struct bytes target = make_bytes(to, t.bytes), source = make_bytes(from, s.bytes);
    tn_tensor *views[] = {view_of(target.wanted, &t), view_of(source.wanted, &s),
                          view_of(target.copy, &t), view_of(source.copy, &s)};
    TN_CHECK_OK(tn_tensor_copy(views[0], views[1]));
    if (stream == NULL) {
        TN_CHECK_OK(tn_tensor_copy(views[2], views[3]));
    } else {
        TN_CHECK_OK(tn_tensor_copy_on(views[2], views[3], stream));
        gpu_stream_wait(stream);
    }
    for (int i = 0; i < 4; i++)
        tn_tensor_unref(views[i]);
    end_bytes(&target);
    end_bytes(&source);
}

static unsigned rounds(void) { return tnt_is_full() ? 2000 : 150; }

static void copy_many(const struct fake_options *options, tn_device to, tn_device from)
{
    begin(options);
    tn_tensor *kept = gpu_tensor(domain, 1, 0); /* and with it the context of the stream */
    CUstream stream = gpu_stream(NULL);
    for (unsigned i = 0; i < rounds(); i++)
        copy_like_host(to, from, i % 2 == 0 ? stream : NULL);
    gpu_stream_end(stream, NULL);
    tn_tensor_unref(kept);
    end();
}

TN_TEST_WITHIN(any_strides_are_copied_to_a_device, 120) { copy_many(NULL, gpu_0, gpu_cpu); }
TN_TEST_WITHIN(any_strides_are_copied_from_a_device, 120) { copy_many(NULL, gpu_cpu, gpu_0); }
TN_TEST_WITHIN(any_strides_are_copied_within_a_device, 120) { copy_many(NULL, gpu_0, gpu_0); }

/* The streams are of device 0, to which the copies go. */
TN_TEST_WITHIN(any_strides_are_copied_between_devices, 120)
{
    gpu_need_fake();
    copy_many(&(struct fake_options){.device_count = 2}, gpu_0, gpu_1);
}

TN_TEST_WITHIN(any_strides_are_copied_by_a_driver_without_rows, 120)
{
    gpu_need_cuda("HIP has no versions without these functions");
    gpu_need_fake();
    begin(&(struct fake_options){.without = FAKE_NO_PITCHED});
    for (unsigned i = 0; i < rounds(); i++) {
        copy_like_host(gpu_0, gpu_cpu, NULL);
        copy_like_host(gpu_cpu, gpu_0, NULL);
        copy_like_host(gpu_0, gpu_0, NULL);
    }
    end();
}

TN_TEST_WITHIN(any_strides_are_copied_by_a_driver_that_wants_its_pitches, 120)
{
    gpu_need_fake();
    begin(&(struct fake_options){.strict_pitch = true});
    for (unsigned i = 0; i < rounds(); i++)
        copy_like_host(gpu_0, gpu_0, NULL);
    end();
}

/* Both are views of the same bytes. */
TN_TEST_WITHIN(overlapping_views_are_copied_as_on_the_host, 120)
{
    begin(NULL);
    for (unsigned i = 0; i < rounds(); i++) {
        struct form t, s;
        choose_shape(&t);
        s = t;
        choose_strides(&t, false);
        choose_strides(&s, true);
        struct bytes both = make_bytes(gpu_0, t.bytes > s.bytes ? t.bytes : s.bytes);
        tn_tensor *views[] = {view_of(both.wanted, &t), view_of(both.wanted, &s),
                              view_of(both.copy, &t), view_of(both.copy, &s)};
        TN_CHECK_OK(tn_tensor_copy(views[0], views[1]));
        TN_CHECK_OK(tn_tensor_copy(views[2], views[3]));
        for (int v = 0; v < 4; v++)
            tn_tensor_unref(views[v]);
        end_bytes(&both);
    }
    end();
}

/* ---- how they are copied ----------------------------------------------------------------- */

enum { ROWS = 300, COLUMNS = 200 };
static const struct form whole = {TN_FLOAT32,   2, {ROWS, COLUMNS},
                                  {COLUMNS, 1}, 0, ROWS *COLUMNS * 4};

/* How often a copy calls the driver. */
struct calls {
    uint64_t rows, plain, waits;
};

static struct calls count_calls(void)
{
    return (struct calls){
        gpu_fake.calls("cuMemcpy2DAsync"),
        gpu_fake.calls("cuMemcpyHtoDAsync") + gpu_fake.calls("cuMemcpyDtoHAsync") +
            gpu_fake.calls("cuMemcpyDtoDAsync") + gpu_fake.calls("cuMemcpyPeerAsync"),
        gpu_fake.calls("cuStreamSynchronize")};
}

/* Copy between tensors of these forms, and count the calls. */
static struct calls calls_of(tn_device to, tn_device from, const struct form *t,
                             const struct form *s)
{
    struct bytes target = make_bytes(to, t->bytes), source = make_bytes(from, s->bytes);
    tn_tensor *views[] = {view_of(target.copy, t), view_of(source.copy, s),
                          view_of(target.wanted, t), view_of(source.wanted, s)};
    TN_CHECK_OK(tn_tensor_copy(views[2], views[3]));
    struct calls before = count_calls();
    TN_CHECK_OK(tn_tensor_copy_on(views[0], views[1], NULL));
    struct calls after = count_calls();
    for (int i = 0; i < 4; i++)
        tn_tensor_unref(views[i]);
    end_bytes(&target);
    end_bytes(&source);
    return (struct calls){after.rows - before.rows, after.plain - before.plain,
                          after.waits - before.waits};
}

static void expect_calls(struct calls found, struct calls wanted)
{
    assert_int_equal(found.rows, wanted.rows);
    assert_int_equal(found.plain, wanted.plain);
    assert_int_equal(found.waits, wanted.waits + gpu_is_hip()); /* before the next use */
}

TN_TEST(rows_are_copied_by_one_call_that_does_not_wait)
{
    struct form half = whole;
    gpu_need_fake();
    begin(NULL);
    half.shape[1] = COLUMNS / 2;
    expect_calls(calls_of(gpu_0, gpu_cpu, &half, &half), (struct calls){1, 0, 0});
    expect_calls(calls_of(gpu_cpu, gpu_0, &half, &half), (struct calls){1, 0, 0});
    expect_calls(calls_of(gpu_0, gpu_0, &half, &half), (struct calls){1, 0, 0});
    end();
}

/* Both are dense in one order of the axes. */
TN_TEST(two_transposed_tensors_are_copied_by_one_call)
{
    const struct form across = {TN_FLOAT32,   2, {COLUMNS, ROWS},
                                {1, COLUMNS}, 0, ROWS * COLUMNS * 4};
    gpu_need_fake();
    begin(NULL);
    expect_calls(calls_of(gpu_0, gpu_cpu, &across, &across), (struct calls){0, 1, 0});
    expect_calls(calls_of(gpu_cpu, gpu_0, &across, &across), (struct calls){0, 1, 0});
    expect_calls(calls_of(gpu_0, gpu_0, &across, &across), (struct calls){0, 1, 0});
    end();
}

/* The processor transposes, through a buffer that the call waits for. */
TN_TEST(a_transposed_tensor_is_copied_through_the_host)
{
    const struct form across = {TN_FLOAT32, 2, {ROWS, COLUMNS},
                                {1, ROWS},  0, ROWS * COLUMNS * 4};
    gpu_need_fake();
    begin(NULL);
    expect_calls(calls_of(gpu_0, gpu_cpu, &whole, &across), (struct calls){0, 1, 2});
    expect_calls(calls_of(gpu_cpu, gpu_0, &whole, &across), (struct calls){0, 1, 2});
    expect_calls(calls_of(gpu_0, gpu_0, &whole, &across), (struct calls){0, 2, 3});
    end();
}

/* Few calls do it on the device: one for each of the shorter rows. */
TN_TEST(a_device_transposes_by_itself_where_few_calls_do_it)
{
    const struct form few = {TN_FLOAT32, 2, {12, 5000}, {5000, 1}, 0, 12 * 5000 * 4},
                      across = {TN_FLOAT32, 2, {12, 5000}, {1, 12}, 0, 12 * 5000 * 4};
    gpu_need_fake();
    begin(NULL);
    expect_calls(calls_of(gpu_0, gpu_0, &few, &across), (struct calls){12, 0, 0});
    end();
}

/* The driver brings each element to its place: the host has nothing to bring into order. */
TN_TEST(a_column_is_copied_without_a_buffer)
{
    const struct form column = {TN_FLOAT32, 1, {ROWS}, {COLUMNS}, 12, ROWS * COLUMNS * 4},
                      line = {TN_FLOAT32, 1, {ROWS}, {1}, 0, ROWS * 4};
    gpu_need_fake();
    begin(NULL);
    expect_calls(calls_of(gpu_0, gpu_cpu, &column, &line), (struct calls){1, 0, 0});
    expect_calls(calls_of(gpu_cpu, gpu_0, &line, &column), (struct calls){1, 0, 0});
    expect_calls(calls_of(gpu_0, gpu_0, &line, &column), (struct calls){1, 0, 0});
    end();
}

/* What is repeated crosses once. */
TN_TEST(a_repeated_element_is_copied_once)
{
    const struct form one = {TN_FLOAT32, 2, {ROWS, COLUMNS}, {0, 0}, 4, 8};
    gpu_need_fake();
    begin(NULL);
    expect_calls(calls_of(gpu_cpu, gpu_0, &whole, &one), (struct calls){0, 1, 2});
    expect_calls(calls_of(gpu_0, gpu_0, &whole, &one), (struct calls){0, 2, 3});
    end();
}

TN_TEST(a_new_tensor_of_a_transposed_one_is_row_major)
{
    const struct form across = {TN_FLOAT32, 2, {ROWS, COLUMNS},
                                {1, ROWS},  0, ROWS * COLUMNS * 4};
    tn_tensor_info info = {.struct_size = sizeof info};
    begin(NULL);
    struct bytes b = make_bytes(gpu_cpu, across.bytes);
    tn_tensor *view = view_of(b.copy, &across), *there, *back, *again, *whole_view;
    TN_CHECK_OK(tn_tensor_to(domain, view, gpu_0, NULL, &there));
    TN_CHECK_OK(tn_tensor_get_info(there, &info));
    assert_true(info.is_contiguous);
    TN_CHECK_OK(tn_tensor_transpose(there, NULL, &back));
    TN_CHECK_OK(tn_tensor_clone(domain, back, NULL, &again)); /* on the device, too */
    assert_int_equal(tn_tensor_device(again).type, gpu_type);
    TN_CHECK_OK(tn_tensor_view(b.wanted, TN_FLOAT32, 2, (int64_t[]){COLUMNS, ROWS}, NULL, 0,
                               &whole_view));
    memset(tn_tensor_data(whole_view), 0, (size_t)across.bytes);
    TN_CHECK_OK(tn_tensor_copy(whole_view, again));
    end_bytes(&b);
    tn_tensor *tensors[] = {view, there, back, again, whole_view};
    for (int i = 0; i < 5; i++)
        tn_tensor_unref(tensors[i]);
    end();
}

TN_TEST(strides_do_not_change_what_is_refused)
{
    const struct form across = {TN_FLOAT32, 2, {4, 5}, {1, 4}, 0, 80},
                      other = {TN_FLOAT32, 2, {5, 4}, {1, 5}, 0, 80},
                      one = {TN_FLOAT32, 2, {4, 5}, {0, 1}, 0, 80};
    begin(NULL);
    struct bytes b = make_bytes(gpu_0, 80), c = make_bytes(gpu_cpu, 80);
    tn_tensor *there = view_of(b.copy, &across), *shape = view_of(c.copy, &other),
              *repeats = view_of(b.copy, &one), *here = view_of(c.copy, &across);
    assert_int_equal(tn_tensor_copy(there, shape), TN_ERR_INVALID);
    assert_int_equal(tn_tensor_copy(repeats, here), TN_ERR_INVALID);
    assert_int_equal(tn_tensor_copy(here, NULL), TN_ERR_INVALID);
    tn_tensor *tensors[] = {there, shape, repeats, here};
    for (int i = 0; i < 4; i++)
        tn_tensor_unref(tensors[i]);
    end_bytes(&b);
    end_bytes(&c);
    end();
}

/* ---- order ------------------------------------------------------------------------------- */

static _Atomic bool has_returned;
static tn_tensor *thread_target, *thread_source;

static void *copy_in_thread(void *unused)
{
    (void)unused;
    int status = tn_tensor_copy_on(thread_target, thread_source, NULL);
    atomic_store(&has_returned, true);
    return status == 0 ? &has_returned : NULL;
}

/*
 * The stream has still to write the registered memory of the host that the second copy reads:
 * the processor may not read it before.
 */
TN_TEST(a_copy_through_the_host_comes_after_the_stream)
{
    gpu_need_cuda("HIP waits for the stream before a tensor is handed on");
    const struct form across = {TN_FLOAT32, 2, {ROWS, COLUMNS},
                                {1, ROWS},  0, ROWS * COLUMNS * 4};
    pthread_t thread;
    void *result;
    gpu_need_fake();
    begin(NULL);
    struct bytes first = make_bytes(gpu_0, whole.bytes),
                 here = make_bytes(gpu_cpu, whole.bytes), last = make_bytes(gpu_0, whole.bytes);
    tn_tensor *views[] = {view_of(here.wanted, &across), view_of(last.wanted, &whole)};
    TN_CHECK_OK(tn_tensor_pin(here.copy));
    TN_CHECK_OK(tn_tensor_copy(here.wanted, first.wanted));
    TN_CHECK_OK(tn_tensor_copy(views[1], views[0]));
    thread_target = view_of(last.copy, &whole);
    thread_source = view_of(here.copy, &across);
    atomic_store(&has_returned, false);
    gpu_hold(0);
    TN_CHECK_OK(tn_tensor_copy_on(here.copy, first.copy, NULL));
    uint64_t before = gpu_fake.calls("cuStreamSynchronize"), until_ns = tnt_until_ns(10000);
    assert_int_equal(pthread_create(&thread, NULL, copy_in_thread, NULL), 0);
    while (!atomic_load(&has_returned) && gpu_fake.calls("cuStreamSynchronize") == before &&
           tnt_until_ns(0) < until_ns)
        sched_yield();
    assert_false(atomic_load(&has_returned));
    gpu_go_on(0);
    pthread_join(thread, &result);
    assert_non_null(result);
    tn_tensor *tensors[] = {views[0], views[1], thread_target, thread_source};
    for (int i = 0; i < 4; i++)
        tn_tensor_unref(tensors[i]);
    end_bytes(&first);
    end_bytes(&here);
    end_bytes(&last);
    end();
}

/* The memory goes to others only when the calls before the one that failed have ended. */
TN_TEST(memory_is_released_after_a_copy_that_failed_midway)
{
    const struct form few = {TN_FLOAT32, 2, {12, 5000}, {5000, 1}, 0, 12 * 5000 * 4},
                      across = {TN_FLOAT32, 2, {12, 5000}, {1, 12}, 0, 12 * 5000 * 4};
    gpu_need_fake();
    begin(NULL);
    struct bytes target = make_bytes(gpu_0, few.bytes), source = make_bytes(gpu_0, few.bytes);
    tn_tensor *to = view_of(target.copy, &few), *from = view_of(source.copy, &across);
    gpu_fake.fail_nth("cuMemcpy2DAsync", 8, CUDA_ERROR_UNKNOWN);
    assert_int_equal(tn_tensor_copy(to, from), TN_ERR_DEVICE);
    uint64_t before = gpu_fake.calls("cuCtxSynchronize");
    tn_tensor *tensors[] = {to, from, target.copy, source.copy, target.wanted, source.wanted};
    for (int i = 0; i < 6; i++)
        tn_tensor_unref(tensors[i]);
    assert_true(gpu_fake.calls("cuCtxSynchronize") > before);
    end();
}

/* ---- several processes ------------------------------------------------------------------- */

static tn_queue *queue;

static int write_columns(void *which)
{
    int64_t first = *(const int64_t *)which;
    tn_tensor *tensor, *columns, *here;
    TN_CHECK_OK(tn_queue_pop_tensor(queue, tnt_deadline(30000), &tensor));
    TN_CHECK_OK(tn_tensor_slice(tensor, 1, first, COLUMNS, 2, &columns));
    TN_CHECK_OK(tn_tensor_create_private(TN_FLOAT32, 2, (int64_t[]){ROWS, COLUMNS / 2}, &here));
    float *data = tn_tensor_data(here);
    for (int i = 0; i < ROWS * COLUMNS / 2; i++)
        data[i] = (float)(1 + first);
    TN_CHECK_OK(tn_tensor_copy(columns, here));
    tn_tensor_unref(columns);
    tn_tensor_unref(tensor);
    tn_tensor_unref(here);
    gpu_fake.message_sent((uint64_t)(first + 1));
    tn_domain_close(domain);
    return 0;
}

/* Each writes the elements of its columns, and nothing of the others: the fake sees no race. */
TN_TEST(two_processes_write_columns_of_one_tensor)
{
    static const int64_t which[] = {0, 1};
    pid_t pids[2];
    gpu_need_fake();
    begin(&(struct fake_options){.delays = true});
    TN_CHECK_OK(tn_queue_open(domain, NULL, NULL, 0, &queue));
    for (int i = 0; i < 2; i++)
        pids[i] = tnt_fork(write_columns, (void *)(uintptr_t)&which[i]);
    tn_tensor *tensor, *here;
    const tn_tensor_options options = {.struct_size = sizeof options, .device = gpu_0};
    TN_CHECK_OK(
        tn_tensor_create(domain, TN_FLOAT32, 2, (int64_t[]){ROWS, COLUMNS}, &options, &tensor));
    for (int i = 0; i < 2; i++)
        TN_CHECK_OK(tn_queue_push_tensor(queue, tensor, 0, TN_NOW));
    for (int i = 0; i < 2; i++)
        tnt_wait_ok(pids[i]);
    for (uint64_t i = 1; i <= 2; i++)
        gpu_fake.message_received(i);
    TN_CHECK_OK(tn_tensor_create_private(TN_FLOAT32, 2, (int64_t[]){ROWS, COLUMNS}, &here));
    TN_CHECK_OK(tn_tensor_copy(here, tensor));
    const float *data = tn_tensor_data(here);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        if ((int)data[i] != 1 + i % 2)
            fail_msg("element %d is %g", i, (double)data[i]);
    tn_tensor_unref(tensor);
    tn_tensor_unref(here);
    tn_object_close(queue);
    end();
}
