/* SPDX-License-Identifier: Apache-2.0 */
/* See gpu.h. */
#include "gpu/gpu.h"

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <tenon/dlpack.h>
#include <unistd.h>

#include "os/os.h"

struct gpu_fake gpu_fake;
int32_t gpu_type = TN_DEVICE_CUDA;
tn_device gpu_0 = {TN_DEVICE_CUDA, 0}, gpu_1 = {TN_DEVICE_CUDA, 1};
const tn_device gpu_cpu = {TN_DEVICE_CPU, 0};

static char universe[256];
static int device_count;

/* The bell keeps a socket, which is there before the harness counts descriptors. */
__attribute__((constructor)) static void ring_once(void) { tni_os_bell_ring(1); }

bool gpu_is_real(void) { return getenv("TENON_TEST_REAL_GPU") != NULL; }

bool gpu_is_hip(void)
{
    const char *dress = getenv("TENON_TEST_GPU_DRESS");
    return dress != NULL && strcmp(dress, "hip") == 0;
}

__attribute__((constructor)) static void put_on(void)
{
    if (gpu_is_hip())
        gpu_type = gpu_0.type = gpu_1.type = TN_DEVICE_ROCM;
}

void gpu_need_cuda(const char *what)
{
    if (gpu_is_hip())
        tnt_skip(what);
}

const char *gpu_text(const char *text)
{
    static char texts[4][128];
    static size_t turn;
    char *copy = texts[turn++ % 4];
    snprintf(copy, sizeof texts[0], "%s", text);
    for (char *at = copy; gpu_is_hip() && (at = strstr(at, "cuda")) != NULL;)
        memcpy(at, "rocm", 4);
    return copy;
}

const char *gpu_function(const char *function)
{
    static char name[64];
    snprintf(name, sizeof name, "hip%s", function + 2);
    return gpu_is_hip() ? name : function;
}

void gpu_set_library(const char *path)
{
    setenv(gpu_is_hip() ? "TENON_HIP_LIBRARY" : "TENON_CUDA_LIBRARY", path, 1);
}

void gpu_need_fake(void)
{
    if (gpu_is_real())
        tnt_skip("it needs the fake driver");
}

static void *find(void *library, const char *name)
{
    void *found = dlsym(library, name);
    assert_non_null(found);
    return found;
}

/* What a program does with the driver itself. */
static struct {
    CUresult (*cuDevicePrimaryCtxRetain)(CUcontext *, CUdevice);
    CUresult (*cuDevicePrimaryCtxRelease_v2)(CUdevice);
    CUresult (*cuCtxPushCurrent_v2)(CUcontext);
    CUresult (*cuCtxPopCurrent_v2)(CUcontext *);
    CUresult (*cuStreamCreate)(CUstream *, unsigned);
    CUresult (*cuStreamSynchronize)(CUstream);
    CUresult (*cuStreamDestroy_v2)(CUstream);
    CUresult (*cuInit)(unsigned);
    CUresult (*cuMemAlloc_v2)(CUdeviceptr *, size_t);
    CUresult (*cuMemFree_v2)(CUdeviceptr);
    CUresult (*cuMemCreate)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
                            unsigned long long);
    CUresult (*cuMemAddressReserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr,
                                    unsigned long long);
    CUresult (*cuMemMap)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle,
                         unsigned long long);
    CUresult (*cuMemSetAccess)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
    CUresult (*cuMemRelease)(CUmemGenericAllocationHandle);
    CUresult (*cuMemUnmap)(CUdeviceptr, size_t);
    CUresult (*cuMemAddressFree)(CUdeviceptr, size_t);
} driver;

