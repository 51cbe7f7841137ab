/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests: the members of a domain without tenond do what tenond does; and before a call
 * returns that a table is full, it frees what dead processes and expired handles still take.
 */
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "harness/harness.h"
#include "harness/tensor.h"
#include "object/object.h"
#include "reaper/reaper.h"
#include "share/share.h"
#include "wait/wait.h"

enum { MIB = 1 << 20, LONG_MS = 10000, LATE_MS = 150 };

static tn_domain *d;
static struct tnt_signal ready;

static void begin(const tn_domain_options *wanted)
{
    tn_domain_options options = *wanted;
    options.struct_size = sizeof options;
    options.flags = TN_DOMAIN_NO_MANAGER;
    d = tnt_domain(&options);
    ready = tnt_signal_open();
}

static void finish(void)
{
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    TNT_AUDIT(d);
    d = tn_domain_close(d);
    tnt_signal_close(&ready);
}

static int hang(void)
{
    tnt_signal(&ready);
    while (pause() == -1) {
    }
    return 0;
}

/* A child that runs up to hang(), and is killed there. Its seat has not been reclaimed then. */
static void run_and_kill(tnt_child_fn *run, void *argument)
{
    pid_t pid = tnt_fork(run, argument);
    tnt_await(&ready);
    tnt_kill(pid);
}

static uint32_t seat_of(pid_t pid)
{
    const struct tni_segment *s = &d->segment;
    for (uint32_t seat = 0; seat < tni_seat_limit(s); seat++) {
        const struct tni_seat *entry = tni_seat_at(s, seat);
        if (tni_seat_state(atomic_load(&entry->word)) == TNI_SEAT_ALIVE &&
            atomic_load(&entry->pid) == pid)
            return seat;
    }
    fail_msg("process %d has no seat", (int)pid);
    return TNI_NO_SEAT;
}

/* ---- handles whose time is over ---------------------------------------------------------- */

static int make(int64_t bytes, tn_deadline deadline, tn_tensor **ret_tensor)
{
    return tn_tensor_create(d, TN_UINT8, 1, &bytes,
                            TN_OPTIONS(tn_tensor_options, .deadline = deadline), ret_tensor);
}

static void export_and_let_go(int64_t bytes, uint64_t lifetime_ns)
{
    uint8_t handle[TN_HANDLE_MAX_BYTES];
    size_t used;
    tn_tensor *t = NULL;
    tn_handle_options options = {.struct_size = sizeof options, .lifetime_ns = lifetime_ns};
    TN_CHECK_OK(make(bytes, TN_NOW, &t));
    TN_CHECK_OK(tn_handle_export(t, &options, handle, sizeof handle, &used));
    tn_tensor_unref(t);
}

static int count_one(const tn_ticket_entry *info, void *context)
{
    (void)info;
    ++*(unsigned *)context;
    return 0;
}

static unsigned ticket_count(void)
{
    unsigned count = 0;
    TN_CHECK_OK(tni_ticket_for_each(&d->segment, count_one, &count));
    return count;
}

static const tn_domain_options four_mib = {.quota_bytes = 4 * MIB, .seats = 8};

TN_TEST(an_expired_handle_makes_room_before_no_memory_is_said)
{
    tn_tensor *t = NULL;
    begin(&four_mib);
    for (int i = 0; i < 3; i++) {
        export_and_let_go(3 * MIB, 1);
        TN_CHECK_OK(make(3 * MIB, TN_NOW, &t));
        t = tn_tensor_unref(t);
    }
    finish();
}

TN_TEST(a_wait_for_memory_ends_when_a_handle_expires)
{
    tn_tensor *t = NULL;
    begin(&four_mib);
    export_and_let_go(3 * MIB, 50 * UINT64_C(1000000));
    TN_CHECK_OK(make(3 * MIB, tnt_deadline(LONG_MS), &t));
    tn_tensor_unref(t);
    finish();
}

