/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tenon._core: the public C API for CPython, and nothing that NumPy or PyTorch would be needed
 * for at build time. tenon/_core.pyi is its contract.
 *
 * Every object keeps its domain alive; a domain that is closed leaves the memory mapped that
 * tensors still look at, so that objects may end in any order. What waits releases the GIL, and
 * ends when a signal's handler raises (tn_interrupt_set()); what copies or commits much memory
 * (TNP_MANY_BYTES) releases it too.
 *
 * P1  Code of Python may run wherever an object of Python is converted, called or, before 3.12,
 *     one that the collector knows is made; and any other thread may run where the GIL is
 *     released. A handle, a pointer to memory that may move, and what a getter of attributes
 *     lent are looked for after that, or are kept:
 * P2  the domain and the object of a call without the GIL by their waiters (TNP_WAIT(),
 *     TNP_OBJECT_WAIT()), private memory by its users (tnp_tensor_go_in()), buffers of others
 *     by their exports.
 */
#ifndef TENON_CORE_H
#define TENON_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <structmember.h>
#include <tenon/dlpack.h>
#include <tenon/tenon.h>

#define TNP_COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* So many bytes, or more, are copied and committed without the GIL. */
enum { TNP_MANY_BYTES = 1 << 20 };

/* ---- errors (error.c) -------------------------------------------------------------------- */

int tnp_error_init(PyObject *module);
/** Add an object to a module; its reference stays the caller's. -1: raised. NULL is -1. */
int tnp_add(PyObject *module, const char *name, PyObject *object);
/**
 * Raise the class of a failed call's status, with tn_error_detail(); or leave the exception
 * that a signal's handler raised. Call it with the GIL, in the thread that failed, before any
 * other call of tenon. @return NULL
 */
PyObject *tnp_raise(int status);
/** The same, with more to say: "what: detail". */
PyObject *tnp_raise_for(int status, const char *what);
/** Raise the class of a status with a text of PyUnicode_FromFormat()'s. @return NULL */
PyObject *tnp_raise_saying(int status, const char *format, ...);

/* ---- arguments (argument.c) -------------------------------------------------------------- */

static inline uint64_t tnp_now_ns(void) { return tn_deadline_after(0).ns; }

static inline tn_tensor_info tnp_info(const tn_tensor *tensor)
{
    tn_tensor_info info = {.struct_size = sizeof info};
    (void)!tn_tensor_get_info(tensor, &info);
    return info;
}

/** A deadline of a timeout in seconds; None: TN_FOREVER; NULL: `missing`. -1: raised. */
int tnp_deadline(PyObject *timeout, tn_deadline missing, tn_deadline *ret_deadline);
/**
 * The deadline of what METH_FASTCALL | METH_KEYWORDS takes: `before` arguments, and `timeout`,
 * which is None if it is not given. -1: raised.
 */
int tnp_timeout(PyObject *const *args, Py_ssize_t nargs, PyObject *names, Py_ssize_t before,
                tn_deadline *ret_deadline);
/** An int, or a sequence of them, as a shape; -1: raised (TypeError, ValueError). */
int tnp_shape(PyObject *shape, int64_t ret_shape[TN_MAX_NDIM], int32_t *ret_ndim);
PyObject *tnp_tuple(const int64_t *numbers, int32_t count);
/** A dtype of NumPy or PyTorch, a name, a Python type. -1: raised (TypeError, which names it).
 */
int tnp_dtype(PyObject *dtype, tn_dtype *ret_dtype);

/* ---- the domain (domain.c) --------------------------------------------------------------- */

/*
 * Threads of this process that wait without the GIL, which guards it. A forked child has none
 * of its parent's threads: what it inherits counts for nothing.
 */
typedef struct {
    unsigned count;
    unsigned forks; /* tnp_forks when it was counted */
} tnp_waiters;
extern unsigned tnp_forks; /* how many forks this process is away from where it began */
static inline unsigned tnp_waiting(const tnp_waiters *waiters)
{
    return waiters->forks == tnp_forks ? waiters->count : 0;
}
static inline void tnp_go_in(tnp_waiters *waiters)
{
    *waiters = (tnp_waiters){tnp_waiting(waiters) + 1, tnp_forks};
}
/* A signal's handler that forks in a wait comes out of a wait that the child never went into.
 */
