/* SPDX-License-Identifier: Apache-2.0 */
/* kinds: the kinds of tasks of a scheduler, and the function that all tasks run. */
#include "sched.h"

#include <unistd.h>

void tnp_leave_forked(void)
{
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    if (error != NULL && traceback != NULL)
        PyException_SetTraceback(error, traceback);
    PyObject *module = PyImport_ImportModule("tenon._resources");
    if (module != NULL)
        (void)PyObject_CallMethod(module, "leave_forked", "O", error != NULL ? error : Py_None);
    _exit(1); /* that call does not return, unless it failed */
}

_Thread_local const tnp_sched *tnp_sched_of_task;
static _Thread_local const tn_task_call *call_of_thread; /* NULL: it has seceded, or is none */

void tnp_note_secession(uint64_t at_ns)
{
    if (call_of_thread == NULL || tnp_sched_of_task->trace == NULL)
        return;
    tnp_trace_secede(tnp_sched_of_task->trace, call_of_thread, at_ns);
    call_of_thread = NULL; /* it cannot give the CPU back again */
}

int tnp_say_bytes(uint64_t bytes)
{
    int status = tn_task_set_bytes(bytes);
    if (status == 0)
        tnp_bytes_of_task = bytes;
    return status;
}

tn_sched *tnp_sched_of(tnp_sched *its)
{
    if (its->sched == NULL)
        tnp_raise_text(TN_ERR_CLOSED, "the scheduler is closed");
    return its->sched;
}

tn_kind *tnp_kind_of(tnp_sched *its, PyObject *index)
{
    Py_ssize_t i = PyLong_AsSsize_t(index);
    if (i >= 0 && (size_t)i < its->kind_count)
        return its->kinds[i];
    if (!PyErr_Occurred())
        tnp_raise_text(TN_ERR_INVALID, "the scheduler has no kind %zd", i);
    return NULL;
}

/* The function of every task: its context says what it calls. */
static int run_call(const tn_task_call *call)
{
    struct tnp_call *its = call->context;
    const tnp_sched *outer = tnp_sched_of_task;
    const tn_task_call *outer_call = call_of_thread;
    tnp_sched_of_task = its->of;
    call_of_thread = call;
    tnp_bytes_of_task = 0;
    int status = its->run(its, call);
    tnp_sched_of_task = outer;
    call_of_thread = outer_call;
    return status;
}

/* -1: raised */
static int read_variants(PyObject *requests, tn_variant ret_variants[TN_VARIANTS])
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(requests); i++) {
        if (i == TN_VARIANTS) {
            PyErr_Format(PyExc_ValueError, "a task has %d requests at most", TN_VARIANTS);
            return -1;
        }
        const char *text = PyUnicode_AsUTF8(PyTuple_GET_ITEM(requests, i));
        if (text == NULL)
            return -1;
        ret_variants[i] = (tn_variant){.run = run_call, .request = text};
    }
    return 0;
}

PyObject *tnp_sched_kind(tnp_sched *its, PyObject *args)
{
    const char *name, *affinity;
    int writes_inputs;
    PyObject *requests;
    tn_variant variants[TN_VARIANTS];
    tn_kind *made;
    if (!PyArg_ParseTuple(args, "sO!zp", &name, &PyTuple_Type, &requests, &affinity,
                          &writes_inputs) ||
        read_variants(requests, variants) < 0 || tnp_sched_of(its) == NULL)
        return NULL;
    tn_kind **kinds = tnp_grow(its->kinds, sizeof *kinds, its->kind_count, &its->kind_room);
    if (kinds == NULL)
        return PyErr_NoMemory();
    its->kinds = kinds;
    int status = tn_kind_create(
        its->sched,
        TN_OPTIONS(tn_kind_options, .name = name, .variants = variants,
                   .variant_count = (uint32_t)PyTuple_GET_SIZE(requests), .affinity = affinity,
                   .flags = writes_inputs ? TN_KIND_WRITES_INPUTS : 0),
        &made);
    if (status != 0)
        return tnp_raise(status);
    its->has_affinity |= affinity != NULL;
    kinds[its->kind_count] = made;
    return PyLong_FromSize_t(its->kind_count++);
}
