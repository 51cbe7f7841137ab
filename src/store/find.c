/* SPDX-License-Identifier: Apache-2.0 */
/*
 * find: read a store without its claim.
 *
 * A reader reads the head of the block that an entry names, copies its item and compares its
 * key, and then checks that the entry still names the block: so the record kept the block all
 * the while, and all that the reader has is of this one message. A block's head was checked
 * against the block's size, so the pointers that the reader has lie in the block even if the
 * block is another message by now. Who uses them afterwards, as tni_message_get_read() does,
 * checks the entry once more after each use. A turn of the word counts the changes of an entry,
 * so that the same block under the same entry is not mistaken for what it was before.
 *
 * A reader that found no entry checks that no entry left a chain meanwhile (`epoch`), since an
 * entry may be in another chain by now. If some did, again and again, it looks at all entries:
 * store.c, I3.
 *
 * Callers: store.c. Death: nothing here writes.
 */
#include <string.h>

#include "store/table.h"

enum { TRIES = 8 };

static bool copy_key(const struct tni_item *found, char *ret_key)
{
    tni_copy_unstable(ret_key, found->key, found->item.key_bytes);
    ret_key[found->item.key_bytes] = '\0';
    return true;
}

/* @param key  that the item shall have, unless its key is copied to `ret_key` */
static inline bool look(const struct tni_segment *s, struct tni_store_entry *entry,
                        const struct tni_key *key, struct tni_looked *ret, char *ret_key)
{
    for (;;) {
        uint64_t word = atomic_load_explicit(&entry->word, memory_order_acquire);
        const struct tni_still still = {&entry->word, word};
        tni_block block = tni_entry_block(word);
        if (!tni_block_is_message(s, block))
            return false;
        bool is_wanted = tni_item_read(s, block, &ret->found) &&
                         (ret_key != NULL ? copy_key(&ret->found, ret_key)
                                          : tni_item_has_key(&ret->found, key));
        if (!tni_is_still(&still))
            continue;
        ret->entry = entry;
        ret->word = word;
        return is_wanted;
    }
}

bool tni_table_look(const struct tni_segment *s, struct tni_store_entry *entry,
                    struct tni_looked *ret_seen, char *ret_key)
{
    return look(s, entry, NULL, ret_seen, ret_key);
}

static bool has_key(const struct tni_store_handle *store, struct tni_store_entry *entry,
                    const struct tni_key *key, struct tni_looked *ret)
{
    return atomic_load_explicit(&entry->hash, memory_order_acquire) == key->hash &&
           look(&store->handle.domain->segment, entry, key, ret, NULL);
}

static bool search_chain(const struct tni_store_handle *store, const struct tni_key *key,
                         struct tni_looked *ret)
{
    const struct tni_table *t = &store->table;
    uint32_t next =
        atomic_load_explicit(&t->buckets[key->hash & t->bucket_mask], memory_order_acquire);
    /* An entry that moved to another chain can make this one longer, but not endless. */
    for (uint32_t steps = 0; next != 0 && next <= t->capacity && steps < t->capacity; steps++) {
        struct tni_store_entry *entry = &t->entries[next - 1];
        if (has_key(store, entry, key, ret))
            return true;
        next = atomic_load_explicit(&entry->next, memory_order_acquire);
    }
    return false;
}

static bool search_all(const struct tni_store_handle *store, const struct tni_key *key,
                       struct tni_looked *ret)
{
    uint32_t i = 0;
    while (i < store->table.capacity && !has_key(store, &store->table.entries[i], key, ret))
        i++;
    return i < store->table.capacity;
}

bool tni_table_find(struct tni_store_handle *store, const struct tni_key *key,
                    struct tni_looked *ret)
{
    const _Atomic uint32_t *epoch = &store->table.head->epoch;
    for (int tries = 0; tries < TRIES; tries++) {
        uint32_t before = atomic_load(epoch);
        if (search_chain(store, key, ret))
            return true;
        if ((before & 1) == 0 && atomic_load(epoch) == before)
            return false;
    }
    return search_all(store, key, ret);
}
