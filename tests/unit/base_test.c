/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"

static void fail_returns_its_status_and_keeps_the_sentence(void **state)
{
    (void)state;
    assert_int_equal(tni_fail(TN_ERR_FULL, "table %s has %d rows", "seats", 7), TN_ERR_FULL);
    assert_string_equal(tn_error_detail(), "table seats has 7 rows");
}

static void fail_may_quote_the_detail_it_replaces(void **state)
{
    (void)state;
    tni_fail(TN_ERR_FULL, "inner");
    tni_fail(TN_ERR_FULL, "outer: %s", tn_error_detail());
    assert_string_equal(tn_error_detail(), "outer: inner");
}

static void fail_errno_appends_the_reason(void **state)
{
    (void)state;
    assert_int_equal(tni_fail_errno(TN_ERR_SYSTEM, ENOENT, "file %s", "x"), TN_ERR_SYSTEM);
    assert_string_equal(tn_error_detail(), "file x: No such file or directory");
}

static void a_detail_that_is_too_long_ends_in_dots(void **state)
{
    (void)state;
    char long_text[1200];
    memset(long_text, 'a', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';

    tni_fail(TN_ERR_INVALID, "%s", long_text);
    assert_int_equal(strlen(tn_error_detail()), 511);
    assert_string_equal(tn_error_detail() + 508, "...");
}

static void a_long_path_loses_its_middle_and_not_the_reason(void **state)
{
    (void)state;
    static const char reason[] = "aaz: No such file or directory";
    char path[4097];
    memset(path, 'a', sizeof path - 1);
    path[0] = '/';
    path[sizeof path - 2] = 'z';
    path[sizeof path - 1] = '\0';

    for (size_t room = 0; room < 2; room++) {
        const char *text = room == 0 ? path : path + sizeof path - 1 - 506;
        assert_int_equal(tni_fail_errno(TN_ERR_NOT_FOUND, ENOENT, "opening %s", text),
                         TN_ERR_NOT_FOUND);
        const char *detail = tn_error_detail();
        assert_int_equal(strlen(detail), 511);
        assert_string_equal(detail + 511 - (sizeof reason - 1), reason);
        assert_memory_equal(detail, "opening ", 8);
        assert_non_null(strstr(detail, "a...a"));
    }
    tni_fail_errno(TN_ERR_NOT_FOUND, ENOENT, "%s", path + sizeof path - 1 - 484);
    assert_int_equal(strlen(tn_error_detail()), 511);
    assert_null(strstr(tn_error_detail(), "..."));
}

static void a_detail_has_neither_control_characters_nor_parts_of_one(void **state)
{
    (void)state;
    tni_fail(TN_ERR_INVALID, "%s", "a\303\251 \033[2J\n\177\302\233 \377 \303");
    assert_string_equal(tn_error_detail(), "a\303\251 ?[2J???? ? ?");
}

static void cleaning_a_text_leaves_valid_utf_8_as_it_is(void **state)
{
    static const char *const pairs[][2] = {
        {"", ""},
        {"plain ~", "plain ~"},
        {"\303\251\342\202\254\360\237\230\200", "\303\251\342\202\254\360\237\230\200"},
        {"\342\202", "??"}, /* without its last byte */
        {"\342\202a", "??a"},
        {"\200\300\257", "???"}, /* a lone continuation byte; an overlong form */
        {"\340\200\257", "???"},
        {"\355\240\200", "???"},      /* half a surrogate pair */
        {"\364\220\200\200", "????"}, /* beyond the last character */
        {"\370\210\200\200\200", "?????"},
        {"\302\240", "\302\240"},
    };
    (void)state;
    for (size_t i = 0; i < TNI_COUNT(pairs); i++) {
        char text[64];
        snprintf(text, sizeof text, "%s", pairs[i][0]);
        assert_string_equal(tni_text_clean(text), pairs[i][1]);
    }
}

static void the_peer_is_the_last_one_set(void **state)
{
    (void)state;
    tni_set_peer(3, 77);
    assert_int_equal(tn_error_peer().seat, 3);
    assert_int_equal(tn_error_peer().pid, 77);
}

static void every_status_has_its_name_and_sentence(void **state)
{
    (void)state;
    assert_string_equal(tn_status_name(TN_OK), "TN_OK");
    assert_string_equal(tn_status_name(TN_ERR_TIMED_OUT), "TN_ERR_TIMED_OUT");
    assert_string_equal(tn_status_sentence(TN_ERR_TIMED_OUT), "the deadline passed");
    assert_string_equal(tn_status_name(12345), "unknown status");
    assert_string_equal(tn_status_sentence(-12345), "unknown status");
}

static void sizes_refuse_to_overflow_and_leave_the_result(void **state)
{
    (void)state;
    uint64_t sum = 9;
    assert_false(tni_add_size(UINT64_MAX, 1, &sum));
    assert_false(tni_mul_size(UINT64_MAX, 2, &sum));
    assert_int_equal(sum, 9);
    assert_true(tni_mul_size(3, 4, &sum));
    assert_int_equal(sum, 12);
}

static void log2_up_is_the_first_power_that_is_enough(void **state)
{
    (void)state;
    assert_int_equal(tni_log2_up(1), 0);
    assert_int_equal(tni_log2_up(2), 1);
    assert_int_equal(tni_log2_up(3), 2);
    assert_int_equal(tni_log2_up(UINT64_C(1) << 63), 63);
    assert_int_equal(tni_log2_up(UINT64_MAX), 64);
}

static void a_pause_is_a_multiple_of_the_scan_and_has_a_maximum(void **state)
{
    (void)state;
    const uint64_t second_ns = UINT64_C(1000000000), most_ns = 30 * second_ns;
    assert_int_equal(tni_pause_ns(1000, 100, 7), 100000);
    assert_int_equal(tni_pause_ns(1000, 100, second_ns), second_ns);
    assert_int_equal(tni_pause_ns(60 * second_ns, 100, second_ns), most_ns);
    assert_int_equal(tni_pause_ns(UINT64_MAX, 2000, second_ns), most_ns);
    assert_int_equal(tni_pause_ns(60 * second_ns, 100, 2 * most_ns), 2 * most_ns);
}

static void names_are_checked_byte_by_byte(void **state)
{
    (void)state;
    assert_int_equal(tni_check_name("queue", "a.B_9-z", 7), 0);
    assert_int_equal(tni_check_name("queue", NULL, 7), TN_ERR_INVALID);
    assert_int_equal(tni_check_name("queue", "", 7), TN_ERR_INVALID);
    assert_int_equal(tni_check_name("queue", "12345678", 7), TN_ERR_INVALID);
    assert_int_equal(tni_check_name("queue", ".a", 7), TN_ERR_INVALID);
    assert_int_equal(tni_check_name("queue", "a/b", 7), TN_ERR_INVALID);
    assert_non_null(strstr(tn_error_detail(), "0x2f at 1"));
    assert_int_equal(tni_check_name("queue", "\xc3\xa9", 7), TN_ERR_INVALID);
}

static void hash_gives_the_published_values(void **state)
{
    (void)state;
    assert_true(tni_hash("", 0) == UINT64_C(0xcbf29ce484222325));
    assert_true(tni_hash("a", 1) == UINT64_C(0xaf63dc4c8601ec8c));
    assert_true(tni_hash("foobar", 6) == UINT64_C(0x85944171f73967e8));
}

/* Processes of one domain compare these numbers. */
static void fast_hash_stays_as_it_is(void **state)
{
    (void)state;
    if (__BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__)
        skip();
    assert_true(tni_hash_fast("", 0) == UINT64_C(0x9c60c22591400851));
    assert_true(tni_hash_fast("foobar", 6) == UINT64_C(0x56769318a91089f8));
    assert_true(tni_hash_fast("model/layer.17.weight", 21) == UINT64_C(0x7f0a0c2b7a285626));
}

static void fast_hash_differs_after_a_change_of_any_byte(void **state)
{
    (void)state;
    char text[40] = "model/layer.17.attention.weight";
    for (uint32_t size = 1; size < sizeof text; size++) {
        uint64_t before = tni_hash_fast(text, size);
        for (uint32_t i = 0; i < size; i++) {
            text[i] ^= 0x40;
            assert_true(tni_hash_fast(text, size) != before);
            text[i] ^= 0x40;
        }
    }
}

/* The low bits choose a chain: 4,096 keys in as many chains fill about 0.63 of them. */
static void fast_hash_spreads_the_keys_of_a_model(void **state)
{
    enum { COUNT = 4096 };
    (void)state;
    static bool is_used[COUNT];
    uint32_t used = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        char key[64];
        int bytes = snprintf(key, sizeof key, "model/layer.%u.weight", i);
        uint64_t at = tni_hash_fast(key, (size_t)bytes) % COUNT;
        used += !is_used[at];
        is_used[at] = true;
    }
    assert_in_range(used, COUNT * 60 / 100, COUNT * 67 / 100);
}

