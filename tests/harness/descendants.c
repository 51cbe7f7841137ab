/* SPDX-License-Identifier: Apache-2.0 */
/* The processes that a test started, and their end. */
#include <ctype.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "harness/inside.h"

enum { MAX_DESCENDANTS = 256 };
static const uint64_t grace_ns =
    UINT64_C(3000000000); /* for a process that ends because its parent ended */

struct process {
    pid_t pid, parent, group;
    char state;
    char command[32];
};

uint64_t tnt_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/*
 * Become the subreaper: a process whose parent ends becomes our child. SIGCHLD is received
 * with sigtimedwait().
 */
void tnt_adopt(void)
{
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, NULL);
}

static void sleep_until_a_child_ends(uint64_t deadline_ns)
{
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    uint64_t now_ns = tnt_now_ns();
    uint64_t left_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
    if (left_ns > UINT64_C(1000000000))
        left_ns = UINT64_C(1000000000);
    struct timespec left = {(time_t)(left_ns / 1000000000), (long)(left_ns % 1000000000)};
    sigtimedwait(&child, NULL, &left);
}

bool tnt_collect(pid_t pid, uint64_t deadline_ns, int *ret_status)
{
    for (;;) {
        int status = 0;
        pid_t ended = 0;
        while ((ended = waitpid(-1, &status, WNOHANG)) > 0) {
            if (ended == pid) {
                *ret_status = status;
                return true;
            }
        }
        if (tnt_now_ns() >= deadline_ns)
            return false;
        sleep_until_a_child_ends(deadline_ns);
    }
}

static bool read_process(pid_t pid, struct process *ret)
{
    char path[64], text[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *stat = fopen(path, "re");
    if (stat == NULL)
        return false;
    bool whole = fgets(text, sizeof text, stat) != NULL;
    fclose(stat);
    char *open = strchr(text, '('), *close = strrchr(text, ')');
    if (!whole || open == NULL || close == NULL)
        return false;
    int parent = 0, group = 0;
    if (sscanf(close + 1, " %c %d %d", &ret->state, &parent, &group) != 3)
        return false;
    *close = '\0';
    snprintf(ret->command, sizeof ret->command, "%s", open + 1);
    ret->pid = pid;
    ret->parent = parent;
    ret->group = group;
    return true;
}

/* Our children, and all of `group`. */
static unsigned list_descendants(pid_t group, struct process *ret_list)
{
    unsigned count = 0;
    pid_t self = getpid();
    DIR *proc = opendir("/proc");
    for (struct dirent *entry; proc != NULL && (entry = readdir(proc)) != NULL;) {
        struct process process;
        if (!isdigit((unsigned char)entry->d_name[0]) || count == MAX_DESCENDANTS)
            continue;
        if (!read_process((pid_t)strtol(entry->d_name, NULL, 10), &process))
            continue;
        if (process.pid != self && (process.parent == self || process.group == group))
            ret_list[count++] = process;
    }
    if (proc != NULL)
        closedir(proc);
    return count;
}

/* A vault that may not name itself, since prctl() is refused, is known by its program only. */
static bool has_program(const struct process *process, const char *name)
{
    char path[64], program[4096];
    snprintf(path, sizeof path, "/proc/%d/exe", (int)process->pid);
    ssize_t len = readlink(path, program, sizeof program - 1);
    if (len <= 0)
        return false;
    program[len] = '\0';
    const char *last = strrchr(program, '/');
    return last != NULL && strcmp(last + 1, name) == 0;
}

static bool is_tenond(const struct process *process)
{
    return strcmp(process->command, "tenond") == 0 ||
           strcmp(process->command, "tenond-vault") == 0 || has_program(process, "tenond");
}

static void describe(const struct process *process, int fd)
{
    char path[64], place[128] = "";
    snprintf(path, sizeof path, "/proc/%d/syscall", (int)process->pid);
    FILE *syscall = fopen(path, "re");
    if (syscall != NULL) {
        if (fgets(place, sizeof place, syscall) != NULL)
            place[strcspn(place, "\n")] = '\0';
        fclose(syscall);
    }
    dprintf(fd, "  pid %d %s, state %c, system call %s\n", (int)process->pid, process->command,
            process->state, place);
}

void tnt_describe_group(pid_t group, int fd)
{
    struct process list[MAX_DESCENDANTS];
    unsigned count = list_descendants(group, list);
    for (unsigned i = 0; i < count; i++)
        describe(&list[i], fd);
}

static unsigned count_of(pid_t group, bool of_tenond)
{
    struct process list[MAX_DESCENDANTS];
    unsigned found = 0, count = list_descendants(group, list);
    for (unsigned i = 0; i < count; i++)
        found += is_tenond(&list[i]) == of_tenond;
    return found;
}

static void signal_all(pid_t group, bool of_tenond, int number)
{
    struct process list[MAX_DESCENDANTS];
    unsigned count = list_descendants(group, list);
    for (unsigned i = 0; i < count; i++) {
        if (is_tenond(&list[i]) == of_tenond)
            kill(list[i].pid, number);
    }
}

static bool wait_until_gone(pid_t group, bool of_tenond)
{
    uint64_t deadline_ns = tnt_now_ns() + grace_ns;
    int ignored = 0;
    for (;;) {
        tnt_collect(-1, 0, &ignored); /* collects every child that has ended */
        if (count_of(group, of_tenond) == 0)
            return true;
        if (tnt_now_ns() >= deadline_ns)
            return false;
        /*
         * Once more: whichever of tenond and its vault ended first, the other may have started
         * it again.
         */
        if (of_tenond)
            signal_all(group, true, SIGTERM);
        sleep_until_a_child_ends(deadline_ns);
    }
}

unsigned tnt_end_descendants(pid_t group, int fd)
{
    unsigned left = 0;
    if (!wait_until_gone(group, false)) {
        left = count_of(group, false);
        dprintf(fd, "processes that outlive the test:\n");
        tnt_describe_group(group, fd);
        signal_all(group, false, SIGKILL);
        wait_until_gone(group, false);
    }
    signal_all(group, true, SIGTERM);
    if (!wait_until_gone(group, true)) {
        dprintf(fd, "tenond does not end on SIGTERM\n");
        left++;
        signal_all(group, true, SIGKILL);
        wait_until_gone(group, true);
    }
    return left;
}
