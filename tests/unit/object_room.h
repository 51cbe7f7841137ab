/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of the rooms object and queue share: a domain without the rooms above, in
 * which nothing but the test reclaims a dead seat.
 */
#ifndef TENON_TESTS_UNIT_OBJECT_ROOM_H
#define TENON_TESTS_UNIT_OBJECT_ROOM_H

#include <string.h>
#include <sys/mman.h>

#include "harness/harness.h"
#include "object/object.h"

/* What a test and its children write, outside of the domain. */
struct board {
    uint32_t seat; /* of the last child of in_child() */
    uint32_t closes, ends;
};

static struct tn_domain *domain;
static struct board *board;

/* The test calls the init function of its room next. */
static inline void join(uint32_t objects)
{
    const struct tni_segment_options options = {.name = "",
                                                .seats = 8,
                                                .blocks = 256,
                                                .objects = objects,
                                                .tickets = 8,
                                                .quota_bytes = 16 << 20,
                                                .watermark_bytes = 16 << 20};
    struct tni_segment segment;
    TN_CHECK_OK(tni_segment_create(&options, &segment));
    TN_CHECK_OK(tni_process_join(&segment, 0, &domain));
    tni_alloc_init(domain);
    TN_CHECK_OK(tni_ref_init(domain));
    board =
        mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(board != MAP_FAILED);
}

static inline void finish(void)
{
    enum { MOST = 256 };
    struct tn_object *left[MOST], **on = tni_object_part(domain)->handles_on;
    uint32_t count = 0;
    for (uint32_t i = 0; on != NULL && i < domain->segment.geometry.objects; i++)
        for (struct tn_object *h = on[i]; h != NULL && count < MOST; h = h->next_same)
            left[count++] = h;
    tni_process_begin_leave(domain);
    tni_object_fini(domain);
    tni_ref_close(domain);
    tni_process_leave(domain);
    while (count > 0)
        tn_object_close(left[--count]);
    tni_process_unkeep(domain);
    munmap(board, sizeof *board);
}

static inline uint32_t state_of(const struct tni_object *object)
{
    return tni_object_state(atomic_load(&object->word));
}

/* A call in a child, which ends without leaving the domain: a dead seat, board->seat. */
struct in_child {
    tnt_child_fn *run;
    void *argument;
};

static inline int run_in_child(void *argument)
{
    const struct in_child *call = argument;
    board->seat = domain->seat;
    return call->run(call->argument);
}

static inline void die_after(tnt_child_fn *run, void *argument)
{
    struct in_child call = {run, argument};
    tnt_wait_ok(tnt_fork(run_in_child, &call));
}

static inline void die_at(const char *point, tnt_child_fn *run, void *argument)
{
    struct in_child call = {run, argument};
    assert_true(tnt_kill_at(point, 1, run_in_child, &call));
}

#endif
