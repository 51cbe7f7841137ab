/* SPDX-License-Identifier: Apache-2.0 */
/* Mappings, and the memory behind them. */
#include <errno.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "os/linux.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

static uint64_t limit_value(int failed, const struct rlimit *limit)
{
    return failed || limit->rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit->rlim_cur;
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

/* The most mappings that a process may have; 0: not known. */
static unsigned long mapping_limit(void)
{
    char text[32];
    ssize_t size = tni_linux_read_text("/proc/sys/vm/max_map_count", text, sizeof text);
    return size > 0 ? strtoul(text, NULL, 10) : 0;
}

/* Write a sentence about the limits that may have refused a mapping, or "". */
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

/* `is_private`: the mapping counts towards the data limit (ulimit -d). */
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

/* Reserve address space of size + alignment, and unmap what lies before and after. */
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
 * Write to a page without changing its bytes, and return an error if that fails: FUTEX_WAKE_OP
 * does an atomic OR with 0 on its second word, and fails with EFAULT where a store would raise
 * SIGBUS. It wakes up no thread, since none sleeps on this private futex. Where a filter
 * refuses the call, a plain OR is all that is left, which may raise SIGBUS.
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
    if (error == EINVAL || error == ENOSYS ||
        error == EPERM) { /* EPERM: a filter refuses the call */
        error = 0;
        for (uint64_t off = 0; off < total && error == 0; off += page)
            error = touch_page(start + off);
    }
    return error == 0 ? 0 : fail_commit(error, size_bytes);
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
