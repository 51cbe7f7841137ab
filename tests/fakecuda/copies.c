/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies, fills and the stand-ins for kernels: R54, R55, and R63: the bytes of a copy between
 * overlapping memory are undefined.
 */
#include <stdlib.h>

#include "fakecuda/exports.h"
#include "fakecuda/state.h"

/* R54: an address that leads nowhere is refused; a range that is too long fails later. */
static bool is_nowhere(CUdeviceptr address)
{
    struct target target;
    return !target_find(address, &target);
}

CUresult stream_for_work(CUstream handle, struct CUstream_st **ret_stream)
{
    struct CUstream_st *stream = stream_of(handle);
    if (!stream)
        return handle ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_CONTEXT;
    if (stream->is_capturing) {
        violation("R53", "work for a captured stream, which does not do it now");
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    *ret_stream = stream;
    return stream->context->fault;
}

static CUresult fill(CUstream handle, CUdeviceptr dst, size_t bytes, unsigned char value)
{
    struct CUstream_st *stream;
    CUresult code = stream_for_work(handle, &stream);
    if (code || bytes == 0)
        return code;
    struct operation *operation = operation_create(OPERATION_FILL);
    operation->dst = dst;
    operation->bytes = bytes;
    operation->value = value;
    stream_submit(stream, operation);
    return CUDA_SUCCESS;
}

CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t bytes, CUstream stream)
{
    CUresult result = call_enter(FN_cuMemsetD8Async, NEEDS_NO_FAULT);
    if (result)
        return result;
    return call_leave(is_nowhere(dst) ? CUDA_ERROR_INVALID_VALUE
                                      : fill(stream, dst, bytes, value));
}

/* R21: nobody looks at the addresses that a kernel is given. */
CUresult fake_kernel_fill(CUstream stream, CUdeviceptr ptr, size_t bytes, unsigned char value)
{
    CUresult result = call_enter_quiet(NEEDS_NO_FAULT);
    return result ? result : call_leave(fill(stream, ptr, bytes, value));
}

static CUresult copy(CUstream handle, CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
    struct CUstream_st *stream;
    CUresult code = stream_for_work(handle, &stream);
    if (code || bytes == 0)
        return code;
    struct operation *operation = operation_create(OPERATION_COPY);
    operation->dst = dst;
    operation->src = src;
    operation->bytes = bytes;
    stream_submit(stream, operation);
    return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
    CUresult result = call_enter(FN_cuMemcpyDtoDAsync_v2, NEEDS_NO_FAULT);
    if (result)
        return result;
    bool is_wrong = is_nowhere(dst) || is_nowhere(src);
    if (dst < src + bytes && src < dst + bytes)
        violation("R63", "a copy of %zu bytes to memory that overlaps them", bytes);
    return call_leave(is_wrong ? CUDA_ERROR_INVALID_VALUE : copy(stream, dst, src, bytes));
}

static CUresult copy_between(CUstream handle, const struct operation *wanted)
{
    struct CUstream_st *stream;
    CUresult code = stream_for_work(handle, &stream);
    if (code || wanted->bytes == 0)
        return code;
    struct operation *operation = operation_create(OPERATION_COPY);
    operation->dst = wanted->dst;
    operation->src = wanted->src;
    operation->dst_context = wanted->dst_context;
    operation->src_context = wanted->src_context;
    operation->bytes = wanted->bytes;
    stream_submit(stream, operation);
    return CUDA_SUCCESS;
}

/* R54: each address is looked up with the context of its own device. */
CUresult cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src,
                           CUcontext src_context, size_t bytes, CUstream stream)
{
    CUresult result = call_enter(FN_cuMemcpyPeerAsync, NEEDS_NO_FAULT);
    if (result)
        return result;
    if (!dst_context || !src_context)
        return call_leave(CUDA_ERROR_INVALID_CONTEXT);
    const struct operation wanted = {.dst = dst,
                                     .src = src,
                                     .dst_context = dst_context,
                                     .src_context = src_context,
                                     .bytes = bytes};
    bool is_wrong = is_nowhere(dst) || is_nowhere(src);
    return call_leave(is_wrong ? CUDA_ERROR_INVALID_VALUE : copy_between(stream, &wanted));
}

CUresult fake_kernel_copy(CUstream stream, CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
    CUresult result = call_enter_quiet(NEEDS_NO_FAULT);
    return result ? result : call_leave(copy(stream, dst, src, bytes));
}

/* The host's memory as it is now. */
static char *stage(const void *host, size_t bytes)
{
    char *staged = malloc(bytes);
    if (!staged)
        abort();
    return memcpy(staged, host, bytes);
}

/* Memory of the host that is not registered is copied before the call returns. */
static CUresult write_to(CUstream handle, CUdeviceptr dst, const void *host, size_t bytes)
{
    struct CUstream_st *stream;
    CUresult code = stream_for_work(handle, &stream);
    if (code || bytes == 0)
        return code;
    if (!host || is_nowhere(dst))
        return CUDA_ERROR_INVALID_VALUE;
    struct operation *operation = operation_create(OPERATION_WRITE);
    operation->dst = dst;
    operation->bytes = bytes;
    if (registered_find(host, bytes))
        operation->host = (void *)(uintptr_t)host;
    else
        operation->staged = stage(host, bytes);
    stream_submit(stream, operation);
    return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *host, size_t bytes, CUstream stream)
{
    CUresult result = call_enter(FN_cuMemcpyHtoDAsync_v2, NEEDS_NO_FAULT);
    return result ? result : call_leave(write_to(stream, dst, host, bytes));
}

static CUresult read_back(CUstream handle, void *host, CUdeviceptr src, size_t bytes)
{
    struct CUstream_st *stream;
    CUresult code = stream_for_work(handle, &stream);
    if (code || bytes == 0)
        return code;
    if (!host || is_nowhere(src))
        return CUDA_ERROR_INVALID_VALUE;
    struct operation *operation = operation_create(OPERATION_READ);
    operation->src = src;
    operation->host = host;
    operation->bytes = bytes;
    bool is_registered = registered_find(host, bytes) != NULL;
    uint64_t ticket = stream_submit(stream, operation);
    return is_registered ? CUDA_SUCCESS : stream_wait(stream, ticket);
}

CUresult cuMemcpyDtoHAsync_v2(void *host, CUdeviceptr src, size_t bytes, CUstream stream)
{
    CUresult result = call_enter(FN_cuMemcpyDtoHAsync_v2, NEEDS_NO_FAULT);
    return result ? result : call_leave(read_back(stream, host, src, bytes));
}
