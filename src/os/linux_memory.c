/* SPDX-License-Identifier: Apache-2.0 */
/* Memory objects: memfds with seals. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "os/linux.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

enum { WRITE_CHUNK_BYTES = 1 << 30 };

/* UINT64_MAX: there is no limit. */
static uint64_t file_size_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return UINT64_MAX;
    return limit.rlim_cur;
}

static int create_memfd(const char *name)
{
    unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    if (!tni_linux_is_forced(TNI_LINUX_NOEXEC_SEAL)) {
        int fd = memfd_create(name, flags | MFD_NOEXEC_SEAL);
        if (fd >= 0 || errno != EINVAL)
            return fd;
    }
    return memfd_create(name, flags);
}

int tni_linux_check_file_size(const char *what, const char *name, uint64_t size_bytes)
{
    uint64_t limit = file_size_limit();
    if (size_bytes <= limit)
        return 0;
    return tni_fail(TN_ERR_SYSTEM,
                    "%s \"%s\" of %" PRIu64
                    " bytes: the file size limit (ulimit -f) is %" PRIu64 " bytes",
                    what, name, size_bytes, limit);
}

/* A memfd has mode 0777 at first: a process that has it read-only could reopen it for writing.
 */
static int set_up_memfd(int fd, uint64_t size_bytes, int seals, const char **ret_call)
{
    int error = 0;
    *ret_call = "ftruncate";
    do {
        error = ftruncate(fd, (off_t)size_bytes) == 0 ? 0 : errno;
    } while (error == EINTR);
    if (error != 0)
        return error;
    *ret_call = "fchmod";
    if (fchmod(fd, 0600) != 0)
        return errno;
    *ret_call = "fcntl(F_ADD_SEALS)";
    return fcntl(fd, F_ADD_SEALS, seals) != 0 ? errno : 0;
}

static int create_memory(const char *name, uint64_t size_bytes, int seals, int *ret_fd)
{
    if (size_bytes == 0 || size_bytes % tni_os_page_bytes() != 0 || size_bytes > INT64_MAX)
        return tni_fail(TN_ERR_INVALID,
                        "memory object \"%s\" of %" PRIu64 " bytes: not a multiple of a page",
                        name, size_bytes);
    int checked = tni_linux_check_file_size("memory object", name, size_bytes);
    if (checked != 0)
        return checked;

    int fd = -1;
    TNI_LINUX_MAKE_FD(fd, create_memfd(name));
    if (fd < 0)
        return tni_linux_fail(tni_linux_status(errno), errno, "memfd_create of \"%s\"", name);

    const char *call = "";
    int error = set_up_memfd(fd, size_bytes, seals, &call);
    if (error != 0) {
        close(fd);
        int status = error == EFBIG ? TN_ERR_NO_MEMORY : tni_linux_status(error);
        return tni_linux_fail(status, error, "memory object \"%s\" of %" PRIu64 " bytes: %s",
                              name, size_bytes, call);
    }
    *ret_fd = fd;
    return 0;
}

int tni_os_memory_create(const char *name, uint64_t size_bytes, int *ret_fd)
{
    return create_memory(name, size_bytes, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL, ret_fd);
}

int tni_os_memory_create_sealable(const char *name, uint64_t size_bytes, int *ret_fd)
{
    return create_memory(name, size_bytes, F_SEAL_SHRINK | F_SEAL_GROW, ret_fd);
}

/* A memfd of huge pages has seals too, but an access may find no free huge page: SIGBUS. */
static int check_file_system(int fd)
{
    struct statfs system;
    int done = -1;
    do {
        done = fstatfs(fd, &system);
    } while (done != 0 && errno == EINTR);
    if (done != 0)
        return tni_linux_fail(TN_ERR_INVALID, errno,
                              "fstatfs: descriptor %d is not a memory object", fd);
    if (system.f_type == HUGETLBFS_MAGIC)
        return tni_fail(TN_ERR_INVALID,
                        "descriptor %d is memory of huge pages (hugetlbfs), which can be "
                        "missing when it is used",
                        fd);
    if (system.f_type != TMPFS_MAGIC)
        return tni_fail(TN_ERR_INVALID,
                        "descriptor %d is not a memory object: file system 0x%lx", fd,
                        (unsigned long)system.f_type);
    return 0;
}

int tni_os_identify(int fd, uint64_t *ret_inode, uint64_t *ret_device)
{
    struct stat status;
    if (fstat(fd, &status) != 0)
        return tni_linux_fail(TN_ERR_INVALID, errno, "descriptor %d", fd);
    *ret_inode = status.st_ino;
    *ret_device = status.st_dev;
    return 0;
}

/* A DMA buffer has no size in fstat(). */
int tni_os_descriptor_end(int fd, uint64_t *ret_bytes)
{
    off_t end = lseek(fd, 0, SEEK_END);
    if (end < 0)
        return tni_linux_fail(TN_ERR_INVALID, errno, "descriptor %d", fd);
    *ret_bytes = (uint64_t)end;
    return 0;
}

