/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TENON_OBJECT_H
#define TENON_OBJECT_H

#include <tenon/domain.h>

TN_BEGIN_DECLS

/**
 * An object of a domain: a queue, an event, a semaphore, a lock, a condition or a barrier.
 *
 * A tn_object is this process's private handle; tn_queue, tn_event and the others are the same
 * C type, and a function that is given an object of another kind returns TN_ERR_INVALID. Each
 * kind has one function that opens: tn_queue_open(), tn_event_open() and so on. It opens the
 * object of that name, and makes it if there is none; with the name NULL it makes an object
 * that other processes reach by fork or by tn_object_id().
 *
 * An object ends when the last process that has it open closed it or died.
 *
 * Threads: any number at once may use one object.   Fork: a child may use its parent's.
 */
typedef struct tn_object tn_object;

/** What an object is: tn_object_kind(). */
enum {
    TN_OBJECT_QUEUE = 1,
    TN_OBJECT_EVENT = 2,
    TN_OBJECT_SEMAPHORE = 3,
    TN_OBJECT_LOCK = 4,
    TN_OBJECT_CONDITION = 5,
    TN_OBJECT_BARRIER = 6
};

/**
 * A number that opens this object in any member of the domain, for as long as a process has it
 * open. It is never 0 for an object, and 0 for NULL.
 */
TN_API uint64_t tn_object_id(const tn_object *object);

/**
 * Open the object with this number.
 *
 * @param kind  TN_OBJECT_*: another kind of object is refused; 0: any kind will do
 * @param ret_object  owned by the caller, ended with tn_object_close(); untouched on failure
 * @return 0, or
 *         TN_ERR_NOT_FOUND  the object has ended, or there was none
 *         TN_ERR_INVALID    the id is 0, which no object has; the object is of another kind
 *         TN_ERR_NO_MEMORY (private memory), TN_ERR_FORKED, TN_ERR_CORRUPT;
 *         TN_ERR_TIMED_OUT as of tn_queue_open()
 */
TN_API TN_NODISCARD int tn_object_open_id(tn_domain *domain, int kind, uint64_t id,
                                          tn_object **ret_object);

/** TN_OBJECT_*; TN_ERR_INVALID for NULL. */
TN_API int tn_object_kind(const tn_object *object);

/**
 * Copy the object's name, "" if it has none.
 *
 * @param size_bytes  of `name`; 48 is enough, and less is TN_ERR_INVALID
 * @return the length of the name, or TN_ERR_INVALID, TN_ERR_CLOSED (this process left the
 *         domain), TN_ERR_STALE (noise in shared memory ended the object), TN_ERR_FORKED
 */
TN_API TN_NODISCARD int tn_object_name(const tn_object *object, char *name, size_t size_bytes);

/**
 * Close this process's handle. Returns NULL; NULL is accepted.
 *
 * Threads: no other thread may use the handle.   Blocks: bounded.
 */
TN_API tn_object *tn_object_close(tn_object *object);

TN_END_DECLS

#endif
