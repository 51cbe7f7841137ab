/* SPDX-License-Identifier: Apache-2.0 */
/* Callbacks for the functions that list what a domain has. These ignore each entry. */
#ifndef TENON_TESTS_IGNORE_H
#define TENON_TESTS_IGNORE_H

#include <tenon/tenon.h>

#define TNT_IGNORE(noun)                                                                       \
    static inline int ignore_##noun(const tn_##noun##_entry *info, void *context)              \
    {                                                                                          \
        (void)info, (void)context;                                                             \
        return 0;                                                                              \
    }

TNT_IGNORE(seat)
TNT_IGNORE(block)
TNT_IGNORE(object)
TNT_IGNORE(ticket)
TNT_IGNORE(scheduler)

#endif
