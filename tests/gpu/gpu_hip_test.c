/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In what HIP differs from CUDA's driver, with the fake in HIP's dress: H1 to H6 of
 * tests/fakecuda/README.md. The other programs of this folder run in that dress as well.
 */
#include "gpu/gpu.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <tenon/dlpack.h>
#include <unistd.h>

#include "device/device.h"

enum { BYTES = 4096, GRANULE = 2 << 20, OLD = 70000000, NEW = 71300000 };

static tn_domain *domain;
static tn_queue *queue;

static void need_hip(void)
{
    gpu_need_fake();
    if (!gpu_is_hip())
        tnt_skip("the fake is in CUDA's dress");
}

static void begin(const struct fake_options *fake)
{
    need_hip();
    gpu_begin(fake);
    domain = tnt_domain(NULL);
    TN_CHECK_OK(tn_queue_open(domain, NULL, NULL, 0, &queue));
}

static void end(void)
{
    tn_object_close(queue);
    TN_CHECK_OK(tn_domain_reap(domain, NULL));
    TNT_AUDIT(domain);
    tn_domain_close(domain);
    gpu_end();
}

static void expect_detail(const char *text)
{
    if (strstr(tn_error_detail(), text) == NULL)
        fail_msg("'%s' does not say '%s'", tn_error_detail(), text);
}

static int create(uint32_t flags, tn_tensor **ret_tensor)
{
    static uint8_t source[BYTES];
    const tn_tensor_options options = {.struct_size = sizeof options,
                                       .flags = flags,
                                       .source = source,
                                       .source_bytes = sizeof source,
                                       .device = gpu_0};
    return tn_tensor_create(domain, TN_UINT8, 1, (int64_t[]){BYTES}, &options, ret_tensor);
}

/* What a program calls itself. */
static struct {
    CUresult (*hipSetDevice)(int);
    CUresult (*hipGetDevice)(int *);
    CUresult (*hipPeekAtLastError)(void);
} hip;

static void *must_find(void *library, const char *name)
{
    void *found = dlsym(library, name);
    assert_non_null(found);
    return found;
}

