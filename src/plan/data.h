/* SPDX-License-Identifier: Apache-2.0 */
/*
 * data: what tasks read and write, its copies, and the memories that have them. Part of the
 * door plan.h.
 */
#ifndef TNI_PLAN_DATA_H
#define TNI_PLAN_DATA_H

#include "plan/resource.h"

/* The disk, where there is one, has what a full host evicts, and no tasks. */
enum { TNI_HOST = 0, TNI_DISK = 1, TNI_MEMORIES = 64, TNI_NO_MEMORY = 255 };
enum { TNI_READS = 1, TNI_WRITES = 2 };

/*
 * Between which memories data is moved; each has a speed of its own. PEER: cards that are near
 * each other; FAR: those that are not.
 */
enum { TNI_LINK_HOST, TNI_LINK_PEER, TNI_LINK_FAR, TNI_LINK_DISK, TNI_LINKS };

/* A copy of data in one memory. At most one thread moves it at a time. */
struct tni_copy {
    struct tni_data *data;
    uint8_t memory;
    enum tni_copy_state {
        TNI_COPY_NONE,   /* it has no room */
        TNI_COPY_STALE,  /* it has room; its content is old, or was never written */
        TNI_COPY_VALID,  /* it is as the last task wrote it */
        TNI_COPY_COMING, /* a thread makes room for it, or copies it from another memory */
        TNI_COPY_GOING   /* a thread drops it */
    } state;
    uint8_t from;   /* while COMING: the memory of the source; TNI_NO_MEMORY: room only */
    bool had_room;  /* before it was COMING */
    bool was_valid; /* before it was GOING */
    bool is_kept;   /* it has room for good, which is no part of what its memory has */
    bool is_own;    /* the program's own memory: it is kept, and nobody drops it */
    bool is_moved;  /* by the thread that moves it */
    uint32_t pins;  /* tasks that run with it, and copies that come from it */
    struct tni_copy *prev, *next; /* of the idle copies of the memory, while pins is 0 */
    struct tni_copy *next_move;   /* of those that one thread moves */
};

struct tni_data {
    void *owner; /* the room above knows the data by it */
    uint64_t bytes;
    _Atomic uint32_t uses; /* tasks that name it and have not ended */
    uint32_t readers;      /* tasks that run and read it */
    bool is_written;       /* a task that writes it runs */
    bool is_awaited;       /* a task that was set aside writes it: no more readers come */
    bool is_temporary;     /* nobody needs it once no task names it */
    uint8_t remakes;       /* how often it was made again */
    /* By tni_plan.data_events: when it was made, and when a task wrote it last. */
    uint64_t made_at, written_at;
    const struct tni_task *maker; /* the task that wrote all of it last, if that is known */
    struct tni_task *remaker;     /* the task that makes it again, or did so last; or NULL */
    struct tni_copy copies[];     /* by memory */
};

/* The memory of a card, or of the host, or the disk. */
struct tni_memory {
    struct tni_pool *pool;  /* NULL: the host, or the disk */
    uint32_t first, count;  /* the slots of the card */
    uint32_t parent;        /* the group that the card is in */
    int32_t node;           /* of the host's memory, the node near the device; -1: not known */
    uint64_t capacity;      /* bytes */
    uint64_t used, idle;    /* without what is kept; idle: of copies that nothing pins */
    uint64_t kept;          /* of copies that are kept */
    _Atomic bool is_lost;   /* its device failed: nothing is brought there or back any more */
    struct tni_copy oldest; /* the head of the ring of idle copies */
    uint64_t evictions, evicted_bytes, arrivals_bytes;
};

struct tni_memories {
    uint32_t count;
    bool has_disk;
    struct tni_memory *all; /* owned; [count] */
    double ns_per_byte[TNI_LINKS];
    bool is_measured[TNI_LINKS]; /* by a copy, or given */
};

/* What a task does with data. Each list has an end: `data` is NULL. */
struct tni_access {
    struct tni_data *data;
    uint32_t mode; /* TNI_READS | TNI_WRITES */
};

struct tni_plan;
struct tni_running;
struct tn_kind;

/**
 * Read the memories of cards and of the host, as in "GPU=16000000000 HOST=64000000000", and
 * the speeds of links in bytes a second, as in "HOST=24000000000 PEER=100000000000"; either may
 * be NULL. If the host has an end, there is a disk.
 * @return 0, TN_ERR_INVALID, TN_ERR_NO_MEMORY
 */
