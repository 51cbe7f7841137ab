/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a device that another library made, shared between processes where it lies. */
#include "gpu/foreign.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <tenon/dlpack.h>
#include <tenon/inspect.h>
#include <unistd.h>

enum { BYTES = 2 << 20, OFFSET = 4096 };

static void begin(void) { begin_with(NULL, NULL); }

/* ---- another library ------------------------------------------------------------------- */

static tn_tensor *share_new(uint8_t value)
{
    return share_part(gpu_memory_make(BYTES, GPU_ALLOCATED), OFFSET, BYTES - OFFSET, value);
}

/* If the library looked at the word and gave the stream nothing, the fake learns that here. */
static void wait_for(const tn_tensor *tensor)
{
    if (gpu_is_real()) {
        TN_CHECK_OK(tn_tensor_wait(tensor, NULL));
        return;
    }
    uint64_t before = gpu_fake.calls("cuStreamWaitValue64_v2");
    uint64_t token = atomic_load(&tensor->storage->ready);
    TN_CHECK_OK(tn_tensor_wait(tensor, NULL));
    if (token != 0 && gpu_fake.calls("cuStreamWaitValue64_v2") == before)
        gpu_fake.value_seen(
            (void *)(uintptr_t)tni_value_at(&domain->segment, tni_token_timeline(token)));
}

/* ---- what is seen ----------------------------------------------------------------------- */

static tn_inspector *inspect(void)
{
    tn_inspector *inspector;
    char id[33];
    for (size_t i = 0; i < 16; i++)
        snprintf(id + 2 * i, 3, "%02x", domain->segment.id[i]);
    TN_CHECK_OK(tn_inspector_open(id, &inspector));
    return inspector;
}

/* What tn_inspect_blocks() says of tensors. */
struct tensors {
    int count, copies;
};

static int count_tensor(const tn_block_entry *block, void *context)
{
    struct tensors *tensors = context;
    bool is_tensor = strcmp(block->kind, "tensor") == 0;
    tensors->count += is_tensor;
    tensors->copies += block->is_copy;
    assert_true(is_tensor || !block->is_copy);
    return 0;
}

static void expect_tensors(int count, int copies)
{
    struct tensors tensors = {0};
    tn_inspector *inspector = inspect();
    TN_CHECK_OK(tn_inspect_blocks(inspector, count_tensor, &tensors));
    tn_inspector_close(inspector);
    assert_int_equal(tensors.count, count);
    assert_int_equal(tensors.copies, copies);
}

/* ---- one process ----------------------------------------------------------------------- */

TN_TEST(memory_of_a_library_is_a_private_tensor_on_its_device)
{
    begin();
    tn_tensor *tensor = wrap(gpu_memory_make(BYTES, GPU_ALLOCATED), 0, BYTES, 7);
    assert_int_equal(tn_tensor_device(tensor).type, gpu_type);
    assert_int_equal(strategy_of(tensor), TN_STRATEGY_DEFAULT);
    assert_int_equal(tn_tensor_record(tensor, NULL), TN_ERR_INVALID);
    gpu_expect(domain, tensor, 7);
    tn_tensor *clone;
    TN_CHECK_OK(tn_tensor_clone(domain, tensor, NULL, &clone));
    gpu_expect(domain, clone, 7);
    tn_tensor_unref(clone);
    tn_tensor_unref(tensor);
    assert_int_equal(gpu_given_back, 1);
    end();
}

TN_TEST(sharing_leaves_the_memory_where_it_is)
{
    begin();
    struct gpu_memory *m = gpu_memory_make(BYTES, GPU_ALLOCATED);
    tn_tensor *tensor = wrap(m, OFFSET, BYTES - OFFSET, 8);
    void *data = tn_tensor_data(tensor);
    TN_CHECK_OK(tn_tensor_share(domain, tensor, NULL));
    assert_ptr_equal(tn_tensor_data(tensor), data);
    assert_int_equal(strategy_of(tensor), TN_STRATEGY_CUDA_IPC);
    expect_tensors(1, 0);
    gpu_expect(domain, tensor, 8);
    gpu_push(queue, tensor);
    tn_tensor *again = gpu_pop(queue);
    assert_ptr_equal(tn_tensor_data(again), data); /* no process opens what is its own */
    tn_tensor_unref(tensor);
    assert_int_equal(gpu_given_back, 0);
    tn_tensor_unref(again);
    await_freed(1);
    end();
}

