/* SPDX-License-Identifier: Apache-2.0 */
/* Messages: made, pushed, and checked against the ledger where they arrive. */
#include "soak.h"

#include "harness/tensor.h"
#include <stdio.h>
#include <string.h>

#define MAGIC UINT64_C(0x6b616f732e6e6f74)
enum { LIVES_SEEN = 1024, MANY_DELIVERIES = 1000 };

/* ---- tensors ----------------------------------------------------------------------------- */

static uint64_t word_of(uint64_t key, uint64_t index)
{
    return (key ^ index) * UINT64_C(0x9e3779b97f4a7c15);
}

static void fill(tn_tensor *tensor, uint64_t key, uint32_t words)
{
    uint64_t *at = tn_tensor_data(tensor);
    for (uint32_t i = 0; i < words; i++)
        at[i] = word_of(key, i);
}

static bool is_refusal(int status)
{
    return status == TN_ERR_NO_MEMORY || status == TN_ERR_TIMED_OUT || status == TN_ERR_FULL;
}

/* Most tensors are small; some take much of the quota, and those of a hoarder most. */
static uint32_t some_words(void)
{
    bool is_small = soak_chance(atomic_load(&me.slot->role) == SOAK_HOARDER ? 20 : 97);
    uint32_t bits = is_small ? soak_below(11) : 11 + soak_below(6);
    return (UINT32_C(1) << bits) + soak_below(UINT32_C(1) << bits);
}

static int make_in_arena_of_ones_own(uint32_t words, tn_deadline deadline, tn_tensor **ret)
{
    tn_arena *arena = NULL;
    int64_t shape = words;
    int status = tn_arena_create(me.domain, (uint64_t)words * 8 + 64, deadline, &arena);
    if (status == 0)
        status = tn_arena_allocate(arena, TN_UINT64, 1, &shape, ret);
    tn_arena_close(arena);
    return status;
}

static int make_and_share(uint32_t strategy, uint32_t words, uint64_t key, tn_deadline deadline,
                          tn_tensor **ret)
{
    tn_tensor_options options = {
        .struct_size = sizeof options, .strategy = strategy, .deadline = deadline};
    int64_t shape = words;
    tn_tensor *tensor = NULL;
    int status = tn_tensor_create_private(TN_UINT64, 1, &shape, &tensor);
    if (status != 0)
        return status;
    fill(tensor, key, words);
    status = tn_tensor_share(me.domain, tensor, &options);
    if (status == 0)
        *ret = tensor;
    else
        tn_tensor_unref(tensor);
    return status;
}

static int make_once(uint32_t words, tn_deadline deadline, tn_tensor **ret)
{
    tn_tensor_options options = {
        .struct_size = sizeof options, .flags = TN_TENSOR_WRITE_ONCE, .deadline = deadline};
    int64_t shape = words;
    int status = tn_tensor_create(me.domain, TN_UINT64, 1, &shape, &options, ret);
    if (status == 0)
        soak_count(SOAK_N_BY_WRITE_ONCE, 1);
    return status;
}

static int make(uint32_t words, uint64_t key, tn_tensor **ret)
{
    tn_tensor_options options = {.struct_size = sizeof options, .strategy = TN_STRATEGY_ARENA};
    int64_t shape = words;
    tn_deadline deadline = soak_chance(50) ? TN_NOW : soak_deadline(soak_below(30));
    uint32_t dice = soak_below(100);
    if (dice < 4)
        return make_in_arena_of_ones_own(words, deadline, ret);
    if (dice < 14)
        return make_and_share(1 + soak_below(3), words, key, deadline, ret);
    if (dice < 24)
        options.strategy = TN_STRATEGY_FILE_DESCRIPTOR;
    else if (dice < 36)
        options.strategy = TN_STRATEGY_FILE_SYSTEM;
    else if (dice < 40)
        return make_once(words, deadline, ret);
    return tn_tensor_create(me.domain, TN_UINT64, 1, &shape, &options, ret);
}

static void count_tensor(const tn_tensor *tensor, uint32_t words)
{
    static const enum soak_figure by[] = {SOAK_N_BY_ARENA, SOAK_N_BY_ARENA,
                                          SOAK_N_BY_DESCRIPTOR, SOAK_N_BY_FILE};
    soak_count(SOAK_N_TENSORS, 1);
    soak_count(SOAK_N_TENSOR_BYTES, (uint64_t)words * 8);
    soak_count(by[tnt_info(tensor).strategy], 1);
}

