/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inspect_blocks: list every live block, and the seats that hold it.
 *
 * One pass over messages, slots and tickets counts, in sparse private memory, which blocks
 * they name. Then one pass over the hold rows reads 64 blocks of all seats at a time. So a
 * million blocks cost two passes, not a search for each block.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/inspect.h"
#include "channel/channel.h"
#include "os/os.h"
#include "queue/queue.h"
#include "store/store.h"

struct tally {
    uint32_t in_messages;
    uint32_t in_tickets;
    uint32_t keeper;  /* number + 1 of a store or channel that keeps the block; 0: none does */
    uint32_t message; /* of that store; 0: the block is the ring of `keeper` */
};

/* What one call of tn_inspect_blocks() works with. */
struct scan {
    const struct tni_segment *s;
    uint64_t now_ns;
    uint32_t seat_count;   /* seats that are taken */
    tn_holder *seats;      /* [seat_count] */
    tn_holder *holders;    /* [seat_count], of the block that is looked at */
    uint64_t *words;       /* [seat_count], of each seat's row: 64 blocks */
    struct tally *tallies; /* [total_blocks], sparse */
    tn_block_entry_fn *each;
    void *context;
};

/* ---- records other than holds ------------------------------------------------------------ */

static void tally_message(tni_block block, void *context)
{
    struct scan *scan = context;
    const struct tni_geometry *g = &scan->s->geometry;
    if (tni_geometry_has_block(g, block.id))
        scan->tallies[tni_block_position(g, block)].in_messages++;
}

/* A message block without memory behind it has no records. */
static void tally_records_of(struct scan *scan, tni_block message)
{
    uint64_t word = atomic_load(tni_word_at(scan->s, message));
    if (tni_word_state(word) != TNI_BLOCK_ALLOC || !tni_inspect_has_memory(scan->s, message))
        return;
    const struct tni_records *records = tni_payload_at(scan->s, message);
    uint64_t most = (tni_block_bytes(&scan->s->geometry, message) - sizeof *records) /
                    sizeof records->block[0];
    uint32_t count = atomic_load_explicit(&records->count, memory_order_acquire);
    if (count > most)
        return; /* makes no sense: the audit reports it */
    for (uint32_t r = 0; r < count; r++)
        tally_message((tni_block){TNI_LOOK(records->block[r])}, scan);
}

static void tally_tickets(struct scan *scan)
{
    const struct tni_geometry *g = &scan->s->geometry;
    uint32_t limit = tni_ticket_limit(scan->s);

    for (uint32_t t = 0; t < limit; t++) {
        const struct tni_ticket *ticket = tni_ticket_at(scan->s, t);
        uint32_t block = atomic_load(&ticket->block);
        if (tni_ticket_is_live(ticket) && tni_geometry_has_block(g, block))
            scan->tallies[tni_block_position(g, (tni_block){block})].in_tickets++;
    }
}

static void tally_kept(uint32_t object, tni_block message, tni_block block, void *context)
{
    struct scan *scan = context;
    const struct tni_geometry *g = &scan->s->geometry;
    if (!tni_geometry_has_block(g, block.id))
        return;
    struct tally *tally = &scan->tallies[tni_block_position(g, block)];
    tally->keeper = object + 1;
    tally->message = message.id;
}

static void tally_sent(uint32_t object, tni_block block, void *context)
{
    tally_kept(object, block, block, context);
}

static void tally_ring(uint32_t object, struct scan *scan)
{
    tni_block ring = {atomic_load(&tni_object_at(scan->s, object)->ring)};
    tally_kept(object, (tni_block){0}, ring, scan);
}

static void tally_keepers(struct scan *scan)
{
    const struct tni_segment *s = scan->s;
    uint32_t limit = tni_object_limit(s);
    for (uint32_t i = 0; i < limit; i++) {
        uint64_t word = atomic_load(&tni_object_at(s, i)->word);
        uint32_t kind = tni_object_kind(word);
        if (tni_object_state(word) == TNI_OBJECT_LIVE &&
            (kind == TNI_OBJECT_STORE || kind == TNI_OBJECT_CHANNEL))
            tally_ring(i, scan);
    }
    tni_store_for_each_record(s, tally_message, scan);
    tni_channel_for_each_record(s, tally_message, scan);
    tni_channel_for_each_kept(s, tally_sent, scan);
    tni_store_for_each_kept(s, tally_kept, scan);
}