/* ---- two processes --------------------------------------------------------------------- */

static int consume(void *argument)
{
    int count = *(const int *)argument;
    for (int i = 0; i < count; i++) {
        tn_tensor *tensor = gpu_pop(queue);
        assert_int_equal(strategy_of(tensor), TN_STRATEGY_CUDA_IPC);
        wait_for(tensor);
        gpu_expect(domain, tensor, (uint8_t)(10 + i));
        tn_tensor_unref(tensor);
    }
    if (!gpu_is_real())
        assert_int_equal(gpu_fake.calls("cuIpcOpenMemHandle"), 1);
    tn_domain_close(domain);
    return 0;
}

TN_TEST(a_receiver_opens_an_allocation_once)
{
    int count = 20;
    begin();
    pid_t pid = tnt_fork(consume, &count);
    struct gpu_memory *m = gpu_memory_make(BYTES, GPU_ALLOCATED);
    for (int i = 0; i < count; i++) {
        tn_tensor *tensor = share_part(m, (size_t)i * OFFSET, OFFSET, (uint8_t)(10 + i));
        gpu_push(queue, tensor);
        tn_tensor_unref(tensor);
    }
    tnt_wait_ok(pid);
    await_freed(count);
    end();
}

static int hold(void *unused)
{
    (void)unused;
    tn_tensor *tensor = gpu_pop(queue);
    wait_for(tensor);
    gpu_expect(domain, tensor, 20);
    tnt_signal(&ready);
    tnt_await(&go);
    gpu_expect(domain, tensor, 20);
    tn_tensor_unref(tensor);
    tn_domain_close(domain);
    return 0;
}

TN_TEST(a_library_gets_its_memory_back_when_nobody_has_it)
{
    begin();
    pid_t pid = tnt_fork(hold, NULL);
    tn_tensor *tensor = share_new(20);
    push_and_unref(tensor);
    tnt_await(&ready);
    TN_CHECK_OK(tn_domain_trim(domain, 0, NULL));
    assert_int_equal(gpu_given_back, 0);
    tnt_signal(&go);
    tnt_wait_ok(pid);
    await_freed(1);
    end();
}

/* ---- passing on ------------------------------------------------------------------------ */

static int pass_on(void *argument)
{
    tn_queue *next = argument;
    tn_tensor *tensor = gpu_pop(queue);
    gpu_fake.message_sent(2);
    TN_CHECK_OK(tn_queue_push_tensor(next, tensor, 0, tnt_deadline(10000)));
    tn_tensor_unref(tensor);
    tnt_signal(&ready);
    tn_domain_close(domain);
    return 0;
}

static int take_next(void *argument)
{
    tn_tensor *tensor;
    TN_CHECK_OK(tn_queue_pop_tensor(argument, tnt_deadline(10000), &tensor));
    gpu_fake.message_received(2);
    wait_for(tensor);
    gpu_expect(domain, tensor, 21);
    tn_tensor_unref(tensor);
    tn_domain_close(domain);
    return 0;
}

TN_TEST(a_receiver_passes_the_tensor_on_and_its_maker_is_not_asked)
{
    tn_queue *next;
    gpu_need_fake();
    begin();
    TN_CHECK_OK(tn_queue_open(domain, NULL, NULL, 0, &next));
    pid_t passer = tnt_fork(pass_on, next), taker = tnt_fork(take_next, next);
    tn_tensor *tensor = share_new(21);
    push_and_unref(tensor);
    tnt_wait_ok(passer);
    tnt_wait_ok(taker);
    await_freed(1);
    tn_object_close(next);
    end();
}

