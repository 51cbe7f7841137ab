/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tenond is killed while it becomes a manager: after it has the lock of the runtime folder,
 * and before it answers at its socket. Each test has a runtime folder, and so a tenond, of its
 * own.
 */
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/harness.h"
#include "process/process.h"
#include "reaper/reaper.h"

enum { LONG_MS = 10000, SLICE_MS = 120 };

/*
 * A process keeps one socket for ringing bells. It is made here, before a test counts
 * descriptors.
 */
__attribute__((constructor)) static void ring_once(void) { tni_os_bell_ring(1); }

/* The points in the order in which tenond passes them. */
static const char *const points[] = {"tenond_locked", "tenond_bell_set", "tenond_is_manager",
                                     "tenond_adopted", "tenond_listens"};

static int32_t manager_pid(const tn_domain *d)
{
    uint64_t who = atomic_load(&d->segment.header->manager);
    return who == 0 ? 0 : atomic_load(&tni_seat_at(&d->segment, tni_who_seat(who))->pid);
}

static void kill_tenond(const tn_domain *d)
{
    int fd = -1;
    int32_t pid = manager_pid(d);
    TN_CHECK_OK(tni_os_process_open(pid, &fd));
    TN_CHECK(kill(pid, SIGKILL) == 0);
    TN_CHECK_OK(tni_os_poll(&fd, 1, tnt_until_ns(LONG_MS)));
    tni_os_close(fd);
}

static int run_tenond(void *argument)
{
    setenv("TENON_KILL_POINT", argument, 1);
    execl(getenv("TENON_TENOND"), "tenond", (char *)NULL);
    return 1;
}

/* @return whether a tenond died at the point; false: it ended before it */
static bool run_tenond_to(const char *point)
{
#if defined(TN_KILL_POINTS)
    int status = tnt_wait(tnt_fork(run_tenond, (void *)(uintptr_t)point));
    TN_CHECK(WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : status == 0);
    return WIFSIGNALED(status);
#else
    (void)run_tenond;
    (void)point;
    tnt_skip("this build has no kill points");
#endif
}

static int hold_a_block(void *argument)
{
    void **arguments = argument;
    tn_tensor *tensor;
    TN_CHECK_OK(tn_tensor_create(arguments[0], TN_FLOAT32, 1, &(int64_t){10}, NULL, &tensor));
    tnt_signal(arguments[1]);
    return pause();
}

/* ---- members that wait, and a process that joins ----------------------------------------- */

/* Wait as a member does in a wait of tenon. @return how long it took, ns */
static uint64_t await_tenond(tn_domain *d)
{
    _Atomic uint32_t word = 0;
    uint64_t begun_ns = tni_os_now_ns();
    while (!tni_manager_is_alive(&d->segment)) {
        TN_CHECK(tni_os_now_ns() < begun_ns + LONG_MS * UINT64_C(1000000));
        tni_process_sleep(d, &word, 0,
                          &(struct tni_wait){.deadline_ns = tnt_until_ns(SLICE_MS)});
    }
    return tni_os_now_ns() - begun_ns;
}

TN_TEST_WITHIN(a_waiter_replaces_a_tenond_that_dies_at_its_start, 60)
{
    for (size_t i = 0; i < TNI_COUNT(points); i++) {
        struct tnt_signal is_there = tnt_signal_open();
        tn_domain *d = NULL, *again = NULL;
        TN_CHECK_OK(tn_domain_open("d", NULL, TN_OPEN_NEW, &d));
        pid_t pid = tnt_fork(hold_a_block, (void *[]){d, &is_there});
        tnt_await(&is_there);
        kill_tenond(d);
        while (!run_tenond_to(points[i])) { /* another one still had the lock */
            await_tenond(d);
            kill_tenond(d);
        }
        tnt_kill(pid);
        tnt_note("%s: the next tenond was there after %llu ms", points[i],
                 (unsigned long long)(await_tenond(d) / 1000000));
        TN_CHECK_OK(tn_domain_open("d", NULL, TN_OPEN_EXISTING, &again));
        TN_CHECK_OK(tn_domain_reap(d, NULL));
        TNT_AUDIT(d);
        tn_domain_close(again);
        tn_domain_close(d);
        tnt_signal_close(&is_there);
    }
}

