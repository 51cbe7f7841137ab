/* SPDX-License-Identifier: Apache-2.0 */
/* The processes of a universe, and what the kernel does for the driver when one ends. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fakecuda/state.h"

/* Field 22 of /proc/PID/stat; 0 if there is none. */
static uint64_t start_time_of(int pid)
{
    char path[40], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    text[length > 0 ? length : 0] = 0;
    char *field = strrchr(text, ')');
    for (int i = 2; field && i < 22; i++)
        field = strchr(field + 1, ' ');
    return field ? strtoull(field + 1, NULL, 10) : 0;
}

/*
 * A descriptor of a process is readable when all its threads have ended, and so have let go
 * of their files: then the driver has reclaimed what the process held.
 */
static bool is_alive(const struct process *process)
{
    int fd = (int)syscall(SYS_pidfd_open, process->pid, 0);
    if (fd < 0)
        return errno != ESRCH;
    struct pollfd ended = {.fd = fd, .events = POLLIN};
    int count = poll(&ended, 1, 0);
    close(fd);
    uint64_t start_time = start_time_of(process->pid);
    bool is_another = start_time && process->start_time && start_time != process->start_time;
    return count == 0 && !is_another;
}

static void drop_handles(int process)
{
    for (int i = 0; i < universe->handle_end; i++) {
        struct handle *handle = &universe->handles[i];
        if (!handle->value || handle->process != process)
            continue;
        int allocation = handle->allocation;
        *handle = (struct handle){0};
        universe->allocations[allocation].handle_count--;
        allocation_settle(allocation);
    }
}

static void drop_mappings(int process)
{
    for (int i = 0; i < universe->mapping_end; i++)
        if (universe->mappings[i].kind && universe->mappings[i].process == process)
            mapping_destroy(i);
}

static void leave_inflight(int process)
{
    for (int i = 0; i < universe->inflight_end; i++) {
        struct inflight *work = &universe->inflight[i];
        if (work->state != INFLIGHT_LIVE || work->process != process)
            continue;
        work->state = universe->options.world == FAKE_KEEP ? INFLIGHT_ORPHAN : INFLIGHT_NONE;
        work->turn = universe->turn;
    }
}

void process_reap(int process)
{
    struct process *gone = &universe->processes[process];
    universe->turn++;
    leave_inflight(process);
    legacy_drop(process);
    events_drop(process);
    drop_mappings(process);
    drop_handles(process);
    for (int i = 0; i < AGENTS; i++)
        if (universe->agent_process[i] == process + 1)
            agent_destroy(i);
    *gone = (struct process){0};
}

void processes_sweep(void)
{
    for (int i = 0; i < MAX_PROCESSES; i++) {
        const struct process *process = &universe->processes[i];
        bool is_mine = local.pid && !local.is_detached && i == local.process;
        if (process->state == PROCESS_LIVE && !is_mine && !is_alive(process))
            process_reap(i);
    }
}

static int fake_pid(void)
{
    const char *text = getenv("TENON_FAKECUDA_PID");
    return text && *text ? atoi(text) : getpid();
}

void processes_attach(void)
{
    processes_sweep();
    int free_slot = -1;
    for (int i = 0; i < MAX_PROCESSES; i++) {
        /* A process that calls exec keeps its id, and has lost what it held. */
        if (universe->processes[i].state == PROCESS_LIVE &&
            universe->processes[i].pid == getpid())
            process_reap(i);
        if (universe->processes[i].state == PROCESS_NONE && free_slot < 0)
            free_slot = i;
    }
    if (free_slot < 0)
        abort();
    local.process = free_slot;
    *me() = (struct process){.state = PROCESS_LIVE,
                             .pid = getpid(),
                             .fake_pid = fake_pid(),
                             .start_time = start_time_of(getpid()),
                             .instance = universe_id()};
    me()->agent = agent_create(free_slot);
}

/* ---- the end of this process ------------------------------------------------------------- */

static void check_handles(void)
{
    for (int i = 0; i < universe->handle_end; i++)
        if (universe->handles[i].value && universe->handles[i].process == local.process)
            violation("R44", "a handle of %llu bytes is not released",
                      (unsigned long long)universe->allocations[universe->handles[i].allocation]
                          .bytes);
}

static void check_mappings(void)
{
    for (int i = 0; i < universe->mapping_end; i++) {
        const struct mapping *mapping = &universe->mappings[i];
        if (mapping->process != local.process)
            continue;
        if (mapping->kind == MAPPING_VMM)
            violation("R44", "a mapping of %llu bytes is left",
                      (unsigned long long)mapping->bytes);
        if (mapping->kind == MAPPING_IMPORT)
            violation("R24", "a handle of memory is not closed");
    }
}

static void check_ranges(void)
{
    for (struct range *range = local.ranges; range; range = range->next)
        if (range->is_reserved)
            violation("R44", "a reservation of %llu bytes is left",
                      (unsigned long long)range->bytes);
}

void fake_detach(void)
{
    if (!universe || local.pid != getpid() || local.is_detached)
        return;
    streams_end();
    universe_lock();
    if (!me()->faulted) {
        check_handles();
        check_mappings();
        check_ranges();
        registered_check_end();
        contexts_check_end();
        legacy_check_end();
        events_check_end();
    }
    process_reap(local.process);
    local.is_detached = true;
    universe_unlock();
}

__attribute__((destructor)) static void detach_at_exit(void) { fake_detach(); }
