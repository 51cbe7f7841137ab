/* SPDX-License-Identifier: Apache-2.0 */
/* child: one child process, as its parent sees it. Private to the room spawn. */
#ifndef TNI_SPAWN_CHILD_H
#define TNI_SPAWN_CHILD_H

#include "reaper/reaper.h"
#include "spawn/spawn.h"

struct tn_process {
    struct tn_domain *domain; /* kept by tni_process_keep() */
    int32_t pid;              /* 0: not started */
    int32_t owner_pid;        /* the process that started it */
    uint32_t flags;           /* TN_PROCESS_* */
    int pid_fd;               /* -1 once the child was collected */
    int message_fd;           /* read end of its message pipe; -1 after it was collected */
    bool is_ended;
    bool is_in_group;         /* its group closes it */
    tn_process_status status; /* valid if is_ended */
    uint64_t kill_ns;         /* when its group sends SIGKILL; valid after SIGTERM was sent */
    struct tn_process *next;  /* in the list of all children of this process */
};

enum { TNI_SPAWN_SLICE_NS = 100 * 1000 * 1000 };

/* ---- children of this process (child.c) -------------------------------------------------- */

/** Make a struct tn_process for a child that is not started yet. It has no descriptor. */
int tni_child_create(struct tn_domain *domain, uint32_t flags, struct tn_process **ret_child);
/**
 * Take the lock of this process's list of children. A thread has the lock while it forks, and
 * while the write end of a message pipe is open, so that no child inherits the pipe of another.
 */
void tni_children_lock(void);
void tni_children_unlock(void);
/** In a forked child: close the descriptors of its siblings, and release the lock. */
void tni_children_forget(void);
/** Open a pidfd for a child that was just started. On failure the child was killed. */
int tni_child_watch(struct tn_process *child, int32_t pid);
/**
 * Collect a child that ends before the deadline. Does not ask the program's hook.
 * @return 0, TN_ERR_TIMED_OUT, or an error of the system call
 */
int tni_child_collect(struct tn_process *child, uint64_t deadline_ns);
/**
 * Wait for the end of a child and collect it. Meanwhile the program's hook is asked whether to
 * go on, unless `is_through`.
 * @return as tni_child_collect(); TN_ERR_INTERRUPTED; TN_ERR_INVALID: the hook forked, and this
 *         is the child of that fork
 */
int tni_child_await(struct tn_process *child, uint64_t deadline_ns, bool is_through);
/** Whether a child ended with a failure. A child whose exit code is not known did not fail. */
bool tni_child_has_failed(const struct tn_process *child);
/** Write how a child ended: "exited with 1: ...", "was ended by signal 9" and so on. */
void tni_child_describe_end(const tn_process_status *end, char *text, size_t size_bytes);
enum { TNI_CHILD_END_BYTES = 288 };
/** Reclaim dead processes while this process waits, if it has a seat. */
void tni_child_survive(struct tn_domain *domain);

/* ---- starting a child (start.c) ---------------------------------------------------------- */

/** Whether a string NAME=VALUE of an environment has this name. */
bool tni_variable_has_name(const char *variable, const char *name);
/** The parent with which a child is to end. */
struct tni_origin {
    uint64_t who;
    int32_t pid;
};
struct tni_origin tni_child_origin(const struct tn_domain *domain);
/**
 * In a forked child: run the function and exit. The child owns `message_fd`. It has six
 * parameters, because a fork server calls it with values from a request.
 */
void tni_child_run(struct tn_domain *domain, tn_process_fn *run, void *argument, uint32_t flags,
                   const struct tni_origin *origin, int message_fd) __attribute__((noreturn));
/** Wait until a child reports that it runs. Returns the errors of tn_process_fork(). */
int tni_child_await_start(struct tn_process *child);
/** End and free a child that could not be started. Keeps the error detail. @return `status` */
int tni_child_end_failed(struct tn_process *child, int status);

/* ---- fork servers (server.c) ------------------------------------------------------------- */

/** In a forked child, with the lock held: close the sockets of its parent's servers. */
void tni_servers_forget(void);
struct tni_server_call {
    tn_process_fn *run;
    const void *argument; /* [size_bytes] */
    size_t size_bytes;
    uint32_t flags; /* TN_PROCESS_* */
};
/**
 * Do what tn_forkserver_fork() does, with a deadline. TN_ERR_TIMED_OUT: the server did not
 * answer in time.
 * After TN_ERR_TIMED_OUT and TN_ERR_INTERRUPTED the function does not run, now or later. If the
 * child runs already when the wait ends, the call succeeds.
 */
int tni_server_fork(struct tn_forkserver *server, const struct tni_server_call *call,
                    struct tni_wait *wait, struct tn_process **ret_process);
/** Whether the server has answered every request. Does not wait. */
bool tni_server_is_free(struct tn_forkserver *server);

/* ---- messages of a child (message.c) ----------------------------------------------------- */

/** The first message of a forked child: that the child runs, or why it does not run. */
struct tni_child_report {
    int32_t status; /* 0 or TN_ERR_* */
    int32_t pid;
    char text[232];
};
/**
 * In a forked child: send the messages of this process to `fd`, and close the parent's pipe.
 */
void tni_message_set(int fd);
/** In a forked child: send the first message. TN_ERR_CLOSED: the parent does not read it. */
int tni_message_report(int status, const char *text);
/** Write the value of TENON_MESSAGE_FD for a program that inherits `fd`. */
void tni_message_write_variable(int fd, char *value, size_t size_bytes);
/** In a forked child, just before it exits: send its exit code. */
void tni_message_end(int exit_code);
/**
 * Read the last message of a child that has ended. Control characters become '?'.
 * @return the exit code in the message, or -1
 */
int tni_message_read(int fd, char *text, size_t size_bytes);
/**
 * Flush standard output and standard error, so that a fork does not duplicate their buffers.
 */
void tni_message_flush(void);

#endif
