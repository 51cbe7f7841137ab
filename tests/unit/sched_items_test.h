/* SPDX-License-Identifier: Apache-2.0 */
/* Data of tasks, for tests. A card is memory of this process that the test counts. */
#ifndef TENON_TESTS_SCHED_ITEMS_TEST_H
#define TENON_TESTS_SCHED_ITEMS_TEST_H

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "os/os.h"
#include "sched_threads_test.h"

enum { CARDS = 3, HOST, DISK, MEMORIES, BYTES = 1000, MOST_DATA = 64 };

/* Data of the program: a number, at the place of each copy. */
struct item {
    tn_data *data;
    int64_t *at[MEMORIES];
    _Atomic uint32_t copies, drops, rooms; /* calls; rooms: without a source */
    _Atomic int fails;                     /* the next copy returns this */
    _Atomic int64_t seen;
};

static struct item items[MOST_DATA];
static _Atomic int64_t held[MEMORIES]; /* bytes */
static int64_t most[MEMORIES];
static _Atomic int64_t most_on_disk; /* that was held there at any time */
static uint64_t item_bytes, used_at_failure;
static tn_sched *sched;
static tn_graph *graph;

static inline uint32_t place_of(const tn_memory *memory)
{
    if (memory->resource == NULL)
        return HOST;
    return strcmp(memory->resource, TN_MEMORY_DISK) == 0 ? DISK : memory->slot / 2;
}

static inline tn_memory_info info_of(const char *resource, uint32_t slot)
{
    tn_memory_info info = {.struct_size = sizeof info};
    const tn_memory memory = {.resource = resource, .slot = slot};
    TN_CHECK_OK(tn_memory_get_info(sched, &memory, &info));
    return info;
}

static inline int copy(void *context, const tn_memory *from, const tn_memory *to)
{
    struct item *item = context;
    uint32_t at = place_of(to);
    int status = atomic_exchange(&item->fails, 0);
    tn_memory_info card = {.struct_size = sizeof card};
    if (status < 0 && tn_memory_get_info(sched, &(tn_memory){.resource = "GPU"}, &card) == 0)
        used_at_failure = card.used;
    if (status != 0)
        return status > 0 ? status : tni_fail(status, "the card is gone");
    if (item->at[at] == NULL) {
        int64_t now = atomic_fetch_add(&held[at], BYTES) + BYTES;
        TN_CHECK(now <= most[at]);
        if (at == DISK && now > most_on_disk)
            most_on_disk = now;
        item->at[at] = malloc(sizeof(int64_t));
        TN_CHECK(item->at[at] != NULL);
    }
    if (from == NULL) {
        item->rooms++;
        return 0;
    }
    item->copies++;
    TN_CHECK(item->at[place_of(from)] != NULL);
    *item->at[at] = *item->at[place_of(from)];
    return 0;
}

static inline void drop(void *context, const tn_memory *memory)
{
    struct item *item = context;
    uint32_t at = place_of(memory);
    TN_CHECK(item->at[at] != NULL);
    *item->at[at] = -2;
    free(item->at[at]);
    item->at[at] = NULL;
    held[at] -= BYTES;
    item->drops++;
}

static inline void open_with(const char *resources, const char *memories, uint32_t flags)
{
    memset(items, 0, sizeof items);
    memset(held, 0, sizeof held);
    item_bytes = BYTES;
    most_on_disk = 0;
    for (uint32_t i = 0; i < MEMORIES; i++)
        most[i] = i < CARDS ? INT64_C(3) * BYTES : INT64_MAX;
    TN_CHECK_OK(tn_sched_create(
        TN_OPTIONS(tn_sched_options, .resources = resources, .memories = memories,
                   .links = "HOST=1000000000 PEER=2000000000 DISK=500000000", .flags = flags),
        &sched));
    graph = open_graph(sched);
}

static inline void open_cards(void)
{
    open_with("CPU=4 GPU=((0,1),(2,3),(4,5))", "GPU=3000", 0);
}

static inline int create(struct item *item, uint32_t flags, tn_data **ret_data)
{
    return tn_data_create(sched,
                          TN_OPTIONS(tn_data_options, .name = "item", .bytes = item_bytes,
                                     .flags = flags, .copy = copy, .drop = drop,
                                     .context = item),
                          ret_data);
}

