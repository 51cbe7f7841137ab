/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process: the table of seats.
 *
 * Nouns: seat, incarnation, thread (an announce record and its private side).
 * I1  A seat's word is moved by CAS only, and each FREE raises the incarnation.
 * I2  A seat is FREE only when its row, its announces and its bits in objects are all zero.
 * I3  A JOINING seat's word names the process that it waits for: the claimer; for a forked
 *     child the parent, until the child's CAS of just that word put its own name there. Only
 * who is named in the word writes the identity beside it, so a late child harms nobody.
 * Callers: api at join and leave; fork handlers; reaper for the rest. Death: at any point
 * leaves a seat JOINING, ALIVE or LEAVING whose process is dead; the reaper settles it.
 */
#include "process/process.h"

#include <stdlib.h>
#include <string.h>

#include "sync/sync.h"

_Thread_local uint32_t tni_thread_home TNI_TLS_INITIAL;

static _Atomic uint32_t thread_counter;

struct tni_thread *tni_thread_enter_slow(struct tn_domain *domain)
{
    uint32_t home = tni_thread_home;
    if (home == 0)
        home = atomic_fetch_add(&thread_counter, 1) % TNI_THREADS + 1;
    for (uint32_t tries = 0;; tries++) {
        for (uint32_t i = 0; i < TNI_THREADS; i++) {
            struct tni_thread *thread = &domain->threads[(home - 1 + i) % TNI_THREADS];
            if (atomic_load_explicit(&thread->busy, memory_order_relaxed) == 0 &&
                atomic_exchange_explicit(&thread->busy, 1, memory_order_acquire) == 0) {
                tni_thread_home = thread->number + 1;
                return thread;
            }
        }
        /* All are at work; operations are short, and none sleeps while it has a record. */
        if (tries > 16)
            tni_os_yield();
    }
}

static int sleep_on(struct tn_domain *d, _Atomic uint32_t *word, uint32_t seen,
                    uint64_t deadline_ns, bool is_through)
{
    enum { SLICE_NS = 100 * 1000 * 1000 };
    for (;;) {
        uint64_t now_ns = tni_os_now_ns();
        if (now_ns >= deadline_ns)
            return TN_ERR_TIMED_OUT; /* also when the word never stands still */
        if (!is_through && now_ns >= tni_interrupt_due_ns() && tni_interrupt_ask(now_ns) != 0)
            return TN_ERR_INTERRUPTED;
        if (atomic_load(word) != seen)
            return 0;
        uint64_t until_ns = deadline_ns - now_ns > SLICE_NS ? now_ns + SLICE_NS : deadline_ns;
        if (!is_through)
            until_ns = TNI_MIN(until_ns, tni_interrupt_due_ns());
        int status = tni_os_wait(word, seen, until_ns);
        if (status == TN_ERR_INTERRUPTED && !is_through)
            return tni_interrupt_ask(tni_os_now_ns());
        if (status != TN_ERR_TIMED_OUT)
            return 0;
        if (d->survive != NULL)
            d->survive(d);
        if (until_ns == deadline_ns)
            return TN_ERR_TIMED_OUT;
    }
}

int tni_process_sleep(struct tn_domain *d, _Atomic uint32_t *word, uint32_t seen,
                      uint64_t deadline_ns)
{
    return sleep_on(d, word, seen, deadline_ns, false);
}

int tni_process_sleep_through(struct tn_domain *d, _Atomic uint32_t *word, uint32_t seen,
                              uint64_t deadline_ns)
{
    return sleep_on(d, word, seen, deadline_ns, true);
}

void tni_process_clear_idle(struct tn_domain *d)
{
    for (uint32_t t = 0; d->seat != TNI_NO_SEAT && t < TNI_THREADS; t++) {
        struct tni_thread *thread = &d->threads[t];
        struct tni_announce *a = thread->announce;
        bool is_clear = tni_announce_is_clear(a) && atomic_load(&a->object) == 0;
        if (is_clear || atomic_exchange_explicit(&thread->busy, 1, memory_order_acquire) != 0)
            continue;
        atomic_store(&a->block, 0);
        atomic_store(&a->outer, 0);
        atomic_store(&a->object, 0);
        atomic_store(&a->commit_bytes, 0);
        atomic_store(&a->span, 1);
        tni_thread_leave(thread);
    }
}

