/* SPDX-License-Identifier: Apache-2.0 */
/* inspect: that an inspector is total, leaves no trace, and hands on what callbacks say. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/inspect.h"
#include "harness/harness.h"
#include "harness/tensor.h"
#include "os/os.h"
#include "queue/queue.h"
#include "share/share.h"

enum { ROUNDS = 40, MOST_ROUNDS = 4000 };

static const struct tni_segment_options small = {.name = "scribbled",
                                                 .seats = 8,
                                                 .blocks = 256,
                                                 .objects = 32,
                                                 .tickets = 64,
                                                 .quota_bytes = 8u << 20,
                                                 .watermark_bytes = 1u << 20};

/* No other process uses this domain. */
static const tn_domain_options alone = {.struct_size = sizeof alone,
                                        .flags = TN_DOMAIN_NO_MANAGER};

struct seen {
    unsigned domains, seats, blocks, objects, tickets, schedulers, paths;
    uint64_t sum; /* of everything that was handed over: the callback reads each byte */
};

static uint64_t sum_of(const void *bytes, size_t size_bytes)
{
    return tni_hash(bytes, size_bytes);
}

static int see_domain(const tn_domain_entry *info, void *context)
{
    struct seen *seen = context;
    seen->domains++;
    seen->sum += sum_of(info, sizeof *info);
    return 0;
}

static int see_seat(const tn_seat_entry *info, void *context)
{
    struct seen *seen = context;
    assert_true(strlen(info->command) < sizeof info->command);
    assert_true(info->pid >= 0);
    seen->seats++;
    return 0;
}

static int see_block(const tn_block_entry *info, void *context)
{
    struct seen *seen = context;
    assert_true(info->bytes <= TNI_MAX(info->block_bytes, info->object_bytes));
    assert_true(info->object_bytes <= small.quota_bytes);
    assert_non_null(info->strategy);
    seen->sum += sum_of(info->attributes, strlen(info->attributes));
    for (const char *c = info->path; c != NULL && *c != '\0'; c++)
        assert_in_range(*c, ' ', '~');
    seen->paths += info->path != NULL;
    assert_true(info->ndim >= 0 && info->ndim <= TN_MAX_NDIM);
    assert_true(info->holder_count <= small.seats);
    assert_non_null(info->kind);
    seen->sum += sum_of(info->holders, info->holder_count * sizeof *info->holders);
    seen->blocks++;
    return 0;
}

static int see_object(const tn_object_entry *info, void *context)
{
    struct seen *seen = context;
    assert_true(strlen(info->name) < sizeof info->name);
    assert_true(info->openers <= small.seats);
    seen->objects++;
    return 0;
}

static int see_ticket(const tn_ticket_entry *info, void *context)
{
    struct seen *seen = context;
    assert_true(info->bytes <= small.quota_bytes);
    assert_true(info->issuer_pid >= 0);
    seen->tickets++;
    return 0;
}

static int see_scheduler(const tn_scheduler_entry *info, void *context)
{
    struct seen *seen = context;
    assert_true(strlen(info->name) < sizeof info->name);
    assert_true(info->seat < small.seats);
    assert_true(info->info.resource_count <= 16);
    for (uint32_t i = 0; i < info->info.resource_count; i++) {
        const tn_resource_info *its = &info->info.resources[i];
        assert_true(strlen(its->name) < sizeof its->name);
        assert_true(its->total >= 0 && its->free >= 0 && its->busy_ns >= 0);
    }
    seen->schedulers++;
    return 0;
}

