/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mapping: find the memory object of a block and map it: by a descriptor that this process
 * keeps, from tenond's depot, or from a process that has it open; and hand descriptors over
 * before this process leaves. What is mapped is in table.c, whose I2, I4 and I6 hold here.
 */
#include "backing/mapping.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HAND_OVER_NS UINT64_C(5000000000)

int tni_backing_name_shortage(int status)
{
    return status == TN_ERR_SYSTEM && !tni_os_has_descriptor_left() ? TN_ERR_FULL : status;
}

/* ---- mapping ----------------------------------------------------------------------------- */

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
    /* One that could not be opened for want of something may be the only one that is left. */
    if (status != 0)
        return status == TN_ERR_NOT_FOUND || status == TN_ERR_DENIED ? 0 : status;
    if (tni_os_memory_stat(fd, &memory) != 0 || memory.inode != inode) {
        tni_os_close(fd); /* its number is another one's by now */
        return 0;
    }
    search->fd = fd;
    return 1;
}

/* Only where its pid is a number of our pid namespace too. */
static bool is_ending(const struct tn_domain *d, uint64_t maker, int32_t pid)
{
    const struct tni_seat *seat = tni_seat_at(&d->segment, tni_who_seat(maker));
    return tni_os_has_pid_space(TNI_LOOK(seat->pid_space)) && tni_os_process_is_ending(pid);
}

/* Neither tenond nor any process that can be seen from here has the descriptor: say why. */
static int fail_lost(const struct tn_domain *d, tni_block block, uint32_t generation)
{
    const struct tni_segment *s = &d->segment;
    const struct tni_backing *b = tni_backing_at(s, block);
    uint32_t pid = tni_desc_at(s, block)->creator_pid;
    uint64_t tenond = atomic_load(&b->depositary), maker = atomic_load(&b->owner);
    if (!tni_strategy_is_of(atomic_load(&b->strategy), generation))
        return tni_fail(TN_ERR_STALE, "the storage of block %x has ended meanwhile", block.id);
    if (tenond != 0)
        return tni_fail(TN_ERR_NOT_FOUND,
                        "nobody has the descriptor of block %x any more: a tenond had it (in "
                        "seat %u), and the tenond and the vault of now have not",
                        block.id, tni_who_seat(tenond));
    /* Not lost: a process that may look there can have it, and so can we once tenond has it. */
    if (tni_process_who_runs(s, maker))
        return tni_fail(TN_ERR_DENIED,
                        "the descriptor of block %x cannot be had: process %u, which made the "
                        "block, %s%s",
                        block.id, pid,
                        /* Nobody may look into it from when it has begun to end. */
                        is_ending(d, maker, (int32_t)pid)
                            ? "is ending"
                            : "lives, but this process may not look into it",
                        tni_backing_part(d)->depot != NULL ? ", and tenond has no copy" : "");
    return tni_fail(TN_ERR_NOT_FOUND,
                    "nobody has the descriptor of block %x any more: process %u, which made "
                    "the block, has ended%s",
                    block.id, pid,
                    tni_backing_part(d)->depot != NULL
                        ? " before tenond had got the descriptor"
                        : ", and the domain has no tenond that would keep it");
}

static int fail_manager(tni_block block, const char *why)
{
    return tni_fail(TN_ERR_MANAGER, "block %x: only tenond may have its descriptor: %s",
                    block.id, why);
}

/* From tenond, else from whoever has it open. @return 0, TN_ERR_NOT_FOUND, or an error */
static int look_for_memory(struct tn_domain *d, tni_block block, uint32_t generation,
                           uint64_t inode, int *ret_fd, bool *ret_is_deposited)
{
    struct search search = {.inode = inode, .fd = -1};
    int status = TN_ERR_NOT_FOUND;
    if (tni_backing_part(d)->depot != NULL)
        status = tni_backing_part(d)->depot->get(d, block, generation, ret_fd);
    *ret_is_deposited = status == 0;
    if (status != TN_ERR_NOT_FOUND && status != TN_ERR_MANAGER)
        return status;
    char why[160]; /* the search has details of its own */
    snprintf(why, sizeof why, "%s", tn_error_detail());
    int found = tni_os_memory_for_each(TNI_STORAGE_PREFIX, open_if_same, &search);
    if (found == 1) {
        *ret_fd = search.fd;
        return 0;
    }
    if (found == 0 && status == TN_ERR_MANAGER)
        return fail_manager(block, why);
    return found < 0 ? found : status;
}

static int find_memory(struct tn_domain *d, tni_block block, uint32_t generation,
                       uint64_t inode, int *ret_fd, bool *ret_is_deposited)
{
    int status = look_for_memory(d, block, generation, inode, ret_fd, ret_is_deposited);
    /*
     * There may have been no tenond. Or its maker has given it to tenond, and closed it,
     * between the two looks.
     */
    if (status == TN_ERR_NOT_FOUND && tni_backing_part(d)->depot != NULL) {
        if (tni_backing_part(d)->depot->summon(d) != 0) {
            char why[160];
            snprintf(why, sizeof why, "%s", tn_error_detail());
            return fail_manager(block, why);
        }
        status = look_for_memory(d, block, generation, inode, ret_fd, ret_is_deposited);
    }
    return status == TN_ERR_NOT_FOUND ? fail_lost(d, block, generation) : status;
}

