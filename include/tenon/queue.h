/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TENON_QUEUE_H
#define TENON_QUEUE_H

#include <tenon/object.h>
#include <tenon/tensor.h>

TN_BEGIN_DECLS

/**
 * A bounded queue of messages, many producers, many consumers.
 *
 * What one thread pushes is popped in that order. A message that is delivered again, because
 * its consumer died or gave it back, may come after later ones. A pop that fails changes
 * nothing: its message stays where it is.
 *
 * A message owns references to its tensors, so that what was pushed outlives its producer.
 * A tn_queue is this process's private handle; a forked child may use its parent's.
 *
 * A process becomes a producer of a queue with its first push, a consumer with its first pop,
 * or at once with tn_queue_attach(). When a process on the other side *dies*, and no other
 * process is left on that side, waits end with TN_ERR_PEER_DIED (once for each death, and after
 * all messages were popped), and tn_error_peer() names the dead process. A pop reports the
 * death only when no message can come back: it waits while another process is in the middle of
 * a pop, or has leased a message.
 *
 * A process that leaves in good order ends no wait by itself: call tn_queue_end() for that. But
 * if a producer was killed while others lived, and the others then leave in good order, the
 * next pop of an empty queue reports the death: TN_ERR_PEER_DIED names the killed process.
 *
 * Threads: any number at once may use one tn_queue.
 */
typedef tn_object tn_queue;

/**
 * What happens to a message whose consumer dies.
 *
 * REDELIVER: if it died inside pop, the message is delivered again; after pop returned, it was
 * the consumer's. DROP: if it died inside pop, the message is released. LEASE: it is delivered
 * again, with its attempt count, unless tn_message_ack() came; also when the consumer closes
 * the queue or leaves.
 */
enum { TN_QUEUE_REDELIVER = 0, TN_QUEUE_DROP = 1, TN_QUEUE_LEASE = 2 };

enum { TN_PRODUCER = 1, TN_CONSUMER = 2 };

/** Zero in a field means its default. */
typedef struct tn_queue_options {
    size_t struct_size;
    uint32_t capacity; /* messages that the queue holds, exactly; default 256, at most 2^20 */
    uint32_t inline_bytes; /* bytes that travel in the slot itself; default 128, at most 4096 */
    uint32_t policy;       /* TN_QUEUE_* */
    uint32_t reserved;
} tn_queue_options;

/**
 * A message: bytes and tensors, each possibly empty. This struct does not grow: messages come
 * in arrays.
 *
 * To push, fill bytes, size_bytes, tensors, tensor_count; zero the rest.
 * A popped message owns what it points to until tn_message_fini().
 */
typedef struct tn_message {
    const void *bytes; /* [size_bytes] */
    size_t size_bytes;
    tn_tensor **tensors; /* [tensor_count]; a popped entry may be taken by setting it to NULL */
    uint32_t tensor_count;
    uint32_t attempt; /* popped: how often it was delivered before, to consumers that died or
                         gave it back */
    uint32_t producer_seat; /* popped: who pushed it */
    uint32_t reserved;
    uint64_t lease;    /* popped from a TN_QUEUE_LEASE queue: for ack; else 0 */
    void *internal[4]; /* the library's own */
} tn_message;

enum { TN_MESSAGE_MAX_TENSORS = 1000000 };

enum {
    TN_PUSH_MOVE = 1u << 0 /* on success, the caller's reference of each tensor is consumed */
};

