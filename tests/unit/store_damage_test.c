/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each word of a store's table and of its values is overwritten with one hostile number after
 * the other, in a new store each time. Every call returns, with an error or without one, and so
 * does an audit that repairs; then a store of the same domain works.
 */
#include <stdio.h>
#include <string.h>

#include "harness/harness.h"
#include "reaper/reaper.h"
#include "store/table.h"

enum { KEYS = 6, CAPACITY = 8 };

static tn_domain *d;
static tn_store *store;
static const char *const keys[KEYS] = {"a", "bb", "ccc", "dddd", "eeeee", "ffffff"};

static int put(const char *key, const tn_store_put_options *options)
{
    uint8_t bytes[40] = {(uint8_t)strlen(key)};
    const int64_t count = 16;
    tn_tensor *t;
    int status = tn_tensor_create(d, TN_UINT8, 1, &count, NULL, &t);
    if (status != 0)
        return status;
    memset(tn_tensor_data(t), 7, (size_t)count);
    status = tn_store_put(
        store, key,
        &(tn_message){
            .bytes = bytes, .size_bytes = sizeof bytes, .tensors = &t, .tensor_count = 1},
        options, NULL);
    tn_tensor_unref(t);
    return status;
}

static void begin(void)
{
    d = tnt_domain(&(tn_domain_options){.struct_size = sizeof(tn_domain_options),
                                        .quota_bytes = 16 << 20,
                                        .seats = 8,
                                        .blocks = 256,
                                        .objects = 16,
                                        .tickets = 16,
                                        .flags = TN_DOMAIN_NO_MANAGER});
    TN_CHECK_OK(tn_store_open(
        d, NULL, TN_OPTIONS(tn_store_options, .capacity = CAPACITY, .flags = TN_STORE_EVICT), 0,
        &store));
    /* An eviction, so that the store remembers what may go next. */
    for (int i = 0; i <= CAPACITY; i++) {
        char key[8];
        snprintf(key, sizeof key, "x%d", i);
        TN_CHECK_OK(put(key, NULL));
    }
    for (int i = 0; i < KEYS; i++)
        TN_CHECK_OK(put(
            keys[i], i == 0 ? TN_OPTIONS(tn_store_put_options, .lifetime_ns = UINT64_C(1) << 50)
                            : NULL));
}

static int ignore(const char *sentence, bool repaired, void *context)
{
    (void)sentence, (void)repaired, (void)context;
    return 0;
}

static int use_entry(const tn_store_entry *entry, void *context)
{
    return (void)context, strlen(entry->key) > TN_STORE_KEY_BYTES;
}

static void use_kept(uint32_t object, tni_block message, tni_block block, void *context)
{
    (void)object, (void)message, (void)block, (void)context;
}

static void get(const char *key)
{
    tn_message m;
    if (tn_store_get(store, key, &m, NULL) == 0) {
        uint64_t sum = 0;
        for (uint64_t i = 0; i < m.size_bytes; i++)
            sum += ((const uint8_t *)m.bytes)[i];
        TN_CHECK(sum != UINT64_MAX);
        tn_message_fini(&m);
    }
}

/* Whatever they return. */
static void use_all(void)
{
    char name[TN_STORE_KEY_BYTES + 1];
    struct tni_store_figures figures;
    tn_message m;
    uint64_t version = 0;
    tn_store_info info = {.struct_size = sizeof info};
    for (int i = 0; i < KEYS; i++)
        get(keys[i]);
    get("missing");
    (void)!tn_store_for_each(store, "", use_entry, NULL);
    (void)!tn_store_wait(store, "a", 0, TN_NOW, &version);
    (void)!tn_store_get_info(store, &info);
    tni_store_fault(&d->segment, tni_object_id_index(tn_object_id(store)));
    for (uint32_t c = 1; c <= TNI_MESSAGE_CLASSES; c++)
        tni_store_key(&d->segment, tni_block_make(c, 0), name);
    tni_store_for_each_kept(&d->segment, use_kept, NULL);
    tni_store_figures(&d->segment, tni_object_id_index(tn_object_id(store)), &figures);
    (void)!tn_domain_audit(d, false, ignore, NULL, NULL);
    (void)!put("bb", NULL);
    (void)!put("new", NULL);
    (void)!put("more", NULL);
    (void)!put("too many", NULL);
    if (tn_store_get_or_make(store, "promised", TN_NOW, &m) == 0)
        tn_message_fini(&m);
    (void)!tn_store_give_up(store, "promised");
    (void)!tn_store_set_pinned(store, "ccc", true);
    (void)!tn_store_delete(store, "dddd", 0);
    tni_store_expire_due(d);
    for (int i = 0; i < KEYS; i++)
        get(keys[i]);
    (void)!tn_domain_audit(d, true, ignore, NULL, NULL);
    for (int i = 0; i < KEYS; i++)
        (void)!tn_store_delete(store, keys[i], 0);
    (void)!tn_domain_reap(d, NULL);
}

