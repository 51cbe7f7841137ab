/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests: the seats of parent and child when a fork() is cut short (process.c, I3). Handlers
 * that were registered before tenon's stop a child, or its parent, between fork() and tenon's
 * own handlers.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "harness/harness.h"
#include "harness/tensor.h"
#include "os/os.h"
#include "process/process.h"

static struct tnt_signal arrived, go;
static bool holds_child, holds_parent, leaves_errno;

static void hold_up(bool is_on)
{
    if (is_on) {
        tnt_signal(&arrived);
        tnt_await(&go);
    }
}
static void in_child(void) { hold_up(holds_child); }
static void in_parent(void)
{
    hold_up(holds_parent);
    if (leaves_errno)
        errno = EBADF;
}

/*
 * Before the first domain, and so before tenon's handlers. The process also makes its one
 * socket for bells here.
 */
__attribute__((constructor)) static void register_first(void)
{
    pthread_atfork(NULL, in_parent, in_child);
    tni_os_bell_ring(1);
}

static tn_domain *d;
static struct tnt_signal told;

static void begin(void)
{
    tn_domain_options options = {.struct_size = sizeof options,
                                 .quota_bytes = 16 << 20,
                                 .seats = 8,
                                 .flags = TN_DOMAIN_NO_MANAGER};
    arrived = tnt_signal_open();
    go = tnt_signal_open();
    told = tnt_signal_open();
    d = tnt_domain(&options);
}

static void finish(void)
{
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    TNT_AUDIT(d);
    tn_domain_close(d);
    tnt_signal_close(&arrived);
    tnt_signal_close(&go);
    tnt_signal_close(&told);
}

static int hold_a_tensor(void *argument)
{
    struct tnt_signal *check = argument;
    tn_tensor *t;
    TN_CHECK_OK(tn_tensor_create(d, TN_INT32, 1, (int64_t[]){16},
                                 TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED), &t));
    *(int *)tn_tensor_data(t) = 4711;
    tnt_signal(&told);
    tnt_await(check);
    TN_CHECK(*(int *)tn_tensor_data(t) == 4711);
    tn_tensor_unref(t);
    tn_domain_close(d);
    return 0;
}

/* If the library freed memory that it still uses, this gets that memory and writes to it. */
static void scribble(void)
{
    enum { TENSORS = 200 };
    tn_tensor *tensors[TENSORS];
    for (int i = 0; i < TENSORS; i++) {
        TN_CHECK_OK(tn_tensor_create(d, TN_INT32, 1, (int64_t[]){16}, NULL, &tensors[i]));
        *(int *)tn_tensor_data(tensors[i]) = -1;
    }
    for (int i = 0; i < TENSORS; i++)
        tn_tensor_unref(tensors[i]);
}

static int fork_and_pause(void *argument)
{
    tn_tensor *t;
    TN_CHECK_OK(tn_tensor_create(d, TN_INT32, 1, (int64_t[]){16},
                                 TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED), &t));
    *(int *)tn_tensor_data(t) = 4711;
    holds_child = true;
    if (fork() == 0) {
        TN_CHECK(*(int *)tn_tensor_data(t) == 4711);
        TN_CHECK_OK(tn_domain_reap(d, NULL)); /* it is a member */
        tnt_signal(&told);
        tnt_await(argument);
        TN_CHECK(*(int *)tn_tensor_data(t) == 4711);
        tn_tensor_unref(t);
        tn_domain_close(d);
        tnt_signal(&told);
        _exit(0);
    }
    pause(); /* fork() does not wait for the child */
    return 1;
}

TN_TEST(a_late_child_has_what_its_reclaimed_parent_had)
{
    struct tnt_signal check = tnt_signal_open();
    uint32_t reaped;
    begin();
    pid_t parent = tnt_fork(fork_and_pause, &check);
    tnt_await(&arrived);
    tnt_kill(parent);
    TN_CHECK_OK(tn_domain_reap(d, &reaped));
    assert_int_equal(reaped, 1);
    scribble();
    tnt_signal(&go);
    tnt_await(&told);
    TN_CHECK_OK(tn_domain_reap(d, &reaped));
    assert_int_equal(reaped, 0);
    scribble();
    tnt_signal(&check);
    tnt_await(&told);
    tnt_signal_close(&check);
    finish();
}

