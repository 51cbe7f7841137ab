/* SPDX-License-Identifier: Apache-2.0 */
/*
 * outside: tensors that leave their domain, and that come from beyond it.
 *
 * A packet, version 1, little-endian; one descriptor goes along with its first byte:
 *
 *     0   8  magic, "TENONPKT"
 *     8   2  version, 1
 *    10   2  head bytes: where the view begins; 24 in version 1
 *    12   4  bits that must be understood; 0 in version 1
 *    16   4  total bytes of the packet, at most 65536
 *    20   4  view bytes
 *    24   v  the tensor: struct tni_view of layout.h, with its attributes
 *  24+v   8  tni_hash() of all bytes before
 *
 * Magic, version, total bytes, and the hash in the last 8 bytes stay where they are in every
 * version, so that a stream stays in step when a packet is refused. A reader skips what lies
 * between its own head and the stated head bytes.
 *
 * I1  What came from outside has a mapping of its own, in no domain's table; it ends with the
 *     storage, and its descriptor with it.
 * I2  Bytes from the other side and the header in the object are read once and checked against
 *     what the kernel says of the object: a view lies inside of the mapping.
 * A death takes mapping and descriptor with it, and leaves at most an entry in a file's
 * `holders`, which counts for nothing (store.c).
 */
#include <stdlib.h>
#include <string.h>

#include "tensor/build.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "packets are copied as they lie in memory"
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
_Static_assert(sizeof(struct packet_head) == 24, "the wire form has no holes");
_Static_assert(sizeof(struct packet_head) + TNI_VIEW_MAX_BYTES + TN_ATTRIBUTES_MAX_BYTES +
                       sizeof(uint64_t) <=
                   PACKET_MAX_BYTES,
               "PACKET_MAX_BYTES suffices");

/* What a storage that came from outside owns. */
struct outside {
    struct tni_mapping mapping; /* its descriptor is kept, for sending it on; of a file: -1 */
    uint32_t block;             /* in the domain that it came from */
    uint32_t entry;             /* of a file's holders */
};
_Static_assert(offsetof(struct outside, mapping) == 0, "about.c looks at the mapping");

/* ---- descriptors ------------------------------------------------------------------------- */

/* A program that closes what it did not open may have its own behind this number by now. */
static bool has_descriptor(const struct tni_mapping *m)
{
    struct tni_os_memory memory;
    return m->fd >= 0 && tni_os_memory_stat(m->fd, &memory) == 0 && memory.inode == m->inode;
}

static int open_outside(const struct outside *o, bool read_only, int *ret_fd)
{
    const struct tni_mapping *m = &o->mapping;
    if (!has_descriptor(m))
        return tni_fail(TN_ERR_SYSTEM, "the descriptor %d of the tensor was closed by somebody",
                        m->fd);
    /* One that only reads is good as it is; another user could not open it anew. */
    return read_only && !m->is_read_only ? tni_os_memory_reopen(m->fd, true, ret_fd)
                                         : tni_os_duplicate(m->fd, ret_fd);
}

static int check_sendable(const tn_tensor *t, uint32_t flags)
{
    int status = tni_tensor_check(t);
    if (status != 0)
        return status;
    if ((flags & ~(uint32_t)TN_SEND_READ_ONLY) != 0)
        return tni_fail(TN_ERR_INVALID, "send flags 0x%x", flags);
    uint32_t strategy = tni_tensor_strategy(t);
    if (strategy == TN_STRATEGY_DEFAULT)
        return tni_fail(TN_ERR_INVALID, "the tensor is private: tn_tensor_share() it first, "
                                        "by the strategy 'file_descriptor'");
    if (strategy != TN_STRATEGY_FILE_DESCRIPTOR)
        return tni_fail(TN_ERR_UNSUPPORTED,
                        "a storage of the strategy '%s' has no descriptor of its own to send: "
                        "copy the tensor into one of 'file_descriptor'%s",
                        tn_strategy_name(strategy),
                        strategy == TN_STRATEGY_FILE_SYSTEM ? ", or send its path" : "");
    return 0;
}

int tn_tensor_descriptor(tn_tensor *tensor, uint32_t flags, int *ret_fd)
{
    bool read_only = (flags & TN_SEND_READ_ONLY) != 0;
    int status = check_sendable(tensor, flags);
    if (status == 0)
        status = tni_tensor_check_result(ret_fd);
    if (status != 0)
        return status;
    const struct tni_storage *s = tensor->storage;
    if (s->outside != 0)
        return open_outside(s->context, read_only, ret_fd);
    if ((status = tni_process_check(s->domain)) != 0)
        return status;
    return tni_backing_open(s->domain, s->mapping, s->block, read_only, ret_fd);
}

