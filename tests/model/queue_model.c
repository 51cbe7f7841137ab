/* SPDX-License-Identifier: Apache-2.0 */
/*
 * queue_model: the ring of a queue, as shipped: src/queue/ring.c over src/ref, in a tiny
 * domain.
 *
 * Producers push numbered messages into a ring of two slots, so that rounds come; consumers
 * take them until the producers are gone. No process sleeps here: see wait_model.c. With a
 * kill, a process that finds nothing to take reclaims the dead one, as a survivor does, while
 * the others go on.
 *
 * Notes (struct note), which are no steps, show at the end:
 *   each message that was pushed arrived at one consumer, once, or is still in the ring;
 *   the last message of a producer that died may have arrived or not;
 *   the message that a dead consumer had taken is delivered again, or dropped, by policy; only
 *     a message that it was just releasing (the slot about to be EMPTY) may be gone or not;
 *   no consumer gets a message after a later one of the same producer;
 *   every slot can be used again, and every count is right (tiny_check()).
 */
#include "harness/harness.h"
#include "tiny.h"

enum { MOST_MESSAGES = 4 };

struct scenario {
    unsigned producers, consumers, each; /* `each`: how many messages each producer pushes */
    unsigned slots;                      /* 0: two */
    bool wraps;                          /* the second round has the number 0 */
    unsigned before; /* how many messages passed before, so that rounds differ */
    uint32_t policy;
    bool has_block;  /* each message owns a reference to the only block */
    bool gives_back; /* each lease is given back once */
};
static struct scenario scene;

struct note {
    uint8_t taken, finished; /* how often each message was taken, and finished */
};
struct notes {
    uint8_t pushed[2]; /* by producer: how many of its pushes have returned */
    uint8_t holding[MODEL_MOST_PROCESSES]; /* the number + 1 of the message that was taken and
                                              is not finished */
    bool is_giving_up[MODEL_MOST_PROCESSES];
    uint8_t last[MODEL_MOST_PROCESSES]
                [2]; /* by consumer and producer: the number + 1 of the last message taken */
    struct note of[2][MOST_MESSAGES];
    bool has_produced[2], is_reclaiming, is_reclaimed;
};
static struct notes *notes; /* private */
static struct tni_queue *janitors;

static tni_block the_block(void) { return tiny_block(0); }
static unsigned slots(void) { return scene.slots != 0 ? scene.slots : 2; }
static unsigned all(void) { return scene.producers + scene.consumers; }

/* Push so many messages and take them, while no other process runs. */
static void pass(unsigned count)
{
    uint8_t name = 0;
    struct tni_parcel parcel = {.form = TNI_FORM_BYTES, .bytes = &name, .bytes_count = 1};
    struct tni_taken taken;
    struct tni_thread *thread = &janitors->handle.domain->threads[0];
    for (unsigned i = 0; i < count; i++)
        model_require(tni_ring_push(janitors, &parcel) == 0, "every slot can be used again");
    for (unsigned i = 0; i < count; i++) {
        model_require(tiny_take(janitors, thread, &taken), "every message is found");
        tni_ring_take_end(janitors, thread, &taken);
    }
}

static void begin_at_last_round(void)
{
    struct tni_object *object = tni_object_at(&tiny_segment, 0);
    for (unsigned i = 0; i < slots(); i++)
        atomic_store(&tni_slot_at(janitors, i)->word,
                     tni_slot_word(UINT32_MAX, TNI_SLOT_EMPTY, 0, 0));
    atomic_store(&object->head, tni_position(UINT32_MAX, 0));
    atomic_store(&object->tail, tni_position(UINT32_MAX, 0));
}

static void setup(void)
{
    tiny_begin(
        &(struct tiny_spec){.processes = all(), .seats = all(), .blocks = 1, .slots = slots()});
    notes = model_private(sizeof *notes, 8);
    struct tni_object *object = tni_object_at(&tiny_segment, 0);
    object->flags = scene.policy;
    for (unsigned p = 0; p < all(); p++) {
        tiny_queue(p)->policy = scene.policy;
        if (scene.has_block && p < scene.producers)
            tiny_hold(p, the_block(), 1);
    }
    janitors = model_private(sizeof *janitors, 8);
    *janitors = *tiny_queue(0);
    janitors->handle.domain = tiny_domains[all()];
    if (scene.wraps)
        begin_at_last_round();
    pass(scene.before);
    model_name(object, sizeof *object, "object");
    model_name(tiny_queue(0)->slots, (size_t)slots() * tiny_queue(0)->slot_bytes, "slots");
}

/* ---- waiting ----------------------------------------------------------------------------- */

