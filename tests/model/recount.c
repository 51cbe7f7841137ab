/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recount.c as it is shipped, except that it does not check 64 times before it yields: while
 * nothing changes, a second check finds what the first one found.
 */
#include "base/base.h"

#define tni_relax() ((void)(tries = SPINS))
#include "reaper/recount.c"
