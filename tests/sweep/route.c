/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Routes: the fewest stops on the way to each boundary.
 *
 * A stop is a single step, or a run to the next arrival at a place. From i such a run ends at j
 * if place[j] is met nowhere between them; so the best i is the one that is cheapest to get to
 * among all since the last time that the place of j was met. A loop of a thousand turns is left
 * behind with one stop, at the first place after it.
 */
#include <string.h>
#include <sys/mman.h>

#include "sweep/tracer.h"

/*
 * One process records a run and others follow it, so they share this memory. It does not come
 * from malloc(): the heap of a victim is a copy of the sweep's, and must be the same as when
 * the run was recorded, before there were routes.
 */
static void *share(size_t size_bytes)
{
    void *at = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TN_CHECK(at != MAP_FAILED);
    return at;
}

struct trace *trace_make(void)
{
    struct trace *trace = share(sizeof *trace);
    trace->place = share(TRACE_MOST * sizeof *trace->place);
    trace->stops = share(TRACE_MOST * sizeof *trace->stops);
    trace->from = share(TRACE_MOST * sizeof *trace->from);
    return trace;
}

struct trace *trace_free(struct trace *trace)
{
    munmap(trace->from, TRACE_MOST * sizeof *trace->from);
    munmap(trace->stops, TRACE_MOST * sizeof *trace->stops);
    munmap(trace->place, TRACE_MOST * sizeof *trace->place);
    munmap(trace, sizeof *trace);
    return NULL;
}

/* ---- the last boundary with the same place ----------------------------------------------- */

struct met {
    uint64_t place;
    uint32_t at; /* boundary + 1; 0: this entry is free */
};

static uint32_t meet(struct met *table, uint32_t mask, uint64_t place, uint32_t now)
{
    uint32_t i = (uint32_t)((place * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & mask;
    while (table[i].at != 0 && table[i].place != place)
        i = (i + 1) & mask;
    uint32_t before = table[i].at;
    table[i] = (struct met){place, now + 1};
    return before;
}

/* ---- the cheapest of a range ------------------------------------------------------------- */

/* A tree over positions: node 1 is the root, a leaf is leaves + position. */
struct tree {
    uint32_t *best; /* [2 * leaves]: the cheapest position below the node */
    const uint32_t *stops;
    uint32_t leaves;
};

static uint32_t cheaper(const struct tree *tree, uint32_t a, uint32_t b)
{
    if (a == UINT32_MAX || b == UINT32_MAX)
        return a == UINT32_MAX ? b : a;
    return tree->stops[b] <= tree->stops[a] ? b : a;
}

static void put(struct tree *tree, uint32_t position)
{
    uint32_t node = tree->leaves + position;
    tree->best[node] = position;
    for (node /= 2; node > 0; node /= 2)
        tree->best[node] = cheaper(tree, tree->best[2 * node], tree->best[2 * node + 1]);
}

/* The cheapest of the positions first .. last - 1. */
static uint32_t find(const struct tree *tree, uint32_t first, uint32_t last)
{
    uint32_t best = UINT32_MAX, low = tree->leaves + first, high = tree->leaves + last;
    for (; low < high; low /= 2, high /= 2) {
        if ((low & 1) != 0)
            best = cheaper(tree, best, tree->best[low++]);
        if ((high & 1) != 0)
            best = cheaper(tree, best, tree->best[--high]);
    }
    return best;
}

void trace_route(struct trace *trace)
{
    uint32_t count = trace->count, mask = 1;
    while (mask < 2 * count)
        mask *= 2;
    size_t tree_bytes = 2 * (size_t)count * sizeof(uint32_t);
    struct met *table = share(mask * sizeof *table);
    uint32_t *stops = trace->stops;
    struct tree tree = {share(tree_bytes), stops, count};
    memset(tree.best, 0xff, tree_bytes);
    stops[0] = 0;
    trace->from[0] = 0;

    meet(table, mask - 1, trace->place[0], 0);
    put(&tree, 0);
    uint32_t last_one =
        0; /* the trace has no boundaries in there: a run to a breakpoint must not cross it */
    for (uint32_t j = 1; j < count; j++) {
        if (tracer_is_one(trace->place[j - 1]))
            last_one = j;
        /*
         * From the last place where the breakpoint was met, a run would not leave it: take
         * one step first.
         */
        uint32_t first = meet(table, mask - 1, trace->place[j], j);
        first = first > last_one ? first : last_one;
        uint32_t i = first < j ? find(&tree, first, j) : UINT32_MAX;
        bool runs = tracer_has_breakpoints() && i != UINT32_MAX && i != j - 1 &&
                    stops[i] + 1 < stops[j - 1] + 1;
        trace->from[j] = runs ? (int32_t)i : -1;
        stops[j] = 1 + (runs ? stops[i] : stops[j - 1]);
        put(&tree, j);
    }
    munmap(tree.best, tree_bytes);
    munmap(table, mask * sizeof *table);
}
