/* SPDX-License-Identifier: Apache-2.0 */
/*
 * interrupt: calls the program's hook that can end waits (tn_interrupt_set()).
 *
 * The hook may call tenon, wait or fork, so a thread calls it only where it has no thread
 * record, no announce and no claim: in tni_process_sleep(), before and after a sleep on a word,
 * and between two checks of a wait for children. A wait inside the library that must not end
 * early sets is_through, and tni_process_sleep() then does not call the hook.
 *
 * The hook may fork, and some waits must not go on in that child. A thread in such a wait
 * defers the hook: the wait ends early, the thread calls the hook, and then the thread waits
 * again.
 */
#include "base/base.h"

enum { EACH_NS = 100 * 1000 * 1000 };

static struct tni_hook *_Atomic current;
static _Thread_local uint64_t due_ns;
static _Thread_local bool is_deferring, is_exempt;

void tn_interrupt_set(tn_interrupt_fn *check, void *context)
{
    /* This release pairs with the acquire in tni_interrupt_ask(). */
    atomic_store_explicit(&current, tni_hook_of((tni_hook_fn *)check, context),
                          memory_order_release);
}

uint64_t tni_interrupt_due_ns(void)
{
    bool is_set = atomic_load_explicit(&current, memory_order_relaxed) != NULL;
    return is_set && !is_exempt ? due_ns : TNI_FOREVER;
}

bool tni_interrupt_defer(bool defers)
{
    bool was_deferring = is_deferring;
    is_deferring = defers;
    return was_deferring;
}

void tni_interrupt_exempt(bool is_thread_exempt) { is_exempt = is_thread_exempt; }

int tni_interrupt_ask(uint64_t now_ns)
{
    /* This acquire pairs with the release in tn_interrupt_set(). */
    const struct tni_hook *hook = atomic_load_explicit(&current, memory_order_acquire);
    if (hook == NULL || is_exempt)
        return 0;
    if (is_deferring)
        return TN_ERR_INTERRUPTED;
    due_ns = now_ns + EACH_NS;
    if (((tn_interrupt_fn *)hook->call)(hook->context) == 0)
        return 0;
    return tni_fail_plain(TN_ERR_INTERRUPTED, "the program's hook ended the wait");
}