/* A waiter reads the ring without a step, and returns when there is something to do. */
__attribute__((no_sanitize("thread"), noinline)) static bool has_slot(uint32_t state)
{
    const struct tni_queue *q = tiny_queue(0);
    for (unsigned i = 0; i < slots(); i++) {
        const struct tni_slot *slot = (const void *)(q->slots + (size_t)i * q->slot_bytes);
        if (tni_slot_state(*(const volatile uint64_t *)&slot->word) == state)
            return true;
    }
    return false;
}

static bool are_dead(unsigned from, unsigned to)
{
    for (unsigned p = from; p < to; p++)
        if (!model_peek_dead(p))
            return false;
    return from < to;
}

/* Reclaim dead processes as a survivor does; one process does it. */
static void reclaim_dead(void)
{
    for (unsigned p = 0; p < all(); p++)
        if (p != model_self() && !notes->is_reclaiming && model_peek_dead(p)) {
            notes->is_reclaiming = true;
            tni_ring_reclaim_seat(tiny_me(), tni_object_at(&tiny_segment, 0), p);
            notes->is_reclaimed = true;
        }
}

/* Whether no message can come any more that another consumer will not finish. */
static bool is_done(void)
{
    unsigned finished = 0;
    bool has_death = false, is_busy = has_slot(TNI_SLOT_FULL) || has_slot(TNI_SLOT_CLAIMED);
    for (unsigned p = 0; p < scene.producers; p++)
        for (unsigned n = 0; n < scene.each; n++)
            finished += notes->of[p][n].finished;
    for (unsigned p = 0; p < all(); p++) {
        bool is_dead = model_peek_dead(p);
        has_death |= is_dead;
        is_busy |= !is_dead &&
                   (notes->holding[p] != 0 || (p < scene.producers && !notes->has_produced[p]));
    }
    return has_death ? notes->is_reclaimed && !is_busy
                     : finished == scene.producers * scene.each;
}

/* ---- producing --------------------------------------------------------------------------- */

static bool push(unsigned producer, unsigned number)
{
    uint8_t name = (uint8_t)(producer * MOST_MESSAGES + number);
    struct tni_parcel parcel = {.form = TNI_FORM_BYTES, .bytes = &name, .bytes_count = 1};
    if (scene.has_block) {
        parcel.form = TNI_FORM_MESSAGE;
        parcel.block = the_block();
        parcel.move =
            number + 1 == scene.each; /* the last message takes the producer's hold along */
    }
    for (;;) {
        int status = tni_ring_push(tiny_queue(model_self()), &parcel);
        if (status == 0) {
            notes->pushed[producer]++;
            return true;
        }
        model_require(status == TN_ERR_TIMED_OUT, "a push succeeds, or the queue is full");
        do {
            model_yield();
            reclaim_dead();
            if (are_dead(scene.producers, all()))
                return false;
        } while (!has_slot(TNI_SLOT_EMPTY));
    }
}

static void produce(void)
{
    unsigned producer = model_self(), number = 0;
    while (number < scene.each && push(producer, number))
        number++;
    if (scene.has_block && number < scene.each)
        tni_ref_release(tiny_me(), the_block());
    notes->has_produced[producer] = true;
}

/* ---- consuming --------------------------------------------------------------------------- */

static struct note *note_of(unsigned name)
{
    model_require(name < 2 * MOST_MESSAGES && name / MOST_MESSAGES < scene.producers &&
                      name % MOST_MESSAGES < scene.each,
                  "what is popped was pushed");
    return &notes->of[name / MOST_MESSAGES][name % MOST_MESSAGES];
}

/* With x86's memory, all processes see the takes in one order. */
static void check_earlier_are_taken(unsigned producer, unsigned number)
{
#if !defined(MODEL_NOT_X86)
    for (unsigned n = 0; n < number; n++)
        model_require(notes->of[producer][n].taken != 0,
                      "no message is taken before an earlier one of its producer");
#else
    (void)producer, (void)number;
#endif
}

static void note_taken(unsigned self, unsigned name, unsigned attempt)
{
    unsigned producer = name / MOST_MESSAGES, number = name % MOST_MESSAGES;
    struct note *note = note_of(name);
    uint8_t *last = &notes->last[self][producer];
    model_require(note->finished == 0, "nobody is given what another one has finished");
    model_require(note->taken == 0 || attempt != 0, "what is given again says so");
    if (note->taken == 0) {
        model_require(number + 1 > *last, "each producer's messages come in their order");
        check_earlier_are_taken(producer, number);
    }
    if (number + 1 > *last)
        *last = (uint8_t)(number + 1);
    note->taken++;
    notes->holding[self] = (uint8_t)(name + 1);
}

