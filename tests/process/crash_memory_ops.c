/* SPDX-License-Identifier: Apache-2.0 */
/* Operations: memory, tensors, references. */
#include "process/crash.h"

#include "harness/tensor.h"
#include "show/show.h"
#include <string.h>

enum { SMALL = 1000, MIDDLE = 64 << 10, LARGE = 3 << 20 };

static void empty_small(struct crash_world *w) { crash_tensor(w, SMALL); }

static void empty_middle(struct crash_world *w) { crash_tensor(w, MIDDLE); }

static void empty_large(struct crash_world *w) { crash_tensor(w, LARGE); }

static void empty_cached(struct crash_world *w)
{
    tn_tensor_unref(crash_tensor(w, SMALL));
    crash_tensor(w, SMALL);
}

/* In builds that detect misuse, the memory of an ended tensor is used again after 256 ends. */
static void end_many(struct crash_world *w)
{
    for (int i = 0; i < 300; i++)
        tn_tensor_unref(crash_tensor(w, SMALL));
}

static void use_ten(struct crash_world *w)
{
    tn_tensor *tensors[10];
    for (int i = 0; i < 10; i++)
        tensors[i] = crash_tensor(w, SMALL);
    for (int i = 0; i < 10; i++)
        tn_tensor_unref(tensors[i]);
}

/* Blocks that a member had cached when it left: hints tell all other members of them. */
static void publish_hints(struct crash_world *w) { crash_member(w, use_ten); }

static void use_all(struct crash_world *w)
{
    for (int i = 0; i < 20; i++)
        crash_tensor(w, LARGE);
}

/* Free blocks of another size use up the quota, so an allocation trims them. */
static void fill_quota(struct crash_world *w)
{
    tn_tensor *tensors[20];
    for (int i = 0; i < 20; i++)
        tensors[i] = crash_tensor(w, LARGE);
    for (int i = 0; i < 20; i++)
        tn_tensor_unref(tensors[i]);
}

static void empty_by_trim(struct crash_world *w) { crash_tensor(w, 12 << 20); }

static void zeros_and_bytes(struct crash_world *w)
{
    static uint8_t bytes[MIDDLE];
    int64_t size = SMALL, middle = MIDDLE;
    tn_tensor *tensor;
    crash_fill(bytes, sizeof bytes);
    TN_CHECK_OK(tn_tensor_create(w->domain, TN_UINT8, 1, &size,
                                 TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED),
                                 &tensor));
    TN_CHECK_OK(tn_tensor_create(
        w->domain, TN_UINT8, 1, &middle,
        TN_OPTIONS(tn_tensor_options, .source = bytes, .source_bytes = MIDDLE), &tensor));
}

static void from_bytes_large(struct crash_world *w)
{
    static uint8_t bytes[LARGE];
    int64_t size = LARGE;
    tn_tensor *tensor;
    crash_fill(bytes, sizeof bytes);
    TN_CHECK_OK(tn_tensor_create(
        w->domain, TN_UINT8, 1, &size,
        TN_OPTIONS(tn_tensor_options, .source = bytes, .source_bytes = LARGE), &tensor));
}

/* Leave a free block with bytes of a dead process beyond `committed`. */
static void leave_bytes(struct crash_world *w)
{
    TN_CHECK(crash_run_and_die(w, from_bytes_large, "tensor_written", 1));
    crash_reclaim(w);
}

static void zeros_large(struct crash_world *w)
{
    int64_t size = LARGE;
    tn_tensor *tensor;
    TN_CHECK_OK(tn_tensor_create(w->domain, TN_UINT8, 1, &size,
                                 TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED),
                                 &tensor));
}

/* The same, after another process died that had just given these bytes back. */
static void leave_bytes_twice(struct crash_world *w)
{
    leave_bytes(w);
    TN_CHECK(crash_run_and_die(w, zeros_large, "alloc_mended", 1));
    crash_reclaim(w);
}

/* Tensors of whole blocks, so that no byte of the dead process lies behind the end of one. */
static void check_zeros(struct crash_world *w)
{
    int64_t size = 4 << 20;
    tn_tensor *tensors[3];
    for (int i = 0; i < 3; i++) {
        TN_CHECK_OK(tn_tensor_create(w->domain, TN_UINT8, 1, &size,
                                     TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED),
                                     &tensors[i]));
        const uint8_t *bytes = tn_tensor_data(tensors[i]);
        if (bytes[0] != 0 || memcmp(bytes, bytes + 1, (size_t)size - 1) != 0)
            fail_msg("new zeros have bytes of a dead process");
    }
    for (int i = 0; i < 3; i++)
        tn_tensor_unref(tensors[i]);
}

/* Allocate all but 2 MiB of the quota: what a dead process committed must be usable again. */
static void check_quota(struct crash_world *w)
{
    int64_t size = 62 << 20;
    tn_tensor *tensor;
    TN_CHECK_OK(tn_tensor_create(w->domain, TN_UINT8, 1, &size, NULL, &tensor));
    tn_tensor_unref(tensor);
}

static void hold_one(struct crash_world *w) { w->tensor[0] = crash_tensor(w, SMALL); }

static void unref_last(struct crash_world *w)
{
    tn_tensor_unref(crash_tensor(w, SMALL));
    tn_tensor_unref(crash_tensor(w, LARGE));
}

static void unref_shared(struct crash_world *w)
{
    w->tensor[0] = tn_tensor_unref(w->tensor[0]);
}

