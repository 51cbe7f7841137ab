/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: storages by name: when their files go, and what becomes of those left behind. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "backing.h"
#include "harness/gc.h"
#include "harness/tensor.h"

enum { NOBODY = 65534 };

static tn_domain *d;
static tn_queue *q;

static tn_domain *without_tenond(void)
{
    return tnt_domain(&(tn_domain_options){.struct_size = sizeof(tn_domain_options),
                                           .flags = TN_DOMAIN_NO_MANAGER});
}

static void begin(void)
{
    d = tnt_domain(NULL);
    q = open_queue(d);
}

static void finish(void)
{
    q = tn_object_close(q);
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    TNT_AUDIT(d);
    d = tn_domain_close(d);
}

static tn_tensor *make(float first) { return make_as(d, TN_STRATEGY_FILE_SYSTEM, first); }

static unsigned count_entries(const char *folder)
{
    unsigned count = 0;
    DIR *list = opendir(folder);
    for (struct dirent *entry; list != NULL && (entry = readdir(list)) != NULL;)
        count += entry->d_name[0] != '.';
    if (list != NULL)
        closedir(list);
    return count;
}

static unsigned count_files(void) { return count_entries(getenv("TENON_SHM_DIR")); }

static void await_files(unsigned wanted)
{
    uint64_t deadline_ns = tnt_until_ns(BACKING_MS);
    while (count_files() != wanted) {
        TN_CHECK(tni_os_now_ns() < deadline_ns);
        tni_os_yield();
    }
}

/* ---- what is said ------------------------------------------------------------------------ */

static char said[4096];
static unsigned said_done, said_not_done;

/* gc also reports on other domains of this user; this test ignores those reports. */
static int hear(const char *sentence, bool is_done, void *context)
{
    (void)context;
    if (strncmp(sentence, "domain ", strlen("domain ")) == 0)
        return 0;
    said_done += is_done;
    said_not_done += !is_done;
    strncat(said, sentence, sizeof said - strlen(said) - 1);
    return 0;
}

static void gc(void)
{
    said[0] = 0;
    said_done = said_not_done = 0;
    tnt_gc(hear);
}

static char logged[4096];

static void keep_log(int level, const char *line, void *context)
{
    (void)context;
    if (level <= 1)
        strncat(logged, line, sizeof logged - strlen(logged) - 1);
}

/* ---- when a file goes -------------------------------------------------------------------- */

TN_TEST(a_file_goes_with_its_last_reference)
{
    begin();
    tn_tensor *t = make(1), *popped;
    assert_int_equal(count_files(), 1);
    push(q, t, 0);
    tn_tensor_unref(t);
    assert_int_equal(count_files(), 1);
    popped = pop(q);
    expect_numbers(popped, 1);
    tn_tensor_unref(popped);
    assert_int_equal(count_files(), 0);
    finish();
}

static int hold_and_die(void *argument)
{
    (void)argument;
    make(1);
    raise(SIGKILL);
    return 1;
}

TN_TEST(a_file_goes_when_its_holders_are_dead)
{
    begin();
    tnt_wait(tnt_fork(hold_and_die, NULL));
    await_files(0);
    finish();
}

static void export_one(void)
{
    char bytes[TN_HANDLE_MAX_BYTES];
    size_t used;
    tn_tensor *t = make(1);
    TN_CHECK_OK(tn_handle_export(t, NULL, bytes, sizeof bytes, &used));
    tn_tensor_unref(t);
}

TN_TEST(a_file_goes_a_moment_after_the_last_member_left)
{
    begin();
    push(q, make(1), TN_PUSH_MOVE);
    export_one();
    assert_int_equal(count_files(), 2);
    tn_object_close(q);
    tn_domain_close(d);
    await_files(0);
}

TN_TEST(without_tenond_the_last_member_takes_the_files_along)
{
    d = without_tenond();
    export_one();
    assert_int_equal(count_files(), 1);
    tn_domain_close(d);
    assert_int_equal(count_files(), 0);
}

