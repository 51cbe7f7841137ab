/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backing: storages outside of the arena.
 *
 * Nouns: object (a memfd, a file, or memory of a device), mapping (of an object, in this
 * process), depot (tenond's descriptors). table.c has I2, I4 and I6, device.c has I7.
 * I1  A block names its object before the object exists and until after it is gone. So the
 *     process that ends the block ends the object too, wherever a death interrupted its maker.
 * I3  An object's pages are committed before its header's magic is written. So a process that
 *     maps it never gets SIGBUS, unless a file is truncated later. Of an object that its maker
 *     writes before it is sealed, the pages are committed by the writes.
 * I5  A call that ends an object names the generation of the block. While the last holder is
 *     ending the block, a ticket's pin can raise its count and lower it to 0 once more. Then
 *     two processes end one object, and the slower one may find that the block is reused.
 * Callers: tensor; ref at a block's end; reaper. A death while an object is made leaves a block
 * that the dead seat holds; reclaiming the hold ends the object (I1). A death while an object
 * is ended leaves an announced block with count 0; reclaiming it ends the object again. Both
 * work on an object that is only half made.
 *
 * In this file: making and ending objects. mapping.c maps them, table.c has the mappings of
 * this process, device.c makes and maps objects on devices, deposit.c gives tenond descriptors,
 * fork.c has the fork hook, record.c reads the description of an object (struct tni_backing,
 * the payload of its block), store.c reads an object's header, names.c and files.c manage named
 * files, strategy.c chooses a strategy.
 */
#include "backing/backing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backing/mapping.h"

/* ---- making ------------------------------------------------------------------------------ */

void tni_backing_begin_record(const struct tn_domain *d, struct tni_backing *b,
                              const struct tni_mapping *m, uint64_t data_bytes)
{
    TNI_PUT(b->object_bytes, m->object_bytes);
    TNI_PUT(b->data_bytes, data_bytes);
    atomic_store_explicit(&b->inode, 0, memory_order_relaxed);
    atomic_store_explicit(&b->device, 0, memory_order_relaxed);
    atomic_store_explicit(&b->owner, d->who, memory_order_relaxed);
    atomic_store_explicit(&b->depositary, 0, memory_order_relaxed);
    atomic_store_explicit(&b->dirtied, 0, memory_order_relaxed);
    atomic_store_explicit(&b->settled, 0, memory_order_relaxed);
    atomic_store_explicit(&b->moved, 0, memory_order_relaxed);
    TNI_PUT(b->piece_count, 0);
}

void tni_backing_end_record(struct tni_backing *b, uint32_t strategy, uint32_t generation)
{
    /* This release pairs with the acquire in tni_backing_copy_record(). */
    atomic_store_explicit(&b->strategy, tni_strategy_word(strategy, generation),
                          memory_order_release);
}

/* Write the description of the object (I1). */
static int name_object(struct tn_domain *d, tni_block block,
                       const struct tni_backing_about *about, struct tni_mapping *m)
{
    struct tni_backing *b = tni_backing_at(&d->segment, block);
    char path[TNI_PATH_BYTES] = {0}; /* private: others could overwrite the path in the block */
    if (about->strategy == TN_STRATEGY_FILE_SYSTEM) {
        int status = tni_files_name(d, path);
        if (status == 0 && (m->path = strdup(path)) == NULL)
            status = tni_fail(TN_ERR_NO_MEMORY, "no private memory for a path");
        if (status != 0)
            return status;
    }
    tni_backing_begin_record(d, b, m, about->data_bytes);
    TNI_PUT(b->flags, about->flags);
    memcpy(b->path, path, sizeof b->path);
    TNI_PUT(b->device_type, about->device.type);
    TNI_PUT(b->device_flags, about->device_flags);
    memcpy(b->device_uuid, about->uuid, sizeof b->device_uuid);
    tni_backing_end_record(b, about->strategy, m->generation);
    TNI_KILL_POINT("backing_named");
    return 0;
}

static int make_object(const struct tn_domain *d, const struct tni_mapping *m, int *ret_fd)
{
    char name[TNI_NAME_BYTES + 32];
    if (m->path != NULL)
        return tni_os_shm_create(m->path, m->object_bytes, ret_fd);
    snprintf(name, sizeof name, TNI_STORAGE_PREFIX "%s", d->segment.name);
    return m->is_write_once ? tni_os_memory_create_sealable(name, m->object_bytes, ret_fd)
                            : tni_os_memory_create(name, m->object_bytes, ret_fd);
}

/* Write the magic of a header, after all the rest (I3). */
static void complete_header(const struct tni_mapping *m)
{
    tn_storage_header *h = tni_mapping_header(m);
    atomic_thread_fence(memory_order_release);
    memcpy(h->magic, TN_STORAGE_MAGIC, sizeof h->magic);
}

/* Write the header of an object, but not its magic. */
static void write_header(const struct tn_domain *d, tni_block block,
                         const struct tni_backing_about *about, const struct tni_mapping *m,
                         const struct tni_os_process *self)
{
    tn_storage_header *h = tni_mapping_header(m);
    *h = (tn_storage_header){.version = TN_STORAGE_VERSION,
                             .object_bytes = m->object_bytes,
                             .data_offset = m->data_offset,
                             .data_bytes = m->data_bytes,
                             .uid = tni_os_uid(),
                             .strategy = about->strategy,
                             .block = block.id,
                             .generation = m->generation,
                             .creator_pid = self->pid,
                             .flags = about->flags,
                             .creator_start = self->start_time,
                             .pid_space = self->pid_space,
                             .created_unix_ns = tni_os_unix_ns(),
                             .dtype_code = TN_DTYPE_CODE(about->dtype),
                             .dtype_bits = TN_DTYPE_BITS(about->dtype),
                             .dtype_lanes = TN_DTYPE_LANES(about->dtype),
                             .ndim = about->ndim,
                             .byte_offset = about->byte_offset,
                             .holders = {1}};
    memcpy(h->domain, d->segment.id, sizeof h->domain);
    for (int32_t i = 0; i < about->ndim; i++) {
        h->shape[i] = about->shape[i];
        h->strides[i] = about->strides[i];
    }
}

/* Map a new object for writing, commit it, and write its inode into its description. */
static int fill_object(struct tn_domain *d, tni_block block,
                       const struct tni_backing_about *about, int fd, struct tni_mapping *m)
{
    struct tni_backing *b = tni_backing_at(&d->segment, block);
    struct tni_os_memory memory;
    struct tni_os_process self; /* from the kernel: other processes can write the seat */
    bool is_file = about->strategy == TN_STRATEGY_FILE_SYSTEM;
    void *address;
    int status = is_file ? tni_os_shm_stat(fd, &memory) : tni_os_memory_stat(fd, &memory);
    if (status == 0)
        status = tni_os_self(&self);
    if (status == 0)
        status = tni_os_map(fd, m->object_bytes, tni_os_page_bytes(), false, &address);
    if (status != 0)
        return status;
    m->address = address;
    m->inode = memory.inode;
    if ((status = tni_os_commit(address,
                                about->is_unsealed ? m->data_offset : m->object_bytes)) != 0)
        return status;
    write_header(d, block, about, m, &self);
    if (!about->is_unsealed)
        complete_header(m);
    atomic_store_explicit(&b->device, memory.device, memory_order_relaxed);
    atomic_store_explicit(&b->inode, memory.inode, memory_order_release);
    TNI_KILL_POINT("backing_filled");
    if (m->is_write_once && !about->is_unsealed)
        status = tni_os_memory_seal_writes(fd);
    TNI_KILL_POINT("backing_sealed");
    return status;
}

/*
 * Make, map and fill an object. Called without the lock of mappings, since a large object takes
 * long. @param ret_fd  the object's descriptor; unchanged for a file
 */
static int build(struct tn_domain *d, tni_block block, const struct tni_backing_about *about,
                 struct tni_mapping *m, int *ret_fd)
{
    int fd;
    if (about->device.type != 0)
        return tni_device_object_make(d, block, about, m, ret_fd);
    int status = make_object(d, m, &fd);
    if (status != 0)
        return status;
    TNI_KILL_POINT("backing_made");
    status = fill_object(d, block, about, fd, m);
    if (status == 0 && m->path == NULL) {
        *ret_fd = fd;
        return 0;
    }
    tni_os_close(fd);
    return status;
}

/* Other processes find a memfd in this process, but memory of a device only in tenond. */
static int fail_undeposited(tni_block block)
{
    char why[200];
    snprintf(why, sizeof why, "%s", tn_error_detail());
    return tni_fail(
        TN_ERR_MANAGER,
        "memory of a device was not made for block %08x, because tenond, from which "
        "other processes get it, did not take its descriptor: %s",
        block.id, why);
}

/*
 * Give tenond a copy of the descriptor, and enter the mapping in the table. Consumes the
 * descriptor. pre: this thread has the lock of mappings
 */
static int keep(struct tn_domain *d, tni_block block, struct tni_mapping *m, int fd)
{
    bool is_deposited = false;
    if (fd >= 0 && tni_backing_part(d)->depot != NULL) {
        int status = tni_backing_part(d)->depot->put(d, block, m->generation, &fd, 1);
        is_deposited = status == 0;
        TNI_KILL_POINT("backing_deposited");
        bool is_on_device = tni_mapping_is_on_device(m);
        if (!is_deposited && is_on_device && status != TN_ERR_FULL)
            status = fail_undeposited(block);
        /* After other errors, tni_backing_deposit_again() tries again with a later tenond. */
        if (status == TN_ERR_FULL || (!is_deposited && is_on_device)) {
            tni_os_close(fd);
            return status;
        }
    }
    tni_mapping_enter(d, m, fd, is_deposited);
    return 0;
}

/* After a failed attempt: unmap and end the object, so that the block names no object. */
static void undo(struct tn_domain *d, tni_block block, struct tni_mapping *m)
{
    char why[256]; /* the error detail: ending an object that was not made yet replaces it */
    snprintf(why, sizeof why, "%s", tn_error_detail());
    tni_mapping_unmap_object(m);
    m->address = NULL;
    free(m->path);
    m->path = NULL;
    tni_backing_end(d, block, m->generation);
    (void)tni_fail(TN_ERR_SYSTEM, "%s", why);
}

/*
 * Name the object in the block, make it and map it. pre: the quota has room for the object, and
 * this thread's announce counts its bytes. Once the block names the object,
 * tni_alloc_outside_bytes() counts the bytes, so tni_alloc_quota_end() can be called.
 */
static int create(struct tn_domain *d, struct tni_thread *thread, tni_block block,
                  const struct tni_backing_about *about, struct tni_mapping *m)
{
    int fd = -1;
    int status = name_object(d, block, about, m);
    tni_alloc_quota_end(thread);
    if (status == 0)
        status = build(d, block, about, m, &fd);
    if (status == 0) {
        tni_mappings_lock(d);
        if ((status = tni_mappings_ensure(d)) == 0)
            status = keep(d, block, m, fd);
        else
            tni_os_close(fd);
        tni_mappings_unlock(d);
    }
    if (status != 0)
        undo(d, block, m);
    return status;
}

/* The bytes of an object: one page for the header, then the data. */
static uint64_t object_bytes_for(const struct tn_domain *d, uint64_t data_bytes)
{
    uint64_t page_bytes = d->segment.geometry.page_bytes;
    return page_bytes + tni_align_up(data_bytes, page_bytes);
}

bool tni_backing_can_fit(const struct tn_domain *d, const struct tni_backing_about *about)
{
    const struct tni_geometry *g = &d->segment.geometry;
    uint64_t object_bytes = object_bytes_for(d, about->data_bytes),
             record_bytes = g->page_bytes;
    if (about->device.type != 0)
        return tni_device_object_can_fit(d, about);
    return g->quota_limit_bytes > record_bytes &&
           object_bytes <= g->quota_limit_bytes - record_bytes &&
           (about->strategy != TN_STRATEGY_FILE_SYSTEM || object_bytes <= tni_os_shm_bytes());
}

/*
 * tenond takes descriptors only from the domain's user, and members open only files of their
 * own user. So a member that has changed its user cannot make memory that other members could
 * map, and gets an error. If the uid in the header differs, ask the kernel for the owner of the
 * control segment: in another user namespace, the same user has another number.
 */
static int check_user(const struct tn_domain *d)
{
    struct tni_os_memory control;
    uint32_t uid = tni_os_uid();
    if (TNI_LIKELY(TNI_LOOK(d->segment.header->uid) == uid))
        return 0;
    int status = tni_os_shm_stat(d->segment.control_fd, &control);
    if (status == 0 && control.uid != uid)
        status = tni_fail(TN_ERR_DENIED,
                          "the domain belongs to user %u, but this process now runs as user "
                          "%u: other members could not map memory that it makes outside of the "
                          "arena",
                          control.uid, uid);
    return status;
}

int tni_backing_prepare(struct tn_domain *d, struct tni_backing_about *about)
{
    if (about->data_bytes > UINT64_MAX / 2)
        return tni_fail(TN_ERR_INVALID, "a storage of %llu bytes is too large",
                        (unsigned long long)about->data_bytes);
    int status = check_user(d);
    return status != 0 || about->device.type == 0 ? status
                                                  : tni_device_object_measure(d, about);
}

/* Make the object if the quota has room for it. */
static int create_admitted(struct tn_domain *d, struct tni_thread *thread, tni_block block,
                           const struct tni_backing_about *about, struct tni_mapping *m)
{
    int status = about->device.type == 0
                     ? tni_alloc_quota_begin(d, thread, m->object_bytes)
                     : 0; /* a device has a quota of its own: device.c, I7 */
    if (status != 0)
        return status;
    TNI_KILL_POINT("backing_admitted");
    return create(d, thread, block, about, m);
}

/*
 * Make the object. Free memory that the arena keeps counts against the quota. If the quota has
 * no room, give free memory back and retry. TN_ERR_NO_MEMORY: no such memory is left.
 */
static int create_within_quota(struct tn_domain *d, struct tni_thread *thread, tni_block block,
                               const struct tni_backing_about *about, struct tni_mapping *m)
{
    enum { ROUNDS = 8 }; /* other threads may use the memory that was given back */
    int status = create_admitted(d, thread, block, about, m);
    if (status != TN_ERR_NO_MEMORY || about->device.type != 0 || !tni_backing_can_fit(d, about))
        return status;
    uint64_t given = 1;
    for (uint32_t round = 0; status == TN_ERR_NO_MEMORY && given > 0; round++) {
        if (round == ROUNDS)
            return TNI_ALLOC_AGAIN;
        given = tni_alloc_trim_some(d, thread, thread->missing_bytes, (tni_block){0});
        status = create_admitted(d, thread, block, about, m);
    }
    return status;
}

int tni_backing_create(struct tn_domain *d, struct tni_thread *thread, tni_block block,
                       const struct tni_backing_about *about, struct tni_mapping **ret_mapping)
{
    struct tni_mapping *m = tni_mapping_new();
    if (m == NULL)
        return TN_ERR_NO_MEMORY;
    bool is_on_device = about->device.type != 0;
    *m = (struct tni_mapping){
        .object_bytes =
            is_on_device ? about->object_bytes : object_bytes_for(d, about->data_bytes),
        .data_offset = is_on_device ? 0 : d->segment.geometry.page_bytes,
        .data_bytes = about->data_bytes,
        .index = tni_block_index(block),
        .generation = tni_desc_at(&d->segment, block)->generation,
        .refs = 1,
        .fd = -1,
        .is_write_once = (about->flags & TN_TENSOR_WRITE_ONCE) != 0,
        .is_slab = (about->flags & TNI_BACKING_SLAB) != 0,
    };
    int status = tni_backing_translate_status(create_within_quota(d, thread, block, about, m));
    if (status == 0) {
        *ret_mapping = m;
        return 0;
    }
    free(m);
    return status;
}

/* ---- filling before the seal ------------------------------------------------------------- */

/* The maker of a write-once storage keeps its descriptor (table.c, I4). */
static int check_descriptor(const struct tni_mapping *m)
{
    return tni_mapping_has_descriptor(m)
               ? 0
               : tni_fail(TN_ERR_SYSTEM,
                          "the program has closed a descriptor of tenon, that of memory which "
                          "it was filling");
}

int tni_backing_write(struct tni_mapping *m, uint64_t off, const void *source,
                      uint64_t size_bytes)
{
    int status = check_descriptor(m);
    if (status == 0)
        status = tni_os_write_at(m->fd, m->data_offset + off, source, size_bytes);
    TNI_KILL_POINT("backing_written");
    return status;
}

int tni_backing_seal(struct tni_mapping *m, uint64_t written_bytes)
{
    uint64_t from = m->data_offset + tni_align_up(written_bytes, tni_os_page_bytes());
    int status = check_descriptor(m);
    if (status == 0 && from < m->object_bytes)
        status = tni_os_commit(m->address + from, m->object_bytes - from);
    if (status != 0)
        return status;
    complete_header(m);
    TNI_KILL_POINT("backing_completed");
    status = tni_os_memory_seal_writes(m->fd);
    TNI_KILL_POINT("backing_closed");
    return status;
}

/* ---- ending ------------------------------------------------------------------------------ */

/*
 * Clear the domain's own entry among the file's holders. @return whether a process that
 * attached the file by its path still holds it
 */
static bool let_file_go(const struct tni_backing *b, int fd)
{
    struct tni_mapping m;
    if (tni_store_map(fd, true, false, &m) != 0)
        return false;
    bool is_held = false;
    if (m.inode == atomic_load(&b->inode)) {
        __atomic_store_n(&tni_mapping_header(&m)->holders[0], 0, __ATOMIC_SEQ_CST);
        TNI_KILL_POINT("backing_let_go");
        is_held = tni_store_is_held(tni_mapping_header(&m));
    }
    tni_os_unmap(m.address, m.object_bytes);
    return is_held;
}

static void end_file(const struct tni_backing *b)
{
    struct tni_os_memory memory;
    uint64_t inode = atomic_load(&b->inode);
    int fd;
    int status = tni_os_shm_open(b->path, &fd);
    if (status == 0) {
        bool is_other =
            inode != 0 && (tni_os_shm_stat(fd, &memory) != 0 || memory.inode != inode);
        bool is_held = !is_other && let_file_go(b, fd);
        tni_os_close(fd);
        if (is_held)
            return;
        status = is_other ? tni_fail(TN_ERR_CORRUPT,
                                     "%s was replaced by another file, which is not removed",
                                     b->path)
                          : tni_os_shm_remove(b->path);
    }
    if (status != 0 && status != TN_ERR_NOT_FOUND)
        tni_log(TNI_LOG_WARNING, "a file was not removed: %s", tn_error_detail());
}

void tni_backing_end(struct tn_domain *d, tni_block block, uint32_t generation)
{
    struct tni_backing b;
    uint32_t word = tni_backing_copy_record(tni_backing_at(&d->segment, block), &b);
    if (!tni_strategy_is_of(word, generation))
        return; /* the block has no object, or another process has ended it (I5) */
    int status = tni_backing_check_record(&d->segment, block, &b);
    if (status != 0)
        tni_log(TNI_LOG_ERROR, "an object was not removed: %s", tn_error_detail());
    else if (b.path[0] != 0)
        end_file(&b);
    TNI_KILL_POINT("backing_ended");
    /* This write pairs with the acquire fence in tni_backing_copy_record(). */
    atomic_compare_exchange_strong(&tni_backing_at(&d->segment, block)->strategy, &word,
                                   TN_STRATEGY_DEFAULT);
    TNI_KILL_POINT("backing_cleared");
    if ((b.flags & TNI_BACKING_SLAB) != 0)
        atomic_fetch_add(&d->segment.header->slabs_ended, 1); /* device.c, I9 */
    if (status != 0 || b.path[0] != 0)
        return;
    tni_mappings_unpark(d, block);
    if (tni_backing_part(d)->depot != NULL)
        tni_backing_part(d)->depot->ring(d);
}

void tni_backing_fini(struct tn_domain *d)
{
    tni_mappings_lock(d);
    tni_mappings_sweep_parked(d, true);
    tni_mappings_end_slabs(d);
    tni_opened_end(d);
    tni_device_objects_end(d);
    tni_mappings_unlock(d);
}
