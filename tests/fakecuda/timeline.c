/* SPDX-License-Identifier: Apache-2.0 */
/* 64-bit words that streams write and wait for: R50, R51, R53. */
#include <stdlib.h>
#include <unistd.h>

#include "fakecuda/exports.h"
#include "fakecuda/state.h"

enum { MAX_PROBES = 32 };

/* ---- words ------------------------------------------------------------------------------- */

/* The same word in each process: a place in a device's memory, or in a file. */
struct place {
    uint64_t space;
    uint64_t inode;
    uint64_t off;
};

static struct place place_in(const struct registered *r, uint64_t off)
{
    return (struct place){.space = r->space, .inode = r->inode, .off = r->off + off};
}

static struct place place_of(CUdeviceptr address, const struct target *target)
{
    if (target->device >= 0)
        return (struct place){.space = 1 + (uint64_t)target->device, .off = target->off};
    const struct registered *r = registered_at(address);
    return place_in(r, address - r->device);
}

static bool is_at(const struct word *word, const struct place *place)
{
    return word->space == place->space && word->inode == place->inode &&
           word->off == place->off;
}

/* The word, among the few where it may be; a word that is forgotten loses its order only. */
static struct word *word_of(const struct place *place)
{
    uint64_t hash = (place->space * 31 + place->inode) * 31 + place->off / 8;
    struct word *unused = NULL;
    for (uint64_t i = 0; i < MAX_PROBES; i++) {
        struct word *word = &universe->words[(hash + i) % MAX_WORDS];
        if (is_at(word, place))
            return word;
        if (!word->space && !unused)
            unused = word;
    }
    if (!unused)
        unused = &universe->words[(hash + universe_random(MAX_PROBES)) % MAX_WORDS];
    *unused = (struct word){.space = place->space, .inode = place->inode, .off = place->off};
    return unused;
}

void words_forget(int device, uint64_t off, uint64_t bytes)
{
    for (int i = 0; i < MAX_WORDS; i++) {
        struct word *word = &universe->words[i];
        if (word->space == 1 + (uint64_t)device && word->off >= off && word->off < off + bytes)
            *word = (struct word){0};
    }
}

/* The driver compares so that a counter may overflow. */
static bool has_reached(uint64_t now, uint64_t value) { return (int64_t)(now - value) >= 0; }

static void submit_value(struct word *word, uint64_t value)
{
    if (!word->is_submitted || has_reached(value, word->submitted))
        word->submitted = value;
    word->is_submitted = true;
}

bool word_was_written(const struct word *word, uint64_t value)
{
    return word->is_written && has_reached(word->written, value);
}

int word_index(const struct operation *operation)
{
    struct target target;
    if (!target_find(operation->src, &target))
        return -1;
    struct place place = place_of(operation->src, &target);
    return (int)(word_of(&place) - universe->words);
}

static void write_down(struct word *word, uint64_t value, const struct clock *clock)
{
    word->written = value;
    word->is_written = true;
    clock_join(&word->clock, clock);
}

static _Atomic uint64_t *atomic_at(char *bytes) { return (_Atomic uint64_t *)(void *)bytes; }

/* ---- the operations ---------------------------------------------------------------------- */

/* Pairs with word_is_reached() of other streams, and with loads of the program. */
CUresult word_set(struct CUstream_st *stream, const struct operation *o)
{
    struct target target;
    if (!target_access(stream->context, o->dst, true, &target) || target.length < 8)
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    struct place place = place_of(o->dst, &target);
    write_down(word_of(&place), o->value, &stream->clock);
    atomic_store_explicit(atomic_at(target.bytes), o->value, memory_order_release);
    return CUDA_SUCCESS;
}

CUresult word_is_reached(struct CUstream_st *stream, const struct operation *o)
{
    struct target target;
    if (!target_access(stream->context, o->src, false, &target) || target.length < 8)
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    uint64_t now = atomic_load_explicit(atomic_at(target.bytes), memory_order_acquire);
    if (!has_reached(now, o->value))
        return CUDA_ERROR_NOT_READY;
    struct place place = place_of(o->src, &target);
    clock_join(&stream->clock, &word_of(&place)->clock);
    return CUDA_SUCCESS;
}

