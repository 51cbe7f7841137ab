/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of a worker: each one once, as a user might, whatever its result. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/ignore.h"
#include "harness/tensor.h"
#include "share/share.h"
#include "worker.h"

static uint32_t below(uint32_t count) { return (uint32_t)tnt_random_below(count); }

static tn_queue *any_queue(struct worker *w) { return w->queues[below(QUEUES)]; }

/* ---- tensors ----------------------------------------------------------------------------- */

/* The data of a tensor must lie in the domain, or in an object that is mapped. */
static void touch(struct worker *w, tn_tensor *t)
{
    uint64_t size_bytes = tnt_info(t).size_bytes;
    volatile uint8_t *data = tn_tensor_data(t);
    const struct tni_segment *s = &w->domain->segment;
    if (data == NULL || size_bytes == 0 || !tnt_info(t).is_contiguous)
        return;
    if (tnt_info(t).strategy == TN_STRATEGY_ARENA) {
        const uint8_t *first = (const uint8_t *)(uintptr_t)data;
        TN_CHECK(first >= s->arena && size_bytes <= s->geometry.arena_bytes &&
                 (uint64_t)(first - s->arena) <= s->geometry.arena_bytes - size_bytes);
    }
    uint8_t sum = (uint8_t)(data[0] + data[size_bytes - 1]);
    if (!tnt_info(t).is_read_only)
        data[size_bytes / 2] = sum;
}

/* Keep a tensor in place of an older one. */
static void keep(struct worker *w, tn_tensor *t)
{
    tn_tensor **place = &w->kept[below(KEPT)];
    touch(w, t);
    VOID(w, tn_tensor_unref(*place));
    *place = t;
}

static tn_tensor *any_kept(struct worker *w) { return w->kept[below(KEPT)]; }

static int make(struct worker *w, tn_tensor **ret_tensor)
{
    static const int64_t sizes[] = {1, 64, 200, 1000, 5000, 70000, 300000};
    int64_t bytes = sizes[below(TNI_COUNT(sizes))];
    int64_t shape[3] = {1, bytes, 1};
    int32_t ndim = below(2) == 0 ? 1 : 3;
    const int64_t *extents = ndim == 1 ? &shape[1] : shape;
    const tn_tensor_options options = {
        .struct_size = sizeof options, .strategy = 1 + below(3), .deadline = soon()};
    switch (below(8)) {
    case 0:
        return TIMED(
            w, tn_tensor_create(w->domain, TN_UINT8, ndim, extents, &options, ret_tensor));
    case 1:
        return TIMED(w,
                     tn_tensor_create(w->domain, TN_UINT8, ndim, extents,
                                      TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED,
                                                 .deadline = soon()),
                                      ret_tensor));
    default:
        return TIMED(w, tn_tensor_create(w->domain, TN_UINT8, ndim, extents,
                                         TN_OPTIONS(tn_tensor_options, .deadline = soon()),
                                         ret_tensor));
    }
}

static void allocate(struct worker *w)
{
    tn_tensor *t = NULL;
    if (make(w, &t) == 0)
        keep(w, t);
}

static void free_one(struct worker *w)
{
    tn_tensor **place = &w->kept[below(KEPT)];
    VOID(w, tn_tensor_unref(*place));
    *place = NULL;
}

static void share(struct worker *w)
{
    int64_t bytes = 1 + below(3000);
    tn_tensor *t = NULL;
    const tn_tensor_options options = {
        .struct_size = sizeof options, .strategy = 1 + below(3), .deadline = soon()};
    TN_CHECK_OK(tn_tensor_create_private(TN_UINT8, 1, &bytes, &t));
    TIMED(w, tn_tensor_share(w->domain, t, &options));
    keep(w, t);
}

static void export_one(struct worker *w)
{
    const tn_handle_options options = {.struct_size = sizeof options, .uses = below(3)};
    tn_tensor *t = any_kept(w);
    size_t used = 0;
    if (t != NULL && UNTIMED(w, tn_handle_export(t, below(2) == 0 ? &options : NULL, w->handle,
                                                 sizeof w->handle, &used)) == 0)
        w->handle_bytes = used;
}