void tni_process_let_recount(struct tni_thread *thread, tni_block block, uint32_t span)
{
    enum { MOST_NS = 100 * 1000 * 1000, NAP_NS = 50 * 1000 };
    uint64_t seen = atomic_load_explicit(thread->recounted, memory_order_relaxed);
    uint64_t now_ns = tni_os_now_ns(), until_ns = now_ns + MOST_NS;

    if ((uint32_t)seen - block.id >= span || seen == thread->waited_out)
        return;
    /* Asleep, not spinning: who recounts, and who is in its way, need the processor. */
    while (atomic_load_explicit(thread->recounted, memory_order_relaxed) == seen) {
        if (now_ns >= until_ns) {
            thread->waited_out = seen;
            return;
        }
        tni_os_sleep_until(now_ns + NAP_NS);
        now_ns = tni_os_now_ns();
    }
}

bool tni_process_is_announced(const struct tni_segment *s, const struct tni_thread *except,
                              tni_block block)
{
    uint32_t limit = tni_seat_limit(s), class_id = tni_block_class(block);

    for (uint32_t seat = 0; seat < limit; seat++) {
        uint64_t word = atomic_load(&tni_seat_at(s, seat)->word);
        uint32_t state = tni_seat_state(word);
        /*
         * The dead wait for nobody: two dead seats that name one block would wait for each
         * other.
         */
        if (state == TNI_SEAT_FREE || state == TNI_SEAT_REAPING)
            continue;
        for (uint32_t t = 0; t < TNI_THREADS; t++) {
            const struct tni_announce *a = tni_announce_at(s, seat, t);
            if (except != NULL && a == except->announce)
                continue;
            uint32_t first = atomic_load(&a->block);
            if (first != 0 && first >> 24 == class_id) {
                uint32_t span = atomic_load(&a->span);
                if (block.id >= first && block.id - first < TNI_MAX(span, 1))
                    return true;
            }
            if (atomic_load(&a->outer) == block.id)
                return true;
        }
    }
    return false;
}

int tni_process_no_seat(const struct tn_domain *domain)
{
    if (domain->is_closed)
        return tni_fail(TN_ERR_CLOSED, "this process has left the domain '%s'",
                        domain->segment.name);
    return tni_fail(TN_ERR_FORKED,
                    "process %d was forked without a seat in the domain '%s': %s", tni_os_pid(),
                    domain->segment.name, domain->child_reason);
}

/* ---- taking and giving back -------------------------------------------------------------- */

/*
 * I1: the claim and its owner are one word and the pid beside it, which is written before
 * anybody acts on it.
 */
static int claim_seat(const struct tni_segment *s, const struct tni_os_process *self,
                      uint32_t flags, uint64_t parent, uint32_t *ret_seat,
                      uint32_t *ret_incarnation)
{
    for (uint32_t seat = 0; seat < s->geometry.seats; seat++) {
        struct tni_seat *entry = tni_seat_at(s, seat);
        uint64_t word = atomic_load(&entry->word);
        if (tni_seat_state(word) != TNI_SEAT_FREE)
            continue;
        /*
         * The recoverer field carries the claimer's pid (at most 2^22) until the identity is
         * there.
         */
        uint64_t joining = tni_seat_word(tni_seat_incarnation(word), TNI_SEAT_JOINING,
                                         (uint32_t)self->pid & TNI_SEAT_NOBODY);
        if (!atomic_compare_exchange_strong(&entry->word, &word, joining))
            continue;
        TNI_KILL_POINT("join_claimed");
        tni_raise_limit(&s->header->seat_limit, seat + 1);
        TNI_PUT(entry->start_time, self->start_time);
        TNI_PUT(entry->image, self->image);
        TNI_PUT(entry->pid_space, self->pid_space);
        TNI_PUT(entry->joined_ns, tni_os_now_ns());
        atomic_store(&entry->flags, flags);
        atomic_store(&entry->parent, parent);
        atomic_store(&entry->bell_number, 0);
        atomic_store(&entry->bell, 0);
        atomic_store(&entry->bell_fd_armed, 0);
        tni_os_process_command(self->pid, entry->command, sizeof entry->command);
        atomic_store(&entry->pid, self->pid);
        *ret_seat = seat;
        *ret_incarnation = tni_seat_incarnation(word);
        return 0;
    }
    return tni_fail(TN_ERR_FULL, "all %u seats of the domain '%s' are taken", s->geometry.seats,
                    s->name);
}

