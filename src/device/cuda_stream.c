/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_stream: work that a device does in the order of a stream, and memory of the host. */
#include "device/cuda.h"

/* Twice, through other memory: the driver does not say in which order a copy goes. */
static int copy_overlapping(struct tni_cuda *cuda, const struct tni_device_copy *c)
{
    CUdeviceptr between = 0;
    int status = tni_cuda_need(cuda, TNI_CUDA_memory, "copies of overlapping memory");
    if (status == 0)
        status = tni_cuda_check(cuda, cuda->cuMemAlloc(&between, c->bytes), "cuMemAlloc");
    if (status != 0)
        return status;
    CUresult result = cuda->cuMemcpyDtoDAsync(between, c->from, c->bytes, c->stream);
    if (result == 0)
        result = cuda->cuMemcpyDtoDAsync(c->to, between, c->bytes, c->stream);
    status = tni_cuda_check(cuda, result, "cuMemcpyDtoDAsync");
    CUresult waited = cuda->cuStreamSynchronize(c->stream);
    if (status == 0)
        status = tni_cuda_check(cuda, waited, "cuStreamSynchronize");
    cuda->cuMemFree(between);
    return status;
}

static bool is_overlapping(const struct tni_device_copy *c)
{
    return c->direction == TNI_COPY_ON_DEVICE && c->to < c->from + c->bytes &&
           c->from < c->to + c->bytes;
}

static CUresult copy_bytes(struct tni_cuda *cuda, const struct tni_device_copy *c)
{
    switch (c->direction) {
    case TNI_COPY_TO_DEVICE:
        return cuda->cuMemcpyHtoDAsync(c->to, (const void *)(uintptr_t)c->from, c->bytes,
                                       c->stream);
    case TNI_COPY_FROM_DEVICE:
        return cuda->cuMemcpyDtoHAsync((void *)(uintptr_t)c->to, c->from, c->bytes, c->stream);
    default:
        return cuda->cuMemcpyDtoDAsync(c->to, c->from, c->bytes, c->stream);
    }
}

/*
 * Memory of one device is not mapped for another: the driver has to copy with both contexts.
 * The default stream comes after all that was given to the default stream of the other device.
 */
static int copy_between(const struct tni_memory_kind *kind, int32_t id,
                        const struct tni_device_copy *c)
{
    struct tni_cuda *cuda = kind->driver;
    int status = tni_cuda_need(cuda, TNI_CUDA_peers, "copies between devices");
    if (status != 0 || (status = tni_cuda_enter(kind, c->from_id)) != 0)
        return status;
    if (c->stream == NULL)
        status = tni_cuda_check(cuda, cuda->cuStreamSynchronize(NULL), "cuStreamSynchronize");
    tni_cuda_leave(cuda, c->from_id, status == 0); /* it stays in use, but is not current */
    if (status != 0)
        return status;
    CUcontext to = cuda->devices[id].context, from = cuda->devices[c->from_id].context;
    CUresult result = 0;
    for (uint64_t row = 0; row < c->rows && result == 0; row++)
        result =
            cuda->cuMemcpyPeerAsync(c->to + row * c->to_pitch, to,
                                    c->from + row * c->from_pitch, from, c->bytes, c->stream);
    tni_cuda_release(cuda, c->from_id);
    return tni_cuda_check(cuda, result, "cuMemcpyPeerAsync");
}

static int copy_row(struct tni_cuda *cuda, const struct tni_device_copy *c)
{
    static const char *const names[] = {"cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync",
                                        "cuMemcpyDtoDAsync"};
    return tni_cuda_check(cuda, copy_bytes(cuda, c), names[c->direction]);
}

