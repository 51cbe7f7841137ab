/* SPDX-License-Identifier: Apache-2.0 */
/*
 * explore_world: the memory of a model.
 *
 * Its bytes lie at a fixed address, with a shadow beside them: what stood there when notes were
 * taken last. Every instrumented write is noted before it happens; later the noted words are
 * compared with the shadow, which gives the undo log and keeps the hash current.
 *
 * Static variables are private to a process, as after fork(): each that is ever written has a
 * word for each process in the mirror, which is memory of the model like any other.
 */
#include "explore.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { NOTES = 4096, STATICS = 4096, STATIC_SLOTS = 16384, COLUMNS = PROCESSES + 1 };

static uint64_t *shadow;
static uint64_t notes[NOTES];
static uint32_t note_count;

struct change {
    uint64_t at, old;
};
static struct change *changes;
static uint32_t change_count;
enum { MOST_CHANGES = 1 << 26 };

struct static_word {
    uint64_t *at;
    uint64_t original; /* its value before setup() */
};
static struct static_word statics[STATICS];
static uint32_t static_count;
static uint16_t static_slot[STATIC_SLOTS]; /* by address: the index + 1 of a static variable */
/* Those of which processes may have different values: few, though each step loads them all. */
static uint16_t varying[STATICS];
static uint32_t varying_count;
static bool is_varying[STATICS];

static uint32_t name_count, allowed_count;

uint64_t world_hash[2];

static void *map(uint64_t at, uint64_t size_bytes)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (at != 0 ? MAP_FIXED : 0);
    void *got = mmap((void *)at, size_bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    return got == MAP_FAILED ? NULL : got;
}

void world_open(void)
{
    map(WORLD_BASE, WORLD_BYTES);
    shadow = map(0, WORLD_BYTES);
    ex.place = map(0, WORLD_BYTES / PLACE_BYTES);
    changes = map(0, MOST_CHANGES * sizeof *changes);
    note_count = change_count = static_count = allowed_count = name_count = 0;
    world_hash[0] = world_hash[1] = 0;
    varying_count = 0;
    memset(static_slot, 0, sizeof static_slot);
    memset(is_varying, 0, sizeof is_varying);
}

void world_close(void)
{
    for (uint32_t i = 0; i < static_count; i++)
        *statics[i].at = statics[i].original;
    munmap((void *)WORLD_BASE, WORLD_BYTES);
    munmap(shadow, WORLD_BYTES);
    munmap(ex.place, WORLD_BYTES / PLACE_BYTES);
    munmap(changes, MOST_CHANGES * sizeof *changes);
}

/* ---- words ------------------------------------------------------------------------------- */

static bool is_world(uint64_t at) { return at >= WORLD_BASE && at < WORLD_END; }
static bool is_stack(uint64_t at) { return at >= STACKS_BASE && at < STACKS_END; }
static uint64_t *shadow_of(uint64_t at) { return &shadow[(at - WORLD_BASE) / 8]; }

static void toggle(uint64_t at, uint64_t value)
{
    world_hash[0] ^= mix(at, value);
    world_hash[1] ^= mix(value + UINT64_C(0x2545F4914F6CDD1D), at);
}

static void mark_varying(uint32_t index)
{
    if (is_varying[index])
        return;
    is_varying[index] = true;
    varying[varying_count++] = (uint16_t)index;
}

static void compare_word(uint64_t at)
{
    uint64_t value = *(uint64_t *)at, *old = shadow_of(at);
    if (value == *old)
        return;
    if (at >= MIRROR_BASE)
        mark_varying((uint32_t)((at - MIRROR_BASE) / 8 / COLUMNS));
    if (ex.phase != PHASE_SETUP) {
        if (change_count == MOST_CHANGES) {
            step_fail("the explorer's undo log is full");
            return;
        }
        changes[change_count++] = (struct change){at, *old};
        toggle(at, *old);
        toggle(at, value);
    }
    *old = value;
}

uint32_t world_mark(void) { return change_count; }

void world_undo(uint32_t mark)
{
    while (change_count > mark) {
        const struct change *c = &changes[--change_count];
        uint64_t *now = (uint64_t *)c->at;
        toggle(c->at, *now);
        toggle(c->at, c->old);
        *now = *shadow_of(c->at) = c->old;
    }
}

/* ---- static variables -------------------------------------------------------------------- */

static uint64_t mirror_at(uint32_t index, unsigned column)
{
    return MIRROR_BASE + ((uint64_t)index * COLUMNS + column) * 8;
}

/* Each process has the value that the variable had before it was first written. */
static uint32_t find_static(uint64_t at)
{
    uint32_t slot = (uint32_t)(mix(at, 1) % STATIC_SLOTS);
    for (; static_slot[slot] != 0; slot = (slot + 1) % STATIC_SLOTS)
        if ((uint64_t)statics[static_slot[slot] - 1].at == at)
            return static_slot[slot] - 1u;
    if (static_count == STATICS) {
        step_fail("too many static variables");
        return 0;
    }
    uint32_t index = static_count++;
    statics[index] = (struct static_word){(uint64_t *)at, *(uint64_t *)at};
    static_slot[slot] = (uint16_t)(index + 1);
    for (unsigned c = 0; c < COLUMNS; c++) {
        uint64_t mirror = mirror_at(index, c);
        *(uint64_t *)mirror = *shadow_of(mirror) = *(uint64_t *)at;
    }
    return index;
}

void world_load_statics(unsigned process)
{
    unsigned column = process < ex.model->process_count ? process : PROCESSES;
    for (uint32_t i = 0; i < varying_count; i++)
        *statics[varying[i]].at = *(uint64_t *)mirror_at(varying[i], column);
}

