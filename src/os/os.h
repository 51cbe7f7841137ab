/* SPDX-License-Identifier: Apache-2.0 */
/*
 * os: the contract with the operating system, and the only room that makes system calls.
 *
 * Rules, stated once. Functions return 0 or a count, or a TN_ERR_* with the detail set (path,
 * errno). Descriptors are close-on-exec. Deadlines are absolute CLOCK_MONOTONIC ns. EINTR is
 * handled inside. A port to another system answers this header and nothing else.
 * Each newer call has a fallback, taken when the kernel answers ENOSYS/EINVAL, or when
 * TENON_FORCE_FALLBACK names it (comma separated: populate_write, noexec_seal, close_range,
 * fallocate, witness).
 */
#ifndef TNI_OS_H
#define TNI_OS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/base.h"

/* Time. */
uint64_t tni_os_now_ns(void);
/** What this process's clock is ahead of that of the machine's first time namespace. */
int64_t tni_os_clock_ahead_ns(void);
/**
 * Now as that first one counts it: for times that members write for each other, who may be in
 * different ones.
 */
static inline uint64_t tni_os_shared_ns(void)
{
    return tni_os_now_ns() - (uint64_t)tni_os_clock_ahead_ns();
}
uint64_t tni_os_coarse_ns(void); /* milliseconds old at most; a few ns to read */

/* The machine. */
uint64_t tni_os_memory_bytes(void); /* of the machine, or of the cgroup if that has less */
size_t tni_os_page_bytes(void);
int tni_os_random(void *bytes, size_t size_bytes);
uint32_t tni_os_uid(void);
/** false: the user namespace of this process gives its user no number of its own. */
bool tni_os_has_uid(void);
uint32_t tni_os_cpu_count(void); /* that this process may run on; at least 1 */
/** The kernel's policy for huge pages of shared memory, as in "advise"; "" when unknown. */
void tni_os_huge_page_policy(char *text, size_t size_bytes);

/*
 * Memory objects: anonymous shared memory behind a descriptor, sealed against resizing, and
 * against more seals: whoever gets it could keep us from writing what is ours.
 */
/**
 * pre: size_bytes is a multiple of the page. TN_ERR_NO_MEMORY, TN_ERR_SYSTEM (descriptors, a
 * file size limit).
 */
int tni_os_memory_create(const char *name, uint64_t size_bytes, int *ret_fd);
/** The same, which takes more seals until tni_os_memory_seal_writes(). */
int tni_os_memory_create_sealable(const char *name, uint64_t size_bytes, int *ret_fd);
struct tni_os_memory {
    uint64_t size_bytes;
    uint32_t uid;
    uint64_t inode; /* identifies it on this machine, with device */
    uint64_t device;
    bool is_sealed;     /* cannot shrink */
    bool is_write_once; /* no new writable mapping, no write by descriptor */
};
/** TN_ERR_INVALID: not a memory object, or one of huge pages (hugetlbfs). */
int tni_os_memory_stat(int fd, struct tni_os_memory *ret_memory);
/** Bytes that the system has given to it. */
int tni_os_memory_committed(int fd, uint64_t *ret_bytes);
/**
 * Refuse new writable mappings, writes through descriptors and more seals from now on, to
 * everybody; mappings that are writable now stay so. TN_ERR_SYSTEM.
 */
int tni_os_memory_seal_writes(int fd);
/** A new descriptor of the same object, whose own rights are these. TN_ERR_SYSTEM. */
int tni_os_memory_reopen(int fd, bool read_only, int *ret_fd);
/** A second descriptor of the same open object, close-on-exec. TN_ERR_SYSTEM. */
int tni_os_duplicate(int fd, int *ret_fd);
/**
 * Whether a descriptor could be made now; the soft limit is raised for it. Leaves the detail as
 * it is.
 */
bool tni_os_has_descriptor_left(void);
/** Raise this process's soft limit of descriptors to the hard one. @return the limit */
uint64_t tni_os_raise_descriptor_limit(void);
/** The hard limit, which this process and the programs that it starts cannot go beyond. */
uint64_t tni_os_hard_descriptor_limit(void);
/** `align_bytes` is a power of two, at least a page. TN_ERR_NO_MEMORY: address space. */
int tni_os_map(int fd, uint64_t size_bytes, uint64_t align_bytes, bool read_only,
               void **ret_address);
