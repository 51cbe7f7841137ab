/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TENON_ATTRIBUTE_H
#define TENON_ATTRIBUTE_H

#include <tenon/tensor.h>

TN_BEGIN_DECLS

/*
 * What a framework knows about a tensor beyond its elements. Attributes belong to a tn_tensor,
 * not to its storage. They travel with the tensor in messages, handles and packets, and arrive
 * unchanged. tenon checks attributes, but does not act on them.
 *
 * A view starts with the attributes that say what its elements mean: conjugate, negative, and a
 * quantizer of the whole tensor. It has no other attributes. If an attribute cannot go along,
 * such as a conjugate bit into DLPack or a quantizer by channel into a slice, the call fails
 * with TN_ERR_UNSUPPORTED, and the error's sentence names the attribute.
 *
 * All attributes of a tensor together take at most TN_ATTRIBUTES_MAX_BYTES. A quantizer by
 * channel takes 24 bytes and 16 for each channel, so that a tensor with no other attribute can
 * have 2046 channels.
 *
 * Each setter copies its arguments and replaces the value that was set before. It returns 0, or
 *     TN_ERR_INVALID    the tensor is NULL; an argument is out of range or does not fit the
 *                       tensor; or all attributes together would be too long
 *     TN_ERR_NO_MEMORY  there is no private memory for the copy
 * A setter that fails changes nothing. The result of a getter is borrowed: it is valid until an
 * attribute of the tensor changes or the tensor ends.
 *
 * Threads: one thread at a time may set attributes of a tensor or use the results of getters.
 * Meanwhile other threads may push, export, send and copy the tensor: each of those calls uses
 * the attributes that the tensor had at one moment of the call. Nothing else may use the tensor
 * meanwhile.
 */
enum { TN_ATTRIBUTES_MAX_BYTES = 32768 };

enum {
    TN_REQUIRES_GRAD = 1u << 0,
    TN_STOP_GRADIENT = 1u << 1, /* not together with TN_REQUIRES_GRAD */
    TN_PARAMETER = 1u << 2,
    TN_BUFFER = 1u << 3,    /* of a module; not together with TN_PARAMETER */
    TN_CONJUGATE = 1u << 4, /* a reader takes the conjugate of each element; complex types */
    TN_NEGATIVE = 1u << 5,  /* a reader takes the negative of each element */
    TN_WAS_PINNED = 1u << 6 /* the sender's memory was page-locked; the memory here is not */
};

/**
 * Set all flags of a tensor.
 * @param flags  TN_REQUIRES_GRAD and the others; 0 removes all flags
 * @return 0, TN_ERR_NO_MEMORY, or TN_ERR_INVALID (a flag is unknown, two flags exclude each
 *         other, or a flag does not fit the type)
 */
TN_API TN_NODISCARD int tn_tensor_set_flags(tn_tensor *tensor, uint32_t flags);
/** Get the flags of a tensor. @return TN_REQUIRES_GRAD and the others; 0 for none or NULL */
TN_API uint32_t tn_tensor_flags(const tn_tensor *tensor);

/**
 * Set the name of a tensor.
 * @param name  at most 127 bytes of UTF-8 without control characters; NULL or "" removes the
 *              name
 * @return as each setter
 */
TN_API TN_NODISCARD int tn_tensor_set_name(tn_tensor *tensor, const char *name);
/** Get the name of a tensor. @return borrowed; NULL if it has none */
TN_API const char *tn_tensor_name(const tn_tensor *tensor);

/**
 * Name the axes of a tensor.
 * @param names  [ndim], each at most 63 bytes of UTF-8 without control characters, "" for an
 *               axis without a name; NULL removes the names
 * @return as each setter
 */
TN_API TN_NODISCARD int tn_tensor_set_axis_names(tn_tensor *tensor, const char *const *names);
/**
 * Get the name of an axis.
 * @return borrowed; "" if other axes have names but this one has none; NULL if no axis has a
 *         name or there is no such axis
 */
