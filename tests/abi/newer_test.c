/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests: this library against a domain, a tenond or a program of a newer version. Each says so;
 * nothing is misread, and nothing is done to it.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "harness/harness.h"
#include "os/os.h"
#include "process/process.h"
#include "reaper/reaper.h"

/* What is said of a domain whose layout is newer by one. */
static const char *newer_layout(void)
{
    static char text[32];
    snprintf(text, sizeof text, "shared layout %d", TNI_LAYOUT_VERSION + 1);
    return text;
}

static void expect_version(int status, const char *word)
{
    assert_int_equal(status, TN_ERR_VERSION);
    if (strstr(tn_error_detail(), word) == NULL)
        fail_msg("'%s' does not say '%s'", tn_error_detail(), word);
}

/* ---- a domain of a newer layout ---------------------------------------------------------- */

struct newer {
    struct tnt_signal made, go_on, found, end;
};

static void kill_tenond(const tn_domain *domain)
{
    uint64_t who = atomic_load(&domain->segment.header->manager);
    int fd;
    TN_CHECK(who != 0);
    TN_CHECK_OK(tni_os_process_open(
        atomic_load(&tni_seat_at(&domain->segment, tni_who_seat(who))->pid), &fd));
    TN_CHECK_OK(tni_os_process_signal(fd, SIGKILL));
    TN_CHECK_OK(tni_os_poll(&fd, 1, TNI_FOREVER));
    tni_os_close(fd);
}

static int live_in_a_newer_domain(void *argument)
{
    struct newer *newer = argument;
    tn_domain *domain;
    TN_CHECK_OK(tn_domain_open("newer", NULL, TN_OPEN_NEW, &domain));
    domain->segment.header->layout_version++;
    tnt_signal(&newer->made);
    tnt_await(&newer->go_on);
    kill_tenond(domain);
    tnt_signal(&newer->found);
    tnt_await(&newer->end);
    domain->segment.header->layout_version--;
    tn_domain_close(domain);
    return 0;
}

static int count_domain(const tn_domain_entry *info, void *context)
{
    *(unsigned *)context +=
        strcmp(info->name, "newer") == 0 && info->other_layout == TNI_LAYOUT_VERSION + 1;
    return 0;
}

static void expect_refused(void)
{
    tn_domain *domain = NULL;
    tn_inspector *inspector = NULL;
    unsigned domains = 0;

    expect_version(tn_domain_open("newer", NULL, TN_OPEN_EXISTING, &domain), newer_layout());
    expect_version(tn_inspector_open("newer", &inspector), newer_layout());
    assert_null(domain);
    assert_null(inspector);
    TN_CHECK_OK(tn_inspect_domains(count_domain, &domains));
    assert_int_equal(domains, 1);
}

TN_TEST(a_domain_of_a_newer_layout_is_refused_with_that_reason)
{
    struct newer newer = {tnt_signal_open(), tnt_signal_open(), tnt_signal_open(),
                          tnt_signal_open()};
    pid_t pid = tnt_fork(live_in_a_newer_domain, &newer);
    tnt_await(&newer.made);
    expect_refused();
    tnt_signal(&newer.go_on);
    tnt_await(&newer.found);
    expect_refused();
    tnt_signal(&newer.end);
    tnt_wait_ok(pid);
    tnt_signal_close(&newer.made);
    tnt_signal_close(&newer.go_on);
    tnt_signal_close(&newer.found);
    tnt_signal_close(&newer.end);
}

/* ---- a tenond of another version --------------------------------------------------------- */

