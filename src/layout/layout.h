/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout: every struct that two processes read.
 *
 * A domain is two memory objects. The arena holds payload only. The control segment holds, in
 * this order, each section starting on a page:
 *
 *   header     1                      struct tni_header
 *   seats      seats                  struct tni_seat
 *   announces  seats x 32             struct tni_announce, one for each thread record
 *   classes    TNI_CLASSES            struct tni_class, the shared state of a size class
 *   words      blocks of all classes  one 64-bit word for each block
 *   descs      blocks of all classes  struct tni_desc, what a block is
 *   hints      a bit a block          the block may be free; a wrong hint costs time only
 *   suspects   2 x a bit a block      a death may have left the block's count too high
 *   rows       seats x a bit a block  rows of holds: the seat has a reference to the block
 *   objects    objects                struct tni_object: queues, events, locks, ...
 *   tickets    tickets                struct tni_ticket
 *   names      2^n >= objects         number + 1 of an object whose name has this tni_hash()
 *                                     modulo 2^n; 0: none
 *   opens      seats x a bit an object  the object may be open in the seat
 *   loose      2 x a bit an object    TNI_LOOSE_*: a reaper may have to end or recount it
 *   issues     seats x a bit for 64 tickets  the seat may have issued some of them
 *   values     TNI_TIMELINES          one 64-bit word for each timeline, which streams of
 *                                     devices write and wait for
 *   timelines  TNI_TIMELINES          struct tni_timeline: who writes the word
 *   leases     TNI_LEASES             struct tni_lease: who has memory open that an allocator
 *                                     of another process made
 *
 * Where each section lies follows from five numbers in the header (seats, blocks, objects,
 * tickets, quota). A process that attaches checks those numbers, computes the geometry itself
 * (geometry.h) and compares the size of the segment with it. Offsets are never read from shared
 * memory.
 *
 * No field is a pointer. Every index that is read from shared memory passes one of the
 * tni_geometry_has_*() tests before it is used. A comment may name the writer of a field:
 * `owner` is the process of the seat, `any` is any member, by an atomic operation.
 *
 * A block is named by {class:8, index:24}; 0 is no block (class 0 does not exist). Blocks of
 * one class have one size and lie side by side in the class's own part of the arena. A block's
 * place follows from its number, so there is no map of the arena that a death could leave half
 * written. This spends address space, but no memory, since the arena is sparse. See
 * docs/decisions/0002.
 *
 * Nearly all structs are in one file of more than 400 lines, so that its diff shows changes of
 * the layout; devices.h has those of work on devices, stores.h those of stores, channels.h
 * those of channels, and words.h the words whose bits are fields.
 */
#ifndef TNI_LAYOUT_H
#define TNI_LAYOUT_H

#include <stdatomic.h>

#include "base/base.h"
#include "layout/words.h"

#define TNI_MAGIC UINT64_C(0x314E4F4E4554) /* "TENON1", little-endian bytes */
/* A macro, since names contain this number. Tests also build the library with another one. */
#ifndef TNI_LAYOUT_VERSION_TEST
#define TNI_LAYOUT_VERSION 10
#else
#define TNI_LAYOUT_VERSION TNI_LAYOUT_VERSION_TEST
#endif
enum {
    TNI_BYTE_ORDER = 0x01020304,
    TNI_THREADS = 32, /* announces of a seat */
    TNI_MIN_QUOTA_BYTES = 1 << 20,
    TNI_MAX_SEATS = 1024,
    TNI_MAX_BLOCKS = 1 << 23,
    TNI_MAX_OBJECTS = 1 << 16,
    TNI_MAX_TICKETS = 1 << 20,
    TNI_MAX_BACKINGS = 1 << 16,
    TNI_BACKING_BLOCK_BYTES = 512,
    TNI_CLASSES = 80,
    TNI_TIMELINES = 512,
    TNI_LEASES = 4096,
    TNI_SLAB_BYTES = 64 << 20, /* the most memory of a device that is cut into blocks at once */
    TNI_NAME_BYTES = 64,
    TNI_OBJECT_NAME_BYTES = 48,
    TNI_SEAT_WORDS = TNI_MAX_SEATS / 64,
    TNI_ID_INODE_BYTES = 4,
    TNI_NO_SEAT = 0xffff
};

/* ---- header ------------------------------------------------------------------------------ */

