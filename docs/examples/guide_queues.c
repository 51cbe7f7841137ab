/* SPDX-License-Identifier: Apache-2.0 */
/* The program of docs/guide/queues.md. */
#undef NDEBUG
#include "must.h"

#include <assert.h>
#include <signal.h>

enum { FRAMES = 8 };

/* show: produce */
static int produce(tn_domain *domain, void *argument)
{
    tn_queue *queue = argument;
    for (int n = 0; n < FRAMES; n++) {
        tn_tensor *image;
        must(tn_tensor_create(domain, TN_UINT8, 2, (int64_t[]){480, 640}, NULL, &image));
        ((uint8_t *)tn_tensor_data(image))[0] = (uint8_t)n;
        must(tn_queue_push_tensor(queue, image, TN_PUSH_MOVE, TN_FOREVER));
    }
    must(tn_queue_end(queue)); /* no frame comes any more */
    return 0;
}
/* end */

/* show: consume */
static int consume(tn_queue *queue)
{
    tn_tensor *image;
    int status, count = 0;
    while ((status = tn_queue_pop_tensor(queue, TN_FOREVER, &image)) == 0) {
        assert(((const uint8_t *)tn_tensor_data(image))[0] == count);
        count++;
        tn_tensor_unref(image);
    }
    if (status == TN_ERR_PEER_DIED)
        fprintf(stderr, "the producer, process %d, died\n", tn_error_peer().pid);
    else if (status != TN_ERR_CLOSED) /* CLOSED: the queue was ended, and is empty */
        must(status);
    return count;
}
/* end */

/* show: work */
static int work(tn_domain *domain, void *argument)
{
    (void)domain;
    tn_queue *jobs = argument;
    tn_message job;
    while (tn_queue_pop(jobs, TN_FOREVER, &job) == 0) {
        if (job.attempt == 2)
            fprintf(stderr, "a job has killed two workers: it is given up\n");
        else if (*(const char *)job.bytes == 'k')
            raise(SIGKILL); /* what such a job does to its worker */
        must(tn_message_ack(jobs, &job));
        tn_message_fini(&job);
    }
    return 0;
}
/* end */

static void lease(tn_domain *domain)
{
    /* show: lease */
    tn_queue *jobs;
    tn_process *workers[3];
    must(tn_queue_open(domain, "jobs", TN_OPTIONS(tn_queue_options, .policy = TN_QUEUE_LEASE),
                       0, &jobs));
    for (int n = 0; n < 10; n++)
        must(tn_queue_push(jobs, &(tn_message){.bytes = n == 4 ? "k" : "j", .size_bytes = 1}, 0,
                           TN_FOREVER));
    must(tn_queue_end(jobs)); /* no job comes any more */
    for (int i = 0; i < 3; i++)
        must(tn_process_fork(domain, work, jobs, 0, &workers[i]));
    for (int i = 0; i < 3; i++)
        must(tn_process_wait(workers[i], TN_FOREVER, NULL));
    /* end */
    tn_message job;
    assert(tn_queue_pop(jobs, TN_NOW, &job) == TN_ERR_CLOSED);
    for (int i = 0; i < 3; i++)
        tn_process_close(workers[i]);
    tn_object_close(jobs);
}

int main(void)
{
    tn_domain *domain;
    tn_queue *queue;
    tn_process *producer;
    must(tn_domain_open(NULL, NULL, 0, &domain));
    must(tn_queue_open(domain, NULL, TN_OPTIONS(tn_queue_options, .capacity = 4), 0, &queue));
    must(tn_process_fork(domain, produce, queue, 0, &producer));
    assert(consume(queue) == FRAMES);
    tn_process_close(producer);
    tn_object_close(queue);
    lease(domain);
    tn_domain_close(domain);
    return 0;
}
