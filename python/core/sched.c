/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched: the type Scheduler.
 *
 * A thread of the scheduler takes the GIL before it looks for tasks, and keeps it until it
 * sleeps. So a task that waits for the GIL has not been taken, and short tasks run one after
 * another without a change of thread. No thread waits for the GIL under the scheduler's lock.
 */
#include "sched.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- the GIL in threads of the scheduler ------------------------------------------------- */

static pthread_key_t thread_end;
static _Thread_local PyThreadState *saved; /* while this thread sleeps in the scheduler */

static void begin_work(void *context)
{
    (void)context;
    if (saved != NULL) {
        PyEval_RestoreThread(saved);
        saved = NULL;
        return;
    }
    (void)PyGILState_Ensure(); /* the first time, in a thread of the scheduler */
    pthread_setspecific(thread_end, &thread_end);
}

static void end_work(void *context)
{
    (void)context;
    saved = PyEval_SaveThread();
}

/* A thread of the scheduler ends: its state of Python ends too. */
static void end_thread(void *unused)
{
    (void)unused;
    if (saved == NULL)
        return;
    PyEval_RestoreThread(saved);
    PyThreadState_Clear(saved);
    saved = NULL;
    PyThreadState_DeleteCurrent(); /* PyGILState_Release() has forgotten this thread by now */
}

/* ---- making and closing ------------------------------------------------------------------ */

static PyObject *make(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"resources", "order", "skips",   "skew", "trace",
                            "domain",    "name",  "ran_out", NULL};
    const char *resources = NULL, *name = NULL;
    PyObject *shown_by = Py_None, *ran_out = Py_None;
    tn_domain *domain = NULL;
    unsigned order = 0, skips = 0;
    double skew = 0;
    int has_trace = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|z$IIdpOzO", names, &resources, &order,
                                     &skips, &skew, &has_trace, &shown_by, &name, &ran_out))
        return NULL;
    if (shown_by != Py_None && (domain = tnp_domain_of(shown_by)) == NULL)
        return NULL;
    tnp_sched *its = (tnp_sched *)type->tp_alloc(type, 0);
    if (its == NULL)
        return NULL;
    if (ran_out != Py_None) {
        Py_INCREF(ran_out);
        its->ran_out = ran_out;
    }
    if (has_trace && (its->trace = tnp_trace_make()) == NULL) {
        Py_DECREF(its);
        return PyErr_NoMemory();
    }
    int status = tn_sched_create(
        TN_OPTIONS(tn_sched_options, .resources = resources, .order = order, .skips = skips,
                   .skew = skew, .trace = has_trace ? tnp_trace_note : NULL,
                   .trace_context = its->trace, .begin_work = begin_work, .end_work = end_work,
                   .domain = domain, .name = name),
        &its->sched);
    if (status == 0)
        return (PyObject *)its;
    tnp_raise(status);
    Py_DECREF(its);
    return NULL;
}

struct closing {
    tn_sched *sched;
    struct tnp_trace *trace;
};

static void *close_alone(void *closing)
{
    struct closing its = *(struct closing *)closing;
    free(closing);
    tn_sched_close(its.sched);
    tnp_trace_free(its.trace);
    return NULL;
}

/* Close what the task that runs now belongs to. If there is no memory or no thread, it stays.
 */
static void close_later(tn_sched *sched, struct tnp_trace *trace)
{
    pthread_t thread;
    struct closing *closing = malloc(sizeof *closing);
    if (closing == NULL)
        return;
    *closing = (struct closing){sched, trace};
    if (pthread_create(&thread, NULL, close_alone, closing) == 0)
        pthread_detach(thread);
    else
        free(closing);
}

/*
 * Close it without the GIL, which its tasks need in order to end. A task cannot wait for its
 * own end, so another thread closes it then.
 */
static void close_sched(tnp_sched *its)
{
    tn_sched *sched = its->sched;
    its->sched = NULL;
    its->batch_count = its->kind_count = 0;
    if (sched == NULL)
        return;
    if (tnp_sched_of_task == its) {
        close_later(sched, its->trace);
        its->trace = NULL;
        return;
    }
    Py_BEGIN_ALLOW_THREADS;
    tn_sched_close(sched);
    Py_END_ALLOW_THREADS;
    tnp_runs_free(its);
}

