/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Faults that users of other ways to share tensors report, as far as they concern memory. For
 * each cause there is a test that brings it about. docs/decisions/0011-weakness-table.md has
 * the list (W1 ...).
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "harness/tensor.h"
#include "process/strategies.h"

enum { KIB = 1 << 10, MIB = 1 << 20 };

/* Count all lines of /proc/self/maps, not only those of tenon. */
static unsigned map_lines(void)
{
    unsigned count = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    TN_CHECK(maps != NULL);
    for (int c; (c = fgetc(maps)) != EOF;)
        count += c == '\n';
    fclose(maps);
    return count;
}

static tn_tensor *bytes_as(const char *strategy, int64_t count)
{
    tn_tensor *t;
    tnt_set_strategy(strategy);
    TN_CHECK_OK(tn_tensor_create(d, TN_UINT8, 1, &count, NULL, &t));
    return t;
}

/* ---- W1: a descriptor for each tensor ---------------------------------------------------- */

enum { MANY = 4000, FEW_DESCRIPTORS = 200 };
static tn_tensor *many[100000];

static void limit_descriptors(rlim_t count)
{
    struct rlimit limit = {count, count};
    TN_CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

static int hold_many(void *argument)
{
    (void)argument;
    for (int i = 0; i < MANY; i++) {
        many[i] = pop();
        TN_CHECK(is_number(many[i], 511, (float)(i + 511)));
    }
    TN_CHECK(tnt_descriptor_count() < FEW_DESCRIPTORS);
    return 0;
}

EACH_STRATEGY(a_process_with_1024_descriptors_holds_4000_storages)
{
    begin_with_tenond(strategy); /* tenond has the old limit */
    limit_descriptors(1024);
    pid_t pid = tnt_fork(hold_many, NULL);
    for (int i = 0; i < MANY; i++) {
        many[i] = numbers(512, (float)i);
        push_kept(many[i]);
    }
    assert_true(tnt_descriptor_count() < FEW_DESCRIPTORS);
    tnt_wait_ok(pid);
    for (int i = 0; i < MANY; i++)
        tn_tensor_unref(many[i]);
    finish();
}

TN_TEST(a_process_without_free_descriptors_gets_an_error)
{
    int64_t count = 4;
    int status, made = 0;
    begin("file_descriptor");
    limit_descriptors(tnt_descriptor_count() + 40);
    while (made < MANY &&
           (status = tn_tensor_create(d, TN_INT32, 1, &count, NULL, &many[made])) == 0)
        ((int32_t *)tn_tensor_data(many[made]))[3] = made, made++;
    assert_in_range(made, 10, 45);
    assert_int_equal(status, TN_ERR_FULL);
    assert_non_null(strstr(tn_error_detail(), "descriptor"));
    many[0] = tn_tensor_unref(many[0]);
    TN_CHECK_OK(tn_tensor_create(d, TN_INT32, 1, &count, NULL, &many[0]));
    for (int i = 1; i < made; i++)
        assert_int_equal(((int32_t *)tn_tensor_data(many[i]))[3], i);
    for (int i = 0; i < made; i++)
        tn_tensor_unref(many[i]);
    finish();
}

/*
 * The error says that descriptors are missing, and the message can be popped once there are
 * some.
 */
static int pop_without_descriptors(void *argument)
{
    static int taken[1024];
    int count = 0;
    tn_tensor *t = NULL;
    limit_descriptors(200);
    tnt_await(argument);
    while ((taken[count] = dup(STDOUT_FILENO)) >= 0)
        count++;
    int status = tn_queue_pop_tensor(q, tnt_deadline(LONG_MS), &t);
    TN_CHECK(status == TN_ERR_FULL && t == NULL);
    TN_CHECK(strstr(tn_error_detail(), "descriptor") != NULL);
    while (count-- > 0)
        close(taken[count]);
    t = pop();
    TN_CHECK(is_number(t, 2, 9));
    tn_tensor_unref(t);
    return 0;
}

TN_TEST(a_message_that_met_a_descriptor_limit_is_delivered_later)
{
    struct tnt_signal pushed = tnt_signal_open();
    begin_with_tenond("file_descriptor");
    pid_t pid = tnt_fork(pop_without_descriptors, &pushed);
    tn_tensor *t = numbers(3, 7);
    push_kept(t);
    tnt_signal(&pushed);
    tnt_wait_ok(pid);
    tn_tensor_unref(t);
    tnt_signal_close(&pushed);
    finish();
}

/* ---- W2: a mapping for each tensor ------------------------------------------------------- */

TN_TEST(a_hundred_thousand_tensors_take_few_mappings)
{
    enum { COUNT = sizeof many / sizeof many[0] };
    tn_domain_options options = {
        .struct_size = sizeof options, .quota_bytes = 256 << 20, .flags = TN_DOMAIN_NO_MANAGER};
    begin_with("arena", NULL, &options, 0);
    unsigned lines = map_lines(), descriptors = tnt_descriptor_count();
    for (uint32_t i = 0; i < COUNT; i++)
        many[i] = numbers(1 + i % 64, (float)i);
    assert_true(map_lines() <= lines + 8);
    assert_int_equal(tnt_descriptor_count(), descriptors);
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_true(is_number(many[i], 0, (float)i));
        tn_tensor_unref(many[i]);
    }
    finish();
}

