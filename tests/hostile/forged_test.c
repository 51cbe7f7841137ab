/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Single words of shared memory that were given a wrong value, each of which once crashed or
 * blocked the process that read it.
 */
#include <string.h>
#include <unistd.h>

#include "harness/harness.h"
#include "queue/ring.h"
#include "reaper/reaper.h"
#include "ref/ref.h"

#define MS_NS UINT64_C(1000000)
enum { SOON_MS = 50, MOST_MS = 5000, CLAIM_MS = 15000 };

__attribute__((constructor)) static void ring_once(void) { tni_os_bell_ring(1); }

static const tn_domain_options small = {.struct_size = sizeof small,
                                        .quota_bytes = 16 << 20,
                                        .seats = 8,
                                        .blocks = 256,
                                        .objects = 8,
                                        .tickets = 8,
                                        .flags = TN_DOMAIN_NO_MANAGER};

static uint64_t ms_since(uint64_t begun_ns) { return (tni_os_now_ns() - begun_ns) / MS_NS; }

static tn_tensor *make(tn_domain *d)
{
    const int64_t bytes = 64;
    tn_tensor *t = NULL;
    TN_CHECK_OK(tn_tensor_create(d, TN_UINT8, 1, &bytes,
                                 TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED), &t));
    return t;
}

/* ---- loops ------------------------------------------------------------------------------- */

TN_TEST(a_ring_whose_slots_are_rounds_ahead_is_corrupt)
{
    tn_domain *d = tnt_domain(&small);
    tn_queue *q;
    TN_CHECK_OK(tn_queue_open(d, "q", NULL, TN_OPEN_NEW, &q));
    const struct tni_queue *own = tni_queue_of(q);
    for (uint32_t i = 0; i < own->capacity; i++) {
        struct tni_slot *slot = (void *)(own->slots + (size_t)i * own->slot_bytes);
        atomic_store(&slot->word, tni_slot_word(0x40000000, TNI_SLOT_EMPTY, 0, 0));
    }
    const tn_message message = {.bytes = "x", .size_bytes = 1};
    uint64_t begun_ns = tni_os_now_ns();
    assert_int_equal(tn_queue_push(q, &message, 0, tnt_deadline(SOON_MS)), TN_ERR_CORRUPT);
    assert_in_range(ms_since(begun_ns), 0, MOST_MS);
    tn_object_close(q);
    tn_domain_close(d);
}

TN_TEST(a_semaphore_whose_count_of_permits_is_huge_is_closed_at_once)
{
    tn_domain *d = tnt_domain(&small);
    tn_semaphore *semaphore;
    TN_CHECK_OK(tn_semaphore_open(d, "s", 2, TN_OPEN_NEW | TN_SEMAPHORE_OWNED, &semaphore));
    struct tni_object *object = ((struct tn_object *)semaphore)->object;
    _Atomic uint32_t *held = tni_object_ring(&d->segment, object, 4);
    atomic_store(&held[d->seat], UINT32_MAX);
    object->capacity = UINT32_MAX;
    uint64_t begun_ns = tni_os_now_ns();
    tn_object_close(semaphore);
    assert_in_range(ms_since(begun_ns), 0, MOST_MS);
    tn_domain_close(d);
}

TN_TEST(a_wait_word_that_keeps_changing_ends_no_later_than_deadline)
{
    tn_domain *d = tnt_domain(&small);
    _Atomic uint32_t word = 1;
    /* Each read finds another value than the one that was armed. */
    uint64_t begun_ns = tni_os_now_ns();
    struct tni_wait wait = {.deadline_ns = tnt_until_ns(SOON_MS)};
    while (tni_process_sleep(d, &word, 0, &wait) == 0)
        TN_CHECK(ms_since(begun_ns) < MOST_MS);
    tn_domain_close(d);
}

/* ---- claims ------------------------------------------------------------------------------ */