static void look_at_all(tn_inspector *inspector, struct seen *seen)
{
    tn_domain_stat stat = {.struct_size = sizeof stat};
    TN_CHECK_OK(tn_inspect_stat(inspector, &stat));
    TN_CHECK_OK(tn_inspect_seats(inspector, see_seat, seen));
    TN_CHECK_OK(tn_inspect_blocks(inspector, see_block, seen));
    TN_CHECK_OK(tn_inspect_objects(inspector, see_object, seen));
    TN_CHECK_OK(tn_inspect_tickets(inspector, see_ticket, seen));
    TN_CHECK_OK(tn_inspect_schedulers(inspector, see_scheduler, seen));
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

/* As names of files have it: the first 8 bytes of the id. */
static unsigned long long domain_part(const struct tni_segment *s)
{
    unsigned long long part = 0;
    for (int i = 0; i < 8; i++)
        part = part << 8 | s->id[i];
    return part;
}

/* Blocks outside of the arena that are nearly as they should be. */
static void scribble_outside(const struct tni_segment *s)
{
    for (uint32_t i = 0; i < 32; i++) {
        tni_block block = tni_block_make(TNI_BACKING_CLASS, i);
        struct tni_backing *b = tni_payload_at(s, block);
        scribble((uint8_t *)b, sizeof *b);
        atomic_store(&b->strategy, (uint32_t)tnt_random_below(5));
        b->data_bytes = tnt_random_below(2) == 0 ? b->object_bytes : b->data_bytes;
        if (tnt_random_below(2) == 0)
            snprintf(b->path, sizeof b->path, "\33[31m/tenon-%u-%llx-%016llx-%016llx",
                     tni_os_uid(), 1ull, domain_part(s), 2ull);
        atomic_store(tni_word_at(s, block), tni_word_next(0, TNI_BLOCK_ALLOC, 1));
        atomic_store(&tni_desc_at(s, block)->committed, tnt_random_below(2) * 0xffff);
    }
    atomic_store(&tni_class_at(s, TNI_BACKING_CLASS)->frontier, 32);
}

/* Records of schedulers of a process that seems to have a seat. */
static void scribble_schedulers(const struct tni_segment *s)
{
    uint32_t class_id =
        tni_geometry_class(&s->geometry, sizeof(struct tni_scheduler), TNI_KIND_SCHEDULER);
    for (uint32_t i = 0; i < 8; i++) {
        tni_block block = tni_block_make(class_id, i);
        struct tni_scheduler *record = tni_payload_at(s, block);
        struct tni_desc *desc = tni_desc_at(s, block);
        scribble((uint8_t *)record, sizeof *record);
        desc->kind = TNI_KIND_SCHEDULER;
        desc->creator_seat = (uint16_t)tnt_random_below(2 * small.seats);
        desc->creator_pid =
            tnt_random_below(2) == 0
                ? (uint32_t)tni_inspect_seat_pid(s, desc->creator_seat % small.seats)
                : desc->creator_pid;
        atomic_store(&record->made_for, desc->generation + (uint32_t)tnt_random_below(2));
        atomic_store(tni_word_at(s, block), tni_word_next(0, TNI_BLOCK_ALLOC, 1));
        atomic_store(&tni_desc_at(s, tni_block_make(class_id, 0))->committed, UINT64_MAX);
    }
    atomic_store(&tni_class_at(s, class_id)->frontier, 8);
}

static bool has_seen_all(const struct seen *seen)
{
    return seen->seats > 0 && seen->blocks > 0 && seen->objects > 0 && seen->tickets > 0 &&
           seen->schedulers > 0 && seen->paths > 0;
}

TN_TEST_WITHIN(inspecting_a_domain_of_random_bytes_does_not_crash, 120)
{
    struct tn_inspector inspector;
    struct seen seen = {0};

    TN_CHECK_OK(tni_segment_create(&small, &inspector.segment));
    const struct tni_segment *s = &inspector.segment;
    /* Noise rarely looks like a seat, say: on until each kind of thing was seen. */
    for (int round = 0; round < ROUNDS || (!has_seen_all(&seen) && round < MOST_ROUNDS);
         round++) {
        scribble((uint8_t *)s->header, s->geometry.control_bytes);
        /* The message blocks' heads, where there are records. */
        for (uint32_t i = 0; i < 32; i++)
            scribble(tni_payload_at(s, tni_block_make(1 + i % TNI_MESSAGE_CLASSES, i)), 256);
        for (uint32_t i = 0; i < small.objects; i++)
            atomic_store(&tni_object_at(s, i)->word,
                         tni_object_word((uint32_t)tnt_random(), (uint16_t)tnt_random(),
                                         (uint32_t)tnt_random_below(4),
                                         (uint32_t)tnt_random_below(TNI_OBJECT_KINDS + 1)));
        scribble_outside(s);
        scribble_schedulers(s);
        look_at_all(&inspector, &seen);
    }
    assert_true(has_seen_all(&seen));
    tni_segment_detach(&inspector.segment);
}

TN_TEST(inspecting_gives_no_memory_to_tables_that_were_never_used)
{
    tn_domain *domain = tnt_domain(&alone);
    struct tn_inspector inspector = {.segment = domain->segment};
    struct seen seen = {0};
    tn_tensor *tensor;
    uint64_t control, arena, control_after, arena_after;

    TN_CHECK_OK(tn_tensor_create(domain, TN_FLOAT32, 1, (int64_t[]){100},
                                 TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED),
                                 &tensor));
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

static int stop_at_once(const tn_block_entry *info, void *context)
{
    (void)info;
    (*(int *)context)++;
    return 42;
}

TN_TEST(a_callback_that_stops_is_not_called_again)
{
    tn_domain *domain = tnt_domain(&alone);
    struct tn_inspector inspector = {.segment = domain->segment};
    tn_tensor *tensors[3];
    int calls = 0;

    for (int i = 0; i < 3; i++)
        TN_CHECK_OK(tn_tensor_create(domain, TN_UINT8, 1, (int64_t[]){64},
                                     TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED),
                                     &tensors[i]));
    assert_int_equal(tn_inspect_blocks(&inspector, stop_at_once, &calls), 42);
    assert_int_equal(calls, 1);
    for (int i = 0; i < 3; i++)
        tn_tensor_unref(tensors[i]);
    tn_domain_close(domain);
}

