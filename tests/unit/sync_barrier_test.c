/* SPDX-License-Identifier: Apache-2.0 */
/* Barriers, between processes that are killed. */
#include "sync_test.h"

enum { MEETINGS = 500 };

static int meet_often(void *argument)
{
    for (uint32_t i = 0; i < MEETINGS; i++) {
        if (TN_CHECK_OK(tn_barrier_wait(argument, tnt_deadline(20000))) == 1)
            atomic_fetch_add(&board->firsts, 1);
        /* No party is two meetings ahead of another. */
        uint32_t before = atomic_fetch_add(&board->count, 1);
        TN_CHECK(before / CHILDREN <= i && before < CHILDREN * (i + 1));
    }
    TN_CHECK(tn_object_close(argument) == NULL);
    return 0;
}

TN_TEST(every_party_passes_a_barrier_and_exactly_one_is_told_so)
{
    tn_barrier *barrier;
    pid_t children[CHILDREN];
    begin();
    TN_CHECK_OK(tn_barrier_open(domain, NULL, CHILDREN, 0, &barrier));
    for (uint32_t i = 0; i < CHILDREN; i++)
        children[i] = tnt_fork(meet_often, barrier);
    for (uint32_t i = 0; i < CHILDREN; i++)
        tnt_wait_ok(children[i]);
    assert_int_equal(atomic_load(&board->firsts), MEETINGS);
    tn_object_close(barrier);
    finish();
}

static int wait_at_barrier(void *barrier)
{
    return tn_barrier_wait(barrier, TN_FOREVER) >= 0 ? 0 : 1;
}

static void *wait_for_all(void *barrier)
{
    return (void *)(intptr_t)tn_barrier_wait(barrier, TN_FOREVER);
}

TN_TEST(a_death_breaks_a_barrier_for_all_until_it_is_reset)
{
    tn_barrier *barrier;
    pthread_t thread;
    void *result;
    begin();
    domain->survive = survive;
    TN_CHECK_OK(tn_barrier_open(domain, NULL, 3, 0, &barrier));
    pid_t child = tnt_fork(wait_at_barrier, barrier);
    await_word(barrier, ARRIVED_MASK, ARRIVED(1));
    pthread_create(&thread, NULL, wait_for_all, barrier);
    await_word(barrier, ARRIVED_MASK, ARRIVED(2));
    tnt_kill(child);
    pthread_join(thread, &result);
    assert_int_equal((int)(intptr_t)result, TN_ERR_PEER_DIED);
    assert_int_equal(tn_barrier_wait(barrier, TN_FOREVER), TN_ERR_PEER_DIED);
    assert_int_equal(tn_error_peer().pid, child);
    TN_CHECK_OK(tn_barrier_reset(barrier));
    TN_CHECK_OK(tn_barrier_reset(barrier)); /* whole already: nothing happens */
    assert_int_equal(tn_barrier_wait(barrier, tnt_deadline(5)), TN_ERR_TIMED_OUT);
    tn_object_close(barrier);
    finish();
}

TN_TEST(a_deadline_breaks_a_barrier_for_the_others_too)
{
    tn_barrier *barrier;
    pthread_t thread;
    void *result;
    begin();
    TN_CHECK_OK(tn_barrier_open(domain, NULL, 3, 0, &barrier));
    pthread_create(&thread, NULL, wait_for_all, barrier);
    await_word(barrier, ARRIVED_MASK, ARRIVED(1));
    assert_int_equal(tn_barrier_wait(barrier, tnt_deadline(5)), TN_ERR_TIMED_OUT);
    pthread_join(thread, &result);
    assert_int_equal((int)(intptr_t)result, TN_ERR_CLOSED);
    assert_int_equal(tn_barrier_wait(barrier, TN_FOREVER), TN_ERR_CLOSED);
    TN_CHECK_OK(tn_barrier_reset(barrier));
    pthread_t others[2];
    for (uint32_t i = 0; i < 2; i++)
        pthread_create(&others[i], NULL, wait_for_all, barrier);
    int firsts = TN_CHECK_OK(tn_barrier_wait(barrier, TN_FOREVER));
    for (uint32_t i = 0; i < 2; i++) {
        pthread_join(others[i], &result);
        assert_true((int)(intptr_t)result >= 0);
        firsts += (int)(intptr_t)result;
    }
    assert_int_equal(firsts, 1);
    tn_object_close(barrier);
    finish();
}

