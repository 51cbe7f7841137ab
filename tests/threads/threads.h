/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several members in one process, and threads that work for them.
 *
 * All members use one mapping of the domain, so that a thread of one and a thread of another
 * touch the same addresses, as ThreadSanitizer must see them. To the domain they are processes:
 * each has a seat, a row and announces of its own. They differ from processes in that none can
 * die alone; for that, tests fork.
 */
#ifndef TENON_TESTS_THREADS_H
#define TENON_TESTS_THREADS_H

#include "harness/harness.h"
#include "reaper/reaper.h"
#include "store/store.h"

enum { MEMBERS = 3, MAX_WORKERS = 12, MS = 1000 * 1000 };

extern struct tn_domain *members[MEMBERS];

/** Make the domain, with `quota_bytes` of payload. */
void world_begin(uint64_t quota_bytes);
/** Reclaim dead processes, audit, check that no block is left, and take the world down. */
void world_end(void);

/** A thread at work: for a member, with random numbers of its own. */
struct worker {
    unsigned number;
    struct tn_domain *domain; /* member number % MEMBERS */
    uint64_t random;
    uint64_t rounds; /* how often it did its work */
};
uint64_t worker_random(struct worker *worker, uint64_t below);

/** One round of work. It may wait, but not for ever. */
typedef void work_fn(struct worker *worker);
struct crew {
    work_fn *work;
    unsigned count;
};
/**
 * Run the workers of `crews` (the last has no work) at the same time, each round after round,
 * for about TN_THREADS_MS (by default a quarter of a second) and one round at least.
 * @return the rounds of all
 */
uint64_t run_crews(const struct crew *crews);

/** A deadline that a round may wait for. */
static inline tn_deadline soon(void) { return tnt_deadline(5); }

/** Whether a call did its work; false: it met what it may meet when others are at work. */
#define DID(call, ...)                                                                         \
    worker_did(call, (const int[]){__VA_ARGS__, 0}, #call, __FILE__, __LINE__)
bool worker_did(int status, const int *allowed, const char *text, const char *file, int line);

#endif
