/* SPDX-License-Identifier: Apache-2.0 */
/*
 * thread: takes and gives back thread records, and announces blocks with them. Part of the door
 * process.h: other rooms include process.h, not this header.
 */
#ifndef TNI_PROCESS_THREAD_H
#define TNI_PROCESS_THREAD_H

#include "process/domain.h"

/* ---- records ----------------------------------------------------------------------------- */

struct tni_thread *tni_thread_enter_slow(struct tn_domain *domain);
/* Number + 1 of the thread record that this thread had last; 0: this thread never had one. */
extern _Thread_local uint32_t tni_thread_home TNI_TLS_INITIAL;

/**
 * Take the thread record that this thread had last. NULL: this thread never had a thread
 * record, or another thread has it now.
 */
static inline struct tni_thread *tni_thread_enter_home(struct tn_domain *domain)
{
    uint32_t home = tni_thread_home;
    if (TNI_UNLIKELY(home == 0))
        return NULL;
    struct tni_thread *thread = &domain->threads[(size_t)home - 1];
    __asm__("" : "+r"(thread)); /* else compilers compute the address again for each use */
    if (thread == NULL)
        __builtin_unreachable(); /* the asm hides from the compiler that it is an address */
    if (TNI_LIKELY(TNI_IS_SOLO())) {
        if (TNI_UNLIKELY(atomic_load_explicit(&thread->busy, memory_order_relaxed) != 0))
            return NULL;
        atomic_store_explicit(&thread->busy, 1, memory_order_relaxed);
        return thread;
    }
    /* This acquire pairs with the release in tni_thread_leave(). */
    uint32_t was_busy = atomic_exchange_explicit(&thread->busy, 1, memory_order_acquire);
    return TNI_LIKELY(was_busy == 0) ? thread : NULL;
}
static inline struct tni_thread *tni_thread_enter(struct tn_domain *domain)
{
    struct tni_thread *thread = tni_thread_enter_home(domain);
    return TNI_LIKELY(thread != NULL) ? thread : tni_thread_enter_slow(domain);
}
static inline void tni_thread_leave(struct tni_thread *thread)
{
    atomic_store_explicit(&thread->busy, 0, memory_order_release);
}

/** Take this thread record. Waits while another thread has it. */
void tni_thread_take(struct tni_thread *thread);

/**
 * Keep the memory of a private struct for the next struct.
 * @param block  the block that the struct had and that this thread freed; 0: none
 * @return false: enough memory is kept already, and the caller still owns this memory
 */
static inline bool tni_thread_keep(struct tni_thread *thread, struct tni_spare *spare,
                                   tni_block block)
{
#if defined(__SANITIZE_ADDRESS__)
    return false; /* so that the sanitizer finds uses of freed memory */
#endif
    if (TNI_UNLIKELY(thread->spare_count >= TNI_SPARES))
        return false;
    spare->block = block;
    spare->next = thread->spares;
    thread->spares = spare;
    thread->spare_count++;
    return true;
}
/** Take the memory that tni_thread_keep() kept last. pre: thread->spares is not NULL */
static inline struct tni_spare *tni_thread_take_spare(struct tni_thread *thread)
{
    struct tni_spare *spare = thread->spares;
    thread->spares = spare->next;
    thread->spare_count--;
    return spare;
}

/**
 * Let fork() run while this thread is in a long system call and keeps its thread record. The
 * announces stay; a forked child does not inherit them.
 * pre: no private data is in a state that a child must not see
 */
static inline void tni_thread_step_aside(struct tni_thread *thread)
{
    /* pairs with the compare-and-swap in fork_may_pass() */
    atomic_store_explicit(&thread->aside, TNI_ASIDE, memory_order_release);
}
/** Undo tni_thread_step_aside(). If a fork() is going on, waits until it has ended. */
void tni_thread_come_back(struct tni_thread *thread);

/** The thread record with which the `prepare` function of a fork hook announces blocks. */
struct tni_thread *tni_process_fork_thread(struct tn_domain *domain);

/* ---- recounts ---------------------------------------------------------------------------- */

/**
 * Wait while one of these blocks is being recounted. pre: this thread announces none of them.
 *
 * A recount is correct without this wait. But a recount ends only if no thread changes the
 * block for a moment, and there may be no such moment if threads use the block all the time.
 * Each thread checks for a recount before it announces, so at most one more operation of each
 * thread can disturb the recount. The wait ends with the recount, or after 100 ms, because the
 * process that recounts may be stopped.
 */
void tni_process_wait_for_recount(struct tni_thread *thread, tni_block block, uint32_t span);
static inline bool tni_thread_sees_recount(const struct tni_thread *thread)
{
    return TNI_UNLIKELY(
        (uint32_t)atomic_load_explicit(thread->recounted, memory_order_relaxed) != 0);
}
static inline void tni_yield_to_recount(struct tni_thread *thread, tni_block block,
                                        uint32_t span)
{
    if (tni_thread_sees_recount(thread))
        tni_process_wait_for_recount(thread, block, span);
}
/**
 * Say which block or object is being recounted now; 0: none. Each call makes a new value, so
 * that a thread whose wait reached its limit waits again at the next recount.
 * pre: this process has the claim header->recount
 */
void tni_process_name_recounted(struct tn_domain *domain, uint32_t id);

/* ---- announces --------------------------------------------------------------------------- */

/**
 * Announce that the count of `span` blocks may be one too high for a while. The
 * read-modify-write of the count that follows makes the announce visible before the count.
 *
 * On x86-64 a locked instruction drains the store buffer before it acts. Other processors need
 * the fence.
 */
static inline void tni_announce_now(struct tni_thread *thread, tni_block block)
{
    atomic_store_explicit(&thread->announce->block, block.id, memory_order_release);
#if !defined(__x86_64__)
    atomic_thread_fence(memory_order_seq_cst);
#endif
}
static inline void tni_announce(struct tni_thread *thread, tni_block block, uint32_t span)
{
    tni_yield_to_recount(thread, block, span);
    if (span != 1)
        atomic_store_explicit(&thread->announce->span, span, memory_order_relaxed);
    tni_announce_now(thread, block);
}
/**
 * Announce one block, with a full fence. For callers that do no read-modify-write between the
 * announce and the erasing of a record.
 */
static inline void tni_announce_fence(struct tni_thread *thread, tni_block block)
{
    tni_announce(thread, block, 1);
    atomic_thread_fence(memory_order_seq_cst);
}
/** Clear the announce: records and count agree. Pairs with tni_process_is_announced(). */
static inline void tni_announce_clear(struct tni_thread *thread)
{
    atomic_store_explicit(&thread->announce->block, 0, memory_order_release);
}

/**
 * Clear the announces of all thread records that no thread has taken. Such an announce is
 * damage that another process wrote, and a recount would wait for its end in vain.
 */
void tni_process_clear_idle(struct tn_domain *domain);
/** Whether a seat that is not being reclaimed announces this block, other than by `except`. */
bool tni_process_is_announced(const struct tni_segment *segment,
                              const struct tni_thread *except, tni_block block);

/** Whether an announce names no block and no memory. Does not check `object`. */
static inline bool tni_announce_is_clear(const struct tni_announce *a)
{
    return atomic_load(&a->block) == 0 && atomic_load(&a->outer) == 0 &&
           atomic_load(&a->commit_bytes) == 0 && atomic_load(&a->span) <= 1;
}

#endif
