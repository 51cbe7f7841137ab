/* SPDX-License-Identifier: Apache-2.0 */
/* tensors: data whose copies the scheduler makes itself: tensors on devices and on the host. */
#include <stdio.h>
#include <stdlib.h>

#include <tenon/attribute.h>
#include <tenon/share.h>

#include "sched/crew.h"

/* ---- making ------------------------------------------------------------------------------ */

static int check_cards(const struct tn_sched *sched)
{
    const struct tni_memories *memories = &sched->plan.memories;
    if (tni_sched_is_virtual(sched))
        return tni_fail_plain(TN_ERR_INVALID, "data has no tensor in virtual time");
    if (sched->options.domain == NULL)
        return tni_fail_plain(TN_ERR_INVALID,
                              "data has a tensor, and tn_sched_options.domain is NULL: the "
                              "scheduler makes its copies there");
    for (uint32_t m = 1; m < memories->count; m++)
        if (sched->devices == NULL || sched->devices[m].type == 0)
            return tni_fail(TN_ERR_INVALID,
                            "data has a tensor, and tn_sched_options.devices names no device "
                            "of %s",
                            memories->all[m].pool->name);
    return 0;
}

static int check_tensor(const tn_data_options *o, const tn_tensor_info *info)
{
    bool is_like = (o->flags & TN_DATA_LIKE) != 0;
    if (o->copy != NULL || o->drop != NULL || o->bytes != 0)
        return tni_fail(TN_ERR_INVALID,
                        "tn_data_options has a tensor and %s: with a tensor the scheduler "
                        "copies, and knows the size",
                        o->bytes != 0 ? "bytes" : "a function");
    if (info->size_bytes == 0)
        return tni_fail_plain(TN_ERR_INVALID, "the tensor has no elements");
    if (!is_like && !info->is_contiguous)
        return tni_fail_plain(
            TN_ERR_UNSUPPORTED,
            "the tensor is not contiguous: only contiguous tensors are copied "
            "to devices");
    if ((o->flags & TN_DATA_ON_HOST) != 0 &&
        (is_like || tn_tensor_device(o->tensor).type != TN_DEVICE_CPU))
        return tni_fail(TN_ERR_INVALID, "TN_DATA_ON_HOST is set, and the tensor is %s",
                        is_like ? "only an example" : "on a device");
    return 0;
}

static int find_first(const struct tn_sched *sched, const tn_data_options *o,
                      uint32_t *ret_first)
{
    tn_device device = tn_tensor_device(o->tensor);
    if ((o->flags & TN_DATA_LIKE) != 0)
        *ret_first = TNI_NO_MEMORY;
    else if (device.type == TN_DEVICE_CPU)
        *ret_first = TNI_HOST;
    else if ((*ret_first = tni_device_memory(sched, device)) == TNI_NO_MEMORY)
        return tni_fail(
            TN_ERR_INVALID,
            "the tensor is on cuda:%d, which tn_sched_options.devices does not name",
            device.id);
    return 0;
}

int tni_tensors_create(const struct tn_sched *sched, tn_data_options *o, uint32_t *ret_first,
                       struct tni_tensors **ret_tensors)
{
    tn_tensor_info info = {.struct_size = sizeof info};
    uint32_t count = sched->plan.memories.count;
    int status = check_cards(sched);
    if (status == 0)
        status = tn_tensor_get_info(o->tensor, &info);
    if (status == 0)
        status = check_tensor(o, &info);
    if (status == 0)
        status = find_first(sched, o, ret_first);
    if (status != 0)
        return status;
    struct tni_tensors *t = calloc(1, sizeof *t + count * sizeof *t->at);
    if (t == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "there is no memory for data");
    t->dtype = tn_tensor_dtype(o->tensor);
    t->ndim = tn_tensor_ndim(o->tensor);
    memcpy(t->shape, tn_tensor_shape(o->tensor), (size_t)t->ndim * sizeof t->shape[0]);
    t->size_bytes = info.size_bytes;
    t->is_read_only = info.is_read_only && *ret_first != TNI_NO_MEMORY;
    t->count = count;
    if (*ret_first != TNI_NO_MEMORY)
        t->at[*ret_first] = tn_tensor_ref(o->tensor);
    o->bytes = tni_show_device_bytes(sched->options.domain, info.size_bytes);
    o->tensor = NULL;
    *ret_tensors = t;
    return 0;
}