static int find_own(const tn_domain_entry *info, void *context)
{
    tn_domain_entry *own = context;
    see_domain(info, &(struct seen){0});
    if (memcmp(info->id, own->id, sizeof own->id) == 0)
        own->seats_used++;
    return 0;
}

TN_TEST(a_domain_is_listed_once_however_many_processes_have_it_open)
{
    tn_domain *domain = tnt_domain(&alone);
    tn_domain_entry own;
    int spare = -1;

    tni_inspect_domain_info(&domain->segment, &own);
    own.seats_used = 0; /* counts how often it is listed */
    TN_CHECK_OK(tni_os_memory_open(tni_os_pid(), domain->segment.control_fd, true, &spare));
    TN_CHECK_OK(tn_inspect_domains(find_own, &own));
    assert_int_equal(own.seats_used, 1);
    tni_os_close(spare);
    tn_domain_close(domain);
}

TN_TEST(an_inspector_of_a_missing_domain_or_bad_name_is_an_error)
{
    tn_inspector *inspector = NULL;
    assert_int_equal(tn_inspector_open("nobody-made-this", &inspector), TN_ERR_NOT_FOUND);
    assert_int_equal(tn_inspector_open("a/b", &inspector), TN_ERR_INVALID);
    assert_int_equal(tn_inspector_open("", &inspector), TN_ERR_INVALID);
    assert_int_equal(tn_inspector_open(NULL, &inspector), TN_ERR_INVALID);
    assert_null(inspector);
    assert_null(tn_inspector_close(NULL));
}

/* ---- outside of the arena ---------------------------------------------------------------- */

/* Files of this test are in its own folder. */
static tn_domain *domain_with_files(void)
{
    setenv("TENON_SHM_DIR", tnt_folder(), 1);
    return tnt_domain(&alone);
}

static tn_tensor *make_outside(tn_domain *domain, uint32_t strategy, uint32_t flags)
{
    const tn_tensor_options options = {
        .struct_size = sizeof options, .strategy = strategy, .flags = flags};
    tn_tensor *tensor;
    TN_CHECK_OK(tn_tensor_create(domain, TN_FLOAT32, 2, (int64_t[]){3, 4}, &options, &tensor));
    return tensor;
}

/* One of each in this order, which is that of their numbers. */
struct expected {
    const char *const *strategies;
    const char *path;
    uint32_t at;
};

static int expect_outside(const tn_block_entry *info, void *context)
{
    struct expected *expected = context;
    bool is_file = strcmp(info->strategy, "file_system") == 0;

    assert_string_equal(info->kind, "tensor");
    assert_string_equal(info->strategy, expected->strategies[expected->at++]);
    assert_int_equal(info->bytes, 48);
    assert_int_equal(info->ndim, 2);
    assert_int_equal(info->shape[1], 4);
    if (strcmp(info->strategy, "arena") == 0)
        assert_int_equal(info->object_bytes, 0);
    else
        assert_int_equal(info->object_bytes, 2 * tni_os_page_bytes());
    assert_int_equal(info->path != NULL, is_file);
    if (is_file)
        assert_string_equal(info->path, expected->path);
    return 0;
}

TN_TEST(a_block_is_shown_with_its_strategy_its_object_and_its_file)
{
    static const char *const strategies[] = {"file_descriptor", "file_system", "arena"};
    tn_domain *domain = domain_with_files();
    struct tn_inspector inspector = {.segment = domain->segment};
    tn_tensor *memory = make_outside(domain, TN_STRATEGY_FILE_DESCRIPTOR, 0);
    tn_tensor *file = make_outside(domain, TN_STRATEGY_FILE_SYSTEM, 0);
    tn_tensor *arena = make_outside(domain, TN_STRATEGY_ARENA, 0);
    struct expected expected = {.strategies = strategies, .path = tnt_info(file).path};

    TN_CHECK_OK(tn_inspect_blocks(&inspector, expect_outside, &expected));
    assert_int_equal(expected.at, 3);
    tn_tensor_unref(memory);
    tn_tensor_unref(file);
    tn_tensor_unref(arena);
    tn_domain_close(domain);
}

