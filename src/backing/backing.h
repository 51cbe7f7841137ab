/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backing: storages whose memory is an object of their own: a memfd, a named file, or memory of
 * a device.
 *
 * A block of TNI_BACKING_CLASS stands for such a storage. The room ref counts its references
 * and decides when it ends, as for any block. This room makes the object, maps it, and ends it.
 */
#ifndef TNI_BACKING_H
#define TNI_BACKING_H

#include <tenon/share.h>

#include "alloc/alloc.h"
#include "device/device.h"

/*
 * The depot: descriptors that tenond keeps for all members, so that a storage can be mapped
 * after its maker has ended. The room reaper sets these functions; a domain without tenond has
 * none.
 */
struct tni_depot {
    /**
     * Give tenond copies of all descriptors of a block, as many as tni_backing_descriptors()
     * says; starts a tenond if none listens. tenond takes all of them or none. TN_ERR_FULL: it
     * has no room for them. TN_ERR_STALE: the block has ended. TN_ERR_TIMED_OUT: tenond does
     * not answer.
     */
    int (*put)(struct tn_domain *domain, tni_block block, uint32_t generation, const int *fds,
               uint32_t fd_count);
    /**
     * Get all descriptors of a block, in the order in which they were put: ret_fds [fd_count].
     * TN_ERR_NOT_FOUND: tenond has none, or no tenond listens. TN_ERR_MANAGER: tenond did not
     * answer, or has another number of descriptors. TN_ERR_TIMED_OUT: it has not got all
     * descriptors from its vault yet; ask again. TN_ERR_SYSTEM: this process cannot open so
     * many more descriptors.
     */
    int (*get)(struct tn_domain *domain, tni_block block, uint32_t generation, int *ret_fds,
               uint32_t fd_count);
    /** Start a tenond if none listens. TN_ERR_MANAGER (it cannot start), TN_ERR_TIMED_OUT. */
    int (*start)(struct tn_domain *domain);
    /**
     * If a new tenond runs, give it the descriptors that this process still has. Called before
     * an operation that may call put() or get(). pre: the caller does not have the lock of
     * mappings
     */
    void (*catch_up)(struct tn_domain *domain);
    /** Whether a live tenond has every descriptor that this process gave to any tenond. */
    bool (*has_all)(const struct tn_domain *domain);
    /** Notify tenond that it can close some of the descriptors. Never blocks. */
    void (*ring)(struct tn_domain *domain);
};

/* This process's connection to tenond; see depot.c of the room reaper. */
struct tni_depot_connection {
    int fd;                   /* valid only while its inode is `number` */
    uint64_t number;          /* the socket's inode; 0: not connected */
    uint64_t pause_ns;        /* tenond did not answer: do not ask again before this time */
    _Atomic uint64_t manager; /* the tenond that has this process's descriptors; 0: none */
    _Atomic bool has_missed;  /* tenond could not take some descriptor */
};

/* The part of a struct tn_domain that this room uses. */
struct tni_backing_part {
    const struct tni_depot *depot;
    struct tni_depot_connection depot_connection; /* protected by `mappings_lock` */
    struct tni_mapping **mappings; /* by block index; the table is NULL until the first use */
    uint64_t mappings_bytes;
    uint32_t mappings_limit;        /* one above the highest index that was mapped */
    struct tni_mutex mappings_lock; /* fork() takes this lock after every thread record */
    uint32_t kept_limit;            /* most descriptors to keep although tenond has a copy */
    uint32_t kept_fds;              /* descriptors in `mappings` and `parked` */
    struct tni_mapping *parked;     /* unmapped, but with a descriptor: table.c, I6 */
    uint32_t parked_count, parked_limit;
    struct tni_opened *opened;   /* allocations of other processes: opened.c */
    int32_t opened_pid;          /* whose list it is */
    uint64_t used_devices[2];    /* of CUDA and of ROCm, a bit each, that this process uses for
                                    the domain */
    _Atomic bool has_pinned;     /* this process has registered memory of the domain */
    bool has_pieces;             /* a mapping is, or was, of pieces of another allocator */
    _Atomic uint64_t slabs_seen; /* header->slabs_ended when this process last unmapped slabs */
};
TNI_PART(backing, TNI_PART_BACKING)

