/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The audit of a round: everybody is parked and the dead are settled, so that what the ledger
 * says must be what the domain has, to the last message, block, byte, file and descriptor.
 */
#include "soak.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/live_blocks.h"
#include "queue/ring.h"
#include "reaper/reaper.h"

enum { SETTLE_S = 20, FIRST_SIGNALS = 2, MAX_TICKETS = 1 << 16 };
#define STORAGE_TARGET  "/memfd:" TNI_STORAGE_PREFIX
#define QUOTA_BYTES     ((uint64_t)SOAK_QUOTA_MIB << 20)
#define WATERMARK_BYTES (UINT64_C(4) << 20)

static struct {
    uint32_t blocks, objects, descriptors;
    uint64_t live_bytes;
} baseline;

/* ---- looking ----------------------------------------------------------------------------- */

uint32_t soak_count_open(pid_t pid, const char *prefix)
{
    char path[64], target[320];
    uint32_t count = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *list = opendir(path);
    for (struct dirent *entry; list != NULL && (entry = readdir(list)) != NULL;) {
        ssize_t size = readlinkat(dirfd(list), entry->d_name, target, sizeof target - 1);
        target[size > 0 ? size : 0] = '\0';
        count += strncmp(target, prefix, strlen(prefix)) == 0;
    }
    if (list != NULL)
        closedir(list);
    return count;
}

uint32_t soak_count_files(const char *folder)
{
    uint32_t count = 0;
    DIR *list = opendir(folder);
    for (struct dirent *entry; list != NULL && (entry = readdir(list)) != NULL;)
        count += entry->d_name[0] != '.';
    if (list != NULL)
        closedir(list);
    return count;
}

pid_t soak_manager_pid(void)
{
    const struct tni_segment *s = &me.domain->segment;
    uint64_t who = atomic_load(&s->header->manager);
    return who == 0 ? 0 : atomic_load(&tni_seat_at(s, tni_who_seat(who))->pid);
}

pid_t soak_vault_pid(void)
{
    pid_t tree[256];
    uint32_t count = soak_list_tree(getpid(), tree, 256);
    for (uint32_t i = 0; i < count; i++) {
        char name[32], state = soak_process_state(tree[i]);
        soak_process_name(tree[i], name);
        if (strcmp(name, "tenond-vault") == 0 && state != 'Z')
            return tree[i];
    }
    return 0;
}

/* As a survivor that waits: it settles, and starts a tenond where there is none. */
static void survive(uint64_t ms)
{
    _Atomic uint32_t word = 0;
    tni_process_sleep(me.domain, &word, 0, soak_deadline(ms));
    soak_crew_collect();
}

static void read_stat(tn_domain_stat *ret_stat)
{
    tn_inspector *inspector = NULL;
    int status = tn_inspector_open(soak->domain, &inspector);
    if (status == 0)
        status = tn_inspect_stat(inspector, ret_stat);
    if (status != 0)
        soak_fail_status(SOAK_ON_AUDIT, "tn_inspect_stat", status);
    tn_inspector_close(inspector);
}

/* Without sockets: a line to tenond comes and goes. Two for each child that we watch. */
static uint32_t count_descriptors(void)
{
    uint32_t all = soak_count_open(getpid(), ""),
             sockets = soak_count_open(getpid(), "socket:");
    return all - sockets - soak_count_open(getpid(), "anon_inode:[pidfd]") -
           soak_count_open(getpid(), "pipe:");
}

/* ---- the dead are settled ---------------------------------------------------------------- */

/* @return a seat that is taken, and by nobody who lives; or TNI_NO_SEAT */
static uint32_t find_unsettled(void)
{
    const struct tni_segment *s = &me.domain->segment;
    for (uint32_t i = 0; i < s->geometry.seats; i++) {
        uint64_t word = atomic_load(&tni_seat_at(s, i)->word);
        if (tni_seat_state(word) == TNI_SEAT_FREE)
            continue;
        if (tni_seat_state(word) != TNI_SEAT_ALIVE ||
            tni_process_seat_state(s, i, true) != TNI_OS_ALIVE)
            return i;
    }
    return TNI_NO_SEAT;
}