static int fork_and_report(void *argument)
{
    (void)argument;
    holds_child = true;
    if (fork() == 0) {
        tn_tensor *t;
        TN_CHECK(tn_tensor_create(d, TN_INT8, 1, (int64_t[]){4},
                                  TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED),
                                  &t) == TN_ERR_FORKED);
        TN_CHECK(strstr(tn_error_detail(), "parent") != NULL);
        tnt_signal(&told);
        _exit(0);
    }
    return 1; /* the parent is killed before this */
}

TN_TEST(a_late_child_without_a_witness_takes_no_seat_of_another)
{
    setenv("TENON_FORCE_FALLBACK", "witness", 1);
    struct tnt_signal check = tnt_signal_open();
    uint32_t reaped;
    begin();
    pid_t parent = tnt_fork(fork_and_report, NULL);
    tnt_await(&arrived);
    tnt_kill(parent);
    TN_CHECK_OK(tn_domain_reap(d, &reaped));
    assert_int_equal(reaped, 2);
    pid_t one = tnt_fork(hold_a_tensor, &check), two = tnt_fork(hold_a_tensor, &check);
    tnt_await(&told);
    tnt_await(&told);
    tnt_signal(&go);
    tnt_await(&told); /* the late child got no seat */
    TN_CHECK_OK(tn_domain_reap(d, &reaped));
    assert_int_equal(reaped, 0);
    scribble();
    tnt_signal(&check);
    tnt_signal(&check);
    tnt_wait_ok(one);
    tnt_wait_ok(two);
    tnt_signal_close(&check);
    finish();
}

#if defined(TN_KILL_POINTS)
static int fork_a_child_that_dies_seated(void *argument)
{
    struct tnt_signal *done = argument;
    tni_kill_point_arm("fork_child_named", 1);
    holds_parent = true;
    pid_t pid = fork();
    holds_parent = false;
    tnt_wait(pid);
    tnt_signal(&told);
    tnt_await(done);
    tn_domain_close(d);
    return 0;
}

TN_TEST(a_late_parent_does_not_reap_its_childs_reused_seat)
{
    struct tnt_signal check = tnt_signal_open(), done = tnt_signal_open();
    uint32_t reaped = 0;
    begin();
    pid_t parent = tnt_fork(fork_a_child_that_dies_seated, &done);
    tnt_await(&arrived);
    while (reaped == 0) /* the seat of its child, once that child is dead */
        TN_CHECK_OK(tn_domain_reap(d, &reaped));
    pid_t next = tnt_fork(hold_a_tensor, &check);
    tnt_await(&told);
    tnt_signal(&go);
    tnt_await(&told);
    TN_CHECK_OK(tn_domain_reap(d, &reaped));
    assert_int_equal(reaped, 0);
    scribble();
    tnt_signal(&check);
    tnt_wait_ok(next);
    tnt_signal(&done);
    tnt_wait_ok(parent);
    tnt_signal_close(&check);
    tnt_signal_close(&done);
    finish();
}
#endif

static int close_all_and_share(void *argument)
{
    const char *path = argument;
    int files[8];
    struct stat before, after;
    for (int fd = 3; fd < 64; fd++)
        close(fd);
    for (size_t i = 0; i < TNI_COUNT(files); i++)
        TN_CHECK((files[i] = open(path, O_RDWR)) >= 0);
    TN_CHECK(fstat(files[0], &before) == 0);
    tn_tensor *t;
    static char bytes[1 << 20];
    memset(bytes, 0x5a, sizeof bytes);
    TN_CHECK(tn_tensor_create(
                 d, TN_INT8, 1, (int64_t[]){sizeof bytes},
                 TN_OPTIONS(tn_tensor_options, .source = bytes, .source_bytes = sizeof bytes),
                 &t) == TN_ERR_SYSTEM);
    TN_CHECK(strstr(tn_error_detail(), "has closed one of them") != NULL);
    tn_domain_close(d);
    for (size_t i = 0; i < TNI_COUNT(files); i++)
        TN_CHECK(fstat(files[i], &after) == 0 && after.st_size == before.st_size &&
                 after.st_blocks == before.st_blocks);
    return 0;
}

