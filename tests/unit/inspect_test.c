/* SPDX-License-Identifier: Apache-2.0 */
/* inspect: that an inspector is total, leaves no trace, and hands on what callbacks say. */
#include <string.h>

#include "api/inspect.h"
#include "harness/harness.h"
#include "os/os.h"
#include "queue/queue.h"

enum { ROUNDS = 40 };

static const struct tni_segment_options small = {.name = "scribbled",
                                                 .seats = 8,
                                                 .blocks = 256,
                                                 .objects = 32,
                                                 .tickets = 64,
                                                 .quota_bytes = 8u << 20,
                                                 .watermark_bytes = 1u << 20};

/* Nobody else touches it. */
static const tn_domain_options alone = {.struct_size = sizeof alone,
                                        .flags = TN_DOMAIN_NO_MANAGER};

struct seen {
    unsigned domains, seats, blocks, objects;
    uint64_t sum; /* of everything that was handed over: each byte is looked at */
};

static uint64_t sum_of(const void *bytes, size_t size_bytes)
{
    return tni_hash(bytes, size_bytes);
}

static int see_domain(const tn_domain_info *info, void *context)
{
    struct seen *seen = context;
    seen->domains++;
    seen->sum += sum_of(info, sizeof *info);
    return 0;
}

static int see_seat(const tn_seat_info *info, void *context)
{
    struct seen *seen = context;
    assert_true(strlen(info->command) < sizeof info->command);
    assert_true(info->pid >= 0);
    seen->seats++;
    return 0;
}

static int see_block(const tn_block_info *info, void *context)
{
    struct seen *seen = context;
    assert_true(info->bytes <= info->block_bytes);
    assert_true(info->ndim >= 0 && info->ndim <= TN_MAX_NDIM);
    assert_true(info->holder_count <= small.seats);
    assert_non_null(info->kind);
    seen->sum += sum_of(info->holders, info->holder_count * sizeof *info->holders);
    seen->blocks++;
    return 0;
}

static int see_object(const tn_object_info *info, void *context)
{
    struct seen *seen = context;
    assert_true(strlen(info->name) < sizeof info->name);
    assert_true(info->openers <= small.seats);
    seen->objects++;
    return 0;
}

static void look_at_all(tn_inspector *inspector, struct seen *seen)
{
    tn_domain_stat stat;
    TN_CHECK_OK(tn_inspect_stat(inspector, &stat));
    TN_CHECK_OK(tn_inspect_seats(inspector, see_seat, seen));
    TN_CHECK_OK(tn_inspect_blocks(inspector, see_block, seen));
    TN_CHECK_OK(tn_inspect_objects(inspector, see_object, seen));
}

/* Mostly small numbers and all ones: nonsense that is close to sense goes further. */
static void scribble(uint8_t *bytes, uint64_t size_bytes)
{
    for (uint64_t i = 0; i + 8 <= size_bytes; i += 8) {
        uint64_t word = tnt_random();
        switch (word >> 61) {
        case 0:
            word = UINT64_MAX;
            break;
        case 1:
        case 2:
            word = 0;
            break;
        case 3:
            word = tnt_random_below(512);
            break;
        default:
            break;
        }
        memcpy(bytes + i, &word, sizeof word);
    }
}

TN_TEST_WITHIN(inspecting_a_domain_of_random_bytes_neither_crashes_nor_strays, 120)
{
    struct tn_inspector inspector;
    struct seen seen = {0};

    TN_CHECK_OK(tni_segment_create(&small, &inspector.segment));
    const struct tni_segment *s = &inspector.segment;
    for (int round = 0; round < ROUNDS; round++) {
        scribble((uint8_t *)s->header, s->geometry.control_bytes);
        /* The message blocks' heads, where there are records. */
        for (uint32_t i = 0; i < 32; i++)
            scribble(tni_payload_at(s, tni_block_make(1 + i % TNI_MESSAGE_CLASSES, i)), 256);
        for (uint32_t i = 0; i < small.objects; i++)
            atomic_store(&tni_object_at(s, i)->word,
                         tni_object_word((uint32_t)tnt_random(), (uint16_t)tnt_random(),
                                         (uint32_t)tnt_random_below(4),
                                         (uint32_t)tnt_random_below(TNI_OBJECT_KINDS + 1)));
        look_at_all(&inspector, &seen);
    }
    assert_true(seen.seats > 0 && seen.blocks > 0 && seen.objects > 0);
    tni_segment_detach(&inspector.segment);
}