TN_TEST(a_reap_ends_expired_handles)
{
    begin(&four_mib);
    export_and_let_go(MIB, 1);
    assert_int_equal(ticket_count(), 1);
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    assert_int_equal(ticket_count(), 0);
    finish();
}

TN_TEST(a_wait_at_a_queue_ends_expired_handles)
{
    tn_queue *q = NULL;
    tn_message m;
    begin(&four_mib);
    TN_CHECK_OK(tn_queue_open(d, NULL, NULL, 0, &q));
    export_and_let_go(MIB, 1);
    uint64_t deadline_ns = tnt_until_ns(LONG_MS);
    while (ticket_count() != 0) {
        TN_CHECK(tni_os_now_ns() < deadline_ns);
        assert_int_equal(tn_queue_pop(q, tnt_deadline(LATE_MS), &m), TN_ERR_TIMED_OUT);
    }
    tn_object_close(q);
    finish();
}

/* ---- a death before the wait ------------------------------------------------------------- */

static int push_and_hang(void *queue)
{
    TN_CHECK_OK(tn_queue_push(queue, &(tn_message){.bytes = "x", .size_bytes = 1}, 0, TN_NOW));
    return hang();
}

TN_TEST(a_wait_shorter_than_a_slice_reports_an_earlier_death)
{
    enum { SHORT_MS = 20, TRIES = 5 };
    tn_queue *q = NULL;
    tn_message m;
    begin(&four_mib);
    TN_CHECK_OK(tn_queue_open(d, NULL, NULL, 0, &q));
    for (int i = 0; i < TRIES; i++) {
        run_and_kill(push_and_hang, q);
        TN_CHECK_OK(tn_queue_pop(q, TN_NOW, &m));
        tn_message_fini(&m);
        tni_os_sleep_until(tnt_until_ns(LATE_MS)); /* no two checks within 50 ms */
        assert_int_equal(tn_queue_pop(q, tnt_deadline(SHORT_MS), &m), TN_ERR_PEER_DIED);
    }
    tn_object_close(q);
    finish();
}

TN_TEST(a_check_longer_than_a_slice_ends_after_its_deadline)
{
    _Atomic uint32_t word = 0;
    begin(&four_mib);
    struct tni_wait wait = {.deadline_ns = tni_os_now_ns(), .look_ns = 1};
    assert_int_equal(tni_process_sleep(d, &word, 0, &wait), 0);
    wait.look_ns = 1;
    assert_int_equal(tni_process_sleep(d, &word, 0, &wait), TN_ERR_TIMED_OUT);
    finish();
}

/* ---- full tables ------------------------------------------------------------------------- */

enum { OBJECTS = 4, BLOCKS = 64 };

static int make_all_objects(void *argument)
{
    tn_event *event;
    (void)argument;
    for (int i = 0; i < OBJECTS; i++)
        TN_CHECK_OK(tn_event_open(d, NULL, 0, &event));
    TN_CHECK(tn_event_open(d, NULL, 0, &event) == TN_ERR_FULL);
    return hang();
}

TN_TEST(objects_of_dead_processes_are_freed_before_full_is_returned)
{
    tn_event *event = NULL;
    begin(&(tn_domain_options){.quota_bytes = 4 * MIB, .objects = OBJECTS});
    for (int i = 0; i < 3; i++) {
        run_and_kill(make_all_objects, NULL);
        TN_CHECK_OK(tn_event_open(d, NULL, 0, &event));
        event = tn_object_close(event);
    }
    finish();
}

TN_TEST(a_queue_that_finds_no_entry_gives_its_memory_back)
{
    tn_event *events[OBJECTS];
    tn_queue *q;
    begin(&(tn_domain_options){.quota_bytes = 4 * MIB, .objects = OBJECTS});
    for (int i = 0; i < OBJECTS; i++)
        TN_CHECK_OK(tn_event_open(d, NULL, 0, &events[i]));
    for (int i = 0; i < 64; i++) {
        assert_int_equal(tn_queue_open(d, NULL, NULL, 0, &q), TN_ERR_FULL);
        TN_CHECK(strstr(tn_error_detail(), "objects") != NULL);
    }
    TNT_AUDIT(d);
    for (int i = 0; i < OBJECTS; i++)
        tn_object_close(events[i]);
    finish();
}

