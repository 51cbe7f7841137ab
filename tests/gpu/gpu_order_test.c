/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of what processes have a device do, in random programs. A schedule is two or three
 * processes, each with streams of its own and with random steps: they make tensors of tenon and
 * tensors in memory of another library, write and read them by kernels, push and pop them, and
 * release them, so that the memory is used again. The fake driver compares each two accesses of
 * different processes, and complains of those that have no order.
 *
 * What a schedule does is decided by its seed, but not when: TN_TEST_SEED repeats the same
 * programs. TN_TEST_FULL=1 runs 10,000 schedules, which takes some minutes, and
 * TN_TEST_SCHEDULES=n runs n.
 *
 * An order that tenon finds by words that it reads in shared memory is told to the fake here:
 * see(), see_all(). It holds for what a stream has written until then, and no more.
 */
#include "gpu/gpu.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tensor/tensor.h"

enum {
    MOST = 3, /* processes */
    PAIRS = MOST * MOST,
    STREAMS = 3,   /* of a process */
    STEPS = 40,    /* of a process */
    HELD = 5,      /* tensors that a process has at most */
    PARTS = 5,     /* of the memory of the library of a process */
    PART = 4096,   /* bytes of each tensor */
    ALL = 2 << 20, /* bytes of the memory of a library */
    READS = 512,
    FEW = 100,
    MANY = 10000,
    TOGETHER = 20, /* schedules in one domain */
    LONG_MS = 20000,
};

/* ---- what the processes of a schedule share ---------------------------------------------- */

/* What a message of tenon does not say. */
struct note {
    uint8_t value;
    bool is_given; /* the receiver is the only one that has the tensor */
};

static tn_domain *domain;
static tn_queue *queues[PAIRS]; /* from process i to process k: i * MOST + k */
/* The counts are of all schedules. */
struct told {
    struct note notes[PAIRS][2 * STEPS];
    _Atomic int finished, drained; /* processes of this schedule */
    _Atomic uint64_t pops, reads;
    _Atomic uint64_t again; /* how often a library used memory again */
};
static struct told *told;

static struct schedule {
    uint64_t number, seed;
    int processes;
} schedule;

/* ---- a process --------------------------------------------------------------------------- */

struct held {
    tn_tensor *tensor;
    uint8_t value;
    bool is_own; /* no other process has it */
};

static struct {
    int index;
    uint64_t random;
    CUstream streams[STREAMS];
    struct held held[HELD];
    int held_count;
    struct gpu_memory *memory, *copies;
    bool is_used[PARTS], was_used[PARTS];
    uint8_t read[READS]; /* what the copies have to be */
    int read_count;
    uint32_t sent[PAIRS], received[PAIRS];
} me;

static uint64_t below(uint64_t limit)
{
    me.random ^= me.random << 13;
    me.random ^= me.random >> 7;
    me.random ^= me.random << 17;
    return (me.random >> 11) % limit;
}

static CUstream any_stream(void) { return me.streams[below(STREAMS)]; }

static CUdeviceptr address_of(const tn_tensor *tensor)
{
    return (CUdeviceptr)(uintptr_t)tn_tensor_data(tensor);
}

static void see(uint32_t timeline)
{
    gpu_fake.value_seen((void *)(uintptr_t)tni_value_at(&domain->segment, timeline));
}

/* Tenon gave memory away, so it found by the words that all users of it were done. */
static void see_all(void)
{
    uint32_t limit = tni_timeline_limit(&domain->segment);
    for (uint32_t i = 0; i < limit; i++)
        see(i);
}

/* Have a stream wait. If tenon looked at the word instead, the fake learns it here. */
static void wait_for(const tn_tensor *tensor, CUstream stream)
{
    uint64_t before = gpu_fake.calls("cuStreamWaitValue64_v2");
    uint64_t token = atomic_load(&tensor->storage->ready);
    TN_CHECK_OK(tn_tensor_wait(tensor, stream));
    if (token != 0 && gpu_fake.calls("cuStreamWaitValue64_v2") == before)
        see(tni_token_timeline(token));
}

/* ---- steps ------------------------------------------------------------------------------- */

static void write_it(struct held *h, bool is_new)
{
    CUstream stream = any_stream();
    h->value = (uint8_t)(1 + below(255));
    if (!is_new)
        wait_for(h->tensor, stream);
    assert_int_equal(gpu_fake.kernel_fill(stream, address_of(h->tensor), PART, h->value), 0);
    if (h->tensor->storage->domain == NULL)
        TN_CHECK_OK(tn_tensor_share(domain, h->tensor, NULL));
    TN_CHECK_OK(tn_tensor_record(h->tensor, stream));
}

