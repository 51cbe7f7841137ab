/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scribbler: a member that writes through wrong pointers. It writes random words, small
 * numbers, copies of other words, flipped bits and whole pages, mostly over words that are
 * not 0, so that it damages what is in use.
 */
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "world.h"

/* RING_BYTES: also the chains and entries of a store, which lie behind its list of changes. */
enum { MOST_AREAS = 128, LOOKS = 32, PAGE_BYTES = 4096, RING_BYTES = 16384 };

struct area {
    uint8_t *at;
    uint64_t size_bytes;
};

struct target {
    struct tni_segment *segment;
    struct area areas[MOST_AREAS];
    uint32_t count;
    bool is_seats;
};

static uint64_t below(uint64_t count) { return tnt_random_below(count); }

static void add(struct target *t, void *at, uint64_t size_bytes)
{
    if (t->count < MOST_AREAS && size_bytes >= 8)
        t->areas[t->count++] = (struct area){at, size_bytes & ~UINT64_C(7)};
}

static void add_control(struct target *t, uint64_t from, uint64_t to)
{
    add(t, tni_control_at(t->segment, from), to - from);
}

static void add_rings(struct target *t)
{
    const struct tni_segment *s = t->segment;
    for (uint32_t i = 0; i < s->geometry.objects; i++) {
        tni_block ring = {atomic_load(&tni_object_at(s, i)->ring)};
        if (tni_geometry_has_block(&s->geometry, ring.id))
            add(t, tni_payload_at(s, ring),
                TNI_MIN(tni_block_bytes(&s->geometry, ring), RING_BYTES));
    }
}

/*
 * The words that say how many records follow are areas of their own, so that they are damaged
 * more often.
 */
static void add_messages(struct target *t)
{
    const struct tni_segment *s = t->segment;
    for (uint32_t c = 1; c <= TNI_BACKING_CLASS; c++) {
        uint32_t frontier = tni_frontier(s, c);
        for (uint32_t i = 0; i < frontier && i < 8; i++) {
            tni_block block = tni_block_make(c, i);
            if (!tni_alloc_has_memory(s, block))
                continue;
            uint64_t size_bytes = tni_block_bytes(&s->geometry, block);
            add(t, tni_payload_at(s, block), 16);
            add(t, tni_payload_at(s, block), TNI_MIN(size_bytes, (uint64_t)PAGE_BYTES));
        }
    }
}

static void aim_at(struct target *t, enum section section)
{
    const struct tni_geometry *g = &t->segment->geometry;
    t->is_seats |= section == SECTION_SEATS || section == SECTION_HEADER;
    switch (section) {
    case SECTION_HEADER:
        add_control(t, 64, sizeof(struct tni_header));
        break;
    case SECTION_SEATS:
        add_control(t, g->seats_off, g->announces_off);
        break;
    case SECTION_ANNOUNCES:
        add_control(t, g->announces_off, g->classes_off);
        break;
    case SECTION_CLASSES:
        add_control(t, g->classes_off, g->words_off);
        break;
    case SECTION_WORDS:
        add_control(t, g->words_off, g->descs_off);
        break;
    case SECTION_DESCS:
        add_control(t, g->descs_off, g->hints_off);
        break;
    case SECTION_HINTS:
        add_control(t, g->hints_off, g->suspects_off);
        break;
    case SECTION_SUSPECTS:
        add_control(t, g->suspects_off, g->rows_off);
        break;
    case SECTION_ROWS:
        add_control(t, g->rows_off, g->objects_off);
        break;
    case SECTION_OBJECTS:
        add_control(t, g->objects_off, g->tickets_off);
        break;
    case SECTION_TICKETS:
        add_control(t, g->tickets_off, g->names_off);
        break;
    case SECTION_NAMES:
        add_control(t, g->names_off, g->opens_off);
        break;
    case SECTION_OPENS:
        add_control(t, g->opens_off, g->control_bytes);
        break;
    case SECTION_RINGS:
        add_rings(t);
        break;
    case SECTION_MESSAGES:
        add_messages(t);
        break;
    case SECTION_COUNT:
        for (uint32_t each = 0; each < SECTION_COUNT; each++)
            aim_at(t, (enum section)each);
        break;
    }
}