enum { TNI_STATE_MAKING = 0, TNI_STATE_READY = 1 };

/*
 * The fields before `runtime` are the same in every version from 3 on, since a process reads
 * the names of domains of other versions there.
 */
struct tni_header {
    uint64_t magic; /* written last by the creator, with release */
    uint32_t layout_version;
    uint32_t byte_order;
    uint32_t page_bytes;
    uint32_t must_understand; /* features that a process must know to attach */
    uint32_t may_ignore;      /* features that a process need not know */
    uint32_t uid;
    uint64_t control_bytes;
    uint64_t arena_bytes;
    uint64_t arena_inode;
    /* the five numbers */
    uint32_t seats;
    uint32_t blocks;
    uint32_t objects;
    uint32_t tickets;
    uint64_t quota_limit_bytes; /* the quota at creation */
    uint8_t id[16]; /* inode of the control segment, 4 bytes, highest first; 12 random bytes */
    char name[TNI_NAME_BYTES];
    uint64_t created_ns;
    int32_t creator_pid;
    uint32_t flags; /* TN_DOMAIN_* */
    /*
     * Hash of the runtime folder whose tenond manages the domain; 0: no tenond does. While this
     * is 0, no process may join a domain that has a name.
     */
    _Atomic uint32_t runtime;
    /* written by any; hints and settings, which each reader checks */
    _Alignas(64) _Atomic uint64_t quota_bytes;
    _Atomic uint64_t watermark_bytes;
    _Atomic uint64_t manager;    /* tni_who() of tenond's seat; 0: none */
    _Atomic uint64_t free_bytes; /* estimate of the memory of free blocks, for trimming */
    _Atomic uint64_t rung_ns;    /* time of the last ring of tenond's bell */
    _Atomic uint64_t device_quota_bytes;       /* of each device; UINT64_MAX: no limit */
    _Atomic uint64_t device_slab_bytes;        /* of new slabs; at most TNI_SLAB_BYTES */
    _Atomic uint64_t slabs_ended;              /* how many; processes unmap those that ended */
    _Alignas(64) _Atomic uint32_t memory_wait; /* wait word: memory was freed */
    _Atomic uint32_t seat_limit;               /* 1 + the highest seat that was ever taken */
    _Atomic uint32_t object_limit;             /* 1 + the highest object that was ever taken */
    _Atomic uint32_t ticket_limit;             /* 1 + the highest ticket that was ever taken */
    _Atomic uint32_t timeline_limit; /* 1 + the highest timeline that was ever taken */
    _Atomic uint32_t lease_limit;    /* 1 + the highest lease that was ever taken */
    _Atomic uint64_t foreign_copies; /* how often memory of other allocators was copied */
    _Atomic uint64_t foreign_copied_bytes;
    _Alignas(64) _Atomic uint64_t registry; /* claim on the table of objects */
    _Atomic uint32_t registry_wait;         /* the wait word of `registry` */
    /*
     * Number + 1 of the object that the owner of `registry` changes. A process that takes the
     * claim over from a dead owner repairs that object.
     */
    _Atomic uint32_t registry_object;
    _Atomic uint64_t deaths;         /* how many seats were reclaimed since creation */
    _Atomic uint64_t manager_starts; /* tenond starts so far */
    _Atomic uint32_t registry_turns; /* how often `registry` was taken */
    uint32_t ring; /* written to wake up watches of the control segment; has no value */
    _Atomic uint32_t names_lost; /* not 0: the chains of names have to be rebuilt */
    /*
     * Claim of the process that recounts. A reference that moves from one record to another
     * changes no count, so a recount could miss it in both records. While this claim is not 0,
     * a thread that moves a reference first raises the version of the block's word, and then
     * the recount's CAS fails. See ref.c, I5.
     */
    _Alignas(64) _Atomic uint64_t recount;
    /*
     * {turn:32, block:32}: the block or object that the owner of `recount` counts now (for an
     * object see tni_recounted_object()); block 0: none. A thread that is about to announce
     * this block or object waits a little first.
     */
    _Atomic uint64_t recounted;
    _Atomic uint64_t suspects_added; /* how often blocks were marked as suspects */
    _Atomic uint64_t suspects_done;  /* `suspects_added` up to which all were recounted */
    _Atomic uint64_t objects_added;  /* as suspects_added and suspects_done, for objects */
    _Atomic uint64_t objects_done;
};

