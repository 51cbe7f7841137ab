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
 *     The vault drops an entry when its block says that it is over, or when its domain has
 *     ended. What we cannot keep for another reason, the vault goes on keeping for us: we ask
 *     for everything again once we look after another domain, and now and then. As long as we
 *     do not have all that a vault has, no other vault takes its place, and we do not end.
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
#define ASK_NS     (1000 * MS_NS) /* at least, until we ask for everything again */
#define UNSEEN_NS  (3000 * MS_NS) /* for members that we cannot see to tell of their domain */
enum { BATCH = 256, RECALLS_MOST = 8, ASK_PAUSE = 20 };

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

/*
 * VAULT_DROP: it is over. VAULT_PUT: we do not know its domain, and look at the end whether
 * that has ended. What cannot be noted stays in the vault.
 */
static void reject(struct tenond *t, const struct vault_packet *p, uint32_t verb)
{
    struct tenond_rejected *rejected = &t->mirror.rejected;
    if (rejected->count == rejected->room) {
        uint32_t room = 2 * rejected->room + 64;
        void *grown = reallocarray(rejected->at, room, sizeof *rejected->at);
        if (grown == NULL) {
            t->mirror.left_count++;
            return;
        }
        rejected->at = grown;
        rejected->room = room;
    }
    rejected->at[rejected->count] = *p;
    rejected->at[rejected->count++].verb = verb;
}

static void end_recall(struct tenond *t)
{
    free(t->mirror.rejected.at);
    t->mirror.rejected = (struct tenond_rejected){0};
    t->mirror.is_recalling = false;
}

static void forget_mirrored(struct tenond *t)
{
    for (struct tenond_domain *d = t->domains; d != NULL; d = d->next)
        for (uint32_t i = 0; i < d->deposits.count; i++)
            note(t, &d->deposits.at[i], false);
}

/*
 * The vault of the socket's name, whether it is a new one or one that was given up before: the
 * name stays as long as we use that vault.
 */
static int take_connection(struct tenond *t, int fd)
{
    t->mirror.fd = fd;
    t->mirror.is_given_up = false;
    return tni_os_loop_add(t->loop, fd, tenond_tag(TENOND_VAULT, 0, 0));
}

/* I2. What it has and we have not is asked for again, should it live: see has_left. */
static void give_up(struct tenond *t, uint64_t start_ns)
{
    tni_os_loop_remove(t->loop, t->mirror.fd);
    tni_os_close(t->mirror.fd);
    t->mirror.fd = -1;
    t->mirror.start_ns = start_ns;
    t->mirror.is_given_up = true;
    t->mirror.ask_ns = tni_os_now_ns();
    end_recall(t);
    forget_mirrored(t);
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
        status = take_connection(t, fd);
    if (status != 0) {
        tni_os_close(fd);
        t->mirror.fd = -1;
        t->mirror.start_ns = tni_os_now_ns() + TROUBLE_NS;
        tni_log(TNI_LOG_WARNING, "descriptors are kept here only: %s", tn_error_detail());
        return status;
    }
    t->mirror.start_ns = tni_os_now_ns() + RESTART_NS;
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
    if (t->mirror.fd < 0 &&
        (t->mirror.has_left || tni_os_now_ns() < t->mirror.start_ns || start(t) != 0))
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
        reject(t, &p, VAULT_DROP);
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
static void ask_again(struct tenond *t, uint64_t now_ns, uint64_t patience_ns);

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
    ask_again(t, now_ns, 0);
    uint64_t ask_ns = t->mirror.has_left ? t->mirror.ask_ns : TNI_FOREVER;
    if (t->mirror.is_recalling)
        return TNI_FOREVER;
    if (t->mirror.count == t->deposit_count || (t->mirror.fd < 0 && t->mirror.has_left))
        return ask_ns;
    if (t->mirror.fd >= 0 || now_ns >= t->mirror.start_ns)
        put_missing(t);
    if (t->mirror.count == t->deposit_count)
        return ask_ns;
    return t->mirror.fd >= 0 ? now_ns : TNI_MIN(ask_ns, t->mirror.start_ns);
}

/* ---- taking over ------------------------------------------------------------------------- */

static struct tenond_domain *find_domain(const struct tenond *t, const uint8_t id[16])
{
    struct tenond_domain *d = t->domains;
    while (d != NULL && memcmp(d->id, id, sizeof d->id) != 0)
        d = d->next;
    return d;
}

/* The descriptor is consumed. Only its block can say that an entry of a living domain is over.
 */
static void take_entry(struct tenond *t, const struct vault_packet *p, int fd)
{
    struct tenond_domain *d = find_domain(t, p->domain);
    struct tenond_deposit *deposit;
    int status = TN_ERR_NOT_FOUND;
    if (d != NULL)
        status = tenond_deposit_keep(t, d, (tni_block){p->block}, p->generation, fd, &deposit);
    if (status == 0) {
        note(t, deposit, true);
        return;
    }
    tni_os_close(fd);
    if (d == NULL)
        reject(t, p, VAULT_PUT);
    else if (status == TN_ERR_STALE || status == TN_ERR_INVALID)
        reject(t, p, VAULT_DROP);
    else
        t->mirror.left_count++;
}

