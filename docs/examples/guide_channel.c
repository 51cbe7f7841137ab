/* SPDX-License-Identifier: Apache-2.0 */
/* The program of docs/guide/channel.md. */
#undef NDEBUG
#include "must.h"

#include <assert.h>

enum { BATCHES = 20, WORKERS = 3, ROOM = 8, NUMBERS = 1000 };

/* show: publish */
static void publish(tn_domain *domain, tn_channel *channel, int number)
{
    tn_tensor *batch;
    must(tn_tensor_create(domain, TN_FLOAT32, 1, (int64_t[]){NUMBERS}, NULL, &batch));
    *(float *)tn_tensor_data(batch) = (float)number;
    must(tn_channel_publish(channel, &(tn_message){.tensors = &batch, .tensor_count = 1},
                            TN_FOREVER)); /* waits while a worker is ROOM messages behind */
    tn_tensor_unref(batch);               /* the channel has a reference of its own */
}
/* end */

/* show: receive */
static int work(tn_domain *domain, void *argument)
{
    tn_channel *channel = argument; /* the parent's handle; the subscription is our own */
    tn_message got;
    int status, count = 0;
    (void)domain;
    must(tn_channel_subscribe(channel, TN_FROM_NEWEST));
    while ((status = tn_channel_receive(channel, TN_FOREVER, &got)) == 0) {
        const float *batch =
            tn_tensor_data(got.tensors[0]); /* the same memory in all workers */
        assert(batch[0] == (float)count);
        count++;
        tn_message_fini(&got);
    }
    if (status != TN_ERR_CLOSED) /* CLOSED: the channel was ended, and we have all of it */
        must(status);
    return count == BATCHES ? 0 : 1;
}
/* end */

static void wait_for_all(tn_channel *channel, tn_process *workers[])
{
    must(tn_channel_end(channel));
    for (int i = 0; i < WORKERS; i++) {
        tn_process_status ended = {.struct_size = sizeof ended};
        must(tn_process_wait(workers[i], TN_FOREVER, &ended));
        assert(ended.exit_code == 0);
        tn_process_close(workers[i]);
    }
}

static void send_batches(tn_domain *domain)
{
    tn_process *workers[WORKERS];
    /* show: open */
    tn_channel *channel;
    must(tn_channel_open(domain, "batches", TN_OPTIONS(tn_channel_options, .capacity = ROOM), 0,
                         &channel));
    /* end */
    for (int i = 0; i < WORKERS; i++)
        must(tn_process_fork(domain, work, channel, 0, &workers[i]));
    tn_channel_info info = {.struct_size = sizeof info};
    do /* a worker that subscribes later misses the first batches */
        must(tn_channel_get_info(channel, &info));
    while (info.subscribers < WORKERS);
    for (int number = 0; number < BATCHES; number++)
        publish(domain, channel, number);
    wait_for_all(channel, workers);
    tn_object_close(channel);
}

/* A subscriber that is slower than the publisher. */
static void watch_camera(tn_domain *domain)
{
    tn_message got;
    /* show: drop */
    tn_channel *frames; /* who shows them wants the newest ones, not all of them */
    must(tn_channel_open(
        domain, "frames",
        TN_OPTIONS(tn_channel_options, .capacity = 2, .policy = TN_CHANNEL_DROP), 0, &frames));
    /* end */
    must(tn_channel_subscribe(frames, TN_FROM_NEWEST));
    for (int number = 0; number < BATCHES; number++)
        publish(domain, frames, number);
    must(tn_channel_receive(frames, TN_NOW, &got));
    assert(*(const float *)tn_tensor_data(got.tensors[0]) == BATCHES - 2);
    tn_message_fini(&got);
    /* show: lost */
    tn_channel_info info = {.struct_size = sizeof info};
    must(tn_channel_get_info(frames, &info));
    printf("this subscriber has lost %llu of %llu frames\n", (unsigned long long)info.lost,
           (unsigned long long)info.published);
    /* end */
    assert(info.lost == BATCHES - 2);
    tn_object_close(frames);
}

int main(void)
{
    tn_domain *domain;
    must(tn_domain_open(NULL, NULL, 0, &domain));
    send_batches(domain);
    watch_camera(domain);
    tn_domain_close(domain);
    return 0;
}
