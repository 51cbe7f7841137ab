/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_vault: packets to the vault, from clients one after the other. Each has said all and
 * closed its side before the vault listens; what the vault answers waits in the socket.
 */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "fuzz.h"
#include "reaper/reaper.h"
#include "tenond/vault.h"

enum { CLIENTS = 3, PACKETS = 24 };

static int connect_to(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s/%s", fuzz_folder(), name);
    FUZZ_CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
    return fd;
}

static void say(struct fuzz_input *in, int fd)
{
    struct vault_packet p = {.magic = VAULT_MAGIC};
    uint32_t what = fuzz_u8(in), few = fuzz_u8(in);
    uint32_t fd_count = what >> 2 & 1;
    static const uint32_t counts[] = {0, 2, TNI_PIECES, TNI_PIECES + 1};
    int fds[TNI_PIECES + 1];
    for (uint32_t i = 0; i < TNI_COUNT(fds); i++)
        fds[i] = i % 2 == 0 ? fd : STDIN_FILENO;
    p.verb = 1 + (what & 3);
    p.block = few % 8;
    p.generation = few / 8 % 4;
    p.domain[0] = (uint8_t)(few / 32);
    if ((what & 0x10) != 0)
        fuzz_overlay(in, &p, sizeof p);
    if ((what & 0x20) != 0)
        fd_count = counts[(what >> 6) % 4];
    size_t size = (what & 0x18) == 0x18 ? 1 + fuzz_u8(in) % sizeof p : sizeof p;
    (void)!tni_os_send(fd, &p, size, fds, fd_count);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes)
{
    struct fuzz_input in = fuzz_input(bytes, size_bytes);
    int clients[CLIENTS], listen_fd;
    fuzz_begin();
    FUZZ_CHECK(tni_os_listen(TNI_VAULT_SOCKET, &listen_fd) == 0);
    for (int i = 0; i < CLIENTS; i++) {
        clients[i] = connect_to(TNI_VAULT_SOCKET);
        for (uint32_t n = fuzz_u8(&in) % PACKETS; n > 0 && fuzz_left(&in) > 0; n--)
            say(&in, clients[i]);
        shutdown(clients[i], SHUT_WR);
    }
    FUZZ_CHECK(vault_run(listen_fd, tni_os_file_number(TNI_VAULT_SOCKET)) == 0);
    for (int i = 0; i < CLIENTS; i++)
        close(clients[i]);
    close(listen_fd);
    tni_os_file_remove(TNI_VAULT_SOCKET);
    fuzz_end();
    return 0;
}
