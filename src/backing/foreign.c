/* SPDX-License-Identifier: Apache-2.0 */
/*
 * foreign: what the maker of memory does with it: it lets a block stand for the memory, and
 * moves the data into memory of tenon before it leaves.
 *
 * I13 A description says MOVING only while its maker copies, and MOVED only once tenond has the
 *     descriptor of the copy. Who finds MOVING waits; the storage of a maker that dies then is
 *     lost, as it would be without the copy.
 * I14 Memory in pieces becomes a storage once tenond has the descriptors of all pieces. Its
 *     maker closes its own descriptors at once. It exports the pieces again for a new tenond,
 *     as long as it keeps the storage and nothing else lies at their addresses.
 * lease.c has who may have the memory open. A death after the block was named leaves a block
 * that the dead seat holds: the reaper frees it, and the memory ends with its process.
 */
#include "backing/backing.h"

#include <stdlib.h>
#include <string.h>

#include "backing/mapping.h"

/* ---- making ---------------------------------------------------------------------------- */

/* The bytes that the data takes in memory of tenon, once it is moved. */
static uint64_t moved_bytes(const struct tni_foreign_about *a, const tn_device_info *info)
{
    const struct tni_memory_kind *kind = tni_memory_kind(a->memory.device.type);
    uint64_t granule = 1;
    if ((info->flags & TN_DEVICE_SHARES) != 0 &&
        kind->granularity(kind, a->memory.device.id, &granule) != 0)
        granule = 1;
    return tni_align_up(TNI_MAX(a->bytes, 1), granule);
}

static void name_memory(struct tn_domain *d, tni_block block, const struct tni_foreign_about *a,
                        const tn_device_info *info, const struct tni_mapping *m)
{
    struct tni_backing *b = tni_backing_at(&d->segment, block);
    tni_backing_begin_record(d, b, m, a->bytes);
    TNI_PUT(b->flags, 0);
    memset(b->path, 0, sizeof b->path);
    TNI_PUT(b->device_type, a->memory.device.type);
    TNI_PUT(b->device_flags, info->flags & TN_DEVICE_IS_PART);
    memcpy(b->device_uuid, info->uuid, sizeof b->device_uuid);
    memcpy(b->handle, a->handle, sizeof b->handle);
    TNI_PUT(b->allocation, a->allocation);
    TNI_PUT(b->allocation_bytes, a->memory.bytes);
    TNI_PUT(b->allocation_at, a->memory.base);
    TNI_PUT(b->data_off, a->address - a->memory.base);
    TNI_PUT(b->buffer_id, a->memory.buffer_id);
    TNI_PUT(b->piece_count, a->memory.piece_count);
    tni_backing_end_record(b, TN_STRATEGY_CUDA_IPC, m->generation);
    TNI_KILL_POINT("foreign_named");
}

/* tenond compares what the description says of each descriptor. */
static int identify(struct tni_backing *b, const int *fds)
{
    uint64_t inode, device;
    int status = tni_os_identify(fds[0], &inode, &device);
    if (status != 0)
        return status;
    atomic_store(&b->device, device);
    atomic_store(&b->inode, inode);
    return 0;
}

/* I14. pre: tni_mappings_lock() */
static int deposit_pieces(struct tn_domain *d, tni_block block, const int *fds,
                          struct tni_mapping *m, uint32_t count)
{
    const struct tni_depot *depot = tni_backing_part(d)->depot;
    if (depot == NULL)
        return tni_fail(TN_ERR_UNSUPPORTED,
                        "the domain has no tenond, which would keep descriptors");
    int status = identify(tni_backing_at(&d->segment, block), fds);
    if (status == 0)
        status = depot->put(d, block, m->generation, fds, count);
    m->is_deposited = status == 0;
    m->is_in_pieces = true;
    tni_backing_part(d)->has_pieces = true;
    TNI_KILL_POINT("foreign_deposited");
    return status;
}

/* Other pieces may lie at the address by now. */
static bool is_as_described(const struct tni_backing *b, const struct tni_device_foreign *found)
{
    return found->way == TNI_FOREIGN_PIECES && found->buffer_id == b->buffer_id &&
           found->base == b->allocation_at && found->bytes == b->allocation_bytes &&
           found->piece_count == b->piece_count;
}

int tni_foreign_export_again(const struct tn_domain *d, const struct tni_mapping *m,
                             int *ret_fds, uint32_t *ret_count)
{
    const struct tni_memory_kind *kind = tni_memory_kind(m->memory.device.type);
    const struct tni_backing *b =
        tni_backing_at(&d->segment, tni_block_make(TNI_BACKING_CLASS, m->index));
    struct tni_device_foreign found = {.piece_count = 0};
    int status =
        kind->classify(kind, m->memory.device.id, m->memory.address, m->data_bytes, &found);
    if (status == TN_ERR_INVALID || (status == 0 && !is_as_described(b, &found)))
        status = tni_fail(TN_ERR_NOT_FOUND,
                          "a library has unmapped memory of a device that this process shares");
    if (status == 0)
        status = kind->export_pieces(kind, &found, ret_fds);
    *ret_count = found.piece_count;
    return status;
}

