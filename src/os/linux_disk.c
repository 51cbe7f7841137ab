/* SPDX-License-Identifier: Apache-2.0 */
/* Files without a name, for what a program would rather not have in memory. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "os/linux.h"

/* For a file system without O_TMPFILE. @return as open() */
static int open_and_unlink(const char *folder)
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/.tenon-disk-XXXXXX", folder), fd = -1;
    if (length < 0 || (size_t)length >= sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    TNI_LINUX_MAKE_FD(fd, mkostemp(path, O_CLOEXEC));
    if (fd >= 0)
        unlink(path);
    return fd;
}

int tni_os_disk_open(const char *folder, int *ret_fd)
{
    int fd = -1;
    TNI_LINUX_MAKE_FD(fd, tni_linux_is_forced(TNI_LINUX_TMPFILE)
                              ? (errno = EOPNOTSUPP, -1)
                              : open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    /* A kernel that does not know the flag says that the folder is one. */
    if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR))
        fd = open_and_unlink(folder);
    if (fd < 0)
        return tni_linux_fail(errno == ENOSPC ? TN_ERR_SYSTEM : tni_linux_status(errno), errno,
                              "making a file in the folder %s", folder);
    *ret_fd = fd;
    return 0;
}

/* A full disk is no lack of memory: to give memory back does not help. */
static int fail(int error, const char *what, uint64_t offset)
{
    return tni_linux_fail(TN_ERR_SYSTEM, error,
                          "%s the file for data that the host has no room for, at byte %llu",
                          what, (unsigned long long)offset);
}

int tni_os_disk_write(int fd, uint64_t offset, const void *bytes, uint64_t size_bytes)
{
    int status = tni_linux_check_file_size("the file", "for data that the host has no room for",
                                           offset + size_bytes);
    for (uint64_t done = 0; status == 0 && done < size_bytes;) {
        ssize_t wrote =
            pwrite(fd, (const char *)bytes + done, size_bytes - done, (off_t)(offset + done));
        if (wrote > 0)
            done += (uint64_t)wrote;
        else if (wrote == 0 || errno != EINTR)
            status = fail(wrote == 0 ? ENOSPC : errno, "writing", offset + done);
    }
    return status;
}

int tni_os_disk_read(int fd, uint64_t offset, void *bytes, uint64_t size_bytes)
{
    int status = 0;
    for (uint64_t done = 0; status == 0 && done < size_bytes;) {
        ssize_t got =
            pread(fd, (char *)bytes + done, size_bytes - done, (off_t)(offset + done));
        if (got > 0)
            done += (uint64_t)got;
        else if (got == 0 || errno != EINTR)
            status = fail(got == 0 ? EIO : errno, "reading", offset + done);
    }
    return status;
}

void tni_os_disk_discard(int fd, uint64_t offset, uint64_t size_bytes)
{
    (void)!fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
                     (off_t)size_bytes);
}
