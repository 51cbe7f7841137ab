/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: a store gives every process the values that were put, and keeps to its limits. */
#include <string.h>
#include <unistd.h>

#include "harness/harness.h"
#include "harness/tensor.h"
#include "process/store_world.h"

/* ---- keys and values --------------------------------------------------------------------- */

static int expect_a_number(void *argument)
{
    expect_number("a", *(const uint64_t *)argument);
    return 0;
}

TN_TEST(a_put_value_reaches_another_process)
{
    begin(NULL);
    put("a", 7);
    tnt_wait_ok(tnt_fork(expect_a_number, &(uint64_t){7}));
    finish();
}

static int put_a_number(void *argument)
{
    put("a", *(const uint64_t *)argument);
    return 0;
}

TN_TEST(a_value_outlives_the_process_that_put_it)
{
    begin(NULL);
    tnt_wait_ok(tnt_fork(put_a_number, &(uint64_t){9}));
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    expect_number("a", 9);
    finish();
}

TN_TEST(a_get_copies_no_byte)
{
    tn_message m;
    begin(NULL);
    tn_tensor *t = make_tensor(1000, 3);
    put_tensor("t", t, NULL);
    TN_CHECK_OK(tn_store_get(store, "t", &m, NULL));
    assert_int_equal(m.tensor_count, 1);
    assert_true(tn_tensor_same_storage(m.tensors[0], t));
    tn_message_fini(&m);
    tn_tensor_unref(t);
    finish();
}

TN_TEST(a_value_has_tensors_bytes_and_attributes)
{
    tn_message m;
    begin(NULL);
    tn_tensor *tensors[] = {make_tensor(16, 1), make_tensor(64, 2)};
    TN_CHECK_OK(tn_tensor_set_name(tensors[1], "mask"));
    TN_CHECK_OK(tn_store_put(
        store, "k",
        &(tn_message){.bytes = "note", .size_bytes = 4, .tensors = tensors, .tensor_count = 2},
        NULL, NULL));
    tn_tensor_unref(tensors[0]);
    tn_tensor_unref(tensors[1]);
    TN_CHECK_OK(tn_store_get(store, "k", &m, NULL));
    assert_int_equal(m.size_bytes, 4);
    assert_memory_equal(m.bytes, "note", 4);
    assert_int_equal(m.tensor_count, 2);
    assert_int_equal(*(const uint8_t *)tn_tensor_data(m.tensors[1]), 2);
    assert_string_equal(tn_tensor_name(m.tensors[1]), "mask");
    tn_message_fini(&m);
    finish();
}

TN_TEST(a_large_value_of_bytes_comes_back_whole)
{
    enum { BYTES = 300000 };
    static uint8_t bytes[BYTES];
    tn_message m;
    begin(NULL);
    for (int i = 0; i < BYTES; i++)
        bytes[i] = (uint8_t)(i * 7 >> 3);
    TN_CHECK_OK(tn_store_put(store, "big", &(tn_message){.bytes = bytes, .size_bytes = BYTES},
                             NULL, NULL));
    TN_CHECK_OK(tn_store_get(store, "big", &m, NULL));
    assert_int_equal(m.size_bytes, BYTES);
    assert_memory_equal(m.bytes, bytes, BYTES);
    tn_message_fini(&m);
    finish();
}

TN_TEST(a_replaced_value_lives_while_it_is_held)
{
    tn_message old;
    begin(NULL);
    put("a", 1);
    TN_CHECK_OK(tn_store_get(store, "a", &old, NULL));
    put("a", 2);
    expect_number("a", 2);
    assert_int_equal(number_of(&old), 1);
    TN_CHECK_OK(tn_store_delete(store, "a", 0));
    assert_int_equal(number_of(&old), 1);
    tn_message_fini(&old);
    finish();
}

