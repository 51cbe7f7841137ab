/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Faults that users of other ways to share tensors report, as far as they concern the cost of
 * a hand-over, and processes and threads and their ends. For each cause there is a test that
 * brings it about. docs/decisions/0011-weakness-table.md has the list (W1 ...).
 */
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/tensor.h"
#include "object/object.h"
#include "process/strategies.h"
#include "wait/wait.h"

enum { MIB = 1 << 20 };

/* ---- W3, W17, W19: system calls for each tensor ------------------------------------------ */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static const bool is_sanitized = true;
#else
static const bool is_sanitized = false;
#endif

static void end_with_call_number(int number, siginfo_t *info, void *context)
{
    (void)number, (void)context;
    _exit(info->si_syscall < 255 ? info->si_syscall : 255);
}

/*
 * From now on, each system call but exit ends this process; its exit code says which call it
 * was.
 */
static void forbid_system_calls(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
    };
    struct sock_fprog program = {sizeof code / sizeof code[0], code};
    struct sigaction action = {.sa_sigaction = end_with_call_number, .sa_flags = SA_SIGINFO};
    TN_CHECK(sigaction(SIGSYS, &action, NULL) == 0);
    TN_CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    TN_CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

enum { WARM_ROUNDS = 3000, COUNTED_ROUNDS = 20000 };

/* Polls, since a process that sleeps makes a system call, and so does the one that wakes it. */
static tn_tensor *poll_one(void)
{
    tn_tensor *t = NULL;
    int status;
    do
        status = tn_queue_pop_tensor(q, TN_NOW, &t);
    while (status == TN_ERR_TIMED_OUT);
    return status == 0 ? t : NULL;
}

static bool receive_rounds(int rounds)
{
    for (int i = 0; i < rounds; i++) {
        tn_tensor *t = poll_one();
        if (t == NULL || !is_number(t, 3, (float)(i + 3)))
            return false;
        tn_tensor_unref(t);
    }
    return true;
}

static bool send_rounds(int rounds)
{
    const int64_t count = 16;
    for (int i = 0; i < rounds; i++) {
        tn_tensor *t;
        if (tn_tensor_create(d, TN_FLOAT32, 1, &count, NULL, &t) != 0)
            return false;
        ((float *)tn_tensor_data(t))[3] = (float)(i + 3);
        int status;
        do
            status = tn_queue_push_tensor(q, t, TN_PUSH_MOVE, TN_NOW);
        while (status == TN_ERR_TIMED_OUT);
        if (status != 0)
            return false;
    }
    return true;
}

static int receive_without_calls(void *argument)
{
    (void)argument;
    TN_CHECK(receive_rounds(WARM_ROUNDS));
    forbid_system_calls();
    _exit(receive_rounds(COUNTED_ROUNDS) ? 0 : 1);
}

static int send_without_calls(void *argument)
{
    (void)argument;
    TN_CHECK(send_rounds(WARM_ROUNDS));
    forbid_system_calls();
    _exit(send_rounds(COUNTED_ROUNDS) ? 0 : 1);
}

TN_TEST(tensors_made_sent_received_and_released_take_no_system_call)
{
    if (is_sanitized)
        tnt_skip("a sanitizer makes system calls of its own");
    begin("arena");
    pid_t receiver = tnt_fork(receive_without_calls, NULL);
    pid_t sender = tnt_fork(send_without_calls, NULL);
    tnt_wait_ok(sender);
    tnt_wait_ok(receiver);
    finish();
}

static int receive_the_same_again(void *argument)
{
    (void)argument;
    tn_tensor *known = poll_one();
    forbid_system_calls();
    for (int i = 0; i < COUNTED_ROUNDS; i++) {
        tn_tensor *t = poll_one();
        if (t == NULL || !tn_tensor_same_storage(t, known))
            _exit(1);
        tn_tensor_unref(t);
    }
    _exit(0);
}

