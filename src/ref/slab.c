/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slab: slabs get spans and lose them. See ref.c and alloc/slab.c for the invariants.
 *
 * The first desc of a span names its slab: a record, which owns one reference to the slab's
 * block. A death between the two steps of a change leaves the count of the slab one too high,
 * and the slab announced.
 */
#include "ref/counts.h"

static _Atomic uint64_t *record_of(const struct tn_domain *d, tni_block first)
{
    return &tni_desc_at(&d->segment, first)->committed;
}

int tni_ref_add_slab(struct tn_domain *d, struct tni_thread *thread, tni_block slab,
                     uint32_t class_id)
{
    const struct tni_class_geometry *c = &d->segment.geometry.classes[class_id];
    tni_announce_fence(thread, slab);
    int status = tni_ref_lend(d, slab, true);
    for (uint32_t i = 0; status == 0 && i < c->capacity; i += c->span) {
        tni_block first = tni_block_make(class_id, i);
        uint64_t expected = 0;
        /* Before the record: a recount looks only at spans below the frontier. */
        tni_raise_limit(&tni_class_at(&d->segment, class_id)->frontier, i + c->span);
        if (!atomic_compare_exchange_strong(record_of(d, first), &expected, slab.id))
            continue;
        TNI_KILL_POINT("slab_recorded");
        tni_slab_publish(d, first, tni_slab_usable(&d->segment, slab, class_id));
        TNI_KILL_POINT("slab_published");
        tni_announce_clear(thread);
        return 0;
    }
    if (status == 0) {
        tni_ref_adopt(d, thread, slab); /* clears the announce */
        status = tni_fail(TN_ERR_FULL, "all %u slabs of blocks of %llu bytes are in use",
                          c->capacity / c->span, (unsigned long long)c->size_bytes);
    } else {
        tni_announce_clear(thread);
    }
    return status;
}

/* Un-record the slab of a span of which this thread has taken every block. @return its bytes */
static uint64_t end_slab(struct tn_domain *d, struct tni_thread *thread, tni_block first)
{
    tni_block slab = tni_slab_of(&d->segment, first);
    if (slab.id == 0)
        return 0; /* another thread was faster */
    if (tni_word_state(atomic_load(tni_word_at(&d->segment, slab))) != TNI_BLOCK_ALLOC)
        return 0; /* a damaged record: the audit finds it */
    const struct tni_backing *b = tni_payload_look(&d->segment, slab);
    uint64_t bytes = TNI_LOOK(b->object_bytes);
    atomic_store(&thread->announce->outer, slab.id);
    atomic_store(record_of(d, first), 0);
    TNI_KILL_POINT("slab_unrecorded");
    bool is_freed = tni_count_decrement(d, thread, slab);
    atomic_store(&thread->announce->outer, 0);
    if (!is_freed)
        return 0; /* a process pins it for a moment, and ends it */
    tni_alloc_publish(d, slab);
    return bytes;
}

static uint64_t trim_span(struct tn_domain *d, struct tni_thread *thread, tni_block first)
{
    uint32_t span = d->segment.geometry.classes[tni_block_class(first)].span;
    uint64_t bytes = 0;
    tni_announce(thread, first, span);
    if (tni_alloc_take_span(d, first, span)) {
        TNI_KILL_POINT("slab_span_taken");
        bytes = end_slab(d, thread, first);
        tni_alloc_untake_span(d, first, span);
    }
    tni_announce_clear(thread);
    atomic_store_explicit(&thread->announce->span, 1, memory_order_relaxed);
    return bytes;
}

uint64_t tni_ref_trim_slabs(struct tn_domain *d, struct tni_thread *thread,
                            const struct tni_device_name *device, uint64_t enough)
{
    const struct tni_geometry *g = &d->segment.geometry;
    uint64_t sum = 0;
    for (uint32_t c = g->host_classes; c < g->class_count; c++) {
        uint32_t frontier = tni_frontier(&d->segment, c);
        for (uint32_t i = 0; i < frontier && sum < enough; i += g->classes[c].span) {
            tni_block first = tni_block_make(c, i), slab = tni_slab_of(&d->segment, first);
            if (slab.id != 0 && (device == NULL || tni_slab_is_on(&d->segment, slab, device)) &&
                tni_slab_is_idle(d, first))
                sum += trim_span(d, thread, first);
        }
    }
    if (sum > 0)
        tni_alloc_wake(d);
    return sum;
}

/* ---- by age ------------------------------------------------------------------------------ */

/* The sum of a span's words. If any word changes, the sum changes: versions only rise. */
static uint64_t sum_words(const struct tn_domain *d, tni_block first)
{
    uint32_t span = d->segment.geometry.classes[tni_block_class(first)].span;
    uint64_t sum = 1; /* not 0, which stands for a span that was not looked at */
    for (uint32_t i = 0; i < span; i++)
        sum += atomic_load_explicit(tni_word_at(&d->segment, (tni_block){first.id + i}),
                                    memory_order_relaxed);
    return sum;
}

static void trim_if_rested(struct tn_domain *d, struct tni_thread *thread, tni_block first)
{
    const struct tni_class_geometry *c = &d->segment.geometry.classes[tni_block_class(first)];
    uint64_t *seen = &tni_ref_part(d)->rested[c->base + tni_block_index(first) / c->span];
    bool is_idle = tni_slab_of(&d->segment, first).id != 0 && tni_slab_is_idle(d, first);
    uint64_t sum = is_idle ? sum_words(d, first) : 0;
    if (is_idle && *seen == sum)
        trim_span(d, thread, first);
    *seen = sum;
}

/* Begin a scan, if it is due and there is something to scan. */
static bool begin_scan(struct tn_domain *d)
{
    const struct tni_geometry *g = &d->segment.geometry;
    uint64_t now_ns = tni_os_now_ns(), due_ns = atomic_load(&tni_ref_part(d)->rested_ns);
    bool has_any = false;
    for (uint32_t c = g->host_classes; c < g->class_count; c++)
        has_any |= tni_frontier(&d->segment, c) > 0;
    if (!has_any || now_ns < due_ns ||
        !atomic_compare_exchange_strong(&tni_ref_part(d)->rested_ns, &due_ns,
                                        now_ns + TNI_IDLE_NS))
        return false;
    void *table = tni_ref_part(d)->rested;
    if (table == NULL && tni_os_map_private((uint64_t)g->total_blocks * 8, &table) != 0)
        return false;
    tni_ref_part(d)->rested = table;
    return true;
}

void tni_ref_trim_idle_slabs(struct tn_domain *d)
{
    const struct tni_geometry *g = &d->segment.geometry;
    if (!begin_scan(d))
        return;
    struct tni_thread *thread = tni_thread_enter(d);
    for (uint32_t c = g->host_classes; c < g->class_count; c++) {
        uint32_t frontier = tni_frontier(&d->segment, c);
        for (uint32_t i = 0; i < frontier; i += g->classes[c].span)
            trim_if_rested(d, thread, tni_block_make(c, i));
    }
    tni_thread_leave(thread);
}
