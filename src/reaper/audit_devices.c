/* SPDX-License-Identifier: Apache-2.0 */
/*
 * audit_devices: check memory of devices. Each span of blocks that names a slab must name one
 * that is a slab, and no other span may name the same slab: else two tensors would have the
 * same bytes. Each block in use must have bytes in the slab of its span. tenond must have each
 * descriptor that it is said to have. The counts of slabs and of blocks are checked in audit.c,
 * as those of all blocks.
 *
 * A thread that ends a slab takes every block of the span first, and announces the span. So a
 * block without a slab that a thread announces is not wrong.
 */
#include <stdio.h>
#include <string.h>

#include "reaper/audit.h"
#include "reaper/manager.h"

enum { ANSWER_NS = 1000 * 1000 * 1000, ID_TEXT_BYTES = 33 };

/* ---- slabs ------------------------------------------------------------------------------- */

/* Copy the description of a slab. False: the block is no slab, or has ended. */
static bool read_slab(const struct tni_segment *s, tni_block slab, struct tni_backing *ret)
{
    return tni_word_state(atomic_load(tni_word_at(s, slab))) == TNI_BLOCK_ALLOC &&
           tni_segment_committed(s, slab) != 0 && tni_backing_read(s, slab, ret) == 0 &&
           ret->device_type != 0 && (ret->flags & TNI_BACKING_SLAB) != 0;
}

/* A span that is looked at. */
struct span {
    tni_block first;
    uint64_t record; /* the number of its slab's block; 0: it has none */
    tni_block slab;  /* id 0: it has none, or none that may exist */
    bool is_slab;
    uint32_t usable; /* how many of its blocks have bytes in the slab */
};

static struct span look_at(const struct tni_segment *s, tni_block first)
{
    struct span span = {.first = first,
                        .record = atomic_load(&tni_desc_at(s, first)->committed),
                        .slab = tni_slab_of(s, first)};
    struct tni_backing b;
    span.is_slab = span.slab.id != 0 && read_slab(s, span.slab, &b);
    if (span.is_slab)
        span.usable = tni_slab_usable(s, span.slab, tni_block_class(first));
    return span;
}

static bool names_no_slab(const struct tni_audit *a, const void *subject)
{
    struct span span = look_at(a->segment, *(const tni_block *)subject);
    return span.record != 0 && !span.is_slab;
}

static void check_record(struct tni_audit *a, tni_block first)
{
    if (!names_no_slab(a, &first) || !tni_audit_stays_wrong(a, names_no_slab, &first))
        return;
    struct span span = look_at(a->segment, first);
    tni_audit_report(a, false,
                     "the span of block %08x names block %08llx as its slab, which is none; it "
                     "cannot be repaired",
                     first.id, (unsigned long long)span.record);
}

/* ---- blocks in use ----------------------------------------------------------------------- */

/* Whether some thread, which may be dead or stopped, announces the block. */
static bool is_announced(const struct tni_segment *s, tni_block block)
{
    uint32_t limit = tni_seat_limit(s);
    for (uint32_t seat = 0; seat < limit; seat++)
        for (uint32_t t = 0; t < TNI_THREADS; t++) {
            const struct tni_announce *announce = tni_announce_at(s, seat, t);
            uint32_t first = atomic_load(&announce->block), span = atomic_load(&announce->span);
            if (first != 0 && block.id - first < TNI_MAX(span, 1))
                return true;
        }
    return false;
}

/* Whether a block is in use, but has no bytes on a device. */
static bool lacks_bytes(const struct tni_audit *a, const void *subject)
{
    const struct tni_segment *s = a->segment;
    tni_block block = *(const tni_block *)subject;
    tni_block first = tni_block_leader(&s->geometry, block);
    if (tni_word_state(atomic_load(tni_word_at(s, block))) != TNI_BLOCK_ALLOC)
        return false;
    return block.id - first.id >= look_at(s, first).usable && !is_announced(s, block);
}

/* Report all blocks of a span in one sentence. @param block  one that stays wrong */
static void say_bytes(struct tni_audit *a, tni_block block, uint32_t end)
{
    const struct tni_segment *s = a->segment;
    struct span span = look_at(s, tni_block_leader(&s->geometry, block));
    uint32_t count = 1;
    for (uint32_t id = block.id + 1; id < end; id++)
        count += lacks_bytes(a, &(tni_block){id});
    if (span.is_slab)
        tni_audit_report(a, false,
                         "%u blocks in use lie beyond the end of their slab, block %08x, such "
                         "as block %08x; it cannot be repaired",
                         count, span.slab.id, block.id);
    else
        tni_audit_report(a, false,
                         "%u blocks in use have no bytes, because their span has no slab, such "
                         "as block %08x; it cannot be repaired",
                         count, block.id);
}

