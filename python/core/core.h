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

/* ---- formats (format.c) ------------------------------------------------------------------ */

/**
 * The letters of struct and of the buffer protocol for a dtype, as in "<f4" without the order:
 * "f"; NULL: it has none (bfloat16, float8, several lanes).
 */
const char *tnp_dtype_letters(tn_dtype dtype);
/** The dtype of a format of the buffer protocol. -1: raised (TypeError, which says why not). */
int tnp_parse_format(const char *format, Py_ssize_t item_bytes, tn_dtype *ret_dtype);

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
static inline tn_domain_info tnp_domain_info(const tn_domain *domain)
{
    tn_domain_info info = {.struct_size = sizeof info};
    (void)!tn_domain_get_info(domain, &info);
    return info;
}
/** All 0 once this process has left the domain. */
static inline tn_queue_info tnp_queue_info(const tn_queue *queue)
{
    tn_queue_info info = {.struct_size = sizeof info};
    (void)!tn_queue_get_info(queue, &info);
    return info;
}
/** This process's domain, a new reference, made or joined if need be. NULL: raised. */
PyObject *tnp_domain_default(void);
/** Set the function that gives this process's domain. */
void tnp_domain_set_default(PyObject *function);
/** Leave the domain, once no other thread is in a call on it. */
void tnp_domain_leave(tnp_domain *domain);

/* ---- waiting without the GIL (wait.c, domain.c) ----------------------------------------- */

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

/* ---- what each file adds to the module; -1: raised --------------------------------------- */

int tnp_error_init(PyObject *module);
int tnp_wait_init(PyObject *module);
int tnp_domain_init(PyObject *module);
int tnp_tensor_init(PyObject *module);
int tnp_queue_init(PyObject *module);
int tnp_popped_init(PyObject *module);
int tnp_backlog_init(PyObject *module);
int tnp_codec_init(PyObject *module);
int tnp_sync_init(PyObject *module);
int tnp_guard_init(PyObject *module);
int tnp_any_lock_init(PyObject *module);
int tnp_synchronized_init(PyObject *module);
int tnp_condition_init(PyObject *module);
int tnp_process_init(PyObject *module);
int tnp_inspect_init(PyObject *module);

#endif
