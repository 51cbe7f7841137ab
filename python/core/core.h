/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tenon._core: the public C API for CPython. It needs neither NumPy nor PyTorch at build time.
 * tenon/_core.pyi is its contract.
 *
 * Every object holds a reference to its domain. Closing a domain leaves memory mapped for as
 * long as a tensor uses it, so objects may end in any order. A call that waits releases the
 * GIL, and returns when a signal handler of Python raises (tn_interrupt_set()). A call that
 * copies or commits TNP_MANY_BYTES or more releases the GIL too.
 *
 * P1  Python code may run wherever a Python object is converted or called, and, before Python
 *     3.12, wherever an object that the garbage collector tracks is created. Another thread may
 *     run wherever the GIL is released. Both may close a handle, move private memory, or end
 *     what a getter of attributes lent. So a function reads these again after such a place, or
 *     protects them by P2.
 *
 * P2  A call without the GIL protects what it uses. It counts itself as a waiter of the domain
 *     (TNP_WAIT()) and of the object (TNP_OBJECT_WAIT()), or as a user of private memory
 *     (tnp_tensor_begin_use()). It holds an export of memory that another library owns.
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

/* A copy or a commit of so many bytes, or more, releases the GIL. */
enum { TNP_MANY_BYTES = 1 << 20 };

/* ---- errors (error.c) -------------------------------------------------------------------- */

/**
 * Add an object to a module. The reference stays with the caller. -1: raised. A NULL object is
 * an error that was raised before.
 */
int tnp_add(PyObject *module, const char *name, PyObject *object);
/**
 * Raise the exception for the status of a failed call, with tn_error_detail() as its text. If a
 * signal handler has raised already, its exception stays. Call it with the GIL, in the thread
 * of the failed call, and before any other call of tenon.
 * @return NULL
 */
PyObject *tnp_raise(int status);
/** The same, with the text "what: detail". */
PyObject *tnp_raise_for(int status, const char *what);
/**
 * Raise the exception for a status, with a text that PyUnicode_FromFormat() makes. @return NULL
 */
PyObject *tnp_raise_text(int status, const char *format, ...);

/* ---- events (log.c) ---------------------------------------------------------------------- */

int tnp_log_init(PyObject *module);
/** Give the events that wait to logging.getLogger("tenon"). Runs code of Python. */
void tnp_log_deliver(void);

/* ---- arguments (argument.c) -------------------------------------------------------------- */

static inline uint64_t tnp_now_ns(void) { return tn_deadline_after(0).ns; }

static inline tn_tensor_info tnp_info(const tn_tensor *tensor)
{
    tn_tensor_info info = {.struct_size = sizeof info};
    (void)!tn_tensor_get_info(tensor, &info);
    return info;
}

/**
 * The deadline for a timeout in seconds. None means TN_FOREVER; NULL means `missing`. -1:
 * raised.
 */
int tnp_deadline(PyObject *timeout, tn_deadline missing, tn_deadline *ret_deadline);
/**
 * Read the arguments of a METH_FASTCALL | METH_KEYWORDS function that takes `before` arguments
 * and an optional `timeout`, and compute the deadline. Without a timeout it is TN_FOREVER. -1:
 * raised.
 */
int tnp_timeout(PyObject *const *args, Py_ssize_t nargs, PyObject *names, Py_ssize_t before,
                tn_deadline *ret_deadline);
/** Read a shape from an int or a sequence of ints. -1: raised (TypeError, ValueError). */
int tnp_shape(PyObject *shape, int64_t ret_shape[TN_MAX_NDIM], int32_t *ret_ndim);
PyObject *tnp_tuple(const int64_t *numbers, int32_t count);
/**
 * Read a dtype: one of NumPy or PyTorch, a name, or a Python type. -1: raised (TypeError, which
 * names it).
 */
int tnp_dtype(PyObject *dtype, tn_dtype *ret_dtype);
/** Read an int that is not negative, or an object like one. -1: raised. */
int tnp_word(PyObject *number, uint64_t *ret_word);
/** The same of 32 bits. Invalid says "refusal number". */
int tnp_small_word(PyObject *number, const char *refusal, uint32_t *ret_word);
/**
 * Read a device from a text, as tn_device_find() does. -1: raised (TypeError, or as of
 * tn_device_find()).
 */
int tnp_device(PyObject *device, tn_device *ret_device);
/** "cpu", "cuda:0" */
PyObject *tnp_device_name(tn_device device);

/* ---- formats (format.c) ------------------------------------------------------------------ */

/**
 * The letters that struct and the buffer protocol have for a dtype, without a byte order: "f"
 * for "<f4". NULL: they have none (bfloat16, float8, several lanes).
 */
const char *tnp_dtype_letters(tn_dtype dtype);
/** The dtype for a format of the buffer protocol. -1: raised (TypeError, with the reason). */
int tnp_parse_format(const char *format, Py_ssize_t item_bytes, tn_dtype *ret_dtype);

/* ---- the domain (domain.c) --------------------------------------------------------------- */

/*
 * How many threads of this process wait without the GIL. The GIL protects the count. A forked
 * child has none of its parent's threads, so a count that the child inherited does not count.
 */
typedef struct {
    unsigned count;
    unsigned forks; /* tnp_forks when `count` was written */
} tnp_waiters;
extern unsigned tnp_forks; /* forks between the process that imported tenon and this one */
static inline unsigned tnp_waiter_count(const tnp_waiters *waiters)
{
    return waiters->forks == tnp_forks ? waiters->count : 0;
}
static inline void tnp_begin_wait(tnp_waiters *waiters)
{
    *waiters = (tnp_waiters){tnp_waiter_count(waiters) + 1, tnp_forks};
}
/*
 * A signal handler may fork inside a wait. The child then returns from a wait that its own
 * count does not include, so the count stays at 0.
 */
