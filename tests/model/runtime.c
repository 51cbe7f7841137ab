/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime: what -fsanitize=thread has the source call, in place of the sanitizer's own.
 *
 * A call comes before the access that it is for; atomic accesses are made here altogether. What
 * only one process uses is accessed at once; else the process stops, and the explorer makes the
 * access when it chooses to. Setup, check and the explorer itself access memory as it is.
 */
#include "explore.h"

#include <string.h>

static bool has_point;   /* something was written that check() or other processes may see */
static bool has_stepped; /* the last step of this process was a write */
static bool has_plain;   /* the plain access that races has been made */
static struct op plain_op;
static uint64_t written_at,
    written_bytes; /* the bytes of a plain write, for the memory model of C11 */

static bool is_shared(uint64_t at) { return at - WORLD_BASE < SHARED_BYTES; }
static bool is_running(void)
{
    return ex.is_inside && (ex.phase == PHASE_LEARN || ex.phase == PHASE_SEARCH) &&
           ex.self < ex.model->process_count;
}
static bool can_kill(void) { return ex.machine.kills < ex.model->kills; }

void runtime_reset(void)
{
    has_point = has_stepped = has_plain = false;
    written_bytes = 0;
}

/* Finish what was under way. */
static void reclaim(void)
{
    world_take_notes();
    if (has_plain) {
        has_plain = false;
        memory_after_plain(ex.self, &plain_op);
    }
    if (written_bytes != 0) {
        views_after_plain(ex.self, written_at, written_bytes);
        written_bytes = 0;
    }
}

static uint64_t stop(struct op *op)
{
    if (ex.has_failed)
        process_abandon();
    process_stop(op);
    has_stepped = op->kind == OP_STORE || op->kind == OP_RMW || op->kind == OP_CAS;
    return ex.machine.process[ex.self].op.result;
}

/* Called before each access. A process may die after what it has written. */
static void before_access(void)
{
    reclaim();
    if (!has_point)
        return;
    has_point = false;
    step_has_written = true;
    step_check_invariant();
    if (can_kill()) {
        struct op op = {.kind = OP_POINT};
        stop(&op);
    }
}

/*
 * Called before a write that is no step, after before_access(). If the write came after a step
 * that wrote, the process may die between the two: other processes do not see that it has made
 * only one of them, but check() does.
 */
static void before_write(void)
{
    if (has_stepped && can_kill()) {
        struct op op = {.kind = OP_POINT};
        stop(&op);
    }
    has_stepped = false;
}

uint64_t runtime_stop(struct op *op)
{
    reclaim();
    step_has_written |= has_point;
    has_point = false;
    return stop(op);
}

/* ---- plain accesses ---------------------------------------------------------------------- */

static void stop_plain(uint64_t at, uint64_t size_bytes, bool is_write, const void *from)
{
    bool is_racy = world_place_has(at, (uint32_t)size_bytes, PLACE_RACY);
    bool is_word = is_racy && size_bytes <= 8 && at % size_bytes == 0;
    struct op op = {.kind = is_write ? OP_PLAIN_WRITE : OP_PLAIN_READ,
                    .size_bytes = (uint8_t)(is_word ? size_bytes : 0),
                    .span_bytes = (uint32_t)size_bytes,
                    .at = at,
                    .from = from};
    if (is_racy && !is_word && ex.memory != MODEL_SC)
        step_fail("a range of bytes that race is only had under sequential consistency");
    runtime_stop(&op);
    if (is_word) {
        plain_op = ex.machine.process[ex.self].op;
        has_plain = true;
    }
}

static void plain(const void *address, uint64_t size_bytes, bool is_write, const void *from)
{
    uint64_t at = (uint64_t)address;
    if (!ex.is_inside || size_bytes == 0)
        return;
    if (!is_shared(at) || !is_running()) {
        if (is_write && ex.phase != PHASE_LOOK)
            world_note(at, size_bytes);
        return;
    }
    before_access();
    bool is_step = world_is_step(ex.self, at, (uint32_t)size_bytes, is_write);
    bool is_racy = world_place_has(at, (uint32_t)size_bytes, PLACE_RACY);
    if (is_step && (is_racy || (ex.phase == PHASE_LEARN && ex.memory != MODEL_C11)))
        stop_plain(at, size_bytes, is_write, from);
    if (is_step && !is_racy && ex.memory == MODEL_C11)
        views_plain(ex.self, at, size_bytes, is_write, from);
    if (is_step && !is_racy && is_write && ex.memory == MODEL_C11) {
        written_at = at;
        written_bytes = size_bytes;
    }
    if (is_write) {
        if (!is_step)
            before_write();
        world_note(at, size_bytes);
        has_point = true;
    }
}

