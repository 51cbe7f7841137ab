/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Included before everything else in a coverage build (-Db_coverage=true). exit() writes the
 * counters; with this header _exit() and a kill point write them, too. A process that another
 * one kills loses its counters.
 */
#ifndef TENON_TESTS_COVERAGE_AT_END_H
#define TENON_TESTS_COVERAGE_AT_END_H

#include <unistd.h>

void __gcov_dump(void);
void __gcov_reset(void);

/* Reset: else a child of vfork(), which shares our memory, would be the last to write. */
static inline void tnc_write_counters(void)
{
    __gcov_dump();
    __gcov_reset();
}

__attribute__((unused, noreturn)) static inline void tnc_exit(int code)
{
    tnc_write_counters();
    _exit(code);
}

#define _exit(code) tnc_exit(code)
/* Called at a kill point. */
#define TN_AT_DEATH() tnc_write_counters()

#endif
