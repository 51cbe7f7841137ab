/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A member in another namespace is known to live as well as a member in this one, and a
 * member that is killed there leaves nothing. Two members are each in a space of their own,
 * which a third process made for both; docs/namespaces.md lists what was tried.
 */
#include <signal.h>
#include <stdlib.h>
#include <sys/personality.h>

#include "api/inspect.h"
#include "harness/tensor.h"
#include "namespaces.h"
#include "reaper/reaper.h"

enum { PAYLOAD_BYTES = 4096, FILLED = 0x11, MOST_TENSORS = 64 };

static const tn_domain_options no_manager = {.struct_size = sizeof no_manager,
                                             .quota_bytes = 16 << 20,
                                             .seats = 8,
                                             .blocks = 1024,
                                             .flags = TN_DOMAIN_NO_MANAGER};

/* What the two members and the test share. */
struct meeting {
    struct resident looker, member;
    tn_domain *domain;
    volatile uint64_t who; /* the name of the member */
    struct tnt_signal joined, asked, answered;
    volatile int reaped, has_member, state;
    volatile bool is_mine_whole;
};

static int leave(void *argument)
{
    struct meeting *m = argument;
    tn_domain_close(m->domain);
    return 0;
}

static struct meeting *open_meeting(const struct space *of_looker,
                                    const struct space *of_member)
{
    struct meeting *m = share_memory(sizeof *m);
    *m = (struct meeting){.looker = {.space = of_looker, .leave = leave, .argument = m},
                          .member = {.space = of_member, .leave = leave, .argument = m},
                          .domain = tnt_domain(&no_manager),
                          .joined = tnt_signal_open(),
                          .asked = tnt_signal_open(),
                          .answered = tnt_signal_open()};
    return m;
}

static void close_meeting(struct meeting *m)
{
    tnt_signal_close(&m->joined);
    tnt_signal_close(&m->asked);
    tnt_signal_close(&m->answered);
    TNT_AUDIT(m->domain);
    tn_domain_close(m->domain);
    munmap(m, sizeof *m);
}

/* Join as an unrelated program does, not by fork(). */
static tn_domain *join_anew(tn_domain *inherited)
{
    char value[64];
    tn_domain *domain = NULL;
    TN_CHECK_OK(tn_domain_pass(inherited, value, sizeof value));
    int control_fd = dup(inherited->segment.control_fd),
        arena_fd = dup(inherited->segment.arena_fd);
    TN_CHECK(control_fd >= 0 && arena_fd >= 0);
    tn_domain_close(inherited);
    snprintf(value, sizeof value, "%d,%d", control_fd, arena_fd);
    TN_CHECK(setenv("TENON_DOMAIN", value, 1) == 0);
    TN_CHECK_OK(tn_domain_inherit(&domain));
    return domain;
}

static bool is_filled(const tn_tensor *t, int value)
{
    const uint8_t *bytes = tn_tensor_data(t);
    for (size_t i = 0; i < PAYLOAD_BYTES; i++)
        if (bytes[i] != value)
            return false;
    return true;
}

static tn_tensor *make_filled(tn_domain *domain, int value)
{
    tn_tensor *t = NULL;
    TN_CHECK_OK(
        tn_tensor_create(domain, TN_UINT8, 1, (const int64_t[]){PAYLOAD_BYTES}, NULL, &t));
    memset(tn_tensor_data(t), value, PAYLOAD_BYTES);
    return t;
}

/* Hold a tensor until this process ends, and compare its elements when told to. */
__attribute__((noreturn)) static void stay(struct meeting *m, const tn_tensor *t)
{
    tnt_signal(&m->joined);
    for (;;) {
        tnt_await(&m->asked);
        m->is_mine_whole = is_filled(t, FILLED);
        tnt_signal(&m->answered);
    }
}

static int be_a_member(void *argument)
{
    struct meeting *m = argument;
    tn_domain *domain = join_anew(m->domain);
    tn_tensor *t = make_filled(domain, FILLED);
    m->who = tnt_member(domain);
    stay(m, t);
}

/* Allocate all the memory there is, and write to it. */
static void take_much(tn_domain *domain)
{
    tn_tensor *t[MOST_TENSORS];
    for (int i = 0; i < MOST_TENSORS; i++)
        t[i] = make_filled(domain, 0xEE);
    for (int i = 0; i < MOST_TENSORS; i++)
        tn_tensor_unref(t[i]);
}

