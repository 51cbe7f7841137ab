/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of what holds with each strategy: they run once for each, in a domain with a
 * queue.
 */
#ifndef TENON_TESTS_STRATEGIES_H
#define TENON_TESTS_STRATEGIES_H

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/harness.h"
#include "reaper/reaper.h"

enum { LONG_MS = 20000 };

/**
 * Define three tests, name_by_arena and so on. The body follows; its parameter is the name of
 * the strategy.
 */
#define EACH_STRATEGY(name)                                                                    \
    static void name(const char *strategy);                                                    \
    TN_TEST(name##_by_arena) { name("arena"); }                                                \
    TN_TEST(name##_by_file_descriptor) { name("file_descriptor"); }                            \
    TN_TEST(name##_by_file_system) { name("file_system"); }                                    \
    static void name(const char *strategy)

static tn_domain *d;
static tn_queue *q;

/*
 * A process keeps one socket for ringing bells. It is made here, before a test counts
 * descriptors.
 */
__attribute__((constructor)) static void ring_once(void) { tni_os_bell_ring(1); }

/** How many files of tenon are in the folder for named memory. */
static inline unsigned shm_files(void)
{
    unsigned count = 0;
    DIR *list = opendir(getenv("TENON_SHM_DIR"));
    for (struct dirent *entry; list != NULL && (entry = readdir(list)) != NULL;)
        count += strncmp(entry->d_name, "tenon-", 6) == 0;
    if (list != NULL)
        closedir(list);
    return count;
}

/* ---- domain, queue, tensors -------------------------------------------------------------- */

static inline void begin_with(const char *strategy, const char *name,
                              const tn_domain_options *options, uint32_t capacity)
{
    tn_queue_options queue = {.struct_size = sizeof queue, .capacity = capacity};
    tnt_set_strategy(strategy);
    TN_CHECK_OK(tn_domain_open(name, options, TN_OPEN_NEW, &d));
    TN_CHECK_OK(tn_queue_open(d, name != NULL ? "work" : NULL, &queue, TN_OPEN_NEW, &q));
}

/**
 * A domain without tenond: a process that waits or calls tn_domain_reap() reclaims dead
 * processes.
 */
static inline void begin(const char *strategy)
{
    tn_domain_options options = {
        .struct_size = sizeof options, .quota_bytes = 256 << 20, .flags = TN_DOMAIN_NO_MANAGER};
    begin_with(strategy, NULL, &options, 256);
}

static inline void begin_with_tenond(const char *strategy)
{
    tn_domain_options options = {.struct_size = sizeof options, .quota_bytes = 256 << 20};
    begin_with(strategy, NULL, &options, 256);
}

static inline void begin_with_quota(const char *strategy, uint64_t quota_bytes)
{
    tn_domain_options options = {.struct_size = sizeof options, .quota_bytes = quota_bytes};
    begin_with(strategy, NULL, &options, 512);
}

static inline int32_t tenond_pid(void)
{
    uint64_t who = atomic_load(&d->segment.header->manager);
    return who == 0 ? 0 : atomic_load(&tni_seat_at(&d->segment, tni_who_seat(who))->pid);
}

/** Kill tenond, and wait until it has ended. */
static inline void kill_tenond(void)
{
    int fd = -1;
    int32_t pid = tenond_pid();
    if (pid == 0 || tni_os_process_open(pid, &fd) != 0)
        return;
    kill(pid, SIGKILL);
    TN_CHECK_OK(tni_os_poll(&fd, 1, tnt_until_ns(LONG_MS)));
    tni_os_close(fd);
}

/* tenond may be reclaiming at this moment. Each reclaimed seat wakes the waiters for memory. */
static inline void await_reclaimed(void)
{
    uint64_t deadline_ns = tnt_until_ns(LONG_MS);
    for (uint32_t i = 0; i < d->segment.geometry.seats; i++) {
        const _Atomic uint64_t *word = &tni_seat_at(&d->segment, i)->word;
        while (tni_seat_state(atomic_load(word)) == TNI_SEAT_REAPING) {
            uint32_t seen = tni_alloc_arm(d);
            if (tni_seat_state(atomic_load(word)) == TNI_SEAT_REAPING)
                TN_CHECK_OK(tni_os_wait(&d->segment.header->memory_wait, seen, deadline_ns));
        }
    }
}

/** Check that nothing is left: no reference, no record, no file. */
static inline void finish(void)
{
    q = tn_object_close(q);
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    await_reclaimed();
    TNT_AUDIT(d);
    assert_int_equal(shm_files(), 0);
    d = tn_domain_close(d);
}

/**
 * Make a float32 tensor [count] of first, first + 1, ... The call waits for memory, since the
 * request of another process, which will be refused, may use some of the quota for a moment.
 */
static inline tn_tensor *numbers(int64_t count, float first)
{
    tn_tensor *t;
    TN_CHECK_OK(
        tn_tensor_create(d, TN_FLOAT32, 1, &count,
                         TN_OPTIONS(tn_tensor_options, .deadline = tnt_deadline(LONG_MS)), &t));
    for (int64_t i = 0; i < count; i++)
        ((float *)tn_tensor_data(t))[i] = first + (float)i;
    return t;
}

static inline float number_at(const tn_tensor *t, int64_t index)
{
    return ((const float *)tn_tensor_data(t))[index];
}

static inline bool is_number(const tn_tensor *t, int64_t index, float value)
{
    float is = number_at(t, index);
    return memcmp(&is, &value, sizeof is) == 0;
}

static inline void push(tn_tensor *t)
{
    TN_CHECK_OK(tn_queue_push_tensor(q, t, TN_PUSH_MOVE, tnt_deadline(LONG_MS)));
}

static inline void push_kept(tn_tensor *t)
{
    TN_CHECK_OK(tn_queue_push_tensor(q, t, 0, tnt_deadline(LONG_MS)));
}

static inline tn_tensor *pop_from(tn_queue *queue)
{
    tn_tensor *t = NULL;
    TN_CHECK_OK(tn_queue_pop_tensor(queue, tnt_deadline(LONG_MS), &t));
    return t;
}

static inline tn_tensor *pop(void) { return pop_from(q); }

static inline int hang(void)
{
    for (;;)
        pause();
    return 0;
}

#endif
