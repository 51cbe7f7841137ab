/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/base.h"

enum { MOST_BYTES = 4096 }; /* no struct of options will ever be as long: this is no size */

int tni_take_options(const char *what, const void *given, size_t known_bytes, void *ret)
{
    size_t stated_bytes;
    if (given == NULL)
        return 0;
    memcpy(&stated_bytes, given, sizeof stated_bytes);
    if (stated_bytes < known_bytes || stated_bytes > MOST_BYTES)
        return tni_fail(TN_ERR_INVALID, "%s.struct_size is %zu, not %zu", what, stated_bytes,
                        known_bytes);
    const unsigned char *bytes = given;
    for (size_t i = known_bytes; i < stated_bytes; i++)
        if (bytes[i] != 0)
            return tni_fail(TN_ERR_UNSUPPORTED,
                            "%s sets byte %zu, which this library does not know", what, i);
    memcpy(ret, given, known_bytes);
    return 0;
}

int tni_give_struct(const char *what, const void *ours, size_t known_bytes, void *ret)
{
    size_t stated_bytes;
    if (ret == NULL)
        return tni_fail(TN_ERR_INVALID, "%s is NULL", what);
    memcpy(&stated_bytes, ret, sizeof stated_bytes);
    if (stated_bytes < known_bytes || stated_bytes > MOST_BYTES)
        return tni_fail(TN_ERR_INVALID, "%s.struct_size is %zu, not %zu", what, stated_bytes,
                        known_bytes);
    memset(ret, 0, stated_bytes);
    memcpy(ret, ours, known_bytes);
    memcpy(ret, &stated_bytes, sizeof stated_bytes);
    return 0;
}
