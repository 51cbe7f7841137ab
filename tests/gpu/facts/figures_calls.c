/* SPDX-License-Identifier: Apache-2.0 */
/* Figures of single calls: N1, N2, N3, N7, N8, and the second part of N9. */
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gpu/facts/facts.h"

/* The time of a call that must succeed, in us, as a sample. */
#define TIME(samples, name, ...)                                                               \
    do {                                                                                       \
        uint64_t begun_ns = now_ns();                                                          \
        CALL(name, __VA_ARGS__);                                                               \
        samples_add(samples, (double)(now_ns() - begun_ns) / 1e3);                             \
    } while (0)

static unsigned count(void) { return sized(200, 5); }

/* ---- N1 ---------------------------------------------------------------------------------- */

static void export_sizes(int socket, int unused)
{
    static struct samples get;
    (void)unused;
    driver_enter();
    uint64_t bytes;
    for (unsigned n = 0; (bytes = nth_size(n, 1)) != 0; n++) {
        CUdeviceptr at = 0;
        struct message message = {.bytes = bytes};
        CALL(cuMemAlloc, &at, bytes);
        for (unsigned i = 0; i < count(); i++)
            TIME(&get, cuIpcGetMemHandle, &message.memory, at);
        figure("cuIpcGetMemHandle()", bytes, &get, "us");
        peer_send(socket, &message, -1);
        peer_await(socket);
        CALL(cuMemFree, at);
    }
    peer_signal(socket);
}

