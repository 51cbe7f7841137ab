/* SPDX-License-Identifier: Apache-2.0 */
/* What the operations of streams do, and what is left of them when their process dies. */
#include <stdlib.h>
#include <time.h>

#include "fakecuda/state.h"

/* ---- moving bytes ------------------------------------------------------------------------ */

static uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* Aim at the rest of a range. @return false if the context may not access it */
static bool reach_by(CUcontext context, CUdeviceptr address, uint64_t bytes, bool writes,
                     struct target *ret_target)
{
    if (!target_access(context, address, writes, ret_target))
        return false;
    ret_target->length = smaller(ret_target->length, bytes);
    return true;
}

static bool reach(struct CUstream_st *stream, CUdeviceptr address, uint64_t bytes, bool writes,
                  struct target *ret_target)
{
    return reach_by(stream->context, address, bytes, writes, ret_target);
}

static void note(struct CUstream_st *stream, const struct target *target, uint64_t bytes,
                 bool writes)
{
    race_access(&stream->clock, stream->agent, target, bytes, writes);
}

static bool fill(struct CUstream_st *stream, const struct operation *o)
{
    struct target to;
    for (uint64_t done = 0; done < o->bytes; done += to.length) {
        if (!reach(stream, o->dst + done, o->bytes - done, true, &to))
            return false;
        note(stream, &to, to.length, true);
        memset(to.bytes, (int)o->value, to.length);
    }
    return true;
}

static bool copy(struct CUstream_st *stream, const struct operation *o)
{
    CUcontext dst = o->dst_context ? o->dst_context : stream->context;
    CUcontext src = o->src_context ? o->src_context : stream->context;
    struct target to, from;
    uint64_t bytes;
    for (uint64_t done = 0; done < o->bytes; done += bytes) {
        if (!reach_by(src, o->src + done, o->bytes - done, false, &from) ||
            !reach_by(dst, o->dst + done, o->bytes - done, true, &to))
            return false;
        bytes = smaller(to.length, from.length);
        note(stream, &from, bytes, false);
        note(stream, &to, bytes, true);
        memmove(to.bytes, from.bytes, bytes);
    }
    return true;
}

static bool read_back(struct CUstream_st *stream, const struct operation *o)
{
    struct target from;
    for (uint64_t done = 0; done < o->bytes; done += from.length) {
        if (!reach(stream, o->src + done, o->bytes - done, false, &from))
            return false;
        note(stream, &from, from.length, false);
        memcpy((char *)o->host + done, from.bytes, from.length);
    }
    return true;
}

static bool write_to(struct CUstream_st *stream, const struct operation *o)
{
    const char *source = o->staged ? o->staged : o->host;
    struct target to;
    for (uint64_t done = 0; done < o->bytes; done += to.length) {
        if (!reach(stream, o->dst + done, o->bytes - done, true, &to))
            return false;
        note(stream, &to, to.length, true);
        memcpy(to.bytes, source + done, to.length);
    }
    return true;
}

typedef bool move_fn(struct CUstream_st *stream, const struct operation *o);

static bool each_row(struct CUstream_st *stream, const struct operation *o, move_fn *move)
{
    struct operation row = *o;
    for (uint64_t i = 0; i < o->rows; i++) {
        if (!move(stream, &row))
            return false;
        row.dst += o->dst_pitch;
        row.src += o->src_pitch;
        if (row.staged)
            row.staged += o->src_pitch;
        else if (row.host)
            row.host =
                (char *)row.host + (o->kind == OPERATION_READ ? o->dst_pitch : o->src_pitch);
    }
    return true;
}

/* ---- one operation ----------------------------------------------------------------------- */

