/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of a device that another library made, and deaths at each call of the driver: of the
 * process that made it, and of a process that receives it. Each test first counts the calls of
 * a life that nobody ends, and then ends one at each call, before the call and after it.
 */
#include "gpu/gpu.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tensor/tensor.h"

enum { BYTES = 2 << 20, OFFSET = 4096, VALUE = 50, LONG_MS = 20000 };

static tn_domain *domain;
static tn_queue *queue;
static struct tnt_signal ready, go;
static enum gpu_library library; /* that makes the memory */
/* What the processes of one test tell each other. */
static struct told {
    uint64_t calls; /* of a life that nobody ended */
    int arrived, lost;
} * told;

/* How a maker leaves. */
enum leaving {
    MOVES,    /* nobody has the memory open: it copies what is in a message */
    WAITS,    /* it waits for the receiver, which closes the memory when it is asked to */
    ABANDONS, /* it does not wait for the receiver, which has a tensor in the memory */
};

struct life {
    enum leaving leaving;
    unsigned nth; /* the call at which it ends; 0: none */
    const char *when;
};

static void begin(void)
{
    gpu_need_fake();
    gpu_begin(&(struct fake_options){.delays = true});
    domain = tnt_domain(NULL);
    TN_CHECK_OK(tn_queue_open(domain, NULL, NULL, 0, &queue));
    told = mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(told, MAP_FAILED);
}

static void end(void)
{
    tn_object_close(queue);
    TN_CHECK_OK(tn_domain_reap(domain, NULL));
    tn_domain_close(domain);
    munmap(told, sizeof *told);
    gpu_end();
}

static void begin_life(const struct life *l)
{
    if (l->nth != 0)
        gpu_fake.kill_nth(l->nth, l->when);
}

static void end_life(const struct life *l)
{
    tn_domain_close(domain);
    if (l->nth == 0)
        told->calls = gpu_fake.calls(NULL);
}

static tn_tensor *share_new(void)
{
    struct gpu_memory *memory = gpu_memory_make(BYTES, library);
    tn_tensor *tensor = gpu_memory_tensor(memory, OFFSET, BYTES - OFFSET);
    gpu_kernel_fill(tensor, VALUE);
    TN_CHECK_OK(tn_tensor_share(domain, tensor, NULL));
    TN_CHECK_OK(tn_tensor_record(tensor, NULL));
    return tensor;
}

/*
 * Wait for a tensor. The fake has to learn that the processor found it ready.
 * @return false: its maker died before the device had written it, which only pieces outlive
 */
static bool is_ready(const tn_tensor *tensor)
{
    uint64_t token = atomic_load(&tensor->storage->ready);
    int status = tn_tensor_sync(tensor, tnt_deadline(LONG_MS));
    if (status == TN_ERR_PEER_DIED && library == GPU_PIECES)
        return false;
    TN_CHECK_OK(status);
    if (token != 0)
        gpu_fake.value_seen(
            (void *)(uintptr_t)tni_value_at(&domain->segment, tni_token_timeline(token)));
    gpu_expect(domain, tensor, VALUE);
    return true;
}

/* ---- what a death leaves ----------------------------------------------------------------- */

static bool has_lease(void)
{
    const struct tni_segment *s = &domain->segment;
    for (uint32_t i = 0; i < tni_lease_limit(s); i++)
        if (atomic_load(&tni_lease_at(s, i)->holder) != 0)
            return true;
    return false;
}

/* tenond may be at work on the dead. */
static void expect_nothing(const struct life *l)
{
    char report[4096];
    uint64_t end_ns = tnt_until_ns(LONG_MS);
    do
        TN_CHECK_OK(tn_domain_reap(domain, NULL));
    while (has_lease() && tni_os_now_ns() < end_ns);
    if (has_lease())
        fail_msg("a lease stays after a death %s call %u", l->when, l->nth);
    assert_int_equal(tn_queue_count(queue), 0);
    gpu_await_used(domain, 0);
    TNT_AUDIT(domain);
    if (gpu_fake.violations(report, sizeof report) != 0)
        fail_msg("a death %s call %u: %s", l->when, l->nth, report);
}

/* Whether a process came to its end, and was not killed. */
static bool comes_through(pid_t pid)
{
    int status = tnt_wait(pid);
    if (WIFEXITED(status)) {
        assert_int_equal(WEXITSTATUS(status), 0);
        return true;
    }
    assert_int_equal(WTERMSIG(status), SIGKILL);
    return false;
}

