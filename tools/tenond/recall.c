/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recall: take over the descriptors that a vault has and we have not.
 *
 * Noun: recall (we ask the vault for all its entries, take those that we can keep, and tell
 * it which of the others to drop).
 * I3  (mirror.c) The first recall comes before a process can connect to this tenond. If the
 *     vault is too slow for that, the rest comes through the loop. The vault drops an entry
 *     only if the entry's block says that it is over, or if its domain has ended. An entry
 *     that we cannot keep for another reason stays in the vault, and we recall it when we
 *     manage another domain, and now and then. While the vault has more than we have, no
 *     other vault takes its place, and we do not end.
 * Death: our successor recalls again.
 */
#include <stdlib.h>
#include <string.h>

#include "tenond.h"

#define MS_NS      UINT64_C(1000000)
#define SEND_NS    (250 * MS_NS)
#define FIRST_NS   (1000 * MS_NS) /* how long we wait for the first entry */
#define RECEIVE_NS (1000 * MS_NS) /* and for each further entry */
#define ASK_NS     (1000 * MS_NS) /* at least, between two recalls */
#define UNSEEN_NS                                                                              \
    (3000 * MS_NS) /* within this, members that we cannot see tell us of a domain */
enum { BATCH = 256, RECALLS_MOST = 8, ASK_PAUSE = 20 };

/* ---- one entry --------------------------------------------------------------------------- */

static struct tenond_domain *find_domain(const struct tenond *t, const uint8_t id[16])
{
    struct tenond_domain *d = t->domains;
    while (d != NULL && memcmp(d->id, id, sizeof d->id) != 0)
        d = d->next;
    return d;
}

/*
 * Consume the descriptors. Whether an entry of a living domain is over, only its block can say.
 */
static void take_entry(struct tenond *t, const struct vault_packet *p, const int *fds,
                       uint32_t fd_count)
{
    struct tenond_domain *d = find_domain(t, p->domain);
    struct tenond_deposit *deposit;
    const struct tenond_offer offer = {{p->block}, p->generation, fds, fd_count};
    int status = d != NULL ? tenond_deposit_keep(t, d, &offer, &deposit) : TN_ERR_NOT_FOUND;
    if (status == 0) {
        tenond_mirror_note(t, deposit, true);
        return;
    }
    bundle_close_fds(fds, fd_count);
    if (d == NULL)
        tenond_mirror_reject(t, p, VAULT_PUT);
    else if (status == TN_ERR_STALE || status == TN_ERR_INVALID)
        tenond_mirror_reject(t, p, VAULT_DROP);
    else
        t->mirror.more_count++;
}

/* @return 1: more entries follow; 0: that was the end; an error */
static int take_next(struct tenond *t)
{
    struct vault_packet p = {0};
    uint32_t fd_count = 0;
    int fds[TNI_PIECES];
    const struct tni_os_buffer buffer = {&p, sizeof p, fds, TNI_COUNT(fds)};
    int got = tni_os_receive(t->mirror.fd, &buffer, tni_os_now_ns() + RECEIVE_NS, &fd_count);
    if (got == TN_ERR_SYSTEM && p.magic == VAULT_MAGIC) {
        t->mirror.more_count++; /* the packet came, but its descriptors found no room */
        return 1;
    }
    if (got < 0)
        return got;
    bool is_ours = got == (int)sizeof p && p.magic == VAULT_MAGIC;
    if (is_ours && p.verb == VAULT_PUT && fd_count > 0) {
        take_entry(t, &p, fds, fd_count);
        return 1;
    }
    bundle_close_fds(fds, fd_count);
    if (is_ours && p.verb == VAULT_END)
        return 0;
    if (got == 0)
        return tni_fail(TN_ERR_CLOSED,
                        "the vault closed the connection before it had sent all");
    return tni_fail(TN_ERR_INVALID, "the vault sent a malformed packet of %d bytes", got);
}

/* A vault that does not read will not answer soon: that is a failure, not a time limit. */
static int send_packet(const struct tenond *t, const struct vault_packet *p)
{
    const struct tni_os_message message = {.bytes = p, .size_bytes = sizeof *p};
    int status = tni_os_socket_send(t->mirror.fd, &message, tni_os_now_ns() + SEND_NS);
    return status == TN_ERR_TIMED_OUT
               ? tni_fail(TN_ERR_SYSTEM, "the vault does not read what tenond sends")
               : status;
}