static int take_all_blocks(void *argument)
{
    tn_tensor *t;
    int status = 0, made = 0;
    (void)argument;
    while ((status = make(64, TN_NOW, &t)) == 0)
        made++;
    TN_CHECK(status == TN_ERR_FULL && made > 0);
    return hang();
}

TN_TEST(blocks_of_dead_processes_are_freed_before_full_is_returned)
{
    tn_tensor *t = NULL;
    begin(&(tn_domain_options){.quota_bytes = 4 * MIB, .blocks = BLOCKS});
    for (int i = 0; i < 3; i++) {
        run_and_kill(take_all_blocks, NULL);
        TN_CHECK_OK(make(64, TN_NOW, &t));
        t = tn_tensor_unref(t);
    }
    finish();
}

/*
 * Another thread of this process reclaims dead processes until it finds none. A call that
 * gave up could not see the end of that: no event is raised.
 */
static void *reclaim_nobody(void *unused)
{
    while (atomic_load(&tni_reaper_part(d)->files_ns) == 0)
        tni_os_yield();
    atomic_store(&tni_reaper_part(d)->reaping, 0);
    return unused;
}

/*
 * On a busy machine the patience of a call may end before that thread runs: then try once
 * more.
 */
static int take_while_another_reclaims(int (*take)(void))
{
    enum { TRIES = 10 };
    int status = TN_ERR_FULL;
    for (int i = 0; i < TRIES && status == TN_ERR_FULL; i++) {
        pthread_t thread;
        atomic_store(&tni_reaper_part(d)->files_ns, 0);
        atomic_store(&d->relieve_ns, 0);
        atomic_store(&tni_reaper_part(d)->reaping, d->who);
        TN_CHECK(pthread_create(&thread, NULL, reclaim_nobody, NULL) == 0);
        status = take();
        pthread_join(thread, NULL);
    }
    return status;
}

static int take_object(void)
{
    tn_event *event;
    int status = tn_event_open(d, NULL, 0, &event);
    if (status == 0)
        tn_object_close(event);
    return status;
}

TN_TEST(a_call_that_finds_no_entry_waits_for_a_reclaimer)
{
    begin(&(tn_domain_options){.quota_bytes = 4 * MIB, .objects = OBJECTS});
    run_and_kill(make_all_objects, NULL);
    TN_CHECK_OK(take_while_another_reclaims(take_object));
    finish();
}

static int take_block(void)
{
    tn_tensor *t;
    int status = make(64, TN_NOW, &t);
    if (status == 0)
        tn_tensor_unref(t);
    return status;
}

TN_TEST(a_call_that_finds_no_block_waits_for_a_reclaimer)
{
    begin(&(tn_domain_options){.quota_bytes = 4 * MIB, .blocks = BLOCKS});
    run_and_kill(take_all_blocks, NULL);
    TN_CHECK_OK(take_while_another_reclaims(take_block));
    finish();
}

/* ---- the claim on names ------------------------------------------------------------------ */

static int sit(void *argument)
{
    (void)argument;
    return hang();
}

static int make_one_object(void *argument)
{
    tn_event *event;
    (void)argument;
    TN_CHECK_OK(tn_event_open(d, NULL, 0, &event));
    return hang();
}

/* Write this member's name into the claim, as if it were making something. */
static void take_claim_as(pid_t pid)
{
    const struct tni_segment *s = &d->segment;
    uint32_t seat = seat_of(pid);
    uint64_t word = atomic_load(&tni_seat_at(s, seat)->word);
    atomic_store(&s->header->registry, tni_who(seat, tni_seat_incarnation(word)));
}

