/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run: Scheduler.run(), which runs a Dask graph.
 *
 * A node is a key that is needed, with what Dask's graph has for it. read_node() sorts it:
 * data; a call, which is a tuple of a function and of arguments that are keys or plain
 * constants; or an object that is called with a dict of its inputs, as Dask's own nodes are.
 * Everything else `convert` turns into data or into such an object.
 *
 * The value of a node is dropped when the last node that reads it has run, unless the caller
 * asked for it. The GIL protects all nodes.
 */
#include "sched.h"

#include <string.h>

enum { SLICE_MS = 50 }; /* between two looks of the caller at failures of other threads */

struct node {
    struct tnp_call call;
    struct tnp_run *run;
    PyObject *key, *work; /* owned; work is NULL if the node is data */
    PyObject *value;      /* owned; NULL: not there yet, or dropped */
    bool is_tuple;
    uint32_t input;       /* the first of its inputs in run->inputs */
    uint32_t input_count; /* is_tuple: arguments of the call */
    uint32_t readers;     /* inputs of other nodes, and wishes of the caller, that are open */
    uint32_t task;        /* its number in the graph */
    Py_ssize_t kind;
};

struct tnp_run {
    tn_graph *graph;
    struct tnp_run *next; /* of tnp_sched.unfinished */
    struct node *nodes;   /* [count] */
    uint32_t *inputs;     /* [input_count]: nodes, or CONSTANT for an argument of a tuple */
    PyObject *context;    /* copied for each task */
    PyObject *type, *error, *traceback; /* what the first task raised */
    uint32_t count, input_count;
    size_t room, input_room;
    bool has_affinity; /* the sizes of results matter */
};

enum {
    CONSTANT = UINT32_MAX,
    MOST = CONSTANT / 4, /* nodes of a run, and inputs */
};

/* What run() was given, and what it needs until the graph runs. */
struct reading {
    tnp_sched *its;
    struct tnp_run *run;
    PyObject *graph, *convert, *find_kind; /* borrowed */
    PyTypeObject *node_type, *data_type;   /* borrowed */
    PyObject *numbers;                     /* owned: node by key */
    PyObject *kinds;                       /* owned: kind by the address of a function */
};

static PyObject *dependencies_name, *func_name, *nbytes_name, *value_name;

int tnp_run_init(void)
{
    dependencies_name = PyUnicode_InternFromString("dependencies");
    func_name = PyUnicode_InternFromString("func");
    nbytes_name = PyUnicode_InternFromString("nbytes");
    value_name = PyUnicode_InternFromString("value");
    return dependencies_name == NULL || func_name == NULL || nbytes_name == NULL ||
                   value_name == NULL
               ? -1
               : 0;
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
        (void)tn_task_set_bytes(count);
}

static int run_node(struct tnp_call *call)
{
    struct node *node = (struct node *)call;
    struct tnp_run *run = node->run;
    PyObject *value = run->error == NULL ? call_in_context(node) : NULL;
    if (value != NULL) {
        node->value = value;
        if (run->has_affinity)
            say_bytes(value);
        if (node->readers == 0)
            Py_CLEAR(node->value);
        drop_inputs(node);
        return TN_TASK_DONE;
    }
    if (run->error == NULL) {
        PyErr_Fetch(&run->type, &run->error, &run->traceback);
        PyErr_NormalizeException(&run->type, &run->error, &run->traceback);
        (void)tn_graph_cancel(run->graph);
    }
    PyErr_Clear();
    return TN_ERR_CHILD_FAILED;
}

/* ---- reading a graph --------------------------------------------------------------------- */

