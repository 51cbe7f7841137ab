/* SPDX-License-Identifier: Apache-2.0 */
/* lod: sets and reads the attribute that has levels of detail. */
#include <string.h>

#include "attribute/edit.h"

/*
 * The place in the payload at which the offsets begin. The payload is the number of levels, the
 * count of offsets of each level, and, aligned to 8 bytes, the offsets of all levels.
 */
static uint32_t offsets_at(uint32_t levels)
{
    return (uint32_t)tni_align_up((1 + (uint64_t)levels) * sizeof(uint32_t), 8);
}

static uint32_t count_of(const void *payload, uint32_t level)
{
    uint32_t count;
    memcpy(&count, (const uint8_t *)payload + (1 + (size_t)level) * sizeof count, sizeof count);
    return count;
}

/* Check one level. Its last offset must be `sequences`; `of` says what that number counts. */
static int check_level(uint32_t level, const uint64_t *offsets, uint32_t count,
                       uint64_t sequences, const char *of)
{
    if (offsets[0] != 0)
        return tni_fail(TN_ERR_INVALID,
                        "level %u of detail begins with the offset %llu instead of 0", level,
                        (unsigned long long)offsets[0]);
    for (uint32_t i = 1; i < count; i++)
        if (offsets[i] < offsets[i - 1])
            return tni_fail(
                TN_ERR_INVALID, "level %u of detail falls from %llu to %llu at its offset %u",
                level, (unsigned long long)offsets[i - 1], (unsigned long long)offsets[i], i);
    if (offsets[count - 1] != sequences)
        return tni_fail(
            TN_ERR_INVALID, "level %u of detail ends with the offset %llu, but %s %llu", level,
            (unsigned long long)offsets[count - 1], of, (unsigned long long)sequences);
    return 0;
}

static int check_levels(const tn_tensor *t, uint32_t levels)
{
    if (levels == 0 || levels > TN_LOD_MAX_LEVELS)
        return tni_fail(TN_ERR_INVALID,
                        "the tensor would have %u levels of detail: 1 to %d are allowed",
                        levels, TN_LOD_MAX_LEVELS);
    if (t->ndim == 0)
        return tni_fail(TN_ERR_INVALID, "a tensor without axes cannot have levels of detail");
    return 0;
}

static int check_count(uint32_t level, uint32_t count)
{
    if (count >= 2 && count <= TN_ATTRIBUTES_MAX_BYTES / sizeof(uint64_t))
        return 0;
    return tni_fail(TN_ERR_INVALID, "level %u of detail has %u offsets: 2 to %zu are allowed",
                    level, count, TN_ATTRIBUTES_MAX_BYTES / sizeof(uint64_t));
}

/* Check that the payload is as long as its counts say. pre: check_levels() passed */
static int check_length(const void *payload, uint32_t bytes, uint32_t levels)
{
    uint64_t need = offsets_at(levels);
    const uint8_t *start = payload;
    for (uint32_t i = 0; i < levels && need <= bytes; i++) {
        int status = check_count(i, count_of(payload, i));
        if (status != 0)
            return status;
        need += (uint64_t)count_of(payload, i) * sizeof(uint64_t);
    }
    if (need != bytes || !tni_attribute_is_zero(start + (1 + (size_t)levels) * sizeof(uint32_t),
                                                start + offsets_at(levels)))
        return tni_fail(TN_ERR_INVALID, "%u levels of detail do not fit their %u bytes exactly",
                        levels, bytes);
    return 0;
}

int tni_attribute_check_lod(const tn_tensor *t, const void *payload, uint32_t bytes)
{
    uint32_t levels = 0;
    if (bytes >= sizeof levels)
        memcpy(&levels, payload, sizeof levels);
    int status = check_levels(t, levels);
    if (status != 0 || (status = check_length(payload, bytes, levels)) != 0)
        return status;
    const uint64_t *offsets =
        (const uint64_t *)(const void *)((const uint8_t *)payload + offsets_at(levels));
    for (uint32_t i = 0; i < levels && status == 0; i++) {
        uint32_t count = count_of(payload, i);
        if (i + 1 < levels)
            status = check_level(i, offsets, count, count_of(payload, i + 1) - UINT64_C(1),
                                 "the next level has this many sequences:");
        else
            status = check_level(i, offsets, count, (uint64_t)t->extents[0],
                                 "the first axis has the size");
        offsets += count;
    }
    return status;
}

/* Check the arguments of a setter, and compute the size of the payload. pre: levels > 0 */
static int measure(const tn_tensor *t, uint32_t levels, const uint32_t *counts,
                   const uint64_t *const *offsets, uint64_t *ret_bytes)
{
    int status = check_levels(t, levels);
    if (status != 0)
        return status;
    if (counts == NULL || offsets == NULL)
        return tni_fail(TN_ERR_INVALID, "%s is NULL, but there are %u levels of detail",
                        counts == NULL ? "counts" : "offsets", levels);
    uint64_t bytes = offsets_at(levels);
    for (uint32_t i = 0; i < levels; i++) {
        if ((status = check_count(i, counts[i])) != 0)
            return status;
        if (offsets[i] == NULL)
            return tni_fail(TN_ERR_INVALID, "the offsets of level %u of detail are NULL", i);
        bytes += counts[i] * sizeof(uint64_t);
    }
    *ret_bytes = bytes;
    return 0;
}

int tn_tensor_set_lod(tn_tensor *t, uint32_t levels, const uint32_t *counts,
                      const uint64_t *const *offsets)
{
    struct tni_attribute_edit edit;
    uint64_t bytes;
    int status = tni_tensor_check(t);
    if (status != 0)
        return status;
    if (levels == 0)
        return tni_attribute_remove(t, TNI_ATTRIBUTE_LOD);
    if ((status = measure(t, levels, counts, offsets, &bytes)) != 0)
        return status;
    status = tni_attribute_begin(t, TNI_ATTRIBUTE_LOD, tni_attribute_find(t, TNI_ATTRIBUTE_LOD),
                                 bytes, &edit);
    if (status != 0)
        return status;
    uint8_t *to = edit.payload;
    memcpy(to, &levels, sizeof levels);
    memcpy(to + sizeof levels, counts, levels * sizeof *counts);
    to += offsets_at(levels);
    for (uint32_t i = 0; i < levels; i++) {
        memcpy(to, offsets[i], counts[i] * sizeof(uint64_t));
        to += counts[i] * sizeof(uint64_t);
    }
    return tni_attribute_end(t, &edit, tni_attribute_check_lod);
}

static uint32_t level_count(const tn_tensor *t)
{
    uint32_t levels = 0;
    const struct tni_attribute *a = tni_attribute_find(t, TNI_ATTRIBUTE_LOD);
    if (a != NULL)
        memcpy(&levels, tni_attribute_payload(a), sizeof levels);
    return levels;
}

const uint64_t *tn_tensor_lod(const tn_tensor *t, uint32_t level, uint32_t *ret_count)
{
    uint32_t levels = level_count(t);
    if (level >= levels)
        return NULL;
    const uint8_t *payload = tni_attribute_payload(tni_attribute_find(t, TNI_ATTRIBUTE_LOD));
    const uint8_t *at = payload + offsets_at(levels);
    for (uint32_t i = 0; i < level; i++)
        at += count_of(payload, i) * sizeof(uint64_t);
    if (ret_count != NULL)
        *ret_count = count_of(payload, level);
    return (const uint64_t *)(const void *)at;
}
