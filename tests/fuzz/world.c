/* SPDX-License-Identifier: Apache-2.0 */
/*
 * world: see fuzz.h. The linker's --wrap leads the calls of the rooms here (meson.build lists
 * them); __real_ is what they would have called.
 *
 * A sleep returns at once, and the clock jumps to the time at which it would have ended. No
 * other process exists that could wake the sleeper, so a sleep without a deadline, or an hour
 * of sleeps, counts as a hang.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "fuzz.h"
#include "os/os.h"

#define SECOND_NS UINT64_C(1000000000)
#define BEGIN_NS  (100000 * SECOND_NS) /* long after boot */
#define MOST_NS   (3600 * SECOND_NS)   /* of one input; vault.c waits for minutes */
#define READ_NS   UINT64_C(100)
#define YIELD_NS  UINT64_C(20000)

static bool is_inside;
static uint64_t now_ns;
static int connect_fd = -1, found_fd = -1;
static uint64_t found_inode;
static int mark_fd; /* the lowest that was free */
static char folder[72], shm_folder[80];

void fuzz_fail(const char *format, ...)
{
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    dprintf(STDERR_FILENO, "fuzz: %s\n", line);
    abort();
}

const char *fuzz_folder(void) { return folder; }

static void remove_folders(void)
{
    rmdir(shm_folder);
    rmdir(folder);
}

void fuzz_restore_folders(void)
{
    setenv("TENON_RUNTIME_DIR", folder, 1);
    setenv("TENON_SHM_DIR", shm_folder, 1);
}

static void make_folders(void)
{
    const char *place = getenv("TMPDIR");
    if (place == NULL)
        place = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(folder, sizeof folder, "%.48s/tenon-fuzz-XXXXXX", place);
    if (mkdtemp(folder) == NULL)
        fuzz_fail("no folder: %s", strerror(errno));
    snprintf(shm_folder, sizeof shm_folder, "%s/shm", folder);
    mkdir(shm_folder, 0700);
    fuzz_restore_folders();
    unsetenv("TENON_DOMAIN");
    unsetenv("TENON_STRATEGY");
    unsetenv("TENON_PARENT");
    atexit(remove_folders);
    tni_os_bell_ring(1); /* a process keeps one socket for that */
}

static int lowest_free(void)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    close(fd);
    return fd;
}

void fuzz_begin(void)
{
    if (folder[0] == '\0')
        make_folders();
    connect_fd = -1;
    mark_fd = lowest_free();
    now_ns = BEGIN_NS;
    is_inside = true;
}

void fuzz_leave_world(void) { is_inside = false; }

void fuzz_end(void)
{
    if (connect_fd >= 0)
        close(connect_fd);
    connect_fd = -1;
    int fd = lowest_free();
    if (fd != mark_fd)
        fuzz_fail("descriptor %d was left open", mark_fd);
    is_inside = false;
}

void fuzz_connect_next(int fd) { connect_fd = fd; }

int fuzz_found(void) { return found_fd; }

void fuzz_let_find(int fd, uint64_t inode)
{
    found_fd = fd;
    found_inode = inode;
}

/* ---- time -------------------------------------------------------------------------------- */

static void pass_time(uint64_t until_ns, const char *what)
{
    if (until_ns > BEGIN_NS + MOST_NS)
        fuzz_fail("%s for more than an hour", what);
    now_ns = TNI_MAX(now_ns, until_ns);
}

int __real_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
    if (!is_inside)
        return __real_clock_gettime(clock, now);
    pass_time(now_ns + READ_NS, "looks at the clock");
    now->tv_sec = (time_t)(now_ns / SECOND_NS);
    now->tv_nsec = (long)(now_ns % SECOND_NS);
    return 0;
}

static uint64_t ns_of(const struct timespec *time)
{
    uint64_t seconds = time->tv_sec < 0 ? 0 : (uint64_t)time->tv_sec;
    return seconds > UINT32_MAX ? UINT64_MAX : seconds * SECOND_NS + (uint64_t)time->tv_nsec;
}

int __real_clock_nanosleep(clockid_t clock, int flags, const struct timespec *time,
                           struct timespec *left);
int __wrap_clock_nanosleep(clockid_t clock, int flags, const struct timespec *time,
                           struct timespec *left);
int __wrap_clock_nanosleep(clockid_t clock, int flags, const struct timespec *time,
                           struct timespec *left)
{
    if (!is_inside)
        return __real_clock_nanosleep(clock, flags, time, left);
    pass_time((flags & TIMER_ABSTIME) != 0 ? ns_of(time) : now_ns + ns_of(time), "sleeps");
    return 0;
}

