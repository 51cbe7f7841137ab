/* SPDX-License-Identifier: Apache-2.0 */
/*
 * worker: joins, works, leaves, and notes at its desk which call it makes. A call may fail in
 * any way that the headers name. It must return in time, and the process must live.
 */
#include "worker.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define MS_NS UINT64_C(1000000)

/* Most waits are short: a worker that waits does nothing that could fail. */
tn_deadline soon(void)
{
    uint64_t most = tnt_random_below(8);
    return most == 7   ? tnt_deadline(WAIT_MS)
           : most == 6 ? TN_NOW
                       : tn_deadline_after(most * 100000);
}

void call_begins(struct worker *w, const char *what, uint32_t limit_ms)
{
    w->doing = what;
    w->since_ns = tni_os_now_ns();
    w->limit_ns = w->since_ns + limit_ms * MS_NS;
    atomic_store(&w->desk->since_ns, w->since_ns);
    atomic_store(&w->desk->limit_ns, w->limit_ns);
    atomic_store(&w->desk->doing, what);
}

int call_ends(struct worker *w, int status)
{
    struct desk *desk = w->desk;
    const char *what = w->doing;
    uint64_t now_ns = tni_os_now_ns(), took_ns = now_ns - w->since_ns;
    atomic_store(&desk->doing, NULL);
    if (now_ns > w->limit_ns) {
        printf("%s took %llu ms\n", what, (unsigned long long)(took_ns / MS_NS));
        bool came_back_in_time = false;
        TN_CHECK(came_back_in_time);
    }
    if (status < 0 && strcmp(tn_status_sentence(status), "unknown status") == 0) {
        printf("%s returned %d\n", what, status);
        bool is_a_known_status = false;
        TN_CHECK(is_a_known_status);
    }
    if (took_ns > atomic_load(&desk->longest_ns)) {
        atomic_store(&desk->longest_ns, took_ns);
        atomic_store(&desk->longest, what);
    }
    atomic_fetch_add(&desk->calls, 1);
    atomic_fetch_add(&desk->errors, status < 0 && status != TN_ERR_TIMED_OUT);
    atomic_fetch_add(&w->board->steps, 1);
    return status;
}

/* ---- objects ----------------------------------------------------------------------------- */

static const char *const queue_names[QUEUES] = {"plain", "drop", "lease"};

static void open_queue(struct worker *w, uint32_t i)
{
    static const uint32_t capacities[QUEUES] = {8, 16, 4};
    const tn_queue_options options = {.struct_size = sizeof options,
                                      .capacity = capacities[i],
                                      .policy = i,
                                      .inline_bytes = 64};
    if (w->queues[i] != NULL)
        return;
    if (UNTIMED(w, tn_queue_open(w->domain, queue_names[i], NULL, TN_OPEN_EXISTING,
                                 &w->queues[i])) == TN_ERR_NOT_FOUND)
        UNTIMED(w,
                tn_queue_open(w->domain, queue_names[i], &options, TN_OPEN_NEW, &w->queues[i]));
}

#define OPEN(w, field, open, create)                                                           \
    do {                                                                                       \
        if ((w)->field == NULL && UNTIMED(w, open) == TN_ERR_NOT_FOUND)                        \
            UNTIMED(w, create);                                                                \
    } while (0)

static void open_channel(struct worker *w, uint32_t policy)
{
    static const char *const names[CHANNELS] = {"waits", "drops", "disconnects"};
    const tn_channel_options options = {.struct_size = sizeof options,
                                        .capacity = 4,
                                        .history = 2,
                                        .subscribers = 3,
                                        .policy = policy};
    OPEN(
        w, channels[policy],
        tn_channel_open(w->domain, names[policy], NULL, TN_OPEN_EXISTING, &w->channels[policy]),
        tn_channel_open(w->domain, names[policy], &options, TN_OPEN_NEW, &w->channels[policy]));
}

void open_objects(struct worker *w)
{
    tn_domain *d = w->domain;
    for (uint32_t i = 0; i < QUEUES; i++)
        open_queue(w, i);
    OPEN(w, event, tn_event_open(d, "event", TN_OPEN_EXISTING, &w->event),
         tn_event_open(d, "event", TN_OPEN_NEW | TN_EVENT_AUTO_RESET, &w->event));
    OPEN(w, permits, tn_semaphore_open(d, "permits", 0, TN_OPEN_EXISTING, &w->permits),
         tn_semaphore_open(d, "permits", 2, TN_OPEN_NEW, &w->permits));
    OPEN(w, owned, tn_semaphore_open(d, "owned", 0, TN_OPEN_EXISTING, &w->owned),
         tn_semaphore_open(d, "owned", 3, TN_OPEN_NEW | TN_SEMAPHORE_OWNED, &w->owned));
    OPEN(w, lock, tn_lock_open(d, "lock", TN_OPEN_EXISTING, &w->lock),
         tn_lock_open(d, "lock", TN_OPEN_NEW, &w->lock));
    OPEN(w, condition, tn_condition_open(d, "condition", TN_OPEN_EXISTING, &w->condition),
         tn_condition_open(d, "condition", TN_OPEN_NEW, &w->condition));
    OPEN(w, barrier, tn_barrier_open(d, "barrier", 0, TN_OPEN_EXISTING, &w->barrier),
         tn_barrier_open(d, "barrier", 2, TN_OPEN_NEW, &w->barrier));
    OPEN(w, store, tn_store_open(d, "store", NULL, TN_OPEN_EXISTING, &w->store),
         tn_store_open(
             d, "store",
             TN_OPTIONS(tn_store_options, .capacity = STORE_KEYS - 2, .flags = TN_STORE_EVICT),
             TN_OPEN_NEW, &w->store));
    for (uint32_t i = 0; i < CHANNELS; i++)
        open_channel(w, i);
}

