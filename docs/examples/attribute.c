/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of tenon/attribute.h. */
#undef NDEBUG
#include "must.h"

#include <assert.h>
#include <string.h>

/* show: tn_tensor_for_each_metadata */
static int print(const char *key, const void *bytes, size_t size_bytes, void *context)
{
    (void)bytes, (void)context;
    printf("%s: %zu bytes\n", key, size_bytes);
    return 0; /* go on */
}

static void print_metadata(const tn_tensor *tensor)
{
    must(tn_tensor_for_each_metadata(tensor, print, NULL));
}
/* end */

static void describe(tn_tensor *words) /* float32 [5, 2] */
{
    /* show: tn_tensor_set_flags tn_tensor_flags */
    must(tn_tensor_set_flags(words, TN_REQUIRES_GRAD | TN_PARAMETER));
    assert(tn_tensor_flags(words) & TN_REQUIRES_GRAD);
    /* end */

    /* show: tn_tensor_set_name tn_tensor_name tn_tensor_set_axis_names tn_tensor_axis_name */
    must(tn_tensor_set_name(words, "embedding"));
    must(tn_tensor_set_axis_names(words, (const char *const[]){"word", "channel"}));
    printf("the first axis of %s is %s\n", tn_tensor_name(words),
           tn_tensor_axis_name(words, 0));
    /* end */

    /* show: tn_tensor_set_lod tn_tensor_lod */
    const uint64_t sentences[] = {0, 3, 5}; /* rows 0 to 2, and rows 3 and 4 */
    must(tn_tensor_set_lod(words, 1, (uint32_t[]){3}, (const uint64_t *[]){sentences}));
    uint32_t count;
    const uint64_t *offsets = tn_tensor_lod(words, 0, &count);
    assert(count == 3 && offsets[1] == 3);
    assert(tn_tensor_lod(words, 1, &count) == NULL); /* there is no second level */
    /* end */

    /* show: tn_tensor_set_metadata tn_tensor_metadata */
    size_t size_bytes;
    must(tn_tensor_set_metadata(words, "language", "en", 2));
    const char *language = tn_tensor_metadata(words, "language", &size_bytes);
    printf("language: %.*s\n", (int)size_bytes, language);
    /* end */
    print_metadata(words);

    tn_tensor *other;
    must(tn_tensor_create_private(TN_FLOAT32, 2, (int64_t[]){5, 2}, &other));
    /* show: tn_tensor_copy_attributes */
    must(tn_tensor_copy_attributes(other, words)); /* all of them, in place of its own */
    /* end */
    assert(strcmp(tn_tensor_name(other), "embedding") == 0);
    tn_tensor_unref(other);
}

static void quantize(tn_domain *domain)
{
    tn_tensor *weights;
    must(tn_tensor_create(domain, TN_INT8, 1, (int64_t[]){100}, NULL, &weights));
    /* show: tn_tensor_set_quantizer tn_tensor_quantizer */
    tn_quantizer quantizer = {.scheme = TN_QUANTIZER_AFFINE,
                              .count = 1,
                              .scales = (double[]){0.05},
                              .zero_points = (int64_t[]){3}};
    must(tn_tensor_set_quantizer(weights, &quantizer)); /* real = (element - 3) * 0.05 */
    tn_quantizer found;
    if (tn_tensor_quantizer(weights, &found))
        printf("scale %g, zero point %lld\n", found.scales[0], (long long)found.zero_points[0]);
    /* end */
    tn_tensor_unref(weights);
}

static void send_sparse(tn_domain *domain, tn_queue *queue)
{
    tn_tensor *indices, *values;
    must(tn_tensor_create(domain, TN_INT64, 2, (int64_t[]){2, 3}, NULL, &indices));
    must(tn_tensor_create(domain, TN_FLOAT32, 1, (int64_t[]){3}, NULL, &values));
    /* show: tn_sparse_mark tn_sparse_find */
    tn_sparse sparse = {.layout = TN_LAYOUT_COO,
                        .ndim = 2,
                        .part_count = 2,
                        .shape = {1000, 500},
                        .parts = {indices, values}}; /* int64 [2, 3] and float32 [3] */
    must(tn_sparse_mark(&sparse));
    tn_message message = {.tensors = sparse.parts, .tensor_count = sparse.part_count};
    must(tn_queue_push(queue, &message, 0, TN_FOREVER));

    must(tn_queue_pop(queue, TN_FOREVER, &message)); /* in another process */
    int taken = must(tn_sparse_find(message.tensors, message.tensor_count, &sparse));
    printf("%d tensors are one of %lld x %lld\n", taken, (long long)sparse.shape[0],
           (long long)sparse.shape[1]);
    tn_message_fini(&message); /* and with it sparse.parts */
    /* end */
    tn_tensor_unref(values);
    tn_tensor_unref(indices);
}

int main(void)
{
    tn_domain *domain;
    tn_queue *queue;
    tn_tensor *words;
    must(tn_domain_open(NULL, NULL, 0, &domain));
    must(tn_queue_open(domain, NULL, NULL, 0, &queue));
    must(tn_tensor_create(domain, TN_FLOAT32, 2, (int64_t[]){5, 2}, NULL, &words));
    describe(words);
    quantize(domain);
    send_sparse(domain, queue);
    tn_tensor_unref(words);
    tn_object_close(queue);
    tn_domain_close(domain);
    return 0;
}
