/* SPDX-License-Identifier: Apache-2.0 */
/* change.c as it is shipped; small.h includes unistd.h, which has a link() and an unlink() too.
 */
#define link   link_entry
#define unlink unlink_entry
#include "store/change.c"