/* A file may have been replaced by another one, a descriptor be of something else. */
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
        return tni_fail(TN_ERR_STALE, "the storage of block %x has ended meanwhile", block.id);
    return tni_fail(TN_ERR_CORRUPT, "%s is not the storage of block %x: it was replaced",
                    b->path[0] != 0 ? b->path : "the object", block.id);
}

/* Nothing of ours can be had there any more. */
static int name_replaced(const struct tni_backing *b, tni_block block, int status)
{
    if (status != TN_ERR_INVALID)
        return status;
    if (b->path[0] != 0)
        return tni_fail(TN_ERR_CORRUPT, "%s was replaced by something that is no plain file",
                        b->path);
    return tni_fail(TN_ERR_CORRUPT, "block %x: %s", block.id, tn_error_detail());
}

/* What a checked record names: opened, mapped, and proved to be of this generation. */
static int map_object(struct tn_domain *d, tni_block block, uint32_t generation,
                      const struct tni_backing *b, struct tni_mapping *ret_mapping, int *ret_fd,
                      bool *ret_is_deposited)
{
    struct tni_mapping m;
    bool is_file = b->path[0] != 0;
    int fd = -1;
    int status = is_file ? tni_os_shm_open(b->path, &fd)
                         : find_memory(d, block, generation, atomic_load(&b->inode), &fd,
                                       ret_is_deposited);
    if (status != 0)
        return name_replaced(b, block, status);
    if ((status = tni_store_map(fd, is_file, false, &m)) != 0) {
        status = name_replaced(b, block, status);
        /* We are the user of the domain: no other process of it may have the file either. */
        if (status == TN_ERR_DENIED && TNI_LOOK(d->segment.header->uid) == tni_os_uid())
            status = tni_fail(TN_ERR_CORRUPT, "%s: %s", b->path, tn_error_detail());
        goto close_fd;
    }
    m.index = tni_block_index(block);
    if ((status = check_identity(d, block, generation, b, &m)) != 0)
        goto unmap;
    if (is_file && (m.path = strdup(b->path)) == NULL) {
        status = tni_fail(TN_ERR_NO_MEMORY, "no private memory for a path");
        goto unmap;
    }
    TNI_KILL_POINT("backing_mapped");
    if (is_file)
        tni_os_close(fd);
    *ret_fd = is_file ? -1 : fd;
    *ret_mapping = m;
    return 0;

unmap:
    tni_os_unmap(m.address, m.object_bytes);
close_fd:
    tni_os_close(fd);
    return status;
}

