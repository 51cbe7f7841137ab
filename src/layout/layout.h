/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout: every struct that two processes read, and nothing else.
 *
 * A domain is two memory objects. The arena holds payload only. The control segment holds, in
 * this order, each section starting on a page:
 *
 *   header     1                      struct tni_header
 *   seats      seats                  struct tni_seat
 *   announces  seats x 32             struct tni_announce, one a thread at work
 *   classes    TNI_CLASSES            struct tni_class, the shared state of a size class
 *   words      blocks of all classes  one 64-bit word a block
 *   descs      blocks of all classes  struct tni_desc, what a block is
 *   hints      a bit a block          may be free; a wrong hint costs time only
 *   suspects   2 x a bit a block      counts that a death may have left too high
 *   rows       seats x a bit a block  hold rows: who holds what
 *   objects    objects                struct tni_object: queues, events, locks, ...
 *   tickets    tickets                struct tni_ticket
 *   names      2^n >= objects         object + 1 whose name has this tni_hash() modulo 2^n; 0
 *   opens      seats x a bit an object  it may be open there
 *   loose      2 x a bit an object    it may have to be ended, or recounted: TNI_LOOSE_*
 *   issues     seats x a bit for 64 tickets  some of them may be of that seat
 *
 * Where each section lies follows from five numbers in the header (seats, blocks, objects,
 * tickets, arena quota). Who attaches checks those numbers, computes the geometry itself
 * (geometry.c) and compares the size of the segment with it; offsets are never read from shared
 * memory.
 *
 * Validity. Nothing here is a pointer. Every index read from shared memory goes through one of
 * the tni_geometry_has_*() tests before it is used. Fields are written by the owner named
 * beside them; `any` means any member, by an atomic operation.
 *
 * A block is named by {class:8, index:24}; 0 is no block (class 0 does not exist). Blocks of
 * one class have one size and lie side by side in the class's own part of the arena, so that a
 * block's place follows from its number, and there is no map of the arena that a death could
 * leave half written. The arena is sparse: address space is what this spends, not memory. See
 * docs/decisions/0002.
 *
 * It is one file so that one diff shows that the layout has changed.
 */
#ifndef TNI_LAYOUT_H
#define TNI_LAYOUT_H

#include <stdatomic.h>

#include "base/base.h"

#define TNI_MAGIC UINT64_C(0x314E4F4E4554) /* "TENON1", little-endian bytes */
/* A number, since it is part of names too. Tests build the library with another one as well. */
#ifndef TNI_LAYOUT_VERSION_TEST
#define TNI_LAYOUT_VERSION 4
#else
#define TNI_LAYOUT_VERSION TNI_LAYOUT_VERSION_TEST
#endif
enum {
    TNI_BYTE_ORDER = 0x01020304,
    TNI_THREADS = 32, /* announce records of a seat */
    TNI_MAX_SEATS = 1024,
    TNI_MAX_BLOCKS = 1 << 23,
    TNI_MAX_OBJECTS = 1 << 16,
    TNI_MAX_TICKETS = 1 << 20,
    TNI_MAX_BACKINGS = 1 << 16,
    TNI_BACKING_BLOCK_BYTES = 512,
    TNI_CLASSES = 64,
    TNI_NAME_BYTES = 64,
    TNI_OBJECT_NAME_BYTES = 48,
    TNI_SEAT_WORDS = TNI_MAX_SEATS / 64,
    TNI_ID_INODE_BYTES = 4,
    TNI_NO_SEAT = 0xffff
};

typedef struct tni_block {
    uint32_t id; /* {class:8, index:24}; 0 is no block */
} tni_block;

/* ---- header ------------------------------------------------------------------------------ */

enum { TNI_STATE_MAKING = 0, TNI_STATE_READY = 1 };

/*
 * Up to `runtime` it is the same in every version from 3 on: who finds the domain of another
 * version reads its name there.
 */
