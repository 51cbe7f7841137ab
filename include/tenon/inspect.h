/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TENON_INSPECT_H
#define TENON_INSPECT_H

#include <tenon/handle.h>
#include <tenon/sched.h>
#include <tenon/tensor.h>

TN_BEGIN_DECLS

/*
 * Which process holds what. An inspector reads a domain; it takes no seat and writes nothing.
 * Each entry that it reports was true at some moment during the call. Two entries may be of
 * different moments.
 *
 * The functions that take a callback `each` call it once for each entry and pass `context` on
 * to it. The entry is borrowed for the callback. They return 0 when all entries were reported,
 * or the result of `each` if that is not 0, which stops the call, or
 *     TN_ERR_INVALID    an argument is NULL
 *     TN_ERR_NO_MEMORY  there is no private memory
 *     TN_ERR_SYSTEM     a system call failed, for example because this process cannot open
 *                       another descriptor
 * After an error some entries have not been reported.
 *
 * Threads: any, also several with one inspector.   Blocks: never, unless stated.
 * Fork: yes; parent and child may both use an inspector.   Crash: nothing is left.
 */
typedef struct tn_inspector tn_inspector;

/**
 * A domain, as tn_inspect_domains() reports it. This struct does not grow: tn_domain_stat
 * contains it.
 */
typedef struct tn_domain_entry {
    char name[64]; /* "" if anonymous */
    uint8_t id[16];
    uint32_t uid;
    int32_t creator_pid;
    uint32_t seats_used;      /* seats that are taken, without tenond's */
    uint32_t seats;           /* that processes other than tenond can take */
    uint64_t committed_bytes; /* of the arena, and of all objects outside of it */
    uint64_t quota_bytes;
    uint64_t age_ns;
    char runtime_folder[128]; /* the folder that its name belongs to; "" if it has no tenond,
                                 or this process cannot see the tenond */
    /*
     * 0 if the domain has the shared layout of this library, else the version of its layout.
     * Then only name, id, uid and creator_pid are known, and the other fields are 0.
     */
    uint32_t other_layout;
    uint32_t reserved;
} tn_domain_entry;

/** Receive one domain. A result other than 0 stops the call. */
typedef int tn_domain_entry_fn(const tn_domain_entry *domain, void *context);

/**
 * Call `each` for every live domain of this user, also for domains of other versions of tenon.
 * @return as described at the top of this header
 */
TN_API TN_NODISCARD int tn_inspect_domains(tn_domain_entry_fn *each, void *context);

/**
 * Open an inspector of a domain.
 *
 * @param name           the domain's name, or the 32 hexadecimal digits of its id
 * @param ret_inspector  owned by the caller, ended with tn_inspector_close(); untouched on
 *                       failure
 * @return 0, or
 *         TN_ERR_INVALID    an argument is NULL; the name is malformed; or two domains of this
 *                           user have the name, and the error's sentence gives both ids.
 *                           tn_domain_open() would prefer the domain of the caller's runtime
 *                           folder. This call does so only if TENON_RUNTIME_DIR is set, because
 *                           an inspecting process often has another folder than the members
 *         TN_ERR_NOT_FOUND, TN_ERR_VERSION, TN_ERR_DENIED, TN_ERR_CORRUPT  as tn_domain_open()
 *         TN_ERR_NO_MEMORY  there is no private memory
 *         TN_ERR_SYSTEM     a system call failed
 *
 * Threads: any.   Blocks: bounded.   Fork: yes.   Crash: nothing is left.
 */
TN_API TN_NODISCARD int tn_inspector_open(const char *name, tn_inspector **ret_inspector);
/**
 * Close an inspector.
 * @param inspector  consumed; NULL is accepted. No other thread may use it
 * @return NULL
 */
TN_API tn_inspector *tn_inspector_close(tn_inspector *inspector);