TN_API const char *tn_tensor_axis_name(const tn_tensor *tensor, int32_t axis);

/* ---- levels of detail -------------------------------------------------------------------- */

enum { TN_LOD_MAX_LEVELS = 8 };

/**
 * Set levels of detail, as Paddle has them: the offsets of sequences, from coarse to fine.
 *
 * @param levels   how many levels, at most TN_LOD_MAX_LEVELS; 0 removes them
 * @param counts   [levels], the number of offsets in each level, at least 2
 * @param offsets  [levels][counts[level]]. The offsets of a level begin with 0 and never fall.
 *                 The last one is the number of sequences of the next level or, in the last
 *                 level, the size of the tensor's first axis
 * @return as each setter; TN_ERR_INVALID also names the level that does not fit
 */
TN_API TN_NODISCARD int tn_tensor_set_lod(tn_tensor *tensor, uint32_t levels,
                                          const uint32_t *counts,
                                          const uint64_t *const *offsets);
/**
 * Get the offsets of one level of detail.
 * @param level      0 is the coarsest
 * @param ret_count  how many offsets the level has; may be NULL; untouched if there is no such
 *                   level
 * @return [*ret_count], borrowed; NULL if the tensor has no such level
 */
TN_API const uint64_t *tn_tensor_lod(const tn_tensor *tensor, uint32_t level,
                                     uint32_t *ret_count);

/* ---- quantizers -------------------------------------------------------------------------- */

enum { TN_QUANTIZER_NONE = 0, TN_QUANTIZER_AFFINE = 1, TN_QUANTIZER_AFFINE_CHANNEL = 2 };

/**
 * How the elements of a tensor stand for real numbers: real = (element - zero_point) * scale.
 * This struct does not grow: `scheme` says how to read it.
 */
typedef struct tn_quantizer {
    uint32_t scheme;            /* TN_QUANTIZER_* */
    int32_t axis;               /* AFFINE_CHANNEL: the axis of the channels; else 0 */
    uint32_t count;             /* AFFINE_CHANNEL: the size of that axis; else 1 */
    uint32_t reserved;          /* 0 */
    const double *scales;       /* [count], each finite and not 0 */
    const int64_t *zero_points; /* [count] */
} tn_quantizer;

/**
 * Set the quantizer of a tensor.
 * @param quantizer  copied, with its arrays; NULL or TN_QUANTIZER_NONE removes the quantizer
 * @return 0, TN_ERR_NO_MEMORY, or TN_ERR_INVALID (the tensor is NULL, its type is not an
 *         integer, a scale is 0 or not finite, or the quantizer does not fit the shape)
 */
TN_API TN_NODISCARD int tn_tensor_set_quantizer(tn_tensor *tensor,
                                                const tn_quantizer *quantizer);
/**
 * Get the quantizer of a tensor.
 * @param ret_quantizer  its arrays are borrowed; untouched if the result is false
 * @return whether the tensor has a quantizer
 */
TN_API bool tn_tensor_quantizer(const tn_tensor *tensor, tn_quantizer *ret_quantizer);

/* ---- sparse tensors, as tensors of parts ------------------------------------------------- */

enum { TN_LAYOUT_STRIDED = 0, TN_LAYOUT_COO = 1, TN_LAYOUT_CSR = 2 };
enum { TN_SPARSE_COALESCED = 1u << 0 /* COO: indices are sorted and occur once */ };

/**
 * A sparse tensor consists of two or three dense tensors, its parts. The parts travel side by
 * side in one message. This struct does not grow: `layout` says how to read it.
 *
 * COO: indices [sparse axes, n] of int64, values [n, dense axes...].
 * CSR: row offsets [rows + 1] and columns [n], both int32 or both int64, values [n].
 *
 *     tn_sparse coo = {.layout = TN_LAYOUT_COO, .ndim = 2, .part_count = 2,
 *                      .shape = {1000, 500}, .parts = {indices, values}};
 *     tn_sparse_mark(&coo);            then push a message of coo.parts; the receiver calls:
 *     tn_sparse_find(message.tensors, message.tensor_count, &coo);
 */
