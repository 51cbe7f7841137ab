/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recount.c as it is shipped, but that it does not look 64 times in a row before it yields:
 * while nothing changes, to look again shows the same. And it has less room for suspects, of
 * which there are few.
 */
#include "base/base.h"

#define MOST_SUSPECTS 3
#define tni_relax()   ((void)(tries = SPINS))
#include "reaper/recount.c"
