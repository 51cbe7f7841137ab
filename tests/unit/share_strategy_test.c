/* SPDX-License-Identifier: Apache-2.0 */
/* Strategies: which one is used, what each gives, and storages that only their creator writes.
 */
#include "harness/harness.h"
#include "harness/tensor.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "share/share.h"

enum { LONG_MS = 20000, COUNT = 5000, QUOTA_BYTES = 64 << 20 };
static const uint32_t all_strategies[] = {TN_STRATEGY_ARENA, TN_STRATEGY_FILE_DESCRIPTOR,
                                          TN_STRATEGY_FILE_SYSTEM};

__attribute__((constructor)) static void ring_once(void) { tni_os_bell_ring(1); }

static tn_domain *open_domain_with(uint32_t flags)
{
    tn_domain_options options = {.struct_size = sizeof options,
                                 .quota_bytes = QUOTA_BYTES,
                                 .watermark_bytes = 1,
                                 .seats = 32,
                                 .flags = flags};
    return tnt_domain(&options);
}

static tn_domain *open_domain(void) { return open_domain_with(TN_DOMAIN_NO_MANAGER); }

static void end_domain(tn_domain *d)
{
    uint32_t reaped;
    TN_CHECK_OK(tn_domain_reap(d, &reaped));
    TNT_AUDIT(d);
    assert_int_equal(tni_alloc_outside_bytes(&d->segment), 0);
    tn_domain_close(d);
}

static tn_tensor_options options_of(uint32_t strategy, uint32_t flags)
{
    return (tn_tensor_options){
        .struct_size = sizeof(tn_tensor_options), .strategy = strategy, .flags = flags};
}

static void fill(tn_tensor *t)
{
    int32_t *data = tn_tensor_data(t);
    for (int32_t i = 0; i < tn_tensor_count(t); i++)
        data[i] = i;
}

static void expect_filled(const tn_tensor *t)
{
    const int32_t *data = tn_tensor_data(t);
    for (int32_t i = 0; i < tn_tensor_count(t); i++)
        if (data[i] != i)
            fail_msg("element %d is %d", i, data[i]);
}

static tn_tensor *make_as(tn_domain *d, uint32_t strategy, uint32_t flags)
{
    tn_tensor_options options = options_of(strategy, flags);
    tn_tensor *t;
    TN_CHECK_OK(tn_tensor_create(d, TN_INT32, 1, (int64_t[]){COUNT}, &options, &t));
    fill(t);
    return t;
}

static tn_tensor *make(tn_domain *d)
{
    tn_tensor *t;
    TN_CHECK_OK(tn_tensor_create(d, TN_INT32, 1, (int64_t[]){COUNT}, NULL, &t));
    fill(t);
    return t;
}

static tn_tensor *make_private(void)
{
    tn_tensor *t;
    TN_CHECK_OK(tn_tensor_create_private(TN_INT32, 1, (int64_t[]){COUNT}, &t));
    fill(t);
    return t;
}

/* Mappings of storages with memory of their own. */
static unsigned storage_mappings(void)
{
    char line[512];
    unsigned count = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL)
        count += strstr(line, TNI_STORAGE_PREFIX) != NULL;
    if (maps != NULL)
        fclose(maps);
    return count;
}

/* All memory that the domain's tensors take up. */
static uint64_t payload_bytes(const tn_domain *d)
{
    uint64_t bytes;
    TN_CHECK_OK(tni_os_memory_committed(d->segment.arena_fd, &bytes));
    return bytes + tni_alloc_outside_bytes(&d->segment);
}

/* ---- which one --------------------------------------------------------------------------- */

TN_TEST(strategies_are_numbered_from_one_and_have_names)
{
    static const char *const names[] = {"arena", "file_descriptor", "file_system"};
    for (uint32_t i = 0; i < TNI_COUNT(names); i++) {
        uint32_t strategy = 0;
        assert_string_equal(tn_strategy_name(1 + i), names[i]);
        TN_CHECK_OK(tn_strategy_parse(names[i], &strategy));
        assert_int_equal(strategy, 1 + i);
        assert_int_equal(all_strategies[i], 1 + i);
    }
    assert_null(tn_strategy_name(TN_STRATEGY_DEFAULT));
    assert_null(tn_strategy_name(4));
    assert_null(tn_strategy_name(UINT32_MAX));
}

static int expect_file_system(void *argument)
{
    (void)argument;
    TN_CHECK(tn_strategy_get() == TN_STRATEGY_FILE_SYSTEM);
    return 0;
}

