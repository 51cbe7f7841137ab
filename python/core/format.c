/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format: convert dtypes to formats of struct and of the buffer protocol, and back.
 * Source: PEP 3118, "Additions to the struct string-syntax".
 */
#include "tensor.h"

#include <string.h>

static const struct {
    uint8_t code;
    uint8_t bits;
    const char *letters;
} formats[] = {
    {kDLBool, 8, "?"},      {kDLInt, 8, "b"},        {kDLInt, 16, "h"},   {kDLInt, 32, "i"},
    {kDLInt, 64, "q"},      {kDLUInt, 8, "B"},       {kDLUInt, 16, "H"},  {kDLUInt, 32, "I"},
    {kDLUInt, 64, "Q"},     {kDLFloat, 16, "e"},     {kDLFloat, 32, "f"}, {kDLFloat, 64, "d"},
    {kDLComplex, 64, "Zf"}, {kDLComplex, 128, "Zd"},
};

const char *tnp_dtype_letters(tn_dtype dtype)
{
    for (size_t i = 0; i < TNP_COUNT(formats); i++)
        if (formats[i].code == TN_DTYPE_CODE(dtype) &&
            formats[i].bits == TN_DTYPE_BITS(dtype) && TN_DTYPE_LANES(dtype) == 1)
            return formats[i].letters;
    return NULL;
}

/* Find the type code of a letter. The exporter states the size. */
static int code_of(const char *letters, uint8_t *ret_code)
{
    bool is_pair = letters[0] == 'Z' && letters[1] != '\0' && letters[2] == '\0';
    if (is_pair && strchr("fd", letters[1]) != NULL)
        return *ret_code = kDLComplex, 0;
    if (letters[0] == '\0' || letters[1] != '\0')
        return -1;
    if (letters[0] == '?')
        *ret_code = kDLBool;
    else if (strchr("bhilqn", letters[0]) != NULL)
        *ret_code = kDLInt;
    else if (strchr("BHILQN", letters[0]) != NULL)
        *ret_code = kDLUInt;
    else if (strchr("efd", letters[0]) != NULL)
        *ret_code = kDLFloat;
    else
        return -1;
    return 0;
}

static int fail_format(const char *format, const char *why)
{
    PyErr_Format(PyExc_TypeError, "a buffer of format '%.100s': %s", format, why);
    return -1;
}

int tnp_parse_format(const char *format, Py_ssize_t item_bytes, tn_dtype *ret)
{
    static const char foreign_order = PY_BIG_ENDIAN ? '<' : '>';
    const char *letters = format;
    if (letters[0] != '\0' && strchr("@=<>!", letters[0]) != NULL)
        letters++;
    bool is_foreign =
        letters != format && (*format == foreign_order || (!PY_BIG_ENDIAN && *format == '!'));
    if (is_foreign && item_bytes > 1)
        return fail_format(format, "its byte order is not this machine's");
    if (strchr(letters, 'O') != NULL)
        return fail_format(format, "objects of Python cannot be shared");
    if (strchr(letters, '{') != NULL || strchr(letters, ':') != NULL)
        return fail_format(format, "structured elements are no tensor's");
    if (letters[0] == 'M' || letters[0] == 'm')
        return fail_format(format, "dates and durations are no tensor's elements");
    uint8_t code;
    if (code_of(letters, &code) < 0 || item_bytes < 1 || item_bytes > 16)
        return fail_format(format, "no dtype of tensors has it");
    *ret = TN_DTYPE(code, item_bytes * 8, 1);
    if (tnp_dtype_letters(*ret) == NULL)
        return fail_format(format, "no dtype of tensors has it");
    return 0;
}
