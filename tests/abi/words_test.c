/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests: the fields of each word of shared memory are the bits that the documents say.
 *
 * The table below has every such word as it is documented. dev/layout-table.py --check makes
 * sure that the sources and docs/layout.md document no other word, and these in no other form.
 */
#include <stdlib.h>
#include <sys/stat.h>

#include "harness/harness.h"
#include "os/os.h"
#include "wait/wait.h"
#include <tenon/tensor.h>

enum { MOST_FIELDS = 6 };

typedef uint64_t get_fn(uint64_t word);
typedef uint64_t make_fn(const uint64_t *field);

#define GET(name, expression)                                                                  \
    static uint64_t name(uint64_t w) { return (uint64_t)(expression); }
#define MAKE(name, expression)                                                                 \
    static uint64_t name(const uint64_t *f) { return (uint64_t)(expression); }
#define U(n) ((uint32_t)f[n])

GET(seat_incarnation, tni_seat_incarnation(w))
GET(seat_state, tni_seat_state(w))
GET(seat_recoverer, tni_seat_recoverer(w))
GET(seat_pid, tni_seat_pid(w))
MAKE(make_seat, tni_seat_word(U(0), U(1), U(2)))
GET(recoverer_seat, tni_recoverer_seat((uint32_t)w))
MAKE(make_recoverer, tni_recoverer(U(1), U(0)))
GET(who_incarnation, tni_who_incarnation(w))
GET(who_seat, tni_who_seat(w))
MAKE(make_who, tni_who(U(1), U(0)))
GET(block_class, tni_block_class((tni_block){(uint32_t)w}))
GET(block_index, tni_block_index((tni_block){(uint32_t)w}))
MAKE(make_block, tni_block_make(U(0), U(1)).id)
GET(word_state, tni_word_state(w))
GET(word_count, tni_word_count(w))
MAKE(make_word, tni_word_next((f[0] - 1) * TNI_WORD_VERSION_ONE, U(1), U(2)))
MAKE(make_recounted, tni_recounted_next((f[0] - 1) << 32, U(1)))
MAKE(make_strategy, tni_strategy_word(U(1), U(0)))
GET(dtype_lanes, TN_DTYPE_LANES(w))
GET(dtype_bits, TN_DTYPE_BITS(w))
GET(dtype_code, TN_DTYPE_CODE(w))
MAKE(make_dtype, TN_DTYPE(U(2), U(1), U(0)))
GET(object_generation, tni_object_generation(w))
GET(object_maker, tni_object_maker(w))
GET(object_state, tni_object_state(w))
GET(object_kind, tni_object_kind(w))
MAKE(make_object, tni_object_word(U(0), U(1), U(2), U(3)))
GET(object_id_generation, tni_object_id_generation(w))
GET(object_id_number, tni_object_id_index(w) + 1)
MAKE(make_object_id, tni_object_id(U(0), U(1) - 1))
GET(death_count, tni_death_count(w))
MAKE(make_death, tni_death_word(U(0), U(1)))
GET(lock_incarnation, tni_lock_incarnation(w))
GET(lock_seat, tni_lock_seat(w))
GET(lock_thread, tni_lock_thread(w))
MAKE(make_lock, (tni_lock_word(U(2), U(3), U(4)) & ~TNI_LOCK_HELD) | f[0] * TNI_LOCK_HELD |
                    f[1] * TNI_LOCK_RECOVERED)
GET(semaphore_permits, tni_semaphore_permits(w))
GET(semaphore_holder, tni_semaphore_one_holder(w) + 1 - (w >> 32 == 0 ? 0x10000 : 0))
MAKE(make_owned, tni_semaphore_one_held(U(0) - 1) | f[1])
GET(barrier_generation, tni_barrier_generation(w))
GET(barrier_fates, tni_barrier_fates(w))
GET(barrier_arrived, tni_barrier_arrived(w))
GET(barrier_fate, tni_barrier_fate(w))
GET(dead_pid, (uint32_t)tni_dead_pid(w))
GET(dead_seat, tni_dead_seat(w))
MAKE(make_dead, tni_dead_make(U(0), U(1)))
GET(slot_round, tni_slot_round(w))
GET(slot_state, tni_slot_state(w))
GET(slot_seat, tni_slot_seat(w))
GET(slot_tag, tni_slot_tag(w))
MAKE(make_slot, tni_slot_word(U(0), U(1), U(2), U(3)))
GET(position_round, tni_position_round(w))
GET(position_index, tni_position_index(w))
MAKE(make_position, tni_position(U(0), U(1)))
GET(store_turn, tni_store_turn(w))
GET(store_block, tni_store_block(w))
MAKE(make_store, tni_store_word(U(0), U(1)))
GET(channel_number, tni_channel_number(w))
GET(channel_block, tni_channel_block(w))
MAKE(make_channel_slot, tni_channel_word(f[0], U(1)))
GET(channel_history, tni_channel_history(w))
GET(channel_subscribers, tni_channel_subscribers(w))
MAKE(make_channel, tni_channel_value(U(0), U(1)))
GET(content_bytes, tni_content_bytes(w))
GET(content_block, tni_content_block(w))
MAKE(make_content, tni_content_make(U(0), U(1)))
GET(form_producer, tni_form_producer(w))
GET(form_attempt, tni_form_attempt(w))
GET(form_form, tni_form_form(w))
GET(form_view_bytes, tni_form_view_bytes(w))
GET(ticket_generation, tni_ticket_generation(w))
GET(ticket_state, tni_ticket_state(w))
GET(ticket_uses, tni_ticket_uses(w))
MAKE(make_ticket, tni_ticket_word(f[0], U(1), U(2)))
MAKE(make_ticket_id, tni_ticket_id(f[0], U(1)))
GET(token_timeline, tni_token_timeline(w) + 1)
GET(token_value, tni_token_value(w))
MAKE(make_token, tni_token_make(U(0) - 1, f[1]))

