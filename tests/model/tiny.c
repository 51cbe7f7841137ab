/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tiny: see tiny.h. It counts records with code of its own, not with the code that it checks.
 */
#include "tiny.h"
#include "harness/harness.h"

#include "reaper/reaper.h"

enum { SLOT_BYTES = 64, FIRST_MESSAGE = 64, TABLES = 12, JANITOR_PID = 40 };
#define NO_STEPS __attribute__((no_sanitize("thread"), noinline))

struct tni_segment tiny_segment;
struct tn_domain *tiny_domains[MODEL_MOST_PROCESSES + 1];
static struct tiny_spec spec;
static struct tni_queue *queues[MODEL_MOST_PROCESSES + 1];
static uint32_t ring_block;

/* ---- constants --------------------------------------------------------------------------- */

/* Bytes that must not change: a write to them is no step, so only a comparison shows it. */
static struct constant {
    const void *at;
    size_t bytes;
    uint64_t sum;
} constants[TABLES];
static uint32_t constant_count;

static void seal_constants(void)
{
    for (uint32_t i = 0; i < constant_count; i++)
        constants[i].sum = tni_hash(constants[i].at, constants[i].bytes);
}

static void check_constants(void)
{
    for (uint32_t i = 0; i < constant_count; i++)
        model_require(constants[i].sum == tni_hash(constants[i].at, constants[i].bytes),
                      "nobody writes what the model takes for constant");
}

enum kind { SHARED, CONSTANT, WRITTEN_ONLY };

/* Lay out a table of the control segment. @return its offset from the header */
static uint64_t table(size_t bytes, enum kind kind)
{
    uint8_t *at = kind == SHARED ? model_shared(bytes, 64) : model_private(bytes, 64);
    if (kind == CONSTANT)
        constants[constant_count++] = (struct constant){.at = at, .bytes = bytes};
    return (uint64_t)(uintptr_t)at - (uint64_t)(uintptr_t)tiny_segment.header;
}

/* ---- layout ------------------------------------------------------------------------------ */

static void add_class(uint32_t class_id, uint64_t size_bytes, uint32_t capacity, uint32_t base,
                      uint64_t arena_off)
{
    tiny_segment.geometry.classes[class_id] =
        (struct tni_class_geometry){.size_bytes = size_bytes,
                                    .arena_off = arena_off,
                                    .capacity = capacity,
                                    .base = base,
                                    .span = 1};
}

/* The kind of each block; one may be a ring. */
static uint64_t block_bytes(void)
{
    uint64_t least_bytes = spec.slots > 2 ? 256 : 128;
    return TNI_MAX(least_bytes, tni_align_up(spec.ring_bytes, 64));
}
static uint64_t message_bytes(void)
{
    return spec.message_bytes != 0 ? spec.message_bytes : 64;
}

static bool has_object(void) { return spec.slots != 0 || spec.ring_bytes != 0; }
static uint32_t all_blocks(void) { return spec.blocks + has_object(); }
/* Message blocks begin in a word of a row of their own. */
static uint32_t all_positions(void)
{
    return spec.messages != 0 ? FIRST_MESSAGE + spec.messages : all_blocks();
}

/*
 * The description of a block matters to no check but for its generation, which check_mine()
 * checks.
 */
static enum kind descs_are(void)
{
#if defined(MODEL_NOT_X86)
    return spec.has_alloc ? WRITTEN_ONLY
                          : CONSTANT; /* C11 cannot have two atomics in 4 bytes */
#else
    return spec.has_alloc ? SHARED : CONSTANT;
#endif
}