/** Map a part, for writing; `offset` is a multiple of the page size. */
int tni_os_map_part(int fd, uint64_t offset, uint64_t size_bytes, void **ret_address);
/** Map at just this address, in place of what is there; a failure may leave nothing there. */
int tni_os_map_over(int fd, void *address, uint64_t size_bytes, bool read_only);
/** Private zeroed memory, sparse: untouched pages cost nothing. */
int tni_os_map_private(uint64_t size_bytes, void **ret_address);
/** The same, of 0 bytes in all, shared with children that are forked. */
int tni_os_map_shared(uint64_t size_bytes, void **ret_address);
void tni_os_unmap(void *address, uint64_t size_bytes); /* NULL is accepted */
/**
 * Have memory behind [address, +size) now, mapped for writing; TN_ERR_NO_MEMORY instead of a
 * SIGBUS later.
 */
int tni_os_commit(void *address, uint64_t size_bytes);
/**
 * Fill a range that is not committed from `source`, committing it: cheaper than commit + copy.
 */
int tni_os_write_at(int fd, uint64_t offset, const void *source, uint64_t size_bytes);
/**
 * Read from a memory object or a file. What was never written reads as zero, and is given no
 * memory for that: a mapping would ask for some, and raise SIGBUS where there is none.
 * TN_ERR_CORRUPT: it ends before; TN_ERR_DENIED: the descriptor does not read; TN_ERR_SYSTEM.
 */
int tni_os_read_at(int fd, uint64_t offset, void *bytes, size_t size_bytes);
/** Give the pages back to the system; they read as zero afterwards. pre: page aligned. */
int tni_os_discard(void *address, uint64_t size_bytes);
/** Empty private sparse memory again. */
void tni_os_discard_private(void *address, uint64_t size_bytes);
/**
 * Have every child find this private memory as if it was never touched. Nothing of it is copied
 * then. @return false: the system cannot do that
 */
bool tni_os_empty_in_children(void *address, uint64_t size_bytes);
/** tni_os_discard() of a part that need not be mapped. */
int tni_os_punch(int fd, uint64_t offset, uint64_t size_bytes);
void tni_os_advise_huge(void *address, uint64_t size_bytes);
void tni_os_advise_no_dump(void *address, uint64_t size_bytes);
void tni_os_close(int fd); /* -1 is accepted */
int tni_os_keep_on_exec(int fd);

/*
 * Named memory: files of a memory file system.
 */
/** $TENON_SHM_DIR, else /dev/shm, without a slash at its end. Thread-local. */
const char *tni_os_shm_folder(void);
/**
 * Make a file, 0600, with all its memory reserved. Nothing is left on failure.
 * @return 0, TN_ERR_EXISTS, TN_ERR_NO_MEMORY (the file system is full or too small: the detail
 *         says what it has), TN_ERR_DENIED, TN_ERR_NOT_FOUND (no such folder: the detail says
 *         what chooses it), TN_ERR_SYSTEM
 */
int tni_os_shm_create(const char *path, uint64_t size_bytes, int *ret_fd);
/**
 * Never follows a link. TN_ERR_INVALID: not a plain file; TN_ERR_NOT_FOUND, TN_ERR_DENIED,
 * TN_ERR_SYSTEM.
 */
int tni_os_shm_open(const char *path, int *ret_fd);
/** The same, where writing is not allowed or not wanted. */
int tni_os_shm_open_read_only(const char *path, int *ret_fd);
/** A file is never sealed. TN_ERR_INVALID: not a plain file. */
int tni_os_shm_stat(int fd, struct tni_os_memory *ret_memory);
/** TN_ERR_NOT_FOUND: there is none, TN_ERR_DENIED, TN_ERR_SYSTEM. */
int tni_os_shm_remove(const char *path);
typedef int tni_os_shm_fn(const char *path, const char *name, void *context);
/** For each file of this user in the folder whose name starts with `prefix`; non-zero stops. */
int tni_os_shm_for_each(const char *folder, const char *prefix, tni_os_shm_fn *each,
                        void *context);
/** What the file system of the folder has, free or not; UINT64_MAX: no limit is known. */
uint64_t tni_os_shm_bytes(void);
/** CLOCK_REALTIME. */
uint64_t tni_os_unix_ns(void);

/* Sleeping and waking, across processes. */
/**
 * Sleep while *word == expected. 0: woken, or the value differs: look again; TN_ERR_TIMED_OUT;
 * TN_ERR_INTERRUPTED: a signal, and no wake was meant for this thread.
 */