static void import_one(struct worker *w)
{
    tn_tensor *t = NULL;
    uint64_t ticket;
    if (w->handle_bytes == 0)
        return;
    if (below(4) == 0 && tni_handle_ticket(w->handle, w->handle_bytes, &ticket) == 0)
        UNTIMED(w, tni_ticket_revoke(w->domain, ticket));
    else if (UNTIMED(w, tn_handle_import(w->domain, w->handle, w->handle_bytes, &t)) == 0)
        keep(w, t);
}

/* ---- queues ------------------------------------------------------------------------------ */

static void push(struct worker *w)
{
    static uint8_t bytes[100000];
    tn_queue *q = any_queue(w);
    tn_tensor *tensors[4];
    tn_message m = {.tensors = tensors};
    uint32_t want = below(3) == 0 ? below(5) : below(2);
    if (q == NULL)
        return;
    for (uint32_t i = 0; i < want; i++)
        if ((tensors[m.tensor_count] = tn_tensor_ref(any_kept(w))) != NULL)
            m.tensor_count++;
    if (below(4) == 0 && w->handle_bytes != 0) {
        m.bytes = w->handle;
        m.size_bytes = w->handle_bytes;
    } else if (below(2) == 0) {
        m.bytes = bytes;
        m.size_bytes = below(8) == 0 ? below(sizeof bytes) : below(60);
    }
    uint32_t flags = below(2) == 0 ? TN_PUSH_MOVE : 0;
    int status = TIMED(w, tn_queue_push(q, &m, flags, soon()));
    if (status == 0 && flags != 0)
        return;
    for (uint32_t i = 0; i < m.tensor_count; i++)
        VOID(w, tn_tensor_unref(tensors[i]));
}

/* Read all bytes; if a handle is among them, the process that gets it may import it. */
static void read_message(struct worker *w, const tn_message *m)
{
    const volatile uint8_t *bytes = m->bytes;
    if (m->size_bytes != 0)
        atomic_fetch_add(&w->board->steps, (uint64_t)(bytes[0] + bytes[m->size_bytes - 1]) & 1);
    if (m->size_bytes > 64 && m->size_bytes <= sizeof w->handle) {
        memcpy(w->handle, m->bytes, m->size_bytes);
        w->handle_bytes = m->size_bytes;
    }
    for (uint32_t i = 0; i < m->tensor_count; i++)
        touch(w, m->tensors[i]);
}

static void pop(struct worker *w)
{
    tn_queue *q = any_queue(w);
    tn_message m = {0};
    if (q == NULL || TIMED(w, tn_queue_pop(q, below(2) == 0 ? TN_NOW : soon(), &m)) != 0)
        return;
    read_message(w, &m);
    if (m.tensor_count > 0 && below(2) == 0)
        keep(w, tn_tensor_ref(m.tensors[0]));
    if (q == w->queues[TN_QUEUE_LEASE] && below(8) != 0) {
        if (below(3) != 0)
            UNTIMED(w, tn_message_ack(q, &m));
        else
            UNTIMED(w, tn_message_return(q, &m));
    }
    VOID(w, tn_message_fini(&m));
}

static void pop_tensor(struct worker *w)
{
    tn_queue *q = w->queues[below(2)];
    tn_tensor *t = NULL;
    if (q != NULL && TIMED(w, tn_queue_pop_tensor(q, soon(), &t)) == 0)
        keep(w, t);
}

static void look_at_queues(struct worker *w)
{
    tn_queue *q = any_queue(w);
    int fd;
    if (q == NULL)
        return;
    VOID(w, tn_queue_count(q));
    UNTIMED(w, tn_object_watch(q, below(2) == 0));
    if (UNTIMED(w, tn_domain_poll_fd(w->domain, &fd)) == 0)
        VOID(w, tn_domain_poll_clear(w->domain));
    if (w->queues[0] != NULL && w->queues[1] != NULL && w->queues[2] != NULL)
        TIMED(w, tn_object_wait_any(w->queues, QUEUES, soon()));
}

/* ---- stores ------------------------------------------------------------------------------ */