TN_TEST(a_write_once_arena_takes_one_mapping_and_one_descriptor)
{
    enum { COUNT = 10000 };
    int64_t count = 16;
    tn_arena *arena;
    begin("arena");
    TN_CHECK_OK(tn_arena_create(d, COUNT * 64, TN_NOW, &arena));
    unsigned lines = map_lines(), descriptors = tnt_descriptor_count();
    for (int i = 0; i < COUNT; i++) {
        TN_CHECK_OK(tn_arena_allocate(arena, TN_INT32, 1, &count, &many[i]));
        *(int32_t *)tn_tensor_data(many[i]) = i;
    }
    assert_true(map_lines() <= lines + 8); /* malloc may add some */
    assert_int_equal(tnt_descriptor_count(), descriptors);
    assert_int_equal(tn_arena_allocate(arena, TN_INT32, 1, &count, &many[COUNT]), TN_ERR_FULL);
    tn_arena_close(arena);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(*(int32_t *)tn_tensor_data(many[i]), i);
        tn_tensor_unref(many[i]);
    }
    finish();
}

/* ---- W7: a name that is gone ------------------------------------------------------------- */

static int read_and_drop(void *argument)
{
    (void)argument;
    tn_tensor *t = pop();
    TN_CHECK(is_number(t, 0, 5));
    tn_tensor_unref(t);
    return 0;
}

TN_TEST(a_name_that_another_program_removed_is_no_error)
{
    begin("file_system");
    tn_tensor *known = numbers(4, 5), *lost = numbers(4, 6), *t = NULL;
    push_kept(known);
    push_kept(lost);
    push(numbers(4, 5));
    assert_int_equal(unlink(tnt_info(known).path), 0);
    assert_int_equal(unlink(tnt_info(lost).path), 0);
    /* A process that has the file mapped can still use it, */
    t = pop();
    assert_true(tn_tensor_same_storage(t, known));
    tn_tensor_unref(t);
    ((float *)tn_tensor_data(known))[3] = 1;
    tn_tensor_unref(known);
    /* releasing it is no error, and the next storage has another name. */
    t = numbers(2, 3);
    assert_int_equal(access(tnt_info(t).path, R_OK), 0);
    tn_tensor_unref(t);
    tn_tensor_unref(lost); /* only its message has a reference now */
    /* and one that has not gets an error; the next message arrives. */
    assert_int_equal(tn_queue_pop_tensor(q, tnt_deadline(LONG_MS), &t), TN_ERR_NOT_FOUND);
    assert_non_null(strstr(tn_error_detail(), tnt_shm_folder()));
    tnt_wait_ok(tnt_fork(read_and_drop, NULL));
    finish();
}

