/* SPDX-License-Identifier: Apache-2.0 */
/* What cannot work with memory of devices is an error with a sentence, and nothing is lost. */
#include "gpu/gpu.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <tenon/dlpack.h>

#include "ref/ref.h"

enum { BYTES = 1 << 20, GRANULE = 2 << 20 };

static tn_domain *domain;
static tn_queue *queue;
static struct tnt_signal ready, go;

static void begin(const struct fake_options *options)
{
    gpu_begin(options);
    domain = tnt_domain(NULL);
    TN_CHECK_OK(tn_queue_open(domain, NULL, NULL, 0, &queue));
    ready = tnt_signal_open();
    go = tnt_signal_open();
}

static void end(void)
{
    tn_object_close(queue);
    TN_CHECK_OK(tn_domain_reap(domain, NULL));
    TNT_AUDIT(domain);
    gpu_await_used(domain, 0);
    tn_domain_close(domain);
    tnt_signal_close(&ready);
    tnt_signal_close(&go);
    gpu_end();
}

static void expect_detail(const char *text)
{
    if (strstr(tn_error_detail(), text) == NULL)
        fail_msg("'%s' does not say '%s'", tn_error_detail(), text);
}

static int create(int64_t bytes, const tn_tensor_options *options, tn_tensor **ret_tensor)
{
    return tn_tensor_create(domain, TN_UINT8, 1, &bytes, options, ret_tensor);
}

/* ---- what only the processor can do ------------------------------------------------------ */

static void refuse_to_import(tn_tensor *tensor)
{
    DLManagedTensorVersioned *managed;
    tn_tensor *imported = NULL;
    TN_CHECK_OK(tn_tensor_to_dlpack(tensor, &managed));
    managed->dl_tensor.device.device_type = kDLVulkan;
    assert_int_equal(tn_tensor_from_dlpack(managed, &imported), TN_ERR_UNSUPPORTED);
    expect_detail("on device type 7");
    managed->dl_tensor.device = (DLDevice){(DLDeviceType)gpu_type, 7};
    assert_int_equal(tn_tensor_from_dlpack(managed, &imported), TN_ERR_NOT_FOUND);
    assert_null(imported);
    managed->deleter(managed);
}

TN_TEST(calls_that_need_memory_of_the_host_refuse_a_device)
{
    int fd = -1, sockets[2];
    begin(NULL);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
    tn_tensor *tensor = gpu_tensor(domain, BYTES, 4), *clone = NULL;
    assert_int_equal(tn_tensor_descriptor(tensor, 0, &fd), TN_ERR_UNSUPPORTED);
    expect_detail("'cuda_vmm'");
    assert_int_equal(fd, -1);
    assert_int_equal(tn_tensor_send(tensor, sockets[0], 0, TN_NOW), TN_ERR_UNSUPPORTED);
    expect_detail("'cuda_vmm'");
    assert_int_equal(tn_tensor_resize_storage(tensor, 2 * BYTES), TN_ERR_DENIED);
    assert_int_equal(tn_tensor_pin(tensor), TN_ERR_UNSUPPORTED);
    expect_detail(gpu_text("cuda:0"));
    for (uint32_t strategy = TN_STRATEGY_ARENA; strategy <= TN_STRATEGY_FILE_SYSTEM;
         strategy++) {
        const tn_tensor_options options = {.struct_size = sizeof options, .strategy = strategy};
        assert_int_equal(tn_tensor_clone(domain, tensor, &options, &clone), TN_ERR_INVALID);
        expect_detail(tn_strategy_name(strategy));
        assert_null(clone);
    }
    refuse_to_import(tensor);
    gpu_expect(domain, tensor, 4);
    tn_tensor_unref(tensor);
    close(sockets[0]);
    close(sockets[1]);
    end();
}

/* ---- devices that are lost, hidden or of another process --------------------------------- */

static void expect_lost(int status)
{
    assert_int_equal(status, TN_ERR_DEVICE);
    expect_detail("started anew");
}

