/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of accesses: R56. Each agent, a process or a stream, counts its steps; a clock
 * says which steps of the others come before. An access of a process that conflicts with one
 * of another process, and is not ordered after it, is a race.
 * Source: C. Fidge, Timestamps in message-passing systems that preserve the partial ordering,
 * ACSC 1988; per page of 4 KiB, but with the bytes of each access.
 */
#include <stdlib.h>
#include <unistd.h>

#include "fakecuda/state.h"

int agent_create(int process)
{
    for (int i = 0; i < AGENTS; i++) {
        if (universe->agent_process[i] != 0)
            continue;
        universe->agent_process[i] = process + 1;
        universe->agent_instance[i] = universe->processes[process].instance;
        return i;
    }
    abort();
}

void agent_destroy(int agent)
{
    universe->agent_process[agent] = 0;
    universe->dead.steps[agent] = universe->agent_steps[agent];
}

void clock_join(struct clock *clock, const struct clock *other)
{
    for (int i = 0; i < AGENTS; i++)
        if (other->steps[i] > clock->steps[i])
            clock->steps[i] = other->steps[i];
}

void clock_step(struct clock *clock, int agent)
{
    clock->steps[agent] = ++universe->agent_steps[agent];
}

void clock_submit(struct clock *ret_clock)
{
    clock_step(&me()->clock, me()->agent);
    *ret_clock = me()->clock;
}

/* ---- accesses ---------------------------------------------------------------------------- */

struct looking {
    const struct clock *clock;
    struct access access;
    bool found_race;
};

static bool meets(const struct access *a, const struct access *b)
{
    return a->bytes && a->start < b->start + b->bytes && b->start < a->start + a->bytes;
}

static bool is_race(const struct looking *now, const struct access *before)
{
    return meets(before, &now->access) && (before->is_write || now->access.is_write) &&
           universe->agent_instance[before->agent] !=
               universe->agent_instance[now->access.agent] &&
           before->step > now->clock->steps[before->agent];
}

/* Whether who is ordered after the new access is ordered after the old one, too. */
static bool is_superseded(const struct looking *now, const struct access *before)
{
    const struct access *new = &now->access;
    return before->bytes && before->start >= new->start &&
           before->start + before->bytes <= new->start + new->bytes &&
           (new->is_write || !before->is_write) &&
           before->step <= now->clock->steps[before->agent];
}

static void enter(struct page *page, struct looking *now)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < PAGE_ACCESSES; i++) {
        struct access before = page->accesses[i];
        if (!before.bytes)
            continue;
        now->found_race = now->found_race || is_race(now, &before);
        if (!is_superseded(now, &before))
            page->accesses[kept++] = before;
    }
    if (kept == PAGE_ACCESSES)
        memmove(page->accesses, page->accesses + 1, --kept * sizeof page->accesses[0]);
    page->accesses[kept++] = now->access;
    memset(page->accesses + kept, 0, (PAGE_ACCESSES - kept) * sizeof page->accesses[0]);
}

void race_access(const struct clock *clock, int agent, const struct target *target,
                 uint64_t bytes, bool writes)
{
    if (universe->options.no_races || target->device < 0)
        return;
    struct page *pages = device_pages(target->device);
    struct looking now = {.clock = clock};
    uint64_t end = target->off + bytes;
    for (uint64_t off = target->off; off < end;) {
        uint64_t next = (off / PAGE + 1) * PAGE;
        next = next < end ? next : end;
        now.access = (struct access){.step = clock->steps[agent],
                                     .agent = (uint16_t)agent,
                                     .start = (uint16_t)(off % PAGE),
                                     .bytes = (uint16_t)(next - off),
                                     .is_write = writes};
        enter(&pages[off / PAGE], &now);
        off = next;
    }
    if (now.found_race)
        violation("R56", "a race: %s %llu bytes that another process uses without order",
                  writes ? "work writes" : "work reads", (unsigned long long)bytes);
}

void race_forget(int device, uint64_t off, uint64_t bytes)
{
    struct page *pages = device_pages(device) + off / PAGE;
    for (uint64_t i = 0; i < bytes / PAGE; i++)
        if (pages[i].accesses[0].bytes)
            memset(&pages[i], 0, sizeof pages[i]);
}

/* ---- messages ---------------------------------------------------------------------------- */

enum { MAX_PROBES = 32 };

/* The message of this key, or the one that is forgotten for it. */
static struct message *message_of(uint64_t key)
{
    struct message *oldest = &universe->messages[key % MAX_MESSAGES];
    for (uint64_t i = 0; i < MAX_PROBES; i++) {
        struct message *message = &universe->messages[(key + i) % MAX_MESSAGES];
        if (message->turn && message->key == key)
            return message;
        if (message->turn < oldest->turn)
            oldest = message;
    }
    return oldest;
}

void fake_message_sent(uint64_t key)
{
    if (!universe || local.pid != getpid() || local.is_detached)
        return;
    universe_lock();
    struct message *message = message_of(key);
    if (!message->turn || message->key != key)
        *message = (struct message){.key = key};
    message->turn = ++universe->turn;
    clock_step(&me()->clock, me()->agent);
    clock_join(&message->clock, &me()->clock);
    universe_unlock();
}

void fake_message_received(uint64_t key)
{
    if (!universe || local.pid != getpid() || local.is_detached)
        return;
    universe_lock();
    const struct message *message = message_of(key);
    if (message->turn && message->key == key)
        clock_join(&me()->clock, &message->clock);
    universe_unlock();
}
