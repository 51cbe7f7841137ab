/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_read: finds the nodes of a graph that the keys need, and sorts them. A node is data; a
 * call, which is a tuple of a function and of arguments that are keys or plain constants; or an
 * object that is called with a dict of its inputs, as Dask's own nodes are. Everything else
 * `convert` turns into data or into such an object.
 */
#include "run.h"

static PyObject *dependencies_name, *func_name, *value_name;

int tnp_run_read_init(void)
{
    dependencies_name = PyUnicode_InternFromString("dependencies");
    func_name = PyUnicode_InternFromString("func");
    value_name = PyUnicode_InternFromString("value");
    return dependencies_name == NULL || func_name == NULL || value_name == NULL ? -1 : 0;
}

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
    nodes[run->count] = (struct node){.key = key, .work = work};
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

int tnp_run_read(struct reading *r, PyObject *keys)
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
