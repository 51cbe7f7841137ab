/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The audit of a round: all processes are parked and dead ones are reclaimed, so what the
 * ledger says must be what the domain has, to the last message, block, byte, file and
 * descriptor.
 */
#include "soak.h"

#include <stdlib.h>
#include <string.h>

#include "queue/ring.h"
#include "reaper/reaper.h"
#include "share/share.h"

enum { RECLAIM_S = 20, FIRST_SIGNALS = 2, MAX_TICKETS = 1 << 16 };
#define QUOTA_BYTES     ((uint64_t)SOAK_QUOTA_MIB << 20)
#define WATERMARK_BYTES (UINT64_C(4) << 20)

/* ---- dead processes are reclaimed -------------------------------------------------------- */

/* @return a seat that is taken, and whose process is dead; or TNI_NO_SEAT */
static uint32_t find_unreclaimed(void)
{
    const struct tni_segment *s = &me.domain->segment;
    for (uint32_t i = 0; i < s->geometry.seats; i++) {
        uint64_t word = atomic_load(&tni_seat_at(s, i)->word);
        if (tni_seat_state(word) == TNI_SEAT_FREE)
            continue;
        if (tni_seat_state(word) != TNI_SEAT_ALIVE ||
            tni_process_seat_state(s, i) != TNI_OS_ALIVE)
            return i;
    }
    return TNI_NO_SEAT;
}

static void reclaim_all(void)
{
    uint64_t deadline_ns = soak_now_ns() + RECLAIM_S * SOAK_S_NS;
    for (;;) {
        int status = tn_domain_reap(me.domain, NULL);
        if (status != 0 && status != TN_ERR_TIMED_OUT)
            soak_fail_status(SOAK_ON_AUDIT, "tn_domain_reap", status);
        uint32_t seat = find_unreclaimed();
        if (seat == TNI_NO_SEAT)
            return;
        soak_crew_collect();
        if (soak_now_ns() > deadline_ns) {
            uint64_t word = atomic_load(&tni_seat_at(&me.domain->segment, seat)->word);
            soak_fail(SOAK_ON_TABLES, "seat %u of pid %d is not reclaimed: word %#llx", seat,
                      (int)atomic_load(&tni_seat_at(&me.domain->segment, seat)->pid),
                      (unsigned long long)word);
        }
        soak_await_news();
    }
}

/* ---- tickets ----------------------------------------------------------------------------- */

static struct {
    tn_ticket_entry list[MAX_TICKETS];
    uint32_t count;
} live;

static int note_ticket(const tn_ticket_entry *ticket, void *context)
{
    (void)context;
    if (live.count == MAX_TICKETS)
        return 1;
    live.list[live.count++] = *ticket;
    return 0;
}

static int compare_tickets(const void *one, const void *other)
{
    uint64_t a = ((const tn_ticket_entry *)one)->id;
    uint64_t b = ((const tn_ticket_entry *)other)->id;
    return a < b ? -1 : a > b;
}

static void check_live(const struct soak_entry *entry, const tn_ticket_entry *ticket)
{
    uint32_t tries = atomic_load(&entry->tries), imports = atomic_load(&entry->imports);
    uint32_t least = tries < entry->uses ? entry->uses - tries : 0;
    uint32_t most = entry->uses - imports;
    if (atomic_load(&entry->revoked) != 0)
        soak_fail(SOAK_ON_TICKETS, "ticket %#llx was revoked, and lives",
                  (unsigned long long)ticket->id);
    if (ticket->uses_left < least || ticket->uses_left > most)
        soak_fail(
            SOAK_ON_TICKETS, "ticket %#llx has %u uses left; of %u, %u were tried, %u had",
            (unsigned long long)ticket->id, ticket->uses_left, entry->uses, tries, imports);
}

static bool must_live(const struct soak_entry *entry)
{
    bool ends = entry->earliest_end_ns != 0 &&
                soak_now_ns() + 100 * SOAK_MS_NS >= entry->earliest_end_ns;
    return !ends && atomic_load(&entry->revoking) == 0 &&
           atomic_load(&entry->tries) < entry->uses;
}

static void check_tickets(void)
{
    uint32_t known = 0;
    live.count = 0;
    if (tni_ticket_for_each(&me.domain->segment, note_ticket, NULL) != 0)
        soak_fail(SOAK_ON_TICKETS, "tickets cannot be listed");
    qsort(live.list, live.count, sizeof live.list[0], compare_tickets);
    uint32_t count = atomic_load(&soak->messages);
    for (uint32_t i = 0; i < count; i++) {
        struct soak_entry *entry = &soak->entries[i];
        if (atomic_load(&entry->ticket_state) != SOAK_T_EXPORTED)
            continue;
        tn_ticket_entry key = {.id = atomic_load(&entry->ticket)};
        const tn_ticket_entry *found =
            bsearch(&key, live.list, live.count, sizeof key, compare_tickets);
        if (found != NULL)
            check_live(entry, found);
        else if (must_live(entry))
            soak_fail(SOAK_ON_TICKETS, "ticket %#llx is gone: %u uses, %u tries, %u imports",
                      (unsigned long long)key.id, entry->uses, atomic_load(&entry->tries),
                      atomic_load(&entry->imports));
        known += found != NULL;
        soak_checked(SOAK_ON_TICKETS);
    }
    if (live.count - known > atomic_load(&soak->maybe_tickets))
        soak_fail(SOAK_ON_TICKETS,
                  "%u tickets of %u are in no ledger; %u exports were cut short",
                  live.count - known, live.count, atomic_load(&soak->maybe_tickets));
    for (uint32_t i = 0; i < live.count; i++) {
        int status = tni_ticket_revoke(me.domain, live.list[i].id);
        if (status != 0 && status != TN_ERR_STALE)
            soak_fail_status(SOAK_ON_TICKETS, "tni_ticket_revoke", status);
    }
}

