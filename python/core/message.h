/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages: the queues that carry them (queue.c, backlog.c), and how any object becomes one
 * (codec.c, plain.c).
 */
#ifndef TENON_CORE_MESSAGE_H
#define TENON_CORE_MESSAGE_H

#include "object.h"
#include "tensor.h"

/** Return `object` if it is a queue. NULL: raised (TypeError). */
PyObject *tnp_queue_checked(PyObject *object);

/** A value as a message. */
typedef struct {
    const char *start; /* [size_bytes], in `bytes` or in `plain` */
    size_t size_bytes;
    PyObject *bytes;   /* owns the bytes; NULL: they are in `plain` */
    PyObject *tensors; /* a list of tnp_tensor; NULL: none */
    char plain[256];
} tnp_encoded;
/** Make a message of a value. The deadline limits how long it waits for memory. -1: raised. */
int tnp_encode(PyObject *domain, PyObject *value, tn_deadline deadline, tnp_encoded *ret);
void tnp_encoded_fini(tnp_encoded *encoded);
/**
 * Push a message, and wait for room without the GIL. `tensors` is a list of tnp_tensor, or NULL
 * for none. pre: the queue is open. @return 0, or a status for tnp_raise()
 */
int tnp_queue_push(PyObject *queue, const char *bytes, size_t size_bytes, PyObject *tensors,
                   tn_deadline deadline);
/**
 * Write the pickle of a small value of built-in types. @return its bytes; 0: the value is not
 * such a value, or the pickle does not fit.
 */
size_t tnp_pickle_plain(PyObject *value, char *to, size_t room);
/**
 * The value of a message. `tensors` is a list, or NULL for none. NULL: raised; the message can
 * be read again.
 */
PyObject *tnp_decode(const char *bytes, Py_ssize_t size_bytes, PyObject *tensors);

#endif