static void judge(struct meeting *m, tn_domain *domain)
{
    uint32_t reaped = 0;
    m->state = tni_process_seat_state(&domain->segment, tni_who_seat(m->who));
    m->has_member = tn_domain_has_member(domain, m->who);
    TN_CHECK_OK(tn_domain_reap(domain, &reaped));
    m->reaped = (int)reaped;
}

static void look(struct meeting *m, tn_domain *domain)
{
    judge(m, domain);
    take_much(domain);
}

static int look_once(void *argument)
{
    struct meeting *m = argument;
    tn_domain *domain = join_anew(m->domain);
    look(m, domain);
    tn_domain_close(domain);
    return 0;
}

static void look_from_there(struct meeting *m)
{
    m->reaped = m->has_member = m->state = -1;
    m->looker.run = look_once;
    move_in(&m->looker);
    tnt_wait_ok(m->looker.entrance);
}

static void meet(const struct space *of_looker, const struct space *of_member)
{
    struct meeting *m = open_meeting(of_looker, of_member);
    m->member.run = be_a_member;
    move_in(&m->member);
    tnt_await(&m->joined);
    look_from_there(m);
    tnt_signal(&m->asked);
    tnt_await(&m->answered);
    bool is_told = m->state == TNI_OS_ALIVE && m->has_member == 1 && m->reaped == 0;
    kill_resident(&m->member);
    look_from_there(m);
    bool is_reclaimed = m->state == TNI_OS_DEAD && m->has_member == 0 && m->reaped == 1;
    if (!is_told || !m->is_mine_whole || !is_reclaimed)
        tnt_note("from %s, of %s: state %d, member %d, reaped %d", of_looker->name,
                 of_member->name, m->state, m->has_member, m->reaped);
    assert_true(is_told);
    assert_true(m->is_mine_whole);
    assert_true(is_reclaimed);
    close_meeting(m);
}

/* Report the spaces that cannot be made here, and pass if at least one was tried. */
static void meet_in_all(bool are_both)
{
    bool is_allowed[SPACES], is_any = false;
    for (int i = 0; i < SPACES; i++) {
        int refusal = refusal_of(&spaces[i]);
        is_allowed[i] = refusal == 0;
        is_any |= i > 0 && refusal == 0;
        if (refusal != 0)
            tnt_note("not tried: %s: %s", spaces[i].name, strerror(refusal));
    }
    if (!is_any)
        tnt_skip("no namespace may be made here");
    for (int looker = 0; looker < SPACES; looker++)
        for (int member = 0; member < SPACES; member++)
            if (is_allowed[looker] && is_allowed[member] &&
                (are_both ? looker > 0 && member > 0 : looker == 0 || member == 0))
                meet(&spaces[looker], &spaces[member]);
}

TN_TEST(a_member_of_another_namespace_is_seen_alive_and_then_dead) { meet_in_all(false); }

TN_TEST(a_member_is_told_from_one_with_its_pid_in_other_namespaces) { meet_in_all(true); }

/* ---- tenond ------------------------------------------------------------------------------ */

enum { LONG_MS = 10000 };

/*
 * A process keeps one socket for ringing bells. It is made here, before a test counts
 * descriptors.
 */
__attribute__((constructor)) static void ring_once(void) { tni_os_bell_ring(1); }

static const struct space container = {"pid,mount,proc", CLONE_NEWPID | CLONE_NEWNS, true};

static tn_domain *create(const char *name)
{
    tn_domain *domain = NULL;
    TN_CHECK_OK(tn_domain_open(name, NULL, TN_OPEN_NEW, &domain));
    return domain;
}

static int32_t manager_pid(const tn_domain *domain)
{
    uint64_t who = atomic_load(&domain->segment.header->manager);
    return who == 0 ? 0 : atomic_load(&tni_seat_at(&domain->segment, tni_who_seat(who))->pid);
}

/* A search for the processes that have a domain of this name open. */
struct search {
    const char *name;
    int32_t pid; /* whether this process has it */
    bool has_it;
    uint32_t count;
};

static int note_found(const struct tni_found *found, void *context)
{
    struct search *search = context;
    if (strcmp(found->name, search->name) == 0) {
        search->count++;
        search->has_it |= found->pid == search->pid;
    }
    return 0;
}

