/* SPDX-License-Identifier: Apache-2.0 */
/* The room process: seats, thread records, announces and claims. process.c has I1 to I4. */
#include "process/process.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "harness/harness.h"

static struct tn_domain *d;

static void begin(uint32_t seats)
{
    const struct tni_segment_options options = {.name = "seats",
                                                .seats = seats,
                                                .blocks = 1 << 10,
                                                .objects = 8,
                                                .tickets = 8,
                                                .quota_bytes = 1 << 20};
    struct tni_segment segment;
    TN_CHECK_OK(tni_segment_create(&options, &segment));
    TN_CHECK_OK(tni_process_join(&segment, 0, &d));
}

static void leave(struct tn_domain *domain)
{
    tni_process_begin_leave(domain);
    tni_process_leave(domain);
    tni_process_unkeep(domain);
}

/* Join once more: this process then has two seats. */
static int join_again(struct tn_domain **ret_domain)
{
    struct tni_segment segment;
    TN_CHECK_OK(tni_segment_attach(dup(d->segment.control_fd), dup(d->segment.arena_fd), false,
                                   &segment));
    int status = tni_process_join(&segment, 0, ret_domain);
    if (status != 0)
        tni_segment_detach(&segment);
    return status;
}

static uint64_t word_of(uint32_t seat)
{
    return atomic_load(&tni_seat_at(&d->segment, seat)->word);
}

/* As the reaper does it, of a seat that holds nothing. */
static void free_seat(uint32_t seat)
{
    uint64_t word = word_of(seat);
    atomic_store(&tni_seat_at(&d->segment, seat)->word,
                 tni_seat_word(tni_seat_incarnation(word) + 1, TNI_SEAT_FREE, 0));
}

/* ---- seats ------------------------------------------------------------------------------- */

TN_TEST(a_member_has_a_live_seat_until_it_leaves)
{
    struct tn_domain *other;
    begin(4);
    TN_CHECK_OK(join_again(&other));
    uint32_t seat = other->seat;
    uint64_t who = other->who;
    assert_int_not_equal(seat, d->seat);
    assert_int_equal(tni_seat_state(word_of(seat)), TNI_SEAT_ALIVE);
    assert_int_equal(tni_process_seat_state(&d->segment, seat), TNI_OS_ALIVE);
    assert_int_equal(tni_process_count(&d->segment), 2);
    tni_process_begin_leave(other);
    assert_int_equal(tni_seat_state(word_of(seat)), TNI_SEAT_LEAVING);
    assert_true(tni_process_who_runs(&d->segment, who));
    tni_process_leave(other);
    tni_process_unkeep(other);
    assert_int_equal(tni_seat_state(word_of(seat)), TNI_SEAT_FREE);
    assert_int_equal(tni_process_count(&d->segment), 1);
    leave(d);
}

TN_TEST(each_member_of_a_seat_has_an_incarnation_of_its_own)
{
    struct tn_domain *other;
    begin(4);
    TN_CHECK_OK(join_again(&other));
    uint32_t seat = other->seat;
    uint64_t former = other->who;
    leave(other);
    TN_CHECK_OK(join_again(&other));
    assert_int_equal(other->seat, seat);
    assert_int_equal(other->incarnation, tni_who_incarnation(former) + 1);
    assert_int_equal(tni_process_who_state(&d->segment, other->who), TNI_SEAT_ALIVE);
    assert_int_equal(tni_process_who_state(&d->segment, former), TNI_SEAT_FREE);
    assert_false(tni_process_who_lives(&d->segment, former));
    leave(other);
    leave(d);
}

TN_TEST(a_full_table_has_no_seat_for_another_member)
{
    struct tn_domain *others[3], *late;
    begin(4);
    for (int i = 0; i < 3; i++)
        TN_CHECK_OK(join_again(&others[i]));
    assert_int_equal(join_again(&late), TN_ERR_FULL);
    assert_non_null(strstr(tn_error_detail(), "all 4 seats"));
    struct tni_seat_wait wait = {0};
    assert_false(tni_process_await_seat(&d->segment, &wait));
    leave(others[1]);
    TN_CHECK_OK(join_again(&others[1]));
    for (int i = 0; i < 3; i++)
        leave(others[i]);
    leave(d);
}

