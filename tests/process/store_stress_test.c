/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests: processes get values beside processes that put, delete and evict, and that are killed
 * meanwhile. tests/threads has the same between threads.
 *
 *   TN_STORE_ROUNDS=n  changes of each process; by default 2000, and 20 times that at full size
 */
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/live_blocks.h"
#include "process/process.h"
#include "process/store_churn.h"

enum { GETTERS = 2, CHANGERS = 2 };

static tn_domain *d;
static tn_store *store;
static struct board {
    _Atomic uint32_t changers; /* that have not ended */
    _Atomic uint64_t gets, changes;
} * board;

static uint64_t rounds(void)
{
    const char *text = getenv("TN_STORE_ROUNDS");
    return text != NULL ? strtoull(text, NULL, 10) : tnt_is_full() ? 40000 : 2000;
}

static void begin(uint32_t capacity, uint32_t flags)
{
    churn_choose_keys();
    board =
        mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    TN_CHECK(board != MAP_FAILED);
    d = tnt_domain(&(tn_domain_options){.struct_size = sizeof(tn_domain_options),
                                        .quota_bytes = 64 << 20,
                                        .flags = TN_DOMAIN_NO_MANAGER});
    TN_CHECK_OK(tn_store_open(
        d, NULL, TN_OPTIONS(tn_store_options, .capacity = capacity, .flags = flags), 0,
        &store));
    TN_CHECK_OK(churn_put(d, store, 0, 1));
}

static void finish(void)
{
    int status;
    while ((status = tn_domain_reap(d, NULL)) == TN_ERR_TIMED_OUT) {
    }
    TN_CHECK_OK(status);
    TNT_AUDIT(d);
    store = tn_object_close(store);
    TNT_AUDIT(d);
    assert_int_equal(live_blocks(d), 0);
    tnt_note("%llu gets, %llu changes", (unsigned long long)atomic_load(&board->gets),
             (unsigned long long)atomic_load(&board->changes));
    tn_domain_close(d);
    munmap(board, sizeof *board);
}

static int get_until_over(void *argument)
{
    (void)argument;
    do {
        churn_get(store, (uint32_t)tnt_random_below(CHURN_KEYS));
        atomic_fetch_add(&board->gets, 1);
    } while (atomic_load(&board->changers) != 0);
    return 0;
}

static int change_for_rounds(void *argument)
{
    (void)argument;
    for (uint64_t i = 0; i < rounds(); i++) {
        churn_change(d, store, tnt_random());
        atomic_fetch_add(&board->changes, 1);
    }
    atomic_fetch_sub(&board->changers, 1);
    return 0;
}

/* A victim changes the store until it is killed. It is none of the changers that readers wait
 * for. */
static int change_until_killed(void *argument)
{
    (void)argument;
    while (atomic_load(&board->changers) != 0) {
        churn_change(d, store, tnt_random());
        atomic_fetch_add(&board->changes, 1);
    }
    return 0;
}

static void run(bool kills)
{
    pid_t getters[GETTERS], changers[CHANGERS];
    atomic_store(&board->changers, CHANGERS + kills);
    for (int i = 0; i < GETTERS; i++)
        getters[i] = tnt_fork(get_until_over, NULL);
    for (int i = 0; i < CHANGERS; i++)
        changers[i] = tnt_fork(change_for_rounds, NULL);
    /* Each victim is killed after some changes of any process. */
    for (uint64_t i = 0; kills && i < rounds() / 20; i++) {
        uint64_t until = atomic_load(&board->changes) + 1 + tnt_random_below(5);
        pid_t victim = tnt_fork(change_until_killed, NULL);
        while (atomic_load(&board->changes) < until) {
        }
        tnt_kill(victim);
    }
    atomic_fetch_sub(&board->changers, kills);
    for (int i = 0; i < CHANGERS; i++)
        tnt_wait_ok(changers[i]);
    for (int i = 0; i < GETTERS; i++)
        tnt_wait_ok(getters[i]);
}

TN_TEST_WITHIN(a_get_finds_what_is_never_deleted, 120)
{
    begin(CHURN_KEYS, 0);
    run(false);
    finish();
}

TN_TEST_WITHIN(a_get_finds_what_is_pinned_beside_evictions, 120)
{
    begin(CHURN_KEYS / 2, TN_STORE_EVICT);
    run(false);
    finish();
}

TN_TEST_WITHIN(a_get_finds_what_is_never_deleted_beside_kills, 120)
{
    begin(CHURN_KEYS, 0);
    run(true);
    finish();
}