/** Sizes, limits and counts of a domain. */
typedef struct tn_domain_stat {
    size_t struct_size; /* sizeof(tn_domain_stat), set by the caller */
    tn_domain_entry domain;
    uint64_t watermark_bytes;
    uint64_t live_bytes;    /* the sizes that were asked for, of all live blocks of the host */
    uint64_t free_bytes;    /* committed memory of free blocks */
    uint64_t outside_bytes; /* committed in objects outside of the arena: tenon/share.h */
    uint64_t outside_count; /* how many such objects there are */
    uint64_t huge_page_bytes; /* arena memory in huge pages, as the kernel counts it for the
                                 member that maps most */
    uint64_t control_bytes;   /* memory of the control segment */
    uint64_t blocks_live;
    uint64_t blocks_limit; /* most live blocks of one size class */
    uint32_t objects_used;
    uint32_t objects;
    uint32_t tickets_used;
    uint32_t tickets;
    uint32_t layout_version;
    int32_t manager_pid;     /* of the tenond that manages the domain; 0: none now */
    char huge_pages[32];     /* the system's policy for shared memory, as in "advise" */
    uint64_t deaths;         /* members that died and whose seats were reclaimed */
    uint64_t manager_starts; /* how often a tenond began to manage the domain */
    uint64_t foreign_copies; /* how often memory of another allocator on a device was copied,
                                because processes cannot share it where it is */
    uint64_t foreign_copied_bytes;
} tn_domain_stat;

/**
 * Read the sizes, limits and counts of a whole domain.
 * @param ret_stat  its struct_size says how much is filled in; untouched on failure
 * @return 0, or TN_ERR_INVALID (an argument is NULL, or struct_size is out of range), or
 *         TN_ERR_SYSTEM
 */
TN_API TN_NODISCARD int tn_inspect_stat(tn_inspector *inspector, tn_domain_stat *ret_stat);

/** A seat that is taken. */
typedef struct tn_seat_entry {
    uint32_t seat;
    uint32_t incarnation;
    int32_t pid;
    char state[12]; /* "alive", "joining", "leaving", "reaping", "dead", "unknown" */
    bool is_manager;
    char command[64];
    uint64_t age_ns;
    uint64_t blocks_held;
    uint64_t bytes_held; /* sum over these blocks; a block that several seats hold counts in
                            full for each of them */
    uint64_t device_bytes_held; /* the same of the blocks on devices, which bytes_held leaves
                                   out */
} tn_seat_entry;
/** Receive one seat. A result other than 0 stops the call. */
typedef int tn_seat_entry_fn(const tn_seat_entry *seat, void *context);
/**
 * Call `each` for every seat that is taken: those of the members, and tenond's.
 * @return as described at the top of this header
 */
TN_API TN_NODISCARD int tn_inspect_seats(tn_inspector *inspector, tn_seat_entry_fn *each,
                                         void *context);

/** A process that holds a block, a lock or a permit. */
typedef struct tn_holder {
    uint32_t seat;
    int32_t pid;
    char command[64];
} tn_holder;

/** A live block. */
typedef struct tn_block_entry {
    uint32_t block;
    uint64_t bytes;       /* the size that was asked for */
    uint64_t block_bytes; /* the size of its class */
    /*
     * "arena", "file_descriptor", "file_system", "cuda_vmm"; "unknown" while its object is
     * being made
     */
    const char *strategy;
    uint64_t object_bytes; /* the size of its object outside of the arena; 0: it has none */
    const char *path;      /* of its file, borrowed for the callback; NULL: it has none */
    bool is_write_once;
    /*
     * tenon copied the tensor's bytes on a device, out of memory of another allocator, which
     * could not be shared where it was, or whose process left the domain.
     */
    bool is_copy;
    uint64_t age_ns;
    uint32_t creator_seat;
    int32_t creator_pid; /* 0 if the creator is no longer a member */
    /* "tensor", "message", "bytes", "queue", "store" and "channel" for what they need
       themselves, "scheduler"; "slab": memory of a device that is cut into blocks */
    const char *kind;
    tn_dtype dtype; /* of a tensor, as are ndim, shape and attributes */
    int32_t ndim;
    int64_t shape[8]; /* the first 8 */
    /*
     * The attributes that a tensor over the block had when it was last sent, one word for each,
     * as in "requires_grad parameter name": requires_grad, stop_gradient, parameter, buffer,
     * conjugate, negative, was_pinned, name, axis_names, lod, quantizer, part, metadata. "" if
     * there were none. Borrowed for the callback.
     */
    const char *attributes;
    uint32_t references;  /* the block's reference count */
    uint32_t in_messages; /* references from queues, stores, channels and messages */
    uint32_t in_tickets;  /* references from tickets */
    uint32_t holder_count;
    const tn_holder *holders; /* [holder_count], borrowed for the callback */
    char device[48];          /* the UUID of the device that has its bytes; "": the host */
    /*
     * A store that keeps the block, and the key of its value; both borrowed for the callback.
     * NULL: no store keeps it.
     */
    const char *store; /* "": the store has no name */
    const char *key;
    /* A channel that keeps the block; borrowed for the callback. NULL: no channel keeps it. */
    const char *channel; /* "": the channel has no name */
} tn_block_entry;
/** Receive one block. A result other than 0 stops the call. */
typedef int tn_block_entry_fn(const tn_block_entry *block, void *context);
/**
 * Call `each` for every live block, with the processes that hold it.
 * @return as described at the top of this header
 */
