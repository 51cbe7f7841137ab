/* SPDX-License-Identifier: Apache-2.0 */
/* Values that tests read of a tensor, a domain or a queue. */
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

static inline int32_t tnt_worker_pid(const tn_pool *pool, uint32_t worker)
{
    tn_pool_info info = tnt_pool_info(pool);
    return worker < info.worker_count ? info.worker_pids[worker] : 0;
}

/** The fields of tn_domain_info, of no domain if it is NULL. */
static inline tn_domain_info tnt_domain_info(const tn_domain *domain)
{
    tn_domain_info info = {.struct_size = sizeof info, .name = "", .seat = TN_NO_SEAT};
    (void)!tn_domain_get_info(domain, &info);
    return info;
}
static inline const char *tnt_domain_name(const tn_domain *domain)
{
    return tnt_domain_info(domain).name;
}
static inline uint32_t tnt_seat(const tn_domain *domain)
{
    return tnt_domain_info(domain).seat;
}
static inline uint64_t tnt_member(const tn_domain *domain)
{
    return tnt_domain_info(domain).member;
}

/** The fields of tn_queue_info; 0 if there is no queue. */
static inline tn_queue_info tnt_queue_info(const tn_queue *queue)
{
    tn_queue_info info = {.struct_size = sizeof info};
    (void)!tn_queue_get_info(queue, &info);
    return info;
}
static inline uint32_t tnt_capacity(const tn_queue *queue)
{
    return tnt_queue_info(queue).capacity;
}
static inline uint32_t tnt_peers(const tn_queue *queue, uint32_t roles)
{
    tn_queue_info info = tnt_queue_info(queue);
    return roles == TN_PRODUCER   ? info.other_producers
           : roles == TN_CONSUMER ? info.other_consumers
                                  : info.others;
}

static inline uint32_t tnt_group_count(tn_group *group)
{
    uint32_t count = 0;
    while (tn_group_get(group, count) != NULL)
        count++;
    return count;
}

static inline uint32_t tnt_lod_levels(const tn_tensor *tensor)
{
    uint32_t levels = 0;
    while (tn_tensor_lod(tensor, levels, NULL) != NULL)
        levels++;
    return levels;
}

static inline void tnt_set_strategy(const char *name)
{
    uint32_t strategy = 0;
    TN_CHECK_OK(tn_strategy_parse(name, &strategy));
    TN_CHECK_OK(tn_strategy_set(strategy));
}

#endif
