/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_reply: replies of a program that pretends to be tenond, to a process that searches for
 * a domain by its name, and to a member that wants a descriptor.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fuzz.h"
#include "reaper/reaper.h"

enum { MOST_FDS = 3 };

/* Answers wait in the socket before there is a question. @return the other end */
static int answer(struct fuzz_input *in, const struct tni_segment *hand)
{
    int pair[2], fds[MOST_FDS];
    FUZZ_CHECK(tni_os_pair(pair) == 0);
    for (uint32_t n = fuzz_u8(in) % 3; n > 0; n--) {
        struct tni_reply reply = {.magic = TNI_REQUEST_MAGIC, .pid = tni_os_pid()};
        uint32_t kind = fuzz_u8(in), size = sizeof reply;
        const int all[] = {hand->control_fd, hand->arena_fd, STDIN_FILENO, fuzz_found()};
        fds[0] = all[kind >> 2 & 3];
        fds[1] = all[kind >> 4 & 3];
        fds[2] = all[kind >> 6 & 3];
        fuzz_overlay(in, &reply, sizeof reply);
        if (fuzz_u8(in) % 8 == 7)
            size = 1 + fuzz_u8(in) % size;
        (void)!tni_os_send(pair[0], &reply, size, fds, kind & 3);
    }
    fuzz_connect_next(pair[1]);
    return pair[0];
}

static void join(void)
{
    tn_domain *d;
    if (tn_domain_open("house", NULL, TN_OPEN_EXISTING, &d) == 0)
        tn_domain_close(d);
}

/* Import a tensor of a domain that a tenond manages. */
static void import(struct fuzz_input *in, const struct tni_segment *hand)
{
    const struct fuzz_handle *handle = fuzz_image_handle(2);
    tn_domain *d;
    tn_tensor *t;
    hand->header->flags = 0;
    if (fuzz_image_join(hand, &d) != 0)
        return;
    for (int i = 0; i < 2; i++) {
        int peer = answer(in, hand);
        if (tn_handle_import(d, handle->bytes, handle->size_bytes, &t) == 0) {
            fuzz_touch(t);
            tn_tensor_unref(t);
        }
        fuzz_connect_next(-1);
        close(peer);
    }
    tn_domain_close(d);
}

static void make(struct fuzz_input *in, const struct tni_segment *hand)
{
    const tn_tensor_options options = {.struct_size = sizeof options,
                                       .strategy = TN_STRATEGY_FILE_DESCRIPTOR};
    tn_domain *d;
    tn_tensor *t;
    hand->header->flags = 0;
    if (fuzz_image_join(hand, &d) != 0)
        return;
    int peer = answer(in, hand);
    if (tn_tensor_create(d, TN_INT8, 1, (int64_t[]){100}, &options, &t) == 0) {
        fuzz_touch(t);
        tn_tensor_unref(t);
    }
    close(peer);
    tn_domain_close(d);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes)
{
    struct fuzz_input in = fuzz_input(bytes, size_bytes);
    struct tni_segment hand;
    uint32_t what = fuzz_u8(&in) % 4;
    fuzz_begin();
    fuzz_image_copy(&hand);
    if (what <= 1) {
        snprintf(hand.header->name, sizeof hand.header->name, "house");
        if (what == 1)
            fuzz_image_patch(&hand, &in);
        int peer = answer(&in, &hand);
        join();
        close(peer);
    }
    if (what == 2)
        import(&in, &hand);
    if (what == 3)
        make(&in, &hand);
    tni_segment_detach(&hand);
    fuzz_end();
    return 0;
}
