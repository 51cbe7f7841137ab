/* SPDX-License-Identifier: Apache-2.0 */
/* F3: who can open a handle of cuMemAlloc(), and who can map a descriptor of mapped memory. */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu/facts/facts.h"

enum { BYTES = 4 << 20, OTHER_USER = 65534 };

static CUresult open_handle(CUdeviceptr *ret_at, const CUipcMemHandle *handle, unsigned flags)
{
    return CODE(cuIpcOpenMemHandle, ret_at, *handle, flags);
}

/* An exporter: memory of both kinds, until it is told to go on; then it frees, and waits. */
static void export_memory(int socket, int unused)
{
    CUdeviceptr at = 0;
    struct message message = {.bytes = BYTES};
    (void)unused;
    driver_enter();
    CALL(cuMemAlloc, &at, BYTES);
    memory_fill(at, BYTES, PATTERN);
    CALL(cuIpcGetMemHandle, &message.memory, at);
    struct memory mapped = memory_make(BYTES);
    memory_fill(mapped.at, BYTES, PATTERN);
    peer_send(socket, &message, memory_export(&mapped));
    peer_await(socket);
    CALL(cuMemFree, at);
    peer_signal(socket);
    peer_await(socket);
}

/* ---- one importer ------------------------------------------------------------------------ */

