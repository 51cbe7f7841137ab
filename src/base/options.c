/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/base.h"

/* A larger size is an error: every struct that begins with its size is shorter. */
enum { MOST_BYTES = 4096 };

/* Check a size that a program states. A header of some version may have it if it is aligned. */
static int check_size(const char *what, size_t stated_bytes, size_t known_bytes)
{
    if (stated_bytes > sizeof(size_t) && stated_bytes <= MOST_BYTES &&
        stated_bytes % sizeof(size_t) == 0)
        return 0;
    return tni_fail(TN_ERR_INVALID, "%s.struct_size is %zu: set it to sizeof(%s), here %zu",
                    what, stated_bytes, what, known_bytes);
}

int tni_take_options(const char *what, const void *given, size_t known_bytes, void *ret)
{
    size_t stated_bytes;
    if (given == NULL)
        return 0;
    memcpy(&stated_bytes, given, sizeof stated_bytes);
    int status = check_size(what, stated_bytes, known_bytes);
    if (status != 0)
        return status;
    const unsigned char *bytes = given;
    for (size_t i = known_bytes; i < stated_bytes; i++)
        if (bytes[i] != 0)
            return tni_fail(TN_ERR_UNSUPPORTED,
                            "%s sets byte %zu, which this library does not know", what, i);
    memcpy(ret, given, TNI_MIN(stated_bytes, known_bytes));
    memcpy(ret, &known_bytes, sizeof known_bytes);
    return 0;
}

int tni_check_struct(const char *what, const void *ret, size_t known_bytes)
{
    size_t stated_bytes;
    if (ret == NULL) /* The parameter for a tn_domain_info is ret_info, and so on. */
        return tni_fail(TN_ERR_INVALID, "ret%s is NULL", strrchr(what, '_'));
    memcpy(&stated_bytes, ret, sizeof stated_bytes);
    return check_size(what, stated_bytes, known_bytes);
}

int tni_give_struct(const char *what, const void *ours, size_t known_bytes, void *ret)
{
    size_t stated_bytes;
    int status = tni_check_struct(what, ret, known_bytes);
    if (status != 0)
        return status;
    memcpy(&stated_bytes, ret, sizeof stated_bytes);
    memset(ret, 0, stated_bytes);
    memcpy(ret, ours, TNI_MIN(stated_bytes, known_bytes));
    memcpy(ret, &stated_bytes, sizeof stated_bytes);
    return 0;
}
