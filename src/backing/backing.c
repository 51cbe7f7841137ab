/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backing: storages outside of the arena.
 *
 * Nouns: object (a memfd or a file), mapping (of an object, in this process), depot (tenond's
 * descriptors).
 * I1  A block names its object before the object is there, and until after it is gone: so
 *     whoever ends the block ends the object, whatever point a death left it at.
 * I2  mappings[i] is the newest mapping that this process has of block i; NULL if it has none.
 * A mapping lives while its `refs` is not 0, which may be longer than this process holds the
 *     block: a push gives its reference away before it unmaps, an import maps before it has
 *     one. So one of a generation that is over may live beside its successor, out of the table.
 * I3  An object's pages are committed before its header's magic is written; who maps it never
 *     meets SIGBUS, but for a file that somebody truncates.
 * I4  A process keeps the descriptor of a mapping only while it may be the last to have it: if
 *     there is no tenond, for KEPT of them in case tenond is killed, and always for one that it
 *     alone can write, since a forked child must map it anew.
 * I5  Who ends an object says of which generation. A ticket's pin can come and go while the
 * last holder is ending the block, and bring its count to 0 once more: so two may end one
 *     object, and the slower one may find the block in its next life.
 * I6  A descriptor that tenond has not got is parked when its mapping ends while others name
 * the storage, in a queue or a ticket: they find it here. It is closed once nobody does, or
 * given to the next tenond. Until somebody looks, it keeps the memory of a storage that has
 * ended. Callers: tensor; ref at a block's end; tenond. A death while making leaves the block
 * held by the dead seat, and its end ends the object (I1); a death while ending leaves the
 * block announced with count 0, and is done again. Neither needs the object to be whole.
 */
#include "backing/backing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEPT = 64, PARKED = 16, STRATEGY_BITS = 8 };

static struct tni_backing *backing_at(const struct tni_segment *s, tni_block block)
{
    return tni_payload_at(s, block);
}

/* What stands in tni_backing.strategy: {generation:24, strategy:8}, I5. */
static uint32_t strategy_word(uint32_t strategy, uint32_t generation)
{
    return generation << STRATEGY_BITS | strategy;
}

static tn_storage_header *header_of(const struct tni_mapping *m)
{
    return (tn_storage_header *)(void *)m->address;
}

static int check_backing(const struct tni_segment *s, tni_block block,
                         const struct tni_backing *b)
{
    uint32_t strategy = atomic_load_explicit(&b->strategy, memory_order_relaxed);
    bool is_file = strategy == TN_STRATEGY_FILE_SYSTEM;
    if (strategy == TN_STRATEGY_DEFAULT)
        return tni_fail(TN_ERR_NOT_FOUND, "block %x has no object", block.id);
    if ((!is_file && strategy != TN_STRATEGY_FILE_DESCRIPTOR) ||
        memchr(b->path, 0, sizeof b->path) == NULL || is_file != (b->path[0] != 0) ||
        b->data_bytes > b->object_bytes || (is_file && !tni_files_is_ours(s, b->path)))
        return tni_fail(TN_ERR_CORRUPT,
                        "block %x names an object (strategy %u) that makes no sense", block.id,
                        strategy);
    return 0;
}

/* @return the word of the strategy as it stands there; 0: there is no object any more */
static uint32_t copy_backing(const struct tni_backing *b, struct tni_backing *ret_copy)
{
    /* pairs with the release in name_object() */
    uint32_t word = atomic_load_explicit(&b->strategy, memory_order_acquire);
    memcpy(ret_copy, b, sizeof *ret_copy);
    /* Whoever writes the rest anew found the word cleared: pairs with tni_backing_end(). */
    atomic_thread_fence(memory_order_acquire);
    bool is_whole = atomic_load_explicit(&b->strategy, memory_order_relaxed) == word;
    uint32_t strategy = is_whole ? word & ((1u << STRATEGY_BITS) - 1) : TN_STRATEGY_DEFAULT;
    atomic_store_explicit(&ret_copy->strategy, strategy, memory_order_relaxed);
    return is_whole ? word : 0;
}

