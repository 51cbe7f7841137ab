/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reaper: a kill at every named point of what writes shared memory, and of the reaper
 * itself; then reclaiming, an audit, and the count of live blocks that there was before.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "queue/queue.h"
#include "reaper/reaper.h"
#include "unit/reaper_test.h"
#include "wait/wait.h"

/* ---- kills ------------------------------------------------------------------------------- */

/* Every point that a worker may pass; those of the reaper are below. */
static const char *const work_points[] = {"ack_emptied",
                                          "adopt_held_already",
                                          "adopt_recorded",
                                          "alloc_committed",
                                          "alloc_end_raised",
                                          "alloc_pages_committed",
                                          "alloc_recorded",
                                          "alloc_taken",
                                          "drop_slot_emptied",
                                          "event_passed",
                                          "event_set",
                                          "fork_holds_written",
                                          "fork_incremented",
                                          "fork_recorded",
                                          "fork_child_claimed",
                                          "fork_child_named",
                                          "fork_object_opened",
                                          "fork_seat_claimed",
                                          "join_claimed",
                                          "join_witnessed",
                                          "lease_pinned",
                                          "lease_recorded",
                                          "leave_before_free",
                                          "leave_begun",
                                          "leave_freed",
                                          "leave_hints_published",
                                          "leave_holds_released",
                                          "leave_objects_closed",
                                          "lend_incremented",
                                          "lend_moved",
                                          "lock_acquired",
                                          "lock_released",
                                          "object_bits_cleared",
                                          "object_ended",
                                          "object_ending",
                                          "object_making",
                                          "object_name_linked",
                                          "object_name_unlinked",
                                          "object_opened",
                                          "object_opening",
                                          "object_ring_recorded",
                                          "object_ring_unrecorded",
                                          "pop_emptied",
                                          "pop_taken",
                                          "push_claimed",
                                          "push_full",
                                          "push_lent",
                                          "push_tail_passed",
                                          "quota_asked",
                                          "records_added",
                                          "ref_decremented",
                                          "ref_freed",
                                          "refill_full",
                                          "registry_taken",
                                          "release_announced",
                                          "release_unrecorded",
                                          "row_unrecorded",
                                          "semaphore_announced",
                                          "semaphore_counted",
                                          "semaphore_given",
                                          "semaphore_released",
                                          "semaphore_taken",
                                          "semaphore_uncounted",
                                          "take_apart_unrecorded",
                                          "ticket_end_announced",
                                          "ticket_end_unrecorded",
                                          "ticket_live",
                                          "ticket_making",
                                          "ticket_pinned",
                                          "ticket_use_announced",
                                          "ticket_use_taken",
                                          "ticket_used_up",
                                          "ticket_written",
                                          "trim_begun",
                                          "trim_discarded",
                                          "trim_span_taken"};

static void print_seats(const struct tn_domain *d)
{
    for (uint32_t seat = 0; seat < d->segment.geometry.seats; seat++) {
        const struct tni_seat *entry = tni_seat_at(&d->segment, seat);
        uint64_t word = atomic_load(&entry->word);
        if (tni_seat_state(word) != TNI_SEAT_FREE)
            printf("# seat %u: word %#llx, pid %d, flags %#x: its process is %d\n", seat,
                   (unsigned long long)word, atomic_load(&entry->pid),
                   atomic_load(&entry->flags), tni_process_seat_state(&d->segment, seat));
    }
}

static void check_as_before(struct work *w, uint32_t live, const char *point, uint32_t passing)
{
    int found = audit(w->domain);
    drain(w);
    uint32_t now = live_blocks(w->domain), taken = seats_taken(w->domain);
    if (found == 0 && now == live && taken == 1)
        return;
    print_seats(w->domain);
    fail_msg("after a kill at %s, passing %u: %d discrepancies, %u live blocks instead of %u, "
             "%u seats taken",
             point, passing, found, now, live, taken);
}

