/* SPDX-License-Identifier: Apache-2.0 */
/* F8: mapped memory that is only read. F9: the descriptors of mapped memory. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gpu/facts/facts.h"

enum { BYTES = 4 << 20 };

/* ---- F8 ---------------------------------------------------------------------------------- */

enum { BY_KERNEL, BY_FILL, BY_COPY };

static void write_refused(int socket, int how)
{
    int fd = -1;
    CUresult code;
    if (how == BY_KERNEL)
        NEED(cuModuleLoadData);
    struct message message = peer_receive(socket, &fd);
    driver_enter();
    struct memory memory = memory_import(fd, BYTES, CU_MEM_ACCESS_FLAGS_PROT_READ);
    long wrong = memory_differs(memory.at, BYTES, PATTERN, &code);
    say("it is read: %s, %ld bytes are wrong", driver_text(code), wrong);
    if (how == BY_KERNEL) {
        kernel_fill(NULL, memory.at, BYTES, 0);
        code = 0;
    } else if (how == BY_FILL) {
        code = CODE(cuMemsetD8Async, memory.at, 0, BYTES, NULL);
    } else {
        static unsigned char zeros[4096];
        code = CODE(cuMemcpyHtoDAsync, memory.at, zeros, sizeof zeros, NULL);
    }
    say("the write is submitted: %s", driver_text(code));
    message.code = CODE(cuCtxSynchronize);
    say("and waited for: %s", driver_text(message.code));
    if (message.code == 0)
        message.code = code;
    peer_send(socket, &message, -1);
}

static void ask_read_only(int how)
{
    CUresult code;
    struct peer peer = peer_start(write_refused, how);
    driver_enter();
    struct memory memory = memory_make(BYTES);
    memory_fill(memory.at, BYTES, PATTERN);
    peer_send(peer.socket, &(struct message){0}, memory_export(&memory));
    struct message message = peer_receive(peer.socket, NULL);
    (void)peer_join(&peer);
    long wrong = memory_differs(memory.at, BYTES, PATTERN, &code);
    say("the exporter goes on: %s, %ld bytes have changed", driver_text(code), wrong);
    agree(message.code != 0 && code == 0 && wrong == 0);
}

/* ---- F9 ---------------------------------------------------------------------------------- */

static void ask_descriptor(int unused)
{
    struct stat status = {0};
    char path[64], target[256] = "";
    (void)unused;
    driver_enter();
    struct memory memory = memory_make(BYTES);
    int fd = memory_export(&memory), other = memory_export(&memory);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (readlink(path, target, sizeof target - 1) < 0)
        snprintf(target, sizeof target, "%s", strerror(errno));
    fstat(fd, &status);
    unsigned long long inode = status.st_ino;
    fstat(other, &status);
    say("close on exec: %s; it leads to %s, mode %o, %lld bytes; two exports have %s inode",
        fcntl(fd, F_GETFD) & FD_CLOEXEC ? "yes" : "no", target, status.st_mode,
        (long long)status.st_size, inode == status.st_ino ? "the same" : "another");
}

static void export_and_end(int socket, int unused)
{
    (void)unused;
    driver_enter();
    struct memory memory = memory_make(BYTES);
    memory_fill(memory.at, BYTES, PATTERN);
    peer_send(socket, &(struct message){0}, memory_export(&memory));
}

