/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fork_model: fork().
 *
 * A parent with two blocks, one of them held twice, and an open object forks and then goes on;
 * the child takes a seat, uses what it was given, and gives it back; a third process reclaims
 * the seat of a process that dies. Any of the three may be killed before any of its steps
 * (TN_MODEL_DEEP: any two). fork() itself may fail, and so may the parent's taking of a seat
 * for the child, when it finds none. The child is a process that waits until the parent forked,
 * and takes over a copy of its private memory; the pipe between the two is a word that the
 * kernel keeps.
 *
 *   inherited       the parent gives all it has back while the child takes its seat
 *   all_taken       every seat is taken: the child runs without one
 */
#include "fork.h"
#include "harness/harness.h"
#include "tiny.h"

enum { PARENT, CHILD, RECOVERER, READ_END = 10, WRITE_END = 11 };
enum {
    HAS_FORKED,
    HAS_FAILED,
    SEEMS_FAILED
}; /* SEEMS_FAILED: the handler of another library left an errno */
enum {
    NOT_YET,
    FORKED,
    FAILED,
    WITNESS_BITS = 8
}; /* the state; with FORKED, also the number of a witness */

/* What the kernel keeps: it is shared, and its changes are seen in order. */
static struct kernel {
    _Atomic uint32_t state;
    _Atomic uint32_t byte;
    _Atomic uint32_t is_closed; /* the child's end of the pipe */
} * kernel;

/* The parent's private memory as fork() copied it. */
static struct image {
    struct tn_domain domain;
    uint32_t local[2];
} * image;

static struct tn_object *handles[2];

static tni_block a_block(void) { return tiny_block(0); }
static tni_block b_block(void) { return tiny_block(1); }

/* ---- the pipe ---------------------------------------------------------------------------- */

int tni_os_pipe(int ret_fds[2])
{
    ret_fds[0] = READ_END;
    ret_fds[1] = WRITE_END;
    return 0;
}

static bool is_at_end(void)
{
    return atomic_load(&kernel->state) == FAILED || atomic_load(&kernel->is_closed) != 0 ||
           model_is_dead(CHILD);
}

int tiny_pipe_poll(void)
{
    for (;;) {
        bool is_over = is_at_end(); /* first, since the byte comes before the end of the pipe */
        if (atomic_load(&kernel->byte) != 0 || is_over)
            return 0;
        model_yield();
    }
}

int tni_os_read(int fd, void *bytes, size_t size_bytes)
{
    (void)fd;
    (void)bytes;
    (void)size_bytes;
    return atomic_load(&kernel->byte) != 0;
}

int tni_os_write(int fd, const void *bytes, size_t size_bytes)
{
    (void)fd;
    (void)bytes;
    (void)size_bytes;
    atomic_store(&kernel->byte, 1);
    return 0;
}

void tiny_pipe_close(int fd)
{
    if (fd == WRITE_END && model_self() == CHILD)
        atomic_store(&kernel->is_closed, 1);
}

/* ---- fork() ------------------------------------------------------------------------------ */

static void copy_image(void)
{
    const struct tn_domain *d = tiny_me();
    image->domain = *d;
    image->local[0] = atomic_load(&d->local[0]);
    image->local[1] = atomic_load(&d->local[1]);
}

/*
 * The child's memory has the parent's content; pointers into it point into the child's
 * memory.
 */
static void take_image(struct tn_domain *d)
{
    struct tn_domain own = *d;
    *d = image->domain;
    d->local = own.local;
    d->mapped = own.mapped;
    d->roles = own.roles;
    d->threads[0].caches = own.threads[0].caches;
    tni_object_part(d)->handles = handles[1];
    atomic_store(&d->local[0], image->local[0]);
    atomic_store(&d->local[1], image->local[1]);
}

static void fork_in_parent(void)
{
    fork_before();
    copy_image();
    uint32_t witness = (uint32_t)(uintptr_t)image->domain.child_witness;
    uint32_t forked = FORKED | witness << WITNESS_BITS;
    uint32_t outcome = model_choose(3);
    atomic_store(&kernel->state, outcome == HAS_FAILED ? FAILED : forked);
    fork_after_in_parent(outcome != HAS_FORKED);
}

static bool is_forked(uint32_t state) { return (state & ((1u << WITNESS_BITS) - 1)) == FORKED; }

/* The child takes over what the parent had made for it: the witness of its seat. */
bool tiny_has_inherited(uint32_t process, uint64_t number)
{
    if (process != CHILD || kernel == NULL)
        return false;
    uint32_t state = atomic_load(&kernel->state);
    return is_forked(state) && state >> WITNESS_BITS == number + 1;
}