TN_TEST(no_number_but_an_owners_names_a_seat)
{
    static const uint64_t wrong[] = {0, 2, UINT64_MAX, UINT64_MAX - 0xfffe};
    begin(4);
    for (size_t i = 0; i < TNI_COUNT(wrong); i++)
        assert_int_equal(tni_process_who_state(&d->segment, wrong[i]), TNI_SEAT_FREE);
    leave(d);
}

/* ---- fork -------------------------------------------------------------------------------- */

static int check_own_seat(void *argument)
{
    uint32_t parent = *(uint32_t *)argument;
    assert_int_not_equal(d->seat, TNI_NO_SEAT);
    assert_int_not_equal(d->seat, parent);
    assert_int_equal(tni_seat_state(word_of(d->seat)), TNI_SEAT_ALIVE);
    assert_int_equal(tni_process_seat_state(&d->segment, d->seat), TNI_OS_ALIVE);
    assert_int_equal(atomic_load(&d->me->pid), getpid());
    assert_int_equal(tni_who_seat(atomic_load(&d->me->parent)), parent);
    return 0;
}

TN_TEST(a_forked_child_has_a_seat_and_leaves_it_dead)
{
    begin(4);
    uint32_t own = d->seat;
    tnt_wait_ok(tnt_fork(check_own_seat, &own));
    assert_int_equal(tni_process_count(&d->segment), 2);
    assert_int_equal(tni_process_count_dead(&d->segment), 1);
    assert_int_equal(tni_process_seat_state(&d->segment, 1), TNI_OS_DEAD);
    assert_true(tni_process_who_lives(&d->segment, tni_who(1, 0)));
    assert_false(tni_process_who_runs(&d->segment, tni_who(1, 0)));
    free_seat(1);
    leave(d);
}

static int wait_to_be_killed(void *argument)
{
    tnt_signal(argument);
    pause();
    return 0;
}

TN_TEST(a_killed_member_is_dead_and_keeps_its_seat)
{
    begin(4);
    struct tnt_signal ready = tnt_signal_open();
    pid_t pid = tnt_fork(wait_to_be_killed, &ready);
    tnt_await(&ready);
    assert_int_equal(tni_process_seat_state(&d->segment, 1), TNI_OS_ALIVE);
    assert_true(tni_process_is_here(&d->segment, 1));
    tnt_kill(pid);
    assert_int_equal(tni_process_seat_state(&d->segment, 1), TNI_OS_DEAD);
    assert_int_equal(tni_seat_state(word_of(1)), TNI_SEAT_ALIVE);
    free_seat(1);
    tnt_signal_close(&ready);
    leave(d);
}

static int check_no_seat(void *argument)
{
    (void)argument;
    assert_int_equal(d->seat, TNI_NO_SEAT);
    assert_int_equal(tni_process_check(d), TN_ERR_FORKED);
    assert_non_null(strstr(tn_error_detail(), "every seat was taken"));
    return 0;
}

TN_TEST(a_child_that_finds_every_seat_taken_runs_without_one)
{
    struct tn_domain *other;
    begin(2);
    TN_CHECK_OK(join_again(&other));
    tnt_wait_ok(tnt_fork(check_no_seat, NULL));
    TN_CHECK_OK(tni_process_check(d));
    leave(other);
    leave(d);
}

/* ---- thread records ---------------------------------------------------------------------- */

TN_TEST(no_two_threads_have_one_record)
{
    struct tni_thread *threads[TNI_THREADS];
    begin(2);
    for (uint32_t t = 0; t < TNI_THREADS; t++) {
        threads[t] = tni_thread_enter(d);
        for (uint32_t other = 0; other < t; other++)
            assert_ptr_not_equal(threads[t], threads[other]);
    }
    assert_null(tni_thread_enter_home(d));
    for (uint32_t t = 0; t < TNI_THREADS; t++)
        tni_thread_leave(threads[t]);
    struct tni_thread *again = tni_thread_enter(d);
    assert_ptr_equal(again, threads[TNI_THREADS - 1]);
    tni_thread_leave(again);
    leave(d);
}

