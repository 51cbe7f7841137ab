/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations: storages outside of the arena. Afterwards the runner checks that no object of
 * these storages is left, neither a file nor a descriptor, and that none counts against the
 * quota.
 */
#include "process/crash.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backing/backing.h"
#include "harness/tensor.h"
#include "share/share.h"

enum {
    BYTES = 10000,
    BOTH = 2,
    FD = TN_STRATEGY_FILE_DESCRIPTOR,
    FS = TN_STRATEGY_FILE_SYSTEM
};
static const uint32_t strategies[BOTH] = {FD, FS};

/* ---- making ------------------------------------------------------------------------------ */

static tn_tensor *make(struct crash_world *w, uint32_t strategy)
{
    return crash_storage(w, strategy, 0, BYTES);
}

static void make_by_descriptor(struct crash_world *w)
{
    make(w, FD);
    crash_check_intents(w);
}

static void make_by_file(struct crash_world *w)
{
    make(w, FS);
    crash_check_intents(w);
}

static void make_write_once(struct crash_world *w)
{
    tn_tensor *tensor = crash_storage(w, FD, TN_TENSOR_WRITE_ONCE, BYTES);
    assert_false(tnt_info(tensor).is_read_only);
    crash_check_intents(w);
}

static void use_arena(struct crash_world *w)
{
    tn_arena *arena;
    tn_tensor *tensors[3];
    int64_t size = 1000;
    TN_CHECK_OK(tn_arena_create(w->domain, BYTES, TN_NOW, &arena));
    for (int i = 0; i < 3; i++) {
        TN_CHECK_OK(tn_arena_allocate(arena, TN_UINT8, 1, &size, &tensors[i]));
        crash_fill(tn_tensor_data(tensors[i]), (size_t)size);
    }
    tn_arena_close(arena);
    for (int i = 0; i < 3; i++)
        tn_tensor_unref(tensors[i]);
}

static void fill_arena_and_seal(struct crash_world *w)
{
    tn_arena *arena;
    tn_tensor *tensor;
    uint8_t bytes[BYTES];
    int64_t size = BYTES;
    crash_fill(bytes, BYTES);
    TN_CHECK_OK(tn_arena_create_unsealed(w->domain, BYTES, TN_NOW, &arena));
    TN_CHECK_OK(tn_arena_write(arena, 0, bytes, BYTES / 2));
    TN_CHECK_OK(tn_arena_write(arena, BYTES / 2, bytes, BYTES / 4));
    TN_CHECK_OK(tn_arena_seal(arena));
    TN_CHECK_OK(tn_arena_allocate(arena, TN_UINT8, 1, &size, &tensor));
    tn_arena_close(arena);
    assert_int_equal(*(uint8_t *)tn_tensor_data(tensor), CRASH_BYTE);
    tn_tensor_unref(tensor);
    crash_check_intents(w);
}

static void share_by_each(struct crash_world *w)
{
    int64_t size = BYTES;
    for (int i = 0; i < BOTH; i++) {
        tn_tensor_options options = {.struct_size = sizeof options, .strategy = strategies[i]};
        tn_tensor *tensor, *view;
        TN_CHECK_OK(tn_tensor_create_private(TN_UINT8, 1, &size, &tensor));
        crash_fill(tn_tensor_data(tensor), BYTES);
        TN_CHECK_OK(tn_tensor_slice(tensor, 0, 0, BYTES, 2, &view));
        TN_CHECK_OK(tn_tensor_share(w->domain, tensor, &options));
        tn_tensor_unref(tensor);
        assert_int_equal(*(uint8_t *)tn_tensor_data(view), CRASH_BYTE);
    }
}

static void share_view(struct crash_world *w)
{
    tn_tensor *whole = make(w, FS), *view, *shared;
    tn_tensor_options options = {.struct_size = sizeof options, .strategy = FS};
    TN_CHECK_OK(tn_tensor_slice(whole, 0, 10, 1000, 3, &view));
    TN_CHECK_OK(tn_tensor_clone(w->domain, view, &options, &shared));
    tn_tensor_unref(view);
    tn_tensor_unref(whole);
    assert_int_equal(*(uint8_t *)tn_tensor_data(shared), CRASH_BYTE);
}

