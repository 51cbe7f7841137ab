/* SPDX-License-Identifier: Apache-2.0 */
/*
 * put: give keys values, and take them away. The invariants are in store.c.
 *
 * The message block is complete before the claim is taken, but for its version.
 * Callers: users. Death: change.c.
 */
#include "store/put.h"

#include <string.h>

/* ---- the new block ----------------------------------------------------------------------- */

/* What a block begins with. */
struct head {
    struct tni_store_item item;
    char key[TN_STORE_KEY_BYTES];
};
_Static_assert(offsetof(struct head, key) == sizeof(struct tni_store_item), "no gap");

/* Bytes of a block, or of the storage outside of the arena for which it stands. */
static uint64_t bytes_of(const struct tni_segment *s, tni_block block)
{
    if (!tni_geometry_has_block(&s->geometry, block.id))
        return 0;
    if (tni_class_is_backing(tni_block_class(block)))
        return TNI_LOOK(((const struct tni_backing *)tni_payload_look(s, block))->data_bytes);
    return TNI_LOOK(tni_desc_of(s, tni_block_position(&s->geometry, block))->bytes);
}

/*
 * Bytes of the message block, and of all that its records name. Tensors side by side in one
 * storage, as in a write-once arena, count once.
 */
static uint64_t sum_bytes(const struct tni_segment *s, tni_block message)
{
    uint32_t count, last = 0;
    uint64_t bytes = bytes_of(s, message);
    const struct tni_records *records = tni_records_at(s, message, &count);
    for (uint32_t r = 0; records != NULL && r < count; r++) {
        uint32_t block = TNI_LOOK(records->block[r]);
        if (block != last)
            bytes += bytes_of(s, (tni_block){block});
        last = block;
    }
    return bytes;
}

int tni_item_make(struct tn_domain *d, const struct tni_key *key, const tn_message *value,
                  const struct tni_item_wish *wish, struct tni_new_item *ret_item)
{
    struct head head = {.item = {.key_bytes = key->bytes, .tensors = value->tensor_count}};
    struct tni_new_item made = {.flags = wish->flags};
    uint64_t bytes;
    if (wish->is_promise) {
        head.item.maker = d->who;
        head.item.maker_pid = tni_os_pid();
    }
    if (wish->lifetime_ns != 0)
        head.item.expires_ns =
            tni_os_shared_ns() + TNI_MIN(wish->lifetime_ns, (uint64_t)INT64_MAX);
    memcpy(head.key, key->text, key->bytes);
    struct tni_message_head before = {&head,
                                      sizeof head.item + (size_t)tni_align_up(key->bytes, 8)};
    int status = tni_message_make(d, value, &before, wish->deadline_ns, &made.block);
    if (status != 0)
        return status;
    const void *at = tni_message_bytes(&d->segment, made.block, &bytes);
    if (at == NULL) {
        tni_ref_release(d, made.block);
        return TN_ERR_CORRUPT;
    }
    /* No other process knows the block yet, so this process may still write it. */
    made.item = (struct tni_store_item *)(uintptr_t)at;
    made.item->bytes = sum_bytes(&d->segment, made.block);
    *ret_item = made;
    return 0;
}

/* ---- making room ------------------------------------------------------------------------- */

static int fail_full(const struct tni_store_handle *store, const struct tni_change *c)
{
    return tni_fail(TN_ERR_FULL, "the store " TNI_TITLE_FORMAT " has all of its %u keys: %s",
                    TNI_TITLE(c->object->name), c->table.capacity,
                    store->evicts ? "each value is pinned, or held by a process"
                                  : "the store evicts nothing");
}

static int fail_budget(const struct tni_store_handle *store, uint64_t bytes)
{
    return tni_fail(TN_ERR_NO_MEMORY,
                    "the values of the store " TNI_TITLE_FORMAT
                    " take %llu bytes of at most %llu, and %llu more do not fit: %s",
                    TNI_TITLE(store->handle.object->name),
                    (unsigned long long)atomic_load(&store->table.head->bytes),
                    (unsigned long long)store->budget_bytes, (unsigned long long)bytes,
                    store->evicts ? "every other value is pinned, or held by a process"
                                  : "the store evicts nothing");
}

static bool is_due(const struct tni_store *head)
{
    uint64_t expires_ns = atomic_load(&head->expires_ns);
    return expires_ns != 0 && tni_os_shared_ns() >= expires_ns;
}

