/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_model: a store, as shipped: src/store over src/ref and src/alloc, in a tiny domain.
 *
 * Each process does what its script says, a letter for each call:
 *
 *   A, B   put a value of the first key, of the second
 *   a, b   get it, check it, release it
 *   d      delete the first key
 *   m      get the first key or make it
 *   r      reclaim the dead, once there are any
 *
 * Values are numbered, so notes (struct notes), which are no steps, show:
 *   a get returns a value of its key, whole, which some put had begun to give it;
 *   a get returns no value that a later change, finished before the get began, has replaced;
 *   a get finds a key that nobody deleted or evicted, dead writer or not;
 *   once the dead are reclaimed and one more change was made, the sums are right, each entry
 *     can be used again, versions go on to rise, and no block is left (tiny_check()).
 * A process may be killed before any of its steps: the one that comes next takes the claim over
 * and repairs the store.
 */
#include "harness/harness.h"
#include "store/put.h"
#include "tiny.h"

#include "reaper/reaper.h"

enum { MOST_OPS = 4, FIRST_OF_A = 14, FIRST_OF_B = 15, LONG_BYTES = 1032 };

struct scenario {
    const char *script[MODEL_MOST_PROCESSES];
    uint32_t capacity; /* 0: two keys */
    bool evicts;
    bool has_a, has_b; /* from the beginning */
    bool are_long;     /* a get holds the block of a value, and does not copy it */
    /* A dead process had begun a repair, or had promised the first key; its seat is free. */
    bool is_half_repaired, is_promised;
};
static struct scenario scene;
static unsigned process_count;

/* What puts and deletes have given a key, by number: a bit for each. */
struct notes {
    uint16_t begun[2], stale; /* by key; of both */
    uint16_t done[2];
    uint16_t nothing; /* those that took the value away */
};
static struct notes *notes; /* private */
static struct tni_store_handle *handles[MODEL_MOST_PROCESSES + 1];
static struct tni_store_entry *entries;

static const struct tni_kind *const kinds[TNI_OBJECT_KINDS] = {
    [TNI_OBJECT_STORE] = &tni_store_kind,
};

static uint32_t capacity(void) { return scene.capacity != 0 ? scene.capacity : 2; }
static tn_store *store_of(unsigned process) { return &handles[process]->handle; }
static tn_store *my_store(void) { return store_of(model_self()); }
/* Both are in one chain. */
static const char *name_of(unsigned key) { return key == 0 ? "a" : "ba"; }

/* ---- notes ------------------------------------------------------------------------------- */

/* What is done now is stale when this change is done. */
static uint16_t note_begin(unsigned key, unsigned number)
{
    notes->begun[key] |= (uint16_t)(1u << number);
    return notes->done[key];
}

static void note_end(unsigned key, unsigned number, uint16_t replaced)
{
    notes->done[key] |= (uint16_t)(1u << number);
    notes->stale |= replaced;
}

static bool may_miss(unsigned key, uint16_t stale)
{
    return scene.evicts || (notes->begun[key] & notes->nothing & ~stale) != 0;
}

static void check_value(unsigned key, uint16_t stale, const tn_message *m)
{
    uint64_t first, last;
    model_require(m->size_bytes == (scene.are_long ? LONG_BYTES : sizeof first),
                  "a value has its size");
    memcpy(&first, m->bytes, sizeof first);
    memcpy(&last, (const uint8_t *)m->bytes + m->size_bytes - sizeof last, sizeof last);
    model_require(first == last && first < 16 &&
                      (notes->begun[key] & ~notes->nothing & 1u << first) != 0,
                  "a get returns a value of its key, whole");
    model_require((stale & 1u << first) == 0, "a get returns no value that was replaced");
}

/* ---- operations -------------------------------------------------------------------------- */

static int try_put(tn_store *store, const char *key, uint64_t number, uint64_t *ret_version)
{
    uint64_t bytes[LONG_BYTES / 8] = {[0] = number, [LONG_BYTES / 8 - 1] = number};
    const tn_message value = {.bytes = bytes,
                              .size_bytes = scene.are_long ? LONG_BYTES : sizeof number};
    return tn_store_put(store, key, &value, NULL, ret_version);
}