int tni_backing_read(const struct tni_segment *s, tni_block block,
                     struct tni_backing *ret_backing)
{
    struct tni_backing b;
    copy_backing(backing_at(s, block), &b);
    int status = check_backing(s, block, &b);
    if (status == 0)
        *ret_backing = b;
    return status;
}

/* ---- the table of mappings --------------------------------------------------------------- */

/* fork() takes it too, after all thread records: who has it must not want one. */
static void lock(struct tn_domain *d)
{
    while (atomic_exchange_explicit(&d->mappings_busy, 1, memory_order_acquire) != 0)
        tni_os_yield();
}

static void unlock(struct tn_domain *d)
{
    atomic_store_explicit(&d->mappings_busy, 0, memory_order_release);
}

static bool is_ours(const struct tni_mapping *m)
{
    struct tni_os_memory memory;
    return m->fd >= 0 && tni_os_memory_stat(m->fd, &memory) == 0 && memory.inode == m->inode;
}

/* A program that closes what it did not open may have its own behind this number by now. */
static void close_kept(struct tn_domain *d, struct tni_mapping *m)
{
    if (m->fd < 0)
        return;
    if (is_ours(m))
        tni_os_close(m->fd);
    m->fd = -1;
    d->kept_fds--;
}

/* To the system a full table of descriptors is an error among others. */
static int name_shortage(int status)
{
    int fd;
    if (status != TN_ERR_SYSTEM)
        return status;
    if (tni_os_loop_create(&fd) != 0)
        return TN_ERR_FULL; /* the detail says again how many there may be */
    tni_os_close(fd);
    return status;
}

/* Sparse: what is never touched costs nothing. pre: locked */
static int ensure_table(struct tn_domain *d)
{
    uint64_t bytes =
        d->segment.geometry.classes[TNI_BACKING_CLASS].capacity * sizeof *d->mappings;
    void *table;
    if (d->mappings != NULL)
        return 0;
    int status = tni_os_map_private(bytes, &table);
    if (status != 0)
        return status;
    tni_os_raise_descriptor_limit();
    d->mappings = table;
    d->mappings_bytes = bytes;
    return 0;
}

/* I4. Consumes the descriptor. */
static void keep_or_close(struct tn_domain *d, struct tni_mapping *m, int fd, bool is_deposited)
{
    m->is_deposited = is_deposited;
    bool is_needed =
        !is_deposited || d->kept_fds < KEPT || (m->is_write_once && !m->is_read_only);
    if (is_needed) {
        m->fd = fd;
        d->kept_fds++;
    } else {
        tni_os_close(fd);
    }
}

static void discard_mapping(struct tn_domain *d, struct tni_mapping *m)
{
    close_kept(d, m);
    free(m->path);
    free(m);
}

/* I6. Whether anybody but us names this life of the block. */
static bool is_wanted(const struct tn_domain *d, const struct tni_mapping *m)
{
    const struct tni_segment *s = &d->segment;
    tni_block block = tni_block_make(TNI_BACKING_CLASS, m->index);
    uint32_t at = tni_block_position(&s->geometry, block);
    uint32_t word = atomic_load(&backing_at(s, block)->strategy);
    if (word == 0 || (word ^ strategy_word(0, m->generation)) >> STRATEGY_BITS != 0)
        return false;
    uint32_t ours =
        d->seat != TNI_NO_SEAT ? atomic_load(tni_row_at(s, d->seat, at)) >> (at % 64) & 1 : 0;
    return tni_word_count(atomic_load(tni_word_at(s, block))) > ours;
}

static void sweep_parked(struct tn_domain *d, bool all)
{
    for (struct tni_mapping **at = &d->parked; *at != NULL;) {
        struct tni_mapping *m = *at;
        if (!all && !m->is_deposited && is_wanted(d, m)) {
            at = &m->next;
            continue;
        }
        *at = m->next;
        d->parked_count--;
        discard_mapping(d, m);
    }
    d->parked_limit = 2 * d->parked_count + PARKED; /* so that few are looked at in vain */
}

