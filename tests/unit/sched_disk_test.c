/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the data of tasks at random, and of a host that evicts to the disk. */
#include <stdlib.h>
#include <string.h>

#include "sched_items_test.h"

/* ---- at random --------------------------------------------------------------------------- */

/* Half of the data is of the program, the other half of tasks. */
static void make_all(uint32_t count, tn_kind *kind, struct deed *deeds)
{
    for (uint32_t i = 0; i < count; i++) {
        if (i % 2 == 0) {
            make(i, i);
            continue;
        }
        deeds[i] = writes(make_empty(i), i);
        add(kind, &deeds[i], NULL);
    }
    await_all();
}

/* Each card has room for three; nothing is lost, and no memory ever has more. */
static void run_at_random(const char *memories, int64_t most_on_host)
{
    enum { DATA = 20, TASKS = 4000 };
    static struct deed deeds[TASKS];
    static const char *const requests[] = {"CPU=0 GPU=1", "CPU=0 GPU=2", "CPU=1",
                                           "CPU=0 GPU=0.5", "CPU=1 GPU=1"};
    tn_kind *kinds[5];
    int64_t sum[DATA];
    open_with("CPU=4 GPU=((0,1),(2,3),(4,5))", memories, 0);
    for (uint32_t i = 0; i < 5; i++)
        kinds[i] = add_kind(sched, act, requests[i]);
    make_all(DATA, kinds[2], deeds);
    most[HOST] = most_on_host;
    for (uint32_t i = 0; i < DATA; i++)
        sum[i] = i;
    for (uint32_t i = 0; i < TASKS; i++) {
        struct deed *deed = &deeds[i];
        *deed = (struct deed){.count = 1 + (uint32_t)tnt_random_below(3), .add = i};
        uint32_t at = (uint32_t)tnt_random_below(DATA);
        for (uint32_t j = 0; j < deed->count; j++, at = (at + 7) % DATA) {
            deed->items[j] = &items[at];
            deed->modes[j] = tnt_random_below(3) == 0 ? TN_READ | TN_WRITE : TN_READ;
            sum[at] += (deed->modes[j] & TN_WRITE) != 0 ? i : 0;
        }
        add(kinds[tnt_random_below(5)], deed, NULL);
    }
    await_all();
    most[HOST] = INT64_MAX; /* what the program fetches does not count */
    for (uint32_t i = 0; i < DATA; i++) {
        TN_CHECK_OK(tn_data_fetch(items[i].data, TN_NOW));
        assert_int_equal(*items[i].at[HOST], sum[i]);
    }
    for (uint32_t slot = 0; slot < 6; slot += 2)
        assert_int_equal(info_of("GPU", slot).idle, info_of("GPU", slot).used);
    close_all();
}

TN_TEST_WITHIN(tasks_at_random_lose_no_write_and_fill_no_memory_too_much, 120)
{
    run_at_random("GPU=3000", INT64_MAX);
}

TN_TEST_WITHIN(tasks_at_random_lose_no_write_on_a_host_with_an_end, 120)
{
    run_at_random("GPU=3000 HOST=4000", 4000);
    assert_true(most_on_disk > 0);
}

TN_TEST_WITHIN(tasks_at_random_lose_no_write_on_a_host_with_little_room, 120)
{
    run_at_random("GPU=3000 HOST=3000", 3000);
    assert_true(most_on_disk > 0);
}

static _Atomic bool is_over;
static void fetch_all(void *unused)
{
    (void)unused;
    for (uint32_t i = 0; !is_over; i = (i + 1) % 20) {
        int status = tn_data_fetch(items[i].data, TN_NOW);
        TN_CHECK(status == 0 || status == TN_ERR_TIMED_OUT || status == TN_ERR_NO_MEMORY);
    }
}

