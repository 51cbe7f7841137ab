/* SPDX-License-Identifier: Apache-2.0 */
/* F2: of which memory the driver exports a handle. F4: what tells two allocations apart. */
#include <string.h>

#include "gpu/facts/facts.h"

enum { BYTES = 4 << 20, SMALL = 4096 };
enum { BASE, INTERIOR, MAPPED, MANAGED, POOL_DEFAULT, POOL_SHARED };

static uint64_t attribute(CUdeviceptr at, CUpointer_attribute which)
{
    uint64_t value = 0;
    CALL(cuPointerGetAttributes, 1, &which, (void *[]){&value}, at);
    return value;
}

/* What tenon would have to decide from. @return the code of cuIpcGetMemHandle() */
static CUresult describe(CUdeviceptr at)
{
    CUipcMemHandle handle;
    CUresult code = CODE(cuIpcGetMemHandle, &handle, at);
    say("cuIpcGetMemHandle(): %s; legacy capable %d, allowed handle types %#llx, pool %s",
        driver_text(code), (int)attribute(at, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE),
        (unsigned long long)attribute(at, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES),
        attribute(at, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE) != 0 ? "yes" : "no");
    return code;
}

static CUdeviceptr from_pool(bool is_shared)
{
    CUdeviceptr at = 0;
    CUmemoryPool pool = NULL;
    CUmemPoolProps wanted = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                             .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                             .location = memory_properties().location};
    if (is_shared) {
        CALL(cuMemPoolCreate, &pool, &wanted);
        CALL(cuMemAllocFromPoolAsync, &at, BYTES, pool, NULL);
    } else {
        CALL(cuMemAllocAsync, &at, BYTES, NULL);
    }
    CALL(cuStreamSynchronize, NULL);
    return at;
}

static CUdeviceptr allocate(int kind)
{
    CUdeviceptr at = 0;
    switch (kind) {
    case MAPPED:
        return memory_make(BYTES).at;
    case MANAGED:
        CALL(cuMemAllocManaged, &at, BYTES, CU_MEM_ATTACH_GLOBAL);
        return at;
    case POOL_DEFAULT:
    case POOL_SHARED:
        return from_pool(kind == POOL_SHARED);
    default:
        CALL(cuMemAlloc, &at, BYTES);
        return at + (kind == INTERIOR ? BYTES / 2 + 512 : 0);
    }
}

static void ask_handle(int kind)
{
    driver_enter();
    CUdeviceptr at = allocate(kind);
    CUresult code = describe(at);
    bool is_capable = attribute(at, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE) != 0;
    if (kind != INTERIOR)
        agree(is_capable == (code == 0));
}

/* ---- small allocations ------------------------------------------------------------------- */