/* ---- seats ------------------------------------------------------------------------------- */

enum {
    TNI_SEAT_MANAGER = 1u << 0, /* the seat of tenond, which does not count as a member */
    TNI_SEAT_FORKED = 1u << 1,  /* the process was made by fork() */
    TNI_SEAT_ENDS_WITH_PARENT = 1u << 2,
    TNI_SEAT_UNBORN = 1u << 3 /* fork() failed: no process has died, and there is no pid */
};

struct tni_seat {
    _Atomic uint64_t word;
    _Atomic int32_t pid;    /* while JOINING by fork: 0; without a witness, the parent's pid */
    _Atomic uint32_t flags; /* TNI_SEAT_*, written by the owner */
    uint64_t start_time;    /* these three, by the owner: see struct tni_os_process */
    uint64_t image;
    uint64_t pid_space; /* {time:32, pid:32}: inodes of namespaces; see os/process.h */
    uint64_t joined_ns;
    _Atomic uint64_t parent;      /* tni_who(); 0: none */
    _Atomic uint64_t bell_number; /* of the pollable bell, with TNI_BELL_WATCHES; 0: none */
    /* byte 64 */
    _Atomic uint32_t bell; /* wait word: an object that this process watches may be ready */
    _Atomic uint32_t bell_fd_armed; /* {epoch:31, armed:1}: whether to ring the pollable bell */
    char command[48];
    uint64_t reserved;
};

/* ---- announces --------------------------------------------------------------------------- */

/*
 * A thread writes its announce before it changes a count, and clears the announce once count
 * and records agree. The announce names `span` blocks, the first of them `block`: if the thread
 * dies now, the count of each may be one too high.
 */
#define TNI_COMMIT_ASKS  (UINT64_C(1) << 63)
#define TNI_COMMIT_GIVES (UINT64_C(1) << 62)
struct tni_announce {
    _Atomic uint32_t block; /* 0: no block is announced */
    _Atomic uint32_t span;  /* how many blocks side by side, usually 1 */
    /*
     * For the quota: the bytes that this thread is committing; with TNI_COMMIT_ASKS, the bytes
     * that it asks to commit; with TNI_COMMIT_GIVES, the bytes that it is giving back.
     */
    _Atomic uint64_t commit_bytes;
    _Atomic uint32_t object; /* number + 1 of an object whose count this thread is changing */
    _Atomic uint32_t outer;  /* a message block that is being unpacked; `block` is its record */
    uint32_t reserved[10];
};

/*
 * A suspect is a block that a dead thread had announced. The block is marked, since the dead
 * thread's seat may be taken again before the block is recounted. Any member sets the block's
 * bit in the row MARKED. The owner of the claim `recount` moves the bit to the row COUNTING
 * before it counts, and clears the bit in COUNTING once the count is right. So a mark that is
 * set meanwhile is not lost.
 */
enum { TNI_SUSPECT_MARKED = 0, TNI_SUSPECT_COUNTING = 1, TNI_SUSPECT_ROWS = 2 };

/* ---- blocks ------------------------------------------------------------------------------ */

/*
 * A size class. Message blocks, which begin with struct tni_records, are in the first
 * TNI_MESSAGE_CLASSES classes and in no other, so a recount reads the records of these classes
 * only. Blocks of the next class stand for storages outside the arena.
 */
enum {
    TNI_MESSAGE_CLASSES = 5,
    TNI_BACKING_CLASS = 6, /* blocks hold struct tni_backing */
    TNI_SMALL_CLASS = 7    /* the first class of payload */
};
/*
 * The classes after those of the arena are of devices. Their blocks have no bytes in the arena:
 * a span of them is cut from one slab, memory of a device with a block of TNI_BACKING_CLASS,
 * which the span's first desc names. See docs/decisions/0102.
 */
struct tni_class {
    _Atomic uint32_t frontier; /* the blocks from here on were never used */
    _Atomic uint32_t sweep;    /* not 0: hints were lost, so a search must scan the words */
    _Atomic uint32_t cursor;   /* a hint: where hints were found last */
    _Atomic uint32_t full;     /* not 0: no block was free, and no block was freed since */
    uint32_t reserved[12];
};

