/* SPDX-License-Identifier: Apache-2.0 */
/*
 * show: writes what a scheduler does into a domain, where inspectors read it
 * (api/inspect_schedulers.c).
 *
 * Nouns: shown (a scheduler that a domain shows: this process's end of it), record (struct
 * tni_scheduler, the only content of a block).
 * I1  One thread at a time writes a record: the room above has a lock.
 * I2  A write has a thread record of the domain, and looks whether this process is a member. So
 *     no block is written that the process no longer holds.
 * I3  The block stays unfinished, so a forked child, which has no threads of the scheduler,
 *     gets no hold of it.
 *
 * Callers: the room sched. Death: the reaper releases the hold of the dead process, and so the
 * block. It looks at no number of the record.
 */
#include "show/show.h"

#include <stdlib.h>

#include "ref/ref.h"

struct tni_shown {
    struct tn_domain *domain;
    uint64_t who; /* domain->who of the process that made it */
    tni_block block;
};

static struct tni_scheduler *record_of(const struct tni_shown *shown)
{
    return tni_payload_at(&shown->domain->segment, shown->block);
}

static uint64_t units(double amount) { return (uint64_t)(amount * TNI_SCHEDULER_UNIT + 0.5); }

/* ---- numbers ----------------------------------------------------------------------------- */

static bool set_32(_Atomic uint32_t *field, uint32_t value)
{
    bool is_new = atomic_load_explicit(field, memory_order_relaxed) != value;
    atomic_store_explicit(field, value, memory_order_relaxed);
    return is_new;
}

static bool set_64(_Atomic uint64_t *field, uint64_t value)
{
    bool is_new = atomic_load_explicit(field, memory_order_relaxed) != value;
    atomic_store_explicit(field, value, memory_order_relaxed);
    return is_new;
}

/* @return whether a number is another than before */
static bool write_numbers(struct tni_scheduler *record, const tn_sched_info *info)
{
    bool is_new = set_64(&record->tasks, info->tasks);
    is_new |= set_64(&record->ended, info->ended);
    is_new |= set_32(&record->ready, info->ready);
    is_new |= set_32(&record->running, info->running);
    is_new |= set_32(&record->threads, info->threads);
    is_new |= set_64(&record->moved_bytes, info->moved_bytes);
    is_new |= set_64(&record->evicted_bytes, info->evicted_bytes);
    is_new |= set_64(&record->card_bytes, info->card_bytes);
    is_new |= set_64(&record->card_capacity, info->card_capacity);
    for (uint32_t i = 0; i < info->resource_count; i++) {
        struct tni_scheduler_resource *its = &record->resources[i];
        is_new |= set_64(&its->free, units(info->resources[i].free));
        is_new |= set_64(&its->busy_ns, (uint64_t)info->resources[i].busy_ns);
        is_new |= set_32(&its->waiting, info->resources[i].waiting);
    }
    return is_new;
}

void tni_show_write(struct tni_shown *shown, const tn_sched_info *info)
{
    struct tn_domain *domain = shown->domain;
    struct tni_thread *thread = tni_thread_enter(domain);
    if (tni_process_is_same_member(domain, shown->who)) { /* I2 */
        struct tni_scheduler *record = record_of(shown);
        uint32_t version = atomic_load_explicit(&record->version, memory_order_relaxed) & ~1u;
        atomic_store_explicit(&record->version, version + 1, memory_order_relaxed);
        atomic_thread_fence(memory_order_release);
        TNI_KILL_POINT("show_writing");
        if (write_numbers(record, info))
            set_64(&record->changed_ns, tni_os_now_ns() - domain->clock_ahead_ns);
        /* This release pairs with the acquire in read_numbers(). */
        atomic_store_explicit(&record->version, version + 2, memory_order_release);
    }
    tni_thread_leave(thread);
}

/* ---- beginning and ending ---------------------------------------------------------------- */

/* Write what does not change. */
static void fill(struct tni_scheduler *record, const char *name, const tn_sched_info *info)
{
    memset(record, 0, sizeof *record);
    if (name != NULL)
        memcpy(record->name, name, strlen(name));
    set_32(&record->resource_count, info->resource_count);
    for (uint32_t i = 0; i < info->resource_count; i++) {
        memcpy(record->resources[i].name, info->resources[i].name,
               sizeof record->resources[i].name);
        set_64(&record->resources[i].total, units(info->resources[i].total));
    }
}

int tni_show_begin(struct tn_domain *domain, const char *name, const tn_sched_info *info,
                   struct tni_shown **ret_shown)
{
    static const struct tni_block_about about = {.kind = TNI_KIND_SCHEDULER,
                                                 .is_unfinished = true};
    struct tni_new_block made;
    int status = tni_process_check(domain);
    if (status == 0 && name != NULL)
        status = tni_check_name("scheduler", name, TNI_SCHEDULER_NAME_BYTES - 1);
    if (status != 0)
        return status;
    struct tni_shown *shown = malloc(sizeof *shown);
    if (shown == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "there is no memory for a scheduler");
    status = tni_ref_alloc(domain, sizeof(struct tni_scheduler), &about, 0, &made);
    if (status != 0) {
        free(shown);
        return status;
    }
    *shown = (struct tni_shown){domain, domain->who, made.block};
    struct tni_scheduler *record = record_of(shown);
    fill(record, name, info);
    tni_show_write(shown, info);
    TNI_KILL_POINT("show_made");
    /* This release pairs with the acquire in read_scheduler(). */
    atomic_store_explicit(&record->made_for, tni_ref_generation(domain, made.block),
                          memory_order_release);
    *ret_shown = shown;
    return 0;
}

void tni_show_end(struct tni_shown *shown, bool is_own)
{
    if (shown == NULL)
        return;
    if (is_own) /* I3 */
        tni_ref_release(shown->domain, shown->block);
    free(shown);
}