static void put(tn_store *store, unsigned key, unsigned number)
{
    uint16_t replaced = note_begin(key, number);
    model_require(try_put(store, name_of(key), number, NULL) == 0, "a put succeeds");
    note_end(key, number, replaced);
}

static bool get(tn_store *store, unsigned key, uint64_t *ret_version)
{
    uint16_t stale = notes->stale;
    tn_message m;
    int status = tn_store_get(store, name_of(key), &m, ret_version);
    if (status == TN_ERR_NOT_FOUND) {
        model_require(may_miss(key, stale), "a key that has a value is found");
        return false;
    }
    model_require(status == 0, "a get succeeds");
    check_value(key, stale, &m);
    tn_message_fini(&m);
    return true;
}

static void delete (tn_store *store, unsigned key, unsigned number)
{
    uint16_t stale = notes->stale, replaced = note_begin(key, number);
    notes->nothing |= (uint16_t)(1u << number);
    int status = tn_store_delete(store, name_of(key), 0);
    model_require(status == 0 || (status == TN_ERR_NOT_FOUND && may_miss(key, stale)),
                  "a delete succeeds, or there is nothing");
    note_end(key, number, replaced);
}

static void get_or_make(tn_store *store, unsigned key, unsigned number)
{
    uint16_t stale = notes->stale;
    tn_message m;
    int status = tn_store_get_or_make(store, name_of(key), TN_FOREVER, &m);
    if (status == TN_STORE_MAKE) {
        put(store, key, number);
        return;
    }
    model_require(status == 0, "who waits for ever gets the value, or makes it");
    check_value(key, stale, &m);
    tn_message_fini(&m);
}

static void run(void)
{
    unsigned self = model_self();
    for (unsigned i = 0; scene.script[self][i] != 0; i++) {
        unsigned number = self * MOST_OPS + i;
        switch (scene.script[self][i]) {
        case 'A':
        case 'B':
            put(my_store(), scene.script[self][i] == 'B', number);
            break;
        case 'a':
        case 'b':
            (void)get(my_store(), scene.script[self][i] == 'b', NULL);
            break;
        case 'd':
            delete (my_store(), 0, number);
            break;
        case 'm':
            get_or_make(my_store(), 0, number);
            break;
        default:
            if (tiny_await_death())
                tiny_reclaim_all();
        }
    }
}

/* ---- setup ------------------------------------------------------------------------------- */

__attribute__((no_sanitize("thread"), noinline)) static uint32_t count_records(tni_block block)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < capacity(); i++)
        count += tni_store_block(*(const volatile uint64_t *)&entries[i].word) == block.id;
    return count;
}

/* Who waits for a claim reclaims the dead, as src/reaper has it. */
static void survive(struct tn_domain *d) { (void)tni_reaper_reclaim_all(d); }

static struct tni_store_handle *make_handle(unsigned process)
{
    struct tni_store_handle *store = model_private(sizeof *store, 8);
    struct tn_domain *d = tiny_domains[process];
    tni_object_set_kinds(d, kinds);
    d->survive = survive;
    store->handle = (struct tn_object){
        .domain = d,
        .kind = TNI_OBJECT_STORE,
        .roles = d->roles,
        .object = tni_object_at(&tiny_segment, 0),
        .word = tni_object_word(1, 0, TNI_OBJECT_LIVE, TNI_OBJECT_STORE),
        .generation = 1,
    };
    model_require(tni_store_bind(&store->handle) == 0, "the store can be bound");
    return store;
}

static void setup_first(unsigned key, unsigned number)
{
    if (key == 0 ? scene.has_a : scene.has_b) {
        put(store_of(0), key, number);
    } else {
        notes->nothing |= (uint16_t)(1u << number);
        note_end(key, number, note_begin(key, number));
    }
}

