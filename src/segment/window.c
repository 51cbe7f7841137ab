/* SPDX-License-Identifier: Apache-2.0 */
/* window: see window.h. The card of the room is in segment.c. */
#include "segment/window.h"

#include <stdlib.h>

#include "os/os.h"

enum { WINDOW_BYTES = 2 << 20, CLASS_WINDOWS = 46 };

/* Window 0 maps the first unit of the class, window k the units from 2^(k-1) to 2^k - 1. */
struct class_windows {
    uint8_t *at[CLASS_WINDOWS];
};
struct tni_windows {
    void (*fail)(void);
    struct class_windows *of[TNI_CLASSES]; /* NULL: no window of the class was mapped */
};

/* A unit is a whole number of spans, and so of blocks and of pages (I3). */
static uint64_t unit_bytes(const struct tni_class_geometry *c)
{
    uint64_t span_bytes = c->span * c->size_bytes;
    return (WINDOW_BYTES + span_bytes - 1) / span_bytes * span_bytes;
}

static uint64_t class_bytes(const struct tni_class_geometry *c)
{
    return tni_align_up(c->capacity, c->span) * c->size_bytes;
}

/* Find the window that has byte `at` of a class; it has the bytes from *ret_from to *ret_to. */
static uint32_t window_of(const struct tni_class_geometry *c, uint64_t at, uint64_t *ret_from,
                          uint64_t *ret_to)
{
    uint64_t unit = unit_bytes(c), units = at / unit;
    uint32_t k = units == 0 ? 0 : 64 - (uint32_t)__builtin_clzll(units);
    *ret_from = k == 0 ? 0 : unit << (k - 1);
    *ret_to = TNI_MIN(unit << k, class_bytes(c));
    return k;
}

static int map_window(const struct tni_segment *s, uint32_t class_id, uint32_t k, uint64_t from,
                      uint64_t to)
{
    struct class_windows **windows = &s->windows->of[class_id];
    void *address;
    if (*windows == NULL && (*windows = calloc(1, sizeof **windows)) == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "no private memory for windows of an arena");
    uint64_t offset = s->geometry.classes[class_id].arena_off + from;
    int status = tni_os_map_part(s->arena_fd, offset, to - from, &address);
    if (status != 0)
        return status;
    tni_os_advise_no_dump(address, to - from);
    (*windows)->at[k] = address;
    TNI_KILL_POINT("tenond_window_mapped");
    return 0;
}

void *tni_segment_reach(const struct tni_segment *s, tni_block block)
{
    uint32_t class_id = tni_block_class(block);
    const struct tni_class_geometry *c = &s->geometry.classes[class_id];
    uint64_t at = tni_block_offset(&s->geometry, block) - c->arena_off, from, to;
    uint32_t k = window_of(c, at, &from, &to);
    const struct class_windows *windows = s->windows->of[class_id];
    if ((windows == NULL || windows->at[k] == NULL) &&
        map_window(s, class_id, k, from, to) != 0)
        s->windows->fail();
    return s->windows->of[class_id]->at[k] + (at - from);
}

/* An address outside every mapping. Code that uses it instead of windows gets SIGSEGV. */
static uint8_t *invalid_arena(void) { return (uint8_t *)(UINTPTR_MAX / 2 + 1); }

int tni_window_map(struct tni_segment *s, void (*fail)(void))
{
    void *control;
    struct tni_windows *windows = calloc(1, sizeof *windows);
    if (windows == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "no private memory for windows of an arena");
    int status = tni_os_map(s->control_fd, s->geometry.control_bytes, s->geometry.page_bytes,
                            false, &control);
    if (status != 0) {
        free(windows);
        return status;
    }
    windows->fail = fail;
    s->header = control;
    s->arena = invalid_arena();
    s->windows = windows;
    return 0;
}

void tni_window_unmap(struct tni_segment *s)
{
    for (uint32_t id = 1; s->windows != NULL && id < s->geometry.class_count; id++) {
        struct class_windows *windows = s->windows->of[id];
        uint64_t from = 0, to = 0;
        for (uint32_t k = 0; windows != NULL && to < class_bytes(&s->geometry.classes[id]);
             k++) {
            window_of(&s->geometry.classes[id], to, &from, &to);
            tni_os_unmap(windows->at[k], to - from);
        }
        free(windows);
    }
    free(s->windows);
}
