/* SPDX-License-Identifier: Apache-2.0 */
/* Messages: queues of them (queue.c, backlog.c), and any object as one (codec.c, plain.c). */
#ifndef TENON_CORE_MESSAGE_H
#define TENON_CORE_MESSAGE_H

#include "object.h"
#include "tensor.h"

/** `object`, if it is a queue. NULL: raised (TypeError). */
PyObject *tnp_queue_checked(PyObject *object);

/** A value as it travels. */
typedef struct {
    const char *start; /* [size_bytes], in `bytes` or in `plain` */
    size_t size_bytes;
    PyObject *bytes;   /* NULL: they are in `plain` */
    PyObject *tensors; /* a list of tnp_tensor; NULL: none */
    char plain[256];
} tnp_encoded;
/** -1: raised. The deadline is for memory. */
int tnp_encode(PyObject *domain, PyObject *value, tn_deadline deadline, tnp_encoded *ret);
void tnp_encoded_fini(tnp_encoded *encoded);
/**
 * Push a message; wait for room without the GIL. `tensors`: a list of tnp_tensor; NULL: none.
 * pre: the queue is open. @return 0, or a status, for tnp_raise()
 */
int tnp_queue_push(PyObject *queue, const char *bytes, size_t size_bytes, PyObject *tensors,
                   tn_deadline deadline);
/** The pickle of a small value of built-in types; 0: it is not one, or there is no room. */
size_t tnp_pickle_plain(PyObject *value, char *to, size_t room);
/** The value; NULL: raised. `tensors`: a list; it may be emptied. NULL: none came. */
PyObject *tnp_decode(const char *bytes, Py_ssize_t size_bytes, PyObject *tensors);

#endif
