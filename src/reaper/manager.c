/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manager: what every member does for its domain: leave it, reclaim dead members while it waits
 * (survive) or lacks room (relieve), and start a tenond when there is none.
 *
 * Callers: api, every room that sleeps, tenond. Death: the next member or tenond does it again.
 */
#include "reaper/manager.h"
#include "reaper/recount.h"
#include "store/store.h"

#define MS_NS UINT64_C(1000000)
/* ---- leave ------------------------------------------------------------------------------- */

static void publish_hints(struct tn_domain *d)
{
    for (uint32_t t = 0; t < TNI_THREADS; t++) {
        struct tni_thread *thread = &d->threads[t];
        tni_thread_take(thread);
        if (thread->has_cached)
            tni_alloc_flush(d, thread);
        tni_thread_leave(thread);
    }
}

/*
 * Others get the memory as soon as this process has left: no work that it gave its devices may
 * reach it then.
 */
static void end_device_work(struct tn_domain *d)
{
    const struct tni_backing_part *part = tni_backing_part(d);
    bool has_used =
        (part->used_devices[0] | part->used_devices[1]) != 0 || atomic_load(&part->has_pinned);
    bool is_done = !has_used || tni_device_drain() == 0;
    if (!is_done)
        tni_log(TNI_LOG_WARNING, "domain '%s' is left although a device may use its memory: %s",
                d->segment.name, tn_error_detail());
    else if (has_used)
        tni_tensor_end_unfinished(); /* before the next call waits for others: keep.c, I4 */
    tni_foreign_leave(d);
    tni_order_leave(d, is_done);
    if (has_used)
        tni_tensor_end_unfinished();
}

void tni_reaper_leave(struct tn_domain *d)
{
    bool is_member = d->seat != TNI_NO_SEAT;
    end_device_work(d);
    if (is_member) {
        tni_backing_hand_over(d);
        tni_process_begin_leave(d);
        TNI_KILL_POINT("leave_begun");
    }
    tni_object_fini(d);
    if (is_member) {
        TNI_KILL_POINT("leave_objects_closed");
        /* Never ended: no thread of this process may reclaim others while its seat goes. */
        for (uint32_t tries = 0; !tni_reclaim_begin(d); tries++)
            tni_os_back_off(tries);
        tni_ticket_reclaim_seat(d, d->who);
        publish_hints(d);
        TNI_KILL_POINT("leave_hints_published");
    }
    tni_ref_close(d);
    TNI_KILL_POINT("leave_holds_released");
    tni_depot_fini(d);
    tni_backing_fini(d);
    if (is_member) {
        tni_reclaim_release_claims(d, d->who);
        tni_alloc_wake(d);
    }
}

/* If no tenond manages a domain, its last member removes its files. */
static bool has_files_to_end(const struct tn_domain *d)
{
    return (d->segment.flags & TN_DOMAIN_NO_MANAGER) != 0 &&
           tni_frontier(&d->segment, TNI_BACKING_CLASS) > 0;
}

void tni_manager_leave(struct tn_domain *d)
{
    bool has_files = tni_process_has_seat(d) && has_files_to_end(d);
    if (has_files)
        tni_reaper_reclaim_all(d); /* so that dead members do not count as members below */
    tni_reaper_leave(d);
    tni_process_leave(d);
    if (has_files && tni_process_count(&d->segment) == 0) {
        tni_files_end_domain(&d->segment);
        /* And the files of other domains whose members were all killed. */
        (void)tni_files_collect(tni_manager_living, NULL, NULL);
    }
    tni_manager_ring(d);
}

/* ---- survive ----------------------------------------------------------------------------- */

/*
 * A member spends one part in SHARE of its time on the work of tenond if there is none, and one
 * in MANAGED_SHARE if a tenond lives.
 */
enum {
    LEAST_MS = 50,
    MOST_MS = 50, /* of one call: the caller has a deadline of its own */
    MANAGED_LEAST_MS = 1000,
    SHARE = 20,
    MANAGED_SHARE = 2000,
    RETRY_START_MS = 1000,
    RESTART_MS = 200 /* for a new tenond to listen */
};

/* Remove files of ended storages that a killed process still held. tenond does this, too. */
static void remove_released_files(struct tn_domain *d)
{
    enum { SHARE_OF_FILES = 100, FILES_LEAST_MS = 1000 };
    uint64_t begun_ns = tni_os_now_ns(), due_ns = atomic_load(&tni_reaper_part(d)->files_ns);
    if ((d->segment.flags & TN_DOMAIN_NO_MANAGER) == 0 || begun_ns < due_ns)
        return;
    (void)tni_files_let_go(&d->segment, false, NULL, NULL);
    uint64_t done_ns = tni_os_now_ns();
    uint64_t pause_ns =
        tni_pause_ns(done_ns - begun_ns, SHARE_OF_FILES, FILES_LEAST_MS * MS_NS);
    atomic_store(&tni_reaper_part(d)->files_ns, done_ns + pause_ns);
}

/*
 * Do what tenond does for a domain, as far as any member can.
 * @return how many seats, tickets and values of stores were reclaimed; negative: some dead
 * seats are left
 */