/* ---- W8: no room for the memory ---------------------------------------------------------- */

/* @return false: this process may not mount. The mount ends with this process. */
static bool mount_memory(const char *folder, const char *options, unsigned long flags)
{
    return unshare(CLONE_NEWNS) == 0 &&
           mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("none", folder, "tmpfs", flags, options) == 0;
}

static uint64_t committed_bytes(void)
{
    uint64_t bytes = 0;
    TN_CHECK_OK(tni_os_memory_committed(d->segment.arena_fd, &bytes));
    return bytes;
}

TN_TEST_WITHIN(tenond_gives_unused_free_memory_back, 60)
{
    enum { MOST_S = 11, SLACK_S = 20 };
    tn_tensor *t;
    begin_with_tenond("arena");
    uint64_t before = committed_bytes();
    TN_CHECK_OK(tn_tensor_create(d, TN_UINT8, 1, (int64_t[]){64 * MIB}, NULL, &t));
    uint64_t until_ns = tni_os_now_ns() + UINT64_C(1000000000) * (MOST_S + SLACK_S);
    tn_tensor_unref(t);
    assert_true(committed_bytes() >= before + 64 * MIB);
    while (committed_bytes() > before && tni_os_now_ns() < until_ns)
        tni_os_sleep_until(tni_os_now_ns() + 10000000);
    assert_true(committed_bytes() <= before);
    finish();
}

static void write_line(const char *path, const char *line)
{
    FILE *file = fopen(path, "we");
    TN_CHECK(file != NULL && fputs(line, file) >= 0 && fclose(file) == 0);
}

/*
 * Show the files of a cgroup with a limit of 256 MiB, of version 1 or 2. @return false: not
 * permitted
 */
static bool enter_group(const char *line, const char *folder, const char *limit)
{
    char path[128], own[64];
    if (!mount_memory("/sys/fs/cgroup", "size=1m", 0))
        return false;
    snprintf(path, sizeof path, "/sys/fs/cgroup%s", folder);
    for (char *at = path + sizeof "/sys/fs/cgroup"; (at = strchr(at, '/')) != NULL; at++) {
        *at = 0;
        TN_CHECK(mkdir(path, 0700) == 0);
        *at = '/';
    }
    write_line(path, limit);
    write_line("/sys/fs/cgroup/own", line);
    snprintf(own, sizeof own, "/proc/%d/cgroup", getpid());
    return mount("/sys/fs/cgroup/own", own, NULL, MS_BIND, NULL) == 0;
}

static void check_that_the_default_quota_leaves_room(void)
{
    enum { LIMIT_MIB = 256 };
    int64_t size = MIB;
    int made = 0, status;
    TN_CHECK_OK(tn_domain_open(NULL,
                               &(tn_domain_options){.struct_size = sizeof(tn_domain_options),
                                                    .flags = TN_DOMAIN_NO_MANAGER},
                               0, &d));
    while (made < LIMIT_MIB &&
           (status = tn_tensor_create(d, TN_UINT8, 1, &size, NULL, &many[made])) == 0)
        made++;
    assert_int_equal(made, LIMIT_MIB / 2);
    assert_int_equal(status, TN_ERR_NO_MEMORY);
    for (int i = 0; i < made; i++)
        tn_tensor_unref(many[i]);
    tn_domain_close(d);
}

TN_TEST(the_default_quota_leaves_room_below_a_limit_of_cgroup_v2)
{
    if (!enter_group("0::/box/inner\n", "/box/memory.max", "268435456\n"))
        tnt_skip("mounting needs root");
    check_that_the_default_quota_leaves_room();
}

TN_TEST(the_default_quota_leaves_room_below_a_limit_of_cgroup_v1)
{
    if (!enter_group("4:memory:/box\n0::/\n", "/memory/box/memory.limit_in_bytes",
                     "268435456\n"))
        tnt_skip("mounting needs root");
    check_that_the_default_quota_leaves_room();
}

