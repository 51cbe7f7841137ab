/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: named storages opened by their path from outside of the domain, as share.h states. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/harness.h"
#include "harness/tensor.h"
#include "share/share.h"

enum { COUNT = 3000, NOBODY = 65534, PATH_BYTES = 512 };

__attribute__((constructor)) static void ring_once(void) { tni_os_bell_ring(1); }

static tn_domain *make_domain(void)
{
    return tnt_domain(&(tn_domain_options){.struct_size = sizeof(tn_domain_options),
                                           .quota_bytes = 64 << 20,
                                           .flags = TN_DOMAIN_NO_MANAGER});
}

/* Make a storage with a name; its path is copied to `path`. */
static tn_tensor *make(tn_domain *d, char *path)
{
    tn_tensor_options options = {.struct_size = sizeof options,
                                 .strategy = TN_STRATEGY_FILE_SYSTEM};
    tn_tensor *t;
    TN_CHECK_OK(tn_tensor_create(d, TN_INT32, 1, (int64_t[]){COUNT}, &options, &t));
    for (int32_t i = 0; i < COUNT; i++)
        ((int32_t *)tn_tensor_data(t))[i] = i;
    snprintf(path, PATH_BYTES, "%s", tnt_info(t).path);
    return t;
}

static bool is_there(const char *path) { return access(path, F_OK) == 0; }

static const tn_storage_header *header_of(const tn_tensor *t)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    return (const tn_storage_header *)((uintptr_t)tn_tensor_data(t) - page);
}

static unsigned holders(const tn_tensor *t)
{
    unsigned count = 0;
    for (int i = 1; i < TN_STORAGE_HOLDERS; i++)
        count += __atomic_load_n(&header_of(t)->holders[i], __ATOMIC_SEQ_CST) != 0;
    return count;
}

/* ---- sharing ----------------------------------------------------------------------------- */

struct stranger {
    char path[PATH_BYTES];
    struct tnt_signal go, done;
};

/* Start the process outside before there is a domain; it gets the path later. */
static struct stranger *open_stranger(void)
{
    struct stranger *s =
        mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    TN_CHECK(s != MAP_FAILED);
    s->go = tnt_signal_open();
    s->done = tnt_signal_open();
    return s;
}

static void close_stranger(struct stranger *s)
{
    tnt_signal_close(&s->go);
    tnt_signal_close(&s->done);
    munmap(s, sizeof *s);
}

static int use_by_path(void *argument)
{
    struct stranger *s = argument;
    tn_tensor *t;
    tnt_await(&s->go);
    TN_CHECK_OK(tn_tensor_open_path(s->path, &t));
    TN_CHECK(tnt_info(t).strategy == TN_STRATEGY_FILE_SYSTEM);
    TN_CHECK(strcmp(tnt_info(t).path, s->path) == 0);
    TN_CHECK(tn_tensor_count(t) == COUNT && tn_tensor_dtype(t) == TN_INT32);
    int32_t *data = tn_tensor_data(t);
    for (int32_t i = 0; i < COUNT; i++)
        TN_CHECK(data[i] == i);
    data[1] = -1;
    tnt_signal(&s->done);
    tnt_await(&s->go);
    TN_CHECK(data[2] == -2 && is_there(s->path));
    tn_tensor_unref(t);
    TN_CHECK(!is_there(s->path));
    return 0;
}

TN_TEST(a_process_outside_shares_a_file_by_its_path_and_keeps_it)
{
    struct stranger *s = open_stranger();
    pid_t pid = tnt_fork(use_by_path, s);
    tn_domain *d = make_domain();
    tn_tensor *t = make(d, s->path);
    tnt_signal(&s->go);
    tnt_await(&s->done);
    int32_t *data = tn_tensor_data(t);
    assert_int_equal(data[1], -1);
    assert_int_equal(holders(t), 1);
    data[2] = -2;
    tn_tensor_unref(t); /* the storage ends in the domain */
    TNT_AUDIT(d);
    tn_domain_close(d);
    assert_true(is_there(s->path));
    tnt_signal(&s->go);
    tnt_wait_ok(pid);
    assert_false(is_there(s->path));
    close_stranger(s);
}

