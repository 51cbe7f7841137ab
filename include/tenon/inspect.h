/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TENON_INSPECT_H
#define TENON_INSPECT_H

#include <tenon/handle.h>
#include <tenon/tensor.h>

TN_BEGIN_DECLS

/*
 * Who holds what. An inspector reads a domain without taking a seat or writing to it. What it
 * reports was true at some moment during the call, and entries may be of different moments.
 * Callbacks return non-zero to stop; that value is then the function's result. An entry that a
 * callback gets is borrowed for the callback.
 *
 * All of them may fail with TN_ERR_SYSTEM or TN_ERR_NO_MEMORY, for want of descriptors or of
 * private memory above all; what was reported until then is not all that there is.
 */
typedef struct tn_inspector tn_inspector;

/** A domain, as the list shows it. This struct does not grow: tn_domain_stat contains it. */
typedef struct tn_domain_entry {
    char name[64]; /* "" if anonymous */
    uint8_t id[16];
    uint32_t uid;
    int32_t creator_pid;
    uint32_t seats_used;      /* without tenond's */
    uint32_t seats;           /* that processes other than tenond can take */
    uint64_t committed_bytes; /* of the arena, and of all objects outside of it */
    uint64_t quota_bytes;
    uint64_t age_ns;
    char runtime_folder[128]; /* that its name belongs to; "": no tenond, or none seen from here
                               */
    /*
     * 0; or its shared layout, which is another one than this library's: then only name, id,
     * uid and creator_pid are known, and the other fields are 0.
     */
    uint32_t other_layout;
    uint32_t reserved;
} tn_domain_entry;

typedef int tn_domain_entry_fn(const tn_domain_entry *domain, void *context);

/** Call `each` for every living domain of this user, those of other versions of tenon too. */
TN_API TN_NODISCARD int tn_inspect_domains(tn_domain_entry_fn *each, void *context);

/**
 * Look at the domain of this name, or, if `name` is 32 hexadecimal digits, of this id.
 *
 * @return 0, or
 *         TN_ERR_INVALID    the name is malformed; or two domains of this user have it. The
 *                           detail names both ids. tn_domain_open() prefers the one of the
 *                           caller's runtime folder; who looks at a domain may have another
 *                           folder than its members, so this call prefers none, unless
 *                           TENON_RUNTIME_DIR is set
 *         TN_ERR_NOT_FOUND, TN_ERR_VERSION, TN_ERR_DENIED, TN_ERR_CORRUPT  as of
 *                           tn_domain_open()
 *         TN_ERR_NO_MEMORY, TN_ERR_SYSTEM
 *
 * Threads: any.   Blocks: bounded.   Fork: yes, both sides may use it.
 * Crash: nothing is left.
 */
TN_API TN_NODISCARD int tn_inspector_open(const char *name, tn_inspector **ret_inspector);
/** Close the inspector. Returns NULL; NULL is accepted. */
TN_API tn_inspector *tn_inspector_close(tn_inspector *inspector);

/** Sizes, limits and counts of a domain. */
typedef struct tn_domain_stat {
    size_t struct_size; /* sizeof(tn_domain_stat), set by the caller */
    tn_domain_entry domain;
    uint64_t watermark_bytes;
    uint64_t live_bytes;      /* in live blocks, as asked for */
    uint64_t free_bytes;      /* committed and free, kept warm */
    uint64_t outside_bytes;   /* committed in objects outside of the arena: tenon/share.h */
    uint64_t outside_count;   /* of these objects */
    uint64_t huge_page_bytes; /* mapped with huge pages in some member, as the kernel says */
    uint64_t control_bytes;   /* memory of the control segment */
    uint64_t blocks_live;
    uint64_t blocks_limit; /* of one size class */
    uint32_t objects_used;
    uint32_t objects;
    uint32_t tickets_used;
    uint32_t tickets;
    uint32_t layout_version;
    int32_t manager_pid;     /* 0: no tenond now */
    char huge_pages[32];     /* the system's policy for shared memory, as in "advise" */
    uint64_t deaths;         /* members that ended without leaving, and were reclaimed */
    uint64_t manager_starts; /* how often a tenond took the domain over */
} tn_domain_stat;