static void check_span(struct tni_audit *a, tni_block first)
{
    const struct tni_segment *s = a->segment;
    uint32_t end = first.id + s->geometry.classes[tni_block_class(first)].span;
    check_record(a, first);
    for (uint32_t id = first.id + look_at(s, first).usable; id < end && a->stop == 0; id++) {
        tni_block block = {id};
        if (lacks_bytes(a, &block) && tni_audit_stays_wrong(a, lacks_bytes, &block)) {
            say_bytes(a, block, end);
            return;
        }
    }
}

/* ---- two spans of one slab --------------------------------------------------------------- */

struct pair {
    tni_block first, other;
};

static bool is_shared(const struct tni_audit *a, const void *subject)
{
    const struct pair *pair = subject;
    struct span one = look_at(a->segment, pair->first),
                other = look_at(a->segment, pair->other);
    return one.is_slab && other.is_slab && one.slab.id == other.slab.id;
}

/* `owners` has the first span that names each slab, by the index of the slab's block. */
static void check_owner(struct tni_audit *a, tni_block first, uint32_t *owners)
{
    tni_block slab = tni_slab_of(a->segment, first);
    if (slab.id == 0)
        return;
    uint32_t *owner = &owners[tni_block_index(slab)];
    struct pair pair = {.first = {*owner}, .other = first};
    if (*owner == 0)
        *owner = first.id;
    else if (is_shared(a, &pair) && tni_audit_stays_wrong(a, is_shared, &pair))
        tni_audit_report(a, false,
                         "the spans of blocks %08x and %08x name the same slab, block %08x; it "
                         "cannot be repaired",
                         pair.first.id, first.id, slab.id);
}

static int check_spans(struct tni_audit *a)
{
    const struct tni_geometry *g = &a->segment->geometry;
    uint64_t bytes = g->classes[TNI_BACKING_CLASS].capacity * sizeof(uint32_t);
    void *owners;
    int status = tni_os_map_private(bytes, &owners);
    if (status != 0)
        return status;
    for (uint32_t c = g->host_classes; c < g->class_count; c++) {
        uint32_t frontier = tni_frontier(a->segment, c);
        for (uint32_t i = 0; i < frontier && a->stop == 0; i += g->classes[c].span) {
            check_span(a, tni_block_make(c, i));
            check_owner(a, tni_block_make(c, i), owners);
        }
    }
    tni_os_unmap(owners, bytes);
    return 0;
}

/* ---- descriptions ------------------------------------------------------------------------ */

/* Copy the description of memory of a device that exists. */
static bool read_object(const struct tni_segment *s, tni_block block, struct tni_backing *ret)
{
    uint64_t word = atomic_load(tni_word_at(s, block));
    return tni_word_state(word) == TNI_BLOCK_ALLOC && tni_word_count(word) > 0 &&
           tni_segment_committed(s, block) != 0 && tni_backing_read(s, block, ret) == 0 &&
           ret->device_type != 0 && atomic_load(&ret->inode) != 0;
}

/*
 * The bytes that an object counts against the quota of its device are those of its tensors,
 * rounded up to what drivers make: 2 MiB today.
 */
static bool has_wrong_size(const struct tni_audit *a, const void *subject)
{
    struct tni_backing b;
    return read_object(a->segment, *(const tni_block *)subject, &b) &&
           (b.object_bytes - b.data_bytes >= TNI_SLAB_BYTES ||
            ((b.flags & TNI_BACKING_SLAB) != 0 && b.data_bytes > TNI_SLAB_BYTES));
}

/* The work of more dead processes is over than have died: that of the next would be missed. */
static bool is_settled_too_far(const struct tni_audit *a, const void *subject)
{
    struct tni_backing b;
    return read_object(a->segment, *(const tni_block *)subject, &b) &&
           (b.flags & TNI_BACKING_SLAB) != 0 &&
           atomic_load(&b.settled) > atomic_load(&b.dirtied);
}

static void check_description(struct tni_audit *a, tni_block block)
{
    struct tni_backing b;
    if (has_wrong_size(a, &block) && tni_audit_stays_wrong(a, has_wrong_size, &block) &&
        read_object(a->segment, block, &b))
        tni_audit_report(a, false,
                         "block %08x: %llu bytes count against the quota of its device, for "
                         "%llu bytes of tensors; it cannot be repaired",
                         block.id, (unsigned long long)b.object_bytes,
                         (unsigned long long)b.data_bytes);
    if (!is_settled_too_far(a, &block) || !tni_audit_stays_wrong(a, is_settled_too_far, &block))
        return;
    /* The next process that takes a block waits for the device once more than it has to. */
    struct tni_backing *shared = tni_payload_look(a->segment, block);
    if (a->is_repair)
        atomic_store(&shared->settled, 0);
    tni_audit_report(a, a->is_repair,
                     "slab %08x: more deaths are settled than processes have died", block.id);
}

