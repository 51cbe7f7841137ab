/* SPDX-License-Identifier: Apache-2.0 */
/* Event, Semaphore, Lock and Condition: four types of one form. */
#include "core.h"

#include <stddef.h>
#include <structmember.h>

typedef struct {
    PyObject_HEAD void *object; /* tn_event, tn_semaphore, ...; NULL: closed */
    PyObject *domain;
    PyObject *weak;
    tnp_waiters waiters;
    bool is_closed; /* but somebody waits, who closes it when he comes out */
} tnp_sync;

/* What the four have in common, and how each does it. */
struct kind {
    const char *name;
    int (*create)(tn_domain *domain, const char *name, void **ret); /* NULL: takes more */
    int (*open)(tn_domain *domain, const char *name, void **ret);
    int (*open_id)(tn_domain *domain, uint64_t id, void **ret);
    uint64_t (*id)(const void *object);
    void (*close)(void *object);
    PyTypeObject *type;
};

static const struct kind *kind_of(PyObject *self);

static void *object_of(PyObject *object)
{
    tnp_sync *self = (tnp_sync *)object;
    if (self->object == NULL || self->is_closed) {
        PyErr_Format(PyExc_ValueError, "this process has closed the %s", kind_of(object)->name);
        return NULL;
    }
    return tnp_domain_of(self->domain) == NULL ? NULL : self->object;
}

static PyObject *wrap(const struct kind *kind, void *object, PyObject *domain)
{
    tnp_sync *self = (tnp_sync *)kind->type->tp_alloc(kind->type, 0);
    if (self == NULL) {
        kind->close(object);
        return NULL;
    }
    self->object = object;
    Py_INCREF(domain);
    self->domain = domain;
    return (PyObject *)self;
}

static void leave(PyObject *object)
{
    tnp_sync *self = (tnp_sync *)object;
    void *inner = self->object;
    self->is_closed = true;
    if (tnp_waiting(&self->waiters) > 0 || inner == NULL)
        return;
    self->object = NULL;
    kind_of(object)->close(inner); /* with the GIL, as queues are */
}

static void come_out(PyObject *object)
{
    tnp_sync *self = (tnp_sync *)object;
    tnp_come_out(&self->waiters);
    if (tnp_waiting(&self->waiters) == 0 && self->is_closed)
        leave(object);
}

/* Around a call that waits. */
#define WAIT(self_, status, call)                                                              \
    do {                                                                                       \
        tnp_go_in(&((tnp_sync *)(self_))->waiters);                                            \
        TNP_WAIT(((tnp_sync *)(self_))->domain, status, call);                                 \
        come_out(self_);                                                                       \
    } while (0)

static void dealloc(PyObject *object)
{
    tnp_sync *self = (tnp_sync *)object;
    if (self->weak != NULL)
        PyObject_ClearWeakRefs(object);
    leave(object);
    Py_XDECREF(self->domain);
    Py_TYPE(object)->tp_free(object);
}

static PyObject *close_object(PyObject *self, PyObject *unused)
{
    (void)unused;
    leave(self);
    Py_RETURN_NONE;
}

static PyObject *none_or_raise(int status)
{
    if (status != 0)
        return tnp_raise(status);
    Py_RETURN_NONE;
}

/* True, or False when the time is over. */
static PyObject *bool_or_raise(int status)
{
    if (status != 0 && status != TN_ERR_TIMED_OUT)
        return tnp_raise(status);
    return PyBool_FromLong(status == 0);
}

static PyObject *open_object(const struct kind *kind, PyObject *args)
{
    PyObject *domain, *which;
    void *object;
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
        TNP_WAIT(domain, status, kind->open(d, name, &object));
    } else {
        unsigned long long id = PyLong_AsUnsignedLongLong(which);
        if (id == (unsigned long long)-1 && PyErr_Occurred())
            return NULL;
        TNP_WAIT(domain, status, kind->open_id(d, id, &object));
    }
    return status != 0 ? tnp_raise(status) : wrap(kind, object, domain);
}

static PyObject *create_named(const struct kind *kind, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"domain", "name", NULL};
    PyObject *domain;
    const char *name = NULL;
    void *object;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|z", names, &domain, &name))
        return NULL;
    tn_domain *d = tnp_domain_of(domain);
    if (d == NULL)
        return NULL;
    int status = kind->create(d, name, &object);
    return status != 0 ? tnp_raise(status) : wrap(kind, object, domain);
}

