/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOGWILD_FAILURE_H
#define HOGWILD_FAILURE_H

/**
 * Say what went wrong and end this process with code 1. The main process's children end with
 * it.
 */
void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/**
 * Return the result of a tenon call if it is not an error; else fail, in the library's words.
 */
int must(int status, const char *what);

/** Say that this process is a worker: fail() then leaves its words for the main process. */
void failure_in_worker(void);

#endif
