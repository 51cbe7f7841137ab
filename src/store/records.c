/* SPDX-License-Identifier: Apache-2.0 */
/*
 * records: what the reaper, the audit and inspection ask of stores. They check each number, as
 * all come from shared memory.
 *
 * Callers: the reaper, api. Death: as in change.c; the end of a store is taken up again.
 */
#include "store/table.h"

/* ---- records ----------------------------------------------------------------------------- */

/* The table of an object that is a store, and lives or is being ended. */
static bool get_store(const struct tni_segment *s, uint32_t index, struct tni_table *ret_table)
{
    const struct tni_object *object = tni_object_at(s, index);
    uint64_t word = atomic_load(&object->word);
    return tni_object_kind(word) == TNI_OBJECT_STORE &&
           tni_object_state(word) != TNI_OBJECT_FREE &&
           tni_object_state(word) != TNI_OBJECT_MAKING && tni_table_get(s, object, ret_table);
}

void tni_store_for_each_record(const struct tni_segment *s, tni_record_fn *each, void *context)
{
    uint32_t limit = tni_object_limit(s);
    for (uint32_t i = 0; i < limit; i++) {
        struct tni_table t;
        if (!get_store(s, i, &t))
            continue;
        for (uint32_t e = 0; e < t.capacity; e++) {
            tni_block block = tni_entry_block(atomic_load(&t.entries[e].word));
            if (block.id != 0)
                each(block, context);
        }
    }
}

uint64_t tni_store_count_records(const struct tni_segment *s, tni_block block)
{
    /* Entries name no other blocks. */
    return tni_class_is_message(tni_block_class(block))
               ? tni_record_count(s, tni_store_for_each_record, block)
               : 0;
}

/* ---- the end ----------------------------------------------------------------------------- */

/* Idempotent. pre: no process has the store open, and the caller has the registry. */
static void end(struct tn_domain *d, struct tni_object *object)
{
    struct tni_table t;
    if (!tni_table_get(&d->segment, object, &t))
        return;
    for (uint32_t i = 0; i < t.capacity; i++)
        tni_entry_empty(d, &t.entries[i]);
}

const struct tni_kind tni_store_kind = {
    .number = TNI_OBJECT_STORE,
    .name = "store",
    .handle_bytes = sizeof(struct tni_store_handle),
    .bind = tni_store_bind,
    .unbind = tni_store_add_counts,
    .forget = tni_store_forget_counts,
    .end = end,
};

/* ---- lifetimes --------------------------------------------------------------------------- */

/*
 * A process may have died in the middle of a change. The sums are not right then, nor is the
 * time of the next expiry, and readers that miss a key look at all entries: repair it now.
 */
static bool is_due(const struct tni_table *t)
{
    uint64_t expires_ns = atomic_load(&t->head->expires_ns);
    return atomic_load(&t->head->is_settled) == 0 ||
           (expires_ns != 0 && tni_os_shared_ns() >= expires_ns);
}

/* pre: the caller has the registry. */
static uint32_t expire(struct tn_domain *d, uint32_t index)
{
    struct tni_object *object = tni_object_at(&d->segment, index);
    struct tni_table t;
    struct tni_change c;
    if (tni_object_state(atomic_load(&object->word)) != TNI_OBJECT_LIVE ||
        !get_store(&d->segment, index, &t) || !is_due(&t) ||
        !tni_change_try_begin(d, object, &t, &c))
        return 0;
    uint32_t removed = tni_change_expire(&c, NULL);
    tni_change_end(&c);
    tni_object_end_unopened(d, index); /* its last value may have gone */
    return removed;
}

uint32_t tni_store_expire_due(struct tn_domain *d)
{
    uint32_t removed = 0, limit = tni_object_limit(&d->segment);
    struct tni_table t;
    uint32_t i = 0;
    while (i < limit && !(get_store(&d->segment, i, &t) && is_due(&t)))
        i++;
    if (i == limit || !tni_object_hold_all(d))
        return 0;
    for (; i < limit; i++)
        removed += expire(d, i);
    tni_object_let_go(d);
    return removed;
}

