/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests: tenond and its vault keep all descriptors of a block together, for memory that its
 * allocator mapped in pieces. Here a piece is a second opening of a memory object: all have one
 * inode, as the memory of a driver has, and the position in the file tells which one it is.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>

#include "backing.h"
#include "harness/live_blocks.h"
#include "tenond/vault.h"

enum { FEW = 5, BLOCKS = 3 };

struct storage {
    tni_block block;
    uint32_t generation, count;
    int fds[TNI_PIECES + 1]; /* [count + 1]: one more than the block has */
};

static tn_domain *d;
static struct storage storages[8];

static void begin(void) { d = tnt_domain(NULL); }

/* ---- blocks that say of how many pieces their memory is ---------------------------------- */

static void describe(const struct storage *s)
{
    struct tni_backing *b = tni_payload_at(&d->segment, s->block);
    uint64_t inode, device;
    TN_CHECK_OK(tni_os_identify(s->fds[0], &inode, &device));
    *b = (struct tni_backing){.object_bytes = 4096,
                              .data_bytes = 4096,
                              .owner = d->who,
                              .inode = inode,
                              .device = device,
                              .device_type = TN_DEVICE_CUDA,
                              .allocation = 1,
                              .allocation_bytes = 4096 * (uint64_t)s->count,
                              .piece_count = s->count};
    atomic_store(&b->strategy, tni_strategy_word(TN_STRATEGY_CUDA_IPC, s->generation));
}

static struct storage *make(uint32_t at, uint32_t count)
{
    const struct tni_block_about about = {.kind = TNI_KIND_BACKING};
    struct storage *s = &storages[at];
    struct tni_new_block new;
    char path[64];
    int memory;
    TN_CHECK_OK(tni_ref_alloc(d, sizeof(struct tni_backing), &about, 0, &new));
    TN_CHECK_OK(tni_os_memory_create("tenon-storage:pieces", 4096, &memory));
    *s = (struct storage){
        .block = new.block, .generation = tni_ref_generation(d, new.block), .count = count};
    snprintf(path, sizeof path, "/proc/self/fd/%d", memory);
    for (int i = 0; i <= (int)count; i++) {
        s->fds[i] = open(path, O_RDWR | O_CLOEXEC);
        TN_CHECK(s->fds[i] >= 0 && lseek(s->fds[i], i, SEEK_SET) == i);
    }
    tni_os_close(memory);
    describe(s);
    return s;
}

static void release(struct storage *s)
{
    for (uint32_t i = 0; i <= s->count; i++)
        tni_os_close(s->fds[i]);
    tni_ref_release(d, s->block);
}

static void finish(void)
{
    assert_int_equal(live_blocks(d), 0);
    await_storages(manager_pid(d), 0);
    await_empty_vault();
    assert_int_equal(count_open(getpid(), STORAGE_TARGET), 0);
    d = tn_domain_close(d);
}

/* ---- requests ---------------------------------------------------------------------------- */

static int put(const struct storage *s)
{
    tni_mappings_lock(d);
    int status = tni_backing_part(d)->depot->put(d, s->block, s->generation, s->fds, s->count);
    tni_mappings_unlock(d);
    return status;
}

/* @return what tenond answers to any descriptors */
static int put_raw(const struct storage *s, const int *fds, uint32_t count)
{
    tni_mappings_lock(d);
    int status = tni_manager_deposit(d, s->block, s->generation, fds, count);
    tni_mappings_unlock(d);
    return status;
}

static int get(const struct storage *s, int *ret_fds, uint32_t count)
{
    tni_mappings_lock(d);
    int status = tni_backing_part(d)->depot->get(d, s->block, s->generation, ret_fds, count);
    tni_mappings_unlock(d);
    return status;
}

/* @return TN_ERR_NOT_FOUND, or 0: all descriptors came, in their order */
static int get_all(const struct storage *s)
{
    int fds[TNI_PIECES];
    uint64_t inode, wanted, device, deadline_ns = tnt_until_ns(BACKING_MS);
    int status;
    /* A tenond that has just begun may not have got all from its vault, or not listen. */
    while ((status = get(s, fds, s->count)) == TN_ERR_TIMED_OUT || status == TN_ERR_MANAGER) {
        TN_CHECK(tni_os_now_ns() < deadline_ns);
        tni_os_yield();
    }
    if (status != 0)
        return status;
    TN_CHECK_OK(tni_os_identify(s->fds[0], &wanted, &device));
    for (uint32_t i = 0; i < s->count; i++) {
        TN_CHECK_OK(tni_os_identify(fds[i], &inode, &device));
        TN_CHECK(inode == wanted && lseek(fds[i], 0, SEEK_CUR) == (off_t)i);
        tni_os_close(fds[i]);
    }
    return 0;
}

