/* SPDX-License-Identifier: Apache-2.0 */
/*
 * domains: what tenond looks after.
 *
 * Nouns: watch (a descriptor of a seat's process), tick (a look at everything, once a second),
 * poll (a look at seats whose end no descriptor tells: in another pid namespace there is none),
 * retry.
 * I1  What is private here can be rebuilt from the domain, and is compared with it at each
 *     look: a survivor may have reclaimed a seat, a new process may sit in it.
 * I2  A pidfd that was readable is never watched again, so that the loop cannot spin.
 * I3  A domain that makes no sense any more is dropped, and harms no other.
 * I4  A domain whose name may become another's has no member, and gets none: see give_up().
 * I5  Nobody takes the office of a tenond that lives and has the lock of its folder, whoever
 *     asks. Should two have taken it at once, folder.c ends that.
 * Death: survivors start another tenond, which adopts the domains and reclaims our seats.
 */
#include <stdlib.h>
#include <string.h>

#include "tenond.h"

#define MS_NS          UINT64_C(1000000)
#define TICK_NS        (1000 * MS_NS)
#define LINGER_NS      (1000 * MS_NS)
#define RETRY_LEAST_NS (10 * MS_NS)
#define RETRY_MOST_NS  (1000 * MS_NS)
#define POLL_NS        (100 * MS_NS)
#define ADOPT_NS       (100 * MS_NS)

/*
 * A look for files, for domains that could not be taken over, or at seats that no descriptor
 * tells of, takes at most this part of time, up to the bound of tni_pause_ns().
 */
enum { FILES_PAUSE = 100, MISSED_PAUSE = 100, POLL_PAUSE = 100 };

static const struct tni_segment *segment_of(const struct tenond_domain *d)
{
    return &d->domain->segment;
}
static const char *name_of(const struct tenond_domain *d) { return segment_of(d)->name; }

/* ---- watching ---------------------------------------------------------------------------- */

static void unwatch(struct tenond *t, struct tenond_watch *watch)
{
    if (watch->fd >= 0) {
        tni_os_loop_remove(t->loop, watch->fd);
        tni_os_close(watch->fd);
    }
    watch->fd = -1;
}

static void retry_soon(struct tenond_domain *d)
{
    uint64_t at_ns = tni_os_now_ns() + d->pause_ns;
    d->retry_ns = TNI_MIN(d->retry_ns, at_ns);
}

static void reclaim(struct tenond_domain *d, uint32_t seat)
{
    int status = tni_reaper_reclaim(d->domain, seat);
    if (status == 1) {
        d->pause_ns = RETRY_LEAST_NS;
        tenond_sweep_soon(d);
    }
    if (status == TN_ERR_TIMED_OUT) {
        tni_process_clear_idle(d->domain); /* what is in the way may be said to be us */
        retry_soon(d);
    }
    if (status == TN_ERR_CORRUPT) {
        d->is_broken = true;
        tni_log(TNI_LOG_ERROR, "%s", tn_error_detail());
    }
}

static bool is_same(const struct tenond_watch *watch, const struct tni_seat *entry,
                    uint64_t word)
{
    return watch->is_known && watch->incarnation == tni_seat_incarnation(word) &&
           watch->pid == atomic_load(&entry->pid) && watch->start_time == entry->start_time;
}

/* I2. What cannot be watched is polled: a pid of another namespace is a stranger's here. */
static void watch_seat(struct tenond *t, struct tenond_domain *d, uint32_t seat, uint64_t word)
{
    const struct tni_seat *entry = tni_seat_at(segment_of(d), seat);
    struct tenond_watch *watch = &d->watches[seat];
    int fd;

    unwatch(t, watch);
    *watch = (struct tenond_watch){.fd = -1,
                                   .pid = atomic_load(&entry->pid),
                                   .incarnation = tni_seat_incarnation(word),
                                   .start_time = entry->start_time,
                                   .is_known = true};
    if (watch->pid == 0) {
        watch->is_known = false; /* being taken or given back this moment */
        retry_soon(d);
    } else if (tni_os_has_pid_space(TNI_LOOK(entry->pid_space)) &&
               tni_os_process_open(watch->pid, &fd) == 0) {
        if (tni_os_poll(&fd, 1, 0) == TN_ERR_TIMED_OUT &&
            tni_os_loop_add(t->loop, fd, tenond_tag(TENOND_SEAT, d->number, seat)) == 0)
            watch->fd = fd;
        else
            tni_os_close(fd);
    }
    if (watch->fd < 0)
        d->poll_ns = TNI_MIN(d->poll_ns, tni_os_now_ns() + POLL_NS);
    /* Gone before we looked, or its number is another's by now. */
    reclaim(d, seat);
}

