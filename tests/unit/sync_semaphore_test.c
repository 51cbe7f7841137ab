/* SPDX-License-Identifier: Apache-2.0 */
/* Semaphores, between processes that are killed. */
#include "sync_test.h"

#include <string.h>

TN_TEST(any_process_may_release_a_semaphore_without_owners)
{
    tn_semaphore *semaphore, *full;
    begin();
    TN_CHECK_OK(tn_semaphore_open(domain, NULL, 0, 0, &semaphore));
    assert_int_equal(tn_semaphore_acquire(semaphore, TN_NOW), TN_ERR_TIMED_OUT);
    TN_CHECK_OK(tn_semaphore_release(semaphore));
    assert_int_equal(tn_semaphore_count(semaphore), 1);
    TN_CHECK_OK(tn_semaphore_acquire(semaphore, TN_NOW));
    TN_CHECK_OK(tn_semaphore_open(domain, NULL, INT32_MAX, 0, &full));
    assert_int_equal(tn_semaphore_release(full), TN_ERR_INVALID);
    assert_int_equal(tn_semaphore_count(full), INT32_MAX);
    tn_object_close(full);
    tn_object_close(semaphore);
    finish();
}

static int release_anothers(void *semaphore)
{
    return tn_semaphore_release(semaphore) == TN_ERR_INVALID ? 0 : 1;
}

TN_TEST(an_owned_semaphore_refuses_a_release_without_a_permit)
{
    tn_semaphore *semaphore;
    begin();
    TN_CHECK_OK(tn_semaphore_open(domain, NULL, 2, TN_SEMAPHORE_OWNED, &semaphore));
    assert_int_equal(tn_semaphore_release(semaphore), TN_ERR_INVALID);
    TN_CHECK_OK(tn_semaphore_acquire(semaphore, TN_NOW));
    tnt_wait_ok(tnt_fork(release_anothers, semaphore));
    assert_int_equal(tn_semaphore_count(semaphore), 1);
    TN_CHECK_OK(tn_semaphore_release(semaphore));
    assert_int_equal(tn_semaphore_release(semaphore), TN_ERR_INVALID);
    assert_int_equal(tn_semaphore_count(semaphore), 2);
    tn_object_close(semaphore);
    finish();
}

static int release_once(void *semaphore)
{
    TN_CHECK_OK(tn_semaphore_release(semaphore));
    return tn_semaphore_release(semaphore) == TN_ERR_INVALID ? 0 : 1;
}

TN_TEST(with_any_releases_a_release_takes_another_holders_permit)
{
    tn_semaphore *semaphore, *none;
    begin();
    TN_CHECK_OK(tn_semaphore_open(domain, NULL, 1,
                                  TN_SEMAPHORE_OWNED | TN_SEMAPHORE_ANY_RELEASES, &semaphore));
    assert_int_equal(tn_semaphore_release(semaphore), TN_ERR_INVALID);
    assert_non_null(strstr(tn_error_detail(), "no process holds a permit"));
    TN_CHECK_OK(tn_semaphore_acquire(semaphore, TN_NOW));
    tnt_wait_ok(tnt_fork(release_once, semaphore));
    assert_int_equal(tn_semaphore_count(semaphore), 1);
    assert_int_equal(tn_semaphore_release(semaphore), TN_ERR_INVALID);
    tn_object_close(semaphore);
    TN_CHECK_OK(tn_semaphore_open(domain, NULL, 0, TN_SEMAPHORE_OWNED, &none));
    assert_int_equal(tn_semaphore_acquire(none, TN_NOW), TN_ERR_TIMED_OUT);
    assert_int_equal(tn_semaphore_release(none), TN_ERR_INVALID);
    tn_object_close(none);
    assert_int_equal(tn_semaphore_open(domain, NULL, 1, TN_SEMAPHORE_ANY_RELEASES, &none),
                     TN_ERR_INVALID);
    finish();
}

static int take_two_and_end(void *semaphore)
{
    TN_CHECK_OK(tn_semaphore_acquire(semaphore, TN_NOW));
    TN_CHECK_OK(tn_semaphore_acquire(semaphore, TN_NOW));
    return 0; /* without a word: as good as killed */
}

TN_TEST(the_permits_of_a_dead_owner_go_to_those_that_wait)
{
    tn_semaphore *semaphore;
    begin();
    domain->survive = survive;
    TN_CHECK_OK(tn_semaphore_open(domain, NULL, 2, TN_SEMAPHORE_OWNED, &semaphore));
    tnt_wait_ok(tnt_fork(take_two_and_end, semaphore));
    assert_int_equal(tn_semaphore_count(semaphore), 0);
    TN_CHECK_OK(
        tn_semaphore_acquire(semaphore, TN_FOREVER)); /* not PEER_DIED: there is a permit */
    TN_CHECK_OK(tn_semaphore_acquire(semaphore, TN_NOW));
    assert_int_equal(tn_semaphore_acquire(semaphore, TN_FOREVER), TN_ERR_PEER_DIED);
    tn_object_close(semaphore);
    finish();
}

