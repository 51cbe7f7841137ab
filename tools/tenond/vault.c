/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vault: a process that has a duplicate of each of tenond's deposits. It has no seat, and maps
 * no domain. tenond starts it with the first deposit.
 *
 * Nouns: entry (the descriptors of a block, under the id of its domain, the block and its
 * generation; they came in one packet and leave in one, so it has all of them), caller (a
 * connection that has not been served), client (the connection of the tenond of this folder: a
 * caller that sent a well-formed packet; one at a time).
 * I1  All packets of a client are taken before the next client is answered. So a tenond's
 *     successor finds here what that tenond had sent when it was killed.
 * I2  The vault trusts nothing: tenond checks whether an entry is what its block says, and
 *     whether there is such a block, when it takes the entry over.
 * I3  A vault without a client ends if it has no entry, if another vault has its socket's name,
 *     or if no tenond came for LIFE_NS. Until then it starts a tenond now and then, because
 *     perhaps no member waits that would start one.
 * I4  A client that sends a malformed packet is closed, and no entry is lost. A caller is
 *     closed if its first packet is malformed, or if it sends nothing for FIRST_NS, whether
 *     or not there is a client. So such callers fill neither the socket's queue nor our table.
 *     Only one caller at a time may wait with descriptors: a tenond that has just started us.
 * Callers: tenond. Death: tenond still has every descriptor. It sees the end of the connection,
 * starts another vault, and gives it all descriptors.
 */
#include "vault.h"

#include <stdlib.h>
#include <string.h>

#include "bundle.h"
#include "reaper/reaper.h"

#define MS_NS          UINT64_C(1000000)
#define LIFE_NS        (60000 * MS_NS)
#define FIRST_NS       (200 * MS_NS)  /* for the first packet of a caller */
#define SEND_NS        (1000 * MS_NS) /* for each entry of the answer to LIST */
#define START_LEAST_NS (100 * MS_NS)  /* so that a survivor may start tenond first */
#define START_MOST_NS  (10000 * MS_NS)
#define DEAF_NS        (100 * MS_NS) /* pause after no descriptor was left for a caller */
#define LOOK_NS        (500 * MS_NS) /* how soon a vault sees that its socket lost its name */
enum { ROOM_LEAST = 256, CALLERS = 32 };

struct entry {
    uint8_t domain[16];
    uint32_t block, generation;
    struct bundle bundle; /* none: this place is empty */
};

struct caller {
    int fd; /* -1: this place is empty */
    uint64_t since_ns;
    bool has_spoken; /* its first packet came; the rest is read when it is the client */
    struct vault_packet said;
    struct bundle said_bundle; /* the descriptors of that packet */
};

struct vault {
    struct entry *at; /* [room], a power of two or 0: a hash table with linear probing */
    uint32_t room, count;
    int listen_fd, client_fd;
    struct caller callers[CALLERS];
    uint64_t deaf_ns;  /* no caller is accepted before this time */
    uint64_t file;     /* the number of our socket's file */
    uint64_t pause_ns; /* before the next tenond is started */
};

/* ---- entries ----------------------------------------------------------------------------- */

static uint32_t place_of(const struct vault *v, const uint8_t domain[16], uint32_t block)
{
    uint8_t key[20];
    memcpy(key, domain, 16);
    memcpy(key + 16, &block, sizeof block);
    return (uint32_t)tni_hash(key, sizeof key) & (v->room - 1);
}

/* The entry of a block, or the empty one where it belongs. pre: there is room */
static struct entry *find(const struct vault *v, const uint8_t domain[16], uint32_t block)
{
    uint32_t i = place_of(v, domain, block);
    while (v->at[i].bundle.count > 0 &&
           (v->at[i].block != block || memcmp(v->at[i].domain, domain, 16) != 0))
        i = (i + 1) & (v->room - 1);
    return &v->at[i];
}

