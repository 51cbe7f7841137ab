/* SPDX-License-Identifier: Apache-2.0 */
/* Data of tasks in the memory of cards: a part of docs/guide/scheduling.md. */
#undef NDEBUG
#include "must.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { CARDS = 2, PIXELS = 1 << 16, BYTES = PIXELS * sizeof(float), IMAGES = 8 };

/* The cards of this example are memory of the host. */
static void *card_alloc(uint32_t card, size_t bytes) { return (void)card, malloc(bytes); }
static void card_free(uint32_t card, void *memory) { (void)card, free(memory); }
static void card_copy(void *to, const void *from) { memcpy(to, from, BYTES); }

/* show: image */
struct image {
    tn_data *data;
    float *host;
    float *on_card[CARDS]; /* NULL: it has no room there */
};

static float **place(struct image *image, const tn_memory *memory)
{
    return memory->resource == NULL ? &image->host : &image->on_card[memory->slot / 2];
}

static int copy_image(void *context, const tn_memory *from, const tn_memory *to)
{
    float **there = place(context, to);
    if (*there == NULL)
        *there = card_alloc(to->slot / 2, BYTES);
    if (*there == NULL)
        return TN_TASK_OOM; /* what is idle leaves the card, and the task runs alone */
    if (from != NULL)
        card_copy(*there, *place(context, from));
    return 0;
}

static void drop_image(void *context, const tn_memory *memory)
{
    card_free(memory->slot / 2, *place(context, memory));
    *place(context, memory) = NULL;
}
/* end */

/* show: brighten */
static int brighten(const tn_task_call *call)
{
    float *pixels = *place(call->context, call->memory); /* on the card of its slot */
    for (int i = 0; i < PIXELS; i++)
        pixels[i] *= 2;
    return TN_TASK_DONE;
}
/* end */

/* ---- memory with one address for the host and the cards ------------------------------- */

/* show: managed */
struct managed {
    tn_data *data;
    float *pixels; /* from cudaMallocManaged(): the driver moves its pages */
    int prefetches;
};

static int prefetch(void *context, const tn_memory *from, const tn_memory *to)
{
    struct managed *image = context;
    (void)from, (void)to; /* here: cudaMemPrefetchAsync(), to the card or to the host */
    image->prefetches++;
    return 0;
}

static void leave(void *context, const tn_memory *memory)
{
    (void)context, (void)memory; /* no copy has an address of its own */
}

static int brighten_in_place(const tn_task_call *call)
{
    struct managed *image = call->context;
    for (int i = 0; i < PIXELS; i++)
        image->pixels[i] *= 2;
    return TN_TASK_DONE;
}
/* end */

static void run_managed(tn_sched *sched)
{
    tn_graph *graph;
    tn_kind *kind;
    struct managed image = {.pixels = malloc(BYTES)};
    const tn_variant variant = {.run = brighten_in_place, .request = "CPU=0 GPU=1"};
    for (int i = 0; i < PIXELS; i++)
        image.pixels[i] = 1;
    must(tn_kind_create(
        sched, TN_OPTIONS(tn_kind_options, .variants = &variant, .variant_count = 1), &kind));
    must(tn_graph_create(sched, &graph));
    must(tn_data_create(sched,
                        TN_OPTIONS(tn_data_options, .name = "managed", .bytes = BYTES,
                                   .flags = TN_DATA_ON_HOST, .copy = prefetch, .drop = leave,
                                   .context = &image),
                        &image.data));
    const tn_task task = {.kind = kind, .context = &image};
    const tn_access access = {.data = image.data, .mode = TN_READ | TN_WRITE};
    const uint64_t access_end = 1;
    for (int i = 0; i < 3; i++)
        must(tn_graph_add(graph,
                          TN_OPTIONS(tn_task_list, .tasks = &task, .count = 1,
                                     .access_ends = &access_end, .accesses = &access),
                          NULL));
    must(tn_graph_wait(graph, TN_FOREVER));
    assert(image.prefetches == 1); /* the three tasks ran on the card that has the pages */
    must(tn_data_fetch(image.data, TN_FOREVER));
    assert(image.prefetches == 2 && image.pixels[0] == 8 && image.pixels[PIXELS - 1] == 8);
    tn_data_close(image.data);
    tn_graph_close(graph);
    free(image.pixels);
}

static void run(tn_sched *sched, struct image *images, tn_kind *kind)
{
    tn_graph *graph;
    must(tn_graph_create(sched, &graph));
    for (int i = 0; i < IMAGES; i++) {
        struct image *image = &images[i];
        image->host = malloc(BYTES);
        for (int j = 0; j < PIXELS; j++)
            image->host[j] = (float)i;
        /* show: create */
        must(tn_data_create(sched,
                            TN_OPTIONS(tn_data_options, .name = "image", .bytes = BYTES,
                                       .flags = TN_DATA_ON_HOST, .copy = copy_image,
                                       .drop = drop_image, .context = image),
                            &image->data));
        /* end */
        /* show: task */
        const tn_task tasks[2] = {{.kind = kind, .context = image},
                                  {.kind = kind, .context = image}};
        const tn_access accesses[2] = {{.data = image->data, .mode = TN_READ | TN_WRITE},
                                       {.data = image->data, .mode = TN_READ | TN_WRITE}};
        const uint64_t input_ends[2] = {0, 1}, inputs[1] = {TN_TASK_OF_LIST(0)};
        const uint64_t access_ends[2] = {1, 2};
        must(tn_graph_add(graph,
                          TN_OPTIONS(tn_task_list, .tasks = tasks, .count = 2,
                                     .input_ends = input_ends, .inputs = inputs,
                                     .access_ends = access_ends, .accesses = accesses),
                          NULL));
        /* end */
    }
    must(tn_graph_wait(graph, TN_FOREVER));
    tn_graph_close(graph);
}

int main(void)
{
    tn_sched *sched;
    tn_kind *kind;
    struct image images[IMAGES] = {{0}};
    const tn_variant variant = {.run = brighten, .request = "CPU=0 GPU=1"};
    /* show: sched */
    /* Two cards with two slots each, and room for three images on each card. */
    must(tn_sched_create(TN_OPTIONS(tn_sched_options, .resources = "CPU=4 GPU=((0,1),(2,3))",
                                    .memories = "GPU=800000"),
                         &sched));
    /* end */
    must(tn_kind_create(sched,
                        TN_OPTIONS(tn_kind_options, .name = "brighten", .variants = &variant,
                                   .variant_count = 1),
                        &kind));
    run_managed(sched);
    run(sched, images, kind);
    /* show: info */
    tn_memory_info info = {.struct_size = sizeof info};
    must(tn_memory_get_info(sched, &(tn_memory){.resource = "GPU", .slot = 2}, &info));
    /* the bytes in use on the second card, and how many copies had to leave it */
    /* end */
    assert(info.capacity == 800000 && info.used <= info.capacity);
    for (int i = 0; i < IMAGES; i++) {
        struct image *image = &images[i];
        /* show: fetch */
        must(tn_data_fetch(image->data, TN_FOREVER)); /* image->host is up to date */
        image->data = tn_data_close(image->data);     /* NULL; the cards have no copy of it */
        /* end */
        assert(image->host[0] == (float)(4 * i) && image->on_card[0] == NULL);
        free(image->host);
    }
    tn_sched_close(sched);
    return 0;
}
