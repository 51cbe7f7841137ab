/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backlog: messages that wait in this process until their queue has room for them.
 *
 * put() pushes a message if no message waits, and appends it otherwise. One thread, the feeder
 * (feeder.c), pushes the waiting messages, and ends when none waits. The backlog keeps encoded
 * messages one behind the other in chunks, so the feeder needs the GIL only once for all
 * messages that it finds.
 *
 * B1. put() holds the GIL and appends to the list from `first` to `last`. The feeder, with the
 * GIL, moves this whole list to `in_hand`. Without the GIL, only the feeder uses `in_hand`.
 *
 * B2. The feeder decrements `count` after the push. If put() reads 0, all earlier messages are
 * in the queue, so put() may push: the messages of a thread stay in order.
 *
 * B3. The counters are semaphores. The process acquires a permit of each before it appends a
 * message, and releases it after the push. A process that adds the acquired permits of all
 * processes to the count of the queue may count a message twice for a moment, but misses none.
 * The permits of a dead process come back.
 *
 * B4. A forked child frees the backlog of its parent and does nothing else with it. The fork
 * may have interrupted the feeder anywhere in feed_in_hand(), so the child does not touch
 * records before `read`.
 */
#include "backlog.h"

#include <string.h>

enum { CHUNK_BYTES = 1 << 16, MANY_BYTES = 1 << 12 };

/* ---- counters -------------------------------------------------------------------------------
 */

/* Acquire a permit of each counter (B3). -1: raised */
static int count_up(tnp_backlog *self)
{
    tn_semaphore *counters[TNP_MOST_COUNTERS];
    int n = tnp_open_counters(self, counters);
    for (int i = 0; i < n; i++) {
        int status = tn_semaphore_acquire(counters[i], TN_NOW);
        if (status != 0) {
            tnp_count_down(counters, i);
            tnp_raise(status);
            return -1;
        }
    }
    return n < 0 ? -1 : 0;
}

/* ---- appending --------------------------------------------------------------------------- */