static void settle_all(void)
{
    uint64_t deadline_ns = soak_now_ns() + SETTLE_S * SOAK_S_NS;
    for (;;) {
        int status = tn_domain_reap(me.domain, NULL);
        if (status != 0 && status != TN_ERR_TIMED_OUT)
            soak_fail_status(SOAK_ON_AUDIT, "tn_domain_reap", status);
        uint32_t seat = find_unsettled();
        if (seat == TNI_NO_SEAT)
            return;
        soak_crew_collect();
        if (soak_now_ns() > deadline_ns) {
            uint64_t word = atomic_load(&tni_seat_at(&me.domain->segment, seat)->word);
            soak_fail(SOAK_ON_TABLES, "seat %u of pid %d is not settled: word %#llx", seat,
                      (int)atomic_load(&tni_seat_at(&me.domain->segment, seat)->pid),
                      (unsigned long long)word);
        }
        usleep(1000);
    }
}

/* ---- tickets ----------------------------------------------------------------------------- */

static struct {
    tn_ticket_info list[MAX_TICKETS];
    uint32_t count;
} live;

static int note_ticket(const tn_ticket_info *ticket, void *context)
{
    (void)context;
    if (live.count == MAX_TICKETS)
        return 1;
    live.list[live.count++] = *ticket;
    return 0;
}

static int compare_tickets(const void *one, const void *other)
{
    uint64_t a = ((const tn_ticket_info *)one)->id.value;
    uint64_t b = ((const tn_ticket_info *)other)->id.value;
    return a < b ? -1 : a > b;
}

static void check_live(const struct soak_entry *entry, const tn_ticket_info *ticket)
{
    uint32_t tries = atomic_load(&entry->tries), imports = atomic_load(&entry->imports);
    uint32_t least = tries < entry->uses ? entry->uses - tries : 0;
    uint32_t most = entry->uses - imports;
    if (atomic_load(&entry->revoked) != 0)
        soak_fail(SOAK_ON_TICKETS, "ticket %#llx was revoked, and lives",
                  (unsigned long long)ticket->id.value);
    if (ticket->uses_left < least || ticket->uses_left > most)
        soak_fail(SOAK_ON_TICKETS,
                  "ticket %#llx has %u uses left; of %u, %u were tried, %u had",
                  (unsigned long long)ticket->id.value, ticket->uses_left, entry->uses, tries,
                  imports);
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
    if (tn_ticket_for_each(me.domain, note_ticket, NULL) != 0)
        soak_fail(SOAK_ON_TICKETS, "tickets cannot be listed");
    qsort(live.list, live.count, sizeof live.list[0], compare_tickets);
    uint32_t count = atomic_load(&soak->messages);
    for (uint32_t i = 0; i < count; i++) {
        struct soak_entry *entry = &soak->entries[i];
        if (atomic_load(&entry->ticket_state) != SOAK_T_EXPORTED)
            continue;
        tn_ticket_info key = {.id = {atomic_load(&entry->ticket)}};
        const tn_ticket_info *found =
            bsearch(&key, live.list, live.count, sizeof key, compare_tickets);
        if (found != NULL)
            check_live(entry, found);
        else if (must_live(entry))
            soak_fail(SOAK_ON_TICKETS, "ticket %#llx is gone: %u uses, %u tries, %u imports",
                      (unsigned long long)key.id.value, entry->uses, atomic_load(&entry->tries),
                      atomic_load(&entry->imports));
        known += found != NULL;
        soak_checked(SOAK_ON_TICKETS);
    }
    if (live.count - known > atomic_load(&soak->maybe_tickets))
        soak_fail(SOAK_ON_TICKETS,
                  "%u tickets of %u are in no ledger; %u exports were cut short",
                  live.count - known, live.count, atomic_load(&soak->maybe_tickets));
    for (uint32_t i = 0; i < live.count; i++) {
        int status = tn_ticket_revoke(me.domain, live.list[i].id);
        if (status != 0 && status != TN_ERR_STALE)
            soak_fail_status(SOAK_ON_TICKETS, "tn_ticket_revoke", status);
    }
}

