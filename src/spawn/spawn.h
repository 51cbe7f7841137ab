/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spawn: child processes that are members, and groups of them. All of it is public; this is the
 * door for the room above.
 */
#ifndef TNI_SPAWN_H
#define TNI_SPAWN_H

#include <tenon/process.h>

#include "reaper/reaper.h"

#endif