static void load_driver(void)
{
    void *found;
#define LOAD(name) found = gpu_fake.find(#name), memcpy(&driver.name, &found, sizeof found)
    LOAD(cuDevicePrimaryCtxRetain);
    LOAD(cuDevicePrimaryCtxRelease_v2);
    LOAD(cuCtxPushCurrent_v2);
    LOAD(cuCtxPopCurrent_v2);
    LOAD(cuStreamCreate);
    LOAD(cuStreamSynchronize);
    LOAD(cuStreamDestroy_v2);
    LOAD(cuInit);
    LOAD(cuMemAlloc_v2);
    LOAD(cuMemFree_v2);
    LOAD(cuMemCreate);
    LOAD(cuMemAddressReserve);
    LOAD(cuMemMap);
    LOAD(cuMemSetAccess);
    LOAD(cuMemRelease);
    LOAD(cuMemUnmap);
    LOAD(cuMemAddressFree);
#undef LOAD
}

/* The addresses of the fake's code. */
static uint64_t first_address, end_address;

static int find_code(struct dl_phdr_info *info, size_t size, void *base)
{
    (void)size;
    if (info->dlpi_addr != (uintptr_t)base)
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD && (info->dlpi_phdr[i].p_flags & PF_X) != 0) {
            first_address = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            end_address = first_address + info->dlpi_phdr[i].p_memsz;
        }
    return 1;
}

static void find_addresses(void)
{
    Dl_info about;
    void *function;
    memcpy(&function, &gpu_fake.make, sizeof function);
    assert_int_not_equal(dladdr(function, &about), 0);
    dl_iterate_phdr(find_code, about.dli_fbase);
}

bool gpu_is_of_fake(uint64_t address)
{
    return address >= first_address && address < end_address;
}

static void load_fake(void)
{
    const char *path = gpu_is_hip() ? TNT_FAKEHIP : TNT_FAKECUDA;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(library);
#define LOAD(name)                                                                             \
    {                                                                                          \
        void *found = find(library, "fake_" #name);                                            \
        memcpy(&gpu_fake.name, &found, sizeof found);                                          \
    }
    GPU_FAKE_FUNCTIONS(LOAD)
#undef LOAD
    load_driver();
    find_addresses();
    gpu_set_library(path);
}

static uint32_t world(void)
{
    const char *name = getenv("TENON_TEST_GPU_WORLD");
    return name == NULL || strcmp(name, "keep") == 0 ? FAKE_KEEP
           : strcmp(name, "fault") == 0              ? FAKE_FAULT
                                                     : FAKE_RECYCLE;
}

void gpu_begin(const struct fake_options *options)
{
    struct fake_options ours = options != NULL ? *options : (struct fake_options){0};
    if (gpu_is_real())
        return;
    load_fake();
    ours.world = world();
    if (ours.seed == 0)
        ours.seed = tnt_random(); /* of addresses and delays: TN_TEST_SEED repeats them */
    device_count = ours.device_count != 0 ? (int)ours.device_count : 1;
    snprintf(universe, sizeof universe, "%s/universe", tnt_folder());
    (void)unlink(universe); /* that of a test which failed */
    assert_int_equal(gpu_fake.make(universe, &ours), 0);
    tnt_at_child_end = gpu_fake.detach;
    setenv("TENON_FAKECUDA", universe, 1);
}

uint64_t gpu_used(void) { return gpu_is_real() ? 0 : gpu_fake.mem_used(0); }

static void await_used(tn_domain *domain, int device, uint64_t bytes)
{
    enum { LONG_MS = 5000, MOST_MS = 30000 };
    uint64_t begun_ns = tni_os_now_ns(), used;
    for (uint32_t tries = 0; !gpu_is_real(); tries++) {
        if (domain != NULL)
            TN_CHECK_OK(tn_domain_trim(domain, 0, NULL));
        uint64_t waited_ms = (tni_os_now_ns() - begun_ns) / 1000000;
        if ((used = gpu_fake.mem_used(device)) == bytes) {
            if (waited_ms >= LONG_MS)
                tnt_note("memory of device %d was free after %llu ms", device,
                         (unsigned long long)waited_ms);
            return;
        }
        if (waited_ms >= MOST_MS)
            fail_msg("%llu bytes of device %d are in use, not %llu", (unsigned long long)used,
                     device, (unsigned long long)bytes);
        tni_os_back_off(tries);
    }
}

void gpu_await_used(tn_domain *domain, uint64_t bytes) { await_used(domain, 0, bytes); }

void gpu_end(void)
{
    char report[8192];
    if (gpu_is_real())
        return;
    for (int device = 0; device < device_count; device++)
        await_used(NULL, device, 0);
    int count = gpu_fake.end(universe, report, sizeof report);
    if (count != 0)
        tnt_note("%s", report);
    assert_int_equal(count, 0);
}

static void enter(int32_t device)
{
    CUcontext context;
    assert_int_equal(driver.cuDevicePrimaryCtxRetain(&context, device), 0);
    assert_int_equal(driver.cuCtxPushCurrent_v2(context), 0);
}

static void leave(int32_t device)
{
    CUcontext context;
    assert_int_equal(driver.cuCtxPopCurrent_v2(&context), 0);
    assert_int_equal(driver.cuDevicePrimaryCtxRelease_v2(device), 0);
}

static void enter_context(CUcontext context)
{
    if (context == NULL)
        enter(0);
    else
        assert_int_equal(driver.cuCtxPushCurrent_v2(context), 0);
}

static void leave_context(CUcontext context)
{
    CUcontext popped;
    if (context == NULL)
        leave(0);
    else
        assert_int_equal(driver.cuCtxPopCurrent_v2(&popped), 0);
}

CUstream gpu_stream(CUcontext context)
{
    CUstream stream;
    enter_context(context);
    assert_int_equal(driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), 0);
    leave_context(context);
    return stream;
}

