/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors: an exception class for each status. Each is derived from tenon.Error and from a
 * built-in.
 */
#include "core.h"

#include <stdarg.h>
#include <string.h>

static PyObject *error_type;

struct status_class {
    int status;
    const char *name;
    PyObject **builtin;
    PyObject *type;
};

/* The statuses of include/tenon/status.h, with the names of their classes. */
static struct status_class classes[] = {
    {TN_ERR_INVALID, "Invalid", &PyExc_ValueError, NULL},
    {TN_ERR_TIMED_OUT, "TimedOut", &PyExc_TimeoutError, NULL},
    {TN_ERR_UNSUPPORTED, "Unsupported", &PyExc_NotImplementedError, NULL},
    {TN_ERR_NOT_FOUND, "NotFound", &PyExc_FileNotFoundError, NULL},
    {TN_ERR_EXISTS, "Exists", &PyExc_FileExistsError, NULL},
    {TN_ERR_DENIED, "Denied", &PyExc_PermissionError, NULL},
    {TN_ERR_INTERRUPTED, "Interrupted", &PyExc_InterruptedError, NULL},
    {TN_ERR_CLOSED, "Closed", &PyExc_BrokenPipeError, NULL},
    {TN_ERR_PEER_DIED, "PeerDied", &PyExc_BrokenPipeError, NULL},
    {TN_ERR_STALE, "Stale", &PyExc_ValueError, NULL},
    {TN_ERR_CHILD_FAILED, "ChildFailed", &PyExc_ChildProcessError, NULL},
    {TN_ERR_NO_MEMORY, "NoMemory", &PyExc_MemoryError, NULL},
    {TN_ERR_FULL, "Full", &PyExc_OSError, NULL},
    {TN_ERR_SYSTEM, "SystemFailed", &PyExc_OSError, NULL},
    {TN_ERR_MANAGER, "ManagerFailed", &PyExc_OSError, NULL},
    {TN_ERR_DEVICE, "DeviceFailed", &PyExc_OSError, NULL},
    {TN_ERR_CORRUPT, "Corrupt", &PyExc_RuntimeError, NULL},
    {TN_ERR_VERSION, "VersionMismatch", &PyExc_RuntimeError, NULL},
    {TN_ERR_FORKED, "Forked", &PyExc_RuntimeError, NULL},
};

static PyObject *class_of(int status)
{
    for (size_t i = 0; i < TNP_COUNT(classes); i++)
        if (classes[i].status == status)
            return classes[i].type;
    return error_type;
}

static int set_number(PyObject *error, const char *name, long value)
{
    PyObject *number = PyLong_FromLong(value);
    int failed = number == NULL || PyObject_SetAttrString(error, name, number) < 0;
    Py_XDECREF(number);
    return failed ? -1 : 0;
}

static PyObject *raise_text(int status, PyObject *text, tn_peer peer)
{
    PyObject *type = class_of(status), *error = NULL;
    if (text != NULL)
        error = PyObject_CallFunctionObjArgs(type, text, NULL);
    Py_XDECREF(text);
    if (error != NULL && set_number(error, "status", status) == 0 &&
        (status != TN_ERR_PEER_DIED || (set_number(error, "pid", peer.pid) == 0 &&
                                        set_number(error, "seat", (long)peer.seat) == 0)))
        PyErr_SetObject(type, error);
    Py_XDECREF(error);
    return NULL;
}

PyObject *tnp_raise(int status)
{
    if (PyErr_Occurred())
        return NULL; /* a signal handler has raised */
    tn_peer peer = tn_error_peer();
    if (status == TN_ERR_INTERRUPTED) /* and no signal handler has raised */
        return raise_text(
            TN_ERR_CLOSED,
            PyUnicode_FromString("another thread of this process closed the domain"), peer);
    const char *detail = tn_error_detail();
    if (detail[0] == '\0')
        detail = tn_status_sentence(status);
    return raise_text(
        status, PyUnicode_DecodeUTF8(detail, (Py_ssize_t)strlen(detail), "replace"), peer);
}

PyObject *tnp_raise_for(int status, const char *what)
{
    if (PyErr_Occurred())
        return NULL;
    tn_peer peer = tn_error_peer();
    return raise_text(status, PyUnicode_FromFormat("%s: %s", what, tn_error_detail()), peer);
}

PyObject *tnp_raise_text(int status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    PyObject *text = PyUnicode_FromFormatV(format, arguments);
    va_end(arguments);
    return raise_text(status, text, (tn_peer){0});
}

/* ---- the module ---------------------------------------------------------------------------
 */

int tnp_add(PyObject *module, const char *name, PyObject *object)
{
    Py_XINCREF(object);
    if (object != NULL && PyModule_AddObject(module, name, object) == 0)
        return 0;
    Py_XDECREF(object);
    return -1;
}

int tnp_error_init(PyObject *module)
{
    PyObject *none = Py_BuildValue("{sisOsO}", "status", 0, "pid", Py_None, "seat", Py_None);
    if (none == NULL)
        return -1;
    error_type = PyErr_NewExceptionWithDoc(
        "tenon.Error", "A call of tenon failed; `status` says how, the text what.",
        PyExc_Exception, none);
    Py_DECREF(none);
    if (error_type == NULL || tnp_add(module, "Error", error_type) < 0)
        return -1;
    for (size_t i = 0; i < TNP_COUNT(classes); i++) {
        char name[64];
        snprintf(name, sizeof name, "tenon.%s", classes[i].name);
        PyObject *bases = PyTuple_Pack(2, *classes[i].builtin, error_type);
        if (bases == NULL)
            return -1;
        classes[i].type =
            PyErr_NewExceptionWithDoc(name, tn_status_sentence(classes[i].status), bases, NULL);
        Py_DECREF(bases);
        if (classes[i].type == NULL || tnp_add(module, classes[i].name, classes[i].type) < 0)
            return -1;
    }
    return 0;
}
