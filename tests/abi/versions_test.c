/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests: programs of two versions of tenon, with different shared layouts, for one user and in
 * one runtime folder. The other version is this library, built with another layout version.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/harness.h"
#include "os/os.h"
#include "reaper/reaper.h"

enum { WITHIN_MS = 20000, TEXT_BYTES = 16384 };

/* The socket for ringing, which a process keeps, is there before descriptors are counted. */
__attribute__((constructor)) static void ring_once(void) { tni_os_bell_ring(1); }

/* ---- a program of the other version ------------------------------------------------------ */

struct other {
    pid_t pid;
    int to, from;
};

static struct other start_other(const char *const *argv)
{
    int to[2], from[2];
    TN_CHECK(pipe(to) == 0 && pipe(from) == 0);
    pid_t pid = fork();
    TN_CHECK(pid >= 0);
    if (pid == 0) {
        dup2(to[0], 0);
        dup2(from[1], 1);
        for (int fd = 3; fd < 100; fd++)
            close(fd);
        setenv("TENON_TENOND", TNT_OTHER_TENOND, 1);
        execv(argv[0], (char *const *)argv);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    return (struct other){.pid = pid, .to = to[1], .from = from[0]};
}

/* Up to `until`, or all there is. */
static void read_text(int fd, const char *until, char text[TEXT_BYTES])
{
    size_t size = 0;
    text[0] = 0;
    while (size < TEXT_BYTES - 1 && (until == NULL || strstr(text, until) == NULL)) {
        TN_CHECK(tni_os_poll(&fd, 1, tnt_until_ns(WITHIN_MS)) == 0);
        ssize_t got = read(fd, text + size, TEXT_BYTES - 1 - size);
        if (got <= 0)
            break;
        size += (size_t)got;
        text[size] = 0;
    }
}

static struct other live_as_other(const char *name)
{
    char text[TEXT_BYTES];
    struct other other = start_other((const char *const[]){TNT_OTHER_MEMBER, name, NULL});
    read_text(other.from, "ready\n", text);
    assert_string_equal(text, "ready\n");
    return other;
}

static void end_other(struct other *other)
{
    close(other->to);
    tnt_wait_ok(other->pid);
    close(other->from);
}

/* What a command of one of the versions prints. */
static void list_by(const char *command, char text[TEXT_BYTES])
{
    struct other tool = start_other((const char *const[]){command, "ls", "--json", NULL});
    read_text(tool.from, NULL, text);
    end_other(&tool);
}

/* ---- domains of this version ------------------------------------------------------------- */

static void live_as_ours(const char *name, tn_domain **ret_domain)
{
    const tn_tensor_options options = {.struct_size = sizeof options,
                                       .strategy = TN_STRATEGY_FILE_DESCRIPTOR};
    tn_queue *queue;
    tn_tensor *tensor;
    TN_CHECK_OK(tn_domain_open(name, NULL, TN_OPEN_NEW, ret_domain));
    TN_CHECK_OK(tn_queue_open(*ret_domain, "q", NULL, TN_OPEN_NEW, &queue));
    TN_CHECK_OK(
        tn_tensor_create(*ret_domain, TN_FLOAT32, 1, (int64_t[]){1000}, &options, &tensor));
    TN_CHECK_OK(tn_queue_push_tensor(queue, tensor, TN_PUSH_MOVE, TN_NOW));
    TN_CHECK_OK(tn_queue_pop_tensor(queue, TN_NOW, &tensor));
    tn_tensor_unref(tensor);
    tn_object_close(queue);
}

struct seen {
    pid_t other_pid;
    unsigned ours, others;
};

/* Of the domains of these two processes: this user may have others, from this test too. */
static int see(const tn_domain_entry *info, void *context)
{
    struct seen *seen = context;
    seen->ours += info->creator_pid == getpid() && strcmp(info->name, "ours") == 0 &&
                  info->other_layout == 0;
    seen->others += info->creator_pid == seen->other_pid && strcmp(info->name, "theirs") == 0 &&
                    info->other_layout == TNT_OTHER_LAYOUT;
    return 0;
}

/* Each sees of the other's domain what can be known of it. */
static void expect_side_by_side(const struct other *other)
{
    char text[TEXT_BYTES], layout[64];
    struct seen seen = {.other_pid = other->pid};
    tn_domain *domain = NULL;
    TN_CHECK_OK(tn_inspect_domains(see, &seen));
    assert_int_equal(seen.ours, 1);
    assert_int_equal(seen.others, 1);
    assert_int_equal(tn_domain_open("theirs", NULL, TN_OPEN_EXISTING, &domain), TN_ERR_VERSION);
    assert_int_equal(tn_domain_open("theirs", NULL, 0, &domain), TN_ERR_VERSION);
    snprintf(layout, sizeof layout, "layout %d", TNT_OTHER_LAYOUT);
    assert_non_null(strstr(tn_error_detail(), layout));
#ifdef TNT_COMMAND
    list_by(TNT_COMMAND, text);
    snprintf(layout, sizeof layout, "\"other_layout\": %d", TNT_OTHER_LAYOUT);
    assert_non_null(strstr(text, layout));
    list_by(TNT_OTHER_COMMAND, text);
    snprintf(layout, sizeof layout, "\"other_layout\": %d", TNI_LAYOUT_VERSION);
    assert_non_null(strstr(text, layout));
    assert_non_null(strstr(text, "\"theirs\""));
#else
    (void)list_by;
    (void)text;
#endif
}

TN_TEST(a_newer_program_lives_beside_one_that_was_there_first)
{
    tn_domain *domain;
    live_as_ours("ours", &domain);
    struct other other = live_as_other("theirs");
    expect_side_by_side(&other);
    end_other(&other);
    tn_domain_close(domain);
}

TN_TEST(an_older_program_lives_beside_one_that_was_there_first)
{
    tn_domain *domain;
    struct other other = live_as_other("theirs");
    live_as_ours("ours", &domain);
    expect_side_by_side(&other);
    tn_domain_close(domain);
    end_other(&other);
}

/* A name is taken in one version only. */
TN_TEST(two_versions_may_make_domains_of_one_name)
{
    tn_domain *domain, *again;
    live_as_ours("both", &domain);
    struct other other = start_other((const char *const[]){TNT_OTHER_MEMBER, "both", NULL});
    char text[TEXT_BYTES];
    read_text(other.from, NULL, text); /* it opens: the other one is not what it wants */
    assert_string_equal(text, "");
    assert_int_not_equal(tnt_wait(other.pid), 0);
    close(other.to);
    close(other.from);
    TN_CHECK_OK(tn_domain_open("both", NULL, TN_OPEN_EXISTING, &again));
    tn_domain_close(again);
    tn_domain_close(domain);

    other = live_as_other("theirs");
    TN_CHECK_OK(tn_domain_open("theirs", NULL, TN_OPEN_NEW, &domain));
    TN_CHECK_OK(tn_domain_open("theirs", NULL, TN_OPEN_EXISTING, &again));
    tn_domain_close(again);
    tn_domain_close(domain);
    end_other(&other);
}

/*
 * When a tenond of one version is killed, the tenond of the other version does not manage its
 * domains.
 */
TN_TEST(a_killed_tenond_is_replaced_by_one_of_its_own_version)
{
    tn_domain *domain;
    struct other other = live_as_other("theirs");
    live_as_ours("ours", &domain);
    const struct tni_segment *s = &domain->segment;
    uint64_t old = atomic_load(&s->header->manager);
    TN_CHECK(kill(atomic_load(&tni_seat_at(s, tni_who_seat(old))->pid), SIGKILL) == 0);
    _Atomic uint32_t word = 0;
    uint64_t deadline_ns = tnt_until_ns(WITHIN_MS);
    while (atomic_load(&s->header->manager) == old) {
        TN_CHECK(tni_os_now_ns() < deadline_ns);
        tni_process_sleep(domain, &word, 0,
                          &(struct tni_wait){.deadline_ns = tnt_until_ns(120)});
    }
    expect_side_by_side(&other);
    tn_domain_close(domain);
    end_other(&other);
}