TN_TEST(memory_of_the_domain_that_comes_back_is_not_shared_twice)
{
    DLManagedTensorVersioned *managed;
    tn_tensor *again, *part;
    begin();
    tn_tensor *tensor = gpu_tensor(domain, BYTES, 4);
    TN_CHECK_OK(tn_tensor_slice(tensor, 0, OFFSET, BYTES, 1, &part));
    TN_CHECK_OK(tn_tensor_to_dlpack(part, &managed));
    TN_CHECK_OK(tn_tensor_from_dlpack(managed, &again));
    TN_CHECK_OK(tn_tensor_share(domain, again, NULL));
    assert_true(tn_tensor_same_storage(again, tensor));
    assert_ptr_equal(tn_tensor_data(again), tn_tensor_data(part));
    assert_int_equal(strategy_of(again), TN_STRATEGY_CUDA_VMM);
    tn_tensor_unref(tensor);
    tn_tensor_unref(part);
    gpu_expect(domain, again, 4);
    tn_tensor_unref(again);
    end();
}

/* ---- what cannot be shared where it is -------------------------------------------------- */

TN_TEST(memory_for_one_process_is_copied_and_the_copy_is_counted)
{
    begin();
    tn_tensor *tensor = wrap(gpu_memory_make(BYTES, GPU_PRIVATE), OFFSET, BYTES - OFFSET, 9);
    assert_int_equal(atomic_load(&domain->segment.header->foreign_copies), 0);
    TN_CHECK_OK(tn_tensor_share(domain, tensor, NULL));
    assert_int_equal(strategy_of(tensor), TN_STRATEGY_CUDA_VMM);
    tn_domain_stat stat = {.struct_size = sizeof stat};
    tn_inspector *inspector = inspect();
    TN_CHECK_OK(tn_inspect_stat(inspector, &stat));
    tn_inspector_close(inspector);
    assert_int_equal(stat.foreign_copies, 1);
    assert_int_equal(stat.foreign_copied_bytes, BYTES - OFFSET);
    await_freed(1);
    gpu_expect(domain, tensor, 9);
    tn_tensor_unref(tensor);
    end();
}

/* Share memory for one process, and let the copy end. @return its block */
static uint32_t share_and_end(size_t bytes, int given_back)
{
    tn_tensor *copy = wrap(gpu_memory_make(bytes, GPU_PRIVATE), 0, bytes, 9);
    TN_CHECK_OK(tn_tensor_share(domain, copy, NULL));
    uint32_t block = copy->storage->block.id;
    gpu_push(queue, copy);
    tn_tensor_unref(copy);
    expect_tensors(1, 1);
    tn_tensor_unref(gpu_pop(queue));
    await_freed(given_back);
    return block;
}

static tn_tensor *make(size_t bytes)
{
    const int64_t shape[] = {(int64_t)bytes};
    const tn_tensor_options options = {.struct_size = sizeof options, .device = gpu_0};
    tn_tensor *tensor;
    TN_CHECK_OK(tn_tensor_create(domain, TN_UINT8, 1, shape, &options, &tensor));
    return tensor;
}

TN_TEST(a_block_with_a_copy_says_so_until_it_is_used_again)
{
    enum { LARGE = 80 << 20 }; /* it is in no slab */
    begin();
    uint32_t block = share_and_end(BYTES, 1);
    tn_tensor *tensor = make(BYTES);
    assert_int_equal(tensor->storage->block.id, block);
    expect_tensors(1, 0);
    tn_tensor_unref(tensor);
    share_and_end(LARGE, 2);
    tensor = make(LARGE);
    expect_tensors(1, 0);
    tn_tensor_unref(tensor);
    end();
}

