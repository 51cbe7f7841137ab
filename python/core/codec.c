/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec: any object as a message of bytes and tensors, and back.
 *
 * The first byte of a message is its kind. TNP_TENSOR, TNP_ARRAY and TNP_FIXED_ARRAY (an array
 * that the receiver cannot write) carry one tensor and nothing else. TNP_PICKLE carries a
 * pickle of protocol 5. Arrays and tensors inside an object are not in the pickle: they travel
 * beside it as tensors. Memory that lies in the domain travels without a copy; other memory is
 * copied once. Buffers that other types hand to the pickler (PEP 574) travel in the same way,
 * as bytes. Once a message has MANY_TENSORS tensors, further memory that would have to be
 * copied is put into the pickle; memory in the domain still travels without a copy.
 *
 * I1. Another process wrote the message. This code or the library checks every number in it.
 * The pickle itself is trusted, since all members belong to one user.
 *
 * numpy.c makes arrays, transfer.c brings memory into the domain, pickle.c and unpickle.c write
 * and read the pickles.
 */
#include "codec.h"

#include <string.h>

static PyObject *no_tensors; /* a list, always empty */

/* Make a message of one tensor, which is consumed. -1: raised */
static int encode_one(PyObject *tensor, char kind, tnp_encoded *ret)
{
    ret->bytes = PyBytes_FromStringAndSize(&kind, 1);
    ret->tensors = PyList_New(1);
    if (ret->bytes == NULL || ret->tensors == NULL) {
        Py_XDECREF(tensor);
        Py_CLEAR(ret->bytes);
        Py_CLEAR(ret->tensors);
        return -1;
    }
    PyList_SET_ITEM(ret->tensors, 0, tensor);
    return 0;
}

static bool encode_plain(PyObject *value, tnp_encoded *ret)
{
    static const struct tnp_head head = {.kind = TNP_PICKLE};
    size_t pickle_bytes =
        tnp_pickle_plain(value, ret->plain + sizeof head, sizeof ret->plain - sizeof head);
    if (pickle_bytes == 0)
        return false;
    memcpy(ret->plain, &head, sizeof head);
    ret->start = ret->plain;
    ret->size_bytes = sizeof head + pickle_bytes;
    ret->bytes = ret->tensors = NULL;
    return true;
}

/*
 * Make an array or a tensor available in the domain. NULL: raised; or, without an exception,
 * the value is neither.
 */
static PyObject *transfer(PyObject *domain, PyObject *value, tn_deadline deadline,
                          tnp_encoded *ret, char *ret_kind)
{
    struct tnp_conversion mine = {.tensors = no_tensors, .outer = tnp_conversion_now};
    PyObject *tensor = NULL;
    bool is_fixed;
    tnp_conversion_now = &mine; /* which counts what is copied */
    if (tnp_has_numpy() && Py_TYPE(value) == tnp_ndarray_type) {
        tensor = tnp_transfer_array(domain, value, true, deadline, &is_fixed);
        *ret_kind = is_fixed ? TNP_FIXED_ARRAY : TNP_ARRAY;
    } else if (Py_TYPE(value) == &tnp_tensor_type) {
        tensor = tnp_transfer_tensor(domain, value, deadline);
        *ret_kind = TNP_TENSOR;
    }
    tnp_conversion_now = mine.outer;
    ret->copied = mine.copied;
    return tensor;
}

int tnp_encode(PyObject *domain, PyObject *value, tn_deadline deadline, tnp_encoded *ret)
{
    char kind;
    int failed;
    if (tnp_domain_of(domain) == NULL)
        return -1;
    if (encode_plain(value, ret))
        return 0;
    PyObject *tensor = transfer(domain, value, deadline, ret, &kind);
    if (tensor != NULL)
        failed = encode_one(tensor, kind, ret);
    else
        failed = PyErr_Occurred() ? -1 : tnp_encode_pickle(domain, value, deadline, ret);
    if (failed == 0) {
        ret->start = PyBytes_AS_STRING(ret->bytes);
        ret->size_bytes = (size_t)PyBytes_GET_SIZE(ret->bytes);
    }
    return failed;
}

