/* SPDX-License-Identifier: Apache-2.0 */
/* handle: making a handle and taking it off the list. Inside the room object. */
#ifndef TNI_OBJECT_HANDLE_H
#define TNI_OBJECT_HANDLE_H

#include "object/object.h"

/** NULL: no private memory. pre: the registry is ours and `index` is LIVE, or MAKING by us. */
struct tn_object *tni_handle_make(struct tn_domain *domain, uint32_t index,
                                  const struct tni_kind *kind);
/**
 * Take a handle off the list, if it is still there.
 * @return whether the process has no other handle of its object
 */
bool tni_handle_unlink(struct tn_domain *domain, struct tn_object *handle);

#endif
