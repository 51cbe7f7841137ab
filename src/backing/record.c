/* SPDX-License-Identifier: Apache-2.0 */
/* record: copies and checks the description of a block's object (struct tni_backing). */
#include <string.h>

#include "backing/mapping.h"

/* Whether the data of memory of another allocator lies in its allocation. */
static bool is_inside(const struct tni_backing *b)
{
    return b->allocation != 0 && b->data_off <= b->allocation_bytes &&
           b->data_bytes <= b->allocation_bytes - b->data_off &&
           b->allocation_at <= UINT64_MAX - b->allocation_bytes;
}

static bool has_good_pieces(const struct tni_backing *b, bool is_ipc)
{
    return b->piece_count == 0 ||
           (is_ipc && b->piece_count <= TNI_PIECES && b->allocation_bytes != 0 &&
            b->allocation_bytes % b->piece_count == 0);
}

int tni_backing_check_record(const struct tni_segment *s, tni_block block,
                             const struct tni_backing *b)
{
    uint32_t strategy = atomic_load_explicit(&b->strategy, memory_order_relaxed);
    bool is_file = strategy == TN_STRATEGY_FILE_SYSTEM;
    bool is_ipc = strategy == TN_STRATEGY_CUDA_IPC;
    bool is_on_device = strategy == TN_STRATEGY_CUDA_VMM || is_ipc;
    if (strategy == TN_STRATEGY_DEFAULT)
        return tni_fail(TN_ERR_NOT_FOUND, "block %08x has no object", block.id);
    if ((!is_file && !is_on_device && strategy != TN_STRATEGY_FILE_DESCRIPTOR) ||
        is_on_device !=
            (b->device_type == TN_DEVICE_CUDA || b->device_type == TN_DEVICE_ROCM) ||
        (!is_on_device && b->device_type != 0) || memchr(b->path, 0, sizeof b->path) == NULL ||
        is_file != (b->path[0] != 0) || b->data_bytes > b->object_bytes ||
        (is_ipc && !is_inside(b)) || !has_good_pieces(b, is_ipc) ||
        (is_file && !tni_files_is_ours(s, b->path)))
        return tni_fail(
            TN_ERR_CORRUPT,
            "the record of the memory object of block %08x (strategy %u) is damaged", block.id,
            strategy);
    return 0;
}

uint32_t tni_backing_copy_record(const struct tni_backing *b, struct tni_backing *ret_copy)
{
    /* This acquire pairs with the release in name_object(). */
    uint32_t word = atomic_load_explicit(&b->strategy, memory_order_acquire);
    tni_copy_unstable(ret_copy, b, sizeof *ret_copy);
    /*
     * A process writes the other fields only after tni_backing_end() cleared the word. So if
     * the word is unchanged, the copy is whole.
     */
    atomic_thread_fence(memory_order_acquire);
    bool is_whole = atomic_load_explicit(&b->strategy, memory_order_relaxed) == word;
    uint32_t strategy = is_whole ? word & ((1u << TNI_STRATEGY_BITS) - 1) : TN_STRATEGY_DEFAULT;
    atomic_store_explicit(&ret_copy->strategy, strategy, memory_order_relaxed);
    return is_whole ? word : 0;
}

int tni_backing_read(const struct tni_segment *s, tni_block block,
                     struct tni_backing *ret_backing)
{
    struct tni_backing b;
    tni_backing_copy_record(tni_backing_at(s, block), &b);
    int status = tni_backing_check_record(s, block, &b);
    if (status == 0)
        *ret_backing = b;
    return status;
}
