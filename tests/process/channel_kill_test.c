/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests: a process that dies in the middle of a call of a channel stops nobody. All subscribers
 * have its message or none has, the others go on before any process has reclaimed it, and
 * nothing is left.
 */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "process/channel_world.h"
#include "process/process.h"

enum { CAPACITY = 3, NEW = 1000 };

/* The handles of this process: both are subscribers, and `behind` has received nothing. */
static tn_channel *reader, *behind;
static uint64_t oldest, next;

/* ---- what the child does ----------------------------------------------------------------- */

static void publish_one(void) { publish(NEW); }
static void publish_a_tensor(void) { publish(NEW + 1); }
static void end_it(void) { TN_CHECK_OK(tn_channel_end(channel)); }
static void receive_all(void)
{
    tn_channel *it = subscribe(TN_FROM_OLDEST);
    tn_message m;
    while (tn_channel_receive(it, TN_NOW, &m) == 0)
        tn_message_fini(&m);
    TN_CHECK_OK(tn_channel_unsubscribe(it));
}

struct act {
    const char *name;
    void (*run)(void);
    uint32_t policy;
    bool is_full; /* `behind` is as many messages behind as there is room for */
};
static const struct act acts[] = {
    {"publish", publish_one, TN_CHANNEL_WAIT, false},
    {"publish of a tensor", publish_a_tensor, TN_CHANNEL_WAIT, false},
    {"publish of a tensor that drops", publish_a_tensor, TN_CHANNEL_DROP, true},
    {"publish that drops", publish_one, TN_CHANNEL_DROP, true},
    {"publish that disconnects", publish_one, TN_CHANNEL_DISCONNECT, true},
    {"receive", receive_all, TN_CHANNEL_WAIT, true},
    {"end", end_it, TN_CHANNEL_WAIT, false},
};

static void make_channel(const struct act *act)
{
    begin(TN_OPTIONS(tn_channel_options, .capacity = CAPACITY, .history = 1,
                     .policy = act->policy));
    reader = subscribe(TN_FROM_NEWEST);
    for (next = 1; next <= 2; next++) {
        publish(next);
        expect(reader, next);
    }
    behind = subscribe(TN_FROM_NEWEST);
    oldest = next;
    for (int i = 0; i < (act->is_full ? CAPACITY : 1); i++, next++) {
        publish(next);
        expect(reader, next);
    }
}

static int run_in_child(void *argument)
{
    const struct act *act = argument;
    act->run();
    return 0;
}

/* @return whether a child was killed at that passing of the point */
static bool die(const struct act *act, const char *point, unsigned passing)
{
    return tnt_kill_at(point, passing, run_in_child, (void *)(uintptr_t)act);
}

/* ---- what the others find ---------------------------------------------------------------- */

/* Whether a subscriber has the message of the dead process; it may have been its turn only. */
static bool has_new(tn_channel *it)
{
    tn_message m;
    int status = tn_channel_receive(it, TN_NOW, &m);
    if (status != 0) {
        TN_CHECK(status == TN_ERR_TIMED_OUT || status == TN_ERR_CLOSED);
        return false;
    }
    TN_CHECK(number_of(&m) == NEW || number_of(&m) == NEW + 1);
    tn_message_fini(&m);
    return true;
}

static void look(const struct act *act)
{
    bool was_published = has_new(reader);
    TN_CHECK(!was_published || act->run == publish_one || act->run == publish_a_tensor);
    if (act->policy == TN_CHANNEL_DISCONNECT && !info_of(behind).is_subscribed) {
        expect_status(behind, TN_ERR_STALE);
        return;
    }
    /* A publisher that drops empties the slot first. */
    uint64_t from = act->policy == TN_CHANNEL_DROP ? receive_until(behind, TN_NOW) : oldest - 1;
    TN_CHECK(act->policy != TN_CHANNEL_DROP || from == oldest + 1 ||
             (from == oldest && !was_published));
    for (from++; from < next; from++)
        expect(behind, from);
    TN_CHECK(has_new(behind) == was_published);
}

static int publish_more(void *argument)
{
    (void)argument;
    int status = try_publish(7, tnt_deadline(20000));
    TN_CHECK(status == 0 || status == TN_ERR_CLOSED);
    return status == 0 ? 0 : 3;
}

