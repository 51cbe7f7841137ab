/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TENON_TENSOR_H
#define TENON_TENSOR_H

#include <tenon/device.h>
#include <tenon/domain.h>

TN_BEGIN_DECLS

/**
 * A tensor: a typed, strided view of a storage. A storage: the bytes, shared or private.
 *
 * A tn_tensor is a small private object that refers to a storage; the storage, if shared, keeps
 * one hold on its block for this process. Words, numbers and units are DLPack's: `shape` and
 * `strides` are [ndim] of elements, `byte_offset` counts from the start of the storage.
 * Tensors are counted: tn_tensor_ref() and tn_tensor_unref(). A tensor's shape never changes.
 *
 * Threads: any number at once may read, ref and unref one tensor.
 */
typedef struct tn_tensor tn_tensor;

/**
 * The type of an element, as one number: DLPack's code, bits and lanes. A type that is not a
 * whole number of bytes is refused.
 */
typedef uint32_t tn_dtype;

enum { TN_MAX_NDIM = 32 };

#define TN_DTYPE(code, bits, lanes)                                                            \
    ((uint32_t)(code) | (uint32_t)(bits) << 8 | (uint32_t)(lanes) << 16)
#define TN_DTYPE_CODE(dtype)  ((uint8_t)(dtype))
#define TN_DTYPE_BITS(dtype)  ((uint8_t)((dtype) >> 8))
#define TN_DTYPE_LANES(dtype) ((uint16_t)((dtype) >> 16))

enum {
    TN_INT8 = TN_DTYPE(0, 8, 1),
    TN_INT16 = TN_DTYPE(0, 16, 1),
    TN_INT32 = TN_DTYPE(0, 32, 1),
    TN_INT64 = TN_DTYPE(0, 64, 1),
    TN_UINT8 = TN_DTYPE(1, 8, 1),
    TN_UINT16 = TN_DTYPE(1, 16, 1),
    TN_UINT32 = TN_DTYPE(1, 32, 1),
    TN_UINT64 = TN_DTYPE(1, 64, 1),
    TN_FLOAT16 = TN_DTYPE(2, 16, 1),
    TN_FLOAT32 = TN_DTYPE(2, 32, 1),
    TN_FLOAT64 = TN_DTYPE(2, 64, 1),
    TN_BFLOAT16 = TN_DTYPE(4, 16, 1),
    TN_COMPLEX64 = TN_DTYPE(5, 64, 1),
    TN_COMPLEX128 = TN_DTYPE(5, 128, 1),
    TN_BOOL = TN_DTYPE(6, 8, 1),
    TN_FLOAT8_E4M3FN = TN_DTYPE(10, 8, 1),
    TN_FLOAT8_E5M2 = TN_DTYPE(12, 8, 1)
};

/**
 * Write a type's name, as in "float32", "float8_e4m3fn" or "int32x4", into `name`.
 * @param size_bytes  32 suffices for every type
 * @return 0, or TN_ERR_INVALID (unknown type, or no room)
 */
TN_API TN_NODISCARD int tn_dtype_name(tn_dtype dtype, char *name, size_t size_bytes);

/** Find a type by the name that tn_dtype_name() gives it. TN_ERR_INVALID: unknown. */
TN_API TN_NODISCARD int tn_dtype_parse(const char *name, tn_dtype *ret_dtype);

/** Bytes of one element. TN_ERR_UNSUPPORTED: not whole bytes; TN_ERR_INVALID: unknown type. */
TN_API TN_NODISCARD int tn_dtype_size(tn_dtype dtype, size_t *ret_bytes);

enum {
    /*
     * Only this process can write the storage, now and ever: the kernel refuses every other
     * one, and a child before fork() returns in it (not one made past fork()'s handlers, as
     * _Fork() does). Implies TN_STRATEGY_FILE_DESCRIPTOR; others get read-only tensors.
     */
    TN_TENSOR_WRITE_ONCE = 1u << 0,
    TN_TENSOR_ZEROED = 1u << 1 /* filled with zero bytes */
};

