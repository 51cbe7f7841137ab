/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests: a process that dies in the middle of a change of a store stops nobody. Readers go on
 * before any process has reclaimed it or repaired the store, and the next process that changes
 * the store repairs it. crash_store_ops.c has what a survivor finds after it has reclaimed.
 */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "harness/live_blocks.h"
#include "process/process.h"
#include "process/store_world.h"

enum { KEYS = 5, NEW = 1000 };
static const char *const all[KEYS] = {"k0", "k1", "k2", "k3", "k4"};

/* ---- a death ----------------------------------------------------------------------------- */

static void put_new(void) { put("new", NEW); }
static void put_again(void) { put("k1", NEW); }
static void delete_one(void) { TN_CHECK_OK(tn_store_delete(store, "k1", 0)); }
static void get_one(void)
{
    tn_message m;
    TN_CHECK_OK(tn_store_get(store, "k1", &m, NULL));
    tn_message_fini(&m);
}

struct change {
    const char *name;
    void (*run)(void);
    const char *changed; /* the key that it may change */
    bool evicts;         /* the store is full, and "k0" goes */
    bool expires;        /* "k0" is over */
};
static const struct change changes[] = {
    {"put of a new key", put_new, "new", false, false},
    {"put that replaces", put_again, "k1", false, false},
    {"delete", delete_one, "k1", false, false},
    {"put that evicts", put_new, "new", true, false},
    {"put that removes what is over", put_new, "new", false, true},
    {"get", get_one, "k1", false, false},
};

static void make_store(const struct change *c)
{
    begin(TN_OPTIONS(tn_store_options, .capacity = c->evicts ? KEYS : KEYS + 1,
                     .flags = c->evicts ? TN_STORE_EVICT : 0));
    for (uint64_t i = 0; i < KEYS; i++)
        put(all[i], i);
    if (c->expires) /* the last put, so that none has removed it yet */
        TN_CHECK_OK(try_put(all[0], 0, TN_OPTIONS(tn_store_put_options, .lifetime_ns = 1)));
    TN_CHECK(info().count == KEYS);
}

static int run_in_child(void *argument)
{
    const struct change *c = argument;
    c->run();
    return 0;
}

/* @return whether a child was killed at that passing of the point */
static bool die(const struct change *c, const char *point, unsigned passing)
{
    return tnt_kill_at(point, passing, run_in_child, (void *)(uintptr_t)c);
}

/* ---- what the others find ---------------------------------------------------------------- */

enum { NOTHING = -1 };
static int64_t what_has(const char *key)
{
    tn_message m;
    int status = tn_store_get(store, key, &m, NULL);
    if (status == TN_ERR_NOT_FOUND)
        return NOTHING;
    TN_CHECK_OK(status);
    uint64_t number = number_of(&m);
    tn_message_fini(&m);
    return (int64_t)number;
}

/* Return what the changed key has, and check all others. */
static int64_t look(const struct change *c)
{
    bool may_change = strcmp(c->name, "get") != 0;
    for (int64_t i = 0; i < KEYS; i++) {
        int64_t found = what_has(all[i]);
        bool is_wanted = found == i;
        if (i == 0 && (c->evicts || c->expires))
            is_wanted = found == NOTHING || (c->evicts && found == 0);
        if (may_change && strcmp(all[i], c->changed) == 0)
            is_wanted = found == i || found == (c->run == delete_one ? NOTHING : NEW);
        if (!is_wanted)
            fail_msg("%s: the key %s has %lld", c->name, all[i], (long long)found);
    }
    int64_t found = what_has("new");
    TN_CHECK(found == NOTHING || (found == NEW && c->run == put_new));
    TN_CHECK(what_has("missing") == NOTHING);
    return what_has(c->changed);
}

static int read_and_write(void *argument)
{
    const struct change *c = argument;
    look(c);
    put("k2", 2);
    return 0;
}

static bool kill_at(const struct change *c, const char *point, unsigned passing)
{
    make_store(c);
    bool has_died = die(c, point, passing);
    int64_t found = look(c);
    TN_CHECK(look(c) == found);
    /* A process that takes no part in reclaiming changes the store and finds the same. */
    tnt_wait_ok(tnt_fork(read_and_write, (void *)(uintptr_t)c));
    TN_CHECK(look(c) == found);
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    TNT_AUDIT(d);
    TN_CHECK(look(c) == found);
    put("k3", 3);
    TN_CHECK(info().count == count_keys(""));
    store = tn_object_close(store);
    TNT_AUDIT(d);
    assert_int_equal(live_blocks(d), 0);
    tn_domain_close(d);
    return has_died;
}

/* Every passing of the point, in each change that comes to it. */
static void kill_everywhere(const char *point)
{
    unsigned deaths = 0;
    for (unsigned i = 0; i < TNI_COUNT(changes); i++)
        for (unsigned passing = 1; kill_at(&changes[i], point, passing); passing++)
            deaths++;
    tnt_note("%s: %u deaths", point, deaths);
    assert_true(deaths > 0);
}

static int get_value_of(void *key)
{
    tn_message m;
    TN_CHECK_OK(tn_store_get(store, key, &m, NULL));
    tn_message_fini(&m);
    return 0;
}

