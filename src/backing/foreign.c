/* SPDX-License-Identifier: Apache-2.0 */
/*
 * foreign: what the maker of memory does with it: it lets a block stand for the memory, and
 * moves the data into memory of tenon before it leaves.
 *
 * I13 A description says MOVING only while its maker copies, and MOVED only once tenond has the
 *     descriptor of the copy. Who finds MOVING waits; the storage of a maker that dies then is
 *     lost, as it would be without the copy.
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
    tni_backing_end_record(b, TN_STRATEGY_CUDA_IPC, m->generation);
    TNI_KILL_POINT("foreign_named");
}

int tni_foreign_adopt(struct tn_domain *d, tni_block block, const struct tni_foreign_about *a,
                      struct tni_mapping **ret_mapping)
{
    tn_device_info info = {.struct_size = sizeof info};
    int status = tn_device_get_info(a->memory.device, &info);
    struct tni_mapping *m = status == 0 ? tni_mapping_new() : NULL;
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
        tni_mapping_enter(d, m, -1, false);
    }
    tni_mappings_unlock(d);
    if (status != 0)
        free(m);
    else
        *ret_mapping = m;
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
    uint64_t inode, device;
    int fd;
    if (depot == NULL)
        return tni_fail(TN_ERR_UNSUPPORTED,
                        "the domain has no tenond, which would keep a copy");
    int status = kind->make(kind, &to, &fd);
    if (status != 0)
        return status;
    status = tni_os_identify(fd, &inode, &device);
    if (status == 0)
        status = copy(m, &to);
    if (status == 0) {
        tni_mappings_lock(d);
        atomic_store(&b->device, device); /* tenond compares them */
        atomic_store(&b->inode, inode);
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
