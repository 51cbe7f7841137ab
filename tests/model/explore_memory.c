/* SPDX-License-Identifier: Apache-2.0 */
/*
 * explore_memory: what a load may read under sequential consistency, and with a store buffer
 * for each process, as x86 has it. C11 is in explore_views.c.
 *
 * x86: stores go into the buffer, in order, and from there to memory at any time; a load looks
 * into its own process's buffer first. Locked instructions, sequentially consistent stores and
 * fences, and system calls wait until the buffer is empty.
 */
#include "explore.h"

#include <string.h>

uint64_t memory_apply(const struct op *op, uint64_t old)
{
    switch (op->rmw) {
    case RMW_ADD:
        return old + op->operand;
    case RMW_SUB:
        return old - op->operand;
    case RMW_AND:
        return old & op->operand;
    case RMW_OR:
        return old | op->operand;
    case RMW_XOR:
        return old ^ op->operand;
    case RMW_NAND:
        return ~(old & op->operand);
    default:
        return op->operand;
    }
}

/* ---- the store buffer -------------------------------------------------------------------- */

static uint64_t read_through(unsigned process, uint64_t at, uint32_t size_bytes)
{
    uint32_t n = ex.memory == MODEL_TSO ? ex.tso.count[process] : 0;
    while (n-- > 0) {
        const struct tso_entry *e = &ex.tso.entry[process][n];
        if (e->at == at && e->size_bytes == size_bytes)
            return e->value;
        if (e->at < at + size_bytes && at < e->at + e->size_bytes)
            step_fail("a load of a part of what the store buffer holds");
    }
    return world_read(at, size_bytes);
}

static void buffer(unsigned process, uint64_t at, uint32_t size_bytes, uint64_t value)
{
    struct tso_entry *e = &ex.tso.entry[process][ex.tso.count[process]++];
    *e = (struct tso_entry){at, value, size_bytes};
}

void memory_flush(unsigned process)
{
    struct tso_entry *e = ex.tso.entry[process];
    uint32_t left = --ex.tso.count[process];
    world_write(e[0].at, e[0].size_bytes, e[0].value);
    memmove(e, e + 1, left * sizeof *e);
    memset(e + left, 0, sizeof *e);
}

void memory_drain(unsigned process)
{
    while (ex.memory == MODEL_TSO && ex.tso.count[process] > 0)
        memory_flush(process);
}

/* Whether the op is on a machine word. Ranges are read and written at once. */
static bool is_word(const struct op *op) { return op->size_bytes != 0; }

static bool is_buffered(const struct op *op)
{
    return ex.memory == MODEL_TSO && op->kind == OP_STORE && op->order != SEQ_CST;
}

static bool needs_empty_buffer(const struct op *op)
{
    switch (op->kind) {
    case OP_LOAD:
    case OP_PLAIN_READ:
    case OP_PLAIN_WRITE:
    case OP_POINT:
    case OP_YIELD:
    case OP_CHOOSE:
    case OP_LOOK:
        return false;
    default:
        return !is_buffered(op);
    }
}

unsigned memory_choices(unsigned process, const struct op *op)
{
    if (ex.memory == MODEL_C11)
        return views_choices(process, op);
    if (ex.memory == MODEL_SC)
        return 1;
    uint32_t count = ex.tso.count[process];
    if (needs_empty_buffer(op))
        return count == 0;
    return is_buffered(op) || op->kind == OP_PLAIN_WRITE ? count < TSO_ENTRIES : 1;
}

bool memory_do(unsigned process, struct op *op, unsigned choice)
{
    if (ex.memory == MODEL_C11)
        return views_do(process, op, choice);
    uint64_t old = is_word(op) ? read_through(process, op->at, op->size_bytes) : 0;
    op->result = old;
    switch (op->kind) {
    case OP_LOAD:
        return false;
    case OP_STORE:
        if (is_buffered(op)) {
            buffer(process, op->at, op->size_bytes, op->operand);
            return true;
        }
        world_write(op->at, op->size_bytes, op->operand);
        return true;
    case OP_RMW:
        world_write(op->at, op->size_bytes, memory_apply(op, old));
        return true;
    case OP_CAS:
        if (old == op->expected)
            world_write(op->at, op->size_bytes, op->operand);
        return old == op->expected;
    case OP_PLAIN_READ: /* the process itself reads memory: put there the value that it may read
                         */
        op->expected = is_word(op) ? world_read(op->at, op->size_bytes) : 0;
        if (is_word(op))
            memcpy((void *)op->at, &old, op->size_bytes);
        return false;
    case OP_PLAIN_WRITE:
        op->expected = is_word(op) ? world_read(op->at, op->size_bytes) : 0;
        return true;
    default:
        return false;
    }
}

/*
 * Remove the value that was put into memory for the read; treat what the process wrote as a
 * store.
 */
void memory_after_plain(unsigned process, struct op *op)
{
    if (!is_word(op))
        return;
    uint64_t now = world_read(op->at, op->size_bytes);
    if (op->kind == OP_PLAIN_READ)
        memcpy((void *)op->at, &op->expected, op->size_bytes);
    if (op->kind == OP_PLAIN_WRITE && ex.memory == MODEL_C11)
        views_after_race(op, now);
    if (op->kind == OP_PLAIN_WRITE && ex.memory == MODEL_TSO) {
        memcpy((void *)op->at, &op->expected, op->size_bytes);
        buffer(process, op->at, op->size_bytes, now);
    }
}
