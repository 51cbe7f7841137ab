/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <unistd.h>

#include "os/linux.h"

enum { NAME_BYTES = 200, RETRY_LEAST_NS = 200000, RETRY_MOST_NS = 20000000 };

/* The folder. */

/* "" when it does not fit, which tni_os_runtime_prepare() refuses. */
const char *tni_os_runtime_folder(void)
{
    static _Thread_local char folder[TNI_LINUX_FOLDER_BYTES];
    const char *chosen = secure_getenv("TENON_RUNTIME_DIR");
    const char *of_session = secure_getenv("XDG_RUNTIME_DIR");
    int wanted = 0;
    if (chosen != NULL && chosen[0] != '\0')
        wanted = snprintf(folder, sizeof folder, "%s", chosen);
    else if (of_session != NULL && of_session[0] != '\0')
        wanted = snprintf(folder, sizeof folder, "%s/tenon", of_session);
    else
        wanted = snprintf(folder, sizeof folder, "/tmp/tenon-%" PRIu32, tni_os_uid());
    if (wanted < 0 || (size_t)wanted >= sizeof folder)
        folder[0] = '\0';
    /* lstat() would follow a link that ends in a slash. */
    for (size_t len = strlen(folder); len > 1 && folder[len - 1] == '/'; len--)
        folder[len - 1] = '\0';
    return folder;
}

bool tni_os_runtime_is_chosen(void)
{
    const char *chosen = secure_getenv("TENON_RUNTIME_DIR");
    return chosen != NULL && chosen[0] != '\0';
}

static int check_folder_name(const char *folder)
{
    /* A socket's address has little room; said here, before anything is made. */
    struct sockaddr_un address;
    size_t room = sizeof address.sun_path - sizeof "/tenond-999.999.sock";
    if (strlen(folder) > room)
        return tni_fail(TN_ERR_INVALID,
                        "the runtime folder %s is %zu bytes long; a socket in it allows %zu",
                        folder, strlen(folder), room);
    if (folder[0] == '/')
        return 0;
    if (folder[0] == '\0')
        return tni_fail(TN_ERR_INVALID, "the runtime folder's path is longer than %d bytes",
                        TNI_LINUX_FOLDER_BYTES - 1);
    return tni_fail(TN_ERR_INVALID, "the runtime folder %s is not an absolute path", folder);
}

static int make_folder(const char *folder)
{
    if (mkdir(folder, 0700) == 0 || errno == EEXIST)
        return 0;
    if (errno == ENOENT)
        return tni_fail(
            TN_ERR_NOT_FOUND,
            "the runtime folder %s cannot be made: the folder above it is not there", folder);
    return tni_linux_fail(tni_linux_status(errno), errno,
                          "making the runtime folder %s (TENON_RUNTIME_DIR names another)",
                          folder);
}

/* Everything another user could have prepared for us is refused, a link above all. */
static int check_folder(const char *folder)
{
    struct stat status;
    if (lstat(folder, &status) != 0)
        return tni_linux_fail(tni_linux_status(errno), errno, "the runtime folder %s", folder);
    if (!S_ISDIR(status.st_mode))
        return tni_fail(TN_ERR_DENIED, "the runtime folder %s is not a folder", folder);
    if (status.st_uid != tni_os_uid())
        return tni_fail(TN_ERR_DENIED,
                        "the runtime folder %s belongs to uid %u, not to %" PRIu32, folder,
                        (unsigned)status.st_uid, tni_os_uid());
    if ((status.st_mode & 077) != 0)
        return tni_fail(TN_ERR_DENIED, "the runtime folder %s has mode %04o, not 0700", folder,
                        (unsigned)status.st_mode & 07777);

    /* access() allows root everything but a read-only file system, and not always that. */
    struct statvfs system;
    bool is_read_only = statvfs(folder, &system) == 0 && (system.f_flag & ST_RDONLY) != 0;
    if (is_read_only)
        return tni_fail(TN_ERR_DENIED, "the runtime folder %s is on a read-only file system",
                        folder);
    if (faccessat(AT_FDCWD, folder, W_OK | X_OK, AT_EACCESS) != 0)
        return tni_linux_fail(TN_ERR_DENIED, errno, "the runtime folder %s is not writable",
                              folder);
    return 0;
}

int tni_os_runtime_prepare(void)
{
    const char *folder = tni_os_runtime_folder();
    int status = check_folder_name(folder);
    if (status == 0)
        status = make_folder(folder);
    return status == 0 ? check_folder(folder) : status;
}

int tni_linux_runtime_path(const char *name, char *path, size_t size_bytes)
{
    const char *folder = tni_os_runtime_folder();
    int status = check_folder_name(folder);
    if (status == 0)
        status = tni_check_name("file", name, NAME_BYTES);
    if (status != 0)
        return status;
    int wanted = snprintf(path, size_bytes, "%s/%s", folder, name);
    if (wanted < 0 || (size_t)wanted >= size_bytes)
        return tni_fail(TN_ERR_INVALID, "the path %s/%s is longer than %zu bytes", folder, name,
                        size_bytes - 1);
    return 0;
}

/* Locks. */

/* The file may have been removed between open and lock: then this locks what nobody else will
 * find. */
static bool is_still_named(int fd, const char *path)
{
    struct stat opened;
    struct stat named;
    return fstat(fd, &opened) == 0 && lstat(path, &named) == 0 &&
           opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

/** 0 with the lock; TN_ERR_TIMED_OUT when somebody has it */
static int try_lock(const char *path, int *ret_fd)
{
    for (;;) {
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
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
    char path[TNI_LINUX_PATH_BYTES + NAME_BYTES];
    int status = tni_linux_runtime_path(name, path, sizeof path);
    if (status != 0)
        return status;

    /* Polled: a blocking flock() has no deadline, and alarms belong to the user. */
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
    char path[TNI_LINUX_PATH_BYTES + NAME_BYTES];
    int status = tni_linux_runtime_path(name, path, sizeof path);
    if (status == 0 && unlink(path) != 0)
        status = tni_linux_fail(tni_linux_status(errno), errno, "removing %s", path);
    return status;
}

uint64_t tni_os_file_number(const char *name)
{
    char path[TNI_LINUX_PATH_BYTES + NAME_BYTES];
    struct stat stat;
    if (tni_linux_runtime_path(name, path, sizeof path) != 0 || lstat(path, &stat) != 0)
        return 0;
    return (uint64_t)stat.st_ino;
}

bool tni_os_file_has_other(const char *name)
{
    DIR *folder = opendir(tni_os_runtime_folder());
    bool has_other = false;
    for (struct dirent *entry;
         folder != NULL && !has_other && (entry = readdir(folder)) != NULL;)
        has_other = strncmp(entry->d_name, name, strcspn(name, "-") + 1) == 0 &&
                    strcmp(entry->d_name, name) != 0;
    if (folder != NULL)
        closedir(folder);
    return has_other;
}