static int send_the_same_again(void *argument)
{
    tn_tensor *t = argument;
    push_kept(t);
    forbid_system_calls();
    for (int i = 0; i < COUNTED_ROUNDS; i++) {
        int status;
        do
            status = tn_queue_push_tensor(q, t, 0, TN_NOW);
        while (status == TN_ERR_TIMED_OUT);
        if (status != 0)
            _exit(1);
    }
    _exit(0);
}

EACH_STRATEGY(a_storage_that_arrives_again_costs_no_system_call)
{
    if (is_sanitized)
        tnt_skip("a sanitizer makes system calls of its own");
    begin(strategy);
    pid_t receiver = tnt_fork(receive_the_same_again, NULL);
    tn_tensor *t = numbers(16, 0);
    pid_t sender = tnt_fork(send_the_same_again, t);
    tnt_wait_ok(sender);
    tnt_wait_ok(receiver);
    tn_tensor_unref(t);
    finish();
}

struct shared {
    tn_store *store;
    tn_channel *channel; /* this process subscribes */
    tn_tensor *tensor;
};

static bool is_this(tn_message *got, int status, const tn_tensor *tensor)
{
    bool is = status == 0 && got->tensor_count == 1 &&
              tn_tensor_same_storage(got->tensors[0], tensor);
    if (status == 0)
        tn_message_fini(got);
    return is;
}

static bool share_rounds(const struct shared *s, int rounds)
{
    const tn_message m = {.tensors = (tn_tensor **)&s->tensor, .tensor_count = 1};
    for (int i = 0; i < rounds; i++) {
        tn_message got;
        if (tn_store_put(s->store, "changed", &m, NULL, NULL) != 0 ||
            !is_this(&got, tn_store_get(s->store, "kept", &got, NULL), s->tensor) ||
            !is_this(&got, tn_store_get(s->store, "changed", &got, NULL), s->tensor) ||
            tn_store_get(s->store, "absent", &got, NULL) != TN_ERR_NOT_FOUND ||
            tn_channel_publish(s->channel, &m, TN_NOW) != 0 ||
            !is_this(&got, tn_channel_receive(s->channel, TN_NOW, &got), s->tensor))
            return false;
    }
    return true;
}

static int share_without_calls(void *argument)
{
    const struct shared *s = argument;
    TN_CHECK_OK(tn_channel_subscribe(s->channel, TN_FROM_NEWEST));
    TN_CHECK(share_rounds(s, WARM_ROUNDS));
    forbid_system_calls();
    _exit(share_rounds(s, COUNTED_ROUNDS) ? 0 : 1);
}

TN_TEST(gets_puts_publishes_and_receives_take_no_system_call)
{
    if (is_sanitized)
        tnt_skip("a sanitizer makes system calls of its own");
    begin("arena");
    struct shared s = {.tensor = numbers(16, 0)};
    TN_CHECK_OK(tn_store_open(d, NULL, NULL, 0, &s.store));
    TN_CHECK_OK(tn_channel_open(d, NULL, NULL, 0, &s.channel));
    TN_CHECK_OK(tn_store_put(
        s.store, "kept", &(tn_message){.tensors = &s.tensor, .tensor_count = 1}, NULL, NULL));
    tnt_wait_ok(tnt_fork(share_without_calls, &s));
    tn_object_close(s.store);
    tn_object_close(s.channel);
    tn_tensor_unref(s.tensor);
    finish();
}

/* ---- W25: errors and locks of queues ----------------------------------------------------- */

TN_TEST(an_error_of_push_reaches_the_caller_of_push)
{
    int64_t count = 1;
    tn_tensor *private_one, *t;
    tn_domain_options options = {.struct_size = sizeof options, .flags = TN_DOMAIN_NO_MANAGER};
    tn_domain *other = tnt_domain(&options);
    begin("arena");
    TN_CHECK_OK(tn_tensor_create_private(TN_INT8, 1, &count, &private_one));
    TN_CHECK_OK(tn_tensor_create(other, TN_INT8, 1, &count, NULL, &t));
    assert_int_equal(tn_queue_push_tensor(q, private_one, 0, TN_NOW), TN_ERR_INVALID);
    assert_int_equal(tn_queue_push_tensor(q, t, 0, TN_NOW), TN_ERR_INVALID);
    tn_tensor_unref(t);
    tn_tensor_unref(private_one);
    tn_domain_close(other);
    /* The receiver is not told of these failures, and does not wait for their messages. */
    push(numbers(2, 70));
    t = pop();
    assert_true(is_number(t, 0, 70));
    tn_tensor_unref(t);
    finish();
}

