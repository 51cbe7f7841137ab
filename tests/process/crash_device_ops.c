/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations: memory of a device, of the fake driver. The survivor forks all that use the
 * driver, and does not use it: a process that does may not fork others that do. Afterwards the
 * runner checks that no memory of the device is used.
 */
#include "process/crash.h"

#include <signal.h>
#include <tenon/dlpack.h>
#include <unistd.h>

#include "gpu/gpu.h"
#include "harness/members.h"

/* The slabs of these worlds have 4 MiB: of LARGE bytes, each tensor has memory of its own. */
enum { SMALL = 1000, LARGE = 3 << 20 };

/*
 * The driver is loaded before an operation, at a cost of a million instructions of the
 * loader, at which the sweep does not stop.
 */
__attribute__((noinline)) void crash_load_driver(struct crash_world *w)
{
    (void)w;
    TN_CHECK(tn_device_count(TN_DEVICE_CUDA) == 1);
}

void crash_kill_at_call(unsigned n, bool is_before)
{
    gpu_fake.kill_nth(n, is_before ? "before" : "after");
}

/* On a busy machine, tenond may not answer in time. */
static tn_tensor *make_with(struct crash_world *w, int64_t bytes, uint32_t flags)
{
    static uint8_t source[LARGE];
    tn_tensor *tensor;
    uint64_t until_ns = tnt_until_ns(10000);
    int status;
    crash_fill(source, (size_t)bytes);
    do
        status =
            tn_tensor_create(w->domain, TN_UINT8, 1, &bytes,
                             TN_OPTIONS(tn_tensor_options, .flags = flags, .source = source,
                                        .source_bytes = (size_t)bytes, .device = gpu_0),
                             &tensor);
    while (status == TN_ERR_TIMED_OUT && tnt_until_ns(0) < until_ns);
    TN_CHECK_OK(status);
    return tensor;
}

static tn_tensor *make(struct crash_world *w, int64_t bytes) { return make_with(w, bytes, 0); }

static void push(struct crash_world *w, int64_t bytes)
{
    TN_CHECK_OK(tn_queue_push_tensor(w->queue, make(w, bytes), TN_PUSH_MOVE, TN_NOW));
}

static tn_tensor *pop(struct crash_world *w)
{
    tn_tensor *tensor;
    TN_CHECK_OK(tn_queue_pop_tensor(w->queue, TN_NOW, &tensor));
    return tensor;
}

/* ---- a survivor -------------------------------------------------------------------------- */

/* What the dead process recorded, and its device did not do, is known to be incomplete. */
static void expect_whole_or_incomplete(struct crash_world *w, const tn_tensor *tensor)
{
    tn_tensor_info info = {.struct_size = sizeof info};
    int status = tn_tensor_sync(tensor, tnt_deadline(20000));
    TN_CHECK_OK(tn_tensor_get_info(tensor, &info));
    assert_int_equal(status, info.is_incomplete ? TN_ERR_PEER_DIED : 0);
    if (status == 0)
        gpu_expect(w->domain, tensor, CRASH_BYTE);
}

/* Read what is left, and use both kinds of memory. */
static void use_device(struct crash_world *w)
{
    tn_message m;
    int status;
    uint32_t count;
    /*
     * A pop that waits for tenond fails as one that finds the queue empty. One that finds a
     * tensor in memory of a process that has died takes the message off, and fails.
     */
    while ((count = tn_queue_count(w->queue)) > 0 &&
           ((status = tn_queue_pop(w->queue, TN_NOW, &m)) == 0 || status == TN_ERR_TIMED_OUT ||
            (status == TN_ERR_PEER_DIED && tn_queue_count(w->queue) < count))) {
        if (status != 0)
            continue;
        for (uint32_t i = 0; i < m.tensor_count; i++)
            expect_whole_or_incomplete(w, m.tensors[i]);
        if (m.lease != 0)
            TN_CHECK_OK(tn_message_ack(w->queue, &m));
        tn_message_fini(&m);
    }
    tn_tensor *tensors[2] = {make(w, SMALL), make(w, LARGE)};
    for (int i = 0; i < 2; i++) {
        gpu_expect(w->domain, tensors[i], CRASH_BYTE);
        tn_tensor_unref(tensors[i]);
    }
    TN_CHECK_OK(tn_domain_trim(w->domain, 0, NULL));
}

void crash_use_device(struct crash_world *w) { crash_member(w, use_device); }

void crash_begin_device(void) { gpu_begin(&(struct fake_options){.no_races = true}); }
void crash_end_device(void) { gpu_end(); }

/* ---- making ------------------------------------------------------------------------------ */

static void make_large(struct crash_world *w)
{
    crash_load_driver(w);
    make(w, LARGE);
}

