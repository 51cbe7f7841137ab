/* SPDX-License-Identifier: Apache-2.0 */
/* element: convert elements to Python numbers and back. Elements need not be aligned. */
#include "tensor.h"

#include <math.h>
#include <string.h>

/*
 * A floating-point format of 8 or 16 bits: sign, exponent, mantissa. A code is the bits without
 * the sign. Codes of finite numbers grow with the number, up to `most`.
 */
struct small_float {
    uint8_t code;
    uint8_t bits;
    uint8_t mantissa_bits;
    uint8_t bias;
    uint16_t most; /* the largest finite code */
    uint16_t
        infinity; /* 0: the format has no infinity, and numbers that are too large become NaN */
    uint16_t nan; /* the code of NaN; with the sign bit where the format needs it */
};

static const struct small_float small_floats[] = {
    {kDLFloat, 16, 10, 15, 0x7bff, 0x7c00, 0x7e00},
    {kDLBfloat, 16, 7, 127, 0x7f7f, 0x7f80, 0x7fc0},
    {kDLFloat8_e3m4, 8, 4, 3, 0x6f, 0x70, 0x78},
    {kDLFloat8_e4m3, 8, 3, 7, 0x77, 0x78, 0x7c},
    {kDLFloat8_e4m3b11fnuz, 8, 3, 11, 0x7f, 0, 0x80},
    {kDLFloat8_e4m3fn, 8, 3, 7, 0x7e, 0, 0x7f},
    {kDLFloat8_e4m3fnuz, 8, 3, 8, 0x7f, 0, 0x80},
    {kDLFloat8_e5m2, 8, 2, 15, 0x7b, 0x7c, 0x7e},
    {kDLFloat8_e5m2fnuz, 8, 2, 16, 0x7f, 0, 0x80},
};

static const struct small_float *find_small(uint8_t code, uint32_t bits)
{
    for (size_t i = 0; i < TNP_COUNT(small_floats); i++)
        if (small_floats[i].code == code && small_floats[i].bits == bits)
            return &small_floats[i];
    return NULL;
}

static double read_small(const struct small_float *f, uint32_t word)
{
    uint32_t sign = 1u << (f->bits - 1), code = word & (sign - 1);
    uint32_t exponent = code >> f->mantissa_bits;
    uint32_t mantissa = code & ((1u << f->mantissa_bits) - 1);
    double size;
    if (f->nan == sign && word == sign)
        return (double)NAN;
    if (code > f->most)
        size = code == f->infinity ? (double)INFINITY : (double)NAN;
    else if (exponent == 0)
        size = ldexp(mantissa, 1 - f->bias - f->mantissa_bits);
    else
        size = ldexp(mantissa + (1u << f->mantissa_bits),
                     (int)exponent - f->bias - f->mantissa_bits);
    return (word & sign) != 0 ? -size : size;
}

/* Round to the nearest number, and ties to an even mantissa. */
static uint32_t write_small(const struct small_float *f, double value)
{
    uint32_t sign = 1u << (f->bits - 1), code = (uint32_t)f->most + 1;
    double size = fabs(value);
    if (isnan(value))
        return f->nan;
    if (isfinite(size)) {
        int exponent;
        frexp(size, &exponent);
        bool is_tiny =
            size == 0 || exponent - 1 < 1 - f->bias; /* frexp() gives no exponent for 0 */
        int unit = is_tiny ? 1 - f->bias : exponent - 1;
        double units = rint(ldexp(size, f->mantissa_bits - unit));
        if (unit + f->bias < 1 << (f->bits - f->mantissa_bits))
            /*
             * If rounding carries the mantissa to the next power of two, the addition
             * increments the exponent.
             */
            code = ((uint32_t)(unit + f->bias - 1) << f->mantissa_bits) + (uint32_t)units;
    }
    if (code > f->most && f->infinity == 0)
        return f->nan;
    if (code > f->most)
        code = f->infinity;
    if (code == 0 && f->nan == sign)
        return 0; /* the format has no negative zero */
    return signbit(value) ? code | sign : code;
}

