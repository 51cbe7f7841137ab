/* SPDX-License-Identifier: Apache-2.0 */
/*
 * api: the exported functions that need more than one room; the others stand in their room.
 *
 * A domain is put together here, from the lowest room up: segment, seat, then the private
 * state of each room. It is taken apart in the opposite order. The room has no invariants of
 * its own. A process that dies while it joins or leaves leaves a seat, which the reaper
 * reclaims.
 */
#include <stdlib.h>
#include <string.h>
#include <tenon/tenon.h>

#include "reaper/reaper.h"
#include "store/store.h"

#define STRING_OF(x) #x
#define STRING(x)    STRING_OF(x)

const char *tn_version(void)
{
    return STRING(TN_VERSION_MAJOR) "." STRING(TN_VERSION_MINOR) "." STRING(TN_VERSION_PATCH);
}

const char *tn_runtime_folder(void) { return tni_os_runtime_folder(); }

/* ---- joining ----------------------------------------------------------------------------- */

/*
 * When the memory of the machine or of the cgroup runs out, the kernel kills processes. So
 * the quota leaves room for the programs, and for what the domain keeps beside the payload.
 */
static uint64_t default_quota(void)
{
    enum { LEAST_ROOM_BYTES = 256 << 20 };
    const uint64_t most = UINT64_C(1) << 40; /* of address space: docs/decisions/0002 */
    uint64_t memory = tni_os_memory_bytes();
    uint64_t room = TNI_MAX(memory / 8, TNI_MIN((uint64_t)LEAST_ROOM_BYTES, memory / 2));
    return TNI_MAX(TNI_MIN(memory - room, most), (uint64_t)TNI_MIN_QUOTA_BYTES);
}

static int read_options(const char *name, const tn_domain_options *options,
                        struct tni_segment_options *ret_options)
{
    tn_domain_options o = {0};
    int status = tni_take_options("tn_domain_options", options, sizeof o, &o);
    if (status != 0)
        return status;
    if ((o.flags & ~(uint32_t)TN_DOMAIN_NO_MANAGER) != 0)
        return tni_fail(TN_ERR_INVALID,
                        "tn_domain_options.flags is %#x: only TN_DOMAIN_NO_MANAGER is known",
                        o.flags);
    if (o.reserved != 0)
        return tni_fail(TN_ERR_INVALID, "tn_domain_options.reserved is %u, not 0", o.reserved);
    if (name != NULL && (o.flags & TN_DOMAIN_NO_MANAGER) != 0)
        return tni_fail(TN_ERR_INVALID,
                        "a domain with a name cannot have TN_DOMAIN_NO_MANAGER: tenond keeps "
                        "the name");
    struct tni_segment_options s = {.name = name != NULL ? name : "",
                                    .seats = o.seats != 0 ? o.seats : 256,
                                    .blocks = o.blocks != 0 ? o.blocks : 1u << 20,
                                    .objects = o.objects != 0 ? o.objects : 1024,
                                    .tickets = o.tickets != 0 ? o.tickets : 65536,
                                    .quota_bytes =
                                        o.quota_bytes != 0 ? o.quota_bytes : default_quota(),
                                    .flags = o.flags};
    if (s.seats == 1 && (s.flags & TN_DOMAIN_NO_MANAGER) == 0)
        return tni_fail(TN_ERR_INVALID,
                        "seats is 1: a domain with tenond needs 2, one of them for tenond");
    if (o.device_slab_bytes > TNI_SLAB_BYTES)
        return tni_fail(TN_ERR_INVALID,
                        "device_slab_bytes is %llu: a slab has at most %d bytes",
                        (unsigned long long)o.device_slab_bytes, TNI_SLAB_BYTES);
    s.device_slab_bytes = o.device_slab_bytes != 0 ? o.device_slab_bytes : TNI_SLAB_BYTES;
    s.device_quota_bytes = o.device_quota_bytes != 0 ? o.device_quota_bytes : UINT64_MAX;
    s.watermark_bytes = o.watermark_bytes != 0 ? o.watermark_bytes : s.quota_bytes / 4;
    *ret_options = s;
    return 0;
}

static void take_apart(tn_domain *d)
{
    tni_manager_leave(d);
    tni_process_unkeep(d);
}

