/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TENON_PROCESS_H
#define TENON_PROCESS_H

#include <tenon/domain.h>

TN_BEGIN_DECLS

/**
 * A child process that is a member of the domain. The child ends when its parent process ends,
 * even if the parent is killed by SIGKILL, unless the child was started with
 * TN_PROCESS_DETACHED. A thread of the parent may end earlier without effect, and so may the
 * main thread by pthread_exit().
 *
 * The kernel notifies a child of the end of its parent by SIGURG, which the library handles. A
 * program may set its own handler for SIGURG if that calls the previous handler. A child that
 * blocks SIGURG, or whose handler does not call the previous one, ends later, when another
 * member or tenond reclaims its parent. A child that calls exec() itself is no longer a member,
 * and does not end with its parent: use tn_process_exec() instead. A program that the main
 * thread starts with tn_process_exec() gets SIGKILL instead of SIGURG. Such a program also ends
 * when the main thread calls pthread_exit().
 *
 * Threads: one at a time per object.   Fork: not in a child.
 */
typedef struct tn_process tn_process;

enum {
    TN_PROCESS_DETACHED = 1u << 0 /* the child may outlive its parent */
};

/** The function of a child. Its result is the exit code, 0 to 255. */
typedef int tn_process_fn(tn_domain *domain, void *argument);

/**
 * Start a child by fork(), and run a function in it.
 *
 * @param argument     passed on to `run`. The child has a copy of this process's memory, so
 *                     that pointers remain valid in it
 * @param flags        TN_PROCESS_*
 * @param ret_process  owned by the caller, ended with tn_process_close(); untouched on failure
 * @return 0, or
 *         TN_ERR_INVALID    an argument is NULL, or a flag is unknown
 *         TN_ERR_FULL       the domain has no free seat
 *         TN_ERR_NO_MEMORY  this process or the child has no private memory
 *         TN_ERR_SYSTEM     no process or no descriptor can be made
 *         TN_ERR_CLOSED, TN_ERR_FORKED  this process has left the domain, or has no seat in it
 *
 * Threads: any; but fork() copies only the calling thread, see fork(2).
 * Blocks: until the child has its seat.   Fork: yes: a child may have children.
 * Crash: a child that is not yet running finds that its parent is dead, and ends.
 */
TN_API TN_NODISCARD int tn_process_fork(tn_domain *domain, tn_process_fn *run, void *argument,
                                        uint32_t flags, tn_process **ret_process);

/**
 * Start a program as a child. The program joins the domain with tn_domain_inherit().
 *
 * @param argv         the program and its arguments, NULL at the end; borrowed. argv[0] is
 *                     searched for in PATH
 * @param environment  NAME=VALUE strings that are added to the environment of this process,
 *                     NULL at the end; borrowed; may be NULL. TENON_DOMAIN, TENON_PARENT and
 *                     TENON_MESSAGE_FD are refused: the call sets them
 * @param flags        TN_PROCESS_*
 * @param ret_process  owned by the caller, ended with tn_process_close(); untouched on failure
 * @return as tn_process_fork(), or TN_ERR_NOT_FOUND or TN_ERR_DENIED: argv[0] cannot be
 *         executed; TN_ERR_INVALID also: argv[0] is empty, or a string of the environment is
 *         refused
 *
 * Threads: any.   Fork: yes.
 * Crash: as tn_process_fork().
 */
TN_API TN_NODISCARD int tn_process_exec(tn_domain *domain, const char *const *argv,
                                        const char *const *environment, uint32_t flags,
                                        tn_process **ret_process);

/**
 * Bind the life of this process to another member: this process ends when that member ends, by
 * whatever cause. A process that was not started by the two functions above can so be made to
 * end with its parent. If the member is the parent, this process ends at once; otherwise it
 * ends when tenond or a member that waits has noticed the end.
 *
 * @param pid  the process number of the member
 * @return 0, or
 *         TN_ERR_INVALID    the domain is NULL
 *         TN_ERR_NOT_FOUND  no other live member has this pid
 *         TN_ERR_PEER_DIED  the member has just ended
 *         TN_ERR_CLOSED, TN_ERR_FORKED  this process has left the domain, or has no seat in it
 *
 * Threads: any.   Blocks: bounded.   Fork: yes; a child of this process is not bound.
 */
TN_API TN_NODISCARD int tn_process_follow(tn_domain *domain, int32_t pid);

/** Get the process number of the child; 0 for NULL. */
TN_API int32_t tn_process_pid(const tn_process *process);

