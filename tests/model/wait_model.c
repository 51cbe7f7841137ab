/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wait_model: sleeping and waking, as shipped: src/wait, and the waits of src/object.
 *
 * A sleep ends only by a wake-up here: there are no slices of 100 ms, and no timeouts. So if a
 * message is there and no process is going to wake the sleeper, the explorer finds "all sleep".
 * After a death a process reclaims the dead one, and only that wakes the sleepers.
 *
 *   tokens        a counter, and the waits of tni_object_wait(): two waiters, two notifiers
 *   pops, pushes  tn_queue_push() and tn_queue_pop(), with LOOKING: waits for messages, and
 *                 for room
 *   bells         tn_object_wait_any(): pollers; and poll() of tn_domain_poll_fd(), which has
 *                 no slices
 */
#include "harness/harness.h"
#include "tiny.h"
#include "tiny_os.h"

#include "wait/wait.h"

struct scenario {
    unsigned pushers, poppers, pushes,
        pops; /* how many processes push and pop, and how often each */
    unsigned slots;
    bool is_polled;   /* consumers call tn_object_wait_any() with one queue, then pop */
    bool has_poll_fd; /* consumers poll the domain's descriptor when a pop finds nothing */
    bool has_janitor; /* the last process reclaims processes that die */
};
static struct scenario scene;
static uint8_t *popped;    /* private: how often each message was taken */
static bool *has_returned; /* private */
static _Atomic uint32_t *tokens;

static unsigned all(void) { return scene.pushers + scene.poppers + scene.has_janitor; }

/* Set up what tn_object_watch(), tn_domain_poll_fd() and tn_domain_poll_clear() do. */
static void watch_descriptor(unsigned process)
{
    struct tni_object *object = tni_object_at(&tiny_segment, 0);
    struct tni_seat *entry = tni_seat_at(&tiny_segment, process);
    tni_seat_set_add(&object->watchers, process);
    atomic_fetch_or(&object->items, TNI_WAIT_POLLERS);
    atomic_store(&entry->bell_number, process + 1);
    atomic_store(&entry->bell_fd_armed, TNI_BELL_ARMED);
    atomic_store(&tiny_domains[process]->poll_fd, (int)process);
    model_name(&entry->bell_fd_armed, sizeof entry->bell_fd_armed, "bell_fd_armed");
}

static void setup(void)
{
    tiny_begin(&(struct tiny_spec){
        .processes = all(), .seats = all(), .blocks = 1, .slots = scene.slots});
    popped = model_private(16, 8);
    has_returned = model_private(MODEL_MOST_PROCESSES, 8);
    tokens = model_shared(sizeof *tokens, 64);
    if (scene.has_poll_fd)
        tiny_bells_begin(all());
    for (unsigned p = 0; p < all(); p++)
        atomic_store(tiny_queue(p)->handle.roles, TN_PRODUCER | TN_CONSUMER);
    struct tni_object *object = tni_object_at(&tiny_segment, 0);
    for (unsigned p = 0; p < all(); p++) {
        bool is_pusher = p < scene.pushers,
             is_popper = !is_pusher && p < scene.pushers + scene.poppers;
        if (!is_pusher)
            tni_seat_set_remove(&object->producers, p);
        if (!is_popper)
            tni_seat_set_remove(&object->consumers, p);
        if (is_popper && scene.has_poll_fd)
            watch_descriptor(p);
    }
    model_name(object, sizeof *object, "object");
    model_name(&object->items, sizeof object->items, "items");
    model_name(&object->room, sizeof object->room, "room");
    model_name(tiny_queue(0)->slots, scene.slots * tiny_queue(0)->slot_bytes, "slots");
    model_name(tokens, sizeof *tokens, "tokens");
}

/* ---- tokens ------------------------------------------------------------------------------ */

static int take_token(void *context)
{
    uint32_t seen = atomic_load_explicit(tokens, memory_order_acquire);
    (void)context;
    while (seen != 0)
        if (atomic_compare_exchange_strong(tokens, &seen, seen - 1))
            return 0;
    return TN_ERR_TIMED_OUT;
}

