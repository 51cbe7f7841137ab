/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reaper: a kill at every named point of what writes shared memory, and of the reaper
 * itself; then settling, an audit, and the count of live blocks that there was before.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/harness.h"
#include "harness/live_blocks.h"
#include "harness/members.h"
#include "queue/ring.h"
#include "reaper/reaper.h"
#include "reaper/recount.h"
#include "sync/sync.h"

enum { MS = 1000 * 1000 };

/* ---- a domain without the api room ------------------------------------------------------- */

static struct tn_domain *open_domain_of(uint32_t seats, uint32_t blocks, uint64_t quota_bytes)
{
    const struct tni_segment_options options = {.name = "",
                                                .seats = seats,
                                                .blocks = blocks,
                                                .objects = 64,
                                                .tickets = 256,
                                                .quota_bytes = quota_bytes,
                                                .watermark_bytes = quota_bytes,
                                                .flags = TN_DOMAIN_NO_MANAGER};
    struct tni_segment segment;
    struct tn_domain *d = NULL;
    TN_CHECK_OK(tni_segment_create(&options, &segment));
    TN_CHECK_OK(tni_process_join(&segment, 0, &d));
    tni_alloc_init(d);
    tni_ref_init(d);
    tni_queue_init(d);
    tni_reaper_init(d);
    return d;
}

static struct tn_domain *open_domain(void) { return open_domain_of(16, 4096, 64 << 20); }

static void close_domain(struct tn_domain *d)
{
    tni_reaper_leave(d);
    tni_process_leave(d);
    tni_process_unkeep(d);
}

static int print_sentence(const char *sentence, bool repaired, void *context)
{
    (void)context;
    printf("audit: %s%s\n", sentence, repaired ? " (repaired)" : "");
    return 0;
}

static int audit(struct tn_domain *d)
{
    return tni_audit(&d->segment, NULL, false, print_sentence, NULL);
}

/* Count what an audit says, and remember its last sentence. */
struct findings {
    int count, repaired;
    char last[320];
};

static int note_finding(const char *sentence, bool repaired, void *context)
{
    struct findings *findings = context;
    findings->count++;
    findings->repaired += repaired;
    snprintf(findings->last, sizeof findings->last, "%s", sentence);
    return 0;
}

static uint32_t state_of(const struct tn_domain *d, uint32_t seat)
{
    return tni_seat_state(atomic_load(&tni_seat_at(&d->segment, seat)->word));
}

static uint32_t seats_taken(const struct tn_domain *d) { return tnt_members(&d->segment, 1); }

/* Nobody else is alive, so nothing may be in the way. */
static void settle_all(struct tn_domain *d) { TN_CHECK_OK(tni_reaper_settle_all(d)); }

static tni_block alloc_block(struct tn_domain *d, uint64_t bytes, uint8_t kind)
{
    const struct tni_block_about about = {.kind = kind};
    tni_block block;
    bool is_zero;
    TN_CHECK_OK(tni_ref_alloc(d, bytes, &about, true, 0, &block, &is_zero));
    return block;
}

/* ---- something of everything ------------------------------------------------------------- */

struct work {
    struct tn_domain *domain;
    tn_queue *queues[3]; /* by policy */
    tn_semaphore *owned, *signal;
    tn_lock *lock;
    tn_event *event;
    tn_barrier *barrier;
};

static void open_work(struct work *w, struct tn_domain *d)
{
    *w = (struct work){.domain = d};
    for (uint32_t policy = 0; policy < 3; policy++) {
        const tn_queue_options options = {
            .struct_size = sizeof options, .capacity = 4, .policy = policy};
        TN_CHECK_OK(tn_queue_create(d, NULL, &options, &w->queues[policy]));
    }
    TN_CHECK_OK(tn_semaphore_create(d, NULL, 2, TN_SEMAPHORE_OWNED, &w->owned));
    TN_CHECK_OK(tn_semaphore_create(d, NULL, 0, 0, &w->signal));
    TN_CHECK_OK(tn_lock_create(d, NULL, &w->lock));
    TN_CHECK_OK(tn_event_create(d, NULL, true, &w->event));
    TN_CHECK_OK(tn_barrier_create(d, NULL, 1, &w->barrier));
}

static void close_work(struct work *w)
{
    for (uint32_t policy = 0; policy < 3; policy++)
        tn_queue_close(w->queues[policy]);
    tn_semaphore_close(w->owned);
    tn_semaphore_close(w->signal);
    tn_lock_close(w->lock);
    tn_event_close(w->event);
    tn_barrier_close(w->barrier);
}

/* What a killed worker left in the queues is taken out, so that live blocks can be compared. */
static void drain(struct work *w)
{
    for (uint32_t policy = 0; policy < 3; policy++) {
        tn_message message;
        int status;
        while ((status = tn_queue_pop(w->queues[policy], 0, &message)) == 0) {
            if (policy == TN_QUEUE_LEASE)
                TN_CHECK_OK(tn_message_ack(w->queues[policy], &message));
            tn_message_fini(&message);
        }
        TN_CHECK(status == TN_ERR_TIMED_OUT || status == TN_ERR_PEER_DIED);
    }
    TN_CHECK_OK(tn_event_clear(w->event));
    /* A ticket outlives its issuer for a while: as if that was over. */
    tni_ticket_expire(w->domain, tni_os_now_ns() + 3600 * UINT64_C(1000000000));
}

