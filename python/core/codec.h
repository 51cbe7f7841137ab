/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files that write and read messages of Python's share (codec.c): the bytes of a
 * message, and the state of the dumps() or loads() that runs in this thread.
 */
#ifndef TENON_CORE_CODEC_H
#define TENON_CORE_CODEC_H

#include "message.h"

/* The first byte of a message. */
enum { TNP_PICKLE = 'P', TNP_ARRAY = 'A', TNP_FIXED_ARRAY = 'F', TNP_TENSOR = 'T' };

/* A private buffer of at most so many bytes is in the pickle itself. */
enum { TNP_FEW_BYTES = 256 };

/* Where a buffer of the pickle lies. */
struct tnp_place {
    uint32_t tensor;
    uint32_t reserved;
    uint64_t offset, size_bytes;
};

/* In front of the pickle; then places [place_count]. */
struct tnp_head {
    char kind;
    char reserved[3];
    uint32_t place_count;
};

/* One dumps() or loads() that runs. */
struct tnp_conversion {
    PyObject *domain;  /* borrowed; NULL: loads(), or no reducer can run */
    PyObject *tensors; /* a list, borrowed */
    PyObject *places;  /* in dumps(): a bytearray of struct tnp_place */
    tn_deadline deadline;
    tnp_amount copied;            /* in dumps(): what was copied so far */
    struct tnp_conversion *outer; /* a reducer may call dumps() or loads() */
};
/** The innermost one of this thread; NULL: none. */
extern _Thread_local struct tnp_conversion *tnp_conversion_now;

/** numpy.c: NumPy's array type; NULL until tnp_has_numpy() is true. */
extern PyTypeObject *tnp_ndarray_type;
/** False: no module has imported NumPy, so that no object can be an array. */
bool tnp_has_numpy(void);
/** An array over a tensor, which the array keeps. NULL: raised. */
PyObject *tnp_array_over(PyObject *tensor);
/** The same, which cannot be written. */
PyObject *tnp_fixed_array_over(PyObject *tensor);
/** The reduction of an array whose dtype no tensor has. NULL: raised. */
PyObject *tnp_reduce_by_numpy(PyObject *array);

/** transfer.c: a new tensor of the domain. NULL: raised. */
tn_tensor *tnp_new_tensor(PyObject *domain, tn_dtype dtype, int32_t ndim, const int64_t *shape,
                          tn_deadline deadline);
/** memcpy(), without the GIL if there are many bytes. */
void tnp_copy_bytes(void *to, const void *from, size_t size_bytes);
/** The storage of the domain that the bytes lie in. NULL: they lie in none; nothing is raised.
 */
tn_tensor *tnp_storage_of(PyObject *domain, const void *bytes, uint64_t size_bytes);
/**
 * An array as a tensor of the domain. NULL: raised; or, without an exception, no tensor can
 * have its elements, as those of an array of objects, or it would have to be copied and must
 * not be.
 * @param ret_is_fixed  the memory lies in the domain, and the holder of the array cannot write
 * it
 */
PyObject *tnp_transfer_array(PyObject *domain, PyObject *array, bool may_copy,
                             tn_deadline deadline, bool *ret_is_fixed);
/** A tensor as one of the domain: itself, moved if it is private; else a copy. NULL: raised. */
PyObject *tnp_transfer_tensor(PyObject *domain, PyObject *tensor, tn_deadline deadline);

/** pickle.c: a value as a message that is a pickle. -1: raised. */
int tnp_encode_pickle(PyObject *domain, PyObject *value, tn_deadline deadline,
                      tnp_encoded *ret);
int tnp_pickle_init(PyObject *module);
/** unpickle.c: the value of such a message. NULL: raised. */
PyObject *tnp_decode_pickle(const char *bytes, size_t size_bytes, PyObject *tensors);
/** Raise Invalid: put() did not write the message. `what` says what is wrong. @return NULL */
PyObject *tnp_fail_message(const char *what);
int tnp_unpickle_init(PyObject *module);

#endif
