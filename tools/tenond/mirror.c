/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mirror: our side of the vault, which has each deposit once more.
 *
 * I1  A deposit is sent to the vault before its depositor is answered. No answer is waited for:
 *     what was sent, the vault takes, even if we are killed meanwhile (vault.c, I1).
 * I2  A vault that ended, or does not read for SEND_NS, is given up. Another one is started a
 *     moment later and given every deposit; until then those we have must do.
 * I3  What a vault had when we came is taken over before anybody can connect to us. A vault
 *     that is too slow for that keeps what it has: nobody takes its place before it has sent
 *     all, and until then we tell it nothing.
 * I4  A vault that was given up may live, and has what we have dropped since: it ends when the
 *     name of its socket goes, to the next vault or, if nothing is left to keep, at once.
 * Death: the vault has every deposit that was acknowledged, and perhaps some that are over;
 * our successor looks at each.
 */
#include <stdlib.h>
#include <string.h>

#include "tenond.h"

#define MS_NS      UINT64_C(1000000)
#define SEND_NS    (250 * MS_NS)  /* a depositor waits for its answer for a second */
#define FIRST_NS   (1000 * MS_NS) /* for the first of what we ask for, before we go on */
#define RECEIVE_NS (1000 * MS_NS) /* for the next */
#define RESTART_NS (1000 * MS_NS) /* between two starts */
#define TROUBLE_NS (10000 * MS_NS)
enum { BATCH = 256, RECALLS_MOST = 8 };

static struct vault_packet packet_of(const struct tenond_domain *d, uint32_t verb,
                                     const struct tenond_deposit *deposit)
{
    struct vault_packet p = {.magic = VAULT_MAGIC,
                             .verb = verb,
                             .block = tni_block_make(TNI_BACKING_CLASS, deposit->index).id,
                             .generation = deposit->generation};
    memcpy(p.domain, d->id, sizeof p.domain);
    return p;
}

static void note(struct tenond *t, struct tenond_deposit *deposit, bool is_mirrored)
{
    t->mirror.count += (uint32_t)is_mirrored - (uint32_t)deposit->is_mirrored;
    deposit->is_mirrored = is_mirrored;
}

/* What cannot be noted stays in the vault until it ends, or its block is put anew. */
static void reject(struct tenond *t, const struct vault_packet *p)
{
    struct tenond_rejected *rejected = &t->mirror.rejected;
    if (rejected->count == rejected->room) {
        uint32_t room = 2 * rejected->room + 64;
        void *grown = reallocarray(rejected->at, room, sizeof *rejected->at);
        if (grown == NULL)
            return;
        rejected->at = grown;
        rejected->room = room;
    }
    rejected->at[rejected->count] = *p;
    rejected->at[rejected->count++].verb = VAULT_DROP;
}

static void end_recall(struct tenond *t)
{
    free(t->mirror.rejected.at);
    t->mirror.rejected = (struct tenond_rejected){0};
    t->mirror.is_recalling = false;
}

/* I2 */
static void give_up(struct tenond *t, uint64_t start_ns)
{
    tni_os_loop_remove(t->loop, t->mirror.fd);
    tni_os_close(t->mirror.fd);
    t->mirror.fd = -1;
    t->mirror.start_ns = start_ns;
    t->mirror.is_given_up = true;
    end_recall(t);
    for (struct tenond_domain *d = t->domains; d != NULL; d = d->next)
        for (uint32_t i = 0; i < d->deposits.count; i++)
            note(t, &d->deposits.at[i], false);
}

/* ---- telling it -------------------------------------------------------------------------- */

/*
 * It inherits the socket that we are connected to already: what is sent before it runs waits in
 * there, and if it never runs the connection ends.
 */
static int start(struct tenond *t)
{
    static const char *const argv[] = {"tenond", "--vault", NULL};
    int listen_fd = -1, fd = -1;
    int status = tni_os_listen(TNI_VAULT_SOCKET, &listen_fd);
    if (status == 0)
        status = tni_os_connect(TNI_VAULT_SOCKET, &fd);
    TNI_KILL_POINT("tenond_vault_named");
    if (status == 0)
        status = tni_os_start_detached_on("/proc/self/exe", argv, listen_fd);
    tni_os_close(listen_fd);
    TNI_KILL_POINT("tenond_vault_started");
    if (status == 0)
        status = tni_os_loop_add(t->loop, fd, tenond_tag(TENOND_VAULT, 0, 0));
    if (status != 0) {
        tni_os_close(fd);
        t->mirror.start_ns = tni_os_now_ns() + TROUBLE_NS;
        tni_log(TNI_LOG_WARNING, "descriptors are kept here only: %s", tn_error_detail());
        return status;
    }
    t->mirror.fd = fd;
    t->mirror.start_ns = tni_os_now_ns() + RESTART_NS;
    t->mirror.is_given_up = false;
    return 0;
}

