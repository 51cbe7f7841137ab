/* SPDX-License-Identifier: Apache-2.0 */
/* Domain: the processes that share. */
#include "core.h"

#include <stddef.h>
#include <time.h>

static PyObject *get_default;     /* tenon's function that makes this process's domain */
static PyObject *present_default; /* what it gave; a forked child goes on with its parent's */

void tnp_pause(void)
{
    Py_BEGIN_ALLOW_THREADS nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    Py_END_ALLOW_THREADS
}

/*
 * A thread of a daemon calls after the domain was closed at exit: SystemExit ends the thread,
 * says nothing, and gives back on its way what locks the thread holds, for which what else runs
 * at exit may wait. A thread that catches it and tries again does not keep the others from
 * running. False: the domain was not closed at exit, or this is the thread that did that.
 */
static bool end_thread_at_exit(const tnp_domain *self)
{
    if (self->exiting == 0 || self->exiting == PyThread_get_thread_ident())
        return false;
    tnp_pause();
    PyErr_SetNone(PyExc_SystemExit);
    return true;
}

static void leave_if_last(tnp_domain *self)
{
    tn_domain *domain = self->leaving;
    if (domain == NULL || tnp_waiting(&self->waiters) > 0)
        return;
    self->leaving = NULL;
    tn_domain_close(domain);
}

void tnp_come_out_of_closed(tnp_domain *self, int status)
{
    if (self->exiting != 0 && self->exiting != PyThread_get_thread_ident() &&
        tnp_waiting_with != NULL)
        (void)!tn_lock_release(tnp_waiting_with);
    leave_if_last(self);
    /* CORRUPT: this thread waited for a lock whose owner was a thread that ended at exit. */
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
        tnp_raise_saying(TN_ERR_CLOSED, "this process has closed the domain");
    return domain;
}

PyObject *tnp_domain_default(void)
{
    if (present_default != NULL && ((tnp_domain *)present_default)->domain != NULL) {
        Py_INCREF(present_default);
        return present_default;
    }
    if (get_default == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "no domain was set for this process");
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

static PyObject *default_domain(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return tnp_domain_default();
}

static PyObject *set_default_domain(PyObject *module, PyObject *function)
{
    (void)module;
    Py_INCREF(function);
    Py_XSETREF(get_default, function);
    Py_CLEAR(present_default);
    Py_RETURN_NONE;
}

/* ---- beginning and end ------------------------------------------------------------------- */

static PyObject *wrap(PyTypeObject *type, tn_domain *domain)
{
    tnp_domain *self = (tnp_domain *)type->tp_alloc(type, 0);
    if (self == NULL) {
        tn_domain_close(domain);
        return NULL;
    }
    self->domain = domain;
    return (PyObject *)self;
}

static int read_options(PyObject *args, PyObject *keywords, const char *format, char **names,
                        const char **ret_name, tn_domain_options *ret)
{
    unsigned long long quota = 0, watermark = 0;
    unsigned seats = 0, blocks = 0, objects = 0, tickets = 0;
    int manager = 1;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, format, names, ret_name, &quota,
                                     &watermark, &seats, &blocks, &objects, &tickets, &manager))
        return -1;
    *ret = (tn_domain_options){.struct_size = sizeof *ret,
                               .quota_bytes = quota,
                               .watermark_bytes = watermark,
                               .seats = seats,
                               .blocks = blocks,
                               .objects = objects,
                               .tickets = tickets,
                               .flags = manager ? 0 : TN_DOMAIN_NO_MANAGER};
    return 0;
}

static PyObject *create(PyObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"name",    "quota_bytes", "watermark_bytes", "seats", "blocks",
                            "objects", "tickets",     "manager",         NULL};
    tn_domain_options options;
    const char *name = NULL;
    tn_domain *domain;
    int status;
    if (read_options(args, keywords, "|z$KKIIIIp", names, &name, &options) < 0)
        return NULL;
    TNP_UNLOCKED(status, tn_domain_open(name, &options, TN_OPEN_NEW, &domain));
    return status != 0 ? tnp_raise(status) : wrap((PyTypeObject *)type, domain);
}

static PyObject *open_or_create(PyObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"name",   "quota_bytes", "watermark_bytes", "seats",
                            "blocks", "objects",     "tickets",         NULL};
    tn_domain_options options;
    const char *name = NULL;
    tn_domain *domain;
    int status;
    if (read_options(args, keywords, "s|$KKIIII", names, &name, &options) < 0)
        return NULL;
    TNP_UNLOCKED(status, tn_domain_open(name, &options, 0, &domain));
    return status != 0 ? tnp_raise(status) : wrap((PyTypeObject *)type, domain);
}

