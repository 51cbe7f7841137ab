/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "os/linux.h"
#include "os_test.h"

/* The runtime folder. */

/* /run, /tmp and /dev/shm below the test's own folder. */
static char root[96];

static const char *below_root(const char *format)
{
    static char paths[4][2048];
    static unsigned next;
    char *path = paths[next++ % 4], end[128];
    snprintf(end, sizeof end, format, (unsigned)geteuid());
    snprintf(path, sizeof paths[0], "%s/%s", root, end);
    return path;
}

static void begin_root(void)
{
    snprintf(root, sizeof root, "%s/root-XXXXXX", test_folder);
    CHECK(mkdtemp(root) != NULL);
    for (const char *const *part =
             (const char *const[]){"run", "run/user", "tmp", "dev", "dev/shm", NULL};
         *part != NULL; part++)
        CHECK(mkdir(below_root(*part), 0700) == 0);
    tni_linux_root = root;
    unsetenv("TENON_RUNTIME_DIR");
    unsetenv("XDG_RUNTIME_DIR");
}

static void end_root(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", root);
    CHECK(system(command) == 0);
}

static int prepare_anew(void)
{
    tni_linux_forget_folder();
    return tni_os_runtime_prepare();
}

static void expect_folder(const char *format)
{
    tni_linux_forget_folder();
    CHECK(strcmp(tni_os_runtime_folder(), below_root(format)) == 0);
    CHECK(tni_os_runtime_prepare() == 0);
    CHECK(strcmp(tni_os_runtime_folder(), below_root(format)) == 0);
    CHECK(access(below_root(format), W_OK) == 0);
}

static void the_folder_is_chosen_by_the_environment_body(void)
{
    begin_root();
    setenv("TENON_RUNTIME_DIR", "/a/b//", 1);
    CHECK(strcmp(tni_os_runtime_folder(), "/a/b") == 0);
    setenv("TENON_RUNTIME_DIR", "", 1);
    expect_folder("tmp/tenon-%u");
    CHECK(mkdir(below_root("run/user/%u"), 0700) == 0);
    expect_folder("run/user/%u/tenon");
    CHECK(mkdir(below_root("mine"), 0700) == 0);
    setenv("XDG_RUNTIME_DIR", below_root("mine"), 1);
    expect_folder("mine/tenon");
    end_root();
}

static unsigned warnings;
static void count_warnings(int level, const char *line, void *context)
{
    (void)context;
    if (level == TNI_LOG_WARNING && strstr(line, "is used instead") != NULL)
        warnings++;
}

static void stale_session_body(void)
{
    char too_long[3000];
    begin_root();
    tn_log_set(count_warnings, NULL);
    memset(too_long, 'a', sizeof too_long - 1);
    too_long[0] = '/';
    for (size_t bytes = 90; bytes < sizeof too_long; bytes += 2909) {
        too_long[bytes] = '\0';
        setenv("XDG_RUNTIME_DIR", too_long, 1);
        expect_folder("tmp/tenon-%u");
        too_long[bytes] = 'a';
    }
    CHECK(warnings == 1);
    setenv("XDG_RUNTIME_DIR", "relative", 1);
    expect_folder("tmp/tenon-%u");
    setenv("XDG_RUNTIME_DIR", below_root("missing"), 1);
    expect_folder("tmp/tenon-%u");
    CHECK(mkdir(below_root("run/user/%u"), 0700) == 0);
    expect_folder("run/user/%u/tenon");
    CHECK(mkdir(below_root("mine"), 0700) == 0);
    CHECK(mkdir(below_root("mine/tenon"), 0777) == 0 &&
          chmod(below_root("mine/tenon"), 0777) == 0);
    setenv("XDG_RUNTIME_DIR", below_root("mine"), 1);
    expect_folder("run/user/%u/tenon");
    CHECK(chmod(below_root("mine/tenon"), 0700) == 0);
    expect_folder("mine/tenon");
    if (geteuid() == 0) { /* as after `sudo -E` */
        CHECK(rmdir(below_root("mine/tenon")) == 0);
        CHECK(chown(below_root("mine"), 65534, 65534) == 0);
        expect_folder("run/user/%u/tenon");
        CHECK(access(below_root("mine/tenon"), F_OK) != 0);
    }
    end_root();
}