static void name_tensor(tn_tensor *tensor, uint64_t key)
{
    char name[32];
    snprintf(name, sizeof name, "key-%016llx", (unsigned long long)key);
    int status = tn_tensor_set_name(tensor, name);
    if (status != 0)
        soak_fail_status(SOAK_ON_CONTENTS, "tn_tensor_set_name", status);
}

bool soak_make_tensor(struct soak_part *ret_part, tn_tensor **ret_tensor)
{
    struct soak_part part = {.key = soak_random(), .words = some_words()};
    tn_tensor *tensor = NULL;
    soak_do(SOAK_ALLOCATING);
    int status = make(part.words, part.key, &tensor);
    if (status != 0) {
        if (!is_refusal(status))
            soak_fail_status(SOAK_ON_BLOCKS, "making a tensor", status);
        soak_count(SOAK_N_NO_ROOM, 1);
        return false;
    }
    if (!tnt_info(tensor).is_read_only)
        fill(tensor, part.key, part.words);
    count_tensor(tensor, part.words);
    part.strategy = tnt_info(tensor).strategy;
    part.has_name = soak_chance(10);
    if (part.words > 4 && soak_chance(10)) { /* a view that begins at a later word */
        tn_tensor *view = NULL;
        part.first = 1 + soak_below(part.words - 2);
        status = tn_tensor_slice(tensor, 0, part.first, part.words, 1, &view);
        if (status != 0)
            soak_fail_status(SOAK_ON_CONTENTS, "tn_tensor_slice", status);
        tn_tensor_unref(tensor);
        tensor = view;
        part.words -= part.first;
    }
    if (part.has_name != 0)
        name_tensor(tensor, part.key);
    *ret_part = part;
    *ret_tensor = tensor;
    return true;
}

static void check_name(const tn_tensor *tensor, const struct soak_part *part)
{
    char wanted[32];
    const char *name = tn_tensor_name(tensor);
    snprintf(wanted, sizeof wanted, "key-%016llx", (unsigned long long)part->key);
    if (name == NULL || strcmp(name, wanted) != 0)
        soak_fail(SOAK_ON_CONTENTS, "a tensor called '%s' should be called '%s'",
                  name != NULL ? name : "", wanted);
}

void soak_check_tensor(const tn_tensor *tensor, const struct soak_part *part, const char *what)
{
    if (tn_tensor_count(tensor) != part->words || tnt_info(tensor).strategy != part->strategy)
        soak_fail(SOAK_ON_CONTENTS, "%s: %lld words by strategy %u, should be %u by %u", what,
                  (long long)tn_tensor_count(tensor), tnt_info(tensor).strategy, part->words,
                  part->strategy);
    const uint64_t *at = tn_tensor_data(tensor);
    for (uint32_t i = 0; i < part->words; i++) {
        if (at[i] != word_of(part->key, (uint64_t)part->first + i))
            soak_fail(SOAK_ON_CONTENTS,
                      "%s: word %u of %u (first %u, strategy %u, %s) is %#llx, should be %#llx",
                      what, i, part->words, part->first, part->strategy,
                      tnt_info(tensor).path != NULL ? tnt_info(tensor).path : "no path",
                      (unsigned long long)at[i],
                      (unsigned long long)word_of(part->key, (uint64_t)part->first + i));
    }
    if (part->has_name != 0)
        check_name(tensor, part);
    soak_count(SOAK_N_CHECKED_BYTES, (uint64_t)part->words * 8);
    soak_checked(SOAK_ON_CONTENTS);
}

void soak_drop_tensors(tn_tensor **tensors, uint32_t count)
{
    soak_do(SOAK_RELEASING);
    for (uint32_t i = 0; i < count; i++)
        tensors[i] = tn_tensor_unref(tensors[i]);
}

/* ---- pushing ----------------------------------------------------------------------------- */

/* @return UINT32_MAX: the ledger of this round is full */
uint32_t soak_new_entry(void)
{
    if (atomic_load(&soak->messages) >= SOAK_MESSAGES - SOAK_SLOTS)
        return UINT32_MAX;
    return atomic_fetch_add(&soak->messages, 1);
}

static size_t write_bytes(struct soak_parcel *p)
{
    size_t used = sizeof p->wire;
    memcpy(p->bytes, &p->wire, used);
    memcpy(p->bytes + used, p->handle, p->wire.handle_bytes);
    used += p->wire.handle_bytes;
    for (uint32_t i = 0; i < p->wire.filler_bytes; i++)
        p->bytes[used + i] = (uint8_t)(p->wire.id + i);
    return used + p->wire.filler_bytes;
}