static int do_managers_work(struct tn_domain *d, uint64_t deadline_ns)
{
    tni_process_clear_idle(d);
    int reclaimed = tni_reaper_reclaim_until(d, deadline_ns);
    uint32_t ended = tni_ticket_expire_due(d) + tni_store_expire_due(d);
    tni_backing_sweep(d);
    tni_opened_sweep(d, false);
    remove_released_files(d);
    return reclaimed < 0 ? reclaimed : reclaimed + (int)ended;
}

/* Whether another process or thread is reclaiming, and will give back what dead seats had. */
static bool is_being_reclaimed(const struct tn_domain *d)
{
    const struct tni_segment *s = &d->segment;
    uint32_t seat = 0, limit = tni_seat_limit(s);
    if (atomic_load(&tni_reaper_part(d)->reaping) == d->who ||
        (atomic_load(&s->header->recount) != 0 && tni_recount_has_suspects(s)))
        return true;
    while (seat < limit &&
           tni_seat_state(atomic_load(&tni_seat_at(s, seat)->word)) != TNI_SEAT_REAPING)
        seat++;
    return seat < limit;
}

/* A number that rises with each reclaimed seat and each completed recount. */
static uint64_t reclaim_count(const struct tn_domain *d)
{
    const struct tni_header *h = d->segment.header;
    return atomic_load(&h->deaths) + atomic_load(&h->suspects_done);
}

/*
 * Called when a table or the memory is full: reclaim dead seats, and wait for others that
 * reclaim. If this finds nothing, it does nothing for REST times as long as it took, because a
 * program may ask for room as often as it likes.
 */
static bool relieve(struct tn_domain *d)
{
    enum { REST = 4 };
    uint64_t begun_ns = tni_os_now_ns(), deadline_ns = begun_ns + MOST_MS * MS_NS;
    if (d->is_closed || d->seat == TNI_NO_SEAT || begun_ns < atomic_load(&d->relieve_ns))
        return false;
    uint64_t before = reclaim_count(d);
    int reclaimed = do_managers_work(d, deadline_ns);
    for (uint32_t tries = 0; reclaimed <= 0 && reclaim_count(d) == before &&
                             is_being_reclaimed(d) && tni_os_now_ns() < deadline_ns;
         tries++) {
        tni_os_back_off(tries);
        reclaimed = tni_reaper_reclaim_until(d, deadline_ns);
    }
    bool has_found = reclaimed > 0 || reclaim_count(d) != before;
    uint64_t done_ns = tni_os_now_ns(), pause_ns = tni_pause_ns(done_ns - begun_ns, REST, 0);
    atomic_store(&d->relieve_ns, has_found ? 0 : done_ns + pause_ns);
    return true;
}

/* runtime is 0 if a tenond died as it gave the name up, and did not see that this process
 * joined. */
static bool is_ours(const struct tn_domain *d)
{
    uint32_t runtime = atomic_load(&d->segment.header->runtime);
    return runtime == 0 ? d->segment.name[0] != 0 : tni_manager_is_ours(runtime);
}

void tni_manager_survive(struct tn_domain *d)
{
    uint64_t begun_ns = tni_os_now_ns(), due_ns = atomic_load(&d->survive_ns);

    if (d->is_manager || d->is_closed || d->seat == TNI_NO_SEAT || begun_ns < due_ns ||
        !atomic_compare_exchange_strong(&d->survive_ns, &due_ns, begun_ns + LEAST_MS * MS_NS))
        return;
    tni_tensor_end_unfinished();
    if (tni_backing_sweep_slabs(d)) /* a call that waits does not see others end slabs */
        tni_alloc_wake(d);
    do_managers_work(d, begun_ns + MOST_MS * MS_NS);
    tni_folder_follow(d);
    bool is_managed = (d->segment.flags & TN_DOMAIN_NO_MANAGER) == 0;
    bool has_manager = is_managed && tni_manager_is_alive(&d->segment);
    uint64_t spent_ns = tni_os_now_ns() - begun_ns, pause_ns;

    if (!has_manager) {
        tni_alloc_trim_idle(d);
        tni_ref_trim_idle_slabs(d);
    }
    if (has_manager)
        pause_ns = tni_pause_ns(spent_ns, MANAGED_SHARE, MANAGED_LEAST_MS * MS_NS);
    else
        pause_ns = tni_pause_ns(spent_ns, SHARE, LEAST_MS * MS_NS);
    if (is_managed && !has_manager && is_ours(d)) {
        int status = tni_contact_replace(d);
        char label[TNI_LABEL_BYTES];
        if (status != 0)
            tni_log(TNI_LOG_WARNING, "domain %s has no tenond: %s",
                    tni_segment_label(&d->segment, label), tn_error_detail());
        pause_ns = TNI_MAX(pause_ns, (status != 0 ? RETRY_START_MS : RESTART_MS) * MS_NS);
    }
    atomic_store(&d->survive_ns, tni_os_now_ns() + pause_ns);
    if (has_manager)
        tni_depot_catch_up(d);
}

void tni_reaper_init(struct tn_domain *d)
{
    d->survive = tni_manager_survive;
    d->relieve = relieve;
    tni_folder_follow(d); /* from now on */
    tni_depot_init(d);
    tni_process_set_joined(tni_manager_ring);
}
