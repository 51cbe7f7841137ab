/* SPDX-License-Identifier: Apache-2.0 */
/*
 * domain: the memory of the type, the default domain, and how a process leaves a domain.
 * domain_type.c has the methods.
 */
#include "core.h"

static PyObject *get_default; /* makes or joins the domain of this process */
static PyObject
    *present_default; /* its last result; a forked child keeps the domain of its parent */

/*
 * End a thread that calls after the domain was closed at exit. Such a thread is a daemon, which
 * Python does not join. SystemExit ends it without a message, and the thread releases the locks
 * that it holds, for which functions at exit may wait. If the thread catches SystemExit and
 * calls again, the pause lets other threads run.
 * @return false: the domain was not closed at exit, or this thread closed it
 */
static bool end_thread_at_exit(const tnp_domain *self)
{
    if (self->exiting == 0 || self->exiting == PyThread_get_thread_ident())
        return false;
    tnp_pause();
    PyErr_SetNone(PyExc_SystemExit);
    return true;
}

/* It waits for the work that this process gave its devices. */
static void leave(tn_domain *domain)
{
    Py_BEGIN_ALLOW_THREADS;
    tnp_torch_memory_close(domain);
    Py_END_ALLOW_THREADS;
}

static void leave_if_last(tnp_domain *self)
{
    tn_domain *domain = self->leaving;
    if (domain == NULL || tnp_waiter_count(&self->waiters) > 0)
        return;
    self->leaving = NULL;
    leave(domain);
}

void tnp_end_wait_of_closed(tnp_domain *self, int status)
{
    if (self->exiting != 0 && self->exiting != PyThread_get_thread_ident() &&
        tnp_held_in_wait != NULL)
        (void)!tn_lock_release(tnp_held_in_wait);
    leave_if_last(self);
    /*
     * CORRUPT: the owner of the lock that this thread waited for was a thread that ended at
     * exit.
     */
    if ((status == TN_ERR_INTERRUPTED || status == TN_ERR_CORRUPT) && PyErr_Occurred() == NULL)
        (void)!end_thread_at_exit(self);
}

tn_domain *tnp_domain_of(PyObject *object)
{
    if (!PyObject_TypeCheck(object, &tnp_domain_type)) {
        PyErr_Format(PyExc_TypeError, "a tenon.Domain is needed, not %.200s",
                     Py_TYPE(object)->tp_name);
        return NULL;
    }
    tn_domain *domain = ((tnp_domain *)object)->domain;
    if (domain == NULL && !end_thread_at_exit((tnp_domain *)object))
        tnp_raise_text(TN_ERR_CLOSED, "this process has closed the domain");
    return domain;
}

PyObject *tnp_domain_default(void)
{
    if (present_default != NULL && ((tnp_domain *)present_default)->domain != NULL) {
        Py_INCREF(present_default);
        return present_default;
    }
    if (get_default == NULL) {
        PyErr_SetString(
            PyExc_RuntimeError,
            "this process has no default domain: set_default_domain() was not called");
        return NULL;
    }
    PyObject *domain = PyObject_CallObject(get_default, NULL);
    if (domain != NULL && tnp_domain_of(domain) == NULL)
        Py_CLEAR(domain);
    if (domain != NULL) {
        Py_INCREF(domain);
        Py_XSETREF(present_default, domain);
    }
    return domain;
}

void tnp_domain_set_default(PyObject *function)
{
    Py_INCREF(function);
    Py_XSETREF(get_default, function);
    Py_CLEAR(present_default);
}

/* ---- leaving ----------------------------------------------------------------------------- */

/*
 * Whether this thread waits in a call on the domain. A forked child does not: it returns from
 * the handler that forked it, and its parent waits.
 */
static bool is_waiting_in(const tnp_domain *self)
{
    if (tnp_waiter_count(&self->waiters) == 0)
        return false;
    const struct tnp_wait *wait = tnp_wait_now;
    while (wait != NULL && wait->domain != self)
        wait = wait->outer;
    return wait != NULL;
}

/*
 * When the domain is closed, no thread may be inside a call on it or on one of its objects. A
 * call that holds the GIL cannot run now, since this function holds the GIL. Calls without the
 * GIL are counted in `waiters`, and `is_closing` makes them return. If this thread itself is
 * inside a call, because a signal handler closes the domain, it cannot wait for that call: then
 * the last waiter that returns leaves the domain.
 */
void tnp_domain_leave(tnp_domain *self)
{
    tn_domain *domain = self->domain;
    self->domain = NULL;
    atomic_store(&self->is_closing, true);
    if (is_waiting_in(self)) {
        if (domain != NULL)
            self->leaving = domain;
        return;
    }
    while (tnp_waiter_count(&self->waiters) > 0)
        tnp_pause();
    leave(domain);
}

static void dealloc(PyObject *object)
{
    tnp_domain *self = (tnp_domain *)object;
    if (self->weak != NULL)
        PyObject_ClearWeakRefs(object);
    tnp_domain_leave(self);
    Py_TYPE(object)->tp_free(object);
}

PyTypeObject tnp_domain_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "tenon.Domain",
    .tp_doc = "The processes that share, with their memory.",
    .tp_basicsize = sizeof(tnp_domain),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_dealloc = dealloc,
    .tp_weaklistoffset = offsetof(tnp_domain, weak),
};
