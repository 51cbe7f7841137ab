/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table: the mappings of this process, by block, and the descriptors that it keeps.
 *
 * I2  mappings[i] is the newest mapping that this process has of block i; NULL: it has none. A
 *     mapping lives while its `refs` is not 0. It may live longer than this process holds the
 *     block: a push gives its reference to the block away before it unmaps, and an import maps
 *     before it has a reference. So a mapping of a former generation may live on outside of the
 *     table.
 * I4  A process keeps the descriptor of a mapping if tenond has no copy. It also keeps up to 64
 *     other descriptors (or an eighth of the process's limit), in case tenond is killed, and
 *     the descriptor of each write-once storage that it made, because a forked child must map
 *     the storage again.
 * I6  A mapping may end while other records, such as a slot of a queue or a ticket, name its
 *     storage. If tenond has no copy of the descriptor then, the descriptor is parked: it stays
 *     open, so that other processes find it in this process. It is closed once no record names
 *     the storage, or once a new tenond has a copy. If the storage ends, a parked descriptor
 *     keeps the storage's memory until the next sweep.
 *
 * Table and descriptors are private, are protected by one lock, and end with the process.
 */
#include <stdlib.h>

#include "backing/mapping.h"

enum { KEPT = 64, PARKED = 16 };

void tni_mappings_lock(struct tn_domain *d)
{
    tni_mutex_lock(&tni_backing_part(d)->mappings_lock);
}

void tni_mappings_unlock(struct tn_domain *d)
{
    tni_mutex_unlock(&tni_backing_part(d)->mappings_lock);
}

bool tni_mapping_has_descriptor(const struct tni_mapping *m)
{
    uint64_t inode, device;
    return m->fd >= 0 && tni_os_identify(m->fd, &inode, &device) == 0 && inode == m->inode;
}

/*
 * Close the descriptor of a mapping. The program may have closed this descriptor by mistake.
 * Then its number may belong to a file of the program by now, and must not be closed.
 */
void tni_mapping_close_kept(struct tn_domain *d, struct tni_mapping *m)
{
    if (m->fd < 0)
        return;
    if (tni_mapping_has_descriptor(m))
        tni_os_close(m->fd);
    m->fd = -1;
    tni_backing_part(d)->kept_fds--;
}

int tni_mappings_ensure(struct tn_domain *d)
{
    uint64_t bytes = d->segment.geometry.classes[TNI_BACKING_CLASS].capacity *
                     sizeof *tni_backing_part(d)->mappings;
    void *table;
    if (tni_backing_part(d)->mappings != NULL)
        return 0;
    int status = tni_os_map_private(bytes, &table);
    if (status != 0)
        return status;
    tni_backing_part(d)->kept_limit =
        (uint32_t)TNI_MIN(tni_os_raise_descriptor_limit() / 8, (uint64_t)KEPT);
    tni_backing_part(d)->mappings = table;
    tni_backing_part(d)->mappings_bytes = bytes;
    return 0;
}

/* Keep the descriptor of a mapping, or close it (I4). */
static void keep_or_close(struct tn_domain *d, struct tni_mapping *m, int fd, bool is_deposited)
{
    m->is_deposited = is_deposited;
    bool is_needed = !is_deposited ||
                     tni_backing_part(d)->kept_fds < tni_backing_part(d)->kept_limit ||
                     (m->is_write_once && !m->is_read_only && !tni_mapping_is_on_device(m));
    if (is_needed) {
        m->fd = fd;
        tni_backing_part(d)->kept_fds++;
    } else {
        tni_os_close(fd);
    }
}

void tni_mapping_enter(struct tn_domain *d, struct tni_mapping *m, int fd, bool is_deposited)
{
    struct tni_mapping *former = tni_backing_part(d)->mappings[m->index];
    if (former != NULL && former->refs == 0) /* a slab that another process has ended */
        tni_mapping_end(d, former);
    if (fd >= 0)
        keep_or_close(d, m, fd, is_deposited);
    tni_backing_part(d)->mappings[m->index] = m;
    tni_backing_part(d)->mappings_limit =
        TNI_MAX(tni_backing_part(d)->mappings_limit, m->index + 1);
}

static void discard_mapping(struct tn_domain *d, struct tni_mapping *m)
{
    tni_mapping_close_kept(d, m);
    free(m->path);
    free(m);
}

/* The count of a block, less this process's own hold, is the number of other records (I6). */
bool tni_mapping_is_named_elsewhere(const struct tn_domain *d, const struct tni_mapping *m)
{
    const struct tni_segment *s = &d->segment;
    tni_block block = tni_block_make(TNI_BACKING_CLASS, m->index);
    uint32_t at = tni_block_position(&s->geometry, block);
    uint32_t word = atomic_load(&tni_backing_at(s, block)->strategy);
    if (!tni_strategy_is_of(word, m->generation))
        return false;
    bool is_ours = d->seat != TNI_NO_SEAT &&
                   (atomic_load(tni_row_at(s, d->seat, at)) >> (at % 64) & 1) != 0;
    return tni_word_count(atomic_load(tni_word_at(s, block))) > is_ours;
}

void tni_mappings_sweep_parked(struct tn_domain *d, bool all)
{
    for (struct tni_mapping **at = &tni_backing_part(d)->parked; *at != NULL;) {
        struct tni_mapping *m = *at;
        if (!all && !m->is_deposited && tni_mapping_is_named_elsewhere(d, m)) {
            at = &m->next;
            continue;
        }
        *at = m->next;
        tni_backing_part(d)->parked_count--;
        discard_mapping(d, m);
    }
    tni_backing_part(d)->parked_limit =
        2 * tni_backing_part(d)->parked_count + PARKED; /* so that sweeps stay rare */
}

static void park(struct tn_domain *d, struct tni_mapping *m)
{
    m->address = NULL;
    m->next = tni_backing_part(d)->parked;
    tni_backing_part(d)->parked = m;
    if (++tni_backing_part(d)->parked_count > tni_backing_part(d)->parked_limit)
        tni_mappings_sweep_parked(d, false);
}

/* Whether a descriptor of this storage is parked: the storage was mapped again afterwards. */
static bool is_parked(const struct tn_domain *d, const struct tni_mapping *m)
{
    for (const struct tni_mapping *p = tni_backing_part(d)->parked; p != NULL; p = p->next)
        if (p->index == m->index && p->generation == m->generation &&
            tni_mapping_has_descriptor(p))
            return true;
    return false;
}

void tni_mapping_unmap_object(const struct tni_mapping *m)
{
    const struct tni_memory_kind *kind = tni_memory_kind(m->memory.device.type);
    if (m->address == NULL || m->is_foreign)
        return;
    if (m->opened != NULL)
        m->opened->refs--; /* opened.c, I10 */
    else if (tni_mapping_is_on_device(m))
        kind->unmap(kind, &m->memory);
    else
        tni_os_unmap(m->address, m->object_bytes);
}

void tni_mapping_end(struct tn_domain *d, struct tni_mapping *m)
{
    if (tni_backing_part(d)->mappings[m->index] == m)
        tni_backing_part(d)->mappings[m->index] = NULL;
    tni_mapping_unmap_object(m);
    if (m->fd >= 0 && !m->is_deposited && !d->is_closed &&
        tni_mapping_is_named_elsewhere(d, m) && !is_parked(d, m))
        park(d, m);
    else
        discard_mapping(d, m);
}

/*
 * Does not call free(): a thread of the parent may have had the lock of malloc() at the fork,
 * and no thread releases that lock in the child. Memory of a device is not mapped in the child.
 */
TNI_AROUND_FORK void tni_mapping_discard_in_child(struct tn_domain *d, struct tni_mapping *m)
{
    tni_backing_part(d)->mappings[m->index] = NULL;
    tni_mapping_close_kept(d, m);
    if (!tni_mapping_is_on_device(m))
        tni_os_unmap(m->address, m->object_bytes);
}

void tni_backing_sweep(struct tn_domain *d)
{
    tni_mappings_lock(d);
    tni_mappings_sweep_parked(d, false);
    tni_mappings_unlock(d);
}

struct tni_mapping *tni_mapping_new(void)
{
    struct tni_mapping *m = calloc(1, sizeof *m);
    if (m == NULL)
        tni_fail(TN_ERR_NO_MEMORY, "no private memory for a mapping");
    return m;
}

void tni_backing_unmap(struct tn_domain *d, struct tni_mapping *m)
{
    tni_mappings_lock(d);
    if (--m->refs == 0 && !tni_mapping_is_idle_slab(d, m))
        tni_mapping_end(d, m);
    tni_mappings_unlock(d);
}

void tni_backing_ref(struct tn_domain *d, struct tni_mapping *m)
{
    tni_mappings_lock(d);
    m->refs++;
    tni_mappings_unlock(d);
}

bool tni_mapping_is_idle_slab(const struct tn_domain *d, const struct tni_mapping *m)
{
    tni_block block = tni_block_make(TNI_BACKING_CLASS, m->index);
    return m->is_slab && !d->is_closed && tni_backing_part(d)->mappings[m->index] == m &&
           tni_strategy_is_of(atomic_load(&tni_backing_at(&d->segment, block)->strategy),
                              m->generation);
}

static bool end_slabs(struct tn_domain *d, bool all)
{
    bool has_ended = false;
    for (uint32_t i = 0;
         tni_backing_part(d)->mappings != NULL && i < tni_backing_part(d)->mappings_limit;
         i++) {
        struct tni_mapping *m = tni_backing_part(d)->mappings[i];
        if (m == NULL || !m->is_slab || m->refs != 0 ||
            (!all && tni_mapping_is_idle_slab(d, m)))
            continue;
        tni_mapping_end(d, m);
        has_ended = true;
    }
    return has_ended;
}

bool tni_backing_sweep_slabs(struct tn_domain *d)
{
    uint64_t ended = atomic_load(&d->segment.header->slabs_ended);
    if (TNI_LIKELY(atomic_load(&tni_backing_part(d)->slabs_seen) == ended))
        return false;
    tni_mappings_lock(d);
    atomic_store(&tni_backing_part(d)->slabs_seen, ended);
    bool has_ended = end_slabs(d, false);
    tni_mappings_unlock(d);
    return has_ended;
}

void tni_mappings_end_slabs(struct tn_domain *d) { end_slabs(d, true); }

void tni_mappings_unpark(struct tn_domain *d, tni_block block)
{
    tni_mappings_lock(d);
    for (struct tni_mapping **at = &tni_backing_part(d)->parked; *at != NULL;) {
        struct tni_mapping *m = *at;
        if (m->index != tni_block_index(block) || tni_mapping_is_named_elsewhere(d, m)) {
            at = &m->next;
            continue;
        }
        *at = m->next;
        tni_backing_part(d)->parked_count--;
        discard_mapping(d, m);
    }
    tni_mappings_unlock(d);
}
