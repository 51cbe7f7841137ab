/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests: descriptors that tenond keeps outlive tenond, and so does the vault that has
 * duplicates of them.
 */
#include <stdio.h>
#include <sys/stat.h>

#include "backing.h"
#include "harness/live_blocks.h"

enum { MANY = 500 };

static tn_domain *d;
static tn_queue *q;

static void begin(void)
{
    const tn_queue_options options = {.struct_size = sizeof options, .capacity = 1024};
    d = tnt_domain(NULL);
    TN_CHECK_OK(tn_queue_open(d, NULL, &options, 0, &q));
}

static tn_tensor *make(float first) { return make_as(d, TN_STRATEGY_FILE_DESCRIPTOR, first); }

static void await_no_vault(void)
{
    uint64_t deadline_ns = tnt_until_ns(BACKING_MS);
    while (vault_pid() != 0) {
        TN_CHECK(tni_os_now_ns() < deadline_ns);
        tni_os_yield();
    }
}

/* Release everything: neither tenond nor its vault keeps a descriptor. */
static void finish(void)
{
    q = tn_object_close(q);
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    TNT_AUDIT(d);
    assert_int_equal(live_blocks(d), 0);
    await_storages(manager_pid(d), 0);
    await_empty_vault();
    d = tn_domain_close(d);
}

static int make_and_push(void *argument)
{
    for (uint32_t i = 0; i < *(const uint32_t *)argument; i++)
        push(q, make((float)i), TN_PUSH_MOVE);
    return 0;
}

/* The storages are in the queue, and only tenond and its vault have descriptors of them. */
static int32_t leave_in_queue(uint32_t count)
{
    tnt_wait_ok(tnt_fork(make_and_push, &count));
    return await_vault(0, count);
}

static void pop_all(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        tn_tensor *t = pop(q);
        expect_numbers(t, (float)i);
        tn_tensor_unref(t);
    }
}

/* ---- one of them is killed --------------------------------------------------------------- */

TN_TEST(a_storage_in_a_queue_outlives_its_producer_and_then_tenond)
{
    begin();
    leave_in_queue(1);
    kill_and_await(manager_pid(d), SIGKILL);
    pop_all(1);
    finish();
}

static void expect_no_streams(int32_t pid)
{
    for (int fd = 0; fd <= 2; fd++) {
        char path[64], link[256];
        snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
        ssize_t len = readlink(path, link, sizeof link - 1);
        assert_true(len > 0);
        link[len] = '\0';
        assert_string_equal(link, "/dev/null");
    }
}

TN_TEST(tenond_and_its_vault_keep_no_descriptor_as_a_standard_stream)
{
    begin();
    int32_t vault = leave_in_queue(1);
    expect_no_streams(vault);
    expect_no_streams(manager_pid(d));
    pop_all(1);
    finish();
}

TN_TEST(the_next_tenond_has_what_the_killed_one_had)
{
    begin();
    int32_t vault = leave_in_queue(3), old = manager_pid(d);
    kill_and_await(old, SIGKILL);
    await_storages(await_successor(d, old), 3);
    assert_int_equal(vault_pid(), vault);
    pop_all(3);
    finish();
}

TN_TEST(a_dead_tenond_is_replaced_though_no_member_waits)
{
    begin();
    leave_in_queue(1);
    int32_t old = manager_pid(d);
    kill_and_await(old, SIGKILL);
    uint64_t deadline_ns = tnt_until_ns(BACKING_MS);
    while (manager_pid(d) == old) { /* without doing the work of a survivor */
        TN_CHECK(tni_os_now_ns() < deadline_ns);
        tni_os_yield();
    }
    await_storages(manager_pid(d), 1);
    pop_all(1);
    finish();
}

TN_TEST(a_storage_in_a_queue_outlives_a_tenond_that_was_told_to_end)
{
    begin();
    leave_in_queue(2);
    int32_t old = manager_pid(d);
    kill_and_await(old, SIGTERM);
    await_storages(await_successor(d, old), 2);
    pop_all(2);
    finish();
}

TN_TEST(a_storage_in_a_queue_outlives_the_vault)
{
    begin();
    kill_and_await(leave_in_queue(1), SIGKILL);
    pop_all(1);
    finish();
}

