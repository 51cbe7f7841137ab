/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"

enum { LINE_BYTES = 512 };

/*
 * A hook and its context change together, so one pointer publishes both. Nodes are kept and
 * used again: another thread may be reading an old one, and a lock would hang a forked child.
 */
struct hook {
    tn_log_fn *log;
    void *context;
    struct hook *older;
};

static struct hook *_Atomic current;
static struct hook *_Atomic all;
static _Thread_local bool is_logging;

static struct hook *find_hook(tn_log_fn *log, const void *context)
{
    /* pairs with the release in make_hook() */
    struct hook *hook = atomic_load_explicit(&all, memory_order_acquire);
    while (hook != NULL && (hook->log != log || hook->context != context))
        hook = hook->older;
    return hook;
}

static struct hook *make_hook(tn_log_fn *log, void *context)
{
    struct hook *hook = malloc(sizeof *hook);
    if (hook == NULL)
        return NULL;
    *hook = (struct hook){.log = log, .context = context, .older = atomic_load(&all)};
    /* release: pairs with the acquire in find_hook() */
    while (!atomic_compare_exchange_weak_explicit(&all, &hook->older, hook,
                                                  memory_order_release, memory_order_relaxed)) {
    }
    return hook;
}

void tn_log_set(tn_log_fn *log, void *context)
{
    struct hook *hook = NULL;
    if (log != NULL) {
        hook = find_hook(log, context);
        if (hook == NULL)
            hook = make_hook(log, context);
    }
    /* release: pairs with the acquire in tni_log(). Without memory for a hook: silence. */
    atomic_store_explicit(&current, hook, memory_order_release);
}

void tni_log(int level, const char *format, ...)
{
    /* pairs with the release in tn_log_set() */
    const struct hook *hook = atomic_load_explicit(&current, memory_order_acquire);
    if (hook == NULL || is_logging)
        return;

    int saved_errno = errno;
    char line[LINE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    int wanted = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (wanted >= 0) {
        is_logging = true;
        hook->log(level, line, hook->context);
        is_logging = false;
    }
    errno = saved_errno;
}