static CUresult copy_pitched(struct tni_cuda *cuda, const struct tni_device_copy *c)
{
    CUDA_MEMCPY2D p = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                       .srcPitch = c->from_pitch,
                       .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                       .dstPitch = c->to_pitch,
                       .WidthInBytes = c->bytes,
                       .Height = c->rows};
    if (c->direction == TNI_COPY_TO_DEVICE) {
        p.srcMemoryType = CU_MEMORYTYPE_HOST;
        p.srcHost = (const void *)(uintptr_t)c->from;
    } else {
        p.srcDevice = c->from;
    }
    if (c->direction == TNI_COPY_FROM_DEVICE) {
        p.dstMemoryType = CU_MEMORYTYPE_HOST;
        p.dstHost = (void *)(uintptr_t)c->to;
    } else {
        p.dstDevice = c->to;
    }
    return cuda->cuMemcpy2DAsync(&p, c->stream);
}

/*
 * Within a device the driver may refuse pitches that it did not choose itself, and everywhere
 * those beyond a limit of the device. Then each row is a copy.
 */
static int copy_rows(struct tni_cuda *cuda, const struct tni_device_copy *c)
{
    if ((cuda->missing >> TNI_CUDA_pitched & 1) == 0) {
        CUresult result = copy_pitched(cuda, c);
        if (result != CUDA_ERROR_INVALID_VALUE)
            return tni_cuda_check(cuda, result, "cuMemcpy2DAsync");
    }
    struct tni_device_copy row = *c;
    int status = 0;
    for (uint64_t i = 0; i < c->rows && status == 0; i++) {
        status = copy_row(cuda, &row);
        row.to += c->to_pitch;
        row.from += c->from_pitch;
    }
    return status;
}

int tni_cuda_copy(const struct tni_memory_kind *kind, int32_t id,
                  const struct tni_device_copy *copy)
{
    struct tni_cuda *cuda = kind->driver;
    struct tni_device_copy c = *copy;
    int status = tni_cuda_enter(kind, id);
    if (status != 0)
        return status;
    if (c.rows == 0)
        c.rows = 1;
    status = tni_cuda_need(cuda, TNI_CUDA_streams, "copies");
    if (status == 0)
        status = tni_cuda_check_entered(cuda, id, c.stream);
    if (status == 0 && c.bytes != 0)
        status = c.direction == TNI_COPY_BETWEEN_DEVICES ? copy_between(kind, id, &c)
                 : c.rows > 1                            ? copy_rows(cuda, &c)
                 : is_overlapping(&c)                    ? copy_overlapping(cuda, &c)
                                                         : copy_row(cuda, &c);
    tni_cuda_leave(cuda, id, false);
    return status;
}

int tni_cuda_fill(const struct tni_memory_kind *kind, const struct tni_device_memory *part,
                  uint8_t value, void *stream)
{
    struct tni_cuda *cuda = kind->driver;
    int32_t id = part->device.id;
    int status = tni_cuda_enter(kind, id);
    if (status != 0)
        return status;
    status = tni_cuda_need(cuda, TNI_CUDA_streams, "filling memory");
    if (status == 0 && part->bytes != 0)
        status = tni_cuda_check(
            cuda, cuda->cuMemsetD8Async(part->address, value, part->bytes, stream),
            "cuMemsetD8Async");
    tni_cuda_leave(cuda, id, false);
    return status;
}

int tni_cuda_wait(const struct tni_memory_kind *kind, int32_t id, void *stream)
{
    struct tni_cuda *cuda = kind->driver;
    int status = tni_cuda_enter(kind, id);
    if (status != 0)
        return status;
    status = tni_cuda_need(cuda, TNI_CUDA_streams, "waiting for a stream");
    if (status == 0)
        status = tni_cuda_check(cuda, cuda->cuStreamSynchronize(stream), "cuStreamSynchronize");
    tni_cuda_leave(cuda, id, false);
    return status;
}

