/* SPDX-License-Identifier: Apache-2.0 */
/* Data of tasks whose copies the scheduler makes itself, on devices. */
#include "gpu/gpu.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ITEM = 64 << 10, COUNT = ITEM / 8, MOST_DATA = 16 };

static tn_domain *domain;
static tn_sched *sched;
static tn_graph *graph;
static tn_tensor *homes[MOST_DATA]; /* of the program, on the host */
static tn_data *data[MOST_DATA];

static const struct fake_options two_devices = {.device_count = 2, .memory_bytes = 64 << 20};

static void begin(const struct fake_options *fake, const tn_domain_options *options)
{
    gpu_begin(fake);
    domain = tnt_domain(options);
}

/* Two cards of two slots, each with as much as its device has, or as `memories` says. */
static void open_sched(const char *memories)
{
    bool has_disk = memories != NULL && strstr(memories, "HOST=") != NULL;
    TN_CHECK_OK(
        tn_sched_create(TN_OPTIONS(tn_sched_options, .resources = "CPU=4 GPU=((0,1),(2,3))",
                                   .memories = memories, .spill = has_disk ? "/tmp" : NULL,
                                   .devices = gpu_text("GPU=(cuda:0,cuda:1)"), .domain = domain,
                                   .name = "cards"),
                        &sched));
    TN_CHECK_OK(tn_graph_create(sched, &graph));
}

static void begin_cards(const char *memories)
{
    gpu_need_fake(); /* it has two devices */
    begin(&two_devices, NULL);
    open_sched(memories);
}

static void end(void)
{
    sched = tn_sched_close(sched);
    for (int i = 0; i < MOST_DATA; i++)
        homes[i] = tn_tensor_unref(homes[i]);
    TNT_AUDIT(domain);
    gpu_await_used(domain, 0);
    tn_domain_close(domain);
    gpu_end();
}

static tn_kind *kind_of(tn_task_fn *run, const char *request, const char *other)
{
    tn_kind *kind;
    const tn_variant variants[] = {{.run = run, .request = request},
                                   {.run = run, .request = other}};
    TN_CHECK_OK(tn_kind_create(sched,
                               TN_OPTIONS(tn_kind_options, .variants = variants,
                                          .variant_count = other != NULL ? 2 : 1),
                               &kind));
    return kind;
}

/* A tensor of the host, each number of which is `number`. */
static tn_tensor *make_home(int64_t count, int64_t number)
{
    tn_tensor *home;
    TN_CHECK_OK(tn_tensor_create(domain, TN_INT64, 1, (int64_t[]){count}, NULL, &home));
    for (int64_t i = 0; i < count; i++)
        ((int64_t *)tn_tensor_data(home))[i] = number;
    return home;
}

static int create(tn_tensor *tensor, uint32_t flags, tn_data **ret_data)
{
    return tn_data_create(
        sched, TN_OPTIONS(tn_data_options, .name = "item", .flags = flags, .tensor = tensor),
        ret_data);
}

static tn_data *make(int at, int64_t count, int64_t number)
{
    homes[at] = make_home(count, number);
    TN_CHECK_OK(create(homes[at], 0, &data[at]));
    return data[at];
}

static void expect_numbers(const tn_tensor *tensor, int64_t number)
{
    const int64_t *at = tn_tensor_data(tensor);
    TN_CHECK(tn_tensor_device(tensor).type == TN_DEVICE_CPU);
    for (int64_t i = 0; i < tn_tensor_count(tensor); i++)
        TN_CHECK(at[i] == number);
}

/* What a task does. */
struct deed {
    tn_data *data[3];
    uint32_t modes[3], count;
    int64_t add;
    bool breaks; /* the device, and returns as a task that does not look for errors */
    _Atomic uint32_t runs;
    tn_device device;
    int64_t seen;
};

/* All numbers of a tensor are the same: get them, add to them, and write them back. */
static int update(tn_tensor *tensor, uint32_t mode, int64_t add, int64_t *ret_seen)
{
    tn_tensor *here;
    TN_CHECK_OK(tn_tensor_create_private(TN_INT64, 1, tn_tensor_shape(tensor), &here));
    int64_t *at = tn_tensor_data(here), seen = 0;
    int status = (mode & TN_READ) != 0 ? tn_tensor_copy(here, tensor) : 0;
    if (status == 0) {
        seen = at[0];
        expect_numbers(here, seen);
    }
    for (int64_t i = 0; i < tn_tensor_count(here); i++)
        at[i] = seen + add;
    if (status == 0 && (mode & TN_WRITE) != 0)
        status = tn_tensor_copy(tensor, here);
    tn_tensor_unref(here);
    *ret_seen = seen;
    return status;
}

static int act(const tn_task_call *call)
{
    struct deed *deed = call->context;
    deed->runs++;
    for (uint32_t i = 0; i < deed->count; i++) {
        tn_tensor *tensor = tn_data_tensor(deed->data[i]);
        TN_CHECK(tensor != NULL);
        deed->device = tn_tensor_device(tensor);
        bool is_on_card = call->memory->resource != NULL;
        TN_CHECK(deed->device.type == (is_on_card ? gpu_type : TN_DEVICE_CPU));
        TN_CHECK(!is_on_card || deed->device.id == (int32_t)call->memory->slot / 2);
        if (deed->breaks) {
            gpu_break(tensor);
            return TN_TASK_DONE;
        }
        int status = update(tensor, deed->modes[i], deed->add, &deed->seen);
        if (status != 0)
            return status;
    }
    return TN_TASK_DONE;
}