/* A get pins a tensor, or the block in which many bytes lie. */
TN_TEST(a_death_at_message_pinned_leaves_no_reference)
{
    static const uint8_t bytes[5000];
    static char tensor[] = "tensor", many[] = "many";
    begin(NULL);
    tn_tensor *t = make_tensor(64, 1);
    put_tensor(tensor, t, NULL);
    tn_tensor_unref(t);
    TN_CHECK_OK(tn_store_put(
        store, many, &(tn_message){.bytes = bytes, .size_bytes = sizeof bytes}, NULL, NULL));
    assert_true(tnt_kill_at("message_pinned", 1, get_value_of, tensor));
    assert_true(tnt_kill_at("message_pinned", 1, get_value_of, many));
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    TNT_AUDIT(d);
    get_value_of(tensor);
    get_value_of(many);
    finish();
}
TN_TEST(a_death_at_store_claimed_stops_no_other_process) { kill_everywhere("store_claimed"); }
TN_TEST(a_death_at_store_linked_stops_no_other_process) { kill_everywhere("store_linked"); }
TN_TEST(a_death_at_store_lent_stops_no_other_process) { kill_everywhere("store_lent"); }
TN_TEST(a_death_at_store_swapped_stops_no_other_process) { kill_everywhere("store_swapped"); }
TN_TEST(a_death_at_store_noted_stops_no_other_process) { kill_everywhere("store_noted"); }
TN_TEST(a_death_at_store_emptied_stops_no_other_process) { kill_everywhere("store_emptied"); }
TN_TEST(a_death_at_store_unlinked_stops_no_other_process) { kill_everywhere("store_unlinked"); }
TN_TEST(a_death_at_store_changed_stops_no_other_process) { kill_everywhere("store_changed"); }

static int read_pinned(const tn_store_entry *entry, void *context)
{
    *(bool *)context = entry->is_pinned;
    return 0;
}

static bool is_pinned(const char *key)
{
    bool pinned = false;
    TN_CHECK(tn_store_for_each(store, key, read_pinned, &pinned) == 0);
    return pinned;
}

static int replace_unpinned(void *key)
{
    put(key, NEW);
    return 0;
}

TN_TEST(a_death_before_the_swap_leaves_a_pinned_value_pinned)
{
    static char key[] = "a";
    begin(NULL);
    TN_CHECK_OK(try_put(key, 1, TN_OPTIONS(tn_store_put_options, .flags = TN_PUT_PINNED)));
    assert_true(tnt_kill_at("store_lent", 1, replace_unpinned, key));
    assert_int_equal(what_has(key), 1);
    assert_true(is_pinned(key));
    put(key, 2);
    assert_false(is_pinned(key));
    finish();
}

/* ---- a death in a repair ----------------------------------------------------------------- */

static void kill_in_a_repair(const char *point)
{
    static const struct change *const first = &changes[0];
    static const char *const points[] = {"store_linked", "store_swapped", "store_noted"};
    for (unsigned i = 0; i < TNI_COUNT(points); i++) {
        make_store(first);
        TN_CHECK(die(first, points[i], 1));
        TN_CHECK(die(&changes[1], point, 1));
        int64_t found = look(&changes[0]);
        tnt_wait_ok(tnt_fork(read_and_write, (void *)(uintptr_t)first));
        TN_CHECK(look(first) == found);
        TN_CHECK_OK(tn_domain_reap(d, NULL));
        finish();
    }
}

TN_TEST(a_death_at_store_rebuilding_is_repaired_again) { kill_in_a_repair("store_rebuilding"); }
TN_TEST(a_death_at_store_rebuilt_is_repaired_again) { kill_in_a_repair("store_rebuilt"); }

/* ---- promises ---------------------------------------------------------------------------- */

static int promise_and_die(void *argument)
{
    tn_message m;
    (void)argument;
    TN_CHECK(tn_store_get_or_make(store, "one", TN_NOW, &m) == TN_STORE_MAKE);
    TN_CHECK(tn_store_get_or_make(store, "two", TN_NOW, &m) == TN_STORE_MAKE);
    raise(SIGKILL);
    return 1;
}

TN_TEST(promises_of_the_dead_leave_room_for_values)
{
    begin(TN_OPTIONS(tn_store_options, .capacity = 2));
    tnt_wait(tnt_fork(promise_and_die, NULL));
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    put("a", 1);
    put("b", 2);
    expect_number("a", 1);
    expect_number("b", 2);
    assert_int_equal(info().count, 2);
    assert_int_equal(info().expirations, 0);
    finish();
}

static int reap(void *argument)
{
    (void)argument;
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    return 0;
}

TN_TEST(a_death_in_an_expiry_leaves_no_value_past_its_lifetime)
{
    enum { BRIEF_NS = 100 * 1000 * 1000 };
    const tn_store_put_options soon = {.struct_size = sizeof soon, .lifetime_ns = BRIEF_NS};
    begin(NULL);
    put("c", 3);
    TN_CHECK_OK(try_put("a", 1, &soon));
    TN_CHECK_OK(try_put("b", 2, &soon));
    while (what_has("b") != NOTHING) {
    }
    assert_true(tnt_kill_at("store_emptied", 1, reap, NULL));
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    assert_int_equal(info().count, 1);
    expect_number("c", 3);
    finish();
}
