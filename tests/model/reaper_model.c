/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reaper_model: reaper against reaper.
 *
 * Processes died before the model begins, each at a bad moment. Two survivors reclaim their
 * seats at the same time, and one of the two may be killed before any of its steps; then the
 * other reclaims that one too, and finishes its work. TN_MODEL_DEEP: three survivors, of which
 * two are killed.
 *
 *   reclaimed_by_two      a seat with a hold, and an announce of a block that is no longer held
 *   reclaimed_at_once     two dead seats that announce one block
 *   reclaimed_apart       two dead seats that announce one block each
 *   claim_taken_over    the dead seat was recounting: it has the recount claim, and `outer`
 *   apart_taken_over    it was taking a message block apart
 *   recoverer_died      it was reclaiming another dead seat
 *   slots_reclaimed       it had a slot taken, and one claimed; it was producer and consumer
 */
#include "harness/harness.h"
#include "tiny.h"

/* The seats of dead processes come after those of the survivors. */
static uint32_t survivors(void) { return tiny_is_deep() ? 3 : 2; }
static uint32_t first_dead(void) { return survivors(); }
static tni_block a_block(void) { return tiny_block(0); }
static tni_block b_block(void) { return tiny_block(1); }

static void begin(struct tiny_spec spec, uint32_t dead)
{
    spec.processes = survivors();
    spec.seats = survivors() + dead;
    tiny_begin(&spec);
}

static void explore_at(enum tiny_size size, const char *name, void (*setup)(void),
                       void (*check)(void))
{
    tiny_explore_at(size,
                    &(struct model){.name = name,
                                    .process_count = survivors(),
                                    .kills = survivors() - 1,
                                    .setup = setup,
                                    .run = {tiny_reclaim_until_done, tiny_reclaim_until_done,
                                            tiny_reclaim_until_done},
                                    .check = check,
                                    .invariant = tiny_invariant});
}

static void explore(const char *name, void (*setup)(void), void (*check)(void))
{
    explore_at(TINY_QUICK, name, setup, check);
}

static void check_nothing_left(void)
{
    tiny_check();
    model_require(tiny_allocated() == 0, "what only the dead held is free");
}

static void setup_reclaimed_by_two(void)
{
    begin((struct tiny_spec){.blocks = 2}, 1);
    tiny_hold(first_dead(), a_block(), 0);
    tiny_dead_announces(first_dead(), b_block());
}
TN_TEST_WITHIN(a_dead_seat_is_reclaimed_by_two_of_whom_one_is_killed, 600)
{
    explore("reclaimed_by_two", setup_reclaimed_by_two, check_nothing_left);
}

static void setup_reclaimed_at_once(void)
{
    begin((struct tiny_spec){.blocks = 1}, 2);
    tiny_dead_announces(first_dead(), a_block());
    tiny_dead_announces(first_dead() + 1, a_block());
}
TN_TEST_WITHIN(two_dead_seats_that_announce_one_block_are_reclaimed_at_once, 600)
{
    explore_at(TINY_FULL, "reclaimed_at_once", setup_reclaimed_at_once, check_nothing_left);
}

static void setup_reclaimed_apart(void)
{
    begin((struct tiny_spec){.blocks = 2}, 2);
    tiny_dead_announces(first_dead(), a_block());
    tiny_dead_announces(first_dead() + 1, b_block());
}
TN_TEST_WITHIN(no_suspect_is_lost_while_others_are_recounted, 600)
{
    explore_at(TINY_FULL, "reclaimed_apart", setup_reclaimed_apart, check_nothing_left);
}

static void setup_claim_taken_over(void)
{
    begin((struct tiny_spec){.blocks = 1}, 1);
    tiny_dead_announces(first_dead(), a_block());
    atomic_store(&tni_announce_at(&tiny_segment, first_dead(), 0)->outer, a_block().id);
    atomic_store(&tiny_segment.header->recount, tni_who(first_dead(), 1));
}
TN_TEST_WITHIN(the_claim_of_a_dead_recounter_is_taken_over, 600)
{
    explore("claim_taken_over", setup_claim_taken_over, check_nothing_left);
}

