/* SPDX-License-Identifier: Apache-2.0 */
/* Named memory. */
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>

#include "os_test.h"

enum { MEBIBYTE = 1 << 20, SKIPPED = 77 };

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/dev/shm/tenon-os-test-XXXXXX");
    return mkdtemp(folder) == NULL ? -1 : 0;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder); /* fails if a test left a file */
}

static const char *in_folder(const char *name)
{
    static char paths[4][128];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

/*
 * The calls that a test lets fail stand in front of the library's. Only linux_shm.c makes
 * them.
 */
static struct {
    uint32_t calls;
    uint32_t failing; /* how many of the first calls fail */
    int error;
    void (*meanwhile)(void); /* called before the first call */
} fake;

int fallocate(int fd, int mode, off_t offset, off_t size)
{
    if (fake.calls++ == 0 && fake.meanwhile != NULL)
        fake.meanwhile();
    if (fake.calls <= fake.failing) {
        errno = fake.error;
        return -1;
    }
    return (int)syscall(SYS_fallocate, fd, mode, offset, size);
}

/* For bodies that need privileges: SKIPPED without them. */
static void run_or_skip(int (*body)(void), const char *reason)
{
    pid_t child = fork();
    if (child == 0)
        _exit(body());
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED)
        skip_since(reason);
    assert_int_equal(status, 0);
}

/* The folder. */

static void folder_body(void)
{
    unsetenv("TENON_SHM_DIR");
    CHECK(strcmp(tni_os_shm_folder(), "/dev/shm") == 0);
    setenv("TENON_SHM_DIR", "", 1);
    CHECK(strcmp(tni_os_shm_folder(), "/dev/shm") == 0);
    setenv("TENON_SHM_DIR", "/a/b//", 1);
    static char long_path[6000];
    char path[6000];
    CHECK(tni_os_shm_join(path, sizeof "/a/b/c", tni_os_shm_folder(), "c") == 0 &&
          strcmp(path, "/a/b/c") == 0);
    CHECK(tni_os_shm_join(path, sizeof "/a/b/c" - 1, tni_os_shm_folder(), "c") ==
          TN_ERR_INVALID);
    CHECK(tni_os_shm_join(path, sizeof path, "/", "c") == 0 && strcmp(path, "//c") == 0);
    int fd = -1;
    memset(long_path, 'a', sizeof long_path - 1);
    memcpy(long_path, "/tmp/", 5);
    setenv("TENON_SHM_DIR", long_path, 1);
    snprintf(path, sizeof path, "%s/x", tni_os_shm_folder());
    CHECK(tni_os_shm_create(path, PAGE, &fd) == TN_ERR_SYSTEM);
}

static void the_folder_of_named_memory_is_chosen_by_the_environment(void **state)
{
    (void)state;
    run_in_child(folder_body);
}

/* Making. */

static void check_new_file(uint64_t size_bytes)
{
    const char *path = in_folder("file");
    int fd = -1;
    int again = 42;
    struct stat status;
    struct tni_os_memory memory;
    CHECK(tni_os_shm_create(path, size_bytes, &fd) == 0);
    CHECK(fstat(fd, &status) == 0 && (status.st_mode & 07777) == 0600);
    CHECK((uint64_t)status.st_blocks * 512 >= size_bytes);
    CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    CHECK(tni_os_shm_stat(fd, &memory) == 0);
    CHECK(memory.size_bytes == size_bytes && memory.uid == tni_os_uid());
    CHECK(memory.inode == status.st_ino && memory.device == status.st_dev);
    CHECK(!memory.is_sealed && !memory.is_write_once);

    CHECK(tni_os_shm_create(path, size_bytes, &again) == TN_ERR_EXISTS && again == 42);
    CHECK(tni_os_shm_open(path, &again) == 0 && (fcntl(again, F_GETFD) & FD_CLOEXEC));
    CHECK(pwrite(fd, "x", 1, (off_t)size_bytes - 1) == 1);
    char byte = 0;
    CHECK(pread(again, &byte, 1, (off_t)size_bytes - 1) == 1 && byte == 'x');
    CHECK(pread(again, &byte, 1, 0) == 1 && (byte == 0 || size_bytes == 1));
    CHECK(tni_os_shm_remove(path) == 0);
    CHECK(tni_os_shm_remove(path) == TN_ERR_NOT_FOUND);
    CHECK(tni_os_shm_open(path, &again) == TN_ERR_NOT_FOUND);
}