static int fill_a_group(void *folder)
{
    char path[160], pid[16];
    snprintf(path, sizeof path, "%s/cgroup.procs", (const char *)folder);
    snprintf(pid, sizeof pid, "%d", getpid());
    write_line(path, pid);
    enum { MOST = 300 };
    int64_t size = MIB;
    int made = 0, status = 0;
    const tn_domain_options options = {.struct_size = sizeof options,
                                       .flags = TN_DOMAIN_NO_MANAGER};
    TN_CHECK_OK(tn_domain_open(NULL, &options, 0, &d));
    while (made < MOST &&
           (status = tn_tensor_create(d, TN_UINT8, 1, &size, NULL, &many[made])) == 0)
        memset(tn_tensor_data(many[made++]), 1, MIB);
    TN_CHECK(status == TN_ERR_NO_MEMORY && made >= 100);
    while (made > 0)
        tn_tensor_unref(many[--made]);
    tn_domain_close(d);
    return 0;
}

/* This runs where a real limit of a cgroup can be set: the kernel would answer with SIGKILL. */
TN_TEST(filling_a_domain_in_a_cgroup_is_an_error_and_no_kill)
{
    static const char *const kinds[][2] = {{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"},
                                           {"/sys/fs/cgroup", "memory.max"}};
    char folder[128], path[160];
    FILE *file = NULL;
    for (int i = 0; i < 2 && file == NULL; i++) {
        snprintf(folder, sizeof folder, "%s/tenon-test-%d", kinds[i][0], getpid());
        if (mkdir(folder, 0700) != 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, kinds[i][1]);
        if ((file = fopen(path, "we")) == NULL)
            rmdir(folder);
    }
    if (file == NULL)
        tnt_skip("no cgroup with a limit of memory can be made here");
    bool is_set = fputs("268435456", file) >= 0;
    is_set &= fclose(file) == 0;
    pid_t child = is_set ? tnt_fork(fill_a_group, folder) : -1;
    int ended = child >= 0 ? tnt_wait(child) : 0;
    int removed = rmdir(folder);
    assert_true(is_set);
    assert_int_equal(ended, 0);
    assert_int_equal(removed, 0);
}

TN_TEST(a_full_memory_file_system_is_an_error_and_not_a_bus_error)
{
    char folder[128];
    int64_t count = 100 * KIB;
    int made = 0, status;
    snprintf(folder, sizeof folder, "%s/small", tnt_folder());
    assert_int_equal(mkdir(folder, 0700), 0);
    if (!mount_memory(folder, "size=1m", 0))
        tnt_skip("mounting needs root");
    setenv("TENON_SHM_DIR", folder, 1);
    begin("file_system");
    while (made < 20 &&
           (status = tn_tensor_create(d, TN_UINT8, 1, &count, NULL, &many[made])) == 0)
        made++;
    assert_int_equal(status, TN_ERR_NO_MEMORY);
    assert_non_null(strstr(tn_error_detail(), folder));
    assert_non_null(strstr(tn_error_detail(), "free"));
    assert_in_range(made, 7, 10);
    for (int i = 0; i < made; i++)
        memset(tn_tensor_data(many[i]), i + 1, (size_t)count);
    assert_int_equal(((uint8_t *)tn_tensor_data(many[0]))[count - 1], 1);
    tn_tensor_unref(many[0]);
    TN_CHECK_OK(tn_tensor_create(d, TN_UINT8, 1, &count, NULL, &many[0]));
    memset(tn_tensor_data(many[0]), 1, (size_t)count);
    for (int i = 0; i < made; i++)
        tn_tensor_unref(many[i]);
    finish();
}

/* ---- W9: /dev/shm ------------------------------------------------------------------------ */

static int fill_what_comes(void *argument)
{
    (void)argument;
    tn_tensor *t = pop();
    memset(tn_tensor_data(t), 7, tnt_info(t).size_bytes);
    tn_tensor_unref(t);
    return 0;
}

TN_TEST(arena_and_file_descriptor_do_not_need_dev_shm)
{
    enum { SIZE = 80 * MIB }; /* more than the 64 MiB of a container's /dev/shm */
    tn_tensor *t;
    int64_t one = 1;
    if (!mount_memory("/dev/shm", "size=4k", MS_RDONLY))
        tnt_skip("mounting needs root");
    setenv("TENON_SHM_DIR", "/dev/shm", 1);
    begin("arena");
    for (int i = 0; i < 2; i++) {
        t = bytes_as(i == 0 ? "arena" : "file_descriptor", SIZE);
        push_kept(t);
        tnt_wait_ok(tnt_fork(fill_what_comes, NULL));
        assert_int_equal(((uint8_t *)tn_tensor_data(t))[SIZE - 1], 7);
        tn_tensor_unref(t);
    }
    /* The strategy that needs a folder names it in its error. */
    TN_CHECK_OK(tn_strategy_set(TN_STRATEGY_FILE_SYSTEM));
    assert_true(tn_tensor_create(d, TN_UINT8, 1, &one, NULL, &t) < 0);
    assert_non_null(strstr(tn_error_detail(), "/dev/shm"));
    finish();
}

TN_TEST(named_memory_lies_in_the_folder_that_was_chosen)
{
    begin("file_system");
    tn_tensor *t = numbers(4, 0);
    assert_memory_equal(tnt_info(t).path, tnt_shm_folder(), strlen(tnt_shm_folder()));
    assert_int_equal(shm_files(), 1);
    tn_tensor_unref(t);
    finish();
}

/* ---- W10: moves that no caller asked for ------------------------------------------------- */

static int write_a_copy(tn_domain *domain, void *argument)
{
    (void)domain;
    *(float *)tn_tensor_data(argument) = 8;
    return 0;
}

EACH_STRATEGY(nothing_moves_behind_the_users_back)
{
    int64_t count = 4;
    tn_tensor *t;
    tn_process *process;
    begin(strategy);
    TN_CHECK_OK(tn_tensor_create_private(TN_FLOAT32, 1, &count, &t));
    float *data = tn_tensor_data(t);
    data[0] = 3;
    /* A queue refuses a private tensor; a child has a copy of it, as of all private memory. */
    assert_int_equal(tn_queue_push_tensor(q, t, 0, TN_NOW), TN_ERR_INVALID);
    assert_int_equal(tn_queue_push_tensor(q, t, TN_PUSH_MOVE, TN_NOW), TN_ERR_INVALID);
    TN_CHECK_OK(tn_process_fork(d, write_a_copy, t, 0, &process));
    TN_CHECK_OK(tn_process_wait(process, tnt_deadline(LONG_MS), NULL));
    tn_process_close(process);
    assert_false(tnt_info(t).is_shared);
    assert_ptr_equal(tn_tensor_data(t), data);
    assert_true(is_number(t, 0, 3));
    /* If a caller asks for it, the storage moves once. */
    TN_CHECK_OK(tn_tensor_share(d, t, NULL));
    data = tn_tensor_data(t);
    TN_CHECK_OK(tn_tensor_share(d, t, NULL));
    push_kept(t);
    assert_ptr_equal(tn_tensor_data(t), data);
    tn_tensor_unref(t);
    finish();
}

EACH_STRATEGY(a_view_shares_only_its_own_bytes_when_asked)
{
    const int64_t shape[] = {1000, 1000};
    tn_tensor *whole, *column, *shared;
    begin(strategy);
    TN_CHECK_OK(tn_tensor_create_private(TN_INT32, 2, shape, &whole));
    for (int32_t i = 0; i < 1000000; i++)
        ((int32_t *)tn_tensor_data(whole))[i] = i;
    const void *data = tn_tensor_data(whole);
    TN_CHECK_OK(tn_tensor_slice(whole, 1, 7, 8, 1, &column));
    TN_CHECK_OK(tn_tensor_clone(d, column, NULL, &shared));
    assert_int_equal(tnt_info(shared).storage_bytes, 4000);
    assert_true(tnt_info(shared).is_contiguous);
    assert_int_equal(((int32_t *)tn_tensor_data(shared))[999], 999007);
    assert_false(tnt_info(whole).is_shared);
    assert_ptr_equal(tn_tensor_data(whole), data);
    tn_tensor_unref(shared);
    /* The same for a view of a storage that is shared already. */
    TN_CHECK_OK(tn_tensor_share(d, whole, NULL));
    TN_CHECK_OK(tn_tensor_clone(d, column, NULL, &shared));
    assert_int_equal(tnt_info(shared).storage_bytes, 4000);
    assert_false(tn_tensor_same_storage(shared, whole));
    tn_tensor_unref(shared);
    tn_tensor_unref(column);
    tn_tensor_unref(whole);
    finish();
}

/* The test touches only the last page of the storage. */
EACH_STRATEGY(a_view_at_the_end_of_a_huge_storage_takes_only_its_bytes)
{
    const int64_t count = INT64_C(1)
                          << 30; /* malloc() would touch more if its checks were on */
    tn_tensor *huge, *end, *shared;
    begin(strategy);
    if (tn_tensor_create_private(TN_UINT8, 1, &count, &huge) != 0)
        tnt_skip("no address space for 1 GiB");
    TN_CHECK_OK(tn_tensor_slice(huge, 0, count - 3, count, 1, &end));
    memcpy(tn_tensor_data(end), "end", 3);
    TN_CHECK_OK(tn_tensor_clone(d, end, NULL, &shared));
    assert_int_equal(tnt_info(shared).storage_bytes, 3);
    assert_memory_equal(tn_tensor_data(shared), "end", 3);
    tn_tensor_unref(shared);
    tn_tensor_unref(end);
    tn_tensor_unref(huge);
    finish();
}

/* ---- W11: every member can write every tensor -------------------------------------------- */

static int write_what_is_published(void *argument)
{
    *(volatile float *)tn_tensor_data(argument) = 0;
    return 0;
}

static int read_what_is_published(void *argument)
{
    (void)argument;
    tn_tensor *t = pop();
    TN_CHECK(tnt_info(t).is_read_only);
    TN_CHECK(is_number(t, 0, 30));
    TN_CHECK(tn_tensor_copy(t, t) == TN_ERR_DENIED);
    uintptr_t page = (uintptr_t)tn_tensor_data(t) & ~(uintptr_t)4095;
    errno = 0;
    TN_CHECK(mprotect((void *)page, 4096, PROT_READ | PROT_WRITE) == -1 && errno == EACCES);
    TN_CHECK(tnt_wait(tnt_fork(write_what_is_published, t)) != 0);
    TN_CHECK(is_number(t, 0, 30));
    tn_tensor_unref(t);
    return 0;
}

TN_TEST(a_reader_cannot_write_what_was_published)
{
    tn_tensor_options options = {.struct_size = sizeof options, .flags = TN_TENSOR_WRITE_ONCE};
    int64_t count = 4;
    tn_tensor *t;
    begin("arena");
    pid_t before = tnt_fork(read_what_is_published, NULL);
    TN_CHECK_OK(tn_tensor_create(d, TN_FLOAT32, 1, &count, &options, &t));
    *(float *)tn_tensor_data(t) = 30;
    push_kept(t);
    tnt_wait_ok(before);
    /* In a child, memory that its parent could write can only be read. */
    push_kept(t);
    tnt_wait_ok(tnt_fork(read_what_is_published, NULL));
    assert_true(tnt_wait(tnt_fork(write_what_is_published, t)) != 0);
    assert_true(is_number(t, 0, 30));
    *(float *)tn_tensor_data(t) = 31;
    assert_true(is_number(t, 0, 31));
    tn_tensor_unref(t);
    finish();
}

/* ---- W12: attaching without a look ------------------------------------------------------- */

static off_t size_of(const char *path)
{
    struct stat stat_of;
    TN_CHECK(stat(path, &stat_of) == 0);
    return stat_of.st_size;
}

struct damage {
    size_t offset;
    size_t size;
    uint64_t value;
};
#define DAMAGE(field, value)                                                                   \
    {                                                                                          \
        offsetof(tn_storage_header, field), sizeof((tn_storage_header *)0)->field, value       \
    }

/* The file stays mapped here: the test damages its bytes for a while, and not its length. */
TN_TEST(attach_checks_magic_version_and_size_and_never_grows_a_file)
{
    static const struct damage damages[] = {
        DAMAGE(magic, 0),
        DAMAGE(version, TN_STORAGE_VERSION + 1),
        DAMAGE(must_understand, 1u << 31),
        DAMAGE(object_bytes, 1 << 30),
        DAMAGE(object_bytes, 4096),
        DAMAGE(data_offset, UINT64_MAX - 64),
        DAMAGE(data_bytes, 1 << 30),
        DAMAGE(byte_offset, 1 << 20),
        DAMAGE(ndim, 33),
        DAMAGE(ndim, UINT32_MAX),
        DAMAGE(shape, 1 << 28),
        DAMAGE(dtype_bits, 3),
    };
    begin("file_system");
    tn_tensor *t = numbers(1000, 1), *other = NULL;
    const char *path = tnt_info(t).path;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    off_t size = size_of(path);
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        const struct damage *damage = &damages[i];
        size_t bytes = damage->size < 8 ? damage->size : 8;
        uint64_t whole;
        TN_CHECK(pread(fd, &whole, bytes, (off_t)damage->offset) == (ssize_t)bytes);
        TN_CHECK(pwrite(fd, &damage->value, bytes, (off_t)damage->offset) == (ssize_t)bytes);
        int status = tn_tensor_open_path(path, &other);
        if (status == 0)
            fail_msg("damage %zu was not seen", i);
        assert_true(strlen(tn_error_detail()) > 10);
        assert_int_equal(size_of(path), size);
        TN_CHECK(pwrite(fd, &whole, bytes, (off_t)damage->offset) == (ssize_t)bytes);
    }
    TN_CHECK_OK(tn_tensor_open_path(path, &other)); /* the file is as it was */
    assert_true(is_number(other, 999, 1000));
    tn_tensor_unref(other);
    close(fd);
    tn_tensor_unref(t);
    finish();
}

