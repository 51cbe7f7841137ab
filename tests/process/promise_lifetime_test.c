/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Faults that users of other ways to share tensors report, as far as they concern how long
 * memory lives: after its producer, its readers, its helper process. For each cause there is
 * a test that brings it about. docs/decisions/0011-weakness-table.md has the list (W1 ...).
 */
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "harness/tensor.h"
#include "process/strategies.h"

enum { MIB = 1 << 20 };

/* ---- W4, W16: data that ends with its producer ------------------------------------------- */

static int push_three(void *argument)
{
    for (int i = 0; i < 3; i++)
        push(numbers(1000, (float)i));
    if (argument != NULL)
        raise(SIGKILL);
    return 0;
}

static void outlives(const char *strategy, void *is_killed)
{
    begin_with_tenond(strategy);
    tnt_wait(tnt_fork(push_three, is_killed));
    for (int i = 0; i < 3; i++) {
        tn_tensor *t = pop();
        assert_true(is_number(t, 999, (float)(i + 999)));
        tn_tensor_unref(t);
    }
    finish();
}

EACH_STRATEGY(what_was_pushed_outlives_a_producer_that_exits) { outlives(strategy, NULL); }
EACH_STRATEGY(what_was_pushed_outlives_a_producer_that_is_killed) { outlives(strategy, &d); }

/* ---- W5, W15, W20: what dead processes and lost messages hold ---------------------------- */

static int take_and_hang(void *argument)
{
    tn_tensor *t = pop();
    TN_CHECK(tnt_info(t).size_bytes == 20 * MIB);
    tnt_signal(argument);
    return hang();
}

static int go_on(void *argument)
{
    tn_tensor *mine = numbers(4, 4);
    for (float value = 0; value < 100; value++) {
        tn_tensor *t = pop();
        TN_CHECK(is_number(t, 0, value) && is_number(mine, 3, 7));
        tn_tensor_unref(t);
    }
    (void)argument;
    tn_tensor_unref(mine);
    return 0;
}

static bool has_room_for(int64_t bytes)
{
    tn_tensor *t = NULL;
    int status = tn_tensor_create(d, TN_UINT8, 1, &bytes, NULL, &t);
    TN_CHECK(status == 0 || status == TN_ERR_NO_MEMORY);
    tn_tensor_unref(t);
    return status == 0;
}

/*
 * Waits for room, since tenond keeps the descriptor of a memory object for a moment after its
 * last reference.
 */
static tn_tensor *await_room_for(int64_t bytes)
{
    tn_tensor *t;
    TN_CHECK_OK(
        tn_tensor_create(d, TN_UINT8, 1, &bytes,
                         TN_OPTIONS(tn_tensor_options, .deadline = tnt_deadline(LONG_MS)), &t));
    return t;
}

EACH_STRATEGY(what_a_killed_reader_held_comes_back_while_others_go_on)
{
    struct tnt_signal has_it = tnt_signal_open();
    begin_with_quota(strategy, 32 * MIB);
    push(await_room_for(20 * MIB));
    pid_t reader = tnt_fork(take_and_hang, &has_it);
    tnt_await(&has_it);
    pid_t other = tnt_fork(go_on, NULL);
    for (float value = 0; value < 50; value++)
        push(numbers(4, value));
    assert_false(has_room_for(20 * MIB));
    tnt_kill(reader);
    tn_tensor *t = await_room_for(20 * MIB);
    for (float value = 50; value < 100; value++)
        push(numbers(4, value));
    tnt_wait_ok(other);
    tn_tensor_unref(t);
    tnt_signal_close(&has_it);
    finish();
}

static int read_and_let_go(void *argument)
{
    tn_tensor *t = pop();
    tn_tensor_unref(t);
    tnt_signal(argument);
    return hang();
}

