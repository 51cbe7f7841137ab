/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pairs: a victim dies at each instruction while a peer is paused in the middle of its own
 * operation. All pairs use the same kind of world: both hold the same tensors, pop the same
 * messages and use the same handle. So an operation may find an object taken or busy, which is
 * no failure.
 *
 * While the peer is paused, the survivor reclaims what it can without a hang, and no count is
 * below its records. Then the peer continues to its end, and crash_judge() makes its checks.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "sweep/sweep.h"

enum { PAIR_BYTES = 1000 };

/* ---- the world --------------------------------------------------------------------------- */

static void push_message(struct crash_world *w, uint32_t tensor_count, size_t size_bytes)
{
    crash_push(w, tensor_count, size_bytes);
}

static void export_held(struct crash_world *w, tn_tensor *tensor, uint32_t uses)
{
    tn_handle_options options = {
        .struct_size = sizeof options, .uses = uses, .lifetime_ns = TN_NO_EXPIRY};
    TN_CHECK_OK(
        tn_handle_export(tensor, &options, w->handle, sizeof w->handle, &w->handle_bytes));
}

/* Of the pair of this process. */
static struct {
    bool a_dead, a_store, a_channel;
} needs;

static void prepare_common(struct crash_world *w)
{
    TN_CHECK_OK(tn_queue_attach(w->queue, TN_PRODUCER | TN_CONSUMER));
    w->tensor[0] = crash_tensor(w, PAIR_BYTES);
    w->tensor[1] = crash_tensor(w, PAIR_BYTES);
    export_held(w, w->tensor[1], 8);
    push_message(w, 1, 0);
    push_message(w, 0, 100);
    push_message(w, 3, 100);
}

static int die_with_much(void *argument)
{
    struct crash_world *w = argument;
    crash_tensor(w, PAIR_BYTES);
    TN_CHECK_OK(tn_semaphore_acquire(w->semaphore, TN_NOW));
    TN_CHECK_OK(tn_lock_acquire(w->lock, TN_NOW));
    push_message(w, 2, 100);
    kill(getpid(), SIGKILL);
    return 0;
}

static void put_value(struct crash_world *w, const char *key)
{
    tn_tensor *tensor = crash_tensor(w, PAIR_BYTES);
    int status =
        tn_store_put(w->store, key, &(tn_message){.tensors = &tensor, .tensor_count = 1},
                     TN_OPTIONS(tn_store_put_options, .deadline = TN_NOW), NULL);
    /* The peer is paused in the middle of a change. */
    if (status != TN_ERR_TIMED_OUT)
        TN_CHECK_OK(status);
    tn_tensor_unref(tensor);
}

/* End a message, whose only tensor must be as it was sent. */
static void end_whole(tn_message *m)
{
    assert_int_equal(m->tensor_count, 1);
    const uint8_t *bytes = tn_tensor_data(m->tensors[0]);
    for (uint32_t i = 0; i < PAIR_BYTES; i++)
        TN_CHECK(bytes[i] == CRASH_BYTE);
    tn_message_fini(m);
}

enum { PAIR_KEYS = 2 };
/* A new key takes the place of the one that was used least recently. */
static void make_store(struct crash_world *w)
{
    TN_CHECK_OK(tn_store_open(
        w->domain, "pair",
        TN_OPTIONS(tn_store_options, .capacity = PAIR_KEYS, .flags = TN_STORE_EVICT),
        TN_OPEN_NEW, &w->store));
    put_value(w, "a");
    put_value(w, "b");
}

/* @return whether the key has a value, which is whole */
static bool get_value(struct crash_world *w, const char *key)
{
    tn_message m;
    int status = tn_store_get(w->store, key, &m, NULL);
    if (status == TN_ERR_NOT_FOUND)
        return false;
    TN_CHECK_OK(status);
    end_whole(&m);
    return true;
}

/* Whoever died: what is counted is found, and each entry can be used again. */
static void check_store(struct crash_world *w)
{
    static const char *const keys[] = {"a", "b", "c"};
    tn_store_info info = {.struct_size = sizeof info};
    uint32_t found = 0;
    put_value(w, "a"); /* repairs what the dead process left */
    for (unsigned i = 0; i < 3; i++)
        found += get_value(w, keys[i]);
    TN_CHECK_OK(tn_store_get_info(w->store, &info));
    assert_int_equal(info.count, found);
    put_value(w, "d");
    put_value(w, "e");
    assert_true(get_value(w, "d") && get_value(w, "e"));
    TN_CHECK_OK(tn_store_get_info(w->store, &info));
    assert_int_equal(info.count, PAIR_KEYS);
}

