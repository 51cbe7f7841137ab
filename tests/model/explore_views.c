/* SPDX-License-Identifier: Apache-2.0 */
/*
 * explore_views: the memory model of C11.
 *
 * Source: J. Kang, C. Hur, O. Lahav, V. Vafeiadis, D. Dreyer, "A promising semantics for
 * relaxed-memory concurrency", POPL 2017, section 3, without promises: a load reads what was
 * stored before. What promises add are cycles of reads and program order, which RC11 (Lahav et
 * al., "Repairing sequential consistency in C/C++11", PLDI 2017) forbids.
 *
 * Nouns: atomic (an address), message (a store to it), position (of a message in the atomic's
 * modification order), view (of each atomic, the last position known). A load reads any message
 * at or after the position in its process's view, and raises the view. A message carries the
 * view of the process that released it; an acquire joins that view into the reader's. A store
 * goes to any position after the view, but not between a read-modify-write and the message that
 * this read.
 *
 * Sequentially consistent accesses and fences happen in the order in which they are explored,
 * which agrees with happens-before, as C17 7.17.3 has it. `order` holds, of each atomic, the
 * last position that is in this order. Other than a fence, such an access says nothing of other
 * atomics. A release sequence is its head and the read-modify-writes after it, as from C++20
 * on: what C11 allows beyond that is not relied upon.
 *
 * Plain accesses to bytes that several processes use must be ordered by happens-before: each
 * process's have a clock, and views carry the clocks that are known (Flanagan, Freund,
 * "FastTrack", PLDI 2009).
 *
 * Positions below what every living process knows are forgotten, and the others renumbered, so
 * that states which differ in the past alone are one.
 */
#include "explore_views.h"

#include <string.h>
#include <sys/mman.h>

struct views views;
struct known_atomic known_atomics[ATOMICS];
uint32_t known_atomic_count, known_cell_count;

static uint8_t *atomic_of; /* by byte: the number of the atomic + 1 */
static uint16_t *cell_of;  /* by byte: the number of the cell + 1 */

static void *map(uint64_t size_bytes)
{
    void *got = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return got == MAP_FAILED ? NULL : got;
}

void views_open(void)
{
    known_atomic_count = known_cell_count = 0;
    atomic_of = map(SHARED_BYTES);
    cell_of = map(SHARED_BYTES * sizeof *cell_of);
}

void views_close(void)
{
    munmap(atomic_of, SHARED_BYTES);
    munmap(cell_of, SHARED_BYTES * sizeof *cell_of);
}

/* ---- messages ---------------------------------------------------------------------------- */

static struct message *message_at(uint32_t atomic, uint32_t position)
{
    return &views.message[views.atomic[atomic].first + position];
}

static uint32_t newest(uint32_t atomic) { return views.atomic[atomic].count - 1u; }

void views_add_initial(uint32_t atomic)
{
    views.atomic[atomic] = (struct atomic){(uint16_t)views.message_count, 1};
    memset(&views.message[views.message_count], 0, sizeof views.message[0]);
    views.message[views.message_count++].value =
        world_read(known_atomics[atomic].at, known_atomics[atomic].size_bytes);
}

void views_start(void)
{
    memset(&views, 0, sizeof views);
    memset(views.has_told, true, sizeof views.has_told);
    for (uint32_t i = 0; i < known_atomic_count; i++)
        views_add_initial(i);
}

static uint32_t find_atomic(uint64_t at, uint32_t size_bytes)
{
    uint8_t *slot = &atomic_of[at - WORLD_BASE];
    if (*slot == 0 && known_atomic_count == ATOMICS) {
        step_fail("more than %d atomics", ATOMICS);
        return 0;
    }
    if (*slot == 0) {
        for (uint32_t i = 0; i < size_bytes; i++)
            if (slot[i] != 0)
                step_fail("accesses of several sizes to one atomic");
        memset(slot, (int)known_atomic_count + 1, size_bytes);
        known_atomics[known_atomic_count].at = at;
        known_atomics[known_atomic_count].size_bytes = size_bytes;
        views_add_initial(known_atomic_count++);
    }
    uint32_t atomic = *slot - 1u;
    if (known_atomics[atomic].at != at || known_atomics[atomic].size_bytes != size_bytes)
        step_fail("accesses of several sizes to one atomic");
    return atomic;
}