static inline void tnp_come_out(tnp_waiters *waiters)
{
    unsigned count = tnp_waiting(waiters);
    *waiters = (tnp_waiters){count > 0 ? count - 1 : 0, tnp_forks};
}

typedef struct {
    PyObject_HEAD tn_domain *domain; /* NULL: closed */
    PyObject *weak;
    tnp_waiters waiters; /* threads in TNP_WAIT() */
    _Atomic bool is_closing;
    unsigned long exiting; /* the thread that closed it at exit: calls end the others; or 0 */
    tn_domain *leaving;    /* closed inside a wait: the last that comes out leaves; or NULL */
} tnp_domain;
extern PyTypeObject tnp_domain_type;
/** Borrowed from `domain`, a tnp_domain; NULL: raised (TypeError, Closed). */
tn_domain *tnp_domain_of(PyObject *domain);
/** This process's domain, a new reference, made or joined if need be. NULL: raised. */
PyObject *tnp_domain_default(void);
int tnp_domain_init(PyObject *module);

/* ---- tensors (tensor.c, share.c, attribute.c, element.c, view.c, exchange.c) ---- */

typedef struct {
    PyObject_HEAD tn_tensor *tensor;
    PyObject *domain; /* a tnp_domain; NULL: private, or see `base` */
    PyObject *base; /* the first tensor over a private storage, which learns when it is shared;
                       NULL: this one */
    PyObject *weak;
    tnp_waiters users; /* of the first tensor: threads that copy without the GIL */
} tnp_tensor;
extern PyTypeObject tnp_tensor_type;
#define tnp_is_tensor(object) PyObject_TypeCheck(object, &tnp_tensor_type)
/** Wrap a tensor; its reference is consumed, also on failure. `domain` is borrowed. */
PyObject *tnp_tensor_wrap(tn_tensor *tensor, PyObject *domain);
/** The same of a view of `tensor`'s storage. */
PyObject *tnp_tensor_wrap_view(tn_tensor *view, PyObject *tensor);
/** The domain that it is shared in, borrowed; NULL: none, and nothing is raised. */
PyObject *tnp_tensor_domain(PyObject *tensor);
/**
 * Around what looks at a tensor's memory without the GIL and runs no code of Python: private
 * memory does not move meanwhile. NULL: nobody else knows the memory.
 */
void tnp_tensor_go_in(PyObject *tensor);
void tnp_tensor_come_out(PyObject *tensor);
void tnp_tensor_wait_until_unused(PyObject *tensor);
/** Bytes of a copy; `tensor` is whose memory they are, or NULL. NULL: raised. */
PyObject *tnp_bytes(PyObject *tensor, const void *start, size_t size_bytes);
/**
 * Move its storage into a domain, for all its views: the one way to tn_tensor_share(), since
 * what moves must not be looked at by a thread that gets the GIL meanwhile.
 * @return 0, or a status, for tnp_raise()
 */
int tnp_tensor_share_in(PyObject *tensor, PyObject *domain, tn_deadline deadline);
int tnp_tensor_init(PyObject *module);
/** share.c: private(), and methods of tensors. */
PyObject *tnp_private(PyObject *module, PyObject *args, PyObject *keywords);
PyObject *tnp_tensor_share(PyObject *tensor, PyObject *args, PyObject *keywords);
PyObject *tnp_tensor_to_handle(PyObject *tensor, PyObject *args, PyObject *keywords);
PyObject *tnp_tensor_reduce(PyObject *tensor, PyObject *protocol);
/** A new tensor, as it is wanted. */
typedef struct {
    tn_dtype dtype;
    int32_t ndim;
    int64_t shape[TN_MAX_NDIM];
    tn_deadline deadline;
    uint32_t strategy, flags; /* TN_STRATEGY_*, TN_SHARE_* */
} tnp_wanted;
/** Make it, in a domain that is open. @return 0, or a status, for tnp_raise() */
int tnp_domain_make(PyObject *domain, const tnp_wanted *wanted, tn_tensor **ret_tensor);
/** Domain.empty and .zeros, Domain.find, Domain.load_handle: methods of another type, kept
 * here. */
