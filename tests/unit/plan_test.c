/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the room plan: the text of resources and requests, and the choice of slots. */
#include <stdlib.h>
#include <string.h>

#include "harness/harness.h"
#include "plan/plan.h"

enum { MOST_SLOTS = 16 };

static struct tni_pools pools;

static void open_pools(const char *text) { TN_CHECK_OK(tni_pools_init(&pools, text, 4)); }

static void close_pools(void) { tni_pools_fini(&pools); }

static uint32_t gpu(void) { return tni_pools_find(&pools, "GPU", 3); }

static struct tni_request request_of(const char *text)
{
    struct tni_request request = {0};
    TN_CHECK_OK(tni_request_read(&pools, text, &request));
    return request;
}

/* Take `text`, and write the ids that it got. @return how many slots, or -1: not now */
static int take(const char *text, struct tni_slot_ref *slots, uint32_t *ids)
{
    const struct tni_pick pick = {.near = TNI_NO_SLOT};
    struct tni_request request = request_of(text);
    if (!tni_pools_take(&pools, &request, &pick, slots))
        return -1;
    uint32_t count = tni_request_slots(&pools, &request);
    for (uint32_t i = 0; i < count; i++)
        ids[i] = pools.pools[slots[i].pool].slots[slots[i].slot].id;
    return (int)count;
}

static void give(const char *text, const struct tni_slot_ref *slots)
{
    struct tni_request request = request_of(text);
    tni_pools_give(&pools, &request, slots, UINT32_MAX);
}

/* ---- texts ------------------------------------------------------------------------------- */

TN_TEST(a_sum_has_four_decimals_and_no_more)
{
    open_pools("MEM=0.1234, CPU=2;IO=10.50000");
    assert_true(pools.pools[TNI_CPU].total == 2 * TNI_UNIT);
    assert_true(pools.pools[tni_pools_find(&pools, "MEM", 3)].total == 1234);
    assert_true(pools.pools[tni_pools_find(&pools, "IO", 2)].total == 105000);
    close_pools();
    assert_int_equal(tni_pools_init(&pools, "MEM=0.12345", 4), TN_ERR_INVALID);
}

TN_TEST(three_tenths_are_one_tenth_and_two_tenths)
{
    struct tni_slot_ref slots[MOST_SLOTS];
    uint32_t ids[MOST_SLOTS];
    open_pools("MEM=0.3");
    assert_int_equal(take("CPU=0 MEM=0.1", slots, ids), 0);
    assert_int_equal(take("CPU=0 MEM=0.2", slots, ids), 0);
    assert_true(pools.pools[tni_pools_find(&pools, "MEM", 3)].free == 0);
    assert_int_equal(take("CPU=0 MEM=0.0001", slots, ids), -1);
    close_pools();
}

TN_TEST(a_malformed_text_of_resources_is_refused)
{
    static const char *const wrong[] = {
        "GPU",
        "=4",
        "MEM=",
        "MEM=-1",
        "MEM=nan",
        "MEM=inf",
        "MEM=1e3",
        "MEM=1000000000001",
        "MEM=1 MEM=2",
        "GPU=()",
        "GPU=(0,0)",
        "GPU=((0,1),(1))",
        "GPU=(0,1",
        "GPU=(0))",
        "GPU=(-1)",
        "GPU=(0 1)",
        "GPU=(a)",
        "GPU=(0,())",
        "GPU=(99999999999)",
        "CPU=(0,1)",
        "CPU=0",
        "THREADS=0.5",
        "GPU=(((((((((0)))))))))",
        "A_NAME_THAT_IS_LONGER_THAN_31_BYTES=1",
        "a=1 b=1 c=1 d=1 e=1 f=1 g=1 h=1 i=1 j=1 k=1 l=1 m=1 n=1 o=1"};
    for (size_t i = 0; i < TNI_COUNT(wrong); i++) {
        int status = tni_pools_init(&pools, wrong[i], 4);
        if (status != TN_ERR_INVALID)
            tnt_note("%s", wrong[i]);
        assert_int_equal(status, TN_ERR_INVALID);
        assert_true(tn_error_detail()[0] != '\0');
    }
}