int tni_os_wait(_Atomic uint32_t *word, uint32_t expected, uint64_t deadline_ns);
/** @return how many were woken */
int tni_os_wake(_Atomic uint32_t *word, uint32_t count);
/** Whether this process can sleep and wake at all. TN_ERR_SYSTEM: a filter refuses that. */
int tni_os_check_waits(void);
void tni_os_yield(void);
/**
 * Wait a moment for another thread that is about to be done, which there is no word to wait on
 * for. From the 17th try in a row on it sleeps, so that a thread of a lower priority gets on.
 */
void tni_os_back_off(uint32_t tries);
/** Sleep, when there is no word to wait on. */
void tni_os_sleep_until(uint64_t deadline_ns);

/*
 * Processes. Identity survives the reuse of a pid, and tells an exec'ed image from its
 * forebear.
 */
struct tni_os_process {
    int32_t pid;
    uint32_t reserved;
    uint64_t start_time; /* clock ticks since boot, as its time namespace counts */
    uint64_t image;      /* changes with exec, but for a process that is not randomized; 0 when
                            not known */
    uint64_t pid_space;  /* where these numbers count: {inode of the time namespace, 0 for the
                            machine's own: 32, inode of the pid namespace: 32} */
};
enum { TNI_OS_ALIVE = 0, TNI_OS_DEAD = 1, TNI_OS_EXECED = 2, TNI_OS_UNKNOWN = 3 };
int tni_os_self(struct tni_os_process *ret_process);
int32_t tni_os_pid(void);
int32_t tni_os_thread_id(void);
/**
 * Alive, dead (gone, a zombie, or another process under its number), exec'ed (check_image
 * only), or unknown (another pid namespace, or another time namespace while there is a process
 * of that number). A process is dead only when all of it is gone.
 */
int tni_os_process_state(const struct tni_os_process *process, bool check_image);
/**
 * A word that is not 0 in this process, and 0 in every child of it, by whatever call it was
 * made, until that child calls this. Where the system has no such memory it is never 0.
 */
const _Atomic uint32_t *tni_os_mark(void);
/** Whether a pid of that namespace is the pid of the same process for us. */
bool tni_os_has_pid_space(uint64_t pid_space);
/** Whether no process of our pid namespace has this pid, or it is a zombie. */
bool tni_os_process_is_gone(int32_t pid);
/** Whether it has begun to end, or has ended. false also where this cannot be known. */
bool tni_os_process_is_ending(int32_t pid);
/** A descriptor that is readable once the process is gone. TN_ERR_NOT_FOUND: gone already. */
int tni_os_process_open(int32_t pid, int *ret_fd);
int tni_os_process_signal(int pid_fd, int signal);
/** The same by number, right after a look at who it is: where a filter refuses descriptors. */
int tni_os_process_signal_number(int32_t pid, int signal);
/**
 * Whether a process of this pid namespace lives on without this thread. False of one that ends
 * with all of its threads. It may take 2 ms.
 */
bool tni_os_lost_thread(int32_t pid, int32_t thread_id);
/** The command line's first words, or the comm; "" if gone. */
void tni_os_process_command(int32_t pid, char *text, size_t size_bytes);
/**
 * Bytes mapped with huge pages in that process's mapping of the memory object with this inode.
 * 0 when unknown.
 */
uint64_t tni_os_process_huge_bytes(int32_t pid, uint64_t inode);

/*
 * Witnesses. A witness of a number says, to whoever has a descriptor of the memory object and
 * in whatever namespace, that the memory of this process is there. The kernel takes the witness
 * away when that memory goes: when the process dies, however it dies, and when it execs.
 */
/**
 * Children that are made by fork() have it too, until tni_os_witness_keep(): it ends with the
 * last who has it. TN_ERR_EXISTS: somebody has that number; TN_ERR_SYSTEM: none can be had.
 * @param number  at most 2^62
 */
int tni_os_witness_take(int fd, uint64_t number, void **ret_witness);
/** No child that is forked from now on has it, by whatever call it is forked. */
void tni_os_witness_keep(void *witness);
void tni_os_witness_drop(void *witness); /* NULL is accepted */
/**
 * TNI_OS_ALIVE; TNI_OS_DEAD: nobody has it; TNI_OS_UNKNOWN: it cannot be asked for here. That
 * `fd` is the memory object is for the caller to know.
 */
int tni_os_witness_state(int fd, uint64_t number);
typedef void tni_os_inode_fn(uint64_t inode, void *context);
/**
 * For the inode of each memory object of which anybody on this machine has a witness, whatever
 * can be seen of that process; several times for some. None where the kernel lists no locks.
 * TN_ERR_NO_MEMORY, TN_ERR_SYSTEM: some may be missing.
 */