/** How a tensor is made in shared memory. Zero in a field means its default. */
typedef struct tn_tensor_options {
    size_t struct_size;   /* sizeof(tn_tensor_options) */
    uint32_t strategy;    /* TN_STRATEGY_*, tenon/share.h; default: that of this process */
    uint32_t flags;       /* TN_TENSOR_* */
    tn_deadline deadline; /* until when to wait for memory while the quota is used; default:
                             TN_NOW, do not wait, save 100 ms at most for others who are taking
                             or giving back memory just now */
    const void *source;   /* bytes [source_bytes] that it is filled with, in row-major order;
                             borrowed; default: none */
    size_t source_bytes;  /* the size of the tensor, if there is a source */
    tn_device device;     /* where its memory is; default: the CPU; of tn_tensor_clone() the
                             device of the tensor. A tensor on another device has the strategy
                             TN_STRATEGY_CUDA_VMM */
    void *stream;         /* of tn_tensor_share(), for a private tensor on a device that has to
                             be copied: the copy comes after what this stream was given, and
                             does not wait; default: the device's default stream */
} tn_tensor_options;

/**
 * Make a tensor in shared memory. Its contents are undefined, unless the options have a source
 * or TN_TENSOR_ZEROED. Six parameters: what seldom differs stands in the options.
 *
 *     tn_tensor_create(domain, TN_FLOAT32, 2, (int64_t[]){480, 640}, NULL, &image);
 *
 * @param shape       [ndim], elements; each >= 0; borrowed; may be NULL when ndim is 0
 * @param options     borrowed; NULL for the defaults
 * @param ret_tensor  owned by the caller; untouched on failure
 * @return 0, or
 *         TN_ERR_INVALID      ndim, a size, the product or an option is out of range; the type
 *                             is unknown; source_bytes is not the size of the tensor; of
 *                             FILE_SYSTEM: $TENON_SHM_DIR is no absolute path
 *         TN_ERR_UNSUPPORTED  a sub-byte type; this system lacks the strategy; there is no
 *                             driver of the device, or processes cannot share its memory
 *         TN_ERR_NO_MEMORY    the quota or the machine has no room, and the deadline was
 *                             TN_NOW; or, whatever the deadline, the tensor is larger than the
 *                             quota can be (memory outside of the arena: two pages more), or
 *                             than the whole file system
 *         TN_ERR_FULL         no free block in the table; no descriptor is left for the storage
 *                             here or in tenond
 *         TN_ERR_TIMED_OUT    no room until the deadline
 *         TN_ERR_INTERRUPTED  tn_interrupt_set()
 *         TN_ERR_FORKED       no seat
 *         TN_ERR_DEVICE       of a device: its driver failed
 *         TN_ERR_MANAGER      of a device: tenond, from which other processes get its memory,
 *                             does not answer
 *         TN_ERR_DENIED       of memory outside of the arena: setuid() took this process away
 *                             from the domain's user; the folder of files is not writable
 *         TN_ERR_NOT_FOUND    of FILE_SYSTEM: there is no such folder; there is no such device
 *         TN_ERR_SYSTEM       a system call failed
 *
 * The data is aligned to 64 bytes at least, to 2 MiB when it is larger than 1 MiB. The data of
 * the two strategies with memory of their own is zeroed and aligned to a page. On a device the
 * data is aligned to the driver's granularity, 2 MiB as a rule, and undefined.
 *
 * Whatever the deadline, FILE_DESCRIPTOR gives tenond the descriptor, and waits a second for a
 * tenond that is stopped or silent; not again within the next second. The storage is made
 * nevertheless. Until tenond has the descriptor, each push and export of the storage asks
 * again, and waits as long: the storage is to outlive this process.
 *
 * Threads: any.   Blocks: until the deadline, or as above.   Fork: yes.
 * Crash: the memory is free again.
 */
TN_API TN_NODISCARD int tn_tensor_create(tn_domain *domain, tn_dtype dtype, int32_t ndim,
                                         const int64_t *shape, const tn_tensor_options *options,
                                         tn_tensor **ret_tensor);

/** Make a tensor in private memory, zeroed; tn_tensor_share() moves it later. */
TN_API TN_NODISCARD int tn_tensor_create_private(tn_dtype dtype, int32_t ndim,
                                                 const int64_t *shape, tn_tensor **ret_tensor);

