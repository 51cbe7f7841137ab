/* SPDX-License-Identifier: Apache-2.0 */
/*
 * geometry: computes from five numbers where every section, class and block lies. The result,
 * the geometry, is private to the process, which trusts it. Part of layout.h.
 */
#ifndef TNI_LAYOUT_GEOMETRY_H
#define TNI_LAYOUT_GEOMETRY_H

#include "base/base.h"
#include "layout/layout.h"

/** The five numbers of a domain. */
struct tni_limits {
    uint32_t seats, blocks, objects, tickets;
    uint64_t quota_bytes;
};

struct tni_class_geometry {
    uint64_t size_bytes; /* of a block; 0: no such class */
    uint64_t arena_off;
    uint32_t capacity; /* blocks */
    uint32_t base;     /* position of its first block, a multiple of 64 */
    uint32_t span;     /* how many blocks are committed together; a power of two */
    uint32_t cached;   /* the most free blocks that a thread caches */
    uint32_t usable;   /* of a device: blocks of a span for which the largest slab has memory */
};

struct tni_geometry {
    uint32_t seats, blocks, objects, tickets;
    uint64_t quota_limit_bytes;
    uint32_t page_bytes;
    uint32_t class_count;  /* classes are 1 to class_count - 1, those of messages first */
    uint32_t host_classes; /* the classes from here on are of devices */
    uint32_t total_blocks;
    struct tni_class_geometry classes[TNI_CLASSES];
    uint64_t span_pages[TNI_CLASSES]; /* `committed` of a whole span; 0: a span is one block */
    uint8_t small_class[65]; /* the class for n * 64 bytes, n up to 64, for the hot path */
    uint64_t seats_off, announces_off, classes_off, words_off, descs_off, hints_off,
        suspects_off;
    uint64_t rows_off;
    uint64_t row_bytes; /* of one seat's row of holds, and of one row of suspects */
    uint64_t objects_off, tickets_off, names_off, opens_off, loose_off, issues_off;
    uint64_t opens_bytes, issues_bytes; /* of one row */
    uint64_t values_off, timelines_off, leases_off;
    uint64_t control_bytes, arena_bytes;
};

/**
 * Compute the geometry. TN_ERR_INVALID: a number is out of range; TN_ERR_NO_MEMORY: the arena
 * would not fit in the address space.
 */
int tni_geometry_init(const struct tni_limits *limits, uint32_t page_bytes,
                      struct tni_geometry *ret_geometry);

/** The class of blocks for `bytes` bytes of this TNI_KIND_*. 0: all blocks are too small. */
uint32_t tni_geometry_class(const struct tni_geometry *geometry, uint64_t bytes, uint8_t kind);

/** The class of blocks for `bytes` bytes of a device. 0: they need memory of their own. */
uint32_t tni_geometry_device_class(const struct tni_geometry *geometry, uint64_t bytes);

static inline bool tni_class_is_device(const struct tni_geometry *g, uint32_t class_id)
{
    return class_id >= g->host_classes;
}

/* A number from shared memory is an index only after one of these tests. */
static inline bool tni_geometry_has_block(const struct tni_geometry *g, uint32_t id)
{
    uint32_t c = tni_block_class((tni_block){id});
    return c != 0 && c < g->class_count &&
           tni_block_index((tni_block){id}) < g->classes[c].capacity;
}
/** Whether it is a block with bytes in the arena. */
static inline bool tni_geometry_has_payload(const struct tni_geometry *g, uint32_t id)
{
    return tni_geometry_has_block(g, id) &&
           !tni_class_is_device(g, tni_block_class((tni_block){id}));
}
static inline bool tni_geometry_has_seat(const struct tni_geometry *g, uint32_t seat)
{
    return seat < g->seats;
}
static inline bool tni_geometry_has_object(const struct tni_geometry *g, uint32_t object)
{
    return object < g->objects;
}
/** Entries of the table of names: a power of two. */
static inline uint32_t tni_geometry_names(const struct tni_geometry *g)
{
    return UINT32_C(1) << tni_log2_up(g->objects);
}
static inline bool tni_class_is_message(uint32_t class_id)
{
    return class_id >= 1 && class_id <= TNI_MESSAGE_CLASSES;
}
static inline bool tni_class_is_backing(uint32_t class_id)
{
    return class_id == TNI_BACKING_CLASS;
}
/** A block's index in words, descs, hints and row bits. pre: tni_geometry_has_block() */
static inline uint32_t tni_block_position(const struct tni_geometry *g, tni_block block)
{
    return g->classes[tni_block_class(block)].base + tni_block_index(block);
}
/** The offset of a block in the arena, in bytes. pre: tni_geometry_has_block() */
static inline uint64_t tni_block_offset(const struct tni_geometry *g, tni_block block)
{
    const struct tni_class_geometry *c = &g->classes[tni_block_class(block)];
    return c->arena_off + tni_block_index(block) * c->size_bytes;
}
static inline uint64_t tni_block_bytes(const struct tni_geometry *g, tni_block block)
{
    return g->classes[tni_block_class(block)].size_bytes;
}
/** The first block of the span that contains the block. */
static inline tni_block tni_block_leader(const struct tni_geometry *g, tni_block block)
{
    return (tni_block){block.id & ~(g->classes[tni_block_class(block)].span - 1)};
}
/** The pages of a span in which the block lies, a bit each. pre: the span has several blocks */
static inline uint64_t tni_block_pages(const struct tni_geometry *g, tni_block block)
{
    const struct tni_class_geometry *c = &g->classes[tni_block_class(block)];
    uint32_t shift = (uint32_t)__builtin_ctz(g->page_bytes);
    uint64_t at = (block.id & (c->span - 1)) * c->size_bytes;
    uint64_t first = at >> shift, last = (at + c->size_bytes - 1) >> shift;
    return (UINT64_MAX >> (63 - last)) & (UINT64_MAX << first);
}

#endif
