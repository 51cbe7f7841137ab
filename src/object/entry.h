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
    return tni_seat_set_count(&object->openers, TNI_NO_SEAT) == 0;
}
static inline bool tni_entry_has_suspects(const struct tni_object *object)
{
    return atomic_load(&object->suspects_added) != atomic_load(&object->suspects_done);
}

/** A FREE entry, or TN_ERR_FULL. pre: the registry is ours. */
int tni_entry_find_free(struct tn_domain *domain, uint32_t *ret_index);
/** A zeroed block for an object's ring; the reference is the caller's. Without the registry. */
int tni_entry_make_ring(struct tn_domain *domain, uint64_t ring_bytes, tni_block *ret_block);
/** The block's reference passes from the caller to the object. */
int tni_entry_give_ring(struct tn_domain *domain, struct tni_object *object, tni_block block);
void tni_entry_fill(struct tni_object *object, const struct tni_object_spec *spec);
/** An entry that is MAKING is FREE again. pre: the registry is ours. */
void tni_entry_undo(struct tn_domain *domain, struct tni_object *object);
/** pre: the registry is ours; nobody has the object open. Resumable. */
void tni_entry_end(struct tn_domain *domain, struct tni_object *object);
/** pre: the registry is ours. Its last opener may have closed it without the claim. */
void tni_entry_end_if_unopened(struct tn_domain *domain, uint32_t index);
/** End it if it has no opener; without the claim, leave that to who has it next (I5). */
void tni_entry_end_unopened(struct tn_domain *domain, struct tni_object *object,
                            bool has_claim);
/** A seat that closes an object, or is dead: its bits go, `openers` last (I2). */
void tni_entry_clear_bits(struct tni_object *object, uint32_t seat);

#endif
