/* SPDX-License-Identifier: Apache-2.0 */
/*
 * popped: messages that were popped from a queue: the type Message, and the methods of a queue
 * that pop.
 *
 * M1. A get() that fails to make the value of a message does not lose a leased message: the
 *     message goes back to the queue.
 *
 * M2. Without leases, the queue cannot take a popped message back. get_or_keep() keeps it in
 *     `kept`, a list of the queue's Python object, and the next call that pops from this object
 *     gets the message from there. `queue` of a kept message is NULL, so that the two objects
 *     do not refer to each other. The list ends when the object is closed. A forked child
 *     ignores the list of its parent.
 */
#include "popped.h"

static PyObject *finish_lease(PyObject *object, int (*verb)(tn_queue *, tn_message *))
{
    tnp_message *self = (tnp_message *)object;
    tn_queue *queue = tnp_object_handle(self->queue);
    if (queue == NULL)
        return NULL;
    int status = verb(queue, &self->message);
    if (status != 0)
        return tnp_raise(status);
    Py_RETURN_NONE;
}

static PyObject *ack(PyObject *self, PyObject *unused)
{
    (void)unused;
    return finish_lease(self, tn_message_ack);
}

static PyObject *give_back(PyObject *self, PyObject *unused)
{
    (void)unused;
    return finish_lease(self, tn_message_return);
}

static PyObject *load(PyObject *object, PyObject *unused)
{
    tnp_message *self = (tnp_message *)object;
    (void)unused;
    return tnp_decode(PyBytes_AS_STRING(self->data), PyBytes_GET_SIZE(self->data),
                      self->tensors);
}

static void dealloc_message(PyObject *object)
{
    tnp_message *self = (tnp_message *)object;
    tn_message_fini(&self->message);
    Py_XDECREF(self->data);
    Py_XDECREF(self->tensors);
    Py_XDECREF(self->queue);
    Py_TYPE(object)->tp_free(object);
}

static PyMemberDef message_members[] = {
    {"data", T_OBJECT, offsetof(tnp_message, data), READONLY, "Its bytes."},
    {"tensors", T_OBJECT, offsetof(tnp_message, tensors), READONLY, "Its tensors, a list."},
    {"attempt", T_UINT, offsetof(tnp_message, message.attempt), READONLY,
     "How often it was delivered before."},
    {"producer_seat", T_UINT, offsetof(tnp_message, message.producer_seat), READONLY,
     "Who pushed it."},
    {NULL, 0, 0, 0, NULL},
};

static PyMethodDef message_methods[] = {
    {"load", load, METH_NOARGS,
     "load($self, /)\n--\n\n"
     "The object that was put."},
    {"ack", ack, METH_NOARGS,
     "ack($self, /)\n--\n\n"
     "Of a leased message: it was dealt with."},
    {"give_back", give_back, METH_NOARGS,
     "give_back($self, /)\n--\n\n"
     "Of a leased message: deliver it again."},
    {NULL, NULL, 0, NULL},
};

PyTypeObject tnp_message_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "tenon._core.Message",
    .tp_doc = "A popped message.",
    .tp_basicsize = sizeof(tnp_message),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_dealloc = dealloc_message,
    .tp_methods = message_methods,
    .tp_members = message_members,
};

/* ---- kept messages (M2) ------------------------------------------------------------------ */

static PyObject *kept_of(PyObject *self)
{
    tnp_object *queue = (tnp_object *)self;
    if (queue->kept != NULL && queue->kept_forks != tnp_forks)
        Py_CLEAR(queue->kept);
    return queue->kept;
}

Py_ssize_t tnp_queue_kept_count(PyObject *self)
{
    PyObject *kept = kept_of(self);
    return kept == NULL ? 0 : PyList_GET_SIZE(kept);
}

/* Take the first kept message out of the list, a new reference. NULL: there is none, or raised.
 */