static void read_it(const struct held *h)
{
    CUstream stream = any_stream();
    if (me.read_count == READS)
        return;
    CUdeviceptr to = me.copies->at + (CUdeviceptr)me.read_count * PART;
    wait_for(h->tensor, stream);
    assert_int_equal(gpu_fake.kernel_copy(stream, to, address_of(h->tensor), PART), 0);
    me.read[me.read_count++] = h->value;
    TN_CHECK_OK(tn_tensor_record(h->tensor, stream));
}

static void hold(tn_tensor *tensor, uint8_t value, bool is_own)
{
    me.held[me.held_count++] = (struct held){tensor, value, is_own};
}

static void drop(int which)
{
    tn_tensor_unref(me.held[which].tensor);
    me.held[which] = me.held[--me.held_count];
}

static void make_room(void)
{
    if (me.held_count == HELD)
        drop((int)below(HELD));
}

static void make_tensor(void)
{
    tn_tensor *tensor;
    const tn_tensor_options options = {.struct_size = sizeof options, .device = gpu_0};
    make_room();
    TN_CHECK_OK(tn_tensor_create(domain, TN_UINT8, 1, (int64_t[]){PART}, &options, &tensor));
    see_all();
    hold(tensor, 0, true);
    write_it(&me.held[me.held_count - 1], true);
}

static void part_is_back(struct gpu_memory *memory, size_t offset)
{
    (void)memory;
    me.is_used[offset / PART] = false;
    see_all();
}

static void make_in_library(void)
{
    int part = 0;
    while (part < PARTS && me.is_used[part])
        part++;
    if (part == PARTS) {
        TN_CHECK_OK(tn_domain_trim(domain, 0, NULL)); /* it may give parts back */
        return;
    }
    make_room();
    atomic_fetch_add(&told->again, me.was_used[part]);
    me.is_used[part] = me.was_used[part] = true;
    hold(gpu_memory_tensor(me.memory, (size_t)part * PART, PART), 0, true);
    write_it(&me.held[me.held_count - 1], true);
}

static uint64_t key_of(int pair, uint32_t message)
{
    return (schedule.number << 16) + ((uint64_t)pair << 8) + message + 1;
}

static void push_it(int which)
{
    struct held *h = &me.held[which];
    int to = (me.index + 1 + (int)below((uint64_t)schedule.processes - 1)) % schedule.processes;
    int pair = me.index * MOST + to;
    uint32_t message = me.sent[pair]++;
    bool gives = below(2) == 0, moves = gives && below(2) == 0;
    h->is_own &= gives;
    told->notes[pair][message] = (struct note){h->value, h->is_own};
    gpu_fake.message_sent(key_of(pair, message));
    TN_CHECK_OK(tn_queue_push_tensor(queues[pair], h->tensor, moves ? TN_PUSH_MOVE : 0,
                                     tnt_deadline(LONG_MS)));
    if (moves)
        *h = me.held[--me.held_count];
    else if (gives)
        drop(which);
}

/* @return whether there was a message */
static bool pop_from(int from)
{
    int pair = from * MOST + me.index;
    tn_tensor *tensor;
    make_room();
    int status = tn_queue_pop_tensor(queues[pair], TN_NOW, &tensor);
    if (status == TN_ERR_TIMED_OUT)
        return false;
    TN_CHECK_OK(status);
    uint32_t message = me.received[pair]++;
    gpu_fake.message_received(key_of(pair, message));
    struct note note = told->notes[pair][message];
    hold(tensor, note.value, note.is_given);
    read_it(&me.held[me.held_count - 1]);
    atomic_fetch_add(&told->pops, 1);
    return true;
}

static bool pop_from_all(void)
{
    bool has_any = false;
    for (int i = 0; i < schedule.processes; i++)
        if (i != me.index)
            has_any |= pop_from(i);
    return has_any;
}

static void step(void)
{
    int which = me.held_count == 0 ? 0 : (int)below((uint64_t)me.held_count);
    switch (me.held_count == 0 ? below(4) : below(14)) {
    case 0:
        make_tensor();
        break;
    case 1:
    case 2:
        make_in_library();
        break;
    case 3:
    case 4:
        (void)pop_from_all();
        break;
    case 5:
        if (me.held[which].is_own)
            write_it(&me.held[which], false);
        break;
    case 6:
    case 7:
        read_it(&me.held[which]);
        break;
    case 8:
    case 9:
        drop(which);
        break;
    case 10:
        TN_CHECK_OK(tn_domain_trim(domain, 0, NULL)); /* it may give parts back */
        break;
    default:
        push_it(which);
        break;
    }
}

/* ---- a schedule -------------------------------------------------------------------------- */

static void begin_process(int index)
{
    me.index = index;
    me.random = schedule.seed + (uint64_t)index;
    me.random = me.random * UINT64_C(0x9e3779b97f4a7c15) | 1;
    me.memory = gpu_memory_make(ALL, GPU_ALLOCATED);
    me.memory->is_kept = true;
    me.memory->on_given_back = part_is_back;
    me.copies = gpu_memory_make(ALL, GPU_ALLOCATED);
    for (int i = 0; i < STREAMS; i++)
        me.streams[i] = gpu_stream(NULL);
}

