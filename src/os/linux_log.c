/* SPDX-License-Identifier: Apache-2.0 */
/*
 * os: the lines that the library writes itself, to where TENON_LOG=LEVEL[:FILE] says. FILE "-"
 * is standard error, as no FILE is.
 *
 * I1  No descriptor is kept: each line opens the file, appends with one write(), and closes
 *     the file. So a program may close any descriptor, a forked child needs nothing, and a
 *     file that was renamed by log rotation is made anew by the next line.
 * I2  No line waits for the reader of a pipe, a terminal or a socket: the caller may have the
 *     registry claim, for which other processes wait. A line that cannot be written at once is
 *     dropped and raises no signal. The next line that is written says how many were dropped.
 *
 * The variable is read when the library is loaded, because a later read in one thread would
 * race with a setenv() of the program in another one.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/linux.h"

/* Two lines are less than PIPE_BUF, so a pipe takes them whole or not at all. */
enum { TIME_BYTES = 32, LINE_BYTES = 768 };
_Static_assert(2 * LINE_BYTES <= PIPE_BUF, "");

static const char *const level_names[TNI_LOG_LEVELS] = {"error", "warning", "info", "debug"};
static const char *program_name;        /* NULL: what libc says */
static char path[TNI_LINUX_PATH_BYTES]; /* absolute; "": standard error */
static char variable[TNI_LINUX_PATH_BYTES + 32];

/* ---- a line ------------------------------------------------------------------------------ */

/*
 * "2026-11-25T22:40:01.123Z". Not by gmtime_r(), which takes a lock of libc that a forked child
 * may find taken for ever. Years are counted from March, so that a leap day is the last of its
 * year.
 */
static void print_time(char text[TIME_BYTES])
{
    enum { DAYS_OF_400_YEARS = 146097, DAYS_FROM_0000_03_01 = 719468 };
    struct timespec now = {0};
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t seconds = (uint64_t)now.tv_sec;
    uint32_t second = (uint32_t)(seconds % 86400);
    uint32_t days = (uint32_t)(seconds / 86400) + DAYS_FROM_0000_03_01;
    uint32_t cycle = days / DAYS_OF_400_YEARS, day = days % DAYS_OF_400_YEARS, year = 0;
    /* The days before a year of the cycle, leap days included. */
    while (365 * (year + 1) + (year + 1) / 4 - (year + 1) / 100 + (year + 1) / 400 <= day)
        year++;
    day -= 365 * year + year / 4 - year / 100 + year / 400;
    uint32_t month = (5 * day + 2) / 153; /* from March, whose months have 31, 30, 31, 30, 31 */
    uint32_t day_of_month = day - (153 * month + 2) / 5 + 1;
    year += 400 * cycle + (month >= 10);
    month = month >= 10 ? month - 9 : month + 3;
    snprintf(text, TIME_BYTES, "%04u-%02u-%02uT%02u:%02u:%02u.%03uZ", year, month, day_of_month,
             second / 3600, second / 60 % 60, second % 60, (unsigned)(now.tv_nsec / 1000000));
}

/**
 * Call write(), or send() for a socket. Neither SIGPIPE, where a pipe has no reader, nor
 * SIGXFSZ, at the limit of a file's size, is raised: both go to this thread, and end the
 * process by default. @return whether something was written
 */
static bool write_quietly(int fd, bool is_socket, const char *line, size_t size_bytes)
{
    const struct timespec at_once = {0};
    sigset_t deadly, pending, before;
    sigemptyset(&deadly);
    sigaddset(&deadly, SIGPIPE);
    sigaddset(&deadly, SIGXFSZ);
    sigemptyset(&pending);
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &deadly, &before);
    int raised = 0;
    ssize_t done = is_socket ? send(fd, line, size_bytes, MSG_DONTWAIT | MSG_NOSIGNAL)
                             : write(fd, line, size_bytes);
    if (done < 0)
        raised = errno == EPIPE && !is_socket ? SIGPIPE : errno == EFBIG ? SIGXFSZ : 0;
    if (raised != 0 && sigismember(&pending, raised) == 0) {
        sigemptyset(&deadly);
        sigaddset(&deadly, raised);
        sigtimedwait(&deadly, NULL, &at_once);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return done >= 0;
}

/**
 * Write to standard error, and never wait for its reader (I2). The descriptor is shared with
 * other processes, so it cannot be made non-blocking; a pipe and a terminal are opened once
 * more. A regular file is not, because its file offset is shared with the program's own output.
 */