/* @return whether the process came to its end before the call at which it was to end */
typedef bool live_fn(const struct life *life);

static void end_at_each_call(live_fn *live, enum leaving leaving)
{
    static const char *const when[] = {"before", "after"};
    unsigned deaths[2] = {0};
    begin();
    assert_true(live(&(struct life){.leaving = leaving, .when = "without a"}));
    assert_true(told->calls > 20);
    for (int i = 0; i < 2; i++) {
        struct life l = {.leaving = leaving, .nth = 1, .when = when[i]};
        /* How often a process looks whether something is done is not the same each time. */
        while (!live(&l) || l.nth < told->calls) {
            deaths[i]++;
            l.nth++;
        }
    }
    tnt_note("%llu calls, %u and %u deaths, %d tensors arrived, %d were lost",
             (unsigned long long)told->calls, deaths[0], deaths[1], told->arrived, told->lost);
    assert_true(told->arrived > 0);
    end();
}

/* ---- the maker dies ---------------------------------------------------------------------- */

static int make(void *argument)
{
    const struct life *l = argument;
    begin_life(l);
    domain->foreign_wait_ns = l->leaving == ABANDONS ? 1 : LONG_MS * UINT64_C(1000000);
    tn_tensor *tensor = share_new();
    gpu_push(queue, tensor);
    if (l->leaving != MOVES)
        tnt_await(&ready);
    tn_tensor_unref(tensor);
    end_life(l);
    if (l->leaving == ABANDONS || library == GPU_PIECES)
        _exit(0); /* the library does not get its memory back */
    return 0;
}

/* The process that forks pushes a tensor on the host when the maker has ended. */
static int pop_until_the_end(tn_tensor **ret_tensor)
{
    int status;
    do
        status = tn_queue_pop_tensor(queue, tnt_deadline(1), ret_tensor);
    while (status == TN_ERR_TIMED_OUT && TN_CHECK_OK(tn_domain_trim(domain, 0, NULL)) >= 0);
    if (status == TN_ERR_PEER_DIED)
        return status;
    TN_CHECK_OK(status);
    if (tn_tensor_device(*ret_tensor).type == TN_DEVICE_CPU)
        *ret_tensor = tn_tensor_unref(*ret_tensor);
    return 0;
}

static void expect_end(void)
{
    tn_tensor *tensor;
    assert_int_equal(pop_until_the_end(&tensor), 0);
    assert_null(tensor);
}

static void expect_lost(const tn_tensor *tensor)
{
    tn_tensor *copy;
    tn_tensor_info info = {.struct_size = sizeof info};
    TN_CHECK_OK(tn_domain_reap(domain, NULL));
    TN_CHECK_OK(tn_tensor_get_info(tensor, &info));
    assert_true(info.is_incomplete);
    assert_int_equal(tn_tensor_wait(tensor, NULL), TN_ERR_PEER_DIED);
    assert_int_equal(tn_tensor_sync(tensor, TN_NOW), TN_ERR_PEER_DIED);
    assert_int_equal(tn_tensor_to(domain, tensor, gpu_cpu, NULL, &copy), TN_ERR_PEER_DIED);
}

static int receive(void *argument)
{
    const struct life *l = argument;
    tn_tensor *tensor = NULL;
    if (l->leaving == MOVES)
        tnt_await(&go); /* the maker has ended */
    int status = pop_until_the_end(&tensor);
    if (status == 0 && tensor != NULL) {
        gpu_fake.message_received(1);
        bool is_whole = is_ready(tensor);
        *(is_whole ? &told->arrived : &told->lost) += 1;
        if (l->leaving != ABANDONS || !is_whole)
            tensor = tn_tensor_unref(tensor);
        tnt_signal(&ready);
        expect_end();
        if (tensor != NULL && library == GPU_PIECES)
            gpu_expect(domain, tensor, VALUE);
        else if (tensor != NULL)
            expect_lost(tensor);
        tn_tensor_unref(tensor);
    } else if (status != 0) {
        told->lost++;
        expect_end();
    }
    TN_CHECK_OK(tn_domain_trim(domain, 0, NULL));
    tn_domain_close(domain);
    return 0;
}

