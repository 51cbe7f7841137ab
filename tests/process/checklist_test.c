/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of torch.multiprocessing promise to its users, unless it is bound to Python
 * or a GPU: one test here for each of those tests, and for each strategy if the strategy
 * matters. docs/decisions/0011-weakness-table.md has the list.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "harness/tensor.h"
#include "process/strategies.h"

/* A queue in each direction between two processes. */
struct talk {
    tn_queue *back;
    struct tnt_signal done;
    int rounds;
};

static struct talk open_talk(int rounds)
{
    struct talk talk = {.done = tnt_signal_open(), .rounds = rounds};
    TN_CHECK_OK(tn_queue_open(d, NULL, NULL, 0, &talk.back));
    return talk;
}

static void close_talk(struct talk *talk)
{
    tn_object_close(talk->back);
    tnt_signal_close(&talk->done);
}

static void send_back(struct talk *talk, tn_tensor *t)
{
    TN_CHECK_OK(tn_queue_push_tensor(talk->back, t, TN_PUSH_MOVE, tnt_deadline(LONG_MS)));
}

static tn_tensor *zeros(int32_t ndim, const int64_t *shape)
{
    tn_tensor *t;
    TN_CHECK_OK(tn_tensor_create(d, TN_FLOAT32, ndim, shape,
                                 TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED), &t));
    return t;
}

static tn_tensor *slice(tn_tensor *t, int32_t axis, int64_t start, int64_t stop)
{
    tn_tensor *view;
    TN_CHECK_OK(tn_tensor_slice(t, axis, start, stop, 1, &view));
    return view;
}

static float at(const tn_tensor *t, int64_t i, int64_t j)
{
    const int64_t *strides = tnt_info(t).strides;
    return number_at(t, i * strides[0] + j * strides[1]);
}

static bool are_all(const tn_tensor *t, float value)
{
    const int64_t *shape = tn_tensor_shape(t);
    for (int64_t i = 0; i < shape[0]; i++)
        for (int64_t j = 0; j < shape[1]; j++)
            if (at(t, i, j) < value || at(t, i, j) > value)
                return false;
    return true;
}

static void fill(tn_tensor *t, float value)
{
    const int64_t *shape = tn_tensor_shape(t), *strides = tnt_info(t).strides;
    for (int64_t i = 0; i < shape[0]; i++)
        for (int64_t j = 0; j < shape[1]; j++)
            ((float *)tn_tensor_data(t))[i * strides[0] + j * strides[1]] = value;
}

/* ---- test_fd_sharing, test_fs_sharing ---------------------------------------------------- */

static int fill_and_send_twice(void *argument)
{
    struct talk *talk = argument;
    for (int i = 0; i < talk->rounds; i++) {
        tn_tensor *whole = pop(), *column = pop();
        TN_CHECK(tn_tensor_same_storage(whole, column));
        fill(whole, 4);
        fill(column, 5);
        tn_tensor_unref(column);
        tn_tensor_unref(whole);
        tn_tensor *mine = zeros(2, (const int64_t[]){3, 3});
        fill(mine, (float)i);
        send_back(talk, tn_tensor_ref(mine));
        send_back(talk, mine);
    }
    return 0;
}

EACH_STRATEGY(a_child_fills_a_tensor_and_sends_one_of_its_own_twice)
{
    begin_with_tenond(strategy);
    struct talk talk = open_talk(30);
    pid_t pid = tnt_fork(fill_and_send_twice, &talk);
    for (int i = 0; i < talk.rounds; i++) {
        tn_tensor *whole = zeros(2, (const int64_t[]){5, 5}), *column = slice(whole, 1, 0, 1);
        push_kept(whole);
        push_kept(column);
        tn_tensor *one = pop_from(talk.back), *other = pop_from(talk.back);
        assert_true(are_all(column, 5));
        assert_true(at(whole, 4, 4) > 3.5f && at(whole, 4, 4) < 4.5f);
        assert_true(tn_tensor_same_storage(one, other));
        assert_ptr_equal(tn_tensor_data(one), tn_tensor_data(other));
        assert_true(are_all(one, (float)i));
        fill(one, -1);
        assert_true(are_all(other, -1));
        tn_tensor_unref(one);
        tn_tensor_unref(other);
        tn_tensor_unref(column);
        tn_tensor_unref(whole);
    }
    tnt_wait_ok(pid);
    close_talk(&talk);
    finish();
}

