/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules of the scheduler, as properties of random graphs in virtual time, and one test for
 * each rule that decides between tasks, slots or variants. A model beside the scheduler says
 * what is free at each moment, from the trace alone.
 */
#include <stdlib.h>
#include <string.h>

#include "harness/harness.h"
#include "sched_test.h"

#define MS UINT64_C(1000000)

enum { MOST_TASKS = 400, SLOTS = 8, KINDS = 9, WHOLE = 10000 };

/* A task, as it was added and as it ran. Amounts are in 1/10000. */
static struct ran {
    uint32_t cpu, memory, gpu; /* of each slot, if gpu is less than one */
    uint32_t slots[SLOTS], slot_count;
    uint64_t ready_ns, began_ns, ended_ns;
    bool has_run;
} ran[MOST_TASKS];

static void remember(const tn_task_event *event, void *context)
{
    struct ran *its = &ran[event->task];
    const char *at = strchr(event->slots, '=');
    (void)context;
    assert_false(its->has_run);
    its->has_run = true;
    its->began_ns = event->began_ns;
    its->ended_ns = event->ended_ns;
    for (char *end; at != NULL && *at != '\0'; at = *end != '\0' ? end : NULL) {
        assert_true(its->slot_count < SLOTS);
        its->slots[its->slot_count++] = (uint32_t)strtoul(at + 1, &end, 10);
    }
}

static tn_sched *open_sched(tn_sched_options options)
{
    tn_sched *sched;
    memset(ran, 0, sizeof ran);
    options.struct_size = sizeof options;
    options.flags = TN_SCHED_VIRTUAL;
    options.trace = remember;
    TN_CHECK_OK(tn_sched_create(&options, &sched));
    return sched;
}

static tn_graph *open_graph(tn_sched *sched)
{
    tn_graph *graph;
    TN_CHECK_OK(tn_graph_create(sched, &graph));
    return graph;
}

static tn_kind *add_kind(tn_sched *sched, const char *request, const char *affinity)
{
    tn_kind *kind;
    const tn_variant variant = {.request = request};
    TN_CHECK_OK(tn_kind_create(sched,
                               TN_OPTIONS(tn_kind_options, .variants = &variant,
                                          .variant_count = 1, .affinity = affinity),
                               &kind));
    return kind;
}

static uint64_t run(tn_sched *sched, tn_graph *graph)
{
    tn_sched_info info = {.struct_size = sizeof info};
    TN_CHECK_OK(tn_graph_run(graph, TN_FOREVER));
    TN_CHECK_OK(tn_sched_get_info(sched, &info));
    return info.now_ns;
}

/* ---- random graphs beside a model -------------------------------------------------------- */

/* Of each machine the GPU. Ids are indices; each has the slots that the largest request needs.
 */
static const char *const gpus[] = {"(((0,1),(2,3)),((4,5,6),(7)))", "(0,1,2,3,4)",
                                   "((0,1,2,3),(4,5))", "((0,1),2,(3,4),5)",
                                   "((((0,1),2),3),(4,5,6,7))"};

/* Of a group, `widest` is the size of the largest group directly in it. */
struct group {
    uint32_t first, count, widest;
};

/* What there is; amounts are in 1/10000. */
static struct {
    uint32_t cpu, memory, threads, slot_count, group_count;
    struct group groups[SLOTS * 2];
} machine;

static void read_groups(const char *text)
{
    uint32_t open[SLOTS],
        depth = 0; /* open: numbers of the groups around the place in the text */
    machine.slot_count = machine.group_count = 0;
    for (; *text != '\0'; text++) {
        if (*text == '(') {
            open[depth++] = machine.group_count;
            machine.groups[machine.group_count++] = (struct group){machine.slot_count, 0, 0};
        } else if (*text == ')') {
            struct group *its = &machine.groups[open[--depth]];
            its->count = machine.slot_count - its->first;
            if (depth > 0) {
                struct group *around = &machine.groups[open[depth - 1]];
                around->widest = TNI_MAX(around->widest, its->count);
            }
        } else {
            machine.slot_count += *text != ',';
        }
    }
}

/* @return the resources of a machine at random */
static const char *choose_machine(void)
{
    static char text[128];
    const char *gpu = gpus[tnt_random_below(TNI_COUNT(gpus))];
    uint32_t cpus = 3 + (uint32_t)tnt_random_below(4);
    uint32_t memory = 3 + (uint32_t)tnt_random_below(4);
    uint32_t threads = 2 + (uint32_t)tnt_random_below(8);
    read_groups(gpu);
    machine.cpu = cpus * WHOLE;
    machine.memory = memory * WHOLE;
    machine.threads = threads;
    snprintf(text, sizeof text, "CPU=%u GPU=%s MEM=%u THREADS=%u", cpus, gpu, memory, threads);
    return text;
}

