/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Part of os.h, whose rules hold here: identity of processes, witnesses, fork and exec,
 * children.
 */
#ifndef TNI_OS_PROCESS_H
#define TNI_OS_PROCESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- identity ---------------------------------------------------------------------------- */

/*
 * Identity of a process. It distinguishes a process from a later one with the same pid, and a
 * process before exec from the same process after exec.
 */
struct tni_os_process {
    int32_t pid;
    uint32_t reserved;
    uint64_t start_time; /* clock ticks since boot, in the process's time namespace */
    uint64_t image;     /* exec changes it, unless the process's addresses are not randomized; 0
                           if not known */
    uint64_t pid_space; /* the namespaces of the numbers above: {time:32, pid:32}, inodes; time
                           is 0 for the machine's first time namespace */
};
enum { TNI_OS_ALIVE = 0, TNI_OS_DEAD = 1, TNI_OS_EXECED = 2, TNI_OS_UNKNOWN = 3 };

/** The identity of this process. */
int tni_os_self(struct tni_os_process *ret_process);
int32_t tni_os_pid(void);
int32_t tni_os_thread_id(void);
int32_t tni_os_parent_pid(void);
/**
 * A word that is not 0 in this process, and is 0 in every child, whichever call made the child,
 * until the child calls this function. Where the system cannot zero memory in a child, the word
 * is never 0.
 */
const _Atomic uint32_t *tni_os_mark(void);
/**
 * TNI_OS_ALIVE; TNI_OS_DEAD: all threads have ended, the process is a zombie, or another
 * process has its pid; TNI_OS_EXECED: it runs another image, only with `check_image`;
 * TNI_OS_UNKNOWN: the process is of another pid namespace, or of another time namespace while a
 * process with its pid exists, or the system does not tell. DEAD is never a guess.
 */
int tni_os_process_state(const struct tni_os_process *process, bool check_image);
/** Whether a pid of that namespace means the same process in this process's pid namespace. */
bool tni_os_has_pid_space(uint64_t pid_space);
/** Whether no process of this pid namespace has the pid, or a zombie has it. */
bool tni_os_process_is_gone(int32_t pid);
/** Whether the process has begun to end, or has ended. false where this is not known. */
bool tni_os_process_is_ending(int32_t pid);
/**
 * Whether the thread has ended while its process lives on. false if the process ends with all
 * of its threads. It may take 2 ms.
 */
bool tni_os_lost_thread(int32_t pid, int32_t thread_id);
/** The beginning of the command line, or else the command's name; "" if the process is gone. */
void tni_os_process_command(int32_t pid, char *text, size_t size_bytes);
/**
 * Bytes mapped with huge pages in that process's mappings of the memory object with this inode;
 * 0 if not known.
 */
uint64_t tni_os_process_huge_bytes(int32_t pid, uint64_t inode);
/** A descriptor that is readable once the process has ended. TN_ERR_NOT_FOUND: it has ended. */
int tni_os_process_open(int32_t pid, int *ret_fd);
/** Send a signal through a descriptor of tni_os_process_open(). TN_ERR_NOT_FOUND: it has ended.
 */
int tni_os_process_signal(int pid_fd, int signal);
/**
 * The same by pid, for a process of which no descriptor can be had. The caller has just checked
 * the identity.
 */
int tni_os_process_signal_number(int32_t pid, int signal);

/* ---- witnesses --------------------------------------------------------------------------- */

/*
 * A witness of a number proves to every holder of a descriptor of the memory object, in any
 * namespace, that the memory of the process that took the witness still exists. The kernel
 * removes the witness together with that memory: when the process dies, however it dies, or
 * calls exec. Fallback: witness.
 */

/**
 * Take the witness of a number, at most 2^62. Children made by fork() share it, until
 * tni_os_witness_keep(): it then ends with the last process that has it. TN_ERR_EXISTS: another
 * process has that number; TN_ERR_SYSTEM: none can be had.
 */
int tni_os_witness_take(int fd, uint64_t number, void **ret_witness);
/** No child made from now on shares the witness, whichever call makes the child. */
void tni_os_witness_keep(void *witness);
/** Do nothing for NULL. */
void tni_os_witness_drop(void *witness);
/**
 * TNI_OS_ALIVE; TNI_OS_DEAD: no process has the witness; TNI_OS_UNKNOWN: the system does not
 * tell. pre: `fd` is the memory object.
 */