void gpu_stream_wait(CUstream stream)
{
    enter(0);
    assert_int_equal(driver.cuStreamSynchronize(stream), 0);
    leave(0);
}

void gpu_await_loss(void)
{
    enter(0);
    assert_int_not_equal(driver.cuStreamSynchronize(NULL), 0);
    leave(0);
}

void gpu_stream_end(CUstream stream, CUcontext context)
{
    enter_context(context);
    assert_int_equal(driver.cuStreamDestroy_v2(stream), 0);
    leave_context(context);
}

void gpu_hold(int32_t device)
{
    enter(device);
    gpu_fake.hold(NULL);
    leave(device);
}

void gpu_go_on(int32_t device)
{
    enter(device);
    gpu_fake.release(NULL);
    leave(device);
}

void gpu_kernel_fill(const tn_tensor *tensor, uint8_t value)
{
    tn_tensor_info info = {.struct_size = sizeof info};
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)tn_tensor_data(tensor);
    TN_CHECK_OK(tn_tensor_get_info(tensor, &info));
    int32_t device = tn_tensor_device(tensor).id;
    enter(device);
    assert_int_equal(gpu_fake.kernel_fill(NULL, at, info.size_bytes, value), 0);
    leave(device);
}

/* ---- memory of another library ----------------------------------------------------------- */

static void map_piece(CUdeviceptr at, const struct gpu_piece *piece)
{
    CUmemGenericAllocationHandle handle;
    const CUmemLocation place = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = piece->device};
    const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes =
            piece->is_private ? 0 : CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = place};
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    assert_int_equal(driver.cuMemCreate(&handle, piece->bytes, &prop, 0), 0);
    assert_int_equal(driver.cuMemMap(at, piece->bytes, 0, handle, 0), 0);
    assert_int_equal(driver.cuMemSetAccess(at, piece->bytes, &access, 1), 0);
    assert_int_equal(driver.cuMemRelease(handle), 0);
}

static size_t bytes_of(const struct gpu_piece *pieces, uint32_t count)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < count; i++)
        bytes += pieces[i].bytes;
    return bytes;
}

