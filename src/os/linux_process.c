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

enum { PROC_PATH_BYTES = 64, PID_SPACE_BITS = 32 };

struct proc_stat {
    int32_t pid;
    char state;
    uint64_t thread_count;
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
        FIELD_THREADS = 20,
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
        if (field == FIELD_STATE)
            stat.state = *at;
        if (field == FIELD_THREADS)
            stat.thread_count = strtoull(at, NULL, 10);
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
    _Atomic uint32_t mark;
    _Atomic uint32_t is_complete;
    _Atomic uint32_t has_other_proc; /* /proc is that of another pid namespace */
    _Atomic uint64_t start_time;
    _Atomic uint64_t image;
    _Atomic uint64_t pid_space;
    _Atomic uint32_t has_clock; /* clock_ahead_ns was read */
    _Atomic int64_t clock_ahead_ns;
};

static struct self_page *_Atomic self_page;

static struct self_page *make_self_page(void)
{
    struct self_page *page = NULL;
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

/** NULL when the system has no such pages; then nothing is cached. */
static inline struct self_page *get_self_page(void)
{
    /* pairs with the exchange in make_self_page() */
    struct self_page *page = atomic_load_explicit(&self_page, memory_order_acquire);
    return TNI_LIKELY(page != NULL) ? page : make_self_page();
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

const _Atomic uint32_t *tni_os_mark(void)
{
    static const _Atomic uint32_t always = 1;
    struct self_page *page = get_self_page();
    if (page == NULL)
        return &always;
    atomic_store_explicit(&page->mark, 1, memory_order_relaxed);
    return &page->mark;
}

int32_t tni_os_thread_id(void) { return (int32_t)syscall(SYS_gettid); }

/*
 * Where numbers of processes and of times count. A machine without time namespaces is all in
 * one, which is never made anew, so 0 stands for it.
 */
static int read_space(uint64_t *ret_space)
{
    enum { FIRST_TIME_SPACE = 0xEFFFFFFA }; /* PROC_TIME_INIT_INO of the kernel */
    struct stat pids, times;
    if (stat("/proc/self/ns/pid", &pids) != 0)
        return tni_linux_fail(TN_ERR_SYSTEM, errno, "/proc/self/ns/pid");
    bool has_times = stat("/proc/self/ns/time", &times) == 0;
    if (!has_times && errno != ENOENT)
        return tni_linux_fail(TN_ERR_SYSTEM, errno, "/proc/self/ns/time");
    uint64_t time = has_times && times.st_ino != FIRST_TIME_SPACE ? times.st_ino : 0;
    *ret_space = time << PID_SPACE_BITS | (uint32_t)pids.st_ino;
    return 0;
}

/* What is of us in /proc is under "self", also where /proc calls us by another number. */
static int read_self(struct tni_os_process *ret_process, bool *ret_has_other_proc)
{
    struct proc_stat stat = {0};
    uint64_t space = 0;
    int error = read_stat("/proc/self/stat", &stat);
    if (error != 0)
        return tni_linux_fail(TN_ERR_SYSTEM, error, "/proc/self/stat");
    int status = read_space(&space);
    if (status != 0)
        return status;
    int32_t pid = tni_os_pid();
    *ret_process = (struct tni_os_process){
        .pid = pid, .start_time = stat.start_time, .image = stat.image, .pid_space = space};
    *ret_has_other_proc = stat.pid != pid;
    return 0;
}

/*
 * What a parent notes before it forks, so that its child need not read /proc, which costs more
 * than all else that a child does to join. Of static storage: a child has a copy of it.
 */
static struct {
    struct tni_os_process self; /* pid 0: nothing was noted */
    bool has_other_proc;
    uint64_t boot_ns, now_ns; /* on two clocks, before the child began */
} birth;

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now = {0};
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * TNI_LINUX_SECOND_NS + (uint64_t)now.tv_nsec;
}

/* As the kernel rounds the start time of a process. */
static uint64_t ticks_of(uint64_t ns) { return ns / (TNI_LINUX_SECOND_NS / 100); }

/*
 * A child knows itself by its parent where that is the same as reading /proc, which says the
 * same of both but for two numbers. Only a parent of the same pid namespace is seen there by
 * its pid. The child began between two looks at the clock of start times: if both are in one
 * tick, the start time is that tick. A child in another time namespace sees clocks that jumped.
 */
TNI_AROUND_FORK static bool inherit_self(struct tni_os_process *ret_process,
                                         bool *ret_has_other_proc)
{
    uint64_t boot_ns = clock_ns(CLOCK_BOOTTIME), now_ns = clock_ns(CLOCK_MONOTONIC);
    if (birth.self.pid == 0 || getppid() != birth.self.pid ||
        ticks_of(boot_ns) != ticks_of(birth.boot_ns) ||
        now_ns - birth.now_ns >= TNI_LINUX_SECOND_NS / 100)
        return false;
    *ret_process = birth.self;
    ret_process->pid = tni_os_pid();
    ret_process->start_time = ticks_of(boot_ns);
    *ret_has_other_proc = birth.has_other_proc;
    return true;
}

TNI_AROUND_FORK static int get_self(struct tni_os_process *ret_process,
                                    bool *ret_has_other_proc)
{
    struct self_page *page = get_self_page();
    /* pairs with the release below */
    if (page == NULL || atomic_load_explicit(&page->is_complete, memory_order_acquire) == 0) {
        struct tni_os_process self;
        bool has_other_proc = false;
        if (!inherit_self(&self, &has_other_proc)) {
            int status = read_self(&self, &has_other_proc);
            if (status != 0)
                return status;
        }
        if (page != NULL) {
            atomic_store_explicit(&page->start_time, self.start_time, memory_order_relaxed);
            atomic_store_explicit(&page->image, self.image, memory_order_relaxed);
            atomic_store_explicit(&page->pid_space, self.pid_space, memory_order_relaxed);
            atomic_store_explicit(&page->has_other_proc, has_other_proc, memory_order_relaxed);
            atomic_store_explicit(&page->is_complete, 1, memory_order_release);
        }
        *ret_process = self;
        *ret_has_other_proc = has_other_proc;
        return 0;
    }
    *ret_process = (struct tni_os_process){
        .pid = tni_os_pid(),
        .start_time = atomic_load_explicit(&page->start_time, memory_order_relaxed),
        .image = atomic_load_explicit(&page->image, memory_order_relaxed),
        .pid_space = atomic_load_explicit(&page->pid_space, memory_order_relaxed),
    };
    *ret_has_other_proc =
        atomic_load_explicit(&page->has_other_proc, memory_order_relaxed) != 0;
    return 0;
}

int tni_os_self(struct tni_os_process *ret_process)
{
    bool has_other_proc = false;
    return get_self(ret_process, &has_other_proc);
}

void tni_linux_note_birth(void)
{
    birth.self.pid = 0;
    bool has_other_proc = false;
    struct tni_os_process self;
    if (sysconf(_SC_CLK_TCK) != 100 || get_self(&self, &has_other_proc) != 0)
        return;
    birth.has_other_proc = has_other_proc;
    birth.boot_ns = clock_ns(CLOCK_BOOTTIME);
    birth.now_ns = clock_ns(CLOCK_MONOTONIC);
    birth.self = self;
}

/*
 * The file tells of the namespace that this process's children are made in, which is its own
 * unless it called unshare() for them. Then, as where nothing is told, 0 is assumed.
 */
static int64_t read_clock_ahead_ns(void)
{
    struct stat own, of_children;
    char text[256];
    int64_t seconds = 0, ns = 0;
    if (stat("/proc/self/ns/time", &own) != 0 ||
        stat("/proc/self/ns/time_for_children", &of_children) != 0 ||
        own.st_ino != of_children.st_ino ||
        tni_linux_read_text("/proc/self/timens_offsets", text, sizeof text) <= 0 ||
        sscanf(text, "monotonic %" SCNd64 " %" SCNd64, &seconds, &ns) != 2)
        return 0;
    return seconds * TNI_LINUX_SECOND_NS + ns;
}

int64_t tni_os_clock_ahead_ns(void)
{
    struct self_page *page = get_self_page();
    /* pairs with the release below */
    if (TNI_LIKELY(page != NULL &&
                   atomic_load_explicit(&page->has_clock, memory_order_acquire) != 0))
        return atomic_load_explicit(&page->clock_ahead_ns, memory_order_relaxed);
    struct tni_os_process self;
    if (tni_os_self(&self) != 0)
        return 0;
    bool is_first = self.pid_space >> PID_SPACE_BITS == 0;
    int64_t ahead_ns = is_first ? 0 : read_clock_ahead_ns();
    if (page != NULL) {
        atomic_store_explicit(&page->clock_ahead_ns, ahead_ns, memory_order_relaxed);
        atomic_store_explicit(&page->has_clock, 1, memory_order_release);
    }
    return ahead_ns;
}

/*
 * The folder of a process of our pid namespace. false: not known, as /proc is another one's;
 * our own is "self" in any.
 */
static bool folder_of(int32_t pid, char path[PROC_PATH_BYTES], const char *file)
{
    struct tni_os_process self;
    bool has_other_proc = false;
    if (pid == tni_os_pid()) {
        snprintf(path, PROC_PATH_BYTES, "/proc/self/%s", file);
        return true;
    }
    snprintf(path, PROC_PATH_BYTES, "/proc/%" PRId32 "/%s", pid, file);
    return get_self(&self, &has_other_proc) == 0 && !has_other_proc;
}

/* Other processes. */

static int open_pid(int32_t pid)
{
    int fd = -1;
    TNI_LINUX_MAKE((fd = (int)syscall(SYS_pidfd_open, pid, 0)) >= 0);
    return fd;
}

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

/* A main thread that ended is a zombie as long as the process has others. */
static bool is_zombie(const struct proc_stat *stat)
{
    return (stat->state == 'Z' || stat->state == 'X') && stat->thread_count <= 1;
}

/* What stands in for pidfd_open() where a filter refuses it. pre: our pid namespace */
static bool is_gone_by_number(int32_t pid)
{
    char path[PROC_PATH_BYTES];
    struct proc_stat stat = {0};
    if (kill(pid, 0) != 0 && errno == ESRCH)
        return true;
    return folder_of(pid, path, "stat") && read_stat(path, &stat) == 0 && is_zombie(&stat);
}

/*
 * pre: the pid is of our namespace. The stat is read while pid_fd says alive; -1: a filter
 * refuses it. If the pid was
 * reused since, the start time says so, which counts in its own time namespace only.
 */
static int compare_stat(const struct tni_os_process *process, bool check_image, int pid_fd)
{
    char path[PROC_PATH_BYTES];
    struct proc_stat stat = {0};
    struct tni_os_process self;
    if (!folder_of(process->pid, path, "stat") || tni_os_self(&self) != 0)
        return TNI_OS_UNKNOWN;
    if (read_stat(path, &stat) != 0)
        return (pid_fd >= 0 ? is_gone(pid_fd) : is_gone_by_number(process->pid))
                   ? TNI_OS_DEAD
                   : TNI_OS_UNKNOWN;
    if (pid_fd < 0 && is_zombie(&stat))
        return TNI_OS_DEAD;
    if (process->start_time == 0 || process->pid_space != self.pid_space)
        return TNI_OS_UNKNOWN;
    if (stat.start_time != process->start_time)
        return TNI_OS_DEAD;
    if (check_image && stat.image != 0 && process->image != 0 && stat.image != process->image)
        return TNI_OS_EXECED;
    return TNI_OS_ALIVE;
}

bool tni_os_has_pid_space(uint64_t pid_space)
{
    struct tni_os_process self;
    return tni_os_self(&self) == 0 && (uint32_t)self.pid_space == (uint32_t)pid_space;
}

/* @return a descriptor, or -1: *ret_state is all that can be known. pre: our pid namespace */
static int open_or_judge(int32_t pid, int *ret_state)
{
    int pid_fd = open_pid(pid);
    if (pid_fd >= 0)
        return pid_fd;
    /* EINVAL, ENOENT: the number is now a thread of another process. */
    bool is_dead =
        errno == ESRCH || errno == EINVAL || errno == ENOENT || is_gone_by_number(pid);
    *ret_state = is_dead ? TNI_OS_DEAD : TNI_OS_UNKNOWN;
    return -1;
}

int tni_os_process_state(const struct tni_os_process *process, bool check_image)
{
    int state = TNI_OS_UNKNOWN;
    if (process->pid <= 0 || !tni_os_has_pid_space(process->pid_space))
        return state;
    int pid_fd = open_or_judge(process->pid, &state);
    if (pid_fd < 0)
        return state == TNI_OS_DEAD ? state : compare_stat(process, check_image, -1);
    state = is_gone(pid_fd) ? TNI_OS_DEAD : compare_stat(process, check_image, pid_fd);
    close(pid_fd);
    return state;
}

bool tni_os_process_is_gone(int32_t pid)
{
    int state = TNI_OS_UNKNOWN;
    if (pid <= 0)
        return false;
    int pid_fd = open_or_judge(pid, &state);
    if (pid_fd < 0)
        return state == TNI_OS_DEAD;
    bool is_dead = is_gone(pid_fd);
    close(pid_fd);
    return is_dead;
}

int tni_os_process_open(int32_t pid, int *ret_fd)
{
    int fd = pid > 0 ? open_pid(pid) : -1;
    if (fd < 0) {
        int error = pid > 0 ? errno : ESRCH;
        int status = error == EINVAL ? TN_ERR_NOT_FOUND : tni_linux_status(error);
        return tni_linux_fail(status, error, "pidfd_open of process %" PRId32, pid);
    }
    *ret_fd = fd;
    return 0;
}

enum { PF_EXITING = 4 };

static bool is_killed(const struct proc_stat *stat)
{
    return (stat->signals & 1u << (SIGKILL - 1)) != 0;
}

static bool is_ending(int32_t pid)
{
    char path[PROC_PATH_BYTES];
    struct proc_stat stat = {0};
    return !folder_of(pid, path, "stat") || read_stat(path, &stat) != 0 ||
           (stat.flags & PF_EXITING) != 0 || is_killed(&stat);
}

/* A main thread that ends leaves the process to its other threads, unless they are killed too.
 */
bool tni_os_process_is_ending(int32_t pid)
{
    char path[PROC_PATH_BYTES];
    struct proc_stat stat = {0};
    if (tni_os_process_is_gone(pid))
        return true;
    if (pid <= 0 || !folder_of(pid, path, "stat") || read_stat(path, &stat) != 0)
        return false;
    return is_killed(&stat) || ((stat.flags & PF_EXITING) != 0 && stat.thread_count <= 1);
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

/* Of the process that a descriptor means; it keeps that number until it is collected. */
static int32_t pid_of(int pid_fd)
{
    char path[PROC_PATH_BYTES], text[512];
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", pid_fd);
    ssize_t len = tni_linux_read_text(path, text, sizeof text);
    const char *at = len > 0 ? strstr(text, "\nPid:") : NULL;
    return at != NULL ? (int32_t)strtol(at + sizeof "\nPid:" - 1, NULL, 10) : -1;
}

int tni_os_process_signal(int pid_fd, int signal)
{
    if (syscall(SYS_pidfd_send_signal, pid_fd, signal, NULL, 0) == 0)
        return 0;
    /* A filter; or the process is not ours, which kill() says too. */
    if ((errno == ENOSYS || errno == EPERM) && !is_gone(pid_fd)) {
        int32_t pid = pid_of(pid_fd);
        if (pid > 0 && kill(pid, signal) == 0)
            return 0;
    }
    int status = errno == EBADF || errno == EINVAL ? TN_ERR_INVALID : tni_linux_status(errno);
    return tni_linux_fail(status, errno, "pidfd_send_signal of %d to descriptor %d", signal,
                          pid_fd);
}

int tni_os_process_signal_number(int32_t pid, int signal)
{
    if (pid > 0 && kill(pid, signal) == 0)
        return 0;
    int error = pid > 0 ? errno : ESRCH;
    return tni_linux_fail(tni_linux_status(error), error, "kill of process %" PRId32, pid);
}

void tni_os_process_command(int32_t pid, char *text, size_t size_bytes)
{
    if (size_bytes == 0)
        return;
    char path[PROC_PATH_BYTES];
    ssize_t len = -1;
    if (folder_of(pid, path, "cmdline"))
        len = tni_linux_read_text(path, text, size_bytes);
    if (len <= 0 && folder_of(pid, path, "comm"))
        len = tni_linux_read_text(path, text, size_bytes);
    while (len > 0 && (text[len - 1] == '\0' || text[len - 1] == '\n'))
        len--;
    len = TNI_MAX(len, 0);
    for (ssize_t i = 0; i < len; i++)
        text[i] = text[i] == '\0' ? ' ' : text[i];
    text[len] = '\0';
    tni_text_clean(text); /* the end of a long one may be half a character */
}

uint64_t tni_os_process_huge_bytes(int32_t pid, uint64_t inode)
{
    char path[PROC_PATH_BYTES];
    FILE *file = NULL;
    if (!folder_of(pid, path, "smaps"))
        return 0;
    TNI_LINUX_MAKE((file = fopen(path, "re")) != NULL);
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