/**
 * Move a private tensor's storage into a domain: new shared memory, a copy, and the storage's
 * pointer swapped, so that every tensor over this storage is shared afterwards.
 *
 * Pointers from tn_tensor_data() taken before are invalid afterwards. A storage that this
 * domain holds already stays where it is, whatever its strategy. On failure nothing changed.
 *
 * @param options  as of tn_tensor_create(), without TN_TENSOR_ZEROED and a source
 * @return as tn_tensor_create(), or TN_ERR_INVALID when it is shared in another domain, or
 *         TN_ERR_DENIED when it is read-only, when a DLPack export still points into its
 *         memory, or when it was to be write-once, is shared already, and is not
 *
 * Threads: several may share views of one storage at the same time; apart from that, no other
 * thread may use tensors over it meanwhile.
 */
TN_API TN_NODISCARD int tn_tensor_share(tn_domain *domain, tn_tensor *tensor,
                                        const tn_tensor_options *options);

/**
 * Make a tensor in shared memory that has the elements of this one, side by side in row-major
 * order, and its attributes. The tensor itself, private or shared, stays as it is: this shares
 * a view without the rest of its storage.
 * @param options     as of tn_tensor_create(), without TN_TENSOR_ZEROED and a source
 * @param ret_tensor  owned by the caller; untouched on failure
 * @return as tn_tensor_create(), or TN_ERR_UNSUPPORTED (an attribute cannot go along)
 */
TN_API TN_NODISCARD int tn_tensor_clone(tn_domain *domain, const tn_tensor *tensor,
                                        const tn_tensor_options *options,
                                        tn_tensor **ret_tensor);

/** Take one more reference to the tensor. Returns its argument; NULL is accepted. */
TN_API tn_tensor *tn_tensor_ref(tn_tensor *tensor);

/** Release one reference. Returns NULL; NULL is accepted. Crash: the reaper finishes it. */
TN_API tn_tensor *tn_tensor_unref(tn_tensor *tensor);

/**
 * Make a view of the same storage with any shape and strides. Seven parameters: each call gives
 * all of them, and a struct of them would have no default.
 *
 * @param byte_offset  of the first element, from the start of the storage
 * @param strides      [ndim], elements, may be 0 or negative; NULL for row-major
 * @return 0, or TN_ERR_INVALID when any element would lie outside of the storage, or
 *         TN_ERR_UNSUPPORTED when the tensor has an attribute that a view cannot keep
 *         (tenon/attribute.h), or TN_ERR_NO_MEMORY (private memory)
 */
TN_API TN_NODISCARD int tn_tensor_view(tn_tensor *tensor, tn_dtype dtype, int32_t ndim,
                                       const int64_t *shape, const int64_t *strides,
                                       uint64_t byte_offset, tn_tensor **ret_view);

/**
 * Make a view of the elements start, start + step, ... before stop along one axis. Six
 * parameters: a slice is these numbers.
 * @param start, stop  in [0, size], start <= stop; out of range is TN_ERR_INVALID, not clipped.
 *                     With a negative step: elements stop - 1, stop - 1 + step, ... down to
 *                     start
 * @param step         not 0
 * @return as tn_tensor_view()
 */
TN_API TN_NODISCARD int tn_tensor_slice(tn_tensor *tensor, int32_t axis, int64_t start,
                                        int64_t stop, int64_t step, tn_tensor **ret_view);

/**
 * Axes in the order `axes` [ndim], a permutation; NULL reverses them. A view: errors as of
 * tn_tensor_view().
 */
TN_API TN_NODISCARD int tn_tensor_transpose(tn_tensor *tensor, const int32_t *axes,
                                            tn_tensor **ret_view);

/**
 * The same elements in another shape, as a view; one size may be -1 and is then computed.
 * TN_ERR_INVALID: another number of elements, or strides that allow no view. Other errors as of
 * tn_tensor_view().
 */
TN_API TN_NODISCARD int tn_tensor_reshape(tn_tensor *tensor, int32_t ndim, const int64_t *shape,
                                          tn_tensor **ret_view);

