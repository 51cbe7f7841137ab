/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fill: makes a new block and fills it with given bytes.
 *
 * Committing memory makes the kernel zero each page, and a copy then writes each page a second
 * time. A write() to the memory object fills pages that do not exist yet without zeroing them
 * first. So the part of a block that has memory is filled by memcpy(), and the rest by write().
 */
#include <string.h>

#include "tensor/storage.h"

enum { CHUNK_BYTES = TNI_COMMIT_CHUNK_BYTES };

/*
 * Write the bytes from `from` to `to` of a block that this thread made. pre: the quota has
 * room. It has six parameters: a range of bytes, and the place to which the bytes go.
 */
static int write_chunk(struct tn_domain *d, struct tni_thread *thread, tni_block block,
                       const uint8_t *source, uint64_t from, uint64_t to)
{
    const struct tni_geometry *g = &d->segment.geometry;
    uint64_t end = TNI_MIN(tni_align_up(to, g->page_bytes), tni_block_bytes(g, block));
    /* Another thread may fork meanwhile. The child gets no hold, as the block is unfinished. */
    tni_thread_step_aside(thread);
    int status = tni_os_write_at(d->segment.arena_fd, tni_block_offset(g, block) + from,
                                 source + from, to - from);
    tni_thread_come_back(thread);
    TNI_KILL_POINT("tensor_written");
    if (status == 0) {
        tni_alloc_set_committed(d, block, end);
        tni_alloc_quota_landed(thread, end - from);
    }
    return status;
}

/*
 * Write bytes of a block chunk by chunk. It has the six parameters of write_chunk(). pre: these
 * bytes have no memory yet, and the quota has room for all of them
 */
static int write_chunks(struct tn_domain *d, struct tni_thread *thread, tni_block block,
                        const uint8_t *source, uint64_t from, uint64_t size_bytes)
{
    int status = 0;
    for (; from < size_bytes && status == 0; from += CHUNK_BYTES)
        status = write_chunk(d, thread, block, source, from,
                             TNI_MIN(from + CHUNK_BYTES, size_bytes));
    return status;
}

/*
 * Write the part of a block that has no memory, from `from` on. If the quota has no room for
 * the whole part, nothing is written: half of a block is useless, and would take memory that
 * other blocks could use. On failure the block is given back.
 */
static int write_tail(struct tn_domain *d, tni_block block, const uint8_t *source,
                      uint64_t from, uint64_t size_bytes)
{
    const struct tni_geometry *g = &d->segment.geometry;
    uint64_t need = TNI_MIN(tni_align_up(size_bytes, g->page_bytes), tni_block_bytes(g, block));
    struct tni_thread *thread = tni_thread_enter(d);
    int status = tni_alloc_quota_begin(d, thread, need - from);
    if (status == 0) {
        /* From now on the block may have memory that `committed` does not count. */
        tni_alloc_raise_end(d, block, need);
        status = write_chunks(d, thread, block, source, from, size_bytes);
        tni_alloc_quota_end(thread);
        if (status != 0)
            tni_ref_release_with(d, thread, block);
    } else {
        tni_ref_release_unused(d, thread, block);
    }
    tni_thread_leave(thread);
    return status;
}

/* Fill a block without waiting for memory. pre: is_committed_alone() */
static int fill_cold(struct tn_domain *d, const uint8_t *source, uint64_t size_bytes,
                     const struct tni_block_about *about, tni_block *ret_block)
{
    struct tni_block_about uncommitted = *about;
    struct tni_new_block taken;
    uncommitted.is_uncommitted = true;
    int status = tni_ref_alloc(d, size_bytes, &uncommitted, 0, &taken);
    tni_block block = taken.block;

    if (status != 0)
        return status;
    tni_alloc_discard_excess(d, block);
    uint64_t page_bytes = d->segment.geometry.page_bytes;
    uint64_t have = tni_segment_committed(&d->segment, block);
    if (have < size_bytes)
        have &= ~(page_bytes - 1);
    have = TNI_MIN(have, size_bytes);
    if ((status = tni_alloc_map(d, block, have)) != 0) {
        tni_ref_release(d, block);
        return status;
    }
    if (have < size_bytes && (status = write_tail(d, block, source, have, size_bytes)) != 0)
        return status;
    memcpy(tni_payload_at(&d->segment, block), source, have);
    *ret_block = block;
    return 0;
}

/* Whether memory for a block of this size is committed block by block, not for a whole span. */
static bool is_committed_alone(const struct tn_domain *d, uint64_t size_bytes)
{
    uint32_t class_id = tni_geometry_class(&d->segment.geometry, size_bytes, TNI_KIND_TENSOR);
    return class_id != 0 && d->segment.geometry.classes[class_id].span == 1;
}

int tni_block_fill_new(struct tn_domain *d, const void *source, uint64_t size_bytes,
                       const struct tni_block_about *about, uint64_t deadline_ns,
                       tni_block *ret_block)
{
    struct tni_block_about ours = *about;
    struct tni_new_block taken;
    tni_block block;

    ours.is_unfinished = size_bytes >= TNI_LONG_WRITE_BYTES;
    /* For smaller blocks one more system call would cost more than zeroing the pages costs. */
    if (ours.is_unfinished && is_committed_alone(d, size_bytes) &&
        fill_cold(d, source, size_bytes, &ours, &block) == 0) {
        tni_ref_finish(d, block);
        *ret_block = block;
        return 0;
    }
    /* The block is small, or must wait for memory. An error of fill_cold() recurs here. */
    int status = tni_ref_alloc(d, size_bytes, &ours, deadline_ns, &taken);
    if (status != 0)
        return status;
    block = taken.block;
    if (size_bytes > 0)
        memcpy(tni_payload_at(&d->segment, block), source, size_bytes);
    TNI_KILL_POINT("tensor_copied");
    if (ours.is_unfinished)
        tni_ref_finish(d, block);
    *ret_block = block;
    return 0;
}
