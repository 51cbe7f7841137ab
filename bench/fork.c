/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fork_with_100k_blocks: what fork() takes longer in a process that holds 100,000 blocks than
 * in one that holds none. Both are members of one domain, and fork in turns.
 */
#include <sched.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

enum { BLOCKS = 100000, ROUNDS = 41, NONE = 0, HOLDER = 1, SIDES = 2 };

struct turns {
    _Atomic uint32_t turn; /* of side turn % SIDES */
    double ns[SIDES][ROUNDS];
};

struct side {
    tn_domain *domain;
    struct turns *turns;
    uint32_t number;
};

static double time_fork(tn_domain *d)
{
    uint64_t since = bench_now_ns();
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    double ns = (double)(bench_now_ns() - since);
    bench_check(child < 0 ? TN_ERR_SYSTEM : 0, "fork");
    waitpid(child, NULL, 0);
    while (tn_domain_reap(d, NULL) == TN_ERR_TIMED_OUT)
        sched_yield();
    return ns;
}

static void run_side(void *context)
{
    static tn_tensor *tensors[BLOCKS];
    const struct side *side = context;
    uint32_t count = side->number == HOLDER ? BLOCKS : 0;
    int64_t shape = 16;
    for (uint32_t i = 0; i < count; i++)
        bench_check(tn_tensor_create(side->domain, TN_FLOAT32, 1, &shape, NULL, &tensors[i]),
                    "tensor");
    time_fork(side->domain); /* what is touched first is not timed */
    for (uint32_t round = 0; round < ROUNDS; round++) {
        while (atomic_load(&side->turns->turn) != round * SIDES + side->number)
            sched_yield();
        side->turns->ns[side->number][round] = time_fork(side->domain);
        atomic_fetch_add(&side->turns->turn, 1);
    }
    for (uint32_t i = 0; i < count; i++)
        tn_tensor_unref(tensors[i]);
}

int main(void)
{
    struct bench_series none = {0}, more = {0};
    struct turns *turns = bench_shared(sizeof *turns);
    int pids[SIDES];
    tn_domain *d;
    bench_check(tn_domain_open(NULL, NULL, 0, &d), "domain");
    for (uint32_t i = 0; i < SIDES; i++)
        pids[i] = bench_fork(run_side, &(struct side){d, turns, i});
    for (uint32_t i = 0; i < SIDES; i++)
        bench_join(pids[i]);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        bench_add(&none, turns->ns[NONE][round]);
        bench_add(&more, turns->ns[HOLDER][round] - turns->ns[NONE][round]);
    }
    bench_print_note("fork_with_100k_blocks", &more, "ms", 1e-6, "without_ms",
                     bench_median(&none) * 1e-6);
    tn_domain_close(d);
    return 0;
}