static tn_tensor *make_tensor(struct tn_domain *d, int64_t floats)
{
    static const tn_dtype float32 = {.code = 2, .bits = 32, .lanes = 1};
    tn_tensor *tensor = NULL;
    TN_CHECK_OK(tn_tensor_zeros(d, float32, 1, &floats, 0, &tensor));
    return tensor;
}

static void exchange(struct work *w, uint32_t policy, uint32_t tensor_count, uint32_t flags)
{
    tn_tensor *tensors[3];
    for (uint32_t i = 0; i < tensor_count; i++)
        tensors[i] = make_tensor(w->domain, 100);
    const tn_message message = {
        .bytes = "tenon", .size_bytes = 5, .tensors = tensors, .tensor_count = tensor_count};
    int status = tn_queue_push(w->queues[policy], &message, flags, 0);
    /* Full when a killed worker's message is still there: then its turn comes below. */
    TN_CHECK(status == 0 || status == TN_ERR_TIMED_OUT || status == TN_ERR_PEER_DIED);
    if (status != 0 || (flags & TN_PUSH_MOVE) == 0)
        for (uint32_t i = 0; i < tensor_count; i++)
            tn_tensor_unref(tensors[i]);
    tn_message got;
    status = tn_queue_pop(w->queues[policy], 0, &got);
    if (status != 0)
        return;
    if (policy == TN_QUEUE_LEASE && got.attempt == 0 && tensor_count == 1)
        TN_CHECK_OK(tn_message_return(w->queues[policy], &got));
    else if (policy == TN_QUEUE_LEASE)
        TN_CHECK_OK(tn_message_ack(w->queues[policy], &got));
    tn_message_fini(&got);
}

static void use_handles(struct tn_domain *d)
{
    unsigned char bytes[4096];
    size_t size = 0;
    tn_tensor *tensor = make_tensor(d, 10), *other = NULL;
    const tn_handle_options options = {.struct_size = sizeof options, .uses = 2};
    TN_CHECK_OK(tn_handle_export(tensor, &options, bytes, sizeof bytes, &size));
    for (int use = 0; use < 2; use++) {
        TN_CHECK_OK(tn_handle_import(d, bytes, size, &other));
        tn_tensor_unref(other);
    }
    TN_CHECK_OK(tn_handle_export(tensor, &options, bytes, sizeof bytes, &size));
    tn_ticket_id ticket;
    TN_CHECK_OK(tn_handle_ticket(bytes, size, &ticket));
    TN_CHECK_OK(tn_ticket_revoke(d, ticket));
    tn_tensor_unref(tensor);
}

static void use_objects(struct work *w)
{
    TN_CHECK_OK(tn_semaphore_acquire(w->owned, 0));
    TN_CHECK_OK(tn_semaphore_release(w->owned));
    TN_CHECK_OK(tn_semaphore_release(w->signal));
    TN_CHECK_OK(tn_semaphore_acquire(w->signal, 0));
    int status = tn_lock_acquire(w->lock, 0);
    TN_CHECK(status == 0 || status == 1 || status == TN_ERR_PEER_DIED);
    TN_CHECK_OK(tn_lock_release(w->lock));
    TN_CHECK_OK(tn_event_set(w->event));
    TN_CHECK_OK(tn_event_wait(w->event, 0));
    tn_queue *queue;
    TN_CHECK_OK(tn_queue_create(w->domain, "of-a-worker", NULL, &queue));
    tn_tensor *tensor = make_tensor(w->domain, 50);
    TN_CHECK_OK(tn_queue_push_tensor(queue, tensor, TN_PUSH_MOVE, 0));
    tn_queue_close(queue); /* ends it with a message inside */
}

static void use_memory(struct tn_domain *d)
{
    tni_block small[70], large = alloc_block(d, 3 << 20, TNI_KIND_TENSOR);
    for (uint32_t i = 0; i < TNI_COUNT(small); i++)
        small[i] = alloc_block(d, 200, TNI_KIND_TENSOR);
    tni_block message = alloc_block(d, 900, TNI_KIND_MESSAGE);
    TN_CHECK_OK(tni_records_add(d, message, small[0], false));
    TN_CHECK_OK(tni_records_add(d, message, small[1], true));
    for (uint32_t i = 0; i < TNI_COUNT(small); i++)
        if (i != 1)
            tni_ref_release(d, small[i]);
    tni_ref_release(d, message);
    tni_ref_release(d, large);
    struct tni_thread *thread = tni_thread_enter(d);
    tni_alloc_flush(d, thread);
    tni_alloc_trim(d, thread, 0);
    tni_thread_leave(thread);
}

