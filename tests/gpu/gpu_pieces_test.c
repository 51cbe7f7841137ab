/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of a device that another library mapped in pieces, shared between processes where it
 * lies, through a descriptor of each piece. gpu_ipc_kill_test kills processes at each call of
 * the driver.
 */
#include "gpu/foreign.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { PIECE = GPU_PIECE_BYTES, PIECES = 3, BYTES = PIECES * PIECE, OFFSET = 4096 };

static char logged[4096];

static void keep_log(int level, const char *message, void *context)
{
    size_t used = strlen(logged);
    (void)context;
    if (level <= TNI_LOG_INFO)
        snprintf(logged + used, sizeof logged - used, "%s; ", message);
}

static void begin_in(const tn_domain_options *of_domain)
{
    begin_with(&(struct fake_options){.device_count = 2}, of_domain);
}

static void begin(void) { begin_in(NULL); }

/* ---- the library, and what is shared ----------------------------------------------------- */

/* A tensor that lies in all pieces. */
static tn_tensor *share_new(uint8_t value)
{
    return share_part(gpu_memory_make(BYTES, GPU_PIECES), OFFSET, BYTES - 2 * OFFSET, value);
}

/* The fake has to learn that the processor found the tensor ready. */
static void await_ready(const tn_tensor *tensor)
{
    uint64_t token = atomic_load(&tensor->storage->ready);
    TN_CHECK_OK(tn_tensor_sync(tensor, tnt_deadline(20000)));
    if (token != 0 && !gpu_is_real())
        gpu_fake.value_seen(
            (void *)(uintptr_t)tni_value_at(&domain->segment, tni_token_timeline(token)));
}

static tn_tensor *receive(uint8_t value)
{
    tn_tensor *tensor = gpu_pop(queue);
    await_ready(tensor);
    gpu_expect(domain, tensor, value);
    return tensor;
}

static uint64_t copies(void) { return atomic_load(&domain->segment.header->foreign_copies); }

static unsigned imports(void)
{
    return (unsigned)gpu_fake.calls("cuMemImportFromShareableHandle");
}

/* ---- where it is ------------------------------------------------------------------------- */

static int receive_and_write(void *unused)
{
    (void)unused;
    tn_tensor *tensor = receive(5);
    assert_int_equal(strategy_of(tensor), TN_STRATEGY_CUDA_IPC);
    assert_int_equal(tn_tensor_count(tensor), BYTES - 2 * OFFSET);
    gpu_kernel_fill(tensor, 6);
    TN_CHECK_OK(tn_tensor_record(tensor, NULL));
    push_and_unref(tensor);
    tnt_signal(&ready);
    tnt_await(&go);
    tn_domain_close(domain);
    return 0;
}

TN_TEST(pieces_are_shared_where_they_are)
{
    begin();
    pid_t pid = tnt_fork(receive_and_write, NULL);
    struct gpu_memory *m = gpu_memory_make(BYTES, GPU_PIECES);
    tn_tensor *tensor = share_part(m, OFFSET, BYTES - 2 * OFFSET, 5);
    assert_int_equal(strategy_of(tensor), TN_STRATEGY_CUDA_IPC);
    assert_int_equal((uint64_t)(uintptr_t)tn_tensor_data(tensor), m->at + OFFSET);
    gpu_push(queue, tensor);
    tnt_await(&ready);
    tn_tensor *same = receive(6);
    assert_true(tn_tensor_same_storage(tensor, same));
    gpu_expect(domain, tensor, 6); /* the receiver wrote into the library's memory */
    assert_int_equal(copies(), 0);
    tn_tensor_unref(same);
    tn_tensor_unref(tensor);
    tnt_signal(&go);
    tnt_wait_ok(pid);
    await_freed(1);
    end();
}

/* Which parts of the memory tensors take, and how many descriptors a receiver imports for each.
 */
static const struct part {
    size_t offset, bytes;
    unsigned imports;
} parts[] = {
    {OFFSET, PIECE, 2},            /* the first two pieces */
    {2 * OFFSET, PIECE, 0},        /* the same */
    {2 * (size_t)PIECE, PIECE, 1}, /* the last */
    {0, BYTES, 3},                 /* all */
};
enum { PARTS = sizeof parts / sizeof parts[0] };

/* Descriptors of the fake are those of events. */
static unsigned descriptors(void) { return count_open(getpid(), "anon_inode:[eventfd]"); }

