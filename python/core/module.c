/* SPDX-License-Identifier: Apache-2.0 */
#include "core.h"

#include <pthread.h>

static PyObject *version(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyUnicode_FromString(tn_version());
}

static PyMethodDef functions[] = {
    {"version", version, METH_NOARGS, "The version of the C library."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "tenon._core",
    .m_doc = "What the C library gives Python; see _core.pyi.",
    .m_size = -1,
    .m_methods = functions,
};

unsigned tnp_forks;
static void count_fork(void) { tnp_forks++; }

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void)
{
    static int (*const rooms[])(PyObject *) = {
        tnp_error_init, tnp_domain_init, tnp_tensor_init,  tnp_queue_init,
        tnp_codec_init, tnp_sync_init,   tnp_process_init, tnp_inspect_init,
    };
    pthread_atfork(NULL, NULL, count_fork);
    PyObject *module = PyModule_Create(&definition);
    for (size_t i = 0; module != NULL && i < TNP_COUNT(rooms); i++)
        if (rooms[i](module) < 0)
            Py_CLEAR(module);
    return module;
}