typedef struct tn_sparse {
    uint32_t layout; /* TN_LAYOUT_* */
    uint32_t flags;  /* TN_SPARSE_* */
    int32_t ndim;
    uint32_t part_count; /* 2 or 3 */
    int64_t shape[TN_MAX_NDIM];
    tn_tensor *parts[3];
} tn_sparse;

/**
 * Mark tensors as the parts of one sparse tensor. The call checks types, sizes and offsets, but
 * does not read the indices. From then on a push of some of the parts without the others is
 * TN_ERR_INVALID. A view of a part is a dense tensor again.
 * @param sparse  borrowed
 * @return 0, TN_ERR_INVALID (sparse or a part is NULL, or the parts do not fit together), or
 *         TN_ERR_NO_MEMORY (private memory); on failure no part is marked
 */
TN_API TN_NODISCARD int tn_sparse_mark(const tn_sparse *sparse);

/**
 * Put a sparse tensor together from tensors that stand side by side, such as those of a popped
 * message.
 * @param tensors     [count], borrowed; tensors[0] is the first part, and tensors behind the
 *                    last part are ignored
 * @param count       at least 1
 * @param ret_sparse  its parts are borrowed from `tensors`; untouched on failure
 * @return the number of parts (1: tensors[0] is dense, and *ret_sparse is STRIDED), or
 *         TN_ERR_INVALID (an argument or a tensor is NULL, count is 0, or parts are missing or
 *         do not fit)
 */
TN_API TN_NODISCARD int tn_sparse_find(tn_tensor *const *tensors, uint32_t count,
                                       tn_sparse *ret_sparse);

/* ---- metadata ---------------------------------------------------------------------------- */

enum { TN_METADATA_MAX_KEYS = 64 };

/**
 * Store bytes of the program's own under a key. A key that is set again keeps its place among
 * the others.
 * @param key         1 to 63 bytes of UTF-8 without control characters
 * @param bytes       [size_bytes], copied; NULL with size_bytes 0 removes the key
 * @return as each setter; TN_ERR_INVALID also if this would be one key more than
 *         TN_METADATA_MAX_KEYS
 */
TN_API TN_NODISCARD int tn_tensor_set_metadata(tn_tensor *tensor, const char *key,
                                               const void *bytes, size_t size_bytes);
/**
 * Get the bytes that are stored under a key.
 * @param ret_size_bytes  how many bytes; may be NULL; untouched if there is no such key
 * @return borrowed, aligned to 8 bytes; NULL if there is no such key
 */
TN_API const void *tn_tensor_metadata(const tn_tensor *tensor, const char *key,
                                      size_t *ret_size_bytes);
/**
 * Receive one key and its bytes, [size_bytes], borrowed for the call. A result other than 0
 * stops the iteration. The function must not set attributes of the tensor.
 */
typedef int tn_metadata_fn(const char *key, const void *bytes, size_t size_bytes,
                           void *context);
/**
 * Call `each` for every key, in the order in which the keys were first set.
 * @param context  passed on to `each`
 * @return 0, the result of `each` that stopped the iteration, or TN_ERR_INVALID (the tensor or
 *         `each` is NULL)
 */
TN_API TN_NODISCARD int tn_tensor_for_each_metadata(const tn_tensor *tensor,
                                                    tn_metadata_fn *each, void *context);

/**
 * Replace all attributes of `target` by copies of those of `source`.
 * @return 0, TN_ERR_NO_MEMORY (private memory), or TN_ERR_INVALID (an argument is NULL, or an
 *         attribute does not fit the type or shape of `target`)
 */
TN_API TN_NODISCARD int tn_tensor_copy_attributes(tn_tensor *target, const tn_tensor *source);

TN_END_DECLS

#endif