static int add_deed(tn_kind *kind, struct deed *deed, const uint64_t *input, uint64_t *ret)
{
    const tn_task task = {.kind = kind, .context = deed};
    tn_access accesses[3] = {{0}};
    uint64_t ends = input != NULL, access_ends = deed->count;
    for (uint32_t i = 0; i < deed->count; i++)
        accesses[i] = (tn_access){.data = deed->data[i], .mode = deed->modes[i]};
    return tn_graph_add(graph,
                        TN_OPTIONS(tn_task_list, .tasks = &task, .count = 1,
                                   .input_ends = &ends, .inputs = input,
                                   .access_ends = &access_ends, .accesses = accesses),
                        ret);
}

static uint64_t add(tn_kind *kind, struct deed *deed, const uint64_t *input)
{
    uint64_t task = 0;
    TN_CHECK_OK(add_deed(kind, deed, input, &task));
    return task;
}

static int run_all(void) { return tn_graph_wait(graph, tnt_deadline(60000)); }

static struct deed deed_of(tn_data *its, uint32_t mode, int64_t number)
{
    return (struct deed){.data = {its}, .modes = {mode}, .count = 1, .add = number};
}

static tn_memory_info info_of(uint32_t slot)
{
    tn_memory_info info = {.struct_size = sizeof info};
    const tn_memory memory = {.resource = "GPU", .slot = slot};
    TN_CHECK_OK(tn_memory_get_info(sched, &memory, &info));
    return info;
}

static void expect_detail(const char *part)
{
    if (strstr(tn_error_detail(), part) == NULL)
        fail_msg("'%s' does not say '%s'", tn_error_detail(), part);
}

/* ---- where data is ----------------------------------------------------------------------- */

TN_TEST(a_task_finds_the_tensor_of_its_card)
{
    begin_cards(NULL);
    tn_data *its = make(0, COUNT, 5);
    tn_kind *card = kind_of(act, "CPU=0 GPU=1", NULL);
    struct deed first = deed_of(its, TN_READ | TN_WRITE, 10), next = first, last = first;
    assert_ptr_equal(tn_data_tensor(its), homes[0]); /* nothing has been written yet */
    uint64_t task = add(card, &first, NULL);
    task = add(card, &next, &task);
    TN_CHECK_OK(run_all());
    assert_int_equal(next.seen, 15);
    assert_int_equal(next.device.id, first.device.id);
    assert_null(tn_data_tensor(its));
    expect_detail("the host has no valid copy of 'item'");
    TN_CHECK_OK(tn_data_fetch(its, TN_NOW));
    assert_ptr_equal(tn_data_tensor(its), homes[0]);
    expect_numbers(homes[0], 25);
    add(kind_of(act, NULL, NULL), &last, &task);
    TN_CHECK_OK(run_all());
    assert_int_equal(last.device.type, TN_DEVICE_CPU);
    expect_numbers(homes[0], 35);
    assert_int_equal(info_of(2 * (uint32_t)first.device.id).arrived, ITEM);
    end();
}

/* A card that `memories` does not name has what is free, or the quota. */
TN_TEST(a_card_has_the_memory_of_its_device)
{
    uint64_t free_bytes;
    gpu_need_fake();
    begin(&two_devices, NULL);
    TN_CHECK_OK(tn_device_get_free(gpu_0, &free_bytes));
    open_sched(NULL);
    assert_int_equal(info_of(0).capacity, free_bytes);
    assert_int_equal(info_of(3).capacity, free_bytes);
    tn_graph_close(graph);
    tn_sched_close(sched);
    TN_CHECK_OK(tn_domain_set_device_quota(domain, 8 << 20));
    open_sched(NULL);
    assert_int_equal(info_of(1).capacity, 8 << 20);
    tn_graph_close(graph);
    tn_sched_close(sched);
    open_sched("GPU=1000000");
    assert_int_equal(info_of(1).capacity, 1000000);
    end();
}

TN_TEST(a_tensor_on_a_device_leaves_its_card_as_others_do)
{
    begin_cards("GPU=200000"); /* three items */
    tn_tensor *home = make_home(COUNT, 3), *there;
    tn_data *its, *none;
    TN_CHECK_OK(tn_tensor_to(domain, home, (tn_device){gpu_type, 1}, NULL, &there));
    TN_CHECK_OK(create(there, 0, &its));
    tn_tensor_unref(there);
    assert_int_equal(info_of(2).used, ITEM);
    assert_null(tn_data_tensor(its));
    tn_kind *wide = kind_of(act, "CPU=0 GPU=2", NULL);
    struct deed one = deed_of(its, TN_READ, 0);
    add(wide, &one, NULL);
    TN_CHECK_OK(run_all());
    assert_int_equal(one.device.id, 1); /* where it was, so nothing was copied */
    assert_int_equal(info_of(2).arrived, 0);
    struct deed three = {.count = 3, .modes = {TN_READ, TN_READ, TN_READ}};
    for (int i = 0; i < 3; i++)
        three.data[i] = make(i, COUNT, i);
    struct deed others[2] = {three, three};
    add(wide, &others[0], NULL);
    add(wide, &others[1], NULL); /* so that both cards are full of them */
    TN_CHECK_OK(run_all());
    TN_CHECK_OK(tn_data_fetch(its, TN_NOW));
    expect_numbers(tn_data_tensor(its), 3);
    /* Nothing leaves for a tensor of the program that is on the device already. */
    for (uint32_t slot = 0; slot < 4; slot += 2)
        while (info_of(slot).used < (uint64_t)2 * ITEM) {
            TN_CHECK_OK(tn_tensor_to(domain, home, (tn_device){gpu_type, (int32_t)slot / 2},
                                     NULL, &there));
            TN_CHECK_OK(create(there, 0, &none));
            tn_tensor_unref(there);
        }
    tn_tensor_unref(home);
    end();
}