/** Read the sizes, limits and counts of the domain as a whole. */
TN_API TN_NODISCARD int tn_inspect_stat(tn_inspector *inspector, tn_domain_stat *ret_stat);

typedef struct tn_seat_entry {
    uint32_t seat;
    uint32_t incarnation;
    int32_t pid;
    char state[12]; /* "alive", "joining", "leaving", "reaping", "dead", "unknown" */
    bool is_manager;
    char command[64];
    uint64_t age_ns;
    uint64_t blocks_held;
    uint64_t bytes_held; /* of blocks it holds, shared ones counted in full */
} tn_seat_entry;
typedef int tn_seat_entry_fn(const tn_seat_entry *seat, void *context);
/** Call `each` for every seat that is taken: the members, and tenond. */
TN_API TN_NODISCARD int tn_inspect_seats(tn_inspector *inspector, tn_seat_entry_fn *each,
                                         void *context);

typedef struct tn_holder {
    uint32_t seat;
    int32_t pid;
    char command[64];
} tn_holder;

typedef struct tn_block_entry {
    uint32_t block;
    uint64_t bytes;       /* as asked for */
    uint64_t block_bytes; /* of its size class */
    /* "arena", "file_descriptor", "file_system"; "unknown": its object is being made */
    const char *strategy;
    uint64_t object_bytes; /* of its object outside of the arena; 0: it has none */
    const char *path;      /* of its file, borrowed for the callback; NULL: it has none */
    bool is_write_once;
    uint64_t age_ns;
    uint32_t creator_seat;
    int32_t creator_pid; /* 0 if gone */
    const char *kind;    /* "tensor", "message", "bytes", "queue" */
    tn_dtype dtype;      /* of a tensor */
    int32_t ndim;
    int64_t shape[8]; /* the first 8 */
    /*
     * Words for what a tensor over it was last sent with, as in "requires_grad parameter name":
     * requires_grad, stop_gradient, parameter, buffer, conjugate, negative, was_pinned, name,
     * axis_names, lod, quantizer, part, metadata. "": none. Borrowed for the callback.
     */
    const char *attributes;
    uint32_t references;  /* all records that name it */
    uint32_t in_messages; /* of these: in queues and messages */
    uint32_t in_tickets;
    uint32_t holder_count;
    const tn_holder *holders; /* [holder_count], borrowed for the callback */
} tn_block_entry;
typedef int tn_block_entry_fn(const tn_block_entry *block, void *context);
/** Call `each` for every live block, with the processes that hold it. */
TN_API TN_NODISCARD int tn_inspect_blocks(tn_inspector *inspector, tn_block_entry_fn *each,
                                          void *context);

typedef struct tn_object_entry {
    uint64_t id;      /* as of tn_object_id() */
    const char *kind; /* "queue", "event", "semaphore", "lock", "condition", "barrier" */
    char name[48];    /* "" if anonymous */
    /*
     * Messages waiting; permits; 1 if set or locked; processes that wait at a barrier, 0 once
     * it is broken.
     */
    uint32_t count;
    uint32_t capacity; /* of a queue; parties of a barrier */
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
} tn_object_entry;
typedef int tn_object_entry_fn(const tn_object_entry *object, void *context);
/** Call `each` for every queue, event, semaphore, lock, condition and barrier. */
TN_API TN_NODISCARD int tn_inspect_objects(tn_inspector *inspector, tn_object_entry_fn *each,
                                           void *context);

