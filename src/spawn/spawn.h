/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spawn: starts child processes that are members of a domain, and manages groups of them, fork
 * servers and pools. All its calls are public; the room above includes this header.
 */
#ifndef TNI_SPAWN_H
#define TNI_SPAWN_H

#include <tenon/pool.h>
#include <tenon/process.h>

#include "reaper/reaper.h"

#endif