TN_TEST(a_copy_comes_after_what_its_stream_was_given)
{
    gpu_need_cuda("HIP waits for the stream before a tensor is handed on");
    gpu_need_fake();
    begin();
    struct gpu_memory *m = gpu_memory_make(BYTES, GPU_PRIVATE);
    tn_tensor *tensor = wrap(m, 0, BYTES, 1);
    CUstream stream = gpu_stream(NULL);
    gpu_stream_wait(NULL);
    gpu_fake.hold(stream);
    gpu_fake.kernel_fill(stream, m->at, BYTES, 77);
    const tn_tensor_options options = {.struct_size = sizeof options, .stream = stream};
    TN_CHECK_OK(tn_tensor_share(domain, tensor, &options));
    TN_CHECK_OK(tn_domain_trim(domain, 0, NULL));
    assert_int_equal(gpu_given_back, 0); /* the copy is not done */
    gpu_fake.release(stream);
    gpu_expect(domain, tensor, 77);
    await_freed(1);
    tn_tensor_unref(tensor);
    gpu_stream_end(stream, NULL);
    end();
}

/* ---- deaths ----------------------------------------------------------------------------- */

static int hold_for_ever(void *unused)
{
    (void)unused;
    tn_tensor *tensor = gpu_pop(queue);
    wait_for(tensor);
    gpu_expect(domain, tensor, 22);
    tnt_signal(&ready);
    pause();
    return 1;
}

TN_TEST(memory_that_a_killed_process_had_open_goes_back)
{
    begin();
    pid_t pid = tnt_fork(hold_for_ever, NULL);
    tn_tensor *tensor = share_new(22);
    push_and_unref(tensor);
    tnt_await(&ready);
    TN_CHECK_OK(tn_domain_trim(domain, 0, NULL));
    assert_int_equal(gpu_given_back, 0);
    tnt_kill(pid);
    await_freed(1);
    end();
}

static int make_and_die(void *unused)
{
    (void)unused;
    tn_tensor *tensor = share_new(23);
    TN_CHECK_OK(tn_tensor_sync(tensor, tnt_deadline(10000)));
    gpu_push(queue, tensor);
    tnt_signal(&ready);
    pause();
    return 1;
}

TN_TEST(a_tensor_that_nobody_opened_is_lost_with_its_maker)
{
    tn_tensor *tensor = NULL;
    begin();
    pid_t pid = tnt_fork(make_and_die, NULL);
    tnt_await(&ready);
    tnt_kill(pid);
    TN_CHECK_OK(tn_domain_reap(domain, NULL));
    assert_int_equal(tn_queue_pop_tensor(queue, tnt_deadline(10000), &tensor),
                     TN_ERR_PEER_DIED);
    assert_non_null(strstr(tn_error_detail(), "has ended"));
    assert_int_not_equal(tn_queue_pop_tensor(queue, TN_NOW, &tensor), 0); /* it is gone */
    end();
}

TN_TEST(a_tensor_that_is_open_is_incomplete_when_its_maker_dies)
{
    begin();
    pid_t pid = tnt_fork(make_and_die, NULL);
    tnt_await(&ready);
    tn_tensor *tensor = gpu_pop(queue), *copy;
    wait_for(tensor);
    gpu_expect(domain, tensor, 23);
    tn_tensor_info info = {.struct_size = sizeof info};
    tnt_kill(pid);
    while (TN_CHECK_OK(tn_tensor_get_info(tensor, &info)), !info.is_incomplete)
        TN_CHECK_OK(tn_domain_reap(domain, NULL));
    assert_int_equal(tn_tensor_wait(tensor, NULL), TN_ERR_PEER_DIED);
    assert_int_equal(tn_tensor_sync(tensor, TN_NOW), TN_ERR_PEER_DIED);
    assert_int_equal(tn_tensor_to(domain, tensor, gpu_cpu, NULL, &copy), TN_ERR_PEER_DIED);
    tn_tensor_unref(tensor);
    TN_CHECK_OK(tn_domain_trim(domain, 0, NULL)); /* closes it */
    end();
}

/* ---- leaving ---------------------------------------------------------------------------- */

static int make_and_leave(void *unused)
{
    (void)unused;
    tn_tensor *tensor = share_new(24);
    push_and_unref(tensor);
    tn_domain_close(domain);
    assert_int_equal(gpu_given_back, 1);
    return 0;
}

