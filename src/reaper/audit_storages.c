/* SPDX-License-Identifier: Apache-2.0 */
/*
 * audit_storages: check that storages outside of the arena have their files.
 *
 * Any program of this user can remove, replace or truncate a named file. A process that has
 * mapped a removed or replaced file keeps it; later processes cannot have the storage. Nothing
 * can repair that. A memory object has no name, so no program can do this to one.
 */
#include <stdio.h>

#include "reaper/audit.h"

enum { PAUSE_NS = 50 * 1000 * 1000 };

/* Whether the storage is complete and not ending: then its file must exist. */
static bool is_complete(const struct tni_segment *s, tni_block block)
{
    uint64_t word = atomic_load(tni_word_at(s, block));
    return tni_word_state(word) == TNI_BLOCK_ALLOC && tni_word_count(word) > 0 &&
           tni_segment_committed(s, block) != 0;
}

static const char *file_fault(const struct tni_backing *b, int fd)
{
    struct tni_os_memory memory;
    if (tni_os_shm_stat(fd, &memory) != 0)
        return "is not a plain file";
    if (memory.inode != atomic_load(&b->inode) || memory.device != atomic_load(&b->device))
        return "was replaced by another file";
    if (memory.size_bytes < b->object_bytes)
        return "was truncated: a process that reads its missing bytes is killed";
    return NULL;
}

/* What is wrong with the file of a storage; NULL: nothing. `path` is for its path. */
static const char *storage_fault(const struct tni_segment *s, tni_block block,
                                 char path[TNI_PATH_BYTES])
{
    struct tni_backing b;
    int fd;

    path[0] = '\0';
    if (!is_complete(s, block))
        return NULL;
    int status = tni_backing_read(s, block, &b);
    if (status != 0)
        return status == TN_ERR_CORRUPT ? "has a damaged description of its object" : NULL;
    if (b.path[0] == '\0' || atomic_load(&b.inode) == 0)
        return NULL;
    snprintf(path, TNI_PATH_BYTES, "%s", b.path);
    if ((status = tni_os_shm_open(path, &fd)) != 0)
        return status == TN_ERR_NOT_FOUND ? "was removed"
               : status == TN_ERR_DENIED  ? "became a link, or belongs to another user"
               : status == TN_ERR_INVALID
                   ? "is not a plain file"
                   : NULL; /* this process's own error, such as too many descriptors */
    const char *fault = file_fault(&b, fd);
    tni_os_close(fd);
    return fault;
}

static uint32_t generation_of(const struct tni_segment *s, tni_block block)
{
    return __atomic_load_n(&tni_desc_at(s, block)->generation, __ATOMIC_RELAXED);
}

/* ---- two checks, a pause apart ----------------------------------------------------------- */

struct suspect {
    tni_block block;
    uint32_t generation;
};

/* Find the storages that are wrong now. @return how many are in suspects [frontier] */
static uint32_t find_suspects(const struct tni_segment *s, uint32_t frontier,
                              struct suspect *suspects)
{
    char path[TNI_PATH_BYTES];
    uint32_t count = 0;

    for (uint32_t i = 0; i < frontier; i++) {
        tni_block block = tni_block_make(TNI_BACKING_CLASS, i);
        uint32_t generation = generation_of(s, block);
        if (storage_fault(s, block, path) != NULL)
            suspects[count++] = (struct suspect){.block = block, .generation = generation};
    }
    return count;
}

static void say_if_faulty(struct tni_audit *a, const struct suspect *suspect)
{
    char path[TNI_PATH_BYTES];
    const char *fault = storage_fault(a->segment, suspect->block, path);

    if (fault == NULL || generation_of(a->segment, suspect->block) != suspect->generation)
        return;
    if (path[0] == '\0')
        tni_audit_report(a, false, "block %08x %s; it cannot be repaired", suspect->block.id,
                         fault);
    else
        tni_audit_report(a, false, "block %08x: its file %s %s; it cannot be repaired",
                         suspect->block.id, path, fault);
}

/*
 * One pause is enough for all suspects, of which an emptied folder makes thousands. A process
 * that is ending a storage has ended it after the pause.
 */
int tni_audit_storages(struct tni_audit *a)
{
    uint32_t frontier = tni_frontier(a->segment, TNI_BACKING_CLASS);
    uint64_t bytes = frontier * sizeof(struct suspect);
    void *suspects;

    if (frontier == 0)
        return 0;
    int status = tni_os_map_private(bytes, &suspects);
    if (status != 0)
        return status;
    uint32_t count = find_suspects(a->segment, frontier, suspects);
    if (count > 0)
        tni_os_sleep_until(tni_os_now_ns() + PAUSE_NS);
    for (uint32_t i = 0; i < count && a->stop == 0; i++)
        say_if_faulty(a, (const struct suspect *)suspects + i);
    tni_os_unmap(suspects, bytes);
    return 0;
}