PyObject *tnp_domain_empty(PyObject *domain, PyObject *args, PyObject *keywords);
PyObject *tnp_domain_zeros(PyObject *domain, PyObject *args, PyObject *keywords);
PyObject *tnp_domain_find(PyObject *domain, PyObject *args);
PyObject *tnp_domain_load_handle(PyObject *domain, PyObject *handle);
/** attribute.c: those of tenon/attribute.h; a name NULL ends them. */
extern PyGetSetDef tnp_tensor_attributes[];
/** element.c: one element, which need not be aligned. */
PyObject *tnp_element_get(tn_dtype dtype, const void *element);
/** -1: raised (TypeError, OverflowError), and the element is as it was. */
int tnp_element_set(tn_dtype dtype, void *element, PyObject *value);
/** view.c */
PyObject *tnp_tensor_subscript(PyObject *tensor, PyObject *index);
int tnp_tensor_assign(PyObject *tensor, PyObject *index, PyObject *value);
PyObject *tnp_tensor_tolist(PyObject *tensor, PyObject *unused);
PyObject *tnp_tensor_item(PyObject *tensor, PyObject *unused);
PyObject *tnp_tensor_copy_from(PyObject *tensor, PyObject *source);
/** -1: raised, as ValueError. */
int tnp_tensor_check_writable(PyObject *tensor);
/** One side of a copy: a tensor, and the object whose memory it looks at; NULL: nobody knows
 * it. */
typedef struct {
    tn_tensor *tensor;
    PyObject *owner;
} tnp_side;
/** Copy all elements; same dtype and shape. -1: raised. */
int tnp_tensor_copy_all(tnp_side target, tnp_side source);
/** The same. @return 0, or a status, for tnp_raise() */
int tnp_tensor_copy_status(tnp_side target, tnp_side source);
/** exchange.c: the buffer protocol, DLPack, __array__. */
extern PyBufferProcs tnp_tensor_buffer;
PyObject *tnp_tensor_to_dlpack(PyObject *tensor, PyObject *args, PyObject *keywords);
PyObject *tnp_tensor_dlpack_device(PyObject *tensor, PyObject *unused);
PyObject *tnp_tensor_array(PyObject *tensor, PyObject *args, PyObject *keywords);
PyObject *tnp_from_dlpack(PyObject *module, PyObject *source);
PyObject *tnp_from_buffer(PyObject *module, PyObject *source);
/** A tensor, a new reference, of what has DLPack or the buffer protocol. NULL: raised. */
PyObject *tnp_tensor_of(PyObject *object);
/**
 * The letters of struct and of the buffer protocol for a dtype, as in "<f4" without the order:
 * "f"; NULL: it has none (bfloat16, float8, several lanes).
 */
const char *tnp_dtype_letters(tn_dtype dtype);
/** The dtype of a format of the buffer protocol. -1: raised (TypeError, which says why not). */
int tnp_parse_format(const char *format, Py_ssize_t item_bytes, tn_dtype *ret_dtype);

/* ---- objects of a domain (object.c; queue.c, sync.c) ------------------------------------- */

/* A kind of object. */
struct tnp_kind {
    const char *noun;
    int number;                                                               /* TN_OBJECT_* */
    int (*open)(tn_domain *domain, const char *name, tn_object **ret_handle); /* that exists */
};

typedef struct {
    PyObject_HEAD const struct tnp_kind *kind;
    tn_object *handle; /* NULL: closed */
    PyObject *domain;
    PyObject *weak;
    tnp_waiters waiters;
    bool is_closed; /* but somebody waits, who closes it when he comes out */
} tnp_object;

/** An object; the handle is consumed, also on failure. `domain` is borrowed. NULL: raised. */
PyObject *tnp_object_wrap(PyTypeObject *type, const struct tnp_kind *kind, tn_object *handle,
                          PyObject *domain);
