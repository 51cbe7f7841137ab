/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests of the room backing: a block of a storage is reused while something of its former
 * generation goes on: an import that maps before it holds the block, a late end, a tensor that
 * outlives its domain.
 */
#include "unit/tensor_test.h"

#include <sys/mman.h>
#include <unistd.h>

#include "backing/backing.h"
#include "harness/tensor.h"

enum { BYTES = 5000 };

static tn_tensor *make_by(tn_domain *domain, uint32_t strategy, uint32_t flags)
{
    tn_tensor_options options = {
        .struct_size = sizeof options, .strategy = strategy, .flags = flags};
    int64_t size = BYTES;
    tn_tensor *t;
    TN_CHECK_OK(tn_tensor_create(domain, TN_UINT8, 1, &size, &options, &t));
    memset(tn_tensor_data(t), 1, BYTES);
    return t;
}

/* Map a storage without a reference of its block, as an import does, or a push at its end. */
static struct tni_mapping *map_without_hold(tn_domain *domain, const tn_tensor *t)
{
    struct tni_mapping *mapping;
    TN_CHECK_OK(tni_backing_map(domain, t->storage->block,
                                tni_ref_generation(domain, t->storage->block), &mapping));
    return mapping;
}

/* Make a tensor, which reuses the block of a storage that has ended. */
static tn_tensor *make_again(tn_domain *domain, uint32_t strategy, tni_block block)
{
    tn_tensor *t = make_by(domain, strategy, 0);
    assert_int_equal(t->storage->block.id, block.id);
    return t;
}

TN_TEST(a_mapping_of_a_former_generation_leaves_the_new_one_alone)
{
    tn_domain *domain = make_domain();
    unsigned mappings = tnt_mapping_count();
    tn_tensor *t = make_by(domain, TN_STRATEGY_FILE_DESCRIPTOR, 0);
    tni_block block = t->storage->block;
    struct tni_mapping *late = map_without_hold(domain, t);
    tn_tensor_unref(t);
    t = make_again(domain, TN_STRATEGY_FILE_DESCRIPTOR, block);
    assert_ptr_not_equal(late->address, t->storage->mapping->address);
    assert_int_equal(late->address[late->data_offset], 1);
    tni_backing_unmap(domain, late);
    memset(tn_tensor_data(t), 2, BYTES);
    struct tni_mapping *same = map_without_hold(domain, t);
    assert_ptr_equal(same, t->storage->mapping);
    tni_backing_unmap(domain, same);
    tn_tensor_unref(t);
    assert_int_equal(tnt_mapping_count(), mappings);
    free_domain(domain);
}

/* As if another process had made the tensor: this process's table has the former mapping. */
TN_TEST(a_reused_block_is_mapped_beside_its_former_generation)
{
    tn_domain *domain = make_domain();
    tn_tensor *t = make_by(domain, TN_STRATEGY_FILE_SYSTEM, 0);
    tni_block block = t->storage->block;
    struct tni_mapping *late = map_without_hold(domain, t), *made, *found;
    tn_tensor_unref(t);
    t = make_again(domain, TN_STRATEGY_FILE_SYSTEM, block);
    made = t->storage->mapping;
    tni_backing_part(domain)->mappings[tni_block_index(block)] = late;
    found = map_without_hold(domain, t);
    assert_ptr_not_equal(found, late);
    assert_string_equal(found->path, made->path);
    assert_ptr_equal(map_without_hold(domain, t), found);
    tni_backing_unmap(domain, found);
    tni_backing_unmap(domain, found);
    tni_backing_unmap(domain, late);
    tn_tensor_unref(t);
    free_domain(domain);
}

TN_TEST(a_late_end_does_not_end_the_object_of_a_reused_block)
{
    tn_domain *domain = make_domain();
    tn_tensor *t = make_by(domain, TN_STRATEGY_FILE_SYSTEM, 0);
    tni_block block = t->storage->block;
    uint32_t generation = tni_ref_generation(domain, block);
    tn_tensor_unref(t);
    t = make_again(domain, TN_STRATEGY_FILE_SYSTEM, block);
    tni_backing_end(domain, block, generation);
    assert_int_equal(access(tnt_info(t).path, F_OK), 0);
    struct tni_backing b;
    TN_CHECK_OK(tni_backing_read(&domain->segment, block, &b));
    assert_string_equal(b.path, tnt_info(t).path);
    tn_tensor_unref(t);
    assert_int_equal(access(b.path, F_OK), -1);
    free_domain(domain);
}

TN_TEST(a_record_of_a_memfd_that_has_a_path_is_damaged)
{
    tn_domain *domain = make_domain();
    char path[128];
    snprintf(path, sizeof path, "%s/bystander", tnt_folder());
    fclose(fopen(path, "w"));
    tn_tensor *t = make_by(domain, TN_STRATEGY_FILE_DESCRIPTOR, 0);
    struct tni_backing *b = tni_payload_at(&domain->segment, t->storage->block), read;
    snprintf(b->path, sizeof b->path, "%s", path);
    assert_int_equal(tni_backing_read(&domain->segment, t->storage->block, &read),
                     TN_ERR_CORRUPT);
    tn_tensor_unref(t);
    assert_int_equal(access(path, F_OK), 0);
    unlink(path);
    free_domain(domain);
}

TN_TEST(a_descriptor_is_never_that_of_a_reused_block)
{
    tn_domain *domain = make_domain();
    tn_tensor *t = make_by(domain, TN_STRATEGY_FILE_DESCRIPTOR, 0), *next;
    tni_block block = t->storage->block;
    struct tni_mapping *late = map_without_hold(domain, t);
    int fd = -1;
    tn_tensor_unref(t);
    next = make_again(domain, TN_STRATEGY_FILE_DESCRIPTOR, block);
    close(late->fd); /* a program that closes what it did not open */
    assert_int_equal(tni_backing_open(domain, late, block, false, &fd), TN_ERR_STALE);
    assert_int_equal(fd, -1);
    tni_backing_unmap(domain, late);
    tn_tensor_unref(next);
    free_domain(domain);
}

/* The child maps memory of its own at the address of the storage that it lost. */
static int map_where_it_was(void *argument)
{
    tn_tensor *t = argument;
    uint8_t *place = t->storage->mapping->address;
    assert_null(place);
    place = (uint8_t *)tn_tensor_data(t) - t->storage->mapping->data_offset;
    uint8_t *mine = mmap(place, BYTES, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    assert_ptr_equal(mine, place);
    tn_tensor_unref(t);
    mine[0] = 1;
    return 0;
}

TN_TEST(a_storage_lost_by_a_forked_child_is_unmapped_only_once)
{
    tn_domain *domain = make_domain();
    tni_backing_init(domain);
    tn_tensor *t = make_by(domain, TN_STRATEGY_FILE_DESCRIPTOR, TN_TENSOR_WRITE_ONCE);
    close(t->storage->mapping->fd);
    tnt_wait_ok(tnt_fork(map_where_it_was, t));
    memset(tn_tensor_data(t), 3, BYTES);
    tn_tensor_unref(t);
    free_domain(domain);
}
