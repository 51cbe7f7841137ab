/* SPDX-License-Identifier: Apache-2.0 */
/* feeder: the thread that brings what waits in a backlog into the queue (B1 to B4 of
 * backlog.c). */
#include "backlog.h"

#include <time.h>

#define CHECK_NS        200000000 /* how often the feeder looks whether it may give up */
#define NAP_NS          1000000   /* for more room than that of one message */
#define SHORTAGE_NAP_NS 10000000
#define SHORTAGE_NS     10000000000 /* how long a process that ends waits in vain for memory */

/* With the GIL. @return how many there are; -1: raised */
int tnp_open_counters(tnp_backlog *self, tn_semaphore **ret_counters)
{
    int n = 0;
    for (; n < TNP_MOST_COUNTERS && self->counters[n] != NULL; n++)
        if ((ret_counters[n] = tnp_object_handle(self->counters[n])) == NULL)
            return -1;
    return n;
}

/* What fails has ended with its domain. */
void tnp_count_down(tn_semaphore *const *counters, int count)
{
    while (count-- > 0)
        (void)!tn_semaphore_release(counters[count]);
}

struct feeding {
    tnp_backlog *backlog;
    tn_queue *queue;
    const tnp_domain *domain;
    const tn_domain *open_domain; /* stays, while closing waits for this thread */
    tn_semaphore *counters[TNP_MOST_COUNTERS];
    int counter_count;
    bool have_consumers_died; /* and nobody has made room since */
    uint64_t short_ns;        /* since when each push lacked what nobody else can make free */
    struct tnp_record *released; /* its `kept` is to be dropped, with the GIL */
};

static void nap(long ns) { nanosleep(&(struct timespec){.tv_nsec = ns}, NULL); }

/*
 * Room for one message was waited for. Whoever makes it will make more: to be woken for each
 * would cost more than the messages. What is in the queue meanwhile lasts for longer than this.
 */
static void wait_for_more_room(const struct feeding *f)
{
    if (atomic_load(&f->backlog->count) > tnp_queue_info(f->queue).capacity / 8)
        nap(NAP_NS);
}

/*
 * A process that ends waits for its feeder. While another process has the queue, that one may
 * take messages, and so make room. Otherwise the feeder gives a message up, after a while; at
 * once if no room is enough, since the quota is lower by now.
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

/* @return 0: it is in the queue, or lost with it. TN_ERR_TIMED_OUT: not yet.
 * TN_ERR_INTERRUPTED: nothing can be pushed any more. */
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
    case TN_ERR_PEER_DIED: /* until a new one makes room */
        f->have_consumers_died = true;
        return TN_ERR_TIMED_OUT;
    /* put() has returned: the message waits for what is short, as it waits for room. */
    case TN_ERR_NO_MEMORY:
    case TN_ERR_FULL: /* blocks, references, descriptors */
    case TN_ERR_SYSTEM:
    case TN_ERR_MANAGER: /* the push has to give tenond a descriptor */
        if (is_hopeless(f, r))
            return 0;
        nap(SHORTAGE_NAP_NS);
        return TN_ERR_TIMED_OUT;
    case TN_ERR_TIMED_OUT:
    case TN_ERR_INTERRUPTED:
        return status;
    default: /* pushed; or no push can succeed: the queue or the domain has ended */
        f->have_consumers_died = false;
        f->short_ns = 0;
        return 0;
    }
}

/* B4: `read` first. Without the GIL. */
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

/* Without the GIL, until nothing is in hand, or the GIL is needed. @return 0, or INTERRUPTED */
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

/* B1. False: nothing waits, and whoever puts something from now on needs another feeder. */
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

/* @return whether all that was taken can be given up: there is no queue any more */
static bool feed_once(tnp_backlog *self, struct feeding *f, bool gives_up)
{
    int status;
    if ((f->queue = tnp_object_handle(self->queue)) == NULL ||
        (f->counter_count = tnp_open_counters(self, f->counters)) <
            0) { /* closed, or their domain is */
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
    self->asked = NULL; /* the feeder that runs brings it in too */
    if (self->is_feeding)
        Py_RETURN_NONE;
    self->is_feeding = true;
    while (PyErr_Occurred() == NULL && take_in_hand(self))
        gives_up = feed_once(self, &f, gives_up);
    self->is_feeding = false;
    if (PyErr_Occurred() == NULL)
        Py_RETURN_NONE;
    self->is_fed = false; /* a signal's handler raised, in the main thread */
    return NULL;
}