/* One makes a slab, and one takes another block of it. */
static void make_small(struct crash_world *w)
{
    crash_load_driver(w);
    make(w, SMALL);
    make(w, SMALL);
}

static void make_write_once(struct crash_world *w)
{
    crash_load_driver(w);
    make_with(w, SMALL, TN_TENSOR_WRITE_ONCE);
}

static void push_small(struct crash_world *w) { push(w, SMALL); }
static void leave_small(struct crash_world *w) { crash_member(w, push_small); }

/* The slab of another process has free blocks. */
static void make_on_slab_of_other(struct crash_world *w)
{
    crash_load_driver(w);
    make(w, SMALL);
}

static int make_and_die(void *world)
{
    struct crash_world *w = world;
    push(w, SMALL); /* this one keeps the slab */
    for (int i = 0; i < 3; i++)
        make(w, SMALL);
    kill(getpid(), SIGKILL);
    return 0;
}

/* tenond reclaims it here, so that it never competes with the member that is killed. */
static void leave_blocks_of_the_dead(struct crash_world *w)
{
    tnt_wait(tnt_fork(make_and_die, w));
    assert_int_equal(tnt_members(&w->domain->segment, 1), 1);
}

/* Blocks of a dead process are used again after the device was asked. */
static void make_on_blocks_of_the_dead(struct crash_world *w)
{
    crash_load_driver(w);
    for (int i = 0; i < 3; i++)
        make(w, SMALL);
}

static void signal_tenond(struct crash_world *w, int number)
{
    const struct tni_segment *s = &w->domain->segment;
    uint64_t who = atomic_load(&s->header->manager);
    TN_CHECK(who != 0);
    TN_CHECK(kill(atomic_load(&tni_seat_at(s, tni_who_seat(who))->pid), number) == 0);
}

/* Otherwise tenond would reclaim the dead process before the member that is killed does. */
static int stop_tenond_and_die(void *world)
{
    struct crash_world *w = world;
    push(w, SMALL);
    make(w, SMALL);
    make(w, LARGE);
    signal_tenond(w, SIGSTOP);
    kill(getpid(), SIGKILL);
    return 0;
}

static void leave_a_dead(struct crash_world *w) { tnt_wait(tnt_fork(stop_tenond_and_die, w)); }

static void reap(struct crash_world *w) { TN_CHECK_OK(tn_domain_reap(w->domain, NULL)); }

static void continue_tenond(struct crash_world *w) { signal_tenond(w, SIGCONT); }

/* ---- to other processes ------------------------------------------------------------------ */

static void push_both(struct crash_world *w)
{
    crash_load_driver(w);
    push(w, SMALL);
    push(w, LARGE);
}

static void push_two(struct crash_world *w)
{
    push(w, SMALL);
    push(w, LARGE);
}

static void leave_both(struct crash_world *w) { crash_member(w, push_two); }

static void pop_both(struct crash_world *w)
{
    crash_load_driver(w);
    pop(w);
    pop(w);
}

static void pop_leased(struct crash_world *w)
{
    crash_load_driver(w);
    tn_message kept = crash_pop(w), ended = crash_pop(w);
    assert_int_equal(kept.tensor_count, 1);
    TN_CHECK_OK(tn_message_ack(w->queue, &ended));
    tn_message_fini(&ended);
}

static void pop_and_release(struct crash_world *w)
{
    crash_load_driver(w);
    tn_tensor_unref(pop(w));
    tn_tensor_unref(pop(w));
}

static void pop_and_push(struct crash_world *w)
{
    crash_load_driver(w);
    for (int i = 0; i < 2; i++)
        TN_CHECK_OK(tn_queue_push_tensor(w->queue, pop(w), TN_PUSH_MOVE, TN_NOW));
}

static void export_and_import(struct crash_world *w)
{
    crash_load_driver(w);
    tn_tensor *tensor = pop(w), *again;
    TN_CHECK_OK(tn_handle_export(tensor, NULL, w->handle, sizeof w->handle, &w->handle_bytes));
    tn_tensor_unref(tensor);
    TN_CHECK_OK(tn_handle_import(w->domain, w->handle, w->handle_bytes, &again));
    tn_tensor_unref(again);
}

/* ---- copies ------------------------------------------------------------------------------ */

static void copy_there_and_back(struct crash_world *w)
{
    tn_tensor *here = crash_tensor(w, SMALL), *there, *back;
    crash_load_driver(w);
    TN_CHECK_OK(tn_tensor_to(w->domain, here, gpu_0, NULL, &there));
    TN_CHECK_OK(tn_tensor_to(w->domain, there, gpu_cpu, NULL, &back));
    TN_CHECK_OK(tn_tensor_copy(there, back));
    tn_tensor_unref(here);
    tn_tensor_unref(there);
    tn_tensor_unref(back);
}

