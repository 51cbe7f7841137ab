/* SPDX-License-Identifier: Apache-2.0 */
/* Streams: lists of operations, which a thread for each does one after the other. */
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "fakecuda/exports.h"
#include "fakecuda/state.h"

#define STREAM_MAGIC  0x73747265616d3031ULL
#define LEGACY_STREAM ((CUstream)(uintptr_t)1)
#define THREAD_STREAM ((CUstream)(uintptr_t)2)

/* ---- the worker -------------------------------------------------------------------------- */

static bool may_begin(const struct CUstream_st *stream)
{
    const struct operation *first = stream->first;
    if (!first)
        return stream->is_destroyed;
    if (stream->is_cancelled)
        return true;
    for (unsigned i = 0; i < first->need_count; i++)
        if (first->needs[i].stream->done < first->needs[i].ticket)
            return false;
    return !stream->is_held || stream->steps > 0;
}

static void delay(void)
{
    universe_lock();
    bool delays = universe->options.delays;
    long ns = delays ? (long)universe_random(200000) : 0;
    universe_unlock();
    if (delays)
        nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

static void operation_destroy(struct operation *operation)
{
    free(operation->needs);
    free(operation->staged);
    free(operation);
}

/* Do the first operation. local.lock is held, but not while the operation is done. */
static void do_first(struct CUstream_st *stream)
{
    struct operation *first = stream->first;
    stream->begun = first->ticket;
    if (stream->steps > 0)
        stream->steps--;
    pthread_mutex_unlock(&local.lock);
    delay();
    if (!stream->is_cancelled)
        work_do(stream, first);
    work_done(first);
    pthread_mutex_lock(&local.lock);
    stream->first = first->next;
    if (!stream->first)
        stream->end = &stream->first;
    stream->done = first->ticket;
    operation_destroy(first);
    pthread_cond_broadcast(&local.changed);
}

static void *work(void *argument)
{
    struct CUstream_st *stream = argument;
    pthread_mutex_lock(&local.lock);
    for (;;) {
        while (!local.is_ending && !may_begin(stream))
            pthread_cond_wait(&local.changed, &local.lock);
        if (local.is_ending || !stream->first)
            break;
        do_first(stream);
    }
    stream->has_worker = false;
    local.worker_count--;
    pthread_cond_broadcast(&local.changed);
    pthread_mutex_unlock(&local.lock);
    return NULL;
}

static void start_worker(struct CUstream_st *stream)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_t thread;
    if (pthread_create(&thread, &attributes, work, stream) != 0)
        abort();
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    stream->has_worker = true;
    local.worker_count++;
}

/* ---- submitting -------------------------------------------------------------------------- */

struct operation *operation_create(uint32_t kind)
{
    struct operation *made = calloc(1, sizeof *made);
    if (!made)
        abort();
    made->kind = kind;
    made->inflight = -1;
    made->rows = 1;
    return made;
}

/* The default stream and the others wait for each other, but for those that do not block. */
static bool waits_for(const struct CUstream_st *stream, const struct CUstream_st *other)
{
    if (other == stream || other->context != stream->context || other->done == other->submitted)
        return false;
    if ((stream->flags | other->flags) & CU_STREAM_NON_BLOCKING)
        return false;
    return stream->is_default || other->is_default;
}

static void find_needs(const struct CUstream_st *stream, struct operation *operation)
{
    for (struct CUstream_st *other = local.streams; other; other = other->next) {
        if (!waits_for(stream, other))
            continue;
        operation->needs =
            realloc(operation->needs, (operation->need_count + 1) * sizeof *operation->needs);
        if (!operation->needs)
            abort();
        operation->needs[operation->need_count++] =
            (struct need){.stream = other, .ticket = other->submitted};
    }
}

uint64_t stream_submit(struct CUstream_st *stream, struct operation *operation)
{
    clock_submit(&operation->clock);
    work_announce(stream, operation);
    pthread_mutex_lock(&local.lock);
    find_needs(stream, operation);
    uint64_t ticket = operation->ticket = ++stream->submitted;
    *stream->end = operation;
    stream->end = &operation->next;
    if (!stream->has_worker)
        start_worker(stream);
    pthread_cond_broadcast(&local.changed);
    pthread_mutex_unlock(&local.lock);
    return ticket;
}

CUresult stream_wait(struct CUstream_st *stream, uint64_t ticket)
{
    universe_unlock();
    pthread_mutex_lock(&local.lock);
    while (stream->done < ticket && !local.is_ending)
        pthread_cond_wait(&local.changed, &local.lock);
    pthread_mutex_unlock(&local.lock);
    universe_lock();
    clock_join(&me()->clock, &stream->clock);
    return stream->context->fault;
}

bool stream_is_done(struct CUstream_st *stream)
{
    pthread_mutex_lock(&local.lock);
    bool is_done = stream->done == stream->submitted;
    pthread_mutex_unlock(&local.lock);
    return is_done;
}

static bool meets(CUdeviceptr a, uint64_t a_bytes, CUdeviceptr b, uint64_t b_bytes)
{
    return a && a < b + b_bytes && b < a + a_bytes;
}

