/* SPDX-License-Identifier: Apache-2.0 */
/*
 * channel_model: a channel, as shipped: src/channel over src/ref and src/alloc, in a tiny
 * domain.
 *
 * Each process does what its script says, a letter for each call:
 *
 *   P      publish a message
 *   s, o   subscribe from the newest message on, from the oldest one
 *   r      receive a message, if there is one
 *   w      receive a message, and wait for it
 *   u      unsubscribe
 *   e      end the channel
 *   d      reclaim the dead, once there are any
 *
 * Messages are numbered, so notes (struct notes), which are no steps, show:
 *   a receive returns a message that was published, whole, and none twice;
 *   all subscribers have the messages in one order, and who was there from the beginning has
 *     each one that a publish has finished, unless the policy says otherwise;
 *   a message that each subscriber has passed is gone, once the dead are reclaimed;
 *   the next message goes to each subscriber, and then no block is left.
 * A process may be killed before any of its steps.
 */
#include "channel/slots.h"
#include "harness/harness.h"
#include "tiny.h"

#include "reaper/reaper.h"

enum { MOST_OPS = 4, MOST_GOT = 8, LAST_NUMBER = 15, SUBSCRIBERS = 3 };

struct scenario {
    const char *script[MODEL_MOST_PROCESSES];
    bool subscribes[MODEL_MOST_PROCESSES]; /* from the beginning */
    uint32_t capacity;                     /* 0: one message */
    uint32_t policy;
    uint32_t published;                      /* before the beginning, to those subscribers */
    uint32_t received[MODEL_MOST_PROCESSES]; /* of these, before the beginning */
};
static struct scenario scene;
static unsigned process_count;

struct notes {
    uint16_t begun, done; /* messages, by number: a bit for each */
    struct got {
        uint8_t number[MOST_GOT];
        uint8_t count;
    } got[MODEL_MOST_PROCESSES];
    bool has_left[MODEL_MOST_PROCESSES]; /* it gave its subscription up, or began late */
};
static struct notes *notes; /* private */
static struct tni_channel_handle *handles[MODEL_MOST_PROCESSES + 1];

static const struct tni_kind *const kinds[TNI_OBJECT_KINDS] = {
    [TNI_OBJECT_CHANNEL] = &tni_channel_kind,
};

static uint32_t capacity(void) { return scene.capacity != 0 ? scene.capacity : 1; }
static tn_channel *channel_of(unsigned process) { return &handles[process]->handle; }
static const struct tni_slots *slots(void) { return &handles[0]->slots; }

/* ---- operations -------------------------------------------------------------------------- */

static void publish(unsigned process, unsigned number)
{
    uint64_t bytes = number;
    const tn_message message = {.bytes = &bytes, .size_bytes = sizeof bytes};
    notes->begun |= (uint16_t)(1u << number);
    int status = tn_channel_publish(channel_of(process), &message, TN_FOREVER);
    model_require(status == 0 || status == TN_ERR_CLOSED, "a publish succeeds");
    if (status == 0)
        notes->done |= (uint16_t)(1u << number);
}

static void note(unsigned process, uint64_t number)
{
    struct got *got = &notes->got[process];
    model_require(number <= LAST_NUMBER && (notes->begun & 1u << number) != 0,
                  "a receive returns a message that was published, whole");
    for (unsigned i = 0; i < got->count; i++)
        model_require(got->number[i] != number, "no message is received twice");
    model_require(got->count < MOST_GOT, "there are no more messages than were sent");
    got->number[got->count++] = (uint8_t)number;
}

/* @return whether there was a message */
static bool receive(unsigned process, tn_deadline deadline)
{
    tn_message m;
    uint64_t number;
    int status = tn_channel_receive(channel_of(process), deadline, &m);
    if (status != 0) {
        model_require(status == TN_ERR_TIMED_OUT || status == TN_ERR_PEER_DIED ||
                          status == TN_ERR_CLOSED ||
                          (status == TN_ERR_STALE && scene.policy == TN_CHANNEL_DISCONNECT),
                      "a receive succeeds, or there is nothing");
        model_require(status != TN_ERR_TIMED_OUT || deadline.ns == TN_NOW.ns,
                      "who waits for ever does not see a deadline");
        return false;
    }
    model_require(m.size_bytes == sizeof number, "a message has its size");
    memcpy(&number, m.bytes, sizeof number);
    note(process, number);
    tn_message_fini(&m);
    return true;
}

