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
    if (memories->has_disk && sched->disk == NULL)
        return tni_fail_plain(TN_ERR_INVALID,
                              "data has a tensor, memories says how much the HOST has, and "
                              "tn_sched_options.spill names no folder for the rest");
    for (uint32_t m = 1; m < memories->count; m++)
        if (memories->all[m].pool != NULL &&
            (sched->devices == NULL || sched->devices[m].type == 0))
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
        return tni_fail(TN_ERR_INVALID,
                        "the tensor is on %s:%d, which tn_sched_options.devices does not name",
                        tni_memory_kind(device.type)->name, device.id);
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
    t->disk = sched->disk;
    t->count = count;
    if (*ret_first != TNI_NO_MEMORY)
        t->at[*ret_first] = tn_tensor_ref(o->tensor);
    o->bytes = sched->devices != NULL
                   ? tni_show_device_bytes(sched->options.domain, info.size_bytes)
                   : info.size_bytes;
    o->tensor = NULL;
    *ret_tensors = t;
    return 0;
}

void tni_tensors_free(struct tni_tensors *tensors)
{
    if (tensors == NULL)
        return;
    for (uint32_t m = 0; m < tensors->count; m++)
        tn_tensor_unref(tensors->at[m]);
    tn_tensor_unref(tensors->example);
    free(tensors);
}

/* ---- making copies ----------------------------------------------------------------------- */

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

/* ---- the disk ---------------------------------------------------------------------------- */

/* Keep the attributes of a tensor in one that has its shape, and memory for one element. */
static int keep_attributes(struct tni_tensors *t, const tn_tensor *source)
{
    static const int64_t no_strides[TN_MAX_NDIM];
    tn_tensor *element;
    int status = 0;
    if (t->example == NULL) {
        status = tn_tensor_create_private(t->dtype, 0, NULL, &element);
        if (status == 0) {
            status = tn_tensor_view(element, t->dtype, t->ndim, t->shape, no_strides, 0,
                                    &t->example);
            tn_tensor_unref(element);
        }
    }
    return status == 0 ? tn_tensor_copy_attributes(t->example, source) : status;
}

/* Private memory of the host with the attributes of a tensor, as the disk and devices cannot
   copy to each other. */
static int make_between(const struct tni_tensors *t, const tn_tensor *like, tn_tensor **ret)
{
    int status = tn_tensor_create_private(t->dtype, t->ndim, t->shape, ret);
    if (status == 0 && (status = tn_tensor_copy_attributes(*ret, like)) != 0)
        tn_tensor_unref(*ret);
    return status;
}

static int write_to_disk(struct tni_tensors *t, uint32_t from)
{
    tn_tensor *source = tn_tensor_ref(t->at[from]), *between;
    int status = keep_attributes(t, source);
    if (status == 0 && from != TNI_HOST && (status = make_between(t, source, &between)) == 0) {
        status = tn_tensor_copy(between, source);
        tn_tensor_unref(source);
        source = between;
    }
    if (status == 0) {
        uint64_t first = t->is_on_disk ? t->disk_first : tni_disk_take(t->disk, t->size_bytes);
        status = tni_os_disk_write(tni_disk_fd(t->disk), first, tn_tensor_data(source),
                                   t->size_bytes);
        if (status != 0 && !t->is_on_disk)
            tni_disk_give(t->disk, first, t->size_bytes);
        t->is_on_disk |= status == 0;
        t->disk_first = first;
    }
    tn_tensor_unref(source);
    return status;
}

static int read_from_disk(const struct tni_tensors *t, uint32_t to)
{
    tn_tensor *target = tn_tensor_ref(t->at[to]);
    int status = 0;
    if (to != TNI_HOST) {
        tn_tensor_unref(target);
        status = make_between(t, t->example, &target);
    }
    if (status != 0)
        return status;
    status = tni_os_disk_read(tni_disk_fd(t->disk), t->disk_first, tn_tensor_data(target),
                              t->size_bytes);
    if (status == 0 && to != TNI_HOST)
        status = tn_tensor_copy(t->at[to], target);
    tn_tensor_unref(target);
    return status;
}

/* ---- moving ------------------------------------------------------------------------------ */

/* After a copy failed: find out whether a device lost all that this process does on it. */
static void look_for_lost(struct tn_sched *sched, uint32_t memory)
{
    if (memory == TNI_NO_MEMORY || sched->plan.memories.all[memory].pool == NULL)
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

static int copy(const struct tn_sched *sched, struct tni_tensors *t, const struct tni_copy *its)
{
    uint32_t from = its->from, to = its->memory;
    bool has_source = from != TNI_NO_MEMORY, has_disk = t->disk != NULL;
    if (has_disk && to == TNI_DISK)
        return write_to_disk(t, from);
    bool is_from_disk = has_disk && from == TNI_DISK, is_new = t->at[to] == NULL;
    const tn_tensor *source = !has_source ? NULL : is_from_disk ? t->example : t->at[from];
    int status = is_new ? make(sched, t, to, source) : 0;
    if (status != 0 || !has_source)
        return status;
    if (!is_from_disk)
        count_host_copy(t, from, to);
    status = is_from_disk ? read_from_disk(t, to) : tn_tensor_copy(t->at[to], source);
    if (status != 0 && is_new)
        tni_tensors_drop(t, to);
    return status;
}

int tni_tensors_copy(struct tn_sched *sched, struct tni_tensors *t, const struct tni_copy *its)
{
    int status = copy(sched, t, its);
    return status == 0 ? 0 : fail_copy(sched, its, status);
}

void tni_tensors_drop(struct tni_tensors *t, uint32_t memory)
{
    if (t->disk != NULL && memory == TNI_DISK) {
        tni_disk_give(t->disk, t->disk_first, t->size_bytes);
        t->is_on_disk = false;
        return;
    }
    t->at[memory] = tn_tensor_unref(t->at[memory]);
}