static void look_at_seat(struct tenond *t, struct tenond_domain *d, uint32_t seat)
{
    const struct tni_seat *entry = tni_seat_at(segment_of(d), seat);
    struct tenond_watch *watch = &d->watches[seat];
    uint64_t word = atomic_load(&entry->word);

    switch (tni_seat_state(word)) {
    case TNI_SEAT_FREE:
        unwatch(t, watch);
        watch->is_known = false;
        return;
    case TNI_SEAT_REAPING:
        unwatch(t, watch);
        reclaim(d, seat);
        if (tni_seat_state(atomic_load(&entry->word)) == TNI_SEAT_REAPING)
            retry_soon(d); /* by a survivor, which may die or give up */
        return;
    case TNI_SEAT_JOINING:
    case TNI_SEAT_ALIVE:
    case TNI_SEAT_LEAVING:
        if (!is_same(watch, entry, word))
            watch_seat(t, d, seat, word);
        return;
    default:
        d->is_broken = true;
        return;
    }
}

/*
 * A thread that is in the way is waited for now and then only, since it may be stopped, and
 * other domains have to be looked after.
 */
static void recount(struct tenond_domain *d)
{
    bool is_patient = tni_os_now_ns() >= d->patient_ns;
    if (tni_reaper_recount(d->domain, is_patient ? TNI_FOREVER : 0) == 0) {
        d->patient_ns = 0;
        d->patient_pause_ns = RETRY_LEAST_NS;
        return;
    }
    tni_process_clear_idle(d->domain); /* what is in the way may be said to be us */
    if (is_patient) {
        d->patient_ns = tni_os_now_ns() + d->patient_pause_ns;
        d->patient_pause_ns = TNI_MIN(d->patient_pause_ns * 2, RETRY_MOST_NS);
    }
    d->retry_ns = TNI_MIN(d->retry_ns, d->patient_ns);
}

static void note_members(struct tenond_domain *d)
{
    if (tni_process_count(segment_of(d)) != 0)
        d->empty_ns = 0;
    else if (d->empty_ns == 0)
        d->empty_ns = tni_os_now_ns();
}

static void look(struct tenond *t, struct tenond_domain *d)
{
    for (uint32_t seat = 0; seat < segment_of(d)->geometry.seats; seat++) {
        /*
         * One that died as it took a seat may stand above the limit, but not behind a free one.
         */
        if (seat >= tni_seat_limit(segment_of(d)) &&
            tni_seat_state(atomic_load(&tni_seat_at(segment_of(d), seat)->word)) ==
                TNI_SEAT_FREE)
            break;
        if (seat != d->domain->seat)
            look_at_seat(t, d, seat);
    }
    recount(d);
    note_members(d);
}

void tenond_look(struct tenond *t)
{
    for (struct tenond_domain *d = t->domains; d != NULL; d = d->next) {
        look(t, d);
        tenond_sweep_soon(d);
    }
}

/*
 * Seats that no descriptor tells of: not watchable, or of a process that may exec. @return
 * whether there is one that is not watched
 */
static bool look_at_unwatched(struct tenond_domain *d, bool is_tick)
{
    bool has_unwatched = false;
    for (uint32_t seat = 0; seat < segment_of(d)->geometry.seats; seat++) {
        const struct tenond_watch *watch = &d->watches[seat];
        /* A process that execs goes on without its seat, and its descriptor does not tell. */
        if (watch->is_known && (watch->fd < 0 || is_tick))
            reclaim(d, seat);
        has_unwatched |= watch->is_known && watch->fd < 0;
    }
    return has_unwatched;
}

void tenond_seat_ready(struct tenond *t, uint32_t number, uint32_t seat)
{
    struct tenond_domain *d = t->domains;
    while (d != NULL && d->number != number)
        d = d->next;
    if (d == NULL || seat >= segment_of(d)->geometry.seats)
        return;
    int fd = d->watches[seat].fd;
    /* The tag may be older than the watch. */
    if (fd < 0 || tni_os_poll(&fd, 1, 0) != 0)
        return;
    reclaim(d, seat);
    unwatch(t, &d->watches[seat]);
    /* Its death may be what another seat's recount waited for, or the end of a recoverer. */
    look_at_unwatched(d, false);
    look(t, d);
}

