/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TENON_SHARE_H
#define TENON_SHARE_H

#include <tenon/tensor.h>

TN_BEGIN_DECLS

/*
 * A strategy is the kind of memory in which a storage lies, and so the way in which the storage
 * crosses between processes.
 *
 * ARENA            The storage is a block of the domain's arena. It needs no descriptor, no
 *                  mapping and no system call of its own. This is the default.
 * FILE_DESCRIPTOR  The storage is a memory object of its own (memfd), sealed against resizing
 *                  and against more seals. Use it to share with processes outside of the
 *                  domain, and for memory that only its creator may write. Each process that
 *                  uses the storage has one mapping for it.
 * FILE_SYSTEM      The storage is a named file of a memory file system. Use it for programs
 *                  that attach by name.
 * CUDA_VMM         The storage is memory of a device (tn_tensor_options.device), of CUDA or of
 *                  ROCm, which tenon made. The driver keeps the memory for whoever has it
 *                  mapped, whichever process made it and has ended since.
 * CUDA_IPC         The storage is memory of a device that another allocator made, such as
 *                  cudaMalloc() or PyTorch, and that tn_tensor_share() shared where it lies.
 *                  It lives no longer than its process: docs/guide/gpu.md.
 *
 * Members of the domain push, export and release tensors of each strategy in the same way, and
 * the storages that a dead process held are released. A program may mix strategies: a change
 * concerns new storages only. docs/guide/README.md
 * compares the strategies, docs/guide/costs.md their costs.
 */
enum {
    TN_STRATEGY_DEFAULT = 0, /* the strategy that tn_strategy_set() has set */
    TN_STRATEGY_ARENA = 1,
    TN_STRATEGY_FILE_DESCRIPTOR = 2,
    TN_STRATEGY_FILE_SYSTEM = 3,
    TN_STRATEGY_CUDA_VMM = 16,
    TN_STRATEGY_CUDA_IPC = 17
};

/**
 * Set the strategy of the storages that this process makes from now on. Before the first call
 * the strategy is $TENON_STRATEGY or, if that is not set, ARENA.
 *
 * @param strategy  TN_STRATEGY_ARENA, FILE_DESCRIPTOR or FILE_SYSTEM
 * @return 0, or TN_ERR_INVALID (it is none of these)
 *
 * Threads: any; all threads share the setting.   Blocks: never.
 * Fork: a child starts with the strategy of its parent.
 */
TN_API TN_NODISCARD int tn_strategy_set(uint32_t strategy);

/**
 * Get the strategy of new storages.
 * @return TN_STRATEGY_*; ARENA if $TENON_STRATEGY names no strategy
 */
TN_API uint32_t tn_strategy_get(void);

/**
 * Get the name of a strategy, as in "file_descriptor". The strategies that tn_strategy_set()
 * takes have the numbers from 1 on, without gaps.
 * @return a static string; NULL if no strategy has this number
 */
TN_API const char *tn_strategy_name(uint32_t strategy);

/**
 * Find a strategy by its name.
 * @param ret_strategy  TN_STRATEGY_*; untouched on failure
 * @return 0, TN_ERR_INVALID (an argument is NULL, or no strategy has this name), or
 *         TN_ERR_UNSUPPORTED (this system lacks the strategy)
 */
TN_API TN_NODISCARD int tn_strategy_parse(const char *name, uint32_t *ret_strategy);

/**
 * Change the size of a private storage. The call keeps the bytes of the storage, and new bytes
 * are zero. Pointers from tn_tensor_data() to the storage are invalid afterwards.
 *
 * @param size_bytes  the new size, for all tensors over the storage. It must hold this tensor
 *                    and, if other tensors use the storage, be no smaller than before
 * @return 0, or
 *         TN_ERR_INVALID    the tensor is NULL, or a tensor would lie outside of the storage
 *         TN_ERR_DENIED     the memory is shared, read-only, not made by tenon, or exported
 *                           through DLPack
 *         TN_ERR_NO_MEMORY  there is no private memory
 *
 * Threads: no other thread may use a tensor over this storage.   Blocks: never.   Fork: yes.
 */
TN_API TN_NODISCARD int tn_tensor_resize_storage(tn_tensor *tensor, uint64_t size_bytes);

/* ---- write-once arenas ------------------------------------------------------------------- */

/**
 * A write-once arena: one storage that its creator fills with any number of tensors, and that
 * every other process can only read: the kernel refuses its writes. The arena takes one
 * descriptor and one mapping, however many tensors it has, and any number of readers share one
 * copy. Its memory is released when no process has the tn_arena or one of its tensors any more.
 *
 * Threads: one at a time.
 */