static int read_timeout(PyObject *args, PyObject *keywords, uint64_t *ret_deadline_ns)
{
    static char *names[] = {"timeout", NULL};
    PyObject *timeout = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|O", names, &timeout))
        return -1;
    return tnp_deadline(timeout, 0, ret_deadline_ns);
}

static PyObject *get_id(PyObject *self, void *unused)
{
    void *object = object_of(self);
    (void)unused;
    return object == NULL ? NULL : PyLong_FromUnsignedLongLong(kind_of(self)->id(object));
}

static PyGetSetDef attributes[] = {
    {"id", get_id, NULL, "A number that opens it in any member.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef members[] = {
    {"domain", T_OBJECT, offsetof(tnp_sync, domain), READONLY, "Its domain."},
    {NULL, 0, 0, 0, NULL},
};

/* The functions of a kind, with the pointers that struct kind wants. */
#define KIND(Type, noun, create)                                                               \
    static int open_##noun(tn_domain *domain, const char *name, void **ret)                    \
    {                                                                                          \
        return tn_##noun##_open(domain, name, (tn_##noun **)ret);                              \
    }                                                                                          \
    static int open_##noun##_id(tn_domain *domain, uint64_t id, void **ret)                    \
    {                                                                                          \
        return tn_##noun##_open_id(domain, id, (tn_##noun **)ret);                             \
    }                                                                                          \
    static uint64_t noun##_id(const void *object) { return tn_##noun##_id(object); }           \
    static void close_##noun(void *object) { tn_##noun##_close(object); }                      \
    static PyTypeObject noun##_type;                                                           \
    static const struct kind noun##_kind = {                                                   \
        #noun, create, open_##noun, open_##noun##_id, noun##_id, close_##noun, &noun##_type,   \
    };                                                                                         \
    static PyObject *noun##_open(PyObject *type, PyObject *args)                               \
    {                                                                                          \
        (void)type;                                                                            \
        return open_object(&noun##_kind, args);                                                \
    }

#define TYPE(Type, noun, doc)                                                                  \
    static PyTypeObject noun##_type = {                                                        \
        PyVarObject_HEAD_INIT(NULL, 0).tp_name = "tenon._core." #Type,                         \
        .tp_doc = doc,                                                                         \
        .tp_basicsize = sizeof(tnp_sync),                                                      \
        .tp_flags = Py_TPFLAGS_DEFAULT,                                                        \
        .tp_dealloc = dealloc,                                                                 \
        .tp_methods = noun##_methods,                                                          \
        .tp_getset = attributes,                                                               \
        .tp_members = members,                                                                 \
        .tp_weaklistoffset = offsetof(tnp_sync, weak),                                         \
    }

static int make_lock(tn_domain *domain, const char *name, void **ret)
{
    return tn_lock_create(domain, name, (tn_lock **)ret);
}

static int make_condition(tn_domain *domain, const char *name, void **ret)
{
    return tn_condition_create(domain, name, (tn_condition **)ret);
}

KIND(Event, event, NULL)
KIND(Semaphore, semaphore, NULL)
KIND(Lock, lock, make_lock)
KIND(Condition, condition, make_condition)

#define WITH_KEYWORDS(function) ((PyCFunction)(void (*)(void))(function))
#define CREATE(function)                                                                       \
    {                                                                                          \
        "create", WITH_KEYWORDS(function), METH_VARARGS | METH_KEYWORDS | METH_CLASS,          \
            "Make one."                                                                        \
    }
#define COMMON(noun)                                                                           \
    {"open", noun##_open, METH_VARARGS | METH_CLASS, "Open one by its name or id."},           \
    {                                                                                          \
        "close", close_object, METH_NOARGS, "Close this process's handle."                     \
    }

/* ---- events ------------------------------------------------------------------------------ */

static PyObject *create_event(PyObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"domain", "name", "auto_reset", NULL};
    PyObject *domain;
    const char *name = NULL;
    int auto_reset = 0;
    tn_event *event;
    (void)type;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|zp", names, &domain, &name,
                                     &auto_reset))
        return NULL;
    tn_domain *d = tnp_domain_of(domain);
    if (d == NULL)
        return NULL;
    int status = tn_event_create(d, name, auto_reset != 0, &event);
    return status != 0 ? tnp_raise(status) : wrap(&event_kind, event, domain);
}

