/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the data of tasks. */
#include <stdlib.h>
#include <string.h>

#include "sched_items_test.h"

TN_TEST(what_a_task_reads_is_on_its_card_and_is_brought_there_once)
{
    struct deed deeds[20];
    open_cards();
    struct item *item = make(0, 42);
    tn_kind *kind = add_kind(sched, act, "CPU=0 GPU=1");
    for (uint32_t i = 0; i < 20; i++) {
        deeds[i] = reads(item);
        add(kind, &deeds[i], NULL);
        await_all();
    }
    assert_int_equal(item->seen, 42);
    assert_int_equal(item->copies, 1);
    for (uint32_t i = 1; i < 20; i++)
        assert_int_equal(deeds[i].memory.slot, deeds[0].memory.slot);
    assert_string_equal(deeds[0].memory.resource, "GPU");
    tn_memory_info info = info_of("GPU", deeds[0].memory.slot + 1); /* the other slot */
    assert_int_equal(info.capacity, 3000);
    assert_int_equal(info.used, BYTES);
    assert_int_equal(info.idle, BYTES);
    assert_int_equal(info.arrived, BYTES);
    assert_int_equal(info.evictions, 0);
    item->data = tn_data_close(item->data);
    assert_null(item->data);
    assert_int_equal(item->drops, 1);
    assert_int_equal(info_of("GPU", deeds[0].memory.slot).used, 0);
    close_all();
}

TN_TEST(a_write_makes_all_other_copies_stale)
{
    open_cards();
    struct item *item = make(0, 1);
    tn_kind *card = add_kind(sched, act, "CPU=0 GPU=1"), *cpu = add_kind(sched, act, NULL);
    struct deed on_card = updates(item, 10), on_host = updates(item, 100), last = reads(item);
    uint64_t task = add(card, &on_card, NULL);
    task = add(cpu, &on_host, &task);
    add(card, &last, &task);
    TN_CHECK_OK(wait_for_all());
    assert_null(on_host.memory.resource);
    assert_int_equal(item->seen, 111);
    assert_int_equal(item->copies, 3); /* to the card, back, and to a card again */
    struct deed again = updates(item, 1000);
    add(card, &again, NULL);
    TN_CHECK_OK(wait_for_all());
    TN_CHECK_OK(tn_data_fetch(item->data, tnt_deadline(10000)));
    assert_int_equal(*item->at[HOST], 1111);
    close_all();
}

TN_TEST(what_is_written_anew_is_not_copied_before)
{
    open_cards();
    struct item *item = make_empty(0);
    tn_kind *card = add_kind(sched, act, "CPU=0 GPU=1");
    struct deed write = writes(item, 7), read = reads(item);
    uint64_t task = add(card, &write, NULL);
    add(card, &read, &task);
    TN_CHECK_OK(wait_for_all());
    assert_int_equal(item->seen, 7);
    assert_int_equal(item->copies, 0);
    assert_int_equal(item->rooms, 1);
    TN_CHECK_OK(tn_data_fetch(item->data, TN_NOW));
    assert_int_equal(*item->at[HOST], 7);
    assert_int_equal(info_of(NULL, 0).used, BYTES);
    item->data = tn_data_close(item->data);
    assert_int_equal(item->drops, 2);
    assert_null(item->at[HOST]);
    close_all();
}

TN_TEST(a_full_memory_evicts_what_was_used_longest_ago)
{
    struct deed deeds[7];
    open_with("CPU=4 GPU=((0,1))", "GPU=3000", 0);
    tn_kind *card = add_kind(sched, act, "CPU=0 GPU=1");
    /* 0, 1, 2 fill the memory; 0 is used again; 3 takes the room of 1, 4 that of 2. */
    static const uint32_t order[] = {0, 1, 2, 0, 3, 4, 0};
    uint64_t task = 0;
    for (uint32_t i = 0; i < 5; i++)
        make(i, i);
    for (uint32_t i = 0; i < 7; i++) {
        deeds[i] = updates(&items[order[i]], 50);
        task = add(card, &deeds[i], i > 0 ? &task : NULL);
    }
    TN_CHECK_OK(wait_for_all());
    assert_int_equal(items[0].copies, 1);
    assert_int_equal(items[0].drops, 0);
    for (uint32_t i = 1; i < 3; i++) {
        assert_int_equal(items[i].drops, 1);
        assert_int_equal(*items[i].at[HOST], i + 50); /* it was written back before */
    }
    assert_int_equal(info_of("GPU", 0).evictions, 2);
    assert_int_equal(info_of("GPU", 0).used, 3000);
    close_all();
}

