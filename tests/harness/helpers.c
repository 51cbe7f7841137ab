/* SPDX-License-Identifier: Apache-2.0 */
/* What tests use: children, signals between processes, numbers. */
#include "harness/harness.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "harness/inside.h"

static uint64_t random_state = 1;

void tnt_check(bool holds, const char *text, const char *file, int line)
{
    if (holds)
        return;
    printf("%s:%d: %s does not hold (%s)\n", file, line, text, tn_error_detail());
    fflush(NULL);
    _exit(1);
}

int tnt_ok(int status, const char *text, const char *file, int line)
{
    if (status >= 0)
        return status;
    printf("%s:%d: %s: %s: %s\n", file, line, text, tn_status_name(status), tn_error_detail());
    fflush(NULL);
    _exit(1);
}

/* ---- processes --------------------------------------------------------------------------- */

bool tnt_refuse(int number, int error)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {.len = TNI_COUNT(filter), .filter = filter};
    return syscall(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0;
}

void (*tnt_at_child_end)(void);

pid_t tnt_fork(tnt_child_fn *run, void *argument)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0)
        fail_msg("fork: %s", strerror(errno));
    if (pid == 0) {
        int code = run(argument);
        if (tnt_at_child_end != NULL)
            tnt_at_child_end();
        fflush(NULL);
        _exit(code);
    }
    return pid;
}

int tnt_wait(pid_t pid)
{
    int status = -1;
    pid_t ended = 0;
    do
        ended = waitpid(pid, &status, 0);
    while (ended < 0 && errno == EINTR);
    if (ended != pid)
        fail_msg("waitpid(%d): %s", (int)pid, strerror(errno));
    return status;
}

void tnt_wait_ok(pid_t pid)
{
    int status = tnt_wait(pid);
    if (WIFSIGNALED(status))
        fail_msg("child %d was killed by signal %d (%s)", (int)pid, WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    if (WEXITSTATUS(status) != 0)
        fail_msg("child %d exited with %d", (int)pid, WEXITSTATUS(status));
}

void tnt_kill(pid_t pid)
{
    if (kill(pid, SIGKILL) != 0)
        fail_msg("kill(%d): %s", (int)pid, strerror(errno));
    tnt_wait(pid);
}

#if defined(TN_KILL_POINTS)

struct killing {
    const char *point;
    uint32_t passing;
    tnt_child_fn *run;
    void *argument;
};

static int run_armed(void *argument)
{
    const struct killing *killing = argument;
    tni_kill_point_arm(killing->point, killing->passing);
    int code = killing->run(killing->argument);
    tni_kill_point_arm(NULL, 0);
    return code;
}

bool tnt_kill_at(const char *point, uint32_t passing, tnt_child_fn *run, void *argument)
{
    struct killing killing = {point, passing, run, argument};
    int status = tnt_wait(tnt_fork(run_armed, &killing));
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        return true;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("%s:%u: the child ended with status %#x", point, passing, status);
    return false;
}

#else

bool tnt_kill_at(const char *point, uint32_t passing, tnt_child_fn *run, void *argument)
{
    (void)point, (void)passing, (void)run, (void)argument;
    tnt_skip("this build has no kill points");
}

#endif

/* ---- signals between processes ----------------------------------------------------------- */

struct tnt_signal tnt_signal_open(void)
{
    int fds[2];
    if (pipe(fds) != 0)
        fail_msg("pipe: %s", strerror(errno));
    return (struct tnt_signal){fds[0], fds[1]};
}

void tnt_signal(struct tnt_signal *signal)
{
    if (write(signal->write_fd, "", 1) != 1)
        fail_msg("write: %s", strerror(errno));
}

void tnt_await(struct tnt_signal *signal)
{
    char byte;
    ssize_t size = 0;
    do
        size = read(signal->read_fd, &byte, 1);
    while (size < 0 && errno == EINTR);
    if (size != 1)
        fail_msg("a signal that will not come");
}

void tnt_signal_close(struct tnt_signal *signal)
{
    close(signal->read_fd);
    close(signal->write_fd);
}

/* ---- numbers ----------------------------------------------------------------------------- */

bool tnt_is_full(void) { return getenv("TN_TEST_FULL") != NULL; }

uint64_t tnt_until_ns(unsigned ms) { return tnt_now_ns() + (uint64_t)ms * UINT64_C(1000000); }
tn_deadline tnt_deadline(unsigned ms) { return (tn_deadline){tnt_until_ns(ms)}; }

void tnt_seed(uint64_t seed) { random_state = seed; }

/*
 * Source: Steele, Lea, Flood, Fast splittable pseudorandom number generators, OOPSLA 2014
 * (SplitMix64).
 */
uint64_t tnt_random(void)
{
    uint64_t z = random_state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

uint64_t tnt_random_below(uint64_t below) { return tnt_random() % below; }
