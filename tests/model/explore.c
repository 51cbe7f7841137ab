/* SPDX-License-Identifier: Apache-2.0 */
/*
 * explore: the search. explore.h has the card of the whole explorer.
 *
 * The search goes depth first over states. A state that was visited is known by a hash of 128
 * bits; the probability that two of some ten million states have the same hash is below
 * 10^-23.
 */
#include "explore.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

struct explorer ex;

enum { MOST_TRANSITIONS = 256, MOST_FRAMES = 1 << 20, LEARN_RUNS = 4000, LEARN_QUIET = 400 };
#define DEFAULT_MOST_STATES UINT64_C(20000000)
#define SAVED_BYTES         (UINT64_C(8) << 30)

/* ---- states that were seen --------------------------------------------------------------- */

static struct seen {
    uint64_t (*at)[2];
    uint64_t count, size;
} seen;

static void *reserve(uint64_t size_bytes)
{
    void *got = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return got == MAP_FAILED ? NULL : got;
}

static void seen_open(uint64_t size)
{
    seen = (struct seen){reserve(size * sizeof *seen.at), 0, size};
}

static void seen_close(void)
{
    munmap(seen.at, seen.size * sizeof *seen.at);
    seen.at = NULL;
}

static bool seen_put(const uint64_t hash[2])
{
    uint64_t i = hash[0] & (seen.size - 1);
    for (; seen.at[i][0] != 0; i = (i + 1) & (seen.size - 1))
        if (seen.at[i][0] == hash[0] && seen.at[i][1] == hash[1])
            return false;
    memcpy(seen.at[i], hash, sizeof seen.at[i]);
    seen.count++;
    return true;
}

static bool seen_add(uint64_t hash[2])
{
    hash[0] |= hash[0] == 0;
    if (2 * seen.count >= seen.size) {
        struct seen old = seen;
        seen_open(2 * old.size);
        for (uint64_t i = 0; i < old.size; i++)
            if (old.at[i][0] != 0)
                seen_put(old.at[i]);
        munmap(old.at, old.size * sizeof *old.at);
    }
    return seen_put(hash);
}

static void hash_process(const struct process *p, unsigned number, uint64_t hash[2])
{
    uint64_t word = (uint64_t)p->status | (uint64_t)p->can_die << 8 |
                    (uint64_t)p->slices_used << 16 | (uint64_t)number << 24 |
                    (uint64_t)p->has_news << 48 | (uint64_t)p->has_looked << 49;
    if (p->status <= SLEEPING) {
        word |= (uint64_t)p->op.kind << 32 | (uint64_t)p->op.nap << 40;
        hash[0] += mix(p->hash[0] ^ number, word);
        hash[1] += mix(p->hash[1] ^ number, p->op.result ^ word);
    }
    hash[0] = mix(hash[0], word);
    hash[1] = mix(hash[1], word);
}

static void hash_state(uint64_t hash[2])
{
    hash[0] = world_hash[0] ^ ex.machine.kills;
    hash[1] = world_hash[1] ^ ex.machine.deaths;
    for (unsigned p = 0; p < ex.model->process_count; p++) {
        hash_process(&ex.machine.process[p], p, hash);
        for (uint32_t i = 0; ex.memory == MODEL_TSO && i < ex.tso.count[p]; i++) {
            const struct tso_entry *e = &ex.tso.entry[p][i];
            hash[0] = mix(hash[0], e->at ^ e->value);
            hash[1] = mix(hash[1] ^ e->value, e->at + p);
        }
    }
    if (ex.memory == MODEL_C11)
        views_hash(hash);
}

/* ---- going there and back ---------------------------------------------------------------- */

struct frame {
    struct machine machine;
    uint64_t saved; /* what the memory model keeps */
    uint32_t world, images, first, count, next;
};
static struct frame *frames;
static struct transition *transitions;
static uint8_t *saved_memory;
static uint32_t depth;
static uint64_t saved_end;

static void save_machine(struct frame *f)
{
    for (unsigned p = 0; p < ex.model->process_count; p++)
        if (ex.machine.process[p].status <= SLEEPING &&
            ex.machine.process[p].image == UINT32_MAX)
            process_save(p);
    f->machine = ex.machine;
    f->world = world_mark();
    f->saved = saved_end;
    if (ex.memory == MODEL_TSO) {
        memcpy(saved_memory + saved_end, &ex.tso, sizeof ex.tso);
        saved_end += sizeof ex.tso;
    }
    if (ex.memory == MODEL_C11)
        saved_end += views_save(saved_memory + saved_end);
    if (saved_end > SAVED_BYTES - VIEWS_MOST_BYTES)
        step_fail("no room for what the memory model remembers: the run is too long");
}