static struct search search_for(const char *name, int32_t pid)
{
    struct search search = {.name = name, .pid = pid};
    TN_CHECK(tni_manager_search(note_found, &search) >= 0);
    return search;
}

static void await_adoption(const char *name, int32_t pid)
{
    uint64_t deadline_ns = tnt_until_ns(LONG_MS);
    while (!search_for(name, pid).has_it)
        TN_CHECK(tni_os_now_ns() < deadline_ns);
}

static void await_nobody(const char *name)
{
    uint64_t deadline_ns = tnt_until_ns(LONG_MS);
    while (search_for(name, 0).count > 0)
        TN_CHECK(tni_os_now_ns() < deadline_ns);
}

static void await_deaths(const tn_domain *domain, uint64_t deaths)
{
    uint64_t deadline_ns = tnt_until_ns(LONG_MS);
    while (atomic_load(&domain->segment.header->deaths) < deaths) {
        TN_CHECK(tni_os_now_ns() < deadline_ns);
        tni_os_yield();
    }
}

static struct meeting *open_container(tnt_child_fn *run)
{
    skip_unless_allowed(&container);
    struct meeting *m = open_meeting(&container, &container);
    m->member.run = run;
    move_in(&m->member);
    tnt_await(&m->joined);
    return m;
}

static void close_container(struct meeting *m)
{
    TN_CHECK_OK(tn_domain_reap(m->domain, NULL));
    close_meeting(m);
}

/* The container has its own runtime folder, under the name of the test's. */
static int have_a_domain_apart(void *argument)
{
    struct meeting *m = argument;
    TN_CHECK(mount("none", tnt_folder(), "tmpfs", 0, "mode=700") == 0);
    stay(m, make_filled(create("box"), FILLED));
}

TN_TEST(a_container_killed_whole_leaves_nothing_to_an_outer_tenond)
{
    struct meeting *m = open_container(have_a_domain_apart);
    tn_domain *domain = create("host");
    int32_t tenond = manager_pid(domain);
    await_adoption("box", tenond);
    tnt_signal(&m->asked);
    tnt_await(&m->answered);
    assert_true(m->is_mine_whole);
    kill_resident(&m->member);
    await_nobody("box");
    assert_int_equal(manager_pid(domain), tenond);
    TNT_AUDIT(domain);
    tn_domain_close(domain);
    close_container(m);
}

static int join_by_name(void *argument)
{
    struct meeting *m = argument;
    tn_domain *domain = NULL;
    TN_CHECK_OK(tn_domain_open("box", NULL, TN_OPEN_EXISTING, &domain));
    stay(m, make_filled(domain, FILLED));
}

TN_TEST(tenond_reclaims_a_killed_container_while_others_live_outside)
{
    tn_domain *domain = create("box");
    struct meeting *m = open_container(join_by_name);
    uint64_t deaths = atomic_load(&domain->segment.header->deaths);
    int32_t tenond = manager_pid(domain);
    kill_resident(&m->member);
    /*
     * Of the container's process: the seat that it took and the one that it had by fork; and
     * the seat of its parent.
     */
    await_deaths(domain, deaths + 3);
    assert_int_equal(manager_pid(domain), tenond);
    TNT_AUDIT(domain);
    close_container(m);
    tn_domain_close(domain);
}

static int have_a_domain(void *argument)
{
    struct meeting *m = argument;
    stay(m, make_filled(create("box"), FILLED));
}

enum { ANOTHER_UID = 7 };

/*
 * Join from a user namespace that has no number for this process's user, and then from one
 * that has another number.
 */
static int be_another_user(void *unused)
{
    tn_domain *domain = NULL;
    char map[32];
    unsigned uid = geteuid();
    (void)unused;
    TN_CHECK(unshare(CLONE_NEWUSER) == 0);
    TN_CHECK(tn_domain_open("box", NULL, TN_OPEN_EXISTING, &domain) == TN_ERR_DENIED);
    TN_CHECK(strstr(tn_error_detail(), "has no mapping for its user") != NULL);
    TN_CHECK(tn_domain_open(NULL, NULL, 0, &domain) == TN_ERR_DENIED);
    TN_CHECK(strstr(tn_error_detail(), "in another user namespace") != NULL);
    snprintf(map, sizeof map, "%u %u 1", ANOTHER_UID, uid);
    TN_CHECK(write_text("/proc/self/uid_map", map));
    TN_CHECK(tn_domain_open("box", NULL, TN_OPEN_EXISTING, &domain) == TN_ERR_DENIED);
    snprintf(map, sizeof map, "user %u, this process runs as %u", uid, ANOTHER_UID);
    TN_CHECK(strstr(tn_error_detail(), map) != NULL);
    return 0;
}

