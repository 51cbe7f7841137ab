/* SPDX-License-Identifier: Apache-2.0 */
/*
 * message: messages from a child to its parent, through a pipe. The parent reads the last
 * message after the child has ended, and does not wait for the end of the pipe: a process that
 * the child forked may keep the pipe open.
 *
 * The last message is one write: a text, a zero byte, and the exit code as a byte. The parent
 * does not trust it, and uses the code only if the kernel cannot state one (child.c, I6).
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spawn/child.h"

enum { MESSAGE_BYTES = 255, CODE_BYTES = 2 };

static int own_fd = -1;
/* The process that may write to own_fd. Its forked children have copies and may not write. */
static int32_t own_pid;
static uint64_t own_number;

void tni_message_set(int fd)
{
    /* The program may have closed own_fd, and the number may be reused: compare the pipe. */
    if (own_number != 0 && own_fd != fd && tni_os_pipe_number(own_fd) == own_number)
        tni_os_close(own_fd);
    own_fd = fd;
    own_pid = tni_os_pid();
    own_number = tni_os_pipe_number(fd);
}

int tni_message_report(int status, const char *text)
{
    struct tni_child_report report = {.status = status, .pid = tni_os_pid()};
    memcpy(report.text, text, strnlen(text, sizeof report.text - 1));
    return tni_os_write(own_fd, &report, sizeof report);
}

/* The value is <descriptor>,<number of the pipe>,<pid of the parent>. */
void tni_message_write_variable(int fd, char *value, size_t size_bytes)
{
    snprintf(value, size_bytes, "%d,%" PRIu64 ",%" PRId32, fd, tni_os_pipe_number(fd),
             tni_os_pid());
}

/*
 * The descriptor that TENON_MESSAGE_FD names, or -1. Programs that the child starts inherit the
 * variable, too, so each part of it is checked.
 */
static int find_inherited(void)
{
    const char *value = tni_os_environment(TNI_MESSAGE_VARIABLE);
    uint64_t number = 0;
    int32_t parent_pid = 0;
    int fd = -1;
    if (value == NULL ||
        sscanf(value, "%d,%" SCNu64 ",%" SCNd32, &fd, &number, &parent_pid) != 3)
        return -1;
    bool is_ours =
        number != 0 && tni_os_pipe_number(fd) == number && tni_os_parent_pid() == parent_pid;
    return is_ours ? fd : -1;
}

static void write_last(int fd, const char *text, int exit_code)
{
    char last[MESSAGE_BYTES + CODE_BYTES];
    size_t len = strnlen(text, MESSAGE_BYTES);
    memcpy(last, text, len);
    last[len] = '\0';
    last[len + 1] = (char)exit_code;
    tni_os_write(fd, last, len + CODE_BYTES);
}

void tni_message_end(int exit_code)
{
    /* The number of own_fd may be reused, as in tni_message_set(): compare the pipe. */
    if (own_number != 0 && tni_os_pipe_number(own_fd) == own_number)
        write_last(own_fd, "", exit_code);
}

int tni_message_read(int fd, char *text, size_t size_bytes)
{
    char last[MESSAGE_BYTES + CODE_BYTES];
    size_t used = 0;
    while (used < sizeof last) {
        int got = tni_os_read(fd, last + used, sizeof last - used);
        if (got <= 0)
            break;
        used += (size_t)got;
    }
    size_t len = strnlen(last, used);
    tni_text_copy(text, size_bytes, last, len); /* logs and terminals show the text */
    return used == len + CODE_BYTES ? (unsigned char)last[len + 1] : -1;
}

/* fflush(NULL) would wait for a stream that another thread is reading from. */
void tni_message_flush(void)
{
    fflush(stdout);
    fflush(stderr);
}

void tn_process_fail(const char *message)
{
    int fd = own_pid == tni_os_pid() ? own_fd : find_inherited();
    if (fd >= 0)
        write_last(fd, message != NULL ? message : "", 1);
    tni_message_flush();
    tni_os_exit(1);
}
