/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A child is killed in the middle of its work. One thread reclaims it while the other threads
 * use the same queue, blocks and objects, and audits and inspectors run.
 *
 * ThreadSanitizer does not see the child, which is another process. It sees the threads that
 * repair what the child left, and those that use it meanwhile. It cannot know that bytes which
 * one thread wrote went through the child to another thread; so this test reads the bytes of a
 * message in a function that is not instrumented. The other tests instrument such reads.
 */
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/inspect.h"
#include "harness/ignore.h"
#include "threads/threads.h"

/* Of a message. Two make a message block, whose head is plain bytes. */
#if defined(__SANITIZE_THREAD__)
enum { MOST_TENSORS = 1 };
#else
enum { MOST_TENSORS = 2 };
#endif

static tn_queue *queues[MEMBERS];
static tn_semaphore *semaphores[MEMBERS];
static tn_lock *locks[MEMBERS];

static unsigned seat_of(const struct worker *w) { return w->number % MEMBERS; }

static void begin(uint32_t policy)
{
    const tn_queue_options options = {
        .struct_size = sizeof options, .capacity = 8, .policy = policy};
    world_begin(16 << 20);
    TN_CHECK_OK(tn_queue_open(members[0], NULL, &options, 0, &queues[0]));
    TN_CHECK_OK(tn_semaphore_open(members[0], NULL, 2, TN_SEMAPHORE_OWNED, &semaphores[0]));
    TN_CHECK_OK(tn_lock_open(members[0], NULL, 0, &locks[0]));
    for (unsigned i = 1; i < MEMBERS; i++) {
        struct tn_domain *d = members[i];
        TN_CHECK_OK(tn_object_open_id(d, TN_OBJECT_QUEUE, tn_object_id(queues[0]), &queues[i]));
        TN_CHECK_OK(tn_object_open_id(d, TN_OBJECT_SEMAPHORE, tn_object_id(semaphores[0]),
                                      &semaphores[i]));
        TN_CHECK_OK(tn_object_open_id(d, TN_OBJECT_LOCK, tn_object_id(locks[0]), &locks[i]));
    }
}

static void finish(void)
{
    tn_message message;
    while (DID(tn_queue_pop(queues[0], TN_NOW, &message), TN_ERR_TIMED_OUT, TN_ERR_PEER_DIED)) {
        if (message.lease != 0)
            TN_CHECK_OK(tn_message_ack(queues[0], &message));
        tn_message_fini(&message);
    }
    assert_int_equal(tn_semaphore_count(semaphores[0]), 2);
    for (unsigned i = 0; i < MEMBERS; i++) {
        tn_object_close(queues[i]);
        tn_object_close(semaphores[i]);
        tn_object_close(locks[i]);
    }
    world_end();
}

/* ---- work, of parent and child alike ----------------------------------------------------- */

/* What a call may meet when a peer dies beside it. */
#define PEERS_DIE TN_ERR_TIMED_OUT, TN_ERR_PEER_DIED, TN_ERR_FULL, TN_ERR_NO_MEMORY

static tn_tensor *make(struct worker *w, uint32_t number)
{
    const int64_t count = 1 + (int64_t)worker_random(w, 40);
    tn_tensor *t;
    if (!DID(tn_tensor_create(w->domain, TN_UINT32, 1, &count,
                              TN_OPTIONS(tn_tensor_options, .deadline = soon()), &t),
             PEERS_DIE))
        return NULL;
    for (int64_t i = 0; i < count; i++)
        ((uint32_t *)tn_tensor_data(t))[i] = number;
    return t;
}

static void push(struct worker *w)
{
    tn_tensor *tensors[2] = {make(w, w->number), NULL};
    if (tensors[0] == NULL)
        return;
    tensors[1] = tn_tensor_ref(tensors[0]);
    const tn_message message = {
        .bytes = "x",
        .size_bytes = 1,
        .tensors = tensors,
        .tensor_count = 1 + (uint32_t)worker_random(w, MOST_TENSORS),
    };
    DID(tn_queue_push(queues[seat_of(w)], &message, 0, soon()), PEERS_DIE);
    tn_tensor_unref(tensors[0]);
    tn_tensor_unref(tensors[1]);
}

__attribute__((no_sanitize("thread"))) static bool is_whole(const tn_tensor *t)
{
    const uint32_t *data = tn_tensor_data(t);
    int64_t count = tn_tensor_count(t), same = 0;
    while (same < count && data[same] == data[0])
        same++;
    return same == count;
}

static void pop(struct worker *w)
{
    tn_message message;
    if (!DID(tn_queue_pop(queues[seat_of(w)], soon(), &message), PEERS_DIE))
        return;
    for (uint32_t t = 0; t < message.tensor_count; t++)
        TN_CHECK(is_whole(message.tensors[t]));
    if (message.lease != 0 && worker_random(w, 4) == 0)
        TN_CHECK_OK(tn_message_return(queues[seat_of(w)], &message));
    else if (message.lease != 0)
        TN_CHECK_OK(tn_message_ack(queues[seat_of(w)], &message));
    tn_message_fini(&message);
}

