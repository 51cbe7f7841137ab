/* SPDX-License-Identifier: Apache-2.0 */
/* put: new items, and how they get into a store. Inside the room store. */
#ifndef TNI_STORE_PUT_H
#define TNI_STORE_PUT_H

#include <string.h>

#include "store/table.h"

/* What a new item shall be. */
struct tni_item_wish {
    uint64_t deadline_ns; /* of the wait for memory */
    uint64_t lifetime_ns; /* 0: for ever */
    uint32_t flags;       /* TNI_STORE_PINNED */
    bool is_promise;      /* this process makes the value later */
};
/* An item that no entry names yet. The caller has the only reference to its block. */
struct tni_new_item {
    tni_block block;
    struct tni_store_item *item; /* in the block */
    uint32_t flags;
};
/** @return 0, or as tni_message_make() */
int tni_item_make(struct tn_domain *domain, const struct tni_key *key, const tn_message *value,
                  const struct tni_item_wish *wish, struct tni_new_item *ret_item);
/**
 * Let an entry have a new item, and evict what is in its way.
 * @param entry  of the key, as tni_change_find() gave it; NULL: take a free one
 * @return 0, and the item's reference is consumed; TN_ERR_FULL, TN_ERR_NO_MEMORY
 */
int tni_item_place(const struct tni_store_handle *store, struct tni_change *change,
                   const struct tni_key *key, struct tni_store_entry *entry,
                   const struct tni_new_item *made);

/** @return 0, TN_ERR_INVALID: NULL, or too long */
int tni_prefix_read(const char *prefix, uint32_t *ret_bytes);
/** Count a get. */
void tni_store_count(struct tni_store_handle *store, bool is_hit);
enum { TNI_STORE_NO_VALUE = 1, TNI_STORE_NO_ENTRY = 2 };
/**
 * Get the value of a key.
 * @return 0; TNI_STORE_NO_ENTRY; TNI_STORE_NO_VALUE: the entry that was seen has no value, or
 *         none any more; or as tni_message_get()
 */
int tni_store_get(struct tni_store_handle *store, const struct tni_key *key,
                  tn_message *ret_value, struct tni_looked *ret_seen);
/** Fail with TN_ERR_NOT_FOUND. */
int tni_fail_no_value(const tn_store *store, const char *key);

/** Note a use of an entry. The entry that was used last of all needs no note. */
static inline void tni_store_touch(const struct tni_store_handle *store,
                                   struct tni_store_entry *entry)
{
    _Atomic uint64_t *clock = &store->table.head->clock;
    if (!store->evicts)
        return;
    uint64_t now = atomic_load_explicit(clock, memory_order_relaxed);
    if (atomic_load_explicit(&entry->used, memory_order_relaxed) != now || now == 0)
        atomic_store_explicit(&entry->used, atomic_fetch_add(clock, 1) + 1,
                              memory_order_relaxed);
}

#endif