static void *release_late(void *unused)
{
    struct tni_header *h = d->segment.header;
    while ((atomic_load(&h->registry_wait) & TNI_WAIT_ARMED) == 0)
        tni_os_yield();
    tni_os_sleep_until(tnt_until_ns(LATE_MS)); /* the test needs an owner that is late */
    atomic_exchange(&h->registry, 0);
    tni_wait_notify(&h->registry_wait, INT32_MAX);
    return unused;
}

TN_TEST(others_wait_for_a_reclaimer_that_one_process_did_not_await)
{
    tn_event *event = NULL;
    pthread_t thread;
    begin(&(tn_domain_options){.quota_bytes = 4 * MIB, .seats = 8});
    pid_t holder = tnt_fork(sit, NULL);
    tnt_await(&ready);
    run_and_kill(make_one_object, NULL);
    take_claim_as(holder);
    /* Reclaiming dead processes needs the claim, and gives up after a moment. */
    assert_int_equal(tn_domain_reap(d, NULL), TN_ERR_TIMED_OUT);
    atomic_fetch_and(&d->segment.header->registry_wait, ~(uint32_t)TNI_WAIT_ARMED);
    TN_CHECK(pthread_create(&thread, NULL, release_late, NULL) == 0);
    TN_CHECK_OK(tn_event_open(d, NULL, 0, &event));
    pthread_join(thread, NULL);
    tn_object_close(event);
    tnt_kill(holder);
    finish();
}

static void give_claim_back(void)
{
    struct tni_header *h = d->segment.header;
    atomic_exchange(&h->registry, 0);
    tni_wait_notify(&h->registry_wait, INT32_MAX);
}

static int acquire_one(void *semaphore) { return tn_semaphore_acquire(semaphore, TN_NOW); }

/* Make a queue with a message, which alone has a reference to its tensor. */
static tn_queue *make_filled_queue(const char *name)
{
    tn_queue *queue = NULL;
    tn_tensor *t = NULL;
    TN_CHECK_OK(tn_queue_open(d, name, NULL, TN_OPEN_NEW, &queue));
    TN_CHECK_OK(tn_tensor_create(d, TN_UINT8, 1, (const int64_t[]){MIB},
                                 TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED), &t));
    TN_CHECK_OK(tn_queue_push_tensor(queue, t, TN_PUSH_MOVE, TN_NOW));
    return queue;
}

static int count_object(const tn_object_entry *object, void *count)
{
    (void)object;
    ++*(int *)count;
    return 0;
}

static int count_objects(void)
{
    char id[2 * sizeof d->segment.id + 1];
    tn_inspector *inspector = NULL;
    int count = 0;
    for (size_t i = 0; i < sizeof d->segment.id; i++)
        snprintf(id + 2 * i, 3, "%02x", d->segment.id[i]);
    TN_CHECK_OK(tn_inspector_open(id, &inspector));
    TN_CHECK_OK(tn_inspect_objects(inspector, count_object, &count));
    tn_inspector_close(inspector);
    return count;
}

TN_TEST(what_is_closed_beside_a_stopped_owner_of_the_registry_ends)
{
    static const char *const names[] = {"opened", "made", "left"};
    tn_queue *queues[TNI_COUNT(names)], *queue = NULL;
    begin(&(tn_domain_options){.quota_bytes = 8 * MIB, .seats = 8});
    pid_t holder = tnt_fork(sit, NULL);
    tnt_await(&ready);
    for (uint32_t i = 0; i < TNI_COUNT(names); i++)
        queues[i] = make_filled_queue(names[i]);
    take_claim_as(holder);
    for (uint32_t i = 0; i < TNI_COUNT(names); i++)
        tn_object_close(queues[i]);
    give_claim_back();
    assert_int_equal(count_objects(), 3);
    assert_int_equal(tn_queue_open(d, "opened", NULL, TN_OPEN_EXISTING, &queue),
                     TN_ERR_NOT_FOUND);
    assert_int_equal(count_objects(), 2);
    TN_CHECK_OK(tn_queue_open(d, "made", NULL, TN_OPEN_NEW, &queue));
    assert_int_equal(tn_queue_count(queue), 0);
    tn_object_close(queue);
    assert_int_equal(count_objects(), 1);
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    assert_int_equal(count_objects(), 0);
    tnt_kill(holder);
    finish();
}

