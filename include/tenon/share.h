/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TENON_SHARE_H
#define TENON_SHARE_H

#include <tenon/tensor.h>

TN_BEGIN_DECLS

/*
 * How a storage crosses between processes.
 *
 * ARENA            a block of the domain's arena: no descriptor, no mapping, no system call of
 *                  its own. The default.
 * FILE_DESCRIPTOR  a memory object of its own (memfd), sealed against resizing and against
 *                  more seals. For sharing with processes outside of the domain, and for memory
 *                  that only its creator writes. One mapping in each process that uses it.
 * FILE_SYSTEM      a named file of a memory file system, for programs that attach by name.
 *
 * Whatever the strategy, members of the domain see tensors: they are pushed, exported and
 * released alike, and what the dead held is given back. Strategies may be mixed freely;
 * switching concerns new storages only. docs/guide/README.md says when to use which,
 * docs/guide/costs.md what each costs.
 */
enum {
    TN_STRATEGY_DEFAULT = 0, /* whichever this process has set */
    TN_STRATEGY_ARENA = 1,
    TN_STRATEGY_FILE_DESCRIPTOR = 2,
    TN_STRATEGY_FILE_SYSTEM = 3
};

/**
 * Set the strategy of storages that this process makes from now on. At first it is
 * $TENON_STRATEGY, else ARENA; a forked child goes on with its parent's.
 *
 * @param strategy  TN_STRATEGY_*, but not TN_STRATEGY_DEFAULT, which stands for what is set
 * here
 * @return 0, or TN_ERR_INVALID (another number)
 * Threads: any; it is one setting for all threads.
 */
TN_API TN_NODISCARD int tn_strategy_set(uint32_t strategy);

/** The present strategy, TN_STRATEGY_*. When $TENON_STRATEGY makes no sense: ARENA. */
TN_API uint32_t tn_strategy_get(void);

/**
 * The name of a strategy, as in "file_descriptor"; NULL for a number that is none. Static. The
 * strategies that this system has are numbered from 1 on, without gaps.
 */
TN_API const char *tn_strategy_name(uint32_t strategy);

/**
 * Find a strategy by its name. TN_ERR_INVALID: no strategy has this name; TN_ERR_UNSUPPORTED:
 * this system lacks it.
 */
TN_API TN_NODISCARD int tn_strategy_parse(const char *name, uint32_t *ret_strategy);

/**
 * Give a private storage another size; what it has is kept, new bytes are zero.
 *
 * @param size_bytes  of the storage, for all tensors over it; not less than this tensor and, if
 *         it has other views, not less than now
 * @return 0, TN_ERR_DENIED (shared, foreign, read-only or exported memory keeps its size),
 *         TN_ERR_INVALID (a view would lie outside), TN_ERR_NO_MEMORY
 *
 * Pointers from tn_tensor_data() are invalid afterwards.
 */
TN_API TN_NODISCARD int tn_tensor_resize_storage(tn_tensor *tensor, uint64_t size_bytes);

/* ---- write-once arenas ------------------------------------------------------------------- */

/**
 * Memory that its creator fills with any number of tensors, and that every other process can
 * only read: the kernel refuses its writes. It takes one descriptor and one mapping, however
 * many tensors it holds, and serves any number of readers with one copy. Its memory is given
 * back when the last of its tensors, and the tn_arena, are gone everywhere.
 *
 * Threads: one at a time.
 */
typedef struct tn_arena tn_arena;

/**
 * @param size_bytes  of all tensors together, each rounded up to 64; committed at once
 * @return 0, or as tn_tensor_create()
 */
TN_API TN_NODISCARD int tn_arena_create(tn_domain *domain, uint64_t size_bytes,
                                        tn_deadline deadline, tn_arena **ret_arena);

/**
 * A tensor of the arena, zeroed, which this process can write. TN_ERR_FULL: no room left;
 * TN_ERR_INVALID, TN_ERR_UNSUPPORTED: as of tn_tensor_create(); TN_ERR_NO_MEMORY (private
 * memory). A child has the arena for reading only: TN_ERR_DENIED, or TN_ERR_FORKED without a
 * seat.
 */
