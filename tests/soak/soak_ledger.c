/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ledger: shared memory that tenon does not know, in which each process writes what it
 * does.
 */
#include "soak.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct soak_ledger *soak;
struct soak_self me;

const struct soak_queue_kind soak_queue_kinds[SOAK_QUEUES] = {
    {"redeliver", 64, 0, TN_QUEUE_REDELIVER}, {"redeliver-small", 4, 1024, TN_QUEUE_REDELIVER},
    {"drop", 32, 0, TN_QUEUE_DROP},           {"lease", 64, 0, TN_QUEUE_LEASE},
    {"lease-small", 8, 512, TN_QUEUE_LEASE},  {"relayed", 128, 256, TN_QUEUE_LEASE},
};

#define TEXT_OF_ROLE(name, text)        text,
#define TEXT_OF_DEED(name)              #name,
#define TEXT_OF_FIGURE(name, text)      text,
#define TEXT_OF_PROMISE(name, sentence) #sentence,
const char *const soak_role_names[] = {SOAK_ROLES(TEXT_OF_ROLE)};
const char *const soak_deed_names[] = {SOAK_DEEDS(TEXT_OF_DEED)};
const char *const soak_figure_names[] = {SOAK_FIGURES(TEXT_OF_FIGURE)};
const char *const soak_promise_names[] = {SOAK_PROMISES(TEXT_OF_PROMISE)};

static bool map(int fd)
{
    void *at = mmap(NULL, sizeof *soak, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    soak = at == MAP_FAILED ? NULL : at;
    return soak != NULL;
}

/* The descriptor stays open across exec, so programs that members start find it. */
bool soak_ledger_make(void)
{
    char number[16];
    int fd = memfd_create("soak-ledger", 0);
    if (fd < 0 || ftruncate(fd, sizeof *soak) != 0 || !map(fd))
        return false;
    snprintf(number, sizeof number, "%d", fd);
    return setenv(SOAK_LEDGER, number, 1) == 0;
}

bool soak_ledger_open(void)
{
    const char *number = getenv(SOAK_LEDGER);
    return number != NULL && map((int)strtol(number, NULL, 10));
}

uint64_t soak_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SOAK_S_NS + (uint64_t)now.tv_nsec;
}

uint64_t soak_until_ns(uint64_t ms) { return soak_now_ns() + ms * SOAK_MS_NS; }
tn_deadline soak_deadline(uint64_t ms) { return (tn_deadline){soak_until_ns(ms)}; }

/* ---- chance ------------------------------------------------------------------------------ */

void soak_seed(uint64_t seed) { me.random = seed; }

/*
 * Source: Steele, Lea, Flood, Fast splittable pseudorandom number generators, OOPSLA 2014
 * (SplitMix64).
 */