static int be_a_member(void *argument)
{
    struct tnt_signal *signals = argument;
    tnt_signal(&signals[0]);
    tnt_await(&signals[1]);
    tn_domain_close(d);
    return 0;
}

TN_TEST(without_tenond_a_file_stays_while_there_is_a_member)
{
    struct tnt_signal signals[2] = {tnt_signal_open(), tnt_signal_open()};
    d = without_tenond();
    pid_t pid = tnt_fork(be_a_member, signals);
    tnt_await(&signals[0]);
    export_one();
    tn_domain_close(d);
    assert_int_equal(count_files(), 1);
    tnt_signal(&signals[1]);
    tnt_wait_ok(pid);
    assert_int_equal(count_files(), 0);
    tnt_signal_close(&signals[0]);
    tnt_signal_close(&signals[1]);
}

TN_TEST(without_tenond_a_dead_member_is_none)
{
    d = without_tenond();
    tnt_wait(tnt_fork(hold_and_die, NULL));
    assert_int_equal(count_files(), 1);
    export_one();
    tn_domain_close(d);
    assert_int_equal(count_files(), 0);
}

static int outlive(tn_domain *domain, void *parent_fd)
{
    (void)domain;
    TN_CHECK_OK(tni_os_poll(parent_fd, 1, tnt_until_ns(BACKING_MS)));
    return 0; /* ends without tn_domain_close() */
}

static int leave_a_child_and_die(void *argument)
{
    tn_process *child;
    int self;
    (void)argument;
    d = without_tenond();
    TN_CHECK_OK(tni_os_process_open(tni_os_pid(), &self));
    TN_CHECK_OK(tn_process_fork(d, outlive, &self, TN_PROCESS_DETACHED, &child));
    make(1);
    TN_CHECK(count_files() == 1);
    raise(SIGKILL);
    return 1;
}

TN_TEST(without_tenond_the_last_child_removes_the_domains_files)
{
    int status = 0;
    TN_CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    tnt_wait(tnt_fork(leave_a_child_and_die, NULL));
    while (waitpid(-1, &status, 0) < 0)
        TN_CHECK(errno == EINTR);
    assert_int_equal(status, 0);
    assert_int_equal(count_files(), 0);
}

TN_TEST(tenond_ended_by_a_signal_leaves_files_of_living_domains)
{
    begin();
    tn_tensor *t = make(1);
    kill_and_await(manager_pid(d), SIGTERM);
    assert_int_equal(count_files(), 1);
    push(q, t, 0);
    tn_tensor_unref(t);
    tn_tensor_unref(pop(q));
    assert_int_equal(count_files(), 0);
    finish();
}

/* ---- everything is killed ---------------------------------------------------------------- */

struct world {
    char name[48];
    char path[256]; /* the path of a file that the domain had */
    pid_t pid;
    int32_t tenond;
    struct tnt_signal ready;
};

static int live(void *argument)
{
    struct world *world = argument;
    TN_CHECK_OK(tn_domain_open(world->name, NULL, TN_OPEN_NEW, &d));
    tn_tensor *t = make(1);
    snprintf(world->path, sizeof world->path, "%s", tnt_info(t).path);
    make_as(d, TN_STRATEGY_FILE_DESCRIPTOR, 1);
    make_as(d, TN_STRATEGY_ARENA, 1);
    world->tenond = manager_pid(d);
    await_vault(0, 1);
    tnt_signal(&world->ready);
    for (;;)
        pause();
    return 0;
}

