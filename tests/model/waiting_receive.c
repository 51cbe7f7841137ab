/* SPDX-License-Identifier: Apache-2.0 */
/* receive.c as it is shipped, except that it checks once before it sleeps; see waiting_turn.c.
 */
#include "object/object.h"

#define tni_spins(handle, word) 1
#include "channel/receive.c"