static void park(struct tn_domain *d, struct tni_mapping *m)
{
    m->address = NULL;
    m->next = d->parked;
    d->parked = m;
    if (++d->parked_count > d->parked_limit)
        sweep_parked(d, false);
}

static void end_mapping(struct tn_domain *d, struct tni_mapping *m)
{
    if (d->mappings[m->index] == m)
        d->mappings[m->index] = NULL;
    tni_os_unmap(m->address, m->object_bytes);
    if (m->fd >= 0 && !m->is_deposited && !d->is_closed && is_wanted(d, m))
        park(d, m);
    else
        discard_mapping(d, m);
}

void tni_backing_sweep(struct tn_domain *d)
{
    lock(d);
    sweep_parked(d, false);
    unlock(d);
}

void tni_backing_fini(struct tn_domain *d)
{
    lock(d);
    sweep_parked(d, true);
    unlock(d);
}

/* I2. `made` becomes the newest of its block, in memory of its own. */
static void enter_mapping(struct tn_domain *d, const struct tni_mapping *made,
                          struct tni_mapping *memory)
{
    *memory = *made;
    d->mappings[made->index] = memory;
}

static struct tni_mapping *new_mapping(void)
{
    struct tni_mapping *m = calloc(1, sizeof *m);
    if (m == NULL)
        tni_fail(TN_ERR_NO_MEMORY, "no private memory for a mapping");
    return m;
}

void tni_backing_keep(struct tn_domain *d, struct tni_mapping *m)
{
    lock(d);
    m->refs++;
    unlock(d);
}

void tni_backing_unmap(struct tn_domain *d, struct tni_mapping *m)
{
    lock(d);
    if (--m->refs == 0)
        end_mapping(d, m);
    unlock(d);
}

/* ---- making ------------------------------------------------------------------------------ */

/* I1. What stood there is of a block that ended: its strategy is 0. */
static int name_object(struct tn_domain *d, tni_block block,
                       const struct tni_backing_about *about, const struct tni_mapping *m)
{
    struct tni_backing *b = backing_at(&d->segment, block);
    b->flags = about->flags;
    b->object_bytes = m->object_bytes;
    b->data_bytes = about->data_bytes;
    atomic_store_explicit(&b->inode, 0, memory_order_relaxed);
    atomic_store_explicit(&b->device, 0, memory_order_relaxed);
    atomic_store_explicit(&b->owner, d->who, memory_order_relaxed);
    memset(b->path, 0, sizeof b->path);
    if (about->strategy == TN_STRATEGY_FILE_SYSTEM) {
        int status = tni_files_name(d, b->path);
        if (status != 0)
            return status;
    }
    /* pairs with the acquire in copy_backing() */
    atomic_store_explicit(&b->strategy, strategy_word(about->strategy, m->generation),
                          memory_order_release);
    TNI_KILL_POINT("backing_named");
    return 0;
}

static int make_object(const struct tn_domain *d, const struct tni_backing *b, int *ret_fd)
{
    char name[TNI_NAME_BYTES + 32];
    if (b->path[0] != 0)
        return tni_os_shm_create(b->path, b->object_bytes, ret_fd);
    snprintf(name, sizeof name, TNI_STORAGE_PREFIX "%s", d->segment.header->name);
    return tni_os_memory_create(name, b->object_bytes, ret_fd);
}