static int take_one_and_end(void *semaphore)
{
    TN_CHECK_OK(tn_semaphore_acquire(semaphore, TN_NOW));
    return 0;
}

TN_TEST(the_only_permit_of_a_dead_owner_comes_back)
{
    tn_semaphore *semaphore;
    begin();
    domain->survive = survive;
    TN_CHECK_OK(tn_semaphore_open(domain, NULL, 1, TN_SEMAPHORE_OWNED, &semaphore));
    tnt_wait_ok(tnt_fork(take_one_and_end, semaphore));
    assert_int_equal(tn_semaphore_count(semaphore), 0);
    assert_int_equal(tn_semaphore_release(semaphore),
                     TN_ERR_INVALID); /* this process has no permit */
    TN_CHECK_OK(tn_semaphore_acquire(semaphore, TN_FOREVER));
    tnt_wait_ok(tnt_fork(release_anothers, semaphore));
    assert_int_equal(tn_semaphore_acquire(semaphore, TN_NOW), TN_ERR_TIMED_OUT);
    TN_CHECK_OK(tn_semaphore_release(semaphore));
    tn_object_close(semaphore);
    finish();
}

TN_TEST(a_damaged_word_of_one_permit_is_corrupt)
{
    tn_semaphore *semaphore;
    begin();
    TN_CHECK_OK(tn_semaphore_open(domain, NULL, 1, TN_SEMAPHORE_OWNED, &semaphore));
    struct tni_object *object = ((struct tn_object *)(void *)semaphore)->object;
    atomic_store(&object->value, 7);
    assert_int_equal(tn_semaphore_acquire(semaphore, TN_NOW), TN_ERR_CORRUPT);
    assert_int_equal(tn_semaphore_release(semaphore), TN_ERR_CORRUPT);
    tn_object_close(semaphore);
    finish();
}

TN_TEST(closing_the_last_handle_gives_its_permits_back)
{
    tn_semaphore *keeper, *semaphore;
    struct tnt_signal is_there = tnt_signal_open();
    begin();
    TN_CHECK_OK(
        tn_semaphore_open(domain, "slots", 3, TN_OPEN_NEW | TN_SEMAPHORE_OWNED, &keeper));
    pid_t child = tnt_fork(stay, &is_there); /* keeps the semaphore alive */
    tnt_await(&is_there);
    TN_CHECK_OK(tn_semaphore_open(domain, "slots", 0, TN_OPEN_EXISTING, &semaphore));
    TN_CHECK_OK(tn_semaphore_acquire(semaphore, TN_NOW));
    TN_CHECK_OK(tn_semaphore_acquire(semaphore, TN_NOW));
    tn_object_close(semaphore);
    assert_int_equal(tn_semaphore_count(keeper), 1);
    tn_object_close(keeper);
    TN_CHECK_OK(tn_semaphore_open(domain, "slots", 0, TN_OPEN_EXISTING, &semaphore));
    assert_int_equal(tn_semaphore_count(semaphore), 3);
    assert_int_equal(tn_semaphore_release(semaphore), TN_ERR_INVALID);
    tnt_kill(child);
    tn_object_close(semaphore);
    tnt_signal_close(&is_there);
    finish();
}

static int acquire_and_release(void *semaphore)
{
    for (uint32_t i = 0; i < 2; i++)
        TN_CHECK_OK(tn_semaphore_acquire(semaphore, TN_NOW));
    for (uint32_t i = 0; i < 2; i++)
        TN_CHECK_OK(tn_semaphore_release(semaphore));
    return 0;
}

TN_TEST(no_permit_is_lost_or_made_wherever_its_owner_is_killed)
{
    static const char *const points[] = {"semaphore_announced", "semaphore_taken",
                                         "semaphore_counted",   "semaphore_uncounted",
                                         "semaphore_given",     "semaphore_released"};
    tn_semaphore *semaphore;
    begin();
    TN_CHECK_OK(tn_semaphore_open(domain, NULL, 3, TN_SEMAPHORE_OWNED, &semaphore));
    TN_CHECK_OK(tn_semaphore_acquire(semaphore, TN_NOW));
    for (uint32_t i = 0; i < TNI_COUNT(points); i++)
        for (uint32_t passing = 1; passing <= 2; passing++) {
            assert_true(tnt_kill_at(points[i], passing, acquire_and_release, semaphore));
            assert_int_equal(reclaim(), 1);
            assert_int_equal(tn_semaphore_count(semaphore), 2);
            tnt_wait_ok(tnt_fork(acquire_and_release, semaphore));
            reclaim();
        }
    tn_object_close(semaphore);
    finish();
}

static int acquire_one_and_release(void *semaphore)
{
    TN_CHECK_OK(tn_semaphore_acquire(semaphore, TN_NOW));
    TN_CHECK_OK(tn_semaphore_release(semaphore));
    return 0;
}