/* `get` and `unit` are in the order of the fields; NULL and 0: the code has none. */
static const struct word {
    const char *format;
    get_fn *get[MOST_FIELDS];
    make_fn *make;
    uint64_t unit[MOST_FIELDS]; /* what the code adds to, or sets in, the word for one */
} words[] = {
    {"{incarnation:32, state:8, recoverer:24}",
     {seat_incarnation, seat_state, seat_recoverer},
     make_seat,
     {0}},
    {"{incarnation:14, seat:10}", {NULL, recoverer_seat}, make_recoverer, {0}},
    {"{unused:1, witnessed:1, pid:22}", {NULL, NULL, seat_pid}, NULL, {0, TNI_SEAT_WITNESSED}},
    {"{incarnation:32, seat:16, 1:16}", {who_incarnation, who_seat}, make_who, {0}},
    {"{epoch:31, armed:1}", {NULL}, NULL, {TNI_BELL_EPOCH, TNI_BELL_ARMED}},
    {"{time:32, pid:32}", {NULL}, NULL, {0}}, /* checked below */
    {"{class:8, index:24}", {block_class, block_index}, make_block, {0}},
    {"{version:38, state:2, count:24}",
     {NULL, word_state, word_count},
     make_word,
     {TNI_WORD_VERSION_ONE, 0, TNI_WORD_INC - TNI_WORD_VERSION_ONE}},
    {"{turn:32, block:32}", {NULL}, make_recounted, {0}},
    {"{generation:24, strategy:8}", {NULL}, make_strategy, {UINT64_C(1) << TNI_STRATEGY_BITS}},
    {"{lanes:16, bits:8, code:8}", {dtype_lanes, dtype_bits, dtype_code}, make_dtype, {0}},
    {"{generation:32, maker:16, state:8, kind:8}",
     {object_generation, object_maker, object_state, object_kind},
     make_object,
     {0}},
    {"{generation:32, number:32}",
     {object_id_generation, object_id_number},
     make_object_id,
     {0}},
    {"{deaths:32, seat:16, 1:16}", {death_count, who_seat}, make_death, {0}},
    {"{epoch:29, looking:1, pollers:1, armed:1}",
     {NULL},
     NULL,
     {TNI_WAIT_EPOCH, TNI_WAIT_LOOKING, TNI_WAIT_POLLERS, TNI_WAIT_ARMED}},
    {"{held:1, recovered:1, incarnation:22, seat:16, thread:24}",
     {NULL, NULL, lock_incarnation, lock_seat, lock_thread},
     make_lock,
     {TNI_LOCK_HELD, TNI_LOCK_RECOVERED}},
    {"{version:32, permits:32}", {NULL, semaphore_permits}, NULL, {0}},
    {"{holder:32, permits:32}", {semaphore_holder, semaphore_permits}, make_owned, {0}},
    {"{generation:24, fates:16, arrived:16, fate:8}",
     {barrier_generation, barrier_fates, barrier_arrived, barrier_fate},
     NULL,
     {0}},
    {"{pid:32, seat:16, 1:16}", {dead_pid, dead_seat}, make_dead, {0}},
    {"{round:32, state:8, seat:16, tag:8}",
     {slot_round, slot_state, slot_seat, slot_tag},
     make_slot,
     {0}},
    {"{round:32, index:32}", {position_round, position_index}, make_position, {0}},
    {"{turn:32, block:32}", {store_turn, store_block}, make_store, {0}},
    {"{number:32, block:32}", {channel_number, channel_block}, make_channel_slot, {0}},
    {"{history:32, subscribers:32}", {channel_history, channel_subscribers}, make_channel, {0}},
    {"{bytes_count:32, block:32}", {content_bytes, content_block}, make_content, {0}},
    {"{producer:16, attempt:16, is_tensor:8, form:8, view_bytes:16}",
     {form_producer, form_attempt, NULL, form_form, form_view_bytes},
     NULL,
     {0}},
    {"{generation:36, state:8, uses:20}",
     {ticket_generation, ticket_state, ticket_uses},
     make_ticket,
     {0}},
    {"{generation:44, index:20}", {NULL}, make_ticket_id, {0}},
    {"{timeline:12, value:52}", {token_timeline, token_value}, make_token, {0}},
};

