/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tiny_os: what the models of the domain use in place of the room os, and of rooms that they
 * do not explore.
 *
 * Process i is pid i + 1. Time passes only for a process that waits: when a process yields
 * and no other can go on, it has waited for a second. So a process that has patience for some
 * time has it for as long as others get on.
 */
#include "tiny_os.h"

#include "model.h"
#include "object/object.h"

enum { FD_OF_PROCESS = 100, SECOND_NS = 1000 * 1000 * 1000 };

static uint8_t *waited; /* private: how many waits of each process timed out */

/*
 * The state of the witness of each number: {processes that dropped what they inherited:8,
 * processes that took it:8}.
 */
enum { WITNESS_SEATS = 8, WITNESS_INCARNATIONS = 4, DROPPED = 8 };
static _Atomic uint32_t *witnesses;

static bool is_sliced;

void tiny_os_begin(bool has_slices)
{
    is_sliced = has_slices;
    waited = model_private(MODEL_MOST_PROCESSES + 1, 8);
    witnesses = model_shared(WITNESS_SEATS * WITNESS_INCARNATIONS * sizeof *witnesses, 8);
    tiny_heap_begin();
}

void tiny_os_calm(void) { waited[model_self()] = 0; }

bool tiny_os_is_dead(int32_t pid)
{
    uint32_t process = (uint32_t)pid - 1;
    return process < MODEL_MOST_PROCESSES ? model_is_dead(process) : pid >= TINY_DEAD_PID;
}

/* ---- time -------------------------------------------------------------------------------- */

uint64_t tni_os_now_ns(void) { return (uint64_t)waited[model_self()] * SECOND_NS; }
int64_t tni_os_clock_ahead_ns(void) { return 0; }
uint64_t tni_os_coarse_ns(void) { return 0; }

void tni_os_yield(void)
{
    if (!model_yield_timed())
        waited[model_self()]++;
}

void tni_os_sleep_until(uint64_t deadline_ns)
{
    (void)deadline_ns;
    tni_os_yield();
}

void tni_os_back_off(uint32_t tries)
{
    (void)tries;
    tni_os_yield();
}

/* ---- processes --------------------------------------------------------------------------- */

int32_t tni_os_pid(void) { return (int32_t)model_self() + 1; }

int tni_os_check_waits(void) { return 0; }

int tni_os_self(struct tni_os_process *ret_process)
{
    *ret_process = (struct tni_os_process){
        .pid = tni_os_pid(), .start_time = 1, .image = 1, .pid_space = 1};
    return 0;
}

int tni_os_process_state(const struct tni_os_process *process, bool check_image)
{
    (void)check_image;
    return tiny_os_is_dead(process->pid) ? TNI_OS_DEAD : TNI_OS_ALIVE;
}

const _Atomic uint32_t *tni_os_mark(void)
{
    static const _Atomic uint32_t always = 1;
    return &always;
}

bool tni_os_has_pid_space(uint64_t pid_space) { return pid_space == 1; }

bool tni_os_process_is_gone(int32_t pid) { return tiny_os_is_dead(pid); }

/* ---- witnesses --------------------------------------------------------------------------- */

static uint32_t witness_index(uint64_t number)
{
    return (uint32_t)(number >> 16) % WITNESS_INCARNATIONS * WITNESS_SEATS +
           (uint32_t)number % WITNESS_SEATS;
}

static bool has_witness(uint64_t number)
{
    uint32_t word = atomic_load(&witnesses[witness_index(number)]);
    for (uint32_t p = 0; p < MODEL_MOST_PROCESSES; p++) {
        bool has = (word >> p & 1) != 0 ||
                   ((word >> (DROPPED + p) & 1) == 0 && tiny_has_inherited(p, number));
        if (has && !model_is_dead(p))
            return true;
    }
    return false;
}

int tni_os_witness_take(int fd, uint64_t number, void **ret_witness)
{
    (void)fd;
    if (has_witness(number))
        return TN_ERR_EXISTS;
    atomic_fetch_or(&witnesses[witness_index(number)], 1u << model_self());
    *ret_witness = (void *)(uintptr_t)(number + 1);
    return 0;
}

/* The forking process says what its child inherits. */
void tni_os_witness_keep(void *witness) { (void)witness; }

void tni_os_witness_drop(void *witness)
{
    if (witness == NULL)
        return;
    _Atomic uint32_t *word = &witnesses[witness_index((uintptr_t)witness - 1)];
    atomic_fetch_or(word, 1u << (DROPPED + model_self()));
    atomic_fetch_and(word, ~(1u << model_self()));
}

