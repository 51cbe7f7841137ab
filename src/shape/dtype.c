/* SPDX-License-Identifier: Apache-2.0 */
/* dtype: finds the types of elements by number and by name. */
#include "shape/shape.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Every type that has a name. Types whose elements are not whole bytes are listed too, so that
 * an error can name them.
 */
static const struct dtype_name {
    uint8_t code;
    uint8_t bits;
    const char *name;
} names[] = {
    {kDLBool, 8, "bool"},
    {kDLInt, 8, "int8"},
    {kDLInt, 16, "int16"},
    {kDLInt, 32, "int32"},
    {kDLInt, 64, "int64"},
    {kDLUInt, 8, "uint8"},
    {kDLUInt, 16, "uint16"},
    {kDLUInt, 32, "uint32"},
    {kDLUInt, 64, "uint64"},
    {kDLFloat, 16, "float16"},
    {kDLFloat, 32, "float32"},
    {kDLFloat, 64, "float64"},
    {kDLBfloat, 16, "bfloat16"},
    {kDLComplex, 32, "complex32"},
    {kDLComplex, 64, "complex64"},
    {kDLComplex, 128, "complex128"},
    {kDLFloat8_e3m4, 8, "float8_e3m4"},
    {kDLFloat8_e4m3, 8, "float8_e4m3"},
    {kDLFloat8_e4m3b11fnuz, 8, "float8_e4m3b11fnuz"},
    {kDLFloat8_e4m3fn, 8, "float8_e4m3fn"},
    {kDLFloat8_e4m3fnuz, 8, "float8_e4m3fnuz"},
    {kDLFloat8_e5m2, 8, "float8_e5m2"},
    {kDLFloat8_e5m2fnuz, 8, "float8_e5m2fnuz"},
    {kDLFloat8_e8m0fnu, 8, "float8_e8m0fnu"},
    {kDLBool, 1, "bool1"},
    {kDLInt, 1, "int1"},
    {kDLInt, 2, "int2"},
    {kDLInt, 4, "int4"},
    {kDLUInt, 1, "uint1"},
    {kDLUInt, 2, "uint2"},
    {kDLUInt, 4, "uint4"},
    {kDLFloat6_e2m3fn, 6, "float6_e2m3fn"},
    {kDLFloat6_e3m2fn, 6, "float6_e3m2fn"},
    {kDLFloat4_e2m1fn, 4, "float4_e2m1fn"},
    {kDLOpaqueHandle, 64, "opaque64"},
};

/*
 * Bit n of widths[code] is set if the code has elements of n bytes. The table repeats `names`
 * in a form that needs no loop, because tn_dtype_size() is on the hot path.
 */
static const uint32_t widths[] = {
    [kDLInt] = 1u << 1 | 1u << 2 | 1u << 4 | 1u << 8,
    [kDLUInt] = 1u << 1 | 1u << 2 | 1u << 4 | 1u << 8,
    [kDLFloat] = 1u << 2 | 1u << 4 | 1u << 8,
    [kDLBfloat] = 1u << 2,
    [kDLComplex] = 1u << 4 | 1u << 8 | 1u << 16,
    [kDLBool] = 1u << 1,
    [kDLFloat8_e3m4] = 1u << 1,
    [kDLFloat8_e4m3] = 1u << 1,
    [kDLFloat8_e4m3b11fnuz] = 1u << 1,
    [kDLFloat8_e4m3fn] = 1u << 1,
    [kDLFloat8_e4m3fnuz] = 1u << 1,
    [kDLFloat8_e5m2] = 1u << 1,
    [kDLFloat8_e5m2fnuz] = 1u << 1,
    [kDLFloat8_e8m0fnu] = 1u << 1,
};

/* The public headers write the codes as numbers, so that they need no DLPack header. */
_Static_assert(TN_INT8 == TN_DTYPE(kDLInt, 8, 1) && TN_UINT8 == TN_DTYPE(kDLUInt, 8, 1) &&
                   TN_FLOAT16 == TN_DTYPE(kDLFloat, 16, 1) &&
                   TN_BFLOAT16 == TN_DTYPE(kDLBfloat, 16, 1) &&
                   TN_COMPLEX64 == TN_DTYPE(kDLComplex, 64, 1) &&
                   TN_BOOL == TN_DTYPE(kDLBool, 8, 1) &&
                   TN_FLOAT8_E4M3FN == TN_DTYPE(kDLFloat8_e4m3fn, 8, 1) &&
                   TN_FLOAT8_E5M2 == TN_DTYPE(kDLFloat8_e5m2, 8, 1),
               "the public types have the codes of DLPack");