/* Everything that needs the device, after a kernel wrote where it may not. */
static void expect_no_device(const tn_tensor *there)
{
    tn_tensor *here, *made = NULL;
    const tn_tensor_options on_device = {.struct_size = sizeof on_device, .device = gpu_0};
    TN_CHECK_OK(tn_tensor_create_private(TN_UINT8, 1, (int64_t[]){BYTES}, &here));
    for (int i = 0; i < 2; i++) { /* and again */
        expect_lost(create(3 * GRANULE, &on_device, &made));
        expect_lost(tn_tensor_copy(here, there));
        expect_lost(tn_tensor_to(domain, there, gpu_cpu, NULL, &made));
        expect_lost(tn_tensor_to(domain, here, gpu_0, NULL, &made));
    }
    assert_null(made);
    tn_tensor_unref(here);
}

static int lose_device_and_go_on(void *unused)
{
    (void)unused;
    tn_tensor *there = gpu_pop(queue), *here, *popped;
    gpu_kernel_fill(there, 1); /* it is read-only here: the context is lost */
    gpu_await_loss();
    tnt_signal(&ready);
    tnt_await(&go);
    const tn_tensor_options zeroed = {.struct_size = sizeof zeroed, .flags = TN_TENSOR_ZEROED};
    expect_no_device(there);
    TN_CHECK_OK(create(BYTES, &zeroed, &here));
    memset(tn_tensor_data(here), 0x5a, BYTES);
    TN_CHECK_OK(tn_queue_push_tensor(queue, here, TN_PUSH_MOVE, TN_NOW));
    TN_CHECK_OK(tn_queue_pop_tensor(queue, TN_NOW, &popped));
    assert_int_equal(*(uint8_t *)tn_tensor_data(popped), 0x5a);
    TN_CHECK_OK(tn_queue_push_tensor(queue, popped, TN_PUSH_MOVE, TN_NOW));
    tn_tensor_unref(there);
    TNT_AUDIT(domain);
    tn_domain_close(domain);
    return 0;
}

TN_TEST(a_process_that_lost_its_device_keeps_its_host_tensors)
{
    gpu_need_fake();
    begin(NULL);
    pid_t pid = tnt_fork(lose_device_and_go_on, NULL);
    uint8_t *source = malloc(BYTES);
    memset(source, 45, BYTES);
    const tn_tensor_options options = {.struct_size = sizeof options,
                                       .flags = TN_TENSOR_WRITE_ONCE,
                                       .source = source,
                                       .source_bytes = BYTES,
                                       .device = gpu_0};
    tn_tensor *fixed, *host;
    TN_CHECK_OK(create(BYTES, &options, &fixed));
    gpu_push(queue, fixed);
    tnt_await(&ready);
    gpu_expect(domain, fixed, 45); /* this process goes on, and makes new tensors */
    tn_tensor *other = gpu_tensor(domain, BYTES, 46);
    gpu_expect(domain, other, 46);
    tnt_signal(&go);
    tnt_wait_ok(pid);
    TN_CHECK_OK(tn_queue_pop_tensor(queue, TN_NOW, &host));
    assert_int_equal(((uint8_t *)tn_tensor_data(host))[BYTES - 1], 0x5a);
    tn_tensor_unref(host);
    gpu_expect(domain, fixed, 45);
    tn_tensor_unref(other);
    tn_tensor_unref(fixed);
    free(source);
    end();
}

TN_TEST(a_device_that_disappears_is_an_error_that_passes)
{
    gpu_need_cuda("HIP has no contexts");
    static const CUresult codes[] = {CUDA_ERROR_NO_DEVICE, CUDA_ERROR_INVALID_DEVICE,
                                     CUDA_ERROR_DEVICE_UNAVAILABLE, CUDA_ERROR_UNKNOWN};
    const tn_tensor_options options = {.struct_size = sizeof options, .device = gpu_0};
    gpu_need_fake();
    begin(NULL);
    assert_int_equal(tn_device_count(gpu_type), 1);
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        tn_tensor *tensor = NULL;
        gpu_fake.fail_nth("cuDevicePrimaryCtxRetain", 1, codes[i]);
        assert_int_equal(create(BYTES, &options, &tensor), TN_ERR_DEVICE);
        expect_detail("cuDevicePrimaryCtxRetain");
        assert_null(tensor);
        TN_CHECK_OK(create(BYTES, NULL, &tensor)); /* of the host */
        tn_tensor_unref(tensor);
    }
    tn_tensor *tensor = gpu_tensor(domain, BYTES, 2); /* and the device is there again */
    tn_tensor_unref(tensor);
    end();
}