TN_TEST(a_storage_in_a_queue_outlives_two_tenonds)
{
    begin();
    leave_in_queue(4);
    int32_t first = manager_pid(d);
    kill_and_await(first, SIGKILL);
    int32_t second = await_successor(d, first);
    await_storages(second, 4);
    kill_and_await(second, SIGKILL);
    pop_all(4);
    finish();
}

/* More entries are over than the vault's socket has room for, so it cannot be told of all. */
TN_TEST(a_vault_that_was_given_up_ends_when_nothing_is_left_to_keep)
{
    begin();
    int32_t vault = leave_in_queue(MANY);
    assert_int_equal(kill(vault, SIGSTOP), 0);
    q = tn_object_close(q);
    await_storages(manager_pid(d), 0);
    /* Another vault may run by now, for entries that were not over then. */
    kill_and_await(vault, SIGCONT);
    finish();
}

TN_TEST(a_new_vault_gets_everything_and_keeps_it)
{
    begin();
    int32_t first = leave_in_queue(4);
    kill_and_await(first, SIGKILL);
    await_vault(first, 4);
    int32_t old = manager_pid(d);
    kill_and_await(old, SIGKILL);
    await_storages(await_successor(d, old), 4);
    pop_all(4);
    finish();
}

TN_TEST(a_deposit_after_tenonds_death_goes_to_the_same_vault)
{
    begin();
    int32_t vault = leave_in_queue(2), old = manager_pid(d);
    kill_and_await(old, SIGKILL);
    await_successor(d, old);
    tnt_wait_ok(tnt_fork(make_and_push, &(uint32_t){2}));
    assert_int_equal(await_vault(0, 4), vault);
    pop_all(2);
    pop_all(2);
    finish();
}

struct ticket {
    char bytes[TN_HANDLE_MAX_BYTES];
    size_t used;
};

TN_TEST(a_storage_of_a_ticket_outlives_tenond)
{
    begin();
    struct ticket ticket;
    tn_tensor *t = make(5);
    TN_CHECK_OK(tn_handle_export(t, NULL, ticket.bytes, sizeof ticket.bytes, &ticket.used));
    tn_tensor_unref(t);
    await_vault(0, 1);
    assert_int_equal(count_open(tni_os_pid(), STORAGE_TARGET), 0);
    kill_and_await(manager_pid(d), SIGKILL);
    TN_CHECK_OK(tn_handle_import(d, ticket.bytes, ticket.used, &t));
    expect_numbers(t, 5);
    tn_tensor_unref(t);
    finish();
}

TN_TEST_WITHIN(five_hundred_storages_outlive_tenond_and_then_the_vault, 60)
{
    begin();
    int32_t vault = leave_in_queue(MANY), old = manager_pid(d);
    kill_and_await(old, SIGKILL);
    await_storages(await_successor(d, old), MANY);
    kill_and_await(vault, SIGKILL);
    vault = await_vault(vault, MANY);
    old = manager_pid(d);
    kill_and_await(old, SIGKILL);
    await_storages(await_successor(d, old), MANY);
    pop_all(MANY);
    finish();
}

/* ---- what tenond has not got yet --------------------------------------------------------- */

enum end { LEAVES, IS_KILLED };

static int make_push_and_end(void *end)
{
    push(q, make(7), TN_PUSH_MOVE);
    if (*(const enum end *)end == LEAVES)
        d = tn_domain_close(d);
    else
        raise(SIGKILL);
    return 0;
}

/* There is no tenond at all: it was killed, and a vault would have nothing to keep. */
static void make_without_tenond(enum end end)
{
    begin();
    kill_and_await(manager_pid(d), SIGKILL);
    int process_status = tnt_wait(tnt_fork(make_push_and_end, &end));
    assert_int_equal(WIFSIGNALED(process_status), end == IS_KILLED);
    tn_tensor *t = pop(q);
    expect_numbers(t, 7);
    tn_tensor_unref(t);
    finish();
}

TN_TEST(storages_made_without_a_tenond_survive_a_killed_maker)
{
    make_without_tenond(IS_KILLED);
}
TN_TEST(storages_made_without_a_tenond_survive_a_maker_that_left)
{
    make_without_tenond(LEAVES);
}

static int say_pipe[2];

