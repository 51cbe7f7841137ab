/* SPDX-License-Identifier: Apache-2.0 */
/*
 * os: the lines that the library writes itself, to where TENON_LOG=LEVEL[:FILE] says.
 *
 * I1  No descriptor is kept: each line opens the file, appends with one write(), and closes
 *     the file. So a program may close any descriptor, a forked child needs nothing, and a
 *     file that was renamed by log rotation is made anew by the next line.
 * I2  A line that cannot be written is lost. It raises no signal, and it does not wait for
 *     the reader of a pipe that FILE names.
 *
 * The variable is read when the library is loaded, because a later read in one thread would
 * race with a setenv() of the program in another one.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "os/linux.h"

enum { TIME_BYTES = 32, LINE_BYTES = 768 };

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

/*
 * write() that raises neither SIGPIPE, where a pipe has no reader, nor SIGXFSZ, at the limit of
 * a file's size: both go to this thread, and end the process by default.
 */
static void write_quietly(int fd, const char *line, size_t size_bytes)
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
    if (write(fd, line, size_bytes) < 0)
        raised = errno == EPIPE ? SIGPIPE : errno == EFBIG ? SIGXFSZ : 0;
    if (raised != 0 && sigismember(&pending, raised) == 0) {
        sigemptyset(&deadly);
        sigaddset(&deadly, raised);
        sigtimedwait(&deadly, NULL, &at_once);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* The number is above those of the standard streams, which the program may have closed. */
static int open_file(void)
{
    const int flags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
    int fd = -1;
    TNI_LINUX_MAKE((fd = open(path, flags, 0600)) >= 0);
    if (fd < 0 || fd > STDERR_FILENO)
        return fd;
    int above = -1;
    TNI_LINUX_MAKE((above = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1)) >= 0);
    int error = errno;
    close(fd);
    errno = error;
    return above;
}

static void write_line(int fd, int level, const char *text)
{
    char when[TIME_BYTES], line[LINE_BYTES];
    print_time(when);
    int wanted = snprintf(line, sizeof line, "%s %s[%d] %s: %s\n", when,
                          program_name != NULL ? program_name : program_invocation_short_name,
                          (int)getpid(), level_names[level], text);
    if (wanted < 0)
        return;
    size_t length = TNI_MIN((size_t)wanted, sizeof line - 1);
    line[length - 1] = '\0';
    tni_text_clean(line); /* the name of a program may have any bytes */
    line[length - 1] = '\n';
    write_quietly(fd, line, length);
}

static void write_event(int level, const char *text)
{
    int fd = path[0] != '\0' ? open_file() : STDERR_FILENO;
    if (fd < 0)
        return;
    write_line(fd, level, text);
    if (path[0] != '\0')
        close(fd);
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

/* Once, for the person who set the variable; to standard error if the file is what is wrong. */
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
    if (!set_path(file) || (path[0] != '\0' && (fd = open_file()) < 0)) {
        complain_of_file(file, errno);
    } else if (level < 0) {
        complain_of_level(value, length);
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