/* ---- test_fd_preserve_sharing, test_fs_preserve_sharing ---------------------------------- */

EACH_STRATEGY(a_tensor_its_row_and_its_column_stay_one_storage_in_a_queue)
{
    begin(strategy);
    tn_tensor *whole = zeros(2, (const int64_t[]){5, 5});
    for (int i = 0; i < 25; i++)
        ((float *)tn_tensor_data(whole))[i] = (float)i;
    tn_tensor *sent[] = {whole, slice(whole, 0, 2, 3), slice(whole, 1, 3, 4)}, *got[3];
    tn_message message = {.tensors = sent, .tensor_count = 3}, received;
    TN_CHECK_OK(tn_queue_push(q, &message, 0, TN_NOW));
    TN_CHECK_OK(tn_queue_pop(q, TN_NOW, &received));
    for (int i = 0; i < 3; i++) {
        push_kept(sent[i]);
        got[i] = pop();
        assert_true(tn_tensor_same_storage(got[i], received.tensors[0]));
        assert_true(tn_tensor_same_storage(got[i], whole));
        assert_ptr_equal(tn_tensor_data(got[i]), tn_tensor_data(sent[i]));
    }
    assert_true(at(got[1], 0, 4) > 13.5f && at(got[1], 0, 4) < 14.5f);
    assert_true(at(got[2], 4, 0) > 22.5f && at(got[2], 4, 0) < 23.5f);
    fill(got[2], 100);
    assert_true(are_all(sent[2], 100));
    for (int i = 0; i < 3; i++) {
        tn_tensor_unref(got[i]);
        tn_tensor_unref(sent[i]);
    }
    tn_message_fini(&received);
    finish();
}

/* ---- test_fd_pool, test_fs_pool ---------------------------------------------------------- */

/* Add to the tensor in place, and return another tensor. */
static int add_and_answer(tn_domain *domain, const tn_pool_job *job, tn_message *ret_result,
                          void *context)
{
    static tn_tensor *mine[1];
    (void)domain, (void)context;
    tn_tensor *t = job->message->tensors[0];
    float before = at(t, 0, 0);
    fill(t, before + 10);
    mine[0] = zeros(2, (const int64_t[]){2, 2});
    fill(mine[0], before * 2);
    ret_result->tensors = mine;
    ret_result->tensor_count = 1;
    return 0;
}

EACH_STRATEGY(pool_workers_write_to_arguments_and_return_tensors)
{
    tn_pool_options options = {.struct_size = sizeof options, .workers = 2};
    tn_tensor *arguments[4];
    tn_pool *pool;
    begin_with_tenond(strategy);
    TN_CHECK_OK(tn_pool_create(d, &options, add_and_answer, NULL, &pool));
    for (int i = 0; i < 4; i++) {
        arguments[i] = zeros(2, (const int64_t[]){5, 5});
        fill(arguments[i], (float)i);
        tn_message job = {.tensors = &arguments[i], .tensor_count = 1};
        TN_CHECK_OK(tn_pool_submit(pool, &job, 0, tnt_deadline(LONG_MS), NULL));
    }
    for (int i = 0; i < 4; i++) {
        tn_pool_result result = {.struct_size = sizeof result};
        TN_CHECK_OK(tn_pool_fetch(pool, (uint64_t)i + 1, tnt_deadline(LONG_MS), &result));
        assert_int_equal(result.status, 0);
        assert_int_equal(result.message.tensor_count, 1);
        assert_true(are_all(result.message.tensors[0], (float)(2 * i)));
        assert_true(are_all(arguments[i], (float)(i + 10)));
        tn_pool_result_fini(&result);
        tn_tensor_unref(arguments[i]);
    }
    TN_CHECK_OK(tn_pool_end(pool));
    TN_CHECK_OK(tn_pool_join(pool, tnt_deadline(LONG_MS)));
    tn_pool_close(pool);
    finish();
}

/* ---- test_fs ----------------------------------------------------------------------------- */

TN_TEST(there_is_a_file_from_the_first_share_to_the_last_reference)
{
    int64_t count = 4;
    tn_tensor *t;
    begin("file_system");
    TN_CHECK_OK(tn_tensor_create_private(TN_FLOAT32, 1, &count, &t));
    assert_int_equal(shm_files(), 0);
    TN_CHECK_OK(tn_tensor_share(d, t, NULL));
    assert_int_equal(shm_files(), 1);
    push(t);
    assert_int_equal(shm_files(), 1);
    t = pop();
    assert_int_equal(shm_files(), 1);
    tn_tensor_unref(t);
    assert_int_equal(shm_files(), 0);
    finish();
}