/* ---- messages ---------------------------------------------------------------------------- */

static void drain(uint32_t queue)
{
    for (;;) {
        struct soak_wire wire;
        tn_message message;
        int status = tn_queue_pop(me.queues[queue], TN_NOW, &message);
        if (status == TN_ERR_TIMED_OUT)
            break;
        if (status != 0) {
            soak_judge_pop(status, queue);
            continue;
        }
        soak_receive(&message, queue, &wire);
        soak_check_contents(&message, &wire);
        if (soak_queue_kinds[queue].policy == TN_QUEUE_LEASE)
            soak_acknowledge(queue, &message, wire.id);
        tn_message_fini(&message);
        soak_count(SOAK_N_DRAINED, 1);
    }
    if (tn_queue_count(me.queues[queue]) != 0)
        soak_fail(SOAK_ON_MESSAGES, "queue %s is empty, and says %u",
                  soak_queue_kinds[queue].name, tn_queue_count(me.queues[queue]));
}

/* What the ledger allows to be missing, and what is missing. */
struct missing {
    uint32_t plain, of_memory_objects;
};

static bool is_missing(const struct soak_entry *entry)
{
    if (soak_queue_kinds[entry->queue].policy != TN_QUEUE_LEASE)
        return atomic_load(&entry->popped) == 0;
    return atomic_load(&entry->acking) ==
           0; /* an acknowledgement that a kill cut short may have been done */
}

static void account_for(uint32_t id, struct missing *missing)
{
    const struct soak_entry *entry = &soak->entries[id];
    uint32_t state = atomic_load(&entry->state);
    if (state == SOAK_M_REFUSED && atomic_load(&entry->popped) > 0)
        soak_fail(SOAK_ON_MESSAGES, "message %u came, and its push was refused", id);
    if (state != SOAK_M_PUSHED)
        return;
    soak_checked(SOAK_ON_MESSAGES);
    if (!is_missing(entry))
        return;
    if ((entry->strategies >> TN_STRATEGY_FILE_DESCRIPTOR & 1) != 0)
        missing[entry->queue].of_memory_objects++;
    else if (soak_queue_kinds[entry->queue].policy == TN_QUEUE_LEASE)
        soak_fail(SOAK_ON_MESSAGES,
                  "queue %s: message %u (number %u of life %u) is lost: delivered %u times",
                  soak_queue_kinds[entry->queue].name, id, entry->number, entry->life,
                  atomic_load(&entry->popped));
    else
        missing[entry->queue].plain++;
}

static void account_messages(void)
{
    struct missing missing[SOAK_QUEUES] = {{0, 0}};
    uint32_t count = atomic_load(&soak->messages);
    for (uint32_t i = 0; i < count; i++)
        account_for(i, missing);
    for (uint32_t i = 0; i < SOAK_QUEUES; i++) {
        struct soak_queue_book *book = &soak->queues[i];
        uint32_t in_hand = atomic_load(&book->in_hand), lost = atomic_load(&book->lost);
        if (missing[i].plain > in_hand ||
            missing[i].plain + missing[i].of_memory_objects > in_hand + lost)
            soak_fail(SOAK_ON_MESSAGES,
                      "queue %s: %u messages and %u of memory objects are missing; at most %u "
                      "were in the hands of killed consumers, and %u had lost their objects",
                      soak_queue_kinds[i].name, missing[i].plain, missing[i].of_memory_objects,
                      in_hand, lost);
        soak_count(SOAK_N_WENT_WITH_CONSUMER, missing[i].plain);
        soak_count(SOAK_N_LOST_DESCRIPTORS, lost);
        atomic_store(&book->in_hand, 0);
        atomic_store(&book->lost, 0);
    }
    memset(soak->entries, 0, (size_t)count * sizeof soak->entries[0]);
    atomic_store(&soak->messages, 0);
    atomic_store(&soak->maybe_tickets, 0);
}

/* ---- locks and the like ------------------------------------------------------------------ */