TN_TEST(data_without_a_copy_has_the_form_of_a_tensor)
{
    begin_cards("GPU=200000");
    tn_tensor *like = make_home(COUNT, 0);
    tn_data *its, *temporary;
    TN_CHECK_OK(create(like, TN_DATA_LIKE, &its));
    TN_CHECK_OK(create(like, TN_DATA_LIKE | TN_DATA_TEMPORARY, &temporary));
    tn_tensor_unref(like);
    tn_kind *card = kind_of(act, "CPU=0 GPU=1", NULL), *cpu = kind_of(act, NULL, NULL);
    struct deed reads = deed_of(its, TN_READ, 0), writes = deed_of(its, TN_WRITE, 7), both;
    add(card, &reads, NULL);
    assert_int_equal(run_all(), TN_ERR_INVALID);
    expect_detail("it reads 'item', which no task has written");
    graph = tn_graph_close(graph);
    TN_CHECK_OK(tn_graph_create(sched, &graph));
    both = (struct deed){.data = {its, temporary}, .modes = {TN_READ, TN_WRITE}, .count = 2};
    uint64_t task = add(card, &writes, NULL);
    task = add(card, &both, &task);
    add(cpu, &reads, &task);
    TN_CHECK_OK(run_all());
    assert_int_equal(reads.seen, 7);
    expect_numbers(tn_data_tensor(its), 7);
    end();
}

static int keep_entry(const tn_scheduler_entry *entry, void *context)
{
    *(tn_sched_info *)context = entry->info;
    return 0;
}

/* What the scheduler says of its memories, and what the domain shows. */
static void expect_info(uint64_t moved, uint64_t evicted, uint64_t on_cards)
{
    tn_inspector *inspector;
    tn_sched_info info = {.struct_size = sizeof info}, shown = {0};
    TN_CHECK_OK(tn_sched_get_info(sched, &info));
    tn_domain_info about = {.struct_size = sizeof about};
    char id[2 * sizeof about.id + 1];
    TN_CHECK_OK(tn_domain_get_info(domain, &about));
    for (size_t i = 0; i < sizeof about.id; i++)
        snprintf(id + 2 * i, 3, "%02x", about.id[i]);
    TN_CHECK_OK(tn_inspector_open(id, &inspector));
    TN_CHECK_OK(tn_inspect_schedulers(inspector, keep_entry, &shown));
    tn_inspector_close(inspector);
    assert_int_equal(info.moved_bytes, moved);
    assert_int_equal(info.evicted_bytes, evicted);
    assert_int_equal(info.card_bytes, on_cards);
    assert_int_equal(info.card_capacity, 2 * 140000);
    assert_int_equal(shown.moved_bytes, moved);
    assert_int_equal(shown.evicted_bytes, evicted);
    assert_int_equal(shown.card_bytes, on_cards);
    assert_int_equal(shown.card_capacity, 2 * 140000);
}

TN_TEST(what_is_moved_and_what_is_on_cards_is_counted)
{
    begin_cards("GPU=140000"); /* two items */
    tn_kind *wide = kind_of(act, "CPU=0 GPU=2", NULL);
    struct deed deeds[3];
    uint64_t task = 0;
    expect_info(0, 0, 0);
    for (int i = 0; i < 2; i++)
        make(i, COUNT, 1);
    for (int i = 0; i < 3; i++) {
        deeds[i] = deed_of(data[i % 2], TN_READ | TN_WRITE, 1);
        task = add(wide, &deeds[i], i > 0 ? &task : NULL);
    }
    TN_CHECK_OK(run_all());
    expect_info(2 * ITEM, 0, 2 * ITEM);
    for (int i = 0; i < 2; i++)
        TN_CHECK_OK(tn_data_fetch(data[i], TN_NOW));
    expect_info(4 * ITEM, 0, 2 * ITEM);
    for (int i = 2; i < 6; i++) { /* on each card there is room for two */
        make(i, COUNT, 1);
        struct deed reads = deed_of(data[i], TN_READ, 0);
        add(wide, &reads, NULL);
        TN_CHECK_OK(run_all());
    }
    uint64_t evicted = info_of(0).evicted + info_of(2).evicted;
    assert_true(evicted > 0);
    expect_info(8 * ITEM, evicted, 6 * ITEM - evicted);
    end();
}

/* ---- little memory ----------------------------------------------------------------------- */

/* Make data that the program does not keep on the host, and let tasks write i to each. */
static void make_written(int count, tn_kind *kind, struct deed *deeds)
{
    tn_tensor *like = make_home(COUNT, 0);
    for (int i = 0; i < count; i++) {
        TN_CHECK_OK(create(like, TN_DATA_LIKE, &data[i]));
        deeds[i] = deed_of(data[i], TN_WRITE, i);
        add(kind, &deeds[i], NULL);
    }
    tn_tensor_unref(like);
    TN_CHECK_OK(run_all());
}