/* ---- sending ----------------------------------------------------------------------------- */

/* @return bytes; `ret_bytes` is aligned to 8 and has room for all, with a view of `view_bytes`
 */
static size_t write_packet(const tn_tensor *t, const struct tni_attributes *held,
                           size_t view_bytes, uint32_t flags, uint8_t *ret_bytes)
{
    struct packet_head head = {.version = PACKET_VERSION, .head_bytes = sizeof head};
    const struct tni_storage *s = t->storage;
    const struct outside *o = s->context;
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
        status = tni_os_socket_send(socket_fd, bytes, size_bytes, fd, deadline.ns);
    }
    tni_attributes_drop(held);
    free(bytes);
    tni_os_close(fd);
    return status;
}

/* ---- storages from outside --------------------------------------------------------------- */

static void release_outside(void *context)
{
    struct outside *o = context;
    struct tni_mapping *m = &o->mapping;
    if (m->path != NULL)
        tni_store_detach(m, o->entry);
    tni_os_unmap(m->address, m->object_bytes);
    if (has_descriptor(m))
        tni_os_close(m->fd);
    free(m->path);
    free(o);
}

/* Map for writing where the descriptor allows it. It becomes the mapping's, but for a failure.
 */
static int map_outside(int fd, struct outside **ret_outside)
{
    struct outside *o = calloc(1, sizeof *o);
    if (o == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "no private memory for a storage");
    int status = tni_store_map(fd, false, false, &o->mapping);
    if (status == TN_ERR_DENIED)
        status = tni_store_map(fd, false, true, &o->mapping);
    if (status != 0) {
        free(o);
        return status;
    }
    o->mapping.fd = fd;
    o->block = ((const tn_storage_header *)(void *)o->mapping.address)->block;
    *ret_outside = o;
    return 0;
}

/* Build the tensor that a view says, and give it this storage. */
static int build(struct outside *o, uint32_t strategy, const void *view, size_t view_bytes,
                 tn_tensor **ret_tensor)
{
    const struct tni_mapping *m = &o->mapping;
    tn_tensor *t;
    int used = tni_tensor_decode_as(view, view_bytes, m->data_bytes, &t);
    if (used < 0)
        return used;
    struct tni_storage *s = t->storage;
    if ((size_t)used != view_bytes) {
        tni_tensor_end(t);
        return tni_fail(TN_ERR_CORRUPT, "a view of %zu bytes, %d of them used", view_bytes,
                        used);
    }
    s->outside = (uint8_t)strategy;
    s->is_read_only = m->is_read_only;
    s->data = m->address + m->data_offset;
    s->size_bytes = m->data_bytes;
    s->release = release_outside;
    s->context = o;
    *ret_tensor = t;
    return 0;
}

/* The tensor that the storage was made for, as its header states it. */
static int build_as_stated(struct outside *o, uint32_t strategy, tn_tensor **ret_tensor)
{
    _Alignas(8) uint8_t bytes[TNI_VIEW_MAX_BYTES];
    struct tni_view *view = (void *)bytes;
    tn_storage_header h;
    memcpy(&h, o->mapping.address, sizeof h);
    if (h.strategy != strategy)
        return tni_fail(TN_ERR_CORRUPT, "the storage states the strategy %u, not %u",
                        h.strategy, strategy);
    if (h.ndim < 0 || h.ndim > TN_MAX_NDIM)
        return tni_fail(TN_ERR_CORRUPT, "the storage states a tensor of %d axes", h.ndim);
    *view = (struct tni_view){.block = h.block,
                              .generation = h.generation,
                              .byte_offset = h.byte_offset,
                              .code = h.dtype_code,
                              .bits = h.dtype_bits,
                              .lanes = h.dtype_lanes,
                              .ndim = (uint8_t)h.ndim};
    size_t extent_bytes = (size_t)h.ndim * sizeof(int64_t);
    memcpy(view->extents, h.shape, extent_bytes);
    memcpy(view->extents + h.ndim, h.strides, extent_bytes);
    return build(o, strategy, bytes, sizeof *view + 2 * extent_bytes, ret_tensor);
}

/* From somebody who may say anything: none of it is damage of ours. */
static int fault_of_sender(int status)
{
    return status == TN_ERR_CORRUPT || status == TN_ERR_DENIED ? TN_ERR_INVALID : status;
}

