/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log: passes lines about events to the program's function, or else to a writer, which the room
 * os sets.
 *
 * If there is no function and no writer, a line costs two loads.
 * docs/decisions/0091-a-log-only-if-asked.md says why the writer exists although the library
 * never prints.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/base.h"

enum { LINE_BYTES = 640 };

static struct tni_hook *_Atomic current;
static tni_log_writer *_Atomic current_writer;
static _Atomic int writer_level; /* the highest level that is written */
static _Thread_local bool is_logging;

void tn_log_set(tn_log_fn *log, void *context)
{
    /* This release pairs with the acquire in tni_log(). */
    atomic_store_explicit(&current, tni_hook_of((tni_hook_fn *)log, context),
                          memory_order_release);
}

void tni_log_set_writer(int level, tni_log_writer *writer)
{
    atomic_store_explicit(&writer_level, level, memory_order_relaxed);
    /* This release pairs with the acquire in writer_of(). */
    atomic_store_explicit(&current_writer, writer, memory_order_release);
}

static tni_log_writer *writer_of(int level)
{
    /* This acquire pairs with the release in tni_log_set_writer(). */
    tni_log_writer *writer = atomic_load_explicit(&current_writer, memory_order_acquire);
    bool is_wanted = level <= atomic_load_explicit(&writer_level, memory_order_relaxed);
    return is_wanted ? writer : NULL;
}

static void hand_over(tni_log_writer *writer, const struct tni_hook *hook, int level,
                      char *line)
{
    is_logging = true;
    tni_text_clean(line);
    if (writer != NULL)
        writer(level, line);
    else
        ((tn_log_fn *)hook->call)(level, line, hook->context);
    is_logging = false;
}

static void hand_over_list(tni_log_writer *writer, const struct tni_hook *hook, int level,
                           const char *format, va_list arguments)
{
    int saved_errno = errno;
    char line[LINE_BYTES];
    if (vsnprintf(line, sizeof line, format, arguments) >= 0)
        hand_over(writer, hook, level, line);
    errno = saved_errno;
}

void tni_log(int level, const char *format, ...)
{
    /* This acquire pairs with the release in tn_log_set(). */
    const struct tni_hook *hook = atomic_load_explicit(&current, memory_order_acquire);
    tni_log_writer *writer = hook == NULL ? writer_of(level) : NULL;
    if ((hook == NULL && writer == NULL) || is_logging)
        return;
    va_list arguments;
    va_start(arguments, format);
    hand_over_list(writer, hook, level, format, arguments);
    va_end(arguments);
}

/* The writer, while the program has set no function. */
static tni_log_writer *writer_in_place(int level)
{
    bool has_function = atomic_load_explicit(&current, memory_order_relaxed) != NULL;
    return has_function ? NULL : writer_of(level);
}

bool tni_log_is_written(int level) { return writer_in_place(level) != NULL; }

void tni_log_written(int level, const char *format, ...)
{
    tni_log_writer *writer = writer_in_place(level);
    if (writer == NULL || is_logging)
        return;
    va_list arguments;
    va_start(arguments, format);
    hand_over_list(writer, NULL, level, format, arguments);
    va_end(arguments);
}

void tni_log_failure(const char *status_name, const char *sentence)
{
    tni_log_writer *writer = writer_in_place(TNI_LOG_DEBUG);
    if (writer == NULL || is_logging)
        return;
    int saved_errno = errno;
    char line[LINE_BYTES];
    snprintf(line, sizeof line, "%s: %s", status_name, sentence);
    hand_over(writer, NULL, TNI_LOG_DEBUG, line);
    errno = saved_errno;
}
