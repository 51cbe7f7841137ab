/* SPDX-License-Identifier: Apache-2.0 */
/* fake_universe make|end PATH: make a universe of the fake driver, or end it and print
 * complaints. */
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "fakecuda/fake.h"

/* tenond closes the last descriptors of a domain a moment after the program has ended. */
static void await_end(void)
{
    enum { MOST_S = 10 };
    time_t end = time(NULL) + MOST_S;
    while (fake_mem_used(0) != 0 && time(NULL) < end)
        sched_yield();
}

int main(int argc, char **argv)
{
    char report[8192];
    const struct fake_options options = {0};
    if (argc != 3)
        return 2;
    if (strcmp(argv[1], "make") == 0)
        return fake_make(argv[2], &options) != 0;
    await_end();
    int complaints = fake_end(argv[2], report, sizeof report);
    printf("%s", report);
    return complaints != 0;
}
