/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of tenon/channel.h. */
#undef NDEBUG
#include "must.h"

#include <assert.h>

static void publish(tn_domain *domain, tn_channel *channel)
{
    tn_tensor *batch;
    must(tn_tensor_create(domain, TN_FLOAT32, 2, (int64_t[]){32, 784}, NULL, &batch));
    /* show: tn_channel_publish */
    tn_message message = {.tensors = &batch, .tensor_count = 1};
    int status = tn_channel_publish(channel, &message, tn_deadline_after(5 * TN_SECOND));
    if (status == TN_ERR_TIMED_OUT)
        printf("%s\n", tn_error_detail()); /* names the process that does not receive */
    else
        must(status);
    /* end */
    tn_tensor_unref(batch);
    assert(status == 0);
}

static void receive(tn_channel *channel)
{
    /* show: tn_channel_receive */
    tn_message message;
    int status = tn_channel_receive(channel, tn_deadline_after(TN_SECOND), &message);
    if (status == TN_ERR_CLOSED || status == TN_ERR_PEER_DIED)
        printf("nothing more is published\n");
    else if (must(status) == 0) {
        const float *numbers =
            tn_tensor_data(message.tensors[0]); /* shared by all subscribers */
        printf("%g\n", numbers[0]);
        tn_message_fini(&message);
    }
    /* end */
}

int main(void)
{
    tn_domain *domain;
    must(tn_domain_open(NULL, NULL, 0, &domain));
    /* show: tn_channel_open */
    tn_channel *channel; /* whichever process comes first makes it */
    must(tn_channel_open(
        domain, "batches",
        TN_OPTIONS(tn_channel_options, .capacity = 16, .policy = TN_CHANNEL_WAIT), 0,
        &channel));
    /* end */
    /* show: tn_channel_subscribe */
    must(tn_channel_subscribe(channel, TN_FROM_NEWEST)); /* in each process that receives */
    /* end */
    publish(domain, channel);
    receive(channel);

    /* show: tn_channel_get_info */
    tn_channel_info info = {.struct_size = sizeof info};
    must(tn_channel_get_info(channel, &info));
    printf("%u subscribers; process %d has %llu messages to receive\n", info.subscribers,
           info.slowest_pid, (unsigned long long)info.most_behind);
    /* end */
    assert(info.published == 1 && info.most_behind == 0);

    /* show: tn_channel_unsubscribe tn_channel_end */
    must(
        tn_channel_unsubscribe(channel)); /* publishers do not wait for this process any more */
    must(tn_channel_end(channel));        /* receives fail with TN_ERR_CLOSED from now on */
    /* end */
    tn_object_close(channel);
    tn_domain_close(domain);
    return 0;
}
