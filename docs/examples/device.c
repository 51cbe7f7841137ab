/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of tenon/device.h. The program also runs where there is no card. */
#include "must.h"

static void list(int count)
{
    /* show: tn_device_get_info */
    for (int32_t id = 0; id < count; id++) {
        tn_device_info info = {.struct_size = sizeof info};
        must(tn_device_get_info((tn_device){TN_DEVICE_CUDA, id}, &info));
        printf("cuda:%d is %s, %s, with %llu bytes\n", id, info.name, info.uuid_text,
               (unsigned long long)info.memory_bytes);
    }
    /* end */
}

static void show_free(void)
{
    /* show: tn_device_get_free */
    uint64_t bytes;
    must(tn_device_get_free((tn_device){TN_DEVICE_CPU, 0}, &bytes));
    printf("the host has %llu bytes free\n", (unsigned long long)bytes);
    /* end */
}

static void find_address(void)
{
    /* show: tn_device_find_address */
    tn_device device;
    char here[8];
    if (tn_device_find_address(here, &device) != 0)
        printf("no device: %s\n", tn_error_detail());
    /* end */
}

static void wait_for(tn_device device)
{
    /* show: tn_device_wait */
    void *stream = NULL; /* or a CUstream */
    must(tn_device_wait(device, stream));
    /* end */
}

int main(void)
{
    /* show: tn_device_count */
    int count = tn_device_count(TN_DEVICE_CUDA);
    if (count < 0)
        printf("no CUDA here: %s\n", tn_error_detail());
    /* end */
    list(count);
    show_free();

    /* show: tn_device_find */
    tn_device device;
    if (tn_device_find("cuda:0", &device) != 0) /* or "GPU-" and a UUID */
        must(tn_device_find("cpu", &device));
    /* end */
    find_address();
    wait_for(device);
    return 0;
}
