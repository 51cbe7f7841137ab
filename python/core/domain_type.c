/* SPDX-License-Identifier: Apache-2.0 */
/* domain_type: the methods of the type: to make, join and close a domain, and others. */
#include "tensor.h"

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

/* What differs between create() and open(). */
struct open_call {
    const char *format;
    char **words;
    uint32_t flags;
};

static PyObject *open_domain(PyObject *type, PyObject *args, PyObject *keywords,
                             const struct open_call *call)
{
    unsigned long long quota = 0, watermark = 0;
    unsigned seats = 0, blocks = 0, objects = 0, tickets = 0;
    int manager = 1, status;
    const char *name = NULL;
    tn_domain *domain;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, call->format, call->words, &name, &quota,
                                     &watermark, &seats, &blocks, &objects, &tickets, &manager))
        return NULL;
    tn_domain_options options = {.struct_size = sizeof options,
                                 .quota_bytes = quota,
                                 .watermark_bytes = watermark,
                                 .seats = seats,
                                 .blocks = blocks,
                                 .objects = objects,
                                 .tickets = tickets,
                                 .flags = manager ? 0 : TN_DOMAIN_NO_MANAGER};
    TNP_UNLOCKED(status, tn_domain_open(name, &options, call->flags, &domain));
    return status != 0 ? tnp_raise(status) : wrap((PyTypeObject *)type, domain);
}

static PyObject *create(PyObject *type, PyObject *args, PyObject *keywords)
{
    static char *words[] = {"name",    "quota_bytes", "watermark_bytes", "seats", "blocks",
                            "objects", "tickets",     "manager",         NULL};
    static const struct open_call call = {"|z$KKIIIIp", words, TN_OPEN_NEW};
    return open_domain(type, args, keywords, &call);
}

static PyObject *open_or_create(PyObject *type, PyObject *args, PyObject *keywords)
{
    static char *words[] = {"name",   "quota_bytes", "watermark_bytes", "seats",
                            "blocks", "objects",     "tickets",         NULL};
    static const struct open_call call = {"s|$KKIIII", words, 0};
    return open_domain(type, args, keywords, &call);
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

static PyObject *close_domain(PyObject *object, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"at_exit", NULL};
    int at_exit = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|$p", names, &at_exit))
        return NULL;
    ((tnp_domain *)object)->exiting = at_exit ? PyThread_get_thread_ident() : 0;
    tnp_domain_leave((tnp_domain *)object);
    Py_RETURN_NONE;
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
    return domain == NULL ? NULL
                          : PyLong_FromUnsignedLongLong(tnp_domain_info(domain).quota_bytes);
}

static PyObject *set_quota(PyObject *self, PyObject *bytes)
{
    return set_bytes(self, bytes, tn_domain_set_quota);
}

static PyObject *set_watermark(PyObject *self, PyObject *bytes)
{
    return set_bytes(self, bytes, tn_domain_set_watermark);
}

/*
 * The audit calls this with the GIL. It creates no object that the garbage collector tracks, so
 * no Python code runs inside of the audit (P1).
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
    int status = tn_domain_audit(domain, repair, note_sentence, sentences, NULL);
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
    return domain == NULL ? NULL : PyUnicode_FromString(tnp_domain_info(domain).name);
}

static PyObject *get_seat(PyObject *self, void *unused)
{
    (void)unused;
    tn_domain *domain = tnp_domain_of(self);
    return domain == NULL ? NULL : PyLong_FromUnsignedLong(tnp_domain_info(domain).seat);
}

/* The number is signed, so that tensors of int64 can hold it. */
static PyObject *get_member(PyObject *self, void *unused)
{
    (void)unused;
    tn_domain *domain = tnp_domain_of(self);
    return domain == NULL ? NULL : PyLong_FromLongLong((int64_t)tnp_domain_info(domain).member);
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
    tn_domain_info info = tnp_domain_info(domain);
    return PyUnicode_FromFormat("<tenon.Domain %s, seat %u>",
                                info.name[0] != '\0' ? info.name : "without a name",
                                (unsigned)info.seat);
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
     "empty($self, /, shape, dtype, timeout=0, *, strategy=None, write_once=False, "
     "device=None)\n--\n\n"
     "Make a tensor in shared memory, contents undefined."},
    {"zeros", WITH_KEYWORDS(tnp_domain_zeros), METH_VARARGS | METH_KEYWORDS,
     "zeros($self, /, shape, dtype, timeout=0, *, strategy=None, write_once=False, "
     "device=None)\n--\n\n"
     "Make a tensor in shared memory, all zero."},
    {"filled", WITH_KEYWORDS(tnp_domain_filled), METH_VARARGS | METH_KEYWORDS,
     "filled($self, /, size_bytes, parts, timeout=0, *, progress=None)\n--\n\n"
     "Make a write-once storage of (offset, tensor) parts; returns all of it as uint8."},
    {"find", tnp_domain_find, METH_VARARGS,
     "find($self, address, size_bytes, /)\n--\n\n"
     "The whole storage that these bytes lie in, as uint8; None: it is none of ours."},
    {"load_handle", tnp_domain_load_handle, METH_O,
     "load_handle($self, handle, /)\n--\n\n"
     "The tensor of a handle."},
    {NULL, NULL, 0, NULL},
};

/* ---- functions of the module ------------------------------------------------------------- */

static PyObject *default_domain(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return tnp_domain_default();
}

static PyObject *set_default_domain(PyObject *module, PyObject *function)
{
    (void)module;
    tnp_domain_set_default(function);
    Py_RETURN_NONE;
}

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
    tnp_domain_type.tp_repr = repr;
    tnp_domain_type.tp_methods = methods;
    tnp_domain_type.tp_getset = attributes;
    if (PyType_Ready(&tnp_domain_type) < 0 || PyModule_AddFunctions(module, functions) < 0)
        return -1;
    return tnp_add(module, "Domain", (PyObject *)&tnp_domain_type);
}
