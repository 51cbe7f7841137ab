/* SPDX-License-Identifier: Apache-2.0 */
/* mapping: what this process has mapped, and descriptors that it keeps. Inside the room
 * backing. */
#ifndef TNI_BACKING_MAPPING_H
#define TNI_BACKING_MAPPING_H

#include "backing/backing.h"

enum { TNI_STRATEGY_BITS = 8 };

static inline struct tni_backing *tni_backing_at(const struct tni_segment *s, tni_block block)
{
    return tni_payload_look(s, block);
}

/* What stands in tni_backing.strategy: {generation:24, strategy:8}, I5. */
static inline uint32_t tni_strategy_word(uint32_t strategy, uint32_t generation)
{
    return generation << TNI_STRATEGY_BITS | strategy;
}

/** Whether a word of a strategy is of this generation, and there is an object. */
static inline bool tni_strategy_is_of(uint32_t word, uint32_t generation)
{
    return word != 0 && (word ^ tni_strategy_word(0, generation)) >> TNI_STRATEGY_BITS == 0;
}

static inline tn_storage_header *tni_mapping_header(const struct tni_mapping *m)
{
    return (tn_storage_header *)(void *)m->address;
}

/** What a block says of its object. @return TN_ERR_NOT_FOUND: it has none; TN_ERR_CORRUPT */
int tni_backing_check_record(const struct tni_segment *segment, tni_block block,
                             const struct tni_backing *backing);
/**
 * Copy it whole. @return the word of the strategy as it stands there; 0: there is no object any
 * more
 */
uint32_t tni_backing_copy_record(const struct tni_backing *backing,
                                 struct tni_backing *ret_copy);

/** Sparse: what is never touched costs nothing. pre: locked */
int tni_mappings_ensure(struct tn_domain *domain);

/** Private memory for one; NULL and TN_ERR_NO_MEMORY's detail. */
struct tni_mapping *tni_mapping_new(void);

/**
 * Make `mapping` the newest of its block, and keep its object's descriptor, which is consumed,
 * or close it (I4). pre: locked
 * @param fd  -1: there is none to keep
 */
void tni_mapping_enter(struct tn_domain *domain, struct tni_mapping *mapping, int fd,
                       bool is_deposited);

/** In a forked child: unmap what no thread of the child uses. `mapping` itself is not freed. */
void tni_mapping_abandon(struct tn_domain *domain, struct tni_mapping *mapping);

/** Whether its descriptor is there, and still is what it was. */
bool tni_mapping_has_descriptor(const struct tni_mapping *mapping);

/** To the system a full table of descriptors is an error among others: here it is FULL. */
int tni_backing_name_shortage(int status);

/** Close the descriptor that is kept of a mapping, if there is one. pre: locked */
void tni_mapping_close_kept(struct tn_domain *domain, struct tni_mapping *mapping);
/** Whether anybody but this process names this life of the mapping's block. */
bool tni_mapping_is_wanted(const struct tn_domain *domain, const struct tni_mapping *mapping);
/** Close what is parked and that nobody wants any more, or all of it. pre: locked */
void tni_mappings_sweep_parked(struct tn_domain *domain, bool all);

/** I6. The object of a block has ended: close what was kept for it. */
void tni_mappings_unpark(struct tn_domain *domain, tni_block block);

#endif
