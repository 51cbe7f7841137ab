/* SPDX-License-Identifier: Apache-2.0 */
/* suspects.c as it is shipped, with room for fewer suspects, because a model has few blocks. */
#include "base/base.h"

#define MOST_SUSPECTS 3
#include "reaper/suspects.c"