TN_TEST(a_deleted_key_has_no_value)
{
    tn_message m;
    begin(NULL);
    put("a", 1);
    put("b", 2);
    TN_CHECK_OK(tn_store_delete(store, "a", 0));
    assert_int_equal(tn_store_get(store, "a", &m, NULL), TN_ERR_NOT_FOUND);
    assert_int_equal(tn_store_delete(store, "a", 0), TN_ERR_NOT_FOUND);
    expect_number("b", 2);
    finish();
}

TN_TEST(keys_of_the_longest_size_differ_in_their_last_byte)
{
    char one[TN_STORE_KEY_BYTES + 2], two[TN_STORE_KEY_BYTES + 1];
    begin(NULL);
    memset(one, 'x', sizeof one);
    one[TN_STORE_KEY_BYTES + 1] = 0;
    assert_int_equal(try_put(one, 1, NULL), TN_ERR_INVALID);
    one[TN_STORE_KEY_BYTES] = 0;
    memcpy(two, one, sizeof two);
    two[TN_STORE_KEY_BYTES - 1] = 'y';
    put(one, 1);
    put(two, 2);
    expect_number(one, 1);
    expect_number(two, 2);
    assert_int_equal(try_put("", 1, NULL), TN_ERR_INVALID);
    assert_int_equal(try_put(NULL, 1, NULL), TN_ERR_INVALID);
    finish();
}

TN_TEST(ten_thousand_keys_are_found_and_listed)
{
    enum { KEYS = 10000 };
    static bool is_seen[KEYS];
    char key[32];
    begin(TN_OPTIONS(tn_store_options, .capacity = KEYS));
    for (uint64_t i = 0; i < KEYS; i++) {
        snprintf(key, sizeof key, "%s/%llu", i % 2 != 0 ? "odd" : "even",
                 (unsigned long long)i);
        put(key, i);
    }
    for (uint64_t i = 0; i < KEYS; i++) {
        snprintf(key, sizeof key, "%s/%llu", i % 2 != 0 ? "odd" : "even",
                 (unsigned long long)i);
        expect_number(key, i);
    }
    assert_int_equal(try_put("one more", 1, NULL), TN_ERR_FULL);
    assert_int_equal(count_keys("odd/"), KEYS / 2);
    assert_int_equal(count_keys(""), KEYS);
    (void)is_seen;
    finish();
}

/* ---- conditions -------------------------------------------------------------------------- */

TN_TEST(a_put_if_absent_leaves_the_value)
{
    begin(NULL);
    const tn_store_put_options if_absent = {.struct_size = sizeof if_absent,
                                            .flags = TN_PUT_IF_ABSENT};
    TN_CHECK_OK(try_put("a", 1, &if_absent));
    assert_int_equal(try_put("a", 2, &if_absent), TN_ERR_EXISTS);
    expect_number("a", 1);
    finish();
}

TN_TEST(a_put_if_version_replaces_that_version_only)
{
    uint64_t version, later;
    tn_message m;
    begin(NULL);
    tn_store_put_options o = {.struct_size = sizeof o, .if_version = 1};
    assert_int_equal(try_put("a", 1, &o), TN_ERR_NOT_FOUND);
    put("a", 1);
    TN_CHECK_OK(tn_store_get(store, "a", &m, &version));
    tn_message_fini(&m);
    o.if_version = version;
    TN_CHECK_OK(try_put("a", 2, &o));
    assert_int_equal(try_put("a", 3, &o), TN_ERR_STALE);
    assert_int_equal(tn_store_delete(store, "a", version), TN_ERR_STALE);
    TN_CHECK_OK(tn_store_get(store, "a", &m, &later));
    assert_int_equal(number_of(&m), 2);
    assert_true(later > version);
    tn_message_fini(&m);
    TN_CHECK_OK(tn_store_delete(store, "a", later));
    finish();
}