/*
 * Wait until a seat is free. A process without a seat cannot reclaim the seats of dead
 * processes itself: tenond does it at once, and a member that waits does it within 100 ms.
 */
static int join_when_reclaimed(struct tni_segment *segment, tn_domain **ret_domain)
{
    struct tni_seat_wait wait = {0};
    int status;
    while ((status = tni_process_join(segment, 0, ret_domain)) == TN_ERR_FULL &&
           tni_process_await_seat(segment, &wait)) {
    }
    uint32_t dead = status == TN_ERR_FULL ? tni_process_count_dead(segment) : 0;
    if (dead == 0)
        return status;
    return tni_fail(TN_ERR_FULL,
                    "all %u seats of the domain '%s' are taken, %u of them by processes that "
                    "have ended and that no member reclaims",
                    segment->geometry.seats, segment->name, dead);
}

#define FOREIGN_WAIT_NS (UINT64_C(5) * 1000 * 1000 * 1000) /* unless the options say else */

/* Take a seat in a segment, which is consumed on success. */
static int take_seat(struct tni_segment *segment, tn_domain **ret_domain)
{
    int status = join_when_reclaimed(segment, ret_domain);
    if (status != 0)
        return status;
    (*ret_domain)->foreign_wait_ns = FOREIGN_WAIT_NS;
    tni_alloc_init(*ret_domain);
    tni_ref_init(*ret_domain);
    tni_backing_init(*ret_domain); /* it asks ref what a forked child has */
    tni_store_init(*ret_domain);
    tni_reaper_init(*ret_domain);
    return 0;
}

static void log_member(const struct tn_domain *d, const char *what)
{
    char label[TNI_LABEL_BYTES];
    tni_log(TNI_LOG_INFO, "%s domain %s in seat %u", what,
            tni_segment_label(&d->segment, label), d->seat);
}

static int create(const char *name, const tn_domain_options *options, tn_domain **ret_domain)
{
    struct tni_segment_options o;
    struct tni_segment segment;
    tn_domain *d;

    int status = name != NULL ? tni_check_name("domain", name, TNI_NAME_BYTES - 1) : 0;
    if (status == 0 && name != NULL && tni_manager_has_id_form(name))
        status = tni_fail(TN_ERR_INVALID,
                          "a domain cannot be made with the name '%s': 32 hexadecimal digits "
                          "are the id of a domain, and no domain has this one",
                          name);
    if (status == 0)
        status = read_options(name, options, &o);
    if (status == 0)
        status = tni_segment_create(&o, &segment);
    if (status != 0)
        return status;
    if ((status = take_seat(&segment, &d)) != 0) {
        tni_segment_detach(&segment);
        return status;
    }
    if ((o.flags & TN_DOMAIN_NO_MANAGER) == 0 && (status = tni_manager_register(d)) != 0) {
        take_apart(d);
        return status;
    }
    log_member(d, "made");
    *ret_domain = d;
    return 0;
}

/*
 * Whether tenond gave the domain up, and so its name, before it could see this process's
 * seat.
 */
static bool is_given_up(const tn_domain *d)
{
    atomic_thread_fence(memory_order_seq_cst); /* pairs with that in tenond_give_up() */
    return d->segment.name[0] != 0 && atomic_load(&d->segment.header->runtime) == 0;
}

/* The descriptors are consumed on success. */
static int join_descriptors(int control_fd, int arena_fd, tn_domain **ret_domain)
{
    struct tni_segment segment;
    tn_domain *d;
    int status = tni_segment_attach(control_fd, arena_fd, false, &segment);
    if (status != 0)
        return status;
    if ((status = take_seat(&segment, &d)) != 0) {
        segment.control_fd = segment.arena_fd = -1; /* the caller still owns them */
        tni_segment_detach(&segment);
        return status;
    }
    if (is_given_up(d)) {
        d->segment.control_fd = d->segment.arena_fd = -1;
        take_apart(d);
        return tni_fail(TN_ERR_NOT_FOUND, "the domain '%s' ended before this process joined it",
                        segment.name);
    }
    tni_manager_ring(d);
    log_member(d, "joined");
    *ret_domain = d;
    return 0;
}

