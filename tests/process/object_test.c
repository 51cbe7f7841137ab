/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: tables of objects that are full, or nearly. */
#include "harness/harness.h"
#include "os/os.h"

enum { TURNS = 50, TRIES = 40, MANY_EVENTS = 20000, MOST_TIMES = 30 };

static tn_domain *fill_domain(tn_event **events, uint32_t count)
{
    const tn_domain_options options = {.struct_size = sizeof options,
                                       .objects = MANY_EVENTS + 100,
                                       .flags = TN_DOMAIN_NO_MANAGER};
    tn_domain *d = tnt_domain(&options);
    for (uint32_t i = 0; i < count; i++)
        TN_CHECK_OK(tn_event_create(d, NULL, false, &events[i]));
    return d;
}

/* The least of many tries: what else the machine does is not counted. */
static uint64_t cost_of_one_more(tn_domain *d)
{
    uint64_t least_ns = UINT64_MAX;
    for (int n = 0; n < TRIES; n++) {
        uint64_t begun_ns = tni_os_now_ns();
        for (int i = 0; i < TURNS; i++) {
            tn_event *event, *again;
            TN_CHECK_OK(tn_event_create(d, NULL, false, &event));
            TN_CHECK_OK(tn_event_open_id(d, tn_event_id(event), &again));
            tn_event_close(again);
            tn_event_close(event);
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
    for (int i = 0; i < MANY_EVENTS; i++)
        tn_event_close(many[i]);
    for (int i = 0; i < 10; i++)
        tn_event_close(few[i]);
    tn_domain_close(full);
    tn_domain_close(empty);
}

/* An entry that was ended in the middle of a full table is found. */
TN_TEST(a_full_table_of_objects_takes_one_for_each_that_ended)
{
    enum { ALL = 64 };
    const tn_domain_options options = {
        .struct_size = sizeof options, .objects = ALL, .flags = TN_DOMAIN_NO_MANAGER};
    tn_event *events[ALL], *more;
    tn_domain *d = tnt_domain(&options);
    for (int i = 0; i < ALL; i++)
        TN_CHECK_OK(tn_event_create(d, NULL, false, &events[i]));
    for (int i = 0; i < ALL; i += 7) {
        assert_int_equal(tn_event_create(d, NULL, false, &more), TN_ERR_FULL);
        tn_event_close(events[i]);
        TN_CHECK_OK(tn_event_create(d, NULL, false, &events[i]));
    }
    for (int i = 0; i < ALL; i++)
        tn_event_close(events[i]);
    tn_domain_close(d);
}