TN_TEST_WITHIN(a_worker_killed_at_any_point_leaves_nothing_after_a_reap, 120)
{
    struct work w;
    open_work(&w, open_domain());
    uint32_t live = warm_up(&w), points = 0;

    for (size_t i = 0; i < TNI_COUNT(work_points); i++) {
        uint32_t passing = 1;
        for (; passing <= 6 && tnt_kill_at(work_points[i], passing, work, &w); passing++) {
            reclaim_all(w.domain);
            check_as_before(&w, live, work_points[i], passing);
        }
        /* Not passed, or by its forked child only. */
        reclaim_all(w.domain);
        check_as_before(&w, live, work_points[i], 0);
        if (passing == 1)
            printf("# not passed: %s\n", work_points[i]);
        points += passing > 1;
    }
    assert_true(points >= TNI_COUNT(work_points) - 2); /* but for fork_child_* */
    /* And the survivor goes on, and others can come. */
    tnt_wait_ok(tnt_fork(work, &w));
    reclaim_all(w.domain);
    check_as_before(&w, live, "no kill", 0);
    close_work(&w);
    close_domain(w.domain);
}

TN_TEST(a_kill_between_the_frontier_and_its_blocks_loses_no_block)
{
    struct work w;
    open_work(&w, open_domain());
    uint32_t live = live_blocks(w.domain);
    for (uint32_t passing = 1; tnt_kill_at("alloc_frontier_moved", passing, work, &w);
         passing++) {
        reclaim_all(w.domain);
        check_as_before(&w, live, "alloc_frontier_moved", passing);
    }
    reclaim_all(w.domain);
    check_as_before(&w, live, "alloc_frontier_moved", 0);
    close_work(&w);
    close_domain(w.domain);
}

static int reclaim_as_a_child(void *argument)
{
    const struct work *w = argument;
    while (tni_reaper_reclaim_all(w->domain) == TN_ERR_TIMED_OUT)
        tni_os_yield();
    return 0;
}

/*
 * Where workers die for the reapers below: between two records, half made, holding this and
 * that.
 */
static const char *const victims[] = {
    "alloc_taken",       "take_apart_unrecorded", "trim_span_taken",
    "lend_incremented",  "push_claimed",          "push_full",
    "pop_taken",         "lease_recorded",        "object_making",
    "object_ending",     "ticket_written",        "lock_acquired",
    "semaphore_taken",   "fork_holds_written",    "leave_begun",
    "ref_decremented",   "object_opened",         "object_ring_recorded",
    "drop_slot_emptied", "ticket_use_taken",      "semaphore_counted",
    "semaphore_given",   "object_name_linked",    "object_name_unlinked",
    "registry_taken"};

static const char *const reaper_points[] = {"reclaim_claimed",
                                            "reclaim_waits_ended",
                                            "reclaim_children_ended",
                                            "reclaim_tickets_reclaimed",
                                            "reclaim_claims_released",
                                            "reclaim_row_released",
                                            "reclaim_announces_taken",
                                            "reclaim_hints_marked",
                                            "reclaim_before_free",
                                            "reclaim_freed",
                                            "recount_marked",
                                            "recount_begun",
                                            "recount_taken",
                                            "recount_announced",
                                            "recount_reclaimed",
                                            "recount_block_done",
                                            "recount_outer_cleared",
                                            "recount_announce_done",
                                            "recount_suspects_done",
                                            "row_unrecorded",
                                            "ref_decremented",
                                            "ref_freed",
                                            "take_apart_unrecorded",
                                            "reclaim_object_kind",
                                            "reclaim_object_noted",
                                            "reclaim_slot",
                                            "drop_slot_emptied",
                                            "refill_full",
                                            "object_bits_cleared",
                                            "object_ending",
                                            "object_ended",
                                            "object_ring_unrecorded",
                                            "ticket_undone",
                                            "semaphore_reclaim_announced",
                                            "semaphore_reclaim_given",
                                            "semaphore_reclaim_uncounted",
                                            "lock_dead_named",
                                            "object_name_unlinked",
                                            "reclaim_object_woken",
                                            "ticket_group_reclaimed",
                                            "semaphore_unmarked",
                                            "reclaim_role_noted"};