static bool maker_lives(const struct life *l)
{
    struct life copy = *l;
    tn_tensor *tensor;
    ready = tnt_signal_open();
    go = tnt_signal_open();
    pid_t receiver = tnt_fork(receive, &copy), maker = tnt_fork(make, &copy);
    bool is_through = comes_through(maker);
    TN_CHECK_OK(tn_domain_reap(domain, NULL));
    TN_CHECK_OK(tn_tensor_create(domain, TN_UINT8, 1, (int64_t[]){1}, NULL, &tensor));
    TN_CHECK_OK(tn_queue_push_tensor(queue, tensor, 0, tnt_deadline(LONG_MS)));
    tn_tensor_unref(tensor);
    tnt_signal(&go);
    tnt_wait_ok(receiver);
    expect_nothing(l);
    tnt_signal_close(&ready);
    tnt_signal_close(&go);
    return is_through;
}

TN_TEST_WITHIN(a_maker_killed_at_any_call_while_it_moves_leaves_nothing, 120)
{
    end_at_each_call(maker_lives, MOVES);
}

TN_TEST_WITHIN(a_maker_killed_at_any_call_before_a_receiver_leaves_nothing, 120)
{
    end_at_each_call(maker_lives, WAITS);
}

TN_TEST_WITHIN(memory_of_a_maker_killed_at_any_call_is_lost_to_its_user, 120)
{
    end_at_each_call(maker_lives, ABANDONS);
}

/* Nothing is copied, and nobody waits: the driver keeps the pieces for those who have them. */
TN_TEST_WITHIN(a_maker_of_pieces_killed_at_any_call_leaves_nothing, 120)
{
    library = GPU_PIECES;
    end_at_each_call(maker_lives, MOVES);
}

TN_TEST_WITHIN(pieces_of_a_maker_killed_at_any_call_stay_with_their_user, 120)
{
    library = GPU_PIECES;
    end_at_each_call(maker_lives, ABANDONS);
}

/* ---- the receiver dies ------------------------------------------------------------------- */

static int receive_and_die(void *argument)
{
    const struct life *l = argument;
    begin_life(l);
    tn_tensor *tensor = gpu_pop(queue);
    TN_CHECK_OK(tn_tensor_wait(tensor, NULL));
    assert_true(is_ready(tensor));
    TN_CHECK_OK(tn_tensor_record(tensor, NULL));
    tn_tensor_unref(tensor);
    TN_CHECK_OK(tn_domain_trim(domain, 0, NULL));
    end_life(l);
    return 0;
}

/* If the receiver died before it had the tensor, the message comes again. */
static int make_for_the_dead(void *unused)
{
    (void)unused;
    tn_tensor *tensor = share_new();
    gpu_push(queue, tensor);
    tn_tensor_unref(tensor);
    tnt_signal(&ready);
    tnt_await(&go);
    if (tn_queue_pop_tensor(queue, TN_NOW, &tensor) == 0) {
        assert_true(is_ready(tensor));
        tn_tensor_unref(tensor);
        told->arrived++;
    }
    uint64_t end_ns = tnt_until_ns(LONG_MS);
    while (gpu_given_back < 1 && tni_os_now_ns() < end_ns)
        TN_CHECK_OK(tn_domain_trim(domain, 0, NULL));
    assert_int_equal(gpu_given_back, 1);
    tn_domain_close(domain);
    return 0;
}

static bool receiver_lives(const struct life *l)
{
    struct life copy = *l;
    ready = tnt_signal_open();
    go = tnt_signal_open();
    pid_t maker = tnt_fork(make_for_the_dead, NULL);
    tnt_await(&ready);
    bool is_through = comes_through(tnt_fork(receive_and_die, &copy));
    TN_CHECK_OK(tn_domain_reap(domain, NULL));
    tnt_signal(&go);
    tnt_wait_ok(maker);
    expect_nothing(l);
    tnt_signal_close(&ready);
    tnt_signal_close(&go);
    return is_through;
}

TN_TEST_WITHIN(a_receiver_killed_at_any_call_of_the_driver_leaves_nothing, 120)
{
    end_at_each_call(receiver_lives, MOVES);
}

TN_TEST_WITHIN(a_receiver_of_pieces_killed_at_any_call_leaves_nothing, 120)
{
    library = GPU_PIECES;
    end_at_each_call(receiver_lives, MOVES);
}