/* @return whether it was sent */
static bool tell(struct tenond *t, const struct vault_packet *p, int fd)
{
    if (t->mirror.fd < 0 || t->mirror.is_recalling)
        return false;
    int status = tni_os_socket_send(t->mirror.fd, p, sizeof *p, fd, tni_os_now_ns() + SEND_NS);
    if (status == 0)
        return true;
    tni_log(TNI_LOG_WARNING, "descriptors are kept here only for now: %s", tn_error_detail());
    give_up(t, status == TN_ERR_CLOSED ? t->mirror.start_ns : tni_os_now_ns() + RESTART_NS);
    return false;
}

void tenond_mirror_put(struct tenond *t, const struct tenond_domain *d,
                       struct tenond_deposit *deposit)
{
    if (t->mirror.fd < 0 && (tni_os_now_ns() < t->mirror.start_ns || start(t) != 0))
        return;
    const struct vault_packet p = packet_of(d, VAULT_PUT, deposit);
    if (tell(t, &p, deposit->fd))
        note(t, deposit, true);
}

void tenond_mirror_drop(struct tenond *t, const struct tenond_domain *d,
                        struct tenond_deposit *deposit)
{
    const struct vault_packet p = packet_of(d, VAULT_DROP, deposit);
    if (!deposit->is_mirrored)
        return;
    if (t->mirror.is_recalling)
        reject(t, &p);
    if (t->mirror.is_recalling || tell(t, &p, -1))
        note(t, deposit, false);
}

void tenond_mirror_leave(struct tenond *t, struct tenond_deposit *deposit)
{
    t->mirror.has_heirs |= deposit->is_mirrored;
    note(t, deposit, false);
}

/* ---- in the loop ------------------------------------------------------------------------- */

static void go_on_recalling(struct tenond *t);

/* It says nothing unasked: else this is its end. */
void tenond_mirror_ready(struct tenond *t)
{
    /* What the loop saw may have been of the vault before, which was given up meanwhile. */
    if (t->mirror.fd < 0 || tni_os_poll(&t->mirror.fd, 1, 0) != 0)
        return;
    if (t->mirror.is_recalling) {
        go_on_recalling(t);
        return;
    }
    tni_log(TNI_LOG_WARNING, "the vault has ended, with %u descriptors of %u", t->mirror.count,
            t->deposit_count);
    give_up(t, t->mirror.start_ns);
}

/* Some, so that the loop goes on between. */
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
            left--;
        }
}

/* I4 */
static void end_given_up(struct tenond *t)
{
    if (!t->mirror.is_given_up || t->mirror.has_heirs || t->deposit_count > 0)
        return;
    t->mirror.is_given_up = false;
    tni_os_file_remove(TNI_VAULT_SOCKET);
}

uint64_t tenond_mirror_due(struct tenond *t, uint64_t now_ns)
{
    end_given_up(t);
    if (t->mirror.count == t->deposit_count || t->mirror.is_recalling)
        return TN_FOREVER;
    if (t->mirror.fd >= 0 || now_ns >= t->mirror.start_ns)
        put_missing(t);
    if (t->mirror.count == t->deposit_count)
        return TN_FOREVER;
    return t->mirror.fd >= 0 ? now_ns : t->mirror.start_ns;
}

/* ---- taking over ------------------------------------------------------------------------- */

static struct tenond_domain *find_domain(const struct tenond *t, const uint8_t id[16])
{
    struct tenond_domain *d = t->domains;
    while (d != NULL && memcmp(d->id, id, sizeof d->id) != 0)
        d = d->next;
    return d;
}

