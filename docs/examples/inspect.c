/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of tenon/inspect.h. */
#undef NDEBUG
#include "must.h"

#include <assert.h>

/* show: tn_inspect_domains */
static int print_domain(const tn_domain_entry *domain, void *context)
{
    (void)context;
    printf("%s has %u members\n", domain->name, domain->seats_used);
    return 0; /* go on */
}

static void list_domains(void) { must(tn_inspect_domains(print_domain, NULL)); }
/* end */

/* show: tn_inspect_seats tn_inspect_blocks tn_inspect_objects tn_inspect_tickets */
static int print_seat(const tn_seat_entry *seat, void *context)
{
    (void)context;
    printf("%d %s holds %llu bytes\n", seat->pid, seat->command,
           (unsigned long long)seat->bytes_held);
    return 0;
}

static int print_block(const tn_block_entry *block, void *context)
{
    (void)context;
    printf("%s of %llu bytes, %u holders\n", block->kind, (unsigned long long)block->bytes,
           block->holder_count);
    return 0;
}

static int print_object(const tn_object_entry *object, void *context)
{
    (void)context;
    printf("%s %s: %u\n", object->kind, object->name, object->count);
    return 0;
}

static int print_ticket(const tn_ticket_entry *ticket, void *context)
{
    (void)context;
    printf("a handle of process %d\n", ticket->issuer_pid);
    return 0;
}

static void look(tn_inspector *inspector)
{
    must(tn_inspect_seats(inspector, print_seat, NULL));
    must(tn_inspect_blocks(inspector, print_block, NULL));
    must(tn_inspect_objects(inspector, print_object, NULL));
    must(tn_inspect_tickets(inspector, print_ticket, NULL));
}
/* end */

/* show: tn_inspect_schedulers */
static int print_scheduler(const tn_scheduler_entry *scheduler, void *context)
{
    (void)context;
    printf("%s: %u tasks are ready\n", scheduler->name, scheduler->info.ready);
    for (uint32_t i = 0; i < scheduler->info.resource_count; i++) {
        const tn_resource_info *its = &scheduler->info.resources[i];
        printf("%u wait for %s, of which %g is free\n", its->waiting, its->name, its->free);
    }
    return 0;
}

static void look_at_schedulers(tn_inspector *inspector)
{
    must(tn_inspect_schedulers(inspector, print_scheduler, NULL));
}
/* end */

/* show: tn_inspect_devices */
static int print_device(const tn_device_entry *device, void *context)
{
    (void)context;
    printf("%s: %llu tensors in %llu bytes\n", device->uuid,
           (unsigned long long)device->tensors, (unsigned long long)device->bytes);
    for (uint32_t i = 0; i < device->holder_count; i++)
        printf("process %d holds %llu bytes\n", device->holders[i].pid,
               (unsigned long long)device->holders[i].bytes);
    return 0;
}

static void look_at_devices(tn_inspector *inspector)
{
    must(tn_inspect_devices(inspector, print_device, NULL));
}
/* end */

/* show: tn_inspect_audit tn_domain_audit */
static int print_finding(const char *sentence, bool repaired, void *context)
{
    (void)context;
    printf("%s%s\n", sentence, repaired ? " (repaired)" : "");
    return 0;
}

static void audit(tn_inspector *inspector, tn_domain *domain)
{
    uint32_t unchecked;
    int outside = must(tn_inspect_audit(inspector, false, print_finding, NULL, NULL));
    int inside =
        must(tn_domain_audit(domain, false, print_finding, NULL, &unchecked)); /* of a member */
    printf("%d and %d discrepancies, %u blocks were not checked\n", outside, inside, unchecked);
}
/* end */

static void clean(void)
{
    /* show: tn_inspect_files tn_inspect_gc tn_runtime_folder */
    printf("domains are found in %s\n", tn_runtime_folder());
    must(tn_inspect_files(print_finding, NULL)); /* files that nobody needs any more */
    must(tn_inspect_gc(print_finding, NULL));    /* removes them, and reclaims the dead */
    /* end */
}

int main(void)
{
    tn_domain *domain;
    tn_tensor *tensor;
    tn_domain_stat stat = {.struct_size = sizeof stat};
    must(tn_domain_open("example-inspect", NULL, 0, &domain));
    must(tn_tensor_create(domain, TN_FLOAT32, 1, (int64_t[]){1000}, NULL, &tensor));
    list_domains();
    /* show: tn_inspector_open tn_inspect_stat */
    tn_inspector *inspector;
    must(tn_inspector_open("example-inspect", &inspector));
    must(tn_inspect_stat(inspector, &stat));
    printf("%llu bytes in %llu blocks\n", (unsigned long long)stat.live_bytes,
           (unsigned long long)stat.blocks_live);
    /* end */
    assert(stat.live_bytes >= 4000);
    look(inspector);
    look_at_schedulers(inspector);
    look_at_devices(inspector);
    audit(inspector, domain);
    /* show: tn_inspector_close */
    inspector = tn_inspector_close(inspector); /* NULL */
    /* end */
    clean();
    tn_tensor_unref(tensor);
    tn_domain_close(domain);
    return 0;
}
