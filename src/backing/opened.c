/* SPDX-License-Identifier: Apache-2.0 */
/*
 * opened: allocations of other processes that this process has open.
 *
 * I10 A process opens an allocation once, whatever the number of storages in it, and keeps it
 *     open while no tensor is in it: opening takes milliseconds. Once the maker asks for that,
 *     or has ended, a later call that has to do with devices, or a wait, closes it.
 *
 * I11 An allocation is found by its name (struct tni_lessor), never by an address or a handle:
 *     an address comes again. What else the description says of it must be the same.
 *
 * I12 A forked child has none open: it drops the list, without a call of the driver.
 *
 * I15 Pieces of another allocator are mapped side by side from their descriptors, which tenond
 *     has, and closed before the call returns. The driver keeps them for whoever has mapped
 *     them, so tensors in them outlive their maker.
 */
#include <stdlib.h>
#include <string.h>

#include "backing/find.h"
#include "backing/mapping.h"

/* ---- the list -------------------------------------------------------------------------- */

/* I12. pre: the lock */
static struct tni_opened **list_of(struct tn_domain *d)
{
    struct tni_backing_part *part = tni_backing_part(d);
    if (part->opened_pid != tni_os_pid()) {
        part->opened = NULL;
        part->opened_pid = tni_os_pid();
    }
    return &part->opened;
}

static struct tni_opened *find(struct tn_domain *d, const struct tni_lessor *of)
{
    struct tni_opened *o = *list_of(d);
    while (o != NULL && (o->of.maker != of->maker || o->of.allocation != of->allocation))
        o = o->next;
    return o;
}

static void close_one(struct tn_domain *d, struct tni_opened **at)
{
    struct tni_opened *o = *at;
    const struct tni_memory_kind *kind = tni_memory_kind(o->memory.device.type);
    *at = o->next;
    if (o->piece_count > 0)
        kind->unmap(kind, &o->memory);
    else
        kind->close(kind, &o->memory);
    TNI_KILL_POINT("lease_closed");
    tni_lease_release(&d->segment, d->who, o->lease);
    if (o->refs == 0) /* else a tensor outlives the domain, and its mapping names this */
        free(o);
}

static bool is_to_close(const struct tn_domain *d, const struct tni_opened *o, bool all)
{
    return o->refs == 0 && (all || tni_lease_is_wanted(&d->segment, o->lease) ||
                            !tni_process_who_lives(&d->segment, o->of.maker));
}

static void sweep(struct tn_domain *d, bool all)
{
    for (struct tni_opened **at = list_of(d); *at != NULL;)
        if (is_to_close(d, *at, all))
            close_one(d, at);
        else
            at = &(*at)->next;
}

void tni_opened_sweep(struct tn_domain *d, bool all)
{
    tni_mappings_lock(d);
    sweep(d, all);
    tni_mappings_unlock(d);
}

void tni_opened_end(struct tn_domain *d)
{
    while (*list_of(d) != NULL)
        close_one(d, list_of(d));
}

/* ---- opening --------------------------------------------------------------------------- */

static int fail_gone(const struct tn_domain *d, uint64_t maker)
{
    uint32_t seat = tni_who_seat(maker);
    bool has_seat = tni_geometry_has_seat(&d->segment.geometry, seat);
    tni_set_peer(seat, has_seat ? atomic_load(&tni_seat_at(&d->segment, seat)->pid) : 0);
    return tni_fail(
        TN_ERR_PEER_DIED,
        "the tensor is lost: the process in seat %u, whose allocator made its memory "
        "on a device, has ended",
        seat);
}

bool tni_mapping_is_lost(const struct tn_domain *d, const struct tni_mapping *m)
{
    return m != NULL && m->opened != NULL && m->opened->piece_count == 0 &&
           !tni_process_who_lives(&d->segment, m->opened->of.maker);
}

int tni_mapping_fail_lost(const struct tn_domain *d, const struct tni_mapping *m)
{
    return fail_gone(d, m->opened->of.maker);
}

/* Close what nobody uses of the maker's memory that was where this is now. @return whether any
 */