static int hold_until_killed(void *argument)
{
    struct stranger *s = argument;
    tn_tensor *t;
    tnt_await(&s->go);
    TN_CHECK_OK(tn_tensor_open_path(s->path, &t));
    tnt_signal(&s->done);
    pause(); /* until it is killed */
    return 1;
}

TN_TEST(the_entry_of_a_killed_holder_counts_for_nothing)
{
    struct stranger *s = open_stranger();
    pid_t pid = tnt_fork(hold_until_killed, s);
    tn_domain *d = make_domain();
    tn_tensor *t = make(d, s->path);
    tnt_signal(&s->go);
    tnt_await(&s->done);
    assert_int_equal(holders(t), 1);
    tnt_kill(pid);
    assert_int_equal(holders(t), 1);
    tn_tensor_unref(t);
    assert_false(is_there(s->path));
    TNT_AUDIT(d);
    tn_domain_close(d);
    close_stranger(s);
}

TN_TEST(a_living_holder_removes_the_file_after_a_killed_one)
{
    struct stranger *s = open_stranger();
    pid_t pid = tnt_fork(hold_until_killed, s);
    tn_domain *d = make_domain();
    tn_tensor *t = make(d, s->path), *by_path;
    tnt_signal(&s->go);
    tnt_await(&s->done);
    TN_CHECK_OK(tn_tensor_open_path(s->path, &by_path));
    tn_tensor_unref(t);
    tn_domain_close(d);
    tnt_kill(pid);
    assert_true(is_there(s->path));
    tn_tensor_unref(by_path);
    assert_false(is_there(s->path));
    close_stranger(s);
}

TN_TEST(the_domain_keeps_the_file_after_its_holders)
{
    char path[PATH_BYTES];
    tn_domain *d = make_domain();
    tn_tensor *t = make(d, path), *by_path, *again;
    TN_CHECK_OK(tn_tensor_open_path(path, &by_path));
    TN_CHECK_OK(tn_tensor_open_path(path, &again));
    assert_int_equal(holders(t), 2);
    tn_tensor_unref(by_path);
    assert_int_equal(holders(t), 1);
    tn_tensor_unref(again);
    assert_int_equal(holders(t), 0);
    assert_true(is_there(path));
    tn_tensor_unref(t);
    assert_false(is_there(path));
    tn_domain_close(d);
}

static int end_a_copy(void *argument)
{
    tn_tensor_unref(argument);
    return 0;
}

TN_TEST(a_forked_child_does_not_give_back_what_its_parent_holds)
{
    char path[PATH_BYTES];
    tn_domain *d = make_domain();
    tn_tensor *t = make(d, path), *by_path;
    TN_CHECK_OK(tn_tensor_open_path(path, &by_path));
    tn_tensor_unref(t);
    tn_domain_close(d);
    tnt_wait_ok(tnt_fork(end_a_copy, by_path));
    assert_true(is_there(path));
    assert_int_equal(((int32_t *)tn_tensor_data(by_path))[5], 5);
    tn_tensor_unref(by_path);
    assert_false(is_there(path));
}

/* ---- holders ----------------------------------------------------------------------------- */

enum { MOST = TN_STORAGE_HOLDERS - 1 };

static int hold_all_until_killed(void *argument)
{
    struct stranger *s = argument;
    tn_tensor *t;
    for (int i = 0; i < MOST; i++)
        TN_CHECK_OK(tn_tensor_open_path(s->path, &t));
    TN_CHECK(tn_tensor_open_path(s->path, &t) == TN_ERR_FULL);
    tnt_signal(&s->done);
    pause(); /* until it is killed */
    return 1;
}

