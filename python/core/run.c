/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run: Scheduler.run(), which runs a Dask graph.
 *
 * A node is a key that is needed, with what Dask's graph has for it (run_read.c). The value of
 * a node is dropped when the last node that reads it has run, unless the caller asked for it.
 * The GIL protects all nodes.
 */
#include "run.h"

#include <string.h>

enum { SLICE_MS = 50 }; /* between two looks of the caller at failures of other threads */

static PyObject *nbytes_name;

int tnp_run_init(void)
{
    nbytes_name = PyUnicode_InternFromString("nbytes");
    return nbytes_name == NULL ? -1 : tnp_run_read_init();
}

/* ---- freeing ----------------------------------------------------------------------------- */

static void free_run(struct tnp_run *run)
{
    if (run == NULL)
        return;
    tn_graph_close(run->graph);
    for (uint32_t i = 0; i < run->count; i++) {
        Py_CLEAR(run->nodes[i].key);
        Py_CLEAR(run->nodes[i].work);
        Py_CLEAR(run->nodes[i].value);
        Py_CLEAR(run->nodes[i].ran_out);
    }
    Py_XDECREF(run->context);
    Py_XDECREF(run->type);
    Py_XDECREF(run->error);
    Py_XDECREF(run->traceback);
    PyMem_RawFree(run->nodes);
    PyMem_RawFree(run->inputs);
    PyMem_Free(run);
}

void tnp_runs_free(tnp_sched *its)
{
    struct tnp_run *run = its->unfinished, *next;
    its->unfinished = NULL;
    for (; run != NULL; run = next) {
        next = run->next;
        if (its->sched == NULL)
            run->graph = NULL; /* closed with its scheduler */
        else if (tn_graph_wait(run->graph, TN_NOW) == TN_ERR_TIMED_OUT) {
            run->next = its->unfinished;
            its->unfinished = run;
            continue;
        }
        free_run(run);
    }
}

/* ---- running a node ---------------------------------------------------------------------- */

static PyObject *call_tuple(const struct node *node)
{
    enum { FEW = 8 };
    const struct tnp_run *run = node->run;
    const uint32_t *inputs = run->inputs + node->input;
    PyObject *few[FEW], **args = few;
    if (node->input_count > FEW) {
        args = PyMem_Malloc(node->input_count * sizeof *args);
        if (args == NULL)
            return PyErr_NoMemory();
    }
    for (uint32_t i = 0; i < node->input_count; i++)
        args[i] = inputs[i] == CONSTANT ? PyTuple_GET_ITEM(node->work, i + 1)
                                        : run->nodes[inputs[i]].value;
    PyObject *value =
        PyObject_Vectorcall(PyTuple_GET_ITEM(node->work, 0), args, node->input_count, NULL);
    if (args != few)
        PyMem_Free(args);
    return value;
}

static PyObject *call_object(const struct node *node)
{
    const struct tnp_run *run = node->run;
    PyObject *values = PyDict_New(), *value = NULL;
    if (values == NULL)
        return NULL;
    for (uint32_t i = 0; i < node->input_count; i++) {
        const struct node *input = &run->nodes[run->inputs[node->input + i]];
        if (PyDict_SetItem(values, input->key, input->value) < 0)
            goto end;
    }
    value = PyObject_CallOneArg(node->work, values);
end:
    Py_DECREF(values);
    return value;
}

/* Call the node in a copy of the context of the caller of run(). */
static PyObject *call_in_context(const struct node *node)
{
    PyObject *context = PyContext_Copy(node->run->context), *value = NULL;
    if (context == NULL)
        return NULL;
    if (PyContext_Enter(context) == 0) {
        value = node->is_tuple ? call_tuple(node) : call_object(node);
        PyObject *type, *error, *traceback;
        PyErr_Fetch(&type, &error, &traceback);
        if (PyContext_Exit(context) < 0)
            PyErr_Clear();
        PyErr_Restore(type, error, traceback);
    }
    Py_DECREF(context);
    return value;
}

static void drop_inputs(const struct node *node)
{
    const struct tnp_run *run = node->run;
    for (uint32_t i = 0; i < node->input_count; i++) {
        uint32_t input = run->inputs[node->input + i];
        if (input != CONSTANT && --run->nodes[input].readers == 0)
            Py_CLEAR(run->nodes[input].value);
    }
}

