/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests: a sample of the sweep; each seed gives another sample. The program `sweep` does all
 * of it.
 *
 * A test sweeps some boundaries of one in five operations, and of one in forty of the costly
 * ones. With TN_TEST_FULL it takes each operation. TN_TEST_SEED decides which ones. Each test
 * ends after a minute.
 */
#include "os/os.h"
#include "sweep/sweep.h"

enum { SOLO_MOST = 24, CHILD_MOST = 12, REAPER_MOST = 6, PAIR_MOST = 6, PAIRS = 40 };

/*
 * A process keeps a socket with which it rings bells. It is made before a test counts its
 * descriptors.
 */
__attribute__((constructor)) static void ring_once(void) { tni_os_bell_ring(1); }

/* On a busy machine the sample is smaller. */
static uint64_t end_ns;

static void begin(void)
{
    const char *why = tracer_why_not();
    if (why != NULL)
        tnt_skip(why);
    end_ns = tnt_until_ns(60 * 1000);
}

static bool is_time_left(void) { return tnt_until_ns(0) < end_ns; }

static struct sweep_plan plan_of(uint32_t most)
{
    return (struct sweep_plan){.most = most,
                               .scenes = 1,
                               .steps = 60000,
                               .seed = tnt_random() >> 8,
                               .at = -1,
                               .pause = -1,
                               .end_ns = end_ns};
}

/* The sample has one of this many operations. */
static unsigned part_of_all(void) { return tnt_is_full() ? 1 : 5; }

/*
 * Leave out an operation unless the seed chooses it, as one in `part`. A costly one takes as
 * long as all others together, and is chosen less often.
 */
static bool is_left_out(const struct crash_op *op, unsigned part)
{
    return tnt_random_below(part * (op->is_costly ? 8 : 1)) != 0;
}

/*
 * `make test` tries few boundaries of each table, and other ones each time. Of few boundaries
 * most may be strays: three of six were. The limit for strays applies only to a whole table.
 */
static bool is_good(const struct sweep_row *row)
{
    enum { FEW = 20 };
    return row->tried < FEW ? row->failures == 0 : sweep_is_good(row);
}

static void judge(const struct sweep_row *row)
{
    tnt_note("%u deaths at %u boundaries, %u strayed, %u failures", row->swept, row->boundaries,
             row->strayed, row->failures);
    if (row->cut_at != 0)
        tnt_note("of the longest operations the first %u boundaries", row->cut_at);
    assert_int_equal(row->failures, 0);
    assert_true(is_good(row));
}

static void sweep_table(const struct crash_op *table)
{
    struct sweep_row row = {0};
    unsigned count = 0;
    begin();
    while (table[count].name != NULL)
        count++;
    const struct crash_op *chosen =
        &table[tnt_random_below(count)]; /* if the seed chooses none, take any one of them */
    for (const struct crash_op *op = table; op->name != NULL && is_time_left(); op++) {
        struct sweep_plan plan = plan_of(SOLO_MOST);
        struct scene scene = {.op = op};
        snprintf(scene.name, sizeof scene.name, "%s", op->name);
        if (op == chosen || !is_left_out(op, part_of_all()))
            sweep_scene(&scene, &plan, &row);
    }
    judge(&row);
}

#define SWEEP_TEST(what, table)                                                                \
    TN_TEST_WITHIN(a_death_at_any_instruction_of_##what##_is_reclaimed, 200)                   \
    {                                                                                          \
        sweep_table(table);                                                                    \
    }

SWEEP_TEST(memory, crash_memory_ops)
SWEEP_TEST(a_push, crash_push_ops)
SWEEP_TEST(a_pop, crash_pop_ops)
SWEEP_TEST(a_queue, crash_object_ops)
SWEEP_TEST(what_wakes_a_sleeper, crash_wake_ops)
SWEEP_TEST(what_waits, crash_sync_ops)
SWEEP_TEST(a_member, crash_member_ops)
SWEEP_TEST(a_storage_outside_of_the_arena, crash_backing_ops)
SWEEP_TEST(what_starts_processes, crash_spawn_ops)
SWEEP_TEST(memory_of_devices, crash_device_ops)

TN_TEST_WITHIN(a_death_at_any_instruction_of_a_forked_child_is_reclaimed, 200)
{
    struct sweep_row row = {0};
    const struct crash_op *op;
    begin();
    for (unsigned n = 0; (op = crash_nth(n)) != NULL && is_time_left(); n++) {
        struct sweep_plan plan = plan_of(CHILD_MOST);
        struct scene scene = {.op = op, .in_child = true};
        snprintf(scene.name, sizeof scene.name, "%s:child", op->name);
        if (sweep_has_child(op) && !is_left_out(op, 1))
            sweep_scene(&scene, &plan, &row);
    }
    judge(&row);
}

TN_TEST_WITHIN(a_death_of_a_reclaimer_at_each_instruction_is_reclaimed, 200)
{
    struct sweep_row row = {0};
    const struct crash_op *op;
    begin();
    for (unsigned n = 0; (op = crash_nth(n)) != NULL && is_time_left(); n++) {
        struct sweep_plan plan = plan_of(REAPER_MOST);
        if (!op->is_costly && tnt_random_below(3 * part_of_all()) == 0)
            sweep_reaper(op, &plan, &row);
    }
    judge(&row);
}

TN_TEST_WITHIN(a_death_at_each_instruction_beside_a_paused_peer_is_undone, 200)
{
    struct sweep_row row = {0};
    begin();
    for (unsigned n = 0; n < PAIRS / part_of_all() && is_time_left(); n++) {
        struct sweep_plan plan = plan_of(PAIR_MOST);
        const struct pair_op *victim = &pair_ops[tnt_random_below(pair_op_count())];
        const struct pair_op *peer = &pair_ops[tnt_random_below(pair_op_count())];
        sweep_pair(victim, peer, &plan, &row);
    }
    judge(&row);
}
