/* SPDX-License-Identifier: Apache-2.0 */
/* publish.c as it is shipped, except that it checks once before it sleeps; see waiting_turn.c.
 */
#include "object/object.h"

#define tni_spins(handle, word) 1
#include "channel/publish.c"