TN_TEST(what_another_memory_has_leaves_before_what_only_the_card_has)
{
    struct deed deeds[4] = {updates(&items[0], 50), reads(&items[1]), reads(&items[2]),
                            reads(&items[3])};
    open_with("CPU=4 GPU=((0,1))", "GPU=3000", 0);
    tn_kind *card = add_kind(sched, act, "CPU=0 GPU=1");
    uint64_t task = 0;
    for (uint32_t i = 0; i < 4; i++)
        make(i, i);
    for (uint32_t i = 0; i < 4; i++)
        task = add(card, &deeds[i], i > 0 ? &task : NULL);
    TN_CHECK_OK(wait_for_all());
    static const uint32_t drops[] = {0, 1, 0, 0}; /* 0 is older than 1 */
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(items[i].drops, drops[i]);
        assert_int_equal(items[i].copies, 1); /* nothing was written back */
    }
    close_all();
}

TN_TEST(temporary_data_is_not_written_back_once_no_task_names_it)
{
    struct deed deeds[4], last;
    open_with("CPU=4 GPU=((0,1))", "GPU=3000", 0);
    tn_kind *card = add_kind(sched, act, "CPU=0 GPU=1");
    uint64_t task = 0;
    for (uint32_t i = 0; i < 4; i++) {
        TN_CHECK_OK(create(&items[i], i < 2 ? TN_DATA_TEMPORARY : 0, &items[i].data));
        deeds[i] = writes(&items[i], i);
    }
    for (uint32_t i = 0; i < 4; i++)
        task = add(card, &deeds[i], i > 0 ? &task : NULL);
    last = reads(&items[1]);
    add(card, &last, &task); /* 1 is temporary, and needed until this task has ended */
    TN_CHECK_OK(wait_for_all());
    assert_int_equal(items[0].copies, 0);
    assert_int_equal(items[0].drops, 1);
    assert_int_equal(items[1].seen, 1);
    assert_int_equal(tn_data_fetch(items[0].data, TN_NOW), TN_ERR_INVALID);
    TN_CHECK_OK(tn_data_fetch(items[1].data, TN_NOW));
    close_all();
}

TN_TEST(a_reader_does_not_run_beside_a_writer)
{
    struct tnt_signal gate = tnt_signal_open();
    open_cards();
    struct item *item = make(0, 1);
    tn_kind *card = add_kind(sched, act, "CPU=0 GPU=1");
    struct deed write = updates(item, 1), read = reads(item), other = updates(item, 1);
    write.gate = &gate;
    add(card, &write, NULL);
    while (write.runs == 0)
        ;
    add(card, &read, NULL);
    add(card, &other, NULL);
    assert_int_equal(tn_graph_wait(graph, tnt_deadline(30)), TN_ERR_TIMED_OUT);
    assert_int_equal(read.runs + other.runs, 0);
    assert_int_equal(tn_data_fetch(item->data, TN_NOW), TN_ERR_TIMED_OUT);
    expect_detail("a task writes 'item', or a thread moves it");
    tnt_signal(&gate);
    TN_CHECK_OK(wait_for_all());
    TN_CHECK_OK(tn_data_fetch(item->data, TN_NOW));
    assert_int_equal(*item->at[HOST], 3);
    tnt_signal_close(&gate);
    close_all();
}

TN_TEST(a_task_waits_for_room_that_running_tasks_have)
{
    struct tnt_signal gate = tnt_signal_open();
    open_with("CPU=4 GPU=((0,1))", "GPU=3000", 0);
    tn_kind *card = add_kind(sched, act, "CPU=0 GPU=1");
    for (uint32_t i = 0; i < 4; i++)
        make(i, i);
    struct deed large = {.items = {&items[0], &items[1], &items[2]},
                         .modes = {TN_READ, TN_READ, TN_READ},
                         .count = 3,
                         .gate = &gate};
    struct deed small = reads(&items[3]), shares = reads(&items[2]);
    add(card, &large, NULL);
    while (large.runs == 0)
        ;
    add(card, &shares, NULL); /* what it reads is there */
    while (shares.runs == 0)
        ;
    add(card, &small, NULL);
    assert_int_equal(tn_graph_wait(graph, tnt_deadline(30)), TN_ERR_TIMED_OUT);
    assert_int_equal(small.runs, 0);
    tnt_signal(&gate);
    TN_CHECK_OK(wait_for_all());
    assert_int_equal(small.runs, 1);
    tnt_signal_close(&gate);
    close_all();
}

