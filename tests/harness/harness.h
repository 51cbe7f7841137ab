/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The harness of the tests. A test program is a file of TN_TEST()s; the harness has main().
 *
 * Each test runs in a forked child with a timeout. The child has its own process group, its
 * own runtime folder and its own folder for named memory. The harness fails a test that leaves
 * an open descriptor, a mapping of a domain, a process other than tenond, or named memory; it
 * ends tenond itself. A test and the processes that it forks may use the assertions of cmocka.
 * The output is TAP.
 *
 *   TN_TEST_TIMEOUT=s   seconds for each test; 0 is none. There is none under a debugger.
 *   TN_TEST_NO_FORK=1   run the tests in this process, for a debugger
 *   TN_TEST_SEED=n      of tnt_random(); the one that was used is printed
 *   TN_TEST_FULL=1      run the sizes that `make test` has no time for
 *   TENON_TEST_REAL_GPU=1  a GPU's driver is in use: what it keeps open is not a leak
 *   program text ...    run only the tests whose name contains one of these; !text: not those
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

/** Define a test. The name is the statement that it checks; the body follows. */
#define TN_TEST(name) TN_TEST_WITHIN(name, 0)
/** Define a test with its own timeout. */
#define TN_TEST_WITHIN(name, seconds)                                                          \
    static void name(void);                                                                    \
    __attribute__((constructor)) static void tnt_register_##name(void)                         \
    {                                                                                          \
        tnt_register(#name, name, seconds);                                                    \
    }                                                                                          \
    static void name(void)

void tnt_register(const char *name, tnt_test_fn *body, unsigned seconds);

/**
 * A check for any thread; cmocka's assertions work only in the main one. If the condition does
 * not hold, print the place and exit as failed.
 */
#define TN_CHECK(condition) tnt_check(condition, #condition, __FILE__, __LINE__)
/** As TN_CHECK, for a call that returns a status: 0 or a count. Prints the error detail. */
#define TN_CHECK_OK(call) tnt_ok(call, #call, __FILE__, __LINE__)
void tnt_check(bool holds, const char *text, const char *file, int line);
int tnt_ok(int status, const char *text, const char *file, int line);

/** Skip this test for a reason, which is printed. */
void tnt_skip(const char *reason) __attribute__((noreturn));

/* ---- processes --------------------------------------------------------------------------- */

/** A function that runs in a child. Its result is the exit code. */
typedef int tnt_child_fn(void *argument);

/** Run `run` in a forked child; a failed assertion in it is printed and exits with 1. */
pid_t tnt_fork(tnt_child_fn *run, void *argument);
/** What such a child does after `run` has returned; NULL: nothing more. */
extern void (*tnt_at_child_end)(void);
/*
 * From now on, the kernel refuses this system call to this process and its children: it fails
 * with `error`, an errno.
 */
bool tnt_refuse(int number, int error);
/** Wait until a child ends. @return its status, as of waitpid() */
int tnt_wait(pid_t pid);
/** Wait until a child ends, and fail the test unless it exited with 0. */
void tnt_wait_ok(pid_t pid);
/** Send SIGKILL to a child and collect it. */
void tnt_kill(pid_t pid);

/**
 * Run `run` in a child that kills itself at the n-th passing (from 1) of a kill point.
 * @return whether the child died there; false: it returned 0 and did not reach the kill point.
 *         Any other end fails the test. A build without kill points skips the test.
 */
bool tnt_kill_at(const char *point, uint32_t passing, tnt_child_fn *run, void *argument);

/**
 * An event between two processes. It is made before the fork; each side may send it or wait
 * for it.
 */
struct tnt_signal {
    int read_fd;
    int write_fd;
};
struct tnt_signal tnt_signal_open(void);
void tnt_signal(struct tnt_signal *signal);
/** Wait for one tnt_signal(), and fail the test if none comes. */
void tnt_await(struct tnt_signal *signal);
void tnt_signal_close(struct tnt_signal *signal);

/* ---- the rest ---------------------------------------------------------------------------- */

/** The name of the test that runs. */
const char *tnt_name(void);

/** Whether TN_TEST_FULL is set. Without it, a test checks the same with smaller numbers. */
bool tnt_is_full(void);

/** Print a line as a TAP comment, also if the test passes. */
void tnt_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/**
 * The time `ms` from now: as a deadline of the API, and in nanoseconds for the rooms below it.
 */
tn_deadline tnt_deadline(unsigned ms);
uint64_t tnt_until_ns(unsigned ms);

/** A random number. The seed and the name of the test decide the sequence. */
uint64_t tnt_random(void);
/** A random number from 0 to below - 1; below > 0. */
uint64_t tnt_random_below(uint64_t below);

/** The runtime folder of this test. */
const char *tnt_folder(void);
/**
 * The folder for named memory of this test, in $TENON_SHM_DIR. The test fails if a file of
 * tenon stays there.
 */
const char *tnt_shm_folder(void);

/** How many descriptors this process has open. */
unsigned tnt_descriptor_count(void);
/** How many mappings this process has of tenon's memory objects. */
unsigned tnt_mapping_count(void);

/** Make an anonymous domain. The test closes it. `options` may be NULL. */
tn_domain *tnt_domain(const tn_domain_options *options);

/**
 * Audit this domain. Print each problem that the audit finds, and fail the test if there is
 * one.
 */
#define TNT_AUDIT(domain) tnt_audit(domain, __FILE__, __LINE__)
void tnt_audit(tn_domain *domain, const char *file, int line);

#endif
