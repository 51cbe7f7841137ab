/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bundle: the descriptors of one block, in their order. They come and go in one message, so a
 * process has all of them or none. A bundle of one descriptor, as nearly all are, has no memory
 * of its own.
 */
#ifndef TENOND_BUNDLE_H
#define TENOND_BUNDLE_H

#include <stdlib.h>
#include <string.h>

#include "reaper/reaper.h"

struct bundle {
    uint32_t count; /* 0: none */
    union {
        int one;   /* if count is 1 */
        int *many; /* [count], owned, if count is more */
    };
};

static inline const int *bundle_fds(const struct bundle *bundle)
{
    return bundle->count > 1 ? bundle->many : &bundle->one;
}

static inline void bundle_close_fds(const int *fds, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        tni_os_close(fds[i]);
}

/** The descriptors fds [count] are consumed on success. TN_ERR_NO_MEMORY. */
static inline int bundle_make(const int *fds, uint32_t count, struct bundle *ret_bundle)
{
    struct bundle made = {.count = count, .one = count == 1 ? fds[0] : -1};
    if (count > 1) {
        made.many = reallocarray(NULL, count, sizeof *fds);
        if (made.many == NULL)
            return tni_fail(TN_ERR_NO_MEMORY, "no private memory for %u descriptors", count);
        memcpy(made.many, fds, count * sizeof *fds);
    }
    *ret_bundle = made;
    return 0;
}

/** Close the descriptors. */
static inline void bundle_close(struct bundle *bundle)
{
    bundle_close_fds(bundle_fds(bundle), bundle->count);
    if (bundle->count > 1)
        free(bundle->many);
    *bundle = (struct bundle){0};
}

#endif
