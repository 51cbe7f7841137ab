/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of tenon/sched.h. */
#undef NDEBUG
#include "must.h"

#include <assert.h>
#include <fcntl.h>
#include <unistd.h>

/* show: tn_resource_id tn_task_set_bytes */
static int run_kernel(const tn_task_call *call)
{
    double *image = call->context;
    tn_task_set_bytes(sizeof *image);
    uint32_t gpu;
    if (tn_resource_id("GPU", &gpu, 1) == 1)
        image[0] = 100 + gpu; /* here: start a kernel on this device, and wait for it */
    return TN_TASK_DONE;
}
/* end */

/* show: tn_task_secede */
static int load(const tn_task_call *call)
{
    double *image = call->context;
    tn_task_secede(); /* while this task waits for a disk, another may have its CPU */
    image[0] = (double)call->task;
    return TN_TASK_DONE;
}
/* end */

/* show: tn_task_end */
static void on_answer(tn_graph *graph, uint64_t task) /* called in any thread */
{
    must(tn_task_end(graph, task, 0));
}

static int ask(const tn_task_call *call)
{
    on_answer(call->graph,
              call->task); /* here: send a question, so that this is called later */
    return TN_TASK_PENDING;
}
/* end */

/* show: tn_task_end_on */
static int count_cpus(const tn_task_call *call) /* has its slots until nproc answers */
{
    FILE **answer = call->context;
    *answer = popen("nproc", "r");
    must(tn_task_end_on(call->graph, call->task, fileno(*answer)));
    return TN_TASK_PENDING;
}
/* end */

static tn_sched *make_sched(void)
{
    /* show: tn_sched_create */
    tn_sched *sched; /* four processors, and two cards with two slots each */
    must(tn_sched_create(TN_OPTIONS(tn_sched_options, .resources = "CPU=4 GPU=((0,1),(2,3))",
                                    .flags = TN_SCHED_TRACE),
                         &sched));
    /* end */
    return sched;
}

static tn_kind *make_kind(tn_sched *sched, const char *name, tn_task_fn *run,
                          const char *request)
{
    /* show: tn_kind_create */
    tn_kind *kind;
    tn_variant variant = {.run = run, .request = request}; /* as in "CPU=0 GPU=1" */
    must(tn_kind_create(
        sched,
        TN_OPTIONS(tn_kind_options, .name = name, .variants = &variant, .variant_count = 1),
        &kind));
    /* end */
    return kind;
}

static void run_graph(tn_sched *sched)
{
    tn_kind *loads = make_kind(sched, "load", load, NULL);
    tn_kind *kernels = make_kind(sched, "kernel", run_kernel, "CPU=0 GPU=1");

    /* show: tn_graph_create tn_graph_add tn_graph_run */
    tn_graph *graph;
    double images[2];
    uint64_t first;
    tn_task tasks[] = {{.kind = loads, .context = &images[0]},
                       {.kind = loads, .context = &images[1]},
                       {.kind = kernels, .context = &images[0]},
                       {.kind = kernels, .context = &images[1]}};
    /* Task 2 waits for task 0, and task 3 for task 1. */
    const uint64_t inputs[] = {TN_TASK_OF_LIST(0), TN_TASK_OF_LIST(1)};
    const uint64_t input_ends[] = {0, 0, 1, 2};
    must(tn_graph_create(sched, &graph));
    must(tn_graph_add(graph,
                      TN_OPTIONS(tn_task_list, .tasks = tasks, .count = 4,
                                 .input_ends = input_ends, .inputs = inputs),
                      &first));
    must(tn_graph_run(graph, TN_FOREVER)); /* this thread runs tasks too */
    /* end */
    printf("the first image was on slot %g\n", images[0] - 100);

    /* show: tn_graph_get_info */
    tn_graph_info info = {.struct_size = sizeof info};
    must(tn_graph_get_info(graph, &info));
    printf("%llu of %llu tasks are done\n", (unsigned long long)info.done,
           (unsigned long long)info.tasks);
    /* end */
    assert(info.done == 4);

    /* show: tn_task_get_status */
    uint64_t cause;
    int status = tn_task_get_status(graph, first + 2, &cause);
    if (status == TN_ERR_TIMED_OUT)
        printf("the task has not ended\n");
    else if (status != 0)
        printf("the first failure was in task %llu\n", (unsigned long long)cause);
    /* end */
    assert(status == 0);

    /* show: tn_graph_close */
    graph = tn_graph_close(graph);
    /* end */
}

static void end_from_outside(tn_sched *sched)
{
    tn_graph *graph;
    FILE *answer;
    tn_task questions[] = {
        {.kind = make_kind(sched, "question", ask, NULL)},
        {.kind = make_kind(sched, "program", count_cpus, NULL), .context = &answer}};
    must(tn_graph_create(sched, &graph));
    must(tn_graph_add(graph, TN_OPTIONS(tn_task_list, .tasks = questions, .count = 2), NULL));

    /* show: tn_graph_wait */
    must(tn_graph_wait(graph, tn_deadline_after(10 * TN_SECOND)));
    /* end */
    int count;
    assert(fscanf(answer, "%d", &count) == 1 && count > 0);
    pclose(answer);

    /* show: tn_graph_cancel */
    must(tn_graph_cancel(graph)); /* tasks that have not begun do not begin */
    /* end */
    tn_graph_close(graph);
}

int main(void)
{
    tn_sched *sched = make_sched();
    run_graph(sched);
    end_from_outside(sched);

    /* show: tn_sched_get_info */
    tn_sched_info info = {.struct_size = sizeof info};
    must(tn_sched_get_info(sched, &info));
    for (uint32_t i = 0; i < info.resource_count; i++)
        printf("%s: %g of %g are free\n", info.resources[i].name, info.resources[i].free,
               info.resources[i].total);
    /* end */

    /* show: tn_sched_write_trace */
    int fd = open("run.json", O_WRONLY | O_CREAT | O_TRUNC, 0666);
    must(tn_sched_write_trace(sched, fd)); /* made with .flags = TN_SCHED_TRACE */
    close(fd);
    /* end */
    assert(unlink("run.json") == 0);

    /* show: tn_sched_close */
    sched = tn_sched_close(sched);
    /* end */
    return 0;
}
