/* SPDX-License-Identifier: Apache-2.0 */
/* tn_tensor_find(): from any address to the storage that lies there, or to none. */
#include "unit/tensor_test.h"

#include "harness/tensor.h"
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static tn_tensor *make_bytes(tn_domain *domain, int64_t count)
{
    tn_tensor *t;
    TN_CHECK_OK(tn_tensor_create(domain, TN_UINT8, 1, &count, NULL, &t));
    return t;
}

static tn_tensor *make_as(tn_domain *domain, uint32_t strategy, uint32_t flags, int64_t count)
{
    tn_tensor_options options = {
        .struct_size = sizeof options, .strategy = strategy, .flags = flags};
    tn_tensor *t;
    TN_CHECK_OK(tn_tensor_create(domain, TN_UINT8, 1, &count, &options, &t));
    return t;
}

static const uint8_t *bytes_of(const tn_tensor *t) { return tn_tensor_data(t); }

static void assert_finds(tn_domain *domain, const void *address, uint64_t size_bytes,
                         const tn_tensor *expected)
{
    tn_tensor *found;
    TN_CHECK_OK(tn_tensor_find(domain, address, size_bytes, &found));
    assert_true(tn_tensor_same_storage(found, expected));
    assert_int_equal(tn_tensor_dtype(found), TN_UINT8);
    assert_int_equal(tn_tensor_ndim(found), 1);
    assert_int_equal(tnt_info(found).byte_offset, 0);
    assert_int_equal(tn_tensor_shape(found)[0], tnt_info(expected).storage_bytes);
    assert_int_equal(tnt_info(found).storage_bytes, tnt_info(expected).storage_bytes);
    assert_ptr_equal(tn_tensor_data(found), tn_tensor_data(expected));
    tn_tensor_unref(found);
}

static void assert_finds_none(tn_domain *domain, const void *address, uint64_t size_bytes)
{
    tn_tensor *found = (tn_tensor *)&domain;
    assert_int_equal(tn_tensor_find(domain, address, size_bytes, &found), TN_ERR_NOT_FOUND);
    assert_ptr_equal(found, &domain);
}

TN_TEST(an_address_finds_the_whole_storage_of_each_size_and_strategy)
{
    static const int64_t sizes[] = {1, 64, 65, 4096, 5000, 70000, 3 << 20};
    tn_domain *domain = make_domain();
    for (uint32_t strategy = TN_STRATEGY_ARENA; strategy <= TN_STRATEGY_FILE_SYSTEM; strategy++)
        for (size_t i = 0; i < TNI_COUNT(sizes); i++) {
            tn_tensor *before = make_as(domain, strategy, 0, sizes[i]);
            tn_tensor *t = make_as(domain, strategy, 0, sizes[i]);
            uint64_t bytes = (uint64_t)sizes[i];
            assert_finds(domain, bytes_of(t), bytes, t);
            assert_finds(domain, bytes_of(t), 0, t);
            assert_finds(domain, bytes_of(t) + bytes - 1, 1, t);
            assert_finds(domain, bytes_of(before) + bytes / 2, bytes - bytes / 2, before);
            assert_finds_none(domain, bytes_of(t), bytes + 1);
            assert_finds_none(domain, bytes_of(t) + bytes - 1, 2);
            tn_tensor_unref(before);
            tn_tensor_unref(t);
        }
    free_domain(domain);
}

TN_TEST(a_storage_without_bytes_is_found_where_it_starts)
{
    tn_domain *domain = make_domain();
    int64_t none = 0;
    tn_tensor *t;
    TN_CHECK_OK(tn_tensor_create(domain, TN_FLOAT32, 1, &none, NULL, &t));
    assert_finds(domain, t->storage->data, 0, t);
    assert_finds_none(domain, t->storage->data, 1);
    tn_tensor_unref(t);
    free_domain(domain);
}