/* ---- taking over ------------------------------------------------------------------------- */

static struct tenond_domain *find_same(struct tenond *t, const struct tni_segment *s)
{
    for (struct tenond_domain *d = t->domains; d != NULL; d = d->next)
        if (segment_of(d)->control_inode == s->control_inode &&
            memcmp(segment_of(d)->id, s->id, sizeof s->id) == 0)
            return d;
    return NULL;
}

struct tenond_domain *tenond_find(struct tenond *t, const char *name)
{
    for (struct tenond_domain *d = t->domains; d != NULL; d = d->next)
        if ((name[0] != 0 && strncmp(name_of(d), name, TNI_NAME_BYTES) == 0) ||
            tni_manager_is_id(name, segment_of(d)->id))
            return d;
    return NULL;
}

static struct tenond_domain *find_by_id(struct tenond *t, const char *id)
{
    struct tenond_domain *d = t->domains;
    while (d != NULL && !tni_manager_is_id(id, segment_of(d)->id))
        d = d->next;
    return d;
}

struct tenond_domain *tenond_find_id(struct tenond *t, const char *id)
{
    struct tenond_domain *found = find_by_id(t, id);
    uint64_t now_ns = tni_os_now_ns();
    if (found != NULL || now_ns < t->adopt_ns)
        return found;
    t->adopt_ns = now_ns + ADOPT_NS; /* a look through every process is dear */
    tenond_adopt(t);
    return find_by_id(t, id);
}

/*
 * Say that nobody shall sit down any more, unless somebody has. Who comes with descriptors of
 * its own takes its seat, and then looks at `runtime` (join_descriptors() in api.c); we write
 * that, and then look at the seats. Both have a fence between the two, so we cannot both miss
 * the other: either the seat is counted here, or its taker sees 0 and leaves it; if both, it
 * comes again. A domain without a name keeps nothing from anybody, and goes on without us.
 *
 * Death: a domain that refuses who comes. If it has a member after all, that one tells the next
 * tenond of it (tni_manager_survive()), which says whose it is again.
 */
static bool give_up(const struct tenond *t, const struct tenond_domain *d)
{
    _Atomic uint32_t *runtime = &segment_of(d)->header->runtime;
    if (name_of(d)[0] == 0)
        return true;
    atomic_store(runtime, 0);
    TNI_KILL_POINT("tenond_gives_up");
    atomic_thread_fence(memory_order_seq_cst); /* pairs with that in join_descriptors() */
    if (tni_process_count(segment_of(d)) == 0)
        return true;
    atomic_store(runtime, t->runtime);
    return false;
}

/* A domain that lingers, or of which all are dead, does not keep its name from a new one. */
static int make_room(struct tenond *t, const char *name)
{
    struct tenond_domain *other = name[0] != 0 ? tenond_find(t, name) : NULL;
    if (other == NULL)
        return 0;
    tni_reaper_reclaim_all(other->domain);
    if (tni_process_count(segment_of(other)) != 0 || !give_up(t, other))
        return tni_fail(TN_ERR_EXISTS, "a domain named '%s' lives", name);
    tenond_drop(t, other);
    return 0;
}

/* The bell before the office, so that who finds us in office can ring. */
void tenond_take_office(const struct tenond *t, struct tenond_domain *d)
{
    struct tn_domain *domain = d->domain;
    struct tni_header *h = domain->segment.header;
    atomic_store(&domain->me->bell_number, t->bell_number);
    TNI_KILL_POINT("tenond_bell_set");
    atomic_store(&h->runtime, t->runtime);
    atomic_fetch_add(&h->manager_starts, 1);
    atomic_store(&h->manager, domain->who);
    for (uint32_t seat = 0; seat < domain->segment.geometry.seats; seat++)
        if (seat != domain->seat &&
            atomic_load(&tni_seat_at(&domain->segment, seat)->bell_number) != 0)
            tni_process_bell_ring(&domain->segment, seat); /* who polls follows us now */
    TNI_KILL_POINT("tenond_in_office");
}

