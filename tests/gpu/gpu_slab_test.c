/* SPDX-License-Identifier: Apache-2.0 */
/* Slabs: memory of a device that is cut into blocks, and the blocks of processes that died. */
#include "gpu/gpu.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ref/ref.h"

enum { SLAB = 64 << 20, GRANULE = 2 << 20, SMALL = 4096 };

static tn_domain *domain;
static tn_queue *queue;
static struct tnt_signal ready, popped;

static void begin_with(const struct fake_options *fake, const tn_domain_options *options)
{
    const tn_queue_options many = {.struct_size = sizeof many, .capacity = 16384};
    gpu_begin(fake);
    domain = tnt_domain(options);
    TN_CHECK_OK(tn_queue_open(domain, NULL, &many, 0, &queue));
    ready = tnt_signal_open();
    popped = tnt_signal_open();
}

static void begin(void) { begin_with(NULL, NULL); }

/* tenond may be recounting what a death left: the caller retries then. */
static void reap_all(void)
{
    uint64_t until_ns = tnt_until_ns(10000);
    int status;
    while ((status = tn_domain_reap(domain, NULL)) == TN_ERR_TIMED_OUT &&
           tni_os_now_ns() < until_ns)
        tni_os_yield();
    TN_CHECK_OK(status);
}

static void end(void)
{
    tn_object_close(queue);
    reap_all();
    TNT_AUDIT(domain);
    gpu_await_used(domain, 0);
    tn_domain_close(domain);
    tnt_signal_close(&ready);
    tnt_signal_close(&popped);
    gpu_end();
}

static tn_tensor *make(int64_t bytes)
{
    tn_tensor *tensor;
    const tn_tensor_options options = {.struct_size = sizeof options, .device = gpu_0};
    TN_CHECK_OK(tn_tensor_create(domain, TN_UINT8, 1, (int64_t[]){bytes}, &options, &tensor));
    return tensor;
}

/* What a message of the test says of the order of two processes is said to the fake as well. */
static void message_sent(void)
{
    if (!gpu_is_real())
        gpu_fake.message_sent(1);
}

static void message_received(void)
{
    if (!gpu_is_real())
        gpu_fake.message_received(1);
}

static uint64_t calls(const char *function)
{
    return gpu_is_real() ? 0 : gpu_fake.calls(function);
}

/* ---- many tensors ------------------------------------------------------------------------ */

TN_TEST(tensors_of_one_size_share_a_slab_and_do_not_overlap)
{
    enum { COUNT = 1000 };
    static tn_tensor *tensors[COUNT];
    begin();
    for (int i = 0; i < COUNT; i++)
        tensors[i] = gpu_tensor(domain, 3000, (uint8_t)i);
    if (!gpu_is_real())
        assert_int_equal(gpu_used(), SLAB);
    for (int i = 0; i < COUNT; i += 37)
        gpu_expect(domain, tensors[i], (uint8_t)i);
    for (int i = 0; i < COUNT; i++)
        tn_tensor_unref(tensors[i]);
    end();
}

TN_TEST(each_size_up_to_half_a_slab_is_cut_from_one)
{
    static const int64_t sizes[] = {0,       1,       512,     513,      100000,
                                    1 << 20, 3 << 19, 5 << 20, 24 << 20, 32 << 20};
    begin();
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        tn_tensor *one = gpu_tensor(domain, sizes[i], 7),
                  *two = gpu_tensor(domain, sizes[i], 8);
        if (sizes[i] > 0 && !gpu_is_real()) { /* a copy of the last byte is not refused */
            assert_ptr_not_equal(tn_tensor_data(one), tn_tensor_data(two));
            gpu_expect(domain, one, 7);
            gpu_expect(domain, two, 8);
        }
        tn_tensor_unref(one);
        tn_tensor_unref(two);
        TN_CHECK_OK(tn_domain_trim(domain, 0, NULL));
    }
    end();
}