static bool close_stale(struct tn_domain *d, const struct tni_opened *wanted,
                        bool overlaps_only)
{
    bool has_closed = false;
    for (struct tni_opened **at = list_of(d); *at != NULL;) {
        const struct tni_opened *o = *at;
        bool overlaps =
            o->at < wanted->at + wanted->memory.bytes && wanted->at < o->at + o->memory.bytes;
        if (o->refs == 0 && o->of.maker == wanted->of.maker && (overlaps || !overlaps_only)) {
            close_one(d, at);
            has_closed = true;
        } else {
            at = &(*at)->next;
        }
    }
    return has_closed;
}

static int open_patiently(struct tn_domain *d, struct tni_opened *o)
{
    const struct tni_memory_kind *kind = tni_memory_kind(o->memory.device.type);
    int status = kind->open(kind, &o->memory, o->handle);
    if (status == TN_ERR_EXISTS && close_stale(d, o, true))
        status = kind->open(kind, &o->memory, o->handle);
    if (status == TN_ERR_EXISTS && close_stale(d, o, false))
        status = kind->open(kind, &o->memory, o->handle);
    return status == TN_ERR_EXISTS ? tni_fail(TN_ERR_UNSUPPORTED, "%s", tn_error_detail())
                                   : status;
}

/* I15 */
static int map_pieces(struct tn_domain *d, tni_block block, uint32_t generation,
                      struct tni_opened *o)
{
    const struct tni_memory_kind *kind = tni_memory_kind(o->memory.device.type);
    int fds[TNI_PIECES];
    int status = tni_find_deposited(d, block, generation, fds, o->piece_count);
    /* One more is the connection to tenond, which was closed. */
    if (status == TN_ERR_SYSTEM && !tni_os_has_descriptors_left(o->piece_count + 1))
        status = tni_fail(TN_ERR_FULL,
                          "this process cannot open %u more descriptors, one for each piece of "
                          "the memory of block %08x (ulimit -n)",
                          o->piece_count, block.id);
    if (status != 0)
        return status;
    status = kind->map(kind, &o->memory, fds, o->piece_count);
    for (uint32_t i = 0; i < o->piece_count; i++)
        tni_os_close(fds[i]);
    return status;
}

/* lease.c, I2. */
static int check_still(const struct tn_domain *d, tni_block block, uint32_t generation)
{
    const struct tni_backing *b = tni_backing_at(&d->segment, block);
    return tni_strategy_is_of(atomic_load(&b->strategy), generation) &&
                   atomic_load(&b->moved) == 0
               ? 0
               : tni_fail(TN_ERR_STALE, "the storage of block %08x has ended meanwhile",
                          block.id);
}

static int open_new(struct tn_domain *d, tni_block block, uint32_t generation,
                    struct tni_opened *o)
{
    if (!tni_lease_take(&d->segment, d->who, &o->of, &o->lease))
        return tni_fail(TN_ERR_FULL, "all %d leases of memory of other allocators are taken",
                        TNI_LEASES);
    int status = check_still(d, block, generation);
    if (status == 0)
        status =
            o->piece_count > 0 ? map_pieces(d, block, generation, o) : open_patiently(d, o);
    TNI_KILL_POINT("lease_opened");
    if (status != 0) {
        tni_lease_release(&d->segment, d->who, o->lease);
        return status;
    }
    o->next = *list_of(d);
    *list_of(d) = o;
    return 0;
}

static int open_from(struct tn_domain *d, tni_block block, uint32_t generation,
                     const struct tni_backing *b, struct tni_opened **ret_opened)
{
    struct tni_opened *o = calloc(1, sizeof *o);
    if (o == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "no private memory for memory of another process");
    o->of = (struct tni_lessor){atomic_load(&b->owner), b->allocation};
    o->at = b->allocation_at;
    o->buffer_id = b->buffer_id;
    o->piece_count = b->piece_count;
    o->memory.bytes = b->allocation_bytes;
    memcpy(o->handle, b->handle, sizeof o->handle);
    int status =
        tni_device_by_uuid(b->device_type, b->device_uuid, b->device_flags, &o->memory.device);
    if (status == TN_ERR_NOT_FOUND)
        status = TN_ERR_UNSUPPORTED; /* another process may see it: the message is not lost */
    if (status == 0)
        status = tni_device_object_use(d, o->memory.device);
    if (status == 0)
        status = open_new(d, block, generation, o);
    if (status != 0)
        free(o);
    else
        *ret_opened = o;
    return status;
}