/* A worker: a bit of everything, a child, and an orderly end. */
static int work(void *argument)
{
    struct work *w = argument;
    struct tn_domain *d = w->domain;

    TN_CHECK(d->seat != TNI_NO_SEAT);
    tni_block kept = alloc_block(d, 5000, TNI_KIND_TENSOR);
    use_memory(d);
    for (uint32_t policy = 0; policy < 3; policy++) {
        exchange(w, policy, 1, 0);
        exchange(w, policy, 1, TN_PUSH_MOVE);
        exchange(w, policy, 3, 0);
        exchange(w, policy, 3, TN_PUSH_MOVE);
    }
    use_handles(d);
    use_objects(w);
    pid_t child = fork();
    TN_CHECK(child >= 0);
    if (child == 0) {
        /* In order, or as most end. */
        tni_ref_release(d, kept);
        _exit(0);
    }
    int status;
    TN_CHECK(waitpid(child, &status, 0) == child);
    close_domain(d);
    return 0;
}

/* Every point that a worker may pass; those of the reaper are below. */
static const char *const work_points[] = {"ack_emptied",
                                          "adopt_held_already",
                                          "adopt_recorded",
                                          "alloc_committed",
                                          "alloc_end_raised",
                                          "alloc_pages_committed",
                                          "alloc_recorded",
                                          "alloc_taken",
                                          "drop_slot_emptied",
                                          "event_passed",
                                          "event_set",
                                          "fork_holds_written",
                                          "fork_incremented",
                                          "fork_recorded",
                                          "fork_child_claimed",
                                          "fork_child_named",
                                          "fork_object_opened",
                                          "fork_seat_claimed",
                                          "join_claimed",
                                          "join_witnessed",
                                          "lease_pinned",
                                          "lease_recorded",
                                          "leave_before_free",
                                          "leave_begun",
                                          "leave_freed",
                                          "leave_hints_published",
                                          "leave_holds_released",
                                          "leave_objects_closed",
                                          "lend_incremented",
                                          "lend_moved",
                                          "lock_acquired",
                                          "lock_released",
                                          "object_bits_cleared",
                                          "object_ended",
                                          "object_ending",
                                          "object_making",
                                          "object_name_linked",
                                          "object_name_unlinked",
                                          "object_opened",
                                          "object_opening",
                                          "object_ring_recorded",
                                          "object_ring_unrecorded",
                                          "pop_emptied",
                                          "pop_taken",
                                          "push_claimed",
                                          "push_full",
                                          "push_lent",
                                          "push_tail_passed",
                                          "quota_asked",
                                          "records_added",
                                          "ref_decremented",
                                          "ref_freed",
                                          "refill_full",
                                          "registry_taken",
                                          "release_announced",
                                          "release_unrecorded",
                                          "row_unrecorded",
                                          "semaphore_announced",
                                          "semaphore_counted",
                                          "semaphore_given",
                                          "semaphore_released",
                                          "semaphore_taken",
                                          "semaphore_uncounted",
                                          "take_apart_unrecorded",
                                          "ticket_end_announced",
                                          "ticket_end_unrecorded",
                                          "ticket_live",
                                          "ticket_making",
                                          "ticket_pinned",
                                          "ticket_use_announced",
                                          "ticket_use_taken",
                                          "ticket_used_up",
                                          "ticket_written",
                                          "trim_begun",
                                          "trim_discarded",
                                          "trim_span_taken"};

/* A first look at everything, so that pages and frontiers are where they stay. */
static uint32_t warm_up(struct work *w)
{
    tnt_wait_ok(tnt_fork(work, w));
    settle_all(w->domain);
    drain(w);
    return live_blocks(w->domain);
}

/* ---- kills ------------------------------------------------------------------------------- */

static void print_seats(const struct tn_domain *d)
{
    for (uint32_t seat = 0; seat < d->segment.geometry.seats; seat++) {
        const struct tni_seat *entry = tni_seat_at(&d->segment, seat);
        uint64_t word = atomic_load(&entry->word);
        if (tni_seat_state(word) != TNI_SEAT_FREE)
            printf("# seat %u: word %#llx, pid %d, flags %#x: its process is %d\n", seat,
                   (unsigned long long)word, atomic_load(&entry->pid),
                   atomic_load(&entry->flags), tni_process_seat_state(&d->segment, seat));
    }
}

static void check_as_before(struct work *w, uint32_t live, const char *point, uint32_t passing)
{
    int found = audit(w->domain);
    drain(w);
    uint32_t now = live_blocks(w->domain), taken = seats_taken(w->domain);
    if (found == 0 && now == live && taken == 1)
        return;
    print_seats(w->domain);
    fail_msg("after a kill at %s, passing %u: %d discrepancies, %u live blocks instead of %u, "
             "%u seats taken",
             point, passing, found, now, live, taken);
}

