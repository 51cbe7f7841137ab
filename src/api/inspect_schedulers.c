/* SPDX-License-Identifier: Apache-2.0 */
/* inspect_schedulers: what the schedulers do that members show. */
#include "api/inspect.h"

#define GET(field)    atomic_load_explicit(&(field), memory_order_relaxed)
#define AMOUNT(units) ((double)(units) / TNI_SCHEDULER_UNIT)

static void read_resource(const struct tni_scheduler_resource *shown, tn_resource_info *ret)
{
    tni_text_copy(ret->name, sizeof ret->name, shown->name, sizeof shown->name);
    ret->total = AMOUNT(GET(shown->total));
    ret->free = AMOUNT(GET(shown->free));
    ret->busy_ns = (double)GET(shown->busy_ns);
    ret->waiting = GET(shown->waiting);
}

static void read_once(const struct tni_scheduler *shown, tn_scheduler_entry *ret)
{
    ret->changed_ns = GET(shown->changed_ns);
    ret->info = (tn_sched_info){.struct_size = sizeof ret->info,
                                .tasks = GET(shown->tasks),
                                .ended = GET(shown->ended),
                                .ready = GET(shown->ready),
                                .running = GET(shown->running),
                                .threads = GET(shown->threads),
                                .resource_count = GET(shown->resource_count),
                                .moved_bytes = GET(shown->moved_bytes),
                                .evicted_bytes = GET(shown->evicted_bytes),
                                .card_bytes = GET(shown->card_bytes),
                                .card_capacity = GET(shown->card_capacity)};
    ret->info.resource_count =
        TNI_MIN(ret->info.resource_count, TNI_COUNT(ret->info.resources));
    for (uint32_t i = 0; i < ret->info.resource_count; i++)
        read_resource(&shown->resources[i], &ret->info.resources[i]);
}

/* Read numbers of one moment. If the process stopped or died while it wrote, they are of two.
 */
static void read_numbers(const struct tni_scheduler *shown, tn_scheduler_entry *ret)
{
    enum { TRIES = 100 };
    for (uint32_t i = 0; i < TRIES; i++) {
        /* This acquire pairs with the release in tni_show_write(). */
        uint32_t version = atomic_load_explicit(&shown->version, memory_order_acquire);
        read_once(shown, ret);
        atomic_thread_fence(memory_order_acquire);
        if (version % 2 == 0 && GET(shown->version) == version)
            return;
    }
}

/* @return whether the block has a scheduler of a process that is still there */
static bool read_scheduler(const struct tni_segment *s, tni_block block, uint64_t now_ns,
                           tn_scheduler_entry *ret)
{
    uint64_t word = atomic_load(tni_word_at(s, block));
    const struct tni_desc *desc = tni_desc_at(s, block);
    uint32_t seat = TNI_LOOK(desc->creator_seat);
    if (tni_word_state(word) != TNI_BLOCK_ALLOC || TNI_LOOK(desc->kind) != TNI_KIND_SCHEDULER ||
        seat >= tni_seat_limit(s) || !tni_geometry_has_payload(&s->geometry, block.id) ||
        !tni_inspect_has_memory(s, block))
        return false;
    const struct tni_scheduler *shown = tni_payload_at(s, block);
    /* This acquire pairs with the release in tni_show_begin(). */
    if (atomic_load_explicit(&shown->made_for, memory_order_acquire) !=
        TNI_LOOK(desc->generation))
        return false;
    *ret = (tn_scheduler_entry){
        .block = block.id, .seat = seat, .pid = (int32_t)TNI_LOOK(desc->creator_pid)};
    tni_text_copy(ret->name, sizeof ret->name, shown->name, sizeof shown->name);
    read_numbers(shown, ret);
    ret->changed_ns = tni_inspect_age(now_ns, ret->changed_ns);
    return ret->pid == tni_inspect_seat_pid(s, seat) &&
           atomic_load(tni_word_at(s, block)) == word;
}

int tn_inspect_schedulers(tn_inspector *inspector, tn_scheduler_entry_fn *each, void *context)
{
    if (inspector == NULL || each == NULL)
        return tni_fail_null(inspector == NULL ? "the inspector" : "each");
    const struct tni_segment *s = &inspector->segment;
    uint64_t now_ns = tni_os_shared_ns();
    tn_scheduler_entry entry;
    int stop = 0;
    for (uint32_t c = TNI_SMALL_CLASS; c < s->geometry.host_classes && stop == 0; c++) {
        uint32_t frontier = s->geometry.classes[c].size_bytes < sizeof(struct tni_scheduler)
                                ? 0
                                : tni_frontier(s, c);
        for (uint32_t i = 0; i < frontier && stop == 0; i++)
            if (read_scheduler(s, tni_block_make(c, i), now_ns, &entry))
                stop = each(&entry, context);
    }
    return stop;
}