uint32_t tni_process_count_dead(const struct tni_segment *s)
{
    uint32_t count = 0, limit = tni_seat_limit(s);
    for (uint32_t seat = 0; seat < limit; seat++) {
        uint32_t state = tni_seat_state(atomic_load(&tni_seat_at(s, seat)->word));
        if (state == TNI_SEAT_FREE)
            continue;
        int process = tni_process_seat_state(s, seat, true);
        count +=
            state == TNI_SEAT_REAPING || process == TNI_OS_DEAD || process == TNI_OS_EXECED;
    }
    return count;
}

static void sit(struct tn_domain *d, uint32_t seat, uint32_t incarnation)
{
    d->seat = seat;
    d->incarnation = incarnation;
    d->who = tni_who(seat, incarnation);
    d->me = tni_seat_at(&d->segment, seat);
    for (uint32_t t = 0; t < TNI_THREADS; t++) {
        d->threads[t].number = t;
        d->threads[t].announce = tni_announce_at(&d->segment, seat, t);
        d->threads[t].recounted = &d->segment.header->recounted;
        atomic_store(&d->threads[t].busy, 0);
    }
}

static struct tn_domain *all_domains;
static _Atomic uint32_t all_domains_busy;

static void lock_list(void)
{
    while (atomic_exchange_explicit(&all_domains_busy, 1, memory_order_acquire) != 0)
        tni_os_yield();
}
static void unlock_list(void)
{
    atomic_store_explicit(&all_domains_busy, 0, memory_order_release);
}

static int register_fork_handlers(void);

/* Private tables, sparse: what is never touched costs nothing. */
static int map_private(struct tn_domain *d)
{
    const struct tni_geometry *g = &d->segment.geometry;
    void *caches = NULL, *local = NULL, *mapped = NULL;
    int status;

    if ((status = tni_os_map_private(sizeof(struct tni_block_cache) * TNI_CLASSES * TNI_THREADS,
                                     &caches)) != 0)
        return status;
    if ((status = tni_os_map_private((uint64_t)g->total_blocks * 4, &local)) != 0 ||
        (status = tni_os_map_private(g->total_blocks / 8, &mapped)) != 0) {
        tni_os_unmap(caches, sizeof(struct tni_block_cache) * TNI_CLASSES * TNI_THREADS);
        tni_os_unmap(local, (uint64_t)g->total_blocks * 4);
        return status;
    }
    for (uint32_t t = 0; t < TNI_THREADS; t++)
        d->threads[t].caches = (struct tni_block_cache *)caches + (size_t)t * TNI_CLASSES;
    d->local = local;
    d->mapped = mapped;
    return 0;
}

static void unmap_private(struct tn_domain *d)
{
    const struct tni_geometry *g = &d->segment.geometry;
    for (uint32_t t = 0; t < TNI_THREADS; t++)
        while (d->threads[t].spares != NULL)
            free(tni_thread_take_spare(&d->threads[t]));
    tni_os_unmap(d->threads[0].caches,
                 sizeof(struct tni_block_cache) * TNI_CLASSES * TNI_THREADS);
    tni_os_unmap(d->local, (uint64_t)g->total_blocks * 4);
    tni_os_unmap(d->mapped, g->total_blocks / 8);
    tni_os_unmap(d->mappings, d->mappings_bytes);
}

