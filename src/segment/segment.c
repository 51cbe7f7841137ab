/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segment: see segment.h.
 *
 * Nouns: control segment, arena, header (segment.c); window (window.c).
 * I1  A header with the magic number is complete: the magic is written last, with release.
 * I2  Every number that bounds a loop or makes an offset comes from the private geometry. The
 *     five numbers of the header are read once, at attach, and checked against the sizes of the
 *     two memory objects, which the kernel states.
 * I3  A window is a part of a class's part of the arena, and no block lies in two windows. A
 *     window stays mapped as long as the segment, so pointers into it stay valid.
 * Callers: api (for members), reaper (for tenond), the inspection (read-only). If a process
 * dies while it makes a domain, the domain has no name and no other member; the kernel frees
 * it.
 */
#include "segment/window.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/os.h"

int tni_segment_discard(const struct tni_segment *s, tni_block first, uint64_t from,
                        uint64_t bytes)
{
    bool is_mapped = s->windows == NULL;
    if (is_mapped && tni_os_discard((uint8_t *)tni_payload_at(s, first) + from, bytes) == 0)
        return 0;
    /*
     * The kernel refuses tni_os_discard() where the program has locked the memory (mlock).
     * Before tni_os_punch() the descriptor is checked: the program may have closed it and
     * opened a file of its own under the same number.
     */
    int status = is_mapped ? tni_segment_check_descriptors(s) : 0;
    return status != 0
               ? status
               : tni_os_punch(s->arena_fd, tni_block_offset(&s->geometry, first) + from, bytes);
}

/* ---- create and attach ------------------------------------------------------------------- */

/* Map both memory objects. pre: they are sealed against shrinking, so no access can fail */
static int map_both(struct tni_segment *s)
{
    void *control = NULL, *arena = NULL;
    int status = tni_os_map(s->control_fd, s->geometry.control_bytes, s->geometry.page_bytes,
                            s->is_read_only, &control);
    if (status != 0)
        return status;
    status =
        tni_os_map(s->arena_fd, s->geometry.arena_bytes, 2u << 20, s->is_read_only, &arena);
    if (status != 0) {
        tni_os_unmap(control, s->geometry.control_bytes);
        return status;
    }
    s->header = control;
    s->arena = arena;
    tni_os_advise_no_dump(arena, s->geometry.arena_bytes);
    for (uint32_t c = 1; c < s->geometry.class_count; c++)
        if (s->geometry.classes[c].size_bytes >= 2u << 20) {
            uint64_t from = s->geometry.classes[c].arena_off;
            if (!tni_class_is_message(c)) {
                tni_os_advise_huge(s->arena + from, s->geometry.arena_bytes - from);
                break;
            }
        }
    return 0;
}

static void fill_header(struct tni_header *h, const struct tni_segment *s,
                        const struct tni_segment_options *options, const uint8_t id[16])
{
    h->layout_version = TNI_LAYOUT_VERSION;
    h->byte_order = TNI_BYTE_ORDER;
    h->page_bytes = s->geometry.page_bytes;
    h->uid = tni_os_uid();
    h->control_bytes = s->geometry.control_bytes;
    h->arena_bytes = s->geometry.arena_bytes;
    h->arena_inode = s->arena_inode;
    h->seats = options->seats;
    h->blocks = options->blocks;
    h->objects = options->objects;
    h->tickets = options->tickets;
    h->quota_limit_bytes = options->quota_bytes;
    memcpy(h->id, id, sizeof h->id);
    snprintf(h->name, sizeof h->name, "%s", options->name);
    h->created_ns = tni_os_shared_ns();
    h->creator_pid = tni_os_pid();
    h->flags = options->flags;
    atomic_store_explicit(&h->quota_bytes, options->quota_bytes, memory_order_relaxed);
    atomic_store_explicit(&h->watermark_bytes, options->watermark_bytes, memory_order_relaxed);
    atomic_store_explicit(&h->device_quota_bytes, options->device_quota_bytes,
                          memory_order_relaxed);
    atomic_store_explicit(&h->device_slab_bytes, options->device_slab_bytes,
                          memory_order_relaxed);
    /* This release pairs with the acquire load in copy_header() (I1). */
    __atomic_store_n(&h->magic, TNI_MAGIC, __ATOMIC_RELEASE);
}

/*
 * Copy the fields that no process changes after the magic is written. Without the magic, the
 * copy is all zeros. The acquire pairs with the release in fill_header().
 */
static void copy_header(const void *page, struct tni_header *ret_header)
{
    const struct tni_header *h = page;
    memset(ret_header, 0, sizeof *ret_header);
    if (__atomic_load_n(&h->magic, __ATOMIC_ACQUIRE) != TNI_MAGIC)
        return;
    memcpy(ret_header, page, offsetof(struct tni_header, runtime));
    ret_header->magic = TNI_MAGIC;
}

