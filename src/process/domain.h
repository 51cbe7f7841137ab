/* SPDX-License-Identifier: Apache-2.0 */
/*
 * domain: the private structs of a domain and of a thread record. Part of the door process.h:
 * other rooms include process.h, not this header.
 */
#ifndef TNI_PROCESS_DOMAIN_H
#define TNI_PROCESS_DOMAIN_H

#include "os/os.h"
#include "segment/segment.h"
#include "wait/wait.h"

enum { TNI_CACHE_BLOCKS = 64, TNI_FORK_HOOKS = 6 };

/*
 * Free blocks of one class, which threads with this thread record freed or fetched. The entries
 * are hints: a process may lose them without harm.
 */
struct tni_block_cache {
    uint32_t count;
    uint32_t id[TNI_CACHE_BLOCKS];
};

/*
 * The head of a private struct that has ended and whose memory is kept for the next struct. The
 * room tensor keeps its storages in this way, a few for each thread record.
 */
struct tni_spare {
    struct tni_spare *next;
    uint64_t freed;  /* written by the room ref: the block's word when the block was freed */
    tni_block block; /* the block that the struct had; 0: this thread freed no block with it */
    uint32_t at;     /* the block's position */
};
enum { TNI_SPARES = 16 };

/*
 * A thread record: one announce of the seat, and private data of the thread that has taken the
 * thread record. A thread takes a thread record for the length of one operation and gives it
 * back. Threads contend only for `busy` and `aside`. No thread keeps a thread record for ever,
 * because threads come and go, and all of them share 32 thread records.
 */
struct tni_thread {
    _Alignas(TNI_CACHE_LINE) _Atomic uint32_t busy;
    uint32_t number;
    struct tni_announce *announce;
    struct tni_block_cache *caches;    /* [TNI_CLASSES] */
    const _Atomic uint64_t *recounted; /* header->recounted of the domain */
    uint64_t waited_out;      /* the value of *recounted for which a wait reached its limit */
    struct tni_spare *spares; /* freed with the domain */
    uint32_t spare_count;
    uint64_t missing_bytes; /* alloc: how much memory the last commit lacked */
    bool has_cached;        /* false: neither this process nor an ancestor wrote `caches` */
    uint8_t last_on_ring;   /* TNI_PUSHED or TNI_POPPED: the last operation on a queue */
    /* TNI_ASIDE_*: whether the thread that has the record is in a long system call. */
    _Atomic uint32_t aside;
};
enum { TNI_ASIDE_NOT = 0, TNI_ASIDE = 1, TNI_ASIDE_FORKING = 2 };

struct tn_domain;
struct tn_object;

/* Functions of a room that run around fork(), and when a domain is freed. NULL: none. */
struct tni_fork_hooks {
    /*
     * In the parent, before fork(): write the child's holds and other records. `child` is the
     * child's seat, whose state is JOINING.
     */
    int (*prepare)(struct tn_domain *domain, uint32_t child);
    /* Around fork(), while no other thread has a thread record: take and release the locks. */
    void (*lock)(struct tn_domain *domain);
    void (*unlock)(struct tn_domain *domain, bool in_child);
    /* In the child, after domain->seat is set: drop all state that belongs to the parent. */
    void (*child)(struct tn_domain *domain);
    /* When the domain is freed: unmap and free the memory to which the room's part points. */
    void (*free)(struct tn_domain *domain);
};

/* Rooms that keep a part of their own in a domain. */
enum {
    TNI_PART_ALLOC,
    TNI_PART_BACKING,
    TNI_PART_REF,
    TNI_PART_SHARE,
    TNI_PART_OBJECT,
    TNI_PART_REAPER,
    TNI_PART_ORDER,
    TNI_PARTS,
    TNI_PART_BYTES = 192
};

struct tn_domain {
    struct tni_segment segment;
    uint32_t seat; /* TNI_NO_SEAT: the domain is closed, or a forked child got no seat */
    uint32_t incarnation;
    uint64_t who;                 /* tni_who(seat, incarnation) */
    void *witness;                /* of this incarnation of the seat; NULL: none */
    const _Atomic uint32_t *mark; /* reads 0 in a child in which no fork handler ran */
    struct tni_seat *me;
    _Atomic uint64_t
        *row; /* this seat's row of holds, for as long as the process has the seat */
    struct tni_thread threads[TNI_THREADS];
    bool is_manager; /* this process is tenond */
    bool is_closed;
    uint64_t clock_ahead_ns; /* tni_os_clock_ahead_ns() of the process that has the seat */
    /*
     * How many pointers keep this struct: the public one, one for each private object, and,
     * once the domain is closed, one for each local reference that is left.
     */
    _Atomic uint64_t keepers;
    struct tn_domain *next;   /* in the list of this process's domains */
    uint64_t foreign_wait_ns; /* tn_domain_options.foreign_wait_ns */

    /* Private tables for the rooms above. They are sparse: an untouched page costs nothing. */
    _Atomic uint32_t *local;                   /* [blocks], by position: local references */
    _Atomic uint32_t local_limit[TNI_CLASSES]; /* `local` is 0 from this block of a class on */
    _Atomic uint64_t *mapped;  /* a bit for each block: this process touched its memory */
    _Atomic uint32_t *roles;   /* [objects], see struct tn_object */
    bool is_empty_in_children; /* fork() empties `mapped`, `roles` and all caches */

    /* Functions that rooms above registered. */
    struct tni_fork_hooks hooks[TNI_FORK_HOOKS];
    uint32_t hook_count;
    /* Do the work of tenond, in case tenond has died. Called now and then. May be NULL. */
    void (*survive)(struct tn_domain *domain);
    _Atomic uint64_t survive_ns; /* when survive() is due again */
    /*
     * Called when a table or the memory is full: reclaim what dead processes or expired tickets
     * hold, or wait up to 50 ms for the process that is doing so.
     * @return true: dead processes and tickets were checked, so the caller retries once. pre:
     * the caller has no thread record and no claim. May be NULL.
     */
    bool (*relieve)(struct tn_domain *domain);
    _Atomic uint64_t relieve_ns; /* relieve() is not called again before this time */

    _Atomic int poll_fd; /* -1 until the program asks for the descriptor; see bell.c */
    struct {
        bool is_there; /* poll_fd is an epoll descriptor over the three descriptors below */
        int fd, watch_fd;
        _Atomic int tenond_fd; /* readable once this process must check that a tenond lives */
    } bell; /* written by the thread that makes poll_fd, before other threads see poll_fd */

    /* Valid from fork_prepare() until fork() returns. */
    uint64_t child_word;    /* the word that the child must find in its seat */
    void *child_witness;    /* NULL: none */
    char child_reason[160]; /* why a forked child got no seat */
    uint32_t child_seat;

    /* One struct for each room above, for that room's private state: TNI_PART(). */
    _Alignas(TNI_CACHE_LINE) uint8_t parts[TNI_PARTS][TNI_PART_BYTES];
};

/*
 * Define tni_ROOM_part(domain), which returns the part of a domain that a room keeps. The
 * room's door defines the struct and uses this macro once. A new domain's parts are all zero.
 */
#define TNI_PART(room, number)                                                                 \
    _Static_assert(sizeof(struct tni_##room##_part) <= TNI_PART_BYTES, "parts are larger");    \
    static inline struct tni_##room##_part *tni_##room##_part(const struct tn_domain *domain)  \
    {                                                                                          \
        return (struct tni_##room##_part *)(uintptr_t)domain->parts[number];                   \
    }

#endif
