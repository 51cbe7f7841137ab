/* SPDX-License-Identifier: Apache-2.0 */
/*
 * litmus_model: test the explorer itself, on small programs whose possible outcomes are
 * known. An explorer that cannot see what a machine may do proves nothing.
 *
 * The outcome of a program is a number made of what its loads read. `may` has the outcomes
 * that must be found under each memory: all of them, and no other.
 */
#include "harness/harness.h"
#include "model.h"

#include <stdatomic.h>
#include <string.h>

struct room {
    _Atomic uint32_t x, y, z, w;
    uint32_t data, more;
};
static struct room *room;
static uint32_t *seen; /* private: what each process read */

static void setup(void)
{
    room = model_shared(sizeof *room, 64);
    seen = model_private(8 * sizeof *seen, 8);
}

static void tell(void)
{
    unsigned number = 0;
    for (unsigned i = 0; i < 4; i++)
        number |= seen[i] << i;
    model_outcome(number);
}

#define RLX memory_order_relaxed
#define ACQ memory_order_acquire
#define REL memory_order_release
#define SC  memory_order_seq_cst

static void store(_Atomic uint32_t *at, memory_order order)
{
    atomic_store_explicit(at, 1, order);
}

/* A bit for each possible outcome. */
#define ONLY(...) only((unsigned[]){__VA_ARGS__, 64})
static uint64_t only(const unsigned *outcomes)
{
    uint64_t set = 0;
    for (; *outcomes < 64; outcomes++)
        set |= UINT64_C(1) << *outcomes;
    return set;
}

struct may {
    uint64_t sc, tso, c11;
};

static void run(const struct model *model, struct may may)
{
    static const char *const names[] = {"sc", "tso", "c11"};
    const uint64_t expected[] = {may.sc, may.tso, may.c11};
    for (int memory = MODEL_SC; memory <= MODEL_C11; memory++) {
        struct model_result result;
        bool holds = model_explore(model, (enum model_memory)memory, 60, &result);
        tnt_note("%s, %s: %llu states", model->name, names[memory],
                 (unsigned long long)result.states);
        if (!holds)
            print_error("%s: %s\n%s", names[memory], result.failure, result.trace);
        assert_true(holds);
        assert_int_equal(result.outcomes, expected[memory]);
    }
}

static void fails(const struct model *model, enum model_memory memory, const char *sentence)
{
    struct model_result result;
    assert_false(model_explore(model, memory, 60, &result));
    tnt_note("%s: %s", model->name, result.failure);
    assert_non_null(strstr(result.failure, sentence));
    assert_int_not_equal(result.trace[0], 0);
}

/* ---- store buffering --------------------------------------------------------------------- */

static void sb_0_relaxed(void)
{
    store(&room->x, RLX);
    seen[0] = atomic_load_explicit(&room->y, RLX);
}
static void sb_1_relaxed(void)
{
    store(&room->y, RLX);
    seen[1] = atomic_load_explicit(&room->x, RLX);
}
TN_TEST(stores_are_buffered_by_x86)
{
    run(&(struct model){.name = "sb",
                        .process_count = 2,
                        .setup = setup,
                        .run = {sb_0_relaxed, sb_1_relaxed},
                        .check = tell},
        (struct may){ONLY(1, 2, 3), ONLY(0, 1, 2, 3), ONLY(0, 1, 2, 3)});
}

static void sb_0_fenced(void)
{
    store(&room->x, RLX);
    atomic_thread_fence(SC);
    seen[0] = atomic_load_explicit(&room->y, RLX);
}
static void sb_1_fenced(void)
{
    store(&room->y, RLX);
    atomic_thread_fence(SC);
    seen[1] = atomic_load_explicit(&room->x, RLX);
}
TN_TEST(fences_order_a_store_before_a_load)
{
    run(&(struct model){.name = "sb with fences",
                        .process_count = 2,
                        .setup = setup,
                        .run = {sb_0_fenced, sb_1_fenced},
                        .check = tell},
        (struct may){ONLY(1, 2, 3), ONLY(1, 2, 3), ONLY(1, 2, 3)});
}

