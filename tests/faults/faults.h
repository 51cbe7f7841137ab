/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Failing calls: every public function, with its n-th system call or n-th allocation failing,
 * for n = 1, 2, ... until the function gets by without one.
 *
 * A row says how to call one function. The rows run in a process of their own, the subject,
 * under ptrace: the tracer counts the system calls that the subject makes between two marks and
 * has one of them fail (inject.c, errors.c); allocations fail in the subject (allocate.c).
 * After each failure (driver.c): the status is one that the header documents, with a detail
 * that this call wrote; results are untouched; descriptors, mappings, private memory, children,
 * files, seats, blocks, objects and tickets are as before, and the audit finds nothing
 * (state.c); and the same call without a failure succeeds. A call may also get by: then it must
 * have done all of its work.
 *
 *   TN_FAULTS_DEEP=1   every n, and every errno that a call may give; else the first two
 * errnos, and above MOST_DENSE every n that is about twice the one before. Where a function
 * looks through all processes: above FEW_DENSE, and in depth above MOST_DENSE an eighth more
 */
#ifndef TENON_TESTS_FAULTS_H
#define TENON_TESTS_FAULTS_H

#include <tenon/dlpack.h>

#include <stdint.h>
#include <sys/types.h>

#include "harness/harness.h"
#include "process/process.h"

/* ---- rows: what the files of rows use ---------------------------------------------------- */

struct faults_row {
    const char *function;
    bool never_fails;  /* it has no status to give, so all of its work is done whatever fails */
    bool has_no_calls; /* neither a system call nor an allocation: there is nothing to fail */
    bool depends;      /* on others whether it has any; and so does every wait */
    bool is_cold;      /* each failure in a fresh process, whose first call this is */
    bool forks;        /* failures in the children that it starts, too */
    bool searches;     /* every descriptor of every process: not every n, but some */
    bool ends_files;   /* a file that could not be removed is left for the next search */
    bool only_children;    /* what fails, fails in the children */
    bool keeps_memory;     /* private memory that a failed call may keep for the next one */
    bool makes_files;      /* files of the runtime folder are another process's, not compared */
    int expected;          /* the status when nothing fails, if negative: TN_ERR_TIMED_OUT */
    int spared_call;       /* a system call that does not fail here; the row says why */
    void (*prepare)(void); /* once a process */
    void (*before)(void);  /* before each call: what it takes up */
    int (*call)(void);     /* the function and nothing else; a status, or 0 */
    void (*undo)(void);    /* after a call that succeeded */
    uint64_t (*measure)(void); /* a number that a failure leaves as it is */
    void (*finish)(void);      /* once a process */
};

