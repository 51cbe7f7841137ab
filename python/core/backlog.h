/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of a backlog, as backlog.c appends them and feeder.c pushes them. */
#ifndef TENON_CORE_BACKLOG_H
#define TENON_CORE_BACKLOG_H

#include "message.h"

enum { TNP_MOST_COUNTERS = 2 };
#define TNP_TAKEN_BACK SIZE_MAX

/*
 * A message. Behind it stand tensors [tensor_count], each with a reference, and then the bytes,
 * unless `kept` has them.
 */
struct tnp_record {
    size_t size_bytes; /* TNP_TAKEN_BACK: the message was removed */
    PyObject *kept;    /* the bytes object of a long message; or NULL */
    uint32_t tensor_count;
    uint32_t record_bytes; /* a multiple of 8 */
};

struct tnp_chunk {
    struct tnp_chunk *next;
    size_t room, used;
    _Atomic size_t read; /* offset; the records before it are in the queue */
    _Alignas(8) char records[];
};

typedef struct {
    PyObject_HEAD PyObject *queue;
    PyObject *counters[TNP_MOST_COUNTERS]; /* semaphores; then NULL */
    struct tnp_chunk *first, *last;
    struct tnp_chunk *_Atomic in_hand;
    _Atomic size_t count; /* messages that wait, in both lists */
    bool is_fed;          /* a feeder runs, or will be started */
    struct tnp_record *
        asked; /* the record whose put() asked for the feeder that has not begun yet; or NULL */
    bool is_feeding; /* a thread is in feed() */
    _Atomic bool is_closing;
} tnp_backlog;

static inline struct tnp_record *tnp_record_at(struct tnp_chunk *chunk, size_t at)
{
    return (struct tnp_record *)(void *)(chunk->records + at);
}
static inline tn_tensor **tnp_record_tensors(struct tnp_record *r)
{
    return (tn_tensor **)(void *)(r + 1);
}
static inline const char *tnp_record_bytes(struct tnp_record *r)
{
    return r->kept != NULL ? PyBytes_AS_STRING(r->kept)
                           : (const char *)(tnp_record_tensors(r) + r->tensor_count);
}

/** The handles of the counters. With the GIL. @return how many there are; -1: raised */
int tnp_open_counters(tnp_backlog *backlog, tn_semaphore **ret_counters);
/**
 * Release one permit of each counter. An error means that the domain was closed, and is
 * ignored.
 */
void tnp_count_down(tn_semaphore *const *counters, int count);
/** feed(), as a method. */
PyObject *tnp_backlog_feed(PyObject *backlog, PyObject *unused);

#endif
