/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attacks on the socket of tenond, and on that of its vault: floods, halves of requests,
 * descriptors where none belong, thousands of connections that send nothing. A well-behaved
 * member is served within SERVED_MS all the while. Afterwards tenond is the same process,
 * with as many descriptors as before, and no more memory.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/harness.h"
#include "reaper/reaper.h"

#define MS_NS UINT64_C(1000000)
enum {
    SERVED_MS = 1000, /* the longest that a well-behaved member waits */
    IDLE = 2500,      /* connections that send nothing */
    FLOODERS = 4,
    FLOOD_MS = 1500,
    SILENCE_MS = 10000, /* how long a connection may be silent (clients.c) */
    CALM_MS = 15000, /* tenond is as before by then: silent connections are closed after 10 s */
#if defined(__SANITIZE_ADDRESS__)
    MOST_GROWTH = 300 << 20 /* the sanitizer keeps freed memory for a while */
#else
    MOST_GROWTH = 2 << 20 /* how much its private memory may grow */
#endif
};

/*
 * A process keeps one socket for ringing bells. It is made here, before a test counts
 * descriptors.
 */
__attribute__((constructor)) static void ring_once(void) { tni_os_bell_ring(1); }

/* ---- tenond, seen from outside ----------------------------------------------------------- */

struct figures {
    unsigned descriptors;
    uint64_t bytes;
};

static unsigned count_descriptors(int32_t pid)
{
    unsigned count = 0;
    for (int fd = 0; fd < 4096; fd++) {
        char path[64];
        struct stat status;
        snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
        count += lstat(path, &status) == 0;
    }
    return count;
}

/* The anonymous memory that a process has touched. */
static uint64_t anonymous_bytes(int32_t pid)
{
    char path[64], line[256];
    unsigned long long kib = 0;
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "RssAnon: %llu kB", &kib) == 1)
            break;
    fclose(file);
    return kib * 1024;
}

static struct figures figures_of(int32_t pid)
{
    return (struct figures){count_descriptors(pid), anonymous_bytes(pid)};
}

/* ---- the polite member ------------------------------------------------------------------- */

struct house {
    tn_domain *domain;
    int32_t tenond, vault;
    struct figures before, vault_before;
    uint64_t longest_ns;
};

static int32_t manager_pid(const tn_domain *d)
{
    uint64_t who = atomic_load(&d->segment.header->manager);
    return who == 0 ? 0 : atomic_load(&tni_seat_at(&d->segment, tni_who_seat(who))->pid);
}

/* The pid of the process that listens at a socket of the runtime folder. */
static int32_t listener_of(const char *name)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    int fd;
    TN_CHECK_OK(tni_os_connect(name, &fd));
    TN_CHECK(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0);
    tni_os_close(fd);
    return peer.pid;
}

/* Ask tenond as a member does: find a domain by its name, make a deposit, and fetch it. */
static void be_served(struct house *house)
{
    const tn_tensor_options options = {.struct_size = sizeof options,
                                       .strategy = TN_STRATEGY_FILE_DESCRIPTOR};
    const int64_t bytes = 100;
    tn_domain *again;
    tn_tensor *t;
    uint64_t begun_ns = tni_os_now_ns();
    TN_CHECK_OK(tn_domain_open("house", NULL, TN_OPEN_EXISTING, &again));
    uint64_t joined_ns = tni_os_now_ns();
    TN_CHECK_OK(tn_tensor_create(again, TN_UINT8, 1, &bytes, &options, &t));
    uint64_t made_ns = tni_os_now_ns();
    tn_tensor_unref(t);
    tn_domain_close(again);
    house->longest_ns = TNI_MAX(house->longest_ns, joined_ns - begun_ns);
    house->longest_ns = TNI_MAX(house->longest_ns, made_ns - joined_ns);
    assert_in_range((joined_ns - begun_ns) / MS_NS, 0, SERVED_MS);
    assert_in_range((made_ns - joined_ns) / MS_NS, 0, SERVED_MS);
}

static void move_in(struct house *house)
{
    *house = (struct house){0};
    TN_CHECK_OK(tn_domain_open("house", NULL, TN_OPEN_NEW, &house->domain));
    be_served(house); /* with the first deposit a vault is started */
    house->tenond = manager_pid(house->domain);
    house->vault = listener_of(TNI_VAULT_SOCKET);
    house->before = figures_of(house->tenond);
    house->vault_before = figures_of(house->vault);
}

static bool is_as_before(int32_t pid, const struct figures *before)
{
    struct figures now = figures_of(pid);
    return now.descriptors <= before->descriptors && now.bytes <= before->bytes + MOST_GROWTH;
}

