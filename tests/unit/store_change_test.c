/* SPDX-License-Identifier: Apache-2.0 */
/* The claim of a store (store.c, I4): who waits for it, and who does not. */
#include <pthread.h>

#include "harness/harness.h"
#include "store/table.h"

static tn_domain *d;
static tn_store *one, *other;

static void begin(void)
{
    d = tnt_domain(&(tn_domain_options){.struct_size = sizeof(tn_domain_options),
                                        .quota_bytes = 16 << 20,
                                        .flags = TN_DOMAIN_NO_MANAGER});
    TN_CHECK_OK(tn_store_open(d, NULL, NULL, 0, &one));
    TN_CHECK_OK(tn_store_open(d, NULL, NULL, 0, &other));
}

static void finish(void)
{
    tn_object_close(one);
    tn_object_close(other);
    TNT_AUDIT(d);
    tn_domain_close(d);
}

static void *put(void *store)
{
    static int status;
    status = tn_store_put(store, "k", &(tn_message){.bytes = "v", .size_bytes = 1}, NULL, NULL);
    return &status;
}

TN_TEST(a_change_of_one_store_waits_for_none_of_another)
{
    struct tni_change change;
    pthread_t thread;
    void *status;
    begin();
    TN_CHECK_OK(tni_change_begin(d, one->object, &tni_store_of(one)->table, 0, &change));
    TN_CHECK(pthread_create(&thread, NULL, put, other) == 0);
    pthread_join(thread, &status);
    TN_CHECK_OK(*(const int *)status);
    tni_change_end(&change);
    finish();
}

TN_TEST(two_handles_of_one_store_have_one_claim)
{
    struct tni_change change, second;
    tn_store *same;
    begin();
    TN_CHECK_OK(tn_object_open_id(d, TN_OBJECT_STORE, tn_object_id(one), &same));
    TN_CHECK_OK(tni_change_begin(d, one->object, &tni_store_of(one)->table, 0, &change));
    TN_CHECK(!tni_change_try_begin(d, same->object, &tni_store_of(same)->table, &second));
    tni_change_end(&change);
    TN_CHECK(tni_change_try_begin(d, same->object, &tni_store_of(same)->table, &second));
    tni_change_end(&second);
    tn_object_close(same);
    finish();
}

TN_TEST(an_empty_value_is_that_of_its_record_or_none)
{
    tn_message m;
    struct tni_looked seen;
    struct tni_key key;
    begin();
    TN_CHECK_OK(tn_store_put(one, "empty", &(tn_message){0}, NULL, NULL));
    TN_CHECK_OK(tni_key_read("empty", &key));
    TN_CHECK(tni_table_find(tni_store_of(one), &key, &seen));
    tni_block block = tni_entry_block(seen.word);
    /* A reader that is slow looks at the block after the entry had another value. */
    const struct tni_still changed = {&seen.entry->word, seen.word - 1};
    const struct tni_contents *read = &seen.found.contents;
    uint64_t skipped = seen.found.skipped_bytes;
    assert_int_equal(tni_message_get(d, block, skipped, &changed, &m), TN_ERR_TIMED_OUT);
    assert_int_equal(tni_message_get_read(d, read, skipped, &changed, &m), TN_ERR_TIMED_OUT);
    const struct tni_still still = {&seen.entry->word, seen.word};
    TN_CHECK_OK(tni_message_get(d, block, skipped, &still, &m));
    assert_int_equal(m.size_bytes, 0);
    tn_message_fini(&m);
    TN_CHECK_OK(tni_message_get_read(d, read, skipped, &still, &m));
    assert_int_equal(m.size_bytes, 0);
    tn_message_fini(&m);
    finish();
}

TN_TEST(each_number_of_a_kind_leads_to_that_kind)
{
    begin();
    assert_null(tni_kind_of(d, TNI_OBJECT_FREE));
    assert_null(tni_kind_of(d, TNI_OBJECT_KINDS));
    for (uint32_t n = TNI_OBJECT_QUEUE; n < TNI_OBJECT_KINDS; n++) {
        const struct tni_kind *kind = tni_kind_of(d, n);
        assert_int_equal(kind->number, n);
        assert_string_equal(kind->name, tni_object_kind_name(n));
        assert_true(kind->handle_bytes >= sizeof(struct tn_object));
    }
    finish();
}
