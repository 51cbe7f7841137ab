/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the os room share. No other room includes this. */
#ifndef TNI_OS_LINUX_H
#define TNI_OS_LINUX_H

#include <time.h>

#include "os/os.h"

enum {
    TNI_LINUX_SECOND_NS = 1000000000,
    TNI_LINUX_PATH_BYTES = 1024,
    TNI_LINUX_SEND_SECONDS = 10, /* how long connect and send wait for a reader */
};

/** Names in TENON_FORCE_FALLBACK. */
enum tni_linux_call {
    TNI_LINUX_POPULATE_WRITE,
    TNI_LINUX_NOEXEC_SEAL,
    TNI_LINUX_CLOSE_RANGE,
    TNI_LINUX_CALL_COUNT
};
bool tni_linux_is_forced(enum tni_linux_call call);

/** The status that fits an errno when nothing more is known: NOT_FOUND, DENIED, NO_MEMORY or
 * SYSTEM. */
int tni_linux_status(int errno_value);
/** Fail with errno appended; a full descriptor table is always TN_ERR_SYSTEM and named with its
 * limit. */
int tni_linux_fail(int status, int errno_value, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/** The time left, or NULL (as in ppoll) when the deadline never comes. */
const struct timespec *tni_linux_time_left(uint64_t deadline_ns, struct timespec *left);
struct timespec tni_linux_timespec(uint64_t ns);

/** Read the start of a small file as text. @return bytes without the NUL, or -errno */
ssize_t tni_linux_read_text(const char *path, char *text, size_t size_bytes);

/**
 * The environment with `added` in place of what has the same names, for free(). NULL: no
 * memory.
 */
const char **tni_linux_merge_environment(const char *const *added);

/** "<runtime folder>/<name>". TN_ERR_INVALID: a bad folder, a bad name, or too long. */
int tni_linux_runtime_path(const char *name, char *path, size_t size_bytes);

#endif
