/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: tables of objects that are full, or nearly. */
#include <stdio.h>

#include "harness/harness.h"
#include "os/os.h"
#include "process/process.h"

enum { TURNS = 50, TRIES = 40, MANY_EVENTS = 20000, MOST_TIMES = 30 };

static tn_domain *fill_domain(tn_event **events, uint32_t count)
{
    const tn_domain_options options = {.struct_size = sizeof options,
                                       .objects = MANY_EVENTS + 100,
                                       .flags = TN_DOMAIN_NO_MANAGER};
    tn_domain *d = tnt_domain(&options);
    for (uint32_t i = 0; i < count; i++)
        TN_CHECK_OK(tn_event_open(d, NULL, 0, &events[i]));
    return d;
}

static void close_all(tn_domain *d, tn_event **events, int count)
{
    for (int i = 0; i < count; i++)
        tn_object_close(events[i]);
    tn_domain_close(d);
}

/*
 * The cost of one more object: the least of many measurements, so that other processes do not
 * matter.
 */
static uint64_t cost_of_one_more(tn_domain *d)
{
    uint64_t least_ns = UINT64_MAX;
    for (int n = 0; n < TRIES; n++) {
        uint64_t begun_ns = tni_os_now_ns();
        for (int i = 0; i < TURNS; i++) {
            tn_event *event, *again;
            TN_CHECK_OK(tn_event_open(d, NULL, 0, &event));
            TN_CHECK_OK(tn_object_open_id(d, TN_OBJECT_EVENT, tn_object_id(event), &again));
            tn_object_close(again);
            tn_object_close(event);
        }
        least_ns = TNI_MIN(least_ns, tni_os_now_ns() - begun_ns);
    }
    return least_ns / TURNS;
}

TN_TEST(an_object_costs_the_same_among_many_as_among_few)
{
    static tn_event *many[MANY_EVENTS], *few[10];
    tn_domain *full = fill_domain(many, MANY_EVENTS), *empty = fill_domain(few, 10);
    uint64_t in_full_ns = cost_of_one_more(full), in_empty_ns = cost_of_one_more(empty);
    tnt_note("%llu ns, and %llu ns", (unsigned long long)in_full_ns,
             (unsigned long long)in_empty_ns);
    assert_in_range(in_full_ns, 0, MOST_TIMES * in_empty_ns);
    close_all(full, many, MANY_EVENTS);
    close_all(empty, few, 10);
}

static tn_domain *fill_with_names(tn_event **events, uint32_t count)
{
    tn_domain *d = fill_domain(NULL, 0);
    for (uint32_t i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof name, "event-%u", i);
        TN_CHECK_OK(tn_event_open(d, name, TN_OPEN_NEW, &events[i]));
    }
    return d;
}

/* The cost of opening the last name, which a search of all would find last. */
static uint64_t cost_of_a_look(tn_domain *d, uint32_t last)
{
    uint64_t least_ns = UINT64_MAX;
    char name[32];
    snprintf(name, sizeof name, "event-%u", last);
    for (int n = 0; n < TRIES; n++) {
        uint64_t begun_ns = tni_os_now_ns();
        for (int i = 0; i < TURNS; i++) {
            tn_event *event;
            TN_CHECK_OK(tn_event_open(d, name, TN_OPEN_EXISTING, &event));
            tn_object_close(event);
        }
        least_ns = TNI_MIN(least_ns, tni_os_now_ns() - begun_ns);
    }
    return least_ns / TURNS;
}

TN_TEST(a_name_is_found_as_soon_among_many_as_among_few)
{
    static tn_event *many[MANY_EVENTS], *few[10];
    tn_domain *full = fill_with_names(many, MANY_EVENTS), *empty = fill_with_names(few, 10);
    uint64_t in_full_ns = cost_of_a_look(full, MANY_EVENTS - 1);
    uint64_t in_empty_ns = cost_of_a_look(empty, 9);
    tnt_note("%llu ns, and %llu ns", (unsigned long long)in_full_ns,
             (unsigned long long)in_empty_ns);
    assert_in_range(in_full_ns, 0, MOST_TIMES * in_empty_ns);
    close_all(full, many, MANY_EVENTS);
    close_all(empty, few, 10);
}

/*
 * Names that share an entry of the hash table are ended in another order than they were made.
 */
TN_TEST(each_name_is_found_while_it_lives_and_not_afterwards)
{
    enum { ALL = 40 };
    tn_event *events[ALL], *again;
    const tn_domain_options options = {
        .struct_size = sizeof options, .objects = ALL, .flags = TN_DOMAIN_NO_MANAGER};
    tn_domain *d = tnt_domain(&options);
    char name[32];
    for (int turn = 0; turn < 3; turn++) {
        for (int i = 0; i < ALL; i++) {
            snprintf(name, sizeof name, "%d-of-turn-%d", i, turn);
            TN_CHECK_OK(tn_event_open(d, name, TN_OPEN_NEW, &events[i]));
            assert_int_equal(tn_event_open(d, name, TN_OPEN_NEW, &again), TN_ERR_EXISTS);
        }
        for (int n = 0; n < ALL; n++) {
            int i = n * 7 % ALL;
            snprintf(name, sizeof name, "%d-of-turn-%d", i, turn);
            TN_CHECK_OK(tn_event_open(d, name, TN_OPEN_EXISTING, &again));
            assert_true(tn_object_id(again) == tn_object_id(events[i]));
            tn_object_close(again);
            tn_object_close(events[i]);
            assert_int_equal(tn_event_open(d, name, TN_OPEN_EXISTING, &again),
                             TN_ERR_NOT_FOUND);
        }
    }
    tn_domain_close(d);
}

