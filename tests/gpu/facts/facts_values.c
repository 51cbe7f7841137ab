/* SPDX-License-Identifier: Apache-2.0 */
/* F10: 64-bit words that streams of several processes write and wait for. */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gpu/facts/facts.h"

enum { PAGE = 4096, TURNS = 50 };
enum { ON_HOST, ON_DEVICE };

static void *page; /* shared with forked processes */

static void make_page(void)
{
    int fd = memfd_create("words", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, PAGE) != 0)
        unanswered("memfd_create: %s", strerror(errno));
    page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED)
        unanswered("mmap: %s", strerror(errno));
    close(fd);
}

static CUdeviceptr register_page(void)
{
    CUdeviceptr at = 0;
    CALL(cuMemHostRegister, page, PAGE,
         CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    CALL(cuMemHostGetDevicePointer, &at, page, 0);
    return at;
}

/* The words as this process's device reaches them. */
static CUdeviceptr words(int where, int fd)
{
    if (where == ON_HOST)
        return register_page();
    return memory_import(fd, GRANULE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE).at;
}

/* ---- one signal -------------------------------------------------------------------------- */

static void wait_for_word(int socket, int where)
{
    int fd = -1;
    (void)peer_receive(socket, where == ON_DEVICE ? &fd : NULL);
    driver_enter();
    CUdeviceptr at = words(where, fd);
    peer_signal(socket);
    peer_await(socket); /* the write is submitted: only now may a wait be */
    uint64_t begun_ns = now_ns();
    CALL(cuStreamWaitValue64, NULL, at, 7, CU_STREAM_WAIT_VALUE_GEQ);
    CUresult code = stream_await(NULL, PATIENCE_MS / 2);
    say("the other process's stream waited %.3f ms: %s", (double)(now_ns() - begun_ns) / 1e6,
        driver_text(code));
    peer_send(socket, &(struct message){.code = code}, -1);
}

static void ask_word(int where)
{
    struct memory memory;
    CUdeviceptr at;
    int fd = -1;
    make_page();
    struct peer peer = peer_start(wait_for_word, where);
    driver_enter();
    if (where == ON_DEVICE) {
        memory = memory_make(GRANULE);
        memory_fill(memory.at, PAGE, 0);
        at = memory.at;
        fd = memory_export(&memory);
    } else {
        at = register_page();
    }
    peer_send(peer.socket, &(struct message){0}, fd);
    peer_await(peer.socket);
    CALL(cuStreamWriteValue64, NULL, at, 7, CU_STREAM_WRITE_VALUE_DEFAULT);
    peer_signal(peer.socket);
    CUresult code = peer_receive(peer.socket, NULL).code;
    CALL(cuStreamSynchronize, NULL);
    if (where == ON_HOST)
        say("the processor reads %llu",
            (unsigned long long)atomic_load((_Atomic uint64_t *)page));
    agree(code == 0);
}

/* ---- the processor releases a stream ------------------------------------------------------
 */

static void ask_release(int unused)
{
    CUstream stream;
    (void)unused;
    make_page();
    driver_enter();
    CUdeviceptr at = register_page();
    CALL(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    CALL(cuStreamWaitValue64, stream, at, 9, CU_STREAM_WAIT_VALUE_GEQ);
    CUresult before = stream_await(stream, sized(500, 50));
    uint64_t begun_ns = now_ns();
    atomic_store((_Atomic uint64_t *)page, 9);
    CUresult after = stream_await(stream, PATIENCE_MS / 2);
    say("before the store the stream was %s; %.3f ms after it: %s",
        before == CUDA_ERROR_NOT_READY ? "blocked" : driver_text(before),
        (double)(now_ns() - begun_ns) / 1e6, driver_text(after));
    agree(before == CUDA_ERROR_NOT_READY && after == 0);
}

/* ---- two processes in turn ----------------------------------------------------------------
 */

/* All operations are submitted before the other process has done its part. */
static void submit_turns(CUdeviceptr at, int first)
{
    for (uint64_t turn = 1; turn <= TURNS; turn++) {
        uint64_t own = 2 * turn - (first ? 1 : 0), before = own - 1;
        CALL(cuStreamWaitValue64, NULL, at, before, CU_STREAM_WAIT_VALUE_GEQ);
        CALL(cuStreamWriteValue64, NULL, at, own, CU_STREAM_WRITE_VALUE_DEFAULT);
    }
}

static void take_turns(int socket, int unused)
{
    (void)unused;
    driver_enter();
    CUdeviceptr at = register_page();
    peer_signal(socket);
    peer_await(socket);
    submit_turns(at, 0);
    peer_send(socket, &(struct message){.code = stream_await(NULL, PATIENCE_MS / 2)}, -1);
}

static void ask_turns(int unused)
{
    (void)unused;
    make_page();
    struct peer peer = peer_start(take_turns, 0);
    driver_enter();
    CUdeviceptr at = register_page();
    peer_await(peer.socket);
    peer_signal(peer.socket);
    uint64_t begun_ns = now_ns();
    submit_turns(at, 1);
    CUresult code = stream_await(NULL, PATIENCE_MS / 2);
    uint64_t ended_ns = now_ns();
    CUresult other = peer_receive(peer.socket, NULL).code;
    say("%d turns of two processes that wait for each other: %s and %s, %.1f us a turn", TURNS,
        code == CUDA_ERROR_NOT_READY ? "still waits" : driver_text(code),
        other == CUDA_ERROR_NOT_READY ? "still waits" : driver_text(other),
        (double)(ended_ns - begun_ns) / 1e3 / TURNS);
    agree(code == 0 && other == 0);
}

const struct question value_questions[] = {
    {"F10.1", "Does a word of the host order streams of two processes?", "yes", ask_word,
     ON_HOST},
    {"F10.2", "Does a word of imported memory order streams of two processes?", "yes", ask_word,
     ON_DEVICE},
    {"F10.3", "Can the processor release a stream that waits for a word?", "yes", ask_release,
     0},
    {"F10.4", "Do two contexts that wait for each other in turn come to an end?", "yes",
     ask_turns, 0},
    {0}};