static int sit_down(struct tenond *t, struct tni_segment *segment)
{
    struct tn_domain *domain;
    struct tenond_domain *d = calloc(1, sizeof *d);
    struct tenond_watch *watches = calloc(segment->geometry.seats, sizeof *watches);
    int status =
        d == NULL || watches == NULL ? tni_fail(TN_ERR_NO_MEMORY, "no private memory") : 0;
    if (status == 0)
        status = tni_process_join(segment, TNI_SEAT_MANAGER, &domain);
    if (status != 0) {
        free(watches);
        free(d);
        return status;
    }
    tni_alloc_init(domain);
    tni_queue_set_kinds(domain);
    for (uint32_t i = 0; i < segment->geometry.seats; i++)
        watches[i].fd = -1;
    uint64_t now_ns = tni_os_now_ns();
    *d = (struct tenond_domain){.domain = domain,
                                .number = ++t->domain_counter & 0xffffff,
                                .watches = watches,
                                .tick_ns = now_ns + TICK_NS,
                                .retry_ns = TNI_FOREVER,
                                .pause_ns = RETRY_LEAST_NS,
                                .patient_pause_ns = RETRY_LEAST_NS,
                                .poll_ns = TNI_FOREVER,
                                .expire_ns = now_ns,
                                .deposits = {.sweep_ns = TNI_FOREVER},
                                .next = t->domains};
    memcpy(d->id, segment_of(d)->id, sizeof d->id);
    t->domains = d;
    t->domain_count++;
    tenond_take_office(t, d);
    tenond_mirror_adopted(t);
    tni_log(TNI_LOG_INFO, "looking after domain '%s', in seat %u", name_of(d), domain->seat);
    look(t, d);
    tenond_linger(d);
    return 0;
}

/* As if we had been killed: survivors do what we did, and start another. */
static void die(void)
{
    tni_log(TNI_LOG_ERROR, "a part of a domain cannot be mapped: %s", tn_error_detail());
    tni_os_exit(1);
}

static int add(struct tenond *t, int control_fd, int arena_fd, int level)
{
    struct tni_segment segment;
    int status = tni_segment_attach_sparse(control_fd, arena_fd, die, &segment);
    if (status != 0) {
        tni_log(level, "not a domain: %s", tn_error_detail());
        tni_os_close(control_fd);
        tni_os_close(arena_fd);
        return status;
    }
    const char *name = segment.name;
    if (find_same(t, &segment) != NULL) {
        tni_segment_detach(&segment);
        return 0;
    }
    if (tni_manager_is_in_office(&segment)) /* I5 */
        status = tni_fail(TN_ERR_MANAGER, "another tenond looks after it");
    if (status == 0 && name[0] != 0)
        status = tni_check_name("domain", name, TNI_NAME_BYTES - 1);
    if (status == 0)
        status = make_room(t, name);
    if (status == 0)
        status = sit_down(t, &segment);
    if (status != 0) {
        tni_log(level, "domain '%s': %s", name, tn_error_detail());
        tni_segment_detach(&segment);
    }
    return status;
}

int tenond_add(struct tenond *t, int control_fd, int arena_fd)
{
    return add(t, control_fd, arena_fd, TNI_LOG_WARNING);
}

/* What could not be taken over is tried again and again, and told of once. */
static int missed_level(const struct tenond *t)
{
    return t->has_missed ? TNI_LOG_DEBUG : TNI_LOG_WARNING;
}

static int adopt_found(const struct tni_found *found, void *context)
{
    struct tenond *t = context;
    int control_fd, arena_fd;

    if (found->runtime != t->runtime || found->layout_version != TNI_LAYOUT_VERSION)
        return 0; /* of another folder, or the tenond of another version looks after it */
    for (const struct tenond_domain *d = t->domains; d != NULL; d = d->next)
        if (segment_of(d)->control_inode == found->control_inode)
            return 0;
    /* Each member has it open. */
    for (uint32_t i = 0; i < t->missed_count; i++)
        if (t->missed[i] == found->control_inode)
            return 0;
    int status = tni_manager_open_found(found, false, &control_fd, &arena_fd);
    if (status == 0)
        status = add(t, control_fd, arena_fd, missed_level(t));
    /* FULL: the tenond before us may have a seat still, until a member reclaims it. */
    bool is_missed =
        status == TN_ERR_SYSTEM || status == TN_ERR_NO_MEMORY || status == TN_ERR_FULL;
    if (is_missed)
        t->missed_ns = 0;
    if (is_missed && t->missed_count < TENOND_MISSED)
        t->missed[t->missed_count++] = found->control_inode;
    return 0;
}

