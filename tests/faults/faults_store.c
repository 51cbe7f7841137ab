/* SPDX-License-Identifier: Apache-2.0 */
/* Stores. */
#include <string.h>

#include "faults.h"

enum { LARGE_BYTES = 20000 };

static tn_store *store, *other;
static tn_message got;
static uint8_t large[LARGE_BYTES];
static const tn_message small = {.bytes = "four", .size_bytes = 4};

/* ---- making, opening, closing ------------------------------------------------------------ */

static void close_out(void) { tn_object_close(*FAULTS_OUT(tn_store *)); }
static int create(void)
{
    return tn_store_open(faults_d, "one", TN_OPTIONS(tn_store_options, .capacity = 8),
                         TN_OPEN_NEW, FAULTS_OUT(tn_store *));
}
FAULTS(tn_store_open, .prepare = faults_begin, .call = create, .undo = close_out,
       .finish = faults_end)

static void put(const char *key) { TN_CHECK_OK(tn_store_put(store, key, &small, NULL, NULL)); }
static void make_store_of(uint32_t capacity, uint32_t flags)
{
    faults_begin();
    TN_CHECK_OK(tn_store_open(
        faults_d, "store", TN_OPTIONS(tn_store_options, .capacity = capacity, .flags = flags),
        TN_OPEN_NEW, &store));
    put("a");
    put("b");
}
static void make_store(void) { make_store_of(8, 0); }
static void make_full(void) { make_store_of(2, TN_STORE_EVICT); }
static void end_store(void)
{
    store = tn_object_close(store);
    faults_end();
}
static tn_store_info info(void)
{
    tn_store_info i = {.struct_size = sizeof i};
    TN_CHECK_OK(tn_store_get_info(store, &i));
    return i;
}
static uint64_t bytes(void) { return info().bytes; }
#define WITH_STORE .prepare = make_store, .finish = end_store, .measure = bytes

static int open_by_name(void)
{
    return tn_store_open(faults_d, "store", NULL, TN_OPEN_EXISTING, FAULTS_OUT(tn_store *));
}
FAULTS_WHEN(tn_store_open, it_exists, WITH_STORE, .call = open_by_name, .undo = close_out)

static int open_by_id(void)
{
    return tn_object_open_id(faults_d, TN_OBJECT_STORE, tn_object_id(store),
                             FAULTS_OUT(tn_store *));
}
FAULTS_WHEN(tn_object_open_id, of_a_store, WITH_STORE, .call = open_by_id, .undo = close_out)

/* The tensors of its values have memory of their own, which ends with it. */
static void open_other(void)
{
    tn_tensor *t[] = {faults_tensor_as(TN_STRATEGY_FILE_DESCRIPTOR, 0, 100),
                      faults_tensor_as(TN_STRATEGY_FILE_SYSTEM, 0, 100)};
    const tn_message m = {.tensors = t, .tensor_count = 2};
    TN_CHECK_OK(tn_store_open(faults_d, NULL, NULL, 0, &other));
    TN_CHECK_OK(tn_store_put(other, "t", &m, NULL, NULL));
    tn_tensor_unref(t[0]);
    tn_tensor_unref(t[1]);
}
static int close_other(void) { return other = tn_object_close(other), 0; }
FAULTS_WHEN(tn_object_close, of_a_store, WITH_STORE, .never_fails = true, .ends_files = true,
            .before = open_other, .call = close_other)

/* ---- putting ----------------------------------------------------------------------------- */

static int put_new(void) { return tn_store_put(store, "new", &small, NULL, NULL); }
static void delete_new(void) { TN_CHECK_OK(tn_store_delete(store, "new", 0)); }
FAULTS(tn_store_put, WITH_STORE, .depends = true, .call = put_new, .undo = delete_new)

static int put_again(void) { return tn_store_put(store, "a", &small, NULL, NULL); }
FAULTS_WHEN(tn_store_put, it_replaces, WITH_STORE, .depends = true, .call = put_again)

static int put_large(void)
{
    const tn_message m = {.bytes = large, .size_bytes = LARGE_BYTES};
    return tn_store_put(store, "new", &m, NULL, NULL);
}
FAULTS_WHEN(tn_store_put, it_is_large, WITH_STORE, .depends = true, .call = put_large,
            .undo = delete_new)

static int put_evicting(void) { return tn_store_put(store, "new", &small, NULL, NULL); }
static void put_back(void)
{
    delete_new();
    if (info().count < 2)
        put("a");
    if (info().count < 2)
        put("b");
}
FAULTS_WHEN(tn_store_put, it_evicts, .prepare = make_full, .finish = end_store,
            .measure = bytes, .depends = true, .call = put_evicting, .undo = put_back)