static inline void tnp_end_wait(tnp_waiters *waiters)
{
    unsigned count = tnp_waiter_count(waiters);
    *waiters = (tnp_waiters){count > 0 ? count - 1 : 0, tnp_forks};
}

typedef struct {
    PyObject_HEAD tn_domain *domain; /* NULL: closed */
    PyObject *weak;
    tnp_waiters waiters; /* threads in TNP_WAIT() */
    _Atomic bool is_closing;
    unsigned long exiting; /* the thread that closed the domain at exit; a call of any other
                              thread ends that thread. 0: not at exit */
    tn_domain *leaving;    /* set if the domain was closed inside a wait: the last waiter closes
                              it. Else NULL */
} tnp_domain;
extern PyTypeObject tnp_domain_type;
/** The handle of a tnp_domain, borrowed. NULL: raised (TypeError, Closed). */
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
/**
 * The domain of this process, a new reference. It is made or joined if there is none. NULL:
 * raised.
 */
PyObject *tnp_domain_default(void);
/** Set the function that makes or joins the domain of this process. */
void tnp_domain_set_default(PyObject *function);
/** Leave the domain, after every other thread has left its calls on it. */
void tnp_domain_leave(tnp_domain *domain);

/**
 * torch_memory.c: tn_domain_close(), while PyTorch's allocator is in no call on the domain.
 */
void tnp_torch_memory_close(tn_domain *domain);
/** Throws an exception of C++ with a text: c10::detail::torchCheckFail() of PyTorch. */
typedef void (*tnp_torch_fail)(const char *function, const char *file, uint32_t line,
                               const char *text);
/**
 * torch_memory.c: let PyTorch's allocator take memory of this domain, which is open. If there
 * is none, it calls `function`, unless that is NULL.
 */
void tnp_torch_memory_use(tn_domain *domain, tnp_torch_fail function);

/* ---- waiting without the GIL (wait.c, domain.c) ----------------------------------------- */

/** Run a call without the GIL, one that needs no other event to end. `status` is its result. */
#define TNP_UNLOCKED(status, call)                                                             \
    do {                                                                                       \
        PyThreadState *tnp_state = PyEval_SaveThread();                                        \
        (status) = (call);                                                                     \
        PyEval_RestoreThread(tnp_state);                                                       \
    } while (0)

/** Sleep for 1 ms without the GIL. */
void tnp_pause(void);
/* A wait of this thread. A signal handler may start another wait inside of it. */
struct tnp_wait {
    tnp_domain *domain;
    struct tnp_wait *outer;
    /* Whether an object that the wait is for was closed (object.h); NULL: it is for none. */
    bool (*was_closed)(const struct tnp_wait *wait);
    PyObject *const *objects; /* [object_count], of the domain */
    Py_ssize_t object_count;
};
extern _Thread_local struct tnp_wait *tnp_wait_now;
/**
 * The lock that this thread will hold when its wait for a condition ends; NULL: it waits for
 * none. If the thread is ended at exit, it releases the lock first, because other waiters need
 * the lock to leave their waits.
 */
extern _Thread_local tn_lock *tnp_held_in_wait;
/** Finish a wait that ended with `status`, in a domain that was closed meanwhile. */
void tnp_end_wait_of_closed(tnp_domain *domain, int status);
/**
 * Run a call that waits, without the GIL. Closing the domain in another thread ends the call.
 */
#define TNP_WAIT(domain_object, status, call)                                                  \
    TNP_WAIT_AS(((struct tnp_wait){.domain = (tnp_domain *)(domain_object)}), status, call)
#define TNP_WAIT_AS(wait, status, call)                                                        \
    do {                                                                                       \
        struct tnp_wait tnp_here = wait;                                                       \
        tnp_here.outer = tnp_wait_now;                                                         \
        tnp_wait_now = &tnp_here;                                                              \
        tnp_begin_wait(&tnp_here.domain->waiters);                                             \
        TNP_UNLOCKED(status, call);                                                            \
        tnp_end_wait(&tnp_here.domain->waiters);                                               \
        tnp_wait_now = tnp_here.outer;                                                         \
        if (tnp_here.domain->domain == NULL)                                                   \
            tnp_end_wait_of_closed(tnp_here.domain, status);                                   \
    } while (0)

/* ---- what each file adds to the module; -1: raised --------------------------------------- */

int tnp_error_init(PyObject *module);
int tnp_wait_init(PyObject *module);
int tnp_domain_init(PyObject *module);
int tnp_tensor_init(PyObject *module);
int tnp_device_init(PyObject *module);
int tnp_torch_memory_init(PyObject *module);
int tnp_queue_init(PyObject *module);
int tnp_popped_init(PyObject *module);
int tnp_store_init(PyObject *module);
int tnp_channel_init(PyObject *module);
int tnp_backlog_init(PyObject *module);
int tnp_codec_init(PyObject *module);
int tnp_sync_init(PyObject *module);
int tnp_guard_init(PyObject *module);
int tnp_any_lock_init(PyObject *module);
int tnp_synchronized_init(PyObject *module);
int tnp_condition_init(PyObject *module);
int tnp_process_init(PyObject *module);
int tnp_inspect_init(PyObject *module);
int tnp_sched_init(PyObject *module);
int tnp_numpy_memory_init(PyObject *module);

#endif