int tni_os_witness_state(int fd, uint64_t number)
{
    (void)fd;
    return has_witness(number) ? TNI_OS_ALIVE : TNI_OS_DEAD;
}

int tni_os_process_open(int32_t pid, int *ret_fd)
{
    if (tiny_os_is_dead(pid))
        return TN_ERR_NOT_FOUND;
    *ret_fd = FD_OF_PROCESS + pid;
    return 0;
}

int tni_os_poll(const int *fds, uint32_t count, uint64_t deadline_ns)
{
    (void)count;
    (void)deadline_ns;
    if (fds[0] < FD_OF_PROCESS)
        return tiny_pipe_poll();
    return tiny_os_is_dead(fds[0] - FD_OF_PROCESS) ? 0 : TN_ERR_TIMED_OUT;
}

int tni_os_process_signal(int pid_fd, int signal)
{
    (void)pid_fd;
    (void)signal;
    model_require(false, "nobody is killed by the reaper: no seat ends with its parent");
    return 0;
}

int tni_os_process_signal_number(int32_t pid, int signal)
{
    return tni_os_process_signal(pid, signal);
}

void tni_os_process_command(int32_t pid, char *text, size_t size_bytes)
{
    (void)pid;
    (void)text;
    (void)size_bytes;
}

void tni_os_close(int fd)
{
    if (fd >= 0 && fd < FD_OF_PROCESS)
        tiny_pipe_close(fd);
}

/* ---- memory ------------------------------------------------------------------------------ */

size_t tni_os_page_bytes(void) { return 4096; }

int tni_os_map_private(uint64_t size_bytes, void **ret_address)
{
    *ret_address = tiny_calloc(1, size_bytes);
    return 0;
}

void tni_os_unmap(void *address, uint64_t size_bytes)
{
    (void)address;
    (void)size_bytes;
}

bool tni_os_empty_in_children(void *address, uint64_t size_bytes)
{
    (void)address;
    (void)size_bytes;
    return false; /* as on a system that cannot do this: the child does it */
}

/* Only tenond maps windows. */
int tni_os_map_part(int fd, uint64_t offset, uint64_t size_bytes, void **ret_address)
{
    (void)fd;
    (void)offset;
    (void)size_bytes;
    (void)ret_address;
    model_require(false, "no model maps a window");
    return TN_ERR_SYSTEM;
}

int tni_os_punch(int fd, uint64_t offset, uint64_t size_bytes)
{
    (void)fd;
    (void)offset;
    (void)size_bytes;
    model_require(false, "no model has a window");
    return TN_ERR_SYSTEM;
}

int tni_os_at_fork(void (*prepare)(void), void (*parent)(bool), void (*child)(void))
{
    (void)prepare;
    (void)parent;
    (void)child;
    return 0;
}

/* ---- sleeping ---------------------------------------------------------------------------- */

int tni_os_wait(_Atomic uint32_t *word, uint32_t expected, uint64_t deadline_ns)
{
    if (deadline_ns - tni_os_now_ns() < SECOND_NS / 10) {
        if (model_sleep_timed(word, expected))
            return 0;
        waited[model_self()]++; /* the deadline has passed */
        return TN_ERR_TIMED_OUT;
    }
    if (is_sliced)
        return model_sleep_slice(word, expected) ? 0 : TN_ERR_TIMED_OUT;
    model_sleep(word, expected);
    return 0;
}

int tni_os_wake(_Atomic uint32_t *word, uint32_t count) { return (int)model_wake(word, count); }

/* ---- bells: process i's has the number i + 1 and the descriptor i -------------------------
 */

static _Atomic uint32_t *readable; /* by process; a system call changes it in one step */

void tiny_bells_begin(unsigned count)
{
    readable = model_shared(count * sizeof *readable, 64);
    model_name(readable, count * sizeof *readable, "readable");
}

bool tni_os_bell_ring(uint64_t number)
{
    atomic_exchange(&readable[number - 1], 1);
    return true;
}

void tni_os_bell_clear(int fd) { atomic_exchange(&readable[fd], 0); }

void tiny_poll(int fd)
{
    while (atomic_load(&readable[fd]) == 0)
        model_yield();
}

/* ---- kill points: steps at which a process can die --------------------------------------- */

#if defined(TN_KILL_POINTS)
void tni_kill_point(const char *name) { model_point(name); }
void tni_kill_point_arm(const char *name, uint32_t passing)
{
    (void)name;
    (void)passing;
}
#endif