static bool is_push_refusal(int status)
{
    return is_refusal(status) || status == TN_ERR_PEER_DIED;
}

static void note_push(struct soak_entry *entry, int status)
{
    if (status == TN_ERR_PEER_DIED)
        soak_count(SOAK_N_PEERS, 1);
    if (status != 0 && !is_push_refusal(status))
        soak_fail_status(SOAK_ON_MESSAGES, "tn_queue_push", status);
    atomic_store(&entry->state, status == 0 ? SOAK_M_PUSHED : SOAK_M_REFUSED);
    soak_count(status == 0 ? SOAK_N_PUSHED : SOAK_N_REFUSED, 1);
}

static void fill_entry(struct soak_parcel *p, struct soak_entry *entry, uint32_t queue)
{
    p->wire.magic = MAGIC;
    p->wire.round = atomic_load(&soak->round);
    p->wire.queue = queue;
    p->wire.life = me.life;
    p->wire.number = ++me.numbers[queue];
    p->wire.filler_bytes = soak_chance(20) ? soak_below(2000) : soak_below(40);
    entry->queue = queue;
    entry->life = me.life;
    entry->number = p->wire.number;
    for (uint32_t i = 0; i < p->wire.part_count; i++)
        entry->strategies |= UINT32_C(1) << p->wire.parts[i].strategy;
}

void soak_push(struct soak_parcel *p, uint32_t queue)
{
    struct soak_entry *entry = &soak->entries[p->wire.id];
    uint32_t count = p->wire.part_count, flags = soak_chance(50) ? TN_PUSH_MOVE : 0;
    tn_message message = {.tensors = p->tensors, .tensor_count = count};
    fill_entry(p, entry, queue);
    message.bytes = p->bytes;
    message.size_bytes = write_bytes(p);
    atomic_store(&entry->state, SOAK_M_PUSHING);
    soak_do_at(SOAK_PUSHING, queue, 1);
    int status = tn_queue_push(me.queues[queue], &message, flags,
                               soak_chance(30) ? TN_NOW : soak_deadline(soak_below(60)));
    note_push(entry, status);
    if (status != 0 || flags == 0)
        soak_drop_tensors(p->tensors, count);
    soak_do(SOAK_NOTHING);
}

/* ---- receiving --------------------------------------------------------------------------- */

static struct {
    uint32_t life, numbers[SOAK_QUEUES];
} seen[LIVES_SEEN]; /* the last message that this process had from each producer */

/* If there is no memory to receive a message, the pop puts it back, and it comes late. */
static bool may_be_put_back(const struct soak_wire *wire)
{
    for (uint32_t i = 0; i < wire->part_count; i++)
        if (wire->parts[i].strategy == TN_STRATEGY_FILE_DESCRIPTOR)
            return true;
    return false;
}

/*
 * A message that is delivered again, after a death or after it was given back, may come late.
 */
static void check_order(const struct soak_wire *wire, uint32_t attempt)
{
    if (me.slot == NULL ||
        attempt > 0) /* the conductor drains the queues when order no longer counts */
        return;
    uint32_t place = wire->life % LIVES_SEEN;
    if (seen[place].life != wire->life) {
        memset(&seen[place], 0, sizeof seen[place]);
        seen[place].life = wire->life;
    }
    uint32_t *last = &seen[place].numbers[wire->queue];
    if (wire->number <= *last && !may_be_put_back(wire))
        soak_fail(SOAK_ON_ORDER, "queue %s: message %u of life %u came after its message %u",
                  soak_queue_kinds[wire->queue].name, wire->number, wire->life, *last);
    *last = wire->number > *last ? wire->number : *last;
    soak_checked(SOAK_ON_ORDER);
}

static void read_wire(const tn_message *message, uint32_t queue, struct soak_wire *ret)
{
    if (message->size_bytes < sizeof *ret)
        soak_fail(SOAK_ON_CONTENTS, "a message of %zu bytes", message->size_bytes);
    memcpy(ret, message->bytes, sizeof *ret);
    if (ret->magic != MAGIC || ret->queue != queue || ret->id >= SOAK_MESSAGES ||
        message->size_bytes != sizeof *ret + ret->handle_bytes + ret->filler_bytes ||
        message->tensor_count != ret->part_count)
        soak_fail(SOAK_ON_CONTENTS,
                  "queue %u: a message of other bytes: id %u, queue %u, %zu bytes, %u tensors",
                  queue, ret->id, ret->queue, message->size_bytes, message->tensor_count);
    if (ret->round != atomic_load(&soak->round))
        soak_fail(SOAK_ON_MESSAGES, "queue %s: a message of round %u came in round %u",
                  soak_queue_kinds[queue].name, ret->round, atomic_load(&soak->round));
}

