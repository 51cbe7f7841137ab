/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests: reclaiming dead processes ends in bounded time, under any load on the blocks that
 * they held.
 * Eight processes push and pop one tensor as fast as they can, each through a queue of its
 * own; victims do the same and are killed meanwhile. A victim that dies inside of an
 * operation leaves an announce of the tensor's block, which the eight processes announce all
 * the time.
 */
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "harness/harness.h"
#include "object/object.h"
#include "os/os.h"
#include "process/process.h"
#include "reaper/recount.h"
#include "tensor/tensor.h"

/*
 * A process keeps one socket for ringing bells. It is made here, before a test counts
 * descriptors.
 */
__attribute__((constructor)) static void ring_once(void) { tni_os_bell_ring(1); }

enum { HOT = 8, MOST_KILLS = 200, SEATS = 24, SECOND_NS = 1000 * 1000 * 1000 };

struct scene {
    tn_domain *domain;
    tn_semaphore *semaphore; /* of processes that acquire and release permits; else NULL */
    tnt_child_fn *work;      /* what the eight processes and the victims do */
    tn_tensor *tensor;
    _Atomic uint64_t
        *rounds; /* [HOT + 1]: rounds of each of the eight processes, and of the victim */
    pid_t hot[HOT];
    uint32_t block; /* of the tensor */
    uint32_t seats; /* taken while no victim lives */
    uint64_t worst_ns;
};

struct job {
    struct scene *scene;
    uint32_t number;
};

static uint32_t kills(void) { return tnt_is_full() ? MOST_KILLS : MOST_KILLS / 5; }

static int push_and_pop(void *argument)
{
    const struct job *job = argument;
    struct scene *scene = job->scene;
    tn_queue *queue;
    TN_CHECK_OK(tn_queue_open(scene->domain, NULL, NULL, 0, &queue));
    for (;;) {
        tn_tensor *popped;
        TN_CHECK_OK(tn_queue_push_tensor(queue, scene->tensor, 0, TN_NOW));
        TN_CHECK_OK(tn_queue_pop_tensor(queue, TN_NOW, &popped));
        tn_tensor_unref(popped);
        atomic_fetch_add(&scene->rounds[job->number], 1);
    }
    return 0;
}

static void await_rounds(const struct scene *scene, uint32_t number, uint64_t more)
{
    uint64_t until = atomic_load(&scene->rounds[number]) + more;
    while (atomic_load(&scene->rounds[number]) < until)
        sched_yield();
}

static uint32_t seats_taken(const struct scene *scene)
{
    const struct tni_segment *s = &scene->domain->segment;
    uint32_t taken = 0;
    for (uint32_t seat = 0; seat < s->geometry.seats; seat++)
        taken += tni_seat_state(atomic_load(&tni_seat_at(s, seat)->word)) != TNI_SEAT_FREE;
    return taken;
}

static struct scene open_scene(uint32_t flags)
{
    struct scene scene = {
        .domain = tnt_domain(&(tn_domain_options){
            .struct_size = sizeof(tn_domain_options), .seats = SEATS, .flags = flags}),
        .work = push_and_pop};
    TN_CHECK_OK(tn_tensor_create(scene.domain, TN_FLOAT32, 1, (int64_t[]){16},
                                 TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED),
                                 &scene.tensor));
    scene.block = scene.tensor->storage->block.id;
    void *rounds = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(rounds != MAP_FAILED);
    scene.rounds = rounds;
    return scene;
}

static void start_hot(struct scene *scene)
{
    for (uint32_t i = 0; i < HOT; i++) {
        struct job job = {scene, i};
        scene->hot[i] = tnt_fork(scene->work, &job);
    }
    for (uint32_t i = 0; i < HOT; i++)
        await_rounds(scene, i, 1);
    scene->seats = seats_taken(scene);
}

static void signal_hot(const struct scene *scene, int signal)
{
    for (uint32_t i = 0; i < HOT; i++)
        assert_int_equal(kill(scene->hot[i], signal), 0);
}

