/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segment: creates, attaches and checks the two mappings of a domain, and finds structs in
 * them. The functions that take an index return a pointer into the mapping for every index that
 * passed a tni_geometry_has_*() test.
 */
#ifndef TNI_SEGMENT_H
#define TNI_SEGMENT_H

#include "layout/layout.h"

struct tni_windows;

struct tni_segment {
    struct tni_geometry geometry; /* private, trusted */
    struct tni_header *header;    /* the control segment's start */
    uint8_t *arena;               /* an invalid address, if there are windows */
    struct tni_windows *windows;  /* the mapped parts of the arena; NULL: all is mapped */
    int control_fd;
    int arena_fd;
    uint64_t control_inode;
    uint64_t arena_inode;
    bool is_read_only;
    /* Checked copies of fields of the header. Any member may change the header after that. */
    uint32_t flags; /* TN_DOMAIN_* */
    uint8_t id[16];
    char name[TNI_NAME_BYTES];
};

/** The options of a new domain. No field has a default. */
struct tni_segment_options {
    const char *name; /* "" if anonymous */
    uint32_t seats, blocks, objects, tickets;
    uint64_t quota_bytes, watermark_bytes, device_quota_bytes, device_slab_bytes;
    uint32_t flags;
};

/** Make both memory objects, map them, and write the header. */
int tni_segment_create(const struct tni_segment_options *options,
                       struct tni_segment *ret_segment);

/**
 * Check the domain behind two descriptors and map it. The descriptors are consumed on success.
 * @return 0, TN_ERR_CORRUPT (not a domain, truncated, not sealed, impossible numbers),
 *         TN_ERR_VERSION, TN_ERR_DENIED (another user), TN_ERR_NO_MEMORY
 */
int tni_segment_attach(int control_fd, int arena_fd, bool read_only,
                       struct tni_segment *ret_segment);

/**
 * Attach as tni_segment_attach() does, for a process that attaches to many domains and reads
 * little of each. Of the arena, the call maps only the windows that tni_payload_look() needs.
 * The address space of a process has room for a few whole arenas of a large machine, and for
 * thousands of windows. One thread at a time may use the segment.
 * @param fail  called when a window cannot be mapped; does not return
 */
int tni_segment_attach_sparse(int control_fd, int arena_fd, void (*fail)(void),
                              struct tni_segment *ret_segment);

/** Close the descriptors of a segment, and keep its mappings. Idempotent. */
void tni_segment_close(struct tni_segment *segment);

/**
 * Check that both descriptors still belong to the domain. A program that makes itself a daemon
 * may have closed them, and opened its own files under the same numbers. TN_ERR_SYSTEM.
 */
int tni_segment_check_descriptors(const struct tni_segment *segment);

/** In a line of the log: 'NAME' in quotes, or the id of a domain without a name. @return text
 */
enum { TNI_LABEL_BYTES = TNI_NAME_BYTES + 2 };
const char *tni_segment_label(const struct tni_segment *segment, char text[TNI_LABEL_BYTES]);

/** Whether the control descriptor still belongs to the domain. Sets no error detail. */
bool tni_segment_has_control(const struct tni_segment *segment);

/** Unmap a segment and close its descriptors. */
void tni_segment_detach(struct tni_segment *segment);

/**
 * Every member's control descriptor has a memory name that starts with this; the domain's name
 * follows.
 */
#define TNI_CONTROL_PREFIX "tenon-control:"
#define TNI_ARENA_PREFIX   "tenon-arena:"

static inline uint8_t *tni_control_at(const struct tni_segment *s, uint64_t offset)
{
    return (uint8_t *)s->header + offset;
}
static inline struct tni_seat *tni_seat_at(const struct tni_segment *s, uint32_t seat)
{
    return (struct tni_seat *)tni_control_at(s, s->geometry.seats_off) + seat;
}
static inline struct tni_announce *tni_announce_at(const struct tni_segment *s, uint32_t seat,
                                                   uint32_t thread)
{
    return (struct tni_announce *)tni_control_at(s, s->geometry.announces_off) +
           (size_t)seat * TNI_THREADS + thread;
}
static inline struct tni_class *tni_class_at(const struct tni_segment *s, uint32_t class_id)
{
    return (struct tni_class *)tni_control_at(s, s->geometry.classes_off) + class_id;
}
static inline _Atomic uint64_t *tni_word_at(const struct tni_segment *s, tni_block block)
{
    return (_Atomic uint64_t *)tni_control_at(s, s->geometry.words_off) +
           tni_block_position(&s->geometry, block);
}
/*
 * Find a block's word by its position. For callers that need several structs of a block: with
 * tni_word_at() the compiler would compute the position again after each atomic operation.
 */
