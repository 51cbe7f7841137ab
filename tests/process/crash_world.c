/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The world in which an operation is killed: it is made anew for each death, reclaimed by its
 * maker, and checked. crash_runner.c and tests/sweep decide which process is killed, and
 * where.
 */
#include "harness/members.h"
#include "harness/tensor.h"
#include "process/crash.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/inspect.h"
#include "backing/backing.h"
#include "base/base.h"
#include "process/process.h"
#include "share/share.h"

enum { MOST_REAPS = 200000, MOST_COUNTS = 1000 };

/* ---- a world ----------------------------------------------------------------------------- */

/* Count what is needed often, without the other searches of tn_inspect_stat(). */
__attribute__((noinline)) uint64_t crash_live_blocks(struct crash_world *w)
{
    const struct tni_segment *s = &w->domain->segment;
    uint64_t live = 0;
    for (uint32_t c = 1; c < s->geometry.class_count; c++)
        for (uint32_t i = 0; i < tni_frontier(s, c); i++)
            live += tni_word_state(atomic_load(tni_word_at(s, tni_block_make(c, i)))) !=
                    TNI_BLOCK_FREE;
    return live;
}

static bool is_alone(struct crash_world *w)
{
    return tni_process_count(&w->domain->segment) == 1;
}

/*
 * Open an inspector as tn_inspector_open() does, but without the search of all processes,
 * which takes longer than a death.
 */
static void open_inspector(struct crash_world *w)
{
    const struct tni_segment *s = &w->domain->segment;
    w->inspector = calloc(1, sizeof *w->inspector);
    TN_CHECK(w->inspector != NULL);
    TN_CHECK_OK(
        tni_segment_attach(dup(s->control_fd), dup(s->arena_fd), true, &w->inspector->segment));
}

static void make_domain(struct crash_world *w)
{
    static unsigned number; /* with the pid: the names of worlds that one tenond manages */
    tn_domain_options options = {.struct_size = sizeof options,
                                 .quota_bytes = 64 << 20,
                                 .seats = 16,
                                 .blocks = 4096,
                                 .objects = 32,
                                 .tickets = 32,
                                 .device_slab_bytes = w->op->is_on_device ? 4 << 20 : 0,
                                 .flags = w->op->is_named ? 0 : TN_DOMAIN_NO_MANAGER};
    if (w->op->is_named)
        snprintf(w->name, sizeof w->name, "crash-%07d-%03u", (int)getpid(), ++number);
    TN_CHECK_OK(
        tn_domain_open(w->op->is_named ? w->name : NULL, &options, TN_OPEN_NEW, &w->domain));
}

void crash_make_world(struct crash_world *w, const struct crash_op *op)
{
    tn_queue_options queue = {.struct_size = sizeof queue, .capacity = 8, .policy = op->policy};
    *w = (struct crash_world){.op = op};
    if (op->is_on_device)
        crash_begin_device();
    make_domain(w);
    open_inspector(w);
    TN_CHECK_OK(tn_queue_open(w->domain, "queue", &queue, TN_OPEN_NEW, &w->queue));
    TN_CHECK_OK(tn_event_open(w->domain, NULL, TN_EVENT_AUTO_RESET, &w->event));
    uint32_t flags = op->is_owned ? TN_SEMAPHORE_OWNED | TN_SEMAPHORE_ANY_RELEASES : 0;
    TN_CHECK_OK(tn_semaphore_open(w->domain, NULL, op->is_one ? 1 : 2, flags, &w->semaphore));
    TN_CHECK_OK(tn_lock_open(w->domain, NULL, 0, &w->lock));
    TN_CHECK_OK(tn_condition_open(w->domain, NULL, 0, &w->condition));
    TN_CHECK_OK(tn_barrier_open(w->domain, NULL, 2, 0, &w->barrier));
    w->base_blocks = crash_live_blocks(w);
    if (op->prepare != NULL)
        op->prepare(w);
}

/* Print the other members, for the report of a failure. */
static void print_seats(const struct tni_segment *s)
{
    for (uint32_t seat = 0; seat < s->geometry.seats; seat++) {
        const struct tni_seat *entry = tni_seat_at(s, seat);
        uint64_t word = atomic_load(&entry->word);
        if (tni_seat_state(word) != TNI_SEAT_FREE)
            printf("seat %u: word %#llx, pid %d, flags %#x, '%.48s'; we are %d\n", seat,
                   (unsigned long long)word, atomic_load(&entry->pid),
                   atomic_load(&entry->flags), entry->command, (int)getpid());
    }
}

