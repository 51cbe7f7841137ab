/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backing: storages outside of the arena.
 *
 * Nouns: object (a memfd or a file), mapping (of an object, in this process), depot (tenond's
 * descriptors). I2, I4 and I6 are mapping.c's.
 * I1  A block names its object before the object is there, and until after it is gone: so
 *     whoever ends the block ends the object, whatever point a death left it at.
 * I3  An object's pages are committed before its header's magic is written; who maps it never
 *     meets SIGBUS, but for a file that somebody truncates.
 * I5  Who ends an object says of which generation. A ticket's pin can come and go while the
 *     last holder is ending the block, and bring its count to 0 once more: so two may end one
 *     object, and the slower one may find the block in its next life.
 * Callers: tensor; ref at a block's end; tenond. A death while making leaves the block held by
 * the dead seat, and its end ends the object (I1); a death while ending leaves the block
 * announced with count 0, and is done again. Neither needs the object to be whole.
 */
#include "backing/backing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backing/mapping.h"

/* ---- making ------------------------------------------------------------------------------ */

/* I1. What the record said before was of a block that ended; the strategy 0 says so. */
static int name_object(struct tn_domain *d, tni_block block,
                       const struct tni_backing_about *about, struct tni_mapping *m)
{
    struct tni_backing *b = tni_backing_at(&d->segment, block);
    char path[TNI_PATH_BYTES] = {0}; /* what the file is made by: the block's is for others */
    if (about->strategy == TN_STRATEGY_FILE_SYSTEM) {
        int status = tni_files_name(d, path);
        if (status == 0 && (m->path = strdup(path)) == NULL)
            status = tni_fail(TN_ERR_NO_MEMORY, "no private memory for a path");
        if (status != 0)
            return status;
    }
    TNI_PUT(b->flags, about->flags);
    TNI_PUT(b->object_bytes, m->object_bytes);
    TNI_PUT(b->data_bytes, about->data_bytes);
    atomic_store_explicit(&b->inode, 0, memory_order_relaxed);
    atomic_store_explicit(&b->device, 0, memory_order_relaxed);
    atomic_store_explicit(&b->owner, d->who, memory_order_relaxed);
    atomic_store_explicit(&b->depositary, 0, memory_order_relaxed);
    memcpy(b->path, path, sizeof b->path);
    /* pairs with the acquire in tni_backing_copy_record() */
    atomic_store_explicit(&b->strategy, tni_strategy_word(about->strategy, m->generation),
                          memory_order_release);
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

/* I3: the magic comes last. */
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
    atomic_thread_fence(memory_order_release);
    memcpy(h->magic, TN_STORAGE_MAGIC, sizeof h->magic);
}

/* Map a new object for writing, commit it, and say in the block which it is. */
static int fill_object(struct tn_domain *d, tni_block block,
                       const struct tni_backing_about *about, int fd, struct tni_mapping *m)
{
    struct tni_backing *b = tni_backing_at(&d->segment, block);
    struct tni_os_memory memory;
    struct tni_os_process self; /* as the kernel has it: our seat may be overwritten */
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
    if ((status = tni_os_commit(address, m->object_bytes)) != 0)
        return status;
    write_header(d, block, about, m, &self);
    atomic_store_explicit(&b->device, memory.device, memory_order_relaxed);
    atomic_store_explicit(&b->inode, memory.inode, memory_order_release);
    TNI_KILL_POINT("backing_filled");
    if (m->is_write_once)
        status = tni_os_memory_seal_writes(fd);
    TNI_KILL_POINT("backing_sealed");
    return status;
}