/* A domain with one storage of each strategy, made by another process. */
static struct world *begin_a_world(void)
{
    struct world *world =
        mmap(NULL, sizeof *world, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    TN_CHECK(world != MAP_FAILED);
    snprintf(world->name, sizeof world->name, "ended-%d", (int)getpid());
    world->ready = tnt_signal_open();
    world->pid = tnt_fork(live, world);
    tnt_await(&world->ready);
    tnt_signal_close(&world->ready);
    return world;
}

static void kill_all(const struct world *world)
{
    kill_tenond_and_vault(world->tenond);
    tnt_kill(world->pid);
}

static struct world *begin_and_kill_all(void)
{
    struct world *world = begin_a_world();
    kill_all(world);
    return world;
}

/* The kernel gave the memory back, so no process has it. */
static void expect_no_memory(const struct world *world)
{
    static const char *const prefixes[] = {TNI_CONTROL_PREFIX, TNI_ARENA_PREFIX,
                                           TNI_STORAGE_PREFIX};
    for (size_t i = 0; i < TNI_COUNT(prefixes); i++) {
        char target[128];
        snprintf(target, sizeof target, "/memfd:%s%s", prefixes[i], world->name);
        assert_int_equal(count_open_anywhere(target), 0);
    }
}

TN_TEST(what_a_kill_of_everything_left_goes_with_the_next_start)
{
    struct world *world = begin_and_kill_all();
    assert_int_equal(count_files(), 1);
    expect_no_memory(world);
    tn_domain *next = tnt_domain(NULL);
    assert_int_equal(count_files(), 0);
    int fd = -1;
    TN_CHECK_OK(tni_os_process_open(manager_pid(next), &fd));
    tn_domain_close(next);
    TN_CHECK_OK(tni_os_poll(&fd, 1, tnt_until_ns(BACKING_MS)));
    close(fd);
    assert_int_equal(count_entries(tnt_folder()), 0);
    munmap(world, sizeof *world);
}

/*
 * Another process of this user that searches for domains has a descriptor of each of them for
 * a moment. Then gc takes the domain for live, and leaves its file to the next gc.
 */
static void gc_until_named(const char *path)
{
    uint64_t deadline_ns = tnt_until_ns(BACKING_MS);
    do
        gc();
    while (strstr(said, path) == NULL && tni_os_now_ns() < deadline_ns);
    if (strstr(said, path) == NULL)
        fail_msg("'%s' does not name %s", said, path);
}

TN_TEST(what_a_kill_of_everything_left_goes_with_gc_which_names_it)
{
    struct world *world = begin_and_kill_all();
    assert_int_equal(count_files(), 1);
    gc_until_named(world->path);
    assert_int_equal(count_files(), 0);
    assert_int_equal(count_entries(tnt_folder()), 0);
    munmap(world, sizeof *world);
}

TN_TEST(gc_leaves_a_file_to_its_holder_by_path_which_removes_it)
{
    struct world *world = begin_a_world();
    tn_tensor *t = NULL;
    TN_CHECK_OK(tn_tensor_open_path(world->path, &t));
    kill_all(world);
    gc();
    assert_int_equal(count_files(), 1);
    expect_numbers(t, 1);
    tn_tensor_unref(t);
    assert_int_equal(count_files(), 0);
    gc(); /* the runtime folder is clean, too */
    munmap(world, sizeof *world);
}

TN_TEST(an_ended_domain_leaves_a_file_to_its_holder_by_path)
{
    char path[256];
    d = without_tenond();
    tn_tensor *t = make(1), *opened = NULL;
    snprintf(path, sizeof path, "%s", tnt_info(t).path);
    TN_CHECK_OK(tn_tensor_open_path(path, &opened));
    char bytes[TN_HANDLE_MAX_BYTES];
    size_t used;
    TN_CHECK_OK(tn_handle_export(t, NULL, bytes, sizeof bytes, &used));
    tn_tensor_unref(t);
    tn_domain_close(d);
    assert_int_equal(count_files(), 1);
    expect_numbers(opened, 1);
    tn_tensor_unref(opened);
    assert_int_equal(count_files(), 0);
}

TN_TEST(tenond_removes_what_was_left_when_it_is_asked_to)
{
    begin();
    /* A file of a domain that no process has, with another id than this domain's. */
    char path[256];
    tn_tensor *t = make(1);
    snprintf(path, sizeof path, "%s", tnt_info(t).path);
    char *number = strrchr(path, '-');
    char *inode =
        number - 16; /* the number begins with the inode of the domain's control segment */
    *inode = *inode == '0' ? '1' : '0';
    close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    assert_int_equal(count_files(), 2);
    struct tni_request request = {
        .magic = TNI_REQUEST_MAGIC, .version = TNI_REQUEST_VERSION, .verb = TNI_REQUEST_GC};
    int fd = -1;
    TN_CHECK_OK(tni_os_connect(TNI_MANAGER_SOCKET, &fd));
    TN_CHECK_OK(tni_os_send(fd, &request, sizeof request, NULL, 0));
    TN_CHECK_OK(tni_os_poll(&fd, 1, tnt_until_ns(BACKING_MS)));
    close(fd);
    assert_int_equal(count_files(), 1);
    assert_int_not_equal(access(path, F_OK), 0);
    tn_tensor_unref(t);
    finish();
}

/* ---- files that are none of our business ------------------------------------------------- */

TN_TEST(gc_leaves_files_of_others_and_of_living_domains)
{
    d = without_tenond();
    tn_tensor *t = make(1);
    char names[5][128], path[256];
    const char *own = strrchr(tnt_info(t).path, '/') + 1;
    unsigned uid, files = count_files();
    unsigned long long space, domain, number;
    assert_int_equal(sscanf(own, "tenon-%u-%llx-%llx-%llx", &uid, &space, &domain, &number), 4);
    snprintf(names[0], 128, "tenon-%u-%llx-%016llx-%016llx", uid + 1, space, domain ^ 1,
             number);
    snprintf(names[1], 128, "tenon-%u-%llx-%016llx-%016llx", uid, space + 1, domain ^ 1,
             number);
    snprintf(names[2], 128, "tenon-%u-%llx-%016llx-%016llx.old", uid, space, domain ^ 1,
             number);
    snprintf(names[3], 128, "tenon-%u-%llX-%llx", uid, space, domain ^ 1);
    snprintf(names[4], 128, "tenon-of-somebody-else");
    for (int i = 0; i < 5; i++) {
        snprintf(path, sizeof path, "%.100s/%.127s", tnt_shm_folder(), names[i]);
        close(open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600));
    }
    assert_int_equal(count_files(), files + 5);
    gc();
    assert_int_equal(count_files(), files + 5);
    for (int i = 0; i < 5; i++) {
        snprintf(path, sizeof path, "%.100s/%.127s", tnt_shm_folder(), names[i]);
        assert_int_equal(unlink(path), 0);
    }
    tn_tensor_unref(t);
    tn_domain_close(d);
}