/* Later changes do not arrive: no thread copies the message after push() has returned. */
TN_TEST(what_is_pushed_as_bytes_is_what_it_was_then)
{
    char text[200] = "before";
    tn_message message = {.bytes = text, .size_bytes = sizeof text};
    begin("arena");
    TN_CHECK_OK(tn_queue_push(q, &message, 0, TN_NOW));
    snprintf(text, sizeof text, "after");
    TN_CHECK_OK(tn_queue_pop(q, TN_NOW, &message));
    assert_string_equal(message.bytes, "before");
    tn_message_fini(&message);
    finish();
}

#if defined(TN_KILL_POINTS)
static int push_one(void *argument)
{
    (void)argument;
    push(numbers(4, 1));
    return 0;
}

static int pop_one(void *argument)
{
    (void)argument;
    tn_tensor_unref(pop());
    return 0;
}

/* In other queues a lock would stay locked; a tenon queue has no lock. */
TN_TEST(a_process_killed_inside_push_or_pop_blocks_no_other)
{
    static const char *const in_push[] = {"push_claimed", "push_lent", "push_full",
                                          "push_tail_passed"};
    static const char *const in_pop[] = {"pop_taken", "pop_emptied"};
    tn_message message;
    begin("arena");
    for (size_t i = 0; i < sizeof in_push / sizeof in_push[0]; i++) {
        tnt_kill_at(in_push[i], 1, push_one, NULL);
        push(numbers(4, 100));
        tn_tensor *t = pop(); /* the tensor of the dead process, if its message arrived, else
                                 this process's */
        tn_tensor_unref(t);
        TN_CHECK_OK(tn_domain_reap(d, NULL));
        while (tn_queue_pop(q, TN_NOW, &message) == 0)
            tn_message_fini(&message);
    }
    for (size_t i = 0; i < sizeof in_pop / sizeof in_pop[0]; i++) {
        push(numbers(4, 1));
        assert_true(tnt_kill_at(in_pop[i], 1, pop_one, NULL));
        push(numbers(4, 101));
        tn_tensor *t = pop();
        tn_tensor_unref(t);
        TN_CHECK_OK(tn_domain_reap(d, NULL));
        while (tn_queue_pop(q, TN_NOW, &message) == 0)
            tn_message_fini(&message);
    }
    finish();
}
#endif

struct locked {
    tn_lock *lock;
    struct tnt_signal has_it;
};

static int lock_and_hang(void *argument)
{
    struct locked *locked = argument;
    TN_CHECK_OK(tn_lock_acquire(locked->lock, tnt_deadline(LONG_MS)));
    tnt_signal(&locked->has_it);
    return hang();
}

TN_TEST(a_killed_lock_owner_blocks_no_other_process)
{
    struct locked locked = {.has_it = tnt_signal_open()};
    begin("arena");
    TN_CHECK_OK(tn_lock_open(d, NULL, 0, &locked.lock));
    pid_t pid = tnt_fork(lock_and_hang, &locked);
    tnt_await(&locked.has_it);
    assert_int_equal(tn_lock_acquire(locked.lock, TN_NOW), TN_ERR_TIMED_OUT);
    tnt_kill(pid);
    assert_int_equal(tn_lock_acquire(locked.lock, tnt_deadline(LONG_MS)), TN_LOCK_RECOVERED);
    assert_int_equal(tn_error_peer().pid, pid);
    TN_CHECK_OK(tn_lock_release(locked.lock));
    tn_object_close(locked.lock);
    tnt_signal_close(&locked.has_it);
    finish();
}

/* ---- W26: waits that go on --------------------------------------------------------------- */

