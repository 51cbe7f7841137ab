/* SPDX-License-Identifier: Apache-2.0 */
/* devices: which device the memory of each card is, and how much of it the scheduler may use.
 */
#include <stdlib.h>

#include "sched/crew.h"

enum { TEXT_BYTES = 64 }; /* of one device, as tn_device_find() reads it */

/* The next device of "(cuda:0,cuda:1)". @return 1, 0: there is none, or an error */
static int next_device(const char **at, const char *end, tn_device *ret_device)
{
    char text[TEXT_BYTES];
    const char *first = *at + strspn(*at, "(), \t\n");
    if (first >= end)
        return 0;
    size_t length = strcspn(first, "(), \t\n");
    length = TNI_MIN(length, (size_t)(end - first));
    if (length >= sizeof text)
        return tni_fail(TN_ERR_INVALID, "'%.60s' names no device", first);
    memcpy(text, first, length);
    text[length] = '\0';
    *at = first + length;
    int status = tn_device_find(text, ret_device);
    return status == 0 ? 1 : status;
}

/* How much of a device the scheduler uses, if the program does not say it. */
static int find_capacity(const struct tn_sched *sched, tn_device device, uint64_t *ret_bytes)
{
    int status = tn_device_get_free(device, ret_bytes);
    if (status == 0 && sched->options.domain != NULL)
        *ret_bytes = TNI_MIN(*ret_bytes, tni_show_device_quota(sched->options.domain));
    return status;
}

static int check_device(const struct tn_sched *sched, tn_device device)
{
    if (device.type == TN_DEVICE_CPU)
        return tni_fail_plain(
            TN_ERR_INVALID, "devices names cpu: the memory of a card is not that of the host");
    if (tni_device_memory(sched, device) != TNI_NO_MEMORY)
        return tni_fail(TN_ERR_INVALID, "devices names %s:%d twice: its memory is one",
                        tni_memory_kind(device.type)->name, device.id);
    return 0;
}

/* Let a memory be that of a device, which is kept ready until tni_devices_end(). */
static int set_device(struct tn_sched *sched, uint32_t memory, tn_device device,
                      bool has_capacity)
{
    const struct tni_memory_kind *kind = tni_memory_kind(device.type);
    int status = check_device(sched, device);
    tn_device_info info = {.struct_size = sizeof info};
    if (status == 0)
        status = tn_device_get_info(device, &info);
    if (status == 0)
        status = kind->use(kind, device.id);
    if (status != 0)
        return status;
    sched->plan.memories.all[memory].node = info.numa_node;
    sched->devices[memory] = device;
    return has_capacity
               ? 0
               : find_capacity(sched, device, &sched->plan.memories.all[memory].capacity);
}

/* Read the devices of one resource. */
static int read_resource(struct tn_sched *sched, const struct tni_word *word)
{
    struct tni_plan *plan = &sched->plan;
    const char *at = word->value, *end = at + word->value_len;
    uint32_t found = tni_pools_find(&plan->pools, word->name, (size_t)word->name_len), m = 1;
    if (found == UINT32_MAX || !plan->pools.pools[found].has_slots)
        return tni_fail(TN_ERR_INVALID, "devices names %.*s, which has no slots",
                        word->name_len, word->name);
    struct tni_pool *pool = &plan->pools.pools[found];
    bool has_capacity = tni_memories_has(&plan->memories, pool);
    int status = has_capacity ? 0 : tni_memories_add(&plan->memories, pool, 0, "devices");
    while (status == 0 && plan->memories.all[m].pool != pool)
        m++;
    uint32_t cards = 0, devices = 0;
    while (status == 0 && m + cards < plan->memories.count &&
           plan->memories.all[m + cards].pool == pool)
        cards++;
    while (status >= 0) {
        tn_device device;
        status = next_device(&at, end, &device);
        if (status <= 0)
            break;
        if (devices < cards)
            status = set_device(sched, m + devices, device, has_capacity);
        devices++;
    }
    if (status == 0 && devices != cards)
        return tni_fail(TN_ERR_INVALID, "devices names %u devices for %s, which has %u cards",
                        devices, pool->name, cards);
    return status;
}

int tni_devices_begin(struct tn_sched *sched)
{
    const char *text = sched->options.devices;
    struct tni_word word;
    int status = 0;
    if (text == NULL)
        return 0;
    if (tni_sched_is_virtual(sched))
        return tni_fail_plain(TN_ERR_INVALID,
                              "tn_sched_options.devices is set with TN_SCHED_VIRTUAL: nothing "
                              "is copied in virtual time");
    sched->devices = calloc(TNI_MEMORIES, sizeof *sched->devices);
    if (sched->devices == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "there is no memory for a scheduler");
    while (status == 0 && (status = tni_word_next(&text, &word)) > 0)
        status = read_resource(sched, &word);
    if (status != 0)
        tni_devices_end(sched);
    return status;
}

void tni_devices_end(struct tn_sched *sched)
{
    /* In a forked child the devices are the parent's. */
    for (uint32_t m = 0; sched->devices != NULL && m < TNI_MEMORIES; m++) {
        const struct tni_memory_kind *kind = tni_memory_kind(sched->devices[m].type);
        if (sched->devices[m].type != 0 && sched->pid == tni_os_pid())
            kind->unuse(kind, sched->devices[m].id);
    }
    free(sched->devices);
    sched->devices = NULL;
}

uint32_t tni_device_memory(const struct tn_sched *sched, tn_device device)
{
    for (uint32_t m = 0; sched->devices != NULL && m < TNI_MEMORIES; m++)
        if (sched->devices[m].type == device.type && sched->devices[m].id == device.id)
            return m;
    return TNI_NO_MEMORY;
}