/* As before; and copies fail, tasks are cancelled, and another thread fetches data. */
static void run_with_failures(const char *memories)
{
    enum { DATA = 20, TASKS = 150, ROUNDS = 30 };
    static struct deed deeds[TASKS];
    static const char *const requests[] = {"CPU=0 GPU=1", "CPU=0 GPU=2", "CPU=1"};
    tn_kind *kinds[3];
    int64_t sum[DATA] = {0};
    tni_os_thread thread;
    open_with("CPU=4 GPU=((0,1),(2,3),(4,5))", memories, 0);
    is_over = false;
    for (uint32_t i = 0; i < 3; i++)
        kinds[i] = add_kind(sched, act, requests[i]);
    for (uint32_t i = 0; i < DATA; i++)
        make(i, 0);
    TN_CHECK_OK(tni_os_thread_start("fetcher", fetch_all, NULL, &thread));
    for (uint32_t round = 0; round < ROUNDS; round++) {
        memset(deeds, 0, sizeof deeds);
        for (uint32_t i = 0; i < TASKS; i++) {
            struct deed *deed = &deeds[i];
            deed->add = i;
            deed->count = 1 + (uint32_t)tnt_random_below(3);
            uint32_t at = (uint32_t)tnt_random_below(DATA);
            for (uint32_t j = 0; j < deed->count; j++, at = (at + 7) % DATA) {
                deed->items[j] = &items[at];
                deed->modes[j] = tnt_random_below(3) == 0 ? TN_READ | TN_WRITE : TN_READ;
                if (tnt_random_below(10) == 0)
                    items[at].fails = TN_TASK_OOM;
            }
            add(kinds[tnt_random_below(3)], deed, NULL);
        }
        if (tnt_random_below(3) == 0)
            tn_graph_cancel(graph);
        (void)!wait_for_all();
        graph = tn_graph_close(graph);
        graph = open_graph(sched);
        for (uint32_t i = 0; i < TASKS; i++)
            for (uint32_t j = 0; j < deeds[i].count; j++)
                if (deeds[i].is_done && (deeds[i].modes[j] & TN_WRITE) != 0)
                    sum[deeds[i].items[j] - items] += deeds[i].add;
    }
    is_over = true;
    tni_os_thread_join(&thread);
    for (uint32_t i = 0; i < DATA; i++) {
        items[i].fails = 0;
        TN_CHECK_OK(tn_data_fetch(items[i].data, tnt_deadline(10000)));
        assert_int_equal(*items[i].at[HOST], sum[i]);
    }
    for (uint32_t slot = 0; slot < 6; slot += 2)
        assert_int_equal(info_of("GPU", slot).idle, info_of("GPU", slot).used);
    close_all();
}

TN_TEST_WITHIN(no_write_is_lost_if_memory_runs_out_or_tasks_are_cancelled, 120)
{
    run_with_failures("GPU=3000");
}

TN_TEST_WITHIN(no_write_is_lost_on_a_host_with_an_end_if_memory_runs_out, 120)
{
    run_with_failures("GPU=3000 HOST=3000");
}

/* ---- the disk ---------------------------------------------------------------------------- */

/* Add tasks, each after the one before, and wait for the last. */
static void run_in_turn(tn_kind *kind, struct deed *deeds, uint32_t count)
{
    uint64_t task = 0;
    for (uint32_t i = 0; i < count; i++)
        task = add(kind, &deeds[i], i > 0 ? &task : NULL);
    await_all();
}

TN_TEST(what_the_host_has_no_room_for_goes_to_the_disk_and_back)
{
    open_with("CPU=2", "HOST=2000", 0);
    most[HOST] = 2000;
    tn_kind *cpu = add_kind(sched, act, NULL);
    struct deed deeds[4];
    for (uint32_t i = 0; i < 3; i++)
        deeds[i] = writes(make_empty(i), 10 + i);
    deeds[3] = reads(&items[0]);
    run_in_turn(cpu, deeds, 3);
    assert_int_equal(info_of(NULL, 0).used, 2000);
    assert_int_equal(info_of(NULL, 0).capacity, 2000);
    assert_int_equal(info_of(TN_MEMORY_DISK, 0).used, 1000);
    assert_int_equal(info_of(TN_MEMORY_DISK, 0).capacity, UINT64_MAX);
    run_in_turn(cpu, &deeds[3], 1);
    assert_int_equal(items[0].seen, 10);
    assert_int_equal(info_of(TN_MEMORY_DISK, 0).used, 2000); /* 0 is still there, too */
    assert_int_equal(info_of(NULL, 0).evictions, 2);
    close_all();
}