struct heard {
    int count;
    int level;
    char line[64];
};

static void hear(int level, const char *line, void *context)
{
    struct heard *heard = context;
    heard->count++;
    heard->level = level;
    strncpy(heard->line, line, sizeof heard->line - 1);
    tni_log(TNI_LOG_ERROR, "from inside the hook");
    errno = EIO;
}

static void the_log_hook_gets_each_line_once_until_it_is_removed(void **state)
{
    (void)state;
    struct heard first = {0};
    struct heard second = {0};
    tn_log_set(hear, &first);
    errno = 0;
    tni_log(TNI_LOG_WARNING, "seat %d died", 4);
    assert_int_equal(errno, 0);
    assert_int_equal(first.count, 1);
    assert_int_equal(first.level, TNI_LOG_WARNING);
    assert_string_equal(first.line, "seat 4 died");

    tn_log_set(hear, &second);
    tni_log(TNI_LOG_INFO, "x");
    tn_log_set(hear, &first);
    tni_log(TNI_LOG_INFO, "y");
    tn_log_set(NULL, NULL);
    tni_log(TNI_LOG_INFO, "z");
    assert_int_equal(first.count, 2);
    assert_int_equal(second.count, 1);
}

static struct heard written;

static void write_heard(int level, const char *line)
{
    written.count++;
    written.level = level;
    strncpy(written.line, line, sizeof written.line - 1);
    errno = EIO;
}

