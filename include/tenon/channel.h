/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TENON_CHANNEL_H
#define TENON_CHANNEL_H

#include <tenon/queue.h>

TN_BEGIN_DECLS

/**
 * A channel: each message that a process publishes goes to every subscriber. There is one copy
 * of the message; each subscriber gets references to its tensors.
 *
 * Any process of the domain may publish, and messages have one order, which is the same for all
 * subscribers. A channel has room for `capacity` messages. It releases a message when the last
 * subscriber has received it, but keeps the last `history` messages, for subscribers to come.
 *
 * A subscriber that does not receive is as many messages behind as the channel has room for,
 * sooner or later. The policy of the channel says what happens then. A subscriber that dies is
 * not waited for.
 *
 * A subscription belongs to one handle of one process: tn_channel_subscribe(). Threads that
 * share the handle share the subscription, so each message goes to one of them. A process
 * becomes a publisher with its first message. When a publisher dies and no other one is left,
 * receives end with TN_ERR_PEER_DIED, as tn_queue_pop() does.
 *
 * A tn_channel is this process's private handle; a forked child may use its parent's to
 * publish, and subscribes itself. A channel ends, and releases its messages, when the last
 * process that has it open closed it or died.
 *
 * Threads: any number at once may use one tn_channel.
 */
typedef tn_object tn_channel;

/**
 * What happens when a subscriber is `capacity` messages behind, and another one is published.
 *
 * WAIT: the publisher waits. DROP: the subscriber loses its oldest message, and receives the
 * next one. DISCONNECT: the subscription ends: its next receive fails with TN_ERR_STALE.
 */
enum { TN_CHANNEL_WAIT = 0, TN_CHANNEL_DROP = 1, TN_CHANNEL_DISCONNECT = 2 };

/** Zero in a field means its default. */
typedef struct tn_channel_options {
    size_t struct_size;
    uint32_t capacity;    /* messages that it has room for; default 64, at most 2^16 */
    uint32_t history;     /* messages that it keeps for subscribers to come; default 0 */
    uint32_t subscribers; /* that it may have at a time; default 64, at most 1024 */
    uint32_t policy;      /* TN_CHANNEL_* */
} tn_channel_options;

/**
 * Open the channel with this name, or make it if there is none.
 *
 * @param name     as of tn_queue_open()
 * @param options  borrowed; NULL: the defaults for a channel that is made, and any for one that
 *                 exists. A channel that exists and differs from a field that is not zero is
 *                 refused, and the detail names both values
 * @param flags    TN_OPEN_*
 * @param ret_channel  owned by the caller, ended with tn_object_close(); untouched on failure
 * @return 0, or as tn_queue_open()
 *
 * Threads: any.   Blocks: bounded.   Fork: yes.
 * Crash: the channel either exists whole or not at all.
 */
TN_API TN_NODISCARD int tn_channel_open(tn_domain *domain, const char *name,
                                        const tn_channel_options *options, uint32_t flags,
                                        tn_channel **ret_channel);

/**
 * Send a message to all subscribers. Without a subscriber it goes to none, and is released at
 * once unless the channel has a history.
 *
 * @param message   borrowed, tensors too. bytes, size_bytes, tensors and tensor_count are read
 * @param deadline  until when to wait: with TN_CHANNEL_WAIT for the slowest subscriber, and
 *                  with any policy for memory
 * @return 0, or
 *         TN_ERR_TIMED_OUT    TN_CHANNEL_WAIT, and a subscriber is `capacity` messages behind:
 *                             the detail names its process; or another process was in the
 *                             middle of a call until the deadline, and at least 5 s: it may be
 *                             stopped
 *         TN_ERR_CLOSED       the channel was ended
 *         TN_ERR_INTERRUPTED  tn_interrupt_set()
 *         TN_ERR_INVALID, TN_ERR_NO_MEMORY, TN_ERR_FULL, TN_ERR_FORKED, TN_ERR_CORRUPT: as
 *                             tn_queue_push()
 *
 * Threads: any.   Blocks: as above.   Fork: yes.
 * Crash: all subscribers get the message, or none does.
 */
TN_API TN_NODISCARD int tn_channel_publish(tn_channel *channel, const tn_message *message,
                                           tn_deadline deadline);

/** Which message a new subscriber receives first. */
enum {
    TN_FROM_NEWEST = 0, /* the first one that is published after tn_channel_subscribe() */
    TN_FROM_OLDEST = 1  /* the oldest one that the channel still has */
};