TN_TEST(a_request_that_can_never_be_met_is_refused)
{
    struct tni_request request;
    open_pools("CPU=4 GPU=((0,1),(2,3)) MEM=16");
    assert_int_equal(tni_request_read(&pools, "GPU=5", &request), TN_ERR_NOT_FOUND);
    assert_non_null(strstr(tn_error_detail(), "GPU=4 slots"));
    assert_int_equal(tni_request_read(&pools, "TPU=1", &request), TN_ERR_NOT_FOUND);
    assert_non_null(strstr(tn_error_detail(), "CPU=4 THREADS=64 GPU=4 slots MEM=16"));
    assert_int_equal(tni_request_read(&pools, "GPU=1.5", &request), TN_ERR_INVALID);
    assert_int_equal(tni_request_read(&pools, "CPU=5", &request), TN_ERR_NOT_FOUND);
    assert_int_equal(tni_request_read(&pools, "MEM=16.0001", &request), TN_ERR_NOT_FOUND);
    assert_int_equal(tni_request_read(&pools, "GPU=1 GPU=1", &request), TN_ERR_INVALID);
    assert_int_equal(tni_request_read(&pools, "THREADS=1", &request), TN_ERR_INVALID);
    assert_int_equal(tni_request_read(&pools, "GPU=(0)", &request), TN_ERR_INVALID);
    close_pools();
}

TN_TEST(a_request_has_one_cpu_unless_it_says_otherwise)
{
    char text[TNI_REQUEST_TEXT_BYTES];
    static const char *const pairs[][2] = {
        {NULL, "CPU=1"},          {"", "CPU=1"},
        {"GPU=2", "CPU=1 GPU=2"}, {"GPU=1, CPU=0", "CPU=0 GPU=1"},
        {"CPU=0", "CPU=0"},       {"GPU=0.25 CPU=0.5", "CPU=0.5 GPU=0.25"}};
    open_pools("GPU=(0,1)");
    for (size_t i = 0; i < TNI_COUNT(pairs); i++) {
        struct tni_request request = request_of(pairs[i][0]);
        tni_request_print(&pools, &request, text, sizeof text);
        assert_string_equal(text, pairs[i][1]);
    }
    close_pools();
}

/* ---- slots ------------------------------------------------------------------------------- */

TN_TEST(two_slots_lie_in_one_group_even_if_it_is_busy)
{
    struct tni_slot_ref one[2][1], two[2];
    uint32_t ids[MOST_SLOTS];
    open_pools("GPU=((0,1),(2,3))");
    assert_int_equal(take("GPU=1", one[0], ids), 1);
    assert_int_equal(take("GPU=1", one[1], ids), 1);
    assert_int_equal(tni_slot_distance(&pools.pools[gpu()], one[0][0].slot, one[1][0].slot), 2);
    assert_int_equal(take("GPU=2", two, ids), -1); /* one slot of each group is free */
    give("GPU=1", one[1]);
    assert_int_equal(take("GPU=2", two, ids), 2);
    assert_int_equal(ids[1], ids[0] + 1);
    assert_int_equal(ids[0] % 2, 0);
    close_pools();
}

TN_TEST(slots_span_groups_only_if_no_group_is_large_enough)
{
    struct tni_slot_ref slots[MOST_SLOTS];
    uint32_t ids[MOST_SLOTS];
    open_pools("GPU=(((0,1),(2,3)),((4,5),(6,7)))");
    assert_int_equal(take("GPU=3", slots, ids), 3); /* in one half, which has four */
    for (int i = 0; i < 3; i++)
        assert_int_equal(ids[i] / 4, ids[0] / 4);
    assert_int_equal(take("GPU=4", slots, ids), 4); /* the other half */
    for (int i = 0; i < 4; i++)
        assert_int_equal(ids[i] / 4, ids[0] / 4);
    close_pools();
    open_pools("GPU=(((0,1),(2,3)),((4,5),(6,7)))");
    assert_int_equal(take("GPU=5", slots, ids), 5); /* a half, and one of the other */
    int in_first = 0;
    for (int i = 0; i < 5; i++)
        in_first += ids[i] < 4;
    assert_true(in_first == 4 || in_first == 1);
    close_pools();
}

TN_TEST(slots_are_in_ascending_order_of_their_numbers)
{
    struct tni_slot_ref slots[MOST_SLOTS];
    uint32_t ids[MOST_SLOTS];
    open_pools("GPU=(7,(3,5),1)");
    assert_int_equal(take("CPU=0 GPU=4", slots, ids), 4);
    for (int i = 1; i < 4; i++)
        assert_true(ids[i - 1] < ids[i]);
    close_pools();
}

TN_TEST(parts_of_a_slot_share_one_slot_while_there_is_room)
{
    struct tni_slot_ref slots[3][1];
    uint32_t ids[MOST_SLOTS];
    open_pools("GPU=(0,1)");
    assert_int_equal(take("CPU=0 GPU=0.5", slots[0], ids), 1);
    assert_int_equal(take("CPU=0 GPU=0.5", slots[1], ids), 1);
    assert_int_equal(slots[0][0].slot, slots[1][0].slot);
    assert_int_equal(take("CPU=0 GPU=0.1", slots[2], ids), 1);
    assert_int_not_equal(slots[0][0].slot, slots[2][0].slot);
    assert_int_equal(take("CPU=0 GPU=1", slots[2], ids), -1);
    close_pools();
}

