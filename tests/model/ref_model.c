/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ref_model: references of two blocks by three seats, with a death anywhere.
 *
 * Each scenario has two processes at work, one of which may be killed before any of its steps,
 * and a third that reclaims the dead one while the other goes on. After every step
 * count >= records; at the end the janitor reclaims what is left, and count = records.
 * Together they explore each function of ref.c that writes shared memory against each other and
 * against the recount:
 *
 *   released_by_two     release, not the last and the last, of both blocks, in both orders
 *   passed_by_move      lend with move, a slot, adopt; the first hold and the last
 *   passed_by_copy      lend by increment, adopt of what is held already, drop
 *   taken_apart         records of a message block: added by move and by copy, given back
 *   used_up             a ticket made, its only use, adopt
 *   pinned              two uses of a ticket, pins, against its end, and the block's next life
 *   allocated           both take from two blocks, and free
 *   leased              a pin on a slot, its lease, and the end of it
 *   let_recount         one process passes a block to and fro while another recounts it
 *   threads_*           two threads of one process, and their count of local references: a move
 *                       beside a release, two moves, adoptions, a check whether it is held
 *   recounted_*         a seat died with an announce before; the recount of its block against
 *                       moves of that block to and fro, with one death more
 */
#include "harness/harness.h"
#include "tiny.h"

/* The models have no arena, so there is no memory to commit. */
static const struct tni_block_about about = {.kind = TNI_KIND_TENSOR, .is_uncommitted = true};
static const struct tni_parcel moved = {.form = TNI_FORM_MESSAGE, .move = true};

static tni_block a_block(void) { return tiny_block(0); }
static tni_block b_block(void) { return tiny_block(1); }

static void release(tni_block block)
{
    tiny_check_mine(block, tiny_generation(block));
    tni_ref_release(tiny_me(), block);
}

/* The third seat. */
static void reclaim(void)
{
    if (tiny_await_death())
        tiny_reclaim_all();
}

/* ---- released_by_two --------------------------------------------------------------------- */

static void setup_released_by_two(void)
{
    tiny_begin(&(struct tiny_spec){.processes = 3, .seats = 3, .blocks = 2});
    for (uint32_t seat = 0; seat < 2; seat++) {
        tiny_hold(seat, a_block(), 1);
        tiny_hold(seat, b_block(), 1);
    }
}
static void release_a_b(void)
{
    release(a_block());
    release(b_block());
}
static void release_b_a(void)
{
    release(b_block());
    release(a_block());
}
static void check_all_free(void)
{
    tiny_check();
    model_require(tiny_allocated() == 0, "both blocks are free at the end");
}

TN_TEST_WITHIN(counts_hold_while_two_release_both_blocks, 600)
{
    tiny_explore_at(TINY_FULL, &(struct model){.name = "released_by_two",
                                               .process_count = 3,
                                               .kills = 1,
                                               .setup = setup_released_by_two,
                                               .run = {release_a_b, release_b_a, reclaim},
                                               .check = check_all_free,
                                               .invariant = tiny_invariant});
}

/* ---- a slot ------------------------------------------------------------------------------ */

static void setup_passed(void)
{
    tiny_begin(&(struct tiny_spec){.processes = 3, .seats = 3, .blocks = 2, .slots = 1});
    tiny_hold(0, a_block(), 1);
    tiny_hold(1, b_block(), 1);
}

static void push(tni_block block, bool move)
{
    struct tni_parcel parcel = moved;
    parcel.block = block;
    parcel.move = move;
    model_require(tni_ring_push(tiny_queue(model_self()), &parcel) == 0,
                  "there is room in the ring");
}

/* @return false: the producer is dead */
static bool pop(uint32_t producer, tni_block *ret_block)
{
    struct tni_queue *q = tiny_queue(model_self());
    struct tni_taken taken;
    for (;;) {
        bool is_last = model_is_dead(producer) || model_has_ended(producer);
        struct tni_thread *thread = tni_thread_enter(tiny_me());
        bool has_taken = tiny_take(q, thread, &taken);
        if (has_taken) {
            *ret_block = tni_slot_block(taken.slot);
            tni_ring_take_end(q, thread, &taken);
        }
        tni_thread_leave(thread);
        if (has_taken || is_last)
            return has_taken;
        model_yield();
    }
}