struct tni_header {
    uint64_t magic; /* written last by the creator, with release */
    uint32_t layout_version;
    uint32_t byte_order;
    uint32_t page_bytes;
    uint32_t must_understand; /* feature bits; unknown ones refuse the attach */
    uint32_t may_ignore;
    uint32_t uid;
    uint64_t control_bytes;
    uint64_t arena_bytes;
    uint64_t arena_inode;
    /* 64: the five numbers */
    uint32_t seats;
    uint32_t blocks;
    uint32_t objects;
    uint32_t tickets;
    uint64_t quota_limit_bytes; /* of creation; geometry follows from it */
    uint8_t id[16]; /* inode of the control segment, 4 bytes, highest first; 12 random ones */
    char name[TNI_NAME_BYTES];
    uint64_t created_ns;
    int32_t creator_pid;
    uint32_t flags; /* TN_DOMAIN_* */
    /* 0 of a domain with a name: not yet, or not any more; then nobody may join. */
    _Atomic uint32_t runtime; /* hash of the runtime folder that looks after it; 0 none */
    /* any member, atomically; hints and settings, each checked by who reads it */
    _Alignas(64) _Atomic uint64_t quota_bytes;
    _Atomic uint64_t watermark_bytes;
    _Atomic uint64_t manager;    /* {incarnation:32, seat:16, 1:16}, 0 none; tenond's seat */
    _Atomic uint64_t free_bytes; /* about: payload bytes behind hints; steers trimming only */
    _Atomic uint64_t rung_ns;    /* when tenond's bell was rung last */
    _Alignas(64) _Atomic uint32_t memory_wait; /* wait word: memory came free; bit 0 armed */
    _Atomic uint32_t seat_limit;   /* one above the highest seat that was ever taken */
    _Atomic uint32_t object_limit; /* the same of objects */
    _Atomic uint32_t ticket_limit;
    _Alignas(64) _Atomic uint64_t registry; /* recoverable claim over names of objects */
    _Atomic uint32_t registry_wait;
    /* Object + 1 that the owner of `registry` was at last: who takes it over looks at it. */
    _Atomic uint32_t registry_object;
    _Atomic uint64_t deaths;         /* seats reclaimed since creation */
    _Atomic uint64_t manager_starts; /* tenond starts so far */
    _Atomic uint32_t registry_turns; /* how often `registry` was taken */
    uint32_t ring; /* written to be seen by who watches this object; the value says nothing */
    _Atomic uint32_t names_lost; /* not 0: the chains of names are to be built anew */
    /*
     * Claim of the one who recounts. A reference that moves from one record to another changes
     * no count, so a recount could miss it in both: while this is not 0, who moves one raises
     * the version of the block's word first, and the recount's CAS fails. See ref.c, I5.
     */
    _Alignas(64) _Atomic uint64_t recount;
    /*
     * {turn:32, block:32}: the block that the owner of `recount` counts now, 0 none; or the
     * object, see tni_recounted_object(). A thread that is about to announce this block, or
     * this object, waits a little first.
     */
    _Atomic uint64_t recounted;
    _Atomic uint64_t suspects_added; /* how often suspects were marked */
    _Atomic uint64_t suspects_done;  /* all that were marked so often have been recounted */
    _Atomic uint64_t objects_added;  /* the same of objects */
    _Atomic uint64_t objects_done;
};

/* ---- seats ------------------------------------------------------------------------------- */

/*
 * A seat's word is {incarnation:32, state:8, recoverer:24}; recoverer says who reclaims this
 * one while REAPING: the low bits of its incarnation and its seat, {14, 10}; all ones is nobody
 * yet. JOINING, ALIVE, LEAVING: {has a witness: 1, pid: 22} in its place, the pid 0 while
 * ALIVE; all ones is JOINING for a child that will not come. FREE -> JOINING (taken, holds may
 * be written) -> ALIVE -> LEAVING -> FREE; JOINING, ALIVE, LEAVING of a dead process -> REAPING
 * -> FREE. Each FREE raises the incarnation.
 */
enum {
    TNI_SEAT_FREE = 0,
    TNI_SEAT_JOINING = 1,
    TNI_SEAT_ALIVE = 2,
    TNI_SEAT_LEAVING = 3,
    TNI_SEAT_REAPING = 4
};
/* With JOINING, ALIVE, LEAVING: the kernel tells whether its process lives; see process.c, I4.
 */
