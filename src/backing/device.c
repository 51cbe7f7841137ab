/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device: objects that are memory of a device.
 *
 * Such an object is like a memfd: a descriptor refers to it, tenond keeps a copy, and it lives
 * while any process has it mapped or has a descriptor. It has no header, and its descriptor no
 * identity: inode and device are those of the driver's device file, the same for all of its
 * memory. So the descriptor comes from tenond only, which has it under its block and
 * generation.
 *
 * I7  The objects of a domain on one device, those that are being made included, have no more
 *     bytes than the quota of devices. A process names its object in the block, then adds up
 *     what all blocks name, and makes the memory only if the sum is in the quota. If two
 *     processes exceed it together, both may fail: each gets TNI_ALLOC_AGAIN and retries.
 * I8  A process uses a device for a domain from its first object there until it leaves the
 *     domain: making the driver's context for each object would take some tenths of a second.
 * I9  A process maps a slab once, and keeps it mapped while it has not ended, also while no
 *     tensor of the process is in it. When a slab has ended, each process unmaps it in its next
 *     call that has to do with devices: header->slabs_ended has changed. Until then the
 * device's memory stays in use. A process may die after it has ended a slab and before it has
 * changed the number: the reaper changes it after every death.
 */
#include <string.h>

#include "backing/mapping.h"

/* ---- the device -------------------------------------------------------------------------- */

static uint64_t *used_of(struct tn_domain *d, int32_t type)
{
    return &tni_backing_part(d)->used_devices[type == TN_DEVICE_ROCM];
}

/* I8 */
int tni_device_object_use(struct tn_domain *d, tn_device device)
{
    const struct tni_memory_kind *kind = tni_memory_kind(device.type);
    uint64_t *used = used_of(d, device.type);
    if (device.id >= 64)
        return tni_fail(TN_ERR_UNSUPPORTED, "device %s:%d: only the first 64 are supported",
                        kind->name, device.id);
    if ((*used >> device.id & 1) != 0)
        return 0;
    int status = kind->use(kind, device.id);
    if (status == 0)
        *used |= UINT64_C(1) << device.id;
    return status;
}

void tni_device_objects_end(struct tn_domain *d)
{
    static const int32_t types[] = {TN_DEVICE_CUDA, TN_DEVICE_ROCM};
    for (size_t i = 0; i < TNI_COUNT(types); i++) {
        const struct tni_memory_kind *kind = tni_memory_kind(types[i]);
        uint64_t *used = used_of(d, types[i]);
        for (; *used != 0; *used &= *used - 1)
            kind->unuse(kind, (int32_t)tni_low_bit(*used));
    }
}

int tni_device_object_measure(struct tn_domain *d, struct tni_backing_about *about)
{
    tn_device_info info = {.struct_size = sizeof info};
    const struct tni_memory_kind *kind = tni_memory_kind(about->device.type);
    uint64_t granule = 0;
    int status = tn_device_get_info(about->device, &info);
    if (status == 0 && (info.flags & TN_DEVICE_SHARES) == 0)
        status = tni_fail(TN_ERR_UNSUPPORTED,
                          "processes cannot share memory of device %s:%d (%s): its driver is "
                          "too old for that, or the device lacks it",
                          kind->name, about->device.id, info.name);
    if (status != 0)
        return status;
    tni_mappings_lock(d);
    status = tni_device_object_use(d, about->device);
    tni_mappings_unlock(d);
    if (status == 0)
        status = kind->granularity(kind, about->device.id, &granule);
    if (status != 0)
        return status;
    about->object_bytes = tni_align_up(TNI_MAX(about->data_bytes, 1), granule);
    memcpy(about->uuid, info.uuid, sizeof about->uuid);
    about->device_flags = info.flags & TN_DEVICE_IS_PART;
    return 0;
}

/* ---- the quota --------------------------------------------------------------------------- */

/* What the blocks of a domain name on one device. */
struct usage {
    uint64_t bytes, made_bytes; /* made_bytes: of objects that exist already */
};

/* The sums stop at UINT64_MAX: any process can write a wrong size. */
static struct usage sum_usage(const struct tni_segment *s, const uint8_t uuid[16])
{
    uint32_t frontier = tni_frontier(s, TNI_BACKING_CLASS);
    struct usage usage = {0};
    for (uint32_t i = 0; i < frontier; i++) {
        tni_block block = tni_block_make(TNI_BACKING_CLASS, i);
        struct tni_backing b;
        if (tni_word_state(atomic_load(tni_word_at(s, block))) != TNI_BLOCK_ALLOC ||
            !tni_alloc_has_memory(s, block) ||
            tni_backing_copy_record(tni_backing_at(s, block), &b) == 0 || b.device_type == 0 ||
            tni_backing_is_foreign(&b) ||
            memcmp(b.device_uuid, uuid, sizeof b.device_uuid) != 0)
            continue;
        if (!tni_add_size(usage.bytes, b.object_bytes, &usage.bytes))
            usage.bytes = UINT64_MAX;
        if (atomic_load(&b.inode) == 0)
            continue;
        if (!tni_add_size(usage.made_bytes, b.object_bytes, &usage.made_bytes))
            usage.made_bytes = UINT64_MAX;
    }
    return usage;
}

