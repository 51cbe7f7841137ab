/* SPDX-License-Identifier: Apache-2.0 */
/* inspect_stat: sums over a domain, and its seats. */
#include <stdio.h>
#include <string.h>

#include "api/inspect.h"
#include "queue/queue.h"

/* ---- memory ------------------------------------------------------------------------------ */

static void add_class(const struct tni_segment *s, uint32_t class_id, tn_domain_stat *stat)
{
    uint32_t frontier = tni_frontier(s, class_id);
    for (uint32_t i = 0; i < frontier; i++) {
        tni_block block = tni_block_make(class_id, i);
        uint64_t word = atomic_load_explicit(tni_word_at(s, block), memory_order_relaxed);
        if (tni_word_state(word) == TNI_BLOCK_ALLOC) {
            stat->blocks_live++;
            if (!tni_inspect_is_on_device(s, block))
                stat->live_bytes += tni_inspect_block_bytes(s, block);
        } else if (!tni_class_is_device(&s->geometry, class_id)) {
            stat->free_bytes += tni_segment_committed(s, block);
        }
    }
}

/*
 * The kernel counts huge pages by mapping, so the member that has mapped most of the arena
 * knows most of them.
 */
static uint64_t huge_page_bytes(const struct tni_segment *s)
{
    uint64_t most = 0;
    uint32_t limit = tni_seat_limit(s);

    for (uint32_t seat = 0; seat < limit; seat++) {
        int32_t pid = tni_inspect_seat_pid(s, seat);
        if (pid != 0 && tni_process_is_here(s, seat)) {
            uint64_t bytes = tni_os_process_huge_bytes(pid, s->arena_inode);
            most = TNI_MAX(most, bytes);
        }
    }
    return most;
}

/* ---- tables ------------------------------------------------------------------------------ */

static uint32_t objects_used(const struct tni_segment *s)
{
    uint32_t used = 0, limit = tni_object_limit(s);
    for (uint32_t i = 0; i < limit; i++)
        used += tni_object_kind(atomic_load(&tni_object_at(s, i)->word)) != TNI_OBJECT_FREE;
    return used;
}

static uint32_t tickets_used(const struct tni_segment *s)
{
    uint32_t used = 0, limit = tni_ticket_limit(s);
    for (uint32_t i = 0; i < limit; i++)
        used += tni_ticket_is_live(tni_ticket_at(s, i));
    return used;
}

static int32_t manager_pid(const struct tni_segment *s)
{
    uint64_t who = atomic_load(&s->header->manager);
    if (!tni_process_who_runs(s, who))
        return 0;
    return tni_inspect_seat_pid(s, tni_who_seat(who));
}

int tn_inspect_stat(tn_inspector *inspector, tn_domain_stat *ret_stat)
{
    if (inspector == NULL)
        return tni_fail_null("the inspector");
    int status = tni_check_struct("tn_domain_stat", ret_stat, sizeof *ret_stat);
    if (status != 0)
        return status;
    const struct tni_segment *s = &inspector->segment;
    tn_domain_stat stat = {.watermark_bytes = atomic_load(&s->header->watermark_bytes),
                           .blocks_limit = s->geometry.blocks,
                           .objects = s->geometry.objects,
                           .tickets = s->geometry.tickets,
                           .layout_version = TNI_LAYOUT_VERSION};
    status = tni_os_memory_committed(s->control_fd, &stat.control_bytes);
    if (status != 0)
        return status;
    tni_inspect_domain_info(s, &stat.domain);
    for (uint32_t c = 1; c < s->geometry.class_count; c++)
        add_class(s, c, &stat);
    stat.outside_bytes = tni_inspect_outside_bytes(s, &stat.outside_count);
    stat.huge_page_bytes = huge_page_bytes(s);
    stat.objects_used = objects_used(s);
    stat.tickets_used = tickets_used(s);
    stat.manager_pid = manager_pid(s);
    stat.deaths = atomic_load(&s->header->deaths);
    stat.manager_starts = atomic_load(&s->header->manager_starts);
    stat.foreign_copies = atomic_load(&s->header->foreign_copies);
    stat.foreign_copied_bytes = atomic_load(&s->header->foreign_copied_bytes);
    tni_os_huge_page_policy(stat.huge_pages, sizeof stat.huge_pages);
    return tni_give_struct("tn_domain_stat", &stat, sizeof stat, ret_stat);
}

/* ---- seats ------------------------------------------------------------------------------- */

static void add_holds(const struct tni_segment *s, uint32_t seat, tn_seat_entry *info)
{
    for (uint32_t c = 1; c < s->geometry.class_count; c++) {
        uint32_t words = (tni_frontier(s, c) + 63) / 64;
        for (uint32_t w = 0; w < words; w++) {
            uint64_t bits =
                atomic_load_explicit(tni_row_at(s, seat, s->geometry.classes[c].base + w * 64),
                                     memory_order_relaxed);
            for (; bits != 0; bits &= bits - 1) {
                tni_block block = tni_block_make(c, w * 64 + tni_low_bit(bits));
                if (!tni_geometry_has_block(&s->geometry, block.id))
                    break; /* beyond the last block of the class: the audit reports it */
                info->blocks_held++;
                *(tni_inspect_is_on_device(s, block) ? &info->device_bytes_held
                                                     : &info->bytes_held) +=
                    tni_inspect_block_bytes(s, block);
            }
        }
    }
}

static const char *state_name(const struct tni_segment *s, uint32_t seat, uint64_t word)
{
    if (tni_seat_state(word) == TNI_SEAT_REAPING)
        return "reaping";
    int life = tni_process_seat_state(s, seat);
    if (life != TNI_OS_ALIVE)
        return life == TNI_OS_DEAD ? "dead" : "unknown";
    switch (tni_seat_state(word)) {
    case TNI_SEAT_JOINING:
        return "joining";
    case TNI_SEAT_ALIVE:
        return "alive";
    case TNI_SEAT_LEAVING:
        return "leaving";
    default:
        return "unknown";
    }
}

int tn_inspect_seats(tn_inspector *inspector, tn_seat_entry_fn *each, void *context)
{
    if (inspector == NULL || each == NULL)
        return tni_fail_null(inspector == NULL ? "the inspector" : "each");
    const struct tni_segment *s = &inspector->segment;
    uint32_t limit = tni_seat_limit(s);
    uint64_t now = tni_os_shared_ns();
    int stop = 0;

    for (uint32_t seat = 0; seat < limit && stop == 0; seat++) {
        const struct tni_seat *entry = tni_seat_at(s, seat);
        uint64_t word = atomic_load(&entry->word);
        if (tni_seat_state(word) == TNI_SEAT_FREE)
            continue;
        tn_seat_entry info = {.seat = seat,
                              .incarnation = tni_seat_incarnation(word),
                              .pid = tni_inspect_seat_pid(s, seat),
                              .is_manager =
                                  (atomic_load(&entry->flags) & TNI_SEAT_MANAGER) != 0,
                              .age_ns = tni_inspect_age(now, TNI_LOOK(entry->joined_ns))};
        snprintf(info.state, sizeof info.state, "%s", state_name(s, seat, word));
        tni_inspect_seat_command(s, seat, info.command, sizeof info.command);
        add_holds(s, seat, &info);
        stop = each(&info, context);
    }
    return stop;
}