static void dealloc(tnp_sched *its)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (its->weak != NULL)
        PyObject_ClearWeakRefs((PyObject *)its);
    close_sched(its);
    tnp_trace_free(its->trace);
    Py_XDECREF(its->ran_out);
    PyMem_RawFree(its->kinds);
    PyMem_RawFree(its->batches);
    PyErr_Restore(type, value, traceback);
    Py_TYPE(its)->tp_free(its);
}

/* The graph of a batch of calls that has tasks that have not ended. NULL: none has */
static tn_graph *find_busy(const tnp_sched *its)
{
    for (size_t i = 0; i < its->batch_count; i++)
        if (tn_graph_wait(its->batches[i].graph, TN_NOW) == TN_ERR_TIMED_OUT)
            return its->batches[i].graph;
    return NULL;
}

/* Wait for the calls of all batches. 0, or a status with which the wait ended early. */
static int drain(tnp_sched *its)
{
    tn_graph *graph;
    int status = 0;
    its->waiters++;
    while (status == 0 && (graph = find_busy(its)) != NULL) {
        TNP_UNLOCKED(status, tn_graph_wait(graph, TN_FOREVER));
        if (status != TN_ERR_INTERRUPTED && tn_graph_wait(graph, TN_NOW) != TN_ERR_TIMED_OUT)
            status = 0; /* a call failed, which its future tells */
    }
    its->waiters--;
    return status;
}

/* Have runs of other threads end, and wait until those threads have left them. */
static void end_runs(tnp_sched *its)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    its->is_ending = true;
    while (its->callers > 0) {
        Py_BEGIN_ALLOW_THREADS;
        nanosleep(&nap, NULL);
        Py_END_ALLOW_THREADS;
    }
}

static PyObject *close_method(tnp_sched *its, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"at_exit", NULL};
    int at_exit = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|$p", names, &at_exit))
        return NULL;
    if (its->sched == NULL)
        Py_RETURN_NONE;
    bool is_in_task = tnp_sched_of_task == its;
    if (at_exit && !is_in_task)
        end_runs(its);
    if (is_in_task || its->callers > 0)
        return tnp_raise_text(TN_ERR_INVALID, is_in_task ? "a task cannot close its scheduler"
                                                         : "another thread uses the scheduler");
    its->callers++;
    int status = drain(its);
    its->callers--;
    if (status != 0)
        return tnp_raise(status);
    close_sched(its);
    Py_RETURN_NONE;
}

/* ---- what a task has --------------------------------------------------------------------- */

enum { MANY_SLOTS = 4096 };

static PyObject *resource_id(PyObject *module, PyObject *args)
{
    const char *resource;
    PyObject *missing = NULL;
    uint32_t ids[MANY_SLOTS];
    (void)module;
    if (!PyArg_ParseTuple(args, "s|O", &resource, &missing))
        return NULL;
    int count = tn_resource_id(resource, ids, MANY_SLOTS);
    bool has_none =
        count == 0 || count == TN_ERR_NOT_FOUND || (count < 0 && tnp_sched_of_task == NULL);
    if (missing != NULL && has_none) {
        Py_INCREF(missing);
        return missing;
    }
    if (count < 0)
        return tnp_raise(count);
    if (count == 0 || count > MANY_SLOTS)
        return tnp_raise_text(TN_ERR_INVALID,
                              count == 0 ? "the task did not request the resource %s"
                                         : "the task has too many slots of %s",
                              resource);
    if (count == 1)
        return PyLong_FromUnsignedLong(ids[0]);
    PyObject *tuple = PyTuple_New(count);
    for (int i = 0; tuple != NULL && i < count; i++) {
        PyObject *id = PyLong_FromUnsignedLong(ids[i]);
        if (id == NULL)
            Py_CLEAR(tuple);
        else
            PyTuple_SET_ITEM(tuple, i, id);
    }
    return tuple;
}

static PyObject *secede(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    uint64_t now_ns = tn_deadline_after(0).ns; /* before another task can have the CPU */
    int status = tn_task_secede();
    if (status != 0)
        return tnp_raise(status);
    tnp_note_secession(now_ns);
    Py_RETURN_NONE;
}