int tni_os_memory_stat(int fd, struct tni_os_memory *ret_memory)
{
    int seals = fcntl(fd, F_GET_SEALS);
    struct stat status;
    if (seals < 0 || fstat(fd, &status) != 0)
        return tni_linux_fail(TN_ERR_INVALID, errno, "descriptor %d is not a memory object",
                              fd);
    int checked = check_file_system(fd);
    if (checked != 0)
        return checked;
    *ret_memory = (struct tni_os_memory){
        .size_bytes = (uint64_t)status.st_size,
        .uid = status.st_uid,
        .inode = status.st_ino,
        .device = status.st_dev,
        .is_sealed = (seals & F_SEAL_SHRINK) != 0,
        .is_write_once = (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) != 0,
    };
    return 0;
}

int tni_os_memory_seal_writes(int fd)
{
    const int seals = F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    if (fcntl(fd, F_ADD_SEALS, seals) != 0)
        return tni_linux_fail(TN_ERR_SYSTEM, errno,
                              "sealing the memory object of descriptor %d against writes", fd);
    return 0;
}

int tni_os_memory_reopen(int fd, bool read_only, int *ret_fd)
{
    char path[64];
    int opened = -1;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    TNI_LINUX_MAKE_FD(opened,
                      open(path, O_CLOEXEC | O_NOCTTY | (read_only ? O_RDONLY : O_RDWR)));
    if (opened < 0)
        return tni_linux_fail(TN_ERR_SYSTEM, errno, "opening %s anew for %s", path,
                              read_only ? "reading" : "writing");
    *ret_fd = opened;
    return 0;
}

int tni_os_memory_committed(int fd, uint64_t *ret_bytes)
{
    struct stat status;
    if (fstat(fd, &status) != 0)
        return tni_linux_fail(TN_ERR_INVALID, errno, "descriptor %d", fd);
    *ret_bytes = (uint64_t)status.st_blocks * 512;
    return 0;
}

/* Write through a mapping, where the file size limit would make pwrite() raise SIGXFSZ. */
static int write_mapped(int fd, uint64_t offset, const void *source, uint64_t size_bytes)
{
    uint64_t head = offset % tni_os_page_bytes();
    void *window;
    int status = tni_os_map_part(fd, offset - head, head + size_bytes, &window);
    if (status != 0)
        return status;
    status = tni_os_commit((char *)window + head, size_bytes);
    if (status == 0)
        memcpy((char *)window + head, source, size_bytes);
    tni_os_unmap(window, head + size_bytes);
    return status;
}

int tni_os_write_at(int fd, uint64_t offset, const void *source, uint64_t size_bytes)
{
    uint64_t end = 0;
    if (!tni_add_size(offset, size_bytes, &end) || end > INT64_MAX)
        return tni_fail(TN_ERR_INVALID, "writing %" PRIu64 " bytes at %" PRIu64, size_bytes,
                        offset);
    if (end > file_size_limit())
        return write_mapped(fd, offset, source, size_bytes);

    const char *from = source;
    while (size_bytes > 0) {
        size_t part = TNI_MIN(size_bytes, (uint64_t)WRITE_CHUNK_BYTES);
        ssize_t done = pwrite(fd, from, part, (off_t)offset);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0) {
            int error = done == 0 ? ENOSPC : errno;
            int status = error == EFBIG ? TN_ERR_NO_MEMORY : tni_linux_status(error);
            return tni_linux_fail(status, error, "writing %" PRIu64 " bytes at %" PRIu64,
                                  size_bytes, offset);
        }
        from += done;
        offset += (uint64_t)done;
        size_bytes -= (uint64_t)done;
    }
    return 0;
}

int tni_os_read_at(int fd, uint64_t offset, void *bytes, size_t size_bytes)
{
    uint64_t end = 0;
    if (!tni_add_size(offset, size_bytes, &end) || end > INT64_MAX)
        return tni_fail(TN_ERR_INVALID, "reading %zu bytes at %" PRIu64, size_bytes, offset);
    char *to = bytes;
    for (size_t done = 0; done < size_bytes;) {
        ssize_t got = pread(fd, to + done, size_bytes - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return tni_linux_fail(errno == EBADF ? TN_ERR_DENIED : TN_ERR_SYSTEM, errno,
                                  "reading %zu bytes at %" PRIu64 " of descriptor %d",
                                  size_bytes, offset, fd);
        if (got == 0)
            return tni_fail(TN_ERR_CORRUPT,
                            "descriptor %d is truncated: it ends before byte %" PRIu64, fd,
                            end);
        done += (size_t)got;
    }
    return 0;
}

int tni_os_punch(int fd, uint64_t offset, uint64_t size_bytes)
{
    while (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
                     (off_t)size_bytes) != 0) {
        if (errno != EAGAIN && errno != EINTR)
            return tni_linux_fail(TN_ERR_SYSTEM, errno, "discarding %" PRIu64 " bytes",
                                  size_bytes);
    }
    return 0;
}