static void sb_0_sc(void)
{
    store(&room->x, SC);
    seen[0] = atomic_load_explicit(&room->y, SC);
}
static void sb_1_sc(void)
{
    store(&room->y, SC);
    seen[1] = atomic_load_explicit(&room->x, SC);
}
TN_TEST(sequentially_consistent_accesses_are_in_one_order)
{
    run(&(struct model){.name = "sb, seq_cst",
                        .process_count = 2,
                        .setup = setup,
                        .run = {sb_0_sc, sb_1_sc},
                        .check = tell},
        (struct may){ONLY(1, 2, 3), ONLY(1, 2, 3), ONLY(1, 2, 3)});
}

/* A read-modify-write of another place is a fence on x86 only. */
static void sb_0_rmw(void)
{
    store(&room->x, REL);
    atomic_fetch_add(&room->z, 1);
    seen[0] = atomic_load_explicit(&room->y, RLX);
}
static void sb_1_rmw(void)
{
    store(&room->y, REL);
    atomic_fetch_add(&room->z, 1);
    seen[1] = atomic_load_explicit(&room->x, RLX);
}
static void sb_1_other_rmw(void)
{
    store(&room->y, REL);
    atomic_fetch_add(&room->w, 1);
    seen[1] = atomic_load_explicit(&room->x, RLX);
}
TN_TEST(a_locked_instruction_is_a_fence_of_x86_only)
{
    run(&(struct model){.name = "sb with read-modify-writes of two places",
                        .process_count = 2,
                        .setup = setup,
                        .run = {sb_0_rmw, sb_1_other_rmw},
                        .check = tell},
        (struct may){ONLY(1, 2, 3), ONLY(1, 2, 3), ONLY(0, 1, 2, 3)});
    run(&(struct model){.name = "sb with read-modify-writes of one place",
                        .process_count = 2,
                        .setup = setup,
                        .run = {sb_0_rmw, sb_1_rmw},
                        .check = tell},
        (struct may){ONLY(1, 2, 3), ONLY(1, 2, 3), ONLY(1, 2, 3)});
}

/* ---- message passing --------------------------------------------------------------------- */

static void mp_0_released(void)
{
    room->data = 1;
    store(&room->x, REL);
}
static void mp_1_acquired(void)
{
    seen[0] = atomic_load_explicit(&room->x, ACQ);
    if (seen[0] != 0)
        seen[1] = room->data;
}
TN_TEST(what_was_released_is_there_when_acquired)
{
    run(&(struct model){.name = "mp",
                        .process_count = 2,
                        .setup = setup,
                        .run = {mp_0_released, mp_1_acquired},
                        .check = tell},
        (struct may){ONLY(0, 3), ONLY(0, 3), ONLY(0, 3)});
}

static void mp_0_relaxed(void)
{
    room->data = 1;
    store(&room->x, RLX);
}
static void mp_1_relaxed(void)
{
    seen[0] = atomic_load_explicit(&room->x, RLX);
    if (seen[0] != 0)
        seen[1] = room->data;
}
static void mp_0_unfenced(void)
{
    store(&room->y, RLX);
    store(&room->x, RLX);
}
static void mp_1_unfenced(void)
{
    seen[0] = atomic_load_explicit(&room->x, RLX);
    seen[1] = atomic_load_explicit(&room->y, RLX);
}
static void mp_0_fenced(void)
{
    room->data = 1;
    atomic_thread_fence(REL);
    store(&room->x, RLX);
}
static void mp_1_fenced(void)
{
    seen[0] = atomic_load_explicit(&room->x, RLX);
    atomic_thread_fence(ACQ);
    if (seen[0] != 0)
        seen[1] = room->data;
}
TN_TEST(relaxed_accesses_order_nothing_and_fences_do)
{
    run(&(struct model){.name = "mp, relaxed",
                        .process_count = 2,
                        .setup = setup,
                        .run = {mp_0_unfenced, mp_1_unfenced},
                        .check = tell},
        (struct may){ONLY(0, 2, 3), ONLY(0, 2, 3), ONLY(0, 1, 2, 3)});
    run(&(struct model){.name = "mp, fences",
                        .process_count = 2,
                        .setup = setup,
                        .run = {mp_0_fenced, mp_1_fenced},
                        .check = tell},
        (struct may){ONLY(0, 3), ONLY(0, 3), ONLY(0, 3)});
}