/* The descriptor is consumed. */
static void take_entry(struct tenond *t, const struct vault_packet *p, int fd)
{
    struct tenond_domain *d = find_domain(t, p->domain);
    struct tenond_deposit *deposit;
    if (d != NULL &&
        tenond_deposit_keep(t, d, (tni_block){p->block}, p->generation, fd, &deposit) == 0) {
        note(t, deposit, true);
        return;
    }
    tni_os_close(fd);
    reject(t, p);
}

/* @return 1: there is more to come; 0: that was the last; an error */
static int take_next(struct tenond *t)
{
    struct vault_packet p;
    uint32_t fd_count = 0;
    int fd = -1;
    int got = tni_os_receive(t->mirror.fd, &p, sizeof p, &fd, 1, &fd_count,
                             tni_os_now_ns() + RECEIVE_NS);
    if (got < 0)
        return got;
    bool is_ours = got == (int)sizeof p && p.magic == VAULT_MAGIC;
    if (is_ours && p.verb == VAULT_PUT && fd >= 0) {
        take_entry(t, &p, fd);
        return 1;
    }
    tni_os_close(fd);
    if (is_ours && p.verb == VAULT_END)
        return 0;
    if (got == 0)
        return tni_fail(TN_ERR_CLOSED, "it closed the connection before it had sent all");
    return tni_fail(TN_ERR_INVALID, "a packet of %d bytes that makes no sense", got);
}

/*
 * It sends all before it reads again, and we say nothing meanwhile: neither can wait for the
 * other. @return 0; TN_ERR_TIMED_OUT: the rest is yet to come
 */
static int take_rest(struct tenond *t)
{
    int status;
    while ((status = take_next(t)) > 0)
        TNI_KILL_POINT("tenond_recalling");
    const struct tenond_rejected *rejected = &t->mirror.rejected;
    for (uint32_t i = 0; status == 0 && i < rejected->count; i++)
        status = tni_os_socket_send(t->mirror.fd, &rejected->at[i], sizeof rejected->at[i], -1,
                                    tni_os_now_ns() + SEND_NS);
    return status;
}

/* @return 0, TN_ERR_TIMED_OUT (it will answer, or end), TN_ERR_NOT_FOUND (nobody is there) */
static int ask_for_all(struct tenond *t)
{
    const struct vault_packet ask = {.magic = VAULT_MAGIC, .verb = VAULT_LIST};
    int status = tni_os_connect(TNI_VAULT_SOCKET, &t->mirror.fd);
    if (status != 0)
        return status;
    t->mirror.is_recalling = t->mirror.has_heirs = true;
    status = tni_os_loop_add(t->loop, t->mirror.fd, tenond_tag(TENOND_VAULT, 0, 0));
    if (status == 0)
        status =
            tni_os_socket_send(t->mirror.fd, &ask, sizeof ask, -1, tni_os_now_ns() + SEND_NS);
    if (status != 0)
        return status;
    status = tni_os_poll(&t->mirror.fd, 1, tni_os_now_ns() + FIRST_NS);
    return status < 0 ? status : take_rest(t);
}

/* One that closed the connection, because we were too slow for it, is asked once more. */
static void note_recall(struct tenond *t, int status)
{
    for (int n = 0; status == TN_ERR_CLOSED && n < RECALLS_MOST; n++) {
        give_up(t, 0);
        status = ask_for_all(t);
    }
    if (t->mirror.fd < 0) {
        t->mirror.has_heirs = status != TN_ERR_NOT_FOUND;
        return;
    }
    if (status == TN_ERR_TIMED_OUT) {
        tni_log(TNI_LOG_WARNING, "the vault is slow to tell what it has");
        return;
    }
    t->mirror.has_heirs = status != 0;
    tni_log(TNI_LOG_INFO, "took over %u descriptors that the vault had", t->deposit_count);
    if (status == 0) {
        end_recall(t);
    } else {
        tni_log(TNI_LOG_WARNING, "the vault: %s", tn_error_detail());
        give_up(t, 0);
    }
}

static void go_on_recalling(struct tenond *t) { note_recall(t, take_rest(t)); }

/* Nobody there has anything for us: that is no failure. */
void tenond_mirror_recall(struct tenond *t) { note_recall(t, ask_for_all(t)); }

void tenond_mirror_fini(struct tenond *t)
{
    tni_os_close(t->mirror.fd);
    t->mirror.fd = -1;
    if (!t->mirror.has_heirs)
        tni_os_file_remove(TNI_VAULT_SOCKET);
}