/* Kill a victim while it works, and wait until its seat is free, for a second at most. */
static void kill_one(struct scene *scene)
{
    struct job job = {scene, HOT};
    pid_t victim = tnt_fork(scene->work, &job);
    await_rounds(scene, HOT, 1 + tnt_random_below(200));
    tnt_kill(victim);
    uint64_t killed_ns = tni_os_now_ns(), took_ns = 0;
    while (seats_taken(scene) > scene->seats && took_ns < SECOND_NS) {
        sched_yield();
        took_ns = tni_os_now_ns() - killed_ns;
    }
    scene->worst_ns = TNI_MAX(scene->worst_ns, took_ns);
    assert_true(took_ns < SECOND_NS);
}

static void kill_many(struct scene *scene)
{
    for (uint32_t i = 0; i < kills(); i++)
        kill_one(scene);
    tnt_note("%u kills, the slowest seat took %llu us", kills(),
             (unsigned long long)scene->worst_ns / 1000);
}

static void stop_hot(struct scene *scene)
{
    for (uint32_t i = 0; i < HOT && scene->hot[i] != 0; i++)
        tnt_kill(scene->hot[i]);
    memset(scene->hot, 0, sizeof scene->hot);
    /* While tenond recounts, no other process does. */
    while (tn_domain_reap(scene->domain, NULL) == TN_ERR_TIMED_OUT ||
           tni_recount_has_suspects(&scene->domain->segment))
        sched_yield();
}

static void close_scene(struct scene *scene)
{
    stop_hot(scene);
    TNT_AUDIT(scene->domain);
    tn_tensor_unref(scene->tensor);
    tn_domain_close(scene->domain);
    munmap((void *)scene->rounds, 4096);
}

TN_TEST_WITHIN(each_seat_comes_back_within_a_second_under_load, 300)
{
    struct scene scene = open_scene(0);
    start_hot(&scene);
    kill_many(&scene);
    close_scene(&scene);
}

TN_TEST_WITHIN(each_seat_comes_back_while_others_are_stopped, 300)
{
    enum { STOPS = 10 };
    struct scene scene = open_scene(0);
    start_hot(&scene);
    for (uint32_t stop = 0; stop < STOPS; stop++) {
        signal_hot(&scene, SIGSTOP);
        for (uint32_t i = 0; i < kills() / STOPS; i++)
            kill_one(&scene);
        signal_hot(&scene, SIGCONT);
        await_rounds(&scene, stop % HOT, 1);
    }
    tnt_note("%u kills, the slowest seat took %llu us", kills(),
             (unsigned long long)scene.worst_ns / 1000);
    close_scene(&scene);
}

/* Die as in a push: the count is one too high, and the block is announced. */
static int increment_and_die(void *argument)
{
    const struct scene *scene = argument;
    struct tni_thread *thread = tni_thread_enter(scene->domain);
    tni_block block = {scene->block};
    tni_announce(thread, block, 1);
    TN_CHECK_OK(tni_ref_pin(scene->domain, block));
    raise(SIGKILL);
    return 1;
}

TN_TEST_WITHIN(a_recount_ends_while_all_others_use_the_block, 300)
{
    enum { RECOUNTS = 50 };
    struct scene scene = open_scene(0);
    struct tni_header *h = scene.domain->segment.header;
    start_hot(&scene);
    uint64_t worst_ns = 0;
    for (uint32_t i = 0; i < RECOUNTS; i++) {
        uint64_t done = atomic_load(&h->suspects_done);
        assert_true(WIFSIGNALED(tnt_wait(tnt_fork(increment_and_die, &scene))));
        uint64_t begun_ns = tni_os_now_ns(), took_ns = 0;
        while (atomic_load(&h->suspects_done) == done) {
            sched_yield();
            took_ns = tni_os_now_ns() - begun_ns;
            assert_true(took_ns < 5 * (uint64_t)SECOND_NS);
        }
        worst_ns = TNI_MAX(worst_ns, took_ns);
    }
    tnt_note("%u recounts, the slowest took %llu us", RECOUNTS,
             (unsigned long long)worst_ns / 1000);
    close_scene(&scene);
}