static void fill_quota(struct crash_world *w)
{
    tn_tensor *tensors[20];
    for (int i = 0; i < 20; i++)
        tensors[i] = crash_tensor(w, 3 << 20);
    for (int i = 0; i < 20; i++)
        tn_tensor_unref(tensors[i]);
    TN_CHECK_OK(tn_domain_set_quota(w->domain, 16 << 20));
}

/* Free blocks of the arena use up the quota, so they are trimmed. */
static void make_by_trim(struct crash_world *w) { crash_storage(w, FS, 0, 12 << 20); }

static int try_to_make(struct crash_world *w, uint32_t strategy, int64_t bytes)
{
    tn_tensor_options options = {.struct_size = sizeof options, .strategy = strategy};
    tn_tensor *tensor;
    int status = tn_tensor_create(w->domain, TN_UINT8, 1, &bytes, &options, &tensor);
    crash_check_intents(w);
    return status;
}

/* The quota refuses one storage, and the file system the other. */
static void fail_to_make(struct crash_world *w)
{
    for (int i = 0; i < BOTH; i++)
        assert_int_equal(try_to_make(w, strategies[i], 70 << 20), TN_ERR_NO_MEMORY);
    setenv("TENON_SHM_DIR", "/nonexistent", 1);
    assert_int_equal(try_to_make(w, FS, BYTES), TN_ERR_NOT_FOUND);
    assert_int_equal(crash_live_blocks(w), w->base_blocks);
}

/* ---- ending ------------------------------------------------------------------------------ */

static void release_last(struct crash_world *w)
{
    for (int i = 0; i < BOTH; i++)
        tn_tensor_unref(make(w, strategies[i]));
    tn_tensor_unref(crash_storage(w, FD, TN_TENSOR_WRITE_ONCE, BYTES));
    crash_check_storages(w, 0);
}

static void hold_each(struct crash_world *w)
{
    for (int i = 0; i < BOTH; i++)
        w->tensor[i] = make(w, strategies[i]);
    w->tensor[BOTH] = crash_tensor(w, 1000);
}

/* Drop the tensors inherited from the survivor, which still holds them. */
static void drop_each(struct crash_world *w)
{
    for (int i = 0; i <= BOTH; i++)
        w->tensor[i] = tn_tensor_unref(w->tensor[i]);
}

static void leave_with_storages(struct crash_world *w)
{
    tn_tensor *tensors[BOTH + 1];
    for (int i = 0; i < BOTH; i++)
        tensors[i] = make(w, strategies[i]);
    tensors[BOTH] = crash_storage(w, FD, TN_TENSOR_WRITE_ONCE, BYTES);
    w->domain = tn_domain_close(w->domain);
    for (int i = 0; i <= BOTH; i++) {
        assert_int_equal(*(uint8_t *)tn_tensor_data(tensors[i]), CRASH_BYTE);
        tn_tensor_unref(tensors[i]);
    }
}

/* ---- other processes --------------------------------------------------------------------- */

/* Push one storage of each strategy, which the survivor holds as well. */
static void push_each(struct crash_world *w)
{
    hold_each(w);
    tn_message m = {.tensors = w->tensor, .tensor_count = BOTH + 1};
    TN_CHECK_OK(tn_queue_push(w->queue, &m, 0, TN_NOW));
}

/* Unmap what was inherited first, so that each storage is found and mapped again. */
static void pop_each(struct crash_world *w)
{
    drop_each(w);
    tn_message m = crash_pop(w);
    assert_int_equal(m.tensor_count, BOTH + 1);
    for (uint32_t i = 0; i < m.tensor_count; i++)
        assert_int_equal(*(uint8_t *)tn_tensor_data(m.tensors[i]), CRASH_BYTE);
}

static void pop_and_release(struct crash_world *w)
{
    drop_each(w);
    tn_message m = crash_pop(w);
    if (m.lease != 0)
        TN_CHECK_OK(tn_message_ack(w->queue, &m));
    tn_message_fini(&m);
}

/* Files only: descriptors would be lost with the process that dies. */
static void push_files(struct crash_world *w)
{
    tn_tensor *tensors[2] = {make(w, FS), make(w, FS)};
    tn_message m = {.tensors = tensors, .tensor_count = 2};
    TN_CHECK_OK(tn_queue_push(w->queue, &m, TN_PUSH_MOVE, TN_NOW));
}

