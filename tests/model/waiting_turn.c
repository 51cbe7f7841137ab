/* SPDX-License-Identifier: Apache-2.0 */
/*
 * turn.c as it is shipped, except that it checks once before it sleeps, and not 150 times:
 * while nothing changes, further checks find the same. It does not learn how often to check.
 */
#include "object/object.h"

#define tni_spins(handle, word)                        1
#define tni_spins_learn(handle, word, spins, has_paid) ((void)(has_paid))
#include "queue/turn.c"
