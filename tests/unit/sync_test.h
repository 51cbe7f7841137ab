/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of events, semaphores, locks, conditions and barriers share. Domains are put
 * together from the rooms, so that only the test reclaims dead processes.
 */
#ifndef TENON_TESTS_SYNC_TEST_H
#define TENON_TESTS_SYNC_TEST_H

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/harness.h"
#include "object/object.h"
#include "reaper/reaper.h"
#include "store/store.h"

enum { CHILDREN = 4 };

/* In a barrier's word. */
#define ARRIVED_MASK UINT64_C(0xffff00)
#define ARRIVED(n)   ((uint64_t)(n) << 8)

/* What a test's processes count in, outside of the domain. */
struct board {
    _Atomic uint32_t count;
    _Atomic uint32_t stop;
    _Atomic uint32_t firsts;
    uint32_t plain; /* guarded by what is tested */
};

static struct tn_domain *domain;
static struct board *board;

static inline void survive(struct tn_domain *d) { (void)tni_reaper_reclaim_all(d); }

static inline void begin(void)
{
    const struct tni_segment_options options = {.name = "",
                                                .seats = 16,
                                                .blocks = 1024,
                                                .objects = 64,
                                                .tickets = 64,
                                                .quota_bytes = 64 << 20,
                                                .watermark_bytes = 16 << 20};
    struct tni_segment segment;
    TN_CHECK_OK(tni_segment_create(&options, &segment));
    TN_CHECK_OK(tni_process_join(&segment, 0, &domain));
    tni_alloc_init(domain);
    TN_CHECK_OK(tni_ref_init(domain));
    tni_store_init(domain);
    board =
        mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(board != MAP_FAILED);
}

static inline void finish(void)
{
    tni_reaper_leave(domain);
    tni_process_leave(domain);
    tni_process_free(domain);
    munmap(board, sizeof *board);
}

/* Reclaim all processes that are dead now; no live process blocks this for long. */
static inline uint32_t reclaim(void)
{
    int reclaimed;
    while ((reclaimed = tni_reaper_reclaim_all(domain)) == TN_ERR_TIMED_OUT)
        sched_yield();
    assert_true(reclaimed >= 0);
    return (uint32_t)reclaimed;
}

static inline struct tni_object *inside(const void *handle)
{
    return ((const struct tn_object *)handle)->object;
}

/* Wait until an object's word says what the test waits for. */
static inline void await_word(const void *handle, uint64_t mask, uint64_t value)
{
    while ((atomic_load(&inside(handle)->value) & mask) != value)
        sched_yield();
}

static inline void await_sleeper(const void *handle)
{
    while ((atomic_load(&inside(handle)->items) & 1) == 0)
        sched_yield();
}

/* A child that says it is there, and stays until it is killed. */
static inline int stay(void *argument)
{
    tnt_signal(argument);
    for (;;)
        pause();
    return 0;
}

/* A child that does not have the object open reclaims dead processes. */
static inline int reap_as_a_stranger(void *handle)
{
    tn_object_close(handle);
    int reclaimed = tni_reaper_reclaim_all(domain);
    return reclaimed >= 0 ? 0 : 1;
}

#endif