/* ---- test_inherit_tensor ----------------------------------------------------------------- */

static int add_to_what_is_inherited(tn_domain *domain, void *argument)
{
    (void)domain;
    for (int i = 0; i < 25; i++)
        ((float *)tn_tensor_data(argument))[i] += 3;
    return 0;
}

EACH_STRATEGY(a_child_adds_to_a_tensor_that_it_inherits)
{
    const int64_t shape[] = {5, 5};
    tn_process_status status = {.struct_size = sizeof status};
    tn_process *process;
    tn_tensor *t;
    begin(strategy);
    TN_CHECK_OK(tn_tensor_create_private(TN_FLOAT32, 2, shape, &t));
    TN_CHECK_OK(tn_tensor_share(d, t, NULL));
    TN_CHECK_OK(tn_process_fork(d, add_to_what_is_inherited, t, 0, &process));
    TN_CHECK_OK(tn_process_wait(process, tnt_deadline(LONG_MS), &status));
    assert_int_equal(status.exit_code, 0);
    tn_process_close(process);
    assert_true(are_all(t, 3));
    tn_tensor_unref(t);
    finish();
}

/* ---- test_cuda_memory_allocation, for CPU ------------------------------------------------ */

static int send_and_delete_at_once(void *argument)
{
    (void)argument;
    for (int i = 0; i < 5; i++) {
        tn_tensor *t = zeros(2, (const int64_t[]){100, 100});
        fill(t, (float)i);
        push(t);
    }
    return 0;
}

EACH_STRATEGY(five_tensors_deleted_by_their_producer_keep_their_contents)
{
    tn_tensor *held[5];
    begin_with_tenond(strategy);
    tnt_wait_ok(tnt_fork(send_and_delete_at_once, NULL));
    for (int i = 0; i < 5; i++)
        held[i] = pop();
    for (int i = 0; i < 5; i++) {
        assert_true(are_all(held[i], (float)i));
        tn_tensor_unref(held[i]);
    }
    finish();
}

/* ---- test_cuda_ipc_deadlock, for CPU ----------------------------------------------------- */

enum { PARAMETERS = 8 };

static int send_state_dicts(void *argument)
{
    struct talk *talk = argument;
    for (int i = 0; i < talk->rounds; i++) {
        tn_tensor *tensors[PARAMETERS];
        char names[PARAMETERS][16];
        for (int p = 0; p < PARAMETERS; p++) {
            tensors[p] = zeros(2, (const int64_t[]){16, 1 + p});
            fill(tensors[p], (float)(i + p));
            snprintf(names[p], sizeof names[p], "layer.%d", p);
        }
        tn_message message = {.bytes = names,
                              .size_bytes = sizeof names,
                              .tensors = tensors,
                              .tensor_count = PARAMETERS};
        TN_CHECK_OK(tn_queue_push(q, &message, TN_PUSH_MOVE, tnt_deadline(LONG_MS)));
    }
    return 0;
}

EACH_STRATEGY(state_dicts_pass_a_queue_of_one_place_without_a_deadlock)
{
    tn_domain_options options = {.struct_size = sizeof options, .quota_bytes = 64 << 20};
    begin_with(strategy, NULL, &options, 1);
    struct talk talk = open_talk(100);
    pid_t pid = tnt_fork(send_state_dicts, &talk);
    for (int i = 0; i < talk.rounds; i++) {
        tn_message message;
        TN_CHECK_OK(tn_queue_pop(q, tnt_deadline(LONG_MS), &message));
        assert_int_equal(message.tensor_count, PARAMETERS);
        assert_string_equal((const char *)message.bytes + 7 * 16, "layer.7");
        assert_true(are_all(message.tensors[7], (float)(i + 7)));
        tn_message_fini(&message);
    }
    tnt_wait_ok(pid);
    close_talk(&talk);
    finish();
}

/* ---- test_cuda_send_many, for CPU -------------------------------------------------------- */

static int send_ones(void *argument)
{
    struct talk *talk = argument;
    for (int i = 0; i < talk->rounds; i++) {
        tn_tensor *t = zeros(1, (const int64_t[]){5});
        for (int k = 0; k < 5; k++)
            ((float *)tn_tensor_data(t))[k] = 1;
        push(t);
    }
    return 0;
}