/* No process has to collect anything, least of all the producer. */
EACH_STRATEGY(memory_comes_back_when_the_last_reader_lets_go)
{
    struct tnt_signal let_go = tnt_signal_open();
    begin_with_quota(strategy, 32 * MIB);
    pid_t reader = tnt_fork(read_and_let_go, &let_go);
    push(await_room_for(20 * MIB));
    tnt_await(&let_go);
    tn_tensor_unref(await_room_for(20 * MIB));
    tnt_kill(reader);
    tnt_signal_close(&let_go);
    finish();
}

EACH_STRATEGY(an_unread_message_ends_with_its_queue)
{
    begin_with_quota(strategy, 32 * MIB);
    push(await_room_for(20 * MIB));
    assert_false(has_room_for(20 * MIB));
    q = tn_object_close(q);
    tn_tensor_unref(await_room_for(20 * MIB));
    finish();
}

/* ---- W6: the helper ---------------------------------------------------------------------- */

struct exchange {
    tn_queue *back;
    struct tnt_signal done;
};

static int exchange(void *argument)
{
    struct exchange *exchange = argument;
    tn_tensor *t = pop(), *mine = numbers(2, 60);
    ((float *)tn_tensor_data(t))[0] += 1;
    TN_CHECK_OK(tn_queue_push_tensor(exchange->back, t, 0, tnt_deadline(LONG_MS)));
    TN_CHECK_OK(tn_queue_push_tensor(exchange->back, mine, 0, tnt_deadline(LONG_MS)));
    tnt_await(&exchange->done);
    tn_tensor_unref(t);
    tn_tensor_unref(mine);
    return 0;
}

static void exchange_both_ways(void)
{
    struct exchange e = {.done = tnt_signal_open()};
    TN_CHECK_OK(tn_queue_open(d, NULL, NULL, 0, &e.back));
    pid_t pid = tnt_fork(exchange, &e);
    tn_tensor *mine = numbers(2, 5);
    push_kept(mine);
    tn_tensor *same = pop_from(e.back), *theirs = pop_from(e.back);
    assert_true(tn_tensor_same_storage(same, mine));
    assert_true(is_number(mine, 0, 6));
    assert_true(is_number(theirs, 1, 61));
    tnt_signal(&e.done);
    tnt_wait_ok(pid);
    assert_true(is_number(theirs, 1, 61));
    tn_tensor_unref(mine);
    tn_tensor_unref(same);
    tn_tensor_unref(theirs);
    tn_object_close(e.back);
    tnt_signal_close(&e.done);
}

EACH_STRATEGY(sharing_works_without_tenond)
{
    setenv("TENON_TENOND", "/nowhere/tenond", 1);
    begin(strategy);
    exchange_both_ways();
    finish();
}

static int pop_one_of_seven(void *argument)
{
    tnt_await(argument);
    tn_tensor *t = pop();
    TN_CHECK(is_number(t, 0, 7));
    tn_tensor_unref(t);
    return 0;
}

/* Its producer lives, but has released it: only the message keeps it. */
EACH_STRATEGY(what_was_moved_into_a_message_is_there_without_tenond)
{
    struct tnt_signal moved = tnt_signal_open();
    begin(strategy);
    pid_t pid = tnt_fork(pop_one_of_seven, &moved);
    push(numbers(4, 7));
    tnt_signal(&moved);
    tnt_wait_ok(pid);
    tnt_signal_close(&moved);
    finish();
}

EACH_STRATEGY(sharing_goes_on_when_tenond_is_killed)
{
    begin_with_tenond(strategy);
    exchange_both_ways();
    kill_tenond();
    exchange_both_ways();
    finish();
}

/* tenon has no file there. */
TN_TEST(a_long_tmpdir_is_no_error)
{
    char folder[400];
    memset(folder, 'x', sizeof folder);
    folder[0] = '/';
    folder[sizeof folder - 1] = '\0';
    setenv("TMPDIR", folder, 1);
    begin_with_tenond("file_system");
    exchange_both_ways();
    finish();
}

