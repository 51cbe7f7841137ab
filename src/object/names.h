/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names: which object has a name, at a cost that does not depend on how many there are. Inside
 * the room queue. All but tni_names_has() take: the registry is ours.
 */
#ifndef TNI_OBJECT_NAMES_H
#define TNI_OBJECT_NAMES_H

#include "object/object.h"

/** The LIVE object of this name, or the geometry's object count. */
uint32_t tni_names_find(const struct tni_segment *segment, const char *name);
/** Enter an object that is MAKING and whose name is written, if it has a name. */
void tni_names_link(const struct tni_segment *segment, uint32_t index);
/** Take an object that is MAKING or ENDING out, if it is in; it has no name afterwards. */
void tni_names_unlink(const struct tni_segment *segment, uint32_t index);

#endif