int tni_os_witness_for_each(tni_os_inode_fn *each, void *context);

/* Fork. Registered once for each process; handlers run around fork() in the calling thread. */
/**
 * Each may be NULL. The same three again is 0; TN_ERR_EXISTS: others are registered.
 * seems_failed: errno says that fork() failed, or another library's handler left it so; so
 * there may be a child all the same.
 */
int tni_os_at_fork(void (*prepare)(void), void (*parent)(bool seems_failed),
                   void (*child)(void));
/**
 * While set, this thread's forks run no handlers: for a fork that only execs. @return what was
 * set before
 */
bool tni_os_fork_quiet(bool quiet);
struct tni_os_exit {
    int32_t exit_code; /* -1: a signal */
    int32_t signal;
};
/** fork(). @return 0 in the child, the pid in the parent, or an error */
int tni_os_fork(void);
/**
 * Replace this process by argv[0], looked up in PATH. `environment` (NAME=value, or NULL) is
 * added to this process's, and replaces what has the same names. Returns only on failure:
 * TN_ERR_NOT_FOUND, TN_ERR_DENIED, TN_ERR_NO_MEMORY, TN_ERR_SYSTEM.
 */
int tni_os_exec(const char *const *argv, const char *const *environment);
struct tni_os_program {
    const char *const *argv;        /* up to a NULL */
    const char *const *environment; /* as of tni_os_exec() */
    const int *keep_fds;            /* [keep_count]: stay open in the child */
    uint32_t keep_count;
    bool ends_with_us; /* the child is killed when the calling thread ends */
};
/**
 * Start argv[0] in a child that keeps `keep_fds` open; the environment as of tni_os_exec(). No
 * fork handlers run, and nothing is copied. With `ends_with_us`, the child is killed when the
 * calling thread ends.
 * @return 0 once the program runs, or as tni_os_exec()
 */
int tni_os_spawn(const struct tni_os_program *program, int32_t *ret_pid);
int32_t tni_os_parent_pid(void);
/**
 * Kill and collect a child that nobody has waited for. For one that no descriptor could be had
 * for.
 */
void tni_os_child_abort(int32_t pid);
/**
 * In a child that any thread of `parent_pid` forked: die when that process ends, and not
 * before. Uses SIGURG, which stays with the program as well. Exits at once if the parent is
 * gone already.
 */
void tni_os_die_with_process(int32_t parent_pid);
void tni_os_exit(int code) __attribute__((noreturn));
/**
 * Wait for a child. TN_ERR_TIMED_OUT; TN_ERR_NOT_FOUND: not our child, or collected by someone
 * else.
 */
int tni_os_child_wait(int pid_fd, int32_t pid, uint64_t deadline_ns,
                      struct tni_os_exit *ret_exit);
/**
 * Wait until one of fds [count] is readable or at its end; -1 is passed over. @return its
 * index, or TN_ERR_TIMED_OUT
 */
int tni_os_poll(const int *fds, uint32_t count, uint64_t deadline_ns);
/**
 * Start `path` as a process of its own session with no open files and no parent to wait for it.
 * Its runtime folder is the one that this process keeps to.
 * TN_ERR_NOT_FOUND, TN_ERR_DENIED: it cannot be executed.
 */
int tni_os_start_detached(const char *path, const char *const *argv);
/** The same, with a descriptor of ours as its standard input. */
int tni_os_start_detached_on(const char *path, const char *const *argv, int input_fd);
int tni_os_pipe(int ret_fds[2]);
/** A number that tells this pipe from every other one of the machine; 0: not a pipe. */
uint64_t tni_os_pipe_number(int fd);
/**
 * Read without blocking up to size; @return bytes, 0 at the end, TN_ERR_TIMED_OUT when nothing
 * is there
 */
int tni_os_read(int fd, void *bytes, size_t size_bytes);
/** Write all of it. @return 0; TN_ERR_CLOSED: nobody reads (no SIGPIPE is raised) */
int tni_os_write(int fd, const void *bytes, size_t size_bytes);

/* A fork server. */
/**
 * fork(), in a process of one thread, whose child is a child of this process's parent: that one
 * waits for it, and it ends with that one. The handlers of tni_os_at_fork() run, those of other
 * libraries do not.
 * @param pid_at  the kernel writes the child's pid there before anybody can be killed in
 * between: in shared memory, others know of the child although the caller died. Not NULL
 * @return 0 in the child, its pid in the caller, or an error
 */