static const char *any_key(void)
{
    static const char *const keys[STORE_KEYS] = {"a",   "b",   "c",   "d",
                                                 "e/1", "e/2", "e/3", "a longer key"};
    return keys[below(STORE_KEYS)];
}

static void put(struct worker *w)
{
    static uint8_t bytes[3000];
    tn_tensor *t = tn_tensor_ref(any_kept(w));
    const tn_message m = {.bytes = bytes,
                          .size_bytes = below(2) == 0 ? 0 : below(sizeof bytes),
                          .tensors = &t,
                          .tensor_count = t != NULL};
    const tn_store_put_options options = {.struct_size = sizeof options,
                                          .flags = below(8) == 0 ? TN_PUT_PINNED : 0,
                                          .lifetime_ns = below(4) == 0 ? below(1 << 24) : 0,
                                          .deadline = soon()};
    if (w->store != NULL)
        UNTIMED(w, tn_store_put(w->store, any_key(), &m, &options, NULL));
    VOID(w, tn_tensor_unref(t));
}

static void take(struct worker *w, tn_message *m)
{
    read_message(w, m);
    if (m->tensor_count > 0 && below(4) == 0)
        keep(w, tn_tensor_ref(m->tensors[0]));
    VOID(w, tn_message_fini(m));
}

static void get(struct worker *w)
{
    tn_message m;
    if (w->store != NULL && UNTIMED(w, tn_store_get(w->store, any_key(), &m, NULL)) == 0)
        take(w, &m);
}

static int read_entry(const tn_store_entry *entry, void *context)
{
    (void)context;
    return strlen(entry->key) > TN_STORE_KEY_BYTES;
}

static void use_store(struct worker *w)
{
    const char *key = any_key();
    tn_message m;
    uint64_t version = 0;
    tn_store_info info = {.struct_size = sizeof info};
    if (w->store == NULL)
        return;
    switch (below(6)) {
    case 0:
        UNTIMED(w, tn_store_delete(w->store, key, 0));
        break;
    case 1: {
        int status = UNTIMED(w, tn_store_get_or_make(w->store, key, soon(), &m));
        if (status == 0)
            take(w, &m);
        else if (status == TN_STORE_MAKE && below(2) == 0)
            UNTIMED(w, tn_store_give_up(w->store, key));
        break;
    }
    case 2:
        UNTIMED(w, tn_store_for_each(w->store, below(2) == 0 ? "" : "e/", read_entry, NULL));
        break;
    case 3:
        UNTIMED(w, tn_store_wait(w->store, "e/", 0, soon(), &version));
        break;
    case 4:
        UNTIMED(w, tn_store_set_pinned(w->store, key, below(2) == 0));
        break;
    default:
        UNTIMED(w, tn_store_get_info(w->store, &info));
        break;
    }
}

/* ---- channels ---------------------------------------------------------------------------- */

static tn_channel *any_channel(struct worker *w) { return w->channels[below(CHANNELS)]; }

static void publish(struct worker *w)
{
    static uint8_t bytes[3000];
    tn_tensor *t = tn_tensor_ref(any_kept(w));
    tn_channel *channel = any_channel(w);
    const tn_message m = {.bytes = bytes,
                          .size_bytes = below(2) == 0 ? 0 : below(sizeof bytes),
                          .tensors = &t,
                          .tensor_count = t != NULL};
    if (channel != NULL)
        UNTIMED(w, tn_channel_publish(channel, &m, soon()));
    VOID(w, tn_tensor_unref(t));
}

static void receive(struct worker *w)
{
    tn_channel *channel = any_channel(w);
    tn_message m;
    int status;
    if (channel == NULL)
        return;
    status = TIMED(w, tn_channel_receive(channel, below(2) == 0 ? TN_NOW : soon(), &m));
    if (status == 0)
        take(w, &m);
    else if (status == TN_ERR_INVALID || status == TN_ERR_STALE) /* it is no subscriber */
        UNTIMED(w, tn_channel_subscribe(channel, below(2)));
}

