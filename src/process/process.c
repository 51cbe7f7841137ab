/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process: the table of seats.
 *
 * Nouns: seat, incarnation, thread (an announce record and its private side), witness.
 * I1  A seat that is FREE or JOINING is taken by CAS. The word of a seat that is taken is
 *     written by its process, by plain stores, and by its recoverer once that process is dead.
 *     Each FREE raises the incarnation.
 * I2  A seat is FREE only when its row, its announces and its bits in objects are all zero.
 * I3  A JOINING seat's word names the process that it waits for: the claimer; for a forked
 *     child the parent, until the child's CAS of just that word put its own name there. Only
 *     who is named in the word writes the identity beside it, so a late child harms nobody.
 *     UNBORN, and no pid: fork() failed, and nobody has died here.
 * I4  A seat whose word says so has a witness, of a number that is this incarnation's alone,
 *     from before the CAS that took it until after it is FREE. The witness says whether its
 *     process lives, also across exec and from another namespace; the pid is then a name, and
 *     may only say sooner that it ended. A forked child inherits the witness that its parent
 *     took for it. Where none can be had, pid and start time say it, and to nobody in another
 *     namespace.
 * Callers: api at join and leave; fork handlers; reaper for the rest. Death: at any point
 * leaves a seat JOINING, ALIVE or LEAVING whose process is dead; the reaper settles it.
 *
 * It is one file since joining, fork and leaving move one word by one set of rules.
 */
#include "process/process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
            tni_os_back_off(tries - 16);
    }
}

void tni_thread_take(struct tni_thread *thread)
{
    for (uint32_t tries = 0;
         atomic_exchange_explicit(&thread->busy, 1, memory_order_acquire) != 0; tries++)
        tni_os_back_off(tries);
}

void tni_thread_come_back(struct tni_thread *thread)
{
    uint32_t seen = TNI_ASIDE;
    while (!atomic_compare_exchange_strong_explicit(
        &thread->aside, &seen, TNI_ASIDE_NOT, memory_order_acquire, memory_order_relaxed)) {
        if (seen == TNI_ASIDE_NOT)
            return; /* in a child, which has no such thread: it cannot be */
        tni_os_wait(&thread->aside, TNI_ASIDE_FORKING, TNI_FOREVER);
        seen = TNI_ASIDE;
    }
}

#define SLICE_NS UINT64_C(100000000) /* of a wait */

/* The next one begins after a look. */
static void end_slice(struct tn_domain *d, struct tni_wait *wait)
{
    if (d->survive != NULL && !wait->is_settling)
        d->survive(d);
    wait->look_ns = tni_os_now_ns() + SLICE_NS;
}