static const struct {
    const char *text;
    uint32_t cpu, memory, gpu;
} requests[KINDS] = {{"CPU=1", 1 * WHOLE, 0, 0},
                     {"CPU=3", 3 * WHOLE, 0, 0},
                     {"CPU=0 GPU=1", 0, 0, 1 * WHOLE},
                     {"CPU=0 GPU=2", 0, 0, 2 * WHOLE},
                     {"CPU=0 GPU=3", 0, 0, 3 * WHOLE},
                     {"CPU=0 GPU=5", 0, 0, 5 * WHOLE},
                     {"CPU=1 GPU=0.5", 1 * WHOLE, 0, WHOLE / 2},
                     {"CPU=0.25 MEM=2.5", WHOLE / 4, 25000, 0},
                     {"CPU=2 MEM=1 GPU=1", 2 * WHOLE, 1 * WHOLE, 1 * WHOLE}};

/* Whether n slots may be taken from the group: it is large enough, and none in it is. */
static bool may_have(const struct group *group, uint32_t n)
{
    return group->count >= n && group->widest < n;
}

static bool is_within(const struct group *group, uint32_t slot)
{
    return slot - group->first < group->count; /* the difference is unsigned */
}

/* A task that requests less than one CPU holds a thread. */
static uint32_t threads_of(const struct ran *task) { return task->cpu < WHOLE; }

struct free {
    int64_t cpu, memory, threads, slots[SLOTS];
};

/* What is free at a moment, after all that happens at it. */
static struct free free_at(uint64_t ns, uint32_t tasks)
{
    struct free free = {
        .cpu = machine.cpu, .memory = machine.memory, .threads = machine.threads};
    for (uint32_t i = 0; i < machine.slot_count; i++)
        free.slots[i] = WHOLE;
    for (uint32_t i = 0; i < tasks; i++) {
        if (ran[i].began_ns > ns || ran[i].ended_ns <= ns)
            continue;
        free.cpu -= ran[i].cpu;
        free.memory -= ran[i].memory;
        free.threads -= threads_of(&ran[i]);
        for (uint32_t j = 0; j < ran[i].slot_count; j++)
            free.slots[ran[i].slots[j]] -= ran[i].gpu < WHOLE ? ran[i].gpu : WHOLE;
    }
    return free;
}

/* @param kept  slots that the task may not have; NULL: none */
static bool has_slots(const struct free *free, const struct ran *task, const struct group *kept)
{
    uint32_t n = task->gpu / WHOLE;
    bool has = task->gpu == 0;
    for (uint32_t i = 0; i < machine.slot_count && n <= 1; i++)
        has |= free->slots[i] >= (int64_t)task->gpu && (kept == NULL || !is_within(kept, i));
    for (uint32_t g = 0; g < machine.group_count && n > 1; g++) {
        uint32_t whole = 0;
        for (uint32_t i = 0; i < machine.slot_count; i++)
            whole += is_within(&machine.groups[g], i) && free->slots[i] == WHOLE &&
                     (kept == NULL || !is_within(kept, i));
        has |= may_have(&machine.groups[g], n) && whole >= n;
    }
    return has;
}

static bool can_begin(const struct free *free, const struct ran *task)
{
    return has_slots(free, task, NULL) && free->cpu >= (int64_t)task->cpu &&
           free->memory >= (int64_t)task->memory && free->threads >= threads_of(task);
}

static void check_slots(const struct ran *task)
{
    uint32_t n = task->gpu == 0 ? 0 : task->gpu < WHOLE ? 1 : task->gpu / WHOLE;
    bool is_in_group = n <= 1;
    assert_int_equal(task->slot_count, n);
    for (uint32_t i = 1; i < n; i++)
        assert_true(task->slots[i - 1] < task->slots[i]);
    for (uint32_t g = 0; g < machine.group_count && n > 1; g++)
        is_in_group |= may_have(&machine.groups[g], n) &&
                       is_within(&machine.groups[g], task->slots[0]) &&
                       is_within(&machine.groups[g], task->slots[n - 1]);
    assert_true(is_in_group);
}

