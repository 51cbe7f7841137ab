/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tenond, as members and hostile processes meet it. Each test has its own runtime folder, and
 * so its own tenond.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/harness.h"
#include "harness/live_blocks.h"
#include "harness/members.h"
#include "reaper/reaper.h"
#include "wait/wait.h"

enum { LONG_MS = 10000 };

/* A process keeps one socket for bells, made here before a test counts descriptors. */
__attribute__((constructor)) static void ring_once(void) { tni_os_bell_ring(1); }

/* ---- looking at it ----------------------------------------------------------------------- */

static tn_domain *create(const char *name)
{
    tn_domain *d = NULL;
    TN_CHECK_OK(tn_domain_open(name, NULL, TN_OPEN_NEW, &d));
    return d;
}

static tn_domain *join(const char *name)
{
    tn_domain *d = NULL;
    TN_CHECK_OK(tn_domain_open(name, NULL, TN_OPEN_EXISTING, &d));
    return d;
}

/* The pid of the tenond that manages the domain; 0: none. */
static int32_t manager_pid(const tn_domain *d)
{
    uint64_t who = atomic_load(&d->segment.header->manager);
    return who == 0 ? 0 : atomic_load(&tni_seat_at(&d->segment, tni_who_seat(who))->pid);
}

static int open_process(int32_t pid)
{
    int fd = -1;
    TN_CHECK_OK(tni_os_process_open(pid, &fd));
    return fd;
}

static void await_end(int process_fd)
{
    TN_CHECK_OK(tni_os_poll(&process_fd, 1, tnt_until_ns(LONG_MS)));
    tni_os_close(process_fd);
}

static void kill_and_await(int32_t pid, int signal_number)
{
    int fd = open_process(pid);
    TN_CHECK(kill(pid, signal_number) == 0);
    await_end(fd);
}

static uint64_t deaths(const tn_domain *d) { return atomic_load(&d->segment.header->deaths); }

/*
 * Wait until a seat is reclaimed, without doing the work of tenond in this process.
 * Reclaiming a seat wakes the processes that wait for memory.
 */
static void await_deaths(tn_domain *d, uint64_t count)
{
    uint64_t deadline_ns = tnt_until_ns(LONG_MS);
    while (deaths(d) < count) {
        uint32_t seen = tni_alloc_arm(d);
        if (deaths(d) < count)
            TN_CHECK_OK(tni_os_wait(&d->segment.header->memory_wait, seen, deadline_ns));
    }
}

/* Wait as a survivor does, until a tenond other than `old` manages the domain. */
static int32_t await_successor(tn_domain *d, int32_t old)
{
    _Atomic uint32_t word = 0;
    uint64_t deadline_ns = tnt_until_ns(LONG_MS);
    while (manager_pid(d) == 0 || manager_pid(d) == old) {
        TN_CHECK(tni_os_now_ns() < deadline_ns);
        tni_process_sleep(d, &word, 0, &(struct tni_wait){.deadline_ns = tnt_until_ns(120)});
    }
    return manager_pid(d);
}

struct member {
    tn_domain *domain;
    struct tnt_signal ready, go;
    uint32_t count;
};

static int hold_until_told(void *argument)
{
    struct member *member = argument;
    for (uint32_t i = 0; i < member->count; i++) {
        tn_tensor *tensor;
        TN_CHECK_OK(
            tn_tensor_create(member->domain, TN_FLOAT32, 1, &(int64_t){10}, NULL, &tensor));
    }
    tnt_signal(&member->ready);
    tnt_await(&member->go);
    return 0;
}

static struct member open_member(tn_domain *d, uint32_t count)
{
    return (struct member){
        .domain = d, .ready = tnt_signal_open(), .go = tnt_signal_open(), .count = count};
}

static void close_member(struct member *member)
{
    tnt_signal_close(&member->ready);
    tnt_signal_close(&member->go);
}

static pid_t start_member(struct member *member)
{
    pid_t pid = tnt_fork(hold_until_told, member);
    tnt_await(&member->ready);
    return pid;
}

/* ---- its life ---------------------------------------------------------------------------- */

TN_TEST(a_domain_that_leaves_tenond_no_seat_is_not_made)
{
    const tn_domain_options options = {.struct_size = sizeof options, .seats = 1};
    tn_domain *domain;
    assert_int_equal(tn_domain_open("no-seat", &options, TN_OPEN_NEW, &domain), TN_ERR_INVALID);
    assert_non_null(strstr(tn_error_detail(), "one of them for tenond"));
}