static void tally_all(struct scan *scan)
{
    for (uint32_t c = 1; c < scan->s->geometry.class_count && tni_class_is_message(c); c++) {
        uint32_t frontier = tni_frontier(scan->s, c);
        for (uint32_t i = 0; i < frontier; i++)
            tally_records_of(scan, tni_block_make(c, i));
    }
    tni_queue_for_each_record(scan->s, tally_message, scan);
    tally_keepers(scan);
    tally_tickets(scan);
}

/* ---- one block --------------------------------------------------------------------------- */

static const char *kind_name(uint8_t kind)
{
    switch (kind) {
    case TNI_KIND_TENSOR:
    case TNI_KIND_BACKING:
        return "tensor";
    case TNI_KIND_BYTES:
        return "bytes";
    case TNI_KIND_MESSAGE:
        return "message";
    case TNI_KIND_RING:
        return "queue";
    case TNI_KIND_SCHEDULER:
        return "scheduler";
    default:
        return "unknown";
    }
}

/* The texts of a row, which the callback borrows. */
struct texts {
    char path[TNI_PATH_BYTES];
    char attributes[192];
    char keeper[TNI_OBJECT_NAME_BYTES + 1];
    char key[TN_STORE_KEY_BYTES + 1];
};

/* Append the word of each bit that has a word. */
static void add_words(const char *const *words, uint32_t count, uint32_t bits, char *text,
                      size_t size_bytes)
{
    size_t used = strlen(text);
    for (uint32_t i = 0; i < count; i++)
        if (words[i] != NULL && (bits >> i & 1) != 0 && used < size_bytes)
            used += (size_t)snprintf(text + used, size_bytes - used, "%s%s",
                                     used > 0 ? " " : "", words[i]);
}

static const char *describe_attributes(const struct tni_desc *desc, char *text,
                                       size_t size_bytes)
{
    static const char *const flags[] = {"requires_grad", "stop_gradient", "parameter", "buffer",
                                        "conjugate",     "negative",      "was_pinned"};
    static const char *const kinds[TNI_ATTRIBUTE_KINDS] = {
        [TNI_ATTRIBUTE_NAME] = "name", [TNI_ATTRIBUTE_AXIS_NAMES] = "axis_names",
        [TNI_ATTRIBUTE_LOD] = "lod",   [TNI_ATTRIBUTE_QUANTIZER] = "quantizer",
        [TNI_ATTRIBUTE_PART] = "part", [TNI_ATTRIBUTE_METADATA] = "metadata"};
    uint32_t bits = atomic_load_explicit(&desc->attributes, memory_order_relaxed);

    text[0] = '\0';
    /*
     * The attributes may be of an earlier life of the block. This acquire pairs with the
     * release in encode_attributes().
     */
    if (atomic_load_explicit(&desc->sent, memory_order_acquire) != TNI_LOOK(desc->generation))
        return text;
    if ((bits >> TNI_ATTRIBUTE_FLAGS & 1) != 0)
        add_words(flags, TNI_COUNT(flags),
                  atomic_load_explicit(&desc->flags, memory_order_relaxed), text, size_bytes);
    add_words(kinds, TNI_COUNT(kinds), bits, text, size_bytes);
    return text;
}

static void describe_device(const struct tni_backing *b, tn_block_entry *info)
{
    if (b->device_type != 0)
        tni_device_write_uuid(b->device_uuid, (b->device_flags & TN_DEVICE_IS_PART) != 0,
                              info->device);
}

/* Whether the block was made as a copy of another allocator's memory: foreign.c of tensor. */
static bool is_copy(const struct tni_desc *desc)
{
    uint32_t generation = atomic_load_explicit(&desc->copied, memory_order_relaxed);
    return generation != 0 && generation == TNI_LOOK(desc->generation);
}