static PyObject *set_event(PyObject *self, PyObject *unused)
{
    tn_event *event = object_of(self);
    (void)unused;
    return event == NULL ? NULL : none_or_raise(tn_event_set(event));
}

static PyObject *clear_event(PyObject *self, PyObject *unused)
{
    tn_event *event = object_of(self);
    (void)unused;
    return event == NULL ? NULL : none_or_raise(tn_event_clear(event));
}

static PyObject *is_event_set(PyObject *self, PyObject *unused)
{
    tn_event *event = object_of(self);
    (void)unused;
    return event == NULL ? NULL : PyBool_FromLong(tn_event_is_set(event));
}

static PyObject *wait_event(PyObject *self, PyObject *args, PyObject *keywords)
{
    tn_event *event = object_of(self);
    uint64_t deadline_ns;
    if (event == NULL || read_timeout(args, keywords, &deadline_ns) < 0)
        return NULL;
    int status = tn_event_wait(event, 0);
    if (status == TN_ERR_TIMED_OUT && deadline_ns != 0)
        WAIT(self, status, tn_event_wait(event, deadline_ns));
    return bool_or_raise(status);
}

static PyMethodDef event_methods[] = {
    CREATE(create_event),
    COMMON(event),
    {"set", set_event, METH_NOARGS, "Let waiters pass."},
    {"clear", clear_event, METH_NOARGS, "Let waiters wait."},
    {"is_set", is_event_set, METH_NOARGS, "Whether it is set."},
    {"wait", WITH_KEYWORDS(wait_event), METH_VARARGS | METH_KEYWORDS,
     "Wait until it is set; False: the time is over."},
    {NULL, NULL, 0, NULL},
};

/* ---- semaphores -------------------------------------------------------------------------- */

static PyObject *create_semaphore(PyObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"domain", "name", "permits", "owned", NULL};
    PyObject *domain;
    const char *name = NULL;
    unsigned permits = 1;
    int owned = 0;
    tn_semaphore *semaphore;
    (void)type;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|zIp", names, &domain, &name, &permits,
                                     &owned))
        return NULL;
    tn_domain *d = tnp_domain_of(domain);
    if (d == NULL)
        return NULL;
    int status =
        tn_semaphore_create(d, name, permits, owned ? TN_SEMAPHORE_OWNED : 0, &semaphore);
    return status != 0 ? tnp_raise(status) : wrap(&semaphore_kind, semaphore, domain);
}

static PyObject *acquire_semaphore(PyObject *self, PyObject *args, PyObject *keywords)
{
    tn_semaphore *semaphore = object_of(self);
    uint64_t deadline_ns;
    if (semaphore == NULL || read_timeout(args, keywords, &deadline_ns) < 0)
        return NULL;
    int status = tn_semaphore_acquire(semaphore, 0);
    if (status == TN_ERR_TIMED_OUT && deadline_ns != 0)
        WAIT(self, status, tn_semaphore_acquire(semaphore, deadline_ns));
    return bool_or_raise(status);
}

static PyObject *release_semaphore(PyObject *self, PyObject *unused)
{
    tn_semaphore *semaphore = object_of(self);
    (void)unused;
    return semaphore == NULL ? NULL : none_or_raise(tn_semaphore_release(semaphore));
}

static PyObject *get_semaphore(PyObject *self, PyObject *unused)
{
    tn_semaphore *semaphore = object_of(self);
    (void)unused;
    return semaphore == NULL ? NULL : PyLong_FromUnsignedLong(tn_semaphore_get(semaphore));
}

static PyMethodDef semaphore_methods[] = {
    CREATE(create_semaphore),
    COMMON(semaphore),
    {"acquire", WITH_KEYWORDS(acquire_semaphore), METH_VARARGS | METH_KEYWORDS,
     "Take a permit; False: the time is over."},
    {"release", release_semaphore, METH_NOARGS, "Give a permit."},
    {"get", get_semaphore, METH_NOARGS, "Permits that are free now."},
    {NULL, NULL, 0, NULL},
};

/* ---- locks ------------------------------------------------------------------------------- */

static PyObject *create_lock(PyObject *type, PyObject *args, PyObject *keywords)
{
    (void)type;
    return create_named(&lock_kind, args, keywords);
}