/* Evict until the new item fits. @param entry  that gets it; NULL: a free one */
static int make_room(const struct tni_store_handle *store, struct tni_change *c,
                     const struct tni_store_entry *entry, const struct tni_new_item *made)
{
    struct tni_store *head = c->table.head;
    uint64_t old_bytes = 0, bytes = made->item->bytes, budget = store->budget_bytes;
    struct tni_item found;
    if (entry != NULL &&
        tni_item_read(&c->domain->segment, tni_entry_block(atomic_load(&entry->word)), &found))
        old_bytes = found.item.bytes;
    if (is_due(head) || (entry == NULL && atomic_load(&head->free) == 0 && !store->evicts))
        tni_change_expire(c, entry);
    if (budget != 0 && bytes > budget)
        return fail_budget(store, bytes);
    while (budget != 0 && atomic_load(&head->bytes) - old_bytes + bytes > budget)
        if (!store->evicts || !tni_change_evict(c, entry))
            return fail_budget(store, bytes);
    if (entry == NULL && atomic_load(&head->free) == 0 &&
        (!store->evicts || !tni_change_evict(c, NULL)))
        return fail_full(store, c);
    return 0;
}

int tni_item_place(const struct tni_store_handle *store, struct tni_change *c,
                   const struct tni_key *key, struct tni_store_entry *entry,
                   const struct tni_new_item *made)
{
    int status = make_room(store, c, entry, made);
    if (status != 0)
        return status;
    bool is_new = entry == NULL;
    if (is_new && (entry = tni_change_add(c, key)) == NULL)
        return fail_full(store, c);
    bool is_value = made->item->maker == 0;
    made->item->version = is_value ? tni_change_version(c) : 0;
    /* A pinned value stays pinned if this process dies before the swap. If it dies after that,
     * the new value is pinned if the old one was, until it is replaced. */
    uint32_t old_flags = is_new ? 0 : atomic_load(&entry->flags);
    atomic_store(&entry->flags, old_flags | made->flags);
    tni_store_touch(store, entry);
    status = tni_change_swap(c, entry, made->block);
    atomic_store(&entry->flags, status == 0 ? made->flags : old_flags);
    if (status == 0 && is_value)
        tni_change_note(c, key->text, key->bytes);
    else if (status != 0 && is_new)
        tni_change_undo_add(c, entry);
    return status;
}

/* ---- put --------------------------------------------------------------------------------- */

static int read_options(const tn_store_put_options *options, tn_store_put_options *ret)
{
    tn_store_put_options o = {0};
    int status = tni_take_options("tn_store_put_options", options, sizeof o, &o);
    if (status != 0)
        return status;
    if ((o.flags & ~(uint32_t)(TN_PUT_IF_ABSENT | TN_PUT_PINNED)) != 0)
        return tni_fail(TN_ERR_INVALID,
                        "tn_store_put_options.flags is %#x: only TN_PUT_* are known", o.flags);
    if (o.reserved != 0)
        return tni_fail(TN_ERR_INVALID, "tn_store_put_options.reserved is %u, not 0",
                        o.reserved);
    if ((o.flags & TN_PUT_IF_ABSENT) != 0 && o.if_version != 0)
        return tni_fail(TN_ERR_INVALID,
                        "tn_store_put_options has TN_PUT_IF_ABSENT and if_version %llu, which "
                        "no key can fulfil",
                        (unsigned long long)o.if_version);
    *ret = o;
    return 0;
}

int tni_fail_no_value(const tn_store *store, const char *key)
{
    return tni_fail(TN_ERR_NOT_FOUND, "the store " TNI_TITLE_FORMAT " has no value for '%.80s'",
                    TNI_TITLE(store->object->name), key);
}

static int check_version(const tn_store *store, const char *key, const struct tni_item *found,
                         uint64_t wanted)
{
    if (found == NULL)
        return tni_fail_no_value(store, key);
    if (wanted == 0 || found->item.version == wanted)
        return 0;
    return tni_fail(TN_ERR_STALE, "the key '%.80s' has a value of version %llu, not %llu", key,
                    (unsigned long long)found->item.version, (unsigned long long)wanted);
}

/* Of an entry that a change found: NULL, unless it has a value. */
static const struct tni_item *value_of(const struct tni_store_entry *entry,
                                       const struct tni_item *found)
{
    bool has_value = entry != NULL && tni_item_is_value(&found->item);
    return has_value ? found : NULL;
}

