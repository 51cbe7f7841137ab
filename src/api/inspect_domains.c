/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inspect_domains: every domain of this user, found through the descriptors of its processes.
 */
#include <stdlib.h>
#include <string.h>

#include "api/inspect.h"
#include "reaper/reaper.h"

/* Every process that has a domain open, since each of them may end during the search. */
struct finds {
    struct tni_found *at; /* [room] */
    size_t count, room;
};

static int add_find(const struct tni_found *found, void *context)
{
    struct finds *finds = context;

    if (finds->count == finds->room) {
        size_t room = 2 * finds->room + 16;
        struct tni_found *grown = reallocarray(finds->at, room, sizeof *grown);
        if (grown == NULL)
            return tni_fail(TN_ERR_NO_MEMORY, "no private memory for %zu open domains", room);
        finds->at = grown;
        finds->room = room;
    }
    finds->at[finds->count++] = *found;
    return 0;
}

static int attach(const struct tni_found *found, struct tni_segment *ret_segment)
{
    int control_fd, arena_fd;
    int status = tni_manager_open_found(found, true, &control_fd, &arena_fd);

    if (status != 0)
        return status;
    status = tni_segment_attach(control_fd, arena_fd, true, ret_segment);
    if (status != 0) {
        tni_os_close(control_fd);
        tni_os_close(arena_fd);
    }
    return status;
}

/* Remove the other descriptors of the same domain. */
static void drop_control(struct finds *finds, uint64_t control_inode)
{
    size_t kept = 0;
    for (size_t i = 0; i < finds->count; i++)
        if (finds->at[i].control_inode != control_inode)
            finds->at[kept++] = finds->at[i];
    finds->count = kept;
}

int tni_inspect_for_each_segment(tni_inspect_segment_fn *each, tni_inspect_other_fn *other,
                                 void *context)
{
    struct finds finds = {0};
    int status = tni_manager_search(add_find, &finds);

    while (finds.count > 0 && status == 0) {
        struct tni_segment segment;
        struct tni_found found = finds.at[--finds.count];
        /* It cannot be attached if it is another user's, or if its process has just ended. */
        int attached = attach(&found, &segment);
        if (attached == TN_ERR_VERSION) {
            drop_control(&finds, found.control_inode);
            status = other != NULL ? other(&found, context) : 0;
        }
        if (attached == TN_ERR_SYSTEM || attached == TN_ERR_NO_MEMORY)
            status = attached; /* the domain may live: the list that follows is not complete */
        if (attached != 0)
            continue;
        drop_control(&finds, segment.control_inode);
        status = each(&segment, context);
        tni_segment_detach(&segment);
    }
    free(finds.at);
    return status;
}

struct domains {
    tn_domain_entry_fn *each;
    void *context;
};

static int report_domain(const struct tni_segment *segment, void *context)
{
    const struct domains *domains = context;
    tn_domain_entry info;

    tni_inspect_domain_info(segment, &info);
    return domains->each(&info, domains->context);
}

static int report_other(const struct tni_found *found, void *context)
{
    const struct domains *domains = context;
    tn_domain_entry info = {.uid = found->uid,
                            .creator_pid = found->creator_pid,
                            .other_layout = found->layout_version};
    tni_text_copy(info.name, sizeof info.name, found->name, sizeof found->name);
    memcpy(info.id, found->id, sizeof info.id);
    return domains->each(&info, domains->context);
}

int tn_inspect_domains(tn_domain_entry_fn *each, void *context)
{
    if (each == NULL)
        return tni_fail_null("each");
    return tni_inspect_for_each_segment(report_domain, report_other,
                                        &(struct domains){.each = each, .context = context});
}