void tnp_encoded_fini(tnp_encoded *encoded)
{
    Py_CLEAR(encoded->bytes);
    Py_CLEAR(encoded->tensors);
}

/* @return NULL */
static PyObject *fail_kind(Py_ssize_t size_bytes, Py_ssize_t tensor_count)
{
    char what[96];
    snprintf(what, sizeof what, "it has %zd tensor%s and %zd byte%s", tensor_count,
             tensor_count == 1 ? "" : "s", size_bytes, size_bytes == 1 ? "" : "s");
    return tnp_fail_message(what);
}

PyObject *tnp_decode(const char *bytes, Py_ssize_t size_bytes, PyObject *tensors)
{
    char kind = size_bytes > 0 ? bytes[0] : 0;
    if (tensors == NULL)
        tensors = no_tensors;
    if (kind == TNP_PICKLE)
        return tnp_decode_pickle(bytes, (size_t)size_bytes, tensors);
    if ((kind != TNP_ARRAY && kind != TNP_FIXED_ARRAY && kind != TNP_TENSOR) ||
        PyList_GET_SIZE(tensors) != 1)
        return fail_kind(size_bytes, PyList_GET_SIZE(tensors));
    PyObject *tensor = PyList_GET_ITEM(tensors, 0);
    if (kind != TNP_TENSOR)
        return kind == TNP_ARRAY ? tnp_array_over(tensor) : tnp_fixed_array_over(tensor);
    Py_INCREF(tensor);
    return tensor;
}

/* ---- the module's functions -------------------------------------------------------------- */

static PyObject *dump(PyObject *module, PyObject *args)
{
    PyObject *value, *domain = Py_None;
    tnp_encoded encoded;
    (void)module;
    if (!PyArg_ParseTuple(args, "O|O", &value, &domain))
        return NULL;
    if (domain == Py_None)
        domain = tnp_domain_default();
    else
        Py_INCREF(domain);
    if (domain == NULL)
        return NULL;
    int failed = tnp_encode(domain, value, TN_NOW, &encoded);
    Py_DECREF(domain);
    if (failed < 0)
        return NULL;
    tnp_count_sent(&encoded);
    if (encoded.bytes == NULL)
        encoded.bytes =
            PyBytes_FromStringAndSize(encoded.start, (Py_ssize_t)encoded.size_bytes);
    if (encoded.tensors == NULL)
        encoded.tensors = PyList_New(0);
    if (encoded.bytes != NULL && encoded.tensors != NULL)
        return Py_BuildValue("(NN)", encoded.bytes, encoded.tensors);
    tnp_encoded_fini(&encoded);
    return NULL;
}

static PyObject *load(PyObject *module, PyObject *args)
{
    PyObject *sequence, *value = NULL;
    Py_buffer data;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*O", &data, &sequence))
        return NULL;
    PyObject *tensors = PySequence_List(sequence);
    for (Py_ssize_t i = 0; tensors != NULL && i < PyList_GET_SIZE(tensors); i++)
        if (!tnp_is_tensor(PyList_GET_ITEM(tensors, i))) {
            PyErr_Format(PyExc_TypeError, "tensors[%zd] is not a tenon.Tensor", i);
            Py_CLEAR(tensors);
        }
    if (tensors != NULL)
        value = tnp_decode(data.buf, data.len, tensors);
    Py_XDECREF(tensors);
    PyBuffer_Release(&data);
    return value;
}

static PyMethodDef functions[] = {
    {"dumps", dump, METH_VARARGS,
     "dumps($module, value, domain=None, /)\n--\n\n"
     "(bytes, tensors) of any object that can be pickled."},
    {"loads", load, METH_VARARGS,
     "loads($module, data, tensors, /)\n--\n\n"
     "The object of dumps()."},
    {NULL, NULL, 0, NULL},
};

int tnp_codec_init(PyObject *module)
{
    no_tensors = PyList_New(0);
    if (no_tensors == NULL || PyModule_AddFunctions(module, functions) < 0)
        return -1;
    return tnp_unpickle_init(module) < 0 || tnp_pickle_init(module) < 0 ? -1 : 0;
}
