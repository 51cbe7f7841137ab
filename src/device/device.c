/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device: kinds of memory, and the devices that have it.
 *
 * Nouns: kind (of memory: a table of operations), device (a kind and a number in this process),
 * part (of a card).
 * I1  A device is named by its UUID wherever two processes meet. Numbers are of one process.
 * I2  No process needs a driver: it is loaded by the first call that needs a device.
 * cuda.c has the rules of the driver.
 * Callers: every room that has to do with memory of devices, and programs. A death leaves
 * nothing: the driver gives back the memory of a process that ends, save what other processes
 * have mapped or have a descriptor of.
 */
#include "device/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "device/cuda.h"

/* ---- the host ---------------------------------------------------------------------------- */

static int host_count(const struct tni_memory_kind *kind)
{
    (void)kind;
    return 1;
}

static int host_describe(const struct tni_memory_kind *kind, int32_t id,
                         tn_device_info *ret_info)
{
    *ret_info = (tn_device_info){.device = {kind->type, id},
                                 .flags = TN_DEVICE_SHARES,
                                 .memory_bytes = tni_os_memory_bytes(),
                                 .name = "host"};
    return 0;
}

static int host_count_free(const struct tni_memory_kind *kind, int32_t id, uint64_t *ret_bytes)
{
    (void)kind;
    (void)id;
    return tni_os_memory_available(ret_bytes);
}

static int host_copy(const struct tni_memory_kind *kind, int32_t id,
                     const struct tni_device_copy *copy)
{
    (void)kind;
    (void)id;
    uint8_t *to = (uint8_t *)(uintptr_t)copy->to;
    const uint8_t *from = (const uint8_t *)(uintptr_t)copy->from;
    memcpy(to, from, copy->bytes);
    for (uint64_t row = 1; row < copy->rows; row++)
        memcpy(to + row * copy->to_pitch, from + row * copy->from_pitch, copy->bytes);
    return 0;
}

static int host_wait(const struct tni_memory_kind *kind, int32_t id, void *stream)
{
    (void)kind;
    (void)id;
    (void)stream;
    return 0;
}

/* ---- kinds without devices --------------------------------------------------------------- */

static int count_none(const struct tni_memory_kind *kind)
{
    (void)kind;
    return tni_fail(
        TN_ERR_INVALID,
        "a device has one of the types TN_DEVICE_CPU, TN_DEVICE_CUDA, TN_DEVICE_ROCM");
}

/* ---- the kinds --------------------------------------------------------------------------- */

/* clang-format off */
#define OPERATIONS_OF_A_DRIVER                                                                 \
    .count = tni_cuda_count,                                                                   \
    .describe = tni_cuda_describe,                                                             \
    .use = tni_cuda_use,                                                                       \
    .unuse = tni_cuda_unuse,                                                                   \
    .count_free = tni_cuda_count_free,                                                         \
    .make = tni_cuda_make,                                                                     \
    .map = tni_cuda_map,                                                                       \
    .unmap = tni_cuda_unmap,                                                                   \
    .granularity = tni_cuda_granularity,                                                       \
    .classify = tni_cuda_classify,                                                             \
    .locate = tni_cuda_locate,                                                                 \
    .export = tni_cuda_export,                                                                 \
    .export_pieces = tni_cuda_export_pieces,                                                   \
    .open = tni_cuda_open,                                                                     \
    .close = tni_cuda_close,                                                                   \
    .copy = tni_cuda_copy,                                                                     \
    .fill = tni_cuda_fill,                                                                     \
    .settle = tni_cuda_settle,                                                                 \
    .drain = tni_cuda_drain,                                                                   \
    .wait = tni_cuda_wait,                                                                     \
    .pin = tni_cuda_pin,                                                                       \
    .unpin = tni_cuda_unpin,                                                                   \
    .check_stream = tni_cuda_check_stream,                                                     \
    .check_words = tni_cuda_check_words,                                                       \
    .open_words = tni_cuda_open_words,                                                         \
    .close_words = tni_cuda_close_words,                                                       \
    .words_at = tni_cuda_words_at,                                                             \
    .signal = tni_cuda_signal,                                                                 \
    .await = tni_cuda_await
/* clang-format on */

/* In the order in which devices are searched. */
enum { KIND_HOST, KIND_CUDA, KIND_ROCM, KIND_NONE };
static const struct tni_memory_kind kinds[] = {
    [KIND_HOST] = {.type = TN_DEVICE_CPU,
                   .name = "cpu",
                   .count = host_count,
                   .describe = host_describe,
                   .count_free = host_count_free,
                   .copy = host_copy,
                   .wait = host_wait},
    [KIND_CUDA] = {.type = TN_DEVICE_CUDA,
                   .name = "cuda",
                   .driver = &tni_cuda_driver,
                   OPERATIONS_OF_A_DRIVER},
    [KIND_ROCM] = {.type = TN_DEVICE_ROCM,
                   .name = "rocm",
                   .driver = &tni_hip_driver,
                   OPERATIONS_OF_A_DRIVER},
    [KIND_NONE] = {.name = "none", .count = count_none},
};