/* An object that is mapped and filled, and its descriptor. Under no lock: it may be large. */
static int build(struct tn_domain *d, tni_block block, const struct tni_backing_about *about,
                 struct tni_mapping *m, int *ret_fd)
{
    int fd;
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

/* With tenond, if there is one, and in our table. pre: locked; the descriptor is consumed */
static int keep(struct tn_domain *d, tni_block block, struct tni_mapping *m, int fd)
{
    bool is_deposited = false;
    if (fd >= 0 && tni_backing_part(d)->depot != NULL) {
        int status = tni_backing_part(d)->depot->put(d, block, m->generation, fd);
        is_deposited = status == 0;
        TNI_KILL_POINT("backing_deposited");
        /* No tenond now: the next one is told, see tni_backing_deposit_again(). */
        if (status == TN_ERR_FULL) {
            tni_os_close(fd);
            return status;
        }
    }
    tni_mapping_enter(d, m, fd, is_deposited);
    return 0;
}

/* A try was in vain: the block names no object, as before. */
static void undo(struct tn_domain *d, tni_block block, struct tni_mapping *m)
{
    char why[256]; /* there may be no file yet, which is no failure of its own */
    snprintf(why, sizeof why, "%s", tn_error_detail());
    tni_os_unmap(m->address, m->object_bytes);
    m->address = NULL;
    free(m->path);
    m->path = NULL;
    tni_backing_end(d, block, m->generation);
    (void)tni_fail(TN_ERR_SYSTEM, "%s", why);
}

/* Admitted by the quota, and counted by it once it is named. */
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

/* The header has a page of its own. */
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
    return g->quota_limit_bytes > record_bytes &&
           object_bytes <= g->quota_limit_bytes - record_bytes &&
           (about->strategy != TN_STRATEGY_FILE_SYSTEM || object_bytes <= tni_os_shm_bytes());
}

/*
 * tenond takes descriptors of the domain's user only, and members open files of theirs only: so
 * nobody could have the memory of a member that took another user's identity. Where the header
 * says otherwise, the kernel is asked: in a user namespace, users may have other numbers.
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
                          "the domain is of user %u and this process is of user %u now: nobody "
                          "else could have memory that it makes outside of the arena",
                          control.uid, uid);
    return status;
}

int tni_backing_check(struct tn_domain *d, const struct tni_backing_about *about)
{
    if (about->data_bytes > UINT64_MAX / 2)
        return tni_fail(TN_ERR_INVALID, "a storage of %llu bytes",
                        (unsigned long long)about->data_bytes);
    return check_user(d);
}

/* Once admitted by the quota. */
static int create_admitted(struct tn_domain *d, struct tni_thread *thread, tni_block block,
                           const struct tni_backing_about *about, struct tni_mapping *m)
{
    int status = tni_alloc_quota_begin(d, thread, m->object_bytes);
    if (status != 0)
        return status;
    TNI_KILL_POINT("backing_admitted");
    return create(d, thread, block, about, m);
}

/*
 * What the arena keeps warm counts against the quota: NO_MEMORY is told only when nothing of it
 * is left to give back.
 */
static int create_within_quota(struct tn_domain *d, struct tni_thread *thread, tni_block block,
                               const struct tni_backing_about *about, struct tni_mapping *m)
{
    enum { ROUNDS = 8 }; /* others may be quicker to what was given back */
    int status = create_admitted(d, thread, block, about, m);
    if (status != TN_ERR_NO_MEMORY || !tni_backing_can_fit(d, about))
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
    *m = (struct tni_mapping){
        .object_bytes = object_bytes_for(d, about->data_bytes),
        .data_offset = d->segment.geometry.page_bytes,
        .data_bytes = about->data_bytes,
        .index = tni_block_index(block),
        .generation = tni_desc_at(&d->segment, block)->generation,
        .refs = 1,
        .fd = -1,
        .is_write_once = (about->flags & TN_TENSOR_WRITE_ONCE) != 0,
    };
    int status = tni_backing_name_shortage(create_within_quota(d, thread, block, about, m));
    if (status == 0) {
        *ret_mapping = m;
        return 0;
    }
    free(m);
    return status;
}

/* ---- ending ------------------------------------------------------------------------------ */

