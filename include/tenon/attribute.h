/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TENON_ATTRIBUTE_H
#define TENON_ATTRIBUTE_H

#include <tenon/tensor.h>

TN_BEGIN_DECLS

/*
 * What a framework knows of a tensor beyond its elements. Attributes belong to a tn_tensor, not
 * to its storage; they travel with it in messages, handles and packets, whole or not at all,
 * and arrive as they were. tenon checks them and does not act on them.
 *
 * A view made by tn_tensor_view(), slice, transpose or reshape starts with those that say what
 * its elements mean (conjugate, negative, a quantizer of the whole tensor) and no others.
 * Where an attribute cannot go along, such as a conjugate bit into DLPack or a quantizer by
 * channel into a slice, the call fails with TN_ERR_UNSUPPORTED and names it.
 *
 * All attributes of a tensor together take at most TN_ATTRIBUTES_MAX_BYTES as they travel:
 * TN_ERR_INVALID beyond that. A quantizer by channel takes 24 bytes and 16 for each channel: at
 * most 2046 channels, if there is nothing else. Setters copy what they are given, replace what
 * was set before, and change nothing when they fail, which for want of private memory is
 * TN_ERR_NO_MEMORY; results of getters are borrowed until the tensor's attributes change or it
 * ends.
 *
 * Threads: one thread at a time sets attributes of a tensor, or uses what a getter gave. While
 * it sets them, other threads may push, export, send and copy the tensor: each of those calls
 * uses the attributes that the tensor had at one moment of the call. Nothing else may use the
 * tensor meanwhile.
 */
enum { TN_ATTRIBUTES_MAX_BYTES = 32768 };

enum {
    TN_REQUIRES_GRAD = 1u << 0,
    TN_STOP_GRADIENT = 1u << 1, /* not together with TN_REQUIRES_GRAD */
    TN_PARAMETER = 1u << 2,
    TN_BUFFER = 1u << 3,    /* of a module; not together with TN_PARAMETER */
    TN_CONJUGATE = 1u << 4, /* elements are to be read as their conjugates; complex types */
    TN_NEGATIVE = 1u << 5,  /* elements are to be read as their negatives */
    TN_WAS_PINNED = 1u << 6 /* its memory was page-locked where it came from; here it is not */
};

/** TN_ERR_INVALID: unknown flags, or such as exclude each other. */
TN_API TN_NODISCARD int tn_tensor_set_flags(tn_tensor *tensor, uint32_t flags);
/** The flags that are set: TN_REQUIRES_GRAD and the others; 0 for none. */
TN_API uint32_t tn_tensor_flags(const tn_tensor *tensor);

/** A name of at most 127 bytes of UTF-8 without control characters; NULL or "" for none. */
TN_API TN_NODISCARD int tn_tensor_set_name(tn_tensor *tensor, const char *name);
/** NULL: none. */
TN_API const char *tn_tensor_name(const tn_tensor *tensor);

/** Names of the axes [ndim], each at most 63 bytes, "" for an axis without; NULL for none. */
TN_API TN_NODISCARD int tn_tensor_set_axis_names(tn_tensor *tensor, const char *const *names);
/** NULL: none, or out of range. */
TN_API const char *tn_tensor_axis_name(const tn_tensor *tensor, int32_t axis);

/* ---- levels of detail -------------------------------------------------------------------- */

enum { TN_LOD_MAX_LEVELS = 8 };

/**
 * Levels of detail, as Paddle has them: offsets of sequences, coarse to fine.
 *
 * @param levels   at most TN_LOD_MAX_LEVELS; 0 for none
 * @param counts   [levels], offsets in each level, at least 2
 * @param offsets  [levels][counts[level]], borrowed; each level begins with 0 and does not
 *         fall; the last offset of a level is the number of sequences of the next one; that of
 *         the last level is the size of the tensor's first axis
 * @return TN_ERR_INVALID: they do not cover the tensor, with the level that is wrong
 */
TN_API TN_NODISCARD int tn_tensor_set_lod(tn_tensor *tensor, uint32_t levels,
                                          const uint32_t *counts,
                                          const uint64_t *const *offsets);
/** Offsets [*ret_count] of a level; NULL: the tensor has no such level. */
TN_API const uint64_t *tn_tensor_lod(const tn_tensor *tensor, uint32_t level,
                                     uint32_t *ret_count);

/* ---- quantizers -------------------------------------------------------------------------- */

enum { TN_QUANTIZER_NONE = 0, TN_QUANTIZER_AFFINE = 1, TN_QUANTIZER_AFFINE_CHANNEL = 2 };

