/* SPDX-License-Identifier: Apache-2.0 */
/*
 * discover: find every domain that a process of this user has open, without a tenond.
 *
 * Nouns: found domain (what its header says, read through one read-only page, and a process
 * that has it open).
 * I1  Nothing read through a descriptor of another process is used before it was checked.
 * Callers: find.c, tenond, the tool. Death: leaves nothing.
 */
#include <stdlib.h>
#include <string.h>

#include "reaper/manager.h"

struct search {
    tni_found_fn *each;
    void *context;
};

/*
 * Read a header through one read-only page. All fields up to `runtime` are at the same place in
 * every version of the layout. @return 1; 0: this is no header; or an error
 */
static int peek(int control_fd, struct tni_found *found)
{
    uint64_t page_bytes = tni_os_page_bytes();
    struct tni_os_memory memory;
    void *page;

    if (tni_os_memory_stat(control_fd, &memory) != 0 || memory.size_bytes < page_bytes ||
        !memory.is_sealed || memory.uid != tni_os_uid())
        return 0;
    int status = tni_os_map(control_fd, page_bytes, page_bytes, true, &page);
    if (status != 0)
        return status;
    const struct tni_header *h = page;
    bool is_header = __atomic_load_n(&h->magic, __ATOMIC_ACQUIRE) == TNI_MAGIC;
    if (is_header) {
        memcpy(found->name, h->name, sizeof found->name);
        memcpy(found->id, h->id, sizeof found->id);
        found->layout_version = h->layout_version;
        found->uid = h->uid;
        found->creator_pid = h->creator_pid;
        found->runtime = atomic_load(&h->runtime);
        found->arena_inode = h->arena_inode;
        is_header = memchr(found->name, 0, sizeof found->name) != NULL;
    }
    tni_os_unmap(page, page_bytes);
    return is_header;
}

static int look_at_control(int32_t pid, int fd_number, const char *name, uint64_t inode,
                           void *context)
{
    const struct search *search = context;
    struct tni_found found = {.pid = pid, .control_number = fd_number, .control_inode = inode};
    int control_fd;

    (void)name;
    int status = tni_os_memory_open(pid, fd_number, true, &control_fd);
    if (status != 0)
        return tni_manager_unless_gone(status);
    status = peek(control_fd, &found);
    tni_os_close(control_fd);
    return status == 1 ? search->each(&found, search->context) : status;
}

int tni_manager_search(tni_found_fn *each, void *context)
{
    struct search search = {.each = each, .context = context};
    return tni_os_memory_for_each(TNI_CONTROL_PREFIX, look_at_control, &search);
}

struct living {
    uint8_t (*ids)[16]; /* [room] */
    uint32_t count, room;
};

static int add_id(const struct tni_found *found, void *context)
{
    struct living *living = context;
    if (living->count == living->room) {
        uint32_t room = 2 * living->room + 16;
        void *grown = reallocarray(living->ids, room, sizeof *living->ids);
        if (grown == NULL)
            return tni_fail(TN_ERR_NO_MEMORY, "no private memory for %u open domains", room);
        living->ids = grown;
        living->room = room;
    }
    memcpy(living->ids[living->count++], found->id, sizeof found->id);
    return 0;
}

int tni_manager_living(uint8_t (**ret_ids)[16], uint32_t *ret_count)
{
    struct living living = {0};
    int status = tni_manager_search(add_id, &living);
    if (status != 0) {
        free(living.ids);
        return status;
    }
    *ret_ids = living.ids;
    *ret_count = living.count;
    return 0;
}

struct arena_search {
    const struct tni_found *found;
    bool read_only;
    int arena_fd;
};

static int look_at_arena(int32_t pid, int fd_number, const char *name, uint64_t inode,
                         void *context)
{
    struct arena_search *search = context;
    (void)name;
    if (inode != search->found->arena_inode)
        return 0;
    int status = tni_os_memory_open(pid, fd_number, search->read_only, &search->arena_fd);
    return status == 0 ? 1 : tni_manager_unless_gone(status);
}

static int find_arena(struct arena_search *search)
{
    int found = tni_os_memory_for_each(TNI_ARENA_PREFIX, look_at_arena, search);
    if (found == 0)
        return tni_fail(TN_ERR_NOT_FOUND, "nobody has the arena of the domain '%s' open",
                        search->found->name);
    return found == 1 ? 0 : found;
}

int tni_manager_open_found(const struct tni_found *found, bool read_only, int *ret_control_fd,
                           int *ret_arena_fd)
{
    struct arena_search search = {.found = found, .read_only = read_only, .arena_fd = -1};
    struct tni_os_memory memory;
    int control_fd;
    int status = tni_os_memory_open(found->pid, found->control_number, read_only, &control_fd);
    if (status != 0)
        return status;
    if (tni_os_memory_stat(control_fd, &memory) != 0 || memory.inode != found->control_inode)
        status =
            tni_fail(TN_ERR_NOT_FOUND, "process %d no longer has the domain open", found->pid);
    else
        status = find_arena(&search);
    if (status != 0) {
        tni_os_close(control_fd);
        return status;
    }
    *ret_control_fd = control_fd;
    *ret_arena_fd = search.arena_fd;
    return 0;
}
