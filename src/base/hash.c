/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"

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
