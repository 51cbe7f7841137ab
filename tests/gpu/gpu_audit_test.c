/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an audit says of memory of devices: each sentence is brought about by a single field
 * that is changed, and is not said any more when the field is as it was, or was repaired.
 */
#include <signal.h>
#include <string.h>

#include "gpu/gpu.h"
#include "reaper/reaper.h"
#include "ref/ref.h"

enum { SMALL = 4096, LARGE = 1 << 20 };

static tn_domain *domain;
static tn_tensor *tensor; /* of SMALL bytes; NULL: the test begins without */
static tn_queue *queue;
static tn_event *told;
static struct tni_segment *s;

/* The first block of the only span of a size, its slab, and the description of the slab. */
struct place {
    tni_block first, slab;
    struct tni_backing *backing;
};

static tn_tensor *make(int64_t bytes)
{
    tn_tensor *made;
    TN_CHECK_OK(tn_tensor_create(domain, TN_UINT8, 1, &bytes,
                                 TN_OPTIONS(tn_tensor_options, .device = gpu_0), &made));
    return made;
}

static struct place place_of(int64_t bytes)
{
    uint32_t class_id = tni_geometry_device_class(&s->geometry, (uint64_t)bytes);
    struct place place = {.first = tni_block_make(class_id, 0)};
    place.slab = tni_slab_of(s, place.first);
    assert_int_not_equal(place.slab.id, 0);
    place.backing = tni_payload_at(s, place.slab);
    return place;
}

static void begin_empty(void)
{
    gpu_begin(NULL);
    domain = tnt_domain(NULL);
    s = &domain->segment;
}

static struct place begin(void)
{
    begin_empty();
    tensor = make(SMALL);
    TNT_AUDIT(domain);
    return place_of(SMALL);
}

static void end(void)
{
    tn_tensor_unref(tensor);
    TNT_AUDIT(domain);
    gpu_await_used(domain, 0);
    tn_domain_close(domain);
    gpu_end();
}

struct findings {
    int count, repaired;
    char text[4096];
};

static int note(const char *sentence, bool repaired, void *context)
{
    struct findings *f = context;
    size_t used = strlen(f->text);
    f->count++;
    f->repaired += repaired;
    snprintf(f->text + used, sizeof f->text - used, "%s\n", sentence);
    return 0;
}

static void expect(const struct findings *f, const char *format, uint32_t one, uint32_t other)
{
    char words[256];
    snprintf(words, sizeof words, format, one, other);
    if (strstr(f->text, words) == NULL)
        fail_msg("the audit says '%s', and not '%s'", f->text, words);
}

/* Both a member and an inspector say the words, which have two numbers of blocks. */
static void expect_both(const char *format, uint32_t one, uint32_t other)
{
    struct findings of_member = {0}, of_inspector = {0};
    tn_inspector *inspector;
    assert_true(tn_domain_audit(domain, false, note, &of_member, NULL) > 0);
    expect(&of_member, format, one, other);
    char id[33];
    for (size_t i = 0; i < sizeof s->id; i++)
        snprintf(id + 2 * i, 3, "%02x", s->id[i]);
    TN_CHECK_OK(tn_inspector_open(id, &inspector));
    assert_true(tn_inspect_audit(inspector, false, note, &of_inspector, NULL) > 0);
    expect(&of_inspector, format, one, other);
    tn_inspector_close(inspector);
}

/* ---- spans and slabs --------------------------------------------------------------------- */

TN_TEST(a_span_whose_slab_does_not_exist_is_named)
{
    struct place place = begin();
    _Atomic uint64_t *record = &tni_desc_at(s, place.first)->committed;
    uint64_t slab = atomic_exchange(record, UINT64_C(0x700000123));
    expect_both("the span of block %08x names block 700000123 as its slab, which is none",
                place.first.id, 0);
    expect_both("1 blocks in use have no bytes, because their span has no slab, such as block "
                "%08x",
                place.first.id, 0);
    atomic_store(record, slab);
    end();
}

TN_TEST(a_span_that_names_another_storage_as_its_slab_is_named)
{
    struct place place = begin();
    tn_tensor *host;
    const tn_tensor_options options = {.struct_size = sizeof options,
                                       .strategy = TN_STRATEGY_FILE_DESCRIPTOR};
    TN_CHECK_OK(tn_tensor_create(domain, TN_UINT8, 1, (int64_t[]){SMALL}, &options, &host));
    tni_block other = tni_block_make(TNI_BACKING_CLASS, tni_frontier(s, TNI_BACKING_CLASS) - 1);
    _Atomic uint64_t *record = &tni_desc_at(s, place.first)->committed;
    uint64_t slab = atomic_exchange(record, other.id);
    expect_both("the span of block %08x names block %08x as its slab, which is none",
                place.first.id, other.id);
    atomic_store(record, slab);
    tn_tensor_unref(host);
    end();
}

