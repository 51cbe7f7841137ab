/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store: maps from keys to message blocks.
 *
 * Nouns: entry (a place in the table), item (the message block that an entry names: a head, the
 * key, the value), promise (an item without a value), claim (`value2` of the object: who
 * changes the store).
 * I1  An entry's word names an item, and that is its record. A reader needs no claim: it pins
 *     the block and looks at the word again (find.c).
 * I2  One write to a word gives a key its value, or takes it away. The thread that replaces
 *     an item announces both blocks.
 * I3  The epoch is odd while entries leave their chains. A reader that missed a key while the
 *     epoch was odd or changed looks at all entries.
 * I4  Chains, the list of free entries, and sums follow from the words. Who has the claim after
 *     a process that died in the middle of a change makes them anew.
 * I5  An item does not change once an entry names it.
 * I6  A promise counts while its maker lives and has the store open.
 * Callers: users, the reaper. Death: the key has the old value or the new one. `is_settled` is
 * 0 for the next owner of the claim, and the reaper recounts the announced blocks.
 *
 *     table.c    where things lie        find.c   reads without the claim
 *     change.c   changes, repairs        evict.c  which value goes
 *     put.c      put, delete, pin        make.c   get or make, waits
 *     records.c  for the reaper          kinds.c  all kinds of objects
 */
#include "store/put.h"

enum { DEFAULT_CAPACITY = 4096 };

/* ---- making, opening --------------------------------------------------------------------- */

static int read_options(const tn_store_options *options, struct tni_object_spec *spec)
{
    tn_store_options o = {0};
    int status = tni_take_options("tn_store_options", options, sizeof o, &o);
    if (status != 0)
        return status;
    if ((o.flags & ~(uint32_t)TN_STORE_EVICT) != 0)
        return tni_fail(TN_ERR_INVALID,
                        "tn_store_options.flags is %#x: only TN_STORE_EVICT is known", o.flags);
    if (o.capacity > TNI_STORE_MOST_KEYS)
        return tni_fail(TN_ERR_INVALID, "a store cannot have the capacity %u: it is at most %d",
                        o.capacity, TNI_STORE_MOST_KEYS);
    spec->wants_flags = o.flags != 0;
    spec->wanted_capacity = o.capacity;
    spec->count_name = "capacity";
    spec->flags = o.flags;
    spec->capacity = o.capacity != 0 ? o.capacity : DEFAULT_CAPACITY;
    spec->ring_bytes = tni_table_bytes(spec->capacity);
    spec->value = o.budget_bytes;
    return 0;
}

static int check_budget(const tn_store *store, const struct tni_object_spec *spec)
{
    uint64_t budget = tni_store_of(store)->budget_bytes;
    if (spec->value == 0 || spec->value == budget)
        return 0;
    return tni_fail(
        TN_ERR_INVALID,
        "the store " TNI_NAME_FORMAT " was made with budget_bytes %llu instead of %llu",
        store->object->name, (unsigned long long)budget, (unsigned long long)spec->value);
}

int tn_store_open(tn_domain *d, const char *name, const tn_store_options *options,
                  uint32_t flags, tn_store **ret_store)
{
    struct tni_object_spec spec = {.kind = &tni_store_kind, .name = name};
    tn_store *store;
    int status = read_options(options, &spec);
    if (status == 0)
        status = tni_object_open("tn_store_open", d, &spec, flags,
                                 ret_store != NULL ? &store : NULL);
    if (status != 0)
        return status;
    if ((status = check_budget(store, &spec)) != 0)
        tn_object_close(store);
    else
        *ret_store = store;
    return status;
}

int tn_store_set_kept(tn_store *store, bool kept)
{
    int status = tni_object_check(store, TNI_OBJECT_STORE);
    if (status != 0)
        return status;
    if (kept && (store->domain->segment.flags & TN_DOMAIN_NO_MANAGER) != 0)
        return tni_fail(TN_ERR_UNSUPPORTED,
                        "the store " TNI_TITLE_FORMAT " is in a domain without tenond, which "
                        "would keep it",
                        TNI_TITLE(store->object->name));
    if (kept)
        atomic_fetch_or(&store->object->ended, TNI_STORE_KEPT);
    else
        atomic_fetch_and(&store->object->ended, ~(uint32_t)TNI_STORE_KEPT);
    return 0;
}

/* ---- get --------------------------------------------------------------------------------- */

/* Added to the shared counts a few at a time: each addition takes a line of a cache. */
void tni_store_count(struct tni_store_handle *store, bool is_hit)
{
    enum { AT_ONCE = 16 };
    _Atomic uint32_t *here = is_hit ? &store->hits : &store->misses;
    uint32_t count = atomic_load_explicit(here, memory_order_relaxed) + 1;
    if (TNI_IS_SOLO())
        atomic_store_explicit(here, count, memory_order_relaxed);
    else
        count = atomic_fetch_add_explicit(here, 1, memory_order_relaxed) + 1;
    if (count >= AT_ONCE)
        tni_store_add_counts(&store->handle);
}