int tni_process_join(struct tni_segment *segment, uint32_t flags, struct tn_domain **ret_domain)
{
    struct tni_os_process self;
    uint32_t seat, incarnation;
    int status = tni_os_self(&self);
    if (status != 0 || (status = register_fork_handlers()) != 0)
        return status;
    struct tn_domain *d =
        aligned_alloc(TNI_CACHE_LINE, tni_align_up(sizeof *d, TNI_CACHE_LINE));
    if (d == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "no private memory for a domain");
    memset(d, 0, sizeof *d);
    d->segment = *segment;
    d->child_seat = TNI_NO_SEAT;
    d->child_reason = "";
    d->is_manager = (flags & TNI_SEAT_MANAGER) != 0;
    atomic_store(&d->poll_fd, -1);
    atomic_store(&d->keepers, 1);
    if ((status = map_private(d)) != 0)
        goto free_domain;
    if ((status = claim_seat(segment, &self, flags, 0, &seat, &incarnation)) != 0)
        goto unmap;
    sit(d, seat, incarnation);
    TNI_KILL_POINT("join_identity_written");
    uint64_t joining =
        tni_seat_word(incarnation, TNI_SEAT_JOINING, (uint32_t)self.pid & TNI_SEAT_NOBODY);
    if (!atomic_compare_exchange_strong(&d->me->word, &joining,
                                        tni_seat_word(incarnation, TNI_SEAT_ALIVE, 0))) {
        status = tni_fail(TN_ERR_CORRUPT, "seat %u was taken from this process while it joined",
                          seat);
        goto unmap;
    }
    lock_list();
    d->next = all_domains;
    all_domains = d;
    unlock_list();
    *ret_domain = d;
    return 0;

unmap:
    unmap_private(d);
free_domain:
    free(d);
    return status;
}

void tni_process_begin_leave(struct tn_domain *d)
{
    if (d->seat != TNI_NO_SEAT)
        atomic_store(&d->me->word, tni_seat_word(d->incarnation, TNI_SEAT_LEAVING,
                                                 (uint32_t)tni_os_pid() & TNI_SEAT_NOBODY));
}

void tni_process_leave(struct tn_domain *d)
{
    lock_list();
    for (struct tn_domain **at = &all_domains; *at != NULL; at = &(*at)->next)
        if (*at == d) {
            *at = d->next;
            break;
        }
    unlock_list();
    if (d->seat != TNI_NO_SEAT) {
        atomic_store(&d->me->pid, 0);
        TNI_KILL_POINT("leave_before_free");
        /* I2 was established by the rooms above, while the seat was LEAVING. */
        atomic_store(&d->me->word, tni_seat_word(d->incarnation + 1, TNI_SEAT_FREE, 0));
    }
    d->seat = TNI_NO_SEAT;
    d->is_closed = true;
    tni_os_close(atomic_exchange(&d->poll_fd, -1));
    /*
     * What is still mapped for the keepers must not be found, and so joined, as a living
     * domain.
     */
    tni_segment_close(&d->segment);
}

void tni_process_keep(struct tn_domain *d)
{
    atomic_fetch_add_explicit(&d->keepers, 1, memory_order_relaxed);
}

void tni_process_unkeep(struct tn_domain *d)
{
    if (atomic_fetch_sub_explicit(&d->keepers, 1, memory_order_acq_rel) == 1)
        tni_process_free(d);
}

void tni_process_free(struct tn_domain *d)
{
    unmap_private(d);
    tni_segment_detach(&d->segment);
    free(d);
}

void tni_process_hook(struct tn_domain *d, const struct tni_fork_hooks *hooks)
{
    if (d->hook_count < TNI_FORK_HOOKS)
        d->hooks[d->hook_count++] = *hooks;
}

/* ---- seats of others --------------------------------------------------------------------- */

/*
 * What a number alone tells: dead, or unknown; and nothing in another pid namespace. 0 is a
 * seat that nobody ever had, whose claimer wrote no namespace yet.
 */
static int pid_state(int32_t pid, uint64_t pid_space)
{
    struct tni_os_process self;
    int fd;
    if (pid_space != 0 && (tni_os_self(&self) != 0 || self.pid_space != pid_space))
        return TNI_OS_UNKNOWN;
    int status = tni_os_process_open(pid, &fd);
    if (status != 0)
        return status == TN_ERR_NOT_FOUND ? TNI_OS_DEAD : TNI_OS_UNKNOWN;
    bool is_gone = tni_os_poll(&fd, 1, 0) == 0;
    tni_os_close(fd);
    return is_gone ? TNI_OS_DEAD : TNI_OS_UNKNOWN;
}