static void await_both(unsigned wanted)
{
    await_storages(manager_pid(d), wanted);
    await_vault(0, wanted);
}

/* ---- kept and given out ------------------------------------------------------------------ */

static void keep(uint32_t count)
{
    struct storage *s = make(0, count);
    for (int i = 0; i < 2; i++) { /* tenond keeps the descriptors once */
        assert_int_equal(put(s), 0);
        assert_int_equal(get_all(s), 0);
        await_both(count);
    }
    assert_int_equal(count_open(getpid(), STORAGE_TARGET), count + 1);
    release(s);
    await_both(0);
}

TN_TEST(all_descriptors_of_a_block_are_kept_in_order_and_dropped)
{
    begin();
    keep(1);
    keep(2);
    keep(TNI_PIECES);
    finish();
}

TN_TEST(another_number_of_descriptors_is_refused)
{
    begin();
    struct storage *s = make(0, FEW);
    assert_int_equal(put(s), 0);
    struct storage *other = make(1, FEW);
    assert_int_equal(put_raw(other, other->fds, FEW - 1), TN_ERR_INVALID);
    assert_int_equal(put_raw(other, other->fds, FEW + 1), TN_ERR_INVALID);
    assert_int_equal(put_raw(other, other->fds, 1), TN_ERR_INVALID);
    assert_int_equal(get_all(other), TN_ERR_NOT_FOUND);
    await_both(FEW);
    assert_int_equal(put(other), 0);
    await_both(2 * FEW);
    release(other);
    release(s);
    finish();
}

TN_TEST(one_descriptor_of_another_object_spoils_all)
{
    begin();
    struct storage *s = make(0, FEW), *other = make(1, FEW);
    int fds[FEW];
    assert_int_equal(put(other), 0);
    for (int i = 0; i < FEW; i++) {
        memcpy(fds, s->fds, sizeof fds);
        fds[i] = other->fds[i];
        assert_int_equal(put_raw(s, fds, FEW), TN_ERR_INVALID);
    }
    assert_int_equal(get_all(s), TN_ERR_NOT_FOUND);
    await_both(FEW);
    release(other);
    release(s);
    finish();
}

TN_TEST(more_descriptors_than_a_block_can_have_end_the_connection)
{
    begin();
    struct storage *s = make(0, TNI_PIECES);
    assert_int_equal(put_raw(s, s->fds, TNI_PIECES + 1), TN_ERR_CLOSED);
    await_storages(manager_pid(d), 0);
    assert_int_equal(put(s), 0);
    assert_int_equal(get_all(s), 0);
    release(s);
    finish();
}

TN_TEST(who_wants_another_number_of_descriptors_gets_none)
{
    begin();
    struct storage *s = make(0, FEW);
    int fds[TNI_PIECES];
    assert_int_equal(put(s), 0);
    unsigned before = count_open(getpid(), STORAGE_TARGET);
    static const uint32_t counts[] = {1, FEW - 1, FEW + 1, TNI_PIECES};
    for (size_t i = 0; i < TNI_COUNT(counts); i++) {
        assert_int_equal(get(s, fds, counts[i]), TN_ERR_MANAGER);
        assert_non_null(strstr(tn_error_detail(), "with 5 descriptors"));
        assert_int_equal(count_open(getpid(), STORAGE_TARGET), before);
    }
    assert_int_equal(get_all(s), 0);
    release(s);
    finish();
}

