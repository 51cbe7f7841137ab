/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors_tensor: reads and checks what a header says about one tensor.
 *
 * I1  A product of numbers of the file is computed with a check for overflow.
 */
#include <inttypes.h>
#include <string.h>
#include <tenon/dlpack.h>

#include "safetensors_json.h"

/* All types of the format. 0: not a whole number of bytes. */
static const struct dtype_row {
    const char *name;
    tn_dtype dtype;
} dtype_rows[] = {
    {"BOOL", TN_BOOL},
    {"F4", 0},
    {"F6_E2M3", 0},
    {"F6_E3M2", 0},
    {"U8", TN_UINT8},
    {"I8", TN_INT8},
    {"F8_E5M2", TN_FLOAT8_E5M2},
    {"F8_E4M3", TN_FLOAT8_E4M3FN},
    {"F8_E8M0", TN_DTYPE(kDLFloat8_e8m0fnu, 8, 1)},
    {"F8_E4M3FNUZ", TN_DTYPE(kDLFloat8_e4m3fnuz, 8, 1)},
    {"F8_E5M2FNUZ", TN_DTYPE(kDLFloat8_e5m2fnuz, 8, 1)},
    {"I16", TN_INT16},
    {"U16", TN_UINT16},
    {"F16", TN_FLOAT16},
    {"BF16", TN_BFLOAT16},
    {"I32", TN_INT32},
    {"U32", TN_UINT32},
    {"F32", TN_FLOAT32},
    {"C64", TN_COMPLEX64},
    {"F64", TN_FLOAT64},
    {"I64", TN_INT64},
    {"U64", TN_UINT64},
};

static int read_dtype(const struct safetensors_json *json, const json_t *value,
                      tn_dtype *ret_dtype)
{
    const char *name = json_string_value(value);

    if (name == NULL)
        return safetensors_fail(json->place, TN_ERR_INVALID, "its dtype is %s, not a text",
                                safetensors_json_type(value));
    bool has_nul = strlen(name) != json_string_length(value);
    for (size_t i = 0; i < sizeof dtype_rows / sizeof dtype_rows[0] && !has_nul; i++)
        if (strcmp(dtype_rows[i].name, name) == 0) {
            *ret_dtype = dtype_rows[i].dtype;
            return *ret_dtype != 0
                       ? 0
                       : safetensors_fail(json->place, TN_ERR_UNSUPPORTED,
                                          "its dtype %s is not a whole number of bytes, and "
                                          "tenon has no such type",
                                          name);
        }
    return safetensors_fail(json->place, TN_ERR_INVALID,
                            "its dtype '%.64s'%s is none of the format", name,
                            has_nul ? " with a NUL after it" : "");
}

/* Read a number of an array that is not negative. */
static int read_whole(const struct safetensors_json *json, const char *what,
                      const json_t *value, int64_t *ret)
{
    if (json_is_real(value))
        return safetensors_fail(json->place, TN_ERR_INVALID,
                                "%s has %.17g, which is not written as a whole number", what,
                                json_real_value(value));
    if (!json_is_integer(value))
        return safetensors_fail(json->place, TN_ERR_INVALID, "%s has %s, not a number", what,
                                safetensors_json_type(value));
    *ret = json_integer_value(value);
    if (*ret < 0)
        return safetensors_fail(json->place, TN_ERR_INVALID, "%s has %" PRId64, what, *ret);
    return 0;
}

static int read_shape(const struct safetensors_json *json, const json_t *value,
                      struct safetensors_dims *dims, int32_t *ret_ndim)
{
    size_t ndim = json_array_size(value);

    if (!json_is_array(value))
        return safetensors_fail(json->place, TN_ERR_INVALID, "its shape is %s, not an array",
                                safetensors_json_type(value));
    if (ndim > TN_MAX_NDIM)
        return safetensors_fail(json->place, TN_ERR_UNSUPPORTED,
                                "its shape has %zu axes, and tenon has at most %d", ndim,
                                TN_MAX_NDIM);
    for (size_t i = 0; i < ndim; i++) {
        int64_t *at = safetensors_grow(dims->at, dims->count, &dims->room, sizeof *at);
        if (at == NULL)
            return safetensors_fail(json->place, TN_ERR_NO_MEMORY,
                                    "there is no memory for the header");
        dims->at = at;
        int status = read_whole(json, "its shape", json_array_get(value, i), &at[dims->count]);
        if (status < 0)
            return status;
        dims->count++;
    }
    *ret_ndim = (int32_t)ndim;
    return 0;
}

static int read_offsets(const struct safetensors_json *json, const json_t *value,
                        struct safetensors_tensor *tensor)
{
    int64_t offsets[2] = {0};