TN_TEST(a_domain_is_made_after_a_tenond_that_died_on_its_way)
{
    for (size_t i = 0; i < TNI_COUNT(points); i++) {
        tn_domain *d = NULL;
        if (!run_tenond_to(points[i]))
            continue; /* there is no domain that it could manage */
        uint64_t begun_ns = tni_os_now_ns();
        TN_CHECK_OK(tn_domain_open("d", NULL, TN_OPEN_NEW, &d));
        tnt_note("%s: the domain was made after %llu ms", points[i],
                 (unsigned long long)((tni_os_now_ns() - begun_ns) / 1000000));
        kill_tenond(d);
        tn_domain_close(d);
    }
}

/* ---- members that poll ------------------------------------------------------------------- */

static int produce(void *argument)
{
    void **arguments = argument;
    TN_CHECK_OK(tn_queue_attach(arguments[0], TN_PRODUCER));
    tnt_signal(arguments[1]);
    return pause();
}

/* Poll as a program does that waits only at the descriptor. */
static void poll_once(tn_domain *d, int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&p, 1, LONG_MS), 1);
    tn_domain_poll_clear(d);
}

/* The last check took long, and a tenond lived; so the next check is due much later. */
TN_TEST(a_new_poller_without_a_tenond_soon_has_one)
{
    tn_domain *d = NULL;
    int fd;
    TN_CHECK_OK(tn_domain_open(NULL, NULL, 0, &d));
    kill_tenond(d);
    atomic_store(&d->survive_ns, tnt_until_ns(60 * 1000));
    TN_CHECK_OK(tn_domain_poll_fd(d, &fd));
    while (!tni_manager_is_alive(&d->segment))
        poll_once(d, fd);
    tn_domain_close(d);
}

TN_TEST_WITHIN(a_poller_replaces_a_tenond_that_dies_at_its_start, 60)
{
#if defined(TN_KILL_POINTS)
    for (size_t i = 0; i < TNI_COUNT(points); i++) {
        struct tnt_signal is_there = tnt_signal_open();
        tn_domain *d = NULL;
        tn_message m;
        tn_queue *q;
        int fd, status;
        TN_CHECK_OK(tn_domain_open(NULL, NULL, 0, &d));
        TN_CHECK_OK(tn_queue_open(d, NULL, NULL, 0, &q));
        TN_CHECK_OK(tn_queue_attach(q, TN_CONSUMER));
        TN_CHECK_OK(tn_domain_poll_fd(d, &fd));
        TN_CHECK_OK(tn_object_watch(q, true));
        pid_t pid = tnt_fork(produce, (void *[]){q, &is_there});
        tnt_await(&is_there);
        kill_tenond(d);
        /* The tenond that is started after this death has the kill point. */
        setenv("TENON_KILL_POINT", points[i], 1);
        poll_once(d, fd);
        unsetenv("TENON_KILL_POINT");
        TN_CHECK(kill(pid, SIGKILL) == 0);
        uint64_t begun_ns = tni_os_now_ns();
        while ((status = tn_queue_pop(q, TN_NOW, &m)) == TN_ERR_TIMED_OUT)
            poll_once(d, fd);
        assert_int_equal(status, TN_ERR_PEER_DIED);
        tnt_note("%s: the death was heard of after %llu ms", points[i],
                 (unsigned long long)((tni_os_now_ns() - begun_ns) / 1000000));
        tnt_wait(pid);
        tn_object_close(q);
        tn_domain_close(d);
        tnt_signal_close(&is_there);
    }
#else
    tnt_skip("this build has no kill points");
#endif
}