enum {
    TNI_KIND_TENSOR = 0,
    TNI_KIND_BYTES = 1,
    TNI_KIND_MESSAGE = 2,
    TNI_KIND_RING = 3,
    TNI_KIND_BACKING = 4,  /* a tensor whose storage is outside the arena */
    TNI_KIND_SCHEDULER = 5 /* a struct tni_scheduler */
};
enum { TNI_DESC_NDIM = 8 };
/* What a block is, for inspection and the audit; no other code trusts it. */
struct tni_desc {
    /*
     * Bytes from the block's start that have memory. If the span has several blocks: in the
     * desc of its first block, a bit for each page of the span that has memory, and
     * TNI_SPAN_TRIMMED. In the first desc of a span of a device's class: the number of the
     * slab's block, a record; 0: the span has no slab.
     */
    _Atomic uint64_t committed;
    uint32_t generation; /* each allocation of the block raises it; handles contain it */
    uint16_t creator_seat;
    uint8_t kind;
    uint8_t ndim;
    uint64_t bytes; /* how many bytes were asked for */
    uint64_t born_ns;
    uint32_t dtype; /* {lanes:16, bits:8, code:8} */
    uint32_t creator_pid;
    int64_t shape[TNI_DESC_NDIM];
    _Atomic uint32_t attributes; /* kinds of attributes of tensors that were sent, a bit each */
    _Atomic uint32_t flags;      /* TN_REQUIRES_GRAD and so on of these tensors */
    _Atomic uint32_t sent; /* the generation for which `attributes` and `flags` are valid */
    /*
     * The generation of the block, if its bytes were copied out of another allocator's memory.
     * (A tensor of 3 axes uses the first cache line only.)
     */
    _Atomic uint32_t copied;
    /*
     * If the block is a span by itself: it has no memory from this byte on. Between `committed`
     * and this byte it may have memory with any content, after a process died or failed while
     * that process committed memory or gave memory back.
     */
    _Atomic uint64_t memory_end;
};
_Static_assert(sizeof(struct tni_desc) == 128, "two lines of a cache");

/*
 * A bit in `committed` of a span of several blocks (which has at most 48 pages, 192 KiB): pages
 * of the span were given back, so each block of the span commits its own pages from now on.
 */
#define TNI_SPAN_TRIMMED (UINT64_C(1) << 63)

/*
 * A view: a tensor in a slot, in a message block or in a handle. Shape, strides and attributes
 * follow this struct.
 */
enum { TNI_VIEW_CONTIGUOUS = 1u << 0, TNI_VIEW_READ_ONLY = 1u << 1, TNI_VIEW_TOKEN = 1u << 2 };
struct tni_view {
    uint32_t block;
    uint32_t generation;
    uint64_t byte_offset;
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
    uint8_t ndim;
    uint8_t flags;            /* TNI_VIEW_*; without CONTIGUOUS, strides follow the shape */
    uint16_t attribute_bytes; /* after the extents: attributes, a multiple of 8 */
    /* Shape [ndim], then strides [ndim], then, with TOKEN, a token: tni_token_make(), or 0. */
    int64_t extents[];
};
enum { TNI_VIEW_MAX_BYTES = 24 + 2 * 32 * 8 + 8 }; /* without attributes */
/*
 * The form of a view: its third word, the fields from `code` on, which are read and compared as
 * one number. pre: the view is aligned to 8 bytes
 */
typedef uint64_t tni_view_word __attribute__((may_alias));
_Static_assert(offsetof(struct tni_view, code) == 16 && sizeof(struct tni_view) == 24,
               "the third word of a view");
static inline uint64_t tni_view_form(const struct tni_view *view)
{
    return TNI_LOOK(*(const tni_view_word *)(const void *)&view->code);
}
static inline void tni_view_set_form(struct tni_view *view, uint64_t form)
{
    TNI_PUT(*(tni_view_word *)(void *)&view->code, form);
}
/** @param dtype  as in a view: {lanes:16, bits:8, code:8} */
static inline uint64_t tni_view_make_form(uint32_t dtype, uint32_t ndim, uint32_t flags)
{
    return dtype | (uint64_t)(uint8_t)ndim << 32 | (uint64_t)(uint8_t)flags << 40;
}
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tni_view_make_form()");

/*
 * An attribute: this head, then `bytes` bytes, then zeros up to a multiple of 8. Attributes are
 * in rising order of kind. A tensor has at most one attribute of each kind, but one of METADATA
 * for each key. A tensor with an unknown kind is refused.
 */
