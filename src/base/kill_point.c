/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"

#if defined(TN_KILL_POINTS)

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum { NAME_BYTES = 128, PATH_BYTES = 512 };

/* A test arms a point before it starts threads, so threads race for the counter only. */
static char armed_name[NAME_BYTES];
static _Atomic uint32_t passings_left;
static char list_path[PATH_BYTES];

void tni_kill_point_arm(const char *name, uint32_t passing)
{
    atomic_store(&passings_left, 0);
    size_t len = name == NULL ? 0 : strnlen(name, NAME_BYTES - 1);
    if (len > 0)
        memcpy(armed_name, name, len);
    armed_name[len] = '\0';
    /* This release pairs with the acquire in tni_kill_point(). */
    atomic_store_explicit(&passings_left, len == 0 ? 0 : passing, memory_order_release);
}

void tni_kill_point_list(const char *path)
{
    size_t len = path == NULL ? 0 : strnlen(path, PATH_BYTES - 1);
    if (len > 0)
        memcpy(list_path, path, len);
    list_path[len] = '\0';
}

/* Read the environment when the library is loaded: at a kill point that would be a race. */
__attribute__((constructor)) static void read_environment(void)
{
    tni_kill_point_list(secure_getenv("TENON_KILL_LIST"));
    const char *wanted = secure_getenv("TENON_KILL_POINT");
    if (wanted == NULL || wanted[0] == '\0')
        return;

    char name[NAME_BYTES] = "";
    uint32_t passing = 1;
    memcpy(name, wanted, strnlen(wanted, sizeof name - 1));
    char *colon = strrchr(name, ':');
    if (colon != NULL) {
        *colon = '\0';
        passing = (uint32_t)strtoul(colon + 1, NULL, 10);
    }
    tni_kill_point_arm(name, passing);
}

/* Append one line by one writev() with O_APPEND: lines of several processes must not mix. */
static void append_to_list(const char *name)
{
    int fd = open(list_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    struct iovec line[2] = {{.iov_base = (char *)(uintptr_t)name, .iov_len = strlen(name)},
                            {.iov_base = (char[]){'\n'}, .iov_len = 1}};
    ssize_t written = writev(fd, line, 2);
    (void)written;
    close(fd);
}

void tni_kill_point(const char *name)
{
    if (list_path[0] != '\0')
        append_to_list(name);

    /* This acquire pairs with the release in tni_kill_point_arm(). */
    if (atomic_load_explicit(&passings_left, memory_order_acquire) == 0)
        return;
    if (strcmp(name, armed_name) != 0)
        return;
    if (atomic_fetch_sub(&passings_left, 1) != 1)
        return;
#if defined(TN_AT_DEATH) /* in a build that measures coverage: write the counts first */
    TN_AT_DEATH();
#endif
    kill(getpid(), SIGKILL);
}

#else

/* A translation unit may not be empty. */
typedef int tni_kill_points_are_compiled_out;

#endif
