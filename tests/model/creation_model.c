/* SPDX-License-Identifier: Apache-2.0 */
/*
 * creation_model: races of making and joining.
 *
 *   attached_early    a process attaches while another one makes the domain: the header is
 *                     complete, or the attach fails
 *   joined_at_once    two processes join and leave where one seat is free; a third reclaims
 *   looked_at_meanwhile  the same two; a third process checks whether a member is dead
 *   named_at_once     two processes make an object of one name; a third reclaims
 * manager_model.c has the processes that become tenond, and the names of domains.
 */
#include "harness/harness.h"
#include "reaper/reaper.h"
#include "tiny.h"

/* ---- attached_early ---------------------------------------------------------------------- */

enum { CONTROL_FD = 20, ARENA_FD = 21 };

/* What the kernel knows of the two memory objects; 0: not there yet. */
static _Atomic uint64_t *sizes;
static uint8_t *control;
static const struct tni_segment_options options = {.name = "name",
                                                   .seats = 2,
                                                   .blocks = 3,
                                                   .objects = 4,
                                                   .tickets = 5,
                                                   .quota_bytes = 1 << 20,
                                                   .watermark_bytes = 1 << 19};

int tni_os_memory_create(const char *name, uint64_t size_bytes, int *ret_fd)
{
    bool is_control = tiny_strncmp(name, TNI_CONTROL_PREFIX, 8) == 0;
    *ret_fd = is_control ? CONTROL_FD : ARENA_FD;
    atomic_store(&sizes[*ret_fd - CONTROL_FD], size_bytes);
    return 0;
}

int tni_os_memory_stat(int fd, struct tni_os_memory *ret_memory)
{
    if (fd < CONTROL_FD) { /* the control segment of a domain that exists from the beginning */
        *ret_memory = (struct tni_os_memory){.is_sealed = true};
        return 0;
    }
    uint64_t size_bytes = atomic_load(&sizes[fd - CONTROL_FD]);
    if (size_bytes == 0)
        return TN_ERR_INVALID;
    *ret_memory = (struct tni_os_memory){
        .size_bytes = size_bytes, .uid = 7, .inode = (uint64_t)fd, .is_sealed = true};
    return 0;
}

int tni_os_map(int fd, uint64_t size_bytes, uint64_t align_bytes, bool read_only,
               void **ret_address)
{
    (void)size_bytes;
    (void)align_bytes;
    (void)read_only;
    *ret_address = fd == CONTROL_FD ? control : NULL;
    return 0;
}

int tni_os_random(void *bytes, size_t size_bytes)
{
    memset(bytes, 0x5a, size_bytes);
    return 0;
}

uint32_t tni_os_uid(void) { return 7; }
bool tni_os_has_uid(void) { return true; }
void tni_os_advise_huge(void *address, uint64_t size_bytes)
{
    (void)address;
    (void)size_bytes;
}
void tni_os_advise_no_dump(void *address, uint64_t size_bytes)
{
    (void)address;
    (void)size_bytes;
}

static void setup_attached_early(void)
{
    sizes = model_shared(2 * sizeof *sizes, 8);
    control = model_shared(sizeof(struct tni_header), 64);
    tiny_os_begin(true);
}

static void make_segment(void)
{
    struct tni_segment segment;
    model_require(tni_segment_create(&options, &segment) == 0, "made");
}

static bool is_filled(const char *name, const uint8_t id[16])
{
    bool is_same = tiny_strncmp(name, options.name, TNI_NAME_BYTES) == 0;
    for (uint32_t i = TNI_ID_INODE_BYTES; i < 16; i++)
        is_same &= id[i] == 0x5a;
    return is_same && id[TNI_ID_INODE_BYTES - 1] == CONTROL_FD;
}

/* Attach to what /proc shows, at any moment, and attach once more. */
static void attach_twice(void)
{
    for (uint32_t round = 0; round < 2; round++) {
        struct tni_segment s;
        if (tni_segment_attach(CONTROL_FD, ARENA_FD, false, &s) != 0)
            continue;
        model_require(s.geometry.seats == options.seats &&
                          s.geometry.blocks == options.blocks &&
                          s.geometry.objects == options.objects &&
                          s.geometry.tickets == options.tickets && s.arena_inode == ARENA_FD,
                      "who attaches has the numbers that the domain was made with");
        model_require(is_filled(s.header->name, s.header->id) &&
                          s.header->uid == tni_os_uid() && s.header->creator_pid == 1 &&
                          atomic_load(&s.header->quota_bytes) == options.quota_bytes,
                      "who attaches finds the header whole");
    }
}