TN_TEST(a_maker_that_leaves_moves_what_nobody_has_opened)
{
    begin();
    tnt_wait_ok(tnt_fork(make_and_leave, NULL));
    expect_tensors(1, 1);
    tn_tensor *tensor = gpu_pop(queue);
    assert_int_equal(strategy_of(tensor), TN_STRATEGY_CUDA_IPC);
    assert_int_equal(tn_tensor_count(tensor), BYTES - OFFSET);
    gpu_expect(domain, tensor, 24);
    tn_tensor_unref(tensor);
    end();
}

static char last_warning[512];

static void keep_warning(int level, const char *message, void *context)
{
    (void)level;
    (void)context;
    snprintf(last_warning, sizeof last_warning, "%s", message);
}

static int make_and_leave_uncopied(void *unused)
{
    (void)unused;
    tn_log_set(keep_warning, NULL);
    domain->foreign_wait_ns = UINT64_MAX / 2;
    tn_tensor *tensor = share_new(27);
    push_and_unref(tensor);
    tn_domain_close(domain);
    assert_int_equal(gpu_given_back, 0);
    assert_non_null(strstr(last_warning, "with 1 tensors in messages"));
    assert_non_null(strstr(last_warning, "has no tenond"));
    tnt_signal(&ready);
    while (pause() == -1) { /* the library never gets its memory back */
    }
    return 0;
}

TN_TEST(a_maker_that_can_move_nothing_leaves_at_once)
{
    const tn_domain_options options = {.struct_size = sizeof options,
                                       .flags = TN_DOMAIN_NO_MANAGER};
    tn_tensor *tensor = NULL;
    begin_with(NULL, &options);
    pid_t pid = tnt_fork(make_and_leave_uncopied, NULL);
    tnt_await(&ready);
    assert_int_equal(tn_queue_pop_tensor(queue, tnt_deadline(10000), &tensor),
                     TN_ERR_PEER_DIED);
    tnt_kill(pid);
    end();
}

static int make_and_leave_late(void *unused)
{
    (void)unused;
    tn_tensor *tensor = share_new(25);
    TN_CHECK_OK(tn_tensor_sync(tensor, tnt_deadline(10000)));
    push_and_unref(tensor);
    tnt_await(&go);
    domain->foreign_wait_ns = UINT64_C(60) * 1000 * 1000 * 1000;
    tn_domain_close(domain);
    assert_int_equal(gpu_given_back, 1);
    return 0;
}

TN_TEST(a_maker_that_leaves_waits_for_those_who_have_it_open)
{
    begin();
    pid_t pid = tnt_fork(make_and_leave_late, NULL);
    tn_tensor *tensor = gpu_pop(queue);
    wait_for(tensor);
    tnt_signal(&go);
    gpu_expect(domain, tensor, 25);
    tn_tensor_unref(tensor);
    TN_CHECK_OK(tn_domain_trim(domain, 0, NULL));
    tnt_wait_ok(pid);
    end();
}

struct exchange {
    tn_queue *to, *from;
};

/* Each has memory of the other open when it leaves. */
static int exchange_and_leave(void *argument)
{
    const struct exchange *e = argument;
    tn_tensor *mine = share_new(28);
    gpu_push(e->to, mine);
    tn_tensor *theirs = gpu_pop(e->from);
    wait_for(theirs);
    gpu_expect(domain, theirs, 28);
    tnt_signal(&ready);
    tnt_await(&go);
    tn_tensor_unref(mine);
    tn_tensor_unref(theirs);
    domain->foreign_wait_ns = UINT64_C(10) * 1000 * 1000 * 1000;
    tn_domain_close(domain);
    assert_int_equal(gpu_given_back, 1);
    return 0;
}

TN_TEST(two_processes_that_leave_at_once_do_not_wait_for_each_other)
{
    tn_queue *next;
    begin();
    TN_CHECK_OK(tn_queue_open(domain, NULL, NULL, 0, &next));
    pid_t pids[2] = {tnt_fork(exchange_and_leave, &(struct exchange){queue, next}),
                     tnt_fork(exchange_and_leave, &(struct exchange){next, queue})};
    for (int i = 0; i < 2; i++)
        tnt_await(&ready);
    for (int i = 0; i < 2; i++)
        tnt_signal(&go);
    for (int i = 0; i < 2; i++)
        tnt_wait_ok(pids[i]);
    tn_object_close(next);
    end();
}