#define READ(n)                                                                                \
    void __tsan_read##n(void *at) { plain(at, n, false, __builtin_return_address(0)); }        \
    void __tsan_unaligned_read##n(void *at)                                                    \
    {                                                                                          \
        plain(at, n, false, __builtin_return_address(0));                                      \
    }                                                                                          \
    void __tsan_volatile_read##n(void *at) { plain(at, n, false, __builtin_return_address(0)); }
#define WRITE(n)                                                                               \
    void __tsan_write##n(void *at) { plain(at, n, true, __builtin_return_address(0)); }        \
    void __tsan_unaligned_write##n(void *at)                                                   \
    {                                                                                          \
        plain(at, n, true, __builtin_return_address(0));                                       \
    }                                                                                          \
    void __tsan_volatile_write##n(void *at) { plain(at, n, true, __builtin_return_address(0)); }
/* clang-format off: these are no statements */
READ(1)
READ(2)
READ(4)
READ(8)
READ(16)
WRITE(1)
WRITE(2)
WRITE(4)
WRITE(8)
WRITE(16)
/* clang-format on */

void __tsan_read_range(void *at, size_t size)
{
    plain(at, size, false, __builtin_return_address(0));
}
void __tsan_write_range(void *at, size_t size)
{
    plain(at, size, true, __builtin_return_address(0));
}
void __tsan_init(void) {}
void __tsan_func_entry(void *from) { (void)from; }
void __tsan_func_exit(void) {}
void __tsan_vptr_update(void **at, void *value) { (void)at, (void)value; }

/* ---- atomic accesses --------------------------------------------------------------------- */

static uint64_t cut(uint64_t value, uint32_t size_bytes)
{
    return size_bytes == 8 ? value : value & ((UINT64_C(1) << 8 * size_bytes) - 1);
}

/* Read or write memory. @return the value before */
static uint64_t do_at_once(const struct op *op)
{
    uint64_t old = world_read(op->at, op->size_bytes), next = old;
    if (op->kind == OP_STORE)
        next = op->operand;
    else if (op->kind == OP_RMW)
        next = memory_apply(op, old);
    else if (op->kind == OP_CAS && old == op->expected)
        next = op->operand;
    if (op->kind != OP_LOAD && ex.is_inside)
        world_note(op->at, op->size_bytes);
    if (op->kind != OP_LOAD)
        memcpy((void *)op->at, &next, op->size_bytes);
    return old;
}

static bool is_locked(const struct op *op)
{
    return op->kind == OP_RMW || op->kind == OP_CAS ||
           (op->kind == OP_STORE && op->order == SEQ_CST);
}

/* A locked instruction empties the store buffer, whichever place it changes. */
static void drain(void)
{
    if (ex.memory == MODEL_TSO && ex.tso.count[ex.self] > 0) {
        struct op op = {.kind = OP_FENCE, .order = SEQ_CST};
        runtime_stop(&op);
    }
}

static uint64_t atomic(struct op *op)
{
    op->operand = cut(op->operand, op->size_bytes);
    op->expected = cut(op->expected, op->size_bytes);
    if (!is_running())
        return do_at_once(op);
    if (!is_shared(op->at)) {
        if (is_locked(op))
            drain();
        return do_at_once(op);
    }
    bool is_write = op->kind != OP_LOAD;
    before_access();
    if (op->at % op->size_bytes != 0)
        step_fail("an atomic access that is not aligned");
    if (world_is_step(ex.self, op->at, op->size_bytes, is_write)) {
        uint64_t result = runtime_stop(op);
        op->has_failed = ex.machine.process[ex.self].op.has_failed;
        return result;
    }
    if (is_locked(op))
        drain();
    if (is_write)
        before_write();
    uint64_t old = do_at_once(op);
    has_point |= is_write;
    return old;
}

static uint64_t load(const volatile void *at, uint32_t size_bytes, int order, const void *from)
{
    struct op op = {.kind = OP_LOAD,
                    .size_bytes = (uint8_t)size_bytes,
                    .order = (uint8_t)order,
                    .at = (uint64_t)at,
                    .from = from};
    return atomic(&op);
}

static void store(volatile void *at, uint32_t size_bytes, uint64_t value, int order,
                  const void *from)
{
    struct op op = {.kind = OP_STORE,
                    .size_bytes = (uint8_t)size_bytes,
                    .order = (uint8_t)order,
                    .at = (uint64_t)at,
                    .operand = value,
                    .from = from};
    atomic(&op);
}

static uint64_t modify(volatile void *at, uint32_t size_bytes, enum rmw rmw, uint64_t value,
                       int order, const void *from)
{
    struct op op = {.kind = OP_RMW,
                    .rmw = (uint8_t)rmw,
                    .size_bytes = (uint8_t)size_bytes,
                    .order = (uint8_t)order,
                    .at = (uint64_t)at,
                    .operand = value,
                    .from = from};
    return atomic(&op);
}