typedef struct tn_arena tn_arena;

/**
 * Make a write-once arena.
 * @param size_bytes  of all tensors together, each rounded up to 64 bytes; at least 1. The
 *                    memory is committed at once
 * @param deadline    until when to wait for memory
 * @param ret_arena   owned by the caller, ended with tn_arena_close(); untouched on failure
 * @return as tn_tensor_create()
 *
 * Threads: any.   Blocks: as tn_tensor_create().   Fork: yes.   Crash: the memory is free
 * again.
 */
TN_API TN_NODISCARD int tn_arena_create(tn_domain *domain, uint64_t size_bytes,
                                        tn_deadline deadline, tn_arena **ret_arena);

/**
 * Make a write-once arena that is filled by tn_arena_write() and then sealed by
 * tn_arena_seal(). That is the fastest way to fill new memory with bytes that are there
 * already, such as those of a mapped file: the kernel copies them into pages that it need not
 * zero first. The quota counts the memory at once, but the writes and the seal take it from
 * the system.
 * @return as tn_arena_create(), whose parameters this call has
 *
 * Threads: any.   Blocks: as tn_arena_create().
 * Fork: yes. A child that is forked before the seal cannot write and seal the arena.
 * Crash: the memory is free again, also if the process dies before the seal.
 */
TN_API TN_NODISCARD int tn_arena_create_unsealed(tn_domain *domain, uint64_t size_bytes,
                                                 tn_deadline deadline, tn_arena **ret_arena);

/**
 * Copy bytes into an arena that is not sealed yet. Write from the begin to the end, if you
 * can: the seal then has nothing left to do. The first tensor of the arena begins at byte 0,
 * and each other at the next multiple of 64 after the one before.
 *
 * @param off_bytes   where in the arena
 * @param source      [size_bytes], borrowed; NULL only if size_bytes is 0
 * @param size_bytes  of bytes that lie in the arena
 * @return 0, or
 *         TN_ERR_INVALID    an argument is NULL, or the bytes are not in the arena
 *         TN_ERR_DENIED     the arena is sealed, or this is a forked child
 *         TN_ERR_NO_MEMORY  the system has no memory for the bytes
 *         TN_ERR_SYSTEM     the source cannot be read: it is mapped from a file that has been
 *                           truncated, or that the disk fails to give
 *         TN_ERR_CLOSED, TN_ERR_FORKED  this process has left the domain, or has no seat in it
 *         After a failure some of the bytes may be written.
 *
 * Threads: one at a time per arena.   Blocks: while the source is read.
 */
TN_API TN_NODISCARD int tn_arena_write(tn_arena *arena, uint64_t off_bytes, const void *source,
                                       uint64_t size_bytes);

/**
 * Seal an arena: from now on it makes tensors, and the kernel refuses writes by every process
 * but this one. Bytes that were not written are zero. Do nothing if it is sealed.
 * @return 0, or
 *         TN_ERR_INVALID    the arena is NULL
 *         TN_ERR_DENIED     this is a forked child
 *         TN_ERR_NO_MEMORY  the system has no memory for the bytes that were not written
 *         TN_ERR_SYSTEM     the kernel refuses the seal
 *         TN_ERR_CLOSED, TN_ERR_FORKED  this process has left the domain, or has no seat in it
 *
 * Threads: one at a time per arena.   Blocks: never.
 */
TN_API TN_NODISCARD int tn_arena_seal(tn_arena *arena);

/**
 * Make a tensor in the arena. Its elements are zero, or what tn_arena_write() has put there,
 * and only this process can write them.
 *
 * @param shape       [ndim], elements; borrowed; may be NULL when ndim is 0
 * @param ret_tensor  owned by the caller; untouched on failure
 * @return 0, or
 *         TN_ERR_INVALID      an argument is NULL; the type is unknown; or ndim, a size or the
 *                             product is out of range
 *         TN_ERR_UNSUPPORTED  a sub-byte type
 *         TN_ERR_FULL         the arena has no room for the tensor
 *         TN_ERR_NO_MEMORY    there is no private memory
 *         TN_ERR_DENIED       this is a forked child, which can only read the arena; or the
 *                             arena is not sealed yet
 *         TN_ERR_CLOSED, TN_ERR_FORKED  this process has left the domain, or has no seat in it
 *
 * Threads: one at a time per arena.   Blocks: never.
 */
TN_API TN_NODISCARD int tn_arena_allocate(tn_arena *arena, tn_dtype dtype, int32_t ndim,
                                          const int64_t *shape, tn_tensor **ret_tensor);

