/* SPDX-License-Identifier: Apache-2.0 */
/*
 * change: how a process changes a store. The invariants are in store.c.
 *
 * Callers: put.c, make.c, records.c. Death: the claim names the dead process, and `is_settled`
 * is 0 if it had begun; the next owner of the claim makes the chains, the list of free
 * entries and the sums anew from the words of the entries (I4). The reaper recounts the blocks
 * that the dead thread announced.
 */
#include <string.h>

#include "store/table.h"
#include "wait/wait.h"

/* ---- chains ------------------------------------------------------------------------------ */

static uint32_t number_of(const struct tni_table *t, const struct tni_store_entry *entry)
{
    return (uint32_t)(entry - t->entries) + 1;
}

static void set_next(struct tni_store_entry *entry, uint32_t next)
{
    atomic_store_explicit(&entry->next, next, memory_order_release);
}

static void link(const struct tni_table *t, struct tni_store_entry *entry, uint64_t hash)
{
    _Atomic uint32_t *bucket = &t->buckets[hash & t->bucket_mask];
    atomic_store_explicit(&entry->hash, hash, memory_order_release);
    set_next(entry, atomic_load(bucket));
    atomic_store(bucket, number_of(t, entry));
}

/* If the entry is not in its chain, the chain is damaged, and the entry is lost to the store.
 */
static bool unlink(const struct tni_table *t, const struct tni_store_entry *entry)
{
    uint32_t number = number_of(t, entry), next;
    _Atomic uint32_t *at = &t->buckets[atomic_load(&entry->hash) & t->bucket_mask];
    for (uint32_t steps = 0; steps <= t->capacity; steps++) {
        next = atomic_load(at);
        if (next == number) {
            atomic_store(at, atomic_load(&entry->next));
            return true;
        }
        if (next == 0 || next > t->capacity)
            return false;
        at = &t->entries[next - 1].next;
    }
    return false;
}

static void push_free(const struct tni_table *t, struct tni_store_entry *entry)
{
    set_next(entry, atomic_load(&t->head->free));
    atomic_store(&t->head->free, number_of(t, entry));
}

/* I3: odd while entries leave their chains. */
static void begin_moves(const struct tni_table *t)
{
    uint32_t epoch = atomic_load(&t->head->epoch);
    atomic_store(&t->head->epoch, epoch | 1);
}
static void end_moves(const struct tni_table *t) { atomic_fetch_add(&t->head->epoch, 1); }

/* ---- sums -------------------------------------------------------------------------------- */

static void note_expiry(struct tni_store *head, uint64_t expires_ns)
{
    uint64_t first = atomic_load(&head->expires_ns);
    if (expires_ns != 0 && (first == 0 || expires_ns < first))
        atomic_store(&head->expires_ns, expires_ns);
}

static void count_in(const struct tni_table *t, const struct tni_item *found)
{
    atomic_fetch_add(&t->head->count, 1);
    atomic_fetch_add(&t->head->bytes, found->item.bytes);
    note_expiry(t->head, found->item.expires_ns);
}

static void count_out(const struct tni_table *t, const struct tni_item *found)
{
    atomic_fetch_sub(&t->head->count, 1);
    atomic_fetch_sub(&t->head->bytes, found->item.bytes);
}

/* pre: the block is kept meanwhile */
static void count_block(const struct tni_change *c, tni_block block, bool is_new)
{
    struct tni_item found;
    if (!tni_item_read(&c->domain->segment, block, &found))
        return;
    if (is_new)
        count_in(&c->table, &found);
    else
        count_out(&c->table, &found);
}

/* ---- words ------------------------------------------------------------------------------- */

static uint64_t next_word(uint64_t word, tni_block block)
{
    return tni_store_word(tni_store_turn(word) + 1, block.id);
}

/* Let the entry name no block, and drop the reference that it had. */
void tni_entry_empty(struct tn_domain *d, struct tni_store_entry *entry)
{
    uint64_t word = atomic_load(&entry->word);
    tni_block block = tni_entry_block(word);
    if (!tni_block_is_message(&d->segment, block)) {
        atomic_store(&entry->word, next_word(word, (tni_block){0}));
        return;
    }
    struct tni_thread *thread = tni_thread_enter(d);
    tni_announce_fence(thread, block);
    atomic_store(&entry->word, next_word(word, (tni_block){0}));
    TNI_KILL_POINT("store_emptied");
    tni_ref_drop(d, thread, block);
    tni_thread_leave(thread);
}

