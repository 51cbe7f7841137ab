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

static int run_kernel(void *pixels, void *device_memory)
{
    return pixels == device_memory ? TN_ERR_INVALID : TN_TASK_DONE;
}

/* A device whose memory is used up. */
static void *allocate_on_device(size_t size_bytes)
{
    (void)size_bytes;
    return NULL;
}

static int denoise_slowly(const tn_task_call *call)
{
    *(uint32_t *)call->context = call->variant;
    return TN_TASK_DONE;
}

/* show: oom */
static int denoise_on_gpu(const tn_task_call *call)
{
    void *device_memory = allocate_on_device(PIXELS * sizeof(float));
    if (device_memory == NULL)
        return TN_TASK_OOM; /* run it again, alone on its card; then as the other variant */
    return run_kernel(call->context, device_memory);
}

static tn_kind *make_denoise(tn_sched *sched)
{
    tn_kind *kind;
    const tn_variant variants[] = {{.run = denoise_on_gpu, .request = "CPU=0 GPU=1"},
                                   {.run = denoise_slowly, .request = "CPU=1"}};
    must(tn_kind_create(
        sched, TN_OPTIONS(tn_kind_options, .variants = variants, .variant_count = 2), &kind));
    return kind;
}
/* end */

static void run_out_of_memory(void)
{
    uint32_t variant = 99;
    tn_sched *sched;
    tn_graph *graph;
    must(tn_sched_create(TN_OPTIONS(tn_sched_options, .resources = "CPU=2 GPU=(0)"), &sched));
    const tn_task task = {.kind = make_denoise(sched), .context = &variant};
    must(tn_graph_create(sched, &graph));
    must(tn_graph_add(graph, TN_OPTIONS(tn_task_list, .tasks = &task, .count = 1), NULL));
    must(tn_graph_wait(graph, TN_FOREVER));
    tn_sched_close(sched);
    assert(variant == 1);
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
    run_out_of_memory();
    return 0;
}