static bool write_to_stderr(const char *line, size_t size_bytes)
{
    struct stat stat;
    struct pollfd ready = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (fstat(STDERR_FILENO, &stat) != 0)
        return false;
    if (S_ISREG(stat.st_mode) || S_ISSOCK(stat.st_mode))
        return write_quietly(STDERR_FILENO, S_ISSOCK(stat.st_mode), line, size_bytes);
    if (poll(&ready, 1, 0) <= 0 || (ready.revents & POLLOUT) == 0)
        return false;
    int fd = -1;
    TNI_LINUX_MAKE_FD(fd,
                      open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    /*
     * The pipe may be another user's, or there may be no /proc. Then only poll() tells
     * whether there is room, and another writer may fill the pipe between the two calls.
     */
    bool is_written = write_quietly(fd >= 0 ? fd : STDERR_FILENO, false, line, size_bytes);
    tni_os_close(fd);
    return is_written;
}

static int open_file(void)
{
    const int flags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
    int fd = -1;
    TNI_LINUX_MAKE_FD(fd, open(path, flags, 0600));
    return fd;
}

/** @return bytes, with the newline */
static size_t print_line(char line[LINE_BYTES], int level, const char *text)
{
    char when[TIME_BYTES];
    print_time(when);
    int wanted = snprintf(line, LINE_BYTES, "%s %s[%d] %s: %s\n", when,
                          program_name != NULL ? program_name : program_invocation_short_name,
                          (int)getpid(), level_names[level], text);
    if (wanted < 1)
        return 0;
    size_t length = TNI_MIN((size_t)wanted, (size_t)LINE_BYTES - 1);
    line[length - 1] = '\0';
    tni_text_clean(line); /* the name of a program may have any bytes */
    line[length - 1] = '\n';
    return length;
}

static bool write_bytes(const char *bytes, size_t size_bytes)
{
    if (path[0] == '\0')
        return write_to_stderr(bytes, size_bytes);
    int fd = open_file();
    bool is_written = fd >= 0 && write_quietly(fd, false, bytes, size_bytes);
    tni_os_close(fd);
    return is_written;
}

static void write_event(int level, const char *text)
{
    static _Atomic uint32_t
        dropped; /* lines that were not written since the last one that was */
    char bytes[2 * LINE_BYTES], note[96];
    size_t used = 0;
    uint32_t count = atomic_exchange_explicit(&dropped, 0, memory_order_relaxed);
    if (count > 0) {
        snprintf(note, sizeof note, "%" PRIu32 " lines were dropped: they could not be written",
                 count);
        used = print_line(bytes, TNI_LOG_WARNING, note);
    }
    used += print_line(bytes + used, level, text);
    if (!write_bytes(bytes, used))
        atomic_fetch_add_explicit(&dropped, count + 1, memory_order_relaxed);
}

/* ---- the variable ------------------------------------------------------------------------ */

static int parse_level(const char *text, size_t length)
{
    if (length == 1 && text[0] >= '0' && text[0] < '0' + TNI_LOG_LEVELS)
        return text[0] - '0';
    for (int level = 0; level < TNI_LOG_LEVELS; level++)
        if (strlen(level_names[level]) == length &&
            strncmp(level_names[level], text, length) == 0)
            return level;
    return -1;
}

/* A path is made absolute: the program may change its folder, and tenond does. */
static bool set_path(const char *given)
{
    char folder[TNI_LINUX_PATH_BYTES];
    bool is_absolute = given[0] == '/' || given[0] == '\0';
    if (!is_absolute && getcwd(folder, sizeof folder) == NULL)
        return false;
    int wanted = snprintf(path, sizeof path, "%s%s%s", is_absolute ? "" : folder,
                          is_absolute ? "" : "/", given);
    if (wanted >= 0 && (size_t)wanted < sizeof path)
        return true;
    path[0] = '\0';
    errno = ENAMETOOLONG;
    return false;
}

/* To standard error, once, for the person who set the variable. */
static void complain_of_file(const char *file, int errno_value)
{
    char text[LINE_BYTES];
    snprintf(text, sizeof text,
             "TENON_LOG: no event is logged, because the file cannot be opened: %s: %s",
             strerror(errno_value), file);
    path[0] = '\0';
    write_event(TNI_LOG_ERROR, text);
}

static void complain_of_level(const char *value, size_t length)
{
    char text[LINE_BYTES];
    snprintf(text, sizeof text,
             "TENON_LOG: no event is logged, because the level '%.*s' is none of error, "
             "warning, info, debug and 0 to 3",
             (int)TNI_MIN(length, (size_t)64), value);
    write_event(TNI_LOG_ERROR, text);
}

__attribute__((constructor)) static void read_environment(void)
{
    const char *value = tni_os_environment("TENON_LOG");
    if (value == NULL || value[0] == '\0')
        return;
    int saved_errno = errno;
    size_t length = strcspn(value, ":");
    const char *file = value[length] == ':' ? value + length + 1 : "";
    int level = parse_level(value, length), fd = -1;
    if (strcmp(file, "-") == 0)
        file = ""; /* standard error */
    if (level < 0) {
        complain_of_level(value, length);
    } else if (!set_path(file) || (path[0] != '\0' && (fd = open_file()) < 0)) {
        complain_of_file(file, errno);
    } else {
        snprintf(variable, sizeof variable, "TENON_LOG=%s%s%s", level_names[level],
                 path[0] != '\0' ? ":" : "", path);
        tni_log_set_writer(level, write_event);
    }
    if (fd >= 0)
        close(fd);
    errno = saved_errno;
}

const char *tni_linux_log_variable(void) { return variable[0] != '\0' ? variable : NULL; }

void tni_os_log_name(const char *name) { program_name = name; }

void tni_os_log_to_stderr(int level)
{
    path[0] = '\0';
    tni_log_set_writer(level, write_event);
}
