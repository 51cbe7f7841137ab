/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fork: the handlers that run before and after fork(). See process.c, I3.
 *
 * Before fork() the parent takes a seat for the child, in the parent's own name (I3), and every
 * room writes the child's holds there. If the child wrote its holds itself, the parent could
 * release a block before that. After fork() the parent drops its mapping of the child's
 * witness. From then on only the child has the witness, so the seat counts as dead when the
 * child has ended, or when fork() failed and no child exists. The parent does not wait for the
 * child.
 *
 * Without a witness no process could tell whether the child lives. So the parent waits on a
 * pipe until the child has written its own pid into the seat. If the pipe shows that no child
 * exists, the parent marks the seat with TNI_SEAT_NOBODY (disown_unwitnessed()).
 */
#include <stdio.h>
#include <stdlib.h>

#include "process/fork.h"

/* ---- before fork() ----------------------------------------------------------------------- */

static int fork_pipe[2] = {-1, -1}; /* for children without a witness; -1: not needed */
/* The pid of the process that forks, if children write to the log that they joined; 0: no. */
static int32_t logged_pid;
static void (*joined_hook)(struct tn_domain *);

void tni_process_set_joined(void (*joined)(struct tn_domain *)) { joined_hook = joined; }

static void lock_rooms(struct tn_domain *d)
{
    for (uint32_t h = 0; h < d->hook_count; h++)
        if (d->hooks[h].lock != NULL)
            d->hooks[h].lock(d);
}

static bool has_free_seat(const struct tni_segment *s)
{
    uint32_t seat = 0;
    while (seat < s->geometry.seats &&
           tni_seat_state(atomic_load(&tni_seat_at(s, seat)->word)) != TNI_SEAT_FREE)
        seat++;
    return seat < s->geometry.seats;
}

/* Every seat is taken: reclaim dead processes. @return whether to retry */
static bool reclaim_for_seat(struct tn_domain *d, struct tni_seat_wait *wait)
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
    while (d->seat != TNI_NO_SEAT && !has_free_seat(&d->segment) &&
           reclaim_for_seat(d, &wait)) {
    }
}

static void note_full(struct tn_domain *d)
{
    uint32_t dead = tni_process_count_dead(&d->segment);
    if (dead == 0)
        tni_fork_note_reason(d, "every seat was taken");
    else
        snprintf(
            d->child_reason, sizeof d->child_reason,
            "every seat was taken, %u of them by processes that have ended and that nobody "
            "has reclaimed",
            dead);
    tni_log(TNI_LOG_WARNING, "fork: the child gets no seat: %s", d->child_reason);
}

/*
 * Take a seat for the child in one domain. pre: the handler has not taken the thread records
 * yet, because reclaiming needs a thread record
 */
