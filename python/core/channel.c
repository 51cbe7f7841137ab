/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Channel: each message goes to every subscriber. A message is any object (codec.c), or bytes
 * and tensors that a program in C published.
 *
 * N1. The library lets no thread use a handle while another one changes its subscription. The
 *     calls here release the GIL, so each says in `receivers` or `subscribers` that it runs.
 */
#include "popped.h"

TNP_KIND(channel, TN_OBJECT_CHANNEL,
         tn_channel_open(domain, name, NULL, TN_OPEN_EXISTING, ret_handle))

static PyObject *open_or_create(PyObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"domain",      "name",   "capacity", "history",
                            "subscribers", "policy", NULL};
    tn_channel_options options = {.struct_size = sizeof options};
    PyObject *domain, *capacity = NULL, *history = NULL, *subscribers = NULL;
    const char *name = NULL;
    tn_channel *channel;
    int status;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|z$OOOI", names, &domain, &name,
                                     &capacity, &history, &subscribers, &options.policy) ||
        (capacity != NULL && tnp_small_word(capacity, "a channel cannot have the capacity",
                                            &options.capacity) < 0) ||
        (history != NULL &&
         tnp_small_word(history, "a channel cannot have the history", &options.history) < 0) ||
        (subscribers != NULL &&
         tnp_small_word(subscribers, "a channel cannot have this number of subscribers:",
                        &options.subscribers) < 0))
        return NULL;
    tn_domain *d = tnp_domain_of(domain);
    if (d == NULL)
        return NULL;
    TNP_WAIT(domain, status, tn_channel_open(d, name, &options, 0, &channel));
    return status != 0 ? tnp_raise(status)
                       : tnp_object_wrap((PyTypeObject *)type, &channel_kind, channel, domain);
}

/* ---- publishing -------------------------------------------------------------------------- */

/* The call may wait for a process that is stopped, so it never keeps the GIL. */
static int publish_encoded(PyObject *self, tn_channel *channel, const tnp_encoded *encoded,
                           tn_deadline deadline)
{
    tn_tensor *few[TNP_FEW_TENSORS], **all = tnp_handles_of(encoded->tensors, few);
    int status = TN_ERR_NO_MEMORY;
    if (all == NULL)
        return status;
    tn_message message = {.bytes = encoded->start,
                          .size_bytes = encoded->size_bytes,
                          .tensors = all,
                          .tensor_count = encoded->tensors == NULL
                                              ? 0
                                              : (uint32_t)PyList_GET_SIZE(encoded->tensors)};
    TNP_OBJECT_WAIT(self, status, tn_channel_publish(channel, &message, deadline));
    if (all != few)
        PyMem_Free(all);
    return status;
}

static PyObject *publish(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                         PyObject *names)
{
    tn_deadline deadline;
    tnp_encoded encoded;
    if (tnp_object_handle(self) == NULL || tnp_timeout(args, nargs, names, 1, &deadline) < 0 ||
        tnp_encode(((tnp_object *)self)->domain, args[0], deadline, &encoded) < 0)
        return NULL;
    tn_channel *channel = tnp_object_handle(self);
    int status = 0;
    if (channel != NULL)
        status = publish_encoded(self, channel, &encoded, deadline);
    if (status != 0)
        tnp_raise(status);
    else if (channel != NULL)
        tnp_count_sent(&encoded);
    tnp_encoded_fini(&encoded);
    if (channel == NULL || status != 0)
        return NULL;
    Py_RETURN_NONE;
}

/* ---- subscribing ------------------------------------------------------------------------- */

/* N1. The handle, for a call that uses the subscription. NULL: raised */
static tn_channel *handle_to_use(PyObject *self)
{
    tn_channel *channel = tnp_object_handle(self);
    if (channel == NULL || tnp_waiter_count(&((tnp_object *)self)->subscribers) == 0)
        return channel;
    tnp_raise_text(TN_ERR_INVALID, "another thread subscribes with this channel object");
    return NULL;
}

/* N1. The handle, for a call that changes the subscription. NULL: raised */
static tn_channel *handle_to_change(PyObject *self)
{
    tn_channel *channel = handle_to_use(self);
    if (channel == NULL || tnp_waiter_count(&((tnp_object *)self)->receivers) == 0)
        return channel;
    tnp_raise_text(TN_ERR_INVALID, "another thread receives with this channel object");
    return NULL;
}

static PyObject *subscribe(PyObject *self, PyObject *argument)
{
    tnp_waiters *subscribers = &((tnp_object *)self)->subscribers;
    unsigned long from = PyLong_AsUnsignedLong(argument);
    int status;
    if (from == (unsigned long)-1 && PyErr_Occurred())
        return NULL;
    tn_channel *channel = handle_to_change(self);
    if (channel == NULL)
        return NULL;
    tnp_begin_wait(subscribers);
    TNP_OBJECT_WAIT(self, status, tn_channel_subscribe(channel, (uint32_t)from));
    tnp_end_wait(subscribers);
    if (status != 0)
        return tnp_raise(status);
    Py_RETURN_NONE;
}

static PyObject *unsubscribe(PyObject *self, PyObject *unused)
{
    (void)unused;
    tn_channel *channel = handle_to_change(self);
    if (channel == NULL)
        return NULL;
    int status = tn_channel_unsubscribe(channel);
    if (status != 0)
        return tnp_raise(status);
    Py_RETURN_NONE;
}

/* ---- receiving --------------------------------------------------------------------------- */

