/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base: functions that every room uses.
 *
 * Nouns: status, detail, peer (status.c); hook (hook.c), log hook (log.c), interrupt hook
 * (interrupt.c); options struct (options.c); name (name.c); text (text.c); hash (hash.c); kill
 * point (kill_point.c).
 *
 * I1  tni_fail() returns the status that it is given, so a function fails with
 *     `return tni_fail(...)`.
 * I2  A detail ends in NUL, and in "..." if it was cut. If the reason of the kernel does not
 *     fit behind the sentence, "..." replaces the middle of the sentence instead.
 * I3  Detail and peer are thread-local; no other thread reads or writes them.
 * I4  No function here takes a lock, so no function can block for ever in a forked child.
 * I5  The log hook is called while no structure of the library is half changed, and never from
 *     inside itself.
 *
 * Callers: every room, from any thread, also in a forked child.
 * A death leaves nothing, since this room has no shared memory.
 */
#include <stdio.h>
#include <string.h>

#include "base/base.h"

enum { DETAIL_BYTES = 512, ERRNO_BYTES = 96, LONG_BYTES = 4352 /* a path and a sentence */ };

static _Thread_local char detail[DETAIL_BYTES];
static TNI_TLS_INITIAL _Thread_local const char
    *plain; /* a static sentence that replaces the detail; NULL: none */
static _Thread_local tn_peer peer;

/* Set the detail. Arguments may point into the old detail, so the text is formatted apart. */
static void set_detail(const char *format, va_list arguments)
{
    char text[DETAIL_BYTES];
    int wanted = vsnprintf(text, sizeof text, format, arguments);

    if (wanted < 0)
        text[0] = '\0';
    if (wanted < 0 || (size_t)wanted >= sizeof text)
        memcpy(text + sizeof text - 4, "...", 4);
    memcpy(detail, tni_text_clean(text), sizeof text);
    plain = NULL;
}

int(tni_fail)(int status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    set_detail(format, arguments);
    va_end(arguments);
    tni_log_failure(tn_status_name(status), detail);
    return status;
}

int(tni_fail_plain)(int status, const char *sentence)
{
    plain = sentence;
    return status;
}

static const char *errno_text(int errno_value, char *text, size_t size_bytes)
{
#if defined(__GLIBC__)
    return strerror_r(errno_value, text, size_bytes);
#else
    if (strerror_r(errno_value, text, size_bytes) != 0)
        snprintf(text, size_bytes, "errno %d", errno_value);
    return text;
#endif
}

int(tni_fail_errno_list)(int status, int errno_value, const char *format, va_list arguments)
{
    char text[LONG_BYTES], buffer[ERRNO_BYTES];
    const char *reason = errno_text(errno_value, buffer, sizeof buffer);
    int wanted = vsnprintf(text, sizeof text, format, arguments);
    if (wanted < 0)
        text[0] = '\0';
    tni_text_shorten(text, DETAIL_BYTES - sizeof ": " - strnlen(reason, ERRNO_BYTES));
    return (tni_fail)(status, "%s: %.*s", text, ERRNO_BYTES, reason);
}

int(tni_fail_errno)(int status, int errno_value, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    status = (tni_fail_errno_list)(status, errno_value, format, arguments);
    va_end(arguments);
    return status;
}

void tni_set_peer(uint32_t seat, int32_t pid) { peer = (tn_peer){.seat = seat, .pid = pid}; }

const char *tn_error_detail(void) { return plain != NULL ? plain : detail; }

tn_peer tn_error_peer(void) { return peer; }

const char *tn_status_sentence(int status)
{
    switch (status) {
    case TN_OK:
        return "no error";
#define SENTENCE(name, number, sentence, python)                                               \
    case number:                                                                               \
        return sentence;
        TN_STATUS_TABLE(SENTENCE)
#undef SENTENCE
    default:
        return "unknown status";
    }
}

const char *tn_status_name(int status)
{
    switch (status) {
    case TN_OK:
        return "TN_OK";
#define NAME(name, number, sentence, python)                                                   \
    case number:                                                                               \
        return "TN_ERR_" #name;
        TN_STATUS_TABLE(NAME)
#undef NAME
    default:
        return "unknown status";
    }
}