static int receive_parts(void *unused)
{
    (void)unused;
    tn_tensor *tensors[PARTS];
    unsigned open = descriptors();
    for (int i = 0; i < PARTS; i++) {
        unsigned before = imports();
        tensors[i] = receive(9);
        assert_int_equal(imports() - before, parts[i].imports);
    }
    assert_int_equal(descriptors(), open);
    for (int i = 0; i < PARTS; i++)
        tn_tensor_unref(tensors[i]);
    tn_domain_close(domain);
    return 0;
}

TN_TEST(a_receiver_maps_the_pieces_of_a_tensor_once)
{
    gpu_need_fake();
    begin();
    pid_t pid = tnt_fork(receive_parts, NULL);
    struct gpu_memory *m = gpu_memory_make(BYTES, GPU_PIECES);
    tn_tensor *all = gpu_memory_tensor(m, 0, BYTES);
    gpu_kernel_fill(all, 9);
    unsigned open = descriptors();
    for (int i = 0; i < PARTS; i++) {
        tn_tensor *tensor = gpu_memory_tensor(m, parts[i].offset, parts[i].bytes);
        TN_CHECK_OK(tn_tensor_share(domain, tensor, NULL));
        TN_CHECK_OK(tn_tensor_record(tensor, NULL));
        push_and_unref(tensor);
    }
    assert_int_equal(descriptors(), open);
    tnt_wait_ok(pid);
    tn_tensor_unref(all);
    await_freed(PARTS + 1);
    end();
}

static int keep_open(void *unused)
{
    (void)unused;
    tn_tensor_unref(receive(7));
    tnt_signal(&ready);
    tnt_await(&go);
    uint64_t end_ns = tnt_until_ns(20000);
    while (tni_os_now_ns() < end_ns && tni_leases_has(&domain->segment, domain->who))
        TN_CHECK_OK(tn_domain_trim(domain, 0, NULL));
    assert_false(tni_leases_has(&domain->segment, domain->who)); /* its maker asks for that */
    tn_domain_close(domain);
    return 0;
}

TN_TEST(a_library_gets_its_pieces_back_once_nobody_has_them)
{
    begin();
    pid_t pid = tnt_fork(keep_open, NULL);
    push_and_unref(share_new(7));
    tnt_await(&ready);
    TN_CHECK_OK(tn_domain_trim(domain, 0, NULL));
    assert_int_equal(gpu_given_back, 0); /* the receiver has them mapped */
    tnt_signal(&go);
    await_freed(1);
    tnt_wait_ok(pid);
    end();
}

/* ---- a maker that ends ------------------------------------------------------------------- */

static int make_and_wait(void *unused)
{
    (void)unused;
    tn_tensor *one = share_new(21), *other = share_new(22);
    await_ready(one);
    await_ready(other);
    push_and_unref(one);
    push_and_unref(other);
    tnt_signal(&ready);
    tnt_await(&go);
    return 0;
}

TN_TEST(tensors_in_pieces_outlive_their_maker_that_is_killed)
{
    begin();
    pid_t pid = tnt_fork(make_and_wait, NULL);
    tnt_await(&ready);
    tn_tensor *open = receive(21), *copy;
    tnt_kill(pid);
    TN_CHECK_OK(tn_domain_reap(domain, NULL));
    tn_tensor *waiting = receive(22); /* it was in a message */
    tn_tensor_info info = {.struct_size = sizeof info};
    TN_CHECK_OK(tn_tensor_get_info(open, &info));
    assert_false(info.is_incomplete);
    TN_CHECK_OK(tn_tensor_wait(open, NULL));
    gpu_kernel_fill(open, 23);
    gpu_expect(domain, open, 23);
    TN_CHECK_OK(tn_tensor_to(domain, waiting, gpu_cpu, NULL, &copy));
    tn_tensor_unref(copy);
    tn_tensor_unref(waiting);
    tn_tensor_unref(open);
    TN_CHECK_OK(tn_domain_trim(domain, 0, NULL)); /* closes them */
    end();
}

static int make_unfinished_and_die(void *unused)
{
    (void)unused;
    tn_tensor *tensor = gpu_memory_tensor(gpu_memory_make(BYTES, GPU_PIECES), 0, BYTES);
    gpu_hold(0);
    gpu_kernel_fill(tensor, 24);
    TN_CHECK_OK(tn_tensor_share(domain, tensor, NULL));
    TN_CHECK_OK(tn_tensor_record(tensor, NULL));
    push_and_unref(tensor);
    kill(getpid(), SIGKILL);
    return 0;
}