TN_API TN_NODISCARD int tn_arena_allocate(tn_arena *arena, tn_dtype dtype, int32_t ndim,
                                          const int64_t *shape, tn_tensor **ret_tensor);

/** Bytes that are left in the arena; 0 for NULL. */
TN_API uint64_t tn_arena_room(const tn_arena *arena);

/** End the arena: no more tensors are made; those that exist stay. Returns NULL; NULL is
 * accepted. */
TN_API tn_arena *tn_arena_close(tn_arena *arena);

/* ---- beyond the domain ------------------------------------------------------------------- */

/*
 * A storage with memory of its own begins with this header; the data follows at `data_offset`.
 * All numbers are in the machine's byte order. A program without tenon may map the object and
 * read the tensor as it stands here; one that attaches to a file by its path should say so in
 * `holders`, as tn_tensor_open_path() does.
 */
enum { TN_STORAGE_VERSION = 1, TN_STORAGE_HOLDERS = 64 };
#define TN_STORAGE_MAGIC "TENONSTO"
typedef struct tn_storage_header {
    char magic[8]; /* TN_STORAGE_MAGIC, without an end; written last */
    uint32_t version;
    uint32_t must_understand; /* feature bits; unknown ones refuse the storage */
    uint64_t object_bytes;    /* header, data, and what fills up the last page */
    uint64_t data_offset;
    uint64_t data_bytes;
    uint32_t uid;      /* owner */
    uint32_t strategy; /* TN_STRATEGY_* */
    uint32_t block;    /* its number in the domain */
    uint32_t generation;
    uint8_t domain[16]; /* id of the domain */
    int32_t creator_pid;
    uint32_t flags;         /* TN_TENSOR_WRITE_ONCE or 0 */
    uint64_t creator_start; /* clock ticks since boot; with the pid, who made it */
    uint64_t pid_space; /* the creator's pid namespace, and its time namespace above bit 32 */
    uint64_t created_unix_ns; /* CLOCK_REALTIME */
    /* The tensor that the storage was made for. */
    uint8_t dtype_code; /* DLPack's */
    uint8_t dtype_bits;
    uint16_t dtype_lanes;
    int32_t ndim;
    uint64_t byte_offset; /* from the start of the data */
    int64_t shape[TN_MAX_NDIM];
    int64_t strides[TN_MAX_NDIM]; /* of elements */
    /*
     * The references that keep a file: entry 0 is 1 while the domain uses it; every other is 0,
     * or a process that attached by path: {start time:42, pid:22}, taken and given back by
     * atomic compare-and-swap. Whoever leaves last removes the name; a dead holder's entry
     * counts for nothing.
     */
    uint64_t holders[TN_STORAGE_HOLDERS];
} tn_storage_header;

enum {
    /*
     * Send a descriptor that only reads. A reader who runs as another user can never write;
     * against the same user only TN_TENSOR_WRITE_ONCE helps, since a process may always reopen
     * what is its user's own.
     */
    TN_SEND_READ_ONLY = 1u << 0
};

/**
 * Send a FILE_DESCRIPTOR tensor over a Unix socket, to a process that need not be in the
 * domain, nor run as the same user. The receiver's memory stays valid after this process ends.
 *
 * @param socket_fd  a connected SOCK_STREAM or SOCK_SEQPACKET socket, borrowed
 * @return 0, TN_ERR_INVALID (private), TN_ERR_UNSUPPORTED (another strategy: the whole arena
 *         would go along), TN_ERR_CLOSED (nobody reads), TN_ERR_TIMED_OUT, TN_ERR_SYSTEM
 *
 * One packet of at most 64 KiB: docs/layout.md. Attributes go along. A stream may carry other
 * bytes before and after it; one on which a packet was sent in part (TIMED_OUT with a deadline,
 * see the detail) is out of step and can only be closed.
 *
 * What was received can be sent on as it is. A receiver that got a descriptor that only reads
 * sends just that, whatever `flags` say. To send one that writes on as TN_SEND_READ_ONLY, it is
 * opened anew, which only a process of the storage's user may do: TN_ERR_SYSTEM for others.
 *
 * Threads: any; packets of two threads over one stream may be mixed up.
 * Blocks: until there is room for the packet, or the deadline.
 */
