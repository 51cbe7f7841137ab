/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: tenond keeps a store, and its domain, though no process has them open. */
#include "harness/harness.h"
#include "os/os.h"
#include "process/store_world.h"

/* A process that rings tenond keeps a socket: made before a test counts its descriptors. */
__attribute__((constructor)) static void ring_once(void) { tni_os_bell_ring(1); }

static void open_domain(const char *name)
{
    TN_CHECK_OK(tn_domain_open(
        name, TN_OPTIONS(tn_domain_options, .quota_bytes = 64 << 20, .seats = 16), 0, &d));
}

static void close_all(void)
{
    store = tn_object_close(store);
    d = tn_domain_close(d);
}

/* In a child: a store in a domain of this name. */
struct wish {
    const char *domain;
    bool is_kept;
    uint64_t lifetime_ns;
    uint32_t strategy;
};

static int leave_a_store(void *argument)
{
    const struct wish *w = argument;
    tn_tensor *t;
    open_domain(w->domain);
    TN_CHECK_OK(tn_store_open(d, "store", NULL, 0, &store));
    TN_CHECK_OK(tn_tensor_create(d, TN_UINT8, 1, (int64_t[]){1000},
                                 TN_OPTIONS(tn_tensor_options, .strategy = w->strategy), &t));
    memset(tn_tensor_data(t), 7, 1000);
    put_tensor("t", t,
               TN_OPTIONS(tn_store_put_options, .lifetime_ns = w->lifetime_ns,
                          .deadline = tn_deadline_after(10 * TN_SECOND)));
    tn_tensor_unref(t);
    TN_CHECK_OK(tn_store_set_kept(store, w->is_kept));
    close_all();
    return 0;
}

static int is_named(const tn_domain_entry *domain, void *name)
{
    return strcmp(domain->name, name) == 0;
}

/* A search that asks no tenond: a question makes tenond keep a domain for a moment longer. */
static void await_end_of(const char *name)
{
    while (TN_CHECK_OK(tn_inspect_domains(is_named, (void *)(uintptr_t)name)) != 0)
        tni_os_yield();
}

static void expect_sevens(void)
{
    tn_message m;
    TN_CHECK_OK(tn_store_get(store, "t", &m, NULL));
    const uint8_t *bytes = tn_tensor_data(m.tensors[0]);
    assert_int_equal(bytes[0] + bytes[999], 14);
    tn_message_fini(&m);
}

static void keep_as(uint32_t strategy)
{
    struct wish kept = {"kept", true, 0, strategy}, other = {"other", false, 0, strategy};
    tnt_wait_ok(tnt_fork(leave_a_store, &kept));
    tnt_wait_ok(tnt_fork(leave_a_store, &other));
    await_end_of("other"); /* tenond lets go of it after a second without a member */
    open_domain("kept");
    TNT_AUDIT(d); /* while no process has the store open */
    TN_CHECK_OK(tn_store_open(d, "store", NULL, TN_OPEN_EXISTING, &store));
    expect_sevens();
    assert_true(info().is_kept);
    TNT_AUDIT(d);
    TN_CHECK_OK(tn_store_delete(store, "t", 0));
    assert_false(info().is_kept);
    close_all();
    await_end_of("kept");
}

TN_TEST(a_kept_store_outlives_its_processes) { keep_as(TN_STRATEGY_ARENA); }
TN_TEST(a_kept_storage_of_its_own_outlives_its_maker) { keep_as(TN_STRATEGY_FILE_DESCRIPTOR); }

TN_TEST(a_kept_store_ends_with_its_last_lifetime)
{
    struct wish brief = {"brief", true, UINT64_C(10) * 1000 * 1000, TN_STRATEGY_ARENA};
    tnt_wait_ok(tnt_fork(leave_a_store, &brief));
    await_end_of("brief");
}

TN_TEST(a_store_that_is_kept_no_longer_ends_with_its_processes)
{
    struct wish kept = {"kept", true, 0, TN_STRATEGY_ARENA};
    tnt_wait_ok(tnt_fork(leave_a_store, &kept));
    open_domain("kept");
    TN_CHECK_OK(tn_store_open(d, "store", NULL, TN_OPEN_EXISTING, &store));
    TN_CHECK_OK(tn_store_set_kept(store, false));
    close_all();
    await_end_of("kept");
}

TN_TEST(a_domain_without_tenond_keeps_no_store)
{
    begin(NULL);
    assert_int_equal(tn_store_set_kept(store, true), TN_ERR_UNSUPPORTED);
    TN_CHECK_OK(tn_store_set_kept(store, false));
    finish();
}