/** A mapping of one storage's object in this process. Lives while `refs` is not 0. */
struct tni_mapping {
    uint8_t *address; /* of the object, perhaps on a device; the data begins at data_offset */
    struct tni_device_memory memory; /* on a device; device.type is 0 for memory of the host */
    uint64_t object_bytes;
    uint64_t data_offset;
    uint64_t data_bytes;
    uint64_t inode;
    uint32_t index; /* of the block */
    uint32_t generation;
    uint32_t refs;
    int fd;                    /* of the object; -1: not kept. See table.c, I4 */
    _Atomic bool is_deposited; /* tenond has a copy of the descriptor */
    bool is_read_only;
    bool is_write_once;        /* only its maker may write; the maker maps it writable */
    bool is_ipc;               /* memory of another allocator, or moved from there */
    bool is_foreign;           /* it is this process's, and not unmapped: foreign.c */
    bool is_in_pieces;         /* a foreign one, with descriptors that can be had again */
    struct tni_opened *opened; /* what it is in, of another process; NULL: nothing */
    bool is_slab;              /* it stays mapped while no tensor uses it: device.c, I9 */
    _Atomic uint32_t first;    /* the first block of a slab's span; 0: not known yet */
    char *path;                /* of a named file; NULL: a memfd */
    struct tni_mapping *next;  /* in the list of parked mappings: table.c, I6 */
};

/** What a new storage is for. */
struct tni_backing_about {
    uint32_t strategy;     /* not ARENA */
    uint32_t flags;        /* TN_SHARE_* */
    bool is_unsealed;      /* of a write-once storage: see tni_backing_write() */
    tn_device device;      /* type 0: the host */
    uint64_t object_bytes; /* these three of a storage on a device, by tni_backing_prepare() */
    uint8_t uuid[16];
    uint32_t device_flags; /* TN_DEVICE_IS_PART */
    uint64_t data_bytes;
    tn_dtype dtype;
    int32_t ndim;
    const int64_t *shape;
    const int64_t *strides;
    uint64_t byte_offset;
};

/** The strategy of this process. TN_STRATEGY_DEFAULT: it is not decided yet. */
extern _Atomic uint32_t tni_strategy_current;
static inline bool tni_strategy_is_arena(void)
{
    return atomic_load_explicit(&tni_strategy_current, memory_order_relaxed) ==
           TN_STRATEGY_ARENA;
}

static inline bool tni_mapping_is_on_device(const struct tni_mapping *m)
{
    return m->memory.device.type != 0;
}

/** Register the fork hook. */
void tni_backing_init(struct tn_domain *domain);

/**
 * Check whether this process may make this storage, and prepare the device that it is for.
 * TN_ERR_INVALID, TN_ERR_DENIED; of a device: TN_ERR_NOT_FOUND, TN_ERR_UNSUPPORTED,
 * TN_ERR_NO_MEMORY, TN_ERR_FORKED, TN_ERR_DEVICE.
 */
int tni_backing_prepare(struct tn_domain *domain, struct tni_backing_about *about);
/**
 * Try once to make the object of a block that only this process knows and holds, and map it.
 * The caller gets one reference to the mapping. After a failure the block has no object, and
 * the caller releases the block. No fork() runs while the caller has its thread record: a
 * forked child would inherit half an object, or a hold of a block without an object.
 * @return 0, TNI_ALLOC_AGAIN, TN_ERR_NO_MEMORY (quota, machine, or the file system),
 *         TN_ERR_FULL (descriptors), TN_ERR_UNSUPPORTED, TN_ERR_SYSTEM
 */
int tni_backing_create(struct tn_domain *domain, struct tni_thread *thread, tni_block block,
                       const struct tni_backing_about *about, struct tni_mapping **ret_mapping);

/**
 * Write into a write-once storage that was made with `is_unsealed`, and so has neither its
 * pages nor its seal yet. The kernel puts the bytes into new pages without zeroing them first.
 * Before tni_backing_seal() nobody may be given the storage, and nobody may use its memory. A
 * process that dies before leaves a storage as any that it holds.
 * pre: the range lies inside of the data; this process made the storage
 * @return 0, TN_ERR_NO_MEMORY, TN_ERR_SYSTEM (also if the source cannot be read)
 */