/* Tell the scheduler the size of an array, as NumPy, PyTorch and CuPy have it. */
static void say_bytes(PyObject *value)
{
    PyObject *bytes = PyObject_GetAttr(value, nbytes_name);
    unsigned long long count = bytes != NULL ? PyLong_AsUnsignedLongLong(bytes) : 0;
    Py_XDECREF(bytes);
    if (PyErr_Occurred())
        PyErr_Clear();
    else
        (void)tnp_say_bytes(count);
}

/* Whether the error says that memory ran out. Then it is kept, and cleared. */
static bool has_run_out(struct node *node)
{
    PyObject *type, *error, *traceback;
    if (node->call.of->ran_out == NULL)
        return false;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    if (traceback != NULL)
        PyException_SetTraceback(error, traceback);
    PyObject *answer = PyObject_CallOneArg(node->call.of->ran_out, error);
    bool has = answer == Py_True;
    Py_XDECREF(answer);
    PyErr_Clear();
    if (!has) {
        PyErr_Restore(type, error, traceback);
        return false;
    }
    if (node->ran_out == NULL) { /* it has not run out before */
        node->ran_before = node->run->ran_out;
        node->run->ran_out = node;
    }
    Py_XSETREF(node->ran_out, error);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    return true;
}

static int run_node(struct tnp_call *call, const tn_task_call *now)
{
    (void)now;
    struct node *node = (struct node *)call;
    struct tnp_run *run = node->run;
    unsigned forks = tnp_forks;
    PyObject *value = run->error == NULL ? call_in_context(node) : NULL;
    if (tnp_forks != forks)
        tnp_leave_forked();
    if (value != NULL) {
        node->value = value;
        Py_CLEAR(node->ran_out); /* the node stays in the list */
        if (run->says_bytes)
            say_bytes(value);
        if (node->readers == 0)
            Py_CLEAR(node->value);
        drop_inputs(node);
        return TN_TASK_DONE;
    }
    if (run->error == NULL && has_run_out(node))
        return TN_TASK_OOM;
    if (run->error == NULL) {
        PyErr_Fetch(&run->type, &run->error, &run->traceback);
        PyErr_NormalizeException(&run->type, &run->error, &run->traceback);
        (void)tn_graph_cancel(run->graph);
    }
    PyErr_Clear();
    return TN_ERR_CHILD_FAILED;
}

/* ---- running a graph --------------------------------------------------------------------- */

static int note_edges(struct tnp_trace *trace, const struct tnp_run *run)
{
    int status = tnp_trace_begin(trace, run->graph);
    for (uint32_t i = 0; i < run->count; i++)
        for (uint32_t j = 0; status == 0 && j < run->nodes[i].input_count; j++) {
            uint32_t input = run->inputs[run->nodes[i].input + j];
            if (run->nodes[i].work != NULL && input != CONSTANT &&
                run->nodes[input].work != NULL)
                status = tnp_trace_connect(trace, run->nodes[input].task, run->nodes[i].task);
        }
    return status;
}

/* Add all nodes that are no data as tasks. 0, or a status */
static int add_tasks(tnp_sched *its, struct tnp_run *run)
{
    tn_task *tasks = PyMem_Calloc(run->count, sizeof *tasks);
    uint64_t *ends = PyMem_Calloc(run->count, sizeof *ends), count = 0, input_count = 0;
    uint64_t *inputs = PyMem_Calloc(run->input_count + 1, sizeof *inputs);
    int status = tasks == NULL || ends == NULL || inputs == NULL ? TN_ERR_NO_MEMORY : 0;
    for (uint32_t i = 0; status == 0 && i < run->count; i++)
        if (run->nodes[i].work != NULL)
            run->nodes[i].task = (uint32_t)count++;
    for (uint32_t i = 0; status == 0 && i < run->count; i++) {
        struct node *node = &run->nodes[i];
        if (node->work == NULL)
            continue;
        node->run = run;
        node->call = (struct tnp_call){its, run_node};
        for (uint32_t j = 0; j < node->input_count; j++) {
            uint32_t input = run->inputs[node->input + j];
            if (input != CONSTANT && run->nodes[input].work != NULL)
                inputs[input_count++] = TN_TASK_OF_LIST(run->nodes[input].task);
        }
        tasks[node->task] = (tn_task){.kind = its->kinds[node->kind], .context = node};
        ends[node->task] = input_count;
    }
    if (status == 0)
        status = tn_graph_create(its->sched, &run->graph);
    if (status == 0 && its->trace != NULL)
        status = note_edges(its->trace, run);
    if (status == 0)
        status = tn_graph_add(run->graph,
                              TN_OPTIONS(tn_task_list, .tasks = tasks, .count = count,
                                         .input_ends = ends, .inputs = inputs),
                              NULL);
    PyMem_Free(tasks);
    PyMem_Free(ends);
    PyMem_Free(inputs);
    return status;
}

