/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts that queues, events, semaphores, locks and conditions have in common: handles in a
 * domain.
 */
#include "object.h"

PyObject *tnp_object_wrap(PyTypeObject *type, const struct tnp_kind *kind, tn_object *handle,
                          PyObject *domain)
{
    tnp_object *self = (tnp_object *)type->tp_alloc(type, 0);
    if (self == NULL) {
        tn_object_close(handle);
        return NULL;
    }
    self->kind = kind;
    self->handle = handle;
    Py_INCREF(domain);
    self->domain = domain;
    return (PyObject *)self;
}

PyObject *tnp_object_open(PyTypeObject *type, const struct tnp_kind *kind, PyObject *args)
{
    PyObject *domain, *which;
    tn_object *handle;
    int status;
    if (!PyArg_ParseTuple(args, "OO", &domain, &which))
        return NULL;
    tn_domain *d = tnp_domain_of(domain);
    if (d == NULL)
        return NULL;
    if (PyUnicode_Check(which)) {
        const char *name = PyUnicode_AsUTF8(which);
        if (name == NULL)
            return NULL;
        TNP_WAIT(domain, status, kind->open(d, name, &handle));
    } else {
        unsigned long long id = PyLong_AsUnsignedLongLong(which);
        if (id == (unsigned long long)-1 && PyErr_Occurred())
            return NULL;
        TNP_WAIT(domain, status, tn_object_open_id(d, kind->number, id, &handle));
    }
    return status != 0 ? tnp_raise(status) : tnp_object_wrap(type, kind, handle, domain);
}

tn_object *tnp_object_handle(PyObject *object)
{
    tnp_object *self = (tnp_object *)object;
    if (self->handle == NULL || self->is_closed) {
        PyErr_Format(PyExc_ValueError, "this process has closed the %s", self->kind->noun);
        return NULL;
    }
    return tnp_domain_of(self->domain) == NULL ? NULL : self->handle;
}

/*
 * Call it with the GIL, since another thread may close the domain. If threads wait, the last of
 * them closes the handle.
 */
static void leave(tnp_object *self)
{
    tn_object *handle = self->handle;
    self->is_closed = true;
    Py_CLEAR(self->kept);
    if (tnp_waiter_count(&self->waiters) > 0 || handle == NULL)
        return;
    self->handle = NULL;
    tn_object_close(handle);
}

bool tnp_object_shares_domain(PyObject *object, PyObject *other)
{
    const tnp_domain *one = (tnp_domain *)((tnp_object *)object)->domain;
    return one->domain == ((tnp_domain *)((tnp_object *)other)->domain)->domain;
}

void tnp_object_begin_wait(PyObject *object)
{
    tnp_begin_wait(&((tnp_object *)object)->waiters);
}

void tnp_object_end_wait(PyObject *object)
{
    tnp_object *self = (tnp_object *)object;
    tnp_end_wait(&self->waiters);
    if (tnp_waiter_count(&self->waiters) == 0 && self->is_closed)
        leave(self);
}

bool tnp_object_was_closed(const struct tnp_wait *wait)
{
    for (Py_ssize_t i = 0; i < wait->object_count; i++)
        if (atomic_load(&((tnp_object *)wait->objects[i])->is_closed))
            return true;
    return false;
}

void tnp_object_raise_closed(PyObject *object, int status)
{
    const tnp_object *self = (tnp_object *)object;
    if (status == TN_ERR_INTERRUPTED && self->is_closed && PyErr_Occurred() == NULL)
        (void)tnp_object_handle(object);
}

PyObject *tnp_object_close(PyObject *self, PyObject *unused)
{
    (void)unused;
    leave((tnp_object *)self);
    Py_RETURN_NONE;
}

void tnp_object_dealloc(PyObject *object)
{
    tnp_object *self = (tnp_object *)object;
    if (self->weak != NULL)
        PyObject_ClearWeakRefs(object);
    leave(self);
    Py_XDECREF(self->domain);
    Py_TYPE(object)->tp_free(object);
}

PyObject *tnp_object_id(PyObject *self, void *unused)
{
    const tn_object *handle = tnp_object_handle(self);
    (void)unused;
    return handle == NULL ? NULL : PyLong_FromUnsignedLongLong(tn_object_id(handle));
}

PyMemberDef tnp_object_members[] = {
    {"domain", T_OBJECT, offsetof(tnp_object, domain), READONLY, "Its domain."},
    {NULL, 0, 0, 0, NULL},
};
