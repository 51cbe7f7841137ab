/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vault: a process that has a second descriptor of each of tenond's deposits, and nothing else:
 * no seat, no domain mapped. Started by tenond with its first deposit.
 *
 * Nouns: entry (a descriptor under a domain's id, a block and its generation), client (the
 * connection of the tenond of this folder, one at a time; the next one waits in the socket).
 * I1  All that a client sent before it ended is taken before the next client is heard. So what
 *     a tenond had sent when it was killed, its successor finds here.
 * I2  Nothing here is believed: whether an entry is what its block says, and whether there is
 *     such a block, tenond looks at when it takes an entry over.
 * I3  Without a client it ends when it has no entry, or another vault has its socket's name, or
 *     no tenond has come for LIFE_NS. Until then it starts one now and then: nobody may be
 *     waiting who would.
 * I4  A client that sends what makes no sense, or nothing when it comes, is closed, and costs
 *     no entry.
 * Callers: tenond. Death: tenond has every descriptor too; it sees the end of the connection,
 * starts another vault, and gives it all of them.
 */
#include "vault.h"

#include <stdlib.h>
#include <string.h>

#include "reaper/reaper.h"

#define MS_NS          UINT64_C(1000000)
#define LIFE_NS        (60000 * MS_NS)
#define FIRST_NS       (200 * MS_NS)  /* a client must say something by then */
#define SEND_NS        (1000 * MS_NS) /* of a LIST, for each entry */
#define START_LEAST_NS (100 * MS_NS)  /* for survivors to do it */
#define START_MOST_NS  (10000 * MS_NS)
enum { ROOM_LEAST = 256 };

struct entry {
    uint8_t domain[16];
    uint32_t block, generation;
    int fd; /* -1: this place is empty */
};

struct vault {
    struct entry *at; /* [room], a power of two or 0; by hash, then the next that is empty */
    uint32_t room, count;
    int listen_fd, client_fd;
    uint64_t file;     /* the number of our socket's file */
    uint64_t pause_ns; /* before a tenond is started */
};

/* ---- entries ----------------------------------------------------------------------------- */

static uint32_t place_of(const struct vault *v, const uint8_t domain[16], uint32_t block)
{
    uint8_t key[20];
    memcpy(key, domain, 16);
    memcpy(key + 16, &block, sizeof block);
    return (uint32_t)tni_hash(key, sizeof key) & (v->room - 1);
}

/* That of the block, or the empty one where it belongs. pre: there is room */
static struct entry *find(const struct vault *v, const uint8_t domain[16], uint32_t block)
{
    uint32_t i = place_of(v, domain, block);
    while (v->at[i].fd >= 0 &&
           (v->at[i].block != block || memcmp(v->at[i].domain, domain, 16) != 0))
        i = (i + 1) & (v->room - 1);
    return &v->at[i];
}

static int ensure_room(struct vault *v)
{
    if (4 * ((uint64_t)v->count + 1) <= 3 * (uint64_t)v->room)
        return 0;
    struct vault grown = {.room = v->room != 0 ? 2 * v->room : ROOM_LEAST};
    grown.at = reallocarray(NULL, grown.room, sizeof *grown.at);
    if (grown.at == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "no private memory for %u entries", grown.room);
    for (uint32_t i = 0; i < grown.room; i++)
        grown.at[i].fd = -1;
    for (uint32_t i = 0; i < v->room; i++)
        if (v->at[i].fd >= 0)
            *find(&grown, v->at[i].domain, v->at[i].block) = v->at[i];
    free(v->at);
    v->at = grown.at;
    v->room = grown.room;
    return 0;
}

/* @return whether the descriptor was taken */
static bool put(struct vault *v, const struct vault_packet *p, int fd)
{
    if (ensure_room(v) != 0)
        return false; /* the one that tenond has must do */
    struct entry *entry = find(v, p->domain, p->block);
    if (entry->fd >= 0)
        tni_os_close(entry->fd);
    else
        v->count++;
    *entry = (struct entry){.block = p->block, .generation = p->generation, .fd = fd};
    memcpy(entry->domain, p->domain, sizeof entry->domain);
    TNI_KILL_POINT("vault_put");
    return true;
}

/* Source: Knuth, The Art of Computer Programming, volume 3, section 6.4, algorithm R. */
static void drop(struct vault *v, const struct vault_packet *p)
{
    struct entry *entry = v->count > 0 ? find(v, p->domain, p->block) : NULL;
    if (entry == NULL || entry->fd < 0 || entry->generation != p->generation)
        return;
    tni_os_close(entry->fd);
    v->count--;
    uint32_t mask = v->room - 1, hole = (uint32_t)(entry - v->at);
    for (uint32_t i = (hole + 1) & mask; v->at[i].fd >= 0; i = (i + 1) & mask) {
        uint32_t wanted = place_of(v, v->at[i].domain, v->at[i].block);
        if (((i - wanted) & mask) < ((i - hole) & mask))
            continue; /* the hole is in front of where it may stand */
        v->at[hole] = v->at[i];
        hole = i;
    }
    v->at[hole].fd = -1;
    TNI_KILL_POINT("vault_dropped");
}

