/* SPDX-License-Identifier: Apache-2.0 */
/* Tickets that travel in messages: exported, revoked, imported; and why one may be stale. */
#include "share/share.h"
#include "soak.h"

static void choose_ticket(tn_handle_options *options, uint64_t *ret_lifetime_ns)
{
    uint32_t dice = soak_below(3);
    options->uses = 1 + soak_below(3);
    *ret_lifetime_ns = 0;
    if (dice == 0)
        *ret_lifetime_ns = options->lifetime_ns = (1 + soak_below(80)) * SOAK_MS_NS;
    else if (dice == 1)
        options->lifetime_ns = TN_NO_EXPIRY;
}

static void revoke_now_and_then(struct soak_entry *entry, uint64_t ticket)
{
    if (!soak_chance(15))
        return;
    atomic_store(&entry->revoking, 1);
    soak_do(SOAK_REVOKING);
    int status = tni_ticket_revoke(me.domain, ticket);
    if (status != 0 && status != TN_ERR_STALE)
        soak_fail_status(SOAK_ON_TICKETS, "tni_ticket_revoke", status);
    atomic_store(&entry->revoked, 1);
    soak_count(SOAK_N_REVOKED, 1);
}

void soak_export(struct soak_parcel *p, struct soak_entry *entry)
{
    tn_handle_options options = {.struct_size = sizeof options};
    uint64_t lifetime_ns = 0;
    tn_tensor *tensor = NULL;
    uint64_t ticket;
    size_t used = 0;
    if (!soak_make_tensor(&p->wire.handle_part, &tensor))
        return;
    choose_ticket(&options, &lifetime_ns);
    entry->uses = options.uses;
    entry->earliest_end_ns = lifetime_ns == 0 ? 0 : soak_now_ns() + lifetime_ns;
    atomic_store(&entry->ticket_state, SOAK_T_EXPORTING);
    soak_do(SOAK_EXPORTING);
    int status = tn_handle_export(tensor, &options, p->handle, sizeof p->handle, &used);
    if (status != 0 && status != TN_ERR_FULL)
        soak_fail_status(SOAK_ON_TICKETS, "tn_handle_export", status);
    if (status == 0) {
        if (tni_handle_ticket(p->handle, used, &ticket) != 0)
            soak_fail(SOAK_ON_TICKETS, "a handle without a ticket");
        entry->latest_end_ns = lifetime_ns == 0 ? 0 : soak_now_ns() + lifetime_ns;
        atomic_store(&entry->ticket, ticket);
        p->wire.handle_bytes = (uint32_t)used;
        soak_count(SOAK_N_EXPORTED, 1);
    }
    atomic_store(&entry->ticket_state, status == 0 ? SOAK_T_EXPORTED : SOAK_T_REFUSED);
    soak_drop_tensors(&tensor, 1);
    if (status == 0)
        revoke_now_and_then(entry, ticket);
}

/* Why a handle may be stale, by what the ledger had when the call returned. */
static bool may_be_stale(const struct soak_entry *entry)
{
    return atomic_load(&entry->tries) > entry->uses || atomic_load(&entry->revoking) != 0 ||
           (entry->earliest_end_ns != 0 && soak_now_ns() >= entry->earliest_end_ns);
}

static void judge_import(const struct soak_entry *entry, const struct soak_wire *wire,
                         int status)
{
    if (status == TN_ERR_STALE && may_be_stale(entry)) {
        soak_count(SOAK_N_STALE, 1);
        return;
    }
    if ((status == TN_ERR_NOT_FOUND || status == TN_ERR_MANAGER) &&
        wire->handle_part.strategy == TN_STRATEGY_FILE_DESCRIPTOR)
        return;
    soak_fail(SOAK_ON_TICKETS,
              "import of message %u's handle: %s: %s; uses %u, tries %u, strategy %u", wire->id,
              tn_status_name(status), tn_error_detail(), entry->uses,
              atomic_load(&entry->tries), wire->handle_part.strategy);
}

void soak_import(const tn_message *message, const struct soak_wire *wire)
{
    struct soak_entry *entry = &soak->entries[wire->id];
    tn_tensor *tensor = NULL;
    bool was_revoked = atomic_load(&entry->revoked) != 0;
    bool was_over = entry->latest_end_ns != 0 && soak_now_ns() > entry->latest_end_ns;
    atomic_fetch_add(&entry->tries, 1);
    soak_do(SOAK_IMPORTING);
    int status = tn_handle_import(me.domain, (const uint8_t *)message->bytes + sizeof *wire,
                                  wire->handle_bytes, &tensor);
    soak_checked(SOAK_ON_TICKETS);
    if (status != 0) {
        judge_import(entry, wire, status);
        return;
    }
    if (was_revoked || was_over || atomic_fetch_add(&entry->imports, 1) >= entry->uses)
        soak_fail(SOAK_ON_TICKETS, "message %u's handle was imported %s", wire->id,
                  was_revoked ? "after it was revoked"
                  : was_over  ? "after it expired"
                              : "more often than it had uses");
    soak_count(SOAK_N_IMPORTED, 1);
    soak_check_tensor(tensor, &wire->handle_part, "an imported tensor");
    soak_drop_tensors(&tensor, 1);
}