TN_TEST(the_first_domain_starts_tenond_in_a_session_of_its_own)
{
    tn_domain *d = create("first");
    int32_t pid = manager_pid(d);
    assert_true(pid > 0);
    assert_int_equal(getsid(pid), pid);
    assert_int_not_equal(getsid(0), pid);
    /* The second domain has the same tenond. */
    tn_domain *other = create("second");
    assert_int_equal(manager_pid(other), pid);
    tn_domain *anonymous = create(NULL);
    assert_int_equal(manager_pid(anonymous), pid);
    tn_domain_close(anonymous);
    tn_domain_close(other);
    tn_domain_close(d);
}

TN_TEST(tenond_reclaims_a_killed_member_without_being_asked)
{
    tn_domain *d = create("d");
    struct member member = open_member(d, 100);
    pid_t pid = start_member(&member);
    assert_int_equal(live_blocks(d), 100);
    tnt_kill(pid);
    await_deaths(d, 1);
    assert_int_equal(live_blocks(d), 0);
    TNT_AUDIT(d);
    close_member(&member);
    tn_domain_close(d);
}

static int hold_the_registry(void *argument)
{
    struct member *member = argument;
    struct tni_header *h = member->domain->segment.header;
    tnt_await(&member->go);
    atomic_store(&h->registry, member->domain->who);
    tnt_signal(&member->ready);
    tnt_await(&member->go);
    atomic_store(&h->registry, 0);
    tni_wait_notify(&h->registry_wait, INT32_MAX);
    tnt_await(&member->go);
    return 0;
}

TN_TEST(tenond_ends_objects_closed_beside_a_stopped_registry_owner)
{
    tn_domain *d = create("d");
    struct member member = open_member(d, 0);
    pid_t pid = tnt_fork(hold_the_registry, &member);
    tn_event *event;
    TN_CHECK_OK(tn_event_open(d, NULL, 0, &event));
    const struct tni_object *object =
        tni_object_at(&d->segment, tni_object_id_index(tn_object_id(event)));
    tnt_signal(&member.go);
    tnt_await(&member.ready);
    tn_object_close(event);
    tnt_signal(&member.go);
    while (tni_object_state(atomic_load(&object->word)) != TNI_OBJECT_FREE)
        tni_os_yield();
    tnt_signal(&member.go);
    tnt_wait_ok(pid);
    close_member(&member);
    tn_domain_close(d);
}

TN_TEST(a_waiting_member_replaces_a_killed_tenond_without_loss)
{
    tn_domain *d = create("d"), *other = create("other");
    struct member member = open_member(d, 5);
    pid_t pid = start_member(&member);
    int32_t old = manager_pid(d);
    kill_and_await(old, SIGKILL);
    tnt_kill(pid); /* the child dies while there is no tenond */

    int32_t successor = await_successor(d, old);
    await_deaths(d, 2);
    assert_int_equal(live_blocks(d), 0);
    /* The new tenond found the other domain too, though no member told it. */
    await_deaths(other, 1);
    assert_int_equal(await_successor(other, old), successor);
    tn_domain *again = join("other");
    tn_domain_close(again);
    TNT_AUDIT(d);
    TNT_AUDIT(other);
    close_member(&member);
    tn_domain_close(other);
    tn_domain_close(d);
}

TN_TEST(tenond_that_was_told_to_end_is_replaced_too)
{
    tn_domain *d = create("d");
    int32_t old = manager_pid(d);
    kill_and_await(old, SIGTERM);
    assert_int_equal(manager_pid(d), 0);
    assert_int_equal(deaths(d), 0); /* the member left in good order */
    await_successor(d, old);
    TNT_AUDIT(d);
    tn_domain_close(d);
}

TN_TEST(a_domain_can_be_joined_while_tenond_is_dead)
{
    tn_domain *d = create("d");
    kill_and_await(manager_pid(d), SIGKILL);
    tn_domain *again = join("d"), *by_id = NULL;
    assert_int_equal(again->segment.control_inode, d->segment.control_inode);
    tn_domain_close(again);

    char id[33];
    for (int i = 0; i < 16; i++)
        snprintf(id + 2 * i, 3, "%02x", d->segment.header->id[i]);
    int control_fd = -1, arena_fd = -1;
    TN_CHECK_OK(tni_manager_find(id, true, &control_fd, &arena_fd));
    tni_os_close(control_fd);
    tni_os_close(arena_fd);
    assert_int_equal(tn_domain_open("nobody", NULL, TN_OPEN_EXISTING, &by_id),
                     TN_ERR_NOT_FOUND);
    tn_domain_close(d);
}

TN_TEST(a_name_belongs_to_one_living_domain)
{
    tn_domain *d = create("d"), *other = NULL;
    assert_int_equal(tn_domain_open("d", NULL, TN_OPEN_NEW, &other), TN_ERR_EXISTS);
    assert_non_null(strstr(tn_error_detail(), "'d'"));
    assert_int_equal(tn_domain_open("e", NULL, TN_OPEN_EXISTING, &other), TN_ERR_NOT_FOUND);
    TN_CHECK_OK(tni_manager_register(d)); /* registering again changes nothing */
    uint64_t inode = d->segment.control_inode;
    tn_domain_close(d);
    /* The name is free, though tenond still keeps the old domain for a moment. */
    d = create("d");
    assert_int_not_equal(d->segment.control_inode, inode);
    tn_domain_close(d);
}