/* I2. The old block is announced as `outer` until its own announce replaces the new block's. */
int tni_change_swap(struct tni_change *c, struct tni_store_entry *entry, tni_block block)
{
    struct tn_domain *d = c->domain;
    uint64_t word = atomic_load(&entry->word);
    tni_block old = tni_entry_block(word);
    bool has_old = tni_block_is_message(&d->segment, old);
    struct tni_thread *thread = tni_thread_enter(d);
    if (has_old)
        atomic_store(&thread->announce->outer, old.id);
    tni_announce_fence(thread, block);
    int status = tni_ref_lend(d, block, true);
    if (status == 0) {
        TNI_KILL_POINT("store_lent");
        atomic_store(&entry->word, next_word(word, block));
        TNI_KILL_POINT("store_swapped");
        count_block(c, block, true);
    }
    tni_announce_clear(thread);
    if (has_old && status == 0) {
        count_block(c, old, false);
        tni_announce(thread, old, 1);
        tni_ref_drop(d, thread, old);
    }
    atomic_store(&thread->announce->outer, 0);
    tni_thread_leave(thread);
    return status;
}

/* ---- repair ------------------------------------------------------------------------------ */

/* I4 */
static void rebuild(struct tn_domain *d, const struct tni_table *t)
{
    struct tni_store *head = t->head;
    uint64_t version = atomic_load(&head->version);
    begin_moves(t);
    for (uint32_t b = 0; b <= t->bucket_mask; b++)
        atomic_store(&t->buckets[b], 0);
    atomic_store(&head->free, 0);
    atomic_store(&head->count, 0);
    atomic_store(&head->bytes, 0);
    atomic_store(&head->expires_ns, 0);
    atomic_store(&head->victim_count, 0);
    TNI_KILL_POINT("store_rebuilding");
    for (uint32_t i = t->capacity; i-- > 0;) {
        struct tni_store_entry *entry = &t->entries[i];
        tni_block block = tni_entry_block(atomic_load(&entry->word));
        struct tni_item found;
        if (tni_block_is_message(&d->segment, block) &&
            tni_item_read(&d->segment, block, &found)) {
            link(t, entry, tni_hash_fast(found.key, found.item.key_bytes));
            count_in(t, &found);
            version = TNI_MAX(version, found.item.version);
        } else {
            tni_entry_empty(d, entry);
            push_free(t, entry);
        }
    }
    atomic_store(&head->version, version);
    TNI_KILL_POINT("store_rebuilt");
    end_moves(t);
}

/* ---- beginning and ending --------------------------------------------------------------- */

/* pre: this process has the claim. */
static void begin(struct tn_domain *d, struct tni_object *object, const struct tni_table *t,
                  struct tni_change *ret_change)
{
    TNI_KILL_POINT("store_claimed");
    struct tni_change c = {.domain = d, .object = object, .table = *t};
    if (atomic_exchange(&t->head->is_settled, 0) == 0) {
        rebuild(d, t);
        c.has_changed = true; /* the dead process has woken no process */
    }
    *ret_change = c;
}

int tni_change_begin(struct tn_domain *d, struct tni_object *object, const struct tni_table *t,
                     uint64_t deadline_ns, struct tni_change *ret_change)
{
    int status = tni_object_claim(d, object, deadline_ns);
    if (status == 0)
        begin(d, object, t, ret_change);
    return status;
}

bool tni_change_try_begin(struct tn_domain *d, struct tni_object *object,
                          const struct tni_table *t, struct tni_change *ret_change)
{
    bool has_claim = tni_object_try_claim(d, object);
    if (has_claim)
        begin(d, object, t, ret_change);
    return has_claim;
}

void tni_change_end(struct tni_change *c)
{
    atomic_store(&c->table.head->is_settled, 1);
    TNI_KILL_POINT("store_changed");
    tni_object_unclaim(c->domain, c->object);
    if (!c->has_changed)
        return;
    tni_wait_notify(&c->object->items, INT32_MAX);
    tni_object_ring_watchers(&c->domain->segment, c->object);
}

/* ---- entries ----------------------------------------------------------------------------- */

struct tni_store_entry *tni_change_find(const struct tni_change *c, const struct tni_key *key,
                                        struct tni_item *ret_item)
{
    const struct tni_table *t = &c->table;
    uint32_t next = atomic_load(&t->buckets[key->hash & t->bucket_mask]);
    for (uint32_t steps = 0; next != 0 && next <= t->capacity && steps < t->capacity; steps++) {
        struct tni_store_entry *entry = &t->entries[next - 1];
        tni_block block = tni_entry_block(atomic_load(&entry->word));
        if (atomic_load(&entry->hash) == key->hash &&
            tni_block_is_message(&c->domain->segment, block) &&
            tni_item_read(&c->domain->segment, block, ret_item) &&
            tni_item_has_key(ret_item, key))
            return entry;
        next = atomic_load(&entry->next);
    }
    return NULL;
}