/* ---- notes ------------------------------------------------------------------------------- */

void world_take_notes(void)
{
    unsigned column = ex.self < ex.model->process_count ? ex.self : PROCESSES;
    for (uint32_t i = 0; i < note_count; i++) {
        uint64_t at = notes[i];
        if (!is_world(at)) {
            uint64_t mirror = mirror_at(find_static(at), column);
            *(uint64_t *)mirror = *(uint64_t *)at;
            at = mirror;
        }
        compare_word(at);
    }
    note_count = 0;
}

void world_note(uint64_t at, uint64_t size_bytes)
{
    if (is_stack(at))
        return;
    for (uint64_t word = at & ~UINT64_C(7); word < at + size_bytes; word += 8) {
        if (note_count == NOTES)
            world_take_notes();
        if (!is_world(word))
            find_static(word);
        notes[note_count++] = word;
    }
}

void world_reclaim_base(void)
{
    world_take_notes();
    for (uint32_t i = 0; i < static_count; i++)
        for (unsigned c = 0; c < COLUMNS; c++) {
            uint64_t mirror = mirror_at(i, c);
            *(uint64_t *)mirror = *shadow_of(mirror) = *statics[i].at;
        }
    varying_count = 0;
    memset(is_varying, 0, sizeof is_varying);
    change_count = 0;
    world_hash[0] = world_hash[1] = 0;
}

uint64_t world_read(uint64_t at, uint32_t size_bytes)
{
    uint64_t value = 0;
    memcpy(&value, (const void *)at, size_bytes);
    return value;
}

void world_write(uint64_t at, uint32_t size_bytes, uint64_t value)
{
    memcpy((void *)at, &value, size_bytes);
    compare_word(at & ~UINT64_C(7));
}

/* ---- places ------------------------------------------------------------------------------ */

static uint8_t *place_of(uint64_t at) { return &ex.place[(at - WORLD_BASE) / PLACE_BYTES]; }

static bool use_place(uint8_t *place, unsigned process, bool is_write)
{
    uint8_t seen = *place, owner = seen & PLACE_OWNER, me = (uint8_t)(process + 1);
    if ((seen & PLACE_SHARED) != 0)
        return true;
    if (owner == 0)
        seen |= me;
    else if (owner != me)
        seen |= PLACE_MANY;
    if (is_write)
        seen |= PLACE_WRITTEN;
    bool is_shared = (seen & (PLACE_MANY | PLACE_WRITTEN)) == (PLACE_MANY | PLACE_WRITTEN);
    if (is_shared) {
        seen |= PLACE_SHARED;
        ex.has_learned = true;
    }
    *place = seen;
    return is_shared;
}

/*
 * Whether other processes use these bytes. If the explorer took the place for unshared until
 * now, the search so far was wrong.
 */
bool world_is_step(unsigned process, uint64_t at, uint32_t size_bytes, bool is_write)
{
    bool is_step = false;
    for (uint64_t word = at & ~UINT64_C(7); word < at + size_bytes; word += PLACE_BYTES)
        is_step |= use_place(place_of(word), process, is_write);
    return is_step;
}

bool world_place_has(uint64_t at, uint32_t size_bytes, uint8_t flag)
{
    bool has = false;
    for (uint64_t word = at & ~UINT64_C(7); word < at + size_bytes; word += PLACE_BYTES)
        has |= (*place_of(word) & flag) != 0;
    return has;
}

static void mark_racy(uint64_t at, uint64_t size_bytes)
{
    for (uint64_t word = at & ~UINT64_C(7); word < at + size_bytes; word += PLACE_BYTES) {
        ex.has_learned |= (*place_of(word) & PLACE_RACY) == 0;
        *place_of(word) |= PLACE_RACY;
    }
}

/* ---- names ------------------------------------------------------------------------------- */

enum { NAMES = 256 };
static struct name {
    uint64_t at, size_bytes;
    const char *text;
} names[NAMES];

void world_add_name(uint64_t at, uint64_t size_bytes, const char *text)
{
    if (name_count < NAMES)
        names[name_count++] = (struct name){at, size_bytes, text};
}

void world_name(uint64_t at, char *text, size_t size_bytes)
{
    snprintf(text, size_bytes, "+%llx", (unsigned long long)(at - WORLD_BASE));
    for (uint32_t i = 0; i < name_count; i++)
        if (at >= names[i].at && at < names[i].at + names[i].size_bytes)
            snprintf(text, size_bytes, "%s+%llu", names[i].text,
                     (unsigned long long)(at - names[i].at));
}

/* ---- races ------------------------------------------------------------------------------- */

enum { ALLOWED = 64 };
static struct allowed {
    uint64_t at, size_bytes;
} allowed[ALLOWED];

void world_allow_race(uint64_t at, uint64_t size_bytes)
{
    if (allowed_count == ALLOWED) {
        step_fail("too many places where races are allowed");
        return;
    }
    allowed[allowed_count++] = (struct allowed){at, size_bytes};
    mark_racy(at, size_bytes);
}

bool world_is_allowed_race(uint64_t at)
{
    for (uint32_t i = 0; i < allowed_count; i++)
        if (at >= allowed[i].at && at < allowed[i].at + allowed[i].size_bytes)
            return true;
    return false;
}

void world_mark_race(uint64_t at, uint64_t size_bytes, const void *from)
{
    char where[160];
    if (!world_is_allowed_race(at)) {
        step_fail("race at %s", trace_place(from, where, sizeof where));
        return;
    }
    mark_racy(at, size_bytes);
}