/* Each card has room for three items, and each item is written by many tasks anywhere. */
static void run_at_random(const char *memories)
{
    enum { DATA = 10, TASKS = 600 };
    static struct deed deeds[TASKS];
    static const char *const requests[] = {"CPU=0 GPU=1", "CPU=0 GPU=2", "CPU=1",
                                           "CPU=0 GPU=0.5", "CPU=1 GPU=1"};
    tn_kind *kinds[5];
    int64_t sum[DATA];
    uint64_t evictions = 0;
    begin_cards(memories);
    for (int i = 0; i < 5; i++)
        kinds[i] = kind_of(act, requests[i], NULL);
    make_written(DATA, kinds[0], deeds);
    for (int i = 0; i < DATA; i++)
        sum[i] = i;
    for (int i = 0; i < TASKS; i++) {
        struct deed *deed = &deeds[i];
        *deed = (struct deed){.count = 1 + (uint32_t)tnt_random_below(3), .add = i};
        uint32_t at = (uint32_t)tnt_random_below(DATA);
        for (uint32_t j = 0; j < deed->count; j++, at = (at + 3) % DATA) {
            deed->data[j] = data[at];
            deed->modes[j] = tnt_random_below(2) == 0 ? TN_READ | TN_WRITE : TN_READ;
            sum[at] += (deed->modes[j] & TN_WRITE) != 0 ? i : 0;
        }
        add(kinds[tnt_random_below(5)], deed, NULL);
    }
    TN_CHECK_OK(run_all());
    for (int i = 0; i < DATA; i++) {
        TN_CHECK_OK(tn_data_fetch(data[i], TN_NOW));
        expect_numbers(tn_data_tensor(data[i]), sum[i]);
    }
    for (uint32_t slot = 0; slot < 4; slot += 2) {
        assert_true(info_of(slot).used <= 200000);
        evictions += info_of(slot).evictions;
    }
    assert_true(evictions > 0);
    end();
}

TN_TEST_WITHIN(tasks_at_random_on_two_devices_lose_no_write, 200)
{
    run_at_random("GPU=200000");
}

TN_TEST_WITHIN(tasks_at_random_lose_no_write_if_devices_evict_to_a_file, 200)
{
    run_at_random("GPU=200000 HOST=200000");
}

/* The cards are said to have more memory than their devices have. */
TN_TEST_WITHIN(tasks_run_alone_where_a_device_has_no_memory, 200)
{
    enum { DATA = 8, TASKS = 40, LARGE = (2 << 20) / 8, ROOM = 6 << 20 };
    static struct deed deeds[TASKS];
    int64_t sum[DATA];
    gpu_need_fake();
    begin(&(struct fake_options){.device_count = 2, .memory_bytes = ROOM},
          &(tn_domain_options){.struct_size = sizeof(tn_domain_options),
                               .device_slab_bytes = 2 << 20});
    open_sched("GPU=64000000");
    tn_kind *card = kind_of(act, "CPU=0 GPU=1", NULL);
    for (int i = 0; i < DATA; i++) {
        make(i, LARGE, i);
        sum[i] = i;
    }
    for (int i = 0; i < TASKS; i++) {
        int at = i % DATA, other = (i + 1 + (int)tnt_random_below(DATA - 1)) % DATA;
        deeds[i] = (struct deed){.data = {data[at], data[other]},
                                 .modes = {TN_READ | TN_WRITE, TN_READ},
                                 .count = 2,
                                 .add = i};
        sum[at] += i;
        add(card, &deeds[i], NULL);
    }
    TN_CHECK_OK(run_all());
    for (int i = 0; i < DATA; i++) {
        TN_CHECK_OK(tn_data_fetch(data[i], TN_NOW));
        expect_numbers(homes[i], sum[i]);
    }
    end();
}

/* The number behind a text in the sentence of the last error, after the name of a device. */
static uint64_t number_behind(const char *text)
{
    const char *at = strstr(tn_error_detail(), "bytes of cuda:");
    at = at != NULL ? strstr(at, text) : NULL;
    TN_CHECK(at != NULL);
    return strtoull(at + strlen(text), NULL, 10);
}

TN_TEST(a_task_that_never_fits_its_device_says_so_or_runs_elsewhere)
{
    enum { LARGE = (8 << 20) / 8, OTHERS = (1 << 20) / 8 };
    gpu_need_fake();
    begin(&(struct fake_options){.device_count = 2, .memory_bytes = 4 << 20}, NULL);
    open_sched("GPU=64000000");
    tn_tensor *home = make_home(OTHERS, 0), *others[2]; /* not of the scheduler */
    for (int32_t i = 0; i < 2; i++)
        TN_CHECK_OK(tn_tensor_to(domain, home, (tn_device){gpu_type, i}, NULL, &others[i]));
    tn_data *its = make(0, LARGE, 1);
    tn_kind *either = kind_of(act, "CPU=0 GPU=1", "CPU=1");
    struct deed one = deed_of(its, TN_READ | TN_WRITE, 5), two = one;
    add(either, &one, NULL);
    TN_CHECK_OK(run_all());
    assert_int_equal(one.runs, 1);
    assert_int_equal(one.device.type, TN_DEVICE_CPU);
    add(kind_of(act, "CPU=0 GPU=1", NULL), &two, NULL);
    assert_int_equal(run_all(), TN_ERR_NO_MEMORY);
    expect_detail("its memory ran out, also when it ran alone");
    expect_detail(" has 0 of 64000000 bytes in use; of the 4194304 bytes of cuda:");
    uint64_t not_free = 4194304 - number_behind(", ");
    assert_true(not_free >= sizeof(int64_t) * OTHERS);
    assert_int_equal(number_behind(" are free, and "), not_free);
    assert_int_equal(two.runs, 0);
    TN_CHECK_OK(tn_data_fetch(its, TN_NOW));
    expect_numbers(homes[0], 6);
    tn_tensor_unref(others[0]);
    tn_tensor_unref(others[1]);
    tn_tensor_unref(home);
    end();
}