TN_TEST(without_its_descriptors_a_process_fails_and_spares_others)
{
    char path[] = "/tmp/tenon-fork-test-XXXXXX";
    begin();
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, "mine", 4) == 4);
    close(fd);
    tnt_wait_ok(tnt_fork(close_all_and_share, path));
    unlink(path);
    finish();
}

/* ---- too few descriptors ----------------------------------------------------------------- */

static int sit_and_end(tn_domain *domain, void *argument)
{
    (void)argument;
    return tnt_seat(domain) == 0;
}

static int end_at_once(void *argument)
{
    (void)argument;
    return 0;
}

/* Leave exactly `count` descriptors free. @return how many descriptors fill the table */
static int fill_descriptors(int *fds, int most, int count)
{
    int used = 0;
    while (used < most && (fds[used] = dup(0)) >= 0)
        used++;
    for (int i = 0; i < count && used > 0; i++)
        close(fds[--used]);
    return used;
}

/* A child that cannot read its own identity gets no seat, and its parent keeps none for it. */
TN_TEST(a_fork_with_too_few_descriptors_leaves_no_seat_behind)
{
    int fds[256];
    struct rlimit limit = {.rlim_cur = 64, .rlim_max = 64};
    begin();
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    for (int free_count = 0; free_count < 6; free_count++) {
        int used = fill_descriptors(fds, 256, free_count);
        for (int i = 0; i < 12; i++) /* more than the 8 seats of the domain */
            tnt_wait_ok(tnt_fork(end_at_once, NULL));
        while (used > 0)
            close(fds[--used]);
        TN_CHECK_OK(tn_domain_reap(d, NULL));
        tn_process *child;
        TN_CHECK_OK(tn_process_fork(d, sit_and_end, NULL, 0, &child));
        tn_process_close(child);
    }
    finish();
}

static int say_and_pause(void *argument)
{
    tnt_signal(argument);
    while (pause() == -1)
        continue;
    return 0;
}

/* reclaim.c, I3: what still names the old process must not match the new one in the seat. */
TN_TEST(a_seat_that_was_reclaimed_has_the_next_incarnation)
{
    tn_domain *domain = tnt_domain(&(tn_domain_options){
        .struct_size = sizeof(tn_domain_options), .flags = TN_DOMAIN_NO_MANAGER});
    struct tnt_signal seated = tnt_signal_open();
    const _Atomic uint64_t *seat = &tni_seat_at(&domain->segment, 1)->word;
    for (uint32_t round = 0; round < 2; round++) {
        pid_t victim = tnt_fork(say_and_pause, &seated);
        tnt_await(&seated);
        uint64_t was = atomic_load(seat);
        assert_int_equal(tni_seat_state(was), TNI_SEAT_ALIVE);
        tnt_kill(victim);
        TN_CHECK_OK(tn_domain_reap(domain, NULL));
        uint64_t is = atomic_load(seat);
        assert_int_equal(tni_seat_state(is), TNI_SEAT_FREE);
        assert_int_equal(tni_seat_incarnation(is), tni_seat_incarnation(was) + 1);
    }
    tnt_signal_close(&seated);
    TNT_AUDIT(domain);
    tn_domain_close(domain);
}

/* ---- a thread in a long call of the system ----------------------------------------------- */

static int make_a_tensor(void *argument)
{
    (void)argument;
    tn_tensor *t;
    TN_CHECK_OK(tn_tensor_create(d, TN_UINT8, 1, (int64_t[]){4096}, NULL, &t));
    tn_tensor_unref(t);
    return 0;
}

static void *stand_aside(void *argument)
{
    (void)argument;
    struct tni_thread *thread = tni_thread_enter(d);
    tni_thread_step_aside(thread);
    tnt_signal(&told);
    tnt_await(&go);
    tni_thread_come_back(thread);
    tni_thread_leave(thread);
    return NULL;
}

TN_TEST(fork_passes_by_a_thread_that_stands_aside)
{
    pthread_t thread;
    begin();
    assert_int_equal(pthread_create(&thread, NULL, stand_aside, NULL), 0);
    tnt_await(&told);
    tnt_wait_ok(tnt_fork(make_a_tensor, NULL));
    tnt_signal(&go);
    assert_int_equal(pthread_join(thread, NULL), 0);
    finish();
}

static bool stands_aside(void)
{
    for (uint32_t t = 0; t < TNI_THREADS; t++)
        if (atomic_load(&d->threads[t].aside) != TNI_ASIDE_NOT)
            return true;
    return false;
}

