/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each test writes one value into a field of shared memory that no member writes. A call that
 * reads the field returns TN_ERR_CORRUPT, or an audit names the field, and what can be
 * repaired is repaired.
 */
#include <stdio.h>
#include <string.h>

#include "harness/harness.h"
#include "harness/live_blocks.h"
#include "queue/ring.h"
#include "reaper/reaper.h"
#include "ref/ref.h"
#include "share/share.h"

static tn_domain *d;
static tn_queue *q;

static void begin(uint32_t policy)
{
    const tn_queue_options options = {
        .struct_size = sizeof options, .capacity = 4, .policy = policy};
    d = tnt_domain(&(tn_domain_options){.struct_size = sizeof(tn_domain_options),
                                        .quota_bytes = 16 << 20,
                                        .seats = 8,
                                        .objects = 16,
                                        .tickets = 16,
                                        .flags = TN_DOMAIN_NO_MANAGER});
    TN_CHECK_OK(tn_queue_open(d, NULL, &options, 0, &q));
}

static void finish(void)
{
    tn_object_close(q);
    TNT_AUDIT(d);
    assert_int_equal(live_blocks(d), 0);
    tn_domain_close(d);
}

static tn_tensor *make(void)
{
    const int64_t count = 4;
    tn_tensor *t;
    TN_CHECK_OK(tn_tensor_create(d, TN_UINT8, 1, &count,
                                 TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED), &t));
    return t;
}

static struct tni_slot *slot(uint32_t index)
{
    return (struct tni_slot *)(void *)(tni_queue_of(q)->slots +
                                       (size_t)index * tni_queue_of(q)->slot_bytes);
}

struct findings {
    int count, repaired;
    char text[1024];
};
static int note(const char *sentence, bool repaired, void *context)
{
    struct findings *f = context;
    f->count++;
    f->repaired += repaired;
    strncat(f->text, sentence, sizeof f->text - strlen(f->text) - 1);
    return 0;
}

/* An audit says `words`, and does or does not repair it. */
static void assert_found(const char *words, bool is_repaired)
{
    struct findings f = {0};
    int found = tn_domain_audit(d, true, note, &f, NULL);
    assert_int_equal(found, f.count);
    if (strstr(f.text, words) == NULL)
        fail_msg("the audit says '%s', and not '%s'", f.text, words);
    assert_int_equal(f.repaired, is_repaired ? f.count : 0);
}

/* ---- messages ---------------------------------------------------------------------------- */

static void push_two(void)
{
    tn_tensor *t[2] = {make(), make()};
    TN_CHECK_OK(
        tn_queue_push(q, &(tn_message){.tensors = t, .tensor_count = 2}, TN_PUSH_MOVE, TN_NOW));
}

static struct tni_records *message_of_slot(void)
{
    return tni_payload_at(&d->segment, (tni_block){slot(0)->block});
}

/* The message is dropped, and the process that repairs gives back what it held. */
static void assert_dropped(void)
{
    tn_message message;
    assert_int_equal(tn_queue_pop(q, TN_NOW, &message), TN_ERR_CORRUPT);
    assert_int_equal(tn_queue_pop(q, TN_NOW, &message), TN_ERR_TIMED_OUT);
    struct findings f = {0};
    assert_true(tn_domain_audit(d, true, note, &f, NULL) >= 0);
}

TN_TEST(a_message_block_with_too_many_records_is_corrupt)
{
    begin(TN_QUEUE_REDELIVER);
    push_two();
    atomic_store(&message_of_slot()->count, 1u << 30);
    assert_dropped();
    finish();
}

TN_TEST(a_message_block_with_fewer_records_than_tensors_is_corrupt)
{
    begin(TN_QUEUE_REDELIVER);
    push_two();
    message_of_slot()->limit = 1;
    assert_dropped();
    finish();
}

TN_TEST(a_message_whose_bytes_lie_in_no_block_is_corrupt)
{
    begin(TN_QUEUE_REDELIVER);
    push_two();
    message_of_slot()->payload_block = 0x3fffffff;
    assert_dropped();
    finish();
}