    if (!json_is_array(value))
        return safetensors_fail(json->place, TN_ERR_INVALID,
                                "its data_offsets are %s, not an array",
                                safetensors_json_type(value));
    if (json_array_size(value) != 2)
        return safetensors_fail(json->place, TN_ERR_INVALID,
                                "its data_offsets are %zu numbers, not 2",
                                json_array_size(value));
    for (size_t i = 0; i < 2; i++) {
        int status =
            read_whole(json, "its data_offsets", json_array_get(value, i), &offsets[i]);
        if (status < 0)
            return status;
    }
    if (offsets[0] > offsets[1])
        return safetensors_fail(json->place, TN_ERR_INVALID,
                                "its data begins at byte %" PRId64 " and ends at byte %" PRId64,
                                offsets[0], offsets[1]);
    tensor->begin_off = (uint64_t)offsets[0];
    tensor->end_off = (uint64_t)offsets[1];
    return 0;
}

/*
 * As tn_tensor_create() computes it: the sizes that are not 0 have a product, too, that is
 * below 2^63. @param shape  [tensor->ndim]
 */
static int check_size(const struct safetensors_json *json,
                      const struct safetensors_tensor *tensor, const int64_t *shape)
{
    int64_t bytes = TN_DTYPE_BITS(tensor->dtype) / 8;
    bool is_empty = false;

    for (int32_t i = 0; i < tensor->ndim; i++)
        if (shape[i] == 0)
            is_empty = true;
        else if (__builtin_mul_overflow(bytes, shape[i], &bytes))
            return safetensors_fail(
                json->place, TN_ERR_INVALID,
                "its shape and dtype are 2^63 bytes or more, at axis %" PRId32
                " of size %" PRId64,
                i, shape[i]);
    if (is_empty)
        bytes = 0;
    if (safetensors_size(tensor) != (uint64_t)bytes)
        return safetensors_fail(json->place, TN_ERR_INVALID,
                                "its shape and dtype are %" PRId64
                                " bytes, but its data_offsets are %" PRIu64 " bytes apart",
                                bytes, safetensors_size(tensor));
    return 0;
}

static const char *const keys[] = {"dtype", "shape", "data_offsets"};

static bool is_key(const char *text)
{
    bool is_one = false;
    for (size_t i = 0; i < 3; i++)
        is_one |= strcmp(text, keys[i]) == 0;
    return is_one;
}

static int check_keys(const struct safetensors_json *json, json_t *value)
{

    if (!json_is_object(value))
        return safetensors_fail(json->place, TN_ERR_INVALID, "it is %s, not an object",
                                safetensors_json_type(value));
    for (size_t i = 0; i < 3; i++)
        if (json_object_get(value, keys[i]) == NULL)
            return safetensors_fail(json->place, TN_ERR_INVALID, "it has no '%s'", keys[i]);
    for (void *at = json_object_iter(value); at != NULL;
         at = json_object_iter_next(value, at)) {
        const char *key = json_object_iter_key(at);
        if (!is_key(key))
            return safetensors_fail(json->place, TN_ERR_INVALID,
                                    "its key '%.64s' is none of the format", key);
    }
    return 0;
}

/*
 * jansson reads -0 as 0, and the format has no such number. pre: the keys and the dtype,
 * which are all texts, were checked, and have no '-'. @param at  the JSON of the tensor
 */
static int check_minus_zero(const struct safetensors_json *json, const char *at)
{
    while ((at = memchr(at, '-', (size_t)(json->at - at))) != NULL)
        if (*++at == '0' && strchr(".eE", at[1]) == NULL)
            return safetensors_fail(json->place, TN_ERR_INVALID, "it has the number -0");
    return 0;
}

static int read_places(const struct safetensors_json *json, const json_t *value,
                       struct safetensors_dims *dims, struct safetensors_tensor *tensor)
{
    int status = read_shape(json, json_object_get(value, "shape"), dims, &tensor->ndim);
    if (status == 0)
        status = read_offsets(json, json_object_get(value, "data_offsets"), tensor);
    if (status < 0)
        return status;
    return check_size(json, tensor,
                      tensor->ndim > 0 ? dims->at + dims->count - tensor->ndim : NULL);
}

int safetensors_tensor_read(struct safetensors_json *json, struct safetensors_dims *dims,
                            struct safetensors_tensor *tensor)
{
    const char *begin = json->at;
    json_t *value;

    int status = safetensors_json_value(json, &value);
    if (status < 0)
        return status;
    status = check_keys(json, value);
    if (status == 0)
        status = read_dtype(json, json_object_get(value, "dtype"), &tensor->dtype);
    if (status == 0)
        status = check_minus_zero(json, begin);
    if (status == 0)
        status = read_places(json, value, dims, tensor);
    json_decref(value);
    return status;
}