static void run_random(uint32_t skips)
{
    static tn_task tasks[MOST_TASKS];
    uint64_t ends[MOST_TASKS], inputs[MOST_TASKS * 2], count = 0;
    tn_kind *kinds[KINDS];
    tn_sched *sched =
        open_sched((tn_sched_options){.resources = choose_machine(), .skips = skips});
    tn_graph *graph = open_graph(sched);
    for (int i = 0; i < KINDS; i++)
        kinds[i] = add_kind(sched, requests[i].text, NULL);
    for (uint64_t i = 0; i < MOST_TASKS; i++) {
        uint64_t k = tnt_random_below(KINDS);
        tasks[i] =
            (tn_task){.kind = kinds[k],
                      .run_ns = (tnt_random_below(4) == 0 ? 1 : 1 + tnt_random_below(30)) * MS,
                      .priority = (int32_t)tnt_random_below(2)};
        ran[i] = (struct ran){
            .cpu = requests[k].cpu, .memory = requests[k].memory, .gpu = requests[k].gpu};
        for (uint64_t j = tnt_random_below(3); i > 0 && j > 0; j--)
            inputs[count++] = TN_TASK_OF_LIST(i - 1 - tnt_random_below(i < 30 ? i : 30));
        ends[i] = count;
    }
    TN_CHECK_OK(tn_graph_add(graph,
                             TN_OPTIONS(tn_task_list, .tasks = tasks, .count = MOST_TASKS,
                                        .input_ends = ends, .inputs = inputs),
                             NULL));
    (void)run(sched, graph);
    for (uint64_t i = 0; i < MOST_TASKS; i++)
        for (uint64_t j = i > 0 ? ends[i - 1] : 0; j < ends[i]; j++) {
            uint64_t ended_ns = ran[inputs[j] & ~TN_TASK_OF_LIST(0)].ended_ns;
            ran[i].ready_ns = TNI_MAX(ran[i].ready_ns, ended_ns);
        }
    tn_sched_close(sched);
}

TN_TEST(nothing_is_used_beyond_what_there_is)
{
    for (int round = 0; round < 40; round++) {
        run_random(0);
        for (uint32_t i = 0; i < MOST_TASKS; i++) {
            struct free free = free_at(ran[i].began_ns, MOST_TASKS);
            assert_true(ran[i].has_run && ran[i].began_ns >= ran[i].ready_ns);
            assert_true(free.cpu >= 0 && free.memory >= 0 && free.threads >= 0);
            for (uint32_t slot = 0; slot < machine.slot_count; slot++)
                assert_true(free.slots[slot] >= 0);
            check_slots(&ran[i]);
        }
    }
}

/* ---- no task waits for what is free ------------------------------------------------------ */

static bool is_waiting(const struct ran *task, uint64_t ns)
{
    return task->ready_ns <= ns && task->began_ns > ns;
}

/* Whether both need some of the same sum, and the task would leave too little for the other. */
static bool takes_of(int64_t free, uint32_t amount, uint32_t kept)
{
    return amount > 0 && kept > 0 && free - amount < (int64_t)kept;
}

/* Whether the task may be kept from what is free because it is reserved for the other one. */
static bool is_kept_for(const struct free *free, const struct ran *task,
                        const struct ran *other)
{
    uint32_t n = other->gpu / WHOLE;
    if (takes_of(free->cpu, task->cpu, other->cpu) ||
        takes_of(free->memory, task->memory, other->memory) ||
        takes_of(free->threads, threads_of(task), threads_of(other)))
        return true;
    for (uint32_t i = 0; i < machine.slot_count && other->gpu > 0 && n <= 1; i++)
        if (!has_slots(free, task, &(struct group){.first = i, .count = 1}))
            return true;
    for (uint32_t g = 0; g < machine.group_count && n > 1; g++)
        if (may_have(&machine.groups[g], n) && !has_slots(free, task, &machine.groups[g]))
            return true;
    return false;
}

static bool share_resource(const struct ran *a, const struct ran *b)
{
    return (a->cpu > 0 && b->cpu > 0) || (a->memory > 0 && b->memory > 0) ||
           (a->gpu > 0 && b->gpu > 0) || (threads_of(a) && threads_of(b));
}

/* Whether so many tasks have begun while the task was ready that it may have a reservation. */
static bool was_overtaken(const struct ran *task, uint64_t ns, uint32_t skips)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < MOST_TASKS; i++)
        count += ran[i].began_ns >= task->ready_ns && ran[i].began_ns <= ns &&
                 share_resource(&ran[i], task);
    return count >= skips;
}

/* Whether a reservation explains that a task waits at a moment for what is free then. */
static bool is_explained(const struct free *free, const struct ran *task, uint64_t ns,
                         uint32_t skips)
{
    for (uint32_t i = 0; i < MOST_TASKS; i++)
        if (is_waiting(&ran[i], ns) && !can_begin(free, &ran[i]) &&
            is_kept_for(free, task, &ran[i]) && was_overtaken(&ran[i], ns, skips))
            return true;
    return false;
}