static void *take_the_record(void *thread)
{
    tni_thread_take(thread);
    tni_thread_leave(thread);
    return NULL;
}

TN_TEST(a_taken_record_is_waited_for)
{
    pthread_t waiter;
    begin(2);
    struct tni_thread *thread = tni_thread_enter(d);
    assert_int_equal(pthread_create(&waiter, NULL, take_the_record, thread), 0);
    tni_thread_leave(thread);
    pthread_join(waiter, NULL);
    leave(d);
}

TN_TEST(an_announce_covers_its_span_and_no_other_block)
{
    begin(2);
    struct tni_thread *thread = tni_thread_enter(d);
    tni_block first = tni_block_make(TNI_SMALL_CLASS, 10);
    tni_announce(thread, first, 3);
    for (uint32_t i = 8; i < 15; i++)
        assert_int_equal(
            tni_process_is_announced(&d->segment, NULL, tni_block_make(TNI_SMALL_CLASS, i)),
            i >= 10 && i < 13);
    assert_false(
        tni_process_is_announced(&d->segment, NULL, tni_block_make(TNI_SMALL_CLASS + 1, 10)));
    assert_false(tni_process_is_announced(&d->segment, thread, first));
    tni_announce_clear(thread);
    assert_false(tni_process_is_announced(&d->segment, NULL, first));
    atomic_store(&thread->announce->span, 1);
    tni_thread_leave(thread);
    leave(d);
}

TN_TEST(a_seat_that_is_being_reclaimed_announces_nothing)
{
    begin(2);
    tni_block block = tni_block_make(TNI_SMALL_CLASS, 10);
    struct tni_thread *thread = tni_thread_enter(d);
    tni_announce(thread, block, 1);
    uint64_t word = word_of(d->seat);
    atomic_store(&d->me->word, tni_seat_word(d->incarnation, TNI_SEAT_REAPING, 0));
    assert_false(tni_process_is_announced(&d->segment, NULL, block));
    atomic_store(&d->me->word, word);
    assert_true(tni_process_is_announced(&d->segment, NULL, block));
    tni_announce_clear(thread);
    tni_thread_leave(thread);
    leave(d);
}

TN_TEST(only_announces_of_idle_records_are_cleared)
{
    begin(2);
    struct tni_thread *thread = tni_thread_enter(d);
    struct tni_announce *idle =
        tni_announce_at(&d->segment, d->seat, (thread->number + 1) % TNI_THREADS);
    tni_announce(thread, tni_block_make(TNI_SMALL_CLASS, 1), 1);
    atomic_store(&idle->block, tni_block_make(TNI_SMALL_CLASS, 2).id);
    atomic_store(&idle->commit_bytes, 1 << 20);
    tni_process_clear_idle(d);
    assert_true(tni_announce_is_clear(idle));
    assert_false(tni_announce_is_clear(thread->announce));
    tni_announce_clear(thread);
    tni_thread_leave(thread);
    leave(d);
}

TN_TEST(a_wait_for_a_recount_ends_though_the_recount_does_not)
{
    begin(2);
    tni_block block = tni_block_make(TNI_SMALL_CLASS, 1);
    struct tni_thread *thread = tni_thread_enter(d);
    tni_process_name_recounted(d, block.id);
    assert_true(tni_thread_sees_recount(thread));
    tni_announce(thread, block, 1); /* after 100 ms */
    uint64_t begun_ns = tni_os_now_ns();
    tni_announce_clear(thread);
    for (int i = 0; i < 100; i++) /* it was waited for in vain, and is not again */
        tni_yield_to_recount(thread, block, 1);
    assert_true(tni_os_now_ns() - begun_ns < UINT64_C(5000000000));
    tni_process_name_recounted(d, 0);
    assert_false(tni_thread_sees_recount(thread));
    tni_thread_leave(thread);
    leave(d);
}

/* ---- claims ------------------------------------------------------------------------------ */

static _Atomic uint64_t claim, turn;

