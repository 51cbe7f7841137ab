/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_order: words in memory of the host by which streams of several processes wait for each
 * other.
 *
 * A stream writes a word after all that it was given before; the driver makes that visible
 * first. A stream that waits for a word compares as a counter does that may overflow.
 * Callers: the room order. A death leaves nothing: the driver ends the registration, and the
 * streams.
 */
#include "device/cuda.h"

/*
 * Work in other contexts of a device would not be waited for: cuda.c, I2. Small numbers are
 * streams of the current context.
 */
static int check_context(const struct tni_cuda *cuda, int32_t id, CUstream stream)
{
    enum { SPECIAL = 4 };
    CUcontext context = NULL;
    if ((uintptr_t)stream < SPECIAL || (cuda->missing >> TNI_CUDA_stream_context & 1) != 0)
        return 0;
    int status = tni_cuda_check(cuda, cuda->cuStreamGetCtx(stream, &context), "cuStreamGetCtx");
    if (status != 0 || context == cuda->devices[id].context)
        return status;
    return tni_fail(TN_ERR_INVALID,
                    "the stream is of another device, or of a context of its own, and not of "
                    "the primary context of device %d",
                    id);
}

/* What a graph has would be done as often as the graph is run. */
static int check_capture(const struct tni_cuda *cuda, CUstream stream)
{
    CUstreamCaptureStatus captures = 0;
    if ((cuda->missing >> TNI_CUDA_capture & 1) != 0)
        return 0;
    int status = tni_cuda_check(cuda, cuda->cuStreamIsCapturing(stream, &captures),
                                "cuStreamIsCapturing");
    if (status != 0 || captures == 0)
        return status;
    return tni_fail(TN_ERR_INVALID, "the stream is being captured into a graph: tensors are "
                                    "copied and ordered on a stream that does its work now");
}

int tni_cuda_check_entered(const struct tni_cuda *cuda, int32_t id, CUstream stream)
{
    int status = check_context(cuda, id, stream);
    return status == 0 ? check_capture(cuda, stream) : status;
}

int tni_cuda_check_stream(const struct tni_memory_kind *kind, int32_t id, void *stream)
{
    struct tni_cuda *cuda = kind->driver;
    int status = tni_cuda_enter(kind, id);
    if (status != 0)
        return status;
    status = tni_cuda_check_entered(cuda, id, stream);
    tni_cuda_leave(cuda, id, false);
    return status;
}

/* ---- words ------------------------------------------------------------------------------- */

enum { WORDS_NONE = 1, WORDS_SOME = 2 };

static bool has_words(const struct tni_cuda *cuda, CUdevice device)
{
    const uint32_t needed = UINT32_C(1) << TNI_CUDA_timeline | UINT32_C(1)
                                                                   << TNI_CUDA_registering;
    int can = 0;
    return (cuda->missing & needed) == 0 &&
           cuda->cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS,
                                      device) == 0 &&
           can != 0;
}

int tni_cuda_check_words(const struct tni_memory_kind *kind, int32_t id)
{
    struct tni_cuda *cuda = kind->driver;
    int status = tni_cuda_begin(kind);
    if (status != 0)
        return status;
    struct tni_cuda_device *device = &cuda->devices[id];
    int words = atomic_load(&device->words);
    if (words == 0) {
        words = has_words(cuda, device->number) ? WORDS_SOME : WORDS_NONE;
        atomic_store(&device->words, words);
    }
    return words == WORDS_SOME
               ? 0
               : tni_fail(TN_ERR_UNSUPPORTED,
                          "streams of device %d cannot write and wait for words of memory", id);
}

int tni_cuda_open_words(const struct tni_memory_kind *kind, int32_t id, void *start,
                        uint64_t bytes)
{
    struct tni_cuda *cuda = kind->driver;
    int status = tni_cuda_enter(kind, id);
    if (status != 0)
        return status;
    status = tni_cuda_check(
        cuda,
        cuda->cuMemHostRegister(start, bytes,
                                CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP),
        "cuMemHostRegister");
    tni_cuda_leave(cuda, id, status == 0);
    return status;
}

int tni_cuda_close_words(const struct tni_memory_kind *kind, int32_t id, void *start)
{
    struct tni_cuda *cuda = kind->driver;
    int status = tni_cuda_enter(kind, id);
    if (status != 0)
        return status;
    status = tni_cuda_check(cuda, cuda->cuMemHostUnregister(start), "cuMemHostUnregister");
    tni_cuda_leave(cuda, id, false);
    tni_cuda_release(cuda, id); /* what tni_cuda_open_words() kept */
    return status;
}

int tni_cuda_words_at(const struct tni_memory_kind *kind, int32_t id, void *start,
                      uint64_t *ret_address)
{
    struct tni_cuda *cuda = kind->driver;
    CUdeviceptr address = 0;
    int status = tni_cuda_enter(kind, id);
    if (status != 0)
        return status;
    status = tni_cuda_check(cuda, cuda->cuMemHostGetDevicePointer(&address, start, 0),
                            "cuMemHostGetDevicePointer");
    tni_cuda_leave(cuda, id, false);
    if (status == 0)
        *ret_address = address;
    return status;
}

int tni_cuda_signal(const struct tni_memory_kind *kind, int32_t id,
                    const struct tni_device_word *word)
{
    struct tni_cuda *cuda = kind->driver;
    int status = tni_cuda_enter(kind, id);
    if (status != 0)
        return status;
    status = tni_cuda_check(
        cuda, cuda->cuStreamWriteValue64(word->stream, word->address, word->value, 0),
        "cuStreamWriteValue64");
    tni_cuda_leave(cuda, id, false);
    return status;
}

int tni_cuda_await(const struct tni_memory_kind *kind, int32_t id,
                   const struct tni_device_word *word)
{
    struct tni_cuda *cuda = kind->driver;
    int status = tni_cuda_enter(kind, id);
    if (status != 0)
        return status;
    /* The condition of the flags 0 is "at least". */
    status = tni_cuda_check(
        cuda, cuda->cuStreamWaitValue64(word->stream, word->address, word->value, 0),
        "cuStreamWaitValue64");
    tni_cuda_leave(cuda, id, false);
    return status;
}
