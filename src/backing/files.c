/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files: finds and removes files of FILE_SYSTEM storages that no process needs any more.
 * names.c makes the names of the files.
 *
 * A file is orphaned if no live process holds it and its domain
 * - has ended: tni_files_collect(), tni_files_end_domain(); or
 * - is live, but none of its blocks names the file: tni_files_let_go(). A block names its file
 *   from before the file exists until after the domain let the file go (backing.c I1). So the
 *   files are listed first and the blocks are read afterwards: no new file seems orphaned.
 * These functions write only one thing in shared memory: they clear the domain's entry among a
 * file's holders. If this process dies after that write, the next scan finds the file again.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backing/backing.h"
#include "backing/mapping.h"
#include "backing/names.h"

/* ---- orphaned files ---------------------------------------------------------------------- */

struct candidate {
    char *path; /* freed by free_files() */
    struct tni_file_name name;
    bool is_living; /* its domain is live */
};

struct collection {
    struct candidate *files; /* [room] */
    size_t count, room;
    uint64_t space;
    const struct tni_segment *only; /* only files of this domain; NULL: of all domains */
    bool is_look_only;
    tni_files_fn *each; /* may be NULL */
    void *context;
    int removed;
};

static int add_file(const char *path, const char *text, void *context)
{
    struct collection *c = context;
    struct tni_file_name name;
    if (!tni_file_name_parse(text, &name) || name.uid != tni_os_uid() ||
        name.space != c->space ||
        (c->only != NULL && name.domain != tni_file_name_domain(c->only->id)))
        return 0;
    if (c->count == c->room) {
        size_t room = 2 * c->room + 16;
        struct candidate *grown = reallocarray(c->files, room, sizeof *grown);
        if (grown == NULL)
            return tni_fail(TN_ERR_NO_MEMORY, "no private memory for %zu files", room);
        c->files = grown;
        c->room = room;
    }
    struct candidate *file = &c->files[c->count];
    *file = (struct candidate){.path = strdup(path), .name = name};
    if (file->path == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "no private memory for a path");
    c->count++;
    return 0;
}

static int list_files(struct collection *c)
{
    struct tni_os_process self;
    int status = tni_files_check_folder();
    if (status != 0 || (status = tni_os_self(&self)) != 0)
        return status;
    c->space = self.pid_space;
    return tni_os_shm_for_each(tni_os_shm_folder(), TNI_FILE_NAME_PREFIX, add_file, c);
}

enum finding { IS_ORPHANED, IS_HELD, IS_GONE };

/* Open a file for writing if possible, else for reading. */
static int open_file(const char *path, bool want_write, int *ret_fd, bool *ret_writes)
{
    int status = want_write ? tni_os_shm_open(path, ret_fd) : TN_ERR_DENIED;
    *ret_writes = status == 0;
    return status == TN_ERR_DENIED ? tni_os_shm_open_read_only(path, ret_fd) : status;
}

/*
 * Whether the domain of a file may be live although it was not found. A member has no witness
 * where the system refuses witnesses. No other process can see the descriptors of a member that
 * is not dumpable (PR_SET_DUMPABLE, or a change of its user). So the domain may be live if it
 * has not let the file go and the file's maker is alive.
 */
static bool may_live(const struct collection *c, const tn_storage_header *h)
{
    const struct tni_os_process maker = {
        .pid = h->creator_pid, .start_time = h->creator_start, .pid_space = h->pid_space};
    return c->only == NULL && __atomic_load_n(&h->holders[0], __ATOMIC_SEQ_CST) != 0 &&
           maker.pid > 0 && maker.pid_space == c->space &&
           tni_os_process_state(&maker, false) != TNI_OS_DEAD;
}

/*
 * Whether the file is in use. If its domain has ended, clear the domain's entry among the
 * holders, so that the last holder removes the file.
 */
static bool is_in_use(const struct collection *c, tn_storage_header *h, bool writes)
{
    if (may_live(c, h))
        return true;
    if (writes)
        __atomic_store_n(&h->holders[0], 0, __ATOMIC_SEQ_CST);
    return tni_store_is_held(h);
}

/*
 * Classify a file. A file without a header has a maker that died before it wrote the header, so
 * no process can hold the file. A file that cannot be read now, or that only a later version of
 * tenon can read, may be held.
 */
static enum finding classify(const struct collection *c, const char *path)
{
    struct tni_mapping m;
    bool writes;
    int fd;
    int status = open_file(path, !c->is_look_only, &fd, &writes);
    if (status != 0)
        return status == TN_ERR_SYSTEM      ? IS_HELD
               : status == TN_ERR_NOT_FOUND ? IS_GONE
                                            : IS_ORPHANED;
    status = tni_store_map(fd, true, !writes, &m);
    bool is_held =
        status == TN_ERR_SYSTEM || status == TN_ERR_NO_MEMORY || status == TN_ERR_VERSION;
    if (status == 0) {
        is_held = is_in_use(c, tni_mapping_header(&m), writes);
        tni_os_unmap(m.address, m.object_bytes);
    }
    tni_os_close(fd);
    return is_held ? IS_HELD : IS_ORPHANED;
}

/* Remove a file if it is orphaned. @return 0, or why it could not be removed */
static int remove_file(struct collection *c, const char *path)
{
    if (classify(c, path) != IS_ORPHANED)
        return 0;
    int status = c->is_look_only ? 0 : tni_os_shm_remove(path);
    if (status == TN_ERR_NOT_FOUND)
        return 0;
    c->removed += status == 0;
    if (c->each != NULL)
        c->each(path, status, c->context);
    return status;
}

