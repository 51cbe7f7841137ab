/* SPDX-License-Identifier: Apache-2.0 */
/* find: gets the descriptors of a block's object. pre of all: tni_mappings_lock() */
#ifndef TNI_BACKING_FIND_H
#define TNI_BACKING_FIND_H

#include "backing/backing.h"

/** How long a process waits for another one that is about to finish what it needs. */
#define TNI_PATIENCE_NS UINT64_C(1000000000)

struct tni_storage_id {
    tni_block block;
    uint32_t generation;
    uint64_t inode;
};

/** A descriptor that was found. */
struct tni_found {
    int fd;            /* the caller closes it */
    bool is_deposited; /* tenond has a copy */
};

/**
 * Get the descriptor of a memfd.
 * @return 0, TN_ERR_NOT_FOUND, TN_ERR_DENIED, TN_ERR_STALE, TN_ERR_MANAGER, TN_ERR_SYSTEM
 */
int tni_find_memory(struct tn_domain *domain, const struct tni_storage_id *id,
                    struct tni_found *ret_found);
/**
 * Get the descriptors of a block from tenond, of memory that has no inode of its own.
 * @param ret_fds  [count], which the caller closes
 * @return 0, TN_ERR_UNSUPPORTED (the domain has no tenond), TN_ERR_NOT_FOUND, TN_ERR_DENIED,
 *         TN_ERR_STALE, TN_ERR_MANAGER, TN_ERR_SYSTEM
 */
int tni_find_deposited(struct tn_domain *domain, tni_block block, uint32_t generation,
                       int *ret_fds, uint32_t count);

#endif