static void load_machine(const struct frame *f)
{
    ex.machine = f->machine;
    world_undo(f->world);
    if (ex.memory == MODEL_TSO)
        memcpy(&ex.tso, saved_memory + f->saved, sizeof ex.tso);
    if (ex.memory == MODEL_C11)
        views_load(saved_memory + f->saved);
}

static bool push_frame(void)
{
    if (depth == MOST_FRAMES) {
        step_fail("a run of more than a million states");
        return false;
    }
    struct frame *f = &frames[depth];
    f->images = process_image_mark();
    save_machine(f);
    f->first = depth > 0 ? frames[depth - 1].first + frames[depth - 1].count : 0;
    f->count = step_list(transitions + f->first, MOST_TRANSITIONS);
    f->next = 0;
    depth++;
    if (step_is_stuck(transitions + f->first, f->count))
        step_fail("all sleep");
    return !ex.has_failed;
}

static void pop_frame(void)
{
    struct frame *f = &frames[--depth];
    saved_end = f->saved;
    process_forget_images(f->images);
}

/* ---- setup, check, invariant ------------------------------------------------------------- */

static void run_alone(void (*run)(void), enum phase phase)
{
    unsigned number = ex.model->process_count;
    enum phase before = ex.phase;
    ex.phase = phase;
    process_prepare(number, run);
    process_run(number);
    if (!ex.has_failed && ex.machine.process[number].op.kind != OP_RETURN)
        step_fail("setup or check waits for somebody");
    ex.phase = before;
}

static void check_end(void)
{
    ex.result->ends++;
    ex.result->killed += ex.machine.kills > 0;
    if (ex.model->check == NULL)
        return;
    uint32_t mark = world_mark();
    run_alone(ex.model->check, PHASE_CHECK);
    world_undo(mark);
}

/* Make one transition from the state of the machine. */
static void take(struct transition t)
{
    const struct process *p = &ex.machine.process[t.process];
    trace_push(t, &p->op, p->point);
    step_do(t);
    if (ex.memory == MODEL_C11)
        views_normalise();
    step_check_invariant();
}

/* Run each process from the base that setup() left up to its first step. */
static void start(void)
{
    runtime_reset();
    world_undo(0);
    process_forget_images(0);
    trace_cut(0);
    memset(&ex.machine, 0, sizeof ex.machine);
    memset(&ex.tso, 0, sizeof ex.tso);
    views_start();
    saved_end = 0;
    depth = 0;
    for (unsigned p = 0; p < ex.model->process_count && !ex.has_failed; p++) {
        process_prepare(p, ex.model->run[p]);
        process_run(p);
        ex.machine.process[p].can_die = true;
        if (ex.machine.process[p].op.kind == OP_YIELD)
            reach_yield(p);
    }
}

/* ---- random runs ------------------------------------------------------------------------- */

static uint64_t random_state;
static uint64_t random_below(uint64_t below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (random_state >> 11) % below;
}

/* Choose one transition at random: mostly of the same process, and seldom a kill. */
static struct transition draw(const struct transition *list, unsigned count, unsigned favourite)
{
    if (random_below(4) != 0)
        for (unsigned i = 0; i < count; i++)
            if (list[i].process == favourite && list[i].what == DO_STEP && list[i].choice == 0)
                return list[i];
    struct transition t = list[random_below(count)];
    return t.what == DO_KILL && random_below(8) != 0 ? list[random_below(count)] : t;
}

static void find_races(void)
{
    for (unsigned a = 0; a < ex.model->process_count; a++)
        for (unsigned b = 0; b < ex.model->process_count; b++) {
            const struct op *x = &ex.machine.process[a].op, *y = &ex.machine.process[b].op;
            bool is_plain = x->kind == OP_PLAIN_READ || x->kind == OP_PLAIN_WRITE;
            bool is_access =
                y->kind >= OP_LOAD && y->kind <= OP_PLAIN_WRITE && y->kind != OP_FENCE;
            bool is_write =
                x->kind == OP_PLAIN_WRITE || (y->kind != OP_LOAD && y->kind != OP_PLAIN_READ);
            if (a == b || !is_plain || !is_access || !is_write ||
                ex.machine.process[a].status != ALIVE || ex.machine.process[b].status != ALIVE)
                continue;
            if (x->at < y->at + y->span_bytes && y->at < x->at + x->span_bytes)
                world_mark_race(x->at, x->span_bytes, x->from);
        }
}

