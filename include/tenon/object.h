/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TENON_OBJECT_H
#define TENON_OBJECT_H

#include <tenon/deadline.h>
#include <tenon/domain.h>

TN_BEGIN_DECLS

/**
 * An object of a domain: a queue, an event, a semaphore, a lock, a condition, a barrier, a
 * store or a channel.
 *
 * A tn_object is this process's private handle; tn_queue, tn_event and the others are the same
 * C type, and a function that is given an object of another kind returns TN_ERR_INVALID. Each
 * kind has one function that opens: tn_queue_open(), tn_event_open() and so on. That function
 * opens the object with the given name, and makes the object if there is none. With the name
 * NULL it makes an object that other processes reach by fork or by tn_object_id().
 *
 * An object ends when the last process that had it open has closed it or died.
 *
 * Threads: any number at once may use one object.   Fork: a child may use its parent's.
 */
typedef struct tn_object tn_object;

/** The kinds of objects, as tn_object_kind() returns them. */
enum {
    TN_OBJECT_QUEUE = 1,
    TN_OBJECT_EVENT = 2,
    TN_OBJECT_SEMAPHORE = 3,
    TN_OBJECT_LOCK = 4,
    TN_OBJECT_CONDITION = 5,
    TN_OBJECT_BARRIER = 6,
    TN_OBJECT_STORE = 7,
    TN_OBJECT_CHANNEL = 8
};

/**
 * Get the number of an object. Any member of the domain can open the object by this number with
 * tn_object_open_id(), while at least one process has the object open.
 * @return the number, never 0; or 0 if `object` is NULL
 *
 * Threads: any.   Blocks: never.   Fork: yes.
 */
TN_API uint64_t tn_object_id(const tn_object *object);

/**
 * Open the object with this number.
 *
 * @param kind        TN_OBJECT_*, which the object must be; 0: any kind
 * @param id          as tn_object_id() gave it, in this process or in another
 * @param ret_object  owned by the caller, ended with tn_object_close(); untouched on failure
 * @return 0, or
 *         TN_ERR_NOT_FOUND  the object has ended, or no object ever had this number
 *         TN_ERR_INVALID    an argument is NULL; `kind` is out of range; the id is 0, which
 *                           no object has; or the object is of another kind
 *         TN_ERR_TIMED_OUT  as tn_queue_open()
 *         TN_ERR_NO_MEMORY  there is no private memory for the handle
 *         TN_ERR_FORKED     this process has no seat
 *         TN_ERR_CORRUPT    shared memory is damaged
 *
 * Threads: any.   Blocks: bounded.   Fork: yes.
 * Crash: the dead process no longer counts as one that has the object open.
 */
TN_API TN_NODISCARD int tn_object_open_id(tn_domain *domain, int kind, uint64_t id,
                                          tn_object **ret_object);

/** Get the kind of an object. @return TN_OBJECT_*, or TN_ERR_INVALID for NULL */
TN_API int tn_object_kind(const tn_object *object);

/**
 * Copy the object's name, or "" if the object has none.
 *
 * @param name        [size_bytes], receives the text and a zero byte
 * @param size_bytes  at least 48
 * @return the length of the name in bytes, or
 *         TN_ERR_INVALID  an argument is NULL, or size_bytes is less than 48
 *         TN_ERR_CLOSED   this process has left the domain
 *         TN_ERR_STALE    damage to shared memory has ended the object
 *         TN_ERR_FORKED   this process has no seat
 *
 * Threads: any.   Blocks: never.   Fork: yes.
 */
TN_API TN_NODISCARD int tn_object_name(const tn_object *object, char *name, size_t size_bytes);

/**
 * Wait until one of several queues and channels has a message or is at its end.
 *
 * @param objects  [count], borrowed, all of one domain: queues and channels
 * @param count    at least 1
 * @return the index of an object that is ready: a pop or receive with TN_NOW then gives a
 *         message, or the error that says why there is none, or TN_ERR_TIMED_OUT if another
 *         consumer was faster; or
 *         TN_ERR_TIMED_OUT    no object is ready at the deadline
 *         TN_ERR_INVALID      objects or one of them is NULL, or of another kind; count is out
 *                             of range; or the objects are of several domains
 *         TN_ERR_INTERRUPTED  the hook of tn_interrupt_set() ended the wait
 *         TN_ERR_CLOSED, TN_ERR_FORKED  this process has left the domain, or has no seat in it
 *         TN_ERR_STALE        damage to shared memory has ended one of them
 *
 * Threads: any.   Blocks: until the deadline.   Fork: yes.
 */
TN_API TN_NODISCARD int tn_object_wait_any(tn_object *const *objects, uint32_t count,
                                           tn_deadline deadline);

/**
 * Choose whether the descriptor of tn_domain_poll_fd() becomes readable for this queue or
 * channel.
 * @param watch  true: it does from now on; false: it does no longer
 * @return 0, TN_ERR_INVALID (the object is NULL or of another kind), TN_ERR_CLOSED (this
 *         process has left the domain), TN_ERR_FORKED, or TN_ERR_STALE
 *
 * Threads: any.   Blocks: never.   Fork: yes; a child watches nothing at first.
 */
TN_API TN_NODISCARD int tn_object_watch(tn_object *object, bool watch);

/**
 * Close this process's handle of an object.
 * @param object  consumed; NULL is accepted
 * @return NULL
 *
 * Threads: no other thread may use the handle.   Blocks: bounded.
 * Fork: yes: the parent's handle stays open, and so does the child's when the parent closes.
 */
TN_API tn_object *tn_object_close(tn_object *object);

TN_END_DECLS

#endif
