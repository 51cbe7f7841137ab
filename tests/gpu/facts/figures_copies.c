/* SPDX-License-Identifier: Apache-2.0 */
/* N4: how fast memory is copied and read: own, of a handle, of a descriptor, of the host. */
#include <stdio.h>
#include <sys/mman.h>

#include "gpu/facts/facts.h"

enum { OWN, OPENED, MAPPED, SOURCES };
static const char *const names[SOURCES] = {"own memory", "a handle's memory",
                                           "imported mapped memory"};
static struct samples rates;

/* Memory of both kinds for each size, then a message without bytes. */
static void export_sizes(int socket, int unused)
{
    uint64_t bytes;
    (void)unused;
    driver_enter();
    for (unsigned n = 0; n < 4 && (bytes = nth_size(n, 4)) != 0; n++) {
        CUdeviceptr at = 0;
        struct message message = {.bytes = bytes};
        if (n == 0 && !is_small)
            continue; /* too small for a rate */
        CALL(cuMemAlloc, &at, bytes);
        CALL(cuIpcGetMemHandle, &message.memory, at);
        struct memory mapped = memory_make(bytes);
        memory_fill(at, bytes, PATTERN);
        memory_fill(mapped.at, bytes, PATTERN);
        peer_send(socket, &message, -1);
        peer_send(socket, &message, memory_export(&mapped));
        peer_await(socket);
        CALL(cuMemFree, at);
        memory_end(&mapped);
    }
    peer_signal(socket);
}

/* One copy, in GB/s, with its wait. */
static double copy_once(CUdeviceptr to, CUdeviceptr from, uint64_t bytes)
{
    uint64_t begun_ns = now_ns();
    CALL(cuMemcpyDtoDAsync, to, from, bytes, NULL);
    CALL(cuStreamSynchronize, NULL);
    return (double)bytes / (double)(now_ns() - begun_ns);
}

static double read_once(CUdeviceptr from, CUdeviceptr wrong, uint64_t bytes)
{
    struct reading reading = {from, wrong, bytes, 0, 0x01010101u * PATTERN};
    uint64_t begun_ns = now_ns();
    kernel_read(NULL, &reading);
    CALL(cuStreamSynchronize, NULL);
    return (double)bytes / (double)(now_ns() - begun_ns);
}

static void measure_sources(const CUdeviceptr sources[SOURCES], CUdeviceptr to, uint64_t bytes)
{
    static struct samples each[SOURCES];
    char what[100];
    for (unsigned i = 0; i < sized(30, 3); i++) /* in turn, so that all see the same machine */
        for (int s = 0; s < SOURCES; s++)
            samples_add(&each[s], copy_once(to, sources[s], bytes));
    for (int s = 0; s < SOURCES; s++) {
        snprintf(what, sizeof what, "copy on the device, out of %s", names[s]);
        figure(what, bytes, &each[s], "GB/s");
    }
    if (cu.cuModuleLoadData == NULL)
        return;
    CUdeviceptr wrong = 0;
    uint64_t count = 0;
    CALL(cuMemAlloc, &wrong, 8);
    memory_fill(wrong, 8, 0);
    (void)read_once(sources[OWN], wrong, bytes); /* the driver compiles the kernel */
    for (unsigned i = 0; i < sized(30, 3); i++)
        for (int s = 0; s < SOURCES; s++)
            samples_add(&each[s], read_once(sources[s], wrong, bytes));
    for (int s = 0; s < SOURCES; s++) {
        snprintf(what, sizeof what, "kernel reads %s", names[s]);
        figure(what, bytes, &each[s], "GB/s");
    }
    driver_must(memory_read(&count, wrong, sizeof count), "cuMemcpyDtoHAsync");
    if (count != 0)
        unanswered("kernels read %llu wrong words", (unsigned long long)count);
    CALL(cuMemFree, wrong);
}

static void measure_size(uint64_t bytes, int socket)
{
    int fd = -1;
    CUdeviceptr sources[SOURCES] = {0}, to = 0;
    struct message message = peer_receive(socket, &fd);
    CALL(cuMemAlloc, &to, bytes);
    CALL(cuMemAlloc, &sources[OWN], bytes);
    memory_fill(sources[OWN], bytes, PATTERN);
    CALL(cuIpcOpenMemHandle, &sources[OPENED], message.memory,
         CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    struct memory mapped = memory_import(fd, bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    sources[MAPPED] = mapped.at;
    measure_sources(sources, to, bytes);
    memory_end(&mapped);
    CALL(cuIpcCloseMemHandle, sources[OPENED]);
    CALL(cuMemFree, sources[OWN]);
    CALL(cuMemFree, to);
    peer_signal(socket);
}

static void measure_device(int unused)
{
    uint64_t bytes;
    (void)unused;
    struct peer peer = peer_start(export_sizes, 0);
    driver_enter();
    while ((bytes = peer_receive(peer.socket, NULL).bytes) != 0)
        measure_size(bytes, peer.socket);
}

static void measure_host(int unused)
{
    uint64_t bytes = is_small ? GRANULE : 256u << 20;
    CUdeviceptr at = 0;
    (void)unused;
    driver_enter();
    char *pinned = memory_pinned(bytes);
    CALL(cuMemAlloc, &at, bytes);
    for (int to_device = 0; to_device < 2; to_device++) {
        for (unsigned i = 0; i < sized(30, 3); i++) {
            uint64_t begun_ns = now_ns();
            if (to_device)
                CALL(cuMemcpyHtoDAsync, at, pinned, bytes, NULL);
            else
                CALL(cuMemcpyDtoHAsync, pinned, at, bytes, NULL);
            CALL(cuStreamSynchronize, NULL);
            samples_add(&rates, (double)bytes / (double)(now_ns() - begun_ns));
        }
        figure(to_device ? "copy from registered memory of the host to the device"
                         : "copy from the device to registered memory of the host",
               bytes, &rates, "GB/s");
    }
}

/* A kernel reads memory of the host in place. */
static void measure_zero_copy(int unused)
{
    uint64_t bytes = is_small ? GRANULE : 256u << 20;
    CUdeviceptr at = 0, wrong = 0;
    (void)unused;
    driver_enter();
    NEED(cuModuleLoadData);
    void *here = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (here == MAP_FAILED)
        unanswered("mmap failed");
    CALL(cuMemHostRegister, here, bytes,
         CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    CALL(cuMemHostGetDevicePointer, &at, here, 0);
    CALL(cuMemAlloc, &wrong, 8);
    (void)read_once(at, wrong, bytes);
    for (unsigned i = 0; i < sized(20, 3); i++)
        samples_add(&rates, read_once(at, wrong, bytes));
    figure("kernel reads registered memory of the host in place", bytes, &rates, "GB/s");
}

const struct question copy_figures[] = {
    {"N4.1", "Copies and reads on the device", "", measure_device, 0},
    {"N4.2", "Copies between the host and the device", "", measure_host, 0},
    {"N4.3", "Reads of the host's memory by a kernel", "", measure_zero_copy, 0},
    {0}};