int tni_backing_write(struct tni_mapping *mapping, uint64_t off, const void *source,
                      uint64_t size_bytes);
/**
 * Commit the pages of the data from `written_bytes` on, complete the header, and refuse writes
 * from now on. pre: each page before has been written to
 * @return 0, TN_ERR_NO_MEMORY, TN_ERR_SYSTEM
 */
int tni_backing_seal(struct tni_mapping *mapping, uint64_t written_bytes);

/**
 * Map the object of a block, or use the mapping that this process has. pre: a record keeps the
 * block
 * @return 0, TN_ERR_STALE (another generation, or the storage has ended), TN_ERR_NOT_FOUND (no
 *         process has a descriptor of the object, or the file is gone), TN_ERR_DENIED (only
 *         processes that this process may not inspect have a descriptor), TN_ERR_MANAGER (only
 *         tenond has a descriptor, and tenond does not answer), TN_ERR_CORRUPT (the block names
 *         another object), TN_ERR_FULL (descriptors), TN_ERR_NO_MEMORY (mappings),
 *         TN_ERR_SYSTEM
 */
int tni_backing_map(struct tn_domain *domain, tni_block block, uint32_t generation,
                    struct tni_mapping **ret_mapping);

/**
 * Add a reference to the mapping whose data contains these bytes. NULL: no mapping contains
 * them. The caller checks that this process holds the block in the mapping's generation.
 */
struct tni_mapping *tni_backing_find(struct tn_domain *domain, uintptr_t address,
                                     uint64_t size_bytes);

/** Add a reference to a mapping. */
void tni_backing_ref(struct tn_domain *domain, struct tni_mapping *mapping);
/**
 * Release a reference of a mapping. The caller does this before it releases the block, because
 * the block may be reused right after that.
 */
void tni_backing_unmap(struct tn_domain *domain, struct tni_mapping *mapping);

/**
 * Whether a storage could be made if all other memory were free: the object and the page with
 * its description fit in the largest quota, and a file fits in its file system.
 */
bool tni_backing_can_fit(const struct tn_domain *domain, const struct tni_backing_about *about);

/** Get a descriptor of a mapping's object. The caller closes it. */
int tni_backing_open(struct tn_domain *domain, struct tni_mapping *mapping, tni_block block,
                     bool read_only, int *ret_fd);

/**
 * End the object that a block had in this generation. Called before the block is FREE, when no
 * record names the block any more. Idempotent; several processes may call this at once, and one
 * of them may come after the block was reused.
 */
void tni_backing_end(struct tn_domain *domain, tni_block block, uint32_t generation);

/** Give a new tenond every descriptor that this process still has. */
void tni_backing_deposit_again(struct tn_domain *domain);

/**
 * Best effort: give tenond the descriptor of a storage before this process names the storage to
 * other processes. A failure is logged.
 */
void tni_backing_ensure_deposited(struct tn_domain *domain, struct tni_mapping *mapping);

/**
 * Before this process leaves: give tenond the descriptor of each storage that records of other
 * processes name.
 * @remark Waits up to 5 s for a tenond that does not answer.
 */
void tni_backing_hand_over(struct tn_domain *domain);

/**
 * Unmap slabs that have ended and that no tensor of this process uses, if any ended lately.
 * @return whether it unmapped one
 */
bool tni_backing_sweep_slabs(struct tn_domain *domain);
/** Close parked descriptors of storages that no record names any more. */
void tni_backing_sweep(struct tn_domain *domain);
/** Close all parked descriptors, after this process has left. */
void tni_backing_fini(struct tn_domain *domain);

/**
 * Copy the description of the object that a block names, and check the copy. TN_ERR_NOT_FOUND:
 * the block has no object. TN_ERR_CORRUPT: the description is damaged.
 */
int tni_backing_read(const struct tni_segment *segment, tni_block block,
                     struct tni_backing *ret_backing);