/* ---- permits ----------------------------------------------------------------------------- */

/* Each dead process may keep one permit from the others, until the semaphore is recounted. */
enum { PERMITS = HOT + MOST_KILLS };

static int acquire_and_release(void *argument)
{
    const struct job *job = argument;
    tn_semaphore *semaphore = job->scene->semaphore;
    for (;;) {
        TN_CHECK_OK(tn_semaphore_acquire(semaphore, TN_FOREVER));
        TN_CHECK_OK(tn_semaphore_release(semaphore));
        atomic_fetch_add(&job->scene->rounds[job->number], 1);
    }
    return 0;
}

static struct scene open_permits(void)
{
    struct scene scene = open_scene(0);
    scene.work = acquire_and_release;
    TN_CHECK_OK(
        tn_semaphore_open(scene.domain, NULL, PERMITS, TN_SEMAPHORE_OWNED, &scene.semaphore));
    return scene;
}

static void close_permits(struct scene *scene)
{
    stop_hot(scene);
    assert_int_equal(tn_semaphore_count(scene->semaphore), PERMITS);
    tn_object_close(scene->semaphore);
    close_scene(scene);
}

TN_TEST_WITHIN(each_seat_comes_back_while_others_use_a_semaphore, 300)
{
    struct scene scene = open_permits();
    start_hot(&scene);
    kill_many(&scene);
    close_permits(&scene);
}

TN_TEST_WITHIN(each_seat_comes_back_while_others_are_stopped_in_a_semaphore, 300)
{
    enum { STOPS = 20 };
    struct scene scene = open_permits();
    start_hot(&scene);
    for (uint32_t stop = 0; stop < STOPS; stop++) {
        signal_hot(&scene, SIGSTOP);
        for (uint32_t i = 0; i < kills() / STOPS; i++)
            kill_one(&scene);
        signal_hot(&scene, SIGCONT);
        await_rounds(&scene, stop % HOT, 1);
    }
    tnt_note("%u kills, the slowest seat took %llu us", kills(),
             (unsigned long long)scene.worst_ns / 1000);
    close_permits(&scene);
}

/* ---- a recounter that is killed ---------------------------------------------------------- */

struct announced {
    struct scene *scene;
    struct tnt_signal ready, go;
};

static int announce_until_told(void *argument)
{
    struct announced *of = argument;
    struct tni_thread *thread = tni_thread_enter(of->scene->domain);
    tni_announce(thread, (tni_block){of->scene->block}, 1);
    tnt_signal(&of->ready);
    tnt_await(&of->go);
    tni_announce_clear(thread);
    tni_thread_leave(thread);
    return 0;
}

static int reclaim(void *argument)
{
    struct scene *scene = argument;
    uint32_t reaped;
    while (tn_domain_reap(scene->domain, &reaped) == TN_ERR_TIMED_OUT)
        sched_yield();
    return 0;
}

TN_TEST(a_wait_for_a_killed_recounter_goes_on)
{
    struct scene scene = open_scene(TN_DOMAIN_NO_MANAGER);
    struct announced of = {&scene, tnt_signal_open(), tnt_signal_open()};
    tn_domain *d = scene.domain;
    struct tni_header *h = d->segment.header;
    tni_block block = {scene.block};
    pid_t alive = tnt_fork(announce_until_told, &of);
    tnt_await(&of.ready);
    assert_true(WIFSIGNALED(tnt_wait(tnt_fork(increment_and_die, &scene))));
    assert_true(tnt_kill_at("recount_named", 1, reclaim, &scene));

    /*
     * The header names the block and no thread counts it: a thread that is about to announce
     * the block waits, once.
     */
    assert_int_equal((uint32_t)atomic_load(&h->recounted), block.id);
    struct tni_thread *thread = tni_thread_enter(d);
    uint64_t begun_ns = tni_os_now_ns();
    tni_announce(thread, block, 1);
    assert_true(tni_os_now_ns() - begun_ns >= 100 * 1000 * 1000);
    tni_announce_clear(thread);
    assert_int_equal(thread->waited_out, atomic_load(&h->recounted));
    tni_announce(thread, block, 1);
    tni_announce_clear(thread);
    tni_thread_leave(thread);

    assert_int_equal(tn_domain_reap(d, NULL),
                     TN_ERR_TIMED_OUT); /* the process `alive` is using the block */
    assert_int_equal((uint32_t)atomic_load(&h->recounted), 0);
    tnt_signal(&of.go);
    tnt_wait_ok(alive);
    tnt_signal_close(&of.ready);
    tnt_signal_close(&of.go);
    close_scene(&scene);
}

