/* SPDX-License-Identifier: Apache-2.0 */
/* entry: an entry of the table of objects, from FREE to FREE. Inside the room object. */
#ifndef TNI_OBJECT_ENTRY_H
#define TNI_OBJECT_ENTRY_H

#include "object/object.h"

static inline uint32_t tni_entry_index(const struct tn_domain *d,
                                       const struct tni_object *object)
{
    return (uint32_t)(object - tni_object_at(&d->segment, 0));
}
static inline bool tni_entry_is_unopened(const struct tni_object *object)
{
    return tni_seat_set_count(&object->openers, TNI_NO_SEAT) == 0 &&
           (atomic_load(&object->ended) & TNI_STORE_KEPT) == 0;
}
static inline bool tni_entry_has_suspects(const struct tni_object *object)
{
    return atomic_load(&object->suspects_added) != atomic_load(&object->suspects_done);
}

/** Find a FREE entry. TN_ERR_FULL: there is none. pre: this process has the registry. */
int tni_entry_find_free(struct tn_domain *domain, uint32_t *ret_index);
/** Allocate a zeroed block for a ring. The caller owns its reference, and need not have the
 * registry. */
int tni_entry_make_ring(struct tn_domain *domain, uint64_t ring_bytes, tni_block *ret_block);
/** Pass the block's reference from the caller to the object. */
int tni_entry_give_ring(struct tn_domain *domain, struct tni_object *object, tni_block block);
/** Write all fields of an entry that is MAKING, but for its word and its ring. */
void tni_entry_fill(struct tni_object *object, const struct tni_object_spec *spec);
/** Make an entry that is MAKING FREE again. pre: this process has the registry. */
void tni_entry_undo(struct tn_domain *domain, struct tni_object *object);
/** End an object that no process has open. pre: this process has the registry. Idempotent. */
void tni_entry_end(struct tn_domain *domain, struct tni_object *object);
/**
 * End an object whose last opener closed it without the registry. Does nothing to any other
 * entry, or if there is no such index. pre: this process has the registry.
 */
void tni_entry_end_if_unopened(struct tn_domain *domain, uint32_t index);
/** End an object that has no opener; without the registry, mark it for the next owner (I5). */
void tni_entry_end_unopened(struct tn_domain *domain, struct tni_object *object,
                            bool has_claim);
/** Clear the bits of a seat that closes the object or is dead, the one in `openers` last (I2).
 */
void tni_entry_clear_bits(struct tni_object *object, uint32_t seat);

#endif
