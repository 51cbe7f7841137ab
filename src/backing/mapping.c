/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mapping: finds the object of a block and maps it. The descriptor comes from tenond's depot,
 * or from another process that has the object open. The table of mappings is in table.c; its
 * I2, I4 and I6 hold here.
 */
#include "backing/mapping.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATIENCE_NS UINT64_C(1000000000)

int tni_backing_translate_status(int status)
{
    return status == TN_ERR_SYSTEM && !tni_os_has_descriptor_left() ? TN_ERR_FULL : status;
}

/* ---- finding a memfd --------------------------------------------------------------------- */

/* Names the storage whose memfd is searched for. */
struct storage_id {
    tni_block block;
    uint32_t generation;
    uint64_t inode;
};

/* A descriptor that was found. */
struct descriptor {
    int fd;
    bool is_deposited; /* tenond has a copy */
};

struct search {
    uint64_t inode;
    int fd;
};

static int open_if_same(int32_t pid, int fd_number, const char *name, uint64_t inode,
                        void *context)
{
    struct search *search = context;
    struct tni_os_memory memory;
    int fd;
    (void)name;
    if (inode != search->inode)
        return 0;
    int status = tni_os_memory_open(pid, fd_number, false, &fd);
    /* Other errors end the search: this may be the last process that has the object. */
    if (status != 0)
        return status == TN_ERR_NOT_FOUND || status == TN_ERR_DENIED ? 0 : status;
    if (tni_os_memory_stat(fd, &memory) != 0 || memory.inode != inode) {
        tni_os_close(fd); /* the other process has closed the object and reused the number */
        return 0;
    }
    search->fd = fd;
    return 1;
}

/* Whether the maker of a storage is ending. False if its pid is of another pid namespace. */
static bool is_ending(const struct tn_domain *d, uint64_t maker, int32_t pid)
{
    const struct tni_seat *seat = tni_seat_at(&d->segment, tni_who_seat(maker));
    return tni_os_has_pid_space(TNI_LOOK(seat->pid_space)) && tni_os_process_is_ending(pid);
}

/* Neither tenond nor any process that this one can inspect has the descriptor: say why. */
static int fail_lost(const struct tn_domain *d, tni_block block, uint32_t generation)
{
    const struct tni_segment *s = &d->segment;
    const struct tni_backing *b = tni_backing_at(s, block);
    uint32_t pid = tni_desc_at(s, block)->creator_pid;
    uint64_t tenond = atomic_load(&b->depositary), maker = atomic_load(&b->owner);
    if (!tni_strategy_is_of(atomic_load(&b->strategy), generation))
        return tni_fail(TN_ERR_STALE, "the storage of block %08x has ended meanwhile",
                        block.id);
    if (tenond != 0)
        return tni_fail(TN_ERR_NOT_FOUND,
                        "no process has the descriptor of block %08x any more: a former tenond "
                        "(in seat %u) had it, but the tenond and the vault that run now do not",
                        block.id, tni_who_seat(tenond));
    /* The maker still has the descriptor. This process can get it once tenond has a copy. */
    if (tni_process_who_runs(s, maker))
        return tni_fail(TN_ERR_DENIED,
                        "the descriptor of block %08x cannot be opened: process %u, which made "
                        "the block, %s%s",
                        block.id, pid,
                        /* No process may inspect a process that is ending. */
                        is_ending(d, maker, (int32_t)pid)
                            ? "is ending"
                            : "is alive, but this process may not inspect it",
                        tni_backing_part(d)->depot != NULL ? ", and tenond has no copy" : "");
    return tni_fail(TN_ERR_NOT_FOUND,
                    "no process has the descriptor of block %08x any more: process %u, which "
                    "made the block, has ended%s",
                    block.id, pid,
                    tni_backing_part(d)->depot != NULL
                        ? " before tenond had a copy of the descriptor"
                        : ", and the domain has no tenond that would have kept it");
}

static int fail_manager(tni_block block, const char *why)
{
    return tni_fail(
        TN_ERR_MANAGER,
        "only tenond can have the descriptor of block %08x, and did not give it: %s", block.id,
        why);
}

/*
 * Get a descriptor from tenond. One that has just begun may need a moment to get what the vault
 * of the tenond before it has.
 */
static int get_patiently(struct tn_domain *d, const struct storage_id *id, int *ret_fds,
                         uint32_t count)
{
    uint64_t deadline_ns = tni_os_now_ns() + PATIENCE_NS;
    int status;
    for (uint32_t tries = 0;; tries++) {
        status = tni_backing_part(d)->depot->get(d, id->block, id->generation, ret_fds, count);
        if (status != TN_ERR_TIMED_OUT || tni_os_now_ns() >= deadline_ns)
            break;
        tni_os_back_off(tries);
    }
    return status == TN_ERR_TIMED_OUT ? TN_ERR_MANAGER : status;
}

/*
 * Ask tenond for a descriptor, then search the processes that have the object open.
 * @return 0, TN_ERR_NOT_FOUND, or an error
 */