/* For want of a descriptor, say: those who live in it would wait for each other's end. */
void tenond_adopt(struct tenond *t)
{
    uint64_t begun_ns = tni_os_now_ns();
    bool is_again = t->has_missed;
    t->missed_ns = TNI_FOREVER;
    t->missed_count = 0;
    if (t->is_retired)
        return;
    int status = tni_manager_search(adopt_found, t);
    if (status < 0)
        tni_log(missed_level(t), "looking for domains: %s", tn_error_detail());
    uint64_t done_ns = tni_os_now_ns(), pause_ns = TICK_NS;
    t->has_missed = status < 0 || t->missed_ns == 0;
    /* The first retry comes soon, because a tenond that has no domain ends after 2 seconds. */
    if (is_again)
        pause_ns = tni_pause_ns(done_ns - begun_ns, MISSED_PAUSE, TICK_NS);
    if (t->has_missed)
        t->missed_ns = done_ns + pause_ns;
}

/* ---- letting go -------------------------------------------------------------------------- */

void tenond_linger(struct tenond_domain *d)
{
    if (d->empty_ns != 0)
        d->empty_ns = tni_os_now_ns();
    note_members(d);
}

/* Our own seat, which nobody but us changes while we live. */
static bool has_office(const struct tenond_domain *d)
{
    const struct tn_domain *domain = d->domain;
    return atomic_load(&domain->me->word) == tni_process_word(domain) &&
           (atomic_load(&domain->me->flags) & TNI_SEAT_MANAGER) != 0;
}

static bool makes_sense(const struct tenond_domain *d)
{
    const struct tni_segment *s = segment_of(d);
    const struct tni_header *h = s->header;
    return !d->is_broken && has_office(d) && h->magic == TNI_MAGIC &&
           h->seats == s->geometry.seats && h->blocks == s->geometry.blocks &&
           h->objects == s->geometry.objects && h->tickets == s->geometry.tickets &&
           h->arena_inode == s->arena_inode && memchr(h->name, 0, sizeof h->name) != NULL;
}

/* Nobody is in it: what queues and tickets still name, nobody will come for. */
static void end_files(const struct tenond_domain *d)
{
    if (tni_process_count(segment_of(d)) == 0)
        tni_files_end_domain(segment_of(d));
}

static void say_file(const char *path, int status, void *context)
{
    (void)context;
    if (status == 0)
        tni_log(TNI_LOG_INFO, "removed %s: its domain has ended", path);
}

void tenond_collect_files(void)
{
    if (tni_files_collect(tni_manager_living, say_file, NULL) < 0)
        tni_log(TNI_LOG_WARNING, "files were not looked for: %s", tn_error_detail());
}

/*
 * A domain that was dropped, because it makes no sense or its seats say that it is empty, may
 * have members; nobody tells us when the last one has ended.
 */
static void collect_later(struct tenond *t)
{
    t->collect_ns = TNI_MIN(t->collect_ns, tni_os_now_ns() + TICK_NS);
}

uint64_t tenond_collect_due(struct tenond *t, uint64_t now_ns)
{
    if (now_ns < t->collect_ns)
        return t->collect_ns;
    uint64_t begun_ns = tni_os_now_ns();
    tenond_collect_files();
    uint64_t done_ns = tni_os_now_ns();
    t->collect_ns = done_ns + tni_pause_ns(done_ns - begun_ns, FILES_PAUSE, TICK_NS);
    return t->collect_ns;
}

void tenond_drop(struct tenond *t, struct tenond_domain *d)
{
    bool is_sane = makes_sense(d);
    for (struct tenond_domain **at = &t->domains; *at != NULL; at = &(*at)->next)
        if (*at == d) {
            *at = d->next;
            break;
        }
    t->domain_count--;
    if (t->domain_count == 0)
        t->idle_ns = tni_os_now_ns();
    for (uint32_t seat = 0; seat < segment_of(d)->geometry.seats; seat++)
        unwatch(t, &d->watches[seat]);
    tenond_deposits_fini(t, d, !is_sane || tni_process_count(segment_of(d)) == 0);
    if (is_sane) {
        tni_log(TNI_LOG_INFO, "leaving domain '%s'", name_of(d));
        end_files(d);
        tni_reaper_leave(d->domain);
    } else {
        tni_log(TNI_LOG_ERROR, "a domain makes no sense any more: dropped"); /* I3 */
    }
    collect_later(t);
    tni_process_leave(d->domain);
    tni_process_unkeep(d->domain);
    free(d->watches);
    free(d);
}

