/* SPDX-License-Identifier: Apache-2.0 */
/* The program of docs/guide/scheduling.md. */
#undef NDEBUG
#include "must.h"

#include <assert.h>

enum { IMAGES = 100, PIXELS = 64 };

/* show: tasks */
static int load(const tn_task_call *call)
{
    float *image = call->context;
    for (int i = 0; i < PIXELS; i++)
        image[i] = (float)i;
    return TN_TASK_DONE;
}

static int sharpen(const tn_task_call *call)
{
    float *image = call->context;
    uint32_t device;
    int count = tn_resource_id("GPU", &device, 1); /* 1: the task has one slot, this one */
    for (int i = 0; i < PIXELS; i++)               /* here: run a kernel on the device */
        image[i] *= 2;
    return count == 1 ? TN_TASK_DONE : TN_ERR_INVALID;
}
/* end */

static tn_kind *make_kind(tn_sched *sched, tn_task_fn *run, const char *request)
{
    tn_kind *kind;
    const tn_variant variant = {.run = run, .request = request};
    must(tn_kind_create(
        sched, TN_OPTIONS(tn_kind_options, .variants = &variant, .variant_count = 1), &kind));
    return kind;
}

int main(void)
{
    static float images[IMAGES][PIXELS];
    /* show: graph */
    tn_sched *sched;
    tn_graph *graph;
    must(tn_sched_create(TN_OPTIONS(tn_sched_options, .resources = "CPU=4 GPU=(0,1)"), &sched));
    tn_kind *loads = make_kind(sched, load, "CPU=1");
    tn_kind *kernels = make_kind(sched, sharpen, "CPU=0 GPU=1");
    must(tn_graph_create(sched, &graph));
    for (int i = 0; i < IMAGES; i++) {
        const tn_task tasks[] = {{.kind = loads, .context = images[i]},
                                 {.kind = kernels, .context = images[i]}};
        const uint64_t inputs[] = {TN_TASK_OF_LIST(0)}, input_ends[] = {0, 1};
        must(tn_graph_add(graph, /* the second task waits for the first */
                          TN_OPTIONS(tn_task_list, .tasks = tasks, .count = 2,
                                     .input_ends = input_ends, .inputs = inputs),
                          NULL));
    }
    must(tn_graph_run(graph, TN_FOREVER)); /* this thread runs tasks too */
    tn_sched_close(sched);
    /* end */
    for (int i = 0; i < IMAGES; i++)
        assert(images[i][PIXELS - 1] == 2 * (PIXELS - 1));
    return 0;
}
