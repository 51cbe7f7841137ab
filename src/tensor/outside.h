/* SPDX-License-Identifier: Apache-2.0 */
/* outside: storages whose memory is not in a domain of this process. Private to the room
 * tensor. */
#ifndef TNI_TENSOR_OUTSIDE_H
#define TNI_TENSOR_OUTSIDE_H

#include "tensor/build.h"

/* What an outside storage owns. */
struct tni_outside {
    struct tni_mapping mapping; /* its descriptor can be sent on; a file has none (-1) */
    uint32_t block;             /* its number in the domain that made it */
    uint32_t entry;             /* this process's entry in the holders of a file */
};

/** Open a new descriptor for the object. TN_ERR_SYSTEM: the program closed the old one. */
int tni_outside_open(const struct tni_outside *o, bool read_only, int *ret_fd);
/**
 * Map the object of a descriptor, for writing if the descriptor allows it. On success the
 * mapping owns the descriptor.
 */
int tni_outside_map(int fd, struct tni_outside **ret_outside);
/** Make the tensor that a view describes. On success the tensor owns `o`. */
int tni_outside_build(struct tni_outside *o, uint32_t strategy, const void *view,
                      size_t view_bytes, tn_tensor **ret_tensor);
/** Close the mapping and its descriptor, and free the struct tni_outside `context`. */
void tni_outside_release(void *context);
/** Translate a status: wrong data from a sender is an invalid argument, not damage. */
int tni_outside_fault(int status);

#endif
