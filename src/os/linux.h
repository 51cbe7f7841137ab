/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the room os share. No other room includes this. */
#ifndef TNI_OS_LINUX_H
#define TNI_OS_LINUX_H

#include <dirent.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>

#include "os/os.h"

enum {
    TNI_LINUX_SECOND_NS = 1000000000,
    TNI_LINUX_PATH_BYTES = 1024,
    /* Small, for thread-local buffers: a library that is loaded late has about 1 KiB for them.
     */
    TNI_LINUX_FOLDER_BYTES = 256,
    TNI_LINUX_NAME_BYTES = 200,
    TNI_LINUX_SEND_SECONDS = 10, /* time limit of connect and send */
};

/** Names in TENON_FORCE_FALLBACK. */
enum tni_linux_call {
    TNI_LINUX_POPULATE_WRITE,
    TNI_LINUX_NOEXEC_SEAL,
    TNI_LINUX_CLOSE_RANGE,
    TNI_LINUX_FALLOCATE,
    TNI_LINUX_WITNESS,
    TNI_LINUX_TMPFILE,
    TNI_LINUX_CALL_COUNT
};
bool tni_linux_is_forced(enum tni_linux_call call);
/** Whether the comma-separated list contains the word. */
bool tni_linux_has_word(const char *list, const char *word);

/** The status for an errno where no other rule applies: NOT_FOUND, DENIED, NO_MEMORY, SYSTEM.
 */
int tni_linux_status(int errno_value);
/**
 * As tni_fail_errno(), but if errno says that the descriptor table is full, the status is
 * TN_ERR_SYSTEM and the detail names the limit.
 */
