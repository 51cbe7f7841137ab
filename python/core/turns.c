/* SPDX-License-Identifier: Apache-2.0 */
/*
 * turns: the table of the threads that wait at a condition, in shared memory.
 *
 * The caller holds the gate of the condition (condition.c), except in tnp_turns_count().
 */
#include "turns.h"

struct tnp_turn_table {
    _Atomic uint64_t used; /* no thread has used rows from this number on */
    uint64_t spare;
    tnp_turn rows[];
};

enum { TOLD = 1, TICKET = 2 };

bool tnp_turns_init(tnp_turns *turns, const Py_buffer *memory)
{
    Py_ssize_t row_bytes = memory->len - (Py_ssize_t)sizeof(struct tnp_turn_table);
    turns->table = memory->buf;
    turns->most = row_bytes > 0 ? (uint64_t)row_bytes / sizeof(tnp_turn) : 0;
    return turns->most > 0 && (uintptr_t)memory->buf % _Alignof(struct tnp_turn_table) == 0;
}

bool tnp_turn_is_told(const tnp_turn *turn) { return (atomic_load(&turn->word) & TOLD) != 0; }

bool tnp_turn_leave(tnp_turn *turn) { return (atomic_exchange(&turn->word, 0) & TOLD) != 0; }

/* The number of rows in use. -1: raised, the number is larger than the table */
static int64_t used_of(const tnp_turns *turns)
{
    uint64_t used = atomic_load(&turns->table->used);
    if (used <= turns->most)
        return (int64_t)used;
    PyObject *corrupt = PyObject_GetAttrString(PyImport_AddModule("tenon._core"), "Corrupt");
    if (corrupt != NULL)
        PyErr_Format(corrupt,
                     "the table of a condition has %llu rows, and its count says that %llu of "
                     "them are in use",
                     (unsigned long long)turns->most, (unsigned long long)used);
    Py_XDECREF(corrupt);
    return -1;
}

static void drop_dead(const tnp_turns *turns, const tn_domain *domain)
{
    int64_t used = used_of(turns);
    for (int64_t i = 0; i < used; i++) {
        tnp_turn *r = &turns->table->rows[i];
        if (atomic_load(&r->word) != 0 &&
            !tn_domain_has_member(domain, atomic_load(&r->member)))
            atomic_store(&r->word, 0);
    }
}

/* Find a free row and compute the next ticket. NULL: the table is full, or raised */
static tnp_turn *find_free(const tnp_turns *turns, uint64_t *ret_turn)
{
    struct tnp_turn_table *t = turns->table;
    int64_t used = used_of(turns);
    tnp_turn *found = NULL;
    uint64_t last = 0;
    for (int64_t i = 0; i < used; i++) {
        uint64_t turn = atomic_load(&t->rows[i].word) & ~(uint64_t)TOLD;
        if (turn == 0 && found == NULL)
            found = &t->rows[i];
        if (turn > last)
            last = turn;
    }
    if (found == NULL && used >= 0 && (uint64_t)used < turns->most) {
        found = &t->rows[used];
        atomic_store(&found->word, 0);
        atomic_store(&t->used, (uint64_t)used + 1);
    }
    *ret_turn = last + TICKET;
    return found;
}

tnp_turn *tnp_turns_enter(const tnp_turns *turns, const tn_domain *domain)
{
    uint64_t turn;
    tnp_turn *r = find_free(turns, &turn);
    if (r == NULL && !PyErr_Occurred()) {
        drop_dead(turns, domain);
        r = find_free(turns, &turn);
    }
    if (r == NULL) {
        if (!PyErr_Occurred())
            PyErr_Format(
                PyExc_RuntimeError,
                "the condition has room for %llu waiting threads, and all of it is taken",
                (unsigned long long)turns->most);
        return NULL;
    }
    atomic_store(&r->member, tnp_domain_info(domain).member);
    atomic_store(&r->word, turn);
    return r;
}

/* The row of the live thread that has waited longest and was not told. NULL: there is none. */
static tnp_turn *find_oldest(const tnp_turns *turns, const tn_domain *domain, int64_t used)
{
    tnp_turn *oldest = NULL;
    uint64_t first = UINT64_MAX;
    for (int64_t i = 0; i < used; i++) {
        tnp_turn *r = &turns->table->rows[i];
        uint64_t turn = atomic_load(&r->word);
        if (turn == 0 || (turn & TOLD) != 0 || turn >= first)
            continue;
        if (tn_domain_has_member(domain, atomic_load(&r->member))) {
            oldest = r;
            first = turn;
        } else {
            atomic_store(&r->word, 0);
        }
    }
    return oldest;
}

static bool is_waiting(const tnp_turn *r)
{
    uint64_t turn = atomic_load(&r->word);
    return turn != 0 && (turn & TOLD) == 0;
}

static int64_t count_waiting(const tnp_turns *turns, int64_t used)
{
    int64_t count = 0;
    for (int64_t i = 0; i < used; i++)
        count += is_waiting(&turns->table->rows[i]);
    return count;
}

/* When all waiters are told, telling a dead one takes no notification from another. */
static void tell_all(const tnp_turns *turns, int64_t used)
{
    for (int64_t i = 0; i < used; i++)
        if (is_waiting(&turns->table->rows[i]))
            atomic_fetch_or(&turns->table->rows[i].word, TOLD);
}

/* Tell the oldest waiters first. The kernel says which of them live. */
static void tell_some(const tnp_turns *turns, const tn_domain *domain, int64_t used,
                      long long most)
{
    for (long long told = 0; told < most; told++) {
        tnp_turn *r = find_oldest(turns, domain, used);
        if (r == NULL)
            return;
        atomic_fetch_or(&r->word, TOLD);
    }
}

int tnp_turns_tell(const tnp_turns *turns, const tn_domain *domain, long long most)
{
    int64_t used = used_of(turns);
    int64_t waiting = count_waiting(turns, used);
    if (used < 0 || waiting == 0)
        return used < 0 ? -1 : 0;
    if (most >= waiting)
        tell_all(turns, used);
    else
        tell_some(turns, domain, used, most);
    return 1;
}

long tnp_turns_count(const tnp_turns *turns, const tn_domain *domain)
{
    int64_t used = used_of(turns);
    long count = 0;
    for (int64_t i = 0; i < used; i++) {
        const tnp_turn *r = &turns->table->rows[i];
        count += is_waiting(r) && tn_domain_has_member(domain, atomic_load(&r->member));
    }
    return used < 0 ? -1 : count;
}