TN_TEST(a_strategy_set_at_run_time_is_that_of_new_storages)
{
    tn_domain *d = open_domain();
    tn_tensor *tensors[4];
    assert_int_equal(tn_strategy_get(), TN_STRATEGY_ARENA);
    tensors[0] = make(d);
    TN_CHECK_OK(tn_strategy_set(TN_STRATEGY_FILE_DESCRIPTOR));
    tensors[1] = make(d);
    TN_CHECK_OK(tn_strategy_set(TN_STRATEGY_FILE_SYSTEM));
    tnt_wait_ok(tnt_fork(expect_file_system, NULL));
    tensors[2] = make_private();
    TN_CHECK_OK(tn_tensor_share(d, tensors[2], NULL));
    TN_CHECK_OK(tn_strategy_set(TN_STRATEGY_ARENA));
    TN_CHECK_OK(tn_tensor_create(d, TN_INT32, 1, (int64_t[]){COUNT},
                                 TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED),
                                 &tensors[3]));
    assert_int_equal(tnt_info(tensors[0]).strategy, TN_STRATEGY_ARENA);
    assert_int_equal(tnt_info(tensors[1]).strategy, TN_STRATEGY_FILE_DESCRIPTOR);
    assert_int_equal(tnt_info(tensors[2]).strategy, TN_STRATEGY_FILE_SYSTEM);
    assert_int_equal(tnt_info(tensors[3]).strategy, TN_STRATEGY_ARENA);
    assert_null(tnt_info(tensors[1]).path);
    assert_int_equal(access(tnt_info(tensors[2]).path, R_OK), 0);
    for (int i = 0; i < 3; i++)
        expect_filled(tensors[i]);
    for (int i = 0; i < 4; i++)
        tn_tensor_unref(tensors[i]);
    end_domain(d);
}

TN_TEST(a_name_that_is_no_strategy_of_this_system_changes_nothing)
{
    static const char *const absent[] = {"hip_vmm", "hip_ipc"};
    uint32_t strategy = 77;
    TN_CHECK_OK(tn_strategy_set(TN_STRATEGY_FILE_SYSTEM));
    assert_int_equal(tn_strategy_parse("arenas", &strategy), TN_ERR_INVALID);
    assert_non_null(strstr(tn_error_detail(), "'arenas'"));
    assert_int_equal(tn_strategy_parse("Arena", &strategy), TN_ERR_INVALID);
    assert_int_equal(tn_strategy_parse("", &strategy), TN_ERR_INVALID);
    assert_int_equal(tn_strategy_parse(NULL, &strategy), TN_ERR_INVALID);
    assert_int_equal(tn_strategy_parse("arena", NULL), TN_ERR_INVALID);
    assert_int_equal(tn_strategy_set(TN_STRATEGY_DEFAULT), TN_ERR_INVALID);
    assert_int_equal(tn_strategy_set(4), TN_ERR_INVALID);
    assert_int_equal(tn_strategy_set(TN_STRATEGY_CUDA_VMM), TN_ERR_INVALID);
    assert_non_null(strstr(tn_error_detail(), "'cuda_vmm'"));
    for (size_t i = 0; i < TNI_COUNT(absent); i++) {
        assert_int_equal(tn_strategy_parse(absent[i], &strategy), TN_ERR_UNSUPPORTED);
        assert_non_null(strstr(tn_error_detail(), absent[i]));
    }
    assert_int_equal(tn_strategy_get(), TN_STRATEGY_FILE_SYSTEM);
    assert_int_equal(strategy, 77);
}

/* This program again, which says with its exit code what its strategy is. */
__attribute__((constructor)) static void tell_the_strategy(void)
{
    if (getenv("STRATEGY_TEST_TELLS") != NULL)
        _exit((int)tn_strategy_get());
}

static int tell_with(void *argument)
{
    setenv("STRATEGY_TEST_TELLS", "1", 1);
    if (argument != NULL)
        setenv("TENON_STRATEGY", argument, 1);
    else
        unsetenv("TENON_STRATEGY");
    execl("/proc/self/exe", "share_strategy_test", (char *)NULL);
    return 99;
}