/* ---- a recounter that is stopped --------------------------------------------------------- */

static int recount_until_told(void *argument)
{
    struct announced *of = argument;
    TN_CHECK_OK(tni_recount_begin(of->scene->domain));
    tnt_signal(&of->ready);
    tnt_await(&of->go);
    tni_recount_end(of->scene->domain);
    return 0;
}

TN_TEST(a_reap_beside_a_stopped_recounter_ends_and_the_next_recounts)
{
    struct scene scene = open_scene(TN_DOMAIN_NO_MANAGER);
    struct announced of = {&scene, tnt_signal_open(), tnt_signal_open()};
    pid_t recounter = tnt_fork(recount_until_told, &of);
    tnt_await(&of.ready);
    assert_true(WIFSIGNALED(tnt_wait(tnt_fork(increment_and_die, &scene))));
    assert_int_equal(tn_domain_reap(scene.domain, NULL), TN_ERR_TIMED_OUT);
    TN_CHECK(strstr(tn_error_detail(), "is recounting") != NULL);
    assert_true(tni_recount_has_suspects(&scene.domain->segment));
    tnt_signal(&of.go);
    tnt_wait_ok(recounter);
    TN_CHECK_OK(tn_domain_reap(scene.domain, NULL));
    assert_false(tni_recount_has_suspects(&scene.domain->segment));
    tnt_signal_close(&of.ready);
    tnt_signal_close(&of.go);
    close_scene(&scene);
}

/* ---- a recounter of a real-time priority --------------------------------------------------
 */

static uint32_t object_index(const struct scene *scene)
{
    return ((const struct tn_object *)scene->semaphore)->index;
}

/*
 * Release a tensor for which a recount waits, on one processor, at a lower priority than the
 * recount.
 */
static int let_go_below(void *argument)
{
    struct announced *of = argument;
    tn_domain *d = of->scene->domain;
    const struct sched_param ordinary = {0};
    TN_CHECK(sched_setscheduler(0, SCHED_OTHER, &ordinary) == 0);
    struct tni_thread *thread = tni_thread_enter(d);
    tni_announce(thread, (tni_block){of->scene->block}, 1);
    tnt_signal(&of->ready); /* from here on this process runs only while the other one sleeps */
    tni_announce_clear(thread);
    tni_thread_leave(thread);
    TN_CHECK_OK(tni_recount_begin(d));
    tnt_signal(&of->ready);
    tni_recount_end(d);
    tnt_await(&of->go);
    thread = tni_thread_enter(d);
    atomic_store(&thread->announce->object, object_index(of->scene) + 1);
    tnt_signal(&of->ready);
    atomic_store(&thread->announce->object, 0);
    tni_thread_leave(thread);
    return 0;
}

static int acquire_one(void *argument)
{
    const struct scene *scene = argument;
    return tn_semaphore_acquire(scene->semaphore, TN_NOW);
}

/* Run on one processor from now on. @return false: not allowed */
static bool take_one_processor(void)
{
    const struct sched_param real_time = {.sched_priority = 1};
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)sched_getcpu(), &one);
    TN_CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
    return sched_setscheduler(0, SCHED_FIFO, &real_time) == 0;
}