TN_TEST(blocks_in_use_without_a_slab_are_named)
{
    struct place place = begin();
    tn_tensor *second = make(SMALL);
    _Atomic uint64_t *record = &tni_desc_at(s, place.first)->committed;
    uint64_t slab = atomic_exchange(record, 0);
    expect_both("2 blocks in use have no bytes, because their span has no slab, such as block "
                "%08x",
                place.first.id, 0);
    expect_both("block %08x: count 1, but nothing names it", place.slab.id, 0);
    atomic_store(record, slab);
    tn_tensor_unref(second);
    end();
}

TN_TEST(a_block_in_use_beyond_the_end_of_its_slab_is_named)
{
    struct place place = begin();
    tn_tensor *second = make(SMALL);
    uint64_t bytes = place.backing->data_bytes;
    TNI_PUT(place.backing->data_bytes, SMALL);
    expect_both("1 blocks in use lie beyond the end of their slab, block %08x, such as block "
                "%08x",
                place.slab.id, place.first.id + 1);
    TNI_PUT(place.backing->data_bytes, bytes);
    tn_tensor_unref(second);
    end();
}

TN_TEST(two_spans_of_one_slab_are_named)
{
    struct place place = begin();
    tn_tensor *large = make(LARGE);
    struct place other = place_of(LARGE);
    _Atomic uint64_t *record = &tni_desc_at(s, other.first)->committed;
    uint64_t slab = atomic_exchange(record, place.slab.id);
    expect_both("the spans of blocks %08x and %08x name the same slab", place.first.id,
                other.first.id);
    expect_both("block %08x: count 1, but 2 records name it", place.slab.id, 0);
    atomic_store(record, slab);
    tn_tensor_unref(large);
    end();
}

TN_TEST(a_span_that_a_stopped_thread_takes_is_not_named)
{
    enum { LAST = TNI_THREADS - 1 }; /* a thread record of this process that no thread uses */
    struct findings f = {0};
    struct place place = begin();
    struct tni_announce *stopped = tni_announce_at(s, domain->seat, LAST);
    _Atomic uint64_t *record = &tni_desc_at(s, place.first)->committed;
    atomic_store(&stopped->block, place.first.id);
    atomic_store(&stopped->span, s->geometry.classes[tni_block_class(place.first)].span);
    atomic_store(&stopped->outer, place.slab.id);
    uint64_t slab = atomic_exchange(record, 0);
    assert_int_equal(tn_domain_audit(domain, false, note, &f, NULL), 0);
    atomic_store(record, slab);
    atomic_store(&stopped->outer, 0);
    atomic_store(&stopped->block, 0);
    end();
}

/* Slabs come and go, and blocks of them cross to this process, until it says stop. */
static int work_until_told(void *unused)
{
    (void)unused;
    for (uint32_t round = 0; !tn_event_is_set(told); round++) {
        tn_tensor *one = make(round % 2 == 0 ? LARGE : SMALL), *two = make(3 * LARGE);
        TN_CHECK_OK(tn_queue_push_tensor(queue, one, 0, tnt_deadline(10000)));
        tn_tensor_unref(two);
        tn_tensor_unref(one);
        TN_CHECK_OK(tn_domain_trim(domain, 0, NULL));
    }
    tn_domain_close(domain);
    return 0;
}

TN_TEST(memory_that_is_in_use_during_an_audit_is_not_named)
{
    enum { AUDITS = 20, POPS = 100 };
    uint32_t pops = 0;
    begin_empty();
    TN_CHECK_OK(tn_queue_open(domain, NULL, NULL, 0, &queue));
    TN_CHECK_OK(tn_event_open(domain, NULL, 0, &told));
    pid_t pid = tnt_fork(work_until_told, NULL);
    for (uint32_t audits = 0; audits < AUDITS || pops < POPS; audits++) {
        tn_tensor *popped;
        struct findings f = {0};
        if (tn_domain_audit(domain, false, note, &f, NULL) != 0)
            fail_msg("the audit says '%s'", f.text);
        for (; tn_queue_pop_tensor(queue, TN_NOW, &popped) == 0; pops++)
            tn_tensor_unref(popped);
    }
    TN_CHECK_OK(tn_event_set(told));
    tnt_wait_ok(pid);
    tn_object_close(told);
    tn_object_close(queue);
    TN_CHECK_OK(tn_domain_reap(domain, NULL));
    end();
}