TN_API TN_NODISCARD int tn_inspect_blocks(tn_inspector *inspector, tn_block_entry_fn *each,
                                          void *context);

/** A queue, an event, a semaphore, a lock, a condition, a barrier, a store or a channel. */
typedef struct tn_object_entry {
    uint64_t id; /* as of tn_object_id() */
    /* "queue", "event", "semaphore", "lock", "condition", "barrier", "store", "channel" */
    const char *kind;
    char name[48]; /* "" if anonymous */
    /*
     * Messages waiting; permits; 1 if set or locked; processes that wait at a barrier, 0 once
     * it is broken; keys of a store; messages that a channel keeps.
     */
    uint32_t count;
    uint32_t capacity; /* of a queue, a store or a channel; parties of a barrier */
    uint32_t leased;   /* messages out on lease */
    uint32_t openers;  /* processes that have it open */
    uint32_t producers;
    uint32_t consumers;
    int32_t owner_pid; /* of the owner, if there is one; 0: there is none, or several */
    uint64_t pushed;   /* messages since it was made */
    bool ended;
    bool broken; /* a barrier, until tn_barrier_reset() */
    uint32_t
        redelivered; /* messages waiting or on lease that are not at their first delivery */
    uint32_t owner_count;
    /*
     * How often a message was put back since the queue was made, by tn_message_return() or
     * because its consumer died. A process that dies while it puts a message back may leave
     * that one out.
     */
    uint32_t redeliveries;
    /*
     * The process that holds a lock, or those that hold permits of an owned semaphore:
     * [owner_count], borrowed for the callback.
     */
    const tn_holder *owners;
    uint64_t bytes;                   /* of the values of a store */
    uint64_t budget_bytes;            /* of a store; 0: it has no limit */
    uint64_t hits, misses, evictions; /* of a store */
    bool is_kept; /* a store that stays without a process: tn_store_set_kept() */
    /* Of a channel; `pushed` is how many messages were published. */
    uint32_t subscribers;
    int32_t slowest_pid;   /* of the subscriber that has most to receive; 0: none has any */
    uint64_t most_behind;  /* messages that this subscriber has not received */
    uint64_t dropped;      /* messages that subscribers have lost */
    uint64_t disconnected; /* subscribers */
    const char *policy;    /* "wait", "drop", "disconnect"; static */
} tn_object_entry;
/** Receive one object. A result other than 0 stops the call. */
typedef int tn_object_entry_fn(const tn_object_entry *object, void *context);
/**
 * Call `each` for every queue, event, semaphore, lock, condition, barrier, store and
 * channel.
 * @return as described at the top of this header
 */
TN_API TN_NODISCARD int tn_inspect_objects(tn_inspector *inspector, tn_object_entry_fn *each,
                                           void *context);

/** A scheduler that was made with tn_sched_options.domain. */
typedef struct tn_scheduler_entry {
    uint32_t block; /* as tn_inspect_blocks() reports it, of the kind "scheduler" */
    uint32_t seat;
    int32_t pid;
    uint32_t reserved;
    char name[48];       /* "" if it has none */
    uint64_t changed_ns; /* since tasks of it began or ended, or were added */
    tn_sched_info info;  /* its now_ns is 0 */
} tn_scheduler_entry;
/** Receive one scheduler. A result other than 0 stops the call. */
typedef int tn_scheduler_entry_fn(const tn_scheduler_entry *scheduler, void *context);
/**
 * Call `each` for every scheduler that the domain shows.
 * @return as described at the top of this header
 */