TN_TEST(a_tensor_larger_than_half_a_slab_has_memory_of_its_own)
{
    begin();
    tn_tensor *tensor = make((32 << 20) + 1);
    if (!gpu_is_real())
        assert_int_equal(gpu_used(), (32 << 20) + GRANULE);
    tn_tensor_unref(tensor);
    end();
}

enum { MANY = 10000 };

static int consume_many(void *unused)
{
    (void)unused;
    uint64_t imports = 0, all = 0;
    for (int i = 0; i < MANY; i++) {
        tn_tensor *tensor;
        TN_CHECK_OK(tn_queue_pop_tensor(queue, tnt_deadline(20000), &tensor));
        if (i == 0) {
            imports = calls("cuMemImportFromShareableHandle");
            all = calls(NULL);
        }
        tn_tensor_unref(tensor);
    }
    assert_int_equal(calls("cuMemImportFromShareableHandle"), imports);
    assert_int_equal(calls(NULL), all); /* no call of the driver for a message */
    if (!gpu_is_real())
        assert_int_equal(imports, 1 + gpu_is_hip()); /* one of memory of its own */
    tn_domain_close(domain);
    return 0;
}

TN_TEST(ten_thousand_tensors_cross_with_one_import)
{
    begin();
    pid_t pid = tnt_fork(consume_many, NULL);
    tn_tensor *first = make(SMALL);
    uint64_t all = calls(NULL);
    unsigned fds = tnt_descriptor_count();
    for (int i = 0; i < MANY; i++) {
        tn_tensor *tensor = make(SMALL);
        TN_CHECK_OK(tn_queue_push_tensor(queue, tensor, 0, tnt_deadline(20000)));
        tn_tensor_unref(tensor);
    }
    assert_int_equal(calls("cuMemCreate"), gpu_is_real() ? 0 : 1);
    assert_int_equal(tnt_descriptor_count(), fds);
    tnt_note("%llu calls of the driver for %d tensors of the producer",
             (unsigned long long)(calls(NULL) - all), MANY);
    tnt_wait_ok(pid);
    tn_tensor_unref(first);
    end();
}

/* ---- room -------------------------------------------------------------------------------- */

TN_TEST(a_slab_without_tensors_is_given_back)
{
    begin();
    tn_tensor *one = make(SMALL), *two = make(SMALL);
    uint64_t freed;
    tn_tensor_unref(one);
    TN_CHECK_OK(tn_domain_trim(domain, 0, &freed)); /* `two` keeps the slab */
    if (!gpu_is_real())
        assert_int_equal(gpu_used(), SLAB);
    tn_tensor_unref(two);
    TN_CHECK_OK(tn_domain_trim(domain, 0, &freed));
    assert_true(freed >= SLAB);
    gpu_await_used(NULL, 0);
    tn_tensor_unref(make(SMALL)); /* and another one takes its place */
    end();
}

TN_TEST(slabs_are_given_back_to_tensors_of_other_sizes)
{
    gpu_need_fake();
    begin_with(&(struct fake_options){.memory_bytes = SLAB + GRANULE}, NULL);
    for (int64_t bytes = 512; bytes <= 32 << 20; bytes *= 2)
        tn_tensor_unref(make(bytes));
    tn_tensor_unref(make(SLAB));
    end();
}

TN_TEST(a_tensor_gets_what_is_left_if_no_slab_fits)
{
    gpu_need_fake();
    begin_with(&(struct fake_options){.memory_bytes = 5 * GRANULE}, NULL);
    tn_tensor *one = gpu_tensor(domain, SMALL, 1), *two = gpu_tensor(domain, SMALL, 2);
    assert_int_equal(gpu_used(), 2 * GRANULE);
    gpu_expect(domain, one, 1);
    gpu_expect(domain, two, 2);
    tn_tensor_unref(one);
    tn_tensor_unref(two);
    end();
}

static int hold_until_told(void *unused)
{
    (void)unused;
    tn_tensor *tensor;
    TN_CHECK_OK(tn_queue_pop_tensor(queue, tnt_deadline(10000), &tensor));
    tnt_signal(&popped);
    tnt_await(&ready);
    tn_tensor_unref(tensor);
    tn_domain_close(domain);
    return 0;
}

