/* SPDX-License-Identifier: Apache-2.0 */
/*
 * data: makes data, moves it with the functions of the program, and tells what memories have.
 * What is moved is decided in the room plan (plan/data.c). The program's own use of data is in
 * fetch.c; what an error says of a full memory, in holders.c.
 */
#include <stdio.h>
#include <stdlib.h>

#include "sched/crew.h"

static struct tn_data *data_of(const struct tni_data *its) { return its->owner; }

/* ---- making ------------------------------------------------------------------------------ */

static int check_options(const struct tn_sched *sched, const tn_data_options *o)
{
    if ((o->flags & ~(uint32_t)(TN_DATA_ON_HOST | TN_DATA_TEMPORARY | TN_DATA_LIKE)) != 0)
        return tni_fail(TN_ERR_INVALID,
                        "tn_data_options.flags is %#x: TN_DATA_ON_HOST, TN_DATA_TEMPORARY and "
                        "TN_DATA_LIKE are known",
                        o->flags);
    if (o->reserved != 0)
        return tni_fail(TN_ERR_INVALID, "tn_data_options.reserved is %u, not 0", o->reserved);
    if (o->tensor != NULL)
        return 0;
    if ((o->flags & TN_DATA_LIKE) != 0)
        return tni_fail_plain(TN_ERR_INVALID, "TN_DATA_LIKE is set without a tensor");
    if (o->bytes == 0 || o->bytes > UINT64_C(1) << 56)
        return tni_fail(TN_ERR_INVALID, "tn_data_options.bytes is %llu: it is 1 to 2^56",
                        (unsigned long long)o->bytes);
    if (!tni_sched_is_virtual(sched) && (o->copy == NULL || o->drop == NULL))
        return tni_fail_null(o->copy == NULL ? "tn_data_options.copy" : "tn_data_options.drop");
    return 0;
}

static int fail_room(const struct tn_sched *sched, const struct tn_data *data, uint32_t memory)
{
    char has[TNI_FAILURE_BYTES];
    tni_memory_print(sched, memory, NULL, has, sizeof has);
    return tni_fail(TN_ERR_NO_MEMORY, "there is no room for the %llu bytes of '%.64s'%s",
                    (unsigned long long)data->options.bytes, data->name, has);
}

/* Let the plan know data. @param first  the memory that has a copy; TNI_NO_MEMORY: none */
static int add(struct tn_sched *sched, struct tn_data *data, uint32_t first)
{
    int status = 0;
    tni_sched_lock(sched);
    bool takes_room =
        first != TNI_NO_MEMORY && first != TNI_HOST; /* the program's own does not */
    const struct tni_memory *its = takes_room ? &sched->plan.memories.all[first] : NULL;
    if (its != NULL && its->capacity - its->used < data->options.bytes)
        status = fail_room(sched, data, first);
    else if ((data->its = tni_data_create(&sched->plan, data->options.bytes, first)) == NULL)
        status = tni_fail(TN_ERR_NO_MEMORY, "there is no memory for data");
    if (status == 0) {
        data->its->owner = data;
        data->its->is_temporary = (data->options.flags & TN_DATA_TEMPORARY) != 0;
        data->next = sched->data;
        if (sched->data != NULL)
            sched->data->prev = data;
        sched->data = data;
    }
    tni_sched_unlock(sched);
    return status;
}

int tn_data_create(tn_sched *sched, const tn_data_options *options, tn_data **ret_data)
{
    tn_data_options o = {0};
    int status = tni_sched_check(sched, "sched");
    if (status != 0)
        return status;
    if (options == NULL || ret_data == NULL)
        return tni_fail_null(options == NULL ? "options" : "ret_data");
    status = tni_take_options("tn_data_options", options, sizeof o, &o);
    if (status == 0)
        status = check_options(sched, &o);
    if (status != 0)
        return status;
    struct tn_data *data = calloc(1, sizeof *data);
    char *name = strdup(o.name != NULL ? o.name : "data");
    uint32_t first = (o.flags & TN_DATA_ON_HOST) != 0 ? TNI_HOST : TNI_NO_MEMORY;
    if (data == NULL || name == NULL)
        status = tni_fail(TN_ERR_NO_MEMORY, "there is no memory for data");
    else
        *data = (struct tn_data){.sched = sched, .name = name, .options = o};
    if (status == 0 && o.tensor != NULL)
        status = tni_tensors_create(sched, &data->options, &first, &data->tensors);
    if (status == 0)
        status = add(sched, data, first);
    if (status != 0) {
        if (data != NULL)
            tni_tensors_free(data->tensors);
        free(data);
        free(name);
        return status;
    }
    *ret_data = data;
    return 0;
}

/* ---- moving ------------------------------------------------------------------------------ */

/* What copies over each link took. */
struct speeds {
    uint64_t bytes[TNI_LINKS], ns[TNI_LINKS];
};