int tni_os_fork_sibling(int32_t *pid_at);
/**
 * Ignore the terminal's signals (SIGINT, SIGQUIT, SIGHUP), and let what is handled have its
 * default. What was set before is kept for tni_os_signals_restore(), in a child.
 */
void tni_os_signals_serve(void);
void tni_os_signals_restore(void);
/** Two connected sockets for tni_os_send() and tni_os_receive(). */
int tni_os_pair(int ret_fds[2]);

/* Files of the runtime folder. */
/**
 * What this process keeps to, else $TENON_RUNTIME_DIR, else the first that can be used of those
 * in linux_runtime.c; it need not be there yet. Thread-local.
 */
const char *tni_os_runtime_folder(void);
/** Whether TENON_RUNTIME_DIR names it, or named it when this process began to keep to it. */
bool tni_os_runtime_is_chosen(void);
/**
 * Make the folder, 0700, if it is not there, and keep to it; TN_ERR_DENIED when it is not ours,
 * others may write, or it is read-only. The log says so when $XDG_RUNTIME_DIR cannot be used,
 * and when a folder that nobody named cannot be used any more: then another one is kept.
 */
int tni_os_runtime_prepare(void);
typedef int tni_os_name_fn(const char *name, void *context);
/**
 * @param is_it  whether a folder is the wanted one
 * @return whether this process keeps, or kept before, to the wanted folder. One that keeps to
 * none that can be used keeps to the wanted one, if it could have chosen it.
 */
bool tni_os_runtime_keep(tni_os_name_fn *is_it, void *context);
/**
 * Keep to the wanted folder from now on, whether or not the one before can still be used.
 * @return false: TENON_RUNTIME_DIR names another, this process cannot choose the wanted one, or
 * that is not there
 */
bool tni_os_runtime_follow(tni_os_name_fn *is_it, void *context);
/**
 * Take an exclusive lock on a file of the folder. TN_ERR_TIMED_OUT: somebody has it. Freed by
 * close or death, here and in every forked child that inherited it; a child that stays must
 * close it.
 */
int tni_os_file_lock(const char *name, uint64_t deadline_ns, int *ret_fd);
int tni_os_file_remove(const char *name);
/** Whether a file of the folder is the one that is open here. */
bool tni_os_file_is(const char *name, int fd);
/** A number that tells a file of the folder from others that are open; 0: there is none. */
uint64_t tni_os_file_number(const char *name);
/**
 * For each file of the folder whose name starts with `prefix`; non-zero stops. A folder that
 * cannot be read has none.
 */
int tni_os_file_for_each(const char *prefix, tni_os_name_fn *each, void *context);

/*
 * Messages with descriptors over a local stream of packets; both sides are checked to be this
 * user.
 */
/**
 * In the runtime folder; replaces a socket that is there. TN_ERR_INVALID: the path is too long.
 */
int tni_os_listen(const char *name, int *ret_fd);
/**
 * Never blocks. TN_ERR_TIMED_OUT: nobody is connecting; TN_ERR_DENIED: another user, closed.
 */
int tni_os_accept(int fd, int *ret_fd);
/** TN_ERR_NOT_FOUND: nobody listens; TN_ERR_TIMED_OUT: nobody accepts. */
int tni_os_connect(const char *name, int *ret_fd);
/** The same in another folder of this user's than the runtime folder. */
int tni_os_connect_in(const char *folder, const char *name, int *ret_fd);
/** A number that tells this socket from every other one of the machine; 0: not a socket. */
uint64_t tni_os_socket_number(int fd);
/**
 * Send 1 byte or more, with at most 8 descriptors. TN_ERR_CLOSED: the other side is gone;
 * TN_ERR_TIMED_OUT: it has not read for 10 seconds.
 */
int tni_os_send(int fd, const void *bytes, size_t size_bytes, const int *fds,
                uint32_t fd_count);
/** Where a message goes. */
struct tni_os_buffer {
    void *bytes;
    size_t size_bytes;
    int *fds; /* [max_fds]: the descriptors of the message, which become the caller's */
    uint32_t max_fds;
};
/**
 * @return bytes received (0: the other side is gone); descriptors beyond max_fds are closed,
 * *ret_fd_count set. TN_ERR_INVALID: the message is longer than size_bytes; TN_ERR_SYSTEM: no
 * room for its descriptors; it is lost then.
 */