/* What the dead process was changing is counted once the owner releases the registry. */
TN_TEST(a_recount_beside_a_stopped_owner_of_the_registry_ends)
{
    enum { LAST = TNI_THREADS - 1 }; /* a thread record of this process that no thread uses */
    tn_semaphore *semaphore = NULL;
    begin(&(tn_domain_options){.quota_bytes = 4 * MIB, .seats = 8});
    TN_CHECK_OK(tn_semaphore_open(d, NULL, 2, TN_SEMAPHORE_OWNED, &semaphore));
    struct tni_announce *at_work = tni_announce_at(&d->segment, d->seat, LAST);
    pid_t holder = tnt_fork(sit, NULL);
    tnt_await(&ready);
    atomic_store(&at_work->object, tni_object_id_index(tn_object_id(semaphore)) + 1);
    assert_true(tnt_kill_at("semaphore_taken", 1, acquire_one, semaphore));
    assert_int_equal(tn_domain_reap(d, NULL), TN_ERR_TIMED_OUT);
    take_claim_as(holder);
    assert_int_equal(tn_domain_reap(d, NULL), TN_ERR_TIMED_OUT);
    TN_CHECK(strstr(tn_error_detail(), "may be stopped") != NULL);
    atomic_store(&at_work->object, 0);
    give_claim_back();
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    assert_int_equal(tn_semaphore_count(semaphore), 2);
    tn_object_close(semaphore);
    tnt_kill(holder);
    finish();
}

static void *hand_on(void *claim)
{
    struct tni_header *h = d->segment.header;
    while ((atomic_load(&h->registry_wait) & TNI_WAIT_ARMED) == 0)
        tni_os_yield();
    atomic_fetch_add(&h->registry_turns, 1); /* the same owner has taken it again */
    (void)claim;
    return release_late(NULL);
}

TN_TEST(a_suspect_that_gave_the_claim_back_is_none_any_more)
{
    tn_event *event = NULL;
    pthread_t thread;
    begin(&(tn_domain_options){.quota_bytes = 4 * MIB, .seats = 8});
    pid_t holder = tnt_fork(sit, NULL);
    tnt_await(&ready);
    take_claim_as(holder);
    assert_int_equal(tn_event_open(d, NULL, 0, &event), TN_ERR_TIMED_OUT);
    TN_CHECK(strstr(tn_error_detail(), "may be stopped") != NULL);
    atomic_fetch_and(&d->segment.header->registry_wait, ~(uint32_t)TNI_WAIT_ARMED);
    TN_CHECK(pthread_create(&thread, NULL, hand_on, NULL) == 0);
    TN_CHECK_OK(tn_event_open(d, NULL, 0, &event));
    pthread_join(thread, NULL);
    tn_object_close(event);
    tnt_kill(holder);
    finish();
}

/* ---- seats ------------------------------------------------------------------------------- */

enum { SEATS = 3, FORKS = 4 * SEATS };

static int be_killed(void *argument)
{
    (void)argument;
    if (tnt_seat(d) == TNI_NO_SEAT)
        return 1;
    raise(SIGKILL);
    return 2;
}

static void fill_seats_with_dead(void)
{
    for (int i = 1; i < SEATS; i++)
        assert_int_equal(tnt_wait(tnt_fork(be_killed, NULL)), SIGKILL);
    assert_int_equal(tni_process_count_dead(&d->segment), SEATS - 1);
}