TN_TEST(a_view_of_another_block_than_its_record_is_corrupt)
{
    begin(TN_QUEUE_REDELIVER);
    tn_tensor *other = make();
    push_two();
    struct tni_records *r = message_of_slot();
    struct tni_view *view =
        (struct tni_view *)(void *)((uint8_t *)r +
                                    tni_align_up(sizeof *r + r->limit * sizeof(uint32_t), 8));
    view->block = other->storage->block.id;
    view->generation = tni_ref_generation(d, other->storage->block);
    assert_dropped();
    tn_tensor_unref(other);
    finish();
}

TN_TEST(a_slot_that_names_no_block_is_corrupt)
{
    begin(TN_QUEUE_REDELIVER);
    TN_CHECK_OK(tn_queue_push_tensor(q, make(), TN_PUSH_MOVE, TN_NOW));
    slot(0)->block = 0x3fffffff;
    assert_dropped();
    finish();
}

TN_TEST(a_slot_of_a_form_that_does_not_exist_is_corrupt)
{
    begin(TN_QUEUE_LEASE);
    TN_CHECK_OK(tn_queue_push(q, &(tn_message){.bytes = "x", .size_bytes = 1}, 0, TN_NOW));
    slot(0)->form = 99;
    assert_dropped();
    finish();
}

/* Hints: a wrong one costs a look, never a message. */
TN_TEST(a_head_beyond_a_message_moves_back_to_it)
{
    tn_tensor *t;
    begin(TN_QUEUE_REDELIVER);
    TN_CHECK_OK(tn_queue_push_tensor(q, make(), TN_PUSH_MOVE, TN_NOW));
    atomic_fetch_add(&q->object->head, tni_position(1, 0));
    TN_CHECK_OK(tn_queue_pop_tensor(q, TN_FOREVER, &t));
    assert_int_equal(atomic_load(&q->object->head), 1);
    tn_tensor_unref(t);
    finish();
}

TN_TEST(a_slot_that_is_rounds_ahead_of_the_tail_is_corrupt)
{
    begin(TN_QUEUE_REDELIVER);
    const uint64_t word =
        atomic_exchange(&slot(0)->word, tni_slot_word(7, TNI_SLOT_EMPTY, 0, 0));
    const tn_message message = {.bytes = "x", .size_bytes = 1};
    assert_int_equal(tn_queue_push(q, &message, 0, TN_NOW), TN_ERR_CORRUPT);
    atomic_store(&slot(0)->word, word);
    TN_CHECK_OK(tn_queue_push(q, &message, 0, TN_NOW));
    finish();
}

TN_TEST(a_message_block_that_names_no_block_for_its_bytes_is_corrupt)
{
    begin(TN_QUEUE_REDELIVER);
    tn_tensor *t = make();
    static uint8_t bytes[1 << 20];
    const tn_message message = {
        .tensors = &t, .tensor_count = 1, .bytes = bytes, .size_bytes = sizeof bytes};
    TN_CHECK_OK(tn_queue_push(q, &message, 0, TN_NOW));
    message_of_slot()->payload_block = 0x3fffffff;
    assert_dropped();
    tn_tensor_unref(t);
    finish();
}

/* ---- objects ----------------------------------------------------------------------------- */

TN_TEST(a_queue_with_damaged_numbers_cannot_be_opened)
{
    tn_queue *again;
    begin(TN_QUEUE_REDELIVER);
    struct tni_object *object = q->object;
    const uint32_t capacity = object->capacity, ring = atomic_load(&object->ring);
    object->capacity = 0;
    assert_int_equal(tn_object_open_id(d, TN_OBJECT_QUEUE, tn_object_id(q), &again),
                     TN_ERR_CORRUPT);
    object->capacity = capacity;
    atomic_store(&object->ring, 0x3fffffff);
    assert_int_equal(tn_object_open_id(d, TN_OBJECT_QUEUE, tn_object_id(q), &again),
                     TN_ERR_CORRUPT);
    atomic_store(&object->ring, ring);
    TN_CHECK_OK(tn_object_open_id(d, TN_OBJECT_QUEUE, tn_object_id(q), &again));
    tn_object_close(again);
    finish();
}

