/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work of one process's streams that comes after work of another's, without a wait of the
 * processor. The fake finds a race where the order is missing.
 */
#include "gpu/gpu.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tensor/tensor.h"

enum { BYTES = 4096, LARGE = 2 << 20, SLAB = 2 * LARGE, SECOND_MS = 1000 };

static tn_domain *domain;
static tn_queue *queue, *back;
static struct tnt_signal ready, go;

static void begin(const struct fake_options *fake)
{
    const tn_domain_options options = {.struct_size = sizeof options,
                                       .device_slab_bytes = SLAB};
    gpu_begin(fake);
    domain = tnt_domain(&options);
    TN_CHECK_OK(tn_queue_open(domain, NULL, NULL, 0, &queue));
    TN_CHECK_OK(tn_queue_open(domain, NULL, NULL, 0, &back));
    ready = tnt_signal_open();
    go = tnt_signal_open();
}

static void end(void)
{
    tn_object_close(queue);
    tn_object_close(back);
    TN_CHECK_OK(tn_domain_reap(domain, NULL));
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

/* Streams are of a context that the domain keeps from the first tensor on. */
static CUstream new_stream(void)
{
    tn_tensor_unref(make(BYTES));
    return gpu_stream(NULL);
}

/* How often this process has waited for its devices. */
static uint64_t waits(void)
{
    return gpu_fake.calls("cuStreamSynchronize") + gpu_fake.calls("cuCtxSynchronize");
}

static void fill(CUstream stream, const tn_tensor *tensor, uint8_t value)
{
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)tn_tensor_data(tensor);
    assert_int_equal(gpu_fake.kernel_fill(stream, at, (size_t)tn_tensor_count(tensor), value),
                     0);
}

static void copy(CUstream stream, const tn_tensor *target, const tn_tensor *source)
{
    assert_int_equal(gpu_fake.kernel_copy(stream,
                                          (CUdeviceptr)(uintptr_t)tn_tensor_data(target),
                                          (CUdeviceptr)(uintptr_t)tn_tensor_data(source),
                                          (size_t)tn_tensor_count(target)),
                     0);
}

static uint64_t token_of(const tn_tensor *tensor)
{
    return atomic_load(&tensor->storage->ready);
}

/* If the library looked at the word and gave the stream nothing, the fake learns that here. */
static int wait_for(const tn_tensor *tensor, CUstream stream)
{
    uint64_t before = gpu_fake.calls("cuStreamWaitValue64_v2"), token = token_of(tensor);
    int status = tn_tensor_wait(tensor, stream);
    if (token != 0 && gpu_fake.calls("cuStreamWaitValue64_v2") == before)
        gpu_fake.value_seen(
            (void *)(uintptr_t)tni_value_at(&domain->segment, tni_token_timeline(token)));
    return status;
}

static void push(tn_tensor *tensor, uint32_t flags)
{
    TN_CHECK_OK(tn_queue_push_tensor(queue, tensor, flags, tnt_deadline(10 * SECOND_MS)));
}

static tn_tensor *pop(tn_queue *from)
{
    tn_tensor *tensor;
    TN_CHECK_OK(tn_queue_pop_tensor(from, tnt_deadline(10 * SECOND_MS), &tensor));
    return tensor;
}

static bool is_incomplete(const tn_tensor *tensor)
{
    tn_tensor_info info = {.struct_size = sizeof info};
    TN_CHECK_OK(tn_tensor_get_info(tensor, &info));
    return info.is_incomplete;
}

/* ---- there and back ---------------------------------------------------------------------- */

enum { ROUNDS = 30, STREAMS = 3 };

/* Each round writes a tensor on some stream, and has the other process do something with it. */
static int produce(void *unused)
{
    CUstream streams[STREAMS];
    (void)unused;
    for (int i = 0; i < STREAMS; i++)
        streams[i] = new_stream();
    uint64_t before = waits();
    for (int i = 0; i < ROUNDS; i++) {
        CUstream stream = streams[tnt_random_below(STREAMS)];
        tn_tensor *tensor = i < STREAMS ? make(BYTES) : pop(back);
        TN_CHECK_OK(wait_for(tensor, stream));
        fill(stream, tensor, (uint8_t)(i + 1));
        TN_CHECK_OK(tn_tensor_record(tensor, stream));
        push(tensor, i % 2 == 0 ? TN_PUSH_MOVE : 0);
        if (i % 2 != 0)
            tn_tensor_unref(tensor);
    }
    assert_int_equal(waits(), before);
    for (int i = 0; i < STREAMS; i++)
        tn_tensor_unref(pop(back));
    for (int i = 0; i < STREAMS; i++)
        gpu_stream_end(streams[i], NULL);
    tn_domain_close(domain);
    return 0;
}

