/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks, references, tickets and tensors, between threads of several members. What a thread
 * writes into memory is plain, so that ThreadSanitizer sees each hand-over that orders nothing.
 */
#include <tenon/dlpack.h>

#include <sched.h>
#include <string.h>

#include "harness/tensor.h"
#include "share/share.h"
#include "threads/threads.h"

/* A tensor of `count` numbers, all of them `number`; NULL: no memory now. */
static tn_tensor *make(struct worker *w, int64_t count, uint32_t number)
{
    tn_tensor *t;
    if (!DID(tn_tensor_create(w->domain, TN_UINT32, 1, &count,
                              TN_OPTIONS(tn_tensor_options, .deadline = soon()), &t),
             TN_ERR_TIMED_OUT, TN_ERR_NO_MEMORY, TN_ERR_FULL))
        return NULL;
    uint32_t *data = tn_tensor_data(t);
    for (int64_t i = 0; i < count; i++)
        data[i] = number;
    return t;
}

/* Whether all of it is one number, in whosever hands. */
static void check(const tn_tensor *t)
{
    const uint32_t *data = tn_tensor_data(t);
    int64_t count = tn_tensor_count(t);
    for (int64_t i = 1; i < count; i++)
        TN_CHECK(data[i] == data[0]);
}

/* ---- blocks ------------------------------------------------------------------------------ */

static void allocate(struct worker *w)
{
    static const int64_t sizes[] = {1, 16, 100, 1000, 5000, 40000};
    tn_tensor *kept[4] = {NULL};
    for (unsigned i = 0; i < 4; i++)
        kept[i] = make(w, sizes[worker_random(w, 6)], w->number << 8 | i);
    for (unsigned i = 0; i < 4; i++) {
        if (kept[i] != NULL && tn_tensor_count(kept[i]) > 0) {
            TN_CHECK(*(uint32_t *)tn_tensor_data(kept[i]) == (w->number << 8 | i));
            check(kept[i]);
        }
        tn_tensor_unref(kept[i]);
    }
}

static void trim(struct worker *w)
{
    TN_CHECK_OK(tn_domain_trim(w->domain, worker_random(w, 1 << 20), NULL));
    TN_CHECK_OK(tn_domain_set_watermark(w->domain, worker_random(w, 4 << 20)));
    sched_yield();
}

TN_TEST(a_block_is_one_threads_at_a_time)
{
    world_begin(4 << 20);
    run_crews((struct crew[]){{allocate, 6}, {trim, 1}, {NULL, 0}});
    world_end();
}

/* ---- references -------------------------------------------------------------------------- */

enum { PLACES = 8 };
static _Atomic(tn_tensor *) places[PLACES];

static void swap_place(tn_tensor *t, uint64_t place)
{
    t = atomic_exchange(&places[place], t);
    if (t != NULL)
        check(t);
    tn_tensor_unref(t);
}

/* Make a tensor and put it where others take it, some with a view of it, some twice. */
static void give_and_take(struct worker *w)
{
    tn_tensor *view, *t = make(w, 64, w->number);
    if (t == NULL)
        return;
    TN_CHECK_OK(tn_tensor_slice(t, 0, 8, 24, 2, &view));
    if (worker_random(w, 2) == 0)
        swap_place(tn_tensor_ref(t), worker_random(w, PLACES));
    swap_place(view, worker_random(w, PLACES));
    swap_place(t, worker_random(w, PLACES));
}

static void empty_places(void)
{
    for (unsigned i = 0; i < PLACES; i++)
        tn_tensor_unref(atomic_exchange(&places[i], NULL));
}

TN_TEST(a_reference_can_be_given_back_by_another_thread)
{
    world_begin(8 << 20);
    run_crews((struct crew[]){{give_and_take, 4}, {NULL, 0}});
    empty_places();
    world_end();
}

/* ---- tickets ----------------------------------------------------------------------------- */

struct handle {
    uint8_t bytes[TN_HANDLE_MAX_BYTES];
    size_t used;
};
static struct handle handles[PLACES];
static _Atomic uint32_t handle_busy[PLACES];

static void copy_handle(struct handle *to, const struct handle *from, uint64_t place)
{
    while (atomic_exchange(&handle_busy[place], 1) != 0)
        sched_yield();
    *to = *from;
    atomic_store(&handle_busy[place], 0);
}

static void export_one(struct worker *w)
{
    const tn_handle_options options = {.struct_size = sizeof options,
                                       .uses = (uint32_t)worker_random(w, 4),
                                       .lifetime_ns = worker_random(w, 2 * MS)};
    uint64_t place = worker_random(w, PLACES);
    struct handle mine;
    tn_tensor *t = make(w, 32, w->number);
    if (t == NULL)
        return;
    if (DID(tn_handle_export(t, &options, mine.bytes, sizeof mine.bytes, &mine.used),
            TN_ERR_FULL))
        copy_handle(&handles[place], &mine, place);
    tn_tensor_unref(t);
}

static void import_one(struct worker *w)
{
    uint64_t place = worker_random(w, PLACES);
    struct handle mine;
    tn_tensor *t;
    copy_handle(&mine, &handles[place], place);
    if (mine.used == 0 ||
        !DID(tn_handle_import(w->domain, mine.bytes, mine.used, &t), TN_ERR_STALE))
        return;
    check(t);
    tn_tensor_unref(t);
}

static int revoke_some(const tn_ticket_entry *ticket, void *context)
{
    struct worker *w = context;
    if (worker_random(w, 2) == 0)
        DID(tni_ticket_revoke(w->domain, ticket->id), TN_ERR_STALE);
    return 0;
}