TN_TEST(a_value_ends_with_its_lifetime)
{
    tn_message m;
    begin(NULL);
    tn_store_put_options o = {.struct_size = sizeof o, .lifetime_ns = 20 * 1000 * 1000};
    TN_CHECK_OK(try_put("a", 1, &o));
    put("b", 2);
    expect_number("a", 1);
    while (tn_store_get(store, "a", &m, NULL) == 0)
        tn_message_fini(&m);
    assert_int_equal(count_keys(""), 1);
    TN_CHECK_OK(try_put("a", 3, TN_OPTIONS(tn_store_put_options, .flags = TN_PUT_IF_ABSENT)));
    expect_number("a", 3);
    finish();
}

/* ---- limits ------------------------------------------------------------------------------ */

TN_TEST(the_value_used_least_recently_is_evicted_first)
{
    begin(TN_OPTIONS(tn_store_options, .capacity = 4, .flags = TN_STORE_EVICT));
    put("a", 1);
    put("b", 2);
    put("c", 3);
    put("d", 4);
    expect_number("a", 1);
    put("e", 5);
    expect_none("b");
    put("f", 6);
    expect_none("c");
    expect_number("a", 1);
    expect_number("d", 4);
    expect_number("e", 5);
    assert_int_equal(info().evictions, 2);
    finish();
}

TN_TEST(many_evictions_go_in_order_of_use)
{
    enum { KEYS = 200 };
    char key[16];
    begin(TN_OPTIONS(tn_store_options, .capacity = KEYS, .flags = TN_STORE_EVICT));
    for (uint64_t i = 0; i < KEYS; i++)
        put(name_of(key, i), i);
    for (uint64_t i = 0; i < KEYS; i += 2) /* the even ones are used again */
        expect_number(name_of(key, i), i);
    for (uint64_t i = 0; i < KEYS / 2; i++) {
        put(name_of(key, KEYS + i), i);
        expect_none(name_of(key, 2 * i + 1));
    }
    for (uint64_t i = 0; i < KEYS; i += 2)
        expect_number(name_of(key, i), i);
    finish();
}

TN_TEST(a_budget_of_bytes_is_kept)
{
    enum { BYTES = 4096 };
    char key[16];
    begin(TN_OPTIONS(tn_store_options, .flags = TN_STORE_EVICT, .budget_bytes = 10 * BYTES));
    for (uint64_t i = 0; i < 30; i++) {
        tn_tensor *t = make_tensor(BYTES, (uint8_t)i);
        put_tensor(name_of(key, i), t, NULL);
        tn_tensor_unref(t);
        assert_true(info().bytes <= 10 * BYTES);
    }
    assert_int_equal(info().count, 9); /* each with a message block */
    expect_none(name_of(key, 20));
    tn_tensor *t = make_tensor(11 * BYTES, 0);
    assert_int_equal(
        tn_store_put(store, "x", &(tn_message){.tensors = &t, .tensor_count = 1}, NULL, NULL),
        TN_ERR_NO_MEMORY);
    tn_tensor_unref(t);
    assert_int_equal(info().count, 9);
    finish();
}

TN_TEST(what_is_held_or_pinned_is_not_evicted)
{
    tn_message held;
    begin(TN_OPTIONS(tn_store_options, .capacity = 3, .flags = TN_STORE_EVICT));
    tn_tensor *t = make_tensor(64, 1);
    put_tensor("held", t, NULL);
    tn_tensor_unref(t);
    TN_CHECK_OK(try_put("pinned", 2, TN_OPTIONS(tn_store_put_options, .flags = TN_PUT_PINNED)));
    put("free", 3);
    TN_CHECK_OK(tn_store_get(store, "held", &held, NULL));
    put("x", 4);
    expect_none("free");
    expect_number("pinned", 2);
    TN_CHECK_OK(tn_store_set_pinned(store, "x", true));
    assert_int_equal(try_put("y", 5, NULL), TN_ERR_FULL);
    TN_CHECK_OK(tn_store_set_pinned(store, "pinned", false));
    put("y", 5);
    expect_none("pinned");
    tn_message_fini(&held);
    finish();
}

