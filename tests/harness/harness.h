/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The harness of tenon's tests. A test program is a file of TN_TEST()s; main() is in here.
 *
 * Each test runs in a forked child, in a process group, a runtime folder and a folder for named
 * memory of its own, with a timeout. At its end the child has no descriptor and no mapping of a
 * domain that it did not have before, no process that it started is left but tenond, which is
 * ended, and then no named memory. cmocka's assertions may be used in the test and in what it
 * forks. Output is TAP.
 *
 *   TN_TEST_TIMEOUT=s   seconds for each test; 0 is none. There is none under a debugger.
 *   TN_TEST_NO_FORK=1   run the tests in this process, for a debugger
 *   TN_TEST_SEED=n      of tnt_random(); the one that was used is printed
 *   TN_TEST_FULL=1      run the sizes that `make test` has no time for
 *   program text ...    run only the tests whose name contains one of these
 */
#ifndef TENON_TESTS_HARNESS_H
#define TENON_TESTS_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include <cmocka.h>

#include <tenon/tenon.h>

typedef void tnt_test_fn(void);

/** A test, named for what it proves. Followed by its body. */
#define TN_TEST(name) TN_TEST_WITHIN(name, 0)
/** The same with a timeout of its own. */
#define TN_TEST_WITHIN(name, seconds)                                                          \
    static void name(void);                                                                    \
    __attribute__((constructor)) static void tnt_register_##name(void)                         \
    {                                                                                          \
        tnt_register(#name, name, seconds);                                                    \
    }                                                                                          \
    static void name(void)

void tnt_register(const char *name, tnt_test_fn *body, unsigned seconds);

/**
 * For threads, where cmocka's assertions do not work: say where, and end the process as failed.
 */
#define TN_CHECK(condition) tnt_check(condition, #condition, __FILE__, __LINE__)
/** As TN_CHECK, for a call that returns a status: 0 or a count. Prints the error detail. */
#define TN_CHECK_OK(call) tnt_ok(call, #call, __FILE__, __LINE__)
void tnt_check(bool holds, const char *text, const char *file, int line);
int tnt_ok(int status, const char *text, const char *file, int line);

/** Skip this test, and say why. */
void tnt_skip(const char *reason) __attribute__((noreturn));

/* ---- processes --------------------------------------------------------------------------- */

/** Runs in a child; its result is the exit code. */
typedef int tnt_child_fn(void *argument);

/** Run `run` in a forked child; a failed assertion in it is printed and exits with 1. */
pid_t tnt_fork(tnt_child_fn *run, void *argument);
/* From now on this system call of this process and its children fails with `error`, an errno.
 */
bool tnt_refuse(int number, int error);
/** Wait for a child's end. @return its status, as of waitpid() */
int tnt_wait(pid_t pid);
/** Wait for it, and fail the test unless it exited with 0. */
void tnt_wait_ok(pid_t pid);
/** SIGKILL it and collect it. */
void tnt_kill(pid_t pid);

/**
 * Run `run` in a child that kills itself at the n-th passing (from 1) of a kill point.
 * @return whether it died there; false: it returned 0 without getting there. All else fails the
 *         test. Skips the test in a build without kill points.
 */
bool tnt_kill_at(const char *point, uint32_t passing, tnt_child_fn *run, void *argument);

/**
 * A signal from one process to another: made before the fork, sent and awaited on either side.
 */
struct tnt_signal {
    int read_fd;
    int write_fd;
};
struct tnt_signal tnt_signal_open(void);
void tnt_signal(struct tnt_signal *signal);
/** Wait for one tnt_signal(); fails the test if none comes. */
void tnt_await(struct tnt_signal *signal);
void tnt_signal_close(struct tnt_signal *signal);

/* ---- the rest ---------------------------------------------------------------------------- */

/** The name of the test that runs. */
const char *tnt_name(void);

/** Whether TN_TEST_FULL is set. A smaller size proves the same of less. */
bool tnt_is_full(void);

/** A line that is printed as a TAP comment, of a test that passes too. */
void tnt_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/** `ms` from now: for the library, and as a number for what is below it. */
tn_deadline tnt_deadline(unsigned ms);
uint64_t tnt_until_ns(unsigned ms);

/** Numbers that the seed decides; each test starts from its own. */
uint64_t tnt_random(void);
/** 0 .. below - 1; below > 0. */
uint64_t tnt_random_below(uint64_t below);

/** The runtime folder of this test. */
const char *tnt_folder(void);
/** Its folder for named memory, in $TENON_SHM_DIR: a file of tenon's that stays fails the test.
 */
const char *tnt_shm_folder(void);

/** How many descriptors this process has open. */
unsigned tnt_descriptor_count(void);
/** How many mappings this process has of tenon's memory objects. */
unsigned tnt_mapping_count(void);

/** An anonymous domain; `options` may be NULL. Closed by the test. */
tn_domain *tnt_domain(const tn_domain_options *options);

/** Fail unless the audit of this domain finds nothing; prints what it finds. */
#define TNT_AUDIT(domain) tnt_audit(domain, __FILE__, __LINE__)
void tnt_audit(tn_domain *domain, const char *file, int line);

#endif