/* ---- messages ---------------------------------------------------------------------------- */

static void drain(uint32_t queue)
{
    for (;;) {
        struct soak_wire wire;
        tn_message message;
        int status = tn_queue_pop(me.queues[queue], 0, &message);
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

/* What may be missing, and what is. */
struct missing {
    uint32_t plain, of_memory_objects;
};

static bool is_missing(const struct soak_entry *entry)
{
    if (soak_queue_kinds[entry->queue].policy != TN_QUEUE_LEASE)
        return atomic_load(&entry->popped) == 0;
    return atomic_load(&entry->acking) == 0; /* what was cut short there may have been done */
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
    uint32_t permits = tn_semaphore_get(me.permits), signals = tn_semaphore_get(me.signal);
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

/* ---- what is left ------------------------------------------------------------------------ */

static int print_sentence(const char *sentence, bool repaired, void *context)
{
    char *text = context;
    size_t used = strlen(text);
    (void)repaired;
    if (used < SOAK_TEXT_BYTES / 2)
        snprintf(text + used, SOAK_TEXT_BYTES / 2 - used, "\n    %s", sentence);
    return 0;
}

static void audit_domain(void)
{
    static char text[SOAK_TEXT_BYTES];
    text[0] = '\0';
    int found = tn_domain_audit(me.domain, false, print_sentence, text);
    if (found < 0)
        soak_fail_status(SOAK_ON_AUDIT, "tn_domain_audit", found);
    if (found > 0)
        soak_fail(SOAK_ON_AUDIT, "the audit found %d:%s", found, text);
    soak_checked(SOAK_ON_AUDIT);
}

static void check_blocks(void)
{
    tn_domain_stat stat;
    read_stat(&stat);
    uint32_t blocks = live_blocks(me.domain);
    if (blocks != baseline.blocks || stat.outside_count != 0 || stat.outside_bytes != 0 ||
        stat.live_bytes != baseline.live_bytes)
        soak_fail(
            SOAK_ON_BLOCKS,
            "%u blocks live (should be %u), %llu bytes (%llu), %llu objects of %llu bytes",
            blocks, baseline.blocks, (unsigned long long)stat.live_bytes,
            (unsigned long long)baseline.live_bytes, (unsigned long long)stat.outside_count,
            (unsigned long long)stat.outside_bytes);
    soak_checked(SOAK_ON_BLOCKS);
    if (stat.tickets_used != 0 || stat.objects_used != baseline.objects ||
        stat.domain.seats_used != soak_crew_members() + 1)
        soak_fail(SOAK_ON_TABLES, "%u tickets (should be 0), %u objects (%u), %u seats (%u)",
                  stat.tickets_used, stat.objects_used, baseline.objects,
                  stat.domain.seats_used, soak_crew_members() + 1);
    soak_checked(SOAK_ON_TABLES);
}

/* Nobody tells when tenond has closed what is over: wait as a survivor. */
static void check_descriptors(void)
{
    uint64_t deadline_ns = soak_now_ns() + SETTLE_S * SOAK_S_NS;
    for (;;) {
        pid_t manager = soak_manager_pid(), vault = soak_vault_pid();
        uint32_t ours = soak_count_open(getpid(), STORAGE_TARGET);
        uint32_t managers = manager == 0 ? 1 : soak_count_open(manager, STORAGE_TARGET);
        uint32_t vaults = vault == 0 ? 0 : soak_count_open(vault, STORAGE_TARGET);
        if (ours == 0 && managers == 0 && vaults == 0)
            break;
        if (soak_now_ns() > deadline_ns) {
            soak_report_descriptors(manager);
            soak_report_descriptors(vault);
            soak_fail(SOAK_ON_DESCRIPTORS,
                      "memory objects are open: %u here, %u in tenond %d, %u in the vault %d",
                      ours, managers, (int)manager, vaults, (int)vault);
        }
        survive(110);
    }
    if (count_descriptors() > baseline.descriptors)
        soak_fail(SOAK_ON_DESCRIPTORS, "%u descriptors are open here, should be %u",
                  count_descriptors(), baseline.descriptors);
    soak_checked(SOAK_ON_DESCRIPTORS);
}

static int count_file_block(const tn_block_info *block, void *context)
{
    *(uint32_t *)context += block->path != NULL;
    return 0;
}

/* Who ends a block removes its file first: there is none without its block at any time. */
static void check_files(void)
{
    tn_inspector *inspector = NULL;
    uint32_t blocks = 0, files = soak_count_files(soak->shm_folder);
    int status = tn_inspector_open(soak->domain, &inspector);
    if (status == 0)
        status = tn_inspect_blocks(inspector, count_file_block, &blocks);
    if (status != 0)
        soak_fail_status(SOAK_ON_FILES, "tn_inspect_blocks", status);
    tn_inspector_close(inspector);
    if (files != blocks)
        soak_fail(SOAK_ON_FILES, "%u files are in %s, and %u blocks have one", files,
                  soak->shm_folder, blocks);
    soak_checked(SOAK_ON_FILES);
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
        status = tn_queue_create(me.domain, kind->name, &options, &me.queues[i]);
        if (status != 0)
            break;
        struct soak_queue_book *book = &soak->queues[i];
        book->ring_offset = (uint64_t)(me.queues[i]->slots - me.domain->segment.arena);
        book->capacity = me.queues[i]->capacity;
        book->slot_bytes = me.queues[i]->slot_bytes;
    }
    if (status == 0)
        status = tn_lock_create(me.domain, "lock", &me.lock);
    if (status == 0)
        status = tn_semaphore_create(me.domain, "permits", SOAK_PERMITS, TN_SEMAPHORE_OWNED,
                                     &me.permits);
    if (status == 0)
        status = tn_semaphore_create(me.domain, "signal", FIRST_SIGNALS, 0, &me.signal);
    if (status == 0)
        status = tn_event_create(me.domain, "door", false, &me.door);
    if (status == 0)
        status = tn_event_create(me.domain, "bell", true, &me.bell);
    if (status == 0)
        status = tn_condition_create(me.domain, "condition", &me.condition);
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
    int status = tn_domain_create(soak->domain, &options, &me.domain);
    if (status != 0)
        soak_fail_status(SOAK_ON_LIVENESS, "tn_domain_create", status);
    make_objects();
    tn_domain_stat stat;
    read_stat(&stat);
    baseline.blocks = live_blocks(me.domain);
    baseline.live_bytes = stat.live_bytes;
    baseline.objects = stat.objects_used;
    baseline.descriptors = count_descriptors();
    atomic_store(&soak->round, 1);
}

void soak_audit_round(void)
{
    set_taps();
    settle_all();
    check_files();
    check_tickets();
    for (uint32_t i = 0; i < SOAK_QUEUES; i++)
        drain(i);
    account_messages();
    check_locks();
    audit_domain();
    check_blocks();
    check_files();
    check_descriptors();
    atomic_fetch_add(&soak->round, 1);
    soak_count(SOAK_N_AUDITS, 1);
}

/* Everybody has left. */
void soak_audit_end(void)
{
    settle_all();
    soak_close_objects();
    audit_domain();
    if (live_blocks(me.domain) != 0)
        soak_fail(SOAK_ON_END, "%u blocks live at the end", live_blocks(me.domain));
    me.domain = tn_domain_close(me.domain);
}