/* ---- a client ---------------------------------------------------------------------------- */

static bool send_entry(const struct vault *v, const struct entry *entry)
{
    struct vault_packet p = {.magic = VAULT_MAGIC,
                             .verb = VAULT_PUT,
                             .block = entry->block,
                             .generation = entry->generation};
    memcpy(p.domain, entry->domain, sizeof p.domain);
    return tni_os_socket_send(v->client_fd, &p, sizeof p, entry->fd,
                              tni_os_now_ns() + SEND_NS) == 0;
}

/* It reads all of it before it says anything more: so we may wait for it. */
static bool list(const struct vault *v)
{
    const struct vault_packet end = {.magic = VAULT_MAGIC, .verb = VAULT_END};
    for (uint32_t i = 0; i < v->room; i++) {
        if (v->at[i].fd < 0)
            continue;
        if (!send_entry(v, &v->at[i]))
            return false;
        TNI_KILL_POINT("vault_listing");
    }
    return tni_os_socket_send(v->client_fd, &end, sizeof end, -1, tni_os_now_ns() + SEND_NS) ==
           0;
}

/* The descriptor, or -1, is consumed. @return whether the client stays */
static bool serve(struct vault *v, const struct vault_packet *p, int fd)
{
    bool is_taken = false, stays = false;
    switch (p->verb) {
    case VAULT_PUT:
        stays = fd >= 0;
        is_taken = stays && put(v, p, fd);
        break;
    case VAULT_DROP:
        drop(v, p);
        stays = true;
        break;
    case VAULT_LIST:
        stays = list(v);
        break;
    default:
        break;
    }
    if (!is_taken)
        tni_os_close(fd);
    return stays;
}

/* I4. @return whether the client stays */
static bool receive(struct vault *v, uint64_t deadline_ns)
{
    struct vault_packet p = {0};
    uint32_t fd_count = 0;
    int fd = -1;
    int got = tni_os_receive(v->client_fd, &p, sizeof p, &fd, 1, &fd_count, deadline_ns);
    if (got == TN_ERR_SYSTEM && p.magic == VAULT_MAGIC)
        return true; /* no room for its descriptor: the one that tenond has must do */
    if (got != (int)sizeof p || p.magic != VAULT_MAGIC) {
        tni_os_close(fd);
        return false;
    }
    return serve(v, &p, fd);
}

static void serve_client(struct vault *v)
{
    uint64_t begun_ns = tni_os_now_ns();
    bool stays = receive(v, begun_ns + FIRST_NS);
    while (stays)
        stays = receive(v, TN_FOREVER);
    /* One that dies of what it finds is started ever more seldom. */
    if (tni_os_now_ns() - begun_ns >= START_MOST_NS)
        v->pause_ns = START_LEAST_NS;
    tni_os_close(v->client_fd);
    v->client_fd = -1;
}

/* ---- between clients --------------------------------------------------------------------- */

/* Whoever comes first has the lock; we do not learn, and need not know, whether it was ours. */
static void start_tenond(struct vault *v)
{
    static const char *const argv[] = {"tenond", NULL};
    v->pause_ns = TNI_MIN(2 * v->pause_ns, START_MOST_NS);
    (void)tni_os_start_detached("/proc/self/exe", argv);
}

/* I3. @return whether there is a client */
static bool await_client(struct vault *v, uint64_t end_ns)
{
    while (tni_os_file_number(TNI_VAULT_SOCKET) == v->file) {
        uint64_t now_ns = tni_os_now_ns();
        uint64_t until_ns = v->count > 0 ? now_ns + v->pause_ns : 0;
        int status = tni_os_poll(&v->listen_fd, 1, until_ns);
        if (status == 0) {
            if ((status = tni_os_accept(v->listen_fd, &v->client_fd)) == 0)
                return true;
            if (status == TN_ERR_SYSTEM) /* it stays readable */
                tni_os_sleep_until(now_ns + v->pause_ns);
            continue;
        }
        if (status != TN_ERR_TIMED_OUT || v->count == 0 || now_ns >= end_ns)
            return false;
        start_tenond(v);
    }
    return false;
}

int vault_run(int listen_fd)
{
    struct vault v = {.listen_fd = listen_fd,
                      .client_fd = -1,
                      .file = tni_os_file_number(TNI_VAULT_SOCKET),
                      .pause_ns = START_LEAST_NS};
    if (tni_os_socket_number(listen_fd) == 0)
        return tni_fail(TN_ERR_INVALID, "nobody but tenond starts a vault");
    uint64_t end_ns = tni_os_now_ns() + LIFE_NS;
    while (v.file != 0 && await_client(&v, end_ns)) {
        serve_client(&v);
        end_ns = tni_os_now_ns() + LIFE_NS;
    }
    for (uint32_t i = 0; i < v.room; i++)
        tni_os_close(v.at[i].fd);
    free(v.at);
    return 0;
}
