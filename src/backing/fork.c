/* SPDX-License-Identifier: Apache-2.0 */
/* fork: what fork() and the end of a domain do with this process's mappings. */
#include "backing/mapping.h"

/*
 * Only the maker of a write-once storage may write it, so map the storage read-only in a forked
 * child, at the same address. If that fails, unmap it: then the child gets SIGSEGV if it uses
 * the storage.
 */
TNI_AROUND_FORK static void map_read_only(struct tni_mapping *m)
{
    if (!m->is_write_once || m->is_read_only)
        return;
    m->is_read_only = true;
    if (tni_mapping_is_on_device(m)) /* which the child cannot use */
        return;
    if (!tni_mapping_has_descriptor(m) ||
        tni_os_map_over(m->fd, m->address, m->object_bytes, true) != 0) {
        tni_os_unmap(m->address, m->object_bytes);
        m->address = NULL; /* the range must not be unmapped again: it may be reused */
        tni_log(TNI_LOG_ERROR, "a forked child lost a storage: %s", tn_error_detail());
    }
}

/*
 * In a forked child: unmap the storages to which the child has no reference. Another thread of
 * the parent was making or mapping them. Their mappings would keep the memory until the child
 * ends.
 */
TNI_AROUND_FORK static void map_as_child(struct tn_domain *d)
{
    for (uint32_t i = 0; i < tni_backing_part(d)->mappings_limit; i++) {
        struct tni_mapping *m = tni_backing_part(d)->mappings[i];
        if (m == NULL)
            continue;
        m->is_in_pieces = false; /* only the parent can export them again */
        if (m->is_slab) {        /* the child cannot use it; its tensors only pass it on */
            tni_mapping_close_kept(d, m);
            continue;
        }
        uint32_t at =
            tni_block_position(&d->segment.geometry, tni_block_make(TNI_BACKING_CLASS, i));
        if (atomic_load_explicit(&d->local[at], memory_order_relaxed) == 0)
            tni_mapping_discard_in_child(d, m);
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