static void keep_header(struct tni_segment *s, const struct tni_header *h)
{
    s->flags = h->flags;
    memcpy(s->id, h->id, sizeof s->id);
    memcpy(s->name, h->name, sizeof s->name);
    s->name[sizeof s->name - 1] = 0;
}

int tni_segment_create(const struct tni_segment_options *options,
                       struct tni_segment *ret_segment)
{
    struct tni_segment s = {.control_fd = -1, .arena_fd = -1};
    struct tni_os_memory memory;
    uint8_t id[16];
    char name[TNI_NAME_BYTES + 32];
    const struct tni_limits limits = {.seats = options->seats,
                                      .blocks = options->blocks,
                                      .objects = options->objects,
                                      .tickets = options->tickets,
                                      .quota_bytes = options->quota_bytes};
    int status = tni_geometry_init(&limits, (uint32_t)tni_os_page_bytes(), &s.geometry);
    if (status != 0)
        return status;
    if ((status = tni_os_random(id, sizeof id)) != 0)
        return status;
    snprintf(name, sizeof name, TNI_CONTROL_PREFIX "%s", options->name);
    if ((status = tni_os_memory_create(name, s.geometry.control_bytes, &s.control_fd)) != 0)
        return status;
    snprintf(name, sizeof name, TNI_ARENA_PREFIX "%s", options->name);
    if ((status = tni_os_memory_create(name, s.geometry.arena_bytes, &s.arena_fd)) != 0)
        goto close_fds;
    if ((status = tni_os_memory_stat(s.control_fd, &memory)) != 0)
        goto close_fds;
    s.control_inode = memory.inode;
    for (size_t i = 0; i < TNI_ID_INODE_BYTES; i++)
        id[i] = (uint8_t)(s.control_inode >> 8 * (TNI_ID_INODE_BYTES - 1 - i));
    if ((status = tni_os_memory_stat(s.arena_fd, &memory)) != 0)
        goto close_fds;
    s.arena_inode = memory.inode;
    if ((status = map_both(&s)) != 0)
        goto close_fds;
    fill_header(s.header, &s, options, id);
    keep_header(&s, s.header);
    *ret_segment = s;
    return 0;

close_fds:
    tni_os_close(s.control_fd);
    tni_os_close(s.arena_fd);
    return status;
}

static int fail_user(const struct tni_header *h, const struct tni_os_memory *control)
{
    uint32_t uid = tni_os_uid();
    if (!tni_os_has_uid())
        return tni_fail(
            TN_ERR_DENIED,
            "the user namespace of this process has no mapping for its user (it "
            "runs as %u, as every such user does): only a process whose user has the "
            "number of the domain's user, %u, can join the domain",
            uid, h->uid);
    if (control->uid != uid)
        return tni_fail(TN_ERR_DENIED, "the domain belongs to user %u, this process runs as %u",
                        control->uid, uid);
    return tni_fail(TN_ERR_DENIED,
                    "the domain was made by user %u, this process runs as %u: the user "
                    "namespaces of the two give one user different numbers",
                    h->uid, uid);
}

/* Check a copy of the header against what the kernel states about the two objects. */
static int check_header(const struct tni_header *h, const struct tni_os_memory *control,
                        const struct tni_os_memory *arena, struct tni_geometry *ret_geometry)
{
    struct tni_geometry g;

    if (h->magic != TNI_MAGIC)
        return tni_fail(TN_ERR_CORRUPT, "the control segment is not one: wrong magic number");
    if (h->byte_order != TNI_BYTE_ORDER)
        return tni_fail(TN_ERR_VERSION, "the domain was made with another byte order");
    if (h->layout_version != TNI_LAYOUT_VERSION)
        return tni_fail(TN_ERR_VERSION, "the domain has shared layout %u, this library has %u",
                        h->layout_version, TNI_LAYOUT_VERSION);
    if (h->must_understand != 0)
        return tni_fail(TN_ERR_VERSION,
                        "the domain uses features 0x%x that this library does not know",
                        h->must_understand);
    if (h->uid != tni_os_uid() || control->uid != tni_os_uid() || arena->uid != tni_os_uid())
        return fail_user(h, control);
    if (h->page_bytes != tni_os_page_bytes())
        return tni_fail(TN_ERR_CORRUPT, "the control segment states pages of %u bytes",
                        h->page_bytes);
    const struct tni_limits limits = {.seats = h->seats,
                                      .blocks = h->blocks,
                                      .objects = h->objects,
                                      .tickets = h->tickets,
                                      .quota_bytes = h->quota_limit_bytes};
    if (tni_geometry_init(&limits, h->page_bytes, &g) != 0)
        return tni_fail(TN_ERR_CORRUPT,
                        "the control segment states numbers that no domain has: %u seats, %u "
                        "blocks, %u objects, %u tickets, a quota of %llu bytes",
                        h->seats, h->blocks, h->objects, h->tickets,
                        (unsigned long long)h->quota_limit_bytes);
    if (control->size_bytes != g.control_bytes || h->control_bytes != g.control_bytes)
        return tni_fail(
            TN_ERR_CORRUPT, "the control segment has %llu bytes, its numbers ask for %llu",
            (unsigned long long)control->size_bytes, (unsigned long long)g.control_bytes);
    if (arena->size_bytes != g.arena_bytes || h->arena_bytes != g.arena_bytes)
        return tni_fail(
            TN_ERR_CORRUPT, "the arena has %llu bytes, the domain's numbers ask for %llu",
            (unsigned long long)arena->size_bytes, (unsigned long long)g.arena_bytes);
    if (h->arena_inode != arena->inode)
        return tni_fail(TN_ERR_CORRUPT, "the arena is not the one of this control segment");
    if (memchr(h->name, 0, sizeof h->name) == NULL)
        return tni_fail(TN_ERR_CORRUPT, "the domain's name has no end");
    *ret_geometry = g;
    return 0;
}