/* ---- what the driver says --------------------------------------------------------------- */

static int refuse_and_receive(void *argument)
{
    CUresult code = *(const int *)argument;
    tn_tensor *tensor = NULL;
    assert_int_equal(tn_device_count(gpu_type), 1);
    gpu_fake.fail_nth("cuIpcOpenMemHandle", 1, code);
    assert_int_equal(tn_queue_pop_tensor(queue, tnt_deadline(10000), &tensor),
                     code == CUDA_ERROR_OUT_OF_MEMORY ? TN_ERR_NO_MEMORY : TN_ERR_UNSUPPORTED);
    tensor = gpu_pop(queue); /* the message is still there */
    wait_for(tensor);
    gpu_expect(domain, tensor, 26);
    tn_tensor_unref(tensor);
    tn_domain_close(domain);
    return 0;
}

static void receive_after(int code)
{
    gpu_need_fake();
    begin();
    pid_t pid = tnt_fork(refuse_and_receive, &code);
    tn_tensor *tensor = share_new(26);
    push_and_unref(tensor);
    tnt_wait_ok(pid);
    await_freed(1);
    end();
}

TN_TEST(a_message_stays_if_its_process_has_the_same_number)
{
    receive_after(CUDA_ERROR_INVALID_CONTEXT);
}

TN_TEST(a_message_stays_if_freed_memory_is_in_the_way)
{
    receive_after(CUDA_ERROR_ALREADY_MAPPED);
}

TN_TEST(a_message_stays_if_the_device_cannot_reach_its_memory)
{
    receive_after(CUDA_ERROR_MAP_FAILED);
}

TN_TEST(a_message_stays_if_the_driver_has_no_memory)
{
    receive_after(CUDA_ERROR_OUT_OF_MEMORY);
}

/* ---- other memory at one address -------------------------------------------------------- */

static int consume_anew(void *argument)
{
    int count = *(const int *)argument;
    for (int i = 0; i < count; i++) {
        tn_tensor *tensor = gpu_pop(queue);
        wait_for(tensor);
        gpu_expect(domain, tensor, (uint8_t)(10 + i));
        tn_tensor_unref(tensor);
        TN_CHECK_OK(tn_domain_trim(domain, 0, NULL));
        tnt_signal(&ready);
    }
    assert_int_equal(gpu_fake.calls("cuIpcOpenMemHandle"), count);
    tn_domain_close(domain);
    return 0;
}

TN_TEST(memory_that_is_allocated_anew_is_another_allocation)
{
    int count = 2;
    CUdeviceptr former = 0;
    gpu_need_fake();
    begin();
    pid_t pid = tnt_fork(consume_anew, &count);
    for (int i = 0; i < count; i++) {
        struct gpu_memory *m = gpu_memory_make(BYTES, GPU_ALLOCATED);
        CUdeviceptr at = m->at;
        tn_tensor *tensor = share_part(m, 0, BYTES, (uint8_t)(10 + i));
        gpu_push(queue, tensor);
        tn_tensor_unref(tensor);
        tnt_await(&ready);
        await_freed(i + 1);
        assert_true(i == 0 || at == former); /* the fake uses addresses again first */
        former = at;
    }
    tnt_wait_ok(pid);
    end();
}

/* ---- descriptions that a process has damaged -------------------------------------------- */

enum { HANDLE, SIZE, PLACE, NUMBER, MAKER, DEVICE, FORGERIES };

static void forge(struct tni_backing *b, int what)
{
    switch (what) {
    case HANDLE:
        b->handle[24] ^= 1;
        break;
    case SIZE:
        b->allocation_bytes = UINT64_C(1) << 40;
        break;
    case PLACE:
        b->data_off = b->allocation_bytes - 1;
        break;
    case NUMBER:
        b->allocation = 0;
        break;
    case MAKER:
        atomic_store(&b->owner, UINT64_MAX);
        break;
    default:
        b->device_uuid[3] ^= 1;
        break;
    }
}

