/* SPDX-License-Identifier: Apache-2.0 */
/* child: one child process, seen from its parent. Inside the room spawn. */
#ifndef TNI_SPAWN_CHILD_H
#define TNI_SPAWN_CHILD_H

#include "spawn/spawn.h"

struct tn_process {
    struct tn_domain *domain; /* kept */
    int32_t pid;              /* 0: not started */
    int32_t owner_pid;        /* who started it */
    uint32_t flags;           /* TN_PROCESS_* */
    int pid_fd;               /* -1 once it was collected, by whomever */
    int message_fd;           /* what it says is read from here; -1 once it was collected */
    bool is_ended;
    tn_process_status status; /* once is_ended */
    uint64_t kill_ns;         /* when its group kills it, once it was told to end */
    struct tn_process *next;  /* all of this process */
};

enum { TNI_SPAWN_SLICE_NS = 100 * 1000 * 1000 };

/* ---- children of this process (child.c) -------------------------------------------------- */

/** An object without a process. Takes no descriptor. */
int tni_child_create(struct tn_domain *domain, uint32_t flags, struct tn_process **ret_child);
/**
 * Fork is between these two, and so is the life of the write end of a message pipe: no child of
 * ours inherits another one's.
 */
void tni_children_lock(void);
void tni_children_unlock(void);
/** In a forked child: the descriptors of its siblings are closed, and the lock is free. */
void tni_children_forget(void);
/** Watch a child that was started now, and may have ended. On failure it was killed. */
int tni_child_watch(struct tn_process *child, int32_t pid);
/**
 * Collect it if it has ended, without waiting.
 * @return 0, TN_ERR_TIMED_OUT, or why it cannot be known
 */
int tni_child_collect(struct tn_process *child, uint64_t deadline_ns);
/**
 * Wait for its end, and collect it. `is_through`: the program is not asked whether to go on.
 * @return as tni_child_collect(), or TN_ERR_INTERRUPTED, or TN_ERR_INVALID: in a child that the
 *         program forked when it was asked
 */
int tni_child_await(struct tn_process *child, uint64_t deadline_ns, bool is_through);
/** Whether an ended child failed. Of one whose end is not known, nobody can say so. */
bool tni_child_has_failed(const struct tn_process *child);
/** "exited with 1: ...", "was ended by signal 9", ... */
void tni_child_describe_end(const tn_process_status *end, char *text, size_t size_bytes);
enum { TNI_CHILD_END_BYTES = 288 };
/** What a survivor does while it waits. */
void tni_child_survive(struct tn_domain *domain);

/* ---- starting a child (start.c) ---------------------------------------------------------- */

/** What a child must know of the process that it ends with. */
struct tni_origin {
    uint64_t who;
    int32_t pid;
};
struct tni_origin tni_child_origin(const struct tn_domain *domain);
/** In a forked child: all the rest of its life. `message_fd` is kept. */
void tni_child_run(struct tn_domain *domain, tn_process_fn *run, void *argument, uint32_t flags,
                   const struct tni_origin *origin, int message_fd) __attribute__((noreturn));
/** Wait until a watched child runs. Fails as tn_process_fork() does. */
int tni_child_await_start(struct tn_process *child);
/** End and free a child that could not be started; the detail stays. @return `status` */
int tni_child_end_failed(struct tn_process *child, int status);

/* ---- fork servers (server.c) ------------------------------------------------------------- */

/** In a forked child, under the lock: the sockets of its parent's servers are closed. */
void tni_servers_forget(void);
struct tni_server_call {
    tn_process_fn *run;
    const void *argument; /* [size_bytes] */
    size_t size_bytes;
    uint32_t flags; /* TN_PROCESS_* */
};
/**
 * As tn_forkserver_fork(). TN_ERR_TIMED_OUT: the server did not answer until the deadline of
 * the wait. After that and after TN_ERR_INTERRUPTED, the function was not run, and will not be:
 * where the child runs already, the call succeeds.
 */
int tni_server_fork(struct tn_forkserver *server, const struct tni_server_call *call,
                    struct tni_wait *wait, struct tn_process **ret_process);
/** Whether it has answered what it was asked. Never waits. */
bool tni_server_is_free(struct tn_forkserver *server);

/* ---- what a child says (message.c) ------------------------------------------------------- */

/** The first words of a forked child: it runs, or why it does not. */
struct tni_child_report {
    int32_t status; /* 0 or TN_ERR_* */
    int32_t pid;
    char text[232];
};
/**
 * In a forked child: messages of this process go here from now on. Its parent's are none of
 * its business.
 */
void tni_message_set(int fd);
/** In a forked child. TN_ERR_CLOSED: nobody reads it. */
int tni_message_report(int status, const char *text);
/** Write the value of TENON_MESSAGE_FD for a program that keeps `fd`. */
void tni_message_write_variable(int fd, char *value, size_t size_bytes);
/** In a forked child, at its very end: leave its exit code. */
void tni_message_end(int exit_code);
/**
 * Read what a child that has ended left, as text: control characters become '?'.
 * @return the exit code that it left, or -1
 */
int tni_message_read(int fd, char *text, size_t size_bytes);
/**
 * Flush what a fork would copy: standard output and error, which is what a child writes
 * too.
 */
void tni_message_flush(void);

#endif