/* ---- entries that we do not keep --------------------------------------------------------- */

struct living {
    uint8_t (*ids)[16];
    uint32_t count;
    bool is_known; /* false: any domain may live */
};

/*
 * In other namespaces a domain may have members that we cannot see. For a moment after our
 * start we therefore take every domain for living.
 */
static void find_living(const struct tenond *t, struct living *ret_living)
{
    const struct tenond_rejected *rejected = &t->mirror.rejected;
    uint32_t i = 0;
    while (i < rejected->count && rejected->at[i].verb != VAULT_PUT)
        i++;
    *ret_living = (struct living){0};
    if (i == rejected->count || tni_os_now_ns() < t->mirror.unseen_ns)
        return;
    ret_living->is_known = tni_manager_living(&ret_living->ids, &ret_living->count) == 0;
}

static bool is_over(const struct tenond *t, const struct living *living,
                    const struct vault_packet *p)
{
    if (p->verb == VAULT_DROP)
        return true;
    if (!living->is_known || find_domain(t, p->domain) != NULL)
        return false;
    uint32_t i = 0;
    while (i < living->count && memcmp(living->ids[i], p->domain, sizeof p->domain) != 0)
        i++;
    return i == living->count;
}

static int tell_rejected(struct tenond *t)
{
    const struct tenond_rejected *rejected = &t->mirror.rejected;
    struct living living;
    int status = 0;
    find_living(t, &living);
    for (uint32_t i = 0; status == 0 && i < rejected->count; i++) {
        struct vault_packet p = rejected->at[i];
        if (!is_over(t, &living, &p)) {
            t->mirror.more_count++;
            continue;
        }
        p.verb = VAULT_DROP;
        status = send_packet(t, &p);
    }
    free(living.ids);
    return status;
}

/* ---- all entries ------------------------------------------------------------------------- */

/*
 * The vault sends all entries before it reads again, and we send nothing meanwhile, so neither
 * process waits for the other. @return 0; TN_ERR_TIMED_OUT: the rest has not come yet
 */
static int take_rest(struct tenond *t)
{
    int status;
    while ((status = take_next(t)) > 0)
        TNI_KILL_POINT("tenond_recalling");
    return status == 0 ? tell_rejected(t) : status;
}

/*
 * @return 0; TN_ERR_TIMED_OUT: the vault will answer, or end; TN_ERR_NOT_FOUND: no vault runs;
 *         another error
 */
static int ask_for_all(struct tenond *t, uint64_t patience_ns)
{
    const struct vault_packet ask = {.magic = VAULT_MAGIC, .verb = VAULT_LIST};
    bool is_new = t->mirror.fd < 0;
    int fd = -1;
    int status = is_new ? tni_os_connect(TNI_VAULT_SOCKET, &fd) : 0;
    if (status != 0)
        return status;
    t->mirror.is_recalling = t->mirror.is_unheard = true;
    t->mirror.has_more = t->mirror.serves_successor = true;
    t->mirror.more_count = 0;
    t->mirror.asked_ns = tni_os_now_ns();
    t->mirror.ask_ns = TNI_FOREVER;
    tenond_mirror_forget(t); /* what the vault no longer has, it is given again */
    if (is_new)
        status = tenond_mirror_connect(t, fd);
    if (status == 0)
        status = send_packet(t, &ask);
    if (status != 0)
        return status;
    status = tni_os_poll(&t->mirror.fd, 1, tni_os_now_ns() + patience_ns);
    return status < 0 ? status : take_rest(t);
}

static void finish(struct tenond *t)
{
    uint64_t now_ns = tni_os_now_ns();
    uint64_t pause_ns = tni_pause_ns(now_ns - t->mirror.asked_ns, ASK_PAUSE, ASK_NS);
    tenond_mirror_end_recall(t);
    t->mirror.is_unheard = false;
    t->mirror.has_more = t->mirror.serves_successor = t->mirror.more_count > 0;
    if (t->mirror.ask_ns != 0) /* 0: a domain was adopted meanwhile */
        t->mirror.ask_ns = now_ns + pause_ns;
    tni_log(TNI_LOG_INFO,
            "took descriptors over from the vault: %u in all; the vault keeps those of %u "
            "storages that tenond cannot keep now",
            t->deposit_count, t->mirror.more_count);
}