static void new_file_body(void)
{
    umask(0);
    check_new_file(1);
    check_new_file(3 * MEBIBYTE + 5);
    CHECK(fake.calls == 2);
    umask(0777);
    check_new_file(PAGE);
}

static void a_new_file_has_all_its_memory_and_is_for_its_user_alone(void **state)
{
    (void)state;
    run_in_child(new_file_body);
}

static void forced_body(void)
{
    setenv("TENON_FORCE_FALLBACK", "fallocate", 1);
    check_new_file(1);
    check_new_file(3 * MEBIBYTE + 5);
    CHECK(fake.calls == 0);
}

static void unsupported_body(void)
{
    fake.failing = UINT32_MAX;
    fake.error = EOPNOTSUPP;
    check_new_file(PAGE + 1);
    fake.error = EINVAL;
    check_new_file(PAGE + 1);
    CHECK(fake.calls == 2);
}

static void memory_is_reserved_where_fallocate_is_not_supported(void **state)
{
    (void)state;
    run_in_child(forced_body);
    run_in_child(unsupported_body);
}

static void interrupted_body(void)
{
    fake.failing = 40;
    fake.error = EINTR;
    check_new_file(MEBIBYTE);
    CHECK(fake.calls >= 41);
}

static void signals_do_not_keep_a_file_from_being_made(void **state)
{
    (void)state;
    run_in_child(interrupted_body);
}

static void refused_body(void)
{
    int fd = 42;
    uint32_t before = open_count();
    fake.failing = UINT32_MAX;
    fake.error = EIO;
    CHECK(tni_os_shm_create(in_folder("file"), PAGE, &fd) == TN_ERR_SYSTEM && fd == 42);
    CHECK(access(in_folder("file"), F_OK) != 0);
    CHECK(tni_os_shm_create(in_folder("file"), 0, &fd) == TN_ERR_INVALID);
    CHECK(tni_os_shm_create(in_folder("file"), UINT64_MAX, &fd) == TN_ERR_INVALID);
    CHECK(tni_os_shm_create(in_folder("none/file"), PAGE, &fd) == TN_ERR_NOT_FOUND);
    CHECK(strstr(tn_error_detail(), "none/file") != NULL);
    CHECK(strstr(tn_error_detail(), "TENON_SHM_DIR") != NULL);
    CHECK(strstr(tn_error_detail(), "arena and file_descriptor do not need it") != NULL);
    CHECK(open_count() == before);
}

static void a_failed_creation_leaves_no_file_and_no_descriptor(void **state)
{
    (void)state;
    run_in_child(refused_body);
}

static void file_limit_body(void)
{
    int fd = -1;
    const struct rlimit limit = {.rlim_cur = PAGE, .rlim_max = PAGE};
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    CHECK(tni_os_shm_create(in_folder("file"), PAGE + 1, &fd) == TN_ERR_SYSTEM);
    CHECK(strstr(tn_error_detail(), "ulimit -f") != NULL);
    CHECK(access(in_folder("file"), F_OK) != 0);
    check_new_file(PAGE);
}

static void a_file_size_limit_is_an_error_and_no_signal(void **state)
{
    (void)state;
    run_in_child(file_limit_body);
}

/* A small file system. */

static bool mount_small(const char *options)
{
    return unshare(CLONE_NEWNS) == 0 &&
           mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("none", folder, "tmpfs", 0, options) == 0;
}

static bool is_empty(void)
{
    struct statvfs system;
    return statvfs(folder, &system) == 0 && system.f_bfree == system.f_blocks;
}

static void check_full(const char *free_of_total)
{
    const char *path = in_folder("big");
    int fd = 42;
    CHECK(tni_os_shm_create(path, 2 * MEBIBYTE, &fd) == TN_ERR_NO_MEMORY && fd == 42);
    CHECK(strstr(tn_error_detail(), path) != NULL);
    CHECK(strstr(tn_error_detail(), "2097152 bytes wanted") != NULL);
    CHECK(strstr(tn_error_detail(), free_of_total) != NULL);
    CHECK(strstr(tn_error_detail(), "arena and file_descriptor do not need it") != NULL);
    CHECK(access(path, F_OK) != 0);
}