/* The entry is in its chain before it has a block: so one write to its word makes the key
 * known. */
struct tni_store_entry *tni_change_add(struct tni_change *c, const struct tni_key *key)
{
    const struct tni_table *t = &c->table;
    uint32_t number = atomic_load(&t->head->free);
    if (number == 0 || number > t->capacity)
        return NULL;
    struct tni_store_entry *entry = &t->entries[number - 1];
    atomic_store(&t->head->free, atomic_load(&entry->next));
    link(t, entry, key->hash);
    TNI_KILL_POINT("store_linked");
    return entry;
}

static void remove_entry(struct tni_change *c, struct tni_store_entry *entry)
{
    const struct tni_table *t = &c->table;
    tni_block block = tni_entry_block(atomic_load(&entry->word));
    if (tni_block_is_message(&c->domain->segment, block))
        count_block(c, block, false);
    tni_entry_empty(c->domain, entry);
    begin_moves(t);
    bool is_linked = unlink(t, entry);
    TNI_KILL_POINT("store_unlinked");
    end_moves(t);
    if (is_linked)
        push_free(t, entry);
}

void tni_change_undo_add(struct tni_change *c, struct tni_store_entry *entry)
{
    remove_entry(c, entry);
}

/* The first bytes of a key, as a change has them. */
static void pack_key(uint64_t packed[3], const char *key, uint32_t key_bytes)
{
    uint8_t bytes[sizeof(uint64_t) * 3] = {(uint8_t)TNI_MIN(key_bytes, 255u)};
    memcpy(bytes + 1, key, TNI_MIN(key_bytes, (uint32_t)TNI_STORE_CHANGE_BYTES));
    memcpy(packed, bytes, sizeof bytes);
}

void tni_change_note(struct tni_change *c, const char *key, uint32_t key_bytes)
{
    struct tni_store *head = c->table.head;
    uint64_t version = tni_change_version(c), packed[3];
    struct tni_store_change *change = &head->changes[version % TNI_STORE_CHANGES];
    pack_key(packed, key, key_bytes);
    atomic_store(&change->version, 0);
    for (int i = 0; i < 3; i++)
        atomic_store(&change->key[i], packed[i]);
    atomic_store(&change->version, version);
    TNI_KILL_POINT("store_noted");
    atomic_store(&head->version, version);
    c->has_changed = true;
}

/* Remove an entry, and let waiters see that its key has no value any more. */
void tni_change_drop(struct tni_change *c, struct tni_store_entry *entry,
                     const struct tni_item *found)
{
    char key[TN_STORE_KEY_BYTES];
    uint32_t key_bytes = found->item.key_bytes;
    memcpy(key, found->key, key_bytes); /* it is in the block that goes */
    bool is_value = found->item.maker == 0;
    remove_entry(c, entry);
    if (is_value)
        tni_change_note(c, key, key_bytes);
    c->has_changed = true;
    if (atomic_load(&c->table.head->count) == 0)
        atomic_fetch_and(&c->object->ended, ~(uint32_t)TNI_STORE_KEPT);
}

uint32_t tni_change_expire(struct tni_change *c, const struct tni_store_entry *except)
{
    const struct tni_table *t = &c->table;
    uint32_t removed = 0, expired = 0;
    atomic_store(&t->head->expires_ns, 0);
    for (uint32_t i = 0; i < t->capacity; i++) {
        struct tni_store_entry *entry = &t->entries[i];
        tni_block block = tni_entry_block(atomic_load(&entry->word));
        struct tni_item found;
        if (!tni_block_is_message(&c->domain->segment, block) ||
            !tni_item_read(&c->domain->segment, block, &found))
            continue;
        bool is_expired = tni_item_is_expired(&found.item);
        bool is_over = is_expired || (found.item.maker != 0 &&
                                      !tni_item_is_promised(c->domain, c->object, &found.item));
        if (entry != except && is_over) {
            tni_change_drop(c, entry, &found);
            removed++;
            expired += is_expired;
        } else {
            note_expiry(t->head, found.item.expires_ns);
        }
    }
    atomic_fetch_add(&t->head->expirations, expired);
    return removed;
}