static void move_out(struct house *house)
{
    uint64_t deadline_ns = tnt_until_ns(CALM_MS);
    int none = -1;
    while (!is_as_before(house->tenond, &house->before) ||
           !is_as_before(house->vault, &house->vault_before)) {
        if (tni_os_now_ns() >= deadline_ns)
            fail_msg("tenond: %u descriptors, %llu bytes; before: %u, %llu",
                     figures_of(house->tenond).descriptors,
                     (unsigned long long)figures_of(house->tenond).bytes,
                     house->before.descriptors, (unsigned long long)house->before.bytes);
        tni_os_poll(&none, 1, tnt_until_ns(20));
    }
    be_served(house);
    assert_int_equal(manager_pid(house->domain), house->tenond);
    assert_int_equal(listener_of(TNI_VAULT_SOCKET), house->vault);
    TNT_AUDIT(house->domain);
    tnt_note("served in %llu ms at most", (unsigned long long)(house->longest_ns / MS_NS));
    tn_domain_close(house->domain);
}

/* ---- enemies ----------------------------------------------------------------------------- */

/*
 * Connect a plain socket, over which any bytes can be sent. @return -1: tenond takes no
 * connection now
 */
static int connect_raw(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s/%s", tnt_folder(), name);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static void send_raw(int fd, const void *bytes, size_t size_bytes, int with_fd, uint32_t count)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))] = {0};
    struct iovec part = {(void *)(uintptr_t)bytes, size_bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (count > 0) {
        message.msg_control = control;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(count * sizeof(int));
        for (uint32_t i = 0; i < count; i++)
            memcpy(CMSG_DATA(head) + i * sizeof(int), &with_fd, sizeof(int));
    }
    (void)!sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void close_many(const int *fds, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

static struct tni_request any_request(void)
{
    struct tni_request request = {.magic = TNI_REQUEST_MAGIC,
                                  .version = TNI_REQUEST_VERSION,
                                  .verb = (uint32_t)tnt_random_below(8),
                                  .block = (uint32_t)tnt_random(),
                                  .generation = (uint32_t)tnt_random_below(4),
                                  .name = "house"};
    if (tnt_random_below(4) == 0)
        request.version = (uint32_t)tnt_random();
    if (tnt_random_below(8) == 0)
        memset(request.name, 'x', sizeof request.name);
    return request;
}

/* Send requests without end, of every kind and length, and do not read most of the replies. */
static int flood(void *argument)
{
    const char *name = argument;
    uint64_t end_ns = tnt_until_ns(FLOOD_MS);
    int fds[16], null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    uint32_t next = 0;
    memset(fds, 0xff, sizeof fds);
    for (int i = getpid() % 16; i > 0; i--)
        tnt_random();
    while (tni_os_now_ns() < end_ns) {
        int *fd = &fds[next++ % TNI_COUNT(fds)];
        if (*fd >= 0)
            close(*fd);
        if ((*fd = connect_raw(name)) < 0)
            continue;
        for (uint64_t i = tnt_random_below(4); i > 0; i--) {
            struct tni_request request = any_request();
            size_t size_bytes = tnt_random_below(3) == 0 ? 1 + tnt_random_below(sizeof request)
                                                         : sizeof request;
            uint32_t count = (uint32_t)tnt_random_below(4);
            send_raw(*fd, &request, size_bytes, null_fd, count);
        }
    }
    close_many(fds, TNI_COUNT(fds));
    close(null_fd);
    return 0;
}

static void stand_flood(char *name)
{
    struct house house;
    pid_t pids[FLOODERS];
    move_in(&house);
    for (int i = 0; i < FLOODERS; i++)
        pids[i] = tnt_fork(flood, name);
    for (uint64_t end_ns = tnt_until_ns(FLOOD_MS); tni_os_now_ns() < end_ns;)
        be_served(&house);
    for (int i = 0; i < FLOODERS; i++)
        tnt_wait_ok(pids[i]);
    move_out(&house);
}

TN_TEST_WITHIN(a_flood_of_requests_keeps_no_member_waiting, 60)
{
    stand_flood((char[]){TNI_MANAGER_SOCKET});
}

TN_TEST_WITHIN(a_flood_at_the_vault_keeps_no_member_waiting, 60)
{
    stand_flood((char[]){TNI_VAULT_SOCKET});
}

/* ---- halves ------------------------------------------------------------------------------ */

/* Send the first bytes of a request and then nothing, for every length of a part. */
static void send_halves(struct house *house, const char *name, bool ends)
{
    struct tni_request request = {.magic = TNI_REQUEST_MAGIC,
                                  .version = TNI_REQUEST_VERSION,
                                  .verb = TNI_REQUEST_FIND,
                                  .name = "house"};
    int fds[sizeof request + 8];
    for (size_t size = 0; size < TNI_COUNT(fds); size++) {
        uint8_t bytes[TNI_COUNT(fds)] = {0};
        memcpy(bytes, &request, sizeof request);
        if ((fds[size] = connect_raw(name)) < 0)
            continue;
        if (size > 0)
            send_raw(fds[size], bytes, size, -1, 0);
        if (ends) {
            close(fds[size]);
            fds[size] = -1;
        }
        if (size % 16 == 0)
            be_served(house);
    }
    be_served(house);
    close_many(fds, TNI_COUNT(fds));
}

TN_TEST_WITHIN(partial_requests_and_disconnects_block_no_member, 90)
{
    struct house house;
    move_in(&house);
    send_halves(&house, TNI_MANAGER_SOCKET, false);
    send_halves(&house, TNI_MANAGER_SOCKET, true);
    send_halves(&house, TNI_VAULT_SOCKET, false);
    send_halves(&house, TNI_VAULT_SOCKET, true);
    move_out(&house);
}

/* ---- descriptors ------------------------------------------------------------------------- */

TN_TEST_WITHIN(unexpected_descriptors_are_closed_and_missing_ones_refused, 60)
{
    struct house house;
    move_in(&house);
    int ends[2];
    TN_CHECK_OK(tni_os_pipe(ends));
    for (uint32_t verb = 0; verb < 8; verb++)
        for (uint32_t count = 0; count <= 8; count++) {
            struct tni_request request = {.magic = TNI_REQUEST_MAGIC,
                                          .version = TNI_REQUEST_VERSION,
                                          .verb = verb,
                                          .name = "house"};
            int fd = connect_raw(TNI_MANAGER_SOCKET);
            TN_CHECK(fd >= 0);
            send_raw(fd, &request, sizeof request, ends[1], count);
            struct tni_reply reply = {0};
            TN_CHECK_OK(tni_os_poll(&fd, 1, tnt_until_ns(SERVED_MS)));
            ssize_t got = recv(fd, &reply, sizeof reply, 0);
            TN_CHECK(got == 0 || (got == (ssize_t)sizeof reply && reply.pid == house.tenond));
            close(fd);
        }
    tni_os_close(ends[1]);
    /* tenond has closed all of them: the pipe is at its end. */
    TN_CHECK_OK(tni_os_poll(&ends[0], 1, tnt_until_ns(SERVED_MS)));
    char byte;
    TN_CHECK(tni_os_read(ends[0], &byte, 1) == 0);
    tni_os_close(ends[0]);
    move_out(&house);
}

/* ---- silence ----------------------------------------------------------------------------- */

static void allow_descriptors(uint32_t count)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_max < count && geteuid() == 0)
        limit.rlim_max = count;
    limit.rlim_cur = TNI_MIN(limit.rlim_max, (rlim_t)count);
    setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur < count)
        tnt_skip("this process may not have so many descriptors");
}

