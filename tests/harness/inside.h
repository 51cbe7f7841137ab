/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations that the files of the harness share. */
#ifndef TENON_TESTS_HARNESS_INSIDE_H
#define TENON_TESTS_HARNESS_INSIDE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* traces.c: what a test left open, mapped or on disk */

enum { TNT_MAX_FDS = 4096 };
struct tnt_traces {
    bool is_open[TNT_MAX_FDS];
    unsigned mappings;
};
void tnt_traces_take(struct tnt_traces *traces);
/* Print each descriptor and mapping that was not there before. @return their number */
unsigned tnt_traces_compare(const struct tnt_traces *before);
/* Make a folder for named memory. @return whether it is there */
enum { TNT_FOLDER_BYTES = 64 };
bool tnt_shm_make(char folder[TNT_FOLDER_BYTES]);
/* Write the names of tenon's files in the folder to fd. @return their number */
unsigned tnt_shm_list(const char *folder, int fd);
void tnt_remove_folder(const char *folder);

/* descendants.c: the processes that a test started */

void tnt_adopt(void);
/* Wait until `pid` ends or the deadline passes. @return whether it ended */
bool tnt_collect(pid_t pid, uint64_t deadline_ns, int *ret_status);
void tnt_describe_group(pid_t group, int fd);
/*
 * Kill every process that is left, and write each one but tenond to fd. @return the number of
 * those that a test must not leave
 */
unsigned tnt_end_descendants(pid_t group, int fd);

void tnt_seed(uint64_t seed);
uint64_t tnt_now_ns(void);

#endif