static void use_permit(struct worker *w)
{
    if (!DID(tn_semaphore_acquire(semaphores[seat_of(w)], soon()), PEERS_DIE))
        return;
    sched_yield();
    TN_CHECK_OK(tn_semaphore_release(semaphores[seat_of(w)]));
}

static void use_lock(struct worker *w)
{
    if (!DID(tn_lock_acquire(locks[seat_of(w)], soon()), PEERS_DIE))
        return;
    sched_yield();
    TN_CHECK_OK(tn_lock_release(locks[seat_of(w)]));
}

static void export_and_import(struct worker *w)
{
    uint8_t bytes[TN_HANDLE_MAX_BYTES];
    size_t used;
    tn_tensor *copy, *t = make(w, w->number);
    if (t == NULL)
        return;
    if (DID(tn_handle_export(t, NULL, bytes, sizeof bytes, &used), PEERS_DIE)) {
        if (DID(tn_handle_import(w->domain, bytes, used, &copy), TN_ERR_STALE))
            tn_tensor_unref(copy);
    }
    tn_tensor_unref(t);
}

static void do_anything(struct worker *w)
{
    static work_fn *const works[] = {push, pop, use_permit, use_lock, export_and_import};
    works[worker_random(w, 5)](w);
}

/* ---- a child that is killed -------------------------------------------------------------- */

static _Atomic uint32_t *child_rounds;

static void work_until_killed(struct worker *w)
{
    for (;;) {
        do_anything(w);
        atomic_fetch_add(child_rounds, 1);
    }
}

/* Fork, let it work for some rounds, and kill it wherever it is then. */
static void fork_and_kill(struct worker *w)
{
    uint32_t rounds = 1 + (uint32_t)worker_random(w, 20);
    atomic_store(child_rounds, 0);
    pid_t child = fork();
    TN_CHECK(child >= 0);
    if (child == 0)
        work_until_killed(w);
    pid_t ended = 0;
    while (atomic_load(child_rounds) < rounds && ended == 0) {
        ended = waitpid(child, NULL, WNOHANG);
        sched_yield();
    }
    TN_CHECK(ended == 0); /* it ends only by a failed check of its own */
    kill(child, SIGKILL);
    TN_CHECK(waitpid(child, NULL, 0) == child);
    /* The other threads reclaim as well, and the first one does it. */
    while (tni_reaper_reclaim_all(w->domain) < 0)
        sched_yield();
}

static void reclaim(struct worker *w)
{
    DID(tni_reaper_reclaim_all(w->domain), TN_ERR_TIMED_OUT);
    sched_yield();
}

static void share_child_rounds(void)
{
    child_rounds = mmap(NULL, sizeof *child_rounds, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(child_rounds != MAP_FAILED);
}

static void kill_beside_work(uint32_t policy)
{
    share_child_rounds();
    begin(policy);
    run_crews((struct crew[]){{fork_and_kill, 1},
                              {reclaim, 1},
                              {push, 1},
                              {pop, 1},
                              {use_permit, 1},
                              {use_lock, 1},
                              {export_and_import, 1},
                              {NULL, 0}});
    finish();
    munmap((void *)child_rounds, sizeof *child_rounds);
}

TN_TEST(dead_seats_are_reclaimed_while_others_work) { kill_beside_work(TN_QUEUE_REDELIVER); }

TN_TEST(dead_seats_are_reclaimed_during_work_and_messages_dropped)
{
    kill_beside_work(TN_QUEUE_DROP);
}

TN_TEST(dead_seats_are_reclaimed_during_work_and_leases_come_again)
{
    kill_beside_work(TN_QUEUE_LEASE);
}

/* ---- looking on -------------------------------------------------------------------------- */

static int ignore_sentence(const char *sentence, bool repaired, void *context)
{
    (void)context, (void)repaired;
    printf("audit: %s\n", sentence);
    return 0;
}

/* A block that changes is checked again; a block that does not change is right. */
static void audit(struct worker *w)
{
    TN_CHECK(
        tn_domain_audit(w->domain, worker_random(w, 2) == 0, ignore_sentence, NULL, NULL) == 0);
}

static void inspect(struct worker *w)
{
    tn_inspector inspector = {.segment = w->domain->segment};
    tn_domain_stat stat = {.struct_size = sizeof stat};
    TN_CHECK_OK(tn_inspect_stat(&inspector, &stat));
    TN_CHECK_OK(tn_inspect_blocks(&inspector, ignore_block, NULL));
    TN_CHECK_OK(tn_inspect_seats(&inspector, ignore_seat, NULL));
    TN_CHECK_OK(tn_inspect_objects(&inspector, ignore_object, NULL));
    TN_CHECK_OK(tn_inspect_tickets(&inspector, ignore_ticket, NULL));
    TN_CHECK_OK(tn_inspect_schedulers(&inspector, ignore_scheduler, NULL));
}

TN_TEST(audits_and_inspectors_run_while_others_work)
{
    begin(TN_QUEUE_LEASE);
    run_crews((struct crew[]){{do_anything, 4}, {audit, 1}, {inspect, 1}, {NULL, 0}});
    finish();
}
