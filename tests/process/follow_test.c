/* SPDX-License-Identifier: Apache-2.0 */
/* A process that tenon did not start follows a member: it ends with that member. */
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/harness.h"
#include "harness/tensor.h"
#include "process/process.h"

struct pair {
    tn_domain *domain;
    struct tnt_signal ready;
    pid_t leader; /* 0: the process that forks it */
    int pids[2];  /* a pipe, for the follower's pid */
};

static struct pair open_pair(void)
{
    const tn_domain_options options = {.struct_size = sizeof options,
                                       .quota_bytes = 16 << 20,
                                       .seats = 8,
                                       .blocks = 1024,
                                       .flags = TN_DOMAIN_NO_MANAGER};
    struct pair pair = {.domain = tnt_domain(&options), .ready = tnt_signal_open()};
    assert_int_equal(pipe(pair.pids), 0);
    return pair;
}

static void close_pair(struct pair *pair)
{
    close(pair->pids[0]);
    close(pair->pids[1]);
    tnt_signal_close(&pair->ready);
    TN_CHECK_OK(tn_domain_reap(pair->domain, NULL));
    TNT_AUDIT(pair->domain);
    tn_domain_close(pair->domain);
}

static int pause_for_ever(void *argument)
{
    (void)argument;
    while (pause() == -1) {
    }
    return 0;
}

static int follow(void *argument)
{
    struct pair *pair = argument;
    TN_CHECK_OK(tn_process_follow(pair->domain, pair->leader));
    tnt_signal(&pair->ready);
    return pause_for_ever(NULL);
}

static int fork_a_follower(void *argument)
{
    struct pair *pair = argument;
    pair->leader = getpid();
    pid_t pid = fork();
    TN_CHECK(pid >= 0);
    if (pid == 0)
        _exit(follow(pair));
    TN_CHECK(write(pair->pids[1], &pid, sizeof pid) == sizeof pid);
    return pause_for_ever(NULL);
}

static int open_process(pid_t pid)
{
    int fd = (int)syscall(434, pid, 0); /* pidfd_open */
    TN_CHECK(fd >= 0);
    return fd;
}

static bool ends_within(int fd, int ms)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    return poll(&poll_fd, 1, ms) == 1;
}

TN_TEST(a_forked_process_ends_when_the_parent_it_follows_is_killed)
{
    struct pair pair = open_pair();
    pid_t follower, leader = tnt_fork(fork_a_follower, &pair);
    TN_CHECK(read(pair.pids[0], &follower, sizeof follower) == sizeof follower);
    tnt_await(&pair.ready);
    int fd = open_process(follower);
    assert_false(ends_within(fd, 0));
    tnt_kill(leader);
    assert_true(ends_within(fd, 10000));
    close(fd);
    close_pair(&pair);
}

TN_TEST(a_process_ends_once_the_member_it_follows_is_reclaimed)
{
    struct pair pair = open_pair();
    pair.leader = tnt_fork(pause_for_ever, NULL);
    pid_t follower = tnt_fork(follow, &pair);
    tnt_await(&pair.ready);
    int fd = open_process(follower);
    tnt_kill(pair.leader);
    TN_CHECK_OK(tn_domain_reap(pair.domain, NULL));
    assert_true(ends_within(fd, 10000));
    TN_CHECK(waitpid(follower, NULL, 0) == follower);
    close(fd);
    close_pair(&pair);
}

TN_TEST(only_another_living_member_can_be_followed)
{
    struct pair pair = open_pair();
    assert_int_equal(tn_process_follow(NULL, getpid()), TN_ERR_INVALID);
    assert_int_equal(tn_process_follow(pair.domain, getpid()), TN_ERR_NOT_FOUND);
    assert_int_equal(tn_process_follow(pair.domain, 0), TN_ERR_NOT_FOUND);
    assert_int_equal(tn_process_follow(pair.domain, -1), TN_ERR_NOT_FOUND);
    assert_int_equal(tn_process_follow(pair.domain, 1), TN_ERR_NOT_FOUND);
    pid_t dead = tnt_fork(pause_for_ever, NULL);
    tnt_kill(dead);
    assert_int_equal(tn_process_follow(pair.domain, dead), TN_ERR_NOT_FOUND);
    TN_CHECK_OK(tn_domain_reap(pair.domain, NULL));
    assert_int_equal(tn_process_follow(pair.domain, dead), TN_ERR_NOT_FOUND);
    close_pair(&pair);
}

static int say_seat_and_pause(void *argument)
{
    struct pair *pair = argument;
    uint32_t seat = tnt_seat(pair->domain);
    TN_CHECK(write(pair->pids[1], &seat, sizeof seat) == sizeof seat);
    return pause_for_ever(NULL);
}

TN_TEST(a_dead_member_whose_pid_was_reused_is_not_followed)
{
    struct pair pair = open_pair();
    struct tn_domain *d = pair.domain;
    uint32_t dead_seat, seat;
    pid_t dead = tnt_fork(say_seat_and_pause, &pair);
    TN_CHECK(read(pair.pids[0], &dead_seat, sizeof dead_seat) == sizeof dead_seat);
    pid_t living = tnt_fork(say_seat_and_pause, &pair);
    TN_CHECK(read(pair.pids[0], &seat, sizeof seat) == sizeof seat);
    assert_true(dead_seat < seat);
    tnt_kill(dead);
    struct tni_seat *entry = tni_seat_at(&d->segment, dead_seat);
    atomic_store(&entry->pid, living);
    entry->start_time--; /* so the two do not seem to have begun in one tick of the clock */
    TN_CHECK_OK(tn_process_follow(d, living));
    assert_int_equal(tni_who_seat(atomic_load(&d->me->parent)), seat);
    atomic_fetch_and(&d->me->flags, ~(uint32_t)TNI_SEAT_ENDS_WITH_PARENT);
    tnt_kill(living);
    close_pair(&pair);
}