/* @return whether a reaper died there */
static bool kill_reapers_at(struct work *w, const char *point, uint32_t live)
{
    bool was_reached = false;
    uint32_t passings = tnt_is_full() ? 2 : 1;
    for (size_t v = 0; v < TNI_COUNT(victims); v++) {
        for (uint32_t passing = 1; passing <= passings; passing++) {
            if (!tnt_kill_at(victims[v], 1, work, w))
                fail_msg("a worker does not pass %s", victims[v]);
            bool was_killed = tnt_kill_at(point, passing, reclaim_as_a_child, w);
            reclaim_all(w->domain);
            check_as_before(w, live, victims[v], passing);
            was_reached |= was_killed;
            if (!was_killed)
                break;
        }
    }
    return was_reached;
}

TN_TEST_WITHIN(a_reaper_killed_at_any_point_is_replaced, 200)
{
    enum {
        TRIES = 3
    }; /* a gc of another test may reclaim dead processes in all domains of this user */
    struct work w;
    open_work(&w, open_domain());
    uint32_t live = warm_up(&w), points = 0;

    for (size_t i = 0; i < TNI_COUNT(reaper_points); i++) {
        int tries = 0;
        while (tries < TRIES && !kill_reapers_at(&w, reaper_points[i], live))
            tries++;
        if (tries == TRIES)
            printf("# not passed: %s\n", reaper_points[i]);
        points += tries < TRIES;
    }
    assert_int_equal(points, TNI_COUNT(reaper_points));
    close_work(&w);
    close_domain(w.domain);
}

TN_TEST_WITHIN(kills_at_any_moment_of_a_busy_domain_leave_nothing, 60)
{
    struct churn c;
    _Atomic uint32_t never = 0;
    c.stop = &never;
    open_work(&c.w, open_domain());
    uint32_t live = warm_up(&c.w);
    for (int round = 0; round < 60; round++) {
        pid_t children[2] = {tnt_fork(churn, &c), tnt_fork(churn, &c)};
        /* Not waiting for anything: any moment is the one to die in. */
        tni_os_sleep_until(tni_os_now_ns() + tnt_random_below(8 * MS));
        tnt_kill(children[0]);
        int status = tni_reaper_reclaim_all(c.w.domain);
        TN_CHECK(status >= 0 || status == TN_ERR_TIMED_OUT);
        tnt_kill(children[1]);
        reclaim_all(c.w.domain);
        check_as_before(&c.w, live, "any moment, round", (uint32_t)round);
    }
    close_work(&c.w);
    close_domain(c.w.domain);
}

/* ---- which processes are dead ------------------------------------------------------------ */

TN_TEST(live_seats_are_left_alone_and_dead_ones_reclaimed)
{
    struct tn_domain *d = open_domain();
    struct held held = open_held(d, 10);
    pid_t child = tnt_fork(hold_until_told, &held);
    tnt_await(&held.ready);

    assert_int_equal(tni_reaper_reclaim_all(d), 0);
    assert_int_equal(live_blocks(d), 10);
    assert_int_equal(tni_reaper_reclaim(d, d->seat), 0);
    assert_int_equal(tni_reaper_reclaim(d, 5000), 0);
    tnt_kill(child);
    assert_int_equal(tni_reaper_reclaim_all(d), 1);
    assert_int_equal(live_blocks(d), 0);
    assert_int_equal(tni_reaper_reclaim_all(d), 0);
    assert_int_equal(audit(d), 0);
    close_held(&held);
    close_domain(d);
}

static int hold_and_exec(void *argument)
{
    struct held *held = argument;
    alloc_block(held->domain, 64, TNI_KIND_TENSOR);
    dup2(held->go.read_fd, 0); /* cat ends when told */
    dup2(held->ready.write_fd, 1);
    execl("/bin/cat", "cat", (char *)NULL);
    return 1;
}