/** open(domain, name or id) */
PyObject *tnp_object_open(PyTypeObject *type, const struct tnp_kind *kind, PyObject *args);
/** The handle, borrowed; NULL: raised (ValueError: closed). */
tn_object *tnp_object_of(PyObject *object);
/** The same, inline for most. pre: `object` is one */
static inline tn_object *tnp_object_here(PyObject *object)
{
    const tnp_object *self = (const tnp_object *)object;
    bool is_open = self->handle != NULL && !self->is_closed &&
                   ((const tnp_domain *)self->domain)->domain != NULL;
    return is_open ? self->handle : tnp_object_of(object);
}
/** Whether two are in one domain: a call with both then needs that only one stays open. */
bool tnp_object_is_beside(PyObject *object, PyObject *other);
/** Around a wait without the GIL, by a thread that holds a reference of the object. */
void tnp_object_go_in(PyObject *object);
void tnp_object_come_out(PyObject *object);
PyObject *tnp_object_close(PyObject *self, PyObject *unused);
void tnp_object_dealloc(PyObject *object);
PyObject *tnp_object_id(PyObject *self, void *unused);
extern PyMemberDef tnp_object_members[];

/** A call that waits in an object's handle. */
#define TNP_OBJECT_WAIT(self_, status, call)                                                   \
    do {                                                                                       \
        tnp_object_go_in(self_);                                                               \
        TNP_WAIT(((tnp_object *)(self_))->domain, status, call);                               \
        tnp_object_come_out(self_);                                                            \
    } while (0)

/** A kind, and `open` as a method. `open_call` opens by `name` an object that exists. */
#define TNP_KIND(kind, kind_number, open_call)                                                 \
    static int kind##_open(tn_domain *domain, const char *name, tn_object **ret_handle)        \
    {                                                                                          \
        return open_call;                                                                      \
    }                                                                                          \
    static const struct tnp_kind kind##_kind = {#kind, kind_number, kind##_open};              \
    static PyTypeObject kind##_type;                                                           \
    static PyObject *kind##_from(PyObject *type, PyObject *args)                               \
    {                                                                                          \
        return tnp_object_open((PyTypeObject *)type, &kind##_kind, args);                      \
    }

/** Rows of its methods. */
#define TNP_OBJECT_METHODS(kind)                                                               \
    {"open", kind##_from, METH_VARARGS | METH_CLASS,                                           \
     "open($type, domain, which, /)\n--\n\nOpen one by its name or id."},                      \
    {                                                                                          \
        "close", tnp_object_close, METH_NOARGS,                                                \
            "close($self, /)\n--\n\nClose this process's handle."                              \
    }
#define TNP_OBJECT_ID                                                                          \
    {                                                                                          \
        "id", tnp_object_id, NULL, "A number that opens it in any member.", NULL               \
    }

/** Its type, static: `kind`_type. */
#define TNP_OBJECT_TYPE(Name, kind, attributes, doc)                                           \
    static PyTypeObject kind##_type = {                                                        \
        PyVarObject_HEAD_INIT(NULL, 0).tp_name = "tenon._core." Name,                          \
        .tp_doc = doc,                                                                         \
        .tp_basicsize = sizeof(tnp_object),                                                    \
        .tp_flags = Py_TPFLAGS_DEFAULT,                                                        \
        .tp_dealloc = tnp_object_dealloc,                                                      \
        .tp_methods = kind##_methods,                                                          \
        .tp_getset = attributes,                                                               \
        .tp_members = tnp_object_members,                                                      \
        .tp_weaklistoffset = offsetof(tnp_object, weak),                                       \
    }

/* ---- messages (queue.c, backlog.c, codec.c, plain.c) ------------------------------------- */

int tnp_queue_init(PyObject *module);
int tnp_backlog_init(PyObject *module);
int tnp_codec_init(PyObject *module);

/** `object`, if it is one. NULL: raised (TypeError). */
PyObject *tnp_queue_checked(PyObject *object);
PyObject *tnp_semaphore_checked(PyObject *object);

