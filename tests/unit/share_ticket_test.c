/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of tickets in one process, with the rooms share and below only (ticket.c, I1 to I5). */
#include "share/ticket.h"
#include "unit/tensor_test.h"

static tn_domain *domain;
static tn_tensor *tensor;
static struct tni_thread *thread;
static tni_block block;

static void open_all(void)
{
    domain = make_domain();
    TN_CHECK_OK(tn_tensor_create(domain, TN_INT8, 1, (int64_t[]){64}, NULL, &tensor));
    block = tensor->storage->block;
    thread = tni_thread_enter(domain);
}

static void close_all(void)
{
    tni_thread_leave(thread);
    tn_tensor_unref(tensor);
    free_domain(domain);
}

static struct tni_ticket_name make_ticket(uint32_t uses, uint64_t expires_ns)
{
    struct tni_ticket_terms terms = {.uses = uses, .expires_ns = expires_ns};
    struct tni_ticket_name name = {0};
    TN_CHECK_OK(tni_ticket_make(domain, thread, block, &terms, &name));
    return name;
}

static struct tni_ticket *ticket_of(struct tni_ticket_name name)
{
    return tni_ticket_at(&domain->segment, name.index);
}

static int use(struct tni_ticket_name name)
{
    return tni_ticket_use(domain, thread, name, block, tni_ref_generation(domain, block));
}

TN_TEST(a_ticket_is_one_record_until_its_last_use)
{
    open_all();
    struct tni_ticket_name name = make_ticket(2, UINT64_MAX);
    TN_CHECK_OK(use(name));
    assert_int_equal(tni_ticket_count_records(&domain->segment, block), 1);
    TN_CHECK_OK(use(name));
    assert_int_equal(tni_ticket_count_records(&domain->segment, block), 0);
    assert_int_equal(use(name), TN_ERR_STALE);
    assert_non_null(strstr(tn_error_detail(), "was used up"));
    tni_ref_release_with(domain, thread, block);
    tni_ref_release_with(domain, thread, block);
    close_all();
}

TN_TEST(a_reused_ticket_does_not_serve_its_old_name)
{
    open_all();
    struct tni_ticket_name first = make_ticket(1, UINT64_MAX);
    assert_int_equal(tni_ticket_end(domain, thread, first.index,
                                    tni_ticket_load(ticket_of(first)), TNI_TICKET_REVOKED),
                     1);
    struct tni_ticket_name second = make_ticket(1, UINT64_MAX);
    assert_int_equal(second.index, first.index);
    assert_true(second.generation > first.generation);
    assert_int_equal(tni_ticket_check(domain, first), TN_ERR_STALE);
    assert_int_equal(use(first), TN_ERR_STALE);
    TN_CHECK_OK(use(second));
    tni_ref_release_with(domain, thread, block);
    close_all();
}

TN_TEST(a_forged_block_takes_no_use_of_a_ticket)
{
    open_all();
    struct tni_ticket_name name = make_ticket(1, UINT64_MAX);
    uint32_t generation = tni_ref_generation(domain, block);
    assert_int_equal(
        tni_ticket_use(domain, thread, name, (tni_block){block.id + 1}, generation),
        TN_ERR_INVALID);
    assert_int_equal(tni_ticket_use(domain, thread, name, block, generation + 1),
                     TN_ERR_INVALID);
    TN_CHECK_OK(use(name));
    tni_ref_release_with(domain, thread, block);
    close_all();
}

TN_TEST(reclaiming_a_seat_twice_gives_a_ticket_one_end)
{
    open_all();
    struct tni_ticket_name name = make_ticket(1, TNI_TICKET_BOUND);
    uint64_t before_ns = tni_os_shared_ns();
    tni_ticket_reclaim_seat(domain, domain->who);
    uint64_t end_ns = atomic_load(&ticket_of(name)->expires_ns);
    assert_true(end_ns >= before_ns + UINT64_C(60000000000) && end_ns < TNI_TICKET_BOUND);
    tni_ticket_reclaim_seat(domain, domain->who);
    assert_true(atomic_load(&ticket_of(name)->expires_ns) == end_ns);
    TN_CHECK_OK(use(name));
    tni_ref_release_with(domain, thread, block);
    close_all();
}

TN_TEST(a_ticket_with_its_issuer_ends_when_its_seat_does)
{
    uint32_t ended = 0;
    open_all();
    struct tni_ticket_name name = make_ticket(1, TNI_TICKET_BOUND | TNI_TICKET_WITH_ISSUER);
    tni_ticket_expire_with(domain, thread, tni_os_shared_ns(), &ended);
    assert_int_equal(ended, 0);
    tni_ticket_reclaim_seat(domain, domain->who);
    tni_ticket_expire_with(domain, thread, tni_os_shared_ns(), &ended);
    assert_int_equal(ended, 1);
    assert_int_equal(use(name), TN_ERR_STALE);
    close_all();
}

TN_TEST(a_half_made_ticket_of_a_dead_seat_is_freed)
{
    open_all();
    struct tni_ticket_name name = make_ticket(1, UINT64_MAX);
    assert_int_equal(tni_ticket_end(domain, thread, name.index,
                                    tni_ticket_load(ticket_of(name)), TNI_TICKET_REVOKED),
                     1);
    atomic_store(&ticket_of(name)->word,
                 tni_ticket_word(name.generation + 1, TNI_TICKET_MAKING, domain->seat));
    tni_ticket_reclaim_seat(domain, domain->who);
    assert_int_equal(tni_ticket_state(tni_ticket_load(ticket_of(name))), TNI_TICKET_FREE);
    close_all();
}