/* @return how many tasks waited for what was free, each at each moment when others ended */
static uint32_t check_moments(uint32_t skips)
{
    uint32_t explained = 0;
    for (uint32_t i = 0; i <= MOST_TASKS; i++) {
        uint64_t ns = i < MOST_TASKS ? ran[i].ended_ns : 0;
        struct free free = free_at(ns, MOST_TASKS);
        for (uint32_t j = 0; j < MOST_TASKS; j++) {
            if (!is_waiting(&ran[j], ns) || !can_begin(&free, &ran[j]))
                continue;
            assert_true(is_explained(&free, &ran[j], ns, skips));
            explained++;
        }
    }
    return explained;
}

/* With so many skips nothing is ever reserved, and so nothing explains that a task waits. */
TN_TEST(without_reservations_no_task_waits_for_what_is_free)
{
    for (int round = 0; round < 40; round++) {
        run_random(UINT32_MAX);
        assert_int_equal(check_moments(UINT32_MAX), 0);
    }
}

TN_TEST(a_task_waits_for_what_is_free_only_if_it_is_reserved)
{
    uint32_t explained = 0;
    for (uint32_t round = 0; round < 300; round++) {
        uint32_t skips = 1 + (uint32_t)tnt_random_below(8);
        run_random(skips);
        explained += check_moments(skips);
    }
    tnt_note("%u times a task waited for what was free and reserved", explained);
    assert_true(explained > 0);
}

/* The kinds of tasks of a run. A wide one needs all of something. */
struct mix {
    const char *narrow[4], *wide[4];
    uint32_t narrow_count, wide_count;
    uint32_t fed;       /* of 8 tasks of the first narrow kind, so many feed a slot */
    uint32_t many_wide; /* of 40 tasks, so many are wide */
    uint32_t before;    /* so many lanes may have a reservation before that of a wide task */
    uint64_t wide_ms;   /* how long a wide task takes; 0: as long as the others */
};

enum { LONGEST_MS = 20, WIDE = 4, FOLLOWER = 2 * WIDE, MIX_KINDS };

/* The kind of each task: a narrow one, WIDE plus a wide one, or FOLLOWER. */
static uint8_t mixed[MOST_TASKS];

static const char *request_of(const struct mix *mix, uint32_t kind)
{
    return kind == FOLLOWER ? "CPU=0 GPU=1"
           : kind >= WIDE   ? mix->wide[kind - WIDE]
                            : mix->narrow[kind];
}

/* The last wide kind, if it is not the only one, is rare. */
static uint8_t choose_kind(const struct mix *mix, uint32_t task)
{
    if (task > 0 && mixed[task - 1] == 0 && tnt_random_below(8) < mix->fed)
        return FOLLOWER; /* of the task before it */
    if (task <= 8 || tnt_random_below(40) >= mix->many_wide)
        return (uint8_t)tnt_random_below(mix->narrow_count);
    bool is_last = mix->wide_count == 1 || tnt_random_below(8) == 0;
    return (uint8_t)(WIDE +
                     (is_last ? mix->wide_count - 1 : tnt_random_below(mix->wide_count - 1)));
}

static void run_mix(const struct mix *mix, uint32_t skips)
{
    static tn_task tasks[MOST_TASKS];
    uint64_t ends[MOST_TASKS], inputs[MOST_TASKS], count = 0;
    tn_kind *kinds[MIX_KINDS] = {NULL};
    tn_sched *sched = open_sched((tn_sched_options){
        .resources = "CPU=4 GPU=((0,1),(2,3)) MEM=4", .order = TN_ORDER_DEPTH, .skips = skips});
    tn_graph *graph = open_graph(sched);
    for (uint32_t i = 0; i < MIX_KINDS; i++)
        if (request_of(mix, i) != NULL)
            kinds[i] = add_kind(sched, request_of(mix, i), NULL);
    for (uint32_t i = 0; i < MOST_TASKS; i++) {
        mixed[i] = choose_kind(mix, i);
        bool is_wide = mixed[i] >= WIDE && mixed[i] != FOLLOWER && mix->wide_ms != 0;
        tasks[i] = (tn_task){
            .kind = kinds[mixed[i]],
            .run_ns = (is_wide ? mix->wide_ms : 1 + tnt_random_below(LONGEST_MS)) * MS};
        if (mixed[i] == FOLLOWER)
            inputs[count++] = TN_TASK_OF_LIST(i - 1);
        ends[i] = count;
    }
    TN_CHECK_OK(tn_graph_add(graph,
                             TN_OPTIONS(tn_task_list, .tasks = tasks, .count = MOST_TASKS,
                                        .input_ends = ends, .inputs = inputs),
                             NULL));
    (void)run(sched, graph);
    tn_sched_close(sched);
}