void soak_check_contents(const tn_message *message, const struct soak_wire *wire)
{
    const uint8_t *filler = (const uint8_t *)message->bytes + sizeof *wire + wire->handle_bytes;
    for (uint32_t i = 0; i < wire->filler_bytes; i++)
        if (filler[i] != (uint8_t)(wire->id + i))
            soak_fail(SOAK_ON_CONTENTS, "message %u: filler byte %u of %u is wrong", wire->id,
                      i, wire->filler_bytes);
    for (uint32_t i = 0; i < message->tensor_count; i++)
        if (message->tensors[i] != NULL)
            soak_check_tensor(message->tensors[i], &wire->parts[i], "a tensor of a message");
}

/*
 * A message arrives once, unless it is leased: then its attempts say how often it was
 * delivered before.
 */
static void check_delivery(const tn_message *message, const struct soak_wire *wire)
{
    struct soak_entry *entry = &soak->entries[wire->id];
    uint32_t policy = soak_queue_kinds[wire->queue].policy;
    const char *name = soak_queue_kinds[wire->queue].name;
    uint32_t state = atomic_load(&entry->state), before = atomic_load(&entry->popped);
    if (state != SOAK_M_PUSHING && state != SOAK_M_PUSHED)
        soak_fail(SOAK_ON_MESSAGES, "queue %s: message %u came, and its push was refused (%u)",
                  name, wire->id, state);
    if (entry->life != wire->life || entry->number != wire->number)
        soak_fail(SOAK_ON_MESSAGES, "queue %s: message %u is not as the ledger has it", name,
                  wire->id);
    if (policy != TN_QUEUE_LEASE && before > 0)
        soak_fail(SOAK_ON_MESSAGES, "queue %s: message %u came twice", name, wire->id);
    if (policy == TN_QUEUE_DROP && message->attempt > 0)
        soak_fail(SOAK_ON_MESSAGES, "queue %s: message %u came again", name, wire->id);
    if (atomic_load(&entry->acked) > 0)
        soak_fail(SOAK_ON_MESSAGES, "queue %s: message %u came after it was acknowledged", name,
                  wire->id);
    if (policy == TN_QUEUE_LEASE && message->attempt < before && before < MANY_DELIVERIES)
        soak_fail(SOAK_ON_MESSAGES, "queue %s: message %u was delivered %u times, says %u",
                  name, wire->id, before, message->attempt);
}

void soak_receive(const tn_message *message, uint32_t queue, struct soak_wire *ret_wire)
{
    struct soak_wire wire;
    read_wire(message, queue, &wire);
    check_delivery(message, &wire);
    atomic_fetch_add(&soak->entries[wire.id].popped, 1);
    soak_count(SOAK_N_POPPED, 1);
    if (message->attempt > 0)
        soak_count(SOAK_N_REDELIVERED, 1);
    check_order(&wire, message->attempt);
    *ret_wire = wire;
}

void soak_acknowledge(uint32_t queue, tn_message *message, uint32_t id)
{
    struct soak_entry *entry = &soak->entries[id];
    atomic_fetch_add(&entry->acking, 1);
    soak_do_at(SOAK_ACKNOWLEDGING, queue, 1);
    int status = tn_message_ack(me.queues[queue], message);
    if (status != 0)
        soak_fail_status(SOAK_ON_MESSAGES, "tn_message_ack of a lease of ours", status);
    if (atomic_fetch_add(&entry->acked, 1) > 0)
        soak_fail(SOAK_ON_MESSAGES, "queue %s: message %u was acknowledged twice",
                  soak_queue_kinds[queue].name, id);
    soak_count(SOAK_N_ACKED, 1);
}

void soak_judge_pop(int status, uint32_t queue)
{
    if (status == TN_ERR_PEER_DIED)
        soak_count(SOAK_N_PEERS, 1);
    /*
     * TN_ERR_MANAGER: tenond died while it was asked for a descriptor; the message is still
     * in the queue.
     */
    if (status == TN_ERR_TIMED_OUT || status == TN_ERR_PEER_DIED || status == TN_ERR_MANAGER)
        return;
    if (status != TN_ERR_NOT_FOUND)
        soak_fail_status(SOAK_ON_MESSAGES, "tn_queue_pop", status);
    /*
     * The only process with its memory object was killed before another one had it:
     * docs/crash.md.
     */
    atomic_fetch_add(&soak->queues[queue].lost, 1);
}
