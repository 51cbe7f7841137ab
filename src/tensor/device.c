/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device: fills and copies tensors on devices, whose bytes the processor cannot reach.
 *
 * A copy is given to the driver as it is where few calls do it. Else the elements go through
 * private memory of the host, where the processor brings them into the other order; then the
 * call waits.
 */
#include <stdlib.h>

#include "tensor/build.h"
#include "tensor/plan.h"

/* ---- copies by calls of a driver --------------------------------------------------------- */

/*
 * What a driver does by equal calls: each copies rows, and a row is bytes that lie side by side
 * at both ends. The plan has the axes that are left; each of their positions is a call.
 */
struct calls {
    struct tni_plan plan;
    struct tni_device_copy copy;
    tn_device device; /* whose driver is called */
    uint64_t count;
};

static void remove_axis(struct tni_plan *p, int32_t axis)
{
    for (int32_t i = axis; i < p->ndim - 1; i++) {
        p->shape[i] = p->shape[i + 1];
        p->to_step[i] = p->to_step[i + 1];
        p->from_step[i] = p->from_step[i + 1];
    }
    p->ndim--;
}

/* The longest axis along which rows follow each other at both ends; -1: there is none. */
static int32_t find_rows(const struct tni_plan *p, int64_t row_bytes)
{
    int32_t found = -1;
    for (int32_t i = 0; i < p->ndim; i++)
        if (p->to_step[i] >= row_bytes && p->from_step[i] >= row_bytes &&
            (found < 0 || p->shape[i] > p->shape[found]))
            found = i;
    return found;
}

/* Split the plan into calls. */
static void divide(struct calls *c)
{
    struct tni_plan *p = &c->plan;
    int32_t last = p->ndim - 1;
    int64_t row_bytes = (int64_t)p->item_bytes;
    if (last >= 0 && p->to_step[last] == row_bytes && p->from_step[last] == row_bytes) {
        row_bytes *= p->shape[last];
        p->ndim--;
    }
    c->copy.bytes = (uint64_t)row_bytes;
    c->copy.rows = 1;
    int32_t rows = find_rows(p, row_bytes);
    if (rows >= 0) {
        c->copy.rows = (uint64_t)p->shape[rows];
        c->copy.to_pitch = (uint64_t)p->to_step[rows];
        c->copy.from_pitch = (uint64_t)p->from_step[rows];
        remove_axis(p, rows);
    }
    c->count = 1;
    for (int32_t i = 0; i < p->ndim; i++)
        c->count *= (uint64_t)p->shape[i]; /* cannot overflow: at most all elements */
}

static int do_calls(const struct calls *c)
{
    const struct tni_memory_kind *kind = tni_memory_kind(c->device.type);
    struct tni_plan_position x = {.to = c->plan.to, .from = c->plan.from};
    struct tni_device_copy copy = c->copy;
    int status;
    do {
        copy.to = x.to;
        copy.from = x.from;
        status = kind->copy(kind, c->device.id, &copy);
    } while (status == 0 && tni_plan_next(&c->plan, c->plan.ndim, &x));
    return status;
}

/* ---- copies through the host ------------------------------------------------------------- */

/* The elements of a tensor on a device, packed in private memory of the host. */
struct stage {
    struct tni_packing packing;
    uint8_t *bytes; /* NULL: the tensor is on the host, and has no stage */
};

static int open_stage(const tn_tensor *t, struct stage *s)
{
    *s = (struct stage){.bytes = NULL};
    if (tni_tensor_is_on_host(t))
        return 0;
    tni_plan_pack(t, &s->packing);
    s->bytes = malloc(s->packing.bytes);
    return s->bytes != NULL
               ? 0
               : tni_fail(TN_ERR_NO_MEMORY,
                          "no private memory for %llu bytes of a tensor that is not contiguous",
                          (unsigned long long)s->packing.bytes);
}

static struct tni_end end_of(const tn_tensor *t, const struct stage *s)
{
    return s->bytes == NULL ? tni_plan_end(t)
                            : (struct tni_end){(uintptr_t)s->bytes + s->packing.first_bytes,
                                               s->packing.strides};
}

static int wait_for(tn_device device, void *stream)
{
    const struct tni_memory_kind *kind = tni_memory_kind(device.type);
    return kind->wait(kind, device.id, stream);
}

