/* SPDX-License-Identifier: Apache-2.0 */
/* input: see fuzz.h. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"

void fuzz_fill(struct fuzz_input *in, void *bytes, size_t size_bytes)
{
    size_t size = TNI_MIN(size_bytes, fuzz_left(in));
    memset(bytes, 0, size_bytes);
    if (size > 0)
        memcpy(bytes, in->at, size);
    in->at += size;
}

uint64_t fuzz_take(struct fuzz_input *in, size_t bytes)
{
    uint64_t value = 0;
    fuzz_fill(in, &value, bytes);
    return value;
}

uint64_t fuzz_number(struct fuzz_input *in)
{
    uint32_t kind = fuzz_u8(in);
    uint64_t power = UINT64_C(1) << (kind >> 2 & 63);
    switch (kind & 3) {
    case 0:
        return kind >> 2;
    case 1:
        return fuzz_take(in, 1 + (kind >> 2) % 8);
    case 2:
        return 0 - power;
    default:
        return power + (uint64_t)(int64_t)(int8_t)fuzz_u8(in);
    }
}

void fuzz_overlay(struct fuzz_input *in, void *bytes, size_t size_bytes)
{
    for (uint32_t count = fuzz_u8(in) % 16; count > 0; count--) {
        size_t width = (size_t)1 << (fuzz_u8(in) & 3);
        size_t offset = fuzz_u16(in) % (size_bytes / width) * width;
        uint64_t value = fuzz_number(in);
        memcpy((uint8_t *)bytes + offset, &value, width);
    }
}

char *fuzz_text(struct fuzz_input *in, size_t most)
{
    size_t size = TNI_MIN(most, fuzz_left(in));
    char *text = malloc(size + 1);
    if (text == NULL)
        abort();
    fuzz_fill(in, text, size);
    text[size] = '\0';
    return text;
}