static void make_geometry(void)
{
    struct tni_geometry *g = &tiny_segment.geometry;
    uint32_t seats = spec.seats + 1, positions = all_positions();

    *g = (struct tni_geometry){.seats = seats,
                               .blocks = all_blocks(),
                               .objects = has_object() + spec.objects,
                               .tickets = spec.tickets,
                               .quota_limit_bytes = 1 << 20,
                               .page_bytes = 4096,
                               .class_count = TINY_PAYLOAD_CLASS + 1,
                               .host_classes = TINY_PAYLOAD_CLASS + 1,
                               .total_blocks = 128};
    add_class(TINY_PAYLOAD_CLASS, block_bytes(), all_blocks(), 0, 0);
    add_class(1, message_bytes(), spec.messages, FIRST_MESSAGE, all_blocks() * block_bytes());
    memset(g->small_class, TINY_PAYLOAD_CLASS, sizeof g->small_class);
    g->row_bytes = spec.messages != 0 ? 16 : 8;
    g->seats_off = table(seats * sizeof(struct tni_seat), SHARED);
    g->announces_off = table(seats * TNI_THREADS * sizeof(struct tni_announce), SHARED);
    g->classes_off = table(g->class_count * sizeof(struct tni_class),
                           spec.has_alloc ? SHARED : WRITTEN_ONLY);
    g->words_off = table(positions * sizeof(uint64_t), SHARED);
    g->descs_off = table(positions * sizeof(struct tni_desc), descs_are());
    g->hints_off = table(16, SHARED);
    g->suspects_off = table(TNI_SUSPECT_ROWS * g->row_bytes, SHARED);
    g->rows_off = table(seats * g->row_bytes, SHARED);
    g->opens_bytes = g->issues_bytes = (TNI_ROW_HEAD + 1) * sizeof(uint64_t);
    if (g->objects != 0) {
        g->objects_off = table(g->objects * sizeof(struct tni_object), SHARED);
        g->names_off = table(tni_geometry_names(g) * sizeof(uint32_t), SHARED);
        g->opens_off = table(seats * g->opens_bytes, SHARED);
        g->loose_off = table(TNI_LOOSE_ROWS * g->opens_bytes, SHARED);
    }
    if (g->tickets != 0) {
        g->tickets_off = table(g->tickets * sizeof(struct tni_ticket), SHARED);
        g->issues_off = table(seats * g->issues_bytes, SHARED);
    }
    tiny_segment.arena =
        model_shared(all_blocks() * block_bytes() + spec.messages * message_bytes(), 64);
}

static void fill_header(void)
{
    struct tni_header *h = tiny_segment.header;
    const struct tni_geometry *g = &tiny_segment.geometry;
    atomic_store(&h->quota_bytes, g->quota_limit_bytes);
    atomic_store(&h->watermark_bytes, UINT64_MAX);
    atomic_store(&h->seat_limit, spec.are_joining ? 0 : spec.seats);
    atomic_store(&h->object_limit, has_object());
    atomic_store(&h->ticket_limit, g->tickets);
    h->flags = TN_DOMAIN_NO_MANAGER;
    atomic_store(&tni_class_at(&tiny_segment, TINY_PAYLOAD_CLASS)->frontier, all_blocks());
    atomic_store(&tni_class_at(&tiny_segment, 1)->frontier, spec.messages);
    for (uint32_t i = 0; i < spec.messages; i++) /* the message blocks have memory */
        atomic_store(&tni_desc_at(&tiny_segment, tiny_message_at(i))->committed,
                     (uint32_t)message_bytes());
}

static void take_seat(uint32_t seat, int32_t pid)
{
    struct tni_seat *entry = tni_seat_at(&tiny_segment, seat);
    atomic_store(&entry->pid, pid);
    entry->start_time = entry->image = entry->pid_space = 1;
    atomic_store(&entry->word, tni_seat_word(1, TNI_SEAT_ALIVE, 0));
}

static struct tn_domain *make_domain(uint32_t seat)
{
    struct tn_domain *d = model_private(sizeof *d, 64);
    d->segment = tiny_segment;
    tiny_set_kinds(d);
    d->mark = tni_os_mark();
    d->segment.geometry.seats =
        TNI_MAX(spec.seats, seat + 1); /* only the janitor uses its seat */
    d->child_seat = TNI_NO_SEAT;
    d->roles = model_private((tiny_segment.geometry.objects + 1) * sizeof *d->roles, 8);
    atomic_store(&d->poll_fd, -1);
    atomic_store(&d->keepers, 1);
    d->seat = seat;
    d->incarnation = 1;
    d->who = tni_who(seat, 1);
    d->me = tni_seat_at(&tiny_segment, seat);
    d->row = tni_row_at(&tiny_segment, seat, 0);
    d->threads[0].announce = tni_announce_at(&tiny_segment, seat, 0);
    d->threads[0].recounted = &tiny_segment.header->recounted;
    /* Each class has at most one hint: no thread has `cached` blocks. */
    d->threads[0].caches =
        model_private((TINY_PAYLOAD_CLASS + 1) * sizeof(struct tni_block_cache), 8);
    size_t local_bytes = all_positions() * sizeof(uint32_t);
    d->local = spec.threads != 0 ? model_shared(local_bytes, 8) : model_private(local_bytes, 8);
    d->mapped = model_private(16, 8);
    if (spec.messages != 0) /* and each process has touched it */
        atomic_store(&d->mapped[FIRST_MESSAGE / 64], UINT64_MAX);
    tni_ref_init(d);
    return d;
}