static _Atomic bool is_committed;

static void *commit_much(void *size)
{
    tn_tensor *t;
    TN_CHECK_OK(tn_tensor_create(d, TN_UINT8, 1, size, NULL, &t));
    atomic_store(&is_committed, true);
    return t;
}

TN_TEST(a_forked_child_has_none_of_its_parents_pending_commits)
{
    int64_t size = 256 << 20;
    pthread_t thread;
    void *t;
    bool is_seen = false;
    d = tnt_domain(&(tn_domain_options){.struct_size = sizeof(tn_domain_options),
                                        .quota_bytes = (uint64_t)size + (16 << 20),
                                        .flags = TN_DOMAIN_NO_MANAGER});
    assert_int_equal(pthread_create(&thread, NULL, commit_much, &size), 0);
    while (!is_seen && !atomic_load(&is_committed))
        is_seen = stands_aside();
    assert_true(is_seen);
    tnt_wait_ok(tnt_fork(make_a_tensor, NULL));
    assert_int_equal(pthread_join(thread, &t), 0);
    tn_tensor_unref(t);
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    TNT_AUDIT(d);
    tn_domain_close(d);
}

/* ---- children that no handler of fork() ran in ------------------------------------------- */

enum { COPY_BYTES = 4096, MOST_BLOCKS = 64 };

/* What the parent shares, and what each child has in its copy of the parent's memory. */
struct inheritance {
    tn_tensor *tensor;
    tn_queue *queue;
    tn_lock *lock;
};

static tn_tensor *make_filled(tn_domain *domain, int value)
{
    tn_tensor *t = NULL;
    TN_CHECK_OK(tn_tensor_create(domain, TN_UINT8, 1, (const int64_t[]){COPY_BYTES}, NULL, &t));
    memset(tn_tensor_data(t), value, COPY_BYTES);
    return t;
}

static struct inheritance open_inheritance(void)
{
    struct inheritance of = {.tensor = make_filled(d, 0x11)};
    TN_CHECK_OK(tn_queue_open(d, "queue", NULL, TN_OPEN_NEW, &of.queue));
    TN_CHECK_OK(tn_lock_open(d, "lock", TN_OPEN_NEW, &of.lock));
    TN_CHECK_OK(tn_lock_acquire(of.lock, TN_NOW));
    return of;
}

static void close_inheritance(struct inheritance *of)
{
    TN_CHECK_OK(tn_lock_release(of->lock));
    tn_object_close(of->lock);
    tn_object_close(of->queue);
    tn_tensor_unref(of->tensor);
}

/* As another library would act in such a child; nothing that it changes may be the parent's. */
static int act_as_the_parent(struct inheritance *of)
{
    tn_tensor *t;
    TN_CHECK(tn_tensor_create(d, TN_UINT8, 1, (const int64_t[]){COPY_BYTES}, NULL, &t) ==
             TN_ERR_FORKED);
    TN_CHECK(strstr(tn_error_detail(), "_Fork()") != NULL);
    TN_CHECK(tn_queue_push_tensor(of->queue, of->tensor, 0, TN_NOW) == TN_ERR_FORKED);
    TN_CHECK(tn_lock_release(of->lock) == TN_ERR_FORKED);
    TN_CHECK(tn_domain_reap(d, NULL) == TN_ERR_FORKED);
    TN_CHECK(tnt_seat(d) == TNI_NO_SEAT);
    return 0;
}

static int unref_first(struct inheritance *of)
{
    tn_tensor_unref(of->tensor);
    return act_as_the_parent(of);
}

static int close_first(struct inheritance *of)
{
    tn_object_close(of->lock);
    tn_object_close(of->queue);
    tn_tensor_unref(of->tensor);
    tn_domain_close(d);
    return 0;
}

static int close_the_domain_first(struct inheritance *of)
{
    tn_domain_close(d);
    tn_tensor_unref(of->tensor);
    return 0;
}

static int fork_first(struct inheritance *of)
{
    int status = 0;
    pid_t pid = fork();
    TN_CHECK(pid >= 0);
    if (pid == 0)
        _exit(act_as_the_parent(of));
    TN_CHECK(waitpid(pid, &status, 0) == pid);
    return status;
}