static void wait_for_token(void)
{
    struct tn_object *handle = &tiny_queue(model_self())->handle;
    for (unsigned i = 0; i < scene.pops; i++)
        model_require(tni_object_wait(handle,
                                      &(struct tni_awaited){.word = &handle->object->items,
                                                            .side = TNI_SIDE_NONE,
                                                            .spins = TNI_HAS_POLLED,
                                                            .attempt = take_token},
                                      TNI_FOREVER) == 0,
                      "who waits for ever gets a token");
}

static void give_token(void)
{
    struct tn_object *handle = &tiny_queue(model_self())->handle;
    for (unsigned i = 0; i < scene.pushes; i++) {
        atomic_fetch_add(tokens, 1);
        tni_wait_notify(&handle->object->items, 1);
    }
}

static void check_tokens(void)
{
    model_require(atomic_load(tokens) ==
                      scene.pushers * scene.pushes - scene.poppers * scene.pops,
                  "each waiter took what it waited for");
}

/* ---- a queue ----------------------------------------------------------------------------- */

static void push_each(void)
{
    for (unsigned i = 0; i < scene.pushes; i++) {
        uint8_t name = (uint8_t)(model_self() * scene.pushes + i);
        tn_message message = {.bytes = &name, .size_bytes = 1};
        int status = tn_queue_push(&tiny_queue(model_self())->handle, &message, 0, TN_FOREVER);
        if (status == TN_ERR_PEER_DIED)
            return;
        model_require(status == 0, "who waits for ever gets room");
    }
}

/* Pop as an event loop does. */
static int pop_polling(tn_queue *q, tn_message *message)
{
    int status;
    while ((status = tn_queue_pop(q, TN_NOW, message)) == TN_ERR_TIMED_OUT) {
        tiny_poll((int)model_self());
        tn_domain_poll_clear(q->domain);
    }
    return status;
}

static void pop_each(void)
{
    tn_queue *q = &tiny_queue(model_self())->handle;
    tn_message message;
    for (unsigned i = 0; i < scene.pops; i++) {
        int status = scene.is_polled ? tn_object_wait_any(&q, 1, TN_FOREVER) : 0;
        model_require(status == 0, "who waits for ever finds a queue ready");
        status = scene.has_poll_fd ? pop_polling(q, &message)
                                   : tn_queue_pop(q, TN_FOREVER, &message);
        if (status == TN_ERR_PEER_DIED)
            return;
        model_require(status == 0, "who waits for ever gets a message");
        popped[*(const uint8_t *)message.bytes]++;
    }
}

static void push_all(void)
{
    push_each();
    has_returned[model_self()] = true;
}

static void pop_all(void)
{
    pop_each();
    has_returned[model_self()] = true;
}

/* Reclaim when a process has died; the check is no step. */
static void reclaim(void)
{
    for (;;) {
        bool have_all_ended = true;
        for (unsigned p = 0; p + 1 < all(); p++) {
            if (model_peek_dead(p)) {
                model_require(tni_object_reclaim_seat(tiny_me(), p) == 0,
                              "the dead are reclaimed");
                return;
            }
            have_all_ended &= has_returned[p];
        }
        if (have_all_ended)
            return;
        model_yield();
    }
}

static void check(void)
{
    unsigned taken = 0, dead = 0;
    for (unsigned p = 0; p < all(); p++)
        dead += model_is_dead(p);
    for (unsigned m = 0; m < scene.pushers * scene.pushes; m++) {
        taken += popped[m] != 0;
        model_require(popped[m] <= 1 + dead, "no message is popped twice");
    }
    model_require(dead != 0 || taken == scene.poppers * scene.pops,
                  "each who waited has a message of its own");
}

/* ---- scenes ------------------------------------------------------------------------------ */

static void explore_at(enum tiny_size size, const char *name, unsigned kills,
                       struct scenario scenario)
{
    scene = scenario;
    struct model model = {.name = name,
                          .process_count = all(),
                          .kills = kills,
                          .setup = setup,
                          .check = check,
                          .most_states = tiny_is_deep() ? 50000000 : 0};
    for (unsigned p = 0; p < all(); p++)
        model.run[p] = p < scene.pushers                   ? push_all
                       : p < scene.pushers + scene.poppers ? pop_all
                                                           : reclaim;
    tiny_explore_at(size, &model);
}

