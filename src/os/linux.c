/* SPDX-License-Identifier: Apache-2.0 */
/*
 * os: the only room that makes system calls. This is the implementation for Linux 5.4 and
 * newer.
 *
 * Nouns: time, machine, limit of descriptors (linux.c, deadline.c); forced fallback
 * (linux_forced.c); memory object (linux_memory.c); mapping (linux_map.c); named memory
 * (linux_shm.c); packet (linux_packet.c); wait word (linux_futex.c); process, image
 * (linux_process.c, linux_self.c, linux_stat.c); fork, child (linux_fork.c, linux_spawn.c);
 * fork server (linux_server.c); detached process (linux_start.c); witness (linux_witness.c);
 * descriptor, loop (linux_descriptor.c); runtime folder (linux_folder.c, linux_runtime.c); lock
 * file (linux_file.c); socket (linux_socket.c); bell (linux_bell.c); search (linux_search.c).
 *
 * I1  A memory object never shrinks. So an access inside its size fails only if memory
 *     runs out, and tni_os_commit() turns that into an error.
 * I2  A process is DEAD only if a pidfd, a start time or a missing witness proves it, and a
 *     pid only in its own pid namespace. Every doubt is UNKNOWN.
 * The rules R1 to R8 of os.h are invariants too.
 *
 * Callers: the rooms above.
 * Death: leaves a socket or a lock file in the runtime folder, which the next owner replaces,
 * or a named memory file that is incomplete, which the garbage collection of its folder
 * removes. The kernel frees everything else.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include "os/linux.h"

/* Failing. */

int tni_linux_status(int errno_value)
{
    switch (errno_value) {
    case ENOENT:
    case ENOTDIR:
    case ESRCH:
        return TN_ERR_NOT_FOUND;
    case EACCES:
    case EPERM:
    case EROFS:
        return TN_ERR_DENIED;
    case ENOMEM:
    case ENOSPC:
        return TN_ERR_NO_MEMORY;
    default:
        return TN_ERR_SYSTEM;
    }
}

enum { MOST_BEFORE_LIMIT = 80 }; /* bytes, so that the rest of the sentence fits */

int tni_linux_fail(int status, int errno_value, const char *format, ...)
{
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    if (errno_value != EMFILE && errno_value != ENFILE) {
        status = tni_fail_errno_list(status, errno_value, format, arguments);
        va_end(arguments);
        return status;
    }
    int wanted = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (wanted < 0)
        text[0] = '\0';
    tni_text_shorten(text, MOST_BEFORE_LIMIT);
    struct rlimit limit = {0};
    if (errno_value == ENFILE || getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return tni_fail(TN_ERR_SYSTEM, "%s: no descriptors left (limit of the whole machine)",
                        text);
    return tni_fail(
        TN_ERR_SYSTEM,
        "%s: no descriptors left: all descriptors are in use, the limit (ulimit -n) "
        "is %" PRIu64 "; tensors in the arena need none",
        text, (uint64_t)limit.rlim_cur);
}

/* Text. */

bool tni_linux_has_word(const char *list, const char *word)
{
    size_t len = strlen(word);
    for (const char *at = list; *at != '\0';) {
        size_t part = strcspn(at, ",");
        if (part == len && strncmp(at, word, len) == 0)
            return true;
        at += part + (at[part] == ',');
    }
    return false;
}

/* Time. */

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now); /* cannot fail for the clocks of this file */
    return (uint64_t)now.tv_sec * TNI_LINUX_SECOND_NS + (uint64_t)now.tv_nsec;
}

uint64_t tni_os_now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }

uint64_t tni_os_unix_ns(void) { return clock_ns(CLOCK_REALTIME); }

uint64_t tni_os_coarse_ns(void) { return clock_ns(CLOCK_MONOTONIC_COARSE); }

struct timespec tni_linux_timespec(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / TNI_LINUX_SECOND_NS),
                             .tv_nsec = (long)(ns % TNI_LINUX_SECOND_NS)};
}