TN_TEST(what_is_on_the_disk_already_is_not_written_there_again)
{
    open_with("CPU=2", "HOST=1000", 0);
    tn_kind *cpu = add_kind(sched, act, NULL);
    struct deed deeds[6];
    for (uint32_t i = 0; i < 2; i++)
        deeds[i] = writes(make_empty(i), 10 + i);
    for (uint32_t i = 2; i < 6; i++)
        deeds[i] = reads(&items[i % 2]);
    run_in_turn(cpu, deeds, 6);
    assert_int_equal(items[0].copies, 1 + 2); /* to the disk once, and back twice */
    assert_int_equal(items[1].copies, 1 + 2);
    assert_int_equal(items[0].seen + items[1].seen, 21);
    close_all();
}

TN_TEST(a_write_on_the_host_makes_the_copy_on_the_disk_stale)
{
    open_with("CPU=2", "HOST=1000", 0);
    tn_kind *cpu = add_kind(sched, act, NULL);
    struct deed deeds[] = {writes(make_empty(0), 10), writes(make_empty(1), 20),
                           updates(&items[0], 1), reads(&items[1]), reads(&items[0])};
    run_in_turn(cpu, deeds, 5);
    assert_int_equal(items[0].seen, 11);
    assert_int_equal(info_of(TN_MEMORY_DISK, 0).used, 2000); /* no room twice */
    close_all();
}

TN_TEST(a_card_evicts_to_the_disk_if_the_host_has_no_room)
{
    open_with("CPU=2 GPU=((0,1))", "GPU=1000 HOST=0", 0);
    most[HOST] = 0;
    tn_kind *card = add_kind(sched, act, "CPU=0 GPU=1");
    struct deed deeds[] = {writes(make_empty(0), 10), writes(make_empty(1), 20),
                           reads(&items[0])};
    run_in_turn(card, deeds, 3);
    assert_int_equal(items[0].seen, 10);
    assert_int_equal(items[0].copies, 2);
    assert_int_equal(info_of(TN_MEMORY_DISK, 0).used, 2000);
    close_all();
}

TN_TEST(a_card_evicts_to_the_host_which_evicts_to_the_disk)
{
    open_with("CPU=2 GPU=((0,1))", "GPU=1000 HOST=1000", 0);
    most[HOST] = 1000;
    tn_kind *card = add_kind(sched, act, "CPU=0 GPU=1");
    struct deed deeds[3];
    for (uint32_t i = 0; i < 3; i++)
        deeds[i] = writes(make_empty(i), i);
    run_in_turn(card, deeds, 3);
    assert_int_equal(items[0].copies, 2); /* to the host, to the disk */
    assert_non_null(items[0].at[DISK]);
    assert_non_null(items[1].at[HOST]);
    assert_null(items[1].at[DISK]);
    assert_non_null(items[2].at[0]);
    close_all();
}

TN_TEST(what_the_program_fetches_or_has_itself_does_not_count)
{
    open_with("CPU=2", "HOST=1000", 0);
    tn_kind *cpu = add_kind(sched, act, NULL);
    struct deed deeds[5];
    for (uint32_t i = 0; i < 4; i++)
        deeds[i] = writes(make_empty(i), i);
    run_in_turn(cpu, deeds, 4);
    item_bytes = 5000; /* more than the host has, which is full */
    make(4, 4);
    deeds[4] = updates(&items[4], 1);
    run_in_turn(cpu, &deeds[4], 1);
    for (uint32_t i = 0; i < 4; i++)
        TN_CHECK_OK(tn_data_fetch(items[i].data, TN_NOW));
    run_in_turn(cpu, deeds, 5);
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(*items[i].at[HOST], i < 4 ? i : 6);
    assert_int_equal(info_of(NULL, 0).used, 9000);
    assert_int_equal(info_of(NULL, 0).idle, 0);
    close_all();
}