/* Copies what comes to memory of its own, and gives it back. */
static int consume(void *waits_for_it)
{
    tn_tensor *kept[ROUNDS];
    CUstream streams[STREAMS];
    for (int i = 0; i < ROUNDS; i++)
        kept[i] = make(BYTES);
    for (int i = 0; i < STREAMS; i++)
        streams[i] = gpu_stream(NULL);
    uint64_t before = waits();
    for (int i = 0; i < ROUNDS; i++) {
        CUstream stream = streams[tnt_random_below(STREAMS)];
        tn_tensor *tensor = pop(queue);
        if (waits_for_it != NULL)
            TN_CHECK_OK(wait_for(tensor, stream));
        copy(stream, kept[i], tensor);
        TN_CHECK_OK(tn_tensor_record(tensor, stream));
        TN_CHECK_OK(tn_tensor_record(kept[i], stream));
        TN_CHECK_OK(tn_queue_push_tensor(back, tensor, TN_PUSH_MOVE, TN_NOW));
    }
    assert_int_equal(waits(), before);
    for (int i = 0; i < ROUNDS; i++) {
        if (waits_for_it != NULL)
            gpu_expect(domain, kept[i], (uint8_t)(i + 1));
        tn_tensor_unref(kept[i]);
    }
    for (int i = 0; i < STREAMS; i++)
        gpu_stream_end(streams[i], NULL);
    tn_domain_close(domain);
    return 0;
}

/* @return how many races and other complaints there were */
static int run_both(void *is_right)
{
    begin(&(struct fake_options){.delays = true, .seed = tnt_random()});
    pid_t pids[2] = {tnt_fork(produce, &domain), tnt_fork(consume, is_right)};
    for (int i = 0; i < 2; i++)
        tnt_wait_ok(pids[i]);
    int races = is_right == NULL ? gpu_fake.forgive() : 0;
    end();
    return races;
}

TN_TEST_WITHIN(streams_of_two_processes_have_an_order_without_a_wait, 120)
{
    int times = tnt_is_full() ? 300 : 6;
    gpu_need_fake();
    for (int i = 0; i < times; i++)
        run_both(&domain);
}

/* The test would see it if the order were missing. */
TN_TEST(a_wait_that_is_left_out_is_a_race)
{
    gpu_need_fake();
    int races = 0;
    for (int i = 0; i < 20 && races == 0; i++)
        races = run_both(NULL);
    assert_int_not_equal(races, 0);
}

static int copy_to_device(void *unused)
{
    (void)unused;
    CUstream stream = new_stream();
    tn_tensor *here, *there;
    TN_CHECK_OK(tn_tensor_create_private(TN_UINT8, 1, (int64_t[]){BYTES}, &here));
    memset(tn_tensor_data(here), 7, BYTES);
    uint64_t before = waits();
    for (int i = 0; i < ROUNDS; i++) {
        TN_CHECK_OK(tn_tensor_to(domain, here, gpu_0, stream, &there));
        push(there, TN_PUSH_MOVE);
    }
    assert_int_equal(waits(), before);
    tn_tensor_unref(here);
    gpu_stream_end(stream, NULL);
    tn_domain_close(domain);
    return 0;
}