const struct tni_memory_kind *tni_memory_kind(int32_t type)
{
    size_t i = 0;
    while (i < KIND_NONE && kinds[i].type != type)
        i++;
    return &kinds[i];
}

/* ---- devices ----------------------------------------------------------------------------- */

int tn_device_count(int32_t type)
{
    const struct tni_memory_kind *kind = tni_memory_kind(type);
    return kind->count(kind);
}

struct sentence {
    char text[256];
};
static struct sentence keep_sentence(void)
{
    struct sentence kept;
    snprintf(kept.text, sizeof kept.text, "%s", tn_error_detail());
    return kept;
}

int tni_device_kind_of_pins(const struct tni_memory_kind **ret_kind)
{
    int count = tn_device_count(TN_DEVICE_CUDA);
    *ret_kind = tni_memory_kind(TN_DEVICE_CUDA);
    if (count != TN_ERR_UNSUPPORTED)
        return count < 0 ? count : 0;
    struct sentence why = keep_sentence();
    *ret_kind = tni_memory_kind(TN_DEVICE_ROCM);
    count = tn_device_count(TN_DEVICE_ROCM);
    return count == TN_ERR_UNSUPPORTED ? tni_fail(count, "%s", why.text)
           : count < 0                 ? count
                                       : 0;
}

int tni_device_check(tn_device device)
{
    const struct tni_memory_kind *kind = tni_memory_kind(device.type);
    int count = kind->count(kind);
    if (count < 0)
        return count;
    return device.id >= 0 && device.id < count
               ? 0
               : tni_fail(TN_ERR_NOT_FOUND,
                          "there is no device %s:%d: this process sees %d of them, from 0 on",
                          kind->name, device.id, count);
}

void tni_device_write_uuid(const uint8_t uuid[16], bool is_part, char text[TNI_UUID_TEXT_BYTES])
{
    static const char digits[] = "0123456789abcdef";
    memcpy(text, is_part ? "MIG-" : "GPU-", 4);
    text += 4;
    for (size_t i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            *text++ = '-';
        *text++ = digits[uuid[i] >> 4];
        *text++ = digits[uuid[i] & 15];
    }
    *text = '\0';
}

static int describe(tn_device device, tn_device_info *ret_info)
{
    const struct tni_memory_kind *kind = tni_memory_kind(device.type);
    int status = tni_device_check(device);
    if (status == 0)
        status = kind->describe(kind, device.id, ret_info);
    if (status != 0)
        return status;
    ret_info->numa_node = ret_info->pci[0] != '\0' ? tni_os_pci_node(ret_info->pci) : -1;
    if (device.type != TN_DEVICE_CPU)
        tni_device_write_uuid(ret_info->uuid, (ret_info->flags & TN_DEVICE_IS_PART) != 0,
                              ret_info->uuid_text);
    return 0;
}

int tn_device_get_info(tn_device device, tn_device_info *ret_info)
{
    tn_device_info info;
    int status = tni_check_struct("tn_device_info", ret_info, sizeof info);
    if (status == 0)
        status = describe(device, &info);
    return status == 0 ? tni_give_struct("tn_device_info", &info, sizeof info, ret_info)
                       : status;
}

int tn_device_get_free(tn_device device, uint64_t *ret_bytes)
{
    const struct tni_memory_kind *kind = tni_memory_kind(device.type);
    if (ret_bytes == NULL)
        return tni_fail_null("ret_bytes");
    int status = tni_device_check(device);
    return status == 0 ? kind->count_free(kind, device.id, ret_bytes) : status;
}

int tni_device_drain(void)
{
    int status = 0;
    for (size_t i = 0; i < KIND_NONE && status == 0; i++)
        if (kinds[i].drain != NULL)
            status = kinds[i].drain(&kinds[i]);
    return status;
}

/* ---- finding ----------------------------------------------------------------------------- */

/* Calls `is_it` for the devices of a type. TN_ERR_NOT_FOUND: for none it returned true. */
typedef bool device_fn(const tn_device_info *info, const void *wanted);
static int search(int32_t type, device_fn *is_it, const void *wanted, tn_device *ret_device)
{
    tn_device_info info;
    int count = tn_device_count(type);
    for (int32_t id = 0; id < count; id++) {
        int status = describe((tn_device){type, id}, &info);
        if (status != 0)
            return status;
        if (is_it(&info, wanted)) {
            *ret_device = info.device;
            return 0;
        }
    }
    return count < 0 ? count : TN_ERR_NOT_FOUND;
}

static bool has_uuid(const tn_device_info *info, const void *wanted)
{
    return memcmp(info->uuid, wanted, sizeof info->uuid) == 0;
}

