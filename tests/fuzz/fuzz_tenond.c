/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_tenond: packets of clients and of the vault to tenond, which manages a domain that is
 * damaged meanwhile. The handlers of its loop are called as the loop would call them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz.h"
#include "tenond/tenond.h"
#include "tenond/vault.h"

enum { STEPS = 48, CLIENTS = 4, MOST_FDS = TNI_PIECES + 1 };

struct run {
    struct tenond t;
    struct tni_segment hand;
    int peers[CLIENTS]; /* the other ends; -1 */
    char id[33];
};

/* ---- packets ----------------------------------------------------------------------------- */

/* Which descriptors go along. */
static uint32_t some_fds(const struct run *r, struct fuzz_input *in, int fds[MOST_FDS])
{
    uint32_t kind = fuzz_u8(in);
    const int all[] = {r->hand.control_fd, r->hand.arena_fd, STDIN_FILENO, fuzz_found()};
    for (uint32_t i = 0; i < MOST_FDS; i++)
        fds[i] = all[kind >> (2 + 2 * (i % 3)) & 3];
    const uint32_t counts[] = {0, 1, 2, TNI_PIECES + (kind >> 2 & 1)};
    return counts[kind & 3];
}

static void send_with(int socket_fd, const void *bytes, size_t size, const int *fds,
                      uint32_t count)
{
    (void)!tni_os_send(socket_fd, bytes, size, fds, count);
}

static void some_request(const struct run *r, struct fuzz_input *in, struct tni_request *q)
{
    static const char *const names[] = {"", "house", "other"};
    uint32_t name = fuzz_u8(in) % 4;
    *q = (struct tni_request){.magic = TNI_REQUEST_MAGIC,
                              .version = TNI_REQUEST_VERSION,
                              .verb = fuzz_u8(in) % 8,
                              .block = tni_block_make(TNI_BACKING_CLASS, fuzz_u8(in) % 4).id,
                              .generation = fuzz_u8(in) % 4};
    snprintf(q->name, sizeof q->name, "%s", name == 3 ? r->id : names[name]);
    fuzz_overlay(in, q, sizeof *q);
}

static void some_entry(const struct run *r, struct fuzz_input *in, struct vault_packet *p)
{
    *p = (struct vault_packet){.magic = VAULT_MAGIC,
                               .verb = 1 + fuzz_u8(in) % 4,
                               .block = tni_block_make(TNI_BACKING_CLASS, fuzz_u8(in) % 4).id,
                               .generation = fuzz_u8(in) % 4};
    memcpy(p->domain, r->hand.header->id, sizeof p->domain);
    fuzz_overlay(in, p, sizeof *p);
}

/* ---- steps ------------------------------------------------------------------------------- */

static void connect_client(struct run *r, uint32_t at)
{
    int fds[2];
    if (r->peers[at] >= 0 && r->t.clients[at].fd >= 0)
        return;
    if (r->peers[at] >= 0)
        close(r->peers[at]);
    FUZZ_CHECK(tni_os_pair(fds) == 0);
    r->peers[at] = fds[0];
    r->t.clients[at] = (struct tenond_client){.fd = fds[1], .since_ns = tni_os_now_ns()};
    FUZZ_CHECK(tni_os_loop_add(r->t.loop, fds[1], tenond_tag(TENOND_CLIENT, 0, at)) == 0);
}

static void empty(int fd)
{
    char bytes[256];
    int fds[TNI_PIECES];
    uint32_t count = 0;
    const struct tni_os_buffer buffer = {bytes, sizeof bytes, fds, TNI_PIECES};
    while (tni_os_receive(fd, &buffer, 0, &count) > 0)
        bundle_close_fds(fds, count);
}

static void ask(struct run *r, struct fuzz_input *in, bool is_raw)
{
    uint32_t at = fuzz_u8(in) % CLIENTS, fd_count;
    struct tni_request request;
    uint8_t raw[256];
    int fds[MOST_FDS];
    connect_client(r, at);
    fd_count = some_fds(r, in, fds);
    if (is_raw) {
        size_t size = 1 + fuzz_u8(in);
        fuzz_fill(in, raw, sizeof raw);
        send_with(r->peers[at], raw, size, fds, fd_count);
    } else {
        some_request(r, in, &request);
        send_with(r->peers[at], &request, sizeof request, fds, fd_count);
    }
    tenond_client_ready(&r->t, at);
    empty(r->peers[at]);
}

