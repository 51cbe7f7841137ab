/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests: the vault keeps what the next tenond cannot take over. The kill of tenond alone
 * loses no storage that only a queue names.
 */

#include "backing.h"
#include "fake_vault.h"
#include "harness/live_blocks.h"

enum { LIMIT = 128, MANY = 150, SOME = 50, SEATS = 3, BREAKS = 12 };

static tn_domain *d;
static tn_queue *q;

static void begin(uint32_t seats)
{
    const tn_domain_options domain_options = {.struct_size = sizeof domain_options,
                                              .seats = seats};
    const tn_queue_options options = {.struct_size = sizeof options, .capacity = 256};
    d = tnt_domain(&domain_options);
    TN_CHECK_OK(tn_queue_open(d, NULL, &options, 0, &q));
}

static void finish(void)
{
    q = tn_object_close(q);
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    TNT_AUDIT(d);
    assert_int_equal(live_blocks(d), 0);
    await_storages(manager_pid(d), 0);
    d = tn_domain_close(d);
}

static void pop_all(uint32_t first, uint32_t end)
{
    for (uint32_t i = first; i < end; i++) {
        tn_tensor *t = pop(q);
        expect_numbers(t, (float)i);
        tn_tensor_unref(t);
    }
}

/* ---- no seat ----------------------------------------------------------------------------- */

static int sit(void *signal)
{
    tnt_signal(signal);
    for (;;)
        pause();
    return 0;
}

static uint32_t taken_seats(void)
{
    uint32_t taken = 0;
    for (uint32_t i = 0; i < d->segment.geometry.seats; i++)
        taken +=
            tni_seat_state(atomic_load(&tni_seat_at(&d->segment, i)->word)) != TNI_SEAT_FREE;
    return taken;
}

/* The dead tenond has the last seat, and no member waits and would reclaim it. */
TN_TEST(tenonds_that_find_every_seat_taken_lose_nothing)
{
    struct tnt_signal signal = tnt_signal_open();
    begin(SEATS);
    leave_storages(d, q, 3);
    await_vault(0, 3);
    pid_t sitter = tnt_fork(sit, &signal);
    tnt_await(&signal);
    int32_t old = manager_pid(d);
    assert_int_equal(taken_seats(), d->segment.geometry.seats);
    kill_and_await(old, SIGKILL);
    /* The vault has received everything before it talks to the next tenond. */
    kill_and_await(await_tenond(), SIGKILL);
    int32_t without_seat = await_tenond();
    assert_int_equal(manager_pid(d), old);
    assert_true(without_seat != old);
    pop_all(0, 1);
    await_successor(d, old); /* a member that waits reclaims the seat */
    survive_until(d, 2);
    await_vault(0, 2);
    pop_all(1, 3);
    tnt_kill(sitter);
    tnt_signal_close(&signal);
    finish();
}

/* Start a tenond by a shell, with a log of all details. */
static void start_talking(char *path, size_t size)
{
    char command[512];
    snprintf(path, size, "%s/said", tnt_folder());
    snprintf(command, sizeof command, "exec '%s' -v 2>'%s'", getenv("TENON_TENOND"), path);
    TN_CHECK_OK(
        tni_os_start_detached("/bin/sh", (const char *const[]){"sh", "-c", command, NULL}));
}

/*
 * Wait until tenond has logged for the n-th time that a domain has no seat for it. @return
 * warnings
 */
static uint32_t await_said(const char *path, uint32_t n)
{
    uint64_t deadline_ns = tnt_until_ns(2 * BACKING_MS);
    for (;;) {
        char line[512];
        uint32_t said = 0, warnings = 0;
        FILE *file = fopen(path, "re");
        while (file != NULL && fgets(line, sizeof line, file) != NULL) {
            bool is_told = strstr(line, "domain '") != NULL && strstr(line, "seats") != NULL;
            said += is_told;
            warnings += is_told && strstr(line, "warning") != NULL;
        }
        if (file != NULL)
            fclose(file);
        if (said >= n)
            return warnings;
        TN_CHECK(tni_os_now_ns() < deadline_ns);
        tni_os_yield();
    }
}

static uint64_t cpu_ns(int32_t pid)
{
    char text[128];
    size_t size = read_file_of(pid, "schedstat", text, sizeof text - 1);
    text[size] = 0;
    return strtoull(text, NULL, 10);
}

/*
 * tenond has another domain, and so it does not end. A search is costly, as this process has
 * many files open.
 */