static bool names_resource(const char *request, const char *name)
{
    const char *at = strstr(request, name);
    return at != NULL && at[strlen(name)] != '0';
}

static bool kinds_share(const struct mix *mix, uint32_t one, uint32_t other)
{
    static const char *const names[] = {"CPU=", "GPU=", "MEM="};
    for (uint32_t i = 0; i < TNI_COUNT(names); i++)
        if (names_resource(request_of(mix, one), names[i]) &&
            names_resource(request_of(mix, other), names[i]))
            return true;
    return false;
}

/*
 * Once `skips` later tasks have begun before a wide one, all that the wide one lacks is held
 * until it begins: that takes no longer than the longest task that runs. A reservation that
 * another lane has before takes as long, and so does its task.
 */
static void check_bound(const struct mix *mix, uint32_t skips)
{
    uint64_t previous_ns[WIDE] = {0}, bound_ns = (2 * mix->before + 1) * LONGEST_MS * MS;
    run_mix(mix, skips);
    for (uint32_t i = 0; i < MOST_TASKS; i++) {
        uint32_t overtaking = 0;
        if (mixed[i] < WIDE || mixed[i] == FOLLOWER)
            continue;
        uint64_t *previous = &previous_ns[mixed[i] - WIDE];
        uint64_t before_ns = ran[i].began_ns - TNI_MIN(ran[i].began_ns, bound_ns);
        for (uint32_t j = i + 1; j < MOST_TASKS; j++)
            overtaking += mixed[j] != mixed[i] && kinds_share(mix, mixed[i], mixed[j]) &&
                          ran[j].began_ns >= *previous && ran[j].began_ns < before_ns;
        if (overtaking > skips)
            tnt_note("%u tasks before task %u (%s), with skips %u", overtaking, i,
                     request_of(mix, mixed[i]), skips);
        assert_true(overtaking <= skips);
        *previous = ran[i].began_ns;
    }
}

TN_TEST(no_wide_task_is_overtaken_without_end)
{
    static const struct mix mixes[] = {{{"CPU=1"}, {"CPU=4"}, 1, 1, 0, 1, 0, 0},
                                       {{"CPU=0 GPU=1"}, {"CPU=0 GPU=4"}, 1, 1, 0, 1, 0, 0}};
    for (uint32_t round = 0; round < 40; round++)
        check_bound(&mixes[round % 2], 1 + round / 4);
}

TN_TEST(feeders_overtake_no_wide_task_without_end)
{
    static const struct mix mixes[] = {{{"CPU=1"}, {"CPU=4"}, 1, 1, 4, 1, 0, 0},
                                       {{"CPU=1"}, {"CPU=4 GPU=4"}, 1, 1, 4, 1, 1, 0}};
    for (uint32_t round = 0; round < 80; round++)
        check_bound(&mixes[round % 2], 1 + round / 8);
}

/* Of the last two, the wide tasks of one resource have a reservation most of the time. */
TN_TEST(no_task_of_several_resources_is_overtaken_without_end)
{
    static const struct mix mixes[] = {
        {{"CPU=1", "CPU=0 GPU=1"}, {"CPU=4 GPU=4"}, 2, 1, 0, 1, 0, 0},
        {{"CPU=1", "CPU=0 GPU=1", "CPU=0 MEM=1"}, {"CPU=4 GPU=4 MEM=4"}, 3, 1, 2, 1, 1, 0},
        {{"CPU=1", "CPU=0 GPU=1"}, {"CPU=4", "CPU=0 GPU=4", "CPU=4 GPU=4"}, 2, 3, 0, 8, 2, 1},
        {{"CPU=1", "CPU=0 GPU=1", "CPU=0 MEM=1"},
         {"CPU=4", "CPU=0 GPU=4", "CPU=4 GPU=4 MEM=4"},
         3,
         3,
         2,
         8,
         2,
         1}};
    for (uint32_t round = 0; round < 1200; round++)
        check_bound(&mixes[round % 4], 1 + round / 4 % 8);
}

/* ---- which task -------------------------------------------------------------------------- */

/*
 * By depth, task 11 is the last for the CPU. Task 12 waits for it, and is all that the GPU has
 * to do, unless it has `others` too.
 */
