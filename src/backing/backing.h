/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backing: storages whose memory is an object of their own, a memfd or a named file.
 *
 * Such a storage is a block like any other, of TNI_BACKING_CLASS: who holds it, and when it
 * ends, is the room ref's. This room makes the object behind it, maps it, and ends it.
 */
#ifndef TNI_BACKING_H
#define TNI_BACKING_H

#include <tenon/share.h>

#include "alloc/alloc.h"

/*
 * Descriptors that tenond keeps for all members, so that a storage can be mapped after its
 * maker has ended. Set by the room reaper; NULL in a domain without tenond.
 */
struct tni_depot {
    /**
     * The descriptor stays the caller's. A tenond is started if none listens. TN_ERR_FULL:
     * tenond has no room for it. TN_ERR_STALE: the block has ended. TN_ERR_TIMED_OUT: tenond is
     * silent.
     */
    int (*put)(struct tn_domain *domain, tni_block block, uint32_t generation, int fd);
    /**
     * TN_ERR_NOT_FOUND: it has none, or there is no tenond. TN_ERR_MANAGER: it did not answer.
     * TN_ERR_SYSTEM: no descriptor is left here.
     */
    int (*get)(struct tn_domain *domain, tni_block block, uint32_t generation, int *ret_fd);
    /** Start a tenond if none listens. TN_ERR_MANAGER: it cannot be; TN_ERR_TIMED_OUT. */
    int (*summon)(struct tn_domain *domain);
    /**
     * Called before an operation that may put or get, without the lock of mappings: another
     * tenond is given what this process still has.
     */
    void (*catch_up)(struct tn_domain *domain);
    /** Whether a tenond that lives has all that this process gave to any. */
    bool (*has_all)(const struct tn_domain *domain);
    /** Some of them are not needed any more. Never blocks. */
    void (*ring)(struct tn_domain *domain);
};

/* This process's connection to it; see depot.c of the room reaper. */
struct tni_depot_line {
    int fd;                   /* with `number`; else of anybody */
    uint64_t number;          /* of the socket; 0: none */
    uint64_t pause_ns;        /* not tried before: it did not answer */
    _Atomic uint64_t manager; /* the tenond that has what this process deposited; 0: none */
    _Atomic bool has_missed;  /* a deposit that it did not get */
};

/* What this room keeps of a domain. */
struct tni_backing_part {
    const struct tni_depot *depot;
    struct tni_depot_line depot_line; /* whoever has `mappings_lock` */
    struct tni_mapping **mappings;    /* what is mapped, by block index; NULL until then */
    uint64_t mappings_bytes;
    uint32_t mappings_limit;        /* one above the highest index that was mapped */
    struct tni_mutex mappings_lock; /* fork() takes it too, after every thread record */
    uint32_t kept_limit;            /* most of them that may be kept without need */
    uint32_t kept_fds;              /* descriptors in `mappings` and `parked` */
    struct tni_mapping *parked;     /* what it is the last to have, see table.c, I6 */
    uint32_t parked_count, parked_limit;
};
TNI_PART(backing, TNI_PART_BACKING)

/** What this process has mapped of one storage; lives while `refs` is not 0. */
struct tni_mapping {
    uint8_t *address; /* of the object; the data follows at data_offset */
    uint64_t object_bytes;
    uint64_t data_offset;
    uint64_t data_bytes;
    uint64_t inode;
    uint32_t index; /* of the block */
    uint32_t generation;
    uint32_t refs;
    int fd;                    /* kept for a while, see backing.c I4; -1 */
    _Atomic bool is_deposited; /* tenond has a descriptor of it too */
    bool is_read_only;
    bool is_write_once;       /* and ours to write, unless is_read_only */
    char *path;               /* of a named file; NULL */
    struct tni_mapping *next; /* of those that are parked: not mapped any more, I6 */
};

/** What a storage is made for. */
struct tni_backing_about {
    uint32_t strategy; /* not ARENA */
    uint32_t flags;    /* TN_SHARE_* */
    uint64_t data_bytes;
    tn_dtype dtype;
    int32_t ndim;
    const int64_t *shape;
    const int64_t *strides;
    uint64_t byte_offset;
};

/** What tn_strategy_get() says, once it was asked or set. */
extern _Atomic uint32_t tni_strategy_current;
static inline bool tni_strategy_is_arena(void)
{
    return atomic_load_explicit(&tni_strategy_current, memory_order_relaxed) ==
           TN_STRATEGY_ARENA;
}

/** Fork hook. */
void tni_backing_init(struct tn_domain *domain);

/** Whether this process may make such a storage. TN_ERR_INVALID, TN_ERR_DENIED. */
int tni_backing_check(struct tn_domain *domain, const struct tni_backing_about *about);
/**
 * Make the object of a block that this process holds and nobody else knows, and map it: one
 * mapping reference is the caller's. After a failure the block has no object, and is released
 * as usual. One try. The record of the thread keeps forks away, whose child would inherit half
 * an object, or a hold of a block that is about to get one.
 * @return 0, TNI_ALLOC_AGAIN, TN_ERR_NO_MEMORY (quota, machine, or the file system),
 *         TN_ERR_FULL (descriptors), TN_ERR_UNSUPPORTED, TN_ERR_SYSTEM
 */
int tni_backing_create(struct tn_domain *domain, struct tni_thread *thread, tni_block block,
                       const struct tni_backing_about *about, struct tni_mapping **ret_mapping);

/**
 * Map the object of a block that somebody keeps, or use the mapping that this process has.
 * @return 0, TN_ERR_STALE (another generation, or it ended meanwhile), TN_ERR_NOT_FOUND (its
 *         descriptor or file is gone), TN_ERR_CORRUPT (it is not what the block says),
 * TN_ERR_FULL (descriptors), TN_ERR_NO_MEMORY (mappings), TN_ERR_SYSTEM
 */