static void a_session_folder_that_cannot_be_used_is_replaced(void **state)
{
    (void)state;
    run_in_child(stale_session_body);
}

static void squatted_folder_body(void)
{
    begin_root();
    CHECK(symlink("/", below_root("tmp/tenon-%u")) == 0);
    expect_folder("dev/shm/tenon-%u");
    CHECK(rmdir(below_root("dev/shm/tenon-%u")) == 0);
    CHECK(symlink("/", below_root("dev/shm/tenon-%u")) == 0);
    expect_folder("tmp/tenon-%u-1");
    /* A process that starts when the first folder exists again has to find the others. */
    CHECK(unlink(below_root("tmp/tenon-%u")) == 0);
    expect_folder("tmp/tenon-%u-1");
    CHECK(rmdir(below_root("tmp/tenon-%u-1")) == 0);
    expect_folder("tmp/tenon-%u");
    CHECK(rmdir(below_root("tmp/tenon-%u")) == 0);
    CHECK(symlink("/", below_root("tmp/tenon-%u")) == 0);
    char spare[] = "tmp/tenon-%u-0";
    for (spare[13] = '1'; spare[13] <= '9'; spare[13]++)
        CHECK(symlink("/", below_root(spare)) == 0);
    CHECK(prepare_anew() < 0);
    CHECK(strstr(tn_error_detail(), "no other folder can be used") != NULL);
    end_root();
}

static void a_folder_that_another_user_made_is_skipped(void **state)
{
    (void)state;
    run_in_child(squatted_folder_body);
}

static void the_folder_is_chosen_by_the_environment(void **state)
{
    (void)state;
    run_in_child(the_folder_is_chosen_by_the_environment_body);
}

static void prepare_body(void)
{
    char path[128];
    char other[128];
    struct stat status;
    CHECK(prepare_anew() == 0);
    CHECK(prepare_anew() == 0);

    snprintf(path, sizeof path, "%s/sub", test_folder);
    snprintf(other, sizeof other, "%s/link/", test_folder);
    setenv("TENON_RUNTIME_DIR", path, 1);
    CHECK(prepare_anew() == 0);
    CHECK(stat(path, &status) == 0 && (status.st_mode & 07777) == 0700);
    CHECK(chmod(path, 0750) == 0);
    CHECK(prepare_anew() == TN_ERR_DENIED);
    CHECK(strstr(tn_error_detail(), "0750") != NULL);
    CHECK(chmod(path, 0700) == 0);

    other[strlen(other) - 1] = '\0';
    CHECK(symlink(path, other) == 0);
    strcat(other, "/");
    setenv("TENON_RUNTIME_DIR", other, 1);
    CHECK(prepare_anew() == TN_ERR_DENIED);
    setenv("TENON_RUNTIME_DIR", "/nowhere/at/all", 1);
    CHECK(prepare_anew() == TN_ERR_NOT_FOUND);
    CHECK(strstr(tn_error_detail(), "/nowhere/at/all") != NULL);
    setenv("TENON_RUNTIME_DIR", "relative", 1);
    CHECK(prepare_anew() == TN_ERR_INVALID);

    char long_path[3000];
    memset(long_path, 'a', sizeof long_path - 1);
    long_path[0] = '/';
    long_path[sizeof long_path - 1] = '\0';
    setenv("TENON_RUNTIME_DIR", long_path, 1);
    CHECK(prepare_anew() == TN_ERR_INVALID);

    other[strlen(other) - 1] = '\0';
    CHECK(unlink(other) == 0 && rmdir(path) == 0);
}

static void prepare_refuses_what_another_user_could_have_made(void **state)
{
    (void)state;
    run_in_child(prepare_body);
}