/* ---- what is due ------------------------------------------------------------------------- */

static void say_let_go(const char *path, int status, void *context)
{
    (void)context;
    if (status == 0)
        tni_log(TNI_LOG_INFO, "removed %s: its domain let it go, and nobody holds it", path);
}

/* Files that others held, who were killed. Nobody rings for them. */
static void end_let_go(struct tenond_domain *d, uint64_t now_ns)
{
    if (now_ns < d->files_ns)
        return;
    int status = tni_files_let_go(segment_of(d), false, say_let_go, NULL);
    if (status < 0)
        tni_log(TNI_LOG_DEBUG, "files were not looked for: %s", tn_error_detail());
    uint64_t done_ns = tni_os_now_ns();
    d->files_ns = done_ns + tni_pause_ns(done_ns - now_ns, FILES_PAUSE, 0);
}

static void tick(struct tenond *t, struct tenond_domain *d, uint64_t now_ns)
{
    end_let_go(d, tni_os_now_ns());
    tni_alloc_trim_idle(d->domain);
    look(t, d);
    look_at_unwatched(d, true);
    d->expire_ns = now_ns; /* exporters do not ring */
    d->tick_ns = now_ns + TICK_NS;
}

static void retry(struct tenond *t, struct tenond_domain *d)
{
    d->retry_ns = TNI_FOREVER;
    d->pause_ns = TNI_MIN(d->pause_ns * 2, RETRY_MOST_NS);
    look(t, d);
    look_at_unwatched(d, false);
    if (d->retry_ns == TNI_FOREVER)
        d->pause_ns = RETRY_LEAST_NS;
}

static void poll_unwatched(struct tenond_domain *d)
{
    uint64_t begun_ns = tni_os_now_ns();
    bool has_unwatched = look_at_unwatched(d, false);
    uint64_t done_ns = tni_os_now_ns();
    uint64_t pause_ns = tni_pause_ns(done_ns - begun_ns, POLL_PAUSE, POLL_NS);
    d->poll_ns = has_unwatched ? done_ns + pause_ns : TNI_FOREVER;
}

static uint64_t due(struct tenond *t, struct tenond_domain *d, uint64_t now_ns)
{
    if (now_ns >= d->tick_ns)
        tick(t, d, now_ns);
    if (now_ns >= d->retry_ns)
        retry(t, d);
    if (now_ns >= d->poll_ns)
        poll_unwatched(d);
    if (now_ns >= d->expire_ns) {
        uint64_t next_ns = tni_ticket_expire(d->domain, now_ns);
        tenond_sweep_soon(d);
        d->expire_ns = TNI_MAX(next_ns, now_ns + RETRY_LEAST_NS);
    }
    uint64_t swept_ns = tenond_sweep_due(t, d, now_ns);
    uint64_t next_ns =
        TNI_MIN(TNI_MIN(d->tick_ns, swept_ns), TNI_MIN(d->retry_ns, d->expire_ns));
    next_ns = TNI_MIN(next_ns, d->poll_ns);
    return d->empty_ns != 0 ? TNI_MIN(next_ns, d->empty_ns + LINGER_NS) : next_ns;
}

uint64_t tenond_domains_due(struct tenond *t, uint64_t now_ns)
{
    if (now_ns >= t->missed_ns)
        tenond_adopt(t);
    uint64_t next_ns = t->missed_ns;
    for (struct tenond_domain *d = t->domains, *after; d != NULL; d = after) {
        after = d->next;
        if (makes_sense(d)) {
            uint64_t due_ns = due(t, d, now_ns);
            next_ns = TNI_MIN(next_ns, due_ns);
            note_members(d);
        }
        bool is_over = d->empty_ns != 0 && now_ns >= d->empty_ns + LINGER_NS;
        if (!makes_sense(d) || (is_over && give_up(t, d)))
            tenond_drop(t, d);
    }
    return next_ns;
}
