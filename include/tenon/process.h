/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TENON_PROCESS_H
#define TENON_PROCESS_H

#include <tenon/domain.h>

TN_BEGIN_DECLS

/**
 * A child process that is a member of the domain. It ends when its parent ends, also when the
 * parent is SIGKILLed, unless TN_PROCESS_DETACHED. The parent is the process: any thread of it
 * may end before, the main thread by pthread_exit() too.
 *
 * The kernel tells a child that its parent ended by SIGURG, which the library handles; programs
 * may use it as well, if they call the handler that was there before. A child that blocks
 * SIGURG or takes it over ends when a survivor or tenond reclaims its parent; one that replaced
 * itself by exec() is no member any more, and goes on: tn_process_exec() is for that. A program
 * that the main thread started with tn_process_exec() has SIGKILL instead, from before it
 * joins: it also ends when the main thread leaves by pthread_exit().
 *
 * Threads: one at a time per object.   Fork: not in a child.
 */
typedef struct tn_process tn_process;

enum {
    TN_PROCESS_DETACHED = 1u << 0 /* the child may outlive its parent */
};

/** Runs in the child; its result is the exit code, 0 to 255. */
typedef int tn_process_fn(tn_domain *domain, void *argument);

/**
 * Start a function in a forked child.
 * @param argument    passed on as it is; the child sees a copy of this process's memory
 * @return 0, or TN_ERR_FULL (seats), TN_ERR_SYSTEM (no process, no descriptor),
 *         TN_ERR_NO_MEMORY (private memory, of the child too), TN_ERR_FORKED
 *
 * Threads: any; but fork copies only the calling thread, see fork(2).
 * Crash: a half-started child finds its parent dead and ends.
 */
TN_API TN_NODISCARD int tn_process_fork(tn_domain *domain, tn_process_fn *run, void *argument,
                                        uint32_t flags, tn_process **ret_process);

/**
 * Start a program, which joins with tn_domain_inherit().
 * @param argv         [n + 1], NULL at the end; argv[0] is looked up in PATH
 * @param environment  NAME=VALUE strings added to this process's, NULL at the end; may be NULL.
 *                     TENON_DOMAIN, TENON_PARENT and TENON_MESSAGE_FD are refused: the call
 *                     sets them
 * @return as tn_process_fork(), or TN_ERR_NOT_FOUND / TN_ERR_DENIED when argv[0] cannot be run;
 *         TN_ERR_INVALID: argv[0] is empty, or a string of the environment is refused
 */
TN_API TN_NODISCARD int tn_process_exec(tn_domain *domain, const char *const *argv,
                                        const char *const *environment, uint32_t flags,
                                        tn_process **ret_process);

/**
 * End this process when the member with this pid ends, however that ends: for a process that
 * was started by other means than the two above. Its parent ends it at once; another member
 * when tenond, or a survivor that waits, has seen its end.
 *
 * @return 0, or TN_ERR_NOT_FOUND: no other living member has this pid, TN_ERR_PEER_DIED: it has
 *         just ended; TN_ERR_FORKED
 *
 * Threads: any.   Blocks: never.   Fork: yes; a child of this process follows nobody.
 */
TN_API TN_NODISCARD int tn_process_follow(tn_domain *domain, int32_t pid);

/** The process number of the child; 0 for NULL. */
TN_API int32_t tn_process_pid(const tn_process *process);

/** How a child ended. */
typedef struct tn_process_status {
    size_t struct_size; /* sizeof(tn_process_status), set by the caller */
    int32_t exit_code; /* 0 to 255; -1: a signal ended it, or, if `signal` is 0, nobody knows */
    int32_t signal;    /* 0 if it exited, or if nobody knows */
    int32_t pid;
    uint32_t index;    /* in its group */
    char message[256]; /* what the child said with tn_process_fail(), or ""; control characters
                          and what is no UTF-8 are '?' */
} tn_process_status;

/**
 * Wait for its end. May be called again. TN_ERR_TIMED_OUT: still running; TN_ERR_INTERRUPTED:
 * tn_interrupt_set(). `ret_status` may be NULL.
 *
 * If the program ignores SIGCHLD or waits for any child, the exit status of this child is lost.
 * Then the exit code is known only if the child's function returned or called
 * tn_process_fail(); otherwise exit_code is -1 and signal is 0. That is no failure.
 */
TN_API TN_NODISCARD int tn_process_wait(tn_process *process, tn_deadline deadline,
                                        tn_process_status *ret_status);

/** Send a signal; nothing happens if it has ended. */
TN_API TN_NODISCARD int tn_process_kill(tn_process *process, int signal);

/**
 * Kill the child if it still runs, wait for its end, free the object. A detached child is
 * neither killed nor waited for: it runs on. Returns NULL.
 */
TN_API tn_process *tn_process_close(tn_process *process);

/**
 * In a child: leave a message for the parent (at most 255 bytes are kept) and exit with code 1.
 */
TN_API void tn_process_fail(const char *message) __attribute__((noreturn));

