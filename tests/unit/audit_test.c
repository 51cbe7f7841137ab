/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an audit says: each sentence is brought about once, by a single field that is changed,
 * and is not said any more when the field is as it was, or was repaired.
 */
#include <string.h>

#include "harness/harness.h"
#include "harness/live_blocks.h"
#include "queue/ring.h"
#include "reaper/reaper.h"
#include "ref/ref.h"

static tn_domain *d;
static tn_queue *q;
static tn_tensor *t;
static struct tni_object *object;

static void begin(void)
{
    const int64_t count = 4;
    d = tnt_domain(&(tn_domain_options){.struct_size = sizeof(tn_domain_options),
                                        .quota_bytes = 16 << 20,
                                        .seats = 32,
                                        .objects = 16,
                                        .tickets = 16,
                                        .flags = TN_DOMAIN_NO_MANAGER});
    TN_CHECK_OK(tn_queue_open(d, NULL, NULL, 0, &q));
    TN_CHECK_OK(tn_tensor_create(d, TN_UINT8, 1, &count,
                                 TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED), &t));
    object = q->object;
}

static void finish(void)
{
    tn_tensor_unref(t);
    tn_object_close(q);
    TNT_AUDIT(d);
    assert_int_equal(live_blocks(d), 0);
    tn_domain_close(d);
}

struct findings {
    int count, repaired, stop_after;
    char text[4096];
};
static int note(const char *sentence, bool repaired, void *context)
{
    struct findings *f = context;
    f->count++;
    f->repaired += repaired;
    strncat(f->text, sentence, sizeof f->text - strlen(f->text) - 1);
    strncat(f->text, "\n", sizeof f->text - strlen(f->text) - 1);
    return f->count == f->stop_after ? 7 : 0;
}

static void assert_says(const char *words, bool repair)
{
    struct findings f = {0};
    assert_true(tn_domain_audit(d, repair, note, &f, NULL) > 0);
    if (strstr(f.text, words) == NULL)
        fail_msg("the audit says '%s', and not '%s'", f.text, words);
}

static _Atomic uint64_t *word_of(tni_block block) { return tni_word_at(&d->segment, block); }

/* ---- records ----------------------------------------------------------------------------- */

TN_TEST(a_record_of_a_block_that_does_not_exist_is_reported)
{
    begin();
    TN_CHECK_OK(tn_queue_push_tensor(q, t, 0, TN_NOW));
    struct tni_slot *slot = (struct tni_slot *)(void *)tni_queue_of(q)->slots;
    const uint32_t block = slot->block;
    slot->block = 0x3fffffff;
    assert_says("1 records name blocks that do not exist, such as block 3fffffff", false);
    slot->block = block;
    finish();
}

TN_TEST(a_wrong_count_is_reported_with_all_holders)
{
    const int64_t count = 4;
    uint8_t bytes[TN_HANDLE_MAX_BYTES];
    size_t used;
    tn_tensor *other;
    tn_message message;
    begin();
    TN_CHECK_OK(tn_tensor_create(d, TN_UINT8, 1, &count,
                                 TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED),
                                 &other));
    tn_tensor *both[2] = {t, other};
    TN_CHECK_OK(tn_handle_export(t, NULL, bytes, sizeof bytes, &used));
    TN_CHECK_OK(tn_queue_push(q, &(tn_message){.tensors = both, .tensor_count = 2}, 0, TN_NOW));
    TN_CHECK_OK(tn_queue_push_tensor(q, t, 0, TN_NOW));
    const tni_block block = t->storage->block;
    atomic_fetch_add(word_of(block), TNI_WORD_INC);
    assert_says("in messages; 1 in queues; 1 in tickets", false);
    assert_says("seat 0", true);
    TNT_AUDIT(d);
    tn_tensor *again;
    TN_CHECK_OK(tn_handle_import(d, bytes, used, &again));
    tn_tensor_unref(again);
    while (tn_queue_pop(q, TN_NOW, &message) == 0)
        tn_message_fini(&message);
    tn_tensor_unref(other);
    finish();
}

TN_TEST(a_block_that_a_stopped_thread_announces_is_unchecked)
{
    enum { LAST = TNI_THREADS - 1 }; /* a thread record of this process that no thread uses */
    struct findings f = {0};
    begin();
    const tni_block block = t->storage->block;
    struct tni_announce *stopped = tni_announce_at(&d->segment, d->seat, LAST);
    atomic_fetch_add(word_of(block), TNI_WORD_INC);
    atomic_store(&stopped->block, block.id);
    atomic_store(&stopped->span, 1);
    uint32_t unchecked;
    assert_int_equal(tn_domain_audit(d, false, note, &f, &unchecked), 0);
    assert_int_equal(unchecked, 1);
    atomic_store(&stopped->block, 0);
    assert_says("but 1 records name it", true);
    finish();
}