static const struct dtype_name *find(tn_dtype dtype)
{
    for (size_t i = 0; i < TNI_COUNT(names); i++)
        if (names[i].code == TN_DTYPE_CODE(dtype) && names[i].bits == TN_DTYPE_BITS(dtype))
            return &names[i];
    return NULL;
}

static int refuse(tn_dtype dtype)
{
    const struct dtype_name *found = TN_DTYPE_LANES(dtype) != 0 ? find(dtype) : NULL;
    if (found == NULL)
        return tni_fail(TN_ERR_INVALID, "no element type has the code %u, %u bits and %u lanes",
                        TN_DTYPE_CODE(dtype), TN_DTYPE_BITS(dtype), TN_DTYPE_LANES(dtype));
    if (TN_DTYPE_CODE(dtype) == kDLOpaqueHandle)
        return tni_fail(
            TN_ERR_UNSUPPORTED,
            "the type %s is not supported: a handle means nothing in another process",
            found->name);
    return tni_fail(TN_ERR_UNSUPPORTED,
                    "the type %s is not supported: its elements of %u bits are not whole bytes",
                    found->name, TN_DTYPE_BITS(dtype));
}

int tn_dtype_size(tn_dtype dtype, size_t *ret_bytes)
{
    uint32_t code = TN_DTYPE_CODE(dtype), bits = TN_DTYPE_BITS(dtype), bytes = bits / 8;
    if (TNI_UNLIKELY(code >= TNI_COUNT(widths) || bits % 8 != 0 || bytes > 16 ||
                     (widths[code] >> bytes & 1) == 0 || TN_DTYPE_LANES(dtype) == 0 ||
                     ret_bytes == NULL))
        return ret_bytes == NULL ? tni_fail_null("ret_bytes") : refuse(dtype);
    *ret_bytes = (size_t)bytes * TN_DTYPE_LANES(dtype);
    return 0;
}

int tn_dtype_name(tn_dtype dtype, char *name, size_t size_bytes)
{
    char text[TNI_DTYPE_NAME_BYTES];
    const struct dtype_name *found = TN_DTYPE_LANES(dtype) != 0 ? find(dtype) : NULL;

    if (name == NULL)
        return tni_fail_null("name");
    if (found == NULL)
        return refuse(dtype);
    if (TN_DTYPE_LANES(dtype) == 1)
        snprintf(text, sizeof text, "%s", found->name);
    else
        snprintf(text, sizeof text, "%sx%u", found->name, TN_DTYPE_LANES(dtype));
    if (strlen(text) >= size_bytes)
        return tni_fail(TN_ERR_INVALID, "the name of the type, '%s', does not fit in %zu bytes",
                        text, size_bytes);
    memcpy(name, text, strlen(text) + 1);
    return 0;
}

/*
 * The lanes that follow the name of a type: "" is one lane, "x2" to "x65535" are more. Any
 * other text is refused, so that each type has exactly one name.
 */
static bool parse_lanes(const char *text, uint16_t *ret_lanes)
{
    uint32_t lanes = 0;

    if (*text == '\0') {
        *ret_lanes = 1;
        return true;
    }
    if (text[0] != 'x' || text[1] == '0')
        return false;
    for (text++; *text >= '0' && *text <= '9' && lanes <= UINT16_MAX; text++)
        lanes = lanes * 10 + (uint32_t)(*text - '0');
    if (*text != '\0' || lanes < 2 || lanes > UINT16_MAX)
        return false;
    *ret_lanes = (uint16_t)lanes;
    return true;
}

int tn_dtype_parse(const char *name, tn_dtype *ret_dtype)
{
    if (name == NULL || ret_dtype == NULL)
        return tni_fail_null(name == NULL ? "name" : "ret_dtype");
    for (size_t i = 0; i < TNI_COUNT(names); i++) {
        size_t length = strlen(names[i].name);
        uint16_t lanes;
        if (strncmp(name, names[i].name, length) == 0 && parse_lanes(name + length, &lanes)) {
            *ret_dtype = TN_DTYPE(names[i].code, names[i].bits, lanes);
            return 0;
        }
    }
    return tni_fail(TN_ERR_INVALID, "no element type has the name '%s'", name);
}

void tni_dtype_describe(tn_dtype dtype, char text[TNI_DTYPE_NAME_BYTES])
{
    if (TN_DTYPE_LANES(dtype) == 0 || find(dtype) == NULL)
        snprintf(text, TNI_DTYPE_NAME_BYTES, "type %u/%u/%u", TN_DTYPE_CODE(dtype),
                 TN_DTYPE_BITS(dtype), TN_DTYPE_LANES(dtype));
    else if (tn_dtype_name(dtype, text, TNI_DTYPE_NAME_BYTES) != 0)
        text[0] = '\0';
}