static void end_process(void)
{
    while (me.held_count > 0)
        drop(0);
    for (int i = 0; i < STREAMS; i++)
        gpu_stream_wait(me.streams[i]);
    for (int i = 0; i < me.read_count; i++) {
        uint8_t found[PART];
        assert_int_equal(gpu_fake.peek(me.copies->at + (CUdeviceptr)i * PART, found, PART), 0);
        for (int k = 0; k < PART; k++)
            if (found[k] != me.read[i])
                fail_msg("copy %d of process %d has %u, not %u", i, me.index, found[k],
                         me.read[i]);
    }
    atomic_fetch_add(&told->reads, (uint64_t)me.read_count);
    tn_domain_close(domain);
    for (int i = 0; i < PARTS; i++)
        assert_false(me.is_used[i]);
    for (int i = 0; i < STREAMS; i++)
        gpu_stream_end(me.streams[i], NULL);
    gpu_memory_free(me.memory);
    gpu_memory_free(me.copies);
}

/*
 * Nobody leaves before all messages were popped: a process that leaves copies what others have
 * not popped, and the fake cannot know that they find the copy by a word of the processor.
 */
static int run_process(void *index)
{
    begin_process(*(int *)index);
    for (int i = 0; i < STEPS; i++)
        step();
    atomic_fetch_add(&told->finished, 1);
    bool is_over, has_popped;
    do {
        is_over = atomic_load(&told->finished) == schedule.processes;
        has_popped = pop_from_all();
        TN_CHECK_OK(tn_domain_trim(domain, 0, NULL));
    } while (!is_over || has_popped);
    atomic_fetch_add(&told->drained, 1);
    while (atomic_load(&told->drained) < schedule.processes)
        TN_CHECK_OK(tn_domain_trim(domain, 0, NULL));
    end_process();
    return 0;
}

static void begin(void)
{
    const tn_domain_options options = {.struct_size = sizeof options,
                                       .device_slab_bytes = ALL,
                                       .foreign_wait_ns = LONG_MS * UINT64_C(1000000)};
    gpu_begin(&(struct fake_options){.delays = true});
    domain = tnt_domain(&options);
    for (int i = 0; i < PAIRS; i++)
        TN_CHECK_OK(tn_queue_open(domain, NULL, NULL, 0, &queues[i]));
}

static void end(void)
{
    for (int i = 0; i < PAIRS; i++)
        tn_object_close(queues[i]);
    TN_CHECK_OK(tn_domain_reap(domain, NULL));
    TNT_AUDIT(domain);
    gpu_await_used(domain, 0);
    tn_domain_close(domain);
    gpu_end();
}

static void run_schedule(void)
{
    char report[4096];
    pid_t pids[MOST];
    int failed = 0;
    atomic_store(&told->finished, 0);
    atomic_store(&told->drained, 0);
    for (int i = 0; i < schedule.processes; i++)
        pids[i] = tnt_fork(run_process, &i);
    for (int i = 0; i < schedule.processes; i++)
        failed += tnt_wait(pids[i]) != 0;
    if (gpu_fake.violations(report, sizeof report) != 0)
        fail_msg("schedule %llu with seed %#llx: %s", (unsigned long long)schedule.number,
                 (unsigned long long)schedule.seed, report);
    if (failed != 0)
        fail_msg("schedule %llu with seed %#llx failed", (unsigned long long)schedule.number,
                 (unsigned long long)schedule.seed);
}

static unsigned count_schedules(void)
{
    const char *wanted = getenv("TN_TEST_SCHEDULES");
    return wanted != NULL ? (unsigned)strtoul(wanted, NULL, 10) : tnt_is_full() ? MANY : FEW;
}

TN_TEST_WITHIN(random_schedules_have_an_order_between_all_accesses, 3600)
{
    unsigned count = count_schedules();
    gpu_need_fake();
    gpu_need_cuda("HIP waits for the stream before a tensor is handed on");
    told = mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(told, MAP_FAILED);
    for (unsigned i = 0; i < count; i++) {
        if (i % TOGETHER == 0)
            begin();
        schedule = (struct schedule){i, tnt_random(), 2 + (int)tnt_random_below(MOST - 1)};
        run_schedule();
        if (i % TOGETHER == TOGETHER - 1 || i + 1 == count)
            end();
    }
    tnt_note("%u schedules: %llu messages, %llu reads, memory of a library used again %llu "
             "times",
             count, (unsigned long long)told->pops, (unsigned long long)told->reads,
             (unsigned long long)told->again);
    assert_true(told->pops > count && told->again > count / 4);
    munmap(told, sizeof *told);
}
