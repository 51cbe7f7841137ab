/* SPDX-License-Identifier: Apache-2.0 */
/*
 * os: the contract with the operating system, and the only room that makes system calls. A port
 * to another system implements the functions of this header and of the five that it includes:
 *
 *   os/memory.h   memory objects, mappings, named memory
 *   os/process.h  identity of processes, witnesses, fork, exec, children
 *   os/channel.h  pipes, sockets, bells, timers, loops over descriptors
 *   os/folder.h   the runtime folder, its lock files, the search for memory objects
 *   os/thread.h   threads of this process, mutexes, condition variables
 *
 * Every implementation keeps these rules; a function's comment says only what is beyond them.
 *
 * R1  A function that returns int returns 0 or a count, or a negative TN_ERR_* with the detail
 *     of the thread set: the path or the descriptor, the errno, the limit that was reached. The
 *     comment lists the errors that a caller distinguishes. Any other failure is TN_ERR_SYSTEM;
 *     TN_ERR_INVALID is a bad argument.
 * R2  Results are the `ret_` parameters. They are written on success only.
 * R3  A descriptor that a function returns is close-on-exec, belongs to the caller, and is
 *     above 2: a program that closed a standard stream may still write to its number. When the
 *     soft limit of descriptors is reached, the function raises the limit to the hard one and
 *     tries once more; if the table is still full, the error is TN_ERR_SYSTEM.
 * R4  A deadline is an absolute time of tni_os_now_ns(), in nanoseconds. 0 tries once and does
 *     not block; TNI_FOREVER has no time limit. A passed deadline is TN_ERR_TIMED_OUT.
 * R5  A signal never ends a call early, except tni_os_wait().
 * R6  Every function may be called from any thread, and in a forked child, unless its comment
 *     says otherwise. No function holds a lock after it has returned.
 * R7  No function raises a signal that the program did not ask for: no SIGPIPE, no SIGXFSZ, no
 *     SIGBUS when memory runs out.
 * R8  A system call that an older kernel or a filter refuses has a fallback. Six of them can
 * be forced for tests, by their names in TENON_FORCE_FALLBACK, separated by commas:
 *
 *       name            the call                    the fallback
 *       populate_write  MADV_POPULATE_WRITE         tni_os_commit() touches each page
 *       noexec_seal     MFD_NOEXEC_SEAL             a memory object without that flag
 *       close_range     close_range()               each descriptor of /proc/self/fd is closed
 *       fallocate       fallocate()                 tni_os_shm_create() writes zeros
 *       tmpfile         O_TMPFILE                   a file that is unlinked at once
 *       witness         F_OFD_SETLK, F_OFD_GETLK    no witnesses: TN_ERR_SYSTEM, UNKNOWN
 *
 *     Where there are no witnesses, pid and start time tell whether a process lives, within one
 *     pid namespace.
 */
#ifndef TNI_OS_H
#define TNI_OS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/base.h"
#include "os/channel.h"
#include "os/folder.h"
#include "os/memory.h"
#include "os/process.h"
#include "os/thread.h"

/* ---- time -------------------------------------------------------------------------------- */

/** The clock of all deadlines: monotonic, the same for every process of one time namespace. */
uint64_t tni_os_now_ns(void);
/** The same clock, up to some milliseconds old, read in a few nanoseconds. */
uint64_t tni_os_coarse_ns(void);
/** Nanoseconds since 1970. A user may set this clock. */
uint64_t tni_os_unix_ns(void);
/**
 * The difference between tni_os_now_ns() here and in the machine's first time namespace. 0
 * where the difference is not known.
 */
int64_t tni_os_clock_ahead_ns(void);
/**
 * The time in the machine's first time namespace. Times in shared memory are of this clock,
 * since members may be in different time namespaces.
 */
static inline uint64_t tni_os_shared_ns(void)
{
    return tni_os_now_ns() - (uint64_t)tni_os_clock_ahead_ns();
}
void tni_os_sleep_until(uint64_t deadline_ns);

/* ---- the log ----------------------------------------------------------------------------- */

/*
 * Where TENON_LOG says; it is read when the library is loaded.
 */
/** Put `name` into each line in place of the program's name. It is borrowed for ever. */
void tni_os_log_name(const char *name);
/** Log to standard error up to this level, whatever TENON_LOG says. */
void tni_os_log_to_stderr(int level);

/* ---- the machine ------------------------------------------------------------------------- */

/** Memory of the machine, or the limit of this process's cgroup if that is lower. */
uint64_t tni_os_memory_bytes(void);
/** Memory of the machine that programs could get now without swapping. */
int tni_os_memory_available(uint64_t *ret_bytes);
/**
 * The value of a variable of the environment, or NULL. Every room reads variables by this
 * function. It returns NULL in a program that has more rights than the user who starts it
 * (setuid, setgid, file capabilities): there the environment is that user's choice.
 */
const char *tni_os_environment(const char *name);
/** A power of two. */
size_t tni_os_page_bytes(void);
/** Fill `bytes` with random bytes that other users cannot predict. */
int tni_os_random(void *bytes, size_t size_bytes);
/** The effective user. */
uint32_t tni_os_uid(void);
/**
 * Whether this process's user namespace maps its user. If not, tni_os_uid() is the number that
 * stands for every unmapped user. true where this is not known.
 */
bool tni_os_has_uid(void);
/** Processors that this process may run on; at least 1. */
uint32_t tni_os_cpu_count(void);
/** The system's policy for huge pages of shared memory, such as "advise"; "" if not known. */
void tni_os_huge_page_policy(char *text, size_t size_bytes);
/**
 * The node of memory that is nearest to a device of the PCI bus; -1: not known. For tests and
 * containers, $TENON_SYS_DIR is read instead of /sys.
 * @param address  as in "0000:3b:00.0"
 */
int32_t tni_os_pci_node(const char *address);

/* ---- libraries that are loaded at run time ----------------------------------------------- */

/**
 * Load a shared library, for the rest of the process's life. TN_ERR_UNSUPPORTED: it does not
 * exist or cannot be loaded.
 * @param path  a file, or a name that the dynamic loader searches for
 */
int tni_os_library_open(const char *path, void **ret_library);
/** The address of a symbol; NULL: the library has none of this name. */
void *tni_os_library_symbol(void *library, const char *name);

/* ---- sleeping and waking up, across processes -------------------------------------------- */

/**
 * Sleep while *word == expected.
 * @return 0: woken up, or the value differs, or a spurious wake-up, so the caller checks its
 *         condition again; TN_ERR_TIMED_OUT; TN_ERR_INTERRUPTED: a signal ended the sleep, and
 *         this thread has consumed no wake-up
 */
int tni_os_wait(_Atomic uint32_t *word, uint32_t expected, uint64_t deadline_ns);
/** Wake up at most `count` threads that sleep on the word. @return how many; never an error */
int tni_os_wake(_Atomic uint32_t *word, uint32_t count);
/** Whether sleeping and waking work in this process. TN_ERR_SYSTEM: a filter refuses the call.
 */
int tni_os_check_waits(void);
void tni_os_yield(void);
/**
 * Wait a moment for another thread that finishes soon, where there is no word to sleep on. The
 * first 16 tries in a row yield the processor. Later tries sleep, so that a thread of a lower
 * priority gets to run.
 */
void tni_os_back_off(uint32_t tries);

#endif