static int attach_and_hang(void *argument)
{
    TN_CHECK_OK(tn_queue_attach(q, TN_PRODUCER));
    tnt_signal(argument);
    return hang();
}

static void *kill_when_asleep(void *argument)
{
    const _Atomic uint32_t *items = &((const struct tn_object *)q)->object->items;
    while ((atomic_load(items) & TNI_WAIT_ARMED) == 0)
        tni_os_yield();
    kill(*(pid_t *)argument, SIGKILL);
    return NULL;
}

/* At once: torch checks every 5 s, where it checks at all. */
static void ends_a_wait_at_once(void)
{
    struct tnt_signal ready = tnt_signal_open();
    pthread_t killer;
    tn_tensor *t;
    pid_t pid = tnt_fork(attach_and_hang, &ready);
    tnt_await(&ready);
    TN_CHECK(pthread_create(&killer, NULL, kill_when_asleep, &pid) == 0);
    uint64_t before_ns = tni_os_now_ns();
    assert_int_equal(tn_queue_pop_tensor(q, TN_FOREVER, &t), TN_ERR_PEER_DIED);
    uint64_t ms = (tni_os_now_ns() - before_ns) / 1000000;
    assert_int_equal(tn_error_peer().pid, pid);
    assert_true(ms < 2500);
    tnt_note("%llu ms", (unsigned long long)ms);
    pthread_join(killer, NULL);
    tnt_wait(pid);
    tnt_signal_close(&ready);
}

TN_TEST(the_death_of_a_peer_ends_a_wait_at_once)
{
    begin_with_tenond("arena");
    ends_a_wait_at_once();
    finish();
}

TN_TEST(the_death_of_a_peer_ends_a_wait_at_once_without_tenond)
{
    begin("arena");
    ends_a_wait_at_once();
    finish();
}

/* ---- W27: which processes may attach ----------------------------------------------------- */

/*
 * This program again, started by no process of this test; it knows two names and nothing
 * else.
 */
static void be_unrelated(void)
{
    tn_tensor *by_path;
    TN_CHECK_OK(tn_domain_open("open-house", NULL, TN_OPEN_EXISTING, &d));
    TN_CHECK_OK(tn_queue_open(d, "work", NULL, TN_OPEN_EXISTING, &q));
    TN_CHECK_OK(tn_tensor_open_path(getenv("TNT_PROGRAM"), &by_path));
    float first = number_at(by_path, 0);
    tn_tensor_unref(by_path); /* first, since the last release removes the file */
    push(numbers(3, first));
    tn_object_close(q);
    tn_domain_close(d);
    fflush(NULL);
    _exit(0);
}

__attribute__((constructor)) static void be_a_program(void)
{
    if (getenv("TNT_PROGRAM") != NULL)
        be_unrelated();
}

static int start_unrelated(void *argument)
{
    fflush(NULL);
    if (fork() != 0)
        return 0;
    setsid();
    setenv("TNT_PROGRAM", argument, 1);
    execl("/proc/self/exe", "unrelated", (char *)NULL);
    _exit(1);
}

TN_TEST(a_program_of_another_parent_attaches_by_name)
{
    tn_domain_options options = {.struct_size = sizeof options, .quota_bytes = 64 * MIB};
    char path[256];
    begin_with("file_system", "open-house", &options, 16);
    tn_tensor *named = numbers(4, 44);
    snprintf(path, sizeof path, "%s", tnt_info(named).path);
    tnt_wait_ok(tnt_fork(start_unrelated, path));
    tn_tensor *t = pop();
    assert_true(is_number(t, 2, 46));
    tn_tensor_unref(t);
    tn_tensor_unref(named);
    finish();
}

/* ---- W28: which process holds which block ------------------------------------------------ */

struct looking {
    uint64_t bytes;
    int32_t pids[4];
    uint32_t pid_count, in_messages, in_tickets, found;
    uint64_t age_ns;
};