static void kept_folder_body(void)
{
    char kept[128];
    begin_root();
    expect_folder("tmp/tenon-%u");
    CHECK(mkdir(below_root("run/user/%u"), 0700) == 0);
    CHECK(mkdir(below_root("mine"), 0700) == 0);
    setenv("XDG_RUNTIME_DIR", below_root("mine"), 1);
    setenv("TENON_RUNTIME_DIR", test_folder, 1);
    CHECK(tni_os_runtime_prepare() == 0 && !tni_os_runtime_is_chosen());
    snprintf(kept, sizeof kept, "%s", tni_os_runtime_folder());
    CHECK(strcmp(kept, below_root("tmp/tenon-%u")) == 0);
    CHECK(rmdir(kept) == 0 && tni_os_runtime_prepare() == 0 && access(kept, W_OK) == 0);
    /* The folder cannot be used any more: the process keeps to another one from now on. */
    CHECK(rmdir(kept) == 0 && symlink("/", kept) == 0 && tni_os_runtime_prepare() == 0);
    CHECK(strcmp(tni_os_runtime_folder(), below_root("mine/tenon")) == 0);
    CHECK(unlink(kept) == 0 && tni_os_runtime_prepare() == 0);
    CHECK(strcmp(tni_os_runtime_folder(), below_root("mine/tenon")) == 0);
    /* A folder that a variable names is not replaced. */
    tni_linux_forget_folder();
    setenv("TENON_RUNTIME_DIR", kept, 1);
    CHECK(tni_os_runtime_prepare() == 0 && tni_os_runtime_is_chosen());
    unsetenv("TENON_RUNTIME_DIR");
    CHECK(chmod(kept, 0750) == 0 && tni_os_runtime_prepare() == TN_ERR_DENIED);
    CHECK(strcmp(tni_os_runtime_folder(), kept) == 0 && tni_os_runtime_is_chosen());
    end_root();
}

static void a_process_keeps_to_the_folder_that_it_used_first(void **state)
{
    (void)state;
    run_in_child(kept_folder_body);
}

static int is_text(const char *folder, void *text) { return strcmp(folder, text) == 0; }

static void wanted_folder_body(void)
{
    char of_service[128], of_session[128];
    begin_root();
    snprintf(of_service, sizeof of_service, "%s", below_root("tmp/tenon-%u"));
    snprintf(of_session, sizeof of_session, "%s", below_root("run/user/%u/tenon"));
    CHECK(mkdir(of_service, 0700) == 0 && mkdir(below_root("run/user/%u"), 0700) == 0);
    CHECK(strcmp(tni_os_runtime_folder(), of_session) == 0);
    CHECK(!tni_os_runtime_keep(is_text, test_folder)); /* not a candidate */
    CHECK(tni_os_runtime_keep(is_text, of_service));
    CHECK(strcmp(tni_os_runtime_folder(), of_service) == 0);
    CHECK(!tni_os_runtime_keep(is_text, of_session));
    CHECK(rmdir(of_service) == 0 && symlink("/", of_service) == 0);
    CHECK(tni_os_runtime_keep(is_text, of_session)); /* its folder cannot be used */
    CHECK(tni_os_runtime_keep(is_text, of_service)); /* it kept to that one before */
    CHECK(strcmp(tni_os_runtime_folder(), of_session) == 0);
    end_root();
}

static void a_process_without_a_folder_keeps_to_that_of_a_domain(void **state)
{
    (void)state;
    run_in_child(wanted_folder_body);
}

static void followed_folder_body(void)
{
    char of_session[128], of_service[128], of_nobody[128];
    begin_root();
    snprintf(of_nobody, sizeof of_nobody, "%s", below_root("dev/shm/tenon-%u"));
    snprintf(of_session, sizeof of_session, "%s", below_root("run/user/%u/tenon"));
    snprintf(of_service, sizeof of_service, "%s", below_root("tmp/tenon-%u"));
    CHECK(mkdir(below_root("run/user/%u"), 0700) == 0);
    CHECK(tni_os_runtime_prepare() == 0 && mkdir(of_service, 0755) == 0);
    const char *first = tni_os_runtime_folder();
    CHECK(!tni_os_runtime_follow(is_text, test_folder)); /* not a candidate */
    CHECK(!tni_os_runtime_follow(is_text, of_service));  /* others may read it */
    CHECK(!tni_os_runtime_follow(is_text, of_nobody));   /* it does not exist */
    CHECK(strcmp(tni_os_runtime_folder(), of_session) == 0);
    CHECK(chmod(of_service, 0700) == 0 && tni_os_runtime_follow(is_text, of_service));
    CHECK(strcmp(tni_os_runtime_folder(), of_service) == 0 && access(of_session, F_OK) == 0);
    setenv("TENON_RUNTIME_DIR", test_folder, 1);       /* too late */
    CHECK(tni_os_runtime_follow(is_text, of_session)); /* and back */
    CHECK(strcmp(tni_os_runtime_folder(), of_session) == 0);
    CHECK(tni_os_runtime_folder() ==
          first); /* one entry for each folder, not for each change */
    tni_linux_forget_folder();
    setenv("TENON_RUNTIME_DIR", of_session, 1);
    CHECK(tni_os_runtime_prepare() == 0 && !tni_os_runtime_follow(is_text, of_service));
    CHECK(strcmp(tni_os_runtime_folder(), of_session) == 0);
    end_root();
}