static void check_locks(void)
{
    uint32_t permits = tn_semaphore_count(me.permits), signals = tn_semaphore_count(me.signal);
    uint32_t ups = atomic_load(&soak->ups) + FIRST_SIGNALS, downs = atomic_load(&soak->downs);
    if (permits != SOAK_PERMITS)
        soak_fail(SOAK_ON_LOCKS, "%u permits of %u, and nobody has one", permits, SOAK_PERMITS);
    if (signals + downs > ups + atomic_load(&soak->maybe_ups) ||
        signals + downs + atomic_load(&soak->maybe_downs) < ups)
        soak_fail(SOAK_ON_LOCKS,
                  "the signal is %u after %u ups and %u downs, %u and %u cut short", signals,
                  ups, downs, atomic_load(&soak->maybe_ups), atomic_load(&soak->maybe_downs));
    int status = tn_lock_acquire(me.lock, soak_deadline(10000));
    if (status < 0)
        soak_fail_status(SOAK_ON_LOCKS, "tn_lock_acquire, and nobody has it", status);
    if (status == 0 && atomic_load(&soak->lock_owner) != 0)
        soak_fail(SOAK_ON_LOCKS, "the lock was free, and process %u had it",
                  (uint32_t)atomic_load(&soak->lock_owner));
    atomic_store(&soak->lock_owner, 0);
    atomic_store(&soak->guarded[1], atomic_load(&soak->guarded[0]));
    if ((status = tn_lock_release(me.lock)) != 0)
        soak_fail_status(SOAK_ON_LOCKS, "tn_lock_release", status);
    soak_checked(SOAK_ON_LOCKS);
}

/* ---- rounds ------------------------------------------------------------------------------ */

static void set_taps(void)
{
    int status = tn_domain_set_quota(me.domain, QUOTA_BYTES);
    if (status == 0)
        status = tn_domain_set_watermark(me.domain, WATERMARK_BYTES);
    if (status != 0)
        soak_fail_status(SOAK_ON_BLOCKS, "quota and watermark", status);
}

static void make_objects(void)
{
    int status = 0;
    for (uint32_t i = 0; i < SOAK_QUEUES && status == 0; i++) {
        const struct soak_queue_kind *kind = &soak_queue_kinds[i];
        tn_queue_options options = {.struct_size = sizeof options,
                                    .capacity = kind->capacity,
                                    .inline_bytes = kind->inline_bytes,
                                    .policy = kind->policy};
        status = tn_queue_open(me.domain, kind->name, &options, TN_OPEN_NEW, &me.queues[i]);
        if (status != 0)
            break;
        struct soak_queue_book *book = &soak->queues[i];
        const struct tni_queue *queue = tni_queue_of(me.queues[i]);
        book->ring_offset = (uint64_t)(queue->slots - me.domain->segment.arena);
        book->capacity = queue->capacity;
        book->slot_bytes = queue->slot_bytes;
    }
    if (status == 0)
        status = tn_lock_open(me.domain, "lock", TN_OPEN_NEW, &me.lock);
    if (status == 0)
        status = tn_semaphore_open(me.domain, "permits", SOAK_PERMITS,
                                   TN_OPEN_NEW | TN_SEMAPHORE_OWNED, &me.permits);
    if (status == 0)
        status = tn_semaphore_open(me.domain, "signal", FIRST_SIGNALS, TN_OPEN_NEW, &me.signal);
    if (status == 0)
        status = tn_event_open(me.domain, "door", TN_OPEN_NEW, &me.door);
    if (status == 0)
        status = tn_event_open(me.domain, "bell", TN_OPEN_NEW | TN_EVENT_AUTO_RESET, &me.bell);
    if (status == 0)
        status = tn_condition_open(me.domain, "condition", TN_OPEN_NEW, &me.condition);
    if (status == 0)
        status = soak_store_open(me.domain, TN_OPEN_NEW);
    if (status == 0)
        status = soak_channels_open(me.domain, TN_OPEN_NEW);
    if (status != 0)
        soak_fail_status(SOAK_ON_TABLES, "making objects", status);
}

void soak_audit_begin(void)
{
    tn_domain_options options = {.struct_size = sizeof options,
                                 .quota_bytes = QUOTA_BYTES,
                                 .watermark_bytes = WATERMARK_BYTES,
                                 .seats = 128,
                                 .blocks = 1 << 15,
                                 .objects = 64,
                                 .tickets = 1 << 14};
    int status = tn_domain_open(soak->domain, &options, TN_OPEN_NEW, &me.domain);
    if (status != 0)
        soak_fail_status(SOAK_ON_LIVENESS, "tn_domain_open", status);
    make_objects();
    soak_left_begin();
    atomic_store(&soak->round, 1);
}

void soak_audit_round(void)
{
    set_taps();
    reclaim_all();
    soak_check_files();
    check_tickets();
    for (uint32_t i = 0; i < SOAK_QUEUES; i++)
        drain(i);
    account_messages();
    check_locks();
    soak_empty_store();
    soak_check_channels();
    soak_check_left();
    atomic_fetch_add(&soak->round, 1);
    soak_count(SOAK_N_AUDITS, 1);
}

/* All processes have left. */
void soak_audit_end(void)
{
    reclaim_all();
    soak_close_objects();
    soak_check_emptiness();
    me.domain = tn_domain_close(me.domain);
}