/** How a child ended. */
typedef struct tn_process_status {
    size_t struct_size; /* sizeof(tn_process_status), set by the caller */
    int32_t exit_code; /* 0 to 255; -1: a signal ended the child, or, if `signal` is 0, the exit
                          status is lost */
    int32_t signal;    /* the signal that ended the child; 0: none, or the status is lost */
    int32_t pid;
    uint32_t index;    /* in the child's group */
    char message[256]; /* what the child gave to tn_process_fail(), or ""; a '?' stands for each
                          control character and each byte that is not UTF-8 */
} tn_process_status;

/**
 * Wait until the child has ended. The call may be repeated.
 *
 * If the program ignores SIGCHLD or waits for any child, the exit status of this child is lost.
 * Then the exit code is known only if the child's function returned or called
 * tn_process_fail(); otherwise exit_code is -1 and signal is 0. That is not a failure.
 *
 * @param ret_status  its struct_size says how much is filled in; may be NULL; untouched on
 *                    failure
 * @return 0, or
 *         TN_ERR_INVALID      the process is NULL or was started by another process; or
 *                             struct_size is out of range
 *         TN_ERR_TIMED_OUT    the child still runs at the deadline
 *         TN_ERR_INTERRUPTED  the hook of tn_interrupt_set() ended the wait
 *
 * Blocks: until the child has ended, or the deadline.
 */
TN_API TN_NODISCARD int tn_process_wait(tn_process *process, tn_deadline deadline,
                                        tn_process_status *ret_status);

/**
 * Send a signal to the child. A child that has ended gets none, and the call succeeds.
 * @param signal  as kill(2)
 * @return 0, TN_ERR_INVALID (the process is NULL or was started by another process, or there is
 *         no such signal), or TN_ERR_DENIED
 */
TN_API TN_NODISCARD int tn_process_kill(tn_process *process, int signal);

/**
 * Kill the child if it still runs, wait until it has ended, and free the object. A detached
 * child is not killed, and the call does not wait for it.
 * @param process  consumed; NULL is accepted
 * @return NULL
 *
 * Fork: a child frees its copy only.
 */
TN_API tn_process *tn_process_close(tn_process *process);

/**
 * Exit with code 1, and leave a message for the parent. A child calls this; the parent gets the
 * message with tn_process_wait().
 * @param message  the first 255 bytes are kept; NULL is ""
 */
TN_API void tn_process_fail(const char *message) __attribute__((noreturn));

/**
 * A fork server: a process of one thread that forks children for the process that started it,
 * so that a process with threads, devices or much memory need not fork. Start the server early:
 * its children are copies of the starting process as it was at that moment, with the memory,
 * the libraries and the descriptors of that moment.
 *
 * Such a child is a child of the process that started the server, as if that process had forked
 * it: waiting, killing, groups and exit codes are the same, and the child ends with that
 * process. If the server dies, its children continue, and tn_forkserver_fork() fails.
 *
 * The server is a member of the domain. It has a seat, and holds what the starting process held
 * at that moment; it releases both when it ends, and so does each child. The server ends with
 * the process that started it. It ignores SIGINT, SIGQUIT and SIGHUP, and handles no other
 * signal. Its children have the handlers and ignored signals that the starting process had at
 * that moment.
 *
 * Threads: any number may call tn_forkserver_fork() at once, also through pools; the other
 * functions one at a time per object.   Fork: not in a child.
 */
typedef struct tn_forkserver tn_forkserver;

enum { TN_FORKSERVER_MAX_BYTES = 65536 };

/**
 * Start a fork server.
 * @param ret_server  owned by the caller, ended with tn_forkserver_close(); untouched on
 * failure
 * @return as tn_process_fork()
 *
 * Threads: any; but the server is a fork of this process, see fork(2).
 * Blocks: until the server runs.   Crash: the server ends.
 */
TN_API TN_NODISCARD int tn_forkserver_start(tn_domain *domain, tn_forkserver **ret_server);

/**
 * Let the server fork a child that runs a function. Six parameters: those of tn_process_fork(),
 * and the size of the argument, which is copied. The pthread_atfork() handlers of other
 * libraries do not run around this fork.
 *
 * @param run          a function of the program, or of a library that was loaded when the
 * server started
 * @param argument     [size_bytes], borrowed; may be NULL when size_bytes is 0. The child has a
 *                     copy until it ends, aligned to 16 bytes. A pointer in it refers to the
 *                     memory of this process as it was when the server started
 * @param size_bytes   at most TN_FORKSERVER_MAX_BYTES
 * @param flags        TN_PROCESS_*
 * @param ret_process  owned by the caller, ended with tn_process_close(); untouched on failure
 * @return 0, or
 *         TN_ERR_INVALID      an argument is NULL; size_bytes or a flag is out of range; or
 *                             another process started the server
 *         TN_ERR_PEER_DIED    the server has ended; tn_error_peer() gives its pid
 *         TN_ERR_INTERRUPTED  the hook of tn_interrupt_set() ended the wait. The function has
 *                             not run and will not run. If the child already runs when the hook
 *                             ends the wait, the call succeeds
 *         TN_ERR_FULL, TN_ERR_NO_MEMORY, TN_ERR_SYSTEM, TN_ERR_CLOSED, TN_ERR_FORKED  as
 *                             tn_process_fork()
 *
 * Threads: any. The server forks one child at a time, and calls wait for their turn.
 * Blocks: until the child runs. A server that is stopped delays the calls that use it, and no
 * others.
 * Crash: a child that is not yet running finds that its parent is dead, and ends.
 */
