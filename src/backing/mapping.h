/* SPDX-License-Identifier: Apache-2.0 */
/* mapping: functions that the files of the room backing share. */
#ifndef TNI_BACKING_MAPPING_H
#define TNI_BACKING_MAPPING_H

#include "backing/backing.h"

static inline struct tni_backing *tni_backing_at(const struct tni_segment *s, tni_block block)
{
    return tni_payload_look(s, block);
}

/** Whether a value of tni_backing.strategy names an object of this generation. */
static inline bool tni_strategy_is_of(uint32_t word, uint32_t generation)
{
    return word != 0 && (word ^ tni_strategy_word(0, generation)) >> TNI_STRATEGY_BITS == 0;
}

static inline tn_storage_header *tni_mapping_header(const struct tni_mapping *m)
{
    return (tn_storage_header *)(void *)m->address;
}

/**
 * Check a copy of the description of a block's object.
 * @return 0; TN_ERR_NOT_FOUND: the block has no object; TN_ERR_CORRUPT
 */
int tni_backing_check_record(const struct tni_segment *segment, tni_block block,
                             const struct tni_backing *backing);
/** Begin to write the description of a block's object: the fields of every kind of object. */
void tni_backing_begin_record(const struct tn_domain *domain, struct tni_backing *backing,
                              const struct tni_mapping *mapping, uint64_t data_bytes);
/** End it: from now on the description is valid, as that of a block of this generation. */
void tni_backing_end_record(struct tni_backing *backing, uint32_t strategy,
                            uint32_t generation);
/**
 * Copy a description from shared memory. `strategy` of the copy has no generation.
 * @return `strategy` in shared memory; 0: the description changed during the copy
 */
uint32_t tni_backing_copy_record(const struct tni_backing *backing,
                                 struct tni_backing *ret_copy);

/** Unmap the object of a mapping. */
void tni_mapping_unmap_object(const struct tni_mapping *mapping);

/* ---- device.c: objects that are memory of a device --------------------------------------- */

/** Use a device until this process leaves the domain. pre: tni_mappings_lock() */
int tni_device_object_use(struct tn_domain *domain, tn_device device);
/** Find out the last two fields of `about`, and keep the device in use: I8. */
int tni_device_object_measure(struct tn_domain *domain, struct tni_backing_about *about);
/** Whether the quota and the device have room for the object if all other memory were free. */
bool tni_device_object_can_fit(const struct tn_domain *domain,
                               const struct tni_backing_about *about);
/**
 * Make the memory that a block's description names, if the quota of the device has room (I7).
 * @return 0, TNI_ALLOC_AGAIN, TN_ERR_NO_MEMORY (quota or device), TN_ERR_FULL, TN_ERR_DEVICE
 */
int tni_device_object_make(struct tn_domain *domain, tni_block block,
                           const struct tni_backing_about *about, struct tni_mapping *mapping,
                           int *ret_fd);
/**
 * Map the memory of a device that a checked description names. pre: tni_mappings_lock().
 * TN_ERR_UNSUPPORTED: this process does not see the device.
 * @param fd  borrowed
 */
int tni_device_object_map(struct tn_domain *domain, const struct tni_backing *backing, int fd,
                          struct tni_mapping *ret_mapping);
/** Stop using devices for a domain that this process has left. */
void tni_device_objects_end(struct tn_domain *domain);

/** Make the table of mappings if it does not exist yet. pre: tni_mappings_lock() */
int tni_mappings_ensure(struct tn_domain *domain);

/** Unmap all slabs that no tensor uses. pre: tni_mappings_lock() */
void tni_mappings_end_slabs(struct tn_domain *domain);

/** Allocate a struct tni_mapping. NULL: private memory ran out; the error detail says so. */
struct tni_mapping *tni_mapping_new(void);

/** End a mapping without references. pre: tni_mappings_lock() */
void tni_mapping_end(struct tn_domain *domain, struct tni_mapping *mapping);
/** Whether a mapping without references is of a slab that has not ended (I9). */
bool tni_mapping_is_idle_slab(const struct tn_domain *domain,
                              const struct tni_mapping *mapping);

/**
 * Enter `mapping` as the newest mapping of its block, and keep or close the object's descriptor
 * (I4). The call consumes the descriptor. pre: tni_mappings_lock()
 * @param fd  the descriptor; -1: there is none
 */
void tni_mapping_enter(struct tn_domain *domain, struct tni_mapping *mapping, int fd,
                       bool is_deposited);

/** In a forked child: unmap a mapping that the child does not need. Does not call free(). */
void tni_mapping_discard_in_child(struct tn_domain *domain, struct tni_mapping *mapping);

/** Whether the mapping's descriptor is kept, and the program has not closed or replaced it. */
bool tni_mapping_has_descriptor(const struct tni_mapping *mapping);

/** Turn TN_ERR_SYSTEM into TN_ERR_FULL if this process can open no more descriptors. */
int tni_backing_translate_status(int status);

/** Close the descriptor of a mapping, if it is kept. pre: tni_mappings_lock() */
void tni_mapping_close_kept(struct tn_domain *domain, struct tni_mapping *mapping);
/** Whether a record other than this process's hold names the mapping's block and generation. */
bool tni_mapping_is_named_elsewhere(const struct tn_domain *domain,
                                    const struct tni_mapping *mapping);
/**
 * Close parked descriptors that no other process needs any more. pre: tni_mappings_lock()
 * @param all  close all parked descriptors
 */
void tni_mappings_sweep_parked(struct tn_domain *domain, bool all);

/** After the object of a block has ended: close its parked descriptor (I6). */
void tni_mappings_unpark(struct tn_domain *domain, tni_block block);

#endif
