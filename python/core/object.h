/* SPDX-License-Identifier: Apache-2.0 */
/* Objects of a domain: queues, events, semaphores, locks and conditions (object.c). */
#ifndef TENON_CORE_OBJECT_H
#define TENON_CORE_OBJECT_H

#include "core.h"

/* A kind of objects. open() opens an existing object by its name. */
struct tnp_kind {
    const char *noun;
    int number; /* TN_OBJECT_* */
    int (*open)(tn_domain *domain, const char *name, tn_object **ret_handle);
};

typedef struct {
    PyObject_HEAD const struct tnp_kind *kind;
    tn_object *handle; /* NULL: closed */
    PyObject *domain;
    PyObject *weak;
    tnp_waiters waiters;
    PyObject *kept;      /* of a queue: a list of popped messages (popped.c), or NULL */
    unsigned kept_forks; /* tnp_forks when `kept` was made */
    tnp_waiters receivers, subscribers; /* of a channel: threads in such a call (channel.c) */
    _Atomic bool is_closed; /* close() was called while a thread waits: the waiters return,
                               and the last one closes the handle */
} tnp_object;

/**
 * Make a Python object of a handle. The handle is consumed, also on failure. `domain` is
 * borrowed. NULL: raised.
 */
PyObject *tnp_object_wrap(PyTypeObject *type, const struct tnp_kind *kind, tn_object *handle,
                          PyObject *domain);
/** The method open(domain, name or id). */
PyObject *tnp_object_open(PyTypeObject *type, const struct tnp_kind *kind, PyObject *args);
/** The handle, borrowed. NULL: raised (ValueError: closed). */
tn_object *tnp_object_handle(PyObject *object);
/** The same, inlined for an open object. pre: `object` is a tnp_object */
static inline tn_object *tnp_object_handle_inline(PyObject *object)
{
    const tnp_object *self = (const tnp_object *)object;
    bool is_open = self->handle != NULL && !self->is_closed &&
                   ((const tnp_domain *)self->domain)->domain != NULL;
    return is_open ? self->handle : tnp_object_handle(object);
}
/**
 * Whether two objects belong to one domain. A call that takes both then stays valid as long as
 * this domain is open.
 */
bool tnp_object_shares_domain(PyObject *object, PyObject *other);
/** Enclose a wait without the GIL. The thread holds a reference to the object meanwhile. */
void tnp_object_begin_wait(PyObject *object);
void tnp_object_end_wait(PyObject *object);
/** Whether one of the objects of this wait was closed. Needs no GIL. */
bool tnp_object_was_closed(const struct tnp_wait *wait);
/**
 * If a wait returned `status` because another thread closed the object, raise the error that
 * the object is closed. The error that a signal handler has raised stays.
 */
void tnp_object_raise_closed(PyObject *object, int status);
PyObject *tnp_object_close(PyObject *self, PyObject *unused);
void tnp_object_dealloc(PyObject *object);
PyObject *tnp_object_id(PyObject *self, void *unused);
extern PyMemberDef tnp_object_members[];

/** TNP_WAIT(), which also ends when one of these objects of the domain is closed. */
#define TNP_WAIT_FOR(domain_object, objects_, count_, status, call)                            \
    TNP_WAIT_AS(((struct tnp_wait){.domain = (tnp_domain *)(domain_object),                    \
                                   .was_closed = tnp_object_was_closed,                        \
                                   .objects = (objects_),                                      \
                                   .object_count = (count_)}),                                 \
                status, call)
/** Run a call that waits on the handle of an object, without the GIL. */
#define TNP_OBJECT_WAIT(self_, status, call)                                                   \
    do {                                                                                       \
        PyObject *const tnp_object_here = (PyObject *)(self_);                                 \
        tnp_object_begin_wait(tnp_object_here);                                                \
        TNP_WAIT_FOR(((tnp_object *)tnp_object_here)->domain, &tnp_object_here, 1, status,     \
                     call);                                                                    \
        tnp_object_end_wait(tnp_object_here);                                                  \
        tnp_object_raise_closed(tnp_object_here, status);                                      \
    } while (0)

/**
 * Define a kind of objects and its method `open`. `open_call` opens an existing object by
 * `name`.
 */
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

/** The methods that all kinds have, as rows of a table. */
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

/** Define the static type `kind`_type. */
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
/** Return `object` if it is a semaphore. NULL: raised (TypeError). */
PyObject *tnp_semaphore_checked(PyObject *object);
bool tnp_is_lock(PyObject *object);
bool tnp_is_condition(PyObject *object);
/** Acquire a Lock without a time limit. -1: raised. */
int tnp_lock_acquire(PyObject *lock);
int tnp_lock_release(PyObject *lock);
/**
 * Call tn_condition_wait() with a Condition and a Lock that this thread holds. The thread holds
 * the lock again when the call returns. -1: raised, because a signal handler raised or one of
 * the two is closed.
 */
int tnp_condition_wait(PyObject *condition, PyObject *lock, tn_deadline deadline,
                       int *ret_status);
/** Wake all waiters. -1: raised. */
int tnp_condition_broadcast(PyObject *condition);

#endif
