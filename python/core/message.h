/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages: the queues that carry them (queue.c, backlog.c), and how any object becomes one
 * (codec.c, plain.c), and the count of what was sent (traffic.c).
 */
#ifndef TENON_CORE_MESSAGE_H
#define TENON_CORE_MESSAGE_H

#include "object.h"
#include "tensor.h"

/** Return `object` if it is a queue. NULL: raised (TypeError). */
PyObject *tnp_queue_checked(PyObject *object);

/** Some arrays, tensors and buffers, and the bytes that they have. */
typedef struct {
    uint64_t count, bytes;
} tnp_amount;

/** A value as a message. */
typedef struct {
    const char *start; /* [size_bytes], in `bytes` or in `plain` */
    size_t size_bytes;
    PyObject *bytes;   /* owns the bytes; NULL: they are in `plain` */
    PyObject *tensors; /* a list of tnp_tensor; NULL: none */
    tnp_amount copied; /* of the tensors: those that were copied to be sent */
    char plain[256];
} tnp_encoded;
/** Make a message of a value. The deadline limits how long it waits for memory. -1: raised. */
int tnp_encode(PyObject *domain, PyObject *value, tn_deadline deadline, tnp_encoded *ret);
void tnp_encoded_fini(tnp_encoded *encoded);
enum { TNP_FEW_TENSORS = 16 };
/**
 * The handles of a list of tnp_tensor, or of NULL for none. They are in `few`, or the caller
 * frees them with PyMem_Free(). NULL: raised.
 */
tn_tensor **tnp_handles_of(PyObject *tensors, tn_tensor *few[TNP_FEW_TENSORS]);
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

/** traffic.c: Add a copy to what the tnp_encode() that runs in this thread has copied. */
void tnp_note_copy(uint64_t size_bytes);
/** Count the tensors of a message that was sent. */
void tnp_count_sent(const tnp_encoded *encoded);
int tnp_traffic_init(PyObject *module);

#endif
