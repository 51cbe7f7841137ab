/* SPDX-License-Identifier: Apache-2.0 */
/* Queue: a queue of messages, which are bytes and tensors, or any object (codec.c). */
#include "popped.h"

TNP_KIND(queue, TN_OBJECT_QUEUE,
         tn_queue_open(domain, name, NULL, TN_OPEN_EXISTING, ret_handle))

static PyObject *create(PyObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"domain", "name",     "capacity", "inline_bytes",
                            "policy", "existing", NULL};
    tn_queue_options options = {.struct_size = sizeof options};
    PyObject *domain;
    const char *name = NULL;
    tn_queue *queue;
    int existing = 0, status;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|z$IIIp", names, &domain, &name,
                                     &options.capacity, &options.inline_bytes, &options.policy,
                                     &existing))
        return NULL;
    uint32_t flags = existing ? TN_OPEN_EXISTING : TN_OPEN_NEW;
    tn_domain *d = tnp_domain_of(domain);
    if (d == NULL)
        return NULL;
    TNP_WAIT(domain, status, tn_queue_open(d, name, &options, flags, &queue));
    return status != 0 ? tnp_raise(status)
                       : tnp_object_wrap((PyTypeObject *)type, &queue_kind, queue, domain);
}

static PyObject *attach(PyObject *self, PyObject *argument)
{
    tn_queue *queue = tnp_object_handle(self);
    unsigned long roles = PyLong_AsUnsignedLong(argument);
    if (queue == NULL || (roles == (unsigned long)-1 && PyErr_Occurred()))
        return NULL;
    int status = tn_queue_attach(queue, (uint32_t)roles);
    if (status != 0)
        return tnp_raise(status);
    Py_RETURN_NONE;
}

static PyObject *end(PyObject *self, PyObject *unused)
{
    tn_queue *queue = tnp_object_handle(self);
    (void)unused;
    if (queue == NULL)
        return NULL;
    int status = tn_queue_end(queue);
    if (status != 0)
        return tnp_raise(status);
    Py_RETURN_NONE;
}

static PyObject *count(PyObject *self, PyObject *unused)
{
    tn_queue *queue = tnp_object_handle(self);
    (void)unused;
    return queue == NULL ? NULL
                         : PyLong_FromSsize_t((Py_ssize_t)tn_queue_count(queue) +
                                              tnp_queue_kept_count(self));
}

static PyObject *peers(PyObject *self, PyObject *argument)
{
    tn_queue *queue = tnp_object_handle(self);
    unsigned long roles = PyLong_AsUnsignedLong(argument);
    if (queue == NULL || (roles == (unsigned long)-1 && PyErr_Occurred()))
        return NULL;
    tn_queue_info info = tnp_queue_info(queue);
    return PyLong_FromUnsignedLong(roles == TN_PRODUCER   ? info.other_producers
                                   : roles == TN_CONSUMER ? info.other_consumers
                                                          : info.others);
}

static PyObject *watch(PyObject *self, PyObject *argument)
{
    int wanted = PyObject_IsTrue(argument);
    tn_queue *queue = wanted < 0 ? NULL : tnp_object_handle(self);
    if (queue == NULL)
        return NULL;
    int status = tn_object_watch(queue, wanted != 0);
    if (status != 0)
        return tnp_raise(status);
    Py_RETURN_NONE;
}

static PyObject *set_stream(PyObject *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"device", "stream", NULL};
    PyObject *device_object, *stream_object = Py_None;
    tn_device device = {0};
    void *stream;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|O:set_stream", names, &device_object,
                                     &stream_object) ||
        tnp_stream(stream_object, &stream) < 0 ||
        (device_object != Py_None && tnp_device(device_object, &device) < 0))
        return NULL;
    tn_queue *queue = tnp_object_handle(self);
    if (queue == NULL)
        return NULL;
    if (tnp_waiter_count(&((tnp_object *)self)->waiters) > 0)
        return tnp_raise_text(TN_ERR_INVALID,
                              "another thread waits in this queue: set the stream before");
    int status = tn_queue_set_stream(queue, device, stream);
    if (status != 0)
        return tnp_raise(status);
    Py_RETURN_NONE;
}

/* ---- waiting ----------------------------------------------------------------------------- */

/*
 * A first try, which does not wait, keeps the GIL: most calls succeed at once. A push that
 * copies many bytes releases the GIL.
 */
static int push(PyObject *self, tn_queue *queue, const tn_message *message,
                tn_deadline deadline)
{
    int status = TN_ERR_TIMED_OUT;
    bool is_long = message->size_bytes >= TNP_MANY_BYTES;
    if (!is_long)
        status = tn_queue_push(queue, message, 0, TN_NOW);
    if (status == TN_ERR_TIMED_OUT && (is_long || deadline.ns != 0))
        TNP_OBJECT_WAIT(self, status, tn_queue_push(queue, message, 0, deadline));
    return status;
}

