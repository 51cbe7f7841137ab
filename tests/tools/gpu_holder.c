/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_holder NAME: make a domain with tensors on a device, for gpu_cli_test.py: one of 4 KiB
 * that a child holds too, one of 3 MiB, which is a copy of memory of another allocator, and one
 * of 1 MiB that only a queue has. Print "PARENT-PID CHILD-PID" when that is done, and end when
 * standard input ends.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tenon/dlpack.h>
#include <tenon/tenon.h>
#include <unistd.h>

#include "fakecuda/fake.h"

static void check(int status, const char *what)
{
    if (status >= 0)
        return;
    fprintf(stderr, "gpu_holder: %s: %s: %s\n", what, tn_status_name(status),
            tn_error_detail());
    exit(1);
}

static int ready[2], done[2];
static tn_queue *queue;

static void wait_for_end(int fd)
{
    char byte;
    while (read(fd, &byte, 1) > 0)
        ;
}

/* The child needs no driver to hold a tensor, but to map it. */
static int run_child(tn_domain *domain, void *argument)
{
    tn_tensor *tensor;
    (void)domain, (void)argument;
    close(done[1]);
    check(tn_queue_pop_tensor(queue, TN_FOREVER, &tensor), "pop");
    if (write(ready[1], "r", 1) != 1)
        return 1;
    wait_for_end(done[0]);
    tn_tensor_unref(tensor);
    return 0;
}

static tn_tensor *make(tn_domain *domain, int64_t bytes)
{
    const tn_tensor_options options = {.struct_size = sizeof options,
                                       .device = {TN_DEVICE_CUDA, 0}};
    tn_tensor *tensor;
    check(tn_tensor_create(domain, TN_UINT8, 1, &bytes, &options, &tensor), "tensor");
    return tensor;
}

/* ---- another allocator ------------------------------------------------------------------- */

#define MEMBER(group, name, symbol, version, parameters) CUresult(*name) parameters;
static struct {
    TNI_CUDA_FUNCTIONS(MEMBER)
} driver;

static void load_driver(void)
{
    void *found, *library = dlopen(getenv("TENON_CUDA_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        exit(3);
#define LOAD(group, name, symbol, version, parameters)                                         \
    found = dlsym(library, #symbol);                                                           \
    memcpy(&driver.name, &found, sizeof found);
    TNI_CUDA_FUNCTIONS(LOAD)
}

static void check_driver(CUresult result, const char *what)
{
    if (result == 0)
        return;
    fprintf(stderr, "gpu_holder: %s: %d\n", what, result);
    exit(1);
}
#define DRIVER(name, ...) check_driver(driver.name(__VA_ARGS__), #name)

/* Map memory as an allocator does that does not make it for other processes. */
enum { MAPPED_BYTES = 4 << 20 };
static CUdeviceptr map_private(void)
{
    const CUmemLocation place = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    const CUmemAllocationProp wanted = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                        .location = place};
    const CUmemAccessDesc access = {.location = place,
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUcontext context;
    CUdeviceptr at;
    DRIVER(cuInit, 0);
    DRIVER(cuDevicePrimaryCtxRetain, &context, 0);
    DRIVER(cuCtxPushCurrent, context);
    DRIVER(cuMemCreate, &handle, MAPPED_BYTES, &wanted, 0);
    DRIVER(cuMemAddressReserve, &at, MAPPED_BYTES, 0, 0, 0);
    DRIVER(cuMemMap, at, MAPPED_BYTES, 0, handle, 0);
    DRIVER(cuMemSetAccess, at, MAPPED_BYTES, &access, 1);
    DRIVER(cuMemRelease, handle);
    DRIVER(cuCtxPopCurrent, &context);
    return at;
}

static void free_private(DLManagedTensorVersioned *managed)
{
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)managed->dl_tensor.data;
    DRIVER(cuMemUnmap, at, MAPPED_BYTES);
    DRIVER(cuMemAddressFree, at, MAPPED_BYTES);
    DRIVER(cuDevicePrimaryCtxRelease, 0);
}

/* A tensor that tenon copies to share it. */
static tn_tensor *share_private(tn_domain *domain, int64_t bytes)
{
    static DLManagedTensorVersioned managed = {
        .version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION}, .deleter = free_private};
    static int64_t shape[1];
    tn_tensor *tensor;
    load_driver();
    shape[0] = bytes;
    managed.dl_tensor = (DLTensor){.data = (void *)(uintptr_t)map_private(),
                                   .device = {kDLCUDA, 0},
                                   .ndim = 1,
                                   .dtype = {kDLUInt, 8, 1},
                                   .shape = shape};
    check(tn_tensor_from_dlpack(&managed, &tensor), "tensor of another library");
    check(tn_tensor_share(domain, tensor, NULL), "share");
    return tensor;
}

int main(int argc, char **argv)
{
    const tn_domain_options options = {.struct_size = sizeof options,
                                       .quota_bytes = UINT64_C(256) << 20,
                                       .device_quota_bytes = UINT64_C(1) << 30,
                                       .seats = 16};
    tn_domain *domain;
    tn_process *child;
    char byte;

    if (argc != 2 || pipe(ready) != 0 || pipe(done) != 0)
        return 2;
    check(tn_domain_open(argv[1], &options, TN_OPEN_NEW, &domain), "domain");
    check(tn_queue_open(domain, "work", NULL, TN_OPEN_NEW, &queue), "queue");
    check(tn_process_fork(domain, run_child, NULL, 0, &child), "child");
    close(done[0]);
    tn_tensor *shared = make(domain, 4096), *own = share_private(domain, 3 << 20);
    check(tn_queue_push_tensor(queue, shared, 0, TN_NOW), "push");
    if (read(ready[0], &byte, 1) != 1)
        return 1;
    check(tn_queue_push_tensor(queue, make(domain, 1 << 20), TN_PUSH_MOVE, TN_NOW), "push");
    printf("%d %d\n", (int)getpid(), tn_process_pid(child));
    fflush(stdout);
    wait_for_end(STDIN_FILENO);
    close(done[1]);
    tn_process_close(child);
    tn_tensor_unref(shared);
    tn_tensor_unref(own);
    tn_object_close(queue);
    tn_domain_close(domain);
    return 0;
}