static uint64_t begin_of_feeder(uint32_t others)
{
    tn_sched *sched =
        open_sched((tn_sched_options){.resources = "CPU=1 GPU=(0)", .order = TN_ORDER_DEPTH});
    tn_graph *graph = open_graph(sched);
    tn_kind *cpu = add_kind(sched, NULL, NULL), *gpu = add_kind(sched, "CPU=0 GPU=1", NULL);
    tn_task tasks[13 + 8];
    uint64_t ends[13 + 8], inputs[] = {TN_TASK_OF_LIST(11)};
    for (uint32_t i = 0; i < 13 + others; i++) {
        tasks[i] = (tn_task){.kind = i < 12 ? cpu : gpu, .run_ns = (i < 12 ? 10 : 1000) * MS};
        ends[i] = i >= 12;
    }
    TN_CHECK_OK(tn_graph_add(graph,
                             TN_OPTIONS(tn_task_list, .tasks = tasks, .count = 13 + others,
                                        .input_ends = ends, .inputs = inputs),
                             NULL));
    (void)run(sched, graph);
    tn_sched_close(sched);
    return ran[11].began_ns;
}

TN_TEST(what_a_scarce_resource_waits_for_comes_first)
{
    assert_int_equal(begin_of_feeder(0), 0);
    assert_int_equal(begin_of_feeder(8), 11 * 10 * MS); /* the GPU has enough to do */
}

/*
 * Tasks 0 and 1, the earliest, feed nothing; the others feed a resource that is always hungry.
 * How many of the others begin before task `which`?
 */
static uint32_t count_feeders_before(uint32_t which, uint32_t skips)
{
    enum { FEEDERS = 150, TASKS = 2 + 2 * FEEDERS };
    static tn_task tasks[TASKS];
    static uint64_t ends[TASKS], inputs[FEEDERS];
    memset(ran, 0, sizeof ran);
    tn_sched *sched = open_sched((tn_sched_options){
        .resources = "CPU=4 GPU=(0,1,2,3)", .order = TN_ORDER_DEPTH, .skips = skips});
    tn_graph *graph = open_graph(sched);
    tn_kind *cpu = add_kind(sched, NULL, NULL), *wide = add_kind(sched, "CPU=4", NULL);
    tn_kind *gpu = add_kind(sched, "CPU=0 GPU=1", NULL);
    for (uint32_t i = 0; i < TASKS; i++) {
        bool is_gpu = i > 1 && i % 2 != 0;
        tasks[i] = (tn_task){.kind = i == 0   ? wide
                                     : is_gpu ? gpu
                                              : cpu,
                             .run_ns = (is_gpu ? 1 : 10) * MS};
        if (is_gpu)
            inputs[i / 2 - 1] = TN_TASK_OF_LIST(i - 1);
        ends[i] = i > 1 ? (i - 1) / 2 : 0;
    }
    TN_CHECK_OK(tn_graph_add(graph,
                             TN_OPTIONS(tn_task_list, .tasks = tasks, .count = TASKS,
                                        .input_ends = ends, .inputs = inputs),
                             NULL));
    (void)run(sched, graph);
    tn_sched_close(sched);
    uint32_t before = 0;
    for (uint32_t i = 2; i < TASKS; i += 2)
        before += ran[i].began_ns < ran[which].began_ns;
    return before;
}

TN_TEST(what_feeds_a_scarce_resource_overtakes_only_so_often)
{
    for (uint32_t skips = 1; skips <= 16; skips *= 4) {
        /* The four that run when the last skip is counted begin beside it. */
        uint32_t plain = count_feeders_before(1, skips), wide = count_feeders_before(0, skips);
        tnt_note("skips %u: %u before the plain task, %u before the wide one", skips, plain,
                 wide);
        assert_true(plain <= skips + 4);
        assert_true(wide >= plain && wide <= 2 * skips + 8);
    }
}

/* ---- how many results lie in memory ------------------------------------------------------ */

enum { MOST_INPUTS = 1200 };

/* A list of tasks, in which the first `loads` make results that count. */
static struct {
    tn_task tasks[MOST_TASKS];
    uint64_t ends[MOST_TASKS], inputs[MOST_INPUTS];
    uint32_t count, input_count, loads;
} list;

static uint32_t new_task(void)
{
    assert_true(list.count < MOST_TASKS);
    list.tasks[list.count] = (tn_task){.run_ns = MS};
    list.ends[list.count] = list.input_count;
    return list.count++;
}

/* Let the task that was made last read another one. */
static void read_result(uint32_t task)
{
    assert_true(list.input_count < MOST_INPUTS);
    list.inputs[list.input_count++] = TN_TASK_OF_LIST(task);
    list.ends[list.count - 1] = list.input_count;
}

