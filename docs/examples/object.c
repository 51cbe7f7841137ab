/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of tenon/object.h. */
#undef NDEBUG
#include "must.h"

#include <assert.h>
#include <string.h>

int main(void)
{
    tn_domain *domain;
    must(tn_domain_open(NULL, NULL, 0, &domain));

    /* show: tn_object_id tn_object_open_id */
    tn_queue *queue, *again;
    must(tn_queue_open(domain, NULL, NULL, 0, &queue)); /* without a name */
    uint64_t id = tn_object_id(queue); /* sent to another member by any means */
    must(tn_object_open_id(domain, TN_OBJECT_QUEUE, id, &again)); /* there */
    /* end */
    tn_object_close(again);
    tn_object_close(queue);

    /* show: tn_object_kind tn_object_name tn_object_close */
    tn_event *event;
    char name[48];
    must(tn_event_open(domain, "ready", 0, &event));
    assert(tn_object_kind(event) == TN_OBJECT_EVENT);
    must(tn_object_name(event, name, sizeof name));
    assert(strcmp(name, "ready") == 0);
    event = tn_object_close(event); /* NULL */
    /* end */
    tn_domain_close(domain);
    return 0;
}