TN_TEST(a_task_that_waits_for_data_holds_up_none_behind_it)
{
    struct tnt_signal gate = tnt_signal_open();
    open_cards();
    tn_kind *card = add_kind(sched, act, "CPU=0 GPU=1");
    struct item *written = make(0, 1), *free = make(1, 2);
    struct deed write = updates(written, 1), waits = reads(written), others[100], cancelled;
    write.gate = &gate;
    add(card, &write, NULL);
    while (write.runs == 0)
        ;
    add(card, &waits, NULL);
    for (uint32_t i = 0; i < 100; i++) {
        others[i] = reads(free);
        add(card, &others[i], NULL);
    }
    for (uint32_t i = 0; i < 100; i++)
        while (others[i].runs == 0)
            ;
    assert_int_equal(waits.runs, 0);
    tn_graph *other = open_graph(sched), *first = graph;
    cancelled = reads(written);
    graph = other;
    add(card, &cancelled, NULL); /* it is set aside, or waits in its lane */
    graph = first;
    tn_graph_close(other);
    tnt_signal(&gate);
    TN_CHECK_OK(wait_for_all());
    assert_int_equal(waits.runs, 1);
    assert_int_equal(cancelled.runs, 0);
    tnt_signal_close(&gate);
    close_all();
}

/* Readers come faster than they end, and the writer begins all the same. */
TN_TEST(a_writer_is_not_overtaken_by_readers_without_end)
{
    enum { READERS = 3000 };
    static struct deed readers[READERS];
    open_cards();
    tn_kind *card = add_kind(sched, act, "CPU=0 GPU=1");
    struct item *item = make(0, 1);
    struct deed write = updates(item, 1);
    uint32_t before = run_count;
    for (uint32_t i = 0; i < READERS; i++) {
        readers[i] = reads(item);
        add(card, &readers[i], NULL);
        if (i == 100)
            add(card, &write, NULL);
    }
    TN_CHECK_OK(wait_for_all());
    assert_in_range(write.order - before, 90, READERS / 2);
    close_all();
}

TN_TEST(what_no_task_has_written_cannot_be_read)
{
    open_cards();
    struct item *item = make_empty(0), *other = make(1, 5);
    tn_kind *card = add_kind(sched, act, "CPU=0 GPU=1");
    struct deed read = {.items = {other, item}, .modes = {TN_READ, TN_READ}, .count = 2};
    add(card, &read, NULL);
    assert_int_equal(wait_for_all(), TN_ERR_INVALID);
    expect_detail("it reads 'item', which no task has written");
    assert_int_equal(read.runs, 0);
    assert_int_equal(tn_data_fetch(item->data, TN_NOW), TN_ERR_INVALID);
    expect_detail("it reads 'item', which no task has written");
    graph = open_graph(sched);
    struct deed write = writes(item, 3), then = reads(item), rest = updates(other, 1);
    uint64_t task = add(card, &write, NULL);
    add(card, &then, &task);
    add(card, &rest, NULL);
    TN_CHECK_OK(wait_for_all());
    assert_int_equal(item->seen, 3);
    close_all();
}

TN_TEST(a_task_that_asks_to_run_again_has_written_nothing)
{
    const tn_variant variant = {.run = act, .request = "CPU=0 GPU=1"};
    tn_kind *card;
    open_cards();
    struct item *item = make(0, 1);
    TN_CHECK_OK(tn_kind_create(
        sched,
        TN_OPTIONS(tn_kind_options, .variants = &variant, .variant_count = 1, .attempts = 3),
        &card));
    struct deed first = updates(item, 5), again = updates(item, 1), gives_up = updates(item, 1);
    again.retries = 2, gives_up.retries = 3;
    uint64_t task = add(card, &first, NULL); /* 6, and the host's copy is stale */
    task = add(card, &again, &task);
    add(card, &gives_up, &task);
    assert_true(wait_for_all() < 0);
    assert_int_equal(again.runs, 3);
    TN_CHECK_OK(tn_data_fetch(item->data, TN_NOW));
    assert_int_equal(*item->at[HOST], 7);
    close_all();
}

/* To bring a small piece, a large one is evicted, which does not succeed. */
TN_TEST(an_eviction_that_fails_finds_its_room_again)
{
    open_with("CPU=4 GPU=((0,1))", "GPU=1500", 0);
    struct item *large = make(0, 1), *small = &items[1];
    tn_kind *card = add_kind(sched, act, "CPU=0 GPU=1");
    struct deed update = updates(large, 1), read = reads(small);
    small->at[HOST] = calloc(1, sizeof(int64_t));
    item_bytes = 600;
    TN_CHECK_OK(create(small, TN_DATA_ON_HOST, &small->data));
    add(card, &update, NULL);
    TN_CHECK_OK(wait_for_all());
    large->fails = TN_ERR_DENIED;
    add(card, &read, NULL);
    assert_int_equal(wait_for_all(), TN_ERR_DENIED);
    assert_int_equal(used_at_failure, BYTES); /* so no other task got what is beyond 600 */
    assert_int_equal(info_of("GPU", 0).used, BYTES);
    close_all();
}