/* A block of a device, which is cut from a slab. */
static void describe_on_slab(const struct tni_segment *s, tni_block block, tn_block_entry *info)
{
    struct tni_backing b;
    info->strategy = tn_strategy_name(TN_STRATEGY_CUDA_VMM);
    if (tni_inspect_slab(s, block, &b))
        describe_device(&b, info);
}

static void describe_backing(const struct tni_segment *s, tni_block block, tn_block_entry *info,
                             struct texts *texts)
{
    struct tni_backing b;

    if (!tni_inspect_backing(s, block, &b)) {
        info->strategy = "unknown";
        return;
    }
    info->strategy = tn_strategy_name(atomic_load(&b.strategy));
    info->object_bytes = b.object_bytes;
    info->is_write_once = (b.flags & TN_TENSOR_WRITE_ONCE) != 0;
    info->is_copy |= tni_backing_is_ipc(&b) && !tni_backing_is_foreign(&b);
    describe_device(&b, info);
    if ((b.flags & TNI_BACKING_SLAB) != 0)
        info->kind = "slab";
    tni_text_copy(texts->path, sizeof texts->path, b.path, sizeof b.path);
    if (texts->path[0] != '\0')
        info->path = texts->path;
}

static void describe_keeper(const struct tni_segment *s, const struct tally *tally,
                            tn_block_entry *info, struct texts *texts)
{
    const struct tni_object *object = tni_object_at(s, tally->keeper - 1);
    bool is_channel = tni_object_kind(atomic_load(&object->word)) == TNI_OBJECT_CHANNEL;
    if (tally->message == 0)
        info->kind = is_channel ? "channel" : "store";
    else if (!is_channel && tni_store_key(s, (tni_block){tally->message}, texts->key))
        info->key = texts->key;
    tni_text_copy(texts->keeper, sizeof texts->keeper, object->name, sizeof object->name);
    *(is_channel ? &info->channel : &info->store) = texts->keeper;
}

static void describe_tensor(const struct tni_desc *desc, tn_block_entry *info)
{
    info->dtype = TNI_LOOK(desc->dtype);
    info->ndim = TNI_MIN(TNI_LOOK(desc->ndim), TN_MAX_NDIM);
    for (int32_t i = 0; i < info->ndim && i < TNI_DESC_NDIM; i++)
        info->shape[i] = TNI_LOOK(desc->shape[i]);
}

/* The creator's pid, if that process still has the same seat; else 0. */
static int32_t living_creator(const struct scan *scan, uint32_t seat, int32_t pid)
{
    for (uint32_t i = 0; i < scan->seat_count; i++)
        if (scan->seats[i].seat == seat && scan->seats[i].pid == pid)
            return pid;
    return 0;
}

static int report_block(const struct scan *scan, tni_block block, uint64_t word)
{
    const struct tni_desc *desc = tni_desc_at(scan->s, block);
    const struct tally *tally = &scan->tallies[tni_block_position(&scan->s->geometry, block)];
    uint8_t kind = TNI_LOOK(desc->kind);
    struct texts texts;
    tn_block_entry info = {.block = block.id,
                           .bytes = tni_inspect_block_bytes(scan->s, block),
                           .block_bytes = tni_block_bytes(&scan->s->geometry, block),
                           .age_ns = tni_inspect_age(scan->now_ns, TNI_LOOK(desc->born_ns)),
                           .creator_seat = TNI_LOOK(desc->creator_seat),
                           .kind = kind_name(kind),
                           .strategy = tn_strategy_name(TN_STRATEGY_ARENA),
                           .attributes = "",
                           .references = tni_word_count(word),
                           .in_messages = kind == TNI_KIND_RING ? 0 : tally->in_messages,
                           .in_tickets = tally->in_tickets,
                           .holders = scan->holders};

    info.creator_pid =
        living_creator(scan, info.creator_seat, (int32_t)TNI_LOOK(desc->creator_pid));
    if (kind == TNI_KIND_TENSOR || kind == TNI_KIND_BACKING) {
        describe_tensor(desc, &info);
        info.attributes = describe_attributes(desc, texts.attributes, sizeof texts.attributes);
        info.is_copy = is_copy(desc);
    }
    if (tni_class_is_backing(tni_block_class(block)))
        describe_backing(scan->s, block, &info, &texts);
    if (tni_class_is_device(&scan->s->geometry, tni_block_class(block)))
        describe_on_slab(scan->s, block, &info);
    if (tally->keeper != 0)
        describe_keeper(scan->s, tally, &info, &texts);
    uint32_t bit = tni_block_index(block) % 64;
    for (uint32_t i = 0; i < scan->seat_count; i++)
        if (scan->words[i] >> bit & 1)
            scan->holders[info.holder_count++] = scan->seats[i];
    return scan->each(&info, scan->context);
}