/*
 * Make one more thread of the first process. A seat has one thread record here, so the thread
 * announces in the record of a free seat.
 */
static struct tn_domain *make_thread(uint32_t thread)
{
    struct tn_domain *d = make_domain(0);
    d->threads[0].announce = tni_announce_at(&tiny_segment, thread, 0);
    d->local = tiny_domains[0]->local;
    return d;
}

/* A queue, or an object that setup() makes something else. */
static void make_object(void)
{
    struct tni_object *object = tni_object_at(&tiny_segment, 0);
    ring_block = tiny_block(spec.blocks).id;
    object->capacity = spec.slots;
    object->slot_bytes = SLOT_BYTES;
    atomic_store(&object->ring, ring_block);
    atomic_store(&object->word, tni_object_word(1, 0, TNI_OBJECT_LIVE, TNI_OBJECT_QUEUE));
    atomic_store(tni_word_at(&tiny_segment, tiny_block(spec.blocks)),
                 tni_word_next(0, TNI_BLOCK_ALLOC, 1));
    for (uint32_t i = 0; i < spec.seats; i++) {
        tni_bit_set(tni_opens_of(&tiny_segment, i), 0);
        tni_seat_set_add(&object->openers, i);
        tni_seat_set_add(&object->producers, i);
        tni_seat_set_add(&object->consumers, i);
    }
}

static struct tni_queue *make_handle(uint32_t process)
{
    struct tni_queue *q = model_private(sizeof *q, 8);
    *q = (struct tni_queue){
        .handle = {.domain = tiny_domains[process],
                   .kind = TNI_OBJECT_QUEUE,
                   .roles = tiny_domains[process]->roles,
                   .object = tni_object_at(&tiny_segment, 0),
                   .word = tni_object_word(1, 0, TNI_OBJECT_LIVE, TNI_OBJECT_QUEUE),
                   .generation = 1},
        .slots = tni_payload_at(&tiny_segment, (tni_block){ring_block}),
        .capacity = spec.slots,
        .slot_bytes = SLOT_BYTES,
        .room_bytes = SLOT_BYTES - sizeof(struct tni_slot)};
    return q;
}

void tiny_begin(const struct tiny_spec *wanted)
{
    spec = *wanted;
    constant_count = 0;
    tni_thread_home = 1;
    tiny_os_begin(!spec.has_no_slices);
#if defined(__x86_64__)
    __libc_single_threaded = !spec.has_threads;
#endif
    tiny_segment = (struct tni_segment){.control_fd = 0, .arena_fd = -1};
    tiny_segment.header = model_shared(sizeof(struct tni_header), 64);
    make_geometry();
    fill_header();
    if (has_object())
        make_object();
    memset(tiny_domains, 0, sizeof tiny_domains);
    for (uint32_t i = 0; i < spec.processes; i++) {
        bool is_thread = i > 0 && i < spec.threads;
        if (!spec.are_joining && !is_thread)
            take_seat(i, (int32_t)i + 1);
        tiny_domains[i] = is_thread ? make_thread(i) : make_domain(i);
        if (spec.slots != 0)
            queues[i] = make_handle(i);
    }
    tiny_domains[spec.processes] = make_domain(spec.seats); /* the janitor's */
    seal_constants();
}