static void share(struct crash_world *w, int64_t bytes)
{
    tn_tensor *tensor, *view;
    TN_CHECK_OK(tn_tensor_create_private(TN_UINT8, 1, &bytes, &tensor));
    crash_fill(tn_tensor_data(tensor), (size_t)bytes);
    TN_CHECK_OK(tn_tensor_slice(tensor, 0, 0, bytes, 2, &view));
    TN_CHECK_OK(tn_tensor_share(w->domain, tensor, NULL));
    assert_true(tnt_info(view).is_shared);
}

static void share_small(struct crash_world *w) { share(w, SMALL); }

static void share_large(struct crash_world *w) { share(w, LARGE); }

static void make_free_memory(struct crash_world *w)
{
    tn_tensor *tensors[4];
    for (int i = 0; i < 4; i++)
        tensors[i] = crash_tensor(w, i % 2 == 0 ? LARGE : SMALL);
    for (int i = 0; i < 4; i++)
        tn_tensor_unref(tensors[i]);
}

static void trim(struct crash_world *w)
{
    uint64_t freed = 0;
    TN_CHECK_OK(tn_domain_trim(w->domain, 0, &freed));
    TN_CHECK(freed >= LARGE);
}

/* A span of which one block is live: the page of that block stays. */
static void keep_one_of_many(struct crash_world *w)
{
    tn_tensor *tensors[40];
    for (int i = 0; i < 40; i++)
        tensors[i] = crash_tensor(w, SMALL);
    for (int i = 0; i < 40; i++)
        if (i == 20)
            w->tensor[0] = tensors[i];
        else
            tn_tensor_unref(tensors[i]);
}

static void trim_around_one(struct crash_world *w)
{
    uint64_t freed = 0;
    TN_CHECK_OK(tn_domain_trim(w->domain, 0, &freed));
    TN_CHECK(freed >= 40 * SMALL / 2);
}

static void keep_one_and_trim(struct crash_world *w)
{
    keep_one_of_many(w);
    trim_around_one(w);
}

/* Each small tensor commits the page in which it lies. */
static void empty_around_one(struct crash_world *w)
{
    for (int i = 0; i < 10; i++)
        crash_tensor(w, SMALL);
}

static void set_no_watermark(struct crash_world *w)
{
    TN_CHECK_OK(tn_domain_set_watermark(w->domain, 1));
}

/* Above the watermark, a release trims. */
static void free_above_watermark(struct crash_world *w)
{
    tn_tensor *tensors[4];
    for (int i = 0; i < 4; i++)
        tensors[i] = crash_tensor(w, LARGE);
    for (int i = 0; i < 4; i++)
        tn_tensor_unref(tensors[i]);
}

/* What a domain shows of a scheduler: a block that is made, written, and given back. */
static void show(struct crash_world *w)
{
    tn_sched_info info = {.struct_size = sizeof info, .resource_count = 2, .tasks = 5};
    struct tni_shown *shown;
    TN_CHECK_OK(tni_show_begin(w->domain, "shown", &info, &shown));
    for (; info.tasks > 3; info.tasks--)
        tni_show_write(shown, &info);
    tni_show_end(shown, true);
}

static int count_scheduler(const tn_scheduler_entry *scheduler, void *count)
{
    (void)scheduler;
    ++*(uint32_t *)count;
    return 0;
}

static void find_none_shown(struct crash_world *w)
{
    uint32_t count = 0;
    TN_CHECK_OK(tn_inspect_schedulers(w->inspector, count_scheduler, &count));
    assert_int_equal(count, 0);
}

const struct crash_op crash_memory_ops[] = {
    {.name = "empty_small_fresh", .run = empty_small},
    {.name = "empty_small_from_the_cache", .run = empty_cached},
    {.name = "empty_in_the_block_of_the_last", .prepare = end_many, .run = empty_cached},
    {.name = "empty_small_from_hints", .prepare = publish_hints, .run = empty_small},
    {.name = "empty_64_kib", .run = empty_middle},
    {.name = "empty_3_mib", .run = empty_large, .check = check_quota},
    {.name = "empty_until_the_quota", .is_costly = true, .run = use_all},
    {.name = "empty_by_trim", .is_costly = true, .prepare = fill_quota, .run = empty_by_trim},
    {.name = "zeros_and_from_bytes", .run = zeros_and_bytes},
    {.name = "from_bytes_3_mib", .run = from_bytes_large, .check = check_zeros},
    {.name = "zeros_over_bytes_of_the_dead",
     .prepare = leave_bytes,
     .run = zeros_large,
     .check = check_zeros},
    {.name = "from_bytes_over_bytes_of_the_dead",
     .prepare = leave_bytes_twice,
     .run = from_bytes_large,
     .check = check_zeros},
    {.name = "unref_last", .run = unref_last},
    {.name = "unref_not_last", .prepare = hold_one, .run = unref_shared},
    {.name = "share_small", .run = share_small},
    {.name = "share_large", .run = share_large},
    {.name = "scheduler_shown", .run = show, .check = find_none_shown},
    {.name = "trim", .prepare = make_free_memory, .run = trim, .check = check_zeros},
    {.name = "trim_around_a_live_block", .prepare = keep_one_of_many, .run = trim_around_one},
    {.name = "empty_in_a_trimmed_span", .prepare = keep_one_and_trim, .run = empty_around_one},
    {.name = "unref_above_the_watermark",
     .is_costly = true,
     .prepare = set_no_watermark,
     .run = free_above_watermark},
    {0},
};