static void remove_or_log(struct collection *c, const char *path)
{
    if (remove_file(c, path) != 0)
        tni_log(TNI_LOG_WARNING, "a file was not removed: %s", tn_error_detail());
}

static void free_files(struct collection *c)
{
    for (size_t i = 0; i < c->count; i++)
        free(c->files[i].path);
    free(c->files);
}

static int compare_domains(const void *left, const void *right)
{
    const struct candidate *a = left, *b = right;
    return (a->name.domain > b->name.domain) - (a->name.domain < b->name.domain);
}

/* Mark the files of the domains `first_domain` to `last_domain`. pre: sorted by domain */
static void note_living(struct collection *c, uint64_t first_domain, uint64_t last_domain)
{
    size_t low = 0, high = c->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (c->files[middle].name.domain < first_domain)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < c->count && c->files[low].name.domain <= last_domain; low++)
        c->files[low].is_living = true;
}

static void note_witnessed(uint64_t inode, void *context)
{
    uint64_t first = inode << (64 - 8 * TNI_ID_INODE_BYTES);
    note_living(context, first, first | UINT64_MAX >> 8 * TNI_ID_INODE_BYTES);
}

/*
 * Mark the files of live domains. No process can see the descriptors of a process of another
 * user namespace, or of one that is not dumpable, but every process can see its witness. So a
 * domain has ended only if neither a descriptor nor a witness shows a member.
 */
static int find_living(struct collection *c, tni_files_living_fn *living)
{
    uint8_t(*ids)[16] = NULL;
    uint32_t count = 0;
    qsort(c->files, c->count, sizeof *c->files, compare_domains);
    int status = living(&ids, &count);
    for (uint32_t i = 0; status == 0 && i < count; i++)
        note_living(c, tni_file_name_domain(ids[i]), tni_file_name_domain(ids[i]));
    free(ids);
    return status == 0 ? tni_os_witness_for_each(note_witnessed, c) : status;
}

static int collect(struct collection *c, tni_files_living_fn *living)
{
    int status = list_files(c);
    if (status == 0 && c->count > 0)
        status = find_living(c, living);
    for (size_t i = 0; status == 0 && i < c->count; i++)
        if (!c->files[i].is_living)
            remove_or_log(c, c->files[i].path);
    free_files(c);
    return status < 0 ? status : c->removed;
}

int tni_files_collect(tni_files_living_fn *living, tni_files_fn *each, void *context)
{
    struct collection c = {.each = each, .context = context};
    return collect(&c, living);
}

int tni_files_find(tni_files_living_fn *living, tni_files_fn *each, void *context)
{
    struct collection c = {.is_look_only = true, .each = each, .context = context};
    return collect(&c, living);
}

void tni_files_end_domain(const struct tni_segment *s)
{
    struct collection c = {.only = s};
    if (list_files(&c) < 0)
        tni_log(TNI_LOG_WARNING, "the files of an ended domain could not be listed: %s",
                tn_error_detail());
    for (size_t i = 0; i < c.count; i++)
        remove_or_log(&c, c.files[i].path);
    free_files(&c);
}

/* ---- files of ended storages of a live domain -------------------------------------------- */

static int compare_numbers(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

static bool has_object(const struct tni_segment *s, tni_block block)
{
    return tni_alloc_has_memory(s, block) &&
           atomic_load_explicit(&tni_backing_at(s, block)->strategy, memory_order_acquire) != 0;
}

/*
 * List the numbers of the files that blocks name, in ascending order. A damaged description may
 * have named any file, so the call fails, and the caller removes nothing.
 */
static int list_named(const struct tni_segment *s, uint64_t **ret_numbers, size_t *ret_count)
{
    uint32_t frontier = tni_frontier(s, TNI_BACKING_CLASS);
    uint64_t *numbers = calloc(frontier + 1, sizeof *numbers);
    size_t count = 0;
    if (numbers == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "no private memory for the files of %u blocks",
                        frontier);
    for (uint32_t i = 0; i < frontier; i++) {
        tni_block block = tni_block_make(TNI_BACKING_CLASS, i);
        struct tni_file_name name;
        struct tni_backing b;
        int status = has_object(s, block) ? tni_backing_read(s, block, &b) : TN_ERR_NOT_FOUND;
        if (status != 0 && status != TN_ERR_NOT_FOUND) {
            free(numbers);
            return status;
        }
        if (status == 0 && b.path[0] != 0 &&
            tni_file_name_parse(strrchr(b.path, '/') + 1, &name))
            numbers[count++] = name.number;
    }
    qsort(numbers, count, sizeof *numbers, compare_numbers);
    *ret_numbers = numbers;
    *ret_count = count;
    return 0;
}

int tni_files_let_go(const struct tni_segment *s, bool look_only, tni_files_fn *each,
                     void *context)
{
    struct collection c = {
        .only = s, .is_look_only = look_only, .each = each, .context = context};
    uint64_t *named = NULL;
    size_t count = 0;
    if (tni_frontier(s, TNI_BACKING_CLASS) == 0)
        return 0; /* the domain never had a file */
    int status = list_files(&c);
    if (status == 0 && c.count > 0)
        status = list_named(s, &named, &count);
    for (size_t i = 0; status == 0 && i < c.count; i++)
        if (bsearch(&c.files[i].name.number, named, count, sizeof *named, compare_numbers) ==
            NULL)
            (void)remove_file(&c, c.files[i].path); /* not logged: this is called repeatedly */
    free(named);
    free_files(&c);
    return status < 0 ? status : c.removed;
}