static void use_channel(struct worker *w)
{
    tn_channel *channel = any_channel(w);
    tn_channel_info info = {.struct_size = sizeof info};
    if (channel == NULL)
        return;
    switch (below(6)) {
    case 0:
        UNTIMED(w, tn_channel_unsubscribe(channel));
        break;
    case 1:
        UNTIMED(w, tn_channel_subscribe(channel, below(2)));
        break;
    case 2:
        UNTIMED(w, tn_object_watch(channel, below(2) == 0));
        break;
    case 3:
        TIMED(w, tn_object_wait_any(&channel, 1, soon()));
        break;
    default:
        UNTIMED(w, tn_channel_get_info(channel, &info));
        break;
    }
}

/* ---- the other objects ------------------------------------------------------------------- */

static void use_lock(struct worker *w)
{
    if (w->lock == NULL || TIMED(w, tn_lock_acquire(w->lock, soon())) < 0)
        return;
    if (w->condition != NULL &&
        below(3) == 0) /* the wait ends with the lock held, and so waits for the lock */
        UNTIMED(w, tn_condition_wait(w->condition, w->lock, soon()));
    if (below(32) != 0)
        UNTIMED(w, tn_lock_release(w->lock));
}

static void signal_condition(struct worker *w)
{
    if (w->condition == NULL)
        return;
    if (below(2) == 0)
        UNTIMED(w, tn_condition_signal(w->condition));
    else
        UNTIMED(w, tn_condition_broadcast(w->condition));
}

static void use_semaphores(struct worker *w)
{
    tn_semaphore *semaphore = below(2) == 0 ? w->permits : w->owned;
    if (semaphore == NULL)
        return;
    VOID(w, tn_semaphore_count(semaphore));
    if (below(2) == 0)
        TIMED(w, tn_semaphore_acquire(semaphore, soon()));
    else
        UNTIMED(w, tn_semaphore_release(semaphore));
}

static void use_event(struct worker *w)
{
    if (w->event == NULL)
        return;
    if (below(2) == 0)
        UNTIMED(w, tn_event_set(w->event));
    else
        TIMED(w, tn_event_wait(w->event, soon()));
}

static void use_barrier(struct worker *w)
{
    if (w->barrier != NULL && TIMED(w, tn_barrier_wait(w->barrier, soon())) < 0)
        UNTIMED(w, tn_barrier_reset(w->barrier));
}

/* Close a damaged object; it is opened anew later. */
static void close_one(struct worker *w)
{
    uint32_t i = below(QUEUES);
    if (below(2) == 0) {
        VOID(w, tn_object_close(w->queues[i]));
        w->queues[i] = NULL;
        return;
    }
    VOID(w, tn_object_close(w->owned));
    w->owned = NULL;
    VOID(w, tn_object_close(w->lock));
    w->lock = NULL;
    VOID(w, tn_object_close(w->store));
    w->store = NULL;
    VOID(w, tn_object_close(w->channels[i % CHANNELS]));
    w->channels[i % CHANNELS] = NULL;
}

/* ---- the domain -------------------------------------------------------------------------- */

static int ignore(const char *sentence, bool is_repaired, void *context)
{
    (void)sentence, (void)is_repaired, (void)context;
    return 0;
}

static void inspect(struct worker *w)
{
    tn_inspector *inspector = NULL;
    tn_domain_stat stat = {.struct_size = sizeof stat};
    if (UNTIMED(w, tn_inspector_open(w->board->name, &inspector)) != 0)
        return;
    UNTIMED(w, tn_inspect_stat(inspector, &stat));
    UNTIMED(w, tn_inspect_seats(inspector, ignore_seat, NULL));
    UNTIMED(w, tn_inspect_blocks(inspector, ignore_block, NULL));
    UNTIMED(w, tn_inspect_objects(inspector, ignore_object, NULL));
    UNTIMED(w, tn_inspect_tickets(inspector, ignore_ticket, NULL));
    UNTIMED(w, tn_inspect_schedulers(inspector, ignore_scheduler, NULL));
    if (below(4) == 0)
        UNTIMED(w, tn_inspect_audit(inspector, false, ignore, NULL, NULL));
    VOID(w, tn_inspector_close(inspector));
}