static int ensure_room(struct vault *v)
{
    if (4 * ((uint64_t)v->count + 1) <= 3 * (uint64_t)v->room)
        return 0;
    struct vault grown = {.room = v->room != 0 ? 2 * v->room : ROOM_LEAST};
    grown.at = calloc(grown.room, sizeof *grown.at);
    if (grown.at == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "no private memory for %u entries", grown.room);
    for (uint32_t i = 0; i < v->room; i++)
        if (v->at[i].bundle.count > 0)
            *find(&grown, v->at[i].domain, v->at[i].block) = v->at[i];
    free(v->at);
    v->at = grown.at;
    v->room = grown.room;
    return 0;
}

/* The descriptors are moved into an entry. Without memory, only tenond has them. */
static void put(struct vault *v, const struct vault_packet *p, struct bundle *bundle)
{
    if (ensure_room(v) != 0)
        return;
    struct entry *entry = find(v, p->domain, p->block);
    v->count += entry->bundle.count == 0;
    bundle_close(&entry->bundle);
    *entry = (struct entry){.block = p->block, .generation = p->generation, .bundle = *bundle};
    memcpy(entry->domain, p->domain, sizeof entry->domain);
    *bundle = (struct bundle){0};
    TNI_KILL_POINT("vault_put");
}

/* Source: Knuth, The Art of Computer Programming, volume 3, section 6.4, algorithm R. */
static void drop(struct vault *v, const struct vault_packet *p)
{
    struct entry *entry = v->count > 0 ? find(v, p->domain, p->block) : NULL;
    if (entry == NULL || entry->bundle.count == 0 || entry->generation != p->generation)
        return;
    bundle_close(&entry->bundle);
    v->count--;
    uint32_t mask = v->room - 1, hole = (uint32_t)(entry - v->at);
    for (uint32_t i = (hole + 1) & mask; v->at[i].bundle.count > 0; i = (i + 1) & mask) {
        uint32_t wanted = place_of(v, v->at[i].domain, v->at[i].block);
        if (((i - wanted) & mask) < ((i - hole) & mask))
            continue; /* its search begins behind the hole */
        v->at[hole] = v->at[i];
        hole = i;
    }
    v->at[hole].bundle = (struct bundle){0};
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
    const struct tni_os_message message = {&p, sizeof p, bundle_fds(&entry->bundle),
                                           entry->bundle.count};
    return tni_os_socket_send(v->client_fd, &message, tni_os_now_ns() + SEND_NS) == 0;
}

/* The client reads all of the answer before it sends more, so we may wait for the client. */
static bool list(const struct vault *v)
{
    const struct vault_packet end = {.magic = VAULT_MAGIC, .verb = VAULT_END};
    const struct tni_os_message message = {.bytes = &end, .size_bytes = sizeof end};
    for (uint32_t i = 0; i < v->room; i++) {
        if (v->at[i].bundle.count == 0)
            continue;
        if (!send_entry(v, &v->at[i]))
            return false;
        TNI_KILL_POINT("vault_listing");
    }
    return tni_os_socket_send(v->client_fd, &message, tni_os_now_ns() + SEND_NS) == 0;
}

