/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/base.h"

/* Whether a name may have this byte. isalnum() is not used: it depends on the locale. */
static bool is_name_byte(char byte)
{
    return (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z') ||
           (byte >= '0' && byte <= '9') || byte == '.' || byte == '_' || byte == '-';
}

int tni_check_name(const char *what, const char *name, size_t max_len)
{
    if (name == NULL)
        return tni_fail(TN_ERR_INVALID, "%s name is NULL", what);

    size_t len = strnlen(name, max_len + 1);
    if (len == 0)
        return tni_fail(TN_ERR_INVALID, "%s name is empty", what);
    if (len > max_len)
        return tni_fail(TN_ERR_INVALID, "%s name \"%.32s...\" is longer than %zu bytes", what,
                        name, max_len);
    if (name[0] == '.')
        return tni_fail(TN_ERR_INVALID, "%s name \"%s\" starts with a dot", what, name);
    for (size_t i = 0; i < len; i++) {
        if (!is_name_byte(name[i]))
            return tni_fail(TN_ERR_INVALID,
                            "%s name has byte 0x%02x at %zu; allowed are A-Z a-z 0-9 . _ -",
                            what, (unsigned)(unsigned char)name[i], i);
    }
    return 0;
}
