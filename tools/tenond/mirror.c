/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mirror: send each deposit to the vault, and keep account of what the vault has.
 *
 * I1  A deposit is sent to the vault before its depositor gets an answer. We do not wait
 *     for the vault: it takes what was sent, even if we are killed meanwhile (vault.c,
 *     I1).
 * I2  A vault that ended, or does not read for SEND_NS, is given up. A moment later
 *     another vault is started and is given every deposit. Until then only we have the
 *     descriptors.
 * I3  While a vault may have entries that we have not, no other vault takes its place,
 *     and we tell it nothing before it has sent all. recall.c takes these entries over.
 *     A process may join a domain at the moment in which we leave it. Then its entries are
 *     such entries: the domain may come back to us, or end without us.
 * I4  A vault that was given up may still run, with entries that we have dropped since.
 *     It ends when its socket loses its name: to the next vault or, if nothing is left to
 *     keep, at once.
 * Death: the vault has every deposit that was acknowledged, and perhaps some that are
 * over. Our successor checks each of them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tenond.h"

#define MS_NS      UINT64_C(1000000)
#define SEND_NS    (250 * MS_NS)  /* a depositor waits for its answer for a second */
#define RESTART_NS (1000 * MS_NS) /* between two starts of a vault */
#define TROUBLE_NS (10000 * MS_NS)
#define LEFT_NS    (1000 * MS_NS) /* before we look at the entries of a domain that we left */

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

void tenond_mirror_note(struct tenond *t, struct tenond_deposit *deposit, bool is_mirrored)
{
    t->mirror.count -= deposit->is_mirrored ? deposit->bundle.count : 0;
    t->mirror.count += is_mirrored ? deposit->bundle.count : 0;
    deposit->is_mirrored = is_mirrored;
}

void tenond_mirror_forget(struct tenond *t)
{
    for (struct tenond_domain *d = t->domains; d != NULL; d = d->next)
        for (uint32_t i = 0; i < d->deposits.count; i++)
            tenond_mirror_note(t, &d->deposits.at[i], false);
}

/* An entry for which there is no memory stays in the vault. */
void tenond_mirror_reject(struct tenond *t, const struct vault_packet *p, uint32_t verb)
{
    struct tenond_rejected *rejected = &t->mirror.rejected;
    if (rejected->count == rejected->room) {
        uint32_t room = 2 * rejected->room + 64;
        void *grown = reallocarray(rejected->at, room, sizeof *rejected->at);
        if (grown == NULL) {
            t->mirror.more_count++;
            return;
        }
        rejected->at = grown;
        rejected->room = room;
    }
    rejected->at[rejected->count] = *p;
    rejected->at[rejected->count++].verb = verb;
}

void tenond_mirror_end_recall(struct tenond *t)
{
    free(t->mirror.rejected.at);
    t->mirror.rejected = (struct tenond_rejected){0};
    t->mirror.is_recalling = false;
}

/* ---- the connection ---------------------------------------------------------------------- */

/*
 * The vault that listens on the socket of that name may be new, or one that we gave up before.
 * While we use a vault, its socket keeps the name.
 */
int tenond_mirror_connect(struct tenond *t, int fd)
{
    t->mirror.fd = fd;
    t->mirror.is_given_up = false;
    return tni_os_loop_add(t->loop, fd, tenond_tag(TENOND_VAULT, 0, 0));
}

/* I2. If the vault still runs, we ask it again for entries that we have not: see has_more. */
void tenond_mirror_give_up(struct tenond *t, uint64_t start_ns)
{
    tni_os_loop_remove(t->loop, t->mirror.fd);
    tni_os_close(t->mirror.fd);
    t->mirror.fd = -1;
    t->mirror.start_ns = start_ns;
    t->mirror.is_given_up = true;
    t->mirror.ask_ns = tni_os_now_ns();
    tenond_mirror_end_recall(t);
    tenond_mirror_forget(t);
}

/*
 * The new process inherits the socket that we are connected to already. What we send before it
 * runs waits in that socket. If the process never runs, the connection ends. It is told the
 * number of its socket's file, because another file may have the name when it runs.
 */