TN_TEST_WITHIN(thousands_of_idle_connections_keep_no_member_waiting, 120)
{
    struct house house;
    static int fds[IDLE];
    allow_descriptors(IDLE + 200);
    move_in(&house);
    unsigned most = 0;
    for (int i = 0; i < IDLE; i++) {
        uint64_t deadline_ns = tnt_until_ns(SERVED_MS);
        while ((fds[i] = connect_raw(TNI_MANAGER_SOCKET)) <
               0) { /* more than tenond has accepted */
            TN_CHECK(errno == EAGAIN && tni_os_now_ns() < deadline_ns);
            tni_os_yield();
        }
        if (i % 250 == 0) {
            be_served(&house);
            most = TNI_MAX(most, count_descriptors(house.tenond));
        }
    }
    be_served(&house);
    tnt_note("%u descriptors at most", most);
    close_many(fds, IDLE);
    move_out(&house);
}

TN_TEST_WITHIN(a_silent_connection_is_closed_after_its_time_limit, 60)
{
    struct house house;
    move_in(&house);
    uint64_t begun_ns = tni_os_now_ns();
    int fd = connect_raw(TNI_MANAGER_SOCKET);
    TN_CHECK(fd >= 0);
    TN_CHECK_OK(tni_os_poll(&fd, 1, tnt_until_ns(SILENCE_MS + CALM_MS)));
    char byte;
    TN_CHECK(recv(fd, &byte, sizeof byte, 0) == 0);
    TN_CHECK(tni_os_now_ns() - begun_ns >= SILENCE_MS * MS_NS); /* and not before that */
    close(fd);
    move_out(&house);
}