/* A subscriber that has received nothing is as far behind as the channel has room for. */
enum { PAIR_ROOM = 2 };
static void publish_one(struct crash_world *w)
{
    tn_tensor *tensor = crash_tensor(w, PAIR_BYTES);
    int status = tn_channel_publish(
        w->channel, &(tn_message){.tensors = &tensor, .tensor_count = 1}, TN_NOW);
    if (status != TN_ERR_TIMED_OUT)
        TN_CHECK_OK(status);
    tn_tensor_unref(tensor);
}

static void make_channel(struct crash_world *w)
{
    TN_CHECK_OK(tn_channel_open(w->domain, "pair-channel",
                                TN_OPTIONS(tn_channel_options, .capacity = PAIR_ROOM,
                                           .history = 1, .policy = TN_CHANNEL_DROP),
                                TN_OPEN_NEW, &w->channel));
    TN_CHECK_OK(tn_channel_open(w->domain, "pair-channel", NULL, TN_OPEN_EXISTING, &w->behind));
    TN_CHECK_OK(tn_channel_subscribe(w->behind, TN_FROM_NEWEST));
    for (int i = 0; i < PAIR_ROOM; i++)
        publish_one(w);
}

/* @return whether there was a message, which is whole */
static bool receive_one(tn_channel *channel)
{
    tn_message m;
    int status = tn_channel_receive(channel, TN_NOW, &m);
    if (status == TN_ERR_TIMED_OUT || status == TN_ERR_PEER_DIED)
        return false;
    TN_CHECK_OK(status);
    end_whole(&m);
    return true;
}

/* Whoever died: all that is there is received, and nobody but the survivor's subscriber is
 * waited for. */
static void check_channel(struct crash_world *w)
{
    tn_channel_info info = {.struct_size = sizeof info};
    publish_one(w);
    for (int i = 0; i < PAIR_ROOM; i++)
        assert_true(receive_one(w->behind));
    assert_false(receive_one(w->behind));
    publish_one(w);
    assert_true(receive_one(w->behind));
    TN_CHECK_OK(tn_channel_get_info(w->channel, &info));
    assert_int_equal(info.subscribers, 1);
    assert_int_equal(info.most_behind, 0);
    assert_int_equal(info.kept, 1);
}

static void prepare(struct crash_world *w)
{
    prepare_common(w);
    if (needs.a_store)
        make_store(w);
    if (needs.a_channel)
        make_channel(w);
    if (needs.a_dead)
        tnt_wait(tnt_fork(die_with_much, w));
}

static void check(struct crash_world *w)
{
    if (needs.a_store)
        check_store(w);
    if (needs.a_channel)
        check_channel(w);
}

/* ---- operations -------------------------------------------------------------------------- */

static void allocate(struct crash_world *w)
{
    tn_tensor *one = crash_tensor(w, PAIR_BYTES), *other = crash_tensor(w, 64 << 10);
    tn_tensor_unref(one);
    tn_tensor_unref(other);
}

static void release(struct crash_world *w)
{
    w->tensor[0] = tn_tensor_unref(w->tensor[0]);
    w->tensor[1] = tn_tensor_unref(w->tensor[1]);
}

static void push(struct crash_world *w) { push_message(w, 1, 100); }

static void push_many(struct crash_world *w) { push_message(w, 4, 100); }

static void push_kept(struct crash_world *w)
{
    TN_CHECK_OK(tn_queue_push_tensor(w->queue, w->tensor[0], 0, TN_NOW));
}

static void push_moved(struct crash_world *w)
{
    tn_tensor *tensor = crash_tensor(w, PAIR_BYTES);
    TN_CHECK_OK(tn_queue_push_tensor(w->queue, tensor, TN_PUSH_MOVE, TN_NOW));
}

/* @return whether the operation got one */
static bool try_pop(struct crash_world *w, tn_message *m)
{
    int status = tn_queue_pop(w->queue, TN_NOW, m);
    if (status != TN_ERR_TIMED_OUT)
        TN_CHECK_OK(status);
    return status == 0;
}

static void pop(struct crash_world *w)
{
    tn_message m;
    if (!try_pop(w, &m))
        return;
    if (m.lease != 0)
        TN_CHECK_OK(tn_message_ack(w->queue, &m));
    tn_message_fini(&m);
}

static void give_back(struct crash_world *w)
{
    tn_message m;
    if (!try_pop(w, &m))
        return;
    if (m.lease != 0)
        TN_CHECK_OK(tn_message_return(w->queue, &m));
    tn_message_fini(&m);
}

static void reclaim(struct crash_world *w)
{
    int status = tn_domain_reap(w->domain, NULL);
    if (status != TN_ERR_TIMED_OUT)
        TN_CHECK_OK(status);
}

