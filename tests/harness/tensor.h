/* SPDX-License-Identifier: Apache-2.0 */
/* What a test asks of a tensor. */
#ifndef TNT_TENSOR_H
#define TNT_TENSOR_H

#include <tenon/pool.h>
#include <tenon/share.h>

#include "harness/harness.h"

static inline tn_tensor_info tnt_info(const tn_tensor *tensor)
{
    tn_tensor_info info = {.struct_size = sizeof info};
    (void)!tn_tensor_get_info(tensor, &info);
    return info;
}

static inline tn_pool_info tnt_pool_info(const tn_pool *pool)
{
    tn_pool_info info = {.struct_size = sizeof info};
    (void)!tn_pool_get_info(pool, &info);
    return info;
}

static inline void tnt_set_strategy(const char *name)
{
    uint32_t strategy = 0;
    TN_CHECK_OK(tn_strategy_parse(name, &strategy));
    TN_CHECK_OK(tn_strategy_set(strategy));
}

#endif