/* A format of powers of two only: it has no sign and no zero. */
static double read_power(uint32_t word)
{
    return word == 0xff ? (double)NAN : ldexp(1, (int)word - 127);
}

static uint32_t write_power(double value)
{
    if (!(value > 0) || !isfinite(value))
        return 0xff;
    int power = (int)rint(log2(value));
    if (power > 127)
        return 0xff;
    return power < -127 ? 0 : (uint32_t)(power + 127);
}

/* ---- one component ----------------------------------------------------------------------- */

static double read_float(uint8_t code, uint32_t bits, const uint8_t *at)
{
    const struct small_float *small = find_small(code, bits);
    uint16_t word = 0;
    double wide;
    float narrow;
    if (code == kDLFloat && bits == 64)
        return memcpy(&wide, at, sizeof wide), wide;
    if (code == kDLFloat && bits == 32)
        return memcpy(&narrow, at, sizeof narrow), (double)narrow;
    if (bits == 16)
        memcpy(&word, at, sizeof word);
    else
        word = *at;
    return small != NULL ? read_small(small, word) : read_power(word);
}

static void write_float(uint8_t code, uint32_t bits, uint8_t *at, double value)
{
    const struct small_float *small = find_small(code, bits);
    float narrow = (float)value;
    if (code == kDLFloat && bits == 64) {
        memcpy(at, &value, sizeof value);
    } else if (code == kDLFloat && bits == 32) {
        memcpy(at, &narrow, sizeof narrow);
    } else {
        uint16_t word =
            (uint16_t)(small != NULL ? write_small(small, value) : write_power(value));
        if (bits == 16)
            memcpy(at, &word, sizeof word);
        else
            *at = (uint8_t)word;
    }
}

static int64_t read_int(uint32_t bits, const uint8_t *at)
{
    int64_t wide;
    int32_t word;
    int16_t half;
    if (bits == 64)
        return memcpy(&wide, at, sizeof wide), wide;
    if (bits == 32)
        return memcpy(&word, at, sizeof word), word;
    if (bits == 16)
        return memcpy(&half, at, sizeof half), half;
    return (int8_t)*at;
}

/* Convert before copying, so that the code works in any byte order. */
static void write_word(uint32_t bits, uint8_t *at, uint64_t value)
{
    uint32_t word = (uint32_t)value;
    uint16_t half = (uint16_t)value;
    if (bits == 64)
        memcpy(at, &value, sizeof value);
    else if (bits == 32)
        memcpy(at, &word, sizeof word);
    else if (bits == 16)
        memcpy(at, &half, sizeof half);
    else
        *at = (uint8_t)value;
}

static int fail_range(tn_dtype dtype, PyObject *value)
{
    PyErr_Format(PyExc_OverflowError, "%R does not fit into %sint%d", value,
                 TN_DTYPE_CODE(dtype) == kDLUInt ? "u" : "", (int)TN_DTYPE_BITS(dtype));
    return -1;
}

static int write_int(tn_dtype dtype, uint8_t *at, PyObject *value)
{
    PyObject *index = PyNumber_Index(value);
    uint64_t word;
    if (index == NULL)
        return -1;
    if (TN_DTYPE_CODE(dtype) == kDLUInt) {
        word = PyLong_AsUnsignedLongLong(index);
    } else {
        long long number = PyLong_AsLongLong(index);
        word = (uint64_t)number;
    }
    Py_DECREF(index);
    bool failed = word == UINT64_MAX && PyErr_Occurred();
    if (failed && !PyErr_ExceptionMatches(PyExc_OverflowError))
        return -1;
    PyErr_Clear();
    uint32_t bits = TN_DTYPE_BITS(dtype);
    uint64_t limit = bits == 64 ? 0 : UINT64_C(1) << bits;
    if (limit != 0 && TN_DTYPE_CODE(dtype) == kDLUInt)
        failed = failed || word >= limit;
    else if (limit != 0)
        failed = failed || word + limit / 2 >= limit;
    if (failed)
        return fail_range(dtype, value);
    write_word(bits, at, word);
    return 0;
}

