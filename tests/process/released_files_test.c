/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests: files of storages that have ended in a live domain and that no process holds,
 * domains that cannot be found, and storages that can never fit.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include "backing.h"
#include "harness/gc.h"
#include "harness/tensor.h"
#include "namespaces.h"

enum { NOBODY = 65534, QUOTA_BYTES = 16 << 20 };

static tn_domain *d;

static tn_domain *without_tenond(void)
{
    return tnt_domain(&(tn_domain_options){.struct_size = sizeof(tn_domain_options),
                                           .quota_bytes = QUOTA_BYTES,
                                           .flags = TN_DOMAIN_NO_MANAGER});
}

static tn_tensor *make(void) { return make_as(d, TN_STRATEGY_FILE_SYSTEM, 1); }
static bool is_there(const char *path) { return access(path, F_OK) == 0; }

static void await_end_of(const char *path)
{
    uint64_t deadline_ns = tnt_until_ns(BACKING_MS);
    while (is_there(path)) {
        TN_CHECK(tni_os_now_ns() < deadline_ns);
        tni_os_yield();
    }
}

/* ---- what is said ------------------------------------------------------------------------ */

static char said[4096];

static int hear(const char *sentence, bool is_done, void *context)
{
    (void)is_done;
    (void)context;
    strncat(said, sentence, sizeof said - strlen(said) - 1);
    return 0;
}

static void gc(void)
{
    said[0] = 0;
    tnt_gc(hear);
}

static int files_of_nobody(void)
{
    said[0] = 0;
    return TN_CHECK_OK(tn_inspect_files(hear, NULL));
}

static void expect_said(const char *part)
{
    if (strstr(said, part) == NULL)
        fail_msg("'%s' does not say '%s'", said, part);
}

static void expect_detail(const char *part)
{
    if (strstr(tn_error_detail(), part) == NULL)
        fail_msg("'%s' does not say '%s'", tn_error_detail(), part);
}

/* ---- a process of no domain, which holds a file by its path ------------------------------ */

struct holder {
    char path[256];
    struct tnt_signal go, done;
};

