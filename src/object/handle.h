/* SPDX-License-Identifier: Apache-2.0 */
/* handle: this process's handles on objects. Inside the room object. */
#ifndef TNI_OBJECT_HANDLE_H
#define TNI_OBJECT_HANDLE_H

#include "object/object.h"

/**
 * Make a handle and list it. pre: this process has the registry, and the entry is LIVE, or this
 * process is MAKING it.
 * @return NULL: no private memory
 */
struct tn_object *tni_handle_make(struct tn_domain *domain, uint32_t index,
                                  const struct tni_kind *kind);
/**
 * Unlink a handle from the lists, if it is listed.
 * @return whether this process has no other handle on the object
 */
bool tni_handle_unlink(struct tn_domain *domain, struct tn_object *handle);

#endif