int tni_store_get(struct tni_store_handle *store, const struct tni_key *key,
                  tn_message *ret_value, struct tni_looked *ret_seen)
{
    struct tn_domain *d = store->handle.domain;
    for (;;) {
        if (!tni_table_find(store, key, ret_seen))
            return TNI_STORE_NO_ENTRY;
        if (!tni_item_is_value(&ret_seen->found.item))
            return TNI_STORE_NO_VALUE;
        const struct tni_still still = {&ret_seen->entry->word, ret_seen->word};
        int status = tni_message_get_read(d, &ret_seen->found.contents,
                                          ret_seen->found.skipped_bytes, &still, ret_value);
        if (status == 0)
            tni_store_touch(store, ret_seen->entry);
        if (status != TN_ERR_TIMED_OUT || tni_is_still(&still))
            return status;
    }
}

int tn_store_get(tn_store *handle, const char *text, tn_message *ret_value,
                 uint64_t *ret_version)
{
    struct tni_key key;
    struct tni_looked seen;
    struct tni_store_handle *store = tni_store_of(handle);
    int status = tni_object_check(handle, TNI_OBJECT_STORE);
    if (TNI_LIKELY(status == 0))
        status = ret_value == NULL ? tni_fail_null("ret_value") : tni_key_read(text, &key);
    if (status != 0)
        return status;
    status = tni_store_get(store, &key, ret_value, &seen);
    tni_store_count(store, status == 0);
    if (status == TNI_STORE_NO_ENTRY || status == TNI_STORE_NO_VALUE)
        return tni_fail_no_value(handle, text);
    if (status == 0 && ret_version != NULL)
        *ret_version = seen.found.item.version;
    return status;
}

/* ---- all keys, figures ------------------------------------------------------------------- */

int tni_prefix_read(const char *prefix, uint32_t *ret_bytes)
{
    if (prefix == NULL)
        return tni_fail_null("the prefix");
    size_t bytes = strnlen(prefix, TN_STORE_KEY_BYTES + 1);
    if (bytes > TN_STORE_KEY_BYTES)
        return tni_fail(TN_ERR_INVALID, "the prefix '%.40s...' has more than %d bytes", prefix,
                        TN_STORE_KEY_BYTES);
    *ret_bytes = (uint32_t)bytes;
    return 0;
}

static uint64_t left_ns(const struct tni_store_item *item)
{
    uint64_t now_ns = tni_os_shared_ns();
    if (item->expires_ns == 0)
        return TN_FOREVER.ns;
    return item->expires_ns > now_ns ? item->expires_ns - now_ns : 0;
}

static int tell(tn_store *handle, const struct tni_looked *seen, const char *key,
                tn_store_each_fn *each, void *context)
{
    const struct tni_store_item *item = &seen->found.item;
    bool is_promised = tni_item_is_promised(handle->domain, handle->object, item);
    if (!is_promised && !tni_item_is_value(item))
        return 0;
    tn_store_entry entry = {.key = key,
                            .version = item->version,
                            .bytes = item->bytes,
                            .left_ns = left_ns(item),
                            .tensors = item->tensors,
                            .is_pinned =
                                (atomic_load(&seen->entry->flags) & TNI_STORE_PINNED) != 0,
                            .is_promised = is_promised,
                            .maker_pid = is_promised ? item->maker_pid : 0};
    return each(&entry, context);
}

int tn_store_for_each(tn_store *handle, const char *prefix, tn_store_each_fn *each,
                      void *context)
{
    uint32_t prefix_bytes;
    int status = tni_object_check(handle, TNI_OBJECT_STORE);
    if (status == 0 && each == NULL)
        status = tni_fail_null("each");
    if (status == 0)
        status = tni_prefix_read(prefix, &prefix_bytes);
    if (status != 0)
        return status;
    const struct tni_table *t = &tni_store_of(handle)->table;
    const struct tni_segment *s = &handle->domain->segment;
    for (uint32_t i = 0; i < t->capacity && status == 0; i++) {
        struct tni_looked seen;
        char key[TN_STORE_KEY_BYTES + 1];
        if (tni_table_look(s, &t->entries[i], &seen, key) &&
            seen.found.item.key_bytes >= prefix_bytes && memcmp(key, prefix, prefix_bytes) == 0)
            status = tell(handle, &seen, key, each, context);
    }
    return status;
}

int tn_store_get_info(const tn_store *handle, tn_store_info *ret_info)
{
    int status = tni_object_check(handle, TNI_OBJECT_STORE);
    if (status != 0)
        return status;
    const struct tni_store_handle *store = tni_store_of(handle);
    const struct tni_store *head = store->table.head;
    tni_store_add_counts((struct tn_object *)(uintptr_t)handle);
    tn_store_info info = {.capacity = store->table.capacity,
                          .flags = store->evicts ? TN_STORE_EVICT : 0,
                          .budget_bytes = store->budget_bytes,
                          .count = atomic_load(&head->count),
                          .bytes = atomic_load(&head->bytes),
                          .version = atomic_load(&head->version),
                          .hits = atomic_load(&head->hits),
                          .misses = atomic_load(&head->misses),
                          .puts = atomic_load(&head->puts),
                          .deletes = atomic_load(&head->deletes),
                          .evictions = atomic_load(&head->evictions),
                          .expirations = atomic_load(&head->expirations),
                          .is_kept =
                              (atomic_load(&handle->object->ended) & TNI_STORE_KEPT) != 0};
    return tni_give_struct("tn_store_info", &info, sizeof info, ret_info);
}