static CUdeviceptr map_pieces(const struct gpu_piece *pieces, uint32_t count)
{
    CUdeviceptr at;
    assert_int_equal(driver.cuMemAddressReserve(&at, bytes_of(pieces, count), 0, 0, 0), 0);
    for (uint32_t i = 0; i < count; i++)
        if (!pieces[i].is_gap)
            map_piece(at + bytes_of(pieces, i), &pieces[i]);
    return at;
}

static CUdeviceptr map_equal_pieces(size_t bytes)
{
    enum { MOST = 256 };
    struct gpu_piece pieces[MOST];
    uint32_t count = (uint32_t)((bytes + GPU_PIECE_BYTES - 1) / GPU_PIECE_BYTES);
    assert_true(count <= MOST);
    for (uint32_t i = 0; i < count; i++)
        pieces[i] = (struct gpu_piece){.bytes = GPU_PIECE_BYTES};
    return map_pieces(pieces, count);
}

/* The library keeps its context: the driver frees the memory with it. */
static void enter_library(void)
{
    CUcontext context;
    assert_int_equal(driver.cuInit(0), 0);
    assert_int_equal(driver.cuDevicePrimaryCtxRetain(&context, 0), 0);
    assert_int_equal(driver.cuCtxPushCurrent_v2(context), 0);
}

static void leave_library(void)
{
    CUcontext context;
    assert_int_equal(driver.cuCtxPopCurrent_v2(&context), 0);
}

CUdeviceptr gpu_library_alloc(size_t bytes, enum gpu_library how)
{
    CUdeviceptr at;
    enter_library();
    if (how == GPU_PRIVATE)
        at = map_pieces(&(struct gpu_piece){.bytes = bytes, .is_private = true}, 1);
    else if (how == GPU_PIECES)
        at = map_equal_pieces(bytes);
    else
        assert_int_equal(driver.cuMemAlloc_v2(&at, bytes), 0);
    leave_library();
    return at;
}

static void unmap(CUdeviceptr at, size_t bytes)
{
    assert_int_equal(driver.cuMemUnmap(at, bytes), 0);
}

static size_t mapped_bytes(size_t bytes, enum gpu_library how)
{
    return how == GPU_PIECES ? (bytes + GPU_PIECE_BYTES - 1) / GPU_PIECE_BYTES * GPU_PIECE_BYTES
                             : bytes;
}

void gpu_library_free(CUdeviceptr at, size_t bytes, enum gpu_library how)
{
    enter(0);
    if (how == GPU_ALLOCATED) {
        assert_int_equal(driver.cuMemFree_v2(at), 0);
    } else {
        unmap(at, mapped_bytes(bytes, how));
        assert_int_equal(driver.cuMemAddressFree(at, mapped_bytes(bytes, how)), 0);
    }
    leave(0);
    assert_int_equal(driver.cuDevicePrimaryCtxRelease_v2(0), 0);
}

struct export
{
    DLManagedTensorVersioned managed;
    int64_t shape[1];
    struct gpu_memory *memory;
};
int gpu_given_back;

struct gpu_memory *gpu_memory_make(size_t bytes, enum gpu_library how)
{
    struct gpu_memory *m = calloc(1, sizeof *m);
    assert_non_null(m);
    *m = (struct gpu_memory){.bytes = bytes, .how = how};
    m->at = gpu_library_alloc(bytes, how);
    return m;
}

struct gpu_memory *gpu_memory_map(const struct gpu_piece *pieces, uint32_t count)
{
    struct gpu_memory *m = calloc(1, sizeof *m);
    assert_non_null(m);
    *m = (struct gpu_memory){
        .bytes = bytes_of(pieces, count), .pieces = pieces, .piece_count = count};
    enter_library();
    m->at = map_pieces(pieces, count);
    leave_library();
    return m;
}

static void unmap_pieces(const struct gpu_memory *m)
{
    enter(0);
    for (uint32_t i = 0; i < m->piece_count; i++)
        if (!m->pieces[i].is_gap)
            unmap(m->at + bytes_of(m->pieces, i), m->pieces[i].bytes);
    assert_int_equal(driver.cuMemAddressFree(m->at, m->bytes), 0);
    leave(0);
    assert_int_equal(driver.cuDevicePrimaryCtxRelease_v2(0), 0);
}