static void subscribe(unsigned process, uint32_t from)
{
    model_require(tn_channel_subscribe(channel_of(process), from) == 0,
                  "there is room for a subscriber");
}

static void run(void)
{
    unsigned self = model_self();
    for (unsigned i = 0; scene.script[self][i] != 0; i++) {
        switch (scene.script[self][i]) {
        case 'P':
            publish(self, self * MOST_OPS + i);
            break;
        case 's':
            subscribe(self, TN_FROM_NEWEST);
            break;
        case 'o':
            subscribe(self, TN_FROM_OLDEST);
            break;
        case 'r':
            (void)receive(self, TN_NOW);
            break;
        case 'w':
            (void)receive(self, TN_FOREVER);
            break;
        case 'u':
            notes->has_left[self] = true;
            (void)!tn_channel_unsubscribe(channel_of(self));
            break;
        case 'e':
            (void)!tn_channel_end(channel_of(self));
            break;
        default:
            if (tiny_await_death())
                tiny_reclaim_all();
        }
    }
}

/* ---- setup ------------------------------------------------------------------------------- */

__attribute__((no_sanitize("thread"), noinline)) static uint64_t peek(const void *at)
{
    return *(const volatile uint64_t *)at;
}

static uint32_t count_records(tni_block block)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < capacity(); i++)
        count += (uint32_t)peek(&slots()->slots[i].word) == block.id;
    return count;
}

/* Who waits for a claim reclaims the dead, as src/reaper has it. */
static void survive(struct tn_domain *d) { (void)tni_reaper_reclaim_all(d); }

static struct tni_channel_handle *make_handle(unsigned process)
{
    struct tni_channel_handle *channel = model_private(sizeof *channel, 8);
    struct tn_domain *d = tiny_domains[process];
    tni_object_set_kinds(d, kinds);
    d->survive = survive;
    channel->handle = (struct tn_object){
        .domain = d,
        .kind = TNI_OBJECT_CHANNEL,
        .roles = d->roles,
        .object = tni_object_at(&tiny_segment, 0),
        .word = tni_object_word(1, 0, TNI_OBJECT_LIVE, TNI_OBJECT_CHANNEL),
        .generation = 1,
    };
    /* Each process has both roles from the beginning. */
    atomic_store(d->roles, TN_PRODUCER | TN_CONSUMER);
    model_require(tni_channel_kind.bind(&channel->handle) == 0, "the channel can be bound");
    return channel;
}

static void setup(void)
{
    tiny_begin(&(struct tiny_spec){
        .processes = process_count,
        .seats = process_count,
        .messages = TINY_MOST_MESSAGES,
        .message_bytes = 192,
        .has_alloc = true,
        .ring_bytes = (uint32_t)tni_slots_bytes(capacity(), SUBSCRIBERS),
        .count_records = count_records,
    });
    /* Who finds a class full looks for free blocks, and others fail meanwhile: not here. */
    atomic_store(&tni_class_at(&tiny_segment, 1)->frontier, 0);
    notes = model_private(sizeof *notes, 8);
    struct tni_object *object = tni_object_at(&tiny_segment, 0);
    object->capacity = capacity();
    object->flags = scene.policy;
    atomic_store(&object->value, tni_channel_value(0, SUBSCRIBERS));
    atomic_store(&object->word, tni_object_word(1, 0, TNI_OBJECT_LIVE, TNI_OBJECT_CHANNEL));
    for (unsigned p = 0; p <= process_count; p++)
        handles[p] = make_handle(p);
    for (unsigned p = 0; p < process_count; p++) {
        notes->has_left[p] = !scene.subscribes[p];
        if (scene.subscribes[p])
            subscribe(p, TN_FROM_NEWEST);
    }
    for (unsigned i = 0; i < scene.published; i++)
        publish(0, LAST_NUMBER - 1 - i);
    for (unsigned p = 0; p < process_count; p++)
        for (unsigned i = 0; i < scene.received[p]; i++)
            model_require(receive(p, TN_NOW), "what was published is there");
    model_name(object, sizeof *object, "object");
    model_name(slots()->head, sizeof *slots()->head, "head");
    model_name(slots()->subscribers, SUBSCRIBERS * sizeof *slots()->subscribers, "subscribers");
    model_name(slots()->slots, capacity() * sizeof *slots()->slots, "slots");
}