static int release_later(void *unused)
{
    (void)unused;
    tn_tensor *tensor;
    TN_CHECK_OK(tn_queue_pop_tensor(queue, tnt_deadline(10000), &tensor));
    tnt_await(&ready);
    tn_tensor_unref(tensor);
    tn_domain_close(domain);
    return 0;
}

static void expect_detail(const char *format, int pid)
{
    char text[160];
    snprintf(text, sizeof text, format, pid);
    if (strstr(tn_error_detail(), text) == NULL)
        fail_msg("'%s' does not say '%s'", tn_error_detail(), text);
}

TN_TEST(a_full_device_says_who_holds_its_memory)
{
    enum { BYTES = 20 << 20, FULL = 2 }; /* two of them in a slab */
    gpu_need_fake();
    begin_with(&(struct fake_options){.memory_bytes = SLAB, .no_races = true}, NULL);
    pid_t pid = tnt_fork(hold_until_told, NULL);
    tn_tensor *tensors[FULL] = {make(BYTES), make(BYTES)}, *more = NULL;
    const tn_tensor_options options = {
        .struct_size = sizeof options, .device = gpu_0, .deadline = tnt_deadline(50)};
    TN_CHECK_OK(tn_queue_push_tensor(queue, tensors[0], 0, TN_NOW));
    tnt_await(&popped);
    assert_int_equal(tn_tensor_create(domain, TN_UINT8, 1, (int64_t[]){BYTES}, &options, &more),
                     TN_ERR_TIMED_OUT);
    expect_detail("; process %d holds 41943040 bytes, process ", getpid());
    expect_detail(", process %d 20971520 (shared blocks count for each)", pid);
    for (int i = 0; i < FULL; i++) {
        TN_CHECK_OK(tn_queue_push_tensor(queue, tensors[i], 0, TN_NOW));
        tn_tensor_unref(tensors[i]);
    }
    tnt_signal(&ready);
    tnt_wait_ok(pid);
    reap_all();
    assert_int_equal(tn_tensor_create(domain, TN_UINT8, 1, (int64_t[]){BYTES},
                                      TN_OPTIONS(tn_tensor_options, .device = gpu_0), &more),
                     TN_ERR_NO_MEMORY);
    expect_detail("; no process holds any, but messages, tickets or values of stores may", 0);
    end();
}

TN_TEST(a_call_with_a_deadline_gets_a_block_that_is_released)
{
    enum { BYTES = 30 << 20 }; /* two of them in a slab, and the device has no room for more */
    gpu_need_fake();
    begin_with(&(struct fake_options){.memory_bytes = SLAB + GRANULE, .no_races = true}, NULL);
    pid_t pid = tnt_fork(release_later, NULL);
    tn_tensor *one = make(BYTES), *two = make(BYTES), *three = NULL;
    TN_CHECK_OK(tn_queue_push_tensor(queue, two, 0, TN_NOW));
    tn_tensor_unref(two);
    tn_tensor_options options = {.struct_size = sizeof options, .device = gpu_0};
    assert_int_equal(
        tn_tensor_create(domain, TN_UINT8, 1, (int64_t[]){BYTES}, &options, &three),
        TN_ERR_NO_MEMORY);
    options.deadline = tnt_deadline(50);
    assert_int_equal(
        tn_tensor_create(domain, TN_UINT8, 1, (int64_t[]){BYTES}, &options, &three),
        TN_ERR_TIMED_OUT);
    tnt_signal(&ready);
    options.deadline = tnt_deadline(10000);
    TN_CHECK_OK(tn_tensor_create(domain, TN_UINT8, 1, (int64_t[]){BYTES}, &options, &three));
    tn_tensor_unref(three);
    tn_tensor_unref(one);
    tnt_wait_ok(pid);
    end();
}

