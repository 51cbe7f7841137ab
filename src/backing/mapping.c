/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mapping: maps the object of a block, whose descriptor find.c gets. The table of mappings is
 * in table.c; its I2, I4 and I6 hold here.
 */
#include "backing/mapping.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backing/find.h"

int tni_backing_translate_status(int status)
{
    return status == TN_ERR_SYSTEM && !tni_os_has_descriptor_left() ? TN_ERR_FULL : status;
}

/* ---- mapping ----------------------------------------------------------------------------- */

/* Check that the mapped object is the object that the block's description names. */
static int check_identity(const struct tn_domain *d, tni_block block, uint32_t generation,
                          const struct tni_backing *b, const struct tni_mapping *m)
{
    const tn_storage_header *h = tni_mapping_header(m);
    if (m->inode == atomic_load(&b->inode) && h->block == block.id &&
        h->generation == generation && m->data_bytes == b->data_bytes &&
        memcmp(h->domain, d->segment.id, sizeof h->domain) == 0)
        return 0;
    if (!tni_strategy_is_of(atomic_load(&tni_backing_at(&d->segment, block)->strategy),
                            generation))
        return tni_fail(TN_ERR_STALE, "the storage of block %08x has ended meanwhile",
                        block.id);
    return tni_fail(TN_ERR_CORRUPT, "%s is not the storage of block %08x: it was replaced",
                    b->path[0] != 0 ? b->path : "the object", block.id);
}

/* Turn TN_ERR_INVALID, the status for an object of the wrong kind, into TN_ERR_CORRUPT. */
static int fail_replaced(const struct tni_backing *b, tni_block block, int status)
{
    if (status != TN_ERR_INVALID)
        return status;
    if (b->path[0] != 0)
        return tni_fail(TN_ERR_CORRUPT, "%s was replaced by something that is not a plain file",
                        b->path);
    return tni_fail(TN_ERR_CORRUPT, "block %08x: %s", block.id, tn_error_detail());
}

/* Open and map the object that a checked description names, and check its identity. */
static int map_object(struct tn_domain *d, const struct tni_storage_id *id,
                      const struct tni_backing *b, struct tni_mapping *ret_mapping,
                      struct tni_found *ret_descriptor)
{
    struct tni_mapping m;
    struct tni_found found = {.fd = -1};
    tni_block block = id->block;
    bool is_file = b->path[0] != 0;
    int status = is_file ? tni_os_shm_open(b->path, &found.fd) : tni_find_memory(d, id, &found);
    if (status != 0)
        return fail_replaced(b, block, status);
    if ((status = tni_store_map(found.fd, is_file, false, &m)) != 0) {
        status = fail_replaced(b, block, status);
        /* This process runs as the domain's user, so no other member can open the file. */
        if (status == TN_ERR_DENIED && TNI_LOOK(d->segment.header->uid) == tni_os_uid())
            status = tni_fail(TN_ERR_CORRUPT, "%s: %s", b->path, tn_error_detail());
        goto close_fd;
    }
    m.index = tni_block_index(block);
    if ((status = check_identity(d, block, id->generation, b, &m)) != 0)
        goto unmap;
    if (is_file && (m.path = strdup(b->path)) == NULL) {
        status = tni_fail(TN_ERR_NO_MEMORY, "no private memory for a path");
        goto unmap;
    }
    TNI_KILL_POINT("backing_mapped");
    if (is_file) {
        tni_os_close(found.fd);
        found.fd = -1;
    }
    *ret_descriptor = found;
    *ret_mapping = m;
    return 0;

unmap:
    tni_os_unmap(m.address, m.object_bytes);
close_fd:
    tni_os_close(found.fd);
    return status;
}

/* The same for memory of a device: only tenond has its descriptor under the block's number. */
static int map_on_device(struct tn_domain *d, const struct tni_storage_id *id,
                         const struct tni_backing *b, struct tni_mapping *ret_mapping,
                         struct tni_found *ret_descriptor)
{
    struct tni_found found = {.is_deposited = true};
    int status = tni_find_deposited(d, id->block, id->generation, &found.fd, 1);
    if (status != 0)
        return status;
    status = tni_device_object_map(d, b, found.fd, ret_mapping);
    TNI_KILL_POINT("backing_device_mapped");
    if (status != 0) {
        tni_os_close(found.fd);
        return status;
    }
    ret_mapping->index = tni_block_index(id->block);
    ret_mapping->generation = id->generation;
    *ret_descriptor = found;
    return 0;
}

/* Read the description, and wait while the maker of the memory copies it: foreign.c, I13. */
static int read_settled(struct tn_domain *d, tni_block block, struct tni_backing *ret_backing)
{
    uint64_t deadline_ns = tni_os_now_ns() + TNI_PATIENCE_NS;
    int status;
    for (uint32_t tries = 0;; tries++) {
        status = tni_backing_read(&d->segment, block, ret_backing);
        if (status != 0 || !tni_backing_is_ipc(ret_backing) ||
            atomic_load(&ret_backing->moved) != TNI_MOVING)
            return status;
        if (!tni_process_who_runs(&d->segment, atomic_load(&ret_backing->owner)))
            return 0; /* and so it is lost */
        if (tni_os_now_ns() >= deadline_ns)
            return tni_fail(TN_ERR_UNSUPPORTED,
                            "the process that made block %08x has been copying it for %d s, "
                            "because it is leaving; try again later",
                            block.id, (int)(TNI_PATIENCE_NS / 1000000000));
        tni_os_back_off(tries);
    }
}

