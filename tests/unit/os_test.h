/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the tests of the room os. */
#ifndef TENON_TESTS_OS_TEST_H
#define TENON_TESTS_OS_TEST_H

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "os/os.h"

enum { PAGE = 4096, SECOND_NS = 1000000000 };

/* For bodies that run in a child, since they change limits, the environment or signals. */
#define CHECK(condition)                                                                       \
    do {                                                                                       \
        if (!(condition)) {                                                                    \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition,                \
                    tn_error_detail());                                                        \
            _exit(1);                                                                          \
        }                                                                                      \
    } while (0)

static inline uint64_t soon(void) { return tni_os_now_ns() + UINT64_C(10) * SECOND_NS; }

static inline void run_in_child(void (*body)(void))
{
    pid_t child = fork();
    if (child == 0) {
        body();
        _exit(0);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* Print the reason, which tests/harness/plain reports, and skip. */
static inline void skip_since(const char *reason)
{
    printf("skipped: %s\n", reason);
    fflush(stdout);
    skip();
}

static inline uint32_t open_count(void)
{
    uint32_t count = 0;
    for (int fd = 0; fd < 512; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* Each program works in a runtime folder of its own. */
static char test_folder[64];

static inline int make_test_folder(void **state)
{
    (void)state;
    snprintf(test_folder, sizeof test_folder, "/tmp/tenon-os-test-XXXXXX");
    if (mkdtemp(test_folder) == NULL)
        return -1;
    return setenv("TENON_RUNTIME_DIR", test_folder, 1);
}

static inline int remove_test_folder(void **state)
{
    (void)state;
    return rmdir(test_folder);
}

#endif