static int push_and_die(void *argument)
{
    struct crash_world *w = argument;
    TN_CHECK_OK(tn_queue_push_tensor(w->queue, make(w, FS), TN_PUSH_MOVE, TN_NOW));
    kill(getpid(), SIGKILL);
    return 0;
}

static void leave_a_message(struct crash_world *w) { tnt_wait(tnt_fork(push_and_die, w)); }

static void pop_one(struct crash_world *w)
{
    tn_tensor *tensor;
    TN_CHECK_OK(tn_queue_pop_tensor(w->queue, TN_NOW, &tensor));
    assert_int_equal(*(uint8_t *)tn_tensor_data(tensor), CRASH_BYTE);
}

/* If a tenond keeps the descriptor, it outlives its maker. */
static int push_descriptor_and_die(void *argument)
{
    struct crash_world *w = argument;
    TN_CHECK_OK(tn_queue_push_tensor(w->queue, make(w, FD), TN_PUSH_MOVE, TN_NOW));
    kill(getpid(), SIGKILL);
    return 0;
}

static void leave_a_deposit(struct crash_world *w)
{
    if (tni_backing_part(w->domain)->depot != NULL)
        tnt_wait(tnt_fork(push_descriptor_and_die, w));
}

static void pop_deposit(struct crash_world *w)
{
    if (tni_backing_part(w->domain)->depot != NULL)
        pop_one(w);
}

static void push_deposit(struct crash_world *w)
{
    if (tni_backing_part(w->domain)->depot != NULL)
        TN_CHECK_OK(tn_queue_push_tensor(w->queue, make(w, FD), TN_PUSH_MOVE, TN_NOW));
}

/* ---- handles ----------------------------------------------------------------------------- */

static void export(struct crash_world *w, tn_tensor *tensor, uint32_t uses,
                   uint64_t lifetime_ns)
{
    tn_handle_options options = {
        .struct_size = sizeof options, .uses = uses, .lifetime_ns = lifetime_ns};
    TN_CHECK_OK(
        tn_handle_export(tensor, &options, w->handle, sizeof w->handle, &w->handle_bytes));
}

static tn_tensor *import(struct crash_world *w)
{
    tn_tensor *tensor;
    TN_CHECK_OK(tn_handle_import(w->domain, w->handle, w->handle_bytes, &tensor));
    assert_int_equal(*(uint8_t *)tn_tensor_data(tensor), CRASH_BYTE);
    return tensor;
}

static void export_descriptor(struct crash_world *w)
{
    hold_each(w);
    export(w, w->tensor[0], 3, TN_NO_EXPIRY);
}

static void import_twice(struct crash_world *w)
{
    drop_each(w);
    tn_tensor_unref(import(w));
    import(w);
}

static int export_and_die(void *argument)
{
    struct crash_world *w = argument;
    export(w, make(w, FS), 1, TN_NO_EXPIRY);
    tn_message m = {.bytes = w->handle, .size_bytes = w->handle_bytes};
    TN_CHECK_OK(tn_queue_push(w->queue, &m, 0, TN_NOW));
    kill(getpid(), SIGKILL);
    return 0;
}

/* Leave a ticket that has the only reference. */
static void leave_a_handle(struct crash_world *w)
{
    tnt_wait(tnt_fork(export_and_die, w));
    tn_message m = crash_pop(w);
    memcpy(w->handle, m.bytes, m.size_bytes);
    w->handle_bytes = m.size_bytes;
    tn_message_fini(&m);
}

static void import_one(struct crash_world *w) { tn_tensor_unref(import(w)); }

static void import_expired(struct crash_world *w)
{
    tn_tensor *tensor;
    for (int i = 0; i < BOTH; i++) {
        tn_tensor *made = make(w, strategies[i]);
        export(w, made, 1, 1);
        if (strategies[i] == FS) /* a descriptor would be lost with the process */
            made = tn_tensor_unref(made);
        assert_int_equal(tn_handle_import(w->domain, w->handle, w->handle_bytes, &tensor),
                         TN_ERR_STALE);
        tn_tensor_unref(made);
    }
    crash_check_storages(w, 0);
}

/* ---- forks ------------------------------------------------------------------------------- */

static void read_only(struct crash_world *w)
{
    tn_tensor *tensor = w->tensor[3];
    void *data = tn_tensor_data(tensor);
    assert_int_equal(*(uint8_t *)data, CRASH_BYTE);
    assert_true(tnt_info(tensor).is_read_only);
    assert_int_not_equal(mprotect(data, BYTES, PROT_READ | PROT_WRITE), 0);
    tn_tensor_unref(make(w, FS));
    tn_tensor_unref(tensor);
}