TN_TEST(single_slots_spread_unless_wide_tasks_are_to_come)
{
    struct tni_slot_ref a[1], b[1];
    uint32_t ids[MOST_SLOTS];
    open_pools("GPU=((0,1),(2,3))");
    assert_int_equal(take("GPU=1", a, ids), 1);
    assert_int_equal(take("GPU=1", b, ids), 1);
    assert_int_not_equal(a[0].slot / 2, b[0].slot / 2);
    give("GPU=1", b);
    atomic_fetch_add(&pools.pools[gpu()].wide_count, 1);
    assert_int_equal(take("GPU=1", b, ids), 1);
    assert_int_equal(a[0].slot / 2, b[0].slot / 2);
    close_pools();
}

TN_TEST(random_takes_and_gives_leave_everything_free)
{
    enum { HELD = 40, STEPS = 20000 };
    static const char *const texts[] = {"GPU=1",          "GPU=2",         "GPU=3",
                                        "CPU=0 GPU=0.25", "CPU=2 MEM=3.5", "CPU=0 GPU=4 MEM=1",
                                        "CPU=0"};
    struct {
        const char *text;
        struct tni_slot_ref slots[MOST_SLOTS];
    } held[HELD] = {{0}};
    uint32_t ids[MOST_SLOTS];
    open_pools("GPU=(((0,1),(2,3)),(4,5,6)) MEM=8");
    for (int i = 0; i < STEPS; i++) {
        uint64_t at = tnt_random_below(HELD);
        if (held[at].text != NULL) {
            give(held[at].text, held[at].slots);
            held[at].text = NULL;
            continue;
        }
        const char *text = texts[tnt_random_below(TNI_COUNT(texts))];
        int count = take(text, held[at].slots, ids);
        if (count < 0)
            continue;
        held[at].text = text;
        for (int j = 1; j < count; j++)
            assert_true(ids[j] != ids[j - 1]);
        if (count == 2 || count == 3) /* the innermost groups that are large enough */
            assert_true(count == 2 ? ids[0] / 2 == ids[1] / 2 || ids[0] >= 4
                                   : ids[0] / 4 == ids[2] / 4);
    }
    for (int i = 0; i < HELD; i++)
        if (held[i].text != NULL)
            give(held[i].text, held[i].slots);
    for (uint32_t i = 0; i < pools.count; i++) {
        assert_true(pools.pools[i].free == pools.pools[i].total);
        for (uint32_t j = 0; j < pools.pools[i].slot_count; j++)
            assert_int_equal(pools.pools[i].slots[j].free, TNI_UNIT);
    }
    close_pools();
}

/* ---- what is learned --------------------------------------------------------------------- */

TN_TEST(the_time_of_a_kind_is_a_moving_average)
{
    struct tn_kind kind = {.attempts = 1};
    tni_kind_learn(&kind, 1, 3000, 3);
    assert_true(kind.mean_ns[0] == 0 &&
                kind.mean_ns[1] == 1000); /* the first is taken as it is */
    tni_kind_learn(&kind, 1, 9000, 1);
    assert_true(kind.mean_ns[1] > 1000 && kind.mean_ns[1] < 5000);
    for (int i = 0; i < 100; i++)
        tni_kind_learn(&kind, 1, 9000, 1);
    assert_in_range(kind.mean_ns[1], 8900, 9000);
}

static double host_ns_per_mib(const struct tni_memories *memories)
{
    return memories->ns_per_byte[TNI_LINK_HOST] * (1 << 20);
}

TN_TEST(the_first_copy_measures_a_link_and_later_ones_are_averaged)
{
    struct tni_memories memories;
    enum { MIB = 1 << 20 };
    open_pools("GPU=(0,1)");
    TN_CHECK_OK(tni_memories_init(&memories, &pools, "GPU=1000000", NULL));
    double before_far = memories.ns_per_byte[TNI_LINK_FAR];
    tni_link_learn(&memories, TNI_LINK_HOST, 100, 1000000); /* too few bytes */
    assert_in_range(host_ns_per_mib(&memories), 104857, 104858);
    tni_link_learn(&memories, TNI_LINK_HOST, 2 * MIB, 2 * 300000);
    assert_in_range(host_ns_per_mib(&memories), 299999, 300001);
    tni_link_learn(&memories, TNI_LINK_HOST, MIB, 600000);
    assert_in_range(host_ns_per_mib(&memories), 310000, 590000);
    for (int i = 0; i < 100; i++)
        tni_link_learn(&memories, TNI_LINK_HOST, MIB, 600000);
    assert_in_range(host_ns_per_mib(&memories), 599000, 600001);
    assert_true(memories.ns_per_byte[TNI_LINK_FAR] == before_far);
    tni_memories_fini(&memories);
    close_pools();
}
