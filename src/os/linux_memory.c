/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "os/linux.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

enum { WRITE_CHUNK_BYTES = 1 << 30 };

/* Memory objects. */

static uint64_t limit_value(int failed, const struct rlimit *limit)
{
    return failed || limit->rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit->rlim_cur;
}

static uint64_t file_size_limit(void)
{
    struct rlimit limit;
    return limit_value(getrlimit(RLIMIT_FSIZE, &limit), &limit);
}

static uint64_t address_space_limit(void)
{
    struct rlimit limit;
    return limit_value(getrlimit(RLIMIT_AS, &limit), &limit);
}

static uint64_t data_limit(void)
{
    struct rlimit limit;
    return limit_value(getrlimit(RLIMIT_DATA, &limit), &limit);
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

/* A memfd comes with mode 0777: whoever gets it for reading could open it anew for writing. */
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
    TNI_LINUX_MAKE((fd = create_memfd(name)) >= 0);
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

/* Huge pages have seals too, but a mapping of ours may find none there, and raise SIGBUS. */
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
    TNI_LINUX_MAKE(
        (opened = open(path, O_CLOEXEC | O_NOCTTY | (read_only ? O_RDONLY : O_RDWR))) >= 0);
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

/* Mappings. */

/* How many mappings a process may have; 0: not known. */
static unsigned long mapping_limit(void)
{
    char text[32];
    ssize_t size = tni_linux_read_text("/proc/sys/vm/max_map_count", text, sizeof text);
    return size > 0 ? strtoul(text, NULL, 10) : 0;
}

/* The limits that are set and may be why a mapping cannot be made; or "". */
static void name_limits(bool is_private, char *text, size_t size_bytes)
{
    uint64_t space = address_space_limit(), data = is_private ? data_limit() : UINT64_MAX;
    size_t len = 0;
    text[0] = '\0';
    if (space != UINT64_MAX)
        len =
            (size_t)snprintf(text, size_bytes,
                             "the address space limit (ulimit -v) is %" PRIu64 " bytes", space);
    if (data != UINT64_MAX)
        snprintf(text + len, size_bytes - len,
                 "%sthe data limit (ulimit -d) is %" PRIu64 " bytes", len > 0 ? ", and " : "",
                 data);
}

/* `is_private`: of memory that counts as the process's data, when it may be written. */
static int fail_map(int errno_value, uint64_t size_bytes, bool is_private)
{
    int status = tni_linux_status(errno_value);
    char limits[160];
    name_limits(is_private, limits, sizeof limits);
    if (errno_value == ENOMEM && limits[0] != '\0')
        return tni_fail_errno(status, errno_value, "mapping of %" PRIu64 " bytes; %s",
                              size_bytes, limits);
    if (errno_value == ENOMEM)
        return tni_fail_errno(status, errno_value,
                              "mapping of %" PRIu64
                              " bytes: no address space, or the process has all mappings that "
                              "it may have (vm.max_map_count, %lu); the strategy arena needs "
                              "none for a tensor",
                              size_bytes, mapping_limit());
    return tni_linux_fail(status, errno_value, "mapping of %" PRIu64 " bytes", size_bytes);
}

/* Reserve more than is needed, and give the ends back. */
static int reserve_aligned(uint64_t size_bytes, uint64_t align_bytes, char **ret_start)
{
    uint64_t total = 0;
    if (!tni_add_size(size_bytes, align_bytes, &total) || total > SIZE_MAX)
        return fail_map(ENOMEM, size_bytes, false);
    char *whole =
        mmap(NULL, total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (whole == MAP_FAILED)
        return fail_map(errno, size_bytes, false);

    uint64_t head = tni_align_up((uintptr_t)whole, align_bytes) - (uintptr_t)whole;
    if (head > 0)
        munmap(whole, head);
    if (total - head > size_bytes)
        munmap(whole + head + size_bytes, total - head - size_bytes);
    *ret_start = whole + head;
    return 0;
}

int tni_os_map(int fd, uint64_t size_bytes, uint64_t align_bytes, bool read_only,
               void **ret_address)
{
    size_t page = tni_os_page_bytes();
    if (size_bytes == 0 || align_bytes < page || (align_bytes & (align_bytes - 1)) != 0)
        return tni_fail(TN_ERR_INVALID,
                        "mapping of %" PRIu64 " bytes aligned to %" PRIu64
                        ": needs a power of two >= %zu",
                        size_bytes, align_bytes, page);

    uint64_t rounded = tni_align_up(size_bytes, page);
    if (rounded < size_bytes)
        return fail_map(ENOMEM, size_bytes, false);
    char *start = NULL;
    int fixed = 0;
    if (align_bytes > page) {
        int status = reserve_aligned(rounded, align_bytes, &start);
        if (status != 0)
            return status;
        fixed = MAP_FIXED;
    }
    int protection = read_only ? PROT_READ : PROT_READ | PROT_WRITE;
    void *address = mmap(start, rounded, protection, MAP_SHARED | MAP_NORESERVE | fixed, fd, 0);
    if (address == MAP_FAILED) {
        int error = errno;
        if (start != NULL)
            munmap(start, rounded);
        return fail_map(error, size_bytes, false);
    }
    *ret_address = address;
    return 0;
}

int tni_os_map_part(int fd, uint64_t offset, uint64_t size_bytes, void **ret_address)
{
    void *address = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                         fd, (off_t)offset);
    if (address == MAP_FAILED)
        return fail_map(errno, size_bytes, false);
    *ret_address = address;
    return 0;
}

int tni_os_map_over(int fd, void *address, uint64_t size_bytes, bool read_only)
{
    size_t page = tni_os_page_bytes();
    if (size_bytes == 0 || size_bytes % page != 0 || (uintptr_t)address % page != 0)
        return tni_fail(TN_ERR_INVALID, "mapping of %" PRIu64 " bytes at %p: not whole pages",
                        size_bytes, address);
    int protection = read_only ? PROT_READ : PROT_READ | PROT_WRITE;
    if (mmap(address, size_bytes, protection, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, 0) ==
        MAP_FAILED)
        return fail_map(errno, size_bytes, false);
    return 0;
}

static int map_anonymous(uint64_t size_bytes, int kind, void **ret_address)
{
    void *address = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE,
                         kind | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED)
        return fail_map(errno, size_bytes, (kind & MAP_PRIVATE) != 0);
    *ret_address = address;
    return 0;
}