static void finish(void)
{
    tn_store *other;
    tn_object_close(store);
    (void)!tn_domain_audit(d, true, ignore, NULL, NULL);
    TN_CHECK_OK(
        tn_store_open(d, NULL, TN_OPTIONS(tn_store_options, .capacity = CAPACITY), 0, &other));
    store = other;
    TN_CHECK_OK(put("k", NULL));
    get("k");
    tn_object_close(other);
    tn_domain_close(d);
}

/* ---- what is overwritten ----------------------------------------------------------------- */

static const struct tni_table *table(void) { return &tni_store_of(store)->table; }

/* The n-th word of 4 bytes of a part; NULL: it has no more. */
typedef _Atomic uint32_t *nth_fn(uint32_t n);

static _Atomic uint32_t *nth_of_head(uint32_t n)
{
    enum { FEW = offsetof(struct tni_store, changes) / 4 + 16 }; /* and two changes */
    return n < FEW ? (_Atomic uint32_t *)(void *)table()->head + n : NULL;
}
static _Atomic uint32_t *nth_of_buckets(uint32_t n)
{
    return n <= table()->bucket_mask ? &table()->buckets[n] : NULL;
}
static _Atomic uint32_t *nth_of_entries(uint32_t n)
{
    return n < CAPACITY * sizeof(struct tni_store_entry) / 4
               ? (_Atomic uint32_t *)(void *)table()->entries + n
               : NULL;
}
/* The block of an entry: its records, the view of its tensor, the item, the key, the bytes. */
static _Atomic uint32_t *nth_of_value(uint32_t n)
{
    for (uint32_t i = 0; i < CAPACITY; i++) {
        tni_block block = tni_entry_block(atomic_load(&table()->entries[i].word));
        if (tni_block_is_message(&d->segment, block))
            return n < 48 ? (_Atomic uint32_t *)tni_payload_at(&d->segment, block) + n : NULL;
    }
    return NULL;
}

static uint32_t hostile(unsigned which, uint32_t old)
{
    const uint32_t numbers[] = {0,        1,        CAPACITY,       CAPACITY + 1,
                                old + 1,  old - 1,  old ^ 1u << 31, UINT32_MAX,
                                1u << 31, 0x1000000};
    return which < TNI_COUNT(numbers) ? numbers[which] : (uint32_t)tnt_random();
}
enum { NUMBERS = 12 };

static void overwrite_each(nth_fn *nth)
{
    unsigned count = 0;
    for (uint32_t n = 0;; n++)
        for (unsigned which = 0; which < NUMBERS; which++, count++) {
            begin();
            _Atomic uint32_t *word = nth(n);
            if (word == NULL) {
                finish();
                tnt_note("%u words, %u numbers", n, count);
                assert_true(count > 0);
                return;
            }
            uint32_t old = atomic_load(word), now = hostile(which, old);
            printf("word %u: %#x for %#x\n", n, now, old);
            atomic_store(word, now);
            use_all();
            finish();
        }
}

TN_TEST_WITHIN(hostile_numbers_in_the_head_crash_and_hang_no_call, 120)
{
    overwrite_each(nth_of_head);
}
TN_TEST_WITHIN(hostile_numbers_in_the_buckets_crash_and_hang_no_call, 120)
{
    overwrite_each(nth_of_buckets);
}
TN_TEST_WITHIN(hostile_numbers_in_the_entries_crash_and_hang_no_call, 120)
{
    overwrite_each(nth_of_entries);
}
TN_TEST_WITHIN(hostile_numbers_in_a_value_crash_and_hang_no_call, 120)
{
    overwrite_each(nth_of_value);
}

/* ---- what inspection says ---------------------------------------------------------------- */

static const char *fault(void)
{
    return tni_store_fault(&d->segment, tni_object_id_index(tn_object_id(store)));
}

TN_TEST(an_entry_that_names_no_value_is_a_fault_of_the_store)
{
    begin();
    assert_null(fault());
    uint64_t word = atomic_load(&table()->entries[0].word);
    atomic_store(&table()->entries[0].word, tni_store_word(1, 0x3fffffff));
    assert_non_null(fault());
    atomic_store(&table()->entries[0].word, word);
    assert_null(fault());
    finish();
}