/**
 * Open the queue with this name, or make it if there is none.
 *
 * @param name     1 to 47 of [A-Za-z0-9._-], not starting with a dot, unique in the domain; or
 *                 NULL: a new queue, reached by fork or through tn_object_id()
 * @param options  borrowed; NULL: the defaults for a queue that is made, and any for one that
 *                 exists. A queue that exists and differs from a field that is not zero is
 *                 refused, and the detail names both values
 * @param flags    TN_OPEN_*
 * @param ret_queue  owned by the caller, ended with tn_object_close(); untouched on failure
 * @return 0, or
 *         TN_ERR_INVALID    a name, an option or a flag is out of range; the queue is not as
 *                           the options say; the name is of another kind of object
 *         TN_ERR_NOT_FOUND  TN_OPEN_EXISTING, and there is none
 *         TN_ERR_EXISTS     TN_OPEN_NEW, and there is an object of this name
 *         TN_ERR_FULL       all objects of the domain are in use
 *         TN_ERR_TIMED_OUT  a member is stopped in the middle of making, opening or ending an
 *                           object, and was waited for (5 s; 0.1 s once it has been waited for
 *                           so long)
 *         TN_ERR_NO_MEMORY, TN_ERR_FORKED, TN_ERR_CORRUPT
 *
 * Threads: any.   Blocks: bounded.   Fork: yes.
 * Crash: the queue either exists whole or not at all.
 *
 * The queue ends, and gives its messages back, when the last process that has it open closed
 * it or died.
 */
TN_API TN_NODISCARD int tn_queue_open(tn_domain *domain, const char *name,
                                      const tn_queue_options *options, uint32_t flags,
                                      tn_queue **ret_queue);

/**
 * Let the messages of this handle follow a stream: each push records its tensors on this device
 * on the stream, as tn_tensor_record() does, and each pop lets the stream wait for them, as
 * tn_tensor_wait() does. Tensors on other devices, and on the CPU, go as they are.
 *
 * A push fails as tn_tensor_record() does, before anything is pushed. A pop fails with
 * TN_ERR_INVALID, before anything is popped, if the stream cannot wait; if the stream fails
 * later, the pop waits until the tensors are ready. An incomplete tensor is popped, and its
 * tn_tensor_info.is_incomplete says so.
 *
 * @param device  whose stream it is; of the type 0: messages follow no stream any more
 * @param stream  a CUstream, borrowed until the next call or until the handle is closed; NULL
 * is the legacy default stream
 * @return 0; TN_ERR_INVALID: the queue is NULL or an object of another kind;
 *         TN_ERR_NOT_FOUND: there is no such device; TN_ERR_UNSUPPORTED: it is the CPU, or
 * there is no driver; TN_ERR_FORKED
 *
 * Threads: none that uses the handle meanwhile.   Blocks: while the driver starts.
 * Fork: a child's messages follow no stream.   Crash: nothing is left.
 */
TN_API TN_NODISCARD int tn_queue_set_stream(tn_queue *queue, tn_device device, void *stream);

/**
 * Make this process a producer or a consumer of the queue now, before its first push or pop.
 * @param roles  TN_PRODUCER, TN_CONSUMER, or both
 * @return 0, or
 *         TN_ERR_INVALID  the queue is NULL or an object of another kind, or `roles` is out of
 *                         range
 *         TN_ERR_CLOSED, TN_ERR_FORKED  this process has left the domain, or has no seat in it
 *         TN_ERR_STALE    damage to shared memory has ended the queue
 *
 * Threads: any.   Blocks: never.   Fork: yes; a child has no roles at first.
 */
TN_API TN_NODISCARD int tn_queue_attach(tn_queue *queue, uint32_t roles);

/**
 * End the queue for all processes. From now on each push fails with TN_ERR_CLOSED. Pops take
 * the messages that are left, and then fail with TN_ERR_CLOSED. While another process is in the
 * middle of a push or a pop, or has leased a message, pops wait for the messages that may come
 * back. A call on a queue that was ended changes nothing.
 *
 * @return 0, or
 *         TN_ERR_INVALID  the queue is NULL or an object of another kind
 *         TN_ERR_CLOSED, TN_ERR_FORKED  this process has left the domain, or has no seat in it
 *         TN_ERR_STALE    damage to shared memory has ended the queue
 *
 * Threads: any.   Blocks: never.   Fork: yes.
 * Crash: the queue is ended or not; the reaper wakes up the waiters.
 */
TN_API TN_NODISCARD int tn_queue_end(tn_queue *queue);

