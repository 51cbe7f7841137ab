/* SPDX-License-Identifier: Apache-2.0 */
/* What a domain shows of schedulers. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "harness/tensor.h"
#include "os/os.h"
#include "process/pool_world.h"
#include "process/process.h"

enum { MOST = 4 };
struct seen {
    uint32_t count;
    tn_scheduler_entry at[MOST];
};

static tn_domain *domain;
static tn_inspector *inspector;
static tn_sched *sched;
static tn_graph *graph;
/* A task sends one signal when it begins, and ends when it gets one. */
static struct tnt_signal begun, gate;
static uint32_t added;

static int note(const tn_scheduler_entry *scheduler, void *context)
{
    struct seen *seen = context;
    assert_true(seen->count < MOST);
    seen->at[seen->count++] = *scheduler;
    return 0;
}

static struct seen look(void)
{
    struct seen seen = {0};
    TN_CHECK_OK(tn_inspect_schedulers(inspector, note, &seen));
    return seen;
}

static tn_scheduler_entry look_at_one(void)
{
    struct seen seen = look();
    assert_int_equal(seen.count, 1);
    return seen.at[0];
}

static const tn_resource_info *resource_of(const tn_scheduler_entry *entry, const char *name)
{
    for (uint32_t i = 0; i < entry->info.resource_count; i++)
        if (strcmp(entry->info.resources[i].name, name) == 0)
            return &entry->info.resources[i];
    fail_msg("no resource %s", name);
    return NULL;
}

static tn_inspector *open_inspector(void)
{
    char id[33];
    tn_inspector *opened;
    for (size_t i = 0; i < sizeof domain->segment.id; i++)
        snprintf(id + 2 * i, 3, "%02x", domain->segment.id[i]);
    TN_CHECK_OK(tn_inspector_open(id, &opened));
    return opened;
}

static int create(const char *resources, const char *name, tn_sched **ret_sched)
{
    return tn_sched_create(
        TN_OPTIONS(tn_sched_options, .resources = resources, .domain = domain, .name = name),
        ret_sched);
}

/* A child makes its own. */
static void open_signals(void)
{
    begun = tnt_signal_open();
    gate = tnt_signal_open();
    added = 0;
}

/* Let all tasks end. */
static void open_gate(void)
{
    for (; added > 0; added--)
        tnt_signal(&gate);
}

static void open_all(const char *resources)
{
    domain = tnt_domain(TN_OPTIONS(tn_domain_options, .flags = TN_DOMAIN_NO_MANAGER));
    inspector = open_inspector();
    open_signals();
    TN_CHECK_OK(create(resources, "pipeline", &sched));
    TN_CHECK_OK(tn_graph_create(sched, &graph));
}

static void close_all(void)
{
    open_gate();
    sched = tn_sched_close(sched);
    inspector = tn_inspector_close(inspector);
    domain = tn_domain_close(domain);
    tnt_signal_close(&begun);
    tnt_signal_close(&gate);
}

static int wait_until_open(const tn_task_call *call)
{
    (void)call;
    tnt_signal(&begun);
    tnt_await(&gate);
    return TN_TASK_DONE;
}

static void add(const char *request, uint32_t count)
{
    const tn_variant variant = {.run = wait_until_open, .request = request};
    tn_kind *kind;
    TN_CHECK_OK(tn_kind_create(
        sched, TN_OPTIONS(tn_kind_options, .variants = &variant, .variant_count = 1), &kind));
    const tn_task task = {.kind = kind};
    added += count;
    for (uint32_t i = 0; i < count; i++)
        TN_CHECK_OK(
            tn_graph_add(graph, TN_OPTIONS(tn_task_list, .tasks = &task, .count = 1), NULL));
}

static void await_begun(uint32_t count)
{
    while (count-- > 0)
        tnt_await(&begun);
}

TN_TEST(a_scheduler_is_shown_with_what_its_tasks_wait_for)
{
    open_all("CPU=2 GPU=(0,1) MEM=1.5");
    add("CPU=0 GPU=1 MEM=0.25", 5);
    add("CPU=2", 4);
    await_begun(3);
    tn_scheduler_entry entry = look_at_one();
    assert_int_equal(entry.pid, getpid());
    assert_string_equal(entry.name, "pipeline");
    assert_int_equal(entry.info.tasks, 9);
    assert_int_equal(entry.info.ended, 0);
    assert_int_equal(entry.info.running, 3);
    assert_int_equal(entry.info.ready, 6);
    assert_int_equal(resource_of(&entry, "GPU")->waiting, 3);
    assert_int_equal(resource_of(&entry, "CPU")->waiting, 3);
    assert_int_equal(resource_of(&entry, "MEM")->waiting, 0);
    assert_true(resource_of(&entry, "MEM")->total == 1.5);
    assert_true(resource_of(&entry, "MEM")->free == 1.0);
    assert_true(resource_of(&entry, "CPU")->free == 0);
    open_gate();
    TN_CHECK_OK(tn_graph_wait(graph, tnt_deadline(30000)));
    /* A worker gives back what its last task had after that task has counted as ended. */
    do
        entry = look_at_one();
    while (entry.info.running > 0);
    assert_int_equal(entry.info.tasks, 0);
    assert_int_equal(entry.info.ended, 9);
    assert_int_equal(entry.info.ready, 0);
    assert_true(resource_of(&entry, "MEM")->free == 1.5);
    assert_int_equal(resource_of(&entry, "GPU")->waiting, 0);
    close_all();
}

