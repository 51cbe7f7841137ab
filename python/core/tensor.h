/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors: their type, and what each file gives of it. */
#ifndef TENON_CORE_TENSOR_H
#define TENON_CORE_TENSOR_H

#include "core.h"

typedef struct {
    PyObject_HEAD tn_tensor *tensor;
    PyObject *domain; /* a tnp_domain; NULL: private, or see `base` */
    PyObject *base; /* the first tensor over a private storage, which learns when it is shared;
                       NULL: this one */
    PyObject *weak;
    tnp_waiters users; /* of the first tensor: threads that copy without the GIL */
} tnp_tensor;
extern PyTypeObject tnp_tensor_type;
#define tnp_is_tensor(object) PyObject_TypeCheck(object, &tnp_tensor_type)
/** Wrap a tensor; its reference is consumed, also on failure. `domain` is borrowed. */
PyObject *tnp_tensor_wrap(tn_tensor *tensor, PyObject *domain);
/** The same of a view of `tensor`'s storage. */
PyObject *tnp_tensor_wrap_view(tn_tensor *view, PyObject *tensor);
/** The domain that it is shared in, borrowed; NULL: none, and nothing is raised. */
PyObject *tnp_tensor_domain(PyObject *tensor);
/**
 * Around what looks at a tensor's memory without the GIL and runs no code of Python: private
 * memory does not move meanwhile. NULL: nobody else knows the memory.
 */
void tnp_tensor_go_in(PyObject *tensor);
void tnp_tensor_come_out(PyObject *tensor);
void tnp_tensor_wait_until_unused(PyObject *tensor);
/** Bytes of a copy; `tensor` is whose memory they are, or NULL. NULL: raised. */
PyObject *tnp_bytes(PyObject *tensor, const void *start, size_t size_bytes);
/**
 * Move its storage into a domain, for all its views: the one way to tn_tensor_share(), since
 * what moves must not be looked at by a thread that gets the GIL meanwhile.
 * @return 0, or a status, for tnp_raise()
 */
int tnp_tensor_share_in(PyObject *tensor, PyObject *domain, tn_deadline deadline);
int tnp_tensor_init(PyObject *module);
/** share.c: private(), and methods of tensors. */
PyObject *tnp_private(PyObject *module, PyObject *args, PyObject *keywords);
PyObject *tnp_tensor_share(PyObject *tensor, PyObject *args, PyObject *keywords);
PyObject *tnp_tensor_to_handle(PyObject *tensor, PyObject *args, PyObject *keywords);
PyObject *tnp_tensor_reduce(PyObject *tensor, PyObject *protocol);
/** A new tensor, as it is wanted. */
typedef struct {
    tn_dtype dtype;
    int32_t ndim;
    int64_t shape[TN_MAX_NDIM];
    tn_deadline deadline;
    uint32_t strategy, flags; /* TN_STRATEGY_*, TN_SHARE_* */
} tnp_wanted;
/** Make it, in a domain that is open. @return 0, or a status, for tnp_raise() */
int tnp_domain_make(PyObject *domain, const tnp_wanted *wanted, tn_tensor **ret_tensor);
/** Domain.empty and .zeros, Domain.find, Domain.load_handle: methods of another type, kept
 * here. */
PyObject *tnp_domain_empty(PyObject *domain, PyObject *args, PyObject *keywords);
PyObject *tnp_domain_zeros(PyObject *domain, PyObject *args, PyObject *keywords);
PyObject *tnp_domain_find(PyObject *domain, PyObject *args);
PyObject *tnp_domain_load_handle(PyObject *domain, PyObject *handle);
/** attribute.c: those of tenon/attribute.h; a name NULL ends them. */
extern PyGetSetDef tnp_tensor_attributes[];
/** attribute_number.c: a getter and a setter of that table. */
PyObject *tnp_tensor_get_lod(PyObject *tensor, void *unused);
int tnp_tensor_set_lod(PyObject *tensor, PyObject *value, void *unused);
PyObject *tnp_tensor_get_quantizer(PyObject *tensor, void *unused);
int tnp_tensor_set_quantizer(PyObject *tensor, PyObject *value, void *unused);
/** element.c: one element, which need not be aligned. */
PyObject *tnp_element_get(tn_dtype dtype, const void *element);
/** -1: raised (TypeError, OverflowError), and the element is as it was. */
int tnp_element_set(tn_dtype dtype, void *element, PyObject *value);
/** view.c */
PyObject *tnp_tensor_subscript(PyObject *tensor, PyObject *index);
int tnp_tensor_assign(PyObject *tensor, PyObject *index, PyObject *value);
PyObject *tnp_tensor_tolist(PyObject *tensor, PyObject *unused);
PyObject *tnp_tensor_item(PyObject *tensor, PyObject *unused);
PyObject *tnp_tensor_copy_from(PyObject *tensor, PyObject *source);
/** -1: raised, as ValueError. */
int tnp_tensor_check_writable(PyObject *tensor);
/** One side of a copy: a tensor, and the object whose memory it looks at; NULL: nobody knows
 * it. */
typedef struct {
    tn_tensor *tensor;
    PyObject *owner;
} tnp_side;
/** Copy all elements; same dtype and shape. -1: raised. */
int tnp_tensor_copy_all(tnp_side target, tnp_side source);
/** The same. @return 0, or a status, for tnp_raise() */
int tnp_tensor_copy_status(tnp_side target, tnp_side source);
/** reshape.c: views and copies, as methods. */
PyObject *tnp_tensor_view(PyObject *tensor, PyObject *args, PyObject *keywords);
PyObject *tnp_tensor_reshape(PyObject *tensor, PyObject *args);
PyObject *tnp_tensor_transpose(PyObject *tensor, PyObject *args);
PyObject *tnp_tensor_get_transposed(PyObject *tensor, void *unused);
PyObject *tnp_tensor_copy(PyObject *tensor, PyObject *unused);
PyObject *tnp_tensor_deep_copy(PyObject *tensor, PyObject *memo);
PyObject *tnp_tensor_shallow_copy(PyObject *tensor, PyObject *unused);
PyObject *tnp_tensor_tobytes(PyObject *tensor, PyObject *unused);
/** facts.c: attributes that cannot be set; a name NULL ends them. */
extern PyGetSetDef tnp_tensor_facts[];
PyObject *tnp_tensor_repr(PyObject *tensor);
/** buffer.c, dlpack_export.c, dlpack_import.c, exchange.c: the memory in other libraries. */
extern PyBufferProcs tnp_tensor_buffer;
PyObject *tnp_tensor_to_dlpack(PyObject *tensor, PyObject *args, PyObject *keywords);
PyObject *tnp_tensor_dlpack_device(PyObject *tensor, PyObject *unused);
PyObject *tnp_tensor_array(PyObject *tensor, PyObject *args, PyObject *keywords);
PyObject *tnp_from_dlpack(PyObject *module, PyObject *source);
PyObject *tnp_from_buffer(PyObject *module, PyObject *source);
/** A tensor, a new reference, of what has DLPack or the buffer protocol. NULL: raised. */
PyObject *tnp_tensor_of(PyObject *object);
/** Whether the interpreter ends: a thread without the GIL cannot get it any more. */
static inline bool tnp_is_finalizing(void)
{
#if PY_VERSION_HEX >= 0x030d0000
    return !Py_IsInitialized() || Py_IsFinalizing();
#else
    return !Py_IsInitialized() || _Py_IsFinalizing();
#endif
}

#endif
