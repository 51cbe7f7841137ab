/* SPDX-License-Identifier: Apache-2.0 */
/* The room object: names and the chains that lead to them (names.c), ids and entries (entry.c).
 */
#include <stdio.h>

#include "object/names.h"
#include "object_room.h"

enum { OBJECTS = 64 };

static const struct tni_kind kind = {
    .number = TNI_OBJECT_EVENT, .name = "event", .handle_bytes = sizeof(struct tn_object)};
static const struct tni_kind *const kinds[TNI_OBJECT_KINDS] = {[TNI_OBJECT_EVENT] = &kind};

static void begin(uint32_t objects)
{
    join(objects);
    tni_object_set_kinds(domain, kinds);
    tni_object_init(domain);
}

static int open_named(const char *name, uint32_t flags, struct tn_object **ret_handle)
{
    const struct tni_object_spec spec = {.kind = &kind, .name = name};
    return tni_object_open("open_named", domain, &spec, flags, ret_handle);
}

static struct tn_object *make(uint32_t i)
{
    char name[16];
    struct tn_object *handle = NULL;
    snprintf(name, sizeof name, "object-%u", i);
    TN_CHECK_OK(open_named(name, TN_OPEN_NEW, &handle));
    return handle;
}

static uint32_t find(uint32_t i)
{
    char name[16];
    snprintf(name, sizeof name, "object-%u", i);
    return tni_names_find(&domain->segment, name);
}

TN_TEST(each_name_leads_to_its_object_while_others_come_and_go)
{
    struct tn_object *handles[OBJECTS];
    begin(OBJECTS);
    for (uint32_t i = 0; i < OBJECTS; i++)
        handles[i] = make(i);
    for (uint32_t i = 0; i < OBJECTS; i += 2)
        tn_object_close(handles[i]);
    for (uint32_t i = 0; i < OBJECTS; i++)
        assert_int_equal(find(i), i % 2 != 0 ? handles[i]->index : OBJECTS);
    for (uint32_t i = 0; i < OBJECTS; i += 2)
        handles[i] = make(i);
    for (uint32_t i = 0; i < OBJECTS; i++)
        assert_int_equal(find(i), handles[i]->index);
    assert_int_equal(atomic_load(&domain->segment.header->names_lost), 0);
    finish();
}

TN_TEST(a_name_is_taken_until_its_object_has_ended)
{
    struct tn_object *first, *second, *third;
    begin(OBJECTS);
    TN_CHECK_OK(open_named("name", 0, &first));
    TN_CHECK_OK(open_named("name", 0, &second));
    assert_int_equal(first->index, second->index);
    assert_int_equal(open_named("name", TN_OPEN_NEW, &third), TN_ERR_EXISTS);
    tn_object_close(first);
    assert_int_equal(open_named("name", TN_OPEN_NEW, &third), TN_ERR_EXISTS);
    tn_object_close(second);
    assert_int_equal(open_named("name", TN_OPEN_EXISTING, &third), TN_ERR_NOT_FOUND);
    TN_CHECK_OK(open_named("name", TN_OPEN_NEW, &third));
    finish();
}

/* names.c, I3: a link is a hint. */
TN_TEST(damaged_chains_are_built_anew_by_the_next_search)
{
    const uint32_t links[] = {OBJECTS, 1u << 30, UINT32_MAX};
    begin(OBJECTS);
    struct tn_object *one = make(1), *two = make(2);
    for (uint32_t l = 0; l < TNI_COUNT(links); l++) {
        for (uint32_t n = 0; n < tni_geometry_names(&domain->segment.geometry); n++)
            atomic_store(tni_name_at(&domain->segment, n), links[l]);
        assert_int_equal(find(1), one->index);
        assert_int_equal(find(2), two->index);
        assert_int_equal(find(3), OBJECTS);
    }
    atomic_store(&one->object->name_next, one->index + 1); /* a circle */
    assert_int_equal(find(1), one->index);
    assert_int_equal(find(3), OBJECTS);
    finish();
}

/* names.c: a death during a rebuild leaves `names_lost` set. */
static int search(void *argument)
{
    (void)argument;
    atomic_store(&domain->segment.header->names_lost, 1);
    return (int)find(1);
}

TN_TEST(chains_half_built_by_a_dead_process_are_built_by_the_next)
{
    begin(OBJECTS);
    struct tn_object *one = make(1);
    die_at("names_cleared", search, NULL);
    assert_int_equal(atomic_load(&domain->segment.header->names_lost), 1);
    assert_int_equal(find(1), one->index);
    assert_int_equal(atomic_load(&domain->segment.header->names_lost), 0);
    finish();
}

TN_TEST(an_id_does_not_lead_to_the_next_object_in_its_entry)
{
    struct tn_object *found = NULL;
    begin(OBJECTS);
    struct tn_object *old = make(1);
    uint64_t id = tn_object_id(old);
    uint32_t index = old->index;
    TN_CHECK_OK(tn_object_open_id(domain, 0, id, &found));
    tn_object_close(found);
    tn_object_close(old);
    struct tn_object *next = make(2);
    assert_int_equal(next->index, index);
    assert_int_equal(tn_object_id(next) >> 32, (id >> 32) + 1);
    assert_int_equal(tn_object_open_id(domain, 0, id, &found), TN_ERR_NOT_FOUND);
    TN_CHECK_OK(tn_object_open_id(domain, TNI_OBJECT_EVENT, tn_object_id(next), &found));
    assert_int_equal(tn_object_open_id(domain, TNI_OBJECT_LOCK, tn_object_id(next), &found),
                     TN_ERR_INVALID);
    finish();
}

TN_TEST(no_object_has_the_id_0)
{
    struct tn_object *first = NULL, *found = NULL;
    begin(OBJECTS);
    first = make(1);
    assert_int_equal(first->index, 0);
    assert_int_equal(first->generation, 0);
    assert_true(tn_object_id(first) != 0);
    TN_CHECK_OK(tn_object_open_id(domain, 0, tn_object_id(first), &found));
    assert_ptr_equal(found->object, first->object);
    assert_int_equal(tn_object_open_id(domain, 0, tn_object_id(NULL), &found), TN_ERR_INVALID);
    assert_true(tni_object_id(0, UINT32_MAX - 1) != 0);
    finish();
}

TN_TEST(a_full_table_has_room_again_after_one_close)
{
    struct tn_object *handles[OBJECTS], *more = NULL;
    begin(OBJECTS);
    for (uint32_t i = 0; i < OBJECTS; i++)
        handles[i] = make(i);
    assert_int_equal(open_named(NULL, 0, &more), TN_ERR_FULL);
    uint32_t index = handles[17]->index;
    tn_object_close(handles[17]);
    TN_CHECK_OK(open_named(NULL, 0, &more));
    assert_int_equal(more->index, index);
    finish();
}