static int small_body(void)
{
    int fd = -1;
    if (!mount_small("size=1m"))
        return SKIPPED;
    check_full("1048576 bytes free of 1048576");
    CHECK(is_empty() && fake.calls == 0);
    CHECK(tni_os_shm_create(in_folder("file"), MEBIBYTE - 4 * PAGE, &fd) == 0);
    check_full("16384 bytes free of 1048576");

    /* All bytes can be written without SIGBUS. */
    int rest = -1;
    char *address = NULL;
    CHECK(tni_os_shm_create(in_folder("rest"), 4 * PAGE, &rest) == 0);
    CHECK(tni_os_map(rest, 4 * PAGE, PAGE, false, (void **)&address) == 0);
    memset(address, 1, 4 * PAGE);
    return 0;
}

static void the_error_of_a_full_file_system_names_its_free_bytes(void **state)
{
    (void)state;
    run_or_skip(small_body, "no file system of its own can be mounted here");
}

static void take_half(void)
{
    static char bytes[MEBIBYTE / 2];
    int fd = open(in_folder("other"), O_RDWR | O_CREAT, 0600);
    CHECK(fd >= 0 && write(fd, bytes, sizeof bytes) == (ssize_t)sizeof bytes && close(fd) == 0);
}

static void check_overtaken(void)
{
    struct stat status;
    int fd = -1;
    CHECK(tni_os_shm_create(in_folder("file"), MEBIBYTE, &fd) == TN_ERR_NO_MEMORY);
    CHECK(strstr(tn_error_detail(), "524288 bytes free of 1048576") != NULL);
    CHECK(stat(in_folder("file"), &status) != 0 && fd == -1);
}

static int overtaken_body(void)
{
    if (!mount_small("size=1m"))
        return SKIPPED;
    fake.meanwhile = take_half;
    check_overtaken();
    CHECK(unlink(in_folder("other")) == 0 && is_empty());

    /* The same with the fallback that writes zeros. */
    fake.calls = 0;
    fake.failing = 1;
    fake.error = EOPNOTSUPP;
    check_overtaken();
    CHECK(unlink(in_folder("other")) == 0 && is_empty());
    return 0;
}

static void a_file_system_that_fills_up_meanwhile_leaves_no_file(void **state)
{
    (void)state;
    run_or_skip(overtaken_body, "no file system of its own can be mounted here");
}

static int no_entry_body(void)
{
    int fd = -1;
    if (!mount_small("size=1m,nr_inodes=2"))
        return SKIPPED;
    CHECK(tni_os_shm_create(in_folder("one"), PAGE, &fd) == 0);
    CHECK(tni_os_shm_create(in_folder("two"), PAGE, &fd) == TN_ERR_NO_MEMORY);
    CHECK(strstr(tn_error_detail(), "no room for another file") != NULL);
    return 0;
}

static void a_file_system_with_no_room_for_a_name_is_an_error(void **state)
{
    (void)state;
    run_or_skip(no_entry_body, "no file system of its own can be mounted here");
}

static int stranger_body(void)
{
    int fd = -1;
    if (geteuid() != 0 || setresuid(65534, 65534, 65534) != 0)
        return SKIPPED;
    CHECK(tni_os_shm_create(in_folder("file"), PAGE, &fd) == TN_ERR_DENIED);
    CHECK(tni_os_shm_open(in_folder("file"), &fd) == TN_ERR_DENIED);
    CHECK(tni_os_shm_remove(in_folder("file")) == TN_ERR_DENIED);
    return 0;
}

static void the_folder_of_another_user_is_denied(void **state)
{
    (void)state;
    run_or_skip(stranger_body, "only root can become another user");
}

/* Finding. */

static void a_link_is_not_followed(void **state)
{
    (void)state;
    int fd = -1;
    const char *link = in_folder("link");
    const char *target = in_folder("target");
    assert_int_equal(symlink(target, link), 0);
    assert_int_equal(tni_os_shm_create(link, PAGE, &fd), TN_ERR_EXISTS);
    assert_int_not_equal(access(target, F_OK), 0);
    assert_int_equal(tni_os_shm_create(target, PAGE, &fd), 0);
    tni_os_close(fd);
    assert_int_equal(tni_os_shm_open(link, &fd), TN_ERR_DENIED);
    assert_int_equal(tni_os_shm_remove(link), 0);
    assert_int_equal(tni_os_shm_remove(target), 0);
}

