/* SPDX-License-Identifier: Apache-2.0 */
/* table: the entries of a store, and how a process changes them. Inside the room store. */
#ifndef TNI_STORE_TABLE_H
#define TNI_STORE_TABLE_H

#include <string.h>

#include "store/store.h"

enum { TNI_STORE_MOST_KEYS = 1 << 20 };

/* Where the parts of a store's ring block lie, checked. */
struct tni_table {
    struct tni_store *head;
    _Atomic uint32_t *buckets;       /* [bucket_mask + 1] */
    struct tni_store_entry *entries; /* [capacity] */
    uint32_t bucket_mask, capacity;
};

struct tni_store_handle {
    struct tn_object handle;
    struct tni_table table;
    uint64_t budget_bytes;
    bool evicts;
    _Atomic uint32_t hits, misses; /* not yet added to those of the table */
};
/** pre: `store` is a store's or NULL; or the caller uses only its struct tn_object. */
static inline struct tni_store_handle *tni_store_of(const tn_store *store)
{
    return (struct tni_store_handle *)(uintptr_t)store;
}

struct tni_key {
    const char *text;
    uint32_t bytes;
    uint64_t hash;
};
/** @return 0, TN_ERR_INVALID: NULL, empty or too long */
int tni_key_read(const char *text, struct tni_key *ret_key);

/* What a message block is in a store: a copy of its item, and its key, checked. */
struct tni_item {
    struct tni_contents contents; /* of the message */
    struct tni_store_item item;
    const char *key;        /* [item.key_bytes], in the block */
    uint32_t skipped_bytes; /* before the bytes of the value */
};
/**
 * Read a block that is kept meanwhile. If it is not, `ret_item` has pointers into a block and
 * garbage, and the caller finds out afterwards. @return false: it is damaged
 */
bool tni_item_read(const struct tni_segment *segment, tni_block block,
                   struct tni_item *ret_item);
static inline bool tni_item_has_key(const struct tni_item *found, const struct tni_key *key)
{
    return found->item.key_bytes == key->bytes &&
           tni_equals_unstable(key->text, found->key, key->bytes);
}
bool tni_item_is_expired(const struct tni_store_item *item);
/** Whether a process makes the value now: it lives, and has the store open. */
bool tni_item_is_promised(const struct tn_domain *domain, const struct tni_object *object,
                          const struct tni_store_item *item);
/** Whether it is a value, whose lifetime is not over. */
static inline bool tni_item_is_value(const struct tni_store_item *item)
{
    return item->maker == 0 && !tni_item_is_expired(item);
}

uint64_t tni_table_bytes(uint32_t capacity);
/** @return false: the object names no block for a store of its capacity */
bool tni_table_get(const struct tni_segment *segment, const struct tni_object *object,
                   struct tni_table *ret_table);

static inline tni_block tni_entry_block(uint64_t word)
{
    return (tni_block){tni_store_block(word)};
}
/** Whether a number from shared memory is that of a message block. */
static inline bool tni_block_is_message(const struct tni_segment *s, tni_block block)
{
    return tni_geometry_has_block(&s->geometry, block.id) &&
           tni_class_is_message(tni_block_class(block));
}

/* ---- reading: find.c --------------------------------------------------------------------- */

/* What an entry had when a process looked at it without the claim. */
struct tni_looked {
    struct tni_store_entry *entry;
    uint64_t word;
    struct tni_item found; /* its pointers are good while the entry has this word */
};
/** Find the entry of a key, without the claim. @return false: no entry has the key */
bool tni_table_find(struct tni_store_handle *store, const struct tni_key *key,
                    struct tni_looked *ret_seen);
/**
 * Look at an entry.
 * @param ret_key  [TN_STORE_KEY_BYTES + 1]
 * @return whether it has an item
 */
bool tni_table_look(const struct tni_segment *segment, struct tni_store_entry *entry,
                    struct tni_looked *ret_seen, char *ret_key);

/* ---- changing: change.c. pre of all but begin: the caller has the claim ------------------ */

/* A change of a store, between begin and end. */
struct tni_change {
    struct tn_domain *domain;
    struct tni_object *object;
    struct tni_table table;
    bool has_changed; /* waiters are to be woken */
};
/**
 * Take the claim, and repair what a dead owner of it left.
 * @return 0; TN_ERR_TIMED_OUT, which names the owner
 */
int tni_change_begin(struct tn_domain *domain, struct tni_object *object,
                     const struct tni_table *table, uint64_t deadline_ns,
                     struct tni_change *ret_change);
/** As tni_change_begin(), without a wait. @return whether this process has the claim now */
bool tni_change_try_begin(struct tn_domain *domain, struct tni_object *object,
                          const struct tni_table *table, struct tni_change *ret_change);
void tni_change_end(struct tni_change *change);
/** @return NULL: no entry has the key */
struct tni_store_entry *tni_change_find(const struct tni_change *change,
                                        const struct tni_key *key, struct tni_item *ret_item);
/** Take a free entry for a key. @return NULL: there is none */
struct tni_store_entry *tni_change_add(struct tni_change *change, const struct tni_key *key);
/**
 * Let an entry name a block in place of the one that it names. The caller's local reference,
 * the only one of its process, is consumed on success.
 * @return 0, TN_ERR_FULL
 */
int tni_change_swap(struct tni_change *change, struct tni_store_entry *entry, tni_block block);
/** Make an entry free again that was added and names no block. */
void tni_change_undo_add(struct tni_change *change, struct tni_store_entry *entry);
/** Remove an entry with its key and value, as a change of its own. */
void tni_change_drop(struct tni_change *change, struct tni_store_entry *entry,
                     const struct tni_item *found);
/** Count a change of a key, and let waiters see it. */
void tni_change_note(struct tni_change *change, const char *key, uint32_t key_bytes);
/** The number of the next change. */
static inline uint64_t tni_change_version(const struct tni_change *change)
{
    return atomic_load(&change->table.head->version) + 1;
}
/**
 * Remove the values whose lifetime is over, and promises of which no process makes the value.
 * @param except  is not removed; may be NULL
 * @return how many
 */
uint32_t tni_change_expire(struct tni_change *change, const struct tni_store_entry *except);

/* ---- evict.c ----------------------------------------------------------------------------- */

/**
 * Remove the value that was used least recently, of those that may be evicted.
 * @param except  is not removed; may be NULL
 * @return false: there is none
 */
bool tni_change_evict(struct tni_change *change, const struct tni_store_entry *except);

/** Let an entry name no block, and drop the reference that it had. */
void tni_entry_empty(struct tn_domain *domain, struct tni_store_entry *entry);

extern const struct tni_kind tni_store_kind;
int tni_store_bind(struct tn_object *handle);
/** Add the hits and misses that this handle has not added yet to those of the store. */
void tni_store_add_counts(struct tn_object *handle);
/** In a forked child: the parent adds them. */
void tni_store_forget_counts(struct tn_object *handle);

#endif
