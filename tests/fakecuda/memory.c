/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of devices: allocations, who keeps them, and the descriptors that name them. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "fakecuda/state.h"

enum { JUNK = 0xDD, GIVE_BACK_BYTES = 32 << 20 };

/* ---- allocations ------------------------------------------------------------------------- */

static bool overlaps(const struct allocation *a, int device, uint64_t off, uint64_t bytes)
{
    return a->kind && !a->is_recycled && (int)a->device == device && off < a->off + a->bytes &&
           a->off < off + bytes;
}

static bool is_free(int device, uint64_t off, uint64_t bytes)
{
    if (off + bytes > device_space())
        return false;
    for (int i = 0; i < MAX_ALLOCATIONS; i++)
        if (overlaps(&universe->allocations[i], device, off, bytes))
            return false;
    return true;
}

/* The lowest place: memory is used again as soon as it can be. @return UINT64_MAX if none */
static uint64_t place_for(int device, uint64_t bytes)
{
    uint64_t lowest = is_free(device, 0, bytes) ? 0 : UINT64_MAX;
    for (int i = 0; i < MAX_ALLOCATIONS && lowest > 0; i++) {
        const struct allocation *a = &universe->allocations[i];
        uint64_t off = a->off + a->bytes;
        if (a->kind && (int)a->device == device && off < lowest && is_free(device, off, bytes))
            lowest = off;
    }
    return lowest;
}

static int unused_allocation(void)
{
    for (int i = 0; i < MAX_ALLOCATIONS; i++)
        if (universe->allocations[i].kind == ALLOCATION_NONE)
            return i;
    return -1;
}

uint64_t device_used(int device)
{
    uint64_t bytes = 0;
    for (int i = 0; i < MAX_ALLOCATIONS; i++) {
        const struct allocation *a = &universe->allocations[i];
        if (a->kind && !a->is_recycled && (int)a->device == device)
            bytes += a->bytes;
    }
    return bytes;
}

static bool has_room(int device, uint64_t bytes)
{
    return bytes <= universe->options.memory_bytes &&
           device_used(device) + bytes <= universe->options.memory_bytes;
}

int allocation_create(int device, uint64_t bytes, uint32_t kind)
{
    if (!has_room(device, bytes)) {
        processes_sweep();
        allocations_sweep();
    }
    int index = unused_allocation();
    uint64_t off = has_room(device, bytes) ? place_for(device, bytes) : UINT64_MAX;
    if (index < 0 || off == UINT64_MAX)
        return -1;
    universe->allocations[index] = (struct allocation){.kind = kind,
                                                       .device = (uint32_t)device,
                                                       .id = universe_id(),
                                                       .bytes = bytes,
                                                       .off = off,
                                                       .owner = local.process,
                                                       .owner_instance = me()->instance};
    race_forget(device, off, bytes);
    memset(device_memory(device) + off, JUNK, bytes < BLOCK_BYTES ? bytes : BLOCK_BYTES);
    return index;
}

/* The bytes go back to the system, if they are many: that takes milliseconds. */
static void give_back(struct allocation *a)
{
    orphans_finish_in((int)a->device, a->off, a->bytes);
    race_forget((int)a->device, a->off, a->bytes);
    words_forget((int)a->device, a->off, a->bytes);
    if (a->bytes >= GIVE_BACK_BYTES)
        madvise(device_memory((int)a->device) + a->off, a->bytes, MADV_REMOVE);
}

void allocation_recycle(int allocation)
{
    struct allocation *a = &universe->allocations[allocation];
    if (a->is_recycled)
        return;
    orphans_finish_in((int)a->device, a->off, a->bytes);
    race_forget((int)a->device, a->off, a->bytes);
    words_forget((int)a->device, a->off, a->bytes);
    a->is_recycled = true;
}

/* R45: the exports whose descriptors are closed everywhere do not count. */
static void exports_settle(int allocation)
{
    for (int i = 0; i < MAX_EXPORTS; i++) {
        struct export *export = &universe->exports[i];
        if (!export->id || export->allocation != allocation || export_is_open(export->id))
            continue;
        *export = (struct export){0};
        universe->allocations[allocation].export_count--;
    }
}

