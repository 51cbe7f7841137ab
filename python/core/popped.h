/* SPDX-License-Identifier: Apache-2.0 */
/* Popped messages (popped.c), as queue.c makes them. */
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

#endif
