/* SPDX-License-Identifier: Apache-2.0 */
/*
 * uses: what this process gave devices for storages on them, as tokens.
 *
 * Nouns: use (work that a stream was given, for which a token stands).
 * I1  `ready` of a storage stands for all that anybody gave a device for it, as far as tenon
 *     was told: a new token of it comes after the one before it.
 * I2  `uses` of a storage has tokens of this process only. Until they are ready, the process
 *     keeps its reference to the block: so nobody gets the memory while a device works on it.
 * Callers: programs, to.c, storage.c. A process that dies leaves both to the reaper, which
 * settles the tokens and releases the references once the process has ended as a whole.
 */
#include "tensor/build.h"

/* Of `uses` of all storages, and of the order in which tokens come into `ready`. */
static tni_os_mutex uses_lock;

/* ---- uses -------------------------------------------------------------------------------- */

/* Where to put a new token. The place of one that it has to come after, if all are in use. */
static uint64_t *place_of(struct tni_storage *s)
{
    for (int i = 0; i < TNI_STORAGE_USES; i++)
        if (tni_order_state(&s->domain->segment, s->uses[i]) != TNI_ORDER_PENDING)
            return &s->uses[i];
    return &s->uses[0];
}

static void touch(struct tni_storage *s)
{
    if (s != NULL)
        atomic_store_explicit(&s->is_touched, true, memory_order_relaxed);
}

/* The token comes after that of the content, and after a use that it takes the place of. */
static int use(struct tn_domain *d, const struct tni_use *u)
{
    uint64_t *places[2] = {0}, after[TNI_ORDER_AFTER] = {0}, token;
    struct tni_storage *storages[2] = {u->writes, u->reads != u->writes ? u->reads : NULL};
    for (int i = 0; i < 2; i++)
        if (storages[i] != NULL) {
            places[i] = place_of(storages[i]);
            after[i] = *places[i];
        }
    if (u->writes != NULL)
        after[2] = atomic_load(&u->writes->ready);
    int status = tni_order_signal(d, u->device, u->stream, after, &token);
    if (status != 0)
        return status;
    for (int i = 0; i < 2; i++)
        if (places[i] != NULL)
            *places[i] = token;
    if (u->writes != NULL)
        atomic_store_explicit(&u->writes->ready, token, memory_order_release);
    return 0;
}

int tni_storage_use(struct tn_domain *d, const struct tni_use *u)
{
    const struct tni_memory_kind *kind = tni_memory_kind(u->device.type);
    int status = kind->check_stream(kind, u->device.id, u->stream); /* not in a forked child */
    if (status == 0) {
        tni_os_mutex_lock(&uses_lock);
        status = use(d, u);
        tni_os_mutex_unlock(&uses_lock);
    }
    if (status != 0) {
        touch(u->writes);
        touch(u->reads);
    }
    return status;
}

bool tni_storage_is_unused(const struct tni_storage *s)
{
    for (int i = 0; i < TNI_STORAGE_USES; i++)
        if (tni_order_is_owed(s->domain, s->uses[i]))
            return false;
    return true;
}

/* ---- for programs ------------------------------------------------------------------------ */

/*
 * What another library does with an export may come later than this use, so the storage stays
 * touched while there is one.
 */
int tn_tensor_record(tn_tensor *tensor, void *stream)
{
    int status = tni_tensor_check(tensor);
    if (status != 0)
        return status;
    if (tni_tensor_is_on_host(tensor))
        return tni_fail(TN_ERR_UNSUPPORTED,
                        "the tensor is on the CPU: only tensors on devices have an order");
    struct tni_storage *s = tensor->storage;
    if (s->domain == NULL)
        return tni_fail(TN_ERR_INVALID, "the tensor is private: tn_tensor_share() it first");
    const struct tni_use u = {
        .device = tni_tensor_device(tensor), .stream = stream, .writes = s};
    bool was_touched = atomic_load(&s->is_touched);
    status = tni_storage_use(s->domain, &u);
    if (status == 0 && was_touched && atomic_load(&s->exports) == 0)
        atomic_store(&s->is_touched, false);
    return status;
}

int tni_tensor_await(const tn_tensor *tensor, void *stream)
{
    struct tni_storage *s = tensor->storage;
    uint64_t ready = atomic_load_explicit(&s->ready, memory_order_acquire);
    if (TNI_UNLIKELY(tni_mapping_is_lost(s->domain, s->mapping)))
        return tni_mapping_fail_lost(s->domain, s->mapping);
    return ready != 0 ? tni_order_await(s->domain, tni_tensor_device(tensor), stream, ready)
                      : 0;
}

void tni_tensor_await_somehow(const tn_tensor *tensor, void *stream)
{
    struct tni_storage *s = tensor->storage;
    int status = tni_tensor_await(tensor, stream);
    if (status == 0 || status == TN_ERR_PEER_DIED)
        return;
    tni_log(TNI_LOG_WARNING, "a stream does not wait for a tensor, the call does: %s",
            tn_error_detail());
    (void)tni_order_sync(s->domain, atomic_load(&s->ready), TNI_FOREVER, true);
}

int tn_tensor_wait(const tn_tensor *tensor, void *stream)
{
    int status = tni_tensor_check(tensor);
    return status == 0 ? tni_tensor_await(tensor, stream) : status;
}

int tn_tensor_sync(const tn_tensor *tensor, tn_deadline deadline)
{
    int status = tni_tensor_check(tensor);
    if (status != 0)
        return status;
    struct tn_domain *d = tensor->storage->domain;
    uint64_t ready = atomic_load_explicit(&tensor->storage->ready, memory_order_acquire);
    if (TNI_UNLIKELY(tni_mapping_is_lost(d, tensor->storage->mapping)))
        return tni_mapping_fail_lost(d, tensor->storage->mapping);
    if (ready == 0)
        return 0;
    status = tni_order_sync(d, ready, deadline.ns, false);
    if (status == 0 && tni_order_state(&d->segment, ready) == TNI_ORDER_LOST)
        status = tni_order_fail_lost(&d->segment, ready);
    return status;
}