uint64_t soak_random(void)
{
    uint64_t z = me.random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

uint32_t soak_below(uint32_t below) { return (uint32_t)(soak_random() % below); }

bool soak_chance(uint32_t percent) { return soak_below(100) < percent; }

/* ---- what a process writes --------------------------------------------------------------- */

void soak_count(enum soak_figure figure, uint64_t by)
{
    atomic_fetch_add_explicit(&soak->figures[figure], by, memory_order_relaxed);
}

void soak_do_at(enum soak_deed deed, uint32_t queue, uint32_t count)
{
    if (me.slot == NULL)
        return;
    /*
     * The process has nothing in hand while these change; what is accounted for depends on
     * the deed.
     */
    atomic_store(&me.slot->deed, SOAK_NOTHING);
    atomic_store(&me.slot->queue, queue);
    atomic_store(&me.slot->count, count);
    atomic_store(&me.slot->since_ns, soak_now_ns());
    atomic_store(&me.slot->deed, deed);
}

void soak_do(enum soak_deed deed) { soak_do_at(deed, 0, 0); }

void soak_take_slot(struct soak_slot *slot, enum soak_role role)
{
    me.slot = slot;
    me.life = atomic_fetch_add(&soak->lives, 1) + 1;
    memset(me.numbers, 0, sizeof me.numbers);
    soak_seed(soak->seed ^ (uint64_t)me.life * UINT64_C(0xd1342543de82ef95));
    atomic_store(&slot->life, me.life);
    atomic_store(&slot->role, role);
    atomic_store(&slot->seen_as, SOAK_SEEN_NOT);
    atomic_store(&slot->parked, 0);
    soak_do(SOAK_STARTING);
    atomic_store(&slot->pid, getpid());
}

/* When the process of a slot has ended, only the conductor marks the slot as free. */
void soak_enlist(enum soak_role role)
{
    for (;;) {
        for (uint32_t i = SOAK_CREW; i < SOAK_SLOTS; i++) {
            int32_t nobody = 0;
            if (!atomic_compare_exchange_strong(&soak->slots[i].pid, &nobody, getpid()))
                continue;
            soak_take_slot(&soak->slots[i], role);
            return;
        }
        soak_tell();
        usleep(1000);
    }
}

void soak_dismiss(void)
{
    struct soak_slot *slot = me.slot;
    soak_do(SOAK_NOTHING);
    me.slot = NULL;
    if (slot != NULL)
        atomic_store(&slot->pid, 0);
}

/* ---- what the conductor waits for -------------------------------------------------------- */

void soak_tell(void)
{
    atomic_fetch_add(&soak->news, 1);
    syscall(SYS_futex, &soak->news, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void tell_of_child(int number)
{
    int saved = errno;
    (void)number;
    soak_tell();
    errno = saved;
}

void soak_tell_of_children(void)
{
    struct sigaction action = {.sa_handler = tell_of_child, .sa_flags = SA_RESTART};
    sigaction(SIGCHLD, &action, NULL);
}

/*
 * No event tells that tenond reclaimed a seat, or that a process below a program of exec
 * ended.
 */
void soak_await_news(void)
{
    static uint32_t seen;
    const struct timespec at_most = {0, 10 * SOAK_MS_NS};
    syscall(SYS_futex, &soak->news, FUTEX_WAIT, seen, &at_most, NULL, 0);
    seen = atomic_load(&soak->news);
}

/* ---- failure ----------------------------------------------------------------------------- */

static void wait_for_the_end(void) __attribute__((noreturn));
static void wait_for_the_end(void)
{
    for (;;)
        pause();
}

static bool is_first(enum soak_promise promise)
{
    uint32_t none = 0;
    if (soak == NULL || !atomic_compare_exchange_strong(&soak->failed, &none, 1))
        return false;
    atomic_store(&soak->promise, promise);
    soak->failed_pid = getpid();
    return true;
}

static void say(const char *format, va_list arguments)
{
    int used =
        snprintf(soak->text, sizeof soak->text, "%s %d (life %u, %s): ",
                 me.slot != NULL ? soak_role_names[atomic_load(&me.slot->role)] : "conductor",
                 (int)getpid(), me.life,
                 me.slot != NULL ? soak_deed_names[atomic_load(&me.slot->deed)] : "audit");
    vsnprintf(soak->text + used, sizeof soak->text - (size_t)used, format, arguments);
}

void soak_fail(enum soak_promise promise, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (is_first(promise)) {
        say(format, arguments);
        atomic_store(&soak->failed, 2);
        soak_tell();
    }
    va_end(arguments);
    if (getpid() != soak->conductor_pid)
        wait_for_the_end();
    soak_report_failure();
    _exit(1);
}

void soak_fail_status(enum soak_promise promise, const char *call, int status)
{
    char detail[512];
    snprintf(detail, sizeof detail, "%s", tn_error_detail());
    soak_fail(promise, "%s: %s: %s", call, tn_status_name(status), detail);
}

/* The process stays as it is, so that a debugger can read its stack. */
static void crash(int number, siginfo_t *info, void *context)
{
    (void)context;
    if (is_first(SOAK_ON_LIVENESS)) {
        snprintf(soak->text, sizeof soak->text, "process %d (life %u) crashed: signal %d at %p",
                 (int)getpid(), me.life, number, info->si_addr);
        atomic_store(&soak->failed, 2);
        soak_tell();
    }
    if (soak != NULL && getpid() == soak->conductor_pid)
        soak_report_failure();
    wait_for_the_end();
}

void soak_watch_crashes(void)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    struct sigaction action = {.sa_sigaction = crash, .sa_flags = SA_SIGINFO};
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        sigaction(signals[i], &action, NULL);
}
