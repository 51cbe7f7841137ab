/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order: signals and waits of this process's streams.
 *
 * Nouns: line (a timeline of this process, with the stream that uses it).
 * I1  A stream waits only for a number that some stream was given to write before: a token is
 *     handed out after its signal was accepted. So streams never wait in a circle, whatever
 *     queues of the device they share.
 * I2  The numbers of a line are written one after another, by whatever streams: each signal
 *     waits for the one before it, unless that was written already. So a stream whose handle
 *     the driver gives to another one later, and streams that share a line, do no harm.
 * I3  The words are registered with the driver from the first use until the process leaves,
 *     after its streams have done all.
 * I4  A forked child of a process that uses the driver never comes to the lock: the driver
 *     refuses it first. What its parent owes is not owed by the child.
 * Callers: tensor. Death: the words and the timelines are settled by the reaper (timeline.c).
 */
#include "order/order.h"

#include <stdlib.h>
#include <string.h>

struct tni_line {
    uint32_t timeline;
    int32_t device;
    uintptr_t stream;
    const void *thread; /* of the default stream of a thread; else NULL */
    uint64_t submitted; /* the last number that a stream was given */
};

/* ---- lines ------------------------------------------------------------------------------- */

/* The default streams of a context and of a thread have small numbers. */
enum { LEGACY_STREAM = 1, THREAD_STREAM = 2 };

static struct tni_line line_of(tn_device device, void *stream)
{
    static _Thread_local char here;
    uintptr_t number = stream != NULL ? (uintptr_t)stream : LEGACY_STREAM;
    return (struct tni_line){.device = device.id,
                             .stream = number,
                             .thread = number == THREAD_STREAM ? &here : NULL};
}

static bool is_same(const struct tni_line *a, const struct tni_line *b)
{
    return a->stream == b->stream && a->device == b->device && a->thread == b->thread;
}

/* The line of a stream, or one that it shares. NULL: all timelines are other processes'. */
static struct tni_line *find_line(struct tn_domain *d, struct tni_order_part *part,
                                  const struct tni_line *wanted)
{
    for (uint32_t i = 0; i < part->line_count; i++)
        if (is_same(&part->lines[i], wanted))
            return &part->lines[i];
    struct tni_line *line = &part->lines[part->line_count];
    if (part->line_count < TNI_LINES) {
        *line = *wanted;
        if (tni_timeline_take(&d->segment, d->who, &line->timeline)) {
            line->submitted = atomic_load(tni_value_at(&d->segment, line->timeline));
            part->line_count++;
            return line;
        }
    }
    return part->line_count != 0 ? &part->lines[wanted->stream / 64 % part->line_count] : NULL;
}

/* ---- the words --------------------------------------------------------------------------- */

static uint64_t words_bytes(const struct tni_segment *s)
{
    return tni_align_up(TNI_TIMELINES * sizeof(uint64_t), s->geometry.page_bytes);
}

static void *words_of(const struct tni_segment *s)
{
    return (void *)(uintptr_t)tni_value_at(s, 0);
}

static int open_words(struct tn_domain *d, struct tni_order_part *part, tn_device device)
{
    const struct tni_memory_kind *kind = tni_memory_kind(device.type);
    if (part->lines == NULL)
        part->lines = calloc(TNI_LINES, sizeof *part->lines);
    if (part->addresses == NULL)
        part->addresses = calloc(TNI_ORDER_DEVICES, sizeof *part->addresses);
    if (part->lines == NULL || part->addresses == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "no private memory for timelines");
    int status =
        kind->open_words(kind, device.id, words_of(&d->segment), words_bytes(&d->segment));
    if (status != 0)
        return status;
    part->is_open = true;
    part->home = device.id;
    atomic_store(&part->pid, tni_os_pid());
    return 0;
}