int tni_process_seat_state(const struct tni_segment *s, uint32_t seat, bool check_image)
{
    const struct tni_seat *entry = tni_seat_at(s, seat);
    uint64_t word = atomic_load(&entry->word);
    if (tni_seat_state(word) == TNI_SEAT_FREE)
        return TNI_OS_DEAD;
    struct tni_os_process process = {.pid = atomic_load(&entry->pid),
                                     .start_time = TNI_LOOK(entry->start_time),
                                     .image = TNI_LOOK(entry->image),
                                     .pid_space = TNI_LOOK(entry->pid_space)};
    /* Between the claim and the identity, or leaving: the word names the process (I3). */
    int32_t named = (int32_t)tni_seat_recoverer(word);
    bool is_by_word =
        process.pid == 0 || (tni_seat_state(word) == TNI_SEAT_JOINING && process.pid != named);
    int state = is_by_word ? pid_state(named, process.pid_space)
                           : tni_os_process_state(&process, check_image);
    /* The seat may have changed hands while we looked: then this was nobody's state. */
    atomic_thread_fence(memory_order_acquire);
    if (state != TNI_OS_ALIVE &&
        (atomic_load(&entry->pid) != process.pid || atomic_load(&entry->word) != word))
        return TNI_OS_UNKNOWN;
    return state;
}

/* FREE: nobody's, by its form or by now. */
static uint32_t state_of(const struct tni_segment *s, uint64_t who)
{
    uint32_t seat = tni_who_seat(who);
    if ((who & 0xffff) != 1 || !tni_geometry_has_seat(&s->geometry, seat))
        return TNI_SEAT_FREE;
    uint64_t word = atomic_load(&tni_seat_at(s, seat)->word);
    return tni_seat_incarnation(word) == tni_who_incarnation(who) ? tni_seat_state(word)
                                                                  : TNI_SEAT_FREE;
}

bool tni_process_who_lives(const struct tni_segment *s, uint64_t who)
{
    uint32_t state = state_of(s, who);
    return state != TNI_SEAT_FREE && state != TNI_SEAT_REAPING;
}

/* ---- claims ------------------------------------------------------------------------------ */

static bool can_give_back(const struct tn_domain *d, uint64_t who, bool has_reaped)
{
    uint32_t state = state_of(&d->segment, who);
    return state != TNI_SEAT_FREE && (has_reaped || state != TNI_SEAT_REAPING);
}

bool tni_process_claim(struct tn_domain *d, _Atomic uint64_t *claim, _Atomic uint64_t *turn,
                       uint64_t from, bool has_reaped)
{
    uint64_t seen = atomic_load(turn);
    if (seen == d->who || !atomic_compare_exchange_strong(turn, &seen, d->who))
        return false;
    uint64_t who = from;
    if (atomic_compare_exchange_strong(claim, &who, d->who) || who == d->who ||
        (!can_give_back(d, who, has_reaped) &&
         atomic_compare_exchange_strong(claim, &who, d->who)))
        return true;
    atomic_exchange(turn, 0);
    return false;
}

void tni_process_unclaim(struct tn_domain *d, _Atomic uint64_t *claim, _Atomic uint64_t *turn)
{
    tni_claim_release(claim, d->who);
    atomic_exchange(turn, 0); /* and what tni_wait_notify() asks for */
}

/* ---- seats of all ------------------------------------------------------------------------ */

uint32_t tni_process_count(const struct tni_segment *s)
{
    uint32_t count = 0, limit = tni_seat_limit(s);
    for (uint32_t seat = 0; seat < limit; seat++) {
        const struct tni_seat *entry = tni_seat_at(s, seat);
        count += tni_seat_state(atomic_load(&entry->word)) != TNI_SEAT_FREE &&
                 (atomic_load(&entry->flags) & TNI_SEAT_MANAGER) == 0;
    }
    return count;
}

