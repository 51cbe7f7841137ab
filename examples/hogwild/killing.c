/* SPDX-License-Identifier: Apache-2.0 */
/*
 * killing: a SIGKILL at a moment of which the whole account is known.
 *
 * The worker is stopped (SIGSTOP) wherever it is, looked at from outside, and killed without
 * having moved again if it has a batch in its hands; else it goes on and is tried a moment later.
 * So what it held is exactly known, and a batch is never between acknowledged and counted.
 */
#include "killing.h"
#include "clock.h"
#include "failure.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

enum { TRIES = 1000, RELEASE_LIMIT_S = 10 };

/* What the callbacks look for, and what they find. */
struct search {
    struct killing *killing;
    uint32_t incarnation;
    bool is_found;
};

static int find_by_pid(const tn_seat_info *seat, void *context)
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

static int find_by_seat(const tn_seat_info *seat, void *context)
{
    struct search *search = context;
    if (seat->seat == search->killing->seat && seat->incarnation == search->incarnation)
        search->is_found = true;
    return 0;
}

static void add_shape(char *text, size_t size, const tn_block_info *block)
{
    char name[32] = "?";
    size_t used = strlen(text);
    if (tn_dtype_name(block->dtype, name, sizeof(name)) != 0)
        return;
    used += (size_t)snprintf(text + used, size - used, "%s%s [", used ? ", " : "", name);
    for (int32_t axis = 0; axis < block->ndim && axis < 8 && used < size; ++axis)
        used += (size_t)snprintf(text + used, size - used, "%s%lld", axis ? ", " : "",
                                 (long long)block->shape[axis]);
    if (used < size)
        snprintf(text + used, size - used, "]");
}

static int add_own_block(const tn_block_info *block, void *context)
{
    struct killing *killing = ((struct search *)context)->killing;
    if (block->holder_count != 1 || block->holders[0].pid != killing->pid)
        return 0;
    killing->own_blocks += 1;
    killing->own_bytes += block->bytes;
    if (strlen(killing->own_shapes) + 1 < sizeof(killing->own_shapes))
        add_shape(killing->own_shapes, sizeof(killing->own_shapes), block);
    return 0;
}

static void stop(int32_t pid)
{
    siginfo_t info;
    if (kill(pid, SIGSTOP) != 0 || waitid(P_PID, (id_t)pid, &info, WSTOPPED | WEXITED | WNOWAIT) != 0 ||
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

/* Whoever reaps first does it, most likely tenond; this process only watches. */
static void kill_and_time(tn_inspector *inspector, struct killing *killing, uint32_t incarnation)
{
    uint64_t start = clock_ns();
    if (kill(killing->pid, SIGKILL) != 0)
        fail("process %d could not be killed", killing->pid);
    while (!is_gone(inspector, killing, incarnation)) {
        if (clock_ns() - start > (uint64_t)RELEASE_LIMIT_S * 1000000000u)
            fail("what process %d held was not released in %d s", killing->pid, RELEASE_LIMIT_S);
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
        worker_watch(worker, tn_deadline_after(1000000));
    }
    fail("no %s was found with a batch in its hands", role_name(worker->role));
}
