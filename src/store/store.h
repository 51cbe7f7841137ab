/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store: maps from keys to messages of tensors, and the list of all kinds of objects.
 */
#ifndef TNI_STORE_H
#define TNI_STORE_H

#include <tenon/store.h>

#include "queue/queue.h"

/** Register all kinds of objects. A process that joins a domain calls this before all else. */
void tni_store_set_kinds(struct tn_domain *domain);
/** As tni_store_set_kinds(), and register the fork hook of the room object. */
void tni_store_init(struct tn_domain *domain);

/* ---- for the reaper ---------------------------------------------------------------------- */

/** How many entries of stores name a block. */
uint64_t tni_store_count_records(const struct tni_segment *segment, tni_block block);
void tni_store_for_each_record(const struct tni_segment *segment, tni_record_fn *each,
                               void *context);
/**
 * Remove the values whose lifetime is over. A store that another process is changing is left
 * for the next call.
 * @return how many were removed
 */
uint32_t tni_store_expire_due(struct tn_domain *domain);
/** When a value's lifetime is over next, on the clock of tni_os_now_ns(); TNI_FOREVER: never.
 */
uint64_t tni_store_next_ns(const struct tn_domain *domain);
/** Whether the domain has a store that is kept, though no process may have it open. */
bool tni_store_has_kept(const struct tni_segment *segment);
/** Why the table of a store is damaged; NULL: it is not. */
const char *tni_store_fault(const struct tni_segment *segment, uint32_t object);

/* ---- for inspect ------------------------------------------------------------------------- */

/* @param block    that the store keeps: `message`, or a block that it names */
typedef void tni_kept_fn(uint32_t object, tni_block message, tni_block block, void *context);
/** Call `each` for every block that a store keeps. */
void tni_store_for_each_kept(const struct tni_segment *segment, tni_kept_fn *each,
                             void *context);
/** Copy the key of a message block of a store. @param key  [TN_STORE_KEY_BYTES + 1] */
bool tni_store_key(const struct tni_segment *segment, tni_block message, char *key);

struct tni_store_figures {
    uint32_t count;
    uint64_t bytes, hits, misses, evictions;
};
void tni_store_figures(const struct tni_segment *segment, uint32_t object,
                       struct tni_store_figures *ret_figures);

#endif