/* To bring a large piece, two are evicted. The second does not go, so the first may return. */
TN_TEST(an_eviction_to_the_disk_that_fails_finds_its_room_again)
{
    open_with("CPU=2", "HOST=2000", 0);
    tn_kind *cpu = add_kind(sched, act, NULL);
    struct deed deeds[3] = {writes(make_empty(0), 10), writes(make_empty(1), 20)};
    run_in_turn(cpu, deeds, 2);
    item_bytes = 1600;
    deeds[2] = writes(make_empty(2), 30);
    items[1].fails = TN_ERR_DENIED;
    add(cpu, &deeds[2], NULL);
    assert_int_equal(wait_for_all(), TN_ERR_DENIED);
    assert_int_equal(info_of(NULL, 0).used, 1000);
    assert_int_equal(info_of(TN_MEMORY_DISK, 0).used, 1000);
    graph = tn_graph_close(graph);
    graph = open_graph(sched);
    struct deed read[] = {reads(&items[0]), reads(&items[1])};
    run_in_turn(cpu, read, 2);
    assert_int_equal(items[0].seen + items[1].seen, 30);
    items[2].data = tn_data_close(items[2].data);
    close_all();
}

TN_TEST(a_task_whose_data_the_host_can_never_have_is_refused)
{
    open_with("CPU=2 GPU=((0,1))", "GPU=3000 HOST=500", 0);
    tn_kind *cpu = add_kind(sched, act, NULL), *card = add_kind(sched, act, "CPU=0 GPU=1");
    struct deed write = writes(make_empty(0), 1);
    assert_int_equal(add_deed(cpu, &write, NULL, NULL), TN_ERR_INVALID);
    expect_detail("the data of a task has 1000 bytes, and the largest memory for it 500");
    add(card, &write, NULL);
    await_all();
    close_all();
}

TN_TEST(in_virtual_time_a_copy_from_the_disk_takes_its_time)
{
    open_with("CPU=1", "HOST=1000", TN_SCHED_VIRTUAL);
    tn_kind *cpu;
    const tn_variant variant = {.run_ns = 100};
    TN_CHECK_OK(tn_kind_create(
        sched, TN_OPTIONS(tn_kind_options, .variants = &variant, .variant_count = 1), &cpu));
    struct deed deeds[] = {writes(make_empty(0), 1), writes(make_empty(1), 1),
                           reads(&items[0])};
    uint64_t task = 0;
    for (uint32_t i = 0; i < 3; i++)
        task = add(cpu, &deeds[i], i > 0 ? &task : NULL);
    TN_CHECK_OK(wait_for_all());
    tn_sched_info info = {.struct_size = sizeof info};
    TN_CHECK_OK(tn_sched_get_info(sched, &info));
    /* Three tasks; 0 to the disk, 1 to the disk, and 0 back, of 2000 ns each. */
    assert_int_equal(info.now_ns, 300 + 3 * 2000);
    close_all();
}

TN_TEST(a_folder_for_a_host_without_an_end_is_refused)
{
    tn_sched *none = NULL;
    assert_int_equal(
        tn_sched_create(TN_OPTIONS(tn_sched_options, .resources = "CPU=1", .spill = "/tmp"),
                        &none),
        TN_ERR_INVALID);
    expect_detail("memories does not say how many bytes the HOST has");
    assert_int_equal(tn_sched_create(TN_OPTIONS(tn_sched_options, .memories = "HOST=1",
                                                .spill = "/tmp", .flags = TN_SCHED_VIRTUAL),
                                     &none),
                     TN_ERR_INVALID);
    expect_detail("nothing is copied in virtual time");
    assert_int_equal(tn_sched_create(TN_OPTIONS(tn_sched_options, .memories = "HOST=1",
                                                .spill = "/no/such/folder"),
                                     &none),
                     TN_ERR_NOT_FOUND);
    expect_detail("/no/such/folder");
    assert_null(none);
}
