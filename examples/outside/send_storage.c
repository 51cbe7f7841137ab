/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Send a tensor to a program that does not use tenon: map_storage.c, started with one end of a
 * socket as its standard input. It gets a descriptor that only reads.
 */
#include <libgen.h>
#include <limits.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../must.h"

enum { ROWS = 100, COLUMNS = 100 };

/* The program that lies beside this one. */
static void become_reader(int socket_fd)
{
    char path[PATH_MAX] = "", program[PATH_MAX + 16];
    if (readlink("/proc/self/exe", path, sizeof path - 1) > 0 &&
        dup2(socket_fd, STDIN_FILENO) == STDIN_FILENO) {
        snprintf(program, sizeof program, "%s/map_storage", dirname(path));
        execl(program, program, (char *)NULL);
    }
    perror("map_storage");
    _exit(1);
}

static void send_to(int socket_fd)
{
    tn_domain *domain;
    tn_tensor *tensor;
    tn_tensor_options options = {.struct_size = sizeof options,
                                 .strategy = TN_STRATEGY_FILE_DESCRIPTOR};
    must(tn_domain_open(NULL, NULL, 0, &domain));
    must(
        tn_tensor_create(domain, TN_FLOAT32, 2, (int64_t[]){ROWS, COLUMNS}, &options, &tensor));
    float *element = tn_tensor_data(tensor);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        element[i] = 0.5F;
    must(tn_tensor_send(tensor, socket_fd, TN_SEND_READ_ONLY,
                        tn_deadline_after(10 * UINT64_C(1000000000))));
    tn_tensor_unref(tensor);
    tn_domain_close(domain); /* what was sent stays */
}

int main(void)
{
    int sockets[2], status;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0)
        return perror("socketpair"), 1;
    pid_t reader = fork();
    if (reader == 0)
        become_reader(sockets[1]);
    close(sockets[1]);
    send_to(sockets[0]);
    if (reader < 0 || waitpid(reader, &status, 0) != reader)
        return perror("map_storage"), 1;
    return status == 0 ? 0 : 1;
}
