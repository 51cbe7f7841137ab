/* SPDX-License-Identifier: Apache-2.0 */
/* hints: the hints of free blocks, for alloc.c and trim.c. Private to the room alloc. */
#ifndef TNI_ALLOC_HINTS_H
#define TNI_ALLOC_HINTS_H

#include "alloc/alloc.h"

enum { TNI_FETCH_BLOCKS = 32 }; /* most hints that are fetched at once */

/** How many hints of a class a thread record may keep. */
static inline uint32_t tni_hints_cached(const struct tn_domain *domain, uint32_t class_id)
{
    return domain->segment.geometry.classes[class_id].cached;
}

/**
 * Fill an empty cache with published hints. If there are none, fill it with blocks above the
 * frontier, which were never used.
 * @return how many hints the cache has now
 */
uint32_t tni_hints_refill(struct tn_domain *domain, uint32_t class_id,
                          struct tni_block_cache *cache);

/** Publish a hint of every FREE block of a class, by a scan of the words. @return how many */
uint32_t tni_hints_sweep(struct tn_domain *domain, uint32_t class_id);

/** Publish the `count` oldest hints of a cache. */
void tni_hints_drain(struct tn_domain *domain, uint32_t class_id, struct tni_block_cache *cache,
                     uint32_t count);

/** Subtract `bytes` from header->free_bytes, the estimate of free memory behind hints. */
void tni_alloc_note_taken(struct tn_domain *domain, uint64_t bytes);

/**
 * Undo a take: release the reference of a block that has no record yet. pre: this thread
 * announces the block
 * @return the result of tni_alloc_publish()
 */
bool tni_alloc_untake(struct tn_domain *domain, tni_block block);

#endif
