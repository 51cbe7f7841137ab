/* SPDX-License-Identifier: Apache-2.0 */
/* Many threads, and deaths at each call: the universe stays whole, and nothing is left. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fakecuda/world.h"

/* ---- threads ----------------------------------------------------------------------------- */

enum { THREADS = 4, ROUNDS = 30 };

static void one_round(unsigned char value)
{
    CUstream stream;
    CUevent event;
    CUdeviceptr ptr;
    unsigned char byte = 0;
    struct chunk chunk = chunk_create(CHUNK);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuMemAlloc_v2(&ptr, 1000));
    OK(cuMemsetD8Async(ptr, value, 1000, stream));
    OK(cuMemcpyDtoDAsync_v2(chunk.ptr, ptr, 1000, stream));
    OK(cuEventRecord(event, stream));
    OK(cuStreamWaitEvent(NULL, event, 0));
    OK(cuMemcpyDtoHAsync_v2(&byte, chunk.ptr + 999, 1, NULL));
    assert_int_equal(byte, value);
    OK(cuEventSynchronize(event));
    OK(cuMemFree_v2(ptr));
    OK(cuEventDestroy_v2(event));
    OK(cuStreamDestroy_v2(stream));
    chunk_destroy(&chunk);
}

static void *run_rounds(void *context)
{
    OK(cuCtxPushCurrent_v2(context));
    for (unsigned char i = 1; i <= ROUNDS; i++)
        one_round(i);
    OK(cuCtxPopCurrent_v2(NULL));
    return NULL;
}

TN_TEST(threads_use_the_driver_at_the_same_time)
{
    pthread_t threads[THREADS];
    world_begin(NULL);
    CUcontext context = world_enter();
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_rounds, context), 0);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    world_leave();
    world_end();
}

/* ---- deaths ------------------------------------------------------------------------------ */

static unsigned death;
static const char *when;

static int die_at_a_call(void *argument)
{
    CUipcMemHandle handle;
    CUdeviceptr ptr;
    (void)argument;
    fake_kill_nth(death, when);
    world_enter();
    struct chunk chunk = chunk_create(CHUNK);
    close(chunk_export(&chunk));
    OK(cuMemAlloc_v2(&ptr, 4096));
    OK(cuIpcGetMemHandle(&handle, ptr));
    one_round(7);
    OK(cuMemFree_v2(ptr));
    chunk_destroy(&chunk);
    world_leave();
    return 0;
}

/* R45, R57 */
TN_TEST_WITHIN(a_process_that_dies_at_any_call_leaves_nothing, 100)
{
    bool is_over = false;
    world_begin(NULL);
    for (unsigned i = 0; !is_over; i++) {
        death = 1 + i / 2;
        when = i % 2 ? "after" : "before";
        int status = tnt_wait(tnt_fork(die_at_a_call, NULL));
        is_over = WIFEXITED(status) && WEXITSTATUS(status) == 0;
        assert_true(is_over || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
        assert_int_equal(fake_mem_used(0), 0);
    }
    assert_true(death > 30);
    world_end();
}

static int work_until_killed(void *argument)
{
    CUstream stream;
    world_enter();
    OK(cuStreamCreate(&stream, 0));
    struct chunk chunk = chunk_create(CHUNK);
    while (getppid() != 1) {
        OK(cuMemsetD8Async(chunk.ptr, 1, CHUNK, stream));
        OK(cuMemcpyDtoDAsync_v2(chunk.ptr, chunk.ptr + CHUNK / 2, CHUNK / 2, stream));
        OK(cuStreamQuery(NULL));
        tnt_signal(argument);
    }
    return 1;
}

static int make_rounds(void *argument)
{
    world_enter();
    while (getppid() != 1) {
        one_round(1);
        tnt_signal(argument);
    }
    return 1;
}

/* Kill a child again and again, each time after a random number of its rounds. */
static void kill_at_random(tnt_child_fn *work, unsigned deaths)
{
    world_begin(NULL);
    for (unsigned i = 0; i < deaths; i++) {
        struct tnt_signal done = tnt_signal_open();
        pid_t child = tnt_fork(work, &done);
        for (uint64_t n = 1 + tnt_random_below(20); n > 0; n--)
            tnt_await(&done);
        tnt_kill(child);
        tnt_signal_close(&done);
        assert_int_equal(fake_mem_used(0), 0);
    }
    world_end();
}

TN_TEST_WITHIN(the_universe_survives_deaths_in_the_middle_of_calls, 100)
{
    kill_at_random(make_rounds, tnt_is_full() ? 2000 : 60);
}

/* A process may die while it holds the lock of the universe. */
TN_TEST_WITHIN(the_universe_survives_deaths_in_the_middle_of_work, 100)
{
    kill_at_random(work_until_killed, 40);
}
