/* SPDX-License-Identifier: Apache-2.0 */
/*
 * find: read a store without its claim.
 *
 * A reader pins the block that an entry names, and then checks that the entry still names it:
 * so the record kept the block when the pin came. A reader that found no entry checks that no
 * entry left a chain meanwhile (`epoch`), since an entry may be in another chain by now. If
 * some did, again and again, it looks at all entries: store.c, I3. Callers: store.c, make.c.
 * Death: the reaper gives the pin back.
 */
#include <string.h>

#include "store/table.h"

enum { TRIES = 8 };

/*
 * Hold the block that an entry's word named.
 * @return 0, TN_ERR_FULL; TN_ERR_NOT_FOUND: the entry has another word by now
 */
static int hold_block(struct tn_domain *d, struct tni_store_entry *entry, uint64_t word)
{
    tni_block block = tni_entry_block(word);
    struct tni_thread *thread = tni_thread_enter(d);
    tni_announce(thread, block, 1);
    int status = tni_ref_pin(d, block);
    TNI_KILL_POINT("store_pinned");
    if (status != 0) {
        tni_announce_clear(thread);
    } else if (atomic_load(&entry->word) != word) {
        tni_ref_drop(d, thread, block);
        status = TN_ERR_NOT_FOUND;
    } else {
        tni_ref_adopt(d, thread, block);
    }
    tni_thread_leave(thread);
    return status;
}

int tni_table_hold(struct tn_domain *d, struct tni_store_entry *entry, struct tni_held *ret)
{
    for (;;) {
        uint64_t word = atomic_load_explicit(&entry->word, memory_order_acquire);
        struct tni_held held = {.entry = entry, .block = tni_entry_block(word)};
        if (!tni_block_is_message(&d->segment, held.block))
            return TN_ERR_NOT_FOUND;
        int status = hold_block(d, entry, word);
        if (status == TN_ERR_NOT_FOUND)
            continue;
        if (status != 0)
            return status;
        if (tni_kept_read(&d->segment, held.block, &held.kept)) {
            *ret = held;
            return 0;
        }
        tni_ref_release(d, held.block);
        return TN_ERR_NOT_FOUND;
    }
}

/* @return 0, TN_ERR_FULL; TN_ERR_NOT_FOUND: the entry does not have the key */
static int try_entry(struct tni_store_handle *store, struct tni_store_entry *entry,
                     const struct tni_key *key, struct tni_held *ret)
{
    if (atomic_load_explicit(&entry->hash, memory_order_relaxed) != key->hash)
        return TN_ERR_NOT_FOUND;
    int status = tni_table_hold(store->handle.domain, entry, ret);
    if (status != 0 || tni_kept_is(&ret->kept, key))
        return status;
    tni_ref_release(store->handle.domain, ret->block);
    return TN_ERR_NOT_FOUND;
}

static int search_chain(struct tni_store_handle *store, const struct tni_key *key,
                        struct tni_held *ret)
{
    const struct tni_table *t = &store->table;
    uint32_t next =
        atomic_load_explicit(&t->buckets[key->hash & t->bucket_mask], memory_order_acquire);
    /* An entry that moved to another chain can make this one longer, but not endless. */
    for (uint32_t steps = 0; next != 0 && next <= t->capacity && steps < t->capacity; steps++) {
        struct tni_store_entry *entry = &t->entries[next - 1];
        int status = try_entry(store, entry, key, ret);
        if (status != TN_ERR_NOT_FOUND)
            return status;
        next = atomic_load_explicit(&entry->next, memory_order_acquire);
    }
    return TN_ERR_NOT_FOUND;
}

static int search_all(struct tni_store_handle *store, const struct tni_key *key,
                      struct tni_held *ret)
{
    int status = TN_ERR_NOT_FOUND;
    for (uint32_t i = 0; i < store->table.capacity && status == TN_ERR_NOT_FOUND; i++)
        status = try_entry(store, &store->table.entries[i], key, ret);
    return status;
}

int tni_table_find(struct tni_store_handle *store, const struct tni_key *key,
                   struct tni_held *ret)
{
    const _Atomic uint32_t *epoch = &store->table.head->epoch;
    for (int tries = 0; tries < TRIES; tries++) {
        uint32_t before = atomic_load(epoch);
        int status = search_chain(store, key, ret);
        if (status != TN_ERR_NOT_FOUND)
            return status;
        if ((before & 1) == 0 && atomic_load(epoch) == before)
            return status;
    }
    return search_all(store, key, ret);
}