/* ---- at the end -------------------------------------------------------------------------- */

/* I3: nobody waits for a message that all have passed. */
static void check_released(void)
{
    uint64_t slowest = UINT64_MAX, last = atomic_load(&slots()->head->last);
    for (unsigned i = 0; i < SUBSCRIBERS; i++) {
        uint64_t cursor = atomic_load(&slots()->subscribers[i].cursor);
        if (cursor != 0)
            slowest = TNI_MIN(slowest, cursor);
    }
    for (uint64_t n = last > capacity() ? last - capacity() + 1 : 1; n <= last && n < slowest;
         n++) {
        uint64_t word = atomic_load(&tni_slot_of(slots(), n)->word);
        model_require(!tni_slot_has(word, n) || tni_channel_block(word) == 0,
                      "a message that all have received is gone");
    }
}

static bool has(const struct got *got, unsigned number)
{
    for (unsigned i = 0; i < got->count; i++)
        if (got->number[i] == number)
            return true;
    return false;
}

static unsigned next_common(const struct got *of, const struct got *with, unsigned at)
{
    while (at < of->count && !has(with, of->number[at]))
        at++;
    return at;
}

static void check_one_order(const struct got *a, const struct got *b)
{
    unsigned i = next_common(a, b, 0), k = next_common(b, a, 0);
    for (; i < a->count && k < b->count;
         i = next_common(a, b, i + 1), k = next_common(b, a, k + 1))
        model_require(a->number[i] == b->number[k], "messages have one order");
}

static bool is_subscriber(unsigned process)
{
    return !model_is_dead(process) && tni_channel_subscriber(handles[process]) != NULL &&
           atomic_load(&handles[process]->subscriber->cursor) != 0;
}

static void check_received(unsigned process)
{
    while (receive(process, TN_NOW))
        continue;
    for (unsigned n = 0; n < LAST_NUMBER; n++)
        model_require((notes->done & 1u << n) == 0 || has(&notes->got[process], n) ||
                          notes->has_left[process] || scene.policy != TN_CHANNEL_WAIT,
                      "who is a subscriber all the time gets every message");
}

static void check(void)
{
    unsigned janitor = process_count;
    tiny_check();
    check_released();
    for (unsigned p = 0; p < process_count; p++)
        if (is_subscriber(p))
            check_received(p);
    for (unsigned p = 0; p < process_count; p++)
        for (unsigned q = 0; q < p; q++)
            check_one_order(&notes->got[p], &notes->got[q]);
    publish(janitor, LAST_NUMBER);
    for (unsigned p = 0; p < process_count; p++)
        if (is_subscriber(p) && (notes->done & 1u << LAST_NUMBER) != 0) {
            model_require(receive(p, TN_NOW), "the next message comes to each subscriber");
            model_require(!receive(p, TN_NOW), "nothing comes after it");
        }
    check_released();
    model_require(tiny_allocated_messages() == 0, "no block is left");
    tiny_check_blocks();
}

/* ---- scenes ------------------------------------------------------------------------------ */

static void explore_at(enum tiny_size size, const char *name, unsigned kills,
                       struct scenario scenario)
{
    scene = scenario;
    process_count = 0;
    struct model model = {.name = name,
                          .kills = kills,
                          .setup = setup,
                          .check = check,
                          .invariant = tiny_invariant};
    while (scene.script[process_count] != NULL)
        model.run[process_count++] = run;
    model.process_count = process_count;
    tiny_explore_at(size, &model);
}

TN_TEST_WITHIN(a_subscriber_has_a_message_whole_or_not_at_all, 600)
{
    explore_at(TINY_QUICK, "publish x receive, a death", 1,
               (struct scenario){.script = {"P", "r"}, .subscribes = {[1] = true}});
}

TN_TEST_WITHIN(who_receives_last_releases_the_message, 600)
{
    explore_at(
        TINY_QUICK, "receive x receive, a death", 1,
        (struct scenario){.script = {"r", "r"}, .subscribes = {true, true}, .published = 1});
}

/* While the first one releases a message, the second one moves past the next message. */
TN_TEST_WITHIN(who_leaves_releases_what_others_have_received, 600)
{
    explore_at(TINY_QUICK, "unsubscribe x receive, a death", 1,
               (struct scenario){.script = {"u", "r"},
                                 .subscribes = {true, true},
                                 .capacity = 2,
                                 .published = 2,
                                 .received = {0, 1}});
}