static int count_write_once(const tn_block_entry *info, void *context)
{
    *(int *)context += info->is_write_once;
    return 0;
}

TN_TEST(a_storage_that_is_written_once_is_shown_as_such)
{
    tn_domain *domain = tnt_domain(&alone);
    struct tn_inspector inspector = {.segment = domain->segment};
    tn_tensor *once = make_outside(domain, TN_STRATEGY_FILE_DESCRIPTOR, TN_TENSOR_WRITE_ONCE);
    tn_tensor *plain = make_outside(domain, TN_STRATEGY_FILE_DESCRIPTOR, 0);
    int count = 0;

    TN_CHECK_OK(tn_inspect_blocks(&inspector, count_write_once, &count));
    assert_int_equal(count, 1);
    tn_tensor_unref(once);
    tn_tensor_unref(plain);
    tn_domain_close(domain);
}

TN_TEST(memory_outside_of_the_arena_counts_as_live_and_committed)
{
    tn_domain *domain = domain_with_files();
    struct tn_inspector inspector = {.segment = domain->segment};
    uint64_t object_bytes = 2 * tni_os_page_bytes();
    tn_tensor *file = make_outside(domain, TN_STRATEGY_FILE_SYSTEM, 0);
    tn_domain_stat one = {.struct_size = sizeof one}, two = one;

    TN_CHECK_OK(tn_inspect_stat(&inspector, &one));
    assert_int_equal(one.outside_count, 1);
    assert_int_equal(one.outside_bytes, object_bytes);
    assert_int_equal(one.live_bytes, 48);
    tn_tensor *memory = make_outside(domain, TN_STRATEGY_FILE_DESCRIPTOR, 0);
    TN_CHECK_OK(tn_inspect_stat(&inspector, &two));
    assert_int_equal(two.outside_count, 2);
    assert_int_equal(two.outside_bytes, 2 * object_bytes);
    assert_int_equal(two.live_bytes, 96);
    assert_int_equal(two.domain.committed_bytes - one.domain.committed_bytes, object_bytes);
    tn_tensor_unref(file);
    tn_tensor_unref(memory);
    TN_CHECK_OK(tn_inspect_stat(&inspector, &two));
    assert_int_equal(two.outside_count, 0);
    assert_int_equal(two.outside_bytes, 0);
    tn_domain_close(domain);
}

static int expect_attributes(const tn_block_entry *info, void *context)
{
    assert_string_equal(info->attributes, context);
    return 0;
}

TN_TEST(attributes_that_a_tensor_was_sent_with_are_shown_as_words)
{
    tn_domain *domain = tnt_domain(&alone);
    struct tn_inspector inspector = {.segment = domain->segment};
    static uint8_t handle[TN_HANDLE_MAX_BYTES];
    uint64_t lod[] = {0, 1, 3};
    tn_tensor *tensor;
    size_t used;

    TN_CHECK_OK(tn_tensor_create(domain, TN_FLOAT32, 1, (int64_t[]){3},
                                 TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED),
                                 &tensor));
    TN_CHECK_OK(tn_tensor_set_flags(tensor, TN_REQUIRES_GRAD | TN_PARAMETER));
    TN_CHECK_OK(tn_tensor_set_name(tensor, "weight"));
    TN_CHECK_OK(tn_tensor_set_lod(tensor, 1, (uint32_t[]){3}, (const uint64_t *[]){lod}));
    TN_CHECK_OK(tn_tensor_set_metadata(tensor, "key", "value", 5));
    TN_CHECK_OK(tn_inspect_blocks(&inspector, expect_attributes, ""));
    TN_CHECK_OK(tn_handle_export(tensor, NULL, handle, sizeof handle, &used));
    TN_CHECK_OK(tn_inspect_blocks(&inspector, expect_attributes,
                                  "requires_grad parameter name lod metadata"));
    tn_tensor_unref(tensor);
    tn_domain_close(domain);
}

static int keep_ticket(const tn_ticket_entry *info, void *context)
{
    *(tn_ticket_entry *)context = *info;
    return 0;
}