TN_API TN_NODISCARD int tn_tensor_send(tn_tensor *tensor, int socket_fd, uint32_t flags,
                                       tn_deadline deadline);

/**
 * Receive what tn_tensor_send() sent, in any process. The tensor belongs to no domain; it
 * cannot be shared in one, since its memory has a life of its own: copy it for that. It is
 * read-only where the descriptor does not write. The tensor keeps one descriptor and one
 * mapping until it and its views end.
 *
 * @param socket_fd   as of tn_tensor_send(); nothing is read beyond the packet
 * @param ret_tensor  owned by the caller; untouched on failure
 * @return 0, or
 *         TN_ERR_CLOSED     the other side is gone
 *         TN_ERR_TIMED_OUT  nothing came until the deadline; what came in part is lost
 *         TN_ERR_INVALID    not a tensor; or its descriptor is no memory object, is not sealed
 *                           against shrinking, is of huge pages, or is shorter than it claims
 *         TN_ERR_VERSION    another version, or parts that must be understood
 *         TN_ERR_SYSTEM     among others, no room for the descriptor
 *         TN_ERR_NO_MEMORY
 *
 * After INVALID or VERSION the stream is at the end of the packet. If the data was no packet,
 * 24 bytes have been consumed.
 *
 * Blocks: until a packet is there, or the deadline. With TN_NOW a packet that is there
 * in part stays for the next call.
 * Fork: a child has the tensor as well.
 */
TN_API TN_NODISCARD int tn_tensor_receive(int socket_fd, tn_deadline deadline,
                                          tn_tensor **ret_tensor);

/**
 * A descriptor of a FILE_DESCRIPTOR storage, to be passed on in whatever way; owned by the
 * caller, close-on-exec.
 * @param flags  TN_SEND_*
 * @return 0, TN_ERR_INVALID (private), TN_ERR_UNSUPPORTED (another strategy), TN_ERR_STALE (the
 *         storage ended with its domain), TN_ERR_MANAGER (tenond is silent), TN_ERR_NOT_FOUND
 *         (nobody has it any more), TN_ERR_FULL, TN_ERR_SYSTEM (among others, as of
 *         tn_tensor_send(): received from another user, and TN_SEND_READ_ONLY)
 */
TN_API TN_NODISCARD int tn_tensor_descriptor(tn_tensor *tensor, uint32_t flags, int *ret_fd);

/**
 * The tensor that a storage was made for, from its descriptor, which stays the caller's: as its
 * header states it, without attributes. Errors as of tn_tensor_receive().
 */
TN_API TN_NODISCARD int tn_tensor_from_descriptor(int fd, tn_tensor **ret_tensor);

/**
 * The same of a FILE_SYSTEM storage, by its path, in any process of the same user, pid
 * namespace and time namespace. Keeps the file until the tensor ends, or the process does; who
 * is last removes it.
 *
 * @param path  absolute, as tn_tensor_info's `path` gives it
 * @return as tn_tensor_receive(), or TN_ERR_INVALID (not absolute, or no plain file),
 *         TN_ERR_NOT_FOUND, TN_ERR_DENIED (another user's, of another such namespace, or a
 *         symbolic link, which is not followed),
 *         TN_ERR_CORRUPT (truncated, or its header makes no sense), TN_ERR_FULL
 *         (TN_STORAGE_HOLDERS - 1 hold it already)
 *
 * A file that is truncated while it is mapped kills its users with SIGBUS: its memory is not
 * sealed, as that of a descriptor is.
 *
 * Fork: a child can use the tensor; only the parent keeps the file.
 * Crash: other processes ignore and reuse the entry of a dead process in `holders`.
 */
TN_API TN_NODISCARD int tn_tensor_open_path(const char *path, tn_tensor **ret_tensor);

TN_END_DECLS

#endif
