/* SPDX-License-Identifier: Apache-2.0 */
/* Tests with deliberate faults. harness_test checks that the harness reports each of them. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/base.h"
#include "harness/harness.h"

TN_TEST(fails_by_an_assertion) { assert_int_equal(1, 2); }

TN_TEST(fails_by_a_check) { TN_CHECK(1 > 2); }

TN_TEST(fails_by_a_status) { TN_CHECK_OK(tni_fail(TN_ERR_FULL, "no room")); }

TN_TEST(fails_by_a_crash) { raise(SIGSEGV); }

TN_TEST_WITHIN(fails_by_a_timeout, 1) { pause(); }

TN_TEST(fails_by_an_open_descriptor)
{
    assert_true(open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0);
}

TN_TEST(fails_by_a_mapping)
{
    int fd = memfd_create("tenon-leak", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, 4096), 0);
    assert_true(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) != MAP_FAILED);
    close(fd);
}

TN_TEST(fails_by_a_named_file)
{
    char path[128];
    snprintf(path, sizeof path, "%s/tenon-left", tnt_shm_folder());
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
}

static int stay(void *argument)
{
    (void)argument;
    while (pause() != 0)
        continue;
    return 0;
}

TN_TEST(fails_by_a_process_that_stays) { tnt_fork(stay, NULL); }

static int leave_the_group(void *argument)
{
    setsid();
    tnt_signal(argument);
    return stay(NULL);
}

TN_TEST(fails_by_a_process_that_left_the_group)
{
    struct tnt_signal started = tnt_signal_open();
    tnt_fork(leave_the_group, &started);
    tnt_await(&started);
    tnt_signal_close(&started);
}

static int assert_wrongly(void *argument)
{
    (void)argument;
    assert_string_equal("a child", "its parent");
    return 0;
}

TN_TEST(fails_by_an_assertion_in_a_child) { tnt_wait_ok(tnt_fork(assert_wrongly, NULL)); }

TN_TEST(is_skipped) { tnt_skip("to see whether it is counted"); }

#if defined(TN_KILL_POINTS)

static int pass_a_point(void *argument)
{
    (void)argument;
    TNI_KILL_POINT("harness_here");
    TNI_KILL_POINT("harness_here");
    return 0;
}

TN_TEST(passes_and_dies_at_its_kill_point)
{
    assert_true(tnt_kill_at("harness_here", 2, pass_a_point, NULL));
    assert_false(tnt_kill_at("harness_here", 3, pass_a_point, NULL));
}

#endif

TN_TEST(passes_with_a_folder_of_its_own)
{
    assert_string_equal(getenv("TENON_RUNTIME_DIR"), tnt_folder());
    assert_int_equal(access(tnt_folder(), W_OK), 0);
    assert_true(strncmp(tnt_folder(), "/tmp/", 5) == 0);
}
