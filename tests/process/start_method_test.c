/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: what holds for children however they were started: by fork, by exec, by a server. */
#include "harness/harness.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "process/children.h"

enum method { BY_FORK, BY_EXEC, BY_SERVER, METHODS };

/* What a child does; `index` is its first argument. */
enum behaviour {
    SUCCEED,
    SLEEP,
    TELL_INDEX,
    RAISE_ONE,
    RAISE_ALL,
    ABORT_FIRST,
    EXIT_123,
    FIRST_WELL,
    NEST,
    TELL_PID
};
struct part {
    enum method method;
    enum behaviour behaviour;
    uint32_t index;
};

static tn_process *start_part(tn_domain *domain, tn_forkserver *server, struct part part);

static void push_number(tn_domain *domain, int32_t number)
{
    tn_queue *queue;
    tn_message message = {.bytes = &number, .size_bytes = sizeof number};
    TN_CHECK_OK(tn_queue_open(domain, "numbers", NULL, TN_OPEN_EXISTING, &queue));
    TN_CHECK_OK(tn_queue_push(queue, &message, 0, TN_NOW));
    tn_object_close(queue);
}

static int nest(tn_domain *domain, struct part part)
{
    tn_forkserver *server = part.method == BY_SERVER ? open_server(domain) : NULL;
    start_part(domain, server, (struct part){part.method, TELL_PID, 0});
    return pause_for_ever();
}

static int raise_after_the_first(tn_domain *domain)
{
    tn_event *event;
    TN_CHECK_OK(tn_event_open(domain, "first_ended", TN_OPEN_EXISTING, &event));
    TN_CHECK_OK(tn_event_wait(event, tnt_deadline(10000)));
    tn_process_fail("the second one is broken");
}

static int play(tn_domain *domain, void *argument)
{
    struct part part = *(struct part *)argument;
    char text[32];
    snprintf(text, sizeof text, "legitimate exception %u", part.index);
    switch (part.behaviour) {
    case TELL_INDEX:
        push_number(domain, (int32_t)part.index);
        return 0;
    case TELL_PID:
        push_number(domain, getpid());
        return pause_for_ever();
    case RAISE_ONE:
        return part.index == 1 ? (tn_process_fail(text), 0) : pause_for_ever();
    case RAISE_ALL:
        tn_process_fail(text);
    case ABORT_FIRST:
        return part.index == 0 ? (abort(), 0) : pause_for_ever();
    case EXIT_123:
        return part.index == 0 ? 123 : pause_for_ever();
    case FIRST_WELL:
        return part.index == 0 ? 0 : raise_after_the_first(domain);
    case NEST:
        return nest(domain, part);
    case SLEEP:
        return pause_for_ever();
    default:
        return 0;
    }
}

/* Before main(): the parts are no tests, and the harness is not theirs. */
__attribute__((constructor)) static void play_part(void)
{
    const char *text = getenv("START_METHOD_TEST_PART");
    struct part part = {BY_EXEC, SUCCEED, 0};
    unsigned behaviour;
    tn_domain *domain;
    if (text == NULL)
        return;
    unsetenv("START_METHOD_TEST_PART");
    if (sscanf(text, "%u,%u", &behaviour, &part.index) != 2)
        _exit(99);
    part.behaviour = (enum behaviour)behaviour;
    if (tn_domain_inherit(&domain) != 0)
        tn_process_fail(tn_error_detail());
    int code = play(domain, &part);
    tn_domain_close(domain);
    _exit(code);
}

static tn_process *start_program(tn_domain *domain, struct part part)
{
    char self[4096], variable[64];
    tn_process *process = NULL;
    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    TN_CHECK(len > 0);
    self[len] = '\0';
    snprintf(variable, sizeof variable, "START_METHOD_TEST_PART=%u,%u",
             (unsigned)part.behaviour, part.index);
    const char *const argv[] = {self, NULL}, *const environment[] = {variable, NULL};
    TN_CHECK_OK(tn_process_exec(domain, argv, environment, 0, &process));
    return process;
}

static tn_process *start_part(tn_domain *domain, tn_forkserver *server, struct part part)
{
    tn_process *process = NULL;
    switch (part.method) {
    case BY_FORK:
        TN_CHECK_OK(tn_process_fork(domain, play, &part, 0, &process));
        return process;
    case BY_EXEC:
        return start_program(domain, part);
    default:
        return start(server, play, &part, sizeof part);
    }
}

struct world {
    tn_domain *domain;
    tn_forkserver *server;
    tn_queue *numbers;
    tn_event *first_ended;
    tn_group *group;
};

static struct world open_world(enum method method, enum behaviour behaviour, uint32_t count)
{
    struct world w = {.domain = open_domain(16)};
    if (method == BY_SERVER)
        w.server = open_server(w.domain);
    TN_CHECK_OK(tn_queue_open(w.domain, "numbers", NULL, TN_OPEN_NEW, &w.numbers));
    TN_CHECK_OK(tn_event_open(w.domain, "first_ended", TN_OPEN_NEW, &w.first_ended));
    TN_CHECK_OK(tn_group_create(w.domain, &w.group));
    for (uint32_t i = 0; i < count; i++)
        TN_CHECK_OK(tn_group_add(
            w.group, start_part(w.domain, w.server, (struct part){method, behaviour, i})));
    return w;
}