static int join(const char *name, tn_domain **ret_domain)
{
    int control_fd, arena_fd;
    int status = tni_check_name("domain", name, TNI_NAME_BYTES - 1);
    if (status == 0)
        status = tni_manager_find(name, false, &control_fd, &arena_fd);
    if (status != 0)
        return status;
    if ((status = join_descriptors(control_fd, arena_fd, ret_domain)) != 0) {
        tni_os_close(control_fd);
        tni_os_close(arena_fd);
    }
    return status;
}

/*
 * Between the two calls another process may end the domain, or make it. Then that process has
 * made progress, and this one tries again.
 */
static int join_or_create(const char *name, const tn_domain_options *options,
                          tn_domain **ret_domain)
{
    for (int round = 0;; round++) {
        int status = join(name, ret_domain);
        if (status == TN_ERR_NOT_FOUND)
            status = create(name, options, ret_domain);
        if (status != TN_ERR_EXISTS || round == 8)
            return status;
    }
}

static int open_domain(const char *name, const tn_domain_options *options, uint32_t flags,
                       tn_domain **ret_domain)
{
    if (ret_domain == NULL)
        return tni_fail_null("ret_domain");
    if ((flags & ~(uint32_t)(TN_OPEN_EXISTING | TN_OPEN_NEW)) != 0 ||
        flags == (TN_OPEN_EXISTING | TN_OPEN_NEW))
        return tni_fail(TN_ERR_INVALID,
                        "the flags of tn_domain_open are %#x: 0, TN_OPEN_EXISTING or "
                        "TN_OPEN_NEW is allowed",
                        flags);
    if (flags == TN_OPEN_EXISTING)
        return name != NULL
                   ? join(name, ret_domain)
                   : tni_fail(TN_ERR_INVALID, "the name is NULL, but tn_domain_open with "
                                              "TN_OPEN_EXISTING needs one");
    if (flags == TN_OPEN_NEW || name == NULL)
        return create(name, options, ret_domain);
    return join_or_create(name, options, ret_domain);
}

static void log_leaving(const struct tn_domain *d)
{
    char label[TNI_LABEL_BYTES];
    tni_log(TNI_LOG_INFO, "leaving domain %s, seat %u", tni_segment_label(&d->segment, label),
            d->seat);
}

static int log_refusal(int status)
{
    if (status == TN_ERR_VERSION)
        tni_log(TNI_LOG_WARNING, "a domain cannot be joined: %s", tn_error_detail());
    return status;
}

int tn_domain_open(const char *name, const tn_domain_options *options, uint32_t flags,
                   tn_domain **ret_domain)
{
    tn_domain_options o = {.struct_size = sizeof o};
    int status = log_refusal(open_domain(name, options, flags, ret_domain));
    if (status == 0 && tni_take_options("tn_domain_options", options, sizeof o, &o) == 0 &&
        o.foreign_wait_ns != 0)
        (*ret_domain)->foreign_wait_ns = o.foreign_wait_ns;
    return status;
}

int tn_domain_inherit(tn_domain **ret_domain)
{
    int control_fd, arena_fd;
    tn_domain *d;
    if (ret_domain == NULL)
        return tni_fail_null("ret_domain");
    /*
     * The descriptors that the variable names are closed only after they proved to be a
     * domain's.
     */
    int status =
        tni_process_parse_pass(tni_os_environment(TNI_DOMAIN_VARIABLE), &control_fd, &arena_fd);
    if (status != 0 || (status = join_descriptors(control_fd, arena_fd, &d)) != 0)
        return log_refusal(status);
    if ((status = tni_process_inherit_parent(d)) != 0) {
        log_leaving(d);
        take_apart(d);
        return status;
    }
    *ret_domain = d;
    return 0;
}

int tn_domain_pass(tn_domain *d, char *value, size_t size_bytes)
{
    if (d == NULL || value == NULL)
        return tni_fail_null(d == NULL ? "the domain" : "value");
    return tni_process_pass(d, value, size_bytes);
}

tn_domain *tn_domain_close(tn_domain *d)
{
    if (d != NULL && !d->is_closed) {
        log_leaving(d);
        take_apart(d);
    }
    return NULL;
}

