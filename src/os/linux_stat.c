/* SPDX-License-Identifier: Apache-2.0 */
/* What /proc/PID/stat says about a process. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "os/linux.h"

/*
 * Fields are counted after the last ')', since the command before it may contain any bytes. The
 * image is start_stack, field 28: exec randomizes it, threads and forked children keep it.
 * @return 0 or an errno
 */
static int parse_stat(const char *text, struct tni_linux_stat *ret_stat)
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
    struct tni_linux_stat stat = {.pid = (int32_t)strtol(text, NULL, 10)};
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

int tni_linux_read_stat(const char *path, struct tni_linux_stat *ret_stat)
{
    char text[1024];
    ssize_t got = tni_linux_read_text(path, text, sizeof text);
    return got < 0 ? (int)-got : parse_stat(text, ret_stat);
}