static int copy(struct tn_sched *sched, const struct tni_copy *its, struct speeds *speeds)
{
    const struct tn_data *data = data_of(its->data);
    tn_memory from = {0}, to = tni_memory_named(sched, its->memory);
    bool has_source = its->from != TNI_NO_MEMORY;
    if (has_source)
        from = tni_memory_named(sched, its->from);
    uint64_t since_ns = tni_os_now_ns();
    int status = data->tensors != NULL ? tni_tensors_copy(sched, data->tensors, its)
                                       : data->options.copy(data->options.context,
                                                            has_source ? &from : NULL, &to);
    if (status > 0 && status != TN_TASK_OOM)
        return tni_fail(TN_ERR_INVALID,
                        "the copy function of '%.64s' returned %d, which is no TN_TASK_OOM and "
                        "no TN_ERR_*",
                        data->name, status);
    if (status == 0 && has_source) {
        uint32_t link = tni_link_between(&data->sched->plan.memories, its->from, its->memory);
        speeds->bytes[link] += data->options.bytes;
        speeds->ns[link] += tni_os_now_ns() - since_ns;
    }
    return status;
}

void tni_data_drop(const struct tn_data *data, uint32_t memory)
{
    const tn_memory named = tni_memory_named(data->sched, memory);
    if (data->tensors != NULL)
        tni_tensors_drop(data->tensors, memory);
    else
        data->options.drop(data->options.context, &named);
}

static int move_all(struct tn_sched *sched, const struct tni_running *running,
                    struct speeds *speeds)
{
    for (struct tni_copy *its = running->moves; its != NULL; its = its->next_move) {
        int status = 0;
        if (its->state == TNI_COPY_COMING)
            status = copy(sched, its, speeds);
        else
            tni_data_drop(data_of(its->data), its->memory);
        if (status != 0)
            return status;
        its->is_moved = true;
    }
    return 0;
}

void tni_moves_tell(struct tn_sched *sched)
{
    if (sched->data_waits > 0)
        tni_os_cond_broadcast(&sched->data_changed);
}

void tni_moves_settle(struct tn_sched *sched, struct tni_running *running)
{
    for (struct tni_copy *its = running->moves; its != NULL; its = its->next_move)
        its->is_moved |= tni_sched_is_virtual(sched); /* there, only time passes */
    tni_data_moved(&sched->plan, running);
    tni_plan_unblock(&sched->plan);
    tni_moves_tell(sched);
}

int tni_moves_run(struct tn_sched *sched, struct tni_running *running)
{
    struct speeds speeds = {0};
    if (running->lacking == NULL && running->moves == NULL)
        return 0;
    int status = running->lacking == NULL
                     ? (tni_sched_is_virtual(sched) ? 0 : move_all(sched, running, &speeds))
                     : tni_fail(TN_ERR_INVALID, "it reads '%.64s', which no task has written",
                                data_of(running->lacking)->name);
    tni_sched_lock(sched);
    for (uint32_t i = 0; i < TNI_LINKS; i++)
        if (speeds.bytes[i] > 0)
            tni_link_learn(&sched->plan.memories, i, speeds.bytes[i], speeds.ns[i]);
    tni_moves_settle(sched, running);
    tni_sched_unlock(sched);
    return status;
}

/* ---- what memories have ------------------------------------------------------------------ */

static bool is_named(const struct tni_memories *memories, uint32_t at, const tn_memory *memory)
{
    const struct tni_memory *its = &memories->all[at];
    const struct tni_pool *pool = its->pool;
    if (pool == NULL)
        return at == TNI_HOST
                   ? memory->resource == NULL
                   : memory->resource != NULL && strcmp(memory->resource, TN_MEMORY_DISK) == 0;
    if (memory->resource == NULL || strcmp(pool->name, memory->resource) != 0)
        return false;
    for (uint32_t i = its->first; i < its->first + its->count; i++)
        if (pool->slots[i].id == memory->slot)
            return true;
    return false;
}

static int find_memory(const struct tn_sched *sched, const tn_memory *memory,
                       uint32_t *ret_memory)
{
    const struct tni_memories *memories = &sched->plan.memories;
    for (uint32_t m = 0; m < memories->count; m++)
        if (is_named(memories, m, memory)) {
            *ret_memory = m;
            return 0;
        }
    return tni_fail(TN_ERR_NOT_FOUND, "the scheduler knows no memory of %.40s %u",
                    memory->resource != NULL ? memory->resource : "the host", memory->slot);
}

int tn_memory_get_info(tn_sched *sched, const tn_memory *memory, tn_memory_info *ret_info)
{
    tn_memory_info info = {0};
    uint32_t at = 0;
    int status = tni_sched_check(sched, "sched");
    if (status == 0 && memory == NULL)
        status = tni_fail_null("memory");
    if (status == 0)
        status = find_memory(sched, memory, &at);
    if (status != 0)
        return status;
    tni_sched_lock(sched);
    const struct tni_memory *its = &sched->plan.memories.all[at];
    info.capacity = its->capacity;
    info.used = its->used + its->kept;
    info.idle = its->idle;
    info.evictions = its->evictions;
    info.arrived = its->arrivals_bytes;
    info.evicted = its->evicted_bytes;
    tni_sched_unlock(sched);
    return tni_give_struct("tn_memory_info", &info, sizeof info, ret_info);
}
