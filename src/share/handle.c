/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handle: writes a tensor and its ticket as bytes, and reads them. The invariants are in
 * ticket.c.
 *
 * Wire form, version 1, little-endian:
 *
 *     0   8  magic, "TENONHDL"
 *     8   2  version, 1
 *    10   2  head bytes: the offset of the view; 48 in version 1
 *    12   4  feature bits that a reader must know; 0 in version 1
 *    16  16  id of the domain
 *    32   8  generation of the ticket, 1 .. 2^36 - 1
 *    40   4  index of the ticket
 *    44   2  view bytes
 *    46   1  strategy of the storage, TN_STRATEGY_*
 *    47   1  0
 *    48   v  the tensor: struct tni_view of layout.h
 *  48+v   8  tni_hash() of all bytes before
 *
 * Every version keeps the places of magic, version and the hash in the last 8 bytes. A reader
 * skips the bytes between its own head and the stated head bytes.
 */
#include <stdlib.h>
#include <string.h>

#include "share/ticket.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "handles are copied to and from memory without a conversion"
#endif

static const char magic[8] = {'T', 'E', 'N', 'O', 'N', 'H', 'D', 'L'};
enum { HANDLE_VERSION = 1 };

struct handle_head {
    char magic[8];
    uint16_t version;
    uint16_t head_bytes;
    uint32_t must_understand;
    uint8_t domain[16];
    uint64_t generation;
    uint32_t index;
    uint16_t view_bytes;
    uint8_t strategy;
    uint8_t reserved;
};
_Static_assert(sizeof(struct handle_head) == 48, "the wire form has no padding");
_Static_assert(sizeof(struct handle_head) + TNI_VIEW_MAX_BYTES + TN_ATTRIBUTES_MAX_BYTES +
                       sizeof(uint64_t) <=
                   TN_HANDLE_MAX_BYTES,
               "TN_HANDLE_MAX_BYTES is enough for every tensor");

/* ---- writing ----------------------------------------------------------------------------- */

static int check_options(const tn_handle_options *given, tn_handle_options *ret_options)
{
    tn_handle_options options = {.uses = 1};
    int status = tni_take_options("tn_handle_options", given, sizeof options, &options);
    if (status != 0)
        return status;
    if (options.uses == 0)
        options.uses = 1;
    if (options.uses > TNI_TICKET_MAX_USES)
        return tni_fail(TN_ERR_INVALID, "a handle cannot have %u uses: at most %u are allowed",
                        options.uses, TNI_TICKET_MAX_USES);
    if ((options.flags & ~(uint32_t)TN_HANDLE_WITH_ISSUER) != 0)
        return tni_fail(
            TN_ERR_INVALID,
            "tn_handle_options has the flags 0x%x: only TN_HANDLE_WITH_ISSUER is known",
            options.flags);
    if (options.flags != 0 && options.lifetime_ns != 0)
        return tni_fail(TN_ERR_INVALID,
                        "a handle with TN_HANDLE_WITH_ISSUER cannot have a lifetime too, "
                        "which is %llu ns",
                        (unsigned long long)options.lifetime_ns);
    *ret_options = options;
    return 0;
}

/* When the ticket is to expire. A time beyond the range of the clock means never. */
static uint64_t end_of(const tn_handle_options *options)
{
    uint64_t end_ns, lifetime_ns = options->lifetime_ns;
    if ((options->flags & TN_HANDLE_WITH_ISSUER) != 0)
        return TNI_TICKET_BOUND | TNI_TICKET_WITH_ISSUER;
    if (lifetime_ns == 0)
        return TNI_TICKET_BOUND;
    if (lifetime_ns == TN_NO_EXPIRY ||
        !tni_add_size(tni_os_shared_ns(), lifetime_ns, &end_ns) || end_ns >= TNI_TICKET_BOUND)
        return TNI_FOREVER;
    return end_ns;
}

static size_t write_handle(const tn_tensor *tensor, struct tni_ticket_name name,
                           const void *view, size_t view_bytes, uint8_t *ret_bytes)
{
    struct handle_head head = {.version = HANDLE_VERSION,
                               .head_bytes = sizeof head,
                               .generation = name.generation,
                               .index = name.index,
                               .view_bytes = (uint16_t)view_bytes,
                               .strategy = (uint8_t)tni_tensor_strategy(tensor)};
    memcpy(head.magic, magic, sizeof magic);
    memcpy(head.domain, tensor->storage->domain->segment.id, sizeof head.domain);
    memcpy(ret_bytes, &head, sizeof head);
    memcpy(ret_bytes + sizeof head, view, view_bytes);
    uint64_t hash = tni_hash(ret_bytes, sizeof head + view_bytes);
    memcpy(ret_bytes + sizeof head + view_bytes, &hash, sizeof hash);
    return sizeof head + view_bytes + sizeof hash;
}