static int pop_a_truncated_one(void *argument)
{
    tn_tensor *t = NULL;
    tnt_await(argument);
    TN_CHECK(tn_queue_pop_tensor(q, tnt_deadline(LONG_MS), &t) == TN_ERR_CORRUPT);
    TN_CHECK(t == NULL);
    t = pop();
    TN_CHECK(is_number(t, 0, 5));
    tn_tensor_unref(t);
    return 0;
}

TN_TEST(a_truncated_file_is_corrupt_and_the_queue_goes_on)
{
    struct tnt_signal go = tnt_signal_open();
    begin("file_system");
    pid_t pid = tnt_fork(pop_a_truncated_one, &go);
    tn_tensor *t = numbers(100000, 1);
    push_kept(t);
    push(numbers(4, 5));
    assert_int_equal(truncate(tnt_info(t).path, 8192), 0);
    tnt_signal(&go);
    tnt_wait_ok(pid);
    tn_tensor_unref(t);
    tnt_signal_close(&go);
    finish();
}

/* ---- W30: what a tensor is beyond its elements ------------------------------------------- */

static int check_attributes(void *argument)
{
    (void)argument;
    tn_tensor *t = pop();
    tn_quantizer quantizer;
    size_t size;
    uint32_t count;
    TN_CHECK(tn_tensor_flags(t) == (TN_REQUIRES_GRAD | TN_PARAMETER | TN_WAS_PINNED));
    TN_CHECK(strcmp(tn_tensor_name(t), "layer.0") == 0);
    TN_CHECK(strcmp(tn_tensor_axis_name(t, 1), "channel") == 0);
    TN_CHECK(tnt_lod_levels(t) == 1 && tn_tensor_lod(t, 0, &count)[1] == 3 && count == 3);
    TN_CHECK(tn_tensor_quantizer(t, &quantizer) && quantizer.zero_points[0] == 5);
    TN_CHECK(memcmp(tn_tensor_metadata(t, "epoch", &size), "12", 2) == 0 && size == 2);
    tn_tensor_unref(t);
    t = pop();
    TN_CHECK(tn_tensor_flags(t) == (TN_CONJUGATE | TN_NEGATIVE));
    tn_tensor_unref(t);
    return 0;
}