TN_TEST_WITHIN(a_worker_killed_at_any_point_leaves_nothing_once_it_is_settled, 120)
{
    struct work w;
    open_work(&w, open_domain());
    uint32_t live = warm_up(&w), points = 0;

    for (size_t i = 0; i < TNI_COUNT(work_points); i++) {
        uint32_t passing = 1;
        for (; passing <= 6 && tnt_kill_at(work_points[i], passing, work, &w); passing++) {
            settle_all(w.domain);
            check_as_before(&w, live, work_points[i], passing);
        }
        /* Not passed, or by its forked child only. */
        settle_all(w.domain);
        check_as_before(&w, live, work_points[i], 0);
        if (passing == 1)
            printf("# not passed: %s\n", work_points[i]);
        points += passing > 1;
    }
    assert_true(points >= TNI_COUNT(work_points) - 2); /* but for fork_child_* */
    /* And the survivor goes on, and others can come. */
    tnt_wait_ok(tnt_fork(work, &w));
    settle_all(w.domain);
    check_as_before(&w, live, "no kill", 0);
    close_work(&w);
    close_domain(w.domain);
}

TN_TEST(a_kill_between_the_frontier_and_its_blocks_loses_no_block)
{
    struct work w;
    open_work(&w, open_domain());
    uint32_t live = live_blocks(w.domain);
    for (uint32_t passing = 1; tnt_kill_at("alloc_frontier_moved", passing, work, &w);
         passing++) {
        settle_all(w.domain);
        check_as_before(&w, live, "alloc_frontier_moved", passing);
    }
    settle_all(w.domain);
    check_as_before(&w, live, "alloc_frontier_moved", 0);
    close_work(&w);
    close_domain(w.domain);
}

static int settle_as_a_child(void *argument)
{
    const struct work *w = argument;
    while (tni_reaper_settle_all(w->domain) == TN_ERR_TIMED_OUT)
        tni_os_yield();
    return 0;
}

/*
 * Where workers die for the reapers below: between two records, half made, holding this and
 * that.
 */
static const char *const victims[] = {
    "alloc_taken",       "take_apart_unrecorded", "trim_span_taken",
    "lend_incremented",  "push_claimed",          "push_full",
    "pop_taken",         "lease_recorded",        "object_making",
    "object_ending",     "ticket_written",        "lock_acquired",
    "semaphore_taken",   "fork_holds_written",    "leave_begun",
    "ref_decremented",   "object_opened",         "object_ring_recorded",
    "drop_slot_emptied", "ticket_use_taken",      "semaphore_counted",
    "semaphore_given",   "object_name_linked",    "object_name_unlinked",
    "registry_taken"};

static const char *const reaper_points[] = {
    "settle_claimed",         "settle_waits_ended",
    "settle_children_ended",  "settle_tickets_settled",
    "settle_claims_released", "settle_row_released",
    "settle_announces_taken", "settle_hints_marked",
    "settle_before_free",     "settle_freed",
    "recount_marked",         "recount_begun",
    "recount_taken",          "recount_announced",
    "recount_settled",        "recount_block_done",
    "recount_outer_cleared",  "recount_announce_done",
    "recount_suspects_done",  "row_unrecorded",
    "ref_decremented",        "ref_freed",
    "take_apart_unrecorded",  "settle_object_kind",
    "settle_object_noted",    "settle_slot",
    "drop_slot_emptied",      "refill_full",
    "object_bits_cleared",    "object_ending",
    "object_ended",           "object_ring_unrecorded",
    "ticket_undone",          "semaphore_settle_announced",
    "semaphore_settle_given", "semaphore_settle_uncounted",
    "lock_dead_named",        "object_name_unlinked",
    "settle_object_woken",    "ticket_group_settled",
    "semaphore_unmarked",     "settle_role_noted"};

/* @return whether a reaper died there */
static bool kill_reapers_at(struct work *w, const char *point, uint32_t live)
{
    bool was_reached = false;
    for (size_t v = 0; v < TNI_COUNT(victims); v++) {
        for (uint32_t passing = 1; passing <= 2; passing++) {
            if (!tnt_kill_at(victims[v], 1, work, w))
                fail_msg("a worker does not pass %s", victims[v]);
            bool was_killed = tnt_kill_at(point, passing, settle_as_a_child, w);
            settle_all(w->domain);
            check_as_before(w, live, victims[v], passing);
            was_reached |= was_killed;
            if (!was_killed)
                break;
        }
    }
    return was_reached;
}

TN_TEST_WITHIN(a_reaper_killed_at_any_point_is_replaced, 200)
{
    enum { TRIES = 3 }; /* a gc of another test settles the dead of all this user's domains */
    struct work w;
    open_work(&w, open_domain());
    uint32_t live = warm_up(&w), points = 0;

    for (size_t i = 0; i < TNI_COUNT(reaper_points); i++) {
        int tries = 0;
        while (tries < TRIES && !kill_reapers_at(&w, reaper_points[i], live))
            tries++;
        if (tries == TRIES)
            printf("# not passed: %s\n", reaper_points[i]);
        points += tries < TRIES;
    }
    assert_int_equal(points, TNI_COUNT(reaper_points));
    close_work(&w);
    close_domain(w.domain);
}

/* ---- who is dead ------------------------------------------------------------------------- */

struct held {
    struct tn_domain *domain;
    struct tnt_signal ready, go;
    tni_block block;
    uint32_t count;
};

static int hold_until_told(void *argument)
{
    struct held *held = argument;
    for (uint32_t i = 0; i < held->count; i++)
        alloc_block(held->domain, 64, TNI_KIND_TENSOR);
    tnt_signal(&held->ready);
    tnt_await(&held->go);
    return 0;
}