const struct timespec *tni_linux_time_left(uint64_t deadline_ns, struct timespec *left)
{
    if (deadline_ns == TNI_FOREVER)
        return NULL;
    uint64_t now = deadline_ns == 0 ? 0 : tni_os_now_ns();
    *left = tni_linux_timespec(deadline_ns > now ? deadline_ns - now : 0);
    return left;
}

/* The environment. */

const char *tni_os_environment(const char *name) { return secure_getenv(name); }

/* The machine. */

ssize_t tni_linux_read_text(const char *path, char *text, size_t size_bytes)
{
    int fd = -1;
    TNI_LINUX_MAKE_FD(fd, open(path, O_RDONLY | O_CLOEXEC));
    if (fd < 0)
        return -errno;

    size_t used = 0;
    ssize_t got = 0;
    while (used < size_bytes - 1) {
        got = read(fd, text + used, size_bytes - 1 - used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        used += (size_t)got;
    }
    int error = errno;
    close(fd);
    if (got < 0)
        return -error;
    text[used] = '\0';
    return (ssize_t)used;
}

static uint64_t read_limit(const char *folder, const char *file)
{
    char path[TNI_LINUX_PATH_BYTES];
    char text[64];
    int wanted = snprintf(path, sizeof path, "%s/%s", folder, file);
    if (wanted < 0 || (size_t)wanted >= sizeof path)
        return UINT64_MAX;
    if (tni_linux_read_text(path, text, sizeof text) <= 0 || text[0] < '0' || text[0] > '9')
        return UINT64_MAX; /* "max", or no such file */
    return strtoull(text, NULL, 10);
}

/*
 * The lowest limit of the group and its ancestors. In a container the group's path may not
 * exist; then only the root that the container sees has a limit.
 */
static uint64_t limit_of_group(const char *root, const char *group, const char *file)
{
    char folder[TNI_LINUX_PATH_BYTES - 64];
    int wanted = snprintf(folder, sizeof folder, "%s%s", root, group);
    if (wanted < 0 || (size_t)wanted >= sizeof folder)
        return UINT64_MAX;

    uint64_t least = UINT64_MAX;
    size_t root_len = strlen(root);
    for (;;) {
        uint64_t limit = read_limit(folder, file);
        least = TNI_MIN(least, limit);
        char *slash = strrchr(folder, '/');
        if (strlen(folder) <= root_len || slash == NULL)
            return least;
        *slash = '\0';
    }
}

static uint64_t cgroup_limit(void)
{
    char text[4096];
    if (tni_linux_read_text("/proc/self/cgroup", text, sizeof text) <= 0)
        return UINT64_MAX;

    uint64_t least = UINT64_MAX;
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *controllers = strchr(line, ':');
        char *group = controllers == NULL ? NULL : strchr(controllers + 1, ':');
        if (group == NULL)
            continue;
        *group++ = '\0';
        controllers++;
        uint64_t limit = UINT64_MAX;
        if (controllers[0] == '\0')
            limit = limit_of_group("/sys/fs/cgroup", group, "memory.max");
        else if (tni_linux_has_word(controllers, "memory"))
            limit = limit_of_group("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes");
        least = TNI_MIN(least, limit);
    }
    return least;
}

uint64_t tni_os_memory_bytes(void)
{
    long pages = sysconf(_SC_PHYS_PAGES);
    uint64_t machine = pages > 0 ? (uint64_t)pages * tni_os_page_bytes() : UINT64_MAX;
    uint64_t group = cgroup_limit();
    return TNI_MIN(machine, group);
}

int tni_os_memory_available(uint64_t *ret_bytes)
{
    static const char key[] = "\nMemAvailable:";
    char text[4096];
    unsigned long long kib;
    const char *at = NULL;
    if (tni_linux_read_text("/proc/meminfo", text, sizeof text) > 0)
        at = strstr(text, key);
    if (at == NULL || sscanf(at + sizeof key - 1, "%llu", &kib) != 1)
        return tni_fail(TN_ERR_SYSTEM, "/proc/meminfo cannot be read, or has no MemAvailable");
    *ret_bytes = kib * 1024;
    return 0;
}