static void push_moved(void) { push(a_block(), true); }
static void push_copied(void)
{
    push(a_block(), false);
    release(a_block());
}
static void pop_and_release(void)
{
    tni_block got;
    if (pop(0, &got))
        release(got);
    release(b_block());
}

TN_TEST_WITHIN(counts_hold_while_a_reference_is_passed_by_move, 600)
{
    tiny_explore_at(TINY_FULL, &(struct model){.name = "passed_by_move",
                                               .process_count = 3,
                                               .kills = 1,
                                               .setup = setup_passed,
                                               .run = {push_moved, pop_and_release, reclaim},
                                               .check = tiny_check,
                                               .invariant = tiny_invariant});
}

static void setup_passed_by_copy(void)
{
    setup_passed();
    tiny_hold(1, a_block(), 1);
}
static void pop_held_and_release(void)
{
    tni_block got;
    if (pop(0, &got))
        release(got);
    release(a_block());
}

TN_TEST_WITHIN(counts_hold_while_a_reference_goes_to_a_process_with_one, 600)
{
    tiny_explore_at(TINY_FULL,
                    &(struct model){.name = "passed_by_copy",
                                    .process_count = 3,
                                    .kills = 1,
                                    .setup = setup_passed_by_copy,
                                    .run = {push_copied, pop_held_and_release, reclaim},
                                    .check = tiny_check,
                                    .invariant = tiny_invariant});
}

/* ---- a message block --------------------------------------------------------------------- */

static void setup_taken_apart(void)
{
    tiny_begin(&(struct tiny_spec){.processes = 3, .seats = 3, .blocks = 2, .messages = 1});
    tiny_hold(0, a_block(), 1);
    tiny_hold(0, b_block(), 1);
    tiny_hold(1, b_block(), 1);
    tiny_fill_message(0, NULL, 0);
}
static void fill_and_take_apart(void)
{
    model_require(tni_records_add(tiny_me(), tiny_message(), a_block(), true) == 0, "added");
    model_require(tni_records_add(tiny_me(), tiny_message(), b_block(), false) == 0, "added");
    release(b_block());
    release(tiny_message());
}
static void release_b(void) { release(b_block()); }

TN_TEST_WITHIN(counts_hold_while_a_message_is_filled_and_taken_apart, 600)
{
    tiny_explore_at(TINY_DEEP, &(struct model){.name = "taken_apart",
                                               .process_count = 3,
                                               .kills = 1,
                                               .setup = setup_taken_apart,
                                               .run = {fill_and_take_apart, release_b, reclaim},
                                               .check = check_all_free,
                                               .invariant = tiny_invariant});
}

/* ---- tickets ----------------------------------------------------------------------------- */

static void setup_used_up(void)
{
    tiny_begin(&(struct tiny_spec){.processes = 3, .seats = 3, .blocks = 1, .tickets = 1});
    tiny_hold(0, a_block(), 1);
}
static void make_ticket(void)
{
    struct tn_domain *d = tiny_me();
    struct tni_ticket_terms terms = {.uses = 1, .expires_ns = TNI_TICKET_BOUND};
    struct tni_ticket_name name;
    struct tni_thread *thread = tni_thread_enter(d);
    model_require(tni_ticket_make(d, thread, a_block(), &terms, &name) == 0,
                  "there is a ticket");
    tni_thread_leave(thread);
    release(a_block());
}
/* @return whether the ticket was used */
static bool use_ticket(void)
{
    struct tn_domain *d = tiny_me();
    struct tni_thread *thread = tni_thread_enter(d);
    int status = tni_ticket_use(d, thread, (struct tni_ticket_name){0, 1}, a_block(), 0);
    tni_thread_leave(thread);
    model_require(status == 0 || status == TN_ERR_STALE, "a ticket is live, or stale");
    return status == 0;
}
static void use_when_made(void)
{
    for (;;) {
        bool is_last = model_is_dead(0) || model_has_ended(0);
        bool has_used = use_ticket();
        if (has_used)
            release(a_block());
        if (has_used || is_last)
            return;
        model_yield();
    }
}