static void for_each_view(void (*each)(struct view *, uint32_t, uint32_t), uint32_t a,
                          uint32_t b)
{
    for (unsigned p = 0; p < ex.model->process_count; p++) {
        each(&views.now[p], a, b);
        each(&views.acquire[p], a, b);
        each(&views.release[p], a, b);
    }
    each(&views.order, a, b);
    for (uint32_t m = 0; m < views.message_count; m++)
        each(&views.message[m].view, a, b);
}

static void make_room(struct view *view, uint32_t atomic, uint32_t position)
{
    view->at[atomic] = (uint8_t)(view->at[atomic] + (view->at[atomic] >= position));
}

static struct message *insert(uint32_t atomic, uint32_t position)
{
    if (views.message_count == MESSAGES || views.atomic[atomic].count > 200) {
        ex.result->is_too_large = true;
        step_fail("more stores than the memory model has room for");
        return &views.message[0];
    }
    for_each_view(make_room, atomic, position);
    struct message *at = message_at(atomic, position);
    memmove(at + 1, at, (size_t)(&views.message[views.message_count++] - at) * sizeof *at);
    memset(at, 0, sizeof *at);
    views.atomic[atomic].count++;
    for (uint32_t i = atomic + 1; i < known_atomic_count; i++)
        views.atomic[i].first++;
    return at;
}

static void join(struct view *into, const struct view *from)
{
    for (uint32_t i = 0; i < known_atomic_count; i++)
        if (from->at[i] > into->at[i])
            into->at[i] = from->at[i];
    for (unsigned p = 0; p < PROCESSES; p++)
        if (from->clock[p] > into->clock[p])
            into->clock[p] = from->clock[p];
}

/* Join positions only, because the order of fences is no happens-before. */
static void join_positions(struct view *into, const struct view *from)
{
    for (uint32_t i = 0; i < known_atomic_count; i++)
        if (from->at[i] > into->at[i])
            into->at[i] = from->at[i];
}

/* ---- orders ------------------------------------------------------------------------------ */

static bool acquires(uint8_t order)
{
    return order == CONSUME || order == ACQUIRE || order == ACQ_REL || order == SEQ_CST;
}
static bool releases(uint8_t order)
{
    return order == RELEASE || order == ACQ_REL || order == SEQ_CST;
}

void views_fence(unsigned p, uint8_t order)
{
    if (acquires(order))
        join(&views.now[p], &views.acquire[p]);
    if (order == SEQ_CST) {
        join_positions(&views.now[p], &views.order);
        join_positions(&views.order, &views.now[p]);
    }
    if (releases(order)) {
        views.release[p] = views.now[p];
        views.has_told[p] = true;
    }
}

static void read_message(unsigned p, uint32_t atomic, uint32_t position, uint8_t order)
{
    const struct message *m = message_at(atomic, position);
    if (views.now[p].at[atomic] < position)
        views.now[p].at[atomic] = (uint8_t)position;
    join(&views.acquire[p], &m->view);
    if (acquires(order))
        join(&views.now[p], &m->view);
}

static struct message *write_message(unsigned p, uint32_t atomic, uint32_t position,
                                     uint8_t order, uint64_t value)
{
    struct message *m = insert(atomic, position);
    views.now[p].at[atomic] = (uint8_t)position;
    m->value = value;
    m->view = releases(order) ? views.now[p] : views.release[p];
    m->view.at[atomic] = (uint8_t)position;
    if (releases(order))
        views.has_told[p] = true;
    if (order == SEQ_CST && views.order.at[atomic] < position)
        views.order.at[atomic] = (uint8_t)position;
    if (position == newest(atomic))
        world_write(known_atomics[atomic].at, known_atomics[atomic].size_bytes, value);
    return m;
}