static int look_at_block(const tn_block_entry *block, void *context)
{
    struct looking *looking = context;
    if (block->bytes != looking->bytes)
        return 0;
    looking->found++;
    looking->in_messages = block->in_messages;
    looking->in_tickets = block->in_tickets;
    looking->age_ns = block->age_ns;
    looking->pid_count = block->holder_count;
    for (uint32_t i = 0; i < block->holder_count && i < 4; i++)
        looking->pids[i] = block->holders[i].pid;
    return 0;
}

static struct looking look_for(uint64_t bytes)
{
    struct looking looking = {.bytes = bytes};
    tn_inspector *inspector;
    TN_CHECK_OK(tn_inspector_open("house", &inspector));
    TN_CHECK_OK(tn_inspect_blocks(inspector, look_at_block, &looking));
    tn_inspector_close(inspector);
    return looking;
}

static bool names(const struct looking *looking, int32_t pid)
{
    for (uint32_t i = 0; i < looking->pid_count && i < 4; i++)
        if (looking->pids[i] == pid)
            return true;
    return false;
}

static int hold_one(void *argument)
{
    tn_tensor *t = pop();
    tnt_signal(argument);
    (void)t;
    return hang();
}

EACH_STRATEGY(each_holder_and_what_it_holds_can_be_listed)
{
    struct tnt_signal ready = tnt_signal_open();
    tn_domain_options options = {.struct_size = sizeof options, .quota_bytes = 64 * MIB};
    begin_with(strategy, "house", &options, 16);
    pid_t pid = tnt_fork(hold_one, &ready);
    tn_tensor *t = numbers(12345, 0);
    push_kept(t);
    tnt_await(&ready);
    push_kept(t);
    struct looking seen = look_for(12345 * sizeof(float));
    assert_int_equal(seen.found, 1);
    assert_int_equal(seen.pid_count, 2);
    assert_true(names(&seen, getpid()) && names(&seen, pid));
    assert_int_equal(seen.in_messages, 1);
    assert_int_equal(seen.in_tickets, 0);
    assert_true(seen.age_ns > 0);
    tnt_kill(pid);
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    tn_tensor_unref(pop());
    seen = look_for(12345 * sizeof(float));
    assert_int_equal(seen.pid_count, 1);
    assert_int_equal(seen.in_messages, 0);
    assert_true(names(&seen, getpid()));
    tn_tensor_unref(t);
    assert_int_equal(look_for(12345 * sizeof(float)).found, 0);
    tnt_signal_close(&ready);
    finish();
}

/* ---- W29: threads ------------------------------------------------------------------------ */

enum { THREADS = 4, THREAD_ROUNDS = 300, COLUMNS = 64 };

/*
 * Each thread makes, sends, receives and releases views of one storage, at the same time as
 * the others.
 */
static void *send_and_receive_views(void *argument)
{
    tn_tensor *whole = argument;
    for (int i = 0; i < THREAD_ROUNDS; i++) {
        tn_tensor *view, *t;
        TN_CHECK_OK(tn_tensor_slice(whole, 0, i % COLUMNS, i % COLUMNS + 1, 1, &view));
        TN_CHECK_OK(tn_queue_push_tensor(q, view, TN_PUSH_MOVE, tnt_deadline(LONG_MS)));
        TN_CHECK_OK(tn_queue_pop_tensor(q, tnt_deadline(LONG_MS), &t));
        TN_CHECK(tn_tensor_same_storage(t, whole));
        TN_CHECK(*(float *)tn_tensor_data(t) == (float)(tnt_info(t).byte_offset / 4));
        tn_tensor_unref(t);
    }
    return NULL;
}

static void *share_it_again(void *argument)
{
    for (int i = 0; i < THREAD_ROUNDS; i++)
        TN_CHECK_OK(tn_tensor_share(d, argument, NULL)); /* thread-safe */
    return NULL;
}

static pthread_barrier_t start;

static void *share_when_all_do(void *argument)
{
    pthread_barrier_wait(&start);
    TN_CHECK_OK(tn_tensor_share(d, argument, NULL));
    return NULL;
}