static int report_64(const struct scan *scan, uint32_t class_id, uint32_t first)
{
    uint32_t at = scan->s->geometry.classes[class_id].base + first;
    int stop = 0;

    for (uint32_t i = 0; i < scan->seat_count; i++)
        scan->words[i] = atomic_load_explicit(tni_row_at(scan->s, scan->seats[i].seat, at),
                                              memory_order_relaxed);
    for (uint32_t i = 0; i < 64 && stop == 0; i++) {
        tni_block block = tni_block_make(class_id, first + i);
        uint64_t word = atomic_load_explicit(tni_word_at(scan->s, block), memory_order_relaxed);
        if (tni_word_state(word) == TNI_BLOCK_ALLOC)
            stop = report_block(scan, block, word);
    }
    return stop;
}

static int report_all(const struct scan *scan)
{
    int stop = 0;

    for (uint32_t c = 1; c < scan->s->geometry.class_count && stop == 0; c++) {
        uint32_t frontier = tni_frontier(scan->s, c);
        for (uint32_t first = 0; first < frontier && stop == 0; first += 64)
            stop = report_64(scan, c, first);
    }
    return stop;
}

/* ---- all --------------------------------------------------------------------------------- */

static void find_seats(struct scan *scan, uint32_t limit)
{
    for (uint32_t seat = 0; seat < limit; seat++) {
        int32_t pid = tni_inspect_seat_pid(scan->s, seat);
        if (tni_seat_state(atomic_load(&tni_seat_at(scan->s, seat)->word)) == TNI_SEAT_FREE)
            continue;
        tn_holder *holder = &scan->seats[scan->seat_count++];
        *holder = (tn_holder){.seat = seat, .pid = pid};
        tni_inspect_seat_command(scan->s, seat, holder->command, sizeof holder->command);
    }
}

int tn_inspect_blocks(tn_inspector *inspector, tn_block_entry_fn *each, void *context)
{
    if (inspector == NULL || each == NULL)
        return tni_fail_null(inspector == NULL ? "the inspector" : "each");
    const struct tni_segment *s = &inspector->segment;
    uint32_t limit = tni_seat_limit(s);
    uint64_t tally_bytes = (uint64_t)s->geometry.total_blocks * sizeof(struct tally);
    struct scan scan = {.s = s, .now_ns = tni_os_shared_ns(), .each = each, .context = context};
    void *tallies = NULL;

    int status = tni_os_map_private(tally_bytes, &tallies);
    if (status != 0)
        return status;
    scan.tallies = tallies;
    scan.seats = calloc(limit + 1, sizeof *scan.seats);
    scan.holders = calloc(limit + 1, sizeof *scan.holders);
    scan.words = calloc(limit + 1, sizeof *scan.words);
    if (scan.seats == NULL || scan.holders == NULL || scan.words == NULL) {
        status = tni_fail(TN_ERR_NO_MEMORY, "no private memory for a list of %u seats", limit);
    } else {
        find_seats(&scan, limit);
        tally_all(&scan);
        status = report_all(&scan);
    }
    free(scan.seats);
    free(scan.holders);
    free(scan.words);
    tni_os_unmap(tallies, tally_bytes);
    return status;
}