static void pin(struct crash_world *w)
{
    tn_tensor *tensor = crash_tensor(w, 1 << 20);
    crash_load_driver(w);
    TN_CHECK_OK(tn_tensor_pin(tensor));
    TN_CHECK_OK(tn_tensor_unpin(tensor));
    TN_CHECK_OK(tn_tensor_pin(tensor));
}

/* ---- order ------------------------------------------------------------------------------- */

/* What is recorded travels with the message, and the reference stays until it is done. */
static void record_and_push(struct crash_world *w)
{
    crash_load_driver(w);
    tn_tensor *tensors[2] = {make(w, SMALL), make(w, LARGE)};
    for (int i = 0; i < 2; i++) {
        TN_CHECK_OK(tn_tensor_record(tensors[i], NULL));
        TN_CHECK_OK(tn_queue_push_tensor(w->queue, tensors[i], TN_PUSH_MOVE, TN_NOW));
    }
}

static void leave_recorded(struct crash_world *w) { crash_member(w, record_and_push); }

static void wait_and_record(struct crash_world *w)
{
    crash_load_driver(w);
    for (int i = 0; i < 2; i++) {
        tn_tensor *tensor = pop(w);
        TN_CHECK_OK(tn_tensor_wait(tensor, NULL));
        TN_CHECK_OK(tn_tensor_record(tensor, NULL));
        tn_tensor_unref(tensor);
    }
    TN_CHECK_OK(tn_domain_trim(w->domain, 0, NULL));
}

static void follow_a_stream(struct crash_world *w)
{
    crash_load_driver(w);
    TN_CHECK_OK(tn_queue_set_stream(w->queue, gpu_0, NULL));
    push(w, SMALL);
    tn_tensor_unref(pop(w));
}

static void record_and_leave(struct crash_world *w)
{
    crash_load_driver(w);
    tn_tensor *tensor = make(w, SMALL);
    TN_CHECK_OK(tn_tensor_record(tensor, NULL));
    w->domain = tn_domain_close(w->domain);
    tn_tensor_unref(tensor);
}

/* ---- memory of another library ----------------------------------------------------------- */

static int64_t foreign_bytes = SMALL;
static bool is_freed;
static enum gpu_library library;

static void free_foreign(DLManagedTensorVersioned *managed)
{
    gpu_library_free((CUdeviceptr)(uintptr_t)managed->dl_tensor.data, SMALL, library);
    is_freed = true;
}

/* Memory that the library of this process made, as a shared tensor. */
static tn_tensor *share_foreign(struct crash_world *w)
{
    static DLManagedTensorVersioned managed;
    tn_tensor *tensor;
    managed =
        (DLManagedTensorVersioned){.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION},
                                   .deleter = free_foreign,
                                   .dl_tensor = {.device = {kDLCUDA, 0},
                                                 .ndim = 1,
                                                 .dtype = {kDLUInt, 8, 1},
                                                 .shape = &foreign_bytes}};
    managed.dl_tensor.data = (void *)(uintptr_t)gpu_library_alloc(SMALL, library);
    TN_CHECK_OK(tn_tensor_from_dlpack(&managed, &tensor));
    gpu_kernel_fill(tensor, CRASH_BYTE);
    TN_CHECK_OK(tn_tensor_share(w->domain, tensor, NULL));
    TN_CHECK_OK(tn_tensor_record(tensor, NULL));
    return tensor;
}

static void push_foreign(struct crash_world *w)
{
    TN_CHECK_OK(tn_queue_push_tensor(w->queue, share_foreign(w), TN_PUSH_MOVE, TN_NOW));
}

/* The library gets its memory back in a later call. */
static void await_freed(struct crash_world *w)
{
    uint64_t until_ns = tnt_until_ns(20000);
    while (!is_freed && tnt_until_ns(0) < until_ns)
        TN_CHECK_OK(tn_domain_trim(w->domain, 0, NULL));
    assert_true(is_freed);
}

static void share_and_release_foreign(struct crash_world *w)
{
    crash_load_driver(w);
    tn_tensor_unref(share_foreign(w));
    await_freed(w);
}

static void share_and_release_pieces(struct crash_world *w)
{
    library = GPU_PIECES;
    share_and_release_foreign(w);
}

/* What is only in a message is moved into memory that tenond keeps. */
static void leave_foreign(struct crash_world *w)
{
    crash_load_driver(w);
    push_foreign(w);
    w->domain = tn_domain_close(w->domain);
}

/* Nothing is moved: tenond has descriptors of the pieces. */
static void leave_pieces(struct crash_world *w)
{
    library = GPU_PIECES;
    leave_foreign(w);
}

static struct tnt_signal foreign_ready, foreign_go;