static int make_late_and_leave(void *tenond)
{
    tn_tensor *t = make(7);
    assert_int_equal(kill(*(const int32_t *)tenond, SIGSTOP), 0);
    push(q, make(9), TN_PUSH_MOVE); /* tenond does not answer now */
    push(q, make(8), TN_PUSH_MOVE); /* nor a moment later */
    push(q, t, TN_PUSH_MOVE);
    TN_CHECK_OK(tni_os_write(say_pipe[1], "", 1));
    d = tn_domain_close(d);
    return 0;
}

TN_TEST(leaving_waits_until_tenond_has_what_others_reference)
{
    char byte;
    begin();
    int32_t tenond = manager_pid(d);
    TN_CHECK_OK(tni_os_pipe(say_pipe));
    pid_t maker = tnt_fork(make_late_and_leave, &tenond);
    TN_CHECK(tni_os_poll(&say_pipe[0], 1, tnt_until_ns(BACKING_MS)) == 0);
    TN_CHECK(tni_os_read(say_pipe[0], &byte, 1) == 1);
    assert_int_equal(kill(tenond, SIGCONT), 0);
    tnt_wait_ok(maker);
    for (int i = 9; i >= 7; i--) {
        tn_tensor *t = pop(q);
        expect_numbers(t, (float)i);
        tn_tensor_unref(t);
    }
    tni_os_close(say_pipe[0]);
    tni_os_close(say_pipe[1]);
    finish();
}

/* tenond received nothing that was sent to it, and only the maker knows that. */
static int make_before_tenond_is_killed_and_leave(void *tenond)
{
    assert_int_equal(kill(*(const int32_t *)tenond, SIGSTOP), 0);
    push(q, make(8), TN_PUSH_MOVE);
    kill_and_await(*(const int32_t *)tenond, SIGKILL);
    d = tn_domain_close(d);
    return 0;
}

TN_TEST(leaving_gives_the_next_tenond_what_a_killed_one_missed)
{
    begin();
    int32_t tenond = manager_pid(d);
    tnt_wait_ok(tnt_fork(make_before_tenond_is_killed_and_leave, &tenond));
    tn_tensor *t = pop(q);
    expect_numbers(t, 8);
    tn_tensor_unref(t);
    finish();
}

static int make_late_and_die(void *tenond)
{
    assert_int_equal(kill(*(const int32_t *)tenond, SIGSTOP), 0);
    push(q, make(8), TN_PUSH_MOVE);
    kill_and_await(*(const int32_t *)tenond,
                   SIGKILL); /* killed before it received what was sent to it */
    raise(SIGKILL);
    return 0;
}

static void expect_lost(const char *why)
{
    tn_tensor *t;
    assert_int_equal(tn_queue_pop_tensor(q, tnt_deadline(BACKING_MS), &t), TN_ERR_NOT_FOUND);
    tnt_note("%s", tn_error_detail());
    assert_non_null(strstr(tn_error_detail(), why));
}

enum { STORM_ROUNDS = 9, STORM_MAKERS = 4, STORM_EACH = 5 };

/* A maker of a storage: half of them leave, half are killed. */
static int make_in_the_storm(void *maker)
{
    for (uint32_t i = 0; i < STORM_EACH; i++)
        push(q, make((float)i), TN_PUSH_MOVE);
    if (*(const uint32_t *)maker % 2 == 0)
        d = tn_domain_close(d);
    else
        raise(SIGKILL);
    return 0;
}

/* Wait until tenond and the vault both have every storage: then either may be killed. */
static void await_both(uint32_t count)
{
    survive_until(d, count);
    await_vault(0, count);
}

TN_TEST_WITHIN(a_storm_of_makers_loses_nothing_by_kills_of_tenond_and_vault, 120)
{
    uint32_t count = 0;
    begin();
    count += STORM_EACH;
    tnt_wait(tnt_fork(make_in_the_storm, &(uint32_t){0}));
    for (uint32_t round = 0; round < STORM_ROUNDS; round++) {
        pid_t makers[STORM_MAKERS];
        await_both(count);
        int32_t victim = round % 2 == 0 ? manager_pid(d) : vault_pid();
        for (uint32_t i = 0; i < STORM_MAKERS; i++)
            makers[i] = tnt_fork(make_in_the_storm, &(uint32_t){i});
        while (tn_queue_count(q) <
               count + round) /* so that the kill comes at various moments of their work */
            tni_os_yield();
        TN_CHECK(kill(victim, SIGKILL) == 0);
        for (uint32_t i = 0; i < STORM_MAKERS; i++)
            tnt_wait(makers[i]);
        count += STORM_MAKERS * STORM_EACH;
    }
    await_both(count);
    for (; count > 0; count--)
        tn_tensor_unref(pop(q));
    finish();
}

