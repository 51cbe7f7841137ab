/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The killer: a process that is no member. It finds its victims among all descendants of the
 * conductor, so also those in the middle of fork, tenond and the vault.
 *
 * I1  A pid is opened as a pidfd, and then checked again: no other process is killed.
 * I2  The killer continues or kills each process that it stopped, before it rests.
 * I3  A consumer in the middle of a pop is stopped first, and inspected: if it has a slot
 *     TAKEN, or sleeps, it has no message in hand, and the account says so.
 */
#include "soak.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "api/inspect.h"
#include "process/process.h"
#include "queue/queue.h"

enum { TREE = 256, STOPPED = 4, BURST = 6, LOOKS = 400, KILLED = 64, AWAIT_MS = 10000 };
static const uint64_t hunt_ns = 5 * SOAK_MS_NS, keepers_ns = 500 * SOAK_MS_NS;

static pid_t conductor;
static tn_inspector *inspector;
static struct {
    pid_t pid;
    int fd; /* -1: none */
} killed[KILLED];
static int killed_next;
static struct {
    pid_t pid;
    int fd;
    uint64_t until_ns;
} stopped[STOPPED];

/* ---- processes --------------------------------------------------------------------------- */

static bool is_in_tree(pid_t pid)
{
    pid_t tree[TREE];
    uint32_t count = soak_list_tree(conductor, tree, TREE);
    for (uint32_t i = 0; i < count; i++)
        if (tree[i] == pid)
            return true;
    return false;
}

static struct soak_slot *slot_of(pid_t pid)
{
    for (uint32_t i = 0; i < SOAK_SLOTS; i++)
        if (atomic_load(&soak->slots[i].pid) == pid)
            return &soak->slots[i];
    return NULL;
}

static enum soak_role role_of(pid_t pid, const struct soak_slot *slot)
{
    char name[32];
    if (slot != NULL)
        return atomic_load(&slot->role);
    if (pid == atomic_load(&soak->server_pid))
        return SOAK_SERVER;
    soak_process_name(pid, name);
    if (strcmp(name, "tenond") == 0)
        return SOAK_TENOND;
    return strcmp(name, "tenond-vault") == 0 ? SOAK_VAULT : SOAK_UNNAMED;
}

/* I1. @return a pidfd, or -1 */
static int open_victim(pid_t pid)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0)
        return -1;
    if (pid != getpid() && is_in_tree(pid))
        return fd;
    close(fd);
    return -1;
}

static bool send_signal(int fd, int number)
{
    return syscall(SYS_pidfd_send_signal, fd, number, NULL, 0) == 0;
}

/* ---- looking before the kill ------------------------------------------------------------- */

static uint32_t seat_of(pid_t pid)
{
    const struct tni_segment *s = &inspector->segment;
    for (uint32_t i = 0; i < s->geometry.seats; i++)
        if (atomic_load(&tni_seat_at(s, i)->pid) == pid &&
            tni_seat_state(atomic_load(&tni_seat_at(s, i)->word)) == TNI_SEAT_ALIVE)
            return i;
    return TNI_NO_SEAT;
}

static bool has_taken(uint32_t queue, uint32_t seat)
{
    const struct soak_queue_book *book = &soak->queues[queue];
    const uint8_t *ring = inspector->segment.arena;
    ring += book->ring_offset;
    for (uint32_t i = 0; i < book->capacity; i++) {
        const struct tni_slot *slot = (const void *)(ring + (size_t)i * book->slot_bytes);
        uint64_t word = atomic_load(&slot->word);
        if (tni_slot_state(word) == TNI_SLOT_TAKEN && tni_slot_seat(word) == seat)
            return true;
    }
    return false;
}

static bool await_stop(pid_t pid)
{
    for (int i = 0; i < LOOKS; i++) {
        char state = soak_process_state(pid);
        if (state == 'T')
            return true;
        if (state == 0 || state == 'Z')
            return false;
        sched_yield();
    }
    return false;
}