tn_tensor **tnp_handles_of(PyObject *tensors, tn_tensor *few[TNP_FEW_TENSORS])
{
    Py_ssize_t n = tensors == NULL ? 0 : PyList_GET_SIZE(tensors);
    tn_tensor **all = n <= TNP_FEW_TENSORS ? few : PyMem_New(tn_tensor *, (size_t)n);
    if (all == NULL)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; all != NULL && i < n; i++)
        all[i] = ((tnp_tensor *)PyList_GET_ITEM(tensors, i))->tensor;
    return all;
}

int tnp_queue_push(PyObject *self, const char *bytes, size_t size_bytes, PyObject *tensors,
                   tn_deadline deadline)
{
    tn_tensor *few[TNP_FEW_TENSORS], **all = tnp_handles_of(tensors, few);
    if (all == NULL)
        return TN_ERR_NO_MEMORY;
    tn_message message = {.bytes = bytes,
                          .size_bytes = size_bytes,
                          .tensors = all,
                          .tensor_count =
                              tensors == NULL ? 0 : (uint32_t)PyList_GET_SIZE(tensors)};
    int status = push(self, ((tnp_object *)self)->handle, &message, deadline);
    if (all != few)
        PyMem_Free(all);
    return status;
}

/* -1: raised */
static int push_or_raise(PyObject *self, const char *bytes, size_t size_bytes,
                         PyObject *tensors, tn_deadline deadline)
{
    if (tnp_object_handle(self) == NULL)
        return -1;
    int status = tnp_queue_push(self, bytes, size_bytes, tensors, deadline);
    if (status != 0)
        tnp_raise(status);
    return status == 0 ? 0 : -1;
}

static PyObject *push_message(PyObject *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"data", "tensors", "timeout", NULL};
    PyObject *sequence = NULL, *tensors, *timeout = Py_None;
    Py_buffer data;
    tn_deadline deadline;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "y*|OO", names, &data, &sequence,
                                     &timeout))
        return NULL;
    tensors = sequence == NULL ? PyList_New(0) : PySequence_List(sequence);
    int failed = tensors == NULL ? -1 : tnp_deadline(timeout, TN_NOW, &deadline);
    for (Py_ssize_t i = 0; failed == 0 && i < PyList_GET_SIZE(tensors); i++)
        if (!tnp_is_tensor(PyList_GET_ITEM(tensors, i))) {
            PyErr_Format(PyExc_TypeError, "tensors[%zd] is a %.200s, not a tenon.Tensor", i,
                         Py_TYPE(PyList_GET_ITEM(tensors, i))->tp_name);
            failed = -1;
        }
    if (failed == 0)
        failed = push_or_raise(self, data.buf, (size_t)data.len, tensors, deadline);
    Py_XDECREF(tensors);
    PyBuffer_Release(&data);
    if (failed != 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *put(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
    tn_deadline deadline;
    tnp_encoded encoded;
    if (tnp_object_handle(self) == NULL || tnp_timeout(args, nargs, names, 1, &deadline) < 0 ||
        tnp_encode(((tnp_object *)self)->domain, args[0], deadline, &encoded) < 0)
        return NULL;
    int failed =
        push_or_raise(self, encoded.start, encoded.size_bytes, encoded.tensors, deadline);
    if (failed == 0)
        tnp_count_sent(&encoded);
    tnp_encoded_fini(&encoded);
    if (failed != 0)
        return NULL;
    Py_RETURN_NONE;
}

static int wait_for_any(PyObject *list, tn_queue **queues, tn_deadline deadline)
{
    Py_ssize_t n = PySequence_Fast_GET_SIZE(list);
    int status;
    if (n == 0) /* the library reports the error */
        return tn_object_wait_any(queues, 0, TN_NOW);
    tnp_object *first = (tnp_object *)PySequence_Fast_GET_ITEM(list, 0);
    for (Py_ssize_t i = 1; i < n; i++)
        if (!tnp_object_shares_domain((PyObject *)first, PySequence_Fast_GET_ITEM(list, i)))
            return tn_object_wait_any(queues, (uint32_t)n,
                                      TN_NOW); /* the library reports the error */
    PyObject *const *items = PySequence_Fast_ITEMS(list);
    for (Py_ssize_t i = 0; i < n; i++)
        tnp_object_begin_wait(items[i]);
    TNP_WAIT_FOR(first->domain, items, n, status,
                 tn_object_wait_any(queues, (uint32_t)n, deadline));
    for (Py_ssize_t i = 0; i < n; i++)
        tnp_object_end_wait(items[i]);
    for (Py_ssize_t i = 0; i < n; i++)
        tnp_object_raise_closed(items[i], status);
    return status;
}

static PyObject *wait_any(PyObject *unused, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"queues", "timeout", NULL};
    PyObject *sequence, *timeout = Py_None, *list;
    tn_deadline deadline;
    (void)unused;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|O", names, &sequence, &timeout) ||
        tnp_deadline(timeout, TN_NOW, &deadline) < 0 ||
        (list = PySequence_Tuple(sequence)) == NULL)
        return NULL;
    Py_ssize_t n = PySequence_Fast_GET_SIZE(list);
    tn_queue **queues = PyMem_New(tn_queue *, (size_t)(n > 0 ? n : 1));
    int status = 0;
    if (queues == NULL)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; queues != NULL && i < n; i++) {
        PyObject *queue = PySequence_Fast_GET_ITEM(list, i);
        if (!PyObject_TypeCheck(queue, &queue_type))
            PyErr_Format(PyExc_TypeError, "queues[%zd] is a %.200s, not a queue", i,
                         Py_TYPE(queue)->tp_name);
        else
            queues[i] = tnp_object_handle(queue);
        if (PyErr_Occurred())
            break;
    }
    if (!PyErr_Occurred()) {
        status = wait_for_any(list, queues, deadline);
        if (status < 0)
            tnp_raise(status);
    }
    PyMem_Free(queues);
    Py_DECREF(list);
    return PyErr_Occurred() ? NULL : PyLong_FromLong(status);
}