#define TNI_SEAT_WITNESSED (1u << 22)
enum {
    TNI_SEAT_MANAGER = 1u << 0, /* tenond: not counted as a member */
    TNI_SEAT_FORKED = 1u << 1,  /* it came by fork() */
    TNI_SEAT_ENDS_WITH_PARENT = 1u << 2,
    TNI_SEAT_UNBORN = 1u << 3 /* without a pid: fork() failed, so nobody has died here */
};

struct tni_seat {
    _Atomic uint64_t word;
    _Atomic int32_t pid;    /* JOINING by fork: 0, or without a witness the parent's */
    _Atomic uint32_t flags; /* owner */
    uint64_t start_time;    /* owner; with pid, the identity of the process */
    uint64_t image;
    uint64_t pid_space; /* the namespaces of these: {time:32, pid:32} */
    uint64_t joined_ns;
    _Atomic uint64_t parent;      /* {incarnation:32, seat:16, 1:16}; 0 none */
    _Atomic uint64_t bell_number; /* doorbell, 0 none; TNI_BELL_WATCHES or not */
    /* 64 */
    _Atomic uint32_t bell; /* wait word: something that this process watches may be ready */
    _Atomic uint32_t bell_fd_armed;
    char command[48];
    uint64_t reserved;
};

/* ---- announces --------------------------------------------------------------------------- */

/*
 * What a thread writes before it touches a count, and clears when record and count agree again.
 * It names all the blocks whose count may be one too high if the thread stops here for ever:
 * `span` blocks from `block`.
 */
#define TNI_COMMIT_ASKS  (UINT64_C(1) << 63)
#define TNI_COMMIT_GIVES (UINT64_C(1) << 62)
struct tni_announce {
    _Atomic uint32_t block; /* 0: nothing is announced */
    _Atomic uint32_t span;  /* blocks side by side, usually 1 */
    /*
     * Memory that this thread is committing, for the quota; with TNI_COMMIT_ASKS, would commit;
     * with TNI_COMMIT_GIVES, is giving back.
     */
    _Atomic uint64_t commit_bytes;
    _Atomic uint32_t object; /* index + 1 of an object whose count this thread is changing */
    _Atomic uint32_t outer;  /* a message block being taken apart; `block` is its record */
    uint32_t reserved[10];
};

/*
 * A suspect is a block that a dead thread had announced, whose seat may be taken anew before
 * the block is recounted. Any member sets its bit in the row MARKED. Only the owner of the
 * claim `recount` moves it to the row COUNTING, before it counts, and clears it there, when the
 * count is right; so no mark is lost that is set meanwhile.
 */
enum { TNI_SUSPECT_MARKED = 0, TNI_SUSPECT_COUNTING = 1, TNI_SUSPECT_ROWS = 2 };

/* What header->recounted says of an object: no block is of class 255. */
static inline uint32_t tni_recounted_object(uint32_t index)
{
    return UINT32_C(0xff) << 24 | index;
}

/* ---- blocks ------------------------------------------------------------------------------ */

/*
 * A block's word is {version:38, state:2, count:24}. One fetch_add moves count and version
 * together, and the version's wrap falls off the top.
 */
enum { TNI_BLOCK_FREE = 0, TNI_BLOCK_ALLOC = 1 };
#define TNI_WORD_VERSION_ONE (UINT64_C(1) << 26)
#define TNI_WORD_INC         (TNI_WORD_VERSION_ONE + 1)
#define TNI_WORD_DEC         (TNI_WORD_VERSION_ONE - 1)
#define TNI_WORD_USED        UINT64_C(0x3ffffff) /* state and count: 0 is FREE, 0 */
static inline uint32_t tni_word_count(uint64_t word) { return (uint32_t)(word & 0xffffff); }
static inline uint32_t tni_word_state(uint64_t word) { return (uint32_t)(word >> 24) & 3; }
/* The word that follows `word` with another state and count. */
static inline uint64_t tni_word_next(uint64_t word, uint32_t state, uint32_t count)
{
    return ((word & ~UINT64_C(0x3ffffff)) + TNI_WORD_VERSION_ONE) | ((uint64_t)state << 24) |
           count;
}