static int join_first(struct inheritance *of)
{
    char value[TNI_PASS_BYTES];
    tn_domain *own = NULL;
    snprintf(value, sizeof value, "%d,%d", dup(d->segment.control_fd),
             dup(d->segment.arena_fd));
    setenv(TNI_DOMAIN_VARIABLE, value, 1);
    TN_CHECK_OK(tn_domain_inherit(&own));
    tn_tensor *t = make_filled(own, 0xEE);
    act_as_the_parent(of);
    tn_tensor_unref(t);
    tn_domain_close(own);
    return 0;
}

typedef int copy_fn(struct inheritance *of);
static copy_fn *const copies[] = {act_as_the_parent,      unref_first, close_first,
                                  close_the_domain_first, fork_first,  join_first};

static pid_t copy_process(bool is_raw)
{
    return is_raw ? (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : _Fork();
}

/*
 * Allocate and write everything that can be had, so that memory that was freed by mistake is
 * overwritten.
 */
static void overwrite_what_is_free(void)
{
    tn_tensor *t[MOST_BLOCKS];
    for (int i = 0; i < MOST_BLOCKS; i++)
        t[i] = make_filled(d, 0xEE);
    for (int i = 0; i < MOST_BLOCKS; i++)
        tn_tensor_unref(t[i]);
}

static void check_whole(const struct inheritance *of)
{
    uint64_t word = atomic_load(&d->me->word);
    assert_true(word == tni_process_word(d));
    assert_int_equal(tni_process_seat_state(&d->segment, d->seat), TNI_OS_ALIVE);
    overwrite_what_is_free();
    for (int i = 0; i < COPY_BYTES; i++)
        assert_int_equal(((uint8_t *)tn_tensor_data(of->tensor))[i], 0x11);
    TNT_AUDIT(d);
}

TN_TEST(a_child_made_without_fork_handlers_cannot_harm_its_parent)
{
    begin();
    struct inheritance of = open_inheritance();
    for (uint32_t i = 0; i < TNI_COUNT(copies); i++)
        for (int is_raw = 0; is_raw < 2; is_raw++) {
            int status = 0;
            pid_t pid = copy_process(is_raw != 0);
            assert_true(pid >= 0);
            if (pid == 0)
                _exit(copies[i](&of));
            TN_CHECK(waitpid(pid, &status, 0) == pid);
            assert_int_equal(status, 0);
            check_whole(&of);
        }
    close_inheritance(&of);
    finish();
}

/* ---- handles in a child without a seat --------------------------------------------------- */

static tn_queue *queue;
static tn_event *event;

static void damage_free_memory(size_t size_bytes)
{
    enum { EACH = 8 };
    void *taken[EACH];
    for (int i = 0; i < EACH; i++) {
        TN_CHECK((taken[i] = malloc(size_bytes)) != NULL);
        memset(taken[i], 0x7f, size_bytes);
    }
    for (int i = 0; i < EACH; i++)
        free(taken[i]);
}

/* Damage memory that the library freed, in case it still reads or writes it. */
static void damage_what_is_free(void)
{
    enum { STEP = 16, MOST = 1024 };
    for (size_t size_bytes = STEP; size_bytes <= MOST; size_bytes += STEP)
        damage_free_memory(size_bytes);
    damage_free_memory(sizeof *d);
}

static int close_handles_and_fork(void)
{
    int status = 0;
    TN_CHECK(tn_event_set(event) == TN_ERR_FORKED);
    tn_object_close(event);
    tn_object_close(queue);
    damage_what_is_free();
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    TN_CHECK(waitpid(pid, &status, 0) == pid);
    tn_domain_close(d);
    return status;
}

static int close_the_domain_before_its_handles(void)
{
    TN_CHECK(tn_event_set(event) == TN_ERR_FORKED);
    tn_domain_close(d);
    damage_what_is_free();
    TN_CHECK(tn_event_set(event) == TN_ERR_CLOSED);
    TN_CHECK(tn_queue_end(queue) == TN_ERR_CLOSED);
    tn_object_close(event);
    tn_object_close(queue);
    return 0;
}

TN_TEST(a_child_without_a_seat_uses_nothing_that_it_freed)
{
    int (*const acts[])(void) = {close_handles_and_fork, close_the_domain_before_its_handles};
    d = tnt_domain(&(tn_domain_options){
        .struct_size = sizeof(tn_domain_options), .seats = 1, .flags = TN_DOMAIN_NO_MANAGER});
    TN_CHECK_OK(tn_queue_open(d, NULL, NULL, 0, &queue));
    TN_CHECK_OK(tn_event_open(d, NULL, 0, &event));
    for (uint32_t i = 0; i < TNI_COUNT(acts); i++) {
        int status = 0;
        pid_t pid = fork();
        if (pid == 0)
            _exit(acts[i]());
        TN_CHECK(waitpid(pid, &status, 0) == pid);
        assert_int_equal(status, 0);
        TN_CHECK_OK(tn_event_set(event));
    }
    tn_object_close(event);
    tn_object_close(queue);
    TNT_AUDIT(d);
    tn_domain_close(d);
}

/* ---- a fork() that fails -------------------------------------------------------------------
 */

static int fail_to_fork(void *argument)
{
    tn_barrier *barrier = argument;
    TN_CHECK(tnt_refuse(SYS_clone, EAGAIN));
    TN_CHECK(fork() == -1 && errno == EAGAIN);
    tnt_signal(&told);
    TN_CHECK(tn_barrier_wait(barrier, TN_FOREVER) >= 0);
    tn_object_close(barrier);
    tn_domain_close(d);
    return 0;
}

static void check_that_a_failed_fork_is_no_death(void)
{
    tn_barrier *barrier;
    uint32_t reaped;
    begin();
    TN_CHECK_OK(tn_barrier_open(d, NULL, 2, 0, &barrier));
    pid_t parent = tnt_fork(fail_to_fork, barrier);
    tnt_await(&told);
    TN_CHECK_OK(tn_domain_reap(d, &reaped));
    assert_int_equal(reaped, 1); /* the seat of its child */
    TN_CHECK(tn_barrier_wait(barrier, TN_FOREVER) >= 0);
    tnt_wait_ok(parent);
    tn_object_close(barrier);
    finish();
}

TN_TEST(a_fork_that_fails_is_no_death) { check_that_a_failed_fork_is_no_death(); }

TN_TEST(a_fork_that_fails_without_a_witness_is_no_death)
{
    setenv("TENON_FORCE_FALLBACK", "witness", 1);
    check_that_a_failed_fork_is_no_death();
}

#if defined(TN_KILL_POINTS)
static int fail_to_fork_and_die(void *argument)
{
    (void)argument;
    TN_CHECK(tnt_refuse(SYS_clone, EAGAIN));
    tni_kill_point_arm("fork_unborn_marked", 1);
    fork();
    return 1;
}

TN_TEST(a_death_beside_the_seat_of_a_failed_fork_leaves_two)
{
    uint32_t reaped;
    begin();
    tnt_wait(tnt_fork(fail_to_fork_and_die, NULL));
    TN_CHECK_OK(tn_domain_reap(d, &reaped));
    assert_int_equal(reaped, 2);
    finish();
}
#endif

/* The handler of another library, which runs before tenon's, leaves an errno. */
static int fork_beside_a_handler_that_fails(void *argument)
{
    leaves_errno = true;
    pid_t pid = fork();
    if (pid == 0) {
        TN_CHECK_OK(tn_domain_reap(d, NULL)); /* it is a member */
        tnt_signal(&told);
        pause();
    }
    tnt_await(argument);
    tnt_kill(pid);
    tnt_signal(&told);
    tnt_await(argument);
    tn_domain_close(d);
    return 0;
}

TN_TEST(a_death_counts_though_an_errno_looked_like_a_failed_fork)
{
    struct tnt_signal next = tnt_signal_open();
    tn_barrier *barrier;
    uint32_t reaped;
    begin();
    TN_CHECK_OK(tn_barrier_open(d, NULL, 3, 0, &barrier));
    pid_t parent = tnt_fork(fork_beside_a_handler_that_fails, &next);
    tnt_await(&told);
    tnt_signal(&next);
    tnt_await(&told);
    TN_CHECK_OK(tn_domain_reap(d, &reaped));
    assert_int_equal(reaped, 1);
    TN_CHECK(tn_barrier_wait(barrier, TN_FOREVER) == TN_ERR_PEER_DIED);
    tnt_signal(&next);
    tnt_wait_ok(parent);
    tn_object_close(barrier);
    tnt_signal_close(&next);
    finish();
}