static PyObject *acquire_lock(PyObject *self, PyObject *args, PyObject *keywords)
{
    tn_lock *lock = object_of(self);
    uint64_t deadline_ns;
    if (lock == NULL || read_timeout(args, keywords, &deadline_ns) < 0)
        return NULL;
    int status = tn_lock_acquire(lock, 0);
    if (status == TN_ERR_TIMED_OUT && deadline_ns != 0)
        WAIT(self, status, tn_lock_acquire(lock, deadline_ns));
    if (status < 0 && status != TN_ERR_TIMED_OUT)
        return tnp_raise(status);
    return PyLong_FromLong(status == TN_ERR_TIMED_OUT ? -1 : status);
}

static PyObject *release_lock(PyObject *self, PyObject *unused)
{
    tn_lock *lock = object_of(self);
    (void)unused;
    return lock == NULL ? NULL : none_or_raise(tn_lock_release(lock));
}

static PyMethodDef lock_methods[] = {
    CREATE(create_lock),
    COMMON(lock),
    {"acquire", WITH_KEYWORDS(acquire_lock), METH_VARARGS | METH_KEYWORDS,
     "0: held; 1: held, and its last owner died holding it; -1: the time is over."},
    {"release", release_lock, METH_NOARGS, "Give it back."},
    {NULL, NULL, 0, NULL},
};

/* ---- conditions -------------------------------------------------------------------------- */

static PyObject *create_condition(PyObject *type, PyObject *args, PyObject *keywords)
{
    (void)type;
    return create_named(&condition_kind, args, keywords);
}

static PyObject *wait_condition(PyObject *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"lock", "timeout", NULL};
    PyObject *lock, *timeout = Py_None;
    uint64_t deadline_ns;
    int status;
    tn_condition *condition = object_of(self);
    if (condition == NULL ||
        !PyArg_ParseTupleAndKeywords(args, keywords, "O!|O", names, &lock_type, &lock,
                                     &timeout) ||
        tnp_deadline(timeout, 0, &deadline_ns) < 0)
        return NULL;
    tn_lock *l = object_of(lock);
    if (l == NULL)
        return NULL;
    tnp_go_in(&((tnp_sync *)lock)->waiters);
    WAIT(self, status, tn_condition_wait(condition, l, deadline_ns));
    come_out(lock);
    if (PyErr_Occurred())
        return NULL; /* a handler raised, and the lock was recovered all the same */
    return bool_or_raise(status == TN_LOCK_RECOVERED ? 0 : status);
}

static PyObject *signal_condition(PyObject *self, PyObject *unused)
{
    tn_condition *condition = object_of(self);
    (void)unused;
    return condition == NULL ? NULL : none_or_raise(tn_condition_signal(condition));
}

static PyObject *broadcast_condition(PyObject *self, PyObject *unused)
{
    tn_condition *condition = object_of(self);
    (void)unused;
    return condition == NULL ? NULL : none_or_raise(tn_condition_broadcast(condition));
}

static PyMethodDef condition_methods[] = {
    CREATE(create_condition),
    COMMON(condition),
    {"wait", WITH_KEYWORDS(wait_condition), METH_VARARGS | METH_KEYWORDS,
     "Release the lock, wait for a signal, acquire the lock; False: the time is over."},
    {"signal", signal_condition, METH_NOARGS, "Wake one."},
    {"broadcast", broadcast_condition, METH_NOARGS, "Wake all."},
    {NULL, NULL, 0, NULL},
};

/* ------------------------------------------------------------------------------------------ */

TYPE(Event, event, "Set or not; waiters pass while it is set.");
TYPE(Semaphore, semaphore, "Permits.");
TYPE(Lock, lock, "A lock that a thread owns.");
TYPE(Condition, condition, "A condition, used with a Lock.");

static const struct kind *const kinds[] = {&event_kind, &semaphore_kind, &lock_kind,
                                           &condition_kind};

static const struct kind *kind_of(PyObject *self)
{
    for (size_t i = 0; i < TNP_COUNT(kinds); i++)
        if (Py_TYPE(self) == kinds[i]->type)
            return kinds[i];
    return NULL; /* not reached: the types cannot be subclassed */
}

int tnp_sync_init(PyObject *module)
{
    static const char *const names[] = {"Event", "Semaphore", "Lock", "Condition"};
    for (size_t i = 0; i < TNP_COUNT(kinds); i++)
        if (PyType_Ready(kinds[i]->type) < 0 ||
            tnp_add(module, names[i], (PyObject *)kinds[i]->type) < 0)
            return -1;
    return 0;
}