enum {
    TNI_ATTRIBUTE_FLAGS = 1,      /* uint32: TN_REQUIRES_GRAD and so on; not 0 */
    TNI_ATTRIBUTE_NAME = 2,       /* text, ending with a zero byte */
    TNI_ATTRIBUTE_AXIS_NAMES = 3, /* [ndim] texts, each ending with a zero byte */
    TNI_ATTRIBUTE_LOD = 4,        /* uint32 levels, uint32 counts [levels], 8-aligned offsets */
    TNI_ATTRIBUTE_QUANTIZER = 5, /* uint32 scheme, int32 axis, uint32 count, 0, scales, zeros */
    TNI_ATTRIBUTE_PART = 6,      /* struct tni_attribute_part */
    TNI_ATTRIBUTE_METADATA = 7,  /* key, a zero byte, zeros up to a multiple of 8, value */
    TNI_ATTRIBUTE_KINDS = 8
};
struct tni_attribute {
    uint16_t kind;
    uint16_t reserved; /* zero */
    uint32_t bytes;
};
/* One part of a sparse tensor; a message has all parts side by side, in order. */
struct tni_attribute_part {
    uint32_t layout;   /* TN_LAYOUT_* */
    uint32_t flags;    /* TN_SPARSE_* */
    uint16_t part;     /* from 0 */
    uint16_t parts;    /* 2 or 3 */
    int32_t ndim;      /* of the sparse tensor */
    int64_t extents[]; /* the shape of the sparse tensor [ndim] */
};

/* ---- storages with memory of their own --------------------------------------------------- */

/*
 * The payload of a block of TNI_BACKING_CLASS. The block has the identity and the count of the
 * storage; the storage's bytes are in an object of its own: a memfd or a file, which begins
 * with struct tn_storage_header (tenon/share.h), or memory of a device, which has no header
 * (and of which inode and device are its descriptor's, and may be those of other memory). The
 * block's first holder writes this
 * description, `strategy` last, before it makes the object. The process that frees the block
 * first removes the object, then sets `strategy` to 0.
 */
enum { TNI_PATH_BYTES = 256, TNI_PIECES = 128 };
#define TNI_BACKING_SLAB (UINT32_C(1) << 31) /* a flag beside TN_SHARE_*: a slab */
struct tni_backing {
    _Atomic uint32_t strategy; /* {generation:24, strategy:8}, a TN_STRATEGY_*; 0: no object */
    uint32_t flags;            /* TN_SHARE_* */
    uint64_t object_bytes;     /* counted against the quota, or the quota of the device */
    uint64_t data_bytes;
    _Atomic uint64_t inode; /* of the object; 0 until it exists */
    _Atomic uint64_t device;
    _Atomic uint64_t owner; /* tni_who() of the only writer of a TN_TENSOR_WRITE_ONCE storage */
    _Atomic uint64_t depositary; /* tni_who() of the tenond that has its descriptor; 0: none */
    char path[TNI_PATH_BYTES];   /* FILE_SYSTEM */
    int32_t device_type;         /* TN_DEVICE_* of a storage on a device; else 0 */
    uint32_t device_flags;       /* TN_DEVICE_IS_PART */
    uint8_t device_uuid[16];
    /*
     * Of a slab. How many holds of its blocks dead processes had, and up to which of these the
     * device has done work of another process since: then no work of the dead is left, and the
     * blocks may be used again.
     */
    _Atomic uint64_t dirtied;
    _Atomic uint64_t settled;
    /*
     * Of CUDA_IPC: where the data lies in the memory that an allocator of the process `owner`
     * made. Once `moved` is TNI_MOVED, the data is in memory of tenon instead, for which the
     * fields above are.
     */
    uint8_t handle[64];        /* of the driver, for the whole allocation */
    uint64_t allocation;       /* its number in its process, which no other one ever has */
    uint64_t allocation_bytes; /* its size */
    uint64_t allocation_at;    /* where it begins in its process */
    uint64_t data_off;         /* where the data begins in it */
    uint64_t buffer_id;        /* by which the driver knows it */
    _Atomic uint32_t moved;    /* TNI_MOVED, TNI_MOVING; 0 */
    uint32_t piece_count;      /* pieces of one size that it is mapped in; 0: it has a handle */
};
enum { TNI_MOVING = 1, TNI_MOVED = 2 };
/* A device, wherever two processes meet. */
struct tni_device_name {
    int32_t type; /* TN_DEVICE_* */
    uint8_t uuid[16];
};

