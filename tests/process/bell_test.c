/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests: the pollable descriptor of a process, when the producer is in another network
 * namespace, where the process's bell has no name.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/harness.h"
#include "os/os.h"
#include "process/namespaces.h"
#include "process/process.h"

/*
 * A process keeps one socket for ringing bells. It is made here, before a test counts
 * descriptors.
 */
__attribute__((constructor)) static void ring_once(void) { tni_os_bell_ring(1); }

enum { MESSAGES = 50, LONG_MS = 20000 };

struct place {
    tn_domain *domain;
    tn_queue *queue;
    struct tnt_signal there, go;
    int error; /* shared: why there is no namespace */
};

static struct place *open_place(uint32_t flags)
{
    struct place *p =
        mmap(NULL, sizeof *p, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    TN_CHECK(p != MAP_FAILED);
    *p = (struct place){.there = tnt_signal_open(), .go = tnt_signal_open()};
    p->domain = tnt_domain(&(tn_domain_options){.struct_size = sizeof(tn_domain_options),
                                                .quota_bytes = 16 << 20,
                                                .blocks = 1024,
                                                .flags = flags});
    TN_CHECK_OK(tn_queue_open(p->domain, NULL, NULL, 0, &p->queue));
    return p;
}

static void close_place(struct place *p)
{
    tn_object_close(p->queue);
    TN_CHECK_OK(tn_domain_reap(p->domain, NULL));
    TNT_AUDIT(p->domain);
    tn_domain_close(p->domain);
    tnt_signal_close(&p->there);
    tnt_signal_close(&p->go);
    munmap(p, sizeof *p);
}

static bool go_elsewhere(struct place *p)
{
    static const struct space net = {"net", CLONE_NEWNET, false};
    if (!enter(&net))
        p->error = errno != 0 ? errno : EPERM;
    tnt_signal(&p->there);
    return p->error == 0;
}

static void skip_unless_there(struct place *p, pid_t pid)
{
    tnt_await(&p->there);
    if (p->error == 0)
        return;
    tnt_wait(pid);
    close_place(p);
    tnt_skip("unshare -n is refused to this process");
}

static void push_one(tn_queue *queue, int number)
{
    TN_CHECK_OK(tn_queue_push(
        queue, &(tn_message){.bytes = &number, .size_bytes = sizeof number}, 0, TN_NOW));
}

/* The poll() has no time limit: if the ring is lost, the test does not end. */
static void poll_one(tn_domain *domain, tn_queue *queue, int number)
{
    struct pollfd bell = {.events = POLLIN};
    tn_message m;
    int status;
    TN_CHECK_OK(tn_domain_poll_fd(domain, &bell.fd));
    do {
        TN_CHECK(poll(&bell, 1, -1) == 1);
        tn_domain_poll_clear(domain);
        status = tn_queue_pop(queue, TN_NOW, &m);
    } while (status == TN_ERR_TIMED_OUT);
    TN_CHECK_OK(status);
    TN_CHECK(memcmp(m.bytes, &number, sizeof number) == 0);
    tn_message_fini(&m);
}

static int push_from_elsewhere(void *argument)
{
    struct place *p = argument;
    if (!go_elsewhere(p))
        return 0;
    for (int i = 0; i < MESSAGES; i++) {
        tnt_await(&p->go);
        push_one(p->queue, i);
    }
    return 0;
}

TN_TEST(a_push_from_another_network_namespace_ends_a_poll)
{
    struct place *p = open_place(TN_DOMAIN_NO_MANAGER);
    struct pollfd bell = {.events = POLLIN};
    pid_t pid = tnt_fork(push_from_elsewhere, p);
    skip_unless_there(p, pid);
    TN_CHECK_OK(tn_object_watch(p->queue, true));
    TN_CHECK_OK(tn_domain_poll_fd(p->domain, &bell.fd));
    tn_domain_poll_clear(p->domain);
    assert_int_equal(poll(&bell, 1, 0), 0);
    for (int i = 0; i < MESSAGES; i++) {
        tnt_signal(&p->go);
        poll_one(p->domain, p->queue, i);
    }
    tnt_wait_ok(pid);
    close_place(p);
}

static int poll_elsewhere(void *argument)
{
    struct place *p = argument;
    int fd;
    if (!go_elsewhere(p))
        return 0;
    TN_CHECK_OK(tn_object_watch(p->queue, true));
    TN_CHECK_OK(tn_domain_poll_fd(p->domain, &fd)); /* before the first push */
    for (int i = 0; i < MESSAGES; i++) {
        tnt_signal(&p->there);
        poll_one(p->domain, p->queue, i);
    }
    return 0;
}

TN_TEST(a_push_into_another_network_namespace_ends_a_poll)
{
    struct place *p = open_place(TN_DOMAIN_NO_MANAGER);
    pid_t pid = tnt_fork(poll_elsewhere, p);
    skip_unless_there(p, pid);
    for (int i = 0; i < MESSAGES; i++) {
        tnt_await(&p->there);
        push_one(p->queue, i);
    }
    tnt_wait_ok(pid);
    close_place(p);
}

/* tenond, which is outside of the namespace, reclaims the dead process and rings. */
static int poll_for_a_death(void *argument)
{
    struct place *p = argument;
    struct pollfd bell = {.events = POLLIN};
    tn_message m;
    int status;
    if (!go_elsewhere(p))
        return 0;
    TN_CHECK_OK(tn_object_watch(p->queue, true));
    TN_CHECK_OK(tn_domain_poll_fd(p->domain, &bell.fd));
    tn_domain_poll_clear(p->domain);
    tnt_signal(&p->there);
    do {
        TN_CHECK(poll(&bell, 1, -1) == 1);
        tn_domain_poll_clear(p->domain);
        status = tn_queue_pop(p->queue, TN_NOW, &m);
    } while (status == TN_ERR_TIMED_OUT);
    TN_CHECK(status == TN_ERR_PEER_DIED);
    return 0;
}

static int produce_and_die(void *argument)
{
    struct place *p = argument;
    TN_CHECK_OK(tn_queue_attach(p->queue, TN_PRODUCER));
    tnt_signal(&p->there);
    tnt_await(&p->go);
    raise(SIGKILL);
    return 1;
}

TN_TEST(a_death_ends_a_poll_in_another_network_namespace)
{
    struct place *p = open_place(0);
    pid_t producer = tnt_fork(produce_and_die, p);
    tnt_await(&p->there);
    pid_t pid = tnt_fork(poll_for_a_death, p);
    tnt_await(&p->there);
    if (p->error == 0)
        tnt_await(&p->there);
    tnt_signal(&p->go);
    assert_int_equal(tnt_wait(producer), SIGKILL);
    tnt_wait_ok(pid);
    bool is_refused = p->error != 0;
    close_place(p);
    if (is_refused)
        tnt_skip("unshare -n is refused to this process");
}

TN_TEST(ringing_one_bell_wakes_no_watcher_of_a_bell_beside_it)
{
    struct place *p = open_place(TN_DOMAIN_NO_MANAGER);
    struct pollfd bell = {.events = POLLIN};
    int watch_fd;
    TN_CHECK_OK(tni_os_watch_create(p->domain->segment.control_fd, &watch_fd));
    TN_CHECK_OK(tn_object_watch(p->queue, true));
    TN_CHECK_OK(tn_domain_poll_fd(p->domain, &bell.fd));
    push_one(p->queue, 1);
    assert_int_equal(poll(&bell, 1, 0), 1);
    bell.fd = watch_fd;
    assert_int_equal(poll(&bell, 1, 0), 0);
    poll_one(p->domain, p->queue, 1);
    tni_os_close(watch_fd);
    close_place(p);
}