TN_TEST_WITHIN(a_domain_without_a_seat_for_tenond_costs_it_little, 60)
{
    enum { OPEN = 6000, SHARE = 40 };
    static int open_fds[OPEN];
    char path[128];
    struct tnt_signal signal = tnt_signal_open();
    begin(SEATS);
    tn_domain *other = tnt_domain(NULL);
    pid_t sitter = tnt_fork(sit, &signal);
    tnt_await(&signal);
    uint32_t count = (uint32_t)TNI_MIN(tni_os_raise_descriptor_limit() / 2, (uint64_t)OPEN);
    for (uint32_t i = 0; i < count; i++)
        TN_CHECK((open_fds[i] = dup(d->segment.arena_fd)) >= 0);
    kill_and_await(manager_pid(d), SIGKILL);
    start_talking(path, sizeof path);
    await_said(path, 2); /* the second attempt comes soon */
    int32_t tenond = await_tenond();
    uint64_t begun_ns = tni_os_now_ns(), used_ns = cpu_ns(tenond);
    assert_int_equal(await_said(path, 3), 1);
    TN_CHECK(SHARE * (cpu_ns(tenond) - used_ns) <= tni_os_now_ns() - begun_ns);
    for (uint32_t i = 0; i < count; i++)
        tni_os_close(open_fds[i]);
    tnt_kill(sitter);
    tnt_signal_close(&signal);
    tn_domain_close(other);
    finish();
}

/* ---- no descriptor ----------------------------------------------------------------------- */

TN_TEST_WITHIN(a_tenond_with_a_lower_limit_of_descriptors_loses_nothing, 60)
{
    begin(0);
    leave_storages(d, q, MANY);
    int32_t vault = await_vault(0, MANY);
    int32_t limited = replace_by_limited(d, vault, LIMIT);
    uint64_t deadline_ns = tnt_until_ns(BACKING_MS);
    while (count_open(limited, STORAGE_TARGET) < LIMIT / 2) {
        TN_CHECK(tni_os_now_ns() < deadline_ns);
        tni_os_yield();
    }
    pop_all(0, SOME);
    kill_and_await(limited, SIGKILL);
    await_storages(await_successor(d, limited), MANY - SOME);
    assert_int_equal(await_vault(0, MANY - SOME), vault);
    pop_all(SOME, MANY);
    finish();
}

TN_TEST_WITHIN(a_tenond_with_a_lower_limit_takes_the_rest_as_it_gets_room, 60)
{
    begin(0);
    leave_storages(d, q, MANY);
    int32_t vault = await_vault(0, MANY);
    int32_t limited = replace_by_limited(d, vault, LIMIT);
    pop_all(0, MANY - SOME);
    await_storages(limited, SOME);
    assert_int_equal(await_vault(0, SOME), vault);
    pop_all(MANY - SOME, MANY);
    finish();
}

/* ---- a recall that breaks off ------------------------------------------------------------ */

/* Break off more often than tenond asks again at once. */
static void break_off(bool with_nonsense)
{
    struct fake_vault *vault = fake_vault_start();
    begin(0);
    leave_storages(d, q, 3);
    fake_vault_await(&vault->puts, 3);
    int32_t old = manager_pid(d);
    vault->breaks_with_nonsense = with_nonsense;
    atomic_store(&vault->breaks, with_nonsense ? 2 : BREAKS);
    kill_and_await(old, SIGKILL);
    await_successor(d, old);
    leave_storages(d, q,
                   1); /* the vault, which has not sent all entries yet, needs this deposit */
    fake_vault_await(&vault->puts, 4);
    assert_int_equal(atomic_load(&vault->breaks), 0);
    await_storages(manager_pid(d), 4);
    assert_true(fake_vault_has_all(vault));
    pop_all(0, 3);
    pop_all(0, 1);
    finish();
    fake_vault_end(vault);
}

TN_TEST(a_vault_that_breaks_off_is_asked_again_and_not_replaced) { break_off(false); }
TN_TEST(a_vault_that_talks_nonsense_is_asked_again_and_not_replaced) { break_off(true); }

/*
 * tenond uses the second connection to the vault. When no deposit is left, the vault's socket
 * must keep its name.
 */
TN_TEST(a_vault_that_was_asked_twice_keeps_its_name)
{
    struct fake_vault *vault = fake_vault_start();
    begin(0);
    leave_storages(d, q, 2);
    fake_vault_await(&vault->puts, 2);
    int32_t old = manager_pid(d);
    atomic_store(&vault->breaks, 1);
    kill_and_await(old, SIGKILL);
    int32_t second = await_successor(d, old);
    await_storages(second, 2);
    assert_int_equal(atomic_load(&vault->lists), 3); /* the first tenond asked once */
    pop_all(0, 2);
    await_storages(second, 0);
    leave_storages(d, q, 1); /* the loop serves this after it saw that no deposit is left */
    fake_vault_await(&vault->puts, 3);
    assert_int_equal(tni_os_file_number(TNI_VAULT_SOCKET), vault->file);
    kill_and_await(second, SIGKILL);
    await_storages(await_successor(d, second), 1);
    pop_all(0, 1);
    finish();
    fake_vault_end(vault);
}
