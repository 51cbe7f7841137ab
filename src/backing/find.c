/* SPDX-License-Identifier: Apache-2.0 */
/*
 * find: gets the descriptors of a block's object: from tenond's depot, or from another process
 * that has the object open.
 */
#include "backing/find.h"

#include <stdio.h>
#include <string.h>

#include "backing/mapping.h"

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
static int get_patiently(struct tn_domain *d, const struct tni_storage_id *id, int *ret_fds,
                         uint32_t count)
{
    uint64_t deadline_ns = tni_os_now_ns() + TNI_PATIENCE_NS;
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
static int search_memory(struct tn_domain *d, const struct tni_storage_id *id,
                         struct tni_found *ret_found)
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

int tni_find_memory(struct tn_domain *d, const struct tni_storage_id *id,
                    struct tni_found *ret_found)
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

int tni_find_deposited(struct tn_domain *d, tni_block block, uint32_t generation, int *ret_fds,
                       uint32_t count)
{
    const struct tni_storage_id id = {.block = block, .generation = generation};
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
