/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seats: tells whether the processes in the table of seats are alive. process.c has the nouns
 * and the invariants. This file does not write shared memory. Callers: every room above.
 */
#include "process/process.h"

/* ---- one seat ---------------------------------------------------------------------------- */

/*
 * The state of a process of which only the pid is known, not the start time: DEAD if no process
 * has the pid, else UNKNOWN. UNKNOWN also for a pid of another namespace. If pid_space is 0,
 * the claimer of the seat has not written it yet.
 */
static int pid_state(int32_t pid, uint64_t pid_space)
{
    if (pid_space != 0 && !tni_os_has_pid_space(pid_space))
        return TNI_OS_UNKNOWN;
    return tni_os_process_is_gone(pid) ? TNI_OS_DEAD : TNI_OS_UNKNOWN;
}

/*
 * A copy of a seat's identity of its process. If the seat changes hands during the copy, the
 * copy is a mixture; is_unchanged() checks that.
 */
struct snapshot {
    uint64_t word;
    struct tni_os_process process;
    bool is_by_word; /* the identity is not written yet: the word names the process (I3) */
};

static struct snapshot read_seat(const struct tni_seat *entry)
{
    uint64_t word = atomic_load(&entry->word);
    struct snapshot seen = {.word = word,
                            .process = {.pid = atomic_load(&entry->pid),
                                        .start_time = TNI_LOOK(entry->start_time),
                                        .image = TNI_LOOK(entry->image),
                                        .pid_space = TNI_LOOK(entry->pid_space)}};
    seen.is_by_word = seen.process.pid == 0 || (tni_seat_state(word) == TNI_SEAT_JOINING &&
                                                seen.process.pid != tni_seat_pid(word));
    return seen;
}

static bool is_unchanged(const struct tni_seat *entry, const struct snapshot *seen)
{
    atomic_thread_fence(memory_order_acquire);
    return atomic_load(&entry->pid) == seen->process.pid &&
           atomic_load(&entry->word) == seen->word;
}

/* Ask the kernel for the witness (I4). UNKNOWN: no witness, or no usable control descriptor. */
static int witness_state(const struct tni_segment *s, uint32_t seat, uint64_t word)
{
    if ((word & TNI_SEAT_WITNESSED) == 0)
        return TNI_OS_UNKNOWN;
    int state = tni_os_witness_state(s->control_fd,
                                     tni_witness_number(seat, tni_seat_incarnation(word)));
    /*
     * The program may have closed the control descriptor, and another file, which has no
     * witnesses, may have its number now.
     */
    if (state == TNI_OS_DEAD && !tni_segment_has_control(s))
        return TNI_OS_UNKNOWN;
    return state;
}

/* The state of the process according to its pid and start time. */
static int pid_and_start_state(const struct snapshot *seen)
{
    if (seen->is_by_word)
        return pid_state(tni_seat_pid(seen->word), seen->process.pid_space);
    int state = tni_os_process_state(&seen->process, true);
    return state == TNI_OS_EXECED ? TNI_OS_DEAD : state;
}

/*
 * The state of a process whose witness says ALIVE, because its memory exists. A reader of /proc
 * may keep the memory for a moment after the process has ended; then the pid shows its end.
 */
static int witnessed_state(const struct snapshot *seen)
{
    bool is_over = !seen->is_by_word && tni_os_has_pid_space(seen->process.pid_space) &&
                   tni_os_process_is_gone(seen->process.pid);
    return is_over ? TNI_OS_DEAD : TNI_OS_ALIVE;
}

int tni_process_seat_state(const struct tni_segment *s, uint32_t seat)
{
    const struct tni_seat *entry = tni_seat_at(s, seat);
    struct snapshot seen = read_seat(entry);
    uint32_t state = tni_seat_state(seen.word);
    bool is_disowned =
        state == TNI_SEAT_JOINING && tni_seat_recoverer(seen.word) == TNI_SEAT_NOBODY;
    if (state == TNI_SEAT_FREE || is_disowned)
        return TNI_OS_DEAD;
    int life = state != TNI_SEAT_REAPING ? witness_state(s, seat, seen.word) : TNI_OS_UNKNOWN;
    if (life == TNI_OS_ALIVE)
        life = witnessed_state(&seen);
    else if (life == TNI_OS_UNKNOWN)
        life = pid_and_start_state(&seen);
    /* If the seat changed hands meanwhile, `life` may come from data of two processes. */
    return life == TNI_OS_ALIVE || is_unchanged(entry, &seen) ? life : TNI_OS_UNKNOWN;
}

bool tni_process_is_here(const struct tni_segment *s, uint32_t seat)
{
    const struct tni_seat *entry = tni_seat_at(s, seat);
    struct snapshot seen = read_seat(entry);
    return tni_seat_state(seen.word) != TNI_SEAT_FREE && !seen.is_by_word &&
           tni_os_process_state(&seen.process, false) == TNI_OS_ALIVE &&
           is_unchanged(entry, &seen);
}