int tni_linux_fail(int status, int errno_value, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/**
 * Whether to retry a call that made no descriptor: a signal interrupted it, or the table was
 * full and the limit has been raised, once for each `*raised`. Keeps errno.
 */
bool tni_linux_try_again(bool *raised);
/** Retry a call that makes descriptors as R3 says. `is_made` is the call with a test of its
 * result. */
#define TNI_LINUX_MAKE(is_made)                                                                \
    do {                                                                                       \
        bool has_raised = false;                                                               \
        while (!(is_made) && tni_linux_try_again(&has_raised))                                 \
            ;                                                                                  \
    } while (0)
/**
 * Move a descriptor that has the number of a standard stream to a number above. Always closes
 * `low_fd`. @return the new number, or -1 with errno
 */
int tni_linux_move_up(int low_fd);
static inline int tni_linux_above_streams(int fd)
{
    return TNI_LIKELY(fd > 2 || fd < 0) ? fd : tni_linux_move_up(fd);
}
/**
 * Move both. @return false: errno says why; both are closed
 */
bool tni_linux_move_pair_up(int fds[2]);
/**
 * Every call of this room that makes a descriptor goes through this macro, or through
 * TNI_LINUX_MAKE() and tni_linux_above_streams(). They implement R3: the number is above those
 * of the standard streams, which the program may have closed and may still write to.
 */
#define TNI_LINUX_MAKE_FD(fd, call)                                                            \
    do {                                                                                       \
        TNI_LINUX_MAKE(((fd) = (call)) >= 0);                                                  \
        (fd) = tni_linux_above_streams(fd);                                                    \
    } while (0)
/** As opendir() and fopen(path, "r"), with a descriptor as of TNI_LINUX_MAKE_FD(). */
DIR *tni_linux_open_folder(const char *path);
FILE *tni_linux_open_text(const char *path);
uint64_t tni_linux_descriptor_limit(void);

/**
 * Check the file size limit (ulimit -f): beyond it, ftruncate() and write() raise SIGXFSZ.
 * TN_ERR_SYSTEM: the size is above the limit. `what` and `name` begin the sentence.
 */
int tni_linux_check_file_size(const char *what, const char *name, uint64_t size_bytes);

/** The time left until the deadline; NULL, as for ppoll(), if there is no deadline. */
const struct timespec *tni_linux_time_left(uint64_t deadline_ns, struct timespec *left);
struct timespec tni_linux_timespec(uint64_t ns);

struct pollfd;
/** @return how many are ready, 0 at the deadline, or -errno */
int tni_linux_poll(struct pollfd *polls, uint32_t count, uint64_t deadline_ns);

/** Read the beginning of a file as text. @return bytes without the NUL, or -errno */
ssize_t tni_linux_read_text(const char *path, char *text, size_t size_bytes);

/**
 * This process's environment with `added`, in place of variables with the same names. The
 * caller frees the array. NULL: no memory.
 */
const char **tni_linux_merge_environment(const char *const *added);

/** A prefix of /run, /tmp and /dev/shm in paths of runtime folders; tests set it. */
extern const char *tni_linux_root;
/** For tests: forget the folder that this process keeps to. */
void tni_linux_forget_folder(void);
/** Variables by which a started program keeps to this process's runtime folder. */
struct tni_linux_folder_pass {
    char named[TNI_LINUX_FOLDER_BYTES + 32], kept[TNI_LINUX_FOLDER_BYTES + 32];
    const char *variables[3]; /* NAME=value, then NULL */
};
/** @return how many variables; 0: this process keeps to no folder */
int tni_linux_pass_folder(struct tni_linux_folder_pass *ret_pass);
/** TENON_LOG=..., with an absolute path, for a program that starts elsewhere; NULL: no log. */
const char *tni_linux_log_variable(void);
/** "<runtime folder>/<name>". TN_ERR_INVALID: a bad folder, a bad name, or a path too long. */
int tni_linux_runtime_path(const char *name, char *path, size_t size_bytes);

/**
 * Note the identity of this process for the child that it is about to fork. pre: no other
 * thread forks
 */
void tni_linux_note_birth(void);

/* ---- /proc ------------------------------------------------------------------------------- */

enum { TNI_LINUX_PROC_BYTES = 64, TNI_LINUX_PID_BITS = 32 };
struct tni_linux_stat {
    int32_t pid;
    char state;
    uint64_t thread_count;
    uint64_t start_time;
    uint64_t image;
    uint64_t flags;   /* PF_* of its main thread */
    uint64_t signals; /* pending for its main thread alone, as SIGKILL is in a killed process */
};
/** Read a file such as /proc/PID/stat. @return 0 or an errno */
int tni_linux_read_stat(const char *path, struct tni_linux_stat *ret_stat);
/**
 * The path of a file in /proc for a process of this pid namespace. @return false: /proc is that
 * of another pid namespace, so the path is of another process
 */
bool tni_linux_proc_path(int32_t pid, char path[TNI_LINUX_PROC_BYTES], const char *file);

/* ---- candidates for the runtime folder (linux_folder.c) ---------------------------------- */

struct tni_linux_folder {
    char path[TNI_LINUX_FOLDER_BYTES];
    bool is_private; /* the folder above it has to be this user's, too */
};
/** Results of tni_linux_judge_folder() other than errors. */
enum { TNI_LINUX_EXISTS = 0, TNI_LINUX_CAN_BE_MADE = 1 };
/** @return false: there is no candidate of this number. A path that does not fit is "" */
bool tni_linux_candidate(unsigned number, struct tni_linux_folder *ret_folder);
/** @return TNI_LINUX_EXISTS, TNI_LINUX_CAN_BE_MADE, or an error: the folder cannot be used */
int tni_linux_judge_folder(const struct tni_linux_folder *folder);
/**
 * Choose among the candidates.
 * @param ret_why  why the first candidate cannot be used; "" if it is chosen
 * @return 0, or the error of the first candidate, which is *ret_folder then: none can be used
 */
int tni_linux_choose_folder(struct tni_linux_folder *ret_folder, char *ret_why,
                            size_t why_bytes);
/** Check the path, and its length. */
int tni_linux_check_folder_name(const char *folder);
/** Make the folder if it does not exist, and check it. */
int tni_linux_prepare_folder(const char *folder);

/* ---- packets (linux_packet.c) ------------------------------------------------------------ */

enum { TNI_LINUX_PACKET_BYTES = 1 << 16 };

/* The most descriptors of a message: the kernel's SCM_MAX_FD. */
enum { TNI_LINUX_MESSAGE_FDS = 253 };
struct tni_linux_rights {
    _Alignas(struct cmsghdr) char bytes[CMSG_SPACE(TNI_LINUX_MESSAGE_FDS * sizeof(int))];
};
/** Have descriptors go with a message: at most TNI_LINUX_MESSAGE_FDS, which `rights` holds. */
void tni_linux_attach(struct msghdr *message, struct tni_linux_rights *rights, const int *fds,
                      uint32_t fd_count);
/** Check that it is a connected local socket of a stream or of packets. @return 0 or an error
 */
int tni_linux_check_packets(int fd, bool *ret_is_stream);
/** Fail because of an errno of sending or receiving. */
int tni_linux_fail_packet(int errno_value, int fd, const char *doing);

/** Run the handlers of tni_os_at_fork() around a fork that is not made by fork(). */
void tni_linux_before_fork(void);
void tni_linux_after_fork(bool in_child);

#endif