TN_TEST(a_user_with_another_number_in_its_namespace_gets_an_error)
{
    static const struct space user_apart = {"user", CLONE_NEWUSER, false};
    skip_unless_allowed(&user_apart);
    tn_domain *domain = create("box");
    tnt_wait_ok(tnt_fork(be_another_user, NULL));
    tn_domain_close(domain);
}

static int be_outside(void *argument)
{
    struct tnt_signal *joined = argument;
    tn_domain *domain = NULL;
    TN_CHECK_OK(tn_domain_open("box", NULL, TN_OPEN_EXISTING, &domain));
    make_filled(domain, FILLED);
    tnt_signal(joined);
    while (pause() == -1) {
    }
    return 0;
}

TN_TEST(a_tenond_in_a_container_reclaims_an_outer_process)
{
    struct meeting *m = open_container(have_a_domain);
    tn_domain *domain = NULL;
    TN_CHECK_OK(tn_domain_open("box", NULL, TN_OPEN_EXISTING, &domain));
    uint64_t deaths = atomic_load(&domain->segment.header->deaths);
    int32_t tenond = manager_pid(domain);
    struct tnt_signal joined = tnt_signal_open();
    pid_t pid = tnt_fork(be_outside, &joined);
    tnt_await(&joined);
    tnt_kill(pid);
    await_deaths(domain,
                 deaths + 2); /* the seat that it had by fork, and the one that it took */
    assert_int_equal(manager_pid(domain), tenond);
    tnt_signal_close(&joined);
    kill_resident(&m->member);
    TN_CHECK_OK(tn_domain_reap(domain, NULL));
    TNT_AUDIT(domain);
    tn_domain_close(domain);
    close_container(m);
}

/* ---- members of which no process can tell whether they live ------------------------------ */

static int be_a_member_without_a_witness(void *argument)
{
    TN_CHECK(setenv("TENON_FORCE_FALLBACK", "witness", 1) == 0);
    return be_a_member(argument);
}

static int find_state(const tn_seat_entry *info, void *context)
{
    struct tn_seat_entry *wanted = context;
    if (info->seat == wanted->seat)
        *wanted = *info;
    return 0;
}

static void check_state(const struct meeting *m, const char *state)
{
    tn_inspector *inspector = NULL;
    tn_seat_entry info = {.seat = tni_who_seat(m->who)};
    char id[33];
    for (int i = 0; i < 16; i++)
        snprintf(id + 2 * i, 3, "%02x", m->domain->segment.id[i]);
    TN_CHECK_OK(tn_inspector_open(id, &inspector));
    TN_CHECK_OK(tn_inspect_seats(inspector, find_state, &info));
    assert_string_equal(info.state, state);
    tn_inspector_close(inspector);
}

TN_TEST(a_member_without_a_witness_is_unknown_elsewhere)
{
    struct meeting *m = open_container(be_a_member_without_a_witness);
    check_state(m, "unknown");
    look(m, m->domain);
    assert_int_equal(m->state, TNI_OS_UNKNOWN);
    assert_int_equal(m->reaped, 0);
    kill_resident(&m->member);
    check_state(m, "unknown");
    look(m, m->domain);
    assert_int_equal(m->state, TNI_OS_UNKNOWN);
    assert_int_equal(m->reaped, 0);
    /* No process could ever tell that it is dead: end it by hand. */
    struct tni_seat *seat = tni_seat_at(&m->domain->segment, tni_who_seat(m->who));
    seat->pid_space = m->domain->me->pid_space;
    seat->start_time = 1;
    close_container(m);
}

TN_TEST(a_member_with_a_witness_is_alive_from_another_namespace)
{
    struct meeting *m = open_container(be_a_member);
    check_state(m, "alive");
    kill_resident(&m->member);
    check_state(m, "dead");
    close_container(m);
}

static const struct space time_apart = {"time", CLONE_NEWTIME, false};