int tni_backing_map(struct tn_domain *domain, tni_block block, uint32_t generation,
                    struct tni_mapping **ret_mapping);

/**
 * One more reference of the mapping whose data these bytes lie in; NULL: there is none. That
 * this process holds its block, in the mapping's generation, is for the caller to see to.
 */
struct tni_mapping *tni_backing_find(struct tn_domain *domain, uintptr_t address,
                                     uint64_t size_bytes);

/** Give a mapping back. Before the reference of the block, which may be another's a moment
 * later. */
void tni_backing_unmap(struct tn_domain *domain, struct tni_mapping *mapping);

/**
 * Whether a storage could be made if all other memory were free: it and its record's page are
 * not larger than what the domain may ever have, nor is it larger than the whole file system
 * that its file would be in.
 */
bool tni_backing_can_fit(const struct tn_domain *domain, const struct tni_backing_about *about);

/** A descriptor of a mapping's object, the caller's to close. */
int tni_backing_open(struct tn_domain *domain, struct tni_mapping *mapping, tni_block block,
                     bool read_only, int *ret_fd);

/**
 * End the object that a block had in this generation, before the block is FREE: nobody names it
 * any more. May be done again, by others at the same time, and too late.
 */
void tni_backing_end(struct tn_domain *domain, tni_block block, uint32_t generation);

/** Give tenond every descriptor that this process still has: the one before it was killed. */
void tni_backing_deposit_again(struct tn_domain *domain);

/**
 * A storage is about to be named to others: see to it that tenond has its descriptor, or that
 * tenond was asked.
 */
void tni_backing_confirm(struct tn_domain *domain, struct tni_mapping *mapping);

/**
 * Before this process leaves: give tenond each descriptor of a storage that others name.
 * @remark Waits for a tenond that is silent, 5 s at most.
 */
void tni_backing_hand_over(struct tn_domain *domain);

/** Close descriptors that were kept for storages which nobody else needs any more. */
void tni_backing_sweep(struct tn_domain *domain);
/** Close all of them: this process has left. */
void tni_backing_fini(struct tn_domain *domain);

/** What a block says of its object, read once and checked. TN_ERR_CORRUPT, TN_ERR_NOT_FOUND. */
int tni_backing_read(const struct tni_segment *segment, tni_block block,
                     struct tni_backing *ret_backing);

/* ---- objects, in a domain or not (store.c) ---------------------------------------------- */

#define TNI_STORAGE_PREFIX "tenon-storage:" /* of a memfd's name; the domain's name follows */

/** Whether a header read from an object of `object_bytes` makes sense. TN_ERR_*. */
int tni_store_check(const tn_storage_header *header, uint64_t object_bytes);
/**
 * Map an object and check its header; for writing if that is wanted and allowed.
 * @param is_file  it is a named file, not a memory object
 */
int tni_store_map(int fd, bool is_file, bool read_only, struct tni_mapping *ret_mapping);
/** Take one of the holders' entries for this process. TN_ERR_FULL. */
int tni_store_attach(const struct tni_mapping *mapping, uint32_t *ret_entry);
/** Give it back; whoever is last removes the file, unless its name is another's by now. */
void tni_store_detach(const struct tni_mapping *mapping, uint32_t entry);
/** Whether a process that attached by path still holds it. */
bool tni_store_is_held(const tn_storage_header *header);

/* ---- files by name (files.c) ------------------------------------------------------------- */

/** Write the path for a new file of this domain, which no other ever had. */
int tni_files_name(const struct tn_domain *domain, char path[TNI_PATH_BYTES]);
/** Whether a path is one that tni_files_name() may have written in this domain. */
bool tni_files_is_ours(const struct tni_segment *segment, const char *path);

/** Called for each file that was removed, or could not be; the detail says why. */
typedef void tni_files_fn(const char *path, int status, void *context);
/** All domains that live now: *ret_ids [*ret_count], to be freed. */
typedef int tni_files_living_fn(uint8_t (**ret_ids)[16], uint32_t *ret_count);
/**
 * Remove files of this user, of this pid namespace, whose domain does not live, and that no
 * living process holds. `living` is asked once the files are known: the domain of each was
 * there before it. A domain that `living` cannot see lives while anybody has a witness of it.
 * Where its members have none, a file that the domain did not let go stays while the file's
 * maker is alive. @return how many, or an error
 */
int tni_files_collect(tni_files_living_fn *living, tni_files_fn *each, void *context);
/** Call `each` with 0 for what tni_files_collect() would remove. @return how many, or an error
 */
int tni_files_find(tni_files_living_fn *living, tni_files_fn *each, void *context);
/** All files of one domain that has ended, but for those that others still hold. */
void tni_files_end_domain(const struct tni_segment *segment);
/**
 * Files that a living domain let go, and that nobody holds any more: those who attached by path
 * were killed, or it could not be removed. A failure to remove one is not logged, only `each`
 * hears of it.
 * @param segment  may be read-only
 * @param look_only  call `each` with 0 for what would be removed
 * @return how many, TN_ERR_CORRUPT (a block makes no sense; nothing is touched), or an error
 */
int tni_files_let_go(const struct tni_segment *segment, bool look_only, tni_files_fn *each,
                     void *context);

/** The lock of all that a domain's part of backing keeps. fork() takes it too, after all thread
 * records: who has it must not want one. */
void tni_mappings_lock(struct tn_domain *domain);
void tni_mappings_unlock(struct tn_domain *domain);

#endif