static void setup_apart_taken_over(void)
{
    tni_block inner[2] = {a_block(), b_block()};
    struct tni_announce *announce;
    begin((struct tiny_spec){.blocks = 2, .messages = 1}, 1);
    tiny_fill_message(first_dead(), inner, 2);
    tiny_dead_announces(first_dead(), b_block());
    /*
     * The dead process's hold and its count are gone, and the record of b, but not the count
     * of b.
     */
    announce = tni_announce_at(&tiny_segment, first_dead(), 0);
    atomic_store(&announce->outer, tiny_message().id);
    atomic_store(tni_row_at(&tiny_segment, first_dead(), 64), 0);
    atomic_store(tni_word_at(&tiny_segment, tiny_message()),
                 tni_word_next(0, TNI_BLOCK_ALLOC, 0));
    struct tni_records *records = tni_payload_at(&tiny_segment, tiny_message());
    atomic_store(&records->count, 1);
    atomic_store(tni_word_at(&tiny_segment, b_block()), tni_word_next(0, TNI_BLOCK_ALLOC, 1));
}
TN_TEST_WITHIN(a_message_block_of_a_dead_consumer_is_taken_apart_once, 600)
{
    explore("apart_taken_over", setup_apart_taken_over, check_nothing_left);
}

static void setup_recoverer_died(void)
{
    begin((struct tiny_spec){.blocks = 1}, 2);
    tiny_hold(first_dead(), a_block(), 0);
    tiny_kill(first_dead());
    tiny_reclaimed_by(first_dead(), first_dead() + 1);
    tiny_dead_announces(first_dead() + 1, a_block());
}
TN_TEST_WITHIN(what_a_dead_reclaimer_reclaimed_is_reclaimed_again, 600)
{
    explore_at(TINY_FULL, "recoverer_died", setup_recoverer_died, check_nothing_left);
}

static void setup_slots_reclaimed(void)
{
    begin((struct tiny_spec){.blocks = 1, .slots = 2}, 1);
    tiny_slot(0, TNI_SLOT_TAKEN, first_dead(), a_block());
    tiny_slot(1, TNI_SLOT_CLAIMED, first_dead(), (tni_block){0});
    tiny_kill(first_dead());
    atomic_store(&tni_announce_at(&tiny_segment, first_dead(), 0)->block, a_block().id);
    struct tni_object *queue = tni_object_at(&tiny_segment, 0);
    for (uint32_t seat = 0; seat < survivors();
         seat++) { /* the survivors are no consumers, so only the death counts */
        tni_seat_set_remove(&queue->producers, seat);
        tni_seat_set_remove(&queue->consumers, seat);
    }
}
static void check_redelivered(void)
{
    struct tni_queue_figures figures;
    tiny_check();
    tni_queue_figures(&tiny_segment, 0, &figures);
    model_require(figures.full == 1 && figures.claimed == 0 && figures.leased == 0,
                  "what the dead took is there again, what it claimed is not");
    const struct tni_object *queue = tni_object_at(&tiny_segment, 0);
    model_require(!tni_seat_set_has(&queue->producers, first_dead()) &&
                      !tni_seat_set_has(&queue->consumers, first_dead()),
                  "the dead seat is no producer and no consumer any more");
    model_require(atomic_load(&queue->death[TNI_SIDE_PRODUCER]) >> 32 != 0 &&
                      atomic_load(&queue->death[TNI_SIDE_CONSUMER]) >> 32 != 0,
                  "the death is noted on both sides");
}
TN_TEST_WITHIN(two_reclaim_slots_of_a_dead_process_and_one_is_killed, 600)
{
    explore("slots_reclaimed", setup_slots_reclaimed, check_redelivered);
}