static int open_first(void *context)
{
    tn_event *event;
    return tn_event_open(context, "event-0", TN_OPEN_EXISTING, &event);
}

TN_TEST(a_death_while_names_are_sorted_leaves_it_to_the_next)
{
    tn_event *events[10], *again;
    tn_domain *d = fill_with_names(events, 10);
    atomic_store(&d->segment.header->names_lost, 1);
    assert_true(tnt_kill_at("names_cleared", 1, open_first, d));
    assert_true(tn_domain_reap(d, NULL) >= 0);
    TN_CHECK_OK(tn_event_open(d, "event-9", TN_OPEN_EXISTING, &again));
    assert_true(tn_object_id(again) == tn_object_id(events[9]));
    assert_int_equal(atomic_load(&d->segment.header->names_lost), 0);
    tn_object_close(again);
    close_all(d, events, 10);
}

struct keeper {
    tn_domain *domain;
    struct tnt_signal ready, never;
};

/* A child that alone has the object open. */
static int keep_one(void *argument)
{
    struct keeper *keeper = argument;
    tn_event *event;
    TN_CHECK_OK(tn_event_open(keeper->domain, "kept", TN_OPEN_NEW, &event));
    tnt_signal(&keeper->ready);
    tnt_await(&keeper->never);
    return 0;
}

static int reap(void *domain) { return tn_domain_reap(domain, NULL); }

TN_TEST(an_object_of_dead_openers_ends_whichever_reclaimer_dies)
{
    tn_domain *d = fill_domain(NULL, 0);
    for (uint32_t turn = 0; turn < 2; turn++) {
        struct keeper keeper = {d, tnt_signal_open(), tnt_signal_open()};
        tn_event *event;
        pid_t child = tnt_fork(keep_one, &keeper);
        tnt_await(&keeper.ready);
        tnt_kill(child);
        assert_true(tnt_kill_at(turn == 0 ? "object_unopened_cleared" : "reclaim_object_woken",
                                1, reap, d));
        TN_CHECK_OK(tn_domain_reap(d, NULL));
        assert_int_equal(tn_event_open(d, "kept", TN_OPEN_EXISTING, &event), TN_ERR_NOT_FOUND);
        TNT_AUDIT(d);
        tnt_signal_close(&keeper.ready);
        tnt_signal_close(&keeper.never);
    }
    tn_domain_close(d);
}

/*
 * A process that waits for the registry sees by `registry_turns` whether one owner has it all
 * the time.
 */
TN_TEST(each_owner_of_the_registry_is_one_turn_more)
{
    tn_domain *d = fill_domain(NULL, 0);
    tn_event *event, *again;
    uint32_t before = atomic_load(&d->segment.header->registry_turns);
    TN_CHECK_OK(tn_event_open(d, "event", TN_OPEN_NEW, &event));
    TN_CHECK_OK(tn_event_open(d, "event", TN_OPEN_EXISTING, &again));
    tn_object_close(again);
    tn_object_close(event);
    assert_int_equal(atomic_load(&d->segment.header->registry_turns), before + 3);
    assert_true(tnt_kill_at("registry_taken", 1, open_first, d));
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    assert_int_equal(atomic_load(&d->segment.header->registry_turns), before + 4);
    tn_domain_close(d);
}

TN_TEST(a_death_with_the_registry_before_any_object_is_no_harm)
{
    tn_domain *d = fill_domain(NULL, 0);
    tn_event *event;
    assert_true(tnt_kill_at("registry_taken", 1, open_first, d));
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    assert_int_equal(atomic_load(&d->segment.header->registry), 0);
    TN_CHECK_OK(tn_event_open(d, NULL, 0, &event));
    TNT_AUDIT(d);
    tn_object_close(event);
    tn_domain_close(d);
}

/* In a table that was full, the entry of an object that was ended is found. */
TN_TEST(a_full_table_of_objects_takes_one_for_each_that_ended)
{
    enum { ALL = 64 };
    const tn_domain_options options = {
        .struct_size = sizeof options, .objects = ALL, .flags = TN_DOMAIN_NO_MANAGER};
    tn_event *events[ALL], *more;
    tn_domain *d = tnt_domain(&options);
    for (int i = 0; i < ALL; i++)
        TN_CHECK_OK(tn_event_open(d, NULL, 0, &events[i]));
    for (int i = 0; i < ALL; i += 7) {
        assert_int_equal(tn_event_open(d, NULL, 0, &more), TN_ERR_FULL);
        tn_object_close(events[i]);
        TN_CHECK_OK(tn_event_open(d, NULL, 0, &events[i]));
    }
    for (int i = 0; i < ALL; i++)
        tn_object_close(events[i]);
    tn_domain_close(d);
}