/* A vault that is slow is not replaced before it has sent all entries. */
TN_TEST(a_vault_that_is_too_slow_for_the_next_tenond_loses_nothing)
{
    begin();
    int32_t vault = leave_in_queue(3), old = manager_pid(d);
    assert_int_equal(kill(vault, SIGSTOP), 0);
    kill_and_await(old, SIGKILL);
    tnt_wait_ok(tnt_fork(make_and_push, &(uint32_t){1}));
    assert_int_equal(vault_pid(), vault);
    assert_int_equal(kill(vault, SIGCONT), 0);
    await_storages(manager_pid(d), 4);
    assert_int_equal(await_vault(0, 4), vault);
    pop_all(3);
    pop_all(1);
    finish();
}

TN_TEST(a_pop_says_that_the_maker_ended_before_its_deposit)
{
    begin();
    int32_t tenond = manager_pid(d);
    tnt_wait(tnt_fork(make_late_and_die, &tenond));
    expect_lost("has ended before tenond had a copy of the descriptor");
    finish();
}

TN_TEST(a_pop_says_that_a_tenond_had_what_is_lost)
{
    begin();
    leave_in_queue(1);
    kill_tenond_and_vault(manager_pid(d));
    expect_lost("a former tenond (in seat");
    finish();
}

/* ---- at every point ---------------------------------------------------------------------- */

/* Let tenond, or the vault that it starts, be killed at the point. */
static void die_at(const char *point, unsigned passing)
{
#if defined(TN_KILL_POINTS)
    begin_armed(point, passing, begin);
    tn_tensor *all[3];
    for (int i = 0; i < 3; i++)
        all[i] = make((float)i);
    for (int i = 0; i < 3; i++) {
        push(q, all[i], TN_PUSH_MOVE);
        if (i == 0)
            continue;
        tn_tensor *t = pop(q);
        expect_numbers(t, (float)(i - 1));
        tn_tensor_unref(t);
    }
    survive_until(d, 1);
    tn_tensor *t = pop(q);
    expect_numbers(t, 2);
    tn_tensor_unref(t);
    survive_until(d, 0);
    if (strncmp(point, "tenond_", strlen("tenond_")) == 0)
        assert_true(atomic_load(&d->segment.header->manager_starts) > 1);
    finish();
#else
    (void)point;
    (void)passing;
    tnt_skip("this build has no kill points");
#endif
}

TN_TEST(a_deposit_not_yet_in_the_vault_survives_a_kill_of_tenond)
{
    die_at("tenond_deposit_kept", 2);
}
TN_TEST(a_tenond_killed_before_it_has_a_deposit_costs_nothing)
{
    die_at("tenond_deposit_named", 2);
}
TN_TEST(a_tenond_killed_when_it_has_mapped_a_window_costs_nothing)
{
    die_at("tenond_window_mapped", 1);
}
TN_TEST(a_tenond_killed_before_it_answers_a_deposit_costs_nothing)
{
    die_at("tenond_deposit_mirrored", 2);
}
TN_TEST(a_tenond_killed_before_it_starts_a_vault_costs_nothing)
{
    die_at("tenond_vault_named", 1);
}
TN_TEST(a_tenond_killed_when_it_has_started_a_vault_costs_nothing)
{
    die_at("tenond_vault_started", 1);
}
TN_TEST(a_vault_killed_while_it_takes_a_descriptor_costs_nothing) { die_at("vault_put", 2); }
TN_TEST(a_vault_killed_while_it_drops_a_descriptor_costs_nothing)
{
    die_at("vault_dropped", 1);
}

/*
 * The successor of a killed tenond, or the vault that it asks, is killed while the successor
 * recalls.
 */