TN_TEST(a_domain_may_have_smaller_slabs)
{
    const tn_domain_options options = {
        .struct_size = sizeof options, .blocks = 1 << 16, .device_slab_bytes = 2 * GRANULE};
    enum { COUNT = 3000 };
    static tn_tensor *tensors[COUNT];
    begin_with(NULL, &options);
    for (int i = 0; i < COUNT; i++)
        tensors[i] = make(SMALL);
    if (!gpu_is_real())
        assert_int_equal(gpu_used(), 3 * 2 * GRANULE); /* 1024 tensors in each */
    for (int i = 0; i < COUNT; i++)
        tn_tensor_unref(tensors[i]);
    end();
    const tn_domain_options large = {.struct_size = sizeof large,
                                     .device_slab_bytes = SLAB + GRANULE};
    tn_domain *other;
    assert_int_equal(tn_domain_open(NULL, &large, 0, &other), TN_ERR_INVALID);
}

TN_TEST(the_quota_of_devices_counts_slabs_whole)
{
    const tn_domain_options options = {.struct_size = sizeof options,
                                       .device_quota_bytes = SLAB + GRANULE};
    tn_tensor *large = NULL;
    begin_with(NULL, &options);
    tn_tensor *tensor = make(SMALL), *other = make(32768); /* no second slab fits */
    const tn_tensor_options on_device = {.struct_size = sizeof on_device, .device = gpu_0};
    assert_int_equal(
        tn_tensor_create(domain, TN_UINT8, 1, (int64_t[]){SLAB}, &on_device, &large),
        TN_ERR_NO_MEMORY);
    tn_tensor_unref(other);
    tn_tensor_unref(tensor);
    end();
}

static int make_one_and_stay(void *go)
{
    tn_tensor *tensor = gpu_tensor(domain, SMALL, 5);
    tnt_signal(&ready);
    tnt_await(go);
    gpu_expect(domain, tensor, 5);
    tn_tensor_unref(tensor);
    tn_domain_close(domain);
    return 0;
}

/* A process could not map the slab of another one. */
TN_TEST(without_tenond_each_tensor_has_memory_of_its_own)
{
    const tn_domain_options options = {.struct_size = sizeof options,
                                       .flags = TN_DOMAIN_NO_MANAGER};
    begin_with(NULL, &options);
    struct tnt_signal go = tnt_signal_open();
    pid_t pid = tnt_fork(make_one_and_stay, &go);
    tnt_await(&ready);
    tn_tensor *one = gpu_tensor(domain, SMALL, 6), *two = gpu_tensor(domain, SMALL, 7);
    if (!gpu_is_real())
        assert_int_equal(gpu_used(), 3 * GRANULE);
    gpu_expect(domain, one, 6);
    gpu_expect(domain, two, 7);
    tnt_signal(&go);
    tnt_wait_ok(pid);
    tnt_signal_close(&go);
    tn_tensor_unref(one);
    tn_tensor_unref(two);
    end();
}

TN_TEST(slabs_that_rest_are_given_back_by_a_scan)
{
    begin();
    tn_tensor *kept = make(SMALL);
    tn_tensor_unref(make(1 << 20));
    for (int i = 0; i < 2; i++) { /* one scan to see them, one to end them */
        atomic_store(&tni_ref_part(domain)->rested_ns, 0);
        tni_ref_trim_idle_slabs(domain);
    }
    tni_backing_sweep_slabs(domain);
    if (!gpu_is_real())
        gpu_await_used(NULL, SLAB);
    tn_tensor_unref(kept);
    end();
}

static int hold_a_mapping(void *unused)
{
    (void)unused;
    tn_tensor *tensor;
    TN_CHECK_OK(tn_queue_pop_tensor(queue, tnt_deadline(10000), &tensor));
    tn_tensor_unref(tensor); /* the slab stays mapped here */
    tnt_signal(&ready);
    TN_CHECK_OK(tn_queue_pop_tensor(queue, tnt_deadline(10000), &tensor));
    message_received();
    gpu_await_used(NULL, SLAB); /* its slab is another one, and the former one is unmapped */
    gpu_expect(domain, tensor, 0x22);
    tn_tensor_unref(tensor);
    tn_domain_close(domain);
    return 0;
}

