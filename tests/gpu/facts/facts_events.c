/* SPDX-License-Identifier: Apache-2.0 */
/* F7: events between processes. tenon does not use them; these answers say whether it could. */
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "gpu/facts/facts.h"

enum { FLAGS = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING };
enum { SHORT_MS = 500, LONG_MS = 4000, MOST_EVENTS = 3000 };
/* What happens to the event before its importer is told. */
enum { RECORDED, NOT_RECORDED, DESTROYED_FIRST, DESTROYED_PENDING, KILLED_PENDING };

/* Work that takes a while; the fake has no kernels, so its record is not pending. */
static void begin_work(int how)
{
    if (how != DESTROYED_PENDING && how != KILLED_PENDING)
        return;
    NEED(cuModuleLoadData);
    uint64_t ms = how == KILLED_PENDING ? LONG_MS : SHORT_MS;
    kernel_spin(NULL, ms * 1000000, 0);
}

static void export_event(int socket, int how)
{
    CUevent event;
    struct message message = {0};
    driver_enter();
    CALL(cuEventCreate, &event, FLAGS);
    CALL(cuIpcGetEventHandle, &message.event, event);
    if (how == DESTROYED_FIRST)
        say("destroyed: %s", driver_text(CODE(cuEventDestroy, event)));
    peer_send(socket, &message, -1);
    peer_await(socket); /* it is open */
    begin_work(how);
    if (how != NOT_RECORDED && how != DESTROYED_FIRST)
        CALL(cuEventRecord, event, NULL);
    peer_signal(socket);
    peer_await(socket); /* the importer's stream waits for it */
    if (how == DESTROYED_PENDING)
        say("destroyed: %s", driver_text(CODE(cuEventDestroy, event)));
    peer_signal(socket);
    peer_await(socket);
}

static void ask_event(int how)
{
    CUevent event;
    CUstream stream;
    struct peer peer = peer_start(export_event, how);
    driver_enter();
    CALL(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    struct message message = peer_receive(peer.socket, NULL);
    CUresult code = CODE(cuIpcOpenEventHandle, &event, message.event);
    say("opened: %s", driver_text(code));
    if (code != 0)
        return;
    peer_signal(peer.socket);
    peer_await(peer.socket);
    say("cuStreamWaitEvent(): %s", driver_text(CODE(cuStreamWaitEvent, stream, event, 0)));
    uint64_t begun_ns = now_ns();
    if (how == KILLED_PENDING) {
        peer_kill(&peer);
    } else {
        peer_signal(peer.socket);
        peer_await(peer.socket);
    }
    code = stream_await(stream, 2 * LONG_MS);
    say("the waiting stream: %s after %.1f ms",
        code == CUDA_ERROR_NOT_READY ? "still waits" : driver_text(code),
        (double)(now_ns() - begun_ns) / 1e6);
    say("cuEventQuery(): %s", driver_text(CODE(cuEventQuery, event)));
    if (how == RECORDED || how == NOT_RECORDED)
        agree(code == 0);
}

static void ask_limit(int unused)
{
    CUevent event;
    CUipcEventHandle handle;
    CUresult code = 0;
    unsigned count = 0;
    (void)unused;
    driver_enter();
    for (uint64_t end_ns = now_ns() + UINT64_C(10000000000);
         count < sized(MOST_EVENTS, 1200) && now_ns() < end_ns; count++) {
        code = CODE(cuEventCreate, &event, FLAGS);
        if (code == 0)
            code = CODE(cuIpcGetEventHandle, &handle, event);
        if (code != 0)
            break;
    }
    say("%u events with handles could be made; the next one: %s", count,
        code == 0 ? "was not tried" : driver_text(code));
}

static void open_elsewhere(int socket, int unused)
{
    CUevent event;
    (void)unused;
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", "/dev/shm", "tmpfs", 0, NULL) != 0)
        unanswered("a /dev/shm of its own: %s", strerror(errno));
    struct message message = peer_receive(socket, NULL);
    driver_enter();
    say("opened with another /dev/shm: %s",
        driver_text(CODE(cuIpcOpenEventHandle, &event, message.event)));
    peer_signal(socket);
}

static void ask_elsewhere(int unused)
{
    (void)unused;
    struct peer importer = peer_start(open_elsewhere, 0);
    struct peer exporter = peer_start(export_event, NOT_RECORDED);
    struct message message = peer_receive(exporter.socket, NULL);
    peer_send(importer.socket, &message, -1);
    peer_await(importer.socket);
}

const struct question event_questions[] = {
    {"F7.1", "Does an event's handle order two processes?", "the wait ends", ask_event,
     RECORDED},
    {"F7.2", "What is a wait for an event that was never recorded?", "it ends at once",
     ask_event, NOT_RECORDED},
    {"F7.3", "Can an event be opened that was destroyed?", "", ask_event, DESTROYED_FIRST},
    {"F7.4", "What becomes of a wait if the pending event is destroyed?", "", ask_event,
     DESTROYED_PENDING},
    {"F7.5", "What becomes of a wait if the process of the pending event is killed?", "",
     ask_event, KILLED_PENDING},
    {"F7.6", "How many such events can a process have?", "", ask_limit, 0},
    {"F7.7", "Can a process with another /dev/shm open an event?", "", ask_elsewhere, 0},
    {0}};