/* I3. If no vault runs, there is nothing to take over, and that is no failure. */
static void break_off(struct tenond *t, int status)
{
    if (t->mirror.fd >= 0)
        tenond_mirror_give_up(t, 0);
    t->mirror.has_more = t->mirror.serves_successor = status != TN_ERR_NOT_FOUND;
    t->mirror.is_unheard = t->mirror.has_more;
    t->mirror.ask_ns = tni_os_now_ns() + ASK_NS;
    if (t->mirror.has_more)
        tni_log(TNI_LOG_WARNING, "descriptors cannot be taken over from the vault: %s",
                tn_error_detail());
}

/* A vault that closed the connection because we were too slow for it is asked once more. */
static void conclude(struct tenond *t, int status)
{
    for (int n = 0; status == TN_ERR_CLOSED && n < RECALLS_MOST; n++) {
        tenond_mirror_give_up(t, 0);
        status = ask_for_all(t, FIRST_NS);
    }
    if (status == TN_ERR_TIMED_OUT && t->mirror.fd >= 0)
        return; /* the answer comes through the loop */
    if (status == 0)
        finish(t);
    else
        break_off(t, status);
}

static void ask_again(struct tenond *t, uint64_t now_ns, uint64_t patience_ns)
{
    if (t->mirror.has_more && !t->mirror.is_recalling && now_ns >= t->mirror.ask_ns)
        conclude(t, ask_for_all(t, patience_ns));
}

void tenond_recall(struct tenond *t)
{
    t->mirror.unseen_ns = tni_os_now_ns() + UNSEEN_NS;
    conclude(t, ask_for_all(t, FIRST_NS));
}

void tenond_recall_anew(struct tenond *t)
{
    if (t->mirror.fd >= 0)
        tenond_mirror_give_up(t, 0);
    tenond_recall(t);
}

void tenond_recall_catch_up(struct tenond *t) { ask_again(t, tni_os_now_ns(), FIRST_NS); }

bool tenond_recall_is_unheard(const struct tenond *t) { return t->mirror.is_unheard; }

/* ---- in the loop ------------------------------------------------------------------------- */

/* The vault sends only answers. Otherwise a readable connection is its end. */
void tenond_recall_ready(struct tenond *t)
{
    /* The tag may be of a vault that was given up since the loop returned it. */
    if (t->mirror.fd < 0 || tni_os_poll(&t->mirror.fd, 1, 0) != 0)
        return;
    if (t->mirror.is_recalling) {
        conclude(t, take_rest(t));
        return;
    }
    tni_log(TNI_LOG_WARNING, "the vault has ended, which had %u descriptors of %u",
            t->mirror.count, t->deposit_count);
    tenond_mirror_give_up(t, t->mirror.start_ns);
}

/* At most BATCH descriptors, or one deposit more, so that the loop goes on. */
static void put_missing(struct tenond *t)
{
    uint32_t left = BATCH;
    for (struct tenond_domain *d = t->domains; d != NULL; d = d->next)
        for (uint32_t i = 0; i < d->deposits.count && left > 0; i++) {
            if (d->deposits.at[i].is_mirrored)
                continue;
            tenond_mirror_put(t, d, &d->deposits.at[i]);
            if (!d->deposits.at[i].is_mirrored)
                return;
            left -= TNI_MIN(left, d->deposits.at[i].bundle.count);
        }
}

/*
 * mirror.c, I4: when nothing is left to keep, a vault that was given up ends, because its
 * socket loses its name.
 */
static void end_given_up(struct tenond *t)
{
    if (!t->mirror.is_given_up || t->mirror.serves_successor || t->deposit_count > 0)
        return;
    t->mirror.is_given_up = false;
    tni_os_file_remove(TNI_VAULT_SOCKET);
}

uint64_t tenond_recall_due(struct tenond *t, uint64_t now_ns)
{
    end_given_up(t);
    ask_again(t, now_ns, 0);
    uint64_t ask_ns = t->mirror.has_more ? t->mirror.ask_ns : TNI_FOREVER;
    if (t->mirror.is_recalling)
        return TNI_FOREVER;
    if (t->mirror.count == t->deposit_count || (t->mirror.fd < 0 && t->mirror.has_more))
        return ask_ns;
    if (t->mirror.fd >= 0 || now_ns >= t->mirror.start_ns)
        put_missing(t);
    if (t->mirror.count == t->deposit_count)
        return ask_ns;
    return t->mirror.fd >= 0 ? now_ns : TNI_MIN(ask_ns, t->mirror.start_ns);
}