/**
 * Append a message, waiting until there is room.
 *
 * @param message      borrowed, tensors too; with TN_PUSH_MOVE the tensors are consumed on
 *         success
 * @param flags        TN_PUSH_*
 * @return 0, or
 *         TN_ERR_TIMED_OUT  no room until the deadline
 *         TN_ERR_CLOSED     the queue was ended
 *         TN_ERR_PEER_DIED  no room, a consumer died, and no other consumer is left
 *         TN_ERR_INTERRUPTED  tn_interrupt_set()
 *         TN_ERR_INVALID    a tensor is not shared in this domain, or the message has too many
 *                           tensors
 *         TN_ERR_NO_MEMORY  no memory for the message until the deadline; at once for one that
 *                           is larger than the quota of the domain
 *         TN_ERR_FORKED, TN_ERR_CORRUPT
 *
 * Whatever the deadline, the push of a file_descriptor tensor that tenond has not got the
 * descriptor of (see tn_tensor_create()) waits for a tenond that is stopped or silent, a
 * second or two for each.
 *
 * Threads: any.   Blocks: until the deadline, or as above.   Fork: yes.
 * Crash: the message is in the queue whole, or not at all.
 */
TN_API TN_NODISCARD int tn_queue_push(tn_queue *queue, const tn_message *message,
                                      uint32_t flags, tn_deadline deadline);

/**
 * Take the oldest message, waiting until one arrives.
 *
 * @param ret_message  owned by the caller, ended with tn_message_fini(); untouched on failure
 * @return 0, or
 *         TN_ERR_TIMED_OUT  nothing arrived until the deadline
 *         TN_ERR_CLOSED     the queue was ended, nothing is left, and nothing can come back
 *         TN_ERR_PEER_DIED  nothing is left, nothing can come back, a producer died, and no
 *                           other producer is left
 *         TN_ERR_INTERRUPTED  tn_interrupt_set()
 *         TN_ERR_CORRUPT, TN_ERR_NOT_FOUND, TN_ERR_VERSION  a tensor of the message cannot be
 *                           had any more: its file was removed, replaced or truncated; the
 *                           message is dropped
 *         TN_ERR_DENIED     this process may not open a tensor's file or look into its maker,
 *                           which alone has the descriptor; the message stays queued for others
 *         TN_ERR_MANAGER (tenond, which may have a tensor's descriptor, does not answer),
 *         TN_ERR_FORKED, TN_ERR_NO_MEMORY (private memory), TN_ERR_FULL, TN_ERR_SYSTEM; the
 *                           message stays queued
 *
 * Whatever the deadline, the pop of a file_descriptor tensor that this process has not mapped
 * asks tenond for the descriptor, and waits a second or two for a tenond that is stopped or
 * silent.
 *
 * Threads: any.   Blocks: until the deadline, or as above.   Fork: yes.
 * Crash: by the queue's policy; the message is either taken or still there, never half.
 */
TN_API TN_NODISCARD int tn_queue_pop(tn_queue *queue, tn_deadline deadline,
                                     tn_message *ret_message);

/**
 * Push a message that is one tensor.
 * @param tensor  borrowed; with TN_PUSH_MOVE it is consumed on success
 * @param flags   TN_PUSH_*
 * @return as tn_queue_push()
 */
TN_API TN_NODISCARD int tn_queue_push_tensor(tn_queue *queue, tn_tensor *tensor, uint32_t flags,
                                             tn_deadline deadline);

/**
 * Pop a message that is one tensor.
 * @param ret_tensor  owned by the caller; untouched on failure
 * @return as tn_queue_pop(), or TN_ERR_INVALID: the message has another form and stays queued,
 *         or the policy of the queue is TN_QUEUE_LEASE
 */
TN_API TN_NODISCARD int tn_queue_pop_tensor(tn_queue *queue, tn_deadline deadline,
                                            tn_tensor **ret_tensor);

/**
 * Push several messages in order. The call waits only for room for the first one.
 * @param messages  [count], borrowed; with TN_PUSH_MOVE the tensors of each pushed message are
 *                  consumed
 * @param flags     TN_PUSH_*
 * @return how many messages were pushed (at least 1, unless count is 0), or the error of the
 *         first one, as tn_queue_push(). With the count 0 the call only checks the queue
 */