/**
 * Copy all elements of `source` to `target`; same type and shape, any strides. If one of them
 * is on a device, the copy is done when the call returns.
 * @return 0, TN_ERR_INVALID (types or shapes differ, or target repeats an element by a 0
 *         stride), TN_ERR_DENIED (target is read-only), TN_ERR_UNSUPPORTED (attributes say
 *         that equal elements mean different values in the two), TN_ERR_NO_MEMORY,
 *         TN_ERR_DEVICE (then the target may have some of the elements), TN_ERR_FORKED (a
 *         device, in a child of a process that used it). Overlapping views copy as if through
 *         a third buffer.
 *
 * Rows of side-by-side elements go from and to devices by few calls of the driver, as all
 * elements do by one call if both tensors lie in one order without gaps. If that would take
 * many calls, as for a large transposed tensor, or if the two overlap, the elements go through
 * private memory of the host, as much as they need; each way it has them once. Overlapping
 * parts of one device without gaps go through memory of the device, which has to have room.
 */
TN_API TN_NODISCARD int tn_tensor_copy(tn_tensor *target, const tn_tensor *source);

/**
 * Copy as tn_tensor_copy() does, from or to a device, in the order of a stream of that device:
 * after what the stream was given before, and before what it is given later.
 *
 * The stream first waits for the content of both, as after tn_tensor_wait(), and the copy is
 * recorded, as by tn_tensor_record(): the tensors may be pushed or given back at once.
 *
 * The call does not wait, unless the elements go through other memory, as tn_tensor_copy()
 * says: then it waits for all that the stream was given, and the copy is done when the call
 * returns. From another device, with the default stream, it first waits for the default stream
 * of that device. Memory of the host that is not registered with the driver may have
 * been read or written when the call returns, and need not; memory that is must stay until the
 * stream has done the copy.
 *
 * @param stream  a CUstream, borrowed, of the target's device, or of the source's if the target
 *                is on the CPU; NULL is the legacy default stream
 * @return as tn_tensor_copy(), which this is if both are on the CPU, and tn_tensor_wait()
 *
 * Threads: any.   Blocks: as the driver does.
 */
TN_API TN_NODISCARD int tn_tensor_copy_on(tn_tensor *target, const tn_tensor *source,
                                          void *stream);

/**
 * Say that the stream has been given all work on the tensor that this process wants done for
 * now: who gets the tensor can wait until the stream has done it, without the processor.
 *
 * The content of a tensor on a device may be ready later than the tensor itself. Each message
 * and each handle tells what was recorded last before it was made:
 *
 *     launch(kernel, stream, tn_tensor_data(tensor));       producer
 *     tn_tensor_record(tensor, stream);
 *     tn_queue_push_tensor(queue, tensor, 0, deadline);
 *
 *     tn_queue_pop_tensor(queue, deadline, &tensor);        consumer
 *     tn_tensor_wait(tensor, stream);
 *     launch(kernel, stream, tn_tensor_data(tensor));
 *     tn_tensor_record(tensor, stream);
 *     tn_tensor_unref(tensor);
 *
 * No process waits here. What was recorded before, by this process or by the one from which
 * the tensor came, is included. The memory of a tensor goes to others only after all that was
 * recorded is done. If the program asked for the address of the tensor and recorded nothing
 * afterwards, or has a DLPack export of it, tn_tensor_unref() waits for the devices instead.
 * Work that is given to a stream after the call needs a call of its own, and so does work on
 * another stream. A process has an order for 64 streams, and a domain for 512; more streams
 * share them, and then wait for each other now and then. Where the driver cannot order streams
 * of processes, the call waits until the stream has done its work.
 *
 * @param stream  a CUstream, borrowed, of the tensor's device; NULL is the legacy default
 * stream
 * @return 0; TN_ERR_INVALID: the tensor is NULL; the stream is of another device or context, or
 *         is being captured into a graph; TN_ERR_UNSUPPORTED: the tensor is on the CPU;
 *         TN_ERR_DEVICE, TN_ERR_FORKED, TN_ERR_CLOSED
 *
 * Threads: any.   Blocks: as above.   Fork: a child cannot use the device.
 * Crash: the tensor is incomplete, and who waits for it is released.
 */
TN_API TN_NODISCARD int tn_tensor_record(tn_tensor *tensor, void *stream);
/**
 * Let a stream do what it is given from now on only once the content of the tensor is ready:
 * once all that was recorded is done. Does nothing if that is so, and for a tensor on the CPU.
 *
 * If a process that has recorded something dies before its device has done it, the stream goes
 * on, and tn_tensor_info.is_incomplete says so.
 *
 * @param stream  as of tn_tensor_record()
 * @return as tn_tensor_record(); TN_ERR_PEER_DIED: such a process has died, and the tensor is
 *         incomplete; tn_error_peer() names the process
 *
 * Threads: any.   Blocks: where the driver cannot order streams, until the content is ready.
 * Fork: as of tn_tensor_record().   Crash: nothing is left.
 */