uint64_t tni_store_next_ns(const struct tn_domain *d)
{
    uint32_t limit = tni_object_limit(&d->segment);
    uint64_t first_ns = TNI_FOREVER;
    for (uint32_t i = 0; i < limit; i++) {
        struct tni_table t;
        if (!get_store(&d->segment, i, &t))
            continue;
        uint64_t expires_ns = atomic_load(&t.head->expires_ns);
        if (expires_ns != 0)
            first_ns = TNI_MIN(first_ns, expires_ns);
    }
    return first_ns != TNI_FOREVER ? first_ns + (uint64_t)tni_os_clock_ahead_ns() : first_ns;
}

static bool has_value(const struct tni_segment *s, uint32_t index)
{
    struct tni_table t;
    if (!get_store(s, index, &t))
        return false;
    for (uint32_t e = 0; e < t.capacity; e++) {
        tni_block block = tni_entry_block(atomic_load(&t.entries[e].word));
        struct tni_item found;
        if (tni_block_is_message(s, block) && tni_item_read(s, block, &found) &&
            found.item.maker == 0)
            return true;
    }
    return false;
}

/* A store of promises alone is not kept: who made them may be dead. */
bool tni_store_has_kept(const struct tni_segment *s)
{
    uint32_t limit = tni_object_limit(s);
    for (uint32_t i = 0; i < limit; i++) {
        uint32_t ended = atomic_load(&tni_object_at(s, i)->ended);
        if ((ended & TNI_STORE_KEPT) != 0 && has_value(s, i))
            return true;
    }
    return false;
}

/* ---- inspection -------------------------------------------------------------------------- */

const char *tni_store_fault(const struct tni_segment *s, uint32_t index)
{
    const struct tni_object *object = tni_object_at(s, index);
    uint64_t word = atomic_load(&object->word);
    struct tni_table t;
    if (tni_object_state(word) != TNI_OBJECT_LIVE || tni_object_kind(word) != TNI_OBJECT_STORE)
        return NULL;
    if (!tni_table_get(s, object, &t))
        return "names no block for its keys";
    for (uint32_t i = 0; i < t.capacity; i++) {
        uint64_t seen = atomic_load(&t.entries[i].word);
        tni_block block = tni_entry_block(seen);
        struct tni_item found;
        bool is_fine = block.id == 0 ||
                       (tni_block_is_message(s, block) && tni_item_read(s, block, &found));
        if (!is_fine && atomic_load(&t.entries[i].word) == seen)
            return "has an entry whose block is no value";
    }
    return NULL;
}

static void tell_kept(const struct tni_segment *s, uint32_t object, tni_block message,
                      tni_kept_fn *each, void *context)
{
    uint32_t count;
    each(object, message, message, context);
    const struct tni_records *records = tni_records_at(s, message, &count);
    for (uint32_t r = 0; records != NULL && r < count; r++)
        each(object, message, (tni_block){TNI_LOOK(records->block[r])}, context);
}

void tni_store_for_each_kept(const struct tni_segment *s, tni_kept_fn *each, void *context)
{
    uint32_t limit = tni_object_limit(s);
    for (uint32_t i = 0; i < limit; i++) {
        struct tni_table t;
        if (!get_store(s, i, &t))
            continue;
        for (uint32_t e = 0; e < t.capacity; e++) {
            tni_block message = tni_entry_block(atomic_load(&t.entries[e].word));
            if (tni_block_is_message(s, message))
                tell_kept(s, i, message, each, context);
        }
    }
}

bool tni_store_key(const struct tni_segment *s, tni_block message, char *key)
{
    struct tni_item found;
    if (!tni_block_is_message(s, message) || !tni_item_read(s, message, &found))
        return false;
    tni_copy_unstable(key, found.key, found.item.key_bytes);
    key[found.item.key_bytes] = '\0';
    return true;
}

void tni_store_figures(const struct tni_segment *s, uint32_t index,
                       struct tni_store_figures *ret_figures)
{
    struct tni_table t;
    *ret_figures = (struct tni_store_figures){0};
    if (get_store(s, index, &t))
        *ret_figures = (struct tni_store_figures){.count = atomic_load(&t.head->count),
                                                  .bytes = atomic_load(&t.head->bytes),
                                                  .hits = atomic_load(&t.head->hits),
                                                  .misses = atomic_load(&t.head->misses),
                                                  .evictions = atomic_load(&t.head->evictions)};
}