void allocation_settle(int allocation)
{
    struct allocation *a = &universe->allocations[allocation];
    if (a->handle_count || a->mapping_count || a->kind == ALLOCATION_NONE)
        return;
    if (a->export_count)
        exports_settle(allocation);
    if (a->export_count)
        return;
    if (!a->is_recycled)
        give_back(a);
    pieces_drop(allocation);
    *a = (struct allocation){0};
}

void allocations_sweep(void)
{
    for (int i = 0; i < MAX_ALLOCATIONS; i++)
        if (universe->allocations[i].kind)
            allocation_settle(i);
}

static void forget_counts(void)
{
    for (int i = 0; i < MAX_ALLOCATIONS; i++) {
        struct allocation *a = &universe->allocations[i];
        a->handle_count = a->mapping_count = a->export_count = 0;
    }
}

void allocations_recount(void)
{
    forget_counts();
    for (int i = 0; i < MAX_HANDLES; i++)
        if (universe->handles[i].value)
            universe->allocations[universe->handles[i].allocation].handle_count++;
    for (int i = 0; i < MAX_MAPPINGS; i++)
        if (universe->mappings[i].kind)
            universe->allocations[universe->mappings[i].allocation].mapping_count++;
    for (int i = 0; i < MAX_EXPORTS; i++)
        if (universe->exports[i].id)
            universe->allocations[universe->exports[i].allocation].export_count++;
    universe->handle_end = MAX_HANDLES;
    universe->mapping_end = MAX_MAPPINGS;
    universe->piece_end = MAX_PIECES;
    universe->inflight_end = MAX_INFLIGHT;
}

/* ---- descriptors ------------------------------------------------------------------------- */

/*
 * A descriptor says nothing of what it names: it is an eventfd, as all others, whose count is
 * the id. All eventfds are of one inode, in which the descriptor holds a lock of the byte at
 * its id until its last copy is closed, in whatever process or message that copy is.
 */
static int lock_id(int fd, int command, uint64_t id, struct flock *lock)
{
    *lock = (struct flock){.l_type = command == F_OFD_GETLK ? F_WRLCK : F_RDLCK,
                           .l_whence = SEEK_SET,
                           .l_start = (off_t)id,
                           .l_len = 1};
    return fcntl(fd, command, lock);
}

bool export_is_open(uint64_t id)
{
    int fd = eventfd(0, EFD_CLOEXEC);
    if (fd < 0)
        return true;
    struct flock lock;
    bool is_open = lock_id(fd, F_OFD_GETLK, id, &lock) != 0 || lock.l_type != F_UNLCK;
    close(fd);
    return is_open;
}

static int unused_export(void)
{
    for (int i = 0; i < MAX_EXPORTS; i++)
        if (!universe->exports[i].id)
            return i;
    return -1;
}

/* All universes share the inode, so the seed of this one does not decide the id. */
static uint64_t export_id(void)
{
    uint64_t random;
    if (getrandom(&random, sizeof random, 0) != sizeof random)
        abort();
    return (random >> 2) + 1;
}

int export_create(int allocation)
{
    int index = unused_export();
    if (index < 0) {
        for (int i = 0; i < MAX_ALLOCATIONS; i++)
            exports_settle(i);
        index = unused_export();
    }
    if (index < 0)
        return -1;
    uint64_t id = export_id();
    int fd = eventfd(0, EFD_CLOEXEC);
    struct flock lock;
    if (fd < 0)
        return -1;
    if (write(fd, &id, sizeof id) != sizeof id || lock_id(fd, F_OFD_SETLK, id, &lock) != 0) {
        close(fd);
        return -1;
    }
    universe->exports[index] = (struct export){.id = id, .allocation = allocation};
    universe->allocations[allocation].export_count++;
    return fd;
}

/* The count of an eventfd; 0 if it is none. */
static uint64_t id_of(int fd)
{
    char path[48], line[128];
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    FILE *info = fopen(path, "re");
    uint64_t id = 0;
    while (info && fgets(line, sizeof line, info))
        if (strncmp(line, "eventfd-count:", 14) == 0)
            id = strtoull(line + 14, NULL, 16);
    if (info)
        fclose(info);
    return id;
}

int export_find(int fd)
{
    uint64_t id = id_of(fd);
    for (int i = 0; id && i < MAX_EXPORTS; i++)
        if (universe->exports[i].id == id)
            return universe->exports[i].allocation;
    return -1;
}