TN_TEST(a_process_that_execed_holds_nothing_any_more)
{
    struct tn_domain *d = open_domain();
    struct held held = open_held(d, 0);
    pid_t child = tnt_fork(hold_and_exec, &held);

    tnt_signal(&held.go); /* comes back through cat: exec is over */
    tnt_await(&held.ready);
    assert_int_equal(kill(child, 0), 0);
    assert_int_equal(tni_reaper_reclaim_all(d), 1);
    assert_int_equal(live_blocks(d), 0);
    assert_int_equal(audit(d), 0);
    tnt_kill(child);
    close_held(&held);
    close_domain(d);
}

static int announce_until_told(void *argument)
{
    struct held *held = argument;
    struct tni_thread *thread = tni_thread_enter(held->domain);
    tni_announce(thread, held->block, 1);
    tnt_signal(&held->ready);
    tnt_await(&held->go);
    tni_announce_clear(thread);
    tni_thread_leave(thread);
    tnt_signal(&held->ready);
    tnt_await(&held->go);
    return 0;
}

static int increment_and_die(void *argument)
{
    const struct held *held = argument;
    struct tni_thread *thread = tni_thread_enter(held->domain);
    tni_announce(thread, held->block, 1);
    TN_CHECK_OK(tni_ref_pin(held->domain, held->block));
    raise(SIGKILL);
    return 1;
}

TN_TEST(a_seat_is_free_while_live_threads_delay_the_recount)
{
    struct tn_domain *d = open_domain();
    struct held held = open_held(d, 0);
    held.block = alloc_block(d, 64, TNI_KIND_TENSOR);
    pid_t alive = tnt_fork(announce_until_told, &held);
    tnt_await(&held.ready);
    assert_true(WIFSIGNALED(tnt_wait(tnt_fork(increment_and_die, &held))));

    assert_int_equal(tni_reaper_reclaim_all(d), TN_ERR_TIMED_OUT);
    assert_int_equal(state_of(d, 2), TNI_SEAT_FREE);
    assert_int_equal(tni_word_count(atomic_load(tni_word_at(&d->segment, held.block))), 3);
    /* The suspect does not belong to the recoverer: a child may repair it. */
    struct work w = {.domain = d};
    tnt_signal(&held.go);
    tnt_await(&held.ready);
    tnt_wait_ok(tnt_fork(reclaim_as_a_child, &w));
    tnt_signal(&held.go);
    tnt_wait_ok(alive);
    reclaim_all(d);
    assert_int_equal(tni_word_count(atomic_load(tni_word_at(&d->segment, held.block))), 1);
    assert_int_equal(audit(d), 0);
    tni_ref_release(d, held.block);
    assert_int_equal(live_blocks(d), 0);
    close_held(&held);
    close_domain(d);
}

TN_TEST(two_dead_that_announce_one_block_do_not_wait_for_each_other)
{
    struct tn_domain *d = open_domain();
    struct held held = {.domain = d, .block = alloc_block(d, 64, TNI_KIND_TENSOR)};
    pid_t first = tnt_fork(increment_and_die, &held),
          second = tnt_fork(increment_and_die, &held);
    tnt_wait(first);
    tnt_wait(second);
    assert_int_equal(tni_reaper_reclaim_all(d), 2);
    assert_int_equal(tni_word_count(atomic_load(tni_word_at(&d->segment, held.block))), 1);
    assert_int_equal(audit(d), 0);
    tni_ref_release(d, held.block);
    assert_int_equal(live_blocks(d), 0);
    close_domain(d);
}

static int wait_as_a_bound_child(void *argument)
{
    struct held *held = argument;
    pid_t child = fork();
    TN_CHECK(child >= 0);
    if (child == 0) {
        atomic_fetch_or(&held->domain->me->flags, TNI_SEAT_ENDS_WITH_PARENT);
        tnt_signal(&held->ready);
        tnt_await(&held->go);
        return 0;
    }
    tnt_await(&held->go);
    return 0;
}