/*
 * Ask by pid and start time, as where there is no witness: the start times of two time
 * namespaces differ.
 */
TN_TEST(a_start_time_of_another_time_namespace_is_no_proof)
{
    skip_unless_allowed(&time_apart);
    struct meeting *m = open_meeting(&time_apart, &time_apart);
    m->member.run = be_a_member_without_a_witness;
    move_in(&m->member);
    tnt_await(&m->joined);
    look(m, m->domain);
    assert_int_equal(m->state, TNI_OS_UNKNOWN);
    assert_int_equal(m->reaped, 0);
    kill_resident(&m->member);
    look(m, m->domain);
    assert_int_equal(m->state, TNI_OS_DEAD); /* no process has that pid */
    assert_int_equal(m->reaped, 1);
    close_meeting(m);
}

/* ---- exec -------------------------------------------------------------------------------- */

/*
 * Without address randomization (`setarch -R`), a program that executes itself again, with
 * strings of the same lengths, has its stack at the same address, and /proc tells nothing
 * else of an image.
 */
static void become(int stage, int go_fd, const char *domain)
{
    char stage_text[32], fd_text[32], domain_text[96];
    snprintf(stage_text, sizeof stage_text, "TNT_STAGE=%d", stage);
    snprintf(fd_text, sizeof fd_text, "TNT_STAGE_FD=%08d", go_fd);
    snprintf(domain_text, sizeof domain_text, "TNT_STAGE_DOMAIN=%s", domain);
    const char *const environment[] = {stage_text, fd_text, domain_text, "TN_TEST_NO_FORK=1",
                                       NULL};
    const char *const arguments[] = {"/proc/self/exe", "exec_is_noticed", NULL};
    execve(arguments[0], (char *const *)(uintptr_t)arguments,
           (char *const *)(uintptr_t)environment);
    _exit(1);
}

static void say(int fd, uint64_t word)
{
    TN_CHECK(write(fd, &word, sizeof word) == sizeof word);
}

static void be_an_image(const char *stage)
{
    int fd = atoi(getenv("TNT_STAGE_FD"));
    const char *value = getenv("TNT_STAGE_DOMAIN");
    tn_domain *domain = NULL;
    if (strcmp(stage, "1") == 0) {
        setenv("TENON_DOMAIN", value, 1); /* the harness removes tenon's variables */
        TN_CHECK_OK(tn_domain_inherit(&domain));
        make_filled(domain, FILLED);
        say(fd, tnt_member(domain));
        become(2, fd, value);
    }
    say(fd, 0);
    while (pause() == -1) {
    }
}

static int start_an_image(void *argument)
{
    struct meeting *m = argument;
    char value[64];
    TN_CHECK(personality(ADDR_NO_RANDOMIZE) != -1);
    TN_CHECK_OK(tn_domain_pass(m->domain, value, sizeof value));
    become(1, m->joined.write_fd, value);
    return 1;
}

static uint64_t hear(int fd)
{
    uint64_t word;
    TN_CHECK(read(fd, &word, sizeof word) == sizeof word);
    return word;
}

TN_TEST(exec_is_noticed_where_nothing_is_randomized)
{
    const char *stage = getenv("TNT_STAGE");
    if (stage != NULL)
        be_an_image(stage);
    struct meeting *m = open_meeting(&spaces[0], &spaces[0]);
    pid_t pid = tnt_fork(start_an_image, m);
    m->who = hear(m->joined.read_fd);
    assert_int_equal(hear(m->joined.read_fd), 0);
    look(m, m->domain);
    assert_int_equal(m->has_member, 0);
    /* The image that joined, and the one before it, which had a seat by fork. */
    assert_int_equal(m->reaped, 2);
    assert_int_equal(kill(pid, 0), 0);
    tnt_kill(pid);
    close_meeting(m);
}

/* ---- descriptors ------------------------------------------------------------------------- */

/*
 * The check uses a descriptor, which the program may have closed, and whose number may be
 * another file's now.
 */
static int look_without_descriptors(void *argument)
{
    struct meeting *m = argument;
    int control_fd = m->domain->segment.control_fd;
    TN_CHECK(close(control_fd) == 0);
    judge(m, m->domain);
    TN_CHECK(m->state == TNI_OS_ALIVE && m->reaped == 0);
    int other_fd;
    TN_CHECK_OK(tni_os_memory_create("another", 1 << 20, &other_fd));
    TN_CHECK(dup2(other_fd, control_fd) == control_fd);
    judge(m, m->domain);
    TN_CHECK(m->state == TNI_OS_ALIVE && m->reaped == 0);
    return 0;
}