static int pop_in_other_instance(void *unused)
{
    (void)unused;
    tn_tensor *tensor = NULL;
    setenv("TENON_FAKECUDA_VISIBLE", "1", 1);
    assert_int_equal(tn_queue_pop_tensor(queue, tnt_deadline(10000), &tensor),
                     TN_ERR_UNSUPPORTED);
    expect_detail("does not see the device with the UUID MIG-4d");
    assert_null(tensor);
    tn_domain_close(domain);
    return 0;
}

TN_TEST(an_instance_that_cannot_see_the_memory_loses_no_message)
{
    gpu_need_cuda("HIP has no parts of a card");
    gpu_need_fake();
    begin(&(struct fake_options){.device_count = 2, .mig = true});
    pid_t pid = tnt_fork(pop_in_other_instance, NULL);
    tn_tensor *tensor = gpu_tensor(domain, BYTES, 47), *again;
    gpu_push(queue, tensor);
    tn_tensor_unref(tensor);
    tnt_wait_ok(pid);
    again = gpu_pop(queue);
    gpu_expect(domain, again, 47);
    tn_tensor_unref(again);
    end();
}

static int import_of_other_driver(void *unused)
{
    (void)unused;
    tn_tensor *tensor = NULL;
    assert_int_equal(tn_device_count(gpu_type), 1);
    /* HIP's first one is of memory of the process itself. */
    gpu_fake.fail_nth("cuMemImportFromShareableHandle", 1 + gpu_is_hip(),
                      CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(tn_queue_pop_tensor(queue, tnt_deadline(10000), &tensor), TN_ERR_CORRUPT);
    expect_detail("or is of another driver");
    assert_null(tensor);
    tn_domain_close(domain);
    return 0;
}

/* The driver says no more than that it does not know a descriptor. */
TN_TEST(a_descriptor_of_another_driver_is_refused)
{
    gpu_need_fake();
    begin(NULL);
    pid_t pid = tnt_fork(import_of_other_driver, NULL);
    tn_tensor *tensor = gpu_tensor(domain, BYTES, 48);
    gpu_push(queue, tensor);
    tnt_wait_ok(pid);
    gpu_expect(domain, tensor, 48);
    tn_tensor_unref(tensor);
    end();
}

/* ---- drivers that lack something, and numbers that collide ----------------------------- */

static void make_and_copy(void)
{
    tn_tensor *tensor = gpu_tensor(domain, BYTES, 49), *clone;
    TN_CHECK_OK(tn_tensor_clone(domain, tensor, NULL, &clone));
    gpu_expect(domain, clone, 49);
    tn_tensor_unref(clone);
    tn_tensor_unref(tensor);
}

TN_TEST(a_driver_that_registers_no_memory_does_all_else)
{
    gpu_need_cuda("HIP has no versions without these functions");
    tn_tensor *here;
    gpu_need_fake();
    begin(&(struct fake_options){.without = FAKE_NO_REGISTER});
    TN_CHECK_OK(create(BYTES, NULL, &here));
    assert_int_equal(tn_tensor_pin(here), TN_ERR_UNSUPPORTED);
    expect_detail("too old for");
    TN_CHECK_OK(tn_tensor_unpin(here));
    tn_tensor_unref(here);
    make_and_copy();
    end();
}

TN_TEST(a_driver_without_what_tensors_do_not_need_is_enough)
{
    gpu_need_cuda("HIP has no versions without these functions");
    gpu_need_fake();
    begin(&(struct fake_options){.without = FAKE_NO_UUID_V2 | FAKE_NO_MEM_OPS |
                                            FAKE_NO_IPC_EVENTS | FAKE_NO_RETAIN |
                                            FAKE_NO_CAPTURE | FAKE_NO_EVENTS,
                                 .driver_version = 11020});
    make_and_copy();
    end();
}

static int pop_with_same_number(void *unused)
{
    (void)unused;
    tn_tensor *tensor = gpu_pop(queue);
    gpu_expect(domain, tensor, 50);
    tn_tensor_unref(tensor);
    tn_domain_close(domain);
    return 0;
}

/* As in two containers, each with a space of process numbers of its own. */
TN_TEST(processes_of_one_number_share_memory_of_a_device)
{
    gpu_need_fake();
    begin(NULL);
    setenv("TENON_FAKECUDA_PID", "77", 1);
    pid_t pid = tnt_fork(pop_with_same_number, NULL);
    tn_tensor *tensor = gpu_tensor(domain, BYTES, 50);
    gpu_push(queue, tensor);
    tnt_wait_ok(pid);
    tn_tensor_unref(tensor);
    end();
}

/* ---- more memory than descriptors -------------------------------------------------------- */

static void limit_descriptors(rlim_t most)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max = most;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* Tensors that are written once have memory of their own. */
static int make_own(tn_tensor **ret_tensor)
{
    static uint8_t source[16];
    return create(sizeof source,
                  TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_WRITE_ONCE, .source = source,
                             .source_bytes = sizeof source, .device = gpu_0),
                  ret_tensor);
}