TN_TEST(a_task_that_fails_leaves_no_valid_copy_of_what_it_wrote)
{
    open_cards();
    struct item *item = make(0, 1), *kept = make(1, 2);
    tn_kind *card = add_kind(sched, act, "CPU=0 GPU=1");
    struct deed first = updates(item, 1);
    add(card, &first, NULL);
    TN_CHECK_OK(wait_for_all()); /* the host's copy is stale */
    struct deed fails = {.items = {item, kept},
                         .modes = {TN_READ | TN_WRITE, TN_READ},
                         .count = 2,
                         .status = TN_ERR_DENIED};
    add(card, &fails, NULL);
    assert_int_equal(wait_for_all(), TN_ERR_DENIED);
    assert_int_equal(tn_data_fetch(item->data, TN_NOW), TN_ERR_INVALID);
    TN_CHECK_OK(tn_data_fetch(kept->data, TN_NOW));
    graph = open_graph(sched);
    struct deed anew = writes(item, 9);
    add(card, &anew, NULL);
    TN_CHECK_OK(wait_for_all());
    TN_CHECK_OK(tn_data_fetch(item->data, TN_NOW));
    assert_int_equal(*item->at[HOST], 9);
    close_all();
}

TN_TEST(a_copy_that_fails_fails_its_task_and_nothing_else)
{
    open_cards();
    struct item *item = make(0, 1), *other = make(1, 2);
    tn_kind *card = add_kind(sched, act, "CPU=0 GPU=1");
    struct deed both = {
        .items = {other, item}, .modes = {TN_READ | TN_WRITE, TN_READ}, .count = 2};
    item->fails = TN_ERR_SYSTEM;
    add(card, &both, NULL);
    assert_int_equal(wait_for_all(), TN_ERR_SYSTEM);
    expect_detail("the card is gone");
    assert_int_equal(both.runs, 0);
    for (uint32_t slot = 0; slot < 6; slot += 2)
        assert_int_equal(info_of("GPU", slot).idle, info_of("GPU", slot).used);
    graph = open_graph(sched);
    struct deed again = both;
    again.runs = 0;
    again.add = 5;
    add(card, &again, NULL);
    TN_CHECK_OK(wait_for_all());
    TN_CHECK_OK(tn_data_fetch(other->data, TN_NOW));
    assert_int_equal(*other->at[HOST], 7);
    item->fails = 5;
    struct deed odd = updates(item, 1);
    add(add_kind(sched, act, NULL), &odd, NULL); /* the host has it: nothing is copied */
    TN_CHECK_OK(wait_for_all());
    struct deed wrong = reads(item);
    add(card, &wrong, NULL);
    assert_int_equal(wait_for_all(), TN_ERR_INVALID);
    expect_detail("the copy function of 'item' returned 5, which is no TN_TASK_OOM");
    assert_int_equal(wrong.runs, 0);
    close_all();
}

TN_TEST(memory_that_runs_out_is_emptied_before_the_task_runs_alone)
{
    open_with("CPU=4 GPU=((0,1))", "GPU=3000", 0);
    tn_kind *card = add_kind(sched, act, "CPU=0 GPU=1");
    for (uint32_t i = 0; i < 3; i++)
        make(i, i);
    struct deed before = updates(&items[0], 10), hungry = reads(&items[1]);
    hungry.failures = 1;
    uint64_t task = add(card, &before, NULL);
    add(card, &hungry, &task);
    TN_CHECK_OK(wait_for_all());
    assert_int_equal(hungry.runs, 2);
    assert_int_equal(items[0].drops, 1); /* idle, so it left; the host got it */
    assert_int_equal(*items[0].at[HOST], 10);
    assert_int_equal(info_of("GPU", 0).used, BYTES);
    items[2].fails = TN_TASK_OOM; /* the card has less room than it says */
    struct deed third = reads(&items[2]);
    add(card, &third, NULL);
    TN_CHECK_OK(wait_for_all());
    assert_int_equal(third.runs, 1);
    assert_int_equal(items[1].drops, 1);
    struct deed always = reads(&items[0]);
    always.failures = 9;
    add(card, &always, NULL);
    assert_int_equal(wait_for_all(), TN_ERR_NO_MEMORY);
    expect_detail("GPU 0 has 1000 of 3000 bytes in use: 'item' 1000 (this task)");
    graph = open_graph(sched);
    struct deed update = updates(&items[0], 1);
    update.failures = 9;
    add(card, &update, NULL);
    assert_int_equal(wait_for_all(), TN_ERR_NO_MEMORY);
    expect_detail("it does not run again, since it writes its inputs");
    assert_int_equal(update.runs, 1);
    close_all();
}

