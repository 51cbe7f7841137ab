/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TENON_STATUS_H
#define TENON_STATUS_H

#include <stdint.h>
#include <tenon/version.h>

TN_BEGIN_DECLS

/*
 * Every status: name, number, sentence, Python exception. Numbers never change.
 * Each group says what is damaged, so that a caller can treat a whole group alike.
 */
#define TN_STATUS_TABLE(X)                                                                     \
    /* nothing is damaged: the call changed nothing  */                                        \
    X(INVALID, -1, "an argument is out of range", ValueError)                                  \
    X(TIMED_OUT, -2, "the deadline passed", TimeoutError)                                      \
    X(UNSUPPORTED, -3, "this build or this system cannot do it", NotImplementedError)          \
    X(NOT_FOUND, -4, "nothing has this name or number", FileNotFoundError)                     \
    X(EXISTS, -5, "the name is taken", FileExistsError)                                        \
    X(DENIED, -6, "not permitted for this user or this object", PermissionError)               \
    X(INTERRUPTED, -7, "the wait was interrupted", InterruptedError)                           \
    /* the object: this one is at its end, others are well */                                  \
    X(CLOSED, -20, "the object was closed", BrokenPipeError)                                   \
    X(PEER_DIED, -21, "a process on the other side died, and no other is left",                \
      BrokenPipeError)                                                                         \
    X(STALE, -22, "the handle was used up, revoked, or expired", ValueError)                   \
    X(CHILD_FAILED, -23, "a child process failed", ChildProcessError)                          \
    /* room: try again when somebody gave something back */                                    \
    X(NO_MEMORY, -40, "no memory, or the domain's quota is used", MemoryError)                 \
    X(FULL, -41, "a table of the domain is full", OSError)                                     \
    X(SYSTEM, -42, "a system call failed", OSError)                                            \
    X(MANAGER, -43, "tenond could not be started or reached", OSError)                         \
    X(DEVICE, -44, "the driver of a device failed", OSError)                                   \
    /* the domain: this process cannot go on with it */                                        \
    X(CORRUPT, -60, "shared data failed a check", RuntimeError)                                \
    X(VERSION, -61, "another version of the shared layout", RuntimeError)                      \
    X(FORKED, -62, "this forked child has no seat in the domain", RuntimeError)

enum {
#define TN_STATUS_ENUM(name, number, sentence, python) TN_ERR_##name = (number),
    TN_STATUS_TABLE(TN_STATUS_ENUM)
#undef TN_STATUS_ENUM
        TN_OK = 0
};

/** The sentence of a status, static; "unknown status" for a number that is none. */
TN_API const char *tn_status_sentence(int status);

/** The name of a status, as in "TN_ERR_TIMED_OUT"; static. */
TN_API const char *tn_status_name(int status);

/**
 * What exactly went wrong in this thread's last failed call: the path, the errno, the number.
 * The text is about a call only right after that call failed: a call that succeeds leaves any
 * text, that of an older failure or that of a step which it tried in vain.
 *
 * Borrowed until this thread's next tenon call; "" when nothing failed yet.
 * Threads: each has its own.   Blocks: never.   Fork: yes.
 */
TN_API const char *tn_error_detail(void);

/** Who died, after TN_ERR_PEER_DIED (and after a lock that was recovered), in this thread. */
typedef struct tn_peer {
    uint32_t seat;
    int32_t pid;
} tn_peer;
/**
 * The process that died: of this thread's last call that returned TN_ERR_PEER_DIED, or
 * TN_LOCK_RECOVERED, which is a success.
 */
TN_API tn_peer tn_error_peer(void);

/**
 * Receive one line, without an end of line, for each event that a person may want to see.
 * @param level  0 error, 1 warning, 2 information, 3 debug
 */
typedef void tn_log_fn(int level, const char *line, void *context);

/**
 * Set the function of the process that receives events; NULL is none, the default.
 *
 * Without a function the library writes nothing, unless the environment variable
 * TENON_LOG=LEVEL[:FILE] was set when the library was loaded. LEVEL is error, warning, info or
 * debug, or 0 to 3. Lines up to that level are appended to FILE, or written to standard error
 * if there is no FILE or it is "-", as "2026-11-25T22:40:01.123Z PROGRAM[PID] LEVEL: EVENT"; a
 * tenond that this process starts appends to the same file. At the level debug these lines have
 * each error too. A function that is set here takes the place of TENON_LOG.
 *
 * @param log  is called in the thread in which something happened. It must not call tenon
 *
 * Threads: any; a thread may still call the function from before.   Blocks: never.
 * Fork: a child has its parent's.
 */
TN_API void tn_log_set(tn_log_fn *log, void *context);

/** Decide whether a wait ends: any result but 0 ends it. Runs in the thread that waits. */
typedef int tn_interrupt_fn(void *context);

/**
 * Set the hook of the process that ends waits, for programs that answer signals outside of
 * their handlers; NULL is none, the default.
 *
 * A thread that waits calls it after a signal interrupted its sleep, and every 100 ms at least.
 * When it returns something else than 0, the wait ends with TN_ERR_INTERRUPTED and has no
 * effect: no message, permit or lock was taken, and no signal of a condition is lost to other
 * waiters. There are two exceptions. A wait for a condition returns with the lock held, and
 * returns TN_LOCK_RECOVERED instead where that applies. A wait at a barrier breaks the barrier,
 * as a deadline does; if all parties had come, or the barrier was broken before, the wait
 * returns that instead.
 *
 * The hook ends waits for queues, for the objects of tenon/sync.h, for memory, for the ends of
 * children and groups, for fork servers, and for pools. It does not end a wait for tenond, for
 * a child that starts or is being closed, or for the other side of a socket.
 *
 * @param check  may call any function that another thread may call at that moment, and may
 *               wait: the library holds no lock when it calls the hook. If there is no private
 *               memory to store the hook, no hook is set
 *
 * Threads: any; a wait that is under way may still call the previous hook.   Blocks: never.
 * Fork: a child has its parent's hook. `check` may fork: in that child, a wait for a child, a
 * group, a fork server or a pool of its parent ends with TN_ERR_INVALID.
 */
TN_API void tn_interrupt_set(tn_interrupt_fn *check, void *context);

TN_END_DECLS

#endif
