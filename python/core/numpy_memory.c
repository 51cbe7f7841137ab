/* SPDX-License-Identifier: Apache-2.0 */
/*
 * numpy_memory: allocators for NumPy, whose arrays lie in the arena of a domain. NumPy calls
 * the functions of an allocator with the GIL. An array keeps the allocator that made it, in a
 * capsule, and frees its memory by it, so an allocator ends with its last array.
 *
 * A piece that is small, or for which there is no room, is malloc()'s: NumPy lacks memory only
 * where the machine does. No function releases the GIL, since NumPy changes an array around
 * such a call.
 * Source: NumPy, "Memory management in NumPy" (NEP 49); numbers of its table of functions as
 * numpy/__multiarray_api.h has them, which are the same in NumPy 1 and 2.
 */
#include "pieces.h"

#include <stdlib.h>
#include <string.h>

/* The PyDataMem_Handler of NumPy, version 1. */
struct handler {
    char name[127];
    uint8_t version;
    void *context;
    void *(*allocate)(void *context, size_t size);
    void *(*allocate_zeros)(void *context, size_t count, size_t item_bytes);
    void *(*resize)(void *context, void *address, size_t size);
    void (*release)(void *context, void *address, size_t size);
};

struct allocator {
    struct handler handler;
    PyObject *domain;
    size_t least_bytes, most_bytes; /* of one piece; of all pieces that are in the arena now */
    size_t used_bytes;
    struct tnp_pieces pieces;
};

/* The name that NumPy gives the capsules of handlers. */
static const char capsule_name[] = "mem_handler";

/* ---- what NumPy calls -------------------------------------------------------------------- */

/* NULL: the piece is to be malloc()'s. */
static void *take(struct allocator *a, size_t size, uint32_t flags)
{
    const tn_tensor_options options = {
        .struct_size = sizeof options, .strategy = TN_STRATEGY_ARENA, .flags = flags};
    tn_domain *domain = ((tnp_domain *)a->domain)->domain;
    int64_t shape = (int64_t)size;
    tn_tensor *tensor;
    if (domain == NULL || size < a->least_bytes || size > a->most_bytes - a->used_bytes ||
        tn_tensor_create(domain, TN_UINT8, 1, &shape, &options, &tensor) != 0)
        return NULL;
    void *address = tnp_pieces_add(&a->pieces, tensor);
    if (address != NULL)
        a->used_bytes += size;
    return address;
}

static void *allocate(void *context, size_t size)
{
    void *address = take(context, size, 0);
    return address != NULL ? address : malloc(size);
}

static void *allocate_zeros(void *context, size_t count, size_t item_bytes)
{
    size_t size;
    if (__builtin_mul_overflow(count, item_bytes, &size))
        return NULL;
    void *address = take(context, size, TN_TENSOR_ZEROED);
    return address != NULL ? address : calloc(count, item_bytes);
}

/* false: the piece is malloc()'s. NumPy's own size is not that of every piece, so none is
 * asked. */
static bool give_back(struct allocator *a, void *address)
{
    tn_tensor *tensor = tnp_pieces_take(&a->pieces, address);
    if (tensor == NULL)
        return false;
    a->used_bytes -= (size_t)tnp_info(tensor).size_bytes;
    tn_tensor_unref(tensor);
    return true;
}

static void release(void *context, void *address, size_t size)
{
    (void)size;
    if (!give_back(context, address))
        free(address);
}

static void *resize(void *context, void *address, size_t size)
{
    struct allocator *a = context;
    const tn_tensor *tensor = tnp_pieces_find(&a->pieces, address);
    if (tensor == NULL)
        return realloc(address, size);
    size_t former = (size_t)tnp_info(tensor).size_bytes;
    void *moved = allocate(a, size);
    if (moved == NULL)
        return NULL;
    memcpy(moved, address, size < former ? size : former);
    (void)give_back(a, address);
    return moved;
}

