/* SPDX-License-Identifier: Apache-2.0 */
/* Processes in their own namespaces, as in a container. */
#ifndef TENON_TESTS_NAMESPACES_H
#define TENON_TESTS_NAMESPACES_H

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/harness.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

/* The flags of `unshare`; 0: no own namespace. */
struct space {
    const char *name;
    int flags;
    bool has_own_proc; /* with a pid namespace: whether its /proc is mounted */
};

static const struct space spaces[] = {
    {"none", 0, false},
    {"time", CLONE_NEWTIME, false},
    {"pid", CLONE_NEWPID, false},
    {"pid,mount,proc", CLONE_NEWPID | CLONE_NEWNS, true},
    {"net", CLONE_NEWNET, false},
    {"mount", CLONE_NEWNS, false},
    {"user", CLONE_NEWUSER, false},
    {"user,pid,time", CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWTIME, false},
    {"pid,mount,proc,net,ipc,uts,time",
     CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWTIME,
     true},
};
enum { SPACES = sizeof spaces / sizeof spaces[0] };

static inline bool write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool is_written = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return is_written;
}

/* Map each user to itself: a domain belongs to one user. */
static inline bool map_user(unsigned uid, unsigned gid)
{
    char users[64], groups[64];
    snprintf(users, sizeof users, "%u %u 1", uid, uid);
    snprintf(groups, sizeof groups, "%u %u 1", gid, gid);
    return write_text("/proc/self/setgroups", "deny") &&
           write_text("/proc/self/uid_map", users) && write_text("/proc/self/gid_map", groups);
}

/*
 * Put the next child of this process into the namespaces. @return false: errno has the reason
 */
static inline bool enter(const struct space *space)
{
    unsigned uid = geteuid(), gid = getegid();
    int flags = space->flags;
    if (flags != 0 && uid != 0)
        flags |= CLONE_NEWUSER;
    if (unshare(flags) != 0)
        return false;
    if ((flags & CLONE_NEWUSER) != 0 && !map_user(uid, gid))
        return false;
    return (flags & CLONE_NEWTIME) == 0 ||
           write_text("/proc/self/timens_offsets", "monotonic 100000 0\nboottime 200000 0\n");
}

/* Run the tests of that child, and end it. */
static inline bool reclaim_in(const struct space *space)
{
    return !space->has_own_proc || (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
                                    mount("proc", "/proc", "proc", 0, NULL) == 0);
}

/* A process in a space, seen from the test. */
struct resident {
    const struct space *space;
    tnt_child_fn *run;
    tnt_child_fn *leave; /* what its parent does after the process has started; may be NULL */
    void *argument;
    volatile pid_t pid; /* its pid in the namespace of the test */
    pid_t entrance;     /* its parent, a child of the test */
};

static inline int stand_at_the_entrance(void *argument)
{
    struct resident *resident = argument;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    TN_CHECK(enter(resident->space));
    pid_t pid = fork();
    TN_CHECK(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        TN_CHECK(reclaim_in(resident->space));
        while (resident->pid == 0)
            sched_yield();
        _exit(resident->run(resident->argument));
    }
    resident->pid = pid;
    if (resident->leave != NULL)
        resident->leave(resident->argument);
    int status = 0;
    TN_CHECK(waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

/* Start the resident. `resident` lies in shared memory. */
static inline void move_in(struct resident *resident)
{
    resident->pid = 0;
    resident->entrance = tnt_fork(stand_at_the_entrance, resident);
}

/* Kill the whole space: with the first process of a pid namespace all others end. */
static inline void kill_resident(struct resident *resident)
{
    TN_CHECK(resident->pid > 0 && kill(resident->pid, SIGKILL) == 0);
    TN_CHECK(tnt_wait(resident->entrance) == 128 << 8);
}

static inline int try_to_enter(void *argument)
{
    const struct space *space = argument;
    if (!enter(space))
        return errno;
    pid_t pid = fork();
    if (pid == 0)
        _exit(reclaim_in(space) ? 0 : errno);
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return errno;
    return WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
}

/* 0, or the errno with which the kernel refuses such a space. */
static inline int refusal_of(const struct space *space)
{
    int status = tnt_wait(tnt_fork(try_to_enter, (void *)(uintptr_t)space));
    TN_CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static inline void skip_unless_allowed(const struct space *space)
{
    char reason[160];
    int refusal = refusal_of(space);
    if (refusal == 0)
        return;
    snprintf(reason, sizeof reason, "namespaces %s are refused here: %s", space->name,
             strerror(refusal));
    tnt_skip(reason);
}

static inline void *share_memory(size_t size_bytes)
{
    void *at =
        mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    TN_CHECK(at != MAP_FAILED);
    return at;
}

#endif