/* Check the two memory objects, and fill in all fields of *s except the mappings. */
static int examine(int control_fd, int arena_fd, struct tni_segment *s)
{
    struct tni_os_memory control, arena;
    void *page = NULL;
    uint64_t page_bytes = tni_os_page_bytes();

    if (tni_os_memory_stat(control_fd, &control) != 0 ||
        tni_os_memory_stat(arena_fd, &arena) != 0)
        return tni_fail(TN_ERR_CORRUPT, "the descriptors %d and %d are not a domain",
                        control_fd, arena_fd);
    if (!control.is_sealed || !arena.is_sealed)
        return tni_fail(TN_ERR_CORRUPT, "the segments are not sealed against shrinking");
    if (control.size_bytes < page_bytes)
        return tni_fail(TN_ERR_CORRUPT, "the control segment is truncated: %llu bytes",
                        (unsigned long long)control.size_bytes);
    int status = tni_os_map(control_fd, page_bytes, page_bytes, true, &page);
    if (status != 0)
        return status;
    struct tni_header header; /* a copy, so that the values checked are the values used */
    copy_header(page, &header);
    tni_os_unmap(page, page_bytes);
    status = check_header(&header, &control, &arena, &s->geometry);
    if (status != 0)
        return status;
    s->control_fd = control_fd;
    s->arena_fd = arena_fd;
    s->control_inode = control.inode;
    s->arena_inode = arena.inode;
    keep_header(s, &header);
    return 0;
}

int tni_segment_attach(int control_fd, int arena_fd, bool read_only,
                       struct tni_segment *ret_segment)
{
    struct tni_segment s = {.is_read_only = read_only};
    int status = examine(control_fd, arena_fd, &s);
    if (status == 0)
        status = map_both(&s);
    if (status == 0)
        *ret_segment = s;
    return status;
}

int tni_segment_attach_sparse(int control_fd, int arena_fd, void (*fail)(void),
                              struct tni_segment *ret_segment)
{
    struct tni_segment s = {0};
    int status = examine(control_fd, arena_fd, &s);
    if (status == 0)
        status = tni_window_map(&s, fail);
    if (status == 0)
        *ret_segment = s;
    return status;
}

static bool is_ours(int fd, uint64_t inode)
{
    struct tni_os_memory memory;
    return fd >= 0 && tni_os_memory_stat(fd, &memory) == 0 && memory.inode == inode;
}

int tni_segment_check_descriptors(const struct tni_segment *s)
{
    if (is_ours(s->control_fd, s->control_inode) && is_ours(s->arena_fd, s->arena_inode))
        return 0;
    return tni_fail(
        TN_ERR_SYSTEM,
        "descriptors %d and %d are not those of the domain '%s' any more: this program has "
        "closed one of them",
        s->control_fd, s->arena_fd, s->name);
}

const char *tni_segment_label(const struct tni_segment *s, char text[TNI_LABEL_BYTES])
{
    if (s->name[0] != '\0')
        snprintf(text, TNI_LABEL_BYTES, "'%s'", s->name);
    for (size_t i = 0; s->name[0] == '\0' && i < sizeof s->id; i++)
        snprintf(text + 2 * i, TNI_LABEL_BYTES - 2 * i, "%02x", s->id[i]);
    return text;
}

bool tni_segment_has_control(const struct tni_segment *s)
{
    return is_ours(s->control_fd, s->control_inode);
}

void tni_segment_close(struct tni_segment *s)
{
    if (is_ours(s->control_fd, s->control_inode))
        tni_os_close(s->control_fd);
    if (is_ours(s->arena_fd, s->arena_inode))
        tni_os_close(s->arena_fd);
    s->control_fd = s->arena_fd = -1;
}

void tni_segment_detach(struct tni_segment *s)
{
    tni_os_unmap(s->header, s->geometry.control_bytes);
    if (s->windows == NULL)
        tni_os_unmap(s->arena, s->geometry.arena_bytes);
    tni_window_unmap(s);
    tni_segment_close(s);
    *s = (struct tni_segment){.control_fd = -1, .arena_fd = -1};
}
