/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Witnesses. A witness is a lock of an open file description (F_OFD_SETLK) on one byte of a
 * memory object. The byte may lie beyond the object's size. The kernel releases the lock with
 * the last reference to the description. Here that reference is a mapping, and no descriptor:
 * the program cannot close it (closefrom()), and it ends with the process's memory, by exec or
 * by death. F_OFD_GETLK tells every holder of a descriptor of the memory object, in any
 * namespace, whether the lock exists.
 *
 * A description does not conflict with its own lock. So the description that has the lock is
 * opened for the lock alone, and its descriptor is closed before tni_os_witness_take() returns.
 *
 * A process that another thread makes by _Fork() or clone() while that descriptor is open keeps
 * the lock as long as it lives. A mapping also outlives its process in a child of vfork(), and
 * while a reader of /proc pins the memory.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "os/linux.h"

#ifndef F_OFD_GETLK
#define F_OFD_GETLK 36
#define F_OFD_SETLK 37
#endif

static struct flock lock_of(uint64_t number)
{
    return (struct flock){
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)number, .l_len = 1};
}

/* @return 0 or an errno */
static int lock_and_map(int fd, uint64_t number, void **ret_address)
{
    struct flock lock = lock_of(number);
    if (fcntl(fd, F_OFD_SETLK, &lock) != 0)
        return errno;
    void *address = mmap(NULL, tni_os_page_bytes(), PROT_NONE, MAP_SHARED, fd, 0);
    if (address == MAP_FAILED)
        return errno == EAGAIN ? ENOMEM : errno; /* EAGAIN: the limit of locked memory */
    *ret_address = address;
    return 0;
}

int tni_os_witness_take(int fd, uint64_t number, void **ret_witness)
{
    int own_fd = -1;
    if (tni_linux_is_forced(TNI_LINUX_WITNESS))
        return tni_linux_fail(TN_ERR_SYSTEM, ENOSYS, "no witnesses");
    int status = tni_os_memory_reopen(fd, false, &own_fd);
    if (status != 0)
        return status;
    int error = lock_and_map(own_fd, number, ret_witness);
    close(own_fd);
    if (error == 0)
        return 0;
    return tni_linux_fail(error == EAGAIN || error == EACCES ? TN_ERR_EXISTS : TN_ERR_SYSTEM,
                          error, "witness %" PRIx64 " of descriptor %d", number, fd);
}

void tni_os_witness_keep(void *witness)
{
    if (madvise(witness, tni_os_page_bytes(), MADV_DONTFORK) != 0)
        tni_log(TNI_LOG_WARNING, "children of this process may share its witness, so that its "
                                 "death may not be noticed");
}

void tni_os_witness_drop(void *witness)
{
    if (witness != NULL)
        munmap(witness, tni_os_page_bytes());
}

int tni_os_witness_state(int fd, uint64_t number)
{
    struct flock lock = lock_of(number);
    if (tni_linux_is_forced(TNI_LINUX_WITNESS) || fcntl(fd, F_OFD_GETLK, &lock) != 0)
        return TNI_OS_UNKNOWN;
    return lock.l_type == F_UNLCK ? TNI_OS_DEAD : TNI_OS_ALIVE;
}

/* ---- of all processes -------------------------------------------------------------------- */

/* All memory objects are in one file system of the kernel; a new one has its device number. */
static int memory_device(dev_t *ret_device)
{
    struct stat status;
    int fd;
    int created = tni_os_memory_create("tenon-device", tni_os_page_bytes(), &fd);
    if (created != 0)
        return created;
    int error = fstat(fd, &status) == 0 ? 0 : errno;
    close(fd);
    *ret_device = status.st_dev;
    return error == 0 ? 0 : tni_linux_fail(TN_ERR_SYSTEM, error, "a memory object");
}

/* A line such as "7: OFDLCK ADVISORY  WRITE -1 00:01:6646752 1 1". */
static bool parse_lock(const char *line, dev_t device, uint64_t *ret_inode)
{
    unsigned major_number, minor_number;
    char kind[16];
    return sscanf(line, "%*u: %15s %*s %*s %*d %x:%x:%" SCNu64, kind, &major_number,
                  &minor_number, ret_inode) == 4 &&
           strcmp(kind, "OFDLCK") == 0 && makedev(major_number, minor_number) == device;
}

static int read_locks(dev_t device, tni_os_inode_fn *each, void *context)
{
    char line[256];
    uint64_t inode;
    FILE *file = tni_linux_open_text("/proc/locks");
    if (file == NULL)
        return errno == ENOENT ? 0
                               : tni_linux_fail(tni_linux_status(errno), errno, "/proc/locks");
    errno = 0;
    while (fgets(line, sizeof line, file) != NULL)
        if (parse_lock(line, device, &inode))
            each(inode, context);
    int error = ferror(file) ? errno : 0;
    fclose(file);
    return error == 0 ? 0 : tni_linux_fail(TN_ERR_SYSTEM, error, "reading /proc/locks");
}

/*
 * The kernel returns its list in pieces, and counts entries to find where the next piece
 * begins. When an earlier lock is released between two pieces, the next piece begins one entry
 * too late and leaves a lock out. So the list is read several times.
 */
int tni_os_witness_for_each(tni_os_inode_fn *each, void *context)
{
    enum { READS = 3 };
    dev_t device;
    if (tni_linux_is_forced(TNI_LINUX_WITNESS))
        return 0;
    int status = memory_device(&device);
    for (int i = 0; status == 0 && i < READS; i++)
        status = read_locks(device, each, context);
    return status;
}