/* Put a function of `library` into the member of that name. */
#define LOAD(into, name)                                                                       \
    found = must_find(library, #name);                                                         \
    memcpy(&(into).name, &found, sizeof found)

static void load_hip(void)
{
    void *library = dlopen(getenv("TENON_HIP_LIBRARY"), RTLD_NOW | RTLD_LOCAL), *found;
    assert_non_null(library);
    LOAD(hip, hipSetDevice);
    LOAD(hip, hipGetDevice);
    LOAD(hip, hipPeekAtLastError);
}

/* ---- threads ----------------------------------------------------------------------------- */

TN_TEST(the_current_device_of_a_thread_stays_what_it_was)
{
    int current = 0;
    begin(&(struct fake_options){.device_count = 2});
    load_hip();
    assert_int_equal(hip.hipSetDevice(1), 0);
    tn_tensor *tensor = gpu_tensor(domain, BYTES, 7);
    gpu_expect(domain, tensor, 7);
    tn_tensor_unref(tensor);
    assert_int_equal(hip.hipGetDevice(&current), 0);
    assert_int_equal(current, 1);
    end();
}

TN_TEST(a_failure_leaves_no_last_error_to_the_program)
{
    tn_tensor *tensor = NULL;
    begin(NULL);
    load_hip();
    gpu_fake.fail_nth("cuMemCreate", 1, CUDA_ERROR_UNKNOWN);
    assert_int_equal(create(0, &tensor), TN_ERR_DEVICE);
    expect_detail("hipMemCreate()");
    assert_int_equal(hip.hipPeekAtLastError(), 0);
    end();
}

TN_TEST(the_last_error_of_the_program_stays)
{
    begin(NULL);
    load_hip();
    assert_int_equal(hip.hipSetDevice(77), CUDA_ERROR_INVALID_DEVICE);
    tn_tensor *tensor = gpu_tensor(domain, BYTES, 7);
    tn_tensor_unref(tensor);
    assert_int_equal(hip.hipPeekAtLastError(), CUDA_ERROR_INVALID_DEVICE);
    end();
}

static void *make_and_end(void *unused)
{
    enum { TIMES = 25 };
    for (int i = 0; i < TIMES; i++) { /* each has memory of its own */
        tn_tensor *tensor;
        TN_CHECK_OK(create(TN_TENSOR_WRITE_ONCE, &tensor));
        tn_tensor_unref(tensor);
    }
    return unused;
}

/* H1 */
TN_TEST(threads_take_turns_to_make_and_unmap_memory)
{
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    begin(NULL);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, make_and_end, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    end();
}

/* ---- descriptors ------------------------------------------------------------------------- */

static int receive(void *status)
{
    tn_tensor *tensor = NULL;
    int popped = tn_queue_pop_tensor(queue, tnt_deadline(10000), &tensor);
    assert_int_equal(popped, *(int *)status);
    if (popped == 0)
        gpu_expect(domain, tensor, 42);
    else
        expect_detail("of ROCm 7.0, does not import memory that this process has exported");
    tn_tensor_unref(tensor);
    tn_domain_close(domain);
    return 0;
}

static void send_with(uint32_t version, bool takes_numbers, int status)
{
    begin(&(struct fake_options){
        .driver_version = version, .takes_numbers = takes_numbers, .no_races = true});
    pid_t pid = tnt_fork(receive, &status);
    tn_tensor *tensor = gpu_tensor(domain, BYTES, 42), *again;
    TN_CHECK_OK(tn_queue_push_tensor(queue, tensor, TN_PUSH_MOVE, TN_NOW));
    tnt_wait_ok(pid);
    if (status != 0) { /* the message is still there */
        TN_CHECK_OK(tn_queue_pop_tensor(queue, TN_NOW, &again));
        gpu_expect(domain, again, 42);
        tn_tensor_unref(again);
    }
    end();
}

TN_TEST(a_version_takes_a_descriptor_as_a_number) { send_with(NEW, false, 0); }
TN_TEST(an_old_version_takes_the_place_of_a_descriptor) { send_with(OLD, false, 0); }
TN_TEST(a_version_that_imports_nothing_loses_no_message)
{
    send_with(OLD, true, TN_ERR_UNSUPPORTED);
}

TN_TEST(a_failure_that_passes_decides_nothing_about_imports)
{
    const struct tni_memory_kind *kind = tni_memory_kind(gpu_type);
    struct tni_device_memory made = {.device = gpu_0, .bytes = GRANULE}, mapped = made;
    int fd;
    need_hip();
    gpu_begin(NULL);
    assert_int_equal(tn_device_count(gpu_type), 1);
    TN_CHECK_OK(kind->make(kind, &made, &fd));
    gpu_fake.fail_nth("cuMemImportFromShareableHandle", 1, CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(kind->map(kind, &mapped, &fd, 1), TN_ERR_NO_MEMORY);
    TN_CHECK_OK(kind->map(kind, &mapped, &fd, 1));
    kind->unmap(kind, &mapped);
    kind->unmap(kind, &made);
    close(fd);
    gpu_end();
}

static void import_as_zero(uint32_t version)
{
    const struct tni_memory_kind *kind = tni_memory_kind(gpu_type);
    struct tni_device_memory made = {.device = gpu_0, .bytes = GRANULE}, mapped = made;
    int fd, input = dup(0);
    need_hip();
    gpu_begin(&(struct fake_options){.driver_version = version});
    assert_int_equal(tn_device_count(gpu_type), 1);
    TN_CHECK_OK(kind->make(kind, &made, &fd));
    assert_int_equal(dup2(fd, 0), 0);
    close(fd);
    int status = kind->map(kind, &mapped, &(int){0}, 1);
    assert_int_equal(dup2(input, 0), 0);
    close(input);
    TN_CHECK_OK(status);
    kind->unmap(kind, &mapped);
    kind->unmap(kind, &made);
    gpu_end();
}

TN_TEST(a_descriptor_with_the_number_0_is_imported) { import_as_zero(NEW); }
TN_TEST(an_old_version_imports_a_descriptor_with_the_number_0) { import_as_zero(OLD); }

/* HIP does not say how large an imported memory is; a DMA buffer does. */
TN_TEST(a_descriptor_of_less_memory_is_refused_by_its_size)
{
    const struct tni_memory_kind *kind = tni_memory_kind(gpu_type);
    struct tni_device_memory mapped = {.device = gpu_0, .bytes = GRANULE};
    int fd = memfd_create("small", MFD_CLOEXEC);
    need_hip();
    gpu_begin(NULL);
    assert_int_equal(ftruncate(fd, 4096), 0);
    assert_int_equal(tn_device_count(gpu_type), 1);
    assert_int_equal(kind->map(kind, &mapped, &fd, 1), TN_ERR_CORRUPT);
    expect_detail("is of memory of 4096 bytes, and not of 2097152");
    close(fd);
    gpu_end();
}

/* ---- order ------------------------------------------------------------------------------- */

enum { ROUNDS = 12 };

static void fill(CUstream stream, const tn_tensor *tensor, uint8_t value)
{
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)tn_tensor_data(tensor);
    assert_int_equal(gpu_fake.kernel_fill(stream, at, BYTES, value), 0);
}

static int read_all(void *unused)
{
    (void)unused;
    for (int i = 0; i < ROUNDS; i++) {
        tn_tensor *tensor;
        TN_CHECK_OK(tn_queue_pop_tensor(queue, tnt_deadline(10000), &tensor));
        gpu_fake.message_received((uint64_t)i + 1);
        gpu_expect(domain, tensor, (uint8_t)(i + 1));
        tn_tensor_unref(tensor);
    }
    tn_domain_close(domain);
    return 0;
}

/* Without timelines the process waits for its stream before it hands the tensor on. */
TN_TEST(a_stream_is_waited_for_before_its_tensor_is_sent)
{
    tn_tensor *tensor, *tensors[ROUNDS];
    begin(&(struct fake_options){.delays = true, .seed = tnt_random()});
    pid_t pid = tnt_fork(read_all, NULL);
    TN_CHECK_OK(create(0, &tensor));
    tn_tensor_unref(tensor); /* the domain uses the device from now on */
    CUstream stream = gpu_stream(NULL);
    for (int i = 0; i < ROUNDS; i++) {
        TN_CHECK_OK(create(0, &tensors[i]));
        fill(stream, tensors[i], (uint8_t)(i + 1));
        TN_CHECK_OK(tn_tensor_record(tensors[i], stream));
        gpu_fake.message_sent((uint64_t)i + 1);
        TN_CHECK_OK(tn_queue_push_tensor(queue, tensors[i], 0, TN_NOW));
    }
    tnt_wait_ok(pid);
    for (int i = 0; i < ROUNDS; i++)
        tn_tensor_unref(tensors[i]);
    assert_int_equal(gpu_fake.calls_total("cuStreamWriteValue64"), 0);
    assert_int_equal(gpu_fake.calls_total("cuEventRecord"), 0);
    gpu_stream_end(stream, NULL);
    end();
}

/* ---- versions and cards ------------------------------------------------------------------ */

TN_TEST(a_version_before_6_is_refused)
{
    need_hip();
    gpu_begin(&(struct fake_options){.driver_version = 50700000});
    assert_int_equal(tn_device_count(gpu_type), TN_ERR_UNSUPPORTED);
    expect_detail("version 50700000 of the driver is too old");
    gpu_end();
}

TN_TEST(cards_without_uuid_are_told_by_their_place)
{
    tn_device_info first = {.struct_size = sizeof first}, second = first;
    tn_device found;
    need_hip();
    gpu_begin(&(struct fake_options){.device_count = 2, .without = FAKE_NO_UUID_V2});
    TN_CHECK_OK(tn_device_get_info(gpu_0, &first));
    TN_CHECK_OK(tn_device_get_info(gpu_1, &second));
    assert_string_not_equal(first.uuid_text, second.uuid_text);
    TN_CHECK_OK(tn_device_find(second.uuid_text, &found));
    assert_true(found.type == TN_DEVICE_ROCM && found.id == 1);
    gpu_end();
}

static void end_export(DLManagedTensorVersioned *managed)
{
    gpu_library_free((CUdeviceptr)(uintptr_t)managed->dl_tensor.data, 0, GPU_ALLOCATED);
}

/* H5: before 7.12 HIP does not say whether memory has a handle, and memory without one would
 * make the system fail. So no handle is asked for. */
TN_TEST(an_old_version_has_memory_of_libraries_copied)
{
    begin(&(struct fake_options){.driver_version = OLD});
    static int64_t shape[] = {BYTES};
    static DLManagedTensorVersioned managed;
    managed = (DLManagedTensorVersioned){
        .version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION},
        .deleter = end_export,
        .dl_tensor = {.data = (void *)(uintptr_t)gpu_library_alloc(BYTES, GPU_ALLOCATED),
                      .device = {kDLROCM, 0},
                      .ndim = 1,
                      .dtype = {kDLUInt, 8, 1},
                      .shape = shape}};
    tn_tensor *tensor;
    TN_CHECK_OK(tn_tensor_from_dlpack(&managed, &tensor));
    gpu_kernel_fill(tensor, 9);
    TN_CHECK_OK(tn_tensor_share(domain, tensor, NULL));
    gpu_expect(domain, tensor, 9);
    tn_tensor_unref(tensor);
    assert_int_equal(gpu_fake.calls_total("cuIpcGetMemHandle"), 0);
    end();
}