int tni_process_sleep(struct tn_domain *d, _Atomic uint32_t *word, uint32_t seen,
                      struct tni_wait *wait)
{
    bool is_over = false; /* the slice */
    for (;;) {
        uint64_t now_ns = tni_os_now_ns();
        if (wait->look_ns == 0)
            wait->look_ns = now_ns + SLICE_NS;
        /* By the clock: whoever is woken time and again has its slices as well. */
        is_over |= now_ns >= wait->look_ns;
        if (is_over)
            end_slice(d, wait);
        if (now_ns >= wait->deadline_ns) {
            if (!is_over || wait->is_late)
                return TN_ERR_TIMED_OUT; /* also when the word never stands still */
            wait->is_late = true;
        }
        if (!wait->is_through && now_ns >= tni_interrupt_due_ns() &&
            tni_interrupt_ask(now_ns) != 0)
            return TN_ERR_INTERRUPTED;
        if (is_over || atomic_load(word) != seen)
            return 0; /* after each slice, the last one too, the caller checks its condition
                         again: to settle a death may have changed it */
        uint64_t until_ns = TNI_MIN(wait->look_ns, wait->deadline_ns);
        if (!wait->is_through)
            until_ns = TNI_MIN(until_ns, tni_interrupt_due_ns());
        int status = tni_os_wait(word, seen, until_ns);
        if (status == TN_ERR_INTERRUPTED && !wait->is_through)
            return tni_interrupt_ask(tni_os_now_ns());
        if (status != TN_ERR_TIMED_OUT)
            return 0;
        is_over = true;
    }
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

void tni_process_name_recounted(struct tn_domain *d, uint32_t id)
{
    _Atomic uint64_t *recounted = &d->segment.header->recounted;
    uint64_t seen = atomic_load_explicit(recounted, memory_order_relaxed);
    if ((uint32_t)seen != id)
        atomic_store_explicit(recounted, ((seen >> 32) + 1) << 32 | id, memory_order_relaxed);
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
    if (tni_process_is_copy(domain))
        tni_process_set_apart();
    if (domain->is_closed)
        return tni_fail(TN_ERR_CLOSED, "this process has left the domain '%s'",
                        domain->segment.name);
    return tni_fail(TN_ERR_FORKED,
                    "process %d was forked without a seat in the domain '%s': %s", tni_os_pid(),
                    domain->segment.name, domain->child_reason);
}

/* ---- taking and giving back -------------------------------------------------------------- */

/* What claims a seat, and what it has then. */
struct claim {
    struct tni_os_process process;
    uint32_t flags;
    uint64_t parent;
    const char *command; /* as its parent's seat has it; NULL: to be read */
    void *witness;       /* NULL: none */
    uint32_t seat;
    uint64_t word; /* JOINING, of this process */
};

static uint64_t word_of(uint32_t incarnation, uint32_t state, int32_t pid, const void *witness)
{
    return tni_seat_word(incarnation, state,
                         (uint32_t)pid | (witness != NULL ? TNI_SEAT_WITNESSED : 0));
}

/*
 * I1: the claim and its owner are one word and the pid beside it, which is written before
 * anybody acts on it. I4: a witness comes before, so that nobody finds a seat that should have
 * one without it.
 * @return 0, TN_ERR_EXISTS: somebody was faster
 */
static int claim_word(const struct tni_segment *s, struct claim *c, uint64_t word)
{
    _Atomic uint64_t *at = &tni_seat_at(s, c->seat)->word;
    uint32_t incarnation = tni_seat_incarnation(word);
    c->witness = NULL;
    int status = tni_os_witness_take(s->control_fd, tni_witness_number(c->seat, incarnation),
                                     &c->witness);
    if (status == TN_ERR_EXISTS)
        return status;
    if (status != 0)
        tni_log(TNI_LOG_INFO, "seat %u has no witness: %s", c->seat, tn_error_detail());
    TNI_KILL_POINT("join_witnessed");
    c->word = word_of(incarnation, TNI_SEAT_JOINING, c->process.pid, c->witness);
    if (atomic_compare_exchange_strong(at, &word, c->word))
        return 0;
    tni_os_witness_drop(c->witness);
    return TN_ERR_EXISTS;
}

static void write_identity(struct tni_seat *entry, const struct claim *c)
{
    TNI_PUT(entry->start_time, c->process.start_time);
    TNI_PUT(entry->image, c->process.image);
    TNI_PUT(entry->pid_space, c->process.pid_space);
    TNI_PUT(entry->joined_ns, tni_os_shared_ns());
    atomic_store(&entry->flags, c->flags);
    atomic_store(&entry->parent, c->parent);
    atomic_store(&entry->bell_number, 0);
    atomic_store(&entry->bell, 0);
    atomic_store(&entry->bell_fd_armed, 0);
    if (c->command != NULL)
        memcpy(entry->command, c->command, sizeof entry->command);
    else
        tni_os_process_command(c->process.pid, entry->command, sizeof entry->command);
    /* The parent may end before its child is named here: then the witness alone says who lives.
     */
    bool is_by_witness = (c->flags & TNI_SEAT_FORKED) != 0 && c->witness != NULL;
    atomic_store(&entry->pid, is_by_witness ? 0 : c->process.pid);
}

static int claim_seat(const struct tni_segment *s, struct claim *c)
{
    for (uint32_t seat = 0; seat < s->geometry.seats; seat++) {
        struct tni_seat *entry = tni_seat_at(s, seat);
        uint64_t word = atomic_load(&entry->word);
        c->seat = seat;
        if (tni_seat_state(word) != TNI_SEAT_FREE || claim_word(s, c, word) != 0)
            continue;
        TNI_KILL_POINT("join_claimed");
        tni_raise_limit(&s->header->seat_limit, seat + 1);
        write_identity(entry, c);
        return 0;
    }
    return tni_fail(TN_ERR_FULL, "all %u seats of the domain '%s' are taken", s->geometry.seats,
                    s->name);
}

static void sit(struct tn_domain *d, uint32_t seat, uint32_t incarnation, void *witness)
{
    d->witness = witness;
    d->seat = seat;
    d->clock_ahead_ns = (uint64_t)tni_os_clock_ahead_ns();
    d->incarnation = incarnation;
    d->who = tni_who(seat, incarnation);
    d->me = tni_seat_at(&d->segment, seat);
    d->row = tni_row_at(&d->segment, seat, 0);
    for (uint32_t t = 0; t < TNI_THREADS; t++) {
        d->threads[t].number = t;
        d->threads[t].announce = tni_announce_at(&d->segment, seat, t);
        d->threads[t].recounted = &d->segment.header->recounted;
        atomic_store(&d->threads[t].busy, 0);
    }
}

static struct tn_domain *all_domains;
static struct tni_mutex all_domains_lock;

static void lock_list(void) { tni_mutex_lock(&all_domains_lock); }
static void unlock_list(void) { tni_mutex_unlock(&all_domains_lock); }

static int register_fork_handlers(void);

static void note_reason(struct tn_domain *d, const char *why)
{
    snprintf(d->child_reason, sizeof d->child_reason, "%s", why);
}

/* reason: why it has no seat; NULL: as its parent said */
static void forget_parent(struct tn_domain *d, const char *reason)
{
    d->seat = TNI_NO_SEAT;
    d->witness = NULL; /* is not mapped here */
    if (reason != NULL)
        note_reason(d, reason);
    tni_process_bell_close(d);
}

static void run_child_hooks(struct tn_domain *d)
{
    for (uint32_t h = 0; h < d->hook_count; h++)
        if (d->hooks[h].child != NULL)
            d->hooks[h].child(d);
}

static void lock_rooms(struct tn_domain *d)
{
    for (uint32_t h = 0; h < d->hook_count; h++)
        if (d->hooks[h].lock != NULL)
            d->hooks[h].lock(d);
}

static void unlock_rooms(struct tn_domain *d, bool in_child)
{
    for (uint32_t h = 0; h < d->hook_count; h++)
        if (d->hooks[h].unlock != NULL)
            d->hooks[h].unlock(d, in_child);
}

/* Its parent may have had other threads, in the middle of what they never finish here. */
void tni_process_set_apart(void)
{
    tni_mutex_reset(&all_domains_lock);
    tni_os_mark();
    for (struct tn_domain *d = all_domains; d != NULL; d = d->next) {
        forget_parent(d, "_Fork() and clone() run no handlers, so it could take none");
        for (uint32_t t = 0; t < TNI_THREADS; t++) {
            atomic_store(&d->threads[t].aside, TNI_ASIDE_NOT);
            tni_thread_leave(&d->threads[t]);
        }
        unlock_rooms(d, true);
        run_child_hooks(d);
    }
}

/* Before a process that may be such a child sits down, or forks, as if the seats were its own.
 */
static void leave_copies(void)
{
    if (all_domains != NULL && tni_process_is_copy(all_domains))
        tni_process_set_apart();
}

void tni_process_for_each(void (*each)(struct tn_domain *domain))
{
    leave_copies();
    lock_list();
    for (struct tn_domain *d = all_domains; d != NULL; d = d->next)
        each(d);
    unlock_list();
}

/* `mapped`, and `roles` behind it. */
static uint64_t mapped_bytes(const struct tni_geometry *g)
{
    return tni_align_up(g->total_blocks / 8, TNI_CACHE_LINE) +
           (uint64_t)g->objects * sizeof(uint32_t);
}

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
        (status = tni_os_map_private(mapped_bytes(g), &mapped)) != 0) {
        tni_os_unmap(caches, sizeof(struct tni_block_cache) * TNI_CLASSES * TNI_THREADS);
        tni_os_unmap(local, (uint64_t)g->total_blocks * 4);
        return status;
    }
    for (uint32_t t = 0; t < TNI_THREADS; t++)
        d->threads[t].caches = (struct tni_block_cache *)caches + (size_t)t * TNI_CLASSES;
    d->local = local;
    d->mapped = mapped;
    d->roles = (void *)((uint8_t *)mapped + tni_align_up(g->total_blocks / 8, TNI_CACHE_LINE));
    d->is_empty_in_children = tni_os_empty_in_children(caches, sizeof(struct tni_block_cache) *
                                                                   TNI_CLASSES * TNI_THREADS) &&
                              tni_os_empty_in_children(mapped, mapped_bytes(g));
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
    tni_os_unmap(d->mapped, mapped_bytes(g));
}