/* Whether the process sleeps on a futex: then it has found no message yet. */
static bool is_waiting(pid_t pid)
{
    char path[64], text[256] = "";
    long number = -1;
    unsigned long word = 0, operation = 0;
    snprintf(path, sizeof path, "/proc/%d/syscall", (int)pid);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    bool is_read = fgets(text, sizeof text, file) != NULL;
    fclose(file);
    if (!is_read || sscanf(text, "%ld %lx %lx", &number, &word, &operation) != 3)
        return false;
    operation &= (unsigned long)(unsigned)FUTEX_CMD_MASK;
    return number == SYS_futex && (operation == FUTEX_WAIT || operation == FUTEX_WAIT_BITSET);
}

/* I3 */
static void look(pid_t pid, int fd, struct soak_slot *slot)
{
    if (slot == NULL || atomic_load(&slot->deed) != SOAK_POPPING || !send_signal(fd, SIGSTOP) ||
        !await_stop(pid) || atomic_load(&slot->deed) != SOAK_POPPING)
        return;
    uint32_t queue = atomic_load(&slot->queue), seat = seat_of(pid);
    if (seat != TNI_NO_SEAT && has_taken(queue, seat)) {
        atomic_store(&slot->seen_as, SOAK_SEEN_TAKING);
        soak_count(SOAK_N_TAKERS, 1);
    } else if (is_waiting(pid)) {
        atomic_store(&slot->seen_as, SOAK_SEEN_WAITING);
        soak_count(SOAK_N_WAITERS, 1);
    }
}

/* ---- killing ----------------------------------------------------------------------------- */

/*
 * After a kill of tenond or its vault, wait until it runs again and has what the other one
 * keeps: else most memory objects would be lost, as docs/crash.md allows. A pool needs time
 * to start, too.
 */
static bool is_spared(enum soak_role role)
{
    static uint64_t spared_until_ns;
    if (role != SOAK_TENOND && role != SOAK_VAULT)
        return false;
    if (soak_now_ns() < spared_until_ns && soak_chance(90))
        return true;
    spared_until_ns = soak_now_ns() + keepers_ns;
    return false;
}

/*
 * A process that got SIGKILL ends a little later: it gets no second one, and a rest waits for
 * it.
 */
static void remember(pid_t pid, int fd)
{
    close(killed[killed_next].fd);
    killed[killed_next].pid = pid;
    killed[killed_next].fd = fd;
    killed_next = (killed_next + 1) % KILLED;
}

static bool ends_within(int fd, int ms)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    return fd < 0 || poll(&poll_fd, 1, ms) == 1;
}

static bool is_dying(pid_t pid)
{
    for (int i = 0; i < KILLED; i++)
        if (killed[i].pid == pid && !ends_within(killed[i].fd, 0))
            return true;
    return false;
}

static void await_deaths(void)
{
    for (int i = 0; i < KILLED; i++)
        ends_within(killed[i].fd, AWAIT_MS);
}

/* @return whether it was alive until this kill */
static bool kill_one(pid_t pid, bool spares)
{
    struct soak_slot *slot = slot_of(pid);
    enum soak_role role = role_of(pid, slot);
    if (is_dying(pid))
        return false;
    if (spares && ((role == SOAK_POOL && !soak_chance(30)) || is_spared(role)))
        return false;
    int fd = open_victim(pid);
    if (fd < 0)
        return false;
    look(pid, fd, slot);
    uint32_t deed = slot != NULL ? atomic_load(&slot->deed) : (uint32_t)SOAK_NOTHING;
    bool is_killed = soak_process_state(pid) != 'Z' && send_signal(fd, SIGKILL);
    if (is_killed) {
        soak_count(SOAK_N_KILLS, 1);
        atomic_fetch_add(&soak->kills[role], 1);
        if (slot != NULL)
            atomic_fetch_add(&soak->kills_at[deed], 1);
    }
    remember(pid, fd);
    return is_killed;
}

static pid_t some_process(void)
{
    pid_t tree[TREE];
    uint32_t count = soak_list_tree(conductor, tree, TREE);
    return count > 0 ? tree[soak_below(count)] : 0;
}

/* The pid of a process that reclaims another one at this moment; 0: none. */
static pid_t find_reclaimer(void)
{
    const struct tni_segment *s = &inspector->segment;
    for (uint32_t i = 0; i < s->geometry.seats; i++) {
        uint64_t word = atomic_load(&tni_seat_at(s, i)->word);
        uint32_t recoverer = tni_seat_recoverer(word) % TNI_MAX_SEATS; /* reclaim.c */
        if (tni_seat_state(word) == TNI_SEAT_REAPING &&
            tni_geometry_has_seat(&s->geometry, recoverer))
            return atomic_load(&tni_seat_at(s, recoverer)->pid);
    }
    return 0;
}