static void explore(const char *name, unsigned kills, struct scenario scenario)
{
    explore_at(TINY_QUICK, name, kills, scenario);
}

static void explore_tokens(const char *name, struct scenario scenario)
{
    scene = scenario;
    struct model model = {
        .name = name, .process_count = all(), .setup = setup, .check = check_tokens};
    for (unsigned p = 0; p < all(); p++)
        model.run[p] = p < scene.pushers ? give_token : wait_for_token;
    tiny_explore(&model);
}

TN_TEST_WITHIN(no_wake_is_lost_between_one_notifier_and_one_waiter, 600)
{
    explore_tokens("1 x 1 tokens", (struct scenario){1, 1, 2, 2, .slots = 1});
}
TN_TEST_WITHIN(no_wake_is_lost_between_one_notifier_and_two_waiters, 600)
{
    explore_tokens("1 x 2 tokens", (struct scenario){1, 2, 2, 1, .slots = 1});
}
TN_TEST_WITHIN(no_wake_is_lost_between_several_notifiers_and_waiters, 3600)
{
    unsigned waiters = tiny_is_tight() ? 1 : 2;
    explore_tokens(tiny_is_tight() ? "2 x 1 tokens" : "2 x 2 tokens",
                   (struct scenario){2, waiters, 1, 2 / waiters, .slots = 1});
}
TN_TEST_WITHIN(no_wake_is_lost_between_a_push_and_a_pop, 600)
{
    explore("1 x 1, waiting", 0, (struct scenario){1, 1, 2, 2, .slots = 2});
}
TN_TEST_WITHIN(no_wake_is_lost_between_pushes_and_pops_of_several, 3600)
{
    if (tiny_is_tight())
        explore("1 x 1, three pushes", 0, (struct scenario){1, 1, 3, 3, .slots = 2});
    else
        explore_at(TINY_FULL, "1 x 2, waiting", 0, (struct scenario){1, 2, 2, 1, .slots = 2});
}
TN_TEST_WITHIN(no_wake_is_lost_when_pushes_come_together, 3600)
{
    unsigned pushers = tiny_is_tight() ? 1 : 2;
    explore(tiny_is_tight() ? "1 x 1, four slots" : "2 x 1, waiting", 0,
            (struct scenario){pushers, 1, 2 / pushers, 2, .slots = tiny_is_tight() ? 4 : 2});
}
TN_TEST_WITHIN(no_wake_is_lost_when_pushes_wait_for_room, 3600)
{
    unsigned pushers = tiny_is_deep() ? 2 : 1;
    explore(tiny_is_deep() ? "2 x 1, one slot" : "1 x 1, one slot", 0,
            (struct scenario){pushers, 1, 2, 2 * pushers, .slots = 1});
    if (tiny_is_deep())
        explore("1 x 2, one slot", 0, (struct scenario){1, 2, 2, 1, .slots = 1});
    if (tiny_is_deep())
        explore("1 x 3, waiting", 0, (struct scenario){1, 3, 3, 1, .slots = 4});
}
TN_TEST_WITHIN(no_bell_is_lost, 600)
{
    explore("1 x 1, polling", 0, (struct scenario){1, 1, 2, 2, .slots = 2, .is_polled = true});
}
TN_TEST_WITHIN(no_bell_of_a_descriptor_is_lost, 3600)
{
    unsigned pushers = tiny_is_tight() ? 1 : 2;
    explore(pushers == 1 ? "1 x 1, poll()" : "2 x 1, poll()", 0,
            (struct scenario){pushers, 1, 2 / pushers, 2, .slots = 2, .has_poll_fd = true});
}
TN_TEST_WITHIN(no_bell_of_a_descriptor_is_lost_with_one_that_died, 3600)
{
    explore(
        "1 x 1, poll(), a death", 1,
        (struct scenario){1, 1, 2, 1, .slots = 2, .has_poll_fd = true, .has_janitor = true});
}
TN_TEST_WITHIN(no_wake_is_lost_with_one_that_died, 3600)
{
    unsigned poppers = tiny_is_deep() ? 2 : 1;
    explore_at(TINY_FULL, poppers == 1 ? "1 x 1, waiting, a death" : "1 x 2, waiting, a death",
               1, (struct scenario){1, poppers, 2, 1, .slots = 2, .has_janitor = true});
}
