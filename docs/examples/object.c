/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of tenon/object.h. */
#undef NDEBUG
#include "must.h"

#include <assert.h>
#include <string.h>

static void wait_for_several(tn_domain *domain)
{
    tn_queue *orders;
    tn_channel *news;
    tn_message message;
    must(tn_queue_open(domain, "orders", NULL, 0, &orders));
    must(tn_channel_open(domain, "news", NULL, 0, &news));
    must(tn_channel_subscribe(news, TN_FROM_NEWEST));
    must(tn_channel_publish(news, &(tn_message){.bytes = "it rains", .size_bytes = 8}, TN_NOW));
    /* show: tn_object_wait_any */
    tn_object *both[] = {orders, news};
    int ready = must(tn_object_wait_any(both, 2, TN_FOREVER));
    int status = ready == 0 ? tn_queue_pop(orders, TN_NOW, &message)
                            : tn_channel_receive(news, TN_NOW, &message);
    if (status == 0)
        tn_message_fini(&message);
    /* end */
    assert(ready == 1 && status == 0);
    /* show: tn_object_watch */
    must(tn_object_watch(orders, true)); /* tn_domain_poll_fd() is readable when one is ready */
    must(tn_object_watch(news, true));
    /* end */
    tn_object_close(news);
    tn_object_close(orders);
}

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
    wait_for_several(domain);
    tn_domain_close(domain);
    return 0;
}