/*
 * A size class. The first TNI_MESSAGE_CLASSES classes hold message blocks, and only they do: a
 * message block's first bytes are struct tni_records, so a recount need look only there. The
 * next class stands for storages outside of the arena; it has a limit of its own.
 */
enum {
    TNI_MESSAGE_CLASSES = 5,
    TNI_BACKING_CLASS = 6, /* blocks hold struct tni_backing */
    TNI_SMALL_CLASS = 7    /* the first of payload */
};
struct tni_class {
    _Atomic uint32_t frontier; /* blocks below it may have been used */
    _Atomic uint32_t sweep;    /* not 0: hints were lost, look at the words */
    _Atomic uint32_t cursor;   /* where hints were last seen: a hint itself */
    _Atomic uint32_t full;     /* not 0: no block was free, and none came free since */
    uint32_t reserved[12];
};

enum {
    TNI_KIND_TENSOR = 0,
    TNI_KIND_BYTES = 1,
    TNI_KIND_MESSAGE = 2,
    TNI_KIND_RING = 3,
    TNI_KIND_BACKING = 4 /* a tensor whose bytes are in an object of their own */
};
enum { TNI_DESC_NDIM = 8 };
/* What a block is, for people and for the audit; nobody's safety depends on it. */
struct tni_desc {
    /*
     * Memory behind it: bytes from its start. Of a span of several blocks, in its first one: a
     * bit for each page that has memory, and TNI_SPAN_TRIMMED.
     */
    _Atomic uint64_t committed;
    uint32_t generation; /* raised by each allocation; handles carry it */
    uint16_t creator_seat;
    uint8_t kind;
    uint8_t ndim;
    uint64_t bytes; /* as asked for */
    uint64_t born_ns;
    uint32_t dtype; /* {lanes:16, bits:8, code:8} */
    uint32_t creator_pid;
    int64_t shape[TNI_DESC_NDIM];
    _Atomic uint32_t attributes; /* kinds that a tensor over it was sent with, a bit each */
    _Atomic uint32_t flags;      /* TN_REQUIRES_GRAD and so on of such tensors */
    _Atomic uint32_t sent;       /* the generation that these two are of */
    uint32_t reserved;           /* two lines: the first is all that a tensor of 3 axes needs */
    /*
     * Of a block that is committed by itself: from so many bytes on it has no memory. Between
     * `committed` and here it may have some, with any bytes in it, when somebody died or failed
     * while memory came or went.
     */
    _Atomic uint64_t memory_end;
};
_Static_assert(sizeof(struct tni_desc) == 128, "two lines of a cache");

/*
 * A tensor as it stands in a slot, in a message block and in a handle; shape, strides and
 * attributes follow.
 */
enum { TNI_VIEW_CONTIGUOUS = 1u << 0, TNI_VIEW_READ_ONLY = 1u << 1 };
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
    int64_t extents[];        /* shape [ndim], then strides [ndim] */
};
enum { TNI_VIEW_MAX_BYTES = 24 + 2 * 32 * 8 }; /* without attributes */
/*
 * The third word of a view, from `code` on: type, axes, flags, and bytes of attributes. As a
 * word it is read and compared at once. pre: the view is aligned to 8 bytes
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
/** `dtype` as the view has it: {lanes:16, bits:8, code:8}. */
static inline uint64_t tni_view_make_form(uint32_t dtype, uint32_t ndim, uint32_t flags)
{
    return dtype | (uint64_t)(uint8_t)ndim << 32 | (uint64_t)(uint8_t)flags << 40;
}
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tni_view_make_form()");

/*
 * One attribute: this head, then `bytes` of it, filled up with zeros to a multiple of 8. They
 * stand in rising order of kind, each kind once (METADATA: once a key). A kind that is not
 * known refuses the tensor.
 */