static bool has_text(const tn_device_info *info, const void *wanted)
{
    return strcasecmp(info->uuid_text, wanted) == 0;
}

int tni_device_by_uuid(int32_t type, const uint8_t uuid[16], uint32_t flags,
                       tn_device *ret_device)
{
    int status = search(type, has_uuid, uuid, ret_device);
    if (status != TN_ERR_NOT_FOUND)
        return status;
    char text[TNI_UUID_TEXT_BYTES];
    tni_device_write_uuid(uuid, (flags & TN_DEVICE_IS_PART) != 0, text);
    return tni_fail(TN_ERR_NOT_FOUND,
                    "this process does not see the device with the UUID %s (is %s set?)", text,
                    tni_memory_kind(type)->driver->differences->visible);
}

/* Whether it is the text of a UUID, after its prefix. */
static bool is_uuid(const char *text)
{
    static const char form[] = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
    for (size_t i = 0; i < sizeof form; i++) {
        bool is_digit = text[i] != '\0' && strchr("0123456789abcdefABCDEF", text[i]) != NULL;
        if (form[i] == 'x' ? !is_digit : text[i] != form[i])
            return false;
    }
    return true;
}

static int find_by_text(const char *text, tn_device *ret_device)
{
    if (!is_uuid(text + 4))
        return tni_fail(TN_ERR_INVALID,
                        "'%.60s' is no UUID of a device, as GPU-"
                        "01234567-89ab-cdef-0123-456789abcdef is",
                        text);
    int status = search(TN_DEVICE_CUDA, has_text, text, ret_device);
    if (status == TN_ERR_NOT_FOUND || status == TN_ERR_UNSUPPORTED) {
        struct sentence why = keep_sentence();
        int other = search(TN_DEVICE_ROCM, has_text, text, ret_device);
        if (other == TN_ERR_UNSUPPORTED)
            tni_fail(status, "%s", why.text); /* what CUDA's driver said */
        else
            status = other;
    }
    return status != TN_ERR_NOT_FOUND
               ? status
               : tni_fail(TN_ERR_NOT_FOUND, "this process sees no device '%.60s'", text);
}

/* The number after the colon; 0 if there is none. */
static bool parse_number(const char *text, int32_t *ret_id)
{
    int32_t id = 0;
    if (*text == '\0') {
        *ret_id = 0;
        return true;
    }
    if (*text++ != ':' || *text == '\0')
        return false;
    for (; *text >= '0' && *text <= '9' && id < 100000; text++)
        id = 10 * id + (*text - '0');
    *ret_id = id;
    return *text == '\0';
}

int tn_device_find(const char *text, tn_device *ret_device)
{
    if (text == NULL || ret_device == NULL)
        return tni_fail_null(text == NULL ? "text" : "ret_device");
    if (strncasecmp(text, "GPU-", 4) == 0 || strncasecmp(text, "MIG-", 4) == 0)
        return find_by_text(text, ret_device);
    for (size_t i = 0; i < KIND_NONE; i++) {
        size_t len = strlen(kinds[i].name);
        tn_device device = {.type = kinds[i].type};
        if (strncasecmp(text, kinds[i].name, len) != 0 || !parse_number(text + len, &device.id))
            continue;
        int status = tni_device_check(device);
        if (status == 0)
            *ret_device = device;
        return status;
    }
    return tni_fail(TN_ERR_INVALID,
                    "'%.60s' names no device: expected cpu, cuda, rocm, each with or without "
                    "a colon and a number, or a UUID",
                    text);
}

/* Find the address among the memory of one type of devices. */
static int locate(int32_t type, const void *address, tn_device *ret_device)
{
    const struct tni_memory_kind *kind = tni_memory_kind(type);
    int32_t id;
    int count = kind->count(kind);
    int status = count < 0 ? count : kind->locate(kind, (uintptr_t)address, &id);
    if (status == 0)
        *ret_device = (tn_device){type, id};
    return status;
}

int tn_device_find_address(const void *address, tn_device *ret_device)
{
    if (address == NULL)
        return tni_fail_null("address");
    if (ret_device == NULL)
        return tni_fail_null("ret_device");
    int status = locate(TN_DEVICE_CUDA, address, ret_device);
    if (status != TN_ERR_NOT_FOUND && status != TN_ERR_UNSUPPORTED)
        return status;
    struct sentence why = keep_sentence();
    int other = locate(TN_DEVICE_ROCM, address, ret_device);
    return other == TN_ERR_UNSUPPORTED ? tni_fail(status, "%s", why.text) : other;
}

/* ---- waiting ----------------------------------------------------------------------------- */

int tn_device_wait(tn_device device, void *stream)
{
    const struct tni_memory_kind *kind = tni_memory_kind(device.type);
    int status = tni_device_check(device);
    if (status == 0 && kind->check_stream != NULL)
        status = kind->check_stream(kind, device.id, stream);
    return status == 0 ? kind->wait(kind, device.id, stream) : status;
}