/** A value as it travels. */
typedef struct {
    const char *start; /* [size_bytes], in `bytes` or in `plain` */
    size_t size_bytes;
    PyObject *bytes;   /* NULL: they are in `plain` */
    PyObject *tensors; /* a list of tnp_tensor; NULL: none */
    char plain[256];
} tnp_encoded;
/** -1: raised. The deadline is for memory. */
int tnp_encode(PyObject *domain, PyObject *value, tn_deadline deadline, tnp_encoded *ret);
void tnp_encoded_fini(tnp_encoded *encoded);
/**
 * Push a message; wait for room without the GIL. `tensors`: a list of tnp_tensor; NULL: none.
 * pre: the queue is open. @return 0, or a status, for tnp_raise()
 */
int tnp_queue_push(PyObject *queue, const char *bytes, size_t size_bytes, PyObject *tensors,
                   tn_deadline deadline);
/** The pickle of a small value of built-in types; 0: it is not one, or there is no room. */
size_t tnp_pickle_plain(PyObject *value, char *to, size_t room);
/** The value; NULL: raised. `tensors`: a list; it may be emptied. NULL: none came. */
PyObject *tnp_decode(const char *bytes, Py_ssize_t size_bytes, PyObject *tensors);

/* ---- the rest ---------------------------------------------------------------------------- */

int tnp_sync_init(PyObject *module);
bool tnp_is_semaphore(PyObject *object);
bool tnp_is_lock(PyObject *object);
bool tnp_is_condition(PyObject *object);
/** Of a Lock, however long that takes. -1: raised. */
int tnp_lock_acquire(PyObject *lock);
int tnp_lock_release(PyObject *lock);
/**
 * As tn_condition_wait(), of a Condition and a Lock that this thread holds, which it holds
 * again then. -1: raised, by a handler of a signal, or since one of the two is closed.
 */
int tnp_condition_wait(PyObject *condition, PyObject *lock, tn_deadline deadline,
                       int *ret_status);
/** Wake all. -1: raised. */
int tnp_condition_broadcast(PyObject *condition);
int tnp_guard_init(PyObject *module);
int tnp_synchronized_init(PyObject *module);
int tnp_condition_init(PyObject *module);
int tnp_process_init(PyObject *module);
int tnp_inspect_init(PyObject *module);

/** Run a call without the GIL that nothing but time ends; `status` is what it returned. */
#define TNP_UNLOCKED(status, call)                                                             \
    do {                                                                                       \
        PyThreadState *tnp_state = PyEval_SaveThread();                                        \
        (status) = (call);                                                                     \
        PyEval_RestoreThread(tnp_state);                                                       \
    } while (0)

/** Sleep for a moment without the GIL. */
void tnp_pause(void);
/* A wait of this thread, inside of which a signal's handler may wait again. */
struct tnp_wait {
    tnp_domain *domain;
    struct tnp_wait *outer;
};
extern _Thread_local struct tnp_wait *tnp_wait_now;
/**
 * The lock that this thread holds when its wait for a condition ends. A thread that ends at
 * exit gives the lock back first: other waits for the condition end only with that lock.
 */
extern _Thread_local tn_lock *tnp_waiting_with;
/** What is due after a wait that ended with `status` in a domain that was closed meanwhile. */
void tnp_come_out_of_closed(tnp_domain *domain, int status);
/** The same of a call that waits: closing the domain in another thread ends it. */
#define TNP_WAIT(domain_object, status, call)                                                  \
    do {                                                                                       \
        struct tnp_wait tnp_here = {(tnp_domain *)(domain_object), tnp_wait_now};              \
        tnp_wait_now = &tnp_here;                                                              \
        tnp_go_in(&tnp_here.domain->waiters);                                                  \
        TNP_UNLOCKED(status, call);                                                            \
        tnp_come_out(&tnp_here.domain->waiters);                                               \
        tnp_wait_now = tnp_here.outer;                                                         \
        if (tnp_here.domain->domain == NULL)                                                   \
            tnp_come_out_of_closed(tnp_here.domain, status);                                   \
    } while (0)

#endif
