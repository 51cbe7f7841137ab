/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts, and each thread's stack of them. */
#include <stdlib.h>
#include <unistd.h>

#include "fakecuda/exports.h"
#include "fakecuda/state.h"

static _Thread_local struct stack {
    CUcontext contexts[MAX_DEPTH];
    unsigned depth;
    bool is_watched;
} stack;

static pthread_key_t end_of_thread;
static pthread_once_t key_made = PTHREAD_ONCE_INIT;

/* R4: what a thread has pushed, it pops. */
static void check_thread(void *ending)
{
    const struct stack *left = ending;
    if (!universe || local.is_detached || left->depth == 0 || local.pid != getpid())
        return;
    universe_lock();
    violation("R4", "a thread ends with %u contexts on its stack", left->depth);
    universe_unlock();
}

static void make_key(void) { pthread_key_create(&end_of_thread, check_thread); }

static void watch_thread(void)
{
    if (stack.is_watched)
        return;
    pthread_once(&key_made, make_key);
    pthread_setspecific(end_of_thread, &stack);
    stack.is_watched = true;
}

CUcontext context_current(void)
{
    return stack.depth > 0 ? stack.contexts[stack.depth - 1] : NULL;
}

bool context_is_used(CUcontext context)
{
    for (int i = 0; i < MAX_CONTEXTS; i++)
        if (context == &local.contexts[i])
            return context->is_used;
    return false;
}

int context_device(CUcontext context) { return context->device; }

void contexts_check_end(void)
{
    if (stack.depth > 0)
        violation("R4", "the process ends with %u contexts on the stack", stack.depth);
    for (int i = 0; i < MAX_CONTEXTS; i++) {
        const struct CUctx_st *context = &local.contexts[i];
        if (context->is_used && context->is_primary && context->retains > context->is_kept)
            violation("R4", "the primary context of device %d has %llu retains left",
                      context->device, (unsigned long long)context->retains - context->is_kept);
    }
}

void contexts_reset(void)
{
    stack.depth = 0;
    memset(local.contexts, 0, sizeof local.contexts);
}

/* ---- primary contexts -------------------------------------------------------------------- */

static CUcontext primary_of(int device)
{
    for (int i = 0; i < MAX_CONTEXTS; i++) {
        CUcontext context = &local.contexts[i];
        if (context->is_used && context->is_primary && context->device == device)
            return context;
    }
    return NULL;
}

static CUcontext context_create(int device, bool is_primary)
{
    for (int i = 0; i < MAX_CONTEXTS; i++) {
        CUcontext context = &local.contexts[i];
        if (context->is_used)
            continue;
        *context = (struct CUctx_st){.is_used = true,
                                     .is_primary = is_primary,
                                     .device = device,
                                     .ordinal = ordinal_of(device)};
        me()->contexts |= 1U << device;
        return context;
    }
    abort();
}

static void context_end(CUcontext context)
{
    streams_end_context(context);
    legacy_end_context(context);
    int device = context->device;
    *context = (struct CUctx_st){0};
    for (int i = 0; i < MAX_CONTEXTS; i++)
        if (local.contexts[i].is_used && local.contexts[i].device == device)
            return;
    me()->contexts &= ~(1U << device);
}

/* R6: in the mode for one process, a second one gets no context. */
static bool is_taken(int device)
{
    if (universe->options.compute_mode != CU_COMPUTEMODE_EXCLUSIVE_PROCESS)
        return false;
    processes_sweep();
    for (int i = 0; i < MAX_PROCESSES; i++) {
        const struct process *other = &universe->processes[i];
        if (i != local.process && other->state && other->contexts & 1U << device)
            return true;
    }
    return false;
}

