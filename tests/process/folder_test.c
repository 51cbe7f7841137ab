/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests: the runtime folder of a process stays the same while sessions begin and end and the
 * environment changes. Folders of the test stand for /run and /tmp.
 */
#include <sys/stat.h>

#include "backing.h"
#include "harness/live_blocks.h"
#include "os/linux.h"
#include "reaper/manager.h"

static tn_domain *d;
static tn_queue *q;
static char root[128];

static const char *below(const char *name)
{
    static char paths[4][256];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", root, name);
    return path;
}

static void make(const char *name) { TN_CHECK(mkdir(below(name), 0700) == 0); }

/* There is no session yet, so the folder below tmp is used. */
static void begin_system(void)
{
    snprintf(root, sizeof root, "%s/root", tnt_folder());
    TN_CHECK(mkdir(root, 0700) == 0);
    for (const char *const *part =
             (const char *const[]){"run", "run/user", "tmp", "dev", "dev/shm", NULL};
         *part != NULL; part++)
        make(*part);
    tni_linux_root = root;
    unsetenv("TENON_RUNTIME_DIR");
    setenv("XDG_RUNTIME_DIR", below("session"), 1);
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
    assert_int_equal(live_blocks(d), 0);
    d = tn_domain_close(d);
}

static void pop_all(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        tn_tensor *t = pop(q);
        expect_numbers(t, (float)i);
        tn_tensor_unref(t);
    }
}

/* A tenond in the folder of the session would have a file there. */
static bool is_used(const char *session)
{
    char path[300];
    snprintf(path, sizeof path, "%s/tenon", below(session));
    return access(path, F_OK) == 0;
}

/* ---- a folder that comes ----------------------------------------------------------------- */

TN_TEST(a_session_that_begins_later_changes_no_folder)
{
    char folder[128];
    begin_system();
    begin();
    snprintf(folder, sizeof folder, "%s", tn_runtime_folder());
    leave_storages(d, q, 3);
    int32_t old = manager_pid(d), vault = await_vault(0, 3);
    make("session");
    assert_string_equal(tn_runtime_folder(), folder);
    kill_and_await(old, SIGKILL);
    await_storages(await_successor(d, old), 3);
    assert_int_equal(await_vault(0, 3), vault);
    pop_all(3);
    assert_false(is_used("session"));
    finish();
}

/* ---- an environment that changes --------------------------------------------------------- */

static void change_variable(const char *name)
{
    begin_system();
    make("session");
    make("other");
    begin();
    uint32_t runtime = atomic_load(&d->segment.header->runtime);
    int32_t old = manager_pid(d);
    setenv(name, below("other"), 1);
    kill_tenond_and_vault(old);
    int32_t next = await_successor(d, old);
    assert_int_equal(atomic_load(&d->segment.header->runtime), runtime);
    tn_domain *second = tnt_domain(NULL);
    assert_int_equal(manager_pid(second), next);
    tn_domain_close(second);
    assert_false(is_used("other"));
    finish();
}

TN_TEST(a_session_variable_that_is_changed_changes_no_folder)
{
    change_variable("XDG_RUNTIME_DIR");
}
TN_TEST(a_folder_that_is_named_later_changes_no_folder)
{
    change_variable("TENON_RUNTIME_DIR");
}

/* ---- a folder that goes ------------------------------------------------------------------ */

static void remove_all(const char *name)
{
    char command[300];
    snprintf(command, sizeof command, "rm -r '%s'", below(name));
    TN_CHECK(system(command) == 0);
}

/* Begin in the folder of a session. `next` is the folder that can be used once that is gone. */
static void begin_in_session(const char *next)
{
    begin_system();
    make("session");
    TN_CHECK_OK(tni_os_runtime_prepare());
    setenv("XDG_RUNTIME_DIR", below(next), 1);
    begin();
    leave_storages(d, q, 3);
}

static void await_socket(const char *folder)
{
    uint64_t deadline_ns = tnt_until_ns(BACKING_MS);
    int fd = -1;
    while (tni_os_connect_in(folder, TNI_MANAGER_SOCKET, &fd) != 0) {
        TN_CHECK(tni_os_now_ns() < deadline_ns);
        tni_os_yield();
    }
    tni_os_close(fd);
}