TN_TEST(inspecting_gives_no_memory_to_tables_that_were_never_used)
{
    tn_domain *domain = tnt_domain(&alone);
    struct tn_inspector inspector = {.segment = domain->segment};
    struct seen seen = {0};
    tn_tensor *tensor;
    uint64_t control, arena, control_after, arena_after;

    TN_CHECK_OK(tn_tensor_zeros(domain, TN_FLOAT32, 1, (int64_t[]){100}, 0, &tensor));
    TN_CHECK_OK(tni_os_memory_committed(domain->segment.control_fd, &control));
    TN_CHECK_OK(tni_os_memory_committed(domain->segment.arena_fd, &arena));
    look_at_all(&inspector, &seen);
    TN_CHECK_OK(tni_os_memory_committed(domain->segment.control_fd, &control_after));
    TN_CHECK_OK(tni_os_memory_committed(domain->segment.arena_fd, &arena_after));
    assert_int_equal(control_after, control);
    assert_int_equal(arena_after, arena);
    tn_tensor_unref(tensor);
    tn_domain_close(domain);
}

static int stop_at_once(const tn_block_info *info, void *context)
{
    (void)info;
    (*(int *)context)++;
    return 42;
}

TN_TEST(a_callback_that_stops_is_called_no_more_and_its_value_returned)
{
    tn_domain *domain = tnt_domain(&alone);
    struct tn_inspector inspector = {.segment = domain->segment};
    tn_tensor *tensors[3];
    int calls = 0;

    for (int i = 0; i < 3; i++)
        TN_CHECK_OK(tn_tensor_zeros(domain, TN_UINT8, 1, (int64_t[]){64}, 0, &tensors[i]));
    assert_int_equal(tn_inspect_blocks(&inspector, stop_at_once, &calls), 42);
    assert_int_equal(calls, 1);
    for (int i = 0; i < 3; i++)
        tn_tensor_unref(tensors[i]);
    tn_domain_close(domain);
}

static int find_own(const tn_domain_info *info, void *context)
{
    tn_domain_info *own = context;
    see_domain(info, &(struct seen){0});
    if (memcmp(info->id, own->id, sizeof own->id) == 0)
        own->seats_used++;
    return 0;
}

TN_TEST(a_domain_is_listed_once_however_many_processes_have_it_open)
{
    tn_domain *domain = tnt_domain(&alone);
    tn_domain_info own;
    int spare = -1;

    tni_inspect_domain_info(&domain->segment, &own);
    own.seats_used = 0; /* counts how often it is listed */
    TN_CHECK_OK(tni_os_memory_open(tni_os_pid(), domain->segment.control_fd, true, &spare));
    TN_CHECK_OK(tn_inspect_domains(find_own, &own));
    assert_int_equal(own.seats_used, 1);
    tni_os_close(spare);
    tn_domain_close(domain);
}

TN_TEST(an_inspector_of_no_domain_says_not_found_and_of_a_bad_name_invalid)
{
    tn_inspector *inspector = NULL;
    assert_int_equal(tn_inspector_open("nobody-made-this", &inspector), TN_ERR_NOT_FOUND);
    assert_int_equal(tn_inspector_open("a/b", &inspector), TN_ERR_INVALID);
    assert_int_equal(tn_inspector_open("", &inspector), TN_ERR_INVALID);
    assert_int_equal(tn_inspector_open(NULL, &inspector), TN_ERR_INVALID);
    assert_null(inspector);
    assert_null(tn_inspector_close(NULL));
}