/* The host's memory that the scheduler made is registered once it is copied again. */
TN_TEST(what_often_leaves_a_card_is_registered_on_the_host)
{
    begin_cards("GPU=200000");
    tn_tensor *like = make_home(COUNT, 0);
    tn_data *its;
    TN_CHECK_OK(create(like, TN_DATA_LIKE, &its));
    tn_tensor_unref(like);
    tn_kind *card = kind_of(act, "CPU=0 GPU=1", NULL), *cpu = kind_of(act, NULL, NULL);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(gpu_fake.calls("cuMemHostRegister"), i < 2 ? 0 : 1);
        struct deed on_card = deed_of(its, i == 0 ? TN_WRITE : TN_READ | TN_WRITE, 1);
        struct deed on_host = deed_of(its, TN_READ, 0);
        uint64_t task = add(card, &on_card, NULL);
        add(cpu, &on_host, &task);
        TN_CHECK_OK(run_all());
        assert_int_equal(on_host.seen, i + 1);
    }
    assert_int_equal(gpu_fake.calls("cuMemHostUnregister"), 0);
    its = tn_data_close(its);
    assert_int_equal(gpu_fake.calls("cuMemHostUnregister"), 1);
    end();
}

/* What fails: the n-th call of the driver. */
struct failure {
    unsigned n;
    CUresult result;
    int error; /* with which tasks may end */
};

enum { NO_SUCH_CALL = 7 };

static int fail_one_call(void *failure)
{
    enum { DATA = 6, TASKS = 12 };
    const struct failure *its = failure;
    struct deed deeds[TASKS];
    uint64_t tasks[TASKS];
    open_sched("GPU=140000"); /* two items */
    tn_kind *card = kind_of(act, "CPU=0 GPU=1", NULL);
    uint64_t before = gpu_fake.calls(NULL);
    gpu_fake.fail_nth(NULL, its->n, its->result);
    for (int i = 0; i < DATA; i++)
        make(i, COUNT, 0);
    for (int i = 0; i < TASKS; i++) {
        deeds[i] = deed_of(data[i % DATA], TN_READ | TN_WRITE, 1);
        tasks[i] = add(card, &deeds[i], NULL);
    }
    int status = run_all();
    TN_CHECK(status == 0 || status == its->error);
    if (gpu_fake.calls(NULL) - before < its->n)
        _exit(NO_SUCH_CALL);
    for (int i = 0; i < DATA; i++) {
        int done = 0;
        for (int j = i; j < TASKS; j += DATA)
            done += tn_task_get_status(graph, tasks[j], NULL) == 0;
        /* A task that fails while it writes may leave no copy. */
        int fetched = tn_data_fetch(data[i], TN_NOW);
        TN_CHECK(fetched == 0 || (fetched == TN_ERR_INVALID && done < TASKS / DATA));
        if (fetched == 0)
            expect_numbers(homes[i], done);
        homes[i] = tn_tensor_unref(homes[i]);
    }
    tn_sched_close(sched);
    TNT_AUDIT(domain);
    tn_domain_close(domain);
    gpu_fake.detach(); /* a call that fails to free something leaves it to the process */
    return 0;
}

static void fail_each_call(CUresult result, int error)
{
    struct fake_options fake = two_devices;
    struct failure failure = {.n = 1, .result = result, .error = error};
    unsigned every = tnt_is_full() ? 1 : 9;
    int status = 0;
    gpu_need_fake();
    fake.no_races = true;          /* one process after the other */
    fake.memory_bytes = 256 << 20; /* a slab that a failed call did not free does not fill it */
    for (failure.n += (unsigned)tnt_random_below(every); status == 0; failure.n += every) {
        begin(&fake, NULL);
        status = tnt_wait(tnt_fork(fail_one_call, &failure));
        gpu_fake.forgive();
        end();
    }
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == NO_SUCH_CALL);
    tnt_note("%u calls of the driver", failure.n);
}

TN_TEST_WITHIN(no_write_is_lost_where_the_driver_has_no_memory, 200)
{
    fail_each_call(CUDA_ERROR_OUT_OF_MEMORY, TN_ERR_NO_MEMORY);
}

TN_TEST_WITHIN(no_write_is_lost_where_a_call_of_the_driver_fails, 200)
{
    fail_each_call(CUDA_ERROR_UNKNOWN, TN_ERR_DEVICE);
}

/* ---- a device that fails ----------------------------------------------------------------- */