static uint64_t last_use(uint32_t load)
{
    uint64_t last_ns = ran[load].ended_ns;
    for (uint32_t i = 0, at = 0; i < list.count; i++)
        for (; at < list.ends[i]; at++)
            if (list.inputs[at] == TN_TASK_OF_LIST(load))
                last_ns = TNI_MAX(last_ns, ran[i].ended_ns);
    return last_ns;
}

/* Run the list on one CPU. @return the most loads that were there and needed at a time */
static uint32_t run_list(void)
{
    uint32_t most = 0;
    tn_sched *sched =
        open_sched((tn_sched_options){.resources = "CPU=1", .order = TN_ORDER_DEPTH});
    tn_graph *graph = open_graph(sched);
    for (uint32_t i = 0; i < list.count; i++)
        list.tasks[i].kind = i == 0 ? add_kind(sched, NULL, NULL) : list.tasks[0].kind;
    TN_CHECK_OK(tn_graph_add(graph,
                             TN_OPTIONS(tn_task_list, .tasks = list.tasks, .count = list.count,
                                        .input_ends = list.ends, .inputs = list.inputs),
                             NULL));
    (void)run(sched, graph);
    for (uint32_t i = 0; i < list.count; i++) {
        uint32_t there = 0;
        for (uint32_t j = 0; j < list.loads; j++)
            there += ran[j].ended_ns <= ran[i].ended_ns && last_use(j) >= ran[i].ended_ns;
        most = TNI_MAX(most, there);
    }
    tn_sched_close(sched);
    return most;
}

/* Each step reads the next load, and what the step before has made. */
TN_TEST(the_input_that_needs_most_results_comes_first)
{
    enum { STEPS = 50 };
    memset(&list, 0, sizeof list);
    while (list.loads < STEPS)
        list.loads += new_task() < STEPS;
    for (uint32_t i = 0; i < STEPS; i++) {
        uint32_t step = new_task();
        read_result(i);
        if (i > 0)
            read_result(step - 1);
    }
    assert_true(run_list() <= 2);
}

/* The mean of each column is taken from each of its loads; then the rows are added up. */
TN_TEST(a_task_that_frees_its_input_comes_at_once)
{
    enum { SIDE = 10 };
    memset(&list, 0, sizeof list);
    while (list.loads < SIDE * SIDE)
        list.loads += new_task() < SIDE * SIDE;
    for (uint32_t column = 0; column < SIDE; column++) {
        (void)new_task();
        for (uint32_t row = 0; row < SIDE; row++)
            read_result(row * SIDE + column);
    }
    for (uint32_t i = 0; i < SIDE * SIDE; i++) {
        (void)new_task();
        read_result(i);
        read_result(SIDE * SIDE + i % SIDE);
    }
    for (uint32_t row = 0; row < SIDE; row++) {
        (void)new_task();
        for (uint32_t column = 0; column < SIDE; column++)
            read_result(SIDE * SIDE + SIDE + row * SIDE + column);
    }
    assert_true(run_list() <= SIDE + 1);
}

/* ---- which slot -------------------------------------------------------------------------- */

/*
 * The slot of the input is busy for 30 ms when a task of 20 ms with affinity becomes ready.
 * @return whether the task waited for it
 */
static bool waits_for_slot(double skew)
{
    tn_sched *sched =
        open_sched((tn_sched_options){.resources = "CPU=1 GPU=((0,1),(2,3))", .skew = skew});
    tn_graph *graph = open_graph(sched);
    tn_kind *near = add_kind(sched, "CPU=0 GPU=1", "GPU");
    uint64_t made = add_task(graph, (tn_task){.kind = near, .run_ns = MS}, NULL, 0);
    (void)add_task(graph, (tn_task){.kind = near, .run_ns = 30 * MS}, &made, 1);
    (void)add_task(graph, (tn_task){.kind = near, .run_ns = 20 * MS}, &made, 1);
    (void)run(sched, graph);
    tn_sched_close(sched);
    assert_int_equal(ran[1].slots[0], ran[0].slots[0]);
    bool waited = ran[2].began_ns == ran[1].ended_ns;
    assert_true(waited || ran[2].began_ns == MS);
    /* If not, it has the other slot of that card. */
    assert_int_equal(ran[2].slots[0] / 2, ran[0].slots[0] / 2);
    assert_int_equal(ran[2].slots[0] == ran[0].slots[0], waited);
    return waited;
}

TN_TEST(the_skew_decides_how_long_a_task_waits_for_its_slot)
{
    assert_false(waits_for_slot(0)); /* which is 1 */
    assert_false(waits_for_slot(1.4));
    assert_true(waits_for_slot(1.6));
}

