/* SPDX-License-Identifier: Apache-2.0 */
#include "message.h"

static PyObject *version(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyUnicode_FromString(tn_version());
}

static PyMethodDef functions[] = {
    {"version", version, METH_NOARGS,
     "version($module, /)\n--\n\n"
     "The version of the C library."},
    {NULL, NULL, 0, NULL},
};

/*
 * The types, the exceptions and the default domain exist once in a process, as its seat in the
 * domain does. If a subinterpreter imported tenon, its end would destroy objects that the main
 * interpreter uses.
 */
static int check_interpreter(void)
{
    if (PyInterpreterState_Get() == PyInterpreterState_Main())
        return 0;
    PyErr_SetString(PyExc_ImportError,
                    "tenon cannot be imported in a subinterpreter: use processes or threads");
    return -1;
}

/* The first module object. A second import in the main interpreter gets the same contents. */
static PyObject *filled;

static int fill(PyObject *module)
{
    static int (*const rooms[])(PyObject *) = {
        tnp_log_init,     tnp_error_init,    tnp_wait_init,         tnp_domain_init,
        tnp_tensor_init,  tnp_device_init,   tnp_torch_memory_init, tnp_queue_init,
        tnp_popped_init,  tnp_backlog_init,  tnp_codec_init,        tnp_sync_init,
        tnp_guard_init,   tnp_any_lock_init, tnp_synchronized_init, tnp_condition_init,
        tnp_process_init, tnp_inspect_init,  tnp_sched_init,        tnp_traffic_init,
        tnp_store_init,   tnp_channel_init,  tnp_numpy_memory_init,
    };
    if (check_interpreter() < 0)
        return -1;
    if (filled != NULL)
        return PyDict_Merge(PyModule_GetDict(module), PyModule_GetDict(filled), 0);
    for (size_t i = 0; i < TNP_COUNT(rooms); i++)
        if (rooms[i](module) < 0)
            return -1;
    Py_INCREF(module);
    filled = module;
    return 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)fill},
#ifdef Py_mod_multiple_interpreters
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "tenon._core",
    .m_doc = "What the C library gives Python; see _core.pyi.",
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void) { return PyModuleDef_Init(&definition); }
