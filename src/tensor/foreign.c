/* SPDX-License-Identifier: Apache-2.0 */
/*
 * foreign: private tensors on devices, whose memory another library made, and how
 * tn_tensor_share() shares them: where they are, or, if the driver has no way for that, by a
 * copy into memory of tenon. keep.c has what becomes of the library's memory.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/build.h"
#include "tensor/keep.h"

/* ---- sharing it where it is ------------------------------------------------------------ */

static int new_block(struct tn_domain *d, const tn_tensor *t,
                     const struct tni_foreign_about *about, struct tni_keep *k)
{
    struct tni_block_about block = tni_tensor_about(t);
    block.kind = TNI_KIND_BACKING;
    block.is_unfinished = true;
    struct tni_thread *thread = tni_thread_enter(d);
    int status = tni_ref_alloc_with(d, thread, sizeof(struct tni_backing), &block, &k->block);
    if (status == 0) {
        status = tni_foreign_adopt(d, k->block, about, &k->mapping);
        if (status != 0)
            tni_ref_release_unused(d, thread, k->block);
    }
    tni_thread_leave(thread);
    return status == TNI_ALLOC_AGAIN ? TN_ERR_NO_MEMORY : status;
}

/* The storage takes its memory's new block; the keep has a reference of its own. */
static void become_shared(tn_tensor *t, struct tni_keep *k)
{
    struct tni_storage *s = t->storage;
    k->release = s->release;
    k->context = s->context;
    tni_ref_local(k->domain, k->block);
    tni_backing_ref(k->domain, k->mapping);
    tni_storage_set_mapped(s, k->domain, k->block, k->mapping);
    s->device = (tn_device){0};
    atomic_store(&s->is_touched, true); /* the program may have given the device any work */
    tni_ref_finish(k->domain, k->block);
}

/* The storage keeps its memory, of which a handle, or descriptors, are in `about`. */
static int share_exported(struct tn_domain *d, tn_tensor *t, struct tni_foreign_about *about)
{
    const struct tni_device_foreign *memory = &about->memory;
    const struct tni_storage *s = t->storage;
    struct tni_keep *k = calloc(1, sizeof *k);
    if (k == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "no private memory to share foreign memory");
    *k = (struct tni_keep){.pid = tni_os_pid(),
                           .state = TNI_KEPT,
                           .domain = d,
                           .device = memory->device,
                           .at = memory->base,
                           .buffer_id = memory->buffer_id,
                           .whole_bytes = memory->bytes,
                           .is_in_pieces = memory->piece_count > 0,
                           .bytes = s->size_bytes};
    tni_keep_name(d, memory, &k->of);
    about->allocation = k->of.allocation;
    int status = new_block(d, t, about, k);
    if (status != 0) {
        free(k);
        return status;
    }
    k->generation = k->mapping->generation;
    become_shared(t, k);
    tni_keep_add(k);
    return 0;
}

static int share_in_place(struct tn_domain *d, tn_tensor *t,
                          const struct tni_device_foreign *memory)
{
    const struct tni_memory_kind *kind = tni_memory_kind(memory->device.type);
    struct tni_foreign_about about = {.memory = *memory,
                                      .address = (uintptr_t)t->storage->data,
                                      .bytes = t->storage->size_bytes};
    int fds[TNI_DEVICE_PIECES];
    int status = memory->way == TNI_FOREIGN_PIECES ? kind->export_pieces(kind, memory, fds)
                                                   : kind->export(kind, memory, about.handle);
    if (status != 0)
        return status;
    about.fds = fds;
    if (tni_backing_part(d)->depot != NULL)
        tni_backing_part(d)->depot->catch_up(d);
    status = share_exported(d, t, &about);
    for (uint32_t i = 0; i < memory->piece_count; i++)
        tni_os_close(fds[i]);
    return status;
}

/* ---- copying it ------------------------------------------------------------------------ */

/* The storage takes over the new memory of another tensor, which ends. */
static void take_over(struct tni_storage *s, tn_tensor *from)
{
    struct tni_storage *f = from->storage;
    s->data = f->data;
    s->block = f->block;
    s->domain = f->domain;
    s->mapping = f->mapping;
    s->release = NULL;
    s->context = NULL;
    s->device = (tn_device){0};
    atomic_store(&s->ready, atomic_load(&f->ready));
    memcpy(s->uses, f->uses, sizeof s->uses);
    atomic_store(&s->is_touched, false);
    f->mapping = NULL;
    f->domain = NULL;
    f->block.id = 0;
    tni_storage_forget_uses(f);
    tn_tensor_unref(from);
}

