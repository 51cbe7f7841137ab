/* SPDX-License-Identifier: Apache-2.0 */
/* What the harness's own files share. */
#ifndef TENON_TESTS_HARNESS_INSIDE_H
#define TENON_TESTS_HARNESS_INSIDE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* traces.c: what a test leaves behind */

enum { TNT_MAX_FDS = 4096 };
struct tnt_traces {
    bool is_open[TNT_MAX_FDS];
    unsigned mappings;
};
void tnt_traces_take(struct tnt_traces *traces);
/* Prints what is there now and was not then. @return how much */
unsigned tnt_traces_compare(const struct tnt_traces *before);
/* Make a folder for named memory. @return whether it is there */
enum { TNT_FOLDER_BYTES = 64 };
bool tnt_shm_make(char folder[TNT_FOLDER_BYTES]);
/* Writes what it has of tenon's to fd. @return how many */
unsigned tnt_shm_list(const char *folder, int fd);
void tnt_remove_folder(const char *folder);

/* descendants.c: the processes that a test started */

void tnt_adopt(void);
/* Wait until `pid` ends, or the deadline. @return whether it ended */
bool tnt_collect(pid_t pid, uint64_t deadline_ns, int *ret_status);
void tnt_describe_group(pid_t group, int fd);
/*
 * End all that is left; tenond may be, all else is written to fd. @return how many should not
 * be
 */
unsigned tnt_end_descendants(pid_t group, int fd);

void tnt_seed(uint64_t seed);
uint64_t tnt_now_ns(void);

#endif