static void close_world(struct world *w)
{
    tn_group_close(w->group);
    tn_object_close(w->numbers);
    tn_object_close(w->first_ended);
    tn_forkserver_close(w->server);
    close_domain(w->domain);
}

static tn_process_status first_failure(struct world *w)
{
    tn_process_status first = {.struct_size = sizeof first};
    assert_int_equal(tn_group_wait(w->group, 10 * second_ns, tnt_deadline(20000), &first),
                     TN_ERR_CHILD_FAILED);
    return first;
}

static int32_t pop_number(struct world *w)
{
    tn_message message;
    int32_t number;
    TN_CHECK_OK(tn_queue_pop(w->numbers, tnt_deadline(10000), &message));
    assert_int_equal(message.size_bytes, sizeof number);
    memcpy(&number, message.bytes, sizeof number);
    tn_message_fini(&message);
    return number;
}

TN_TEST(by_every_method_children_that_succeed_are_well)
{
    for (enum method method = 0; method < METHODS; method++) {
        struct world w = open_world(method, SUCCEED, 2);
        TN_CHECK_OK(tn_group_wait(w.group, 0, tnt_deadline(10000), NULL));
        close_world(&w);
    }
}

TN_TEST(a_join_can_be_repeated_by_every_start_method)
{
    for (enum method method = 0; method < METHODS; method++) {
        struct world w = open_world(method, SUCCEED, 2);
        int status = TN_ERR_TIMED_OUT;
        while (status == TN_ERR_TIMED_OUT)
            status = tn_group_wait(w.group, 0, TN_NOW, NULL);
        assert_int_equal(status, 0);
        close_world(&w);
        w = open_world(method, SLEEP, 2);
        assert_int_equal(tn_group_wait(w.group, 0, TN_NOW, NULL), TN_ERR_TIMED_OUT);
        assert_int_equal(tn_group_wait(w.group, 0, TN_NOW, NULL), TN_ERR_TIMED_OUT);
        close_world(&w);
    }
}

TN_TEST(by_every_method_each_child_has_its_index)
{
    for (enum method method = 0; method < METHODS; method++) {
        struct world w = open_world(method, TELL_INDEX, 4);
        unsigned seen = 0;
        TN_CHECK_OK(tn_group_wait(w.group, 0, tnt_deadline(10000), NULL));
        for (int i = 0; i < 4; i++)
            seen |= 1u << pop_number(&w);
        assert_int_equal(seen, 15);
        close_world(&w);
    }
}

TN_TEST(the_failed_child_is_named_by_every_start_method)
{
    for (enum method method = 0; method < METHODS; method++) {
        struct world w = open_world(method, RAISE_ONE, 3);
        tn_process_status first = first_failure(&w);
        assert_int_equal(first.index, 1);
        assert_int_equal(first.exit_code, 1);
        assert_string_equal(first.message, "legitimate exception 1");
        assert_int_equal(await_end(tn_group_get(w.group, 0)).signal, SIGTERM);
        assert_int_equal(await_end(tn_group_get(w.group, 2)).signal, SIGTERM);
        close_world(&w);
    }
}

TN_TEST(by_every_method_one_failure_is_reported_when_all_fail)
{
    for (enum method method = 0; method < METHODS; method++) {
        struct world w = open_world(method, RAISE_ALL, 3);
        tn_process_status first = first_failure(&w);
        char expected[32];
        snprintf(expected, sizeof expected, "legitimate exception %u", first.index);
        assert_string_equal(first.message, expected);
        close_world(&w);
    }
}

static void expect_first_ends(enum behaviour behaviour, int exit_code, int signal_number)
{
    for (enum method method = 0; method < METHODS; method++) {
        struct world w = open_world(method, behaviour, 2);
        tn_process_status first = first_failure(&w);
        assert_int_equal(first.index, 0);
        assert_int_equal(first.exit_code, exit_code);
        assert_int_equal(first.signal, signal_number);
        close_world(&w);
    }
}

TN_TEST(by_every_method_the_signal_that_ended_a_child_is_reported)
{
    expect_first_ends(ABORT_FIRST, -1, SIGABRT);
}

TN_TEST(by_every_method_an_exit_code_is_reported) { expect_first_ends(EXIT_123, 123, 0); }

TN_TEST(a_later_failure_is_seen_by_every_start_method)
{
    for (enum method method = 0; method < METHODS; method++) {
        struct world w = open_world(method, FIRST_WELL, 2);
        assert_int_equal(await_end(tn_group_get(w.group, 0)).exit_code, 0);
        assert_int_equal(tn_group_wait(w.group, 0, TN_NOW, NULL), TN_ERR_TIMED_OUT);
        TN_CHECK_OK(tn_event_set(w.first_ended));
        tn_process_status first = first_failure(&w);
        assert_int_equal(first.index, 1);
        assert_string_equal(first.message, "the second one is broken");
        close_world(&w);
    }
}

TN_TEST(grandchildren_end_with_a_killed_parent_by_every_start_method)
{
    for (enum method method = 0; method < METHODS; method++) {
        struct world w = open_world(method, NEST, 1);
        int fd = pidfd_of(pop_number(&w));
        assert_true(fd >= 0);
        assert_false(ends_within(fd, 0));
        TN_CHECK_OK(tn_process_kill(tn_group_get(w.group, 0), SIGKILL));
        assert_true(ends_within(fd, 10000));
        close(fd);
        close_world(&w);
    }
}
