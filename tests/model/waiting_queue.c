/* SPDX-License-Identifier: Apache-2.0 */
/*
 * queue.c as it is shipped, but that it looks once, not 150 times, before it sleeps: while
 * nothing changes, to look again shows the same.
 */
#include "queue/object.h"

#define TNI_SPINS 1
#include "queue/queue.c"