TN_TEST_WITHIN(attaching_during_creation_finds_the_whole_domain_or_none, 600)
{
    tiny_explore(&(struct model){.name = "attached_early",
                                 .process_count = 2,
                                 .kills = 1,
                                 .setup = setup_attached_early,
                                 .run = {make_segment, attach_twice}});
}

/* ---- joined_at_once ---------------------------------------------------------------------- */

enum { RECOVERER = 2 };

static void setup_joined_at_once(void)
{
    tiny_begin(
        &(struct tiny_spec){.processes = 3, .seats = 2, .blocks = 1, .are_joining = true});
    tiny_sit(RECOVERER, 0);
    for (uint32_t i = 0; i < RECOVERER; i++)
        tiny_domains[i]->seat = TNI_NO_SEAT;
}

static void check_seated(const struct tn_domain *d)
{
    uint64_t word = atomic_load(&d->me->word);
    model_require(word == tni_process_word(d) &&
                      atomic_load(&d->me->pid) == (int32_t)model_self() + 1,
                  "a seat is its own process's alone, from joining to leaving");
}

static void join_and_leave(void)
{
    struct tni_segment segment = tiny_me()->segment;
    struct tn_domain *d;
    int status = tni_process_join(&segment, 0, &d);
    model_require(status == 0 || status == TN_ERR_FULL, "a seat, or all are taken");
    if (status != 0)
        return;
    check_seated(d);
    tni_process_begin_leave(d);
    tni_process_leave(d);
}

static void join_and_stay(void)
{
    struct tni_segment segment = tiny_me()->segment;
    struct tn_domain *d;
    if (tni_process_join(&segment, 0, &d) != 0)
        return;
    check_seated(d);
    tiny_domains[model_self()]->seat = d->seat;
    tiny_domains[model_self()]->incarnation = d->incarnation;
    tiny_domains[model_self()]->witness = d->witness;
}

static void reclaim_dead_joiners(void)
{
    if (tiny_await_death())
        tiny_reclaim_until_done();
}

static void check_joined(void)
{
    tiny_check();
    for (uint32_t i = 0; i < RECOVERER; i++) {
        const struct tn_domain *d = tiny_domains[i];
        if (d->seat == TNI_NO_SEAT || model_is_dead(i))
            continue;
        uint64_t word = atomic_load(&tni_seat_at(&tiny_segment, d->seat)->word);
        model_require(word == tni_process_word(d), "who stays has its seat still");
    }
}

TN_TEST_WITHIN(one_seat_is_never_taken_by_two, 600)
{
    tiny_explore(&(struct model){.name = "joined_at_once",
                                 .process_count = 3,
                                 .kills = tiny_is_deep() ? 2 : 1,
                                 .setup = setup_joined_at_once,
                                 .run = {join_and_leave, join_and_stay, reclaim_dead_joiners},
                                 .check = check_joined,
                                 .invariant = tiny_invariant});
}

/* ---- looked_at_meanwhile ----------------------------------------------------------------- */

static void look_for_the_dead(void)
{
    (void)tni_reaper_reclaim_all(tiny_me());
    tiny_os_calm();
}

static void check_nobody_reclaimed(void)
{
    tiny_check();
    model_require(atomic_load(&tiny_segment.header->deaths) == 0,
                  "nobody is reclaimed who lives");
}

TN_TEST_WITHIN(no_live_process_is_reclaimed_while_it_joins_or_leaves, 600)
{
    tiny_explore(&(struct model){.name = "looked_at_meanwhile",
                                 .process_count = 3,
                                 .setup = setup_joined_at_once,
                                 .run = {join_and_leave, join_and_stay, look_for_the_dead},
                                 .check = check_nobody_reclaimed,
                                 .invariant = tiny_invariant});
}

/* ---- named_at_once ----------------------------------------------------------------------- */

enum { OBJECTS = 2 };
static uint32_t *outcomes; /* private: 1 + the status of each call; 0: it has not returned */

static void reclaim_now(struct tn_domain *d)
{
    (void)tni_reaper_reclaim_all(d);
    tiny_os_calm();
}