TN_API TN_NODISCARD int tn_tensor_wait(const tn_tensor *tensor, void *stream);
/**
 * Wait until the content of the tensor is ready, without a stream.
 * @return 0, also for a tensor on the CPU; TN_ERR_TIMED_OUT; TN_ERR_INTERRUPTED;
 *         TN_ERR_PEER_DIED, as of tn_tensor_wait(); TN_ERR_INVALID: the tensor is NULL
 *
 * Threads: any.   Blocks: until the deadline.   Fork: yes.   Crash: nothing is left.
 */
TN_API TN_NODISCARD int tn_tensor_sync(const tn_tensor *tensor, tn_deadline deadline);

/**
 * Make a tensor on another device that has the elements of this one, side by side in row-major
 * order, and its attributes.
 *
 * @param domain      in which the new tensor is shared; on the CPU it is in the arena
 * @param tensor      with any strides
 * @param stream      as of tn_tensor_copy_on(); ignored if both are on the CPU
 * @param ret_tensor  owned by the caller; untouched on failure. If it is on the CPU its
 * elements are there once the stream has done the copy
 * @return as tn_tensor_create() and tn_tensor_copy_on()
 *
 * Threads: any.   Blocks: as the driver does.   Crash: the memory is free again.
 */
TN_API TN_NODISCARD int tn_tensor_to(tn_domain *domain, const tn_tensor *tensor,
                                     tn_device device, void *stream, tn_tensor **ret_tensor);

/**
 * Register the memory of a tensor's storage with the driver of CUDA, or with that of ROCm if
 * this process sees no device of CUDA. The registration is of this process: copies
 * between it and devices then go at full speed, without a copy in between. It stays registered
 * until tn_tensor_unpin(), or until the process gives back the last tensor over the storage,
 * and that waits for the devices. If the process received the storage several times, each of
 * these counts for itself. To other processes it is a tensor on the CPU like any other.
 *
 * Registering takes as long as a copy or longer: it pays for memory that is copied many times.
 * A storage that is registered cannot be resized or moved by tn_tensor_share().
 *
 * @return 0, also if it is registered already by this call; TN_ERR_EXISTS: a page of it is
 *         registered by somebody else, such as another small tensor in the same page;
 *         TN_ERR_INVALID: the tensor is NULL; TN_ERR_UNSUPPORTED: the tensor is on a device, or
 *         there is no driver; TN_ERR_DENIED: it is read-only for this process;
 *         TN_ERR_NO_MEMORY: the machine lets this process keep no more memory in place;
 *         TN_ERR_DEVICE, TN_ERR_FORKED
 *
 * Threads: any.   Blocks: as the driver does.   Fork: a child has it not registered.
 * Crash: the kernel ends it.
 */
TN_API TN_NODISCARD int tn_tensor_pin(tn_tensor *tensor);
/**
 * End tn_tensor_pin(), after all copies on streams that use the memory. A storage that is not
 * registered stays as it is.
 * @return 0, TN_ERR_INVALID (the tensor is NULL), TN_ERR_DEVICE, TN_ERR_FORKED
 */
TN_API TN_NODISCARD int tn_tensor_unpin(tn_tensor *tensor);

/**
 * The first element; NULL if the tensor has none. Borrowed while the tensor lives and is not
 * shared anew. Of a tensor on a device it is the device's address in this process, which no
 * program on the CPU can follow.
 */
TN_API void *tn_tensor_data(const tn_tensor *tensor);
/** The type of its elements. */
TN_API tn_dtype tn_tensor_dtype(const tn_tensor *tensor);
/** How many axes it has; 0 for a single element. */
TN_API int32_t tn_tensor_ndim(const tn_tensor *tensor);
/** [ndim], elements; borrowed while the tensor lives. */
TN_API const int64_t *tn_tensor_shape(const tn_tensor *tensor);
/** The device that has its memory, as this process numbers devices. */
TN_API tn_device tn_tensor_device(const tn_tensor *tensor);
/** Number of elements. */
TN_API int64_t tn_tensor_count(const tn_tensor *tensor);

