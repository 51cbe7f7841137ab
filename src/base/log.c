/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/base.h"

enum { LINE_BYTES = 512 };

static struct tni_hook *_Atomic current;
static _Thread_local bool is_logging;

void tn_log_set(tn_log_fn *log, void *context)
{
    /* release: pairs with the acquire in tni_log() */
    atomic_store_explicit(&current, tni_hook_of((tni_hook_fn *)log, context),
                          memory_order_release);
}

void tni_log(int level, const char *format, ...)
{
    /* pairs with the release in tn_log_set() */
    const struct tni_hook *hook = atomic_load_explicit(&current, memory_order_acquire);
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
        ((tn_log_fn *)hook->call)(level, tni_text_clean(line), hook->context);
        is_logging = false;
    }
    errno = saved_errno;
}