static void half_repair(const struct tni_table *t)
{
    for (uint32_t b = 0; b <= t->bucket_mask; b++)
        atomic_store(&t->buckets[b], 0);
    atomic_store(&t->head->free, 0);
    atomic_store(&t->head->count, 0);
    atomic_store(&t->head->bytes, 0);
    atomic_store(&t->head->is_settled, 0);
    atomic_fetch_or(&t->head->epoch, 1);
}

/* The promise of the first process is that of an earlier one in its seat. */
static void promise_by_the_dead(const struct tni_table *t)
{
    enum { EARLIER = 9 };
    tn_message m;
    uint64_t bytes;
    model_require(tn_store_get_or_make(store_of(0), name_of(0), TN_NOW, &m) == TN_STORE_MAKE,
                  "the first one that asks is to make it");
    for (uint32_t i = 0; i < t->capacity; i++) {
        tni_block block = tni_entry_block(atomic_load(&t->entries[i].word));
        if (block.id != 0)
            ((struct tni_store_item *)(uintptr_t)tni_message_bytes(&tiny_segment, block,
                                                                   &bytes))
                ->maker = tni_who(0, EARLIER);
    }
}

static void setup(void)
{
    tiny_begin(&(struct tiny_spec){
        .processes = process_count,
        .seats = process_count,
        .messages = TINY_MOST_MESSAGES,
        .message_bytes = scene.are_long ? 1280 : 192,
        .has_alloc = true,
        .ring_bytes = (uint32_t)tni_table_bytes(capacity()),
        .count_records = count_records,
    });
    /* Who finds a class full looks for free blocks, and others fail meanwhile: not here. */
    atomic_store(&tni_class_at(&tiny_segment, 1)->frontier, 0);
    notes = model_private(sizeof *notes, 8);
    struct tni_object *object = tni_object_at(&tiny_segment, 0);
    object->capacity = capacity();
    object->flags = scene.evicts ? TN_STORE_EVICT : 0;
    atomic_store(&object->word, tni_object_word(1, 0, TNI_OBJECT_LIVE, TNI_OBJECT_STORE));
    for (unsigned p = 0; p <= process_count; p++)
        handles[p] = make_handle(p);
    const struct tni_table *t = &handles[0]->table;
    entries = t->entries;
    setup_first(1, FIRST_OF_B);
    setup_first(0, FIRST_OF_A);
    if (scene.is_half_repaired)
        half_repair(t);
    if (scene.is_promised)
        promise_by_the_dead(t);
    model_name(object, sizeof *object, "object");
    model_name(t->head, sizeof *t->head, "head");
    model_name(t->buckets, (t->bucket_mask + 1) * sizeof *t->buckets, "buckets");
    model_name(entries, capacity() * sizeof *entries, "entries");
}

/* ---- at the end -------------------------------------------------------------------------- */

static bool delete_if_there(const char *key)
{
    int status = tn_store_delete(my_store(), key, 0);
    model_require(status == 0 || status == TN_ERR_NOT_FOUND, "a delete comes back");
    return status == 0;
}

static void check_empty(void)
{
    tn_store_info info = {.struct_size = sizeof info};
    model_require(tn_store_get_info(my_store(), &info) == 0, "a store tells its sums");
    model_require(info.count == 0 && info.bytes == 0, "the sums are right after a repair");
    model_require(tiny_allocated_messages() == 0, "no block is left after a repair");
}

static void check(void)
{
    static const char *const others[] = {"x", "y"};
    tiny_check();
    uint64_t versions[2] = {0}, version;
    bool are_there[2];
    for (unsigned key = 0; key < 2; key++)
        are_there[key] = get(my_store(), key, &versions[key]);
    model_require(are_there[0] != are_there[1] || !are_there[0] || versions[0] != versions[1],
                  "each value has a version of its own");
    for (unsigned key = 0; key < 2; key++)
        model_require(delete_if_there(name_of(key)) == are_there[key], "what is found can go");
    for (uint32_t i = 0; i < capacity(); i++) {
        model_require(try_put(my_store(), others[i], 0, &version) == 0,
                      "each entry can be used again");
        model_require(version > versions[0] && version > versions[1], "versions only rise");
    }
    for (uint32_t i = 0; i < capacity(); i++)
        model_require(delete_if_there(others[i]), "each value is found");
    check_empty();
    tiny_check_blocks();
}