void tiny_sit(uint32_t process, uint32_t seat)
{
    struct tn_domain *d = tiny_domains[process];
    take_seat(seat, (int32_t)process + 1);
    tni_raise_limit(&tiny_segment.header->seat_limit, seat + 1);
    d->seat = seat;
    d->who = tni_who(seat, 1);
    d->me = tni_seat_at(&tiny_segment, seat);
    d->row = tni_row_at(&tiny_segment, seat, 0);
    d->threads[0].announce = tni_announce_at(&tiny_segment, seat, 0);
}

struct tn_domain *tiny_me(void) { return tiny_domains[model_self()]; }

struct tni_queue *tiny_queue(uint32_t process) { return queues[process]; }

/* ---- setup ------------------------------------------------------------------------------- */

static void add_reference(tni_block block)
{
    _Atomic uint64_t *word = tni_word_at(&tiny_segment, block);
    uint64_t seen = atomic_load(word);
    atomic_store(word, tni_word_next(seen, TNI_BLOCK_ALLOC, tni_word_count(seen) + 1));
}

void tiny_hold(uint32_t seat, tni_block block, uint32_t references)
{
    uint32_t at = tni_block_position(&tiny_segment.geometry, block);
    add_reference(block);
    atomic_fetch_or(tni_row_at(&tiny_segment, seat, at), UINT64_C(1) << (at % 64));
    for (uint32_t i = 0; i < spec.processes; i++)
        if (references != 0 && tiny_domains[i]->seat == seat)
            atomic_store(&tiny_domains[i]->local[at], references);
}

void tiny_kill(uint32_t seat) { take_seat(seat, TINY_DEAD_PID + (int32_t)seat); }

void tiny_dead_announces(uint32_t seat, tni_block block)
{
    tiny_kill(seat);
    add_reference(block);
    atomic_store(&tni_announce_at(&tiny_segment, seat, 0)->block, block.id);
}

void tiny_reclaimed_by(uint32_t seat, uint32_t recoverer)
{
    enum { RECOVERER_SEATS = 10 }; /* the same number as in reclaim.c */
    atomic_store(&tni_seat_at(&tiny_segment, seat)->word,
                 tni_seat_word(1, TNI_SEAT_REAPING, 1 << RECOVERER_SEATS | recoverer));
}

static struct tni_slot *slot_at(uint32_t index)
{
    return (struct tni_slot *)(void *)((uint8_t *)tni_payload_at(&tiny_segment,
                                                                 (tni_block){ring_block}) +
                                       (size_t)index * SLOT_BYTES);
}

void tiny_slot(uint32_t index, uint32_t state, uint32_t seat, tni_block block)
{
    struct tni_slot *slot = slot_at(index);
    *tni_slot_content(slot) = block.id;
    *tni_slot_form(slot) = tni_slot_make_form(0, TNI_FORM_MESSAGE, false, seat);
    if (block.id != 0)
        add_reference(block);
    atomic_store(&slot->word, tni_slot_word(0, state, seat, 0));
    atomic_store(&tni_object_at(&tiny_segment, 0)->tail, index + 1);
}

void tiny_fill_message(uint32_t seat, const tni_block *blocks, uint32_t count)
{
    struct tni_records *records = tni_payload_at(&tiny_segment, tiny_message());
    tiny_hold(seat, tiny_message(), 1);
    records->limit = 2;
    for (uint32_t i = 0; i < count; i++) {
        add_reference(blocks[i]);
        records->block[i] = blocks[i].id;
    }
    atomic_store(&records->count, count);
}

void tiny_ticket(uint32_t index, tni_block block, uint32_t uses, uint32_t issuer)
{
    struct tni_ticket *ticket = tni_ticket_at(&tiny_segment, index);
    add_reference(block);
    atomic_store(&ticket->block, block.id);
    atomic_store(&ticket->generation, tiny_generation(block));
    atomic_store(&ticket->expires_ns, UINT64_MAX - 1);
    atomic_store(&ticket->issuer, tni_who(issuer, 1));
    tni_bit_set(tni_issues_of(&tiny_segment, issuer), index / TNI_TICKET_GROUP);
    atomic_store(&ticket->word, tni_ticket_word(1, TNI_TICKET_LIVE, uses));
}

/* ---- scenarios --------------------------------------------------------------------------- */

