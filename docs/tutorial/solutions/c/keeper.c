/* SPDX-License-Identifier: Apache-2.0 */
/* The second exercise: keeps three workers at work, whatever kills them. keeper [POISON] */
#include "tutorial.h"

#include <signal.h>
#include <unistd.h>

enum { WORKERS = 3, MOST_ATTEMPTS = 2 };

static int poison; /* a worker that reads the frame of this number is killed */

static int digit_in(const tn_message *message, int number)
{
    if (message->attempt >= MOST_ATTEMPTS) /* so many workers died of it */
        return -1;
    if (number == poison)
        raise(SIGKILL);
    return read_digit(message->tensors[0]);
}

static int work(tn_domain *domain, void *argument)
{
    tn_queue *const *queues = argument; /* frames, readings */
    tn_message message;
    int status;
    while ((status = tn_queue_pop(queues[0], TN_FOREVER, &message)) == 0) {
        int32_t number = *(const int32_t *)tn_tensor_data(message.tensors[1]);
        tn_tensor *reading;
        must(tn_tensor_create(domain, TN_INT32, 1, (int64_t[]){3}, NULL, &reading));
        int32_t *value = tn_tensor_data(reading);
        value[0] = number, value[1] = digit_in(&message, number), value[2] = getpid();
        must(tn_queue_push_tensor(queues[1], reading, TN_PUSH_MOVE, TN_FOREVER));
        must(tn_message_ack(queues[0], &message));
        tn_message_fini(&message);
    }
    if (status != TN_ERR_CLOSED && status != TN_ERR_PEER_DIED) /* ended, or the camera died */
        must(status);
    return 0;
}

int main(int argc, char **argv)
{
    tn_domain *domain;
    tn_queue *queues[2];
    tn_process *workers[WORKERS];
    int running = WORKERS, restarts = 0;
    poison = argc > 1 ? atoi(argv[1]) : 0;
    must(tn_domain_open("line", NULL, 0, &domain));
    must(tn_queue_open(domain, "frames",
                       TN_OPTIONS(tn_queue_options, .capacity = 16, .policy = TN_QUEUE_LEASE),
                       0, &queues[0]));
    must(tn_queue_open(domain, "readings", TN_OPTIONS(tn_queue_options, .capacity = 1024), 0,
                       &queues[1]));
    for (int i = 0; i < WORKERS; i++)
        must(tn_process_fork(domain, work, queues, 0, &workers[i]));
    for (int i = 0; running > 0; i = (i + 1) % WORKERS) {
        tn_process_status end = {.struct_size = sizeof end};
        if (workers[i] == NULL)
            continue;
        int status = tn_process_wait(workers[i], tn_deadline_after(TN_SECOND / 20), &end);
        if (status == TN_ERR_TIMED_OUT)
            continue; /* it works */
        must(status);
        workers[i] = tn_process_close(workers[i]);
        if (end.signal == 0 && end.exit_code == 0) {
            running--; /* the queue was ended */
        } else {
            must(tn_process_fork(domain, work, queues, 0, &workers[i]));
            restarts++;
        }
    }
    printf("%d workers were started again\n", restarts);
    tn_object_close(queues[0]);
    tn_object_close(queues[1]);
    tn_domain_close(domain);
    return 0;
}