/* Choose a word of an area, nearly always one that is not 0. */
static uint8_t *find_word(const struct target *t)
{
    const struct area *area = &t->areas[below(t->count)];
    uint8_t *at = area->at;
    for (uint32_t look = 0; look < LOOKS; look++) {
        uint64_t word;
        at = area->at + 8 * below(area->size_bytes / 8);
        memcpy(&word, at, sizeof word);
        if (word != 0)
            break;
    }
    return at;
}

static void fill_page(const struct target *t)
{
    const struct area *area = &t->areas[below(t->count)];
    uint64_t most = TNI_MIN(area->size_bytes, (uint64_t)PAGE_BYTES);
    uint8_t *at =
        area->at + (area->size_bytes > most ? below(area->size_bytes / most) * most : 0);
    for (uint64_t i = 0; i + 8 <= most; i += 8) {
        uint64_t noise = tnt_random();
        memcpy(at + i, &noise, 8);
    }
}

static void write_once(const struct target *t, bool has_pages)
{
    static const uint64_t numbers[] = {0, 1, 2, 3, 0xff, 0xffff, 0x7fffffff, UINT32_MAX};
    uint8_t *at = find_word(t);
    uint64_t noise = tnt_random();
    uint64_t width = UINT64_C(1) << below(4), offset = below(8 / width) * width;
    switch (below(has_pages ? 33 : 32)) {
    case 0 ... 7:
        memcpy(at + offset, &noise, width);
        break;
    case 8 ... 13:
        memcpy(at + offset, &numbers[below(TNI_COUNT(numbers))], width);
        break;
    case 14 ... 15:
        memset(at, noise & 1 ? 0xff : 0, 8);
        break;
    case 16 ... 23: /* flipped bits */
        at[below(8)] ^= (uint8_t)(1u << below(8));
        break;
    case 24 ... 30: /* a copy of another word, which makes more sense than noise */
        memmove(at, find_word(t), width < 4 ? 4 : 8);
        break;
    case 31: /* one more or one less */
        at[offset] = (uint8_t)(at[offset] + (noise & 1 ? 1 : 255));
        break;
    default:
        fill_page(t);
        break;
    }
}

/*
 * No process can tell whether a member lives that is of another pid namespace, or that has no
 * witness and a random number for a pid; a domain with such a member is kept. So the
 * scribbler removes such members before it ends: it puts its own name into each seat without
 * a witness.
 */
static void name_members(const struct tni_segment *s, uint64_t pid_space)
{
    for (uint32_t seat = 0; seat < s->geometry.seats; seat++) {
        struct tni_seat *entry = tni_seat_at(s, seat);
        uint64_t word = atomic_load(&entry->word);
        uint32_t state = tni_seat_state(word);
        entry->pid_space = pid_space;
        if (state == TNI_SEAT_FREE || state == TNI_SEAT_REAPING ||
            (word & TNI_SEAT_WITNESSED) != 0)
            continue;
        atomic_store(&entry->pid, getpid());
        atomic_store(&entry->word,
                     tni_seat_word(tni_seat_incarnation(word), state, (uint32_t)getpid()));
    }
}

int scribble(void *argument)
{
    struct round *round = argument;
    struct board *board = round->board;
    struct target t = {0};
    tn_domain *d;
    TN_CHECK_OK(tn_domain_open(board->name, NULL, TN_OPEN_EXISTING, &d));
    uint64_t pid_space = d->me->pid_space;
    t.segment = &d->segment;
    for (uint32_t i = 0; i < 8; i++)
        tnt_random();
    /* Write so many times for so many steps of the workers. */
    uint64_t steps = UINT64_C(1) << below(9), writes = UINT64_C(1) << below(7);
    bool has_pages = below(4) == 0;
    tnt_signal(&round->ready);
    for (uint64_t at = 0; atomic_load(&board->stop) == 0;) {
        uint64_t now = atomic_load(&board->steps);
        if (now - at < steps) {
            tni_os_sleep_until(tni_os_now_ns() + 100000);
            continue;
        }
        at = now;
        t.count = 0;
        aim_at(&t, round->section);
        if (t.count == 0)
            continue;
        for (uint64_t i = 0; i < writes; i++)
            write_once(&t, has_pages);
        atomic_fetch_add(&board->writes, writes);
    }
    name_members(t.segment, pid_space);
    fflush(NULL);
    _exit(0); /* without leaving, so that its seat must be reclaimed, too */
}