TN_TEST(an_inspector_sees_the_tickets_that_a_member_sees)
{
    tn_domain *domain = tnt_domain(&alone);
    struct tn_inspector inspector = {.segment = domain->segment};
    const tn_handle_options thrice = {
        .struct_size = sizeof thrice, .uses = 3, .lifetime_ns = TN_NO_EXPIRY};
    tn_tensor *tensor = make_outside(domain, TN_STRATEGY_FILE_DESCRIPTOR, 0);
    static uint8_t handle[TN_HANDLE_MAX_BYTES];
    tn_ticket_entry seen = {.uses_left = 0}, member = {.uses_left = 0};
    uint64_t id;
    size_t used;

    TN_CHECK_OK(tn_handle_export(tensor, &thrice, handle, sizeof handle, &used));
    TN_CHECK_OK(tni_handle_ticket(handle, used, &id));
    TN_CHECK_OK(tn_inspect_tickets(&inspector, keep_ticket, &seen));
    assert_int_equal(seen.id, id);
    assert_int_equal(seen.uses_left, 3);
    assert_int_equal(seen.bytes, 48);
    assert_int_equal(seen.issuer_pid, tni_os_pid());
    assert_int_equal(seen.remaining_ns, TN_NO_EXPIRY);
    TN_CHECK_OK(tni_ticket_for_each(&domain->segment, keep_ticket, &member));
    assert_memory_equal(&seen, &member, sizeof seen);
    TN_CHECK_OK(tni_ticket_revoke(domain, id));
    seen.uses_left = 0;
    TN_CHECK_OK(tn_inspect_tickets(&inspector, keep_ticket, &seen));
    assert_int_equal(seen.uses_left, 0);
    tn_tensor_unref(tensor);
    tn_domain_close(domain);
}

static int keep_object(const tn_object_entry *info, void *context)
{
    *(tn_object_entry *)context = *info;
    return 0;
}

TN_TEST(messages_that_are_delivered_again_are_counted)
{
    const tn_queue_options leases = {
        .struct_size = sizeof leases, .capacity = 4, .policy = TN_QUEUE_LEASE};
    tn_domain *domain = tnt_domain(&alone);
    struct tn_inspector inspector = {.segment = domain->segment};
    const uint32_t expected[] = {0, 0, 1, 1, 0}; /* after each step */
    const uint32_t so_far[] = {0, 0, 1, 1, 1};
    tn_message m = {.bytes = "x", .size_bytes = 1};
    tn_object_entry info = {.redelivered = 0};
    tn_queue *queue;
    TN_CHECK_OK(tn_queue_open(domain, NULL, &leases, 0, &queue));
    TN_CHECK_OK(tn_queue_push(queue, &m, 0, TN_NOW));
    TN_CHECK_OK(tn_queue_push(queue, &m, 0, TN_NOW));
    for (uint32_t step = 0; step < TNI_COUNT(expected); step++) {
        if (step == 1 || step == 3)
            TN_CHECK_OK(tn_queue_pop(queue, TN_NOW, &m));
        if (step == 2)
            TN_CHECK_OK(tn_message_return(queue, &m));
        if (step == 4)
            TN_CHECK_OK(tn_message_ack(queue, &m));
        if (step == 2 || step == 4)
            tn_message_fini(&m);
        TN_CHECK_OK(tn_inspect_objects(&inspector, keep_object, &info));
        assert_int_equal(info.redelivered, expected[step]);
        assert_int_equal(info.redeliveries, so_far[step]);
    }
    tn_object_close(queue);
    tn_domain_close(domain);
}

static int pop_and_die(void *queue)
{
    tn_message m;
    TN_CHECK_OK(tn_queue_pop(queue, TN_NOW, &m));
    raise(SIGKILL);
    return 0;
}