static inline struct item *make(uint32_t at, int64_t number)
{
    struct item *item = &items[at];
    item->at[HOST] = malloc(sizeof(int64_t));
    *item->at[HOST] = number;
    TN_CHECK_OK(create(item, TN_DATA_ON_HOST, &item->data));
    return item;
}

static inline struct item *make_empty(uint32_t at)
{
    TN_CHECK_OK(create(&items[at], 0, &items[at].data));
    return &items[at];
}

static inline void close_all(void)
{
    sched = tn_sched_close(sched);
    for (uint32_t m = 0; m < MEMORIES; m++)
        assert_int_equal(held[m], 0);
    for (uint32_t i = 0; i < MOST_DATA; i++)
        free(items[i].at[HOST]);
}

/* What a task does with its data. */
struct deed {
    struct item *items[4];
    uint32_t modes[4], count;
    int status;
    uint32_t failures; /* runs that return TN_TASK_OOM */
    uint32_t retries;  /* runs that return TN_TASK_RETRY */
    _Atomic uint32_t runs;
    tn_memory memory;
    int64_t add;
    struct tnt_signal *gate;
    bool is_done; /* the last run wrote all that it writes */
    int statuses[4];
    uint32_t order; /* of its last run, among all */
};

static _Atomic uint32_t run_count;

static inline int act(const tn_task_call *call)
{
    struct deed *deed = call->context;
    uint32_t run = deed->runs++;
    TN_CHECK(call->memory != NULL);
    deed->memory = *call->memory;
    deed->order = run_count++;
    if (deed->gate != NULL)
        tnt_await(deed->gate);
    if (run < deed->failures)
        return TN_TASK_OOM;
    if (run < deed->retries)
        return TN_TASK_RETRY;
    for (uint32_t i = 0; i < deed->count; i++) {
        struct item *item = deed->items[i];
        int64_t *at = item->at[place_of(call->memory)];
        TN_CHECK(at != NULL);
        if ((deed->modes[i] & TN_READ) != 0)
            item->seen = *at;
        if ((deed->modes[i] & TN_WRITE) != 0)
            *at = ((deed->modes[i] & TN_READ) != 0 ? *at : 0) + deed->add;
    }
    deed->is_done = true;
    return deed->status;
}

static inline int add_deed(tn_kind *kind, struct deed *deed, const uint64_t *input,
                           uint64_t *ret)
{
    const tn_task task = {.kind = kind, .context = deed};
    tn_access accesses[4] = {{0}};
    uint64_t ends = input != NULL, access_ends = deed->count;
    for (uint32_t i = 0; i < deed->count; i++)
        accesses[i] = (tn_access){.data = deed->items[i]->data, .mode = deed->modes[i]};
    return tn_graph_add(graph,
                        TN_OPTIONS(tn_task_list, .tasks = &task, .count = 1,
                                   .input_ends = &ends, .inputs = input,
                                   .access_ends = &access_ends, .accesses = accesses),
                        ret);
}

static inline uint64_t add(tn_kind *kind, struct deed *deed, const uint64_t *input)
{
    uint64_t task = 0;
    TN_CHECK_OK(add_deed(kind, deed, input, &task));
    return task;
}

static inline struct deed reads(struct item *item)
{
    return (struct deed){.items = {item}, .modes = {TN_READ}, .count = 1};
}
static inline struct deed writes(struct item *item, int64_t number)
{
    return (struct deed){.items = {item}, .modes = {TN_WRITE}, .count = 1, .add = number};
}
static inline struct deed updates(struct item *item, int64_t add)
{
    return (struct deed){
        .items = {item}, .modes = {TN_READ | TN_WRITE}, .count = 1, .add = add};
}

static inline int wait_for_all(void) { return tn_graph_wait(graph, tnt_deadline(30000)); }

/* Wait until all tasks have ended, and given back what they had. */
static inline void await_all(void)
{
    tn_sched_info info = {.struct_size = sizeof info};
    TN_CHECK_OK(wait_for_all());
    do
        TN_CHECK_OK(tn_sched_get_info(sched, &info));
    while (info.running > 0);
}

static inline void expect_detail(const char *part)
{
    if (strstr(tn_error_detail(), part) == NULL)
        fail_msg("'%s' does not say '%s'", tn_error_detail(), part);
}

#endif
