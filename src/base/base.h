/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base: functions that every room uses: errors with a sentence, arithmetic that reports
 * overflow, bits, the program's hooks, names, kill points. Only kill points make system calls,
 * and no release has kill points. The room has no shared memory.
 */
#ifndef TNI_BASE_H
#define TNI_BASE_H

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <tenon/status.h>

#include "base/text.h"

/** The deadline of TN_FOREVER: a time that never comes. */
#define TNI_FOREVER UINT64_MAX

#define TNI_COUNT(array) (sizeof(array) / sizeof(array)[0])
#define TNI_MIN(a, b)    ((a) < (b) ? (a) : (b))
#define TNI_MAX(a, b)    ((a) > (b) ? (a) : (b))
#define TNI_LIKELY(x)    __builtin_expect(!!(x), 1)
#define TNI_UNLIKELY(x)  __builtin_expect(!!(x), 0)

enum { TNI_CACHE_LINE = 64 };

/**
 * The pause after a periodic scan that took `took_ns`: `factor` times as long, at least
 * `least_ns`. At most 30 s, since `took_ns` includes time in which the process was stopped or
 * the machine was suspended.
 */
static inline uint64_t tni_pause_ns(uint64_t took_ns, uint64_t factor, uint64_t least_ns)
{
    const uint64_t most_ns = UINT64_C(30000000000);
    uint64_t pause_ns = TNI_MIN(took_ns, most_ns) * factor;
    return TNI_MAX(TNI_MIN(pause_ns, most_ns), least_ns);
}

/**
 * Set this thread's error detail and return `status`. Only the function that detects the error
 * calls this; its callers pass the status on.
 */
int tni_fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));
/**
 * Fail as tni_fail() does, and append ": <text of errno_value>" to the sentence. A sentence
 * that is too long loses its middle, which is most likely that of a path.
 */
