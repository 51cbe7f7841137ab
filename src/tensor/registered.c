/* SPDX-License-Identifier: Apache-2.0 */
/*
 * registered: memory of storages on the host that is registered with a driver.
 *
 * A registration is of this process. It ends before the storage gives its memory back, after
 * all work of this process on its devices: no other process can get memory that a device of
 * this process still reaches.
 */
#include <stdlib.h>

#include "tensor/storage.h"

/*
 * The driver refuses to register memory twice, and a process that received a storage twice has
 * two of struct tni_storage for it. So registrations are counted by where they begin.
 */
struct pin {
    const uint8_t *start;
    const struct tni_memory_kind *kind;
    uint32_t count; /* storages that are marked as registered */
    struct pin *next;
};
static struct pin *pins;
static tni_os_mutex pins_lock; /* of `pins`, and of `is_pinned` of every storage */
/*
 * The process that has registered memory; 0: none. A child of it does not take the lock, which
 * another thread of the parent may have had.
 */
static _Atomic int32_t pinner;

static struct pin **find(const uint8_t *start)
{
    struct pin **at = &pins;
    while (*at != NULL && (*at)->start != start)
        at = &(*at)->next;
    return at;
}

/* pre: the lock */
static int add_pin(const struct tni_storage *s, uint64_t size_bytes)
{
    struct pin *pin = *find(s->data);
    const struct tni_memory_kind *kind;
    if (pin != NULL) {
        pin->count++;
        return 0;
    }
    int status = tni_device_kind_of_pins(&kind);
    if (status != 0)
        return status;
    if ((pin = malloc(sizeof *pin)) == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "no private memory for a registration");
    status = kind->pin(kind, s->data, size_bytes);
    if (status != 0) {
        free(pin);
        return status;
    }
    *pin = (struct pin){.start = s->data, .kind = kind, .count = 1, .next = pins};
    pins = pin;
    return 0;
}

/* pre: the lock */
static int remove_pin(const struct tni_storage *s)
{
    struct pin **at = find(s->data), *pin = *at;
    int status = 0;
    if (pin->count == 1)
        status = pin->kind->unpin(pin->kind, s->data);
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

int tni_storage_pin(struct tni_storage *s, uint64_t size_bytes)
{
    int status = 0;
    atomic_store(&pinner, tni_os_pid());
    tni_os_mutex_lock(&pins_lock);
    if (!atomic_load(&s->is_pinned) && (status = add_pin(s, size_bytes)) == 0) {
        atomic_store(&s->is_pinned, true);
        if (s->domain != NULL)
            atomic_store(&tni_backing_part(s->domain)->has_pinned, true);
    }
    tni_os_mutex_unlock(&pins_lock);
    return status;
}
