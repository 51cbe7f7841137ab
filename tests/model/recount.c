/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recount.c as it is shipped, but that it does not look 64 times in a row before it yields:
 * while nothing changes, to look again shows the same.
 */
#include "base/base.h"

#define tni_relax() ((void)(patience->tries = SPINS))
#include "reaper/recount.c"
