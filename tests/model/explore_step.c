/* SPDX-License-Identifier: Apache-2.0 */
/*
 * explore_step: what can happen next, and what each step does.
 *
 * A process whose next op only itself can see (OP_POINT, OP_CHOOSE) goes first; no order of
 * steps is lost by that.
 */
#include "explore.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MOST_LOOKS = 3 };

bool step_has_written; /* since its last stop the process has written something that others, or
                          check(), may see */

void step_fail(const char *format, ...)
{
    va_list arguments;
    if (ex.has_failed)
        return;
    ex.has_failed = true;
    va_start(arguments, format);
    vsnprintf(ex.failure, sizeof ex.failure, format, arguments);
    va_end(arguments);
}

static struct process *at(unsigned process) { return &ex.machine.process[process]; }
static bool can_kill(void) { return ex.machine.kills < ex.model->kills; }
static uint32_t buffered(unsigned process)
{
    return ex.memory == MODEL_TSO ? ex.tso.count[process] : 0;
}

/* ---- what can happen --------------------------------------------------------------------- */

static unsigned sleepers_on(uint64_t word, uint8_t ret[PROCESSES])
{
    unsigned count = 0;
    for (unsigned p = 0; p < ex.model->process_count; p++)
        if (at(p)->status == SLEEPING && at(p)->op.at == word)
            ret[count++] = (uint8_t)p;
    return count;
}

/* The choices of a wake-up: every set of that many sleepers. */
static unsigned wake_choices(const struct op *op)
{
    uint8_t sleepers[PROCESSES];
    unsigned count = sleepers_on(op->at, sleepers), choices = 0;
    if (op->operand >= count)
        return 1;
    for (unsigned set = 0; set < 1u << count; set++)
        choices += (unsigned)__builtin_popcount(set) == op->operand;
    return choices;
}

static unsigned choices_of(unsigned process, const struct op *op)
{
    switch (op->kind) {
    case OP_CHOOSE:
        return (unsigned)op->operand;
    case OP_WAKE:
        return buffered(process) == 0 ? wake_choices(op) : 0;
    case OP_RETURN:
        return buffered(process) == 0;
    case OP_POINT:
    case OP_LOOK:
        return 1;
    default:
        return memory_choices(process, op);
    }
}

struct list {
    struct transition *at;
    unsigned count, most;
};

static void add(struct list *list, unsigned process, enum what what, unsigned choice)
{
    if (list->count == list->most) {
        step_fail("too many transitions of one state");
        return;
    }
    list->at[list->count++] =
        (struct transition){(uint8_t)process, (uint8_t)what, (uint16_t)choice};
}

static void list_process(struct list *list, unsigned p)
{
    const struct process *process = at(p);
    unsigned choices = process->status == ALIVE ? choices_of(p, &process->op) : 0;
    for (unsigned c = 0; c < choices; c++)
        add(list, p, DO_STEP, c);
    if (process->status == SLEEPING &&
        (process->op.nap == NAP_TIMED ||
         (process->op.nap == NAP_SLICE && process->slices_used < ex.machine.deaths)))
        add(list, p, DO_TIME_OUT, 0);
    /*
     * A process that waits checks again without a change, if there are stores that it has not
     * seen.
     */
    if (process->status == BLOCKED && ex.memory == MODEL_C11 && views_has_unseen(p))
        add(list, p, DO_STEP, 0);
    if (process->status <= SLEEPING && process->can_die && can_kill())
        add(list, p, DO_KILL, 0);
    if (buffered(p) > 0)
        add(list, p, DO_FLUSH, 0);
    else if (process->status == DYING)
        add(list, p, DO_BURY, 0);
}

/* Whether any process can go on; a kill does not count. */
static bool can_go_on(const struct list *list)
{
    for (unsigned i = 0; i < list->count; i++)
        if (list->at[i].what != DO_KILL)
            return true;
    return false;
}

/*
 * No other process can go on. A process that yielded may have missed a change that came while
 * it checked, so it checks once more. After that, waits time out.
 */
static void list_last_resorts(struct list *list)
{
    for (unsigned p = 0; p < ex.model->process_count; p++)
        if (at(p)->status == BLOCKED && !at(p)->has_looked)
            add(list, p, DO_STEP, 0);
    for (unsigned p = 0; p < ex.model->process_count && !can_go_on(list); p++)
        if (at(p)->status == BLOCKED && at(p)->op.nap == NAP_TIMED)
            add(list, p, DO_TIME_OUT, 0);
}

unsigned step_list(struct transition *ret, unsigned most)
{
    struct list list = {ret, 0, most};
    for (unsigned p = 0; p < ex.model->process_count; p++)
        if (at(p)->status == ALIVE &&
            (at(p)->op.kind == OP_POINT || at(p)->op.kind == OP_CHOOSE)) {
            for (unsigned c = 0; c < choices_of(p, &at(p)->op); c++)
                add(&list, p, DO_STEP, c);
            if (at(p)->can_die && can_kill())
                add(&list, p, DO_KILL, 0);
            return list.count;
        }
    for (unsigned p = 0; p < ex.model->process_count; p++)
        list_process(&list, p);
    if (!can_go_on(&list))
        list_last_resorts(&list);
    return list.count;
}

bool step_is_stuck(const struct transition *list, unsigned count)
{
    if (can_go_on(&(struct list){(struct transition *)list, count, count}))
        return false;
    for (unsigned p = 0; p < ex.model->process_count; p++)
        if (at(p)->status <= SLEEPING)
            return true;
    return false;
}

void step_check_invariant(void)
{
    enum phase before = ex.phase;
    ex.phase = PHASE_LOOK;
    if (ex.model->invariant != NULL && !ex.has_failed)
        ex.model->invariant();
    ex.phase = before;
}