static void lock(struct crash_world *w)
{
    int status = tn_lock_acquire(w->lock, TN_NOW);
    if (status == TN_ERR_TIMED_OUT)
        return;
    TN_CHECK_OK(status);
    TN_CHECK_OK(tn_lock_release(w->lock));
}

static void semaphore(struct crash_world *w)
{
    int status = tn_semaphore_acquire(w->semaphore, TN_NOW);
    if (status == TN_ERR_TIMED_OUT)
        return;
    TN_CHECK_OK(status);
    TN_CHECK_OK(tn_semaphore_release(w->semaphore));
}

static void event(struct crash_world *w)
{
    TN_CHECK_OK(tn_event_set(w->event));
    (void)!tn_event_wait(w->event, TN_NOW);
    TN_CHECK_OK(tn_event_clear(w->event));
}

static void barrier(struct crash_world *w)
{
    (void)!tn_barrier_wait(w->barrier, TN_NOW);
    TN_CHECK_OK(tn_barrier_reset(w->barrier));
}

static void use_ticket(struct crash_world *w)
{
    tn_tensor *tensor;
    TN_CHECK_OK(tn_handle_import(w->domain, w->handle, w->handle_bytes, &tensor));
    tn_tensor_unref(tensor);
}

static void make_ticket(struct crash_world *w)
{
    export_held(w, w->tensor[0], 1);
    TN_CHECK_OK(tn_handle_revoke(w->domain, w->handle, w->handle_bytes));
}

static void look(struct crash_world *w)
{
    TN_CHECK(*(uint8_t *)tn_tensor_data(w->tensor[0]) == CRASH_BYTE);
    w->tensor[0] = tn_tensor_unref(w->tensor[0]);
}

static void fork_one(struct crash_world *w) { crash_fork(w, look); }

static void make_and_close(struct crash_world *w)
{
    tn_queue *queue;
    TN_CHECK_OK(tn_queue_open(w->domain, NULL, NULL, 0, &queue));
    tn_object_close(queue);
}

static void leave(struct crash_world *w) { w->domain = tn_domain_close(w->domain); }

static void trim(struct crash_world *w)
{
    tn_tensor_unref(crash_tensor(w, 1 << 20));
    TN_CHECK_OK(tn_domain_trim(w->domain, 0, NULL));
}

static void use_file(struct crash_world *w)
{
    tn_tensor_unref(crash_storage(w, TN_STRATEGY_FILE_SYSTEM, 0, PAIR_BYTES));
}

static void use_descriptor(struct crash_world *w)
{
    tn_tensor_unref(crash_storage(w, TN_STRATEGY_FILE_DESCRIPTOR, 0, PAIR_BYTES));
}

static void store_put(struct crash_world *w) { put_value(w, "a"); }
static void store_evict(struct crash_world *w) { put_value(w, "c"); }
static void store_get(struct crash_world *w)
{
    get_value(w, "a");
    get_value(w, "c");
}
static void store_delete(struct crash_world *w)
{
    int status = tn_store_delete(w->store, "a", 0);
    if (status != TN_ERR_NOT_FOUND && status != TN_ERR_TIMED_OUT)
        TN_CHECK_OK(status);
}

static void channel_publish(struct crash_world *w) { publish_one(w); }
/* @return whether it is a subscriber: another process may be paused in the claim */
static bool subscribe(struct crash_world *w)
{
    int status = tn_channel_subscribe(w->channel, TN_FROM_OLDEST);
    if (status != TN_ERR_TIMED_OUT)
        TN_CHECK_OK(status);
    return status == 0;
}
static void channel_receive(struct crash_world *w)
{
    if (subscribe(w))
        receive_one(w->channel);
}
static void channel_unsubscribe(struct crash_world *w)
{
    if (subscribe(w))
        TN_CHECK_OK(tn_channel_unsubscribe(w->channel));
}

