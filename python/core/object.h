/* SPDX-License-Identifier: Apache-2.0 */
/* Objects of a domain: queues, events, semaphores, locks and conditions (object.c). */
#ifndef TENON_CORE_OBJECT_H
#define TENON_CORE_OBJECT_H

#include "core.h"

/* A kind of object. */
struct tnp_kind {
    const char *noun;
    int number;                                                               /* TN_OBJECT_* */
    int (*open)(tn_domain *domain, const char *name, tn_object **ret_handle); /* that exists */
};

typedef struct {
    PyObject_HEAD const struct tnp_kind *kind;
    tn_object *handle; /* NULL: closed */
    PyObject *domain;
    PyObject *weak;
    tnp_waiters waiters;
    bool is_closed; /* but somebody waits, who closes it when he comes out */
} tnp_object;

/** An object; the handle is consumed, also on failure. `domain` is borrowed. NULL: raised. */
PyObject *tnp_object_wrap(PyTypeObject *type, const struct tnp_kind *kind, tn_object *handle,
                          PyObject *domain);
/** open(domain, name or id) */
PyObject *tnp_object_open(PyTypeObject *type, const struct tnp_kind *kind, PyObject *args);
/** The handle, borrowed; NULL: raised (ValueError: closed). */
tn_object *tnp_object_of(PyObject *object);
/** The same, inline for most. pre: `object` is one */
static inline tn_object *tnp_object_here(PyObject *object)
{
    const tnp_object *self = (const tnp_object *)object;
    bool is_open = self->handle != NULL && !self->is_closed &&
                   ((const tnp_domain *)self->domain)->domain != NULL;
    return is_open ? self->handle : tnp_object_of(object);
}
/** Whether two are in one domain: a call with both then needs that only one stays open. */
bool tnp_object_is_beside(PyObject *object, PyObject *other);
/** Around a wait without the GIL, by a thread that holds a reference of the object. */
void tnp_object_go_in(PyObject *object);
void tnp_object_come_out(PyObject *object);
PyObject *tnp_object_close(PyObject *self, PyObject *unused);
void tnp_object_dealloc(PyObject *object);
PyObject *tnp_object_id(PyObject *self, void *unused);
extern PyMemberDef tnp_object_members[];

/** A call that waits in an object's handle. */
#define TNP_OBJECT_WAIT(self_, status, call)                                                   \
    do {                                                                                       \
        tnp_object_go_in(self_);                                                               \
        TNP_WAIT(((tnp_object *)(self_))->domain, status, call);                               \
        tnp_object_come_out(self_);                                                            \
    } while (0)

/** A kind, and `open` as a method. `open_call` opens by `name` an object that exists. */
#define TNP_KIND(kind, kind_number, open_call)                                                 \
    static int kind##_open(tn_domain *domain, const char *name, tn_object **ret_handle)        \
    {                                                                                          \
        return open_call;                                                                      \
    }                                                                                          \
    static const struct tnp_kind kind##_kind = {#kind, kind_number, kind##_open};              \
    static PyTypeObject kind##_type;                                                           \
    static PyObject *kind##_from(PyObject *type, PyObject *args)                               \
    {                                                                                          \
        return tnp_object_open((PyTypeObject *)type, &kind##_kind, args);                      \
    }

/** Rows of its methods. */
#define TNP_OBJECT_METHODS(kind)                                                               \
    {"open", kind##_from, METH_VARARGS | METH_CLASS,                                           \
     "open($type, domain, which, /)\n--\n\nOpen one by its name or id."},                      \
    {                                                                                          \
        "close", tnp_object_close, METH_NOARGS,                                                \
            "close($self, /)\n--\n\nClose this process's handle."                              \
    }
#define TNP_OBJECT_ID                                                                          \
    {                                                                                          \
        "id", tnp_object_id, NULL, "A number that opens it in any member.", NULL               \
    }

/** Its type, static: `kind`_type. */
#define TNP_OBJECT_TYPE(Name, kind, attributes, doc)                                           \
    static PyTypeObject kind##_type = {                                                        \
        PyVarObject_HEAD_INIT(NULL, 0).tp_name = "tenon._core." Name,                          \
        .tp_doc = doc,                                                                         \
        .tp_basicsize = sizeof(tnp_object),                                                    \
        .tp_flags = Py_TPFLAGS_DEFAULT,                                                        \
        .tp_dealloc = tnp_object_dealloc,                                                      \
        .tp_methods = kind##_methods,                                                          \
        .tp_getset = attributes,                                                               \
        .tp_members = tnp_object_members,                                                      \
        .tp_weaklistoffset = offsetof(tnp_object, weak),                                       \
    }

/* ---- locks, semaphores and conditions (sync.c) ------------------------------------------- */

bool tnp_is_semaphore(PyObject *object);
/** `object`, if it is a semaphore. NULL: raised (TypeError). */
PyObject *tnp_semaphore_checked(PyObject *object);
bool tnp_is_lock(PyObject *object);
bool tnp_is_condition(PyObject *object);
/** Of a Lock, however long that takes. -1: raised. */
int tnp_lock_acquire(PyObject *lock);
int tnp_lock_release(PyObject *lock);
/**
 * As tn_condition_wait(), of a Condition and a Lock that this thread holds, which it holds
 * again then. -1: raised, by a handler of a signal, or since one of the two is closed.
 */
int tnp_condition_wait(PyObject *condition, PyObject *lock, tn_deadline deadline,
                       int *ret_status);
/** Wake all. -1: raised. */
int tnp_condition_broadcast(PyObject *condition);

#endif
