/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spawn: child processes that are members, groups of them, fork servers, and pools. All of it
 * is public; this is the door for the room above.
 */
#ifndef TNI_SPAWN_H
#define TNI_SPAWN_H

#include <tenon/pool.h>
#include <tenon/process.h>

#include "reaper/reaper.h"

#endif