bool tiny_await_death(void)
{
    for (;;) {
        bool have_all_ended = true;
        for (uint32_t i = 0; i < spec.processes; i++) {
            if (model_is_dead(i))
                return true;
            have_all_ended &= i == model_self() || model_has_ended(i);
        }
        if (have_all_ended)
            return false;
        model_yield();
    }
}

void tiny_reclaim_all(void)
{
    int status;
    do {
        status = tni_reaper_reclaim_all(tiny_me());
        tiny_os_calm();
        if (status < 0)
            model_yield_timed();
    } while (status < 0);
}

/* Whether a dead process has a seat. */
static bool has_dead(void)
{
    for (uint32_t seat = 0; seat < spec.seats; seat++) {
        const struct tni_seat *entry = tni_seat_at(&tiny_segment, seat);
        if (tni_seat_state(atomic_load(&entry->word)) != TNI_SEAT_FREE &&
            tni_process_seat_state(&tiny_segment, seat) == TNI_OS_DEAD)
            return true;
    }
    return false;
}

void tiny_reclaim_until_done(void)
{
    for (;;) {
        int status = tni_reaper_reclaim_all(tiny_me());
        tiny_os_calm();
        if (status >= 0 && !has_dead())
            return;
        model_yield_timed();
    }
}

NO_STEPS static uint64_t peek(const _Atomic uint64_t *word)
{
    return *(const volatile uint64_t *)word;
}
NO_STEPS static uint32_t peek32(const _Atomic uint32_t *word)
{
    return *(const volatile uint32_t *)word;
}

NO_STEPS uint32_t tiny_generation(tni_block block)
{
    return ((const volatile struct tni_desc *)tni_desc_at(&tiny_segment, block))->generation;
}

NO_STEPS uint64_t tiny_recounted(void) { return peek(&tiny_segment.header->recounted); }

void tiny_check_mine(tni_block block, uint32_t generation)
{
    model_require(tni_word_state(peek(tni_word_at(&tiny_segment, block))) == TNI_BLOCK_ALLOC &&
                      tiny_generation(block) == generation,
                  "who has a reference has an allocated block, of its generation");
}

/* ---- counting records -------------------------------------------------------------------- */

NO_STEPS static uint32_t count_in_rows(tni_block block)
{
    uint32_t at = tni_block_position(&tiny_segment.geometry, block), count = 0;
    for (uint32_t seat = 0; seat < tiny_segment.geometry.seats; seat++)
        count += (uint32_t)(peek(tni_row_at(&tiny_segment, seat, at)) >> (at % 64)) & 1;
    return count;
}

NO_STEPS static uint32_t count_in_messages(tni_block block)
{
    uint32_t count = 0;
    for (uint32_t m = 0; m < spec.messages && !tni_class_is_message(tni_block_class(block));
         m++) {
        tni_block message = tiny_message_at(m);
        if (tni_word_state(peek(tni_word_at(&tiny_segment, message))) != TNI_BLOCK_ALLOC)
            continue;
        const struct tni_records *records = tni_payload_at(&tiny_segment, message);
        for (uint32_t i = 0; i < peek32(&records->count) && i < 2; i++)
            count += ((const volatile uint32_t *)records->block)[i] == block.id;
    }
    return count;
}

NO_STEPS static uint32_t count_in_slots(tni_block block)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < spec.slots; i++) {
        const struct tni_slot *slot = slot_at(i);
        uint32_t state = tni_slot_state(peek(&slot->word));
        count += state >= TNI_SLOT_FULL && state <= TNI_SLOT_RETURNING &&
                 ((const volatile struct tni_slot *)slot)->block == block.id;
    }
    return count;
}

NO_STEPS static uint32_t count_elsewhere(tni_block block)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < tiny_segment.geometry.objects; i++) {
        const struct tni_object *object = tni_object_at(&tiny_segment, i);
        count += tni_object_state(peek(&object->word)) != TNI_OBJECT_FREE &&
                 peek32(&object->ring) == block.id;
    }
    for (uint32_t i = 0; i < spec.tickets; i++) {
        const struct tni_ticket *ticket = tni_ticket_at(&tiny_segment, i);
        count += tni_ticket_state(peek(&ticket->word)) == TNI_TICKET_LIVE &&
                 peek32(&ticket->block) == block.id;
    }
    return count;
}