/* The importer gets the handle of one allocation, and reads what is beside it. */
static void read_neighbour(int socket, int unused)
{
    unsigned char byte = 0;
    CUdeviceptr at = 0, base = 0;
    size_t bytes = 0;
    (void)unused;
    struct message message = peer_receive(socket, NULL);
    driver_enter();
    CALL(cuIpcOpenMemHandle, &at, message.memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    CUresult code = CODE(cuMemGetAddressRange, &base, &bytes, at);
    say("the importer's range has %zu bytes (%s)", bytes, driver_text(code));
    code = memory_read(&byte, at + message.value, 1);
    say("the neighbour's byte: %s, %s", driver_text(code),
        code == 0 && byte == PATTERN + 1 ? "it is seen" : "it is not seen");
    peer_signal(socket);
}

static void ask_small(int unused)
{
    CUdeviceptr first = 0, second = 0;
    struct message message = {0};
    (void)unused;
    struct peer peer = peer_start(read_neighbour, 0);
    driver_enter();
    CALL(cuMemAlloc, &first, SMALL);
    CALL(cuMemAlloc, &second, SMALL);
    memory_fill(first, SMALL, PATTERN);
    memory_fill(second, SMALL, PATTERN + 1);
    say("two allocations of %d bytes are %lld bytes apart", SMALL, (long long)(second - first));
    (void)describe(first);
    CALL(cuIpcGetMemHandle, &message.memory, first);
    message.value = second - first;
    if ((int64_t)message.value < 0 || message.value >= GRANULE) {
        say("they are not neighbours");
        return;
    }
    peer_send(peer.socket, &message, -1);
    peer_await(peer.socket);
    (void)peer_join(&peer);
}

/* ---- F4 ---------------------------------------------------------------------------------- */

static void open_old_and_new(int socket, int unused)
{
    CUdeviceptr old = 0, new = 0;
    (void)unused;
    struct message message = peer_receive(socket, NULL);
    driver_enter();
    CALL(cuIpcOpenMemHandle, &old, message.memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    peer_signal(socket);
    message = peer_receive(socket, NULL);
    CUresult code =
        CODE(cuIpcOpenMemHandle, &new, message.memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    say("the new handle, while the old one is open: %s", driver_text(code));
    if (code == 0) {
        CUresult read = 0;
        long wrong = memory_differs(new, BYTES, PATTERN + 1, &read);
        say("through it, %ld bytes of %d are wrong (%s)", wrong, BYTES, driver_text(read));
    }
    say("closing the old one: %s", driver_text(CODE(cuIpcCloseMemHandle, old)));
    if (code != 0)
        say("the new handle after that: %s",
            driver_text(CODE(cuIpcOpenMemHandle, &new, message.memory,
                             CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)));
    peer_signal(socket);
}

static void ask_same_address(int unused)
{
    CUdeviceptr first = 0, second = 0;
    struct message old = {0}, new = {0};
    (void)unused;
    struct peer peer = peer_start(open_old_and_new, 0);
    driver_enter();
    CALL(cuMemAlloc, &first, BYTES);
    memory_fill(first, BYTES, PATTERN);
    uint64_t old_id = attribute(first, CU_POINTER_ATTRIBUTE_BUFFER_ID);
    CALL(cuIpcGetMemHandle, &old.memory, first);
    peer_send(peer.socket, &old, -1);
    peer_await(peer.socket);
    CALL(cuMemFree, first);
    CALL(cuMemAlloc, &second, BYTES);
    memory_fill(second, BYTES, PATTERN + 1);
    uint64_t new_id = attribute(second, CU_POINTER_ATTRIBUTE_BUFFER_ID);
    CALL(cuIpcGetMemHandle, &new.memory, second);
    bool differs = memcmp(&old.memory, &new.memory, sizeof old.memory) != 0;
    say("after cuMemFree() and cuMemAlloc(): %s address, %s handle, %s buffer id",
        first == second ? "the same" : "another", differs ? "another" : "the same",
        old_id != new_id ? "another" : "the same");
    agree(old_id != new_id);
    peer_send(peer.socket, &new, -1);
    peer_await(peer.socket);
    (void)peer_join(&peer);
}

#define CAPABLE "the attribute says whether the handle can be had"
const struct question handle_questions[] = {
    {"F2.1", "Is a handle had of the base of a cuMemAlloc()?", CAPABLE, ask_handle, BASE},
    {"F2.2", "Is a handle had of an address inside of it?", "", ask_handle, INTERIOR},
    {"F2.3", "Do small allocations share what is exported?", "", ask_small, 0},
    {"F2.4", "Is a handle had of mapped memory?", CAPABLE, ask_handle, MAPPED},
    {"F2.5", "Is a handle had of managed memory?", CAPABLE, ask_handle, MANAGED},
    {"F2.6", "Is a handle had of memory of the default pool?", CAPABLE, ask_handle,
     POOL_DEFAULT},
    {"F2.7", "Is a handle had of memory of a pool with descriptors?", CAPABLE, ask_handle,
     POOL_SHARED},
    {"F4", "What tells an allocation from a later one at its address?",
     "the buffer id does; an address is no identity", ask_same_address, 0},
    {0}};
