/* SPDX-License-Identifier: Apache-2.0 */
/* show: work */
#include "tutorial.h"

#include <unistd.h>

static void work(tn_domain *domain, tn_message *message, tn_queue *readings)
{
    const tn_tensor *picture = message->tensors[0];
    const int64_t *shape = tn_tensor_shape(picture);
    tn_tensor_info info = {.struct_size = sizeof info};
    must(tn_tensor_get_info(picture, &info));
    int digit =
        read_picture(tn_tensor_data(picture), (int)shape[0], (int)shape[1], info.strides[0])
            .digit;
    int32_t number = *(const int32_t *)tn_tensor_data(message->tensors[1]);

    tn_tensor *reading;
    must(tn_tensor_create(domain, TN_INT32, 1, (int64_t[]){3}, NULL, &reading));
    int32_t *value = tn_tensor_data(reading);
    value[0] = number, value[1] = digit, value[2] = getpid();
    must(tn_queue_push_tensor(readings, reading, TN_PUSH_MOVE, TN_FOREVER));
}
/* end */

/* show: main */
int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "frames";
    tn_domain *domain;
    tn_queue *frames, *readings;
    tn_message message;
    int status, count = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    must(tn_domain_open("line", NULL, 0, &domain));
    must(tn_queue_open(domain, name,
                       TN_OPTIONS(tn_queue_options, .capacity = 16, .policy = TN_QUEUE_LEASE),
                       0, &frames));
    must(tn_queue_open(domain, "readings", TN_OPTIONS(tn_queue_options, .capacity = 1024), 0,
                       &readings));
    printf("process %d waits for frames\n", getpid());
    while ((status = tn_queue_pop(frames, tn_deadline_after(30 * TN_SECOND), &message)) == 0) {
        work(domain, &message, readings);
        must(tn_message_ack(frames,
                            &message)); /* until here another worker would get it again */
        tn_message_fini(&message);
        count++;
    }
    if (status != TN_ERR_CLOSED)
        must(status);
    printf("process %d read %d frames\n", getpid(), count);
    tn_object_close(frames);
    tn_object_close(readings);
    tn_domain_close(domain);
    return 0;
}
/* end */