static uint32_t count_records(tni_block block)
{
    return count_in_rows(block) + count_in_messages(block) + count_in_slots(block) +
           count_elsewhere(block) +
           (spec.count_records != NULL ? spec.count_records(block) : 0);
}

/* List all blocks, those of messages last. @return how many */
static uint32_t list_blocks(tni_block *ret_blocks)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < all_blocks(); i++)
        ret_blocks[count++] = tiny_block(i);
    for (uint32_t i = 0; i < spec.messages; i++)
        ret_blocks[count++] = tiny_message_at(i);
    return count;
}

void tiny_invariant(void)
{
    tni_block blocks[TINY_MOST_BLOCKS + 1 + TINY_MOST_MESSAGES];
    uint32_t count = list_blocks(blocks);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t word = peek(tni_word_at(&tiny_segment, blocks[i]));
        uint32_t records = count_records(blocks[i]);
        model_require(tni_word_count(word) >= records, "count >= records, after every step");
        model_require(tni_word_state(word) == TNI_BLOCK_ALLOC || records == 0,
                      "no record names a FREE block");
    }
}

static bool is_free(tni_block block)
{
    return tni_word_state(peek(tni_word_at(&tiny_segment, block))) == TNI_BLOCK_FREE;
}

uint32_t tiny_allocated(void)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < spec.blocks; i++)
        count += !is_free(tiny_block(i));
    return count;
}

uint32_t tiny_allocated_messages(void)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < spec.messages; i++)
        count += !is_free(tiny_message_at(i));
    return count;
}

/* ---- the end ----------------------------------------------------------------------------- */

static void join_as_janitor(void)
{
    atomic_store(&tiny_segment.header->seat_limit, spec.seats + 1);
    take_seat(spec.seats, JANITOR_PID);
}

void tiny_check_blocks(void)
{
    tni_block blocks[TINY_MOST_BLOCKS + 1 + TINY_MOST_MESSAGES];
    uint32_t count = list_blocks(blocks);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t word = peek(tni_word_at(&tiny_segment, blocks[i]));
        uint32_t records = count_records(blocks[i]);
        model_require(tni_word_count(word) == records,
                      "count = records, once the dead are reclaimed");
        model_require((tni_word_state(word) == TNI_BLOCK_FREE) == (records == 0),
                      "what nobody records is FREE, once the dead are reclaimed");
    }
}

static bool is_gone(uint32_t seat)
{
    return tni_seat_state(peek(&tni_seat_at(&tiny_segment, seat)->word)) == TNI_SEAT_FREE;
}

NO_STEPS static int32_t pid_in(uint32_t seat)
{
    return *(const volatile int32_t *)&tni_seat_at(&tiny_segment, seat)->pid;
}

static void check_seat(uint32_t seat)
{
    const struct tni_announce *a = tni_announce_at(&tiny_segment, seat, 0);
    model_require(peek32(&a->block) == 0 && peek32(&a->outer) == 0 && peek32(&a->object) == 0,
                  "no announce is left, once the dead are reclaimed");
    if (is_gone(seat))
        for (uint32_t i = 0; i < tiny_segment.geometry.row_bytes / 8; i++)
            model_require(peek(tni_row_at(&tiny_segment, seat, i * 64)) == 0,
                          "a free seat holds nothing");
}

/* Check the local references and holds of a live process. */
static void check_locals(uint32_t process)
{
    const struct tn_domain *d = tiny_domains[process];
    tni_block blocks[TINY_MOST_BLOCKS + 1 + TINY_MOST_MESSAGES];
    uint32_t count = list_blocks(blocks);
    if (d == NULL || d->seat == TNI_NO_SEAT || d->is_closed)
        return;
    uint32_t first = process < spec.threads ? 0 : process;
    model_require(pid_in(d->seat) == (int32_t)first + 1, "who lives sits in its seat");
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = tni_block_position(&tiny_segment.geometry, blocks[i]);
        bool has_hold = peek(tni_row_at(&tiny_segment, d->seat, at)) >> (at % 64) & 1;
        model_require((peek32(&d->local[at]) != 0) == has_hold,
                      "who lives holds what it has references of");
    }
}