TN_TEST(redeliveries_after_deaths_are_counted_until_the_queue_ends)
{
    enum { DEATHS = 5 };
    const tn_queue_options leases = {
        .struct_size = sizeof leases, .capacity = 4, .policy = TN_QUEUE_LEASE};
    tn_domain *domain = tnt_domain(&alone);
    struct tn_inspector inspector = {.segment = domain->segment};
    tn_message m = {.bytes = "x", .size_bytes = 1};
    tn_object_entry info = {.redeliveries = 0};
    tn_queue *queue;
    TN_CHECK_OK(tn_queue_open(domain, NULL, &leases, 0, &queue));
    TN_CHECK_OK(tn_queue_push(queue, &m, 0, TN_NOW));
    for (int i = 0; i < DEATHS; i++) {
        pid_t child = tnt_fork(pop_and_die, queue);
        TN_CHECK(waitpid(child, NULL, 0) == child);
        TN_CHECK_OK(tn_domain_reap(domain, NULL));
    }
    TN_CHECK_OK(tn_queue_pop(queue, TN_NOW, &m));
    assert_int_equal(m.attempt, DEATHS);
    TN_CHECK_OK(tn_message_ack(queue, &m));
    tn_message_fini(&m);
    TN_CHECK_OK(tn_inspect_objects(&inspector, keep_object, &info));
    assert_int_equal(info.redelivered, 0);
    assert_int_equal(info.redeliveries, DEATHS);
    tn_object_close(queue);
    TN_CHECK_OK(tn_queue_open(domain, NULL, &leases, 0, &queue)); /* in the same entry */
    TN_CHECK_OK(tn_inspect_objects(&inspector, keep_object, &info));
    assert_int_equal(info.redeliveries, 0);
    tn_object_close(queue);
    tn_domain_close(domain);
}

TN_TEST(a_broken_barrier_is_shown_as_broken_and_without_waiters)
{
    tn_domain *domain = tnt_domain(&alone);
    struct tn_inspector inspector = {.segment = domain->segment};
    tn_object_entry info = {.count = 0};
    tn_barrier *barrier;
    TN_CHECK_OK(tn_barrier_open(domain, NULL, 2, 0, &barrier));
    assert_int_equal(tn_barrier_wait(barrier, TN_NOW), TN_ERR_TIMED_OUT);
    TN_CHECK_OK(tn_inspect_objects(&inspector, keep_object, &info));
    assert_true(info.broken);
    assert_int_equal(info.count, 0);
    TN_CHECK_OK(tn_barrier_reset(barrier));
    TN_CHECK_OK(tn_inspect_objects(&inspector, keep_object, &info));
    assert_false(info.broken);
    assert_int_equal(info.count, 0);
    tn_object_close(barrier);
    tn_domain_close(domain);
}

TN_TEST(all_seats_of_a_domain_without_tenond_can_be_taken)
{
    tn_domain *domain = tnt_domain(&alone);
    tn_domain_entry info;
    tni_inspect_domain_info(&domain->segment, &info);
    assert_int_equal(info.seats, domain->segment.geometry.seats);
    atomic_store(&domain->me->flags, TNI_SEAT_MANAGER); /* as tenond's */
    tni_inspect_domain_info(&domain->segment, &info);
    assert_int_equal(info.seats, domain->segment.geometry.seats - 1);
    assert_int_equal(info.seats_used, 0);
    atomic_store(&domain->me->flags, 0);
    tn_domain_close(domain);
}

static int acquire_and_stay(void *argument)
{
    void **arguments = argument;
    TN_CHECK_OK(tn_semaphore_acquire(arguments[0], TN_NOW));
    tnt_signal(arguments[1]);
    for (;;)
        pause();
    return 0;
}

TN_TEST(the_holder_of_all_permits_of_an_owned_semaphore_is_shown)
{
    tn_domain *domain = tnt_domain(&alone);
    struct tn_inspector inspector = {.segment = domain->segment};
    tn_object_entry info = {.count = 0};
    for (uint32_t permits = 1; permits <= 2; permits++) {
        struct tnt_signal is_taken = tnt_signal_open();
        tn_semaphore *semaphore;
        TN_CHECK_OK(tn_semaphore_open(domain, NULL, permits, TN_SEMAPHORE_OWNED, &semaphore));
        TN_CHECK_OK(tn_inspect_objects(&inspector, keep_object, &info));
        assert_int_equal(info.owner_pid, 0);
        pid_t child = tnt_fork(acquire_and_stay, (void *[]){semaphore, &is_taken});
        tnt_await(&is_taken);
        TN_CHECK_OK(tn_inspect_objects(&inspector, keep_object, &info));
        assert_int_equal(info.owner_pid, child);
        assert_int_equal(info.owner_count, 1);
        if (permits == 2) {
            TN_CHECK_OK(tn_semaphore_acquire(semaphore, TN_NOW));
            TN_CHECK_OK(tn_inspect_objects(&inspector, keep_object, &info));
            assert_int_equal(info.owner_pid, 0); /* it is not the only one */
            assert_int_equal(info.owner_count, 2);
            TN_CHECK_OK(tn_semaphore_release(semaphore));
        }
        tnt_kill(child);
        TN_CHECK_OK(tn_domain_reap(domain, NULL));
        TN_CHECK_OK(tn_inspect_objects(&inspector, keep_object, &info));
        assert_int_equal(info.owner_pid, 0);
        tn_object_close(semaphore);
        tnt_signal_close(&is_taken);
    }
    tn_domain_close(domain);
}

