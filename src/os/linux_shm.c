/* SPDX-License-Identifier: Apache-2.0 */
/* Named memory: files of a memory file system, such as /dev/shm. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "os/linux.h"

enum {
    ZERO_CHUNK_BYTES = 1 << 16,
    RESERVE_LEAST_BYTES = 1 << 16,
    RESERVE_MOST_BYTES = 1 << 30,
};

const char *tni_os_shm_folder(void)
{
    const char *chosen = tni_os_environment("TENON_SHM_DIR");
    return chosen == NULL || chosen[0] == '\0' ? "/dev/shm" : chosen;
}

/* Without the slashes at the end of the folder. */
int tni_os_shm_join(char *ret_path, size_t size_bytes, const char *folder, const char *name)
{
    size_t length = strlen(folder);
    while (length > 1 && folder[length - 1] == '/')
        length--;
    int wanted = length > INT_MAX
                     ? -1
                     : snprintf(ret_path, size_bytes, "%.*s/%s", (int)length, folder, name);
    return wanted >= 0 && (size_t)wanted < size_bytes
               ? 0
               : tni_fail(TN_ERR_INVALID,
                          "the path of the folder for named memory is %zu bytes long, which is "
                          "too long",
                          length);
}

/* Making. */

/* The caller has truncated the file, so the free bytes that are named include those of the
 * file. */
static int fail_full(int fd, const char *path, uint64_t size_bytes)
{
    struct statvfs system;
    if (fstatvfs(fd, &system) != 0)
        return tni_linux_fail(TN_ERR_NO_MEMORY, ENOSPC, "%s: %" PRIu64 " bytes wanted", path,
                              size_bytes);
    uint64_t unit = system.f_frsize;
    return tni_fail(
        TN_ERR_NO_MEMORY,
        "%s: %" PRIu64 " bytes wanted, the file system has %" PRIu64 " bytes free of %" PRIu64
        "; the strategies arena and file_descriptor do not need it",
        path, size_bytes, (uint64_t)system.f_bavail * unit, (uint64_t)system.f_blocks * unit);
}

static int fail_no_entry(const char *path)
{
    return tni_fail(TN_ERR_NO_MEMORY,
                    "%s: the file system has no room for another file; the strategies arena "
                    "and file_descriptor do not need it",
                    path);
}

static int fail_no_folder(const char *path)
{
    return tni_fail(TN_ERR_NOT_FOUND,
                    "%s: there is no such folder; it is $TENON_SHM_DIR, else /dev/shm, and the "
                    "strategies arena and file_descriptor do not need it",
                    path);
}

/*
 * A signal interrupts fallocate(), and the kernel frees all that this call had allocated. The
 * next part is half as large, so that frequent signals cannot keep the loop from making
 * progress.
 * @return 0 or an errno
 */
static int reserve(int fd, uint64_t size_bytes)
{
    uint64_t part = RESERVE_MOST_BYTES;
    for (uint64_t done = 0; done < size_bytes;) {
        uint64_t now = TNI_MIN(part, size_bytes - done);
        if (fallocate(fd, 0, (off_t)done, (off_t)now) == 0)
            done += now;
        else if (errno == EINTR)
            part = TNI_MAX(part / 2, (uint64_t)RESERVE_LEAST_BYTES);
        else
            return errno;
    }
    return 0;
}

/** @return 0 or an errno */
static int write_zeros(int fd, uint64_t size_bytes)
{
    static const char zeros[ZERO_CHUNK_BYTES];
    for (uint64_t done = 0; done < size_bytes;) {
        size_t part = TNI_MIN(size_bytes - done, (uint64_t)sizeof zeros);
        ssize_t wrote = pwrite(fd, zeros, part, (off_t)done);
        if (wrote > 0)
            done += (uint64_t)wrote;
        else if (wrote == 0)
            return ENOSPC;
        else if (errno != EINTR)
            return errno;
    }
    return 0;
}

/** @return whether the file system states that it has too few free bytes */
static bool is_too_much(int fd, uint64_t size_bytes)
{
    struct statvfs system;
    if (fstatvfs(fd, &system) != 0 || system.f_blocks == 0 || system.f_frsize == 0)
        return false; /* not known, or without a limit */
    return (size_bytes - 1) / system.f_frsize >= system.f_bavail;
}

/** @return 0 or an errno */
static int give_memory(int fd, uint64_t size_bytes)
{
    if (fchmod(fd, 0600) != 0) /* independent of the umask */
        return errno;
    if (is_too_much(fd, size_bytes))
        return ENOSPC;
    int error = 0;
    do {
        error = ftruncate(fd, (off_t)size_bytes) == 0 ? 0 : errno;
    } while (error == EINTR);
    if (error != 0)
        return error;
    TNI_KILL_POINT("file_sized");
    if (!tni_linux_is_forced(TNI_LINUX_FALLOCATE)) {
        error = reserve(fd, size_bytes);
        if (error != EOPNOTSUPP && error != EINVAL && error != ENOSYS && error != EPERM)
            return error;
    }
    return write_zeros(fd, size_bytes);
}