EACH_STRATEGY(a_tensor_arrives_with_all_that_is_known_of_it)
{
    const int64_t shape[] = {4, 2};
    const uint32_t counts[] = {3};
    const uint64_t offsets[] = {0, 3, 4}, *const levels[] = {offsets};
    const double scale = 0.5;
    const int64_t zero_point = 5;
    tn_quantizer quantizer = {.scheme = TN_QUANTIZER_AFFINE,
                              .count = 1,
                              .scales = &scale,
                              .zero_points = &zero_point};
    tn_tensor *t;
    begin(strategy);
    TN_CHECK_OK(tn_tensor_create(d, TN_INT8, 2, shape,
                                 TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED), &t));
    TN_CHECK_OK(tn_tensor_set_flags(t, TN_REQUIRES_GRAD | TN_PARAMETER | TN_WAS_PINNED));
    TN_CHECK_OK(tn_tensor_set_name(t, "layer.0"));
    TN_CHECK_OK(tn_tensor_set_axis_names(t, (const char *const[]){"", "channel"}));
    TN_CHECK_OK(tn_tensor_set_lod(t, 1, counts, levels));
    TN_CHECK_OK(tn_tensor_set_quantizer(t, &quantizer));
    TN_CHECK_OK(tn_tensor_set_metadata(t, "epoch", "12", 2));
    push(t);
    TN_CHECK_OK(tn_tensor_create(d, TN_COMPLEX64, 2, shape,
                                 TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED), &t));
    TN_CHECK_OK(tn_tensor_set_flags(t, TN_CONJUGATE | TN_NEGATIVE));
    push(t);
    tnt_wait_ok(tnt_fork(check_attributes, NULL));
    finish();
}