static int use_without_a_seat(void *argument)
{
    tn_domain *domain = argument;
    const uint64_t id = 1;
    int fd;
    TN_CHECK(tn_domain_poll_fd(domain, &fd) == TN_ERR_FORKED);
    TN_CHECK(tni_ticket_revoke(domain, id) == TN_ERR_FORKED);
    TN_CHECK(tni_ticket_expire(domain, TNI_FOREVER) == TNI_FOREVER);
    return 0;
}

TN_TEST(a_forked_child_without_a_seat_polls_and_ends_nothing)
{
    tn_domain_options options = alone;
    options.seats = 1;
    tn_domain *domain = tnt_domain(&options);
    tn_tensor *tensor = make_outside(domain, TN_STRATEGY_FILE_DESCRIPTOR, 0);
    static uint8_t handle[TN_HANDLE_MAX_BYTES];
    tn_ticket_entry member = {.uses_left = 0};
    size_t used;

    TN_CHECK_OK(tn_handle_export(tensor, NULL, handle, sizeof handle, &used));
    tnt_wait_ok(tnt_fork(use_without_a_seat, domain));
    TN_CHECK_OK(tni_ticket_for_each(&domain->segment, keep_ticket, &member));
    assert_int_equal(member.uses_left, 1);
    TN_CHECK_OK(tni_ticket_revoke(domain, member.id));
    tn_tensor_unref(tensor);
    tn_domain_close(domain);
}

/* Without tenond, names are looked for in the descriptors of all processes. */
TN_TEST(false_names_and_memory_of_a_domain_are_skipped)
{
    int like_one = memfd_create(TNI_CONTROL_PREFIX "alike", MFD_CLOEXEC);
    tn_domain *domain = tnt_domain(&alone);
    tn_inspector *inspector;

    assert_true(like_one >= 0);
    assert_int_equal(tn_inspector_open("alike", &inspector), TN_ERR_NOT_FOUND);
    assert_int_equal(tn_inspector_open("thirty-two-letters-that-are-none", &inspector),
                     TN_ERR_NOT_FOUND);
    close(like_one);
    tn_domain_close(domain);
}

/* ---- files that another program changed -------------------------------------------------- */

static int keep_sentence(const char *sentence, bool repaired, void *context)
{
    assert_false(repaired);
    snprintf(context, 512, "%s", sentence);
    return 0;
}

/* What the audit of the domain finds, once, with and without repair. */
static void assert_one_fault(tn_domain *domain, const char *what)
{
    struct tn_inspector inspector = {.segment = domain->segment};
    char sentence[512] = "";

    assert_int_equal(tn_inspect_audit(&inspector, false, keep_sentence, sentence, NULL), 1);
    assert_non_null(strstr(sentence, what));
    assert_non_null(strstr(sentence, "cannot be repaired"));
    assert_int_equal(tn_domain_audit(domain, true, keep_sentence, sentence, NULL), 1);
}

TN_TEST(an_audit_names_a_file_that_was_removed)
{
    tn_domain *domain = domain_with_files();
    tn_tensor *file = make_outside(domain, TN_STRATEGY_FILE_SYSTEM, 0);

    TNT_AUDIT(domain);
    assert_int_equal(unlink(tnt_info(file).path), 0);
    assert_one_fault(domain, "was removed");
    tn_tensor_unref(file);
    TNT_AUDIT(domain);
    tn_domain_close(domain);
}

TN_TEST(an_audit_names_a_file_that_was_replaced)
{
    tn_domain *domain = domain_with_files();
    tn_tensor *file = make_outside(domain, TN_STRATEGY_FILE_SYSTEM, 0);
    char path[TNI_PATH_BYTES], saved[TNI_PATH_BYTES + 8];

    snprintf(path, sizeof path, "%s", tnt_info(file).path);
    snprintf(saved, sizeof saved, "%s.saved", path);
    assert_int_equal(rename(path, saved), 0);
    FILE *other = fopen(path, "w");
    assert_non_null(other);
    fclose(other);
    assert_one_fault(domain, "was replaced");
    assert_int_equal(rename(saved, path), 0);
    TNT_AUDIT(domain);
    tn_tensor_unref(file);
    tn_domain_close(domain);
}

