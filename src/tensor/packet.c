/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packet: sends a tensor over a socket, and receives one. The invariants are in outside.c.
 *
 * A packet has this wire form, version 1, little-endian. One descriptor travels with its first
 * byte.
 *
 *     0   8  magic, "TENONPKT"
 *     8   2  version, 1
 *    10   2  head bytes: the offset of the view; 24 in version 1
 *    12   4  feature bits that a reader must know; 0 in version 1
 *    16   4  total bytes of the packet, at most 65536
 *    20   4  view bytes
 *    24   v  the tensor: struct tni_view of layout.h, with its attributes
 *  24+v   8  tni_hash() of all bytes before it
 *
 * Every version keeps the places of magic, version, total bytes and the hash in the last 8
 * bytes, so that a reader that refuses a packet still finds the next one in the stream. A
 * reader skips the bytes between its own head and the stated head bytes.
 */
#include <stdlib.h>
#include <string.h>

#include "tensor/outside.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "packets are copied to and from memory without a conversion"
#endif

static const char magic[8] = {'T', 'E', 'N', 'O', 'N', 'P', 'K', 'T'};
enum { PACKET_VERSION = 1, PACKET_MAX_BYTES = 1 << 16 };

struct packet_head {
    char magic[8];
    uint16_t version;
    uint16_t head_bytes;
    uint32_t must_understand;
    uint32_t total_bytes;
    uint32_t view_bytes;
};
_Static_assert(sizeof(struct packet_head) == 24, "the wire form has no padding");
_Static_assert(sizeof(struct packet_head) + TNI_VIEW_MAX_BYTES + TN_ATTRIBUTES_MAX_BYTES +
                       sizeof(uint64_t) <=
                   PACKET_MAX_BYTES,
               "PACKET_MAX_BYTES is enough for every tensor");

/* ---- sending ----------------------------------------------------------------------------- */

/* Write a packet to `ret_bytes`, which is aligned to 8 and large enough. @return its bytes */
static size_t write_packet(const tn_tensor *t, const struct tni_attributes *held,
                           size_t view_bytes, uint32_t flags, uint8_t *ret_bytes)
{
    struct packet_head head = {.version = PACKET_VERSION, .head_bytes = sizeof head};
    const struct tni_storage *s = t->storage;
    const struct tni_outside *o = s->context;
    struct tni_view *view = (void *)(ret_bytes + sizeof head);
    if (s->outside != 0) {
        tni_tensor_encode_all(t, held, view_bytes, view);
        view->block = o->block;
        view->generation = o->mapping.generation;
    } else {
        tni_tensor_encode(t, held, view_bytes, view);
    }
    if ((flags & TN_SEND_READ_ONLY) != 0)
        view->flags |= TNI_VIEW_READ_ONLY;
    memcpy(head.magic, magic, sizeof magic);
    head.view_bytes = (uint32_t)view_bytes;
    size_t hashed = sizeof head + view_bytes;
    head.total_bytes = (uint32_t)(hashed + sizeof(uint64_t));
    memcpy(ret_bytes, &head, sizeof head);
    uint64_t hash = tni_hash(ret_bytes, hashed);
    memcpy(ret_bytes + hashed, &hash, sizeof hash);
    return head.total_bytes;
}

int tn_tensor_send(tn_tensor *tensor, int socket_fd, uint32_t flags, tn_deadline deadline)
{
    int fd;
    int status = tn_tensor_descriptor(tensor, flags, &fd);
    if (status != 0)
        return status;
    struct tni_attributes *held = tni_attributes_hold(tensor);
    size_t view_bytes = tni_tensor_view_bytes(tensor, held);
    uint8_t *bytes = malloc(sizeof(struct packet_head) + view_bytes + sizeof(uint64_t));
    if (bytes == NULL) {
        status = tni_fail(TN_ERR_NO_MEMORY, "no private memory for a packet");
    } else {
        size_t size_bytes = write_packet(tensor, held, view_bytes, flags, bytes);
        const struct tni_os_message message = {bytes, size_bytes, &fd, 1};
        status = tni_os_socket_send(socket_fd, &message, deadline.ns);
    }
    tni_attributes_drop(held);
    free(bytes);
    tni_os_close(fd);
    return status;
}