#define CLOSE(w, field, close)                                                                 \
    do {                                                                                       \
        VOID(w, close((w)->field));                                                            \
        (w)->field = NULL;                                                                     \
    } while (0)

void close_objects(struct worker *w)
{
    for (uint32_t i = 0; i < QUEUES; i++)
        CLOSE(w, queues[i], tn_object_close);
    CLOSE(w, event, tn_object_close);
    CLOSE(w, permits, tn_object_close);
    CLOSE(w, owned, tn_object_close);
    CLOSE(w, lock, tn_object_close);
    CLOSE(w, condition, tn_object_close);
    CLOSE(w, barrier, tn_object_close);
    CLOSE(w, store, tn_object_close);
    for (uint32_t i = 0; i < CHANNELS; i++)
        CLOSE(w, channels[i], tn_object_close);
}

/* ---- coming and going -------------------------------------------------------------------- */

static void leave(struct worker *w)
{
    bool keeps = tnt_random_below(2) ==
                 0; /* tensors that are left are released after the domain was left */
    for (uint32_t i = 0; i < KEPT && !keeps; i++) {
        VOID(w, tn_tensor_unref(w->kept[i]));
        w->kept[i] = NULL;
    }
    if (tnt_random_below(2) == 0)
        close_objects(w);
    VOID(w, tn_domain_close(w->domain));
    close_objects(w);
    for (uint32_t i = 0; i < KEPT; i++) {
        VOID(w, tn_tensor_unref(w->kept[i]));
        w->kept[i] = NULL;
    }
    w->domain = NULL;
}

static bool join(struct worker *w)
{
    return UNTIMED(w, tn_domain_open(w->board->name, NULL, TN_OPEN_EXISTING, &w->domain)) == 0;
}

/* Print where a crash was. */
static void show_stack(int number)
{
    char command[128];
    snprintf(command, sizeof command,
             "gdb -p %d -batch -ex bt 2>&1 | grep -A30 'signal handler\\|^#'", (int)getpid());
    if (system(command) != 0)
        (void)number;
    signal(number, SIG_DFL);
    raise(number);
}

static void prepare(struct worker *w, const struct round *round)
{
    *w = (struct worker){.board = round->board,
                         .desk = &round->board->desks[round->index],
                         .index = round->index};
    atomic_store(&w->desk->pid, (uint32_t)getpid());
    for (uint64_t i = 0; i <= round->index; i++)
        tnt_random();
    if (getenv("TN_HOSTILE_GDB") != NULL) {
        signal(SIGSEGV, show_stack);
        signal(SIGBUS, show_stack);
        signal(SIGABRT, show_stack);
    }
}

static void go_on(struct worker *w)
{
    while (atomic_load(&w->board->stop) == 0) {
        if (w->domain == NULL && !join(w))
            return; /* the round is over */
        if (tnt_random_below(64) == 0)
            open_objects(w);
        do_something(w);
        if (tnt_random_below(2000) == 0)
            leave(w);
    }
    if (w->domain != NULL)
        leave(w);
}

int work(void *argument)
{
    struct round *round = argument;
    struct worker w;
    prepare(&w, round);
    TN_CHECK(join(&w));
    open_objects(&w);
    tnt_signal(&round->ready);
    go_on(&w);
    return 0;
}

int found(void *argument)
{
    static const tn_domain_options options = {.struct_size = sizeof options,
                                              .quota_bytes = 64 << 20,
                                              .watermark_bytes = 4 << 20,
                                              .seats = 16,
                                              .blocks = 2048,
                                              .objects = 32,
                                              .tickets = 64};
    struct round *round = argument;
    struct worker w;
    prepare(&w, round);
    TN_CHECK_OK(tn_domain_open(round->board->name, &options, TN_OPEN_NEW, &w.domain));
    open_objects(&w);
    tnt_signal(&round->ready);
    go_on(&w);
    return 0;
}
