/* SPDX-License-Identifier: Apache-2.0 */
/* The two programs of docs/guide/names.md: `guide_names serve`, and without an argument its
 * client. */
#undef NDEBUG
#include "must.h"

#include <assert.h>
#include <string.h>

/* show: server */
static int serve(void)
{
    tn_domain *domain;
    tn_queue *orders;
    tn_event *ready;
    tn_message order;
    must(tn_domain_open("shop", NULL, 0, &domain));
    must(tn_queue_open(domain, "orders", NULL, 0, &orders));
    must(tn_event_open(domain, "ready", 0, &ready));
    must(tn_event_set(ready));
    must(tn_queue_pop(orders, tn_deadline_after(30 * TN_SECOND), &order));
    printf("an order of %zu bytes\n", order.size_bytes);
    tn_message_fini(&order);
    tn_object_close(ready);
    tn_object_close(orders);
    tn_domain_close(domain);
    return 0;
}
/* end */

/* show: client */
static int order(void)
{
    tn_domain *domain;
    tn_queue *orders;
    int status = tn_domain_open("shop", NULL, TN_OPEN_EXISTING, &domain);
    if (status == TN_ERR_NOT_FOUND)
        return fprintf(stderr, "the shop is closed: %s\n", tn_error_detail()), 1;
    must(status);
    must(tn_queue_open(domain, "orders", NULL, 0, &orders));
    must(tn_queue_push(orders, &(tn_message){.bytes = "tea", .size_bytes = 3}, 0, TN_FOREVER));
    tn_object_close(orders);
    tn_domain_close(domain);
    return 0;
}
/* end */

int main(int argc, char **argv)
{
    return argc > 1 && strcmp(argv[1], "serve") == 0 ? serve() : order();
}
