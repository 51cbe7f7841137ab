/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched: runs tasks of graphs, in threads of this process or in virtual time.
 *
 * Nouns: scheduler, kind (here); graph (graph.c); task, call, slots of a task (task.c); worker
 * (worker.c); turn (crew.c); place (place.c); watch (watch.c); trace (trace.c); event
 * (virtual.c).
 *
 * I1  One lock protects the plan, the workers and the graphs. Functions of the program (tasks,
 *     trace, hooks) are called without it.
 * I2  A thread touches a graph outside of its own wait only while tasks of it are not counted
 *     as ended. So a graph may be freed once all are.
 * I3  If a ready task can begin, a worker is awake, or is being started, unless the most
 *     threads run.
 * I4  There may be a thread for each CPU, for each of THREADS and for each task that gave back
 *     its CPU, so a task that has got its resources never waits for a thread.
 *
 * Callers: programs, from any thread. A forked child has no threads of the scheduler: every
 * call but close fails there. A death leaves what show.c says.
 */
#include <stdlib.h>

#include "sched/crew.h"

static int read_options(const tn_sched_options *options, tn_sched_options *ret)
{
    memset(ret, 0, sizeof *ret);
    int status = tni_take_options("tn_sched_options", options, sizeof *ret, ret);
    if (status != 0)
        return status;
    if ((ret->flags & ~(uint32_t)(TN_SCHED_VIRTUAL | TN_SCHED_TRACE)) != 0)
        return tni_fail(TN_ERR_INVALID,
                        "tn_sched_options.flags is %#x: TN_SCHED_VIRTUAL and TN_SCHED_TRACE "
                        "are known",
                        ret->flags);
    if (ret->reserved != 0)
        return tni_fail(TN_ERR_INVALID, "tn_sched_options.reserved is %u, not 0",
                        ret->reserved);
    if (ret->domain != NULL && (ret->flags & TN_SCHED_VIRTUAL) != 0)
        return tni_fail_plain(TN_ERR_INVALID,
                              "tn_sched_options.domain is set with TN_SCHED_VIRTUAL: no domain "
                              "shows virtual time");
    if (ret->resources == NULL)
        ret->resources = tni_os_environment("TENON_RESOURCES");
    return 0;
}

static int begin_show(struct tn_sched *sched)
{
    tn_sched_info info = {0};
    tni_sched_fill_info(sched, &info);
    return tni_show_begin(sched->options.domain, sched->options.name, &info, &sched->shown);
}

static int begin_disk(struct tn_sched *sched)
{
    if (tni_sched_is_virtual(sched))
        return tni_fail_plain(TN_ERR_INVALID,
                              "tn_sched_options.spill is set with TN_SCHED_VIRTUAL: nothing is "
                              "copied in virtual time");
    if (!sched->plan.memories.has_disk)
        return tni_fail_plain(TN_ERR_INVALID,
                              "tn_sched_options.spill is set, and memories does not say how "
                              "many bytes the HOST has, so it would never be full");
    return tni_disk_create(sched->options.spill, &sched->disk);
}

static int init_sched(struct tn_sched *sched)
{
    const struct tni_plan_options plan = {.resources = sched->options.resources,
                                          .cpu_count = tni_os_cpu_count(),
                                          .order = sched->options.order,
                                          .memories = sched->options.memories,
                                          .links = sched->options.links,
                                          .skips = sched->options.skips,
                                          .skew = sched->options.skew};
    sched->pid = tni_os_pid();
    sched->began_ns = tni_sched_now_ns(sched);
    int status = tni_plan_init(&sched->plan, &plan);
    if (status != 0)
        return status;
    status = tni_devices_begin(sched);
    if (status == 0 && sched->options.spill != NULL)
        status = begin_disk(sched);
    if (status == 0 && (sched->options.flags & TN_SCHED_TRACE) != 0)
        status = tni_trace_create(&sched->trace);
    if (status == 0 && sched->options.domain != NULL)
        status = begin_show(sched);
    if (status == 0)
        status = tni_os_cond_init(&sched->data_changed);
    bool has_cond = status == 0;
    if (status == 0)
        status = tni_os_mutex_init(&sched->lock);
    if (status != 0) {
        if (has_cond)
            tni_os_cond_fini(&sched->data_changed);
        tni_show_end(sched->shown, true);
        tni_trace_free(sched->trace, true);
        tni_disk_free(sched->disk, true);
        tni_devices_end(sched);
        tni_plan_fini(&sched->plan);
        return status;
    }
    const struct tni_pool *pools = sched->plan.pools.pools;
    uint64_t most = (pools[TNI_CPU].total + pools[TNI_THREADS].total) / TNI_UNIT;
    sched->thread_most = (uint32_t)TNI_MIN(most, UINT32_MAX);
    sched->options.resources = sched->options.name = NULL;
    sched->options.memories = sched->options.links = sched->options.devices = NULL;
    sched->options.spill = NULL;
    return 0;
}