/* ---- choices ----------------------------------------------------------------------------- */

static uint32_t lowest(unsigned p, uint32_t atomic, bool is_in_order)
{
    uint32_t position = views.now[p].at[atomic];
    if (is_in_order && views.order.at[atomic] > position)
        position = views.order.at[atomic];
    return position;
}

static bool is_taken(uint32_t atomic, uint32_t position)
{
    return position < newest(atomic) && message_at(atomic, position + 1)->is_rmw;
}

/* Whether the op can read this message, or store after it. */
static bool is_choice(unsigned p, const struct op *op, uint32_t atomic, uint32_t position)
{
    bool is_right = message_at(atomic, position)->value == op->expected;
    uint8_t order = op->kind == OP_CAS && !is_right ? op->fail_order : op->order;
    if (position < lowest(p, atomic, order == SEQ_CST))
        return false;
    switch (op->kind) {
    case OP_STORE:
    case OP_PLAIN_WRITE:
    case OP_RMW:
        return !is_taken(atomic, position);
    case OP_CAS:
        return !is_right || !is_taken(atomic, position);
    default:
        return true;
    }
}

static bool is_access(const struct op *op)
{
    return (op->kind >= OP_LOAD && op->kind <= OP_CAS) || op->kind == OP_SLEEP ||
           ((op->kind == OP_PLAIN_READ || op->kind == OP_PLAIN_WRITE) && op->size_bytes != 0);
}

/* Find the n-th choice, from the newest message on. @return its position, or -1 */
static int nth_choice(unsigned p, const struct op *op, unsigned choice, unsigned *ret_count)
{
    uint32_t atomic = find_atomic(op->at, op->size_bytes);
    int found = -1;
    unsigned count = 0;
    for (uint32_t position = newest(atomic) + 1; position-- > 0;)
        if (is_choice(p, op, atomic, position) && count++ == choice)
            found = (int)position;
    *ret_count = count;
    return found;
}

unsigned views_choices(unsigned p, const struct op *op)
{
    unsigned count = 1;
    if (is_access(op))
        nth_choice(p, op, 0, &count);
    return count + (op->kind == OP_CAS && op->is_weak);
}

/* ---- plain accesses ---------------------------------------------------------------------- */

static struct cell *find_cell(uint64_t at)
{
    uint16_t *slot = &cell_of[at - WORLD_BASE];
    if (*slot == 0 && known_cell_count == CELLS) {
        step_fail("more than %d bytes are accessed plainly", CELLS);
        return &views.cell[0];
    }
    if (*slot == 0)
        *slot = (uint16_t)++known_cell_count;
    return &views.cell[*slot - 1];
}

static bool is_ordered(unsigned p, const struct cell *cell, bool is_write)
{
    const uint8_t *known = views.now[p].clock;
    if (cell->writer != p && cell->write_clock > known[cell->writer])
        return false;
    for (unsigned q = 0; is_write && q < ex.model->process_count; q++)
        if (q != p && cell->read_clock[q] > known[q])
            return false;
    return true;
}

/* Check an atomic access to a place that was written plainly before. */
static void check_plain_before(unsigned p, const struct op *op)
{
    char where[256];
    uint16_t cell = cell_of[op->at - WORLD_BASE];
    bool is_racy = op->kind == OP_PLAIN_READ || op->kind == OP_PLAIN_WRITE;
    if (cell != 0 && !is_racy && !is_ordered(p, &views.cell[cell - 1], op->kind != OP_LOAD))
        step_fail("race at %s", trace_place(op->from, where, sizeof where));
}

/* ---- doing it ---------------------------------------------------------------------------- */