/* Who lets tenon copy has nothing to say of the order. */
TN_TEST(copies_by_tenon_have_an_order_of_themselves)
{
    gpu_need_fake();
    begin(&(struct fake_options){.delays = true});
    pid_t pid = tnt_fork(copy_to_device, NULL);
    for (int i = 0; i < ROUNDS; i++) {
        tn_tensor *there = pop(queue);
        uint64_t before = gpu_fake.calls("cuStreamWaitValue64_v2"), token = token_of(there);
        assert_int_not_equal(token, 0);
        tn_tensor *mine = make(BYTES);
        TN_CHECK_OK(tn_tensor_copy_on(mine, there, NULL));
        if (gpu_fake.calls("cuStreamWaitValue64_v2") == before)
            gpu_fake.forgive(); /* the library looked at the word, which the fake cannot know */
        gpu_expect(domain, mine, 7);
        tn_tensor_unref(mine);
        tn_tensor_unref(there);
    }
    tnt_wait_ok(pid);
    gpu_fake.forgive();
    end();
}

/* ---- giving back ------------------------------------------------------------------------- */

/* A slab has two blocks: the memory would be given to one of two others. */
static void expect_kept(const void *at, CUstream stream)
{
    tn_tensor *others[2] = {make(LARGE), make(LARGE)};
    for (int i = 0; i < 2; i++)
        assert_ptr_not_equal(others[i]->storage->data, at);
    gpu_fake.release(stream);
    for (uint64_t until_ns = tnt_until_ns(10 * SECOND_MS); tnt_until_ns(0) < until_ns;) {
        tn_tensor *tensor = make(LARGE);
        bool is_there = tensor->storage->data == at;
        tn_tensor_unref(tensor);
        if (is_there)
            break;
    }
    tn_tensor *tensor = make(LARGE);
    assert_ptr_equal(tensor->storage->data, at);
    tn_tensor_unref(tensor);
    for (int i = 0; i < 2; i++)
        tn_tensor_unref(others[i]);
}

TN_TEST(memory_is_given_back_after_what_was_recorded)
{
    gpu_need_fake();
    begin(NULL);
    tn_tensor *tensor = make(LARGE);
    CUstream stream = gpu_stream(NULL);
    gpu_fake.hold(stream);
    fill(stream, tensor, 1);
    TN_CHECK_OK(tn_tensor_record(tensor, stream));
    uint64_t before = waits();
    const void *at = tensor->storage->data;
    tn_tensor_unref(tensor);
    assert_int_equal(waits(), before);
    expect_kept(at, stream);
    gpu_stream_end(stream, NULL);
    end();
}

/* The message is dropped: what its producer gave the device is not done yet. */
TN_TEST(memory_that_was_moved_away_is_given_back_after_it_was_used)
{
    gpu_need_fake();
    begin(NULL);
    tn_tensor *tensor = make(LARGE), *again;
    CUstream stream = gpu_stream(NULL);
    gpu_fake.hold(stream);
    fill(stream, tensor, 1);
    TN_CHECK_OK(tn_tensor_record(tensor, stream));
    const void *at = tensor->storage->data;
    push(tensor, TN_PUSH_MOVE);
    again = pop(queue);
    tn_tensor_unref(again);
    expect_kept(at, stream);
    gpu_stream_end(stream, NULL);
    end();
}

/* One use comes after the other, if there are more of them than tokens in a storage. */
TN_TEST(memory_that_many_streams_use_is_given_back_after_all)
{
    enum { MANY = 2 * TNI_STORAGE_USES };
    CUstream streams[MANY];
    tn_tensor *targets[MANY];
    gpu_need_fake();
    begin(NULL);
    for (int held = 0; held < MANY; held++) {
        tn_tensor *source = gpu_tensor(domain, LARGE, 1);
        for (int i = 0; i < MANY; i++) {
            streams[i] = gpu_stream(NULL);
            targets[i] = make(LARGE);
        }
        gpu_fake.hold(streams[held]);
        for (int i = 0; i < MANY; i++)
            TN_CHECK_OK(tn_tensor_copy_on(targets[i], source, streams[i]));
        const void *at = source->storage->data;
        tn_tensor_unref(source);
        expect_kept(at, streams[held]);
        for (int i = 0; i < MANY; i++) {
            gpu_expect(domain, targets[i], 1);
            tn_tensor_unref(targets[i]);
            gpu_stream_end(streams[i], NULL);
        }
    }
    end();
}