TN_TEST(a_domain_stays_for_a_moment_after_its_last_member_left)
{
    tn_domain *d = create("d");
    uint64_t inode = d->segment.control_inode;
    tn_domain_close(d);
    d = join("d");
    assert_int_equal(d->segment.control_inode, inode);
    tn_domain_close(d);
}

TN_TEST(tenond_ends_and_tidies_up_when_nothing_is_left)
{
    tn_domain *d = create("d");
    int process_fd = open_process(manager_pid(d));
    tn_domain_close(d);
    await_end(process_fd);
    char path[256];
    snprintf(path, sizeof path, "%s/" TNI_MANAGER_SOCKET, tnt_folder());
    assert_int_not_equal(access(path, F_OK), 0);
    snprintf(path, sizeof path, "%s/" TNI_MANAGER_LOCK, tnt_folder());
    assert_int_not_equal(access(path, F_OK), 0);
    /* A tenond is started again when it is needed. */
    d = create("d");
    tn_domain_close(d);
}

static int run_tenond(void *argument)
{
    (void)argument;
    execl(getenv("TENON_TENOND"), "tenond", (char *)NULL);
    return 1;
}

TN_TEST(a_second_tenond_of_one_folder_ends_at_once)
{
    tn_domain *d = create("d");
    tnt_wait_ok(tnt_fork(run_tenond, NULL));
    tn_domain_close(d);
}

/* ---- a member that polls, and never waits in a call of tenon ----------------------------- */

static int produce(void *argument)
{
    struct tnt_signal *is_there = ((void **)argument)[0];
    TN_CHECK_OK(tn_queue_attach(((void **)argument)[1], TN_PRODUCER));
    tnt_signal(is_there);
    return pause(); /* until it is killed */
}

static void poll_once(tn_domain *d, int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&p, 1, 20000), 1);
    tn_domain_poll_clear(d);
}

TN_TEST(a_lone_poller_learns_of_a_death_after_tenond_was_killed)
{
    struct tnt_signal is_there = tnt_signal_open();
    tn_domain *d = create("d");
    tn_message m;
    tn_queue *q;
    int fd, status;
    TN_CHECK_OK(tn_queue_open(d, NULL, NULL, 0, &q));
    TN_CHECK_OK(tn_queue_attach(q, TN_CONSUMER));
    TN_CHECK_OK(tn_domain_poll_fd(d, &fd));
    TN_CHECK_OK(tn_object_watch(q, true));
    for (int round = 0; round < 2; round++) {
        pid_t pid = tnt_fork(produce, (void *[]){&is_there, q});
        tnt_await(&is_there);
        while (!tni_manager_is_alive(&d->segment)) /* the next one rings then */
            poll_once(d, fd);
        TN_CHECK(kill(manager_pid(d), SIGKILL) == 0);
        TN_CHECK(kill(pid, SIGKILL) == 0);
        while ((status = tn_queue_pop(q, TN_NOW, &m)) == TN_ERR_TIMED_OUT)
            poll_once(d, fd);
        assert_int_equal(status, TN_ERR_PEER_DIED);
        tnt_wait(pid);
    }
    tn_object_close(q);
    tnt_signal_close(&is_there);
    tn_domain_close(d);
}

/* ---- it cannot be had -------------------------------------------------------------------- */

static void expect_manager_error(const char *path)
{
    tn_domain *d = NULL;
    setenv("TENON_TENOND", path, 1);
    assert_int_equal(tn_domain_open("d", NULL, TN_OPEN_NEW, &d), TN_ERR_MANAGER);
    if (strstr(tn_error_detail(), path) == NULL)
        fail_msg("'%s' does not name %s", tn_error_detail(), path);
    assert_null(d);
}

TN_TEST(a_missing_tenond_is_an_error_that_names_the_path)
{
    expect_manager_error("/nowhere/tenond");
}

TN_TEST(a_tenond_that_cannot_be_executed_is_named_by_its_path)
{
    char path[256];
    snprintf(path, sizeof path, "%s/not-a-program", tnt_folder());
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
    expect_manager_error(path);
    unlink(path);
}

TN_TEST(a_tenond_that_does_nothing_is_an_error_after_a_while)
{
    expect_manager_error("/bin/true");
}

TN_TEST(a_tenond_that_listens_and_does_not_answer_is_an_error_too)
{
    int fd = -1;
    TN_CHECK_OK(tni_os_listen(TNI_MANAGER_SOCKET, &fd));
    expect_manager_error(getenv("TENON_TENOND"));
    close(fd);
    TN_CHECK_OK(tni_os_file_remove(TNI_MANAGER_SOCKET));
}