static void check_empty(struct crash_world *w)
{
    tn_domain_stat stat = {.struct_size = sizeof stat};
    TN_CHECK_OK(tn_inspect_stat(w->inspector, &stat));
    assert_int_equal(stat.blocks_live, 0);
    assert_int_equal(stat.objects_used, 0);
    assert_int_equal(stat.tickets_used, 0);
    if (tnt_members(&w->domain->segment, 1) != 1) {
        print_seats(&w->domain->segment);
        fail_msg("a seat is left");
    }
}

static void unmake_world(struct crash_world *w)
{
    tn_object_close(w->queue);
    tn_object_close(w->event);
    tn_object_close(w->semaphore);
    tn_object_close(w->lock);
    tn_object_close(w->condition);
    tn_object_close(w->barrier);
    TNT_AUDIT(w->domain);
    check_empty(w);
    tn_inspector_close(w->inspector);
    tn_domain_close(w->domain);
    if (w->op->is_on_device)
        crash_end_device();
}

/* ---- storages outside of the arena ------------------------------------------------------- */

struct objects {
    const uint8_t *domain;
    unsigned count;
};

static int count_if_ours(int32_t pid, int fd_number, const char *name, uint64_t inode,
                         void *context)
{
    struct objects *objects = context;
    struct tni_mapping m;
    int fd;
    (void)name;
    (void)inode;
    if (tni_os_memory_open(pid, fd_number, true, &fd) != 0)
        return 0;
    if (tni_store_map(fd, false, true, &m) == 0) {
        const tn_storage_header *header = (const tn_storage_header *)(void *)m.address;
        objects->count += memcmp(header->domain, objects->domain, sizeof header->domain) == 0;
        tni_os_unmap(m.address, m.object_bytes);
    }
    close(fd);
    return 0;
}

bool crash_skips_search;

static unsigned count_objects(struct crash_world *w)
{
    struct objects objects = {.domain = w->domain->segment.header->id};
    TN_CHECK_OK(tni_os_memory_for_each(TNI_STORAGE_PREFIX, count_if_ours, &objects));
    return objects.count;
}

static int count_file(const char *path, const char *name, void *context)
{
    struct crash_world *w = context;
    (void)name;
    w->file_count += tni_files_is_ours(&w->domain->segment, path);
    return 0;
}

unsigned crash_count_files(struct crash_world *w)
{
    w->file_count = 0;
    TN_CHECK_OK(tni_os_shm_for_each(tni_os_shm_folder(), "tenon-", count_file, w));
    return w->file_count;
}

/*
 * tenond closes a deposit a moment after its block is free, and a test beside this one that
 * counts descriptors has this world's open for a moment.
 */
__attribute__((noinline)) void crash_check_storages(struct crash_world *w, unsigned files)
{
    assert_int_equal(crash_count_files(w), files);
    if (files > 0)
        return;
    for (unsigned tries = 0; !crash_skips_search && count_objects(w) > 0; tries++) {
        TN_CHECK(tries < MOST_COUNTS);
        sched_yield();
    }
    assert_int_equal(tni_alloc_outside_bytes(&w->domain->segment), 0);
}

__attribute__((noinline)) void crash_check_intents(struct crash_world *w)
{
    const struct tni_segment *s = &w->domain->segment;
    for (uint32_t seat = 0; seat < s->geometry.seats; seat++)
        for (uint32_t t = 0; t < TNI_THREADS; t++)
            assert_int_equal(atomic_load(&tni_announce_at(s, seat, t)->commit_bytes), 0);
}

tn_tensor *crash_storage(struct crash_world *w, uint32_t strategy, uint32_t flags,
                         int64_t bytes)
{
    tn_tensor_options options = {
        .struct_size = sizeof options, .strategy = strategy, .flags = flags};
    tn_tensor *tensor;
    TN_CHECK_OK(tn_tensor_create(w->domain, TN_UINT8, 1, &bytes, &options, &tensor));
    crash_fill(tn_tensor_data(tensor), (size_t)bytes);
    return tensor;
}

/* Files that the dead process held by path are removed with the domain. */
static void check_no_storages(struct crash_world *w)
{
    if (w->op->leaves_files)
        tni_files_end_domain(&w->domain->segment);
    crash_check_storages(w, 0);
    crash_check_intents(w);
    assert_int_equal(tni_backing_part(w->domain)->kept_fds, 0);
}

static void go_on_with_storages(struct crash_world *w)
{
    tn_tensor *tensors[2] = {crash_storage(w, TN_STRATEGY_FILE_DESCRIPTOR, 0, 1000),
                             crash_storage(w, TN_STRATEGY_FILE_SYSTEM, 0, 1000)};
    tn_message m = {.tensors = tensors, .tensor_count = 2};
    TN_CHECK_OK(tn_queue_push(w->queue, &m, 0, TN_NOW));
    m = crash_pop(w);
    if (m.lease != 0)
        TN_CHECK_OK(tn_message_ack(w->queue, &m));
    assert_int_equal(m.tensor_count, 2);
    tn_message_fini(&m);
    for (int i = 0; i < 2; i++)
        tn_tensor_unref(tensors[i]);
    check_no_storages(w);
}