/** A row, which is a test. */
#define FAULTS(function_, ...) FAULTS_NAMED(function_, function_, __VA_ARGS__)
/** One more row of a function, in another situation. */
#define FAULTS_WHEN(function_, when, ...)                                                      \
    FAULTS_NAMED(function_, function_##_##when, __VA_ARGS__)
#define FAULTS_NAMED(function_, name, ...)                                                     \
    __attribute__((constructor)) static void faults_register_##name(void)                      \
    {                                                                                          \
        faults_register(#function_);                                                           \
    }                                                                                          \
    TN_TEST_WITHIN(name##_survives_every_failing_call, 240)                                    \
    {                                                                                          \
        static const struct faults_row row = {.function = #function_, __VA_ARGS__};            \
        faults_run(&row);                                                                      \
    }
void faults_register(const char *function);
void faults_run(const struct faults_row *row);

/** Where a row's call puts its results. */
enum { FAULTS_OUT_BYTES = 4096 };
extern _Alignas(64) uint8_t faults_out[FAULTS_OUT_BYTES];
#define FAULTS_OUT(type) ((type *)(void *)faults_out)
/** The same for a struct that begins with its size, which the call leaves as it is. */
extern size_t faults_out_stated;
#define FAULTS_OUT_STRUCT(type)                                                                \
    (faults_out_stated = *FAULTS_OUT(size_t) = sizeof(type), FAULTS_OUT(type))

/** The row's domain; made by faults_begin(), or by the row. NULL: there is none. */
extern tn_domain *faults_d;
/** A small domain without tenond. */
void faults_begin(void);
/** The same with tenond, and with a name if it is not NULL. */
void faults_begin_managed(const char *name);
void faults_end(void);
tn_tensor *faults_tensor(int64_t bytes);
tn_tensor *faults_tensor_as(uint32_t strategy, uint32_t flags, int64_t bytes);

/** For the function of a child: from here on nothing of it fails. */
void faults_child_runs(void);

/* ---- the machinery ----------------------------------------------------------------------- */

enum faults_kind {
    FAULTS_CALLS,             /* system calls of the subject */
    FAULTS_ALLOCATIONS,       /* allocations of the subject */
    FAULTS_CHILD_CALLS,       /* system calls of the processes that it starts */
    FAULTS_CHILD_ALLOCATIONS, /* and their allocations */
    FAULTS_KINDS
};

/** Which call is to fail, and how. */
struct faults_plan {
    uint32_t kind;    /* enum faults_kind */
    uint32_t n;       /* from 1 */
    uint32_t variant; /* from 0: which of the errors that the call may give */
};

enum { FAULTS_UNDONE = 16, FAULTS_PATH_BYTES = 256 };

/** Shared by tracer and subject. */
struct faults_control {
    struct faults_plan plan;
    bool is_over;     /* the whole plan */
    bool is_armed;    /* between the marks */
    _Atomic int mark; /* enum faults_mark */
    int32_t subject;  /* pid */
    int spared_call;
    /* The subject is a program: it makes no marks, and is poked by its tracer's children. */
    bool is_program, is_listening;
    _Atomic bool is_idle, has_ended;
    _Atomic int wanted; /* enum faults_mark, once poked */
    /* What happened since the first mark. */
    uint32_t count;    /* calls that could have failed */
    uint32_t variants; /* of the one that was to fail */
    bool was_injected;
    bool lasts;
    int call, error; /* of the first that failed */
    char name[32];   /* of an allocation that failed */
    /* What the failed calls left, through no fault of the callers'. */
    uint32_t unmap_count, unlink_count;
    struct {
        uint64_t address, bytes;
    } unmaps[FAULTS_UNDONE];
    char unlinks[FAULTS_UNDONE][FAULTS_PATH_BYTES];
    /* Sums, for the note. */
    uint32_t injected[FAULTS_KINDS];
    uint32_t errors, fallbacks, wrong;
};
extern struct faults_control *faults_control;

/* errors.c */
struct faults_error {
    int number;
    bool lasts;   /* every later call that may give it fails as well */
    bool is_done; /* the call does its work, and then says that it failed */
};
enum { FAULTS_ERRORS = 6 };
/** @return how many errors this system call of that process may give; 0: it does not fail; -1:
 * not known */
int faults_errors(pid_t pid, long call, const uint64_t arguments[6],
                  struct faults_error *ret_errors);
/** "openat", or its number. Static. */
const char *faults_call_name(long call);

/* inject.c */
enum faults_mark { FAULTS_MARK_BEGIN = 1, FAULTS_MARK_END = 2 };
/** Become the tracer of `subject`, which waits. @return its exit status, as of waitpid() */
int faults_trace(pid_t subject, int release_fd);
void faults_begin_calls(void);
void faults_end_calls(void);
bool faults_is_deep(void);

/* allocate.c */
uint64_t faults_live_allocations(void);
void faults_print_allocations(uint64_t after);
uint64_t faults_allocation_mark(void);

/* state.c */
enum { FAULTS_FDS = 512 };
struct faults_state {
    uint64_t fds[FAULTS_FDS]; /* what each number is; 0: not open */
    uint64_t shared_bytes, private_bytes;
    uint64_t allocations;
    uint64_t children, files;
    uint64_t blocks, objects, tickets, seats, outside_bytes;
    uint64_t measure;
    uint64_t discrepancies;
};
/** @param is_final  with nothing of the row's left, not right after a call that failed */
void faults_state_take(const struct faults_row *row, bool is_final,
                       struct faults_state *ret_state);
/** Prints what differs. @return how much */
unsigned faults_state_compare(const struct faults_state *before,
                              const struct faults_state *now);

#endif