/**
 * A fork server: a process of one thread that forks when it is told to, so that a main process
 * with threads, devices or much memory need not. Start it early: what it forks is a copy of the
 * main process as it was then, with what was mapped, loaded and open at that time.
 *
 * A child that it forks is a child of the process that started the server, as if that one had
 * forked it: wait, kill, groups and exit codes are the same, and it ends with that process. A
 * server that died takes no child with it; only tn_forkserver_fork() fails from then on.
 *
 * The server is a member of the domain, with a seat and with holds of its own on what was held
 * when it started; it gives them back when it ends, and so does each child. It ends with the
 * process that started it. It ignores SIGINT, SIGQUIT and SIGHUP, which are that process's to
 * handle, and handles no other signal; its children have the handlers and ignored signals that
 * the process had when it started the server.
 *
 * Threads: any may call tn_forkserver_fork(), also through a pool; else one at a time per
 * object.   Fork: not in a child.
 */
typedef struct tn_forkserver tn_forkserver;

enum { TN_FORKSERVER_MAX_BYTES = 65536 };

/**
 * Start one. Errors as of tn_process_fork().
 * Threads: any; but the server is a fork of this process, see fork(2).
 */
TN_API TN_NODISCARD int tn_forkserver_start(tn_domain *domain, tn_forkserver **ret_server);

/**
 * Let the server fork a child that runs a function. Six parameters: those of tn_process_fork(),
 * and the size of the argument, which is copied.
 *
 * @param run         a function of the program, or of a library that was loaded when the server
 *                    started
 * @param argument    [size_bytes], at most TN_FORKSERVER_MAX_BYTES; the child gets a copy,
 *                    aligned to 16 bytes, its own until it ends. Pointers in it mean what they
 *                    meant when the server started
 * @param flags       TN_PROCESS_*
 * @return as tn_process_fork(); TN_ERR_PEER_DIED: the server has ended, tn_error_peer() has its
 *         pid; TN_ERR_INVALID: too many bytes; TN_ERR_INTERRUPTED: tn_interrupt_set(), the
 *         function was not run, and will not be. Where the child runs already when the hook
 *         ends the wait, the call succeeds
 *
 * The pthread_atfork() handlers of other libraries do not run around this fork.
 *
 * Threads: any. The server forks one child at a time, and calls wait for their turn.
 * Blocks: until the child runs. A server that is stopped holds up the calls that ask it, and no
 * others.
 * Crash: a half-started child finds its parent dead and ends.
 */
TN_API TN_NODISCARD int tn_forkserver_fork(tn_forkserver *server, tn_process_fn *run,
                                           const void *argument, size_t size_bytes,
                                           uint32_t flags, tn_process **ret_process);

/** The process number of the server; 0 for NULL. */
TN_API int32_t tn_forkserver_pid(const tn_forkserver *server);

/** End the server; its children go on. Returns NULL; NULL is accepted. */
TN_API tn_forkserver *tn_forkserver_close(tn_forkserver *server);

/**
 * Children that belong together: when the first one fails, the others are ended (SIGTERM, after
 * `grace_ns` SIGKILL), and the first failure is what is reported.
 *
 * Threads: one at a time per object.   Fork: not in a child, where only tn_group_close() does
 * something: it frees the copy.
 */
typedef struct tn_group tn_group;

/** Make a group without children. TN_ERR_NO_MEMORY (private memory), TN_ERR_FORKED. */
TN_API TN_NODISCARD int tn_group_create(tn_domain *domain, tn_group **ret_group);
/** Runs in each child; `index` counts from 0 within the group. */
typedef int tn_group_fn(tn_domain *domain, uint32_t index, void *argument);
/**
 * Start `count` children; on failure those that were started are ended. Errors as of
 * tn_process_fork().
 */
TN_API TN_NODISCARD int tn_group_fork(tn_group *group, uint32_t count, tn_group_fn *run,
                                      void *argument);
/**
 * Put a child that was started on its own into the group; consumed on success. TN_ERR_INVALID:
 * it is in a group already; or an argument is NULL, or of another process.
 */
TN_API TN_NODISCARD int tn_group_add(tn_group *group, tn_process *process);
/**
 * Wait for all.
 * @return 0: all have ended, and none is known to have failed (tn_process_wait());
 *         TN_ERR_CHILD_FAILED: `ret_first` says which and why, the others have been ended;
 *         TN_ERR_TIMED_OUT: some still run; TN_ERR_INTERRUPTED: tn_interrupt_set()
 */
TN_API TN_NODISCARD int tn_group_wait(tn_group *group, uint64_t grace_ns, tn_deadline deadline,
                                      tn_process_status *ret_first);
/**
 * The child with this index, in the order in which children were put into the group, those that
 * ended too. Borrowed until the group is closed; NULL when out of range.
 */
TN_API tn_process *tn_group_get(tn_group *group, uint32_t index);
/** Close every child as tn_process_close() does, and free the group. Returns NULL; NULL is
 * accepted. */
TN_API tn_group *tn_group_close(tn_group *group);

TN_END_DECLS

#endif