TN_TEST(an_owned_semaphore_without_its_counts_cannot_be_opened)
{
    tn_semaphore *semaphore, *again;
    begin(TN_QUEUE_REDELIVER);
    TN_CHECK_OK(tn_semaphore_open(d, NULL, 2, TN_SEMAPHORE_OWNED, &semaphore));
    struct tni_object *object = ((struct tn_object *)(void *)semaphore)->object;
    const uint32_t ring = atomic_load(&object->ring);
    atomic_store(&object->ring, 0);
    assert_int_equal(tn_object_open_id(d, TN_OBJECT_SEMAPHORE, tn_object_id(semaphore), &again),
                     TN_ERR_CORRUPT);
    atomic_store(&object->ring, ring);
    tn_object_close(semaphore);
    finish();
}

TN_TEST(a_handle_of_an_ended_object_is_stale)
{
    begin(TN_QUEUE_REDELIVER);
    struct tni_object *object = q->object;
    const uint64_t word = atomic_load(&object->word);
    atomic_store(&object->word, word + (UINT64_C(1) << 32));
    assert_int_equal(tn_queue_end(q), TN_ERR_STALE);
    atomic_store(&object->word, word);
    finish();
}

/* An unused entry of the table, in a state that only a death could have left. */
static struct tni_object *spare(uint64_t word)
{
    struct tni_object *object = tni_object_at(&d->segment, 9);
    tni_raise_limit(&d->segment.header->object_limit, 10);
    atomic_store(&object->word, word);
    return object;
}

TN_TEST(an_object_left_half_made_or_half_ended_is_finished)
{
    begin(TN_QUEUE_REDELIVER);
    spare(tni_object_word(5, 7, TNI_OBJECT_MAKING, TNI_OBJECT_EVENT));
    assert_found("half made, and no live process makes it", true);
    spare(tni_object_word(6, 7, TNI_OBJECT_ENDING, TNI_OBJECT_EVENT));
    assert_found("half ended, and no live process ends it", true);
    finish();
}

TN_TEST(an_object_in_a_state_that_does_not_exist_is_named)
{
    begin(TN_QUEUE_REDELIVER);
    struct tni_object *object = spare(tni_object_word(5, 0, 77, TNI_OBJECT_EVENT));
    struct findings f = {0};
    assert_int_equal(tn_domain_audit(d, false, note, &f, NULL), 1);
    assert_non_null(strstr(f.text, "in a state that does not exist"));
    atomic_store(&object->word, tni_object_word(6, 0, TNI_OBJECT_FREE, 0));
    finish();
}

/* A seat's row of opens that leaves an object out would have its death pass the object by. */
TN_TEST(an_opener_that_its_row_leaves_out_is_found_and_repaired)
{
    begin(TN_QUEUE_REDELIVER);
    tni_bit_clear(tni_opens_of(&d->segment, d->seat), 0);
    assert_found("object 0 is open in seat 0, whose row does not say so", true);
    assert_true(tni_bit_is_set(tni_opens_of(&d->segment, d->seat), 0));
    finish();
}

/* ---- names ------------------------------------------------------------------------------- */

static void assert_names(const char *const *names, tn_event *const *events, int count)
{
    for (int i = 0; i < count; i++) {
        tn_event *again;
        TN_CHECK_OK(tn_event_open(d, names[i], TN_OPEN_EXISTING, &again));
        assert_true(tn_object_id(again) == tn_object_id(events[i]));
        tn_object_close(again);
    }
}

/* Whatever a chain of names leads to, each name is found, or not, as if it were right. */
TN_TEST(chains_are_rebuilt_when_one_names_a_wrong_object)
{
    static const char *const names[] = {"a", "b", "c", "d", "e", "f"};
    tn_event *events[TNI_COUNT(names)], *none;
    begin(TN_QUEUE_REDELIVER);
    for (size_t i = 0; i < TNI_COUNT(names); i++)
        TN_CHECK_OK(tn_event_open(d, names[i], TN_OPEN_NEW, &events[i]));
    const uint32_t heads = tni_geometry_names(&d->segment.geometry);
    const uint32_t strays[] = {9, 17, 1u << 30, UINT32_MAX}; /* free; none at all */
    for (uint32_t stray = 0; stray < TNI_COUNT(strays); stray++) {
        for (uint32_t n = 0; n < heads; n++)
            atomic_store(tni_name_at(&d->segment, n), strays[stray]);
        assert_names(names, events, TNI_COUNT(names));
    }
    /* Each object in the wrong chain, and each chain a circle. */
    for (uint32_t n = 0; n < heads; n++)
        atomic_store(tni_name_at(&d->segment, n), 2 + n % TNI_COUNT(names));
    for (uint32_t i = 1; i <= TNI_COUNT(names); i++)
        atomic_store(&tni_object_at(&d->segment, i)->name_next, i + 1);
    assert_names(names, events, TNI_COUNT(names));
    assert_int_equal(tn_event_open(d, "none", TN_OPEN_EXISTING, &none), TN_ERR_NOT_FOUND);
    for (size_t i = 0; i < TNI_COUNT(names); i++)
        tn_object_close(events[i]);
    finish();
}

