/* SPDX-License-Identifier: Apache-2.0 */
/*
 * traffic: how many arrays and tensors this process has sent, and how many of them it copied
 * into shared memory first.
 *
 * The counters are four words. count_into() names other memory for them, which several
 * processes may map and add to. A word is added to atomically, so a process that is killed
 * leaves whole counts.
 */
#include "codec.h"

enum { SHARED_COUNT, SHARED_BYTES, COPIED_COUNT, COPIED_BYTES, WORD_COUNT };

static _Atomic uint64_t own[WORD_COUNT];
static _Atomic uint64_t *words = own; /* changed with the GIL held */
static Py_buffer named;               /* what count_into() was given; .obj is NULL: nothing */

_Thread_local struct tnp_conversion
    *tnp_conversion_now; /* here, since copies are noted in it */

void tnp_note_copy(uint64_t size_bytes)
{
    if (tnp_conversion_now == NULL)
        return;
    tnp_conversion_now->copied.count++;
    tnp_conversion_now->copied.bytes += size_bytes;
}

static void add(int word, uint64_t amount)
{
    if (amount != 0)
        atomic_fetch_add_explicit(&words[word], amount, memory_order_relaxed);
}

void tnp_count_sent(const tnp_encoded *encoded)
{
    Py_ssize_t count = encoded->tensors == NULL ? 0 : PyList_GET_SIZE(encoded->tensors);
    const tnp_amount copied = encoded->copied;
    uint64_t bytes = 0;
    if (count == 0)
        return;
    for (Py_ssize_t i = 0; i < count; i++)
        bytes +=
            tnp_info(((tnp_tensor *)PyList_GET_ITEM(encoded->tensors, i))->tensor).size_bytes;
    /* A reducer may copy a tensor and then not send it. */
    uint64_t copied_count = copied.count < (uint64_t)count ? copied.count : (uint64_t)count;
    uint64_t copied_bytes = copied.bytes < bytes ? copied.bytes : bytes;
    add(SHARED_COUNT, (uint64_t)count - copied_count);
    add(SHARED_BYTES, bytes - copied_bytes);
    add(COPIED_COUNT, copied_count);
    add(COPIED_BYTES, copied_bytes);
}

/* ---- functions of the module ------------------------------------------------------------- */

static PyObject *note_copy(PyObject *module, PyObject *argument)
{
    (void)module;
    unsigned long long size_bytes = PyLong_AsUnsignedLongLong(argument);
    if (size_bytes == (unsigned long long)-1 && PyErr_Occurred())
        return NULL;
    tnp_note_copy(size_bytes);
    Py_RETURN_NONE;
}

static PyObject *count_into(PyObject *module, PyObject *argument)
{
    (void)module;
    Py_buffer view;
    if (PyObject_GetBuffer(argument, &view, PyBUF_WRITABLE) < 0)
        return NULL;
    if (view.len < (Py_ssize_t)sizeof own || (uintptr_t)view.buf % sizeof own[0] != 0) {
        PyErr_Format(PyExc_ValueError, "the counters are %zu aligned bytes, not %zd",
                     sizeof own, view.len);
        PyBuffer_Release(&view);
        return NULL;
    }
    Py_buffer former = named;
    _Atomic uint64_t *from = words;
    named = view;
    words = view.buf;
    for (int word = 0; word < WORD_COUNT; word++)
        add(word, from == own ? atomic_exchange(&own[word], 0) : 0);
    if (former.obj != NULL)
        PyBuffer_Release(&former);
    Py_RETURN_NONE;
}

static PyObject *traffic(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    unsigned long long now[WORD_COUNT];
    for (int word = 0; word < WORD_COUNT; word++)
        now[word] = atomic_load_explicit(&words[word], memory_order_relaxed);
    return Py_BuildValue("(KKKK)", now[SHARED_COUNT], now[SHARED_BYTES], now[COPIED_COUNT],
                         now[COPIED_BYTES]);
}

static PyMethodDef functions[] = {
    {"note_copy", note_copy, METH_O,
     "note_copy($module, size_bytes, /)\n--\n\n"
     "In a reducer: say that a tensor was copied into shared memory to be sent."},
    {"count_into", count_into, METH_O,
     "count_into($module, buffer, /)\n--\n\n"
     "Count what this process sends in this memory of 32 bytes from now on."},
    {"traffic", traffic, METH_NOARGS,
     "traffic($module, /)\n--\n\n"
     "(count, bytes, count, bytes) of the arrays and tensors that were sent: without a copy, "
     "and with one."},
    {NULL, NULL, 0, NULL},
};

int tnp_traffic_init(PyObject *module) { return PyModule_AddFunctions(module, functions); }
