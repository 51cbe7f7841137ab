/* SPDX-License-Identifier: Apache-2.0 */
/* F5: memory whose process freed it or died. F6: what a killed process still writes. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gpu/facts/facts.h"

/* ---- F5 ---------------------------------------------------------------------------------- */

enum { BYTES = 4 << 20, OTHERS = 0x77, ROUNDS = 100 };
enum { IS_MAPPED = 1, IS_KILLED = 2 };

static void export_and_free(int socket, int how)
{
    CUdeviceptr at = 0, next = 0;
    struct message message = {.bytes = BYTES};
    struct memory mapped = {0};
    int fd = -1;
    driver_enter();
    if (how & IS_MAPPED) {
        mapped = memory_make(BYTES);
        at = mapped.at;
        fd = memory_export(&mapped);
    } else {
        CALL(cuMemAlloc, &at, BYTES);
        CALL(cuIpcGetMemHandle, &message.memory, at);
    }
    memory_fill(at, BYTES, PATTERN);
    peer_send(socket, &message, fd);
    if (fd >= 0)
        close(fd);
    peer_await(socket);
    if (how & IS_MAPPED)
        memory_end(&mapped);
    else
        CALL(cuMemFree, at);
    CALL(cuMemAlloc, &next, BYTES); /* it may get the same memory */
    memory_fill(next, BYTES, OTHERS);
    peer_signal(socket);
    peer_await(socket);
}

struct readings {
    long good, wrong, others;
    CUresult code;
};

/* Read all again and again: what is right, wrong, and somebody else's. */
static struct readings read_rounds(CUdeviceptr at)
{
    struct readings found = {0};
    unsigned char *here = malloc(BYTES);
    for (unsigned round = 0; here != NULL && round < sized(ROUNDS, 5); round++) {
        found.code = memory_read(here, at, BYTES);
        if (found.code != 0)
            break;
        long right = 0, others = 0;
        for (int i = 0; i < BYTES; i++) {
            right += here[i] == PATTERN;
            others += here[i] == OTHERS;
        }
        found.good += right == BYTES;
        found.wrong += right != BYTES;
        found.others += others != 0;
    }
    free(here);
    return found;
}

static CUdeviceptr import(const struct message *message, int fd)
{
    CUdeviceptr at = 0;
    if (fd >= 0)
        return memory_import(fd, BYTES, CU_MEM_ACCESS_FLAGS_PROT_READWRITE).at;
    CALL(cuIpcOpenMemHandle, &at, message->memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    return at;
}

static void end_exporter(struct peer *peer, int how)
{
    if (how & IS_KILLED) {
        peer_kill(peer);
        return;
    }
    peer_signal(peer->socket);
    peer_await(peer->socket);
}

/* A kernel reads while the exporter goes; without a compiler in the driver, only copies do. */
static CUdeviceptr begin_kernel(CUdeviceptr at)
{
    CUdeviceptr wrong = 0;
    if (cu.cuModuleLoadData == NULL)
        return 0;
    CALL(cuMemAlloc, &wrong, 8);
    memory_fill(wrong, 8, 0);
    struct reading reading = {at, wrong, BYTES, 500000000, 0x01010101u * PATTERN};
    kernel_read(NULL, &reading);
    return wrong;
}

static void end_kernel(CUdeviceptr wrong)
{
    uint64_t count = 0;
    if (wrong == 0)
        return;
    CUresult code = stream_await(NULL, PATIENCE_MS / 2);
    if (code == 0)
        code = memory_read(&count, wrong, sizeof count);
    say("a kernel that read meanwhile: %s, %llu words were wrong", driver_text(code),
        (unsigned long long)count);
}

static void ask_death(int how)
{
    int fd = -1;
    struct peer peer = peer_start(export_and_free, how);
    driver_enter();
    struct message message = peer_receive(peer.socket, how & IS_MAPPED ? &fd : NULL);
    CUdeviceptr at = import(&message, fd);
    struct readings before = read_rounds(at);
    if (before.good == 0)
        unanswered("the memory could not be read at first: %s", driver_text(before.code));
    uint64_t free_before = driver_free_bytes();
    CUdeviceptr wrong = begin_kernel(at);
    end_exporter(&peer, how);
    struct readings after = read_rounds(at);
    end_kernel(wrong);
    say("after that, %ld readings of 4 MiB were right, %ld wrong, %ld with the bytes of "
        "another "
        "allocation: %s",
        after.good, after.wrong, after.others, driver_text(after.code));
    uint64_t free_after = driver_free_bytes();
    CUresult code =
        how & IS_MAPPED ? CODE(cuMemUnmap, at, BYTES) : CODE(cuIpcCloseMemHandle, at);
    say("the importer's %s: %s; free bytes: %+lld at the exporter's end, %+lld at this",
        how & IS_MAPPED ? "unmapping" : "closing", driver_text(code),
        (long long)(free_after - free_before), (long long)(driver_free_bytes() - free_after));
    if (how & IS_MAPPED)
        agree(after.wrong == 0 && after.code == 0 && code == 0);
}

/* ---- F6 ---------------------------------------------------------------------------------- */

enum { HIGH_FD = 900, KERNEL_S = 5, BEFORE_MS = 100, AFTERWARDS_MS = 300 };
static int low[2], high[2]; /* socket pairs whose second ends only the consumer has */

/* A consumer that writes for a long time. */
static void write_long(int socket, int unused)
{
    int fd = -1;
    (void)unused;
    close(low[0]);
    close(high[0]);
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){HIGH_FD + 100, HIGH_FD + 100});
    if (dup2(high[1], HIGH_FD) < 0)
        unanswered("dup2: %s", strerror(errno));
    close(high[1]);
    (void)peer_receive(socket, &fd);
    driver_enter();
    struct memory memory = memory_import(fd, GRANULE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    kernel_count(NULL, memory.at, UINT64_C(1000000000) * KERNEL_S);
    peer_signal(socket);
    (void)stream_await(NULL, 2 * KERNEL_S * 1000);
    say("the kernel ended before the kill");
}