/* ---- doing it ---------------------------------------------------------------------------- */

static void go_on(unsigned process, bool was_written);

/*
 * If something changed since the last yield, the process may have missed it, so it checks
 * once more.
 */
void reach_yield(unsigned process)
{
    struct process *p = at(process);
    if (!ex.yields[process])
        ex.yields[process] = ex.has_learned = true;
    if (p->has_news) {
        p->has_news = false;
        p->op.result = 1;
        go_on(process, p->can_die);
    } else {
        p->status = BLOCKED;
    }
}

static void go_on(unsigned process, bool was_written)
{
    step_has_written = false;
    process_run(process);
    struct process *p = at(process);
    p->can_die = was_written || step_has_written;
    if (p->op.kind == OP_YIELD)
        reach_yield(process);
}

/* Something changed: a process that waits for any change checks again. */
static void tell_blocked(unsigned except)
{
    for (unsigned p = 0; p < ex.model->process_count; p++) {
        at(p)->has_looked = false;
        at(p)->looks = 0;
    }
    for (unsigned p = 0; p < ex.model->process_count && !ex.has_failed; p++)
        if (p != except && at(p)->status != BLOCKED) {
            at(p)->has_news = ex.yields[p] && at(p)->status <= SLEEPING;
        } else if (p != except) {
            at(p)->status = ALIVE;
            at(p)->op.result = 1;
            go_on(p, at(p)->can_die);
        }
}

static void wake_process(unsigned process, bool is_timeout)
{
    struct process *p = at(process);
    p->status = ALIVE;
    p->op.kind = OP_POINT;
    p->op.result = !is_timeout;
    if (!can_kill())
        go_on(process, false);
}

static void wake_some(struct op *op, unsigned choice)
{
    uint8_t sleepers[PROCESSES];
    unsigned count = sleepers_on(op->at, sleepers), set = (1u << count) - 1;
    if (op->operand < count)
        for (set = 0;; set++)
            if ((unsigned)__builtin_popcount(set) == op->operand && choice-- == 0)
                break;
    op->result = (uint64_t)__builtin_popcount(set);
    for (unsigned i = 0; i < count; i++)
        if ((set >> i & 1) != 0)
            wake_process(sleepers[i], false);
}

static void fall_asleep(unsigned process, unsigned choice)
{
    struct process *p = at(process);
    memory_do(process, &p->op, choice);
    uint64_t seen = p->op.result;
    p->op.result = 1;
    if (seen == p->op.operand) {
        p->status = SLEEPING;
        p->op.kind = OP_ASLEEP;
        p->can_die = true;
    } else {
        go_on(process, false);
    }
}

uint64_t step_look(unsigned process, const struct op *op)
{
    unsigned other = (unsigned)op->operand;
    enum status wanted = op->rmw != 0 ? DEAD : ENDED;
    bool is_so = at(other)->status == wanted;
    if (is_so && ex.memory == MODEL_C11)
        views_see_end(process, other);
    return is_so;
}

static void do_step(unsigned process, unsigned choice)
{
    struct process *p = at(process);
    bool is_seen = false;
    switch (p->op.kind) {
    case OP_SLEEP:
        fall_asleep(process, choice);
        return;
    case OP_WAKE:
        if (ex.memory == MODEL_C11)
            views_fence(process, SEQ_CST);
        wake_some(&p->op, choice);
        is_seen = p->op.result > 0;
        break;
    case OP_RETURN:
        p->status = ENDED;
        tell_blocked(process);
        return;
    case OP_CHOOSE:
        p->op.result = choice;
        break;
    case OP_LOOK:
        p->op.result = step_look(process, &p->op);
        break;
    case OP_YIELD:
        p->op.result = 1;
        /*
         * A write becomes visible after a finite time: a process that waits does not read old
         * values for ever.
         */
        if (ex.memory == MODEL_C11 && ++p->looks > MOST_LOOKS)
            views_catch_up(process);
        /* In C11, this check may have read an old value, so it does not count. */
        p->has_looked = ex.memory != MODEL_C11 || !views_has_unseen(process);
        break;
    case OP_POINT:
        break;
    default:
        is_seen = memory_do(process, &p->op, choice);
        break;
    }
    trace_result(p->op.result);
    go_on(process, is_seen);
    if (is_seen)
        tell_blocked(process);
}

/* Whether the answer to this op can no longer change. */
bool step_is_look_final(const struct op *op)
{
    const struct process *other = at((unsigned)op->operand);
    if (other->status == ENDED || other->status == DEAD)
        return true;
    return op->rmw != 0 && !can_kill() && other->status != DYING;
}

static void die(unsigned process)
{
    at(process)->status = DEAD;
    ex.machine.deaths++;
    tell_blocked(process);
}

void step_do(struct transition t)
{
    struct process *p = at(t.process);
    ex.result->steps++;
    switch (t.what) {
    case DO_STEP:
        p->status = ALIVE;
        do_step(t.process, t.choice);
        break;
    case DO_KILL:
        ex.machine.kills++;
        if (p->op.kind == OP_POINT || buffered(t.process) > 0)
            p->status = DYING;
        else
            die(t.process);
        break;
    case DO_BURY:
        die(t.process);
        break;
    case DO_FLUSH:
        memory_flush(t.process);
        tell_blocked(t.process);
        break;
    case DO_TIME_OUT:
        if (p->status == BLOCKED) {
            p->status = ALIVE;
            p->op.result = 0;
            go_on(t.process, p->can_die);
            break;
        }
        p->slices_used = (uint8_t)(p->slices_used + (p->op.nap == NAP_SLICE));
        wake_process(t.process, true);
        break;
    default:
        break;
    }
}