int tn_tensor_from_descriptor(int fd, tn_tensor **ret_tensor)
{
    struct tni_os_memory memory;
    struct outside *o;
    int ours;
    int status = tni_tensor_check_result(ret_tensor);
    if (status != 0 || (status = tni_os_memory_stat(fd, &memory)) != 0 ||
        (status = tni_os_duplicate(fd, &ours)) != 0)
        return status;
    if ((status = map_outside(ours, &o)) != 0) {
        tni_os_close(ours);
        return fault_of_sender(status);
    }
    status = build_as_stated(o, TN_STRATEGY_FILE_DESCRIPTOR, ret_tensor);
    if (status != 0)
        release_outside(o);
    return fault_of_sender(status);
}

/* ---- receiving --------------------------------------------------------------------------- */

/* How long a packet with this head is; 0: it is none. */
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
        return tni_fail(TN_ERR_INVALID, "a packet of %zu bytes was altered", size_bytes);
    if (head.version != PACKET_VERSION)
        return tni_fail(TN_ERR_VERSION, "the packet has version %u of the wire form, not %d",
                        head.version, PACKET_VERSION);
    if (head.must_understand != 0)
        return tni_fail(TN_ERR_VERSION,
                        "the packet has parts 0x%x that this version does not know",
                        head.must_understand);
    if (head.head_bytes < sizeof head || head.head_bytes % 8 != 0 ||
        (uint64_t)head.head_bytes + head.view_bytes != hashed ||
        head.view_bytes < sizeof(struct tni_view))
        return tni_fail(TN_ERR_INVALID, "a packet of %zu bytes states %u + %u", size_bytes,
                        head.head_bytes, head.view_bytes);
    *ret_head = head;
    return 0;
}

/* pre: check_packet() */
static int build_received(struct outside *o, const uint8_t *bytes,
                          const struct packet_head *head, tn_tensor **ret_tensor)
{
    struct tni_view view;
    memcpy(&view, bytes + head->head_bytes, sizeof view);
    if (view.block != o->block || view.generation != o->mapping.generation)
        return tni_fail(TN_ERR_INVALID,
                        "the packet is of block %x (generation %u), its storage of %x (%u)",
                        view.block, view.generation, o->block, o->mapping.generation);
    return build(o, TN_STRATEGY_FILE_DESCRIPTOR, bytes + head->head_bytes, head->view_bytes,
                 ret_tensor);
}

/* The descriptor is consumed. */
static int open_packet(const uint8_t *bytes, size_t size_bytes, int fd, tn_tensor **ret_tensor)
{
    struct packet_head head;
    struct outside *o = NULL;
    int status = check_packet(bytes, size_bytes, &head);
    if (status == 0 && fd < 0)
        status = tni_fail(TN_ERR_INVALID, "the packet came without a descriptor");
    if (status == 0)
        status = map_outside(fd, &o);
    if (status != 0) {
        tni_os_close(fd);
        return status;
    }
    status = build_received(o, bytes, &head, ret_tensor);
    if (status != 0)
        release_outside(o);
    return status;
}

int tn_tensor_receive(int socket_fd, tn_deadline deadline, tn_tensor **ret_tensor)
{
    int fd = -1;
    int status = tni_tensor_check_result(ret_tensor);
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
                 : fault_of_sender(open_packet(bytes, (size_t)received, fd, ret_tensor));
    free(bytes);
    return status;
}

/* ---- files by path ----------------------------------------------------------------------- */

static int attach_file(const char *path, struct outside **ret_outside)
{
    struct outside *o = calloc(1, sizeof *o);
    char *copy = strdup(path);
    int fd = -1;
    int status = o != NULL && copy != NULL
                     ? tni_os_shm_open(path, &fd)
                     : tni_fail(TN_ERR_NO_MEMORY, "no private memory for a storage");
    if (status != 0)
        goto fail;
    status = tni_store_map(fd, true, false, &o->mapping);
    tni_os_close(fd);
    if (status != 0)
        goto fail;
    o->mapping.path = copy;
    if ((status = tni_store_attach(&o->mapping, &o->entry)) != 0) {
        tni_os_unmap(o->mapping.address, o->mapping.object_bytes);
        goto fail;
    }
    *ret_outside = o;
    return 0;

fail:
    free(copy);
    free(o);
    return status;
}

int tn_tensor_open_path(const char *path, tn_tensor **ret_tensor)
{
    struct outside *o;
    int status = tni_tensor_check_result(ret_tensor);
    if (status != 0)
        return status;
    if (path == NULL || path[0] != '/')
        return tni_fail(TN_ERR_INVALID, "'%.128s' is no absolute path",
                        path != NULL ? path : "");
    if ((status = attach_file(path, &o)) != 0)
        return status;
    status = build_as_stated(o, TN_STRATEGY_FILE_SYSTEM, ret_tensor);
    if (status != 0)
        release_outside(o);
    return status;
}