TN_TEST(an_error_names_a_tenond_of_another_version)
{
    static const char *const name = TNI_MANAGER_PREFIX "another.sock";
    char path[256];
    snprintf(path, sizeof path, "%s/%s", tn_runtime_folder(), name);
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
    expect_manager_error("/bin/true");
    if (strstr(tn_error_detail(), "another version") == NULL)
        fail_msg("'%s' does not speak of another version", tn_error_detail());
    unlink(path);
}

static int create_with_few_descriptors(void *argument)
{
    const rlim_t *most = argument;
    struct rlimit limit = {*most, *most};
    char number[32];
    tn_domain *d = NULL;
    snprintf(number, sizeof number, "limit of %u descriptors", (unsigned)*most);
    TN_CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    TN_CHECK(tn_domain_open(NULL, NULL, 0, &d) == TN_ERR_MANAGER);
    TN_CHECK(strstr(tn_error_detail(), number) != NULL);
    return 0;
}

TN_TEST(a_limit_that_is_too_low_for_a_tenond_is_named)
{
    for (rlim_t most = 10; most <= 60; most += 10)
        tnt_wait_ok(tnt_fork(create_with_few_descriptors, &most));
}

static int create_two(void *argument)
{
    struct rlimit limit = {64, 64};
    (void)argument;
    TN_CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    tn_domain *one = create("one"), *other = create("other");
    tn_domain_close(one);
    tn_domain_close(other);
    return 0;
}

TN_TEST(a_limit_of_64_descriptors_is_enough_for_a_tenond)
{
    tnt_wait_ok(tnt_fork(create_two, NULL));
}

TN_TEST(a_domain_without_tenond_needs_none)
{
    setenv("TENON_TENOND", "/nowhere/tenond", 1);
    tn_domain *d = NULL;
    const tn_domain_options options = {.struct_size = sizeof options,
                                       .flags = TN_DOMAIN_NO_MANAGER};
    TN_CHECK_OK(tn_domain_open(NULL, &options, 0, &d));
    assert_int_equal(manager_pid(d), 0);
    tn_domain_close(d);
}

/* ---- what it costs ----------------------------------------------------------------------- */

/*
 * The bytes that only this process uses: anonymous memory, and changed pages of files,
 * without those of domains.
 */
static uint64_t private_bytes(int32_t pid)
{
    char path[64], line[512];
    uint64_t kib = 0, sum_kib = 0;
    bool is_shared = false, is_file = false;
    snprintf(path, sizeof path, "/proc/%d/smaps", pid);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        char permissions[8], name[300] = "";
        if (sscanf(line, "%*x-%*x %7s %*x %*s %*u %299s", permissions, name) >= 1 &&
            strchr(line, '-') != NULL && line[0] != 'P' && strlen(permissions) == 4 &&
            (permissions[3] == 's' || permissions[3] == 'p')) {
            is_shared = permissions[3] == 's';
            is_file = name[0] == '/';
        } else if (!is_shared &&
                   (sscanf(line, "Private_Dirty: %lu", &kib) == 1 ||
                    (!is_file && sscanf(line, "Private_Clean: %lu", &kib) == 1))) {
            sum_kib += kib;
        }
    }
    fclose(file);
    return sum_kib * 1024;
}

static unsigned count_descriptors(int32_t pid)
{
    unsigned count = 0;
    for (int fd = 0; fd < 1024; fd++) {
        char path[64];
        struct stat status;
        snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
        count += lstat(path, &status) == 0;
    }
    return count;
}

/* While tenond reads /proc of a process, it has a descriptor or two more. */
static void await_descriptors(int32_t pid, unsigned most)
{
    uint64_t deadline_ns = tnt_until_ns(LONG_MS);
    unsigned count;
    int none = -1;
    while ((count = count_descriptors(pid)) > most && tni_os_now_ns() < deadline_ns)
        tni_os_poll(&none, 1, tnt_until_ns(1));
    assert_in_range(count, 1, most);
}