TN_TEST(a_damaged_description_is_an_error_of_the_receiver)
{
    static const int wanted[FORGERIES] = {
        [HANDLE] = TN_ERR_NOT_FOUND, [SIZE] = TN_ERR_CORRUPT,    [PLACE] = TN_ERR_CORRUPT,
        [NUMBER] = TN_ERR_CORRUPT,   [MAKER] = TN_ERR_PEER_DIED, [DEVICE] = TN_ERR_UNSUPPORTED};
    gpu_need_fake();
    begin();
    expect_refused(&(struct forgeries){share_new, forge, FORGERIES, wanted});
    end();
}

/* ---- kills ------------------------------------------------------------------------------ */

TN_TEST(a_receiver_killed_at_any_point_leaves_nothing)
{
    begin();
    expect_nothing_of_killed_receivers(share_new);
    end();
}

static int make_and_close(void *unused)
{
    (void)unused;
    tn_tensor *tensor = share_new(41);
    push_and_unref(tensor);
    tn_domain_close(domain);
    return 0;
}

static int share_and_drop(void *unused)
{
    (void)unused;
    tn_tensor_unref(share_new(42));
    await_freed(1);
    tn_domain_close(domain);
    return 0;
}

/* What was moved in time arrives, the rest is lost. */
static int drain(void *unused)
{
    int arrived = 0, lost = 0, status;
    tn_tensor *tensor;
    (void)unused;
    do {
        status = tn_queue_pop_tensor(queue, TN_NOW, &tensor);
        lost += status == TN_ERR_PEER_DIED;
        if (status == 0) {
            gpu_fake.message_received(1);
            gpu_expect(domain, tensor, 41);
            tn_tensor_unref(tensor);
            arrived++;
        }
    } while (arrived + lost < 3 || status == 0);
    assert_int_equal(arrived, 1);
    tn_domain_close(domain);
    return 0;
}

TN_TEST(a_maker_killed_at_any_point_leaves_nothing)
{
    static const char *const points[] = {"foreign_named", "foreign_moving", "foreign_copied",
                                         "foreign_moved"};
    begin();
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
        assert_true(tnt_kill_at(points[i], 1, make_and_close, NULL));
        TN_CHECK_OK(tn_domain_reap(domain, NULL));
    }
    assert_true(tnt_kill_at("foreign_given_back", 1, share_and_drop, NULL));
    pid_t reader = tnt_fork(drain, NULL);
    tnt_wait_ok(reader);
    end();
}

static int make_for_the_dead(void *unused)
{
    (void)unused;
    tn_tensor *tensor = share_new(22);
    push_and_unref(tensor);
    tnt_await(&go);
    await_freed(1);
    tn_domain_close(domain);
    return 0;
}

static int reap(void *unused)
{
    (void)unused;
    TN_CHECK_OK(tn_domain_reap(domain, NULL));
    tn_domain_close(domain);
    return 0;
}

TN_TEST(a_recoverer_killed_at_any_point_leaves_no_lease)
{
    static const char *const points[] = {"lease_reclaimed", "reclaim_leases_settled"};
    const tn_domain_options options = {.struct_size = sizeof options,
                                       .flags = TN_DOMAIN_NO_MANAGER};
    begin_with(NULL, &options);
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
        pid_t maker = tnt_fork(make_for_the_dead, NULL);
        pid_t holder = tnt_fork(hold_for_ever, NULL);
        tnt_await(&ready);
        tnt_kill(holder);
        assert_true(tnt_kill_at(points[i], 1, reap, NULL));
        TN_CHECK_OK(tn_domain_reap(domain, NULL));
        tnt_signal(&go);
        tnt_wait_ok(maker);
        assert_false(tni_leases_has(&domain->segment, TNI_LEASE_OVER));
    }
    end();
}