/* A kind whose tasks are not run again without memory, so that they are not alone. */
static tn_kind *add_writer(const char *name, const char *request)
{
    tn_kind *kind;
    const tn_variant variant = {.run = act, .request = request};
    TN_CHECK_OK(tn_kind_create(sched,
                               TN_OPTIONS(tn_kind_options, .name = name, .variants = &variant,
                                          .variant_count = 1, .flags = TN_KIND_WRITES_INPUTS),
                               &kind));
    return kind;
}

/* A task that writes data of so many bytes, which it makes. */
static struct deed makes(uint32_t at, uint64_t bytes)
{
    item_bytes = bytes;
    return writes(make_empty(at), 1);
}

TN_TEST(memory_that_runs_out_is_told_with_who_holds_what)
{
    open_with("CPU=4 GPU=((0,1))", "GPU=9000", 0);
    most[0] = INT64_MAX; /* copy() counts BYTES for each */
    struct tnt_signal go = tnt_signal_open();
    struct deed idle[] = {makes(0, 400), makes(1, 600), makes(2, 1000)};
    struct deed train = makes(3, 3000), hungry = makes(4, 2000);
    train.gate = &go;
    hungry.failures = 1;
    tn_kind *writer = add_writer("writer", "CPU=0 GPU=1");
    for (uint32_t i = 0; i < 3; i++)
        add(writer, &idle[i], NULL);
    TN_CHECK_OK(wait_for_all());
    add(add_writer("train", "CPU=0 GPU=1"), &train, NULL);
    while (train.runs == 0)
        tni_os_yield();
    uint64_t task = add(writer, &hungry, NULL);
    while (tn_task_get_status(graph, task, NULL) == TN_ERR_TIMED_OUT)
        tni_os_yield();
    tnt_signal(&go);
    assert_int_equal(wait_for_all(), TN_ERR_NO_MEMORY);
    expect_detail("task 4 (writer): its memory ran out, and it does not run again");
    expect_detail("; GPU 0 has 7000 of 9000 bytes in use: 'item' 3000 (task 3, train), "
                  "'item' 2000 (this task), 'item' 1000, 2 others 1000");
    close_all();
    tnt_signal_close(&go);
}

TN_TEST(the_memory_of_the_host_is_told_as_that_of_a_card)
{
    open_with("CPU=4", "HOST=3000", 0);
    struct deed own = reads(make(0, 1)), hungry;
    hungry = makes(1, 2000);
    hungry.failures = 9;
    tn_kind *kind = add_kind(sched, act, "CPU=1");
    add(kind, &own, NULL);
    TN_CHECK_OK(wait_for_all());
    add(kind, &hungry, NULL);
    assert_int_equal(wait_for_all(), TN_ERR_NO_MEMORY);
    expect_detail("; the host has 2000 of 3000 bytes in use, and 1000 of the program: 'item' "
                  "2000 (this task), 'item' 1000 (the program's)");
    close_all();
}

/* A task that names no data, on a card with a memory. */
static int lack_memory(const tn_task_call *call) { return (void)call, TN_TASK_OOM; }

TN_TEST(a_task_without_data_is_told_who_holds_the_memory_of_its_card)
{
    open_with("CPU=4 GPU=((0,1),(2,3))", "GPU=3000", 0);
    struct deed deed = writes(make_empty(0), 1);
    uint64_t first = add(add_kind(sched, act, "CPU=0 GPU=2"), &deed, NULL);
    TN_CHECK_OK(wait_for_all());
    assert_int_equal(deed.memory.slot, 0);
    const tn_task task = {.kind = add_kind(sched, lack_memory, "CPU=0 GPU=2")};
    add_task(graph, task, &first, 1);
    assert_int_equal(wait_for_all(), TN_ERR_NO_MEMORY);
    expect_detail("; GPU 0 has 1000 of 3000 bytes in use: 'item' 1000");
    close_all();
}