uint32_t tni_process_who_state(const struct tni_segment *s, uint64_t who)
{
    uint32_t seat = tni_who_seat(who);
    if ((who & 0xffff) != 1 || !tni_geometry_has_seat(&s->geometry, seat))
        return TNI_SEAT_FREE;
    uint64_t word = atomic_load(&tni_seat_at(s, seat)->word);
    return tni_seat_incarnation(word) == tni_who_incarnation(who) ? tni_seat_state(word)
                                                                  : TNI_SEAT_FREE;
}

bool tni_process_who_lives(const struct tni_segment *s, uint64_t who)
{
    uint32_t state = tni_process_who_state(s, who);
    return state != TNI_SEAT_FREE && state != TNI_SEAT_REAPING;
}

bool tni_process_who_runs(const struct tni_segment *s, uint64_t who)
{
    /* If `who` has the seat before and after, the state is that of the process of `who`. */
    return tni_process_who_lives(s, who) &&
           tni_process_seat_state(s, tni_who_seat(who)) != TNI_OS_DEAD &&
           tni_process_who_lives(s, who);
}

/* ---- all seats --------------------------------------------------------------------------- */

static uint32_t count_taken(const struct tni_segment *s, bool is_manager)
{
    uint32_t count = 0, limit = tni_seat_limit(s);
    for (uint32_t seat = 0; seat < limit; seat++) {
        const struct tni_seat *entry = tni_seat_at(s, seat);
        count += tni_seat_state(atomic_load(&entry->word)) != TNI_SEAT_FREE &&
                 ((atomic_load(&entry->flags) & TNI_SEAT_MANAGER) != 0) == is_manager;
    }
    return count;
}

uint32_t tni_process_count(const struct tni_segment *s) { return count_taken(s, false); }

uint32_t tni_process_limit(const struct tni_segment *s)
{
    return s->geometry.seats - count_taken(s, true);
}

uint32_t tni_seat_set_count(const struct tni_seat_set *set, uint32_t except)
{
    uint32_t count = 0;
    for (uint32_t w = 0; w < TNI_SEAT_WORDS; w++)
        count += (uint32_t)__builtin_popcountll(atomic_load(&set->word[w]));
    return count - (except < TNI_MAX_SEATS && tni_seat_set_has(set, except));
}

/* ---- whether a seat is or becomes free --------------------------------------------------- */

uint32_t tni_process_count_dead(const struct tni_segment *s)
{
    uint32_t count = 0, limit = tni_seat_limit(s);
    for (uint32_t seat = 0; seat < limit; seat++) {
        uint32_t state = tni_seat_state(atomic_load(&tni_seat_at(s, seat)->word));
        if (state == TNI_SEAT_FREE)
            continue;
        count += state == TNI_SEAT_REAPING || tni_process_seat_state(s, seat) == TNI_OS_DEAD;
    }
    return count;
}

bool tni_process_has_joining(const struct tni_segment *s)
{
    uint32_t seat = 0, limit = tni_seat_limit(s);
    while (seat < limit &&
           (tni_seat_state(atomic_load(&tni_seat_at(s, seat)->word)) != TNI_SEAT_JOINING ||
            tni_process_seat_state(s, seat) == TNI_OS_DEAD))
        seat++;
    return seat < limit;
}

/*
 * Whether at one moment a live process had each seat. Incarnations only rise, so if their sum
 * is the same before and after, no seat changed hands in between. A process that is found alive
 * was also alive at the beginning.
 */
static bool is_full(const struct tni_segment *s)
{
    uint64_t before = 0, after = 0;
    for (uint32_t seat = 0; seat < s->geometry.seats; seat++)
        before += tni_seat_incarnation(atomic_load(&tni_seat_at(s, seat)->word));
    for (uint32_t seat = 0; seat < s->geometry.seats; seat++) {
        uint64_t word = atomic_load(&tni_seat_at(s, seat)->word);
        if (tni_seat_state(word) == TNI_SEAT_REAPING ||
            tni_process_seat_state(s, seat) ==
                TNI_OS_DEAD) /* also after the seat became FREE */
            return false;
        after += tni_seat_incarnation(word);
    }
    return before == after;
}

bool tni_process_await_seat(const struct tni_segment *s, struct tni_seat_wait *wait)
{
    uint64_t now_ns = tni_os_now_ns();
    if (wait->until_ns == 0)
        wait->until_ns = now_ns + TNI_SEAT_PATIENCE_NS;
    if (now_ns >= wait->until_ns || is_full(s))
        return false;
    tni_os_back_off(wait->tries++);
    return true;
}