TN_TEST(a_file_has_63_holders_and_reuses_entries_of_dead_ones)
{
    struct stranger *s = open_stranger();
    tn_domain *d = make_domain();
    tn_tensor *t = make(d, s->path), *by_path[MOST], *none = NULL;
    pid_t pid = tnt_fork(hold_all_until_killed, s);
    tnt_await(&s->done);
    assert_int_equal(holders(t), MOST);
    assert_int_equal(tn_tensor_open_path(s->path, &none), TN_ERR_FULL);
    tnt_kill(pid);
    for (int i = 0; i < MOST; i++)
        TN_CHECK_OK(tn_tensor_open_path(s->path, &by_path[i]));
    assert_int_equal(tn_tensor_open_path(s->path, &none), TN_ERR_FULL);
    tn_tensor_unref(by_path[10]);
    TN_CHECK_OK(tn_tensor_open_path(s->path, &by_path[10]));
    for (int i = 0; i < MOST; i++)
        tn_tensor_unref(by_path[i]);
    assert_int_equal(holders(t), 0);
    tn_tensor_unref(t);
    tn_domain_close(d);
    close_stranger(s);
}

enum { CROWD = 64 };
struct crowd {
    char path[PATH_BYTES];
    _Atomic int held, full;
    struct tnt_signal go, done;
};

static int join_the_crowd(void *argument)
{
    struct crowd *c = argument;
    tn_tensor *t = NULL;
    int status = tn_tensor_open_path(c->path, &t);
    TN_CHECK(status == 0 || status == TN_ERR_FULL);
    status == 0 ? c->held++ : c->full++;
    tnt_signal(&c->done);
    tnt_await(&c->go);
    tn_tensor_unref(t);
    return 0;
}

TN_TEST(of_64_openers_63_hold_the_file_and_the_last_removes_it)
{
    struct crowd *c =
        mmap(NULL, sizeof *c, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    TN_CHECK(c != MAP_FAILED);
    pid_t pids[CROWD];
    c->go = tnt_signal_open();
    c->done = tnt_signal_open();
    tn_domain *d = make_domain();
    tn_tensor *t = make(d, c->path);
    for (int i = 0; i < CROWD; i++)
        pids[i] = tnt_fork(join_the_crowd, c);
    for (int i = 0; i < CROWD; i++)
        tnt_await(&c->done);
    assert_int_equal(c->held, MOST);
    assert_int_equal(c->full, 1);
    tn_tensor_unref(t); /* the references that the children inherited are left */
    for (int i = 0; i < CROWD; i++)
        tnt_signal(&c->go);
    for (int i = 0; i < CROWD; i++)
        tnt_wait_ok(pids[i]);
    uint32_t reaped;
    TN_CHECK_OK(tn_domain_reap(d, &reaped)); /* also the references of the children */
    assert_false(is_there(c->path));
    TNT_AUDIT(d);
    tn_domain_close(d);
    tnt_signal_close(&c->go);
    tnt_signal_close(&c->done);
    munmap(c, sizeof *c);
}

/* ---- bad files --------------------------------------------------------------------------- */

static int result_of(const char *path)
{
    tn_tensor *t = (tn_tensor *)8;
    unsigned descriptors = tnt_descriptor_count();
    int status = tn_tensor_open_path(path, &t);
    assert_int_equal(tnt_descriptor_count(), descriptors);
    if (status == 0)
        tn_tensor_unref(t);
    else
        assert_ptr_equal(t, (tn_tensor *)8);
    return status;
}

TN_TEST(a_path_that_names_no_storage_is_refused)
{
    char path[PATH_BYTES], other[PATH_BYTES + 8];
    tn_domain *d = make_domain();
    tn_tensor *t = make(d, path);
    snprintf(other, sizeof other, "%s-other", path);
    assert_int_equal(result_of(NULL), TN_ERR_INVALID);
    assert_int_equal(result_of(""), TN_ERR_INVALID);
    assert_int_equal(result_of(strrchr(path, '/') + 1),
                     TN_ERR_INVALID); /* the path is not absolute */
    assert_int_equal(tn_tensor_open_path(path, NULL), TN_ERR_INVALID);
    assert_int_equal(result_of(other), TN_ERR_NOT_FOUND);
    TN_CHECK(symlink(path, other) == 0);
    assert_int_equal(result_of(other), TN_ERR_DENIED);
    unlink(other);
    TN_CHECK(mkfifo(other, 0600) == 0);
    assert_int_equal(result_of(other), TN_ERR_INVALID);
    unlink(other);
    TN_CHECK(mkdir(other, 0700) == 0);
    assert_int_equal(result_of(other), TN_ERR_INVALID);
    rmdir(other);
    assert_int_equal(result_of("/dev/null"), TN_ERR_INVALID);
    assert_int_equal(result_of("/dev/shm"), TN_ERR_INVALID);
    assert_int_equal(result_of(path), 0);
    tn_tensor_unref(t);
    tn_domain_close(d);
}

static void write_file(const char *path, const void *bytes, size_t size, uint64_t file_bytes)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    TN_CHECK(fd >= 0 && ftruncate(fd, (off_t)file_bytes) == 0);
    TN_CHECK(write(fd, bytes, size) == (ssize_t)size);
    close(fd);
}