TN_TEST(a_member_without_descriptors_takes_no_other_for_dead)
{
    struct meeting *m = open_meeting(&spaces[0], &spaces[0]);
    m->member.run = be_a_member;
    move_in(&m->member);
    tnt_await(&m->joined);
    tnt_wait_ok(tnt_fork(look_without_descriptors, m));
    kill_resident(&m->member);
    TN_CHECK_OK(tn_domain_reap(m->domain, NULL));
    close_meeting(m);
}

static int close_and_stay(void *argument)
{
    struct meeting *m = argument;
    tn_domain *domain = join_anew(m->domain);
    make_filled(domain, FILLED);
    m->who = tnt_member(domain);
    close(domain->segment.control_fd);
    close(domain->segment.arena_fd);
    tnt_signal(&m->joined);
    while (pause() == -1) {
    }
    return 0;
}

TN_TEST(a_member_that_closed_its_descriptors_lives_until_it_dies)
{
    skip_unless_allowed(&container);
    struct meeting *m = open_meeting(&container, &container);
    m->member.run = close_and_stay;
    move_in(&m->member);
    tnt_await(&m->joined);
    look(m, m->domain);
    assert_int_equal(m->state, TNI_OS_ALIVE);
    assert_int_equal(m->reaped, 0);
    kill_resident(&m->member);
    look(m, m->domain);
    assert_int_equal(m->state, TNI_OS_DEAD);
    assert_int_equal(m->reaped, 1);
    close_meeting(m);
}

/* ---- times ------------------------------------------------------------------------------- */

enum { HANDLE_BYTES = 512, LONG_S = 60 };

/* A handle that is sent from one time namespace to another. */
struct crossing {
    struct meeting *meeting;
    struct resident resident;
    uint8_t bytes[HANDLE_BYTES];
    size_t size_bytes;
};

static void export_for(struct crossing *c, tn_domain *domain, uint64_t lifetime_ns)
{
    tn_handle_options options = {
        .struct_size = sizeof options, .uses = 1, .lifetime_ns = lifetime_ns};
    tn_tensor *t = make_filled(domain, FILLED);
    TN_CHECK_OK(tn_handle_export(t, &options, c->bytes, sizeof c->bytes, &c->size_bytes));
    tn_tensor_unref(t);
}

static int import(struct crossing *c, tn_domain *domain)
{
    tn_tensor *t = NULL;
    int status = tn_handle_import(domain, c->bytes, c->size_bytes, &t);
    TN_CHECK(status != 0 || is_filled(t, FILLED));
    tn_tensor_unref(t);
    return status;
}

static int leave_a_crossing(void *argument)
{
    struct crossing *c = argument;
    tn_domain_close(c->meeting->domain);
    return 0;
}

static int reap_and_import(void *argument)
{
    struct crossing *c = argument;
    tn_domain *domain = join_anew(c->meeting->domain);
    TN_CHECK_OK(tn_domain_reap(domain, NULL));
    TN_CHECK_OK(import(c, domain));
    tn_domain_close(domain);
    return 0;
}

static int export_for_a_moment(void *argument)
{
    struct crossing *c = argument;
    tn_domain *domain = join_anew(c->meeting->domain);
    export_for(c, domain, 1);
    tn_domain_close(domain);
    return 0;
}

static void cross(struct crossing *c, tnt_child_fn *run)
{
    c->resident = (struct resident){
        .space = &time_apart, .run = run, .leave = leave_a_crossing, .argument = c};
    move_in(&c->resident);
    tnt_wait_ok(c->resident.entrance);
}

TN_TEST(a_handle_expires_at_one_time_in_every_time_namespace)
{
    skip_unless_allowed(&time_apart);
    struct crossing *c = share_memory(sizeof *c);
    c->meeting = open_meeting(&time_apart, &time_apart);
    export_for(c, c->meeting->domain, LONG_S * UINT64_C(1000000000));
    cross(c, reap_and_import);
    cross(c, export_for_a_moment);
    assert_int_equal(import(c, c->meeting->domain), TN_ERR_STALE);
    close_meeting(c->meeting);
    munmap(c, sizeof *c);
}