static void look_after(struct worker *w)
{
    uint64_t freed;
    uint32_t reaped;
    switch (below(6)) {
    case 0:
        UNTIMED(w, tn_domain_trim(w->domain, below(1 << 20), &freed));
        break;
    case 1:
        UNTIMED(w, tn_domain_set_quota(w->domain,
                                       64 << 20)); /* the scribbler may have changed it */
        break;
    case 2:
        UNTIMED(w, tni_ticket_for_each(&w->domain->segment, ignore_ticket, NULL));
        break;
    case 3:
        if (below(8) == 0)
            UNTIMED(w, tn_domain_audit(w->domain, below(2) == 0, ignore, NULL, NULL));
        break;
    default:
        UNTIMED(w, tn_domain_reap(w->domain, &reaped));
        break;
    }
}

/* Fork a child with a copy of everything, which may be killed in the middle of any call. */
static void fork_one(struct worker *w)
{
    call_begins(w, "fork", UNBOUND_MS);
    fflush(NULL);
    pid_t pid = fork();
    call_ends(w, 0);
    if (pid < 0)
        return;
    if (pid == 0) {
        for (uint32_t i = below(30); i > 0; i--)
            do_something(w);
        if (below(2) == 0)
            VOID(w, tn_domain_close(w->domain));
        fflush(NULL);
        _exit(0);
    }
    bool is_killed = below(2) == 0;
    if (is_killed) {
        for (uint32_t i = below(200); i > 0; i--)
            tni_os_yield();
        kill(pid, SIGKILL);
    }
    int status = tnt_wait(pid);
    TN_CHECK(WIFEXITED(status) ? WEXITSTATUS(status) == 0
                               : is_killed && WTERMSIG(status) == SIGKILL);
}

static int double_it(tn_domain *d, const tn_pool_job *job, tn_message *ret_result,
                     void *context)
{
    static uint32_t answer = 2;
    (void)d, (void)job, (void)context;
    ret_result->bytes = &answer;
    ret_result->size_bytes = sizeof answer;
    return 0;
}

static void use_pool(struct worker *w)
{
    const tn_pool_options options = {
        .struct_size = sizeof options, .workers = 1, .capacity = 4};
    tn_pool *pool = NULL;
    tn_pool_result result = {.struct_size = sizeof result};
    if (UNTIMED(w, tn_pool_create(w->domain, &options, double_it, NULL, &pool)) != 0)
        return;
    tn_tensor *t = any_kept(w);
    tn_message m = {.tensors = &t, .tensor_count = t != NULL};
    for (int i = 0; i < 4; i++)
        TIMED(w, tn_pool_submit(pool, &m, 0, soon(), NULL));
    for (int i = 0; i < 4; i++)
        if (TIMED(w, tn_pool_fetch(pool, TN_POOL_ANY_JOB, soon(), &result)) == 0)
            VOID(w, tn_pool_result_fini(&result));
    VOID(w, tn_pool_close(pool));
}

/* ---- choosing ---------------------------------------------------------------------------- */

typedef void operation_fn(struct worker *w);

static const struct operation {
    operation_fn *run;
    uint32_t weight;
} operations[] = {
    {allocate, 160},
    {free_one, 80},
    {share, 20},
    {export_one, 40},
    {import_one, 60},
    {push, 200},
    {pop, 200},
    {pop_tensor, 60},
    {look_at_queues, 8},
    {use_lock, 40},
    {use_semaphores, 40},
    {use_event, 20},
    {use_barrier, 6},
    {close_one, 4},
    {inspect, 6},
    {look_after, 20},
    {fork_one, 5},
    {use_pool, 1},
    {signal_condition, 10},
    {put, 120},
    {get, 240},
    {use_store, 40},
    {publish, 120},
    {receive, 240},
    {use_channel, 40},
};

void do_something(struct worker *w)
{
    uint32_t sum = 0;
    for (size_t i = 0; i < TNI_COUNT(operations); i++)
        sum += operations[i].weight;
    uint32_t at = below(sum);
    for (size_t i = 0; i < TNI_COUNT(operations); i++) {
        if (at < operations[i].weight) {
            operations[i].run(w);
            return;
        }
        at -= operations[i].weight;
    }
}