static struct held open_held(struct tn_domain *d, uint32_t count)
{
    return (struct held){
        .domain = d, .ready = tnt_signal_open(), .go = tnt_signal_open(), .count = count};
}

static void close_held(struct held *held)
{
    tnt_signal_close(&held->ready);
    tnt_signal_close(&held->go);
}

TN_TEST(the_living_are_left_alone_and_the_dead_settled)
{
    struct tn_domain *d = open_domain();
    struct held held = open_held(d, 10);
    pid_t child = tnt_fork(hold_until_told, &held);
    tnt_await(&held.ready);

    assert_int_equal(tni_reaper_settle_all(d), 0);
    assert_int_equal(live_blocks(d), 10);
    assert_int_equal(tni_reaper_settle(d, d->seat), 0);
    assert_int_equal(tni_reaper_settle(d, 5000), 0);
    tnt_kill(child);
    assert_int_equal(tni_reaper_settle_all(d), 1);
    assert_int_equal(live_blocks(d), 0);
    assert_int_equal(tni_reaper_settle_all(d), 0);
    assert_int_equal(audit(d), 0);
    close_held(&held);
    close_domain(d);
}

static int hold_and_exec(void *argument)
{
    struct held *held = argument;
    alloc_block(held->domain, 64, TNI_KIND_TENSOR);
    dup2(held->go.read_fd, 0); /* cat ends when told */
    dup2(held->ready.write_fd, 1);
    execl("/bin/cat", "cat", (char *)NULL);
    return 1;
}

TN_TEST(a_process_that_execed_holds_nothing_any_more)
{
    struct tn_domain *d = open_domain();
    struct held held = open_held(d, 0);
    pid_t child = tnt_fork(hold_and_exec, &held);

    tnt_signal(&held.go); /* comes back through cat: exec is over */
    tnt_await(&held.ready);
    assert_int_equal(kill(child, 0), 0);
    assert_int_equal(tni_reaper_settle_all(d), 1);
    assert_int_equal(live_blocks(d), 0);
    assert_int_equal(audit(d), 0);
    tnt_kill(child);
    close_held(&held);
    close_domain(d);
}

static int announce_until_told(void *argument)
{
    struct held *held = argument;
    struct tni_thread *thread = tni_thread_enter(held->domain);
    tni_announce(thread, held->block, 1);
    tnt_signal(&held->ready);
    tnt_await(&held->go);
    tni_announce_clear(thread);
    tni_thread_leave(thread);
    tnt_signal(&held->ready);
    tnt_await(&held->go);
    return 0;
}

static int increment_and_die(void *argument)
{
    const struct held *held = argument;
    struct tni_thread *thread = tni_thread_enter(held->domain);
    tni_announce(thread, held->block, 1);
    TN_CHECK_OK(tni_ref_pin(held->domain, held->block));
    raise(SIGKILL);
    return 1;
}

TN_TEST(a_seat_is_free_while_the_living_hold_up_the_recount)
{
    struct tn_domain *d = open_domain();
    struct held held = open_held(d, 0);
    held.block = alloc_block(d, 64, TNI_KIND_TENSOR);
    pid_t alive = tnt_fork(announce_until_told, &held);
    tnt_await(&held.ready);
    assert_true(WIFSIGNALED(tnt_wait(tnt_fork(increment_and_die, &held))));

    assert_int_equal(tni_reaper_settle_all(d), TN_ERR_TIMED_OUT);
    assert_int_equal(state_of(d, 2), TNI_SEAT_FREE);
    assert_int_equal(tni_word_count(atomic_load(tni_word_at(&d->segment, held.block))), 3);
    /* The suspect is anybody's: a child may go on with it. */
    struct work w = {.domain = d};
    tnt_signal(&held.go);
    tnt_await(&held.ready);
    tnt_wait_ok(tnt_fork(settle_as_a_child, &w));
    tnt_signal(&held.go);
    tnt_wait_ok(alive);
    settle_all(d);
    assert_int_equal(tni_word_count(atomic_load(tni_word_at(&d->segment, held.block))), 1);
    assert_int_equal(audit(d), 0);
    tni_ref_release(d, held.block);
    assert_int_equal(live_blocks(d), 0);
    close_held(&held);
    close_domain(d);
}

TN_TEST(two_dead_that_announce_one_block_do_not_wait_for_each_other)
{
    struct tn_domain *d = open_domain();
    struct held held = {.domain = d, .block = alloc_block(d, 64, TNI_KIND_TENSOR)};
    pid_t first = tnt_fork(increment_and_die, &held),
          second = tnt_fork(increment_and_die, &held);
    tnt_wait(first);
    tnt_wait(second);
    assert_int_equal(tni_reaper_settle_all(d), 2);
    assert_int_equal(tni_word_count(atomic_load(tni_word_at(&d->segment, held.block))), 1);
    assert_int_equal(audit(d), 0);
    tni_ref_release(d, held.block);
    assert_int_equal(live_blocks(d), 0);
    close_domain(d);
}

