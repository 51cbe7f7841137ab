/* SPDX-License-Identifier: Apache-2.0 */
/* Files of the runtime folder, and locks on them. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/linux.h"

enum { RETRY_LEAST_NS = 200000, RETRY_MOST_NS = 20000000 };

/* Locks. */

/* Another process may have removed the file between open and lock: a lock on a file without a
 * name keeps no other process out. */
static bool is_still_named(int fd, const char *path)
{
    struct stat opened;
    struct stat named;
    return fstat(fd, &opened) == 0 && lstat(path, &named) == 0 &&
           opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

/** @return 0: locked; TN_ERR_TIMED_OUT: another process has the lock */
static int try_lock(const char *path, int *ret_fd)
{
    for (;;) {
        int fd = -1;
        TNI_LINUX_MAKE_FD(fd, open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
        if (fd < 0)
            return tni_linux_fail(tni_linux_status(errno), errno, "lock file %s", path);
        int error = 0;
        do {
            error = flock(fd, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
        } while (error == EINTR);
        if (error == 0 && is_still_named(fd, path)) {
            *ret_fd = fd;
            return 0;
        }
        close(fd);
        if (error == EWOULDBLOCK)
            return tni_fail(TN_ERR_TIMED_OUT, "lock file %s is held by another process", path);
        if (error != 0)
            return tni_linux_fail(TN_ERR_SYSTEM, error, "lock file %s", path);
    }
}

int tni_os_file_lock(const char *name, uint64_t deadline_ns, int *ret_fd)
{
    char path[TNI_LINUX_PATH_BYTES + TNI_LINUX_NAME_BYTES];
    int status = tni_linux_runtime_path(name, path, sizeof path);
    if (status != 0)
        return status;

    /* Polled, since flock() has no deadline, and alarm signals belong to the program. */
    uint64_t pause_ns = RETRY_LEAST_NS;
    while ((status = try_lock(path, ret_fd)) == TN_ERR_TIMED_OUT) {
        uint64_t now = deadline_ns == 0 ? 0 : tni_os_now_ns();
        if (now >= deadline_ns)
            break;
        tni_os_sleep_until(now + TNI_MIN(pause_ns, deadline_ns - now));
        pause_ns = TNI_MIN(pause_ns * 2, (uint64_t)RETRY_MOST_NS);
    }
    return status;
}

int tni_os_file_remove(const char *name)
{
    char path[TNI_LINUX_PATH_BYTES + TNI_LINUX_NAME_BYTES];
    int status = tni_linux_runtime_path(name, path, sizeof path);
    if (status == 0 && unlink(path) != 0)
        status = tni_linux_fail(tni_linux_status(errno), errno, "removing %s", path);
    return status;
}

bool tni_os_file_is(const char *name, int fd)
{
    char path[TNI_LINUX_PATH_BYTES + TNI_LINUX_NAME_BYTES];
    return tni_linux_runtime_path(name, path, sizeof path) == 0 && is_still_named(fd, path);
}

uint64_t tni_os_file_number(const char *name)
{
    char path[TNI_LINUX_PATH_BYTES + TNI_LINUX_NAME_BYTES];
    struct stat stat;
    if (tni_linux_runtime_path(name, path, sizeof path) != 0 || lstat(path, &stat) != 0)
        return 0;
    /* The device is part of the number: a file system that is mounted there later may have the
     * same inodes. */
    return (uint64_t)stat.st_ino ^ (uint64_t)stat.st_dev << 40;
}

int tni_os_file_for_each(const char *prefix, tni_os_name_fn *each, void *context)
{
    DIR *folder = tni_linux_open_folder(tni_os_runtime_folder());
    int stop = 0;
    for (struct dirent *entry;
         folder != NULL && stop == 0 && (entry = readdir(folder)) != NULL;)
        if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0)
            stop = each(entry->d_name, context);
    if (folder != NULL)
        closedir(folder);
    return stop;
}
