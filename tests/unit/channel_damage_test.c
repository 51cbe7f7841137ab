/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each word of a channel's ring is overwritten with one hostile number after the other, in a
 * new channel each time. Every call returns, with an error or without one, and so does an audit
 * that repairs; then a channel of the same domain works.
 */
#include <stdio.h>
#include <string.h>

#include "channel/slots.h"
#include "harness/harness.h"

enum { CAPACITY = 4, SUBSCRIBERS = 3 };

static tn_domain *d;
static tn_channel *channel, *one, *other;

static uint32_t published;

/* Every other message is a tensor and nothing else, whose view lies in the slot. */
static int publish(void)
{
    const int64_t count = 16;
    tn_tensor *t;
    int status = tn_tensor_create(d, TN_UINT8, 1, &count, NULL, &t);
    if (status != 0)
        return status;
    memset(tn_tensor_data(t), 7, (size_t)count);
    tn_message m = {.tensors = &t, .tensor_count = 1};
    if (++published % 2 == 0) {
        m.bytes = "bytes";
        m.size_bytes = 5;
    }
    status = tn_channel_publish(channel, &m, TN_NOW);
    tn_tensor_unref(t);
    return status;
}

static bool receive(tn_channel *it)
{
    tn_message m;
    if (tn_channel_receive(it, TN_NOW, &m) != 0)
        return false;
    TN_CHECK(m.tensor_count == 0 || tn_tensor_count(m.tensors[0]) >= 0);
    tn_message_fini(&m);
    return true;
}

static void open_with(uint32_t policy)
{
    TN_CHECK_OK(
        tn_channel_open(d, NULL,
                        TN_OPTIONS(tn_channel_options, .capacity = CAPACITY, .history = 1,
                                   .subscribers = SUBSCRIBERS, .policy = policy),
                        0, &channel));
}

static tn_channel *subscribe(void)
{
    tn_object *it;
    TN_CHECK_OK(tn_object_open_id(d, TN_OBJECT_CHANNEL, tn_object_id(channel), &it));
    TN_CHECK_OK(tn_channel_subscribe(it, TN_FROM_NEWEST));
    return it;
}

/* Two subscribers, one of which is behind, and four messages in the slots. */
static void begin(uint32_t policy)
{
    d = tnt_domain(&(tn_domain_options){.struct_size = sizeof(tn_domain_options),
                                        .quota_bytes = 16 << 20,
                                        .seats = 8,
                                        .blocks = 256,
                                        .objects = 16,
                                        .tickets = 16,
                                        .flags = TN_DOMAIN_NO_MANAGER});
    open_with(policy);
    published = 0;
    one = subscribe();
    for (int i = 0; i < 3; i++) {
        TN_CHECK_OK(publish());
        TN_CHECK(receive(one));
    }
    other = subscribe();
    for (int i = 0; i < CAPACITY; i++)
        TN_CHECK_OK(publish());
    TN_CHECK(receive(one));
}

static int ignore(const char *sentence, bool repaired, void *context)
{
    (void)sentence, (void)repaired, (void)context;
    return 0;
}

static void use_kept(uint32_t object, tni_block block, void *context)
{
    (void)object, (void)block, (void)context;
}

static uint32_t index_of(void) { return tni_object_id_index(tn_object_id(channel)); }
static const char *fault(void) { return tni_channel_fault(&d->segment, index_of()); }

/* Whatever they return. */
static void use_all(void)
{
    struct tni_channel_figures figures;
    tn_channel_info info = {.struct_size = sizeof info};
    (void)!fault();
    tni_channel_figures(&d->segment, index_of(), &figures);
    tni_channel_for_each_kept(&d->segment, use_kept, NULL);
    (void)!tn_channel_get_info(one, &info);
    (void)!tn_domain_audit(d, false, ignore, NULL, NULL);
    for (int i = 0; i < 2 * CAPACITY; i++) {
        receive(one);
        receive(other);
        (void)!publish();
    }
    (void)!tn_channel_subscribe(channel, TN_FROM_OLDEST);
    receive(channel);
    (void)!tn_channel_unsubscribe(other);
    (void)!tn_channel_end(channel);
    receive(one);
    (void)!tn_domain_audit(d, true, ignore, NULL, NULL);
    (void)!tn_domain_reap(d, NULL);
}

static void finish(void)
{
    tn_object_close(one);
    tn_object_close(other);
    tn_object_close(channel);
    (void)!tn_domain_audit(d, true, ignore, NULL, NULL);
    open_with(TN_CHANNEL_WAIT);
    TN_CHECK_OK(tn_channel_subscribe(channel, TN_FROM_NEWEST));
    TN_CHECK_OK(publish());
    TN_CHECK(receive(channel));
    tn_object_close(channel);
    tn_domain_close(d);
}

/* ---- what is overwritten ----------------------------------------------------------------- */