/** real = (element - zero_point) * scale. This struct does not grow: `scheme` says how to read
 * it. */
typedef struct tn_quantizer {
    uint32_t scheme;            /* TN_QUANTIZER_* */
    int32_t axis;               /* of AFFINE_CHANNEL; else 0 */
    uint32_t count;             /* 1, or the size of that axis */
    uint32_t reserved;          /* 0 */
    const double *scales;       /* [count], each finite and not 0 */
    const int64_t *zero_points; /* [count] */
} tn_quantizer;

/**
 * @param quantizer  borrowed; NULL or TN_QUANTIZER_NONE for none
 * @return TN_ERR_INVALID: the type is no integer, or the quantizer does not fit the shape
 */
TN_API TN_NODISCARD int tn_tensor_set_quantizer(tn_tensor *tensor,
                                                const tn_quantizer *quantizer);
/** False: none; *ret_quantizer is untouched then. */
TN_API bool tn_tensor_quantizer(const tn_tensor *tensor, tn_quantizer *ret_quantizer);

/* ---- sparse tensors, as tensors of parts ------------------------------------------------- */

enum { TN_LAYOUT_STRIDED = 0, TN_LAYOUT_COO = 1, TN_LAYOUT_CSR = 2 };
enum { TN_SPARSE_COALESCED = 1u << 0 /* COO: indices are sorted and occur once */ };

/**
 * A sparse tensor is a few dense ones: its parts, which travel side by side in one message.
 * This struct does not grow: `layout` says how to read it.
 *
 * COO: indices [sparse axes, n] of int64, values [n, dense axes...].
 * CSR: row offsets [rows + 1] and columns [n], both int32 or both int64, values [n].
 *
 *     tn_sparse coo = {.layout = TN_LAYOUT_COO, .ndim = 2, .part_count = 2,
 *                      .shape = {1000, 500}, .parts = {indices, values}};
 *     tn_sparse_mark(&coo);            then push a message of coo.parts, and where it arrives:
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
 * Mark tensors as the parts of a sparse one, after checking that types, sizes and offsets fit
 * (the contents of indices are not looked at). Pushing some of the parts without the others is
 * TN_ERR_INVALID from then on; a view of a part is a dense tensor again.
 * @param sparse  borrowed
 * @return TN_ERR_INVALID: the parts do not fit, and none is marked
 */
TN_API TN_NODISCARD int tn_sparse_mark(const tn_sparse *sparse);

/**
 * Put a sparse tensor together from tensors [count] that lie side by side, such as those of a
 * popped message; tensors[0] is its first part.
 * @param ret_sparse  its parts are borrowed from `tensors`
 * @return the number of parts it takes up (1: tensors[0] is dense, and *ret_sparse is
 *         STRIDED), or TN_ERR_INVALID: parts are missing or do not fit
 */
TN_API TN_NODISCARD int tn_sparse_find(tn_tensor *const *tensors, uint32_t count,
                                       tn_sparse *ret_sparse);

/* ---- metadata ---------------------------------------------------------------------------- */

enum { TN_METADATA_MAX_KEYS = 64 };

/**
 * Store bytes of the caller under a key of 1 to 63 bytes of UTF-8 without control characters. A
 * key that is set again keeps its place among the others.
 * @param bytes  copied; NULL with size_bytes 0 removes the key
 * @return TN_ERR_INVALID: the key, or too many of them, or too long altogether
 */
TN_API TN_NODISCARD int tn_tensor_set_metadata(tn_tensor *tensor, const char *key,
                                               const void *bytes, size_t size_bytes);
/** NULL: no such key. The bytes are aligned to 8. */
TN_API const void *tn_tensor_metadata(const tn_tensor *tensor, const char *key,
                                      size_t *ret_size_bytes);
/** Return non-zero to stop. Must not set attributes of the tensor. */
typedef int tn_metadata_fn(const char *key, const void *bytes, size_t size_bytes,
                           void *context);
/** In the order in which keys were set. @return 0, or what `each` returned */
TN_API TN_NODISCARD int tn_tensor_for_each_metadata(const tn_tensor *tensor,
                                                    tn_metadata_fn *each, void *context);

/**
 * Give `target` the attributes of `source` in place of its own. TN_ERR_INVALID: one of them
 * does not fit its type or shape. TN_ERR_NO_MEMORY.
 */
TN_API TN_NODISCARD int tn_tensor_copy_attributes(tn_tensor *target, const tn_tensor *source);

TN_END_DECLS

#endif
