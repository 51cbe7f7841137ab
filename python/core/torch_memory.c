/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_memory: memory of devices for PyTorch's allocator, each piece a tensor of tenon.
 *
 * torch.cuda.memory.CUDAPluggableAllocator calls the three exported functions in any thread,
 * with or without the GIL, and with locks of PyTorch held. So they never take the GIL: a mutex
 * of this file protects the pieces, and is held while the domain that has the memory is closed.
 * Source: PyTorch, "Using custom memory allocators for CUDA", notes/cuda.html.
 */
#include "pieces.h"

#include <pthread.h>
#include <stdio.h>

#define EXPORTED __attribute__((visibility("default")))

/* The signatures that PyTorch documents; a stream is a cudaStream_t, which is a CUstream. */
EXPORTED void *tenon_torch_alloc(ptrdiff_t size_bytes, int device, void *stream);
EXPORTED void tenon_torch_free(void *address, ptrdiff_t size_bytes, int device, void *stream);
EXPORTED void tenon_torch_record_stream(void *address, void *stream);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static tn_domain *domain_now; /* where new pieces are made; NULL: nowhere */
static struct tnp_pieces pieces;
static tnp_torch_fail fail_now; /* NULL: this PyTorch has none */

static int make(ptrdiff_t size_bytes, int device, tn_tensor **ret)
{
    const tn_tensor_options options = {.struct_size = sizeof options,
                                       .device = {TN_DEVICE_CUDA, device}};
    int64_t shape = size_bytes;
    if (domain_now == NULL || size_bytes <= 0)
        return TN_ERR_CLOSED;
    return tn_tensor_create(domain_now, TN_UINT8, 1, &shape, &options, ret);
}

/*
 * PyTorch makes a tensor at address 0 of NULL, and the first kernel on it ends the use of CUDA
 * in the process. So a function of PyTorch throws its exception of C++. No lock is held here.
 */
static void fail(tnp_torch_fail function, ptrdiff_t size_bytes, int device, int status)
{
    char text[512];
    snprintf(text, sizeof text, "CUDA out of memory: tenon has no %td bytes on cuda:%d: %s",
             size_bytes, device,
             status == TN_ERR_CLOSED ? "the domain of the allocator is closed"
                                     : tn_error_detail());
    function("tenon_torch_alloc", __FILE__, __LINE__, text);
}

/* NULL: no bytes were asked for. The stream has nothing to wait for: memory is given out again
   only when the work on it is done. */
void *tenon_torch_alloc(ptrdiff_t size_bytes, int device, void *stream)
{
    (void)stream;
    tn_tensor *tensor;
    void *address = NULL;
    pthread_mutex_lock(&lock);
    int status = make(size_bytes, device, &tensor);
    if (status == 0)
        address = tnp_pieces_add(&pieces, tensor);
    tnp_torch_fail function = fail_now;
    pthread_mutex_unlock(&lock);
    if (address == NULL && size_bytes > 0 && function != NULL)
        fail(function, size_bytes, device, status);
    return address;
}

/*
 * The memory goes to others once the stream has done what it was given, and when no other
 * process has the tensor. If the stream cannot be recorded, tn_tensor_unref() waits.
 */
void tenon_torch_free(void *address, ptrdiff_t size_bytes, int device, void *stream)
{
    (void)size_bytes, (void)device;
    pthread_mutex_lock(&lock);
    tn_tensor *tensor = tnp_pieces_take(&pieces, address);
    if (tensor != NULL) {
        (void)!tn_tensor_record(tensor, stream);
        tn_tensor_unref(tensor);
    }
    pthread_mutex_unlock(&lock);
}

void tenon_torch_record_stream(void *address, void *stream)
{
    pthread_mutex_lock(&lock);
    tn_tensor *tensor = tnp_pieces_find(&pieces, address);
    if (tensor != NULL)
        (void)!tn_tensor_record(tensor, stream);
    pthread_mutex_unlock(&lock);
}

void tnp_torch_memory_use(tn_domain *domain, tnp_torch_fail function)
{
    pthread_mutex_lock(&lock);
    domain_now = domain;
    fail_now = function;
    pthread_mutex_unlock(&lock);
}

void tnp_torch_memory_close(tn_domain *domain)
{
    pthread_mutex_lock(&lock);
    if (domain == domain_now)
        domain_now = NULL;
    tn_domain_close(domain);
    pthread_mutex_unlock(&lock);
}

/* ---- functions of the module ------------------------------------------------------------- */

static PyObject *torch_memory_count(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    pthread_mutex_lock(&lock);
    size_t count = pieces.count;
    pthread_mutex_unlock(&lock);
    return PyLong_FromSize_t(count);
}

static PyMethodDef functions[] = {
    {"torch_memory_count", torch_memory_count, METH_NOARGS,
     "torch_memory_count($module, /)\n--\n\n"
     "How many pieces tenon_torch_alloc() has made that are not free again."},
    {NULL, NULL, 0, NULL},
};

/* Another thread of the parent may have held the lock when it forked. */
static void renew_lock(void) { lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER; }

int tnp_torch_memory_init(PyObject *module)
{
    if (pthread_atfork(NULL, NULL, renew_lock) == 0)
        return PyModule_AddFunctions(module, functions);
    PyErr_NoMemory();
    return -1;
}