int tni_foreign_adopt(struct tn_domain *d, tni_block block, const struct tni_foreign_about *a,
                      struct tni_mapping **ret_mapping)
{
    tn_device_info info = {.struct_size = sizeof info};
    int status = tn_device_get_info(a->memory.device, &info);
    struct tni_mapping *m = status == 0 ? tni_mapping_new() : NULL;
    bool is_named = false;
    if (m == NULL)
        return status != 0 ? status : TN_ERR_NO_MEMORY;
    *m = (struct tni_mapping){
        .address = (uint8_t *)(uintptr_t)a->address,
        .memory = {.device = a->memory.device, .address = a->address, .bytes = a->bytes},
        .object_bytes = moved_bytes(a, &info),
        .data_bytes = a->bytes,
        .index = tni_block_index(block),
        .generation = tni_desc_at(&d->segment, block)->generation,
        .refs = 1,
        .fd = -1,
        .is_ipc = true,
        .is_foreign = true};
    tni_mappings_lock(d);
    status = tni_mappings_ensure(d);
    if (status == 0)
        status = tni_device_object_use(d, a->memory.device);
    if (status == 0) {
        name_memory(d, block, a, &info, m);
        if (a->memory.piece_count > 0)
            status = deposit_pieces(d, block, a->fds, m, a->memory.piece_count);
        if (status == 0)
            tni_mapping_enter(d, m, -1, m->is_deposited);
        is_named = true;
    }
    tni_mappings_unlock(d);
    if (status == 0) {
        *ret_mapping = m;
        return 0;
    }
    if (is_named)
        tni_backing_end(d, block, m->generation);
    free(m);
    return status;
}

/* ---- moving ---------------------------------------------------------------------------- */

bool tni_foreign_is_held(const struct tn_domain *d, tni_block block, uint32_t *ret_seat)
{
    const struct tni_segment *s = &d->segment;
    uint32_t at = tni_block_position(&s->geometry, block), limit = tni_seat_limit(s);
    for (uint32_t seat = 0; seat < limit; seat++)
        if (seat != d->seat && (atomic_load(tni_row_at(s, seat, at)) >> (at % 64) & 1) != 0) {
            *ret_seat = seat;
            return true;
        }
    return false;
}

/* Copy the data into new memory of tenon, and wait. */
static int copy(const struct tni_mapping *m, const struct tni_device_memory *to)
{
    const struct tni_memory_kind *kind = tni_memory_kind(to->device.type);
    const struct tni_device_copy wanted = {.direction = TNI_COPY_ON_DEVICE,
                                           .to = to->address,
                                           .from = m->memory.address,
                                           .bytes = m->data_bytes};
    int status = m->data_bytes != 0 ? kind->copy(kind, to->device.id, &wanted) : 0;
    return status == 0 ? kind->wait(kind, to->device.id, NULL) : status;
}

static int move(struct tn_domain *d, tni_block block, const struct tni_mapping *m)
{
    const struct tni_memory_kind *kind = tni_memory_kind(m->memory.device.type);
    const struct tni_depot *depot = tni_backing_part(d)->depot;
    struct tni_backing *b = tni_backing_at(&d->segment, block);
    struct tni_device_memory to = {.device = m->memory.device, .bytes = m->object_bytes};
    int fd;
    if (depot == NULL)
        return tni_fail(TN_ERR_UNSUPPORTED,
                        "the domain has no tenond, which would keep a copy");
    int status = kind->make(kind, &to, &fd);
    if (status != 0)
        return status;
    status = copy(m, &to);
    if (status == 0)
        status = identify(b, &fd);
    if (status == 0) {
        tni_mappings_lock(d);
        status = depot->put(d, block, m->generation, &fd, 1);
        tni_mappings_unlock(d);
    }
    TNI_KILL_POINT("foreign_copied");
    if (status != 0) {
        atomic_store(&b->inode, 0);
    } else {
        /* This release pairs with the acquire fence of those who copy the description. */
        atomic_store_explicit(&b->moved, TNI_MOVED, memory_order_release);
        TNI_KILL_POINT("foreign_moved");
    }
    kind->unmap(kind, &to);
    tni_os_close(fd);
    return status;
}

int tni_foreign_move(struct tn_domain *d, tni_block block, const struct tni_mapping *m)
{
    struct tni_backing *b = tni_backing_at(&d->segment, block);
    uint32_t seat;
    int status = tni_device_drain();
    if (status != 0)
        return status;
    atomic_store(&b->moved, TNI_MOVING);
    TNI_KILL_POINT("foreign_moving");
    status = tni_foreign_is_held(d, block, &seat)
                 ? tni_fail(TN_ERR_EXISTS, "the process in seat %u has got it meanwhile", seat)
                 : move(d, block, m);
    if (status != 0)
        atomic_store(&b->moved, 0);
    return status;
}
