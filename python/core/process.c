/* SPDX-License-Identifier: Apache-2.0 */
/* process: functions for processes of Python, for strategies, and for tenon.torch. */
#include "core.h"

#include <string.h>

static PyObject *follow(PyObject *module, PyObject *args)
{
    PyObject *domain;
    int pid;
    (void)module;
    if (!PyArg_ParseTuple(args, "Oi", &domain, &pid))
        return NULL;
    tn_domain *d = tnp_domain_of(domain);
    if (d == NULL)
        return NULL;
    int status = tn_process_follow(d, pid);
    if (status != 0)
        return tnp_raise(status);
    Py_RETURN_NONE;
}

/* tenon._torch_private finds the words, and tries this on storages of its own first. */
static PyObject *swap_words(PyObject *module, PyObject *args)
{
    unsigned long long one, other;
    unsigned count;
    (void)module;
    if (!PyArg_ParseTuple(args, "KKI", &one, &other, &count))
        return NULL;
    uintptr_t *a = (uintptr_t *)(uintptr_t)one, *b = (uintptr_t *)(uintptr_t)other;
    for (unsigned i = 0; i < count; i++) {
        uintptr_t kept = a[i];
        a[i] = b[i];
        b[i] = kept;
    }
    Py_RETURN_NONE;
}

/* The strategies that this process can use for new storages. */
static PyObject *strategies(PyObject *module, PyObject *unused)
{
    PyObject *list = PyList_New(0);
    (void)module, (void)unused;
    const char *name;
    for (uint32_t i = 1; list != NULL && (name = tn_strategy_name(i)) != NULL; i++) {
        PyObject *text = PyUnicode_FromString(name);
        if (text == NULL || PyList_Append(list, text) < 0)
            Py_CLEAR(list);
        Py_XDECREF(text);
    }
    return list;
}

static PyObject *get_strategy(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyUnicode_FromString(tn_strategy_name(tn_strategy_get()));
}

static PyObject *set_strategy(PyObject *module, PyObject *name)
{
    const char *text = PyUnicode_AsUTF8(name);
    (void)module;
    if (text == NULL)
        return NULL;
    uint32_t strategy;
    int status = tn_strategy_parse(text, &strategy);
    if (status == 0)
        status = tn_strategy_set(strategy);
    if (status != 0)
        return tnp_raise(status);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"follow", follow, METH_VARARGS,
     "follow($module, domain, pid, /)\n--\n\n"
     "This process ends when another member, by its pid, ends, however that ends."},
    {"swap_words", swap_words, METH_VARARGS,
     "swap_words($module, one, other, count, /)\n--\n\n"
     "Exchange `count` machine words at two addresses."},
    {"strategies", strategies, METH_NOARGS,
     "strategies($module, /)\n--\n\n"
     "The names of the strategies of this system."},
    {"get_strategy", get_strategy, METH_NOARGS,
     "get_strategy($module, /)\n--\n\n"
     "The strategy of new storages."},
    {"set_strategy", set_strategy, METH_O,
     "set_strategy($module, name, /)\n--\n\n"
     "Set the strategy of new storages."},
    {NULL, NULL, 0, NULL},
};

int tnp_process_init(PyObject *module) { return PyModule_AddFunctions(module, functions); }