static int trim(void *unused)
{
    (void)unused;
    TN_CHECK_OK(tn_domain_trim(domain, 0, NULL));
    return 0;
}

/* Another process ends a slab that one has mapped, and may die before it tells the others. */
static void end_a_mapped_slab(bool dies)
{
    begin();
    pid_t pid = tnt_fork(hold_a_mapping, NULL);
    tn_tensor *tensor = make(SMALL);
    TN_CHECK_OK(tn_queue_push_tensor(queue, tensor, 0, TN_NOW));
    tn_tensor_unref(tensor);
    tnt_await(&ready);
    if (dies) {
        assert_true(tnt_kill_at("backing_cleared", 1, trim, NULL));
        int status = tn_domain_reap(domain, NULL);
        while (status == TN_ERR_TIMED_OUT) /* tenond is doing it at the moment */
            status = tn_domain_reap(domain, NULL);
        TN_CHECK_OK(status);
    } else {
        TN_CHECK_OK(tn_domain_trim(domain, 0, NULL));
    }
    tensor = gpu_tensor(domain, 1 << 20, 0x22);
    message_sent();
    TN_CHECK_OK(tn_queue_push_tensor(queue, tensor, 0, TN_NOW));
    tnt_wait_ok(pid);
    tn_tensor_unref(tensor);
    end();
}

TN_TEST(a_process_unmaps_slabs_that_others_have_ended) { end_a_mapped_slab(false); }
TN_TEST(a_process_unmaps_slabs_that_the_dead_have_ended) { end_a_mapped_slab(true); }

/* ---- what is seen ------------------------------------------------------------------------ */

static tn_inspector *inspect(void)
{
    tn_domain_info info = {.struct_size = sizeof info};
    tn_inspector *inspector;
    char id[33];
    TN_CHECK_OK(tn_domain_get_info(domain, &info));
    for (int i = 0; i < 16; i++)
        snprintf(id + 2 * i, 3, "%02x", info.id[i]);
    TN_CHECK_OK(tn_inspector_open(id, &inspector));
    return inspector;
}

static int see_device(const tn_device_entry *device, void *context)
{
    *(tn_device_entry *)context = *device;
    return 0;
}

struct seen {
    uint32_t slabs, small, large;
};

static int see_block(const tn_block_entry *block, void *context)
{
    struct seen *seen = context;
    if (strcmp(block->strategy, "cuda_vmm") != 0) {
        assert_string_equal(block->device, "");
        return 0;
    }
    assert_memory_equal(block->device, "GPU-", 4);
    seen->slabs += strcmp(block->kind, "slab") == 0;
    seen->small += strcmp(block->kind, "tensor") == 0 && block->bytes == SMALL;
    seen->large += strcmp(block->kind, "tensor") == 0 && block->bytes == SLAB;
    if (block->bytes == SMALL)
        assert_int_equal(block->holders[0].pid, getpid());
    return 0;
}

static int see_own_seat(const tn_seat_entry *seat, void *context)
{
    if (seat->pid == getpid())
        *(tn_seat_entry *)context = *seat;
    return 0;
}

TN_TEST(memory_of_devices_and_its_holders_are_seen)
{
    tn_device_entry device = {0};
    tn_seat_entry seat = {0};
    struct seen seen = {0};
    begin();
    tn_tensor *tensors[] = {make(SMALL), make(SMALL), make(SLAB)};
    tn_inspector *inspector = inspect();
    TN_CHECK_OK(tn_inspect_devices(inspector, see_device, &device));
    TN_CHECK_OK(tn_inspect_blocks(inspector, see_block, &seen));
    TN_CHECK_OK(tn_inspect_seats(inspector, see_own_seat, &seat));
    assert_int_equal(device.objects, 2);
    assert_int_equal(device.bytes, 2 * SLAB);
    assert_int_equal(device.tensors, 3);
    assert_int_equal(device.live_bytes, SLAB + 2 * SMALL);
    assert_true(device.quota_bytes == UINT64_MAX);
    assert_true(seen.slabs == 1 && seen.small == 2 && seen.large == 1);
    assert_int_equal(seat.device_bytes_held, SLAB + 2 * SMALL);
    tn_inspector_close(inspector);
    for (int i = 0; i < 3; i++)
        tn_tensor_unref(tensors[i]);
    end();
}