static int make_ticket(struct tn_domain *d, tni_block block, const tn_handle_options *options,
                       struct tni_ticket_name *ret_name)
{
    struct tni_ticket_terms terms = {.uses = options->uses, .expires_ns = end_of(options)};
    struct tni_thread *thread = tni_thread_enter(d);
    int status = tni_ticket_make(d, thread, block, &terms, ret_name);
    tni_thread_leave(thread);
    return status;
}

/*
 * Make a ticket; retry after dead processes were reclaimed, as long as that may free tickets.
 */
static int insist_on_ticket(struct tn_domain *d, tni_block block,
                            const tn_handle_options *options, struct tni_ticket_name *ret_name)
{
    int status = make_ticket(d, block, options, ret_name);
    for (uint32_t tries = 0; status == TN_ERR_FULL && tni_process_relieve(d, &tries);)
        status = make_ticket(d, block, options, ret_name);
    return status;
}

/* The buffer for a handle. */
struct room {
    void *bytes;
    size_t size_bytes;
};

/* pre: the tensor is shared */
static int export_with(tn_tensor *tensor, const struct tni_attributes *held,
                       const tn_handle_options *options, struct room room, size_t *ret_used)
{
    _Alignas(8) uint8_t small[TNI_VIEW_MAX_BYTES];
    size_t view_bytes = tni_tensor_view_bytes(tensor, held);
    size_t need = sizeof(struct handle_head) + view_bytes + sizeof(uint64_t);
    if (need > room.size_bytes)
        return tni_fail(TN_ERR_INVALID, "the handle takes %zu bytes, but the buffer has %zu",
                        need, room.size_bytes);
    void *view = view_bytes <= sizeof small ? small : malloc(view_bytes);
    if (view == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "no private memory for a handle");
    tni_tensor_encode(tensor, held, view_bytes, view);
    struct tni_ticket_name name = {0};
    int status =
        insist_on_ticket(tensor->storage->domain, tensor->storage->block, options, &name);
    if (status == 0)
        *ret_used = write_handle(tensor, name, view, view_bytes, room.bytes);
    if (view != small)
        free(view);
    return status;
}

int tn_handle_export(tn_tensor *tensor, const tn_handle_options *given, void *bytes,
                     size_t size_bytes, size_t *ret_used)
{
    tn_handle_options options = {0};
    if (tensor == NULL || bytes == NULL || ret_used == NULL)
        return tni_fail_null(tensor == NULL  ? "the tensor"
                             : bytes == NULL ? "bytes"
                                             : "ret_used");
    struct tn_domain *d = tensor->storage->domain;
    int status = tni_tensor_check_shared(d, tensor);
    if (status != 0 || (status = tni_process_check(d)) != 0 ||
        (status = check_options(given, &options)) != 0)
        return status;
    struct tni_attributes *held = tni_attributes_hold(tensor);
    status = export_with(tensor, held, &options, (struct room){bytes, size_bytes}, ret_used);
    tni_attributes_drop(held);
    return status;
}

/* ---- reading ----------------------------------------------------------------------------- */

/* A private copy of a handle: another process may change the original meanwhile. */
struct handle {
    struct handle_head head;
    /* with room for a decoder that reads a whole view near the end */
    uint8_t bytes[TN_HANDLE_MAX_BYTES + TNI_VIEW_MAX_BYTES];
};

/* Check what is the same in every version. */
static int check_frame(const struct handle *h, size_t size_bytes)
{
    uint64_t hash;
    size_t hashed = size_bytes - sizeof hash;
    if (memcmp(h->bytes, magic, sizeof magic) != 0)
        return tni_fail(TN_ERR_INVALID,
                        "these %zu bytes are not a handle: they do not begin with its magic",
                        size_bytes);
    memcpy(&hash, h->bytes + hashed, sizeof hash);
    if (hash != tni_hash(h->bytes, hashed))
        return tni_fail(TN_ERR_INVALID, "the handle of %zu bytes is truncated or altered",
                        size_bytes);
    if (h->head.version != HANDLE_VERSION)
        return tni_fail(TN_ERR_VERSION,
                        "the handle has version %u of the wire form instead of %d",
                        h->head.version, HANDLE_VERSION);
    return 0;
}

static int check_head(const struct handle_head *head, size_t size_bytes)
{
    if (head->must_understand != 0)
        return tni_fail(TN_ERR_VERSION,
                        "the handle needs features that this version does not know: 0x%x",
                        head->must_understand);
    if (tn_strategy_name(head->strategy) == NULL)
        return tni_fail(TN_ERR_VERSION,
                        "the handle has the strategy %u, which this version does not know",
                        head->strategy);
    if (head->reserved != 0 || head->head_bytes < sizeof *head ||
        head->view_bytes > TNI_VIEW_MAX_BYTES + TN_ATTRIBUTES_MAX_BYTES ||
        (size_t)head->head_bytes + head->view_bytes + sizeof(uint64_t) != size_bytes)
        return tni_fail(
            TN_ERR_INVALID,
            "the handle has %zu bytes, but states a head of %u, a view of %u, and %u as its "
            "field reserved",
            size_bytes, head->head_bytes, head->view_bytes, head->reserved);
    if (head->generation == 0 || head->generation >= TNI_TICKET_GENERATIONS ||
        head->index >= TNI_MAX_TICKETS)
        return tni_fail(TN_ERR_INVALID,
                        "the handle names ticket %u (generation %" PRIu64
                        "), which no domain has",
                        head->index, head->generation);
    return 0;
}