TN_TEST(a_task_without_memory_is_alone_on_a_card_of_any_size)
{
    open_with("CPU=4 GPU=((0,1),(2))", "GPU=3000", 0);
    struct deed deed = reads(make(0, 5));
    deed.failures = 1;
    add(add_kind(sched, act, "CPU=0 GPU=1"), &deed, NULL);
    TN_CHECK_OK(wait_for_all());
    assert_int_equal(deed.runs, 2);
    assert_int_equal(deed.memory.slot, 0); /* the larger one */
    close_all();
}

TN_TEST(data_that_can_never_fit_is_an_error_when_a_task_is_added)
{
    tn_sched *own;
    open_cards();
    tn_data *large, *foreign;
    const tn_variant run = {.run = act};
    tn_kind *card = add_kind(sched, act, "CPU=0 GPU=1"), *wide = add_kind(sched, act, "GPU=3");
    (void)run;
    for (uint32_t i = 0; i < 4; i++)
        make(i, i);
    struct deed four = {.items = {&items[0], &items[1], &items[2], &items[3]},
                        .modes = {TN_READ, TN_READ, TN_READ, TN_READ},
                        .count = 4};
    assert_int_equal(add_deed(card, &four, NULL, NULL), TN_ERR_INVALID);
    expect_detail("the data of a task has 4000 bytes, and the largest memory for it 3000");
    struct deed one = reads(&items[0]);
    assert_int_equal(add_deed(wide, &one, NULL, NULL), TN_ERR_INVALID);
    expect_detail("request 3 slots of GPU: no card has that many");
    struct deed twice = {
        .items = {&items[0], &items[0]}, .modes = {TN_READ, TN_WRITE}, .count = 2};
    assert_int_equal(add_deed(card, &twice, NULL, NULL), TN_ERR_INVALID);
    expect_detail("names the same data twice");
    one.modes[0] = 4;
    assert_int_equal(add_deed(card, &one, NULL, NULL), TN_ERR_INVALID);
    expect_detail("has the mode 0x4");
    struct item none = {0};
    struct deed of_none = reads(&none);
    assert_int_equal(add_deed(card, &of_none, NULL, NULL), TN_ERR_INVALID);
    expect_detail("names no data");
    TN_CHECK_OK(tn_sched_create(NULL, &own));
    TN_CHECK_OK(tn_data_create(
        own, TN_OPTIONS(tn_data_options, .bytes = 1, .copy = copy, .drop = drop), &foreign));
    none.data = foreign;
    assert_int_equal(add_deed(card, &of_none, NULL, NULL), TN_ERR_INVALID);
    expect_detail("is not of this scheduler");
    tn_sched_close(own);
    TN_CHECK_OK(tn_data_create(
        sched, TN_OPTIONS(tn_data_options, .bytes = 3001, .copy = copy, .drop = drop), &large));
    none.data = large;
    of_none.modes[0] = TN_WRITE;
    assert_int_equal(add_deed(card, &of_none, NULL, NULL), TN_ERR_INVALID);
    TN_CHECK_OK(wait_for_all());
    close_all();
}

TN_TEST(a_wrong_option_of_data_or_memories_is_named)
{
    static const struct {
        const char *memories, *links, *detail;
    } wrong[] = {{"NPU=5", NULL, "memories names NPU, which has no slots"},
                 {"CPU=5", NULL, "memories names CPU, which has no slots"},
                 {"GPU=5 GPU=6", NULL, "memories names GPU twice"},
                 {"GPU=x", NULL, "an amount is a number"},
                 {"HOST=x", NULL, "an amount is a number"},
                 {"HOST=1 HOST=2", NULL, "memories names HOST twice"},
                 {"HOST=1 DISK=2", NULL, "so DISK is what the host evicts to"},
                 {"MIX=5", NULL, "slot 9 lies beside groups"},
                 {NULL, "NVLINK=5", "links names NVLINK: there are HOST, PEER, FAR and DISK"},
                 {NULL, "HOST=0", "HOST=0: a link carries more than 0 bytes"}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        tn_sched *none = NULL;
        assert_int_equal(
            tn_sched_create(TN_OPTIONS(tn_sched_options,
                                       .resources = "GPU=(0,1) MIX=((7,8),9) DISK=(3)",
                                       .memories = wrong[i].memories, .links = wrong[i].links),
                            &none),
            TN_ERR_INVALID);
        expect_detail(wrong[i].detail);
        assert_null(none);
    }
    open_cards();
    tn_data *data = NULL;
    assert_int_equal(
        tn_data_create(sched, TN_OPTIONS(tn_data_options, .copy = copy, .drop = drop), &data),
        TN_ERR_INVALID);
    expect_detail("bytes is 0");
    assert_int_equal(tn_data_create(sched, TN_OPTIONS(tn_data_options, .bytes = 1), &data),
                     TN_ERR_INVALID);
    assert_int_equal(create(&items[0], 8, &data), TN_ERR_INVALID);
    expect_detail("TN_DATA_ON_HOST, TN_DATA_TEMPORARY and TN_DATA_LIKE are known");
    tn_memory_info info = {.struct_size = sizeof info};
    assert_int_equal(tn_memory_get_info(sched, &(tn_memory){"GPU", 9, 0}, &info),
                     TN_ERR_NOT_FOUND);
    assert_int_equal(tn_memory_get_info(sched, &(tn_memory){"CPU", 0, 0}, &info),
                     TN_ERR_NOT_FOUND);
    assert_int_equal(tn_data_fetch(NULL, TN_NOW), TN_ERR_INVALID);
    assert_null(tn_data_close(NULL));
    close_all();
}