/* Copy between a tensor and its stage, and wait. */
static int transfer(const tn_tensor *t, struct stage *s, int direction, void *stream)
{
    struct calls c = {.device = tni_tensor_device(t),
                      .copy = {.direction = direction, .stream = stream}};
    if (direction == TNI_COPY_TO_DEVICE)
        tni_plan_make(&c.plan, t, tni_plan_end(t), end_of(t, s));
    else
        tni_plan_make(&c.plan, t, end_of(t, s), tni_plan_end(t));
    divide(&c);
    int status = do_calls(&c);
    int waited = wait_for(c.device, stream);
    if (waited != 0 && tni_device_drain() != 0)
        s->bytes = NULL; /* the device may still use it: it is never freed */
    return status != 0 ? status : waited;
}

/*
 * Copy between stages of the two, or the tensors themselves where they are on the host. The
 * stream may have work that writes registered memory of the source on the host, so this waits
 * for the stream before the processor reads it.
 */
static int copy_by_stages(const struct calls *whole, const tn_tensor *target,
                          const tn_tensor *source, struct stage stages[2])
{
    struct stage *to = &stages[0], *from = &stages[1];
    void *stream = whole->copy.stream;
    bool is_other = whole->copy.direction == TNI_COPY_BETWEEN_DEVICES;
    struct tni_plan p;
    int status = wait_for(whole->device, stream);
    if (status == 0 && from->bytes != NULL)
        status = transfer(source, from, TNI_COPY_FROM_DEVICE, is_other ? NULL : stream);
    if (status != 0)
        return status;
    tni_plan_make(&p, target, end_of(target, to), end_of(source, from));
    tni_plan_run(&p);
    return to->bytes != NULL ? transfer(target, to, TNI_COPY_TO_DEVICE, stream) : 0;
}

static int copy_through_host(const struct calls *whole, const tn_tensor *target,
                             const tn_tensor *source)
{
    struct stage stages[2];
    int status = open_stage(target, &stages[0]);
    if (status != 0)
        return status;
    status = open_stage(source, &stages[1]);
    if (status == 0)
        status = copy_by_stages(whole, target, source, stages);
    free(stages[0].bytes);
    free(stages[1].bytes);
    return status;
}

/* ---- copies ------------------------------------------------------------------------------ */

/*
 * A call of a driver takes as long as it takes to move so many bytes through the host. Rows
 * between the host and a device that are shorter than WIDE_BYTES are slower than the processor.
 */
enum { FEW_CALLS = 16, CALL_BYTES = 2048, WIDE_BYTES = 64 };

/* Whether the end that is on the host has its elements in the order of the other, packed. */
static bool is_host_packed(const tn_tensor *target, const tn_tensor *source)
{
    struct tni_packing packing;
    bool is_to_host = tni_tensor_is_on_host(target);
    tni_plan_pack(is_to_host ? source : target, &packing);
    return tni_plan_is_packed(is_to_host ? target : source, &packing);
}

/* Whether the calls are the fastest way that is right. Two tensors on one device may overlap.
 */
static bool is_direct(const struct calls *c, const tn_tensor *target, const tn_tensor *source)
{
    uint64_t most = TNI_MAX(tni_tensor_size_bytes(target) / CALL_BYTES, FEW_CALLS);
    if (c->count == 1 && c->copy.rows == 1)
        return true;
    switch (c->copy.direction) {
    case TNI_COPY_ON_DEVICE:
        return c->count <= most && !tni_plan_overlaps(target, source);
    case TNI_COPY_BETWEEN_DEVICES:
        return c->copy.rows <= most && c->count <= most / c->copy.rows;
    default:
        return (c->count <= most && c->copy.bytes >= WIDE_BYTES) ||
               is_host_packed(target, source);
    }
}

/* Whether the memory is still that of the tensor. TN_ERR_PEER_DIED: its maker has ended. */
static int check_not_lost(const tn_tensor *t)
{
    const struct tni_storage *s = t->storage;
    return TNI_UNLIKELY(tni_mapping_is_lost(s->domain, s->mapping))
               ? tni_mapping_fail_lost(s->domain, s->mapping)
               : 0;
}