/* A part of a sparse tensor without the other parts would arrive as another tensor. */
TN_TEST(a_sparse_tensor_travels_whole_or_not_at_all)
{
    const int64_t indices_shape[] = {2, 3}, values_shape[] = {3};
    tn_sparse sparse = {.layout = TN_LAYOUT_COO, .ndim = 2, .part_count = 2, .shape = {10, 10}};
    tn_sparse found;
    tn_message message;
    begin("arena");
    TN_CHECK_OK(tn_tensor_create(d, TN_INT64, 2, indices_shape,
                                 TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED),
                                 &sparse.parts[0]));
    TN_CHECK_OK(tn_tensor_create(d, TN_FLOAT32, 1, values_shape,
                                 TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED),
                                 &sparse.parts[1]));
    TN_CHECK_OK(tn_sparse_mark(&sparse));
    assert_int_equal(tn_queue_push_tensor(q, sparse.parts[1], 0, TN_NOW), TN_ERR_INVALID);
    message = (tn_message){.tensors = sparse.parts, .tensor_count = 2};
    TN_CHECK_OK(tn_queue_push(q, &message, TN_PUSH_MOVE, TN_NOW));
    TN_CHECK_OK(tn_queue_pop(q, TN_NOW, &message));
    assert_int_equal(tn_sparse_find(message.tensors, message.tensor_count, &found), 2);
    assert_int_equal(found.layout, TN_LAYOUT_COO);
    assert_int_equal(found.shape[1], 10);
    assert_int_equal(tn_tensor_shape(found.parts[1])[0], 3);
    tn_message_fini(&message);
    finish();
}