enum {
    TNI_ATTRIBUTE_FLAGS = 1,      /* uint32: TN_REQUIRES_GRAD and so on; not 0 */
    TNI_ATTRIBUTE_NAME = 2,       /* text, ending with a zero byte */
    TNI_ATTRIBUTE_AXIS_NAMES = 3, /* [ndim] texts, each ending with a zero byte */
    TNI_ATTRIBUTE_LOD = 4,        /* uint32 levels, uint32 counts [levels], 8-aligned offsets */
    TNI_ATTRIBUTE_QUANTIZER = 5, /* uint32 scheme, int32 axis, uint32 count, 0, scales, zeros */
    TNI_ATTRIBUTE_PART = 6,      /* struct tni_attribute_part */
    TNI_ATTRIBUTE_METADATA = 7,  /* key, its zero byte, filled up to 8; then the value */
    TNI_ATTRIBUTE_KINDS = 8
};
struct tni_attribute {
    uint16_t kind;
    uint16_t reserved; /* zero */
    uint32_t bytes;
};
/* One part of a sparse tensor; the parts lie side by side in a message, in order. */
struct tni_attribute_part {
    uint32_t layout;   /* TN_LAYOUT_* */
    uint32_t flags;    /* TN_SPARSE_* */
    uint16_t part;     /* from 0 */
    uint16_t parts;    /* 2 or 3 */
    int32_t ndim;      /* of the sparse tensor */
    int64_t extents[]; /* its shape [ndim] */
};

/* ---- storages with memory of their own --------------------------------------------------- */

/*
 * The payload of a block of TNI_BACKING_CLASS: the block is the storage's identity and count;
 * its bytes are in an object of their own, which begins with struct tn_storage_header
 * (tenon/share.h). Written by the block's first holder; `strategy` last, and set to 0 first by
 * whoever frees the block, once the object is on its way out. The object is not made before
 * this names it.
 */
enum { TNI_PATH_BYTES = 256 };
struct tni_backing {
    _Atomic uint32_t strategy; /* {generation:24, TN_STRATEGY_*:8}; 0: no object */
    uint32_t flags;            /* TN_SHARE_* */
    uint64_t object_bytes;     /* counted against the quota */
    uint64_t data_bytes;
    _Atomic uint64_t inode; /* of the object; 0 until it is there */
    _Atomic uint64_t device;
    _Atomic uint64_t owner;      /* tni_who() of who may write a TN_TENSOR_WRITE_ONCE storage */
    _Atomic uint64_t depositary; /* tni_who() of the tenond that got its descriptor; 0: none */
    char path[TNI_PATH_BYTES];   /* FILE_SYSTEM */
};

/*
 * The head of a message block. Records 0 .. count-1 each own one reference; a record's block is
 * never a message block itself. `count` rises and falls by one with each reference (the thread
 * that moves it has the block announced). Behind the records, at the next multiple of 8, or in
 * the payload block, follow the views, then the bytes.
 */
struct tni_records {
    _Atomic uint32_t count;
    uint32_t limit;         /* records that were made room for */
    uint32_t views_bytes;   /* encoded views, in order of the tensors */
    uint32_t payload_block; /* a record too, the last one: views and bytes; 0: they are here */
    uint64_t bytes_count;
    uint32_t tensor_count;
    uint32_t reserved;
    uint32_t block[]; /* [limit]: what record i names */
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
    TNI_OBJECT_KINDS = 7
};
/* An object's word is {generation:32, maker:16, state:8, kind:8}. */
enum { TNI_OBJECT_MAKING = 1, TNI_OBJECT_LIVE = 2, TNI_OBJECT_ENDING = 3 };

/* `ended` of a queue: by tn_queue_end(), and that a producer of it died once. */
enum { TNI_QUEUE_ENDED = 1, TNI_QUEUE_ORPHANED = 2 };

/*
 * One bit a seat: who has it open, who pushes, who pops, whose bell rings. Set and cleared by
 * the seat itself or its recoverer.
 */
struct tni_seat_set {
    _Atomic uint64_t word[TNI_SEAT_WORDS];
};