static CUresult is_reached(struct CUstream_st *stream, const struct operation *o)
{
    if (o->kind == OPERATION_WAIT_VALUE)
        return word_is_reached(stream, o);
    return event_is_done(o, &stream->clock) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

/* The universe is not locked while this waits. */
static bool wait_for(struct CUstream_st *stream, const struct operation *o)
{
    for (;;) {
        CUresult code = is_reached(stream, o);
        if (code != CUDA_ERROR_NOT_READY || local.is_ending || stream->is_cancelled)
            return code == CUDA_SUCCESS || code == CUDA_ERROR_NOT_READY;
        universe_unlock();
        nanosleep(&(struct timespec){.tv_nsec = 30000}, NULL);
        universe_lock();
    }
}

static bool do_one(struct CUstream_st *stream, struct operation *o)
{
    switch (o->kind) {
    case OPERATION_FILL:
        return fill(stream, o);
    case OPERATION_COPY:
        return each_row(stream, o, copy);
    case OPERATION_READ:
        return each_row(stream, o, read_back);
    case OPERATION_WRITE:
        return each_row(stream, o, write_to);
    case OPERATION_RECORD:
        event_complete(o, &stream->clock);
        return true;
    case OPERATION_SET_VALUE:
        return word_set(stream, o) == CUDA_SUCCESS;
    default:
        return wait_for(stream, o);
    }
}

/* R58: an access that is not allowed fails the context for good, and so each later call. */
void work_do(struct CUstream_st *stream, struct operation *o)
{
    universe_lock();
    CUcontext context = stream->context;
    clock_join(&stream->clock, &o->clock);
    clock_step(&stream->clock, stream->agent);
    if (!context->fault && !do_one(stream, o)) {
        context->fault = CUDA_ERROR_ILLEGAL_ADDRESS;
        me()->faulted |= 1U << context->device;
    }
    universe_unlock();
}

/* ---- what survives ----------------------------------------------------------------------- */

/* Only work of one piece within a device, as a kernel has: a copy to the host is lost. */
static bool describe_move(const struct operation *o, struct inflight *work)
{
    struct target to, from = {.length = UINT64_MAX};
    bool copies = o->kind == OPERATION_COPY;
    if (!target_find(o->dst, &to) || to.device < 0)
        return false;
    if (copies && (!target_find(o->src, &from) || from.device != to.device))
        return false;
    work->device = to.device;
    work->dst_off = to.off;
    work->src_off = from.off;
    work->rows = o->rows;
    work->dst_pitch = o->dst_pitch;
    work->src_pitch = o->src_pitch;
    work->bytes = smaller(o->bytes, smaller(to.length, from.length));
    return o->rows == 1 || (rows_span(o->bytes, o->rows, o->dst_pitch) <= to.length &&
                            rows_span(o->bytes, o->rows, o->src_pitch) <= from.length);
}

static bool describe(const struct operation *o, struct inflight *work)
{
    *work = (struct inflight){.state = INFLIGHT_LIVE,
                              .kind = o->kind,
                              .process = local.process,
                              .order = universe_id(),
                              .value = o->value,
                              .word = -1,
                              .event = o->event,
                              .event_id = o->event_id};
    switch (o->kind) {
    case OPERATION_FILL:
    case OPERATION_COPY:
        return describe_move(o, work);
    case OPERATION_WAIT_VALUE:
        work->word = word_index(o);
        return work->word >= 0;
    default:
        return o->kind == OPERATION_WAIT_EVENT;
    }
}

void work_announce(struct CUstream_st *stream, struct operation *o)
{
    struct inflight work;
    if (!describe(o, &work))
        return;
    work.agent = stream->agent;
    work.context_device = context_device(stream->context);
    work.clock = o->clock;
    clock_join(&work.clock, &stream->clock);
    for (int i = 0; i < MAX_INFLIGHT; i++) {
        if (universe->inflight[i].state != INFLIGHT_NONE)
            continue;
        universe->inflight[i] = work;
        universe->inflight_end = i < universe->inflight_end ? universe->inflight_end : i + 1;
        o->inflight = i;
        return;
    }
}

void work_done(struct operation *o)
{
    if (o->inflight < 0)
        return;
    universe_lock();
    universe->inflight[o->inflight].state = INFLIGHT_NONE;
    universe_unlock();
}

/* What follows in the stream comes after this; or it is never done. */
static void pass_on(const struct inflight *wait, bool is_done, const struct clock *clock)
{
    for (int i = 0; i < universe->inflight_end; i++) {
        struct inflight *later = &universe->inflight[i];
        if (later->state != INFLIGHT_ORPHAN || later->agent != wait->agent ||
            later->order < wait->order)
            continue;
        if (is_done)
            clock_join(&later->clock, clock);
        else
            later->state = INFLIGHT_NONE;
    }
}

static void end_wait(const struct inflight *wait)
{
    if (wait->kind == OPERATION_WAIT_VALUE) {
        const struct word *word = &universe->words[wait->word];
        pass_on(wait, word_was_written(word, wait->value), &word->clock);
        return;
    }
    const struct operation o = {
        .event = wait->event, .event_id = wait->event_id, .value = wait->value};
    struct clock clock = {{0}};
    bool is_done = event_is_done(&o, &clock);
    pass_on(wait, is_done, &clock);
}

/* Its step is new, so each access of others since then is without order to it. */
static void move_orphan(struct inflight *work)
{
    char *memory = device_memory(work->device);
    struct target to = {.device = work->device, .off = work->dst_off};
    uint64_t src_off = work->src_off;
    clock_step(&work->clock, work->agent);
    for (uint64_t i = 0; i < work->rows; i++) {
        race_access(&work->clock, work->agent, &to, work->bytes, true);
        if (work->kind == OPERATION_COPY)
            memmove(memory + to.off, memory + src_off, work->bytes);
        else
            memset(memory + to.off, (int)work->value, work->bytes);
        to.off += work->dst_pitch;
        src_off += work->src_pitch;
    }
    universe->dead.steps[work->agent] = universe->agent_steps[work->agent];
}

static void do_orphan(struct inflight *work, struct clock *clock)
{
    if (work->kind == OPERATION_FILL || work->kind == OPERATION_COPY)
        move_orphan(work);
    else
        end_wait(work);
    if (clock)
        clock_join(clock, &work->clock);
    work->state = INFLIGHT_NONE;
}

/* The first of the orphans, of this device and of deaths up to this turn. */
static struct inflight *first_orphan(int device, uint64_t turn)
{
    struct inflight *first = NULL;
    for (int i = 0; i < universe->inflight_end; i++) {
        struct inflight *work = &universe->inflight[i];
        if (work->state == INFLIGHT_ORPHAN && work->context_device == device &&
            work->turn <= turn && (!first || work->order < first->order))
            first = work;
    }
    return first;
}

void orphans_finish(int device, uint64_t turn, struct clock *clock)
{
    for (struct inflight *work; (work = first_orphan(device, turn));)
        do_orphan(work, clock);
}

void orphans_finish_in(int device, uint64_t off, uint64_t bytes)
{
    for (int i = 0; i < universe->inflight_end; i++) {
        struct inflight *work = &universe->inflight[i];
        bool moves = work->kind == OPERATION_FILL || work->kind == OPERATION_COPY;
        if (work->state == INFLIGHT_ORPHAN && moves && work->device == device &&
            work->dst_off < off + bytes &&
            off < work->dst_off + rows_span(work->bytes, work->rows, work->dst_pitch))
            do_orphan(work, NULL);
    }
}
