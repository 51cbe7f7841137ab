/* SPDX-License-Identifier: Apache-2.0 */
/*
 * batch: the type Batch: calls that a scheduler got one by one. They are the tasks of one
 * graph, so that the scheduler knows where the call ran whose result another one reads.
 *
 * A graph never forgets its tasks, so whoever has many calls begins a new batch now and then.
 * The graph of a batch is closed once its object is gone and its tasks have ended.
 */
#include "sched.h"

struct batch {
    PyObject_HEAD tnp_sched
        *its;        /* owned, so that a scheduler that nobody uses runs its calls */
    tn_graph *graph; /* of its->batches; gone if the scheduler is closed */
    Py_ssize_t count;
};

struct job {
    struct tnp_call call;
    struct batch *batch; /* owned */
    PyObject *callable;  /* owned */
};

static int run_job(struct tnp_call *call, const tn_task_call *now)
{
    struct job job = *(struct job *)call;
    bool is_last = (now->flags & TN_CALL_LAST) != 0;
    PyObject *result = PyObject_CallOneArg(
        job.callable, is_last ? Py_True : Py_False); /* which ends in no forked child */
    bool has_run_out = result == Py_True;
    if (result == NULL)
        PyErr_WriteUnraisable(job.callable);
    Py_XDECREF(result);
    if (has_run_out)
        return TN_TASK_OOM;
    PyMem_Free(call);
    Py_DECREF(job.callable);
    Py_DECREF(job.batch);
    return TN_TASK_DONE;
}

/* Close the graphs whose batches are gone, and whose tasks have ended. */
static void close_graphs(tnp_sched *its)
{
    size_t kept = 0;
    if (its->waiters > 0)
        return;
    for (size_t i = 0; i < its->batch_count; i++)
        if (its->batches[i].is_open ||
            tn_graph_wait(its->batches[i].graph, TN_NOW) == TN_ERR_TIMED_OUT)
            its->batches[kept++] = its->batches[i];
        else
            tn_graph_close(its->batches[i].graph);
    its->batch_count = kept;
}

static void dealloc(struct batch *batch)
{
    tnp_sched *its = batch->its;
    if (its != NULL && its->sched != NULL) {
        for (size_t i = 0; i < its->batch_count; i++)
            if (its->batches[i].graph == batch->graph)
                its->batches[i].is_open = false;
        close_graphs(its);
    }
    Py_TYPE(batch)->tp_free(batch);
    Py_XDECREF(its); /* which may close the scheduler */
}

/* Read the numbers of earlier calls of the batch. NULL: raised */
static uint64_t *read_inputs(const struct batch *batch, PyObject *numbers)
{
    Py_ssize_t count = PyTuple_GET_SIZE(numbers);
    uint64_t *inputs = PyMem_Calloc((size_t)count + 1, sizeof *inputs);
    if (inputs == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_ssize_t number = PyLong_AsSsize_t(PyTuple_GET_ITEM(numbers, i));
        if (number < 0 || number >= batch->count) {
            if (!PyErr_Occurred())
                tnp_raise_text(TN_ERR_INVALID, "the batch has no call %zd", number);
            PyMem_Free(inputs);
            return NULL;
        }
        inputs[i] = (uint64_t)number;
    }
    return inputs;
}

static struct job *make_job(struct batch *batch, PyObject *callable)
{
    struct job *job = PyMem_Malloc(sizeof *job);
    if (job == NULL)
        return (struct job *)PyErr_NoMemory();
    Py_INCREF(callable);
    Py_INCREF(batch);
    *job = (struct job){{batch->its, run_job}, batch, callable};
    return job;
}

static PyObject *submit(struct batch *batch, PyObject *args)
{
    PyObject *index, *callable, *numbers = NULL;
    uint64_t *inputs = NULL, end = 0, number;
    int priority = 0;
    if (!PyArg_ParseTuple(args, "OO|iO!", &index, &callable, &priority, &PyTuple_Type,
                          &numbers) ||
        tnp_sched_of(batch->its) == NULL)
        return NULL;
    tn_kind *of = tnp_kind_of(batch->its, index);
    if (of == NULL)
        return NULL;
    if (numbers != NULL && (end = (uint64_t)PyTuple_GET_SIZE(numbers)) > 0 &&
        (inputs = read_inputs(batch, numbers)) == NULL)
        return NULL;
    struct job *job = make_job(batch, callable);
    if (job == NULL) {
        PyMem_Free(inputs);
        return NULL;
    }
    const tn_task task = {.kind = of, .context = job, .priority = priority};
    int status = tn_graph_add(batch->graph,
                              TN_OPTIONS(tn_task_list, .tasks = &task, .count = 1,
                                         .input_ends = end > 0 ? &end : NULL, .inputs = inputs),
                              &number);
    PyMem_Free(inputs);
    if (status != 0) {
        tnp_raise(status);
        Py_DECREF(callable);
        Py_DECREF(batch);
        PyMem_Free(job);
        return NULL;
    }
    batch->count++;
    return PyLong_FromUnsignedLongLong(number);
}

static PyObject *get_count(struct batch *batch, void *unused)
{
    (void)unused;
    return PyLong_FromSsize_t(batch->count);
}

static PyObject *get_number(struct batch *batch, void *unused)
{
    (void)unused;
    const struct tnp_trace *trace = batch->its->trace;
    return PyLong_FromUnsignedLongLong(trace != NULL ? tnp_trace_number(trace, batch->graph)
                                                     : 0);
}

static PyMethodDef methods[] = {
    {"submit", (PyCFunction)submit, METH_VARARGS,
     "submit($self, kind, callable, priority=0, inputs=(), /)\n--\n\n"
     "Call a function without arguments, when the resources of its kind are free and the calls "
     "of these numbers have ended. Returns its number."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef getters[] = {
    {"count", (getter)get_count, NULL, "How many calls were submitted.", NULL},
    {"number", (getter)get_number, NULL, "Its number in Scheduler.events(); 0: without trace.",
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyTypeObject type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "tenon._core.Batch",
    .tp_doc =
        "Calls that a scheduler got one by one. A call may name earlier ones of its batch.",
    .tp_basicsize = sizeof(struct batch),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_dealloc = (destructor)dealloc,
    .tp_methods = methods,
    .tp_getset = getters,
};

PyObject *tnp_sched_batch(tnp_sched *its, PyObject *unused)
{
    (void)unused;
    if (tnp_sched_of(its) == NULL)
        return NULL;
    close_graphs(its);
    struct tnp_batch_entry *batches =
        tnp_grow(its->batches, sizeof *batches, its->batch_count, &its->batch_room);
    if (batches == NULL)
        return PyErr_NoMemory();
    its->batches = batches;
    struct batch *batch = (struct batch *)type.tp_alloc(&type, 0);
    if (batch == NULL)
        return NULL;
    int status = tn_graph_create(its->sched, &batch->graph);
    if (status == 0 && its->trace != NULL &&
        (status = tnp_trace_begin(its->trace, batch->graph)) != 0)
        tn_graph_close(batch->graph);
    if (status != 0) {
        tnp_raise(status);
        Py_DECREF(batch);
        return NULL;
    }
    Py_INCREF(its);
    batch->its = its;
    batches[its->batch_count++] = (struct tnp_batch_entry){batch->graph, true};
    return (PyObject *)batch;
}

int tnp_batch_init(PyObject *module)
{
    return PyType_Ready(&type) < 0 ? -1 : tnp_add(module, "Batch", (PyObject *)&type);
}
