/* SPDX-License-Identifier: Apache-2.0 */
/* Looking at domains: inspectors, audits, garbage. */
#include "faults.h"

static tn_inspector *inspector;
static tn_tensor *t;

static int see_domain(const tn_domain_entry *info, void *context)
{
    (void)info, (void)context;
    return 0;
}
static int see_seat(const tn_seat_entry *info, void *context)
{
    (void)info, (void)context;
    return 0;
}
static int see_block(const tn_block_entry *info, void *context)
{
    (void)info, (void)context;
    return 0;
}
static int see_object(const tn_object_entry *info, void *context)
{
    (void)info, (void)context;
    return 0;
}
static int see_ticket(const tn_ticket_entry *info, void *context)
{
    (void)info, (void)context;
    return 0;
}
static int see_scheduler(const tn_scheduler_entry *info, void *context)
{
    (void)info, (void)context;
    return 0;
}
static int see_sentence(const char *sentence, bool repaired, void *context)
{
    (void)sentence, (void)repaired, (void)context;
    return 0;
}

/* The domain is found by its name; tenond has its descriptors. */
static void make_named(void)
{
    faults_begin_managed("inspected");
    t = faults_tensor_as(TN_STRATEGY_FILE_SYSTEM, 0, 100);
}
static void make(void)
{
    make_named();
    TN_CHECK_OK(tn_inspector_open("inspected", &inspector));
}
static void end_named(void)
{
    t = tn_tensor_unref(t);
    faults_end();
}
static void end(void)
{
    inspector = tn_inspector_close(inspector);
    end_named();
}
#define WITH_NAMED     .prepare = make_named, .finish = end_named, .makes_files = true
#define WITH_INSPECTOR .prepare = make, .finish = end, .makes_files = true

static int domains(void) { return tn_inspect_domains(see_domain, NULL); }
static int open_it(void) { return tn_inspector_open("inspected", FAULTS_OUT(tn_inspector *)); }
static void close_out(void) { tn_inspector_close(*FAULTS_OUT(tn_inspector *)); }
static int close_it(void) { return inspector = tn_inspector_close(inspector), 0; }
static void open_now(void) { TN_CHECK_OK(tn_inspector_open("inspected", &inspector)); }
FAULTS(tn_inspect_domains, WITH_NAMED, .searches = true, .call = domains)
FAULTS(tn_inspector_open, WITH_NAMED, .searches = true, .call = open_it, .undo = close_out)
FAULTS(tn_inspector_close, WITH_NAMED, .never_fails = true, .before = open_now,
       .call = close_it)

/* Without tenond the domain is found by a search of all processes. */
static char id[33];
static void make_anonymous(void)
{
    faults_begin();
    for (int i = 0; i < 16; i++)
        snprintf(id + (size_t)i * 2, 3, "%02x", faults_d->segment.header->id[i]);
}
static int open_by_id(void) { return tn_inspector_open(id, FAULTS_OUT(tn_inspector *)); }
FAULTS_WHEN(tn_inspector_open, without_tenond, .searches = true, .prepare = make_anonymous,
            .finish = faults_end, .call = open_by_id, .undo = close_out)

static int stat(void) { return tn_inspect_stat(inspector, FAULTS_OUT_STRUCT(tn_domain_stat)); }
static int seats(void) { return tn_inspect_seats(inspector, see_seat, NULL); }
static int blocks(void) { return tn_inspect_blocks(inspector, see_block, NULL); }
static int objects(void) { return tn_inspect_objects(inspector, see_object, NULL); }
static int tickets(void) { return tn_inspect_tickets(inspector, see_ticket, NULL); }
static int see_device(const tn_device_entry *device, void *context)
{
    (void)device, (void)context;
    return 0;
}
static int devices(void) { return tn_inspect_devices(inspector, see_device, NULL); }
static int schedulers(void) { return tn_inspect_schedulers(inspector, see_scheduler, NULL); }
static int audit(void) { return tn_inspect_audit(inspector, false, see_sentence, NULL, NULL); }
static int audit_and_repair(void)
{
    return tn_inspect_audit(inspector, true, see_sentence, NULL, NULL);
}
FAULTS(tn_inspect_stat, WITH_INSPECTOR, .call = stat)
FAULTS(tn_inspect_seats, WITH_INSPECTOR, .call = seats)
FAULTS(tn_inspect_blocks, WITH_INSPECTOR, .call = blocks)
FAULTS(tn_inspect_objects, WITH_INSPECTOR, .call = objects)
FAULTS(tn_inspect_tickets, WITH_INSPECTOR, .has_no_calls = true, .call = tickets)
FAULTS(tn_inspect_devices, WITH_INSPECTOR, .has_no_calls = true, .call = devices)
FAULTS(tn_inspect_schedulers, WITH_INSPECTOR, .has_no_calls = true, .call = schedulers)
FAULTS(tn_inspect_audit, WITH_INSPECTOR, .call = audit)
FAULTS_WHEN(tn_inspect_audit, that_repairs, WITH_INSPECTOR, .searches = true,
            .call = audit_and_repair)

static int domain_audit(void)
{
    return tn_domain_audit(faults_d, true, see_sentence, NULL, FAULTS_OUT(uint32_t));
}
FAULTS(tn_domain_audit, WITH_INSPECTOR, .call = domain_audit)

static int files(void) { return tn_inspect_files(see_sentence, NULL); }
static int gc(void) { return tn_inspect_gc(see_sentence, NULL); }
FAULTS(tn_inspect_files, WITH_NAMED, .searches = true, .call = files)
FAULTS(tn_inspect_gc, WITH_NAMED, .searches = true, .call = gc)

static int folder(void) { return tn_runtime_folder()[0] == '/' ? 0 : TN_ERR_CORRUPT; }
FAULTS(tn_runtime_folder, .has_no_calls = true, .call = folder)