/* ---- reclaiming ----------------------------------------------------------------------------
 */

void crash_reap(struct crash_world *w)
{
    int status;
    for (unsigned tries = 0; (status = tn_domain_reap(w->domain, NULL)) == TN_ERR_TIMED_OUT;
         tries++) {
        TN_CHECK(tries < MOST_REAPS);
        sched_yield();
    }
    TN_CHECK_OK(status);
}

/*
 * Return when only the survivor is left: a process may be seen to end before its seat can be
 * reclaimed.
 */
void crash_reclaim(struct crash_world *w)
{
    crash_reap(w);
    if (w->op->finish != NULL)
        w->op->finish(w);
    for (unsigned tries = 0; !is_alone(w); tries++) {
        TN_CHECK(tries < MOST_REAPS);
        sched_yield();
        crash_reap(w);
    }
    if (w->op->needs_repair)
        TN_CHECK_OK(tn_domain_audit(w->domain, true, NULL, NULL, NULL));
    TNT_AUDIT(w->domain);
}

/* ---- what the survivor finds ------------------------------------------------------------- */

static void check_bytes(const uint8_t *bytes, uint64_t count)
{
    if (count > 0 && (bytes[0] != CRASH_BYTE || memcmp(bytes, bytes + 1, count - 1) != 0))
        fail_msg("%llu bytes are not what they were", (unsigned long long)count);
}

static void check_message(const tn_message *m)
{
    check_bytes(m->bytes, m->size_bytes);
    for (uint32_t i = 0; i < m->tensor_count; i++)
        check_bytes(tn_tensor_data(m->tensors[i]), tnt_info(m->tensors[i]).size_bytes);
}

static uint32_t drain(struct crash_world *w)
{
    tn_message m;
    uint32_t waiting = tn_queue_count(w->queue), count = 0;
    int status;
    for (; (status = tn_queue_pop(w->queue, TN_NOW, &m)) == 0; count++) {
        check_message(&m);
        if (m.lease != 0 || w->op->policy == TN_QUEUE_LEASE)
            TN_CHECK_OK(tn_message_ack(w->queue, &m));
        tn_message_fini(&m);
    }
    if (status != TN_ERR_TIMED_OUT && status != TN_ERR_CLOSED && status != TN_ERR_PEER_DIED)
        TN_CHECK_OK(status);
    assert_true(count <= waiting); /* 0 means that there is none */
    return count;
}

int crash_revoke(const tn_ticket_entry *ticket, void *context)
{
    TN_CHECK_OK(tni_ticket_revoke(context, ticket->id));
    return 0;
}

static void give_back(struct crash_world *w)
{
    for (uint32_t i = 0; i < w->leased_count; i++) {
        check_message(&w->leased[i]);
        TN_CHECK_OK(tn_message_ack(w->queue, &w->leased[i]));
        tn_message_fini(&w->leased[i]);
    }
    for (unsigned i = 0; i < sizeof w->tensor / sizeof w->tensor[0]; i++) {
        if (w->tensor[i] != NULL)
            check_bytes(tn_tensor_data(w->tensor[i]), tnt_info(w->tensor[i]).size_bytes);
        tn_tensor_unref(w->tensor[i]);
    }
    TN_CHECK_OK(tni_ticket_for_each(&w->domain->segment, crash_revoke, w->domain));
    w->extra = tn_object_close(w->extra);
    w->store = tn_object_close(w->store);
    w->reader = tn_object_close(w->reader);
    w->behind = tn_object_close(w->behind);
    w->channel = tn_object_close(w->channel);
}

/* The audit finds nothing, no tensor is lost, and no memory is kept without a reason. */
static void check_accounts(struct crash_world *w)
{
    if (w->op->check != NULL)
        w->op->check(w);
    uint32_t left = drain(w);
    if (w->has_died && w->op->most != 0 && (left < w->op->least || left > w->op->most))
        fail_msg("%u messages are left, of %u to %u", left, w->op->least, w->op->most);
    give_back(w);
    if (w->op->is_on_device) /* a slab without tensors stays for a while */
        TN_CHECK_OK(tn_domain_trim(w->domain, 0, NULL));
    TNT_AUDIT(w->domain);
    assert_int_equal(crash_live_blocks(w), w->base_blocks);
    if (w->op->has_storages)
        check_no_storages(w);
}