static int open_new(const char *path, int *ret_fd)
{
    int fd = -1;
    TNI_LINUX_MAKE_FD(fd, open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (fd < 0 && (errno == ENOSPC || errno == EDQUOT))
        return fail_no_entry(path);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return fail_no_folder(path);
    if (fd < 0)
        return tni_linux_fail(errno == EEXIST ? TN_ERR_EXISTS : tni_linux_status(errno), errno,
                              "making %s", path);
    *ret_fd = fd;
    return 0;
}

int tni_os_shm_create(const char *path, uint64_t size_bytes, int *ret_fd)
{
    if (size_bytes == 0 || size_bytes > INT64_MAX)
        return tni_fail(TN_ERR_INVALID, "%s: a file of %" PRIu64 " bytes", path, size_bytes);
    int fd = -1;
    int status = tni_linux_check_file_size("file", path, size_bytes);
    if (status == 0)
        status = open_new(path, &fd);
    if (status != 0)
        return status;
    TNI_KILL_POINT("file_made");

    int error = give_memory(fd, size_bytes);
    if (error == 0) {
        *ret_fd = fd;
        return 0;
    }
    unlink(path);
    if (ftruncate(fd, 0) == 0 && (error == ENOSPC || error == EDQUOT || error == EFBIG))
        status = fail_full(fd, path, size_bytes);
    else
        status = tni_linux_fail(tni_linux_status(error), error, "%s: %" PRIu64 " bytes wanted",
                                path, size_bytes);
    close(fd);
    return status;
}

/* Finding and removing. */

static int fail_not_plain(const char *path)
{
    return tni_fail(TN_ERR_INVALID, "%s is not a regular file", path);
}

/* Opened without O_PATH and a check first: to open a pipe or a device like this does no harm.
 */
static int open_old(const char *path, int access, int *ret_fd)
{
    int fd = -1;
    struct stat status;
    TNI_LINUX_MAKE_FD(fd, open(path, access | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (fd < 0 && errno == ELOOP)
        return tni_fail(TN_ERR_DENIED, "%s is a link, and links are not followed", path);
    if (fd < 0 && (errno == EISDIR || errno == ENXIO || errno == ENODEV))
        return fail_not_plain(path); /* a folder, a socket, a missing device */
    if (fd < 0)
        return tni_linux_fail(tni_linux_status(errno), errno, "opening %s", path);
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
        close(fd);
        return fail_not_plain(path);
    }
    *ret_fd = fd;
    return 0;
}

int tni_os_shm_open(const char *path, int *ret_fd) { return open_old(path, O_RDWR, ret_fd); }

int tni_os_shm_open_read_only(const char *path, int *ret_fd)
{
    return open_old(path, O_RDONLY, ret_fd);
}

int tni_os_shm_stat(int fd, struct tni_os_memory *ret_memory)
{
    struct stat status;
    if (fstat(fd, &status) != 0)
        return tni_linux_fail(TN_ERR_INVALID, errno, "descriptor %d", fd);
    if (!S_ISREG(status.st_mode) || status.st_size < 0)
        return tni_fail(TN_ERR_INVALID, "descriptor %d is not a regular file (mode %06o)", fd,
                        (unsigned)status.st_mode);
    *ret_memory = (struct tni_os_memory){
        .size_bytes = (uint64_t)status.st_size,
        .uid = status.st_uid,
        .inode = status.st_ino,
        .device = status.st_dev,
    };
    return 0;
}

int tni_os_shm_remove(const char *path)
{
    if (unlink(path) != 0)
        return tni_linux_fail(tni_linux_status(errno), errno, "removing %s", path);
    return 0;
}

/* Another user may give files the same names. */
static bool is_our_file(DIR *folder, const struct dirent *entry)
{
    struct stat status;
    return fstatat(dirfd(folder), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISREG(status.st_mode) && status.st_uid == tni_os_uid();
}

int tni_os_shm_for_each(const char *folder, const char *prefix, tni_os_shm_fn *each,
                        void *context)
{
    DIR *open_folder = tni_linux_open_folder(folder);
    if (open_folder == NULL)
        return tni_linux_fail(tni_linux_status(errno), errno, "opening the folder %s", folder);

    int stop = 0;
    errno = 0;
    for (struct dirent *entry; stop == 0 && (entry = readdir(open_folder)) != NULL; errno = 0) {
        char path[PATH_MAX];
        if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0 ||
            !is_our_file(open_folder, entry))
            continue;
        if (tni_os_shm_join(path, sizeof path, folder, entry->d_name) ==
            0) /* else the path is too long to be opened */
            stop = each(path, entry->d_name, context);
    }
    if (stop == 0 && errno != 0)
        stop = tni_linux_fail(TN_ERR_SYSTEM, errno, "reading the folder %s", folder);
    closedir(open_folder);
    return stop;
}

uint64_t tni_os_shm_bytes(void)
{
    struct statvfs system;
    uint64_t total;
    if (statvfs(tni_os_shm_folder(), &system) != 0 || system.f_blocks == 0 ||
        !tni_mul_size(system.f_blocks, system.f_frsize, &total) || total == 0)
        return UINT64_MAX;
    return total;
}
