/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arena: write-once arenas (tn_arena): many tensors in one storage that only its creator can
 * write.
 *
 * Each tensor of an arena is a view of one storage. So a tensor lives, and travels to other
 * processes, as any view does. Only the creator knows how many bytes are allocated: the count
 * is private.
 * I1  Before the seal only the arena refers to the storage: it makes no tensors, so no process
 *     gets at memory that is not committed.
 */
#include <stdlib.h>

#include "tensor/build.h"

struct tn_arena {
    tn_tensor *whole; /* the storage as a tensor of uint8 */
    uint64_t used_bytes;
    bool is_unsealed;
    uint64_t written_bytes; /* each page before has been written to; until the seal */
};

enum { ALIGN_BYTES = 64 };

/* Make a storage that is committed and sealed. */
static int make_sealed(tn_domain *domain, const int64_t *shape, tn_deadline deadline,
                       tn_tensor **ret_whole)
{
    tn_tensor_options options = {
        .struct_size = sizeof options, .flags = TN_TENSOR_WRITE_ONCE, .deadline = deadline};
    return tn_tensor_create(domain, TN_UINT8, 1, shape, &options, ret_whole);
}

static int make_unsealed(tn_domain *domain, const int64_t *shape, tn_deadline deadline,
                         tn_tensor **ret_whole)
{
    const tn_tensor_options options = {.struct_size = sizeof options,
                                       .strategy = TN_STRATEGY_FILE_DESCRIPTOR,
                                       .flags = TN_TENSOR_WRITE_ONCE | TNI_TENSOR_UNSEALED,
                                       .deadline = deadline};
    struct tni_mapping *mapping;
    tni_block block;
    tn_tensor *whole;
    bool lacks_other;
    int status = tni_tensor_build(TN_UINT8, 1, shape, &whole);
    if (status != 0)
        return status;
    status = tni_backed_new(domain, whole, (uint64_t)shape[0], &options, &block, &mapping,
                            &lacks_other);
    if (status != 0) {
        tni_tensor_end_new(whole);
        return status;
    }
    tni_storage_set_mapped(whole->storage, domain, block, mapping);
    tni_ref_finish(domain, block);
    *ret_whole = whole;
    return 0;
}

typedef int make_fn(tn_domain *domain, const int64_t *shape, tn_deadline deadline,
                    tn_tensor **ret_whole);

static int create(tn_domain *domain, uint64_t size_bytes, tn_deadline deadline, make_fn *make,
                  tn_arena **ret_arena)
{
    if (domain == NULL || ret_arena == NULL)
        return tni_fail_null(domain == NULL ? "the domain" : "ret_arena");
    if (size_bytes == 0 || size_bytes > INT64_MAX)
        return tni_fail(TN_ERR_INVALID, "an arena of %llu bytes cannot be made",
                        (unsigned long long)size_bytes);
    int64_t shape[] = {(int64_t)size_bytes};
    struct tn_arena *arena = calloc(1, sizeof *arena);
    if (arena == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "no private memory for an arena");
    arena->is_unsealed = make == make_unsealed;
    int status = make(domain, shape, deadline, &arena->whole);
    if (status != 0) {
        free(arena);
        return status;
    }
    *ret_arena = arena;
    return 0;
}

int tn_arena_create(tn_domain *domain, uint64_t size_bytes, tn_deadline deadline,
                    tn_arena **ret_arena)
{
    return create(domain, size_bytes, deadline, make_sealed, ret_arena);
}

int tn_arena_create_unsealed(tn_domain *domain, uint64_t size_bytes, tn_deadline deadline,
                             tn_arena **ret_arena)
{
    return create(domain, size_bytes, deadline, make_unsealed, ret_arena);
}

/* Whether this process may change the arena: it is a member, and has made the arena. */
static int check_maker(const tn_arena *arena)
{
    int status = tni_process_check(arena->whole->storage->domain);
    if (status == 0 && tni_tensor_is_read_only(arena->whole))
        status = tni_fail(TN_ERR_DENIED,
                          "only the process that made the arena can allocate in it, write it "
                          "and seal it");
    return status;
}

int tn_arena_write(tn_arena *arena, uint64_t off_bytes, const void *source, uint64_t size_bytes)
{
    uint64_t end;
    if (arena == NULL || (source == NULL && size_bytes > 0))
        return tni_fail_null(arena == NULL ? "the arena" : "source");
    int status = check_maker(arena);
    if (status != 0)
        return status;
    if (!arena->is_unsealed)
        return tni_fail(TN_ERR_DENIED, "the arena is sealed: write through its tensors");
    if (!tni_add_size(off_bytes, size_bytes, &end) || end > (uint64_t)arena->whole->count)
        return tni_fail(TN_ERR_INVALID,
                        "the arena has %llu bytes, so %llu bytes at byte %llu are not in it",
                        (unsigned long long)arena->whole->count, (unsigned long long)size_bytes,
                        (unsigned long long)off_bytes);
    status = tni_backing_write(arena->whole->storage->mapping, off_bytes, source, size_bytes);
    uint64_t page_bytes = arena->whole->storage->domain->segment.geometry.page_bytes;
    if (status == 0 && size_bytes > 0 &&
        off_bytes <= tni_align_up(arena->written_bytes, page_bytes))
        arena->written_bytes = TNI_MAX(arena->written_bytes, end);
    return status;
}

int tn_arena_seal(tn_arena *arena)
{
    if (arena == NULL)
        return tni_fail_null("the arena");
    int status = check_maker(arena);
    if (status != 0 || !arena->is_unsealed)
        return status;
    status = tni_backing_seal(arena->whole->storage->mapping, arena->written_bytes);
    arena->is_unsealed = status != 0;
    return status;
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
        status = check_maker(arena);
    if (status != 0)
        return status;
    if (arena->is_unsealed)
        return tni_fail(TN_ERR_DENIED, "the arena is not sealed yet");
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