/* ---- files that others had their hands on ------------------------------------------------ */

/* If `spoil` damages the file of a pushed tensor, only the pop of that tensor fails. */
static void expect_error(void (*spoil)(const char *path), int status)
{
    logged[0] = 0;
    tn_log_set(keep_log, NULL);
    begin();
    fflush(NULL);
    pid_t pid = fork(); /* a process that makes a storage has mapped it, and would not open its
                           file again */
    if (pid == 0) {
        tn_tensor *t = make(1);
        spoil(tnt_info(t).path);
        push(q, t, TN_PUSH_MOVE);
        push(q, make(2), TN_PUSH_MOVE);
        _exit(0);
    }
    tnt_wait_ok(pid);
    tn_tensor *t = NULL;
    int got = tn_queue_pop_tensor(q, tnt_deadline(BACKING_MS), &t);
    printf("%s: %s\n", tn_status_name(got), tn_error_detail());
    assert_int_equal(got, status);
    t = pop(q);
    expect_numbers(t, 2);
    tn_tensor_unref(t);
    finish();
    tn_log_set(NULL, NULL);
}

static void replace(const char *path)
{
    char fresh[512];
    snprintf(fresh, sizeof fresh, "%s.new", path);
    int from = open(path, O_RDONLY | O_CLOEXEC), to = open(fresh, O_CREAT | O_RDWR, 0600);
    TN_CHECK(from >= 0 && to >= 0);
    char page[4096];
    for (ssize_t size; (size = read(from, page, sizeof page)) > 0;)
        TN_CHECK(write(to, page, (size_t)size) == size);
    close(from);
    close(to);
    TN_CHECK(rename(fresh, path) == 0);
}