static tn_tensor *tensor;
static void make_with_tensor(void)
{
    make_store();
    tensor = faults_tensor(1000);
}
static void end_with_tensor(void)
{
    tn_tensor_unref(tensor);
    end_store();
}
static int put_tensor(void)
{
    const tn_message m = {.tensors = &tensor, .tensor_count = 1};
    return tn_store_put(store, "new", &m, NULL, NULL);
}
FAULTS_WHEN(tn_store_put, it_has_a_tensor, .prepare = make_with_tensor,
            .finish = end_with_tensor, .measure = bytes, .depends = true, .call = put_tensor,
            .undo = delete_new)

/* ---- getting ----------------------------------------------------------------------------- */

static void end_out(void) { tn_message_fini(FAULTS_OUT(tn_message)); }
static int get(void) { return tn_store_get(store, "a", FAULTS_OUT(tn_message), NULL); }
FAULTS(tn_store_get, WITH_STORE, .call = get, .undo = end_out)

static void make_with_value(void)
{
    make_with_tensor();
    TN_CHECK_OK(put_tensor());
    tensor = tn_tensor_unref(tensor);
}
static int get_tensor(void) { return tn_store_get(store, "new", FAULTS_OUT(tn_message), NULL); }
FAULTS_WHEN(tn_store_get, it_has_a_tensor, .prepare = make_with_value, .finish = end_store,
            .measure = bytes, .call = get_tensor, .undo = end_out)

static int get_or_make(void)
{
    int status = tn_store_get_or_make(store, "c", TN_NOW, FAULTS_OUT(tn_message));
    return status == TN_STORE_MAKE ? 0 : status;
}
static void give_up_now(void) { TN_CHECK_OK(tn_store_give_up(store, "c")); }
FAULTS(tn_store_get_or_make, WITH_STORE, .depends = true, .call = get_or_make,
       .undo = give_up_now)

static int get_made(void)
{
    return tn_store_get_or_make(store, "a", TN_NOW, FAULTS_OUT(tn_message));
}
FAULTS_WHEN(tn_store_get_or_make, it_is_made, WITH_STORE, .call = get_made, .undo = end_out)

static void promise(void) { TN_CHECK_OK(get_or_make()); }
static int get_promised(void)
{
    return tn_store_get_or_make(store, "c", tnt_deadline(2), &got);
}
FAULTS_WHEN(tn_store_get_or_make, it_is_promised, WITH_STORE, .expected = TN_ERR_TIMED_OUT,
            .before = promise, .call = get_promised, .undo = give_up_now)

static int give_up(void) { return tn_store_give_up(store, "c"); }
FAULTS(tn_store_give_up, WITH_STORE, .depends = true, .before = promise, .call = give_up)

/* ---- the rest ---------------------------------------------------------------------------- */

static void put_new_now(void) { TN_CHECK_OK(put_new()); }
static int delete (void) { return tn_store_delete(store, "new", 0); }
FAULTS(tn_store_delete, WITH_STORE, .depends = true, .before = put_new_now, .call = delete)

static int set_pinned(void) { return tn_store_set_pinned(store, "a", true); }
FAULTS(tn_store_set_pinned, WITH_STORE, .depends = true, .call = set_pinned)

static int set_kept(void) { return tn_store_set_kept(store, false); }
FAULTS(tn_store_set_kept, WITH_STORE, .has_no_calls = true, .call = set_kept)

static int count_one(const tn_store_entry *entry, void *context)
{
    (void)entry;
    ++*(unsigned *)context;
    return 0;
}
static int list(void)
{
    unsigned count = 0;
    int status = tn_store_for_each(store, "", count_one, &count);
    return status == 0 && count != 2 ? TN_ERR_CORRUPT : status;
}
FAULTS(tn_store_for_each, WITH_STORE, .has_no_calls = true, .call = list)

static int wait_for_a_change(void)
{
    return tn_store_wait(store, "", info().version, tnt_deadline(2), FAULTS_OUT(uint64_t));
}
FAULTS(tn_store_wait, WITH_STORE, .expected = TN_ERR_TIMED_OUT, .call = wait_for_a_change)

static int describe(void) { return tn_store_get_info(store, FAULTS_OUT_STRUCT(tn_store_info)); }
FAULTS(tn_store_get_info, WITH_STORE, .has_no_calls = true, .call = describe)