static PyObject *set_bytes(PyObject *module, PyObject *count)
{
    unsigned long long bytes = PyLong_AsUnsignedLongLong(count);
    (void)module;
    if (PyErr_Occurred())
        return NULL;
    int status = tnp_say_bytes(bytes);
    if (status != 0)
        return tnp_raise(status);
    Py_RETURN_NONE;
}

static PyObject *resources(tnp_sched *its, PyObject *unused)
{
    tn_sched_info info = {.struct_size = sizeof info};
    (void)unused;
    if (tnp_sched_of(its) == NULL)
        return NULL;
    int status = tn_sched_get_info(its->sched, &info);
    if (status != 0)
        return tnp_raise(status);
    PyObject *all = PyDict_New();
    for (uint32_t i = 0; all != NULL && i < info.resource_count; i++) {
        const tn_resource_info *resource = &info.resources[i];
        PyObject *pair = Py_BuildValue("dd", resource->total, resource->free);
        if (pair == NULL || PyDict_SetItemString(all, resource->name, pair) < 0)
            Py_CLEAR(all);
        Py_XDECREF(pair);
    }
    return all;
}

/* ---- the type ---------------------------------------------------------------------------- */

static PyMethodDef methods[] = {
    {"close", (PyCFunction)(void (*)(void))close_method, METH_VARARGS | METH_KEYWORDS,
     "close($self, /, *, at_exit=False)\n--\n\n"
     "Wait for the calls of all batches, and end the threads."},
    {"kind", (PyCFunction)tnp_sched_kind, METH_VARARGS,
     "kind($self, name, requests, affinity, writes_inputs, /)\n--\n\n"
     "Make a kind of task. Returns its index."},
    {"batch", (PyCFunction)tnp_sched_batch, METH_NOARGS,
     "batch($self, /)\n--\n\n"
     "Make a batch of calls."},
    {"run", (PyCFunction)tnp_sched_run, METH_VARARGS,
     "run($self, graph, keys, node_type, data_type, convert, find_kind, /)\n--\n\n"
     "Run what the keys need, and return their values in a list."},
    {"resources", (PyCFunction)resources, METH_NOARGS,
     "resources($self, /)\n--\n\n"
     "The total and the free amount of each resource."},
    {"events", (PyCFunction)tnp_sched_events, METH_NOARGS,
     "events($self, /)\n--\n\n"
     "What was noted of tasks, with trace=True: (graph, task, kind, slots, began_ns, ended_ns, "
     "cpu_until_ns, status, bytes) each."},
    {"edges", (PyCFunction)tnp_sched_edges, METH_NOARGS,
     "edges($self, /)\n--\n\n"
     "What was noted of inputs, with trace=True: (graph, input, task) each."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "tenon._core.Scheduler",
    .tp_doc = "Threads that run calls when the resources that the calls request are free.",
    .tp_basicsize = sizeof(tnp_sched),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = make,
    .tp_dealloc = (destructor)dealloc,
    .tp_weaklistoffset = offsetof(tnp_sched, weak),
    .tp_methods = methods,
};

static PyMethodDef functions[] = {
    {"resource_id", resource_id, METH_VARARGS,
     "resource_id($module, resource, missing=..., /)\n--\n\n"
     "The number of the slot of `resource` that the task of this thread has, or a tuple of "
     "several."},
    {"secede", secede, METH_NOARGS,
     "secede($module, /)\n--\n\n"
     "Give back the CPU of the task of this thread, before a long wait."},
    {"set_bytes", set_bytes, METH_O,
     "set_bytes($module, count, /)\n--\n\n"
     "Say how large the result of the task of this thread is, for affinity and traces."},
    {NULL, NULL, 0, NULL},
};

int tnp_sched_init(PyObject *module)
{
    if (pthread_key_create(&thread_end, end_thread) != 0) {
        PyErr_NoMemory();
        return -1;
    }
    if (tnp_run_init() < 0 || tnp_batch_init(module) < 0 || PyType_Ready(&type) < 0 ||
        PyModule_AddFunctions(module, functions) < 0)
        return -1;
    return tnp_add(module, "Scheduler", (PyObject *)&type);
}
