/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names: find an object by its name, in a time that does not depend on the number of objects.
 * Inside the room object. pre of all functions here: this process has the
 * registry.
 */
#ifndef TNI_OBJECT_NAMES_H
#define TNI_OBJECT_NAMES_H

#include "object/object.h"

/** The index of the LIVE object of this name; geometry.objects: there is none. */
uint32_t tni_names_find(const struct tni_segment *segment, const char *name);
/** Link an object that is MAKING into its chain. Does nothing if it has no name. */
void tni_names_link(const struct tni_segment *segment, uint32_t index);
/** Unlink an object that is MAKING or ENDING from its chain, and erase its name. */
void tni_names_unlink(const struct tni_segment *segment, uint32_t index);

#endif