static int add_input(struct tnp_run *run, uint32_t input)
{
    uint32_t *inputs = NULL;
    if (run->input_count < MOST)
        inputs = tnp_grow(run->inputs, sizeof *inputs, run->input_count, &run->input_room);
    if (inputs == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    run->inputs = inputs;
    inputs[run->input_count++] = input;
    return 0;
}

/*
 * Find the node of a key, or add one. 0: the graph has no such key; -1: raised, as for a key
 * that cannot be hashed
 */
static int find_node(struct reading *r, PyObject *key, uint32_t *ret_number)
{
    struct tnp_run *run = r->run;
    PyObject *number = PyDict_GetItemWithError(r->numbers, key);
    if (number != NULL) {
        *ret_number = (uint32_t)PyLong_AsUnsignedLong(number);
        return 1;
    }
    PyObject *work = PyErr_Occurred() ? NULL : PyDict_GetItemWithError(r->graph, key);
    if (work == NULL)
        return PyErr_Occurred() ? -1 : 0;
    struct node *nodes = NULL;
    if (run->count < MOST)
        nodes = tnp_grow(run->nodes, sizeof *nodes, run->count, &run->room);
    if (nodes == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    run->nodes = nodes;
    number = PyLong_FromUnsignedLong(run->count);
    if (number == NULL || PyDict_SetItem(r->numbers, key, number) < 0) {
        Py_XDECREF(number);
        return -1;
    }
    Py_DECREF(number);
    Py_INCREF(key);
    Py_INCREF(work);
    nodes[run->count] = (struct node){.call = {NULL, run_node}, .key = key, .work = work};
    *ret_number = run->count++;
    return 1;
}

/* The kind of a function, which lives as long as its node. -1: raised */
static Py_ssize_t find_kind(struct reading *r, PyObject *function)
{
    PyObject *address = PyLong_FromVoidPtr(function);
    if (address == NULL)
        return -1;
    PyObject *kind = PyDict_GetItemWithError(r->kinds, address);
    if (kind != NULL) {
        Py_INCREF(kind);
    } else if (!PyErr_Occurred()) {
        kind = PyObject_CallOneArg(r->find_kind, function);
        if (kind != NULL && PyDict_SetItem(r->kinds, address, kind) < 0)
            Py_CLEAR(kind);
    }
    Py_DECREF(address);
    Py_ssize_t index = kind != NULL ? PyLong_AsSsize_t(kind) : -1;
    Py_XDECREF(kind);
    return index;
}

/* The kind of an object that is called: of its function, or of its type if it has none. */
static Py_ssize_t find_kind_of_object(struct reading *r, PyObject *work)
{
    PyObject *function = PyObject_GetAttr(work, func_name);
    if (function == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError))
            return -1;
        PyErr_Clear();
        return find_kind(r, (PyObject *)Py_TYPE(work));
    }
    Py_ssize_t kind = find_kind(r, function);
    Py_DECREF(function);
    return kind;
}

/* Whether an argument that is no key is used as it is. Others may contain keys. */
static bool is_constant(PyObject *value)
{
    PyTypeObject *type = Py_TYPE(value);
    return type == &PyUnicode_Type || type == &PyLong_Type || type == &PyFloat_Type ||
           type == &PyBool_Type || value == Py_None || type == &PyBytes_Type ||
           type == &PySlice_Type || type == &PyFunction_Type || type == &PyCFunction_Type;
}

/* Read a tuple of a function and arguments. 0: convert() has to read it; -1: raised */
static int read_call(struct reading *r, uint32_t number)
{
    struct tnp_run *run = r->run;
    PyObject *work = run->nodes[number].work;
    uint32_t first = run->input_count;
    Py_ssize_t size = PyTuple_GET_SIZE(work);
    for (Py_ssize_t i = 1; i < size; i++) {
        PyObject *argument = PyTuple_GET_ITEM(work, i);
        uint32_t input = CONSTANT;
        bool is_plain = is_constant(argument), is_tuple = PyTuple_CheckExact(argument);
        int found = 0;
        if (is_plain || is_tuple)
            found = find_node(r, argument, &input);
        if (found < 0 && !PyErr_ExceptionMatches(PyExc_TypeError))
            return -1;
        PyErr_Clear(); /* it cannot be hashed, so it is no key */
        if (found <= 0 && !is_plain) {
            run->input_count = first;
            return 0;
        }
        if (add_input(run, found > 0 ? input : CONSTANT) < 0)
            return -1;
    }
    struct node *node = &run->nodes[number];
    node->is_tuple = true;
    node->input = first;
    node->input_count = (uint32_t)(size - 1);
    return 1;
}