static PyObject *join(PyObject *type, PyObject *argument)
{
    const char *name = PyUnicode_AsUTF8(argument);
    tn_domain *domain;
    int status;
    if (name == NULL)
        return NULL;
    TNP_UNLOCKED(status, tn_domain_open(name, NULL, TN_OPEN_EXISTING, &domain));
    return status != 0 ? tnp_raise(status) : wrap((PyTypeObject *)type, domain);
}

static PyObject *inherit(PyObject *type, PyObject *unused)
{
    tn_domain *domain;
    int status;
    (void)unused;
    TNP_UNLOCKED(status, tn_domain_inherit(&domain));
    return status != 0 ? tnp_raise(status) : wrap((PyTypeObject *)type, domain);
}

/* A forked child does not wait where the handler that forked it did. */
static bool is_waiting_in(const tnp_domain *self)
{
    if (tnp_waiting(&self->waiters) == 0)
        return false;
    const struct tnp_wait *wait = tnp_wait_now;
    while (wait != NULL && wait->domain != self)
        wait = wait->outer;
    return wait != NULL;
}

/*
 * No thread may be inside a call on the domain, or on an object of it, when the domain is
 * closed. Calls hold the GIL, as this one does. Calls without the GIL are counted in `waiters`,
 * and `is_closing` makes them return. One of them may be this thread's own, with a signal's
 * handler that closes, perhaps twice: then the last that comes out leaves.
 */
static void leave(tnp_domain *self)
{
    tn_domain *domain = self->domain;
    self->domain = NULL;
    atomic_store(&self->is_closing, true);
    if (is_waiting_in(self)) {
        if (domain != NULL)
            self->leaving = domain;
        return;
    }
    while (tnp_waiting(&self->waiters) > 0)
        tnp_pause();
    tn_domain_close(domain);
}

static PyObject *close_domain(PyObject *object, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"at_exit", NULL};
    int at_exit = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|$p", names, &at_exit))
        return NULL;
    ((tnp_domain *)object)->exiting = at_exit ? PyThread_get_thread_ident() : 0;
    leave((tnp_domain *)object);
    Py_RETURN_NONE;
}

static void dealloc(PyObject *object)
{
    tnp_domain *self = (tnp_domain *)object;
    if (self->weak != NULL)
        PyObject_ClearWeakRefs(object);
    leave(self);
    Py_TYPE(object)->tp_free(object);
}

/* ---- verbs ------------------------------------------------------------------------------- */

static PyObject *reap(PyObject *self, PyObject *unused)
{
    tn_domain *domain = tnp_domain_of(self);
    uint32_t reaped = 0;
    int status;
    (void)unused;
    if (domain == NULL)
        return NULL;
    TNP_WAIT(self, status, tn_domain_reap(domain, &reaped));
    return status != 0 ? tnp_raise(status) : PyLong_FromUnsignedLong(reaped);
}

static PyObject *trim(PyObject *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"keep_bytes", NULL};
    tn_domain *domain;
    unsigned long long keep = 0;
    uint64_t freed = 0;
    int status;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|K", names, &keep) ||
        (domain = tnp_domain_of(self)) == NULL)
        return NULL;
    TNP_WAIT(self, status, tn_domain_trim(domain, keep, &freed));
    return status != 0 ? tnp_raise(status) : PyLong_FromUnsignedLongLong(freed);
}

static PyObject *set_bytes(PyObject *self, PyObject *argument,
                           int (*set)(tn_domain *domain, uint64_t bytes))
{
    tn_domain *domain = tnp_domain_of(self);
    if (domain == NULL)
        return NULL;
    unsigned long long bytes = PyLong_AsUnsignedLongLong(argument);
    if (bytes == (unsigned long long)-1 && PyErr_Occurred())
        return NULL;
    int status = set(domain, bytes);
    if (status != 0)
        return tnp_raise(status);
    Py_RETURN_NONE;
}

static PyObject *get_quota(PyObject *self, void *unused)
{
    (void)unused;
    const tn_domain *domain = tnp_domain_of(self);
    return domain == NULL ? NULL : PyLong_FromUnsignedLongLong(tn_domain_quota(domain));
}

static PyObject *set_quota(PyObject *self, PyObject *bytes)
{
    return set_bytes(self, bytes, tn_domain_set_quota);
}