int tni_os_map_private(uint64_t size_bytes, void **ret_address)
{
    return map_anonymous(size_bytes, MAP_PRIVATE, ret_address);
}

int tni_os_map_shared(uint64_t size_bytes, void **ret_address)
{
    return map_anonymous(size_bytes, MAP_SHARED, ret_address);
}

void tni_os_unmap(void *address, uint64_t size_bytes)
{
    if (address != NULL)
        munmap(address, size_bytes);
}

/* Committing. */

static int fail_commit(int errno_value, uint64_t size_bytes)
{
    switch (errno_value) {
    case EFAULT:
    case ENOMEM:
    case EHWPOISON:
        return tni_fail_errno(TN_ERR_NO_MEMORY, errno_value, "committing %" PRIu64 " bytes",
                              size_bytes);
    default:
        return tni_linux_fail(TN_ERR_SYSTEM, errno_value, "committing %" PRIu64 " bytes",
                              size_bytes);
    }
}

/*
 * Write to a page without changing it, and hear of a failure: FUTEX_WAKE_OP does an atomic OR
 * with 0 on its second word, and answers EFAULT where a store would raise SIGBUS. Nobody waits
 * on private futexes here, so it wakes nobody. A kernel without it leaves a plain OR, which may
 * raise SIGBUS.
 */
static int touch_page(void *page)
{
    uint32_t unused = 0;
    const uint32_t or_zero = (uint32_t)FUTEX_OP_OR << 28;
    for (;;) {
        long done = syscall(SYS_futex, &unused, FUTEX_WAKE_OP | FUTEX_PRIVATE_FLAG, 0, NULL,
                            page, or_zero);
        if (done >= 0)
            return 0;
        if (errno == ENOSYS) {
            __atomic_fetch_or((unsigned char *)page, 0, __ATOMIC_RELAXED);
            return 0;
        }
        if (errno != EAGAIN && errno != EINTR)
            return errno;
    }
}

static int populate(char *start, uint64_t size_bytes)
{
    for (;;) {
        if (madvise(start, size_bytes, MADV_POPULATE_WRITE) == 0)
            return 0;
        if (errno != EAGAIN && errno != EINTR)
            return errno;
    }
}

int tni_os_commit(void *address, uint64_t size_bytes)
{
    size_t page = tni_os_page_bytes();
    size_t head = (uintptr_t)address % page;
    char *start = (char *)address - head;
    uint64_t total = tni_align_up(size_bytes + head, page);
    if (size_bytes == 0)
        return 0;

    int error = EINVAL;
    if (!tni_linux_is_forced(TNI_LINUX_POPULATE_WRITE))
        error = populate(start, total);
    if (error == EINVAL || error == ENOSYS || error == EPERM) { /* EPERM: a filter */
        error = 0;
        for (uint64_t off = 0; off < total && error == 0; off += page)
            error = touch_page(start + off);
    }
    return error == 0 ? 0 : fail_commit(error, size_bytes);
}

/* Through a mapping: for a process whose file size limit would answer pwrite with SIGXFSZ. */
static int write_mapped(int fd, uint64_t offset, const void *source, uint64_t size_bytes)
{
    uint64_t head = offset % tni_os_page_bytes();
    char *window = mmap(NULL, head + size_bytes, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_NORESERVE, fd, (off_t)(offset - head));
    if (window == MAP_FAILED)
        return fail_map(errno, size_bytes, false);
    int status = tni_os_commit(window + head, size_bytes);
    if (status == 0)
        memcpy(window + head, source, size_bytes);
    munmap(window, head + size_bytes);
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

int tni_os_discard(void *address, uint64_t size_bytes)
{
    while (madvise(address, size_bytes, MADV_REMOVE) != 0) {
        if (errno != EAGAIN && errno != EINTR)
            return tni_linux_fail(TN_ERR_SYSTEM, errno, "discarding %" PRIu64 " bytes",
                                  size_bytes);
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

void tni_os_discard_private(void *address, uint64_t size_bytes)
{
    madvise(address, size_bytes, MADV_DONTNEED);
}

bool tni_os_empty_in_children(void *address, uint64_t size_bytes)
{
    return madvise(address, size_bytes, MADV_WIPEONFORK) == 0;
}

void tni_os_advise_huge(void *address, uint64_t size_bytes)
{
    madvise(address, size_bytes, MADV_HUGEPAGE);
}

void tni_os_advise_no_dump(void *address, uint64_t size_bytes)
{
    madvise(address, size_bytes, MADV_DONTDUMP);
}