static tnp_message *take_kept(PyObject *self)
{
    PyObject *kept = kept_of(self);
    if (kept == NULL || PyList_GET_SIZE(kept) == 0)
        return NULL;
    PyObject *first = PyList_GET_ITEM(kept, 0);
    Py_INCREF(first);
    if (PyList_SetSlice(kept, 0, 1, NULL) < 0)
        Py_CLEAR(first);
    return (tnp_message *)first;
}

/* Keep a message at a place of the list. The reference is consumed. */
static void keep(PyObject *self, Py_ssize_t place, tnp_message *message)
{
    tnp_object *queue = (tnp_object *)self;
    if (message != NULL && !queue->is_closed && kept_of(self) == NULL) {
        queue->kept = PyList_New(0);
        queue->kept_forks = tnp_forks;
    }
    if (message != NULL && queue->kept != NULL)
        (void)!PyList_Insert(queue->kept, place, (PyObject *)message);
    Py_XDECREF(message);
}

/* ---- popping ----------------------------------------------------------------------------- */

/*
 * A first try, which does not wait, keeps the GIL: most calls succeed at once. The popped
 * message stays valid even if another thread closes the queue during the wait.
 */
static int pop(PyObject *self, tn_queue *queue, tn_deadline deadline, tn_message *ret_message)
{
    int status = tn_queue_pop(queue, TN_NOW, ret_message);
    if (status == TN_ERR_TIMED_OUT && deadline.ns != 0)
        TNP_OBJECT_WAIT(self, status, tn_queue_pop(queue, deadline, ret_message));
    return status;
}

/*
 * End the lease of a message, if it has one and the queue is still open. Closing the queue
 * gives leased messages back. The exception that was raised stays.
 */
static void end_lease(PyObject *self, tn_message *message,
                      int (*verb)(tn_queue *, tn_message *))
{
    PyObject *type, *error, *traceback;
    if (message->lease == 0)
        return;
    PyErr_Fetch(&type, &error, &traceback);
    tn_queue *queue = tnp_object_handle(self);
    if (queue == NULL)
        PyErr_Clear();
    else
        (void)!verb(queue, message);
    PyErr_Restore(type, error, traceback);
}

PyObject *tnp_take_tensors(tn_message *message, PyObject *domain)
{
    PyObject *list = PyList_New(message->tensor_count);
    for (uint32_t i = 0; list != NULL && i < message->tensor_count; i++) {
        PyObject *tensor = tnp_tensor_wrap(message->tensors[i], domain);
        message->tensors[i] = NULL;
        if (tensor == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, i, tensor);
    }
    return list;
}

PyObject *tnp_message_value(PyObject *object, tn_message *message)
{
    PyObject *tensors = NULL, *value = NULL;
    if (message->tensor_count == 0 ||
        (tensors = tnp_take_tensors(message, ((tnp_object *)object)->domain)) != NULL)
        value = tnp_decode(message->bytes, (Py_ssize_t)message->size_bytes, tensors);
    tn_message_fini(message);
    Py_XDECREF(tensors);
    return value;
}

PyObject *tnp_message_parts(PyObject *object, tn_message *message)
{
    PyObject *tensors = tnp_take_tensors(message, ((tnp_object *)object)->domain);
    PyObject *bytes =
        tensors == NULL ? NULL : tnp_bytes(NULL, message->bytes, message->size_bytes);
    tn_message_fini(message);
    if (bytes != NULL)
        return Py_BuildValue("(NN)", bytes, tensors);
    Py_XDECREF(tensors);
    return NULL;
}

PyObject *tnp_queue_pop_message(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                                PyObject *names)
{
    tn_deadline deadline;
    tn_queue *queue;
    if (tnp_timeout(args, nargs, names, 0, &deadline) < 0 ||
        (queue = tnp_object_handle(self)) == NULL)
        return NULL;
    tnp_message *m = take_kept(self);
    if (m == NULL && !PyErr_Occurred())
        m = (tnp_message *)tnp_message_type.tp_alloc(&tnp_message_type, 0);
    if (m == NULL)
        return NULL;
    int status = m->data != NULL ? 0 : pop(self, queue, deadline, &m->message);
    if (status != 0) {
        Py_DECREF(m);
        return tnp_raise(status);
    }
    Py_INCREF(self);
    m->queue = self;
    if (m->data != NULL)
        return (PyObject *)m;
    m->data = tnp_bytes(NULL, m->message.bytes, m->message.size_bytes);
    m->tensors = tnp_take_tensors(&m->message, ((tnp_object *)self)->domain);
    if (m->data == NULL || m->tensors == NULL) {
        end_lease(self, &m->message, tn_message_return);
        Py_CLEAR(m);
    }
    return (PyObject *)m;
}