static bool do_swap(unsigned p, struct op *op, uint32_t atomic, uint32_t position)
{
    op->has_failed =
        position >
        newest(atomic); /* a weak compare-and-swap may fail: that is its last choice */
    if (op->has_failed)
        position = newest(atomic);
    struct message seen = *message_at(atomic, position);
    op->result = seen.value;
    if (op->has_failed || seen.value != op->expected) {
        read_message(p, atomic, position, op->fail_order);
        return false;
    }
    read_message(p, atomic, position, op->order);
    struct message *m = write_message(p, atomic, position + 1, op->order, op->operand);
    m->is_rmw = true;
    join(&m->view, &seen.view);
    return true;
}

static bool do_modify(unsigned p, struct op *op, uint32_t atomic, uint32_t position)
{
    struct message seen = *message_at(atomic, position);
    uint32_t bits = 8 * known_atomics[atomic].size_bytes;
    uint64_t next = memory_apply(op, seen.value);
    op->result = seen.value;
    read_message(p, atomic, position, op->order);
    if (bits < 64)
        next &= (UINT64_C(1) << bits) - 1;
    struct message *m = write_message(p, atomic, position + 1, op->order, next);
    m->is_rmw = true;
    join(&m->view, &seen.view);
    return true;
}

bool views_do(unsigned p, struct op *op, unsigned choice)
{
    unsigned count;
    if (op->kind == OP_FENCE)
        views_fence(p, op->order);
    if (!is_access(op))
        return op->kind == OP_PLAIN_WRITE;
    uint32_t atomic = find_atomic(op->at, op->size_bytes);
    int found = nth_choice(p, op, choice, &count);
    uint32_t position = found >= 0 ? (uint32_t)found : newest(atomic) + 1;
    check_plain_before(p, op);
    if (op->kind == OP_SLEEP) {
        views_fence(p, op->order);
        if (views.now[p].at[atomic] > position)
            position = views.now[p].at[atomic];
    }
    switch (op->kind) {
    case OP_STORE:
        write_message(p, atomic, position + 1, op->order, op->operand);
        return true;
    case OP_RMW:
        return do_modify(p, op, atomic, position);
    case OP_CAS:
        return do_swap(p, op, atomic, position);
    case OP_PLAIN_WRITE:
        op->expected = world_read(op->at, op->size_bytes);
        op->operand = position + 1;
        write_message(p, atomic, position + 1, RELAXED, op->expected);
        return true;
    default:
        op->result = message_at(atomic, position)->value;
        read_message(p, atomic, position, op->kind == OP_PLAIN_READ ? RELAXED : op->order);
        if (op->kind == OP_PLAIN_READ) {
            op->expected = world_read(op->at, op->size_bytes);
            memcpy((void *)op->at, &op->result, op->size_bytes);
        }
        return false;
    }
}

/* A write that races has put its value into memory; put it into the message, too. */
void views_after_race(const struct op *op, uint64_t value)
{
    uint32_t atomic = find_atomic(op->at, op->size_bytes);
    message_at(atomic, (uint32_t)op->operand)->value = value;
    world_write(op->at, op->size_bytes, message_at(atomic, newest(atomic))->value);
}

bool views_has_unseen(unsigned p)
{
    for (uint32_t i = 0; i < known_atomic_count; i++)
        if (views.now[p].at[i] < newest(i))
            return true;
    return false;
}

void views_catch_up(unsigned p)
{
    for (uint32_t i = 0; i < known_atomic_count; i++)
        views.now[p].at[i] = (uint8_t)newest(i);
}

/* The kernel says that a process has ended: all that it did before is seen. */
void views_see_end(unsigned p, unsigned ended)
{
    if (p >= ex.model->process_count)
        return;
    views.has_told[ended] = true;
    join(&views.now[p], &views.now[ended]);
}

/* ---- plain accesses, done ---------------------------------------------------------------- */

static uint8_t tick(unsigned p)
{
    if (views.has_told[p])
        views.now[p].clock[p]++;
    views.has_told[p] = false;
    return views.now[p].clock[p];
}

