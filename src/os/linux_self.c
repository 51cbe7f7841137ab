/* SPDX-License-Identifier: Apache-2.0 */
/* The identity of this process, its mark, and its time namespace. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "os/linux.h"

/*
 * A cache of what is known about this process. The kernel zeroes the page in every child,
 * whichever call made the child, so the page never describes another process. Threads that fill
 * it at the same time write the same values.
 */
struct self_page {
    _Atomic int32_t pid;
    _Atomic uint32_t mark;
    _Atomic uint32_t is_complete;
    _Atomic uint32_t has_other_proc; /* /proc is of another pid namespace */
    _Atomic uint64_t start_time;
    _Atomic uint64_t image;
    _Atomic uint64_t pid_space;
    _Atomic uint32_t has_clock; /* clock_ahead_ns is valid */
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

/** NULL if the system has no such pages: nothing is cached then. */
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
 * The namespaces in which pids and times are valid. 0 stands for the machine's first time
 * namespace, also where the kernel has no time namespaces.
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
    *ret_space = time << TNI_LINUX_PID_BITS | (uint32_t)pids.st_ino;
    return 0;
}

/* "self" is right also if /proc is of another pid namespace and shows this process under
 * another pid. */
static int read_self(struct tni_os_process *ret_process, bool *ret_has_other_proc)
{
    struct tni_linux_stat stat = {0};
    uint64_t space = 0;
    int error = tni_linux_read_stat("/proc/self/stat", &stat);
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
 * A parent notes this before it forks, so that the child need not read /proc, which would be
 * most of the time that a child takes to join. The child has a copy, since this is static.
 */
static struct {
    struct tni_os_process self; /* pid 0: nothing is noted */
    bool has_other_proc;
    uint64_t boot_ns, now_ns; /* of CLOCK_BOOTTIME and CLOCK_MONOTONIC, before the fork */
} birth;

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now = {0};
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * TNI_LINUX_SECOND_NS + (uint64_t)now.tv_nsec;
}

/* Ticks of 10 ms, rounded down as the kernel rounds start times. */
static uint64_t ticks_of(uint64_t ns) { return ns / (TNI_LINUX_SECOND_NS / 100); }

/*
 * Compute the identity of a child from its parent's, if the result is certain to be what /proc
 * says: the two differ in pid and start time only. getppid() is the parent's pid only within
 * one pid namespace. The child started between two readings of the clock of start times; if
 * both are in one tick, that tick is the start time. In a child of another time namespace the
 * clocks have jumped.
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
 * timens_offsets is of the time namespace of this process's children. If that is not the
 * process's own, since it called unshare(), or if the file cannot be read, 0 is assumed.
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
    bool is_first = self.pid_space >> TNI_LINUX_PID_BITS == 0;
    int64_t ahead_ns = is_first ? 0 : read_clock_ahead_ns();
    if (page != NULL) {
        atomic_store_explicit(&page->clock_ahead_ns, ahead_ns, memory_order_relaxed);
        atomic_store_explicit(&page->has_clock, 1, memory_order_release);
    }
    return ahead_ns;
}

bool tni_linux_proc_path(int32_t pid, char path[TNI_LINUX_PROC_BYTES], const char *file)
{
    struct tni_os_process self;
    bool has_other_proc = false;
    if (pid == tni_os_pid()) {
        snprintf(path, TNI_LINUX_PROC_BYTES, "/proc/self/%s", file);
        return true;
    }
    snprintf(path, TNI_LINUX_PROC_BYTES, "/proc/%" PRId32 "/%s", pid, file);
    return get_self(&self, &has_other_proc) == 0 && !has_other_proc;
}
