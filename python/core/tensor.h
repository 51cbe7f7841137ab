/* SPDX-License-Identifier: Apache-2.0 */
/* The type of tensors, and what each of its files declares. */
#ifndef TENON_CORE_TENSOR_H
#define TENON_CORE_TENSOR_H

#include "core.h"

typedef struct {
    PyObject_HEAD tn_tensor *tensor;
    PyObject
        *domain;    /* a tnp_domain; NULL: the memory is private, or `base` knows the domain */
    PyObject *base; /* the first tensor over a private storage; its `domain` is set when the
                       storage is shared. NULL: this one is the first */
    PyObject *weak;
    tnp_waiters
        users; /* in the first tensor: threads that read or write the memory without the GIL */
} tnp_tensor;
extern PyTypeObject tnp_tensor_type;
#define tnp_is_tensor(object) PyObject_TypeCheck(object, &tnp_tensor_type)
/**
 * Make a Python object of a tensor. The reference to the tensor is consumed, also on failure.
 * `domain` is borrowed. NULL: raised.
 */
PyObject *tnp_tensor_wrap(tn_tensor *tensor, PyObject *domain);
/** The same for a view of the storage of `tensor`. */
PyObject *tnp_tensor_wrap_view(tn_tensor *view, PyObject *tensor);
/**
 * The domain that the tensor is shared in, borrowed. NULL: it is private; nothing is raised.
 */
PyObject *tnp_tensor_domain(PyObject *tensor);
/**
 * Enclose an access to the memory of a tensor that runs without the GIL. Private memory does
 * not move between the two calls. No Python code may run between them. `tensor` may be NULL:
 * then no other thread can reach the memory.
 */
void tnp_tensor_begin_use(PyObject *tensor);
void tnp_tensor_end_use(PyObject *tensor);
void tnp_tensor_wait_until_unused(PyObject *tensor);
/**
 * A bytes object with a copy of memory. `tensor` owns the memory; it may be NULL. NULL: raised.
 */
PyObject *tnp_bytes(PyObject *tensor, const void *start, size_t size_bytes);
/**
 * Move the storage of a tensor into a domain, for all its views. Every call of
 * tn_tensor_share() goes through this function, which first waits until no thread uses the
 * memory without the GIL.
 * @param stream  what a copy on a device comes after
 * @return 0, or a status for tnp_raise()
 */
int tnp_tensor_share_in(PyObject *tensor, PyObject *domain, tn_deadline deadline, void *stream);
int tnp_tensor_init(PyObject *module);
/** share.c: private(), and methods of Tensor. */
PyObject *tnp_private(PyObject *module, PyObject *args, PyObject *keywords);
PyObject *tnp_tensor_share(PyObject *tensor, PyObject *args, PyObject *keywords);
PyObject *tnp_tensor_to_handle(PyObject *tensor, PyObject *args, PyObject *keywords);
PyObject *tnp_tensor_reduce(PyObject *tensor, PyObject *protocol);
/** What a new tensor is to be like. */
typedef struct {
    tn_dtype dtype;
    int32_t ndim;
    int64_t shape[TN_MAX_NDIM];
    tn_deadline deadline;
    uint32_t strategy, flags; /* TN_STRATEGY_*, TN_TENSOR_* */
    tn_device device;         /* all 0: the CPU */
} tnp_tensor_request;
/** Make the tensor. pre: the domain is open. @return 0, or a status for tnp_raise() */
int tnp_domain_make_tensor(PyObject *domain, const tnp_tensor_request *request,
                           tn_tensor **ret_tensor);
/**
 * Make a tensor of the same dtype and shape on the same device. `domain` is open; NULL: private
 * memory. @return 0, or a status for tnp_raise()
 */
int tnp_tensor_make_alike(const tn_tensor *tensor, PyObject *domain, tn_deadline deadline,
                          tn_tensor **ret_tensor);
/** share.c: methods of Domain that make, find and load tensors. */
PyObject *tnp_domain_empty(PyObject *domain, PyObject *args, PyObject *keywords);
PyObject *tnp_domain_zeros(PyObject *domain, PyObject *args, PyObject *keywords);
PyObject *tnp_domain_find(PyObject *domain, PyObject *args);
PyObject *tnp_domain_load_handle(PyObject *domain, PyObject *handle);
/** arena.c: a method of Domain. */
PyObject *tnp_domain_filled(PyObject *domain, PyObject *args, PyObject *keywords);
/** attribute.c: the attributes of tenon/attribute.h. An entry without a name ends the table. */
extern PyGetSetDef tnp_tensor_attributes[];
/** attribute_number.c: getters and setters for that table. */
PyObject *tnp_tensor_get_lod(PyObject *tensor, void *unused);
int tnp_tensor_set_lod(PyObject *tensor, PyObject *value, void *unused);
PyObject *tnp_tensor_get_quantizer(PyObject *tensor, void *unused);
int tnp_tensor_set_quantizer(PyObject *tensor, PyObject *value, void *unused);
/** element.c: read and write one element, which need not be aligned. */
PyObject *tnp_element_get(tn_dtype dtype, const void *element);
/** -1: raised (TypeError, OverflowError), and the element is unchanged. */
int tnp_element_set(tn_dtype dtype, void *element, PyObject *value);
/** view.c: indexing. */
PyObject *tnp_tensor_subscript(PyObject *tensor, PyObject *index);
int tnp_tensor_assign(PyObject *tensor, PyObject *index, PyObject *value);
PyObject *tnp_tensor_tolist(PyObject *tensor, PyObject *unused);
PyObject *tnp_tensor_item(PyObject *tensor, PyObject *unused);
PyObject *tnp_tensor_copy_from(PyObject *tensor, PyObject *source);
/** -1: raised (ValueError). */
int tnp_tensor_check_writable(PyObject *tensor);
/**
 * One side of a copy. `owner` is the Python object that owns the memory; NULL: no other thread
 * can reach the memory.
 */