void gpu_memory_free(struct gpu_memory *m)
{
    if (m->pieces != NULL)
        unmap_pieces(m);
    else
        gpu_library_free(m->at, m->bytes, m->how);
    free(m);
}

static void end_export(DLManagedTensorVersioned *managed)
{
    struct export *e = managed->manager_ctx;
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)managed->dl_tensor.data;
    if (e->memory->on_given_back != NULL)
        e->memory->on_given_back(e->memory, at - e->memory->at);
    if (--e->memory->tensors == 0 && !e->memory->is_kept)
        gpu_memory_free(e->memory);
    free(e);
    gpu_given_back++;
}

tn_tensor *gpu_memory_tensor(struct gpu_memory *m, size_t offset, size_t bytes)
{
    tn_tensor *tensor;
    struct export *e = calloc(1, sizeof *e);
    assert_non_null(e);
    e->memory = m;
    m->tensors++;
    e->shape[0] = (int64_t)bytes;
    e->managed =
        (DLManagedTensorVersioned){.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION},
                                   .manager_ctx = e,
                                   .deleter = end_export,
                                   .dl_tensor = {.data = (void *)(uintptr_t)(m->at + offset),
                                                 .device = {(DLDeviceType)gpu_type, 0},
                                                 .ndim = 1,
                                                 .dtype = {kDLUInt, 8, 1},
                                                 .shape = e->shape}};
    TN_CHECK_OK(tn_tensor_from_dlpack(&e->managed, &tensor));
    return tensor;
}

/* ---- tensors ----------------------------------------------------------------------------- */

void gpu_break(const tn_tensor *tensor)
{
    CUdeviceptr beyond = (CUdeviceptr)(uintptr_t)tn_tensor_data(tensor) + ((uint64_t)1 << 44);
    int32_t device = tn_tensor_device(tensor).id;
    enter(device);
    assert_int_equal(gpu_fake.kernel_fill(NULL, beyond, 1, 0), 0);
    leave(device);
}

tn_tensor *gpu_tensor(tn_domain *domain, int64_t bytes, uint8_t value)
{
    tn_tensor *tensor = NULL;
    uint8_t *source = malloc((size_t)bytes);
    assert_non_null(source);
    memset(source, value, (size_t)bytes);
    const tn_tensor_options options = {.struct_size = sizeof options,
                                       .source = source,
                                       .source_bytes = (size_t)bytes,
                                       .device = gpu_0};
    TN_CHECK_OK(tn_tensor_create(domain, TN_UINT8, 1, (int64_t[]){bytes}, &options, &tensor));
    free(source);
    return tensor;
}

void gpu_push(tn_queue *queue, tn_tensor *tensor)
{
    if (!gpu_is_real())
        gpu_fake.message_sent(1);
    TN_CHECK_OK(tn_queue_push_tensor(queue, tensor, 0, tnt_deadline(10000)));
}

tn_tensor *gpu_pop(tn_queue *queue)
{
    tn_tensor *tensor;
    TN_CHECK_OK(tn_queue_pop_tensor(queue, tnt_deadline(10000), &tensor));
    if (!gpu_is_real())
        gpu_fake.message_received(1);
    return tensor;
}

void gpu_expect(tn_domain *domain, const tn_tensor *tensor, uint8_t value)
{
    tn_tensor *here = NULL;
    TN_CHECK_OK(tn_tensor_to(domain, tensor, gpu_cpu, NULL, &here));
    TN_CHECK_OK(tn_tensor_copy(here, tensor)); /* it waits */
    const uint8_t *data = tn_tensor_data(here);
    for (int64_t i = 0; i < tn_tensor_count(here); i++)
        if (data[i] != value)
            fail_msg("byte %lld is %u, not %u", (long long)i, data[i], value);
    tn_tensor_unref(here);
}