static void the_writer_gets_what_no_log_hook_takes(void **state)
{
    (void)state;
    struct heard heard = {0};
    tni_log_set_writer(TNI_LOG_INFO, write_heard);
    tni_log(TNI_LOG_DEBUG, "too low");
    assert_int_equal(written.count, 0);
    errno = 0;
    tni_log(TNI_LOG_INFO, "seat %d died", 4);
    assert_int_equal(errno, 0);
    assert_int_equal(written.level, TNI_LOG_INFO);
    assert_string_equal(written.line, "seat 4 died");
    tn_log_set(hear, &heard);
    tni_log(TNI_LOG_ERROR, "x");
    assert_int_equal(heard.count, 1);
    tn_log_set(NULL, NULL);
    tni_log(TNI_LOG_ERROR, "y");
    tni_log_set_writer(TNI_LOG_INFO, NULL);
    tni_log(TNI_LOG_ERROR, "z");
    assert_int_equal(written.count, 2);
    assert_string_equal(written.line, "y");
}

static void a_failure_is_for_the_writer_at_debug_not_for_the_hook(void **state)
{
    (void)state;
    struct heard heard = {0};
    written = (struct heard){0};
    tni_log_set_writer(TNI_LOG_INFO, write_heard);
    assert_int_equal(tni_fail(TN_ERR_STALE, "handle %d", 7), TN_ERR_STALE);
    assert_int_equal(written.count, 0);
    tni_log_set_writer(TNI_LOG_DEBUG, write_heard);
    assert_int_equal(tni_fail(TN_ERR_STALE, "handle %d", 7), TN_ERR_STALE);
    assert_string_equal(written.line, "TN_ERR_STALE: handle 7");
    assert_string_equal(tn_error_detail(), "handle 7");
    assert_int_equal(tni_fail_errno(TN_ERR_SYSTEM, ENOENT, "a"), TN_ERR_SYSTEM);
    assert_string_equal(written.line, "TN_ERR_SYSTEM: a: No such file or directory");
    tn_log_set(hear, &heard);
    assert_int_equal(tni_fail(TN_ERR_STALE, "b"), TN_ERR_STALE);
    tn_log_set(NULL, NULL);
    tni_log_set_writer(TNI_LOG_INFO, NULL);
    assert_int_equal(heard.count, 0);
    assert_int_equal(written.count, 2);
}

#if defined(TN_KILL_POINTS)
static int wait_status_of_passing(const char *armed, uint32_t passing, int times)
{
    pid_t child = fork();
    if (child == 0) {
        tni_kill_point_arm(armed, passing);
        for (int i = 0; i < times; i++)
            TNI_KILL_POINT("here");
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return status;
}

static void a_kill_point_kills_at_the_armed_passing_only(void **state)
{
    (void)state;
    assert_int_equal(wait_status_of_passing("here", 3, 2), 0);
    int status = wait_status_of_passing("here", 3, 3);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_int_equal(wait_status_of_passing("there", 1, 5), 0);
    assert_int_equal(wait_status_of_passing(NULL, 1, 5), 0);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fail_returns_its_status_and_keeps_the_sentence),
        cmocka_unit_test(fail_may_quote_the_detail_it_replaces),
        cmocka_unit_test(fail_errno_appends_the_reason),
        cmocka_unit_test(a_detail_that_is_too_long_ends_in_dots),
        cmocka_unit_test(a_long_path_loses_its_middle_and_not_the_reason),
        cmocka_unit_test(a_detail_has_neither_control_characters_nor_parts_of_one),
        cmocka_unit_test(cleaning_a_text_leaves_valid_utf_8_as_it_is),
        cmocka_unit_test(the_peer_is_the_last_one_set),
        cmocka_unit_test(every_status_has_its_name_and_sentence),
        cmocka_unit_test(sizes_refuse_to_overflow_and_leave_the_result),
        cmocka_unit_test(log2_up_is_the_first_power_that_is_enough),
        cmocka_unit_test(a_pause_is_a_multiple_of_the_scan_and_has_a_maximum),
        cmocka_unit_test(names_are_checked_byte_by_byte),
        cmocka_unit_test(hash_gives_the_published_values),
        cmocka_unit_test(fast_hash_stays_as_it_is),
        cmocka_unit_test(fast_hash_differs_after_a_change_of_any_byte),
        cmocka_unit_test(fast_hash_spreads_the_keys_of_a_model),
        cmocka_unit_test(the_log_hook_gets_each_line_once_until_it_is_removed),
        cmocka_unit_test(the_writer_gets_what_no_log_hook_takes),
        cmocka_unit_test(a_failure_is_for_the_writer_at_debug_not_for_the_hook),
#if defined(TN_KILL_POINTS)
        cmocka_unit_test(a_kill_point_kills_at_the_armed_passing_only),
#endif
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