static int start_vault(struct tenond *t)
{
    char option[sizeof "--vault=" + 20];
    const char *const argv[] = {"tenond", option, NULL};
    int listen_fd = -1, fd = -1;
    int status = tni_os_listen(TNI_VAULT_SOCKET, &listen_fd);
    if (status == 0)
        status = tni_os_connect(TNI_VAULT_SOCKET, &fd);
    snprintf(option, sizeof option, "--vault=%llu",
             (unsigned long long)tni_os_file_number(TNI_VAULT_SOCKET));
    TNI_KILL_POINT("tenond_vault_named");
    if (status == 0)
        status = tni_os_start_detached_on("/proc/self/exe", argv, listen_fd);
    tni_os_close(listen_fd);
    TNI_KILL_POINT("tenond_vault_started");
    if (status == 0)
        status = tenond_mirror_connect(t, fd);
    if (status != 0) {
        tni_os_close(fd);
        t->mirror.fd = -1;
        t->mirror.start_ns = tni_os_now_ns() + TROUBLE_NS;
        tni_log(TNI_LOG_WARNING, "no vault can be started, so only tenond has descriptors: %s",
                tn_error_detail());
        return status;
    }
    t->mirror.start_ns = tni_os_now_ns() + RESTART_NS;
    tni_log(TNI_LOG_INFO, "started the vault");
    return 0;
}

/* @return whether the packet was sent */
static bool tell(struct tenond *t, const struct vault_packet *p, const struct bundle *bundle)
{
    const struct tni_os_message message = {p, sizeof *p, bundle_fds(bundle), bundle->count};
    if (t->mirror.fd < 0 || t->mirror.is_recalling)
        return false;
    int status = tni_os_socket_send(t->mirror.fd, &message, tni_os_now_ns() + SEND_NS);
    if (status == 0)
        return true;
    tni_log(TNI_LOG_WARNING, "gave the vault up, so only tenond has descriptors for now: %s",
            tn_error_detail());
    tenond_mirror_give_up(t, status == TN_ERR_CLOSED ? t->mirror.start_ns
                                                     : tni_os_now_ns() + RESTART_NS);
    return false;
}

/* ---- deposits ---------------------------------------------------------------------------- */

void tenond_mirror_put(struct tenond *t, const struct tenond_domain *d,
                       struct tenond_deposit *deposit)
{
    if (t->mirror.fd < 0 &&
        (t->mirror.has_more || tni_os_now_ns() < t->mirror.start_ns || start_vault(t) != 0))
        return;
    const struct vault_packet p = packet_of(d, VAULT_PUT, deposit);
    if (tell(t, &p, &deposit->bundle))
        tenond_mirror_note(t, deposit, true);
}

void tenond_mirror_drop(struct tenond *t, const struct tenond_domain *d,
                        struct tenond_deposit *deposit)
{
    const struct vault_packet p = packet_of(d, VAULT_DROP, deposit);
    if (!deposit->is_mirrored)
        return;
    if (t->mirror.is_recalling)
        tenond_mirror_reject(t, &p, VAULT_DROP);
    if (t->mirror.is_recalling || tell(t, &p, &(struct bundle){0}))
        tenond_mirror_note(t, deposit, false);
}

void tenond_mirror_leave(struct tenond *t, struct tenond_deposit *deposit)
{
    t->mirror.serves_successor |= deposit->is_mirrored;
    tenond_mirror_note(t, deposit, false);
}

void tenond_mirror_left(struct tenond *t)
{
    if (!t->mirror.serves_successor || t->mirror.has_more)
        return;
    t->mirror.has_more = true;
    t->mirror.ask_ns = tni_os_now_ns() + LEFT_NS;
}

void tenond_mirror_adopted(struct tenond *t) { t->mirror.ask_ns = 0; }

bool tenond_mirror_has_more(const struct tenond *t) { return t->mirror.has_more; }

void tenond_mirror_fini(struct tenond *t)
{
    tni_os_close(t->mirror.fd);
    t->mirror.fd = -1;
    if (!t->mirror.serves_successor)
        tni_os_file_remove(TNI_VAULT_SOCKET);
}
