/* SPDX-License-Identifier: Apache-2.0 */
/*
 * foreign: storages in memory of a device that another allocator made, such as cudaMalloc() or
 * PyTorch, and that stays where it is.
 *
 * Nouns: allocation (what the other allocator got from the driver at once, or pieces side by
 * side that one storage lies in; it may have many storages), maker (the process whose allocator
 * that is), lease (a process has the allocation open).
 * A part of the room's door.
 */
#ifndef TNI_BACKING_FOREIGN_H
#define TNI_BACKING_FOREIGN_H

#include "backing/backing.h"

_Static_assert((int)TNI_PIECES == (int)TNI_DEVICE_PIECES, "a description counts the pieces");

/** Names an allocation, in every process. No other allocation ever has the same name. */
struct tni_lessor {
    uint64_t maker;      /* tni_who() */
    uint64_t allocation; /* a number of the maker's, from 1 on */
};

/* ---- the maker (foreign.c) ------------------------------------------------------------- */

/** Memory of another allocator that becomes a storage. */
struct tni_foreign_about {
    struct tni_device_foreign memory; /* as the driver describes it */
    uint8_t handle[TNI_DEVICE_HANDLE_BYTES];
    const int *fds; /* [memory.piece_count], borrowed */
    uint64_t allocation;
    uint64_t address, bytes; /* of the storage */
};
/**
 * Let a block that only this process knows and holds stand for memory of another allocator. The
 * caller gets one reference to the mapping, whose memory is never unmapped by tenon. tenond has
 * the descriptors of pieces when the call returns. After a failure the block has no object.
 * @return 0, TN_ERR_NO_MEMORY (private memory), TN_ERR_UNSUPPORTED, TN_ERR_DEVICE; of pieces:
 *         as tni_depot.put()
 */
int tni_foreign_adopt(struct tn_domain *domain, tni_block block,
                      const struct tni_foreign_about *about, struct tni_mapping **ret_mapping);
/**
 * Get descriptors of the pieces of a storage of this process once more.
 * @param ret_fds  [TNI_PIECES], of which *ret_count are set; the caller closes them
 * @return 0, TN_ERR_NOT_FOUND (the library has unmapped them), TN_ERR_DEVICE, TN_ERR_FORKED
 */
int tni_foreign_export_again(const struct tn_domain *domain, const struct tni_mapping *mapping,
                             int *ret_fds, uint32_t *ret_count);
/** Whether a process other than this one holds the block. @param ret_seat  one of them */
bool tni_foreign_is_held(const struct tn_domain *domain, tni_block block, uint32_t *ret_seat);
/**
 * Before this process leaves: copy the memory into memory of tenon's own, from which whoever
 * gets the storage later maps it. Waits for the devices of this process.
 * @return 0, TN_ERR_EXISTS (another process holds it), TN_ERR_NO_MEMORY, TN_ERR_UNSUPPORTED,
 * TN_ERR_MANAGER, TN_ERR_DEVICE
 */
int tni_foreign_move(struct tn_domain *domain, tni_block block,
                     const struct tni_mapping *mapping);

/* ---- who has it open (opened.c) --------------------------------------------------------- */

/**
 * Map a storage whose checked description is of memory of another process. Opens its allocation
 * if this process has not got it open. pre: tni_mappings_lock()
 * @return 0, TN_ERR_PEER_DIED (its maker has ended, and the storage with it), TN_ERR_STALE,
 *         TN_ERR_FULL (leases, descriptors), TN_ERR_UNSUPPORTED (the device is not visible,
 *         or the driver does not open it here), TN_ERR_NOT_FOUND, TN_ERR_CORRUPT,
 *         TN_ERR_NO_MEMORY
 */
int tni_opened_map(struct tn_domain *domain, tni_block block, uint32_t generation,
                   const struct tni_backing *backing, struct tni_mapping *ret_mapping);
/**
 * Close allocations that no tensor of this process uses: those whose maker asks for that or has
 * ended, or `all`.
 */
void tni_opened_sweep(struct tn_domain *domain, bool all);
/** An allocation of another process that this process has open. */
struct tni_opened {
    struct tni_opened *next;
    struct tni_lessor of;
    uint64_t at, buffer_id; /* as its maker knows it */
    uint8_t handle[TNI_DEVICE_HANDLE_BYTES];
    uint32_t piece_count;            /* 0: it has the handle */
    struct tni_device_memory memory; /* as this process has it */
    uint32_t lease, refs;            /* refs: mappings of storages; protected by their lock */
};
/** Close all, also those that tensors use: this process has left. pre: tni_mappings_lock() */
void tni_opened_end(struct tn_domain *domain);
/**
 * Whether the memory has ended with its maker, so that nobody knows what is there now. That of
 * pieces has not: the driver counts who has them.
 */
bool tni_mapping_is_lost(const struct tn_domain *domain, const struct tni_mapping *mapping);
/** Fail with TN_ERR_PEER_DIED, and name the maker. */
int tni_mapping_fail_lost(const struct tn_domain *domain, const struct tni_mapping *mapping);

/* ---- leases (lease.c) ------------------------------------------------------------------- */

/** False: all leases are taken. */
bool tni_lease_take(const struct tni_segment *segment, uint64_t who,
                    const struct tni_lessor *of, uint32_t *ret_lease);
void tni_lease_release(const struct tni_segment *segment, uint64_t who, uint32_t lease);
bool tni_lease_is_wanted(const struct tni_segment *segment, uint32_t lease);

struct tni_lease_counts {
    uint32_t live;   /* processes that have it open */
    uint32_t dying;  /* that died with it open, and may still have a device write it */
    uint32_t over;   /* that died with it open and have ended since */
    uint64_t holder; /* one of the live */
};
struct tni_lease_counts tni_lease_count(const struct tni_segment *segment,
                                        const struct tni_lessor *of);
/** The device has done other work since: end the leases of those that have ended. */
void tni_lease_end_over(const struct tni_segment *segment, const struct tni_lessor *of);
/** Ask who has it open to close it once no tensor is in it. */
void tni_lease_want(const struct tni_segment *segment, const struct tni_lessor *of);

/** Whether a process has leases. */
bool tni_leases_has(const struct tni_segment *segment, uint64_t who);
/** Settle the leases of a process that has ended, and those of its memory. Idempotent. */
void tni_leases_reclaim(const struct tni_segment *segment, uint64_t who);

#endif