static void read_data(void) { seen[0] = room->data; }
static void read_and_tell(void)
{
    seen[0] = room->data;
    store(&room->x, REL);
}
static void read_and_tell_relaxed(void)
{
    seen[0] = room->data;
    store(&room->x, RLX);
}
static void write_when_told(void)
{
    if (atomic_load_explicit(&room->x, ACQ) != 0)
        room->data = 1;
}

TN_TEST(plain_data_behind_a_relaxed_flag_is_a_race)
{
    fails(&(struct model){.name = "mp, relaxed, plain data",
                          .process_count = 2,
                          .setup = setup,
                          .run = {mp_0_relaxed, mp_1_relaxed},
                          .check = tell},
          MODEL_C11, "race at ");
    fails(&(struct model){.name = "mp, plain data without waiting",
                          .process_count = 2,
                          .setup = setup,
                          .run = {mp_0_released, read_data},
                          .check = tell},
          MODEL_SC, "race at ");
}
TN_TEST(a_plain_write_after_others_reads_needs_their_release)
{
    fails(&(struct model){.name = "write after read",
                          .process_count = 2,
                          .setup = setup,
                          .run = {read_and_tell_relaxed, write_when_told},
                          .check = tell},
          MODEL_C11, "race at ");
    run(&(struct model){.name = "write after released read",
                        .process_count = 2,
                        .setup = setup,
                        .run = {read_and_tell, write_when_told},
                        .check = tell},
        (struct may){ONLY(0), ONLY(0), ONLY(0)});
}

/*
 * A release store, a relaxed read-modify-write of another process, and an acquire: a release
 * sequence.
 */
static void release_head(void)
{
    room->data = 1;
    store(&room->x, REL);
}
static void modify_relaxed(void) { atomic_fetch_add_explicit(&room->x, 2, RLX); }
static void store_relaxed(void)
{
    if (atomic_load_explicit(&room->x, RLX) != 0)
        atomic_store_explicit(&room->x, 3, RLX);
}
static void acquire_tail(void)
{
    if (atomic_load_explicit(&room->x, ACQ) == 3)
        seen[0] = room->data;
}
TN_TEST(a_release_sequence_goes_on_through_read_modify_writes)
{
    run(&(struct model){.name = "release sequence",
                        .process_count = 3,
                        .setup = setup,
                        .run = {release_head, modify_relaxed, acquire_tail},
                        .check = tell},
        (struct may){ONLY(0, 1), ONLY(0, 1), ONLY(0, 1)});
    fails(&(struct model){.name = "no release sequence",
                          .process_count = 3,
                          .setup = setup,
                          .run = {release_head, store_relaxed, acquire_tail},
                          .check = tell},
          MODEL_C11, "race at ");
}

/* ---- coherence --------------------------------------------------------------------------- */

static void lb_0(void)
{
    seen[0] = atomic_load_explicit(&room->x, RLX);
    store(&room->y, RLX);
}
static void lb_1(void)
{
    seen[1] = atomic_load_explicit(&room->y, RLX);
    store(&room->x, RLX);
}
TN_TEST(nothing_is_read_before_it_is_stored)
{
    run(&(struct model){.name = "lb",
                        .process_count = 2,
                        .setup = setup,
                        .run = {lb_0, lb_1},
                        .check = tell},
        (struct may){ONLY(0, 1, 2), ONLY(0, 1, 2), ONLY(0, 1, 2)});
}