/* ---- deposits ---------------------------------------------------------------------------- */

/* A connection to the tenond that manages the domain. */
struct deposits {
    int socket_fd; /* -1: there is none */
    bool is_over;  /* tenond does not answer: no more questions */
};

struct deposit {
    tni_block block;
    struct deposits *all;
};

static void connect_to_tenond(const struct tni_segment *s, struct deposits *all)
{
    char folder[TNI_FOLDER_BYTES];
    int status;
    if (atomic_load(&s->header->runtime) == tni_manager_runtime())
        status = tni_os_connect(TNI_MANAGER_SOCKET, &all->socket_fd);
    else if ((status = tni_manager_folder(s, folder, sizeof folder)) == 0)
        status = tni_os_connect_in(folder, TNI_MANAGER_SOCKET, &all->socket_fd);
    if (status != 0) {
        all->socket_fd = -1;
        all->is_over = true;
    }
}

static struct tni_inquiry make_inquiry(const struct tni_segment *s, tni_block block)
{
    char id[ID_TEXT_BYTES];
    struct tni_inquiry inquiry = {0}; /* descriptors that come are closed */
    for (size_t i = 0; i < sizeof s->id; i++)
        snprintf(id + 2 * i, 3, "%02x", s->id[i]);
    tni_manager_fill(&inquiry.request, TNI_REQUEST_FETCH, id);
    inquiry.request.block = block.id;
    inquiry.request.generation = TNI_LOOK(tni_desc_at(s, block)->generation);
    return inquiry;
}

/* Ask tenond for the descriptors. @return whether tenond answered that it has none */
static bool is_missed(const struct tni_segment *s, tni_block block, struct deposits *all)
{
    enum { TRIES = 2 }; /* tenond may have closed a connection that was idle */
    struct tni_inquiry inquiry = make_inquiry(s, block);
    struct tni_reply reply;
    int status = TN_ERR_CLOSED;
    for (int i = 0; i < TRIES && status == TN_ERR_CLOSED && !all->is_over; i++) {
        if (all->socket_fd < 0)
            connect_to_tenond(s, all);
        if (all->socket_fd < 0)
            return false;
        status = tni_manager_talk(all->socket_fd, &inquiry, tni_os_now_ns() + ANSWER_NS, &reply,
                                  NULL);
        if (status == TN_ERR_CLOSED) {
            tni_os_close(all->socket_fd);
            all->socket_fd = -1;
        }
    }
    all->is_over |= status != 0;
    return status == 0 && reply.status == TN_ERR_NOT_FOUND;
}

/* Whether the tenond that manages the domain is said to have the descriptor of a block. */
static bool is_deposited(const struct tni_segment *s, tni_block block)
{
    struct tni_backing b;
    uint64_t manager = atomic_load(&s->header->manager);
    return read_object(s, block, &b) && manager != 0 && atomic_load(&b.depositary) == manager;
}

/* Whether it is said to have the descriptor, and has none. */
static bool is_deposit_lost(const struct tni_audit *a, const void *subject)
{
    const struct deposit *deposit = subject;
    const struct tni_segment *s = a->segment;
    uint64_t manager = atomic_load(&s->header->manager);
    return is_deposited(s, deposit->block) && is_missed(s, deposit->block, deposit->all) &&
           atomic_load(&s->header->manager) == manager;
}

static void check_deposit(struct tni_audit *a, tni_block block, struct deposits *all)
{
    struct deposit deposit = {.block = block, .all = all};
    bool is_lost =
        is_deposit_lost(a, &deposit) && tni_audit_stays_wrong(a, is_deposit_lost, &deposit);
    if (all->is_over)
        a->unchecked += is_deposited(a->segment, block);
    if (!is_lost)
        return;
    tni_audit_report(a, false,
                     "block %08x: tenond has lost the descriptor of its memory on a device, "
                     "without which no more processes can map it; it cannot be repaired",
                     block.id);
}

static void check_objects(struct tni_audit *a)
{
    uint32_t frontier = tni_frontier(a->segment, TNI_BACKING_CLASS);
    struct deposits all = {.socket_fd = -1};
    for (uint32_t i = 0; i < frontier && a->stop == 0; i++) {
        check_description(a, tni_block_make(TNI_BACKING_CLASS, i));
        check_deposit(a, tni_block_make(TNI_BACKING_CLASS, i), &all);
    }
    tni_os_close(all.socket_fd);
}

int tni_audit_devices(struct tni_audit *a)
{
    int status = check_spans(a);
    if (status == 0 && a->stop == 0)
        check_objects(a);
    return status;
}
