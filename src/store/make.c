/* SPDX-License-Identifier: Apache-2.0 */
/*
 * make: let one process make a value while others wait, and wait for changes.
 *
 * Noun: promise (an item that has no value: it names the process that makes the value).
 * Callers: users. Death: a promise of a dead process counts for nothing, and so does one of a
 * process that closed the store. The reaper wakes up those who wait at the object.
 */
#include <string.h>

#include "store/put.h"

/* ---- get or make ------------------------------------------------------------------------- */

struct making {
    tn_store *handle;
    struct tni_key key;
    tn_message *ret_value;
};

/* pre: the claim. @return TN_STORE_MAKE; TN_ERR_TIMED_OUT: another process has promised it */
static int promise_in(const struct making *m, struct tni_change *c,
                      const struct tni_new_item *made, bool *ret_has_value)
{
    struct tni_item found;
    struct tni_store_entry *entry = tni_change_find(c, &m->key, &found);
    *ret_has_value = entry != NULL && tni_item_is_value(&found.item);
    if (*ret_has_value)
        return 0;
    if (entry != NULL && tni_item_is_promised(c->domain, c->object, &found.item))
        return TN_ERR_TIMED_OUT;
    int status = tni_item_place(tni_store_of(m->handle), c, &m->key, entry, made);
    return status == 0 ? TN_STORE_MAKE : status;
}

static int promise(const struct making *m, bool *ret_has_value)
{
    struct tn_domain *d = m->handle->domain;
    const struct tni_item_wish wish = {.is_promise = true};
    struct tni_new_item made;
    struct tni_change c;
    int status = tni_item_make(d, &m->key, &(tn_message){0}, &wish, &made);
    if (status != 0)
        return status;
    /* A process that closes the store as a consumer wakes up those who wait for its promise. */
    tni_seat_set_add(&m->handle->object->consumers, d->seat);
    status = tni_change_begin(d, m->handle->object, &tni_store_of(m->handle)->table, 0, &c);
    if (status == 0) {
        status = promise_in(m, &c, &made, ret_has_value);
        tni_change_end(&c);
    }
    if (status != TN_STORE_MAKE)
        tni_ref_release(d, made.block);
    return status;
}

static int attempt(void *context)
{
    const struct making *m = context;
    for (;;) {
        struct tni_looked seen;
        bool has_value = false;
        int status = tni_store_get(tni_store_of(m->handle), &m->key, m->ret_value, &seen);
        if (status == TNI_STORE_NO_VALUE &&
            tni_item_is_promised(m->handle->domain, m->handle->object, &seen.found.item))
            return TN_ERR_TIMED_OUT;
        if (status != TNI_STORE_NO_ENTRY && status != TNI_STORE_NO_VALUE)
            return status;
        status = promise(m, &has_value);
        if (status != 0 || !has_value)
            return status;
    }
}

int tn_store_get_or_make(tn_store *handle, const char *key, tn_deadline deadline,
                         tn_message *ret_value)
{
    struct making m = {.handle = handle, .ret_value = ret_value};
    int status = tni_object_check(handle, TNI_OBJECT_STORE);
    if (status == 0 && ret_value == NULL)
        status = tni_fail_null("ret_value");
    if (status == 0)
        status = tni_key_read(key, &m.key);
    if (status != 0)
        return status;
    const struct tni_awaited awaited = {.word = &handle->object->items,
                                        .side = TNI_SIDE_NONE,
                                        .spins = TNI_HAS_POLLED,
                                        .attempt = attempt,
                                        .context = &m};
    status = tni_object_wait(handle, &awaited, deadline.ns);
    tni_store_count(tni_store_of(handle), status == 0);
    return status;
}

/* ---- changes ----------------------------------------------------------------------------- */

struct awaiting {
    tn_store *handle;
    const char *prefix;
    uint32_t prefix_bytes;
    uint64_t since, found;
};

/* Whether a change may be one of a key that begins with the prefix. */
static bool may_be(const struct awaiting *a, const struct tni_store *head, uint64_t version)
{
    const struct tni_store_change *change = &head->changes[version % TNI_STORE_CHANGES];
    uint8_t bytes[sizeof change->key];
    if (atomic_load(&change->version) != version)
        return true; /* later changes have its place */
    for (uint32_t i = 0; i < TNI_COUNT(change->key); i++) {
        uint64_t part = atomic_load(&change->key[i]);
        memcpy(bytes + i * sizeof part, &part, sizeof part);
    }
    if (atomic_load(&change->version) != version)
        return true;
    uint32_t known = TNI_MIN(a->prefix_bytes, (uint32_t)TNI_STORE_CHANGE_BYTES);
    return bytes[0] >= TNI_MIN(a->prefix_bytes, 255u) &&
           memcmp(bytes + 1, a->prefix, known) == 0;
}

static int attempt_changes(void *context)
{
    struct awaiting *a = context;
    const struct tni_store *head = tni_store_of(a->handle)->table.head;
    uint64_t now = atomic_load(&head->version), from = a->since + 1;
    if (now - a->since > TNI_STORE_CHANGES)
        from = now - TNI_STORE_CHANGES; /* its place is taken: may_be() says so */
    a->found = now;
    for (uint64_t version = from; version <= now && a->since < now; version++)
        if (may_be(a, head, version))
            return 0;
    a->since = now;
    return TN_ERR_TIMED_OUT;
}

int tn_store_wait(tn_store *handle, const char *prefix, uint64_t since, tn_deadline deadline,
                  uint64_t *ret_version)
{
    struct awaiting a = {.handle = handle, .prefix = prefix, .since = since};
    int status = tni_object_check(handle, TNI_OBJECT_STORE);
    if (status == 0 && ret_version == NULL)
        status = tni_fail_null("ret_version");
    if (status == 0)
        status = tni_prefix_read(prefix, &a.prefix_bytes);
    if (status != 0)
        return status;
    if (since > atomic_load(&tni_store_of(handle)->table.head->version))
        return tni_fail(TN_ERR_INVALID,
                        "tn_store_wait: `since` is %llu, which the store has not reached",
                        (unsigned long long)since);
    const struct tni_awaited awaited = {.word = &handle->object->items,
                                        .side = TNI_SIDE_NONE,
                                        .spins = tni_spins(handle, &handle->object->items),
                                        .attempt = attempt_changes,
                                        .context = &a};
    status = tni_object_wait(handle, &awaited, deadline.ns);
    if (status == 0)
        *ret_version = a.found;
    return status;
}