/* ---- the driver's functions -------------------------------------------------------------- */

static CUresult check(CUstream handle, CUdeviceptr address, unsigned flags,
                      struct CUstream_st **ret_stream, struct target *ret_target)
{
    struct CUstream_st *stream = stream_of(handle);
    if (!stream)
        return handle ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_CONTEXT;
    if (stream->context->fault)
        return stream->context->fault;
    if (stream->is_capturing)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (flags != 0)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (address % 8 != 0 || !target_find(address, ret_target) || ret_target->length < 8)
        return CUDA_ERROR_INVALID_VALUE;
    *ret_stream = stream;
    return CUDA_SUCCESS;
}

static CUresult write_value(CUstream handle, CUdeviceptr address, uint64_t value,
                            unsigned flags)
{
    struct CUstream_st *stream;
    struct target target;
    CUresult code = check(handle, address, flags, &stream, &target);
    if (code)
        return code;
    struct place place = place_of(address, &target);
    submit_value(word_of(&place), value);
    struct operation *operation = operation_create(OPERATION_SET_VALUE);
    operation->dst = address;
    operation->bytes = sizeof value;
    operation->value = value;
    stream_submit(stream, operation);
    return CUDA_SUCCESS;
}

CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                 unsigned flags)
{
    CUresult result = call_enter(FN_cuStreamWriteValue64_v2, NEEDS_NO_FAULT);
    return result ? result : call_leave(write_value(stream, address, value, flags));
}

/* R51: who waits for what nobody was told to write may wait for ever, and others with it. */
static void check_submitted(const struct word *word, const struct target *target,
                            uint64_t value)
{
    uint64_t now = atomic_load_explicit(atomic_at(target->bytes), memory_order_acquire);
    if (has_reached(now, value) || (word->is_submitted && has_reached(word->submitted, value)))
        return;
    violation("R51", "a stream waits for a value, %llu, that no stream was told to write",
              (unsigned long long)value);
}

static CUresult wait_value(CUstream handle, CUdeviceptr address, uint64_t value, unsigned flags)
{
    struct CUstream_st *stream;
    struct target target;
    CUresult code = check(handle, address, flags, &stream, &target);
    if (code)
        return code;
    struct place place = place_of(address, &target);
    check_submitted(word_of(&place), &target, value);
    struct operation *operation = operation_create(OPERATION_WAIT_VALUE);
    operation->src = address;
    operation->bytes = sizeof value;
    operation->value = value;
    stream_submit(stream, operation);
    return CUDA_SUCCESS;
}

CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                unsigned flags)
{
    CUresult result = call_enter(FN_cuStreamWaitValue64_v2, NEEDS_NO_FAULT);
    return result ? result : call_leave(wait_value(stream, address, value, flags));
}

/* ---- what the processor does ------------------------------------------------------------- */

/* The word at an address of the host, or NULL; the universe is locked. */
static struct word *host_word(const void *address)
{
    const struct registered *r = registered_find(address, 8);
    if (r) {
        struct place place = place_in(r, (uint64_t)((const char *)address - r->host));
        return word_of(&place);
    }
    struct registered here = {
        .host = (char *)(uintptr_t)address, .bytes = 8, .flags = CU_MEMHOSTREGISTER_READ_ONLY};
    if (!registered_locate(&here))
        return NULL;
    struct place place = place_in(&here, 0);
    return word_of(&place);
}

static uint64_t load(const void *host)
{
    const _Atomic uint64_t *word = host;
    return atomic_load_explicit(word, memory_order_acquire);
}

void fake_value_set(const void *host)
{
    if (call_enter_quiet(NEEDS_INIT))
        return;
    struct word *word = host_word(host);
    if (word) {
        clock_step(&me()->clock, me()->agent);
        submit_value(word, load(host));
        write_down(word, load(host), &me()->clock);
    }
    call_leave(CUDA_SUCCESS);
}

void fake_value_seen(const void *host)
{
    if (call_enter_quiet(NEEDS_INIT))
        return;
    const struct word *word = host_word(host);
    if (word)
        clock_join(&me()->clock, &word->clock);
    call_leave(CUDA_SUCCESS);
}