/* ---- get() ------------------------------------------------------------------------------- */

/* A Message of a popped message, which is consumed. NULL: it is released, and nothing is
 * raised.
 */
static tnp_message *wrap_to_keep(tn_message *message, PyObject *tensors)
{
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    tnp_message *m = (tnp_message *)tnp_message_type.tp_alloc(&tnp_message_type, 0);
    if (m == NULL) {
        tn_message_fini(message);
    } else {
        m->message = *message;
        m->data = tnp_bytes(NULL, message->bytes, message->size_bytes);
        m->tensors = tensors == NULL ? PyList_New(0) : tensors;
        if (tensors != NULL)
            Py_INCREF(tensors);
        if (m->data == NULL || m->tensors == NULL)
            Py_CLEAR(m);
    }
    PyErr_Clear();
    PyErr_Restore(type, error, traceback);
    return m;
}

/* What becomes of a message whose value could not be made. The message is consumed. */
static void end_failed(PyObject *self, tn_message *message, PyObject *tensors, bool keeps)
{
    bool has_all = message->tensor_count == 0 || tensors != NULL;
    if (message->lease == 0 && keeps && has_all) {
        keep(self, tnp_queue_kept_count(self), wrap_to_keep(message, tensors));
        return;
    }
    end_lease(self, message, tn_message_return); /* M1 */
    tn_message_fini(message);
}

/* The value of the first kept message. It stays kept if this raises. */
static PyObject *get_kept(PyObject *self)
{
    tnp_message *m = take_kept(self);
    if (m == NULL)
        return NULL;
    PyObject *value =
        tnp_decode(PyBytes_AS_STRING(m->data), PyBytes_GET_SIZE(m->data), m->tensors);
    if (value == NULL)
        keep(self, 0, m);
    else
        Py_DECREF(m);
    return value;
}

static PyObject *get(PyObject *self, tn_deadline deadline, bool keeps)
{
    tn_message message;
    tn_queue *queue = tnp_object_handle(self);
    if (queue == NULL)
        return NULL;
    if (keeps && tnp_queue_kept_count(self) > 0)
        return get_kept(self);
    int status = pop(self, queue, deadline, &message);
    if (status != 0)
        return tnp_raise(status);
    PyObject *value = NULL, *tensors = NULL;
    if (message.tensor_count == 0)
        value = tnp_decode(message.bytes, (Py_ssize_t)message.size_bytes, NULL);
    else if ((tensors = tnp_take_tensors(&message, ((tnp_object *)self)->domain)) != NULL)
        value = tnp_decode(message.bytes, (Py_ssize_t)message.size_bytes, tensors);
    if (value == NULL) {
        end_failed(self, &message, tensors, keeps);
    } else {
        end_lease(self, &message, tn_message_ack);
        tn_message_fini(&message);
    }
    Py_XDECREF(tensors);
    return value;
}

PyObject *tnp_queue_get(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                        PyObject *names)
{
    tn_deadline deadline;
    return tnp_timeout(args, nargs, names, 0, &deadline) < 0 ? NULL
                                                             : get(self, deadline, false);
}

PyObject *tnp_queue_get_or_keep(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                                PyObject *names)
{
    tn_deadline deadline;
    return tnp_timeout(args, nargs, names, 0, &deadline) < 0 ? NULL : get(self, deadline, true);
}

int tnp_popped_init(PyObject *module)
{
    if (PyType_Ready(&tnp_message_type) < 0)
        return -1;
    return tnp_add(module, "Message", (PyObject *)&tnp_message_type);
}