static PyObject *get_capacity(PyObject *self, void *unused)
{
    (void)unused;
    tn_queue *queue = tnp_object_handle(self);
    return queue == NULL ? NULL : PyLong_FromUnsignedLong(tnp_queue_info(queue).capacity);
}

static PyObject *get_policy(PyObject *self, void *unused)
{
    (void)unused;
    tn_queue *queue = tnp_object_handle(self);
    return queue == NULL ? NULL : PyLong_FromUnsignedLong(tnp_queue_info(queue).policy);
}

static PyGetSetDef queue_attributes[] = {
    TNP_OBJECT_ID,
    {"capacity", get_capacity, NULL, "Messages that fit.", NULL},
    {"policy", get_policy, NULL, "TN_QUEUE_*.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

#define WITH_KEYWORDS(function) ((PyCFunction)(void (*)(void))(function))

static PyMethodDef queue_methods[] = {
    {"create", WITH_KEYWORDS(create), METH_VARARGS | METH_KEYWORDS | METH_CLASS,
     "create($type, /, domain, name=None, *, capacity=0, inline_bytes=0, policy=0, "
     "existing=False)\n--\n\n"
     "Make a queue. With existing, open the queue of this name instead; one that differs from "
     "a "
     "number that is not 0 is refused."},
    TNP_OBJECT_METHODS(queue),
    {"attach", attach, METH_O,
     "attach($self, roles, /)\n--\n\n"
     "Become a producer (1), consumer (2) or both (3) now."},
    {"end", end, METH_NOARGS,
     "end($self, /)\n--\n\n"
     "End the queue for everybody."},
    {"count", count, METH_NOARGS,
     "count($self, /)\n--\n\n"
     "Messages that wait, roughly."},
    {"peers", peers, METH_O,
     "peers($self, roles, /)\n--\n\n"
     "Other producers (1), consumers (2), or either (3)."},
    {"watch", watch, METH_O,
     "watch($self, watch, /)\n--\n\n"
     "Let the domain's poll_fd() tell of it, or no longer."},
    {"set_stream", WITH_KEYWORDS(set_stream), METH_VARARGS | METH_KEYWORDS,
     "set_stream($self, /, device, stream=None)\n--\n\n"
     "Let the messages of this object follow a stream of a device; None: no more."},
    {"push", WITH_KEYWORDS(push_message), METH_VARARGS | METH_KEYWORDS,
     "push($self, /, data, tensors=(), timeout=None)\n--\n\n"
     "Push bytes and tensors."},
    {"pop", WITH_KEYWORDS(tnp_queue_pop_message), METH_FASTCALL | METH_KEYWORDS,
     "pop($self, /, timeout=None)\n--\n\n"
     "Pop a Message."},
    {"put", WITH_KEYWORDS(put), METH_FASTCALL | METH_KEYWORDS,
     "put($self, /, value, timeout=None)\n--\n\n"
     "Push any object that can be pickled; arrays in it travel beside it."},
    {"get", WITH_KEYWORDS(tnp_queue_get), METH_FASTCALL | METH_KEYWORDS,
     "get($self, /, timeout=None)\n--\n\n"
     "Pop what put() pushed. If that raises, the message is lost, unless it is leased."},
    {"get_or_keep", WITH_KEYWORDS(tnp_queue_get_or_keep), METH_FASTCALL | METH_KEYWORDS,
     "get_or_keep($self, /, timeout=None)\n--\n\n"
     "Pop what put() pushed. If that raises, the message stays the next one of this object."},
    {"wait_any", WITH_KEYWORDS(wait_any), METH_VARARGS | METH_KEYWORDS | METH_STATIC,
     "wait_any(queues, timeout=None)\n--\n\n"
     "Wait until one of several has a message or is at its end; returns its index."},
    {NULL, NULL, 0, NULL},
};

TNP_OBJECT_TYPE("Queue", queue, queue_attributes, "A bounded queue of messages.");

PyObject *tnp_queue_checked(PyObject *object)
{
    if (PyObject_TypeCheck(object, &queue_type))
        return object;
    PyErr_Format(PyExc_TypeError, "a tenon._core.Queue is needed, not %.200s",
                 Py_TYPE(object)->tp_name);
    return NULL;
}

int tnp_queue_init(PyObject *module)
{
    if (PyType_Ready(&queue_type) < 0)
        return -1;
    return tnp_add(module, "Queue", (PyObject *)&queue_type);
}
