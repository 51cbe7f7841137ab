/* SPDX-License-Identifier: Apache-2.0 */
/* inspect: what the files of the inspector share. Inside the room api. */
#ifndef TNI_API_INSPECT_H
#define TNI_API_INSPECT_H

#include <tenon/inspect.h>

#include "reaper/reaper.h"

struct tn_inspector {
    struct tni_segment segment; /* read-only */
};

enum { TNI_HEX_ID_BYTES = 33 };

void tni_inspect_hex_id(const struct tni_segment *segment, char hex[TNI_HEX_ID_BYTES]);
void tni_inspect_domain_info(const struct tni_segment *segment, tn_domain_entry *ret_info);

/** The pid in a seat, also while it is being taken; 0 if it is free. */
int32_t tni_inspect_seat_pid(const struct tni_segment *segment, uint32_t seat);
/** The command of the process in a seat: as it is now, else as it was when it joined. */
void tni_inspect_seat_command(const struct tni_segment *segment, uint32_t seat, char *text,
                              size_t size_bytes);

typedef int tni_inspect_segment_fn(const struct tni_segment *segment, void *context);
/** A domain that this library cannot attach to: its layout is of another version. */
typedef int tni_inspect_other_fn(const struct tni_found *found, void *context);
/**
 * Attach read-only to each domain of this user in turn.
 * @param other  called for a domain of another version; NULL: such domains are skipped
 * @return what `each` or `other` returned, or an error
 */
int tni_inspect_for_each_segment(tni_inspect_segment_fn *each, tni_inspect_other_fn *other,
                                 void *context);

static inline uint64_t tni_inspect_age(uint64_t now_ns, uint64_t then_ns)
{
    return then_ns < now_ns ? now_ns - then_ns : 0;
}
/**
 * Whether there is memory behind a block. Reading a block without memory would give it some.
 */
bool tni_inspect_has_memory(const struct tni_segment *segment, tni_block block);
/**
 * Read the description of the object that a block has outside of the arena. Sizes are cut to
 * what a domain can have.
 * @return false: it has no object, or none yet, or the description makes no sense
 */
bool tni_inspect_backing(const struct tni_segment *segment, tni_block block,
                         struct tni_backing *ret_backing);
/** Copy and check the description of the slab of a block of a device. @return false: no slab */
bool tni_inspect_slab(const struct tni_segment *segment, tni_block block,
                      struct tni_backing *ret_backing);
/** Whether the bytes of a block are on a device. */
bool tni_inspect_is_on_device(const struct tni_segment *segment, tni_block block);
/** The bytes that were asked for, and never more than the block or its object has. */
uint64_t tni_inspect_block_bytes(const struct tni_segment *segment, tni_block block);
/** The bytes of all objects outside of the arena, and the number of these objects. */
uint64_t tni_inspect_outside_bytes(const struct tni_segment *segment, uint64_t *ret_count);

#endif