/* The last chunk, or a new one, with room for a record. NULL: raised */
static struct tnp_chunk *chunk_with(tnp_backlog *self, size_t record_bytes)
{
    struct tnp_chunk *last = self->last;
    if (last != NULL && last->room - last->used >= record_bytes)
        return last;
    size_t room = record_bytes > CHUNK_BYTES ? record_bytes : CHUNK_BYTES;
    struct tnp_chunk *made = PyMem_RawMalloc(sizeof *made + room);
    if (made == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    made->next = NULL;
    made->room = room;
    made->used = 0;
    atomic_init(&made->read, 0);
    if (last == NULL)
        self->first = made;
    else
        last->next = made;
    return self->last = made;
}

static void write_record(struct tnp_record *r, const tnp_encoded *encoded)
{
    tn_tensor **tensors = tnp_record_tensors(r);
    for (uint32_t i = 0; i < r->tensor_count; i++) {
        PyObject *tensor = PyList_GET_ITEM(encoded->tensors, i);
        tensors[i] = tn_tensor_ref(((tnp_tensor *)tensor)->tensor);
    }
    if (r->kept != NULL)
        Py_INCREF(r->kept);
    else
        memcpy(tensors + r->tensor_count, encoded->start, encoded->size_bytes);
}

/*
 * Refuse a message that is larger than the quota: no push could succeed, and all later messages
 * would wait behind it. -1: raised
 */
static int check_quota(tnp_backlog *self, const struct tnp_record *r)
{
    if (r->kept == NULL)
        return 0;
    const tn_domain *domain = tnp_domain_of(((tnp_object *)self->queue)->domain);
    if (domain == NULL)
        return -1;
    uint64_t quota = tnp_domain_info(domain).quota_bytes;
    if (r->size_bytes <= quota)
        return 0;
    tnp_raise_text(TN_ERR_NO_MEMORY, "%zu bytes are more than the domain's quota of %llu",
                   r->size_bytes, (unsigned long long)quota);
    return -1;
}

/* -1: raised, and nothing was appended */
static int append(tnp_backlog *self, const tnp_encoded *encoded)
{
    Py_ssize_t n = encoded->tensors == NULL ? 0 : PyList_GET_SIZE(encoded->tensors);
    struct tnp_record r = {
        .size_bytes = encoded->size_bytes,
        .kept = encoded->size_bytes >= MANY_BYTES ? encoded->bytes : NULL,
        .tensor_count = (uint32_t)n,
    };
    size_t size =
        sizeof r + (size_t)n * sizeof(tn_tensor *) + (r.kept != NULL ? 0 : encoded->size_bytes);
    r.record_bytes = (uint32_t)((size + 7) & ~(size_t)7);
    struct tnp_chunk *chunk =
        check_quota(self, &r) < 0 ? NULL : chunk_with(self, r.record_bytes);
    if (chunk == NULL || count_up(self) < 0)
        return -1;
    struct tnp_record *place = tnp_record_at(chunk, chunk->used);
    *place = r;
    write_record(place, encoded);
    chunk->used += r.record_bytes;
    atomic_fetch_add(&self->count, 1);
    self->asked = self->is_fed ? self->asked : place;
    return 0;
}

/* @return whether the caller must start a feeder now; -1: raised */
static int put_encoded(tnp_backlog *self, const tnp_encoded *encoded)
{
    if (tnp_object_handle(self->queue) == NULL)
        return -1;
    if (atomic_load_explicit(&self->count, memory_order_acquire) == 0) {
        int status = tnp_queue_push(self->queue, encoded->start, encoded->size_bytes,
                                    encoded->tensors, TN_NOW);
        if (status == 0)
            return 0;
        /* PEER_DIED is reported once; another consumer may come. */
        if (status != TN_ERR_TIMED_OUT && status != TN_ERR_PEER_DIED) {
            tnp_raise(status);
            return -1;
        }
    }
    if (append(self, encoded) < 0)
        return -1;
    bool is_needed = !self->is_fed;
    self->is_fed = true;
    return is_needed;
}

static PyObject *put(PyObject *object, PyObject *value)
{
    tnp_backlog *self = (tnp_backlog *)object;
    tnp_encoded encoded;
    if (tnp_object_handle(self->queue) == NULL ||
        tnp_encode(((tnp_object *)self->queue)->domain, value, TN_NOW, &encoded) < 0)
        return NULL;
    int is_needed = put_encoded(self, &encoded);
    if (is_needed >= 0)
        tnp_count_sent(&encoded);
    tnp_encoded_fini(&encoded);
    return is_needed < 0 ? NULL : PyBool_FromLong(is_needed);
}

static PyObject *close_backlog(PyObject *object, PyObject *unused)
{
    (void)unused;
    atomic_store(&((tnp_backlog *)object)->is_closing, true);
    Py_RETURN_NONE;
}

/*
 * Remove a message whose put() will raise. Messages that other threads appended meanwhile stay.
 */
static void take_back(tnp_backlog *self, struct tnp_record *r)
{
    tn_semaphore *counters[TNP_MOST_COUNTERS];
    int counter_count = tnp_open_counters(self, counters);
    if (counter_count < 0) /* closed */
        PyErr_Clear();
    PyObject *kept = r->kept;
    uint32_t tensor_count = r->tensor_count;
    r->size_bytes = TNP_TAKEN_BACK;
    r->kept = NULL;
    r->tensor_count = 0;
    atomic_fetch_sub(&self->count, 1);
    tnp_count_down(counters, counter_count);
    for (uint32_t i = 0; i < tensor_count; i++)
        tn_tensor_unref(tnp_record_tensors(r)[i]);
    Py_XDECREF(kept);
}

static PyObject *no_feeder(PyObject *object, PyObject *unused)
{
    tnp_backlog *self = (tnp_backlog *)object;
    struct tnp_record *asked = self->asked;
    (void)unused;
    self->asked = NULL;
    if (self->is_feeding) /* Thread.start() raised, but the feeder runs */
        Py_RETURN_NONE;
    self->is_fed = false;
    if (asked != NULL)
        take_back(self, asked);
    Py_RETURN_NONE;
}

/* ---- the type ---------------------------------------------------------------------------- */

static PyTypeObject backlog_type;

static PyObject *make(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    PyObject *queue, *counters[TNP_MOST_COUNTERS] = {NULL};
    if (keywords != NULL && PyDict_GET_SIZE(keywords) != 0) {
        PyErr_SetString(PyExc_TypeError, "Backlog() takes no keywords");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "O|OO", &queue, &counters[0], &counters[1]) ||
        tnp_queue_checked(queue) == NULL)
        return NULL;
    for (int i = 0; i < TNP_MOST_COUNTERS && counters[i] != NULL; i++)
        if (tnp_semaphore_checked(counters[i]) == NULL)
            return NULL;
    tnp_backlog *self = (tnp_backlog *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    Py_INCREF(queue);
    self->queue = queue;
    for (int i = 0; i < TNP_MOST_COUNTERS; i++) {
        Py_XINCREF(counters[i]);
        self->counters[i] = counters[i];
    }
    return (PyObject *)self;
}

static void drop_chunks(struct tnp_chunk *chunk)
{
    while (chunk != NULL) {
        struct tnp_chunk *next = chunk->next;
        for (size_t at = chunk->read; at < chunk->used;) {
            struct tnp_record *r = tnp_record_at(chunk, at);
            at += r->record_bytes;
            for (uint32_t i = 0; i < r->tensor_count; i++)
                tn_tensor_unref(tnp_record_tensors(r)[i]);
            Py_XDECREF(r->kept);
        }
        PyMem_RawFree(chunk);
        chunk = next;
    }
}

/*
 * A feeder holds a reference to the backlog. So messages that are left here belong to a parent
 * process, or no feeder could be started for them.
 */
static void dealloc(PyObject *object)
{
    tnp_backlog *self = (tnp_backlog *)object;
    drop_chunks(atomic_load(&self->in_hand));
    drop_chunks(self->first);
    Py_XDECREF(self->queue);
    for (int i = 0; i < TNP_MOST_COUNTERS; i++)
        Py_XDECREF(self->counters[i]);
    Py_TYPE(object)->tp_free(object);
}

static PyObject *get_count(PyObject *object, void *unused)
{
    (void)unused;
    return PyLong_FromSize_t(atomic_load(&((tnp_backlog *)object)->count));
}

static PyGetSetDef attributes[] = {
    {"count", get_count, NULL, "Messages that wait here.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef methods[] = {
    {"put", put, METH_O,
     "put($self, value, /)\n--\n\n"
     "Push any object that can be pickled, or let it wait; true: start a thread that calls "
     "feed()."},
    {"feed", tnp_backlog_feed, METH_NOARGS,
     "feed($self, /)\n--\n\n"
     "Bring what waits into the queue; return when nothing does, or another thread is at it."},
    {"no_feeder", no_feeder, METH_NOARGS,
     "no_feeder($self, /)\n--\n\n"
     "No thread could be started: the next put() asks for one. What the last one has put is "
     "taken "
     "back. Nothing happens if a thread is in feed()."},
    {"close", close_backlog, METH_NOARGS,
     "close($self, /)\n--\n\n"
     "Let feed() give up once the consumers died."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject backlog_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "tenon._core.Backlog",
    .tp_doc = "Messages that wait in this process until their queue has room.",
    .tp_basicsize = sizeof(tnp_backlog),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = make,
    .tp_dealloc = dealloc,
    .tp_methods = methods,
    .tp_getset = attributes,
};

int tnp_backlog_init(PyObject *module)
{
    return PyType_Ready(&backlog_type) < 0
               ? -1
               : tnp_add(module, "Backlog", (PyObject *)&backlog_type);
}
