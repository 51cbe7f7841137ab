/* SPDX-License-Identifier: Apache-2.0 */
/*
 * killing: send SIGKILL to a worker when it is known which batch the worker has.
 *
 * The worker is stopped with SIGSTOP wherever it is, and inspected. If it has a batch in its
 * hands, it is killed while it is stopped; else it continues and is stopped again a moment
 * later. So the batch that the kill interrupts is known, and it is never one that was
 * acknowledged but not counted yet.
 */
#include "killing.h"
#include "clock.h"
#include "failure.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

enum { TRIES = 1000, RELEASE_LIMIT_S = 10, LOOK_NS = 50000 };

/* What the callbacks look for, and what they find. */
struct search {
    struct killing *killing;
    uint32_t incarnation;
    bool is_found;
};

static int find_by_pid(const tn_seat_entry *seat, void *context)
{
    struct search *search = context;
    if (seat->pid != search->killing->pid)
        return 0;
    search->killing->seat = seat->seat;
    search->killing->blocks = seat->blocks_held;
    search->killing->bytes = seat->bytes_held;
    search->incarnation = seat->incarnation;
    search->is_found = true;
    return 0;
}

static int find_by_seat(const tn_seat_entry *seat, void *context)
{
    struct search *search = context;
    if (seat->seat == search->killing->seat && seat->incarnation == search->incarnation)
        search->is_found = true;
    return 0;
}

__attribute__((format(printf, 3, 4))) static void append(char *text, size_t size,
                                                         const char *format, ...)
{
    size_t used = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + used, size - used, format, arguments);
    va_end(arguments);
}

/* As in "float32 [32, 64]"; what is no tensor, by its kind. */
static void describe(char *text, size_t size, const tn_block_entry *block)
{
    char name[32];
    append(text, size, "%s", text[0] != '\0' ? ", " : "");
    if (strcmp(block->kind, "tensor") != 0 ||
        tn_dtype_name(block->dtype, name, sizeof(name)) != 0) {
        append(text, size, "a %s", block->kind);
        return;
    }
    append(text, size, "%s [", name);
    for (int32_t axis = 0; axis < block->ndim && axis < 8; ++axis)
        append(text, size, "%s%lld", axis ? ", " : "", (long long)block->shape[axis]);
    append(text, size, "]");
}

static int add_own_block(const tn_block_entry *block, void *context)
{
    struct killing *killing = ((struct search *)context)->killing;
    if (block->holder_count != 1 || block->holders[0].pid != killing->pid)
        return 0;
    killing->own_blocks += 1;
    killing->own_bytes += block->bytes;
    describe(killing->own_things, sizeof(killing->own_things), block);
    return 0;
}

static void stop(int32_t pid)
{
    siginfo_t info;
    if (kill(pid, SIGSTOP) != 0 ||
        waitid(P_PID, (id_t)pid, &info, WSTOPPED | WEXITED | WNOWAIT) != 0 ||
        info.si_code != CLD_STOPPED)
        fail("process %d could not be stopped", pid);
}

/* What a stopped worker holds. @return its seat's incarnation */
static uint32_t look(tn_inspector *inspector, struct killing *killing)
{
    struct search search = {.killing = killing};
    must(tn_inspect_seats(inspector, find_by_pid, &search), "cannot look at the seats");
    if (!search.is_found)
        fail("process %d has no seat", killing->pid);
    must(tn_inspect_blocks(inspector, add_own_block, &search), "cannot look at the blocks");
    return search.incarnation;
}

static bool is_gone(tn_inspector *inspector, struct killing *killing, uint32_t incarnation)
{
    struct search search = {.killing = killing, .incarnation = incarnation};
    must(tn_inspect_seats(inspector, find_by_seat, &search), "cannot look at the seats");
    return !search.is_found;
}

/*
 * tenond, most likely, reclaims the worker; this process only watches. It sleeps between two
 * checks, because the dying worker and tenond need a processor, too.
 */
static void kill_and_time(tn_inspector *inspector, struct killing *killing,
                          uint32_t incarnation)
{
    uint64_t start = clock_ns();
    if (kill(killing->pid, SIGKILL) != 0)
        fail("process %d could not be killed", killing->pid);
    while (!is_gone(inspector, killing, incarnation)) {
        if (clock_ns() - start > (uint64_t)RELEASE_LIMIT_S * 1000000000u)
            fail("what process %d held was not released in %d s", killing->pid,
                 RELEASE_LIMIT_S);
        nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
    }
    killing->released_ms = (double)(clock_ns() - start) * 1e-6;
}

void killing_do(tn_inspector *inspector, struct worker *worker, struct killing *ret_killing)
{
    struct board_line *line = worker_line(worker);
    for (int try = 0; try < TRIES; ++try) {
        struct killing killing = {.role = worker->role, .pid = tn_process_pid(worker->process)};
        stop(killing.pid);
        if (atomic_load(&line->is_holding)) {
            uint32_t incarnation = look(inspector, &killing);
            if (killing.own_blocks > 0) {
                kill_and_time(inspector, &killing, incarnation);
                worker->process = tn_process_close(worker->process);
                *ret_killing = killing;
                return;
            }
        }
        kill(killing.pid, SIGCONT);
        worker_watch(worker, tn_deadline_after(TN_MILLISECOND));
    }
    fail("no %s was found with a batch in its hands", role_name(worker->role));
}