/* Another process publishes; who is a subscriber still receives that. */
static void go_on(void)
{
    int status = tnt_wait(tnt_fork(publish_more, NULL));
    TN_CHECK(WIFEXITED(status));
    if (WEXITSTATUS(status) == 3) {
        TN_CHECK(info_of(channel).is_ended);
        return;
    }
    TN_CHECK(WEXITSTATUS(status) == 0);
    expect(reader, 7);
    if (info_of(behind).is_subscribed)
        expect(behind, 7);
}

static bool kill_at(const struct act *act, const char *point, unsigned passing)
{
    make_channel(act);
    bool has_died = die(act, point, passing);
    look(act);
    go_on();
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    TNT_AUDIT(d);
    go_on();
    tn_channel_info info = info_of(channel);
    TN_CHECK(info.most_behind == 0);
    TN_CHECK(info.kept == 1); /* the history */
    TN_CHECK(info.subscribers == 2 || act->policy == TN_CHANNEL_DISCONNECT);
    tn_object_close(reader);
    tn_object_close(behind);
    finish();
    return has_died;
}

/* Every passing of the point, in each call that comes to it. */
static void kill_everywhere(const char *point)
{
    unsigned deaths = 0;
    for (unsigned i = 0; i < TNI_COUNT(acts); i++)
        for (unsigned passing = 1; kill_at(&acts[i], point, passing); passing++)
            deaths++;
    tnt_note("%s: %u deaths", point, deaths);
    assert_true(deaths > 0);
}

TN_TEST(a_death_at_channel_claimed_stops_nobody) { kill_everywhere("channel_claimed"); }
TN_TEST(a_death_at_channel_lent_stops_nobody) { kill_everywhere("channel_lent"); }
TN_TEST(a_death_at_channel_written_stops_nobody) { kill_everywhere("channel_written"); }
TN_TEST(a_death_at_channel_placed_stops_nobody) { kill_everywhere("channel_placed"); }
TN_TEST(a_death_at_channel_emptied_stops_nobody) { kill_everywhere("channel_emptied"); }
TN_TEST(a_death_at_channel_released_stops_nobody) { kill_everywhere("channel_released"); }
TN_TEST(a_death_at_channel_subscribing_stops_nobody) { kill_everywhere("channel_subscribing"); }
TN_TEST(a_death_at_channel_received_stops_nobody) { kill_everywhere("channel_received"); }
TN_TEST(a_death_at_channel_left_stops_nobody) { kill_everywhere("channel_left"); }
TN_TEST(a_death_at_channel_ended_stops_nobody) { kill_everywhere("channel_ended"); }

/*
 * `last` does not tell of the message yet, as for a moment with every publisher. Who receives
 * so early releases all the same: nobody else would.
 */
TN_TEST(who_receives_a_message_before_last_follows_releases_it)
{
    begin(TN_OPTIONS(tn_channel_options, .capacity = CAPACITY));
    reader = subscribe(TN_FROM_NEWEST);
    TN_CHECK(die(&acts[0], "channel_placed", 1));
    TN_CHECK(has_new(reader));
    TN_CHECK(info_of(channel).kept == 0);
    tn_object_close(reader);
    finish();
}

/* ---- a death that a wait sees ------------------------------------------------------------ */

static void wait_and_receive(void)
{
    TN_CHECK(receive_until(reader, tnt_deadline(20000)) == NEW);
}

static int receive_from(void *argument)
{
    reader = subscribe(TN_FROM_NEWEST);
    tnt_signal(argument);
    wait_and_receive();
    return 0;
}

/* Who sleeps until a message comes gets the one whose publisher died before it woke anybody. */
TN_TEST(a_sleeper_gets_the_message_of_a_publisher_that_died)
{
    struct tnt_signal has_subscribed = tnt_signal_open();
    begin(TN_OPTIONS(tn_channel_options, .capacity = CAPACITY));
    pid_t pid = tnt_fork(receive_from, &has_subscribed);
    tnt_await(&has_subscribed);
    TN_CHECK(die(&acts[0], "channel_placed", 1));
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    tnt_wait_ok(pid);
    tnt_signal_close(&has_subscribed);
    finish();
}