static PyObject *read_one(tn_dtype dtype, const uint8_t *at)
{
    uint8_t code = TN_DTYPE_CODE(dtype), bits = TN_DTYPE_BITS(dtype);
    switch (code) {
    case kDLBool:
        return PyBool_FromLong(*at != 0);
    case kDLInt:
        return PyLong_FromLongLong(read_int(bits, at));
    case kDLUInt: {
        uint64_t word = (uint64_t)read_int(bits, at);
        uint64_t mask = bits == 64 ? UINT64_MAX : (UINT64_C(1) << bits) - 1;
        return PyLong_FromUnsignedLongLong(word & mask);
    }
    case kDLComplex: {
        uint32_t half = bits / 2;
        return PyComplex_FromDoubles(read_float(kDLFloat, half, at),
                                     read_float(kDLFloat, half, at + half / 8));
    }
    case kDLOpaqueHandle:
        return PyLong_FromUnsignedLongLong((uint64_t)read_int(bits, at));
    default:
        return PyFloat_FromDouble(read_float(code, bits, at));
    }
}

/* ---- whole elements ---------------------------------------------------------------------- */

PyObject *tnp_element_get(tn_dtype dtype, const void *at)
{
    if (TN_DTYPE_LANES(dtype) == 1)
        return read_one(dtype, at);
    PyObject *lanes = PyTuple_New(TN_DTYPE_LANES(dtype));
    for (uint16_t i = 0; lanes != NULL && i < TN_DTYPE_LANES(dtype); i++) {
        PyObject *lane =
            read_one(dtype, (const uint8_t *)at + (size_t)i * (TN_DTYPE_BITS(dtype) / 8));
        if (lane == NULL)
            Py_CLEAR(lanes);
        else
            PyTuple_SET_ITEM(lanes, i, lane);
    }
    return lanes;
}

static int set_complex(tn_dtype dtype, uint8_t *at, PyObject *value)
{
    Py_complex number = PyComplex_AsCComplex(value);
    if (number.real == -1.0 && PyErr_Occurred())
        return -1;
    write_float(kDLFloat, TN_DTYPE_BITS(dtype) / 2, at, number.real);
    write_float(kDLFloat, TN_DTYPE_BITS(dtype) / 2, at + TN_DTYPE_BITS(dtype) / 16,
                number.imag);
    return 0;
}

static int set_float(tn_dtype dtype, uint8_t *at, PyObject *value)
{
    double number = PyFloat_AsDouble(value);
    if (number == -1.0 && PyErr_Occurred())
        return -1;
    write_float(TN_DTYPE_CODE(dtype), TN_DTYPE_BITS(dtype), at, number);
    return 0;
}

static int set_bool(uint8_t *at, PyObject *value)
{
    int truth = PyObject_IsTrue(value);
    if (truth >= 0)
        *at = (uint8_t)truth;
    return truth < 0 ? -1 : 0;
}

int tnp_element_set(tn_dtype dtype, void *at, PyObject *value)
{
    if (TN_DTYPE_LANES(dtype) != 1) {
        PyErr_Format(PyExc_TypeError, "an element of %d lanes cannot be set from a number",
                     (int)TN_DTYPE_LANES(dtype));
        return -1;
    }
    switch (TN_DTYPE_CODE(dtype)) {
    case kDLBool:
        return set_bool(at, value);
    case kDLInt:
    case kDLUInt:
    case kDLOpaqueHandle:
        return write_int(dtype, at, value);
    case kDLComplex:
        return set_complex(dtype, at, value);
    default:
        return set_float(dtype, at, value);
    }
}
