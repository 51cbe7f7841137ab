/* SPDX-License-Identifier: Apache-2.0 */
/*
 * evict: choose the value that a full store removes.
 *
 * A search looks at all entries, and remembers the TNI_STORE_VICTIMS that were used least
 * recently, so that the next evictions need no search. A remembered entry that was used since,
 * or that may not be evicted any more, is passed over: it is found again by a later search.
 * Callers: put.c. Death: what is remembered is a hint, and a rebuild forgets it.
 */
#include "store/table.h"

/* Whether a process has a hold of the block. A count of 1 is the record of the store. */
static bool is_block_held(const struct tni_segment *s, tni_block block)
{
    if (!tni_geometry_has_block(&s->geometry, block.id) ||
        tni_word_count(atomic_load(tni_word_at(s, block))) <= 1)
        return false;
    uint32_t at = tni_block_position(&s->geometry, block), limit = tni_seat_limit(s);
    for (uint32_t seat = 0; seat < limit; seat++)
        if ((atomic_load(tni_row_at(s, seat, at)) >> (at % 64) & 1) != 0)
            return true;
    return false;
}

/* Whether a process holds the message or a tensor of it. */
static bool is_held(const struct tni_segment *s, tni_block message)
{
    uint32_t count;
    if (is_block_held(s, message))
        return true;
    const struct tni_records *records = tni_records_at(s, message, &count);
    for (uint32_t r = 0; records != NULL && r < count; r++)
        if (is_block_held(s, (tni_block){TNI_LOOK(records->block[r])}))
            return true;
    return false;
}

/* @return false: the entry has nothing that may be evicted */
static bool may_evict(const struct tni_change *c, struct tni_store_entry *entry,
                      const struct tni_store_entry *except, struct tni_item *ret_item)
{
    const struct tni_segment *s = &c->domain->segment;
    tni_block block = tni_entry_block(atomic_load(&entry->word));
    return entry != except && (atomic_load(&entry->flags) & TNI_STORE_PINNED) == 0 &&
           tni_block_is_message(s, block) && tni_item_read(s, block, ret_item) &&
           !tni_item_is_promised(c->domain, c->object, &ret_item->item) && !is_held(s, block);
}

/* The entries of a search that were used least recently, in order of use. */
struct search {
    uint32_t count;
    uint32_t index[TNI_STORE_VICTIMS];
    uint64_t used[TNI_STORE_VICTIMS];
};

static void insert(struct search *f, uint32_t index, uint64_t used)
{
    uint32_t at = f->count < TNI_STORE_VICTIMS ? f->count++ : TNI_STORE_VICTIMS - 1;
    for (; at > 0 && f->used[at - 1] > used; at--) {
        f->index[at] = f->index[at - 1];
        f->used[at] = f->used[at - 1];
    }
    f->index[at] = index;
    f->used[at] = used;
}

static void search(const struct tni_change *c, const struct tni_store_entry *except)
{
    const struct tni_table *t = &c->table;
    struct search f = {0};
    for (uint32_t i = 0; i < t->capacity; i++) {
        struct tni_item found;
        uint64_t used = atomic_load_explicit(&t->entries[i].used, memory_order_relaxed);
        if ((f.count < TNI_STORE_VICTIMS || used < f.used[f.count - 1]) &&
            may_evict(c, &t->entries[i], except, &found))
            insert(&f, i, used);
    }
    /* The last comes first, so that the next victim is at the end of the list. */
    for (uint32_t i = 0; i < f.count; i++)
        atomic_store(&t->head->victims[i], f.index[f.count - 1 - i]);
    atomic_store(&t->head->victims_used, f.count != 0 ? f.used[f.count - 1] : 0);
    atomic_store(&t->head->victim_count, f.count);
}

/* Remove the first remembered entry that still may go. */
static bool evict_remembered(struct tni_change *c, const struct tni_store_entry *except)
{
    struct tni_store *head = c->table.head;
    uint64_t most = atomic_load(&head->victims_used);
    uint32_t count = TNI_MIN(atomic_load(&head->victim_count), (uint32_t)TNI_STORE_VICTIMS);
    while (count > 0) {
        uint32_t index = atomic_load(&head->victims[--count]);
        struct tni_item found;
        atomic_store(&head->victim_count, count);
        if (index >= c->table.capacity)
            continue;
        struct tni_store_entry *entry = &c->table.entries[index];
        if (atomic_load(&entry->used) > most || !may_evict(c, entry, except, &found))
            continue;
        tni_change_drop(c, entry, &found);
        atomic_fetch_add(&head->evictions, 1);
        return true;
    }
    return false;
}

bool tni_change_evict(struct tni_change *c, const struct tni_store_entry *except)
{
    if (evict_remembered(c, except))
        return true;
    search(c, except);
    return evict_remembered(c, except);
}