static void ask_same_process(int unused)
{
    CUdeviceptr at = 0, again = 0;
    CUipcMemHandle handle;
    (void)unused;
    driver_enter();
    CALL(cuMemAlloc, &at, BYTES);
    CALL(cuIpcGetMemHandle, &handle, at);
    CUresult code = open_handle(&again, &handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    say("%s", driver_text(code));
    agree(code != 0);
}

static void ask_twice(int unused)
{
    CUdeviceptr at = 0, again = 0;
    (void)unused;
    struct peer peer = peer_start(export_memory, 0);
    driver_enter();
    struct message message = peer_receive(peer.socket, NULL);
    CALL(cuIpcOpenMemHandle, &at, message.memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    CUresult code = open_handle(&again, &message.memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    say("the second time: %s, %s address", driver_text(code),
        at == again ? "the same" : "another");
    say("closed once: %s", driver_text(CODE(cuIpcCloseMemHandle, at)));
    CUresult read = 0;
    long wrong = memory_differs(at, BYTES, PATTERN, &read);
    say("read after that: %s, %ld bytes are wrong", driver_text(read), wrong);
}

static void ask_flags(int unused)
{
    CUdeviceptr at = 0;
    (void)unused;
    struct peer peer = peer_start(export_memory, 0);
    driver_enter();
    struct message message = peer_receive(peer.socket, NULL);
    CUresult code = open_handle(&at, &message.memory, 0);
    say("with flags 0: %s", driver_text(code));
}

static void ask_second_context(int unused)
{
    CUdeviceptr at = 0, again = 0;
    CUcontext context;
    (void)unused;
    struct peer peer = peer_start(export_memory, 0);
    driver_enter();
    struct message message = peer_receive(peer.socket, NULL);
    CALL(cuIpcOpenMemHandle, &at, message.memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    CALL(cuCtxCreate, &context, 0, 0); /* it is current now */
    CUresult code = open_handle(&again, &message.memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    say("in a second context: %s, %s address", driver_text(code),
        at == again ? "the same" : "another");
    say("closed in that context: %s", driver_text(CODE(cuIpcCloseMemHandle, at)));
}

static void ask_late(int is_dead)
{
    CUdeviceptr at = 0;
    struct peer peer = peer_start(export_memory, 0);
    driver_enter();
    struct message message = peer_receive(peer.socket, NULL);
    peer_signal(peer.socket);
    peer_await(peer.socket);
    if (is_dead) {
        peer_signal(peer.socket);
        (void)peer_join(&peer);
    }
    CUresult code = open_handle(&at, &message.memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    say("%s", driver_text(code));
    agree(code != 0);
}

/* ---- separated importers ----------------------------------------------------------------- */

enum { PID_SPACE, EQUAL_PIDS, IPC_SPACE, NET_SPACE, OTHER_UID, HIDDEN };

static void must_separate(int flags)
{
    if (unshare(flags) != 0)
        unanswered("unshare: %s", strerror(errno));
}

/* Run in a process that has number 1 in a new space of process numbers. */
static void run_as_first(void (*run)(int socket, int argument), int socket)
{
    must_separate(CLONE_NEWPID);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        run(socket, 0);
        _exit(0);
    }
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        unanswered("fork: %s", strerror(errno));
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 3);
}

static void export_as_first(int socket, int unused)
{
    (void)unused;
    run_as_first(export_memory, socket);
}

static void try_both(int socket, int unused)
{
    int fd = -1;
    CUdeviceptr at = 0;
    (void)unused;
    struct message message = peer_receive(socket, &fd);
    CUresult code = CODE(cuInit, 0);
    if (code != 0) {
        say("cuInit(): %s", driver_text(code));
        peer_signal(socket);
        return;
    }
    driver_enter();
    code = open_handle(&at, &message.memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    say("this process is number %d; the handle: %s", (int)getpid(), driver_text(code));
    struct memory mapped = memory_import(fd, BYTES, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    long wrong = memory_differs(mapped.at, BYTES, PATTERN, &code);
    say("the descriptor: mapped; read: %s, %ld bytes are wrong", driver_text(code), wrong);
    agree(wrong == 0);
    peer_signal(socket);
}

static void import_separated(int socket, int how)
{
    if (how == IPC_SPACE)
        must_separate(CLONE_NEWIPC);
    if (how == NET_SPACE)
        must_separate(CLONE_NEWNET);
    if (how == OTHER_UID && setresuid(OTHER_USER, OTHER_USER, OTHER_USER) != 0)
        unanswered("setresuid: %s", strerror(errno));
    if (how == HIDDEN)
        setenv("CUDA_VISIBLE_DEVICES", "", 1);
    if (how == HIDDEN)
        setenv("TENON_FAKECUDA_VISIBLE", "", 1); /* the fake's name for it */
    if (how == PID_SPACE || how == EQUAL_PIDS)
        run_as_first(try_both, socket);
    try_both(socket, 0);
}

static void ask_separated(int how)
{
    int fd = -1;
    struct peer importer = peer_start(import_separated, how);
    struct peer exporter = peer_start(how == EQUAL_PIDS ? export_as_first : export_memory, 0);
    struct message message = peer_receive(exporter.socket, &fd);
    peer_send(importer.socket, &message, fd);
    peer_await(importer.socket);
}

#define KEPT "the descriptor can be mapped"
const struct question opening_questions[] = {
    {"F3.1", "Can a process open a handle of its own?", "no: it uses its own address",
     ask_same_process, 0},
    {"F3.2", "What does opening a handle twice do?", "", ask_twice, 0},
    {"F3.3", "Can a handle be opened with flags 0?", "", ask_flags, 0},
    {"F3.4", "Can a handle be opened in a second context of a process?", "", ask_second_context,
     0},
    {"F3.5", "Can a handle be opened after its memory was freed?", "no", ask_late, 0},
    {"F3.6", "Can a handle be opened after its process has ended?", "no", ask_late, 1},
    {"F3.7", "From another space of process numbers?", KEPT, ask_separated, PID_SPACE},
    {"F3.8", "With the same number in another such space?", KEPT, ask_separated, EQUAL_PIDS},
    {"F3.9", "From another IPC space?", KEPT, ask_separated, IPC_SPACE},
    {"F3.10", "From another network space?", KEPT, ask_separated, NET_SPACE},
    {"F3.11", "As another user?", KEPT, ask_separated, OTHER_UID},
    {"F3.12", "By a process that sees no device?", "", ask_separated, HIDDEN},
    {0}};