/**
 * Make this handle a subscriber. A handle that is one already, or that was disconnected, gives
 * up its subscription and gets a new one.
 *
 * @param from  TN_FROM_*
 * @return 0, or
 *         TN_ERR_FULL       the channel has all of its subscribers
 *         TN_ERR_TIMED_OUT  another process was in the middle of a call for 5 s
 *         TN_ERR_INVALID, TN_ERR_CLOSED (this process has left the domain), TN_ERR_FORKED,
 *         TN_ERR_STALE (damage to shared memory has ended the channel)
 *
 * Threads: none that receives or subscribes by the handle meanwhile.   Blocks: bounded.
 * Fork: yes.   Crash: the channel does not wait for the subscriber.
 */
TN_API TN_NODISCARD int tn_channel_subscribe(tn_channel *channel, uint32_t from);

/**
 * Give up the subscription of this handle; tn_object_close() does so, too. Without a
 * subscription the call does nothing.
 * @return 0, TN_ERR_INVALID, TN_ERR_CLOSED, TN_ERR_FORKED, TN_ERR_STALE
 *
 * Threads: none that receives or subscribes by the handle meanwhile.   Blocks: never.
 * Fork: yes; a child does not end its parent's subscription.   Crash: the reaper does the rest.
 */
TN_API TN_NODISCARD int tn_channel_unsubscribe(tn_channel *channel);

/**
 * Receive the next message of this handle's subscription. No byte of a tensor is copied.
 *
 * @param ret_message  owned by the caller, ended with tn_message_fini(); untouched on failure
 * @return 0, or
 *         TN_ERR_TIMED_OUT    no message until the deadline
 *         TN_ERR_CLOSED       the channel was ended, and all of its messages were received
 *         TN_ERR_PEER_DIED    all messages were received, a publisher died, and no other
 *                             publisher is left
 *         TN_ERR_STALE        TN_CHANNEL_DISCONNECT: this subscriber was disconnected
 *         TN_ERR_INVALID      an argument is NULL, or this process has not subscribed with this
 *                             handle
 *         TN_ERR_INTERRUPTED  tn_interrupt_set()
 *         TN_ERR_CORRUPT, TN_ERR_NOT_FOUND, TN_ERR_VERSION  a tensor of the message cannot be
 *                             had any more; this subscriber goes on with the next message
 *         TN_ERR_DENIED, TN_ERR_MANAGER, TN_ERR_NO_MEMORY, TN_ERR_FULL, TN_ERR_SYSTEM: as
 *                             tn_queue_pop(); the next call tries the same message again
 *         TN_ERR_FORKED
 *
 * Threads: any.   Blocks: until the deadline.   Fork: yes, once the child has subscribed.
 * Crash: the channel does not wait for the dead subscriber.
 */
TN_API TN_NODISCARD int tn_channel_receive(tn_channel *channel, tn_deadline deadline,
                                           tn_message *ret_message);

/**
 * End the channel for all processes: nothing more is published. Subscribers receive what is
 * left, and then get TN_ERR_CLOSED. A call on a channel that was ended changes nothing.
 * @return 0; TN_ERR_TIMED_OUT: another process was in the middle of a call for 5 s;
 *         TN_ERR_INVALID, TN_ERR_CLOSED (this process has left the domain), TN_ERR_FORKED,
 *         TN_ERR_STALE
 *
 * Threads: any.   Blocks: bounded.   Fork: yes.   Crash: the channel is ended or not.
 */
TN_API TN_NODISCARD int tn_channel_end(tn_channel *channel);

/** How a channel was made, and what it does. */
typedef struct tn_channel_info {
    size_t struct_size; /* sizeof(tn_channel_info), set by the caller */
    uint32_t capacity, history;
    uint32_t most_subscribers; /* tn_channel_options.subscribers */
    uint32_t policy;           /* TN_CHANNEL_* */
    uint32_t subscribers;      /* that it has now */
    uint32_t kept;             /* messages that it has now */
    uint64_t published;        /* messages since the channel was made */
    uint64_t dropped;          /* messages that subscribers have lost */
    uint64_t disconnected;     /* subscribers */
    uint64_t most_behind;      /* messages that the slowest subscriber has not received */
    int32_t slowest_pid;       /* of that subscriber; 0: none is behind */
    bool is_ended;             /* tn_channel_end() */
    bool is_subscribed;        /* this handle, and it was not disconnected */
    uint64_t waiting;          /* messages that this handle can receive now */
    uint64_t lost;             /* messages that this handle's subscription has lost */
} tn_channel_info;

/**
 * Describe the channel.
 * @param ret_info  its struct_size says how much is filled in; untouched on failure
 * @return 0, TN_ERR_INVALID, TN_ERR_CLOSED, TN_ERR_FORKED, TN_ERR_STALE
 *
 * Threads: any.   Blocks: never.   Fork: yes.
 */
TN_API TN_NODISCARD int tn_channel_get_info(const tn_channel *channel,
                                            tn_channel_info *ret_info);

TN_END_DECLS

#endif