/* Each name that is not there is looked for until one belongs to the chain without an end. */
TN_TEST(chains_are_rebuilt_when_one_is_a_circle)
{
    enum { MOST = 10000 };
    tn_event *event, *none;
    begin(TN_QUEUE_REDELIVER);
    TN_CHECK_OK(tn_event_open(d, "a", TN_OPEN_NEW, &event));
    const uint32_t index = tni_object_id_index(tn_object_id(event));
    struct tni_object *object = tni_object_at(&d->segment, index);
    atomic_store(&object->name_next, index + 1);
    for (int i = 0; i < MOST && atomic_load(&object->name_next) != 0; i++) {
        char name[16];
        snprintf(name, sizeof name, "none-%d", i);
        assert_int_equal(tn_event_open(d, name, TN_OPEN_EXISTING, &none), TN_ERR_NOT_FOUND);
    }
    assert_int_equal(atomic_load(&object->name_next), 0);
    assert_names((const char *const[]){"a"}, &event, 1);
    tn_object_close(event);
    finish();
}

TN_TEST(a_name_that_no_chain_leads_to_is_found_and_repaired)
{
    tn_event *event, *again;
    begin(TN_QUEUE_REDELIVER);
    TN_CHECK_OK(tn_event_open(d, "lost", TN_OPEN_NEW, &event));
    for (uint32_t n = 0; n < tni_geometry_names(&d->segment.geometry); n++)
        atomic_store(tni_name_at(&d->segment, n), 0);
    assert_found("is not found by its name 'lost'", true);
    TN_CHECK_OK(tn_event_open(d, "lost", TN_OPEN_EXISTING, &again));
    tn_object_close(again);
    tn_object_close(event);
    finish();
}

/* ---- seats ------------------------------------------------------------------------------- */

TN_TEST(a_seat_in_an_unknown_state_is_named_and_not_reclaimed)
{
    begin(TN_QUEUE_REDELIVER);
    struct tni_seat *seat = tni_seat_at(&d->segment, 5);
    tni_raise_limit(&d->segment.header->seat_limit, 6);
    atomic_store(&seat->word, tni_seat_word(3, 99, 0));
    assert_int_equal(tn_domain_reap(d, NULL), TN_ERR_CORRUPT);
    assert_found("is in state 99, which does not exist", false);
    atomic_store(&seat->word, tni_seat_word(3, TNI_SEAT_FREE, 0));
    finish();
}

/* ---- counts ------------------------------------------------------------------------------ */

TN_TEST(more_records_than_the_count_are_damage_that_an_audit_repairs)
{
    begin(TN_QUEUE_REDELIVER);
    tn_tensor *t = make();
    TN_CHECK_OK(tn_queue_push_tensor(q, t, 0, TN_NOW));
    _Atomic uint64_t *word = tni_word_at(&d->segment, t->storage->block);
    atomic_store(word, tni_word_next(atomic_load(word), TNI_BLOCK_ALLOC, 1));
    /*
     * The announce of a dead seat has the reaper check this block: the reaper must not make
     * it worse.
     */
    struct tni_seat *seat = tni_seat_at(&d->segment, 5);
    tni_raise_limit(&d->segment.header->seat_limit, 6);
    atomic_store(&tni_announce_at(&d->segment, 5, 0)->block, t->storage->block.id);
    atomic_store(&seat->word, tni_seat_word(1, TNI_SEAT_REAPING, 0xffffff));
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    assert_int_equal(tni_word_count(atomic_load(word)), 1);
    assert_found("", true);
    assert_int_equal(tni_word_count(atomic_load(word)), 2);
    tn_tensor_unref(t);
    finish();
}

/* ---- tickets ----------------------------------------------------------------------------- */