int tni_memories_init(struct tni_memories *memories, struct tni_pools *pools,
                      const char *capacities, const char *links);
void tni_memories_fini(struct tni_memories *memories);
/**
 * Add the memories of the cards of a pool, in their order. pre: there is no data yet
 * @param option  that names the pool, for errors
 * @return 0, TN_ERR_INVALID
 */
int tni_memories_add(struct tni_memories *memories, struct tni_pool *pool, uint64_t capacity,
                     const char *option);
/** Whether the cards of a pool have memories. */
bool tni_memories_has(const struct tni_memories *memories, const struct tni_pool *pool);
/** Whether tasks of the pool's cards, or, if it is NULL, of the host, may have data there. */
static inline bool tni_memory_is_of(const struct tni_memories *memories, uint32_t memory,
                                    const struct tni_pool *pool)
{
    return memories->all[memory].pool == pool && !(memories->has_disk && memory == TNI_DISK);
}
/** The pool whose cards have the memory of tasks with this request; NULL: the host's. */
const struct tni_pool *tni_memories_pool(const struct tni_memories *memories,
                                         const struct tni_pools *pools,
                                         const struct tni_request *request);

/**
 * Make data with a valid copy, or without one. A copy in the memory of the host is kept there.
 * @param first  the memory of the copy, which has room for it; TNI_NO_MEMORY: there is none
 */
struct tni_data *tni_data_create(struct tni_plan *plan, uint64_t bytes, uint32_t first);
/**
 * Keep room for its copy on the host from now on, beside what the host may have.
 * @return false: not now, since that copy comes or goes
 */
bool tni_data_keep(struct tni_plan *plan, struct tni_data *data);
/** Whether no task names it or runs with it, and nothing moves it. */
bool tni_data_is_quiet(const struct tni_plan *plan, const struct tni_data *data);
/**
 * Keep its copies from eviction, so that the caller may drop them.
 * @return the memories with copies that are not the program's own, a bit each
 */
uint64_t tni_data_end_use(struct tni_plan *plan, struct tni_data *data);
/** Free it. pre: tni_data_end_use(), and its copies were dropped */
void tni_data_free(struct tni_plan *plan, struct tni_data *data);

/**
 * Check that tasks of the kind with this data can begin at all: it fits into the memory of one
 * card, which has all slots that a variant requests. @return 0, TN_ERR_INVALID
 */
int tni_data_can_ever(const struct tni_plan *plan, const struct tn_kind *kind,
                      const struct tni_access *accesses);
/** How long it takes to bring what a task reads into a memory. */
uint64_t tni_data_cost_ns(const struct tni_plan *plan, const struct tni_access *accesses,
                          uint32_t memory);
/**
 * Whether the device of a memory failed, and a task can have its data in another of the same
 * pool, now or later.
 */
bool tni_data_is_lost_at(const struct tni_plan *plan, const struct tni_request *request,
                         const struct tni_access *accesses, uint32_t memory);
/** Whether a task can have its data in a memory now: there is room, and nothing else moves it
    or writes it. */
bool tni_data_can_begin(const struct tni_plan *plan, const struct tni_access *accesses,
                        uint32_t memory);
/** Whether nothing else in a memory is in use, not even as the source of a copy elsewhere. */
bool tni_data_is_alone(const struct tni_plan *plan, const struct tni_access *accesses,
                       uint32_t memory);
/** Whether a task waits for others that use or move its data, rather than for room. */
bool tni_data_is_busy(const struct tni_plan *plan, const struct tni_access *accesses);
/** Let no reader join others before a task that was set aside and writes; or let them again. */
void tni_data_await(const struct tni_access *accesses, bool is_awaited);
/**
 * Take the room, pin the copies, and list in running->moves what the caller has to move.
 * @param empties  whether all that is idle there is evicted, for a task that runs alone
 */
void tni_data_begin(struct tni_plan *plan, struct tni_running *running, bool empties);
/** What was moved was moved, or, where `is_moved` is not set, failed. */
void tni_data_moved(struct tni_plan *plan, struct tni_running *running);
/** The task has ended: running->has_run and has_failed say how. */
void tni_data_end(struct tni_plan *plan, struct tni_running *running);
/** Learn how long copies over a link took. */
void tni_link_learn(struct tni_memories *memories, uint32_t link, uint64_t bytes,
                    uint64_t took_ns);
/** Over which link a copy goes: TNI_LINK_*. */
uint32_t tni_link_between(const struct tni_memories *memories, uint32_t from, uint32_t to);

#endif