/* Find a task that failed since its memory ran out, and make what it raised last the error. */
static bool find_failed(struct tnp_run *run)
{
    for (struct node *node = run->ran_out; node != NULL && run->error == NULL;
         node = node->ran_before) {
        int status = tn_task_get_status(run->graph, node->task, NULL);
        if (node->ran_out == NULL || status == 0 || status == TN_ERR_TIMED_OUT)
            continue;
        run->error = node->ran_out;
        run->type = (PyObject *)Py_TYPE(run->error);
        Py_INCREF(run->error);
        Py_INCREF(run->type);
        run->traceback = PyException_GetTraceback(run->error);
    }
    return run->error != NULL;
}

/* Run the tasks until all have ended or one has failed. @return whether all are done */
static bool run_tasks(tnp_sched *its, struct tnp_run *run)
{
    run->says_bytes = its->has_affinity || its->trace != NULL;
    int status = add_tasks(its, run);
    if (status == 0 && tnp_sched_of_task == its)
        tnp_note_secession(tn_deadline_after(0).ns); /* as the wait below begins */
    while (status == 0) {
        if (its->is_ending) {
            PyErr_SetNone(PyExc_SystemExit); /* which ends this thread, without a word */
            return false;
        }
        TNP_UNLOCKED(status,
                     tn_graph_wait(run->graph, tn_deadline_after(SLICE_MS * TN_MILLISECOND)));
        if (status == 0)
            return true;
        if (!find_failed(run) && status == TN_ERR_TIMED_OUT)
            status = 0;
    }
    if (run->error == NULL)
        tnp_raise(status);
    else if (!PyErr_Occurred()) { /* else a signal handler raised in this thread */
        PyErr_Restore(run->type, run->error, run->traceback);
        Py_INCREF(run->error); /* it also tells tasks that they need not begin */
        run->type = run->traceback = NULL;
    }
    return false;
}

static PyObject *collect(const struct reading *r, PyObject *keys)
{
    PyObject *values = PyList_New(PyList_GET_SIZE(keys));
    for (Py_ssize_t i = 0; values != NULL && i < PyList_GET_SIZE(keys); i++) {
        PyObject *number = PyDict_GetItemWithError(r->numbers, PyList_GET_ITEM(keys, i));
        PyObject *value =
            number != NULL ? r->run->nodes[PyLong_AsUnsignedLong(number)].value : NULL;
        Py_XINCREF(value);
        PyList_SET_ITEM(values, i, value);
        if (value == NULL)
            Py_CLEAR(values);
    }
    return values;
}

/* Free a run, or keep it until its last tasks have ended. */
static void leave_run(tnp_sched *its, struct tnp_run *run)
{
    tnp_runs_free(its);
    if (run->graph != NULL && tn_graph_cancel(run->graph) == 0 &&
        tn_graph_wait(run->graph, TN_NOW) == TN_ERR_TIMED_OUT) {
        run->next = its->unfinished;
        its->unfinished = run;
        return;
    }
    free_run(run);
}

PyObject *tnp_sched_run(tnp_sched *its, PyObject *args)
{
    struct reading r = {.its = its};
    PyObject *keys, *values = NULL;
    if (!PyArg_ParseTuple(args, "O!O!O!O!OO", &PyDict_Type, &r.graph, &PyList_Type, &keys,
                          &PyType_Type, &r.node_type, &PyType_Type, &r.data_type, &r.convert,
                          &r.find_kind) ||
        tnp_sched_of(its) == NULL)
        return NULL;
    r.run = PyMem_Calloc(1, sizeof *r.run);
    if (r.run == NULL)
        return PyErr_NoMemory();
    r.numbers = PyDict_New();
    r.kinds = PyDict_New();
    r.run->context = PyContext_CopyCurrent();
    its->callers++;
    if (r.numbers != NULL && r.kinds != NULL && r.run->context != NULL &&
        tnp_run_read(&r, keys) == 0 && run_tasks(its, r.run))
        values = collect(&r, keys);
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    leave_run(its, r.run);
    its->callers--;
    Py_XDECREF(r.numbers);
    Py_XDECREF(r.kinds);
    PyErr_Restore(type, error, traceback);
    return values;
}