/* The card is full of memory that a device still uses: the call waits rather than fail. */
TN_TEST(a_call_that_lacks_memory_waits_for_what_was_given_back)
{
    gpu_need_fake();
    begin(&(struct fake_options){.memory_bytes = SLAB, .delays = true});
    CUstream stream = new_stream();
    for (int i = 0; i < 20; i++) {
        tn_tensor *tensors[2] = {make(LARGE), make(LARGE)};
        for (int k = 0; k < 2; k++) {
            fill(stream, tensors[k], 1);
            TN_CHECK_OK(tn_tensor_record(tensors[k], stream));
            tn_tensor_unref(tensors[k]);
        }
    }
    gpu_stream_end(stream, NULL);
    end();
}

/* ---- deaths ------------------------------------------------------------------------------ */

/* Its stream has done nothing when it is killed. */
static int record_and_die(void *unused)
{
    (void)unused;
    tn_tensor *tensor = make(BYTES);
    CUstream stream = gpu_stream(NULL);
    gpu_fake.hold(stream);
    fill(stream, tensor, 9);
    TN_CHECK_OK(tn_tensor_record(tensor, stream));
    push(tensor, TN_PUSH_MOVE);
    tnt_signal(&ready);
    pause();
    return 1;
}

static void expect_incomplete(tn_tensor *tensor, pid_t pid)
{
    assert_true(is_incomplete(tensor));
    assert_int_equal(tn_tensor_sync(tensor, TN_NOW), TN_ERR_PEER_DIED);
    char text[64];
    snprintf(text, sizeof text, "process %d died", (int)pid);
    assert_non_null(strstr(tn_error_detail(), text));
    assert_int_equal(tn_tensor_wait(tensor, NULL), TN_ERR_PEER_DIED);
}

TN_TEST(a_stream_that_waits_for_the_dead_goes_on)
{
    gpu_need_fake();
    begin(&(struct fake_options){.no_races = true});
    pid_t pid = tnt_fork(record_and_die, NULL);
    tnt_await(&ready);
    tn_tensor *tensor = pop(queue), *mine = make(BYTES);
    CUstream stream = gpu_stream(NULL);
    TN_CHECK_OK(tn_tensor_wait(tensor, stream));
    fill(stream, mine, 3);
    TN_CHECK_OK(tn_tensor_record(mine, stream));
    assert_false(is_incomplete(tensor));
    assert_int_equal(tn_tensor_sync(tensor, tnt_deadline(10)), TN_ERR_TIMED_OUT);
    tnt_kill(pid);
    TN_CHECK_OK(tn_tensor_sync(mine, tnt_deadline(20 * SECOND_MS)));
    gpu_expect(domain, mine, 3);
    expect_incomplete(tensor, pid);
    assert_int_equal(tn_tensor_copy(mine, tensor), TN_ERR_PEER_DIED);
    /* Who writes all of it completes it. */
    TN_CHECK_OK(tn_tensor_copy(tensor, mine));
    assert_false(is_incomplete(tensor));
    gpu_expect(domain, tensor, 3);
    tn_tensor_unref(tensor);
    tn_tensor_unref(mine);
    gpu_stream_end(stream, NULL);
    end();
}

TN_TEST(a_wait_of_the_processor_ends_with_the_producer)
{
    gpu_need_fake();
    begin(&(struct fake_options){.no_races = true});
    pid_t pid = tnt_fork(record_and_die, NULL);
    tnt_await(&ready);
    tn_tensor *tensor = pop(queue);
    tnt_kill(pid);
    assert_int_equal(tn_tensor_sync(tensor, tnt_deadline(20 * SECOND_MS)), TN_ERR_PEER_DIED);
    expect_incomplete(tensor, pid);
    /* A later message says so, too. */
    push(tensor, 0);
    tn_tensor *again = pop(queue);
    assert_true(is_incomplete(again));
    tn_tensor_unref(again);
    tn_tensor_unref(tensor);
    end();
}

static int record_and_leave(void *unused)
{
    (void)unused;
    CUstream stream = new_stream();
    tn_tensor *tensor = make(BYTES);
    fill(stream, tensor, 5);
    TN_CHECK_OK(tn_tensor_record(tensor, stream));
    push(tensor, TN_PUSH_MOVE);
    gpu_stream_end(stream, NULL);
    tn_domain_close(domain);
    return 0;
}