/* ---- receiving --------------------------------------------------------------------------- */

/* @return the total bytes that the head of a packet states; 0: `bytes` is no such head */
static size_t packet_bytes(const void *bytes)
{
    struct packet_head head;
    memcpy(&head, bytes, sizeof head);
    if (memcmp(head.magic, magic, sizeof magic) != 0 ||
        head.total_bytes < sizeof head + sizeof(uint64_t) ||
        head.total_bytes > PACKET_MAX_BYTES)
        return 0;
    return head.total_bytes;
}

static int check_packet(const uint8_t *bytes, size_t size_bytes, struct packet_head *ret_head)
{
    struct packet_head head;
    uint64_t hash;
    size_t hashed = size_bytes - sizeof hash;
    memcpy(&head, bytes, sizeof head);
    memcpy(&hash, bytes + hashed, sizeof hash);
    if (hash != tni_hash(bytes, hashed))
        return tni_fail(
            TN_ERR_INVALID,
            "the packet of %zu bytes has a wrong checksum: it was altered on its way",
            size_bytes);
    if (head.version != PACKET_VERSION)
        return tni_fail(TN_ERR_VERSION,
                        "the packet has version %u of the wire form instead of %d",
                        head.version, PACKET_VERSION);
    if (head.must_understand != 0)
        return tni_fail(TN_ERR_VERSION,
                        "the packet needs features that this version does not know: 0x%x",
                        head.must_understand);
    if (head.head_bytes < sizeof head || head.head_bytes % 8 != 0 ||
        (uint64_t)head.head_bytes + head.view_bytes != hashed ||
        head.view_bytes < sizeof(struct tni_view))
        return tni_fail(TN_ERR_INVALID,
                        "the packet has %zu bytes, but states a head of %u and a view of %u",
                        size_bytes, head.head_bytes, head.view_bytes);
    *ret_head = head;
    return 0;
}

/* Make the tensor that a packet describes. pre: check_packet() passed */
static int build_received(struct tni_outside *o, const uint8_t *bytes,
                          const struct packet_head *head, tn_tensor **ret_tensor)
{
    struct tni_view view;
    memcpy(&view, bytes + head->head_bytes, sizeof view);
    if (view.block != o->block || view.generation != o->mapping.generation)
        return tni_fail(
            TN_ERR_INVALID,
            "the packet names block %08x (generation %u), but its storage is block %08x (%u)",
            view.block, view.generation, o->block, o->mapping.generation);
    return tni_outside_build(o, TN_STRATEGY_FILE_DESCRIPTOR, bytes + head->head_bytes,
                             head->view_bytes, ret_tensor);
}

/* Check a packet and make its tensor. The call consumes the descriptor. */
static int open_packet(const uint8_t *bytes, size_t size_bytes, int fd, tn_tensor **ret_tensor)
{
    struct packet_head head;
    struct tni_outside *o = NULL;
    int status = check_packet(bytes, size_bytes, &head);
    if (status == 0 && fd < 0)
        status = tni_fail(TN_ERR_INVALID, "the packet has no descriptor with it");
    if (status == 0)
        status = tni_outside_map(fd, &o);
    if (status != 0) {
        tni_os_close(fd);
        return status;
    }
    status = build_received(o, bytes, &head, ret_tensor);
    if (status != 0)
        tni_outside_release(o);
    return status;
}

int tn_tensor_receive(int socket_fd, tn_deadline deadline, tn_tensor **ret_tensor)
{
    int fd = -1;
    int status = tni_tensor_check_result(ret_tensor, "ret_tensor");
    if (status != 0)
        return status;
    uint8_t *bytes = malloc(PACKET_MAX_BYTES);
    if (bytes == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "no private memory for a packet");
    int received =
        tni_os_socket_receive(socket_fd,
                              &(struct tni_os_packet){bytes, PACKET_MAX_BYTES,
                                                      sizeof(struct packet_head), packet_bytes},
                              deadline.ns, &fd);
    status = received < 0
                 ? received
                 : tni_outside_fault(open_packet(bytes, (size_t)received, fd, ret_tensor));
    free(bytes);
    return status;
}