static void follow_leaves_a_folder_that_is_still_usable(void **state)
{
    (void)state;
    run_in_child(followed_folder_body);
}

static void foreign_folder_body(void)
{
    char path[128];
    snprintf(path, sizeof path, "%s/foreign", test_folder);
    CHECK(mkdir(path, 0700) == 0 && chown(path, 65534, 65534) == 0);
    setenv("TENON_RUNTIME_DIR", path, 1);
    int status = tni_os_runtime_prepare();
    CHECK(rmdir(path) == 0);
    CHECK(status == TN_ERR_DENIED && strstr(tn_error_detail(), "65534") != NULL);
}

static void prepare_refuses_another_users_folder(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip_since("only root can become another user");
    run_in_child(foreign_folder_body);
}

static void a_file_lock_is_held_by_one_and_freed_by_close(void **state)
{
    (void)state;
    int first = -1;
    int second = -1;
    assert_int_equal(tni_os_file_lock("lock", 0, &first), 0);
    assert_int_equal(tni_os_file_lock("lock", 0, &second), TN_ERR_TIMED_OUT);
    assert_int_equal(tni_os_file_lock("lock", tni_os_now_ns() + 1000000, &second),
                     TN_ERR_TIMED_OUT);
    assert_int_equal(second, -1);

    /* A lock on a removed file keeps no other process out. */
    assert_int_equal(tni_os_file_remove("lock"), 0);
    assert_int_equal(tni_os_file_lock("lock", 0, &second), 0);
    tni_os_close(first);
    tni_os_close(second);
    assert_int_equal(tni_os_file_lock("lock", 0, &first), 0);
    tni_os_close(first);
    assert_int_equal(tni_os_file_remove("lock"), 0);
    assert_int_equal(tni_os_file_remove("lock"), TN_ERR_NOT_FOUND);
    assert_int_equal(tni_os_file_lock("../lock", 0, &first), TN_ERR_INVALID);
}

/* Sockets. */

struct pair {
    int listener;
    int here;
    int there;
};

static struct pair open_pair(void)
{
    struct pair pair;
    assert_int_equal(tni_os_listen("sock", &pair.listener), 0);
    assert_int_equal(tni_os_accept(pair.listener, &pair.there), TN_ERR_TIMED_OUT);
    assert_int_equal(tni_os_connect("sock", &pair.here), 0);
    assert_int_equal(tni_os_accept(pair.listener, &pair.there), 0);
    return pair;
}

static void close_pair(struct pair pair)
{
    tni_os_close(pair.listener);
    tni_os_close(pair.here);
    tni_os_close(pair.there);
    assert_int_equal(tni_os_file_remove("sock"), 0);
}

static void a_message_carries_bytes_and_descriptors(void **state)
{
    (void)state;
    uint32_t before = open_count();
    struct pair pair = open_pair();
    int memory = -1;
    int got[8] = {-1};
    uint32_t count = 9;
    char bytes[16] = "";
    struct tni_os_memory sent;
    struct tni_os_memory received;
    assert_int_equal(tni_os_memory_create("t", PAGE, &memory), 0);
    const int fds[] = {memory, memory, memory};
    assert_int_equal(tni_os_send(pair.here, "hello", 5, fds, 3), 0);
    assert_int_equal(tni_os_receive(pair.there,
                                    &(struct tni_os_buffer){bytes, sizeof bytes, got, 8},
                                    soon(), &count),
                     5);
    assert_string_equal(bytes, "hello");
    assert_int_equal(count, 3);
    assert_int_equal(tni_os_memory_stat(memory, &sent), 0);
    assert_int_equal(tni_os_memory_stat(got[1], &received), 0);
    assert_true(sent.inode == received.inode && sent.device == received.device);
    assert_true(fcntl(got[0], F_GETFD) & FD_CLOEXEC);
    for (uint32_t i = 0; i < count; i++)
        tni_os_close(got[i]);
    tni_os_close(memory);
    close_pair(pair);
    assert_int_equal(open_count(), before);
}