TN_TEST(unfinished_work_of_a_killed_maker_leaves_a_tensor_incomplete)
{
    gpu_need_fake();
    begin();
    tnt_wait(tnt_fork(make_unfinished_and_die, NULL));
    TN_CHECK_OK(tn_domain_reap(domain, NULL));
    tn_tensor *tensor = gpu_pop(queue);
    tn_tensor_info info = {.struct_size = sizeof info};
    assert_int_equal(tn_tensor_sync(tensor, tnt_deadline(20000)), TN_ERR_PEER_DIED);
    TN_CHECK_OK(tn_tensor_get_info(tensor, &info));
    assert_true(info.is_incomplete);
    tn_tensor_unref(tensor);
    TN_CHECK_OK(tn_domain_trim(domain, 0, NULL));
    end();
}

/* Nobody is waited for, nothing is copied, and the library does not get back what others have.
 */
static int make_and_leave(void *is_open)
{
    tn_log_set(keep_log, NULL);
    domain->foreign_wait_ns = UINT64_MAX / 2;
    push_and_unref(share_new(25));
    if (*(const bool *)is_open)
        tnt_await(&go);
    tn_domain_close(domain);
    assert_int_equal(gpu_given_back, 0);
    assert_non_null(strstr(logged, "1 tensors of others stay in memory"));
    tnt_signal(&ready);
    while (pause() == -1) { /* the library never gets its memory back */
    }
    return 0;
}

static void expect_leaver_to_lend(bool is_open)
{
    tn_tensor *tensor = NULL;
    begin();
    pid_t pid = tnt_fork(make_and_leave, &is_open);
    if (is_open)
        tensor = receive(25);
    tnt_signal(&go);
    tnt_await(&ready);
    if (!is_open)
        tensor = receive(25);
    assert_int_equal(copies(), 0);
    assert_int_equal(strategy_of(tensor), TN_STRATEGY_CUDA_IPC);
    gpu_kernel_fill(tensor, 26);
    gpu_expect(domain, tensor, 26);
    tnt_kill(pid);
    gpu_expect(domain, tensor, 26);
    tn_tensor_unref(tensor);
    TN_CHECK_OK(tn_domain_trim(domain, 0, NULL));
    end();
}

TN_TEST(a_maker_that_leaves_lends_pieces_that_are_in_a_message)
{
    expect_leaver_to_lend(false);
}

TN_TEST(a_maker_that_leaves_lends_pieces_that_others_have) { expect_leaver_to_lend(true); }

static int make_and_leave_unused(void *unused)
{
    (void)unused;
    domain->foreign_wait_ns = UINT64_MAX / 2;
    push_and_unref(share_new(7));
    tnt_await(&ready);
    tn_domain_close(domain); /* the receiver has them mapped, but no tensor in them */
    assert_int_equal(gpu_given_back, 1);
    tnt_signal(&go);
    return 0;
}

TN_TEST(a_maker_that_leaves_does_not_wait_for_idle_mappings)
{
    begin();
    pid_t receiver = tnt_fork(keep_open, NULL);
    tnt_wait_ok(tnt_fork(make_and_leave_unused, NULL));
    tnt_wait_ok(receiver);
    end();
}

static int leave_with_a_tensor(void *unused)
{
    (void)unused;
    tn_tensor *tensor = share_new(8);
    tn_log_set(keep_log, NULL);
    tn_domain_close(domain);
    assert_int_equal(gpu_given_back, 1); /* nobody else has it */
    assert_null(strstr(logged, "stay in memory"));
    tn_tensor_unref(tensor);
    return 0;
}

TN_TEST(a_library_gets_back_pieces_that_only_the_leaver_has)
{
    begin();
    tnt_wait_ok(tnt_fork(leave_with_a_tensor, NULL));
    end();
}

/* ---- tenond ------------------------------------------------------------------------------ */

static void await_pieces_of_the_vault(uint32_t count)
{
    uint64_t end_ns = tnt_until_ns(20000);
    int32_t vault = await_vault(0, 0);
    while (count_open(vault, "anon_inode:[eventfd]") < count && tni_os_now_ns() < end_ns)
        tni_os_yield();
    assert_true(count_open(vault, "anon_inode:[eventfd]") >= count);
}

