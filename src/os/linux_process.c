/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "os/linux.h"

#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

/* What /proc says of a process, and how it is known here. */

struct proc_stat {
    int32_t pid;
    uint64_t start_time;
    uint64_t image;
    uint64_t flags; /* PF_* of its main thread */
    uint64_t
        signals; /* pending for its main thread alone, as a killed process's threads have */
};

/*
 * Fields are counted from the last ')': the command before it may hold anything. The image is
 * start_stack, field 28: exec randomizes it, threads and fork keep it.
 */
static int parse_stat(const char *text, struct proc_stat *ret_stat)
{
    enum {
        FIELD_STATE = 3,
        FIELD_FLAGS = 9,
        FIELD_START_TIME = 22,
        FIELD_START_STACK = 28,
        FIELD_SIGNAL = 31
    };
    const char *at = strrchr(text, ')');
    if (at == NULL)
        return EINVAL;
    struct proc_stat stat = {.pid = (int32_t)strtol(text, NULL, 10)};
    at++;
    for (int field = FIELD_STATE; field <= FIELD_SIGNAL; field++) {
        at += strspn(at, " ");
        if (*at == '\0' || *at == '\n')
            return EINVAL;
        if (field == FIELD_FLAGS)
            stat.flags = strtoull(at, NULL, 10);
        if (field == FIELD_START_TIME)
            stat.start_time = strtoull(at, NULL, 10);
        if (field == FIELD_START_STACK)
            stat.image = strtoull(at, NULL, 10);
        if (field == FIELD_SIGNAL)
            stat.signals = strtoull(at, NULL, 10);
        at += strcspn(at, " \n");
    }
    *ret_stat = stat;
    return 0;
}

/** @return 0 or an errno */
static int read_stat(const char *path, struct proc_stat *ret_stat)
{
    char text[1024];
    ssize_t got = tni_linux_read_text(path, text, sizeof text);
    return got < 0 ? (int)-got : parse_stat(text, ret_stat);
}

/* This process. */

/*
 * The kernel empties this page in every forked child, however it was forked, so what is in it
 * is always about this process. Threads that fill it at once write the same values.
 */
struct self_page {
    _Atomic int32_t pid;
    _Atomic uint32_t is_complete;
    _Atomic uint64_t start_time;
    _Atomic uint64_t image;
    _Atomic uint64_t pid_space;
};

static struct self_page *_Atomic self_page;

/** NULL when the system has no such pages; then nothing is cached. */
static struct self_page *get_self_page(void)
{
    /* pairs with the exchange below */
    struct self_page *page = atomic_load_explicit(&self_page, memory_order_acquire);
    if (TNI_LIKELY(page != NULL))
        return page;

    size_t size = tni_os_page_bytes();
    void *fresh = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fresh == MAP_FAILED)
        return NULL;
    if (madvise(fresh, size, MADV_WIPEONFORK) != 0 ||
        !atomic_compare_exchange_strong(&self_page, &page, fresh)) {
        munmap(fresh, size);
        return page;
    }
    return fresh;
}

int32_t tni_os_pid(void)
{
    struct self_page *page = get_self_page();
    if (TNI_UNLIKELY(page == NULL))
        return getpid();
    int32_t pid = atomic_load_explicit(&page->pid, memory_order_relaxed);
    if (TNI_UNLIKELY(pid == 0)) {
        pid = getpid();
        atomic_store_explicit(&page->pid, pid, memory_order_relaxed);
    }
    return pid;
}

int32_t tni_os_thread_id(void) { return (int32_t)syscall(SYS_gettid); }

static int read_self(struct tni_os_process *ret_process)
{
    struct proc_stat stat = {0};
    int error = read_stat("/proc/self/stat", &stat);
    if (error != 0)
        return tni_linux_fail(TN_ERR_SYSTEM, error, "/proc/self/stat");
    struct stat space;
    if (fstatat(AT_FDCWD, "/proc/self/ns/pid", &space, 0) != 0)
        return tni_linux_fail(TN_ERR_SYSTEM, errno, "/proc/self/ns/pid");
    int32_t pid = tni_os_pid();
    if (stat.pid != pid)
        return tni_fail(TN_ERR_SYSTEM,
                        "/proc belongs to another pid namespace: it calls this process %" PRId32
                        ", the kernel %" PRId32,
                        stat.pid, pid);
    *ret_process = (struct tni_os_process){.pid = pid,
                                           .start_time = stat.start_time,
                                           .image = stat.image,
                                           .pid_space = space.st_ino};
    return 0;
}

int tni_os_self(struct tni_os_process *ret_process)
{
    struct self_page *page = get_self_page();
    /* pairs with the release below */
    if (page == NULL || atomic_load_explicit(&page->is_complete, memory_order_acquire) == 0) {
        struct tni_os_process self;
        int status = read_self(&self);
        if (status != 0)
            return status;
        if (page != NULL) {
            atomic_store_explicit(&page->start_time, self.start_time, memory_order_relaxed);
            atomic_store_explicit(&page->image, self.image, memory_order_relaxed);
            atomic_store_explicit(&page->pid_space, self.pid_space, memory_order_relaxed);
            atomic_store_explicit(&page->is_complete, 1, memory_order_release);
        }
        *ret_process = self;
        return 0;
    }
    *ret_process = (struct tni_os_process){
        .pid = tni_os_pid(),
        .start_time = atomic_load_explicit(&page->start_time, memory_order_relaxed),
        .image = atomic_load_explicit(&page->image, memory_order_relaxed),
        .pid_space = atomic_load_explicit(&page->pid_space, memory_order_relaxed),
    };
    return 0;
}

/* Other processes. */

static int open_pid(int32_t pid) { return (int)syscall(SYS_pidfd_open, pid, 0); }