static void await_end(int32_t pid)
{
    int fd = -1;
    if (tni_os_process_open(pid, &fd) == TN_ERR_NOT_FOUND)
        return;
    TN_CHECK_OK(tni_os_poll(&fd, 1, tnt_until_ns(BACKING_MS)));
    tni_os_close(fd);
}

TN_TEST(a_session_that_ends_takes_no_storage_with_it)
{
    char folder[300];
    begin_in_session("next");
    int32_t tenond = manager_pid(d), vault = await_vault(0, 3);
    make("next");
    remove_all("session");
    snprintf(folder, sizeof folder, "%s/tenon", below("next"));
    await_socket(folder);
    assert_int_equal(manager_pid(d), tenond);
    await_vault(vault, 3);
    kill_and_await(tenond, SIGKILL);
    int32_t second = await_successor(d, tenond);
    assert_string_equal(tn_runtime_folder(), folder);
    await_storages(second, 3);
    pop_all(3);
    tn_domain *later = tnt_domain(NULL); /* made by a process whose folder is gone */
    assert_int_equal(manager_pid(later), second);
    tn_domain_close(later);
    finish();
}

/* The user logs out, and in again once tenond has gone on in another folder. */
static void log_out_and_in(void)
{
    char folder[300];
    uint32_t runtime = atomic_load(&d->segment.header->runtime);
    uint64_t deadline_ns = tnt_until_ns(BACKING_MS);
    make("next");
    remove_all("session");
    while (atomic_load(&d->segment.header->runtime) == runtime) {
        TN_CHECK(tni_os_now_ns() < deadline_ns);
        tni_os_yield();
    }
    snprintf(folder, sizeof folder, "%s/tenon", below("next"));
    await_socket(folder);
    make("session");
}

static void expect_folder(const char *session)
{
    char folder[300];
    snprintf(folder, sizeof folder, "%s/tenon", below(session));
    assert_string_equal(tn_runtime_folder(), folder);
    assert_int_equal(atomic_load(&d->segment.header->runtime), tni_manager_runtime());
}

TN_TEST(a_tenond_that_moved_is_replaced_after_a_login_too)
{
    begin_in_session("next");
    int32_t tenond = manager_pid(d), vault = await_vault(0, 3);
    log_out_and_in();
    await_storages(tenond, 3);
    await_vault(vault, 3);
    kill_and_await(tenond, SIGKILL);
    await_storages(await_successor(d, tenond), 3);
    expect_folder("next");
    pop_all(3);
    assert_false(is_used("session"));
    finish();
}

/* The member makes no call between the logout and tn_domain_open(). */
TN_TEST(a_member_finds_its_names_again_after_a_login)
{
    tn_domain *named = NULL, *second = NULL;
    begin_in_session("next");
    int32_t tenond = manager_pid(d);
    TN_CHECK_OK(tn_domain_open("house", NULL, TN_OPEN_NEW, &named));
    log_out_and_in();
    assert_int_equal(tn_domain_open("house", NULL, TN_OPEN_NEW, &second), TN_ERR_EXISTS);
    expect_folder("next");
    TN_CHECK_OK(tn_domain_open("house", NULL, TN_OPEN_EXISTING, &second));
    assert_memory_equal(second->segment.header->id, named->segment.header->id, 16);
    tn_domain *later = tnt_domain(NULL);
    assert_int_equal(manager_pid(later), tenond);
    assert_false(is_used("session"));
    tn_domain_close(later);
    tn_domain_close(second);
    tn_domain_close(named);
    pop_all(3);
    finish();
}

/* The next session of the user begins before tenond checks its folder. */
static void lose_folder(void (*lose)(const char *name))
{
    begin_in_session("session");
    int32_t old = manager_pid(d);
    await_vault(0, 3);
    TN_CHECK(kill(old, SIGSTOP) == 0);
    lose("session");
    make("session");
    tn_domain *later = tnt_domain(NULL);
    int32_t next = manager_pid(later);
    assert_int_not_equal(next, old);
    TN_CHECK(kill(old, SIGCONT) == 0);
    await_end(old);
    assert_int_equal(manager_pid(d), next);
    await_storages(next, 3);
    await_socket(tn_runtime_folder()); /* the old tenond did not remove the socket */
    assert_int_not_equal(tni_os_file_number(TNI_MANAGER_LOCK), 0);
    pop_all(3);
    tn_domain_close(later);
    finish();
}

/* The lock file of tenond stays, under another name. */
static void rename_all(const char *name)
{
    TN_CHECK(rename(below(name), below("renamed")) == 0);
}

