/* SPDX-License-Identifier: Apache-2.0 */
/*
 * outside: storages whose memory is not in a domain of this process, and the descriptors and
 * paths with which a tensor leaves its domain. packet.c sends tensors over sockets.
 *
 * Nouns: outside storage (its memory is not in a domain of this process).
 * I1  An outside storage has a mapping of its own, which is in no domain's table. The mapping
 *     and its descriptor are closed with the storage.
 * I2  Bytes from the sender, and the header in the memory object, are read once and checked
 *     against the size that the kernel states for the object: a view lies inside of the
 *     mapping.
 * Callers: the user. When a process dies, the kernel closes the mapping and the descriptor. A
 * dead process may leave an entry in the `holders` of a file; store.c ignores the entry.
 */
#include <stdlib.h>
#include <string.h>

#include "tensor/outside.h"

_Static_assert(offsetof(struct tni_outside, mapping) == 0,
               "path_of() in about.c casts a context to the mapping");

/* ---- descriptors ------------------------------------------------------------------------- */

/*
 * Whether the descriptor still names the object. A program may close descriptors that it did
 * not open, and then the number may name another file of the program.
 */
static bool has_descriptor(const struct tni_mapping *m)
{
    struct tni_os_memory memory;
    return m->fd >= 0 && tni_os_memory_stat(m->fd, &memory) == 0 && memory.inode == m->inode;
}

int tni_outside_open(const struct tni_outside *o, bool read_only, int *ret_fd)
{
    const struct tni_mapping *m = &o->mapping;
    if (!has_descriptor(m))
        return tni_fail(TN_ERR_SYSTEM,
                        "the program closed the descriptor %d, which belongs to a tensor",
                        m->fd);
    /* Duplicate a read-only descriptor, because another user may not reopen the object. */
    return read_only && !m->is_read_only ? tni_os_memory_reopen(m->fd, true, ret_fd)
                                         : tni_os_duplicate(m->fd, ret_fd);
}

static int check_sendable(const tn_tensor *t, uint32_t flags)
{
    int status = tni_tensor_check(t);
    if (status != 0)
        return status;
    if ((flags & ~(uint32_t)TN_SEND_READ_ONLY) != 0)
        return tni_fail(TN_ERR_INVALID, "the send flags have bits that are not known: 0x%x",
                        flags);
    uint32_t strategy = tni_tensor_strategy(t);
    if (strategy == TN_STRATEGY_DEFAULT)
        return tni_fail(TN_ERR_INVALID, "the tensor is private: tn_tensor_share() it first, "
                                        "by the strategy 'file_descriptor'");
    if (strategy != TN_STRATEGY_FILE_DESCRIPTOR)
        return tni_fail(TN_ERR_UNSUPPORTED,
                        "a storage of the strategy '%s' has no descriptor of its own to send: "
                        "copy the tensor into one of 'file_descriptor'%s",
                        tn_strategy_name(strategy),
                        strategy == TN_STRATEGY_FILE_SYSTEM ? ", or send its path" : "");
    return 0;
}

int tn_tensor_descriptor(tn_tensor *tensor, uint32_t flags, int *ret_fd)
{
    bool read_only = (flags & TN_SEND_READ_ONLY) != 0;
    int status = check_sendable(tensor, flags);
    if (status == 0)
        status = tni_tensor_check_result(ret_fd, "ret_fd");
    if (status != 0)
        return status;
    const struct tni_storage *s = tensor->storage;
    if (s->outside != 0)
        return tni_outside_open(s->context, read_only, ret_fd);
    if ((status = tni_process_check(s->domain)) != 0)
        return status;
    return tni_backing_open(s->domain, s->mapping, s->block, read_only, ret_fd);
}

/* ---- outside storages -------------------------------------------------------------------- */

void tni_outside_release(void *context)
{
    struct tni_outside *o = context;
    struct tni_mapping *m = &o->mapping;
    if (m->path != NULL)
        tni_store_detach(m, o->entry);
    tni_os_unmap(m->address, m->object_bytes);
    if (has_descriptor(m))
        tni_os_close(m->fd);
    free(m->path);
    free(o);
}

int tni_outside_map(int fd, struct tni_outside **ret_outside)
{
    struct tni_outside *o = calloc(1, sizeof *o);
    if (o == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "no private memory for a storage");
    int status = tni_store_map(fd, false, false, &o->mapping);
    if (status == TN_ERR_DENIED)
        status = tni_store_map(fd, false, true, &o->mapping);
    if (status != 0) {
        free(o);
        return status;
    }
    o->mapping.fd = fd;
    o->block = ((const tn_storage_header *)(void *)o->mapping.address)->block;
    *ret_outside = o;
    return 0;
}

