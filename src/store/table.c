/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table: where the entries of a store lie, and what a block says that an entry names.
 *
 * Callers: the files of this room. Death: what a handle has counted and not added is lost.
 */
#include "store/table.h"

#include <string.h>

/* ---- keys -------------------------------------------------------------------------------- */

int tni_key_read(const char *text, struct tni_key *ret_key)
{
    if (text == NULL)
        return tni_fail_null("the key");
    size_t bytes = strnlen(text, TN_STORE_KEY_BYTES + 1);
    if (bytes == 0)
        return tni_fail(TN_ERR_INVALID, "the key is empty");
    if (bytes > TN_STORE_KEY_BYTES)
        return tni_fail(TN_ERR_INVALID, "the key '%.40s...' has more than %d bytes", text,
                        TN_STORE_KEY_BYTES);
    *ret_key = (struct tni_key){text, (uint32_t)bytes, tni_hash_fast(text, bytes)};
    return 0;
}

/* ---- blocks ------------------------------------------------------------------------------ */

bool tni_item_read(const struct tni_segment *s, tni_block block, struct tni_item *ret_item)
{
    const size_t head_bytes = sizeof ret_item->item;
    if (tni_message_look(s, block, &ret_item->contents) != 0)
        return false;
    const uint8_t *at = ret_item->contents.bytes;
    uint64_t bytes = ret_item->contents.bytes_count;
    if (bytes < head_bytes)
        return false;
    tni_copy_unstable(&ret_item->item, at, head_bytes);
    uint32_t key_bytes = ret_item->item.key_bytes;
    if (key_bytes == 0 || key_bytes > TN_STORE_KEY_BYTES)
        return false;
    ret_item->key = (const char *)(at + head_bytes);
    ret_item->skipped_bytes = (uint32_t)(head_bytes + tni_align_up(key_bytes, 8));
    return bytes >= ret_item->skipped_bytes;
}

bool tni_item_is_expired(const struct tni_store_item *item)
{
    return item->expires_ns != 0 && tni_os_shared_ns() >= item->expires_ns;
}

bool tni_item_is_promised(const struct tn_domain *d, const struct tni_object *object,
                          const struct tni_store_item *item)
{
    return item->maker != 0 && tni_process_who_lives(&d->segment, item->maker) &&
           tni_seat_set_has(&object->openers, tni_who_seat(item->maker));
}

/* ---- the ring block ---------------------------------------------------------------------- */

static uint32_t count_buckets(uint32_t capacity)
{
    uint32_t count = 64;
    while (count < capacity)
        count *= 2;
    return count;
}

uint64_t tni_table_bytes(uint32_t capacity)
{
    return sizeof(struct tni_store) + (uint64_t)count_buckets(capacity) * sizeof(uint32_t) +
           (uint64_t)capacity * sizeof(struct tni_store_entry);
}

bool tni_table_get(const struct tni_segment *s, const struct tni_object *object,
                   struct tni_table *ret_table)
{
    uint32_t capacity = TNI_LOOK(object->capacity);
    if (capacity == 0 || capacity > TNI_STORE_MOST_KEYS)
        return false;
    uint8_t *ring = tni_object_ring(s, object, tni_table_bytes(capacity));
    if (ring == NULL)
        return false;
    uint32_t buckets = count_buckets(capacity);
    uint8_t *after_head = ring + sizeof(struct tni_store);
    *ret_table = (struct tni_table){
        .head = (struct tni_store *)(void *)ring,
        .buckets = (_Atomic uint32_t *)(void *)after_head,
        .entries =
            (struct tni_store_entry *)(void *)(after_head + (size_t)buckets * sizeof(uint32_t)),
        .bucket_mask = buckets - 1,
        .capacity = capacity};
    return true;
}

int tni_store_bind(struct tn_object *handle)
{
    struct tni_store_handle *store = tni_store_of(handle);
    const struct tni_object *object = handle->object;
    if (!tni_table_get(&handle->domain->segment, object, &store->table))
        return tni_fail(TN_ERR_CORRUPT,
                        "the store " TNI_TITLE_FORMAT " of %u keys names no block for them",
                        TNI_TITLE(object->name), TNI_LOOK(object->capacity));
    store->budget_bytes = atomic_load(&object->value);
    store->evicts = (TNI_LOOK(object->flags) & TN_STORE_EVICT) != 0;
    return 0;
}

/* ---- hits and misses --------------------------------------------------------------------- */

static void add_up(_Atomic uint32_t *here, _Atomic uint64_t *all)
{
    uint32_t count = atomic_exchange(here, 0);
    if (count != 0)
        atomic_fetch_add(all, count);
}

void tni_store_add_counts(struct tn_object *handle)
{
    struct tni_store_handle *store = tni_store_of(handle);
    if (store->table.head == NULL)
        return; /* it was refused: tni_store_bind() */
    add_up(&store->hits, &store->table.head->hits);
    add_up(&store->misses, &store->table.head->misses);
}

void tni_store_forget_counts(struct tn_object *handle)
{
    struct tni_store_handle *store = tni_store_of(handle);
    if (atomic_load(&store->hits) != 0)
        atomic_store(&store->hits, 0);
    if (atomic_load(&store->misses) != 0)
        atomic_store(&store->misses, 0);
}