static int search_memory(struct tn_domain *d, const struct storage_id *id,
                         struct descriptor *ret_found)
{
    struct search search = {.inode = id->inode, .fd = -1};
    int status = TN_ERR_NOT_FOUND;
    if (tni_backing_part(d)->depot != NULL)
        status =
            tni_backing_part(d)->depot->get(d, id->block, id->generation, &ret_found->fd, 1);
    ret_found->is_deposited = status == 0;
    if (status != TN_ERR_NOT_FOUND && status != TN_ERR_MANAGER && status != TN_ERR_TIMED_OUT)
        return status;
    char why[160]; /* the error detail: the search replaces it */
    snprintf(why, sizeof why, "%s", tn_error_detail());
    int found = tni_os_memory_for_each(TNI_STORAGE_PREFIX, open_if_same, &search);
    if (found == 1) {
        ret_found->fd = search.fd;
        return 0;
    }
    if (found == 0 && status == TN_ERR_TIMED_OUT) {
        status = get_patiently(d, id, &ret_found->fd, 1);
        ret_found->is_deposited = status == 0;
        snprintf(why, sizeof why, "%s", tn_error_detail());
    }
    if (found == 0 && status == TN_ERR_MANAGER)
        return fail_manager(id->block, why);
    return found < 0 ? found : status;
}

static int find_memory(struct tn_domain *d, const struct storage_id *id,
                       struct descriptor *ret_found)
{
    int status = search_memory(d, id, ret_found);
    /*
     * Search again after starting a tenond if none runs. The maker may have given tenond the
     * descriptor, and closed its own, after tenond was asked and before the processes were
     * searched.
     */
    if (status == TN_ERR_NOT_FOUND && tni_backing_part(d)->depot != NULL) {
        if (tni_backing_part(d)->depot->start(d) != 0) {
            char why[160];
            snprintf(why, sizeof why, "%s", tn_error_detail());
            return fail_manager(id->block, why);
        }
        status = search_memory(d, id, ret_found);
    }
    return status == TN_ERR_NOT_FOUND ? fail_lost(d, id->block, id->generation) : status;
}

int tni_mapping_find_deposited(struct tn_domain *d, tni_block block, uint32_t generation,
                               int *ret_fds, uint32_t count)
{
    const struct storage_id id = {.block = block, .generation = generation};
    const struct tni_depot *depot = tni_backing_part(d)->depot;
    if (depot == NULL)
        return tni_fail(TN_ERR_UNSUPPORTED,
                        "memory of devices crosses between processes through tenond, and the "
                        "domain has none");
    int status = get_patiently(d, &id, ret_fds, count);
    /* No tenond ran, or one has just ended or begun: one that runs has what its vault kept. */
    if (status == TN_ERR_NOT_FOUND || status == TN_ERR_MANAGER)
        status = depot->start(d) == 0 ? get_patiently(d, &id, ret_fds, count) : TN_ERR_MANAGER;
    if (status == TN_ERR_MANAGER) {
        char why[160];
        snprintf(why, sizeof why, "%s", tn_error_detail());
        return fail_manager(block, why);
    }
    return status == TN_ERR_NOT_FOUND ? fail_lost(d, block, generation) : status;
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
static int map_object(struct tn_domain *d, const struct storage_id *id,
                      const struct tni_backing *b, struct tni_mapping *ret_mapping,
                      struct descriptor *ret_descriptor)
{
    struct tni_mapping m;
    struct descriptor found = {.fd = -1};
    tni_block block = id->block;
    bool is_file = b->path[0] != 0;
    int status = is_file ? tni_os_shm_open(b->path, &found.fd) : find_memory(d, id, &found);
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
static int map_on_device(struct tn_domain *d, const struct storage_id *id,
                         const struct tni_backing *b, struct tni_mapping *ret_mapping,
                         struct descriptor *ret_descriptor)
{
    struct descriptor found = {.is_deposited = true};
    int status = tni_mapping_find_deposited(d, id->block, id->generation, &found.fd, 1);
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
    uint64_t deadline_ns = tni_os_now_ns() + PATIENCE_NS;
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
                            block.id, (int)(PATIENCE_NS / 1000000000));
        tni_os_back_off(tries);
    }
}

static int map_new(struct tn_domain *d, tni_block block, uint32_t generation,
                   struct tni_mapping **ret_mapping)
{
    struct tni_backing b;
    struct descriptor found = {.fd = -1};
    int status = read_settled(d, block, &b);
    if (status != 0)
        return status;
    const struct storage_id id = {
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
    const struct storage_id id = {
        .block = block, .generation = m->generation, .inode = m->inode};
    struct descriptor found;
    if (tni_mapping_has_descriptor(m))
        return tni_os_duplicate(m->fd, ret_fd);
    int status =
        m->path != NULL ? tni_os_shm_open(m->path, &found.fd) : find_memory(d, &id, &found);
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