static uint64_t quota_of(const struct tn_domain *d)
{
    return atomic_load(&d->segment.header->device_quota_bytes);
}

/* I7. pre: the block names the object */
static int check_quota(const struct tn_domain *d, const struct tni_backing_about *about)
{
    uint64_t quota = quota_of(d), all;
    struct usage usage = sum_usage(&d->segment, about->uuid);
    if (usage.bytes <= quota)
        return 0;
    if (tni_add_size(usage.made_bytes, about->object_bytes, &all) && all <= quota)
        return TNI_ALLOC_AGAIN;
    return tni_fail(TN_ERR_NO_MEMORY,
                    "%llu more bytes on device %s:%d would pass the domain's quota of %llu for "
                    "a device, of which it has taken %llu",
                    (unsigned long long)about->object_bytes,
                    tni_memory_kind(about->device.type)->name, about->device.id,
                    (unsigned long long)quota, (unsigned long long)usage.made_bytes);
}

bool tni_device_object_can_fit(const struct tn_domain *d, const struct tni_backing_about *about)
{
    tn_device_info info = {.struct_size = sizeof info};
    return tn_device_get_info(about->device, &info) == 0 &&
           about->object_bytes <= TNI_MIN(info.memory_bytes, quota_of(d));
}

/*
 * The device has no room: say how much is free, and how much of it the domain has taken. The
 * call that gives up adds who holds it: tni_ref_retry(). Memory of tensors that have just ended
 * is free once every process has unmapped it and tenond has closed its descriptor, so the
 * caller retries for a moment.
 */
static int fail_no_memory(const struct tn_domain *d, const struct tni_backing_about *about)
{
    struct usage usage = sum_usage(&d->segment, about->uuid);
    uint64_t free_bytes = 0;
    if (tn_device_get_free(about->device, &free_bytes) != 0)
        free_bytes = 0;
    tni_fail(TN_ERR_NO_MEMORY,
             "device %s:%d has %llu bytes free, and %llu are needed; the domain has taken "
             "%llu",
             tni_memory_kind(about->device.type)->name, about->device.id,
             (unsigned long long)free_bytes, (unsigned long long)about->object_bytes,
             (unsigned long long)usage.made_bytes);
    return TNI_ALLOC_AGAIN;
}

/* ---- making and mapping ------------------------------------------------------------------ */

static void set_memory(struct tni_mapping *m, const struct tni_device_memory *memory)
{
    m->memory = *memory;
    m->address = (uint8_t *)(uintptr_t)memory->address;
    m->is_read_only = memory->is_read_only;
}

int tni_device_object_make(struct tn_domain *d, tni_block block,
                           const struct tni_backing_about *about, struct tni_mapping *m,
                           int *ret_fd)
{
    const struct tni_memory_kind *kind = tni_memory_kind(about->device.type);
    struct tni_backing *b = tni_backing_at(&d->segment, block);
    struct tni_device_memory memory = {.device = about->device, .bytes = about->object_bytes};
    uint64_t inode, device;
    int fd;
    int status = check_quota(d, about);
    if (status != 0)
        return status;
    status = kind->make(kind, &memory, &fd);
    if (status != 0)
        return status == TN_ERR_NO_MEMORY ? fail_no_memory(d, about) : status;
    TNI_KILL_POINT("backing_device_made");
    if ((status = tni_os_identify(fd, &inode, &device)) != 0) {
        kind->unmap(kind, &memory);
        tni_os_close(fd);
        return status;
    }
    set_memory(m, &memory);
    m->inode = inode;
    atomic_store_explicit(&b->device, device, memory_order_relaxed);
    atomic_store_explicit(&b->inode, inode, memory_order_release);
    TNI_KILL_POINT("backing_device_filled");
    *ret_fd = fd;
    return 0;
}

int tni_device_object_map(struct tn_domain *d, const struct tni_backing *b, int fd,
                          struct tni_mapping *ret_mapping)
{
    const struct tni_memory_kind *kind = tni_memory_kind(b->device_type);
    bool is_write_once = (b->flags & TN_TENSOR_WRITE_ONCE) != 0;
    struct tni_device_memory memory = {.bytes = b->object_bytes, .is_read_only = is_write_once};
    uint64_t inode, device;
    int status =
        tni_device_by_uuid(b->device_type, b->device_uuid, b->device_flags, &memory.device);
    if (status == TN_ERR_NOT_FOUND)
        return TN_ERR_UNSUPPORTED; /* another process may see it: the message is not lost */
    if (status == 0)
        status = tni_os_identify(fd, &inode, &device);
    if (status == 0)
        status = tni_device_object_use(d, memory.device);
    if (status == 0)
        status = kind->map(kind, &memory, &fd, 1);
    if (status != 0)
        return status;
    *ret_mapping = (struct tni_mapping){.object_bytes = b->object_bytes,
                                        .data_bytes = b->data_bytes,
                                        .inode = inode,
                                        .refs = 1,
                                        .fd = -1,
                                        .is_write_once = is_write_once,
                                        .is_ipc = tni_backing_is_ipc(b),
                                        .is_slab = (b->flags & TNI_BACKING_SLAB) != 0};
    set_memory(ret_mapping, &memory);
    return 0;
}
