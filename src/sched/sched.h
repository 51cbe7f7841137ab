/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched: runs tasks of graphs, in threads of this process or in virtual time. All its calls are
 * public; the room above includes this header.
 */
#ifndef TNI_SCHED_H
#define TNI_SCHED_H

#include <tenon/sched.h>

#include "plan/plan.h"

#endif