static int map_new(struct tn_domain *d, tni_block block, uint32_t generation,
                   struct tni_mapping **ret_mapping)
{
    struct tni_backing b;
    struct tni_found found = {.fd = -1};
    int status = read_settled(d, block, &b);
    if (status != 0)
        return status;
    const struct tni_storage_id id = {
        .block = block, .generation = generation, .inode = atomic_load(&b.inode)};
    struct tni_mapping *m = tni_mapping_new();
    if (m == NULL)
        return TN_ERR_NO_MEMORY;
    status = tni_backing_is_foreign(&b) ? tni_opened_map(d, block, generation, &b, m)
             : b.device_type != 0       ? map_on_device(d, &id, &b, m, &found)
                                        : map_object(d, &id, &b, m, &found);
    if (status != 0) {
        free(m);
        return status;
    }
    tni_mapping_enter(d, m, found.fd, found.is_deposited);
    *ret_mapping = m;
    return 0;
}

static int map_locked(struct tn_domain *d, tni_block block, uint32_t generation,
                      struct tni_mapping **ret_mapping)
{
    int status = tni_mappings_ensure(d);
    if (status != 0)
        return status;
    struct tni_mapping *m = tni_backing_part(d)->mappings[tni_block_index(block)];
    if (m != NULL && m->generation != generation && m->refs == 0) {
        tni_mapping_end(d, m); /* a slab that ended (I9) */
        m = NULL;
    }
    if (m == NULL || m->generation != generation)
        return map_new(d, block, generation, ret_mapping);
    if (m->address == NULL)
        return tni_fail(TN_ERR_NOT_FOUND, "this forked child lost the storage of block %08x",
                        block.id);
    m->refs++;
    *ret_mapping = m;
    return 0;
}

int tni_backing_map(struct tn_domain *d, tni_block block, uint32_t generation,
                    struct tni_mapping **ret_mapping)
{
    if (tni_backing_part(d)->depot != NULL)
        tni_backing_part(d)->depot->catch_up(d);
    tni_mappings_lock(d);
    int status = tni_backing_translate_status(map_locked(d, block, generation, ret_mapping));
    tni_mappings_unlock(d);
    return status;
}

static bool has_bytes(const struct tni_mapping *m, uintptr_t address, uint64_t size_bytes)
{
    if (m == NULL || m->address == NULL)
        return false;
    uint64_t at =
        address - ((uintptr_t)m->address + m->data_offset); /* a lower address wraps */
    return at <= m->data_bytes && size_bytes <= m->data_bytes - at &&
           (at < m->data_bytes || at == 0);
}

struct tni_mapping *tni_backing_find(struct tn_domain *d, uintptr_t address,
                                     uint64_t size_bytes)
{
    struct tni_mapping *found = NULL;
    tni_mappings_lock(d);
    for (uint32_t i = 0; tni_backing_part(d)->mappings != NULL &&
                         i < tni_backing_part(d)->mappings_limit && found == NULL;
         i++)
        if (has_bytes(tni_backing_part(d)->mappings[i], address, size_bytes))
            found = tni_backing_part(d)->mappings[i];
    if (found != NULL)
        found->refs++;
    tni_mappings_unlock(d);
    return found;
}

/* ---- descriptors ------------------------------------------------------------------------- */

/* Compare inodes: a tensor may outlive its domain, so the number of its block may be reused. */
static int check_same(const struct tni_mapping *m, tni_block block, int fd)
{
    struct tni_os_memory memory;
    int status =
        m->path != NULL ? tni_os_shm_stat(fd, &memory) : tni_os_memory_stat(fd, &memory);
    if (status == 0 && memory.inode != m->inode)
        status =
            tni_fail(TN_ERR_NOT_FOUND,
                     "the descriptor that was found for block %08x belongs to another storage",
                     block.id);
    return status;
}

static int open_any(struct tn_domain *d, struct tni_mapping *m, tni_block block, int *ret_fd)
{
    const struct tni_storage_id id = {
        .block = block, .generation = m->generation, .inode = m->inode};
    struct tni_found found;
    if (tni_mapping_has_descriptor(m))
        return tni_os_duplicate(m->fd, ret_fd);
    int status =
        m->path != NULL ? tni_os_shm_open(m->path, &found.fd) : tni_find_memory(d, &id, &found);
    if (status != 0)
        return status;
    if ((status = check_same(m, block, found.fd)) != 0)
        tni_os_close(found.fd);
    else
        *ret_fd = found.fd;
    return status;
}

int tni_backing_open(struct tn_domain *d, struct tni_mapping *m, tni_block block,
                     bool read_only, int *ret_fd)
{
    int fd;
    tni_mappings_lock(d);
    int status = tni_backing_translate_status(open_any(d, m, block, &fd));
    tni_mappings_unlock(d);
    if (status != 0 || !read_only) {
        if (status == 0)
            *ret_fd = fd;
        return status;
    }
    status = tni_os_memory_reopen(fd, true, ret_fd);
    tni_os_close(fd);
    return status;
}