TN_TEST(an_audit_names_a_folder_in_the_place_of_a_file)
{
    tn_domain *domain = domain_with_files();
    tn_tensor *file = make_outside(domain, TN_STRATEGY_FILE_SYSTEM, 0);
    char path[TNI_PATH_BYTES];

    snprintf(path, sizeof path, "%s", tnt_info(file).path);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_one_fault(domain, "is not a plain file");
    assert_int_equal(rmdir(path), 0);
    tn_tensor_unref(file);
    TNT_AUDIT(domain);
    tn_domain_close(domain);
}

TN_TEST(an_audit_names_a_file_that_was_cut)
{
    tn_domain *domain = domain_with_files();
    tn_tensor *file = make_outside(domain, TN_STRATEGY_FILE_SYSTEM, 0);

    assert_int_equal(truncate(tnt_info(file).path, (off_t)tni_os_page_bytes()), 0);
    assert_one_fault(domain, "was truncated");
    tn_tensor_unref(file);
    tn_domain_close(domain);
}

TN_TEST(an_audit_names_an_object_that_makes_no_sense)
{
    tn_domain *domain = tnt_domain(&alone);
    tn_tensor *memory = make_outside(domain, TN_STRATEGY_FILE_DESCRIPTOR, 0);
    struct tni_backing *b =
        tni_payload_at(&domain->segment, tni_block_make(TNI_BACKING_CLASS, 0));

    atomic_store(&b->strategy, 77);
    assert_one_fault(domain, "has a damaged description");
    atomic_store(&b->strategy, TN_STRATEGY_FILE_DESCRIPTOR);
    tn_tensor_unref(memory);
    tn_domain_close(domain);
}

/* ---- files that no process has ----------------------------------------------------------- */

static int run_and_vanish(void *argument)
{
    tn_domain *domain = domain_with_files();
    (void)argument;
    make_outside(domain, TN_STRATEGY_FILE_SYSTEM, 0);
    _exit(0); /* as a kill: nothing is given back */
}

TN_TEST(a_file_is_reported_only_if_its_domain_is_gone)
{
    tn_domain *domain = domain_with_files();
    tn_tensor *file = make_outside(domain, TN_STRATEGY_FILE_SYSTEM, 0);
    char sentence[512] = "";

    assert_int_equal(tn_inspect_files(keep_sentence, sentence), 0);
    tnt_wait_ok(tnt_fork(run_and_vanish, NULL));
    assert_int_equal(tn_inspect_files(NULL, NULL), 1);
    assert_int_equal(tn_inspect_files(keep_sentence, sentence), 1);
    assert_non_null(strstr(sentence, "of no living domain"));
    assert_null(strstr(sentence, tnt_info(file).path));
    tn_tensor_unref(file);
    tn_domain_close(domain);
}

struct lender {
    int path_fd;
    struct tnt_signal *end;
};

static int lend_and_vanish(void *argument)
{
    const struct lender *lender = argument;
    tn_domain *domain = domain_with_files();
    const char *path = tnt_info(make_outside(domain, TN_STRATEGY_FILE_SYSTEM, 0)).path;

    assert_int_equal(write(lender->path_fd, path, strlen(path)), strlen(path));
    tnt_await(lender->end);
    _exit(0);
}

TN_TEST(a_dead_domains_file_that_a_living_process_holds_stays)
{
    struct tnt_signal end = tnt_signal_open();
    char path[TNI_PATH_BYTES] = "";
    tn_tensor *held;
    int fds[2];

    setenv("TENON_SHM_DIR", tnt_folder(), 1);
    assert_int_equal(pipe(fds), 0);
    pid_t pid = tnt_fork(lend_and_vanish, &(struct lender){.path_fd = fds[1], .end = &end});
    assert_true(read(fds[0], path, sizeof path - 1) > 0); /* written at once */
    TN_CHECK_OK(tn_tensor_open_path(path, &held));
    tnt_signal(&end);
    tnt_wait_ok(pid);
    assert_int_equal(tn_inspect_files(NULL, NULL), 0);
    assert_int_equal(access(path, F_OK), 0);
    tn_tensor_unref(held);
    assert_int_equal(tn_inspect_files(NULL, NULL), 1);
    assert_int_equal(unlink(path), 0);
    close(fds[0]);
    close(fds[1]);
    tnt_signal_close(&end);
}

TN_TEST(a_folder_that_does_not_exist_has_no_files)
{
    setenv("TENON_SHM_DIR", "/nonexistent/folder", 1);
    assert_int_equal(tn_inspect_files(NULL, NULL), 0);
}