typedef struct {
    tn_tensor *tensor;
    PyObject *owner;
} tnp_side;
/** Copy all elements between tensors of the same dtype and shape. -1: raised. */
int tnp_tensor_copy_all(tnp_side target, tnp_side source);
/** The same. @return 0, or a status for tnp_raise() */
int tnp_tensor_copy_status(tnp_side target, tnp_side source);
/** reshape.c: methods that make views and copies. */
PyObject *tnp_tensor_view(PyObject *tensor, PyObject *args, PyObject *keywords);
PyObject *tnp_tensor_reshape(PyObject *tensor, PyObject *args);
PyObject *tnp_tensor_transpose(PyObject *tensor, PyObject *args);
PyObject *tnp_tensor_get_transposed(PyObject *tensor, void *unused);
PyObject *tnp_tensor_copy(PyObject *tensor, PyObject *unused);
PyObject *tnp_tensor_deep_copy(PyObject *tensor, PyObject *memo);
PyObject *tnp_tensor_shallow_copy(PyObject *tensor, PyObject *unused);
PyObject *tnp_tensor_tobytes(PyObject *tensor, PyObject *unused);
/**
 * device.c: check that the CPU can reach the elements. Every function that reads or writes them
 * calls this one before. -1: raised (TypeError, which names the device).
 */
int tnp_tensor_fail_on_device(PyObject *tensor);
static inline int tnp_tensor_check_on_cpu(PyObject *tensor)
{
    return tn_tensor_device(((tnp_tensor *)tensor)->tensor).type == TN_DEVICE_CPU
               ? 0
               : tnp_tensor_fail_on_device(tensor);
}
/**
 * The domain of a copy, a new reference: that of the tensor, or that of this process. It is
 * open. NULL: raised.
 */
PyObject *tnp_tensor_domain_for_copy(PyObject *tensor);
PyObject *tnp_tensor_to(PyObject *tensor, PyObject *args, PyObject *keywords);
PyObject *tnp_tensor_cuda_array(PyObject *tensor, void *unused);
/**
 * stream.c: read a stream: NULL and None are the legacy default stream. -1: raised.
 */
int tnp_stream(PyObject *object, void **ret_stream);
PyObject *tnp_tensor_record(PyObject *tensor, PyObject *args, PyObject *keywords);
PyObject *tnp_tensor_wait(PyObject *tensor, PyObject *args, PyObject *keywords);
PyObject *tnp_tensor_sync(PyObject *tensor, PyObject *args, PyObject *keywords);
PyObject *tnp_tensor_get_is_incomplete(PyObject *tensor, void *unused);
/** Let a stream wait for what was recorded in the tensor. -1: raised. */
int tnp_tensor_let_wait(PyObject *tensor, void *stream);
/** Whether something that was recorded is not done yet: 0 or 1. -1: raised (PeerDied). */
int tnp_tensor_is_pending(PyObject *tensor);
/** facts.c: the attributes that cannot be set. An entry without a name ends the table. */
extern PyGetSetDef tnp_tensor_facts[];
PyObject *tnp_tensor_repr(PyObject *tensor);
/** buffer.c, dlpack_export.c, dlpack_import.c, exchange.c: exchange with other libraries. */
extern PyBufferProcs tnp_tensor_buffer;
PyObject *tnp_tensor_to_dlpack(PyObject *tensor, PyObject *args, PyObject *keywords);
PyObject *tnp_tensor_dlpack_device(PyObject *tensor, PyObject *unused);
PyObject *tnp_tensor_array(PyObject *tensor, PyObject *args, PyObject *keywords);
/** The same for an object with __dlpack__, or a capsule. NULL: raised. */
PyObject *tnp_from_dlpack(PyObject *source);
PyObject *tnp_module_from_dlpack(PyObject *module, PyObject *args, PyObject *keywords);
/** cuda_array_import.c: the same for an object with __cuda_array_interface__. NULL: raised. */
PyObject *tnp_from_cuda_array(PyObject *source);
bool tnp_has_cuda_array(PyObject *object);
PyObject *tnp_module_from_cuda_array(PyObject *module, PyObject *args, PyObject *keywords);
PyObject *tnp_from_buffer(PyObject *module, PyObject *source);
/**
 * A tensor over the memory of an object with DLPack, the buffer protocol or the CUDA array
 * interface, a new reference. NULL: raised.
 */
PyObject *tnp_tensor_from(PyObject *object);
/**
 * Whether the interpreter shuts down: a thread that does not have the GIL then cannot get it.
 */
static inline bool tnp_is_finalizing(void)
{
#if PY_VERSION_HEX >= 0x030d0000
    return !Py_IsInitialized() || Py_IsFinalizing();
#else
    return !Py_IsInitialized() || _Py_IsFinalizing();
#endif
}

#endif