/* The descriptors are consumed. @return whether the client stays */
static bool serve(struct vault *v, const struct vault_packet *p, struct bundle *bundle)
{
    bool stays = false;
    switch (p->verb) {
    case VAULT_PUT:
        stays = bundle->count > 0;
        if (stays)
            put(v, p, bundle);
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
    bundle_close(bundle);
    return stays;
}

enum heard { NONSENSE, LOST, PACKET };

/* LOST: the packet came, but there was no room for its descriptors. */
static enum heard hear(int fd, struct vault_packet *ret_packet, struct bundle *ret_bundle)
{
    struct vault_packet p = {0};
    uint32_t fd_count = 0;
    int fds[TNI_PIECES];
    const struct tni_os_buffer buffer = {&p, sizeof p, fds, TNI_COUNT(fds)};
    int got = tni_os_receive(fd, &buffer, 0, &fd_count);
    if (got == TN_ERR_SYSTEM && p.magic == VAULT_MAGIC)
        return LOST;
    bool is_packet = got == (int)sizeof p && p.magic == VAULT_MAGIC;
    if (!is_packet || bundle_make(fds, fd_count, ret_bundle) != 0) {
        bundle_close_fds(fds, fd_count);
        return is_packet ? LOST : NONSENSE;
    }
    *ret_packet = p;
    return PACKET;
}

/* ---- callers ----------------------------------------------------------------------------- */

static void hang_up(struct caller *caller)
{
    bundle_close(&caller->said_bundle);
    tni_os_close(caller->fd);
    *caller = (struct caller){.fd = -1};
}

static struct caller *free_place(struct vault *v)
{
    for (uint32_t i = 0; i < CALLERS; i++)
        if (v->callers[i].fd < 0)
            return &v->callers[i];
    return NULL;
}

static void take_call(struct vault *v)
{
    struct caller *caller = free_place(v);
    int fd;
    int status = caller != NULL ? tni_os_accept(v->listen_fd, &fd) : TN_ERR_TIMED_OUT;
    if (status == 0)
        *caller = (struct caller){.fd = fd, .since_ns = tni_os_now_ns()};
    if (status == TN_ERR_SYSTEM) /* the socket stays readable */
        v->deaf_ns = tni_os_now_ns() + DEAF_NS;
}

static bool has_waiting_descriptors(const struct vault *v)
{
    for (uint32_t i = 0; i < CALLERS; i++)
        if (v->callers[i].has_spoken && v->callers[i].said_bundle.count > 0)
            return true;
    return false;
}

/* I4 */
static void listen_to(const struct vault *v, struct caller *caller)
{
    bool is_other = v->client_fd >= 0 || has_waiting_descriptors(v);
    caller->has_spoken = hear(caller->fd, &caller->said, &caller->said_bundle) == PACKET;
    if (!caller->has_spoken || (is_other && caller->said_bundle.count > 0))
        hang_up(caller);
}

/* I4. @return when the next caller has been silent for too long */
static uint64_t drop_silent(struct vault *v)
{
    uint64_t now_ns = tni_os_now_ns(), next_ns = TNI_FOREVER;
    for (uint32_t i = 0; i < CALLERS; i++) {
        struct caller *caller = &v->callers[i];
        if (caller->fd < 0 || caller->has_spoken)
            continue;
        if (caller->since_ns + FIRST_NS <= now_ns)
            hang_up(caller);
        else
            next_ns = TNI_MIN(next_ns, caller->since_ns + FIRST_NS);
    }
    return now_ns < v->deaf_ns ? TNI_MIN(next_ns, v->deaf_ns) : next_ns;
}

/*
 * Wait for a packet of the client, and serve callers meanwhile. @return 0: the client is
 * readable; 1: a caller was served; TN_ERR_TIMED_OUT, perhaps before the deadline
 */
static int attend(struct vault *v, uint64_t deadline_ns)
{
    uint64_t next_ns = drop_silent(v);
    bool is_deaf = free_place(v) == NULL || tni_os_now_ns() < v->deaf_ns;
    int fds[CALLERS + 2] = {v->client_fd, is_deaf ? -1 : v->listen_fd};
    for (uint32_t i = 0; i < CALLERS; i++)
        fds[i + 2] = v->callers[i].has_spoken ? -1 : v->callers[i].fd;
    int which = tni_os_poll(fds, CALLERS + 2, TNI_MIN(next_ns, deadline_ns));
    if (which == 1)
        take_call(v);
    else if (which > 1)
        listen_to(v, &v->callers[which - 2]);
    return TNI_MIN(which, 1);
}

/* Its first packet came already, and its descriptors are consumed. */
static void serve_client(struct vault *v, struct caller *client)
{
    uint64_t begun_ns = tni_os_now_ns();
    struct vault_packet p;
    struct bundle bundle;
    v->client_fd = client->fd;
    bool stays = serve(v, &client->said, &client->said_bundle);
    while (stays) {
        if (attend(v, TNI_FOREVER) != 0)
            continue;
        enum heard heard = hear(v->client_fd, &p, &bundle);
        /* LOST: only tenond has the descriptors then. */
        stays = heard == LOST || (heard == PACKET && serve(v, &p, &bundle));
    }
    /* A tenond that soon dies again is started after longer and longer pauses. */
    if (tni_os_now_ns() - begun_ns >= START_MOST_NS)
        v->pause_ns = START_LEAST_NS;
    tni_os_close(v->client_fd);
    v->client_fd = -1;
}

/* ---- between clients --------------------------------------------------------------------- */

/* If a survivor starts a tenond too, the first of the two gets the lock, and the other ends. */
static void start_tenond(struct vault *v)
{
    static const char *const argv[] = {"tenond", NULL};
    v->pause_ns = TNI_MIN(2 * v->pause_ns, START_MOST_NS);
    int status = tni_os_start_detached("/proc/self/exe", argv);
    if (status == 0)
        tni_log(TNI_LOG_INFO,
                "tenond is gone: started another one, for the descriptors of %u storages",
                v->count);
    else
        tni_log(TNI_LOG_WARNING, "tenond is gone, and none can be started: %s",
                tn_error_detail());
}

/* @return of the callers whose first packet came, the one that connected first; or NULL */
static struct caller *next_client(struct vault *v)
{
    struct caller *first = NULL;
    for (uint32_t i = 0; i < CALLERS; i++)
        if (v->callers[i].has_spoken &&
            (first == NULL || v->callers[i].since_ns < first->since_ns))
            first = &v->callers[i];
    return first;
}

static bool has_callers(const struct vault *v)
{
    for (uint32_t i = 0; i < CALLERS; i++)
        if (v->callers[i].fd >= 0)
            return true;
    return false;
}

/* I3. @return the next client; NULL: the vault ends */
static struct caller *await_client(struct vault *v, uint64_t end_ns)
{
    uint64_t start_ns = tni_os_now_ns() + v->pause_ns;
    while (tni_os_file_number(TNI_VAULT_SOCKET) == v->file) {
        struct caller *caller = next_client(v);
        if (caller != NULL)
            return caller;
        uint64_t now_ns = tni_os_now_ns();
        bool is_over = (v->count == 0 && !has_callers(v)) || now_ns >= end_ns;
        int which = attend(v, is_over ? 0 : TNI_MIN(start_ns, now_ns + LOOK_NS));
        if (which == 1)
            continue;
        if (is_over || which != TN_ERR_TIMED_OUT)
            return NULL;
        if (v->count > 0 && tni_os_now_ns() >= start_ns) {
            start_tenond(v);
            start_ns = tni_os_now_ns() + v->pause_ns;
        }
    }
    return NULL;
}

int vault_run(int listen_fd, uint64_t file)
{
    struct vault v = {
        .listen_fd = listen_fd, .client_fd = -1, .file = file, .pause_ns = START_LEAST_NS};
    if (tni_os_socket_number(listen_fd) == 0)
        return tni_fail(TN_ERR_INVALID, "only tenond can start a vault");
    uint64_t end_ns = tni_os_now_ns() + LIFE_NS;
    for (uint32_t i = 0; i < CALLERS; i++)
        v.callers[i].fd = -1;
    for (struct caller *c; v.file != 0 && (c = await_client(&v, end_ns)) != NULL;) {
        struct caller client = *c;
        *c = (struct caller){.fd = -1};
        serve_client(&v, &client);
        end_ns = tni_os_now_ns() + LIFE_NS;
    }
    for (uint32_t i = 0; i < CALLERS; i++)
        hang_up(&v.callers[i]);
    for (uint32_t i = 0; i < v.room; i++)
        bundle_close(&v.at[i].bundle);
    free(v.at);
    return 0;
}