static bool operation_touches(const struct operation *o, CUdeviceptr address, uint64_t bytes)
{
    uint64_t dst_bytes = rows_span(o->bytes, o->rows, o->dst_pitch);
    uint64_t src_bytes = rows_span(o->bytes, o->rows, o->src_pitch);
    uint64_t host_bytes = o->kind == OPERATION_READ ? dst_bytes : src_bytes;
    return meets(o->dst, dst_bytes, address, bytes) ||
           meets(o->src, src_bytes, address, bytes) ||
           (!o->staged && meets((CUdeviceptr)(uintptr_t)o->host, host_bytes, address, bytes));
}

bool streams_touch(CUdeviceptr address, uint64_t bytes)
{
    bool touches = false;
    pthread_mutex_lock(&local.lock);
    for (struct CUstream_st *stream = local.streams; stream; stream = stream->next)
        for (const struct operation *o = stream->first; o && !touches; o = o->next)
            touches = operation_touches(o, address, bytes);
    pthread_mutex_unlock(&local.lock);
    return touches;
}

/* ---- the streams of this process --------------------------------------------------------- */

static struct CUstream_st *unused_stream(void)
{
    for (struct CUstream_st *stream = local.streams; stream; stream = stream->next)
        if (stream->is_destroyed && !stream->has_worker && !stream->first)
            return stream;
    struct CUstream_st *made = calloc(1, sizeof *made);
    if (!made)
        abort();
    made->magic = STREAM_MAGIC;
    made->agent = agent_create(local.process);
    made->next = local.streams;
    local.streams = made;
    return made;
}

/* A stream that was destroyed is used again: tickets go on, so who waits for it may go on. */
static struct CUstream_st *stream_create(CUcontext context, unsigned flags, bool is_default)
{
    pthread_mutex_lock(&local.lock);
    struct CUstream_st *stream = unused_stream();
    stream->context = context;
    stream->flags = flags;
    stream->is_default = is_default;
    stream->thread = NULL;
    stream->is_destroyed = stream->is_held = false;
    stream->is_capturing = false;
    stream->is_cancelled = false;
    stream->steps = 0;
    stream->first = NULL;
    stream->end = &stream->first;
    pthread_mutex_unlock(&local.lock);
    return stream;
}

static struct CUstream_st *default_stream(CUcontext context)
{
    for (struct CUstream_st *stream = local.streams; stream; stream = stream->next)
        if (stream->is_default && !stream->is_destroyed && stream->context == context)
            return stream;
    return stream_create(context, 0, true);
}

/* The default stream of a thread is a blocking one. */
static struct CUstream_st *thread_stream(CUcontext context)
{
    static _Thread_local char here;
    for (struct CUstream_st *stream = local.streams; stream; stream = stream->next)
        if (stream->thread == &here && !stream->is_destroyed && stream->context == context)
            return stream;
    struct CUstream_st *made = stream_create(context, 0, false);
    made->thread = &here;
    return made;
}

struct CUstream_st *stream_of(CUstream stream)
{
    CUcontext current = context_current();
    if (stream == THREAD_STREAM)
        return current ? thread_stream(current) : NULL;
    if (!stream || stream == LEGACY_STREAM)
        return current ? default_stream(current) : NULL;
    for (struct CUstream_st *one = local.streams; one; one = one->next)
        if (one == stream && !one->is_destroyed)
            return one;
    return NULL;
}

static void stream_destroy(struct CUstream_st *stream, bool cancels)
{
    pthread_mutex_lock(&local.lock);
    stream->is_destroyed = true;
    stream->is_cancelled = cancels;
    stream->is_held = false;
    pthread_cond_broadcast(&local.changed);
    pthread_mutex_unlock(&local.lock);
}

void streams_end_context(CUcontext context)
{
    for (struct CUstream_st *stream = local.streams; stream; stream = stream->next)
        if (stream->context == context && !stream->is_destroyed)
            stream_destroy(stream, true);
}

static void free_streams(void)
{
    while (local.streams) {
        struct CUstream_st *stream = local.streams;
        local.streams = stream->next;
        while (stream->first) {
            struct operation *first = stream->first;
            stream->first = first->next;
            operation_destroy(first);
        }
        free(stream);
    }
}

void streams_end(void)
{
    pthread_mutex_lock(&local.lock);
    local.is_ending = true;
    pthread_cond_broadcast(&local.changed);
    while (local.worker_count > 0)
        pthread_cond_wait(&local.changed, &local.lock);
    free_streams();
    local.is_ending = false;
    pthread_mutex_unlock(&local.lock);
}

/* ---- the driver's functions -------------------------------------------------------------- */

