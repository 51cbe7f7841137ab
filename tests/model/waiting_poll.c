/* SPDX-License-Identifier: Apache-2.0 */
/* poll.c of channels as it is shipped, except that it checks once before it sleeps; see
 * waiting_turn.c. */
#include "object/object.h"

#define tni_spins(handle, word)                        0
#define tni_spins_learn(handle, word, spins, has_paid) ((void)(has_paid))
#include "channel/poll.c"
