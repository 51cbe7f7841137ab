/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TENON_HANDLE_H
#define TENON_HANDLE_H

#include <tenon/tensor.h>

TN_BEGIN_DECLS

/**
 * A handle: plain bytes that any member of the domain can import, sent by whatever means.
 * Between export and import a ticket in the domain owns the reference. docs/layout.md has the
 * wire form.
 */
enum { TN_HANDLE_MAX_BYTES = 640 + 32768 /* 640 without attributes */ };

/** A lifetime that does not end. */
#define TN_NO_EXPIRY UINT64_MAX

/** Zero in a field means its default. */
typedef struct tn_handle_options {
    size_t struct_size;
    uint32_t uses;        /* imports that are allowed; default 1, at most 2^20 - 1 */
    uint32_t flags;       /* TN_HANDLE_* */
    uint64_t lifetime_ns; /* from now; default: until 60 s after this process left or died;
                             TN_NO_EXPIRY: no end */
} tn_handle_options;

enum {
    TN_HANDLE_WITH_ISSUER = 1u << 0 /* it ends when this process leaves or dies, without the
                                       60 s; not together with a lifetime */
};

/**
 * Write a handle to `bytes` and give the ticket a reference of its own.
 *
 * @param size_bytes   of `bytes`; TN_HANDLE_MAX_BYTES always suffices
 * @param ret_used     bytes written
 * @return 0, or TN_ERR_INVALID (not shared in a domain; no room in `bytes`), TN_ERR_FULL
 *         (tickets), TN_ERR_FORKED
 *
 * A file_descriptor storage waits for a tenond that is stopped, as in tn_queue_push().
 *
 * Threads: any.   Blocks: never, or as above.   Fork: yes.
 * Crash: the ticket exists whole or not at all; one whose handle got lost expires.
 */
TN_API TN_NODISCARD int tn_handle_export(tn_tensor *tensor, const tn_handle_options *options,
                                         void *bytes, size_t size_bytes, size_t *ret_used);

/**
 * Make a tensor of a handle, consuming one use.
 *
 * @return 0, or
 *         TN_ERR_INVALID  truncated, altered, or not a handle
 *         TN_ERR_VERSION  another version of the wire form, or parts that must be understood
 *         TN_ERR_DENIED   a handle of another domain
 *         TN_ERR_STALE    used up, revoked, or expired: the detail says which
 *         TN_ERR_NOT_FOUND, TN_ERR_CORRUPT  its memory, outside of the arena, cannot be had
 *                         any more, or is not what it was
 *         TN_ERR_FORKED, TN_ERR_NO_MEMORY (private memory, mappings), TN_ERR_FULL
 *                         (descriptors), TN_ERR_MANAGER (tenond, which may have its
 *                         descriptor, does not answer), TN_ERR_SYSTEM; the use is not consumed
 *
 * Crash: the use is consumed or not; the reference is not lost.
 */
TN_API TN_NODISCARD int tn_handle_import(tn_domain *domain, const void *bytes,
                                         size_t size_bytes, tn_tensor **ret_tensor);

/**
 * End the ticket of a handle now: nobody can import the handle from now on.
 *
 * @param bytes  the handle, [size_bytes]; borrowed
 * @return 0, or
 *         TN_ERR_STALE    the handle was used up, revoked or expired before
 *         TN_ERR_INVALID  an argument is NULL, or the bytes are no handle
 *         TN_ERR_VERSION, TN_ERR_DENIED  as of tn_handle_import()
 *         TN_ERR_CORRUPT, TN_ERR_FORKED
 *
 * Threads: any.   Blocks: never.   Fork: yes.
 * Crash: the reaper ends the ticket.
 */
TN_API TN_NODISCARD int tn_handle_revoke(tn_domain *domain, const void *bytes,
                                         size_t size_bytes);

TN_END_DECLS

#endif
