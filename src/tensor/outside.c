/* SPDX-License-Identifier: Apache-2.0 */
/*
 * outside: sends tensors to processes outside of the domain, and receives tensors from there.
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
 *  24+v   8  tni_hash() of all bytes before
 *
 * Every version keeps the places of magic, version, total bytes and the hash in the last 8
 * bytes, so that a reader that refuses a packet still finds the next one in the stream. A
 * reader skips the bytes between its own head and the stated head bytes.
 *
 * Nouns: packet, outside storage (its memory is not in a domain of this process).
 * I1  An outside storage has a mapping of its own, which is in no domain's table. The mapping
 *     and its descriptor are closed with the storage.
 * I2  Bytes from the sender, and the header in the memory object, are read once and checked
 *     against the size that the kernel states for the object: a view lies inside of the
 * mapping. Callers: the user. When a process dies, the kernel closes mapping and descriptor. At
 * most an entry in the `holders` of a file is left, which store.c ignores.
 */
#include <stdlib.h>
#include <string.h>

#include "tensor/build.h"

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

/* What an outside storage owns. */
struct outside {
    struct tni_mapping mapping; /* with its descriptor, to send it on; -1 for a file */
    uint32_t block;             /* its number in the domain that made it */
    uint32_t entry;             /* this process's entry in the holders of a file */
};
_Static_assert(offsetof(struct outside, mapping) == 0,
               "path_of() in about.c casts a context to the mapping");

/* ---- descriptors ------------------------------------------------------------------------- */

/*
 * Whether the descriptor still names the object. A program may close descriptors that it did
 * not open, and then the number may name another file of the program.
 */
static bool has_descriptor(const struct tni_mapping *m)
{
    struct tni_os_memory memory;
    return m->fd >= 0 && tni_os_memory_stat(m->fd, &memory) == 0 && memory.inode == m->inode;
}

static int open_outside(const struct outside *o, bool read_only, int *ret_fd)
{
    const struct tni_mapping *m = &o->mapping;
    if (!has_descriptor(m))
        return tni_fail(TN_ERR_SYSTEM,
                        "the program closed the descriptor %d, which belongs to a tensor",
                        m->fd);
    /* A read-only descriptor is duplicated: a process of another user could not reopen it. */
    return read_only && !m->is_read_only ? tni_os_memory_reopen(m->fd, true, ret_fd)
                                         : tni_os_duplicate(m->fd, ret_fd);
}

static int check_sendable(const tn_tensor *t, uint32_t flags)
{
    int status = tni_tensor_check(t);
    if (status != 0)
        return status;
    if ((flags & ~(uint32_t)TN_SEND_READ_ONLY) != 0)
        return tni_fail(TN_ERR_INVALID, "the send flags have bits that are not known: 0x%x",
                        flags);
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

/* Write a packet to `ret_bytes`, which is aligned to 8 and large enough. @return its bytes */
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

/* ---- outside storages -------------------------------------------------------------------- */

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

/*
 * Map the object of a descriptor, for writing if the descriptor allows it. On success the
 * mapping owns the descriptor.
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

/* Make the tensor that a view describes. On success the tensor owns `o`. */
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
        return tni_fail(TN_ERR_CORRUPT, "a view states %zu bytes, but takes %d", view_bytes,
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

/* Make the tensor that the header of the memory object states. */
static int build_as_stated(struct outside *o, uint32_t strategy, tn_tensor **ret_tensor)
{
    _Alignas(8) uint8_t bytes[TNI_VIEW_MAX_BYTES];
    struct tni_view *view = (void *)bytes;
    tn_storage_header h;
    memcpy(&h, o->mapping.address, sizeof h);
    if (h.strategy != strategy)
        return tni_fail(TN_ERR_CORRUPT,
                        "the header of the storage states the strategy %u instead of %u",
                        h.strategy, strategy);
    if (h.ndim < 0 || h.ndim > TN_MAX_NDIM)
        return tni_fail(
            TN_ERR_CORRUPT,
            "the header of the storage states a tensor of %d axes, which no tensor has",
            h.ndim);
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

/* Invalid data of an untrusted sender is an invalid argument, not damage of a domain. */
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

/* The total bytes that the head of a packet states; 0: it is not the head of a packet. */
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

/* pre: check_packet() passed */
static int build_received(struct outside *o, const uint8_t *bytes,
                          const struct packet_head *head, tn_tensor **ret_tensor)
{
    struct tni_view view;
    memcpy(&view, bytes + head->head_bytes, sizeof view);
    if (view.block != o->block || view.generation != o->mapping.generation)
        return tni_fail(
            TN_ERR_INVALID,
            "the packet names block %08x (generation %u), but its storage is block %08x (%u)",
            view.block, view.generation, o->block, o->mapping.generation);
    return build(o, TN_STRATEGY_FILE_DESCRIPTOR, bytes + head->head_bytes, head->view_bytes,
                 ret_tensor);
}

/* Make the tensor of a packet. The call consumes the descriptor. */
static int open_packet(const uint8_t *bytes, size_t size_bytes, int fd, tn_tensor **ret_tensor)
{
    struct packet_head head;
    struct outside *o = NULL;
    int status = check_packet(bytes, size_bytes, &head);
    if (status == 0 && fd < 0)
        status = tni_fail(TN_ERR_INVALID, "the packet has no descriptor with it");
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
        return tni_fail(TN_ERR_INVALID, "'%.128s' is not an absolute path",
                        path != NULL ? path : "");
    if ((status = attach_file(path, &o)) != 0)
        return status;
    status = build_as_stated(o, TN_STRATEGY_FILE_SYSTEM, ret_tensor);
    if (status != 0)
        release_outside(o);
    return status;
}