/** Get the number of bytes that are left in the arena; 0 for NULL. */
TN_API uint64_t tn_arena_room(const tn_arena *arena);

/**
 * Close the arena: it makes no more tensors. Its tensors remain valid.
 * @param arena  consumed; NULL is accepted
 * @return NULL
 */
TN_API tn_arena *tn_arena_close(tn_arena *arena);

/* ---- beyond the domain ------------------------------------------------------------------- */

/*
 * A storage of the strategies FILE_DESCRIPTOR and FILE_SYSTEM begins with this header; the data
 * follows at `data_offset`. All numbers are in the machine's byte order. A program without
 * tenon may map the object and read the tensor that the header describes. A program that
 * attaches to a file by its path should record itself in `holders`, as tn_tensor_open_path()
 * does.
 */
enum { TN_STORAGE_VERSION = 1, TN_STORAGE_HOLDERS = 64 };
#define TN_STORAGE_MAGIC "TENONSTO"
typedef struct tn_storage_header {
    char magic[8]; /* TN_STORAGE_MAGIC, without a zero byte; written last */
    uint32_t version;
    uint32_t must_understand; /* feature bits; a reader refuses a bit that it does not know */
    uint64_t object_bytes;    /* the header, the data, and the rest of the last page */
    uint64_t data_offset;
    uint64_t data_bytes;
    uint32_t uid;      /* owner */
    uint32_t strategy; /* TN_STRATEGY_* */
    uint32_t block;    /* its number in the domain */
    uint32_t generation;
    uint8_t domain[16]; /* id of the domain */
    int32_t creator_pid;
    uint32_t flags;         /* TN_TENSOR_WRITE_ONCE or 0 */
    uint64_t creator_start; /* clock ticks since boot when the creator started */
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
     * The references that keep a file. Entry 0 is 1 while the domain uses the file. Every other
     * entry is 0, or {start time:42, pid:22} of a process that attached by path. A process
     * takes and clears an entry by an atomic compare-and-swap. The last holder removes the
     * file's name. An entry of a dead process does not keep the file.
     */
    uint64_t holders[TN_STORAGE_HOLDERS];
} tn_storage_header;

enum {
    /*
     * Send a descriptor that can only read. A receiver of another user can then never write. A
     * receiver of the same user may reopen the memory for writing: only TN_TENSOR_WRITE_ONCE
     * prevents that.
     */
    TN_SEND_READ_ONLY = 1u << 0
};

/**
 * Send a FILE_DESCRIPTOR tensor, with its attributes, over a Unix socket. The receiver need not
 * be a member of the domain, nor run as the same user. Its memory remains valid after this
 * process has ended.
 *
 * The tensor is sent as one packet of at most 64 KiB (docs/layout.md). A stream may carry other
 * bytes before and after the packet.
 *
 * A received tensor can be sent on. If its descriptor can only read, the next receiver gets a
 * descriptor that can only read, whatever `flags` are. If its descriptor can write, sending it
 * with TN_SEND_READ_ONLY reopens the memory, which only a process of the storage's user may do.
 *
 * @param tensor     borrowed
 * @param socket_fd  a connected SOCK_STREAM or SOCK_SEQPACKET socket; borrowed
 * @param flags      TN_SEND_*
 * @return 0, or
 *         TN_ERR_INVALID      the tensor is NULL or private; a flag is unknown; or the socket
 * is of the wrong kind TN_ERR_UNSUPPORTED  the tensor has another strategy TN_ERR_CLOSED the
 * other side has closed the socket TN_ERR_TIMED_OUT    the deadline passed. If the error's
 * sentence says that a part of the packet was sent, the stream can only be closed TN_ERR_SYSTEM
 * a system call failed, or this process may not reopen the memory Other errors as
 * tn_tensor_descriptor().
 *
 * Threads: any, but packets that two threads send over one stream may be mixed up.
 * Blocks: until the socket has room for the packet, or the deadline.   Fork: yes.
 */
TN_API TN_NODISCARD int tn_tensor_send(tn_tensor *tensor, int socket_fd, uint32_t flags,
                                       tn_deadline deadline);