static void two_0(void)
{
    atomic_store_explicit(&room->x, 1, RLX);
    atomic_store_explicit(&room->y, 2, RLX);
}
static void two_1(void)
{
    atomic_store_explicit(&room->y, 1, RLX);
    atomic_store_explicit(&room->x, 2, RLX);
}
/*
 * Bit 0: x is 1 at the end; bit 1: y is 1. Both bits: in each place, the store of 1 came
 * last.
 */
static void tell_last(void)
{
    model_outcome((atomic_load(&room->x) == 1) + 2u * (atomic_load(&room->y) == 1));
}
TN_TEST(two_stores_each_may_end_up_crossed)
{
    run(&(struct model){.name = "2+2w",
                        .process_count = 2,
                        .setup = setup,
                        .run = {two_0, two_1},
                        .check = tell_last},
        (struct may){ONLY(0, 1, 2), ONLY(0, 1, 2), ONLY(0, 1, 2, 3)});
}

static void write_x(void) { store(&room->x, REL); }
static void write_y(void) { store(&room->y, REL); }
static void read_x_y(void)
{
    seen[0] = atomic_load_explicit(&room->x, ACQ);
    seen[1] = atomic_load_explicit(&room->y, ACQ);
}
static void read_y_x(void)
{
    seen[2] = atomic_load_explicit(&room->y, ACQ);
    seen[3] = atomic_load_explicit(&room->x, ACQ);
}
/* Report whether the two readers saw the writes in different orders. */
static void tell_orders(void)
{
    model_outcome(seen[0] == 1 && seen[1] == 0 && seen[2] == 1 && seen[3] == 0);
}
TN_TEST(independent_writes_may_be_seen_in_two_orders)
{
    run(&(struct model){.name = "iriw",
                        .process_count = 4,
                        .setup = setup,
                        .run = {write_x, write_y, read_x_y, read_y_x},
                        .check = tell_orders},
        (struct may){ONLY(0), ONLY(0), ONLY(0, 1)});
}
static void read_x_y_fenced(void)
{
    seen[0] = atomic_load_explicit(&room->x, RLX);
    atomic_thread_fence(SC);
    seen[1] = atomic_load_explicit(&room->y, RLX);
}
static void read_y_x_fenced(void)
{
    seen[2] = atomic_load_explicit(&room->y, RLX);
    atomic_thread_fence(SC);
    seen[3] = atomic_load_explicit(&room->x, RLX);
}
TN_TEST(fences_between_reads_make_it_one_order)
{
    run(&(struct model){.name = "iriw with fences",
                        .process_count = 4,
                        .setup = setup,
                        .run = {write_x, write_y, read_x_y_fenced, read_y_x_fenced},
                        .check = tell_orders},
        (struct may){ONLY(0), ONLY(0), ONLY(0)});
}

static void write_twice(void)
{
    atomic_store_explicit(&room->x, 1, RLX);
    atomic_store_explicit(&room->x, 2, RLX);
}
static void read_twice(void)
{
    seen[4] = atomic_load_explicit(&room->x, RLX);
    seen[5] = atomic_load_explicit(&room->x, RLX);
}
static void tell_coherent(void) { model_outcome(seen[4] <= seen[5]); }
TN_TEST(one_place_is_never_seen_to_go_back)
{
    run(&(struct model){.name = "corr",
                        .process_count = 2,
                        .setup = setup,
                        .run = {write_twice, read_twice},
                        .check = tell_coherent},
        (struct may){ONLY(1), ONLY(1), ONLY(1)});
}

static void count_up(void) { seen[model_self()] = atomic_fetch_add_explicit(&room->x, 1, RLX); }
/* Each of three processes gets another number. */
static void tell_count(void)
{
    model_outcome(seen[0] + seen[1] + seen[2] == 3 && atomic_load(&room->x) == 3 &&
                  seen[0] != seen[1]);
}
TN_TEST(no_read_modify_write_is_lost)
{
    run(&(struct model){.name = "three additions",
                        .process_count = 3,
                        .setup = setup,
                        .run = {count_up, count_up, count_up},
                        .check = tell_count},
        (struct may){ONLY(1), ONLY(1), ONLY(1)});
}