static void setup_named(bool has_no_slices)
{
    tiny_begin(&(struct tiny_spec){.processes = 3,
                                   .seats = 3,
                                   .blocks = 1,
                                   .objects = OBJECTS,
                                   .has_no_slices = has_no_slices});
    outcomes = model_private(4 * sizeof *outcomes, 8);
    for (uint32_t i = 0; i < 3; i++)
        tiny_domains[i]->survive = reclaim_now;
}

static void setup_named_at_once(void) { setup_named(false); }

/* In the small model the makers reclaim themselves, when they find the registry taken. */
static void reclaim_whoever_dies(void)
{
    if (!tiny_is_tight() && tiny_await_death())
        tiny_reclaim_until_done();
}

static int make_named(tn_event **ret_handle)
{
    const struct tni_object_spec spec = {.kind = tni_kind_of(tiny_me(), TNI_OBJECT_EVENT),
                                         .name = "name"};
    return tni_object_open("the model", tiny_me(), &spec, TN_OPEN_NEW, ret_handle);
}

static void make_object(void)
{
    tn_event *handle;
    int status = make_named(&handle);
    model_require(status == 0 || status == TN_ERR_EXISTS, "made, or there is one");
    outcomes[model_self()] = status == 0 ? 1 : 2;
}

/* Another maker closes the object that it made, so the name is free again. */
static void make_and_close_object(void)
{
    tn_event *handle;
    int status = make_named(&handle);
    model_require(status == 0 || status == TN_ERR_EXISTS, "made, or there is one");
    if (status == 0)
        tn_object_close(handle);
}

__attribute__((no_sanitize("thread"), noinline)) static uint64_t peek(const void *at)
{
    return *(const volatile uint64_t *)at;
}

static uint32_t count_live(void)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < OBJECTS; i++)
        count +=
            tni_object_state(peek(&tni_object_at(&tiny_segment, i)->word)) == TNI_OBJECT_LIVE;
    return count;
}

static void one_name(void)
{
    model_require(count_live() <= 1, "no two objects that live have one name");
}

static void check_named(void)
{
    tiny_check();
    bool is_made = false;
    for (uint32_t i = 0; i < 2; i++)
        is_made |= outcomes[i] == 1 && !model_is_dead(i);
    model_require(count_live() == is_made, "what a living process made is there, and no more");
    for (uint32_t i = 0; i < OBJECTS; i++)
        model_require(tni_object_state(peek(&tni_object_at(&tiny_segment, i)->word)) !=
                              TNI_OBJECT_MAKING &&
                          tni_object_state(peek(&tni_object_at(&tiny_segment, i)->word)) !=
                              TNI_OBJECT_ENDING,
                      "nothing is half made, once the dead are reclaimed");
    for (uint32_t i = 0; i < OBJECTS; i++)
        model_require(tni_object_state(peek(&tni_object_at(&tiny_segment, i)->word)) !=
                              TNI_OBJECT_LIVE ||
                          tni_names_has(&tiny_segment, i),
                      "what lives is found by its name");
}

TN_TEST_WITHIN(two_makers_of_one_name_make_one_object, 600)
{
    tiny_explore(&(struct model){.name = "named_at_once",
                                 .process_count = 3,
                                 .kills = tiny_size(), /* named_again has deaths too */
                                 .setup = setup_named_at_once,
                                 .run = {make_object, make_object, reclaim_whoever_dies},
                                 .check = check_named,
                                 .invariant = one_name});
}

TN_TEST_WITHIN(a_name_that_is_given_back_can_be_had_again, 600)
{
    tiny_explore(&(struct model){.name = "named_again",
                                 .process_count = 2,
                                 .kills = 1,
                                 .setup = setup_named_at_once,
                                 .run = {make_and_close_object, make_object},
                                 .check = check_named,
                                 .invariant = one_name});
}

/*
 * No process tries again by itself here: a process that reclaims wakes those that wait for
 * the registry of names. On machines other than x86, three processes with all these steps
 * have too many states to explore.
 */
#if !defined(MODEL_NOT_X86)
static void setup_named_and_woken(void) { setup_named(true); }

TN_TEST_WITHIN(a_reclaimer_wakes_a_process_that_waits_to_make_a_name, 600)
{
    tiny_explore_at(TINY_FULL, &(struct model){.name = "named_and_woken",
                                               .process_count = 3,
                                               .kills = 1,
                                               .setup = setup_named_and_woken,
                                               .run = {make_and_close_object, make_object,
                                                       reclaim_whoever_dies},
                                               .check = check_named,
                                               .invariant = one_name});
}
#endif