static int forward(void *argument)
{
    struct talk *talk = argument;
    for (int i = 0; i < talk->rounds; i++)
        send_back(talk, pop());
    return 0;
}

EACH_STRATEGY(as_many_as_are_sent_arrive_through_three_processes)
{
    double sum = 0;
    begin_with_tenond(strategy);
    struct talk talk = open_talk(strategy[0] == 'a' ? 100000 : 5000);
    pid_t sender = tnt_fork(send_ones, &talk), middle = tnt_fork(forward, &talk);
    for (int i = 0; i < talk.rounds; i++) {
        tn_tensor *t = pop_from(talk.back);
        for (int k = 0; k < 5; k++)
            sum += (double)number_at(t, k);
        tn_tensor_unref(t);
    }
    assert_int_equal((int)sum, 5 * talk.rounds);
    tnt_wait_ok(sender);
    tnt_wait_ok(middle);
    close_talk(&talk);
    finish();
}

/* ---- test_empty_tensor_sharing, test_empty_shared ---------------------------------------- */

EACH_STRATEGY(empty_tensors_are_sent_with_their_types_and_shapes)
{
    const tn_dtype types[] = {TN_FLOAT32, TN_INT64};
    const int64_t shapes[][2] = {{0, 3}, {3, 0}};
    begin(strategy);
    for (int i = 0; i < 2; i++) {
        tn_tensor *t, *got;
        TN_CHECK_OK(tn_tensor_create(d, types[i], 2, shapes[i], NULL, &t));
        push_kept(t);
        got = pop();
        tn_dtype type = tn_tensor_dtype(got);
        assert_memory_equal(&type, &types[i], sizeof type);
        assert_memory_equal(tn_tensor_shape(got), shapes[i], sizeof shapes[i]);
        assert_int_equal(tn_tensor_count(got), 0);
        assert_null(tn_tensor_data(got));
        assert_true(tn_tensor_same_storage(t, got));
        tn_tensor_unref(got);
        tn_tensor_unref(t);
    }
    finish();
}

EACH_STRATEGY(an_empty_private_tensor_can_be_shared)
{
    int64_t none = 0;
    tn_tensor *t;
    begin(strategy);
    TN_CHECK_OK(tn_tensor_create_private(TN_FLOAT32, 1, &none, &t));
    TN_CHECK_OK(tn_tensor_share(d, t, NULL));
    assert_true(tnt_info(t).is_shared);
    push_kept(t);
    tn_tensor_unref(pop());
    tn_tensor_unref(t);
    finish();
}

/* ---- test_variable_sharing, test_leaf_variable_sharing, test_parameter_sharing ----------- */

static int write_and_wait_for_an_answer(void *argument)
{
    struct talk *talk = argument;
    tn_tensor *t = pop();
    uint32_t flags = tn_tensor_flags(t);
    TN_CHECK(are_all(t, 1));
    fill(t, 2);
    /* The flags of the tensor come back with it, whatever they were. */
    send_back(talk, tn_tensor_ref(t));
    tnt_await(&talk->done);
    TN_CHECK(are_all(t, 3));
    TN_CHECK(tn_tensor_flags(t) == flags);
    tn_tensor_unref(t);
    return 0;
}

EACH_STRATEGY(later_writes_are_seen_both_ways_and_tensor_flags_arrive)
{
    static const uint32_t marks[] = {0, TN_REQUIRES_GRAD, TN_STOP_GRADIENT, TN_PARAMETER,
                                     TN_PARAMETER | TN_REQUIRES_GRAD};
    begin(strategy);
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
        struct talk talk = open_talk(1);
        tn_tensor *t = zeros(2, (const int64_t[]){5, 5});
        fill(t, 1);
        TN_CHECK_OK(tn_tensor_set_flags(t, marks[i]));
        pid_t pid = tnt_fork(write_and_wait_for_an_answer, &talk);
        push_kept(t);
        tn_tensor *same = pop_from(talk.back);
        assert_true(are_all(t, 2));
        assert_int_equal(tn_tensor_flags(same), marks[i]);
        fill(t, 3);
        tnt_signal(&talk.done);
        tnt_wait_ok(pid);
        tn_tensor_unref(same);
        tn_tensor_unref(t);
        close_talk(&talk);
    }
    finish();
}