/* I3: the magic comes last. */
static void write_header(const struct tn_domain *d, tni_block block,
                         const struct tni_backing_about *about, const struct tni_mapping *m)
{
    tn_storage_header *h = header_of(m);
    *h = (tn_storage_header){.version = TN_STORAGE_VERSION,
                             .object_bytes = m->object_bytes,
                             .data_offset = m->data_offset,
                             .data_bytes = m->data_bytes,
                             .uid = tni_os_uid(),
                             .strategy = about->strategy,
                             .block = block.id,
                             .generation = m->generation,
                             .creator_pid = tni_os_pid(),
                             .flags = about->flags,
                             .creator_start = d->me->start_time,
                             .pid_space = d->me->pid_space,
                             .created_unix_ns = tni_os_unix_ns(),
                             .dtype_code = about->dtype.code,
                             .dtype_bits = about->dtype.bits,
                             .dtype_lanes = about->dtype.lanes,
                             .ndim = about->ndim,
                             .byte_offset = about->byte_offset,
                             .holders = {1}};
    memcpy(h->domain, d->segment.header->id, sizeof h->domain);
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
    struct tni_backing *b = backing_at(&d->segment, block);
    struct tni_os_memory memory;
    bool is_file = about->strategy == TN_STRATEGY_FILE_SYSTEM;
    void *address;
    int status = is_file ? tni_os_shm_stat(fd, &memory) : tni_os_memory_stat(fd, &memory);
    if (status == 0)
        status = tni_os_map(fd, m->object_bytes, tni_os_page_bytes(), false, &address);
    if (status != 0)
        return status;
    m->address = address;
    m->inode = memory.inode;
    if ((status = tni_os_commit(address, m->object_bytes)) != 0)
        return status;
    write_header(d, block, about, m);
    atomic_store_explicit(&b->device, memory.device, memory_order_relaxed);
    atomic_store_explicit(&b->inode, memory.inode, memory_order_release);
    TNI_KILL_POINT("backing_filled");
    if (m->is_write_once)
        status = tni_os_memory_seal_writes(fd);
    TNI_KILL_POINT("backing_sealed");
    return status;
}

/* Until it is mapped here and, if there is a tenond, kept there as well. */
static int build(struct tn_domain *d, tni_block block, const struct tni_backing_about *about,
                 struct tni_mapping *m)
{
    const struct tni_backing *b = backing_at(&d->segment, block);
    bool is_deposited = false;
    int fd;
    int status = make_object(d, b, &fd);
    if (status != 0)
        return status;
    TNI_KILL_POINT("backing_made");
    status = fill_object(d, block, about, fd, m);
    if (status == 0 && b->path[0] != 0 && (m->path = strdup(b->path)) == NULL)
        status = tni_fail(TN_ERR_NO_MEMORY, "no private memory for a path");
    if (status == 0 && b->path[0] == 0 && d->depot != NULL) {
        status = d->depot->put(d, block, m->generation, fd);
        is_deposited = status == 0;
        if (status != 0 && status != TN_ERR_FULL)
            status =
                0; /* no tenond now: the next one is told, see tni_backing_deposit_again() */
        TNI_KILL_POINT("backing_deposited");
    }
    if (status != 0 || b->path[0] != 0)
        tni_os_close(fd);
    else
        keep_or_close(d, m, fd, is_deposited);
    if (status == 0)
        return 0;
    tni_os_unmap(m->address, m->object_bytes);
    free(m->path);
    return status;
}

static int create_locked(struct tn_domain *d, struct tni_thread *thread, tni_block block,
                         const struct tni_backing_about *about, struct tni_mapping *ret_mapping)
{
    uint64_t page_bytes = d->segment.geometry.page_bytes;
    if (about->data_bytes > UINT64_MAX / 2)
        return tni_fail(TN_ERR_INVALID, "a storage of %llu bytes",
                        (unsigned long long)about->data_bytes);
    struct tni_mapping m = {
        .object_bytes = page_bytes + tni_align_up(about->data_bytes, page_bytes),
        .data_offset = page_bytes,
        .data_bytes = about->data_bytes,
        .index = tni_block_index(block),
        .generation = tni_desc_at(&d->segment, block)->generation,
        .refs = 1,
        .fd = -1,
        .is_write_once = (about->flags & TN_SHARE_WRITE_ONCE) != 0,
    };
    int status = ensure_table(d);
    if (status == 0)
        status = tni_alloc_quota_begin(d, thread, m.object_bytes);
    if (status != 0)
        return status;
    TNI_KILL_POINT("backing_admitted");
    status = name_object(d, block, about, &m);
    if (status == 0)
        status = build(d, block, about, &m);
    tni_alloc_quota_end(thread);
    if (status == 0)
        enter_mapping(d, &m, ret_mapping);
    return status;
}