TN_API TN_NODISCARD int tn_inspect_schedulers(tn_inspector *inspector,
                                              tn_scheduler_entry_fn *each, void *context);

/** A process that holds memory of a device. */
typedef struct tn_device_holder {
    uint32_t seat;
    int32_t pid;
    char command[64];
    uint64_t tensors;
    uint64_t bytes; /* the sizes that were asked for; a tensor that several processes hold
                       counts in full for each of them */
} tn_device_holder;

/** A device on which the domain has memory. */
typedef struct tn_device_entry {
    int32_t type;         /* TN_DEVICE_* */
    uint32_t objects;     /* pieces of memory: slabs, and tensors with memory of their own */
    char uuid[48];        /* as tn_device_info.uuid_text */
    uint64_t bytes;       /* of these pieces */
    uint64_t quota_bytes; /* the most that `bytes` may be; UINT64_MAX: no limit */
    uint64_t tensors;
    uint64_t live_bytes;   /* the sizes that were asked for, of these tensors */
    uint64_t unheld_bytes; /* of these, in tensors that no process holds: messages and tickets
                              have them */
    uint32_t holder_count;
    uint32_t reserved;
    const tn_device_holder *holders; /* [holder_count], most bytes first; borrowed for the
                                        callback */
} tn_device_entry;
/** Receive one device. A result other than 0 stops the call. */
typedef int tn_device_entry_fn(const tn_device_entry *device, void *context);
/**
 * Call `each` for every device on which the domain has memory, with the processes that hold it.
 * No driver is needed.
 * @return as described at the top of this header
 */
TN_API TN_NODISCARD int tn_inspect_devices(tn_inspector *inspector, tn_device_entry_fn *each,
                                           void *context);

/** The ticket of an exported handle. It owns a reference to the block until it ends. */
typedef struct tn_ticket_entry {
    uint64_t id;
    uint32_t uses_left;
    uint32_t issuer_seat;
    int32_t issuer_pid;
    uint32_t block;
    uint64_t bytes;
    uint64_t remaining_ns; /* until the ticket expires; TN_NO_EXPIRY: never */
} tn_ticket_entry;
/** Receive one ticket. A result other than 0 stops the call. */
typedef int tn_ticket_entry_fn(const tn_ticket_entry *ticket, void *context);
/**
 * Call `each` for every live ticket.
 * @return as described at the top of this header
 */
TN_API TN_NODISCARD int tn_inspect_tickets(tn_inspector *inspector, tn_ticket_entry_fn *each,
                                           void *context);

/**
 * Receive one sentence for each discrepancy, file or cleanup. A result other than 0 stops the
 * call.
 * @param sentence  borrowed for the call
 * @param repaired  whether the call has repaired or removed what the sentence names
 */
typedef int tn_audit_fn(const char *sentence, bool repaired, void *context);

/**
 * Audit a domain: compare the reference count of every block with the records that name the
 * block, check every bit, slot, ticket and seat, check each file that the domain has outside of
 * the arena, and check its memory of devices: that no two tensors have the same bytes, that
 * each has bytes, and that tenond has the descriptors that were given to it. A file that was
 * removed, replaced or truncated cannot be repaired, nor can memory of devices.
 *
 * Other processes may use the domain during an audit. The audit checks data that changes again,
 * and reports a discrepancy only if the data has stopped changing and is still wrong.
 *
 * @param repair         correct the counts, and free what no process holds. The call then joins
 *                       the domain for its duration, and takes a seat
 * @param each           called for each discrepancy; may be NULL
 * @param ret_unchecked  how many blocks could not be checked because other processes used them
 *                       all the time, or because tenond did not say whether it has their
 *                       descriptors. Such blocks are not discrepancies. Without `repair` the
 *                       number may be higher than that of tn_domain_audit(), because members do
 *                       not wait for an inspector. May be NULL; untouched on failure
 * @return how many discrepancies were found; or the result of `each` that stopped the audit; or
 *         TN_ERR_INVALID (the inspector is NULL), TN_ERR_NO_MEMORY, TN_ERR_SYSTEM; with
 *         `repair` also the errors of tn_domain_open()
 *
 * Threads: any.   Blocks: bounded.   Fork: yes.
 * Crash: each repair is whole or not done; the reaper reclaims the seat.
 */
