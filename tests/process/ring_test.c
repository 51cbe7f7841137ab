/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: the bell of tenond, which one member rings for all that join a moment later. */
#include <unistd.h>

#include "harness/harness.h"
#include "process/process.h"
#include "reaper/reaper.h"
#include "wait/wait.h"

/*
 * A process keeps one socket for ringing bells. It is made here, before a test counts
 * descriptors.
 */
__attribute__((constructor)) static void ring_once(void) { tni_os_bell_ring(1); }

enum { LONG_MS = 10000 };

static uint64_t deaths(const tn_domain *d) { return atomic_load(&d->segment.header->deaths); }

/*
 * Wait until tenond has reclaimed `count` seats. Reclaiming wakes processes that wait for
 * memory.
 */
static void await_deaths(tn_domain *d, uint64_t count)
{
    uint64_t deadline_ns = tnt_until_ns(LONG_MS);
    while (deaths(d) < count) {
        uint32_t seen = tni_alloc_arm(d);
        if (deaths(d) < count)
            TN_CHECK_OK(tni_os_wait(&d->segment.header->memory_wait, seen, deadline_ns));
    }
}

static int stay(void *there)
{
    tnt_signal(there);
    return pause();
}

static pid_t start_member(struct tnt_signal *there)
{
    pid_t pid = tnt_fork(stay, there);
    tnt_await(there);
    return pid;
}

/* ---- members that join without a ring ---------------------------------------------------- */

/* The bell of tenond, which a test silences so that members join without a ring. */
static _Atomic uint64_t *bell_of_tenond(const tn_domain *d)
{
    uint64_t who = atomic_load(&d->segment.header->manager);
    return &tni_seat_at(&d->segment, tni_who_seat(who))->bell_number;
}

static struct tni_seat *seat_of(const tn_domain *d, pid_t pid)
{
    for (uint32_t seat = 0;; seat++) {
        TN_CHECK(seat < d->segment.geometry.seats);
        if (atomic_load(&tni_seat_at(&d->segment, seat)->pid) == pid)
            return tni_seat_at(&d->segment, seat);
    }
}

enum { SEEN_LATE, SEEN_SOON, NO_SUCH_CASE };

/*
 * Two members join and are killed without a ring. Then a member rings, and the scan that
 * follows reclaims the second. Only then does the first, whose seat that scan has passed,
 * seem to join: within the 2 ms in which no member rings.
 */
static int come_after_a_look(tn_domain *d, struct tnt_signal *there)
{
    _Atomic uint64_t *bell = bell_of_tenond(d);
    uint64_t number = atomic_exchange(bell, 0), before = deaths(d);
    pid_t pid = start_member(there);
    tnt_kill(start_member(there));
    struct tni_seat *seat = seat_of(d, pid);
    uint64_t word = atomic_load(&seat->word);
    uint64_t none = tni_seat_word(tni_seat_incarnation(word), TNI_SEAT_FREE, 0);
    tnt_kill(pid);
    bool is_case =
        deaths(d) == before && atomic_compare_exchange_strong(&seat->word, &word, none);
    atomic_store(bell, number);
    atomic_store(&d->segment.header->rung_ns, 0);
    uint64_t rung_ns = tni_os_now_ns();
    tni_manager_ring(d);
    await_deaths(d, before + 1);
    if (is_case)
        atomic_store(&seat->word, word);
    is_case &= tni_os_now_ns() - rung_ns < TNI_MANAGER_RUNG_NS;
    uint64_t soon_ns = tnt_until_ns(60); /* without a ring, tenond scans after up to 1 s */
    await_deaths(d, before + 2);
    if (!is_case)
        return NO_SUCH_CASE;
    return tni_os_now_ns() < soon_ns ? SEEN_SOON : SEEN_LATE;
}

TN_TEST_WITHIN(tenond_sees_a_member_that_saved_its_ring_for_a_recent_one, 120)
{
    enum { CASES = 10 };
    uint32_t count[NO_SUCH_CASE + 1] = {0};
    tn_domain *d = tnt_domain(NULL);
    struct tnt_signal there = tnt_signal_open();
    while (count[SEEN_SOON] + count[SEEN_LATE] < CASES)
        count[come_after_a_look(d, &there)]++;
    tnt_note("%u of %d were seen soon", count[SEEN_SOON], CASES);
    assert_true(count[SEEN_SOON] >= CASES * 3 / 4); /* one or two may be late by chance */
    tnt_signal_close(&there);
    tn_domain_close(d);
}

struct silenced {
    tn_domain *domain;
    uint64_t number; /* of the bell of tenond */
};

static int ring_and_be_killed(void *argument)
{
    const struct silenced *of = argument;
    atomic_store(bell_of_tenond(of->domain), of->number);
    atomic_store(&of->domain->segment.header->rung_ns, 0);
    tni_manager_ring(of->domain);
    return 0;
}

/* No member rings, so no scan after a ring can find the two. */
TN_TEST(tenond_sees_a_member_killed_before_its_ring)
{
    tn_domain *d = tnt_domain(NULL);
    struct tnt_signal there = tnt_signal_open();
    _Atomic uint64_t *bell = bell_of_tenond(d);
    struct silenced of = {.domain = d, .number = atomic_exchange(bell, 0)};
    assert_true(tnt_kill_at("manager_rings", 1, ring_and_be_killed, &of));
    atomic_store(bell, 0);
    tnt_kill(start_member(&there)); /* it relied on the ring that was not sent */
    await_deaths(d, 2);
    atomic_store(bell, of.number);
    tnt_signal_close(&there);
    tn_domain_close(d);
}

/* ---- which changes ring ------------------------------------------------------------------ */

/* @return whether a member rings tenond when a member rang `ago_ns` ago */
static bool rings_after(tn_domain *d, int bell_fd, uint64_t ago_ns)
{
    uint64_t begun_ns, took_ns;
    bool is_rung;
    do { /* until no other process ran between the two calls */
        begun_ns = tni_os_shared_ns();
        atomic_store(&d->segment.header->rung_ns, begun_ns - ago_ns);
        tni_manager_ring(d);
        took_ns = tni_os_shared_ns() - begun_ns;
        is_rung = tni_os_poll(&bell_fd, 1, 0) == 0;
        tni_os_bell_clear(bell_fd);
    } while (took_ns >= TNI_MANAGER_RUNG_NS / 2);
    return is_rung;
}

TN_TEST(one_ring_of_tenond_serves_all_that_join_within_2_ms)
{
    const uint64_t number = 0x7e57be11;
    int fd;
    tn_domain *d = tnt_domain(&(tn_domain_options){.struct_size = sizeof(tn_domain_options),
                                                   .flags = TN_DOMAIN_NO_MANAGER});
    TN_CHECK_OK(tni_os_bell_create(number, &fd));
    atomic_store(&d->me->bell_number, number); /* as if this process were tenond */
    atomic_store(&d->segment.header->manager, d->who);
    assert_false(rings_after(d, fd, 0));
    assert_false(rings_after(d, fd, TNI_MANAGER_RUNG_NS / 2));
    assert_true(rings_after(d, fd, TNI_MANAGER_RUNG_NS));
    assert_true(rings_after(d, fd, UINT64_C(1000000000)));
    /* A time in the future, which a damaged member wrote, keeps no member from ringing. */
    assert_true(rings_after(d, fd, (uint64_t)-1000000000));
    atomic_store(&d->segment.header->manager, 0);
    tni_os_close(fd);
    tn_domain_close(d);
}