TN_API TN_NODISCARD int tn_queue_push_many(tn_queue *queue, const tn_message *messages,
                                           uint32_t count, uint32_t flags,
                                           tn_deadline deadline);

/**
 * Pop several messages. The call waits only for the first one.
 * @param count         how many messages to pop at most
 * @param ret_messages  [count]; each message that was popped is owned by the caller, ended with
 *                      tn_message_fini(); the others are untouched
 * @return how many messages were popped (at least 1, unless count is 0), or the error of the
 *         first one, as tn_queue_pop(). With the count 0 the call only checks the queue
 */
TN_API TN_NODISCARD int tn_queue_pop_many(tn_queue *queue, uint32_t count, tn_deadline deadline,
                                          tn_message *ret_messages);

/**
 * Count the messages in the queue, with those that are in the middle of a push or a pop. The
 * count may be too high while messages are popped out of order; 0 means that there are none.
 * Leased messages are not counted. 0 for NULL.
 */
TN_API uint32_t tn_queue_count(const tn_queue *queue);

/** How a queue was made, and who uses it. */
typedef struct tn_queue_info {
    size_t struct_size;       /* sizeof(tn_queue_info), set by the caller */
    uint32_t capacity;        /* messages that the queue holds at most */
    uint32_t inline_bytes;    /* bytes that travel in the slot itself: the option, rounded up */
    uint32_t policy;          /* TN_QUEUE_* */
    uint32_t count;           /* as of tn_queue_count() */
    uint32_t other_producers; /* other processes that are producers now. One that died counts
                                 until its seat is reclaimed */
    uint32_t other_consumers; /* other processes that are consumers now */
    uint32_t others;          /* other processes that are producers, consumers, or both */
    bool is_ended;            /* tn_queue_end() was called */
} tn_queue_info;

/**
 * Describe the queue.
 *
 * @param ret_info  its struct_size says how much is filled in; untouched on failure
 * @return 0, or
 *         TN_ERR_INVALID  an argument is NULL, struct_size is out of range, or the object is of
 *                         another kind
 *         TN_ERR_CLOSED, TN_ERR_FORKED  this process has left the domain, or has no seat in it
 *         TN_ERR_STALE    damage to shared memory has ended the queue
 *
 * Threads: any.   Blocks: never.   Fork: yes.
 */
TN_API TN_NODISCARD int tn_queue_get_info(const tn_queue *queue, tn_queue_info *ret_info);

/**
 * Acknowledge a leased message, so that it is not delivered again. The lease ends. The message
 * still owns its tensors and bytes until tn_message_fini().
 *
 * @param message  as popped from this queue; its `lease` becomes 0
 * @return 0, or
 *         TN_ERR_STALE    the message is not leased, or this process does not hold the
 *                         lease, or no longer
 *         TN_ERR_INVALID  an argument is NULL, or the object is not a queue
 *         TN_ERR_CLOSED, TN_ERR_FORKED  this process has left the domain, or has no seat in it
 *
 * Threads: any, but only one at a time for a message.   Blocks: never.
 * Fork: yes; a child does not hold the leases of its parent.
 * Crash: the message is acknowledged, or another consumer gets it again.
 */
TN_API TN_NODISCARD int tn_message_ack(tn_queue *queue, tn_message *message);

/**
 * Return a leased message to the queue. A consumer gets it again, with an attempt count that is
 * one higher. The lease ends. The message still owns its tensors and bytes until
 * tn_message_fini().
 *
 * @param message  as popped from this queue; its `lease` becomes 0
 * @return as tn_message_ack()
 *
 * Threads: any, but only one at a time for a message.   Blocks: never.
 * Fork: as tn_message_ack().
 * Crash: a consumer gets the message again.
 */
TN_API TN_NODISCARD int tn_message_return(tn_queue *queue, tn_message *message);

/**
 * Release what a popped message owns, and zero the message. NULL is accepted. An open lease
 * stays open until tn_message_ack(), tn_message_return(), or the death of this process.
 */
TN_API void tn_message_fini(tn_message *message);

TN_END_DECLS

#endif