struct tni_object {
    _Atomic uint64_t word;
    uint32_t flags;    /* policy of a queue, TN_SEMAPHORE_*, TN_EVENT_AUTO_RESET */
    uint32_t capacity; /* slots of a queue, permits, parties */
    uint32_t slot_bytes;
    _Atomic uint32_t ring; /* a record: block with the slots, or semaphore counts; 0 none */
    char name[TNI_OBJECT_NAME_BYTES];
    _Atomic uint32_t name_next; /* object + 1 that is next in the chain of its name; 0 none */
    /*
     * The last death on each side: {death count:32, seat:16, 1:16}, and that pid. 0 any, 1
     * producer, 2 consumer.
     */
    _Alignas(64) _Atomic uint64_t death[3];
    _Atomic int32_t death_pid[3];
    _Atomic uint32_t ended;    /* TNI_QUEUE_ENDED, TNI_QUEUE_ORPHANED */
    _Atomic uint64_t unpushed; /* positions of a queue that the tail passes without a push */
    /*
     * Each on a line of its own. `items`, `room`: wait words, {epoch:29, looking:1, pollers:1,
     * armed:1}; see wait.h.
     */
    /* Positions in a ring are {round:32, slot:32}; rounds wrap. */
    _Alignas(64) _Atomic uint64_t head; /* a hint: positions before hold nothing to take */
    _Alignas(64) _Atomic uint64_t tail; /* a hint: positions before were claimed */
    _Alignas(64) _Atomic uint32_t items;
    _Alignas(64) _Atomic uint32_t room;
    /*
     * Semaphores: {version:32, permits:32}; owned ones of one permit: {holder's seat + 1:32,
     * permits:32}. Locks: {held:1, recovered:1, incarnation:22, seat:16, thread:24}. Barriers:
     * {generation:24, fates:16, arrived:16, fate:8}. Conditions: signals so far. Events: 1 set,
     * 0 not. `value2` of locks and barriers: who died, {pid:32, seat:16, 1:16}.
     */
    _Alignas(64) _Atomic uint64_t value;
    _Atomic uint64_t value2;
    /* A dead thread announced it, so often; and it was recounted since. See semaphore.c, I4. */
    _Atomic uint32_t suspects_added;
    _Atomic uint32_t suspects_done;
    _Alignas(64) struct tni_seat_set openers;
    struct tni_seat_set producers;
    struct tni_seat_set consumers;
    struct tni_seat_set watchers;
};

/*
 * Hints, so that who reclaims a seat need not look at every object: a bit is set before there
 * is something to find. UNOPENED: nobody may have it open any more. SUSPECT: `suspects_added`
 * may be ahead of `suspects_done`.
 */
enum { TNI_LOOSE_UNOPENED = 0, TNI_LOOSE_SUSPECT = 1, TNI_LOOSE_ROWS = 2 };
/* Rows of opens, of loose and of issues begin with so many words: a bit a word behind them. */
enum { TNI_ROW_HEAD = TNI_MAX_OBJECTS / 64 / 64 };

/*
 * A slot of a ring: one line of head, then inline bytes. Its word is {round:32, state:8,
 * seat:16, thread:8}. FULL, TAKEN and LEASED slots own one reference to `block`, if it is not
 * 0.
 */
enum {
    TNI_SLOT_EMPTY = 0,
    TNI_SLOT_CLAIMED = 1,
    TNI_SLOT_FULL = 2,
    TNI_SLOT_TAKEN = 3,
    TNI_SLOT_LEASED = 4,
    TNI_SLOT_RETURNING = 5 /* on its way back to FULL; the tag is the attempt count's low bit */
};
enum { TNI_FORM_BYTES = 0, TNI_FORM_TENSOR = 1, TNI_FORM_MESSAGE = 2 };
struct tni_slot {
    _Atomic uint64_t word;
    uint32_t block;       /* of FORM_TENSOR and FORM_MESSAGE; else 0 */
    uint32_t bytes_count; /* inline bytes, after the view */
    uint16_t view_bytes;  /* encoded struct tni_view at `data`; FORM_TENSOR */
    uint8_t form;
    uint8_t is_tensor; /* 1: the message is one tensor and nothing else */
    uint16_t attempt;
    uint16_t producer; /* seat */
    uint8_t data[];    /* 24: view, then bytes */
};

