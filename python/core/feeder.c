/* SPDX-License-Identifier: Apache-2.0 */
/*
 * feeder: what the feeder thread of a backlog does: push the waiting messages (B1 to B4 of
 * backlog.c).
 */
#include "backlog.h"

#include <time.h>

#define CHECK_NS        200000000 /* between two checks whether the feeder may give up */
#define NAP_NS          1000000   /* to wait for room for more than one message */
#define SHORTAGE_NAP_NS 10000000
#define SHORTAGE_NS     10000000000 /* how long a process that shuts down waits for memory */

int tnp_open_counters(tnp_backlog *self, tn_semaphore **ret_counters)
{
    int n = 0;
    for (; n < TNP_MOST_COUNTERS && self->counters[n] != NULL; n++)
        if ((ret_counters[n] = tnp_object_handle(self->counters[n])) == NULL)
            return -1;
    return n;
}

void tnp_count_down(tn_semaphore *const *counters, int count)
{
    while (count-- > 0)
        (void)!tn_semaphore_release(counters[count]);
}

struct feeding {
    tnp_backlog *backlog;
    tn_queue *queue;
    const tnp_domain *domain;
    const tn_domain *open_domain; /* stays valid: closing waits for this thread */
    tn_semaphore *counters[TNP_MOST_COUNTERS];
    int counter_count;
    bool have_consumers_died; /* and no push has succeeded since */
    uint64_t short_ns;        /* since when every push has failed for lack of memory, in a queue
                                 without consumers; 0: it has not */
    struct tnp_record *released; /* a record whose `kept` has to be released with the GIL */
};

static void nap(long ns) { nanosleep(&(struct timespec){.tv_nsec = ns}, NULL); }

/*
 * After a wait for room for one message: the consumer will make more room soon, and a wake-up
 * for each message would cost more than the message. The messages in the queue last longer than
 * this pause.
 */
static void wait_for_more_room(const struct feeding *f)
{
    if (atomic_load(&f->backlog->count) > tnp_queue_info(f->queue).capacity / 8)
        nap(NAP_NS);
}

/*
 * Whether the feeder of a process that shuts down should give a message up. While another
 * process has the queue open, that process may pop messages and so make room. Otherwise the
 * feeder gives up after SHORTAGE_NS, or at once if the message is larger than the quota, which
 * may have been lowered.
 */
static bool is_hopeless(struct feeding *f, const struct tnp_record *r)
{
    if (!atomic_load(&f->backlog->is_closing))
        return false;
    if (r->size_bytes > tnp_domain_info(f->open_domain).quota_bytes)
        return true;
    if (tnp_queue_info(f->queue).other_consumers > 0)
        f->short_ns = 0;
    else if (f->short_ns == 0)
        f->short_ns = tnp_now_ns();
    return f->short_ns != 0 && tnp_now_ns() - f->short_ns > SHORTAGE_NS;
}

/*
 * @return 0: the message is in the queue, or lost with the queue; TN_ERR_TIMED_OUT: try again;
 *     TN_ERR_INTERRUPTED: no push can succeed any more.
 */
static int push_record(struct feeding *f, struct tnp_record *r)
{
    const tn_message message = {.bytes = tnp_record_bytes(r),
                                .size_bytes = r->size_bytes,
                                .tensors = tnp_record_tensors(r),
                                .tensor_count = r->tensor_count};
    if (atomic_load(&f->domain->is_closing) ||
        (f->have_consumers_died && atomic_load(&f->backlog->is_closing)))
        return TN_ERR_INTERRUPTED;
    int status = tn_queue_push(f->queue, &message, 0, TN_NOW);
    if (status == TN_ERR_TIMED_OUT) {
        status = tn_queue_push(f->queue, &message, 0, tn_deadline_after(CHECK_NS));
        if (status == 0)
            wait_for_more_room(f);
    }
    switch (status) {
    case TN_ERR_PEER_DIED: /* a new consumer may make room */
        f->have_consumers_died = true;
        return TN_ERR_TIMED_OUT;
    /*
     * put() has returned, so the message waits for the missing resource as it waits for room.
     */
    case TN_ERR_NO_MEMORY:
    case TN_ERR_FULL: /* blocks, references, descriptors */
    case TN_ERR_SYSTEM:
    case TN_ERR_MANAGER: /* tenond does not take the descriptor of a tensor */
        if (is_hopeless(f, r))
            return 0;
        nap(SHORTAGE_NAP_NS);
        return TN_ERR_TIMED_OUT;
    case TN_ERR_TIMED_OUT:
    case TN_ERR_INTERRUPTED:
        return status;
    default: /* pushed; or the queue or the domain has ended, so that no push can succeed */
        f->have_consumers_died = false;
        f->short_ns = 0;
        return 0;
    }
}