/* What is lost is not waited for: the target may be written all the same. */
static int await_both(const tn_tensor *target, const tn_tensor *source, tn_device device,
                      void *stream)
{
    struct tn_domain *d = source->storage->domain;
    uint64_t ready = atomic_load(&source->storage->ready);
    int status = check_not_lost(target);
    if (status == 0)
        status = check_not_lost(source);
    if (status != 0)
        return status;
    status = ready != 0 ? tni_order_await(d, device, stream, ready) : 0;
    ready = atomic_load(&target->storage->ready);
    if (status == 0 && ready != 0) {
        status = tni_order_await(target->storage->domain, device, stream, ready);
        if (status == TN_ERR_PEER_DIED)
            status = 0;
    }
    return status;
}

int tni_device_copy_tensor(const tn_tensor *target, const tn_tensor *source, void *stream)
{
    tn_device to = tni_tensor_device(target), from = tni_tensor_device(source);
    struct calls c = {.device = to.type == TN_DEVICE_CPU ? from : to,
                      .copy = {.direction = to.type == TN_DEVICE_CPU     ? TNI_COPY_FROM_DEVICE
                                            : from.type == TN_DEVICE_CPU ? TNI_COPY_TO_DEVICE
                                            : from.id != to.id ? TNI_COPY_BETWEEN_DEVICES
                                                               : TNI_COPY_ON_DEVICE,
                               .from_id = from.id,
                               .stream = stream}};
    if (to.type != from.type && to.type != TN_DEVICE_CPU && from.type != TN_DEVICE_CPU)
        return tni_fail(
            TN_ERR_UNSUPPORTED, "no driver copies from %s:%d to %s:%d: copy to the CPU first",
            tni_memory_kind(from.type)->name, from.id, tni_memory_kind(to.type)->name, to.id);
    int status = await_both(target, source, c.device, stream);
    if (status != 0)
        return status;
    tni_plan_make(&c.plan, target, tni_plan_end(target), tni_plan_end(source));
    divide(&c);
    status =
        is_direct(&c, target, source) ? do_calls(&c) : copy_through_host(&c, target, source);
    if (status != 0) { /* calls that came before the one that failed may still copy */
        tni_storage_touch(target);
        tni_storage_touch(source);
    }
    return status;
}

/* ---- waiting, and filling ---------------------------------------------------------------- */

/* Wait for the default stream. After a wait that fails, the device may still do its work. */
static int wait_here(const tn_tensor *t)
{
    tn_device device = tni_tensor_device(t);
    int status = wait_for(device, NULL);
    if (status != 0)
        tni_storage_touch(t);
    return status;
}

/* The copy waited for what was ready later: now the target is ready, unless parts are lost. */
static void set_ready(const tn_tensor *target)
{
    struct tni_storage *s = target->storage;
    uint64_t ready = atomic_load(&s->ready);
    bool is_whole = tni_tensor_size_bytes(target) == tni_storage_bytes(s);
    if (ready != 0 &&
        (is_whole || tni_order_state(&s->domain->segment, ready) == TNI_ORDER_DONE))
        atomic_compare_exchange_strong(&s->ready, &ready, 0);
}

int tni_device_wait_for(const tn_tensor *target, const tn_tensor *source)
{
    int status = wait_here(tni_tensor_is_on_host(target) ? source : target);
    if (status != 0) {
        tni_storage_touch(target);
        tni_storage_touch(source);
    } else {
        set_ready(target);
    }
    return status;
}

int tni_device_zero(const tn_tensor *t)
{
    tn_device device = tni_tensor_device(t);
    const struct tni_memory_kind *kind = tni_memory_kind(device.type);
    const struct tni_device_memory part = {.device = device,
                                           .address = (uintptr_t)t->storage->data,
                                           .bytes = tni_tensor_size_bytes(t)};
    int status = kind->fill(kind, &part, 0, NULL);
    return status == 0 ? wait_here(t) : status;
}

int tni_device_fill(const tn_tensor *t, const void *source)
{
    tn_device device = tni_tensor_device(t);
    const struct tni_memory_kind *kind = tni_memory_kind(device.type);
    const struct tni_device_copy copy = {.direction = TNI_COPY_TO_DEVICE,
                                         .to = (uintptr_t)t->storage->data,
                                         .from = (uintptr_t)source,
                                         .bytes = tni_tensor_size_bytes(t)};
    int status = kind->copy(kind, device.id, &copy);
    return status == 0 ? wait_here(t) : status;
}