int tni_backing_create(struct tn_domain *d, tni_block block,
                       const struct tni_backing_about *about, struct tni_mapping **ret_mapping)
{
    struct tni_mapping *mapping = new_mapping();
    if (mapping == NULL)
        return TN_ERR_NO_MEMORY;
    if (d->depot != NULL)
        d->depot->catch_up(d);
    struct tni_thread *thread = tni_thread_enter(d);
    lock(d);
    int status = name_shortage(create_locked(d, thread, block, about, mapping));
    unlock(d);
    tni_thread_leave(thread);
    if (status == 0)
        *ret_mapping = mapping;
    else
        free(mapping);
    return status;
}

/* ---- mapping ----------------------------------------------------------------------------- */

struct search {
    uint64_t inode;
    int fd;
};

static int open_if_same(int32_t pid, int fd_number, const char *name, uint64_t inode,
                        void *context)
{
    struct search *search = context;
    struct tni_os_memory memory;
    int fd;
    (void)name;
    if (inode != search->inode || tni_os_memory_open(pid, fd_number, false, &fd) != 0)
        return false;
    if (tni_os_memory_stat(fd, &memory) != 0 || memory.inode != inode) {
        tni_os_close(fd); /* its number is another one's by now */
        return false;
    }
    search->fd = fd;
    return true;
}

/* From tenond, else from whoever has it open. */
static int find_memory(struct tn_domain *d, tni_block block, uint32_t generation,
                       uint64_t inode, int *ret_fd, bool *ret_is_deposited)
{
    struct search search = {.inode = inode, .fd = -1};
    int found = 0, status = TN_ERR_NOT_FOUND;
    if (d->depot != NULL)
        status = d->depot->get(d, block, generation, ret_fd);
    *ret_is_deposited = status == 0;
    if (status == TN_ERR_NOT_FOUND || status == TN_ERR_MANAGER)
        found = tni_os_memory_for_each(TNI_STORAGE_PREFIX, open_if_same, &search);
    if (found == 1) {
        *ret_fd = search.fd;
        return 0;
    }
    if (found < 0 || status == 0 || status == TN_ERR_SYSTEM)
        return found < 0 ? found : status;
    if (status == TN_ERR_MANAGER)
        return tni_fail(status, "tenond, which may have the descriptor of block %x, is silent",
                        block.id);
    return tni_fail(TN_ERR_NOT_FOUND,
                    "nobody has the descriptor of block %x any more: tenond was killed after "
                    "its maker, process %u, had ended",
                    block.id, tni_desc_at(&d->segment, block)->creator_pid);
}

/* A file may have been replaced by another one, a descriptor be of something else. */
static int check_identity(const struct tn_domain *d, tni_block block, uint32_t generation,
                          const struct tni_backing *b, const struct tni_mapping *m)
{
    const tn_storage_header *h = header_of(m);
    if (m->inode == atomic_load(&b->inode) && h->block == block.id &&
        h->generation == generation && m->data_bytes == b->data_bytes &&
        memcmp(h->domain, d->segment.header->id, sizeof h->domain) == 0)
        return 0;
    return tni_fail(TN_ERR_CORRUPT, "%s is not the storage of block %x: it was replaced",
                    b->path[0] != 0 ? b->path : "the object", block.id);
}