/* What a lost context had is free once its process has ended. */
static void run_in_child(tnt_child_fn *run)
{
    gpu_need_fake();
    begin(&two_devices, NULL);
    tnt_wait_ok(tnt_fork(run, NULL));
    end();
}

static int lose_one(void *unused)
{
    (void)unused;
    open_sched(NULL);
    tn_kind *card = kind_of(act, "CPU=0 GPU=1", NULL), *cpu = kind_of(act, NULL, NULL);
    tn_data *lost = make(0, COUNT, 1), *read = make(1, COUNT, 2), *other = make(2, COUNT, 3);
    struct deed writes = deed_of(lost, TN_READ | TN_WRITE, 9);
    writes.data[1] = read, writes.modes[1] = TN_READ, writes.count = 2;
    add(card, &writes, NULL);
    TN_CHECK_OK(run_all());
    int32_t dead = writes.device.id;
    struct deed breaks = deed_of(read, TN_READ, 0);
    breaks.breaks = true;
    add(card, &breaks, NULL); /* begins where its data is */
    TN_CHECK_OK(run_all());
    assert_int_equal(breaks.device.id, dead);

    struct deed fails = deed_of(lost, TN_READ, 0);
    uint64_t cause, task = add(cpu, &fails, NULL); /* its data is on that device only */
    assert_int_equal(run_all(), TN_ERR_DEVICE);
    expect_detail("(700)");
    assert_int_equal(tn_task_get_status(graph, task, &cause), TN_ERR_DEVICE);
    assert_int_equal(cause, task);
    assert_int_equal(fails.runs, 0);
    assert_int_equal(tn_data_fetch(lost, TN_NOW), TN_ERR_DEVICE);
    graph = tn_graph_close(graph);

    /* All that the host has goes on there, and on the other device. */
    TN_CHECK_OK(tn_graph_create(sched, &graph));
    struct deed more[8];
    for (int i = 0; i < 8; i++) {
        more[i] = deed_of(i % 2 == 0 ? read : other, TN_READ | TN_WRITE, 1);
        add(i < 6 ? card : cpu, &more[i], NULL);
    }
    TN_CHECK_OK(run_all());
    for (int i = 0; i < 6; i++)
        assert_int_equal(more[i].device.id, 1 - dead);
    TN_CHECK_OK(tn_data_fetch(read, TN_NOW));
    TN_CHECK_OK(tn_data_fetch(other, TN_NOW));
    expect_numbers(homes[1], 6);
    expect_numbers(homes[2], 7);
    sched = tn_sched_close(sched);
    _exit(0);
}

TN_TEST(a_device_that_fails_fails_its_tasks_and_no_others) { run_in_child(lose_one); }

static tn_kind *repeatable_kind(const char *request)
{
    tn_kind *kind;
    const tn_variant variant = {.run = act, .request = request};
    TN_CHECK_OK(
        tn_kind_create(sched,
                       TN_OPTIONS(tn_kind_options, .name = "maker", .variants = &variant,
                                  .variant_count = 1, .flags = TN_KIND_REPEATABLE),
                       &kind));
    return kind;
}

/* Break the device that has the data. @return its number */
static int32_t break_device_of(tn_data *its, tn_kind *card)
{
    struct deed breaks = deed_of(its, TN_READ, 0);
    breaks.breaks = true;
    add(card, &breaks, NULL); /* begins where its data is */
    TN_CHECK_OK(run_all());
    return breaks.device.id;
}

/* A task that reads one piece of data, and writes `number` to another. */
static struct deed maker_of(tn_data *input, tn_data *output, int64_t number)
{
    struct deed deed = deed_of(input, TN_READ, number);
    deed.data[1] = output, deed.modes[1] = TN_WRITE, deed.count = 2;
    return deed;
}

static int make_again(void *unused)
{
    (void)unused;
    open_sched(NULL);
    tn_kind *maker = repeatable_kind("CPU=0 GPU=1");
    tn_kind *card = kind_of(act, "CPU=0 GPU=1", NULL), *cpu = kind_of(act, NULL, NULL);
    tn_data *input = make(0, COUNT, 2), *lost = make(1, COUNT, 1), *next = make(2, COUNT, 1);
    struct deed first = maker_of(input, lost, 9), second = maker_of(lost, next, 20);
    uint64_t before = add(maker, &first, NULL);
    add(maker, &second, &before);
    TN_CHECK_OK(run_all());
    int32_t dead = break_device_of(next, card);
    assert_int_equal(first.device.id, dead); /* so that both were lost */
    struct deed reads[] = {deed_of(next, TN_READ, 0), deed_of(next, TN_READ, 0),
                           deed_of(lost, TN_READ, 0)};
    for (int i = 0; i < 3; i++)
        add(cpu, &reads[i], NULL);
    TN_CHECK_OK(run_all());
    assert_int_equal(first.runs, 2);
    assert_int_equal(second.runs, 2);
    assert_int_equal(first.device.id, 1 - dead);
    assert_int_equal(second.device.id, 1 - dead);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(reads[i].runs, 1);
        assert_int_equal(reads[i].seen, i < 2 ? 20 : 9);
    }
    struct deed more = deed_of(next, TN_READ | TN_WRITE, 1);
    add(card, &more, NULL);
    TN_CHECK_OK(run_all());
    assert_int_equal(more.device.id, 1 - dead);
    TN_CHECK_OK(tn_data_fetch(next, TN_NOW));
    expect_numbers(homes[2], 21);
    sched = tn_sched_close(sched);
    _exit(0);
}

