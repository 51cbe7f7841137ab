/* SPDX-License-Identifier: Apache-2.0 */
/* explore_door: the functions of model.h, which models call. */
#include "explore.h"

static bool is_running(void)
{
    return ex.is_inside && (ex.phase == PHASE_LEARN || ex.phase == PHASE_SEARCH);
}

static uint64_t up(uint64_t value, uint64_t alignment)
{
    return (value + alignment - 1) & ~(alignment - 1);
}

void *model_shared(size_t bytes, size_t alignment)
{
    uint64_t at = up(WORLD_BASE + ex.shared_end, alignment < 8 ? 8 : alignment);
    if (ex.phase != PHASE_SETUP || at + bytes > WORLD_BASE + SHARED_BYTES) {
        step_fail("model_shared() outside of setup, or no room");
        process_abandon();
    }
    ex.shared_end = at + bytes - WORLD_BASE;
    return (void *)at;
}

void *model_private(size_t bytes, size_t alignment)
{
    uint64_t at = up(PRIVATE_BASE + ex.private_end, alignment < 8 ? 8 : alignment);
    if (ex.phase != PHASE_SETUP || at + bytes > PRIVATE_BASE + PRIVATE_BYTES) {
        step_fail("model_private() outside of setup, or no room");
        process_abandon();
    }
    ex.private_end = at + bytes - PRIVATE_BASE;
    return (void *)at;
}

unsigned model_self(void) { return ex.self; }

/* ---- ends of others ---------------------------------------------------------------------- */

static bool look(unsigned process, bool is_for_death)
{
    struct op op = {.kind = OP_LOOK,
                    .rmw = is_for_death,
                    .operand = process,
                    .from = __builtin_return_address(0)};
    if (process >= ex.model->process_count || !is_running() || step_is_look_final(&op))
        return step_look(ex.self, &op) != 0;
    return runtime_stop(&op) != 0;
}

bool model_is_dead(unsigned process) { return look(process, true); }
bool model_has_ended(unsigned process) { return look(process, false); }

bool model_peek_dead(unsigned process)
{
    struct op op = {.kind = OP_LOOK, .rmw = true, .operand = process};
    return process < ex.model->process_count && step_look(ex.self, &op) != 0;
}

/* ---- the rest ---------------------------------------------------------------------------- */

void model_require(bool holds, const char *sentence)
{
    if (holds)
        return;
    step_fail("%s", sentence);
    if (ex.is_inside)
        process_abandon();
}

/* Dying here is the same as dying after the last write, which the explorer tries anyway. */
void model_point(const char *name) { ex.machine.process[ex.self].point = name; }

unsigned model_choose(unsigned count)
{
    struct op op = {.kind = OP_CHOOSE, .operand = count, .from = __builtin_return_address(0)};
    return count > 1 && is_running() ? (unsigned)runtime_stop(&op) : 0;
}

static bool sleep_on(_Atomic uint32_t *word, uint32_t seen, enum nap nap, const void *from)
{
    struct op op = {.kind = OP_SLEEP,
                    .size_bytes = 4,
                    .nap = (uint8_t)nap,
                    .order = SEQ_CST,
                    .at = (uint64_t)word,
                    .operand = seen,
                    .from = from};
    if (is_running())
        return runtime_stop(&op) != 0;
    if (*(uint32_t *)(uint64_t)word == seen && nap == NAP_UNTIL_WOKEN)
        model_require(false, "setup or check sleeps");
    return *(uint32_t *)(uint64_t)word != seen;
}

void model_sleep(_Atomic uint32_t *word, uint32_t seen)
{
    sleep_on(word, seen, NAP_UNTIL_WOKEN, __builtin_return_address(0));
}

bool model_sleep_timed(_Atomic uint32_t *word, uint32_t seen)
{
    return sleep_on(word, seen, NAP_TIMED, __builtin_return_address(0));
}

bool model_sleep_slice(_Atomic uint32_t *word, uint32_t seen)
{
    return sleep_on(word, seen, NAP_SLICE, __builtin_return_address(0));
}

unsigned model_wake(_Atomic uint32_t *word, unsigned count)
{
    struct op op = {.kind = OP_WAKE,
                    .at = (uint64_t)word,
                    .operand = count,
                    .from = __builtin_return_address(0)};
    return is_running() ? (unsigned)runtime_stop(&op) : 0;
}

static bool yield(enum nap nap, const void *from)
{
    struct op op = {.kind = OP_YIELD, .nap = (uint8_t)nap, .from = from};
    if (is_running())
        return runtime_stop(&op) != 0;
    model_require(nap == NAP_TIMED, "setup or check waits for somebody");
    return false;
}

void model_yield(void) { yield(NAP_UNTIL_WOKEN, __builtin_return_address(0)); }
bool model_yield_timed(void) { return yield(NAP_TIMED, __builtin_return_address(0)); }

void model_allow_race(const void *at, size_t bytes, const char *reason)
{
    (void)reason;
    world_allow_race((uint64_t)at, bytes);
}

void model_name(const void *at, size_t bytes, const char *name)
{
    world_add_name((uint64_t)at, bytes, name);
}

void model_outcome(unsigned number) { ex.result->outcomes |= UINT64_C(1) << number; }