/* ---- what is not memory ------------------------------------------------------------------ */

static void sleep_until_set(void)
{
    while (atomic_load(&room->x) == 0)
        model_sleep(&room->x, 0);
}
static void set_and_wake(void)
{
    atomic_store(&room->x, 1);
    model_wake(&room->x, 1);
}
static void set_only(void) { atomic_store(&room->x, 1); }
TN_TEST(a_lost_wake_is_found)
{
    fails(&(struct model){.name = "nobody wakes",
                          .process_count = 2,
                          .setup = setup,
                          .run = {sleep_until_set, set_only},
                          .check = tell},
          MODEL_SC, "all sleep");
    fails(&(struct model){.name = "one of two is woken",
                          .process_count = 3,
                          .setup = setup,
                          .run = {sleep_until_set, set_and_wake, sleep_until_set},
                          .check = tell},
          MODEL_TSO, "all sleep");
    run(&(struct model){.name = "woken",
                        .process_count = 2,
                        .setup = setup,
                        .run = {sleep_until_set, set_and_wake},
                        .check = tell},
        (struct may){ONLY(0), ONLY(0), ONLY(0)});
}

/* Plain writes are no steps, but a death may come between any two of them. */
static void write_plainly(void)
{
    room->data = 1;
    room->more = 1;
}
static void tell_plain(void) { model_outcome(room->data + 2 * room->more); }
TN_TEST(a_death_comes_between_any_two_writes)
{
    run(&(struct model){.name = "killed between writes",
                        .process_count = 1,
                        .kills = 1,
                        .setup = setup,
                        .run = {write_plainly},
                        .check = tell_plain},
        (struct may){ONLY(0, 1, 3), ONLY(0, 1, 3), ONLY(0, 1, 3)});
}

static void wait_for_end(void)
{
    while (!model_is_dead(0) && !model_has_ended(0))
        model_yield();
    seen[0] = room->data;
    seen[1] = room->more;
}
static void tell_end(void)
{
    model_outcome(model_is_dead(0) ? room->data + 2 * room->more : 63);
}
TN_TEST(the_writes_of_a_dead_process_are_visible_after_its_death)
{
    run(&(struct model){.name = "death seen",
                        .process_count = 2,
                        .kills = 1,
                        .setup = setup,
                        .run = {write_plainly, wait_for_end},
                        .check = tell_end},
        (struct may){ONLY(0, 1, 3, 63), ONLY(0, 1, 3, 63), ONLY(0, 1, 3, 63)});
}

static _Thread_local uint32_t mine;
static uint32_t also_mine;
static void count_statics(void)
{
    mine += 1 + model_self();
    also_mine += 1 + model_self();
    atomic_fetch_add(&room->x, 1);
    seen[model_self()] = mine == 1 + model_self() && also_mine == mine;
}
TN_TEST(static_variables_are_of_one_process)
{
    run(&(struct model){.name = "statics",
                        .process_count = 3,
                        .setup = setup,
                        .run = {count_statics, count_statics, count_statics},
                        .check = tell},
        (struct may){ONLY(7), ONLY(7), ONLY(7)});
    assert_int_equal(mine, 0);
    assert_int_equal(also_mine, 0);
}

static void choose(void) { seen[0] = model_choose(3); }
static void tell_choice(void) { model_outcome(seen[0]); }
TN_TEST(every_choice_is_tried)
{
    run(&(struct model){.name = "choices",
                        .process_count = 1,
                        .setup = setup,
                        .run = {choose},
                        .check = tell_choice},
        (struct may){ONLY(0, 1, 2), ONLY(0, 1, 2), ONLY(0, 1, 2)});
}