TN_TEST(what_was_lost_with_a_device_is_made_again) { run_in_child(make_again); }

/* @param spoil  makes a second run impossible */
static void expect_not_remade(void (*spoil)(tn_kind *kind, tn_data **all))
{
    open_sched(NULL);
    tn_kind *maker = repeatable_kind("CPU=0 GPU=1");
    tn_kind *card = kind_of(act, "CPU=0 GPU=1", NULL), *cpu = kind_of(act, NULL, NULL);
    tn_data *all[] = {make(0, COUNT, 2), make(1, COUNT, 1)};
    struct deed first = maker_of(all[0], all[1], 9), reads = deed_of(all[1], TN_READ, 0);
    add(maker, &first, NULL);
    TN_CHECK_OK(run_all());
    tn_data *lost = all[1];
    spoil(cpu, all);
    TN_CHECK_OK(run_all());
    break_device_of(lost, card);
    uint64_t cause, task = add(cpu, &reads, NULL);
    assert_int_equal(run_all(), TN_ERR_DEVICE);
    expect_detail("(700)");
    assert_int_equal(tn_task_get_status(graph, task, &cause), TN_ERR_DEVICE);
    assert_int_equal(cause, task);
    assert_int_equal(first.runs, 1);
    assert_int_equal(reads.runs, 0);
    sched = tn_sched_close(sched);
    _exit(0);
}

static void write_input(tn_kind *kind, tn_data **all)
{
    static struct deed deed;
    deed = deed_of(all[0], TN_READ | TN_WRITE, 1);
    add(kind, &deed, NULL);
}

static void close_input(tn_kind *kind, tn_data **all)
{
    (void)kind;
    all[0] = tn_data_close(all[0]);
}

static void close_graph_of_maker(tn_kind *kind, tn_data **all)
{
    (void)kind, (void)all;
    graph = tn_graph_close(graph);
    TN_CHECK_OK(tn_graph_create(sched, &graph));
}

static int write_input_then_lose(void *unused)
{
    (void)unused;
    expect_not_remade(write_input);
    return 0;
}

static int close_input_then_lose(void *unused)
{
    (void)unused;
    expect_not_remade(close_input);
    return 0;
}

static int close_graph_then_lose(void *unused)
{
    (void)unused;
    expect_not_remade(close_graph_of_maker);
    return 0;
}

TN_TEST(data_whose_input_was_written_since_is_not_made_again)
{
    run_in_child(write_input_then_lose);
}

TN_TEST(data_whose_input_was_closed_is_not_made_again) { run_in_child(close_input_then_lose); }

TN_TEST(data_of_a_closed_graph_is_not_made_again) { run_in_child(close_graph_then_lose); }

static int lose_all(void *unused)
{
    (void)unused;
    open_sched(NULL);
    tn_kind *card = kind_of(act, "CPU=0 GPU=1", NULL), *cpu = kind_of(act, NULL, NULL);
    struct deed deeds[8];
    for (int i = 0; i < 4; i++)
        make(i, COUNT, 1);
    for (int i = 0; i < 2; i++) {
        tn_tensor *there;
        TN_CHECK_OK(tn_tensor_to(domain, homes[i], (tn_device){gpu_type, i}, NULL, &there));
        gpu_break(there);
    }
    for (int i = 0; i < 8; i++) {
        deeds[i] = deed_of(data[i % 4], TN_READ | TN_WRITE, 1);
        add(i % 2 == 0 ? card : cpu, &deeds[i], NULL);
    }
    assert_int_equal(run_all(), TN_ERR_DEVICE);
    expect_detail("(700)");
    for (int i = 0; i < 8; i++)
        assert_int_equal(deeds[i].runs, i % 2);
    for (int i = 0; i < 4; i++) {
        TN_CHECK_OK(tn_data_fetch(data[i], TN_NOW));
        expect_numbers(homes[i], 1 + 2 * (i % 2));
    }
    sched = tn_sched_close(sched);
    _exit(0);
}

TN_TEST(all_devices_may_fail_and_the_host_goes_on) { run_in_child(lose_all); }

/* ---- what is refused --------------------------------------------------------------------- */

TN_TEST(wrong_devices_are_named)
{
    static const struct {
        const char *devices, *detail;
        int status;
    } wrong[] = {
        {"NPU=cuda:0", "devices names NPU, which has no slots", TN_ERR_INVALID},
        {"CPU=cuda:0", "devices names CPU, which has no slots", TN_ERR_INVALID},
        {"GPU=cuda:0", "devices names 1 devices for GPU, which has 2 cards", TN_ERR_INVALID},
        {"GPU=(cuda:0,cuda:0)", "devices names cuda:0 twice", TN_ERR_INVALID},
        {"GPU=(cuda:0,cuda:7)", "there is no device cuda:7", TN_ERR_NOT_FOUND},
        {"GPU=(cuda:0,cpu)", "devices names cpu", TN_ERR_INVALID},
        {"GPU=(cuda:0,x)", "'x' names no device", TN_ERR_INVALID},
        {"GPU=(cuda:0,cuda:1) MIX=cuda:0", "slot 9 lies beside groups", TN_ERR_INVALID},
        {"GPU", "does not begin with NAME=VALUE", TN_ERR_INVALID}};
    gpu_need_fake();
    begin(&two_devices, NULL);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        tn_sched *none = NULL;
        assert_int_equal(
            tn_sched_create(TN_OPTIONS(tn_sched_options, .resources = "GPU=(0,1) MIX=((7,8),9)",
                                       .devices = gpu_text(wrong[i].devices), .domain = domain),
                            &none),
            wrong[i].status);
        expect_detail(gpu_text(wrong[i].detail));
        assert_null(none);
    }
    tn_sched *none = NULL;
    assert_int_equal(tn_sched_create(TN_OPTIONS(tn_sched_options, .resources = "GPU=(0)",
                                                .devices = gpu_text("GPU=cuda:0"),
                                                .flags = TN_SCHED_VIRTUAL),
                                     &none),
                     TN_ERR_INVALID);
    end();
}

