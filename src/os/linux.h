/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the os room share. No other room includes this. */
#ifndef TNI_OS_LINUX_H
#define TNI_OS_LINUX_H

#include <time.h>

#include "os/os.h"

enum {
    TNI_LINUX_SECOND_NS = 1000000000,
    TNI_LINUX_PATH_BYTES = 1024,
    /* What is thread-local must be little: a library that is loaded later finds about 1 KiB. */
    TNI_LINUX_FOLDER_BYTES = 256,
    TNI_LINUX_NAME_BYTES = 200,
    TNI_LINUX_SEND_SECONDS = 10, /* how long connect and send wait for a reader */
};

/** Names in TENON_FORCE_FALLBACK. */
enum tni_linux_call {
    TNI_LINUX_POPULATE_WRITE,
    TNI_LINUX_NOEXEC_SEAL,
    TNI_LINUX_CLOSE_RANGE,
    TNI_LINUX_FALLOCATE,
    TNI_LINUX_WITNESS,
    TNI_LINUX_CALL_COUNT
};
bool tni_linux_is_forced(enum tni_linux_call call);
/** Whether a comma-separated list has a word. */
bool tni_linux_has_word(const char *list, const char *word);

/** The status that fits an errno when nothing more is known: NOT_FOUND, DENIED, NO_MEMORY or
 * SYSTEM. */
int tni_linux_status(int errno_value);
/** Fail with errno appended; a full descriptor table is always TN_ERR_SYSTEM and named with its
 * limit. */
int tni_linux_fail(int status, int errno_value, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/**
 * Whether a call that made no descriptor is worth another try: a signal came, or the table was
 * full and may now be larger, which is tried once for each `*raised`. Keeps errno.
 */
bool tni_linux_try_again(bool *raised);
/**
 * Make a descriptor, all of this room by this: `is_made` is a call with a test of its result. A
 * process whose soft limit is reached has it raised to the hard one.
 */
#define TNI_LINUX_MAKE(is_made)                                                                \
    do {                                                                                       \
        bool has_raised = false;                                                               \
        while (!(is_made) && tni_linux_try_again(&has_raised))                                 \
            ;                                                                                  \
    } while (0)
uint64_t tni_linux_descriptor_limit(void);

/**
 * Past this limit ftruncate() and write() would send SIGXFSZ, which kills. TN_ERR_SYSTEM: a
 * file of this size is not allowed; `what` and `name` say which.
 */
int tni_linux_check_file_size(const char *what, const char *name, uint64_t size_bytes);

/** The time left, or NULL (as in ppoll) when the deadline never comes. */
const struct timespec *tni_linux_time_left(uint64_t deadline_ns, struct timespec *left);
struct timespec tni_linux_timespec(uint64_t ns);

struct pollfd;
/** @return how many are ready, 0 at the deadline, or -errno */
int tni_linux_poll(struct pollfd *polls, uint32_t count, uint64_t deadline_ns);

/** Read the start of a small file as text. @return bytes without the NUL, or -errno */
ssize_t tni_linux_read_text(const char *path, char *text, size_t size_bytes);

/**
 * The environment with `added` in place of what has the same names, for free(). NULL: no
 * memory.
 */
const char **tni_linux_merge_environment(const char *const *added);

/** In front of /run, /tmp and /dev/shm where the runtime folder is looked for; tests set it. */
extern const char *tni_linux_root;
/** Tests: what this process keeps to is forgotten. */
void tni_linux_forget_folder(void);
/** What tells a program that is started of the folder that this process keeps to. */
struct tni_linux_folder_pass {
    char named[TNI_LINUX_FOLDER_BYTES + 32], kept[TNI_LINUX_FOLDER_BYTES + 32];
    const char *variables[3]; /* NAME=value, then NULL */
};
/** @return how many variables; 0: none is kept */
int tni_linux_pass_folder(struct tni_linux_folder_pass *ret_pass);
/** "<runtime folder>/<name>". TN_ERR_INVALID: a bad folder, a bad name, or too long. */
int tni_linux_runtime_path(const char *name, char *path, size_t size_bytes);

/** What this process's next child needs to know itself. pre: no other thread is at it */
void tni_linux_note_birth(void);

/** Run the registered handlers around a fork that libc does not know of. */
void tni_linux_before_fork(void);
void tni_linux_after_fork(bool in_child);

#endif