/* Whoever has the timeline next goes on from the last number. */
TN_TEST(timelines_are_used_again)
{
    enum { TIMES = 12 };
    tn_tensor *whole[TIMES], *broken[TIMES];
    pid_t pids[TIMES];
    gpu_need_fake();
    begin(&(struct fake_options){.no_races = true});
    for (int i = 0; i < TIMES; i++) {
        pids[i] = tnt_fork(record_and_die, NULL);
        tnt_await(&ready);
        tnt_kill(pids[i]);
        while (tn_domain_reap(domain, NULL) != 0 || tni_timeline_limit(&domain->segment) == 0)
            tni_os_back_off(0);
        tnt_wait_ok(tnt_fork(record_and_leave, NULL));
    }
    for (int i = 0; i < TIMES; i++) {
        broken[i] = pop(queue);
        whole[i] = pop(queue);
        expect_incomplete(broken[i], pids[i]);
        TN_CHECK_OK(tn_tensor_sync(whole[i], TN_NOW));
        gpu_expect(domain, whole[i], 5);
        tn_tensor_unref(whole[i]);
        tn_tensor_unref(broken[i]);
    }
    /* A timeline with as many losses as it remembers is taken only if there is no other. */
    assert_in_range(atomic_load(&domain->segment.header->timeline_limit), TIMES / TNI_LOSSES,
                    TIMES / TNI_LOSSES + 2);
    end();
}

static int record_once(void *unused)
{
    (void)unused;
    CUstream stream = new_stream();
    tn_tensor *tensor = make(BYTES);
    fill(stream, tensor, 5);
    TN_CHECK_OK(tn_tensor_record(tensor, stream));
    tn_tensor_unref(tensor);
    gpu_stream_end(stream, NULL);
    tn_domain_close(domain);
    return 0;
}

/* Nobody waits for a number that the dead did not write, and the timeline is free. */
static void expect_settled(void)
{
    const struct tni_segment *s = &domain->segment;
    while (tn_domain_reap(domain, NULL) != 0)
        tni_os_back_off(0);
    assert_int_equal(tni_timeline_limit(s), 1);
    for (uint64_t until_ns = tnt_until_ns(20 * SECOND_MS);
         atomic_load(&tni_timeline_at(s, 0)->owner) != 0;) { /* while tenond does it */
        assert_true(tnt_until_ns(0) < until_ns);
        tni_os_back_off(0);
    }
    assert_true(atomic_load(&tni_timeline_at(s, 0)->issued) == atomic_load(tni_value_at(s, 0)));
    TNT_AUDIT(domain);
}

TN_TEST(a_death_at_each_step_of_a_signal_is_repaired)
{
    static const char *const points[] = {"timeline_taken", "timeline_issued",
                                         "timeline_signalled", "timeline_settled"};
    gpu_need_fake();
    begin(&(struct fake_options){.no_races = true});
    for (size_t i = 0; i < TNI_COUNT(points); i++) {
        assert_true(tnt_kill_at(points[i], 1, record_once, NULL));
        expect_settled();
    }
    tnt_wait_ok(tnt_fork(record_once, NULL));
    end();
}

static int record_alone_and_die(void *unused)
{
    (void)unused;
    CUstream stream = new_stream();
    gpu_fake.hold(stream);
    tn_tensor *tensor = make(BYTES);
    fill(stream, tensor, 5);
    TN_CHECK_OK(tn_tensor_record(tensor, stream));
    kill(getpid(), SIGKILL);
    return 1;
}

static int reap(void *unused)
{
    (void)unused;
    TN_CHECK_OK(tn_domain_reap(domain, NULL));
    tn_domain_close(domain);
    return 0;
}

/* There is no tenond: the process that is killed is the one that reclaims. */
TN_TEST(a_death_in_the_middle_of_settling_is_repaired)
{
    static const char *const points[] = {"timeline_loss_noted", "timeline_settled",
                                         "reclaim_timelines_settled"};
    const tn_domain_options options = {.struct_size = sizeof options,
                                       .flags = TN_DOMAIN_NO_MANAGER};
    gpu_need_fake();
    begin(&(struct fake_options){.no_races = true});
    tn_domain *with_tenond = domain;
    domain = tnt_domain(&options);
    for (size_t i = 0; i < TNI_COUNT(points); i++) {
        tnt_wait(tnt_fork(record_alone_and_die, NULL));
        assert_true(tnt_kill_at(points[i], 1, reap, NULL));
        expect_settled();
        assert_int_equal(atomic_load(&tni_timeline_at(&domain->segment, 0)->losses), i + 1);
    }
    tn_domain_close(domain);
    domain = with_tenond;
    end();
}