TN_API TN_NODISCARD int tn_inspect_audit(tn_inspector *inspector, bool repair,
                                         tn_audit_fn *each, void *context,
                                         uint32_t *ret_unchecked);

/**
 * Audit a domain as one of its members. While the audit counts a block, other processes wait
 * for 100 ms at most before they use that block. If a stopped process is in the middle of using
 * a block, the audit does not check the block.
 *
 * @param domain  a domain that this process is a member of
 * @param repair, each, ret_unchecked  as tn_inspect_audit(); no second seat is taken
 * @return as tn_inspect_audit() without `repair`, or TN_ERR_FORKED (this process has no seat)
 *
 * Threads: any.   Blocks: bounded.   Fork: yes.
 * Crash: each repair is whole or not done.
 */
TN_API TN_NODISCARD int tn_domain_audit(tn_domain *domain, bool repair, tn_audit_fn *each,
                                        void *context, uint32_t *ret_unchecked);

/**
 * Find stale files of storages: files of this user that no live process holds, and whose domain
 * has ended or has released the file. tn_inspect_gc() removes such files. The call searches
 * $TENON_SHM_DIR, or /dev/shm if the variable is not set. It leaves out files that were made in
 * another pid namespace. A domain that has a member counts as live, even if this process cannot
 * inspect that member.
 *
 * @param each  called with one sentence for each file; may be NULL
 * @return how many files were found; or the result of `each` that stopped the call; or
 *         TN_ERR_DENIED (this process may not read the folder), TN_ERR_NO_MEMORY, TN_ERR_SYSTEM
 *
 * Threads: any.   Blocks: bounded.   Fork: yes.   Crash: nothing is left.
 */
TN_API TN_NODISCARD int tn_inspect_files(tn_audit_fn *each, void *context);

/**
 * Get the path of this process's runtime folder, in which tenond keeps the names of domains.
 *
 * Before the process has made or joined a domain, the folder is $TENON_RUNTIME_DIR or, if that
 * is not set, the first usable one of $XDG_RUNTIME_DIR/tenon, /run/user/UID/tenon,
 * /tmp/tenon-UID, /dev/shm/tenon-UID and /tmp/tenon-UID-1 to -9. Of the last three, a folder
 * that exists comes before one that does not.
 *
 * Afterwards the process keeps the folder in which it made its first domain. If it joined a
 * domain first, it keeps the folder of that domain, provided that the folder is one of the list
 * above. Its forked children and the tenond that it starts keep the same folder. A later change
 * of the variables has no effect.
 *
 * A folder that TENON_RUNTIME_DIR named is never replaced. Another folder is replaced if it can
 * no longer be used, or if the tenond of the process's domains has moved to another folder. The
 * process finds this out when it makes or joins a domain, and while it waits.
 *
 * @return the path, which is valid until this thread's next call of this function
 *
 * Threads: any.   Blocks: never.   Fork: yes.
 */
TN_API const char *tn_runtime_folder(void);

/**
 * Collect garbage: reclaim the seats of dead processes in every domain of this user, give their
 * free memory above the watermark back to the system, remove the files that tn_inspect_files()
 * finds, and remove the sockets and locks that a dead tenond of any version left in the runtime
 * folder. The call joins each domain in turn.
 *
 * @param each  called with one sentence for each thing that was removed (`repaired` is true) or
 *              could not be removed (`repaired` is false); may be NULL
 * @return how many seats were reclaimed; or the result of `each` that stopped the call; or
 *         TN_ERR_NO_MEMORY, TN_ERR_SYSTEM. A domain or a file that could not be cleaned is no
 *         error: `each` is told
 *
 * Threads: any.   Blocks: bounded.   Fork: yes.
 * Crash: the next call continues.
 */
TN_API TN_NODISCARD int tn_inspect_gc(tn_audit_fn *each, void *context);

TN_END_DECLS

#endif