static CUresult primary_retain(CUcontext *ret_context, CUdevice ordinal)
{
    int device = device_of(ordinal);
    if (!ret_context)
        return CUDA_ERROR_INVALID_VALUE;
    if (device < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    CUcontext context = primary_of(device);
    if (!context && is_taken(device))
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    context = context ? context : context_create(device, true);
    context->retains++;
    *ret_context = context;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *ret_context, CUdevice ordinal)
{
    CUresult result = call_enter(FN_cuDevicePrimaryCtxRetain, NEEDS_INIT);
    return result ? result : call_leave(primary_retain(ret_context, ordinal));
}

static CUresult primary_release(CUdevice ordinal)
{
    int device = device_of(ordinal);
    if (device < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    CUcontext context = primary_of(device);
    if (!context) {
        violation("R4", "the primary context is released more often than retained");
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (--context->retains == 0)
        context_end(context);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice ordinal)
{
    CUresult result = call_enter(FN_cuDevicePrimaryCtxRelease_v2, NEEDS_INIT);
    return result ? result : call_leave(primary_release(ordinal));
}

static CUresult primary_state(CUdevice ordinal, unsigned *ret_flags, int *ret_active)
{
    int device = device_of(ordinal);
    if (!ret_flags || !ret_active)
        return CUDA_ERROR_INVALID_VALUE;
    if (device < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    *ret_flags = 0;
    *ret_active = primary_of(device) != NULL;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned *ret_flags, int *ret_active)
{
    CUresult result = call_enter(FN_cuDevicePrimaryCtxGetState, NEEDS_INIT);
    return result ? result : call_leave(primary_state(ordinal, ret_flags, ret_active));
}

CUresult fake_context_create(CUcontext *ret_context, int device)
{
    CUresult result = call_enter_quiet(NEEDS_INIT);
    if (result)
        return result;
    *ret_context = context_create(device, false);
    return call_leave(CUDA_SUCCESS);
}

void fake_context_destroy(CUcontext context)
{
    if (call_enter_quiet(NEEDS_INIT))
        return;
    context_end(context);
    call_leave(CUDA_SUCCESS);
}

/* ---- the stack --------------------------------------------------------------------------- */

static CUresult get_current(CUcontext *ret_context)
{
    if (!ret_context)
        return CUDA_ERROR_INVALID_VALUE;
    *ret_context = context_current();
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *ret_context)
{
    CUresult result = call_enter(FN_cuCtxGetCurrent, NEEDS_INIT);
    return result ? result : call_leave(get_current(ret_context));
}

static CUresult push_current(CUcontext context)
{
    if (!context_is_used(context) || stack.depth == MAX_DEPTH)
        return CUDA_ERROR_INVALID_CONTEXT;
    watch_thread();
    stack.contexts[stack.depth++] = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    CUresult result = call_enter(FN_cuCtxPushCurrent_v2, NEEDS_INIT);
    return result ? result : call_leave(push_current(context));
}

static CUresult pop_current(CUcontext *ret_context)
{
    CUcontext context = context_current();
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    stack.depth--;
    if (ret_context)
        *ret_context = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext *ret_context)
{
    CUresult result = call_enter(FN_cuCtxPopCurrent_v2, NEEDS_INIT);
    return result ? result : call_leave(pop_current(ret_context));
}

static CUresult get_device(CUdevice *ret_device)
{
    if (!ret_device)
        return CUDA_ERROR_INVALID_VALUE;
    *ret_device = context_current()->ordinal;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *ret_device)
{
    CUresult result = call_enter(FN_cuCtxGetDevice, NEEDS_CONTEXT);
    return result ? result : call_leave(get_device(ret_device));
}

/* ---- HIP --------------------------------------------------------------------------------- */

static CUresult use(CUdevice ordinal)
{
    CUcontext context;
    CUresult result = primary_retain(&context, ordinal);
    if (result)
        return result;
    if (context->is_kept)
        context->retains--;
    context->is_kept = true;
    return push_current(context);
}

CUresult context_use(CUdevice ordinal)
{
    CUresult result = call_enter_quiet(NEEDS_INIT);
    return result ? result : call_leave(use(ordinal));
}

void context_unuse(void)
{
    if (stack.depth > 0)
        stack.depth--;
}

CUcontext context_primary(CUdevice ordinal) { return primary_of(device_of(ordinal)); }