/* ---- both drivers ------------------------------------------------------------------------ */

static struct {
    int (*fake_make)(const char *, const struct fake_options *);
    int (*fake_end)(const char *, char *, size_t);
    uint64_t (*fake_calls)(const char *);
    uint64_t (*fake_mem_used)(int);
} cuda;

/* The fakes lie side by side. Each attaches to the universe that the variable names first. */
static void begin_cuda(const char *path)
{
    char library_path[512], *name;
    snprintf(library_path, sizeof library_path, "%s", getenv("TENON_HIP_LIBRARY"));
    name = strstr(library_path, "libfakehip");
    assert_non_null(name);
    strcpy(name, "libfakecuda.so");
    setenv("TENON_CUDA_LIBRARY", library_path, 1);
    void *library = dlopen(library_path, RTLD_NOW | RTLD_LOCAL), *found;
    assert_non_null(library);
    LOAD(cuda, fake_make);
    LOAD(cuda, fake_end);
    LOAD(cuda, fake_calls);
    LOAD(cuda, fake_mem_used);
    assert_int_equal(cuda.fake_make(path, NULL), 0);
    setenv("TENON_FAKECUDA", path, 1);
    assert_int_equal(tn_device_count(TN_DEVICE_CUDA), 1);
}

static void use_both(void)
{
    const tn_device on_cuda = {TN_DEVICE_CUDA, 0};
    tn_device_info info = {.struct_size = sizeof info};
    tn_device found;
    tn_tensor *there, *other = NULL, *here;
    TN_CHECK_OK(tn_device_get_info(gpu_0, &info));
    TN_CHECK_OK(tn_device_find(info.uuid_text, &found));
    assert_int_equal(found.type, TN_DEVICE_ROCM);
    there = gpu_tensor(domain, BYTES, 3);
    assert_int_equal(tn_tensor_to(domain, there, on_cuda, NULL, &other), TN_ERR_UNSUPPORTED);
    expect_detail("no driver copies from rocm:0 to cuda:0");
    TN_CHECK_OK(tn_tensor_to(domain, there, gpu_cpu, NULL, &here));
    TN_CHECK_OK(tn_tensor_copy(here, there));
    TN_CHECK_OK(tn_tensor_to(domain, here, on_cuda, NULL, &other));
    gpu_expect(domain, other, 3);
    uint64_t before = cuda.fake_calls("cuMemHostRegister");
    TN_CHECK_OK(tn_tensor_pin(here));
    assert_int_equal(cuda.fake_calls("cuMemHostRegister"), before + 1);
    tn_tensor_unref(here);
    tn_tensor_unref(other);
    tn_tensor_unref(there);
}

TN_TEST(a_process_uses_both_drivers_and_cuda_comes_first)
{
    char path[256], universe[256], report[8192];
    need_hip();
    gpu_begin(NULL);
    snprintf(universe, sizeof universe, "%s", getenv("TENON_FAKECUDA"));
    snprintf(path, sizeof path, "%s/universe-of-cuda", tnt_folder());
    begin_cuda(path);
    setenv("TENON_FAKECUDA", universe, 1);
    assert_int_equal(tn_device_count(TN_DEVICE_ROCM), 1);
    domain = tnt_domain(NULL);
    use_both();
    TNT_AUDIT(domain);
    tn_domain_close(domain);
    /* tenond closes the last descriptors a moment later */
    for (uint32_t tries = 0; cuda.fake_mem_used(0) != 0; tries++)
        tni_os_back_off(tries);
    int count = cuda.fake_end(path, report, sizeof report);
    if (count != 0)
        tnt_note("%s", report);
    assert_int_equal(count, 0);
    gpu_end();
}
