/* SPDX-License-Identifier: Apache-2.0 */
/* show: what is written into a record, and when. */
#include "show/show.h"

#include "object_room.h"
#include "ref/ref.h"

static struct tni_shown *shown;
static tn_sched_info info;

static void begin(const char *name)
{
    join(8);
    info = (tn_sched_info){.resource_count = 2,
                           .resources = {{.name = "CPU", .total = 4, .free = 4},
                                         {.name = "MEM", .total = 0.3, .free = 0.3}}};
    TN_CHECK_OK(tni_show_begin(domain, name, &info, &shown));
}

static void end(void)
{
    tni_show_end(shown, true);
    finish();
}

/* The domain has no other block. */
static const struct tni_scheduler *record(void)
{
    const struct tni_segment *s = &domain->segment;
    uint32_t c =
        tni_geometry_class(&s->geometry, sizeof(struct tni_scheduler), TNI_KIND_SCHEDULER);
    tni_block block = tni_block_make(c, 0);
    assert_int_equal(tni_word_state(atomic_load(tni_word_at(s, block))), TNI_BLOCK_ALLOC);
    assert_int_equal(tni_desc_at(s, block)->kind, TNI_KIND_SCHEDULER);
    const struct tni_scheduler *its = tni_payload_at(s, block);
    assert_int_equal(its->made_for, tni_ref_generation(domain, block));
    return its;
}

TN_TEST(a_record_has_names_and_amounts_in_units)
{
    begin("it");
    assert_string_equal(record()->name, "it");
    assert_int_equal(record()->resource_count, 2);
    assert_string_equal(record()->resources[0].name, "CPU");
    assert_string_equal(record()->resources[1].name, "MEM");
    assert_int_equal(record()->resources[0].total, 40000);
    assert_int_equal(record()->resources[1].total, 3000);
    info.resources[1].free = 0.1;
    info.resources[1].busy_ns = 5e9;
    info.resources[1].waiting = 7;
    info.tasks = 10, info.ended = 11, info.ready = 12, info.running = 13, info.threads = 14;
    tni_show_write(shown, &info);
    assert_int_equal(record()->resources[1].free, 1000);
    assert_int_equal(record()->resources[1].busy_ns, 5000000000);
    assert_int_equal(record()->resources[1].waiting, 7);
    assert_int_equal(record()->tasks, 10);
    assert_int_equal(record()->ended, 11);
    assert_int_equal(record()->ready, 12);
    assert_int_equal(record()->running, 13);
    assert_int_equal(record()->threads, 14);
    end();
}

TN_TEST(the_version_is_even_and_grows_with_each_write)
{
    begin(NULL);
    assert_string_equal(record()->name, "");
    uint32_t version = record()->version;
    assert_int_equal(version % 2, 0);
    tni_show_write(shown, &info);
    assert_int_equal(record()->version, version + 2);
    end();
}

TN_TEST(the_time_changes_only_with_a_number)
{
    begin("it");
    uint64_t changed_ns = record()->changed_ns;
    assert_true(changed_ns > 0);
    tni_show_write(shown, &info);
    assert_int_equal(record()->changed_ns, changed_ns);
    uint32_t *const numbers[] = {&info.ready, &info.running, &info.threads,
                                 &info.resources[1].waiting};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        changed_ns = record()->changed_ns;
        ++*numbers[i];
        tni_show_write(shown, &info);
        assert_true(record()->changed_ns > changed_ns);
    }
    end();
}

TN_TEST(without_a_name_that_is_valid_there_is_no_record)
{
    struct tni_shown *other = NULL;
    begin("it");
    assert_int_equal(tni_show_begin(domain, "", &info, &other), TN_ERR_INVALID);
    assert_int_equal(tni_show_begin(domain, "a b", &info, &other), TN_ERR_INVALID);
    assert_null(other);
    tni_show_end(NULL, true);
    end();
}