static CUresult create(CUstream *ret_stream, unsigned flags)
{
    if (!ret_stream || flags & ~(unsigned)CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    *ret_stream = stream_create(context_current(), flags, false);
    return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *ret_stream, unsigned flags)
{
    CUresult result = call_enter(FN_cuStreamCreate, NEEDS_CONTEXT);
    return result ? result : call_leave(create(ret_stream, flags));
}

static CUresult destroy(CUstream handle)
{
    struct CUstream_st *stream = handle ? stream_of(handle) : NULL;
    if (!stream || stream->is_default || stream->thread)
        return CUDA_ERROR_INVALID_HANDLE;
    stream_destroy(stream, false);
    return CUDA_SUCCESS;
}

CUresult cuStreamDestroy_v2(CUstream stream)
{
    CUresult result = call_enter(FN_cuStreamDestroy_v2, NEEDS_NO_FAULT);
    return result ? result : call_leave(destroy(stream));
}

/* R61: after a synchronising call, who had died before it has done all it ever does. */
struct moment {
    uint64_t turn;
    struct clock dead;
};

static struct moment moment_now(void)
{
    processes_sweep();
    return (struct moment){.turn = universe->turn, .dead = universe->dead};
}

static void finish_dead(const struct moment *before, int device)
{
    orphans_finish(device, before->turn, &me()->clock);
    clock_join(&me()->clock, &before->dead);
}

static CUresult synchronize(CUstream handle, bool waits)
{
    struct CUstream_st *stream = stream_of(handle);
    if (!stream)
        return handle ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_CONTEXT;
    if (stream->is_capturing)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (stream->context->fault)
        return stream->context->fault;
    struct moment before = moment_now();
    if (!waits && !stream_is_done(stream))
        return CUDA_ERROR_NOT_READY;
    CUresult code = stream_wait(stream, stream->submitted);
    finish_dead(&before, context_device(stream->context));
    return code;
}

CUresult cuStreamSynchronize(CUstream stream)
{
    CUresult result = call_enter(FN_cuStreamSynchronize, NEEDS_NO_FAULT);
    return result ? result : call_leave(synchronize(stream, true));
}

CUresult cuStreamQuery(CUstream stream)
{
    CUresult result = call_enter(FN_cuStreamQuery, NEEDS_NO_FAULT);
    return result ? result : call_leave(synchronize(stream, false));
}

static CUresult synchronize_context(CUcontext context)
{
    struct moment before = moment_now();
    for (struct CUstream_st *stream = local.streams; stream; stream = stream->next)
        if (stream->context == context && !stream->is_destroyed && stream->is_capturing)
            return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    for (struct CUstream_st *stream = local.streams; stream; stream = stream->next)
        if (stream->context == context)
            stream_wait(stream, stream->submitted);
    finish_dead(&before, context_device(context));
    return context->fault;
}

CUresult cuCtxSynchronize(void)
{
    CUresult result = call_enter(FN_cuCtxSynchronize, NEEDS_CONTEXT);
    return result ? result : call_leave(synchronize_context(context_current()));
}

static CUresult is_capturing(CUstream handle, CUstreamCaptureStatus *ret_status)
{
    const struct CUstream_st *stream = stream_of(handle);
    if (!stream)
        return handle ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_CONTEXT;
    if (!ret_status)
        return CUDA_ERROR_INVALID_VALUE;
    *ret_status = stream->is_capturing;
    return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *ret_status)
{
    CUresult result = call_enter(FN_cuStreamIsCapturing, NEEDS_NO_FAULT);
    return result ? result : call_leave(is_capturing(stream, ret_status));
}

static CUresult get_context(CUstream handle, CUcontext *ret_context)
{
    const struct CUstream_st *stream = stream_of(handle);
    if (!stream)
        return handle ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_CONTEXT;
    if (!ret_context)
        return CUDA_ERROR_INVALID_VALUE;
    *ret_context = stream->context;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext *ret_context)
{
    CUresult result = call_enter(FN_cuStreamGetCtx, NEEDS_NO_FAULT);
    return result ? result : call_leave(get_context(stream, ret_context));
}

/* ---- fake.h ------------------------------------------------------------------------------ */

/* @return the stream, with local.lock held; else the test is wrong */
static struct CUstream_st *take(CUstream handle)
{
    if (call_enter_quiet(NEEDS_INIT))
        abort();
    struct CUstream_st *stream = stream_of(handle);
    call_leave(CUDA_SUCCESS);
    if (!stream)
        abort();
    pthread_mutex_lock(&local.lock);
    return stream;
}

static void give(void)
{
    pthread_cond_broadcast(&local.changed);
    pthread_mutex_unlock(&local.lock);
}

void fake_hold(CUstream stream)
{
    take(stream)->is_held = true;
    give();
}

void fake_release(CUstream stream)
{
    struct CUstream_st *held = take(stream);
    held->is_held = false;
    held->steps = 0;
    give();
}

void fake_step(CUstream stream)
{
    struct CUstream_st *held = take(stream);
    uint64_t next = held->begun + 1;
    if (next <= held->submitted) {
        held->steps++;
        pthread_cond_broadcast(&local.changed);
        while (held->done < next)
            pthread_cond_wait(&local.changed, &local.lock);
    }
    give();
}

void fake_capture(CUstream stream, bool is_capturing)
{
    take(stream)->is_capturing = is_capturing;
    give();
}