/* Count the record as pushed: `read` first (B4). Without the GIL. */
static void end_record(struct feeding *f, struct tnp_chunk *chunk, struct tnp_record *r)
{
    atomic_fetch_add(&chunk->read, r->record_bytes);
    atomic_fetch_sub(&f->backlog->count, 1);
    tnp_count_down(f->counters, f->counter_count);
    for (uint32_t i = 0; i < r->tensor_count; i++)
        tn_tensor_unref(tnp_record_tensors(r)[i]);
    if (r->kept != NULL)
        f->released = r;
}

/*
 * Push records without the GIL, until none is in hand or one has to be released with the GIL.
 * @return 0, or TN_ERR_INTERRUPTED
 */
static int feed_in_hand(struct feeding *f, bool gives_up)
{
    struct tnp_chunk *chunk;
    while ((chunk = atomic_load(&f->backlog->in_hand)) != NULL && f->released == NULL) {
        if (chunk->read == chunk->used) {
            atomic_store(&f->backlog->in_hand, chunk->next);
            PyMem_RawFree(chunk);
            continue;
        }
        struct tnp_record *r = tnp_record_at(chunk, chunk->read);
        if (r->size_bytes == TNP_TAKEN_BACK) {
            atomic_fetch_add(&chunk->read, r->record_bytes);
            continue;
        }
        int status = gives_up ? 0 : push_record(f, r);
        if (status == 0)
            end_record(f, chunk, r);
        else if (status == TN_ERR_INTERRUPTED)
            return status;
    }
    return 0;
}

/*
 * Move the waiting messages to `in_hand` (B1). @return false: no message waits, and the next
 * put() that appends needs another feeder.
 */
static bool take_in_hand(tnp_backlog *self)
{
    if (atomic_load(&self->in_hand) == NULL) {
        atomic_store(&self->in_hand, self->first);
        self->first = self->last = NULL;
    }
    self->is_fed = atomic_load(&self->in_hand) != NULL;
    return self->is_fed;
}

static void begin_wait(tnp_backlog *self)
{
    tnp_object_begin_wait(self->queue);
    for (int i = 0; i < TNP_MOST_COUNTERS && self->counters[i] != NULL; i++)
        tnp_object_begin_wait(self->counters[i]);
}

static void end_wait(tnp_backlog *self)
{
    tnp_object_end_wait(self->queue);
    for (int i = 0; i < TNP_MOST_COUNTERS && self->counters[i] != NULL; i++)
        tnp_object_end_wait(self->counters[i]);
}

/* @return whether the queue is closed, so that the remaining messages are given up */
static bool feed_once(tnp_backlog *self, struct feeding *f, bool gives_up)
{
    int status;
    if ((f->queue = tnp_object_handle(self->queue)) == NULL ||
        (f->counter_count = tnp_open_counters(self, f->counters)) <
            0) { /* the queue or the domain is closed */
        PyErr_Clear();
        f->counter_count = 0;
        gives_up = true;
    }
    f->domain = (tnp_domain *)((tnp_object *)self->queue)->domain;
    f->open_domain = f->domain->domain;
    f->released = NULL;
    begin_wait(self);
    TNP_WAIT(((tnp_object *)self->queue)->domain, status, feed_in_hand(f, gives_up));
    end_wait(self);
    if (f->released != NULL)
        Py_CLEAR(f->released->kept);
    return gives_up || status == TN_ERR_INTERRUPTED;
}

PyObject *tnp_backlog_feed(PyObject *object, PyObject *unused)
{
    tnp_backlog *self = (tnp_backlog *)object;
    struct feeding f = {.backlog = self};
    bool gives_up = false;
    (void)unused;
    self->asked = NULL; /* the feeder that runs pushes that record too */
    if (self->is_feeding)
        Py_RETURN_NONE;
    self->is_feeding = true;
    while (PyErr_Occurred() == NULL && take_in_hand(self))
        gives_up = feed_once(self, &f, gives_up);
    self->is_feeding = false;
    if (PyErr_Occurred() == NULL)
        Py_RETURN_NONE;
    self->is_fed = false; /* a signal handler raised, in the main thread */
    return NULL;
}