TN_TEST(a_tenond_that_lost_its_folder_gives_all_to_the_next) { lose_folder(remove_all); }
TN_TEST(a_tenond_whose_folder_was_renamed_gives_all_to_the_next) { lose_folder(rename_all); }

/* The next tenond is in a folder that the old one does not choose. */
TN_TEST(a_tenond_that_was_stopped_leaves_a_domain_to_its_successor)
{
    begin_in_session("next");
    int32_t old = manager_pid(d);
    await_vault(0, 3);
    TN_CHECK(kill(old, SIGSTOP) == 0);
    remove_all("session");
    make("other");
    setenv("XDG_RUNTIME_DIR", below("other"), 1);
    TN_CHECK_OK(tni_manager_register(d));
    int32_t next = manager_pid(d);
    assert_int_not_equal(next, old);
    make("next");
    TN_CHECK(kill(old, SIGCONT) == 0);
    await_end(old);
    assert_int_equal(manager_pid(d), next);
    expect_folder("other");
    await_storages(next, 3);
    pop_all(3);
    finish();
}

TN_TEST(tenond_recreates_its_files_when_they_are_removed)
{
    static const char *const names[] = {TNI_MANAGER_SOCKET, TNI_MANAGER_LOCK};
    begin_in_session("session");
    int32_t tenond = manager_pid(d);
    for (int i = 0; i < 2; i++) {
        uint64_t deadline_ns = tnt_until_ns(BACKING_MS);
        TN_CHECK_OK(tni_os_file_remove(names[i]));
        while (tni_os_file_number(names[i]) == 0) {
            TN_CHECK(tni_os_now_ns() < deadline_ns);
            tni_os_yield();
        }
        await_socket(tn_runtime_folder());
    }
    tn_domain *later = tnt_domain(NULL);
    assert_int_equal(manager_pid(later), tenond);
    tn_domain_close(later);
    await_vault(0, 3);
    kill_and_await(tenond, SIGKILL);
    await_storages(await_successor(d, tenond), 3);
    pop_all(3);
    finish();
}

TN_TEST(a_killed_tenond_is_replaced_once_its_folder_is_usable)
{
    begin();
    int32_t old = manager_pid(d);
    kill_and_await(old, SIGKILL);
    TN_CHECK(chmod(tn_runtime_folder(), 0770) == 0);
    tni_manager_survive(d);
    assert_false(tni_manager_is_alive(&d->segment));
    TN_CHECK(chmod(tn_runtime_folder(), 0700) == 0);
    await_successor(d, old);
    finish();
}

#if defined(TN_KILL_POINTS)
/*
 * Check that the next tenond gets the descriptors that members still have: here this process,
 * which holds `t`.
 */
static void expect_served(int32_t dead, tn_tensor *t)
{
    int32_t next = await_successor(d, dead);
    assert_int_equal(atomic_load(&d->segment.header->runtime), tni_manager_runtime());
    push(q, t, TN_PUSH_MOVE);
    survive_until(d, 1);
    assert_int_equal(manager_pid(d), next);
    pop_all(1);
    finish();
}

static tn_tensor *begin_moving(const char *point)
{
    begin_system();
    make("session");
    TN_CHECK_OK(tni_os_runtime_prepare());
    setenv("XDG_RUNTIME_DIR", below("next"), 1);
    setenv("TENON_KILL_POINT", point, 1);
    begin();
    unsetenv("TENON_KILL_POINT");
    return make_as(d, TN_STRATEGY_FILE_DESCRIPTOR, 0);
}
#endif

TN_TEST(a_tenond_killed_as_it_moves_is_replaced)
{
#if defined(TN_KILL_POINTS)
    tn_tensor *t = begin_moving("tenond_moves");
    int32_t old = manager_pid(d);
    make("next");
    remove_all("session");
    await_end(old);
    expect_served(old, t);
#else
    tnt_skip("this build has no kill points");
#endif
}

TN_TEST(a_tenond_killed_as_it_hands_its_deposits_over_is_replaced)
{
#if defined(TN_KILL_POINTS)
    tn_tensor *t = begin_moving("tenond_hands_over");
    int32_t old = manager_pid(d);
    TN_CHECK(kill(old, SIGSTOP) == 0);
    make("next");
    remove_all("session");
    tn_domain *later = tnt_domain(NULL);
    TN_CHECK(kill(old, SIGCONT) == 0);
    await_end(old);
    expect_served(old, t);
    tn_domain_close(later);
#else
    tnt_skip("this build has no kill points");
#endif
}