int tni_outside_build(struct tni_outside *o, uint32_t strategy, const void *view,
                      size_t view_bytes, tn_tensor **ret_tensor)
{
    const struct tni_mapping *m = &o->mapping;
    tn_tensor *t;
    int used = tni_tensor_decode_as(view, view_bytes, m->data_bytes, &t);
    if (used < 0)
        return used;
    struct tni_storage *s = t->storage;
    if ((size_t)used != view_bytes) {
        tni_tensor_end(t);
        return tni_fail(TN_ERR_CORRUPT, "a view states %zu bytes, but takes %d", view_bytes,
                        used);
    }
    s->outside = (uint8_t)strategy;
    s->is_read_only = m->is_read_only;
    s->data = m->address + m->data_offset;
    s->size_bytes = m->data_bytes;
    s->release = tni_outside_release;
    s->context = o;
    *ret_tensor = t;
    return 0;
}

/* Make the tensor that the header of the memory object describes. */
static int build_as_stated(struct tni_outside *o, uint32_t strategy, tn_tensor **ret_tensor)
{
    _Alignas(8) uint8_t bytes[TNI_VIEW_MAX_BYTES];
    struct tni_view *view = (void *)bytes;
    tn_storage_header h;
    memcpy(&h, o->mapping.address, sizeof h);
    if (h.strategy != strategy)
        return tni_fail(TN_ERR_CORRUPT,
                        "the header of the storage states the strategy %u instead of %u",
                        h.strategy, strategy);
    if (h.ndim < 0 || h.ndim > TN_MAX_NDIM)
        return tni_fail(
            TN_ERR_CORRUPT,
            "the header of the storage states a tensor of %d axes, which no tensor has",
            h.ndim);
    *view = (struct tni_view){.block = h.block,
                              .generation = h.generation,
                              .byte_offset = h.byte_offset,
                              .code = h.dtype_code,
                              .bits = h.dtype_bits,
                              .lanes = h.dtype_lanes,
                              .ndim = (uint8_t)h.ndim};
    size_t extent_bytes = (size_t)h.ndim * sizeof(int64_t);
    memcpy(view->extents, h.shape, extent_bytes);
    memcpy(view->extents + h.ndim, h.strides, extent_bytes);
    return tni_outside_build(o, strategy, bytes, sizeof *view + 2 * extent_bytes, ret_tensor);
}

int tni_outside_fault(int status)
{
    return status == TN_ERR_CORRUPT || status == TN_ERR_DENIED ? TN_ERR_INVALID : status;
}

int tn_tensor_from_descriptor(int fd, tn_tensor **ret_tensor)
{
    struct tni_os_memory memory;
    struct tni_outside *o;
    int ours;
    int status = tni_tensor_check_result(ret_tensor, "ret_tensor");
    if (status != 0 || (status = tni_os_memory_stat(fd, &memory)) != 0 ||
        (status = tni_os_duplicate(fd, &ours)) != 0)
        return status;
    if ((status = tni_outside_map(ours, &o)) != 0) {
        tni_os_close(ours);
        return tni_outside_fault(status);
    }
    status = build_as_stated(o, TN_STRATEGY_FILE_DESCRIPTOR, ret_tensor);
    if (status != 0)
        tni_outside_release(o);
    return tni_outside_fault(status);
}

/* ---- files by path ----------------------------------------------------------------------- */

static int attach_file(const char *path, struct tni_outside **ret_outside)
{
    struct tni_outside *o = calloc(1, sizeof *o);
    char *copy = strdup(path);
    int fd = -1;
    int status = o != NULL && copy != NULL
                     ? tni_os_shm_open(path, &fd)
                     : tni_fail(TN_ERR_NO_MEMORY, "no private memory for a storage");
    if (status != 0)
        goto fail;
    status = tni_store_map(fd, true, false, &o->mapping);
    tni_os_close(fd);
    if (status != 0)
        goto fail;
    o->mapping.path = copy;
    if ((status = tni_store_attach(&o->mapping, &o->entry)) != 0) {
        tni_os_unmap(o->mapping.address, o->mapping.object_bytes);
        goto fail;
    }
    *ret_outside = o;
    return 0;

fail:
    free(copy);
    free(o);
    return status;
}

int tn_tensor_open_path(const char *path, tn_tensor **ret_tensor)
{
    struct tni_outside *o;
    int status = tni_tensor_check_result(ret_tensor, "ret_tensor");
    if (status != 0)
        return status;
    if (path == NULL)
        return tni_fail_null("path");
    if (path[0] != '/')
        return tni_fail(TN_ERR_INVALID, "'%.128s' is not an absolute path", path);
    if ((status = attach_file(path, &o)) != 0)
        return status;
    status = build_as_stated(o, TN_STRATEGY_FILE_SYSTEM, ret_tensor);
    if (status != 0)
        tni_outside_release(o);
    return status;
}