/* Let streams of the device reach the words (I3). pre: the lock */
static int reach(struct tn_domain *d, tn_device device, uint64_t *ret_address)
{
    struct tni_order_part *part = tni_order_part(d);
    const struct tni_memory_kind *kind = tni_memory_kind(device.type);
    int status = kind->check_words(kind, device.id);
    if (status != 0)
        return status;
    if (part->has_left || device.id >= TNI_ORDER_DEVICES)
        return tni_fail(TN_ERR_UNSUPPORTED, "no timelines for device %d", device.id);
    if (!part->is_open && (status = open_words(d, part, device)) != 0)
        return status;
    uint64_t *address = &part->addresses[device.id];
    if (*address == 0)
        status = kind->words_at(kind, device.id, words_of(&d->segment), address);
    *ret_address = *address;
    return status;
}

/* ---- signals ----------------------------------------------------------------------------- */

struct signal {
    tn_device device;
    void *stream;
    const uint64_t *after;
    uint64_t address; /* of the words */
};

static struct tni_device_word word_of(const struct signal *w, uint32_t timeline, uint64_t value)
{
    return (struct tni_device_word){
        .stream = w->stream, .address = w->address + timeline * sizeof value, .value = value};
}

/* Wait in the stream for a number that is not reached yet. */
static int await(const struct tn_domain *d, const struct signal *w, uint64_t token)
{
    const struct tni_memory_kind *kind = tni_memory_kind(w->device.type);
    if (tni_order_state(&d->segment, token) != TNI_ORDER_PENDING)
        return 0;
    struct tni_device_word word = word_of(w, tni_token_timeline(token), tni_token_value(token));
    return kind->await(kind, w->device.id, &word);
}

/* I2. pre: the lock */
static int give_signal(struct tn_domain *d, struct tni_line *line, const struct signal *w,
                       uint64_t *ret_token)
{
    const struct tni_memory_kind *kind = tni_memory_kind(w->device.type);
    uint64_t value = line->submitted + 1;
    struct tni_device_word word = word_of(w, line->timeline, value);
    atomic_store(&tni_timeline_at(&d->segment, line->timeline)->issued, value);
    TNI_KILL_POINT("timeline_issued");
    int status = await(d, w, tni_token_make(line->timeline, line->submitted));
    for (int i = 0; status == 0 && i < TNI_ORDER_AFTER; i++)
        if (tni_token_timeline(w->after[i]) != line->timeline)
            status = await(d, w, w->after[i]);
    if (status == 0)
        status = kind->signal(kind, w->device.id, &word);
    if (status != 0)
        return status; /* the next signal writes this number */
    TNI_KILL_POINT("timeline_signalled");
    line->submitted = value;
    *ret_token = tni_token_make(line->timeline, value);
    return 0;
}

/* The slow way: the processor waits. */
static int wait_here(struct tn_domain *d, const struct signal *w)
{
    const struct tni_memory_kind *kind = tni_memory_kind(w->device.type);
    int status = kind->wait(kind, w->device.id, w->stream);
    for (int i = 0; status == 0 && i < TNI_ORDER_AFTER; i++)
        status = tni_order_sync(d, w->after[i], TNI_FOREVER, true);
    return status;
}

int tni_order_signal(struct tn_domain *d, tn_device device, void *stream, const uint64_t *after,
                     uint64_t *ret_token)
{
    struct tni_order_part *part = tni_order_part(d);
    const struct tni_memory_kind *kind = tni_memory_kind(device.type);
    struct signal w = {.device = device, .stream = stream, .after = after};
    struct tni_line wanted = line_of(device, stream), *line = NULL;
    int status = tni_process_check(d);
    if (status == 0)
        status = kind->check_stream(kind, device.id, stream);
    if (status != 0)
        return status;
    *ret_token = 0;
    tni_mutex_lock(&part->lock);
    if (reach(d, device, &w.address) == 0)
        line = find_line(d, part, &wanted);
    if (line != NULL && line->submitted >= TNI_TOKEN_VALUES - 1)
        line = NULL;
    if (line != NULL)
        status = give_signal(d, line, &w, ret_token);
    tni_mutex_unlock(&part->lock);
    return line != NULL ? status : wait_here(d, &w);
}

bool tni_order_is_owed(const struct tn_domain *d, uint64_t token)
{
    return tni_order_state(&d->segment, token) == TNI_ORDER_PENDING &&
           atomic_load(&tni_order_part(d)->pid) == tni_os_pid();
}