/* Read a handle. Any bytes give either a valid handle or an error. */
static int parse(const void *bytes, size_t size_bytes, struct handle *ret_handle)
{
    if (bytes == NULL)
        return tni_fail_null("bytes");
    if (size_bytes < sizeof(struct handle_head) + sizeof(uint64_t) ||
        size_bytes > TN_HANDLE_MAX_BYTES)
        return tni_fail(
            TN_ERR_INVALID,
            "a handle cannot have %zu bytes: the file or message that brought it is empty, or "
            "is no handle",
            size_bytes);
    memcpy(ret_handle->bytes, bytes, size_bytes);
    memcpy(&ret_handle->head, ret_handle->bytes, sizeof ret_handle->head);
    int status = check_frame(ret_handle, size_bytes);
    return status != 0 ? status : check_head(&ret_handle->head, size_bytes);
}

static int check_domain(const struct tn_domain *d, const struct handle_head *head)
{
    if (memcmp(head->domain, d->segment.id, sizeof head->domain) != 0)
        return tni_fail(TN_ERR_DENIED, "the handle was made in another domain than '%s'",
                        d->segment.name);
    if (head->index >= d->segment.geometry.tickets)
        return tni_fail(TN_ERR_INVALID, "the handle names ticket %u, but the domain has %u",
                        head->index, d->segment.geometry.tickets);
    return 0;
}

/*
 * The tensor is made before the use is taken, so that no use is lost if private memory runs
 * out. Until then the tensor has no reference to its block. The ticket is checked first: if it
 * is over, the block may be reused, and an error about the view would hide the cause.
 */
static int use(struct tn_domain *d, const struct handle_head *head, const uint8_t *view,
               tn_tensor **ret_tensor)
{
    struct tni_ticket_name name = {.index = head->index, .generation = head->generation};
    size_t view_bytes = head->view_bytes;
    struct tni_view named = {0};
    tn_tensor *tensor = NULL;
    int used = tni_ticket_check(d, name);
    if (used == 0)
        used = tni_tensor_decode(d, view, view_bytes, &tensor);
    if (used >= 0 &&
        ((size_t)used != view_bytes || tni_tensor_strategy(tensor) != head->strategy)) {
        used = tni_fail(
            TN_ERR_INVALID,
            "the handle states a view of %zu bytes and the strategy %s, but it has %d bytes "
            "and the strategy %s",
            view_bytes, tn_strategy_name(head->strategy), used,
            tn_strategy_name(tni_tensor_strategy(tensor)));
        tni_tensor_forget(NULL, tensor);
    }
    if (used < 0) {
        /* If the ticket ended meanwhile, its storage may have, too: then that is the cause. */
        int status = tni_ticket_check(d, name);
        return status != 0 ? status : used == TN_ERR_CORRUPT ? TN_ERR_INVALID : used;
    }

    memcpy(&named, view, sizeof named);
    struct tni_thread *thread = tni_thread_enter(d);
    int status = tni_ticket_use(d, thread, name, (tni_block){named.block}, named.generation);
    tni_thread_leave(thread);
    if (status == 0)
        *ret_tensor = tensor;
    else
        tni_tensor_forget(NULL, tensor);
    return status;
}

int tn_handle_import(tn_domain *domain, const void *bytes, size_t size_bytes,
                     tn_tensor **ret_tensor)
{
    struct handle h;
    if (domain == NULL || ret_tensor == NULL)
        return tni_fail_null(domain == NULL ? "the domain" : "ret_tensor");
    int status = tni_process_check(domain);
    if (status != 0 || (status = parse(bytes, size_bytes, &h)) != 0 ||
        (status = check_domain(domain, &h.head)) != 0)
        return status;
    return use(domain, &h.head, h.bytes + h.head.head_bytes, ret_tensor);
}

int tni_handle_ticket(const void *bytes, size_t size_bytes, uint64_t *ret_ticket)
{
    struct handle h;
    int status = parse(bytes, size_bytes, &h);
    if (status == 0)
        *ret_ticket = tni_ticket_id(h.head.generation, h.head.index);
    return status;
}

int tn_handle_revoke(tn_domain *domain, const void *bytes, size_t size_bytes)
{
    struct handle h;
    if (domain == NULL)
        return tni_fail(TN_ERR_INVALID, "the domain is NULL");
    int status = tni_process_check(domain);
    if (status != 0 || (status = parse(bytes, size_bytes, &h)) != 0 ||
        (status = check_domain(domain, &h.head)) != 0)
        return status;
    return tni_ticket_revoke(domain, tni_ticket_id(h.head.generation, h.head.index));
}
