/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: storages that are memory objects of their own, and tenond, which keeps them. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "backing.h"
#include "harness/live_blocks.h"
#include "share/share.h"

static tn_domain *d;
static tn_queue *q, *onward;

static void begin(void)
{
    d = tnt_domain(NULL);
    q = open_queue(d);
    onward = open_queue(d);
}

static void finish(void)
{
    q = tn_object_close(q);
    onward = tn_object_close(onward);
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    TNT_AUDIT(d);
    assert_int_equal(live_blocks(d), 0);
    await_storages(manager_pid(d), 0);
    d = tn_domain_close(d);
}

static tn_tensor *make(float first) { return make_as(d, TN_STRATEGY_FILE_DESCRIPTOR, first); }

/* ---- another user ------------------------------------------------------------------------ */

enum { NOBODY = 65534 };

static int make_after_setuid(void *argument)
{
    static const uint32_t strategies[] = {TN_STRATEGY_ARENA, TN_STRATEGY_FILE_DESCRIPTOR,
                                          TN_STRATEGY_FILE_SYSTEM};
    static const int64_t shape[] = {1000};
    tn_tensor *t;
    (void)argument;
    TN_CHECK(setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
    for (uint32_t i = 0; i < TNI_COUNT(strategies); i++) {
        tn_tensor_options options = {.struct_size = sizeof options, .strategy = strategies[i]};
        int status = tn_tensor_create(d, TN_FLOAT32, 1, shape, &options, &t);
        TN_CHECK(status == (strategies[i] == TN_STRATEGY_ARENA ? 0 : TN_ERR_DENIED));
        TN_CHECK(status == 0 || strstr(tn_error_detail(), "now runs as user 65534") != NULL);
        if (status == 0)
            push(q, t, TN_PUSH_MOVE);
    }
    return 0;
}

TN_TEST(after_setuid_no_memory_is_made_that_others_cannot_have)
{
    if (geteuid() != 0)
        tnt_skip("only root can become another user");
    begin();
    tnt_wait_ok(tnt_fork(make_after_setuid, NULL));
    tn_tensor_unref(pop(q));
    finish();
}

/* ---- the maker of a storage may have died ------------------------------------------------ */

static int make_and_push(void *argument)
{
    push(q, make(*(const float *)argument), TN_PUSH_MOVE);
    return 0;
}

static int make_push_and_die(void *argument)
{
    make_and_push(argument);
    raise(SIGKILL);
    return 1;
}

static int pass_on(void *argument)
{
    (void)argument;
    tn_tensor *t = pop(q);
    expect_numbers(t, 1);
    ((float *)tn_tensor_data(t))[0] = 7;
    push(onward, t, TN_PUSH_MOVE);
    return 0;
}

static void expect_what_was_passed_on(void)
{
    tn_tensor *t = pop(onward);
    assert_true(((float *)tn_tensor_data(t))[0] > 6);
    ((float *)tn_tensor_data(t))[0] = 1;
    expect_numbers(t, 1);
    tn_tensor_unref(t);
}

TN_TEST(a_storage_survives_the_end_of_two_of_its_three_holders)
{
    begin();
    tnt_wait_ok(tnt_fork(make_and_push, &(float){1}));
    tnt_wait_ok(tnt_fork(pass_on, NULL));
    expect_what_was_passed_on();
    finish();
}

TN_TEST(a_storage_outlives_its_killed_maker)
{
    begin();
    tnt_wait(tnt_fork(make_push_and_die, &(float){1}));
    tnt_wait_ok(tnt_fork(pass_on, NULL));
    expect_what_was_passed_on();
    finish();
}

struct maker {
    struct tnt_signal ready, go;
    bool survives; /* it waits for the next tenond before it ends */
    uint32_t count;
};

static struct maker open_maker(uint32_t count, bool survives)
{
    return (struct maker){.ready = tnt_signal_open(),
                          .go = tnt_signal_open(),
                          .survives = survives,
                          .count = count};
}

static void close_maker(struct maker *maker)
{
    tnt_signal_close(&maker->ready);
    tnt_signal_close(&maker->go);
}

static int make_and_keep(void *argument)
{
    struct maker *maker = argument;
    for (uint32_t i = 0; i < maker->count; i++)
        push(q, make((float)i), 0);
    tnt_signal(&maker->ready);
    tnt_await(&maker->go);
    if (maker->survives)
        survive_until(d, maker->count);
    return 0;
}

TN_TEST(without_tenond_the_descriptor_is_found_in_the_maker)
{
    begin();
    struct maker maker = open_maker(1, false);
    pid_t pid = tnt_fork(make_and_keep, &maker);
    tnt_await(&maker.ready);
    await_vault(0, 1); /* a vault that is still starting would not be found */
    kill_tenond_and_vault(manager_pid(d));
    tn_tensor *t = pop(q);
    expect_numbers(t, 0);
    tn_tensor_unref(t);
    tnt_signal(&maker.go);
    tnt_wait_ok(pid);
    finish();
    close_maker(&maker);
}

TN_TEST(the_next_tenond_gets_the_descriptors_from_their_holders)
{
    begin();
    struct maker maker = open_maker(5, true);
    pid_t pid = tnt_fork(make_and_keep, &maker);
    tnt_await(&maker.ready);
    await_vault(0, 5);
    kill_tenond_and_vault(manager_pid(d));
    tnt_signal(&maker.go);
    tnt_wait_ok(pid); /* the helper ends once the next tenond has all five */
    for (int i = 0; i < 5; i++) {
        tn_tensor *t = pop(q);
        expect_numbers(t, (float)i);
        tn_tensor_unref(t);
    }
    finish();
    close_maker(&maker);
}

TN_TEST(what_was_made_while_there_was_no_tenond_comes_to_the_next)
{
    begin();
    int32_t old = manager_pid(d);
    kill_and_await(old, SIGKILL);
    tn_tensor *t = make(3);
    survive_until(d, 1);
    assert_int_not_equal(manager_pid(d), old);
    tn_tensor_unref(t);
    finish();
}

static int see_to_a_successor(void *argument)
{
    struct maker *helper = argument;
    int32_t old = manager_pid(d);
    tnt_signal(&helper->ready);
    tnt_await(&helper->go);
    await_successor(d, old);
    return 0;
}

TN_TEST(a_process_that_never_waits_informs_the_next_tenond)
{
    begin();
    struct maker helper = open_maker(0, true);
    pid_t pid =
        tnt_fork(see_to_a_successor, &helper); /* it does not inherit what is made later */
    tnt_await(&helper.ready);
    tn_tensor *first = make(1);
    await_vault(0, 1);
    kill_tenond_and_vault(manager_pid(d));
    tnt_signal(&helper.go);
    tnt_wait_ok(pid);
    assert_int_equal(count_open(manager_pid(d), STORAGE_TARGET), 0);
    tn_tensor *second = make(2);
    assert_int_equal(count_open(manager_pid(d), STORAGE_TARGET), 2);
    tn_tensor_unref(second);
    tn_tensor_unref(first);
    finish();
    close_maker(&helper);
}

TN_TEST(a_tenond_killed_while_it_takes_a_descriptor_costs_nothing)
{
#if defined(TN_KILL_POINTS)
    setenv("TENON_KILL_POINT", "tenond_deposit_kept:2", 1);
    begin();
    unsetenv("TENON_KILL_POINT");
    int32_t old = manager_pid(d);
    tn_tensor *first = make(1), *second = make(2), *third = make(3);
    await_successor(d, old);
    survive_until(d, 3);
    tn_tensor_unref(first);
    tn_tensor_unref(second);
    tn_tensor_unref(third);
    finish();
#else
    tnt_skip("this build has no kill points");
#endif
}

TN_TEST(a_tenond_killed_while_it_drops_a_descriptor_costs_nothing)
{
#if defined(TN_KILL_POINTS)
    setenv("TENON_KILL_POINT", "tenond_deposit_dropped", 1);
    begin();
    unsetenv("TENON_KILL_POINT");
    int32_t old = manager_pid(d);
    tn_tensor *first = make(1), *second = make(2);
    tn_tensor_unref(first);
    await_successor(d, old);
    survive_until(d, 1);
    tn_tensor_unref(second);
    finish();
#else
    tnt_skip("this build has no kill points");
#endif
}

/* ---- memory comes back ------------------------------------------------------------------- */

TN_TEST(memory_comes_back_soon_after_the_last_release_without_a_call)
{
    begin();
    uint64_t most_ms = 0;
    for (int i = 0; i < 10; i++) {
        tn_tensor *t = make(1);
        assert_int_equal(count_open(manager_pid(d), STORAGE_TARGET), 1);
        tn_tensor_unref(t);
        uint64_t ms = await_storages(manager_pid(d), 0);
        most_ms = ms > most_ms ? ms : most_ms;
    }
    tnt_note("at most %llu ms", (unsigned long long)most_ms);
    assert_in_range(most_ms, 0, 500); /* tenond checks all deposits once a second */
    finish();
}

TN_TEST(memory_of_a_killed_holder_comes_back_without_a_call)
{
    begin();
    struct maker maker = open_maker(3, false);
    pid_t pid = tnt_fork(make_and_keep, &maker);
    tnt_await(&maker.ready);
    for (int i = 0; i < 3; i++)
        tn_tensor_unref(pop(q));
    assert_int_equal(count_open(manager_pid(d), STORAGE_TARGET), 3);
    tnt_kill(pid);
    uint64_t ms = await_storages(manager_pid(d), 0);
    tnt_note("%llu ms", (unsigned long long)ms);
    assert_in_range(ms, 0, 500);
    finish();
    close_maker(&maker);
}

TN_TEST(the_end_of_a_domain_ends_what_its_tickets_still_held)
{
    char bytes[TN_HANDLE_MAX_BYTES];
    size_t used;
    tn_domain *other = tnt_domain(NULL); /* keeps the same tenond alive */
    begin();
    tn_tensor *t = make(1);
    TN_CHECK_OK(tn_handle_export(t, NULL, bytes, sizeof bytes, &used));
    tn_tensor_unref(t);
    assert_int_equal(count_open(manager_pid(other), STORAGE_TARGET), 1);
    tn_object_close(q);
    tn_object_close(onward);
    tn_domain_close(d);
    await_storages(manager_pid(other), 0);
    tn_domain_close(other);
}

/* ---- many of them ------------------------------------------------------------------------ */

enum { MANY = 4000, FEW_DESCRIPTORS = 1024 };

static void limit_descriptors(rlim_t most)
{
    const struct rlimit limit = {.rlim_cur = most, .rlim_max = most};
    TN_CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

static int hold_many(void *argument)
{
    uint32_t strategy = *(const uint32_t *)argument;
    static tn_tensor *all[MANY];
    limit_descriptors(FEW_DESCRIPTORS);
    for (int i = 0; i < MANY; i++)
        all[i] = make_as(d, strategy, (float)i);
    tnt_note("%u descriptors for %d storages", tnt_descriptor_count(), MANY);
    TN_CHECK(tnt_descriptor_count() < 100 + 64);
    for (int i = 0; i < MANY; i++)
        expect_numbers(all[i], (float)i);
    for (int i = 0; i < MANY; i++)
        tn_tensor_unref(all[i]);
    return 0;
}

TN_TEST_WITHIN(a_process_with_1024_descriptors_holds_4000_storages, 60)
{
    begin();
    tnt_wait_ok(tnt_fork(hold_many, &(uint32_t){TN_STRATEGY_ARENA}));
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_max >= MANY + 1000) /* the limit that tenond inherits */
        tnt_wait_ok(tnt_fork(hold_many, &(uint32_t){TN_STRATEGY_FILE_DESCRIPTOR}));
    else
        tnt_note("only by arena: tenond may have no more than %llu descriptors here",
                 (unsigned long long)limit.rlim_max);
    finish();
}

TN_TEST(at_tenonds_limit_the_error_names_limit_and_other_strategy)
{
    enum { LIMIT = 512, MOST = LIMIT };
    static tn_tensor *all[MOST];
    const tn_tensor_options options = {.struct_size = sizeof options,
                                       .strategy = TN_STRATEGY_FILE_DESCRIPTOR};
    int made = 0, status = 0;
    limit_descriptors(LIMIT); /* also the limit of the tenond that this process starts */
    begin();
    while (made < MOST && (status = tn_tensor_create(d, TN_FLOAT32, 1, (int64_t[]){10},
                                                     &options, &all[made])) == 0)
        made++;
    printf("%d: %s\n", made, tn_error_detail());
    assert_int_equal(status, TN_ERR_FULL);
    assert_non_null(strstr(tn_error_detail(), "is 512"));
    assert_non_null(strstr(tn_error_detail(), "arena"));
    assert_in_range(made, LIMIT / 4, LIMIT - 100);
    /* tenond still serves other clients, and this process again once it has room. */
    tn_tensor_unref(make_as(d, TN_STRATEGY_ARENA, 1));
    tn_tensor_unref(all[--made]);
    await_storages(manager_pid(d), (unsigned)made);
    all[made] = make(5);
    made++;
    while (made > 0)
        tn_tensor_unref(all[--made]);
    finish();
}

/* ---- the connection ---------------------------------------------------------------------- */

TN_TEST(a_program_that_closes_the_connection_loses_no_storage)
{
    begin();
    tn_tensor *first = make(1);
    int number = tni_backing_part(d)->depot_connection.fd;
    assert_int_not_equal(tni_os_socket_number(number), 0);
    int own = open("/dev/null", O_RDWR | O_CLOEXEC);
    assert_int_equal(dup3(own, number, O_CLOEXEC),
                     number); /* it gets the number of the descriptor that it closes */
    tn_tensor *second = make(2);
    assert_int_equal(count_open(manager_pid(d), STORAGE_TARGET), 2);
    tn_tensor_unref(second);
    tn_tensor_unref(first);
    finish();
    assert_int_equal(fcntl(number, F_GETFD),
                     FD_CLOEXEC); /* the program's own file is still open */
    close(number);
    close(own);
}

TN_TEST(a_connection_that_tenond_closed_is_opened_again)
{
    enum {
        OTHERS = 300
    }; /* more connections than tenond keeps: it closes the one that was silent for longest */
    static int others[OTHERS];
    begin();
    tn_tensor *first = make(1);
    int fd = tni_backing_part(d)->depot_connection.fd;
    for (int i = 0; i < OTHERS; i++)
        TN_CHECK_OK(tni_os_connect(TNI_MANAGER_SOCKET, &others[i]));
    TN_CHECK_OK(tni_os_poll(&fd, 1, tnt_until_ns(BACKING_MS)));
    tn_tensor *second = make(2);
    assert_int_equal(count_open(manager_pid(d), STORAGE_TARGET), 2);
    for (int i = 0; i < OTHERS; i++)
        close(others[i]);
    tn_tensor_unref(second);
    tn_tensor_unref(first);
    finish();
}

static int make_many(void *argument)
{
    float first = *(const float *)argument;
    for (int i = 0; i < 300; i++)
        push(q, make(first), TN_PUSH_MOVE);
    return 0;
}

static int make_many_in_a_child(void *argument)
{
    TN_CHECK(tni_os_socket_number(tni_backing_part(d)->depot_connection.fd) == 0);
    return make_many(argument);
}

TN_TEST_WITHIN(a_forked_child_has_a_connection_of_its_own, 60)
{
    begin();
    tn_tensor *t = make(0); /* from here on the connection to tenond is open */
    pid_t pids[2] = {tnt_fork(make_many_in_a_child, &(float){1}),
                     tnt_fork(make_many_in_a_child, &(float){2})};
    for (int i = 0; i < 600; i++) {
        tn_tensor *popped = pop(q);
        float first = ((float *)tn_tensor_data(popped))[0];
        expect_numbers(popped, first);
        tn_tensor_unref(popped);
        tn_tensor_unref(make(3)); /* while the children use their connections */
    }
    tnt_wait_ok(pids[0]);
    tnt_wait_ok(pids[1]);
    tn_tensor_unref(t);
    finish();
}

TN_TEST(a_stopped_tenond_delays_one_storage_and_not_the_next)
{
    begin();
    int32_t pid = manager_pid(d);
    assert_int_equal(kill(pid, SIGSTOP), 0);
    uint64_t begun_ns = tni_os_now_ns();
    tn_tensor *first = make(1);
    uint64_t first_ns = tni_os_now_ns() - begun_ns;
    tn_tensor *second = make(2);
    uint64_t second_ns = tni_os_now_ns() - begun_ns - first_ns;
    assert_int_equal(kill(pid, SIGCONT), 0);
    tnt_note("%llu ms, then %llu", (unsigned long long)first_ns / 1000000,
             (unsigned long long)second_ns / 1000000);
    assert_in_range(first_ns / 1000000, 900, 3000);
    assert_in_range(second_ns / 1000000, 0, 500);
    survive_until(d, 2); /* tenond gets them later */
    tn_tensor_unref(first);
    tn_tensor_unref(second);
    finish();
}

/* ---- requests that lie ------------------------------------------------------------------- */

static struct tni_request request_about(uint32_t verb, tn_tensor *t)
{
    struct tni_request request = {
        .magic = TNI_REQUEST_MAGIC, .version = TNI_REQUEST_VERSION, .verb = verb};
    for (int i = 0; i < 16; i++)
        snprintf(request.name + 2 * i, 3, "%02x", d->segment.header->id[i]);
    request.block = t->storage->block.id;
    request.generation = tni_ref_generation(d, t->storage->block);
    return request;
}

/*
 * @return the status of the reply, or 1 if none came; *ret_fds is the number of descriptors
 * that came
 */
static int ask(int socket_fd, const struct tni_request *request, const int *fds, uint32_t count,
               uint32_t *ret_fds)
{
    struct tni_reply reply;
    int fd = -1;
    TN_CHECK_OK(tni_os_send(socket_fd, request, sizeof *request, fds, count));
    int got = tni_os_receive(socket_fd, &(struct tni_os_buffer){&reply, sizeof reply, &fd, 1},
                             tnt_until_ns(BACKING_MS), ret_fds);
    tni_os_close(fd);
    return got == (int)sizeof reply ? reply.status : 1;
}

static int open_socket(void)
{
    int fd = -1;
    TN_CHECK_OK(tni_os_connect(TNI_MANAGER_SOCKET, &fd));
    return fd;
}

static int make_unsealed(void)
{
    int fd = memfd_create("tenon-storage:false", MFD_CLOEXEC);
    TN_CHECK(fd >= 0 && ftruncate(fd, 8192) == 0);
    return fd;
}

TN_TEST(deposits_that_are_not_what_they_say_are_refused)
{
    begin();
    tn_tensor *t = make(1), *arena = make_as(d, TN_STRATEGY_ARENA, 1);
    int socket_fd = open_socket(), right, sealed, unsealed = make_unsealed(), pipe_fds[2];
    uint32_t fds;
    TN_CHECK_OK(tn_tensor_descriptor(t, 0, &right));
    TN_CHECK_OK(tni_os_memory_create("tenon-storage:false", 8192, &sealed));
    TN_CHECK_OK(tni_os_pipe(pipe_fds));
    const struct tni_request good = request_about(TNI_REQUEST_DEPOSIT, t);
    struct tni_request request = good;

    /* The same deposit may be made many times: tenond keeps one descriptor. */
    assert_int_equal(ask(socket_fd, &request, &right, 1, &fds), 0);
    assert_int_equal(ask(socket_fd, &request, &right, 1, &fds), 0);
    assert_int_equal(ask(socket_fd, &request, &sealed, 1, &fds), TN_ERR_INVALID);
    assert_int_equal(ask(socket_fd, &request, &unsealed, 1, &fds), TN_ERR_INVALID);
    assert_int_equal(ask(socket_fd, &request, pipe_fds, 1, &fds), TN_ERR_INVALID);
    assert_int_equal(ask(socket_fd, &request, pipe_fds, 2, &fds), TN_ERR_INVALID);
    assert_int_equal(ask(socket_fd, &request, NULL, 0, &fds), TN_ERR_INVALID);
    request.generation++;
    assert_int_equal(ask(socket_fd, &request, &right, 1, &fds), TN_ERR_STALE);
    request = request_about(TNI_REQUEST_DEPOSIT, arena);
    assert_int_equal(ask(socket_fd, &request, &right, 1, &fds), TN_ERR_INVALID);
    request = good;
    request.block += 100;
    assert_int_equal(ask(socket_fd, &request, &right, 1, &fds), TN_ERR_STALE);
    request.block = UINT32_MAX;
    assert_int_equal(ask(socket_fd, &request, &right, 1, &fds), TN_ERR_INVALID);
    request = good;
    memset(request.name, '0', 32);
    assert_int_equal(ask(socket_fd, &request, &right, 1, &fds), TN_ERR_NOT_FOUND);

    request = good;
    request.verb = TNI_REQUEST_FETCH;
    assert_int_equal(ask(socket_fd, &request, NULL, 0, &fds), 0);
    assert_int_equal(fds, 1);
    request.generation++;
    assert_int_equal(ask(socket_fd, &request, NULL, 0, &fds), TN_ERR_NOT_FOUND);
    request.block = 0;
    assert_int_equal(ask(socket_fd, &request, NULL, 0, &fds), TN_ERR_NOT_FOUND);
    memcpy(request.name, "x", 2);
    assert_int_equal(ask(socket_fd, &request, NULL, 0, &fds), TN_ERR_NOT_FOUND);
    assert_int_equal(count_open(manager_pid(d), STORAGE_TARGET), 1);

    const int all[] = {socket_fd, right, sealed, unsealed, pipe_fds[0], pipe_fds[1]};
    for (size_t i = 0; i < TNI_COUNT(all); i++)
        close(all[i]);
    tn_tensor_unref(arena);
    tn_tensor_unref(t);
    finish();
}

TN_TEST(a_client_that_never_reads_answers_blocks_no_other_client)
{
    begin();
    tn_tensor *t = make(1);
    struct tni_request request = request_about(TNI_REQUEST_FETCH, t);
    int greedy = open_socket();
    for (int i = 0, status = 0; i < 5000 && status == 0; i++)
        status = tni_os_socket_send(greedy,
                                    &(struct tni_os_message){&request, sizeof request, NULL, 0},
                                    tnt_until_ns(100));
    uint64_t begun_ns = tni_os_now_ns();
    tn_tensor *second = make(2);
    assert_in_range((tni_os_now_ns() - begun_ns) / 1000000, 0, 900);
    close(greedy);
    tn_tensor_unref(second);
    tn_tensor_unref(t);
    finish();
}

/* ---- an import that races with the end of its handle --------------------------------------
 */

struct race {
    tn_domain *domain;
    tn_queue *handles, *answers;
};

enum { RACES = 300 };

static int import_all(void *argument)
{
    struct race *r = argument;
    for (int i = 0; i < RACES; i++) {
        tn_message m;
        tn_tensor *t = NULL;
        TN_CHECK_OK(tn_queue_pop(r->handles, tnt_deadline(BACKING_MS), &m));
        int status = tn_handle_import(r->domain, m.bytes, m.size_bytes, &t);
        if (status != 0 && status != TN_ERR_STALE)
            fail_msg("import %d: %s: %s", i, tn_status_name(status), tn_error_detail());
        tn_message_fini(&m);
        tn_tensor_unref(t);
        TN_CHECK_OK(tn_queue_push(r->answers, &(tn_message){0}, 0, TN_NOW));
    }
    return 0;
}

static void race_once(struct race *r, uint32_t strategy)
{
    uint8_t handle[TN_HANDLE_MAX_BYTES];
    size_t used;
    uint64_t id;
    tn_message m;
    tn_tensor *t = make_as(r->domain, strategy, 1);
    TN_CHECK_OK(tn_handle_export(t, NULL, handle, sizeof handle, &used));
    TN_CHECK_OK(tni_handle_ticket(handle, used, &id));
    tn_tensor_unref(t);
    TN_CHECK_OK(tn_queue_push(r->handles, &(tn_message){.bytes = handle, .size_bytes = used}, 0,
                              tnt_deadline(BACKING_MS)));
    for (uint64_t spins = tnt_random_below(20000); spins > 0; spins--)
        tni_relax();
    int status = tni_ticket_revoke(r->domain, id);
    TN_CHECK(status == 0 || status == TN_ERR_STALE);
    TN_CHECK_OK(tn_queue_pop(r->answers, tnt_deadline(BACKING_MS), &m));
    tn_message_fini(&m);
}

TN_TEST(an_import_that_races_with_a_revocation_says_stale)
{
    struct race r = {.domain = tnt_domain(NULL)};
    TN_CHECK_OK(tn_queue_open(r.domain, NULL, NULL, 0, &r.handles));
    TN_CHECK_OK(tn_queue_open(r.domain, NULL, NULL, 0, &r.answers));
    pid_t pid = tnt_fork(import_all, &r);
    for (int i = 0; i < RACES; i++)
        race_once(&r, i % 2 == 0 ? TN_STRATEGY_FILE_DESCRIPTOR : TN_STRATEGY_FILE_SYSTEM);
    tnt_wait_ok(pid);
    tn_object_close(r.handles);
    tn_object_close(r.answers);
    tn_domain_close(r.domain);
}