/* I11 */
static int check_same(const struct tni_opened *o, tni_block block, const struct tni_backing *b)
{
    if (o->buffer_id == b->buffer_id && o->at == b->allocation_at &&
        o->memory.bytes == b->allocation_bytes && o->piece_count == b->piece_count &&
        memcmp(o->handle, b->handle, sizeof o->handle) == 0)
        return 0;
    return tni_fail(TN_ERR_CORRUPT,
                    "the description of block %08x and an earlier one give one allocation "
                    "different handles, sizes or addresses",
                    block.id);
}

/* ---- this process's own memory, which it got back through another seat ----------------- */

static bool is_here(const struct tn_domain *d, uint64_t maker)
{
    const struct tni_seat *seat = tni_seat_at(&d->segment, tni_who_seat(maker));
    return atomic_load(&seat->pid) == tni_os_pid() &&
           TNI_LOOK(seat->pid_space) == TNI_LOOK(d->me->pid_space);
}

/* The description may be wrong: the driver knows what is there. */
static int map_here(const struct tni_backing *b, struct tni_mapping *m)
{
    const struct tni_memory_kind *kind = tni_memory_kind(b->device_type);
    struct tni_device_foreign found;
    tn_device device;
    uint64_t address = b->allocation_at + b->data_off;
    int status = tni_device_by_uuid(b->device_type, b->device_uuid, b->device_flags, &device);
    if (status == 0)
        status = kind->classify(kind, device.id, address, b->data_bytes, &found);
    if (status == 0 && found.buffer_id != b->buffer_id)
        status = tni_fail(TN_ERR_CORRUPT, "memory at %llx is another allocation than stated",
                          (unsigned long long)address);
    if (status != 0)
        return status;
    m->is_foreign = true;
    m->memory = (struct tni_device_memory){
        .device = device, .address = address, .bytes = b->data_bytes};
    m->address = (uint8_t *)(uintptr_t)address;
    return 0;
}

/* ---- mapping --------------------------------------------------------------------------- */

static int map_there(struct tn_domain *d, tni_block block, uint32_t generation,
                     const struct tni_backing *b, struct tni_mapping *m)
{
    const struct tni_lessor of = {atomic_load(&b->owner), b->allocation};
    struct tni_opened *o = find(d, &of);
    int status = o != NULL ? check_same(o, block, b) : open_from(d, block, generation, b, &o);
    if (status != 0)
        return status;
    o->refs++;
    m->opened = o;
    m->memory = o->memory;
    m->address = (uint8_t *)(uintptr_t)(o->memory.address + b->data_off);
    return 0;
}

int tni_opened_map(struct tn_domain *d, tni_block block, uint32_t generation,
                   const struct tni_backing *b, struct tni_mapping *ret_mapping)
{
    uint64_t maker = atomic_load(&b->owner);
    struct tni_mapping m = {.object_bytes = b->object_bytes,
                            .data_bytes = b->data_bytes,
                            .index = tni_block_index(block),
                            .generation = generation,
                            .refs = 1,
                            .fd = -1,
                            .is_ipc = true};
    bool has_maker = tni_process_who_runs(&d->segment, maker);
    if (!has_maker && b->piece_count == 0)
        return fail_gone(d, maker);
    int status = has_maker && is_here(d, maker) ? map_here(b, &m)
                                                : map_there(d, block, generation, b, &m);
    if (status == TN_ERR_NOT_FOUND && !tni_process_who_runs(&d->segment, maker))
        status = fail_gone(d, maker);
    if (status == 0)
        *ret_mapping = m;
    return status;
}