/* ---- waits ------------------------------------------------------------------------------- */

int tni_order_await(struct tn_domain *d, tn_device device, void *stream, uint64_t token)
{
    struct tni_order_part *part = tni_order_part(d);
    const struct tni_memory_kind *kind = tni_memory_kind(device.type);
    struct signal w = {.device = device, .stream = stream};
    switch (tni_order_state(&d->segment, token)) {
    case TNI_ORDER_DONE:
        return 0;
    case TNI_ORDER_LOST:
        return tni_order_fail_lost(&d->segment, token);
    default:
        break;
    }
    int status = tni_process_check(d);
    if (status == 0)
        status = kind->check_stream(kind, device.id, stream);
    if (status != 0)
        return status;
    tni_mutex_lock(&part->lock);
    bool is_reached = reach(d, device, &w.address) == 0;
    if (is_reached)
        status = await(d, &w, token);
    tni_mutex_unlock(&part->lock);
    return is_reached ? status : tni_order_sync(d, token, TNI_FOREVER, true);
}

/*
 * No process wakes a sleeper when a stream writes a word, so this looks again and again, less
 * often as time goes on. Between two slices the process does the work of tenond: it may release
 * the word itself, if the owner is dead.
 */
int tni_order_sync(struct tn_domain *d, uint64_t token, uint64_t deadline_ns, bool is_through)
{
    enum { YIELDS = 64, SHORTEST_NS = 20 * 1000, LONGEST_NS = 1000 * 1000 };
    static _Atomic uint32_t never; /* a word that nobody changes */
    struct tni_wait wait = {.is_through = is_through};
    uint64_t sleep_ns = SHORTEST_NS;
    for (uint32_t tries = 0; tni_order_state(&d->segment, token) == TNI_ORDER_PENDING;
         tries++) {
        uint64_t now_ns = tni_os_now_ns();
        if (now_ns >= deadline_ns)
            return tni_fail(TN_ERR_TIMED_OUT, deadline_ns == 0
                                                  ? "not ready, and the caller does not wait"
                                                  : "the deadline passed before the device "
                                                    "had done its work");
        if (tries < YIELDS) {
            tni_os_back_off(0);
            continue;
        }
        wait.deadline_ns = TNI_MIN(deadline_ns, now_ns + sleep_ns);
        wait.is_late = false;
        sleep_ns = TNI_MIN(2 * sleep_ns, (uint64_t)LONGEST_NS);
        int slept = tni_process_sleep(d, &never, 0, &wait);
        if (slept != 0 && slept != TN_ERR_TIMED_OUT)
            return slept;
    }
    return 0;
}

/* ---- leaving ----------------------------------------------------------------------------- */

static void close_words(struct tn_domain *d, struct tni_order_part *part, bool is_done)
{
    const struct tni_memory_kind *kind =
        tni_memory_kind(TN_DEVICE_CUDA); /* no other has words */
    for (uint32_t i = 0; i < part->line_count; i++) {
        if (is_done)
            tni_timeline_settle(&d->segment, part->lines[i].timeline, d->who, tni_os_pid());
        else
            tni_timeline_retire(&d->segment, part->lines[i].timeline, d->who);
    }
    if (kind->close_words(kind, part->home, words_of(&d->segment)) != 0)
        tni_log(TNI_LOG_WARNING, "words of domain '%s' stay registered: %s", d->segment.name,
                tn_error_detail());
}

void tni_order_leave(struct tn_domain *d, bool is_done)
{
    struct tni_order_part *part = tni_order_part(d);
    bool is_ours = atomic_load(&part->pid) == tni_os_pid();
    if (is_ours)
        tni_mutex_lock(&part->lock);
    part->has_left = true;
    if (is_ours && part->is_open)
        close_words(d, part, is_done);
    part->is_open = false;
    part->line_count = 0;
    free(part->lines);
    free(part->addresses);
    part->lines = NULL;
    part->addresses = NULL;
    if (is_ours)
        tni_mutex_unlock(&part->lock);
}