/* A first try, which does not wait, keeps the GIL. -1: raised */
static int receive_message(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                           PyObject *names, tn_message *ret_message)
{
    tnp_object *object = (tnp_object *)self;
    tn_deadline deadline;
    if (tnp_timeout(args, nargs, names, 0, &deadline) < 0)
        return -1;
    tn_channel *channel = handle_to_use(self);
    if (channel == NULL)
        return -1;
    int status = tn_channel_receive(channel, TN_NOW, ret_message);
    if (status == TN_ERR_TIMED_OUT && deadline.ns != 0) {
        tnp_begin_wait(&object->receivers);
        TNP_OBJECT_WAIT(self, status, tn_channel_receive(channel, deadline, ret_message));
        tnp_end_wait(&object->receivers);
    }
    if (status == 0)
        return 0;
    tnp_raise(status);
    return -1;
}

static PyObject *receive(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                         PyObject *names)
{
    tn_message message;
    return receive_message(self, args, nargs, names, &message) < 0
               ? NULL
               : tnp_message_value(self, &message);
}

static PyObject *receive_parts(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                               PyObject *names)
{
    tn_message message;
    return receive_message(self, args, nargs, names, &message) < 0
               ? NULL
               : tnp_message_parts(self, &message);
}

static PyObject *watch(PyObject *self, PyObject *argument)
{
    int wanted = PyObject_IsTrue(argument);
    tn_channel *channel = wanted < 0 ? NULL : tnp_object_handle(self);
    if (channel == NULL)
        return NULL;
    int status = tn_object_watch(channel, wanted != 0);
    if (status != 0)
        return tnp_raise(status);
    Py_RETURN_NONE;
}

/* ---- the end, figures -------------------------------------------------------------------- */

static PyObject *end(PyObject *self, PyObject *unused)
{
    tn_channel *channel = tnp_object_handle(self);
    int status;
    (void)unused;
    if (channel == NULL)
        return NULL;
    TNP_OBJECT_WAIT(self, status, tn_channel_end(channel));
    if (status != 0)
        return tnp_raise(status);
    Py_RETURN_NONE;
}

/* The fields of tenon.ChannelInfo, in their order; the policy is a number. */
static PyObject *get_info(PyObject *self, PyObject *unused)
{
    tn_channel_info info = {.struct_size = sizeof info};
    tn_channel *channel = handle_to_use(self);
    (void)unused;
    if (channel == NULL)
        return NULL;
    int status = tn_channel_get_info(channel, &info);
    if (status != 0)
        return tnp_raise(status);
    PyObject *slowest = Py_None;
    if (info.slowest_pid != 0)
        slowest = PyLong_FromLong(info.slowest_pid);
    else
        Py_INCREF(slowest);
    return slowest == NULL
               ? NULL
               : Py_BuildValue(
                     "(IIIIIIKKKKNNNKK)", (unsigned)info.capacity, (unsigned)info.history,
                     (unsigned)info.most_subscribers, (unsigned)info.policy,
                     (unsigned)info.subscribers, (unsigned)info.kept,
                     (unsigned long long)info.published, (unsigned long long)info.dropped,
                     (unsigned long long)info.disconnected,
                     (unsigned long long)info.most_behind, slowest,
                     PyBool_FromLong(info.is_ended), PyBool_FromLong(info.is_subscribed),
                     (unsigned long long)info.waiting, (unsigned long long)info.lost);
}

static PyGetSetDef channel_attributes[] = {TNP_OBJECT_ID, {NULL, NULL, NULL, NULL, NULL}};

#define WITH_KEYWORDS(function) ((PyCFunction)(void (*)(void))(function))

static PyMethodDef channel_methods[] = {
    {"open_or_create", WITH_KEYWORDS(open_or_create), METH_VARARGS | METH_KEYWORDS | METH_CLASS,
     "open_or_create($type, /, domain, name=None, *, capacity=0, history=0, subscribers=0, "
     "policy=0)\n--\n\n"
     "Open the channel of this name, or make it. One that exists and differs from an argument "
     "that is not 0 is refused."},
    TNP_OBJECT_METHODS(channel),
    {"publish", WITH_KEYWORDS(publish), METH_FASTCALL | METH_KEYWORDS,
     "publish($self, /, value, timeout=None)\n--\n\n"
     "Send any object that can be pickled to all subscribers."},
    {"subscribe", subscribe, METH_O,
     "subscribe($self, start, /)\n--\n\n"
     "Become a subscriber, from the newest message (0) or the oldest one (1) on."},
    {"unsubscribe", unsubscribe, METH_NOARGS,
     "unsubscribe($self, /)\n--\n\n"
     "Give up the subscription."},
    {"receive", WITH_KEYWORDS(receive), METH_FASTCALL | METH_KEYWORDS,
     "receive($self, /, timeout=None)\n--\n\n"
     "The next object. If it cannot be made, this subscriber has lost it."},
    {"receive_parts", WITH_KEYWORDS(receive_parts), METH_FASTCALL | METH_KEYWORDS,
     "receive_parts($self, /, timeout=None)\n--\n\n"
     "(bytes, tensors) of the next message."},
    {"watch", watch, METH_O,
     "watch($self, watch, /)\n--\n\n"
     "Let the domain's poll_fd() tell of it, or no longer."},
    {"end", end, METH_NOARGS,
     "end($self, /)\n--\n\n"
     "End the channel for everybody."},
    {"info", get_info, METH_NOARGS,
     "info($self, /)\n--\n\n"
     "How the channel was made, and what it did."},
    {NULL, NULL, 0, NULL},
};

TNP_OBJECT_TYPE("Channel", channel, channel_attributes, "One message to every subscriber.");

int tnp_channel_init(PyObject *module)
{
    if (PyType_Ready(&channel_type) < 0)
        return -1;
    return tnp_add(module, "Channel", (PyObject *)&channel_type);
}
