/* SPDX-License-Identifier: Apache-2.0 */
/* message.c, unpack.c and whole.c as they are shipped, over private memory of the running
 * process. */
#include "queue/message.h"

#define malloc(bytes) tiny_calloc(1, bytes)
#include "queue/contents.c"
#include "queue/message.c"
#include "queue/unpack.c"
#include "queue/whole.c"