static void expect_same_file(int fd, int other)
{
    uint64_t inode, other_inode, device;
    assert_int_equal(tni_os_identify(fd, &inode, &device), 0);
    assert_int_equal(tni_os_identify(other, &other_inode, &device), 0);
    assert_true(inode == other_inode);
}

/* All of them, in their order; or none if the receiver has one place too few. */
static void a_message_has_all_of_its_descriptors_or_none(void **state)
{
    enum { MOST_FDS = 253, FILES = 5 };
    (void)state;
    uint32_t before = open_count();
    struct pair pair = open_pair();
    int files[FILES], fds[MOST_FDS + 1], got[MOST_FDS];
    for (int i = 0; i < FILES; i++)
        assert_int_equal(tni_os_memory_create("t", PAGE, &files[i]), 0);
    for (int i = 0; i <= MOST_FDS; i++)
        fds[i] = files[i % FILES];
    uint32_t opened = open_count();
    static const uint32_t counts[] = {0, 1, 2, 128, MOST_FDS};
    for (size_t n = 0; n < sizeof counts / sizeof *counts; n++) {
        uint32_t sent = counts[n], count = 9999;
        char byte;
        assert_int_equal(tni_os_send(pair.here, "x", 1, fds, sent), 0);
        assert_int_equal(tni_os_receive(pair.there,
                                        &(struct tni_os_buffer){&byte, 1, got, sent}, soon(),
                                        &count),
                         1);
        assert_int_equal(count, sent);
        assert_int_equal(open_count(), opened + sent);
        for (uint32_t i = 0; i < count; i++) {
            expect_same_file(got[i], fds[i]);
            tni_os_close(got[i]);
        }
        if (sent == 0)
            continue;
        assert_int_equal(tni_os_send(pair.here, "x", 1, fds, sent), 0);
        assert_int_equal(tni_os_receive(pair.there,
                                        &(struct tni_os_buffer){&byte, 1, got, sent - 1},
                                        soon(), &count),
                         TN_ERR_INVALID);
        assert_int_equal(open_count(), opened);
    }
    assert_int_equal(tni_os_send(pair.here, "x", 1, fds, MOST_FDS + 1), TN_ERR_INVALID);
    for (int i = 0; i < FILES; i++)
        tni_os_close(files[i]);
    close_pair(pair);
    assert_int_equal(open_count(), before);
}

static void receive_waits_ends_and_refuses_what_is_too_long(void **state)
{
    (void)state;
    struct pair pair = open_pair();
    char bytes[4];
    uint32_t count = 0;
    assert_int_equal(
        tni_os_receive(pair.there, &(struct tni_os_buffer){bytes, 4, NULL, 0}, 0, &count),
        TN_ERR_TIMED_OUT);
    assert_int_equal(tni_os_receive(pair.there, &(struct tni_os_buffer){bytes, 4, NULL, 0},
                                    tni_os_now_ns() + 1000000, &count),
                     TN_ERR_TIMED_OUT);
    assert_int_equal(tni_os_send(pair.here, "12345", 5, NULL, 0), 0);
    assert_int_equal(
        tni_os_receive(pair.there, &(struct tni_os_buffer){bytes, 4, NULL, 0}, 0, &count),
        TN_ERR_INVALID);
    assert_int_equal(tni_os_send(pair.here, "", 0, NULL, 0), TN_ERR_INVALID);
    tni_os_close(pair.here);
    pair.here = -1;
    assert_int_equal(tni_os_receive(pair.there, &(struct tni_os_buffer){bytes, 4, NULL, 0},
                                    TNI_FOREVER, &count),
                     0);
    assert_int_equal(tni_os_send(pair.there, "x", 1, NULL, 0), TN_ERR_CLOSED);
    close_pair(pair);
}

