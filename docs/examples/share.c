/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of tenon/share.h. */
#undef NDEBUG
#include "must.h"

#include <assert.h>
#include <sys/socket.h>
#include <unistd.h>

static void choose(void)
{
    /* show: tn_strategy_set tn_strategy_get tn_strategy_name tn_strategy_parse */
    uint32_t strategy;
    must(tn_strategy_parse("file_descriptor", &strategy)); /* TN_STRATEGY_FILE_DESCRIPTOR */
    must(tn_strategy_set(strategy));                       /* for what is made from now on */
    printf("tensors are made by %s\n", tn_strategy_name(tn_strategy_get()));
    /* end */
    must(tn_strategy_set(TN_STRATEGY_ARENA));
}

static void grow(void)
{
    tn_tensor *log, *longer;
    must(tn_tensor_create_private(TN_UINT8, 1, (int64_t[]){100}, &log));
    /* show: tn_tensor_resize_storage */
    must(tn_tensor_resize_storage(log,
                                  200)); /* of a private tensor; it has 100 elements still */
    must(tn_tensor_view(log, TN_UINT8, 1, (int64_t[]){200}, NULL, 0, &longer));
    /* end */
    tn_tensor_unref(longer);
    tn_tensor_unref(log);
}

static void write_once(tn_domain *domain)
{
    /* show: tn_arena_create tn_arena_allocate tn_arena_room tn_arena_close */
    tn_arena *arena; /* one descriptor and one mapping for all layers of a model */
    tn_tensor *layers[10];
    must(tn_arena_create(domain, 10 * 4096, TN_NOW, &arena));
    for (int i = 0; i < 10; i++)
        must(tn_arena_allocate(arena, TN_FLOAT32, 1, (int64_t[]){1024}, &layers[i]));
    assert(tn_arena_room(arena) == 0);
    arena = tn_arena_close(arena); /* the tensors stay; other processes can only read them */
    /* end */
    for (int i = 0; i < 10; i++)
        tn_tensor_unref(layers[i]);
}

static void fill_before_sealing(tn_domain *domain)
{
    static const float weights[1024];
    /* show: tn_arena_create_unsealed tn_arena_write tn_arena_seal */
    tn_arena *arena;
    tn_tensor *layer;
    must(tn_arena_create_unsealed(domain, sizeof weights, TN_NOW, &arena));
    must(tn_arena_write(arena, 0, weights, sizeof weights)); /* as read from a file */
    must(tn_arena_seal(arena)); /* from now on it makes tensors, and is not written any more */
    must(tn_arena_allocate(arena, TN_FLOAT32, 1, (int64_t[]){1024}, &layer));
    /* end */
    tn_tensor_unref(layer);
    tn_arena_close(arena);
}

static void send_outside(tn_domain *domain)
{
    int sockets[2], fd;
    tn_tensor *image, *received;
    assert(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) == 0);
    /* show: tn_tensor_send tn_tensor_receive */
    must(tn_tensor_create(
        domain, TN_UINT8, 2, (int64_t[]){480, 640},
        TN_OPTIONS(tn_tensor_options, .strategy = TN_STRATEGY_FILE_DESCRIPTOR), &image));
    must(tn_tensor_send(image, sockets[0], TN_SEND_READ_ONLY, TN_FOREVER));

    must(tn_tensor_receive(sockets[1], TN_FOREVER,
                           &received)); /* in a process without a domain */
    /* end */
    tn_tensor_unref(received);

    /* show: tn_tensor_descriptor tn_tensor_from_descriptor */
    must(tn_tensor_descriptor(image, TN_SEND_READ_ONLY, &fd)); /* passed on in whatever way */
    must(tn_tensor_from_descriptor(fd, &received));
    close(fd);
    /* end */
    tn_tensor_unref(received);
    tn_tensor_unref(image);
    close(sockets[0]);
    close(sockets[1]);
}

static void open_file(tn_domain *domain)
{
    tn_tensor *image, *opened;
    /* show: tn_tensor_open_path */
    must(tn_tensor_create(domain, TN_UINT8, 2, (int64_t[]){480, 640},
                          TN_OPTIONS(tn_tensor_options, .strategy = TN_STRATEGY_FILE_SYSTEM),
                          &image));
    tn_tensor_info info = {.struct_size = sizeof info};
    must(tn_tensor_get_info(image, &info)); /* info.path is in /dev/shm */

    must(tn_tensor_open_path(info.path, &opened)); /* in a process without a domain */
    /* end */
    tn_tensor_unref(opened);
    tn_tensor_unref(image);
}

int main(void)
{
    tn_domain *domain;
    must(tn_domain_open(NULL, NULL, 0, &domain));
    choose();
    grow();
    write_once(domain);
    fill_before_sealing(domain);
    send_outside(domain);
    open_file(domain);
    tn_domain_close(domain);
    return 0;
}