/* A process keeps some descriptors open, and closes the oldest when it has CACHED. */
enum { MANY = 150, FEW = 64, CACHED = 64 };

static int hold_more_than_descriptors(void *unused)
{
    (void)unused;
    static tn_tensor *all[MANY];
    limit_descriptors(FEW);
    for (int i = 0; i < MANY; i++)
        TN_CHECK_OK(make_own(&all[i]));
    for (int i = 0; i < MANY; i++) {
        gpu_push(queue, all[i]);
        tn_tensor_unref(all[i]);
    }
    tn_domain_close(domain);
    return 0;
}

TN_TEST(a_process_makes_more_memory_than_it_has_descriptors)
{
    begin(NULL);
    pid_t pid = tnt_fork(hold_more_than_descriptors, NULL);
    tnt_wait_ok(pid);
    static tn_tensor *all[MANY];
    unsigned before = tnt_descriptor_count();
    for (int i = 0; i < MANY; i++)
        all[i] = gpu_pop(queue);
    assert_true(tnt_descriptor_count() <= before + CACHED + 1); /* and a connection */
    for (int i = 0; i < MANY; i++)
        tn_tensor_unref(all[i]);
    end();
}

/* tenond has the limit of the process that starts it. */
TN_TEST(at_tenonds_limit_memory_of_a_device_is_refused)
{
    enum { LIMIT = 256 };
    static tn_tensor *all[LIMIT];
    int made = 0, status = 0;
    limit_descriptors(LIMIT);
    begin(NULL);
    while (made < LIMIT && (status = make_own(&all[made])) == 0)
        made++;
    tnt_note("%d: %s", made, tn_error_detail());
    assert_int_equal(status, TN_ERR_FULL);
    expect_detail("is 256");
    assert_true(made > 0);
    tn_tensor *host;
    TN_CHECK_OK(create(BYTES, NULL, &host));
    tn_tensor_unref(host);
    while (made > 0)
        tn_tensor_unref(all[--made]);
    end();
}

/* ---- what is counted --------------------------------------------------------------------- */

/* How many calls of the driver it takes to push a tensor, and to pop it again. */
static uint64_t calls_to_share(int64_t bytes)
{
    tn_tensor *tensor, *again;
    const tn_tensor_options options = {.struct_size = sizeof options, .device = gpu_0};
    TN_CHECK_OK(create(bytes, &options, &tensor));
    uint64_t before = gpu_fake.calls(NULL);
    gpu_push(queue, tensor);
    again = gpu_pop(queue);
    uint64_t calls = gpu_fake.calls(NULL) - before;
    tn_tensor_unref(again);
    tn_tensor_unref(tensor);
    return calls;
}

TN_TEST(the_cost_to_share_a_tensor_does_not_grow_with_its_size)
{
    gpu_need_fake();
    begin(NULL);
    for (int64_t bytes = 512; bytes <= 256 << 20; bytes *= 8)
        assert_int_equal(calls_to_share(bytes), 0);
    end();
}

enum { SIZES = 4 };

/* Each tensor is in other memory, which is mapped with as many calls for much as for little. */
static int count_calls_to_receive(void *unused)
{
    uint64_t calls[SIZES];
    (void)unused;
    tn_tensor_unref(gpu_pop(queue)); /* the first one makes the context */
    for (int i = 0; i < SIZES; i++) {
        uint64_t before = gpu_fake.calls(NULL);
        tn_tensor *tensor = gpu_pop(queue);
        calls[i] = gpu_fake.calls(NULL) - before;
        tn_tensor_unref(tensor);
        assert_int_equal(calls[i], calls[0]);
    }
    assert_int_equal(gpu_fake.calls("cuMemImportFromShareableHandle"),
                     1 + SIZES + gpu_is_hip());
    tn_domain_close(domain);
    return 0;
}

