/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order: tokens, by which work of one process's streams is ordered after work of another's.
 *
 * Nouns: timeline (a word that only rises, of one process: layout.h), token (a number that the
 * word of a timeline reaches), signal (what writes that number, in the order of a stream).
 * A token of 0 stands for what is ready.
 */
#ifndef TNI_ORDER_H
#define TNI_ORDER_H

#include "device/device.h"
#include "process/process.h"

struct tni_line;
/* The part of a struct tn_domain that this room uses. */
struct tni_order_part {
    struct tni_mutex lock; /* of all that follows; never taken in a forked child: order.c, I4 */
    bool is_open;          /* the words are registered with the driver */
    bool has_left;
    int32_t home;           /* the device in whose context they were registered */
    _Atomic int32_t pid;    /* of the process that did that; 0: none has */
    uint64_t *addresses;    /* of the words, by device; 0: not asked for yet */
    struct tni_line *lines; /* [TNI_LINES], the timelines of this process */
    uint32_t line_count;
};
TNI_PART(order, TNI_PART_ORDER)

enum {
    TNI_LINES = 64, /* the most timelines of a process; more streams share them */
    TNI_ORDER_DEVICES = 64,
    TNI_ORDER_AFTER = 3
};

enum tni_order_state {
    TNI_ORDER_DONE,
    TNI_ORDER_PENDING,
    TNI_ORDER_LOST /* the owner died before, and the word was released from the processor */
};

/** What a token stands for. pre: tni_order_check() accepted the token */
enum tni_order_state tni_order_state(const struct tni_segment *segment, uint64_t token);
/** Whether a token that came from another process names a number that was issued.
 * TN_ERR_CORRUPT. */
int tni_order_check(const struct tni_segment *segment, uint64_t token);
/** Whether this process has to signal this token, and has not yet. */
bool tni_order_is_owed(const struct tn_domain *domain, uint64_t token);
/** Fail with TN_ERR_PEER_DIED, and name the process that died before it signalled. */
int tni_order_fail_lost(const struct tni_segment *segment, uint64_t token);

/**
 * Make a token that is ready once the stream has done all that it was given so far, and once
 * the tokens `after` are ready, [TNI_ORDER_AFTER]. If the driver cannot do that, the call waits
 * until all that is done.
 * @param ret_token  0: it is ready already
 * @return 0; TN_ERR_INVALID: the stream is of another device or context, or is being captured;
 *         TN_ERR_DEVICE; TN_ERR_FORKED; TN_ERR_CLOSED
 */
int tni_order_signal(struct tn_domain *domain, tn_device device, void *stream,
                     const uint64_t *after, uint64_t *ret_token);
/**
 * Let a stream do what it is given later only once the token is ready. Does nothing if it is.
 * @return as tni_order_signal(); TN_ERR_PEER_DIED: the token is lost
 */
int tni_order_await(struct tn_domain *domain, tn_device device, void *stream, uint64_t token);
/**
 * Wait until the token is ready, or is lost. pre: the precondition of tni_interrupt_ask(),
 * unless `is_through`: then the program cannot interrupt the wait
 * @return 0 also if it is lost; TN_ERR_TIMED_OUT; TN_ERR_INTERRUPTED
 */
int tni_order_sync(struct tn_domain *domain, uint64_t token, uint64_t deadline_ns,
                   bool is_through);

/**
 * Give back the timelines of a process that leaves.
 * @param is_done  its streams have done all that they were given
 */
void tni_order_leave(struct tn_domain *domain, bool is_done);

/* ---- timelines (timeline.c) -------------------------------------------------------------- */

/** Take a timeline that nobody has. False: all are taken. */
bool tni_timeline_take(const struct tni_segment *segment, uint64_t who, uint32_t *ret_timeline);
/**
 * Give back a timeline: release all who wait for numbers that its owner never wrote, and note
 * these numbers as lost. Idempotent; a process may die in the middle, and another repeat it.
 * pre: no stream writes the word any more
 */
void tni_timeline_settle(const struct tni_segment *segment, uint32_t timeline, uint64_t who,
                         int32_t pid);
/** Let nobody have the timeline again. */
void tni_timeline_retire(const struct tni_segment *segment, uint32_t timeline, uint64_t who);
/** Whether a process has timelines. */
bool tni_timelines_has(const struct tni_segment *segment, uint64_t who);
/** tni_timeline_settle() for all timelines of a process that has ended. */
void tni_timelines_reclaim(const struct tni_segment *segment, uint64_t who, int32_t pid);

#endif