static uint64_t read_word(CUdeviceptr at)
{
    uint64_t word = 0;
    driver_must(memory_read(&word, at, sizeof word), "cuMemcpyDtoHAsync");
    return word;
}

/* When each descriptor became readable, in ms from the kill. */
static void await_ends(const struct peer *peer, double ret_ms[3])
{
    struct pollfd ends[3] = {{.fd = peer->pidfd, .events = POLLIN},
                             {.fd = low[0], .events = POLLIN},
                             {.fd = high[0], .events = POLLIN}};
    uint64_t begun_ns = now_ns();
    for (int left = 3; left > 0;) {
        if (poll(ends, 3, PATIENCE_MS) <= 0)
            unanswered("the killed process did not end within %d s", PATIENCE_MS / 1000);
        for (int i = 0; i < 3; i++) {
            if (ends[i].fd < 0 || ends[i].revents == 0)
                continue;
            ret_ms[i] = (double)(now_ns() - begun_ns) / 1e6;
            ends[i].fd = -1;
            left--;
        }
    }
}

static void ask_writer(int unused)
{
    double ms[3];
    (void)unused;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, low) != 0 ||
        socketpair(AF_UNIX, SOCK_STREAM, 0, high) != 0)
        unanswered("socketpair: %s", strerror(errno));
    NEED(cuModuleLoadData);
    struct peer peer = peer_start(write_long, 0);
    close(low[1]);
    close(high[1]);
    driver_enter();
    struct memory memory = memory_make(GRANULE);
    memory_fill(memory.at, GRANULE, 0);
    peer_send(peer.socket, &(struct message){0}, memory_export(&memory));
    peer_await(peer.socket);
    for (uint64_t end_ns = now_ns() + UINT64_C(4000000000); read_word(memory.at) == 0;)
        if (now_ns() > end_ns)
            unanswered("the kernel of the other process did not begin within 4 s");
    pass_ms(BEFORE_MS); /* it is in the middle of its work */
    uint64_t at_kill = read_word(memory.at);
    kill(peer.pid, SIGKILL);
    await_ends(&peer, ms);
    uint64_t at_end = read_word(memory.at);
    memory_fill(memory.at + GRANULE / 2, 4096, 1); /* some new work of this process */
    CALL(cuCtxSynchronize);
    uint64_t settled = read_word(memory.at);
    pass_ms(AFTERWARDS_MS);
    uint64_t later = read_word(memory.at);
    say("after the kill, the pidfd was readable after %.1f ms, a socket of a low number ended "
        "after %.1f ms, one of number %d after %.1f ms",
        ms[0], ms[1], HIGH_FD, ms[2]);
    say("the kernel's word was %llu before the kill, %llu when the pidfd was readable, %llu "
        "after "
        "the device's next work, %llu after %d ms",
        (unsigned long long)at_kill, (unsigned long long)at_end, (unsigned long long)settled,
        (unsigned long long)later, AFTERWARDS_MS);
    agree(settled == later);
}

#define STAYS "the memory stays whole"
const struct question death_questions[] = {
    {"F5.1", "cuMemAlloc(): freed while an importer reads", "", ask_death, 0},
    {"F5.2", "cuMemAlloc(): its process is killed while an importer reads", "", ask_death,
     IS_KILLED},
    {"F5.3", "Mapped memory: released while an importer reads", STAYS, ask_death, IS_MAPPED},
    {"F5.4", "Mapped memory: its process is killed while an importer reads", STAYS, ask_death,
     IS_MAPPED | IS_KILLED},
    {"F6", "Does a kernel of a killed process still write when its pidfd is readable?",
     "after the pidfd and one more work of the device, nothing is written", ask_writer, 0},
    {0}};
