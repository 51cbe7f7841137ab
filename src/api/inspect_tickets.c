/* SPDX-License-Identifier: Apache-2.0 */
/* inspect_tickets: what exported handles keep. */
#include "api/inspect.h"
#include "share/share.h"

struct list {
    const struct tni_segment *s;
    tn_ticket_entry_fn *each;
    void *context;
};

static int report(const tn_ticket_entry *ticket, void *context)
{
    const struct list *list = context;
    tn_ticket_entry info = *ticket;

    info.issuer_pid = TNI_MAX(info.issuer_pid, 0);
    info.bytes = tni_geometry_has_block(&list->s->geometry, info.block)
                     ? tni_inspect_block_bytes(list->s, (tni_block){info.block})
                     : 0;
    return list->each(&info, list->context);
}

int tn_inspect_tickets(tn_inspector *inspector, tn_ticket_entry_fn *each, void *context)
{
    if (inspector == NULL || each == NULL)
        return tni_fail_null(inspector == NULL ? "the inspector" : "each");
    const struct tni_segment *s = &inspector->segment;
    return tni_ticket_for_each(s, report,
                               &(struct list){.s = s, .each = each, .context = context});
}