TN_TEST(it_is_shown_as_tn_sched_get_info_says)
{
    open_all("CPU=1 MEM=0.3");
    add("CPU=1 MEM=0.1", 3);
    await_begun(1);
    tn_sched_info info = {.struct_size = sizeof info};
    TN_CHECK_OK(tn_sched_get_info(sched, &info));
    tn_scheduler_entry entry = look_at_one();
    assert_true(info.now_ns > 0);
    info.now_ns = 0;
    assert_int_equal(entry.info.struct_size, sizeof info);
    assert_memory_equal(&entry.info, &info, sizeof info);
    close_all();
}

TN_TEST(while_nothing_changes_the_time_since_the_last_change_grows)
{
    open_all("CPU=1");
    add(NULL, 2);
    await_begun(1);
    uint64_t before = tni_os_now_ns();
    while (look_at_one().changed_ns < UINT64_C(20000000))
        assert_true(tni_os_now_ns() - before < UINT64_C(30000000000));
    /* An idle guard and a waiting caller sleep again and again: that is no change. */
    assert_int_equal(tn_graph_wait(graph, tnt_deadline(30)), TN_ERR_TIMED_OUT);
    assert_true(look_at_one().changed_ns >= UINT64_C(20000000));
    open_gate();
    TN_CHECK_OK(tn_graph_wait(graph, tnt_deadline(30000)));
    close_all();
}

TN_TEST(several_are_shown_until_they_are_closed)
{
    tn_sched *others[2];
    open_all("CPU=1");
    TN_CHECK_OK(create("CPU=2", NULL, &others[0]));
    TN_CHECK_OK(create("CPU=3", "third", &others[1]));
    assert_int_equal(look().count, 3);
    tn_sched_close(others[0]);
    assert_int_equal(look().count, 2);
    tn_sched_close(others[1]);
    assert_int_equal(look().count, 1);
    sched = tn_sched_close(sched);
    assert_int_equal(look().count, 0);
    assert_int_equal(live_blocks(domain), 0);
    close_all();
}

TN_TEST(without_a_domain_nothing_is_shown)
{
    tn_sched *other;
    open_all("CPU=1");
    TN_CHECK_OK(tn_sched_create(TN_OPTIONS(tn_sched_options, .name = "other"), &other));
    assert_int_equal(look().count, 1);
    tn_sched_close(other);
    close_all();
}

static void reap(void) { TN_CHECK_OK(tn_domain_reap(domain, NULL)); }

static int run_until_killed(void *begun_signal)
{
    open_signals();
    TN_CHECK_OK(create("CPU=7", "child", &sched));
    TN_CHECK_OK(tn_graph_create(sched, &graph));
    add(NULL, 20);
    await_begun(7);
    tnt_signal(begun_signal);
    return pause();
}

TN_TEST(the_scheduler_of_a_killed_process_is_gone_once_it_is_reaped)
{
    struct tnt_signal is_begun = tnt_signal_open();
    open_all("CPU=1");
    pid_t child = tnt_fork(run_until_killed, &is_begun);
    tnt_await(&is_begun);
    struct seen seen = look();
    assert_int_equal(seen.count, 2);
    const tn_scheduler_entry *its = &seen.at[seen.at[0].pid == child ? 0 : 1];
    assert_int_equal(its->pid, child);
    assert_int_equal(resource_of(its, "CPU")->waiting, 13);
    tnt_kill(child);
    reap();
    assert_int_equal(look_at_one().pid, getpid());
    TNT_AUDIT(domain);
    tnt_signal_close(&is_begun);
    close_all();
}

static int run_and_close(void *unused)
{
    (void)unused;
    TN_CHECK_OK(create("CPU=5", "killed", &sched));
    TN_CHECK_OK(tn_graph_create(sched, &graph));
    open_signals();
    add(NULL, 3);
    open_gate();
    TN_CHECK_OK(tn_graph_wait(graph, tnt_deadline(30000)));
    tn_sched_close(sched);
    return 0;
}