/* @return whether there is a child */
static bool wait_for_fork(void)
{
    for (;;) {
        bool is_over = model_is_dead(PARENT) || model_has_ended(PARENT);
        uint32_t state = atomic_load(&kernel->state);
        if (state != NOT_YET || is_over)
            return is_forked(state);
        model_yield();
    }
}

/* ---- the three --------------------------------------------------------------------------- */

static void release(tni_block block)
{
    tiny_check_mine(block, 0);
    tni_ref_release(tiny_me(), block);
}

static void run_parent(void)
{
    fork_in_parent();
    release(a_block());
    release(b_block());
    release(a_block());
}

static void run_child(void)
{
    struct tn_domain *d = tiny_me();
    if (!wait_for_fork())
        return;
    take_image(d);
    fork_after_in_child(d);
    if (d->seat == TNI_NO_SEAT)
        return;
    release(b_block());
    release(a_block());
}

static void run_recoverer(void)
{
    if (tiny_await_death() || atomic_load(&kernel->state) == FAILED)
        tiny_reclaim_until_done();
}

static void begin(uint32_t seats)
{
    tiny_begin(&(struct tiny_spec){
        .processes = 3, .seats = seats, .blocks = 2, .objects = 1, .are_joining = true});
    tiny_sit(PARENT, 0);
    tiny_sit(RECOVERER, 1);
    tiny_domains[CHILD]->seat = TNI_NO_SEAT;
    tiny_hold(0, a_block(), 2);
    tiny_hold(0, b_block(), 1);
    kernel = model_shared(sizeof *kernel, 8);
    image = model_private(sizeof *image, 64);
    for (uint32_t i = 0; i < 2; i++) {
        handles[i] = model_private(sizeof *handles[i], 8);
        handles[i]->object = tni_object_at(&tiny_segment, 0);
        handles[i]->roles = tiny_domains[i]->roles;
    }
    atomic_store(&handles[0]->object->word,
                 tni_object_word(0, 0, TNI_OBJECT_LIVE, TNI_OBJECT_EVENT));
    for (uint32_t seat = 0; seat < 2; seat++) {
        tni_bit_set(tni_opens_of(&tiny_segment, seat), 0);
        tni_seat_set_add(&handles[0]->object->openers, seat);
    }
    atomic_store(&tiny_segment.header->object_limit, 1);
    tni_object_part(tiny_domains[PARENT])->handles = handles[0];
    tni_object_init(tiny_domains[PARENT]);
    fork_register(tiny_domains[PARENT]);
}

static void setup_inherited(void) { begin(3); }
static void setup_all_taken(void) { begin(2); }

/* No process has a bit left in an object that it does not have open. */
static void check_openers(void)
{
    uint64_t openers = atomic_load(&tni_object_at(&tiny_segment, 0)->openers.word[0]);
    for (uint32_t seat = 0; seat < 3; seat++) {
        uint32_t state = tni_seat_state(atomic_load(&tni_seat_at(&tiny_segment, seat)->word));
        model_require((openers >> seat & 1) == 0 || state != TNI_SEAT_FREE,
                      "a free seat has nothing open");
    }
}

static void check_inherited(void)
{
    const struct tn_domain *child = tiny_domains[CHILD];
    bool has_died = model_is_dead(PARENT) || model_is_dead(CHILD) || model_is_dead(RECOVERER);
    tiny_check();
    check_openers();
    model_require(has_died || child->seat != TNI_NO_SEAT ||
                      atomic_load(&kernel->state) == FAILED,
                  "a child has a seat, if there was one");
    model_require(has_died || atomic_load(&tni_object_at(&tiny_segment, 0)->death[0]) == 0,
                  "a fork that fails is nobody's death");
    /* The child keeps one reference to block a. */
    bool keeps = child->seat != TNI_NO_SEAT && !model_is_dead(CHILD);
    model_require(tiny_allocated() == keeps, "what nobody has is free");
}

static void check_all_taken(void)
{
    tiny_check();
    check_openers();
    model_require(tiny_allocated() == 0, "what nobody has is free");
}

TN_TEST_WITHIN(a_child_has_its_parents_references_whichever_process_dies, 600)
{
    tiny_explore_at(TINY_FULL, &(struct model){.name = "inherited",
                                               .process_count = 3,
                                               .kills = tiny_is_deep() ? 2 : 1,
                                               .setup = setup_inherited,
                                               .run = {run_parent, run_child, run_recoverer},
                                               .check = check_inherited,
                                               .invariant = tiny_invariant});
}

TN_TEST_WITHIN(a_child_without_a_seat_leaves_nothing_whichever_process_dies, 600)
{
    tiny_explore(&(struct model){.name = "all_taken",
                                 .process_count = 3,
                                 .kills = tiny_is_deep() ? 2 : 1,
                                 .setup = setup_all_taken,
                                 .run = {run_parent, run_child, run_recoverer},
                                 .check = check_all_taken,
                                 .invariant = tiny_invariant});
}
