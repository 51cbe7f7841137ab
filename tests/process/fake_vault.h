/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A vault that a test controls. It keeps the descriptors that tenond gives it, counts the
 * requests of tenond, and breaks the connection where the test asks for that. It starts before
 * tenond, which believes that its vault runs already.
 */
#ifndef TENON_TESTS_FAKE_VAULT_H
#define TENON_TESTS_FAKE_VAULT_H

#include <stdlib.h>
#include <sys/mman.h>

#include "harness/harness.h"
#include "os/os.h"
#include "process/process.h"
#include "tenond/bundle.h"
#include "tenond/vault.h"

enum { FAKE_VAULT_ENTRIES = 16, FAKE_VAULT_MS = 20000 };

struct fake_vault {
    _Atomic uint32_t puts, drops, lists; /* requests of each kind */
    _Atomic uint32_t breaks;             /* how many of the next answers to LIST break off */
    bool breaks_with_nonsense;           /* false: it closes the connection */
    uint64_t file;                       /* the inode of its socket */
    pid_t pid;
};

struct fake_vault_entry {
    struct vault_packet packet;
    struct bundle bundle;
};

static inline void fake_vault_send(int fd, const struct vault_packet *packet, uint32_t verb,
                                   const struct bundle *bundle)
{
    struct vault_packet p = *packet;
    p.verb = verb;
    const struct tni_os_message message = {&p, sizeof p, bundle_fds(bundle), bundle->count};
    (void)!tni_os_socket_send(fd, &message, tnt_until_ns(FAKE_VAULT_MS));
}

/* @return whether the client stays */
static inline bool fake_vault_list(struct fake_vault *v, int fd,
                                   const struct fake_vault_entry *at, uint32_t count)
{
    bool breaks = atomic_load(&v->breaks) > 0;
    atomic_fetch_add(&v->lists, 1);
    for (uint32_t i = 0; i < count && !(breaks && i == 1); i++)
        fake_vault_send(fd, &at[i].packet, VAULT_PUT, &at[i].bundle);
    if (!breaks)
        fake_vault_send(fd, &(struct vault_packet){.magic = VAULT_MAGIC}, VAULT_END,
                        &(struct bundle){0});
    else if (v->breaks_with_nonsense)
        (void)!tni_os_send(fd, "nonsense", 8, NULL, 0);
    if (breaks)
        atomic_fetch_sub(&v->breaks, 1);
    return !breaks;
}

static inline void fake_vault_drop(struct fake_vault_entry *at, uint32_t *count,
                                   const struct vault_packet *p)
{
    for (uint32_t i = 0; i < *count; i++)
        if (at[i].packet.block == p->block && at[i].packet.generation == p->generation) {
            bundle_close(&at[i].bundle);
            at[i] = at[--*count];
            return;
        }
}

/* @return whether the client stays */
static inline bool fake_vault_serve(struct fake_vault *v, int fd, struct fake_vault_entry *at,
                                    uint32_t *count)
{
    struct vault_packet p = {0};
    uint32_t fd_count = 0;
    int fds[TNI_PIECES];
    const struct tni_os_buffer buffer = {&p, sizeof p, fds, TNI_PIECES};
    int got = tni_os_receive(fd, &buffer, TNI_FOREVER, &fd_count);
    if (got != (int)sizeof p || p.magic != VAULT_MAGIC)
        return false;
    if (p.verb == VAULT_LIST)
        return fake_vault_list(v, fd, at, *count);
    fake_vault_drop(at, count, &p); /* a put of the same storage replaces the entry */
    if (p.verb == VAULT_PUT) {
        TN_CHECK(*count < FAKE_VAULT_ENTRIES && fd_count > 0);
        at[*count].packet = p;
        TN_CHECK_OK(bundle_make(fds, fd_count, &at[(*count)++].bundle));
    }
    atomic_fetch_add(p.verb == VAULT_PUT ? &v->puts : &v->drops, 1);
    return true;
}

static inline int fake_vault_run(void *vault)
{
    static struct fake_vault_entry entries[FAKE_VAULT_ENTRIES];
    struct fake_vault *v = vault;
    uint32_t count = 0;
    int listen_fd, fd;
    TN_CHECK_OK(tni_os_listen(TNI_VAULT_SOCKET, &listen_fd));
    v->file = tni_os_file_number(TNI_VAULT_SOCKET);
    for (;;) {
        TN_CHECK_OK(tni_os_poll(&listen_fd, 1, TNI_FOREVER));
        if (tni_os_accept(listen_fd, &fd) != 0)
            continue;
        while (fake_vault_serve(v, fd, entries, &count)) {
        }
        tni_os_close(fd);
    }
    return 0;
}

/** pre: no tenond lives. */
static inline struct fake_vault *fake_vault_start(void)
{
    struct fake_vault *v =
        mmap(NULL, sizeof *v, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    TN_CHECK(v != MAP_FAILED);
    TN_CHECK_OK(tni_os_runtime_prepare());
    v->pid = tnt_fork(fake_vault_run, v);
    uint64_t deadline_ns = tnt_until_ns(FAKE_VAULT_MS);
    while (v->file == 0 || tni_os_file_number(TNI_VAULT_SOCKET) != v->file) {
        TN_CHECK(tni_os_now_ns() < deadline_ns);
        tni_os_yield();
    }
    return v;
}

/**
 * Whether tenond has asked this vault to drop no storage that it had, and no other vault has
 * taken its place.
 */
static inline bool fake_vault_has_all(const struct fake_vault *v)
{
    return atomic_load(&v->drops) == 0 && tni_os_file_number(TNI_VAULT_SOCKET) == v->file;
}

static inline void fake_vault_await(const _Atomic uint32_t *counter, uint32_t least)
{
    uint64_t deadline_ns = tnt_until_ns(FAKE_VAULT_MS);
    while (atomic_load(counter) < least) {
        TN_CHECK(tni_os_now_ns() < deadline_ns);
        tni_os_yield();
    }
}

static inline void fake_vault_end(struct fake_vault *v)
{
    tnt_kill(v->pid);
    munmap(v, sizeof *v);
}

#endif
