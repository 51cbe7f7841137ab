/* SPDX-License-Identifier: Apache-2.0 */
/* Message: a message that was popped from a queue. It may be leased to this process. */
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

int tnp_popped_init(PyObject *module)
{
    if (PyType_Ready(&tnp_message_type) < 0)
        return -1;
    return tnp_add(module, "Message", (PyObject *)&tnp_message_type);
}