static void open_size(const struct message *message)
{
    static struct samples open, again, close_again, close_last;
    CUdeviceptr at = 0, same = 0;
    for (unsigned i = 0; i < count(); i++) {
        TIME(&open, cuIpcOpenMemHandle, &at, message->memory,
             CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
        if (i == 0)
            figure("cuIpcOpenMemHandle(), for the first time", message->bytes, &open, "us");
        TIME(&again, cuIpcOpenMemHandle, &same, message->memory,
             CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
        TIME(&close_again, cuIpcCloseMemHandle, same);
        TIME(&close_last, cuIpcCloseMemHandle, at);
    }
    figure("cuIpcOpenMemHandle(), after a close", message->bytes, &open, "us");
    figure("cuIpcOpenMemHandle(), while it is open", message->bytes, &again, "us");
    figure("cuIpcCloseMemHandle(), while it is open twice", message->bytes, &close_again, "us");
    figure("cuIpcCloseMemHandle(), the last", message->bytes, &close_last, "us");
}

static void measure_handles(int unused)
{
    (void)unused;
    struct peer peer = peer_start(export_sizes, 0);
    driver_enter();
    for (;;) {
        struct message message = peer_receive(peer.socket, NULL);
        if (message.bytes == 0)
            return;
        open_size(&message);
        peer_signal(peer.socket);
    }
}

/* ---- N2 ---------------------------------------------------------------------------------- */

static struct {
    struct samples create, reserve, map, access, export, release, unmap, unreserve, import,
        cross;
} vmm;

static void map_timed(struct memory *memory)
{
    CUmemAccessDesc access = {.location = memory_properties().location,
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    TIME(&vmm.reserve, cuMemAddressReserve, &memory->at, memory->bytes, 0, 0, 0);
    TIME(&vmm.map, cuMemMap, memory->at, memory->bytes, 0, memory->handle, 0);
    TIME(&vmm.access, cuMemSetAccess, memory->at, memory->bytes, &access, 1);
}

static void unmap_timed(struct memory *memory)
{
    TIME(&vmm.release, cuMemRelease, memory->handle);
    TIME(&vmm.unmap, cuMemUnmap, memory->at, memory->bytes);
    TIME(&vmm.unreserve, cuMemAddressFree, memory->at, memory->bytes);
}

static void print_mapping(uint64_t bytes, const char *whose)
{
    char what[80];
#define PRINT(member, name)                                                                    \
    snprintf(what, sizeof what, "%s, %s", name, whose);                                        \
    figure(what, bytes, &vmm.member, "us")
    PRINT(import, "cuMemImportFromShareableHandle()");
    PRINT(reserve, "cuMemAddressReserve()");
    PRINT(map, "cuMemMap()");
    PRINT(access, "cuMemSetAccess()");
    PRINT(release, "cuMemRelease()");
    PRINT(unmap, "cuMemUnmap()");
    PRINT(unreserve, "cuMemAddressFree()");
#undef PRINT
}

/* Import what comes, until a message without bytes; print when told so. */
static void import_timed(int socket, int unused)
{
    (void)unused;
    driver_enter();
    peer_signal(socket);
    for (int fd = -1;; peer_signal(socket)) {
        struct message message = peer_receive(socket, NULL);
        if (message.bytes == 0)
            return;
        if (message.value != 0) {
            print_mapping(message.bytes, "importer");
            continue;
        }
        struct memory memory = {.bytes = message.bytes};
        peer_signal(socket);
        (void)peer_receive(socket, &fd);
        TIME(&vmm.import, cuMemImportFromShareableHandle, &memory.handle, (void *)(uintptr_t)fd,
             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        close(fd);
        map_timed(&memory);
        unmap_timed(&memory);
    }
}

static void cross_once(const struct peer *peer, uint64_t bytes)
{
    struct memory memory = {.bytes = bytes};
    CUmemAllocationProp wanted = memory_properties();
    int fd = -1;
    peer_send(peer->socket, &(struct message){.bytes = bytes}, -1);
    peer_await(peer->socket);
    TIME(&vmm.create, cuMemCreate, &memory.handle, bytes, &wanted, 0);
    map_timed(&memory);
    TIME(&vmm.export, cuMemExportToShareableHandle, &fd, memory.handle,
         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    uint64_t begun_ns = now_ns();
    peer_send(peer->socket, &(struct message){0}, fd);
    peer_await(peer->socket);
    samples_add(&vmm.cross, (double)(now_ns() - begun_ns) / 1e3);
    close(fd);
    unmap_timed(&memory);
}

static void measure_mapped(int unused)
{
    (void)unused;
    struct peer peer = peer_start(import_timed, 0);
    driver_enter();
    peer_await(peer.socket);
    uint64_t bytes;
    for (unsigned n = 0; (bytes = nth_size(n, 1)) != 0; n++) {
        unsigned times = bytes > UINT64_C(1) << 30 ? sized(20, 2) : count();
        for (unsigned i = 0; i < times; i++)
            cross_once(&peer, bytes);
        figure("cuMemCreate()", bytes, &vmm.create, "us");
        figure("cuMemExportToShareableHandle()", bytes, &vmm.export, "us");
        print_mapping(bytes, "exporter");
        figure("descriptor sent, imported, mapped, unmapped, answered", bytes, &vmm.cross,
               "us");
        peer_send(peer.socket, &(struct message){.bytes = bytes, .value = 1}, -1);
        peer_await(peer.socket);
    }
}

/* One piece, or many of them in one range of addresses. */
static double make_pieces(uint64_t bytes, uint64_t piece)
{
    static CUmemGenericAllocationHandle handles[512];
    CUmemAllocationProp wanted = memory_properties();
    CUmemAccessDesc access = {.location = wanted.location,
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr at = 0;
    uint64_t begun_ns = now_ns();
    CALL(cuMemAddressReserve, &at, bytes, 0, 0, 0);
    for (uint64_t i = 0; i < bytes / piece; i++) {
        CALL(cuMemCreate, &handles[i], piece, &wanted, 0);
        CALL(cuMemMap, at + i * piece, piece, 0, handles[i], 0);
    }
    CALL(cuMemSetAccess, at, bytes, &access, 1);
    double us = (double)(now_ns() - begun_ns) / 1e3;
    for (uint64_t i = 0; i < bytes / piece; i++) {
        CALL(cuMemUnmap, at + i * piece, piece);
        CALL(cuMemRelease, handles[i]);
    }
    CALL(cuMemAddressFree, at, bytes);
    return us;
}

static void measure_pieces(int unused)
{
    static struct samples one, many;
    uint64_t bytes = is_small ? 16u << 20 : UINT64_C(1) << 30;
    (void)unused;
    driver_enter();
    for (unsigned i = 0; i < sized(20, 3); i++) {
        samples_add(&one, make_pieces(bytes, bytes));
        samples_add(&many, make_pieces(bytes, GRANULE));
    }
    figure("memory made and mapped in one piece", bytes, &one, "us");
    figure("memory made and mapped in pieces of 2 MiB", bytes, &many, "us");
}

/* ---- N3 ---------------------------------------------------------------------------------- */

static void measure_queries(int unused)
{
    static struct samples query, range;
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                   CU_POINTER_ATTRIBUTE_BUFFER_ID,
                                   CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                   CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                   CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                                   CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES};
    uint64_t values[6];
    void *to[6];
    size_t bytes = 0;
    CUdeviceptr base = 0;
    (void)unused;
    for (int i = 0; i < 6; i++)
        to[i] = &values[i];
    driver_enter();
    struct memory memory = memory_make(GRANULE);
    for (unsigned i = 0; i < sized(2000, 20); i++) {
        TIME(&query, cuPointerGetAttributes, 6, which, to, memory.at);
        TIME(&range, cuMemGetAddressRange, &base, &bytes, memory.at);
    }
    figure("cuPointerGetAttributes(), six of them", 0, &query, "us");
    figure("cuMemGetAddressRange()", 0, &range, "us");
}

/* ---- N7 ---------------------------------------------------------------------------------- */

static void open_events(int socket, int unused)
{
    static struct samples open, destroy;
    (void)unused;
    driver_enter();
    for (unsigned i = 0; i < count(); i++) {
        CUevent event;
        struct message message = peer_receive(socket, NULL);
        TIME(&open, cuIpcOpenEventHandle, &event, message.event);
        TIME(&destroy, cuEventDestroy, event);
        peer_signal(socket);
    }
    figure("cuIpcOpenEventHandle()", 0, &open, "us");
    figure("cuEventDestroy(), opened", 0, &destroy, "us");
    peer_signal(socket);
}

static void measure_events(int unused)
{
    static struct samples create, handle, destroy, record;
    (void)unused;
    struct peer peer = peer_start(open_events, 0);
    driver_enter();
    for (unsigned i = 0; i < count(); i++) {
        CUevent event;
        struct message message = {0};
        TIME(&create, cuEventCreate, &event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
        TIME(&record, cuEventRecord, event, NULL);
        TIME(&handle, cuIpcGetEventHandle, &message.event, event);
        peer_send(peer.socket, &message, -1);
        peer_await(peer.socket);
        TIME(&destroy, cuEventDestroy, event);
    }
    figure("cuEventCreate(), between processes", 0, &create, "us");
    figure("cuEventRecord()", 0, &record, "us");
    figure("cuIpcGetEventHandle()", 0, &handle, "us");
    figure("cuEventDestroy()", 0, &destroy, "us");
    peer_await(peer.socket);
}

static void measure_values(int unused)
{
    static struct samples write, wait;
    CUdeviceptr at = 0;
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    (void)unused;
    driver_enter();
    CALL(cuMemHostRegister, page, 4096,
         CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    CALL(cuMemHostGetDevicePointer, &at, page, 0);
    for (unsigned i = 1; i <= sized(1000, 20); i++) {
        TIME(&write, cuStreamWriteValue64, NULL, at, i, CU_STREAM_WRITE_VALUE_DEFAULT);
        TIME(&wait, cuStreamWaitValue64, NULL, at, i, CU_STREAM_WAIT_VALUE_GEQ);
        if (i % 50 == 0)
            CALL(cuStreamSynchronize, NULL);
    }
    CALL(cuStreamSynchronize, NULL);
    figure("cuStreamWriteValue64()", 0, &write, "us");
    figure("cuStreamWaitValue64(), of a word that is written", 0, &wait, "us");
}

/* ---- N8 ---------------------------------------------------------------------------------- */

static void start_timed(int socket, int unused)
{
    CUcontext context;
    (void)unused;
    peer_await(socket);
    uint64_t begun_ns = now_ns();
    CALL(cuInit, 0);
    uint64_t started_ns = now_ns();
    CALL(cuDevicePrimaryCtxRetain, &context, 0);
    peer_send(socket,
              &(struct message){.value = now_ns() - started_ns, .bytes = started_ns - begun_ns},
              -1);
    peer_await(socket);
}

static void measure_contexts(int unused)
{
    enum { PROCESSES = 5 };
    static struct samples start, context, memory;
    struct peer peers[PROCESSES];
    (void)unused;
    for (int i = 0; i < PROCESSES; i++)
        peers[i] = peer_start(start_timed, 0);
    driver_enter();
    for (int i = 0; i < PROCESSES; i++) {
        uint64_t before = driver_free_bytes();
        peer_signal(peers[i].socket);
        struct message message = peer_receive(peers[i].socket, NULL);
        samples_add(&start, (double)message.bytes / 1e6);
        samples_add(&context, (double)message.value / 1e6);
        samples_add(&memory, (double)(int64_t)(before - driver_free_bytes()) / (1 << 20));
    }
    figure("cuInit()", 0, &start, "ms");
    figure("cuDevicePrimaryCtxRetain()", 0, &context, "ms");
    figure("memory of the device that a process's context takes", 0, &memory, "MiB");
}

/* ---- N9, the second part ------------------------------------------------------------------
 */

static void measure_own_handles(int unused)
{
    static struct samples each;
    (void)unused;
    struct peer peer = peer_start(import_timed, 0);
    driver_enter();
    peer_await(peer.socket);
    for (unsigned i = 0; i < sized(500, 5); i++) {
        uint64_t begun_ns = now_ns();
        cross_once(&peer, GRANULE);
        samples_add(&each, (double)(now_ns() - begun_ns) / 1e3);
    }
    figure("a tensor with memory and a descriptor of its own, made, sent, mapped, freed", 4096,
           &each, "us");
}

const struct question call_figures[] = {
    {"N1", "Handles of cuMemAlloc()", "", measure_handles, 0},
    {"N2.1", "Mapped memory", "", measure_mapped, 0},
    {"N2.2", "One piece or many", "", measure_pieces, 0},
    {"N3", "Questions about a pointer", "", measure_queries, 0},
    {"N7.1", "Events", "", measure_events, 0},
    {"N7.2", "Words that streams write and wait for", "", measure_values, 0},
    {"N8", "Contexts", "", measure_contexts, 0},
    {"N9.2", "Small tensors, each with a descriptor", "", measure_own_handles, 0},
    {0}};
