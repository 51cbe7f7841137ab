/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"

#include <string.h>

uint64_t tni_hash(const void *bytes, size_t size_bytes)
{
    const unsigned char *byte = bytes;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < size_bytes; i++) {
        hash ^= byte[i];
        hash *= UINT64_C(0x100000001b3);
    }
    return hash;
}

static uint64_t word_at(const unsigned char *byte)
{
    uint64_t word;
    memcpy(&word, byte, sizeof word);
    return word;
}

/* A product has in its low bits nothing of the high bits of a factor: the shift brings it
 * there. */
static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15); /* 2^64 / the golden ratio, odd */
    return hash ^ hash >> 32;
}

uint64_t tni_hash_fast(const void *bytes, size_t size_bytes)
{
    const unsigned char *byte = bytes;
    uint64_t hash = mix(0, size_bytes + 1), last = 0;
    size_t left = size_bytes;
    for (; left > 8; left -= 8, byte += 8)
        hash = mix(hash, word_at(byte));
    if (size_bytes >= 8)
        last =
            word_at(byte + left - 8); /* some of its bytes may have been in the word before */
    else
        for (size_t i = 0; i < left; i++)
            last = last << 8 | byte[i];
    return mix(mix(hash, last), 0);
}