uint32_t tni_seat_set_count(const struct tni_seat_set *set, uint32_t except)
{
    uint32_t count = 0;
    for (uint32_t w = 0; w < TNI_SEAT_WORDS; w++)
        count += (uint32_t)__builtin_popcountll(atomic_load(&set->word[w]));
    return count - (except < TNI_MAX_SEATS && tni_seat_set_has(set, except));
}

/* ---- fork -------------------------------------------------------------------------------- */
/*
 * Before fork() the parent takes a seat for the child, in its own name (I3), and has every room
 * write the child's holds there. After fork() the parent waits on a pipe until the child has
 * put its own name on the seat, or is known not to exist; so that no hold is ever written for a
 * block that the parent, running on, has already given back, and a failed fork() leaves
 * nothing.
 */
static int fork_pipe[2] = {-1, -1};
static void (*joined_hook)(struct tn_domain *);

void tni_process_set_joined(void (*joined)(struct tn_domain *)) { joined_hook = joined; }

/* A seat for the child in one domain, with everything that the parent holds. */
static void prepare_child(struct tn_domain *d, const struct tni_os_process *self)
{
    uint32_t incarnation;
    if (claim_seat(&d->segment, self, TNI_SEAT_FORKED, d->who, &d->child_seat, &incarnation) !=
        0) {
        d->child_reason = "every seat was taken";
        tni_log(TNI_LOG_WARNING, "fork: the child gets no seat: %s", tn_error_detail());
        return;
    }
    d->child_word =
        tni_seat_word(incarnation, TNI_SEAT_JOINING, (uint32_t)self->pid & TNI_SEAT_NOBODY);
    TNI_KILL_POINT("fork_seat_claimed");
    for (uint32_t h = 0; h < d->hook_count; h++)
        if (d->hooks[h].prepare != NULL && d->hooks[h].prepare(d, d->child_seat) != 0)
            tni_log(TNI_LOG_WARNING, "fork: the child gets no full share of domain '%s': %s",
                    d->segment.name, tn_error_detail());
    TNI_KILL_POINT("fork_holds_written");
}

static bool has_free_seat(const struct tni_segment *s)
{
    uint32_t seat = 0;
    while (seat < s->geometry.seats &&
           tni_seat_state(atomic_load(&tni_seat_at(s, seat)->word)) != TNI_SEAT_FREE)
        seat++;
    return seat < s->geometry.seats;
}

void tni_process_make_room(struct tn_domain *d)
{
    if (d->seat == TNI_NO_SEAT || d->relieve == NULL || has_free_seat(&d->segment))
        return;
    atomic_store(&d->relieve_ns, 0);
    (void)d->relieve(d);
}

static void fork_prepare(void)
{
    struct tni_os_process self;
    lock_list();
    /* Before the thread records are taken: who settles needs one. */
    for (struct tn_domain *d = all_domains; d != NULL; d = d->next)
        tni_process_make_room(d);
    /* Every thread's operation ends first, so that the child inherits no half of one. */
    for (struct tn_domain *d = all_domains; d != NULL; d = d->next) {
        for (uint32_t t = 0; t < TNI_THREADS; t++)
            while (atomic_exchange_explicit(&d->threads[t].busy, 1, memory_order_acquire) != 0)
                tni_os_yield();
        while (atomic_exchange_explicit(&d->mappings_busy, 1, memory_order_acquire) != 0)
            tni_os_yield();
        d->child_seat = TNI_NO_SEAT;
        if (d->seat != TNI_NO_SEAT)
            d->child_reason = "no descriptor was left for it";
    }
    if (all_domains == NULL || tni_os_self(&self) != 0 || tni_os_pipe(fork_pipe) != 0)
        return;
    for (struct tn_domain *d = all_domains; d != NULL; d = d->next)
        if (d->seat != TNI_NO_SEAT)
            prepare_child(d, &self);
}