/* ---- exploring --------------------------------------------------------------------------- */

enum tiny_size tiny_size(void)
{
    if (getenv("TN_MODEL_DEEP") != NULL)
        return TINY_DEEP;
    return tnt_is_full() ? TINY_FULL : TINY_QUICK;
}

bool tiny_is_deep(void) { return tiny_size() == TINY_DEEP; }

bool tiny_is_tight(void)
{
#if defined(MODEL_NOT_X86)
    return !tiny_is_deep();
#else
    return false;
#endif
}

bool tiny_is_tightest(void) { return tiny_is_tight() && tiny_size() == TINY_QUICK; }

/* The time limit of one exploration at the size TINY_DEEP. */
static unsigned deep_seconds(void)
{
    const char *text = tiny_is_deep() ? getenv("TN_MODEL_SECONDS") : NULL;
    return text != NULL ? (unsigned)strtoul(text, NULL, 10) : 0;
}

/* @return false: it did not visit every state; no fault was found in those that it visited */
static bool explore_in(const struct model *model, enum model_memory memory)
{
    static const char *const names[] = {"sc", "tso", "c11"};
    static struct model_result result;
    bool holds = model_explore(model, memory, deep_seconds(), &result);
    tnt_note("%s, %s: %llu states, %llu steps, %llu ends, %llu of them with a death",
             model->name, names[memory], (unsigned long long)result.states,
             (unsigned long long)result.steps, (unsigned long long)result.ends,
             (unsigned long long)result.killed);
    if (holds) {
        /*
         * A run that never ended was not checked: all processes were stuck, or went in a
         * circle.
         */
        if (result.ends == 0 || (model->kills > 0 && result.killed == 0))
            fail_msg("%s, %s: no run%s came to an end", model->name, names[memory],
                     result.ends == 0 ? "" : " with a death");
        return true;
    }
    tnt_note("%s", result.failure);
    if (tiny_is_deep() && result.is_too_large)
        return false;
    for (char *line = strtok(result.trace, "\n"); line != NULL; line = strtok(NULL, "\n"))
        tnt_note("  %s", line);
    fail_msg("%s, %s: %s", model->name, names[memory], result.failure);
    return false;
}

/* A search that gave up is not counted as passed. */
static void skip_unless(bool is_complete)
{
    if (!is_complete)
        tnt_skip("not every state was visited");
}

void tiny_explore_in_order(const struct model *model)
{
    skip_unless(explore_in(model, MODEL_SC));
}

/* x86 can do whatever sequential consistency can. */
void tiny_explore(const struct model *model)
{
#if defined(MODEL_NOT_X86)
    skip_unless(explore_in(model, MODEL_C11));
#else
    bool is_complete = !tiny_is_deep() || explore_in(model, MODEL_SC);
    is_complete &= explore_in(model, MODEL_TSO);
    skip_unless(is_complete);
#endif
}

void tiny_explore_at(enum tiny_size size, const struct model *model)
{
    struct model alive = *model;
    alive.kills = 0;
    if (tiny_size() >= size) {
        tiny_explore(model);
        return;
    }
#if !defined(MODEL_NOT_X86)
    skip_unless(explore_in(model, MODEL_SC));
#endif
    if (model->kills > 0)
        tiny_explore(&alive);
}

void tiny_check(void)
{
    check_constants();
    join_as_janitor();
    model_require(tni_reaper_reclaim_all(tiny_domains[spec.processes]) >= 0,
                  "the dead can be reclaimed, once nobody else is at work");
    check_constants();
    for (uint32_t seat = 0; seat < spec.seats; seat++) {
        model_require(is_gone(seat) || !tiny_os_is_dead(pid_in(seat)),
                      "a dead process has no seat, once the dead are reclaimed");
        check_seat(seat);
    }
    check_seat(spec.seats);
    model_require(peek(&tiny_segment.header->recount) == 0 &&
                      peek(&tiny_segment.header->registry) == 0,
                  "no claim is left, once the dead are reclaimed");
    tiny_check_blocks();
    for (uint32_t i = 0; i < spec.processes; i++)
        if (!model_is_dead(i))
            check_locals(i);
}