/*
 * With the list of domains in hand: a child that is forked meanwhile would have the witness
 * too.
 */
static int claim_for_us(const struct tni_segment *s, struct claim *c)
{
    lock_list();
    int status = claim_seat(s, c);
    if (status == 0 && c->witness != NULL)
        tni_os_witness_keep(c->witness);
    unlock_list();
    return status;
}

uint64_t tni_process_word(const struct tn_domain *d)
{
    return word_of(d->incarnation, TNI_SEAT_ALIVE, 0, d->witness);
}

int tni_process_join(struct tni_segment *segment, uint32_t flags, struct tn_domain **ret_domain)
{
    struct claim claim = {.flags = flags};
    leave_copies();
    int status = tni_os_check_waits();
    if (status == 0)
        status = tni_os_self(&claim.process);
    if (status != 0 || (status = register_fork_handlers()) != 0)
        return status;
    struct tn_domain *d =
        aligned_alloc(TNI_CACHE_LINE, tni_align_up(sizeof *d, TNI_CACHE_LINE));
    if (d == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "no private memory for a domain");
    memset(d, 0, sizeof *d);
    d->segment = *segment;
    d->mark = tni_os_mark();
    d->child_seat = TNI_NO_SEAT;
    d->is_manager = (flags & TNI_SEAT_MANAGER) != 0;
    atomic_store(&d->poll_fd, -1);
    atomic_store(&d->keepers, 1);
    if ((status = map_private(d)) != 0)
        goto free_domain;
    if ((status = claim_for_us(segment, &claim)) != 0)
        goto unmap;
    sit(d, claim.seat, tni_seat_incarnation(claim.word), claim.witness);
    TNI_KILL_POINT("join_identity_written");
    if (!atomic_compare_exchange_strong(&d->me->word, &claim.word, tni_process_word(d))) {
        status = tni_fail(TN_ERR_CORRUPT, "seat %u was taken from this process while it joined",
                          claim.seat);
        goto drop;
    }
    lock_list();
    d->next = all_domains;
    all_domains = d;
    unlock_list();
    *ret_domain = d;
    return 0;

drop:
    tni_os_witness_drop(d->witness);
unmap:
    unmap_private(d);
free_domain:
    free(d);
    return status;
}