TN_TEST(a_truncated_or_altered_file_is_corrupt)
{
    char path[PATH_BYTES], other[PATH_BYTES + 8];
    tn_domain *d = make_domain();
    tn_tensor *t = make(d, path);
    const tn_storage_header good = *header_of(t);
    tn_storage_header h = good;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    snprintf(other, sizeof other, "%s-other", path);
    const uint64_t sizes[] = {sizeof good, page, page + 1, good.object_bytes - 1};
    for (size_t i = 0; i < TNI_COUNT(sizes); i++) {
        write_file(other, &good, sizeof good, sizes[i]);
        assert_int_equal(result_of(other), TN_ERR_CORRUPT);
        unlink(other);
    }
    write_file(other, "", 0, 0);
    assert_int_equal(result_of(other), TN_ERR_CORRUPT);
    unlink(other);
    h.magic[3] = 'x';
    write_file(other, &h, sizeof h, good.object_bytes);
    assert_int_equal(result_of(other), TN_ERR_CORRUPT);
    unlink(other);
    h = good, h.strategy = TN_STRATEGY_FILE_DESCRIPTOR;
    write_file(other, &h, sizeof h, good.object_bytes);
    assert_int_equal(result_of(other), TN_ERR_CORRUPT);
    unlink(other);
    h = good, h.version = 9;
    write_file(other, &h, sizeof h, good.object_bytes);
    assert_int_equal(result_of(other), TN_ERR_VERSION);
    unlink(other);
    tn_tensor_unref(t);
    tn_domain_close(d);
}

TN_TEST(a_replaced_file_is_not_removed_by_holders_of_the_old_one)
{
    char path[PATH_BYTES];
    tn_domain *d = make_domain();
    tn_tensor *t = make(d, path), *by_path;
    TN_CHECK_OK(tn_tensor_open_path(path, &by_path));
    tn_tensor_unref(t);
    tn_domain_close(d);
    TN_CHECK(unlink(path) == 0);
    write_file(path, "something else", 14, 1 << 16);
    assert_int_equal(result_of(path), TN_ERR_CORRUPT);
    assert_int_equal(((int32_t *)tn_tensor_data(by_path))[9], 9);
    tn_tensor_unref(by_path);
    assert_true(is_there(path));
    unlink(path);
}

TN_TEST(a_file_of_another_user_is_refused)
{
    char path[PATH_BYTES];
    if (geteuid() != 0)
        tnt_skip("only root can give a file away");
    tn_domain *d = make_domain();
    tn_tensor *t = make(d, path);
    TN_CHECK(chown(path, NOBODY, NOBODY) == 0);
    assert_int_equal(result_of(path), TN_ERR_DENIED);
    TN_CHECK(chown(path, 0, 0) == 0);
    assert_int_equal(result_of(path), 0);
    tn_tensor_unref(t);
    tn_domain_close(d);
}

static int open_as_nobody(void *argument)
{
    tn_tensor *t;
    TN_CHECK(setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
    TN_CHECK(tn_tensor_open_path(argument, &t) == TN_ERR_DENIED);
    return 0;
}

TN_TEST(another_user_cannot_open_a_file)
{
    char path[PATH_BYTES];
    if (geteuid() != 0)
        tnt_skip("only root can become another user");
    tn_domain *d = make_domain();
    tn_tensor *t = make(d, path);
    tnt_wait_ok(tnt_fork(open_as_nobody, path));
    tn_tensor_unref(t);
    tn_domain_close(d);
}