TN_TEST_WITHIN(counts_hold_while_a_ticket_is_made_and_used_up, 600)
{
    tiny_explore_at(TINY_FULL, &(struct model){.name = "used_up",
                                               .process_count = 3,
                                               .kills = 1,
                                               .setup = setup_used_up,
                                               .run = {make_ticket, use_when_made, reclaim},
                                               .check = tiny_check,
                                               .invariant = tiny_invariant});
}

static void setup_pinned(void)
{
    tiny_begin(&(struct tiny_spec){
        .processes = 3, .seats = 3, .blocks = 1, .tickets = 1, .has_alloc = true});
    tiny_ticket(0, a_block(), 2, 0);
}
static void alloc_and_release(void)
{
    struct tni_new_block made;
    int status = tni_ref_alloc(tiny_me(), 64, &about, 0, &made);
    model_require(status == 0 || status == TN_ERR_FULL, "a block, or there is none");
    if (status == 0)
        release(made.block);
}
static void end_ticket(void)
{
    struct tn_domain *d = tiny_me();
    struct tni_thread *thread = tni_thread_enter(d);
    _Atomic uint64_t *word = &tni_ticket_at(&d->segment, 0)->word;
    int status = 0;
    while (status == 0) {
        uint64_t seen = atomic_load(word);
        if (tni_ticket_state(seen) != TNI_TICKET_LIVE)
            break;
        status = tni_ticket_end(d, thread, 0, seen, TNI_TICKET_REVOKED);
    }
    tni_thread_leave(thread);
    alloc_and_release();
}
static void use_and_release(void)
{
    if (use_ticket())
        release(a_block());
}

TN_TEST_WITHIN(counts_hold_while_tickets_pin_what_may_be_free, 600)
{
    tiny_explore_at(TINY_DEEP, &(struct model){.name = "pinned",
                                               .process_count = 3,
                                               .kills = 1,
                                               .setup = setup_pinned,
                                               .run = {end_ticket, use_and_release, reclaim},
                                               .check = tiny_check,
                                               .invariant = tiny_invariant});
}

/* ---- allocation -------------------------------------------------------------------------- */

static void setup_allocated(void)
{
    tiny_begin(&(struct tiny_spec){.processes = 3, .seats = 3, .blocks = 2, .has_alloc = true});
}

TN_TEST_WITHIN(counts_hold_while_two_allocate_and_free, 600)
{
    tiny_explore_at(TINY_DEEP,
                    &(struct model){.name = "allocated",
                                    .process_count = 3,
                                    .kills = 1,
                                    .setup = setup_allocated,
                                    .run = {alloc_and_release, alloc_and_release, reclaim},
                                    .check = check_all_free,
                                    .invariant = tiny_invariant});
}

/* ---- a lease ----------------------------------------------------------------------------- */

static void lease_and_end(void)
{
    struct tni_queue *q = tiny_queue(model_self());
    struct tni_taken taken;
    for (;;) {
        bool is_last = model_is_dead(0) || model_has_ended(0);
        struct tni_thread *thread = tni_thread_enter(tiny_me());
        bool has_taken = tiny_take(q, thread, &taken);
        if (has_taken)
            model_require(tni_ring_lease(q, thread, &taken) == 0, "leased");
        tni_thread_leave(thread);
        if (has_taken) {
            release(a_block());
            model_require(tni_ring_lease_end(q, taken.position, false) == 0, "acknowledged");
        }
        if (has_taken || is_last)
            return;
        model_yield();
    }
}

TN_TEST_WITHIN(counts_hold_while_a_message_is_leased, 600)
{
    tiny_explore_at(TINY_FULL, &(struct model){.name = "leased",
                                               .process_count = 3,
                                               .kills = 1,
                                               .setup = setup_passed,
                                               .run = {push_moved, lease_and_end, reclaim},
                                               .check = tiny_check,
                                               .invariant = tiny_invariant});
}

/* ---- recounts against moves -------------------------------------------------------------- */

enum { DEAD_SEAT = 3 };

static void setup_recounted(void)
{
    tiny_begin(&(struct tiny_spec){.processes = 3, .seats = 4, .blocks = 1, .slots = 1});
    tiny_hold(0, a_block(), 1);
    tiny_dead_announces(DEAD_SEAT, a_block());
}
/* Pass the block from a row to a slot and to the row of another process, and back. */
static void push_then_pop(void)
{
    tni_block got;
    push(a_block(), true);
    (void)pop(0, &got);
}
static void pop_then_push(void)
{
    tni_block got;
    if (pop(0, &got))
        push(got, true);
}