TN_TEST(tenond_needs_less_than_two_mebibytes_and_few_descriptors)
{
    tn_domain *d = create("d");
    struct member member = open_member(d, 20000);
    for (uint64_t i = 1; i <= 4; i++) {
        tnt_kill(start_member(&member));
        await_deaths(d, i);
    }
    assert_int_equal(live_blocks(d), 0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* they use memory */
    assert_in_range(private_bytes(manager_pid(d)), 1, 2 << 20);
#endif
    printf("# %llu bytes, %u descriptors\n", (unsigned long long)private_bytes(manager_pid(d)),
           count_descriptors(manager_pid(d)));
    /*
     * Three standard ones, the lock, two of the pipe, the loop, bell, socket; control, arena,
     * and the process descriptor of this test.
     */
    await_descriptors(manager_pid(d), 12);
    close_member(&member);
    tn_domain_close(d);
}

enum { HOUSES = 12 };

/* A domain of a machine with much memory, in which a member is killed. */
static int live_in_a_large_domain(void *argument)
{
    const tn_domain_options options = {.struct_size = sizeof options,
                                       .quota_bytes = UINT64_C(1) << 40};
    struct tnt_signal *made = argument;
    tn_domain *d;
    TN_CHECK_OK(tn_domain_open(NULL, &options, 0, &d));
    struct member member = open_member(d, 10);
    tnt_kill(start_member(&member));
    await_deaths(d, 1);
    assert_int_equal(live_blocks(d), 0);
    close_member(&member);
    tnt_signal(&made[0]);
    tnt_await(&made[1]);
    tn_domain_close(d);
    return 0;
}

/* The arena of one domain takes 50 TiB of addresses, of the 128 that a process has. */
TN_TEST(tenond_manages_a_dozen_domains_of_a_tebibyte_at_once)
{
    struct tnt_signal made[2] = {tnt_signal_open(), tnt_signal_open()};
    pid_t pids[HOUSES];
    for (int i = 0; i < HOUSES; i++) {
        pids[i] = tnt_fork(live_in_a_large_domain, made);
        tnt_await(&made[0]);
    }
    for (int i = 0; i < HOUSES; i++)
        tnt_signal(&made[1]);
    for (int i = 0; i < HOUSES; i++)
        tnt_wait_ok(pids[i]);
    tnt_signal_close(&made[0]);
    tnt_signal_close(&made[1]);
}

/* ---- its enemies ------------------------------------------------------------------------- */

static int connect_to_tenond(void)
{
    int fd = -1;
    TN_CHECK_OK(tni_os_connect(TNI_MANAGER_SOCKET, &fd));
    return fd;
}

/*
 * Whatever the packet is, tenond closes the connection in the end. @return the status of the
 * reply, or 1 if there was none
 */
static int send_packet(const void *bytes, size_t size_bytes, const int *fds, uint32_t fd_count)
{
    int fd = connect_to_tenond(), status = 1, got;
    struct tni_reply reply;
    int got_fds[2];
    uint32_t got_count;
    TN_CHECK_OK(tni_os_send(fd, bytes, size_bytes, fds, fd_count));
    while ((got = tni_os_receive(fd, &(struct tni_os_buffer){&reply, sizeof reply, got_fds, 2},
                                 tnt_until_ns(LONG_MS), &got_count)) > 0) {
        for (uint32_t i = 0; i < got_count; i++)
            tni_os_close(got_fds[i]);
        TN_CHECK(got == (int)sizeof reply && reply.magic == TNI_REQUEST_MAGIC);
        status = reply.status;
    }
    TN_CHECK(got == 0);
    tni_os_close(fd);
    return status;
}

static struct tni_request make_request(uint32_t verb, const char *name)
{
    struct tni_request request = {
        .magic = TNI_REQUEST_MAGIC, .version = TNI_REQUEST_VERSION, .verb = verb};
    memcpy(request.name, name, strlen(name));
    return request;
}

TN_TEST(packets_that_make_no_sense_are_refused_without_harm)
{
    tn_domain *d = create("d");
    int32_t pid = manager_pid(d);
    struct tni_request request = make_request(TNI_REQUEST_FIND, "d");
    unsigned char large[4096] = {0};

    assert_int_equal(send_packet("x", 1, NULL, 0), 1);
    assert_int_equal(send_packet(large, sizeof large, NULL, 0), 1);
    assert_int_equal(send_packet(&request, sizeof request - 1, NULL, 0), 1);
    request.magic++;
    assert_int_equal(send_packet(&request, sizeof request, NULL, 0), 1);
    request = make_request(TNI_REQUEST_FIND, "d");
    request.version = TNI_REQUEST_VERSION + 1;
    assert_int_equal(send_packet(&request, sizeof request, NULL, 0), TN_ERR_VERSION);
    assert_int_equal(send_packet(&request, 8, NULL, 0), TN_ERR_VERSION);
    memset(request.name, 'n', sizeof request.name);
    request.version = TNI_REQUEST_VERSION;
    assert_int_equal(send_packet(&request, sizeof request, NULL, 0), 1);

    request = make_request(99, "d");
    assert_int_equal(send_packet(&request, sizeof request, NULL, 0), TN_ERR_UNSUPPORTED);
    request = make_request(TNI_REQUEST_REGISTER, "d");
    assert_int_equal(send_packet(&request, sizeof request, NULL, 0), TN_ERR_INVALID);
    int fds[8], ends[2];
    TN_CHECK_OK(tni_os_pipe(ends));
    for (int i = 0; i < 8; i++)
        fds[i] = ends[i % 2];
    assert_int_equal(send_packet(&request, sizeof request, fds, 2), TN_ERR_CORRUPT);
    send_packet(&request, sizeof request, fds, 8);
    for (int i = 0; i < 200; i++) {
        uint64_t noise[sizeof request / 8];
        for (size_t k = 0; k < TNI_COUNT(noise); k++)
            noise[k] = tnt_random();
        if (i % 2 == 0)
            memcpy(noise, &request, 8);
        send_packet(noise, sizeof noise, fds, (uint32_t)tnt_random_below(9));
    }
    tni_os_close(ends[0]);
    tni_os_close(ends[1]);
    request = make_request(TNI_REQUEST_GC, "");
    assert_int_equal(send_packet(&request, sizeof request, NULL, 0), 0);
    tn_domain *again = join("d");
    assert_int_equal(manager_pid(again), pid);
    await_descriptors(pid, 13);
    tn_domain_close(again);
    tn_domain_close(d);
}

TN_TEST(half_a_domain_and_one_of_random_bytes_are_not_taken)
{
    tn_domain *d = create("d");
    struct tni_request request = make_request(TNI_REQUEST_REGISTER, "e");
    size_t page = tni_os_page_bytes();
    int fds[2];
    void *bytes;
    TN_CHECK_OK(tni_os_memory_create(TNI_CONTROL_PREFIX "e", 4 * page, &fds[0]));
    TN_CHECK_OK(tni_os_memory_create(TNI_ARENA_PREFIX "e", 4 * page, &fds[1]));
    assert_int_equal(send_packet(&request, sizeof request, fds, 2), TN_ERR_CORRUPT);
    TN_CHECK_OK(tni_os_map(fds[0], 4 * page, page, false, &bytes));
    memcpy(bytes, d->segment.header, sizeof(struct tni_header)); /* truncated */
    assert_int_equal(send_packet(&request, sizeof request, fds, 2), TN_ERR_CORRUPT);
    const int swapped[2] = {d->segment.arena_fd, d->segment.control_fd};
    assert_int_equal(send_packet(&request, sizeof request, swapped, 2), TN_ERR_CORRUPT);
    const int foreign[2] = {d->segment.control_fd, fds[1]};
    assert_int_equal(send_packet(&request, sizeof request, foreign, 2), TN_ERR_CORRUPT);
    tni_os_unmap(bytes, 4 * page);
    tni_os_close(fds[0]);
    tni_os_close(fds[1]);
    tn_domain_close(join("d"));
    tn_domain_close(d);
}

TN_TEST(silent_and_greedy_clients_do_not_keep_others_out)
{
    enum { SILENT = 300, REQUESTS = 200 };
    tn_domain *d = create("d");
    int silent[SILENT];
    for (int i = 0; i < SILENT; i++)
        silent[i] = connect_to_tenond();
    tn_domain_close(join("d"));
    /* This client sends requests all the time, and never reads. */
    int greedy = connect_to_tenond();
    struct tni_request request = make_request(TNI_REQUEST_FIND, "d");
    for (int i = 0, status = 0; i < REQUESTS && status == 0; i++)
        status = tni_os_send(greedy, &request, sizeof request, NULL, 0);
    tn_domain_close(join("d"));
    await_descriptors(manager_pid(d), 12 + 256);
    tni_os_close(greedy);
    for (int i = 0; i < SILENT; i++)
        tni_os_close(silent[i]);
    tn_domain_close(d);
}

TN_TEST_WITHIN(a_domain_full_of_noise_is_dropped_and_the_others_are_served, 60)
{
    for (int round = 0; round < 3; round++) {
        tn_domain *good = create("good"), *bad = create("bad");
        struct member member = open_member(good, 10);
        pid_t pid = start_member(&member);
        int32_t tenond = manager_pid(good);
        const struct tni_geometry *g = &bad->segment.geometry;
        uint64_t tables = g->words_off;
        /* The first round damages all but the start of the header, the second that too. */
        for (uint64_t at = round == 0 ? 256 : 0; at + 8 <= tables; at += 8) {
            uint64_t noise = tnt_random();
            memcpy(tni_control_at(&bad->segment, at), &noise, 8);
        }
        tnt_kill(pid);
        await_deaths(good, 1);
        assert_int_equal(live_blocks(good), 0);
        assert_int_equal(manager_pid(good), tenond);
        close_member(&member);
        /* The member of the damaged domain cannot leave in good order any more. */
        bad->seat = TNI_NO_SEAT;
        tn_domain_close(bad);
        tn_domain_close(good);
    }
}

/* ---- names that are taken back ----------------------------------------------------------- */

/* A process that has the descriptors of a domain, and takes a seat when it is told to. */
struct latecomer {
    struct tnt_signal made, found, go;
    bool awaits_drop;
};

/* Wait until the tenond of a domain that this process is not in has left the domain. */
static void await_drop(int control_fd, int arena_fd)
{
    struct tni_segment s;
    uint64_t deadline_ns = tnt_until_ns(LONG_MS);
    TN_CHECK_OK(tni_segment_attach(dup(control_fd), dup(arena_fd), true, &s));
    uint64_t manager = atomic_load(&s.header->manager);
    while (tni_process_who_lives(&s, manager)) {
        TN_CHECK(tni_os_now_ns() < deadline_ns);
        tni_os_yield();
    }
    tni_segment_detach(&s);
}

static int come_late(void *argument)
{
    struct latecomer *late = argument;
    int control_fd, arena_fd;
    char value[TNI_PASS_BYTES];
    tn_domain *d = NULL;
    tnt_await(&late->made);
    TN_CHECK_OK(tni_manager_find("d", false, &control_fd, &arena_fd));
    tnt_signal(&late->found);
    if (late->awaits_drop)
        await_drop(control_fd, arena_fd);
    tnt_await(&late->go);
    snprintf(value, sizeof value, "%d,%d", control_fd, arena_fd);
    setenv(TNI_DOMAIN_VARIABLE, value, 1);
    TN_CHECK(tn_domain_inherit(&d) == TN_ERR_NOT_FOUND);
    TN_CHECK(strstr(tn_error_detail(), "the domain 'd' ended before") != NULL);
    TN_CHECK(d == NULL);
    tni_os_close(control_fd); /* not consumed */
    tni_os_close(arena_fd);
    TN_CHECK_OK(tn_domain_open("d", NULL, 0, &d));
    tnt_signal(&late->found);
    tnt_await(&late->go);
    tn_domain_close(d);
    return 0;
}

static struct latecomer open_latecomer(pid_t *ret_pid, bool awaits_drop)
{
    struct latecomer late = {.made = tnt_signal_open(),
                             .found = tnt_signal_open(),
                             .go = tnt_signal_open(),
                             .awaits_drop = awaits_drop};
    *ret_pid = tnt_fork(come_late, &late); /* there is no domain yet, so it has no seat */
    return late;
}

/* It takes a seat in the domain that has the name now, which is `d`. */
static void end_latecomer(struct latecomer *late, pid_t pid, tn_domain *d)
{
    assert_int_equal(tnt_members(&d->segment, 2), 2);
    tnt_signal(&late->go);
    tnt_wait_ok(pid);
    tnt_signal_close(&late->made);
    tnt_signal_close(&late->found);
    tnt_signal_close(&late->go);
    tn_domain_close(d);
}

TN_TEST(a_late_join_of_a_name_that_was_reused_finds_its_new_domain)
{
    pid_t pid;
    struct latecomer late = open_latecomer(&pid, false);
    tn_domain *d = create("d");
    tnt_signal(&late.made);
    tnt_await(&late.found);
    tn_domain_close(d);
    d = create("d");
    tnt_signal(&late.go);
    tnt_await(&late.found);
    end_latecomer(&late, pid, d);
}

TN_TEST(a_late_join_of_a_domain_that_tenond_left_makes_a_new_one)
{
    pid_t pid;
    struct latecomer late = open_latecomer(&pid, true);
    tn_domain *d = create("d"), *other = create("other"); /* it keeps tenond alive */
    tnt_signal(&late.made);
    tnt_await(&late.found);
    tn_domain_close(d);
    tnt_signal(&late.go);
    tnt_await(&late.found);
    end_latecomer(&late, pid, join("d"));
    tn_domain_close(other);
}

enum { RACES = 300 };

/* Each member of a domain is in the domain that its name finds. */
static int join_and_look(void *argument)
{
    (void)argument;
    uint32_t joined = 0;
    for (uint64_t end_ns = tnt_until_ns(30000); joined < RACES;) {
        struct tni_os_memory memory;
        tn_domain *d;
        int control_fd, arena_fd, status = tn_domain_open("d", NULL, TN_OPEN_EXISTING, &d);
        TN_CHECK(status == 0 || status == TN_ERR_NOT_FOUND);
        TN_CHECK(tni_os_now_ns() < end_ns);
        if (status != 0)
            continue;
        TN_CHECK_OK(tni_manager_find("d", true, &control_fd, &arena_fd));
        TN_CHECK_OK(tni_os_memory_stat(control_fd, &memory));
        TN_CHECK(memory.inode == d->segment.control_inode);
        tni_os_close(control_fd);
        tni_os_close(arena_fd);
        tn_domain_close(d);
        joined++;
    }
    return 0;
}

TN_TEST_WITHIN(a_name_has_one_domain_when_joins_and_makes_race, 60)
{
    pid_t pid = tnt_fork(join_and_look, NULL);
    int fd = open_process(pid);
    uint32_t made = 0;
    while (tni_os_poll(&fd, 1, 0) == TN_ERR_TIMED_OUT) {
        tn_domain *d;
        int status = tn_domain_open("d", NULL, TN_OPEN_NEW, &d);
        TN_CHECK(status == 0 || status == TN_ERR_EXISTS);
        made += status == 0;
        if (status == 0)
            tn_domain_close(d);
    }
    tnt_wait_ok(pid);
    tnt_note("%u domains were made", made);
    tni_os_close(fd);
}

TN_TEST(a_tenond_that_dies_giving_up_a_name_leaves_it_free)
{
#if defined(TN_KILL_POINTS)
    pid_t pid;
    struct latecomer late = open_latecomer(&pid, false);
    setenv("TENON_KILL_POINT", "tenond_gives_up", 1);
    tn_domain *d = create("d");
    unsetenv("TENON_KILL_POINT");
    int fd = open_process(manager_pid(d));
    tnt_signal(&late.made);
    tnt_await(&late.found);
    tn_domain_close(d);
    await_end(fd);
    d = create("d");
    tnt_signal(&late.go);
    tnt_await(&late.found);
    end_latecomer(&late, pid, d);
#else
    tnt_skip("this build has no kill points");
#endif
}

TN_TEST(an_unwatched_death_makes_the_next_tenond_manage_the_domain)
{
    tn_domain *d = create("d");
    int32_t old = manager_pid(d);
    atomic_store(&d->segment.header->runtime, 0);
    kill_and_await(old, SIGKILL);
    await_successor(d, old);
    assert_int_equal(atomic_load(&d->segment.header->runtime), tni_manager_runtime());
    tn_domain *again = join("d");
    assert_int_equal(tnt_members(&d->segment, 2), 2);
    tn_domain_close(again);
    tn_domain_close(d);
}

/* ---- dying at its work ------------------------------------------------------------------- */

TN_TEST(another_tenond_finishes_what_a_dead_one_was_reclaiming)
{
#if defined(TN_KILL_POINTS)
    static const char *const points[] = {"reclaim_claimed", "row_unrecorded:3",
                                         "reclaim_before_free"};
    for (size_t i = 0; i < TNI_COUNT(points); i++) {
        char name[16];
        snprintf(name, sizeof name, "d%zu", i);
        setenv("TENON_KILL_POINT", points[i], 1);
        /* Not tn_domain_open(), in which this process would be killed at that point itself. */
        tn_domain *d = create(name);
        unsetenv("TENON_KILL_POINT");
        int32_t old = manager_pid(d);
        int old_fd = open_process(old);
        struct member member = open_member(d, 10);
        tnt_kill(start_member(&member));
        await_end(old_fd);
        await_successor(d, old);
        await_deaths(d, 2);
        assert_int_equal(live_blocks(d), 0);
        TNT_AUDIT(d);
        close_member(&member);
        int fd = open_process(manager_pid(d));
        tn_domain_close(d);
        await_end(fd); /* the next tenond shall start with the next point */
    }
#else
    tnt_skip("this build has no kill points");
#endif
}

static int become_cat(void *argument)
{
    struct member *member = argument;
    tn_tensor *tensor;
    TN_CHECK_OK(tn_tensor_create(member->domain, TN_FLOAT32, 1, &(int64_t){10}, NULL, &tensor));
    dup2(member->go.read_fd, 0);
    execl("/bin/cat", "cat", (char *)NULL);
    return 1;
}

TN_TEST(tenond_notices_a_forked_member_that_became_another_program)
{
    tn_domain *d = create("d");
    struct member member = open_member(d, 0);
    pid_t pid = tnt_fork(become_cat, &member);
    await_deaths(d, 1);
    assert_int_equal(live_blocks(d), 0);
    assert_int_equal(kill(pid, 0), 0);
    tnt_kill(pid);
    close_member(&member);
    tn_domain_close(d);
}

static int join_and_become_cat(void *argument)
{
    struct member *member = argument;
    tn_domain *d;
    TN_CHECK_OK(tn_domain_open("d", NULL, TN_OPEN_EXISTING, &d));
    member->domain = d;
    return become_cat(member);
}

TN_TEST(tenond_notices_that_a_member_executed_another_program)
{
    tn_domain *d = create("d");
    struct member member = open_member(d, 0);
    pid_t pid = tnt_fork(join_and_become_cat, &member);
    await_deaths(d, 2); /* the seat that it had by fork, and the one that it took */
    assert_int_equal(live_blocks(d), 0);
    assert_int_equal(kill(pid, 0), 0);
    tnt_kill(pid);
    close_member(&member);
    tn_domain_close(d);
}
