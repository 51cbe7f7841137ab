/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of tenon/sched_data.h. */
#undef NDEBUG
#include "must.h"

#include <assert.h>

/* show: tn_data_create tn_data_fetch tn_data_close tn_memory_get_info */
struct image {
    float pixels[1000];
};

static int copy_image(void *image, const tn_memory *from, const tn_memory *to)
{
    (void)image, (void)from, (void)to; /* here: bring it to a card, or back */
    return 0;
}

static void drop_image(void *image, const tn_memory *memory) { (void)image, (void)memory; }

static void use_data(tn_sched *sched, struct image *image)
{
    tn_data *data;
    tn_memory_info info = {.struct_size = sizeof info};
    must(tn_data_create(sched,
                        TN_OPTIONS(tn_data_options, .bytes = sizeof *image,
                                   .flags = TN_DATA_ON_HOST, .copy = copy_image,
                                   .drop = drop_image, .context = image),
                        &data));
    /* Tasks name it: docs/guide/scheduling.md. Then: */
    must(tn_data_fetch(data, TN_FOREVER));
    must(tn_memory_get_info(sched, &(tn_memory){.resource = NULL}, &info));
    printf("%llu bytes of data are on the host\n", (unsigned long long)info.used);
    data = tn_data_close(data); /* NULL */
}
/* end */

/* show: tn_data_tensor */
static int invert(const tn_task_call *call)
{
    tn_data **data = call->context;
    tn_tensor *image = tn_data_tensor(*data); /* on the card of the task, or on the host */
    float *pixels = tn_tensor_data(image);    /* of a card: an argument for a kernel */
    for (int64_t i = 0; i < tn_tensor_count(image); i++)
        pixels[i] = -pixels[i];
    return TN_TASK_DONE;
}
/* end */

static void use_tensor(tn_sched *sched, tn_tensor *tensor)
{
    tn_data *data;
    tn_kind *kind;
    tn_graph *graph;
    const tn_variant variant = {.run = invert};
    must(tn_kind_create(
        sched, TN_OPTIONS(tn_kind_options, .variants = &variant, .variant_count = 1), &kind));
    must(tn_data_create(sched, TN_OPTIONS(tn_data_options, .tensor = tensor), &data));
    must(tn_graph_create(sched, &graph));
    const tn_task task = {.kind = kind, .context = &data};
    const tn_access access = {.data = data, .mode = TN_READ | TN_WRITE};
    const uint64_t access_end = 1;
    must(tn_graph_add(graph,
                      TN_OPTIONS(tn_task_list, .tasks = &task, .count = 1,
                                 .access_ends = &access_end, .accesses = &access),
                      NULL));
    must(tn_graph_wait(graph, TN_FOREVER));
    assert(*(const float *)tn_tensor_data(tensor) == -1);
}

int main(void)
{
    static struct image image;
    tn_domain *domain;
    tn_sched *sched;
    tn_tensor *tensor;
    must(tn_domain_open(NULL, NULL, 0, &domain));
    must(tn_sched_create(TN_OPTIONS(tn_sched_options, .domain = domain), &sched));
    use_data(sched, &image);
    must(tn_tensor_create(domain, TN_FLOAT32, 1, (int64_t[]){1000}, NULL, &tensor));
    for (int i = 0; i < 1000; i++)
        ((float *)tn_tensor_data(tensor))[i] = 1;
    use_tensor(sched, tensor);
    tn_sched_close(sched);
    tn_tensor_unref(tensor);
    tn_domain_close(domain);
    return 0;
}