static int put_in(const tn_store *handle, struct tni_change *c, const struct tni_key *key,
                  const tn_store_put_options *o, const struct tni_new_item *made)
{
    struct tni_item found;
    struct tni_store_entry *entry = tni_change_find(c, key, &found);
    const struct tni_item *value = value_of(entry, &found);
    int status = 0;
    if ((o->flags & TN_PUT_IF_ABSENT) != 0 && value != NULL)
        return tni_fail(TN_ERR_EXISTS, "the key '%.80s' has a value, of version %llu",
                        key->text, (unsigned long long)value->item.version);
    if (o->if_version != 0)
        status = check_version(handle, key->text, value, o->if_version);
    if (status == 0)
        status = tni_item_place(tni_store_of(handle), c, key, entry, made);
    if (status == 0)
        atomic_fetch_add(&c->table.head->puts, 1);
    return status;
}

int tn_store_put(tn_store *handle, const char *text, const tn_message *value,
                 const tn_store_put_options *options, uint64_t *ret_version)
{
    struct tni_key key;
    tn_store_put_options o;
    int status = tni_object_check(handle, TNI_OBJECT_STORE);
    if (status == 0)
        status = value == NULL ? tni_fail_null("the value") : tni_key_read(text, &key);
    if (status == 0)
        status = read_options(options, &o);
    if (status != 0)
        return status;
    struct tn_domain *d = handle->domain;
    struct tni_item_wish wish = {.deadline_ns = o.deadline.ns,
                                 .lifetime_ns = o.lifetime_ns,
                                 .flags =
                                     (o.flags & TN_PUT_PINNED) != 0 ? TNI_STORE_PINNED : 0};
    struct tni_new_item made;
    struct tni_change c;
    status = tni_item_make(d, &key, value, &wish, &made);
    if (status != 0)
        return status;
    status =
        tni_change_begin(d, handle->object, &tni_store_of(handle)->table, o.deadline.ns, &c);
    uint64_t version = 0;
    if (status == 0) {
        status = put_in(handle, &c, &key, &o, &made);
        version = atomic_load(&c.table.head->version);
        tni_change_end(&c);
    }
    if (status != 0)
        tni_ref_release(d, made.block);
    else if (ret_version != NULL)
        *ret_version = version;
    return status;
}

/* ---- what changes one key ---------------------------------------------------------------- */

/* Begin a change of a key that has an entry. */
static int begin_on(tn_store *handle, const char *text, struct tni_change *c,
                    struct tni_store_entry **ret_entry, struct tni_item *found)
{
    struct tni_key key;
    int status = tni_object_check(handle, TNI_OBJECT_STORE);
    if (status == 0)
        status = tni_key_read(text, &key);
    if (status == 0)
        status = tni_change_begin(handle->domain, handle->object, &tni_store_of(handle)->table,
                                  0, c);
    if (status == 0)
        *ret_entry = tni_change_find(c, &key, found);
    return status;
}

int tn_store_delete(tn_store *handle, const char *key, uint64_t if_version)
{
    struct tni_change c;
    struct tni_item found;
    struct tni_store_entry *entry;
    int status = begin_on(handle, key, &c, &entry, &found);
    if (status != 0)
        return status;
    status = check_version(handle, key, value_of(entry, &found), if_version);
    if (status == 0) {
        tni_change_drop(&c, entry, &found);
        atomic_fetch_add(&c.table.head->deletes, 1);
    }
    tni_change_end(&c);
    return status;
}

int tn_store_set_pinned(tn_store *handle, const char *key, bool pinned)
{
    struct tni_change c;
    struct tni_item found;
    struct tni_store_entry *entry;
    int status = begin_on(handle, key, &c, &entry, &found);
    if (status != 0)
        return status;
    status = check_version(handle, key, value_of(entry, &found), 0);
    if (status == 0)
        atomic_store(&entry->flags, pinned ? TNI_STORE_PINNED : 0);
    tni_change_end(&c);
    return status;
}

int tn_store_give_up(tn_store *handle, const char *key)
{
    struct tni_change c;
    struct tni_item found;
    struct tni_store_entry *entry;
    int status = begin_on(handle, key, &c, &entry, &found);
    if (status != 0)
        return status;
    if (entry != NULL && found.item.maker == handle->domain->who)
        tni_change_drop(&c, entry, &found);
    else
        status = tni_fail(TN_ERR_NOT_FOUND,
                          "this process was not told to make a value for '%.80s'", key);
    tni_change_end(&c);
    return status;
}