static PyObject *set_watermark(PyObject *self, PyObject *bytes)
{
    return set_bytes(self, bytes, tn_domain_set_watermark);
}

/* Called with the GIL. It makes nothing that could start the collector, and so code of Python.
 */
static int note_sentence(const char *sentence, bool repaired, void *context)
{
    PyObject *text = PyUnicode_FromFormat("%s%s", sentence, repaired ? " (repaired)" : "");
    int failed = text == NULL || PyList_Append(context, text) < 0;
    Py_XDECREF(text);
    return failed ? INT32_MAX : 0;
}

static PyObject *audit(PyObject *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"repair", NULL};
    tn_domain *domain;
    int repair = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|p", names, &repair))
        return NULL;
    PyObject *sentences = PyList_New(0);
    if (sentences == NULL || (domain = tnp_domain_of(self)) == NULL) {
        Py_XDECREF(sentences);
        return NULL;
    }
    int status = tn_domain_audit(domain, repair, note_sentence, sentences);
    if (status >= 0 && status != INT32_MAX)
        return sentences;
    Py_DECREF(sentences);
    return status < 0 ? tnp_raise(status) : NULL;
}

static PyObject *poll_fd(PyObject *self, PyObject *unused)
{
    tn_domain *domain = tnp_domain_of(self);
    int fd;
    (void)unused;
    if (domain == NULL)
        return NULL;
    int status = tn_domain_poll_fd(domain, &fd);
    return status != 0 ? tnp_raise(status) : PyLong_FromLong(fd);
}

static PyObject *poll_clear(PyObject *self, PyObject *unused)
{
    tn_domain *domain = tnp_domain_of(self);
    (void)unused;
    if (domain == NULL)
        return NULL;
    tn_domain_poll_clear(domain);
    Py_RETURN_NONE;
}

/* ---- attributes -------------------------------------------------------------------------- */

static PyObject *get_name(PyObject *self, void *unused)
{
    (void)unused;
    tn_domain *domain = tnp_domain_of(self);
    return domain == NULL ? NULL : PyUnicode_FromString(tn_domain_name(domain));
}

static PyObject *get_seat(PyObject *self, void *unused)
{
    (void)unused;
    tn_domain *domain = tnp_domain_of(self);
    return domain == NULL ? NULL : PyLong_FromUnsignedLong(tn_domain_seat(domain));
}

/* Signed, as tensors of int64 keep it. */
static PyObject *get_member(PyObject *self, void *unused)
{
    (void)unused;
    tn_domain *domain = tnp_domain_of(self);
    return domain == NULL ? NULL : PyLong_FromLongLong((int64_t)tn_domain_member(domain));
}

static PyObject *has_member(PyObject *self, PyObject *argument)
{
    tn_domain *domain = tnp_domain_of(self);
    long long member = PyLong_AsLongLong(argument);
    if (domain == NULL || (member == -1 && PyErr_Occurred()))
        return NULL;
    return PyBool_FromLong(tn_domain_has_member(domain, (uint64_t)member));
}

static PyObject *get_closed(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(((tnp_domain *)self)->domain == NULL);
}

static PyObject *repr(PyObject *self)
{
    tn_domain *domain = ((tnp_domain *)self)->domain;
    if (domain == NULL)
        return PyUnicode_FromString("<tenon.Domain, closed>");
    const char *name = tn_domain_name(domain);
    return PyUnicode_FromFormat("<tenon.Domain %s, seat %u>",
                                name[0] != '\0' ? name : "without a name",
                                (unsigned)tn_domain_seat(domain));
}