int tn_sched_create(const tn_sched_options *options, tn_sched **ret_sched)
{
    tn_sched_options o;
    if (ret_sched == NULL)
        return tni_fail_null("ret_sched");
    int status = read_options(options, &o);
    if (status != 0)
        return status;
    struct tn_sched *sched = calloc(1, sizeof *sched);
    if (sched == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "there is no memory for a scheduler");
    sched->options = o;
    status = init_sched(sched);
    if (status != 0) {
        free(sched);
        return status;
    }
    *ret_sched = sched;
    return 0;
}

tn_sched *tn_sched_close(tn_sched *sched)
{
    if (sched == NULL)
        return NULL;
    while (sched->graphs != NULL)
        tn_graph_close(sched->graphs);
    while (sched->data != NULL)
        tn_data_close(sched->data);
    tni_watcher_end(sched);
    tni_places_end(sched);
    tni_crew_end(sched);
    if (sched->pid == tni_os_pid()) {
        tni_os_cond_fini(&sched->data_changed);
        tni_os_mutex_fini(&sched->lock);
    }
    for (uint32_t i = 0; i < sched->event_count; i++)
        free(sched->events[i].running);
    free(sched->events);
    tni_trace_free(sched->trace, sched->pid == tni_os_pid());
    tni_show_end(sched->shown, sched->pid == tni_os_pid());
    tni_disk_free(sched->disk, sched->pid == tni_os_pid());
    tni_devices_end(sched);
    tni_plan_fini(&sched->plan);
    free(sched);
    return NULL;
}

/* ---- kinds ------------------------------------------------------------------------------- */

static int take_variants(const struct tn_sched *sched, const tn_kind_options *given,
                         struct tni_kind_options *ret)
{
    if (given->variants == NULL)
        return tni_fail_null("tn_kind_options.variants");
    if (given->variant_count == 0 || given->variant_count > TNI_VARIANTS)
        return tni_fail(TN_ERR_INVALID, "tn_kind_options.variant_count is %u: it is 1 to %d",
                        given->variant_count, TNI_VARIANTS);
    ret->variant_count = given->variant_count;
    for (uint32_t i = 0; i < given->variant_count; i++) {
        const tn_variant *variant = &given->variants[i];
        if (variant->run == NULL && !tni_sched_is_virtual(sched))
            return tni_fail(TN_ERR_INVALID, "variants[%u] has no function", i);
        if (variant->run_ns > TN_RUN_NS_MAX)
            return tni_fail(TN_ERR_INVALID, "run_ns of variants[%u] is more than TN_RUN_NS_MAX",
                            i);
        ret->run[i] = (void (*)(void))variant->run;
        ret->requests[i] = variant->request;
        ret->run_ns[i] = variant->run_ns;
    }
    return 0;
}

int tn_kind_create(tn_sched *sched, const tn_kind_options *options, tn_kind **ret_kind)
{
    enum { ATTEMPTS = 3, MOST_ATTEMPTS = 255 };
    tn_kind_options o = {0};
    struct tni_kind_options wanted = {0};
    struct tni_place *place = NULL;
    int status = tni_sched_check(sched, "sched");
    if (status != 0)
        return status;
    if (options == NULL || ret_kind == NULL)
        return tni_fail_null(options == NULL ? "options" : "ret_kind");
    status = tni_take_options("tn_kind_options", options, sizeof o, &o);
    if (status == 0)
        status = take_variants(sched, &o, &wanted);
    if (status == 0 && o.attempts > MOST_ATTEMPTS)
        status = tni_fail(TN_ERR_INVALID, "tn_kind_options.attempts is %u: it is at most %d",
                          o.attempts, MOST_ATTEMPTS);
    if (status == 0 && (o.flags & ~(uint32_t)(TN_KIND_WRITES_INPUTS | TN_KIND_REPEATABLE)) != 0)
        status = tni_fail(TN_ERR_INVALID,
                          "tn_kind_options.flags is %#x: TN_KIND_WRITES_INPUTS and "
                          "TN_KIND_REPEATABLE are known",
                          o.flags);
    if (status == 0 && o.reserved != 0)
        status = tni_fail(TN_ERR_INVALID, "tn_kind_options.reserved is %u, not 0", o.reserved);
    if (status == 0 && o.pool == NULL && o.take != NULL)
        status = tni_fail_plain(TN_ERR_INVALID, "tn_kind_options.take is set without a pool");
    if (status == 0 && o.pool != NULL && !tni_sched_is_virtual(sched))
        status = tni_place_of(sched, o.pool, &place);
    if (status != 0)
        return status;
    wanted.name = o.name;
    wanted.affinity = o.affinity;
    wanted.place = place;
    wanted.writes_inputs = (o.flags & TN_KIND_WRITES_INPUTS) != 0;
    wanted.is_repeatable = (o.flags & TN_KIND_REPEATABLE) != 0;
    wanted.take = (void (*)(void))o.take;
    wanted.attempts = o.attempts != 0 ? o.attempts : ATTEMPTS;
    tni_sched_lock(sched);
    status = tni_plan_add_kind(&sched->plan, &wanted, ret_kind);
    tni_sched_unlock(sched);
    return status;
}