/* ---- members of several runtime folders -------------------------------------------------- */

static int own_house(void *signal)
{
    tn_domain *house = NULL;
    TN_CHECK_OK(tn_domain_open("house", NULL, TN_OPEN_NEW, &house));
    tnt_signal(signal);
    for (;;)
        pause();
    return 0;
}

static int own_house_elsewhere(void *signal)
{
    setenv("TENON_RUNTIME_DIR", below("other"), 1);
    return own_house(signal);
}

TN_TEST(joining_a_domain_of_another_folder_keeps_the_own_folder)
{
    struct tnt_signal signal = tnt_signal_open();
    tn_domain *house = NULL;
    char folder[300];
    begin_system();
    make("session");
    make("next");
    pid_t owner = tnt_fork(own_house_elsewhere, &signal);
    tnt_await(&signal);
    begin();
    snprintf(folder, sizeof folder, "%s/tenon", below("next"));
    setenv("XDG_RUNTIME_DIR", below("next"), 1);
    TN_CHECK_OK(tn_domain_open("house", NULL, TN_OPEN_EXISTING, &house));
    uint32_t runtime = atomic_load(&house->segment.header->runtime);
    assert_int_not_equal(runtime, tni_manager_runtime());
    atomic_store(&house->segment.header->runtime, tni_manager_hash_folder(folder));
    tni_manager_follow();
    expect_folder("session");
    atomic_store(&house->segment.header->runtime, runtime);
    tn_domain_close(house);
    tnt_kill(owner);
    finish();
    tnt_signal_close(&signal);
}

/* The service that made the domain, its tenond and the vault are killed. */
TN_TEST(a_member_in_a_session_replaces_the_tenond_of_a_service)
{
    struct tnt_signal signal = tnt_signal_open();
    begin_system();
    pid_t service = tnt_fork(own_house, &signal);
    tnt_await(&signal);
    make("session");
    TN_CHECK_OK(tn_domain_open("house", NULL, TN_OPEN_EXISTING, &d));
    q = open_queue(d);
    uint32_t runtime = atomic_load(&d->segment.header->runtime);
    int32_t old = manager_pid(d);
    tnt_kill(service);
    kill_tenond_and_vault(old);
    await_successor(d, old);
    assert_int_equal(atomic_load(&d->segment.header->runtime), runtime);
    assert_false(is_used("session"));
    leave_storages(d, q, 1);
    pop_all(1);
    finish();
    tnt_signal_close(&signal);
}

/* ---- two folders ------------------------------------------------------------------------- */

/* Begin in the folder of a session; `next` is the folder that the process could choose next. */
static void begin_beside(const char *next)
{
    make("session");
    TN_CHECK_OK(tni_os_runtime_prepare());
    make(next);
    setenv("XDG_RUNTIME_DIR", below(next), 1);
    begin();
}

/*
 * A member writes another number over the word. tenond, if there is one, corrects it within a
 * second.
 */
static void write_foreign_word(const tn_domain *domain)
{
    char folder[300];
    _Atomic uint32_t *runtime = &domain->segment.header->runtime;
    atomic_store(runtime, tni_manager_runtime());
    tni_manager_follow();
    make("next/tenon");
    snprintf(folder, sizeof folder, "%s/tenon", below("next"));
    atomic_store(runtime, tni_manager_hash_folder(folder));
    tni_manager_follow();
    atomic_store(runtime, 0);
}

TN_TEST(a_foreign_word_in_a_domain_moves_no_process)
{
    begin_system();
    begin_beside("next");
    uint32_t runtime = atomic_load(&d->segment.header->runtime);
    write_foreign_word(d);
    atomic_store(&d->segment.header->runtime, runtime);
    expect_folder("session");
    finish();
}

TN_TEST(a_domain_without_tenond_moves_no_process)
{
    const tn_domain_options options = {.struct_size = sizeof options,
                                       .flags = TN_DOMAIN_NO_MANAGER};
    begin_system();
    begin_beside("next");
    tn_domain *alone = tnt_domain(&options);
    write_foreign_word(alone);
    tn_domain_close(alone);
    expect_folder("session");
    finish();
}

