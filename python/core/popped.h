/* SPDX-License-Identifier: Apache-2.0 */
/* Popped messages (popped.c), and the methods of a queue that pop. */
#ifndef TENON_CORE_POPPED_H
#define TENON_CORE_POPPED_H

#include "message.h"

typedef struct {
    PyObject_HEAD tn_message
        message; /* what a lease needs; its bytes and tensors are in the two below */
    PyObject *queue;
    PyObject *data;
    PyObject *tensors;
} tnp_message;
extern PyTypeObject tnp_message_type;

/** The methods pop(), get() and get_or_keep() of a queue. */
PyObject *tnp_queue_pop_message(PyObject *queue, PyObject *const *args, Py_ssize_t nargs,
                                PyObject *names);
PyObject *tnp_queue_get(PyObject *queue, PyObject *const *args, Py_ssize_t nargs,
                        PyObject *names);
PyObject *tnp_queue_get_or_keep(PyObject *queue, PyObject *const *args, Py_ssize_t nargs,
                                PyObject *names);
/** Move the tensors of a message into a list. NULL: raised; tn_message_fini() frees the rest.
 */
PyObject *tnp_take_tensors(tn_message *message, PyObject *domain);
/** The object of a message, which is consumed. `object` gave it. NULL: raised. */
PyObject *tnp_message_value(PyObject *object, tn_message *message);
/** (bytes, tensors) of a message, which is consumed. `object` gave it. NULL: raised. */
PyObject *tnp_message_parts(PyObject *object, tn_message *message);
/** How many messages get_or_keep() has kept in this object. */
Py_ssize_t tnp_queue_kept_count(PyObject *queue);

#endif
