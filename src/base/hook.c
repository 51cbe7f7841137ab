/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "base/base.h"

/*
 * All hooks. Nodes are never freed, because another thread may be reading an old node. There is
 * no lock: a thread could hold it at a fork, and the child would wait for it for ever.
 */
static struct tni_hook *_Atomic all;

static struct tni_hook *find(tni_hook_fn *call, const void *context)
{
    /* This acquire pairs with the release in make(). */
    struct tni_hook *hook = atomic_load_explicit(&all, memory_order_acquire);
    while (hook != NULL && (hook->call != call || hook->context != context))
        hook = hook->older;
    return hook;
}

static struct tni_hook *make(tni_hook_fn *call, void *context)
{
    struct tni_hook *hook = malloc(sizeof *hook);
    if (hook == NULL)
        return NULL;
    *hook = (struct tni_hook){.call = call, .context = context, .older = atomic_load(&all)};
    /* This release pairs with the acquire in find(). */
    while (!atomic_compare_exchange_weak_explicit(&all, &hook->older, hook,
                                                  memory_order_release, memory_order_relaxed)) {
    }
    return hook;
}

struct tni_hook *tni_hook_of(tni_hook_fn *call, void *context)
{
    if (call == NULL)
        return NULL;
    struct tni_hook *hook = find(call, context);
    return hook != NULL ? hook : make(call, context);
}
