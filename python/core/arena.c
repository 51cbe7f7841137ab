/* SPDX-License-Identifier: Apache-2.0 */
/* arena: storages that are written once: they are filled, and then sealed. */
#include "tensor.h"

enum { STEP_BYTES = 4 << 20 }; /* after which the caller is told */

struct part {
    uint64_t off;
    PyObject *tensor; /* of the sequence that the caller gave */
    uint64_t size_bytes;
};
struct parts {
    PyObject *sequence; /* a tuple or a list, owned */
    struct part *at;    /* [count] */
    Py_ssize_t count;
};

static void end_parts(struct parts *parts)
{
    PyMem_Free(parts->at);
    Py_XDECREF(parts->sequence);
}

/* -1: raised */
static int read_part(PyObject *item, struct part *ret_part)
{
    unsigned long long off;
    PyObject *tensor;
    if (!PyTuple_Check(item)) {
        PyErr_SetString(PyExc_TypeError, "a part is (offset, tensor)");
        return -1;
    }
    if (!PyArg_ParseTuple(item, "KO!", &off, &tnp_tensor_type, &tensor))
        return -1;
    const tn_tensor *t = ((tnp_tensor *)tensor)->tensor;
    tn_tensor_info info = tnp_info(t);
    if (!info.is_contiguous || tn_tensor_device(t).type != TN_DEVICE_CPU) {
        PyErr_SetString(PyExc_ValueError,
                        "a part is a tensor of the host whose elements follow one another");
        return -1;
    }
    *ret_part = (struct part){off, tensor, info.size_bytes};
    return 0;
}

/* -1: raised */
static int read_parts(PyObject *given, struct parts *ret_parts)
{
    struct parts parts = {.sequence = PySequence_Tuple(given)};
    if (parts.sequence == NULL)
        return -1;
    parts.count = PyTuple_GET_SIZE(parts.sequence);
    parts.at = PyMem_New(struct part, (size_t)(parts.count > 0 ? parts.count : 1));
    if (parts.at == NULL) {
        end_parts(&parts);
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < parts.count; i++)
        if (read_part(PyTuple_GET_ITEM(parts.sequence, i), &parts.at[i]) < 0) {
            end_parts(&parts);
            return -1;
        }
    *ret_parts = parts;
    return 0;
}

/* Tell the caller how many bytes are written. -1: raised */
static int tell(PyObject *progress, uint64_t written_bytes)
{
    if (progress == Py_None)
        return 0;
    PyObject *nothing = PyObject_CallFunction(progress, "K", (unsigned long long)written_bytes);
    Py_XDECREF(nothing);
    return nothing != NULL ? 0 : -1;
}

/* -1: raised. Other code of Python, which may close the domain, runs between the steps. */
static int write_part(PyObject *domain, tn_arena *arena, const struct part *part,
                      PyObject *progress)
{
    const char *from = tn_tensor_data(((tnp_tensor *)part->tensor)->tensor);
    uint64_t done = 0;
    do {
        uint64_t left = part->size_bytes - done;
        uint64_t step = progress != Py_None && left > STEP_BYTES ? STEP_BYTES : left;
        int status;
        if (tnp_domain_of(domain) == NULL)
            return -1;
        TNP_WAIT(
            domain, status,
            tn_arena_write(arena, part->off + done, from != NULL ? from + done : NULL, step));
        if (status != 0) {
            tnp_raise(status);
            return -1;
        }
        done += step;
        if (tell(progress, part->off + done) < 0)
            return -1;
    } while (done < part->size_bytes);
    return 0;
}

/* Without the GIL. */
static int seal(tn_arena *arena, tn_tensor **ret_whole)
{
    int64_t room = (int64_t)tn_arena_room(arena);
    int status = tn_arena_seal(arena);
    return status == 0 ? tn_arena_allocate(arena, TN_UINT8, 1, &room, ret_whole) : status;
}

static PyObject *fill(PyObject *domain, tn_arena *arena, const struct parts *parts,
                      PyObject *progress)
{
    tn_tensor *whole;
    int status = 0;
    for (Py_ssize_t i = 0; i < parts->count; i++)
        tnp_tensor_begin_use(parts->at[i].tensor);
    for (Py_ssize_t i = 0; i < parts->count && status == 0; i++)
        status = write_part(domain, arena, &parts->at[i], progress);
    for (Py_ssize_t i = 0; i < parts->count; i++)
        tnp_tensor_end_use(parts->at[i].tensor);
    if (status != 0 || tnp_domain_of(domain) == NULL)
        return NULL;
    TNP_WAIT(domain, status, seal(arena, &whole));
    return status != 0 ? tnp_raise(status) : tnp_tensor_wrap(whole, domain);
}

/* Code of Python, which may close the domain, can run in the wait for memory. */
PyObject *tnp_domain_filled(PyObject *object, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"size_bytes", "parts", "timeout", "progress", NULL};
    PyObject *given, *timeout = NULL, *progress = Py_None, *whole = NULL;
    unsigned long long size_bytes;
    struct parts parts;
    tn_deadline deadline;
    tn_arena *arena;
    int status;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "KO|O$O", names, &size_bytes, &given,
                                     &timeout, &progress) ||
        tnp_deadline(timeout, TN_NOW, &deadline) < 0 || read_parts(given, &parts) < 0)
        return NULL;
    tn_domain *domain = tnp_domain_of(object);
    if (domain != NULL) {
        TNP_WAIT(object, status,
                 tn_arena_create_unsealed(domain, size_bytes, deadline, &arena));
        if (status != 0)
            tnp_raise(status);
        else if (tnp_domain_of(object) != NULL)
            whole = fill(object, arena, &parts, progress);
        if (status == 0)
            tn_arena_close(arena);
    }
    end_parts(&parts);
    return whole;
}