/* ---- many, and wrong ones ---------------------------------------------------------------- */

TN_TEST(more_streams_than_timelines_have_an_order)
{
    enum { MANY = TNI_LINES + 20 };
    static CUstream streams[MANY];
    static tn_tensor *tensors[MANY];
    gpu_need_fake();
    begin(&(struct fake_options){.delays = true});
    for (int i = 0; i < MANY; i++) {
        tensors[i] = make(BYTES);
        streams[i] = gpu_stream(NULL);
    }
    uint64_t before = waits();
    for (int i = 0; i < MANY; i++) {
        fill(streams[i], tensors[i], (uint8_t)i);
        TN_CHECK_OK(tn_tensor_record(tensors[i], streams[i]));
    }
    assert_int_equal(waits(), before);
    assert_int_equal(tni_order_part(domain)->line_count, TNI_LINES);
    for (int i = MANY; i-- > 0;) {
        tn_tensor *mine = make(BYTES);
        TN_CHECK_OK(tn_tensor_wait(tensors[i], streams[0]));
        copy(streams[0], mine, tensors[i]);
        TN_CHECK_OK(tn_tensor_record(mine, streams[0]));
        TN_CHECK_OK(tn_tensor_sync(mine, tnt_deadline(20 * SECOND_MS)));
        gpu_expect(domain, mine, (uint8_t)i);
        tn_tensor_unref(mine);
        tn_tensor_unref(tensors[i]);
    }
    for (int i = 0; i < MANY; i++)
        gpu_stream_end(streams[i], NULL);
    end();
}

/* Without a timeline, record() waits. */
TN_TEST(a_process_without_a_timeline_waits)
{
    gpu_need_fake();
    begin(&(struct fake_options){.delays = true});
    const struct tni_segment *s = &domain->segment;
    tn_tensor *tensor = make(BYTES);
    CUstream stream = gpu_stream(NULL);
    for (uint32_t i = 0; i < TNI_TIMELINES; i++)
        atomic_store(&tni_timeline_at(s, i)->owner, TNI_TIMELINE_RETIRED);
    uint64_t before = gpu_fake.calls("cuStreamSynchronize");
    fill(stream, tensor, 6);
    TN_CHECK_OK(tn_tensor_record(tensor, stream));
    assert_int_equal(gpu_fake.calls("cuStreamSynchronize"), before + 1);
    assert_int_equal(token_of(tensor), 0);
    gpu_expect(domain, tensor, 6);
    tn_tensor_unref(tensor);
    gpu_stream_end(stream, NULL);
    end();
}

TN_TEST(a_driver_without_words_waits)
{
    gpu_need_fake();
    begin(&(struct fake_options){.delays = true, .without = FAKE_NO_MEM_OPS});
    tn_tensor *tensor = make(BYTES);
    CUstream stream = gpu_stream(NULL);
    uint64_t before = gpu_fake.calls("cuStreamSynchronize");
    fill(stream, tensor, 6);
    TN_CHECK_OK(tn_tensor_record(tensor, stream));
    assert_int_equal(gpu_fake.calls("cuStreamSynchronize"), before + 1);
    assert_int_equal(token_of(tensor), 0);
    TN_CHECK_OK(tn_tensor_wait(tensor, stream));
    TN_CHECK_OK(tn_tensor_sync(tensor, TN_NOW));
    gpu_expect(domain, tensor, 6);
    tn_tensor_unref(tensor);
    gpu_stream_end(stream, NULL);
    end();
}

