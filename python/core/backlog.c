/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backlog: messages that wait in this process until there is room for them in their queue.
 *
 * put() pushes a message if nothing waits, and else appends it. One thread, the feeder, brings
 * into the queue what waits; it ends when nothing does. Messages are kept as they travel, one
 * behind the other in chunks, so that the feeder needs the GIL once for all that it finds.
 *
 * B1  With the GIL, put() appends to `first`..`last`, and the feeder moves all of that to
 *     `in_hand`. Without the GIL, the feeder alone works on `in_hand`.
 * B2  `count` is decremented after the push. Who finds 0 pushes behind all that waited, so that
 *     what a thread puts stays in order.
 * B3  A debt is a permit that this process acquires before it appends a message, and releases
 *     after the push: who adds the debts of all processes to the count of the queue may count a
 *     message twice for a moment, and misses none. Permits of who dies come back.
 * B4  A forked child does nothing with its parent's but free it. Its feeder may have been
 *     anywhere in feed_in_hand(): what `read` is beyond is not touched again.
 */
#include "message.h"

#include <string.h>
#include <time.h>

enum { CHUNK_BYTES = 1 << 16, MANY_BYTES = 1 << 12, MOST_DEBTS = 2 };
#define TAKEN_BACK      SIZE_MAX
#define LOOK_NS         200000000 /* how often the feeder looks whether it may give up */
#define NAP_NS          1000000   /* for more room than that of one message */
#define SHORTAGE_NAP_NS 10000000
#define SHORTAGE_NS     10000000000 /* how long a process that ends waits in vain for memory */

/* Then tensors [tensor_count], each with a reference; then the bytes, unless they are kept. */
struct record {
    size_t size_bytes; /* TAKEN_BACK: the message is no more */
    PyObject *kept;    /* bytes, when there are many; or NULL */
    uint32_t tensor_count;
    uint32_t record_bytes; /* a multiple of 8 */
};

struct chunk {
    struct chunk *next;
    size_t room, used;
    _Atomic size_t read; /* records before it are in the queue */
    _Alignas(8) char records[];
};

typedef struct {
    PyObject_HEAD PyObject *queue;
    PyObject *debts[MOST_DEBTS]; /* semaphores; then NULL */
    struct chunk *first, *last;
    struct chunk *_Atomic in_hand;
    _Atomic size_t count; /* messages that wait: in `first` and behind it, and in hand */
    bool is_fed;          /* there is a feeder, or will be */
    struct record *asked; /* whose put() asks for the feeder that has not begun yet; or NULL */
    bool is_feeding;      /* it is in feed() */
    _Atomic bool is_closing;
} backlog;

static struct record *record_at(struct chunk *chunk, size_t at)
{
    return (struct record *)(void *)(chunk->records + at);
}
static tn_tensor **tensors_of(struct record *r) { return (tn_tensor **)(void *)(r + 1); }
static const char *bytes_of(struct record *r)
{
    return r->kept != NULL ? PyBytes_AS_STRING(r->kept)
                           : (const char *)(tensors_of(r) + r->tensor_count);
}

/* ---- debts ------------------------------------------------------------------------------- */

/* With the GIL. @return how many there are; -1: raised */
static int open_debts(backlog *self, tn_semaphore **ret_debts)
{
    int n = 0;
    for (; n < MOST_DEBTS && self->debts[n] != NULL; n++)
        if ((ret_debts[n] = tnp_object_of(self->debts[n])) == NULL)
            return -1;
    return n;
}

/* What fails has ended with its domain. */
static void pay(tn_semaphore *const *debts, int count)
{
    while (count-- > 0)
        (void)!tn_semaphore_release(debts[count]);
}

/* -1: raised */
static int owe(backlog *self)
{
    tn_semaphore *debts[MOST_DEBTS];
    int n = open_debts(self, debts);
    for (int i = 0; i < n; i++) {
        int status = tn_semaphore_acquire(debts[i], TN_NOW);
        if (status != 0) {
            pay(debts, i);
            tnp_raise(status);
            return -1;
        }
    }
    return n < 0 ? -1 : 0;
}

/* ---- appending --------------------------------------------------------------------------- */