TN_API TN_NODISCARD int tn_forkserver_fork(tn_forkserver *server, tn_process_fn *run,
                                           const void *argument, size_t size_bytes,
                                           uint32_t flags, tn_process **ret_process);

/** Get the process number of the server; 0 for NULL. */
TN_API int32_t tn_forkserver_pid(const tn_forkserver *server);

/**
 * End the server. Its children continue.
 * @param server  consumed; NULL is accepted
 * @return NULL
 */
TN_API tn_forkserver *tn_forkserver_close(tn_forkserver *server);

/**
 * A group of children that belong together. When one child fails, tn_group_wait() ends the
 * others and reports the first failure.
 *
 * Threads: one at a time per object.   Fork: not in a child; there tn_group_close() frees the
 * copy, and the other functions fail.
 */
typedef struct tn_group tn_group;

/**
 * Make a group without children.
 * @param ret_group  owned by the caller, ended with tn_group_close(); untouched on failure
 * @return 0, TN_ERR_INVALID (an argument is NULL), TN_ERR_NO_MEMORY (private memory),
 *         TN_ERR_CLOSED (this process has left the domain), or TN_ERR_FORKED (no seat)
 */
TN_API TN_NODISCARD int tn_group_create(tn_domain *domain, tn_group **ret_group);
/**
 * The function of each child of a group. Its result is the exit code, 0 to 255.
 * @param index  which child of the group this is, from 0
 */
typedef int tn_group_fn(tn_domain *domain, uint32_t index, void *argument);
/**
 * Start children as tn_process_fork() does, and put them into the group. On failure the call
 * ends the children that it has started.
 * @param count     how many
 * @param argument  passed on to `run`, as in tn_process_fork()
 * @return as tn_process_fork(); TN_ERR_INVALID also if another process made the group
 */
TN_API TN_NODISCARD int tn_group_fork(tn_group *group, uint32_t count, tn_group_fn *run,
                                      void *argument);
/**
 * Put a child that was started on its own into the group.
 * @param process  consumed on success; left with the caller on failure
 * @return 0, TN_ERR_INVALID (an argument is NULL, or belongs to another
 *         process; or the child is in a group already), or
 *         TN_ERR_NO_MEMORY (private memory)
 */
TN_API TN_NODISCARD int tn_group_add(tn_group *group, tn_process *process);
/**
 * Wait until all children have ended. If one of them fails, the call sends SIGTERM to the
 * others, and SIGKILL after the grace time to those that still run.
 *
 * @param grace_ns   the time between the two signals; 0: SIGKILL at once
 * @param ret_first  the first child that failed, if the call returns TN_ERR_CHILD_FAILED; its
 *                   struct_size says how much is filled in; may be NULL; otherwise untouched
 * @return 0: all children have ended, and none is known to have failed (tn_process_wait()); or
 *         TN_ERR_CHILD_FAILED  a child has failed, and all children have ended
 *         TN_ERR_TIMED_OUT     a child still runs at the deadline
 *         TN_ERR_INTERRUPTED   the hook of tn_interrupt_set() ended the wait
 *         TN_ERR_INVALID       the group is NULL or of another process, or struct_size is out
 * of range
 *
 * Blocks: until all children have ended, or the deadline. The grace time does not extend the
 * deadline: call again to finish.
 */
TN_API TN_NODISCARD int tn_group_wait(tn_group *group, uint64_t grace_ns, tn_deadline deadline,
                                      tn_process_status *ret_first);
/**
 * Get a child of the group. Indices count all children, also those that have ended, in the
 * order in which they were put into the group.
 * @return borrowed until the group is closed; NULL if there is no such child, or for NULL
 */
TN_API tn_process *tn_group_get(tn_group *group, uint32_t index);
/**
 * Close every child as tn_process_close() does, and free the group.
 * @param group  consumed; NULL is accepted
 * @return NULL
 */
TN_API tn_group *tn_group_close(tn_group *group);

TN_END_DECLS

#endif