/* The maker lives on: else its memory would end before the survivor looks. */
static int make_foreign_and_wait(void *world)
{
    struct crash_world *w = world;
    tn_tensor *tensor;
    push_foreign(w);
    tnt_signal(&foreign_ready);
    tnt_await(&foreign_go);
    if (tn_queue_pop_tensor(w->queue, TN_NOW, &tensor) == 0)
        tn_tensor_unref(tensor);
    await_freed(w);
    tn_domain_close(w->domain);
    return 0;
}

static void begin_foreign(struct crash_world *w)
{
    foreign_ready = tnt_signal_open();
    foreign_go = tnt_signal_open();
    w->helper = tnt_fork(make_foreign_and_wait, w);
    tnt_await(&foreign_ready);
}

static void begin_pieces(struct crash_world *w)
{
    library = GPU_PIECES;
    begin_foreign(w);
    library = GPU_ALLOCATED;
}

static void end_foreign(struct crash_world *w)
{
    tnt_signal(&foreign_go);
    tnt_wait_ok(w->helper);
    tnt_signal_close(&foreign_ready);
    tnt_signal_close(&foreign_go);
}

/* To leave the domain closes what this process has open. */
static void pop_foreign(struct crash_world *w)
{
    crash_load_driver(w);
    tn_tensor *tensor = pop(w);
    gpu_expect(w->domain, tensor, CRASH_BYTE);
    tn_tensor_unref(tensor);
    w->domain = tn_domain_close(w->domain);
}

/* ---- ends -------------------------------------------------------------------------------- */

static void trim(struct crash_world *w)
{
    crash_load_driver(w);
    tn_tensor_unref(pop(w));
    TN_CHECK_OK(tn_domain_trim(w->domain, 0, NULL));
}

static void leave(struct crash_world *w)
{
    crash_load_driver(w);
    tn_tensor *tensors[3] = {pop(w), pop(w), make(w, SMALL)};
    w->domain = tn_domain_close(w->domain);
    for (int i = 0; i < 3; i++)
        tn_tensor_unref(tensors[i]);
}

/*
 * Without tenond the dead are reclaimed by the member that the runner kills. What crosses
 * processes needs a tenond, which keeps its descriptors.
 */
#define ON_DEVICE .is_on_device = true, .is_costly = true
#define BY_TENOND ON_DEVICE, .is_named = true
const struct crash_op crash_device_ops[] = {
    {"device_make_large", ON_DEVICE, .run = make_large},
    {"device_make_small", ON_DEVICE, .run = make_small},
    {"device_make_write_once", ON_DEVICE, .run = make_write_once},
    {"device_copy", ON_DEVICE, .run = copy_there_and_back},
    {"device_pin", ON_DEVICE, .run = pin},
    {"device_make_small_by_tenond", BY_TENOND, .run = make_small},
    {"device_make_on_slab_of_other", BY_TENOND, .prepare = leave_small,
     .run = make_on_slab_of_other},
    {"device_make_on_blocks_of_the_dead", BY_TENOND, .prepare = leave_blocks_of_the_dead,
     .run = make_on_blocks_of_the_dead},
    {"device_reap", BY_TENOND, .prepare = leave_a_dead, .run = reap, .finish = continue_tenond},
    {"device_push", BY_TENOND, .run = push_both},
    {"device_pop", BY_TENOND, .prepare = leave_both, .run = pop_both},
    {"device_pop_leased", BY_TENOND, .policy = TN_QUEUE_LEASE, .prepare = leave_both,
     .run = pop_leased},
    {"device_pop_and_release", BY_TENOND, .prepare = leave_both, .run = pop_and_release},
    {"device_pop_and_push", BY_TENOND, .prepare = leave_both, .run = pop_and_push},
    {"device_handle", BY_TENOND, .prepare = leave_small, .run = export_and_import},
    {"device_record", BY_TENOND, .run = record_and_push},
    {"device_wait", BY_TENOND, .prepare = leave_recorded, .run = wait_and_record},
    {"device_follow", BY_TENOND, .run = follow_a_stream},
    {"device_record_and_leave", ON_DEVICE, .run = record_and_leave},
    {"device_share_foreign", ON_DEVICE, .run = share_and_release_foreign},
    {"device_leave_foreign", BY_TENOND, .run = leave_foreign},
    {"device_share_pieces", BY_TENOND, .run = share_and_release_pieces},
    {"device_leave_pieces", BY_TENOND, .run = leave_pieces},
    {"device_pop_foreign", ON_DEVICE, .prepare = begin_foreign, .run = pop_foreign,
     .finish = end_foreign},
    {"device_pop_pieces", BY_TENOND, .prepare = begin_pieces, .run = pop_foreign,
     .finish = end_foreign},
    {"device_trim", BY_TENOND, .prepare = leave_small, .run = trim},
    {"device_leave", BY_TENOND, .prepare = leave_both, .run = leave},
    {0},
};