/* NULL: raised */
static struct chunk *chunk_with(backlog *self, size_t record_bytes)
{
    struct chunk *last = self->last;
    if (last != NULL && last->room - last->used >= record_bytes)
        return last;
    size_t room = record_bytes > CHUNK_BYTES ? record_bytes : CHUNK_BYTES;
    struct chunk *made = PyMem_RawMalloc(sizeof *made + room);
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

static void write_record(struct record *r, const tnp_encoded *encoded)
{
    tn_tensor **tensors = tensors_of(r);
    for (uint32_t i = 0; i < r->tensor_count; i++) {
        PyObject *tensor = PyList_GET_ITEM(encoded->tensors, i);
        tensors[i] = tn_tensor_ref(((tnp_tensor *)tensor)->tensor);
    }
    if (r->kept != NULL)
        Py_INCREF(r->kept);
    else
        memcpy(tensors + r->tensor_count, encoded->start, encoded->size_bytes);
}

/* What no push can bring in would hold up all that is put behind it. -1: raised */
static int check_quota(backlog *self, const struct record *r)
{
    if (r->kept == NULL)
        return 0;
    const tn_domain *domain = tnp_domain_of(((tnp_object *)self->queue)->domain);
    if (domain == NULL)
        return -1;
    uint64_t quota = tn_domain_quota(domain);
    if (r->size_bytes <= quota)
        return 0;
    tnp_raise_saying(TN_ERR_NO_MEMORY, "%zu bytes are more than the domain's quota of %llu",
                     r->size_bytes, (unsigned long long)quota);
    return -1;
}

/* -1: raised, and nothing was appended */
static int append(backlog *self, const tnp_encoded *encoded)
{
    Py_ssize_t n = encoded->tensors == NULL ? 0 : PyList_GET_SIZE(encoded->tensors);
    struct record r = {
        .size_bytes = encoded->size_bytes,
        .kept = encoded->size_bytes >= MANY_BYTES ? encoded->bytes : NULL,
        .tensor_count = (uint32_t)n,
    };
    size_t size =
        sizeof r + (size_t)n * sizeof(tn_tensor *) + (r.kept != NULL ? 0 : encoded->size_bytes);
    r.record_bytes = (uint32_t)((size + 7) & ~(size_t)7);
    struct chunk *chunk = check_quota(self, &r) < 0 ? NULL : chunk_with(self, r.record_bytes);
    if (chunk == NULL || owe(self) < 0)
        return -1;
    struct record *place = record_at(chunk, chunk->used);
    *place = r;
    write_record(place, encoded);
    chunk->used += r.record_bytes;
    atomic_fetch_add(&self->count, 1);
    self->asked = self->is_fed ? self->asked : place;
    return 0;
}

/* Whether a feeder must be started now. -1: raised. */
static int put_encoded(backlog *self, const tnp_encoded *encoded)
{
    if (tnp_object_of(self->queue) == NULL)
        return -1;
    if (atomic_load_explicit(&self->count, memory_order_acquire) == 0) {
        int status = tnp_queue_push(self->queue, encoded->start, encoded->size_bytes,
                                    encoded->tensors, TN_NOW);
        if (status == 0)
            return 0;
        /* A consumer that died tells of it once: another may come. */
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
    backlog *self = (backlog *)object;
    tnp_encoded encoded;
    if (tnp_object_of(self->queue) == NULL ||
        tnp_encode(((tnp_object *)self->queue)->domain, value, TN_NOW, &encoded) < 0)
        return NULL;
    int is_needed = put_encoded(self, &encoded);
    tnp_encoded_fini(&encoded);
    return is_needed < 0 ? NULL : PyBool_FromLong(is_needed);
}

/* ---- feeding ----------------------------------------------------------------------------- */

struct feeding {
    backlog *backlog;
    tn_queue *queue;
    const tnp_domain *domain;
    const tn_domain *open_domain; /* stays, while closing waits for this thread */
    tn_semaphore *debts[MOST_DEBTS];
    int debt_count;
    bool have_consumers_died; /* and nobody has made room since */
    uint64_t short_ns;        /* since when each push lacked what nobody else can make free */
    struct record *released;  /* its `kept` is to be dropped, with the GIL */
};

static void nap(long ns) { nanosleep(&(struct timespec){.tv_nsec = ns}, NULL); }

/*
 * Room for one message was waited for. Whoever makes it will make more: to be woken for each
 * would cost more than the messages. What is in the queue meanwhile lasts for longer than this.
 */
static void wait_for_more_room(const struct feeding *f)
{
    if (atomic_load(&f->backlog->count) > tn_queue_capacity(f->queue) / 8)
        nap(NAP_NS);
}

/*
 * A process that ends waits for its feeder. While another process has the queue, that one may
 * take messages, and so make room. Otherwise the feeder gives a message up, after a while; at
 * once if no room is enough, since the quota is lower by now.
 */
static bool is_in_vain(struct feeding *f, const struct record *r)
{
    if (!atomic_load(&f->backlog->is_closing))
        return false;
    if (r->size_bytes > tn_domain_quota(f->open_domain))
        return true;
    if (tn_queue_peers(f->queue, TN_CONSUMER) > 0)
        f->short_ns = 0;
    else if (f->short_ns == 0)
        f->short_ns = tnp_now_ns();
    return f->short_ns != 0 && tnp_now_ns() - f->short_ns > SHORTAGE_NS;
}

/* @return 0: it is in the queue, or lost with it. TN_ERR_TIMED_OUT: not yet.
 * TN_ERR_INTERRUPTED: nothing can be pushed any more. */
static int push_record(struct feeding *f, struct record *r)
{
    const tn_message message = {.bytes = bytes_of(r),
                                .size_bytes = r->size_bytes,
                                .tensors = tensors_of(r),
                                .tensor_count = r->tensor_count};
    if (atomic_load(&f->domain->is_closing) ||
        (f->have_consumers_died && atomic_load(&f->backlog->is_closing)))
        return TN_ERR_INTERRUPTED;
    int status = tn_queue_push(f->queue, &message, 0, TN_NOW);
    if (status == TN_ERR_TIMED_OUT) {
        status = tn_queue_push(f->queue, &message, 0, tn_deadline_after(LOOK_NS));
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
        if (is_in_vain(f, r))
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
static void end_record(struct feeding *f, struct chunk *chunk, struct record *r)
{
    atomic_fetch_add(&chunk->read, r->record_bytes);
    atomic_fetch_sub(&f->backlog->count, 1);
    pay(f->debts, f->debt_count);
    for (uint32_t i = 0; i < r->tensor_count; i++)
        tn_tensor_unref(tensors_of(r)[i]);
    if (r->kept != NULL)
        f->released = r;
}

/* Without the GIL, until nothing is in hand, or the GIL is needed. @return 0, or INTERRUPTED */
static int feed_in_hand(struct feeding *f, bool gives_up)
{
    struct chunk *chunk;
    while ((chunk = atomic_load(&f->backlog->in_hand)) != NULL && f->released == NULL) {
        if (chunk->read == chunk->used) {
            atomic_store(&f->backlog->in_hand, chunk->next);
            PyMem_RawFree(chunk);
            continue;
        }
        struct record *r = record_at(chunk, chunk->read);
        if (r->size_bytes == TAKEN_BACK) {
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
static bool take_in_hand(backlog *self)
{
    if (atomic_load(&self->in_hand) == NULL) {
        atomic_store(&self->in_hand, self->first);
        self->first = self->last = NULL;
    }
    self->is_fed = atomic_load(&self->in_hand) != NULL;
    return self->is_fed;
}

static void go_in(backlog *self)
{
    tnp_object_go_in(self->queue);
    for (int i = 0; i < MOST_DEBTS && self->debts[i] != NULL; i++)
        tnp_object_go_in(self->debts[i]);
}

static void come_out(backlog *self)
{
    tnp_object_come_out(self->queue);
    for (int i = 0; i < MOST_DEBTS && self->debts[i] != NULL; i++)
        tnp_object_come_out(self->debts[i]);
}

/* @return whether all that was taken can be given up: there is no queue any more */
static bool feed_once(backlog *self, struct feeding *f, bool gives_up)
{
    int status;
    if ((f->queue = tnp_object_of(self->queue)) == NULL ||
        (f->debt_count = open_debts(self, f->debts)) < 0) { /* closed, or their domain is */
        PyErr_Clear();
        f->debt_count = 0;
        gives_up = true;
    }
    f->domain = (tnp_domain *)((tnp_object *)self->queue)->domain;
    f->open_domain = f->domain->domain;
    f->released = NULL;
    go_in(self);
    TNP_WAIT(((tnp_object *)self->queue)->domain, status, feed_in_hand(f, gives_up));
    come_out(self);
    if (f->released != NULL)
        Py_CLEAR(f->released->kept);
    return gives_up || status == TN_ERR_INTERRUPTED;
}

static PyObject *feed(PyObject *object, PyObject *unused)
{
    backlog *self = (backlog *)object;
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

static PyObject *close_backlog(PyObject *object, PyObject *unused)
{
    (void)unused;
    atomic_store(&((backlog *)object)->is_closing, true);
    Py_RETURN_NONE;
}

/* Its put() raises. What others have put meanwhile stays. */
static void take_back(backlog *self, struct record *r)
{
    tn_semaphore *debts[MOST_DEBTS];
    int debt_count = open_debts(self, debts);
    if (debt_count < 0) /* closed */
        PyErr_Clear();
    PyObject *kept = r->kept;
    uint32_t tensor_count = r->tensor_count;
    r->size_bytes = TAKEN_BACK;
    r->kept = NULL;
    r->tensor_count = 0;
    atomic_fetch_sub(&self->count, 1);
    pay(debts, debt_count);
    for (uint32_t i = 0; i < tensor_count; i++)
        tn_tensor_unref(tensors_of(r)[i]);
    Py_XDECREF(kept);
}

static PyObject *no_feeder(PyObject *object, PyObject *unused)
{
    backlog *self = (backlog *)object;
    struct record *asked = self->asked;
    (void)unused;
    self->asked = NULL;
    if (self->is_feeding) /* Thread.start() raised, and a feeder runs all the same */
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
    PyObject *queue, *debts[MOST_DEBTS] = {NULL};
    if (keywords != NULL && PyDict_GET_SIZE(keywords) != 0) {
        PyErr_SetString(PyExc_TypeError, "Backlog() takes no keywords");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "O|OO", &queue, &debts[0], &debts[1]) ||
        tnp_queue_checked(queue) == NULL)
        return NULL;
    for (int i = 0; i < MOST_DEBTS && debts[i] != NULL; i++)
        if (tnp_semaphore_checked(debts[i]) == NULL)
            return NULL;
    backlog *self = (backlog *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    Py_INCREF(queue);
    self->queue = queue;
    for (int i = 0; i < MOST_DEBTS; i++) {
        Py_XINCREF(debts[i]);
        self->debts[i] = debts[i];
    }
    return (PyObject *)self;
}

static void drop_chunks(struct chunk *chunk)
{
    while (chunk != NULL) {
        struct chunk *next = chunk->next;
        for (size_t at = chunk->read; at < chunk->used;) {
            struct record *r = record_at(chunk, at);
            at += r->record_bytes;
            for (uint32_t i = 0; i < r->tensor_count; i++)
                tn_tensor_unref(tensors_of(r)[i]);
            Py_XDECREF(r->kept);
        }
        PyMem_RawFree(chunk);
        chunk = next;
    }
}

/* A feeder has a reference: what still waits here is what no feeder could be started for, or a
 * parent's. */
static void dealloc(PyObject *object)
{
    backlog *self = (backlog *)object;
    drop_chunks(atomic_load(&self->in_hand));
    drop_chunks(self->first);
    Py_XDECREF(self->queue);
    for (int i = 0; i < MOST_DEBTS; i++)
        Py_XDECREF(self->debts[i]);
    Py_TYPE(object)->tp_free(object);
}

static PyObject *get_count(PyObject *object, void *unused)
{
    (void)unused;
    return PyLong_FromSize_t(atomic_load(&((backlog *)object)->count));
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
    {"feed", feed, METH_NOARGS,
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
    .tp_basicsize = sizeof(backlog),
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