static void fork_with_write_once(struct crash_world *w)
{
    w->tensor[3] = crash_storage(w, FD, TN_TENSOR_WRITE_ONCE, BYTES);
    crash_fork(w, read_only);
    memset(tn_tensor_data(w->tensor[3]), 0, BYTES);
}

/* ---- by path ----------------------------------------------------------------------------- */

static tn_tensor *attach(const tn_tensor *tensor)
{
    tn_tensor *attached;
    TN_CHECK_OK(tn_tensor_open_path(tnt_info(tensor).path, &attached));
    return attached;
}

/* A process that attached by path keeps the file after the storage has ended in the domain. */
static void outlive_the_block(struct crash_world *w)
{
    tn_tensor *tensor = make(w, FS), *attached = attach(tensor);
    tn_tensor_unref(tensor);
    crash_check_storages(w, 1);
    assert_int_equal(*(uint8_t *)tn_tensor_data(attached), CRASH_BYTE);
    tn_tensor_unref(attached);
    crash_check_storages(w, 0);
}

static void attach_and_go(struct crash_world *w)
{
    attach(w->tensor[1]);
    tn_tensor_unref(attach(w->tensor[1]));
}

/* ---- reclaiming ----------------------------------------------------------------------------
 */

static int die_with_storages(void *argument)
{
    struct crash_world *w = argument;
    for (int i = 0; i < BOTH; i++)
        make(w, strategies[i]);
    crash_storage(w, FD, TN_TENSOR_WRITE_ONCE, BYTES);
    attach(make(w, FS));
    tn_message m = crash_pop(w);
    export(w, m.tensors[1], 1, 0);
    kill(getpid(), SIGKILL);
    return 0;
}

static void leave_a_dead(struct crash_world *w)
{
    push_each(w);
    tnt_wait(tnt_fork(die_with_storages, w));
}

static void reap(struct crash_world *w)
{
    uint32_t reaped;
    TN_CHECK_OK(tn_domain_reap(w->domain, &reaped));
    assert_in_range(reaped, 0, 1); /* as in reap() */
}

/* ---- what is left ------------------------------------------------------------------------ */

/* What a death leaves until a process reclaims it, as docs/crash.md lists it. */
struct left {
    const char *point;
    tnt_child_fn *run;
    bool is_named;   /* the description of the block names an object */
    bool has_file;   /* the object's file exists */
    bool has_intent; /* bytes are requested from the quota */
    bool is_kept;    /* the file stays until the domain ends */
};

static int make_file_only(void *argument)
{
    make(argument, FS);
    return 0;
}

static int make_sealed_only(void *argument)
{
    crash_storage(argument, FD, TN_TENSOR_WRITE_ONCE, BYTES);
    return 0;
}

static int fill_sealed_only(void *argument)
{
    fill_arena_and_seal(argument);
    return 0;
}

static int make_and_end(void *argument)
{
    tn_tensor_unref(make(argument, FS));
    return 0;
}

static int make_attach_and_end(void *argument)
{
    tn_tensor *tensor = make(argument, FS), *attached = attach(tensor);
    tn_tensor_unref(tensor);
    tn_tensor_unref(attached);
    return 0;
}

static int make_and_import(void *argument)
{
    struct crash_world *w = argument;
    tn_tensor *tensor = make(w, FS);
    export(w, tensor, 1, 0);
    tn_tensor_unref(tensor);
    import(w);
    return 0;
}

static const struct left all_left[] = {
    {"quota_asked", make_file_only, .has_intent = true},
    {"backed_allocated", make_file_only, .is_named = false},
    {"backing_admitted", make_file_only, .has_intent = true},
    {"backing_named", make_file_only, .is_named = true, .has_intent = true},
    {"file_made", make_file_only, .is_named = true, .has_file = true},
    {"file_sized", make_file_only, .is_named = true, .has_file = true},
    {"backing_made", make_file_only, .is_named = true, .has_file = true},
    {"backing_filled", make_file_only, .is_named = true, .has_file = true},
    {"backing_sealed", make_sealed_only, .is_named = true},
    {"backing_written", fill_sealed_only, .is_named = true},
    {"backing_completed", fill_sealed_only, .is_named = true},
    {"backing_closed", fill_sealed_only, .is_named = true},
    {"backing_mapped", make_and_import, .is_named = true, .has_file = true},
    {"backing_let_go", make_and_end, .is_named = true, .has_file = true},
    {"backing_ended", make_and_end, .is_named = true},
    {"backing_cleared", make_and_end, .is_named = false},
    {"store_attached", make_attach_and_end, .is_named = true, .has_file = true},
    {"store_detached", make_attach_and_end, .has_file = true, .is_kept = true},
};

