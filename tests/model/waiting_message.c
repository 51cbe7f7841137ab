/* SPDX-License-Identifier: Apache-2.0 */
/* message.c and unpack.c as they are shipped, with private memory of the process that runs. */
#include "queue/message.h"

#define malloc(bytes) tiny_calloc(1, bytes)
#include "queue/message.c"
#include "queue/unpack.c"