TN_TEST(the_next_tenond_has_the_descriptors_of_pieces)
{
    gpu_need_fake(); /* its descriptors are those of events */
    begin();
    pid_t pid = tnt_fork(make_and_wait, NULL);
    tnt_await(&ready);
    tnt_kill(pid);
    await_pieces_of_the_vault(2 * PIECES);
    kill_and_await(manager_pid(domain), SIGKILL);
    tn_tensor_unref(receive(21));
    tn_tensor_unref(receive(22));
    TN_CHECK_OK(tn_domain_trim(domain, 0, NULL));
    end();
}

/* The descriptors are with nobody then; a maker that still has the pieces exports them again.
 */
static int make_for_two_tenonds(void *unused)
{
    (void)unused;
    tn_tensor *tensor = share_new(31);
    await_ready(tensor);
    unsigned exports = (unsigned)gpu_fake.calls("cuMemExportToShareableHandle");
    int32_t tenond = manager_pid(domain);
    tnt_signal(&ready);
    tnt_await(&go);
    await_successor(domain, tenond);
    push_and_unref(tensor);
    assert_int_equal(gpu_fake.calls("cuMemExportToShareableHandle") - exports, PIECES);
    tnt_signal(&ready);
    tnt_await(&go);
    await_freed(1);
    tn_domain_close(domain);
    return 0;
}

TN_TEST(a_maker_gives_a_new_tenond_its_pieces_again)
{
    gpu_need_fake();
    begin();
    pid_t pid = tnt_fork(make_for_two_tenonds, NULL);
    tnt_await(&ready);
    await_pieces_of_the_vault(PIECES); /* a vault that is still starting would stay */
    kill_tenond_and_vault(manager_pid(domain));
    tnt_signal(&go);
    tnt_await(&ready);
    tn_tensor *tensor = receive(31);
    tn_tensor_unref(tensor);
    TN_CHECK_OK(tn_domain_trim(domain, 0, NULL));
    tni_opened_sweep(domain, true);
    tnt_signal(&go);
    tnt_wait_ok(pid);
    end();
}

/* The library unmaps pieces that are shared, which it may not, and has others there. */
static int unmap_one_of_two(void *unused)
{
    (void)unused;
    struct gpu_memory *m = gpu_memory_make(BYTES, GPU_PIECES);
    tn_tensor *unmapped = share_part(m, OFFSET, BYTES - 2 * OFFSET, 51), *good = share_new(52);
    int32_t tenond = manager_pid(domain);
    await_ready(unmapped);
    await_ready(good);
    gpu_push(queue, unmapped);
    gpu_push(queue, good);
    m->is_kept = true;
    gpu_library_free(m->at, BYTES, GPU_PIECES);
    gpu_library_alloc(BYTES, GPU_PIECES);
    tnt_signal(&ready);
    tnt_await(&go);
    await_successor(domain, tenond);
    tni_backing_part(domain)->depot->catch_up(domain);
    tnt_signal(&ready);
    while (pause() == -1) { /* its library has lost what it shared */
    }
    return 0;
}

TN_TEST(a_new_tenond_gets_other_tensors_than_those_unmapped)
{
    gpu_need_fake();
    begin();
    tn_tensor *tensor = NULL;
    pid_t pid = tnt_fork(unmap_one_of_two, NULL);
    tnt_await(&ready);
    await_pieces_of_the_vault(2 * PIECES);
    kill_tenond_and_vault(manager_pid(domain));
    tnt_signal(&go);
    tnt_await(&ready);
    int status = tn_queue_pop_tensor(queue, tnt_deadline(20000), &tensor);
    assert_int_equal(status, TN_ERR_NOT_FOUND);
    tn_tensor_unref(receive(52));
    tnt_kill(pid);
    TN_CHECK_OK(tn_domain_trim(domain, 0, NULL));
    end();
}

/* ---- what is copied all the same --------------------------------------------------------- */