/* No slot is lost: the ring takes as many messages as it has room for. */
static void fill_ring(struct crash_world *w)
{
    tn_message m = {.bytes = "Z", .size_bytes = 1};
    for (uint32_t i = 0; i < tnt_capacity(w->queue); i++)
        TN_CHECK_OK(tn_queue_push(w->queue, &m, 0, TN_NOW));
    int status = tn_queue_push(w->queue, &m, 0, TN_NOW);
    assert_true(status == TN_ERR_TIMED_OUT || status == TN_ERR_PEER_DIED);
    assert_int_equal(drain(w), tnt_capacity(w->queue));
}

/* Use every object of the world, as a survivor may. */
static void go_on(struct crash_world *w)
{
    tn_queue *queue = w->queue;
    tn_message m = {.bytes = "ZZ", .size_bytes = 2};
    if (tn_queue_push(queue, &m, 0, TN_NOW) ==
        TN_ERR_CLOSED) /* the operation ended the queue */
        return;
    tn_tensor *tensor = crash_tensor(w, 65536);
    TN_CHECK_OK(tn_queue_push_tensor(queue, tensor, TN_PUSH_MOVE, TN_NOW));
    assert_int_equal(drain(w), 2);
    fill_ring(w);
    if (w->op->has_storages)
        go_on_with_storages(w);

    int status = TN_CHECK_OK(tn_lock_acquire(w->lock, TN_NOW));
    assert_true(status == 0 || status == TN_LOCK_RECOVERED);
    TN_CHECK_OK(tn_condition_signal(w->condition));
    TN_CHECK_OK(tn_lock_release(w->lock));
    TN_CHECK_OK(tn_event_set(w->event));
    TN_CHECK_OK(tn_event_wait(w->event, TN_NOW));
    if (w->op->is_owned) {
        assert_int_equal(tn_semaphore_count(w->semaphore), w->op->is_one ? 1 : 2);
        TN_CHECK_OK(tn_semaphore_acquire(w->semaphore, TN_NOW));
    }
    if (w->op->is_owned || tn_semaphore_count(w->semaphore) < 2)
        TN_CHECK_OK(tn_semaphore_release(w->semaphore));
    (void)!tn_barrier_wait(w->barrier,
                           TN_NOW); /* the barrier is broken already, or this breaks it */
    TN_CHECK_OK(tn_barrier_reset(w->barrier));
    assert_int_equal(tn_barrier_wait(w->barrier, TN_NOW), TN_ERR_TIMED_OUT);
}

void crash_judge(struct crash_world *w)
{
    crash_reclaim(w);
    if (w->op->is_on_device)
        crash_use_device(w);
    check_accounts(w);
    go_on(w);
    unmake_world(w);
}

/* ---- for operations ---------------------------------------------------------------------- */

__attribute__((noinline)) void crash_fill(void *data, size_t size_bytes)
{
    memset(data, CRASH_BYTE, size_bytes);
}

tn_tensor *crash_tensor(struct crash_world *w, int64_t bytes)
{
    tn_tensor *tensor;
    TN_CHECK_OK(tn_tensor_create(w->domain, TN_UINT8, 1, &bytes, NULL, &tensor));
    crash_fill(tn_tensor_data(tensor), (size_t)bytes);
    return tensor;
}

void crash_push(struct crash_world *w, uint32_t tensor_count, size_t size_bytes)
{
    static uint8_t bytes[1 << 20];
    tn_tensor *tensors[16];
    TN_CHECK(tensor_count <= 16 && size_bytes <= sizeof bytes);
    crash_fill(bytes, size_bytes);
    for (uint32_t i = 0; i < tensor_count; i++)
        tensors[i] = crash_tensor(w, 1000);
    tn_message m = {.bytes = bytes,
                    .size_bytes = size_bytes,
                    .tensors = tensors,
                    .tensor_count = tensor_count};
    TN_CHECK_OK(tn_queue_push(w->queue, &m, TN_PUSH_MOVE, TN_NOW));
}

tn_message crash_pop(struct crash_world *w)
{
    tn_message m;
    TN_CHECK_OK(tn_queue_pop(w->queue, TN_NOW, &m));
    return m;
}

void crash_fork(struct crash_world *w, void (*run)(struct crash_world *w))
{
    fflush(NULL);
    pid_t pid = fork();
    TN_CHECK(pid >= 0);
    if (pid == 0) {
        run(w);
        fflush(NULL);
        _exit(0);
    }
    int status = tnt_wait(pid);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        _exit(CRASH_KILLED_BELOW);
    TN_CHECK(status == 0);
}

void crash_member(struct crash_world *w, void (*run)(struct crash_world *w))
{
    fflush(NULL);
    pid_t pid = fork();
    TN_CHECK(pid >= 0);
    if (pid == 0) {
        run(w);
        tn_domain_close(w->domain);
        fflush(NULL);
        _exit(0);
    }
    tnt_wait_ok(pid);
}