static void release_threads(void)
{
    for (struct tn_domain *d = all_domains; d != NULL; d = d->next) {
        atomic_store_explicit(&d->mappings_busy, 0, memory_order_release);
        for (uint32_t t = 0; t < TNI_THREADS; t++)
            atomic_store_explicit(&d->threads[t].busy, 0, memory_order_release);
    }
}

/*
 * A seat that still waits for a child that will not come: name nobody in it, so that it counts
 * as dead. If its word has moved on, it is none of our business.
 */
static void disown_child(struct tn_domain *d)
{
    uint64_t word = d->child_word;
    if (d->child_seat == TNI_NO_SEAT)
        return;
    _Atomic uint64_t *seat = &tni_seat_at(&d->segment, d->child_seat)->word;
    atomic_compare_exchange_strong(seat, &word, word | TNI_SEAT_NOBODY);
}

static void fork_parent(void)
{
    char byte;
    if (fork_pipe[0] >= 0) {
        tni_os_close(fork_pipe[1]);
        int got;
        do {
            tni_os_poll(&fork_pipe[0], 1, TN_FOREVER);
            got = tni_os_read(fork_pipe[0], &byte, 1);
        } while (got == TN_ERR_TIMED_OUT);
        tni_os_close(fork_pipe[0]);
        fork_pipe[0] = fork_pipe[1] = -1;
        /* fork() failed, or the child was killed early on, or it could not sit down. */
        for (struct tn_domain *d = all_domains; d != NULL; d = d->next)
            disown_child(d);
    }
    release_threads();
    unlock_list();
}

/* I3. The seat is ours from the CAS on, for as long as we live. */
static void sit_as_child(struct tn_domain *d, uint32_t seat, const struct tni_os_process *self)
{
    struct tni_seat *entry = tni_seat_at(&d->segment, seat);
    uint64_t word = d->child_word;
    uint32_t incarnation = tni_seat_incarnation(word);
    uint64_t named =
        tni_seat_word(incarnation, TNI_SEAT_JOINING, (uint32_t)self->pid & TNI_SEAT_NOBODY);
    if (!atomic_compare_exchange_strong(&entry->word, &word, named)) {
        d->child_reason = "its parent died, and was settled together with it";
        return;
    }
    TNI_KILL_POINT("fork_child_claimed");
    TNI_PUT(entry->start_time, self->start_time);
    TNI_PUT(entry->image, self->image);
    atomic_store(&entry->pid, self->pid);
    TNI_KILL_POINT("fork_child_named");
    atomic_store(&entry->word, tni_seat_word(incarnation, TNI_SEAT_ALIVE, 0));
    sit(d, seat, incarnation);
}

static void fork_child(void)
{
    struct tni_os_process self;
    if (fork_pipe[0] >= 0)
        tni_os_close(fork_pipe[0]); /* it may be the descriptor that is needed now */
    int known = tni_os_self(&self);

    for (struct tn_domain *d = all_domains; d != NULL; d = d->next) {
        uint32_t seat = d->child_seat;
        d->child_seat = TNI_NO_SEAT;
        d->seat = TNI_NO_SEAT;
        tni_os_close(atomic_exchange(&d->poll_fd, -1));
        if (known != 0)
            d->child_reason = "no descriptor was left to find out its identity";
        if (seat == TNI_NO_SEAT || known != 0 || fork_pipe[1] < 0)
            continue;
        sit_as_child(d, seat, &self);
    }
    for (struct tn_domain *d = all_domains; d != NULL; d = d->next) {
        for (uint32_t h = 0; h < d->hook_count; h++)
            if (d->hooks[h].child != NULL)
                d->hooks[h].child(d);
        if (d->seat != TNI_NO_SEAT && joined_hook != NULL)
            joined_hook(d);
    }
    if (fork_pipe[1] >= 0) {
        tni_os_write(fork_pipe[1], "", 1);
        tni_os_close(fork_pipe[1]);
        fork_pipe[0] = fork_pipe[1] = -1;
    }
    release_threads();
    unlock_list();
}

static int register_fork_handlers(void)
{
    static _Atomic uint32_t done;
    if (atomic_exchange(&done, 1) != 0)
        return 0;
    return tni_os_at_fork(fork_prepare, fork_parent, fork_child);
}