static inline _Atomic uint64_t *tni_word_of(const struct tni_segment *s, uint32_t position)
{
    return (_Atomic uint64_t *)tni_control_at(s, s->geometry.words_off) + position;
}
static inline struct tni_desc *tni_desc_of(const struct tni_segment *s, uint32_t position)
{
    return (struct tni_desc *)tni_control_at(s, s->geometry.descs_off) + position;
}
static inline struct tni_desc *tni_desc_at(const struct tni_segment *s, tni_block block)
{
    return (struct tni_desc *)tni_control_at(s, s->geometry.descs_off) +
           tni_block_position(&s->geometry, block);
}
/** The word of 64 hint bits that has the bit of the block with this position. */
static inline _Atomic uint64_t *tni_hints_at(const struct tni_segment *s, uint32_t position)
{
    return (_Atomic uint64_t *)tni_control_at(s, s->geometry.hints_off) + position / 64;
}
/** The word of 64 suspect bits for this position, in one of the TNI_SUSPECT_ROWS rows. */
static inline _Atomic uint64_t *tni_suspects_at(const struct tni_segment *s, uint32_t row,
                                                uint32_t position)
{
    return (_Atomic uint64_t *)tni_control_at(s, s->geometry.suspects_off +
                                                     row * s->geometry.row_bytes) +
           position / 64;
}
/** The word of 64 hold bits of a seat that has the bit of the block with this position. */
static inline _Atomic uint64_t *tni_row_at(const struct tni_segment *s, uint32_t seat,
                                           uint32_t position)
{
    return (_Atomic uint64_t *)tni_control_at(s, s->geometry.rows_off +
                                                     seat * s->geometry.row_bytes) +
           position / 64;
}
static inline struct tni_object *tni_object_at(const struct tni_segment *s, uint32_t object)
{
    return (struct tni_object *)tni_control_at(s, s->geometry.objects_off) + object;
}
static inline struct tni_ticket *tni_ticket_at(const struct tni_segment *s, uint32_t ticket)
{
    return (struct tni_ticket *)tni_control_at(s, s->geometry.tickets_off) + ticket;
}
static inline _Atomic uint32_t *tni_name_at(const struct tni_segment *s, uint32_t name)
{
    return (_Atomic uint32_t *)tni_control_at(s, s->geometry.names_off) + name;
}
/** The row of objects that may be open in the seat. */
static inline _Atomic uint64_t *tni_opens_of(const struct tni_segment *s, uint32_t seat)
{
    return (_Atomic uint64_t *)tni_control_at(s, s->geometry.opens_off +
                                                     seat * s->geometry.opens_bytes);
}
/** A row of objects that a reaper has to check: TNI_LOOSE_*. */
static inline _Atomic uint64_t *tni_loose_of(const struct tni_segment *s, uint32_t row)
{
    return (_Atomic uint64_t *)tni_control_at(s, s->geometry.loose_off +
                                                     row * s->geometry.opens_bytes);
}
/** A row with a bit for each TNI_TICKET_GROUP tickets: the seat may have issued one of them. */
static inline _Atomic uint64_t *tni_issues_of(const struct tni_segment *s, uint32_t seat)
{
    return (_Atomic uint64_t *)tni_control_at(s, s->geometry.issues_off +
                                                     seat * s->geometry.issues_bytes);
}
/** The word of a timeline, which streams write and wait for. pre: timeline < TNI_TIMELINES */
static inline _Atomic uint64_t *tni_value_at(const struct tni_segment *s, uint32_t timeline)
{
    return (_Atomic uint64_t *)tni_control_at(s, s->geometry.values_off) + timeline;
}
static inline struct tni_timeline *tni_timeline_at(const struct tni_segment *s,
                                                   uint32_t timeline)
{
    return (struct tni_timeline *)tni_control_at(s, s->geometry.timelines_off) + timeline;
}
static inline struct tni_lease *tni_lease_at(const struct tni_segment *s, uint32_t lease)
{
    return (struct tni_lease *)tni_control_at(s, s->geometry.leases_off) + lease;
}
/*
 * A row of opens, loose or issues begins with a head of TNI_ROW_HEAD words. The head has a bit
 * for each word after the head, which is set before a bit in that word is set. So few cache
 * lines are read if few bits are set. Setting a set bit, or clearing a clear bit, writes
 * nothing.
 */
