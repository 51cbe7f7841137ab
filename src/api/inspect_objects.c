/* SPDX-License-Identifier: Apache-2.0 */
/* inspect_objects: queues, events, semaphores, locks, conditions, barriers, stores, channels.
 */
#include <stdlib.h>

#include "api/inspect.h"
#include "channel/channel.h"
#include "queue/queue.h"
#include "store/store.h"

/* Count the seats of a set. A seat number that the domain does not have makes no sense. */
static uint32_t count_seats(const struct tni_segment *s, const struct tni_seat_set *set)
{
    uint32_t count = 0, limit = tni_seat_limit(s);
    for (uint32_t seat = 0; seat < limit; seat++)
        count += tni_seat_set_has(set, seat);
    return count;
}

static void describe_queue(const struct tni_segment *s, uint32_t index, tn_object_entry *info)
{
    const struct tni_object *object = tni_object_at(s, index);
    struct tni_queue_figures figures;

    tni_queue_figures(s, index, &figures);
    info->count = figures.full;
    info->leased = figures.leased;
    info->capacity = TNI_LOOK(object->capacity);
    info->pushed = figures.pushed;
    info->redelivered = figures.redelivered;
    info->redeliveries = atomic_load_explicit(&object->redeliveries, memory_order_relaxed);
}

static void describe_store(const struct tni_segment *s, uint32_t index, tn_object_entry *info)
{
    struct tni_store_figures figures;

    tni_store_figures(s, index, &figures);
    info->count = figures.count;
    info->capacity = TNI_LOOK(tni_object_at(s, index)->capacity);
    info->bytes = figures.bytes;
    info->budget_bytes = atomic_load(&tni_object_at(s, index)->value);
    info->hits = figures.hits;
    info->misses = figures.misses;
    info->evictions = figures.evictions;
    info->is_kept = (atomic_load(&tni_object_at(s, index)->ended) & TNI_STORE_KEPT) != 0;
}

static const char *policy_name(uint32_t policy)
{
    static const char *const names[] = {
        [TN_CHANNEL_WAIT] = "wait",
        [TN_CHANNEL_DROP] = "drop",
        [TN_CHANNEL_DISCONNECT] = "disconnect",
    };
    return policy < TNI_COUNT(names) ? names[policy] : "unknown";
}

static void describe_channel(const struct tni_segment *s, uint32_t index, tn_object_entry *info)
{
    struct tni_channel_figures figures;

    tni_channel_figures(s, index, &figures);
    info->count = figures.kept;
    info->capacity = TNI_LOOK(tni_object_at(s, index)->capacity);
    info->pushed = figures.published;
    info->policy = policy_name(TNI_LOOK(tni_object_at(s, index)->flags));
    info->subscribers = figures.subscribers;
    info->slowest_pid = figures.slowest_pid;
    info->most_behind = figures.most_behind;
    info->dropped = figures.dropped;
    info->disconnected = figures.disconnected;
}

static void describe_other(const struct tni_segment *s, uint32_t index, tn_object_entry *info)
{
    struct tni_object_figures figures;

    tni_object_figures(s, index, &figures);
    info->count = figures.count;
    info->broken = figures.is_broken;
    info->capacity = TNI_LOOK(tni_object_at(s, index)->capacity);
}

/* @param owners  [seats of the domain], filled in with the owners of the object */
static void describe_owners(const struct tni_segment *s, uint32_t index, tn_holder *owners,
                            tn_object_entry *info)
{
    uint32_t limit = tni_seat_limit(s);

    for (uint32_t seat = 0; seat < limit; seat++) {
        if (!tni_object_has_owner(s, index, seat))
            continue;
        tn_holder *owner = &owners[info->owner_count++];
        *owner = (tn_holder){.seat = seat, .pid = tni_inspect_seat_pid(s, seat)};
        tni_inspect_seat_command(s, seat, owner->command, sizeof owner->command);
    }
    info->owners = owners;
    info->owner_pid = info->owner_count == 1 ? owners[0].pid : 0;
}

static void describe(const struct tni_segment *s, uint32_t index, uint64_t word,
                     tn_holder *owners, tn_object_entry *info)
{
    const struct tni_object *object = tni_object_at(s, index);

    info->id = tni_object_id(tni_object_generation(word), index);
    tni_text_copy(info->name, sizeof info->name, object->name, sizeof object->name);
    info->openers = count_seats(s, &object->openers);
    info->producers = count_seats(s, &object->producers);
    info->consumers = count_seats(s, &object->consumers);
    info->ended = (atomic_load(&object->ended) & TNI_QUEUE_ENDED) != 0 ||
                  tni_object_state(word) == TNI_OBJECT_ENDING;
    if (tni_object_kind(word) == TNI_OBJECT_QUEUE)
        describe_queue(s, index, info);
    else if (tni_object_kind(word) == TNI_OBJECT_STORE)
        describe_store(s, index, info);
    else if (tni_object_kind(word) == TNI_OBJECT_CHANNEL)
        describe_channel(s, index, info);
    else
        describe_other(s, index, info);
    describe_owners(s, index, owners, info);
}

int tn_inspect_objects(tn_inspector *inspector, tn_object_entry_fn *each, void *context)
{
    if (inspector == NULL || each == NULL)
        return tni_fail_null(inspector == NULL ? "the inspector" : "each");
    const struct tni_segment *s = &inspector->segment;
    uint32_t limit = tni_object_limit(s);
    int stop = 0;
    tn_holder *owners = calloc(s->geometry.seats, sizeof *owners);
    if (owners == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "no private memory for the owners of objects");

    for (uint32_t i = 0; i < limit && stop == 0; i++) {
        uint64_t word = atomic_load(&tni_object_at(s, i)->word);
        uint32_t state = tni_object_state(word);
        const char *kind = tni_object_kind_name(tni_object_kind(word));
        if (kind == NULL || (state != TNI_OBJECT_LIVE && state != TNI_OBJECT_ENDING))
            continue;
        tn_object_entry info = {.kind = kind};
        describe(s, i, word, owners, &info);
        stop = each(&info, context);
    }
    free(owners);
    return stop;
}
