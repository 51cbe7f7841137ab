/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recount.c as it is shipped, but that it does not check 64 times in a row before it yields:
 * while nothing changes, a second check shows the same as the first.
 */
#include "base/base.h"

#define tni_relax() ((void)(tries = SPINS))
#include "reaper/recount.c"