TN_TEST(a_forged_token_is_refused)
{
    const uint64_t forged[] = {1,
                               tni_token_make(0, 0),
                               tni_token_make(0, 1),
                               tni_token_make(TNI_TIMELINES - 1, 1),
                               tni_token_make(TNI_TIMELINES, 1),
                               tni_token_make(4094, 1),
                               UINT64_MAX};
    gpu_need_fake();
    begin(NULL);
    for (size_t i = 0; i < TNI_COUNT(forged); i++) {
        tn_tensor *tensor = gpu_tensor(domain, BYTES, 1), *popped;
        atomic_store(&tensor->storage->ready, forged[i]);
        push(tensor, 0);
        assert_int_equal(tn_queue_pop_tensor(queue, TN_NOW, &popped), TN_ERR_CORRUPT);
        atomic_store(&tensor->storage->ready, 0);
        tn_tensor_unref(tensor);
    }
    end();
}

static int push_in_order(void *unused)
{
    (void)unused;
    CUstream stream = new_stream();
    TN_CHECK_OK(tn_queue_set_stream(queue, gpu_0, stream));
    uint64_t before = waits();
    for (int i = 0; i < ROUNDS; i++) {
        tn_tensor *tensors[2] = {make(BYTES), make(BYTES)};
        for (int k = 0; k < 2; k++)
            fill(stream, tensors[k], (uint8_t)i);
        if (i % 2 == 0) {
            const tn_message message = {.tensors = tensors, .tensor_count = 2};
            TN_CHECK_OK(
                tn_queue_push(queue, &message, TN_PUSH_MOVE, tnt_deadline(10 * SECOND_MS)));
            continue;
        }
        for (int k = 0; k < 2; k++)
            push(tensors[k], TN_PUSH_MOVE);
    }
    assert_int_equal(waits(), before);
    TN_CHECK_OK(tn_queue_set_stream(queue, (tn_device){0, 0}, NULL));
    gpu_stream_end(stream, NULL);
    tn_domain_close(domain);
    return 0;
}

static void take_in_order(CUstream stream, tn_tensor *tensor, int value)
{
    tn_tensor *mine = make(BYTES);
    assert_int_not_equal(token_of(tensor), 0);
    copy(stream, mine, tensor);
    TN_CHECK_OK(tn_tensor_record(tensor, stream));
    TN_CHECK_OK(tn_tensor_record(mine, stream));
    gpu_expect(domain, mine, (uint8_t)value);
    tn_tensor_unref(mine);
    tn_tensor_unref(tensor);
}

TN_TEST(messages_follow_the_stream_of_a_queue)
{
    gpu_need_fake();
    begin(&(struct fake_options){.delays = true, .no_races = true});
    pid_t pid = tnt_fork(push_in_order, NULL);
    CUstream stream = new_stream();
    TN_CHECK_OK(tn_queue_set_stream(queue, gpu_0, stream));
    for (int i = 0; i < ROUNDS; i++) {
        tn_message m;
        if (i % 2 == 0) {
            TN_CHECK_OK(tn_queue_pop(queue, tnt_deadline(10 * SECOND_MS), &m));
            assert_int_equal(m.tensor_count, 2);
            for (int k = 0; k < 2; k++) {
                take_in_order(stream, m.tensors[k], i);
                m.tensors[k] = NULL;
            }
            tn_message_fini(&m);
            continue;
        }
        for (int k = 0; k < 2; k++)
            take_in_order(stream, pop(queue), i);
    }
    tnt_wait_ok(pid);
    tn_tensor *tensor = make(BYTES), *popped;
    push(tensor, 0);
    gpu_fake.capture(stream, true);
    assert_int_equal(tn_queue_push_tensor(queue, tensor, 0, TN_NOW), TN_ERR_INVALID);
    assert_int_equal(tn_queue_pop_tensor(queue, TN_NOW, &popped), TN_ERR_INVALID);
    assert_int_equal(tn_queue_count(queue), 1);
    gpu_fake.capture(stream, false);
    tn_tensor_unref(pop(queue));
    assert_int_equal(tn_queue_set_stream(queue, gpu_cpu, NULL), TN_ERR_UNSUPPORTED);
    assert_int_equal(tn_queue_set_stream(queue, (tn_device){gpu_type, 7}, NULL),
                     TN_ERR_NOT_FOUND);
    assert_int_equal(tn_queue_set_stream(NULL, gpu_0, NULL), TN_ERR_INVALID);
    tn_tensor_unref(tensor);
    gpu_stream_end(stream, NULL);
    end();
}