/**
 * Receive a tensor that tn_tensor_send() sent. Any process may receive it. The tensor belongs
 * to no domain, and tn_tensor_share() refuses it: copy it to share it. It is read-only if its
 * descriptor can only read. The tensor keeps one descriptor and one mapping until it and its
 * views have ended.
 *
 * @param socket_fd   as tn_tensor_send(); the call reads nothing beyond the packet
 * @param ret_tensor  owned by the caller; untouched on failure
 * @return 0, or
 *         TN_ERR_CLOSED     the other side has closed the socket
 *         TN_ERR_TIMED_OUT  no packet arrived before the deadline; a part of a packet that
 *                           arrived is lost
 *         TN_ERR_INVALID    ret_tensor is NULL; the data is not a tensor; or the descriptor is
 *                           not a memory object, is not sealed against shrinking, has huge
 *                           pages, or is shorter than its header says
 *         TN_ERR_VERSION    the packet or the storage has another version, or a feature that
 *                           this library does not know
 *         TN_ERR_NO_MEMORY  there is no private memory, or no room for another mapping
 *         TN_ERR_SYSTEM     a system call failed, for example because this process cannot have
 *                           another descriptor
 *         After INVALID and VERSION, the call has read the packet. If the data was not a
 * packet, it has read 24 bytes.
 *
 * Threads: one at a time per socket.
 * Blocks: until a packet arrives, or the deadline. With TN_NOW, a packet of which only a part
 * has arrived stays in the socket for the next call.
 * Fork: a child has the tensor as well.
 */
TN_API TN_NODISCARD int tn_tensor_receive(int socket_fd, tn_deadline deadline,
                                          tn_tensor **ret_tensor);

/**
 * Get a descriptor of a FILE_DESCRIPTOR storage, which the program may pass on by any means.
 * @param flags   TN_SEND_*
 * @param ret_fd  owned by the caller, close-on-exec; untouched on failure
 * @return 0, or
 *         TN_ERR_INVALID      an argument is NULL; a flag is unknown; or the tensor is private
 *         TN_ERR_UNSUPPORTED  the tensor has another strategy
 *         TN_ERR_STALE        the storage has ended with its domain
 *         TN_ERR_NOT_FOUND    no live process and no tenond has a descriptor of the storage
 *         TN_ERR_MANAGER      tenond, which has the descriptor, does not answer
 *         TN_ERR_FULL         this process cannot open another descriptor
 *         TN_ERR_SYSTEM       a system call failed, or this process may not reopen the memory
 *                             (see tn_tensor_send())
 *         TN_ERR_CLOSED, TN_ERR_FORKED  this process has left the domain, or has no seat in it
 *
 * Threads: any.   Fork: yes.
 * Blocks: never, except that the call waits a second or two for a tenond that is stopped.
 */
TN_API TN_NODISCARD int tn_tensor_descriptor(tn_tensor *tensor, uint32_t flags, int *ret_fd);

/**
 * Make the tensor that the header of a storage describes, from the storage's descriptor. The
 * tensor has no attributes, and belongs to no domain.
 * @param fd          borrowed: the tensor has a duplicate of its own
 * @param ret_tensor  owned by the caller; untouched on failure
 * @return as tn_tensor_receive(), without TN_ERR_CLOSED and TN_ERR_TIMED_OUT
 */
TN_API TN_NODISCARD int tn_tensor_from_descriptor(int fd, tn_tensor **ret_tensor);

/**
 * Make the tensor that the header of a FILE_SYSTEM storage describes, from the file's path. Any
 * process of the same user, pid namespace and time namespace may do so. The file remains until
 * the tensor or the process ends; the last holder removes the file.
 *
 * A file is not sealed, as the memory of a descriptor is: if a program truncates the file, the
 * processes that map it die of SIGBUS.
 *
 * @param path        absolute, as in tn_tensor_info's `path`; borrowed
 * @param ret_tensor  owned by the caller; untouched on failure
 * @return 0, or
 *         TN_ERR_INVALID    an argument is NULL; the path is not absolute; or it does not name
 * a regular file TN_ERR_NOT_FOUND  there is no such file TN_ERR_DENIED     the file belongs to
 * another user or another such namespace; or the path names a symbolic link, which the call
 * does not follow TN_ERR_CORRUPT    the file is truncated, or its header makes no sense
 *         TN_ERR_VERSION    the storage has another version, or a feature that this library
 * does not know TN_ERR_FULL       TN_STORAGE_HOLDERS - 1 processes hold the file already
 *         TN_ERR_NO_MEMORY, TN_ERR_SYSTEM  as tn_tensor_receive()
 *
 * Threads: any.   Blocks: never.
 * Fork: a child can use the tensor, but only the parent keeps the file.
 * Crash: other processes ignore and reuse the entry of a dead process in `holders`.
 */
TN_API TN_NODISCARD int tn_tensor_open_path(const char *path, tn_tensor **ret_tensor);

TN_END_DECLS

#endif