TN_TEST(what_is_found_keeps_the_memory)
{
    tn_domain *domain = make_domain();
    for (uint32_t strategy = TN_STRATEGY_ARENA; strategy <= TN_STRATEGY_FILE_SYSTEM;
         strategy++) {
        tn_tensor *t = make_as(domain, strategy, 0, 5000), *found;
        const uint8_t *data = bytes_of(t);
        memset(tn_tensor_data(t), 0x5a, 5000);
        TN_CHECK_OK(tn_tensor_find(domain, data + 100, 10, &found));
        tn_tensor_unref(t);
        assert_int_equal(bytes_of(found)[4999], 0x5a);
        assert_finds(domain, data, 5000, found);
        tn_tensor_unref(found);
        assert_finds_none(domain, data, 1);
    }
    free_domain(domain);
}

TN_TEST(addresses_that_are_no_storage_find_none)
{
    tn_domain *domain = make_domain();
    const struct tni_segment *s = &domain->segment;
    const struct tni_geometry *g = &s->geometry;
    uint8_t local = 0;
    void *heap = malloc(100);
    tn_tensor *private;
    int64_t count = 100;
    TN_CHECK_OK(tn_tensor_create_private(TN_UINT8, 1, &count, &private));
    assert_finds_none(domain, NULL, 0);
    assert_finds_none(domain, NULL, UINT64_MAX);
    assert_finds_none(domain, (void *)UINTPTR_MAX, 1);
    assert_finds_none(domain, (void *)UINTPTR_MAX, UINT64_MAX);
    assert_finds_none(domain, &local, 1);
    assert_finds_none(domain, heap, 100);
    assert_finds_none(domain, bytes_of(private), 100);
    assert_finds_none(domain, s->header, 1);
    assert_finds_none(domain, s->arena - 1, 1);
    assert_finds_none(domain, s->arena - 1, 2);
    assert_finds_none(domain, s->arena + g->arena_bytes, 1);
    assert_finds_none(domain, s->arena + g->arena_bytes - 1, 1);
    for (uint32_t c = 1; c < g->host_classes; c++) {
        const uint8_t *first = s->arena + g->classes[c].arena_off;
        const uint8_t *end = first + g->classes[c].capacity * g->classes[c].size_bytes;
        assert_finds_none(domain, first, 1);
        assert_finds_none(domain, end, 1);
        assert_finds_none(domain, end - 1, UINT64_MAX);
    }
    tn_tensor_unref(private);
    free(heap);
    free_domain(domain);
}

TN_TEST(blocks_that_are_no_tensors_are_not_found)
{
    static const uint8_t kinds[] = {TNI_KIND_BYTES, TNI_KIND_MESSAGE, TNI_KIND_RING,
                                    TNI_KIND_BACKING};
    tn_domain *domain = make_domain();
    for (size_t i = 0; i < TNI_COUNT(kinds); i++) {
        struct tni_block_about about = {.kind = kinds[i]};
        struct tni_new_block made;
        TN_CHECK_OK(tni_ref_alloc(domain, 100, &about, 0, &made));
        assert_finds_none(domain, tni_payload_at(&domain->segment, made.block), 1);
        tni_ref_release(domain, made.block);
    }
    free_domain(domain);
}

TN_TEST(another_domain_does_not_find_it)
{
    tn_domain *domain = make_domain(), *other = make_domain();
    tn_tensor *t = make_bytes(domain, 1000);
    tn_tensor *mapped = make_as(domain, TN_STRATEGY_FILE_DESCRIPTOR, 0, 1000);
    assert_finds_none(other, tn_tensor_data(t), 1);
    assert_finds_none(other, tn_tensor_data(mapped), 1);
    tn_tensor_unref(mapped);
    tn_tensor_unref(t);
    free_domain(other);
    free_domain(domain);
}

TN_TEST(a_storage_larger_than_its_block_is_found_up_to_its_end)
{
    tn_domain *domain = make_domain();
    tn_tensor *t = make_bytes(domain, 100), *found;
    uint64_t block_bytes = tni_block_bytes(&domain->segment.geometry, t->storage->block);
    tni_desc_at(&domain->segment, t->storage->block)->bytes = UINT64_MAX;
    TN_CHECK_OK(tn_tensor_find(domain, tn_tensor_data(t), 100, &found));
    assert_int_equal(tnt_info(found).storage_bytes, block_bytes);
    assert_finds_none(domain, tn_tensor_data(t), block_bytes + 1);
    tn_tensor_unref(found);
    tn_tensor_unref(t);
    free_domain(domain);
}