TN_TEST(a_tensor_that_is_held_keeps_its_value_in_the_store)
{
    begin(TN_OPTIONS(tn_store_options, .capacity = 1, .flags = TN_STORE_EVICT));
    tn_tensor *t = make_tensor(64, 1);
    put_tensor("t", t, NULL);
    assert_int_equal(try_put("x", 1, NULL), TN_ERR_FULL);
    tn_tensor_unref(t);
    put("x", 1);
    expect_none("t");
    finish();
}

TN_TEST(a_tensor_under_two_keys_can_be_evicted)
{
    begin(TN_OPTIONS(tn_store_options, .capacity = 2, .flags = TN_STORE_EVICT));
    tn_tensor *t = make_tensor(64, 1);
    put_tensor("t", t, NULL);
    put_tensor("u", t, NULL);
    tn_tensor_unref(t);
    put("x", 1);
    put("y", 1);
    expect_none("t");
    expect_none("u");
    finish();
}

TN_TEST(a_store_that_evicts_nothing_refuses_more)
{
    begin(TN_OPTIONS(tn_store_options, .capacity = 1));
    put("a", 1);
    assert_int_equal(try_put("b", 2, NULL), TN_ERR_FULL);
    put("a", 3);
    expect_number("a", 3);
    finish();
}

/* ---- opening ----------------------------------------------------------------------------- */

TN_TEST(a_store_that_differs_from_the_options_is_refused)
{
    tn_store *other = NULL;
    begin(TN_OPTIONS(tn_store_options, .capacity = 8, .budget_bytes = 1000));
    assert_int_equal(
        tn_store_open(d, "store", TN_OPTIONS(tn_store_options, .capacity = 9), 0, &other),
        TN_ERR_INVALID);
    assert_int_equal(
        tn_store_open(d, "store", TN_OPTIONS(tn_store_options, .budget_bytes = 9), 0, &other),
        TN_ERR_INVALID);
    assert_non_null(strstr(tn_error_detail(), "1000"));
    assert_int_equal(tn_store_open(d, "store",
                                   TN_OPTIONS(tn_store_options, .flags = TN_STORE_EVICT), 0,
                                   &other),
                     TN_ERR_INVALID);
    TN_CHECK_OK(tn_store_open(d, "store", NULL, TN_OPEN_EXISTING, &other));
    tn_object_close(other);
    finish();
}

TN_TEST(figures_count_what_was_done)
{
    begin(NULL);
    put("a", 1);
    put("a", 2);
    put("b", 3);
    for (int i = 0; i < 40; i++)
        expect_number("a", 2);
    expect_none("c");
    TN_CHECK_OK(tn_store_delete(store, "b", 0));
    tn_store_info i = info();
    assert_int_equal(i.puts, 3);
    assert_int_equal(i.hits, 40);
    assert_int_equal(i.misses, 1);
    assert_int_equal(i.deletes, 1);
    assert_int_equal(i.count, 1);
    assert_int_equal(i.version, 4);
    finish();
}

static int get_three_times(void *argument)
{
    (void)argument;
    for (int i = 0; i < 3; i++)
        expect_number("a", 1);
    expect_none("b");
    tn_object_close(store);
    return 0;
}

TN_TEST(a_closed_store_handle_has_counted_its_hits_and_misses)
{
    tn_store *other;
    begin(NULL);
    put("a", 1);
    for (int i = 0; i < 5; i++)
        expect_number("a", 1); /* not yet added up: a child must not add them as well */
    tnt_wait_ok(tnt_fork(get_three_times, NULL));
    TN_CHECK_OK(tn_store_open(d, "store", NULL, TN_OPEN_EXISTING, &other));
    tn_store_info i = info();
    assert_int_equal(i.hits, 8);
    assert_int_equal(i.misses, 1);
    tn_message m;
    TN_CHECK_OK(tn_store_get(other, "a", &m, NULL));
    tn_message_fini(&m);
    tn_object_close(other);
    assert_int_equal(info().hits, 9);
    finish();
}