static int wait_as_a_bound_child(void *argument)
{
    struct held *held = argument;
    pid_t child = fork();
    TN_CHECK(child >= 0);
    if (child == 0) {
        atomic_fetch_or(&held->domain->me->flags, TNI_SEAT_ENDS_WITH_PARENT);
        tnt_signal(&held->ready);
        tnt_await(&held->go);
        return 0;
    }
    tnt_await(&held->go);
    return 0;
}

TN_TEST(children_that_end_with_their_parent_are_killed_when_it_is_settled)
{
    struct tn_domain *d = open_domain();
    struct held held = open_held(d, 0);
    pid_t parent = tnt_fork(wait_as_a_bound_child, &held);
    tnt_await(&held.ready);
    int32_t child = 0;
    for (uint32_t seat = 0; seat < 16; seat++)
        if (atomic_load(&tni_seat_at(&d->segment, seat)->flags) & TNI_SEAT_ENDS_WITH_PARENT)
            child = atomic_load(&tni_seat_at(&d->segment, seat)->pid);
    int child_fd;
    TN_CHECK_OK(tni_os_process_open(child, &child_fd));
    tnt_kill(parent);
    assert_true(tni_reaper_settle_all(d) >= 1);
    TN_CHECK_OK(tni_os_poll(&child_fd, 1, tnt_deadline(5000)));
    tni_os_close(child_fd);
    settle_all(d);
    assert_int_equal(seats_taken(d), 1);
    assert_int_equal(audit(d), 0);
    close_held(&held);
    close_domain(d);
}

TN_TEST(a_seat_number_that_was_taken_anew_is_not_the_recoverer_that_died_in_it)
{
    struct tn_domain *d = open_domain();
    struct held held = open_held(d, 3);
    pid_t victim = tnt_fork(hold_until_told, &held);
    tnt_await(&held.ready);
    tnt_kill(victim);
    /*
     * As if a reaper in seat 2, incarnation 0, had died, and been settled, before it was done.
     */
    struct tni_seat *entry = tni_seat_at(&d->segment, 1);
    uint64_t word = atomic_load(&entry->word);
    atomic_store(&tni_seat_at(&d->segment, 2)->word, tni_seat_word(7, TNI_SEAT_FREE, 0));
    atomic_store(&entry->word, tni_seat_word(tni_seat_incarnation(word), TNI_SEAT_REAPING, 2));
    pid_t other = tnt_fork(hold_until_told, &held); /* sits in seat 2 now, alive */
    tnt_await(&held.ready);
    assert_int_equal(state_of(d, 2), TNI_SEAT_ALIVE);
    assert_int_equal(tni_reaper_settle(d, 1), 1);
    tnt_signal(&held.go);
    tnt_wait_ok(other);
    settle_all(d);
    assert_int_equal(audit(d), 0);
    close_held(&held);
    close_domain(d);
}

TN_TEST(a_hundred_thousand_blocks_are_given_back_at_once)
{
    struct tn_domain *d = open_domain_of(16, 1 << 17, 64 << 20);
    struct held held = open_held(d, 100000);
    pid_t child = tnt_fork(hold_until_told, &held);
    tnt_await(&held.ready);
    assert_int_equal(live_blocks(d), 100000);
    tnt_kill(child);
    uint64_t begun_ns = tni_os_now_ns();
    assert_int_equal(tni_reaper_settle_all(d), 1);
    printf("# 100000 blocks in %llu us\n",
           (unsigned long long)(tni_os_now_ns() - begun_ns) / 1000);
    assert_int_equal(live_blocks(d), 0);
    assert_int_equal(audit(d), 0);
    close_held(&held);
    close_domain(d);
}

TN_TEST(a_member_that_leaves_gives_everything_back)
{
    struct work w;
    open_work(&w, open_domain());
    uint32_t live = warm_up(&w);
    tnt_wait_ok(tnt_fork(work, &w)); /* closes the domain at its end */
    settle_all(w.domain);            /* its forked child, which did not */
    check_as_before(&w, live, "leaving", 0);
    close_work(&w);
    close_domain(w.domain);
}

/* ---- the audit --------------------------------------------------------------------------- */

static void expect_finding(struct tn_domain *d, const char *text)
{
    struct findings looked = {0}, repaired = {0};
    assert_int_equal(tni_audit(&d->segment, NULL, false, note_finding, &looked), 1);
    assert_int_equal(looked.repaired, 0);
    if (strstr(looked.last, text) == NULL)
        fail_msg("the audit says '%s', not '%s'", looked.last, text);
    assert_int_equal(tni_audit(&d->segment, d, true, note_finding, &repaired), 1);
    if (repaired.repaired != 1)
        fail_msg("not repaired: %s", repaired.last);
    assert_int_equal(audit(d), 0);
}