TN_TEST(a_runtime_folder_with_a_too_long_path_is_refused)
{
    char folder[512];
    tn_domain *domain = NULL;
    memset(folder, 'x', sizeof folder);
    int used = snprintf(folder, sizeof folder, "%s/", tnt_folder());
    folder[used] = 'x';
    folder[200] = '\0';
    setenv("TENON_RUNTIME_DIR", folder, 1);
    assert_int_equal(tn_domain_open("long", NULL, TN_OPEN_NEW, &domain), TN_ERR_INVALID);
    assert_non_null(strstr(tn_error_detail(), "200 bytes long"));
    assert_null(domain);
}

/* ---- W13, W14: counting ------------------------------------------------------------------ */

static int unref_and_leave(void *argument)
{
    TN_CHECK(is_number(argument, 0, 3));
    tn_tensor_unref(argument);
    d = tn_domain_close(d);
    return 0;
}

static int hold_and_exit(void *argument)
{
    TN_CHECK(is_number(argument, 0, 3));
    return 0;
}

EACH_STRATEGY(a_fork_after_sharing_counts_once)
{
    begin(strategy);
    tn_tensor *t = numbers(1000, 3), *other;
    for (int i = 0; i < 5; i++) {
        tnt_wait_ok(tnt_fork(i % 2 == 0 ? unref_and_leave : hold_and_exit, t));
        /* It would be the same memory, if the child had ended this process's tensor. */
        other = numbers(1000, 8);
        assert_true(is_number(t, 999, 1002));
        tn_tensor_unref(other);
    }
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    TNT_AUDIT(d);
    tn_tensor_unref(t);
    finish();
}

EACH_STRATEGY(a_forked_child_keeps_what_its_parent_gave_back)
{
    struct tnt_signal given_back = tnt_signal_open();
    begin(strategy);
    tn_tensor *t = numbers(1000, 3);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        tnt_await(&given_back);
        TN_CHECK(is_number(t, 999, 1002));
        _exit(0);
    }
    tn_tensor_unref(t);
    for (int i = 0; i < 10; i++) {
        t = numbers(1000, 9);
        tn_tensor_unref(t);
    }
    tnt_signal(&given_back);
    tnt_wait_ok(pid);
    tnt_signal_close(&given_back);
    finish();
}

enum { SENDS = 400 };

static int read_half(void *argument)
{
    tn_tensor *storage = NULL;
    for (int i = 0; i < SENDS / 2; i++) {
        tn_tensor *t = pop();
        TN_CHECK(storage == NULL || tn_tensor_same_storage(storage, t));
        if (storage == NULL)
            storage = t;
        else
            tn_tensor_unref(t);
    }
    (void)argument;
    tn_tensor_unref(storage);
    return 0;
}

/* The count is neither too high, which would leak, nor below zero. */
EACH_STRATEGY(a_tensor_sent_many_times_and_read_half_is_counted_exactly)
{
    begin_with_quota(strategy, 32 * MIB);
    tn_tensor *t = await_room_for(20 * MIB);
    for (int i = 0; i < SENDS; i++)
        push_kept(t);
    tnt_wait_ok(tnt_fork(read_half, NULL));
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    TNT_AUDIT(d);
    tn_tensor_unref(t);
    assert_false(has_room_for(20 * MIB)); /* the other half of the memory is held */
    q = tn_object_close(q);
    tn_tensor_unref(await_room_for(20 * MIB));
    finish();
}