TN_TEST_WITHIN(a_message_that_is_dropped_is_not_received, 600)
{
    explore_at(TINY_QUICK, "publish that drops x receive, a death", 1,
               (struct scenario){.script = {"P", "r"},
                                 .subscribes = {[1] = true},
                                 .policy = TN_CHANNEL_DROP,
                                 .published = 1});
}

/* What a subscriber copies of a block are no steps, so in C11 nothing orders them. */
TN_TEST_WITHIN(a_receive_finds_no_block_that_has_another_message, 600)
{
#if defined(MODEL_NOT_X86)
    tnt_skip("the copies of a subscriber have no order in C11");
#endif
    explore_at(TINY_QUICK, "publishes that drop x receive", 0,
               (struct scenario){.script = {"PP", "r"},
                                 .subscribes = {[1] = true},
                                 .policy = TN_CHANNEL_DROP,
                                 .published = 1});
}

TN_TEST_WITHIN(a_slow_subscriber_is_disconnected_or_has_moved, 600)
{
    explore_at(TINY_QUICK, "publish that disconnects x receive, a death", 1,
               (struct scenario){.script = {"P", "r"},
                                 .subscribes = {[1] = true},
                                 .policy = TN_CHANNEL_DISCONNECT,
                                 .published = 1});
}

TN_TEST_WITHIN(the_next_publisher_finishes_what_a_dead_one_began, 600)
{
    explore_at(TINY_QUICK, "publish x publish, a death", 1,
               (struct scenario){.script = {"P", "P"}, .capacity = 2});
}

TN_TEST_WITHIN(a_new_subscriber_begins_with_what_is_there, 600)
{
    explore_at(TINY_QUICK, "subscribe x receive, a death", 1,
               (struct scenario){.script = {"r", "or"}, .subscribes = {true}, .published = 1});
}

TN_TEST_WITHIN(a_sleeper_gets_what_is_published, 600)
{
    explore_at(TINY_QUICK, "publish x wait, a death", 1,
               (struct scenario){.script = {"P", "w"}, .subscribes = {[1] = true}});
}

TN_TEST_WITHIN(a_full_channel_waits_for_a_subscriber_or_its_death, 600)
{
    explore_at(
        TINY_FULL, "publish that waits x receive, a death", 1,
        (struct scenario){.script = {"P", "r"}, .subscribes = {[1] = true}, .published = 1});
}

TN_TEST_WITHIN(two_subscribers_have_the_same_messages, 3600)
{
    explore_at(TINY_QUICK, "publish x receive x receive", 0,
               (struct scenario){.script = {"P", "r", "r"}, .subscribes = {[1] = true, true}});
    if (tiny_size() != TINY_QUICK)
        explore_at(
            TINY_FULL, "publish x receive x receive, a death", 1,
            (struct scenario){.script = {"P", "r", "r"}, .subscribes = {[1] = true, true}});
}

TN_TEST_WITHIN(two_publishers_have_one_order, 3600)
{
    if (!tiny_is_tightest())
        explore_at(TINY_QUICK, "publish x publish x receive", 0,
                   (struct scenario){
                       .script = {"P", "P", "rr"}, .subscribes = {[2] = true}, .capacity = 2});
    else
        explore_at(
            TINY_QUICK, "publish x receive", 0,
            (struct scenario){.script = {"P", "r"}, .subscribes = {[1] = true}, .capacity = 2});
}

TN_TEST_WITHIN(a_publish_that_dies_is_reclaimed_beside_a_receive, 3600)
{
    explore_at(TINY_FULL, "publish x receive x reclaim, a death", 1,
               (struct scenario){.script = {"P", "r", "d"}, .subscribes = {[1] = true}});
}

TN_TEST_WITHIN(who_unsubscribes_or_ends_beside_a_publish_keeps_nothing, 600)
{
    explore_at(TINY_QUICK, "publish x unsubscribe, a death", 1,
               (struct scenario){.script = {"P", "u"}, .subscribes = {[1] = true}});
    explore_at(TINY_QUICK, "publish x end, a death", 1,
               (struct scenario){.script = {"P", "er"}, .subscribes = {[1] = true}});
}