/** Further properties of a tensor. Borrowed pointers are valid while the tensor lives. */
typedef struct tn_tensor_info {
    size_t struct_size;     /* sizeof(tn_tensor_info), set by the caller */
    const int64_t *strides; /* [ndim], elements; borrowed */
    uint64_t byte_offset;   /* of the first element, from the start of the storage */
    uint64_t size_bytes;    /* of all elements, were they contiguous */
    uint64_t storage_bytes; /* of the whole storage */
    uint32_t strategy;      /* TN_STRATEGY_*; TN_STRATEGY_DEFAULT while it is private */
    bool is_contiguous;     /* row-major, without gaps */
    bool is_shared;
    bool is_read_only;
    bool is_incomplete; /* on a device: a process died before its device had done what the
                           process gave it for the content: tn_tensor_record() */
    const char *path;   /* of a FILE_SYSTEM storage; NULL for every other; borrowed */
} tn_tensor_info;

/**
 * Describe the tensor.
 * @param ret_info  its struct_size says how much is filled in; untouched on failure
 * @return 0, or TN_ERR_INVALID: an argument is NULL, or struct_size is out of range
 */
TN_API TN_NODISCARD int tn_tensor_get_info(const tn_tensor *tensor, tn_tensor_info *ret_info);

/** True when both are views of one storage, in whatever process they were made. */
TN_API bool tn_tensor_same_storage(const tn_tensor *one, const tn_tensor *other);

/**
 * Find the shared storage in which the `size_bytes` bytes from `address` lie, and make one more
 * tensor over the whole storage, as uint8 [n]. So a program can send memory that another
 * library points at, without a copy.
 *
 * @param address     anything: nothing is read there
 * @param size_bytes  0: the storage that `address` lies in, or that starts there
 * @param ret_tensor  owned by the caller; read-only where the storage is for this process;
 *         untouched on failure
 * @return 0, or
 *         TN_ERR_NOT_FOUND  no storage of this domain that this process holds has all of them
 *         TN_ERR_INVALID    no domain, or no place for the result
 *         TN_ERR_NO_MEMORY  private memory
 *         TN_ERR_FORKED     no seat
 *
 * The caller must keep the memory alive during the call; otherwise the result may be another
 * tensor that was put at this address.
 *
 * In the arena the cost does not depend on the number of tensors; storages of this process
 * outside of the arena are searched one by one. Threads: any.   Blocks: never.   Fork: yes.
 * Crash: as of tn_tensor_ref(): the reaper gives back what this process held.
 */
TN_API TN_NODISCARD int tn_tensor_find(tn_domain *domain, const void *address,
                                       uint64_t size_bytes, tn_tensor **ret_tensor);

/* DLPack's own header is <tenon/dlpack.h>; this one needs no more than the name. */
struct DLManagedTensorVersioned;

/**
 * Export through DLPack 1.x, without a copy. The export owns a reference of its own.
 * @param ret_managed  owned by the caller, ended with its deleter
 * @return 0, TN_ERR_UNSUPPORTED (a conjugate or negative bit, or a quantizer), TN_ERR_NO_MEMORY
 */
TN_API TN_NODISCARD int tn_tensor_to_dlpack(tn_tensor *tensor,
                                            struct DLManagedTensorVersioned **ret_managed);

/**
 * Import from DLPack 1.x, without a copy, as a private tensor over foreign memory. Page-locked
 * host memory of CUDA and ROCm is CPU memory too, and sets TN_WAS_PINNED.
 *
 * @param managed  consumed: its deleter runs when the storage ends; left with the caller on
 *         failure
 * @return 0, or TN_ERR_VERSION (major version not 1), TN_ERR_UNSUPPORTED (not CPU memory, or a
 *         sub-byte type), TN_ERR_INVALID (shape, strides or type make no sense),
 *         TN_ERR_NO_MEMORY (private memory)
 */
TN_API TN_NODISCARD int tn_tensor_from_dlpack(struct DLManagedTensorVersioned *managed,
                                              tn_tensor **ret_tensor);

TN_END_DECLS

#endif