TN_TEST(the_only_permit_survives_a_kill_of_owner_or_reaper)
{
    static const char *const points[] = {"semaphore_one_taken", "semaphore_released"};
    tn_semaphore *semaphore;
    begin();
    TN_CHECK_OK(tn_semaphore_open(domain, NULL, 1, TN_SEMAPHORE_OWNED, &semaphore));
    for (uint32_t i = 0; i < TNI_COUNT(points); i++) {
        assert_true(tnt_kill_at(points[i], 1, acquire_one_and_release, semaphore));
        assert_int_equal(reclaim(), 1);
        assert_int_equal(tn_semaphore_count(semaphore), 1);
    }
    assert_true(tnt_kill_at("semaphore_one_taken", 1, acquire_one_and_release, semaphore));
    assert_int_equal(tn_semaphore_count(semaphore), 0);
    assert_true(tnt_kill_at("semaphore_one_reclaimed", 1, reap_as_a_stranger, semaphore));
    assert_true(reclaim() >= 1);
    assert_int_equal(tn_semaphore_count(semaphore), 1);
    tn_object_close(semaphore);
    finish();
}

TN_TEST(no_permit_is_lost_or_made_wherever_a_recoverer_is_killed)
{
    static const char *const points[] = {
        "semaphore_reclaim_announced", "semaphore_reclaim_uncounted", "semaphore_reclaim_given",
        "semaphore_marked", "semaphore_recounted"};
    tn_semaphore *semaphore;
    begin();
    TN_CHECK_OK(tn_semaphore_open(domain, NULL, 4, TN_SEMAPHORE_OWNED, &semaphore));
    TN_CHECK_OK(tn_semaphore_acquire(semaphore, TN_NOW));
    for (uint32_t i = 0; i < TNI_COUNT(points); i++) {
        /* One permit counted, one taken and not counted. */
        assert_true(tnt_kill_at("semaphore_taken", 2, acquire_and_release, semaphore));
        assert_int_equal(tn_semaphore_count(semaphore), 1);
        assert_true(tnt_kill_at(points[i], 1, reap_as_a_stranger, semaphore));
        assert_true(reclaim() >=
                    1); /* the dead recoverer, and the seat that it had not reclaimed */
        assert_int_equal(tn_semaphore_count(semaphore), 3);
    }
    tn_object_close(semaphore);
    finish();
}

TN_TEST(a_recount_that_live_threads_delay_is_done_later)
{
    tn_semaphore *semaphore;
    begin();
    TN_CHECK_OK(tn_semaphore_open(domain, NULL, 2, TN_SEMAPHORE_OWNED, &semaphore));
    assert_true(tnt_kill_at("semaphore_taken", 1, acquire_and_release, semaphore));
    struct tni_announce *ours =
        tni_announce_at(&domain->segment, domain->seat, TNI_THREADS - 1);
    atomic_store(&ours->object, ((struct tn_object *)semaphore)->index + 1);
    assert_int_equal(tni_reaper_reclaim_all(domain), TN_ERR_TIMED_OUT);
    assert_int_equal(tni_process_count(&domain->segment), 1); /* its seat does not wait */
    assert_int_equal(tn_semaphore_count(semaphore), 1);
    atomic_store(&ours->object, 0);
    assert_int_equal(reclaim(), 0);
    assert_int_equal(tn_semaphore_count(semaphore), 2);
    tn_object_close(semaphore);
    finish();
}

static int acquire_and_release_for_ever(void *semaphore)
{
    while (atomic_load(&board->stop) == 0) {
        TN_CHECK_OK(tn_semaphore_acquire(semaphore, TN_FOREVER));
        atomic_fetch_add(&board->count, 1);
        TN_CHECK_OK(tn_semaphore_release(semaphore));
    }
    return 0;
}

TN_TEST_WITHIN(permits_add_up_after_random_kills_among_busy_owners, 60)
{
    enum { KILLS = 60 };
    tn_semaphore *semaphore;
    pid_t children[CHILDREN];
    begin();
    TN_CHECK_OK(tn_semaphore_open(domain, NULL, 2, TN_SEMAPHORE_OWNED, &semaphore));
    for (uint32_t i = 0; i < CHILDREN; i++)
        children[i] = tnt_fork(acquire_and_release_for_ever, semaphore);
    for (uint32_t i = 0; i < KILLS; i++) {
        uint32_t until = atomic_load(&board->count) + (uint32_t)tnt_random_below(200);
        while ((int32_t)(atomic_load(&board->count) - until) < 0)
            sched_yield();
        uint32_t victim = (uint32_t)tnt_random_below(CHILDREN);
        tnt_kill(children[victim]);
        reclaim();
        assert_int_equal(tni_process_count(&domain->segment), CHILDREN);
        children[victim] = tnt_fork(acquire_and_release_for_ever, semaphore);
    }
    atomic_store(&board->stop, 1);
    for (uint32_t i = 0; i < CHILDREN; i++)
        tnt_wait_ok(children[i]);
    reclaim();
    assert_int_equal(tn_semaphore_count(semaphore), 2);
    tn_object_close(semaphore);
    finish();
}