/* ---- scenes ------------------------------------------------------------------------------ */

static void explore_at(enum tiny_size size, const char *name, unsigned kills,
                       struct scenario scenario)
{
    scene = scenario;
    process_count = 0;
    struct model model = {.name = name,
                          .kills = kills,
                          .setup = setup,
                          .check = check,
                          .invariant = tiny_invariant};
    while (scene.script[process_count] != NULL)
        model.run[process_count++] = run;
    model.process_count = process_count;
    tiny_explore_at(size, &model);
}

TN_TEST_WITHIN(a_get_returns_the_old_value_or_the_new_one, 600)
{
    explore_at(TINY_QUICK, "put x get, a death", 1,
               (struct scenario){.script = {"A", "a"}, .has_a = true});
}

/* What a reader copies of a block are no steps, so in C11 nothing orders them before its look.
 */
TN_TEST_WITHIN(a_get_finds_no_block_that_another_key_has_by_now, 600)
{
#if defined(MODEL_NOT_X86)
    tnt_skip("the copies of a reader have no order in C11");
#endif
    explore_at(TINY_QUICK, "puts x get", 0,
               (struct scenario){.script = {"AB", "a"}, .has_a = true});
}

TN_TEST_WITHIN(a_value_that_was_got_stays_while_its_key_changes, 600)
{
    explore_at(TINY_QUICK, "put x get, long, a death", 1,
               (struct scenario){.script = {"A", "a"}, .has_a = true, .are_long = true});
}

TN_TEST_WITHIN(a_get_beside_a_delete_finds_the_value_or_nothing, 600)
{
    explore_at(TINY_QUICK, "delete x get, a death", 1,
               (struct scenario){.script = {"d", "ab"}, .has_a = true, .has_b = true});
}

TN_TEST_WITHIN(a_put_takes_the_claim_of_a_dead_one_over, 600)
{
    explore_at(TINY_FULL, "put x put, a death", 1,
               (struct scenario){.script = {"A", "B"}, .has_a = true});
}

TN_TEST_WITHIN(an_eviction_is_repaired_by_the_next_put, 600)
{
    explore_at(
        TINY_FULL, "evict x put, a death", 1,
        (struct scenario){.script = {"B", "A"}, .has_a = true, .capacity = 1, .evicts = true});
}

TN_TEST_WITHIN(a_get_beside_an_eviction_finds_the_value_or_nothing, 600)
{
    explore_at(
        TINY_QUICK, "evict x get, a death", 1,
        (struct scenario){.script = {"B", "ab"}, .has_a = true, .capacity = 1, .evicts = true});
}

TN_TEST_WITHIN(a_dead_maker_is_replaced, 3600)
{
    if (!tiny_is_tightest())
        explore_at(TINY_QUICK, "make x make", 0,
                   (struct scenario){.script = {"m", "m"}, .is_promised = true});
    else
        explore_at(TINY_QUICK, "make", 0,
                   (struct scenario){.script = {"m"}, .is_promised = true});
    if (tiny_size() != TINY_QUICK)
        explore_at(TINY_FULL, "make x make, a death", 1,
                   (struct scenario){.script = {"m", "m"}});
}

TN_TEST_WITHIN(a_get_beside_a_repair_finds_every_key, 3600)
{
    explore_at(
        TINY_QUICK, "repair x get", 0,
        (struct scenario){
            .script = {"A", "ab"}, .has_a = true, .has_b = true, .is_half_repaired = true});
    if (tiny_size() != TINY_QUICK)
        explore_at(TINY_FULL, "put x put x get, a death", 1,
                   (struct scenario){.script = {"A", "B", "a"}, .has_a = true});
}

TN_TEST_WITHIN(a_put_that_dies_is_reclaimed_beside_a_get, 3600)
{
    explore_at(TINY_FULL, "put x get x reclaim, a death", 1,
               (struct scenario){.script = {"A", "a", "r"}, .has_a = true});
}