/* ---- the dead ---------------------------------------------------------------------------- */

static int compute_and_release(void *unused)
{
    (void)unused;
    tn_tensor *tensor = make(SMALL);
    gpu_kernel_fill(tensor, 0xee);
    tn_tensor_unref(tensor); /* waits for the kernel */
    message_sent();
    tnt_signal(&ready);
    tn_domain_close(domain);
    return 0;
}

TN_TEST(a_block_of_the_living_is_used_again_after_their_work)
{
    gpu_need_fake();
    begin_with(&(struct fake_options){.delays = true}, NULL);
    pid_t pid = tnt_fork(compute_and_release, NULL);
    tnt_await(&ready);
    assert_int_equal(tn_device_count(gpu_type), 1); /* the fake hears of messages from now */
    message_received();
    tn_tensor *tensor = gpu_tensor(domain, SMALL, 0x11);
    gpu_expect(domain, tensor, 0x11);
    tnt_wait_ok(pid);
    tn_tensor_unref(tensor);
    end();
}

static int compute_and_die(void *unused)
{
    (void)unused;
    tn_tensor *tensor = make(SMALL);
    TN_CHECK_OK(tn_queue_push_tensor(queue, tensor, 0, TN_NOW));
    gpu_hold(0);
    gpu_kernel_fill(tensor, 0xee); /* the device has not done it when the process ends */
    tnt_signal(&ready);
    pause();
    return 1;
}

/*
 * The block of a dead process goes to another tensor. The fake lets the kernel of the dead
 * write at the end of the first call that waits for the device, and finds a race if the block
 * was written before.
 */
TN_TEST(a_block_of_the_dead_is_used_again_after_their_work)
{
    gpu_need_fake();
    begin();
    pid_t pid = tnt_fork(compute_and_die, NULL);
    tnt_await(&ready);
    tnt_kill(pid);
    tn_tensor *tensor;
    reap_all();
    TN_CHECK_OK(tn_queue_pop_tensor(queue, TN_NOW, &tensor));
    tn_tensor_unref(tensor); /* the last reference: the block is free */
    tensor = gpu_tensor(domain, SMALL, 0x11);
    gpu_expect(domain, tensor, 0x11);
    tn_tensor_unref(tensor);
    end();
}

static int hold_and_execute(void *unused)
{
    (void)unused;
    tn_tensor *tensor = make(SMALL);
    TN_CHECK_OK(tn_queue_push_tensor(queue, tensor, 0, TN_NOW));
    tnt_signal(&ready);
    execl("/bin/sleep", "sleep", "600", (char *)NULL);
    return 1;
}

/* Whether a span names a slab. */
static bool has_slab(void)
{
    const struct tni_segment *s = &domain->segment;
    for (uint32_t c = s->geometry.host_classes; c < s->geometry.class_count; c++)
        for (uint32_t i = 0; i < tni_frontier(s, c); i += s->geometry.classes[c].span)
            if (tni_slab_of(s, tni_block_make(c, i)).id != 0)
                return true;
    return false;
}

TN_TEST(a_process_that_executes_a_program_gives_its_blocks_back)
{
    begin();
    pid_t pid = tnt_fork(hold_and_execute, NULL);
    tnt_await(&ready);
    tn_tensor *tensor;
    TN_CHECK_OK(tn_queue_pop_tensor(queue, tnt_deadline(10000), &tensor));
    tn_tensor_unref(tensor);
    uint64_t until_ns = tnt_until_ns(10000);
    while (has_slab() && tni_os_now_ns() < until_ns) { /* while it sleeps */
        reap_all();
        TN_CHECK_OK(tn_domain_trim(domain, 0, NULL));
    }
    assert_false(has_slab());
    tnt_kill(pid); /* the fake does not see that it executed another program */
    end();
}

