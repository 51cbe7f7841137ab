/* SPDX-License-Identifier: Apache-2.0 */
/* The audit: what it finds and repairs, beside a busy domain too; and tables full of noise. */
#include "queue/ring.h"
#include "reaper/reaper.h"
#include "unit/reaper_test.h"
#include "wait/wait.h"

/* ---- the audit --------------------------------------------------------------------------- */

static void expect_finding(struct tn_domain *d, const char *text)
{
    struct findings looked = {0}, repaired = {0};
    assert_int_equal(
        tni_audit(&d->segment, NULL, false,
                  &(struct tni_audit_report){.each = note_finding, .context = &looked}),
        1);
    assert_int_equal(looked.repaired, 0);
    if (strstr(looked.last, text) == NULL)
        fail_msg("the audit says '%s', not '%s'", looked.last, text);
    assert_int_equal(
        tni_audit(&d->segment, d, true,
                  &(struct tni_audit_report){.each = note_finding, .context = &repaired}),
        1);
    if (repaired.repaired != 1)
        fail_msg("not repaired: %s", repaired.last);
    assert_int_equal(audit(d), 0);
}

TN_TEST(an_audit_finds_and_repairs_wrong_counts)
{
    struct tn_domain *d = open_domain();
    tni_block block = alloc_block(d, 64, TNI_KIND_TENSOR),
              other = alloc_block(d, 64, TNI_KIND_TENSOR);
    _Atomic uint64_t *word = tni_word_at(&d->segment, block);

    atomic_fetch_add(word, 2 * TNI_WORD_INC);
    expect_finding(d, "count 3, but 1 records name it (seat 0)");
    atomic_fetch_add(word, TNI_WORD_DEC);
    expect_finding(d, "count 0, but 1 records name it (seat 0)");
    atomic_store(word, tni_word_next(atomic_load(word), TNI_BLOCK_FREE, 0));
    expect_finding(d, "free, but 1 records name it");
    atomic_store(word, tni_word_next(atomic_load(word), 3, 5));
    expect_finding(d, "state 3");

    uint32_t at = tni_block_position(&d->segment.geometry, other);
    atomic_fetch_and(tni_row_at(&d->segment, d->seat, at), ~(UINT64_C(1) << (at % 64)));
    expect_finding(d, "count 1, but nothing names it");
    assert_int_equal(live_blocks(d), 1);
    tni_ref_release(d, block);
    close_domain(d);
    tni_process_unkeep(
        d); /* for the local reference of the other, which had no hold any more */
}

TN_TEST(an_audit_finds_and_repairs_what_free_seats_still_have)
{
    struct tn_domain *d = open_domain();
    struct tni_segment *s = &d->segment;
    tn_queue *queue;
    TN_CHECK_OK(tn_queue_open(d, "q", NULL, TN_OPEN_NEW, &queue));
    tni_block block = alloc_block(d, 64, TNI_KIND_TENSOR);
    uint32_t at = tni_block_position(&s->geometry, block);
    tni_raise_limit(&s->header->seat_limit, 6);

    atomic_fetch_add(tni_word_at(s, block), TNI_WORD_INC);
    atomic_fetch_or(tni_row_at(s, 3, at), UINT64_C(1) << (at % 64));
    expect_finding(d, "seat 3 is free, but holds blocks");
    atomic_store(&tni_announce_at(s, 4, 7)->block, block.id);
    expect_finding(d, "seat 4 is free, but announces blocks");
    tni_seat_set_add(&tni_object_at(s, 0)->openers, 5);
    expect_finding(d, "seat 5 is free, but has objects open");
    assert_int_equal(live_blocks(d), 2);
    tni_ref_release(d, block);
    tn_object_close(queue);
    close_domain(d);
}

TN_TEST(an_audit_finds_and_repairs_orphaned_claims_and_objects)
{
    struct tn_domain *d = open_domain();
    struct tni_header *h = d->segment.header;
    tn_queue *queue;
    TN_CHECK_OK(tn_queue_open(d, "q", NULL, TN_OPEN_NEW, &queue));

    atomic_store(&h->registry, tni_who(9, 4));
    expect_finding(d, "the claim on making and ending objects belongs to seat 9");
    atomic_store(&h->recount, tni_who(9, 4));
    expect_finding(d, "the claim on recounts");
    atomic_store(&h->manager, tni_who(9, 4));
    expect_finding(d, "the claim to manage the domain belongs to seat 9");
    atomic_store(&h->object_limit, 5000);
    expect_finding(d, "the limit of objects is 5000");
    tni_seat_set_remove(&tni_object_at(&d->segment, 0)->openers, d->seat);
    expect_finding(d, "object 0 (queue 'q') is open in no seat");
    tn_object_close(queue);
    assert_int_equal(live_blocks(d), 0);
    close_domain(d);
}