const struct pair_op pair_ops[] = {
    {.name = "allocate", .run = allocate},
    {.name = "release", .run = release},
    {.name = "push", .run = push, .most = 1},
    {.name = "push_many", .run = push_many, .most = 1},
    {.name = "push_kept", .run = push_kept, .most = 1},
    {.name = "push_moved", .run = push_moved, .most = 1},
    {.name = "pop", .run = pop, .least = -1},
    {.name = "pop_to_drop", .policy = TN_QUEUE_DROP, .run = pop, .least = -1},
    {.name = "lease_and_ack", .policy = TN_QUEUE_LEASE, .run = pop, .least = -1},
    {.name = "lease_and_return", .policy = TN_QUEUE_LEASE, .run = give_back},
    {.name = "reclaim", .needs_dead = true, .run = reclaim},
    {.name = "lock", .run = lock},
    {.name = "semaphore", .run = semaphore},
    {.name = "event", .run = event},
    {.name = "barrier", .run = barrier},
    {.name = "use_ticket", .run = use_ticket},
    {.name = "make_ticket", .run = make_ticket},
    {.name = "fork", .run = fork_one},
    {.name = "make_and_close", .run = make_and_close},
    {.name = "leave", .run = leave},
    {.name = "trim", .run = trim},
    {.name = "file", .has_storages = true, .run = use_file},
    {.name = "descriptor", .has_storages = true, .run = use_descriptor},
    {.name = "store_put", .has_store = true, .run = store_put},
    {.name = "store_evict", .has_store = true, .run = store_evict},
    {.name = "store_get", .has_store = true, .run = store_get},
    {.name = "store_delete", .has_store = true, .run = store_delete},
    {.name = "channel_publish", .has_channel = true, .run = channel_publish},
    {.name = "channel_receive", .has_channel = true, .run = channel_receive},
    {.name = "channel_unsubscribe", .has_channel = true, .run = channel_unsubscribe},
};

unsigned pair_op_count(void) { return sizeof pair_ops / sizeof pair_ops[0]; }

/* ---- a pair ------------------------------------------------------------------------------ */

/* The messages that both leave in the queue, in either order. */
static struct crash_op op_of(const struct pair_op *victim, const struct pair_op *peer)
{
    needs.a_dead = victim->needs_dead || peer->needs_dead;
    needs.a_store = victim->has_store || peer->has_store;
    needs.a_channel = victim->has_channel || peer->has_channel;
    int32_t messages = PAIR_MESSAGES + needs.a_dead;
    int32_t least = messages + victim->least + peer->least;
    int32_t most = messages + victim->most + peer->most;
    /*
     * Return a message, or pop it to drop it, in a queue of another policy than the
     * operation's own.
     */
    if (strcmp(victim->name, "lease_and_return") == 0 ||
        strcmp(peer->name, "lease_and_return") == 0)
        least--;
    return (struct crash_op){.name = victim->name,
                             .policy = victim->policy != 0 ? victim->policy : peer->policy,
                             .is_owned = true,
                             .has_storages = victim->has_storages || peer->has_storages,
                             .least = (uint32_t)(least < 0 ? 0 : least),
                             .most = (uint32_t)most,
                             .prepare = prepare,
                             .check = check,
                             .run = victim->run};
}

/*
 * Choose kill points of the peer, spread over all of them; if it has too few, other
 * boundaries. @return how many
 */
static unsigned choose_pauses(const struct trace *trace, unsigned most, uint64_t seed,
                              uint32_t *pauses)
{
    unsigned points = 0, chosen = 0;
    uint64_t point = (uint64_t)(uintptr_t)tni_kill_point;
    for (uint32_t k = 0; k < trace->count; k++)
        points += trace->place[k] == point;
    uint32_t stride = points / most + 1, seen = 0;
    for (uint32_t k = 0; k < trace->count && chosen < most; k++)
        if (trace->place[k] == point && seen++ % stride == seed % stride)
            pauses[chosen++] = k;
    for (uint64_t turn = seed; chosen < most; turn++)
        pauses[chosen++] =
            (uint32_t)((turn * UINT64_C(0x9e3779b97f4a7c15) >> 32) % trace->count);
    return chosen;
}

enum { MOST_PAUSES = 64 };

void sweep_pair(const struct pair_op *victim, const struct pair_op *peer,
                const struct sweep_plan *plan, struct sweep_row *row)
{
    const struct crash_op op = op_of(victim, peer);
    struct sweep_plan each = *plan;
    struct sweep_peer paused = {.run = peer->run, .trace = trace_make()};
    struct scene scene = {.op = &op, .peer = &paused};
    uint32_t at[MOST_PAUSES], pauses = TNI_MIN(plan->scenes, (uint32_t)MOST_PAUSES);
    snprintf(scene.name, sizeof scene.name, "%s x %s", victim->name, peer->name);
    sweep_record_peer(&scene);
    unsigned count = choose_pauses(paused.trace, TNI_MAX(pauses, 1u), plan->seed, at);
    for (unsigned i = 0; i < count; i++, each.seed += UINT64_C(0x9e3779b9)) {
        if (plan->pause >= paused.trace->count)
            break;
        if (plan->pause >= 0)
            at[i] = (uint32_t)plan->pause;
        paused.pause = at[i];
        snprintf(scene.name, sizeof scene.name, "'%s x %s' --pause %u", victim->name,
                 peer->name, at[i]);
        sweep_scene(&scene, &each, row);
        if (plan->pause >= 0)
            break;
    }
    trace_free(paused.trace);
}