static void end_tickets(struct worker *w)
{
    tni_ticket_expire(w->domain, tni_os_now_ns());
    if (worker_random(w, 8) == 0)
        TN_CHECK_OK(tni_ticket_for_each(&w->domain->segment, revoke_some, w));
    sched_yield();
}

TN_TEST(a_ticket_gives_each_use_once_while_others_end_it)
{
    world_begin(8 << 20);
    memset(handles, 0, sizeof handles);
    run_crews((struct crew[]){{export_one, 3}, {import_one, 3}, {end_tickets, 1}, {NULL, 0}});
    world_end();
}

/* ---- tensors ----------------------------------------------------------------------------- */

/* Views of one private storage, shared by several threads at the same time. */
static tn_tensor *views[4];
static _Atomic uint32_t arrived, turn;

static void make_views(uint32_t number)
{
    const int64_t count = 256;
    tn_tensor *whole;
    TN_CHECK_OK(tn_tensor_create_private(TN_UINT32, 1, &count, &whole));
    for (int64_t i = 0; i < count; i++)
        ((uint32_t *)tn_tensor_data(whole))[i] = number;
    for (unsigned i = 0; i < 4; i++)
        TN_CHECK_OK(tn_tensor_slice(whole, 0, 64 * i, 64 * i + 64, 1, &views[i]));
    tn_tensor_unref(whole);
}

/* All four meet before and after; the last to come makes the views for the next round. */
static void meet(void)
{
    uint32_t mine = atomic_load(&turn);
    if (atomic_fetch_add(&arrived, 1) == 3) {
        atomic_store(&arrived, 0);
        atomic_fetch_add(&turn, 1);
    }
    while (atomic_load(&turn) == mine)
        sched_yield();
}

enum { SHARE_ROUNDS = 60 };
static void share_view(struct worker *w)
{
    if (w->rounds > 0) {
        sched_yield();
        return;
    }
    for (uint32_t round = 0; round < SHARE_ROUNDS; round++) {
        if (w->number == 0)
            make_views(round);
        meet();
        tn_tensor *t = views[w->number];
        TN_CHECK_OK(tn_tensor_share(members[0], t,
                                    TN_OPTIONS(tn_tensor_options, .deadline = TN_FOREVER)));
        TN_CHECK(tnt_info(t).is_shared && *(uint32_t *)tn_tensor_data(t) == round);
        check(t);
        tn_tensor_unref(t);
        meet();
    }
}

TN_TEST(several_threads_can_share_views_of_one_storage_at_once)
{
    world_begin(8 << 20);
    run_crews((struct crew[]){{share_view, 4}, {NULL, 0}});
    world_end();
}

/* One tensor that every thread reads: attributes, names, DLPack, another copy of its elements.
 */
static tn_tensor *common;

static void read_common(struct worker *w)
{
    DLManagedTensorVersioned *managed;
    tn_tensor *copy, *view;
    TN_CHECK(strcmp(tn_tensor_name(common), "common") == 0);
    TN_CHECK(tn_tensor_flags(common) == TN_PARAMETER);
    TN_CHECK_OK(tn_tensor_to_dlpack(common, &managed));
    TN_CHECK_OK(tn_tensor_reshape(common, 2, (int64_t[]){8, 8}, &view));
    if (DID(tn_tensor_clone(w->domain, view, TN_OPTIONS(tn_tensor_options, .deadline = soon()),
                            &copy),
            TN_ERR_TIMED_OUT)) {
        check(copy);
        tn_tensor_unref(copy);
    }
    managed->deleter(managed);
    tn_tensor_unref(view);
}

TN_TEST(a_tensor_with_attributes_can_be_read_by_many_threads)
{
    const int64_t count = 64;
    world_begin(8 << 20);
    TN_CHECK_OK(tn_tensor_create(members[0], TN_UINT32, 1, &count,
                                 TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED),
                                 &common));
    TN_CHECK_OK(tn_tensor_set_name(common, "common"));
    TN_CHECK_OK(tn_tensor_set_flags(common, TN_PARAMETER));
    run_crews((struct crew[]){{read_common, 4}, {NULL, 0}});
    tn_tensor_unref(common);
    world_end();
}

/* A tensor of each thread's own, which has the attributes of the common one at first. */
static void set_own(struct worker *w)
{
    const int64_t count = 64;
    tn_tensor *own;
    TN_CHECK_OK(tn_tensor_create_private(TN_UINT32, 1, &count, &own));
    for (uint32_t i = 0; i < 64; i++) {
        TN_CHECK_OK(tn_tensor_copy_attributes(own, common));
        TN_CHECK_OK(tn_tensor_set_flags(own, TN_BUFFER));
        TN_CHECK(strcmp(tn_tensor_name(own), "common") == 0);
        TN_CHECK(tn_tensor_flags(own) == TN_BUFFER);
    }
    tn_tensor_unref(own);
    (void)w;
}

TN_TEST(attributes_of_copies_may_be_set_by_several_threads)
{
    const int64_t count = 64;
    world_begin(8 << 20);
    TN_CHECK_OK(tn_tensor_create(members[0], TN_UINT32, 1, &count,
                                 TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED),
                                 &common));
    TN_CHECK_OK(tn_tensor_set_name(common, "common"));
    run_crews((struct crew[]){{set_own, 4}, {NULL, 0}});
    tn_tensor_unref(common);
    world_end();
}