/* Count the copy, name it in the log, and mark its block. pre: nobody else has the block */
static void report_copy(struct tn_domain *d, const struct tni_storage *s, const tn_tensor *copy,
                        const char *why)
{
    struct tni_header *h = d->segment.header;
    struct tni_desc *desc = tni_desc_at(&d->segment, copy->storage->block);
    atomic_store_explicit(&desc->copied, desc->generation, memory_order_relaxed);
    atomic_fetch_add(&h->foreign_copies, 1);
    atomic_fetch_add(&h->foreign_copied_bytes, s->size_bytes);
    tni_log(TNI_LOG_INFO, "%llu bytes on a device were copied to be shared: %s",
            (unsigned long long)s->size_bytes, why);
}

/* Copy the whole storage, in the order of the stream. */
static int fill_copy(struct tn_domain *d, tn_tensor *to, const struct tni_storage *s,
                     void *stream)
{
    const struct tni_memory_kind *kind = tni_memory_kind(s->device.type);
    const struct tni_device_copy copy = {.direction = TNI_COPY_ON_DEVICE,
                                         .stream = stream,
                                         .to = (uintptr_t)to->storage->data,
                                         .from = (uintptr_t)s->data,
                                         .bytes = s->size_bytes};
    const struct tni_use use = {.device = s->device, .stream = stream, .writes = to->storage};
    int status = s->size_bytes != 0 ? kind->copy(kind, s->device.id, &copy) : 0;
    return status == 0 ? tni_storage_use(d, &use) : status;
}

static int share_copy(struct tn_domain *d, tn_tensor *t,
                      const struct tni_device_foreign *memory, const tn_tensor_options *given)
{
    struct tni_storage *s = t->storage;
    const int64_t shape[] = {(int64_t)s->size_bytes};
    const tn_tensor_options options = {
        .struct_size = sizeof options, .device = s->device, .deadline = given->deadline};
    struct tni_keep *k = calloc(1, sizeof *k);
    tn_tensor *copy;
    bool is_zero;
    if (k == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "no private memory to share foreign memory");
    int status = tni_tensor_begin_shared(d, TN_UINT8, 1, shape, &options, &is_zero, &copy);
    if (status == 0 && (status = fill_copy(d, copy, s, given->stream)) != 0)
        tn_tensor_unref(copy);
    if (status != 0) {
        free(k);
        return status;
    }
    report_copy(d, s, copy, memory->why);
    *k = (struct tni_keep){.pid = tni_os_pid(),
                           .state = TNI_COPIED,
                           .domain = d,
                           .release = s->release,
                           .context = s->context,
                           .token = atomic_load(&copy->storage->ready)};
    take_over(s, copy);
    tni_ref_finish(d, s->block);
    tni_keep_add(k);
    tni_foreign_sweep_soon();
    return 0;
}

/* ---- memory of the domain that another library gave back -------------------------------- */

/*
 * The memory may be a tensor's of this domain, which came here and went through a library. Then
 * there is nothing to share. Its block may begin before this storage does: the only tensor of
 * the storage can state that.
 */
static bool find_own(struct tn_domain *d, tn_tensor *t)
{
    struct tni_storage *s = t->storage;
    tn_tensor *found;
    if (s->size_bytes == 0 || tn_tensor_find(d, s->data, s->size_bytes, &found) != 0)
        return false;
    uint64_t off = (uint64_t)(s->data - found->storage->data);
    void (*release)(void *context) = s->release;
    void *context = s->context;
    if (off != 0 && atomic_load(&s->refs) != 1) {
        tn_tensor_unref(found);
        return false;
    }
    t->byte_offset += off;
    s->size_bytes = found->storage->size_bytes;
    take_over(s, found);
    atomic_store(&s->is_touched, true);
    if (release != NULL)
        release(context);
    return true;
}

int tni_foreign_share(struct tn_domain *d, tn_tensor *t, const tn_tensor_options *options)
{
    struct tni_storage *s = t->storage;
    const struct tni_memory_kind *kind = tni_memory_kind(s->device.type);
    struct tni_device_foreign memory = {.why = "it is empty"};
    char why[256]; /* pieces could not be shared */
    int status = tni_process_check(d);
    if (status == 0 && (options->flags & TN_TENSOR_WRITE_ONCE) != 0)
        status =
            tni_fail(TN_ERR_UNSUPPORTED, "memory of another allocator cannot be written once");
    if (status != 0)
        return status;
    tni_tensor_end_unfinished();
    if (find_own(d, t))
        return 0;
    if (s->size_bytes != 0)
        status = kind->classify(kind, s->device.id, (uintptr_t)s->data, s->size_bytes, &memory);
    if (status != 0)
        return status;
    if (memory.way != TNI_FOREIGN_COPY)
        status = share_in_place(d, t, &memory);
    if (memory.way == TNI_FOREIGN_PIECES && status != 0) {
        snprintf(why, sizeof why, "%s", tn_error_detail());
        memory.way = TNI_FOREIGN_COPY;
        memory.why = why;
    }
    return memory.way == TNI_FOREIGN_COPY ? share_copy(d, t, &memory, options) : status;
}