static void claim_for_child(struct tn_domain *d, const struct tni_os_process *self)
{
    struct tni_seat_wait wait = {0};
    struct tni_sit claim = {.process = *self,
                            .flags = TNI_SEAT_FORKED,
                            .parent = d->who,
                            .command = d->me->command};
    int status;
    while ((status = tni_sit_claim(&d->segment, &claim)) != 0 && reclaim_for_seat(d, &wait)) {
    }
    if (status != 0) {
        note_full(d);
        return;
    }
    TNI_KILL_POINT("fork_seat_claimed");
    if (claim.witness == NULL && fork_pipe[0] < 0 && tni_os_pipe(fork_pipe) != 0) {
        /*
         * Without a witness and without a pipe, no process could tell the seat of a live child
         * from the seat of a failed fork(). Free the seat: it has no holds yet.
         */
        tni_fork_note_reason(d, tn_error_detail());
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

/* Call each room's hook that writes the child's holds and other records. */
static void prepare_child_seat(struct tn_domain *d)
{
    char label[TNI_LABEL_BYTES];
    if (d->child_seat == TNI_NO_SEAT)
        return;
    for (uint32_t h = 0; h < d->hook_count; h++)
        if (d->hooks[h].prepare != NULL && d->hooks[h].prepare(d, d->child_seat) != 0)
            tni_log(TNI_LOG_WARNING,
                    "fork: the child does not inherit everything in the domain %s: %s",
                    tni_segment_label(&d->segment, label), tn_error_detail());
    TNI_KILL_POINT("fork_holds_written");
}

/*
 * Take a thread record for the duration of fork(). @return true: the thread record was free, or
 * the thread that has it is in a long system call, and waits after that call until fork() has
 * ended
 */
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

/* Wait until every thread has ended its operation: the child could not end it. */
static void stop_threads(struct tn_domain *d)
{
    bool has_own = false; /* the handler needs one free thread record, to announce with it */
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
 * Set UNBORN in the child's seat, because fork() seems to have failed. For a seat with that
 * flag and no pid, the reaper counts no death. If a child exists after all, it writes its pid
 * into the seat. pre: no process reclaims the seat yet, since it names this process or this
 * process still has its witness; if there is no witness, it is known that no child exists
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
 * Called when no child exists: if the seat still waits for a child, write NOBODY into its word,
 * so that the seat counts as dead. If the word has changed, the child or a reaper has the seat.
 */
static void disown_unwitnessed(struct tn_domain *d)
{
    uint64_t word = d->child_word;
    if (!is_unwitnessed(d))
        return;
    _Atomic uint64_t *seat = &tni_seat_at(&d->segment, d->child_seat)->word;
    atomic_compare_exchange_strong(seat, &word, word | TNI_SEAT_NOBODY);
}

/* Take a seat for the child in each domain. pre: the precondition of claim_for_child() */
static void claim_seats(void)
{
    struct tni_os_process self;
    int known = tni_domains != NULL ? tni_os_self(&self) : 0;
    for (struct tn_domain *d = tni_domains; d != NULL; d = d->next) {
        d->child_seat = TNI_NO_SEAT;
        d->child_witness = NULL;
        if (d->seat == TNI_NO_SEAT)
            continue;
        if (known != 0)
            tni_fork_note_reason(d, tn_error_detail());
        else
            claim_for_child(d, &self);
    }
}

TNI_AROUND_FORK static void fork_prepare(void)
{
    tni_domains_drop_if_copied();
    tni_domains_lock();
    /* Asked here, so that the child runs less. */
    logged_pid = tni_log_is_written(TNI_LOG_INFO) ? tni_os_pid() : 0;
    claim_seats();
    for (struct tn_domain *d = tni_domains; d != NULL; d = d->next) {
        stop_threads(d);
        lock_rooms(d);
    }
    for (struct tn_domain *d = tni_domains; d != NULL; d = d->next)
        prepare_child_seat(d);
}

/* ---- after fork() ------------------------------------------------------------------------ */

static void release_thread(struct tni_thread *thread, bool in_child)
{
    if (!in_child && is_aside(thread)) {
        /* This release pairs with the acquire in tni_thread_come_back(). */
        atomic_store_explicit(&thread->aside, TNI_ASIDE, memory_order_release);
        tni_os_wake(&thread->aside, INT32_MAX);
        return;
    }
    atomic_store_explicit(&thread->aside, TNI_ASIDE_NOT, memory_order_relaxed);
    tni_thread_leave(thread);
}

static void release_threads(bool in_child)
{
    for (struct tn_domain *d = tni_domains; d != NULL; d = d->next) {
        tni_fork_unlock_rooms(d, in_child);
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
    for (struct tn_domain *d = tni_domains; d != NULL; d = d->next) {
        if (seems_failed)
            mark_unborn(d);
        /* fork() failed, or the child was killed early or could not take the seat. */
        disown_unwitnessed(d);
        tni_os_witness_drop(d->child_witness); /* from now on only the child has the witness */
        d->child_witness = NULL;
    }
    release_threads(false);
    tni_domains_unlock();
}

/* Take the seat that the parent claimed. From the CAS on, it is the seat of this child (I3). */
TNI_AROUND_FORK static void sit_as_child(struct tn_domain *d, uint32_t seat,
                                         const struct tni_os_process *self)
{
    struct tni_seat *entry = tni_seat_at(&d->segment, seat);
    uint64_t word = d->child_word;
    uint32_t incarnation = tni_seat_incarnation(word);
    uint64_t named = tni_sit_word(incarnation, TNI_SEAT_JOINING, self->pid, d->child_witness);
    /* Read before the CAS: unlike a write fault, a read fault also maps neighbouring pages. */
    if (atomic_load(&entry->word) != word ||
        !atomic_compare_exchange_strong(&entry->word, &word, named)) {
        tni_fork_note_reason(d, "its parent died, and was reclaimed together with it");
        return;
    }
    TNI_KILL_POINT("fork_child_claimed");
    if (d->child_witness != NULL)
        tni_os_witness_keep(d->child_witness);
    TNI_PUT(entry->start_time, self->start_time);
    TNI_PUT(entry->image, self->image);
    TNI_PUT(entry->pid_space, self->pid_space); /* the parent may have called unshare() */
    atomic_store(&entry->pid, self->pid);
    TNI_KILL_POINT("fork_child_named");
    tni_sit_down(d, seat, incarnation, d->child_witness);
    atomic_store(&entry->word, tni_process_word(d));
}

static void log_joined(const struct tn_domain *d)
{
    char label[TNI_LABEL_BYTES];
    if (d->seat != TNI_NO_SEAT)
        tni_log_written(TNI_LOG_INFO, "joined domain %s in seat %u, as a child of process %d",
                        tni_segment_label(&d->segment, label), d->seat, logged_pid);
}

TNI_AROUND_FORK static void fork_child(void)
{
    struct tni_os_process self;
    if (fork_pipe[0] >= 0)
        tni_os_close(fork_pipe[0]); /* tni_os_self() may need a free descriptor */
    tni_os_mark();
    int known = tni_os_self(&self);

    for (struct tn_domain *d = tni_domains; d != NULL; d = d->next) {
        uint32_t seat = d->child_seat;
        d->child_seat = TNI_NO_SEAT;
        tni_fork_drop_seat(d, known == 0 ? NULL
                                         : "no descriptor was left to find out its identity");
        if (seat != TNI_NO_SEAT && known == 0)
            sit_as_child(d, seat, &self);
        if (d->seat == TNI_NO_SEAT)
            tni_os_witness_drop(d->child_witness);
        d->child_witness = NULL;
    }
    for (struct tn_domain *d = tni_domains; d != NULL; d = d->next) {
        tni_fork_run_child_hooks(d);
        if (d->seat != TNI_NO_SEAT && joined_hook != NULL)
            joined_hook(d);
    }
    if (fork_pipe[1] >= 0) {
        tni_os_write(fork_pipe[1], "", 1);
        tni_os_close(fork_pipe[1]);
        fork_pipe[0] = fork_pipe[1] = -1;
    }
    for (struct tn_domain *d = tni_domains; logged_pid != 0 && d != NULL; d = d->next)
        log_joined(d);
    release_threads(true);
    tni_domains_reset_lock();
}

int tni_fork_register(void)
{
    tni_domains_lock(); /* two threads that join at once must not both register */
    int status = tni_os_at_fork(fork_prepare, fork_parent, fork_child);
    tni_domains_unlock();
    return status;
}