int tni_os_receive(int fd, const struct tni_os_buffer *buffer, uint64_t deadline_ns,
                   uint32_t *ret_fd_count);

/*
 * The same over a socket of the user's: a stream or packets, connected, blocking or not; the
 * other side may be anybody. `size_bytes` is at most 64 KiB; one descriptor goes along.
 */
/**
 * All of it. TN_ERR_CLOSED, TN_ERR_TIMED_OUT, TN_ERR_INVALID (not such a socket),
 * TN_ERR_SYSTEM.
 */
int tni_os_socket_send(int fd, const void *bytes, size_t size_bytes, int sent_fd,
                       uint64_t deadline_ns);
/** Where a packet goes, and how its length is known. */
struct tni_os_packet {
    void *bytes;
    size_t size_bytes;
    size_t head_bytes; /* every packet begins with a head of this size, at least 1 byte */
    /* The length of the whole packet with this head; 0: this is not a head. */
    size_t (*total)(const void *head);
};
/**
 * Receive a head of `head_bytes`, ask `total` how long the packet is altogether (0: it makes no
 * sense, nothing but the head is consumed on a stream), then receive the rest, and no more.
 * From a stream, a deadline of 0 takes all or nothing; one that passes in the middle of a
 * packet leaves the stream out of step, and the detail says so. A full table is TN_ERR_SYSTEM
 * before anything is taken.
 * @param ret_fd  the caller's to close; -1 if none came
 * @return bytes received, TN_ERR_CLOSED, TN_ERR_TIMED_OUT, TN_ERR_INVALID (`total` said 0, or
 *         more than size_bytes, or a packet has another length), TN_ERR_SYSTEM (no room for the
 *         descriptor)
 */
int tni_os_socket_receive(int fd, const struct tni_os_packet *packet, uint64_t deadline_ns,
                          int *ret_fd);

/*
 * Doorbells: a descriptor that any process of the machine can make readable by number. No file,
 * nothing to clean.
 */
int tni_os_bell_create(uint64_t number, int *ret_fd); /* TN_ERR_EXISTS: the number is taken */
/** Never blocks. @return false: nobody has the bell, or it could not be rung */
bool tni_os_bell_ring(uint64_t number);
void tni_os_bell_clear(int fd);

/*
 * A second route, for who is in another network namespace, where a bell has no name: a
 * descriptor that is readable after tni_os_watch_ring() of the same memory object by anybody.
 * All who watch the object hear it.
 */
/** TN_ERR_SYSTEM: none can be had, such as for want of an inotify instance. */
int tni_os_watch_create(int memory_fd, int *ret_fd);
/** Writes a byte that nobody reads. Never blocks. TN_ERR_SYSTEM, TN_ERR_DENIED */
int tni_os_watch_ring(int memory_fd, uint64_t offset);
void tni_os_watch_clear(int fd);

/** A descriptor that is readable from `deadline_ns` on. */
int tni_os_timer_create(uint64_t deadline_ns, int *ret_fd);

/* One loop over descriptors (epoll). */
int tni_os_loop_create(int *ret_loop);
int tni_os_loop_add(int loop, int fd, uint64_t tag);
void tni_os_loop_remove(int loop, int fd);
/** @return the number of tags [max] that are readable, 0 at the deadline */
int tni_os_loop_wait(int loop, uint64_t *ret_tags, uint32_t max, uint64_t deadline_ns);

/*
 * Finding domains without anybody's help: every memory object of this user that some process
 * has open.
 */
typedef int tni_os_memory_fn(int32_t pid, int fd_number, const char *name, uint64_t inode,
                             void *context);
/**
 * For each descriptor of each process of this user whose memory name starts with `prefix`;
 * non-zero stops. TN_ERR_SYSTEM: some could not be looked at, and what was seen is not all.
 */
int tni_os_memory_for_each(const char *prefix, tni_os_memory_fn *each, void *context);
/**
 * Open another process's descriptor. TN_ERR_NOT_FOUND, TN_ERR_DENIED: it is no such one;
 * TN_ERR_SYSTEM, TN_ERR_NO_MEMORY: not known.
 */
int tni_os_memory_open(int32_t pid, int fd_number, bool read_only, int *ret_fd);
/** The folder of the file of this name that a process has open. TN_ERR_NOT_FOUND,
 * TN_ERR_DENIED. */
int tni_os_process_folder(int32_t pid, const char *name, char *folder, size_t size_bytes);
/** Whether a process has the file of this name in this folder open. */
bool tni_os_process_has(int32_t pid, const char *folder, const char *name);

#endif