/* What a checked record names: opened, mapped, and proved to be of this generation. */
static int map_object(struct tn_domain *d, tni_block block, uint32_t generation,
                      const struct tni_backing *b, struct tni_mapping *ret_mapping)
{
    struct tni_mapping m;
    bool is_deposited = false, is_file = b->path[0] != 0;
    int fd;
    int status =
        is_file ? tni_os_shm_open(b->path, &fd)
                : find_memory(d, block, generation, atomic_load(&b->inode), &fd, &is_deposited);
    if (status != 0)
        return status;
    if ((status = tni_store_map(fd, is_file, false, &m)) != 0)
        goto close_fd;
    m.index = tni_block_index(block);
    if ((status = check_identity(d, block, generation, b, &m)) != 0)
        goto unmap;
    if (is_file && (m.path = strdup(b->path)) == NULL) {
        status = tni_fail(TN_ERR_NO_MEMORY, "no private memory for a path");
        goto unmap;
    }
    TNI_KILL_POINT("backing_mapped");
    if (is_file)
        tni_os_close(fd);
    else
        keep_or_close(d, &m, fd, is_deposited);
    *ret_mapping = m;
    return 0;

unmap:
    tni_os_unmap(m.address, m.object_bytes);
close_fd:
    tni_os_close(fd);
    return status;
}

static int map_new(struct tn_domain *d, tni_block block, uint32_t generation,
                   struct tni_mapping **ret_mapping)
{
    struct tni_backing b;
    struct tni_mapping made;
    int status = tni_backing_read(&d->segment, block, &b);
    if (status != 0)
        return status;
    struct tni_mapping *m = new_mapping();
    if (m == NULL)
        return TN_ERR_NO_MEMORY;
    if ((status = map_object(d, block, generation, &b, &made)) != 0) {
        free(m);
        return status;
    }
    enter_mapping(d, &made, m);
    *ret_mapping = m;
    return 0;
}

static int map_locked(struct tn_domain *d, tni_block block, uint32_t generation,
                      struct tni_mapping **ret_mapping)
{
    int status = ensure_table(d);
    if (status != 0)
        return status;
    struct tni_mapping *m = d->mappings[tni_block_index(block)];
    if (m == NULL || m->generation != generation)
        return map_new(d, block, generation, ret_mapping);
    if (m->address == NULL)
        return tni_fail(TN_ERR_NOT_FOUND, "this forked child lost the storage of block %x",
                        block.id);
    m->refs++;
    *ret_mapping = m;
    return 0;
}

int tni_backing_map(struct tn_domain *d, tni_block block, uint32_t generation,
                    struct tni_mapping **ret_mapping)
{
    if (d->depot != NULL)
        d->depot->catch_up(d);
    lock(d);
    int status = name_shortage(map_locked(d, block, generation, ret_mapping));
    unlock(d);
    return status;
}

/* ---- descriptors ------------------------------------------------------------------------- */

/* The block may be another's by now: a tensor may outlive the domain that it was made in. */
static int check_same(const struct tni_mapping *m, tni_block block, int fd)
{
    struct tni_os_memory memory;
    int status =
        m->path != NULL ? tni_os_shm_stat(fd, &memory) : tni_os_memory_stat(fd, &memory);
    if (status == 0 && memory.inode != m->inode)
        status = tni_fail(TN_ERR_NOT_FOUND, "the descriptor of block %x is another storage's",
                          block.id);
    return status;
}

static int open_any(struct tn_domain *d, struct tni_mapping *m, tni_block block, int *ret_fd)
{
    bool is_deposited;
    if (is_ours(m))
        return tni_os_duplicate(m->fd, ret_fd);
    int fd, status = m->path != NULL
                         ? tni_os_shm_open(m->path, &fd)
                         : find_memory(d, block, m->generation, m->inode, &fd, &is_deposited);
    if (status != 0)
        return status;
    if ((status = check_same(m, block, fd)) != 0)
        tni_os_close(fd);
    else
        *ret_fd = fd;
    return status;
}

int tni_backing_open(struct tn_domain *d, struct tni_mapping *m, tni_block block,
                     bool read_only, int *ret_fd)
{
    int fd;
    lock(d);
    int status = name_shortage(open_any(d, m, block, &fd));
    unlock(d);
    if (status != 0 || !read_only) {
        if (status == 0)
            *ret_fd = fd;
        return status;
    }
    status = tni_os_memory_reopen(fd, true, ret_fd);
    tni_os_close(fd);
    return status;
}

