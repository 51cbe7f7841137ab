/* SPDX-License-Identifier: Apache-2.0 */
/* keep: memory of other libraries that this process has shared. Private to the room tensor. */
#ifndef TNI_TENSOR_KEEP_H
#define TNI_TENSOR_KEEP_H

#include "tensor/storage.h"

enum {
    TNI_KEPT,   /* others may have the storage: its block has this process's reference */
    TNI_ENDED,  /* that was given back; others may have the allocation open */
    TNI_COPIED, /* the copy may not be done */
    TNI_LOST,   /* this process leaves, and could not copy the storage: it ends with it */
    TNI_LENT    /* this process leaves others its pieces, which the driver keeps for them */
};
struct tni_keep {
    struct tni_keep *next;
    int32_t pid;
    int state;
    struct tn_domain *domain;
    void (*release)(void *context);
    void *context;
    tn_device device;
    tni_block block;
    uint32_t generation;
    struct tni_mapping *mapping;
    struct tni_lessor of;
    uint64_t at, buffer_id; /* of the allocation */
    uint64_t whole_bytes;   /* of that */
    bool is_in_pieces;
    uint64_t bytes; /* of the storage */
    uint64_t ended_ns;
    uint64_t token; /* of a copy */
};
/** Add a keep to the list of this process, which owns it from now on. */
void tni_keep_add(struct tni_keep *keep);
/** Name the allocation: by the name that it has already, or by a new one. */
void tni_keep_name(const struct tn_domain *domain, const struct tni_device_foreign *memory,
                   struct tni_lessor *ret_of);

#endif