static size_t export(tn_tensor *t, uint8_t *bytes, uint32_t uses, struct tni_ticket **ret)
{
    const tn_handle_options options = {.struct_size = sizeof options, .uses = uses};
    size_t used;
    TN_CHECK_OK(tn_handle_export(t, &options, bytes, TN_HANDLE_MAX_BYTES, &used));
    for (uint32_t i = 0; i < d->segment.geometry.tickets; i++)
        if (atomic_load(&tni_ticket_at(&d->segment, i)->block) == t->storage->block.id)
            *ret = tni_ticket_at(&d->segment, i);
    return used;
}

TN_TEST(a_ticket_that_names_no_block_is_corrupt)
{
    uint8_t bytes[TN_HANDLE_MAX_BYTES];
    struct tni_ticket *ticket = NULL;
    tn_tensor *another;
    uint64_t id;
    begin(TN_QUEUE_REDELIVER);
    tn_tensor *t = make();
    size_t used = export(t, bytes, 2, &ticket);
    TN_CHECK_OK(tni_handle_ticket(bytes, used, &id));
    const uint32_t block = atomic_exchange(&ticket->block, 0x3fffffff);
    assert_int_equal(tn_handle_import(d, bytes, used, &another), TN_ERR_CORRUPT);
    assert_int_equal(tni_ticket_revoke(d, id), TN_ERR_CORRUPT);
    atomic_store(&ticket->block, block);
    tn_tensor_unref(t);
    TN_CHECK_OK(tni_ticket_revoke(d, id));
    finish();
}

TN_TEST(a_ticket_of_another_generation_of_its_block_is_corrupt)
{
    uint8_t bytes[TN_HANDLE_MAX_BYTES];
    struct tni_ticket *ticket = NULL;
    tn_tensor *another;
    begin(TN_QUEUE_REDELIVER);
    tn_tensor *t = make();
    size_t used = export(t, bytes, 2, &ticket);
    struct tni_desc *desc = tni_desc_at(&d->segment, t->storage->block);
    desc->generation++;
    assert_int_equal(tn_handle_import(d, bytes, used, &another), TN_ERR_CORRUPT);
    desc->generation--;
    TN_CHECK_OK(tn_handle_revoke(d, bytes, used));
    tn_tensor_unref(t);
    finish();
}

TN_TEST(a_live_ticket_without_a_use_is_corrupt)
{
    uint8_t bytes[TN_HANDLE_MAX_BYTES];
    struct tni_ticket *ticket = NULL;
    tn_tensor *another;
    begin(TN_QUEUE_REDELIVER);
    tn_tensor *t = make();
    size_t used = export(t, bytes, 2, &ticket);
    const uint64_t word = atomic_fetch_and(&ticket->word, ~UINT64_C(0xfffff));
    assert_int_equal(tn_handle_import(d, bytes, used, &another), TN_ERR_CORRUPT);
    atomic_store(&ticket->word, word);
    for (unsigned i = 0; i < 2; i++) {
        TN_CHECK_OK(tn_handle_import(d, bytes, used, &another));
        tn_tensor_unref(another);
    }
    tn_tensor_unref(t);
    finish();
}

TN_TEST(a_ticket_left_half_made_is_undone)
{
    begin(TN_QUEUE_REDELIVER);
    struct tni_ticket *ticket = tni_ticket_at(&d->segment, 3);
    tni_raise_limit(&d->segment.header->ticket_limit, 4);
    atomic_store(&ticket->word, UINT64_C(9) << 28 | (uint64_t)TNI_TICKET_MAKING << 20 | 6);
    atomic_store(&ticket->issuer, tni_who(6, 0));
    assert_found("ticket 3 is half made, and the process that made it has ended", true);
    finish();
}

/* ---- what only tells where to look ------------------------------------------------------- */

TN_TEST(a_cursor_that_points_beyond_its_class_is_no_harm)
{
    begin(TN_QUEUE_DROP);
    tn_tensor_unref(make());
    for (uint32_t i = 1; i < d->segment.geometry.class_count; i++)
        atomic_store(&tni_class_at(&d->segment, i)->cursor, UINT32_MAX);
    tn_tensor *many[64];
    for (int i = 0; i < 64; i++)
        many[i] = make();
    assert_int_equal(live_blocks(d), 64 + 1); /* and the queue's slots */
    for (int i = 0; i < 64; i++)
        tn_tensor_unref(many[i]);
    finish();
}
