/* SPDX-License-Identifier: Apache-2.0 */
/* thread: takes thread records, checks announces, and makes a thread sleep. */
#include "process/fork.h"

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
        /* All thread records are taken, but not for long: no thread sleeps while it has one. */
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
            return; /* only a forked child resets `aside`, and this thread is not in a child */
        tni_os_wait(&thread->aside, TNI_ASIDE_FORKING, TNI_FOREVER);
        seen = TNI_ASIDE;
    }
}

#define SLICE_NS UINT64_C(100000000) /* the length of a slice of a wait */

/* End a slice of a wait. The next slice begins when the caller sleeps again. */
static void end_slice(struct tn_domain *d, struct tni_wait *wait)
{
    if (d->survive != NULL && !wait->is_reclaiming)
        d->survive(d);
    wait->look_ns = tni_os_now_ns() + SLICE_NS;
}

int tni_process_sleep(struct tn_domain *d, _Atomic uint32_t *word, uint32_t seen,
                      struct tni_wait *wait)
{
    bool is_over = false; /* whether the slice is over */
    for (;;) {
        uint64_t now_ns = tni_os_now_ns();
        if (wait->look_ns == 0)
            wait->look_ns = now_ns + SLICE_NS;
        /* The clock decides, so that a slice also ends if the wait is woken up very often. */
        is_over |= now_ns >= wait->look_ns;
        if (is_over)
            end_slice(d, wait);
        if (now_ns >= wait->deadline_ns) {
            if (!is_over || wait->is_late)
                return TN_ERR_TIMED_OUT; /* returned even if the word keeps changing */
            wait->is_late = true;
        }
        if (!wait->is_through && now_ns >= tni_interrupt_due_ns() &&
            tni_interrupt_ask(now_ns) != 0)
            return TN_ERR_INTERRUPTED;
        if (is_over || atomic_load(word) != seen)
            return 0; /* the caller checks its condition, also after the last slice: end_slice()
                         may have reclaimed a process and so made the condition true */
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

void tni_process_wait_for_recount(struct tni_thread *thread, tni_block block, uint32_t span)
{
    enum { MOST_NS = 100 * 1000 * 1000, NAP_NS = 50 * 1000 };
    uint64_t seen = atomic_load_explicit(thread->recounted, memory_order_relaxed);
    uint64_t now_ns = tni_os_now_ns(), until_ns = now_ns + MOST_NS;

    if ((uint32_t)seen - block.id >= span || seen == thread->waited_out)
        return;
    /* Sleep, do not spin: the recounter, and threads that disturb it, need the processor. */
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
        atomic_store_explicit(recounted, tni_recounted_next(seen, id), memory_order_relaxed);
}

bool tni_process_is_announced(const struct tni_segment *s, const struct tni_thread *except,
                              tni_block block)
{
    uint32_t limit = tni_seat_limit(s), class_id = tni_block_class(block);

    for (uint32_t seat = 0; seat < limit; seat++) {
        uint64_t word = atomic_load(&tni_seat_at(s, seat)->word);
        uint32_t state = tni_seat_state(word);
        /*
         * The announces of a seat that is being reclaimed do not count: if two dead seats
         * announced one block, their recoverers would wait for each other.
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
