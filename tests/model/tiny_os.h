/* SPDX-License-Identifier: Apache-2.0 */
/* tiny_os: see tiny_os.c. */
#ifndef TENON_TESTS_MODEL_TINY_OS_H
#define TENON_TESTS_MODEL_TINY_OS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TINY_DEAD_PID = 50
}; /* this pid and higher ones belong to processes that ended before the model began */

/** @param has_slices whether a death may end a long sleep, as a slice of 100 ms does */
void tiny_os_begin(bool has_slices);
void tiny_heap_begin(void);
/** Whether no live process has this pid. */
bool tiny_os_is_dead(int32_t pid);
/** Note that this process did not have to wait for what it has just done. */
void tiny_os_calm(void);

/* ---- bells, of wait_model.c -------------------------------------------------------------- */

void tiny_bells_begin(unsigned count);
/** Do a poll() of the bell's descriptor, without a time limit. */
void tiny_poll(int fd);

/* ---- fork(), of fork_model.c: the pipe around it, and what a child has from it ------------
 */

/** Whether this process was forked, and has inherited the witness of this number. */
bool tiny_has_inherited(uint32_t process, uint64_t number);

int tiny_pipe_poll(void);
void tiny_pipe_close(int fd);

#endif