/* Each thread shares a view of its own: the memory moves once. */
EACH_STRATEGY(threads_share_one_private_storage_at_the_same_time)
{
    const int64_t count = 64 << 10;
    pthread_t threads[THREADS];
    tn_tensor *whole, *views[THREADS];
    begin(strategy);
    TN_CHECK(pthread_barrier_init(&start, NULL, THREADS) == 0);
    for (int round = 0; round < 50; round++) {
        TN_CHECK_OK(tn_tensor_create_private(TN_INT32, 1, &count, &whole));
        ((int32_t *)tn_tensor_data(whole))[count - 1] = round;
        for (int i = 0; i < THREADS; i++) {
            TN_CHECK_OK(tn_tensor_slice(whole, 0, i, count, 1, &views[i]));
            TN_CHECK(pthread_create(&threads[i], NULL, share_when_all_do, views[i]) == 0);
        }
        for (int i = 0; i < THREADS; i++) {
            pthread_join(threads[i], NULL);
            tn_tensor_unref(views[i]);
        }
        assert_int_equal(((int32_t *)tn_tensor_data(whole))[count - 1], round);
        assert_true(tnt_info(whole).is_shared);
        tn_tensor_unref(whole);
    }
    pthread_barrier_destroy(&start);
    finish();
    assert_int_equal(tnt_mapping_count(), 0);
}