/*
 * The head of a message block. Each of the records 0 to count - 1 owns one reference to a
 * block, which is never a message block. A thread changes `count` by one record at a time, and
 * announces the block of that record. The views, then the bytes of the message, are in the
 * payload block, or follow the records at the next multiple of 8.
 */
struct tni_records {
    _Atomic uint32_t count;
    uint32_t limit;         /* how many records there is room for */
    uint32_t views_bytes;   /* encoded views, in order of the tensors */
    uint32_t payload_block; /* has views and bytes, and is the last record; 0: none */
    uint64_t bytes_count;
    uint32_t tensor_count;
    uint32_t reserved;
    uint32_t block[]; /* [limit]: the records */
};

/* ---- schedulers -------------------------------------------------------------------------- */

enum {
    TNI_SCHEDULER_NAME_BYTES = 48,
    TNI_SCHEDULER_RESOURCES = 16,
    TNI_SCHEDULER_UNIT = 10000 /* amounts are in 1/10000 */
};
/*
 * What a scheduler does: a block that the process of the scheduler holds and alone writes, and
 * that inspectors read. A process that dies while it writes leaves the version odd and numbers
 * of two moments, until its hold is released.
 */
struct tni_scheduler {
    _Atomic uint32_t made_for; /* the block's generation, once all below was written */
    _Atomic uint32_t version;  /* odd while the numbers change */
    char name[TNI_SCHEDULER_NAME_BYTES];
    _Atomic uint64_t changed_ns; /* on the clock of tni_os_shared_ns() */
    _Atomic uint64_t tasks, ended;
    _Atomic uint32_t ready, running, threads;
    _Atomic uint32_t resource_count;
    struct tni_scheduler_resource {
        char name[32];
        _Atomic uint64_t total, free, busy_ns;
        _Atomic uint32_t waiting;
        uint32_t reserved;
    } resources[TNI_SCHEDULER_RESOURCES];
    _Atomic uint64_t moved_bytes, evicted_bytes, card_bytes, card_capacity; /* of data */
};

/* ---- objects ----------------------------------------------------------------------------- */

enum {
    TNI_OBJECT_FREE = 0,
    TNI_OBJECT_QUEUE = 1,
    TNI_OBJECT_EVENT = 2,
    TNI_OBJECT_SEMAPHORE = 3,
    TNI_OBJECT_LOCK = 4,
    TNI_OBJECT_CONDITION = 5,
    TNI_OBJECT_BARRIER = 6,
    TNI_OBJECT_STORE = 7,
    TNI_OBJECT_CHANNEL = 8,
    TNI_OBJECT_KINDS = 9
};
/*
 * `ended` of a queue or a channel: it was ended; a producer has died. Of a store: it is kept,
 * though no process may have it open.
 */
enum { TNI_QUEUE_ENDED = 1, TNI_QUEUE_ORPHANED = 2, TNI_STORE_KEPT = 4 };

/* A set of seats, a bit each. The owner of a seat, or a reaper, sets and clears its bit. */
struct tni_seat_set {
    _Atomic uint64_t word[TNI_SEAT_WORDS];
};