/* ---- tickets ----------------------------------------------------------------------------- */

/* A ticket's word is {generation:36, state:8, uses:20}. LIVE owns one reference to `block`. */
enum {
    TNI_TICKET_FREE = 0,   /* never used, or over for long */
    TNI_TICKET_MAKING = 1, /* `uses` is the maker's seat */
    TNI_TICKET_LIVE = 2,
    TNI_TICKET_USED = 3, /* over, and why; may be taken again */
    TNI_TICKET_REVOKED = 4,
    TNI_TICKET_EXPIRED = 5
};
#define TNI_TICKET_GENERATIONS (UINT64_C(1) << 36)
enum { TNI_TICKET_MAX_USES = (1 << 20) - 1 };

static inline uint64_t tni_ticket_word(uint64_t generation, uint32_t state, uint32_t uses)
{
    return generation << 28 | (uint64_t)state << 20 | uses;
}
static inline uint64_t tni_ticket_generation(uint64_t word) { return word >> 28; }
static inline uint32_t tni_ticket_state(uint64_t word) { return (uint32_t)(word >> 20) & 0xff; }
static inline uint32_t tni_ticket_uses(uint64_t word)
{
    return (uint32_t)word & TNI_TICKET_MAX_USES;
}
/** pre: MAKING. The seat of the process that makes the ticket. */
static inline uint32_t tni_ticket_maker(uint64_t word) { return tni_ticket_uses(word); }
/*
 * A ticket without an end of its own is bound to its issuer, and gets one when that seat ended.
 * The generation beside the bit makes it certain that the end is given to the ticket it was
 * meant for. With the second bit that end is at once, else after a while.
 */
#define TNI_TICKET_BOUND       (UINT64_C(1) << 63)
#define TNI_TICKET_WITH_ISSUER (UINT64_C(1) << 62)
struct tni_ticket {
    _Atomic uint64_t word;
    _Atomic uint32_t block;
    _Atomic uint32_t generation; /* of the block */
    _Atomic uint64_t expires_ns; /* tni_os_shared_ns(), or TNI_TICKET_BOUND | generation */
    _Atomic uint64_t issuer;     /* {incarnation:32, seat:16, 1:16} */
    _Atomic int32_t issuer_pid;
    uint32_t reserved[7];
};

static inline bool tni_ticket_is_live(const struct tni_ticket *ticket)
{
    return tni_ticket_state(atomic_load(&ticket->word)) == TNI_TICKET_LIVE;
}

/* One bit of a seat's row of issues stands for so many tickets side by side. */
enum { TNI_TICKET_GROUP = 64 };

/* A seat by number and incarnation: {incarnation:32, seat:16, 1:16}; 0 is nobody. */
static inline uint64_t tni_who(uint32_t seat, uint32_t incarnation)
{
    return (uint64_t)incarnation << 32 | (uint64_t)(seat & 0xffff) << 16 | 1;
}
static inline uint32_t tni_who_seat(uint64_t who) { return (uint32_t)(who >> 16) & 0xffff; }
static inline uint32_t tni_who_incarnation(uint64_t who) { return (uint32_t)(who >> 32); }

/* ---- geometry: private, computed, trusted ------------------------------------------------ */

struct tni_class_geometry {
    uint64_t size_bytes; /* of a block; 0: no such class */
    uint64_t arena_off;
    uint32_t capacity; /* blocks */
    uint32_t
        base; /* position of its first block in words, descs, hints, rows; a multiple of 64 */
    uint32_t span;   /* blocks that are committed together; a power of two */
    uint32_t cached; /* most free blocks that a thread keeps to itself */
};

struct tni_geometry {
    uint32_t seats, blocks, objects, tickets;
    uint64_t quota_limit_bytes;
    uint32_t page_bytes;
    uint32_t class_count; /* classes are 1 .. class_count - 1; [0] is none; messages first */
    uint32_t total_blocks;
    struct tni_class_geometry classes[TNI_CLASSES];
    uint64_t span_pages[TNI_CLASSES]; /* `committed` of a whole span; 0: of one block */
    uint8_t small_class[65]; /* class for n * 64 bytes, n up to 64: the hot path's look-up */
    uint64_t seats_off, announces_off, classes_off, words_off, descs_off, hints_off,
        suspects_off;
    uint64_t rows_off;
    uint64_t row_bytes;
    uint64_t objects_off, tickets_off, names_off, opens_off, loose_off, issues_off;
    uint64_t opens_bytes, issues_bytes; /* a row of each */
    uint64_t control_bytes, arena_bytes;
};

