/* SPDX-License-Identifier: Apache-2.0 */
/* The programs of docs/guide/README.md, file_descriptor.md and file_system.md. */
#undef NDEBUG
#include "must.h"

#include <assert.h>
#include <sys/socket.h>
#include <unistd.h>

static void choose(tn_domain *domain, tn_tensor *tensor)
{
    /* show: set */
    must(tn_strategy_set(TN_STRATEGY_FILE_DESCRIPTOR)); /* this process, from now on */
    /* end */
    assert(tn_strategy_get() == TN_STRATEGY_FILE_DESCRIPTOR);
    must(tn_strategy_set(TN_STRATEGY_ARENA));
    /* show: one */
    must(tn_tensor_share(domain, tensor, /* this tensor only */
                         TN_OPTIONS(tn_tensor_options, .strategy = TN_STRATEGY_FILE_SYSTEM)));
    /* end */
}

static void send_one(tn_tensor *tensor, int socket_fd)
{
    /* show: send */
    must(tn_tensor_send(tensor, socket_fd, TN_SEND_READ_ONLY, TN_FOREVER));
    /* end */
}

static void receive_one(int socket_fd)
{
    /* show: receive */
    tn_tensor *tensor;
    must(tn_tensor_receive(socket_fd, TN_FOREVER, &tensor)); /* this process is in no domain */
    /* end */
    assert(tn_tensor_count(tensor) == 6);
    tn_tensor_unref(tensor);
}

static void name_file(tn_tensor *tensor)
{
    /* show: path */
    tn_tensor_info info = {.struct_size = sizeof info};
    must(tn_tensor_get_info(tensor, &info));
    printf("%s\n", info.path);
    /* end */
    const char *path = info.path;
    /* show: open */
    tn_tensor *opened;
    must(tn_tensor_open_path(path, &opened)); /* in any process of the user */
    /* end */
    assert(tn_tensor_count(opened) > 0);
    tn_tensor_unref(opened);
}

int main(void)
{
    tn_domain *domain;
    tn_tensor *private, *sent;
    int sockets[2];
    must(tn_domain_open(NULL, NULL, 0, &domain));
    must(tn_tensor_create_private(TN_FLOAT32, 1, (int64_t[]){6}, &private));
    choose(domain, private);
    name_file(private);
    must(tn_tensor_create(
        domain, TN_FLOAT32, 1, (int64_t[]){6},
        TN_OPTIONS(tn_tensor_options, .strategy = TN_STRATEGY_FILE_DESCRIPTOR), &sent));
    assert(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    send_one(sent, sockets[0]);
    receive_one(sockets[1]);
    close(sockets[0]);
    close(sockets[1]);
    tn_tensor_unref(private);
    tn_tensor_unref(sent);
    tn_domain_close(domain);
    return 0;
}
