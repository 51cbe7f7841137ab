/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations: stores. After a death each key has the value that it had before the operation, or
 * the one that the operation gives it, and keys that the operation does not name have theirs.
 */
#include "process/crash.h"

#include <string.h>

enum { OLD_BYTES = 100, NEW_BYTES = 200, CAPACITY = 3 };
/* What a key may have. */
enum { NOTHING = 1, OLD = 2, NEW = 4 };

/* ---- values ------------------------------------------------------------------------------ */

static int try_put(struct crash_world *w, const char *key, size_t size_bytes,
                   const tn_store_put_options *options)
{
    uint8_t bytes[NEW_BYTES];
    tn_tensor *tensor = crash_tensor(w, 1000);
    crash_fill(bytes, size_bytes);
    int status = tn_store_put(
        w->store, key,
        &(tn_message){
            .bytes = bytes, .size_bytes = size_bytes, .tensors = &tensor, .tensor_count = 1},
        options, NULL);
    tn_tensor_unref(tensor);
    return status;
}

static void put(struct crash_world *w, const char *key, size_t size_bytes)
{
    TN_CHECK_OK(try_put(w, key, size_bytes, NULL));
}

static bool is_whole(const uint8_t *bytes, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        if (bytes[i] != CRASH_BYTE)
            return false;
    return true;
}

static int what_has(struct crash_world *w, const char *key)
{
    tn_message m;
    int status = tn_store_get(w->store, key, &m, NULL);
    if (status == TN_ERR_NOT_FOUND)
        return NOTHING;
    TN_CHECK_OK(status);
    assert_int_equal(m.tensor_count, 1);
    assert_int_equal(tn_tensor_count(m.tensors[0]), 1000);
    TN_CHECK(is_whole(tn_tensor_data(m.tensors[0]), 1000));
    TN_CHECK(is_whole(m.bytes, m.size_bytes));
    TN_CHECK(m.size_bytes == OLD_BYTES || m.size_bytes == NEW_BYTES);
    int found = m.size_bytes == OLD_BYTES ? OLD : NEW;
    tn_message_fini(&m);
    return found;
}

static void expect(struct crash_world *w, const char *key, int at_death, int at_end)
{
    int wanted = w->has_died ? at_death | at_end : at_end, found = what_has(w, key);
    if ((found & wanted) == 0)
        fail_msg("the key %s has %d, which is none of %d", key, found, wanted);
}

/* ---- the store --------------------------------------------------------------------------- */

static void open_of(struct crash_world *w, uint32_t flags)
{
    TN_CHECK_OK(tn_store_open(
        w->domain, "store", TN_OPTIONS(tn_store_options, .capacity = CAPACITY, .flags = flags),
        TN_OPEN_NEW, &w->store));
}

static void two_keys(struct crash_world *w)
{
    open_of(w, 0);
    put(w, "a", OLD_BYTES);
    put(w, "b", OLD_BYTES);
}

/* "a" is the one that was used least recently. */
static void three_keys(struct crash_world *w)
{
    open_of(w, TN_STORE_EVICT);
    put(w, "a", OLD_BYTES);
    put(w, "b", OLD_BYTES);
    put(w, "d", OLD_BYTES);
}

static int count_one(const tn_store_entry *entry, void *context)
{
    (void)entry;
    ++*(uint32_t *)context;
    return 0;
}

static tn_store_info info_of(struct crash_world *w)
{
    tn_store_info info = {.struct_size = sizeof info};
    TN_CHECK_OK(tn_store_get_info(w->store, &info));
    return info;
}

/*
 * The next process that changes the store finds all of its entries, and sums that are right. A
 * promise of the dead process counts until its place is needed.
 */
static void go_on(struct crash_world *w)
{
    uint32_t count = 0, promises;
    put(w, "b", NEW_BYTES);
    assert_int_equal(what_has(w, "b"), NEW);
    TN_CHECK_OK(tn_store_for_each(w->store, "", count_one, &count));
    promises = info_of(w).count - count;
    assert_true(promises == 0 || (promises == 1 && w->op->leaves_promises));
    static const char *const keys[] = {"a", "b", "c", "d"};
    for (unsigned i = 0; i < 4; i++) {
        int status = tn_store_delete(w->store, keys[i], 0);
        assert_true(status == 0 || status == TN_ERR_NOT_FOUND);
        count -= status == 0;
    }
    assert_int_equal(count, 0);
    assert_int_equal(info_of(w).count, promises);
    assert_int_equal(info_of(w).bytes == 0, promises == 0);
    static const char *const others[] = {"x", "y", "z"};
    for (unsigned i = 0; i < CAPACITY; i++) /* no entry is lost */
        put(w, others[i], OLD_BYTES);
    for (unsigned i = 0; i < CAPACITY; i++)
        assert_int_equal(what_has(w, others[i]), OLD);
    assert_int_equal(info_of(w).count, CAPACITY);
}

/* ---- operations -------------------------------------------------------------------------- */

static void put_new(struct crash_world *w) { put(w, "c", NEW_BYTES); }
static void check_new(struct crash_world *w)
{
    expect(w, "c", NOTHING, NEW);
    expect(w, "a", OLD, OLD);
    expect(w, "b", OLD, OLD);
    go_on(w);
}