TN_TEST(streams_that_cannot_be_ordered_are_refused)
{
    CUcontext other;
    gpu_need_fake();
    begin(NULL);
    tn_tensor *there = make(BYTES), *here;
    TN_CHECK_OK(tn_tensor_create_private(TN_UINT8, 1, (int64_t[]){BYTES}, &here));
    CUstream ours = gpu_stream(NULL);
    assert_int_equal(gpu_fake.context_create(&other, 0), 0);
    CUstream others = gpu_stream(other);
    assert_int_equal(tn_tensor_record(there, others), TN_ERR_INVALID);
    gpu_fake.hold(ours);
    TN_CHECK_OK(tn_tensor_record(there, ours));
    assert_int_equal(tn_tensor_wait(there, others), TN_ERR_INVALID);
    gpu_fake.capture(ours, true);
    assert_int_equal(tn_tensor_record(there, ours), TN_ERR_INVALID);
    assert_int_equal(tn_tensor_wait(there, ours), TN_ERR_INVALID);
    assert_int_equal(tn_tensor_copy_on(there, here, ours), TN_ERR_INVALID);
    gpu_fake.capture(ours, false);
    gpu_fake.release(ours);
    assert_int_equal(tn_tensor_record(here, ours), TN_ERR_UNSUPPORTED);
    TN_CHECK_OK(tn_tensor_wait(here, ours));
    TN_CHECK_OK(tn_tensor_sync(here, TN_NOW));
    gpu_stream_end(others, other);
    gpu_fake.context_destroy(other);
    tn_tensor_unref(there);
    tn_tensor_unref(here);
    gpu_stream_end(ours, NULL);
    end();
}

TN_TEST(default_streams_are_ordered)
{
    const uintptr_t numbers[] = {0, 1, 2};
    gpu_need_fake();
    begin(&(struct fake_options){.delays = true});
    CUstream ours = new_stream();
    for (size_t i = 0; i < TNI_COUNT(numbers); i++) {
        CUstream stream = (CUstream)numbers[i];
        tn_tensor *source = gpu_tensor(domain, BYTES, (uint8_t)i), *target = make(BYTES);
        TN_CHECK_OK(tn_tensor_copy_on(target, source, stream));
        TN_CHECK_OK(tn_tensor_wait(target, ours));
        TN_CHECK_OK(tn_tensor_record(target, ours));
        TN_CHECK_OK(tn_tensor_sync(target, tnt_deadline(10 * SECOND_MS)));
        gpu_expect(domain, target, (uint8_t)i);
        tn_tensor_unref(source);
        tn_tensor_unref(target);
    }
    assert_int_equal(tni_order_part(domain)->line_count, 3); /* 0 and 1 are the same one */
    gpu_stream_end(ours, NULL);
    end();
}

static int use_in_child(void *tensor)
{
    assert_int_equal(tn_tensor_record(tensor, NULL), TN_ERR_FORKED);
    assert_int_equal(tn_tensor_wait(tensor, NULL), TN_ERR_FORKED);
    assert_int_equal(tn_tensor_sync(tensor, TN_NOW), TN_ERR_TIMED_OUT);
    tnt_signal(&ready);
    TN_CHECK_OK(tn_tensor_sync(tensor, tnt_deadline(10 * SECOND_MS)));
    TN_CHECK_OK(tn_tensor_wait(tensor, NULL)); /* there is nothing to wait for */
    tn_tensor_unref(tensor);
    tn_domain_close(domain);
    return 0;
}

/* A forked child waits for its parent's streams without the driver. */
TN_TEST(a_forked_child_waits_without_a_stream)
{
    gpu_need_fake();
    begin(NULL);
    tn_tensor *tensor = make(BYTES);
    CUstream stream = gpu_stream(NULL);
    gpu_fake.hold(stream);
    fill(stream, tensor, 1);
    TN_CHECK_OK(tn_tensor_record(tensor, stream));
    pid_t pid = tnt_fork(use_in_child, tensor);
    tnt_await(&ready);
    gpu_fake.release(stream);
    tnt_wait_ok(pid);
    tn_tensor_unref(tensor);
    gpu_stream_end(stream, NULL);
    end();
}
