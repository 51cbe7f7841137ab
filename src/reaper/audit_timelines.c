/* SPDX-License-Identifier: Apache-2.0 */
/*
 * audit_timelines: check the words by which streams of devices wait for each other. A timeline
 * whose owner is gone would never have another one, and streams may wait for it for ever. A
 * word beyond the last number that was issued says that work is done which is not.
 */
#include "reaper/audit.h"

static uint64_t owner_of(const struct tni_segment *s, uint32_t timeline)
{
    return atomic_load(&tni_timeline_at(s, timeline)->owner);
}

static bool has_seat(const struct tni_segment *s, uint64_t who)
{
    uint32_t seat = tni_who_seat(who);
    if (!tni_geometry_has_seat(&s->geometry, seat))
        return false;
    uint64_t word = atomic_load(&tni_seat_at(s, seat)->word);
    return tni_seat_state(word) != TNI_SEAT_FREE &&
           tni_who(seat, tni_seat_incarnation(word)) == who;
}

static bool is_left(const struct tni_audit *a, const void *subject)
{
    uint64_t owner = owner_of(a->segment, *(const uint32_t *)subject);
    return owner != 0 && owner != TNI_TIMELINE_RETIRED && !has_seat(a->segment, owner);
}

static bool is_ahead(const struct tni_audit *a, const void *subject)
{
    uint32_t timeline = *(const uint32_t *)subject;
    return owner_of(a->segment, timeline) != 0 &&
           atomic_load(tni_value_at(a->segment, timeline)) >
               atomic_load(&tni_timeline_at(a->segment, timeline)->issued);
}

static void check(struct tni_audit *a, uint32_t timeline)
{
    if (is_left(a, &timeline) && tni_audit_stays_wrong(a, is_left, &timeline)) {
        uint64_t owner = owner_of(a->segment, timeline);
        if (a->is_repair)
            tni_timeline_settle(a->segment, timeline, owner, 0);
        tni_audit_report(a, a->is_repair, "timeline %u: its owner, of seat %u, is gone",
                         timeline, tni_who_seat(owner));
    }
    if (is_ahead(a, &timeline) && tni_audit_stays_wrong(a, is_ahead, &timeline))
        tni_audit_report(
            a, false,
            "timeline %u: its word is beyond %llu, the last number that was "
            "issued; it cannot be repaired",
            timeline,
            (unsigned long long)atomic_load(&tni_timeline_at(a->segment, timeline)->issued));
}

void tni_audit_timelines(struct tni_audit *a)
{
    uint32_t limit = tni_timeline_limit(a->segment);
    for (uint32_t i = 0; i < limit && a->stop == 0; i++)
        check(a, i);
}
