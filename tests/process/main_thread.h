/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of processes whose main thread has ended. */
#ifndef TENON_TESTS_MAIN_THREAD_H
#define TENON_TESTS_MAIN_THREAD_H

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "harness/harness.h"

/* Wait until the main thread of this process has ended. */
static inline void await_end_of_main_thread(void)
{
    char path[64], line[256] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)getpid());
    for (uint64_t deadline = tnt_until_ns(10000); strstr(line, ") Z") == NULL;) {
        FILE *file = fopen(path, "r");
        TN_CHECK(file != NULL && fgets(line, sizeof line, file) != NULL);
        fclose(file);
        TN_CHECK(tnt_until_ns(0) < deadline);
        sched_yield();
    }
}

#endif