/* The other side closes with unread bytes: recvmsg() fails, and writes nothing. */
static void a_reset_connection_closes_nothing_that_came_before(void **state)
{
    (void)state;
    struct pair pair = open_pair();
    int got[2] = {-1, -1};
    uint32_t count = 0;
    char byte;
    const int fds[] = {pair.listener};
    assert_int_equal(tni_os_send(pair.here, "x", 1, fds, 1), 0);
    assert_int_equal(tni_os_send(pair.there, "y", 1, NULL, 0), 0);
    assert_int_equal(
        tni_os_receive(pair.there, &(struct tni_os_buffer){&byte, 1, got, 2}, soon(), &count),
        1);
    assert_int_equal(count, 1);
    tni_os_close(pair.here);
    pair.here = -1;
    int mine = got[0], again[2] = {-1, -1};
    assert_int_equal(
        tni_os_receive(pair.there, &(struct tni_os_buffer){&byte, 1, again, 2}, soon(), &count),
        0);
    assert_int_equal(count, 0);
    assert_int_equal(again[0], -1);
    assert_true(fcntl(mine, F_GETFD) >= 0);
    tni_os_close(mine);
    close_pair(pair);
}

static void lost_descriptors_body(void)
{
    int ends[2];
    char byte;
    int got[8];
    uint32_t count = 0;
    const int fds[] = {0, 1, 2};
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
    CHECK(tni_os_send(ends[0], "x", 1, fds, 3) == 0);
    const rlim_t most = (rlim_t)ends[1] + 3;
    const struct rlimit limit = {.rlim_cur = most, .rlim_max = most};
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    uint32_t before = open_count();
    CHECK(tni_os_receive(ends[1], &(struct tni_os_buffer){&byte, 1, got, 8}, 0, &count) ==
          TN_ERR_SYSTEM);
    CHECK(strstr(tn_error_detail(), "no descriptors left") != NULL);
    CHECK(count == 0 && open_count() == before);
}

static void receive_keeps_no_descriptor_if_one_does_not_fit(void **state)
{
    (void)state;
    run_in_child(lost_descriptors_body);
}

static void connect_without_a_listener_is_not_found(void **state)
{
    (void)state;
    int fd = -1;
    int listener = -1;
    assert_int_equal(tni_os_connect("nobody", &fd), TN_ERR_NOT_FOUND);
    assert_int_equal(tni_os_listen("nobody", &listener), 0);
    tni_os_close(listener);
    assert_int_equal(tni_os_connect("nobody", &fd), TN_ERR_NOT_FOUND);
    assert_int_equal(tni_os_listen("nobody", &listener), 0);
    assert_int_equal(tni_os_connect("nobody", &fd), 0);
    tni_os_close(fd);
    tni_os_close(listener);
    assert_int_equal(tni_os_file_remove("nobody"), 0);
}

static void a_socket_path_that_is_too_long_is_named(void **state)
{
    (void)state;
    char name[120];
    int fd = -1;
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    assert_int_equal(tni_os_listen(name, &fd), TN_ERR_INVALID);
    assert_non_null(strstr(tn_error_detail(), test_folder));
    assert_int_equal(tni_os_connect(name, &fd), TN_ERR_INVALID);
}