static void run_randomly(const struct frame *base)
{
    struct transition list[MOST_TRANSITIONS];
    unsigned favourite = 0;
    for (uint32_t steps = 0; !ex.has_failed && steps < 20000; steps++) {
        unsigned count = step_list(list, MOST_TRANSITIONS);
        if (step_is_stuck(list, count))
            step_fail("all sleep");
        if (ex.has_failed)
            break;
        if (count == 0) {
            check_end();
            break;
        }
        if (random_below(16) == 0)
            favourite = (unsigned)random_below(ex.model->process_count);
        if (ex.memory != MODEL_C11)
            find_races();
        take(draw(list, count, favourite));
    }
    if (ex.has_failed)
        return;
    trace_cut(0);
    load_machine(base);
}

/* The first steps are seen by no other process only if no place that they touch is shared. */
static bool start_knowingly(void)
{
    do {
        ex.has_learned = ex.has_failed = false;
        start();
    } while (ex.has_learned);
    return !ex.has_failed && push_frame();
}

static void learn(void)
{
    random_state = UINT64_C(88172645463325252);
    ex.phase = PHASE_LEARN;
    if (!start_knowingly())
        return;
    for (unsigned run = 0, quiet = 0; run < LEARN_RUNS && quiet < LEARN_QUIET; run++, quiet++) {
        run_randomly(&frames[0]);
        if (!ex.has_learned && ex.has_failed)
            return;
        bool has_learned = ex.has_learned; /* then the failure may be one of the search */
        if (has_learned && !start_knowingly())
            return;
        if (has_learned)
            quiet = 0;
    }
    pop_frame();
    ex.result->ends = ex.result->killed = 0;
}

/* ---- every run --------------------------------------------------------------------------- */

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static uint64_t end_ns;

static void check_limits(void)
{
    uint64_t most = ex.model->most_states != 0 ? ex.model->most_states : DEFAULT_MOST_STATES;
    if (seen.count > most) {
        ex.result->is_too_large = true;
        step_fail("more than %llu states", (unsigned long long)most);
    }
    if (end_ns != 0 && seen.count % 4096 == 0 && now_ns() > end_ns) {
        ex.result->is_too_large = true;
        step_fail("not done in time, after %llu states", (unsigned long long)seen.count);
    }
}

static void visit(void)
{
    uint64_t hash[2];
    hash_state(hash);
    if (!seen_add(hash))
        return;
    check_limits();
    if (!ex.has_failed && push_frame() && frames[depth - 1].count == 0)
        check_end();
}

/* @return false: the search had taken a place for unshared, and must begin again */
static bool search(void)
{
    uint64_t begin_again_at = UINT64_MAX;
    ex.phase = PHASE_SEARCH;
    ex.has_learned = false;
    ex.result->ends = ex.result->killed = ex.result->steps = 0;
    start();
    seen_open(1 << 16);
    if (!ex.has_failed)
        visit();
    while (depth > 0 && !ex.has_failed) {
        struct frame *f = &frames[depth - 1];
        if (f->next == f->count) {
            pop_frame();
            continue;
        }
        trace_cut(depth - 1);
        load_machine(f);
        take(transitions[f->first + f->next++]);
        if (!ex.has_failed)
            visit();
        if (ex.has_learned && begin_again_at == UINT64_MAX)
            begin_again_at = 2 * seen.count + 1000;
        if (seen.count >= begin_again_at)
            break;
    }
    ex.result->states = seen.count;
    seen_close();
    if (ex.has_learned)
        ex.has_failed = false; /* the failure may be one of the search */
    return !ex.has_learned;
}

static void explore(void)
{
    run_alone(ex.model->setup, PHASE_SETUP);
    world_reclaim_base();
    if (!ex.has_failed)
        learn();
    while (!ex.has_failed && !search())
        ex.restarts++;
}

static char sentence[512];

bool model_explore(const struct model *model, enum model_memory memory, unsigned seconds,
                   struct model_result *ret_result)
{
    if (frames == NULL) {
        frames = reserve(MOST_FRAMES * sizeof *frames);
        transitions = reserve((uint64_t)MOST_FRAMES * MOST_TRANSITIONS * sizeof *transitions);
        saved_memory = reserve(SAVED_BYTES);
    }
    memset(ret_result, 0, sizeof *ret_result);
    memset(&ex, 0, sizeof ex);
    ex.model = model;
    ex.memory = memory;
    ex.result = ret_result;
    end_ns = seconds != 0 ? now_ns() + seconds * UINT64_C(1000000000) : 0;
    process_open();
    world_open();
    views_open();
    trace_clear();
    explore();
    if (ex.has_failed) {
        snprintf(sentence, sizeof sentence, "%s", ex.failure);
        ret_result->failure = sentence;
        trace_write(ret_result->trace, sizeof ret_result->trace);
    }
    views_close();
    world_close();
    return !ex.has_failed;
}