TN_TEST(no_more_than_eight_seats_are_named)
{
    begin();
    const tni_block block = t->storage->block;
    const uint32_t at = tni_block_position(&d->segment.geometry, block);
    tni_raise_limit(&d->segment.header->seat_limit, 20);
    for (uint32_t seat = 1; seat < 12; seat++)
        atomic_fetch_or(tni_row_at(&d->segment, seat, at), UINT64_C(1) << (at % 64));
    assert_says("and 4 more seats", false);
    for (uint32_t seat = 1; seat < 12; seat++)
        atomic_store(tni_row_at(&d->segment, seat, at), 0);
    finish();
}

TN_TEST(a_free_block_with_a_count_is_repaired)
{
    begin();
    const tni_block block = t->storage->block;
    t = tn_tensor_unref(t);
    atomic_store(word_of(block), tni_word_next(atomic_load(word_of(block)), TNI_BLOCK_FREE, 3));
    assert_says("free, but its count is 3", true);
    TNT_AUDIT(d);
    finish();
}

/* ---- the tables -------------------------------------------------------------------------- */

TN_TEST(an_object_of_no_known_kind_is_named)
{
    begin();
    const uint64_t word = atomic_load(&object->word);
    atomic_store(&object->word, (word & ~UINT64_C(0xff)) | 99);
    assert_says("of no known kind", false);
    atomic_store(&object->word, word);
    finish();
}

TN_TEST(an_object_that_seats_use_which_do_not_exist_is_named)
{
    begin();
    tni_seat_set_add(&object->watchers, 999);
    assert_says("is used by seats that do not exist", false);
    tni_seat_set_remove(&object->watchers, 999);
    finish();
}

TN_TEST(a_queue_without_a_block_for_its_slots_is_named)
{
    begin();
    const uint32_t ring = atomic_exchange(&object->ring, 0x3fffffff);
    assert_says("has its slots in block 3fffffff, which does not exist", false);
    atomic_store(&object->ring, ring);
    finish();
}

TN_TEST(a_ticket_in_a_state_that_does_not_exist_is_named)
{
    begin();
    struct tni_ticket *ticket = tni_ticket_at(&d->segment, 5);
    tni_raise_limit(&d->segment.header->ticket_limit, 6);
    const uint64_t word = atomic_exchange(&ticket->word, UINT64_C(77) << 20);
    assert_says("ticket 5 is in state 77, which does not exist", false);
    atomic_store(&ticket->word, word);
    finish();
}

TN_TEST(a_ticket_of_a_seat_that_does_not_exist_is_not_undone)
{
    struct findings f = {0};
    begin();
    struct tni_ticket *ticket = tni_ticket_at(&d->segment, 5);
    tni_raise_limit(&d->segment.header->ticket_limit, 6);
    const uint64_t word = atomic_exchange(
        &ticket->word, UINT64_C(3) << 28 | (uint64_t)TNI_TICKET_MAKING << 20 | 999);
    assert_int_equal(tn_domain_audit(d, true, note, &f, NULL), 1);
    assert_int_equal(f.repaired, 0);
    atomic_store(&ticket->word, word);
    finish();
}

/* ---- saying it --------------------------------------------------------------------------- */

TN_TEST(a_callback_can_stop_an_audit_and_gets_clean_text)
{
    struct findings f = {.stop_after = 1};
    tn_event *event;
    begin();
    TN_CHECK_OK(tn_event_open(d, "plain", TN_OPEN_NEW, &event));
    struct tni_object *of_event = ((struct tn_object *)(void *)event)->object;
    memcpy(of_event->name, "pl\x1bin", 5);
    const uint64_t word = atomic_load(&of_event->word), of_queue = atomic_load(&object->word);
    atomic_store(&of_event->word, (word & ~UINT64_C(0xff)) | 99);
    atomic_store(&object->word, (of_queue & ~UINT64_C(0xff)) | 99);
    assert_int_equal(tn_domain_audit(d, false, note, &f, NULL), 7);
    assert_int_equal(f.count, 1);
    assert_int_equal(tn_domain_audit(d, false, NULL, NULL, NULL) > 0, true);
    f = (struct findings){0};
    assert_true(tn_domain_audit(d, false, note, &f, NULL) >= 2);
    assert_non_null(strstr(f.text, "pl?in"));
    atomic_store(&of_event->word, word);
    atomic_store(&object->word, of_queue);
    tn_object_close(event);
    finish();
}