static void note_finished(unsigned self, unsigned name)
{
    note_of(name)->finished++;
    notes->holding[self] = 0;
    notes->is_giving_up[self] = false;
}

static void end_lease(struct tni_queue *q, const struct tni_taken *taken, unsigned name,
                      unsigned attempt)
{
    unsigned self = model_self();
    bool give_back = scene.gives_back && attempt == 0;
    if (give_back)
        notes->holding[self] = 0;
    else
        notes->is_giving_up[self] = true;
    model_require(tni_ring_lease_end(q, taken->position, give_back) == 0,
                  "who has a lease can end it");
    if (!give_back)
        note_finished(self, name);
}

/*
 * The note is written with the take, in one step; what the process reads itself comes after
 * that.
 */
__attribute__((no_sanitize("thread"), noinline)) static unsigned
peek(const struct tni_taken *taken, unsigned *ret_attempt)
{
    const volatile struct tni_slot *slot = taken->slot;
    *ret_attempt = slot->attempt;
    return slot->data[0];
}

static bool take_one(struct tni_queue *q, unsigned self)
{
    struct tn_domain *d = q->handle.domain;
    struct tni_taken taken;
    struct tni_thread *thread = tni_thread_enter(d);
    bool has_taken = tiny_take(q, thread, &taken);
    unsigned name = 0, attempt = 0;
    if (has_taken) {
        name = peek(&taken, &attempt);
        note_taken(self, name, attempt);
        model_require(taken.slot->data[0] == name &&
                          tni_form_attempt(TNI_LOOK(*tni_slot_form(taken.slot))) == attempt,
                      "what is in a slot stands still while it is taken");
        if (scene.policy == TN_QUEUE_LEASE) {
            model_require(tni_ring_lease(q, thread, &taken) == 0,
                          "what is taken can be leased");
        } else {
            notes->is_giving_up[self] = true;
            tni_ring_take_end(q, thread, &taken);
            note_finished(self, name);
        }
    }
    tni_thread_leave(thread);
    if (has_taken && scene.has_block)
        tni_ref_release(d, the_block());
    if (has_taken && scene.policy == TN_QUEUE_LEASE)
        end_lease(q, &taken, name, attempt);
    return has_taken;
}

static void consume(void)
{
    while (!is_done()) {
        if (take_one(tiny_queue(model_self()), model_self()))
            continue; /* else an attempt that found nothing */
        do {
            if (is_done())
                return;
            model_yield();
            reclaim_dead();
        } while (!has_slot(TNI_SLOT_FULL));
    }
}

/* ---- at the end -------------------------------------------------------------------------- */

static bool was_in_hands_of_the_dead(unsigned name, bool *ret_giving_up)
{
    for (unsigned p = scene.producers; p < all(); p++)
        if (model_is_dead(p) && notes->holding[p] == name + 1) {
            *ret_giving_up = notes->is_giving_up[p];
            return true;
        }
    return false;
}

static void check_message(unsigned producer, unsigned number)
{
    unsigned name = producer * MOST_MESSAGES + number;
    const struct note *note = &notes->of[producer][number];
    bool is_giving_up = false;
    if (was_in_hands_of_the_dead(name, &is_giving_up)) {
        bool must_come = scene.policy != TN_QUEUE_DROP && !is_giving_up;
        model_require(note->finished <= 1 && (!must_come || note->finished == 1),
                      "what a dead consumer had taken comes again");
    } else if (number < notes->pushed[producer]) {
        model_require(note->finished == 1, "what was pushed comes, once");
    } else {
        bool may_come = model_is_dead(producer) && number == notes->pushed[producer];
        model_require(note->finished <= may_come, "what was not pushed does not come");
    }
}

static void check(void)
{
    unsigned self = all();
    tiny_check();
    while (take_one(janitors, self))
        ;
    for (unsigned p = 0; p < scene.producers; p++)
        for (unsigned n = 0; n < scene.each; n++)
            check_message(p, n);
    for (unsigned round = 0; round < 2; round++)
        pass(slots());
}

/* ---- scenes ------------------------------------------------------------------------------ */

static void explore(const char *name, unsigned kills, struct scenario scenario)
{
    scene = scenario;
    struct model model = {.name = name,
                          .process_count = all(),
                          .kills = kills,
                          .setup = setup,
                          .check = check,
                          .invariant = scene.has_block ? tiny_invariant : NULL,
                          .most_states = tiny_is_deep() ? 50000000 : 0};
    for (unsigned p = 0; p < all(); p++)
        model.run[p] = p < scene.producers ? produce : consume;
    tiny_explore(&model);
}