static void pop_and_keep(void)
{
    tni_block got;
    (void)pop(0, &got);
}

/*
 * If the steps of the push are explored as well, there are 12 million states on x86, and 7
 * million in C11; to_and_fro explores them.
 */
static void setup_recounted_slot(void)
{
    tiny_begin(&(struct tiny_spec){.processes = 3, .seats = 4, .blocks = 1, .slots = 1});
    tiny_slot(0, TNI_SLOT_FULL, 0, a_block());
    tiny_dead_announces(DEAD_SEAT, a_block());
}
static void nothing(void) {}

TN_TEST_WITHIN(a_recount_is_right_while_the_reference_moves, 600)
{
    bool is_tight = tiny_is_tight() || tiny_size() == TINY_QUICK;
    tiny_explore(
        &(struct model){.name = "recounted_moved",
                        .process_count = 3,
                        .kills = tiny_is_deep() ? 1 : 0,
                        .setup = is_tight ? setup_recounted_slot : setup_recounted,
                        .run = {is_tight ? nothing : push_moved,
                                is_tight ? pop_and_keep : pop_then_push, tiny_reclaim_all},
                        .check = tiny_check,
                        .invariant = tiny_invariant});
}

TN_TEST_WITHIN(a_recount_is_right_while_a_slot_is_filled_and_emptied, 600)
{
    tiny_explore(&(struct model){.name = "recounted_to_and_fro",
                                 .process_count = 2,
                                 .kills = 1,
                                 .setup = setup_recounted,
                                 .run = {push_then_pop, tiny_reclaim_all},
                                 .check = tiny_check,
                                 .invariant = tiny_invariant});
}

/*
 * In sequential consistency only: elsewhere the relaxed read of the name may return an old
 * value.
 */
static void to_and_fro(void)
{
    const struct tni_thread *thread = &tiny_me()->threads[0];
    for (unsigned i = 0; i < 2; i++) {
        tni_block got;
        uint64_t before = tiny_recounted();
        push(a_block(), true);
        bool is_over = (uint32_t)before != a_block().id || tiny_recounted() != before;
        model_require(is_over || thread->waited_out == before,
                      "who begins with a block that is recounted waits for the recount's end");
        (void)pop(0, &got);
    }
}

TN_TEST_WITHIN(a_user_of_a_block_waits_for_its_recount, 600)
{
    tiny_explore_in_order(&(struct model){.name = "let_recount",
                                          .process_count = 2,
                                          .kills = !tiny_is_tightest(),
                                          .setup = setup_recounted,
                                          .run = {to_and_fro, tiny_reclaim_all},
                                          .check = tiny_check,
                                          .invariant = tiny_invariant});
}

static void setup_recounted_ticket(void)
{
    tiny_begin(&(struct tiny_spec){.processes = 3, .seats = 4, .blocks = 1, .tickets = 1});
    tiny_ticket(0, a_block(), 1, 0);
    tiny_dead_announces(DEAD_SEAT, a_block());
}
/* Two processes that use it have a few million states. */
static void use_and_keep(void)
{
    if (tiny_size() > TINY_QUICK)
        (void)use_ticket();
}

TN_TEST_WITHIN(a_recount_is_right_while_a_ticket_is_used_up, 600)
{
    tiny_explore_at(TINY_DEEP,
                    &(struct model){.name = "recounted_used_up",
                                    .process_count = 3,
                                    .kills = 1,
                                    .setup = setup_recounted_ticket,
                                    .run = {use_and_keep, use_and_release, tiny_reclaim_all},
                                    .check = tiny_check,
                                    .invariant = tiny_invariant});
}

static void setup_recounted_message(void)
{
    tiny_begin(&(struct tiny_spec){.processes = 3, .seats = 4, .blocks = 1, .messages = 1});
    tiny_fill_message(0, NULL, 0);
    tiny_hold(0, a_block(), 1);
    tiny_hold(1, a_block(), 1);
    tiny_dead_announces(DEAD_SEAT, a_block());
}
/* Both models have three million states in C11. */
static void add_and_take_apart(void)
{
    model_require(tni_records_add(tiny_me(), tiny_message(), a_block(), true) == 0, "added");
    if (!tiny_is_tightest())
        release(tiny_message());
}
/* If a third process releases as well, x86 has more than 20 million states. */
static void release_a(void)
{
    if (tiny_is_deep())
        release(a_block());
}

