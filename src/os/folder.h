/* SPDX-License-Identifier: Apache-2.0 */
/* Part of os.h, whose rules hold here: the runtime folder, and the search for memory objects.
 */
#ifndef TNI_OS_FOLDER_H
#define TNI_OS_FOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- the runtime folder ------------------------------------------------------------------ */

/*
 * A folder of this user's for sockets and lock files. A process keeps to one folder from
 * tni_os_runtime_prepare() on, and forked children and started programs keep to it too.
 */

/**
 * The folder that this process keeps to; else $TENON_RUNTIME_DIR; else the first usable one of
 * those that linux_folder.c lists. It need not exist yet. The text belongs to the thread.
 */
const char *tni_os_runtime_folder(void);
/** Whether TENON_RUNTIME_DIR names the folder, or named it when this process chose it. */
bool tni_os_runtime_is_chosen(void);
/**
 * Make the folder with mode 0700 if it does not exist, and keep to it. If TENON_RUNTIME_DIR
 * did not name the folder and it cannot be used any more, another one is chosen; the log says
 * so, and also says when $XDG_RUNTIME_DIR cannot be used. TN_ERR_DENIED: the folder is another
 * user's, or others may write to it, or it is read-only.
 */
int tni_os_runtime_prepare(void);
typedef int tni_os_name_fn(const char *name, void *context);
/**
 * Whether this process keeps, or kept before, to the folder for which `is_it` returns a number
 * other than 0. A process that keeps to no usable folder keeps to that one from now on, if the
 * process could have chosen it.
 */
bool tni_os_runtime_keep(tni_os_name_fn *is_it, void *context);
/**
 * Keep from now on to the folder for which `is_it` returns a number other than 0, even if the
 * folder before can still be used. @return false: TENON_RUNTIME_DIR names another, or this
 * process cannot choose that one, or it does not exist
 */
bool tni_os_runtime_follow(tni_os_name_fn *is_it, void *context);

/* ---- files of the runtime folder --------------------------------------------------------- */

/**
 * Take an exclusive lock on a file of the folder, which is made if it does not exist.
 * TN_ERR_TIMED_OUT: another process has the lock. The lock ends when every copy of the
 * descriptor is closed: a forked child that lives on closes its copy.
 */
int tni_os_file_lock(const char *name, uint64_t deadline_ns, int *ret_fd);
/** TN_ERR_NOT_FOUND. */
int tni_os_file_remove(const char *name);
/** Whether `fd` is the file of this name. */
bool tni_os_file_is(const char *name, int fd);
/** A number that identifies the file among files that are open; 0: there is no such file. */
uint64_t tni_os_file_number(const char *name);
/**
 * Call `each` for every file of the folder whose name starts with `prefix`, until it returns a
 * number other than 0. @return that number, or 0, also if the folder cannot be read
 */
int tni_os_file_for_each(const char *prefix, tni_os_name_fn *each, void *context);

/* ---- what other processes have open ------------------------------------------------------ */

typedef int tni_os_memory_fn(int32_t pid, int fd_number, const char *name, uint64_t inode,
                             void *context);
/**
 * Call `each` for every descriptor of a memory object whose name starts with `prefix`, in every
 * process of this user, until it returns a number other than 0. @return that number, or 0;
 * TN_ERR_SYSTEM: the search is not complete
 */
int tni_os_memory_for_each(const char *prefix, tni_os_memory_fn *each, void *context);
/**
 * Open the memory object behind another process's descriptor. TN_ERR_NOT_FOUND, TN_ERR_DENIED:
 * it is not, or is no longer, a memory object that this process may open. TN_ERR_SYSTEM,
 * TN_ERR_NO_MEMORY: not known.
 */
int tni_os_memory_open(int32_t pid, int fd_number, bool read_only, int *ret_fd);
/** The folder of a file of this name that the process has open. TN_ERR_NOT_FOUND, TN_ERR_DENIED
 */
int tni_os_process_folder(int32_t pid, const char *name, char *folder, size_t size_bytes);
/** Whether the process has the file of this name in this folder open. */
bool tni_os_process_has(int32_t pid, const char *folder, const char *name);

#endif
