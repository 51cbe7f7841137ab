/* SPDX-License-Identifier: Apache-2.0 */
/* The program of docs/guide/gpu.md. Without a GPU it says so, and ends well. */
#undef NDEBUG
#include "must.h"

#include <assert.h>

enum { ROWS = 1000, COLUMNS = 768 };

/* show: make */
static tn_tensor *make_weights(tn_domain *domain, tn_device device)
{
    tn_tensor *weights;
    const tn_tensor_options options = {
        .struct_size = sizeof options, .device = device, .flags = TN_TENSOR_ZEROED};
    must(tn_tensor_create(domain, TN_FLOAT16, 2, (int64_t[]){ROWS, COLUMNS}, &options,
                          &weights));
    /* a kernel of yours may now use tn_tensor_data(weights), an address of the device */
    return weights;
}
/* end */

/* show: serve */
static int serve(tn_domain *domain, void *queue)
{
    tn_device device;
    must(tn_device_find("cuda:0", &device));
    tn_tensor *weights = make_weights(domain, device);
    must(tn_queue_push_tensor(queue, weights, TN_PUSH_MOVE, TN_FOREVER));
    return 0; /* this process ends, and the weights do not */
}
/* end */

/* show: use */
static void use(tn_domain *domain, tn_queue *queue)
{
    tn_tensor *weights, *row, *here;
    must(tn_queue_pop_tensor(queue, TN_FOREVER, &weights)); /* maps the memory, copies none */
    assert(tn_tensor_device(weights).type == TN_DEVICE_CUDA);
    must(tn_tensor_slice(weights, 0, 0, 1, 1, &row)); /* a view, on the device as well */
    must(tn_tensor_to(domain, row, (tn_device){TN_DEVICE_CPU, 0}, NULL, &here));
    must(tn_tensor_copy(here, row)); /* tn_tensor_to() does not wait, tn_tensor_copy() does */
    assert(*(const uint16_t *)tn_tensor_data(here) == 0);
    tn_tensor_unref(here);
    tn_tensor_unref(row);
    tn_tensor_unref(weights); /* the last reference: the memory is free */
}
/* end */

/* show: order */
typedef void launch(void *stream, void *data); /* gives a stream a kernel of yours */

static void produce(tn_queue *queue, tn_tensor *tensor, launch *kernel, void *stream)
{
    kernel(stream, tn_tensor_data(tensor));
    must(tn_tensor_record(tensor, stream)); /* ready when the kernel has ended */
    must(tn_queue_push_tensor(queue, tensor, TN_PUSH_MOVE, TN_FOREVER));
}

static void consume(tn_queue *queue, launch *kernel, void *stream)
{
    tn_tensor *tensor;
    must(tn_queue_pop_tensor(queue, TN_FOREVER, &tensor));
    must(tn_tensor_wait(tensor, stream)); /* the stream waits, the call does not */
    kernel(stream, tn_tensor_data(tensor));
    must(tn_tensor_record(tensor, stream)); /* in use until the kernel has ended */
    tn_tensor_unref(tensor);
}
/* end */

static void no_kernel(void *stream, void *data) { (void)stream, (void)data; }

static void use_in_order(tn_domain *domain, tn_queue *queue)
{
    tn_device device;
    must(tn_device_find("cuda:0", &device));
    produce(queue, make_weights(domain, device), no_kernel, NULL);
    consume(queue, no_kernel, NULL);
}

/* show: limit */
static tn_domain *open_limited(void)
{
    tn_domain *domain;
    const tn_domain_options options = {.struct_size = sizeof options,
                                       .device_quota_bytes = UINT64_C(20) << 30,
                                       .device_slab_bytes = 16 << 20};
    must(tn_domain_open(NULL, &options, 0, &domain)); /* at most 20 GiB on each device */
    return domain;
}
/* end */

static int ask(tn_domain *domain, void *unused)
{
    (void)domain, (void)unused;
    return tn_device_count(TN_DEVICE_CUDA) > 0 ? 0 : 1;
}

int main(void)
{
    tn_domain *domain = open_limited();
    tn_queue *queue;
    tn_process *process;
    tn_process_status status = {.struct_size = sizeof status};
    must(tn_queue_open(domain, NULL, NULL, 0, &queue));
    /* A child asks: had this process used a GPU, its later children could not. */
    must(tn_process_fork(domain, ask, NULL, 0, &process));
    must(tn_process_wait(process, TN_FOREVER, &status));
    bool has_gpu = status.exit_code == 0;
    tn_process_close(process);
    if (has_gpu) {
        must(tn_process_fork(domain, serve, queue, 0, &process));
        must(tn_process_wait(process, TN_FOREVER, NULL));
        tn_process_close(process);
        use(domain, queue);
        use_in_order(domain, queue);
    }
    printf("%s\n", has_gpu ? "the weights outlived their process" : "there is no GPU here");
    tn_object_close(queue);
    tn_domain_close(domain);
    return 0;
}