TN_TEST(an_audit_finds_and_repairs_wrong_counts)
{
    struct tn_domain *d = open_domain();
    tni_block block = alloc_block(d, 64, TNI_KIND_TENSOR),
              other = alloc_block(d, 64, TNI_KIND_TENSOR);
    _Atomic uint64_t *word = tni_word_at(&d->segment, block);

    atomic_fetch_add(word, 2 * TNI_WORD_INC);
    expect_finding(d, "count 3, but 1 records name it (seat 0)");
    atomic_fetch_add(word, TNI_WORD_DEC);
    expect_finding(d, "count 0, but 1 records name it (seat 0)");
    atomic_store(word, tni_word_next(atomic_load(word), TNI_BLOCK_FREE, 0));
    expect_finding(d, "free, but 1 records name it");
    atomic_store(word, tni_word_next(atomic_load(word), 3, 5));
    expect_finding(d, "state 3");

    uint32_t at = tni_block_position(&d->segment.geometry, other);
    atomic_fetch_and(tni_row_at(&d->segment, d->seat, at), ~(UINT64_C(1) << (at % 64)));
    expect_finding(d, "count 1, but nothing names it");
    assert_int_equal(live_blocks(d), 1);
    tni_ref_release(d, block);
    close_domain(d);
    tni_process_unkeep(
        d); /* for the local reference of the other, which had no hold any more */
}

TN_TEST(an_audit_finds_and_repairs_what_free_seats_still_have)
{
    struct tn_domain *d = open_domain();
    struct tni_segment *s = &d->segment;
    tn_queue *queue;
    TN_CHECK_OK(tn_queue_create(d, "q", NULL, &queue));
    tni_block block = alloc_block(d, 64, TNI_KIND_TENSOR);
    uint32_t at = tni_block_position(&s->geometry, block);
    tni_raise_limit(&s->header->seat_limit, 6);

    atomic_fetch_add(tni_word_at(s, block), TNI_WORD_INC);
    atomic_fetch_or(tni_row_at(s, 3, at), UINT64_C(1) << (at % 64));
    expect_finding(d, "seat 3 is free, but holds blocks");
    atomic_store(&tni_announce_at(s, 4, 7)->block, block.id);
    expect_finding(d, "seat 4 is free, but announces blocks");
    tni_seat_set_add(&tni_object_at(s, 0)->openers, 5);
    expect_finding(d, "seat 5 is free, but has objects open");
    assert_int_equal(live_blocks(d), 2);
    tni_ref_release(d, block);
    tn_queue_close(queue);
    close_domain(d);
}

TN_TEST(an_audit_finds_and_repairs_orphaned_claims_and_objects)
{
    struct tn_domain *d = open_domain();
    struct tni_header *h = d->segment.header;
    tn_queue *queue;
    TN_CHECK_OK(tn_queue_create(d, "q", NULL, &queue));

    atomic_store(&h->registry, tni_who(9, 4));
    expect_finding(d, "the claim on names belongs to seat 9");
    atomic_store(&h->recount, tni_who(9, 4));
    expect_finding(d, "the claim on recounts");
    atomic_store(&h->manager, tni_who(9, 4));
    expect_finding(d, "tenond belongs to seat 9");
    atomic_store(&h->object_limit, 5000);
    expect_finding(d, "the limit of objects is 5000");
    tni_seat_set_remove(&tni_object_at(&d->segment, 0)->openers, d->seat);
    expect_finding(d, "object 0 (queue 'q') is open nowhere");
    tn_queue_close(queue);
    assert_int_equal(live_blocks(d), 0);
    close_domain(d);
}

TN_TEST(an_audit_names_a_slot_whose_owner_sits_nowhere)
{
    struct tn_domain *d = open_domain();
    tn_queue *queue;
    TN_CHECK_OK(tn_queue_create(d, "q", NULL, &queue));
    _Atomic uint64_t *word = &((struct tni_slot *)(void *)queue->slots)->word;
    uint64_t was = atomic_load(word);

    atomic_store(word, tni_slot_word(tni_slot_round(was), TNI_SLOT_CLAIMED, 9, 0));
    assert_int_equal(audit(d), 1);
    atomic_store(word, tni_slot_word(tni_slot_round(was), TNI_SLOT_CLAIMED, d->seat, 0));
    assert_int_equal(audit(d), 0);
    atomic_store(word, was);
    tn_queue_close(queue);
    close_domain(d);
}

TN_TEST(an_audit_names_the_dead_that_nobody_settled)
{
    struct tn_domain *d = open_domain();
    struct held held = open_held(d, 3);
    pid_t child = tnt_fork(hold_until_told, &held);
    tnt_await(&held.ready);
    tnt_kill(child);
    expect_finding(d, "is dead and not settled");
    assert_int_equal(live_blocks(d), 0);
    close_held(&held);
    close_domain(d);
}

struct churn {
    struct work w;
    _Atomic uint32_t *stop;
};

static int churn(void *argument)
{
    struct churn *c = argument;
    for (uint32_t i = 0; atomic_load(c->stop) == 0; i++) {
        exchange(&c->w, i % 2, 1 + i % 3, i % 4 < 2 ? TN_PUSH_MOVE : 0);
        use_handles(c->w.domain);
        use_memory(c->w.domain);
    }
    return 0;
}

