/* SPDX-License-Identifier: Apache-2.0 */
/*
 * any_lock: the functions of guard.h for any lock. A Guard is used by its functions in C, any
 * other lock by its methods.
 */
#include "guard.h"

static PyObject *acquire_name, *release_name;

static int call(PyObject *lock, PyObject *name)
{
    PyObject *result = PyObject_CallMethodNoArgs(lock, name);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

int tnp_any_lock_acquire(PyObject *lock)
{
    if (PyObject_TypeCheck(lock, &tnp_guard_type))
        return tnp_guard_acquire((tnp_guard *)lock, TN_FOREVER) < 0 ? -1 : 0;
    return call(lock, acquire_name);
}

int tnp_any_lock_release(PyObject *lock)
{
    if (PyObject_TypeCheck(lock, &tnp_guard_type))
        return tnp_guard_release((tnp_guard *)lock);
    return call(lock, release_name);
}

/* Ask the `_semlock` that locks of the standard library have. -1: raised */
static long ask_semlock(PyObject *lock, const char *method)
{
    PyObject *semlock = PyObject_GetAttrString(lock, "_semlock");
    PyObject *answer = semlock == NULL ? NULL : PyObject_CallMethod(semlock, method, NULL);
    long number = answer == NULL ? -1 : PyLong_AsLong(answer);
    Py_XDECREF(semlock);
    Py_XDECREF(answer);
    return number == -1 && PyErr_Occurred() ? -1 : number;
}

int tnp_any_lock_is_mine(PyObject *lock)
{
    if (PyObject_TypeCheck(lock, &tnp_guard_type))
        return tnp_guard_is_mine((tnp_guard *)lock);
    return (int)ask_semlock(lock, "_is_mine");
}

int tnp_any_lock_release_all(PyObject *lock, unsigned long *ret_count)
{
    if (PyObject_TypeCheck(lock, &tnp_guard_type))
        return tnp_guard_release_all((tnp_guard *)lock, ret_count);
    long count = ask_semlock(lock, "_count");
    int failed = count < 0 ? -1 : 0;
    for (long i = 0; i < count && failed == 0; i++)
        failed = call(lock, release_name);
    *ret_count = (unsigned long)count;
    return failed;
}

int tnp_any_lock_acquire_again(PyObject *lock, unsigned long count)
{
    if (PyObject_TypeCheck(lock, &tnp_guard_type))
        return tnp_guard_acquire_again((tnp_guard *)lock, count);
    int failed = 0;
    for (; count > 0 && failed == 0; count--)
        failed = call(lock, acquire_name);
    return failed;
}

int tnp_any_lock_wake_on_release(PyObject *lock, PyObject *core)
{
    if (PyObject_TypeCheck(lock, &tnp_guard_type))
        return tnp_guard_wake_on_release((tnp_guard *)lock, core);
    return tnp_condition_broadcast(core);
}

int tnp_any_lock_init(PyObject *module)
{
    (void)module;
    acquire_name = PyUnicode_InternFromString("acquire");
    release_name = PyUnicode_InternFromString("release");
    return acquire_name == NULL || release_name == NULL ? -1 : 0;
}