TN_TEST(a_fork_reclaims_dead_seats_when_every_seat_is_taken)
{
    begin(&(tn_domain_options){.quota_bytes = 4 * MIB, .seats = SEATS});
    for (int i = 0; i < FORKS; i++)
        assert_int_equal(tnt_wait(tnt_fork(be_killed, NULL)), SIGKILL);
    finish();
}

/* A dead seat that a member in another seat is reclaiming. */
struct reclaiming {
    pid_t reclaimer;
    uint32_t seat;
    void (*end)(const struct reclaiming *);
};

static void kill_reclaimer(const struct reclaiming *at) { kill(at->reclaimer, SIGKILL); }

static void set_seat_free(const struct reclaiming *at)
{
    _Atomic uint64_t *word = &tni_seat_at(&d->segment, at->seat)->word;
    uint32_t incarnation = tni_seat_incarnation(atomic_load(word));
    atomic_store(word, tni_seat_word(incarnation + 1, TNI_SEAT_FREE, 0));
}

/* End it when fork() has found no dead process. */
static void *end_late(void *reclaiming)
{
    const struct reclaiming *at = reclaiming;
    while (atomic_load(&d->relieve_ns) == 0)
        tni_os_yield();
    at->end(at);
    return NULL;
}

static void begin_reclaiming(struct reclaiming *at)
{
    enum { RECOVERER_SEATS = 10 }; /* the same number as in reclaim.c */
    const struct tni_segment *s = &d->segment;
    at->reclaimer = tnt_fork(sit, NULL);
    tnt_await(&ready);
    pid_t dead = tnt_fork(sit, NULL);
    tnt_await(&ready);
    at->seat = seat_of(dead);
    uint32_t seat = seat_of(at->reclaimer);
    uint32_t reclaimer = tni_seat_incarnation(atomic_load(&tni_seat_at(s, seat)->word))
                             << RECOVERER_SEATS |
                         seat;
    tnt_kill(dead);
    _Atomic uint64_t *word = &tni_seat_at(s, at->seat)->word;
    atomic_store(word, tni_seat_word(tni_seat_incarnation(atomic_load(word)), TNI_SEAT_REAPING,
                                     reclaimer & 0xffffff));
}

static void fork_while_another_reclaims(void (*end_reclaiming)(const struct reclaiming *))
{
    struct reclaiming reclaiming = {.end = end_reclaiming};
    pthread_t thread;
    begin(&(tn_domain_options){.quota_bytes = 4 * MIB, .seats = SEATS});
    begin_reclaiming(&reclaiming);
    atomic_store(&d->relieve_ns, 0);
    TN_CHECK(pthread_create(&thread, NULL, end_late, &reclaiming) == 0);
    assert_int_equal(tnt_wait(tnt_fork(be_killed, NULL)), SIGKILL);
    pthread_join(thread, NULL);
    tnt_kill(reclaiming.reclaimer);
    finish();
}

TN_TEST(a_fork_waits_for_a_reclaimer_of_the_only_dead_seat)
{
    fork_while_another_reclaims(set_seat_free);
}

TN_TEST(a_fork_takes_over_from_a_reclaimer_that_is_killed)
{
    fork_while_another_reclaims(kill_reclaimer);
}

TN_TEST(a_join_waits_for_a_seat_unless_all_were_alive_at_once)
{
    struct tni_seat_wait wait = {0};
    pid_t pids[SEATS];
    begin(&(tn_domain_options){.quota_bytes = 4 * MIB, .seats = SEATS});
    for (int i = 1; i < SEATS; i++) {
        pids[i] = tnt_fork(sit, NULL);
        tnt_await(&ready);
    }
    assert_false(tni_process_await_seat(&d->segment, &wait));
    tnt_kill(pids[1]);
    wait = (struct tni_seat_wait){0};
    assert_true(tni_process_await_seat(&d->segment, &wait));
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    assert_int_equal(tni_process_count_dead(&d->segment), 0);
    wait = (struct tni_seat_wait){0};
    assert_true(tni_process_await_seat(&d->segment, &wait)); /* a seat became free meanwhile */
    tnt_kill(pids[2]);
    finish();
}