TN_TEST(no_domain_no_result_and_no_seat_are_told_apart)
{
    tn_domain *domain = make_domain();
    tn_tensor *t = make_bytes(domain, 100), *found;
    assert_int_equal(tn_tensor_find(NULL, tn_tensor_data(t), 1, &found), TN_ERR_INVALID);
    assert_int_equal(tn_tensor_find(domain, tn_tensor_data(t), 1, NULL), TN_ERR_INVALID);
    uint32_t seat = domain->seat;
    domain->seat = TNI_NO_SEAT;
    assert_int_equal(tn_tensor_find(domain, tn_tensor_data(t), 1, &found), TN_ERR_FORKED);
    domain->seat = seat;
    tn_tensor_unref(t);
    free_domain(domain);
}

/* ---- write-once storages ----------------------------------------------------------------- */

TN_TEST(a_write_once_storage_is_found_writable_by_its_maker)
{
    tn_domain *domain = make_domain();
    tn_tensor *t = make_as(domain, TN_STRATEGY_FILE_DESCRIPTOR, TN_TENSOR_WRITE_ONCE, 1000);
    tn_tensor *found;
    TN_CHECK_OK(tn_tensor_find(domain, bytes_of(t) + 10, 10, &found));
    assert_false(tnt_info(found).is_read_only);
    tn_tensor_unref(found);
    tn_tensor_unref(t);
    free_domain(domain);
}

TN_TEST(a_mapping_that_only_reads_is_found_read_only)
{
    tn_domain *domain = make_domain();
    tn_tensor *t = make_as(domain, TN_STRATEGY_FILE_DESCRIPTOR, 0, 1000), *found;
    t->storage->mapping->is_read_only = true;
    TN_CHECK_OK(tn_tensor_find(domain, bytes_of(t), 1000, &found));
    assert_true(tnt_info(found).is_read_only);
    tn_tensor_unref(found);
    tn_tensor_unref(t);
    free_domain(domain);
}

TN_TEST(a_mapping_of_a_storage_that_was_given_away_is_not_found)
{
    tn_domain *domain = make_domain();
    tn_tensor *t = make_as(domain, TN_STRATEGY_FILE_DESCRIPTOR, 0, 1000);
    struct tni_mapping *m = t->storage->mapping;
    tni_block block = t->storage->block;
    const void *data = tn_tensor_data(t);
    uint32_t refs = m->refs;
    tni_ref_release(domain, block); /* as a push does, before it unmaps */
    assert_finds_none(domain, data, 1);
    assert_int_equal(m->refs, refs);
    tni_tensor_forget(NULL, t);
    free_domain(domain);
}

/* ---- while other threads give blocks back ------------------------------------------------ */

enum { ROUNDS = 20000 };
struct race {
    tn_domain *domain;
    _Atomic(const void *) address;
    _Atomic bool is_over;
};

/* Allocates and frees the same few blocks, so that what is looked for comes and goes. */
static void *come_and_go(void *argument)
{
    struct race *race = argument;
    for (int i = 0; i < ROUNDS; i++) {
        tn_tensor *t = make_bytes(race->domain, 1000);
        memset(tn_tensor_data(t), 1, 1000);
        atomic_store(&race->address, tn_tensor_data(t));
        tn_tensor_unref(t);
    }
    atomic_store(&race->is_over, true);
    return NULL;
}

TN_TEST(a_found_tensor_is_held_or_not_found_beside_its_release)
{
    struct race race = {.domain = make_domain()};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, come_and_go, &race), 0);
    while (!atomic_load(&race.is_over)) {
        const void *address = atomic_load(&race.address);
        tn_tensor *found;
        int status = address != NULL ? tn_tensor_find(race.domain, address, 1000, &found)
                                     : TN_ERR_NOT_FOUND;
        if (status == TN_ERR_NOT_FOUND)
            continue;
        TN_CHECK_OK(status);
        uint64_t word = atomic_load(tni_word_at(&race.domain->segment, found->storage->block));
        TN_CHECK(tni_word_state(word) == TNI_BLOCK_ALLOC && tni_word_count(word) >= 1);
        tn_tensor_unref(found);
    }
    pthread_join(thread, NULL);
    assert_finds_none(race.domain, atomic_load(&race.address), 1);
    free_domain(race.domain);
}
