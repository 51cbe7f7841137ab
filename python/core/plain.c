/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plain: pickle small values of built-in types without a pickler.
 *
 * Most messages of a busy queue are numbers, short texts, and small tuples, lists and dicts of
 * these. Making and calling a pickler costs several times the work that it does for such a
 * value.
 *
 * The result is an ordinary pickle without a memo. A container with two or more references may
 * stand in two places of the value, so the pickler has to write it. A number, a text or bytes
 * may be written twice: a copy is as good.
 */
#include "message.h"

#include <string.h>

enum { MOST_LEVELS = 4 };

/* Where a pickle is written. */
struct writing {
    char *at, *end;
};

static bool write_value(struct writing *w, PyObject *value, int level);

static bool write_bytes(struct writing *w, const void *bytes, size_t size_bytes)
{
    if ((size_t)(w->end - w->at) < size_bytes)
        return false;
    memcpy(w->at, bytes, size_bytes);
    w->at += size_bytes;
    return true;
}

static bool write_code(struct writing *w, char code) { return write_bytes(w, &code, 1); }

/* Write an opcode and a number of so many bytes, in little-endian order. */
static bool write_number(struct writing *w, char code, uint64_t number, size_t size_bytes)
{
    char written[sizeof number];
    for (size_t i = 0; i < size_bytes; i++)
        written[i] = (char)(number >> (8 * i));
    return write_code(w, code) && write_bytes(w, written, size_bytes);
}

static bool write_int(struct writing *w, PyObject *value)
{
    int is_beyond;
    long long number = PyLong_AsLongLongAndOverflow(value, &is_beyond);
    if (is_beyond != 0)
        return false;
    if (number >= 0 && number <= UINT8_MAX)
        return write_number(w, 'K', (uint64_t)number, 1);
    if (number >= 0 && number <= UINT16_MAX)
        return write_number(w, 'M', (uint64_t)number, 2);
    if (number >= INT32_MIN && number <= INT32_MAX)
        return write_number(w, 'J', (uint64_t)number, 4);
    return write_code(w, '\x8a') &&
           write_number(w, sizeof number, (uint64_t)number, sizeof number);
}

/* Pickles hold floats in big-endian order. */
static bool write_float(struct writing *w, PyObject *value)
{
    double number = PyFloat_AS_DOUBLE(value);
    uint64_t bits, reversed = 0;
    memcpy(&bits, &number, sizeof bits);
    for (int i = 0; i < 8; i++)
        reversed |= (bits >> (8 * i) & 0xff) << (8 * (7 - i));
    return write_number(w, 'G', reversed, sizeof reversed);
}

static bool write_text(struct writing *w, char code, const void *bytes, Py_ssize_t size_bytes)
{
    return size_bytes <= UINT8_MAX && write_number(w, code, (uint64_t)size_bytes, 1) &&
           write_bytes(w, bytes, (size_t)size_bytes);
}

/* Tuples of up to three elements have opcodes of their own and need no mark. */
static bool write_tuple(struct writing *w, PyObject *tuple, int level)
{
    static const char codes[] = {')', '\x85', '\x86', '\x87'};
    Py_ssize_t n = PyTuple_GET_SIZE(tuple);
    bool is_written = n < (Py_ssize_t)sizeof codes || write_code(w, '(');
    for (Py_ssize_t i = 0; i < n && is_written; i++)
        is_written = write_value(w, PyTuple_GET_ITEM(tuple, i), level);
    return is_written && write_code(w, n < (Py_ssize_t)sizeof codes ? codes[n] : 't');
}

static bool write_list(struct writing *w, PyObject *list, int level)
{
    bool is_written = write_bytes(w, "](", 2);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list) && is_written; i++)
        is_written = write_value(w, PyList_GET_ITEM(list, i), level);
    return is_written && write_code(w, 'e');
}

static bool write_dict(struct writing *w, PyObject *dict, int level)
{
    PyObject *key, *value;
    Py_ssize_t place = 0;
    bool is_written = write_bytes(w, "}(", 2);
    while (is_written && PyDict_Next(dict, &place, &key, &value))
        is_written = write_value(w, key, level) && write_value(w, value, level);
    return is_written && write_code(w, 'u');
}

static bool write_container(struct writing *w, PyObject *value, int level)
{
    if (level == MOST_LEVELS)
        return false;
    if (PyTuple_CheckExact(value))
        return write_tuple(w, value, level + 1);
    if (PyList_CheckExact(value))
        return write_list(w, value, level + 1);
    return PyDict_CheckExact(value) && write_dict(w, value, level + 1);
}

/*
 * @return false: the pickler must write the value. No Python code runs here, so no container
 *     changes meanwhile.
 */
static bool write_value(struct writing *w, PyObject *value, int level)
{
    if (PyLong_CheckExact(value))
        return write_int(w, value);
    if (PyUnicode_CheckExact(value)) /* ASCII text is valid UTF-8 */
        return PyUnicode_IS_COMPACT_ASCII(value) &&
               write_text(w, '\x8c', PyUnicode_1BYTE_DATA(value), PyUnicode_GET_LENGTH(value));
    if (PyFloat_CheckExact(value))
        return write_float(w, value);
    if (PyBytes_CheckExact(value))
        return write_text(w, 'C', PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value));
    if (value == Py_None)
        return write_code(w, 'N');
    if (PyBool_Check(value))
        return write_code(w, value == Py_True ? '\x88' : '\x89');
    return (level == 0 || Py_REFCNT(value) == 1) && write_container(w, value, level);
}

size_t tnp_pickle_plain(PyObject *value, char *to, size_t room)
{
    struct writing w = {to, to + room};
    bool is_written =
        write_bytes(&w, "\x80\x05", 2) && write_value(&w, value, 0) && write_code(&w, '.');
    return is_written ? (size_t)(w.at - to) : 0;
}
