/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors that the scheduler brings to cards: a part of docs/guide/scheduling.md. Without a GPU
 * it says so, and ends well.
 */
#undef NDEBUG
#include "must.h"

#include <assert.h>

enum { PIXELS = 1 << 16, IMAGES = 4 };

/* show: run */
static int keep(const tn_task_call *call)
{
    tn_data **data = call->context;
    tn_tensor *image = tn_data_tensor(data[0]), *result = tn_data_tensor(data[1]);
    /* Both are on the device of this task: here, start a kernel on the addresses
       tn_tensor_data(image) and tn_tensor_data(result), and wait for it. */
    must(tn_tensor_copy(result, image));
    return TN_TASK_DONE;
}
/* end */

static tn_tensor *load_image(tn_domain *domain, int value)
{
    tn_tensor *image;
    must(tn_tensor_create(domain, TN_FLOAT32, 1, (int64_t[]){PIXELS}, NULL, &image));
    for (int i = 0; i < PIXELS; i++)
        ((float *)tn_tensor_data(image))[i] = (float)value;
    return image;
}

static void add_task(tn_graph *graph, tn_kind *kind, tn_data **data)
{
    const tn_task task = {.kind = kind, .context = data};
    const tn_access accesses[2] = {{.data = data[0], .mode = TN_READ},
                                   {.data = data[1], .mode = TN_WRITE}};
    const uint64_t access_end = 2;
    must(tn_graph_add(graph,
                      TN_OPTIONS(tn_task_list, .tasks = &task, .count = 1,
                                 .access_ends = &access_end, .accesses = accesses),
                      NULL));
}

int main(void)
{
    tn_domain *domain;
    tn_sched *sched;
    tn_graph *graph;
    tn_kind *kind;
    tn_data *data[IMAGES][2];
    const tn_variant variant = {.run = keep, .request = "CPU=0 GPU=1"};
    must(tn_domain_open(NULL, NULL, 0, &domain));
    if (tn_device_count(TN_DEVICE_CUDA) < 1) {
        printf("there is no GPU here\n");
        tn_domain_close(domain);
        return 0;
    }
    /* show: sched */
    /* One card with two slots: its memory is that of the first GPU. */
    must(tn_sched_create(TN_OPTIONS(tn_sched_options, .resources = "CPU=4 GPU=((0,1))",
                                    .devices = "GPU=cuda:0", .domain = domain),
                         &sched));
    /* end */
    must(tn_kind_create(
        sched, TN_OPTIONS(tn_kind_options, .variants = &variant, .variant_count = 1), &kind));
    must(tn_graph_create(sched, &graph));
    for (int i = 0; i < IMAGES; i++) {
        /* show: create */
        tn_tensor *image = load_image(domain, i);
        must(tn_data_create(sched, TN_OPTIONS(tn_data_options, .tensor = image), &data[i][0]));
        must(tn_data_create(
            sched, TN_OPTIONS(tn_data_options, .tensor = image, .flags = TN_DATA_LIKE),
            &data[i][1])); /* the result: so far only its type and shape are known */
        tn_tensor_unref(image);
        /* end */
        add_task(graph, kind, data[i]);
    }
    must(tn_graph_wait(graph, TN_FOREVER));
    for (int i = 0; i < IMAGES; i++) {
        /* show: fetch */
        must(tn_data_fetch(data[i][1], TN_FOREVER));
        const float *pixels = tn_tensor_data(tn_data_tensor(data[i][1])); /* on the host */
        /* end */
        assert(pixels[0] == (float)i && pixels[PIXELS - 1] == (float)i);
    }
    tn_graph_close(graph);
    tn_sched_close(sched);
    tn_domain_close(domain);
    printf("%d images were on the card\n", IMAGES);
    return 0;
}