/* @return 1: there is more to come; 0: that was the last; an error */
static int take_next(struct tenond *t)
{
    struct vault_packet p = {0};
    uint32_t fd_count = 0;
    int fd = -1;
    int got = tni_os_receive(t->mirror.fd, &(struct tni_os_buffer){&p, sizeof p, &fd, 1},
                             tni_os_now_ns() + RECEIVE_NS, &fd_count);
    if (got == TN_ERR_SYSTEM && p.magic == VAULT_MAGIC) {
        t->mirror.left_count++; /* there was no room for its descriptor */
        return 1;
    }
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

/* A vault that does not read now will not answer soon: nothing of it is yet to come. */
static int send_packet(const struct tenond *t, const struct vault_packet *p)
{
    int status = tni_os_socket_send(t->mirror.fd, p, sizeof *p, -1, tni_os_now_ns() + SEND_NS);
    return status == TN_ERR_TIMED_OUT
               ? tni_fail(TN_ERR_SYSTEM, "it does not read what tenond sends")
               : status;
}

struct living {
    uint8_t (*ids)[16];
    uint32_t count;
    bool is_known; /* else every domain may live */
};

/*
 * We may see no member of a domain that lives, in other namespaces: for a moment after our
 * start none has ended.
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
            t->mirror.left_count++;
            continue;
        }
        p.verb = VAULT_DROP;
        status = send_packet(t, &p);
    }
    free(living.ids);
    return status;
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
    return status == 0 ? tell_rejected(t) : status;
}

/* @return 0, TN_ERR_TIMED_OUT (it will answer, or end), TN_ERR_NOT_FOUND (nobody is there) */
static int ask_for_all(struct tenond *t, uint64_t patience_ns)
{
    const struct vault_packet ask = {.magic = VAULT_MAGIC, .verb = VAULT_LIST};
    bool is_new = t->mirror.fd < 0;
    int fd = -1;
    int status = is_new ? tni_os_connect(TNI_VAULT_SOCKET, &fd) : 0;
    if (status != 0)
        return status;
    t->mirror.is_recalling = t->mirror.has_left = t->mirror.has_heirs = true;
    t->mirror.left_count = 0;
    t->mirror.asked_ns = tni_os_now_ns();
    t->mirror.ask_ns = TNI_FOREVER;
    forget_mirrored(t); /* what the vault does not send any more, it is given again */
    if (is_new)
        status = take_connection(t, fd);
    if (status == 0)
        status = send_packet(t, &ask);
    if (status != 0)
        return status;
    status = tni_os_poll(&t->mirror.fd, 1, tni_os_now_ns() + patience_ns);
    return status < 0 ? status : take_rest(t);
}

static void finish_recall(struct tenond *t)
{
    uint64_t now_ns = tni_os_now_ns();
    uint64_t pause_ns = tni_pause_ns(now_ns - t->mirror.asked_ns, ASK_PAUSE, ASK_NS);
    end_recall(t);
    t->mirror.has_left = t->mirror.has_heirs = t->mirror.left_count > 0;
    if (t->mirror.ask_ns != 0) /* else a domain was adopted meanwhile */
        t->mirror.ask_ns = now_ns + pause_ns;
    tni_log(TNI_LOG_INFO,
            "took over %u descriptors that the vault had; it keeps %u that we cannot have now",
            t->deposit_count, t->mirror.left_count);
}

/* I3. Nobody there has anything for us: that is no failure. */
static void break_off(struct tenond *t, int status)
{
    if (t->mirror.fd >= 0)
        give_up(t, 0);
    t->mirror.has_left = t->mirror.has_heirs = status != TN_ERR_NOT_FOUND;
    t->mirror.ask_ns = tni_os_now_ns() + ASK_NS;
    if (t->mirror.has_left)
        tni_log(TNI_LOG_WARNING, "the vault: %s", tn_error_detail());
}

/* One that closed the connection, because we were too slow for it, is asked once more. */
static void note_recall(struct tenond *t, int status)
{
    for (int n = 0; status == TN_ERR_CLOSED && n < RECALLS_MOST; n++) {
        give_up(t, 0);
        status = ask_for_all(t, FIRST_NS);
    }
    if (status == TN_ERR_TIMED_OUT && t->mirror.fd >= 0)
        return; /* the loop sees it when it comes */
    if (status == 0)
        finish_recall(t);
    else
        break_off(t, status);
}

static void go_on_recalling(struct tenond *t) { note_recall(t, take_rest(t)); }

static void ask_again(struct tenond *t, uint64_t now_ns, uint64_t patience_ns)
{
    if (t->mirror.has_left && !t->mirror.is_recalling && now_ns >= t->mirror.ask_ns)
        note_recall(t, ask_for_all(t, patience_ns));
}

void tenond_mirror_recall(struct tenond *t)
{
    t->mirror.unseen_ns = tni_os_now_ns() + UNSEEN_NS;
    note_recall(t, ask_for_all(t, FIRST_NS));
}

void tenond_mirror_move(struct tenond *t)
{
    if (t->mirror.fd >= 0)
        give_up(t, 0);
    tenond_mirror_recall(t);
}

void tenond_mirror_adopted(struct tenond *t) { t->mirror.ask_ns = 0; }

void tenond_mirror_catch_up(struct tenond *t) { ask_again(t, tni_os_now_ns(), FIRST_NS); }

bool tenond_mirror_is_behind(const struct tenond *t) { return t->mirror.has_left; }

void tenond_mirror_fini(struct tenond *t)
{
    tni_os_close(t->mirror.fd);
    t->mirror.fd = -1;
    if (!t->mirror.has_heirs)
        tni_os_file_remove(TNI_VAULT_SOCKET);
}