TN_TEST(children_bound_to_their_parent_are_killed_by_its_reaper)
{
    struct tn_domain *d = open_domain();
    struct held held = open_held(d, 0);
    pid_t parent = tnt_fork(wait_as_a_bound_child, &held);
    tnt_await(&held.ready);
    int32_t child = 0;
    for (uint32_t seat = 0; seat < 16; seat++)
        if (atomic_load(&tni_seat_at(&d->segment, seat)->flags) & TNI_SEAT_ENDS_WITH_PARENT)
            child = atomic_load(&tni_seat_at(&d->segment, seat)->pid);
    int child_fd;
    TN_CHECK_OK(tni_os_process_open(child, &child_fd));
    tnt_kill(parent);
    assert_true(tni_reaper_reclaim_all(d) >= 1);
    TN_CHECK_OK(tni_os_poll(&child_fd, 1, tnt_until_ns(5000)));
    tni_os_close(child_fd);
    reclaim_all(d);
    assert_int_equal(seats_taken(d), 1);
    assert_int_equal(audit(d), 0);
    close_held(&held);
    close_domain(d);
}

TN_TEST(a_reused_seat_number_is_not_the_reclaimer_that_died_in_it)
{
    struct tn_domain *d = open_domain();
    struct held held = open_held(d, 3);
    pid_t victim = tnt_fork(hold_until_told, &held);
    tnt_await(&held.ready);
    tnt_kill(victim);
    /*
     * As if a reaper in seat 2, incarnation 0, had died, and been reclaimed, before it was
     * done.
     */
    struct tni_seat *entry = tni_seat_at(&d->segment, 1);
    uint64_t word = atomic_load(&entry->word);
    atomic_store(&tni_seat_at(&d->segment, 2)->word, tni_seat_word(7, TNI_SEAT_FREE, 0));
    atomic_store(&entry->word, tni_seat_word(tni_seat_incarnation(word), TNI_SEAT_REAPING, 2));
    pid_t other = tnt_fork(hold_until_told, &held); /* has seat 2 now, and is alive */
    tnt_await(&held.ready);
    assert_int_equal(state_of(d, 2), TNI_SEAT_ALIVE);
    assert_int_equal(tni_reaper_reclaim(d, 1), 1);
    tnt_signal(&held.go);
    tnt_wait_ok(other);
    reclaim_all(d);
    assert_int_equal(audit(d), 0);
    close_held(&held);
    close_domain(d);
}

TN_TEST(a_hundred_thousand_blocks_are_given_back_at_once)
{
    struct tn_domain *d = open_domain_of(16, 1 << 17, 64 << 20);
    struct held held = open_held(d, 100000);
    pid_t child = tnt_fork(hold_until_told, &held);
    tnt_await(&held.ready);
    assert_int_equal(live_blocks(d), 100000);
    tnt_kill(child);
    uint64_t begun_ns = tni_os_now_ns();
    assert_int_equal(tni_reaper_reclaim_all(d), 1);
    printf("# 100000 blocks in %llu us\n",
           (unsigned long long)(tni_os_now_ns() - begun_ns) / 1000);
    assert_int_equal(live_blocks(d), 0);
    assert_int_equal(audit(d), 0);
    close_held(&held);
    close_domain(d);
}

TN_TEST(a_member_that_leaves_gives_everything_back)
{
    struct work w;
    open_work(&w, open_domain());
    uint32_t live = warm_up(&w);
    tnt_wait_ok(tnt_fork(work, &w)); /* closes the domain at its end */
    reclaim_all(w.domain);           /* its forked child, which did not */
    check_as_before(&w, live, "leaving", 0);
    close_work(&w);
    close_domain(w.domain);
}

/* ---- survivors --------------------------------------------------------------------------- */

TN_TEST(a_waiter_reclaims_dead_processes_without_tenond)
{
    struct tn_domain *d = open_domain();
    struct held held = open_held(d, 4);
    pid_t child = tnt_fork(hold_until_told, &held);
    tnt_await(&held.ready);
    tnt_kill(child);
    /* No thread notifies this word, so each slice of the wait must check again. */
    _Atomic uint32_t word = 0;
    while (live_blocks(d) != 0)
        tni_process_sleep(d, &word, 0, &(struct tni_wait){.deadline_ns = tnt_until_ns(150)});
    assert_int_equal(seats_taken(d), 1);
    assert_int_equal(audit(d), 0);
    close_held(&held);
    close_domain(d);
}