TN_TEST(one_thread_at_a_time_has_a_claim)
{
    begin(2);
    assert_true(tni_process_claim(d, &claim, &turn, 0, false));
    assert_int_equal(atomic_load(&claim), d->who);
    assert_false(tni_process_claim(d, &claim, &turn, 0, false));
    tni_process_unclaim(d, &claim, &turn);
    assert_int_equal(atomic_load(&claim), 0);
    assert_true(tni_process_claim(d, &claim, &turn, 0, false));
    tni_process_unclaim(d, &claim, &turn);
    leave(d);
}

TN_TEST(a_claim_is_taken_over_only_from_a_dead_owner)
{
    struct tn_domain *other;
    begin(4);
    TN_CHECK_OK(join_again(&other));
    _Atomic uint64_t *word = &other->me->word;
    uint64_t alive = atomic_load(word), who = other->who;
    atomic_store(&claim, who);
    assert_false(tni_process_claim(d, &claim, &turn, 0, false));
    assert_int_equal(atomic_load(&turn), 0);
    atomic_store(word, tni_seat_word(other->incarnation, TNI_SEAT_REAPING, 0));
    assert_false(tni_process_claim(d, &claim, &turn, 0, true));
    assert_true(tni_process_claim(d, &claim, &turn, 0, false));
    tni_process_unclaim(d, &claim, &turn);
    atomic_store(word, alive);
    atomic_store(&claim, who); /* named as the one that it is taken over from */
    assert_true(tni_process_claim(d, &claim, &turn, who, true));
    tni_process_unclaim(d, &claim, &turn);
    leave(other);
    atomic_store(&claim, who); /* its seat is free by now */
    assert_true(tni_process_claim(d, &claim, &turn, 0, true));
    tni_process_unclaim(d, &claim, &turn);
    leave(d);
}

TN_TEST(a_damaged_claim_does_not_stay_for_ever)
{
    begin(2);
    uint64_t damage[] = {UINT64_MAX, 7, d->who};
    for (size_t i = 0; i < TNI_COUNT(damage); i++) {
        atomic_store(&claim, damage[i]);
        assert_true(tni_process_claim(d, &claim, &turn, 0, true));
        tni_process_unclaim(d, &claim, &turn);
        assert_int_equal(atomic_load(&claim), 0);
    }
    leave(d);
}

/* ---- sets, and what a program gets across exec ------------------------------------------- */

TN_TEST(a_set_of_seats_counts_all_but_one)
{
    static struct tni_seat_set set;
    static const uint32_t seats[] = {0, 63, 64, TNI_MAX_SEATS - 1};
    for (size_t i = 0; i < TNI_COUNT(seats); i++)
        tni_seat_set_add(&set, seats[i]);
    assert_int_equal(tni_seat_set_count(&set, TNI_NO_SEAT), 4);
    assert_int_equal(tni_seat_set_count(&set, 63), 3);
    assert_int_equal(tni_seat_set_count(&set, 1), 4);
    tni_seat_set_remove(&set, 64);
    assert_false(tni_seat_set_has(&set, 64));
    assert_true(tni_seat_set_has(&set, 63));
}

TN_TEST(only_two_descriptors_name_a_domain_across_exec)
{
    static const char *const wrong[] = {
        "",    "3",   "3,", ",4", "3,4,", "3,3", "-3,4", "3, 4", "3,99999999999",
        "a,b", "0,4", "3,2"};
    char value[TNI_PASS_BYTES];
    int control_fd, arena_fd;
    begin(2);
    TN_CHECK_OK(tni_process_write_pass(d, value, sizeof value));
    TN_CHECK_OK(tni_process_parse_pass(value, &control_fd, &arena_fd));
    assert_int_equal(control_fd, d->segment.control_fd);
    assert_int_equal(arena_fd, d->segment.arena_fd);
    assert_int_equal(tni_process_write_pass(d, value, 2), TN_ERR_INVALID);
    assert_int_equal(tni_process_parse_pass(NULL, &control_fd, &arena_fd), TN_ERR_NOT_FOUND);
    for (size_t i = 0; i < TNI_COUNT(wrong); i++)
        assert_int_equal(tni_process_parse_pass(wrong[i], &control_fd, &arena_fd),
                         TN_ERR_CORRUPT);
    leave(d);
}