int __real_sched_yield(void);
int __wrap_sched_yield(void);
int __wrap_sched_yield(void)
{
    if (!is_inside)
        return __real_sched_yield();
    pass_time(now_ns + YIELD_NS, "yields");
    return 0;
}

int __real_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *most,
                 const sigset_t *mask);
int __wrap_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *most,
                 const sigset_t *mask);
int __wrap_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *most,
                 const sigset_t *mask)
{
    const struct timespec none = {0};
    if (!is_inside)
        return __real_ppoll(fds, count, most, mask);
    int ready = __real_ppoll(fds, count, &none, mask);
    if (ready == 0)
        pass_time(most == NULL ? UINT64_MAX : now_ns + ns_of(most), "polls");
    return ready;
}

int __real_poll(struct pollfd *fds, nfds_t count, int most_ms);
int __wrap_poll(struct pollfd *fds, nfds_t count, int most_ms);
int __wrap_poll(struct pollfd *fds, nfds_t count, int most_ms)
{
    if (!is_inside)
        return __real_poll(fds, count, most_ms);
    int ready = __real_poll(fds, count, 0);
    if (ready == 0 && most_ms != 0)
        pass_time(most_ms < 0 ? UINT64_MAX : now_ns + (uint64_t)most_ms * 1000000, "polls");
    return ready;
}

/* No other thread uses the word while this one sleeps. */
static long sleep_on(const uint32_t *word, uint32_t expected, const struct timespec *until)
{
    if (__atomic_load_n(word, __ATOMIC_SEQ_CST) != expected) {
        errno = EAGAIN;
        return -1;
    }
    pass_time(until == NULL ? UINT64_MAX : ns_of(until), "sleeps on a word");
    errno = ETIMEDOUT;
    return -1;
}

/* ---- processes --------------------------------------------------------------------------- */

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);
/* As syscall() itself, it takes six, however many there are. */
__attribute__((no_sanitize("address"))) long __wrap_syscall(long number, ...)
{
    long a[6];
    va_list arguments;
    va_start(arguments, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(arguments, long);
    va_end(arguments);
    if (is_inside && number == SYS_futex && ((int)a[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET)
        return sleep_on((const uint32_t *)a[0], (uint32_t)a[2], (const struct timespec *)a[3]);
    /* Shared memory says which process to kill. */
    if (is_inside && number == SYS_pidfd_send_signal)
        return 0;
    return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

int __real_kill(pid_t pid, int number);
int __wrap_kill(pid_t pid, int number);
int __wrap_kill(pid_t pid, int number)
{
    return is_inside && number != 0 ? 0 : __real_kill(pid, number);
}

void __wrap_tni_os_die_with_process(int32_t pid);
void __wrap_tni_os_die_with_process(int32_t pid) { (void)pid; }

int __wrap_tni_os_start_detached(const char *path, const char *const *argv);
int __wrap_tni_os_start_detached(const char *path, const char *const *argv)
{
    (void)argv;
    return tni_fail(TN_ERR_NOT_FOUND, "%s is not started here", path);
}

int __wrap_tni_os_start_detached_on(const char *path, const char *const *argv, int input_fd);
int __wrap_tni_os_start_detached_on(const char *path, const char *const *argv, int input_fd)
{
    (void)input_fd;
    return __wrap_tni_os_start_detached(path, argv);
}

/*
 * A search of the descriptors of all processes would find domains that are not this
 * program's.
 */
int __wrap_tni_os_memory_for_each(const char *prefix, tni_os_memory_fn *each, void *context);
int __wrap_tni_os_memory_for_each(const char *prefix, tni_os_memory_fn *each, void *context)
{
    static const char name[] = "tenon-storage:";
    if (found_fd < 0 || strcmp(prefix, name) != 0)
        return 0;
    return each(tni_os_pid(), found_fd, name, found_inode, context);
}

/* A page of text for each mapping, and a process under a fuzzer has many. */
uint64_t __wrap_tni_os_process_huge_bytes(int32_t pid, uint64_t inode);
uint64_t __wrap_tni_os_process_huge_bytes(int32_t pid, uint64_t inode)
{
    (void)pid;
    return inode;
}

int __wrap_tni_os_connect(const char *name, int *ret_fd);
int __wrap_tni_os_connect(const char *name, int *ret_fd)
{
    if (connect_fd < 0)
        return tni_fail(TN_ERR_NOT_FOUND, "nobody listens at %s", name);
    *ret_fd = connect_fd;
    connect_fd = -1;
    return 0;
}