size_t tni_os_page_bytes(void)
{
    static _Atomic size_t bytes; /* cached, so that a child runs less code: TNI_AROUND_FORK */
    size_t known = atomic_load_explicit(&bytes, memory_order_relaxed);
    if (TNI_LIKELY(known != 0))
        return known;
    known = (size_t)sysconf(_SC_PAGESIZE);
    atomic_store_explicit(&bytes, known, memory_order_relaxed);
    return known;
}

int tni_os_random(void *bytes, size_t size_bytes)
{
    char *at = bytes;
    while (size_bytes > 0) {
        ssize_t got = getrandom(at, size_bytes, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return tni_linux_fail(TN_ERR_SYSTEM, errno, "getrandom of %zu bytes", size_bytes);
        at += got;
        size_bytes -= (size_t)got;
    }
    return 0;
}

uint32_t tni_os_uid(void) { return (uint32_t)geteuid(); }

/* A line of uid_map is: the first number here, the first number outside, the count. */
bool tni_os_has_uid(void)
{
    char text[4096];
    ssize_t size = tni_linux_read_text("/proc/self/uid_map", text, sizeof text);
    if (size < 0)
        return true; /* not known */
    uint64_t uid = tni_os_uid();
    char *at = text, *end = NULL;
    for (;;) {
        uint64_t first = strtoull(at, &end, 10);
        if (end == at)
            return false;
        strtoull(end, &at, 10);
        uint64_t count = strtoull(at, &at, 10);
        if (uid >= first && uid - first < count)
            return true;
    }
}

void tni_os_huge_page_policy(char *text, size_t size_bytes)
{
    if (size_bytes == 0)
        return;
    text[0] = '\0';

    char all[128];
    const char *file = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
    if (tni_linux_read_text(file, all, sizeof all) <= 0)
        return;
    const char *word = strchr(all, '[');
    if (word == NULL)
        return;
    size_t len = strcspn(++word, "]");
    len = TNI_MIN(len, size_bytes - 1);
    memcpy(text, word, len);
    text[len] = '\0';
}

/* Source: Documentation/ABI/testing/sysfs-bus-pci of Linux. -1 stands in the file, too. */
int32_t tni_os_pci_node(const char *address)
{
    const char *sys = tni_os_environment("TENON_SYS_DIR");
    char path[TNI_LINUX_PATH_BYTES], text[32];
    int len = snprintf(path, sizeof path, "%s/bus/pci/devices/%s/numa_node",
                       sys != NULL ? sys : "/sys", address);
    if (len >= (int)sizeof path || tni_linux_read_text(path, text, sizeof text) <= 0)
        return -1;
    return TNI_MAX((int32_t)strtol(text, NULL, 10), -1);
}

/* Descriptors. */

uint64_t tni_linux_descriptor_limit(void)
{
    struct rlimit limit = {.rlim_cur =
                               1024}; /* the usual limit, if a filter refuses getrlimit() */
    getrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur;
}

uint64_t tni_os_raise_descriptor_limit(void)
{
    struct rlimit limit = {0};
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    return tni_linux_descriptor_limit();
}

/* Also if this thread did not raise the limit: another thread may just have raised it. */
bool tni_linux_try_again(bool *raised)
{
    int error = errno;
    if (error == EINTR)
        return true;
    if (error != EMFILE || *raised)
        return false;
    *raised = true;
    tni_os_raise_descriptor_limit();
    errno = error;
    return true;
}

int tni_linux_move_up(int low_fd)
{
    int fd = -1;
    TNI_LINUX_MAKE((fd = fcntl(low_fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1)) >= 0);
    int error = errno;
    close(low_fd);
    errno = error;
    return fd;
}