/* The process that begins to reclaim the victim is killed next. */
static void kill_with_reclaimer(pid_t victim)
{
    uint64_t end_ns = soak_now_ns() + hunt_ns;
    pid_t pid = 0;
    kill_one(victim, true);
    while (pid == 0 && soak_now_ns() < end_ns)
        pid = find_reclaimer();
    if (pid != 0 && pid != conductor && kill_one(pid, soak_chance(60)))
        soak_count(SOAK_N_RECLAIMERS, 1);
}

static void stop_one(pid_t pid)
{
    for (int i = 0; i < STOPPED; i++) {
        if (stopped[i].pid != 0)
            continue;
        int fd = open_victim(pid);
        if (fd >= 0 && send_signal(fd, SIGSTOP)) {
            stopped[i].pid = pid;
            stopped[i].fd = fd;
            stopped[i].until_ns = soak_until_ns(soak_below(50));
            soak_count(SOAK_N_STOPS, 1);
        } else if (fd >= 0) {
            close(fd);
        }
        return;
    }
}

/* I2 */
static void continue_stopped(bool all)
{
    for (int i = 0; i < STOPPED; i++) {
        if (stopped[i].pid == 0 || (!all && soak_now_ns() < stopped[i].until_ns))
            continue;
        send_signal(stopped[i].fd, SIGCONT);
        if (soak_chance(20))
            kill_one(stopped[i].pid, true);
        close(stopped[i].fd);
        stopped[i].pid = 0;
    }
}

static void strike_many(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        pid_t pid = some_process();
        if (pid != 0)
            kill_one(pid, true);
    }
}

static void strike(void)
{
    uint32_t dice = soak_below(100);
    if (dice < 3) {
        stop_one(some_process());
    } else if (dice < 6) {
        soak_count(SOAK_N_BURSTS, 1);
        strike_many(2 + soak_below(BURST));
    } else if (dice < 14) {
        kill_with_reclaimer(some_process());
    } else {
        strike_many(1);
    }
}

static void sleep_ns(uint64_t ns)
{
    struct timespec pause = {(time_t)(ns / SOAK_S_NS), (long)(ns % SOAK_S_NS)};
    nanosleep(&pause, NULL);
}

/* Right before the audit, kill a few more processes. */
static void rest(void)
{
    continue_stopped(true);
    strike_many(BURST);
    await_deaths();
    atomic_store(&soak->killer_rests, 2);
    soak_tell();
    while (atomic_load(&soak->killer_rests) == 2)
        sleep_ns(SOAK_MS_NS);
}

/* The rate of kills is an average without the pauses. */
static void run(void)
{
    uint64_t pause_ns = SOAK_S_NS / soak->kills_per_second, next_ns = soak_now_ns();
    while (getppid() == conductor && atomic_load(&soak->failed) == 0) {
        if (atomic_load(&soak->killer_rests) == 1) {
            rest();
            next_ns = soak_now_ns();
        }
        continue_stopped(false);
        uint64_t now_ns = soak_now_ns();
        if (now_ns < next_ns) {
            sleep_ns(next_ns - now_ns < SOAK_MS_NS ? next_ns - now_ns : SOAK_MS_NS);
            continue;
        }
        next_ns += soak_random() % (2 * pause_ns);
        if (now_ns > next_ns + SOAK_S_NS)
            next_ns = now_ns;
        strike();
    }
    continue_stopped(true);
    _exit(0);
}

pid_t soak_killer_start(void)
{
    conductor = getpid();
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, "soak-killer");
    soak_seed(soak->seed ^ UINT64_C(0x6b696c6c));
    for (int i = 0; i < KILLED; i++)
        killed[i].fd = -1;
    while (atomic_load(&soak->killer_rests) == 1) /* until there is a domain */
        sleep_ns(SOAK_MS_NS);
    if (tn_inspector_open(soak->domain, &inspector) != 0)
        soak_fail_status(SOAK_ON_LIVENESS, "the killer's inspector", TN_ERR_NOT_FOUND);
    run();
    _exit(0);
}