static void expect_queue(tn_domain *d, uint64_t claim)
{
    tn_queue *q;
    atomic_store(&d->segment.header->registry, claim);
    uint64_t begun_ns = tni_os_now_ns();
    TN_CHECK_OK(tn_queue_open(d, NULL, NULL, 0, &q));
    atomic_store(&d->segment.header->registry, claim);
    tn_object_close(q);
    assert_in_range(ms_since(begun_ns), 0, MOST_MS);
}

TN_TEST(a_claim_on_names_without_an_owner_is_taken_over)
{
    tn_domain *d = tnt_domain(&small);
    expect_queue(d, UINT64_C(0x123456789abcdef0));
    expect_queue(d, tni_who(7, 0));               /* a free seat */
    expect_queue(d, tni_who(d->seat, 0x1234567)); /* of another incarnation */
    expect_queue(d, d->who); /* the name of this process, of which no thread has it */
    atomic_store(&d->segment.header->recount, d->who);
    assert_int_equal(tn_domain_audit(d, true, NULL, NULL, NULL), 0);
    TNT_AUDIT(d);
    tn_domain_close(d);
}

static int sit(void *argument)
{
    struct tnt_signal *signals = argument;
    tnt_signal(&signals[0]);
    tnt_await(&signals[1]);
    return 0;
}

TN_TEST(a_name_claim_that_is_never_released_is_an_error_not_a_hang)
{
    tn_domain *d = tnt_domain(&small);
    tn_queue *q, *other;
    struct tnt_signal signals[2] = {tnt_signal_open(), tnt_signal_open()};
    TN_CHECK_OK(tn_queue_open(d, "q", NULL, TN_OPEN_NEW, &q));
    pid_t pid = tnt_fork(sit, signals);
    tnt_await(&signals[0]);
    uint32_t seat = d->seat == 0 ? 1 : 0;
    uint64_t word = atomic_load(&tni_seat_at(&d->segment, seat)->word);
    atomic_store(&d->segment.header->registry, tni_who(seat, tni_seat_incarnation(word)));
    uint64_t begun_ns = tni_os_now_ns();
    assert_int_equal(tn_queue_open(d, NULL, NULL, 0, &other), TN_ERR_TIMED_OUT);
    tn_object_close(q);
    assert_in_range(ms_since(begun_ns), 0, CLAIM_MS);
    atomic_store(&d->segment.header->registry, 0);
    TN_CHECK_OK(tn_queue_open(d, NULL, NULL, 0, &other));
    tn_object_close(other);
    tnt_signal(&signals[1]);
    tnt_wait_ok(pid);
    tnt_signal_close(&signals[0]);
    tnt_signal_close(&signals[1]);
    tn_domain_close(d);
}

TN_TEST(a_lock_that_a_thread_holds_which_is_none_is_corrupt)
{
    tn_domain *d = tnt_domain(&small);
    tn_lock *lock;
    TN_CHECK_OK(tn_lock_open(d, "l", TN_OPEN_NEW, &lock));
    _Atomic uint64_t *value = &((struct tn_object *)lock)->object->value;
    TN_CHECK_OK(tn_lock_acquire(lock, TN_NOW));
    const uint64_t own = atomic_load(value);
    const uint64_t forged[] = {
        own | 0xffffff,                                      /* no such thread */
        (own & ~UINT64_C(0xffff000000)) | UINT64_C(5) << 24, /* a free seat */
        own ^ UINT64_C(1) << 45,                             /* another incarnation */
        own | UINT64_C(0xffff) << 24,                        /* no seat at all */
    };
    for (size_t i = 0; i < TNI_COUNT(forged); i++) {
        atomic_store(value, forged[i]);
        uint64_t begun_ns = tni_os_now_ns();
        assert_int_equal(tn_lock_acquire(lock, TN_FOREVER), TN_ERR_CORRUPT);
        assert_in_range(ms_since(begun_ns), 0, MOST_MS);
    }
    atomic_store(value, own);
    TN_CHECK_OK(tn_lock_release(lock));
    tn_object_close(lock);
    tn_domain_close(d);
}

/* ---- indexes ----------------------------------------------------------------------------- */