static bool has_intent(const struct tni_segment *s)
{
    for (uint32_t seat = 0; seat < s->geometry.seats; seat++)
        for (uint32_t t = 0; t < TNI_THREADS; t++)
            if (atomic_load(&tni_announce_at(s, seat, t)->commit_bytes) != 0)
                return true;
    return false;
}

static void check_left(const struct left *left)
{
    static const struct crash_op op = {.name = "left"};
    /* Without a tenond, which would reclaim the dead process before the check. */
    static const tn_domain_options options = {
        .struct_size = sizeof options, .quota_bytes = 64 << 20, .flags = TN_DOMAIN_NO_MANAGER};
    struct crash_world w = {.op = &op, .domain = tnt_domain(&options)};
    const struct tni_segment *s = &w.domain->segment;
    printf("at %s\n", left->point);
    assert_true(tnt_kill_at(left->point, 1, left->run, &w));
    const struct tni_backing *b = tni_payload_at(s, tni_block_make(TNI_BACKING_CLASS, 0));
    assert_int_equal(atomic_load(&b->strategy) != 0, left->is_named);
    assert_int_equal(crash_count_files(&w), left->has_file);
    assert_int_equal(has_intent(s), left->has_intent);
    TN_CHECK_OK(tn_domain_reap(w.domain, NULL));
    TN_CHECK_OK(tni_ticket_for_each(&w.domain->segment, crash_revoke, w.domain));
    TNT_AUDIT(w.domain);
    assert_int_equal(crash_count_files(&w), left->is_kept);
    tni_files_end_domain(s);
    crash_check_storages(&w, 0);
    crash_check_intents(&w);
    tn_domain_close(w.domain);
}

TN_TEST(a_death_at_each_point_of_a_storage_leaves_what_is_told_of_it)
{
    for (size_t i = 0; i < sizeof all_left / sizeof all_left[0]; i++)
        check_left(&all_left[i]);
}

/* ---- tenond ------------------------------------------------------------------------------ */

/* The first tenond of this domain kills itself at a point; later ones do not. */
static void create_with_mortal_tenond(struct crash_world *w, const char *point)
{
    static const struct crash_op op = {.is_named = true};
    tn_domain_options options = {.struct_size = sizeof options, .quota_bytes = 64 << 20};
    tn_queue_options queue = {.struct_size = sizeof queue, .capacity = 8};
    *w = (struct crash_world){.op = &op};
    setenv("TENON_KILL_POINT", point, 1);
    TN_CHECK_OK(tn_domain_open("mortal", &options, TN_OPEN_NEW, &w->domain));
    unsetenv("TENON_KILL_POINT");
    TN_CHECK_OK(tn_queue_open(w->domain, "queue", &queue, TN_OPEN_NEW, &w->queue));
}

/*
 * A member that waits starts another tenond, and gives it the descriptors that the first
 * tenond had or did not answer for.
 */
static void await_next_tenond(struct crash_world *w, uint64_t first)
{
    struct tni_depot_connection *line = &tni_backing_part(w->domain)->depot_connection;
    _Atomic uint64_t *manager = &w->domain->segment.header->manager;
    tn_message m;
    while (atomic_load(manager) == first || atomic_load(manager) == 0 ||
           atomic_load(&line->manager) != atomic_load(manager) ||
           atomic_load(&line->has_missed))
        assert_int_equal(tn_queue_pop(w->queue, tnt_deadline(50), &m), TN_ERR_TIMED_OUT);
}

static uint64_t manager_of(const struct crash_world *w)
{
    return atomic_load(&w->domain->segment.header->manager);
}

static int make_for_two_tenonds(void *argument)
{
    struct crash_world *w = argument;
    uint64_t first = manager_of(w);
    tn_tensor *tensor = make(w, FD);
    await_next_tenond(w, first);
    TN_CHECK_OK(tn_queue_push_tensor(w->queue, tensor, TN_PUSH_MOVE, TN_NOW));
    kill(getpid(), SIGKILL);
    return 0;
}