struct fields {
    uint32_t count, total_bits;
    uint32_t bits[MOST_FIELDS], shift[MOST_FIELDS];
    bool is_one[MOST_FIELDS]; /* a field called 1 always has that value */
};

static struct fields parse(const char *format)
{
    struct fields f = {0};
    TN_CHECK(*format == '{');
    while (*format != '}') {
        char *end;
        const char *name = format + 1 + (format[1] == ' ');
        const char *colon = strchr(name, ':');
        TN_CHECK(colon != NULL && f.count < MOST_FIELDS);
        f.is_one[f.count] = colon - name == 1 && *name == '1';
        f.bits[f.count] = (uint32_t)strtoul(colon + 1, &end, 10);
        f.total_bits += f.bits[f.count++];
        format = end;
    }
    for (uint32_t i = 0, at = f.total_bits; i < f.count; i++)
        f.shift[i] = at -= f.bits[i];
    return f;
}

static void check_get(const struct word *word, const struct fields *f, uint32_t i)
{
    for (uint32_t bit = 0; bit < f->total_bits; bit++) {
        bool is_inside = bit >= f->shift[i] && bit < f->shift[i] + f->bits[i];
        uint64_t wanted = is_inside ? UINT64_C(1) << (bit - f->shift[i]) : 0;
        uint64_t got = word->get[i](UINT64_C(1) << bit);
        if (got != wanted)
            fail_msg("%s: field %u: bit %u is read as %#llx", word->format, i, bit,
                     (unsigned long long)got);
    }
}

/* Each field by itself, with all its bits. */
static void check_make(const struct word *word, const struct fields *f)
{
    for (uint32_t i = 0; i < f->count; i++) {
        uint64_t value[MOST_FIELDS] = {0}, wanted = 0;
        for (uint32_t k = 0; k < f->count; k++) {
            value[k] = f->is_one[k] ? 1 : k == i ? UINT64_MAX >> (64 - f->bits[k]) : 0;
            wanted |= value[k] << f->shift[k];
        }
        uint64_t made = word->make(value);
        if (made != wanted)
            fail_msg("%s: field %u: made %#llx, not %#llx", word->format, i,
                     (unsigned long long)made, (unsigned long long)wanted);
    }
}

TN_TEST(each_field_of_a_word_is_the_bits_that_are_documented)
{
    for (size_t n = 0; n < TNI_COUNT(words); n++) {
        const struct fields f = parse(words[n].format);
        TN_CHECK(f.total_bits == 64 || f.total_bits == 32 || f.total_bits == 24);
        for (uint32_t i = 0; i < f.count; i++) {
            if (words[n].get[i] != NULL)
                check_get(&words[n], &f, i);
            if (words[n].unit[i] != 0 && words[n].unit[i] != UINT64_C(1) << f.shift[i])
                fail_msg("%s: field %u does not begin where its unit is", words[n].format, i);
        }
        if (words[n].make != NULL)
            check_make(&words[n], &f);
    }
}

TN_TEST(a_form_has_its_fields_where_the_slot_has_them)
{
    const struct tni_slot zero = {0};
    for (int i = 0; i < 5; i++) {
        uint64_t bytes = 0;
        struct tni_slot slot = zero;
        uint64_t form = tni_slot_make_form(i == 0 ? 0xffff : 0, i == 1 ? 0xff : 0, i == 2,
                                           i == 3 ? 0xffff : 0);
        form = i == 4 ? tni_form_attempted(0) : form;
        slot.view_bytes = i == 0 ? 0xffff : 0;
        slot.form = i == 1 ? 0xff : 0;
        slot.is_tensor = i == 2;
        slot.producer = i == 3 ? 0xffff : 0;
        slot.attempt = i == 4;
        memcpy(&bytes, &slot.view_bytes, sizeof bytes);
        assert_true(form == bytes);
    }
}

TN_TEST(a_process_names_its_pid_namespace_in_the_low_bits)
{
    struct tni_os_process self;
    struct stat pids;
    TN_CHECK_OK(tni_os_self(&self));
    TN_CHECK(stat("/proc/self/ns/pid", &pids) == 0);
    assert_int_equal((uint32_t)self.pid_space, (uint32_t)pids.st_ino);
}