EACH_STRATEGY(a_handle_that_is_read_twice_or_never_costs_nothing)
{
    uint8_t bytes[2][TN_HANDLE_MAX_BYTES];
    size_t used[2];
    tn_tensor *got, *again = NULL;
    begin_with_quota(strategy, 32 * MIB);
    tn_tensor *t = await_room_for(20 * MIB);
    for (int i = 0; i < 2; i++)
        TN_CHECK_OK(tn_handle_export(t, NULL, bytes[i], sizeof bytes[i], &used[i]));
    tn_tensor_unref(t);
    TN_CHECK_OK(tn_handle_import(d, bytes[0], used[0], &got));
    assert_int_equal(tn_handle_import(d, bytes[0], used[0], &again), TN_ERR_STALE);
    assert_null(again);
    tn_tensor_unref(got);
    assert_false(has_room_for(20 * MIB)); /* the second consumer holds the memory */
    TN_CHECK_OK(tn_handle_revoke(d, bytes[1], used[1]));
    tn_tensor_unref(await_room_for(20 * MIB));
    finish();
}

/* ---- W22: passing on --------------------------------------------------------------------- */

struct link {
    tn_queue *from, *to;
};

/* When it returns, only the next queue has a reference to the tensor. */
static int pass_on(void *argument)
{
    struct link *link = argument;
    tn_tensor *t = pop_from(link->from);
    ((float *)tn_tensor_data(t))[0] += 1;
    TN_CHECK_OK(tn_queue_push_tensor(link->to, t, TN_PUSH_MOVE, tnt_deadline(LONG_MS)));
    raise(SIGKILL);
    return 0;
}

EACH_STRATEGY(a_received_tensor_can_be_passed_on_after_its_maker_died)
{
    enum { LINKS = 4 };
    tn_queue *queues[LINKS + 1];
    begin_with_tenond(strategy);
    queues[0] = q;
    for (int i = 1; i <= LINKS; i++)
        TN_CHECK_OK(tn_queue_open(d, NULL, NULL, 0, &queues[i]));
    tnt_wait(tnt_fork(push_three, &d));
    for (int i = 0; i < LINKS; i++) {
        struct link link = {queues[i], queues[i + 1]};
        tnt_wait(tnt_fork(pass_on, &link));
    }
    tn_tensor *t = pop_from(queues[LINKS]);
    assert_true(is_number(t, 0, LINKS));
    assert_true(is_number(t, 999, 999));
    tn_tensor_unref(t);
    for (int i = 1; i <= LINKS; i++)
        tn_object_close(queues[i]);
    finish();
}

/* ---- W23, W24: what goes along, and what rights it takes --------------------------------- */

TN_TEST(sending_a_tensor_outside_does_not_hand_out_the_arena)
{
    int sockets[2];
    begin("arena");
    TN_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) == 0);
    tn_tensor *t = numbers(4, 0);
    assert_int_equal(tn_tensor_send(t, sockets[0], 0, tnt_deadline(LONG_MS)),
                     TN_ERR_UNSUPPORTED);
    tn_tensor_unref(t);
    close(sockets[0]);
    close(sockets[1]);
    finish();
}

static int receive_as_another_user(void *argument)
{
    int *sockets = argument;
    tn_tensor *t = NULL;
    if (geteuid() == 0)
        TN_CHECK(setgid(65534) == 0 && setuid(65534) == 0);
    TN_CHECK_OK(tn_tensor_receive(sockets[1], tnt_deadline(LONG_MS), &t));
    TN_CHECK(is_number(t, 3, 8) && tnt_info(t).is_read_only);
    tn_tensor_unref(t);
    return 0;
}

/* Where ptrace is forbidden, pidfd_getfd() and /proc/PID/fd are, too; this test forbids it. */
TN_TEST(a_tensor_crosses_to_another_user_without_the_right_to_trace)
{
    int sockets[2];
    TN_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) == 0);
    pid_t pid = tnt_fork(receive_as_another_user, sockets);
    begin("file_descriptor");
    tn_tensor *t = numbers(4, 5);
    TN_CHECK(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0);
    TN_CHECK_OK(tn_tensor_send(t, sockets[0], TN_SEND_READ_ONLY, tnt_deadline(LONG_MS)));
    tnt_wait_ok(pid);
    tn_tensor_unref(t);
    close(sockets[0]);
    close(sockets[1]);
    finish();
}