static void end_mortal_world(struct crash_world *w)
{
    TNT_AUDIT(w->domain);
    crash_check_storages(w, 0);
    tn_object_close(w->queue);
    tn_domain_close(w->domain);
}

static int make_and_deposit(void *argument)
{
    make(argument, FD);
    return 0;
}

TN_TEST(tenond_closes_a_descriptor_that_its_maker_never_used)
{
    struct crash_world w;
    create_with_mortal_tenond(&w, "");
    assert_true(tnt_kill_at("backing_deposited", 1, make_and_deposit, &w));
    while (tni_alloc_outside_bytes(&w.domain->segment) > 0)
        (void)!tn_domain_reap(w.domain, NULL); /* or tenond reclaims it */
    end_mortal_world(&w);
}

static tn_tensor *pop_made(struct crash_world *w)
{
    tn_tensor *tensor;
    TN_CHECK_OK(tn_queue_pop_tensor(w->queue, TN_NOW, &tensor));
    assert_int_equal(*(uint8_t *)tn_tensor_data(tensor), CRASH_BYTE);
    return tensor;
}

static int pop_in_another(void *argument)
{
    tn_tensor_unref(pop_made(argument));
    return 0;
}

/* The maker keeps nothing of these storages but the descriptors that the others will need. */
TN_TEST(what_was_pushed_away_can_be_mapped_where_there_is_no_tenond)
{
    static const struct crash_op op = {.name = "no tenond"};
    static const tn_domain_options options = {
        .struct_size = sizeof options, .quota_bytes = 64 << 20, .flags = TN_DOMAIN_NO_MANAGER};
    tn_queue_options queue = {.struct_size = sizeof queue, .capacity = 8};
    struct crash_world w = {.op = &op, .domain = tnt_domain(&options)};
    unsigned mappings = tnt_mapping_count();
    TN_CHECK_OK(tn_queue_open(w.domain, "queue", &queue, TN_OPEN_NEW, &w.queue));
    TN_CHECK_OK(tn_queue_push_tensor(w.queue, make(&w, FD), TN_PUSH_MOVE, TN_NOW));
    tn_tensor *kept = make(&w, FD);
    TN_CHECK_OK(tn_queue_push_tensor(w.queue, kept, 0, TN_NOW));
    tn_tensor_unref(kept);
    assert_int_equal(tnt_mapping_count(), mappings);
    tnt_wait_ok(tnt_fork(pop_in_another, &w));
    tn_tensor_unref(pop_made(&w));
    /* A member that waits does the same: the storage ended in another process. */
    tni_backing_sweep(w.domain);
    assert_int_equal(tni_backing_part(w.domain)->kept_fds, 0);
    tn_object_close(w.queue);
    tn_domain_close(w.domain);
}

TN_TEST(leaving_closes_the_descriptors_kept_for_other_members)
{
    unsigned descriptors = tnt_descriptor_count();
    static const struct crash_op op = {.name = "leaving"};
    static const tn_domain_options options = {
        .struct_size = sizeof options, .quota_bytes = 64 << 20, .flags = TN_DOMAIN_NO_MANAGER};
    struct crash_world w = {.op = &op, .domain = tnt_domain(&options)};
    tn_tensor *tensor = make(&w, FD);
    export(&w, tensor, 1, TN_NO_EXPIRY);
    tn_tensor_unref(tensor);
    assert_int_equal(tni_backing_part(w.domain)->kept_fds, 1);
    tn_domain_close(w.domain);
    assert_int_equal(tnt_descriptor_count(), descriptors);
}

static int push_and_await_tenond(void *argument)
{
    struct crash_world *w = argument;
    uint64_t first = manager_of(w);
    tn_queue *queue = w->queue;
    TN_CHECK_OK(tn_queue_push_tensor(queue, make(w, FD), TN_PUSH_MOVE, TN_NOW));
    TN_CHECK_OK(tn_queue_open(w->domain, "empty", NULL, TN_OPEN_EXISTING, &w->queue));
    await_next_tenond(w, first);
    kill(getpid(), SIGKILL);
    return 0;
}