TN_TEST(tenond_puts_right_what_a_domain_says_of_it)
{
    begin_system();
    begin_beside("next");
    struct tni_header *h = d->segment.header;
    uint64_t manager = atomic_exchange(&h->manager, d->who);
    uint32_t runtime = atomic_exchange(&h->runtime, 1);
    uint64_t deadline_ns = tnt_until_ns(BACKING_MS);
    while (atomic_load(&h->manager) != manager || atomic_load(&h->runtime) != runtime) {
        TN_CHECK(tni_os_now_ns() < deadline_ns);
        tni_os_yield();
    }
    finish();
}

TN_TEST(a_process_that_moved_asks_the_tenond_that_a_domain_has)
{
    begin_system();
    begin_beside("next");
    int32_t tenond = manager_pid(d);
    TN_CHECK(chmod(below("session/tenon"), 0750) == 0);
    tn_domain *later = tnt_domain(NULL);
    assert_true(is_used("next"));
    TN_CHECK(chmod(below("session/tenon"), 0700) == 0);
    leave_storages(d, q, 3);
    assert_int_equal(manager_pid(d), tenond);
    await_storages(tenond, 3);
    pop_all(3);
    tn_domain_close(later);
    finish();
}

/* @return the reply of the tenond of the folder to a request to manage `d` */
static struct tni_reply register_at(const char *folder)
{
    const int fds[2] = {d->segment.control_fd, d->segment.arena_fd};
    struct tni_inquiry inquiry = {.fds = fds, .fd_count = 2};
    struct tni_reply reply;
    int fd = -1;
    tni_manager_fill(&inquiry.request, TNI_REQUEST_REGISTER, d->segment.name);
    TN_CHECK_OK(tni_os_connect_in(folder, TNI_MANAGER_SOCKET, &fd));
    TN_CHECK_OK(tni_manager_talk(fd, &inquiry, tnt_until_ns(BACKING_MS), &reply, NULL));
    tni_os_close(fd);
    return reply;
}

TN_TEST(a_tenond_takes_a_domain_only_of_a_dead_one)
{
    struct tnt_signal signal = tnt_signal_open();
    begin_system();
    pid_t owner = tnt_fork(own_house_elsewhere, &signal);
    tnt_await(&signal);
    begin_beside("next");
    int32_t tenond = manager_pid(d);
    struct tni_reply reply = register_at(below("other"));
    assert_int_not_equal(reply.status, 0);
    assert_int_not_equal(reply.pid, tenond);
    assert_int_equal(manager_pid(d), tenond);
    expect_folder("session");
    kill_and_await(tenond, SIGKILL);
    reply = register_at(below("other"));
    assert_int_equal(reply.status, 0);
    assert_int_equal(manager_pid(d), reply.pid);
    tnt_kill(owner);
    finish();
    tnt_signal_close(&signal);
}

TN_TEST(a_domain_that_another_tenond_has_is_not_registered_again)
{
    struct tnt_signal signal = tnt_signal_open();
    tn_domain *house = NULL;
    begin_system();
    pid_t owner = tnt_fork(own_house_elsewhere, &signal);
    tnt_await(&signal);
    begin_beside("next");
    TN_CHECK_OK(tn_domain_open("house", NULL, TN_OPEN_EXISTING, &house));
    int32_t tenond = manager_pid(house);
    assert_int_not_equal(tenond, manager_pid(d));
    assert_int_equal(tni_manager_register(house), TN_ERR_MANAGER);
    TN_CHECK(strstr(tn_error_detail(), "another tenond") != NULL);
    assert_int_equal(manager_pid(house), tenond);
    tn_domain_close(house);
    tnt_kill(owner);
    finish();
    tnt_signal_close(&signal);
}

/* Two tenonds become the manager, as if the second had found the first one dead. */
TN_TEST(of_two_managers_of_one_domain_one_leaves)
{
    struct tnt_signal signal = tnt_signal_open();
    begin_system();
    pid_t owner = tnt_fork(own_house_elsewhere, &signal);
    tnt_await(&signal);
    begin_beside("next");
    leave_storages(d, q, 3);
    int32_t first = manager_pid(d);
    struct tni_reply reply;
    do {
        atomic_store(&d->segment.header->manager, 0);
        reply = register_at(below("other"));
    } while (reply.status != 0);
    await_end(first);
    assert_int_equal(manager_pid(d), reply.pid);
    await_storages(reply.pid, 3);
    pop_all(3);
    tnt_kill(owner);
    finish();
    tnt_signal_close(&signal);
}