TN_TEST(a_value_without_a_key_is_a_fault_of_the_store)
{
    begin();
    uint64_t bytes;
    const void *at = tni_message_bytes(
        &d->segment, tni_entry_block(atomic_load(&table()->entries[0].word)), &bytes);
    struct tni_store_item *item = (struct tni_store_item *)(uintptr_t)at;
    item->key_bytes = TN_STORE_KEY_BYTES + 1;
    assert_non_null(fault());
    item->key_bytes = 1;
    assert_null(fault());
    finish();
}

struct said {
    char text[4096];
};
static int note_said(const char *sentence, bool repaired, void *context)
{
    struct said *said = context;
    (void)repaired;
    strncat(said->text, sentence, sizeof said->text - strlen(said->text) - 2);
    strcat(said->text, "\n");
    return 0;
}

static void audit_says(const char *words, bool repair)
{
    struct said said = {{0}};
    assert_true(tn_domain_audit(d, repair, note_said, &said, NULL) > 0);
    if (strstr(said.text, words) == NULL)
        fail_msg("the audit says '%s', and not '%s'", said.text, words);
}

static const char *of_store(const char *words)
{
    static char text[256];
    snprintf(text, sizeof text, "store %u %s",
             (unsigned)tni_object_id_index(tn_object_id(store)), words);
    return text;
}

TN_TEST(an_audit_names_a_store_whose_entry_has_no_value)
{
    begin();
    TNT_AUDIT(d);
    _Atomic uint64_t *word = &table()->entries[0].word;
    uint64_t old = atomic_load(word);
    atomic_store(word, tni_store_word(1, 0x3fffffff));
    audit_says(of_store("has an entry whose block is no value"), false);
    audit_says("records name blocks that do not exist, such as block 3fffffff", false);
    atomic_store(word, old);
    TNT_AUDIT(d);
    finish();
}

TN_TEST(an_audit_names_a_store_whose_value_has_no_key)
{
    begin();
    uint64_t bytes;
    const void *at = tni_message_bytes(
        &d->segment, tni_entry_block(atomic_load(&table()->entries[0].word)), &bytes);
    struct tni_store_item *item = (struct tni_store_item *)(uintptr_t)at;
    uint32_t key_bytes = item->key_bytes;
    item->key_bytes = 0;
    audit_says(of_store("has an entry whose block is no value"), false);
    item->key_bytes = key_bytes;
    TNT_AUDIT(d);
    finish();
}

TN_TEST(an_audit_names_a_store_without_a_block_for_its_keys)
{
    begin();
    _Atomic uint32_t *ring = &store->object->ring;
    uint32_t old = atomic_exchange(ring, 0x3fffffff);
    audit_says(of_store("names no block for its keys"), false);
    atomic_store(ring, old);
    TNI_PUT(store->object->capacity, TNI_STORE_MOST_KEYS);
    audit_says(of_store("names no block for its keys"), false);
    TNI_PUT(store->object->capacity, CAPACITY);
    TNT_AUDIT(d);
    finish();
}

TN_TEST(an_audit_says_how_many_records_of_a_block_are_in_stores)
{
    begin();
    tni_block block = tni_entry_block(atomic_load(&table()->entries[0].word));
    atomic_fetch_add(tni_word_at(&d->segment, block), TNI_WORD_INC);
    audit_says("1 in stores", true);
    TNT_AUDIT(d);
    finish();
}

/* ---- hashes ------------------------------------------------------------------------------ */

static struct tni_store_entry *entry_of(const char *key)
{
    for (uint32_t i = 0; i < CAPACITY; i++) {
        struct tni_store_entry *entry = &table()->entries[i];
        if (atomic_load(&entry->hash) == tni_hash_fast(key, strlen(key)) &&
            tni_store_block(atomic_load(&entry->word)) != 0)
            return entry;
    }
    fail_msg("no entry has the key %s", key);
    return NULL;
}

TN_TEST(keys_of_equal_hashes_are_told_apart)
{
    char other[16];
    tn_message m;
    unsigned n = 0;
    uint64_t hash = tni_hash_fast("ffffff", 6);
    begin();
    do /* a key of the same chain, which comes before "ffffff" in it */
        snprintf(other, sizeof other, "o%u", n++);
    while (strlen(other) == 6 ||
           ((tni_hash_fast(other, strlen(other)) ^ hash) & table()->bucket_mask) != 0);
    TN_CHECK_OK(put(other, NULL));
    atomic_store(&entry_of(other)->hash, hash);
    TN_CHECK_OK(tn_store_get(store, "ffffff", &m, NULL));
    assert_int_equal(*(const uint8_t *)m.bytes, 6);
    tn_message_fini(&m);
    finish();
}