static void expect_copied(const struct gpu_piece *pieces, uint32_t count, size_t bytes,
                          const char *why)
{
    uint64_t before = copies();
    int given_back = gpu_given_back;
    tn_tensor *tensor = gpu_memory_tensor(gpu_memory_map(pieces, count), OFFSET, bytes);
    gpu_kernel_fill(tensor, 33);
    logged[0] = '\0';
    tn_log_set(keep_log, NULL);
    TN_CHECK_OK(tn_tensor_share(domain, tensor, NULL));
    if (strstr(logged, why) == NULL)
        fail_msg("the log says '%s' and not '%s'", logged, why);
    tn_log_set(NULL, NULL);
    assert_int_equal(copies(), before + 1);
    assert_int_equal(strategy_of(tensor), TN_STRATEGY_CUDA_VMM);
    gpu_expect(domain, tensor, 33);
    tn_tensor_unref(tensor);
    await_freed(given_back + 1);
}

TN_TEST(pieces_unlike_each_other_are_copied_and_the_log_says_why)
{
    static const struct gpu_piece sizes[] = {{.bytes = PIECE}, {.bytes = 2 * PIECE}},
                                  private[] = {{.bytes = PIECE},
                                               {.bytes = PIECE, .is_private = true}},
                                  devices[] = {{.bytes = PIECE}, {.bytes = PIECE, .device = 1}};
    static struct gpu_piece many[TNI_PIECES + 1];
    gpu_need_fake();
    begin();
    for (int i = 0; i <= TNI_PIECES; i++)
        many[i].bytes = PIECE;
    expect_copied(sizes, 2, PIECE, "its pieces have several sizes");
    expect_copied(private, 2, PIECE, "some of its pieces have no descriptor");
    expect_copied(devices, 2, PIECE, "or are of another device");
    expect_copied(many, TNI_PIECES + 1, (size_t)TNI_PIECES * PIECE, "in too many pieces");
    end();
}

TN_TEST(as_many_pieces_as_a_description_counts_are_shared)
{
    begin();
    tn_tensor *tensor = share_part(gpu_memory_make((size_t)TNI_PIECES * PIECE, GPU_PIECES), 0,
                                   (size_t)TNI_PIECES * PIECE, 34);
    assert_int_equal(strategy_of(tensor), TN_STRATEGY_CUDA_IPC);
    tn_tensor_unref(tensor);
    await_freed(1);
    end();
}

/* Each call of the driver that shares the pieces fails once: then they are copied. */
TN_TEST(pieces_that_the_driver_does_not_export_are_copied)
{
    static const char *const calls[] = {"cuMemRetainAllocationHandle",
                                        "cuMemExportToShareableHandle"};
    static const struct gpu_piece pieces[] = {
        {.bytes = PIECE}, {.bytes = PIECE}, {.bytes = PIECE}};
    gpu_need_fake();
    begin();
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
        for (int n = 1; n <= PIECES; n++) {
            gpu_fake.fail_nth(calls[i], (unsigned)n, CUDA_ERROR_NOT_PERMITTED);
            expect_copied(pieces, PIECES, BYTES - OFFSET, calls[i]);
        }
    end();
}

TN_TEST(pieces_in_a_domain_without_tenond_are_copied)
{
    static const struct gpu_piece pieces[] = {{.bytes = PIECE}, {.bytes = PIECE}};
    begin_in(&(tn_domain_options){.struct_size = sizeof(tn_domain_options),
                                  .flags = TN_DOMAIN_NO_MANAGER});
    expect_copied(pieces, 2, PIECE, "the domain has no tenond");
    end();
}

/* ---- messages that stay ------------------------------------------------------------------ */

static int refuse_and_receive(void *unused)
{
    static const struct {
        const char *call;
        int nth;
        CUresult code;
        int status;
    } cases[] = {
        {"cuMemAddressReserve", 1, CUDA_ERROR_OUT_OF_MEMORY, TN_ERR_NO_MEMORY},
        {"cuMemImportFromShareableHandle", 1, CUDA_ERROR_OUT_OF_MEMORY, TN_ERR_NO_MEMORY},
        {"cuMemImportFromShareableHandle", 3, CUDA_ERROR_OUT_OF_MEMORY, TN_ERR_NO_MEMORY},
        {"cuMemMap", 2, CUDA_ERROR_OUT_OF_MEMORY, TN_ERR_NO_MEMORY},
        {"cuMemSetAccess", 1, CUDA_ERROR_NOT_SUPPORTED, TN_ERR_UNSUPPORTED},
    };
    (void)unused;
    assert_int_equal(tn_device_count(gpu_type), 2);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tn_tensor *tensor = NULL;
        gpu_fake.fail_nth(cases[i].call, (unsigned)cases[i].nth, cases[i].code);
        assert_int_equal(tn_queue_pop_tensor(queue, tnt_deadline(10000), &tensor),
                         cases[i].status);
        assert_false(tni_leases_has(&domain->segment, domain->who));
    }
    tn_tensor_unref(receive(26));
    tn_domain_close(domain);
    return 0;
}