static void all_but_regular_files_are_refused_without_blocking(void **state)
{
    (void)state;
    int fd = -1;
    int ends[2];
    uint32_t before = open_count();
    struct tni_os_memory memory;
    assert_int_equal(mkfifo(in_folder("fifo"), 0600), 0);
    assert_int_equal(tni_os_shm_open(in_folder("fifo"), &fd), TN_ERR_INVALID);
    assert_non_null(strstr(tn_error_detail(), in_folder("fifo is not a regular file")));
    assert_int_equal(tni_os_shm_remove(in_folder("fifo")), 0);

    assert_int_equal(tni_os_pipe(ends), 0);
    assert_int_equal(tni_os_shm_stat(ends[0], &memory), TN_ERR_INVALID);
    tni_os_close(ends[0]);
    tni_os_close(ends[1]);
    assert_int_equal(tni_os_shm_stat(-1, &memory), TN_ERR_INVALID);
    assert_int_equal(tni_os_shm_open(folder, &fd), TN_ERR_INVALID);
    assert_int_equal(tni_os_shm_open("/dev/null", &fd), TN_ERR_INVALID);
    assert_int_equal(fd, -1);
    assert_int_equal(open_count(), before);
}

struct seen {
    uint32_t count;
    uint32_t sum;
    uint32_t stop_at;
};

static int look(const char *path, const char *name, void *context)
{
    struct seen *seen = context;
    char expected[128];
    unsigned number = 0;
    snprintf(expected, sizeof expected, "%s/%s", folder, name);
    CHECK(strcmp(path, expected) == 0);
    CHECK(sscanf(name, "tenon-%u", &number) == 1);
    seen->sum += number;
    return ++seen->count == seen->stop_at ? 7 : 0;
}

static int remove_it(const char *path, const char *name, void *context)
{
    (void)name;
    ++*(uint32_t *)context;
    return tni_os_shm_remove(path);
}

static void the_folder_is_searched_for_plain_files_with_the_prefix(void **state)
{
    (void)state;
    uint32_t before = open_count();
    struct seen seen = {0};
    struct seen stopped = {.stop_at = 3};
    uint32_t removed = 0;
    char name[32];
    int fd = -1;
    for (uint32_t i = 1; i <= 500; i++) {
        snprintf(name, sizeof name, "tenon-%u", (unsigned)i);
        assert_int_equal(tni_os_shm_create(in_folder(name), 1, &fd), 0);
        tni_os_close(fd);
    }
    assert_int_equal(tni_os_shm_create(in_folder("teno-9000"), 1, &fd), 0);
    tni_os_close(fd);
    assert_int_equal(symlink("tenon-1", in_folder("tenon-9001")), 0);
    assert_int_equal(mkdir(in_folder("tenon-9002"), 0700), 0);

    assert_int_equal(tni_os_shm_for_each(folder, "tenon-", look, &seen), 0);
    assert_true(seen.count == 500 && seen.sum == 500 * 501 / 2);
    assert_int_equal(tni_os_shm_for_each(folder, "tenon-", look, &stopped), 7);
    assert_int_equal(stopped.count, 3);

    /* A visitor that removes files skips none. */
    assert_int_equal(tni_os_shm_for_each(folder, "tenon-", remove_it, &removed), 0);
    assert_int_equal(removed, 500);
    assert_int_equal(tni_os_shm_remove(in_folder("teno-9000")), 0);
    assert_int_equal(tni_os_shm_remove(in_folder("tenon-9001")), 0);
    assert_int_equal(rmdir(in_folder("tenon-9002")), 0);
    assert_int_equal(tni_os_shm_for_each(in_folder("none"), "", look, &seen), TN_ERR_NOT_FOUND);
    assert_int_equal(open_count(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_folder_of_named_memory_is_chosen_by_the_environment),
        cmocka_unit_test(a_new_file_has_all_its_memory_and_is_for_its_user_alone),
        cmocka_unit_test(memory_is_reserved_where_fallocate_is_not_supported),
        cmocka_unit_test(signals_do_not_keep_a_file_from_being_made),
        cmocka_unit_test(a_failed_creation_leaves_no_file_and_no_descriptor),
        cmocka_unit_test(a_file_size_limit_is_an_error_and_no_signal),
        cmocka_unit_test(the_error_of_a_full_file_system_names_its_free_bytes),
        cmocka_unit_test(a_file_system_that_fills_up_meanwhile_leaves_no_file),
        cmocka_unit_test(a_file_system_with_no_room_for_a_name_is_an_error),
        cmocka_unit_test(the_folder_of_another_user_is_denied),
        cmocka_unit_test(a_link_is_not_followed),
        cmocka_unit_test(all_but_regular_files_are_refused_without_blocking),
        cmocka_unit_test(the_folder_is_searched_for_plain_files_with_the_prefix),
    };
    return cmocka_run_group_tests_name("os shm", tests, make_folder, remove_folder);
}