EACH_STRATEGY(threads_send_views_of_one_storage_while_another_shares_it)
{
    pthread_t threads[THREADS];
    begin(strategy);
    tn_tensor *whole = numbers(COLUMNS, 0);
    for (int i = 0; i < THREADS; i++)
        TN_CHECK(pthread_create(&threads[i], NULL,
                                i == 0 ? share_it_again : send_and_receive_views, whole) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    tn_tensor_unref(whole);
    finish();
}

/* ---- W31: ends of children --------------------------------------------------------------- */

static int end_in_its_own_way(tn_domain *domain, uint32_t index, void *argument)
{
    (void)domain;
    if (index == 0)
        tnt_await(argument); /* the group ended it, because another child failed */
    if (index == 1)
        tn_process_fail("no data in shard 7");
    return 0;
}

TN_TEST(the_end_of_every_child_is_kept_beside_the_first_failure)
{
    struct tnt_signal never = tnt_signal_open();
    tn_process_status first = {.struct_size = sizeof first}, status[3] = {first, first, first};
    tn_group *group;
    begin("arena");
    TN_CHECK_OK(tn_group_create(d, &group));
    TN_CHECK_OK(tn_group_fork(group, 3, end_in_its_own_way, &never));
    assert_int_equal(tn_group_wait(group, UINT64_C(5000000000), tnt_deadline(LONG_MS), &first),
                     TN_ERR_CHILD_FAILED);
    assert_int_equal(first.index, 1);
    assert_string_equal(first.message, "no data in shard 7");
    for (uint32_t i = 0; i < 3; i++)
        TN_CHECK_OK(tn_process_wait(tn_group_get(group, i), TN_NOW, &status[i]));
    assert_int_equal(status[0].signal, SIGTERM);
    assert_int_equal(status[1].exit_code, 1);
    assert_string_equal(status[1].message, "no data in shard 7");
    assert_true(status[2].exit_code == 0 || status[2].signal == SIGTERM);
    tn_group_close(group);
    tnt_signal_close(&never);
    finish();
}

/* ---- what no peer tests: kills at any moment, and a million of everything ---------------- */

struct pipeline {
    tn_queue *first, *second;
    struct tnt_signal received;
    pid_t pids[3];
};

/*
 * The other side may have died and is started again. With tenond, the only descriptor of a
 * storage may be lost: no process can tell before there is another tenond, and then the
 * storage is lost.
 */
static bool may_go_on(int status)
{
    return status == 0 || status == TN_ERR_PEER_DIED || status == TN_ERR_MANAGER ||
           status == TN_ERR_NOT_FOUND;
}

static int be_stage(struct pipeline *p, tn_queue *from, tn_queue *to)
{
    for (float value = 0;; value += 1) {
        tn_tensor *t = NULL;
        int status = 0;
        if (from == NULL)
            t = numbers(500, value);
        else if ((status = tn_queue_pop_tensor(from, TN_FOREVER, &t)) == TN_ERR_CLOSED)
            return 0;
        if (!may_go_on(status))
            TN_CHECK_OK(status);
        if (t == NULL)
            continue;
        float head = number_at(t, 0);
        TN_CHECK(is_number(t, 499, head + 499));
        if (to == NULL) {
            (void)!write(p->received.write_fd, "", 1); /* a full pipe says enough */
            tn_tensor_unref(t);
            continue;
        }
        do
            status = tn_queue_push_tensor(to, t, TN_PUSH_MOVE, TN_FOREVER);
        while (status == TN_ERR_PEER_DIED);
        if (status == TN_ERR_CLOSED)
            return 0;
        TN_CHECK_OK(status);
    }
}

static int be_first(void *p) { return be_stage(p, NULL, ((struct pipeline *)p)->first); }
static int be_second(void *p)
{
    return be_stage(p, ((struct pipeline *)p)->first, ((struct pipeline *)p)->second);
}
static int be_third(void *p) { return be_stage(p, ((struct pipeline *)p)->second, NULL); }

EACH_STRATEGY(a_chain_of_processes_goes_on_when_one_of_them_is_killed)
{
    tnt_child_fn *const stages[] = {be_first, be_second, be_third};
    struct pipeline p = {.received = tnt_signal_open()};
    tn_queue_options options = {.struct_size = sizeof options, .capacity = 16};
    /* The last stage receives more than is waited for here, and does not stop at a full pipe.
     */
    assert_int_equal(fcntl(p.received.write_fd, F_SETFL, O_NONBLOCK), 0);
    begin_with_tenond(strategy);
    TN_CHECK_OK(tn_queue_open(d, NULL, &options, 0, &p.first));
    TN_CHECK_OK(tn_queue_open(d, NULL, &options, 0, &p.second));
    for (int i = 0; i < 3; i++)
        p.pids[i] = tnt_fork(stages[i], &p);
    for (int round = 0; round < 16; round++) {
        for (uint64_t left = 1 + tnt_random_below(60); left > 0; left--)
            tnt_await(&p.received);
        uint64_t victim = round == 0 ? 3 : tnt_random_below(4);
        if (victim == 3) {
            kill_tenond();
            continue;
        }
        tnt_kill(p.pids[victim]);
        p.pids[victim] = tnt_fork(stages[victim], &p);
    }
    TN_CHECK_OK(tn_queue_end(p.first));
    TN_CHECK_OK(tn_queue_end(p.second));
    for (int i = 0; i < 3; i++)
        tnt_wait_ok(p.pids[i]);
    tn_object_close(p.first);
    tn_object_close(p.second);
    tnt_signal_close(&p.received);
    finish();
}

static uint64_t resident_bytes(void)
{
    unsigned long long size, resident = 0, shared = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    TN_CHECK(file != NULL && fscanf(file, "%llu %llu %llu", &size, &resident, &shared) == 3);
    fclose(file);
    return (resident - shared) * 4096;
}

static int receive_a_lot(void *argument)
{
    const int *count = argument;
    uint64_t before = 0;
    unsigned descriptors = 0;
    for (int i = 0; i < *count; i++) {
        if (i == *count / 10) {
            before = resident_bytes();
            descriptors = tnt_descriptor_count();
        }
        tn_tensor_unref(pop());
    }
    TN_CHECK(resident_bytes() <= before + 256 * 1024);
    TN_CHECK(tnt_descriptor_count() <= descriptors);
    return 0;
}

/* The process's own memory; the quota limits what it shares. */
EACH_STRATEGY(a_million_receives_do_not_grow_the_consumer)
{
    int count = strategy[0] == 'a' ? 1000000 : 10000;
    if (is_sanitized)
        tnt_skip("a sanitizer keeps what was freed");
    begin_with_quota(strategy, 32 * MIB);
    pid_t pid = tnt_fork(receive_a_lot, &count);
    for (int i = 0; i < count; i++)
        push(numbers(8, 0));
    tnt_wait_ok(pid);
    finish();
}