/* A pidfd is readable once the last thread is gone; the first thread alone may be a zombie long
 * before. */
static bool is_gone(int pid_fd)
{
    struct pollfd poll_fd = {.fd = pid_fd, .events = POLLIN};
    int ready = 0;
    do {
        ready = poll(&poll_fd, 1, 0);
    } while (ready < 0 && errno == EINTR);
    return ready > 0 && (poll_fd.revents & (POLLIN | POLLHUP)) != 0;
}

/* The stat is read while pid_fd says alive. If the pid was reused since, the start time says
 * so. */
static int compare_stat(const struct tni_os_process *process, bool check_image, int pid_fd)
{
    char path[64];
    struct proc_stat stat = {0};
    snprintf(path, sizeof path, "/proc/%" PRId32 "/stat", process->pid);
    if (read_stat(path, &stat) != 0)
        return is_gone(pid_fd) ? TNI_OS_DEAD : TNI_OS_UNKNOWN;
    if (process->start_time == 0)
        return TNI_OS_UNKNOWN;
    if (stat.start_time != process->start_time)
        return TNI_OS_DEAD;
    if (check_image && stat.image != 0 && process->image != 0 && stat.image != process->image)
        return TNI_OS_EXECED;
    return TNI_OS_ALIVE;
}

int tni_os_process_state(const struct tni_os_process *process, bool check_image)
{
    struct tni_os_process self;
    if (process->pid <= 0 || tni_os_self(&self) != 0 || process->pid_space != self.pid_space)
        return TNI_OS_UNKNOWN;

    int pid_fd = open_pid(process->pid);
    if (pid_fd < 0) {
        /* EINVAL, ENOENT: the number is now a thread of another process. */
        if (errno == ESRCH || errno == EINVAL || errno == ENOENT)
            return TNI_OS_DEAD;
        return kill(process->pid, 0) != 0 && errno == ESRCH ? TNI_OS_DEAD : TNI_OS_UNKNOWN;
    }
    int state = is_gone(pid_fd) ? TNI_OS_DEAD : compare_stat(process, check_image, pid_fd);
    close(pid_fd);
    return state;
}

int tni_os_process_open(int32_t pid, int *ret_fd)
{
    int fd = pid > 0 ? open_pid(pid) : -1;
    if (fd < 0) {
        int error = pid > 0 ? errno : ESRCH;
        int status = error == EINVAL ? TN_ERR_NOT_FOUND : tni_linux_status(error);
        return tni_linux_fail(status, error, "process %" PRId32, pid);
    }
    *ret_fd = fd;
    return 0;
}

static bool is_ending(int32_t pid)
{
    enum { PF_EXITING = 4 };
    char path[64];
    struct proc_stat stat = {0};
    snprintf(path, sizeof path, "/proc/%" PRId32 "/stat", pid);
    return read_stat(path, &stat) != 0 || (stat.flags & PF_EXITING) != 0 ||
           (stat.signals & 1u << (SIGKILL - 1)) != 0;
}

/*
 * The threads of a process that is killed end one by one, each from when SIGKILL is pending for
 * it until it exits. In between, for an instant, neither can be seen: so we look twice.
 */
bool tni_os_lost_thread(int32_t pid, int32_t thread_id)
{
    enum { INSTANT_NS = 2 * 1000 * 1000 };
    if (pid <= 0 || thread_id <= 0)
        return true;
    if (syscall(SYS_tgkill, pid, thread_id, 0) == 0 || errno != ESRCH || is_ending(pid))
        return false;
    tni_os_sleep_until(tni_os_now_ns() + INSTANT_NS);
    return !is_ending(pid);
}

int tni_os_process_signal(int pid_fd, int signal)
{
    if (syscall(SYS_pidfd_send_signal, pid_fd, signal, NULL, 0) == 0)
        return 0;
    int status = errno == EBADF || errno == EINVAL ? TN_ERR_INVALID : tni_linux_status(errno);
    return tni_linux_fail(status, errno, "signal %d to process descriptor %d", signal, pid_fd);
}

void tni_os_process_command(int32_t pid, char *text, size_t size_bytes)
{
    if (size_bytes == 0)
        return;
    char path[64];
    snprintf(path, sizeof path, "/proc/%" PRId32 "/cmdline", pid);
    ssize_t len = tni_linux_read_text(path, text, size_bytes);
    if (len <= 0) {
        snprintf(path, sizeof path, "/proc/%" PRId32 "/comm", pid);
        len = tni_linux_read_text(path, text, size_bytes);
    }
    while (len > 0 && (text[len - 1] == '\0' || text[len - 1] == '\n'))
        len--;
    len = TNI_MAX(len, 0);
    for (ssize_t i = 0; i < len; i++) {
        unsigned char byte = (unsigned char)text[i];
        if (byte < ' ' || byte == 0x7f)
            text[i] = byte == '\0' ? ' ' : '?';
    }
    text[len] = '\0';
}

uint64_t tni_os_process_huge_bytes(int32_t pid, uint64_t inode)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%" PRId32 "/smaps", pid);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return 0;

    char *line = NULL;
    size_t size = 0;
    uint64_t sum_kib = 0;
    bool is_ours = false;
    while (getline(&line, &size, file) > 0) {
        uint64_t found = 0;
        uint64_t kib = 0;
        if (sscanf(line, "%*x-%*x %*s %*x %*x:%*x %" SCNu64, &found) == 1)
            is_ours = found == inode;
        else if (is_ours && sscanf(line, "ShmemPmdMapped: %" SCNu64, &kib) == 1)
            sum_kib += kib;
    }
    free(line);
    fclose(file);
    return sum_kib * 1024;
}