TN_TEST(a_block_that_we_hold_is_not_given_to_us_again)
{
    tn_domain *d = tnt_domain(&small);
    tn_tensor *t = make(d), *again = NULL;
    tni_block block = {((const struct tn_tensor *)t)->storage->block.id};
    const int64_t bytes = 64;
    atomic_store(tni_word_at(&d->segment, block), 0); /* FREE */
    d->threads[0].caches[tni_block_class(block)].count = 1;
    d->threads[0].caches[tni_block_class(block)].id[0] = block.id;
    TN_CHECK_OK(tn_tensor_create(d, TN_UINT8, 1, &bytes,
                                 TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED),
                                 &again));
    assert_false(tn_tensor_same_storage(t, again));
    tn_tensor_unref(again);
    tn_tensor_unref(t);
    tn_domain_close(d);
}

TN_TEST(frontiers_that_moved_back_do_not_free_what_tensors_point_at)
{
    tn_domain *d = tnt_domain(&small);
    tn_tensor *tensors[20];
    for (size_t i = 0; i < TNI_COUNT(tensors); i++)
        tensors[i] = make(d);
    for (uint32_t c = 1; c < d->segment.geometry.class_count; c++)
        atomic_store(&tni_class_at(&d->segment, c)->frontier, 0);
    tn_domain_close(d);
    for (size_t i = 0; i < TNI_COUNT(tensors); i++) {
        assert_int_equal(((volatile uint8_t *)tn_tensor_data(tensors[i]))[0], 0);
        tn_tensor_unref(tensors[i]);
    }
}

TN_TEST(a_message_block_with_too_many_records_is_not_read)
{
    tn_domain *d = tnt_domain(&small);
    static const struct tni_block_about about = {.kind = TNI_KIND_MESSAGE};
    struct tni_new_block made;
    uint32_t count;
    TN_CHECK_OK(tni_ref_alloc(d, 200, &about, 0, &made));
    tni_block block = made.block;
    struct tni_records *records = tni_records_at(&d->segment, block, &count);
    assert_non_null(records);
    atomic_store(&records->count, 0x7fffffff);
    assert_null(tni_records_at(&d->segment, block, &count));
    tn_tensor *t = make(d);
    assert_int_equal(
        tni_records_add(d, block, ((const struct tn_tensor *)t)->storage->block, false),
        TN_ERR_CORRUPT);
    assert_true(tn_domain_audit(d, false, NULL, NULL, NULL) >= 0);
    tni_ref_release(d, block);
    tn_tensor_unref(t);
    tn_domain_close(d);
}

/* ---- tenond ------------------------------------------------------------------------------ */

static bool is_mapped(int32_t pid, const char *name)
{
    char path[64], line[512];
    bool is_found = false;
    snprintf(path, sizeof path, "/proc/%d/maps", pid);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL)
        is_found |= strstr(line, name) != NULL;
    fclose(file);
    return is_found;
}

TN_TEST(tenond_drops_a_domain_that_overwrote_its_seat)
{
    tn_domain *good, *bad;
    int none = -1;
    TN_CHECK_OK(tn_domain_open("good", NULL, TN_OPEN_NEW, &good));
    TN_CHECK_OK(tn_domain_open("bad", NULL, TN_OPEN_NEW, &bad));
    uint32_t seat = tni_who_seat(atomic_load(&bad->segment.header->manager));
    int32_t tenond = atomic_load(&tni_seat_at(&bad->segment, seat)->pid);
    assert_true(is_mapped(tenond, "tenon-control:bad"));
    atomic_store(&tni_seat_at(&bad->segment, seat)->flags, 0);
    tn_domain_close(bad);
    for (uint64_t end_ns = tnt_until_ns(MOST_MS); is_mapped(tenond, "tenon-control:bad");) {
        TN_CHECK(tni_os_now_ns() < end_ns);
        tni_os_poll(&none, 1, tnt_until_ns(20));
    }
    tn_domain *again;
    TN_CHECK_OK(tn_domain_open("good", NULL, TN_OPEN_EXISTING, &again));
    tn_domain_close(again);
    tn_domain_close(good);
}