/**
 * Compute where everything lies. TN_ERR_INVALID: a number is out of range; TN_ERR_NO_MEMORY:
 * the arena would not fit in the address space.
 */
int tni_geometry_init(uint32_t seats, uint32_t blocks, uint32_t objects, uint32_t tickets,
                      uint64_t quota_bytes, uint32_t page_bytes,
                      struct tni_geometry *ret_geometry);

/*
 * Pages of a span of several blocks are a bit each: at most 192 KiB of pages of 4 KiB
 * (geometry.c). Since pages of a part of it were taken away, each block commits its own.
 */
#define TNI_SPAN_TRIMMED (UINT64_C(1) << 63)

/** The class for `bytes` of this TNI_KIND_*. 0: larger than any. */
uint32_t tni_geometry_class(const struct tni_geometry *geometry, uint64_t bytes, uint8_t kind);

static inline uint32_t tni_block_class(tni_block block) { return block.id >> 24; }
static inline uint32_t tni_block_index(tni_block block) { return block.id & 0xffffff; }
static inline tni_block tni_block_make(uint32_t class_id, uint32_t index)
{
    return (tni_block){class_id << 24 | index};
}
static inline bool tni_geometry_has_block(const struct tni_geometry *g, uint32_t id)
{
    uint32_t c = id >> 24;
    return c != 0 && c < g->class_count && (id & 0xffffff) < g->classes[c].capacity;
}
static inline bool tni_geometry_has_seat(const struct tni_geometry *g, uint32_t seat)
{
    return seat < g->seats;
}
static inline bool tni_geometry_has_object(const struct tni_geometry *g, uint32_t object)
{
    return object < g->objects;
}
/** Entries of the table of names: a power of two. */
static inline uint32_t tni_geometry_names(const struct tni_geometry *g)
{
    return UINT32_C(1) << tni_log2_up(g->objects);
}
static inline bool tni_class_is_message(uint32_t class_id)
{
    return class_id >= 1 && class_id <= TNI_MESSAGE_CLASSES;
}
static inline bool tni_class_is_backing(uint32_t class_id)
{
    return class_id == TNI_BACKING_CLASS;
}
/** Position among words, descs, hints and row bits. pre: tni_geometry_has_block */
static inline uint32_t tni_block_position(const struct tni_geometry *g, tni_block block)
{
    return g->classes[tni_block_class(block)].base + tni_block_index(block);
}
static inline uint64_t tni_block_offset(const struct tni_geometry *g, tni_block block)
{
    const struct tni_class_geometry *c = &g->classes[tni_block_class(block)];
    return c->arena_off + tni_block_index(block) * c->size_bytes;
}
static inline uint64_t tni_block_bytes(const struct tni_geometry *g, tni_block block)
{
    return g->classes[tni_block_class(block)].size_bytes;
}
/** The first block of the span that a block belongs to. */
static inline tni_block tni_block_leader(const struct tni_geometry *g, tni_block block)
{
    return (tni_block){block.id & ~(g->classes[tni_block_class(block)].span - 1)};
}
/** The pages of its span that a block lies in. pre: its span has several blocks */
static inline uint64_t tni_block_pages(const struct tni_geometry *g, tni_block block)
{
    const struct tni_class_geometry *c = &g->classes[tni_block_class(block)];
    uint32_t shift = (uint32_t)__builtin_ctz(g->page_bytes);
    uint64_t at = (block.id & (c->span - 1)) * c->size_bytes;
    uint64_t first = at >> shift, last = (at + c->size_bytes - 1) >> shift;
    return (UINT64_MAX >> (63 - last)) & (UINT64_MAX << first);
}

#endif