void tni_process_begin_leave(struct tn_domain *d)
{
    if (d->seat != TNI_NO_SEAT)
        atomic_store(&d->me->word,
                     word_of(d->incarnation, TNI_SEAT_LEAVING, tni_os_pid(), d->witness));
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
        TNI_KILL_POINT("leave_freed");
    }
    tni_os_witness_drop(d->witness); /* I4: no earlier */
    d->witness = NULL;
    d->seat = TNI_NO_SEAT;
    d->is_closed = true;
    tni_process_bell_close(d);
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
    for (uint32_t h = 0; h < d->hook_count; h++)
        if (d->hooks[h].free != NULL)
            d->hooks[h].free(d);
    unmap_private(d);
    tni_segment_detach(&d->segment);
    free(d);
}

void tni_process_hook(struct tn_domain *d, const struct tni_fork_hooks *hooks)
{
    if (d->hook_count < TNI_FORK_HOOKS)
        d->hooks[d->hook_count++] = *hooks;
}

/* ---- claims ------------------------------------------------------------------------------ */

static bool can_give_back(const struct tn_domain *d, uint64_t who, bool has_reaped)
{
    uint32_t state = tni_process_who_state(&d->segment, who);
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

/* ---- fork -------------------------------------------------------------------------------- */
/*
 * Before fork() the parent takes a seat for the child, in its own name (I3), and has every room
 * write the child's holds there; so that no hold is ever written for a block that the parent,
 * running on, has already given back. After fork() the parent drops its mapping of the child's
 * witness. The child has the only one then, so the seat counts as dead when the child is gone,
 * or when fork() failed and there is none. The parent does not wait for the child.
 *
 * Without a witness nobody could tell: the parent waits on a pipe until the child has put its
 * own name on the seat, or is known not to exist, and then disowns the seat.
 */
static int fork_pipe[2] = {-1, -1};
static void (*joined_hook)(struct tn_domain *);

void tni_process_set_joined(void (*joined)(struct tn_domain *)) { joined_hook = joined; }

static bool has_free_seat(const struct tni_segment *s)
{
    uint32_t seat = 0;
    while (seat < s->geometry.seats &&
           tni_seat_state(atomic_load(&tni_seat_at(s, seat)->word)) != TNI_SEAT_FREE)
        seat++;
    return seat < s->geometry.seats;
}

/* Every seat was taken: settle the dead. @return whether to look for a seat once more */
static bool settle_for_seat(struct tn_domain *d, struct tni_seat_wait *wait)
{
    if (d->relieve == NULL)
        return false;
    atomic_store(&d->relieve_ns, 0);
    (void)d->relieve(d);
    return tni_process_await_seat(&d->segment, wait);
}

void tni_process_make_room(struct tn_domain *d)
{
    struct tni_seat_wait wait = {0};
    while (d->seat != TNI_NO_SEAT && !has_free_seat(&d->segment) && settle_for_seat(d, &wait)) {
    }
}

static void note_full(struct tn_domain *d)
{
    uint32_t dead = tni_process_count_dead(&d->segment);
    if (dead == 0)
        note_reason(d, "every seat was taken");
    else
        snprintf(
            d->child_reason, sizeof d->child_reason,
            "every seat was taken, %u of them by processes that have ended and that nobody "
            "has settled",
            dead);
    tni_log(TNI_LOG_WARNING, "fork: the child gets no seat: %s", d->child_reason);
}

/*
 * A seat for the child in one domain. pre: the thread records are not taken yet: who settles
 * needs one
 */
static void claim_for_child(struct tn_domain *d, const struct tni_os_process *self)
{
    struct tni_seat_wait wait = {0};
    struct claim claim = {.process = *self,
                          .flags = TNI_SEAT_FORKED,
                          .parent = d->who,
                          .command = d->me->command};
    int status;
    while ((status = claim_seat(&d->segment, &claim)) != 0 && settle_for_seat(d, &wait)) {
    }
    if (status != 0) {
        note_full(d);
        return;
    }
    TNI_KILL_POINT("fork_seat_claimed");
    if (claim.witness == NULL && fork_pipe[0] < 0 && tni_os_pipe(fork_pipe) != 0) {
        /*
         * Without a witness and without a pipe, nobody could tell a seat whose child lives from
         * one whose fork() failed. No hold is written for the child yet: free the seat again.
         */
        note_reason(d, tn_error_detail());
        uint64_t word = claim.word,
                 free = tni_seat_word(tni_seat_incarnation(word) + 1, TNI_SEAT_FREE, 0);
        atomic_compare_exchange_strong(&tni_seat_at(&d->segment, claim.seat)->word, &word,
                                       free);
        return;
    }
    d->child_seat = claim.seat;
    d->child_word = claim.word;
    d->child_witness = claim.witness;
}

/* Everything that the parent holds becomes the child's too. */
static void give_child(struct tn_domain *d)
{
    if (d->child_seat == TNI_NO_SEAT)
        return;
    for (uint32_t h = 0; h < d->hook_count; h++)
        if (d->hooks[h].prepare != NULL && d->hooks[h].prepare(d, d->child_seat) != 0)
            tni_log(TNI_LOG_WARNING, "fork: the child gets no full share of domain '%s': %s",
                    d->segment.name, tn_error_detail());
    TNI_KILL_POINT("fork_holds_written");
}

/* @return whether nobody is at work with it, or whoever is stands aside until fork() is over */
static bool fork_may_pass(struct tni_thread *thread)
{
    uint32_t aside = TNI_ASIDE;
    return atomic_exchange_explicit(&thread->busy, 1, memory_order_acquire) == 0 ||
           atomic_compare_exchange_strong_explicit(&thread->aside, &aside, TNI_ASIDE_FORKING,
                                                   memory_order_acquire, memory_order_relaxed);
}

static bool is_aside(const struct tni_thread *thread)
{
    return atomic_load_explicit(&thread->aside, memory_order_relaxed) == TNI_ASIDE_FORKING;
}

/* Every thread's operation ends first, so that the child inherits no half of one. */
static void stop_threads(struct tn_domain *d)
{
    bool has_own = false; /* one at least is ours, to announce with */
    for (uint32_t t = 0; t < TNI_THREADS; t++) {
        struct tni_thread *thread = &d->threads[t];
        if (t == TNI_THREADS - 1 && !has_own) {
            tni_thread_take(thread);
            return;
        }
        for (uint32_t tries = 0; !fork_may_pass(thread); tries++)
            tni_os_back_off(tries);
        has_own |= !is_aside(thread);
    }
}

struct tni_thread *tni_process_fork_thread(struct tn_domain *d)
{
    uint32_t t = 0;
    while (is_aside(&d->threads[t]))
        t++;
    return &d->threads[t];
}

static bool is_unwitnessed(const struct tn_domain *d)
{
    return d->child_seat != TNI_NO_SEAT && d->child_witness == NULL;
}

/*
 * fork() seems to have failed: a seat without a pid is that of nobody's death. A child that
 * there is names itself, and its seat has a pid. pre: nobody settles the seat yet, since it
 * names us or we have its witness too; without a witness, no child will come any more.
 */
static void mark_unborn(struct tn_domain *d)
{
    if (d->child_seat == TNI_NO_SEAT)
        return;
    struct tni_seat *entry = tni_seat_at(&d->segment, d->child_seat);
    if (atomic_load(&entry->word) != d->child_word)
        return;
    if (is_unwitnessed(d))
        atomic_store(&entry->pid, 0);
    atomic_fetch_or(&entry->flags, TNI_SEAT_UNBORN);
    TNI_KILL_POINT("fork_unborn_marked");
}

/*
 * A seat that still waits for a child that will not come: name nobody in it, so that it counts
 * as dead. If its word has moved on, it is none of our business.
 */
static void disown_unwitnessed(struct tn_domain *d)
{
    uint64_t word = d->child_word;
    if (!is_unwitnessed(d))
        return;
    _Atomic uint64_t *seat = &tni_seat_at(&d->segment, d->child_seat)->word;
    atomic_compare_exchange_strong(seat, &word, word | TNI_SEAT_NOBODY);
}

/* Before the thread records are taken. */
static void claim_seats(void)
{
    struct tni_os_process self;
    int known = all_domains != NULL ? tni_os_self(&self) : 0;
    for (struct tn_domain *d = all_domains; d != NULL; d = d->next) {
        d->child_seat = TNI_NO_SEAT;
        d->child_witness = NULL;
        if (d->seat == TNI_NO_SEAT)
            continue;
        if (known != 0)
            note_reason(d, tn_error_detail());
        else
            claim_for_child(d, &self);
    }
}

TNI_AROUND_FORK static void fork_prepare(void)
{
    leave_copies();
    lock_list();
    claim_seats();
    for (struct tn_domain *d = all_domains; d != NULL; d = d->next) {
        stop_threads(d);
        lock_rooms(d);
    }
    for (struct tn_domain *d = all_domains; d != NULL; d = d->next)
        give_child(d);
}

static void release_thread(struct tni_thread *thread, bool in_child)
{
    if (!in_child && is_aside(thread)) {
        /* pairs with the acquire in tni_thread_come_back() */
        atomic_store_explicit(&thread->aside, TNI_ASIDE, memory_order_release);
        tni_os_wake(&thread->aside, INT32_MAX);
        return;
    }
    atomic_store_explicit(&thread->aside, TNI_ASIDE_NOT, memory_order_relaxed);
    tni_thread_leave(thread);
}

static void release_threads(bool in_child)
{
    for (struct tn_domain *d = all_domains; d != NULL; d = d->next) {
        unlock_rooms(d, in_child);
        for (uint32_t t = 0; t < TNI_THREADS; t++)
            release_thread(&d->threads[t], in_child);
    }
}

TNI_AROUND_FORK static void fork_parent(bool seems_failed)
{
    char byte;
    if (fork_pipe[0] >= 0) {
        tni_os_close(fork_pipe[1]);
        int got;
        do {
            tni_os_poll(&fork_pipe[0], 1, TNI_FOREVER);
            got = tni_os_read(fork_pipe[0], &byte, 1);
        } while (got == TN_ERR_TIMED_OUT);
        tni_os_close(fork_pipe[0]);
        fork_pipe[0] = fork_pipe[1] = -1;
    }
    for (struct tn_domain *d = all_domains; d != NULL; d = d->next) {
        if (seems_failed)
            mark_unborn(d);
        /* fork() failed, or the child was killed early on, or it could not sit down. */
        disown_unwitnessed(d);
        tni_os_witness_drop(d->child_witness); /* it is the child's alone from now on */
        d->child_witness = NULL;
    }
    release_threads(false);
    unlock_list();
}

/* I3. The seat is ours from the CAS on, for as long as we live. */
TNI_AROUND_FORK static void sit_as_child(struct tn_domain *d, uint32_t seat,
                                         const struct tni_os_process *self)
{
    struct tni_seat *entry = tni_seat_at(&d->segment, seat);
    uint64_t word = d->child_word;
    uint32_t incarnation = tni_seat_incarnation(word);
    uint64_t named = word_of(incarnation, TNI_SEAT_JOINING, self->pid, d->child_witness);
    /* Read first: what lies beside a page that is read is mapped with it. */
    if (atomic_load(&entry->word) != word ||
        !atomic_compare_exchange_strong(&entry->word, &word, named)) {
        note_reason(d, "its parent died, and was settled together with it");
        return;
    }
    TNI_KILL_POINT("fork_child_claimed");
    if (d->child_witness != NULL)
        tni_os_witness_keep(d->child_witness);
    TNI_PUT(entry->start_time, self->start_time);
    TNI_PUT(entry->image, self->image);
    TNI_PUT(entry->pid_space, self->pid_space); /* its parent's unshare() may have changed it */
    atomic_store(&entry->pid, self->pid);
    TNI_KILL_POINT("fork_child_named");
    sit(d, seat, incarnation, d->child_witness);
    atomic_store(&entry->word, tni_process_word(d));
}

TNI_AROUND_FORK static void fork_child(void)
{
    struct tni_os_process self;
    if (fork_pipe[0] >= 0)
        tni_os_close(fork_pipe[0]); /* it may be the descriptor that is needed now */
    tni_os_mark();
    int known = tni_os_self(&self);

    for (struct tn_domain *d = all_domains; d != NULL; d = d->next) {
        uint32_t seat = d->child_seat;
        d->child_seat = TNI_NO_SEAT;
        forget_parent(d, known == 0 ? NULL : "no descriptor was left to find out its identity");
        if (seat != TNI_NO_SEAT && known == 0)
            sit_as_child(d, seat, &self);
        if (d->seat == TNI_NO_SEAT)
            tni_os_witness_drop(d->child_witness);
        d->child_witness = NULL;
    }
    for (struct tn_domain *d = all_domains; d != NULL; d = d->next) {
        run_child_hooks(d);
        if (d->seat != TNI_NO_SEAT && joined_hook != NULL)
            joined_hook(d);
    }
    if (fork_pipe[1] >= 0) {
        tni_os_write(fork_pipe[1], "", 1);
        tni_os_close(fork_pipe[1]);
        fork_pipe[0] = fork_pipe[1] = -1;
    }
    release_threads(true);
    tni_mutex_reset(&all_domains_lock);
}

static int register_fork_handlers(void)
{
    lock_list(); /* one thread at a time */
    int status = tni_os_at_fork(fork_prepare, fork_parent, fork_child);
    unlock_list();
    return status;
}
