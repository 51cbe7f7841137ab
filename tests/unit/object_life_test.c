/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The room object: which seats have an object open, which functions of a kind are called, the
 * registry, and deaths at each of these (object.c, entry.c, handle.c, registry.c, reclaim.c).
 */
#include "object/registry.h"
#include "object_room.h"
#include "wait/wait.h"

static void close_seat(struct tn_domain *of, struct tni_object *object, uint32_t seat)
{
    (void)of;
    board->closes += tni_seat_set_has(&object->openers, seat);
}

static void end(struct tn_domain *of, struct tni_object *object)
{
    (void)of;
    board->ends += tni_seat_set_count(&object->openers, TNI_NO_SEAT) == 0;
}

static const struct tni_kind kind = {.number = TNI_OBJECT_EVENT,
                                     .name = "event",
                                     .handle_bytes = sizeof(struct tn_object),
                                     .close_seat = close_seat,
                                     .end = end};
static const struct tni_kind *const kinds[TNI_OBJECT_KINDS] = {[TNI_OBJECT_EVENT] = &kind};

static void begin(void)
{
    join(16);
    tni_object_set_kinds(domain, kinds);
    tni_object_init(domain);
}

static struct tn_object *open_named(const char *name, uint32_t flags)
{
    const struct tni_object_spec spec = {.kind = &kind, .name = name, .ring_bytes = 1000};
    struct tn_object *handle = NULL;
    TN_CHECK_OK(tni_object_open("open_named", domain, &spec, flags, &handle));
    return handle;
}

static bool has_in_row(uint32_t seat, uint32_t index)
{
    return tni_bit_is_set(tni_opens_of(&domain->segment, seat), index);
}

TN_TEST(a_kind_is_closed_and_ended_with_the_last_handle_only)
{
    begin();
    struct tn_object *one = open_named("name", 0), *two = open_named("name", 0);
    struct tni_object *object = one->object;
    uint32_t index = one->index;
    tn_object_close(one);
    assert_int_equal(board->closes, 0);
    assert_true(tni_seat_set_has(&object->openers, domain->seat) &&
                has_in_row(domain->seat, index));
    tn_object_close(two);
    assert_int_equal(board->closes, 1);
    assert_int_equal(board->ends, 1);
    assert_int_equal(state_of(object), TNI_OBJECT_FREE);
    assert_int_equal(atomic_load(&object->ring), 0);
    assert_false(has_in_row(domain->seat, index));
    finish();
}

TN_TEST(an_object_of_a_kind_that_no_room_has_is_not_opened)
{
    begin();
    struct tn_object *handle = open_named("name", 0), *again;
    _Atomic uint64_t *word = &handle->object->word;
    uint64_t before = atomic_load(word);
    atomic_store(word, before + TNI_OBJECT_KINDS);
    assert_int_equal(tn_object_open_id(domain, 0, tn_object_id(handle), &again),
                     TN_ERR_INVALID);
    assert_non_null(strstr(tn_error_detail(), "is of the kind"));
    atomic_store(word, before);
    tn_object_close(handle);
    finish();
}

static int open_in_child(void *name)
{
    open_named(name, 0);
    return 0;
}

/* handle.c, I4: the row first, so that the recoverer finds all that the seat has open. */
TN_TEST(a_death_in_the_middle_of_an_open_leaves_nothing_open)
{
    static const char *const points[] = {"object_opening", "object_opened"};
    begin();
    struct tn_object *handle = open_named("kept", 0);
    for (uint32_t p = 0; p < TNI_COUNT(points); p++) {
        const uint32_t made = handle->index + 1;
        const struct tni_object *object = tni_object_at(&domain->segment, made);
        die_at(points[p], open_in_child, "made-by-a-child");
        assert_true(has_in_row(board->seat, made));
        assert_int_equal(tni_seat_set_has(&object->openers, board->seat), p == 1);
        TN_CHECK_OK(tni_object_reclaim_seat(domain, board->seat));
        assert_false(has_in_row(board->seat, made));
        assert_int_equal(state_of(object), TNI_OBJECT_FREE);
        assert_int_equal(tni_seat_set_count(&handle->object->openers, TNI_NO_SEAT), 1);
    }
    assert_int_equal(atomic_load(&domain->segment.header->registry), 0);
    finish();
}

TN_TEST(an_object_half_made_by_a_dead_process_is_undone)
{
    static const char *const points[] = {"object_making", "object_ring_recorded",
                                         "object_name_linked"};
    begin();
    for (uint32_t p = 0; p < TNI_COUNT(points); p++) {
        const struct tni_object *object = tni_object_at(&domain->segment, 0);
        die_at(points[p], open_in_child, "name");
        assert_int_equal(state_of(object), TNI_OBJECT_MAKING);
        TN_CHECK_OK(tni_object_reclaim_seat(domain, board->seat));
        assert_int_equal(state_of(object), TNI_OBJECT_FREE);
        assert_int_equal(atomic_load(&object->ring), 0);
    }
    assert_int_equal(open_named("name", TN_OPEN_NEW)->index, 0);
    finish();
}

static int make_and_close(void *name)
{
    tn_object_close(open_named(name, TN_OPEN_NEW));
    return 0;
}

TN_TEST(an_object_half_ended_by_a_dead_process_is_ended)
{
    begin();
    const struct tni_object *object = tni_object_at(&domain->segment, 0);
    die_at("object_ending", make_and_close, "name");
    assert_int_equal(state_of(object), TNI_OBJECT_ENDING);
    TN_CHECK_OK(tni_object_reclaim_seat(domain, board->seat));
    assert_int_equal(state_of(object), TNI_OBJECT_FREE);
    assert_int_equal(board->ends, 1);
    finish();
}

