/* SPDX-License-Identifier: Apache-2.0 */
/* store_key: the keys of stores, from Python. */
#include "store.h"

#include <string.h>

const char *tnp_key(PyObject *text, bool is_prefix)
{
    const char *what = is_prefix ? "prefix" : "key", *bytes;
    Py_ssize_t size;
    if (!PyUnicode_Check(text)) {
        PyErr_Format(PyExc_TypeError, "a %s of a store is a str, not %.200s", what,
                     Py_TYPE(text)->tp_name);
        return NULL;
    }
    if ((bytes = PyUnicode_AsUTF8AndSize(text, &size)) == NULL) {
        if (PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) {
            PyErr_Clear();
            tnp_raise_text(TN_ERR_INVALID, "the %s %.100A has a surrogate: it is not text",
                           what, text);
        }
        return NULL;
    }
    if (size == 0 && !is_prefix)
        tnp_raise_text(TN_ERR_INVALID, "the key is empty");
    else if (size > TN_STORE_KEY_BYTES)
        tnp_raise_text(TN_ERR_INVALID,
                       "the %s %.40R... has %zd bytes in UTF-8: %d are the most", what, text,
                       size, (int)TN_STORE_KEY_BYTES);
    else if (strlen(bytes) != (size_t)size)
        tnp_raise_text(TN_ERR_INVALID, "the %s %.600R has a NUL character", what, text);
    else
        return bytes;
    return NULL;
}