TN_TEST_WITHIN(a_queue_loses_nothing_between_one_and_one_over_two_rounds, 600)
{
    explore("1 x 1, 3 messages", 0,
            (struct scenario){.producers = 1, .consumers = 1, .each = 3});
}

TN_TEST_WITHIN(a_queue_loses_nothing_between_two_and_several, 3600)
{
    explore("2 x 1", 0,
            (struct scenario){.producers = 2,
                              .consumers = 1,
                              .each = tiny_is_tight() ? 1 : 2,
                              .before = tiny_is_tight()});
    if (!tiny_is_tight())
        explore("2 x 2", 0,
                (struct scenario){.producers = 2, .consumers = 2, .each = 1, .before = 1});
}

TN_TEST_WITHIN(a_queue_loses_nothing_between_one_and_two, 3600)
{
    explore("1 x 2", 0,
            (struct scenario){
                .producers = 1, .consumers = 2, .each = tiny_is_deep() ? 3 : 2, .before = 1});
}

TN_TEST_WITHIN(a_queue_of_one_slot_loses_nothing, 600)
{
    explore("2 x 1, one slot", 0,
            (struct scenario){.producers = 2, .consumers = 1, .each = 1, .slots = 1});
}

TN_TEST_WITHIN(a_queue_of_three_slots_loses_nothing, 600)
{
    explore(
        "1 x 1, three slots, a death", 1,
        (struct scenario){.producers = 1, .consumers = 1, .each = 3, .slots = 3, .before = 2});
}

TN_TEST_WITHIN(a_queue_loses_nothing_when_its_rounds_wrap, 600)
{
    explore("1 x 1, rounds wrap, a death", 1,
            (struct scenario){
                .producers = 1, .consumers = 1, .each = 3, .before = 1, .wraps = true});
    explore("1 x 1, leases, rounds wrap, a death", 1,
            (struct scenario){.producers = 1,
                              .consumers = 1,
                              .each = 2,
                              .before = 1,
                              .wraps = true,
                              .policy = TN_QUEUE_LEASE,
                              .gives_back = true});
}

TN_TEST_WITHIN(a_queue_loses_nothing_when_one_dies, 600)
{
    explore("1 x 1, a death", 1, (struct scenario){.producers = 1, .consumers = 1, .each = 3});
}

TN_TEST_WITHIN(a_queue_loses_nothing_between_two_and_one_when_one_dies, 3600)
{
    explore("2 x 1, a death", 1,
            (struct scenario){.producers = 2,
                              .consumers = 1,
                              .each = tiny_is_deep() ? 2 : 1,
                              .before = !tiny_is_deep()});
}

TN_TEST_WITHIN(a_queue_loses_nothing_between_one_and_two_when_one_dies, 3600)
{
    explore(
        "1 x 2, a death", 1,
        (struct scenario){
            .producers = 1, .consumers = 2, .each = tiny_is_tightest() ? 1 : 2, .before = 1});
}

TN_TEST_WITHIN(a_lease_that_is_given_back_comes_again, 3600)
{
    explore("1 x 2, leases", 0,
            (struct scenario){.producers = 1,
                              .consumers = 2,
                              .each = tiny_is_deep() ? 2 : 1,
                              .before = 1,
                              .policy = TN_QUEUE_LEASE,
                              .gives_back = true});
}

TN_TEST_WITHIN(a_queue_of_leases_loses_nothing_when_one_dies, 3600)
{
    explore("1 x 1, leases, a death", 1,
            (struct scenario){.producers = 1,
                              .consumers = 1,
                              .each = 2,
                              .before = 1,
                              .policy = TN_QUEUE_LEASE,
                              .gives_back = true});
}

TN_TEST_WITHIN(a_lease_of_a_dead_consumer_goes_to_another_one, 3600)
{
    explore("1 x 2, leases, a death", 1,
            (struct scenario){.producers = 1,
                              .consumers = 2,
                              .each = tiny_is_deep() ? 2 : 1,
                              .before = 1,
                              .policy = TN_QUEUE_LEASE,
                              .gives_back = tiny_is_deep()});
}

TN_TEST_WITHIN(a_queue_that_drops_does_so_only_when_one_dies, 600)
{
    explore(
        "1 x 1, drops, a death", 1,
        (struct scenario){.producers = 1, .consumers = 1, .each = 3, .policy = TN_QUEUE_DROP});
}

TN_TEST_WITHIN(a_block_that_is_queued_has_one_reference_more, 600)
{
    explore("1 x 1, block, a death", 1,
            (struct scenario){.producers = 1, .consumers = 1, .each = 2, .has_block = true});
}