/* The record of a writer that was killed while it wrote does not hold up an inspector. */
TN_TEST(a_writer_killed_at_any_write_leaves_nothing)
{
    uint32_t passing = 0;
    bool was_killed;
    open_all("CPU=1");
    do {
        was_killed = tnt_kill_at("show_writing", ++passing, run_and_close, NULL);
        assert_in_range(look().count, 1, 2);
        reap();
        assert_int_equal(look_at_one().pid, getpid());
        TNT_AUDIT(domain);
    } while (was_killed);
    assert_true(passing > 5);
    assert_true(tnt_kill_at("show_made", 1, run_and_close, NULL));
    assert_int_equal(look().count, 1);
    reap();
    TNT_AUDIT(domain);
    close_all();
}

static int close_parents(void *unused)
{
    (void)unused;
    tn_sched_close(sched);
    return look().count == 1 ? 0 : 1;
}

static int await_signal(void *may_end)
{
    tnt_await(may_end);
    return 0;
}

TN_TEST(a_forked_child_neither_ends_nor_keeps_what_is_shown)
{
    struct tnt_signal may_end = tnt_signal_open();
    open_all("CPU=1");
    tnt_wait_ok(tnt_fork(close_parents, NULL));
    assert_int_equal(look_at_one().pid, getpid());
    pid_t child = tnt_fork(await_signal, &may_end);
    sched = tn_sched_close(sched);
    assert_int_equal(look().count, 0);
    assert_int_equal(live_blocks(domain), 0);
    tnt_signal(&may_end);
    tnt_wait_ok(child);
    tnt_signal_close(&may_end);
    close_all();
}

static int close_domain_first(void *unused)
{
    (void)unused;
    TN_CHECK_OK(create("CPU=1", "late", &sched));
    TN_CHECK_OK(tn_graph_create(sched, &graph));
    tn_domain_close(domain);
    open_signals();
    add(NULL, 3);
    open_gate();
    TN_CHECK_OK(tn_graph_wait(graph, tnt_deadline(30000)));
    tn_sched_close(sched);
    return 0;
}

TN_TEST(a_scheduler_goes_on_when_the_process_has_left_the_domain)
{
    open_all("CPU=1");
    tnt_wait_ok(tnt_fork(close_domain_first, NULL));
    assert_string_equal(look_at_one().name, "pipeline");
    TNT_AUDIT(domain);
    close_all();
}

TN_TEST(tasks_of_a_pool_are_shown_too)
{
    struct pool_world w = pool_open_by(TN_START_FORK, 1);
    domain = w.domain;
    inspector = open_inspector();
    TN_CHECK_OK(create("CPU=1", "over-a-pool", &sched));
    assert_string_equal(look_at_one().name, "over-a-pool");
    assert_int_equal(look_at_one().info.threads, 0);
    const tn_variant variant = {.run = wait_until_open};
    tn_kind *kind;
    TN_CHECK_OK(tn_kind_create(
        sched,
        TN_OPTIONS(tn_kind_options, .variants = &variant, .variant_count = 1, .pool = w.pool),
        &kind));
    assert_int_equal(look_at_one().info.threads, 1);
    sched = tn_sched_close(sched);
    inspector = tn_inspector_close(inspector);
    pool_close_world(&w);
}

TN_TEST(what_cannot_be_shown_is_an_error_and_no_scheduler)
{
    tn_sched *other = NULL;
    open_all("CPU=1");
    assert_int_equal(
        create("CPU=1", "a name of more than forty-seven bytes, which is long", &other),
        TN_ERR_INVALID);
    pool_expect_detail(tn_error_detail(), "scheduler");
    assert_int_equal(create("CPU=1", "", &other), TN_ERR_INVALID);
    assert_int_equal(
        tn_sched_create(
            TN_OPTIONS(tn_sched_options, .flags = TN_SCHED_VIRTUAL, .domain = domain), &other),
        TN_ERR_INVALID);
    pool_expect_detail(tn_error_detail(), "no domain shows virtual time");
    assert_null(other);
    assert_int_equal(look().count, 1);
    close_all();
}

TN_TEST(without_room_in_the_domain_there_is_no_scheduler)
{
    enum { TENSORS = 64 };
    tn_sched *other = NULL;
    tn_tensor *tensors[TENSORS];
    uint32_t count = 0;
    int64_t bytes = 1 << 20;
    domain = tnt_domain(
        TN_OPTIONS(tn_domain_options, .flags = TN_DOMAIN_NO_MANAGER, .quota_bytes = 8 << 20));
    inspector = open_inspector();
    for (; bytes >= 64; bytes /= 2)
        while (count < TENSORS &&
               tn_tensor_create(domain, TN_UINT8, 1, &bytes, NULL, &tensors[count]) == 0)
            count++;
    assert_true(count < TENSORS);
    assert_int_equal(create("CPU=1", NULL, &other), TN_ERR_NO_MEMORY);
    assert_null(other);
    assert_int_equal(look().count, 0);
    while (count > 0)
        tn_tensor_unref(tensors[--count]);
    TN_CHECK_OK(create("CPU=1", NULL, &sched));
    close_all();
}
