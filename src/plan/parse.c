/* SPDX-License-Identifier: Apache-2.0 */
/* parse: reads the words of resources and requests: NAME=VALUE, and amounts. */
#include <ctype.h>
#include <stdio.h>

#include "plan/parse.h"

static bool is_gap(char c) { return isspace((unsigned char)c) || c == ',' || c == ';'; }

static bool is_name(char c) { return isalnum((unsigned char)c) || c == '_' || c == '-'; }

int tni_word_next(const char **at, struct tni_word *ret_word)
{
    const char *p = *at;
    while (is_gap(*p))
        p++;
    if (*p == '\0')
        return 0;
    const char *name = p;
    while (is_name(*p))
        p++;
    if (p == name || *p != '=')
        return tni_fail(TN_ERR_INVALID, "\"%.40s\" does not begin with NAME=VALUE", name);
    if (p - name >= TNI_POOL_NAME_BYTES)
        return tni_fail(TN_ERR_INVALID,
                        "\"%.40s\" begins with a name that is longer than %d bytes", name,
                        TNI_POOL_NAME_BYTES - 1);
    ret_word->name = name;
    ret_word->name_len = (int)(p - name);
    const char *value = ++p;
    for (int depth = 0; *p != '\0' && (depth > 0 || !is_gap(*p)); p++)
        depth += *p == '(' ? 1 : *p == ')' ? -1 : 0;
    ret_word->value = value;
    ret_word->value_len = (int)(p - value);
    *at = p;
    return 1;
}

static int fail_amount(const struct tni_word *word)
{
    return tni_fail(
        TN_ERR_INVALID,
        "%.*s=%.*s: an amount is a number from 0 to 10^12, with at most four decimals",
        word->name_len, word->name, TNI_MIN(word->value_len, 40), word->value);
}

int tni_word_amount(const struct tni_word *word, uint64_t *ret_amount)
{
    const char *p = word->value, *end = p + word->value_len;
    const uint64_t most = UINT64_C(1000000000000);
    uint64_t whole = 0, part = 0, scale = TNI_UNIT;
    if (p == end || !isdigit((unsigned char)*p))
        return fail_amount(word);
    for (; p < end && isdigit((unsigned char)*p); p++) {
        whole = whole * 10 + (uint64_t)(*p - '0');
        if (whole > most)
            return fail_amount(word);
    }
    if (p < end && *p == '.') {
        for (p++; p < end && isdigit((unsigned char)*p); p++) {
            if (scale == 1 && *p != '0')
                return fail_amount(word);
            if (scale == 1)
                continue;
            scale /= 10;
            part += (uint64_t)(*p - '0') * scale;
        }
    }
    if (p != end || whole * TNI_UNIT + part > most * TNI_UNIT)
        return fail_amount(word);
    *ret_amount = whole * TNI_UNIT + part;
    return 0;
}

char *tni_amount_print(uint64_t amount, char *text, size_t size_bytes)
{
    int len = snprintf(text, size_bytes, "%llu.%04llu", (unsigned long long)(amount / TNI_UNIT),
                       (unsigned long long)(amount % TNI_UNIT));
    while (len > 0 && (size_t)len < size_bytes && text[len - 1] == '0')
        text[--len] = '\0';
    if (len > 0 && (size_t)len < size_bytes && text[len - 1] == '.')
        text[--len] = '\0';
    return text;
}