TN_TEST(storages_only_in_messages_are_given_to_the_next_tenond)
{
    struct crash_world w;
    tn_queue_options options = {.struct_size = sizeof options, .capacity = 1};
    tn_queue *empty;
    create_with_mortal_tenond(&w, "tenond_deposit_kept");
    TN_CHECK_OK(tn_queue_open(w.domain, "empty", &options, TN_OPEN_NEW, &empty));
    tnt_wait(tnt_fork(push_and_await_tenond, &w));
    tn_tensor_unref(pop_made(&w));
    tn_object_close(empty);
    end_mortal_world(&w);
}

TN_TEST(a_descriptor_survives_its_maker_and_the_tenond_that_had_it)
{
    struct crash_world w;
    create_with_mortal_tenond(&w, "tenond_deposit_kept");
    tnt_wait(tnt_fork(make_for_two_tenonds, &w));
    tn_tensor_unref(pop_made(&w));
    end_mortal_world(&w);
}

TN_TEST(a_tenond_killed_while_it_drops_a_descriptor_leaves_none)
{
    struct crash_world w;
    create_with_mortal_tenond(&w, "tenond_deposit_dropped");
    uint64_t first = manager_of(&w);
    tn_tensor *kept = make(&w, FD);
    tn_tensor_unref(make(&w, FD)); /* the release rings tenond */
    await_next_tenond(&w, first);
    tn_tensor_unref(kept);
    end_mortal_world(&w);
}

#define STORAGES .has_storages = true
const struct crash_op crash_backing_ops[] = {
    {.name = "storage_by_descriptor", STORAGES, .run = make_by_descriptor},
    {.name = "storage_by_file", STORAGES, .run = make_by_file},
    {.name = "storage_write_once", STORAGES, .run = make_write_once},
    {.name = "storage_arena", STORAGES, .run = use_arena},
    {.name = "storage_arena_unsealed", STORAGES, .run = fill_arena_and_seal},
    {.name = "storage_share_by_each", STORAGES, .run = share_by_each},
    {.name = "storage_share_view", STORAGES, .run = share_view},
    {.name = "storage_by_trim",
     STORAGES,
     .is_costly = true,
     .prepare = fill_quota,
     .run = make_by_trim},
    {.name = "storage_refused", STORAGES, .run = fail_to_make},
    {.name = "storage_unref_last", STORAGES, .run = release_last},
    {.name = "storage_unref_not_last", STORAGES, .prepare = hold_each, .run = drop_each},
    {.name = "storage_leave", STORAGES, .run = leave_with_storages},
    {.name = "storage_pop", .is_costly = true, STORAGES, .prepare = push_each, .run = pop_each},
    {.name = "storage_pop_of_a_lease",
     .is_costly = true,
     STORAGES,
     .policy = TN_QUEUE_LEASE,
     .prepare = push_each,
     .run = pop_and_release},
    {.name = "storage_pop_to_drop",
     .is_costly = true,
     STORAGES,
     .policy = TN_QUEUE_DROP,
     .prepare = push_each,
     .run = pop_and_release},
    {.name = "storage_push_of_files", STORAGES, .run = push_files},
    {.name = "storage_pop_of_a_dead_maker",
     STORAGES,
     .prepare = leave_a_message,
     .run = pop_one},
    {.name = "storage_push_to_tenond",
     STORAGES,
     .is_named = true,
     .is_costly = true,
     .run = push_deposit},
    {.name = "storage_pop_from_tenond",
     STORAGES,
     .is_named = true,
     .is_costly = true,
     .prepare = leave_a_deposit,
     .run = pop_deposit},
    {.name = "storage_import_by_descriptor",
     .is_costly = true,
     STORAGES,
     .prepare = export_descriptor,
     .run = import_twice},
    {.name = "storage_import_of_a_dead_maker",
     STORAGES,
     .prepare = leave_a_handle,
     .run = import_one},
    {.name = "storage_ticket_expired", STORAGES, .run = import_expired},
    {.name = "storage_write_once_and_fork", STORAGES, .run = fork_with_write_once},
    {.name = "storage_attached_by_path",
     STORAGES,
     .leaves_files = true,
     .run = outlive_the_block},
    {.name = "storage_attached_by_a_dead",
     STORAGES,
     .prepare = hold_each,
     .run = attach_and_go},
    {.name = "storage_reap", STORAGES, .prepare = leave_a_dead, .run = reap},
    {0},
};