static struct holder *open_holder(void)
{
    struct holder *h =
        mmap(NULL, sizeof *h, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    TN_CHECK(h != MAP_FAILED);
    h->go = tnt_signal_open();
    h->done = tnt_signal_open();
    return h;
}

static void close_holder(struct holder *h)
{
    tnt_signal_close(&h->go);
    tnt_signal_close(&h->done);
    munmap(h, sizeof *h);
}

static int hold(void *argument)
{
    struct holder *h = argument;
    tn_tensor *t;
    tnt_await(&h->go);
    TN_CHECK_OK(tn_tensor_open_path(h->path, &t));
    tnt_signal(&h->done);
    pause(); /* until it is killed */
    return 1;
}

/*
 * Leave a file whose storage ended in the domain that `begin` made, and whose last holder was
 * killed.
 */
static void let_one_go(struct holder *h, tn_domain *(*begin)(void))
{
    pid_t pid = tnt_fork(hold, h); /* forked before there is a domain */
    d = begin();
    tn_tensor *t = make();
    snprintf(h->path, sizeof h->path, "%s", tnt_info(t).path);
    tnt_signal(&h->go);
    tnt_await(&h->done);
    tn_tensor_unref(t);
    TN_CHECK(is_there(h->path));
    assert_int_equal(files_of_nobody(), 0);
    tnt_kill(pid);
}

static tn_domain *with_tenond(void) { return tnt_domain(NULL); }

TN_TEST(tenond_removes_a_released_file_whose_holder_was_killed)
{
    struct holder *h = open_holder();
    let_one_go(h, with_tenond);
    tn_tensor *other = make();
    await_end_of(h->path);
    assert_true(is_there(tnt_info(other).path));
    TNT_AUDIT(d);
    tn_tensor_unref(other);
    tn_domain_close(d);
    close_holder(h);
}

TN_TEST(gc_removes_a_released_file_whose_last_holder_was_killed)
{
    struct holder *h = open_holder();
    let_one_go(h, without_tenond);
    tn_tensor *other = make();
    assert_int_equal(files_of_nobody(), 1);
    expect_said(h->path);
    expect_said("let go by its domain");
    gc();
    expect_said(h->path);
    assert_false(is_there(h->path));
    assert_true(is_there(tnt_info(other).path));
    assert_int_equal(files_of_nobody(), 0);
    tn_tensor_unref(other);
    tn_domain_close(d);
    close_holder(h);
}

TN_TEST(a_waiting_member_removes_the_file_of_an_ended_storage)
{
    struct holder *h = open_holder();
    let_one_go(h, without_tenond);
    tn_tensor *other = make();
    tn_queue *q;
    tn_message m;
    TN_CHECK_OK(tn_queue_open(d, NULL, NULL, 0, &q));
    uint64_t deadline_ns = tnt_until_ns(BACKING_MS);
    while (is_there(h->path)) {
        TN_CHECK(tni_os_now_ns() < deadline_ns);
        assert_int_equal(tn_queue_pop(q, tnt_deadline(150), &m), TN_ERR_TIMED_OUT);
    }
    assert_true(is_there(tnt_info(other).path));
    TNT_AUDIT(d);
    tn_object_close(q);
    tn_tensor_unref(other);
    tn_domain_close(d);
    close_holder(h);
}

static int be_killed_with_a_file(void *argument)
{
    struct holder *h = argument;
    d = without_tenond();
    snprintf(h->path, sizeof h->path, "%s", tnt_info(make()).path);
    tnt_signal(&h->done);
    raise(SIGKILL);
    return 1;
}

TN_TEST(files_of_a_domain_that_was_killed_go_with_the_next_domain)
{
    struct holder *h = open_holder();
    assert_int_equal(tnt_wait(tnt_fork(be_killed_with_a_file, h)), SIGKILL);
    assert_true(is_there(h->path));
    d = without_tenond();
    tn_tensor_unref(make());
    tn_domain_close(d);
    assert_false(is_there(h->path));
    close_holder(h);
}

TN_TEST(gc_leaves_files_of_another_user_with_our_names)
{
    struct tni_os_process self;
    char path[256];
    if (geteuid() != 0)
        tnt_skip("only root can give a file to another user");
    TN_CHECK_OK(tni_os_self(&self));
    snprintf(path, sizeof path, "%s/tenon-0-%" PRIx64 "-%016x-%016x", tnt_shm_folder(),
             self.pid_space, 7, 8);
    int fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    TN_CHECK(fd >= 0);
    close(fd);
    assert_int_equal(files_of_nobody(),
                     1); /* the file of this domain: so the name is as it should be */
    TN_CHECK(chown(path, NOBODY, NOBODY) == 0);
    assert_int_equal(files_of_nobody(), 0);
    gc();
    TN_CHECK(strstr(said, path) == NULL);
    assert_true(is_there(path));
    TN_CHECK(unlink(path) == 0);
}

static void expect_untouched(const char *path)
{
    assert_int_equal(files_of_nobody(), 0);
    gc();
    assert_true(is_there(path));
}

TN_TEST(gc_leaves_a_file_without_a_header_of_a_living_domain)
{
    d = without_tenond();
    tn_tensor *t = make();
    int fd = open(tnt_info(t).path, O_RDWR | O_CLOEXEC);
    TN_CHECK(pwrite(fd, "\0\0\0\0\0\0\0\0", 8, 0) == 8); /* the magic number is written last */
    close(fd);
    expect_untouched(tnt_info(t).path);
    tn_tensor_unref(t);
    tn_domain_close(d);
}

TN_TEST(gc_leaves_the_files_if_a_block_makes_no_sense)
{
    d = without_tenond();
    tn_tensor *t = make();
    struct tni_backing *b = tni_payload_at(&d->segment, tni_block_make(TNI_BACKING_CLASS, 0));
    uint32_t word = atomic_load(&b->strategy);
    char first = b->path[0];
    b->path[0] = 0;
    assert_int_equal(tni_files_let_go(&d->segment, false, NULL, NULL), TN_ERR_CORRUPT);
    b->path[0] = first;
    assert_int_equal(atomic_load(&b->strategy), word);
    expect_untouched(tnt_info(t).path);
    tn_tensor_unref(t);
    tn_domain_close(d);
}

/* Mount a file system in a mount namespace of this test, and set TENON_SHM_DIR to it. */
static void mount_own(char *folder, size_t size_bytes)
{
    snprintf(folder, size_bytes, "%s/small", tnt_folder());
    if (mkdir(folder, 0700) != 0 || unshare(CLONE_NEWNS) != 0 ||
        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", folder, "tmpfs", 0, "size=1m") != 0)
        tnt_skip("mounting a file system needs root");
    setenv("TENON_SHM_DIR", folder, 1);
}

static void drop_log(int level, const char *line, void *context)
{
    (void)level;
    (void)line;
    (void)context;
}

/* Mount over a file: then it can be neither removed nor opened for writing. */
static void pin(const char *path)
{
    TN_CHECK(mount(path, path, NULL, MS_BIND, NULL) == 0);
    TN_CHECK(mount("none", path, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL) == 0);
}

TN_TEST(gc_names_a_file_it_cannot_remove_and_removes_it_later)
{
    char folder[128], path[256];
    mount_own(folder, sizeof folder);
    tn_log_set(drop_log, NULL);
    d = without_tenond();
    tn_tensor *t = make();
    snprintf(path, sizeof path, "%s", tnt_info(t).path);
    pin(path);
    tn_tensor_unref(t);
    assert_true(is_there(path));
    assert_int_equal(files_of_nobody(), 1);
    expect_said(path);
    gc();
    expect_said("left");
    expect_said(strerror(EBUSY));
    assert_int_equal(umount(path), 0);
    gc();
    expect_said("removed");
    assert_false(is_there(path));
    assert_int_equal(files_of_nobody(), 0);
    tn_domain_close(d);
    tn_log_set(NULL, NULL);
    umount(folder);
}

/* ---- members that cannot be seen --------------------------------------------------------- */

/* Become a process that other processes of its user cannot look into; root still can. */
static void become_nobody(void)
{
    TN_CHECK(geteuid() != 0 || (setgid(NOBODY) == 0 && setuid(NOBODY) == 0));
    TN_CHECK(prctl(PR_SET_DUMPABLE, 0) == 0);
}

static int live_unseen(void *argument)
{
    struct holder *h = argument;
    become_nobody();
    d = without_tenond();
    tn_tensor *t = make();
    snprintf(h->path, sizeof h->path, "%s", tnt_info(t).path);
    tnt_signal(&h->done);
    tnt_await(&h->go);
    TN_CHECK(is_there(h->path));
    raise(SIGKILL);
    return 1;
}

static int gc_once_told(void *argument)
{
    struct holder *h = argument;
    become_nobody();
    for (int i = 0; i < 2; i++) {
        tnt_await(&h->go);
        gc();
        TN_CHECK(is_there(h->path) == (i == 0));
        tnt_signal(&h->done);
    }
    return 0;
}

static void let_nobody_write(void)
{
    if (geteuid() == 0)
        TN_CHECK(chown(tnt_folder(), NOBODY, NOBODY) == 0 &&
                 chown(tnt_shm_folder(), NOBODY, NOBODY) == 0);
}

/*
 * The files of lives_unseen() stay after the first gc; after its death the second one removes
 * them.
 */
static void collect_around(tnt_child_fn *lives_unseen)
{
    struct holder *member = open_holder(), *collector = open_holder();
    let_nobody_write();
    pid_t collects = tnt_fork(gc_once_told, collector);
    pid_t lives = tnt_fork(lives_unseen, member);
    tnt_await(&member->done);
    snprintf(collector->path, sizeof collector->path, "%s", member->path);
    tnt_signal(&collector->go);
    tnt_await(&collector->done);
    tnt_signal(&member->go);
    assert_int_equal(tnt_wait(lives), SIGKILL);
    tnt_signal(&collector->go);
    tnt_await(&collector->done);
    tnt_wait_ok(collects);
    close_holder(member);
    close_holder(collector);
}

TN_TEST(gc_leaves_a_file_of_an_unfound_domain_to_its_living_maker)
{
    TN_CHECK(setenv("TENON_FORCE_FALLBACK", "witness", 1) == 0);
    collect_around(live_unseen);
}

/* ---- members of which only the witness can be seen --------------------------------------- */

static tn_queue *q;

static int push_and_end(void *argument)
{
    struct holder *h = argument;
    tn_tensor *t = make();
    snprintf(h->path, sizeof h->path, "%s", tnt_info(t).path);
    TN_CHECK_OK(tn_queue_push_tensor(q, t, TN_PUSH_MOVE, TN_NOW));
    return 0;
}

static void begin_with_a_dead_maker(struct holder *h)
{
    d = without_tenond();
    TN_CHECK_OK(tn_queue_open(d, NULL, NULL, 0, &q));
    tnt_wait_ok(tnt_fork(push_and_end, h));
}

static void expect_message(void)
{
    tn_tensor *t = pop(q);
    expect_numbers(t, 1);
    tn_tensor_unref(t);
}

static int live_unseen_after_the_maker(void *argument)
{
    struct holder *h = argument;
    become_nobody();
    begin_with_a_dead_maker(h);
    TN_CHECK_OK(tn_queue_push_tensor(q, make(), TN_PUSH_MOVE, TN_NOW));
    tnt_signal(&h->done);
    tnt_await(&h->go);
    expect_message();
    raise(SIGKILL);
    return 1;
}

TN_TEST(gc_leaves_a_file_of_an_unfound_domain_to_a_living_member)
{
    collect_around(live_unseen_after_the_maker);
}

static const struct space user_apart = {"user", CLONE_NEWUSER, false};

/*
 * A tenond that starts does the same, and so does the last member of a domain without tenond.
 */
static int gc_in_another_user_namespace(void *argument)
{
    struct holder *h = argument;
    TN_CHECK(enter(&user_apart));
    tnt_await(&h->go);
    gc();
    return 0;
}

TN_TEST(gc_in_another_user_namespace_leaves_a_living_domains_files)
{
    skip_unless_allowed(&user_apart);
    struct holder *h = open_holder();
    pid_t collects = tnt_fork(gc_in_another_user_namespace,
                              h); /* a process without the descriptors of this one */
    begin_with_a_dead_maker(h);
    tnt_signal(&h->go);
    tnt_wait_ok(collects);
    TN_CHECK(is_there(h->path));
    expect_message();
    tn_object_close(q);
    tn_domain_close(d);
    close_holder(h);
}

/* ---- what can never fit ------------------------------------------------------------------ */

static int make_bytes(uint32_t strategy, int64_t bytes, tn_deadline deadline, tn_tensor **ret_t)
{
    return tn_tensor_create(
        d, TN_UINT8, 1, &bytes,
        TN_OPTIONS(tn_tensor_options, .strategy = strategy, .deadline = deadline), ret_t);
}

TN_TEST(a_storage_larger_than_the_quota_fails_at_once)
{
    tn_tensor *t = NULL;
    tn_arena *arena = NULL;
    d = without_tenond();
    for (uint32_t strategy = TN_STRATEGY_ARENA; strategy <= TN_STRATEGY_FILE_SYSTEM; strategy++)
        assert_int_equal(make_bytes(strategy, QUOTA_BYTES + 1, TN_FOREVER, &t),
                         TN_ERR_NO_MEMORY);
    expect_detail("quota");
    assert_int_equal(tn_arena_create(d, QUOTA_BYTES + 1, TN_FOREVER, &arena), TN_ERR_NO_MEMORY);
    expect_detail("quota");
    tn_domain_close(d);
}

TN_TEST(a_file_larger_than_its_file_system_fails_at_once)
{
    char folder[128];
    tn_tensor *t = NULL;
    mount_own(folder, sizeof folder);
    d = without_tenond();
    assert_int_equal(make_bytes(TN_STRATEGY_FILE_SYSTEM, 2 << 20, TN_FOREVER, &t),
                     TN_ERR_NO_MEMORY);
    expect_detail(folder);
    expect_detail("bytes free of");
    tn_domain_close(d);
    umount(folder);
}

static void *free_soon(void *argument)
{
    tn_tensor_unref(argument);
    return NULL;
}

TN_TEST(a_timed_out_wait_for_memory_names_what_it_waited_for)
{
    enum { MOST = QUOTA_BYTES / 4 * 3 };
    tn_tensor *t = NULL, *next = NULL;
    d = without_tenond();
    for (uint32_t strategy = TN_STRATEGY_ARENA; strategy <= TN_STRATEGY_FILE_SYSTEM;
         strategy++) {
        TN_CHECK_OK(make_bytes(strategy, MOST, TN_NOW, &t));
        assert_int_equal(make_bytes(strategy, MOST, tnt_deadline(1), &next), TN_ERR_TIMED_OUT);
        expect_detail("until the deadline");
        expect_detail("quota");
        pthread_t thread;
        TN_CHECK(pthread_create(&thread, NULL, free_soon, t) == 0);
        TN_CHECK_OK(make_bytes(strategy, MOST, TN_FOREVER, &next));
        pthread_join(thread, NULL);
        tn_tensor_unref(next);
    }
    tn_domain_close(d);
}
