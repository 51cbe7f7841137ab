/* SPDX-License-Identifier: Apache-2.0 */
/* storage: how a storage gets its memory and gives it back. The invariants are in tensor.c. */
#include "tensor/storage.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGN_BYTES = 64, HUGE_FROM_BYTES = 4 << 20 };

/* Ask for huge pages. They make the first write, copying and freeing of large memory faster. */
static void advise_huge(void *memory, uint64_t size_bytes)
{
    uint64_t page_bytes = tni_os_page_bytes();
    uint8_t *start = (uint8_t *)memory + (-(uintptr_t)memory & (page_bytes - 1));
    uint64_t skipped = (uint64_t)(start - (uint8_t *)memory);
    tni_os_advise_huge(start, (size_bytes - skipped) & ~(page_bytes - 1));
}

/*
 * Whether nothing that this process has a device do reaches the memory any more: then another
 * process may get it. What tokens stand for is looked up; for what they do not, this waits.
 */
static bool is_idle(const struct tni_storage *s)
{
    bool is_unknown = atomic_load_explicit(&s->is_pinned, memory_order_relaxed) ||
                      (tni_storage_is_on_device(s) &&
                       atomic_load_explicit(&s->is_touched, memory_order_relaxed));
    return is_unknown ? tni_device_drain() == 0
                      : !tni_storage_has_work(s) || tni_storage_is_unused(s);
}

/* ---- storages that the device may still use ---------------------------------------------- */

/*
 * A device may still have work for a storage that the program has ended, and the driver does
 * not always let a program wait: not while it captures a graph. Then the memory stays this
 * process's until a later call finds that the work is done, or the process ends. `context` is
 * the next storage.
 */
static _Atomic(struct tni_storage *) unfinished;
/*
 * How many more storages to keep before all are looked at again: as many as were left the last
 * time, so that a storage is looked at a few times, however many there are.
 */
static _Atomic int32_t unfinished_credit;

static void keep_unfinished(struct tni_storage *s)
{
    struct tni_storage *next = atomic_load(&unfinished);
    do
        s->context = next;
    while (!atomic_compare_exchange_weak(&unfinished, &next, s));
}

static void end(struct tni_storage *s)
{
    if (TNI_UNLIKELY(atomic_load_explicit(&s->is_pinned, memory_order_relaxed)) &&
        tni_storage_unpin(s) != 0)
        tni_log(TNI_LOG_DEBUG, "memory stays registered: %s", tn_error_detail());
    if (TNI_UNLIKELY(s->mapping != NULL)) {
        tni_storage_forget_uses(s);
        tni_backing_unmap(s->domain, s->mapping); /* before the block can be reused */
    }
    struct tn_domain *d = s->domain;
    tni_block block = s->block;
    if (d == NULL && s->release != NULL)
        s->release(s->context);
    bool has_room = s->has_room;
    s = tni_storage_retire(s);
    /* `d` is not used after this: a closed domain may be unmapped with its last reference. */
    if (TNI_LIKELY(d != NULL && has_room && s != NULL && s->has_room)) {
        tni_ref_release_and_keep(d, block, &s->spare);
        return;
    }
    if (d != NULL)
        tni_ref_release(d, block);
    free(s);
}

void tni_tensor_end_unfinished(void)
{
    struct tni_storage *s =
        atomic_load(&unfinished) == NULL ? NULL : atomic_exchange(&unfinished, NULL);
    int32_t kept = 0;
    while (s != NULL) {
        struct tni_storage *next = s->context;
        s->context = NULL;
        if (is_idle(s)) {
            end(s);
        } else {
            keep_unfinished(s);
            kept++;
        }
        s = next;
    }
    atomic_store(&unfinished_credit, kept);
    tni_foreign_sweep();
}

bool tni_storage_await_unfinished(void)
{
    if (atomic_load(&unfinished) == NULL || tni_device_drain() != 0)
        return false;
    tni_tensor_end_unfinished();
    return true;
}

void tni_storage_unref(struct tni_storage *s)
{
    /*
     * The acquire pairs with the release of the other owners, whose writes must come before the
     * memory is freed. A sole owner needs no atomic read-modify-write.
     */
    if (atomic_load_explicit(&s->refs, memory_order_acquire) != 1 &&
        atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1)
        return;
    bool may_have_work =
        s->mapping != NULL || atomic_load_explicit(&s->is_pinned, memory_order_relaxed);
    if (TNI_UNLIKELY(may_have_work)) {
        if (atomic_load(&unfinished) != NULL && atomic_fetch_sub(&unfinished_credit, 1) <= 1)
            tni_tensor_end_unfinished();
        if (!is_idle(s)) {
            keep_unfinished(s);
            return;
        }
    }
    end(s);
    if (TNI_UNLIKELY(may_have_work))
        tni_foreign_sweep_soon();
}

int tni_storage_set_private(struct tni_storage *s, uint64_t size_bytes)
{
    /*
     * calloc() is faster than aligned_alloc() and memset(): it gets large memory from the
     * system, which has zeroed the memory already.
     */
    void *memory = size_bytes <= SIZE_MAX - ALIGN_BYTES
                       ? calloc(1, (size_t)size_bytes + ALIGN_BYTES - 1)
                       : NULL;
    if (memory == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "no private memory for a tensor of %llu bytes",
                        (unsigned long long)size_bytes);
    if (size_bytes >= HUGE_FROM_BYTES)
        advise_huge(memory, size_bytes);
    s->data = (uint8_t *)memory + (-(uintptr_t)memory & (ALIGN_BYTES - 1));
    s->size_bytes = size_bytes;
    s->release = free;
    s->context = memory;
    return 0;
}

void tni_storage_set_shared(struct tni_storage *s, struct tn_domain *domain, tni_block block,
                            uint64_t size_bytes)
{
    s->data = tni_payload_at(&domain->segment, block);
    s->size_bytes = size_bytes;
    s->block = block;
    s->domain = domain;
    s->release = NULL;
    s->context = NULL;
}

void tni_storage_set_mapped(struct tni_storage *s, struct tn_domain *domain, tni_block block,
                            struct tni_mapping *mapping)
{
    s->data = mapping->address + mapping->data_offset;
    s->size_bytes = mapping->data_bytes;
    s->block = block;
    s->domain = domain;
    s->mapping = mapping;
    s->release = NULL;
    s->context = NULL;
}

void tni_storage_set_on_slab(struct tni_storage *s, struct tn_domain *domain, tni_block block,
                             struct tni_mapping *mapping, uint64_t size_bytes)
{
    const struct tni_geometry *g = &domain->segment.geometry;
    uint64_t index = block.id - tni_block_leader(g, block).id;
    s->data = mapping->address + index * tni_block_bytes(g, block);
    s->size_bytes = size_bytes;
    s->block = block;
    s->domain = domain;
    s->mapping = mapping;
    s->release = NULL;
    s->context = NULL;
}

uint64_t tni_storage_bytes(const struct tni_storage *s)
{
    if (s->size_bytes != TNI_SIZE_IN_DESC)
        return s->size_bytes;
    const struct tni_segment *segment = &s->domain->segment;
    uint64_t stated = tni_desc_at(segment, s->block)->bytes;
    return TNI_MIN(stated, tni_block_bytes(&segment->geometry, s->block));
}