static void shorten(const char *path)
{
    TN_CHECK(truncate(path, (off_t)sysconf(_SC_PAGESIZE)) == 0);
}

static void empty(const char *path) { TN_CHECK(truncate(path, 0) == 0); }
static void remove_it(const char *path) { TN_CHECK(unlink(path) == 0); }
static void give_away(const char *path) { TN_CHECK(chown(path, NOBODY, NOBODY) == 0); }

static void make_it_a_folder(const char *path)
{
    TN_CHECK(unlink(path) == 0 && mkdir(path, 0700) == 0);
}

static void make_it_a_pipe(const char *path)
{
    TN_CHECK(unlink(path) == 0 && mkfifo(path, 0600) == 0);
}

static void remove_left(void)
{
    DIR *list = opendir(tnt_shm_folder());
    for (struct dirent *entry; list != NULL && (entry = readdir(list)) != NULL;)
        if (entry->d_name[0] != '.' && unlinkat(dirfd(list), entry->d_name, 0) != 0)
            unlinkat(dirfd(list), entry->d_name, AT_REMOVEDIR);
    if (list != NULL)
        closedir(list);
}

TN_TEST(a_file_that_was_replaced_is_an_error_and_stays)
{
    expect_error(replace, TN_ERR_CORRUPT);
    assert_non_null(strstr(logged, "replaced"));
    assert_int_equal(count_files(), 1); /* the file of another user's domain */
    remove_left();
}

TN_TEST(a_file_that_became_a_folder_is_an_error_and_stays)
{
    expect_error(make_it_a_folder, TN_ERR_CORRUPT);
    assert_non_null(strstr(logged, "not a regular file"));
    assert_int_equal(count_files(), 1);
    remove_left();
}

TN_TEST(a_file_that_became_a_pipe_is_an_error_and_stays)
{
    expect_error(make_it_a_pipe, TN_ERR_CORRUPT);
    assert_non_null(strstr(logged, "not a regular file"));
    assert_int_equal(count_files(), 1);
    remove_left();
}

TN_TEST(audit_names_a_file_that_became_a_folder_or_a_pipe)
{
    void (*const spoils[])(const char *path) = {make_it_a_folder, make_it_a_pipe};
    for (size_t i = 0; i < TNI_COUNT(spoils); i++) {
        d = without_tenond();
        tn_tensor *t = make(1);
        spoils[i](tnt_info(t).path);
        said[0] = 0;
        assert_int_equal(tn_domain_audit(d, false, hear, NULL, NULL), 1);
        if (strstr(said, tnt_info(t).path) == NULL ||
            strstr(said, "is not a plain file") == NULL)
            fail_msg("'%s'", said);
        tn_tensor_unref(t);
        tn_domain_close(d);
        remove_left();
    }
}

TN_TEST(a_file_that_was_truncated_is_an_error)
{
    expect_error(shorten, TN_ERR_CORRUPT);
    assert_int_equal(count_files(), 0);
}

TN_TEST(a_file_that_was_emptied_is_an_error)
{
    expect_error(empty, TN_ERR_CORRUPT);
    assert_int_equal(count_files(), 0);
}

TN_TEST(a_file_that_was_removed_is_an_error)
{
    expect_error(remove_it, TN_ERR_NOT_FOUND);
    assert_int_equal(count_files(), 0);
}

TN_TEST(a_file_that_was_given_to_another_user_is_an_error)
{
    if (geteuid() != 0)
        tnt_skip("only root gives files away");
    expect_error(give_away, TN_ERR_CORRUPT);
    assert_int_equal(count_files(), 0);
}

/* ---- files that cannot be removed -------------------------------------------------------- */