static int told_with(char *value)
{
    int status = tnt_wait(tnt_fork(tell_with, value));
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

TN_TEST(the_environment_says_the_strategy_to_begin_with)
{
    char names[][16] = {"arena", "file_descriptor", "file_system", "cuda_vmm", "nonsense", ""};
    assert_int_equal(told_with(NULL), TN_STRATEGY_ARENA);
    assert_int_equal(told_with(names[0]), TN_STRATEGY_ARENA);
    assert_int_equal(told_with(names[1]), TN_STRATEGY_FILE_DESCRIPTOR);
    assert_int_equal(told_with(names[2]), TN_STRATEGY_FILE_SYSTEM);
    assert_int_equal(told_with(names[3]), TN_STRATEGY_ARENA);
    assert_int_equal(told_with(names[4]), TN_STRATEGY_ARENA);
    assert_int_equal(told_with(names[5]), TN_STRATEGY_ARENA);
}

TN_TEST(each_tensor_may_have_a_strategy_of_its_own)
{
    tn_domain *d = open_domain();
    for (size_t i = 0; i < TNI_COUNT(all_strategies); i++) {
        tn_tensor_options options = options_of(all_strategies[i], 0);
        tn_tensor *made = make_as(d, all_strategies[i], 0), *moved = make_private(), *copied;
        TN_CHECK_OK(tn_tensor_share(d, moved, &options));
        TN_CHECK_OK(tn_tensor_clone(d, moved, &options, &copied));
        tn_tensor *tensors[] = {made, moved, copied};
        for (size_t k = 0; k < TNI_COUNT(tensors); k++) {
            assert_int_equal(tnt_info(tensors[k]).strategy, all_strategies[i]);
            assert_true(tnt_info(tensors[k]).is_shared);
            assert_false(tnt_info(tensors[k]).is_read_only);
            assert_int_equal(tnt_info(tensors[k]).storage_bytes, 4 * COUNT);
            expect_filled(tensors[k]);
            tn_tensor_unref(tensors[k]);
        }
    }
    assert_int_equal(tn_strategy_get(), TN_STRATEGY_ARENA);
    end_domain(d);
}

static int empty_as(tn_domain *d, const tn_tensor_options *options)
{
    tn_tensor *t = (tn_tensor *)8;
    int status = tn_tensor_create(d, TN_INT8, 1, (int64_t[]){100}, options, &t);
    if (status == 0)
        tn_tensor_unref(t);
    else
        assert_ptr_equal(t, (tn_tensor *)8);
    return status;
}

TN_TEST(options_that_make_no_sense_are_refused)
{
    tn_domain *d = open_domain();
    tn_tensor_options options = options_of(4, 0);
    tn_tensor *private = make_private();
    void *data = tn_tensor_data(private);
    assert_int_equal(empty_as(d, &options), TN_ERR_INVALID);
    assert_int_equal(tn_tensor_share(d, private, &options), TN_ERR_INVALID);
    options = options_of(UINT32_MAX, 0);
    assert_int_equal(empty_as(d, &options), TN_ERR_INVALID);
    options = options_of(TN_STRATEGY_FILE_DESCRIPTOR, 4);
    assert_int_equal(empty_as(d, &options), TN_ERR_INVALID);
    options = options_of(TN_STRATEGY_ARENA, TN_TENSOR_ZEROED);
    assert_int_equal(tn_tensor_share(d, private, &options), TN_ERR_INVALID);
    options.source = data;
    options.source_bytes = 1;
    assert_int_equal(empty_as(d, &options), TN_ERR_INVALID);
    options.flags = 0;
    assert_int_equal(tn_tensor_share(d, private, &options), TN_ERR_INVALID);
    options = options_of(TN_STRATEGY_ARENA, TN_TENSOR_WRITE_ONCE);
    assert_int_equal(empty_as(d, &options), TN_ERR_UNSUPPORTED);
    assert_non_null(strstr(tn_error_detail(), "'arena'"));
    options = options_of(TN_STRATEGY_FILE_SYSTEM, TN_TENSOR_WRITE_ONCE);
    assert_int_equal(tn_tensor_share(d, private, &options), TN_ERR_UNSUPPORTED);
    options = options_of(TN_STRATEGY_ARENA, 0);
    options.struct_size--;
    assert_int_equal(empty_as(d, &options), TN_ERR_INVALID);
    assert_ptr_equal(tn_tensor_data(private), data);
    assert_false(tnt_info(private).is_shared);
    TN_CHECK_OK(empty_as(d, NULL));
    /* More than the quota is an error of every strategy, and leaves nothing. */
    for (size_t i = 0; i < TNI_COUNT(all_strategies); i++) {
        tn_tensor *t;
        options = options_of(all_strategies[i], 0);
        assert_int_equal(
            tn_tensor_create(d, TN_INT8, 1, (int64_t[]){QUOTA_BYTES + 1}, &options, &t),
            TN_ERR_NO_MEMORY);
    }
    tn_tensor_unref(private);
    end_domain(d);
}

/* ---- mixed ------------------------------------------------------------------------------- */

static int pop_all_kinds(void *argument)
{
    tn_queue *queue = argument;
    for (int round = 0; round < 2; round++) {
        tn_message message;
        TN_CHECK_OK(tn_queue_pop(queue, tnt_deadline(LONG_MS), &message));
        TN_CHECK(message.tensor_count == TNI_COUNT(all_strategies));
        for (uint32_t i = 0; i < message.tensor_count; i++) {
            TN_CHECK(tnt_info(message.tensors[i]).strategy == all_strategies[i]);
            expect_filled(message.tensors[i]);
        }
        tn_message_fini(&message);
    }
    return 0;
}

TN_TEST(one_message_carries_tensors_of_every_strategy)
{
    tn_domain *d = open_domain();
    tn_queue *queue;
    tn_tensor *tensors[TNI_COUNT(all_strategies)];
    TN_CHECK_OK(tn_queue_open(d, NULL, NULL, 0, &queue));
    pid_t pid = tnt_fork(pop_all_kinds, queue);
    tn_message message = {.tensors = tensors, .tensor_count = TNI_COUNT(tensors)};
    for (size_t i = 0; i < TNI_COUNT(tensors); i++)
        tensors[i] = make_as(d, all_strategies[i], 0);
    TN_CHECK_OK(tn_queue_push(queue, &message, 0, tnt_deadline(LONG_MS)));
    TN_CHECK_OK(tn_strategy_set(TN_STRATEGY_FILE_SYSTEM));
    TN_CHECK_OK(tn_queue_push(queue, &message, 0, tnt_deadline(LONG_MS)));
    tnt_wait_ok(pid);
    for (size_t i = 0; i < TNI_COUNT(tensors); i++)
        tn_tensor_unref(tensors[i]);
    tn_object_close(queue);
    end_domain(d);
}

TN_TEST(a_handle_carries_tensors_of_every_strategy_after_their_end)
{
    tn_domain *d = open_domain_with(0); /* tenond has the descriptor meanwhile */
    for (size_t i = 0; i < TNI_COUNT(all_strategies); i++) {
        uint8_t bytes[TN_HANDLE_MAX_BYTES];
        size_t used;
        tn_tensor *t = make_as(d, all_strategies[i], 0), *back;
        TN_CHECK_OK(tn_handle_export(t, NULL, bytes, sizeof bytes, &used));
        tn_tensor_unref(t);
        TN_CHECK_OK(tn_handle_import(d, bytes, used, &back));
        assert_int_equal(tnt_info(back).strategy, all_strategies[i]);
        expect_filled(back);
        tn_tensor_unref(back);
    }
    end_domain(d);
}

/* ---- moving ------------------------------------------------------------------------------ */

TN_TEST(moving_a_storage_moves_all_views_by_every_strategy)
{
    tn_domain *d = open_domain();
    for (size_t i = 0; i < TNI_COUNT(all_strategies); i++) {
        tn_tensor_options options = options_of(all_strategies[i], 0);
        tn_tensor *t = make_private(), *view;
        TN_CHECK_OK(tn_tensor_slice(t, 0, 100, 200, 1, &view));
        const void *old = tn_tensor_data(t);
        TN_CHECK_OK(tn_tensor_share(d, view, &options));
        assert_ptr_not_equal(tn_tensor_data(t), old);
        assert_ptr_equal(tn_tensor_data(view), (int32_t *)tn_tensor_data(t) + 100);
        assert_int_equal(tnt_info(t).strategy, all_strategies[i]);
        expect_filled(t);
        *(int32_t *)tn_tensor_data(view) = -1;
        assert_int_equal(((int32_t *)tn_tensor_data(t))[100], -1);
        tn_tensor_unref(t);
        assert_int_equal(((int32_t *)tn_tensor_data(view))[1], 101);
        tn_tensor_unref(view);
    }
    end_domain(d);
}

TN_TEST(sharing_what_is_shared_is_free_whatever_is_asked_for)
{
    tn_domain *d = open_domain();
    tn_tensor_options other = options_of(TN_STRATEGY_FILE_SYSTEM, 0);
    tn_tensor *t = make_as(d, TN_STRATEGY_FILE_DESCRIPTOR, 0);
    const void *data = tn_tensor_data(t);
    uint64_t bytes = payload_bytes(d);
    unsigned descriptors = tnt_descriptor_count();
    TN_CHECK_OK(tn_tensor_share(d, t, NULL));
    TN_CHECK_OK(tn_tensor_share(d, t, &other));
    assert_ptr_equal(tn_tensor_data(t), data);
    assert_int_equal(tnt_info(t).strategy, TN_STRATEGY_FILE_DESCRIPTOR);
    assert_int_equal(payload_bytes(d), bytes);
    assert_int_equal(tnt_descriptor_count(), descriptors);
    tn_tensor_unref(t);
    end_domain(d);
}

TN_TEST(a_shared_storage_keeps_its_size)
{
    tn_domain *d = open_domain();
    for (size_t i = 0; i < TNI_COUNT(all_strategies); i++) {
        tn_tensor *t = make_as(d, all_strategies[i], 0);
        assert_int_equal(tn_tensor_resize_storage(t, 8 * COUNT), TN_ERR_DENIED);
        assert_non_null(strstr(tn_error_detail(), "20000 bytes"));
        assert_int_equal(tn_tensor_resize_storage(t, 4 * COUNT), TN_ERR_DENIED);
        assert_int_equal(tnt_info(t).storage_bytes, 4 * COUNT);
        expect_filled(t);
        tn_tensor_unref(t);
    }
    end_domain(d);
}

TN_TEST(a_private_storage_is_resized_for_all_its_views)
{
    tn_tensor *t = make_private(), *view, *more;
    assert_int_equal(tn_tensor_resize_storage(t, 4 * COUNT - 1), TN_ERR_INVALID);
    TN_CHECK_OK(tn_tensor_slice(t, 0, 10, 20, 1, &view));
    assert_int_equal(tn_tensor_resize_storage(view, 100), TN_ERR_INVALID); /* t needs more */
    TN_CHECK_OK(tn_tensor_resize_storage(view, 8 * COUNT));
    expect_filled(t);
    assert_ptr_equal(tn_tensor_data(view), (int32_t *)tn_tensor_data(t) + 10);
    TN_CHECK_OK(tn_tensor_view(t, TN_INT32, 1, (int64_t[]){2 * COUNT}, NULL, 0, &more));
    assert_int_equal(((int32_t *)tn_tensor_data(more))[2 * COUNT - 1], 0);
    tn_tensor_unref(more);
    tn_tensor_unref(t);
    TN_CHECK_OK(tn_tensor_resize_storage(view, 4 * 20)); /* the only one now */
    assert_int_equal(((int32_t *)tn_tensor_data(view))[9], 19);
    tn_tensor_unref(view);
}

TN_TEST(sharing_a_view_copies_its_own_elements_only)
{
    tn_domain *d = open_domain();
    for (size_t i = 0; i < TNI_COUNT(all_strategies); i++) {
        tn_tensor_options options = options_of(all_strategies[i], 0);
        tn_tensor *t = make_private(), *view, *shared, *again;
        TN_CHECK_OK(tn_tensor_slice(t, 0, 0, 100, -10, &view));
        TN_CHECK_OK(tn_tensor_clone(d, view, &options, &shared));
        assert_int_equal(tnt_info(shared).storage_bytes, 4 * 10);
        assert_true(tnt_info(shared).is_contiguous);
        for (int k = 0; k < 10; k++)
            assert_int_equal(((int32_t *)tn_tensor_data(shared))[k], 99 - 10 * k);
        assert_false(tnt_info(t).is_shared);
        /* Of a shared one as well. */
        TN_CHECK_OK(tn_tensor_clone(d, shared, &options, &again));
        assert_false(tn_tensor_same_storage(shared, again));
        tn_tensor_unref(again);
        tn_tensor_unref(shared);
        tn_tensor_unref(view);
        tn_tensor_unref(t);
    }
    end_domain(d);
}

/* ---- written once ------------------------------------------------------------------------ */

/* @return whether a process that does only this is killed by SIGSEGV */
static int write_first(void *argument)
{
    signal(SIGSEGV, SIG_DFL);
    *(volatile int32_t *)tn_tensor_data(argument) = -5;
    return 0;
}

static bool write_faults(tn_tensor *t)
{
    int status = tnt_wait(tnt_fork(write_first, t));
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

static int only_read(void *argument)
{
    tn_tensor *t = argument;
    TN_CHECK(tnt_info(t).is_read_only);
    expect_filled(t);
    TN_CHECK(write_faults(t));
    return 0;
}

static int pop_and_only_read(void *argument)
{
    tn_tensor *t;
    TN_CHECK_OK(tn_queue_pop_tensor(argument, tnt_deadline(LONG_MS), &t));
    TN_CHECK(tnt_info(t).strategy == TN_STRATEGY_FILE_DESCRIPTOR);
    TN_CHECK(only_read(t) == 0);
    tn_tensor_unref(t);
    return 0;
}

TN_TEST(what_is_written_once_is_written_by_its_creator_alone)
{
    tn_domain *d = open_domain();
    tn_queue *queue;
    TN_CHECK_OK(tn_queue_open(d, NULL, NULL, 0, &queue));
    pid_t other = tnt_fork(pop_and_only_read, queue); /* before there is a tensor */
    tn_tensor *t = make_as(d, TN_STRATEGY_DEFAULT, TN_TENSOR_WRITE_ONCE), *view;
    assert_int_equal(tnt_info(t).strategy, TN_STRATEGY_FILE_DESCRIPTOR);
    assert_false(tnt_info(t).is_read_only);
    TN_CHECK_OK(tn_queue_push_tensor(queue, t, 0, TN_NOW));
    tnt_wait_ok(other);
    tnt_wait_ok(tnt_fork(only_read, t));
    TN_CHECK_OK(tn_tensor_slice(t, 0, 0, 10, 1, &view));
    tnt_wait_ok(tnt_fork(only_read, view));
    fill(t); /* after all that, it still writes */
    tn_tensor_unref(view);
    tn_tensor_unref(t);
    tn_object_close(queue);
    end_domain(d);
}

TN_TEST(a_private_tensor_is_moved_into_memory_that_is_written_once)
{
    tn_domain *d = open_domain();
    tn_tensor_options options = options_of(TN_STRATEGY_DEFAULT, TN_TENSOR_WRITE_ONCE);
    tn_tensor *t = make_private();
    TN_CHECK_OK(tn_tensor_share(d, t, &options));
    expect_filled(t);
    tnt_wait_ok(tnt_fork(only_read, t));
    fill(t);
    tn_tensor_unref(t);
    end_domain(d);
}

/* ---- arenas that are written once -------------------------------------------------------- */

TN_TEST(an_arena_gives_out_aligned_zeros_until_it_is_full)
{
    tn_domain *d = open_domain();
    tn_arena *arena;
    tn_tensor *a, *b, *c = (tn_tensor *)8, *rest;
    TN_CHECK_OK(tn_arena_create(d, 1000, TN_NOW, &arena));
    assert_int_equal(tn_arena_room(arena), 1000);
    TN_CHECK_OK(tn_arena_allocate(arena, TN_INT32, 2, (int64_t[]){3, 5}, &a));
    assert_int_equal(tn_arena_room(arena), 1000 - 64);
    TN_CHECK_OK(tn_arena_allocate(arena, TN_FLOAT64, 1, (int64_t[]){100}, &b));
    assert_int_equal((uintptr_t)tn_tensor_data(a) % 64, 0);
    assert_int_equal((uint8_t *)tn_tensor_data(b) - (uint8_t *)tn_tensor_data(a), 64);
    for (int i = 0; i < 100; i++)
        assert_true(((double *)tn_tensor_data(b))[i] == 0);
    assert_int_equal(tn_arena_room(arena), 1000 - 64 - 832);
    assert_int_equal(tn_arena_allocate(arena, TN_INT8, 1, (int64_t[]){105}, &c), TN_ERR_FULL);
    assert_int_equal(tn_arena_allocate(arena, TN_INT8, 1, (int64_t[]){-1}, &c), TN_ERR_INVALID);
    assert_int_equal(tn_arena_allocate(NULL, TN_INT8, 0, NULL, &c), TN_ERR_INVALID);
    assert_ptr_equal(c, (tn_tensor *)8);
    TN_CHECK_OK(tn_arena_allocate(arena, TN_INT8, 1, (int64_t[]){104}, &rest));
    assert_int_equal(tn_arena_room(arena), 0);
    assert_true(tn_tensor_same_storage(a, rest));
    tn_tensor_unref(a);
    tn_tensor_unref(b);
    tn_tensor_unref(rest);
    assert_null(tn_arena_close(arena));
    assert_null(tn_arena_close(NULL));
    assert_int_equal(tn_arena_room(NULL), 0);
    assert_int_equal(tn_arena_create(d, 0, TN_NOW, &arena), TN_ERR_INVALID);
    assert_int_equal(tn_arena_create(NULL, 64, TN_NOW, &arena), TN_ERR_INVALID);
    assert_int_equal(tn_arena_create(d, UINT64_MAX, TN_NOW, &arena), TN_ERR_INVALID);
    assert_int_equal(tn_arena_create(d, 2 * (uint64_t)QUOTA_BYTES, TN_NOW, &arena),
                     TN_ERR_NO_MEMORY);
    assert_int_equal(tn_arena_create(d, 64, TN_NOW, NULL), TN_ERR_INVALID);
    end_domain(d);
}

enum { MANY = 1000 };
struct readers {
    tn_queue *queue;
    uint32_t tensors;
};

static int read_many(void *argument)
{
    const struct readers *readers = argument;
    tn_tensor *tensors[MANY];
    for (uint32_t i = 0; i < readers->tensors; i++) {
        TN_CHECK_OK(tn_queue_pop_tensor(readers->queue, tnt_deadline(LONG_MS), &tensors[i]));
        TN_CHECK(tnt_info(tensors[i]).is_read_only);
        TN_CHECK(*(const int32_t *)tn_tensor_data(tensors[i]) == (int32_t)i);
    }
    TN_CHECK(storage_mappings() == 1);
    TN_CHECK(write_faults(tensors[0]));
    for (uint32_t i = 0; i < readers->tensors; i++)
        tn_tensor_unref(tensors[i]);
    TN_CHECK(storage_mappings() == 0);
    return 0;
}

TN_TEST(many_tensors_of_an_arena_take_one_mapping_and_one_descriptor)
{
    tn_domain *d = open_domain();
    tn_queue_options queue_options = {.struct_size = sizeof queue_options, .capacity = MANY};
    struct readers readers = {.tensors = MANY};
    tn_arena *arena;
    tn_tensor *tensors[MANY];
    TN_CHECK_OK(tn_queue_open(d, NULL, &queue_options, 0, &readers.queue));
    pid_t pid = tnt_fork(read_many, &readers);
    uint64_t before = payload_bytes(d);
    unsigned descriptors = tnt_descriptor_count();
    TN_CHECK_OK(tn_arena_create(d, MANY * 64, TN_NOW, &arena));
    for (int i = 0; i < MANY; i++) {
        TN_CHECK_OK(tn_arena_allocate(arena, TN_INT32, 1, (int64_t[]){16}, &tensors[i]));
        *(int32_t *)tn_tensor_data(tensors[i]) = i;
    }
    assert_int_equal(storage_mappings(), 1);
    assert_int_equal(tnt_descriptor_count(), descriptors + 1);
    tn_arena_close(arena);
    for (int i = 0; i < MANY; i++) {
        *((int32_t *)tn_tensor_data(tensors[i]) + 1) = i; /* written still */
        TN_CHECK_OK(tn_queue_push_tensor(readers.queue, tensors[i], 0, TN_NOW));
    }
    tnt_wait_ok(pid);
    uint32_t reaped; /* the process killed for writing held them all */
    TN_CHECK_OK(tn_domain_reap(d, &reaped));
    for (int i = 0; i < MANY; i++) {
        assert_true(tni_alloc_outside_bytes(&d->segment) > MANY * 64);
        tn_tensor_unref(tensors[i]);
    }
    /* With the last of them its memory is given back. */
    assert_int_equal(tni_alloc_outside_bytes(&d->segment), 0);
    assert_in_range(payload_bytes(d), 0, before + (1 << 20));
    assert_int_equal(storage_mappings(), 0);
    assert_int_equal(tnt_descriptor_count(), descriptors);
    tn_object_close(readers.queue);
    end_domain(d);
}

static int use_the_arena(void *argument)
{
    tn_tensor *t;
    TN_CHECK(tn_arena_allocate(argument, TN_INT8, 0, NULL, &t) == TN_ERR_DENIED);
    tn_arena_close(argument);
    return 0;
}

TN_TEST(a_forked_child_makes_no_tensors_in_its_parents_arena)
{
    tn_domain *d = open_domain();
    tn_arena *arena;
    tn_tensor *t;
    TN_CHECK_OK(tn_arena_create(d, 1 << 16, TN_NOW, &arena));
    tnt_wait_ok(tnt_fork(use_the_arena, arena));
    TN_CHECK_OK(tn_arena_allocate(arena, TN_INT8, 0, NULL, &t));
    *(int8_t *)tn_tensor_data(t) = 1;
    tn_tensor_unref(t);
    tn_arena_close(arena);
    end_domain(d);
}

/* ---- arenas that are filled before they are sealed --------------------------------------- */

static tn_arena *open_unsealed(tn_domain *d, uint64_t bytes)
{
    tn_arena *arena;
    tn_tensor *none = NULL;
    TN_CHECK_OK(tn_arena_create_unsealed(d, bytes, TN_NOW, &arena));
    assert_int_equal(tn_arena_room(arena), bytes);
    assert_int_equal(tn_arena_allocate(arena, TN_INT8, 0, NULL, &none), TN_ERR_DENIED);
    assert_null(none);
    return arena;
}

/* All of an arena as one tensor, which may only be read by the child that this starts. */
static tn_tensor *take_all(tn_arena *arena)
{
    tn_tensor *t;
    int64_t count = (int64_t)tn_arena_room(arena) / 4;
    TN_CHECK_OK(tn_arena_allocate(arena, TN_INT32, 1, &count, &t));
    return t;
}

/* Whether the kernel lets anybody write into the storage by a descriptor. */
static bool can_write_by_descriptor(tn_tensor *t)
{
    int fd;
    TN_CHECK_OK(tn_tensor_descriptor(t, 0, &fd));
    bool can = pwrite(fd, "x", 1, 0) == 1;
    close(fd);
    return can;
}

TN_TEST(an_arena_has_what_was_written_before_its_seal)
{
    tn_domain *d = open_domain();
    int32_t numbers[COUNT];
    for (int32_t i = 0; i < COUNT; i++)
        numbers[i] = i;
    tn_arena *arena = open_unsealed(d, sizeof numbers);
    for (size_t off = 0; off < sizeof numbers; off += 1000)
        TN_CHECK_OK(tn_arena_write(arena, off, (uint8_t *)numbers + off,
                                   TNI_MIN(1000, sizeof numbers - off)));
    TN_CHECK_OK(tn_arena_seal(arena));
    TN_CHECK_OK(tn_arena_seal(arena));
    assert_int_equal(tn_arena_write(arena, 0, numbers, 4), TN_ERR_DENIED);
    tn_tensor *t = take_all(arena);
    expect_filled(t);
    assert_false(can_write_by_descriptor(t));
    tnt_wait_ok(tnt_fork(only_read, t));
    fill(t); /* its maker writes through its tensors */
    tn_arena_close(arena);
    tn_tensor_unref(t);
    end_domain(d);
}

TN_TEST(bytes_that_were_not_written_are_zero_and_committed)
{
    enum { BYTES = 1 << 20 };
    tn_domain *d = open_domain();
    uint64_t committed;
    int fd;
    tn_arena *arena = open_unsealed(d, BYTES);
    TN_CHECK_OK(tn_arena_write(arena, 0, NULL, 0));
    TN_CHECK_OK(tn_arena_write(arena, BYTES - 8, "tenonbar", 8));
    TN_CHECK_OK(tn_arena_write(arena, 100, "tenonbar", 8));
    TN_CHECK_OK(tn_arena_seal(arena));
    tn_tensor *t = take_all(arena);
    const uint8_t *data = tn_tensor_data(t);
    for (int i = 0; i < BYTES; i++)
        if (i >= 108 && i < BYTES - 8)
            assert_int_equal(data[i], 0);
    assert_memory_equal(data + 100, "tenonbar", 8);
    assert_memory_equal(data + BYTES - 8, "tenonbar", 8);
    TN_CHECK_OK(tn_tensor_descriptor(t, TN_SEND_READ_ONLY, &fd));
    TN_CHECK_OK(tni_os_memory_committed(fd, &committed));
    assert_true(committed >= BYTES);
    close(fd);
    tn_arena_close(arena);
    tn_tensor_unref(t);
    end_domain(d);
}

TN_TEST(writes_outside_of_an_unsealed_arena_are_refused)
{
    tn_domain *d = open_domain();
    tn_arena *arena = open_unsealed(d, 100), *none;
    assert_int_equal(tn_arena_write(arena, 97, "four", 4), TN_ERR_INVALID);
    assert_int_equal(tn_arena_write(arena, 101, NULL, 0), TN_ERR_INVALID);
    assert_int_equal(tn_arena_write(arena, UINT64_MAX, "four", 4), TN_ERR_INVALID);
    assert_int_equal(tn_arena_write(arena, 4, "x", UINT64_MAX), TN_ERR_INVALID);
    assert_int_equal(tn_arena_write(arena, 0, NULL, 1), TN_ERR_INVALID);
    assert_int_equal(tn_arena_write(NULL, 0, "x", 1), TN_ERR_INVALID);
    assert_int_equal(tn_arena_seal(NULL), TN_ERR_INVALID);
    assert_int_equal(tn_arena_create_unsealed(d, 0, TN_NOW, &none), TN_ERR_INVALID);
    assert_int_equal(tn_arena_create_unsealed(d, 2 * (uint64_t)QUOTA_BYTES, TN_NOW, &none),
                     TN_ERR_NO_MEMORY);
    assert_null(tn_arena_close(arena)); /* never sealed */
    assert_int_equal(storage_mappings(), 0);
    end_domain(d);
}

TN_TEST(a_source_that_was_truncated_is_an_error_and_no_signal)
{
    tn_domain *d = open_domain();
    FILE *file = tmpfile();
    void *mapped;
    assert_int_equal(ftruncate(fileno(file), 2 << 20), 0);
    TN_CHECK_OK(tni_os_map(fileno(file), 2 << 20, tni_os_page_bytes(), true, &mapped));
    assert_int_equal(ftruncate(fileno(file), 1 << 20), 0);
    tn_arena *arena = open_unsealed(d, 2 << 20);
    assert_int_equal(tn_arena_write(arena, 0, mapped, 2 << 20), TN_ERR_SYSTEM);
    tn_arena_close(arena);
    tni_os_unmap(mapped, 2 << 20);
    fclose(file);
    end_domain(d);
}

static int fill_the_arena(void *argument)
{
    TN_CHECK(tn_arena_write(argument, 0, "x", 1) == TN_ERR_DENIED);
    TN_CHECK(tn_arena_seal(argument) == TN_ERR_DENIED);
    tn_arena_close(argument);
    return 0;
}

TN_TEST(a_forked_child_does_not_fill_its_parents_arena)
{
    tn_domain *d = open_domain();
    tn_arena *arena = open_unsealed(d, 4);
    tnt_wait_ok(tnt_fork(fill_the_arena, arena));
    TN_CHECK_OK(tn_arena_write(arena, 0, "tnn", 4));
    TN_CHECK_OK(tn_arena_seal(arena));
    tn_tensor *t = take_all(arena);
    assert_string_equal(tn_tensor_data(t), "tnn");
    tn_tensor_unref(t);
    tn_arena_close(arena);
    end_domain(d);
}

/* ---- one copy ---------------------------------------------------------------------------- */

enum { BROADCAST_BYTES = 8 << 20, MOST_READERS = 12 };
struct broadcast {
    tn_queue *queue;
    struct tnt_signal has_read, go;
};

static int read_broadcast(void *argument)
{
    struct broadcast *b = argument;
    tn_tensor *t;
    TN_CHECK_OK(tn_queue_pop_tensor(b->queue, tnt_deadline(LONG_MS), &t));
    const uint8_t *data = tn_tensor_data(t);
    for (int i = 0; i < BROADCAST_BYTES; i += 512)
        TN_CHECK(data[i] == 7);
    tnt_signal(&b->has_read);
    tnt_await(&b->go);
    tn_tensor_unref(t);
    return 0;
}

/* Memory that the domain takes up more, while so many read. */
static uint64_t bytes_with_readers(tn_domain *d, uint32_t strategy, uint32_t flags, int readers)
{
    struct broadcast b = {.has_read = tnt_signal_open(), .go = tnt_signal_open()};
    tn_tensor_options options = options_of(strategy, flags);
    pid_t pids[MOST_READERS];
    tn_tensor *t;
    TN_CHECK_OK(tn_queue_open(d, NULL, NULL, 0, &b.queue));
    for (int i = 0; i < readers; i++)
        pids[i] = tnt_fork(read_broadcast, &b);
    uint64_t before = payload_bytes(d);
    TN_CHECK_OK(tn_tensor_create(d, TN_UINT8, 1, (int64_t[]){BROADCAST_BYTES}, &options, &t));
    memset(tn_tensor_data(t), 7, BROADCAST_BYTES);
    for (int i = 0; i < readers; i++)
        TN_CHECK_OK(tn_queue_push_tensor(b.queue, t, 0, tnt_deadline(LONG_MS)));
    for (int i = 0; i < readers; i++)
        tnt_await(&b.has_read);
    uint64_t bytes = payload_bytes(d) - before;
    for (int i = 0; i < readers; i++)
        tnt_signal(&b.go);
    for (int i = 0; i < readers; i++)
        tnt_wait_ok(pids[i]);
    tn_tensor_unref(t);
    tn_object_close(b.queue);
    tnt_signal_close(&b.has_read);
    tnt_signal_close(&b.go);
    return bytes;
}

TN_TEST(any_number_of_readers_share_one_copy)
{
    for (size_t i = 0; i < TNI_COUNT(all_strategies) + 1; i++) {
        bool is_write_once = i == TNI_COUNT(all_strategies);
        uint32_t strategy = is_write_once ? TN_STRATEGY_DEFAULT : all_strategies[i];
        uint32_t flags = is_write_once ? TN_TENSOR_WRITE_ONCE : 0;
        for (int readers = 1; readers <= MOST_READERS; readers += MOST_READERS - 1) {
            tn_domain *d = open_domain();
            uint64_t bytes = bytes_with_readers(d, strategy, flags, readers);
            assert_in_range(bytes, BROADCAST_BYTES, BROADCAST_BYTES + (1 << 20));
            end_domain(d);
        }
    }
}

TN_TEST(a_tensor_that_others_write_does_not_become_write_once)
{
    tn_domain *d = tnt_domain(NULL);
    tn_tensor_options once = {.struct_size = sizeof once, .flags = TN_TENSOR_WRITE_ONCE};
    tn_tensor *t, *published;
    assert_int_equal(tn_tensor_create(d, TN_INT32, 1, (int64_t[]){4},
                                      TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED),
                                      &t),
                     0);
    assert_int_equal(tn_tensor_share(d, t, &once), TN_ERR_DENIED);
    assert_non_null(strstr(tn_error_detail(), "arena"));
    assert_int_equal(tn_tensor_share(d, t, NULL), 0);
    assert_int_equal(tn_tensor_create_private(TN_INT32, 1, (int64_t[]){4}, &published), 0);
    assert_int_equal(tn_tensor_share(d, published, &once), 0);
    assert_int_equal(tn_tensor_share(d, published, &once), 0);
    tn_tensor_unref(t);
    tn_tensor_unref(published);
    tn_domain_close(d);
}
