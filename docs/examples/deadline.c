/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of tenon/deadline.h. */
#include "must.h"

static void drain(tn_queue *queue)
{
    /* show: tn_deadline_after */
    tn_deadline end = tn_deadline_after(100 * TN_MILLISECOND);
    tn_message message;
    while (tn_queue_pop(queue, end, &message) == 0) /* 100 ms for all messages together */
        tn_message_fini(&message);
    /* end */
}

int main(void)
{
    tn_domain *domain;
    tn_queue *queue;
    must(tn_domain_open(NULL, NULL, 0, &domain));
    must(tn_queue_open(domain, NULL, NULL, 0, &queue));
    drain(queue);
    tn_object_close(queue);
    tn_domain_close(domain);
    return 0;
}
