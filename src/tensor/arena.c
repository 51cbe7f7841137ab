/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arena: write-once arenas (tn_arena): many tensors in one storage that only its creator can
 * write.
 *
 * Each tensor of an arena is a view of one storage. So a tensor lives, and travels to other
 * processes, as any view does. Only the creator knows how many bytes are allocated: the count
 * is private.
 */
#include <stdlib.h>

#include "tensor/build.h"

struct tn_arena {
    tn_tensor *whole; /* the storage as a tensor of uint8 */
    uint64_t used_bytes;
};

enum { ALIGN_BYTES = 64 };

int tn_arena_create(tn_domain *domain, uint64_t size_bytes, tn_deadline deadline,
                    tn_arena **ret_arena)
{
    tn_tensor_options options = {
        .struct_size = sizeof options, .flags = TN_TENSOR_WRITE_ONCE, .deadline = deadline};
    if (domain == NULL || ret_arena == NULL)
        return tni_fail_null(domain == NULL ? "the domain" : "ret_arena");
    if (size_bytes == 0 || size_bytes > INT64_MAX)
        return tni_fail(TN_ERR_INVALID, "an arena of %llu bytes cannot be made",
                        (unsigned long long)size_bytes);
    int64_t shape[] = {(int64_t)size_bytes};
    struct tn_arena *arena = calloc(1, sizeof *arena);
    if (arena == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "no private memory for an arena");
    int status = tn_tensor_create(domain, TN_UINT8, 1, shape, &options, &arena->whole);
    if (status != 0) {
        free(arena);
        return status;
    }
    *ret_arena = arena;
    return 0;
}

uint64_t tn_arena_room(const tn_arena *arena)
{
    return arena != NULL ? (uint64_t)arena->whole->count - arena->used_bytes : 0;
}

int tn_arena_allocate(tn_arena *arena, tn_dtype dtype, int32_t ndim, const int64_t *shape,
                      tn_tensor **ret_tensor)
{
    struct tni_size size;
    if (arena == NULL || ret_tensor == NULL)
        return tni_fail_null(arena == NULL ? "the arena" : "ret_tensor");
    int status = tni_tensor_measure(dtype, ndim, shape, &size);
    if (status == 0)
        status = tni_process_check(arena->whole->storage->domain);
    if (status != 0)
        return status;
    if (tni_tensor_is_read_only(arena->whole))
        return tni_fail(TN_ERR_DENIED,
                        "only the process that made the arena can allocate in it");
    uint64_t bytes = (uint64_t)size.count * size.item_bytes, room = tn_arena_room(arena);
    if (bytes > room)
        return tni_fail(TN_ERR_FULL, "the arena has %llu bytes left, but the tensor takes %llu",
                        (unsigned long long)room, (unsigned long long)bytes);
    status =
        tn_tensor_view(arena->whole, dtype, ndim, shape, NULL, arena->used_bytes, ret_tensor);
    if (status == 0)
        arena->used_bytes += TNI_MIN(tni_align_up(bytes, ALIGN_BYTES), room);
    return status;
}

tn_arena *tn_arena_close(tn_arena *arena)
{
    if (arena != NULL)
        tn_tensor_unref(arena->whole);
    free(arena);
    return NULL;
}