/** Whether a description that was copied and checked is of memory of another allocator. */
static inline bool tni_backing_is_ipc(const struct tni_backing *b)
{
    return atomic_load_explicit(&b->strategy, memory_order_relaxed) == TN_STRATEGY_CUDA_IPC;
}
/** Whether that memory is still where the other allocator made it: it is not tenon's. */
static inline bool tni_backing_is_foreign(const struct tni_backing *b)
{
    return tni_backing_is_ipc(b) &&
           atomic_load_explicit(&b->moved, memory_order_relaxed) != TNI_MOVED;
}
/** How many descriptors tenond has of the object of a description that was copied and checked.
 */
static inline uint32_t tni_backing_descriptors(const struct tni_backing *b)
{
    return tni_backing_is_foreign(b) && b->piece_count > 0 ? b->piece_count : 1;
}

/* ---- objects, in a domain or not (store.c) ----------------------------------------------- */

#define TNI_STORAGE_PREFIX "tenon-storage:" /* of a memfd's name; the domain's name follows */

/** Check a header that was read from an object of `object_bytes`. TN_ERR_*. */
int tni_store_check(const tn_storage_header *header, uint64_t object_bytes);
/**
 * Map an object and check its header. The mapping is writable unless `read_only` or a seal
 * forbids it.
 * @param is_file  the object is a named file, not a memfd
 */
int tni_store_map(int fd, bool is_file, bool read_only, struct tni_mapping *ret_mapping);
/** Enter this process among the holders in the file's header. TN_ERR_FULL, TN_ERR_DENIED. */
int tni_store_attach(const struct tni_mapping *mapping, uint32_t *ret_entry);
/**
 * Clear an entry that tni_store_attach() made. The last holder removes the file, unless another
 * file has its name by now.
 */
void tni_store_detach(const struct tni_mapping *mapping, uint32_t entry);
/** Whether a live process that attached by path holds the file. */
bool tni_store_is_held(const tn_storage_header *header);

/* ---- files by name (files.c) ------------------------------------------------------------- */

/** Write a path for a new file of this domain. No other file ever had this path. */
int tni_files_name(const struct tn_domain *domain, char path[TNI_PATH_BYTES]);
/** Whether tni_files_name() may have written this path for this domain. */
bool tni_files_is_ours(const struct tni_segment *segment, const char *path);

/** Called for each removed file, and for each that could not be removed: status says why. */
typedef void tni_files_fn(const char *path, int status, void *context);
/** Return the ids of all live domains: *ret_ids [*ret_count], which the caller frees. */
typedef int tni_files_living_fn(uint8_t (**ret_ids)[16], uint32_t *ret_count);
/**
 * Remove files of this user and this pid namespace whose domain has ended and which no live
 * process holds. The files are listed before `living` is called: so the domain of each listed
 * file existed by then. A domain that `living` does not find counts as live while a process has
 * a witness of it. If the members of a domain have no witness, a file of a storage that
 * has not ended stays while the file's maker is alive.
 * @return how many files were removed, or an error
 */
int tni_files_collect(tni_files_living_fn *living, tni_files_fn *each, void *context);
/**
 * Call `each` with status 0 for each file that tni_files_collect() would remove.
 * @return how many files, or an error
 */
int tni_files_find(tni_files_living_fn *living, tni_files_fn *each, void *context);
/** Remove the files of one domain that has ended, except those that a live process holds. */
void tni_files_end_domain(const struct tni_segment *segment);
/**
 * Remove files whose storage has ended in a live domain, and that no live process holds. Such a
 * file is left when a process that attached by path was killed, or when the file could not be
 * removed. A failure is reported to `each` and not logged.
 * @param segment  may be read-only
 * @param look_only  remove nothing; call `each` with 0 for each file that would be removed
 * @return how many files; TN_ERR_CORRUPT (a description is damaged; nothing is removed); or
 *         another error
 */
int tni_files_let_go(const struct tni_segment *segment, bool look_only, tni_files_fn *each,
                     void *context);

/**
 * The lock of this room's part of a domain. fork() takes it after all thread records, so a
 * thread that has this lock must not take a record.
 */
void tni_mappings_lock(struct tn_domain *domain);
void tni_mappings_unlock(struct tn_domain *domain);

#include "backing/foreign.h"

#endif