static int make_and_trim(void *unused)
{
    (void)unused;
    tn_tensor *tensor = make(SMALL);
    TN_CHECK_OK(tn_queue_push_tensor(queue, tensor, 0, TN_NOW));
    tn_tensor_unref(tensor);
    TN_CHECK_OK(tn_queue_pop_tensor(queue, TN_NOW, &tensor));
    tn_tensor_unref(tensor);
    TN_CHECK_OK(tn_domain_trim(domain, 0, NULL));
    tn_domain_close(domain);
    return 0;
}

static void die_at(const char *point)
{
    begin();
    const struct tni_header *h = domain->segment.header;
    uint64_t deaths = atomic_load(&h->deaths);
    assert_true(tnt_kill_at(point, 1, make_and_trim, NULL));
    uint64_t begun_ns = tni_os_now_ns();
    do /* tenond may be at it, too */
        reap_all();
    while (atomic_load(&h->deaths) == deaths ||
           atomic_load(&h->suspects_added) != atomic_load(&h->suspects_done));
    tnt_note("reclaimed in %llu ms",
             (unsigned long long)(tni_os_now_ns() - begun_ns) / 1000000);
    TNT_AUDIT(domain);
    tnt_wait_ok(tnt_fork(make_and_trim, NULL)); /* what is left serves the next process */
    end();
}

TN_TEST(a_death_after_a_slab_was_made_leaves_nothing) { die_at("slab_made"); }
TN_TEST(a_death_after_a_slab_was_recorded_leaves_a_slab) { die_at("slab_recorded"); }
TN_TEST(a_death_after_a_slab_was_published_leaves_a_slab) { die_at("slab_published"); }
TN_TEST(a_death_with_a_whole_span_leaves_a_slab) { die_at("slab_span_taken"); }
TN_TEST(a_death_after_a_slab_lost_its_span_leaves_nothing) { die_at("slab_unrecorded"); }

static int reap(void *unused)
{
    (void)unused;
    reap_all();
    return 0;
}

static void signal_tenond(int number)
{
    const struct tni_segment *s = &domain->segment;
    uint64_t who = atomic_load(&s->header->manager);
    assert_int_not_equal(who, 0);
    assert_int_equal(kill(atomic_load(&tni_seat_at(s, tni_who_seat(who))->pid), number), 0);
}

TN_TEST(a_death_of_the_reaper_leaves_a_slab_that_is_waited_for)
{
    gpu_need_fake();
    begin();
    pid_t pid = tnt_fork(compute_and_die, NULL);
    tnt_await(&ready);
    signal_tenond(SIGSTOP); /* else it would be the one that reclaims */
    tnt_kill(pid);
    assert_true(tnt_kill_at("slab_dirtied", 1, reap, NULL));
    signal_tenond(SIGCONT);
    reap_all();
    end();
}

/* ---- damage ------------------------------------------------------------------------------ */

static int pop_damaged(void *unused)
{
    (void)unused;
    tn_tensor *tensor;
    assert_int_equal(tn_queue_pop_tensor(queue, tnt_deadline(10000), &tensor), TN_ERR_CORRUPT);
    tn_domain_close(domain);
    return 0;
}

TN_TEST(a_wrong_number_of_a_slab_is_an_error_and_no_more)
{
    begin();
    pid_t pid = tnt_fork(pop_damaged, NULL);
    tn_tensor *tensor = make(SMALL);
    struct tni_segment *s = &domain->segment;
    tni_block first = {0};
    for (uint32_t c = s->geometry.host_classes; first.id == 0; c++)
        if (tni_frontier(s, c) > 0)
            first = tni_block_make(c, 0);
    uint64_t slab = atomic_exchange(&tni_desc_at(s, first)->committed, UINT64_C(0x0700000000));
    TN_CHECK_OK(tn_queue_push_tensor(queue, tensor, 0, TN_NOW));
    tnt_wait_ok(pid);
    atomic_store(&tni_desc_at(s, first)->committed, slab);
    tn_tensor_unref(tensor);
    end();
}