static inline bool tni_bit_is_set(const _Atomic uint64_t *row, uint32_t at)
{
    return (atomic_load(&row[TNI_ROW_HEAD + at / 64]) >> (at % 64) & 1) != 0;
}
static inline void tni_bit_set(_Atomic uint64_t *row, uint32_t at)
{
    uint32_t word = at / 64;
    uint64_t head_bit = UINT64_C(1) << (word % 64);
    if ((atomic_load(&row[word / 64]) & head_bit) == 0)
        atomic_fetch_or(&row[word / 64], head_bit);
    if (!tni_bit_is_set(row, at))
        atomic_fetch_or(&row[TNI_ROW_HEAD + word], UINT64_C(1) << (at % 64));
}
static inline void tni_bit_clear(_Atomic uint64_t *row, uint32_t at)
{
    if (tni_bit_is_set(row, at))
        atomic_fetch_and(&row[TNI_ROW_HEAD + at / 64], ~(UINT64_C(1) << (at % 64)));
}
/** The first set bit from `from` on; `count` if there is none. */
static inline uint32_t tni_bit_next(const _Atomic uint64_t *row, uint32_t from, uint32_t count)
{
    while (from < count) {
        uint32_t word = from / 64;
        uint64_t head = atomic_load(&row[word / 64]) >> (word % 64);
        uint64_t bits =
            (head & 1) != 0 ? atomic_load(&row[TNI_ROW_HEAD + word]) >> (from % 64) : 0;
        if (bits != 0)
            return TNI_MIN(from + tni_low_bit(bits), count);
        head >>= 1; /* bits of the words after this one */
        from = 64 * (head != 0 ? word + 1 + tni_low_bit(head) : (word / 64 + 1) * 64);
    }
    return count;
}
/** Clear each bit of the head whose word is 0. pre: no thread sets bits of this row. */
static inline void tni_bit_forget(_Atomic uint64_t *row, uint32_t count)
{
    for (uint32_t word = 0; word < (count + 63) / 64; word++)
        if (atomic_load(&row[word / 64]) == 0)
            word |= 63;
        else if ((atomic_load(&row[word / 64]) >> (word % 64) & 1) != 0 &&
                 atomic_load(&row[TNI_ROW_HEAD + word]) == 0)
            atomic_fetch_and(&row[word / 64], ~(UINT64_C(1) << (word % 64)));
}
static inline void *tni_payload_at(const struct tni_segment *s, tni_block block)
{
    return s->arena + tni_block_offset(&s->geometry, block);
}
/** Map the window with this block, unless it is mapped already. @return the block's payload */
void *tni_segment_reach(const struct tni_segment *segment, tni_block block);
/** Find the payload of a block, also in tenond, which maps only windows of the arena. */
static inline void *tni_payload_look(const struct tni_segment *s, tni_block block)
{
    return TNI_LIKELY(s->windows == NULL) ? tni_payload_at(s, block)
                                          : tni_segment_reach(s, block);
}
/** Give `bytes` bytes of memory back to the system, from offset `from` in the block on. */
int tni_segment_discard(const struct tni_segment *segment, tni_block first, uint64_t from,
                        uint64_t bytes);
/** How many seats to search: the limit in shared memory, but at most the size of the table. */
static inline uint32_t tni_seat_limit(const struct tni_segment *s)
{
    uint32_t limit = atomic_load_explicit(&s->header->seat_limit, memory_order_seq_cst);
    return TNI_MIN(limit, s->geometry.seats);
}
static inline uint32_t tni_object_limit(const struct tni_segment *s)
{
    uint32_t limit = atomic_load_explicit(&s->header->object_limit, memory_order_seq_cst);
    return TNI_MIN(limit, s->geometry.objects);
}
static inline uint32_t tni_ticket_limit(const struct tni_segment *s)
{
    uint32_t limit = atomic_load_explicit(&s->header->ticket_limit, memory_order_seq_cst);
    return TNI_MIN(limit, s->geometry.tickets);
}
static inline uint32_t tni_timeline_limit(const struct tni_segment *s)
{
    uint32_t limit = atomic_load_explicit(&s->header->timeline_limit, memory_order_seq_cst);
    return TNI_MIN(limit, (uint32_t)TNI_TIMELINES);
}
static inline uint32_t tni_lease_limit(const struct tni_segment *s)
{
    uint32_t limit = atomic_load_explicit(&s->header->lease_limit, memory_order_seq_cst);
    return TNI_MIN(limit, (uint32_t)TNI_LEASES);
}
static inline uint32_t tni_frontier(const struct tni_segment *s, uint32_t class_id)
{
    uint32_t frontier =
        atomic_load_explicit(&tni_class_at(s, class_id)->frontier, memory_order_seq_cst);
    return TNI_MIN(frontier, s->geometry.classes[class_id].capacity);
}
/** Raise a limit in shared memory to at least `limit`. */
static inline void tni_raise_limit(_Atomic uint32_t *word, uint32_t limit)
{
    uint32_t seen = atomic_load_explicit(word, memory_order_relaxed);
    while (seen < limit && !atomic_compare_exchange_weak(word, &seen, limit))
        ;
}

/** Bytes from the block's start that have memory, according to its desc. */
static inline uint64_t tni_segment_committed(const struct tni_segment *segment, tni_block block)
{
    const struct tni_geometry *g = &segment->geometry;
    uint64_t size_bytes = tni_block_bytes(g, block);
    uint64_t committed = atomic_load_explicit(
        &tni_desc_at(segment, tni_block_leader(g, block))->committed, memory_order_relaxed);
    if (TNI_UNLIKELY(tni_class_is_device(g, tni_block_class(block))))
        return committed != 0 ? size_bytes : 0;
    if (g->classes[tni_block_class(block)].span == 1)
        return TNI_MIN(committed, size_bytes);
    return (~committed & tni_block_pages(g, block)) == 0 ? size_bytes : 0;
}

#endif