static void die_recalling(const char *point)
{
#if defined(TN_KILL_POINTS)
    begin_armed(point, 2, begin);
    tn_tensor *all[3];
    for (int i = 0; i < 3; i++)
        all[i] = make((float)i); /* held here, since the deaths of both may lose a storage that
                                    no process has */
    int32_t old = manager_pid(d);
    await_vault(0, 3);
    kill_and_await(old, SIGKILL);
    await_successor(d, old);
    survive_until(d, 3);
    for (int i = 0; i < 3; i++)
        tn_tensor_unref(all[i]);
    survive_until(d, 0);
    finish();
#else
    (void)point;
    tnt_skip("this build has no kill points");
#endif
}

TN_TEST(a_vault_killed_while_it_answers_costs_nothing) { die_recalling("vault_listing"); }
TN_TEST(a_tenond_killed_while_it_takes_over_costs_nothing)
{
    die_recalling("tenond_recalling");
}

/* ---- memory comes back ------------------------------------------------------------------- */

TN_TEST(memory_comes_back_from_both_soon_after_the_last_release)
{
    begin();
    uint64_t most_ms = 0;
    for (int i = 0; i < 10; i++) {
        tn_tensor *t = make(1);
        int32_t vault = await_vault(0, 1);
        tn_tensor_unref(t);
        uint64_t ms = await_storages(vault, 0);
        most_ms = ms > most_ms ? ms : most_ms;
        await_storages(manager_pid(d), 0);
    }
    tnt_note("at most %llu ms", (unsigned long long)most_ms);
    assert_in_range(most_ms, 0, 500);
    finish();
}

/*
 * Several domains have blocks of the same numbers, so their deposits compete for places in
 * the table.
 */
TN_TEST_WITHIN(storages_that_end_in_any_order_leave_none_in_the_vault, 60)
{
    enum { DOMAINS = 3, EACH = 125, ALL = DOMAINS * EACH, STEP = 25 };
    static tn_tensor *all[ALL];
    tn_domain *others[DOMAINS];
    begin();
    for (uint32_t i = 0; i < DOMAINS; i++)
        others[i] = tnt_domain(NULL);
    for (uint32_t i = 0; i < ALL; i++)
        all[i] = make_as(others[i / EACH], TN_STRATEGY_FILE_DESCRIPTOR, (float)i);
    int32_t vault = await_vault(0, ALL);
    for (uint32_t left = ALL; left > 0; left--) {
        uint32_t i = (uint32_t)tnt_random_below(left);
        tn_tensor_unref(all[i]);
        all[i] = all[left - 1];
        if ((left - 1) % STEP == 0)
            await_storages(vault, left - 1);
    }
    for (uint32_t i = 0; i < DOMAINS; i++)
        tn_domain_close(others[i]);
    finish();
}

TN_TEST(what_ended_without_a_tenond_is_freed_by_the_next_one)
{
    begin();
    int32_t vault = leave_in_queue(3), old = manager_pid(d);
    assert_int_equal(kill(vault, SIGSTOP), 0); /* so that the vault starts no tenond */
    kill_and_await(old, SIGKILL);
    pop_all(2);
    assert_int_equal(count_open(vault, STORAGE_TARGET), 3);
    assert_int_equal(kill(vault, SIGCONT), 0);
    await_successor(d, old);
    await_storages(vault, 1);
    tn_tensor *t = pop(q);
    expect_numbers(t, 2);
    tn_tensor_unref(t);
    finish();
}

/* ---- there is no more of it than is needed ----------------------------------------------- */

TN_TEST(there_is_no_vault_before_something_is_deposited)
{
    begin();
    tn_tensor *t = make_as(d, TN_STRATEGY_ARENA, 1);
    push(q, t, TN_PUSH_MOVE);
    tn_tensor_unref(pop(q));
    assert_int_equal(vault_pid(), 0);
    finish();
}

TN_TEST(the_vault_has_nothing_open_but_storages_and_its_connection)
{
    begin();
    int32_t vault = leave_in_queue(2);
    assert_int_equal(count_open(vault, STORAGE_TARGET), 2);
    assert_int_equal(count_open(vault, "/dev/null"), 3);
    assert_int_equal(count_open(vault, "/"),
                     5); /* the vault has no other file open, and nothing of a domain */
    assert_int_equal(count_open(vault, "socket:"), 2);
    assert_int_equal(count_open(vault, "anon_inode:"), 0);
    assert_int_equal(count_open(vault, "pipe:"), 0);
    pop_all(2);
    finish();
}

