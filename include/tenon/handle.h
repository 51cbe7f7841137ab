/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TENON_HANDLE_H
#define TENON_HANDLE_H

#include <tenon/tensor.h>

TN_BEGIN_DECLS

/**
 * A handle: plain bytes that stand for a tensor. A program sends them by any means, such as a
 * pipe, and any member of the domain can import them. Between export and import a ticket in the
 * domain owns a reference to the tensor's storage. docs/layout.md has the wire form.
 */
enum { TN_HANDLE_MAX_BYTES = 640 + 32768 /* 640 without attributes */ };

/** A lifetime without an end. */
#define TN_NO_EXPIRY UINT64_MAX

/** Zero in a field means its default. */
typedef struct tn_handle_options {
    size_t struct_size;
    uint32_t uses;        /* how often it can be imported; default 1, at most 2^20 - 1 */
    uint32_t flags;       /* TN_HANDLE_* */
    uint64_t lifetime_ns; /* from now; default: until 60 s after this process left or died;
                             TN_NO_EXPIRY: no end */
} tn_handle_options;

enum {
    TN_HANDLE_WITH_ISSUER = 1u << 0 /* the handle ends as soon as this process leaves or
                                       dies, not 60 s later; not together with a lifetime */
};

/**
 * Write a handle to a tensor. The handle's ticket owns a reference of its own to the storage.
 *
 * @param tensor      borrowed; shared in a domain
 * @param options     borrowed; NULL for the defaults
 * @param bytes       [size_bytes], receives the handle
 * @param size_bytes  TN_HANDLE_MAX_BYTES is always enough
 * @param ret_used    how many bytes were written; untouched on failure
 * @return 0, or
 *         TN_ERR_INVALID    an argument is NULL; an option is out of range; the tensor is not
 *                           shared in a domain; or `bytes` is too small
 *         TN_ERR_FULL       the domain has no free ticket
 *         TN_ERR_NO_MEMORY  there is no private memory to write long attributes
 *         TN_ERR_CLOSED, TN_ERR_FORKED  this process has left the domain, or has no seat in it
 *
 * Threads: any.   Fork: yes.
 * Blocks: never, except that the export of a file_descriptor storage waits for a tenond that is
 * stopped, as tn_queue_push() does.
 * Crash: the ticket exists whole or not at all. If the handle is lost, the ticket expires.
 */
TN_API TN_NODISCARD int tn_handle_export(tn_tensor *tensor, const tn_handle_options *options,
                                         void *bytes, size_t size_bytes, size_t *ret_used);

/**
 * Make a tensor from a handle, and consume one use of the handle.
 *
 * @param bytes       the handle, [size_bytes]; borrowed
 * @param ret_tensor  owned by the caller; untouched on failure
 * @return 0, or
 *         TN_ERR_INVALID    an argument is NULL, or the bytes are not a handle: truncated or
 *                           altered
 *         TN_ERR_VERSION    the handle has another version of the wire form, or a feature that
 *                           this library does not know
 *         TN_ERR_DENIED     the handle was made in another domain
 *         TN_ERR_STALE      the handle was used up, revoked, or has expired: the error's
 *                           sentence says which
 *         TN_ERR_NOT_FOUND, TN_ERR_CORRUPT  the storage is outside of the arena, and its file
 *                           or descriptor is gone or was changed
 *         TN_ERR_NO_MEMORY  there is no private memory, or no room for another mapping
 *         TN_ERR_FULL       this process cannot open another descriptor
 *         TN_ERR_MANAGER    tenond, which may have the storage's descriptor, does not answer
 *         TN_ERR_FORKED     this process has no seat
 *         TN_ERR_SYSTEM     a system call failed
 *         A call that fails consumes no use.
 *
 * Threads: any.   Fork: yes.
 * Blocks: never, except that the import of a file_descriptor storage may ask tenond for the
 * descriptor, as tn_queue_pop() does.
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
 *         TN_ERR_INVALID  an argument is NULL, or the bytes are not a handle
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