static int fetch_own(const tn_task_call *call)
{
    struct deed *deed = call->context;
    for (uint32_t i = 0; i < deed->count; i++)
        deed->statuses[i] = tn_data_fetch(deed->items[i]->data, tnt_deadline(10000));
    return TN_TASK_DONE;
}

TN_TEST(a_task_fetches_what_it_reads_and_not_what_it_writes)
{
    open_cards();
    struct deed deed = {
        .items = {make(0, 1), make(1, 2)}, .modes = {TN_READ, TN_READ | TN_WRITE}, .count = 2};
    add(add_kind(sched, fetch_own, "CPU=0 GPU=1"), &deed, NULL);
    TN_CHECK_OK(wait_for_all());
    assert_int_equal(deed.statuses[0], 0);
    assert_int_equal(deed.statuses[1], TN_ERR_INVALID);
    close_all();
}

TN_TEST(to_close_data_waits_for_its_tasks)
{
    static struct deed deeds[50];
    open_cards();
    struct item *item = make(0, 0);
    tn_kind *card = add_kind(sched, act, "CPU=0 GPU=1");
    for (uint32_t i = 0; i < 50; i++) {
        deeds[i] = updates(item, 1);
        add(card, &deeds[i], NULL);
    }
    item->data = tn_data_close(item->data);
    for (uint32_t i = 0; i < 50; i++)
        assert_int_equal(deeds[i].runs, 1);
    TN_CHECK_OK(wait_for_all());
    close_all();
}

TN_TEST(cancelled_tasks_leave_their_data_to_others)
{
    static struct deed deeds[300];
    open_cards();
    tn_kind *card = add_kind(sched, act, "CPU=0 GPU=1");
    for (uint32_t i = 0; i < 8; i++)
        make(i, 0);
    for (uint32_t round = 0; round < 20; round++) {
        for (uint32_t i = 0; i < 300; i++) {
            deeds[i] = updates(&items[i % 8], 1);
            add(card, &deeds[i], NULL);
        }
        tn_graph_cancel(graph);
        (void)!wait_for_all();
        graph = tn_graph_close(graph);
        graph = open_graph(sched);
        for (uint32_t slot = 0; slot < 6; slot += 2)
            while (info_of("GPU", slot).idle != info_of("GPU", slot).used)
                ;
    }
    for (uint32_t i = 0; i < 8; i++)
        TN_CHECK_OK(tn_data_fetch(items[i].data, tnt_deadline(10000)));
    close_all();
}

static int pend_with_data(const tn_task_call *call)
{
    struct deed *deed = call->context;
    *deed->items[0]->at[place_of(call->memory)] = 77;
    deed->runs++;
    return TN_TASK_PENDING;
}

TN_TEST(a_task_that_pends_keeps_its_data)
{
    open_cards();
    struct item *item = make(0, 1);
    tn_kind *pends = add_kind(sched, pend_with_data, "CPU=0 GPU=1");
    struct deed deed = writes(item, 0);
    uint64_t task = add(pends, &deed, NULL);
    while (deed.runs == 0)
        ;
    assert_int_equal(tn_data_fetch(item->data, tnt_deadline(20)), TN_ERR_TIMED_OUT);
    TN_CHECK_OK(tn_task_end(graph, task, 0));
    TN_CHECK_OK(tn_data_fetch(item->data, tnt_deadline(10000)));
    assert_int_equal(*item->at[HOST], 77);
    close_all();
}

/* ---- virtual time ------------------------------------------------------------------------ */

static uint64_t virtual_ns(void)
{
    tn_sched_info info = {.struct_size = sizeof info};
    TN_CHECK_OK(tn_sched_get_info(sched, &info));
    return info.now_ns;
}

