/* SPDX-License-Identifier: Apache-2.0 */
/* The search of /proc for memory objects and files that processes have open. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/linux.h"

static const char memfd_prefix[] = "/memfd:";
static const char deleted_suffix[] = " (deleted)";

struct search {
    const char *prefix;
    tni_os_memory_fn *each;
    void *context;
    int missed; /* errno of the last entry that exists and could not be read; 0: none */
};

/* An entry that has ended meanwhile, or that is another user's, does not count as missed. */
static void miss(struct search *search, int errno_value)
{
    if (errno_value != 0 && errno_value != ENOENT && errno_value != ESRCH &&
        errno_value != EACCES && errno_value != EPERM)
        search->missed = errno_value;
}

static DIR *open_descriptors(int32_t pid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%" PRId32 "/fd", pid);
    return tni_linux_open_folder(path);
}

/** The number that is the name of an entry of /proc, or -1. */
static int entry_number(const char *name)
{
    char *end = NULL;
    if (name[0] < '0' || name[0] > '9')
        return -1;
    unsigned long number = strtoul(name, &end, 10);
    return *end == '\0' && number <= INT_MAX ? (int)number : -1;
}

/** Cut "/memfd:NAME (deleted)" down to NAME, in place. NULL: not a memory object. */
static char *memory_name(char *link)
{
    size_t prefix_len = sizeof memfd_prefix - 1;
    size_t suffix_len = sizeof deleted_suffix - 1;
    if (strncmp(link, memfd_prefix, prefix_len) != 0)
        return NULL;
    char *name = link + prefix_len;
    size_t len = strlen(name);
    if (len >= suffix_len && strcmp(name + len - suffix_len, deleted_suffix) == 0)
        name[len - suffix_len] = '\0';
    return name;
}

static int visit_descriptor(struct search *search, int32_t pid, int folder, const char *entry)
{
    char link[PATH_MAX];
    struct stat status;
    int number = entry_number(entry);
    if (number < 0)
        return 0;
    ssize_t len = readlinkat(folder, entry, link, sizeof link - 1);
    if (len < 0)
        miss(search, errno);
    if (len <= 0)
        return 0;
    link[len] = '\0';
    const char *name = memory_name(link);
    if (name == NULL || strncmp(name, search->prefix, strlen(search->prefix)) != 0)
        return 0;
    if (fstatat(folder, entry, &status, 0) != 0) {
        miss(search, errno);
        return 0;
    }
    return search->each(pid, number, name, status.st_ino, search->context);
}

static int visit_process(struct search *search, int32_t pid)
{
    DIR *folder = open_descriptors(pid);
    if (folder == NULL) {
        miss(search, errno);
        return 0;
    }
    int stop = 0;
    errno = 0;
    for (struct dirent *entry; stop == 0 && (entry = readdir(folder)) != NULL; errno = 0)
        stop = visit_descriptor(search, pid, dirfd(folder), entry->d_name);
    if (stop == 0)
        miss(search, errno);
    closedir(folder);
    return stop;
}

/* Whether the process is this user's; false if it has ended. */
static bool is_ours(struct search *search, int folder, const char *entry)
{
    struct stat status;
    if (fstatat(folder, entry, &status, AT_SYMLINK_NOFOLLOW) == 0)
        return status.st_uid == tni_os_uid();
    miss(search, errno);
    return false;
}

int tni_os_memory_for_each(const char *prefix, tni_os_memory_fn *each, void *context)
{
    struct search search = {.prefix = prefix, .each = each, .context = context};
    DIR *folder = tni_linux_open_folder("/proc");
    if (folder == NULL)
        return tni_linux_fail(TN_ERR_SYSTEM, errno, "/proc");

    int stop = 0;
    errno = 0;
    for (struct dirent *entry; stop == 0 && (entry = readdir(folder)) != NULL; errno = 0) {
        int pid = entry_number(entry->d_name);
        if (pid > 0 && is_ours(&search, dirfd(folder), entry->d_name))
            stop = visit_process(&search, pid);
    }
    if (stop == 0)
        miss(&search, errno);
    closedir(folder);
    if (stop == 0 && search.missed != 0)
        return tni_linux_fail(TN_ERR_SYSTEM, search.missed,
                              "not all of /proc could be looked through");
    return stop;
}

int tni_os_process_folder(int32_t pid, const char *name, char *folder, size_t size_bytes)
{
    char link[PATH_MAX];
    DIR *descriptors = open_descriptors(pid);
    if (descriptors == NULL)
        return tni_linux_fail(tni_linux_status(errno), errno,
                              "the descriptors of process %" PRId32, pid);

    int status = TN_ERR_NOT_FOUND;
    for (struct dirent *entry; status != 0 && (entry = readdir(descriptors)) != NULL;) {
        ssize_t len = readlinkat(dirfd(descriptors), entry->d_name, link, sizeof link - 1);
        if (len <= 0)
            continue;
        link[len] = '\0';
        char *slash = strrchr(link, '/');
        if (slash == NULL || strcmp(slash + 1, name) != 0)
            continue;
        *slash = '\0';
        int wanted = snprintf(folder, size_bytes, "%s", link);
        status = wanted >= 0 && (size_t)wanted < size_bytes ? 0 : TN_ERR_NOT_FOUND;
    }
    closedir(descriptors);
    return status == 0 ? 0
                       : tni_fail(TN_ERR_NOT_FOUND, "process %" PRId32 " has no file %s open",
                                  pid, name);
}

bool tni_os_process_has(int32_t pid, const char *folder, const char *name)
{
    char path[TNI_LINUX_PATH_BYTES + TNI_LINUX_NAME_BYTES];
    struct stat wanted, status;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    DIR *descriptors = lstat(path, &wanted) == 0 ? open_descriptors(pid) : NULL;
    if (descriptors == NULL)
        return false;
    bool has_it = false;
    for (struct dirent *entry; !has_it && (entry = readdir(descriptors)) != NULL;)
        has_it = fstatat(dirfd(descriptors), entry->d_name, &status, 0) == 0 &&
                 status.st_ino == wanted.st_ino && status.st_dev == wanted.st_dev;
    closedir(descriptors);
    return has_it;
}

/* The number may belong to another file by now, so it is checked before and after the open. */
int tni_os_memory_open(int32_t pid, int fd_number, bool read_only, int *ret_fd)
{
    char path[64];
    char link[PATH_MAX];
    snprintf(path, sizeof path, "/proc/%" PRId32 "/fd/%d", pid, fd_number);
    ssize_t len = readlink(path, link, sizeof link - 1);
    if (len < 0)
        return tni_linux_fail(tni_linux_status(errno), errno, "%s", path);
    link[len] = '\0';
    if (memory_name(link) == NULL)
        return tni_fail(TN_ERR_NOT_FOUND, "%s is not a memory object", path);

    int flags = O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    int fd = -1;
    TNI_LINUX_MAKE_FD(fd, open(path, flags | (read_only ? O_RDONLY : O_RDWR)));
    if (fd < 0)
        return tni_linux_fail(tni_linux_status(errno), errno, "opening %s", path);
    if (fcntl(fd, F_GET_SEALS) < 0) {
        close(fd);
        return tni_fail(TN_ERR_NOT_FOUND, "%s is no longer a memory object", path);
    }
    *ret_fd = fd;
    return 0;
}