static void put_again(struct crash_world *w) { put(w, "a", NEW_BYTES); }
static void check_replaced(struct crash_world *w)
{
    expect(w, "a", OLD, NEW);
    expect(w, "b", OLD, OLD);
    expect(w, "c", NOTHING, NOTHING);
    go_on(w);
}

static void remove_one(struct crash_world *w)
{
    TN_CHECK_OK(tn_store_delete(w->store, "a", 0));
}
static void check_removed(struct crash_world *w)
{
    expect(w, "a", OLD, NOTHING);
    expect(w, "b", OLD, OLD);
    go_on(w);
}

static void check_evicted(struct crash_world *w)
{
    expect(w, "a", OLD, NOTHING);
    expect(w, "c", NOTHING, NEW);
    expect(w, "b", OLD, OLD);
    expect(w, "d", OLD, OLD);
    go_on(w);
}

/* "a" is over before the operation begins, and no put has removed it. */
static void one_expired(struct crash_world *w)
{
    open_of(w, 0);
    put(w, "b", OLD_BYTES);
    TN_CHECK_OK(try_put(w, "a", OLD_BYTES, TN_OPTIONS(tn_store_put_options, .lifetime_ns = 1)));
    assert_int_equal(info_of(w).count, 2);
}
static void check_expired(struct crash_world *w)
{
    expect(w, "a", NOTHING, NOTHING);
    expect(w, "c", NOTHING, NEW);
    expect(w, "b", OLD, OLD);
    go_on(w);
}
static void expire(struct crash_world *w) { crash_reap(w); }
static void check_only_expired(struct crash_world *w)
{
    expect(w, "a", NOTHING, NOTHING);
    expect(w, "b", OLD, OLD);
    go_on(w);
}

static void get(struct crash_world *w)
{
    tn_message m;
    TN_CHECK_OK(tn_store_get(w->store, "a", &m, NULL));
    TN_CHECK(tn_store_get(w->store, "c", &m, NULL) == TN_ERR_NOT_FOUND);
    tn_message_fini(&m);
}
/* The message is not given back. */
static void get_and_keep(struct crash_world *w)
{
    tn_message m;
    TN_CHECK_OK(tn_store_get(w->store, "a", &m, NULL));
}
static void check_unchanged(struct crash_world *w)
{
    expect(w, "a", OLD, OLD);
    expect(w, "b", OLD, OLD);
    expect(w, "c", NOTHING, NOTHING);
    go_on(w);
}

static void promise(struct crash_world *w)
{
    tn_message m;
    assert_int_equal(tn_store_get_or_make(w->store, "c", TN_NOW, &m), TN_STORE_MAKE);
}
static void make(struct crash_world *w)
{
    promise(w);
    put(w, "c", NEW_BYTES);
}
static void give_up(struct crash_world *w)
{
    promise(w);
    TN_CHECK_OK(tn_store_give_up(w->store, "c"));
}
/* A promise of the dead process counts for nothing: the next one that asks is to make it. */
static void check_promised(struct crash_world *w)
{
    tn_message m;
    expect(w, "c", NOTHING, NOTHING);
    assert_int_equal(tn_store_get_or_make(w->store, "c", TN_NOW, &m), TN_STORE_MAKE);
    TN_CHECK_OK(tn_store_give_up(w->store, "c"));
    check_unchanged(w);
}

static void pin(struct crash_world *w)
{
    TN_CHECK_OK(tn_store_set_pinned(w->store, "a", true));
}

static void close_store(struct crash_world *w) { w->store = tn_object_close(w->store); }
static void make_and_close(struct crash_world *w)
{
    two_keys(w);
    close_store(w);
}
/* The name is free again. */
static void make_again(struct crash_world *w)
{
    two_keys(w);
    go_on(w);
}

const struct crash_op crash_store_ops[] = {
    {.name = "store_put_a_new_key", .prepare = two_keys, .run = put_new, .check = check_new},
    {.name = "store_put_replacing",
     .prepare = two_keys,
     .run = put_again,
     .check = check_replaced},
    {.name = "store_put_evicting",
     .prepare = three_keys,
     .run = put_new,
     .check = check_evicted},
    {.name = "store_put_expiring",
     .prepare = one_expired,
     .run = put_new,
     .check = check_expired},
    {.name = "store_expiry_by_a_reaper",
     .prepare = one_expired,
     .run = expire,
     .check = check_only_expired},
    {.name = "store_delete", .prepare = two_keys, .run = remove_one, .check = check_removed},
    {.name = "store_get", .prepare = two_keys, .run = get, .check = check_unchanged},
    {.name = "store_get_and_keep",
     .prepare = two_keys,
     .run = get_and_keep,
     .check = check_unchanged},
    {.name = "store_promise", .prepare = two_keys, .run = promise, .check = check_promised},
    {.name = "store_make_what_was_promised",
     .leaves_promises = true,
     .prepare = two_keys,
     .run = make,
     .check = check_new},
    {.name = "store_give_up", .prepare = two_keys, .run = give_up, .check = check_promised},
    {.name = "store_set_pinned", .prepare = two_keys, .run = pin, .check = check_unchanged},
    {.name = "store_close", .prepare = two_keys, .run = close_store, .check = check_unchanged},
    {.name = "store_create_and_close_by_the_last", .run = make_and_close, .check = make_again},
    {0},
};
