/* SPDX-License-Identifier: Apache-2.0 */
/* resource: pools of resources, and what tasks request of them. Private to the room plan. */
#ifndef TNI_PLAN_RESOURCE_H
#define TNI_PLAN_RESOURCE_H

#include "base/base.h"

/* Amounts are counted in 1/10000, so that 0.1 + 0.2 is 0.3. */
enum {
    TNI_UNIT = 10000,
    TNI_POOLS = 16,             /* most resources of a scheduler */
    TNI_SLOTS = 1024,           /* most slots of one resource */
    TNI_GROUP_DEPTH = 8,        /* most levels of nested groups */
    TNI_POOL_NAME_BYTES = 32,   /* with the NUL */
    TNI_REQUEST_TEXT_BYTES = 96 /* of a request that is printed in an error */
};

/*
 * Pools that every scheduler has. A task that requests less than one CPU holds one of THREADS,
 * so that such tasks do not start threads without limit.
 */
enum { TNI_CPU = 0, TNI_THREADS = 1, TNI_BUILT_IN = 2, TNI_BUILT_IN_MASK = 3 };

/* One unit with an identity, such as GPU 0. */
struct tni_slot {
    uint32_t id;      /* as the user named it */
    uint32_t free;    /* 0 to TNI_UNIT */
    uint32_t group;   /* the innermost group that has the slot */
    uint64_t ends_ns; /* when its task is expected to end; TNI_FOREVER: not known */
};

/* A node of the tree of affinity groups. Its slots lie side by side. Group 0 has all slots. */
struct tni_group {
    uint32_t first, count; /* its slots */
    uint32_t parent;       /* of group 0: 0 */
    uint32_t depth;        /* of group 0: 0 */
    uint32_t end;          /* the groups inside it are the next ones, up to this one */
    uint32_t widest;       /* slots of the largest group inside it */
};

struct tni_pool {
    char name[TNI_POOL_NAME_BYTES];
    bool has_slots;
    uint64_t total, free; /* with slots: the sum over them */
    uint32_t slot_count, group_count;
    struct tni_slot *slots;      /* owned, [slot_count] */
    struct tni_group *groups;    /* owned, [group_count], a parent before its children */
    _Atomic uint32_t wide_count; /* tasks not ended that request two slots or more */
    /* The reservation: for a lane that other lanes overtook too often. */
    const void *reserver;                    /* that lane; NULL: no reservation */
    uint64_t reserved;                       /* without slots: this amount */
    uint32_t reserved_first, reserved_count; /* with slots: these */
    uint64_t reserved_from_ns; /* when its task is expected to begin; 0: not known */
};

struct tni_pools {
    uint32_t count;
    struct tni_pool pools[TNI_POOLS];
};

/* What a task needs, ordered by pool. An amount is never 0. */
struct tni_request {
    uint32_t count;
    struct tni_need {
        uint32_t pool;
        uint64_t amount;
    } needs[TNI_POOLS];
};

/* Slots that a task has got: the pool, and the index of the slot in it. */
struct tni_slot_ref {
    uint16_t pool, slot;
};
#define TNI_NO_SLOT ((struct tni_slot_ref){UINT16_MAX, UINT16_MAX})

/**
 * Read the resources of a scheduler, as in "CPU=4 GPU=((0,1),(2,3)) MEM=16.5". Where the text
 * has no CPU, it is `cpu_count`. @return 0, TN_ERR_INVALID, TN_ERR_NO_MEMORY
 */
int tni_pools_init(struct tni_pools *pools, const char *text, uint32_t cpu_count);
void tni_pools_fini(struct tni_pools *pools);
/** @return the pool of this name, or UINT32_MAX */
uint32_t tni_pools_find(const struct tni_pools *pools, const char *name, size_t name_len);
/** Write what there is, as in "CPU=4 GPU=4 slots", cut if it is too long. */
void tni_pools_print(const struct tni_pools *pools, char *text, size_t size_bytes);

/**
 * Read a request, as in "CPU=0 GPU=1"; NULL or a text without CPU requests one CPU. What
 * requests less than one CPU also gets THREADS=1.
 * @return 0; TN_ERR_INVALID: the text is malformed; TN_ERR_NOT_FOUND: it can never be met
 */
int tni_request_read(const struct tni_pools *pools, const char *text,
                     struct tni_request *ret_request);
void tni_request_print(const struct tni_pools *pools, const struct tni_request *request,
                       char *text, size_t size_bytes);
/** Write how much is in use of what is requested, as in "GPU 3 of 4, MEM 12.5 of 16". */
void tni_request_print_use(const struct tni_pools *pools, const struct tni_request *request,
                           char *text, size_t size_bytes);
bool tni_request_is_same(const struct tni_request *a, const struct tni_request *b);
/** The pools that the request needs, a bit each. */
uint32_t tni_request_mask(const struct tni_request *request);
/** How many slots it gets in all. */
uint32_t tni_request_slots(const struct tni_pools *pools, const struct tni_request *request);

/** What steers the choice of slots. */
struct tni_pick {
    const void *lane;            /* may use what is reserved for it */
    struct tni_slot_ref near;    /* TNI_NO_SLOT: no preference */
    uint64_t now_ns, run_ns;     /* run_ns is 0: not known */
    const struct tni_pool *only; /* of this pool, take slots from only_first on; NULL: any */
    uint32_t only_first, only_count;
};
/**
 * Take what the request needs, all or nothing.
 * @param ret_slots  [tni_request_slots()], of each pool in ascending order of id
 */
bool tni_pools_take(struct tni_pools *pools, const struct tni_request *request,
                    const struct tni_pick *pick, struct tni_slot_ref *ret_slots);
/**
 * Find the pool that has too little for the request; of several the last one, since those that
 * are built in come first. @return UINT32_MAX: none, so tni_pools_take() would succeed
 */
uint32_t tni_pools_lacking(const struct tni_pools *pools, const struct tni_request *request,
                           const struct tni_pick *pick);
static inline bool tni_pools_can_take(const struct tni_pools *pools,
                                      const struct tni_request *request,
                                      const struct tni_pick *pick)
{
    return tni_pools_lacking(pools, request, pick) == UINT32_MAX;
}
/** Give back what was taken of the pools in the mask. */
void tni_pools_give(struct tni_pools *pools, const struct tni_request *request,
                    const struct tni_slot_ref *slots, uint32_t pool_mask);
/** When a task that needs `amount` slots can begin, if tasks end as expected. TNI_FOREVER. */
uint64_t tni_pool_slots_free_ns(const struct tni_pool *pool, uint64_t amount);

/** Reserve what the request needs, if no pool of it is reserved. */
bool tni_pools_reserve(struct tni_pools *pools, const struct tni_request *request,
                       const void *lane);
void tni_pools_unreserve(struct tni_pools *pools, const void *lane);

/**
 * How far two slots of a pool lie apart: 0 the same slot, 1 the same innermost group, and one
 * more for each level that they do not share.
 */
uint32_t tni_slot_distance(const struct tni_pool *pool, uint32_t a, uint32_t b);

#endif