TN_TEST(a_message_stays_if_its_pieces_cannot_be_mapped_now)
{
    gpu_need_fake();
    begin();
    pid_t pid = tnt_fork(refuse_and_receive, NULL);
    push_and_unref(share_new(26));
    tnt_wait_ok(pid);
    await_freed(1);
    end();
}

/* The descriptors that come are closed, and the message stays. */
static int receive_without_room(void *unused)
{
    tn_tensor *tensor = NULL;
    (void)unused;
    tn_tensor_unref(receive(35)); /* it also connects to tenond */
    TN_CHECK_OK(tn_domain_trim(domain, 0, NULL));
    unsigned open = descriptors();
    int next = dup(0);
    close(next);
    const struct rlimit small = {(rlim_t)next + PIECES - 1, (rlim_t)next + PIECES - 1};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &small), 0);
    assert_int_equal(tn_queue_pop_tensor(queue, tnt_deadline(20000), &tensor), TN_ERR_FULL);
    assert_int_equal(descriptors(), open);
    assert_false(tni_leases_has(&domain->segment, domain->who));
    tn_domain_close(domain);
    return 0;
}

TN_TEST(a_message_stays_if_its_descriptors_find_no_room)
{
    gpu_need_fake();
    begin();
    pid_t pid = tnt_fork(receive_without_room, NULL);
    push_and_unref(share_new(35));
    push_and_unref(share_new(36));
    tnt_wait_ok(pid);
    tn_tensor_unref(receive(36));
    await_freed(2);
    end();
}

/* ---- descriptions that a process has damaged --------------------------------------------- */

static const struct forgery {
    uint32_t count;
    uint64_t bytes;
    int wanted;
} forgeries[] = {
    {TNI_PIECES + 1, (uint64_t)(TNI_PIECES + 1) * PIECE, TN_ERR_CORRUPT}, /* too many */
    {UINT32_MAX, BYTES, TN_ERR_CORRUPT},
    {PIECES, BYTES + 1, TN_ERR_CORRUPT}, /* they have no whole size */
    {PIECES + 1, (uint64_t)(PIECES + 1) * PIECE, TN_ERR_NOT_FOUND}, /* tenond has fewer */
    {PIECES, 2 * (uint64_t)BYTES, TN_ERR_CORRUPT},                  /* they are smaller */
    {PIECES, UINT64_C(3) << 50, TN_ERR_NO_MEMORY}, /* no room for their addresses */
    {0, BYTES, TN_ERR_NOT_FOUND},                  /* an allocation with a handle */
};
enum { FORGERIES = sizeof forgeries / sizeof forgeries[0] };

static void forge(struct tni_backing *b, int which)
{
    b->piece_count = forgeries[which].count;
    b->allocation_bytes = forgeries[which].bytes;
}

TN_TEST(a_damaged_count_of_pieces_is_an_error_of_the_receiver)
{
    int wanted[FORGERIES];
    gpu_need_fake();
    begin();
    for (int i = 0; i < FORGERIES; i++)
        wanted[i] = forgeries[i].wanted;
    expect_refused(&(struct forgeries){share_new, forge, FORGERIES, wanted});
    end();
}

/* ---- kills ------------------------------------------------------------------------------- */

static int share_and_close(void *unused)
{
    (void)unused;
    push_and_unref(share_new(41));
    tn_domain_close(domain);
    return 0;
}

TN_TEST(a_maker_killed_while_it_shares_pieces_leaves_nothing)
{
    static const char *const points[] = {"foreign_named", "foreign_deposited"};
    begin();
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
        assert_true(tnt_kill_at(points[i], 1, share_and_close, NULL));
        TN_CHECK_OK(tn_domain_reap(domain, NULL));
        assert_int_equal(tn_queue_count(queue), 0);
        gpu_await_used(domain, 0);
    }
    end();
}

TN_TEST(a_receiver_killed_with_pieces_at_any_point_leaves_nothing)
{
    begin();
    expect_nothing_of_killed_receivers(share_new);
    end();
}