void tni_tensors_free(struct tni_tensors *tensors)
{
    for (uint32_t m = 0; tensors != NULL && m < tensors->count; m++)
        tn_tensor_unref(tensors->at[m]);
    free(tensors);
}

/* ---- moving ------------------------------------------------------------------------------ */

/* A tensor on the host that the scheduler made is registered if it is copied a second time. */
static void count_host_copy(struct tni_tensors *t, uint32_t from, uint32_t to)
{
    enum { LEAST_BYTES = 64 << 10 }; /* a smaller one may share its pages with others */
    if ((from != TNI_HOST && to != TNI_HOST) || !t->owns_host || t->size_bytes < LEAST_BYTES)
        return;
    if (atomic_fetch_add_explicit(&t->host_copies, 1, memory_order_relaxed) == 1)
        (void)!tn_tensor_pin(t->at[TNI_HOST]); /* without it, copies only take longer */
}

static int make(const struct tn_sched *sched, struct tni_tensors *t, uint32_t to,
                const tn_tensor *like)
{
    const tn_tensor_options options = {
        .struct_size = sizeof options,
        .strategy = to == TNI_HOST ? TN_STRATEGY_ARENA : TN_STRATEGY_DEFAULT,
        .device = to == TNI_HOST ? (tn_device){TN_DEVICE_CPU, 0} : sched->devices[to]};
    tn_tensor *made;
    int status =
        tn_tensor_create(sched->options.domain, t->dtype, t->ndim, t->shape, &options, &made);
    if (status == 0 && like != NULL && (status = tn_tensor_copy_attributes(made, like)) != 0)
        tn_tensor_unref(made);
    if (status == 0)
        t->at[to] = made;
    if (status == 0 && to == TNI_HOST) {
        t->owns_host = true;
        atomic_store_explicit(&t->host_copies, 0, memory_order_relaxed);
    }
    return status;
}

/* After a copy failed: find out whether a device lost all that this process does on it. */
static void look_for_lost(struct tn_sched *sched, uint32_t memory)
{
    if (memory == TNI_HOST || memory == TNI_NO_MEMORY)
        return;
    tn_device device = sched->devices[memory];
    const struct tni_memory_kind *kind = tni_memory_kind(device.type);
    if (kind->wait(kind, device.id, NULL) == TN_ERR_DEVICE)
        sched->plan.memories.all[memory].is_lost = true;
}

static int fail_copy(struct tn_sched *sched, const struct tni_copy *its, int status)
{
    char sentence[TNI_FAILURE_BYTES];
    if (status == TN_ERR_NO_MEMORY)
        return TN_TASK_OOM;
    if (status != TN_ERR_DEVICE)
        return status;
    snprintf(sentence, sizeof sentence, "%s", tn_error_detail());
    look_for_lost(sched, its->memory);
    look_for_lost(sched, its->from);
    return tni_fail(status, "%s", sentence);
}

int tni_tensors_copy(struct tn_sched *sched, struct tni_tensors *t, const struct tni_copy *its)
{
    uint32_t from = its->from, to = its->memory;
    const tn_tensor *source = from != TNI_NO_MEMORY ? t->at[from] : NULL;
    bool is_new = t->at[to] == NULL;
    int status = is_new ? make(sched, t, to, source) : 0;
    if (status == 0 && source != NULL)
        count_host_copy(t, from, to);
    if (status == 0 && source != NULL && (status = tn_tensor_copy(t->at[to], source)) != 0 &&
        is_new)
        tni_tensors_drop(t, to);
    return status == 0 ? 0 : fail_copy(sched, its, status);
}

void tni_tensors_drop(struct tni_tensors *t, uint32_t memory)
{
    t->at[memory] = tn_tensor_unref(t->at[memory]);
}