TN_TEST(a_file_that_cannot_be_removed_is_logged_and_not_fatal)
{
    char path[256];
    logged[0] = 0;
    tn_log_set(keep_log, NULL);
    d = without_tenond();
    tn_tensor *t = make(1);
    snprintf(path, sizeof path, "%s", tnt_info(t).path);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    tn_tensor_unref(t);
    if (strstr(logged, path) == NULL)
        fail_msg("'%s' does not name %s", logged, path);
    TNT_AUDIT(d);
    t = make(2); /* later calls work */
    tn_tensor_unref(t);
    tn_domain_close(d);
    tn_log_set(NULL, NULL);
    assert_int_equal(rmdir(path), 0);
}

/* Mount a file system in a mount namespace of this test, and set TENON_SHM_DIR to it. */
static void mount_own(char *folder, size_t size_bytes, const char *options)
{
    snprintf(folder, size_bytes, "%s/small", tnt_folder());
    if (mkdir(folder, 0700) != 0 || unshare(CLONE_NEWNS) != 0 ||
        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", folder, "tmpfs", 0, options) != 0)
        tnt_skip("mounting a file system needs root");
    setenv("TENON_SHM_DIR", folder, 1);
}

TN_TEST(gc_says_which_file_it_could_not_remove_and_why)
{
    char folder[128];
    mount_own(folder, sizeof folder, "size=1m");
    struct world *world = begin_and_kill_all();
    assert_int_equal(count_files(), 1);
    assert_int_equal(mount("none", folder, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL), 0);
    gc();
    assert_int_equal(said_not_done, 1);
    if (strstr(said, world->path) == NULL || strstr(said, strerror(EROFS)) == NULL)
        fail_msg("'%s' does not name %s", said, world->path);
    assert_int_equal(mount("none", folder, NULL, MS_REMOUNT | MS_BIND, NULL), 0);
    gc();
    assert_int_equal(said_not_done, 0);
    assert_int_equal(count_files(), 0);
    umount(folder);
    munmap(world, sizeof *world);
}

TN_TEST(a_file_system_that_is_too_small_is_a_clear_error)
{
    enum { MANY_BYTES = 4 << 20 };
    const tn_tensor_options options = {.struct_size = sizeof options,
                                       .strategy = TN_STRATEGY_FILE_SYSTEM};
    char folder[128];
    mount_own(folder, sizeof folder, "size=1m");
    d = without_tenond();
    tn_tensor *t = NULL;
    assert_int_equal(tn_tensor_create(d, TN_UINT8, 1, (int64_t[]){MANY_BYTES}, &options, &t),
                     TN_ERR_NO_MEMORY);
    if (strstr(tn_error_detail(), folder) == NULL ||
        strstr(tn_error_detail(), "file_descriptor") == NULL)
        fail_msg("'%s'", tn_error_detail());
    assert_int_equal(count_files(), 0);
    /* A tensor that fits can be used to its last byte; one that is larger cannot be made. */
    TN_CHECK_OK(tn_tensor_create(d, TN_UINT8, 1, (int64_t[]){900 << 10}, &options, &t));
    memset(tn_tensor_data(t), 1, 900 << 10);
    tn_tensor *second = NULL;
    assert_int_equal(
        tn_tensor_create(d, TN_UINT8, 1, (int64_t[]){900 << 10}, &options, &second),
        TN_ERR_NO_MEMORY);
    tn_tensor_unref(t);
    assert_int_equal(count_files(), 0);
    tn_domain_close(d);
    umount(folder);
}

/* ---- a maker that was killed where there is no memory ------------------------------------ */

/*
 * This fallocate() replaces that of libc: it fills the file system, and the process is
 * killed.
 */
static const char *folder_to_fill;

int fallocate(int fd, int mode, off_t offset, off_t size)
{
    static const char zeros[4096];
    char path[256];
    if (folder_to_fill == NULL)
        return (int)syscall(SYS_fallocate, fd, mode, offset, size);
    snprintf(path, sizeof path, "%s/filler", folder_to_fill);
    int filler = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    TN_CHECK(filler >= 0);
    while (write(filler, zeros, sizeof zeros) > 0) {
    }
    TN_CHECK(errno == ENOSPC);
    raise(SIGKILL);
    return -1;
}

static int make_and_be_killed(void *argument)
{
    folder_to_fill = argument;
    make(1);
    return 1;
}

TN_TEST(a_file_without_memory_of_a_killed_maker_goes_without_tenond)
{
    char folder[128];
    mount_own(folder, sizeof folder, "size=1m");
    d = without_tenond();
    assert_int_equal(tnt_wait(tnt_fork(make_and_be_killed, folder)), SIGKILL);
    assert_int_equal(count_files(), 2);
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    assert_int_equal(count_files(), 1);
    TNT_AUDIT(d);
    tn_domain_close(d);
    umount(folder);
}

static int make_in_a_domain_and_be_killed(void *argument)
{
    d = without_tenond();
    return make_and_be_killed(argument);
}

TN_TEST(gc_removes_a_file_without_memory_of_a_killed_maker)
{
    char folder[128];
    mount_own(folder, sizeof folder, "size=1m");
    assert_int_equal(tnt_wait(tnt_fork(make_in_a_domain_and_be_killed, folder)), SIGKILL);
    assert_int_equal(count_files(), 2);
    gc();
    assert_int_equal(count_files(), 1);
    umount(folder);
}

/* ---- no place for files ------------------------------------------------------------------ */

static int try_make(void)
{
    const tn_tensor_options options = {.struct_size = sizeof options,
                                       .strategy = TN_STRATEGY_FILE_SYSTEM};
    tn_tensor *t = NULL;
    int status = tn_tensor_create(d, TN_UINT8, 1, (int64_t[]){100}, &options, &t);
    tn_tensor_unref(t);
    return status;
}

static void expect_detail(const char *part)
{
    if (strstr(tn_error_detail(), part) == NULL)
        fail_msg("'%s' does not say '%s'", tn_error_detail(), part);
}

TN_TEST(a_relative_folder_is_refused_and_gc_names_it)
{
    d = without_tenond();
    setenv("TENON_SHM_DIR", "shm", 1);
    assert_int_equal(try_make(), TN_ERR_INVALID);
    expect_detail("TENON_SHM_DIR");
    expect_detail("'shm'");
    TNT_AUDIT(d);
    tn_domain_close(d);
    gc();
    assert_true(said_not_done > 0); /* each gc reports it */
    assert_non_null(strstr(said, "TENON_SHM_DIR"));
    setenv("TENON_SHM_DIR", tnt_shm_folder(), 1);
}

TN_TEST(a_missing_folder_for_files_is_an_error_with_a_way_out)
{
    d = without_tenond();
    setenv("TENON_SHM_DIR", "/nowhere/at/all", 1);
    assert_int_equal(try_make(), TN_ERR_NOT_FOUND);
    expect_detail("/nowhere/at/all");
    expect_detail("TENON_SHM_DIR");
    expect_detail("arena and file_descriptor");
    setenv("TENON_SHM_DIR", tnt_shm_folder(), 1);
    TN_CHECK_OK(try_make());
    tn_domain_close(d);
}

TN_TEST(a_file_that_cannot_be_opened_is_an_error_that_names_it)
{
    struct rlimit before, full;
    d = without_tenond();
    TN_CHECK_OK(try_make());
    TN_CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    int next = dup(0);
    close(next);
    full = (struct rlimit){.rlim_cur = (rlim_t)next, .rlim_max = (rlim_t)next};
    TN_CHECK(setrlimit(RLIMIT_NOFILE, &full) == 0);
    assert_int_equal(try_make(), TN_ERR_FULL);
    expect_detail(tnt_shm_folder());
    expect_detail("no descriptors left");
    setrlimit(RLIMIT_NOFILE, &before);
    tn_domain_close(d);
}