static int note_age(const tn_block_entry *info, void *context)
{
    if (strcmp(info->kind, "tensor") == 0)
        *(uint64_t *)context = info->age_ns;
    return 0;
}

/* The age of the only tensor of the domain. */
static uint64_t age_seen_in(const tn_domain *domain)
{
    struct tn_inspector inspector = {.segment = domain->segment};
    uint64_t age_ns = UINT64_MAX;
    TN_CHECK_OK(tn_inspect_blocks(&inspector, note_age, &age_ns));
    return age_ns;
}

static int look_at_the_age(void *argument)
{
    struct crossing *c = argument;
    tn_domain *domain = join_anew(c->meeting->domain);
    TN_CHECK(age_seen_in(domain) < LONG_S * UINT64_C(1000000000));
    tn_domain_close(domain);
    return 0;
}

/* The clock inside is ahead by more than a day. */
TN_TEST(a_tensor_has_one_age_in_every_time_namespace)
{
    skip_unless_allowed(&time_apart);
    struct crossing *c = share_memory(sizeof *c);
    c->meeting = open_meeting(&time_apart, &time_apart);
    tn_tensor *t = make_filled(c->meeting->domain, FILLED);
    cross(c, look_at_the_age);
    tn_tensor_unref(t);
    c->meeting->member.run = be_a_member;
    move_in(&c->meeting->member);
    tnt_await(&c->meeting->joined);
    while (age_seen_in(c->meeting->domain) == 0) /* until the age is not 0 ms */
        tni_os_yield();
    kill_resident(&c->meeting->member);
    TN_CHECK_OK(tn_domain_reap(c->meeting->domain, NULL));
    close_meeting(c->meeting);
    munmap(c, sizeof *c);
}

/* ---- a descriptor that only its maker has ------------------------------------------------ */

/* Its own /proc does not show processes outside of its namespace. */
static const struct space without_a_view = {"pid,mount,proc", CLONE_NEWPID | CLONE_NEWNS, true};

struct popping {
    struct resident resident;
    tn_domain *domain;
    tn_queue *queue;
    struct tnt_signal pushed;
    volatile int status;
};

static int leave_a_popping(void *argument)
{
    struct popping *p = argument;
    tn_domain_close(p->domain);
    return 0;
}

static int pop_without_a_view(void *argument)
{
    struct popping *p = argument;
    tn_tensor *t = NULL;
    tnt_await(&p->pushed);
    p->status = tn_queue_pop_tensor(p->queue, TN_NOW, &t);
    TN_CHECK(strstr(tn_error_detail(), "this process may not inspect it") != NULL);
    tn_domain_close(p->domain);
    return 0;
}

TN_TEST(a_message_stays_queued_for_a_process_that_may_open_it)
{
    skip_unless_allowed(&without_a_view);
    struct popping *p = share_memory(sizeof *p);
    const tn_tensor_options options = {.struct_size = sizeof options,
                                       .strategy = TN_STRATEGY_FILE_DESCRIPTOR};
    tn_tensor *t, *popped;
    *p = (struct popping){.domain = tnt_domain(&no_manager), .pushed = tnt_signal_open()};
    p->resident = (struct resident){.space = &without_a_view,
                                    .run = pop_without_a_view,
                                    .leave = leave_a_popping,
                                    .argument = p};
    TN_CHECK_OK(tn_queue_open(p->domain, NULL, NULL, 0, &p->queue));
    move_in(&p->resident);
    while (p->resident.pid == 0)
        sched_yield();
    TN_CHECK_OK(
        tn_tensor_create(p->domain, TN_UINT8, 1, (int64_t[]){PAYLOAD_BYTES}, &options, &t));
    TN_CHECK_OK(tn_queue_push_tensor(p->queue, t, 0, TN_NOW));
    tnt_signal(&p->pushed);
    tnt_wait_ok(p->resident.entrance);
    assert_int_equal(p->status, TN_ERR_DENIED);
    TN_CHECK_OK(tn_queue_pop_tensor(p->queue, TN_NOW, &popped));
    tn_tensor_unref(popped);
    tn_tensor_unref(t);
    tn_object_close(p->queue);
    tnt_signal_close(&p->pushed);
    TNT_AUDIT(p->domain);
    tn_domain_close(p->domain);
    munmap(p, sizeof *p);
}