/* A vault that says what the input says. */
static void recall(struct run *r, struct fuzz_input *in)
{
    int pair[2], fds[MOST_FDS];
    struct vault_packet p;
    if (r->t.mirror.fd >= 0)
        return;
    FUZZ_CHECK(tni_os_pair(pair) == 0);
    for (uint32_t count = fuzz_u8(in) % 6; count > 0; count--) {
        uint32_t fd_count = some_fds(r, in, fds);
        some_entry(r, in, &p);
        send_with(pair[0], &p, fuzz_u8(in) % 16 == 0 ? 5 : sizeof p, fds, fd_count);
    }
    if (fuzz_u8(in) % 2 == 0)
        shutdown(pair[0], SHUT_WR);
    fuzz_connect_next(pair[1]);
    tenond_recall(&r->t);
    close(pair[0]);
    if (r->t.mirror.fd >= 0)
        tenond_recall_ready(&r->t);
}

static void step(struct run *r, struct fuzz_input *in)
{
    uint64_t now_ns = tni_os_now_ns();
    uint32_t verb = fuzz_u8(in) % 10, seat;
    switch (verb) {
    case 0:
    case 1:
        fuzz_image_patch(&r->hand, in);
        break;
    case 2:
    case 3:
        ask(r, in, verb == 2);
        break;
    case 4:
        tenond_scan_all(&r->t);
        break;
    case 5:
        tni_os_sleep_until(now_ns + (UINT64_C(1) << fuzz_u8(in) % 36));
        break;
    case 6:
        (void)tenond_domains_due(&r->t, now_ns);
        break;
    case 7:
        (void)tenond_clients_due(&r->t, now_ns);
        (void)tenond_recall_due(&r->t, now_ns);
        break;
    case 8:
        seat = (uint32_t)fuzz_number(in);
        tenond_seat_ready(&r->t, fuzz_u8(in), seat);
        break;
    default:
        recall(r, in);
        break;
    }
}

/* ---- one input --------------------------------------------------------------------------- */

static void begin(struct run *r)
{
    r->t.listen_fd = r->t.bell_fd = r->t.stop_fd = r->t.mirror.fd = -1;
    r->t.is_listening = true;
    r->t.bell_number = 77;
    r->t.runtime = tni_manager_runtime();
    r->t.descriptor_limit = 1000;
    r->t.deposit_limit = 3;
    FUZZ_CHECK(tni_os_loop_create(&r->t.loop) == 0);
    tenond_clients_init(&r->t);
    for (int i = 0; i < CLIENTS; i++)
        r->peers[i] = -1;
    for (int i = 0; i < 16; i++)
        snprintf(r->id + 2 * i, 3, "%02x", r->hand.header->id[i]);
}

static void end(struct run *r)
{
    for (int i = 0; i < 3; i++) {
        tni_os_sleep_until(tni_os_now_ns() + UINT64_C(1000000000));
        (void)tenond_domains_due(&r->t, tni_os_now_ns());
    }
    while (r->t.domains != NULL)
        tenond_drop(&r->t, r->t.domains);
    FUZZ_CHECK(r->t.deposit_count == 0 && r->t.domain_count == 0);
    tenond_mirror_fini(&r->t);
    tenond_clients_fini(&r->t);
    for (int i = 0; i < CLIENTS; i++)
        tni_os_close(r->peers[i]);
    tni_os_close(r->t.loop);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes)
{
    struct fuzz_input in = fuzz_input(bytes, size_bytes);
    struct run *r = calloc(1, sizeof *r);
    int control_fd, arena_fd;
    if (r == NULL)
        return 0;
    fuzz_begin();
    fuzz_image_copy(&r->hand);
    begin(r);
    for (uint32_t before = fuzz_u8(&in) % 4; before > 0; before--)
        fuzz_image_patch(&r->hand, &in);
    FUZZ_CHECK(tni_os_duplicate(r->hand.control_fd, &control_fd) == 0);
    FUZZ_CHECK(tni_os_duplicate(r->hand.arena_fd, &arena_fd) == 0);
    (void)!tenond_add(&r->t, control_fd, arena_fd);
    for (uint32_t n = 0; n < STEPS && fuzz_left(&in) > 0; n++)
        step(r, &in);
    end(r);
    tni_segment_detach(&r->hand);
    fuzz_end();
    free(r);
    return 0;
}