/** The ticket of an exported handle, which keeps a reference until the handle is imported. */
typedef struct tn_ticket_entry {
    uint64_t id;
    uint32_t uses_left;
    uint32_t issuer_seat;
    int32_t issuer_pid;
    uint32_t block;
    uint64_t bytes;
    uint64_t remaining_ns; /* TN_NO_EXPIRY: no end */
} tn_ticket_entry;
typedef int tn_ticket_entry_fn(const tn_ticket_entry *ticket, void *context);
/** Call `each` for every live ticket. */
TN_API TN_NODISCARD int tn_inspect_tickets(tn_inspector *inspector, tn_ticket_entry_fn *each,
                                           void *context);

/** One sentence for each discrepancy that an audit finds. */
typedef int tn_audit_fn(const char *sentence, bool repaired, void *context);

/**
 * Recount everything in the domain: every block's count against the records that name it, every
 * bit, slot, ticket and seat; and look for each file that it has outside of the arena. A file
 * that somebody removed, replaced or cut cannot be repaired.
 *
 * Safe while others work: what is in motion is looked at again, and reported only if it stands
 * still and is wrong. What never stood still is counted in *ret_unchecked.
 *
 * @param repair         make counts true and free what nobody holds; takes a seat for it
 * @param each           called for each discrepancy; may be NULL
 * @param ret_unchecked  the number of blocks that could not be checked, because other processes
 *         used them all the time. They are no discrepancies. Without `repair`, an inspector
 *         leaves out blocks that a member could check, since other processes do not know of the
 *         inspector. May be NULL; untouched on failure
 * @return the number of discrepancies found, or what `each` returned, or an error
 */
TN_API TN_NODISCARD int tn_inspect_audit(tn_inspector *inspector, bool repair,
                                         tn_audit_fn *each, void *context,
                                         uint32_t *ret_unchecked);

/**
 * The same, on a domain that this process is a member of. While the audit counts a block, other
 * processes wait, for 100 ms at most, before they use that block. The audit leaves out a block
 * that a stopped process is at work on.
 */
TN_API TN_NODISCARD int tn_domain_audit(tn_domain *domain, bool repair, tn_audit_fn *each,
                                        void *context, uint32_t *ret_unchecked);

/**
 * One sentence for each file of this user that looks like a storage of tenon's, but that no
 * living domain has, or its domain let go, and that no living process holds; tn_inspect_gc()
 * removes them. Only $TENON_SHM_DIR, else /dev/shm, is looked through. Files of other pid
 * namespaces are left out, and so are files of a domain that has a member, whether or not this
 * process can look into that member. `each` may be NULL.
 * @return how many, or what `each` returned, or TN_ERR_DENIED: the folder may not be read
 */
TN_API TN_NODISCARD int tn_inspect_files(tn_audit_fn *each, void *context);

/**
 * Where the runtime folder is: the one that this process keeps to. Before a process has made or
 * joined a domain: $TENON_RUNTIME_DIR, else the first that can be used of
 * $XDG_RUNTIME_DIR/tenon, /run/user/UID/tenon, /tmp/tenon-UID, /dev/shm/tenon-UID and
 * /tmp/tenon-UID-1 to -9. Of the last three, one that exists comes before one that does not.
 *
 * A process keeps to the folder in which it made its first domain, or of the domain that it
 * joined first if it could have chosen that folder; so do its forked children, and the tenond
 * that it starts. Later changes of these variables change nothing. A folder that
 * TENON_RUNTIME_DIR did not name is replaced by another one if it cannot be used any more, or
 * if the tenond of the process's domains went on in another one; the process sees that when it
 * makes or joins a domain, and while it waits. Static per thread.
 */
TN_API const char *tn_runtime_folder(void);

/**
 * Remove what dead processes left in every domain, the files that tn_inspect_files() names, and
 * what a dead tenond, of whatever version, left in the runtime folder. @return seats reclaimed,
 * or TN_ERR_DENIED as tn_inspect_files()
 */
TN_API TN_NODISCARD int tn_inspect_gc(tn_audit_fn *each, void *context);

TN_END_DECLS

#endif