TN_TEST(an_exec_reclaims_dead_seats_when_every_seat_is_taken)
{
    const char *const argv[] = {"true", NULL};
    tn_process *process = NULL;
    begin(&(tn_domain_options){.quota_bytes = 4 * MIB, .seats = SEATS});
    fill_seats_with_dead();
    TN_CHECK_OK(tn_process_exec(d, argv, NULL, 0, &process));
    assert_int_equal(tni_process_count_dead(&d->segment), 0);
    TN_CHECK_OK(tn_process_wait(process, tnt_deadline(LONG_MS), NULL));
    tn_process_close(process);
    finish();
}

static void note_warning(int level, const char *line, void *context)
{
    *(bool *)context |= level == TNI_LOG_WARNING && strstr(line, "gets no seat") != NULL;
}

static int expect_no_seat(void *argument)
{
    tn_event *event;
    (void)argument;
    assert_int_equal(tn_event_open(d, NULL, 0, &event), TN_ERR_FORKED);
    TN_CHECK(strstr(tn_error_detail(), "every seat was taken") != NULL);
    return 0;
}

TN_TEST(a_fork_that_gets_no_seat_says_so_in_parent_and_child)
{
    pid_t pids[SEATS];
    bool has_warned = false;
    begin(&(tn_domain_options){.quota_bytes = 4 * MIB, .seats = SEATS});
    for (int i = 1; i < SEATS; i++) {
        pids[i] = tnt_fork(sit, NULL);
        tnt_await(&ready);
    }
    tn_log_set(note_warning, &has_warned);
    tnt_wait_ok(tnt_fork(expect_no_seat, NULL));
    tn_log_set(NULL, NULL);
    assert_true(has_warned);
    for (int i = 1; i < SEATS; i++)
        tnt_kill(pids[i]);
    finish();
}

struct joiner {
    struct tnt_signal go;
    int id_pipe[2];
};

static int join_by_id(void *argument)
{
    struct joiner *joiner = argument;
    char id[33] = {0};
    tn_domain *domain;
    TN_CHECK(read(joiner->id_pipe[0], id, 32) == 32);
    TN_CHECK_OK(tn_domain_open(id, NULL, TN_OPEN_EXISTING, &domain));
    tn_domain_close(domain);
    tnt_signal(&joiner->go);
    return 0;
}

TN_TEST(a_join_takes_a_dead_ones_seat_while_a_member_waits)
{
    struct joiner joiner = {.go = tnt_signal_open()};
    char id[33];
    tn_queue *q;
    tn_message m;
    TN_CHECK(pipe(joiner.id_pipe) == 0);
    pid_t pid = tnt_fork(join_by_id, &joiner);
    begin(&(tn_domain_options){.quota_bytes = 4 * MIB, .seats = SEATS});
    TN_CHECK_OK(tn_queue_open(d, NULL, NULL, 0, &q));
    fill_seats_with_dead();
    for (size_t i = 0; i < 16; i++)
        snprintf(id + 2 * i, 3, "%02x", d->segment.id[i]);
    TN_CHECK(write(joiner.id_pipe[1], id, 32) == 32);
    uint64_t deadline_ns = tnt_until_ns(LONG_MS);
    while (tni_os_poll(&joiner.go.read_fd, 1, 0) != 0) {
        TN_CHECK(tni_os_now_ns() < deadline_ns);
        assert_int_equal(tn_queue_pop(q, tnt_deadline(LATE_MS), &m), TN_ERR_TIMED_OUT);
    }
    tnt_wait_ok(pid);
    tn_object_close(q);
    close(joiner.id_pipe[0]);
    close(joiner.id_pipe[1]);
    tnt_signal_close(&joiner.go);
    finish();
}