/* ---- test_non_leaf_variable_sharing ------------------------------------------------------ */

/* If a message cannot be sent, the sender gets an error. Here the message is half a tensor. */
TN_TEST(what_cannot_be_sent_is_an_error_of_its_sender)
{
    tn_sparse sparse = {.layout = TN_LAYOUT_COO, .ndim = 1, .part_count = 2, .shape = {9}};
    begin("arena");
    TN_CHECK_OK(tn_tensor_create(d, TN_INT64, 2, (const int64_t[]){1, 2},
                                 TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED),
                                 &sparse.parts[0]));
    sparse.parts[1] = zeros(1, (const int64_t[]){2});
    TN_CHECK_OK(tn_sparse_mark(&sparse));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tn_queue_push_tensor(q, sparse.parts[i], 0, TN_NOW), TN_ERR_INVALID);
        assert_int_equal(tn_queue_count(q), 0);
    }
    for (int i = 0; i < 2; i++)
        tn_tensor_unref(sparse.parts[i]);
    finish();
}

/* ---- test_integer_parameter_serialization_cpu -------------------------------------------- */

static int check_integer_parameter(tn_domain *domain, void *argument)
{
    (void)domain;
    tn_dtype type = tn_tensor_dtype(argument);
    return type == TN_INT64 && tn_tensor_flags(argument) == TN_PARAMETER &&
                   ((const int64_t *)tn_tensor_data(argument))[2] == 30
               ? 0
               : 1;
}

EACH_STRATEGY(an_integer_parameter_is_the_argument_of_a_process)
{
    const int64_t values[] = {10, 20, 30}, count = 3;
    tn_process_status status = {.struct_size = sizeof status};
    tn_process *process;
    tn_tensor *t;
    begin(strategy);
    TN_CHECK_OK(tn_tensor_create(
        d, TN_INT64, 1, &count,
        TN_OPTIONS(tn_tensor_options, .source = values, .source_bytes = sizeof values), &t));
    TN_CHECK_OK(tn_tensor_set_flags(t, TN_PARAMETER));
    TN_CHECK_OK(tn_process_fork(d, check_integer_parameter, t, 0, &process));
    TN_CHECK_OK(tn_process_wait(process, tnt_deadline(LONG_MS), &status));
    assert_int_equal(status.exit_code, 0);
    tn_process_close(process);
    tn_tensor_unref(t);
    finish();
}

/* ---- test_is_shared, test_fs_is_shared --------------------------------------------------- */

EACH_STRATEGY(a_tensor_is_shared_after_it_was_shared_and_not_before)
{
    int64_t count = 5;
    tn_tensor *t, *view;
    begin(strategy);
    TN_CHECK_OK(tn_tensor_create_private(TN_FLOAT32, 1, &count, &t));
    view = slice(t, 0, 1, 2);
    assert_false(tnt_info(t).is_shared || tnt_info(view).is_shared);
    assert_int_equal(tnt_info(t).strategy, TN_STRATEGY_DEFAULT);
    TN_CHECK_OK(tn_tensor_share(d, t, NULL));
    assert_true(tnt_info(t).is_shared && tnt_info(view).is_shared);
    assert_string_equal(tn_strategy_name(tnt_info(t).strategy), strategy);
    tn_tensor_unref(view);
    tn_tensor_unref(t);
    finish();
}

/* ---- test_set_thread_name ---------------------------------------------------------------- */

static int name_itself(tn_domain *domain, void *argument)
{
    char name[17] = "";
    (void)argument;
    tn_queue *queue;
    if (prctl(PR_SET_NAME, "loader-3", 0, 0, 0) != 0)
        return 2;
    if (tn_queue_open(domain, NULL, NULL, 0, &queue) != 0)
        return 3;
    tn_object_close(queue);
    prctl(PR_GET_NAME, name, 0, 0, 0);
    return strcmp(name, "loader-3") != 0;
}

TN_TEST(the_name_that_a_child_gives_itself_stays)
{
    tn_process_status status = {.struct_size = sizeof status};
    tn_process *process;
    begin("arena");
    TN_CHECK_OK(tn_process_fork(d, name_itself, NULL, 0, &process));
    TN_CHECK_OK(tn_process_wait(process, tnt_deadline(LONG_MS), &status));
    assert_int_equal(status.exit_code, 0);
    tn_process_close(process);
    finish();
}