static PyGetSetDef attributes[] = {
    {"name", get_name, NULL, "Its name; \"\" if anonymous.", NULL},
    {"seat", get_seat, NULL, "This process's seat.", NULL},
    {"member", get_member, NULL, "A number for this process's stay, which no other has.", NULL},
    {"closed", get_closed, NULL, "Whether this process has left.", NULL},
    {"quota_bytes", get_quota, NULL, "The quota now, in bytes.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

#define WITH_KEYWORDS(function) ((PyCFunction)(void (*)(void))(function))

static PyMethodDef methods[] = {
    {"create", WITH_KEYWORDS(create), METH_VARARGS | METH_KEYWORDS | METH_CLASS,
     "create($type, /, name=None, *, quota_bytes=0, watermark_bytes=0, seats=0, blocks=0, "
     "objects=0, tickets=0, manager=True)\n--\n\n"
     "Make a domain, and take the first seat in it."},
    {"open", WITH_KEYWORDS(open_or_create), METH_VARARGS | METH_KEYWORDS | METH_CLASS,
     "open($type, /, name, *, quota_bytes=0, watermark_bytes=0, seats=0, blocks=0, objects=0, "
     "tickets=0)\n--\n\n"
     "Join the domain of this name, or make it."},
    {"join", join, METH_O | METH_CLASS,
     "join($type, name, /)\n--\n\n"
     "Take a seat in the domain of this name."},
    {"inherit", inherit, METH_NOARGS | METH_CLASS,
     "inherit($type, /)\n--\n\n"
     "Take a seat in the domain that TENON_DOMAIN names."},
    {"close", WITH_KEYWORDS(close_domain), METH_VARARGS | METH_KEYWORDS,
     "close($self, /, *, at_exit=False)\n--\n\n"
     "Leave. Memory of it that is still looked at stays mapped until it is not."},
    {"has_member", has_member, METH_O,
     "has_member($self, member, /)\n--\n\n"
     "Whether the process with that number lives."},
    {"reap", reap, METH_NOARGS,
     "reap($self, /)\n--\n\n"
     "Reclaim every dead seat now; returns how many."},
    {"trim", WITH_KEYWORDS(trim), METH_VARARGS | METH_KEYWORDS,
     "trim($self, /, keep_bytes=0)\n--\n\n"
     "Give free memory back until at most keep_bytes of it stay warm; returns the bytes "
     "freed."},
    {"set_quota", set_quota, METH_O,
     "set_quota($self, quota_bytes, /)\n--\n\n"
     "Change the quota, in bytes, for all members."},
    {"set_watermark", set_watermark, METH_O,
     "set_watermark($self, watermark_bytes, /)\n--\n\n"
     "Change the watermark, in bytes, for all members."},
    {"audit", WITH_KEYWORDS(audit), METH_VARARGS | METH_KEYWORDS,
     "audit($self, /, repair=False)\n--\n\n"
     "Recount everything; returns a sentence for each discrepancy."},
    {"poll_fd", poll_fd, METH_NOARGS,
     "poll_fd($self, /)\n--\n\n"
     "A descriptor that is readable when a watched queue may have become ready."},
    {"poll_clear", poll_clear, METH_NOARGS,
     "poll_clear($self, /)\n--\n\n"
     "Call it when poll_fd() is readable."},
    {"empty", WITH_KEYWORDS(tnp_domain_empty), METH_VARARGS | METH_KEYWORDS,
     "empty($self, /, shape, dtype, timeout=0, *, strategy=None, write_once=False)\n--\n\n"
     "Make a tensor in shared memory, contents undefined."},
    {"zeros", WITH_KEYWORDS(tnp_domain_zeros), METH_VARARGS | METH_KEYWORDS,
     "zeros($self, /, shape, dtype, timeout=0, *, strategy=None, write_once=False)\n--\n\n"
     "Make a tensor in shared memory, all zero."},
    {"find", tnp_domain_find, METH_VARARGS,
     "find($self, address, size_bytes, /)\n--\n\n"
     "The whole storage that these bytes lie in, as uint8; None: it is none of ours."},
    {"load_handle", tnp_domain_load_handle, METH_O,
     "load_handle($self, handle, /)\n--\n\n"
     "The tensor of a handle."},
    {NULL, NULL, 0, NULL},
};

PyTypeObject tnp_domain_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "tenon.Domain",
    .tp_doc = "The processes that share, with their memory.",
    .tp_basicsize = sizeof(tnp_domain),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_dealloc = dealloc,
    .tp_repr = repr,
    .tp_methods = methods,
    .tp_getset = attributes,
    .tp_weaklistoffset = offsetof(tnp_domain, weak),
};

static PyMethodDef functions[] = {
    {"default_domain", default_domain, METH_NOARGS,
     "default_domain($module, /)\n--\n\n"
     "This process's domain."},
    {"set_default_domain", set_default_domain, METH_O,
     "set_default_domain($module, get, /)\n--\n\n"
     "Set the function that gives this process's domain."},
    {NULL, NULL, 0, NULL},
};

int tnp_domain_init(PyObject *module)
{
    if (PyType_Ready(&tnp_domain_type) < 0 || PyModule_AddFunctions(module, functions) < 0)
        return -1;
    return tnp_add(module, "Domain", (PyObject *)&tnp_domain_type);
}