/* None waits: they fill the card of the input, then its half, then the other half. */
TN_TEST(the_nearest_slot_is_taken_if_the_best_one_is_busy)
{
    tn_sched *sched =
        open_sched((tn_sched_options){.resources = "CPU=1 GPU=(((0,1),(2,3)),((4,5),(6,7)))",
                                      .order = TN_ORDER_DEPTH,
                                      .skew = 0.001});
    tn_graph *graph = open_graph(sched);
    tn_kind *near = add_kind(sched, "CPU=0 GPU=1", "GPU");
    uint64_t made = add_task(graph, (tn_task){.kind = near, .run_ns = MS}, NULL, 0);
    for (int i = 0; i < 8; i++)
        (void)add_task(graph, (tn_task){.kind = near, .run_ns = 100 * MS}, &made, 1);
    (void)run(sched, graph);
    tn_sched_close(sched);
    assert_int_equal(ran[1].slots[0], ran[0].slots[0]);
    assert_int_equal(ran[2].slots[0] / 2, ran[0].slots[0] / 2);
    for (uint32_t i = 1; i <= 8; i++)
        assert_int_equal(ran[i].slots[0] / 4 == ran[0].slots[0] / 4, i <= 4);
}

/* ---- which variant ----------------------------------------------------------------------- */

TN_TEST(a_task_waits_for_the_better_variant_if_that_ends_sooner)
{
    static const uint64_t ends_ns[] = {30 * MS, 60 * MS};
    for (uint64_t i = 0; i < 2; i++) { /* with more tasks the other variant is worth it */
        tn_kind *kind;
        tn_sched *sched = open_sched((tn_sched_options){.resources = "CPU=2 GPU=(0)"});
        const tn_variant variants[] = {{.request = "CPU=0 GPU=1", .run_ns = 10 * MS},
                                       {.request = "CPU=1", .run_ns = 50 * MS}};
        TN_CHECK_OK(tn_kind_create(
            sched, TN_OPTIONS(tn_kind_options, .variants = variants, .variant_count = 2),
            &kind));
        tn_graph *graph = open_graph(sched);
        tn_task tasks[8];
        for (int t = 0; t < 8; t++)
            tasks[t] = (tn_task){.kind = kind};
        TN_CHECK_OK(tn_graph_add(
            graph, TN_OPTIONS(tn_task_list, .tasks = tasks, .count = i == 0 ? 3 : 8), NULL));
        assert_int_equal(run(sched, graph), ends_ns[i]);
        tn_sched_close(sched);
    }
}

TN_TEST(a_variant_for_which_there_is_too_little_is_left_out)
{
    static const char *const machines[] = {"CPU=2", "CPU=2 GPU=(0)"};
    const tn_variant variants[] = {{.request = "CPU=0 GPU=2", .run_ns = 10 * MS},
                                   {.request = "CPU=1", .run_ns = 50 * MS}};
    for (int i = 0; i < 2; i++) {
        tn_kind *kind;
        tn_sched *sched = open_sched((tn_sched_options){.resources = machines[i]});
        TN_CHECK_OK(tn_kind_create(sched,
                                   TN_OPTIONS(tn_kind_options, .variants = variants,
                                              .variant_count = 2, .affinity = "GPU"),
                                   &kind));
        tn_graph *graph = open_graph(sched);
        const tn_task task = {.kind = kind};
        TN_CHECK_OK(
            tn_graph_add(graph, TN_OPTIONS(tn_task_list, .tasks = &task, .count = 1), NULL));
        assert_int_equal(run(sched, graph), 50 * MS);
        tn_sched_close(sched);
    }
}

TN_TEST(a_kind_of_which_no_variant_can_run_is_refused)
{
    static const struct {
        const char *requests[2], *details[2];
    } wrong[] = {{{"GPU=1", "CPU=3"},
                  {"a task requests GPU=1, and the scheduler has only CPU=2",
                   "a task requests CPU=3, and the scheduler has CPU=2"}},
                 {{"CPU=1", "CPU=x"}, {"x", "x"}}};
    tn_sched *sched = open_sched((tn_sched_options){.resources = "CPU=2"});
    for (size_t i = 0; i < TNI_COUNT(wrong); i++) {
        const tn_variant variants[] = {{.request = wrong[i].requests[0]},
                                       {.request = wrong[i].requests[1]}};
        tn_kind *kind;
        assert_int_equal(tn_kind_create(sched,
                                        TN_OPTIONS(tn_kind_options, .variants = variants,
                                                   .variant_count = 2),
                                        &kind),
                         TN_ERR_INVALID);
        assert_non_null(strstr(tn_error_detail(), wrong[i].details[0]));
        assert_non_null(strstr(tn_error_detail(), wrong[i].details[1]));
    }
    tn_sched_close(sched);
}
