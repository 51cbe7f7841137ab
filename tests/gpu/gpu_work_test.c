/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work of a device that a process gave, and has not waited for, when it gives the memory away:
 * no other tensor may get the memory before the work has ended.
 */
#include "gpu/gpu.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tensor/tensor.h"

enum { GRANULE = 2 << 20, BLOCKS = 2, SLAB = BLOCKS * GRANULE, BYTES = GRANULE };
enum { FEW_BLOCKS = 400 };

static tn_domain *domain;
static tn_queue *queue;
static struct tnt_signal ready, go;

/* A slab has two blocks of BYTES: who makes two tensors gets each that was given away. */
static void begin_with_blocks(const struct fake_options *fake, uint32_t blocks)
{
    const tn_domain_options options = {
        .struct_size = sizeof options, .blocks = blocks, .device_slab_bytes = SLAB};
    gpu_begin(fake);
    domain = tnt_domain(&options);
    TN_CHECK_OK(tn_queue_open(domain, NULL, NULL, 0, &queue));
    ready = tnt_signal_open();
    go = tnt_signal_open();
}

static void begin(const struct fake_options *fake) { begin_with_blocks(fake, 0); }

static void end(void)
{
    tn_object_close(queue);
    TNT_AUDIT(domain);
    gpu_await_used(domain, 0);
    tn_domain_close(domain);
    tnt_signal_close(&ready);
    tnt_signal_close(&go);
    gpu_end();
}

static tn_tensor *make(int64_t bytes)
{
    tn_tensor *tensor;
    const tn_tensor_options options = {.struct_size = sizeof options, .device = gpu_0};
    TN_CHECK_OK(tn_tensor_create(domain, TN_UINT8, 1, (int64_t[]){bytes}, &options, &tensor));
    return tensor;
}

/* ---- giving memory away ------------------------------------------------------------------ */

/* Tell the other process, and the fake, that all before this was done. */
static void tell(void)
{
    gpu_fake.message_sent(1);
    tnt_signal(&ready);
}

static int release(void *unused)
{
    (void)unused;
    tn_tensor *tensor = make(BYTES);
    gpu_kernel_fill(tensor, 0xee);
    tn_tensor_unref(tensor);
    tell();
    tn_domain_close(domain);
    return 0;
}

static int leave(void *unused)
{
    (void)unused;
    tn_tensor *tensor = make(BYTES);
    gpu_kernel_fill(tensor, 0xee);
    tn_domain_close(domain);
    tell();
    tn_tensor_unref(tensor);
    return 0;
}

static int move(void *unused)
{
    (void)unused;
    tn_tensor *tensor = make(BYTES);
    gpu_kernel_fill(tensor, 0xee);
    TN_CHECK_OK(tn_queue_push_tensor(queue, tensor, TN_PUSH_MOVE, TN_NOW));
    tell();
    tn_domain_close(domain);
    return 0;
}

/*
 * The other process gives memory away, and this one writes it. The fake finds a race if a
 * kernel of the other one may still write.
 */
static void take_after(tnt_child_fn *giver)
{
    gpu_need_fake();
    begin(&(struct fake_options){.delays = true});
    pid_t pid = tnt_fork(giver, NULL);
    tnt_await(&ready);
    assert_int_equal(tn_device_count(gpu_type), 1); /* it hears of messages from now */
    gpu_fake.message_received(1);
    tn_tensor *tensors[BLOCKS];
    if (giver == move) {
        TN_CHECK_OK(tn_queue_pop_tensor(queue, TN_NOW, &tensors[0]));
        tn_tensor_unref(tensors[0]);
    }
    for (int i = 0; i < BLOCKS; i++)
        tensors[i] = gpu_tensor(domain, BYTES, 0x11);
    tnt_wait_ok(pid);
    for (int i = 0; i < BLOCKS; i++) {
        gpu_expect(domain, tensors[i], 0x11);
        tn_tensor_unref(tensors[i]);
    }
    end();
}

TN_TEST(a_tensor_is_released_after_its_work) { take_after(release); }
TN_TEST(a_domain_is_left_after_the_work_of_its_tensors) { take_after(leave); }
TN_TEST(a_tensor_is_moved_away_after_its_work) { take_after(move); }

