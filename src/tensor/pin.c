/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pin: registers memory of the host with the driver of CUDA, so that devices reach it alone.
 *
 * A registration is of this process. It ends before the storage gives its memory back, after
 * all work of this process on its devices: no other process can get memory that a device of
 * this process still reaches.
 */
#include "tensor/build.h"

#include <stdlib.h>

static const struct tni_memory_kind *kind_of_pins(void)
{
    return tni_memory_kind(TN_DEVICE_CUDA);
}

static int check_pinnable(const tn_tensor *t)
{
    if (!tni_tensor_is_on_host(t))
        return tni_fail(TN_ERR_UNSUPPORTED,
                        "the tensor is on device cuda:%d: only memory of the "
                        "host is registered",
                        tni_tensor_device(t).id);
    if (tni_tensor_is_read_only(t))
        return tni_fail(TN_ERR_DENIED, "the tensor is read-only: its memory is not registered");
    int count = tn_device_count(TN_DEVICE_CUDA);
    return count < 0 ? count : 0;
}

/*
 * The driver refuses to register memory twice, and a process that received a storage twice has
 * two of struct tni_storage for it. So registrations are counted by where they begin.
 */
struct pin {
    const uint8_t *start;
    uint32_t count; /* storages that are marked as registered */
    struct pin *next;
};
static struct pin *pins;
static tni_os_mutex pins_lock; /* of `pins`, and of `is_pinned` of every storage */
/* The process that has registered memory: a child of it takes no lock that another thread of
 * its parent may have had. 0: none. */
static _Atomic int32_t pinner;

static struct pin **find(const uint8_t *start)
{
    struct pin **at = &pins;
    while (*at != NULL && (*at)->start != start)
        at = &(*at)->next;
    return at;
}

/* pre: the lock */
static int add_pin(const struct tni_storage *s)
{
    struct pin *pin = *find(s->data);
    if (pin != NULL) {
        pin->count++;
        return 0;
    }
    if ((pin = malloc(sizeof *pin)) == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "no private memory for a registration");
    int status = kind_of_pins()->pin(kind_of_pins(), s->data, tni_storage_bytes(s));
    if (status != 0) {
        free(pin);
        return status;
    }
    *pin = (struct pin){.start = s->data, .count = 1, .next = pins};
    pins = pin;
    return 0;
}

/* pre: the lock */
static int remove_pin(const struct tni_storage *s)
{
    struct pin **at = find(s->data), *pin = *at;
    int status = 0;
    if (pin->count == 1)
        status = kind_of_pins()->unpin(kind_of_pins(), s->data);
    if (status != 0 || --pin->count > 0)
        return status;
    *at = pin->next;
    free(pin);
    return 0;
}

int tni_storage_unpin(struct tni_storage *s)
{
    int status = 0;
    if (atomic_load(&pinner) != tni_os_pid()) {
        atomic_store(&s->is_pinned, false); /* of the parent */
        return 0;
    }
    tni_os_mutex_lock(&pins_lock);
    if (atomic_load(&s->is_pinned) && (status = remove_pin(s)) == 0)
        atomic_store(&s->is_pinned, false);
    tni_os_mutex_unlock(&pins_lock);
    return status;
}

int tn_tensor_pin(tn_tensor *tensor)
{
    int status = tni_tensor_check(tensor);
    if (status == 0)
        status = check_pinnable(tensor);
    if (status != 0)
        return status;
    struct tni_storage *s = tensor->storage;
    if (tni_storage_bytes(s) == 0)
        return 0;
    atomic_store(&pinner, tni_os_pid());
    tni_os_mutex_lock(&pins_lock);
    if (!atomic_load(&s->is_pinned) && (status = add_pin(s)) == 0) {
        atomic_store(&s->is_pinned, true);
        if (s->domain != NULL)
            atomic_store(&tni_backing_part(s->domain)->has_pinned, true);
    }
    tni_os_mutex_unlock(&pins_lock);
    return status;
}

int tn_tensor_unpin(tn_tensor *tensor)
{
    int status = tni_tensor_check(tensor);
    return status != 0 ? status : tni_storage_unpin(tensor->storage);
}
