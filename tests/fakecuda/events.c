/* SPDX-License-Identifier: Apache-2.0 */
/* Events, also those of several processes: R25 to R35. */
#include <stdlib.h>
#include <time.h>

#include "fakecuda/exports.h"
#include "fakecuda/state.h"

/* What the 64 bytes of a handle hold. */
struct content {
    uint64_t magic;
    uint64_t id;
    int32_t pid;
};

static struct event *event_of(CUevent handle) { return &universe->events[handle->event]; }

static bool is_shared(const struct event *event)
{
    return event->flags & CU_EVENT_INTERPROCESS;
}

/* ---- names of this process --------------------------------------------------------------- */

static CUevent name_find(CUevent handle)
{
    for (CUevent name = local.events; name; name = name->next)
        if (name == handle && name->id)
            return name;
    return NULL;
}

static CUevent unused_name(void)
{
    for (CUevent name = local.events; name; name = name->next)
        if (!name->id)
            return name;
    CUevent made = calloc(1, sizeof *made);
    if (!made)
        abort();
    made->next = local.events;
    local.events = made;
    return made;
}

static CUevent name_create(int event, bool is_imported)
{
    CUevent made = unused_name();
    made->event = event;
    made->id = universe->events[event].id;
    made->is_imported = is_imported;
    made->context = context_current();
    universe->events[event].ref_count[local.process]++;
    return made;
}

/* ---- events of the universe -------------------------------------------------------------- */

static bool is_referenced(const struct event *event)
{
    for (int i = 0; i < MAX_PROCESSES; i++)
        if (event->ref_count[i])
            return true;
    return false;
}

static void event_settle(struct event *event)
{
    if (event->id && !is_referenced(event))
        *event = (struct event){0};
}

void events_drop(int process)
{
    for (int i = 0; i < MAX_EVENTS; i++) {
        struct event *event = &universe->events[i];
        if (event->owner == process)
            event->owner = -1;
        event->ref_count[process] = 0;
        event_settle(event);
    }
}

void events_reset(void)
{
    while (local.events) {
        CUevent name = local.events;
        local.events = name->next;
        free(name);
    }
}

void events_check_end(void)
{
    for (CUevent name = local.events; name; name = name->next)
        if (name->id)
            violation("R33", "%s event is not destroyed",
                      name->is_imported ? "an imported" : "an");
}

void event_complete(const struct operation *operation, const struct clock *clock)
{
    struct event *event = &universe->events[operation->event];
    if (event->id != operation->event_id || event->completed >= operation->value)
        return;
    event->completed = operation->value;
    event->clock = *clock;
}

bool event_is_done(const struct operation *operation, struct clock *clock)
{
    const struct event *event = &universe->events[operation->event];
    if (event->id != operation->event_id || event->is_destroyed)
        return true;
    if (event->completed < operation->value)
        return false;
    clock_join(clock, &event->clock);
    return true;
}

/* ---- creating and destroying ------------------------------------------------------------- */

static unsigned count_shared(void)
{
    unsigned count = 0;
    for (int i = 0; i < MAX_EVENTS; i++)
        count += universe->events[i].id && is_shared(&universe->events[i]);
    return count;
}