/* It answers every request as each version does one that it does not know. */
static int be_a_newer_tenond(void *argument)
{
    struct tnt_signal *listening = argument;
    int listen_fd, fd, fds[2];
    uint32_t fd_count;
    struct tni_request request;
    struct tni_reply reply = {
        .magic = TNI_REQUEST_MAGIC, .status = TN_ERR_VERSION, .pid = tni_os_pid()};
    TN_CHECK_OK(tni_os_runtime_prepare());
    TN_CHECK_OK(tni_os_listen(TNI_MANAGER_SOCKET, &listen_fd));
    tnt_signal(listening);
    for (int i = 0; i < 2; i++) {
        TN_CHECK_OK(tni_os_poll(&listen_fd, 1, TNI_FOREVER));
        TN_CHECK_OK(tni_os_accept(listen_fd, &fd));
        fds[0] = fds[1] = -1;
        TN_CHECK(tni_os_receive(fd, &(struct tni_os_buffer){&request, sizeof request, fds, 2},
                                TNI_FOREVER, &fd_count) > 0);
        TN_CHECK_OK(tni_os_send(fd, &reply, sizeof reply, NULL, 0));
        tni_os_close(fds[0]);
        tni_os_close(fds[1]);
        tni_os_close(fd);
    }
    tni_os_close(listen_fd);
    return 0;
}

TN_TEST(a_tenond_of_another_version_is_named_as_such)
{
    struct tnt_signal listening = tnt_signal_open();
    tn_domain *domain = NULL;
    pid_t pid = tnt_fork(be_a_newer_tenond, &listening);
    tnt_await(&listening);
    expect_version(tn_domain_open("d", NULL, TN_OPEN_NEW, &domain), "of another version");
    expect_version(tn_domain_open("d", NULL, TN_OPEN_EXISTING, &domain), "of another version");
    assert_null(domain);
    tnt_wait_ok(pid);
    tnt_signal_close(&listening);
}

/* ---- a program that was compiled with newer headers -------------------------------------- */

TN_TEST(unused_options_of_a_newer_header_are_accepted)
{
    struct {
        tn_domain_options known;
        uint64_t added;
    } options = {.known = {.struct_size = sizeof options, .flags = TN_DOMAIN_NO_MANAGER}};
    char added_at[32];
    snprintf(added_at, sizeof added_at, "sets byte %zu", sizeof options.known);
    tn_domain *domain = NULL;
    TN_CHECK_OK(tn_domain_open(NULL, &options.known, 0, &domain));
    tn_domain_close(domain);

    options.added = 1;
    domain = NULL;
    assert_int_equal(tn_domain_open(NULL, &options.known, 0, &domain), TN_ERR_UNSUPPORTED);
    assert_non_null(strstr(tn_error_detail(), added_at));
    assert_null(domain);
}

static tn_domain *open_plain(void)
{
    return tnt_domain(&(tn_domain_options){.struct_size = sizeof(tn_domain_options),
                                           .flags = TN_DOMAIN_NO_MANAGER});
}

TN_TEST(fields_that_older_options_lack_have_their_defaults)
{
    struct {
        size_t struct_size;
        uint32_t capacity, inline_bytes;
        uint32_t behind[2]; /* no policy, and a reserved field that is not 0 */
    } older = {
        .struct_size = 2 * sizeof(size_t), .capacity = 3, .behind = {TN_QUEUE_LEASE, 77}};
    const tn_queue_options *options = (const tn_queue_options *)(const void *)&older;
    tn_queue_info info = {.struct_size = sizeof info};
    tn_domain *domain = open_plain();
    tn_queue *queue;
    TN_CHECK_OK(tn_queue_open(domain, NULL, options, 0, &queue));
    TN_CHECK_OK(tn_queue_get_info(queue, &info));
    assert_int_equal(info.capacity, 3);
    assert_int_equal(info.policy, TN_QUEUE_REDELIVER);
    tn_object_close(queue);
    tn_domain_close(domain);
}

TN_TEST(an_info_of_an_older_header_is_filled_in_as_far_as_it_goes)
{
    struct {
        size_t struct_size;
        const char *name;
        uint64_t behind;
    } older = {.struct_size = 2 * sizeof(size_t), .behind = 77};
    _Static_assert(offsetof(tn_domain_info, name) == sizeof(size_t), "the same field");
    tn_domain *domain = open_plain();
    TN_CHECK_OK(tn_domain_get_info(domain, (tn_domain_info *)(void *)&older));
    assert_int_equal(older.struct_size, 2 * sizeof(size_t));
    assert_string_equal(older.name, "");
    assert_int_equal(older.behind, 77);
    tn_domain_close(domain);
}