/* Fill memory of this call alone: nobody else can be writing it. */
static int fill_some(const struct tni_cuda *cuda, CUstream stream)
{
    enum { SOME_BYTES = 256 };
    CUdeviceptr some = 0;
    int status = tni_cuda_check(cuda, cuda->cuMemAlloc(&some, SOME_BYTES), "cuMemAlloc");
    if (status != 0)
        return status;
    status = tni_cuda_check(cuda, cuda->cuMemsetD8Async(some, 0, SOME_BYTES, stream),
                            "cuMemsetD8Async");
    if (status == 0)
        status = tni_cuda_check(cuda, cuda->cuStreamSynchronize(stream), "cuStreamSynchronize");
    cuda->cuMemFree(some);
    return status;
}

int tni_cuda_settle(const struct tni_memory_kind *kind, int32_t id)
{
    struct tni_cuda *cuda = kind->driver;
    CUstream stream = NULL;
    int status = tni_cuda_enter(kind, id);
    if (status != 0)
        return status;
    status = tni_cuda_need(cuda, TNI_CUDA_streams, "streams");
    if (status == 0)
        status = tni_cuda_need(cuda, TNI_CUDA_memory, "memory of a call");
    if (status == 0)
        status = tni_cuda_check(cuda, cuda->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING),
                                "cuStreamCreate");
    if (status == 0) {
        status = fill_some(cuda, stream);
        cuda->cuStreamDestroy(stream);
    }
    tni_cuda_leave(cuda, id, false);
    return status;
}

static int drain_one(const struct tni_memory_kind *kind, int32_t id)
{
    struct tni_cuda *cuda = kind->driver;
    int status = tni_cuda_enter(kind, id);
    if (status != 0)
        return status;
    CUresult result = cuda->cuCtxSynchronize();
    if (!tni_cuda_is_lost(result))
        status = tni_cuda_check(cuda, result, "cuCtxSynchronize");
    tni_cuda_leave(cuda, id, false);
    return status;
}

int tni_cuda_drain(const struct tni_memory_kind *kind)
{
    struct tni_cuda *cuda = kind->driver;
    if (atomic_load(&cuda->pid) != tni_os_pid())
        return 0; /* nor has a forked child of a process that used it */
    int status = tni_cuda_begin(kind);
    if (status == TN_ERR_UNSUPPORTED)
        return 0; /* there is no driver that has any */
    for (int32_t id = 0; status == 0 && id < cuda->device_count; id++) {
        unsigned flags;
        int is_active = 0; /* a device of which this process has no context has no work */
        CUresult result =
            cuda->cuDevicePrimaryCtxGetState(cuda->devices[id].number, &flags, &is_active);
        if (!tni_cuda_is_lost(result))
            status = tni_cuda_check(cuda, result, "cuDevicePrimaryCtxGetState");
        if (status == 0 && is_active != 0)
            status = drain_one(kind, id);
    }
    return status;
}

/* ---- memory of the host ------------------------------------------------------------------ */

/* Registered memory is registered for all devices: the first one's context does it. */
int tni_cuda_pin(const struct tni_memory_kind *kind, void *start, uint64_t bytes)
{
    struct tni_cuda *cuda = kind->driver;
    int status = tni_cuda_enter(kind, 0);
    if (status != 0)
        return status;
    status = tni_cuda_need(cuda, TNI_CUDA_registering, "registering memory of the host");
    if (status == 0) {
        CUresult result = cuda->cuMemHostRegister(
            start, bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
        status = result == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
                     ? tni_fail(TN_ERR_EXISTS, "memory at %p is registered already", start)
                     : tni_cuda_check(cuda, result, "cuMemHostRegister");
    }
    tni_cuda_leave(cuda, 0, status == 0);
    return status;
}

int tni_cuda_unpin(const struct tni_memory_kind *kind, void *start)
{
    struct tni_cuda *cuda = kind->driver;
    int status = tni_cuda_enter(kind, 0);
    if (status != 0)
        return status;
    status = tni_cuda_check(cuda, cuda->cuMemHostUnregister(start), "cuMemHostUnregister");
    tni_cuda_leave(cuda, 0, false);
    if (status == 0)
        tni_cuda_release(cuda, 0);
    return status;
}