/* ---- descriptions ------------------------------------------------------------------------ */

TN_TEST(memory_that_counts_too_much_against_a_quota_is_named)
{
    struct place place = begin();
    uint64_t bytes = place.backing->object_bytes;
    TNI_PUT(place.backing->object_bytes, UINT64_C(1) << 40);
    expect_both("block %08x: 1099511627776 bytes count against the quota of its device, for ",
                place.slab.id, 0);
    TNI_PUT(place.backing->object_bytes, bytes);
    end();
}

TN_TEST(a_slab_that_is_settled_too_far_is_repaired)
{
    struct findings f = {0};
    struct place place = begin();
    atomic_store(&place.backing->settled, 7);
    expect_both("slab %08x: more deaths are settled than processes have died", place.slab.id,
                0);
    assert_int_equal(tn_domain_audit(domain, true, note, &f, NULL), 1);
    assert_int_equal(f.repaired, 1);
    assert_int_equal(atomic_load(&place.backing->settled), 0);
    end();
}

/* ---- leases ------------------------------------------------------------------------------ */

static void expect_repaired(const char *format, uint32_t one, uint32_t other)
{
    struct findings f = {0};
    expect_both(format, one, other);
    assert_int_equal(tn_domain_audit(domain, true, note, &f, NULL), 1);
    assert_int_equal(f.repaired, 1);
    TNT_AUDIT(domain);
}

/* Of a process that had the seat before: its number of the seat is another. */
TN_TEST(a_lease_of_a_process_that_has_ended_is_named_and_ended)
{
    begin_empty();
    uint32_t lease = 0;
    const struct tni_lessor of = {.maker = domain->who, .allocation = 77};
    uint64_t gone = domain->who ^ (UINT64_C(1) << 63);
    assert_true(tni_lease_take(s, domain->who, &of, &lease));
    TNT_AUDIT(domain); /* its holder lives */
    tni_lease_release(s, domain->who, lease);
    assert_true(tni_lease_take(s, gone, &of, &lease));
    expect_repaired("lease %u of memory of another allocator belongs to seat %u, whose "
                    "process has ended",
                    lease, tni_who_seat(gone));
    assert_true(atomic_load(&tni_lease_at(s, lease)->holder) == TNI_LEASE_OVER);
    tni_lease_end_over(s, &of);
    assert_true(atomic_load(&tni_lease_at(s, lease)->holder) == 0);
    end();
}

TN_TEST(a_limit_of_leases_above_the_table_is_repaired)
{
    begin_empty();
    atomic_store(&s->header->lease_limit, TNI_LEASES + 5);
    expect_repaired("the limit of leases is %u, but there are only %u", TNI_LEASES + 5,
                    TNI_LEASES);
    assert_int_equal(atomic_load(&s->header->lease_limit), TNI_LEASES);
    end();
}

/* ---- deposits ---------------------------------------------------------------------------- */

/* With another generation, the deposit that tenond has is of a slab that has ended. */
TN_TEST(a_descriptor_that_tenond_has_lost_is_named)
{
    struct place place = begin();
    struct tni_desc *desc = tni_desc_at(s, place.slab);
    TN_CHECK_OK(tn_queue_open(domain, NULL, NULL, 0, &queue));
    TN_CHECK_OK(tn_queue_push_tensor(queue, tensor, 0, TN_NOW)); /* deposits the descriptor */
    TNT_AUDIT(domain);
    assert_true(atomic_load(&place.backing->depositary) == atomic_load(&s->header->manager));
    TNI_PUT(desc->generation, desc->generation + 1);
    expect_both("block %08x: tenond has lost the descriptor of its memory on a device",
                place.slab.id, 0);
    TNI_PUT(desc->generation, desc->generation - 1);
    tn_object_close(queue);
    end();
}

TN_TEST(a_tenond_that_does_not_answer_is_no_discrepancy)
{
    struct findings f = {0};
    uint32_t unchecked;
    struct place place = begin();
    uint64_t manager = atomic_load(&s->header->manager);
    int32_t pid = atomic_load(&tni_seat_at(s, tni_who_seat(manager))->pid);
    atomic_store(&place.backing->depositary, manager); /* so that the audit asks */
    assert_int_equal(kill(pid, SIGSTOP), 0);
    assert_int_equal(tn_domain_audit(domain, false, note, &f, &unchecked), 0);
    assert_int_equal(unchecked, 1);
    assert_int_equal(kill(pid, SIGCONT), 0);
    TN_CHECK_OK(tn_domain_audit(domain, false, NULL, NULL, &unchecked));
    assert_int_equal(unchecked, 0);
    end();
}