TN_TEST(the_vault_ends_with_the_last_domain)
{
    begin();
    leave_in_queue(2);
    q = tn_object_close(q);
    d = tn_domain_close(d);
    await_no_vault();
}

static int own_all_and_die(void *argument)
{
    (void)argument;
    begin();
    leave_in_queue(3);
    kill_and_await(manager_pid(d), SIGKILL);
    raise(SIGKILL);
    return 1;
}

TN_TEST(the_vault_ends_when_tenond_and_all_members_were_killed)
{
    tnt_wait(tnt_fork(own_all_and_die, NULL));
    await_no_vault();
}

TN_TEST(a_vault_whose_folder_is_gone_ends)
{
    char path[128];
    begin();
    leave_in_queue(1);
    snprintf(path, sizeof path, "%s/" TNI_VAULT_SOCKET, tnt_folder());
    assert_int_equal(unlink(path), 0);
    kill_and_await(manager_pid(d), SIGKILL);
    await_no_vault();
    tn_tensor *t = NULL;
    int status = tn_queue_pop_tensor(q, tnt_deadline(BACKING_MS), &t);
    assert_int_equal(status, TN_ERR_NOT_FOUND);
    finish();
}

/* ---- others ------------------------------------------------------------------------------ */

static int connect_to_vault(void)
{
    int fd = -1;
    TN_CHECK_OK(tni_os_connect(TNI_VAULT_SOCKET, &fd));
    return fd;
}

TN_TEST(a_client_that_sends_nonsense_does_not_harm_the_vault)
{
    begin();
    enum { OTHERS = 20 };
    int32_t vault = leave_in_queue(3), old = manager_pid(d);
    int others[OTHERS], sealed;
    char noise[64];
    TN_CHECK_OK(tni_os_memory_create("tenon-storage:false", 8192, &sealed));
    for (int i = 0; i < OTHERS; i++) {
        others[i] = connect_to_vault();
        for (size_t k = 0; k < sizeof noise; k++)
            noise[k] = (char)tnt_random();
        TN_CHECK_OK(tni_os_send(others[i], noise, 1 + tnt_random_below(sizeof noise), &sealed,
                                i % 2 == 0));
    }
    kill_and_await(old, SIGKILL);
    await_storages(await_successor(d, old), 3);
    assert_int_equal(vault_pid(), vault);
    await_storages(vault, 3);
    for (int i = 0; i < OTHERS; i++)
        close(others[i]);
    close(sealed);
    pop_all(3);
    finish();
}

TN_TEST(a_silent_client_of_the_vault_does_not_keep_tenond_out)
{
    begin();
    leave_in_queue(3);
    int32_t old = manager_pid(d);
    int silent = connect_to_vault();
    kill_and_await(old, SIGKILL);
    await_storages(await_successor(d, old), 3);
    close(silent);
    pop_all(3);
    finish();
}

TN_TEST(a_stopped_vault_delays_deposits_no_longer_than_its_deadline)
{
    begin();
    int32_t vault = leave_in_queue(1);
    assert_int_equal(kill(vault, SIGSTOP), 0);
    uint64_t most_ns = 0, all_ns = tni_os_now_ns();
    for (uint32_t i = 0; i < 1000; i++) { /* more than the socket has room for */
        uint64_t begun_ns = tni_os_now_ns();
        tn_tensor_unref(make((float)i));
        uint64_t took_ns = tni_os_now_ns() - begun_ns;
        most_ns = took_ns > most_ns ? took_ns : most_ns;
    }
    all_ns = tni_os_now_ns() - all_ns;
    tnt_note("%llu ms at most, %llu ms in all", (unsigned long long)most_ns / 1000000,
             (unsigned long long)all_ns / 1000000);
    assert_in_range(most_ns / 1000000, 0, 900);
    int32_t next = await_vault(vault, 1);
    assert_int_equal(kill(vault, SIGCONT), 0); /* another vault has its place, so it ends */
    uint64_t deadline_ns = tnt_until_ns(BACKING_MS);
    while (find_vault(next) != 0) {
        TN_CHECK(tni_os_now_ns() < deadline_ns);
        tni_os_yield();
    }
    pop_all(1);
    finish();
}