TN_TEST_WITHIN(a_recount_is_right_while_a_message_is_filled_and_taken_apart, 600)
{
    tiny_explore_at(TINY_DEEP,
                    &(struct model){.name = "recounted_message",
                                    .process_count = 3,
                                    .kills = 1,
                                    .setup = setup_recounted_message,
                                    .run = {add_and_take_apart, release_a, tiny_reclaim_all},
                                    .check = tiny_check,
                                    .invariant = tiny_invariant});
}

/* ---- threads of one process -------------------------------------------------------------- */

/* @param references  of block a, held by the first two processes, which are threads of one */
static void setup_threads(uint32_t references, uint32_t slots)
{
    tiny_begin(&(struct tiny_spec){.processes = 3,
                                   .seats = 3,
                                   .blocks = 1,
                                   .slots = slots,
                                   .has_threads = true,
                                   .threads = 2});
    if (references != 0)
        tiny_hold(0, a_block(), references);
}
static void setup_two_references(void) { setup_threads(2, 2); }
static void release_the_other(void) { release(a_block()); }
static void pop_what_the_threads_push(void)
{
    tni_block got;
    for (uint32_t producer = 0; producer < 2; producer++)
        while (pop(producer, &got))
            release(got);
}

TN_TEST_WITHIN(counts_hold_while_a_thread_moves_what_another_releases, 600)
{
    tiny_explore(
        &(struct model){.name = "threads_move_and_release",
                        .process_count = 3,
                        .setup = setup_two_references,
                        .run = {push_moved, release_the_other, pop_what_the_threads_push},
                        .check = check_all_free,
                        .invariant = tiny_invariant});
}

TN_TEST_WITHIN(counts_hold_while_two_threads_move_one_block, 600)
{
    tiny_explore(&(struct model){.name = "threads_move_both",
                                 .process_count = 3,
                                 .setup = setup_two_references,
                                 .run = {push_moved, push_moved, nothing},
                                 .check = tiny_check,
                                 .invariant = tiny_invariant});
}

static void setup_one_reference_and_one_message(void)
{
    setup_threads(1, 1);
    tiny_slot(0, TNI_SLOT_FULL, 2, a_block());
}
static void adopt_and_release(void)
{
    tni_block got;
    if (pop(2, &got))
        release(got);
}

TN_TEST_WITHIN(counts_hold_while_a_thread_adopts_what_another_releases, 600)
{
    tiny_explore(&(struct model){.name = "threads_adopt_and_release",
                                 .process_count = 3,
                                 .setup = setup_one_reference_and_one_message,
                                 .run = {adopt_and_release, release_the_other, nothing},
                                 .check = check_all_free,
                                 .invariant = tiny_invariant});
}

static void push_moved_and_release(void)
{
    push_moved();
    release_the_other();
}
static void find_and_release(void)
{
    if (tni_ref_local_if_held(tiny_me(), a_block()))
        release(a_block());
}

TN_TEST_WITHIN(counts_hold_while_a_thread_finds_what_another_releases, 600)
{
    tiny_explore(&(struct model){.name = "threads_find_and_release",
                                 .process_count = 3,
                                 .setup = setup_two_references,
                                 .run = {find_and_release, push_moved_and_release, nothing},
                                 .check = tiny_check,
                                 .invariant = tiny_invariant});
}

static void adopt(void)
{
    tni_block got;
    (void)pop(2, &got);
}
static void setup_two_messages(void)
{
    setup_threads(0, 2);
    tiny_slot(0, TNI_SLOT_FULL, 2, a_block());
    tiny_slot(1, TNI_SLOT_FULL, 2, a_block());
}

TN_TEST_WITHIN(counts_hold_while_two_threads_adopt_one_block, 600)
{
    tiny_explore(&(struct model){.name = "threads_adopt_both",
                                 .process_count = 3,
                                 .setup = setup_two_messages,
                                 .run = {adopt, adopt, nothing},
                                 .check = tiny_check,
                                 .invariant = tiny_invariant});
}