struct tni_object {
    _Atomic uint64_t word;
    uint32_t flags; /* policy of a queue or channel, TN_SEMAPHORE_*, TN_EVENT_*, TN_STORE_* */
    uint32_t capacity; /* slots of a queue or channel, permits, parties, keys of a store */
    uint32_t slot_bytes;
    _Atomic uint32_t ring; /* a record: the block with slots, semaphore counts or entries; 0 */
    char name[TNI_OBJECT_NAME_BYTES];
    _Atomic uint32_t name_next; /* number + 1 of the next object in the chain; 0: none */
    /*
     * How often a message of a queue was put back to be delivered again. A statistic: a process
     * that dies while it puts a message back may leave that one out.
     */
    _Atomic uint32_t redeliveries;
    /*
     * The last death, {deaths:32, seat:16, 1:16}, and its pid: [0] of the processes that had
     * the object open, [1] of the producers, [2] of the consumers.
     */
    _Alignas(64) _Atomic uint64_t death[3];
    _Atomic int32_t death_pid[3];
    _Atomic uint32_t ended;    /* TNI_QUEUE_*, TNI_STORE_KEPT */
    _Atomic uint64_t unpushed; /* positions of a queue that the tail passed without a push */
    /* Each field has its own cache line. `head` and `tail` are positions in the ring. */
    _Alignas(64) _Atomic uint64_t head;  /* a hint: earlier positions have no message */
    _Alignas(64) _Atomic uint64_t tail;  /* a hint: earlier positions were claimed */
    _Alignas(64) _Atomic uint32_t items; /* wait word of consumers, and of other waits */
    _Alignas(64) _Atomic uint32_t room;  /* wait word of producers */
    /*
     * Events: 1 set, 0 not set. Conditions: signals so far. Semaphores, locks, barriers: a word
     * of words.h. `value2` of locks and barriers: {pid:32, seat:16, 1:16}, see tni_dead_make().
     * Of both words of a store, see stores.h; of a channel, channels.h.
     */
    _Alignas(64) _Atomic uint64_t value;
    _Atomic uint64_t value2;
    /*
     * How many threads died that had announced the object, and how many of these deaths a
     * recount has covered: semaphore.c, I4.
     */
    _Atomic uint32_t suspects_added;
    _Atomic uint32_t suspects_done;
    _Alignas(64) struct tni_seat_set openers;
    struct tni_seat_set producers;
    struct tni_seat_set consumers;
    struct tni_seat_set watchers; /* seats whose bells are rung */
};

/*
 * The rows `loose` are hints, so that a reaper need not check every object: an object's bit is
 * set before the object needs the reaper. UNOPENED: perhaps no process has the object open any
 * more. SUSPECT: perhaps `suspects_added` is larger than `suspects_done`.
 */
enum { TNI_LOOSE_UNOPENED = 0, TNI_LOOSE_SUSPECT = 1, TNI_LOOSE_ROWS = 2 };
/* Rows of opens, loose and issues begin with this many words: a bit for each later word. */
enum { TNI_ROW_HEAD = TNI_MAX_OBJECTS / 64 / 64 };

/*
 * A slot of a ring: this head, then the view and the bytes of a message. A FULL, TAKEN, LEASED
 * or RETURNING slot owns one reference to `block`, if `block` is not 0.
 */
enum { TNI_FORM_BYTES = 0, TNI_FORM_TENSOR = 1, TNI_FORM_MESSAGE = 2 };
struct tni_slot {
    _Atomic uint64_t word;
    uint32_t block;       /* of FORM_TENSOR and FORM_MESSAGE; else 0 */
    uint32_t bytes_count; /* inline bytes, after the view */
    uint16_t view_bytes;  /* encoded struct tni_view at `data`; FORM_TENSOR */
    uint8_t form;
    uint8_t is_tensor; /* 1: the message is one tensor and nothing else */
    uint16_t attempt;  /* how often the message was returned to the queue */
    uint16_t producer; /* the seat that pushed the message */
    uint8_t data[];    /* 24: view, then bytes */
};

/* ---- tickets ----------------------------------------------------------------------------- */

/*
 * A bound ticket has no time limit while its issuer has its seat: `expires_ns` is
 * BOUND | generation. When the issuer's seat ends, the ticket gets an expiry time: now if
 * WITH_ISSUER is set, else a time in the future. The generation makes sure that no later ticket
 * in the same place gets that expiry time.
 */
#define TNI_TICKET_BOUND       (UINT64_C(1) << 63)
#define TNI_TICKET_WITH_ISSUER (UINT64_C(1) << 62)
struct tni_ticket {
    _Atomic uint64_t word;
    _Atomic uint32_t block;
    _Atomic uint32_t generation; /* of the block */
    _Atomic uint64_t expires_ns; /* tni_os_shared_ns(), or TNI_TICKET_BOUND | generation */
    _Atomic uint64_t issuer;     /* tni_who() */
    _Atomic int32_t issuer_pid;
    uint32_t reserved[7];
};

static inline bool tni_ticket_is_live(const struct tni_ticket *ticket)
{
    return tni_ticket_state(atomic_load(&ticket->word)) == TNI_TICKET_LIVE;
}

/* How many tickets side by side have one bit in a seat's row of issues. */
enum { TNI_TICKET_GROUP = 64 };

#include "layout/channels.h"
#include "layout/devices.h"
#include "layout/geometry.h"
#include "layout/stores.h"

#endif