TN_TEST(a_real_time_recounter_lets_the_one_run_it_waits_for)
{
    struct scene scene = open_scene(TN_DOMAIN_NO_MANAGER);
    struct announced of = {&scene, tnt_signal_open(), tnt_signal_open()};
    uint32_t reaped = 0;
    TN_CHECK_OK(tn_semaphore_open(scene.domain, NULL, 2, TN_SEMAPHORE_OWNED, &scene.semaphore));
    if (!take_one_processor())
        tnt_skip("a real-time priority needs a privilege");
    assert_true(WIFSIGNALED(tnt_wait(tnt_fork(increment_and_die, &scene))));
    pid_t below = tnt_fork(let_go_below, &of);
    tnt_await(&of.ready);
    TN_CHECK_OK(tn_domain_reap(scene.domain, &reaped));
    assert_int_equal(reaped, 1);
    tnt_await(&of.ready);
    TN_CHECK_OK(tni_recount_begin(scene.domain));
    tni_recount_end(scene.domain);
    assert_true(tnt_kill_at("semaphore_taken", 1, acquire_one, &scene));
    tnt_signal(&of.go);
    tnt_await(&of.ready);
    TN_CHECK_OK(tn_domain_reap(scene.domain, &reaped));
    assert_int_equal(reaped, 1);
    tnt_wait_ok(below);
    assert_int_equal(tn_semaphore_count(scene.semaphore), 2);
    tn_object_close(scene.semaphore);
    tnt_signal_close(&of.ready);
    tnt_signal_close(&of.go);
    close_scene(&scene);
}

/* ---- audits while members are busy ------------------------------------------------------- */

static int make_and_drop(void *argument)
{
    enum { TENSORS = 20000 };
    static tn_tensor *tensors[TENSORS];
    const struct job *job = argument;
    for (;;) {
        for (uint32_t i = 0; i < TENSORS; i++)
            if (tn_tensor_create(job->scene->domain, TN_UINT8, 1, (int64_t[]){64}, NULL,
                                 &tensors[i]) != 0)
                tensors[i] = NULL;
        for (uint32_t i = 0; i < TENSORS; i++)
            tn_tensor_unref(tensors[i]);
        atomic_fetch_add(&job->scene->rounds[job->number], 1);
    }
    return 0;
}

static int print_finding(const char *sentence, bool repaired, void *context)
{
    (void)repaired;
    (void)context;
    printf("audit: %s\n", sentence);
    return 0;
}

TN_TEST_WITHIN(an_audit_of_a_busy_healthy_domain_finds_nothing, 300)
{
    enum { AUDITS = 20 };
    struct scene scene = open_scene(0);
    uint32_t unchecked, inspected_unchecked = 0;
    char id[33];
    for (uint32_t i = 0; i < HOT; i++) {
        struct job job = {&scene, i};
        scene.hot[i] = tnt_fork(i % 2 == 0 ? make_and_drop : push_and_pop, &job);
    }
    for (uint32_t i = 0; i < HOT; i++)
        await_rounds(&scene, i, 1);
    for (uint32_t i = 0; i < 16; i++)
        snprintf(id + 2 * (size_t)i, 3, "%02x", scene.domain->segment.id[i]);
    for (uint32_t i = 0; i < AUDITS; i++) {
        assert_int_equal(tn_domain_audit(scene.domain, false, print_finding, NULL, &unchecked),
                         0);
        assert_int_equal(unchecked, 0);
        tn_inspector *inspector;
        TN_CHECK_OK(tn_inspector_open(id, &inspector));
        assert_int_equal(tn_inspect_audit(inspector, false, print_finding, NULL, &unchecked),
                         0);
        inspected_unchecked += unchecked;
        tn_inspector_close(inspector);
    }
    tnt_note("an inspector could not look into %.1f blocks of an audit",
             (double)inspected_unchecked / AUDITS);
    close_scene(&scene);
}