static int try_to_make(void *unused)
{
    tn_tensor *tensor;
    const tn_tensor_options options = {.struct_size = sizeof options, .device = gpu_0};
    (void)unused;
    tnt_await(&go);
    assert_int_equal(
        tn_tensor_create(domain, TN_UINT8, 1, (int64_t[]){BYTES}, &options, &tensor),
        TN_ERR_NO_MEMORY);
    tnt_signal(&ready);
    tn_domain_close(domain);
    return 0;
}

/* The driver does not let a process wait while it captures a graph. */
TN_TEST(memory_whose_work_cannot_be_waited_for_is_not_given_away)
{
    gpu_need_fake();
    begin(&(struct fake_options){.memory_bytes = SLAB, .no_races = true});
    pid_t pid = tnt_fork(try_to_make, NULL);
    tn_tensor *one = make(BYTES), *two = make(BYTES);
    assert_non_null(tn_tensor_data(one)); /* from now on it may have work */
    gpu_fake.fail_nth("cuCtxSynchronize", 1, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    tn_tensor_unref(one);
    tnt_signal(&go);
    tnt_await(&ready);
    one = make(BYTES); /* now the process can wait, and uses the memory again */
    tn_tensor_unref(one);
    tn_tensor_unref(two);
    tnt_wait_ok(pid);
    end();
}

/* What a device does ends with its context: nothing is left to wait for. */
TN_TEST(memory_of_a_lost_context_is_given_away)
{
    gpu_need_fake();
    begin(&(struct fake_options){.memory_bytes = SLAB, .no_races = true});
    tn_tensor *one = make(BYTES), *two = make(BYTES);
    assert_non_null(tn_tensor_data(one));
    gpu_fake.fail_nth("cuCtxSynchronize", 1, CUDA_ERROR_ILLEGAL_ADDRESS);
    tn_tensor_unref(one);
    one = make(BYTES);
    assert_int_equal(gpu_used(), SLAB);
    tn_tensor_unref(one);
    tn_tensor_unref(two);
    end();
}

/* ---- registered memory of the host ------------------------------------------------------- */

static tn_tensor *make_pinned(void)
{
    tn_tensor *here;
    TN_CHECK_OK(tn_tensor_create(domain, TN_UINT8, 1, (int64_t[]){BYTES}, NULL, &here));
    TN_CHECK_OK(tn_tensor_pin(here));
    return here;
}

/* A copy to `here`, which the device has not begun. */
static void begin_copy(tn_tensor *here, const tn_tensor *there)
{
    gpu_hold(0);
    TN_CHECK_OK(tn_tensor_copy_on(here, there, NULL));
}

static void *go_on_when_told(void *unused)
{
    (void)unused;
    tnt_await(&go);
    gpu_go_on(0);
    return NULL;
}

static int give_pinned_away(void *how)
{
    tn_tensor *there = gpu_tensor(domain, BYTES, 0xee), *here = make_pinned();
    pthread_t thread;
    begin_copy(here, there);
    assert_int_equal(pthread_create(&thread, NULL, go_on_when_told, NULL), 0);
    tnt_signal(&ready);
    switch (*(const char *)how) {
    case 'u':
        tn_tensor_unref(here);
        break;
    case 'm':
        TN_CHECK_OK(tn_queue_push_tensor(queue, here, TN_PUSH_MOVE, TN_NOW));
        break;
    default:
        tn_domain_close(domain);
        break;
    }
    tnt_signal(&ready);
    pthread_join(thread, NULL);
    if (*(const char *)how == 'c') {
        tn_tensor_unref(here);
        tn_tensor_unref(there);
        return 0;
    }
    assert_int_equal(gpu_fake.calls("cuMemHostUnregister"), 1);
    tn_tensor_unref(there);
    tn_domain_close(domain);
    return 0;
}

/* The process comes through the call only after the device has done its copy. */
static void end_pinned_by(char how)
{
    gpu_need_cuda("HIP waits for the stream before a tensor is handed on");
    gpu_need_fake();
    begin(&(struct fake_options){.no_races = true});
    pid_t pid = tnt_fork(give_pinned_away, &how);
    tnt_await(&ready);
    tnt_signal(&go);
    tnt_await(&ready);
    tnt_wait_ok(pid);
    tn_message m;
    while (tn_queue_pop(queue, TN_NOW, &m) == 0)
        tn_message_fini(&m);
    end();
}

TN_TEST(registered_memory_is_released_after_its_copies) { end_pinned_by('u'); }
TN_TEST(registered_memory_is_moved_away_after_its_copies) { end_pinned_by('m'); }
TN_TEST(a_domain_is_left_after_copies_of_its_memory) { end_pinned_by('c'); }

/* A pool of registered memory: the tensors of a tn_arena are one storage. */
TN_TEST(an_arena_is_registered_whole)
{
    enum { COUNT = 100, SMALL = 5000 };
    tn_tensor *tensors[COUNT];
    tn_arena *arena;
    gpu_need_fake();
    begin(NULL);
    TN_CHECK_OK(tn_arena_create(domain, COUNT * 8192, TN_NOW, &arena));
    for (int i = 0; i < COUNT; i++) {
        TN_CHECK_OK(tn_arena_allocate(arena, TN_UINT8, 1, (int64_t[]){SMALL}, &tensors[i]));
        TN_CHECK_OK(tn_tensor_pin(tensors[i]));
    }
    tn_arena_close(arena);
    assert_int_equal(gpu_fake.calls("cuMemHostRegister"), 1);
    for (int i = 0; i < COUNT; i++)
        tn_tensor_unref(tensors[i]);
    assert_int_equal(gpu_fake.calls("cuMemHostUnregister"), 1);
    end();
}

static void *pin(void *tensor) { return tn_tensor_pin(tensor) == 0 ? tensor : NULL; }

/* The first of two registrations fails: the other thread may not take it for its own. */
TN_TEST(a_tensor_that_a_thread_says_is_registered_is_registered)
{
    enum { TIMES = 300 };
    gpu_need_fake();
    begin(NULL);
    for (int i = 0; i < TIMES; i++) {
        tn_tensor *here;
        pthread_t threads[2];
        void *results[2];
        TN_CHECK_OK(tn_tensor_create(domain, TN_UINT8, 1, (int64_t[]){BYTES}, NULL, &here));
        gpu_fake.fail_nth("cuMemHostRegister", 1, CUDA_ERROR_OUT_OF_MEMORY);
        for (int t = 0; t < 2; t++)
            assert_int_equal(pthread_create(&threads[t], NULL, pin, here), 0);
        for (int t = 0; t < 2; t++)
            pthread_join(threads[t], &results[t]);
        bool is_pinned = results[0] != NULL || results[1] != NULL;
        uint64_t before = gpu_fake.calls("cuMemHostUnregister");
        TN_CHECK_OK(tn_tensor_unpin(here));
        assert_int_equal(gpu_fake.calls("cuMemHostUnregister"), before + is_pinned);
        tn_tensor_unref(here);
    }
    end();
}

TN_TEST(a_storage_that_arrived_twice_is_registered_once)
{
    gpu_need_fake();
    begin(NULL);
    tn_tensor *here = make_pinned(), *again, *third;
    TN_CHECK_OK(tn_queue_push_tensor(queue, here, 0, TN_NOW));
    TN_CHECK_OK(tn_queue_push_tensor(queue, here, 0, TN_NOW));
    TN_CHECK_OK(tn_queue_pop_tensor(queue, TN_NOW, &again));
    TN_CHECK_OK(tn_queue_pop_tensor(queue, TN_NOW, &third));
    TN_CHECK_OK(tn_tensor_pin(again));
    assert_int_equal(gpu_fake.calls("cuMemHostRegister"), 1);
    tn_tensor_unref(here);
    TN_CHECK_OK(tn_tensor_unpin(third)); /* which never registered it */
    assert_int_equal(gpu_fake.calls("cuMemHostUnregister"), 0);
    tn_tensor_unref(again);
    assert_int_equal(gpu_fake.calls("cuMemHostUnregister"), 1);
    tn_tensor_unref(third);
    end();
}

TN_TEST(a_registration_that_cannot_be_ended_stays)
{
    gpu_need_fake();
    begin(NULL);
    tn_tensor *here = make_pinned();
    gpu_fake.fail_nth("cuMemHostUnregister", 1, CUDA_ERROR_UNKNOWN);
    assert_int_equal(tn_tensor_unpin(here), TN_ERR_DEVICE);
    TN_CHECK_OK(tn_tensor_unpin(here));
    TN_CHECK_OK(tn_tensor_pin(here));
    tn_tensor_unref(here);
    end();
}

/* ---- copies ------------------------------------------------------------------------------ */

TN_TEST(copies_of_overlapping_tensors_copy_each_byte_once)
{
    enum { COUNT = 100, BY = 7 };
    uint8_t bytes[COUNT];
    begin(NULL);
    for (int i = 0; i < COUNT; i++)
        bytes[i] = (uint8_t)i;
    const tn_tensor_options options = {.struct_size = sizeof options,
                                       .source = bytes,
                                       .source_bytes = sizeof bytes,
                                       .device = gpu_0};
    tn_tensor *whole, *low, *high, *here;
    TN_CHECK_OK(tn_tensor_create(domain, TN_UINT8, 1, (int64_t[]){COUNT}, &options, &whole));
    TN_CHECK_OK(tn_tensor_slice(whole, 0, 0, COUNT - BY, 1, &low));
    TN_CHECK_OK(tn_tensor_slice(whole, 0, BY, COUNT, 1, &high));
    TN_CHECK_OK(tn_tensor_copy(high, low));
    TN_CHECK_OK(tn_tensor_create_private(TN_UINT8, 1, (int64_t[]){COUNT}, &here));
    TN_CHECK_OK(tn_tensor_copy(here, whole));
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(((uint8_t *)tn_tensor_data(here))[i], i < BY ? i : i - BY);
    tn_tensor *tensors[] = {whole, low, high, here};
    for (int i = 0; i < 4; i++)
        tn_tensor_unref(tensors[i]);
    end();
}

/* What is given to another context is not waited for. */
TN_TEST(a_stream_of_another_context_is_refused)
{
    gpu_need_cuda("HIP has no contexts");
    CUcontext other;
    gpu_need_fake();
    begin(NULL);
    tn_tensor *there = gpu_tensor(domain, BYTES, 1), *target = make(BYTES);
    CUstream ours = gpu_stream(NULL);
    assert_int_equal(gpu_fake.context_create(&other, 0), 0);
    CUstream others = gpu_stream(other);
    TN_CHECK_OK(tn_tensor_copy_on(target, there, ours));
    assert_int_equal(tn_tensor_copy_on(target, there, others), TN_ERR_INVALID);
    gpu_stream_end(others, other);
    gpu_fake.context_destroy(other);
    tn_tensor_unref(there);
    tn_tensor_unref(target);
    gpu_stream_end(ours, NULL);
    end();
}

/* The copy runs on the other device, and nobody waits: the source is given back after it. */
TN_TEST(a_source_is_released_after_a_copy_to_another_device)
{
    gpu_need_cuda("HIP waits for the stream before a tensor is handed on");
    gpu_need_fake();
    begin(&(struct fake_options){.device_count = 2});
    tn_tensor *source = gpu_tensor(domain, BYTES, 1), *target;
    TN_CHECK_OK(tn_tensor_to(domain, source, gpu_1, NULL, &target));
    gpu_hold(1);
    TN_CHECK_OK(tn_tensor_copy_on(target, source, NULL));
    uint64_t before = gpu_fake.calls("cuCtxSynchronize");
    const void *at = source->storage->data;
    tn_tensor_unref(source);
    tn_tensor *others[BLOCKS] = {make(BYTES), make(BYTES)};
    for (int i = 0; i < BLOCKS; i++)
        assert_ptr_not_equal(others[i]->storage->data, at);
    assert_int_equal(gpu_fake.calls("cuCtxSynchronize"), before);
    gpu_go_on(1);
    gpu_expect(domain, target, 1);
    source = make(BYTES);
    assert_ptr_equal(source->storage->data, at);
    tn_tensor *tensors[] = {source, target, others[0], others[1]};
    for (int i = 0; i < 4; i++)
        tn_tensor_unref(tensors[i]);
    end();
}

TN_TEST(a_copy_between_devices_comes_after_the_work_of_the_source)
{
    gpu_need_fake();
    begin(&(struct fake_options){.device_count = 2, .delays = true});
    for (int i = 0; i < 20; i++) {
        tn_tensor *source = gpu_tensor(domain, BYTES, 1), *target;
        gpu_kernel_fill(source, 3);
        TN_CHECK_OK(tn_tensor_to(domain, source, gpu_1, NULL, &target));
        gpu_expect(domain, target, 3);
        tn_tensor_unref(source);
        tn_tensor_unref(target);
    }
    end();
}

/* ---- failing calls ----------------------------------------------------------------------- */

/* Transpose, from the host to the device by a buffer, and on the device by a call for a row. */
static int transpose(tn_tensor *there, tn_tensor *here)
{
    const int64_t shape[] = {40, 4000}, across[] = {1, 40};
    tn_tensor *views[3] = {0};
    int status = tn_tensor_view(there, TN_UINT8, 2, shape, NULL, 0, &views[0]);
    if (status == 0)
        status = tn_tensor_view(there, TN_UINT8, 2, shape, across, BYTES / 2, &views[1]);
    if (status == 0)
        status = tn_tensor_view(here, TN_UINT8, 2, shape, across, 0, &views[2]);
    if (status == 0)
        status = tn_tensor_copy(views[0], views[2]);
    if (status == 0)
        status = tn_tensor_copy(views[0], views[1]);
    for (int i = 0; i < 3; i++)
        tn_tensor_unref(views[i]);
    return status;
}

/* Each operation in turn, on memory of its own. @return the first failure */
static int try_all(void)
{
    tn_tensor *t[4] = {0};
    tn_tensor_options options = {.struct_size = sizeof options, .device = gpu_0};
    int status = tn_tensor_create(domain, TN_UINT8, 1, (int64_t[]){BYTES}, &options, &t[0]);
    if (status == 0)
        status = tn_tensor_create(domain, TN_UINT8, 1, (int64_t[]){SLAB}, &options, &t[1]);
    if (status == 0)
        status = tn_queue_push_tensor(queue, t[0], 0, TN_NOW);
    t[0] = tn_tensor_unref(t[0]);
    if (status == 0)
        status = tn_queue_pop_tensor(queue, TN_NOW, &t[0]);
    if (status == 0)
        status = tn_tensor_to(domain, t[0], gpu_cpu, NULL, &t[2]);
    if (status == 0)
        status = tn_tensor_copy(t[0], t[2]);
    if (status == 0)
        status = transpose(t[0], t[2]);
    if (status == 0)
        status = tn_tensor_record(t[0], NULL);
    if (status == 0)
        status = tn_tensor_wait(t[0], NULL);
    if (status == 0)
        status = tn_tensor_pin(t[2]);
    if (status == 0)
        status = tn_tensor_to(domain, t[2], gpu_0, NULL, &t[3]);
    if (status == 0)
        status = tn_tensor_unpin(t[2]);
    for (int i = 0; i < 4; i++)
        tn_tensor_unref(t[i]);
    tn_message m; /* what a pop that failed left in the queue */
    while (tn_queue_count(queue) > 0 && tn_queue_pop(queue, TN_NOW, &m) == 0)
        tn_message_fini(&m);
    int trimmed = tn_domain_trim(domain, 0, NULL);
    return status != 0 ? status : trimmed;
}

struct failure {
    unsigned nth;
    CUresult code;
    bool *has_ended; /* shared with the child: no call was the n-th one */
};

static int fail_at(void *argument)
{
    const struct failure *f = argument;
    if (f->code == CUDA_ERROR_UNKNOWN) /* a driver that does not start so is not asked again */
        assert_int_equal(tn_device_count(gpu_type), 1);
    uint64_t before = gpu_fake.calls(NULL);
    gpu_fake.fail_nth(NULL, f->nth, f->code);
    (void)!try_all();
    *f->has_ended = gpu_fake.calls(NULL) - before < f->nth;
    if (!*f->has_ended)
        TN_CHECK_OK(try_all());
    TNT_AUDIT(domain);
    tn_domain_close(domain);
    gpu_fake.detach(); /* a call that fails to free something leaves it to the process */
    return 0;
}

static void fail_each_call_with(CUresult code)
{
    enum { MOST = 1000 };
    gpu_need_fake();
    bool *has_ended = mmap(NULL, 1, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(has_ended, MAP_FAILED);
    unsigned nth = 1, every = tnt_is_full() ? 1 : 3;
    for (nth += (unsigned)tnt_random_below(every); nth < MOST; nth += every) {
        struct failure failure = {nth, code, has_ended};
        begin(&(struct fake_options){.no_races = true});
        tnt_wait_ok(tnt_fork(fail_at, &failure));
        gpu_fake.forgive();
        end();
        if (*has_ended)
            break;
    }
    assert_true(*has_ended);
    tnt_note("%u calls of the driver", nth);
    munmap(has_ended, 1);
}

TN_TEST_WITHIN(nothing_is_lost_where_the_driver_has_no_memory, 120)
{
    fail_each_call_with(CUDA_ERROR_OUT_OF_MEMORY);
}

TN_TEST_WITHIN(nothing_is_lost_where_the_driver_fails, 120)
{
    fail_each_call_with(CUDA_ERROR_UNKNOWN);
}

/* ---- memory that other processes have mapped --------------------------------------------- */

static int wait_with_mapped_slabs(void *unused)
{
    (void)unused;
    tn_tensor *tensors[6], *told;
    for (int i = 0; i < 6; i++)
        tensors[i] = make(BYTES);
    for (int i = 0; i < 6; i++)
        tn_tensor_unref(tensors[i]);
    tnt_signal(&ready);
    TN_CHECK_OK(tn_queue_pop_tensor(queue, tnt_deadline(30000), &told));
    tn_tensor_unref(told);
    tn_domain_close(domain);
    return 0;
}

/* A process that waits in a call unmaps the slabs that others have ended. */
TN_TEST(who_waits_gives_up_memory_that_it_does_not_use)
{
    gpu_need_fake();
    begin(&(struct fake_options){.memory_bytes = 4 * SLAB, .no_races = true});
    pid_t pid = tnt_fork(wait_with_mapped_slabs, NULL);
    tnt_await(&ready);
    tn_tensor *large, *here;
    const tn_tensor_options options = {
        .struct_size = sizeof options, .device = gpu_0, .deadline = tnt_deadline(20000)};
    TN_CHECK_OK(tn_tensor_create(domain, TN_UINT8, 1, (int64_t[]){3 * SLAB}, &options, &large));
    TN_CHECK_OK(tn_tensor_create(domain, TN_UINT8, 1, (int64_t[]){1}, NULL, &here));
    TN_CHECK_OK(tn_queue_push_tensor(queue, here, TN_PUSH_MOVE, TN_NOW));
    tnt_wait_ok(pid);
    tn_tensor_unref(large);
    end();
}

static int trim(void *unused)
{
    (void)unused;
    TN_CHECK_OK(tn_domain_trim(domain, 0, NULL));
    tn_domain_close(domain);
    return 0;
}

TN_TEST(a_slab_that_others_ended_is_unmapped_by_the_next_call)
{
    gpu_need_fake();
    begin(NULL);
    tn_tensor_unref(make(BYTES));
    assert_int_equal(gpu_used(), SLAB);
    tnt_wait_ok(tnt_fork(trim, NULL));
    tn_tensor *large = make(SLAB);
    gpu_await_used(NULL, SLAB);
    tn_tensor_unref(large);
    end();
}

/* The number of a slab that another process has ended is used for other objects. */
TN_TEST(a_slab_that_others_ended_is_unmapped_if_its_number_is_used)
{
    enum { MOST = 2000 };
    const tn_tensor_options options = {.struct_size = sizeof options,
                                       .strategy = TN_STRATEGY_FILE_DESCRIPTOR};
    static tn_tensor *objects[MOST];
    uint32_t count = 0;
    int status = 0;
    gpu_need_fake();
    begin_with_blocks(NULL, FEW_BLOCKS);
    tn_tensor_unref(make(BYTES));
    tnt_wait_ok(tnt_fork(trim, NULL));
    while (count < MOST && (status = tn_tensor_create(domain, TN_UINT8, 1, (int64_t[]){1},
                                                      &options, &objects[count])) == 0)
        count++;
    assert_int_equal(status, TN_ERR_FULL); /* each number is used now */
    while (count > 0)
        tn_tensor_unref(objects[--count]);
    end(); /* a mapping that was lost is a complaint of the fake */
}

TN_TEST(without_tenond_a_tensor_on_a_device_is_not_pushed)
{
    const tn_domain_options options = {.struct_size = sizeof options,
                                       .flags = TN_DOMAIN_NO_MANAGER};
    uint8_t handle[TN_HANDLE_MAX_BYTES];
    size_t handle_bytes;
    begin(NULL);
    tn_domain *alone = tnt_domain(&options);
    tn_queue *its;
    TN_CHECK_OK(tn_queue_open(alone, NULL, NULL, 0, &its));
    tn_tensor *tensor = gpu_tensor(alone, BYTES, 1);
    assert_int_equal(tn_queue_push_tensor(its, tensor, 0, TN_NOW), TN_ERR_UNSUPPORTED);
    assert_int_equal(tn_handle_export(tensor, NULL, handle, sizeof handle, &handle_bytes),
                     TN_ERR_UNSUPPORTED);
    assert_int_equal(tn_queue_count(its), 0);
    tn_tensor_unref(tensor);
    tn_object_close(its);
    tn_domain_close(alone);
    end();
}
