/* SPDX-License-Identifier: Apache-2.0 */
/* must: what the small examples do about an error: say it, and end. */
#ifndef MUST_H
#define MUST_H

#include <stdio.h>
#include <stdlib.h>
#include <tenon/tenon.h>

static inline int must(int status)
{
    if (status < 0) {
        fprintf(stderr, "%s: %s\n", tn_status_name(status), tn_error_detail());
        exit(1);
    }
    return status;
}

#endif