/* ---- functions of the module ------------------------------------------------------------- */

static void end(PyObject *capsule)
{
    struct allocator *a = PyCapsule_GetPointer(capsule, capsule_name);
    Py_DECREF(a->domain);
    free(a);
}

static PyObject *numpy_allocator(PyObject *module, PyObject *args)
{
    PyObject *domain, *least, *most, *capsule;
    uint64_t least_bytes, most_bytes;
    (void)module;
    if (!PyArg_ParseTuple(args, "OOO:numpy_allocator", &domain, &least, &most) ||
        tnp_word(least, &least_bytes) < 0 || tnp_word(most, &most_bytes) < 0 ||
        tnp_domain_of(domain) == NULL)
        return NULL;
    struct allocator *a = calloc(1, sizeof *a);
    if (a == NULL)
        return PyErr_NoMemory();
    a->handler = (struct handler){.name = "tenon",
                                  .version = 1,
                                  .context = a,
                                  .allocate = allocate,
                                  .allocate_zeros = allocate_zeros,
                                  .resize = resize,
                                  .release = release};
    a->domain = domain;
    a->least_bytes = least_bytes;
    a->most_bytes = most_bytes;
    capsule = PyCapsule_New(a, capsule_name, end);
    if (capsule == NULL)
        free(a);
    else
        Py_INCREF(domain);
    return capsule;
}

/* Functions of NumPy, by their numbers in its table. */
enum { GET_FEATURES = 211, SET_HANDLER = 304 };
enum { FEATURES_OF_1_22 = 0xf }; /* the first NumPy with SET_HANDLER */

static void **functions_of_numpy(void)
{
    static const char *const places[] = {"numpy._core._multiarray_umath",
                                         "numpy.core._multiarray_umath"};
    PyObject *module = NULL;
    for (size_t i = 0; module == NULL && i < TNP_COUNT(places); i++) {
        PyErr_Clear();
        module = PyImport_ImportModule(places[i]);
    }
    PyObject *capsule = module == NULL ? NULL : PyObject_GetAttrString(module, "_ARRAY_API");
    void **table = capsule == NULL ? NULL : PyCapsule_GetPointer(capsule, NULL);
    Py_XDECREF(module);
    Py_XDECREF(capsule);
    return table;
}

typedef unsigned (*get_features)(void);
typedef PyObject *(*set_handler)(PyObject *handler);

static PyObject *set_numpy_allocator(PyObject *module, PyObject *allocator)
{
    static void **table; /* NumPy is never unloaded */
    (void)module;
    if (allocator != Py_None && !PyCapsule_IsValid(allocator, capsule_name)) {
        PyErr_Format(PyExc_TypeError, "an allocator of numpy_allocator() is needed, not %.200s",
                     Py_TYPE(allocator)->tp_name);
        return NULL;
    }
    if (table == NULL && (table = functions_of_numpy()) == NULL)
        return NULL;
    if (((get_features)table[GET_FEATURES])() < FEATURES_OF_1_22)
        return tnp_raise_text(TN_ERR_UNSUPPORTED,
                              "NumPy takes no allocator before its version 1.22");
    return ((set_handler)table[SET_HANDLER])(allocator == Py_None ? NULL : allocator);
}

static PyMethodDef functions[] = {
    {"numpy_allocator", numpy_allocator, METH_VARARGS,
     "numpy_allocator($module, domain, least_bytes, most_bytes, /)\n--\n\n"
     "Make an allocator for set_numpy_allocator()."},
    {"set_numpy_allocator", set_numpy_allocator, METH_O,
     "set_numpy_allocator($module, allocator, /)\n--\n\n"
     "Set what makes the memory of arrays in this context; returns what did before."},
    {NULL, NULL, 0, NULL},
};

int tnp_numpy_memory_init(PyObject *module) { return PyModule_AddFunctions(module, functions); }