static void expect_refused(tn_tensor *tensor, uint32_t flags, int status, const char *detail)
{
    tn_data *none = NULL;
    assert_int_equal(create(tensor, flags, &none), status);
    expect_detail(detail);
    assert_null(none);
}

TN_TEST(tensors_that_cannot_be_data_are_refused)
{
    begin_cards("GPU=100000"); /* one item */
    tn_tensor *home = make_home(COUNT, 1), *view, *there, *empty;
    tn_data *none = NULL, *its;
    TN_CHECK_OK(tn_tensor_slice(home, 0, 0, COUNT, 2, &view));
    expect_refused(view, 0, TN_ERR_UNSUPPORTED, "not contiguous");
    TN_CHECK_OK(tn_tensor_create_private(TN_INT64, 1, (int64_t[]){0}, &empty));
    expect_refused(empty, 0, TN_ERR_INVALID, "has no elements");
    expect_refused(home, TN_DATA_LIKE | TN_DATA_ON_HOST, TN_ERR_INVALID, "only an example");
    expect_refused(NULL, TN_DATA_LIKE, TN_ERR_INVALID, "TN_DATA_LIKE is set without a tensor");
    assert_int_equal(
        tn_data_create(sched, TN_OPTIONS(tn_data_options, .tensor = home, .bytes = 5), &none),
        TN_ERR_INVALID);
    TN_CHECK_OK(tn_tensor_to(domain, home, gpu_0, NULL, &there));
    expect_refused(there, TN_DATA_ON_HOST, TN_ERR_INVALID, "the tensor is on a device");
    TN_CHECK_OK(create(there, 0, &its));
    expect_refused(there, 0, TN_ERR_NO_MEMORY,
                   "GPU 0 has 65536 of 100000 bytes in use: 'item'");
    tn_tensor_unref(there);
    tn_tensor_unref(empty);
    tn_tensor_unref(view);

    tn_sched *own;
    TN_CHECK_OK(tn_sched_create(NULL, &own));
    assert_int_equal(tn_data_create(own, TN_OPTIONS(tn_data_options, .tensor = home), &none),
                     TN_ERR_INVALID);
    expect_detail("tn_sched_options.domain is NULL");
    tn_sched_close(own);
    TN_CHECK_OK(tn_sched_create(TN_OPTIONS(tn_sched_options, .resources = "GPU=(0)",
                                           .memories = "GPU=100", .domain = domain),
                                &own));
    assert_int_equal(tn_data_create(own, TN_OPTIONS(tn_data_options, .tensor = home), &none),
                     TN_ERR_INVALID);
    expect_detail("names no device of GPU");
    tn_sched_close(own);
    tn_tensor_unref(home);
    end();
}

static int send_fixed(void *queue)
{
    const int64_t number = 4;
    const tn_tensor_options once = {.struct_size = sizeof once,
                                    .flags = TN_TENSOR_WRITE_ONCE,
                                    .source = &number,
                                    .source_bytes = sizeof number};
    tn_tensor *fixed;
    TN_CHECK_OK(tn_tensor_create(domain, TN_INT64, 1, (int64_t[]){1}, &once, &fixed));
    TN_CHECK_OK(tn_queue_push_tensor(queue, fixed, 0, TN_NOW));
    tn_tensor_unref(fixed);
    tn_domain_close(domain);
    return 0;
}

TN_TEST(no_task_writes_data_of_a_read_only_tensor)
{
    tn_queue *queue;
    tn_tensor *fixed;
    tn_data *its;
    gpu_need_fake();
    begin(&two_devices, NULL);
    TN_CHECK_OK(tn_queue_open(domain, NULL, NULL, 0, &queue));
    tnt_wait_ok(tnt_fork(send_fixed, queue));
    TN_CHECK_OK(tn_queue_pop_tensor(queue, TN_NOW, &fixed));
    open_sched(NULL);
    TN_CHECK_OK(create(fixed, 0, &its));
    tn_tensor_unref(fixed);
    tn_kind *card = kind_of(act, "CPU=0 GPU=1", NULL);
    struct deed reads = deed_of(its, TN_READ, 0), writes = deed_of(its, TN_WRITE, 0);
    assert_int_equal(add_deed(card, &writes, NULL, NULL), TN_ERR_DENIED);
    expect_detail("whose tensor is read-only");
    add(card, &reads, NULL);
    TN_CHECK_OK(run_all());
    assert_int_equal(reads.seen, 4);
    sched = tn_sched_close(sched);
    tn_object_close(queue);
    end();
}