static void stranger_body(void)
{
    int listener = -1;
    int fd = -1;
    CHECK(tni_os_listen("open", &listener) == 0);
    CHECK(chmod(test_folder, 0755) == 0);
    char path[128];
    snprintf(path, sizeof path, "%s/open", test_folder);
    CHECK(chmod(path, 0777) == 0);
    pid_t child = fork();
    if (child == 0) {
        CHECK(setresuid(65534, 65534, 65534) == 0);
        setenv("TENON_RUNTIME_DIR", test_folder, 1);
        CHECK(tni_os_connect("open", &fd) == TN_ERR_DENIED);
        _exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    int accepted = tni_os_accept(listener, &fd);
    CHECK(chmod(test_folder, 0700) == 0 && tni_os_file_remove("open") == 0);
    CHECK(accepted == TN_ERR_DENIED);
}

static void both_sides_refuse_another_user(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip_since("only root can become another user");
    run_in_child(stranger_body);
}

/* Bells. */

static void a_bell_is_readable_from_ring_to_clear(void **state)
{
    (void)state;
    int fd = -1;
    int again = -1;
    uint64_t number = 0;
    assert_int_equal(tni_os_random(&number, sizeof number), 0);
    tni_os_bell_ring(number);
    assert_int_equal(tni_os_bell_create(number, &fd), 0);
    assert_int_equal(tni_os_bell_create(number, &again), TN_ERR_EXISTS);
    assert_int_equal(tni_os_poll(&fd, 1, 0), TN_ERR_TIMED_OUT);
    for (int i = 0; i < 1000; i++)
        tni_os_bell_ring(number);
    assert_int_equal(tni_os_poll(&fd, 1, 0), 0);
    tni_os_bell_clear(fd);
    assert_int_equal(tni_os_poll(&fd, 1, 0), TN_ERR_TIMED_OUT);
    tni_os_close(fd);
    tni_os_bell_ring(number);
}

static void many_unread_bells_body(void)
{
    enum { BELLS = 300 };
    int fds[BELLS];
    uint64_t number = 0;
    CHECK(tni_os_random(&number, sizeof number) == 0);
    for (uint64_t i = 0; i < BELLS; i++) {
        CHECK(tni_os_bell_create(number + i, &fds[i]) == 0);
        for (int k = 0; k < 20; k++)
            tni_os_bell_ring(number + i);
        CHECK(tni_os_poll(&fds[i], 1, 0) == 0);
    }
}

static void a_ring_arrives_although_other_bells_have_unread_rings(void **state)
{
    (void)state;
    run_in_child(many_unread_bells_body);
}

static void lost_ringer_body(void)
{
    int fd = -1;
    uint64_t number = 0;
    CHECK(tni_os_random(&number, sizeof number) == 0);
    CHECK(tni_os_bell_create(number, &fd) == 0);
    tni_os_bell_ring(number);
    for (int i = 3; i < 512; i++) {
        if (i != fd)
            close(i);
    }
    tni_os_bell_clear(fd);
    tni_os_bell_ring(number);
    CHECK(tni_os_poll(&fd, 1, 0) == 0);
}

static void a_bell_rings_after_the_program_closed_every_descriptor(void **state)
{
    (void)state;
    run_in_child(lost_ringer_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_folder_is_chosen_by_the_environment),
        cmocka_unit_test(a_session_folder_that_cannot_be_used_is_replaced),
        cmocka_unit_test(a_folder_that_another_user_made_is_skipped),
        cmocka_unit_test(prepare_refuses_what_another_user_could_have_made),
        cmocka_unit_test(a_process_keeps_to_the_folder_that_it_used_first),
        cmocka_unit_test(a_process_without_a_folder_keeps_to_that_of_a_domain),
        cmocka_unit_test(follow_leaves_a_folder_that_is_still_usable),
        cmocka_unit_test(prepare_refuses_another_users_folder),
        cmocka_unit_test(a_file_lock_is_held_by_one_and_freed_by_close),
        cmocka_unit_test(a_message_carries_bytes_and_descriptors),
        cmocka_unit_test(a_message_has_all_of_its_descriptors_or_none),
        cmocka_unit_test(receive_waits_ends_and_refuses_what_is_too_long),
        cmocka_unit_test(a_reset_connection_closes_nothing_that_came_before),
        cmocka_unit_test(receive_keeps_no_descriptor_if_one_does_not_fit),
        cmocka_unit_test(connect_without_a_listener_is_not_found),
        cmocka_unit_test(a_socket_path_that_is_too_long_is_named),
        cmocka_unit_test(both_sides_refuse_another_user),
        cmocka_unit_test(a_bell_is_readable_from_ring_to_clear),
        cmocka_unit_test(a_ring_arrives_although_other_bells_have_unread_rings),
        cmocka_unit_test(a_bell_rings_after_the_program_closed_every_descriptor),
    };
    return cmocka_run_group_tests_name("os socket", tests, make_test_folder,
                                       remove_test_folder);
}