TN_TEST(an_audit_names_a_slot_whose_owner_has_no_seat)
{
    struct tn_domain *d = open_domain();
    tn_queue *queue;
    TN_CHECK_OK(tn_queue_open(d, "q", NULL, TN_OPEN_NEW, &queue));
    _Atomic uint64_t *word = &((struct tni_slot *)(void *)tni_queue_of(queue)->slots)->word;
    uint64_t was = atomic_load(word);

    atomic_store(word, tni_slot_word(tni_slot_round(was), TNI_SLOT_CLAIMED, 9, 0));
    assert_int_equal(audit(d), 1);
    atomic_store(word, tni_slot_word(tni_slot_round(was), TNI_SLOT_CLAIMED, d->seat, 0));
    assert_int_equal(audit(d), 0);
    atomic_store(word, was);
    tn_object_close(queue);
    close_domain(d);
}

TN_TEST(an_audit_names_dead_seats_that_are_not_reclaimed)
{
    struct tn_domain *d = open_domain();
    struct held held = open_held(d, 3);
    pid_t child = tnt_fork(hold_until_told, &held);
    tnt_await(&held.ready);
    tnt_kill(child);
    expect_finding(d, "is dead and not reclaimed");
    assert_int_equal(live_blocks(d), 0);
    close_held(&held);
    close_domain(d);
}

TN_TEST_WITHIN(an_audit_of_a_busy_domain_finds_nothing, 60)
{
    struct churn c;
    void *page;
    int fd;
    TN_CHECK_OK(tni_os_memory_create("stop", tni_os_page_bytes(), &fd));
    TN_CHECK_OK(tni_os_map(fd, tni_os_page_bytes(), tni_os_page_bytes(), false, &page));
    c.stop = page;
    open_work(&c.w, open_domain());
    pid_t children[3];
    for (int i = 0; i < 3; i++)
        children[i] = tnt_fork(churn, &c);
    int found = 0, audits = tnt_is_full() ? 150 : 30;
    for (int i = 0; i < audits && found == 0; i++)
        found = audit(c.w.domain);
    atomic_store(c.stop, 1);
    for (int i = 0; i < 3; i++)
        tnt_wait_ok(children[i]);
    assert_int_equal(found, 0);
    reclaim_all(c.w.domain);
    drain(&c.w);
    assert_int_equal(audit(c.w.domain), 0);
    tni_os_unmap(page, tni_os_page_bytes());
    tni_os_close(fd);
    close_work(&c.w);
    close_domain(c.w.domain);
}

/* ---- damage ------------------------------------------------------------------------------ */

static void spoil(struct tn_domain *d, uint64_t offset, uint64_t size_bytes, uint32_t writes)
{
    for (uint32_t i = 0; i < writes; i++) {
        uint64_t value = tnt_random_below(3) == 0 ? tnt_random_below(64) : tnt_random();
        uint64_t at = offset + tnt_random_below(size_bytes / 8) * 8;
        memcpy(tni_control_at(&d->segment, at), &value, sizeof value);
    }
}

/*
 * Run in a child, and never in seat 0 or this process's own, which say which process this is.
 */
static int reclaim_damaged(void *argument)
{
    struct work *w = argument;
    struct tn_domain *d = w->domain;
    const struct tni_geometry *g = &d->segment.geometry;
    uint64_t seat_bytes = sizeof(struct tni_seat), used = 64 * sizeof(uint64_t);

    spoil(d, g->seats_off + 3 * seat_bytes, 13 * seat_bytes, 30);
    spoil(d, g->announces_off, 16 * TNI_THREADS * sizeof(struct tni_announce), 60);
    spoil(d, g->classes_off, TNI_CLASSES * sizeof(struct tni_class), 20);
    for (uint32_t c = 1; c < g->class_count; c++)
        spoil(d, g->words_off + g->classes[c].base * 8, used, 4);
    spoil(d, g->rows_off, g->row_bytes, 50);
    spoil(d, g->objects_off, 8 * sizeof(struct tni_object), 60);
    spoil(d, g->tickets_off, 64 * sizeof(struct tni_ticket), 60);
    spoil(d, g->names_off, tni_geometry_names(g) * sizeof(uint32_t), 60);
    spoil(d, g->opens_off, g->control_bytes - g->opens_off, 60);
    tni_reaper_reclaim_all(d);
    tni_audit(&d->segment, NULL, false,
              &(struct tni_audit_report){.each = NULL, .context = NULL});
    tni_audit(&d->segment, d, true, &(struct tni_audit_report){.each = NULL, .context = NULL});
    return 0;
}

TN_TEST_WITHIN(damaged_tables_do_not_crash_the_reaper_or_the_audit, 120)
{
    for (int round = 0; round < 10; round++) {
        struct work w;
        open_work(&w, open_domain());
        tnt_wait_ok(tnt_fork(work, &w));
        tnt_random(); /* the children of two rounds begin with different numbers */
        tnt_wait_ok(tnt_fork(reclaim_damaged, &w));
        tni_process_leave(w.domain); /* what follows touches no shared memory any more */
        close_work(&w);
        tni_process_unkeep(w.domain);
    }
}