static CUresult create(CUevent *ret_event, unsigned flags)
{
    const unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING;
    bool shares = flags & CU_EVENT_INTERPROCESS;
    if (!ret_event || flags & ~(known | CU_EVENT_INTERPROCESS) ||
        (shares && !(flags & CU_EVENT_DISABLE_TIMING)))
        return CUDA_ERROR_INVALID_VALUE;
    if (shares && universe->options.without & FAKE_NO_IPC_EVENTS)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (shares && count_shared() >= universe->options.max_events)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (int i = 0; i < MAX_EVENTS; i++) {
        if (universe->events[i].id)
            continue;
        universe->events[i] =
            (struct event){.id = universe_id(), .owner = local.process, .flags = flags};
        *ret_event = name_create(i, false);
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuEventCreate(CUevent *ret_event, unsigned flags)
{
    CUresult result = call_enter(FN_cuEventCreate, NEEDS_CONTEXT);
    return result ? result : call_leave(create(ret_event, flags));
}

static CUresult destroy(CUevent handle)
{
    CUevent name = name_find(handle);
    if (!name)
        return CUDA_ERROR_INVALID_HANDLE;
    struct event *event = event_of(name);
    event->ref_count[local.process]--;
    event->is_destroyed = event->is_destroyed || !name->is_imported;
    name->id = 0;
    event_settle(event);
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event)
{
    CUresult result = call_enter(FN_cuEventDestroy_v2, NEEDS_NO_FAULT);
    return result ? result : call_leave(destroy(event));
}

/* ---- recording and waiting --------------------------------------------------------------- */

/* R28: the driver may do anything with an event whose owner has destroyed it. */
static void check_destroyed(const struct event *event)
{
    if (event->is_destroyed)
        violation("R28", "an event is used that its owner has destroyed");
}

/* R29: such a wait does not wait. */
static void check_recorded(const struct event *event)
{
    if (event->submitted == 0 && is_shared(event))
        violation("R29", "a wait for an event of several processes before it is recorded");
}

static void wait_is_called(struct event *event, const struct CUevent_st *name)
{
    if (name->is_imported && event->announced > 0)
        event->announced--;
}

static struct operation *operation_for(uint32_t kind, const struct CUevent_st *name)
{
    struct operation *made = operation_create(kind);
    made->event = name->event;
    made->event_id = name->id;
    made->value = universe->events[name->event].submitted;
    return made;
}

static CUresult record(CUevent handle, CUstream stream_handle)
{
    const struct CUevent_st *name = name_find(handle);
    struct CUstream_st *stream = stream_of(stream_handle);
    if (!name || !stream || stream->context != name->context)
        return CUDA_ERROR_INVALID_HANDLE;
    if (stream->context->fault)
        return stream->context->fault;
    struct event *event = event_of(handle);
    check_destroyed(event);
    if (event->announced > 0)
        violation("R30", "an event is recorded again before an announced wait is called");
    event->submitted++;
    stream_submit(stream, operation_for(OPERATION_RECORD, name));
    return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    CUresult result = call_enter(FN_cuEventRecord, NEEDS_NO_FAULT);
    return result ? result : call_leave(record(event, stream));
}

static CUresult stream_wait_event(CUstream stream_handle, CUevent handle, unsigned flags)
{
    const struct CUevent_st *name = name_find(handle);
    struct CUstream_st *stream = stream_of(stream_handle);
    if (!name || !stream)
        return CUDA_ERROR_INVALID_HANDLE;
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->context->fault)
        return stream->context->fault;
    struct event *event = event_of(handle);
    check_destroyed(event);
    check_recorded(event);
    wait_is_called(event, name);
    if (event->submitted > 0)
        stream_submit(stream, operation_for(OPERATION_WAIT_EVENT, name));
    return CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    CUresult result = call_enter(FN_cuStreamWaitEvent, NEEDS_NO_FAULT);
    return result ? result : call_leave(stream_wait_event(stream, event, flags));
}

static CUresult query(CUevent handle)
{
    const struct CUevent_st *name = name_find(handle);
    if (!name)
        return CUDA_ERROR_INVALID_HANDLE;
    const struct event *event = event_of(handle);
    check_destroyed(event);
    if (event->completed < event->submitted)
        return CUDA_ERROR_NOT_READY;
    clock_join(&me()->clock, &event->clock);
    return name->context->fault;
}

CUresult cuEventQuery(CUevent event)
{
    CUresult result = call_enter(FN_cuEventQuery, NEEDS_NO_FAULT);
    return result ? result : call_leave(query(event));
}

/* The universe is not locked while this waits. */
static CUresult synchronize(CUevent handle)
{
    const struct CUevent_st *name = name_find(handle);
    if (!name)
        return CUDA_ERROR_INVALID_HANDLE;
    struct event *event = event_of(handle);
    check_destroyed(event);
    check_recorded(event);
    wait_is_called(event, name);
    const struct operation record = {
        .event = name->event, .event_id = name->id, .value = event->submitted};
    while (!event_is_done(&record, &me()->clock) && !name->context->fault) {
        universe_unlock();
        nanosleep(&(struct timespec){.tv_nsec = 30000}, NULL);
        universe_lock();
    }
    return name->context->fault;
}

CUresult cuEventSynchronize(CUevent event)
{
    CUresult result = call_enter(FN_cuEventSynchronize, NEEDS_NO_FAULT);
    return result ? result : call_leave(synchronize(event));
}

void fake_wait_announced(CUevent handle)
{
    if (call_enter_quiet(NEEDS_INIT))
        return;
    if (name_find(handle))
        event_of(handle)->announced++;
    call_leave(CUDA_SUCCESS);
}

/* ---- handles ----------------------------------------------------------------------------- */

static CUresult get_handle(CUipcEventHandle *ret_handle, CUevent handle)
{
    const struct CUevent_st *name = name_find(handle);
    if (!ret_handle)
        return CUDA_ERROR_INVALID_VALUE;
    if (!name || name->is_imported || !is_shared(event_of(handle)))
        return CUDA_ERROR_INVALID_HANDLE;
    struct content content = {.magic = MAGIC, .id = name->id, .pid = me()->fake_pid};
    memset(ret_handle, 0, sizeof *ret_handle);
    memcpy(ret_handle, &content, sizeof content);
    return CUDA_SUCCESS;
}

CUresult cuIpcGetEventHandle(CUipcEventHandle *ret_handle, CUevent event)
{
    CUresult result = call_enter(FN_cuIpcGetEventHandle, NEEDS_CONTEXT);
    return result ? result : call_leave(get_handle(ret_handle, event));
}

static int find_exported(uint64_t id)
{
    for (int i = 0; i < MAX_EVENTS; i++) {
        const struct event *event = &universe->events[i];
        if (event->id == id && !event->is_destroyed && event->owner >= 0)
            return i;
    }
    return -1;
}

/* The drivers do not agree on these codes: a program may rely on none. */
static CUresult either(CUresult one, CUresult other)
{
    return universe_random(2) ? one : other;
}

static CUresult open_handle(CUevent *ret_event, const CUipcEventHandle *handle)
{
    struct content content;
    memcpy(&content, handle, sizeof content);
    if (!ret_event || content.magic != MAGIC)
        return CUDA_ERROR_INVALID_VALUE;
    if (universe->options.no_shared_shm)
        return either(CUDA_ERROR_MAP_FAILED, CUDA_ERROR_OPERATING_SYSTEM);
    if (content.pid == me()->fake_pid)
        return CUDA_ERROR_INVALID_CONTEXT;
    processes_sweep();
    int event = find_exported(content.id);
    if (event < 0)
        return either(CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_HANDLE);
    *ret_event = name_create(event, true);
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenEventHandle(CUevent *ret_event, CUipcEventHandle handle)
{
    CUresult result = call_enter(FN_cuIpcOpenEventHandle, NEEDS_CONTEXT);
    return result ? result : call_leave(open_handle(ret_event, &handle));
}