TN_TEST(an_info_of_a_newer_header_has_zeros_in_the_unknown_fields)
{
    struct {
        tn_domain_info known;
        uint64_t added;
    } newer = {.known = {.struct_size = sizeof newer}, .added = 77};
    tn_domain *domain = open_plain();
    TN_CHECK_OK(tn_domain_get_info(domain, &newer.known));
    assert_int_equal(newer.known.struct_size, sizeof newer);
    assert_int_equal(newer.known.seats, 256);
    assert_int_equal(newer.added, 0);
    tn_domain_close(domain);
}

static int end_with_three(tn_domain *domain, void *argument)
{
    (void)domain, (void)argument;
    return 3;
}

/* Each struct that a call fills in takes the size of an older header, and refuses none at all.
 */
TN_TEST(each_result_that_the_caller_provides_states_its_size)
{
    enum { LEAST = 2 * sizeof(size_t) };
    const int64_t count = 4;
    union {
        size_t struct_size;
        tn_domain_info domain;
        tn_queue_info queue;
        tn_tensor_info tensor;
        tn_process_status end;
        tn_domain_stat stat;
        uint8_t bytes[512];
    } it;
    char id[33];
    tn_domain *domain = open_plain();
    tn_inspector *inspector;
    tn_process *process;
    tn_tensor *tensor;
    tn_queue *queue;
    TN_CHECK_OK(tn_queue_open(domain, NULL, NULL, 0, &queue));
    TN_CHECK_OK(tn_tensor_create(domain, TN_INT8, 1, &count, NULL, &tensor));
    TN_CHECK_OK(tn_process_fork(domain, end_with_three, NULL, 0, &process));
    for (uint32_t i = 0; i < 16; i++)
        snprintf(id + 2 * (size_t)i, 3, "%02x", domain->segment.id[i]);
    TN_CHECK_OK(tn_inspector_open(id, &inspector));
#define TAKES_SIZES(call)                                                                      \
    do {                                                                                       \
        const size_t wrong[] = {0, sizeof(size_t), LEAST + 1, SIZE_MAX};                       \
        for (size_t i = 0; i < TNI_COUNT(wrong); i++) {                                        \
            it.struct_size = wrong[i];                                                         \
            assert_int_equal(call, TN_ERR_INVALID);                                            \
            assert_non_null(strstr(tn_error_detail(), "struct_size"));                         \
        }                                                                                      \
        memset(&it, 0x5a, sizeof it);                                                          \
        it.struct_size = LEAST;                                                                \
        TN_CHECK_OK(call);                                                                     \
        assert_int_equal(it.struct_size, LEAST);                                               \
        for (size_t i = LEAST; i < sizeof it; i++)                                             \
            assert_int_equal(it.bytes[i], 0x5a);                                               \
        it.struct_size = sizeof it;                                                            \
        TN_CHECK_OK(call);                                                                     \
        assert_int_equal(it.bytes[sizeof it - 1], 0);                                          \
    } while (0)
    TAKES_SIZES(tn_domain_get_info(domain, &it.domain));
    TAKES_SIZES(tn_queue_get_info(queue, &it.queue));
    TAKES_SIZES(tn_tensor_get_info(tensor, &it.tensor));
    TAKES_SIZES(tn_process_wait(process, TN_FOREVER, &it.end));
    TAKES_SIZES(tn_inspect_stat(inspector, &it.stat));
    tn_inspector_close(inspector);
    tn_process_close(process);
    tn_tensor_unref(tensor);
    tn_object_close(queue);
    tn_domain_close(domain);
}

TN_TEST(a_size_that_no_options_have_is_invalid)
{
    tn_queue_options options = {.struct_size = sizeof options - 1};
    tn_domain *domain = tnt_domain(&(tn_domain_options){
        .struct_size = sizeof(tn_domain_options), .flags = TN_DOMAIN_NO_MANAGER});
    tn_queue *queue = NULL;
    assert_int_equal(tn_queue_open(domain, NULL, &options, 0, &queue), TN_ERR_INVALID);
    options.struct_size = SIZE_MAX;
    assert_int_equal(tn_queue_open(domain, NULL, &options, 0, &queue), TN_ERR_INVALID);
    assert_null(queue);
    tn_domain_close(domain);
}
