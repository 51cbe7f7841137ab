/* SPDX-License-Identifier: Apache-2.0 */
/* info: what a scheduler does now, for the program and for the domain that shows it. */
#include "sched/crew.h"

static void fill_resource(const struct tni_pool *pool, double busy, tn_resource_info *ret)
{
    memcpy(ret->name, pool->name, sizeof ret->name);
    ret->total = (double)pool->total / TNI_UNIT;
    ret->free = (double)pool->free / TNI_UNIT;
    ret->busy_ns = busy / TNI_UNIT;
}

static void fill_memories(const struct tni_memories *memories, tn_sched_info *ret)
{
    for (uint32_t m = 0; m < memories->count; m++) {
        const struct tni_memory *its = &memories->all[m];
        ret->moved_bytes += its->arrivals_bytes;
        ret->evicted_bytes += its->evicted_bytes;
        ret->card_bytes += its->pool != NULL ? its->used : 0;
        ret->card_capacity += its->pool != NULL ? its->capacity : 0;
    }
}

void tni_sched_fill_info(const struct tn_sched *sched, tn_sched_info *ret)
{
    const struct tni_plan *plan = &sched->plan;
    uint32_t waiting[TNI_POOLS];
    ret->now_ns = tni_sched_now_ns(sched);
    ret->ready = plan->ready_count;
    ret->threads = sched->thread_count;
    for (const struct tni_place *place = sched->places; place != NULL; place = place->next)
        ret->threads++;
    for (const struct tni_running *r = plan->running.next; r != &plan->running; r = r->next)
        ret->running++;
    ret->tasks = sched->added_count - sched->ended_count;
    ret->ended = sched->ended_count;
    ret->resource_count = plan->pools.count;
    fill_memories(&plan->memories, ret);
    tni_plan_count_waiting(plan, ret->now_ns, waiting);
    for (uint32_t i = 0; i < plan->pools.count; i++) {
        fill_resource(&plan->pools.pools[i], plan->busy[i], &ret->resources[i]);
        ret->resources[i].waiting = waiting[i];
    }
}

int tn_sched_get_info(tn_sched *sched, tn_sched_info *ret_info)
{
    tn_sched_info info = {0};
    int status = tni_sched_check(sched, "sched");
    if (status != 0)
        return status;
    tni_sched_lock(sched);
    tni_sched_fill_info(sched, &info);
    tni_sched_unlock(sched);
    return tni_give_struct("tn_sched_info", &info, sizeof info, ret_info);
}

void tni_sched_show(struct tn_sched *sched)
{
    tn_sched_info info = {0};
    tni_sched_fill_info(sched, &info);
    tni_show_write(sched->shown, &info);
}
