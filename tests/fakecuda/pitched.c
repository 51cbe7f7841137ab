/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of rows: R63: a pitch is as long as its row at least, and no longer than the device
 * allows. Within a device the driver may refuse a pitch that cuMemAllocPitch() did not give:
 * the fake does so in a universe of strict_pitch.
 */
#include <stdlib.h>

#include "fakecuda/exports.h"
#include "fakecuda/state.h"

enum { STRICT_PITCH = 512 };
#define MAX_PITCH ((uint64_t)INT32_MAX)

/* One end of a copy: the address of its first row, of the host or of a device. */
struct side {
    bool is_host;
    CUdeviceptr start;
    uint64_t pitch;
    uint64_t span;
};

static bool read_side(CUmemorytype type, CUdeviceptr base, const uint64_t sizes[5],
                      struct side *ret_side)
{
    uint64_t x = sizes[0], y = sizes[1], pitch = sizes[2], width = sizes[3], height = sizes[4];
    if ((type != CU_MEMORYTYPE_HOST && type != CU_MEMORYTYPE_DEVICE) || base == 0)
        return false;
    if (pitch < x + width || pitch > MAX_PITCH)
        return false;
    *ret_side = (struct side){.is_host = type == CU_MEMORYTYPE_HOST,
                              .start = base + y * pitch + x,
                              .pitch = pitch,
                              .span = rows_span(width, height, pitch)};
    return true;
}

static bool read_sides(const CUDA_MEMCPY2D *p, struct side *ret_dst, struct side *ret_src)
{
    CUdeviceptr dst_host = (uintptr_t)p->dstHost, src_host = (uintptr_t)p->srcHost;
    return read_side(
               p->dstMemoryType,
               p->dstMemoryType == CU_MEMORYTYPE_HOST ? dst_host : p->dstDevice,
               (uint64_t[]){p->dstXInBytes, p->dstY, p->dstPitch, p->WidthInBytes, p->Height},
               ret_dst) &&
           read_side(
               p->srcMemoryType,
               p->srcMemoryType == CU_MEMORYTYPE_HOST ? src_host : p->srcDevice,
               (uint64_t[]){p->srcXInBytes, p->srcY, p->srcPitch, p->WidthInBytes, p->Height},
               ret_src);
}

static bool is_nowhere(const struct side *side)
{
    struct target target;
    return !side->is_host && !target_find(side->start, &target);
}

/* R61, R63 */
static bool is_refused(const struct side *dst, const struct side *src)
{
    if (dst->is_host && src->is_host) {
        violation("R63", "a copy of rows within the host: the fake has none");
        return true;
    }
    if (dst->is_host || src->is_host)
        return false;
    if (dst->start < src->start + src->span && src->start < dst->start + dst->span)
        violation("R61", "a copy of rows to memory that overlaps them");
    return universe->options.strict_pitch &&
           (dst->pitch % STRICT_PITCH != 0 || src->pitch % STRICT_PITCH != 0);
}

/* The rows of the host as they are now, side by side. */
static void stage(struct operation *o)
{
    const char *from = o->host;
    char *to = o->staged = malloc(o->rows * o->bytes);
    if (!to)
        abort();
    for (uint64_t i = 0; i < o->rows; i++)
        memcpy(to + i * o->bytes, from + i * o->src_pitch, o->bytes);
    o->src_pitch = o->bytes;
    o->host = NULL;
}

/* Memory of the host that is not registered is copied before the call returns. */
static CUresult submit(struct CUstream_st *stream, const CUDA_MEMCPY2D *p,
                       const struct side *dst, const struct side *src)
{
    const struct side *host = dst->is_host ? dst : src;
    bool is_pageable =
        host->is_host && !registered_find((void *)(uintptr_t)host->start, host->span);
    struct operation *o = operation_create(dst->is_host   ? OPERATION_READ
                                           : src->is_host ? OPERATION_WRITE
                                                          : OPERATION_COPY);
    o->dst = dst->is_host ? 0 : dst->start;
    o->src = src->is_host ? 0 : src->start;
    o->host = host->is_host ? (void *)(uintptr_t)host->start : NULL;
    o->bytes = p->WidthInBytes;
    o->rows = p->Height;
    o->dst_pitch = dst->pitch;
    o->src_pitch = src->pitch;
    if (is_pageable && src->is_host)
        stage(o);
    uint64_t ticket = stream_submit(stream, o);
    return is_pageable && dst->is_host ? stream_wait(stream, ticket) : CUDA_SUCCESS;
}

static CUresult copy_rows(const CUDA_MEMCPY2D *p, CUstream handle)
{
    struct side dst, src;
    struct CUstream_st *stream;
    CUresult code = stream_for_work(handle, &stream);
    if (code)
        return code;
    if (!p || !read_sides(p, &dst, &src) || is_nowhere(&dst) || is_nowhere(&src) ||
        is_refused(&dst, &src))
        return CUDA_ERROR_INVALID_VALUE;
    return p->WidthInBytes == 0 || p->Height == 0 ? CUDA_SUCCESS
                                                  : submit(stream, p, &dst, &src);
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *copy, CUstream stream)
{
    CUresult result = call_enter(FN_cuMemcpy2DAsync_v2, NEEDS_NO_FAULT);
    return result ? result : call_leave(copy_rows(copy, stream));
}