void views_plain(unsigned p, uint64_t at, uint64_t size_bytes, bool is_write, const void *from)
{
    char where[256];
    uint8_t clock = tick(p);
    for (uint64_t byte = at; byte < at + size_bytes; byte++) {
        struct cell *cell = find_cell(byte);
        uint8_t atomic = atomic_of[byte - WORLD_BASE];
        if (!is_ordered(p, cell, is_write) ||
            (atomic != 0 && views.now[p].at[atomic - 1] < newest(atomic - 1u))) {
            step_fail("race at %s", trace_place(from, where, sizeof where));
            return;
        }
        if (is_write) {
            cell->writer = (uint8_t)p;
            cell->write_clock = clock;
        } else {
            cell->read_clock[p] = clock;
        }
    }
}

/* A plain write to an atomic that other processes did not know of yet. */
void views_after_plain(unsigned p, uint64_t at, uint64_t size_bytes)
{
    for (uint64_t byte = at; byte < at + size_bytes; byte++) {
        uint8_t atomic = atomic_of[byte - WORLD_BASE];
        if (atomic != 0 && (known_atomics[atomic - 1].at == byte || byte == at))
            write_message(
                p, atomic - 1u, newest(atomic - 1u) + 1, RELAXED,
                world_read(known_atomics[atomic - 1].at, known_atomics[atomic - 1].size_bytes));
    }
}

/* ---- one name for equal states ----------------------------------------------------------- */

static bool lives(unsigned p) { return ex.machine.process[p].status <= SLEEPING; }

static void forget(struct view *view, uint32_t atomic, uint32_t count)
{
    view->at[atomic] = (uint8_t)(view->at[atomic] > count ? view->at[atomic] - count : 0);
}

static void normalise_atomic(uint32_t atomic)
{
    uint32_t known = newest(atomic);
    for (unsigned p = 0; p < ex.model->process_count; p++)
        if (lives(p) && views.now[p].at[atomic] < known)
            known = views.now[p].at[atomic];
    struct message *first = message_at(atomic, 0);
    if (known != 0) {
        for_each_view(forget, atomic, known);
        memmove(first, first + known,
                (size_t)(&views.message[views.message_count] - (first + known)) *
                    sizeof *first);
        views.message_count -= known;
        views.atomic[atomic].count = (uint16_t)(views.atomic[atomic].count - known);
        for (uint32_t i = atomic + 1; i < known_atomic_count; i++)
            views.atomic[i].first = (uint16_t)(views.atomic[i].first - known);
    }
    first->is_rmw = false;
}

static void forget_clock(struct view *view, uint32_t process, uint32_t known)
{
    uint8_t *clock = &view->clock[process];
    *clock = (uint8_t)(*clock > known ? *clock - known : 0);
}

static uint8_t less(uint8_t clock, uint32_t known)
{
    return (uint8_t)(clock > known ? clock - known : 0);
}

static void normalise_clock(unsigned process)
{
    uint32_t known = views.now[process].clock[process];
    for (unsigned p = 0; p < ex.model->process_count; p++)
        if (lives(p) && views.now[p].clock[process] < known)
            known = views.now[p].clock[process];
    if (known == 0)
        return;
    for_each_view(forget_clock, process, known);
    for (uint32_t i = 0; i < known_cell_count; i++) {
        struct cell *cell = &views.cell[i];
        cell->read_clock[process] = less(cell->read_clock[process], known);
        if (cell->writer == process)
            cell->write_clock = less(cell->write_clock, known);
        if (cell->write_clock == 0)
            cell->writer = 0;
    }
}

void views_normalise(void)
{
    for (uint32_t i = 0; i < known_atomic_count; i++)
        normalise_atomic(i);
    for (unsigned p = 0; p < ex.model->process_count; p++) {
        normalise_clock(p);
        join(&views.acquire[p], &views.now[p]);
    }
}