/* @return the value before; also op->result, if the swap failed though the value was right */
static uint64_t swap(volatile void *at, uint32_t size_bytes, uint64_t expected, uint64_t value,
                     bool is_weak, int order, int fail_order, const void *from, bool *ret_done)
{
    struct op op = {.kind = OP_CAS,
                    .size_bytes = (uint8_t)size_bytes,
                    .is_weak = is_weak,
                    .order = (uint8_t)order,
                    .fail_order = (uint8_t)fail_order,
                    .at = (uint64_t)at,
                    .operand = value,
                    .expected = expected,
                    .from = from};
    uint64_t old = atomic(&op);
    *ret_done = old == op.expected && !op.has_failed;
    return old;
}

#define FROM      __builtin_return_address(0)
#define CAT(bits) uint##bits##_t
#define FETCH(bits, name, rmw)                                                                 \
    CAT(bits)                                                                                  \
    __tsan_atomic##bits##_##name(volatile CAT(bits) * at, CAT(bits) value, int order)          \
    {                                                                                          \
        return (CAT(bits))modify(at, bits / 8, rmw, value, order, FROM);                       \
    }
#define ATOMICS(bits)                                                                          \
    CAT(bits) __tsan_atomic##bits##_load(const volatile CAT(bits) * at, int order)             \
    {                                                                                          \
        return (CAT(bits))load(at, bits / 8, order, FROM);                                     \
    }                                                                                          \
    void __tsan_atomic##bits##_store(volatile CAT(bits) * at, CAT(bits) value, int order)      \
    {                                                                                          \
        store(at, bits / 8, value, order, FROM);                                               \
    }                                                                                          \
    FETCH(bits, exchange, RMW_EXCHANGE)                                                        \
    FETCH(bits, fetch_add, RMW_ADD)                                                            \
    FETCH(bits, fetch_sub, RMW_SUB)                                                            \
    FETCH(bits, fetch_and, RMW_AND)                                                            \
    FETCH(bits, fetch_or, RMW_OR)                                                              \
    FETCH(bits, fetch_xor, RMW_XOR)                                                            \
    FETCH(bits, fetch_nand, RMW_NAND)                                                          \
    int __tsan_atomic##bits##_compare_exchange_strong(                                         \
        volatile CAT(bits) * at, CAT(bits) * old, CAT(bits) value, int order, int fail_order)  \
    {                                                                                          \
        bool is_done;                                                                          \
        uint64_t got =                                                                         \
            swap(at, bits / 8, *old, value, false, order, fail_order, FROM, &is_done);         \
        if (!is_done)                                                                          \
            give(old, got, bits / 8);                                                          \
        return is_done;                                                                        \
    }                                                                                          \
    int __tsan_atomic##bits##_compare_exchange_weak(                                           \
        volatile CAT(bits) * at, CAT(bits) * old, CAT(bits) value, int order, int fail_order)  \
    {                                                                                          \
        bool is_done;                                                                          \
        uint64_t got =                                                                         \
            swap(at, bits / 8, *old, value, true, order, fail_order, FROM, &is_done);          \
        if (!is_done)                                                                          \
            give(old, got, bits / 8);                                                          \
        return is_done;                                                                        \
    }                                                                                          \
    CAT(bits)                                                                                  \
    __tsan_atomic##bits##_compare_exchange_val(volatile CAT(bits) * at, CAT(bits) old,         \
                                               CAT(bits) value, int order, int fail_order)     \
    {                                                                                          \
        bool is_done;                                                                          \
        return (CAT(bits))swap(at, bits / 8, old, value, false, order, fail_order, FROM,       \
                               &is_done);                                                      \
    }

/*
 * Store the value that a failed compare-and-swap found. It may lie outside of the process's
 * stack.
 */
static void give(void *to, uint64_t value, uint32_t size_bytes)
{
    if (ex.is_inside)
        world_note((uint64_t)to, size_bytes);
    memcpy(to, &value, size_bytes);
}

ATOMICS(8)
ATOMICS(16)
ATOMICS(32)
ATOMICS(64)

void __tsan_atomic_thread_fence(int order)
{
    if (!is_running())
        return;
    if (order == SEQ_CST && ex.memory == MODEL_C11) {
        struct op op = {.kind = OP_FENCE, .order = SEQ_CST, .from = FROM};
        before_access();
        runtime_stop(&op);
    } else if (order == SEQ_CST) {
        drain();
    } else if (ex.memory == MODEL_C11) {
        before_access();
        views_fence(ex.self, (uint8_t)order);
    }
}

void __tsan_atomic_signal_fence(int order) { (void)order; }