static int map_new(struct tn_domain *d, tni_block block, uint32_t generation,
                   struct tni_mapping **ret_mapping)
{
    struct tni_backing b;
    bool is_deposited = false;
    int fd = -1;
    int status = tni_backing_read(&d->segment, block, &b);
    if (status != 0)
        return status;
    struct tni_mapping *m = tni_mapping_new();
    if (m == NULL)
        return TN_ERR_NO_MEMORY;
    if ((status = map_object(d, block, generation, &b, m, &fd, &is_deposited)) != 0) {
        free(m);
        return status;
    }
    tni_mapping_enter(d, m, fd, is_deposited);
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
    if (m == NULL || m->generation != generation)
        return map_new(d, block, generation, ret_mapping);
    if (m->address == NULL)
        return tni_fail(TN_ERR_NOT_FOUND, "this forked child lost the storage of block %x",
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
    int status = tni_backing_name_shortage(map_locked(d, block, generation, ret_mapping));
    tni_mappings_unlock(d);
    return status;
}

static bool has_bytes(const struct tni_mapping *m, uintptr_t address, uint64_t size_bytes)
{
    if (m == NULL || m->address == NULL)
        return false;
    uint64_t at = address - ((uintptr_t)m->address + m->data_offset); /* below: wraps */
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

/* The block may be another's by now: a tensor may outlive the domain that it was made in. */
static int check_same(const struct tni_mapping *m, tni_block block, int fd)
{
    struct tni_os_memory memory;
    int status =
        m->path != NULL ? tni_os_shm_stat(fd, &memory) : tni_os_memory_stat(fd, &memory);
    if (status == 0 && memory.inode != m->inode)
        status = tni_fail(TN_ERR_NOT_FOUND, "the descriptor of block %x is another storage's",
                          block.id);
    return status;
}

static int open_any(struct tn_domain *d, struct tni_mapping *m, tni_block block, int *ret_fd)
{
    bool is_deposited;
    if (tni_mapping_has_descriptor(m))
        return tni_os_duplicate(m->fd, ret_fd);
    int fd, status = m->path != NULL
                         ? tni_os_shm_open(m->path, &fd)
                         : find_memory(d, block, m->generation, m->inode, &fd, &is_deposited);
    if (status != 0)
        return status;
    if ((status = check_same(m, block, fd)) != 0)
        tni_os_close(fd);
    else
        *ret_fd = fd;
    return status;
}

int tni_backing_open(struct tn_domain *d, struct tni_mapping *m, tni_block block,
                     bool read_only, int *ret_fd)
{
    int fd;
    tni_mappings_lock(d);
    int status = tni_backing_name_shortage(open_any(d, m, block, &fd));
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

/* @return 0: also where this process has no descriptor to give; or as tni_depot.put() */
static int deposit(struct tn_domain *d, struct tni_mapping *m)
{
    if (!tni_mapping_has_descriptor(m))
        return 0;
    int status = tni_backing_part(d)->depot->put(d, tni_block_make(TNI_BACKING_CLASS, m->index),
                                                 m->generation, m->fd);
    m->is_deposited = status == 0;
    return status;
}

void tni_backing_confirm(struct tn_domain *d, struct tni_mapping *m)
{
    if (m->path != NULL || tni_backing_part(d)->depot == NULL)
        return;
    tni_backing_part(d)->depot->catch_up(d);
    if (m->is_deposited)
        return;
    tni_mappings_lock(d);
    tni_backing_part(d)->depot_line.pause_ns =
        0; /* now is the last moment to ask a tenond that was silent */
    if (!m->is_deposited && deposit(d, m) != 0)
        tni_log(TNI_LOG_WARNING, "tenond has not got a storage: %s", tn_error_detail());
    tni_mappings_unlock(d);
}

/* ---- before we leave --------------------------------------------------------------------- */

struct hand_over {
    bool again;       /* no tenond that lives has what a former one had */
    bool is_silent;   /* tenond: ask once more */
    uint32_t missing; /* storages that others name and tenond has not got */
};

static void hand_over_one(struct tn_domain *d, struct tni_mapping *m, struct hand_over *h)
{
    if (m == NULL || m->fd < 0 || (m->is_deposited && !h->again) ||
        !tni_mapping_is_wanted(d, m))
        return;
    int status = h->is_silent ? TN_ERR_TIMED_OUT : deposit(d, m);
    h->is_silent |= status == TN_ERR_TIMED_OUT;
    h->missing += status != 0 && status != TN_ERR_STALE;
}

static struct hand_over hand_over_all(struct tn_domain *d, bool again)
{
    struct hand_over h = {.again = again};
    for (struct tni_mapping *m = tni_backing_part(d)->parked; m != NULL; m = m->next)
        hand_over_one(d, m, &h);
    for (uint32_t i = 0;
         tni_backing_part(d)->mappings != NULL && i < tni_backing_part(d)->mappings_limit; i++)
        hand_over_one(d, tni_backing_part(d)->mappings[i], &h);
    return h;
}

void tni_backing_hand_over(struct tn_domain *d)
{
    if (tni_backing_part(d)->depot == NULL)
        return;
    uint64_t deadline_ns = tni_os_now_ns() + HAND_OVER_NS;
    struct hand_over h = {0};
    tni_mappings_lock(d);
    tni_backing_part(d)->depot_line.pause_ns = 0;
    if (tni_backing_part(d)->kept_fds > 0)
        h = hand_over_all(d, !tni_backing_part(d)->depot->has_all(d));
    while (h.is_silent && tni_os_now_ns() < deadline_ns) {
        tni_backing_part(d)->depot_line.pause_ns = 0;
        h = hand_over_all(d, false); /* what failed is not deposited */
    }
    tni_mappings_unlock(d);
    if (h.missing > 0)
        tni_log(TNI_LOG_ERROR, "tenond has not got %u storages that others name: %s", h.missing,
                tn_error_detail());
}

/* ---- another tenond ---------------------------------------------------------------------- */

/* @return whether to go on: a storage that has ended meanwhile is no reason not to */
static bool deposit_one(struct tn_domain *d, struct tni_mapping *m)
{
    int status = deposit(d, m);
    return status == 0 || status == TN_ERR_STALE;
}

void tni_backing_deposit_again(struct tn_domain *d)
{
    tni_mappings_lock(d);
    uint32_t limit =
        tni_backing_part(d)->kept_fds > 0 ? tni_backing_part(d)->mappings_limit : 0;
    bool goes_on = tni_backing_part(d)->depot != NULL;
    for (struct tni_mapping *m = tni_backing_part(d)->parked; goes_on && m != NULL; m = m->next)
        goes_on = deposit_one(d, m);
    tni_mappings_sweep_parked(d, false);
    for (uint32_t i = 0; goes_on && tni_backing_part(d)->mappings != NULL && i < limit; i++) {
        struct tni_mapping *m = tni_backing_part(d)->mappings[i];
        if (m == NULL)
            continue;
        goes_on = deposit_one(d, m);
        if (m->is_deposited &&
            tni_backing_part(d)->kept_fds > tni_backing_part(d)->kept_limit &&
            !(m->is_write_once && !m->is_read_only))
            tni_mapping_close_kept(d, m);
    }
    tni_mappings_unlock(d);
}