static const struct tni_slots *slots(void) { return &tni_channel_of(channel)->slots; }

/* The n-th word of 4 bytes of a part; NULL: it has no more. */
typedef _Atomic uint32_t *nth_fn(uint32_t n);

static _Atomic uint32_t *nth_of_head(uint32_t n)
{
    return n < sizeof(struct tni_channel) / 4 ? (_Atomic uint32_t *)(void *)slots()->head + n
                                              : NULL;
}
static _Atomic uint32_t *nth_of_subscribers(uint32_t n)
{
    return n < SUBSCRIBERS * sizeof(struct tni_subscriber) / 4
               ? (_Atomic uint32_t *)(void *)slots()->subscribers + n
               : NULL;
}
static _Atomic uint32_t *nth_of_slots(uint32_t n)
{
    return n < CAPACITY * sizeof(struct tni_channel_slot) / 4
               ? (_Atomic uint32_t *)(void *)slots()->slots + n
               : NULL;
}
/* The block of a message: its records, the view of its tensor, its bytes. */
static _Atomic uint32_t *nth_of_message(uint32_t n)
{
    tni_block block = tni_slot_message(&d->segment, atomic_load(&slots()->slots[2].word));
    TN_CHECK(block.id != 0);
    return n < 32 ? (_Atomic uint32_t *)tni_payload_at(&d->segment, block) + n : NULL;
}

static uint32_t hostile(unsigned which, uint32_t old)
{
    const uint32_t numbers[] = {0,          1,        CAPACITY,       CAPACITY + 1,
                                old + 1,    old - 1,  old + CAPACITY, old ^ 1u << 31,
                                UINT32_MAX, 1u << 31, 0x1000000};
    return which < TNI_COUNT(numbers) ? numbers[which] : (uint32_t)tnt_random();
}
enum { NUMBERS = 13 };

/* @return false: there is no such word */
static bool overwrite(nth_fn *nth, uint32_t n, unsigned which, uint32_t policy)
{
    begin(policy);
    _Atomic uint32_t *word = nth(n);
    if (word != NULL) {
        uint32_t old = atomic_load(word), now = hostile(which, old);
        printf("word %u: %#x for %#x, policy %u\n", n, now, old, policy);
        atomic_store(word, now);
        use_all();
    }
    finish();
    return word != NULL;
}

static void overwrite_each(nth_fn *nth)
{
    uint32_t words = 0;
    while (overwrite(nth, words, 0, TN_CHANNEL_WAIT)) {
        for (unsigned which = 0; which < NUMBERS; which++)
            for (uint32_t policy = TN_CHANNEL_WAIT; policy <= TN_CHANNEL_DISCONNECT; policy++)
                TN_CHECK(overwrite(nth, words, which, policy));
        words++;
    }
    tnt_note("%u words, %u numbers each", words, NUMBERS * 3);
    assert_true(words > 0);
}

TN_TEST_WITHIN(hostile_numbers_in_the_head_crash_and_hang_no_call, 120)
{
    overwrite_each(nth_of_head);
}
TN_TEST_WITHIN(hostile_numbers_in_the_subscribers_crash_and_hang_no_call, 120)
{
    overwrite_each(nth_of_subscribers);
}
TN_TEST_WITHIN(hostile_numbers_in_the_slots_crash_and_hang_no_call, 120)
{
    overwrite_each(nth_of_slots);
}
TN_TEST_WITHIN(hostile_numbers_in_a_message_crash_and_hang_no_call, 120)
{
    overwrite_each(nth_of_message);
}

/* ---- what the audit says ----------------------------------------------------------------- */

TN_TEST(a_slot_that_names_no_message_is_a_fault_of_the_channel)
{
    begin(TN_CHANNEL_WAIT);
    assert_null(fault());
    _Atomic uint64_t *word = &slots()->slots[1].word;
    uint64_t seen = atomic_load(word);
    atomic_store(word, tni_channel_word(5, 0x3fffffff));
    assert_non_null(strstr(fault(), "does not exist"));
    atomic_store(word, seen);
    assert_null(fault());
    finish();
}

TN_TEST(a_subscriber_of_a_free_seat_is_a_fault_of_the_channel)
{
    begin(TN_CHANNEL_WAIT);
    atomic_store(&slots()->subscribers[2].owner, tni_who(6, 9));
    assert_non_null(strstr(fault(), "seat is free"));
    atomic_store(&slots()->subscribers[2].owner, 0);
    assert_null(fault());
    finish();
}

TN_TEST(a_channel_without_a_block_is_a_fault)
{
    begin(TN_CHANNEL_WAIT);
    struct tni_object *object = channel->object;
    uint64_t value = atomic_load(&object->value);
    atomic_store(&object->value, UINT64_C(1) << 40 | SUBSCRIBERS);
    assert_non_null(strstr(fault(), "no block"));
    atomic_store(&object->value, value);
    finish();
}