static int wait_and_tell(void *barrier)
{
    int status = tn_barrier_wait(barrier, TN_FOREVER);
    tn_object_close(barrier);
    return -status;
}

/* A waiter that is stopped while the barrier goes on is told what became of its own meeting. */
TN_TEST(a_slow_waiter_learns_the_fate_of_its_own_generation)
{
    tn_barrier *barrier;
    begin();
    TN_CHECK_OK(tn_barrier_open(domain, NULL, 2, 0, &barrier));
    for (uint32_t breaks = 0; breaks <= 1; breaks++) {
        pid_t child = tnt_fork(wait_and_tell, barrier);
        await_word(barrier, ARRIVED_MASK, ARRIVED(1));
        kill(child, SIGSTOP);
        assert_int_equal(waitpid(child, NULL, WUNTRACED), child);
        if (breaks == 0) {
            assert_int_equal(tn_barrier_wait(barrier, TN_NOW), 1); /* passed */
            assert_int_equal(tn_barrier_wait(barrier, (tn_deadline){1}), TN_ERR_TIMED_OUT);
            TN_CHECK_OK(tn_barrier_reset(barrier));
        } else {
            /* As when a third waiter's deadline passes. */
            uint64_t word = atomic_load(&inside(barrier)->value);
            atomic_store(&inside(barrier)->value, word | 2);
            TN_CHECK_OK(tn_barrier_reset(barrier));
        }
        pthread_t thread;
        void *result;
        pthread_create(&thread, NULL, wait_for_all, barrier);
        await_word(barrier, ARRIVED_MASK, ARRIVED(1));
        assert_int_equal(tn_barrier_wait(barrier, TN_NOW), 1);
        pthread_join(thread, &result);
        assert_int_equal((int)(intptr_t)result, 0);
        kill(child, SIGCONT);
        int status = tnt_wait(child);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), breaks == 0 ? 0 : -TN_ERR_CLOSED);
        reclaim();
    }
    tn_object_close(barrier);
    finish();
}

static int wait_briefly(void *barrier)
{
    return tn_barrier_wait(barrier, tnt_deadline(5)) == TN_ERR_TIMED_OUT ? 0 : 1;
}

TN_TEST(a_barrier_goes_on_wherever_a_party_or_its_reaper_is_killed)
{
    static const char *const reaper_points[] = {"barrier_dead_named", "barrier_broken"};
    tn_barrier *barrier;
    pthread_t thread;
    void *result;
    begin();
    TN_CHECK_OK(tn_barrier_open(domain, NULL, 2, 0, &barrier));
    /*
     * The last to come dies before its wake: the others pass, and the next meeting is broken.
     */
    pthread_create(&thread, NULL, wait_for_all, barrier);
    await_sleeper(barrier);
    assert_true(tnt_kill_at("barrier_arrived", 1, wait_at_barrier, barrier));
    assert_int_equal(reclaim(), 1);
    pthread_join(thread, &result);
    assert_int_equal((int)(intptr_t)result, 0);
    assert_int_equal(tn_barrier_wait(barrier, TN_FOREVER), TN_ERR_PEER_DIED);
    TN_CHECK_OK(tn_barrier_reset(barrier));
    /* The first party to arrive dies, then the recoverer that reclaims it. */
    for (uint32_t i = 0; i < TNI_COUNT(reaper_points); i++) {
        assert_true(tnt_kill_at("barrier_arrived", 1, wait_at_barrier, barrier));
        assert_true(tnt_kill_at(reaper_points[i], 1, reap_as_a_stranger, barrier));
        assert_int_equal(reclaim(), 2);
        assert_int_equal(tn_barrier_wait(barrier, TN_FOREVER), TN_ERR_PEER_DIED);
        TN_CHECK_OK(tn_barrier_reset(barrier));
    }
    assert_true(tnt_kill_at("barrier_broken_late", 1, wait_briefly, barrier));
    assert_int_equal(reclaim(), 1);
    assert_int_equal(tn_barrier_wait(barrier, TN_FOREVER), TN_ERR_PEER_DIED);
    TN_CHECK_OK(tn_barrier_reset(barrier));
    pthread_create(&thread, NULL, wait_for_all, barrier);
    int mine = TN_CHECK_OK(tn_barrier_wait(barrier, TN_FOREVER));
    pthread_join(thread, &result);
    assert_int_equal(mine + (int)(intptr_t)result, 1);
    tn_object_close(barrier);
    finish();
}