int tn_domain_get_info(const tn_domain *d, tn_domain_info *ret_info)
{
    if (d == NULL)
        return tni_fail_null("the domain");
    const struct tni_header *header = d->segment.header;
    bool has_seat = tni_process_has_seat(d);
    tn_domain_info info = {.name = d->segment.name,
                           .member = has_seat ? d->who : 0,
                           .seat = has_seat ? d->seat : TN_NO_SEAT,
                           .seats = d->segment.geometry.seats,
                           .quota_bytes = TNI_MIN(atomic_load(&header->quota_bytes),
                                                  d->segment.geometry.quota_limit_bytes),
                           .quota_limit_bytes = d->segment.geometry.quota_limit_bytes,
                           .watermark_bytes = atomic_load(&header->watermark_bytes),
                           .device_quota_bytes = atomic_load(&header->device_quota_bytes)};
    memcpy(info.id, d->segment.id, sizeof info.id);
    return tni_give_struct("tn_domain_info", &info, sizeof info, ret_info);
}

/* ---- memory and the dead ----------------------------------------------------------------- */

static int check(const tn_domain *d)
{
    return d != NULL ? tni_process_check(d) : tni_fail_null("the domain");
}

bool tn_domain_has_member(const tn_domain *d, uint64_t member)
{
    return check(d) == 0 && tni_process_who_runs(&d->segment, member);
}

int tn_domain_reap(tn_domain *d, uint32_t *ret_reaped)
{
    int status = check(d);
    if (status == 0) {
        tni_ticket_expire_due(d);
        status = tni_reaper_reclaim_all(d);
        tni_store_expire_due(d); /* then no dead process has the claim of a store */
    }
    if (status < 0)
        return status;
    if (ret_reaped != NULL)
        *ret_reaped = (uint32_t)status;
    return 0;
}

int tn_domain_trim(tn_domain *d, uint64_t keep_bytes, uint64_t *ret_freed_bytes)
{
    int status = check(d);
    if (status != 0)
        return status;
    tni_tensor_end_unfinished();
    struct tni_thread *thread = tni_thread_enter(d);
    tni_alloc_flush(d, thread);
    uint64_t freed = tni_alloc_trim(d, thread, keep_bytes);
    freed += tni_ref_trim_slabs(d, thread, NULL, UINT64_MAX);
    tni_thread_leave(thread);
    tni_backing_sweep_slabs(d);
    tni_opened_sweep(d, true);
    if (ret_freed_bytes != NULL)
        *ret_freed_bytes = freed;
    return 0;
}

int tn_domain_set_watermark(tn_domain *d, uint64_t watermark_bytes)
{
    int status = check(d);
    if (status == 0)
        atomic_store(&d->segment.header->watermark_bytes, watermark_bytes);
    return status;
}

int tn_domain_set_device_quota(tn_domain *d, uint64_t quota_bytes)
{
    int status = check(d);
    if (status == 0)
        atomic_store(&d->segment.header->device_quota_bytes,
                     quota_bytes != 0 ? quota_bytes : UINT64_MAX);
    return status;
}

int tn_domain_set_quota(tn_domain *d, uint64_t quota_bytes)
{
    int status = check(d);
    if (status != 0)
        return status;
    if (quota_bytes < TNI_MIN_QUOTA_BYTES)
        return tni_fail(TN_ERR_INVALID,
                        "a quota of %llu bytes is too small: the least is 1 MiB",
                        (unsigned long long)quota_bytes);
    if (quota_bytes > d->segment.geometry.quota_limit_bytes)
        return tni_fail(TN_ERR_INVALID,
                        "a quota of %llu bytes is too large: the domain was made with %llu",
                        (unsigned long long)quota_bytes,
                        (unsigned long long)d->segment.geometry.quota_limit_bytes);
    atomic_store(&d->segment.header->quota_bytes, quota_bytes);
    tni_alloc_wake(d);
    return 0;
}

int tn_domain_audit(tn_domain *d, bool repair, tn_audit_fn *each, void *context,
                    uint32_t *ret_unchecked)
{
    struct tni_audit_report report = {.each = each, .context = context};
    int status = check(d);
    if (status == 0)
        status = tni_audit(&d->segment, d, repair, &report);
    if (status >= 0 && ret_unchecked != NULL)
        *ret_unchecked = report.unchecked;
    return status;
}