/* @return whether to go on: a storage that has ended meanwhile is no reason not to */
static bool deposit_one(struct tn_domain *d, struct tni_mapping *m)
{
    if (!is_ours(m))
        return true;
    int status =
        d->depot->put(d, tni_block_make(TNI_BACKING_CLASS, m->index), m->generation, m->fd);
    m->is_deposited = status == 0;
    return status == 0 || status == TN_ERR_STALE;
}

void tni_backing_deposit_again(struct tn_domain *d)
{
    lock(d);
    uint32_t limit = d->kept_fds > 0 ? tni_frontier(&d->segment, TNI_BACKING_CLASS) : 0;
    bool goes_on = d->depot != NULL;
    for (struct tni_mapping *m = d->parked; goes_on && m != NULL; m = m->next)
        goes_on = deposit_one(d, m);
    sweep_parked(d, false);
    for (uint32_t i = 0; goes_on && d->mappings != NULL && i < limit; i++) {
        struct tni_mapping *m = d->mappings[i];
        if (m == NULL)
            continue;
        goes_on = deposit_one(d, m);
        if (m->is_deposited && d->kept_fds > KEPT && !(m->is_write_once && !m->is_read_only))
            close_kept(d, m);
    }
    unlock(d);
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
        __atomic_store_n(&header_of(&m)->holders[0], 0, __ATOMIC_SEQ_CST);
        TNI_KILL_POINT("backing_let_go");
        is_held = tni_store_is_held(header_of(&m));
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

/* What we were the last to have, we are the last to close. */
static void unpark(struct tn_domain *d, tni_block block)
{
    lock(d);
    for (struct tni_mapping **at = &d->parked; *at != NULL;) {
        struct tni_mapping *m = *at;
        if (m->index != tni_block_index(block) || is_wanted(d, m)) {
            at = &m->next;
            continue;
        }
        *at = m->next;
        d->parked_count--;
        discard_mapping(d, m);
    }
    unlock(d);
}

void tni_backing_end(struct tn_domain *d, tni_block block, uint32_t generation)
{
    struct tni_backing b;
    uint32_t word = copy_backing(backing_at(&d->segment, block), &b);
    if (word == 0 || (word ^ strategy_word(0, generation)) >> STRATEGY_BITS != 0)
        return; /* there is none, or I5: somebody else has done it */
    int status = check_backing(&d->segment, block, &b);
    if (status != 0)
        tni_log(TNI_LOG_ERROR, "an object was left: %s", tn_error_detail());
    else if (b.path[0] != 0)
        end_file(&b);
    TNI_KILL_POINT("backing_ended");
    /* pairs with the acquire fence in copy_backing() */
    atomic_compare_exchange_strong(&backing_at(&d->segment, block)->strategy, &word,
                                   TN_STRATEGY_DEFAULT);
    TNI_KILL_POINT("backing_cleared");
    if (status != 0 || b.path[0] != 0)
        return;
    unpark(d, block);
    if (d->depot != NULL)
        d->depot->ring(d);
}

/* ---- a domain's private state ------------------------------------------------------------ */

/*
 * What only the parent may write is mapped anew, at the same place, as everybody else has it.
 * If that fails the child must not have it at all, and its use is a fault.
 */
static void map_as_child(struct tn_domain *d)
{
    uint32_t limit = d->mappings != NULL ? tni_frontier(&d->segment, TNI_BACKING_CLASS) : 0;
    for (uint32_t i = 0; i < limit; i++) {
        struct tni_mapping *m = d->mappings[i];
        if (m == NULL || !m->is_write_once || m->is_read_only)
            continue;
        if (!is_ours(m) || tni_os_map_over(m->fd, m->address, m->object_bytes, true) != 0) {
            tni_os_unmap(m->address, m->object_bytes);
            m->address = NULL; /* others may map something there: it is not ours to unmap */
            tni_log(TNI_LOG_ERROR, "a forked child lost a storage: %s", tn_error_detail());
        }
        m->is_read_only = true;
    }
}

void tni_backing_init(struct tn_domain *d)
{
    tni_process_hook(d, &(struct tni_fork_hooks){.child = map_as_child});
}