/* The domain lets a file go; those who attached by path keep it. */
static bool is_still_held(const struct tni_backing *b, int fd)
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
        bool is_held = !is_other && is_still_held(b, fd);
        tni_os_close(fd);
        if (is_held)
            return;
        status = is_other ? tni_fail(TN_ERR_CORRUPT, "%s was replaced: it stays", b->path)
                          : tni_os_shm_remove(b->path);
    }
    if (status != 0 && status != TN_ERR_NOT_FOUND)
        tni_log(TNI_LOG_WARNING, "a file was left: %s", tn_error_detail());
}

void tni_backing_end(struct tn_domain *d, tni_block block, uint32_t generation)
{
    struct tni_backing b;
    uint32_t word = tni_backing_copy_record(tni_backing_at(&d->segment, block), &b);
    if (!tni_strategy_is_of(word, generation))
        return; /* there is none, or I5: somebody else has done it */
    int status = tni_backing_check_record(&d->segment, block, &b);
    if (status != 0)
        tni_log(TNI_LOG_ERROR, "an object was left: %s", tn_error_detail());
    else if (b.path[0] != 0)
        end_file(&b);
    TNI_KILL_POINT("backing_ended");
    /* pairs with the acquire fence in tni_backing_copy_record() */
    atomic_compare_exchange_strong(&tni_backing_at(&d->segment, block)->strategy, &word,
                                   TN_STRATEGY_DEFAULT);
    TNI_KILL_POINT("backing_cleared");
    if (status != 0 || b.path[0] != 0)
        return;
    tni_mappings_unpark(d, block);
    if (tni_backing_part(d)->depot != NULL)
        tni_backing_part(d)->depot->ring(d);
}

/* ---- a domain's private state ------------------------------------------------------------ */

/*
 * What only the parent may write is mapped anew, at the same place, as everybody else has it.
 * If that fails the child must not have it at all, and its use is a fault.
 */
TNI_AROUND_FORK static void map_read_only(struct tni_mapping *m)
{
    if (!m->is_write_once || m->is_read_only)
        return;
    if (!tni_mapping_has_descriptor(m) ||
        tni_os_map_over(m->fd, m->address, m->object_bytes, true) != 0) {
        tni_os_unmap(m->address, m->object_bytes);
        m->address = NULL; /* others may map something there: it is not ours to unmap */
        tni_log(TNI_LOG_ERROR, "a forked child lost a storage: %s", tn_error_detail());
    }
    m->is_read_only = true;
}

/*
 * Of what another thread of the parent was making or mapping, the child has no reference: the
 * mapping would keep the memory for as long as the child lives.
 */
TNI_AROUND_FORK static void map_as_child(struct tn_domain *d)
{
    for (uint32_t i = 0; i < tni_backing_part(d)->mappings_limit; i++) {
        struct tni_mapping *m = tni_backing_part(d)->mappings[i];
        if (m == NULL)
            continue;
        uint32_t at =
            tni_block_position(&d->segment.geometry, tni_block_make(TNI_BACKING_CLASS, i));
        if (atomic_load_explicit(&d->local[at], memory_order_relaxed) == 0)
            tni_mapping_abandon(d, m);
        else
            map_read_only(m);
    }
}

static void unlock_around_fork(struct tn_domain *d, bool in_child)
{
    if (in_child)
        tni_mutex_reset(&tni_backing_part(d)->mappings_lock);
    else
        tni_mappings_unlock(d);
}

static void free_table(struct tn_domain *d)
{
    tni_os_unmap(tni_backing_part(d)->mappings, tni_backing_part(d)->mappings_bytes);
}

void tni_backing_init(struct tn_domain *d)
{
    tni_process_hook(d, &(struct tni_fork_hooks){.lock = tni_mappings_lock,
                                                 .unlock = unlock_around_fork,
                                                 .child = map_as_child,
                                                 .free = free_table});
}