/* Import what a descriptor names. @return whether all of it is as its maker left it */
static bool import_and_compare(int fd, const char *who)
{
    CUresult code;
    struct memory memory = memory_import(fd, BYTES, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    long wrong = memory_differs(memory.at, BYTES, PATTERN, &code);
    say("%s: %s, %ld bytes are wrong", who, driver_text(code), wrong);
    memory_end(&memory);
    return wrong == 0;
}

static void ask_in_flight(int unused)
{
    int fd = -1;
    (void)unused;
    struct peer peer = peer_start(export_and_end, 0);
    int socket = dup(peer.socket);
    if (!peer_join(&peer))
        unanswered("the exporter failed");
    (void)peer_receive(socket, &fd); /* only the socket had the descriptor meanwhile */
    driver_enter();
    agree(import_and_compare(fd, "imported after the exporter's end"));
}

static void import_later(int socket, int unused)
{
    int fd = -1;
    (void)unused;
    (void)peer_receive(socket, &fd);
    driver_enter();
    agree(import_and_compare(fd, "a new process imports it"));
    peer_signal(socket);
}

static void say_what_nvidia_smi_says(void)
{
    char line[200] = "";
    FILE *output = driver_is_fake() ? NULL
                                    : popen("timeout 20 nvidia-smi --query-gpu=memory.used "
                                            "--format=csv,noheader -i 0 2>/dev/null",
                                            "r");
    if (output != NULL && fgets(line, sizeof line, output) != NULL)
        say("nvidia-smi, meanwhile: %.*s in use", (int)strcspn(line, "\n"), line);
    if (output != NULL)
        pclose(output);
}

/* This process has no context, as tenond has none. */
static void ask_keeper(int unused)
{
    int fd = -1;
    (void)unused;
    struct peer importer = peer_start(import_later, 0);
    struct peer exporter = peer_start(export_and_end, 0);
    (void)peer_receive(exporter.socket, &fd);
    if (!peer_join(&exporter))
        unanswered("the exporter failed");
    say("a process without a context keeps the descriptor; no process uses the device");
    say_what_nvidia_smi_says();
    peer_send(importer.socket, &(struct message){0}, fd);
    peer_await(importer.socket);
}

static void ask_again(int unused)
{
    (void)unused;
    driver_enter();
    struct memory memory = memory_make(BYTES);
    memory_fill(memory.at, BYTES, PATTERN);
    int fd = memory_export(&memory), second = dup(fd);
    struct memory one = memory_import(fd, BYTES, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    struct memory two = memory_import(second, BYTES, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    say("imported twice: %s address", one.at == two.at ? "the same" : "another");
    memory_end(&one);
    CUresult code;
    long wrong = memory_differs(two.at, BYTES, PATTERN, &code);
    say("after one was unmapped, the other: %s, %ld bytes are wrong", driver_text(code), wrong);
    agree(wrong == 0);
}

static void ask_reexport(int unused)
{
    int fd = -1, again = -1;
    CUmemGenericAllocationHandle handle;
    (void)unused;
    struct peer peer = peer_start(export_and_end, 0);
    (void)peer_receive(peer.socket, &fd);
    (void)peer_join(&peer);
    driver_enter();
    CALL(cuMemImportFromShareableHandle, &handle, (void *)(uintptr_t)fd,
         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    CUresult code = CODE(cuMemExportToShareableHandle, &again, handle,
                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    say("an imported handle is exported: %s", driver_text(code));
    if (code == 0)
        (void)import_and_compare(again, "what that descriptor names");
}

/* A wrong descriptor: tenon says that it is damaged, and expects one of these codes. */
static void ask_foreign(int unused)
{
    int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    CUmemGenericAllocationHandle handle;
    (void)unused;
    driver_enter();
    CUresult code = CODE(cuMemImportFromShareableHandle, &handle, (void *)(uintptr_t)fd,
                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    say("%s", driver_text(code));
    agree(code == CUDA_ERROR_INVALID_VALUE || code == CUDA_ERROR_INVALID_HANDLE ||
          code == CUDA_ERROR_OPERATING_SYSTEM);
}

/* A size that the memory does not have, which tenon would map after a forged message. */
static void ask_wrong_size(int unused)
{
    CUdeviceptr at = 0;
    CUmemAccessDesc access = {.location = memory_properties().location,
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    (void)unused;
    driver_enter();
    struct memory memory = memory_make(BYTES);
    CALL(cuMemAddressReserve, &at, 2 * BYTES, 0, 0, 0);
    CUresult code = CODE(cuMemMap, at, 2 * BYTES, 0, memory.handle, 0);
    say("mapping twice the size: %s", driver_text(code));
    agree(code != 0);
    if (code == 0)
        return;
    code = CODE(cuMemMap, at, BYTES / 2, 0, memory.handle, 0);
    say("mapping half the size: %s", driver_text(code));
    if (code == 0)
        say("access: %s", driver_text(CODE(cuMemSetAccess, at, BYTES / 2, &access, 1)));
}

/* Memory as an allocator has it that maps more where the last memory ends. */
enum { PIECES = 2, RANGE = 3 * GRANULE, ANSWER = 0x33 };
static const size_t piece_bytes[PIECES] = {GRANULE, 2 * GRANULE};

/* Reserve addresses for all pieces, and map them side by side. Releases the handles. */
static CUdeviceptr map_pieces(const CUmemGenericAllocationHandle handles[PIECES])
{
    CUdeviceptr at = 0;
    size_t off = 0;
    CUmemAccessDesc access = {.location = memory_properties().location,
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CALL(cuMemAddressReserve, &at, RANGE + GRANULE, 0, 0, 0);
    for (int i = 0; i < PIECES; off += piece_bytes[i++]) {
        CALL(cuMemMap, at + off, piece_bytes[i], 0, handles[i], 0);
        CALL(cuMemRelease, handles[i]);
    }
    CALL(cuMemSetAccess, at, RANGE, &access, 1);
    return at;
}

static void unmap_pieces(CUdeviceptr at)
{
    CALL(cuMemUnmap, at, RANGE);
    CALL(cuMemAddressFree, at, RANGE + GRANULE);
}

static void import_pieces(int socket, int unused)
{
    CUmemGenericAllocationHandle handles[PIECES];
    struct message message = {0};
    int fds[PIECES];
    (void)unused;
    for (int i = 0; i < PIECES; i++)
        (void)peer_receive(socket, &fds[i]);
    driver_enter();
    for (int i = 0; i < PIECES; i++) {
        CALL(cuMemImportFromShareableHandle, &handles[i], (void *)(uintptr_t)fds[i],
             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        close(fds[i]);
    }
    CUdeviceptr at = map_pieces(handles);
    long wrong = memory_differs(at, RANGE, PATTERN, &message.code);
    say("another process maps the pieces side by side: %s, %ld bytes are wrong",
        driver_text(message.code), wrong);
    message.value = wrong == 0;
    memory_fill(at, RANGE, ANSWER);
    unmap_pieces(at);
    peer_send(socket, &message, -1);
}

/* Ask for the piece that an address is in, and export it. @return whether that was all right */
static bool export_piece(int socket, CUdeviceptr at, size_t bytes)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp found = {0};
    CUdeviceptr base = 0;
    size_t whole = 0;
    int fd = -1;
    CALL(cuMemGetAddressRange, &base, &whole, at + bytes / 2);
    CALL(cuMemRetainAllocationHandle, &handle, (void *)(uintptr_t)(at + bytes / 2));
    CALL(cuMemGetAllocationPropertiesFromHandle, &found, handle);
    CUresult code = CODE(cuMemExportToShareableHandle, &fd, handle,
                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    CALL(cuMemRelease, handle);
    say("a piece of %zu bytes: the range has %zu bytes and begins %lld bytes before it; types "
        "of handles 0x%x; a retained handle is exported: %s",
        bytes, whole, (long long)(at - base), found.requestedHandleTypes, driver_text(code));
    if (code != 0)
        unanswered("a piece was not exported");
    peer_send(socket, &(struct message){0}, fd);
    return base == at && whole == bytes &&
           (found.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0;
}

static void ask_pieces(int unused)
{
    CUmemGenericAllocationHandle handles[PIECES];
    CUmemAllocationProp wanted = memory_properties();
    size_t off = 0;
    bool is_found = true;
    CUresult code;
    (void)unused;
    struct peer peer = peer_start(import_pieces, 0);
    driver_enter();
    for (int i = 0; i < PIECES; i++)
        CALL(cuMemCreate, &handles[i], piece_bytes[i], &wanted, 0);
    CUdeviceptr at = map_pieces(handles);
    memory_fill(at, RANGE, PATTERN);
    for (int i = 0; i < PIECES; off += piece_bytes[i++])
        is_found = export_piece(peer.socket, at + off, piece_bytes[i]) && is_found;
    struct message message = peer_receive(peer.socket, NULL);
    (void)peer_join(&peer);
    long wrong = memory_differs(at, RANGE, ANSWER, &code);
    say("what it wrote is here: %s, %ld bytes are wrong", driver_text(code), wrong);
    unmap_pieces(at);
    agree(is_found && message.value == 1 && wrong == 0);
}

#define REFUSED "the write fails, and only in its process"
const struct question memory_questions[] = {
    {"F8.1", "Memory mapped to be read: what does a kernel's write do?", REFUSED, ask_read_only,
     BY_KERNEL},
    {"F8.2", "The same: what does cuMemsetD8Async() do?", REFUSED, ask_read_only, BY_FILL},
    {"F8.3", "The same: what does a copy to it do?", REFUSED, ask_read_only, BY_COPY},
    {"F9.1", "What is the descriptor of mapped memory?", "", ask_descriptor, 0},
    {"F9.2", "Is memory imported after its process ended, from a descriptor on its way?",
     "yes, and it is whole", ask_in_flight, 0},
    {"F9.3", "Does a process without a context keep memory when all others have ended?",
     "yes, and it is whole", ask_keeper, 0},
    {"F9.4", "Can memory be mapped twice in a process?", "yes: each mapping is its own",
     ask_again, 0},
    {"F9.5", "Can an imported handle be exported?", "", ask_reexport, 0},
    {"F9.6", "What is returned for a descriptor of something else?", "error 1, 304 or 400",
     ask_foreign, 0},
    {"F9.7", "Can memory be mapped with a size that it does not have?", "not with a larger one",
     ask_wrong_size, 0},
    {"F9.8", "Are pieces that lie side by side found, exported and mapped elsewhere?",
     "yes, each from an address in it", ask_pieces, 0},
    {0}};