int tni_fail_errno(int status, int errno_value, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int tni_fail_errno_list(int status, int errno_value, const char *format, va_list arguments)
    __attribute__((format(printf, 3, 0)));
/**
 * Fail as tni_fail() does, with a static sentence, which is not formatted. For errors that are
 * part of normal work, such as a full queue.
 */
int tni_fail_plain(int status, const char *sentence);
/*
 * Tell the compiler and the analyzer that the status of a failure is negative. Then these tools
 * see that a caller which tests for an error does not use an unset ret_x.
 */
static inline int tni_negative(int status)
{
    if (status >= 0)
        __builtin_unreachable();
    return status;
}
#define tni_fail(...)            tni_negative(tni_fail(__VA_ARGS__))
#define tni_fail_errno(...)      tni_negative(tni_fail_errno(__VA_ARGS__))
#define tni_fail_errno_list(...) tni_negative(tni_fail_errno_list(__VA_ARGS__))
#define tni_fail_plain(...)      tni_negative(tni_fail_plain(__VA_ARGS__))
/** Fail because the argument `name` of a public function is NULL. */
#define tni_fail_null(name) tni_fail(TN_ERR_INVALID, "%s is NULL", name)
/** Set what tn_error_peer() returns in this thread: the process whose death is the error. */
void tni_set_peer(uint32_t seat, int32_t pid);

enum { TNI_LOG_ERROR, TNI_LOG_WARNING, TNI_LOG_INFO, TNI_LOG_DEBUG, TNI_LOG_LEVELS };
/** Log an event: call the program's function (tn_log_set()), or else the writer. */
void tni_log(int level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/** Whether a writer gets lines of this level. */
bool tni_log_is_written(int level);
/**
 * Log an event for the writer only. For a handler of fork() in the child: a function of the
 * program may wait there for a lock that a thread of the parent had.
 */
void tni_log_written(int level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/**
 * Log a failure at the level debug, for the writer only. The program's function is not called:
 * structures may be half changed, and the program learns of failures by their status.
 */
void tni_log_failure(const char *status_name, const char *sentence);
/** Writes a line of the log. Must not call functions of the library that call tni_fail(). */
typedef void tni_log_writer(int level, const char *line);
/**
 * Set the writer of the lines of `level` and below. It is called while the program has set no
 * function with tn_log_set(). NULL: no writer.
 */
void tni_log_set_writer(int level, tni_log_writer *writer);

/*
 * True while libc knows that the process has one thread; libc makes it false before a second
 * thread runs. While it is true, words that only this process's threads use need no locked
 * instructions. Used only on x86-64, where other processes see plain stores in their order.
 */
#if defined(__x86_64__) && defined(__has_include)
#if __has_include(<sys/single_threaded.h>)
#include <sys/single_threaded.h>
#define TNI_IS_SOLO() (__libc_single_threaded != 0)
#endif
#endif
#if !defined(TNI_IS_SOLO)
#define TNI_IS_SOLO() false
#endif

/*
 * For thread-local variables of the hot path: this attribute makes a read a single load,
 * without a call. The loader reserves little space for such variables of libraries that are
 * loaded late, so only a few bytes may have this attribute.
 */
#define TNI_TLS_INITIAL __attribute__((tls_model("initial-exec")))

/*
 * For functions that run around fork(): the linker places them side by side. A forked child has
 * no page of the program mapped, so each page of code that it runs costs a page fault.
 */
#define TNI_AROUND_FORK __attribute__((cold))

/*
 * A hook: a function of the program, and its context. Function and context are in one node, so
 * that one atomic pointer publishes both.
 */
typedef void tni_hook_fn(void);
struct tni_hook {
    tni_hook_fn *call; /* the caller casts it to its own type */
    void *context;
    struct tni_hook *older;
};
/** Get the node of a hook, which is never freed. NULL: `call` is NULL, or memory ran out. */
struct tni_hook *tni_hook_of(tni_hook_fn *call, void *context);

/** The time at which this thread next calls the hook of tn_interrupt_set(); else TNI_FOREVER.
 */
uint64_t tni_interrupt_due_ns(void);
/**
 * Call the hook of tn_interrupt_set(), if there is one. Called after a signal, or when the hook
 * is due. pre: this thread has no thread record, no claim and no lock, since the hook may call
 * tenon, wait or fork
 * @return 0, or TN_ERR_INTERRUPTED: the hook ends the wait
 */
int tni_interrupt_ask(uint64_t now_ns);
/**
 * Set whether this thread defers the hook. While it does, tni_interrupt_ask() returns
 * TN_ERR_INTERRUPTED instead of calling the hook, and the caller of the wait calls the hook
 * later. @return the previous setting
 */
bool tni_interrupt_defer(bool defers);
/** Set whether this thread never calls the hook: a thread of the library, with no caller. */
void tni_interrupt_exempt(bool is_exempt);

/* Arithmetic. @return false: the result would overflow, and *ret is unchanged */
static inline bool tni_add_size(uint64_t a, uint64_t b, uint64_t *ret)
{
    uint64_t result;
    if (__builtin_add_overflow(a, b, &result))
        return false;
    *ret = result;
    return true;
}
static inline bool tni_mul_size(uint64_t a, uint64_t b, uint64_t *ret)
{
    uint64_t result;
    if (__builtin_mul_overflow(a, b, &result))
        return false;
    *ret = result;
    return true;
}
static inline uint64_t tni_align_up(uint64_t value, uint64_t power_of_two)
{
    return (value + power_of_two - 1) & ~(power_of_two - 1);
}
/** Position of the lowest set bit; `word` is not 0. */
static inline uint32_t tni_low_bit(uint64_t word) { return (uint32_t)__builtin_ctzll(word); }
static inline uint64_t tni_bit_count(uint64_t word)
{
    return (uint64_t)__builtin_popcountll(word);
}
/** The smallest n with 2^n >= value; value >= 1. */
static inline uint32_t tni_log2_up(uint64_t value)
{
    return value <= 1 ? 0 : 64u - (uint32_t)__builtin_clzll(value - 1);
}

/** Read a field once that another process may write: the value checked is the value used. */
#define TNI_LOOK(field) __atomic_load_n(&(field), __ATOMIC_RELAXED)
/** Write a field that another process may be reading. The reader checks the value. */
#define TNI_PUT(field, value) __atomic_store_n(&(field), value, __ATOMIC_RELAXED)
/**
 * Copy bytes that another process may be writing. The caller detects that afterwards and drops
 * the copy, so the thread sanitizer must not report the race.
 */
#if defined(__SANITIZE_THREAD__)
__attribute__((no_sanitize("thread"), noinline, unused)) static void
tni_copy_unstable(void *to, const void *from, size_t size_bytes)
{
    for (size_t i = 0; i < size_bytes; i++)
        ((volatile uint8_t *)to)[i] = ((const volatile uint8_t *)from)[i];
}
#else
static inline void tni_copy_unstable(void *to, const void *from, size_t size_bytes)
{
    memcpy(to, from, size_bytes);
}
#endif
/** Compare with bytes that another process may be writing, as tni_copy_unstable() copies. */
static inline bool tni_equals_unstable(const void *one, const void *unstable, size_t size_bytes)
{
#if defined(__SANITIZE_THREAD__)
    bool is_equal = true;
    for (size_t i = 0; i < size_bytes; i++) {
        uint8_t byte;
        tni_copy_unstable(&byte, (const uint8_t *)unstable + i, 1);
        is_equal &= byte == ((const uint8_t *)one)[i];
    }
    return is_equal;
#else
    return memcmp(one, unstable, size_bytes) == 0;
#endif
}

/** A pause in a loop that polls a word. */
static inline void tni_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

/**
 * Read an options struct, which begins with its own size. `given` may be NULL. A program that
 * was compiled with an older header gives a smaller struct: the missing fields keep their
 * defaults. A program with a newer header gives a larger struct: the bytes that this library
 * does not know must be 0.
 * @param ret  [known_bytes]; holds the defaults and keeps them if `given` is NULL
 * @return 0, TN_ERR_INVALID (no header has this size), TN_ERR_UNSUPPORTED
 */
int tni_take_options(const char *what, const void *given, size_t known_bytes, void *ret);

/** Check that tni_give_struct() can fill in `ret`. @return 0, or TN_ERR_INVALID */
int tni_check_struct(const char *what, const void *ret, size_t known_bytes);

/**
 * Fill in a struct that the caller provides and that begins with its own size. If the caller
 * was compiled with an older header, the fields that the caller does not know are left out;
 * with a newer header, the bytes that this library does not know are set to 0.
 * @param ours  [known_bytes], as this library fills it in; its struct_size is ignored
 * @return 0, or TN_ERR_INVALID: NULL, or no header has this size; `ret` is untouched
 */
int tni_give_struct(const char *what, const void *ours, size_t known_bytes, void *ret);

/**
 * Check a name: 1 to max_len bytes of [A-Za-z0-9._-], the first not a dot. `what` begins the
 * error's sentence. TN_ERR_INVALID.
 */
int tni_check_name(const char *what, const char *name, size_t max_len);

/**
 * FNV-1a, 64 bits. Source: Fowler, Noll, Vo, IETF draft-eastlake-fnv. It detects accidents, not
 * forgery.
 */
uint64_t tni_hash(const void *bytes, size_t size_bytes);
/** Another hash of bytes, which takes eight of them at a time. Machines of another byte order
 * get another number. */
uint64_t tni_hash_fast(const void *bytes, size_t size_bytes);

/*
 * Kill points: a test arms a kill point by its name, and the process kills itself with SIGKILL
 * when it passes the point. Kill points exist only with TN_KILL_POINTS.
 * TENON_KILL_POINT=name[:n] arms the n-th pass (from 1); tni_kill_point_arm() arms a pass in a
 * forked child of a test. TENON_KILL_LIST=path makes the process append the name of each point
 * that it passes to a file; tni_kill_point_list() does the same, until it is called with NULL.
 */
#if defined(TN_KILL_POINTS)
void tni_kill_point(const char *name);
void tni_kill_point_arm(const char *name, uint32_t passing);
void tni_kill_point_list(const char *path);
#define TNI_KILL_POINT(name) tni_kill_point(name)
#else
#define TNI_KILL_POINT(name) ((void)0)
#endif

#endif