/* The copy of its memory has one descriptor, and the pieces are nobody's any more. */
TN_TEST(the_descriptor_of_moved_memory_replaces_those_of_its_pieces)
{
    begin();
    struct storage *s = make(0, FEW);
    assert_int_equal(put(s), 0);
    await_both(FEW);
    struct tni_backing *b = tni_payload_at(&d->segment, s->block);
    atomic_store(&b->moved, TNI_MOVED);
    int fd;
    assert_int_equal(get(s, &fd, 1), TN_ERR_NOT_FOUND);
    assert_int_equal(put_raw(s, s->fds + 1, 1), 0);
    assert_int_equal(get(s, &fd, 1), 0);
    assert_int_equal(lseek(fd, 0, SEEK_CUR), 1);
    tni_os_close(fd);
    await_both(1);
    release(s);
    finish();
}

/* ---- limits ------------------------------------------------------------------------------ */

static void set_hard_limit(rlim_t most)
{
    const struct rlimit limit = {.rlim_cur = most, .rlim_max = most};
    TN_CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

TN_TEST(the_limit_of_tenond_counts_descriptors)
{
    enum { LIMIT = 512, MOST = LIMIT / 2, PART = 100, REST = MOST - 2 * PART };
    set_hard_limit(LIMIT); /* also of the tenond that this process starts */
    begin();
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(put(make(i, PART)), 0);
    struct storage *third = make(2, PART);
    assert_int_equal(put(third), TN_ERR_FULL);
    assert_non_null(strstr(tn_error_detail(), "is 512"));
    assert_int_equal(get_all(third), TN_ERR_NOT_FOUND);
    await_both(2 * PART);
    assert_int_equal(put(make(3, REST)), 0);
    await_both(MOST);
    release(&storages[0]);
    await_both(MOST - PART);
    assert_int_equal(put(third), 0);
    await_both(MOST);
    for (uint32_t i = 1; i < 4; i++) {
        assert_int_equal(get_all(&storages[i]), 0);
        release(&storages[i]);
    }
    finish();
}

/* It cannot even receive the message: the block stays in the vault, whole. */
TN_TEST(a_tenond_without_room_for_a_message_has_no_part_of_it)
{
    enum { LIMIT = 140 };
    begin();
    struct storage *large = make(0, TNI_PIECES), *small = make(1, FEW);
    assert_int_equal(put(large), 0);
    assert_int_equal(put(small), 0);
    int32_t vault = await_vault(0, TNI_PIECES + FEW);
    int32_t limited = replace_by_limited(d, vault, LIMIT);
    assert_int_equal(get_all(small), 0);
    assert_int_equal(put(large), TN_ERR_FULL);
    assert_non_null(strstr(tn_error_detail(), "is 140"));
    assert_int_equal(get_all(large), TN_ERR_NOT_FOUND);
    await_storages(limited, FEW);
    assert_int_equal(await_vault(0, TNI_PIECES + FEW), vault);
    kill_and_await(limited, SIGKILL);
    await_successor(d, limited);
    await_both(TNI_PIECES + FEW);
    assert_int_equal(get_all(large), 0);
    assert_int_equal(get_all(small), 0);
    release(large);
    release(small);
    finish();
}

/* A process that is no tenond gives the vault no descriptors to keep. */
TN_TEST(strangers_leave_no_descriptors_with_the_vault)
{
    enum { STRANGERS = 8 };
    const struct vault_packet p = {.magic = VAULT_MAGIC, .verb = VAULT_PUT};
    int sockets[STRANGERS];
    begin();
    struct storage *s = make(0, FEW), *strange = make(1, TNI_PIECES);
    assert_int_equal(put(s), 0);
    await_both(FEW);
    for (int i = 0; i < STRANGERS; i++) {
        TN_CHECK_OK(tni_os_connect(TNI_VAULT_SOCKET, &sockets[i]));
        TN_CHECK_OK(tni_os_send(sockets[i], &p, sizeof p, strange->fds, TNI_PIECES));
    }
    for (int i = 0; i < STRANGERS; i++) {
        TN_CHECK_OK(tni_os_poll(&sockets[i], 1, tnt_until_ns(BACKING_MS))); /* its end */
        tni_os_close(sockets[i]);
    }
    await_both(FEW);
    assert_int_equal(get_all(s), 0);
    release(strange);
    release(s);
    finish();
}

/* ---- one of them is killed --------------------------------------------------------------- */

static void put_blocks(uint32_t count)
{
    for (uint32_t i = 0; i < BLOCKS; i++)
        assert_int_equal(put(make(i, count)), 0);
}

static void get_blocks(void)
{
    for (uint32_t i = 0; i < BLOCKS; i++)
        assert_int_equal(get_all(&storages[i]), 0);
}

static void release_blocks(void)
{
    for (uint32_t i = 0; i < BLOCKS; i++)
        release(&storages[i]);
}

TN_TEST(the_next_tenond_and_the_next_vault_have_all_pieces)
{
    enum { ALL = BLOCKS * TNI_PIECES };
    begin();
    put_blocks(TNI_PIECES);
    int32_t vault = await_vault(0, ALL), old = manager_pid(d);
    kill_and_await(old, SIGKILL);
    await_storages(await_successor(d, old), ALL);
    get_blocks();
    assert_int_equal(await_vault(0, ALL), vault);
    kill_and_await(vault, SIGKILL);
    await_vault(vault, ALL);
    old = manager_pid(d);
    kill_and_await(old, SIGKILL);
    await_storages(await_successor(d, old), ALL);
    get_blocks();
    release_blocks();
    finish();
}

#if defined(TN_KILL_POINTS)
/* Wait, as a survivor waits, until the first tenond has a successor. */
static void survive_start(void)
{
    _Atomic uint32_t word = 0;
    uint64_t deadline_ns = tnt_until_ns(BACKING_MS);
    while (atomic_load(&d->segment.header->manager_starts) < 2) {
        TN_CHECK(tni_os_now_ns() < deadline_ns);
        tni_process_sleep(d, &word, 0, &(struct tni_wait){.deadline_ns = tnt_until_ns(120)});
    }
}
#endif

/* Let tenond, or the vault that it starts, be killed at the point. */
static void die_at(const char *point, unsigned passing)
{
#if defined(TN_KILL_POINTS)
    begin_armed(point, passing, begin);
    put_blocks(FEW);
    survive_until(d, BLOCKS * FEW);
    get_blocks();
    bool is_tenond = strncmp(point, "tenond_", strlen("tenond_")) == 0;
    if (is_tenond) /* else each vault is killed in its turn */
        await_vault(0, BLOCKS * FEW);
    release_blocks();
    if (is_tenond)
        survive_start();
    survive_until(d, 0);
    finish();
#else
    (void)point, (void)passing;
    tnt_skip("this build has no kill points");
#endif
}

TN_TEST(a_tenond_killed_before_it_has_all_pieces_costs_nothing)
{
    die_at("tenond_deposit_named", 2);
}
TN_TEST(a_tenond_killed_before_the_vault_has_pieces_costs_nothing)
{
    die_at("tenond_deposit_kept", 2);
}
TN_TEST(a_tenond_killed_when_the_vault_has_all_pieces_costs_nothing)
{
    die_at("tenond_deposit_mirrored", 2);
}
TN_TEST(a_tenond_killed_while_it_drops_pieces_costs_nothing)
{
    die_at("tenond_deposit_dropped", 1);
}
TN_TEST(a_vault_killed_while_it_takes_pieces_costs_nothing) { die_at("vault_put", 2); }
TN_TEST(a_vault_killed_while_it_drops_pieces_costs_nothing) { die_at("vault_dropped", 1); }

/*
 * The successor of a killed tenond, or the vault that it asks, is killed while the successor
 * recalls. The deaths of both may lose a block, but no part of one.
 */
static void die_recalling(const char *point)
{
#if defined(TN_KILL_POINTS)
    begin_armed(point, 2, begin);
    put_blocks(FEW);
    int32_t old = manager_pid(d);
    await_vault(0, BLOCKS * FEW);
    kill_and_await(old, SIGKILL);
    await_successor(d, old);
    for (uint32_t i = 0; i < BLOCKS; i++) {
        int status = get_all(&storages[i]);
        if (status == TN_ERR_NOT_FOUND)
            status = put(&storages[i]);
        assert_int_equal(status, 0);
    }
    survive_until(d, BLOCKS * FEW);
    get_blocks();
    release_blocks();
    finish();
#else
    (void)point;
    tnt_skip("this build has no kill points");
#endif
}

TN_TEST(a_vault_killed_while_it_gives_pieces_gives_no_part) { die_recalling("vault_listing"); }
TN_TEST(a_tenond_killed_while_it_takes_pieces_over_takes_no_part)
{
    die_recalling("tenond_recalling");
}
