/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stores between threads of several members: a get returns a whole value of its key beside puts
 * and deletes of its neighbours, and finds the key that is never deleted.
 */
#include "process/store_churn.h"
#include "threads/threads.h"

/* A process keeps one socket for ringing bells: made before a test's descriptors are counted.
 */
__attribute__((constructor)) static void ring_once(void) { tni_os_bell_ring(1); }

static tn_store *stores[MEMBERS]; /* one store, each member's handle of it */

static void begin(uint32_t capacity, uint32_t flags)
{
    churn_choose_keys();
    world_begin(16 << 20);
    TN_CHECK_OK(tn_store_open(
        members[0], NULL, TN_OPTIONS(tn_store_options, .capacity = capacity, .flags = flags), 0,
        &stores[0]));
    for (unsigned i = 1; i < MEMBERS; i++)
        TN_CHECK_OK(tn_object_open_id(members[i], TN_OBJECT_STORE, tn_object_id(stores[0]),
                                      &stores[i]));
    TN_CHECK_OK(churn_put(members[0], stores[0], 0, 1));
}

static void finish(void)
{
    for (unsigned i = 0; i < MEMBERS; i++)
        tn_object_close(stores[i]);
    world_end();
}

static tn_store *store_of(const struct worker *w) { return stores[w->number % MEMBERS]; }

static void get(struct worker *w)
{
    churn_get(store_of(w), (uint32_t)worker_random(w, CHURN_KEYS));
}

static void change(struct worker *w)
{
    churn_change(w->domain, store_of(w), worker_random(w, UINT64_MAX));
}

static void list(struct worker *w)
{
    bool is_seen = false;
    TN_CHECK_OK(tn_store_for_each(store_of(w), "key", churn_see, &is_seen));
    TN_CHECK(is_seen);
}

TN_TEST(a_get_finds_what_is_never_deleted_beside_changes)
{
    begin(CHURN_KEYS, 0);
    run_crews((struct crew[]){{get, 2}, {change, 2}, {0}});
    finish();
}

TN_TEST(a_get_finds_what_is_pinned_beside_evictions)
{
    begin(CHURN_KEYS / 2, TN_STORE_EVICT);
    run_crews((struct crew[]){{get, 2}, {change, 2}, {0}});
    finish();
}

TN_TEST(a_list_has_the_key_that_is_never_deleted)
{
    begin(CHURN_KEYS, 0);
    run_crews((struct crew[]){{list, 1}, {get, 1}, {change, 2}, {0}});
    finish();
}

/* ---- get or make ------------------------------------------------------------------------- */

static _Atomic uint32_t makers[CHURN_KEYS]; /* who make a key's value at this moment */

/* Of all that ask, one at a time is told to make the value. */
static void ask(struct worker *w)
{
    uint32_t key = 1 + (uint32_t)worker_random(w, CHURN_KEYS - 1);
    tn_message m;
    int status = tn_store_get_or_make(store_of(w), churn_keys[key], soon(), &m);
    if (status == 0) {
        churn_check(key, &m);
        tn_message_fini(&m);
        status = tn_store_delete(store_of(w), churn_keys[key], 0);
        TN_CHECK(status == 0 || status == TN_ERR_NOT_FOUND);
    } else if (status == TN_STORE_MAKE) {
        TN_CHECK(atomic_fetch_add(&makers[key], 1) == 0);
        uint64_t dice = worker_random(w, UINT64_MAX);
        atomic_fetch_sub(&makers[key], 1);
        if (dice % 4 == 0)
            TN_CHECK_OK(tn_store_give_up(store_of(w), churn_keys[key]));
        else
            TN_CHECK_OK(churn_put(w->domain, store_of(w), key, dice));
    } else {
        TN_CHECK(status == TN_ERR_TIMED_OUT);
    }
}

TN_TEST(one_thread_at_a_time_is_told_to_make_a_value)
{
    begin(CHURN_KEYS, 0);
    run_crews((struct crew[]){{ask, 4}, {0}});
    finish();
}