/* Read an object that is called with its inputs. -1: raised */
static int read_object(struct reading *r, uint32_t number)
{
    struct tnp_run *run = r->run;
    PyObject *inputs = PyObject_GetAttr(run->nodes[number].work, dependencies_name);
    PyObject *each = inputs != NULL ? PyObject_GetIter(inputs) : NULL, *key;
    uint32_t first = run->input_count, input;
    Py_XDECREF(inputs);
    if (each == NULL)
        return -1;
    while ((key = PyIter_Next(each)) != NULL) {
        int found = find_node(r, key, &input);
        if (found == 0)
            PyErr_Format(PyExc_ValueError, "Missing dependency %R for dependents {%R}", key,
                         run->nodes[number].key);
        Py_DECREF(key);
        if (found <= 0 || add_input(run, input) < 0)
            break;
    }
    Py_DECREF(each);
    run->nodes[number].input = first;
    run->nodes[number].input_count = run->input_count - first;
    return PyErr_Occurred() ? -1 : 0;
}

static int set_data(struct node *node, PyObject *value)
{
    node->value = value;
    Py_CLEAR(node->work);
    return value != NULL ? 0 : -1;
}

/* Sort a node, and add the nodes that it needs. -1: raised */
static int read_node(struct reading *r, uint32_t number)
{
    struct node *node = &r->run->nodes[number];
    PyObject *work = node->work, *function = NULL;
    if (PyTuple_CheckExact(work) && PyTuple_GET_SIZE(work) > 0 &&
        PyCallable_Check(PyTuple_GET_ITEM(work, 0))) {
        int is_read = read_call(r, number);
        if (is_read < 0)
            return -1;
        function = is_read ? PyTuple_GET_ITEM(work, 0) : NULL;
    }
    node = &r->run->nodes[number]; /* the nodes may have moved */
    if (function == NULL && !PyObject_TypeCheck(work, r->node_type)) {
        PyObject *object = PyObject_CallFunctionObjArgs(r->convert, node->key, work, NULL);
        if (object == NULL)
            return -1;
        Py_SETREF(node->work, object);
        work = object;
    }
    if (function == NULL && PyObject_TypeCheck(work, r->data_type))
        return set_data(node, PyObject_GetAttr(work, value_name));
    if (function == NULL && read_object(r, number) < 0)
        return -1;
    r->run->nodes[number].kind =
        function != NULL ? find_kind(r, function) : find_kind_of_object(r, work);
    return r->run->nodes[number].kind < 0 ? -1 : 0;
}

/* A key may be a tuple, which PyErr_SetObject() would take for several arguments. */
static void raise_key_error(PyObject *key)
{
    PyObject *arguments = PyTuple_Pack(1, key);
    if (arguments != NULL)
        PyErr_SetObject(PyExc_KeyError, arguments);
    Py_XDECREF(arguments);
}

/* Read all nodes that the keys need. -1: raised */
static int read_graph(struct reading *r, PyObject *keys)
{
    struct tnp_run *run = r->run;
    uint32_t number;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(keys); i++) {
        int found = find_node(r, PyList_GET_ITEM(keys, i), &number);
        if (found == 0)
            raise_key_error(PyList_GET_ITEM(keys, i));
        if (found <= 0)
            return -1;
        run->nodes[number].readers++;
    }
    for (uint32_t i = 0; i < run->count; i++)
        if (read_node(r, i) < 0)
            return -1;
    for (uint32_t i = 0; i < run->input_count; i++)
        if (run->inputs[i] != CONSTANT)
            run->nodes[run->inputs[i]].readers++;
    return 0;
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
        node->call.of = its;
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

/* Run the tasks until all have ended or one has failed. @return whether all are done */
static bool run_tasks(tnp_sched *its, struct tnp_run *run)
{
    run->has_affinity = its->has_affinity;
    int status = add_tasks(its, run);
    while (status == 0) {
        if (its->is_ending) {
            PyErr_SetNone(PyExc_SystemExit); /* which ends this thread, without a word */
            return false;
        }
        TNP_UNLOCKED(status,
                     tn_graph_wait(run->graph, tn_deadline_after(SLICE_MS * TN_MILLISECOND)));
        if (status == 0)
            return true;
        if (status == TN_ERR_TIMED_OUT && run->error == NULL)
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
        read_graph(&r, keys) == 0 && run_tasks(its, r.run))
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