TN_TEST(an_object_that_only_a_dead_process_had_open_is_ended)
{
    begin();
    die_after(open_in_child, "name");
    const struct tni_object *object = tni_object_at(&domain->segment, 0);
    assert_int_equal(state_of(object), TNI_OBJECT_LIVE);
    TN_CHECK_OK(tni_object_reclaim_seat(domain, board->seat));
    assert_int_equal(state_of(object), TNI_OBJECT_FREE);
    finish();
}

/* ---- the registry ------------------------------------------------------------------------ */

struct owner {
    struct tnt_signal ready, go;
};

static int own_registry(void *argument)
{
    struct owner *owner = argument;
    TN_CHECK_OK(tni_registry_enter(domain));
    tnt_signal(&owner->ready);
    tnt_await(&owner->go);
    tni_registry_leave(domain);
    return 0;
}

/* As if this process had waited its 5 s for the owner, in vain. */
static void suspect_owner(void)
{
    const struct tni_header *h = domain->segment.header;
    atomic_store(&tni_object_part(domain)->registry_suspect, atomic_load(&h->registry));
    atomic_store(&tni_object_part(domain)->registry_turn, atomic_load(&h->registry_turns));
}

/* object.c, I1 and entry.c, I5. */
TN_TEST(a_close_without_the_registry_leaves_ending_to_its_next_owner)
{
    begin();
    struct owner owner = {tnt_signal_open(), tnt_signal_open()};
    struct tn_object *handle = open_named("name", 0);
    struct tni_object *object = handle->object;
    pid_t child = tnt_fork(own_registry, &owner);
    tnt_await(&owner.ready);
    tni_seat_set_remove(&object->openers,
                        tni_who_seat(atomic_load(&domain->segment.header->registry)));
    suspect_owner();
    uint64_t begun_ns = tni_os_now_ns();
    tn_object_close(handle);
    assert_true(tni_os_now_ns() - begun_ns < UINT64_C(4000000000)); /* registry.c, I2 */
    assert_int_equal(state_of(object), TNI_OBJECT_LIVE);
    assert_int_equal(tni_seat_set_count(&object->openers, TNI_NO_SEAT), 0);
    assert_true(tni_bit_is_set(tni_loose_of(&domain->segment, TNI_LOOSE_UNOPENED), 0));
    tnt_signal(&owner.go);
    tnt_wait_ok(child);
    tni_object_finish_unopened(domain);
    assert_int_equal(state_of(object), TNI_OBJECT_FREE);
    tnt_signal_close(&owner.ready);
    tnt_signal_close(&owner.go);
    finish();
}

static int die_with_registry(void *argument)
{
    (void)argument;
    TN_CHECK_OK(tni_registry_enter(domain));
    return 0;
}

TN_TEST(the_registry_of_a_dead_process_goes_to_its_recoverer)
{
    begin();
    die_after(die_with_registry, NULL);
    uint32_t turns = atomic_load(&domain->segment.header->registry_turns);
    assert_int_equal(tni_registry_enter_reclaiming(domain), TN_ERR_TIMED_OUT);
    TN_CHECK_OK(tni_object_reclaim_seat(domain, board->seat));
    assert_int_equal(atomic_load(&domain->segment.header->registry), 0);
    assert_true(atomic_load(&domain->segment.header->registry_turns) > turns);
    TN_CHECK_OK(tni_registry_enter(domain));
    tni_registry_leave(domain);
    finish();
}

/* ---- waits ------------------------------------------------------------------------------- */

struct attempts {
    uint32_t count, passes_at; /* 0: never */
};

static int attempt(void *context)
{
    struct attempts *a = context;
    return ++a->count == a->passes_at ? 0 : TN_ERR_TIMED_OUT;
}

static int wait_at(struct tn_object *handle, struct attempts *a)
{
    return tni_object_wait(handle,
                           &(struct tni_awaited){.word = &handle->object->items,
                                                 .side = TNI_SIDE_ANY,
                                                 .spins = TNI_HAS_POLLED,
                                                 .attempt = attempt,
                                                 .context = a},
                           tnt_until_ns(20));
}

static int return_at_once(void *argument)
{
    (void)argument;
    return 0;
}

/* wait.c, I2. */
TN_TEST(each_handle_reports_a_death_once_after_a_last_attempt)
{
    begin();
    struct tn_object *one = open_named("name", 0), *two = open_named("name", 0);
    die_after(return_at_once, NULL); /* the child has open what its parent has */
    TN_CHECK_OK(tni_object_reclaim_seat(domain, board->seat));
    assert_int_equal(wait_at(one, &(struct attempts){.passes_at = 2}), 0);
    assert_int_equal(wait_at(one, &(struct attempts){0}), TN_ERR_PEER_DIED);
    assert_int_equal(tn_error_peer().seat, board->seat);
    assert_int_equal(wait_at(one, &(struct attempts){0}), TN_ERR_TIMED_OUT);
    assert_int_equal(wait_at(two, &(struct attempts){0}), TN_ERR_PEER_DIED);
    finish();
}

static int wait_in_child(void *handle)
{
    return wait_at(handle, &(struct attempts){0}) == TN_ERR_TIMED_OUT ? 0 : 1;
}

TN_TEST(no_death_is_reported_while_another_opener_lives)
{
    begin();
    struct tn_object *handle = open_named("name", 0);
    die_after(return_at_once, NULL);
    TN_CHECK_OK(tni_object_reclaim_seat(domain, board->seat));
    tnt_wait_ok(tnt_fork(wait_in_child, handle)); /* this process lives */
    finish();
}