static tn_kind *timed_kind(const char *request, const char *other, uint64_t run_ns,
                           uint64_t other_ns)
{
    tn_kind *kind;
    const tn_variant variants[] = {{.request = request, .run_ns = run_ns},
                                   {.request = other, .run_ns = other_ns}};
    TN_CHECK_OK(tn_kind_create(sched,
                               TN_OPTIONS(tn_kind_options, .variants = variants,
                                          .variant_count = other != NULL ? 2 : 1),
                               &kind));
    return kind;
}

/* A byte takes 1 ns from the host, and 0.5 ns between cards. */
TN_TEST(in_virtual_time_data_takes_time_to_come)
{
    open_with("CPU=1 GPU=((0,1),(2,3),(4,5))", "GPU=3000", TN_SCHED_VIRTUAL);
    struct item *item = make(0, 0);
    tn_kind *card = timed_kind("CPU=0 GPU=1", NULL, 100, 0);
    struct deed deed = reads(item);
    uint64_t task = add(card, &deed, NULL);
    TN_CHECK_OK(wait_for_all());
    assert_int_equal(virtual_ns(), 1100);
    task = add(card, &deed, &task);
    add(card, &deed, &task);
    TN_CHECK_OK(wait_for_all());
    assert_int_equal(virtual_ns(), 1300); /* it is there */
    TN_CHECK_OK(tn_data_fetch(item->data, TN_NOW));
    close_all();
}

/* Two slots of the card with the data are taken for 300 or 2000 ns; to copy takes 500. */
TN_TEST(a_task_waits_for_the_card_with_its_data_if_that_is_sooner)
{
    static const uint64_t busy_ns[] = {300, 2000}, ends_ns[] = {1400 + 100, 1000 + 100 + 2000};
    for (int i = 0; i < 2; i++) {
        open_with("CPU=1 GPU=((0,1),(2,3))", "GPU=3000", TN_SCHED_VIRTUAL);
        struct item *item = make(0, 0);
        tn_kind *card = timed_kind("CPU=0 GPU=1", NULL, 100, 0);
        tn_kind *busy = timed_kind("CPU=0 GPU=2", NULL, busy_ns[i], 0);
        struct deed update = updates(item, 0), read = reads(item);
        struct deed none = {.count = 0}, other = reads(make(1, 0));
        (void)other;
        uint64_t task = add(card, &update, NULL); /* until 1100, on the first card */
        uint64_t holder = add(busy, &none, &task);
        (void)holder;
        add(card, &read, &task);
        TN_CHECK_OK(wait_for_all());
        if (i == 0)
            assert_int_equal(virtual_ns(), ends_ns[0]);
        else
            assert_int_equal(virtual_ns(), ends_ns[1]);
        close_all();
    }
}

TN_TEST(a_variant_is_chosen_with_the_time_that_its_data_takes)
{
    static const uint64_t cpu_ns[] = {1000, 1300}, ends_ns[] = {1000, 1200};
    for (int i = 0; i < 2; i++) {
        open_with("CPU=1 GPU=((0,1))", "GPU=3000", TN_SCHED_VIRTUAL);
        struct item *item = make(0, 0);
        struct deed deed = reads(item);
        /* On the card 200, and 1000 to bring the data. */
        add(timed_kind("CPU=0 GPU=1", "CPU=1", 200, cpu_ns[i]), &deed, NULL);
        TN_CHECK_OK(wait_for_all());
        assert_int_equal(virtual_ns(), ends_ns[i]);
        close_all();
    }
}

/* The data is on the last card, which is busy: 500 ns from there to its peer, 1000 to others.
 */
TN_TEST(a_task_takes_the_card_that_is_near_its_data)
{
    open_with("CPU=1 GPU=(((0),(1)),((2),(3)))", "GPU=3000", TN_SCHED_VIRTUAL);
    struct item *item = make(0, 0);
    tn_kind *quick = timed_kind("CPU=0 GPU=1", NULL, 100, 0);
    tn_kind *slow = timed_kind("CPU=0 GPU=1", NULL, 5000, 0);
    struct deed none = {.count = 0}, update = updates(item, 0), read = reads(item);
    for (int i = 0; i < 3; i++)
        add(quick, &none, NULL);
    uint64_t task = add(quick, &update, NULL);
    add(slow, &read, &task);
    add(quick, &read, &task);
    TN_CHECK_OK(wait_for_all());
    static const uint64_t arrived[] = {0, 0, BYTES, BYTES};
    for (uint32_t slot = 0; slot < 4; slot++)
        assert_int_equal(info_of("GPU", slot).arrived, arrived[slot]);
    close_all();
}