int tni_os_witness_state(int fd, uint64_t number);
typedef void tni_os_inode_fn(uint64_t inode, void *context);
/**
 * Call `each` with the inode of every memory object on which some process of the machine has a
 * witness, also of processes that cannot be seen from here; more than once for some. It finds
 * none where the kernel does not list locks. TN_ERR_NO_MEMORY, TN_ERR_SYSTEM: some may be
 * missing.
 */
int tni_os_witness_for_each(tni_os_inode_fn *each, void *context);

/* ---- fork and exec ----------------------------------------------------------------------- */

/**
 * Register handlers that run around every fork(), in the thread that forks. Each may be NULL.
 * The same three again: 0. TN_ERR_EXISTS: others are registered.
 * @param parent  `seems_failed`: errno says that fork() failed. Another library's handler may
 *                have set errno, so there may be a child all the same.
 */
int tni_os_at_fork(void (*prepare)(void), void (*parent)(bool seems_failed),
                   void (*child)(void));
/**
 * While this is set, forks of this thread run no handlers: for a child that only calls exec.
 * @return what was set before
 */
bool tni_os_fork_quiet(bool quiet);
/** fork(). @return 0 in the child, the pid in the parent, or an error */
int tni_os_fork(void);
/**
 * fork() in a process of one thread, so that the child is a child of this process's parent,
 * which waits for it. The handlers of tni_os_at_fork() run, those of other libraries do not.
 * @param pid_at  not NULL. The kernel writes the child's pid there before either process runs
 *                on. In shared memory, the pid is known there although the caller died.
 * @return 0 in the child, the pid in the caller, or an error
 */
int tni_os_fork_sibling(int32_t *pid_at);
/**
 * Replace this process by the program argv[0], which is looked up in PATH. `environment` (texts
 * NAME=value up to a NULL, or NULL) is added to this process's environment, in place of
 * variables with the same names. Returns only on failure: TN_ERR_NOT_FOUND, TN_ERR_DENIED,
 * TN_ERR_NO_MEMORY.
 */
int tni_os_exec(const char *const *argv, const char *const *environment);
void tni_os_exit(int code) __attribute__((noreturn));

/* ---- children ---------------------------------------------------------------------------- */

struct tni_os_program {
    const char *const *argv;        /* up to a NULL */
    const char *const *environment; /* as of tni_os_exec() */
    const int *keep_fds;            /* [keep_count]: stay open in the child */
    uint32_t keep_count;
    bool ends_with_us; /* the child is killed when the calling thread ends */
};
/**
 * Start a program in a child. No fork handlers run, and no memory is copied.
 * @return 0 once the program runs, or an error as of tni_os_exec()
 */
int tni_os_spawn(const struct tni_os_program *program, int32_t *ret_pid);
struct tni_os_exit {
    int32_t exit_code; /* -1: a signal ended the process */
    int32_t signal;    /* 0: the process exited */
};
/** Wait for a child. TN_ERR_NOT_FOUND: not a child, or another thread has collected it. */
int tni_os_child_wait(int pid_fd, int32_t pid, uint64_t deadline_ns,
                      struct tni_os_exit *ret_exit);
/** Kill a child and collect it, where no descriptor of the child could be had. */
void tni_os_child_abort(int32_t pid);
/**
 * In a child that any thread of `parent_pid` forked: die when that process ends, and not when
 * the forking thread ends. Uses SIGURG; the program's own handler for SIGURG still runs. Exits
 * at once if the parent has ended already.
 */
void tni_os_die_with_process(int32_t parent_pid);
/**
 * Start `path` in a session of its own; init becomes its parent. It has no open files but
 * 0, 1 and 2, which are /dev/null, and keeps to this process's runtime folder.
 * TN_ERR_NOT_FOUND, TN_ERR_DENIED: `path` cannot be executed.
 */
int tni_os_start_detached(const char *path, const char *const *argv);
/** The same, with a descriptor of this process as the standard input. */
int tni_os_start_detached_on(const char *path, const char *const *argv, int input_fd);
/**
 * For a fork server: ignore the terminal's signals (SIGINT, SIGQUIT, SIGHUP), and give every
 * other signal that the program handles its default action, except SIGURG. The actions before
 * are kept for tni_os_signals_restore(), which a child calls.
 */
void tni_os_signals_serve(void);
void tni_os_signals_restore(void);

#endif