TN_TEST(a_receiver_makes_as_many_calls_whatever_the_size)
{
    tn_tensor *tensors[1 + SIZES];
    gpu_need_fake();
    begin(NULL);
    pid_t pid = tnt_fork(count_calls_to_receive, NULL);
    for (int i = 0; i <= SIZES; i++)
        gpu_push(queue, tensors[i] = gpu_tensor(domain, (int64_t)1 << (12 + 4 * i), 1));
    tnt_wait_ok(pid);
    for (int i = 0; i <= SIZES; i++)
        tn_tensor_unref(tensors[i]);
    end();
}

/* ---- tenond ------------------------------------------------------------------------------ */

TN_TEST(tenond_keeps_memory_of_devices_without_their_driver)
{
    char path[64], line[512];
    bool has_driver = false;
    begin(NULL);
    tn_tensor *tensor = gpu_tensor(domain, BYTES, 1);
    gpu_push(queue, tensor);
    tn_tensor_unref(tensor);
    const struct tni_segment *s = &domain->segment;
    int32_t pid =
        atomic_load(&tni_seat_at(s, tni_who_seat(atomic_load(&s->header->manager)))->pid);
    snprintf(path, sizeof path, "/proc/%d/maps", pid);
    FILE *maps = fopen(path, "re");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps) != NULL)
        has_driver = has_driver || strstr(line, gpu_is_hip() ? "fakehip" : "cuda") != NULL;
    fclose(maps);
    assert_false(has_driver);
    tn_tensor_unref(gpu_pop(queue));
    end();
}

/* ---- pinned memory ----------------------------------------------------------------------- */

static int receive_pinned(void *unused)
{
    (void)unused;
    tn_tensor *tensor = gpu_pop(queue);
    assert_int_equal(tn_tensor_device(tensor).type, TN_DEVICE_CPU);
    tn_tensor_info info = {.struct_size = sizeof info};
    TN_CHECK_OK(tn_tensor_get_info(tensor, &info));
    assert_int_equal(info.strategy, TN_STRATEGY_ARENA);
    assert_int_equal(((uint8_t *)tn_tensor_data(tensor))[BYTES - 1], 0x33);
    tn_tensor_unref(tensor);
    assert_int_equal(gpu_fake.calls(NULL), 0); /* it has not used the driver */
    tn_domain_close(domain);
    return 0;
}

TN_TEST(registered_memory_arrives_as_memory_of_the_host)
{
    tn_tensor *tensor;
    gpu_need_fake();
    begin(NULL);
    pid_t pid = tnt_fork(receive_pinned, NULL);
    TN_CHECK_OK(create(BYTES, NULL, &tensor));
    memset(tn_tensor_data(tensor), 0x33, BYTES);
    TN_CHECK_OK(tn_tensor_pin(tensor));
    gpu_push(queue, tensor);
    tnt_wait_ok(pid);
    tn_tensor_unref(tensor);
    end();
}

/* The fake complains of memory that stays registered when a process ends. */
static int leave_with_pinned(void *unused)
{
    (void)unused;
    tn_tensor *tensor;
    TN_CHECK_OK(create(BYTES, NULL, &tensor));
    TN_CHECK_OK(tn_tensor_pin(tensor));
    tn_domain_close(domain);
    tn_tensor_unref(tensor);
    assert_int_equal(gpu_fake.calls("cuMemHostUnregister"), 1);
    return 0;
}

static int die_with_pinned(void *unused)
{
    (void)unused;
    tn_tensor *tensor;
    TN_CHECK_OK(create(BYTES, NULL, &tensor));
    TN_CHECK_OK(tn_tensor_pin(tensor));
    gpu_push(queue, tensor);
    tnt_signal(&ready);
    pause();
    return 1;
}

TN_TEST(a_registration_ends_with_its_process)
{
    gpu_need_fake();
    begin(NULL);
    tnt_wait_ok(tnt_fork(leave_with_pinned, NULL));
    pid_t pid = tnt_fork(die_with_pinned, NULL);
    tnt_await(&ready);
    tnt_kill(pid);
    tn_tensor *tensor = gpu_pop(queue);
    TN_CHECK_OK(tn_tensor_pin(tensor)); /* nobody has it registered */
    TN_CHECK_OK(tn_tensor_unpin(tensor));
    tn_tensor_unref(tensor);
    end();
}
