/* SPDX-License-Identifier: Apache-2.0 */
/*
 * turn.c as it is shipped, but that it looks once, not 150 times, before it sleeps: while
 * nothing changes, to look again shows the same. How often it looks is not learned.
 */
#include "object/object.h"

#define tni_spins(handle, word)                        1
#define tni_spins_learn(handle, word, spins, has_paid) ((void)(has_paid))
#include "queue/turn.c"