TN_TEST_WITHIN(an_audit_of_a_busy_domain_finds_nothing, 60)
{
    struct churn c;
    void *page;
    int fd;
    TN_CHECK_OK(tni_os_memory_create("stop", tni_os_page_bytes(), &fd));
    TN_CHECK_OK(tni_os_map(fd, tni_os_page_bytes(), tni_os_page_bytes(), false, &page));
    c.stop = page;
    open_work(&c.w, open_domain());
    pid_t children[3];
    for (int i = 0; i < 3; i++)
        children[i] = tnt_fork(churn, &c);
    int found = 0;
    for (int i = 0; i < 150 && found == 0; i++)
        found = audit(c.w.domain);
    atomic_store(c.stop, 1);
    for (int i = 0; i < 3; i++)
        tnt_wait_ok(children[i]);
    assert_int_equal(found, 0);
    settle_all(c.w.domain);
    drain(&c.w);
    assert_int_equal(audit(c.w.domain), 0);
    tni_os_unmap(page, tni_os_page_bytes());
    tni_os_close(fd);
    close_work(&c.w);
    close_domain(c.w.domain);
}

TN_TEST_WITHIN(kills_at_any_moment_of_a_busy_domain_leave_nothing, 60)
{
    struct churn c;
    _Atomic uint32_t never = 0;
    c.stop = &never;
    open_work(&c.w, open_domain());
    uint32_t live = warm_up(&c.w);
    for (int round = 0; round < 60; round++) {
        pid_t children[2] = {tnt_fork(churn, &c), tnt_fork(churn, &c)};
        /* Not waiting for anything: any moment is the one to die in. */
        tni_os_sleep_until(tni_os_now_ns() + tnt_random_below(8 * MS));
        tnt_kill(children[0]);
        int status = tni_reaper_settle_all(c.w.domain);
        TN_CHECK(status >= 0 || status == TN_ERR_TIMED_OUT);
        tnt_kill(children[1]);
        settle_all(c.w.domain);
        check_as_before(&c.w, live, "any moment, round", (uint32_t)round);
    }
    close_work(&c.w);
    close_domain(c.w.domain);
}

/* ---- damage ------------------------------------------------------------------------------ */

static void spoil(struct tn_domain *d, uint64_t offset, uint64_t size_bytes, uint32_t writes)
{
    for (uint32_t i = 0; i < writes; i++) {
        uint64_t value = tnt_random_below(3) == 0 ? tnt_random_below(64) : tnt_random();
        uint64_t at = offset + tnt_random_below(size_bytes / 8) * 8;
        memcpy(tni_control_at(&d->segment, at), &value, sizeof value);
    }
}

/* In a child, and never in seat 0 or our own: they say who we are. */
static int settle_damaged(void *argument)
{
    struct work *w = argument;
    struct tn_domain *d = w->domain;
    const struct tni_geometry *g = &d->segment.geometry;
    uint64_t seat_bytes = sizeof(struct tni_seat), used = 64 * sizeof(uint64_t);

    spoil(d, g->seats_off + 3 * seat_bytes, 13 * seat_bytes, 30);
    spoil(d, g->announces_off, 16 * TNI_THREADS * sizeof(struct tni_announce), 60);
    spoil(d, g->classes_off, TNI_CLASSES * sizeof(struct tni_class), 20);
    for (uint32_t c = 1; c < g->class_count; c++)
        spoil(d, g->words_off + g->classes[c].base * 8, used, 4);
    spoil(d, g->rows_off, g->row_bytes, 50);
    spoil(d, g->objects_off, 8 * sizeof(struct tni_object), 60);
    spoil(d, g->tickets_off, 64 * sizeof(struct tni_ticket), 60);
    spoil(d, g->names_off, tni_geometry_names(g) * sizeof(uint32_t), 60);
    spoil(d, g->opens_off, g->control_bytes - g->opens_off, 60);
    tni_reaper_settle_all(d);
    tni_audit(&d->segment, NULL, false, NULL, NULL);
    tni_audit(&d->segment, d, true, NULL, NULL);
    return 0;
}

TN_TEST_WITHIN(damaged_tables_do_not_crash_the_reaper_or_the_audit, 120)
{
    for (int round = 0; round < 10; round++) {
        struct work w;
        open_work(&w, open_domain());
        tnt_wait_ok(tnt_fork(work, &w));
        tnt_random(); /* the children of two rounds begin with different numbers */
        tnt_wait_ok(tnt_fork(settle_damaged, &w));
        tni_process_leave(w.domain); /* what follows touches no shared memory any more */
        close_work(&w);
        tni_process_unkeep(w.domain);
    }
}

/* ---- survivors --------------------------------------------------------------------------- */

TN_TEST(who_waits_settles_the_dead_where_there_is_no_tenond)
{
    struct tn_domain *d = open_domain();
    struct held held = open_held(d, 4);
    pid_t child = tnt_fork(hold_until_told, &held);
    tnt_await(&held.ready);
    tnt_kill(child);
    /* Nobody notifies this word: the slices of the wait must do it. */
    _Atomic uint32_t word = 0;
    while (live_blocks(d) != 0)
        tni_process_sleep(d, &word, 0, &(struct tni_wait){.deadline_ns = tnt_deadline(150)});
    assert_int_equal(seats_taken(d), 1);
    assert_int_equal(audit(d), 0);
    close_held(&held);
    close_domain(d);
}
